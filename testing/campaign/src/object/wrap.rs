//! Rings that wrap under the worst circumstances: small ones, records of all lengths on the same
//! few objects, one lane idle.
//!
//! The oldest records of a ring survive longest where a lap leaves a tail unused. If such a record
//! were replayed after a newer one of the same object was overwritten, the newer change would be
//! undone; that is what log reuse must prevent, and what these images show if it does not.

use std::sync::Arc;

use holdfast_pmem::MediumKind;
use holdfast_workloads::Rng;

use super::driver::Driver;
use super::ops::{Job, Op};
use super::scenes::refused;
use super::watch::{Plan, Watch};
use super::world::World;
use crate::tally::{Fault, Judged, Violation};

/// How a ring is worn out.
#[derive(Debug, Clone, Copy)]
pub struct Wear {
    /// Jobs.
    pub jobs: u64,
    /// One in so many is watched.
    pub watched: u64,
}

/// A world with rings of a page; on a file, with a log of as few pages as there can be.
#[must_use]
pub fn world(name: &str) -> World {
    small(World::named(name))
}

/// The same of this one.
#[must_use]
pub fn small(mut world: World) -> World {
    if world.kind == MediumKind::File {
        world.options.log = 5 * 8_192;
    } else {
        // A log has eight pages at least: one for each of these lanes and for the engine's own.
        world.options.lanes = 7;
        world.options.log = 8 * 4_096;
    }
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

/// The jobs, most of them on one object, with records of all lengths.
fn laps(driver: &Driver, watch: &Watch, rng: &mut Rng, wear: &Wear) -> Judged<()> {
    let objects = driver.ledger.objects();
    let bytes = |len: usize| {
        let of_len = move |(_, object): &(u64, &super::model::Object)| object.bytes.len() == len;
        objects.iter().filter(of_len).map(|(word, _)| word).collect::<Vec<_>>()
    };
    let (long, mine) = ([bytes(1_000), bytes(600)].concat(), bytes(64));
    let Some(hot) = mine.first().copied() else {
        return Err(Violation::new(Fault::Wrong, "the cast is incomplete"));
    };
    for _ in 0..wear.jobs {
        let pick = rng.pick(&long).copied().unwrap_or(hot);
        let patch = |rng: &mut Rng, of, most: u64| {
            let from = rng.below(32);
            Op::Write { of, from, len: 8 + rng.below(most - 40) }
        };
        let ops = match rng.below(8) {
            0..4 => vec![patch(rng, hot, 64)],
            4 | 5 => vec![patch(rng, pick, 600)],
            6 => vec![patch(rng, pick, 600), patch(rng, hot, 64)],
            _ => long.iter().map(|of| patch(rng, *of, 600)).collect(),
        };
        if rng.below(wear.watched) == 0 {
            watch.begin(&driver.medium);
        }
        driver.must(&Job::new(rng, ops))?;
        driver.medium.clear_on_barrier();
    }
    Ok(())
}
