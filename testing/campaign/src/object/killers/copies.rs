//! Mirrored records: at every instant one copy is valid, and once a deed is done both are, and
//! the same.

use holdfast_faultmem::Clear;
use holdfast_pmem::PAGE;
use holdfast_workloads::Rng;

use super::Mutant;
use super::jury::{Jury, MANY, abandon, wrong};
use crate::object::driver::Driver;
use crate::object::handle::Handle;
use crate::object::judge::scrub;
use crate::object::raw::{Bytes, mirrors};
use crate::object::scenes::{Wound, hurt, refused, settled, stage};
use crate::object::targets::{Area, Side, Targets};
use crate::object::world::World;
use crate::tally::{Fault, Judged, Tally, Violation};

/// Steps behind the write of a record.
const WRITTEN: [&str; 2] = ["object.grow.step-listed", "redundancy.remap.recorded"];

/// At an instant within a deed, a copy may be old or torn; at the end of it none may.
fn check(image: holdfast_faultmem::Image, site: &'static str) -> Judged<()> {
    let Some(survey) = mirrors(&Bytes::from_vec(image.into_bytes())) else {
        return Err(wrong("no superblock verifies"));
    };
    match survey.flaws.iter().find(|flaw| !flaw.exposed || site.is_empty()) {
        None => Ok(()),
        Some(flaw) if flaw.exposed => Err(Violation::new(Fault::Exposed, flaw.what.clone())),
        Some(flaw) => Err(wrong(flaw.what.clone())),
    }
}

/// Watches `deed` on a pool that owes nothing, and looks at both copies once it is done.
fn watched(
    mutant: &Mutant,
    world: &'static str,
    deed: impl FnOnce(&World, &Driver, &mut Rng) -> Judged<()>,
) -> Judged<Tally> {
    let (world, mut rng) = (mutant.world(world), mutant.rng(1));
    let driver = settled(&world, stage(&world, &mut rng)?)?;
    let jury = Jury::new(MANY, &mut rng, check);
    jury.sit(&driver.medium);
    let (steps, medium) = (jury.clone(), driver.medium.clone());
    driver.medium.on_step(Box::new(move |site| {
        // A record was written a moment ago, and it is said to be durable.
        if WRITTEN.contains(&site.name()) {
            steps.look(&medium.crash_point());
        }
    }));
    let done = deed(&world, &driver, &mut rng);
    driver.medium.clear_on_barrier();
    driver.medium.clear_on_step();
    jury.look(&driver.medium.crash_point());
    abandon(driver);
    done?;
    Ok(jury.end())
}

/// A repair: the intent is noted and cleared; the scrub notes how far it is.
pub fn repair(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    watched(mutant, world, |_, driver, rng| {
        hurt(driver, &Wound { area: Area::Object, poison: None }, rng);
        scrub(&driver.pool).map(|_| ())
    })
}

/// A relocation: the table of relocations changes.
pub fn relocate(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    watched(mutant, world, |_, driver, rng| {
        hurt(driver, &Wound { area: Area::Object, poison: Some(Clear::Unable) }, rng);
        scrub(&driver.pool).map(|_| ())
    })
}

/// Growth: the region table and the superblock change.
pub fn grow(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    watched(mutant, world, |world, driver, _| {
        driver.pool.grow(world.options.size * 2).map_err(|error| refused("grow", &error))
    })
}

/// A copy was damaged while nobody looked, and is written again by the next open.
fn healed(mutant: &Mutant, world: &'static str, area: Area) -> Judged<Tally> {
    let (world, mut rng) = (mutant.world(world), mutant.rng(1));
    let Driver { medium, pool, .. } = stage(&world, &mut rng)?;
    drop(pool);
    let medium: Handle = world.after(medium.crash_point().persisted());
    let targets = Targets::of(&Bytes::of(&medium));
    let Some(target) = targets.of_area(area).next() else {
        return Err(Violation::new(Fault::Refused, format!("the pool has no {area}")));
    };
    // Found on this very medium: in range.
    let _ = medium.flip_bit(target.at + 9, 3);
    let jury = Jury::new(MANY, &mut rng, check);
    jury.sit(&medium);
    let opened = world.open(&medium);
    medium.clear_on_barrier();
    jury.look(&medium.crash_point());
    let (pool, _) = opened.map_err(|error| refused("open", &error))?;
    medium.abandon(pool);
    Ok(jury.end())
}

/// Copy A of the superblock.
pub fn heal_superblock(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    healed(mutant, world, Area::Superblock(Side::A))
}

/// Copy B of the region table.
pub fn heal_regions(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    healed(mutant, world, Area::Regions(Side::B))
}

/// Copy A of the table of relocations.
pub fn heal_remap(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    healed(mutant, world, Area::Remap(Side::A))
}

/// Copy B of the intent.
pub fn heal_intent(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    healed(mutant, world, Area::Intent(Side::B))
}

/// Copy A of the scrub's progress.
pub fn heal_progress(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    healed(mutant, world, Area::Progress(Side::A))
}

/// Copy B turns bad a moment before it is written. The write rewrites its page, and that lasts.
fn cleared(
    mutant: &Mutant,
    world: &'static str,
    area: Area,
    deed: impl FnOnce(&World, &Driver, u64) -> Judged<()>,
) -> Judged<Tally> {
    let (world, mut rng) = (mutant.world(world), mutant.rng(1));
    let driver = settled(&world, stage(&world, &mut rng)?)?;
    let targets = Targets::of(&Bytes::of(&driver.medium));
    let none = |area| Violation::new(Fault::Refused, format!("the pool has no {area}"));
    let copy = targets.of_area(area).next().ok_or_else(|| none(area))?.at;
    let object = targets.of_area(Area::Object).next().ok_or_else(|| none(Area::Object))?.at;
    // Both were found on this very medium.
    let _ = driver.medium.poison(copy, 1, Clear::Able);
    let done = deed(&world, &driver, object / PAGE * PAGE);
    let left = driver.medium.crash_point().persisted();
    abandon(driver);
    done?;
    let mut tally = Tally { count: 1, ..Tally::default() };
    if left.bad_pages().iter().any(|(page, _)| *page == copy / PAGE) {
        tally.convict(wrong(format!("{area} was written, and is bad after a crash")));
    }
    Ok(tally)
}

/// An object that cannot be read is repaired for the sake of a load.
fn loaded(driver: &Driver, page: u64, clear: Clear) -> Judged<()> {
    // In range, as above.
    let _ = driver.medium.poison(page, 1, clear);
    match driver.pool.heal_load(page, 1) {
        true => Ok(()),
        false => Err(wrong("a page within tolerance was not repaired")),
    }
}

/// Copy B of the intent.
pub fn clear_intent(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    cleared(mutant, world, Area::Intent(Side::B), |_, driver, page| {
        loaded(driver, page, Clear::Able)
    })
}

/// Copy B of the table of relocations.
pub fn clear_remap(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    cleared(mutant, world, Area::Remap(Side::B), |_, driver, page| {
        loaded(driver, page, Clear::Unable)
    })
}

/// Copy B of the superblock.
pub fn clear_superblock(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    cleared(mutant, world, Area::Superblock(Side::B), |world, driver, _| {
        driver.pool.grow(world.options.size * 2).map_err(|error| refused("grow", &error))
    })
}

/// Copy B of the region table.
pub fn clear_regions(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    cleared(mutant, world, Area::Regions(Side::B), |world, driver, _| {
        driver.pool.grow(world.options.size * 2).map_err(|error| refused("grow", &error))
    })
}

/// Copy B of the scrub's progress.
pub fn clear_progress(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    cleared(mutant, world, Area::Progress(Side::B), |_, driver, _| scrub(&driver.pool).map(|_| ()))
}
