//! Damage that only a sum tells: where sums are not looked at, what is wrong is believed.
//!
//! In every story here something is damaged within tolerance, and everything else about it is as it
//! should be: lengths, places and kinds are possible, parity agrees or is just as possible. So
//! nothing but the verification that is switched off stands between the damage and the program.

use std::sync::Arc;

use holdfast_faultmem::{Clear, Image};
use holdfast_heap::format::{FIELDS_CHUNK, FIELDS_SLOT};
use holdfast_layout::format::{FIELDS_REGION, MIRRORED_LEN, REGION_LEN, REGIONS_PAGE};
use holdfast_layout::{Field, RawPtr, RegionKind};
use holdfast_object::{ScrubControl, ScrubOptions};
use holdfast_pmem::PAGE;

use holdfast_txn::Transaction;

use super::Mutant;
use super::jury::{abandon, opened, unable, wrong};
use super::mended::{begin, durable, parity_of};
use crate::object::driver::Driver;
use crate::object::handle::Handle;
use crate::object::judge::scrub;
use crate::object::ops::{Choice, Job, Op};
use crate::object::raw::Bytes;
use crate::object::scenes::{refused, settled, stage};
use crate::object::targets::{Area, Target, Targets};
use crate::object::world::World;
use crate::tally::{Judged, Tally};

/// The part of a pointer that is a place.
const PLACE: u64 = (1 << 48) - 1;

/// The usual pool, closed: what is on the medium then.
fn closed(mutant: &Mutant, world: &'static str) -> Judged<(Arc<World>, Driver, Image)> {
    let (world, driver, _) = begin(mutant, world)?;
    let Driver { medium, pool, ledger, anchor } = driver;
    drop(pool);
    let image = medium.crash_point().persisted();
    let medium = world.after(image.clone());
    let (pool, _) = world.open(&medium).map_err(|error| refused("open", &error))?;
    Ok((world, Driver { medium, pool, ledger, anchor }, image))
}

/// Opens what a clean close left, damaged by `harm`; it must be all there, and whole.
fn open_harmed(
    mutant: &Mutant,
    world: &'static str,
    harm: impl FnOnce(&Driver, &Handle) -> Judged<()>,
) -> Judged<Tally> {
    let (world, like, image) = closed(mutant, world)?;
    let medium = world.after(image);
    harm(&like, &medium)?;
    let promise = like.ledger.promise();
    abandon(like);
    let driver = opened(&world, medium, &promise)?;
    driver.read_all()?;
    abandon(driver);
    Ok(Tally { count: 1, ..Tally::default() })
}

/// Where a field is in its record.
pub(super) fn field(fields: &[Field], name: &str) -> Judged<u64> {
    let found = fields.iter().find(|field| field.name == name).map(|field| field.at);
    found.ok_or_else(|| unable(format!("there is no field {name}")))
}

/// Changes one bit; the place was found on this very medium.
fn flip(medium: &Handle, at: u64, bit: u8) {
    let _ = medium.flip_bit(at, bit);
}

/// Copy A of the region table says that the zone is something else.
pub fn regions(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    open_harmed(mutant, world, |like, medium| {
        let regions = like.pool.regions();
        let zone = regions.iter().position(|region| region.kind == RegionKind::Zone);
        let zone = zone.ok_or_else(|| unable("the pool has no zone"))?;
        let entry = REGIONS_PAGE + (MIRRORED_LEN + zone * REGION_LEN) as u64;
        flip(medium, entry + field(FIELDS_REGION, "kind")?, 5);
        Ok(())
    })
}

/// A directory entry says that its chunk is in another life.
pub fn directory(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    open_harmed(mutant, world, |_, medium| {
        let targets = Targets::of(&Bytes::of(medium));
        let entry = targets.of_area(Area::Directory).next();
        let entry = entry.ok_or_else(|| unable("the pool has no directory"))?;
        flip(medium, entry.at + field(FIELDS_CHUNK, "generation")?, 3);
        Ok(())
    })
}

/// The slots of all objects say that these were freed. A program that asks must not be told that
/// they are gone.
pub fn slots(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let state_at = field(FIELDS_SLOT, "state")?;
    let targets = Targets::of(&Bytes::of(&driver.medium));
    let mut tally = Tally::default();
    for (word, object) in driver.ledger.objects().iter() {
        let parts = targets.of_object(word & PLACE, object.bytes.len() as u64);
        let slot = parts.iter().find(|part| part.area == Area::Slot);
        let slot = slot.ok_or_else(|| unable("an object has no slot"))?;
        // Live is one, free is none.
        flip(&driver.medium, slot.at + state_at, 0);
        let len = driver.pool.run(|tx| tx.len_of(RawPtr::from_word(word)));
        tally.count += 1;
        if let Err(error) = len {
            return Err(wrong(format!("a live object cannot be had: {error}")));
        }
    }
    tally.merge(durable(&world, driver, &mut rng, false)?);
    Ok(tally)
}

/// The free slot that is handed out next is damaged; then the page of the new object turns bad.
/// Were the damaged slot changed, the damage would be in parity by then.
pub fn free_slot(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, like, image) = closed(mutant, world)?;
    let mut rng = mutant.rng(2);
    let job = Job::new(&mut rng, [Op::Alloc { len: 60 }]);
    let ledger = like.ledger.clone();
    let (anchor, promise) = (like.anchor, ledger.promise());
    let next = made_by(&like, &job)?;
    abandon(like);
    *ledger.lock() = promise;
    let medium = world.after(image);
    flip(&medium, next.at + field(FIELDS_SLOT, "generation")?, 3);
    let (pool, _) = world.open(&medium).map_err(|error| refused("open", &error))?;
    let driver = Driver { medium, pool, ledger, anchor };
    let slot = made_by(&driver, &job)?;
    let _ = driver.medium.poison(slot.at / PAGE * PAGE, 1, Clear::Able);
    scrub(&driver.pool)?;
    durable(&world, driver, &mut rng, true)
}

/// The slot of the object that a job makes.
fn made_by(driver: &Driver, job: &Job) -> Judged<Target> {
    let before = driver.ledger.objects();
    driver.must(job)?;
    let now = driver.ledger.objects();
    let added = now.iter().map(|(word, _)| word).find(|word| before.get(*word).is_none());
    slot_of(driver, added.ok_or_else(|| unable("an object was made"))? & PLACE)
}

/// The slot of the object at `at`.
fn slot_of(driver: &Driver, at: u64) -> Judged<Target> {
    let targets = Targets::of(&Bytes::of(&driver.medium));
    let mut pairs = targets.of_area(Area::Object).zip(targets.of_area(Area::Slot));
    let found = pairs.find(|(object, _)| object.at == at).map(|(_, slot)| slot);
    found.ok_or_else(|| unable("an object has no slot"))
}

/// A byte of an object is wrong, and a page of P over it cannot be read when the pool is opened; P
/// is made anew. Later Q over that byte and its neighbour turns bad.
pub fn under_parity(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let mut rng = mutant.rng(2);
    let (world, like, image) = closed(mutant, world)?;
    let medium = world.after(image);
    let targets = Targets::of(&Bytes::of(&medium));
    let target = targets.pick(Area::Object, &mut rng);
    let at = target.ok_or_else(|| unable("the pool has no object"))?.at;
    let (p, q) = (parity_of(&like, at, false)?, parity_of(&like, at, true)?);
    let Driver { medium: old, pool, ledger, anchor } = like;
    old.abandon(pool);
    flip(&medium, at, 2);
    let _ = medium.poison(p / PAGE * PAGE, 1, Clear::Able);
    let (pool, _) = world.open(&medium).map_err(|error| refused("open", &error))?;
    // Two bytes: what Q makes of one may be explained by a damage of the right size elsewhere.
    [q, q ^ 1].into_iter().for_each(|at| flip(&medium, at, 6));
    let driver = Driver { medium, pool, ledger, anchor };
    scrub(&driver.pool)?;
    durable(&world, driver, &mut rng, true)
}

/// Two objects of one column are damaged: both are lost, and P is all that is left of them. When
/// one of them can be had again after all, so can the other.
pub fn two_rows(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    // Enough that columns are shared.
    for _ in 0..3 {
        driver.must(&Job::new(&mut rng, [Op::Alloc { len: 14_000 }]))?;
    }
    let driver = settled(&world, driver)?;
    let (first, second) = sharing(&driver)?;
    flip(&driver.medium, first, 2);
    flip(&driver.medium, second, 6);
    let (options, control) = (ScrubOptions::default(), ScrubControl::default());
    let done = driver.pool.scrub(options, &control, |_, _| {});
    done.map_err(|error| refused("scrub", &error))?;
    flip(&driver.medium, first, 2);
    scrub(&driver.pool)?;
    durable(&world, driver, &mut rng, false)
}

/// Bytes of two objects that lie in one column.
fn sharing(driver: &Driver) -> Judged<(u64, u64)> {
    let regions = driver.pool.regions();
    let zone = regions.iter().find(|region| region.kind == RegionKind::Zone);
    let zone = zone.ok_or_else(|| unable("the pool has no zone"))?;
    let targets = Targets::of(&Bytes::of(&driver.medium));
    let objects: Vec<Target> = targets.of_area(Area::Object).collect();
    let inside = |at: u64| objects.iter().any(|o| (o.at..o.at + o.len).contains(&at));
    let data = zone.start..zone.start + u64::from(zone.data_rows) * zone.row_len;
    for object in &objects {
        for at in object.at..object.at + object.len {
            let below = (1..u64::from(zone.data_rows)).map(|rows| at + rows * zone.row_len);
            if let Some(other) = below.take_while(|o| data.contains(o)).find(|o| inside(*o)) {
                return Ok((at, other));
            }
        }
    }
    Err(unable("no two objects share a column"))
}

/// P and Q agree on a change of an object that was never made: only its sum knows.
pub fn both_parities(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, like, image) = closed(mutant, world)?;
    let mut rng = mutant.rng(2);
    let (of, len) = Choice::of(&like.ledger.objects()).small[0];
    let at = of & PLACE;
    let medium = world.after(image);
    let (pool, _) = world.open(&medium).map_err(|error| refused("open", &error))?;
    // In another world it was made.
    let ledger = like.ledger.clone();
    let promise = like.ledger.promise();
    like.must(&Job::new(&mut rng, [Op::Write { of, from: 0, len }]))?;
    *ledger.lock() = promise;
    let made = Bytes::of(&like.medium);
    for q in [false, true] {
        let parity = parity_of(&like, at, q)?;
        let bytes = made.get(parity, len).ok_or_else(|| unable("parity is in the pool"))?;
        let _ = medium.stray(parity, bytes);
    }
    let anchor = like.anchor;
    abandon(like);
    let driver = Driver { medium, pool, ledger, anchor };
    scrub(&driver.pool)?;
    durable(&world, driver, &mut rng, false)
}

/// P over a slot is as if the object had been freed, but for the sum of the slot: it is P that is
/// wrong.
pub fn freed_in_parity(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let of = Choice::of(&driver.ledger.objects()).small[0].0;
    let slot = slot_of(&driver, of & PLACE)?;
    let p = parity_of(&driver, slot.at, false)?;
    let pool = Bytes::of(&driver.medium);
    let bytes = |at| pool.get(at, slot.len).ok_or_else(|| unable("a slot is in the pool"));
    let (live, mut parity) = (bytes(slot.at)?, bytes(p)?.to_vec());
    let free = Targets::of(&pool).of_area(Area::FreeSlot).next();
    let free = bytes(free.ok_or_else(|| unable("the pool has no free slot"))?.at)?;
    // State, flags, type and length of a free slot; sum and generation as they are.
    for i in field(FIELDS_SLOT, "state")? as usize..parity.len() {
        parity[i] ^= live[i] ^ free[i];
    }
    let _ = driver.medium.stray(p, &parity);
    scrub(&driver.pool)?;
    durable(&world, driver, &mut rng, false)
}
