//! One life of a real pool whose medium goes bad: its basics, and what must hold afterwards.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use holdfast_layout::{RawPtr, Region, RegionKind};
use holdfast_object::{Error, Pool, ScrubControl, ScrubOptions, Scrubbed};
use holdfast_oracle::acked::Model;
use holdfast_pmem::inject::{Poison, poison};
use holdfast_pmem::{Access, Durability, Mapped, Medium, MediumKind, Options, PAGE, Site};
use holdfast_redundancy::Journal;
use holdfast_redundancy::events::Event;
use holdfast_txn::{Transaction, TxError};
use holdfast_workloads::Rng;

use super::live::Live;
use super::mapper;
use super::model::{Change, Object, Objects, name};
use super::ops::{Choice, Job, Op, any_job};
use super::raw::{Bytes, Scope, survey};
use super::scenes::refused;
use super::sick::Sick;
use super::targets::{Area, Target, Targets};
use super::world::{World, clock};
use super::wrong::serve_as_told;
use crate::tally::{Fault, Judged, Violation};

/// Bringing a file's medium up to date before it is copied.
const SETTLE: Site = Site::new("campaign.life.settle");
/// Curing a page by force.
const FORCE: Site = Site::new("campaign.life.force");

/// A pool to begin each life with.
#[derive(Debug)]
pub struct Origin {
    /// Its file.
    pub bytes: Vec<u8>,
    /// What it holds.
    pub objects: Objects,
    /// Its anchor.
    pub anchor: u64,
}

/// One life of a pool.
#[derive(Debug)]
pub struct Life<'a> {
    /// What it is like.
    pub world: &'a World,
    /// Its file.
    pub path: &'a Path,
    /// Its medium.
    pub live: Live,
    /// The pool.
    pub pool: Pool<Live>,
    /// What it has to hold.
    pub objects: Objects,
    /// Its anchor.
    pub anchor: u64,
    /// Its one zone.
    pub zone: Region,
    /// Loads that waited for a repair.
    pub waited: u64,
}

/// How files are mapped: shared memory may be played on any file system.
fn options(kind: MediumKind) -> Options {
    let durability = if kind == MediumKind::Shm { Durability::Process } else { Durability::Auto };
    Options { durability, ..Options::default() }
}

fn map(path: &Path, world: &World) -> Judged<Live> {
    let mapped = Mapped::open(path, Access::Write, &options(world.kind))
        .map_err(|error| Violation::new(Fault::Refused, error.to_string()))?;
    let Some(how) = world.sick else { return Ok(Live::new(mapped)) };
    let sick = Sick::of(path, how, world.off.clone()).map_err(|error| io(path, &error))?;
    Ok(Live::on(mapped, Some(sick)))
}

impl<'a> Life<'a> {
    /// A pool that is as it was in the beginning.
    ///
    /// # Errors
    /// The file cannot be written, or the pool is refused.
    pub fn begin(world: &'a World, path: &'a Path, origin: &Origin) -> Judged<Self> {
        std::fs::write(path, &origin.bytes).map_err(|error| io(path, &error))?;
        Self::open(world, path, origin.objects.clone(), origin.anchor)
    }

    /// Opens the pool in a file, which holds these objects.
    ///
    /// # Errors
    /// It is refused.
    pub fn open(world: &'a World, path: &'a Path, objects: Objects, anchor: u64) -> Judged<Self> {
        Self::open_hurt(world, path, (objects, anchor), |_| Ok(()))
    }

    /// The same, where something happens to the medium before the pool is opened.
    ///
    /// # Errors
    /// It cannot be done, or the pool is refused.
    pub fn open_hurt(
        world: &'a World,
        path: &'a Path,
        (objects, anchor): (Objects, u64),
        hurt: impl FnOnce(&Live) -> Judged<()>,
    ) -> Judged<Self> {
        let live = map(path, world)?;
        hurt(&live)?;
        let opened = Pool::open(live.clone(), world.open, clock());
        let (pool, _) = opened.map_err(|error| refused("open", &error))?;
        Self::of(world, path, live, pool, objects, anchor)
    }

    fn of(
        world: &'a World,
        path: &'a Path,
        live: Live,
        pool: Pool<Live>,
        objects: Objects,
        anchor: u64,
    ) -> Judged<Self> {
        let zone = pool.regions().into_iter().find(|region| region.kind == RegionKind::Zone);
        let zone = zone.ok_or_else(|| Violation::new(Fault::Wrong, "there is no zone"))?;
        Ok(Self { world, path, live, pool, objects, anchor, zone, waited: 0 })
    }

    /// Runs a job. `false` if it was refused for want of space; anything else has to be done,
    /// whatever the medium does meanwhile.
    ///
    /// # Errors
    /// What the engine answered.
    pub fn must(&mut self, job: &Job) -> Judged<bool> {
        let mut change = Change::new();
        let done = self.pool.run(|tx| {
            change = job.execute(tx, &self.objects, self.anchor)?;
            Ok(())
        });
        match done {
            Ok(()) => {
                self.objects.apply(&change);
                Ok(true)
            }
            Err(Error::Tx(TxError::NoSpace { .. })) if job.takes_space() => Ok(false),
            Err(error) => Err(refused(&format!("{:?}", job.ops), &error)),
        }
    }

    /// Bytes of an object, as the engine serves them.
    ///
    /// # Errors
    /// What the engine answered.
    pub fn served(&self, word: u64) -> Result<Object, Error> {
        self.pool.run(|tx| {
            let of = RawPtr::from_word(word);
            let mut bytes = vec![0; tx.len_of(of)? as usize];
            tx.read_bytes(of, 0, &mut bytes)?;
            serve_as_told(&mut bytes);
            Ok(Object { kind: tx.type_of(of)?.0, bytes: Arc::from(bytes) })
        })
    }

    /// Reads everything; all of it must be right.
    ///
    /// # Errors
    /// The first difference, or an object that is refused.
    pub fn read_all(&self) -> Judged<()> {
        for (word, object) in self.objects.iter() {
            let found = self.served(word);
            let found = found.map_err(|e| refused(&format!("reading {}", name(word)), &e))?;
            if found != *object {
                let story = format!("reading {} gave something else", name(word));
                return Err(Violation::new(Fault::Wrong, story));
            }
        }
        Ok(())
    }

    /// Scrubs.
    ///
    /// # Errors
    /// What the engine answered.
    pub fn scrub(&self) -> Judged<Scrubbed> {
        let done = self.pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {});
        done.map_err(|error| refused("scrub", &error))
    }

    /// Events after number `seen`.
    #[must_use]
    pub fn events_since(&self, seen: u64) -> Vec<Event> {
        let journal = Journal::open(&self.live, &self.pool.superblock());
        journal.read_from(&self.live, seen + 1)
    }

    /// Number of the last event.
    #[must_use]
    pub fn last_event(&self) -> u64 {
        let journal = Journal::open(&self.live, &self.pool.superblock());
        journal.read_all(&self.live).last().map_or(0, |event| event.sequence)
    }

    /// Where damage counts as one: a page of all rows, a page of both sides.
    #[must_use]
    pub fn domain(&self, page: u64) -> u64 {
        let rows = u64::from(self.zone.data_rows + self.zone.parity_rows);
        let zone = self.zone.start..self.zone.start + rows * self.zone.row_len;
        let side_len = self.pool.superblock().side_len;
        if zone.contains(&page) {
            (1 << 40) | ((page - self.zone.start) % self.zone.row_len / PAGE)
        } else if page < 2 * side_len {
            page % side_len / PAGE
        } else {
            (1 << 41) | (page / PAGE)
        }
    }

    /// An object with bytes on this page, or in its column.
    #[must_use]
    pub fn touching(&self, page: u64) -> Option<(u64, u64)> {
        let choice = Choice::of(&self.objects);
        let all = choice.small.into_iter().chain(choice.large);
        let domain = self.domain(page);
        let mut all: Vec<(u64, u64)> = all.collect();
        all.retain(|(word, len)| {
            let at = RawPtr::from_word(*word).offset();
            (at / PAGE..=(at + len - 1) / PAGE).any(|page| self.domain(page * PAGE) == domain)
        });
        all.first().copied()
    }

    /// Cures a page by what the campaign knows.
    pub fn force(&self, page: u64, bytes: &[u8]) {
        // The load comes back if either failed, and ends the program, which is all there is left.
        let _ = poison(self.live.mapped(), page, PAGE, Poison::Clearable);
        let _ = self.live.heal(FORCE, page, bytes);
    }

    /// The medium is as it should be, by the second reader; pages to be spared may be bad. Answers
    /// how many are.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn whole(&self, spared: &[u64]) -> Judged<u64> {
        let bytes = Bytes::of(&self.live);
        let mut bad = bytes.bad_pages().iter().map(|page| page * PAGE);
        if let Some(page) = bad.find(|page| !spared.contains(page)) {
            let story = format!("page {page:#x} is still bad after the scrub");
            return Err(Violation::new(Fault::Unnoticed, story));
        }
        let found = survey(&bytes, Scope::ALL);
        let found = found.ok_or_else(|| Violation::new(Fault::Wrong, "no superblock verifies"))?;
        if let Some((exposed, what)) = found.complaint() {
            let fault = if exposed { Fault::Exposed } else { Fault::Wrong };
            return Err(Violation::new(fault, what));
        }
        if found.objects != self.objects {
            let story = self.objects.difference(&found.objects);
            return Err(Violation::new(Fault::Wrong, story));
        }
        Ok(bytes.bad_pages().len() as u64)
    }

    /// Closes the pool and opens the file anew: what was relocated is found again. If the file is
    /// not `healed`, since memory stood in for some of it, a scrub has to find everything.
    ///
    /// # Errors
    /// What is wrong with it then.
    pub fn again(&mut self, healed: bool) -> Judged<()> {
        // The pool must be gone before the file is opened again: another takes the objects along.
        let (path, world) = (self.path, self.world);
        let objects = std::mem::take(&mut self.objects);
        let (copy, anchor) = (path.with_extension("again"), self.anchor);
        // A copy of the file, as any restart finds it: the page cache holds what was stored.
        let superblock = self.pool.superblock();
        if self.live.kind() == MediumKind::File {
            let synced = self.live.sync(SETTLE);
            synced.map_err(|error| Violation::new(Fault::Refused, format!("sync: {error}")))?;
        }
        std::fs::copy(path, &copy).map_err(|error| io(path, &error))?;
        let again = Life::open(world, &copy, objects, anchor)?;
        if again.pool.superblock().uuid != superblock.uuid {
            return Err(Violation::new(Fault::Wrong, "another pool was opened"));
        }
        if !healed {
            let done = again.scrub()?;
            if done.lost + done.undecided > 0 {
                let story = format!("the medium alone does not hold it all: {done:?}");
                return Err(Violation::new(Fault::Wrong, story));
            }
        }
        again.read_all()?;
        again.whole(&[])?;
        let Life { objects, pool, .. } = again;
        self.objects = objects;
        drop(pool);
        std::fs::remove_file(&copy).map_err(|error| io(&copy, &error))
    }

    /// Objects with something on one of these pages, and what.
    #[must_use]
    pub fn exposed(&self, bad: &[u64]) -> BTreeMap<u64, Vec<Target>> {
        let bytes = Bytes::of(&self.live);
        let targets = Targets::of(&bytes);
        let hit = |target: &Target| {
            bad.iter().any(|page| target.at < page + PAGE && *page < target.at + target.len)
        };
        let directory = targets.of_area(Area::Directory).any(|target| hit(&target));
        let entries: Vec<Target> = targets.of_area(Area::Directory).filter(hit).collect();
        let mut all = BTreeMap::new();
        for (word, object) in self.objects.iter() {
            let at = RawPtr::from_word(word).offset();
            let mut parts = targets.of_object(at, object.bytes.len() as u64);
            if directory || parts.iter().any(hit) {
                parts.extend(&entries);
                all.insert(word, parts);
            }
        }
        all
    }

    /// Reads everything: right, or lost where that may be. Answers what is lost.
    ///
    /// # Errors
    /// A wrong byte, or an error where nothing is damaged.
    pub fn contained(&self, exposed: &BTreeMap<u64, Vec<Target>>) -> Judged<Vec<u64>> {
        let mut lost = Vec::new();
        for (word, object) in self.objects.iter() {
            match self.served(word) {
                Ok(found) if found == *object => {}
                Ok(_) => {
                    let story = format!("a wrong byte of {} was served", name(word));
                    return Err(Violation::new(Fault::Wrong, story));
                }
                Err(Error::Tx(TxError::Lost { .. } | TxError::InDoubt { .. }))
                    if exposed.contains_key(&word) =>
                {
                    lost.push(word);
                }
                Err(error) => return Err(refused(&format!("reading {}", name(word)), &error)),
            }
        }
        Ok(lost)
    }
}

/// Makes a pool with objects of every kind in the file `path`, and closes it.
///
/// # Errors
/// What the system or the engine answered.
pub fn origin(world: &World, path: &Path, rng: &mut Rng) -> Judged<Origin> {
    let mapped = Mapped::create(path, world.options.size, &options(world.kind))
        .map_err(|error| Violation::new(Fault::Refused, format!("create: {error}")))?;
    let live = Live::new(mapped);
    let pool = Pool::create(live.clone(), &world.options, world.open, clock());
    let pool = pool.map_err(|error| refused("create", &error))?;
    let found = survey(&Bytes::of(&live), Scope::ALL);
    let found = found.ok_or_else(|| Violation::new(Fault::Wrong, "no superblock verifies"))?;
    let mut life = Life::of(world, path, live, pool, found.objects, found.anchor)?;
    for len in [64, 24, 200, 3_000, 12_000, 900] {
        life.must(&Job::new(rng, [Op::Alloc { len }]))?;
    }
    for _ in 0..2 {
        life.must(&Job::new(rng, [Op::AllocNode]))?;
    }
    let map = mapper::make(&life.pool, rng)?;
    life.objects.apply(&map);
    for _ in 0..25 {
        let job = any_job(rng, &life.objects);
        life.must(&job)?;
    }
    let Life { live, pool, objects, anchor, .. } = life;
    drop((pool, live));
    let bytes = std::fs::read(path).map_err(|error| io(path, &error))?;
    Ok(Origin { bytes, objects, anchor })
}

fn io(path: &Path, error: &std::io::Error) -> Violation {
    Violation::new(Fault::Refused, format!("{}: {error}", path.display()))
}
