//! Pools in which every structure is there to be damaged: tables with entries, events, a relocated
//! frame, a repair under way, records that wait for recovery, maps.

use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_collections::{Kind, Map};
use holdfast_faultmem::{Clear, Image};
use holdfast_layout::RawPtr;
use holdfast_layout::format::{FIELDS_MIRRORED, FIELDS_SUPERBLOCK, INTENT_PAGE, KIND_INTENT};
use holdfast_logs::format::{KIND_FRESH, KIND_OVERFLOW};
use holdfast_object::{Pool, Tx};
use holdfast_pmem::PAGE;
use holdfast_txn::{Result as TxResult, TxError};
use holdfast_workloads::Rng;

use crate::object::driver::{Driver, agree, whole};
use crate::object::handle::Handle;
use crate::object::judge::scrub;
use crate::object::killers::marks::about_to_mark;
use crate::object::model::Objects;
use crate::object::ops::{Choice, Job, Op};
use crate::object::raw::log::{Record, marks, pending};
use crate::object::raw::{Bytes, number};
use crate::object::scenes::{refused, stage};
use crate::object::targets::{Area, Targets};
use crate::object::world::World;
use crate::tally::{Fault, Judged, Violation};

/// Entries of a map of which one in a few has an entry of its own: enough for a level above the
/// buckets of every structure, and for tall nodes of a skip list.
const MIXED: u64 = 400;

/// Entries with crowded keys: more than a bucket holds.
const CROWD: usize = 80;
/// Seed of the hash tables: that of the hasher of the standard library, which is the same function.
const SEED: [u64; 2] = [0; 2];
/// Entries put in by one transaction.
const PER_COMMIT: usize = 20;

/// What a specimen is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Tables, events, a relocated frame, objects of every kind.
    Tables,
    /// A map of each kind with these entries.
    Maps(Pairs, &'static [Kind]),
    /// A repair under way.
    Intent,
    /// A record waiting for recovery, with an entry of this kind.
    Record(u8),
    /// A watermark record in force; in a world with small rings.
    Mark,
}

/// What is in the maps of a specimen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairs {
    /// Keys and values of all lengths around those that fit into an item.
    Mixed,
    /// So many keys of two bytes, which part at the first.
    Wide(u16),
    /// Keys whose hashes start the same, so that a hash table has to go by more bits.
    Crowded,
}

/// Maps with the same entries.
#[derive(Debug, Clone)]
pub struct Maps {
    /// Pointer words of their headers.
    pub headers: Vec<u64>,
    /// Their entries.
    pub pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A pool to be damaged again and again, and what it holds.
#[derive(Debug, Clone)]
pub struct Specimen {
    /// Where it is played.
    pub world: Arc<World>,
    /// The pool.
    pub image: Image,
    /// What it holds once it is opened.
    pub objects: Objects,
    /// Its anchor.
    pub anchor: u64,
    /// Its maps, if it has any.
    pub maps: Option<Maps>,
    /// Whether it has to be recovered.
    pub dirty: bool,
}

impl Specimen {
    /// Makes one.
    ///
    /// # Errors
    /// The pool cannot be made so, or cannot be opened without any damage.
    pub fn of(world: &Arc<World>, wanted: Wanted, rng: &mut Rng) -> Judged<Self> {
        let specimen = match wanted {
            Wanted::Tables => tables(world, stage(world, rng)?, rng)?,
            Wanted::Maps(pairs, kinds) => maps(world, stage(world, rng)?, pairs, kinds)?,
            Wanted::Intent => intent(world, stage(world, rng)?)?,
            Wanted::Record(kind) => record(world, stage(world, rng)?, kind, rng)?,
            Wanted::Mark => mark(world, rng)?,
        };
        let driver = specimen.open().map_err(|v| v.during("undamaged"))?;
        agree(&driver.ledger.promise(), &whole(&driver.medium)?.objects)?;
        driver.medium.abandon(driver.pool);
        Ok(specimen)
    }

    /// Its medium, closed.
    #[must_use]
    pub fn medium(&self) -> Handle {
        self.world.after(self.image.clone())
    }

    /// Opens it.
    ///
    /// # Errors
    /// It is refused.
    pub fn open(&self) -> Judged<Driver> {
        let medium = self.medium();
        let (pool, _) = self.world.open(&medium).map_err(|error| refused("open", &error))?;
        Ok(self.driver(medium, pool))
    }

    /// Drives the pool that was opened on one of its media.
    #[must_use]
    pub fn driver(&self, medium: Handle, pool: Pool<Handle>) -> Driver {
        let driver = Driver::new(medium, pool, self.objects.clone());
        Driver { anchor: self.anchor, ..driver }
    }

    fn closed(world: &Arc<World>, driver: Driver) -> Self {
        let Driver { medium, pool, ledger, anchor } = driver;
        drop(pool);
        let image = medium.crash_point().newest();
        let (world, objects) = (Arc::clone(world), ledger.objects());
        Self { world, image, objects, anchor, maps: None, dirty: false }
    }

    fn crashed(world: &Arc<World>, driver: Driver, image: Image, objects: Objects) -> Self {
        let anchor = driver.anchor;
        driver.medium.abandon(driver.pool);
        Self { world: Arc::clone(world), image, objects, anchor, maps: None, dirty: true }
    }
}

fn missing(what: &str) -> Violation {
    Violation::new(Fault::Refused, format!("the specimen has no {what}"))
}

fn tables(world: &Arc<World>, driver: Driver, rng: &mut Rng) -> Judged<Specimen> {
    driver.go_on(rng, 12)?;
    // The last free page: no object comes to lie on it.
    let targets = Targets::of(&Bytes::of(&driver.medium));
    let free = targets.of_area(Area::Free).last().ok_or_else(|| missing("free chunk"))?;
    let page = (free.at + free.len - PAGE) / PAGE * PAGE;
    let poisoned = driver.medium.poison(page, 1, Clear::Unable);
    poisoned.map_err(|error| Violation::new(Fault::Refused, format!("injecting: {error}")))?;
    scrub(&driver.pool)?;
    Ok(Specimen::closed(world, driver))
}

/// Runs `work` as a transaction of its own.
fn commit<R>(driver: &Driver, work: impl FnMut(&Tx<'_, Handle>) -> TxResult<R>) -> Judged<R> {
    driver.pool.run(work).map_err(|error| refused("filling maps", &error))
}

fn maps(world: &Arc<World>, driver: Driver, wanted: Pairs, kinds: &[Kind]) -> Judged<Specimen> {
    let mut pairs = wanted.list();
    let mut headers = Vec::new();
    for kind in kinds {
        let create = |tx: &Tx<'_, Handle>| Map::<[u8], [u8]>::create_seeded(tx, *kind, SEED);
        let map = commit(&driver, create)?;
        headers.push(map.pointer().raw().word());
        for some in pairs.chunks(PER_COMMIT) {
            commit(&driver, |tx| {
                some.iter().try_for_each(|(key, value)| map.put(tx, key, value).map(drop))
            })?;
        }
    }
    pairs.sort();
    let objects = whole(&driver.medium)?.objects;
    let specimen = Specimen::closed(world, driver);
    Ok(Specimen { objects, maps: Some(Maps { headers, pairs }), ..specimen })
}

impl Pairs {
    fn list(self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let word = |n: u64| n.to_le_bytes().to_vec();
        match self {
            Self::Mixed => (0..MIXED).map(mixed).collect(),
            Self::Wide(count) => {
                // An odd factor: all keys differ.
                let key = |n: u16| n.wrapping_mul(40_503).swap_bytes().to_le_bytes().to_vec();
                (0..count).map(|n| (key(n), word(n.into())[..2].to_vec())).collect()
            }
            Self::Crowded => {
                crowded().take(CROWD).map(|n| (word(n), word(n)[..4].to_vec())).collect()
            }
        }
    }
}

/// A key and a value: one in four has an entry, some of these keys start the same.
fn mixed(n: u64) -> (Vec<u8>, Vec<u8>) {
    let number = n * 37 % 1000;
    match n % 8 {
        0 => (format!("key {number:04}").into_bytes(), n.to_le_bytes().to_vec()),
        4 => (format!("longer key {number:04}").into_bytes(), n.to_le_bytes().to_vec()),
        _ => (format!("{number:03}").into_bytes(), n.to_le_bytes()[..(n % 8) as usize].to_vec()),
    }
}

/// Numbers whose bytes have hashes that start with the same byte.
fn crowded() -> impl Iterator<Item = u64> {
    (0..).filter(|n: &u64| {
        let mut hasher = DefaultHasher::new();
        hasher.write(&n.to_le_bytes());
        hasher.finish() >> 56 == 0x5a
    })
}

/// What a barrier saw first.
type Caught = Arc<Mutex<Option<Image>>>;

/// Keeps the first image at a barrier that `wanted` takes.
fn catch(medium: &Handle, wanted: impl Fn(&Bytes) -> bool + Send + Sync + 'static) -> Caught {
    let caught = Caught::default();
    let hook = Arc::clone(&caught);
    medium.on_barrier(Box::new(move |_, _, point| {
        let mut caught = hook.lock().unwrap_or_else(PoisonError::into_inner);
        if caught.is_none() {
            let image = point.newest();
            if wanted(&Bytes::from_vec(image.bytes().to_vec())) {
                *caught = Some(image);
            }
        }
    }));
    caught
}

fn take(driver: &Driver, caught: &Caught, what: &str) -> Judged<Image> {
    driver.medium.clear_on_barrier();
    let image = caught.lock().unwrap_or_else(PoisonError::into_inner).take();
    image.ok_or_else(|| missing(what))
}

fn intent(world: &Arc<World>, driver: Driver) -> Judged<Specimen> {
    let targets = Targets::of(&Bytes::of(&driver.medium));
    let object = targets.of_area(Area::Object).last().ok_or_else(|| missing("object"))?;
    let flipped = driver.medium.flip_bit(object.at, 3);
    flipped.map_err(|error| Violation::new(Fault::Refused, format!("injecting: {error}")))?;
    let caught = catch(&driver.medium, |bytes| {
        let Some((superblock, seed)) = bytes.superblock() else { return false };
        let side_len = number(FIELDS_SUPERBLOCK, "side_len", superblock);
        [0, side_len].into_iter().all(|side| {
            let page = bytes.mirrored(side, INTENT_PAGE, KIND_INTENT, seed);
            page.is_some_and(|page| number(FIELDS_MIRRORED, "count", page.bytes) == 1)
        })
    });
    scrub(&driver.pool)?;
    let image = take(&driver, &caught, "repair under way")?;
    let objects = driver.ledger.objects();
    Ok(Specimen::crashed(world, driver, image, objects))
}

/// The records waiting for recovery that have an entry of this kind.
fn with_entry(bytes: &Bytes, kind: u8) -> Vec<Record> {
    let Some((superblock, seed)) = bytes.superblock() else { return Vec::new() };
    let mut all = pending(bytes, superblock, seed);
    all.retain(|record| record.entries.iter().any(|(other, _)| *other == kind));
    all
}

fn record(world: &Arc<World>, driver: Driver, kind: u8, rng: &mut Rng) -> Judged<Specimen> {
    let choice = Choice::of(&driver.ledger.objects());
    let large = choice.large.iter().max_by_key(|large| large.1).map_or(0, |large| large.0);
    let small = choice.small.first().map_or(0, |small| small.0);
    let op = match kind {
        KIND_FRESH => Op::Alloc { len: 5_000 },
        KIND_OVERFLOW => Op::Write { of: large, from: 100, len: 8_500 },
        _ => Op::Write { of: small, from: 16, len: 8 },
    };
    // Records of commits whose last drain is put off are still there.
    let newest = with_entry(&Bytes::of(&driver.medium), kind).iter().map(|a| a.number).max();
    let caught = catch(&driver.medium, move |bytes| {
        // Both copies, or one damaged copy is more than the redundancy covers.
        let mut found = with_entry(bytes, kind);
        found.retain(|a| Some(a.number) > newest);
        found.iter().any(|a| found.iter().any(|b| a.number == b.number && a.at != b.at))
    });
    let before = driver.ledger.objects();
    driver.must(&Job::new(rng, [op]))?;
    let image = take(&driver, &caught, "record waiting for recovery")?;
    // A record that announces contents comes before the one that commits them.
    let objects = if kind == KIND_FRESH { before } else { driver.ledger.objects() };
    Ok(Specimen::crashed(world, driver, image, objects))
}

/// Commits that come before one that reclaims room, at most.
const LAPS: usize = 400;

/// As it is when the mark is durable, and the record that it makes room for is not.
fn mark(world: &Arc<World>, rng: &mut Rng) -> Judged<Specimen> {
    let mut left = None;
    let driver = about_to_mark(world, rng, |driver, commit| {
        let caught = catch(&driver.medium, |bytes| {
            let Some((superblock, seed)) = bytes.superblock() else { return false };
            let found = marks(bytes, superblock, seed);
            found.iter().any(|a| found.iter().any(|b| a.number == b.number && a.at != b.at))
        });
        let is_caught = || caught.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        for _ in 0..LAPS {
            let before = driver.ledger.objects();
            commit()?;
            if is_caught() {
                left = Some((take(driver, &caught, "mark")?, [before, driver.ledger.objects()]));
                return Ok(());
            }
        }
        Err(missing("mark"))
    })?;
    let (image, either) = left.ok_or_else(|| missing("mark"))?;
    // The record may be there as well, or not yet: one of the two it is.
    let medium = world.after(image.clone());
    let (pool, _) = world.open(&medium).map_err(|error| refused("open", &error))?;
    let recovered = whole(&medium)?.objects;
    medium.abandon(pool);
    let objects = either.into_iter().find(|objects| *objects == recovered);
    let objects = objects.ok_or_else(|| missing("state that is one of the two"))?;
    Ok(Specimen::crashed(world, driver, image, objects))
}

/// Uses the maps: every entry is asked for, all are walked and checked, and changes are made in
/// transactions that are cancelled. Answers the first thing that is not as it was put there.
#[must_use]
pub fn use_maps(driver: &Driver, maps: &Maps) -> Option<String> {
    let mut complaint = None;
    for &header in &maps.headers {
        let done = driver.pool.run(|tx| {
            let map = Map::<[u8], [u8]>::open(tx, RawPtr::from_word(header).typed())?;
            let mut found = Vec::new();
            map.for_each(tx, |key, value| {
                found.push((key.to_vec(), value.to_vec()));
                Ok(())
            })?;
            found.sort();
            let mut same = found == maps.pairs && map.check(tx)?.is_sound();
            for (key, value) in &maps.pairs {
                same &= map.get(tx, key)?.as_deref() == Some(value);
            }
            Ok(same)
        });
        match done {
            Ok(true) => {}
            Ok(false) => complaint = Some("a map holds something else".to_owned()),
            Err(error) => complaint = Some(format!("walking a map: {error}")),
        }
        let done = driver.pool.run(|tx| {
            let map = Map::<[u8], [u8]>::open(tx, RawPtr::from_word(header).typed())?;
            for n in 0..40_u64 {
                map.put(tx, format!("new {n}").as_bytes(), &n.to_le_bytes())?;
            }
            for (key, _) in &maps.pairs {
                map.remove(tx, key)?;
            }
            Err::<(), _>(TxError::cancel("on purpose"))
        });
        match done {
            Err(holdfast_object::Error::Tx(TxError::Cancelled(_) | TxError::NoSpace { .. })) => {}
            Err(error) => complaint = Some(format!("changing a map: {error}")),
            Ok(()) => complaint = Some("a cancelled transaction went through".to_owned()),
        }
    }
    complaint
}
