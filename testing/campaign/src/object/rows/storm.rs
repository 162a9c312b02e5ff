//! Row `storm`: faults of every kind, mixed, at random times, while three threads commit and read.
//!
//! Two of these work on objects of their own, and one on a map of any kind. Beside them bits flip,
//! stray writes land, pages go bad, writes are lost, sent elsewhere or torn, places come back as
//! they once were, calls fail, and scrubs go on; in the end everything is whole, or the machine
//! crashes at a barrier of whichever thread, or the program is killed wherever its threads are, and
//! the next storm goes on in what is left. One crash in three comes amid damage that no scrub has
//! met: then an object of which a part was hurt may be lost, named, and nothing else. An atlas
//! keeps to what the redundancy covers: then nothing may be lost, no call may fail, and each fault
//! was overwritten by the program or is told by an event. One case in five has no atlas: rows of a
//! column go bad together, up to the whole zone at once is overwritten or cannot be read, pages of
//! the metadata are bad for good, and calls fail amid all that. Then what is served is right, or
//! the object is lost and says so, and the rest stays in use. One turn in five has pools of the
//! usual geometry, of rows and frames of 2 MiB; the others' zones are shorter than 1 MiB. Without
//! an atlas no write is lost, sent elsewhere or torn, and no place comes back as it was: what is
//! older verifies, and where parity is gone nobody could tell.
//!
//! Schedules are left to chance: a replay draws the same faults and the same jobs, which meet at
//! other instants.

mod chaos;
mod contained;
mod exposed;
mod kind;
mod sky;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_faultmem::{FaultMedium, Image};
use holdfast_object::{Finding, ScrubControl, ScrubOptions};
use holdfast_oracle::acked::Acked;
use holdfast_pmem::PAGE;
use holdfast_redundancy::Wrong;
use holdfast_redundancy::events::{Cause, Event};
use holdfast_workloads::Rng;

use self::chaos::Chaos;
use self::contained::{contained, served_as_promised};
use self::exposed::Exposed;
use self::sky::Sky;
use super::damage::{Seen, settled, world_of, zone_of};
use super::large;
use super::spared::{Range, accused};
use crate::object::driver::{Driver, Ledger, agree, whole};
use crate::object::histories::shake;
use crate::object::judge::scrub;
use crate::object::mapper::Mapper;
use crate::object::model::Objects;
use crate::object::scenes::{refused, stage};
use crate::object::toil::Toil;
use crate::object::world::World;
use crate::object::wrong::{Lie, Variant, are_enough, lie, or_right, site};
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally, Violation};
use kind::Kind;

/// The row.
pub const ROW: Row = Row {
    name: "storm",
    story: "every kind of fault, mixed, at random times, while threads work; and beyond tolerance",
    cases: |tier| WRONG.len() as u64 + if matches!(tier, Tier::Ci) { CASES } else { 4_000 },
    run,
    finish,
    patience: Duration::from_secs(300),
    threads: 2,
};

/// What must be convicted; beyond tolerance, if its bed says so.
const WRONG: &[Variant] = &[
    lie(Lie::Accuses, "the journal names what nothing damaged", Fault::FalseReport),
    lie(Lie::Elsewhere, "the journal names other places", Fault::FalseReport),
    lie(Lie::Again, "the journal names what was mended", Fault::FalseReport),
    lie(Lie::Silent, "the journal says nothing", Fault::Unnoticed),
    site("object.mend_unit.verify", "what is damaged is taken for right"),
    lie(Lie::WrongEntry, "a map serves a wrong byte", Fault::Wrong),
    amid(lie(Lie::WrongByte, "after a crash amid damage, a wrong byte is served", Fault::Wrong)),
    amid(lie(Lie::Neighbour, "after a crash amid damage, all else is lost", Fault::FalseReport)),
    beyond(lie(Lie::WrongByte, "beyond tolerance, a wrong byte is served", Fault::Wrong)),
    beyond(lie(Lie::Neighbour, "beyond tolerance, all else is lost, too", Fault::FalseReport)),
    beyond(lie(Lie::Silent, "beyond tolerance, what is lost is not named", Fault::Unnoticed)),
    beyond(lie(Lie::Elsewhere, "beyond tolerance, other objects are named", Fault::Unnoticed)),
];
const _: () = are_enough(WRONG);
/// Cases of the CI tier.
const CASES: u64 = 24;
/// Storms of each; the pool goes on from one to the next.
const STORMS: u64 = 4;
/// Rounds of faults in each, with a scrub after each round.
const ROUNDS: u64 = 6;
/// Threads at work.
const THREADS: usize = 3;
/// One case in so many is beyond tolerance.
const BEYOND_EACH: u64 = 5;
/// Pages of the pools.
pub const PAGES: u64 = 241;
/// Of ten turns of the worlds, those of pools of the usual geometry: the last is beyond tolerance.
const LARGE_TURNS: [u64; 2] = [2, 9];
/// Bytes of these.
const LARGE: u64 = 24 << 20;
/// Barriers among which one is drawn for the crash.
const BARRIERS: u64 = 40;
/// Longest wait for that barrier.
const FUSE: Duration = Duration::from_millis(200);

/// How figures begin that count storms which say nothing.
const GIVEN_UP: &str = "storms given up";

/// What a crash leaves, and what was promised at that instant.
type Left = (Image, Acked<Objects>);

/// Of so many storms one may be given up.
const GIVEN_UP_EACH: u64 = 50;

/// From so many storms on each kind of fault has to have come, and been found.
const MANY: u64 = 60;
/// Of so many faults one may come in a round whose journal did not hold all events.
const UNTOLD_EACH: u64 = 50;

/// Storms that say nothing are the exception, and so are faults that nothing can be said of; each
/// kind of fault was met, and each kind of end.
fn finish(tally: &mut Tally) {
    let figure = |it: &str| tally.figures.get(it).copied().unwrap_or(0);
    let untold = figure("faults with more events than the journal holds");
    let storms = figure("storms within tolerance");
    let mut missed = Vec::new();
    if untold > 2 + tally.count / UNTOLD_EACH {
        missed.push(format!("{untold} of {} faults were not judged", tally.count));
    }
    if storms >= MANY {
        for kind in Kind::ALL {
            let found =
                format!("{kind}: {}", if kind == Kind::Failed { "injected" } else { "detected" });
            missed.extend((figure(&found) == 0).then_some(found));
        }
        let ends =
            ["crashes", "kills", "crashes amid damage", "beyond tolerance: objects lost and named"];
        missed.extend(ends.iter().filter(|end| figure(end) == 0).map(|end| (*end).to_owned()));
    }
    let given_up = tally.figures.iter().filter(|(name, _)| name.starts_with(GIVEN_UP));
    let given_up: u64 = given_up.map(|(_, storms)| *storms).sum();
    let all = figure("storms within tolerance");
    if given_up > 2 + all / GIVEN_UP_EACH {
        let story = format!("{given_up} of {all} storms were given up");
        tally.convict(Violation::new(Fault::Unnoticed, story));
    }
    for what in missed {
        let story = format!("not met, or not enough, in {storms} storms: {what}");
        tally.convict(Violation::new(Fault::Unnoticed, story));
    }
}

/// Bytes of the journal, so that it seldom holds less than a round of a storm. Of what cannot be
/// made good is told again and again.
const EVENTS: u64 = 64 * PAGE;
const EVENTS_BEYOND: u64 = 256 * PAGE;

/// The variant, in storms beyond tolerance.
const fn beyond(variant: Variant) -> Variant {
    Variant { bed: "beyond", ..variant }
}

/// The variant, in storms that end by a crash amid damage.
const fn amid(variant: Variant) -> Variant {
    Variant { bed: "amid", ..variant }
}

/// What kind of storm it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bed {
    /// Within tolerance.
    Usual,
    /// The same, and each ends by a crash amid damage.
    Amid,
    Beyond,
}

fn run(case: &Case) -> Tally {
    let sized = |case: &Case, beyond: bool| {
        let events = if beyond { EVENTS_BEYOND } else { EVENTS };
        let mut world = world_of(case.number, PAGES + 2 * (events - 8 * PAGE) / PAGE);
        Arc::make_mut(&mut world).options.events = events;
        world
    };
    let wrong = |variant: &Variant, case: &Case| {
        let bed = match variant.bed {
            "beyond" => Bed::Beyond,
            "amid" => Bed::Amid,
            _ => Bed::Usual,
        };
        story(case, &sized(case, bed == Bed::Beyond), bed)
    };
    or_right(WRONG, case, wrong, |case| {
        // Four worlds take turns.
        let turn = case.number / 4;
        let beyond = turn % BEYOND_EACH == BEYOND_EACH - 1;
        let mut world = sized(case, beyond);
        if LARGE_TURNS.contains(&(turn % 10)) {
            world = Arc::new(large::world(world.name, LARGE));
            Arc::make_mut(&mut world).options.events = EVENTS;
        }
        story(case, &world, if beyond { Bed::Beyond } else { Bed::Usual })
    })
}

/// The storms of a case.
fn story(case: &Case, world: &Arc<World>, bed: Bed) -> Tally {
    let mut tally = Tally::default();
    let done = storms(world, case, bed, &mut tally);
    tally.judge(done);
    tally
}

/// A pool with more in it than the usual cast, all of it shared out to the threads.
pub fn begin(world: &World, rng: &mut Rng) -> Judged<Driver> {
    let driver = stage(world, rng)?;
    driver.give_map(rng)?;
    driver.go_on(rng, 30)?;
    Ok(driver)
}

fn storms(world: &Arc<World>, case: &Case, bed: Bed, tally: &mut Tally) -> Judged<()> {
    let mut rng = case.rng(1);
    let mut left = None;
    for number in 0..STORMS {
        let driver = match left.take() {
            Some(driver) => driver,
            None => begin(world, &mut rng)?,
        };
        let seed = rng.next_u64();
        let done = match bed {
            Bed::Beyond => storm_beyond(world, driver, seed, tally).map(|()| None),
            Bed::Usual | Bed::Amid => storm(world, driver, (seed, bed == Bed::Amid), tally),
        };
        // What is wrong with this pool says nothing about the next storm.
        let during = format!("{}, storm {number}", world.name);
        left = tally.judge(done.map_err(|v| v.during(during))).flatten();
    }
    if let Some(Driver { medium, pool, .. }) = left {
        medium.abandon(pool);
    }
    Ok(())
}

/// One storm within tolerance, which ends by a crash amid damage if that is asked for, and at once
/// if what nobody owns is in doubt: that stays so, and would be held against the next round.
/// Answers the pool if it goes on.
pub fn storm(
    world: &Arc<World>,
    driver: Driver,
    (seed, amid): (u64, bool),
    tally: &mut Tally,
) -> Judged<Option<Driver>> {
    let mut rng = Rng::new(seed);
    let sky = Sky::default();
    let crash = rng.below(2) == 0 || amid;
    let amid = crash && rng.below(3) == 0 || amid;
    let mut chaos = Chaos::over(&driver, &sky, Rng::new(rng.next_u64()))?;
    let barrier = 1 + rng.below(BARRIERS);
    let draw = rng.next_u64();
    let kill = draw.is_multiple_of(3);
    let ran = at_work(&driver, &sky, &mut rng, tally, || {
        for _ in 0..ROUNDS {
            chaos.round()?;
            if chaos.ended || chaos.doubtful {
                return Ok(None);
            }
        }
        let may = crash && !chaos.log_lost;
        if may && amid {
            chaos.leave()?;
        }
        Ok(may.then(|| if kill { killed(&driver) } else { catch(&driver, barrier, draw) }))
    });
    let (ended, log_lost) = (chaos.ended, chaos.log_lost);
    tally.merge(std::mem::take(&mut chaos.tally));
    tally.add("storms within tolerance", 1);
    if sky.says_nothing() {
        driver.medium.abandon(driver.pool);
        return Ok(None);
    }
    let caught = ran.map_err(|v| v.during(chaos.history()))?;
    if chaos.doubtful {
        // Of who has stopped writing, a change may be in the log alone.
        (if ended { Ok(()) } else { driver.read_all() })?;
        tally.add("storms given up: a freed object stays in doubt", 1);
        driver.medium.abandon(driver.pool);
        return Ok(None);
    }
    let how = if kill && caught.is_some() { "kills" } else { "crashes" };
    let left = match caught {
        // Writing ended for good: only who opens the pool again can go on.
        None if ended && !log_lost => Some(snapshot(&driver.medium, &driver.ledger, None)),
        None if ended => {
            driver.medium.abandon(driver.pool);
            return Ok(None);
        }
        caught => caught,
    };
    if let Some(left) = left {
        let (exposed, hurt) = (chaos.exposed_now(), chaos.left());
        driver.medium.abandon(driver.pool);
        tally.add(how, 1);
        if let Some(exposed) = exposed {
            tally.add("crashes amid damage", 1);
            let done = amid_damage(world, left, &exposed, tally);
            return done.map_err(|v| v.during("after the crash amid damage"));
        }
        return recovered(world, left, &hurt).map(Some).map_err(|v| v.during("after the crash"));
    }
    chaos.alone = true;
    let rest = chaos.scrub();
    tally.merge(std::mem::take(&mut chaos.tally));
    rest?;
    calm(&driver)?;
    Ok(Some(driver))
}

/// Has the threads work beside something.
fn at_work<T>(
    driver: &Driver,
    sky: &Sky,
    rng: &mut Rng,
    tally: &mut Tally,
    beside: impl FnOnce() -> Judged<T>,
) -> Judged<T> {
    let over = AtomicBool::new(false);
    let Driver { medium, pool, ledger, anchor } = driver;
    let toil = Toil { pool, ledger, anchor: *anchor, over: &over, weather: sky };
    let seeds: Vec<u64> = (0..THREADS).map(|_| rng.next_u64()).collect();
    medium.on_step(Box::new(|_| shake::here()));
    let ran = toil.during(&seeds, beside);
    medium.clear_on_step();
    let (other, done) = ran?;
    tally.add("transactions meanwhile", done.jobs);
    tally.add("reads meanwhile", done.reads);
    tally.add("changes of maps and looks at them meanwhile", done.steps);
    tally.add("calls answered with an error that was due", done.excused);
    Ok(other)
}

/// What a crash right now leaves. Who acknowledges waits for the ledger, so the two go together.
fn snapshot(medium: &FaultMedium, ledger: &Ledger, draw: Option<u64>) -> Left {
    let ledger = ledger.lock();
    let point = medium.crash_point();
    let image = match draw {
        Some(draw) if draw % 8 == 1 => point.newest(),
        Some(draw) if draw % 8 > 1 => point.sample(draw, draw % 8),
        _ => point.persisted(),
    };
    (image, ledger.clone())
}

/// What a kill of the program leaves, wherever its threads are: all that it has stored.
fn killed(driver: &Driver) -> Left {
    let ledger = driver.ledger.lock();
    (driver.medium.crash_point().newest(), ledger.clone())
}

/// Crashes at a barrier to come, of whichever thread.
fn catch(driver: &Driver, mut barrier: u64, draw: u64) -> Left {
    let caught = Arc::new(Mutex::new(None));
    let (hook, ledger) = (Arc::clone(&caught), driver.ledger.clone());
    driver.medium.on_barrier(Box::new(move |medium, _, _| {
        barrier = barrier.saturating_sub(1);
        let mut caught = hook.lock().unwrap_or_else(PoisonError::into_inner);
        if barrier == 0 && caught.is_none() {
            *caught = Some(snapshot(medium, &ledger, Some(draw)));
        }
    }));
    let begun = Instant::now();
    let take = || caught.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut left = take();
    while left.is_none() && begun.elapsed() < FUSE {
        std::thread::sleep(Duration::from_micros(200));
        left = take();
    }
    driver.medium.clear_on_barrier();
    left.or_else(take).unwrap_or_else(|| snapshot(&driver.medium, &driver.ledger, Some(draw)))
}

/// Opens what a crash left: all that was acknowledged, and of the rest each change or none of it.
/// Nothing is called wrong but what was hurt where no scrub comes.
fn recovered(world: &Arc<World>, (image, promise): Left, hurt: &[Range]) -> Judged<Driver> {
    let before = world.after(image.clone());
    let medium = world.after(image);
    let (pool, _) = world.open(&medium).map_err(|error| refused("open", &error))?;
    scrub(&pool)?;
    let seen = Seen::of(&before, &pool.superblock());
    let found = whole(&medium)?;
    agree(&promise, &found.objects)?;
    let driver = Driver::new(medium, pool, found.objects);
    let events = seen.since(&driver).unwrap_or_default();
    // Of a record that it tore, the other copy is taken, and the journal says so.
    let torn = |event: &Event| {
        event.cause == Cause::Copies && matches!(event.wrong, Some(Wrong::Mirror { .. }))
    };
    let events: Vec<Event> = events.into_iter().filter(|event| !torn(event)).collect();
    accused(&zone_of(&driver)?, &events, hurt, &driver.medium)?;
    calm(&driver)?;
    Ok(driver)
}

/// The same, where damage was met by nobody before the crash: what could not be told apart from
/// what was under way in the same bytes is lost, and says so; it lies where something was hurt.
/// Answers the pool if nothing is.
fn amid_damage(
    world: &Arc<World>,
    left: Left,
    exposed: &Exposed,
    tally: &mut Tally,
) -> Judged<Option<Driver>> {
    let (driver, promise, lost) = served_after(world, left, exposed)?;
    tally.add("crashes amid damage: objects lost and named", lost);
    if driver.pool.is_read_only() {
        return Err(Violation::new(Fault::Refused, "it cannot be written"));
    }
    let control = ScrubControl::default();
    let again = driver.pool.scrub(ScrubOptions::default(), &control, |_, _| {});
    let again = again.map_err(|error| refused("scrub", &error))?;
    let hurt =
        |f: &&Finding| exposed.touches((f.at, f.len)) || exposed.has(f.object.word(), f.len.max(1));
    if let Some(strange) = again.report.findings.iter().find(|f| !hurt(f)) {
        let story = format!("scrubbed, and wrong where nothing was hurt: {strange:?}");
        return Err(Violation::new(Fault::Wrong, story));
    }
    // What nobody was promised may be lost as well: it was under way.
    tally.add("crashes amid damage: findings left, of nothing acknowledged", again.lost);
    if lost + again.lost > 0 {
        driver.medium.abandon(driver.pool);
        return Ok(None);
    }
    scrub(&driver.pool)?;
    let found = whole(&driver.medium)?;
    agree(&promise, &found.objects)?;
    let driver = Driver::new(driver.medium, driver.pool, found.objects);
    calm(&driver)?;
    Ok(Some(driver))
}

/// Opens and scrubs what was left; all is served as it was promised, but what is lost and was
/// exposed. Answers how much that is.
fn served_after(
    world: &Arc<World>,
    (image, promise): Left,
    exposed: &Exposed,
) -> Judged<(Driver, Acked<Objects>, u64)> {
    let medium = world.after(image);
    let (pool, _) = world.open(&medium).map_err(|error| refused("open", &error))?;
    let control = ScrubControl::default();
    let done = pool.scrub(ScrubOptions::default(), &control, |_, _| {});
    done.map_err(|error| refused("scrub", &error))?;
    let driver = Driver::new(medium, pool, promise.model().clone());
    let lost = served_as_promised(&driver, &promise, exposed)?;
    Ok((driver, promise, lost))
}

/// Everything is whole, and can be worked on.
fn calm(driver: &Driver) -> Judged<()> {
    settled(driver, true)?;
    Mapper::of(&driver.pool, &driver.ledger.objects())?;
    let mut rng = Rng::new(driver.ledger.lock().acked());
    driver.go_on(&mut rng, 3)?;
    settled(driver, true)
}

/// One storm beyond tolerance.
fn storm_beyond(world: &Arc<World>, driver: Driver, seed: u64, tally: &mut Tally) -> Judged<()> {
    let mut rng = Rng::new(seed);
    let sky = Sky::default();
    sky.exceed();
    let mut chaos = Chaos::over(&driver, &sky, Rng::new(rng.next_u64()))?;
    let ran = at_work(&driver, &sky, &mut rng, tally, || {
        for _ in 0..ROUNDS {
            if !chaos.ended {
                chaos.round()?;
            }
        }
        Ok(())
    });
    for (figure, count) in std::mem::take(&mut chaos.tally.figures) {
        if ["columns lost", "large losses"].contains(&figure.as_str()) {
            tally.add("beyond tolerance: faults", count);
        }
        tally.add(format!("beyond tolerance, {figure}"), count);
    }
    tally.count += chaos.tally.count;
    ran?;
    let unstored = contained(&driver, &chaos, &sky.refusals(), &mut rng, tally)?;
    let ended = driver.pool.is_read_only();
    let left = ended.then(|| snapshot(&driver.medium, &driver.ledger, None));
    let exposed = chaos.exposed();
    driver.medium.abandon(driver.pool);
    let Some(left) = left else { return Ok(()) };
    let (driver, _, lost) = served_after(world, left, &exposed)
        .map_err(|v| v.during("opened again, since it was not written any more"))?;
    // Those whose last change was in the log alone are served, unless it cannot be written again.
    let served = if driver.pool.is_read_only() { 0 } else { unstored };
    driver.medium.abandon(driver.pool);
    tally.add("beyond tolerance: objects lost at the next open, and named", lost);
    tally.add("beyond tolerance: objects served after the next open", served);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_fault_has_to_be_met_and_judged() {
        let whole = || {
            let mut tally = Tally { count: 1_000, ..Tally::default() };
            tally.add("storms within tolerance", MANY);
            for kind in Kind::ALL {
                tally.add(format!("{kind}: injected"), 1);
                tally.add(format!("{kind}: detected"), 1);
            }
            for end in ["crashes", "kills", "crashes amid damage"] {
                tally.add(end, 1);
            }
            tally.add("beyond tolerance: objects lost and named", 1);
            tally.add("faults with more events than the journal holds", 22);
            tally
        };
        let violated = |mut tally: Tally| {
            finish(&mut tally);
            tally.violated()
        };
        assert_eq!(violated(whole()), 0);
        for missing in ["stale places: detected", "failed calls: injected", "kills"] {
            let mut tally = whole();
            tally.figures.remove(missing);
            assert_eq!(violated(tally), 1, "{missing}");
        }
        let mut tally = whole();
        tally.add("faults with more events than the journal holds", 1);
        assert_eq!(violated(tally), 1);
    }

    #[test]
    fn storms_that_are_given_up_are_the_exception() {
        for (given_up, violations) in [(3, 0), (4, 1)] {
            let mut tally = Tally::default();
            tally.add("storms within tolerance", GIVEN_UP_EACH);
            tally.add(format!("{GIVEN_UP}: two faults may meet in one column"), given_up);
            finish(&mut tally);
            assert_eq!(tally.violated(), violations, "{given_up}");
        }
    }
}
