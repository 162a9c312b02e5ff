//! Row `fail-nth`: every call of the medium that can fail does fail, once or from then on.
//!
//! Each case is one public operation, a repair, a look or a load, in one world. Its calls are
//! counted, then it is run again from the same image for every n, with the nth call failing; the CI
//! tier runs a share of them, another with every seed. It must answer, not panic; once calls
//! succeed again the pool, after a scrub, is whole and holds the state before or after. What was
//! acknowledged is there after a crash and after a kill; a failed append or sync of a file ends all
//! writing. An operation that no case could make fail makes the row fail. The first cases play what
//! is wrong on purpose.

mod looks;
pub mod wrong;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use holdfast_faultmem::{FailMode, Image};
use holdfast_object::{Error, Parity, ScrubControl, ScrubOptions};
use holdfast_pmem::MediumKind;
use holdfast_redundancy::events::{Journal, Outcome};
use holdfast_txn::TxError;
use holdfast_workloads::Rng;

use crate::object::driver::{Driver, Ledger, agree, whole};
use crate::object::handle::Handle;
use crate::object::judge::{Care, Promise, judge, scrub};
use crate::object::linked::cells;
use crate::object::model::Objects;
use crate::object::ops::{Choice, Job, Op};
use crate::object::scenes::{
    LINKED, LOOKS, Plot, REPAIRS, SCENES, Scene, Wound, fill, hurt, refused, stage,
};
use crate::object::targets::Area;
use crate::object::world::World;
use crate::object::wrong::{Lie, straight, told};
use crate::runner::{Case, Row, Tier, panic_text};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "fail-nth",
    story: "every call that can fail fails, once and for ever, in every public operation",
    cases: |_| (wrong::WRONG.len() + subjects().len()) as u64,
    run: wrong::run,
    finish,
    patience: Duration::from_secs(3_600),
    threads: 2,
};

/// Calls of one operation that the CI tier makes fail at most; beyond, every so many of them.
const CALLS: u64 = 2;
/// Figures that only tell which operations had calls that failed.
const FAILED: &str = "failed ";

/// What is done where.
type Subject = (&'static Scene, World);

/// Every operation and repair in every world that has what it is about.
fn subjects() -> Vec<Subject> {
    let mut all = Vec::new();
    for scene in SCENES.iter().chain(LINKED).chain(REPAIRS).chain(LOOKS) {
        let has = |world: &World| {
            let of_q = matches!(scene.plot, Plot::Repair(Wound { area: Area::ParityQ, .. }));
            !of_q || world.options.parity == Parity::PQ
        };
        let linked = matches!(scene.plot, Plot::Linked(_));
        let worlds = World::usual().into_iter().filter(has);
        all.extend(worlds.map(|world| (scene, world.linked(linked))));
    }
    all
}

fn name_of((scene, world): &Subject) -> String {
    format!("{} in {}", scene.name, world.name)
}

/// What an operation answered.
enum Answer {
    /// It was done.
    Done,
    /// What a load met there was put right.
    Healed(u64),
    /// It was not, and there is no error that says why.
    No,
    /// It was refused, or failed.
    Error(Error),
}

/// The call that fails, counted from one, and whether all after it do so too.
type Failing = Option<(u64, FailMode)>;

/// Where every run of a case begins, and what is done there.
struct Origin {
    scene: &'static Scene,
    world: Arc<World>,
    tier: Tier,
    /// Nothing, where a pool is still to be made.
    image: Option<Image>,
    objects: Objects,
    jobs: Vec<Job>,
    /// For what is chosen anew in every run, in the same way.
    seed: u64,
}

fn run(case: &Case) -> Tally {
    let subject = subjects().swap_remove(case.number as usize);
    let name = name_of(&subject);
    let mut tally = Tally::default();
    let done = every_call(subject, case, &mut tally);
    if let Some(ran) = tally.judge(done) {
        tally.add(format!("{FAILED}{name}"), ran);
    }
    for violation in &mut tally.violations {
        violation.story = format!("{name}: {}", violation.story);
    }
    tally
}

/// Which calls fail: all of them, or a share that begins elsewhere with every seed.
fn chosen(calls: u64, case: &Case) -> impl Iterator<Item = u64> + use<> {
    let stride = match case.tier {
        Tier::Ci => calls.div_ceil(CALLS).max(1),
        Tier::Long => 1,
    };
    (1 + case.seed.wrapping_add(case.number) % stride..=calls).step_by(stride as usize)
}

/// Answers how many runs had a call that failed.
fn every_call((scene, world): Subject, case: &Case, tally: &mut Tally) -> Judged<u64> {
    let origin = prepare(scene, world, case)?;
    // With every call answered no judge has to tell a lie from what a failed call excuses.
    let (calls, _) = straight(|| once(&origin, None, tally))?;
    tally.add("calls that can fail", calls);
    let mut ran = 0;
    for nth in chosen(calls, case) {
        for mode in [FailMode::Once, FailMode::Forever] {
            tally.count += 1;
            let done = catch_unwind(AssertUnwindSafe(|| {
                let mut inner = Tally::default();
                once(&origin, Some((nth, mode)), &mut inner).map(|(made, _)| (made, inner))
            }));
            let done =
                done.unwrap_or_else(|p| Err(Violation::new(Fault::Panicked, panic_text(&*p))));
            let done = done.map_err(|v| v.during(format!("call {nth} of {calls} ({mode:?})")));
            if let Some((made, inner)) = tally.judge(done) {
                ran += u64::from(made >= nth);
                tally.merge(inner);
            }
        }
    }
    Ok(ran)
}

/// The pool that a scene begins with, and what it does.
fn prepare(scene: &'static Scene, world: World, case: &Case) -> Judged<Origin> {
    let mut rng = case.rng(1);
    let world = Arc::new(world);
    let (tier, seed) = (case.tier, case.rng(2).next_u64());
    if matches!(scene.plot, Plot::Create) {
        let (objects, jobs) = (Objects::default(), Vec::new());
        return Ok(Origin { scene, world, tier, image: None, objects, jobs, seed });
    }
    let driver = stage(&world, &mut rng)?;
    let objects = driver.ledger.objects();
    let jobs = match scene.plot {
        Plot::Jobs(jobs) | Plot::Cancelled(jobs) => jobs(&mut rng, &Choice::of(&objects)),
        Plot::Linked(links) => links(&cells(&objects, driver.anchor))
            .into_iter()
            .map(|link| Job::new(&mut rng, [Op::Link(link)]))
            .collect(),
        Plot::Grow => vec![Job::new(&mut rng, [Op::Alloc { len: 40_000 }])],
        // More than can be put off, so that closing has something to make durable.
        Plot::Close => vec![everywhere(&mut rng, &Choice::of(&objects))],
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
    Ok(Origin { scene, world, tier, image: Some(image), objects, jobs, seed })
}

/// Runs the operation with a failing call. Answers how many calls it made, and whether it was
/// done.
fn once(origin: &Origin, fail: Failing, tally: &mut Tally) -> Judged<(u64, bool)> {
    let world = &origin.world;
    let Some(image) = &origin.image else { return create(origin, fail, tally) };
    let medium = world.after(image.clone());
    let opening = matches!(origin.scene.plot, Plot::OpenClean | Plot::OpenDirty);
    let before = if opening { arm(&medium, fail) } else { 0 };
    let pool = match world.open(&medium) {
        Ok((pool, _)) => pool,
        Err(error) if opening && fail.is_some() => {
            let calls = medium.calls() - before;
            tally.add("opens refused", 1);
            medium.fail_none();
            drop(error);
            let promise = Promise::Kept(Ledger::new(origin.objects.clone()).promise());
            left(origin, &medium, &promise, fail, tally)?;
            afterwards(world, &medium, &origin.objects)?;
            return Ok((calls, false));
        }
        Err(error) => return Err(refused("open", &error)),
    };
    let driver = Driver::new(medium, pool, origin.objects.clone());
    let driver = Driver { ledger: driver.ledger.linked(world.linked), ..driver };
    let hurt = ready(origin, &driver)?;
    let before = if opening { before } else { arm(&driver.medium, fail) };
    if matches!(origin.scene.plot, Plot::Close) {
        return close(origin, driver, before, fail, tally);
    }
    assert!(fail.is_none() || !told(Lie::Panics), "a call that failed, as somebody wanted");
    let answer = act(origin, &driver, fail, hurt)?;
    settle(origin, driver, answer, before, fail, tally)
}

/// Lets the call that is to fail do so. Answers the calls made so far.
fn arm(medium: &Handle, fail: Failing) -> u64 {
    if let Some((nth, mode)) = fail {
        medium.fail_nth(medium.calls() + nth, mode);
    }
    medium.calls()
}

/// What is done before calls fail. Answers where something was hurt, if anything was.
fn ready(origin: &Origin, driver: &Driver) -> Judged<Option<u64>> {
    match origin.scene.plot {
        Plot::Repair(wound) | Plot::Load(wound) => {
            let hurt = hurt(driver, &wound, &mut Rng::new(origin.seed));
            let nothing =
                || Violation::new(Fault::Unnoticed, format!("nothing to hurt: {}", wound.area));
            hurt.ok_or_else(nothing).map(Some)
        }
        Plot::Close => {
            origin.jobs.iter().try_for_each(|job| driver.must(job).map(|_| ()))?;
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// The operation itself, over what was `hurt` if it is about that.
fn act(origin: &Origin, driver: &Driver, fail: Failing, hurt: Option<u64>) -> Judged<Answer> {
    let jobs = || origin.jobs.iter().try_for_each(|job| driver.run(job).map(|_| ()));
    let answer = match origin.scene.plot {
        Plot::OpenClean | Plot::OpenDirty | Plot::Create | Plot::Close => Ok(()),
        Plot::Jobs(_) | Plot::Linked(_) => jobs(),
        Plot::Cancelled(_) => {
            let mut answer = Ok(());
            for job in &origin.jobs {
                if let Err(error) = driver.cancelled(job)? {
                    answer = Err(error);
                }
            }
            answer
        }
        Plot::Full => fill(driver, &mut Rng::new(origin.seed)),
        Plot::Scrub | Plot::Repair(_) => {
            let control = ScrubControl::default();
            driver.pool.scrub(ScrubOptions::default(), &control, |_, _| {}).map(|_| ())
        }
        Plot::Grow => driver.pool.grow(origin.world.options.size * 2).and_then(|_| jobs()),
        Plot::Check => looks::check(driver, fail)?,
        Plot::View => looks::view(driver)?,
        Plot::Load(_) => {
            let at = hurt.unwrap_or(0);
            return Ok(if driver.pool.heal_load(at, 1) { Answer::Healed(at) } else { Answer::No });
        }
    };
    Ok(answer.map_or_else(Answer::Error, |()| Answer::Done))
}

/// Judges what an operation answered and what it left.
fn settle(
    origin: &Origin,
    driver: Driver,
    answer: Answer,
    before: u64,
    fail: Failing,
    tally: &mut Tally,
) -> Judged<(u64, bool)> {
    let calls = driver.medium.calls() - before;
    driver.medium.fail_none();
    let done = matches!(answer, Answer::Done | Answer::Healed(_));
    if let Answer::Healed(at) = answer {
        looks::healed(&driver, at)?;
    }
    match (&answer, fail) {
        (Answer::Error(error), None) => return Err(refused(origin.scene.name, error)),
        (Answer::No, None) => {
            let story = format!("{}: not done, and nothing failed", origin.scene.name);
            return Err(Violation::new(Fault::Refused, story));
        }
        (Answer::No, _) => tally.add("answered no", 1),
        (Answer::Error(error), _) => {
            tally.add("answered an error", 1);
            ends_writing(&origin.world, &driver, error)?;
        }
        (Answer::Done | Answer::Healed(_), _) => tally.add("answered success", 1),
    }
    left(origin, &driver.medium, &Promise::Kept(driver.ledger.promise()), fail, tally)?;
    if !driver.pool.is_read_only() {
        scrub(&driver.pool).map_err(|v| v.during("calls succeed again"))?;
        let found = whole(&driver.medium)?;
        agree(&driver.ledger.promise(), &found.objects)?;
        let hurt = matches!(origin.scene.plot, Plot::Repair(_) | Plot::Load(_));
        if !hurt && !matches!(fail, Some((_, FailMode::Forever))) {
            gave_up_nothing(&driver)?;
        }
    }
    driver.medium.abandon(driver.pool);
    Ok((calls, done))
}

/// One call failed at the most, and nothing else was wrong: nothing may be called lost. (While all
/// calls fail, what they are about is.)
fn gave_up_nothing(driver: &Driver) -> Judged<()> {
    let journal = Journal::open(&driver.medium, &driver.pool.superblock());
    let events = journal.read_all(&driver.medium);
    match events.iter().find(|event| event.outcome == Outcome::Lost) {
        None => Ok(()),
        Some(event) => {
            let story = format!("all is there, and the journal says: {event}");
            Err(Violation::new(Fault::FalseReport, story))
        }
    }
}

/// What a crash right now would leave, and what a kill would.
fn left(
    origin: &Origin,
    medium: &Handle,
    promise: &Promise,
    fail: Failing,
    tally: &mut Tally,
) -> Judged<()> {
    let care = Care { scrub: true, ..Care::USUAL };
    let nth = fail.map_or(0, |(nth, _)| nth);
    let both = matches!(origin.tier, Tier::Long) || fail.is_none();
    let point = medium.crash_point();
    if both || nth.is_multiple_of(2) {
        judge(&origin.world, point.persisted(), promise, &care, 1, tally)
            .map_err(|v| v.during("crashed afterwards"))?;
    }
    // A store that fails leaves half of its bytes. With all that follow failing as well, an open
    // that replays leaves halves in more rows than parity carries: what a kill finds of them in
    // memory is more than is promised. What was drained before that is judged above.
    let opening = matches!(origin.scene.plot, Plot::OpenDirty);
    let torn = opening && matches!(fail, Some((_, FailMode::Forever)));
    if (both || nth % 2 == 1) && !torn {
        judge(&origin.world, point.newest(), promise, &care, 1, tally)
            .map_err(|v| v.during("killed afterwards"))?;
    }
    Ok(())
}

/// Makes a pool: an error leaves none, or an empty one.
fn create(origin: &Origin, fail: Failing, tally: &mut Tally) -> Judged<(u64, bool)> {
    let medium = origin.world.blank();
    let before = arm(&medium, fail);
    match origin.world.create(&medium) {
        Ok(pool) => {
            let calls = medium.calls() - before;
            medium.fail_none();
            let driver = Driver::found(medium, pool)?;
            let (_, done) = settle(origin, driver, Answer::Done, before, fail, tally)?;
            Ok((calls, done))
        }
        Err(error) if fail.is_none() => Err(refused("create", &error)),
        Err(_) => {
            let calls = medium.calls() - before;
            medium.fail_none();
            tally.add("answered an error", 1);
            left(origin, &medium, &Promise::Making, fail, tally)?;
            Ok((calls, false))
        }
    }
}

/// Closes a pool, which answers nothing: what was acknowledged is there, closed or not.
fn close(
    origin: &Origin,
    driver: Driver,
    before: u64,
    fail: Failing,
    tally: &mut Tally,
) -> Judged<(u64, bool)> {
    let promise = Promise::Kept(driver.ledger.promise());
    let objects = driver.ledger.objects();
    let Driver { medium, pool, .. } = driver;
    drop(pool);
    let calls = medium.calls() - before;
    medium.fail_none();
    left(origin, &medium, &promise, fail, tally)?;
    afterwards(&origin.world, &medium, &objects)?;
    Ok((calls, true))
}

/// A few bytes of every object, in one transaction.
fn everywhere(rng: &mut Rng, c: &Choice) -> Job {
    Job::new(rng, c.small.iter().chain(&c.large).map(|o| Op::Write { of: o.0, from: 0, len: 8 }))
}

/// A failed append or sync of a file is never tried again: the pool is read-only.
fn ends_writing(world: &World, driver: &Driver, error: &Error) -> Judged<()> {
    let of_sync = matches!(error, Error::Sync(_) | Error::Tx(TxError::ReadOnly));
    let ended = driver.pool.is_read_only() && !told(Lie::WritesOn);
    if world.kind == MediumKind::File && of_sync && !ended {
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

fn finish(tally: &mut Tally) {
    let names: Vec<String> = subjects().iter().map(name_of).collect();
    each_failed(tally, &names);
    tally.lines.push(format!("{} operations and repairs in worlds that have them", names.len()));
}

/// Every operation had a call that failed.
fn each_failed(tally: &mut Tally, names: &[String]) {
    let figures = std::mem::take(&mut tally.figures);
    let (ran, told) = figures.into_iter().partition(|(name, _)| name.starts_with(FAILED));
    tally.figures = told;
    let ran: std::collections::BTreeMap<String, u64> = ran;
    for name in names {
        if ran.get(&format!("{FAILED}{name}")).is_none_or(|runs| *runs == 0) {
            let story = format!("{name}: no call of it failed");
            tally.convict(Violation::new(Fault::Unnoticed, story));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_without_a_failing_call_is_a_violation() {
        let mut tally = Tally::default();
        let names = ["missing", "never", "grow", "free"].map(str::to_owned);
        for name in &names[2..] {
            tally.add(format!("{FAILED}{name}"), 3);
        }
        tally.add(format!("{FAILED}{}", names[1]), 0);
        each_failed(&mut tally, &names);
        assert_eq!(tally.violated(), 2);
        assert!(tally.violations[0].story.contains(&names[0]));
        assert!(tally.figures.is_empty());
    }

    #[test]
    fn every_call_fails_with_some_seed_and_in_the_long_tier_with_each() {
        for calls in [1, 7, 8, 9, 100, 1_001] {
            let of = |seed, tier| {
                let case = Case { seed, number: 3, tier };
                chosen(calls, &case).collect::<Vec<_>>()
            };
            assert_eq!(of(5, Tier::Long), (1..=calls).collect::<Vec<_>>());
            let mut seen: Vec<u64> = (0..calls).flat_map(|seed| of(seed, Tier::Ci)).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, (1..=calls).collect::<Vec<_>>());
            assert!(of(1, Tier::Ci).len() as u64 <= CALLS);
        }
    }
}
