//! Rings that wrap under the worst circumstances: small ones, records of all lengths on the same
//! few objects, one lane idle, one parked and held up again and again.
//!
//! The oldest records of a ring survive longest where a lap leaves a tail unused. If such a record
//! were replayed after a newer one of the same object was overwritten, the newer change would be
//! undone; that is what log reuse must prevent, and what these images show if it does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use holdfast_pmem::MediumKind;
use holdfast_workloads::Rng;

use super::driver::Driver;
use super::lanes::{Park, install};
use super::ops::{Job, Op};
use super::scenes::refused;
use super::watch::{Plan, Watch};
use super::world::World;
use crate::tally::{Fault, Judged, Violation};

/// How long the pool may stand still before a parked thread is let go.
const STILL: Duration = Duration::from_millis(10);

/// How a ring is worn out.
#[derive(Debug, Clone, Copy)]
pub struct Wear {
    /// Jobs.
    pub jobs: u64,
    /// One in so many is watched.
    pub watched: u64,
    /// Step at which another thread is parked meanwhile, again and again.
    pub park: Option<&'static str>,
    /// Whether the jobs allocate and free too.
    pub churn: bool,
}

/// A world with rings of a page.
#[must_use]
pub fn world(name: &str) -> World {
    let mut world = World::named(name);
    world.options.log = if world.kind == MediumKind::File { 5 * 8_192 } else { 5 * 4_096 };
    world
}

/// Wears out the rings of a new pool.
///
/// # Errors
/// What went wrong in the story itself, apart from what the watch sees.
pub fn wear(world: &Arc<World>, rng: &mut Rng, wear: &Wear, plan: Plan) -> Judged<Watch> {
    let medium = world.blank();
    let pool = world.create(&medium).map_err(|error| refused("create", &error))?;
    let driver = Driver::found(medium, pool)?;
    for len in [1_000, 1_000, 600, 64, 64] {
        driver.must(&Job::new(rng, [Op::Alloc { len }]))?;
    }
    install(&driver.medium);
    // A lane that committed once and is idle ever after.
    let job = Job::new(rng, [Op::AllocNode]);
    std::thread::scope(|scope| {
        let idle = scope.spawn(|| driver.must(&job));
        idle.join().unwrap_or_else(|_| Err(Violation::new(Fault::Panicked, "an idle lane")))
    })?;
    let watch = Watch::new(world, &driver.ledger, plan, Rng::part(rng.next_u64(), 1));
    let worn = laps(&driver, &watch, rng, wear);
    let checked = worn.and_then(|()| driver.check().map_err(|v| v.during("the pool in use")));
    watch.look(&driver.medium.crash_point());
    let Driver { medium, pool, .. } = driver;
    medium.abandon(pool);
    checked.map(|_| watch)
}

fn laps(driver: &Driver, watch: &Watch, rng: &mut Rng, wear: &Wear) -> Judged<()> {
    let objects = driver.ledger.objects();
    let bytes = |len: usize| {
        let of_len = move |(_, object): &(u64, &super::model::Object)| object.bytes.len() == len;
        objects.iter().filter(of_len).map(|(word, _)| word).collect::<Vec<_>>()
    };
    let (long, mine) = ([bytes(1_000), bytes(600)].concat(), bytes(64));
    let [anchor_sized @ .., parked] = &mine[..] else {
        return Err(Violation::new(Fault::Wrong, "the cast is incomplete"));
    };
    let hot = anchor_sized.last().copied().unwrap_or(*parked);
    let mut left = wear.jobs;
    while left > 0 {
        let count = left.min(40);
        left -= count;
        let Some(step) = wear.park else {
            lap(driver, watch, rng, wear, count, (&long, hot))?;
            continue;
        };
        let park = Park::at(step);
        let job = Job::new(rng, [Op::Write { of: *parked, from: 0, len: 64 }]);
        held_up(driver, watch, &park, &job, || lap(driver, watch, rng, wear, count, (&long, hot)))?;
    }
    Ok(())
}

/// Runs `work` while another thread is parked in the middle of `job`, and lets that thread go once
/// `work` is done, or stands still because it waits for it. What the late one does is watched.
fn held_up(
    driver: &Driver,
    watch: &Watch,
    park: &Arc<Park>,
    job: &Job,
    work: impl FnOnce() -> Judged<()>,
) -> Judged<()> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let late = scope.spawn(|| park.keep(|| driver.must(job)));
        let _ = park.wait();
        let relief = scope.spawn(|| {
            let seen = AtomicU64::new(0);
            while !over.load(Ordering::Acquire) {
                std::thread::sleep(STILL);
                let now = driver.medium.calls();
                if seen.swap(now, Ordering::Relaxed) == now && !watch.is_looking() {
                    park.release();
                }
            }
        });
        let worked = work();
        watch.begin(&driver.medium);
        over.store(true, Ordering::Release);
        park.release();
        let late = late
            .join()
            .unwrap_or_else(|_| Err(Violation::new(Fault::Panicked, "the late thread panicked")));
        driver.medium.clear_on_barrier();
        // It only sleeps and looks.
        let _ = relief.join();
        worked.and(late.map(|_| ()))
    })
}

/// So many jobs, most of them on one object, with records of all lengths.
fn lap(
    driver: &Driver,
    watch: &Watch,
    rng: &mut Rng,
    wear: &Wear,
    count: u64,
    (long, hot): (&[u64], u64),
) -> Judged<()> {
    let mut spare = Vec::new();
    for _ in 0..count {
        let pick = rng.pick(long).copied().unwrap_or(hot);
        let patch = |rng: &mut Rng, of, most: u64| {
            let from = rng.below(32);
            Op::Write { of, from, len: 8 + rng.below(most - 40) }
        };
        let ops = match rng.below(8) {
            0..4 => vec![patch(rng, hot, 64)],
            4 | 5 => vec![patch(rng, pick, 600)],
            6 => vec![patch(rng, pick, 600), patch(rng, hot, 64)],
            _ if wear.churn && spare.len() < 2 => vec![Op::Alloc { len: 2_000 }],
            _ if wear.churn => vec![Op::Free { of: spare.remove(0) }],
            _ => long.iter().map(|of| patch(rng, *of, 600)).collect(),
        };
        if rng.below(wear.watched) == 0 {
            watch.begin(&driver.medium);
        }
        let before = driver.ledger.objects();
        driver.must(&Job::new(rng, ops))?;
        driver.medium.clear_on_barrier();
        let now = driver.ledger.objects();
        spare.extend(now.iter().map(|(word, _)| word).filter(|word| before.get(*word).is_none()));
    }
    for of in spare {
        driver.must(&Job::new(rng, [Op::Free { of }]))?;
    }
    Ok(())
}
