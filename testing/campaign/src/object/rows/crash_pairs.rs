//! Row `crash-pairs`: sequences of two operations, with other lanes in the middle of their commits.
//!
//! Each case draws two operations. Before the first, between both or after the second, up to two
//! other threads are parked at a named step of a commit of their own; they go on later. Then the
//! same pool works on until every ring has wrapped several times, with one lane idle, parked
//! threads now and then, and a crash image here and there. In half of the cases everything in the
//! pool hangs on the root, and nothing may be allocated that the root does not lead to.

use std::sync::Arc;

use holdfast_faultmem::Budget;
use holdfast_pmem::{Medium, MediumKind};
use holdfast_workloads::Rng;

use crate::object::driver::Driver;
use crate::object::judge::Care;
use crate::object::lanes::{Park, install};
use crate::object::linked::{Cell, Link, any_job, cells};
use crate::object::model::Objects;
use crate::object::ops::{Choice, Job, Op};
use crate::object::scenes::{Plot, SCENES, Scene, stage};
use crate::object::watch::{LONGEST, NO_END, Plan, Watch};
use crate::object::world::World;
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "crash-pairs",
    story: "two operations, with other lanes parked inside their commits; rings that wrap",
    cases: |tier| if tier == Tier::Ci { 8 } else { 64 },
    run,
    finish: |_| {},
    patience: LONGEST,
    threads: 2,
};

/// Steps at which a committer holds no column, so that others can go on.
const STEPS: &[&str] = &[
    "object.commit.step-locked",
    "logs.numbers.drawn",
    "object.commit.step-numbered",
    "object.commit.step-put-off",
    "object.commit.step-done",
];

/// Operations that wait for commits before them to be complete: not while one is parked.
const WAITING: &[&str] = &[
    "alloc-large",
    "alloc-larger",
    "write-overflow",
    "many-large",
    "reuse-chunks",
    "free-large",
    "alloc-new-class",
];

/// Jobs of the long part: with a dozen rings' worth of records, every ring wraps.
const LONG: u64 = 300;
/// One in so many of them is watched.
const WATCHED: u64 = 12;

/// The CI tier samples each barrier, the long tier sees to all subsets of a dozen units.
fn plan(tier: Tier) -> Plan {
    let ci = matches!(tier, Tier::Ci);
    let many = if ci { 4 } else { 10 };
    let thin = Budget {
        exhaustive: if ci { 32 } else { 64 },
        singles: many,
        pairs: many / 2 + 1,
        samples: many,
        seed: 0,
    };
    Plan {
        thin,
        thick: Budget { exhaustive: 1 << 12, singles: 60, pairs: 30, samples: 60, seed: 0 },
        thick_each: 8,
        care: Care { more: 2, ..Care::USUAL },
        ruins: &[],
        again_each: 8,
        limit: if ci { 0 } else { NO_END },
        enough: 5,
    }
}

fn run(case: &Case) -> Tally {
    let mut worlds = World::usual();
    let round = case.number as usize / worlds.len();
    let by_lines = match case.tier {
        Tier::Ci => (round + case.seed as usize).is_multiple_of(2),
        Tier::Long => round / 2 % 2 == 1,
    };
    let world = worlds.swap_remove(case.number as usize % worlds.len());
    let world = world.linked(round % 2 == 1);
    let world = Arc::new(if by_lines { world.by_lines() } else { world });
    let mut tally = Tally::default();
    let played = stage(&world, &mut case.rng(1)).and_then(|driver| {
        install(&driver.medium);
        let watch = Watch::new(&world, &driver.ledger, plan(case.tier), case.rng(2));
        let played = play(&driver, &watch, &mut case.rng(3));
        driver.medium.clear_on_barrier();
        let seen = watch.end();
        let Driver { medium, pool, .. } = driver;
        medium.abandon(pool);
        played.map(|()| seen)
    });
    match played {
        Ok(seen) => tally.merge(seen),
        Err(violation) => tally.convict(violation),
    }
    for violation in &mut tally.violations {
        violation.story = format!("in {}: {}", world.name, violation.story);
    }
    tally
}

fn play(driver: &Driver, watch: &Watch, rng: &mut Rng) -> Judged<()> {
    watch.begin(&driver.medium);
    let parked = rng.below(3) as usize;
    let when = rng.below(3);
    with_parked(driver, rng, parked, when, |rng, others| two_jobs(driver, rng, others))?;
    driver.check().map_err(|v| v.during("after both operations"))?;
    driver.medium.clear_on_barrier();
    // Rings wrap: a segment of jobs with somebody parked, a segment without, and so on.
    let mut done = 0;
    while done < LONG {
        let parked = rng.below(3) as usize;
        // Room in the log that a parked commit holds back must be enough.
        let count = match (parked, driver.medium.kind()) {
            (0, _) => 20,
            (_, MediumKind::File) => 3,
            (_, MediumKind::Dax | MediumKind::Shm) => 8,
        };
        with_parked(driver, rng, parked, 0, |rng, others| {
            for _ in 0..count {
                if rng.below(WATCHED) == 0 {
                    watch.begin(&driver.medium);
                }
                driver.must(&apart(driver, rng, others))?;
                driver.medium.clear_on_barrier();
            }
            Ok(())
        })?;
        done += count;
        watch.look(&driver.medium.crash_point());
    }
    driver.check().map_err(|v| v.during("after the rings wrapped"))?;
    driver.read_all()
}

/// Two operations on objects that no other thread has in hand.
fn two_jobs(driver: &Driver, rng: &mut Rng, others: &[u64]) -> Judged<()> {
    for _ in 0..2 {
        if driver.ledger.linked {
            driver.must(&apart(driver, rng, others))?;
            continue;
        }
        let choice = Choice::of(&without(driver, others));
        let waits = |scene: &&Scene| WAITING.contains(&scene.name) && !others.is_empty();
        let plots: Vec<&Scene> = SCENES
            .iter()
            .filter(|scene| matches!(scene.plot, Plot::Jobs(_)) && !waits(scene))
            .collect();
        let enough = choice.small.len() >= 3 && !choice.large.is_empty() && choice.nodes.len() >= 2;
        let scene = rng.pick(&plots).filter(|_| enough);
        let jobs = match scene.map(|scene| scene.plot) {
            Some(Plot::Jobs(jobs)) => jobs(rng, &choice),
            _ => vec![apart(driver, rng, others)],
        };
        for job in jobs {
            driver.must(&job)?;
        }
    }
    Ok(())
}

/// The objects there are, without those another thread has in hand.
fn without(driver: &Driver, others: &[u64]) -> Objects {
    let mut objects = Objects::default();
    for (word, object) in driver.ledger.objects().iter() {
        if !others.contains(&word) {
            objects.insert(word, object.clone());
        }
    }
    objects
}

/// A short job on objects that no other thread has in hand; it leaves the pool about as full.
fn apart(driver: &Driver, rng: &mut Rng, others: &[u64]) -> Job {
    if driver.ledger.linked {
        let calm = others.is_empty();
        return any_job(rng, &driver.ledger.objects(), driver.anchor, others, calm);
    }
    let objects = without(driver, others);
    let choice = Choice::of(&objects);
    let small = rng.pick(&choice.small).copied();
    let node = rng.pick(&choice.nodes).copied();
    let large = rng.pick(&choice.large).copied();
    let op = match (rng.below(8), small, node, large) {
        (0, Some((of, _)), ..) if objects.len() > 12 => Op::Free { of },
        (0 | 1, ..) if objects.len() < 40 => {
            Op::Alloc { len: [20, 64, 190][rng.below(3) as usize] }
        }
        (2, _, Some(of), _) => Op::Update { of },
        (3, _, Some(to), _) => Op::Root { to },
        (4, _, _, Some((of, len))) => {
            let from = rng.below(len - 300);
            Op::Write { of, from, len: 1 + rng.below(300) }
        }
        (_, Some((of, len)), ..) => {
            let from = rng.below(len);
            Op::Write { of, from, len: 1 + rng.below((len - from).min(250)) }
        }
        _ => Op::AllocNode,
    };
    Job::new(rng, [op])
}

/// Runs `work` while `count` other threads are parked inside a commit each; they are released
/// before it, in its middle (by being joined after) or after it, as `when` says. Tells `work` the
/// objects that the others have in hand.
fn with_parked(
    driver: &Driver,
    rng: &mut Rng,
    count: usize,
    when: u64,
    work: impl FnOnce(&mut Rng, &[u64]) -> Judged<()>,
) -> Judged<()> {
    let taken = if driver.ledger.linked {
        in_hand_linked(driver, rng, count)
    } else {
        in_hand(driver, rng, count)
    };
    let hands: Vec<u64> = taken.iter().map(|(of, _)| *of).collect();
    let jobs: Vec<(Job, Arc<Park>)> = taken
        .into_iter()
        .map(|(_, op)| {
            let step = rng.pick(STEPS).copied().unwrap_or(STEPS[0]);
            (Job::new(rng, [op]), Park::at(step))
        })
        .collect();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (job, park) in &jobs {
            threads.push(scope.spawn(move || park.keep(|| driver.must(job))));
            // Parked, or done without having passed the step: the next one may go.
            let _ = park.wait();
        }
        if when == 1 {
            jobs.iter().for_each(|(_, park)| park.release());
        }
        let worked = work(rng, &hands);
        jobs.iter().for_each(|(_, park)| park.release());
        let mut all = worked;
        for thread in threads {
            let joined = thread.join().unwrap_or_else(|_| {
                Err(Violation::new(Fault::Panicked, "a parked thread panicked"))
            });
            all = all.and(joined.map(|_| ()));
        }
        all
    })
}

/// Objects for other threads to have in hand, and what each does with its own.
fn in_hand(driver: &Driver, rng: &mut Rng, count: usize) -> Vec<(u64, Op)> {
    let mut free = Choice::of(&driver.ledger.objects()).small;
    rng.shuffle(&mut free);
    let op = |rng: &mut Rng, of, len| match rng.below(3) {
        0 => Op::Free { of },
        _ => Op::Write { of, from: 0, len },
    };
    free.into_iter().take(count).map(|(of, len)| (of, op(rng, of, len))).collect()
}

/// The same in a pool in which everything hangs on the root: cells, and what hangs there.
fn in_hand_linked(driver: &Driver, rng: &mut Rng, count: usize) -> Vec<(u64, Op)> {
    let mut all = cells(&driver.ledger.objects(), driver.anchor);
    rng.shuffle(&mut all);
    let small = |cell: &Cell| {
        let mut payloads = cell.payloads.iter();
        let (slot, (of, len)) = payloads.find(|(_, (_, len))| *len <= 1024)?;
        Some((cell.at, *slot, *of, *len))
    };
    let hands = all.iter().filter_map(small).take(count);
    hands
        .map(|(cell, slot, of, len)| match rng.below(3) {
            0 => (cell, Op::Link(Link::Take { cell, slot })),
            _ => (cell, Op::Write { of, from: 0, len }),
        })
        .collect()
}
