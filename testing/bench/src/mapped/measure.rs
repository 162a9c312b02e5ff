//! A workload on a protected file and the same on one that never is, in short turns of one thread.
//!
//! ```text
//!                neither is protected      the first is, for n periods of its turns
//!  first file   | turn |      | turn |      | warm |   | turn |      | turn |      | turn |    ...
//!  second file         | turn |      | turn |                 | turn |      | turn |      | turn |
//!  updater                                          P                        P
//! ```
//!
//! No two files are equally fast, if only for where their pages lie, so a round begins with both as
//! they are; how much faster the one is than the other is no loss. Periods are counted in the time
//! of the protected turns, and a turn lasts until a pass that has begun in it is over: so a round
//! holds n whole passes, the first stores of n whole periods, and nothing of either falls on the
//! other file. The protected part of a round begins after a pass that nobody counts, and ends with
//! one: what each covers are the stores of the period before it, all of them. What is lost is one
//! minus the one rate over the other. Turns are so short that a
//! neighbour who comes and goes meets both alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use holdfast_pmem::PAGE;
use rustix::thread::CpuSet;

use super::area::Area;
use super::kept::{Hooks, Kept, Means};
use super::latency::Latency;
use super::loads::{Choice, Hook, KeyValue, Load, Pairs};

/// Where the updater runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Core {
    /// On the program's core: everything it costs is seen.
    Same,
    /// On another one.
    Own,
}

/// How long, how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) period: Duration,
    /// Periods of a round.
    pub(crate) periods: u32,
    pub(crate) rounds: u32,
    /// Turns of the first file while neither is protected.
    pub(crate) before: Duration,
    /// With protection, before turns count, and before the pass after which they do.
    pub(crate) warm: Duration,
    /// How long one file has the thread.
    pub(crate) turn: Duration,
    pub(crate) core: Core,
}

/// A workload on the file that is to be protected, and the same on a file that never is.
#[derive(Debug)]
pub(crate) struct Both<L> {
    pub(crate) kept: L,
    pub(crate) plain: L,
    /// The file that never is.
    pub(crate) twin: Arc<Area>,
}

impl<P: Pairs> Both<KeyValue<P>> {
    /// From now on the same pairs are used otherwise.
    pub(crate) fn again(&mut self, count: u64, choice: Choice, percent: u64) {
        self.kept.again(count, choice, percent);
        self.plain.again(count, choice, percent);
    }
}

/// One pass of the updater. All times are in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass {
    /// When it began, in the time of the protected turns.
    pub(crate) start: f64,
    pub(crate) took: Took,
}

/// What a pass took: time on the clock and of the processor, and pages it covered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Took {
    pub(crate) seconds: f64,
    pub(crate) cpu: f64,
    pub(crate) pages: u64,
}

/// What turns came to.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    ops: u64,
    seconds: f64,
    cpu: f64,
}

impl Sum {
    fn add(&mut self, turn: Self) {
        self.ops += turn.ops;
        self.seconds += turn.seconds;
        self.cpu += turn.cpu;
    }

    fn rate(self) -> f64 {
        self.ops as f64 / self.seconds
    }
}

/// What was measured of one workload under one protection.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Operations per second without protection, one for each round.
    pub(crate) plain: Vec<f64>,
    /// With.
    pub(crate) kept: Vec<f64>,
    /// Share of the rate that is lost.
    pub(crate) loss: Vec<f64>,
    /// The same by the processor's time rather than by the clock: what others on the machine take
    /// does not count. Only where the updater shares the program's core.
    pub(crate) cpu_loss: Vec<f64>,
    pub(crate) passes: Vec<Pass>,
    /// Pages of the file.
    pub(crate) of_pages: u64,
    /// Longest time between a store and the end of the pass that covered it, in seconds.
    pub(crate) oldest: f64,
    /// Processor seconds of the updater in the rounds.
    pub(crate) updater_cpu: f64,
    /// Of protected turns.
    pub(crate) seconds: f64,
    pub(crate) latency: [Latency; 2],
}

/// Operations between two looks at the clock.
const CHUNK: u64 = 256;

/// Runs operations for so long, and as long as a pass goes on.
fn turn<L: Load, H: Hook>(
    load: &mut L,
    hook: &mut H,
    busy: &AtomicBool,
    least: Duration,
    latency: &mut Latency,
) -> Sum {
    let (start, cpu) = (Instant::now(), thread_cpu());
    let (mut ops, mut seen) = (0, 0_u64);
    let mut last = start;
    while last - start < least || busy.load(Ordering::Acquire) {
        for _ in 1..CHUNK {
            seen = seen.wrapping_add(load.step(hook));
        }
        let before = Instant::now();
        seen = seen.wrapping_add(load.step(hook));
        last = Instant::now();
        latency.add(last - before);
        ops += CHUNK;
    }
    std::hint::black_box(seen);
    Sum { ops, seconds: (last - start).as_secs_f64(), cpu: thread_cpu() - cpu }
}

fn hooked<L: Load>(
    load: &mut L,
    hooks: &mut Hooks<'_>,
    busy: &AtomicBool,
    least: Duration,
    latency: &mut Latency,
) -> Sum {
    match hooks {
        Hooks::Free(hook) => turn(load, hook, busy, least, latency),
        Hooks::Flush(hook) => turn(load, hook, busy, least, latency),
        Hooks::Announce(hook) => turn(load, hook, busy, least, latency),
        Hooks::Commit(hook) => turn(load, hook, busy, least, latency),
        Hooks::Bare(hook) => turn(load, hook, busy, least, latency),
    }
}

/// Nanoseconds per operation of the driver alone: it chooses, and touches nothing.
pub(crate) fn driver<L: Load>(load: &mut L) -> f64 {
    let best = (0..5).map(|_| {
        let (start, mut seen) = (Instant::now(), 0_u64);
        let count = 2_000_000;
        for _ in 0..count {
            seen = seen.wrapping_add(load.draw());
        }
        std::hint::black_box(seen);
        start.elapsed().as_secs_f64() * 1e9 / f64::from(count)
    });
    best.fold(f64::INFINITY, f64::min)
}

/// Processor time of this thread, in seconds.
pub(crate) fn thread_cpu() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in a structure of its type that lives across the call.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(done, 0, "every Linux has this clock");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Keeps this thread on the processor numbered `which` of those it may use; answers which one that
/// is.
pub(crate) fn pin(which: usize) -> Option<usize> {
    let all = rustix::thread::sched_getaffinity(None).ok()?;
    let cpu = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).nth(which)?;
    let mut only = CpuSet::new();
    only.set(cpu);
    rustix::thread::sched_setaffinity(None, &only).ok()?;
    Some(cpu)
}

type Passed = anyhow::Result<Took>;

/// The updater's thread: a pass whenever it is told.
fn updater(
    asked: &Receiver<()>,
    done: &Sender<Passed>,
    busy: &AtomicBool,
    kept: &Kept,
    core: Core,
) {
    pin(if core == Core::Own { 1 } else { 0 });
    while asked.recv().is_ok() {
        let (start, cpu) = (Instant::now(), thread_cpu());
        let passed = kept.pass().map(|pages| Took {
            seconds: start.elapsed().as_secs_f64(),
            cpu: thread_cpu() - cpu,
            pages,
        });
        busy.store(false, Ordering::Release);
        if done.send(passed).is_err() {
            return;
        }
    }
}

/// The updater, as the program's thread sees it.
struct Calls {
    ask: Sender<()>,
    told: Receiver<Passed>,
}

/// Measures a workload with `kept` and without.
pub(crate) fn measure<L: Load>(
    both: &mut Both<L>,
    kept: &Kept,
    plan: &Plan,
) -> anyhow::Result<Figures> {
    let of_pages = kept.area().len() / PAGE;
    let mut figures = Figures { of_pages, ..Figures::default() };
    let busy = AtomicBool::new(false);
    let lazily = !matches!(kept.protection.means, Means::AtCommit | Means::Bare);
    std::thread::scope(|scope| {
        let (ask, asked) = channel();
        let (done, told) = channel();
        let calls = lazily.then_some(Calls { ask, told });
        if lazily {
            let busy = &busy;
            scope.spawn(move || updater(&asked, &done, busy, kept, plan.core));
        }
        for _ in 0..plan.rounds {
            round(both, kept, plan, (&busy, calls.as_ref()), &mut figures)?;
        }
        anyhow::Ok(())
    })?;
    Ok(figures)
}

/// One round of turns.
fn round<L: Load>(
    both: &mut Both<L>,
    kept: &Kept,
    plan: &Plan,
    (busy, calls): (&AtomicBool, Option<&Calls>),
    figures: &mut Figures,
) -> anyhow::Result<()> {
    // What a program does whose caches do not survive it has to do in any case.
    let plain = |area| match kept.protection.volatile {
        true => Hooks::flush(area),
        false => Hooks::Free(super::kept::Free),
    };
    let still = AtomicBool::new(false);
    let [unprotected, protected] = &mut figures.latency;
    let mut free = plain(&both.twin);
    kept.area().settle();
    let mut fair = [Sum::default(); 2];
    while fair[0].seconds < plan.before.as_secs_f64() {
        let mut none = Latency::default();
        let mut own = plain(kept.area());
        fair[0].add(hooked(&mut both.kept, &mut own, &still, plan.turn, &mut none));
        fair[1].add(hooked(&mut both.plain, &mut free, &still, plan.turn, unprotected));
    }
    kept.begin()?;
    let mut hooks = kept.hooks();
    hooked(&mut both.kept, &mut hooks, busy, plan.warm, &mut Latency::default());
    let uncounted = Instant::now();
    if calls.is_some() {
        kept.pass()?;
    }
    let uncounted = uncounted.elapsed().as_secs_f64();
    let (mut with, mut without) = (Sum::default(), Sum::default());
    let mut passes: Vec<Pass> = Vec::new();
    let period = plan.period.as_secs_f64();
    let turn = plan.turn.as_secs_f64();
    let all = |with: Sum, passes: usize| match calls {
        Some(_) => passes == plan.periods as usize,
        None => with.seconds >= period * f64::from(plan.periods),
    };
    while !all(with, passes.len()) {
        // In the turn in which the period ends.
        let due = calls.filter(|_| with.seconds + turn >= period * (passes.len() + 1) as f64);
        let start = with.seconds;
        if let Some(calls) = due {
            busy.store(true, Ordering::Release);
            calls.ask.send(()).context("the updater is gone")?;
        }
        with.add(hooked(&mut both.kept, &mut hooks, busy, plan.turn, protected));
        if let Some(calls) = due {
            let took = calls.told.recv().context("the updater is gone")??;
            passes.push(Pass { start, took });
        }
        without.add(hooked(&mut both.plain, &mut free, &still, plan.turn, unprotected));
    }
    drop(hooks);
    // Before anything is stored that nobody tracks.
    kept.verify()?;
    kept.end()?;
    figures.ages(uncounted, &passes, with.seconds);
    figures.add(with, without, fair, &passes, plan.core);
    Ok(())
}

impl Figures {
    /// A store just after a pass has begun waits until the end of the next one. The first began
    /// so long `before` turns counted.
    fn ages(&mut self, before: f64, passes: &[Pass], end: f64) {
        let mut since = -before;
        let passes = passes.iter().map(|pass| (pass.start, pass.start + pass.took.seconds));
        for (start, end) in passes.chain([(end, end)]) {
            self.oldest = self.oldest.max(end - since);
            since = start;
        }
    }

    fn add(&mut self, with: Sum, without: Sum, fair: [Sum; 2], passes: &[Pass], core: Core) {
        let cpu: f64 = passes.iter().map(|pass| pass.took.cpu).sum();
        let faster = fair[0].rate() / fair[1].rate();
        self.plain.push(without.rate() * faster);
        self.kept.push(with.rate());
        self.loss.push(1.0 - with.rate() / (without.rate() * faster));
        if core == Core::Same {
            let speed = |sum: Sum| sum.ops as f64 / sum.cpu;
            let plain = speed(without) * speed(fair[0]) / speed(fair[1]);
            self.cpu_loss.push(1.0 - with.ops as f64 / (with.cpu + cpu) / plain);
        }
        self.updater_cpu += cpu;
        self.seconds += with.seconds;
        self.passes.extend(passes);
    }

    /// Pages of a pass, on average.
    pub(crate) fn pages(&self) -> f64 {
        let all: u64 = self.passes.iter().map(|pass| pass.took.pages).sum();
        all as f64 / self.passes.len().max(1) as f64
    }

    /// Seconds of a pass on the clock, on average.
    pub(crate) fn pass_seconds(&self) -> f64 {
        let all: f64 = self.passes.iter().map(|pass| pass.took.seconds).sum();
        all / self.passes.len().max(1) as f64
    }
}
