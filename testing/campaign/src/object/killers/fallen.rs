//! Slots whose last write is lost while their columns are settled, or whose bytes are. Such a slot
//! verifies, as that of a free place, and parity made from it would be the last that knew better.

use holdfast_faultmem::Clear;
use holdfast_layout::{RawPtr, Region};
use holdfast_pmem::PAGE;
use holdfast_workloads::Rng;
use std::sync::Arc;

use super::Mutant;
use super::blessed::{all_passed, at_steps, write_at, zone};
use super::entries::{alloc, long};
use super::jury::{abandon, unable};
use super::mended::{begin, durable};
use crate::object::driver::Driver;
use crate::object::judge::scrub;
use crate::object::ops::{Job, Op};
use crate::object::raw::Bytes;
use crate::object::scenes::settled;
use crate::object::targets::{Area, Target, Targets};
use crate::object::world::World;
use crate::tally::{Fault, Judged, Tally, Violation};

/// Objects made until one lies as it has to.
const TRIES: usize = 120;
/// How far from the slot parity is wrong: in lines of their own, in the same page.
const FAR: u64 = 96;

/// An object, its slot, and what that was before.
struct Made {
    word: u64,
    object: Target,
    slot: Target,
    before: Vec<u8>,
    /// The page that its bytes begin on, before.
    page: Vec<u8>,
}

fn make(driver: &Driver, rng: &mut Rng, len: u64) -> Judged<Made> {
    let before = Bytes::of(&driver.medium);
    let word = alloc(driver, rng, len)?;
    let targets = Targets::of(&Bytes::of(&driver.medium));
    let mut pairs = targets.of_area(Area::Object).zip(targets.of_area(Area::Slot));
    let pair = pairs.find(|(object, _)| object.at == RawPtr::from_word(word).offset());
    let (object, slot) = pair.ok_or_else(|| unable("the object has no slot"))?;
    let get = |at, len| before.get(at, len).unwrap_or_default().to_vec();
    let (page, before) = (get(object.at / PAGE * PAGE, PAGE), get(slot.at, slot.len));
    Ok(Made { word, object, slot, before, page })
}

/// Makes objects until `which` says that one, with its slot, lies as it has to.
fn find(
    driver: &Driver,
    rng: &mut Rng,
    len: u64,
    which: impl Fn(&Region, &Made) -> bool,
) -> Judged<Made> {
    let zone = zone(driver)?;
    for _ in 0..TRIES {
        let made = make(driver, rng, len)?;
        if which(&zone, &made) {
            return Ok(made);
        }
    }
    Err(unable("no object lies as it has to"))
}

/// What becomes of the pool, if the object is still there.
fn judged(world: &Arc<World>, driver: Driver, rng: &mut Rng, made: &Made) -> Judged<Tally> {
    let slot = Bytes::of(&driver.medium).get(made.slot.at, made.slot.len).map(<[u8]>::to_vec);
    if slot.is_none_or(|slot| slot == made.before) {
        let mut tally = Tally { count: 1, ..Tally::default() };
        let story = format!("object {:#x} was taken for a free place", made.word);
        tally.convict(Violation::new(Fault::Wrong, story));
        abandon(driver);
        return Ok(tally);
    }
    driver.read_all()?;
    durable(world, driver, rng, false)
}

fn column(zone: &Region, at: u64) -> u64 {
    (at - zone.start) % zone.row_len
}

/// Parity is wrong on both sides of a slot, whose write is lost after all once everything over the
/// page was judged.
pub fn remade(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let inside = |made: &Made| (2 * FAR..PAGE - 2 * FAR).contains(&(made.slot.at % PAGE));
    let made = find(&driver, &mut rng, 100, |_, made| inside(made))?;
    let driver = settled(&world, driver)?;
    let zone = zone(&driver)?;
    let p = zone.start + u64::from(zone.data_rows) * zone.row_len;
    let col = column(&zone, made.slot.at);
    for col in [col - FAR, col + FAR] {
        driver.medium.flip_bit(p + col, 3).map_err(|_| unable("the medium refused"))?;
    }
    let (medium, slot, before) = (driver.medium.clone(), made.slot, made.before.clone());
    let passed = at_steps(&driver, ["object.scrub.step-remake"], move |_| {
        let _ = medium.stray(slot.at, &before);
    });
    scrub(&driver.pool)?;
    all_passed(&driver, &passed)?;
    scrub(&driver.pool)?;
    judged(&world, driver, &mut rng, &made)
}

/// The same once the columns of a commit that is completed were judged.
pub fn completed(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    for _ in 0..3 {
        long(&driver, &mut rng)?;
    }
    let targets = Targets::of(&Bytes::of(&driver.medium));
    let objects: Vec<Target> = targets.of_area(Area::Object).collect();
    let over = |zone: &Region, made: &Made| {
        let col = column(zone, made.slot.at);
        let mut all =
            (0..u64::from(zone.data_rows)).map(|row| zone.start + row * zone.row_len + col);
        all.find(|at| objects.iter().any(|o| o.at + PAGE <= *at && *at + 100 < o.at + o.len))
    };
    let made = find(&driver, &mut rng, 100, |zone, made| over(zone, made).is_some())?;
    let at = over(&zone(&driver)?, &made).ok_or_else(|| unable("nothing lies there"))?;
    let driver = settled(&world, driver)?;
    let op = write_at(&driver, at)?;
    let steps = ["object.commit.step-durable", "object.redo_parity.step-sum"];
    let (medium, slot, before) = (driver.medium.clone(), made.slot, made.before.clone());
    let passed = at_steps(&driver, steps, move |step| match step {
        0 => drop(medium.poison(at / PAGE * PAGE, PAGE, Clear::Able)),
        _ => drop(medium.stray(slot.at, &before)),
    });
    driver.must(&Job::new(&mut rng, [op]))?;
    all_passed(&driver, &passed)?;
    scrub(&driver.pool)?;
    judged(&world, driver, &mut rng, &made)
}

/// A slot fell, and P is what it would be if it was made from that: Q differs, which is all that
/// there is to see at the next open.
pub fn alone(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let made = make(&driver, &mut rng, 100)?;
    let driver = settled(&world, driver)?;
    let (now, p) = (Bytes::of(&driver.medium), p_over(&driver, &made)?);
    let get = |at| now.get(at, made.slot.len).unwrap_or_default().to_vec();
    let (slot, mut parity) = (get(made.slot.at), get(p));
    for (byte, (now, before)) in parity.iter_mut().zip(slot.iter().zip(&made.before)) {
        *byte ^= now ^ before;
    }
    for (at, bytes) in [(made.slot.at, &made.before), (p, &parity)] {
        driver.medium.stray(at, bytes).map_err(|_| unable("the medium refused"))?;
    }
    let driver = settled(&world, driver)?;
    scrub(&driver.pool)?;
    scrub(&driver.pool)?;
    judged(&world, driver, &mut rng, &made)
}

/// An object over two pages, both of which went back, and P over its slot cannot be read: Q tells
/// of the slot only if it is known that P was made from it.
pub fn one_sided(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let apart = |made: &Made| made.slot.at / PAGE != made.object.at / PAGE;
    let made = find(&driver, &mut rng, 700, |_, made| apart(made))?;
    let driver = settled(&world, driver)?;
    for (at, bytes) in [(made.slot.at, &made.before), (made.object.at / PAGE * PAGE, &made.page)] {
        driver.medium.stray(at, bytes).map_err(|_| unable("the medium refused"))?;
    }
    let p = p_over(&driver, &made)?;
    let bad = driver.medium.poison(p / PAGE * PAGE, PAGE, Clear::Able);
    bad.map_err(|_| unable("the medium refused"))?;
    scrub(&driver.pool)?;
    scrub(&driver.pool)?;
    judged(&world, driver, &mut rng, &made)
}

/// Where P over a slot is.
fn p_over(driver: &Driver, made: &Made) -> Judged<u64> {
    let zone = zone(driver)?;
    Ok(zone.start + u64::from(zone.data_rows) * zone.row_len + column(&zone, made.slot.at))
}

/// Free bytes are hit, something is put over them, and the write of its slot is lost, which lies in
/// columns that a scrub comes to later.
pub fn free(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    const LEN: u64 = 880;
    let (world, driver, mut rng) = begin(mutant, world)?;
    let later = |zone: &Region, made: &Made| {
        column(zone, made.slot.at) / PAGE > column(zone, made.object.at) / PAGE
    };
    let first = find(&driver, &mut rng, LEN, later)?;
    driver.must(&Job::new(&mut rng, [Op::Free { of: first.word }]))?;
    scrub(&driver.pool)?;
    let hit = driver.medium.stray(first.object.at, &[0x5a; 200]);
    hit.map_err(|_| unable("the medium refused"))?;
    let made = make(&driver, &mut rng, LEN)?;
    if made.object.at != first.object.at {
        return Err(unable("another place was taken"));
    }
    let fallen = driver.medium.stray(made.slot.at, &made.before);
    fallen.map_err(|_| unable("the medium refused"))?;
    scrub(&driver.pool)?;
    scrub(&driver.pool)?;
    judged(&world, driver, &mut rng, &made)
}
