//! Watches a pool at work: at each barrier, the images that a crash could leave are judged.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_faultmem::{Budget, CrashPoint};
use holdfast_workloads::Rng;

use super::driver::Ledger;
use super::handle::Handle;
use super::judge::{Care, Promise, distinct, judge};
use super::targets::Area;
use super::world::World;
use crate::tally::Tally;

/// How many images are looked at.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// For most barriers.
    pub thin: Budget,
    /// For one in `thick_each` barriers.
    pub thick: Budget,
    /// How often a barrier gets the thick budget.
    pub thick_each: u64,
    /// How each image is judged.
    pub care: Care,
    /// Areas of which one is lost with each image, in no order; none if there are none.
    pub ruins: &'static [Area],
    /// How often an image is also crashed after its further jobs.
    pub again_each: u64,
    /// Images after which barriers are only sampled.
    pub limit: u64,
    /// Violations after which nothing more is looked at.
    pub enough: u64,
}

/// Figure: images that differ, or are held against different promises.
pub const DISTINCT: &str = "distinct images";

/// A limit for whoever looks at all images there are: no case comes near, unless it has hundreds
/// of barriers.
pub const NO_END: u64 = 500_000;

/// How long a case may take that looks at so many.
pub const LONGEST: Duration = Duration::from_secs(3_600);

/// Images taken of a barrier that is only sampled.
const SAMPLED: usize = 8;

/// Steps in which to go through the images of an instant to see about so many of them where every
/// subset of its units is listed, which is up to a dozen units.
#[must_use]
pub fn stride(point: &CrashPoint, about: usize) -> usize {
    let units = point.units();
    if units > 12 { 1 } else { ((1 << units) / about).max(1) }
}

/// What a watch is about and has seen.
#[derive(Debug)]
struct State {
    plan: Plan,
    rng: Rng,
    /// Images judged already, with the promise they were judged by.
    seen: HashSet<u64>,
    tally: Tally,
    making: bool,
}

/// A watch over one medium.
#[derive(Debug, Clone)]
pub struct Watch {
    world: Arc<World>,
    ledger: Ledger,
    state: Arc<Mutex<State>>,
    looking: Arc<AtomicBool>,
}

impl Watch {
    /// A watch that compares with `ledger`.
    #[must_use]
    pub fn new(world: &Arc<World>, ledger: &Ledger, plan: Plan, rng: Rng) -> Self {
        let state =
            State { plan, rng, seen: HashSet::new(), tally: Tally::default(), making: false };
        Self {
            world: Arc::clone(world),
            ledger: ledger.clone(),
            state: Arc::new(Mutex::new(state)),
            looking: Arc::default(),
        }
    }

    /// From now on a pool is being made, or no longer.
    pub fn making(&self, making: bool) {
        self.lock().making = making;
    }

    /// Judges at every barrier of `medium` from now on.
    pub fn begin(&self, medium: &Handle) {
        let this = self.clone();
        medium.on_barrier(Box::new(move |_, _, point| this.look(point)));
    }

    /// Judges the images of one instant.
    pub fn look(&self, point: &CrashPoint) {
        self.looking.store(true, Ordering::Release);
        self.judge_all(point);
        self.looking.store(false, Ordering::Release);
    }

    /// Whether images are being judged right now: what is watched stands still meanwhile.
    #[must_use]
    pub fn is_looking(&self) -> bool {
        self.looking.load(Ordering::Acquire)
    }

    fn judge_all(&self, point: &CrashPoint) {
        let mut state = self.lock();
        let State { plan, rng, seen, tally, making } = &mut *state;
        if tally.violated() >= plan.enough {
            return;
        }
        let promise = if *making { Promise::Making } else { Promise::Kept(self.ledger.promise()) };
        let promised = promise.fingerprint();
        let thick = rng.below(plan.thick_each.max(1)) == 0;
        let mut budget = if thick { plan.thick } else { plan.thin };
        budget.seed = rng.next_u64();
        let mut step = 1;
        if tally.count >= plan.limit {
            budget = Budget { singles: 2, pairs: 1, samples: 3, ..budget };
            step = stride(point, SAMPLED);
            tally.add("barriers only sampled", 1);
        }
        tally.add("barriers", 1);
        for image in point.images(&budget).step_by(step) {
            let fingerprint = distinct(&self.world, promised, &image);
            if !seen.insert(fingerprint) {
                continue;
            }
            tally.saw(DISTINCT, fingerprint);
            tally.count += 1;
            let site = point.barrier().map_or("the end", |(site, _)| site.name());
            let place = format!("{} before {site}, image {}", self.world.name, image.index());
            let again = rng.below(plan.again_each.max(1)) == 0;
            let ruin = rng.pick(plan.ruins).copied();
            let care = Care { again, ruin, ..plan.care };
            let before = tally.violated();
            let count = tally.count;
            let judged = judge(&self.world, image, &promise, &care, rng.next_u64(), tally);
            tally.add("nested", tally.count - count);
            tally.count = count;
            let lost = ruin.map_or_else(String::new, |area| format!(" and {area} lost"));
            tally.judge(judged.map_err(|v| v.during(format_args!("{place}{lost}"))));
            if tally.violated() > before && tally.violated() >= plan.enough {
                return;
            }
        }
    }

    /// Ends the watch and answers what was seen.
    #[must_use]
    pub fn end(&self) -> Tally {
        std::mem::take(&mut self.lock().tally)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
