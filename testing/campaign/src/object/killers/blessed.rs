//! Damage that comes about between a judgement and what is made from it. Parity that is made anew
//! from rows would have it in for ever, and free bytes are made the truth as they are.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_faultmem::Clear;
use holdfast_layout::{RawPtr, Region, RegionKind};
use holdfast_pmem::{Medium, PAGE};
use holdfast_workloads::Rng;

use super::Mutant;
use super::entries::{LONG, long};
use super::jury::{abandon, opened, unable};
use super::mended::{begin, durable};
use super::recovery::cut_short;
use crate::object::driver::Driver;
use crate::object::handle::Handle;
use crate::object::judge::scrub;
use crate::object::ops::{Job, Op};
use crate::object::raw::Bytes;
use crate::object::scenes::settled;
use crate::object::targets::{Area, Target, Targets};
use crate::object::world::World;
use crate::tally::{Judged, Tally};

/// Bytes on both sides of those that are hit that belong to the same objects.
const AROUND: u64 = 1_600;

pub(super) fn zone(driver: &Driver) -> Judged<Region> {
    let regions = driver.pool.regions();
    let zone = regions.into_iter().find(|region| region.kind == RegionKind::Zone);
    zone.ok_or_else(|| unable("the pool has no zone"))
}

/// Objects of which two lie over the same columns: a byte of each over one column.
fn two_over_one_column(driver: &Driver, rng: &mut Rng) -> Judged<(u64, u64)> {
    for _ in 0..4 {
        long(driver, rng)?;
    }
    let (zone, targets) = (zone(driver)?, Targets::of(&Bytes::of(&driver.medium)));
    let objects: Vec<Target> = targets.of_area(Area::Object).collect();
    let inside =
        |at: u64| objects.iter().any(|o| o.at + AROUND <= at && at + AROUND < o.at + o.len);
    let data = zone.start..zone.start + u64::from(zone.data_rows) * zone.row_len;
    let page = |at: u64| (at - zone.start) % zone.row_len % PAGE;
    for at in data.clone().filter(|at| inside(*at)) {
        let far = page(at) >= AROUND && page(at) + AROUND < PAGE;
        let mut below = (1..u64::from(zone.data_rows)).map(|rows| at + rows * zone.row_len);
        if let Some(other) = below.find(|o| far && data.contains(o) && inside(*o)) {
            return Ok((at, other));
        }
    }
    Err(unable("no two objects share a column"))
}

fn invert(medium: &Handle, at: u64, len: usize) {
    let mut bytes = vec![0; len];
    if medium.read(at, &mut bytes).is_ok() {
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        let _ = medium.stray(at, &bytes);
    }
}

/// Does something the first time that each of these places is passed.
pub(super) fn at_steps<const N: usize>(
    driver: &Driver,
    steps: [&'static str; N],
    what: impl Fn(usize) + Send + Sync + 'static,
) -> Arc<[AtomicBool; N]> {
    let passed = Arc::new([const { AtomicBool::new(false) }; N]);
    let told = Arc::clone(&passed);
    driver.medium.on_step(Box::new(move |site| {
        if let Some(i) = steps.iter().position(|step| *step == site.name())
            && !told[i].swap(true, Ordering::AcqRel)
        {
            what(i);
        }
    }));
    passed
}

pub(super) fn all_passed<const N: usize>(driver: &Driver, passed: &[AtomicBool; N]) -> Judged<()> {
    driver.medium.clear_on_step();
    match passed.iter().all(|passed| passed.load(Ordering::Acquire)) {
        true => Ok(()),
        false => Err(unable("a place of the story was not passed")),
    }
}

/// Parity is wrong, all rows verify, and one of them goes bad before parity is made from them.
pub fn remade(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let (at, hit) = two_over_one_column(&driver, &mut rng)?;
    let driver = settled(&world, driver)?;
    let zone = zone(&driver)?;
    let p = zone.start + u64::from(zone.data_rows) * zone.row_len;
    let col = (at - zone.start) % zone.row_len;
    for col in [col - 1_500, col + 1_500] {
        driver.medium.flip_bit(p + col, 3).map_err(|_| unable("the medium refused"))?;
    }
    let medium = driver.medium.clone();
    let passed = at_steps(&driver, ["object.scrub.step-remake"], move |_| invert(&medium, hit, 40));
    scrub(&driver.pool)?;
    all_passed(&driver, &passed)?;
    scrub(&driver.pool)?;
    driver.read_all()?;
    durable(&world, driver, &mut rng, false)
}

/// A commit is completed after its page turned bad, and something goes bad in another row.
pub fn completed(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let (at, hit) = two_over_one_column(&driver, &mut rng)?;
    let driver = settled(&world, driver)?;
    let op = write_at(&driver, at)?;
    let steps = ["object.commit.step-durable", "object.redo_parity.step-sum"];
    let medium = driver.medium.clone();
    let passed = at_steps(&driver, steps, move |step| match step {
        0 => drop(medium.poison(at / PAGE * PAGE, PAGE, Clear::Able)),
        _ => invert(&medium, hit, 30),
    });
    driver.must(&Job::new(&mut rng, [op]))?;
    all_passed(&driver, &passed)?;
    scrub(&driver.pool)?;
    driver.read_all()?;
    durable(&world, driver, &mut rng, false)
}

/// A write of a few bytes there.
pub(super) fn write_at(driver: &Driver, at: u64) -> Judged<Op> {
    let objects = driver.ledger.objects();
    let start = |word: u64| RawPtr::from_word(word).offset();
    let mut words = objects.iter().map(|(word, object)| (word, object.bytes.len() as u64));
    let of = words.find(|(word, len)| (start(*word)..start(*word) + len).contains(&at));
    let (of, _) = of.ok_or_else(|| unable("nothing is there"))?;
    Ok(Op::Write { of, from: at - start(of), len: 60 })
}

/// A record says something of two rows over the same columns, and the page of the second turns bad
/// once the first is stored: parity goes with neither by then.
pub fn between_stores(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let (at, hit) = two_over_one_column(&driver, &mut rng)?;
    let driver = settled(&world, driver)?;
    let ops = vec![write_at(&driver, at)?, write_at(&driver, hit + 30)?];
    found(&world, driver, rng, ops, "object.redo.step-cured", move |medium| {
        let _ = medium.poison(hit / PAGE * PAGE, PAGE, Clear::Able);
    })
}

/// A record is replayed, and something goes bad in another row once all that was damaged is cured.
pub fn replayed(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let (at, hit) = two_over_one_column(&driver, &mut rng)?;
    let driver = settled(&world, driver)?;
    let ops = vec![write_at(&driver, at)?];
    let step = "object.redo_parity.step-sum";
    found(&world, driver, rng, ops, step, move |medium| invert(medium, hit, 30))
}

/// What a crash leaves once the record of `ops` is durable is opened, and `harm` done there at a
/// step of that.
fn found(
    world: &Arc<World>,
    driver: Driver,
    mut rng: Rng,
    ops: Vec<Op>,
    step: &'static str,
    harm: impl Fn(&Handle) + Send + Sync + 'static,
) -> Judged<Tally> {
    let image = cut_short(&driver, &Job::new(&mut rng, ops))?;
    let promise = driver.ledger.promise();
    abandon(driver);
    let medium = world.after(image);
    let (bad, passed) = (medium.clone(), Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&passed);
    medium.on_step(Box::new(move |site| {
        if site.name() == step && !told.swap(true, Ordering::AcqRel) {
            harm(&bad);
        }
    }));
    let driver = opened(world, medium.clone(), &promise);
    // Its hook holds the medium, which tells where it was passed once it goes.
    medium.clear_on_step();
    let driver = driver?;
    if !passed.load(Ordering::Acquire) {
        return Err(unable("a place of the story was not passed"));
    }
    scrub(&driver.pool)?;
    driver.read_all()?;
    durable(world, driver, &mut rng, false)
}

/// What was written into free chunks is hit before it is known, and a scrub takes it for free.
fn hit_as_free(
    mutant: &Mutant,
    world: &'static str,
    step: &'static str,
    lengths: &[u64],
) -> Judged<(Arc<World>, Driver, Rng)> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let zone = zone(&driver)?;
    let data = zone.start + PAGE..zone.start + u64::from(zone.data_rows) * zone.row_len;
    let (from, len) = (data.start, (data.end - data.start) as usize);
    let all = move |medium: &Handle| {
        let mut all = vec![0; len];
        medium.read(from, &mut all).map(|()| all).map_err(|_| unable("the zone cannot be read"))
    };
    let before = Arc::new(Mutex::new(Vec::new()));
    let (medium, pool, known) = (driver.medium.clone(), driver.pool.clone(), Arc::clone(&before));
    let passed = at_steps(&driver, [step], move |_| {
        let before = known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Ok(now) = all(&medium) else { return };
        if let Some(first) = now.iter().zip(&before).position(|(now, before)| now != before) {
            invert(&medium, from + first as u64 + 20, 100);
            let pool = pool.clone();
            let _ = std::thread::spawn(move || scrub(&pool).map(|_| ())).join();
        }
    });
    for len in lengths {
        *before.lock().unwrap_or_else(PoisonError::into_inner) = all(&driver.medium)?;
        driver.must(&Job::new(&mut rng, [Op::Alloc { len: *len }]))?;
    }
    all_passed(&driver, &passed)?;
    Ok((world, driver, rng))
}

/// Of a chunk that becomes a run, the slots.
pub fn slots(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (step, lengths) = ("object.chunks.step-slots", [40, 90, 180, 400, 700, 1_500]);
    let (world, driver, mut rng) = hit_as_free(mutant, world, step, &lengths)?;
    scrub(&driver.pool)?;
    driver.read_all()?;
    durable(&world, driver, &mut rng, false)
}

/// Of an object that is written in place, its bytes. No scrub comes in the end: it would sync.
pub fn in_place(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (step, lengths) = ("object.in_place.step-stored", [LONG]);
    let (world, driver, mut rng) = hit_as_free(mutant, world, step, &lengths)?;
    durable(&world, driver, &mut rng, false)
}
