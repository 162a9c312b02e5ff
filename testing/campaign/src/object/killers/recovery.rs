//! Recoveries that meet damage on their way, and commits that do: within tolerance, so that
//! everything acknowledged is there afterwards, also on the medium.

use std::sync::{Arc, Mutex, PoisonError};

use holdfast_faultmem::{Clear, FaultKind, Image, When};
use holdfast_layout::format::{FIELDS_SUPERBLOCK, SUPERBLOCK_PAGE};
use holdfast_layout::{Region, RegionKind};
use holdfast_workloads::Rng;

use super::jury::{FEW, Jury, MANY, abandon, opened, unable};
use super::mended::parity_of;
use super::verified::field;
use super::{Mutant, entries};
use crate::object::driver::{Driver, agree, whole};
use crate::object::lanes::{Park, install};
use crate::object::model::Objects;
use crate::object::ops::{Choice, Job, Op};
use crate::object::raw::Bytes;
use crate::object::scenes::{refused, settled, stage};
use crate::object::targets::{Area, Target, Targets};
use crate::object::world::World;
use crate::tally::{Fault, Judged, Tally, Violation};
use holdfast_oracle::acked::Acked;

/// A pool that crashed after the commit point of a change and before the first of its stores.
struct Crashed {
    world: Arc<World>,
    image: Image,
    /// The same once all stores of the change have arrived.
    after: Image,
    promise: Acked<Objects>,
    /// What was changed of an object, and its length.
    changed: (u64, u64),
    zone: Region,
    rng: Rng,
}

fn zone_of(driver: &Driver) -> Judged<Region> {
    let regions = driver.pool.regions();
    let zone = regions.into_iter().find(|region| region.kind == RegionKind::Zone);
    zone.ok_or_else(|| unable("the pool has no zone"))
}

fn crashed(mutant: &Mutant, world: &'static str) -> Judged<Crashed> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    // Enough that columns are shared.
    for _ in 0..3 {
        driver.must(&Job::new(&mut rng, [Op::Alloc { len: 14_000 }]))?;
    }
    let choice = Choice::of(&driver.ledger.objects());
    // Long enough to share columns with something in another row, short enough for a record.
    let Some(&(of, len)) = choice.large.iter().find(|(_, len)| *len < 4_000) else {
        return Err(unable("the cast has no object of some granules"));
    };
    let image = cut_short(&driver, &Job::new(&mut rng, [Op::Write { of, from: 0, len }]))?;
    let after = driver.medium.crash_point().newest();
    let (promise, zone) = (driver.ledger.promise(), zone_of(&driver)?);
    let changed = (of & ((1 << 48) - 1), len);
    abandon(driver);
    Ok(Crashed { world, image, after, promise, changed, zone, rng })
}

/// Runs a job; the image is that of its last commit, after the commit point and before its stores.
/// On a file, that of its first commit if that is followed by a reclaim, before what was stored is
/// synced.
pub(super) fn cut_short(driver: &Driver, job: &Job) -> Judged<Image> {
    let last: Arc<Mutex<Option<Image>>> = Arc::default();
    let keep = Arc::clone(&last);
    driver.medium.on_barrier(Box::new(move |_, site, point| {
        let mut last = keep.lock().unwrap_or_else(PoisonError::into_inner);
        let synced = site.name() == "logs.group.synced" && last.is_none();
        if synced || site.name() == "object.settle.F2-now" {
            *last = Some(point.persisted());
        }
    }));
    driver.must(job)?;
    driver.medium.clear_on_barrier();
    let image = last.lock().unwrap_or_else(PoisonError::into_inner).take();
    // Where nothing is flushed, and with the drain switched off, the end of the commit is as good.
    Ok(image.unwrap_or_else(|| driver.medium.crash_point().persisted()))
}

impl Crashed {
    /// The first byte of P over the change.
    fn p_over_the_change(&self) -> u64 {
        let zone = &self.zone;
        let row = u64::from(zone.data_rows) * zone.row_len;
        zone.start + row + (self.changed.0 - zone.start) % zone.row_len
    }

    /// A live object of another row that lies over columns of the change, and a byte of it there.
    fn neighbour(&self, medium: &crate::object::handle::Handle) -> Judged<u64> {
        let targets = Targets::of(&Bytes::of(medium));
        let (at, len) = self.changed;
        let row = |at: u64| (at - self.zone.start) / self.zone.row_len;
        let col = |at: u64| (at - self.zone.start) % self.zone.row_len;
        let shares = |target: &Target| {
            let bytes = target.at..target.at + target.len;
            { bytes }.find(|byte| {
                row(*byte) != row(at) && (col(at)..col(at) + len).contains(&col(*byte))
            })
        };
        let found = targets.of_area(Area::Object).find_map(|target| shares(&target));
        found.ok_or_else(|| unable("no two objects share a column"))
    }

    /// Opens the pool with damage done to it; it must be whole in use and on the medium.
    fn open(
        &mut self,
        harm: impl FnOnce(&Self, &crate::object::handle::Handle) -> Judged<()>,
    ) -> Judged<Tally> {
        let medium = self.world.after(self.image.clone());
        harm(self, &medium)?;
        let driver = opened(&self.world, medium, &self.promise)?;
        driver.read_all()?;
        let (world, promise) = (Arc::clone(&self.world), self.promise.clone());
        let jury = Jury::new(FEW, &mut self.rng, move |image, _| {
            agree(&promise, &whole(&world.after(image))?.objects)
        });
        jury.look(&driver.medium.crash_point());
        abandon(driver);
        Ok(jury.end())
    }
}

/// Done to a place that was found on the medium: it is in range.
fn poison(medium: &crate::object::handle::Handle, at: u64) {
    let _ = medium.poison(at, 1, Clear::Able);
}

/// The page to be replayed over cannot be read.
pub fn bad_data(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    crashed(mutant, world)?.open(|crashed, medium| {
        poison(medium, crashed.changed.0);
        Ok(())
    })
}

/// Nothing is damaged.
pub fn sound(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    crashed(mutant, world)?.open(|_, _| Ok(()))
}

/// The recovery is crashed at each of its barriers.
fn again(
    mutant: &Mutant,
    world: &'static str,
    harm: impl FnOnce(&Crashed, &crate::object::handle::Handle) -> Judged<()>,
) -> Judged<Tally> {
    let mut crashed = crashed(mutant, world)?;
    let medium = crashed.world.after(crashed.image.clone());
    harm(&crashed, &medium)?;
    let (world, promise) = (Arc::clone(&crashed.world), crashed.promise.clone());
    let jury = Jury::new(MANY, &mut crashed.rng, move |image, _| {
        let driver = opened(&world, world.after(image), &promise)?;
        let read = driver.read_all();
        abandon(driver);
        read
    });
    jury.sit(&medium);
    let done = crashed.world.open(&medium).map_err(|error| refused("open", &error));
    medium.clear_on_barrier();
    jury.look(&medium.crash_point());
    let (pool, _) = done?;
    medium.abandon(pool);
    Ok(jury.end())
}

/// Nothing is damaged.
pub fn crashed_again(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    again(mutant, world, |_, _| Ok(()))
}

/// A byte of another row over the change is wrong.
pub fn cured_again(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    again(mutant, world, |crashed, medium| {
        // As above.
        let _ = medium.flip_bit(crashed.neighbour(medium)?, 6);
        Ok(())
    })
}

/// The page of P over the change cannot be read. See `healed.rs` for what a rewrite that is
/// switched off leaves.
pub fn bad_parity(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    crashed(mutant, world)?.open(|crashed, medium| {
        poison(medium, crashed.p_over_the_change());
        Ok(())
    })
}

/// A page of another row over the change cannot be read.
pub fn bad_row(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    crashed(mutant, world)?.open(|crashed, medium| {
        poison(medium, crashed.neighbour(medium)?);
        Ok(())
    })
}

/// The same, and P is patched already: of what the row may have been, the first that comes to mind
/// is not the right one.
pub fn bad_row_patched(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    crashed(mutant, world)?.open(|crashed, medium| {
        let at = crashed.p_over_the_change();
        let len = crashed.changed.1;
        // It lies in the pool, as the change does.
        let patched = crashed.after.bytes().get(at as usize..(at + len) as usize);
        let _ = medium.stray(at, patched.unwrap_or_default());
        poison(medium, crashed.neighbour(medium)?);
        Ok(())
    })
}

/// A byte of another row over the change is wrong.
pub fn wrong_row(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    crashed(mutant, world)?.open(|crashed, medium| {
        // As above.
        let _ = medium.flip_bit(crashed.neighbour(medium)?, 6);
        Ok(())
    })
}

/// Copy A of the superblock names another log generation: that log is empty.
pub fn wrong_superblock(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    crashed(mutant, world)?.open(|_, medium| {
        let generation = field(FIELDS_SUPERBLOCK, "log_generation")?;
        // The first page of any pool.
        let _ = medium.flip_bit(SUPERBLOCK_PAGE + generation + 1, 0);
        Ok(())
    })
}

/// The device lost the write of a slot, so that a freed object is back and verifies; long after
/// that a crash leaves a change of another row to be replayed over the very columns of that slot.
/// Parity of the rows as they lie there would make the loss permanent.
pub fn slot_lost(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    let found = loop {
        match slot_under(&driver, |len| len <= 1024)? {
            None if driver.must(&Job::new(&mut rng, [Op::Alloc { len: 6_000 }]))? => {}
            other => break other,
        }
    };
    let found = found.ok_or_else(|| unable("no slot shares columns with an object"))?;
    driver.medium.arm(FaultKind::Lost, When::touching(found.slot.at, found.slot.len));
    driver.must(&Job::new(&mut rng, [Op::Free { of: found.freed }]))?;
    driver.medium.disarm();
    change_over(world, driver, &found, rng)
}

/// The device lost the write of the entries of an object that was freed. Long after that a crash
/// leaves a change to be replayed over the columns of its slot, which nothing can cure.
pub fn entry_lost(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    let found = loop {
        match slot_under(&driver, |len| len >= entries::LONG)? {
            None => entries::long(&driver, &mut rng)?,
            Some(found) => break found,
        };
    };
    entries::lose_entries(&driver)?;
    driver.must(&Job::new(&mut rng, [Op::Free { of: found.freed }]))?;
    entries::lost(&driver)?;
    change_over(world, driver, &found, rng)
}

/// The pool is opened, and crashes in a change over the columns of a slot.
fn change_over(world: Arc<World>, driver: Driver, found: &Under, mut rng: Rng) -> Judged<Tally> {
    let Under { slot, large, from, .. } = *found;
    // No record of it is left.
    let driver = settled(&world, driver)?;
    let write = Op::Write { of: large, from, len: slot.len };
    let image = cut_short(&driver, &Job::new(&mut rng, [write]))?;
    let (promise, zone) = (driver.ledger.promise(), zone_of(&driver)?);
    let changed = ((large & ((1 << 48) - 1)) + from, slot.len);
    abandon(driver);
    Crashed { world, after: image.clone(), image, promise, changed, zone, rng }.open(|_, _| Ok(()))
}

/// A slot, and a place in another row over all its columns.
struct Under {
    /// The object of the slot.
    freed: u64,
    slot: Target,
    /// An object of several granules.
    large: u64,
    /// How far in it the columns of the slot begin.
    from: u64,
}

/// A place for a slot of an object of such a length, if there is one.
fn slot_under(driver: &Driver, of_len: impl Fn(u64) -> bool) -> Judged<Option<Under>> {
    const PLACE: u64 = (1 << 48) - 1;
    let zone = zone_of(driver)?;
    let choice = Choice::of(&driver.ledger.objects());
    let targets = Targets::of(&Bytes::of(&driver.medium));
    let over = |slot: &Target, freed: u64| {
        let col = (slot.at - zone.start) % zone.row_len;
        let rows = (0..u64::from(zone.data_rows)).map(|row| zone.start + row * zone.row_len + col);
        rows.filter(|at| *at != slot.at).find_map(|at| {
            let holds =
                |(of, len): &(u64, u64)| (of & PLACE) <= at && at + slot.len <= (of & PLACE) + len;
            let of = choice.large.iter().copied().find(holds)?.0;
            if of == freed {
                return None;
            }
            Some((of, at - (of & PLACE)))
        })
    };
    let slots = targets.of_area(Area::Object).zip(targets.of_area(Area::Slot));
    let all = || choice.small.iter().chain(&choice.large).copied();
    let mut found = slots.filter_map(|(object, slot)| {
        let (freed, _) = all().find(|(of, len)| of & PLACE == object.at && of_len(*len))?;
        over(&slot, freed).map(|(large, from)| Under { freed, slot, large, from })
    });
    Ok(found.next())
}

/// A page turns bad between the commit point of a change and its stores; its thread then has
/// nothing more to do, while another one commits.
fn met_by_a_commit(mutant: &Mutant, world: &'static str, parity: bool) -> Judged<Tally> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    let choice = Choice::of(&driver.ledger.objects());
    let ((of, len), (other, _)) = (choice.small[0], choice.small[1]);
    install(&driver.medium);
    let park = Park::at("object.commit.step-durable");
    let job = Job::new(&mut rng, [Op::Write { of, from: 0, len }]);
    let at = of & ((1 << 48) - 1);
    let bad = if parity { parity_of(&driver, at, false)? } else { at };
    std::thread::scope(|scope| {
        let committer = scope.spawn(|| park.keep(|| driver.must(&job)));
        if park.wait() {
            poison(&driver.medium, bad);
        }
        park.release();
        committer
            .join()
            .unwrap_or_else(|_| Err(Violation::new(Fault::Panicked, "the committer panicked")))
    })?;
    for _ in 0..12 {
        driver.must(&Job::new(&mut rng, [Op::Write { of: other, from: 0, len: 8 }]))?;
    }
    driver.check().map_err(|v| v.during("the pool in use"))?;
    let (shared, promise) = (Arc::clone(&world), driver.ledger.promise());
    let jury = Jury::new(FEW, &mut rng, move |image, _| {
        let driver = opened(&shared, shared.after(image), &promise)?;
        abandon(driver);
        Ok(())
    });
    jury.look(&driver.medium.crash_point());
    abandon(driver);
    Ok(jury.end())
}

/// The page of the change itself.
pub fn bad_under_commit(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    met_by_a_commit(mutant, world, false)
}

/// The page of P over it.
pub fn bad_parity_under_commit(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    met_by_a_commit(mutant, world, true)
}

/// A growth that a crash cut off left bytes behind the end of the pool; the next one clears them.
pub fn regrown(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    let size = world.options.size * 2;
    let left: Arc<Mutex<Option<Image>>> = Arc::default();
    let keep = Arc::clone(&left);
    driver.medium.on_barrier(Box::new(move |_, site, point| {
        if site.name() == "object.open.regions-b-drain" || site.name() == "object.open.regions-b" {
            *keep.lock().unwrap_or_else(PoisonError::into_inner) = Some(point.persisted());
        }
    }));
    driver.pool.grow(size).map_err(|error| refused("grow", &error))?;
    driver.medium.clear_on_barrier();
    let promise = driver.ledger.promise();
    abandon(driver);
    let Some(image) = left.lock().unwrap_or_else(PoisonError::into_inner).take() else {
        return Err(Violation::new(Fault::Refused, "the region table was not written"));
    };
    // What was written there is not what the next growth writes: objects lay there, say.
    let medium = world.after(image);
    let mut rest = vec![0; 4096];
    for at in (world.options.size + 4096..size).step_by(16 * 4096) {
        rng.fill(&mut rest);
        // Behind the pool, and within the medium.
        let _ = medium.stray(at, &rest);
    }
    let (pool, _) = world.open(&medium).map_err(|error| refused("open", &error))?;
    let (shared, kept) = (Arc::clone(&world), promise.clone());
    let jury = Jury::new(MANY, &mut rng, move |image, _| {
        let driver = opened(&shared, shared.after(image), &kept)?;
        abandon(driver);
        Ok(())
    });
    jury.sit(&medium);
    let grown = pool.grow(size).map_err(|error| refused("grow again", &error));
    medium.clear_on_barrier();
    jury.look(&medium.crash_point());
    medium.abandon(pool);
    grown?;
    Ok(jury.end())
}
