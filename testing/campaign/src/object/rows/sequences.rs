//! Row `sequences`: all sequences of one and two steps over a small namespace, and some of three.
//!
//! Of objects under two names, which begin empty or hold something; and of each of the six maps,
//! with two keys, in a map that begins empty or with a bucket that is full. At every barrier the
//! images that a crash may leave are judged, and the instant after the last step.

use std::sync::Arc;

use holdfast_collections::Kind;
use holdfast_faultmem::Budget;
use holdfast_workloads::sequences::{MapStep, ObjectStep, map_steps, object_steps};

use crate::object::driver::Driver;
use crate::object::judge::Care;
use crate::object::maps::{Hand, KEYS, LENGTHS, Told};
use crate::object::scenes::refused;
use crate::object::steps::{NAMES, Names, SIZES};
use crate::object::watch::{LONGEST, NO_END, Plan, Watch};
use crate::object::world::World;
use crate::runner::{Case, Row, Tier};
use crate::sequences::{self, Extent};
use crate::tally::{Judged, Tally};

/// The row.
pub const ROW: Row = Row {
    name: "sequences",
    story: "all sequences of one and two steps on objects and on each map, some of three",
    cases,
    run,
    finish: |tally| sequences::finish(&EXTENTS, tally),
    patience: LONGEST,
    threads: 2,
};

/// Six worlds, each with something there at first, or nothing.
const SETTINGS: u64 = 12;

/// The world of a setting: the usual four, and those in memory once more where crashes tear by
/// lines, as x86 does.
fn world(setting: u64) -> World {
    let mut usual = World::usual();
    match setting % SETTINGS / 2 {
        number @ 0..4 => usual.swap_remove(number as usize),
        lines => usual.swap_remove((lines as usize - 4) * 2).by_lines(),
    }
}

const fn of_maps(subject: &'static str) -> Extent {
    Extent { subject, letters: 8, settings: SETTINGS, threes: 16, share: 4 }
}

/// Objects, then maps in the order of [`Kind::ALL`].
const EXTENTS: [Extent; 7] = [
    Extent { subject: "objects", letters: 16, settings: SETTINGS, threes: 64, share: 4 },
    of_maps("hashmap"),
    of_maps("btree"),
    of_maps("rbtree"),
    of_maps("ctree"),
    of_maps("skiplist"),
    of_maps("rtree"),
];

/// Of the long tier, one sequence in so many has all images looked at that there are of a dozen
/// units, others with another seed: there are thousands of them, whose barriers are much alike. Of
/// the rest, as of the CI tier, each barrier is sampled.
const ALL_IMAGES_EACH: u64 = 16;

/// Whether a case of the long tier is one of these. Settings take turns with every case: so that
/// each has its part, the turn moves on once they are through.
const fn is_whole(case: &Case) -> bool {
    let turn = case.number.wrapping_add(case.number / SETTINGS).wrapping_add(case.seed);
    turn.is_multiple_of(ALL_IMAGES_EACH)
}

fn plan(case: &Case) -> Plan {
    let ci = matches!(case.tier, Tier::Ci);
    let thin = if ci {
        Budget { exhaustive: 8, singles: 3, pairs: 1, samples: 3, seed: 0 }
    } else {
        Budget { exhaustive: 1 << 12, singles: 60, pairs: 30, samples: 60, seed: 0 }
    };
    let all = !ci && is_whole(case);
    Plan {
        thin,
        thick: Budget { singles: 400, pairs: 200, samples: 400, ..thin },
        thick_each: 16,
        care: Care { more: 1, ..Care::USUAL },
        ruins: &[],
        again_each: 8,
        limit: if all { NO_END } else { 0 },
        enough: 5,
    }
}

fn cases(tier: Tier) -> u64 {
    EXTENTS.iter().map(|extent| extent.cases(tier)).sum()
}

fn run(case: &Case) -> Tally {
    let (index, at) = sequences::locate(&EXTENTS, case.tier, case.number);
    let extent = &EXTENTS[index];
    let pick = extent.pick(case.tier, case.seed, at);
    let (world, filled) = (world(pick.setting), pick.setting % 2 == 1);
    let place = format!("{} in {}, {}", extent.subject, world.name, begun(filled));
    let (played, told) = match index.checked_sub(1) {
        None => {
            let steps = extent.steps(&object_steps(NAMES, &SIZES), pick.number, case.seed);
            (objects(case, world, filled, &steps), format!("{steps:?}"))
        }
        Some(kind) => {
            let steps = extent.steps(&map_steps(KEYS, &LENGTHS), pick.number, case.seed);
            (maps(case, world, Kind::ALL[kind], filled, &steps), format!("{steps:?}"))
        }
    };
    let mut tally = Tally::default();
    match played {
        Ok(seen) => {
            tally.merge(seen);
            extent.note(case, pick, &mut tally);
        }
        Err(violation) => tally.convict(violation),
    }
    for violation in &mut tally.violations {
        violation.story = format!("{place}, {told}: {}", violation.story);
    }
    tally.add(format!("images of {}", extent.subject), tally.count);
    tally
}

const fn begun(filled: bool) -> &'static str {
    if filled { "begun full" } else { "begun empty" }
}

/// All sequences of these steps on objects, in a pool that is `filled` or not.
///
/// # Errors
/// The pool of that world cannot be made.
pub fn objects(case: &Case, world: World, filled: bool, steps: &[ObjectStep]) -> Judged<Tally> {
    let world = Arc::new(world);
    let driver = made(&world)?;
    let (mut names, mut rng) = (Names::default(), case.rng(1));
    if filled {
        names.fill(&driver, &mut rng)?;
    }
    watched(case, &world, driver, steps, |driver, step| names.step(driver, step, &mut rng))
}

/// All sequences of these steps on a map of that kind.
///
/// # Errors
/// As for [`objects`].
pub fn maps(
    case: &Case,
    world: World,
    kind: Kind,
    filled: bool,
    steps: &[MapStep],
) -> Judged<Tally> {
    let told = Told::nothing();
    let world = Arc::new(world.also(told.also()));
    let driver = made(&world)?;
    let mut rng = case.rng(1);
    let hand = Hand::make(&driver, kind, filled, told, &mut rng)?;
    watched(case, &world, driver, steps, |driver, step| hand.step(driver, step, &mut rng))
}

/// A pool just made.
fn made(world: &World) -> Judged<Driver> {
    let medium = world.blank();
    let pool = world.create(&medium).map_err(|error| refused("create", &error))?;
    Driver::found(medium, pool)
}

/// Does the steps while every barrier is watched, and looks at what is there then.
fn watched<T: Copy>(
    case: &Case,
    world: &Arc<World>,
    driver: Driver,
    steps: &[T],
    mut step: impl FnMut(&Driver, T) -> Judged<()>,
) -> Judged<Tally> {
    let watch = Watch::new(world, &driver.ledger, plan(case), case.rng(2));
    watch.begin(&driver.medium);
    let mut done = steps.iter().try_for_each(|one| step(&driver, *one));
    driver.medium.clear_on_barrier();
    done = done.and_then(|()| {
        driver.check()?;
        driver.read_all()?;
        watch.look(&driver.medium.crash_point());
        Ok(())
    });
    let Driver { medium, pool, .. } = driver;
    medium.abandon(pool);
    done.map(|()| watch.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_the_usual_worlds_and_those_in_memory_by_lines() {
        let names: Vec<&str> =
            (0..SETTINGS).step_by(2).map(|setting| world(setting).name).collect();
        let lines = ["shm-p by lines", "shm-pq by lines"];
        assert_eq!(names, [&["shm-p", "file-p", "shm-pq", "file-pq"], &lines[..]].concat());
        for (setting, own) in (0..SETTINGS).step_by(2).zip(names) {
            assert_eq!(world(setting + 1).name, own);
        }
    }

    #[test]
    fn of_each_subject_all_images_are_looked_at_in_each_setting() {
        let (seed, tier) = (1, Tier::Long);
        let mut whole = [[0; SETTINGS as usize]; EXTENTS.len()];
        for number in 0..cases(tier) {
            let (index, at) = sequences::locate(&EXTENTS, tier, number);
            let setting = EXTENTS[index].pick(tier, seed, at).setting;
            whole[index][setting as usize] += u64::from(is_whole(&Case { seed, number, tier }));
        }
        for (extent, whole) in EXTENTS.iter().zip(whole) {
            let each = (extent.short() + extent.threes) / ALL_IMAGES_EACH;
            assert!(whole.iter().all(|some| (each..=each + 1).contains(some)), "{whole:?}");
        }
    }

    #[test]
    fn the_alphabets_are_as_long_as_the_row_says() {
        assert_eq!(object_steps(NAMES, &SIZES).len() as u64, EXTENTS[0].letters);
        for (kind, extent) in Kind::ALL.iter().zip(&EXTENTS[1..]) {
            assert_eq!(map_steps(KEYS, &LENGTHS).len() as u64, extent.letters);
            assert_eq!(kind.to_string(), extent.subject);
        }
    }
}
