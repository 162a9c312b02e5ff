//! The judge: recovers an image, checks it, and crashes the recovery.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_faultmem::{
    Call, Config, CrashPoint, FaultMedium, Image, Mode, Passed, Pick, SiteKind,
};

use crate::explorer::{DEEPEST, Explorer};
use crate::ledger::{Model, Seen};
use crate::mapping::Shared;
use crate::verdict::{Failed, Verdict, guarded};

/// One crash on the way to a failure.
#[derive(Debug, Clone)]
pub(crate) struct Level {
    /// Number of the instant in its run.
    pub(crate) instant: usize,
    pub(crate) point: CrashPoint,
    /// What the run that was cut off had done by then.
    pub(crate) trace: Vec<Call>,
    /// What had arrived.
    pub(crate) picks: Vec<Pick>,
}

/// Why an image is wrong, and the crashes of its recovery that show it; none if the first
/// recovery does.
#[derive(Debug, Clone)]
pub(crate) struct Bad {
    pub(crate) why: String,
    pub(crate) levels: Vec<Level>,
}

/// A place in the source, as far as it can be compared: file, line, column.
pub(crate) type Place = (&'static str, u32, u32);

/// What was done and met.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// Images recovered and checked, by the number of crashes before.
    pub(crate) images: [u64; DEEPEST as usize + 1],
    /// Instants whose images were listed.
    pub(crate) instants: u64,
    /// Places passed, ordered by name.
    pub(crate) places: BTreeSet<Passed>,
    /// Flushes and fences: how often, how often for nothing.
    pub(crate) paid: BTreeMap<(&'static str, SiteKind, Place), (u64, u64)>,
}

impl Tally {
    /// Counts calls that flush or order.
    pub(crate) fn pay(&mut self, calls: &[Call]) {
        for call in calls.iter().filter(|call| call.flushed > 0 || call.is_barrier()) {
            let place = (call.place.file(), call.place.line(), call.place.column());
            let paid = self.paid.entry((call.site.name(), call.kind, place)).or_default();
            paid.0 += 1;
            paid.1 += u64::from(call.is_redundant());
        }
    }

    fn meet(&mut self, medium: &FaultMedium) {
        self.places.extend(medium.passed());
    }
}

/// Judges images, each of them once.
pub(crate) struct Judge<H, A> {
    pub(crate) explorer: Explorer<H, A>,
    pub(crate) mode: Mode,
    pub(crate) tally: Tally,
    /// Crashes that were still allowed in the recovery of an image, by its fingerprint, its length
    /// (a fingerprint does not see zeroes) and the fingerprint of what it was compared with. Only
    /// asked, never listed.
    known: HashMap<(Mode, u64, usize, u64), u32>,
    counting: bool,
    /// What the replay line names that there is not.
    pub(crate) misfit: Option<&'static str>,
}

impl<H: 'static, A: Model> Judge<H, A> {
    pub(crate) fn new(explorer: Explorer<H, A>) -> Self {
        let (tally, known) = (Tally::default(), HashMap::new());
        Self { explorer, mode: Mode::Words, tally, known, counting: true, misfit: None }
    }

    /// A medium of the user's, with what is switched off.
    pub(crate) fn ready(&self, image: Option<Image>, trace: bool) -> Shared {
        let plan = &self.explorer.plan;
        let mode = Some(self.mode);
        let (reserve, seed) = (plan.reserve, plan.seed);
        let config = Config { mode, reserve, trace, seed, ..Config::default() };
        let medium = match image {
            Some(image) => FaultMedium::from_crash(image, plan.kind, &config),
            None => FaultMedium::new(plan.len, plan.kind, &config),
        };
        plan.off.iter().chain(&plan.elided).for_each(|name| medium.elide_name(name));
        plan.cure.iter().for_each(|place| medium.persist_before(place));
        Arc::new(medium)
    }

    /// Ends a run: what it passed is noted.
    pub(crate) fn done(&mut self, medium: &FaultMedium, calls: &[Call]) {
        if self.counting {
            self.tally.meet(medium);
            self.tally.pay(calls);
        }
    }

    /// Whether this image is still to be judged against this state, with so many crashes left.
    pub(crate) fn is_new(&mut self, image: &Image, seen: u64, left: u32) -> bool {
        let key = (self.mode, image.fingerprint(), image.bytes().len(), seen);
        match self.known.get_mut(&key) {
            Some(known) if *known >= left => false,
            Some(known) => {
                *known = left;
                true
            }
            None => {
                self.known.insert(key, left);
                true
            }
        }
    }

    /// Recovers an image and checks it; then does the same with what crashes of that recovery
    /// leave, if any are left.
    pub(crate) fn judge(&mut self, image: Image, seen: &Seen<A>, left: u32) -> Option<Bad> {
        let depth = self.explorer.plan.depth.saturating_sub(left) as usize;
        if self.counting {
            self.tally.images[depth.min(DEEPEST as usize)] += 1;
        }
        let medium = self.ready(Some(image), left > 0);
        let points = Arc::new(Mutex::new(Vec::new()));
        if left > 0 {
            let points = Arc::clone(&points);
            medium.on_barrier(Box::new(move |_, _, point| lock(&points).push(point.clone())));
        }
        let outcome = self.recover_and_check(&medium, seen, left > 0, &points);
        let points = core::mem::take(&mut *lock(&points));
        let trace = medium.trace();
        let calls = points.last().map_or(0, CrashPoint::calls);
        self.done(&medium, &trace[..calls]);
        drop(medium);
        if let Err(why) = outcome {
            return Some(Bad { why: why.text().to_owned(), levels: Vec::new() });
        }
        let (mark, budget) = (seen.fingerprint(), self.explorer.plan.nested);
        for (instant, point) in points.into_iter().enumerate() {
            for image in point.images(&budget) {
                if !self.is_new(&image, mark, left - 1) {
                    continue;
                }
                let picks = image.picks().to_vec();
                if let Some(mut bad) = self.judge(image, seen, left - 1) {
                    bad.levels.insert(0, Level { instant, point, trace, picks });
                    return Some(bad);
                }
            }
        }
        None
    }

    fn recover_and_check(
        &self,
        medium: &Shared,
        seen: &Seen<A>,
        watched: bool,
        points: &Mutex<Vec<CrashPoint>>,
    ) -> Verdict {
        let checked = guarded(|| {
            let recovered = (self.explorer.recover)(Arc::clone(medium));
            medium.clear_on_barrier();
            let mut structure = recovered.map_err(|why| said("recovery", &why))?;
            if watched {
                lock(points).push(medium.crash_point());
            }
            (self.explorer.check)(&mut structure, seen)
        });
        // A recovery that unwound has left the hook behind.
        medium.clear_on_barrier();
        checked
    }

    /// Judges one image again, as if none had been judged, and without counting it.
    pub(crate) fn judge_afresh(&mut self, image: Image, seen: &Seen<A>, left: u32) -> Option<Bad> {
        let known = core::mem::take(&mut self.known);
        let counting = core::mem::replace(&mut self.counting, false);
        let bad = self.judge(image, seen, left);
        (self.known, self.counting) = (known, counting);
        bad
    }

    /// The crashes that a replay line names, one in the recovery of the other. What does not fit is
    /// no failure, but noted.
    pub(crate) fn judge_path(
        &mut self,
        image: Image,
        seen: &Seen<A>,
        crashes: &[crate::replay::Crash],
    ) -> Option<Bad> {
        let Some((crash, deeper)) = crashes.split_first() else {
            self.tally.images[0] += 1;
            return self.judge_afresh(image, seen, 0);
        };
        let medium = self.ready(Some(image), true);
        let points = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&points);
        medium.on_barrier(Box::new(move |_, _, point| lock(&taken).push(point.clone())));
        let checked = self.recover_and_check(&medium, seen, true, &points);
        let point = lock(&points).get(crash.instant).cloned();
        let Some(point) = point else {
            if let Err(why) = checked {
                return Some(Bad { why: why.text().to_owned(), levels: Vec::new() });
            }
            self.misfit = Some("an instant that the recovery does not come to");
            return None;
        };
        let picks = crash.picks();
        let Some(image) = crash.image_at(&point) else {
            self.misfit = Some("a unit that the recovery has not stored to by then");
            return None;
        };
        let trace = medium.trace();
        let mut bad = self.judge_path(image, seen, deeper)?;
        bad.levels.insert(0, Level { instant: crash.instant, point, trace, picks });
        Some(bad)
    }
}

/// A reason with whose it is.
pub(crate) fn said(who: &str, why: &Failed) -> Failed {
    Failed::from(format!("{who}: {}", why.text()))
}

/// Locks, also after a panic of another holder: what is behind is never left half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
