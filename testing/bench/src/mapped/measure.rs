//! Slices of a workload with protection and without, in turns, on one mapping.
//!
//! ```text
//!  thread of the program   | none | warm | window: n periods | end | none | warm | window ...
//!  thread of the updater                   P      P      P      P
//! ```
//!
//! A window begins with a pass and ends where the next one would begin: it holds n whole passes and
//! the first stores of n whole periods. What is lost is one minus its rate over the mean of the
//! slices without protection before and after it, so a machine that slows down or a neighbour that
//! comes and goes costs both. One round is one window; medians are over rounds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::thread::CpuSet;

use super::kept::{Hooks, Kept, Means};
use super::latency::Latency;
use super::loads::{Hook, Load};

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
    /// Periods of a window.
    pub(crate) periods: u32,
    pub(crate) rounds: u32,
    /// Without protection, before and after.
    pub(crate) plain: Duration,
    /// With protection, before a window: time to dirty what a period would.
    pub(crate) warm: Duration,
    pub(crate) core: Core,
}

/// One pass of the updater.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass {
    pub(crate) start: Instant,
    pub(crate) end: Instant,
    pub(crate) cpu: f64,
    pub(crate) pages: u64,
}

/// What a slice came to.
#[derive(Debug, Clone, Copy)]
struct Slice {
    ops: u64,
    seconds: f64,
    cpu: f64,
}

impl Slice {
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
    /// Longest time between a store and the end of the pass that covered it, in seconds.
    pub(crate) oldest: f64,
    /// Processor seconds of the updater in the windows.
    pub(crate) updater_cpu: f64,
    pub(crate) seconds: f64,
    pub(crate) latency: [Latency; 2],
}

/// Operations between two looks at the clock.
const CHUNK: u64 = 256;

/// Runs operations until told to stop, or for so long.
fn slice<L: Load, H: Hook>(
    load: &mut L,
    hook: &mut H,
    stop: &AtomicBool,
    most: Duration,
    latency: &mut Latency,
) -> Slice {
    let (start, cpu) = (Instant::now(), thread_cpu());
    let (mut ops, mut seen) = (0, 0_u64);
    let mut last = start;
    while !stop.load(Ordering::Relaxed) && last - start < most {
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
    Slice { ops, seconds: (last - start).as_secs_f64(), cpu: thread_cpu() - cpu }
}

fn hooked<L: Load>(
    load: &mut L,
    hooks: &mut Hooks<'_>,
    stop: &AtomicBool,
    most: Duration,
    latency: &mut Latency,
) -> Slice {
    match hooks {
        Hooks::Free(hook) => slice(load, hook, stop, most, latency),
        Hooks::Flush(hook) => slice(load, hook, stop, most, latency),
        Hooks::Announce(hook) => slice(load, hook, stop, most, latency),
        Hooks::Commit(hook) => slice(load, hook, stop, most, latency),
        Hooks::Bare(hook) => slice(load, hook, stop, most, latency),
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

/// Passes over `kept`, one now and then one a period, `periods` of them, then stops the program.
fn window(kept: &Kept, plan: &Plan, stop: &AtomicBool) -> anyhow::Result<Vec<Pass>> {
    let mut passes = Vec::new();
    let mut due = Instant::now();
    for _ in 0..plan.periods {
        let (start, cpu) = (Instant::now(), thread_cpu());
        let pages = kept.pass()?;
        passes.push(Pass { start, end: Instant::now(), cpu: thread_cpu() - cpu, pages });
        due += plan.period;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    stop.store(true, Ordering::Relaxed);
    Ok(passes)
}

/// The updater's thread: does windows as it is told.
fn updater(
    asked: &Receiver<()>,
    done: &Sender<anyhow::Result<Vec<Pass>>>,
    stop: &AtomicBool,
    kept: &Kept,
    plan: &Plan,
) {
    pin(if plan.core == Core::Own { 1 } else { 0 });
    while asked.recv().is_ok() {
        let passes = window(kept, plan, stop);
        stop.store(true, Ordering::Relaxed);
        if done.send(passes).is_err() {
            return;
        }
    }
}

/// Measures `load` with `kept` and without.
pub(crate) fn measure<L: Load>(load: &mut L, kept: &Kept, plan: &Plan) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    let stop = AtomicBool::new(false);
    let lazily = !matches!(kept.protection.means, Means::AtCommit | Means::Bare);
    std::thread::scope(|scope| {
        let (ask, asked) = channel();
        let (done, told) = channel();
        if lazily {
            let stop = &stop;
            scope.spawn(move || updater(&asked, &done, stop, kept, plan));
        }
        let mut plain = without(load, kept, plan.plain, &mut figures);
        for round in 1..=plan.rounds {
            let begun = Instant::now();
            kept.begin()?;
            let mut hooks = kept.hooks();
            let [_, latency] = &mut figures.latency;
            let most = if lazily { Duration::MAX } else { plan.plain };
            hooked(load, &mut hooks, &AtomicBool::new(false), plan.warm, &mut Latency::default());
            stop.store(false, Ordering::Relaxed);
            if lazily {
                ask.send(()).context("the updater is gone")?;
            }
            let with = hooked(load, &mut hooks, &stop, most, latency);
            drop(hooks);
            let passes =
                if lazily { told.recv().context("the updater is gone")?? } else { Vec::new() };
            kept.end()?;
            if round == plan.rounds {
                // Before anything is stored that nobody tracks.
                kept.verify()?;
            }
            figures.ages(begun, &passes);
            let after = without(load, kept, plan.plain, &mut figures);
            figures.add(plain, with, after, &passes, plan.core);
            plain = after;
        }
        drop(ask);
        anyhow::Ok(())
    })?;
    Ok(figures)
}

/// A slice without protection.
fn without<L: Load>(load: &mut L, kept: &Kept, most: Duration, figures: &mut Figures) -> Slice {
    let [latency, _] = &mut figures.latency;
    let never = AtomicBool::new(false);
    kept.area().settle();
    let mut hooks = if kept.protection.volatile {
        // What a program does whose caches do not survive it has to do in any case.
        Hooks::flush(kept.area())
    } else {
        Hooks::Free(super::kept::Free)
    };
    hooked(load, &mut hooks, &never, most, latency)
}

impl Figures {
    /// A store just after a pass has begun waits until the end of the next one.
    fn ages(&mut self, begun: Instant, passes: &[Pass]) {
        let mut since = begun;
        let ends = passes.iter().map(|pass| (pass.start, pass.end));
        for (start, end) in ends.chain([(Instant::now(), Instant::now())]) {
            self.oldest = self.oldest.max((end - since).as_secs_f64());
            since = start;
        }
    }

    fn add(&mut self, before: Slice, with: Slice, after: Slice, passes: &[Pass], core: Core) {
        let plain = f64::midpoint(before.rate(), after.rate());
        let cpu: f64 = passes.iter().map(|pass| pass.cpu).sum();
        self.plain.push(plain);
        self.kept.push(with.rate());
        self.loss.push(1.0 - with.rate() / plain);
        if core == Core::Same {
            let plain = (before.ops + after.ops) as f64 / (before.cpu + after.cpu);
            self.cpu_loss.push(1.0 - with.ops as f64 / (with.cpu + cpu) / plain);
        }
        self.updater_cpu += cpu;
        self.seconds += with.seconds;
        self.passes.extend(passes);
    }

    /// Pages of a pass, on average.
    pub(crate) fn pages(&self) -> f64 {
        let all: u64 = self.passes.iter().map(|pass| pass.pages).sum();
        all as f64 / self.passes.len().max(1) as f64
    }

    /// Seconds of a pass on the clock, on average.
    pub(crate) fn pass_seconds(&self) -> f64 {
        let all: f64 = self.passes.iter().map(|pass| (pass.end - pass.start).as_secs_f64()).sum();
        all / self.passes.len().max(1) as f64
    }
}
