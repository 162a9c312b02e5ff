//! The order of things: sequences from short to long, crashes in the last operation of each.
//!
//! What a crash during an earlier operation leaves was judged when the sequence that ends with
//! that operation was run: operations are the same each time.

use core::mem;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use holdfast_faultmem::{Call, CrashPoint, FaultMedium, Image, Mode, Passed, at_line};
use holdfast_workloads::sequences::{Sequences, sample};

use crate::explorer::Explorer;
use crate::judge::{Bad, Judge, Level, lock, said};
use crate::ledger::{Ledger, Model, Seen};
use crate::owed;
use crate::reduce::Reduced;
use crate::replay::{REPLAY, Replay};
use crate::report::{Asked, Failure, Report, explain};
use crate::verdict::{Verdict, guarded};

/// What a sequence came to, where it is wrong.
#[derive(Debug)]
pub(crate) struct Found<A> {
    pub(crate) sequence: Vec<usize>,
    pub(crate) mode: Mode,
    pub(crate) seen: Seen<A>,
    pub(crate) bad: Bad,
}

/// The last operation of a sequence, while it is watched.
struct Watch<H, A> {
    judge: Judge<H, A>,
    ledger: Ledger<A>,
    replay: Option<Replay>,
    instants: usize,
    found: Option<(Seen<A>, Bad)>,
}

impl<H: 'static, A: Model> Watch<H, A> {
    /// Judges the images of one instant of the operation.
    fn look(&mut self, medium: &FaultMedium, point: &CrashPoint) {
        let instant = self.instants;
        self.instants += 1;
        if self.found.is_some() {
            return;
        }
        let seen = self.ledger.seen();
        if let Some(replay) = self.replay.clone() {
            self.look_again(medium, point, instant, seen, &replay);
            return;
        }
        self.judge.tally.instants += 1;
        let (mark, left) = (seen.fingerprint(), self.judge.explorer.plan.depth);
        for image in point.images(&self.judge.explorer.plan.budget) {
            if !self.judge.is_new(&image, mark, left) {
                continue;
            }
            let picks = image.picks().to_vec();
            if let Some(mut bad) = self.judge.judge(image, &seen, left) {
                let (point, trace) = (point.clone(), medium.trace());
                bad.levels.insert(0, Level { instant, point, trace, picks });
                self.found = Some((seen, bad));
                return;
            }
        }
    }

    /// Judges the one image that a replay line names.
    fn look_again(
        &mut self,
        medium: &FaultMedium,
        point: &CrashPoint,
        instant: usize,
        seen: Seen<A>,
        replay: &Replay,
    ) {
        let Some((crash, deeper)) = replay.crashes.split_first() else { return };
        if crash.instant != instant {
            return;
        }
        let picks = crash.picks();
        let Some(image) = crash.image_at(point) else {
            self.judge.misfit = Some("a unit that the operation has not stored to by then");
            return;
        };
        if let Some(mut bad) = self.judge.judge_path(image, &seen, deeper) {
            let (point, trace) = (point.clone(), medium.trace());
            bad.levels.insert(0, Level { instant, point, trace, picks });
            self.found = Some((seen, bad));
        }
    }
}

impl<H: 'static, A: Model> Explorer<H, A> {
    /// Explores, until everything was looked at or the first failure, which then is one of the
    /// shortest there are. If the environment variable `HOLDFAST_REPLAY` holds a line of this
    /// explorer's name, only what it names is run; of another explorer's, nothing is, and the
    /// report is not clean, though [`assert_clean`](Report::assert_clean) lets it pass.
    #[must_use]
    pub fn run(&self) -> Report {
        // What is no text at all parses no better.
        let line = std::env::var_os(REPLAY).map(|line| line.to_string_lossy().into_owned());
        match line.map(|line| line.parse::<Replay>()) {
            None => self.explore(),
            Some(Ok(replay)) if replay.name == self.plan.name => {
                owed::found();
                Report { asked: Asked::Line, ..self.replay(&replay) }
            }
            Some(Ok(replay)) => {
                let (own, other) = (&self.plan.name, &replay.name);
                owed::look_for(other);
                let why = format!("{REPLAY} is about `{other}`, and this is `{own}`");
                Report { asked: Asked::Nothing, ..self.refused(why) }
            }
            Some(Err(error)) => self.refused(format!("{REPLAY}: {error}, or unset the variable")),
        }
    }

    /// Runs what a replay line names and nothing else. If the line does not fit, for it is of
    /// another explorer or the operations were changed since, the report is not clean, and says so:
    /// it accuses nobody.
    #[must_use]
    pub fn replay(&self, replay: &Replay) -> Report {
        if replay.name != self.plan.name {
            let (own, other) = (&self.plan.name, &replay.name);
            return self.refused(format!(
                "the replay line names `{other}`, and this is `{own}`: replay it with that one"
            ));
        }
        let mut asked = self.clone();
        asked.plan.elided.clone_from(&replay.off);
        asked.replay_as_is(replay)
    }

    fn replay_as_is(&self, replay: &Replay) -> Report {
        let mut judge = Judge::new(self.clone());
        judge.mode = replay.mode;
        // What fails before the first operation names none.
        let base = match base(&judge) {
            Ok(base) => base,
            Err(why) => return self.ended_early(why.text()),
        };
        if replay.sequence.iter().any(|&op| op >= self.ops.len()) || replay.sequence.is_empty() {
            return self.does_not_fit("an operation that there is not");
        }
        let (judge, found) = run_one(judge, &base, &replay.sequence, Some(replay));
        if let Some(what) = judge.misfit {
            return self.does_not_fit(what);
        }
        let mut report = Report::of(&self.plan, &judge.tally, 1);
        // What fails without a crash has no image to judge.
        if found.is_none() && !replay.crashes.is_empty() && report.images == 0 {
            return self.does_not_fit("an instant that the operation does not come to");
        }
        let off = replay.off.as_ref().filter(|_| found.is_none());
        if off.is_some_and(|off| !judge.tally.places.iter().any(|place| at_line(*place) == *off)) {
            return self.does_not_fit("a place that is not passed");
        }
        report.failure = found.map(|found| self.told(judge, found, Some(replay)));
        report
    }

    /// The report on a replay line that names something that there is not.
    fn does_not_fit(&self, what: &str) -> Report {
        self.refused(format!(
            "the replay line names {what}: it is of another explorer called `{}`, or something was \
             changed since; run without the line",
            self.plan.name
        ))
    }

    /// The report on a replay line that is not run.
    fn refused(&self, why: String) -> Report {
        Report { nothing: Some(why), ..Report::new(&self.plan) }
    }

    pub(crate) fn explore(&self) -> Report {
        let mut judge = Judge::new(self.clone());
        let mut sequences = 0;
        let mut bases = Vec::new();
        for &mode in &self.plan.modes {
            judge.mode = mode;
            match base(&judge) {
                Ok(base) => bases.push((mode, base)),
                Err(why) => return self.ended_early(why.text()),
            }
        }
        for sequence in self.sequences() {
            for (mode, base) in &bases {
                judge.mode = *mode;
                sequences += 1;
                let found;
                (judge, found) = run_one(judge, base, &sequence, None);
                if let Some(found) = found {
                    let mut report = Report::of(&self.plan, &judge.tally, sequences);
                    report.failure = Some(self.told(judge, found, None));
                    return report;
                }
            }
        }
        let report = Report::of(&self.plan, &judge.tally, sequences);
        Report { nothing: self.nothing(&report, &judge.tally.places), ..report }
    }

    /// Why a run to the end has looked at nothing, if that is so.
    fn nothing(&self, report: &Report, places: &BTreeSet<Passed>) -> Option<String> {
        let why = if self.ops.is_empty() {
            "there is no operation: give it some with `op` or `step`"
        } else if self.plan.modes.is_empty() {
            "there is no mode: name one in `modes`, or leave that call out"
        } else if report.sequences == 0 {
            "there is no sequence: `longest` has to be 1 or more"
        } else if report.instants == 0 || report.images == 0 {
            "no image of a crash was built: see what the operations do and the budget allows"
        } else {
            // The names by which a place is switched off.
            let named = |&(site, kind, place): &Passed| {
                [site.name().to_owned(), kind.at(site), at_line((site, kind, place))]
            };
            let passed: BTreeSet<String> = places.iter().flat_map(named).collect();
            let missing = self.plan.off.iter().find(|name| !passed.contains(*name))?;
            return Some(format!("no place called `{missing}`, to be left out, was come to"));
        };
        Some(why.to_owned())
    }

    /// Every sequence, the short ones first.
    fn sequences(&self) -> Vec<Vec<usize>> {
        let all: Vec<usize> = (0..self.ops.len()).collect();
        let plan = &self.plan;
        let mut list: Vec<Vec<usize>> = Vec::new();
        for length in 1..=plan.longest {
            list.extend(Sequences::new(&all, length));
        }
        list.extend(sample(&all, plan.longest + 1, plan.samples, plan.seed));
        list
    }

    /// What was found, reduced and explained; of a replay as its line names it.
    fn told(&self, mut judge: Judge<H, A>, found: Found<A>, replay: Option<&Replay>) -> Failure {
        let Found { sequence, mode, seen, bad } = found;
        judge.mode = mode;
        let reduced = match replay {
            Some(replay) => judge.as_named(bad, &seen, &replay.crashes),
            None => judge.reduce(bad, &seen),
        };
        let reduce = replay.is_none();
        let names = sequence.iter().map(|&op| self.ops[op].name.clone()).collect();
        let on_x86 = (reduce && mode == Mode::Words).then(|| self.fails(&sequence, Mode::Lines));
        let mut failure = explain(&self.plan, names, sequence, mode, &reduced);
        let cure = failure.hinge.cure().filter(|_| reduce);
        failure.mended = cure.map(|spot| {
            let mut cured = self.clone();
            cured.plan.cure = Some(spot.place);
            !cured.fails(&failure.replay.sequence, mode)
        });
        Failure { on_x86, ..failure }
    }

    /// Whether a sequence fails.
    fn fails(&self, sequence: &[usize], mode: Mode) -> bool {
        let mut judge = Judge::new(self.clone());
        judge.mode = mode;
        base(&judge).is_ok_and(|base| run_one(judge, &base, sequence, None).1.is_some())
    }

    /// A failure before the first operation.
    fn ended_early(&self, why: &str) -> Report {
        let mut report = Report::new(&self.plan);
        let bad = Bad { why: why.to_owned(), levels: Vec::new() };
        let mode = self.plan.modes.first().copied().unwrap_or(Mode::Words);
        let reduced = Reduced::as_it_is(bad);
        report.failure = Some(explain(&self.plan, Vec::new(), Vec::new(), mode, &reduced));
        report
    }
}

/// What the setup leaves, all of it durable.
fn base<H: 'static, A: Model>(judge: &Judge<H, A>) -> Verdict<Image> {
    let medium = judge.ready(None, false);
    if let Some(setup) = &judge.explorer.setup {
        guarded(|| setup(Arc::clone(&medium))).map_err(|why| said("setup", &why))?;
    }
    Ok(medium.crash_point().newest())
}

/// Runs one sequence, with crashes in its last operation.
fn run_one<H: 'static, A: Model>(
    judge: Judge<H, A>,
    base: &Image,
    sequence: &[usize],
    replay: Option<&Replay>,
) -> (Judge<H, A>, Option<Found<A>>) {
    let medium = judge.ready(Some(base.clone()), true);
    let explorer = judge.explorer.clone();
    let mode = judge.mode;
    let ledger = Ledger::new(explorer.start.clone());
    let replay = replay.cloned();
    let watch = Watch { judge, ledger: ledger.clone(), replay, instants: 0, found: None };
    let watch = Arc::new(Mutex::new(Some(watch)));
    let mut from = 0;
    let outcome = guarded(|| {
        let opened = (explorer.recover)(Arc::clone(&medium));
        let mut structure = opened.map_err(|why| said("opening what the setup left", &why))?;
        for (nth, &op) in sequence.iter().enumerate() {
            if nth + 1 == sequence.len() {
                from = medium.crash_point().calls();
                observe(&watch, &medium, &ledger);
            }
            let op = &explorer.ops[op];
            (op.run)(&mut structure, &ledger).map_err(|why| said(&op.name, &why))?;
        }
        look(&watch, &medium, &medium.crash_point());
        ledger.watch(None);
        medium.clear_on_barrier();
        Ok(())
    });
    ledger.watch(None);
    medium.clear_on_barrier();
    let watch = mem::take(&mut *lock(&watch));
    let Some(Watch { mut judge, found, .. }) = watch else {
        unreachable!("the watch is taken here and nowhere else")
    };
    let trace: Vec<Call> = medium.trace();
    judge.done(&medium, &trace[from.min(trace.len())..]);
    let found = found.or_else(|| {
        let why = outcome.err()?.text().to_owned();
        Some((ledger.seen(), Bad { why, levels: Vec::new() }))
    });
    let found = found.map(|(seen, bad)| Found { sequence: sequence.to_vec(), mode, seen, bad });
    (judge, found)
}

type Watched<H, A> = Arc<Mutex<Option<Watch<H, A>>>>;

/// From here on each barrier and each acknowledgement is an instant to look at.
fn observe<H: 'static, A: Model>(
    watch: &Watched<H, A>,
    medium: &Arc<FaultMedium>,
    ledger: &Ledger<A>,
) {
    let at_barriers = Arc::clone(watch);
    medium.on_barrier(Box::new(move |medium, _, point| look(&at_barriers, medium, point)));
    let (at_acks, weak) = (Arc::clone(watch), Arc::downgrade(medium));
    ledger.watch(Some(Arc::new(move || {
        if let Some(medium) = weak.upgrade() {
            look(&at_acks, &medium, &medium.crash_point());
        }
    })));
}

fn look<H: 'static, A: Model>(watch: &Watched<H, A>, medium: &FaultMedium, point: &CrashPoint) {
    if let Some(watch) = lock(watch).as_mut() {
        watch.look(medium, point);
    }
}
