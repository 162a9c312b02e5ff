//! Runs the cases of a row on a few threads: any thread, any order, the same result.
//!
//! A case is a number; with the campaign's seed it decides everything the case does. What a case
//! did is merged in order of case numbers, so that the report does not depend on scheduling.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use holdfast_workloads::Rng;

use crate::stacks;
use crate::tally::{Fault, Tally, Violation};

/// How much to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Tier {
    /// For every submission: minutes.
    Ci,
    /// For hours.
    Long,
}

/// One case of a row: a number and what follows from it.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Seed of the campaign.
    pub seed: u64,
    /// Number of the case in its row.
    pub number: u64,
    /// How much to do.
    pub tier: Tier,
}

impl Case {
    /// The stream of random numbers of this case, apart from those of all others.
    #[must_use]
    pub fn rng(&self, stream: u64) -> Rng {
        Rng::part(Rng::part(self.seed, self.number).next_u64(), stream)
    }
}

/// A row: one method of breaking the engine.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name on the command line and in the report.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub story: &'static str,
    /// Number of cases.
    pub cases: fn(Tier) -> u64,
    /// Runs one case.
    pub run: fn(&Case) -> Tally,
    /// Looks at everything together once all cases are done.
    pub finish: fn(&mut Tally),
    /// Longest time a case may take, before it counts as hung.
    pub patience: Duration,
    /// Threads that may run cases at once; rows that measure time or kill processes say 1.
    pub threads: usize,
}

/// How a row is run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Name of the campaign.
    pub campaign: &'static str,
    /// Seed of the campaign.
    pub seed: u64,
    /// How much to do.
    pub tier: Tier,
    /// Threads to use at most.
    pub threads: usize,
    /// The one case to run, if only one is to be repeated.
    pub only: Option<u64>,
    /// Whether to show progress on a terminal.
    pub progress: bool,
    /// Whether somebody asked for an end: no case is begun any more then.
    pub stop: fn() -> bool,
}

/// What a row came to.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Outcome {
    /// Name of the row.
    pub row: &'static str,
    /// Counts and violations.
    pub tally: Tally,
    /// Cases that were not begun, or not ended, when somebody asked for an end. Then goals of the
    /// row were not judged.
    pub left: u64,
    /// Seconds it took.
    pub seconds: f64,
}

/// Cases in the works: when each began, by thread.
type Clocks = Mutex<BTreeMap<usize, (u64, Instant)>>;

/// Violations that a row tells while it is under way.
const TOLD_AT_ONCE: u64 = 20;
/// Time after which Ctrl-C is heard here, too, if something that was started has heard it.
const HEARD_WITHIN: Duration = Duration::from_millis(100);
/// Time between two lines about a row that takes long and has no terminal to show a bar on.
const LINE_EACH: Duration = Duration::from_secs(60);

/// Told what a row came to if a case of it hangs. Such a case cannot be stopped, and what it holds
/// may be what the others wait for: whoever is told notes what there is and ends the program.
pub type Hung<'a> = &'a (dyn Fn(Outcome) + Sync);

/// Runs all cases of a row.
#[must_use]
pub fn run(row: &Row, plan: &Plan, hung: Hung<'_>) -> Outcome {
    let start = Instant::now();
    let cases = (row.cases)(plan.tier);
    let bar = bar(row, plan, cases);
    let (next, told) = (AtomicU64::new(plan.only.unwrap_or(0)), AtomicU64::new(0));
    let end = plan.only.map_or(cases, |only| only + 1);
    let done: Mutex<BTreeMap<u64, Tally>> = Mutex::new(BTreeMap::new());
    let clocks = Clocks::default();
    let finished = AtomicBool::new(false);
    let (clocks, finished) = (&clocks, &finished);
    let tell = &|| {
        let all = if plan.only.is_some() { 1 } else { cases };
        (plan.progress && bar.is_hidden()).then(|| so_far(row, &done, all, start))
    };
    std::thread::scope(|scope| {
        let late = |case| hung(sum_up(row, plan, lock(&done).clone(), start, Some(case)));
        let watch = scope.spawn(move || watch(row, (clocks, finished), tell, (plan.stop, late)));
        let workers: Vec<_> = (0..plan.threads.min(row.threads).max(1))
            .map(|worker| {
                let (next, done, bar, told) = (&next, &done, &bar, &told);
                scope.spawn(move || {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= end || (plan.stop)() {
                            break;
                        }
                        lock(clocks).insert(worker, (number, Instant::now()));
                        let tally = one(row, &Case { seed: plan.seed, number, tier: plan.tier });
                        lock(clocks).remove(&worker);
                        bar.inc(1);
                        if plan.progress && plan.only.is_none() {
                            tell_violations(row, plan, &tally, (bar, told));
                        }
                        // Ctrl-C ends processes that it started as well, maybe before it is heard
                        // here: what comes of that proves nothing.
                        if tally.violated() > 0 {
                            std::thread::sleep(HEARD_WITHIN);
                        }
                        if (plan.stop)() {
                            break;
                        }
                        lock(done).insert(number, tally);
                    }
                })
            })
            .collect();
        for worker in workers {
            // A worker catches what its cases do; if it dies itself, its cases are missing below.
            let _ = worker.join();
        }
        finished.store(true, Ordering::Release);
        watch.thread().unpark();
    });
    bar.finish_and_clear();
    sum_up(row, plan, lock(&done).split_off(&0), start, None)
}

/// What a row came to: its cases that were done, and the one that hung, if any.
fn sum_up(
    row: &Row,
    plan: &Plan,
    done: BTreeMap<u64, Tally>,
    start: Instant,
    hung: Option<u64>,
) -> Outcome {
    let mut tally = Tally::default();
    let all = if plan.only.is_some() { 1 } else { (row.cases)(plan.tier) };
    let left = if (plan.stop)() { all.saturating_sub(done.len() as u64) } else { 0 };
    if let Some(case) = hung {
        let story = format!("it took more than {:?}", row.patience);
        tally.convict(Violation { case, ..Violation::new(Fault::Hung, story) });
    }
    for (_, part) in done {
        tally.merge(part);
    }
    tally.count_distinct();
    if plan.only.is_none() && left == 0 {
        (row.finish)(&mut tally);
    }
    Outcome { row: row.name, tally, left, seconds: start.elapsed().as_secs_f64() }
}

/// Tells what is wrong as soon as it is known: a long row may end before its end.
fn tell_violations(row: &Row, plan: &Plan, tally: &Tally, (bar, told): (&ProgressBar, &AtomicU64)) {
    for violation in &tally.violations {
        if told.fetch_add(1, Ordering::Relaxed) >= TOLD_AT_ONCE {
            return;
        }
        let replay = replay(row.name, plan, violation.case);
        let (fault, story) = (violation.fault, &violation.story);
        let line = format!("row {}: {fault:?}: {story}; replay: {replay}", row.name);
        match bar.is_hidden() {
            true => eprintln!("{line}"),
            false => bar.println(line),
        }
    }
}

/// Runs one case; a panic that gets this far is a violation of its own.
fn one(row: &Row, case: &Case) -> Tally {
    let mut tally = catch_unwind(AssertUnwindSafe(|| (row.run)(case))).unwrap_or_else(|panic| {
        let mut tally = Tally::default();
        tally.convict(Violation::new(Fault::Panicked, panic_text(&*panic)));
        tally
    });
    tally.violations.iter_mut().for_each(|violation| violation.case = case.number);
    tally
}

/// Tells from time to time how far a row is, and, once, if a case takes too long.
fn watch(
    row: &Row,
    (clocks, finished): (&Clocks, &AtomicBool),
    tell: &(impl Fn() -> Option<String> + Sync),
    (stop, hung): (fn() -> bool, impl Fn(u64)),
) {
    let (mut told, mut heard) = (Instant::now(), false);
    while !finished.load(Ordering::Acquire) {
        std::thread::park_timeout(Duration::from_millis(500));
        if stop() && !heard {
            heard = true;
            eprintln!("row {}: stops after what is under way; again ends it at once", row.name);
        }
        if told.elapsed() >= LINE_EACH {
            told = Instant::now();
            if let Some(line) = tell() {
                eprintln!("{line}");
            }
        }
        let late = lock(clocks).values().find(|(_, since)| since.elapsed() > row.patience).copied();
        if let Some((case, _)) = late {
            eprintln!("row {}: case {case} took more than {:?}", row.name, row.patience);
            let panic = lock(&LAST_PANIC).clone();
            if let Some(panic) = panic {
                eprintln!("the last panic so far, which may be one on purpose: {panic}");
            }
            stacks::tell();
            return hung(case);
        }
    }
}

/// How far a row is, in a line.
fn so_far(row: &Row, done: &Mutex<BTreeMap<u64, Tally>>, all: u64, start: Instant) -> String {
    let done = lock(done);
    let violations: u64 = done.values().map(Tally::violated).sum();
    let (name, cases, seconds) = (row.name, done.len(), start.elapsed().as_secs());
    format!("row {name}: {cases} of {all} cases, {violations} violations, {seconds} s so far")
}

/// The command that repeats one case.
#[must_use]
pub fn replay(row: &str, plan: &Plan, case: u64) -> String {
    let tier = if plan.tier == Tier::Ci { "ci" } else { "long" };
    format!(
        "cargo xtask campaign {} --tier {tier} --seed {} --only {row} --case {case}",
        plan.campaign, plan.seed
    )
}

thread_local! {
    /// Where this thread panicked last.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on panics are not printed but remembered, for whoever catches them.
pub fn keep_panics_quiet() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(String::new, ToString::to_string);
        PLACE.set(place);
        *lock(&LAST_PANIC) = Some(info.to_string());
    }));
}

/// What the last panic of any thread said: one that others wait for may have ended by it.
static LAST_PANIC: Mutex<Option<String>> = Mutex::new(None);

/// What a panic of this thread said, and where.
#[must_use]
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned());
    format!("panic at {}: {text}", PLACE.take())
}

fn bar(row: &Row, plan: &Plan, cases: u64) -> ProgressBar {
    if !plan.progress || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(cases), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{prefix:>14} {wide_bar} {pos}/{len} cases {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_prefix(row.name);
    bar
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_a_row_is_and_what_it_has_found() {
        const ROW: Row = Row {
            name: "some",
            story: "",
            cases: |_| 9,
            run: |_| Tally::default(),
            finish: |_| {},
            patience: Duration::MAX,
            threads: 1,
        };
        let mut bad = Tally::default();
        bad.convict(Violation::new(Fault::Wrong, "a wrong byte"));
        let done = Mutex::new(BTreeMap::from([(0, Tally::default()), (3, bad)]));
        let line = so_far(&ROW, &done, 9, Instant::now());
        assert!(line.starts_with("row some: 2 of 9 cases, 1 violations, "), "{line}");
    }
}
