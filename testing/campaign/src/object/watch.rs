//! Watches a pool at work: at each barrier, the images that a crash could leave are judged.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_faultmem::{Budget, Counters, CrashPoint, Image};
use holdfast_pmem::{Medium, MediumKind};
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

/// The images of an instant that `budget` lists; where every subset of its units is listed, which
/// is up to a dozen units, about so many of them: that in which nothing arrived, that in which
/// everything did, and others in equal steps. They begin with one that is drawn: the same units
/// would be missing in all that are so many steps from the first.
pub fn images(
    point: &CrashPoint,
    budget: &Budget,
    about: usize,
    rng: &mut Rng,
) -> impl Iterator<Item = Image> + use<> {
    let units = point.units();
    let others = about.saturating_sub(2).max(1);
    let step = if units > 12 { 1 } else { ((1 << units) / others).max(1) };
    let from = if step > 1 { rng.below(step as u64) } else { 0 };
    let ends = (step > 1).then(|| [point.persisted(), point.newest()]);
    ends.into_iter().flatten().chain(point.images(budget).skip(from as usize).step_by(step))
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
    /// What each medium that was watched had cost before, and by its last barrier.
    costs: Vec<(Counters, Counters)>,
}

/// Figures: lines flushed, and drains, on media that have lines.
const FLUSHES: &str = "lines flushed";
const DRAINS: &str = "fences";

impl State {
    /// What persistence cost while it was watched, and how much of that was for nothing.
    fn count_costs(&mut self) {
        for (before, now) in self.costs.drain(..) {
            let tally = &mut self.tally;
            let wasted = now.redundant_flushes - before.redundant_flushes;
            tally.add(FLUSHES, now.lines_flushed - before.lines_flushed);
            tally.add(format!("{FLUSHES} for nothing"), wasted);
            let wasted = now.redundant_drains - before.redundant_drains;
            tally.add(DRAINS, now.drains - before.drains);
            tally.add(format!("{DRAINS} for nothing"), wasted);
        }
    }
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
        let state = State {
            plan,
            rng,
            seen: HashSet::new(),
            tally: Tally::default(),
            making: false,
            costs: Vec::new(),
        };
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
        // On a file every drain is for nothing, and nothing is flushed.
        let number = (medium.kind() != MediumKind::File).then(|| {
            let (mut state, before) = (self.lock(), medium.counters());
            state.costs.push((before, before));
            state.costs.len() - 1
        });
        let this = self.clone();
        medium.on_barrier(Box::new(move |medium, _, point| {
            if let Some(number) = number
                && let Some((_, now)) = this.lock().costs.get_mut(number)
            {
                *now = medium.counters();
            }
            this.look(point);
        }));
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
        let State { plan, rng, seen, tally, making, .. } = &mut *state;
        if tally.violated() >= plan.enough {
            return;
        }
        let promise = if *making { Promise::Making } else { Promise::Kept(self.ledger.promise()) };
        let promised = promise.fingerprint();
        let thick = rng.below(plan.thick_each.max(1)) == 0;
        let mut budget = if thick { plan.thick } else { plan.thin };
        budget.seed = rng.next_u64();
        let mut about = usize::MAX;
        if tally.count >= plan.limit {
            budget = Budget { singles: 2, pairs: 1, samples: 3, ..budget };
            about = SAMPLED;
            tally.add("barriers only sampled", 1);
        }
        tally.add("barriers", 1);
        for image in images(point, &budget, about, rng) {
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
        let mut state = self.lock();
        state.count_costs();
        std::mem::take(&mut state.tally)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use holdfast_faultmem::{Config, FaultMedium};
    use holdfast_pmem::Site;

    use super::*;

    #[test]
    fn no_unit_is_there_or_missing_in_all_samples_but_the_ends() {
        const WORDS: u64 = 12;
        let medium = FaultMedium::new(4096, MediumKind::Dax, &Config::default());
        for word in 0..WORDS {
            medium.put(Site::new("test.put"), 8 * word, &[7; 8]).expect("a store");
        }
        let (point, budget) = (medium.crash_point(), Budget::default());
        let mut rng = Rng::new(1);
        let (mut there, mut missing) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..20 {
            let all: Vec<Image> = images(&point, &budget, SAMPLED, &mut rng).collect();
            assert!((SAMPLED - 1..=SAMPLED + 1).contains(&all.len()), "{}", all.len());
            assert_eq!((&all[0], &all[1]), (&point.persisted(), &point.newest()));
            for image in &all[2..] {
                let arrived: BTreeSet<u64> = image.picks().iter().map(|pick| pick.at / 8).collect();
                missing.extend((0..WORDS).filter(|word| !arrived.contains(word)));
                there.extend(arrived);
            }
        }
        assert_eq!((there.len(), missing.len()), (12, 12), "{there:?} {missing:?}");
        assert_eq!(images(&point, &budget, usize::MAX, &mut rng).count(), 1 << WORDS);
    }
}
