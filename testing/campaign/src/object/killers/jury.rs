//! Checks of a killer's own, at every barrier of a medium and at instants of its choice.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_faultmem::{Budget, CrashPoint, Image};
use holdfast_workloads::Rng;

use crate::object::driver::{Driver, agree, whole};
use crate::object::handle::Handle;
use crate::object::model::Objects;
use crate::object::world::World;
use crate::runner::panic_text;
use crate::tally::{Fault, Judged, Tally, Violation};
use holdfast_oracle::acked::Acked;

/// Violations after which a jury looks no further.
const ENOUGH: u64 = 6;

/// Many images of an instant, in which each of a few hundred words is once the only one missing.
pub const MANY: Budget = Budget { exhaustive: 64, singles: 48, pairs: 4, samples: 24, seed: 0 };
/// A few images.
pub const FEW: Budget = Budget { exhaustive: 16, singles: 8, pairs: 2, samples: 8, seed: 0 };

/// What a check is told besides the image: the place of the barrier, empty for an instant between.
type Check = dyn Fn(Image, &'static str) -> Judged<()> + Send + Sync;

#[derive(Debug, Default)]
struct Bench {
    tally: Tally,
    /// Images judged already, by the measure of an instant within a deed or after it.
    seen: HashSet<(u64, bool)>,
}

/// Applies one check to images.
#[derive(Clone)]
pub struct Jury {
    bench: Arc<Mutex<Bench>>,
    budget: Budget,
    check: Arc<Check>,
}

impl std::fmt::Debug for Jury {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jury").field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl Jury {
    /// A jury that looks at so many images of each instant.
    pub fn new(
        budget: Budget,
        rng: &mut Rng,
        check: impl Fn(Image, &'static str) -> Judged<()> + Send + Sync + 'static,
    ) -> Self {
        let budget = Budget { seed: rng.next_u64(), ..budget };
        Self { bench: Arc::default(), budget, check: Arc::new(check) }
    }

    /// Looks at every barrier of `medium` from now on.
    pub fn sit(&self, medium: &Handle) {
        let this = self.clone();
        medium.on_barrier(Box::new(move |_, _, point| this.look(point)));
    }

    /// Looks at the images of one instant.
    pub fn look(&self, point: &CrashPoint) {
        let mut bench = self.lock();
        let site = point.barrier().map_or("", |(site, _)| site.name());
        for image in point.images(&self.budget) {
            if bench.tally.violated() >= ENOUGH {
                return;
            }
            if !bench.seen.insert((image.fingerprint(), site.is_empty())) {
                continue;
            }
            bench.tally.count += 1;
            let index = image.index();
            let judged = catch_unwind(AssertUnwindSafe(|| (self.check)(image, site)));
            let judged = judged
                .unwrap_or_else(|panic| Err(Violation::new(Fault::Panicked, panic_text(&*panic))));
            let place = if site.is_empty() { "at the end" } else { site };
            bench.tally.judge(judged.map_err(|v| v.during(format!("{place}, image {index}"))));
        }
    }

    /// Forgets which images were seen: from now on they are judged by another measure.
    pub fn anew(&self) {
        self.lock().seen.clear();
    }

    /// What was seen.
    #[must_use]
    pub fn end(&self) -> Tally {
        std::mem::take(&mut self.lock().tally)
    }

    fn lock(&self) -> MutexGuard<'_, Bench> {
        self.bench.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens what a crash left, takes the pool for what the second reader sees before anything else
/// happens, and compares. Answers the pool in use. A pool that does not open at all is a wrong
/// state here: a crash within tolerance leaves everything acknowledged.
///
/// # Errors
/// What is wrong.
pub fn opened(world: &World, medium: Handle, promise: &Acked<Objects>) -> Judged<Driver> {
    let (pool, _) = world.open(&medium).map_err(|error| {
        // All that was acknowledged is gone, as far as anybody can tell.
        wrong(format!("nothing of what was acknowledged can be had: open: {error}"))
    })?;
    let found = whole(&medium)?;
    agree(promise, &found.objects)?;
    Ok(Driver::new(medium, pool, found.objects))
}

/// Lets a pool die where it stands.
pub fn abandon(driver: Driver) {
    let Driver { medium, pool, .. } = driver;
    medium.abandon(pool);
}

/// A violation that a checker is sure about.
pub fn wrong(story: impl Into<String>) -> Violation {
    Violation::new(Fault::Wrong, story)
}

/// A story that cannot be told as it was meant: nothing was judged.
pub fn unable(why: impl Into<String>) -> Violation {
    Violation::new(Fault::Refused, why)
}

/// Puts what went wrong in a story into what its checkers saw.
#[must_use]
pub fn told(story: Judged<Tally>) -> Tally {
    story.unwrap_or_else(|violation| {
        let mut tally = Tally::default();
        tally.convict(violation);
        tally
    })
}
