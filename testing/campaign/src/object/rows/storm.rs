//! Row `storm`: faults of every kind, mixed, at random times, while three threads commit and read.
//!
//! The threads work on objects of their own. Beside them bits flip, stray writes land, pages go
//! bad, writes are lost, sent elsewhere or torn, places come back as they once were, calls fail,
//! and scrubs go on; in the end everything is whole, or the machine crashes at a barrier of
//! whichever thread, or the program is killed wherever its threads are, and the next storm goes on
//! in what is left. An atlas keeps to what the redundancy covers: then nothing may be lost, no call
//! may fail, and each fault was overwritten by the program or is told by an event. One case in five
//! has no atlas: rows of a column go bad together, up to 2 MiB at once are overwritten or cannot be
//! read, pages of the metadata are bad for good, and calls fail amid all that. Then what is served
//! is right, or the object is lost and says so, and the rest stays in use.
//!
//! Schedules are left to chance: a replay draws the same faults and the same jobs, which meet at
//! other instants.

mod chaos;
mod sky;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_faultmem::{FaultMedium, Image};
use holdfast_layout::RawPtr;
use holdfast_object::{Error, ScrubControl, ScrubOptions};
use holdfast_oracle::acked::{Acked, Model};
use holdfast_redundancy::events::{Event, Outcome};
use holdfast_txn::TxError;
use holdfast_workloads::Rng;

use self::chaos::Chaos;
use self::sky::Sky;
use super::damage::{Seen, domains, settled, world_of, zone_of};
use crate::object::driver::{Driver, Ledger, agree, whole};
use crate::object::histories::shake;
use crate::object::judge::scrub;
use crate::object::model::{Objects, name};
use crate::object::ops::{Job, Op};
use crate::object::scenes::{refused, stage};
use crate::object::targets::{Target, Targets};
use crate::object::toil::{Toil, served};
use crate::object::world::World;
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "storm",
    story: "every kind of fault, mixed, at random times, while threads work; and beyond tolerance",
    cases: |tier| CASES * if matches!(tier, Tier::Ci) { 1 } else { 100 },
    run,
    finish: |_| {},
    patience: Duration::from_secs(300),
    threads: 2,
};

/// Cases of the CI tier.
const CASES: u64 = 40;
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
/// Barriers among which one is drawn for the crash.
const BARRIERS: u64 = 40;
/// Longest wait for that barrier.
const FUSE: Duration = Duration::from_millis(200);

/// What a crash leaves, and what was promised at that instant.
type Left = (Image, Acked<Objects>);

fn run(case: &Case) -> Tally {
    let world = world_of(case.number, PAGES);
    let mut tally = Tally::default();
    let done = storms(&world, case, &mut tally);
    tally.judge(done.map_err(|violation| violation.during(world.name)));
    tally
}

/// A pool with more in it than the usual cast, all of it shared out to the threads.
pub fn begin(world: &World, rng: &mut Rng) -> Judged<Driver> {
    let driver = stage(world, rng)?;
    driver.go_on(rng, 30)?;
    Ok(driver)
}

fn storms(world: &Arc<World>, case: &Case, tally: &mut Tally) -> Judged<()> {
    let mut rng = case.rng(1);
    // Four worlds take turns.
    let beyond = case.number / 4 % BEYOND_EACH == BEYOND_EACH - 1;
    let mut left = None;
    for number in 0..STORMS {
        let driver = match left.take() {
            Some(driver) => driver,
            None => begin(world, &mut rng)?,
        };
        let seed = rng.next_u64();
        let done = match beyond {
            true => storm_beyond(driver, seed, tally).map(|()| None),
            false => storm(world, driver, seed, tally),
        };
        // What is wrong with this pool says nothing about the next storm.
        left = tally.judge(done.map_err(|v| v.during(format!("storm {number}")))).flatten();
    }
    if let Some(Driver { medium, pool, .. }) = left {
        medium.abandon(pool);
    }
    Ok(())
}

/// One storm within tolerance. Answers the pool if it goes on.
pub fn storm(
    world: &Arc<World>,
    driver: Driver,
    seed: u64,
    tally: &mut Tally,
) -> Judged<Option<Driver>> {
    let mut rng = Rng::new(seed);
    let sky = Sky::default();
    let crash = rng.below(2) == 0;
    let mut chaos = Chaos::over(&driver, &sky, Rng::new(rng.next_u64()))?;
    let barrier = 1 + rng.below(BARRIERS);
    let draw = rng.next_u64();
    let kill = draw.is_multiple_of(3);
    let ran = at_work(&driver, &sky, &mut rng, tally, || {
        for _ in 0..ROUNDS {
            chaos.round()?;
            if chaos.ended {
                return Ok(None);
            }
        }
        let may = crash && !chaos.log_lost;
        Ok(may.then(|| if kill { killed(&driver) } else { catch(&driver, barrier, draw) }))
    });
    let (ended, log_lost) = (chaos.ended, chaos.log_lost);
    tally.merge(std::mem::take(&mut chaos.tally));
    if sky.is_given_up() {
        driver.medium.abandon(driver.pool);
        return Ok(None);
    }
    let caught = ran?;
    if chaos.doubtful {
        driver.read_all()?;
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
        driver.medium.abandon(driver.pool);
        tally.add(how, 1);
        return recovered(world, left).map(Some).map_err(|v| v.during("after the crash"));
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
fn recovered(world: &Arc<World>, (image, promise): Left) -> Judged<Driver> {
    let medium = world.after(image);
    let (pool, _) = world.open(&medium).map_err(|error| refused("open", &error))?;
    scrub(&pool)?;
    let found = whole(&medium)?;
    agree(&promise, &found.objects)?;
    let driver = Driver::new(medium, pool, found.objects);
    calm(&driver)?;
    Ok(driver)
}

/// Everything is whole, and can be worked on.
fn calm(driver: &Driver) -> Judged<()> {
    settled(driver, true)?;
    let mut rng = Rng::new(driver.ledger.lock().acked());
    driver.go_on(&mut rng, 3)?;
    settled(driver, true)
}

/// One storm beyond tolerance.
fn storm_beyond(driver: Driver, seed: u64, tally: &mut Tally) -> Judged<()> {
    let mut rng = Rng::new(seed);
    let sky = Sky::default();
    sky.exceed();
    let seen = Seen::now(&driver);
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
        tally.add(format!("beyond tolerance, {figure}"), count);
    }
    tally.count += chaos.tally.count;
    tally.add("beyond tolerance: faults", chaos.tally.count);
    ran?;
    contained(&driver, seen, &chaos.dead(), &mut rng, tally)?;
    driver.medium.abandon(driver.pool);
    Ok(())
}

/// All that is served is right; what is lost says so, and an event names it; the rest is in use.
fn contained(
    driver: &Driver,
    seen: Seen,
    dead: &BTreeSet<u64>,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Judged<()> {
    // A file that could not be written is not written any more: what is served is right all the
    // same, and who opens it again has the rest.
    let ended = driver.pool.is_read_only();
    if ended {
        tally.add("beyond tolerance: pools not written any more", 1);
    } else {
        let control = ScrubControl::default();
        let scrubbed = driver.pool.scrub(ScrubOptions::default(), &control, |_, _| {});
        scrubbed.map_err(|error| refused("scrub", &error))?;
    }
    let objects = driver.ledger.objects();
    // What was under way when writing ended may have been done, or not.
    let mut done = objects.clone();
    driver.ledger.lock().under_way().for_each(|change| done.apply(change));
    let (mut lost, mut doubtful, mut unstored) = (BTreeSet::new(), BTreeSet::new(), 0);
    for (word, object) in objects.iter() {
        match served(&driver.pool, word) {
            Ok(found) if found == *object => {}
            Ok(found) if done.get(word) == Some(&found) => {}
            Err(_) if ended && done.get(word).is_none() => {}
            // Its last change is in the log alone.
            Err(Error::Tx(TxError::ReadOnly)) if ended => unstored += 1,
            Ok(_) => {
                let story = format!("a wrong byte of {} was served", name(word));
                return Err(Violation::new(Fault::Wrong, story));
            }
            Err(Error::Tx(TxError::Lost { .. })) => {
                lost.insert(word);
            }
            Err(Error::Tx(TxError::InDoubt { .. })) => {
                doubtful.insert(word);
            }
            Err(error) => return Err(refused(&format!("reading {}", name(word)), &error)),
        }
    }
    tally.add("beyond tolerance: objects lost and named", lost.len() as u64);
    tally.add("beyond tolerance: objects in doubt and named", doubtful.len() as u64);
    tally.add("beyond tolerance: objects served after the next open", unstored as u64);
    let unserved = lost.len() + doubtful.len() + unstored;
    tally.add("beyond tolerance: objects served", (objects.len() - unserved) as u64);
    if ended {
        return Ok(());
    }
    if let Some(events) = seen.since(driver) {
        named(driver, &lost, &events, Outcome::Lost)?;
        named(driver, &doubtful, &events, Outcome::Undecided)?;
    }
    let safe: Vec<(u64, u64)> = objects
        .iter()
        .filter(|(word, _)| !lost.contains(word) && !doubtful.contains(word))
        .filter(|(word, _)| *word != driver.anchor)
        .map(|(word, object)| (word, object.bytes.len() as u64))
        .collect();
    in_use(driver, &safe, dead, rng, tally)
}

/// Some of the objects that are `safe` are written, and read as they were written.
fn in_use(
    driver: &Driver,
    safe: &[(u64, u64)],
    dead: &BTreeSet<u64>,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Judged<()> {
    let zone = zone_of(driver)?;
    for _ in 0..3 {
        let Some((of, len)) = rng.pick(safe).copied() else { break };
        let job = Job::new(rng, [Op::Write { of, from: 0, len }]);
        match driver.run(&job) {
            Err(Error::Tx(TxError::Lost { object }))
                if !dead.is_disjoint(&domains(driver, &zone, object.offset(), 1)) =>
            {
                // Nothing could make up what is stored there: parity over it cannot be had, since a
                // page of the column is bad for good.
                tally.add("beyond tolerance: writes refused for want of parity", 1);
                continue;
            }
            Err(error) => return Err(refused(&format!("{:?}", job.ops), &error)),
            Ok(_) => {}
        }
        let found = served(&driver.pool, of).map_err(|error| refused("reading", &error))?;
        if Some(&found) != driver.ledger.objects().get(of) {
            let story = format!("{} was written and reads otherwise", name(of));
            return Err(Violation::new(Fault::Wrong, story));
        }
    }
    Ok(())
}

/// Each lost object has an event that names it, or something that it needs.
fn named(driver: &Driver, lost: &BTreeSet<u64>, events: &[Event], outcome: Outcome) -> Judged<()> {
    let gone: Vec<&Event> = events.iter().filter(|event| event.outcome == outcome).collect();
    let targets = Targets::of(&crate::object::raw::Bytes::of(&driver.medium));
    let objects = driver.ledger.objects();
    for word in lost {
        let at = RawPtr::from_word(*word).offset();
        let len = objects.get(*word).map_or(0, |object| object.bytes.len() as u64);
        let parts = targets.of_object(at, len);
        let touches = |e: &&&Event, t: &Target| t.at < e.at + e.len && e.at < t.at + t.len;
        let names = |event: &&&Event| {
            RawPtr::from_word(event.object).offset() == at
                || parts.iter().any(|part| touches(event, part))
        };
        if !gone.iter().any(|event| names(&event)) {
            let story = format!("{} is {outcome:?} and no event names it", name(*word));
            return Err(Violation::new(Fault::Unnoticed, story));
        }
    }
    Ok(())
}
