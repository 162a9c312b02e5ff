//! Row `fail-nth`: every call of the medium that can fail does fail, once or from then on.
//!
//! Each case is one public operation in one world. Its calls are counted, then it is run again
//! from the same image for every n, with the nth call failing. It must answer, not panic; once
//! calls succeed again the pool, after a scrub, is whole and holds the state before or after. What
//! was acknowledged is there after a crash; a failed append or sync of a file ends all writing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use holdfast_faultmem::{FailMode, Image};
use holdfast_object::Error;
use holdfast_pmem::MediumKind;
use holdfast_txn::TxError;

use crate::object::driver::{Driver, agree, whole};
use crate::object::handle::Handle;
use crate::object::judge::{Care, Promise, judge, scrub};
use crate::object::model::Objects;
use crate::object::ops::{Choice, Job};
use crate::object::scenes::{Plot, SCENES, Scene, refused, stage};
use crate::object::world::World;
use crate::runner::{Case, Row, Tier, panic_text};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "fail-nth",
    story: "every call that can fail fails, once and for ever, in every public operation",
    cases: |tier| (SCENES.len() * WORLDS.len()) as u64 * if is_ci(tier) { 1 } else { 4 },
    run,
    finish: |_| {},
    patience: Duration::from_secs(300),
    threads: 2,
};

/// Worlds of this row.
const WORLDS: [&str; 2] = ["shm-p", "file-p"];
/// Calls of one operation that are made to fail at most; beyond, every so many of them.
const CALLS: u64 = 120;

const fn is_ci(tier: Tier) -> bool {
    matches!(tier, Tier::Ci)
}

/// What an operation answered.
enum Answer {
    /// It was done.
    Done,
    /// It was refused, or failed.
    Error(Error),
}

/// Where every run of a case begins.
struct Origin {
    image: Image,
    objects: Objects,
    jobs: Vec<Job>,
}

fn run(case: &Case) -> Tally {
    let scene = &SCENES[case.number as usize % SCENES.len()];
    let world = WORLDS[case.number as usize / SCENES.len() % WORLDS.len()];
    let world = Arc::new(World::named(world));
    let mut tally = Tally::default();
    let done = every_call(scene, &world, case, &mut tally);
    tally.judge(done);
    for violation in &mut tally.violations {
        violation.story = format!("{} in {}: {}", scene.name, world.name, violation.story);
    }
    tally
}

fn every_call(scene: &Scene, world: &Arc<World>, case: &Case, tally: &mut Tally) -> Judged<()> {
    let mut rng = case.rng(1);
    let driver = stage(world, &mut rng)?;
    let objects = driver.ledger.objects();
    let choice = Choice::of(&objects);
    let jobs = match scene.plot {
        Plot::Jobs(jobs) | Plot::Cancelled(jobs) => jobs(&mut rng, &choice),
        _ => Vec::new(),
    };
    let Driver { medium, pool, .. } = driver;
    let image = if matches!(scene.plot, Plot::OpenDirty) {
        let image = medium.crash_point().persisted();
        medium.abandon(pool);
        image
    } else {
        drop(pool);
        medium.crash_point().persisted()
    };
    let origin = Origin { image, objects, jobs };
    let Some(calls) = once(scene, world, &origin, None, tally)? else { return Ok(()) };
    tally.add("calls that can fail", calls);
    for nth in (1..=calls).step_by(calls.div_ceil(CALLS).max(1) as usize) {
        for mode in [FailMode::Once, FailMode::Forever] {
            tally.count += 1;
            let done = catch_unwind(AssertUnwindSafe(|| {
                let mut inner = Tally::default();
                once(scene, world, &origin, Some((nth, mode)), &mut inner).map(|_| inner)
            }));
            let done =
                done.unwrap_or_else(|p| Err(Violation::new(Fault::Panicked, panic_text(&*p))));
            let done = done.map_err(|v| v.during(format!("call {nth} of {calls} ({mode:?})")));
            if let Some(inner) = tally.judge(done) {
                tally.merge(inner);
            }
        }
    }
    Ok(())
}

/// Runs the operation with a failing call. Answers how many calls it made.
fn once(
    scene: &Scene,
    world: &Arc<World>,
    origin: &Origin,
    fail: Option<(u64, FailMode)>,
    tally: &mut Tally,
) -> Judged<Option<u64>> {
    let medium = world.after(origin.image.clone());
    let arm = |medium: &Handle| {
        if let Some((nth, mode)) = fail {
            medium.fail_nth(medium.calls() + nth, mode);
        }
        medium.calls()
    };
    let opening = matches!(scene.plot, Plot::OpenClean | Plot::OpenDirty);
    let mut before = if opening { arm(&medium) } else { 0 };
    let opened = world.open(&medium);
    let pool = match opened {
        Ok((pool, _)) => pool,
        Err(error) if opening && fail.is_some() => {
            tally.add("opens refused", 1);
            medium.fail_none();
            drop(error);
            afterwards(world, &medium, &origin.objects)?;
            return Ok(None);
        }
        Err(error) => return Err(refused("open", &error)),
    };
    let driver = Driver::new(medium, pool, origin.objects.clone());
    if !opening {
        before = arm(&driver.medium);
    }
    let answer = act(scene, world, origin, &driver);
    let calls = driver.medium.calls() - before;
    driver.medium.fail_none();
    match (&answer, fail) {
        (None, _) => return Ok(None),
        (Some(Answer::Error(error)), None) => return Err(refused(scene.name, error)),
        (Some(Answer::Error(_)), _) => tally.add("answered an error", 1),
        (Some(Answer::Done), _) => tally.add("answered success", 1),
    }
    if let Some(Answer::Error(error)) = &answer {
        ends_writing(world, &driver, error)?;
    }
    let ledger = Promise::Kept(driver.ledger.promise());
    // What a crash right now would leave.
    let image = driver.medium.crash_point().persisted();
    judge(world, image, &ledger, &Care { scrub: true, ..Care::USUAL }, 1, tally)
        .map_err(|v| v.during("crashed afterwards"))?;
    if !driver.pool.is_read_only() {
        scrub(&driver.pool).map_err(|v| v.during("calls succeed again"))?;
        let found = whole(&driver.medium)?;
        agree(&driver.ledger.promise(), &found.objects)?;
    }
    driver.medium.abandon(driver.pool);
    Ok(Some(calls))
}

/// The operation itself; `None` if it is none of this row's.
fn act(scene: &Scene, world: &World, origin: &Origin, driver: &Driver) -> Option<Answer> {
    let answer = match scene.plot {
        Plot::OpenClean | Plot::OpenDirty => Ok(()),
        Plot::Jobs(_) => origin.jobs.iter().try_for_each(|job| driver.run(job).map(|_| ())),
        Plot::Scrub => {
            let control = holdfast_object::ScrubControl::default();
            let options = holdfast_object::ScrubOptions::default();
            driver.pool.scrub(options, &control, |_, _| {}).map(|_| ())
        }
        Plot::Grow => driver.pool.grow(world.options.size * 2).map(|_| ()),
        _ => return None,
    };
    Some(answer.map_or_else(Answer::Error, |()| Answer::Done))
}

/// A failed append or sync of a file is never tried again: the pool is read-only.
fn ends_writing(world: &World, driver: &Driver, error: &Error) -> Judged<()> {
    let of_sync = matches!(error, Error::Sync(_) | Error::Tx(TxError::ReadOnly));
    if world.kind == MediumKind::File && of_sync && !driver.pool.is_read_only() {
        let story = format!("a sync failed ({error}) and the pool is still written");
        return Err(Violation::new(Fault::Wrong, story));
    }
    Ok(())
}

/// Opens again what an open left that failed.
fn afterwards(world: &Arc<World>, medium: &Handle, objects: &Objects) -> Judged<()> {
    let (pool, _) = world.open(medium).map_err(|error| refused("the open after", &error))?;
    scrub(&pool)?;
    let driver = Driver::new(medium.clone(), pool, objects.clone());
    driver.check()?;
    driver.medium.abandon(driver.pool);
    Ok(())
}
