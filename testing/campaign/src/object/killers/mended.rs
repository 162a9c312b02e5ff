//! Repairs: once a scrub says that a place is repaired, it is, on the medium as well.

use std::sync::Arc;

use holdfast_faultmem::{Clear, FaultKind, When};
use holdfast_layout::{RawPtr, RegionKind, Superblock};
use holdfast_object::{ScrubControl, ScrubOptions, VerifyReads};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::events::Journal;
use holdfast_txn::Transaction;
use holdfast_workloads::Rng;

use super::Mutant;
use super::jury::{FEW, Jury, MANY, abandon, opened, unable, wrong};
use crate::object::driver::{Driver, agree, whole};
use crate::object::handle::Handle;
use crate::object::judge::scrub;
use crate::object::ops::{Choice, Job, Op};
use crate::object::raw::{Bytes, Scope, Survey, survey};
use crate::object::scenes::{Wound, hurt, refused, settled, stage};
use crate::object::targets::{Area, Side, Target, Targets};
use crate::object::world::World;
use crate::tally::{Fault, Judged, Tally, Violation};

/// The usual pool, owing nothing to its medium.
pub(super) fn begin(mutant: &Mutant, world: &'static str) -> Judged<(Arc<World>, Driver, Rng)> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    if driver.medium.kind() == MediumKind::File {
        // It owes something when it is closed, even if a reclaim has just come.
        driver.must(&Job::new(&mut rng, [Op::Alloc { len: 100 }]))?;
    }
    Ok((Arc::clone(&world), settled(&world, driver)?, rng))
}

/// The pool in use is whole, and so is every image of this quiet instant, as it lies there or
/// opened without a scrub.
pub(super) fn durable(
    world: &Arc<World>,
    driver: Driver,
    rng: &mut Rng,
    open: bool,
) -> Judged<Tally> {
    driver.check().map_err(|v| v.during("the pool in use"))?;
    driver.read_all()?;
    let (world, promise) = (Arc::clone(world), driver.ledger.promise());
    let jury = Jury::new(FEW, rng, move |image, _| {
        let medium = world.after(image);
        if open {
            return opened(&world, medium, &promise).map(abandon);
        }
        agree(&promise, &whole(&medium)?.objects)
    });
    jury.look(&driver.medium.crash_point());
    abandon(driver);
    Ok(jury.end())
}

fn scrubbed(mutant: &Mutant, world: &'static str, wounds: &[Wound]) -> Judged<Tally> {
    let mut all = Tally::default();
    for wound in wounds {
        let (world, driver, mut rng) = begin(mutant, world)?;
        hurt(&driver, wound, &mut rng);
        scrub(&driver.pool)?;
        let open = wound.poison == Some(Clear::Unable);
        let place = format!("{} {:?}", wound.area, wound.poison);
        let mut tally = durable(&world, driver, &mut rng, open).map_err(|v| v.during(&place))?;
        for violation in &mut tally.violations {
            violation.story = format!("{place}: {}", violation.story);
        }
        all.merge(tally);
    }
    Ok(all)
}

const fn flip(area: Area) -> Wound {
    Wound { area, poison: None }
}

const fn poison(area: Area) -> Wound {
    Wound { area, poison: Some(Clear::Able) }
}

/// Nothing is damaged: a pool just made is whole as it lies there. (What an open would repair
/// anyway does not count as there.)
pub fn made(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let medium = world.blank();
    let pool = world.create(&medium).map_err(|error| refused("create", &error))?;
    let driver = Driver::found(medium, pool)?;
    durable(&world, driver, &mut rng, false)
}

/// Flipped bits.
pub fn flipped(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    use Area::{Directory, Object, Slot, Sum};
    scrubbed(mutant, world, &[Object, Slot, Sum, Directory].map(flip))
}

/// The same bit flipped in a unit and in P over it: the column adds up, and only the unit's own sum
/// tells. It is beyond what P can repair, and has to be named.
pub fn consistent(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let mut all = Tally::default();
    for area in [Area::Object, Area::Directory] {
        let (_world, driver, mut rng) = begin(mutant, world)?;
        let targets = Targets::of(&Bytes::of(&driver.medium));
        let target = targets.pick(area, &mut rng).ok_or_else(|| unable("the pool has none"))?;
        let regions = driver.pool.regions();
        let zone = regions.iter().find(|r| r.kind == RegionKind::Zone && target.at >= r.start);
        let zone = zone.ok_or_else(|| unable("the pool has a zone"))?;
        let p = zone.start
            + u64::from(zone.data_rows) * zone.row_len
            + (target.at - zone.start) % zone.row_len;
        for at in [target.at, p] {
            driver.medium.flip_bit(at, 3).map_err(|_| unable("the medium refused"))?;
        }
        let (options, control) = (ScrubOptions::default(), ScrubControl::default());
        let done = driver.pool.scrub(options, &control, |_, _| {});
        let done = done.map_err(|error| refused("scrub", &error))?;
        abandon(driver);
        all.count += 1;
        if done.repaired + done.lost == 0 {
            let story = format!("a scrub did not see a damaged {area} whose column adds up");
            all.convict(Violation::new(Fault::Unnoticed, story));
        }
    }
    Ok(all)
}

/// Flipped bits that only parity tells.
pub fn flipped_p(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    scrubbed(mutant, world, &[Area::ParityP, Area::Free].map(flip))
}

/// A flipped bit in Q.
pub fn flipped_q(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    scrubbed(mutant, world, &[flip(Area::ParityQ)])
}

/// Pages of the zone that cannot be read.
pub fn poisoned(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    scrubbed(mutant, world, &[Area::Object, Area::Directory, Area::ParityP].map(poison))
}

/// Pages of metadata and log that cannot be read.
pub fn poisoned_sides(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let areas = [Area::Superblock(Side::A), Area::Regions(Side::B), Area::Intent(Side::A)];
    scrubbed(mutant, world, &areas.map(poison))
}

/// Pages of the zone that stay bad.
pub fn dead(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let wound = |area| Wound { area, poison: Some(Clear::Unable) };
    scrubbed(mutant, world, &[Area::Object, Area::Directory, Area::ParityP].map(wound))
}

/// The first byte of the only spare frame.
fn spare_of(driver: &Driver) -> Judged<(u64, u64)> {
    let regions = driver.pool.regions();
    let spare = regions.iter().find(|region| region.kind == RegionKind::Spare);
    spare.map(|spare| (spare.start, spare.len)).ok_or_else(|| unable("the pool has no spare frame"))
}

/// A page stays bad, and its frame moves: at every barrier, the next open finds one or the other.
pub fn moving(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let (shared, promise) = (Arc::clone(&world), driver.ledger.promise());
    let jury = Jury::new(MANY, &mut rng, move |image, site| {
        if !site.starts_with("redundancy.remap") && !site.is_empty() {
            return Ok(());
        }
        let medium = shared.after(image);
        let driver = opened(&shared, medium, &promise)?;
        abandon(driver);
        Ok(())
    });
    hurt(&driver, &Wound { area: Area::Object, poison: Some(Clear::Unable) }, &mut rng);
    jury.sit(&driver.medium);
    let done = scrub(&driver.pool);
    driver.medium.clear_on_barrier();
    jury.look(&driver.medium.crash_point());
    abandon(driver);
    done?;
    Ok(jury.end())
}

/// The spare frame is bad as well, until it is written. With the crash P over it is lost: what was
/// moved has to be there.
pub fn moving_to_bad(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let (at, len) = spare_of(&driver)?;
    let page = pick(&driver, Area::Object, &mut rng)?.at / PAGE * PAGE;
    let p = parity_of(&driver, page, false)?;
    // Both were found on this very medium.
    let _ = driver.medium.poison(at, len, Clear::Able);
    let _ = driver.medium.poison(page, PAGE, Clear::Unable);
    scrub(&driver.pool)?;
    driver.check().map_err(|v| v.during("the pool in use"))?;
    driver.read_all()?;
    let promise = driver.ledger.promise();
    let jury = Jury::new(FEW, &mut rng, move |image, _| {
        let medium = world.after(image);
        // As above.
        let _ = medium.poison(p, PAGE, Clear::Able);
        opened(&world, medium, &promise).map(abandon)
    });
    jury.look(&driver.medium.crash_point());
    abandon(driver);
    Ok(jury.end())
}

/// The device loses the write to the spare frame. A load that is told that it was moved must be
/// right. It is a frame of P: what is over objects is looked at once more by their sums, and a
/// scrub compares the column.
pub fn moving_in_vain(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let (at, len) = spare_of(&driver)?;
    let page = pick(&driver, Area::ParityP, &mut rng)?.at / PAGE * PAGE;
    driver.medium.poison(page, PAGE, Clear::Unable).map_err(|e| unable(e.to_string()))?;
    driver.medium.arm(FaultKind::Lost, When::touching(at, len));
    if !driver.pool.heal_load(page, PAGE) {
        // There is no other spare frame, and it says so.
        abandon(driver);
        return Ok(Tally { count: 1, ..Tally::default() });
    }
    durable(&world, driver, &mut rng, true)
}

/// The place in the parity rows above a byte of the zone: P, or Q one row later.
pub(super) fn parity_of(driver: &Driver, at: u64, q: bool) -> Judged<u64> {
    let regions = driver.pool.regions();
    let zone = regions.iter().find(|region| region.kind == RegionKind::Zone);
    let zone = zone.ok_or_else(|| unable("the pool has no zone"))?;
    let row = u64::from(zone.data_rows) + u64::from(q);
    Ok(zone.start + row * zone.row_len + (at - zone.start) % zone.row_len)
}

fn pick(driver: &Driver, area: Area, rng: &mut Rng) -> Judged<Target> {
    let targets = Targets::of(&Bytes::of(&driver.medium));
    targets.pick(area, rng).ok_or_else(|| unable(format!("the pool has no {area}")))
}

/// A byte of an object and the byte of P over it are wrong; Q knows better. Played for each object:
/// closing flushes what the last commits stored once more, so Q may be right there by itself.
pub fn two_at_once(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let mut all = Tally::default();
    for turn in 0.. {
        let (world, driver, mut rng) = begin(mutant, world)?;
        let objects = Targets::of(&Bytes::of(&driver.medium));
        let Some(target) = objects.of_area(Area::Object).nth(turn) else { break };
        let at = target.at + rng.below(target.len);
        let p = parity_of(&driver, at, false)?;
        // Both were found on this very medium.
        let _ = driver.medium.flip_bit(at, 0);
        let _ = driver.medium.flip_bit(p, 5);
        scrub(&driver.pool)?;
        let seen = durable(&world, driver, &mut rng, false)?;
        all.merge(seen);
    }
    Ok(all)
}

/// A slot is wrong, and a byte of P over the object of that slot: one damage for each column.
pub fn slot_and_parity(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let targets = Targets::of(&Bytes::of(&driver.medium));
    let (objects, slots) = (targets.of_area(Area::Object), targets.of_area(Area::Slot));
    let Some((object, slot)) = objects.zip(slots).nth(2) else {
        return Err(unable("the pool has no three objects"));
    };
    let p = parity_of(&driver, object.at, false)?;
    // Both were found on this very medium.
    let _ = driver.medium.flip_bit(slot.at + 1, 3);
    let _ = driver.medium.flip_bit(p, 5);
    scrub(&driver.pool)?;
    durable(&world, driver, &mut rng, false)
}

/// The device loses the write of a slot: the object that was freed is back, and verifies.
pub fn slot_lost(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let targets = Targets::of(&Bytes::of(&driver.medium));
    let of = Choice::of(&driver.ledger.objects()).small[0].0;
    let mut pairs = targets.of_area(Area::Object).zip(targets.of_area(Area::Slot));
    let Some((_, slot)) = pairs.find(|(object, _)| object.at == of & ((1 << 48) - 1)) else {
        return Err(unable("an object has no slot"));
    };
    driver.medium.arm(FaultKind::Lost, When::touching(slot.at, slot.len));
    driver.must(&Job::new(&mut rng, [Op::Free { of }]))?;
    driver.medium.disarm();
    scrub(&driver.pool)?;
    durable(&world, driver, &mut rng, true)
}

/// A page is set back to what it was before a change of which nothing tells that it came last, or
/// else P over it is too old. It has to be named, and P may be all that is left of the change.
pub fn in_doubt(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (_world, driver, mut rng) = begin(mutant, world)?;
    driver.must(&Job::new(&mut rng, [Op::Alloc { len: 12_000 }]))?;
    let choice = Choice::of(&driver.ledger.objects());
    let of = choice.large.iter().filter(|(_, len)| *len == 12_000).map(|(of, _)| *of).next();
    let of = of.ok_or_else(|| unable("the pool has no large object"))?;
    let at = (of & ((1 << 48) - 1)) / PAGE * PAGE;
    let before = Bytes::of(&driver.medium).get(at, PAGE).unwrap_or_default().to_vec();
    driver.must(&Job::new(&mut rng, [Op::Write { of, from: 1_100, len: 300 }]))?;
    driver.medium.stray(at, &before).map_err(|_| unable("the medium refused"))?;
    let done = scrub(&driver.pool)?;
    let mut tally = Tally { count: 1, ..Tally::default() };
    if done.undecided == 0 {
        let story = format!("object {of:#x} is older, or parity is, and nobody says so");
        tally.convict(Violation::new(Fault::Unnoticed, story));
    }
    abandon(driver);
    Ok(tally)
}

/// A page of objects cannot be read, and a byte of P over it is wrong; Q knows better.
pub fn page_and_parity(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let target = pick(&driver, Area::Object, &mut rng)?;
    let at = target.at + rng.below(target.len);
    let p = parity_of(&driver, at, false)?;
    // Both were found on this very medium.
    let _ = driver.medium.poison(at, 1, Clear::Able);
    let _ = driver.medium.flip_bit(p, 5);
    scrub(&driver.pool)?;
    durable(&world, driver, &mut rng, false)
}

/// A load meets a page of the directory that cannot be read, and a byte of P over another entry on
/// it is wrong. The whole page is repaired for the sake of the load, so all of it must be right.
/// (Of objects, the slots tell which page is the newer one, and so which is damaged.)
pub fn loaded(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (_, driver, _) = begin(mutant, world)?;
    let targets = Targets::of(&Bytes::of(&driver.medium));
    let entries: Vec<u64> = targets.of_area(Area::Directory).map(|entry| entry.at).collect();
    let [first, second, ..] = *entries else { return Err(unable("no two entries are in use")) };
    let p = parity_of(&driver, second, false)?;
    // Both were found on this very medium.
    let _ = driver.medium.flip_bit(p, 5);
    let _ = driver.medium.poison(first, 1, Clear::Able);
    let healed = driver.pool.heal_load(first, 8);
    let found = survey(&Bytes::of(&driver.medium), Scope::ALL);
    abandon(driver);
    if !healed {
        return Err(unable("the load was not helped"));
    }
    // P itself was not met by anybody.
    let found = found.ok_or_else(|| wrong("no superblock verifies"))?;
    match found.flaws.iter().find(|flaw| !flaw.exposed) {
        Some(flaw) => Err(wrong(flaw.what.clone())),
        None => Ok(Tally { count: 1, ..Tally::default() }),
    }
}

/// No event is there before its repair is: who finds it on the medium finds the right bytes too.
pub fn told_after(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    told_once_durable(mutant, world, |driver, rng| {
        hurt(driver, &Wound { area: Area::ParityP, poison: None }, rng);
        scrub(&driver.pool).map(|_| ())
    })
}

/// The same of an object, while no intent can be noted: a page for it stays bad.
pub fn without_intent(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    told_once_durable(mutant, world, |driver, rng| {
        let targets = Targets::of(&Bytes::of(&driver.medium));
        for copy in targets.of_area(Area::Intent(Side::B)) {
            // Found on this very medium.
            let _ = driver.medium.poison(copy.at, 1, Clear::Unable);
        }
        hurt(driver, &Wound { area: Area::Object, poison: None }, rng);
        driver.read_all()
    })
}

/// Damages something and has it repaired. Whenever an event says so, a crash leaves it so.
fn told_once_durable(
    mutant: &Mutant,
    world: &'static str,
    deed: impl FnOnce(&Driver, &mut Rng) -> Judged<()>,
) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let superblock = driver.pool.superblock();
    let newest = |medium: &Handle, superblock: &Superblock| {
        let journal = Journal::open(medium, superblock);
        journal.read_all(medium).last().map_or(0, |event| event.sequence)
    };
    let (shared, before) = (Arc::clone(&world), newest(&driver.medium, &superblock));
    let jury = Jury::new(MANY, &mut rng, move |image, site| {
        let medium = shared.after(image);
        if !site.starts_with("redundancy.events") || newest(&medium, &superblock) == before {
            return Ok(());
        }
        // Records have stories of their own (`copies.rs`).
        let found = survey(&Bytes::of(&medium), Scope { mirrors: false, ..Scope::ALL });
        match found.as_ref().map(Survey::complaint) {
            Some(None) => Ok(()),
            what => Err(wrong(format!("an event says it is repaired: {what:?}"))),
        }
    });
    jury.sit(&driver.medium);
    let done = deed(&driver, &mut rng);
    driver.medium.clear_on_barrier();
    abandon(driver);
    done?;
    Ok(jury.end())
}

/// A damaged object is changed elsewhere: nothing of the damage may get into sums and parity.
pub fn changed(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let choice = Choice::of(&driver.ledger.objects());
    for (of, len) in choice.small {
        let at = of & ((1 << 48) - 1);
        // Objects lie where their pointers say.
        let _ = driver.medium.flip_bit(at + len - 1, 4);
        driver.must(&Job::new(&mut rng, [Op::Write { of, from: 0, len: 8 }]))?;
    }
    scrub(&driver.pool)?;
    let clean = settled(&world, driver)?;
    durable(&world, clean, &mut rng, false)
}

/// The last write of P over a small object was lost, and its page after it: Q knows better.
pub fn older_parity(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    for (of, _) in Choice::of(&driver.ledger.objects()).small {
        // Objects lie where their pointers say.
        let at = of & ((1 << 48) - 1);
        let (p, mut before) =
            (parity_of(&driver, at, false)? / PAGE * PAGE, vec![0; PAGE as usize]);
        // Both are pages of this very medium.
        let _ = driver.medium.read(p, &mut before);
        driver.must(&Job::new(&mut rng, [Op::Write { of, from: 0, len: 8 }]))?;
        let _ = driver.medium.stray(p, &before);
        let _ = driver.medium.poison(at / PAGE * PAGE, PAGE, Clear::Able);
        // Whoever reads it has its columns settled as well, by which it comes back.
        let healed = driver.pool.heal_load(at / PAGE * PAGE, PAGE);
        let mut there = [0; 8];
        let read = driver.medium.read(at, &mut there).is_ok();
        let same = |bytes: &[u8]| bytes.starts_with(&there);
        if healed && read && !driver.ledger.objects().get(of).is_some_and(|o| same(&o.bytes)) {
            return Err(Violation::new(Fault::Wrong, "an older page was taken for the newest"));
        }
        scrub(&driver.pool)?;
    }
    durable(&world, driver, &mut rng, false)
}

/// Each small object is damaged, and read for the first time since the pool was opened, the short
/// way that takes it for sound if its sum says so.
pub fn read_quickly(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    driver.pool.set_verify_reads(VerifyReads::FirstTouch);
    for (of, len) in Choice::of(&driver.ledger.objects()).small {
        // Objects lie where their pointers say.
        let _ = driver.medium.flip_bit((of & ((1 << 48) - 1)) + rng.below(len), 4);
        let mut found = vec![0; len as usize];
        let read = driver.pool.run(|tx| tx.read_bytes(RawPtr::from_word(of), 0, &mut found));
        read.map_err(|error| refused("read", &error))?;
        if driver.ledger.objects().get(of).is_none_or(|object| *object.bytes != *found) {
            return Err(Violation::new(Fault::Wrong, "a damaged byte was served"));
        }
    }
    durable(&world, driver, &mut rng, false)
}

/// A damaged object is read.
pub fn read(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    // Also what was read before.
    driver.pool.set_verify_reads(VerifyReads::Always);
    for _ in 0..8 {
        hurt(&driver, &Wound { area: Area::Object, poison: None }, &mut rng);
        driver.read_all()?;
    }
    let violation = |what| Violation::new(Fault::Unnoticed, what);
    let report = driver.pool.check(|_, _| {}).map_err(|e| violation(format!("check: {e}")))?;
    if !report.is_clean() {
        return Err(violation(format!("read, and not repaired: {:?}", report.findings.first())));
    }
    durable(&world, driver, &mut rng, false)
}
