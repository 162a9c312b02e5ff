//! Pools to be damaged: made once, copied for each run, and what must hold of them afterwards.

use std::sync::{Arc, OnceLock};

use holdfast_campaign::object::driver::Driver;
use holdfast_campaign::object::fields::meet::{apart, never_wrong};
use holdfast_campaign::object::fields::seal::Sealer;
use holdfast_campaign::object::fields::specimen::{Pairs, Specimen, Wanted};
use holdfast_campaign::object::fields::spots::{Guard, Spot, find};
use holdfast_campaign::object::fields::verbs::Verb;
use holdfast_campaign::object::handle::Handle;
use holdfast_campaign::object::model::{Change, Object, Objects};
use holdfast_campaign::object::raw::Bytes;
use holdfast_campaign::object::world::World;
use holdfast_campaign::tally::Judged;
use holdfast_collections::Kind;
use holdfast_faultmem::Clear;
use holdfast_logs::format::{KIND_DATA, KIND_FRESH, KIND_OVERFLOW};
use holdfast_oracle::acked::Model;
use holdfast_pmem::{Medium, PAGE};
use holdfast_workloads::Rng;

use crate::lie::lie;
use crate::script::Step;

/// Steps of a script that are done: more damage than that is no other damage.
pub(crate) const STEPS: usize = 24;
/// Ways in which a step damages.
pub(crate) const VERBS: u8 = 12;

/// With sums and parity computed again, in both copies.
pub(crate) const SEALED: u8 = 1;
/// In both copies, with the sum as it was.
const TWIN: u8 = 2;

/// Pools there are: the world's number, and what it has.
const POOLS: [(usize, Wanted); 14] = [
    (0, Wanted::Tables),
    (1, Wanted::Tables),
    (2, Wanted::Tables),
    (3, Wanted::Tables),
    (0, Wanted::Intent),
    (3, Wanted::Intent),
    (0, Wanted::Record(KIND_DATA)),
    (3, Wanted::Record(KIND_DATA)),
    (1, Wanted::Record(KIND_FRESH)),
    (2, Wanted::Record(KIND_FRESH)),
    (0, Wanted::Record(KIND_OVERFLOW)),
    (3, Wanted::Record(KIND_OVERFLOW)),
    (0, Wanted::Maps(Pairs::Mixed, &[Kind::Hash, Kind::CTree, Kind::BTree])),
    (3, Wanted::Maps(Pairs::Mixed, &[Kind::RbTree, Kind::SkipList, Kind::RTree])),
];
/// How many.
pub(crate) const COUNT: u8 = POOLS.len() as u8;
/// Which of them have records that wait for recovery.
pub(crate) const RECORDS: std::ops::Range<usize> = 6..12;
/// Pages of the pools.
const PAGES: u64 = 121;

/// A pool, and where its fields are.
#[derive(Debug)]
pub(crate) struct Bed {
    pub(crate) specimen: Specimen,
    pub(crate) bytes: Bytes,
    pub(crate) sealer: Sealer,
    pub(crate) spots: Vec<Spot>,
}

/// What damage may have changed for good.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hurt {
    /// Ranges whose objects may be anything.
    pub(crate) owned: Vec<(u64, u64)>,
    /// Everything may be: it hit what all depends on, and verifies, or a commit's only record.
    pub(crate) all: bool,
    /// Something was made to verify.
    pub(crate) sealed: bool,
    /// Copies of log records that were hit, the first and the second ones: of both, a commit is
    /// gone.
    pub(crate) log: [bool; 2],
}

impl Hurt {
    /// A page is bad: on files, the copies of a record may lie in the same one.
    fn poisoned(&mut self, spot: &Spot) {
        let same = |(twin, _): &(u64, _)| twin / PAGE == spot.at / PAGE;
        self.overwritten(spot, spot.twin.as_ref().is_some_and(same));
    }

    /// A field of a copy was overwritten, or of both.
    fn overwritten(&mut self, spot: &Spot, both: bool) {
        if spot.guard == Guard::Log {
            let second = spot.twin.as_ref().is_some_and(|(twin, _)| *twin < spot.at);
            self.log[usize::from(second)] = true;
            self.log[usize::from(!second)] |= both;
        }
    }
}

/// The pool of this number, made at the first use.
pub(crate) fn bed(number: usize) -> &'static Bed {
    static BEDS: [OnceLock<Bed>; POOLS.len()] = [const { OnceLock::new() }; POOLS.len()];
    let number = number % POOLS.len();
    BEDS[number].get_or_init(|| {
        let (world, wanted) = POOLS[number];
        let mut world = World::usual().swap_remove(world).sized(PAGES);
        world.options.events = 2 * PAGE;
        let mut rng = Rng::new(number as u64);
        let specimen = Specimen::of(&Arc::new(world), wanted, &mut rng);
        let specimen = specimen.unwrap_or_else(|v| panic!("bed {number}: {}", v.story));
        let bytes = Bytes::of(&specimen.medium());
        let sealer = Sealer::of(&bytes);
        let spots = find(&bytes, &sealer, &[""]).into_values().flatten().collect();
        Bed { specimen, bytes, sealer, spots }
    })
}

impl Bed {
    /// Damages a pool as the steps say, of those fields that `chosen` takes.
    pub(crate) fn damage(
        &self,
        medium: &Handle,
        steps: &[Step],
        chosen: impl Fn(&Spot) -> bool,
    ) -> Hurt {
        let spots: Vec<&Spot> = self.spots.iter().filter(|spot| chosen(spot)).collect();
        let mut hurt = Hurt::default();
        for step in steps.iter().take(STEPS) {
            if spots.is_empty() {
                break;
            }
            // What cannot be reached because of damage before it stays as it is.
            let _ = self.one(medium, step, &spots, &mut hurt);
        }
        hurt.all |= hurt.log == [true; 2];
        hurt
    }

    fn one(&self, medium: &Handle, step: &Step, spots: &[&Spot], hurt: &mut Hurt) -> Judged<()> {
        let spot = spots[usize::from(step.place) % spots.len()];
        let mut rng = Rng::new(step.value);
        let own = |spot: &Spot| self.bytes.get(spot.at, spot.len).unwrap_or_default();
        let old = holdfast_campaign::object::fields::seal::read(medium, spot.at, spot.len)?;
        let verb = step.verb % VERBS;
        let new = match verb {
            0..8 => {
                let next = self.bytes.get(spot.at + spot.len, spot.len).unwrap_or_default();
                Verb::ALL[usize::from(verb)].apply(&old, next, &mut rng)
            }
            8 => exactly(&old, step.value),
            9 => {
                let other = spots[(step.value % spots.len() as u64) as usize];
                let mut new = old.clone();
                let len = new.len().min(own(other).len());
                new[..len].copy_from_slice(&own(other)[..len]);
                new
            }
            10 => return self.anywhere(medium, step, hurt),
            _ => {
                let clear = if step.value.is_multiple_of(2) { Clear::Able } else { Clear::Unable };
                hurt.poisoned(spot);
                let _ = medium.poison(spot.at, 1, clear);
                return Ok(());
            }
        };
        let sealed = step.has(SEALED);
        hurt.sealed |= sealed;
        hurt.overwritten(spot, step.has(TWIN));
        match spot.owns {
            Some(owned) if sealed => hurt.owned.push(owned),
            None if sealed => hurt.all = true,
            _ => {}
        }
        self.sealer.damage(medium, spot, &new, sealed)?;
        if let Some((twin, _)) = spot.twin.filter(|_| step.has(TWIN) && !sealed) {
            self.sealer.store(medium, twin, &new, false)?;
        }
        Ok(())
    }

    /// Overwrites eight bytes anywhere, or so many as the place says.
    fn anywhere(&self, medium: &Handle, step: &Step, hurt: &mut Hurt) -> Judged<()> {
        let len = u64::from(step.place % 600) + 1;
        let at = step.value % (medium.len() - len);
        let mut bytes = vec![0; len as usize];
        if step.has(SEALED) {
            Rng::new(step.value).fill(&mut bytes);
        }
        hurt.all |= self.specimen.dirty;
        self.sealer.store(medium, at, &bytes, false)
    }

    /// The objects that must be as they were, or refused. What was to be changed when writing ended
    /// may be so at the next open, or not.
    pub(crate) fn expected(driver: &Driver, hurt: &Hurt) -> Objects {
        if hurt.all {
            return Objects::default();
        }
        let mut all = apart(&driver.ledger.objects(), &hurt.owned);
        let gone = |change: &Change| change.iter().map(|(word, _)| (*word, None)).collect();
        let open: Vec<Change> = driver.ledger.lock().under_way().map(gone).collect();
        open.iter().for_each(|change| all.apply(change));
        all
    }

    /// Reads everything: what must be right is, or is refused.
    ///
    /// # Panics
    /// If it is served wrong.
    pub(crate) fn read(driver: &Driver, hurt: &Hurt, when: &'static str) {
        // Told at this moment, or in one way at any.
        for name in [when, "bytes", "length", "kind", "one object"] {
            if lie(name, false, |_| true) {
                mistaken(driver, name);
            }
        }
        must(never_wrong(driver, &Self::expected(driver, hurt)), when);
    }
}

/// From now on the ledger says that every object, or one, is another one.
fn mistaken(driver: &Driver, how: &str) {
    let other = |(word, object): (u64, &Object)| {
        let mut bytes = object.bytes.to_vec();
        let mut kind = object.kind;
        match how {
            // One byte less: what is read is right, and there is more.
            "length" => drop(bytes.pop()),
            "kind" => kind ^= 1,
            _ => bytes.iter_mut().for_each(|byte| *byte = !*byte),
        }
        (word, Some(Object { kind, bytes: bytes.into() }))
    };
    let objects = driver.ledger.objects();
    let all = if how == "one object" { 1 } else { usize::MAX };
    let change = objects.iter().take(all).map(other).collect();
    let mut ledger = driver.ledger.lock();
    let ticket = ledger.begin(change);
    let _ = ledger.ack(ticket);
}

/// A field with this number in it.
fn exactly(old: &[u8], value: u64) -> Vec<u8> {
    let mut new = old.to_vec();
    let bytes = value.to_le_bytes();
    let len = new.len().min(bytes.len());
    new[..len].copy_from_slice(&bytes[..len]);
    new[len..].fill(0);
    new
}

/// What was judged.
///
/// # Panics
/// If it was convicted.
pub(crate) fn must<T>(judged: Judged<T>, when: &str) -> T {
    judged.unwrap_or_else(|violation| panic!("{when}: {}", violation.story))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_campaign::object::fields::seal::Seal;
    use holdfast_object::{Opened, Pool};
    use holdfast_redundancy::events::{Event, Journal};

    fn events_of(driver: &Driver) -> Vec<Event> {
        Journal::open(&driver.medium, &driver.pool.superblock()).read_all(&driver.medium)
    }

    /// Whether a change of this field, sealed, is taken for what somebody wrote: the pool opens, a
    /// check finds nothing, and events are as many as there were, one of them another.
    fn is_believed(bed: &Bed, spot: &Spot) -> bool {
        let Some((medium, pool, _)) = opened(bed, spot) else { return false };
        let driver = bed.specimen.driver(medium, pool);
        let clean = driver.pool.check(|_, _| {}).is_ok_and(|found| found.is_clean());
        let events = events_of(&driver);
        driver.medium.abandon(driver.pool);
        let whole = bed.specimen.open().expect("undamaged");
        let before = events_of(&whole);
        whole.medium.abandon(whole.pool);
        let same = events.iter().all(|event| before.contains(event));
        clean && (!matches!(spot.seal, Seal::Event { .. }) || events.len() == before.len() && !same)
    }

    /// Whether a change of this field of a log, sealed, is: as many records are replayed as without
    /// it. What they put in place may agree with no sum of its own.
    fn is_replayed(bed: &Bed, spot: &Spot) -> bool {
        let Some((medium, pool, found)) = opened(bed, spot) else { return false };
        medium.abandon(pool);
        let medium = bed.specimen.medium();
        let (pool, before) = bed.specimen.world.open(&medium).expect("undamaged");
        medium.abandon(pool);
        found.recovered.replayed == before.recovered.replayed
    }

    /// What comes of opening the pool with a change of this field, sealed.
    fn opened(bed: &Bed, spot: &Spot) -> Option<(Handle, Pool<Handle>, Opened)> {
        let old = bed.bytes.get(spot.at, spot.len).unwrap_or_default();
        let new = Verb::Flip.apply(old, &[], &mut Rng::new(spot.at));
        let medium = bed.specimen.medium();
        let changed = bed.sealer.damage(&medium, spot, &new, true);
        let opened = changed.is_ok_and(|changed| changed).then(|| bed.specimen.world.open(&medium));
        opened?.ok().map(|(pool, found)| (medium, pool, found))
    }

    /// A sealer that leaves a sum wrong makes damage that is refused at once: whatever lies behind
    /// the sum is never tried.
    #[test]
    fn sealed_damage_is_believed() {
        type Kind = fn(&Seal) -> bool;
        let kinds: [(&str, Kind); 5] = [
            ("superblock", |seal| matches!(seal, Seal::Superblock(_))),
            ("mirrored page", |seal| matches!(seal, Seal::Mirrored { .. })),
            ("event", |seal| matches!(seal, Seal::Event { .. })),
            ("directory entry", |seal| matches!(seal, Seal::Chunk(_))),
            ("object", |seal| matches!(seal, Seal::Object(_))),
        ];
        for bed in [0, 3].map(bed) {
            for (name, kind) in kinds {
                let mut spots = bed.spots.iter().filter(|spot| kind(&spot.seal));
                assert!(spots.any(|spot| is_believed(bed, spot)), "no {name} is believed");
            }
        }
    }

    /// The same of a sealer that leaves a sum of a log wrong: such a record ends the log, and a
    /// pool is none where the entries of one are gone.
    #[test]
    fn sealed_damage_of_a_log_is_replayed() {
        for number in RECORDS {
            let bed = bed(number);
            let replayed = |kind: fn(&Seal) -> bool| {
                bed.spots.iter().filter(|spot| kind(&spot.seal)).any(|spot| is_replayed(bed, spot))
            };
            let records = replayed(|seal| matches!(seal, Seal::Record { .. }));
            assert!(records, "bed {number}: no record is replayed");
            if POOLS[number].1 == Wanted::Record(KIND_OVERFLOW) {
                let overflowed = replayed(|seal| matches!(seal, Seal::Overflow { .. }));
                assert!(overflowed, "bed {number}: nothing that overflowed is replayed");
            }
        }
    }
}
