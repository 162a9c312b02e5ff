//! The events journal: once an event was reported, each copy alone tells it, until as many newer
//! ones have come as the journal holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_faultmem::{Clear, Image};
use holdfast_layout::Superblock;
use holdfast_layout::format::EVENTS_START;
use holdfast_redundancy::events::Journal;
use holdfast_redundancy::format::FIELDS_EVENT;
use holdfast_workloads::Rng;

use super::Mutant;
use super::jury::{FEW, Jury, abandon, wrong};
use super::verified::field;
use crate::object::driver::Driver;
use crate::object::judge::scrub;
use crate::object::raw::Bytes;
use crate::object::scenes::{settled, stage};
use crate::object::targets::{Area, Targets};
use crate::object::world::World;
use crate::tally::{Fault, Judged, Tally, Violation};

/// Events reported by the time of an image: the newest sequence, in the pool in use.
type Newest = Arc<AtomicU64>;

/// Damages an object in one bit and reads it: one event.
fn one_event(driver: &Driver, rng: &mut Rng) -> Judged<()> {
    let targets = Targets::of(&Bytes::of(&driver.medium));
    if let Some(target) = targets.pick(Area::Object, rng) {
        // Found on this very medium: in range.
        let _ = driver.medium.flip_bit(target.at + rng.below(target.len), 1);
    }
    driver.read_all()
}

/// The journal in `image` has all events it should have, with `lost` pages of one side gone.
fn complete(
    world: &World,
    superblock: &Superblock,
    image: Image,
    lost: Option<u64>,
    least: u64,
) -> Judged<()> {
    let medium = world.after(image);
    if let Some(side) = lost {
        let done = medium.poison(side + EVENTS_START, superblock.events_len, Clear::Able);
        done.map_err(|error| Violation::new(Fault::Refused, format!("poison: {error}")))?;
    }
    let journal = Journal::open(&medium, superblock);
    let found: Vec<u64> = journal.read_all(&medium).iter().map(|event| event.sequence).collect();
    let last = found.last().copied().unwrap_or(0);
    if last < least {
        return Err(wrong(format!("event {least} was reported, the journal ends at {last}")));
    }
    let first = (last + 1).saturating_sub(journal.capacity()).max(1);
    let missing = (first..=last).find(|sequence| found.binary_search(sequence).is_err());
    match missing {
        Some(sequence) => Err(wrong(format!("event {sequence} of {first} to {last} is gone"))),
        None => Ok(()),
    }
}

/// A pool whose journal is full.
fn full(mutant: &Mutant, world: &'static str) -> Judged<(Arc<World>, Driver, Rng)> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = settled(&world, stage(&world, &mut rng)?)?;
    let journal = Journal::open(&driver.medium, &driver.pool.superblock());
    for _ in 0..2 * journal.capacity() {
        if journal.read_all(&driver.medium).len() as u64 == journal.capacity() {
            break;
        }
        one_event(&driver, &mut rng)?;
    }
    let held = journal.read_all(&driver.medium).len() as u64;
    if held < journal.capacity() {
        return Err(wrong(format!("so many events were reported, and the journal has {held}")));
    }
    Ok((world, driver, rng))
}

fn newest(driver: &Driver) -> u64 {
    let journal = Journal::open(&driver.medium, &driver.pool.superblock());
    journal.read_all(&driver.medium).last().map_or(0, |event| event.sequence)
}

/// A jury over the journal. Within an event both copies are asked together; between events each
/// of them alone.
fn jury(world: &Arc<World>, driver: &Driver, rng: &mut Rng, least: &Newest) -> Jury {
    let (world, superblock) = (Arc::clone(world), driver.pool.superblock());
    let least = Arc::clone(least);
    Jury::new(FEW, rng, move |image, site| {
        let least = least.load(Ordering::Relaxed);
        if !site.is_empty() {
            return complete(&world, &superblock, image, None, least);
        }
        for side in [0, superblock.side_len] {
            complete(&world, &superblock, image.clone(), Some(side), least)
                .map_err(|v| v.during(format_args!("the journal at {side:#x} lost")))?;
        }
        Ok(())
    })
}

/// Events of repairs, one after the other.
pub fn events(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = full(mutant, world)?;
    let least = Newest::new(newest(&driver).into());
    let jury = jury(&world, &driver, &mut rng, &least);
    for _ in 0..3 {
        jury.sit(&driver.medium);
        one_event(&driver, &mut rng)?;
        driver.medium.clear_on_barrier();
        least.store(newest(&driver), Ordering::Relaxed);
        jury.look(&driver.medium.crash_point());
    }
    abandon(driver);
    Ok(jury.end())
}

/// Does `harm` to side A of the journal, at the entry `ahead` of the next one, then `deed`, and
/// looks at the journal afterwards.
fn harmed(
    mutant: &Mutant,
    world: &'static str,
    ahead: fn(u64) -> u64,
    harm: impl FnOnce(&Driver, u64),
    deed: impl FnOnce(&Driver, &mut Rng) -> Judged<()>,
) -> Judged<Tally> {
    let (world, driver, mut rng) = full(mutant, world)?;
    let journal = Journal::open(&driver.medium, &driver.pool.superblock());
    let entry = (newest(&driver) + 1 + ahead(journal.capacity())) % journal.capacity();
    let bytes = driver.pool.superblock().events_len / journal.capacity();
    harm(&driver, EVENTS_START + entry * bytes);
    deed(&driver, &mut rng)?;
    let jury = jury(&world, &driver, &mut rng, &Newest::new(newest(&driver).into()));
    jury.look(&driver.medium.crash_point());
    abandon(driver);
    Ok(jury.end())
}

/// An event goes to a page that cannot be written: the page is rewritten from the other side.
pub fn poisoned(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let poison = |driver: &Driver, at| {
        // A page of the journal: in range.
        let _ = driver.medium.poison(at, 1, Clear::Able);
    };
    harmed(mutant, world, |_| 0, poison, one_event)
}

/// Copies A of all events were damaged: who asks is told what happened nevertheless.
pub fn told(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (_world, driver, _) = full(mutant, world)?;
    let superblock = driver.pool.superblock();
    let journal = Journal::open(&driver.medium, &superblock);
    let before = journal.read_all(&driver.medium);
    let bytes = superblock.events_len / journal.capacity();
    let place = field(FIELDS_EVENT, "at")?;
    for entry in 0..journal.capacity() {
        // The place of what was damaged; entries are in range.
        let _ = driver.medium.flip_bit(EVENTS_START + entry * bytes + place, 4);
    }
    let after = journal.read_all(&driver.medium);
    abandon(driver);
    match before.iter().zip(&after).find(|(before, after)| before != after) {
        None if before.len() == after.len() => Ok(Tally { count: 1, ..Tally::default() }),
        None => Err(wrong(format!("{} of {} events are left", after.len(), before.len()))),
        Some((before, after)) => Err(wrong(format!("{before} is told as {after}"))),
    }
}

/// A copy of an event was damaged: the scrub writes the page again. The event about that goes to
/// another page, and would not make this one good.
pub fn scrubbed(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let flip = |driver: &Driver, at| {
        // As above.
        let _ = driver.medium.flip_bit(at + 20, 2);
    };
    harmed(
        mutant,
        world,
        |capacity| capacity / 2,
        flip,
        |driver, _| scrub(&driver.pool).map(|_| ()),
    )
}
