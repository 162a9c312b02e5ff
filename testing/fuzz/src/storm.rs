//! Storms: targets run for some seconds, or so many inputs of each, on several threads.
//!
//! Inputs have numbers, and threads draw the numbers: whoever runs them, the input of a number is
//! the same. So a storm goes on where another ended ([`Plan::from`]), and is repeated with fewer
//! threads. Each target has several turns, so that threads that share out an odd number of targets
//! end at the same time.
//!
//! A thread whose input does not end cannot be stopped. The others finish their turns, the finding
//! is told, and the program is to end.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Target;
use crate::drive::{Broken, Finding, input, play};

/// Turns of each target: with two threads and an odd number of targets, none waits for the other.
const TURNS: u32 = 2;
/// How often runs are looked at that do not end.
const LOOK: Duration = Duration::from_millis(50);

/// When a target has been run enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// After this time on one thread. A corpus is run whole, however long that takes.
    Time(Duration),
    /// After so many runs.
    Runs(u64),
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Targets, each with inputs to begin with.
    pub targets: Vec<(&'static Target, Vec<Vec<u8>>)>,
    /// How much of each.
    pub until: Until,
    /// Where chance begins.
    pub seed: u64,
    /// Number of the first input of each target.
    pub from: u64,
    /// Threads.
    pub jobs: usize,
    /// How long a run may be under way until it is taken for one that does not end.
    pub hang: Duration,
    /// Whether somebody asked for an end: no run is begun any more then.
    pub stop: fn() -> bool,
}

/// What a target came to.
#[derive(Debug, Clone)]
pub struct Storm {
    /// The target.
    pub target: &'static Target,
    /// Runs that held.
    pub runs: u64,
    /// Number of the first input that was not begun.
    pub next: u64,
    /// Time of all turns, on all threads.
    pub time: Duration,
    /// The longest run.
    pub longest: Duration,
    /// The most bytes one had allocated at once.
    pub most: usize,
    /// What it ended at, if anything was wrong.
    pub finding: Option<Finding>,
}

/// A target that threads take turns at.
struct Line {
    inputs: Vec<Vec<u8>>,
    /// Number of the next input.
    next: AtomicU64,
    done: Mutex<Storm>,
}

impl Line {
    /// What is known of it now. What hangs never comes to the end of its turn, where the number
    /// of the next input is noted.
    fn so_far(&self) -> Storm {
        let done = lock(&self.done).clone();
        Storm { next: self.next.load(Ordering::Relaxed), ..done }
    }
}

/// What a thread is running: since when, and what.
#[derive(Default)]
struct Now(Mutex<Option<(Instant, &'static Target, Vec<u8>)>>);

struct Shared {
    plan: (Until, u64, u64),
    stop: fn() -> bool,
    lines: Vec<Line>,
    /// Numbers of lines, in order of their turns.
    turns: Mutex<VecDeque<usize>>,
    /// One for each thread.
    now: Vec<Now>,
}

/// Runs it. A target with a finding has no further turns; the others have theirs.
///
/// # Errors
/// A thread cannot be started, or panicked outside its target; a target was not run at all, and
/// nobody asked for an end. If somebody did, those that were not run are not among the answers.
pub fn run(plan: Plan) -> io::Result<Vec<Storm>> {
    let Plan { targets, until, seed, from, jobs, hang, stop } = plan;
    let line = |(target, inputs)| {
        let zero = Duration::ZERO;
        let (runs, next, most, finding) = (0, from, 0, None);
        let done = Storm { target, runs, next, time: zero, longest: zero, most, finding };
        Line { inputs, next: AtomicU64::new(from), done: Mutex::new(done) }
    };
    let lines: Vec<Line> = targets.into_iter().map(line).collect();
    let turns = (0..TURNS).flat_map(|_| 0..lines.len()).collect();
    let now = (0..jobs).map(|_| Now::default()).collect();
    let plan = (until, seed, from);
    let shared = Arc::new(Shared { plan, stop, lines, turns: Mutex::new(turns), now });
    let mut threads = Vec::new();
    for job in 0..shared.now.len() {
        let shared = Arc::clone(&shared);
        let work = move || shared.work(job);
        threads.push(thread::Builder::new().name(format!("storm {job}")).spawn(work)?);
    }
    wait(&shared, &threads, hang);
    let mut all: Vec<Storm> = shared.lines.iter().map(Line::so_far).collect();
    if all.iter().any(|done| done.finding.is_some()) {
        // What hangs cannot be waited for, and keeps others from their turns.
        return Ok(all);
    }
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a thread panicked that makes inputs"))?;
    }
    if stop() {
        all.retain(|done| done.runs > 0);
    }
    match all.iter().find(|done| done.runs == 0) {
        Some(done) => Err(io::Error::other(format!("nothing of {} was run", done.target.name))),
        None => Ok(all),
    }
}

/// Waits until each thread has ended, or runs what does not end.
fn wait(shared: &Shared, threads: &[thread::JoinHandle<()>], hang: Duration) {
    loop {
        let mut waiting = false;
        for (thread, now) in threads.iter().zip(&shared.now) {
            waiting |= !thread.is_finished() && !shared.hangs(now, hang);
        }
        if !waiting {
            return;
        }
        thread::sleep(LOOK);
    }
}

impl Shared {
    /// Whether what a thread runs does not end: then it is its target's finding.
    fn hangs(&self, now: &Now, hang: Duration) -> bool {
        let now = lock(&now.0);
        let Some((since, target, input)) = now.as_ref().filter(|now| now.0.elapsed() > hang) else {
            return false;
        };
        let mine = |line: &&Line| std::ptr::eq(lock(&line.done).target, *target);
        if let Some(line) = self.lines.iter().find(mine) {
            let (broken, input) = (Broken::Hung(since.elapsed()), input.clone());
            let mut done = lock(&line.done);
            done.finding.get_or_insert(Finding { target: target.name, input, broken });
        }
        true
    }

    fn work(&self, job: usize) {
        loop {
            let turn = lock(&self.turns).pop_front();
            let Some(line) = turn.and_then(|turn| self.lines.get(turn)) else { return };
            self.turn(line, &self.now[job]);
        }
    }

    /// One turn: until its time is over, all numbers are drawn, or somebody found something.
    fn turn(&self, line: &Line, now: &Now) {
        let (until, seed, from) = self.plan;
        let target = lock(&line.done).target;
        let begun = Instant::now();
        loop {
            let number = line.next.load(Ordering::Relaxed);
            let over = match until {
                Until::Runs(runs) => number.saturating_sub(from) >= runs,
                Until::Time(time) => {
                    begun.elapsed() >= time / TURNS && number >= line.inputs.len() as u64
                }
            };
            if over || (self.stop)() || lock(&line.done).finding.is_some() {
                break;
            }
            let next = number.saturating_add(1);
            let order = Ordering::Relaxed;
            if line.next.compare_exchange(number, next, order, order).is_err() {
                continue;
            }
            let input = input(target, &line.inputs, seed, number);
            *lock(&now.0) = Some((Instant::now(), target, input.clone()));
            let played = play(target, &input);
            *lock(&now.0) = None;
            lock(&line.done).note(played);
        }
        let mut done = lock(&line.done);
        done.next = line.next.load(Ordering::Relaxed);
        done.time += begun.elapsed();
    }
}

impl Storm {
    fn note(&mut self, played: Result<(Duration, usize), Finding>) {
        match played {
            Ok((time, most)) => {
                self.runs += 1;
                self.longest = self.longest.max(time);
                self.most = self.most.max(most);
            }
            Err(finding) => {
                self.finding.get_or_insert(finding);
            }
        }
    }
}

/// A thread that panicked while it held one of these left nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
