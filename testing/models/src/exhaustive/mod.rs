//! All interleavings, with so many switches away from a thread that could go on, of cores that
//! take no lock of the system: loom runs the code that ships.
//!
//! Cores whose words are static or shared with other processes, where no modelled word can lie, are
//! compiled a second time, from the same source, on words of the checker: `faults`, `board` and
//! `seats` in `base/pmem/src/modelled.rs`, and `ledger` here, since what it is of is loaded into
//! programs and needs `base/sync` for nothing else.
//!
//! Not modelled here: `object/touched.rs`, whose words are read and written one by one, relaxed,
//! and decide nothing but whether a sum is looked at again; counters that are only told, and flags
//! that once raised stay so (a pool that stopped writing, or may be closed, or whose directories
//! were all looked at), which are looked at again under the lock of whatever they speak of, or say
//! only that something need not be done once more; the number of the region table, drawn by one
//! addition; what is taken by one exchange, by whoever comes first (the soft-dirty bits of a
//! process, the scrub of a pool); the page that tells a process that it is a fork, which the kernel
//! clears; copies of what a lock guards, which only say whether it is worth taking (pages of a
//! group's log in use, chunks of the log that wait to be freed); how much of a protected file is
//! mapped, which only grows, and is stored after what it speaks of; whether somebody asked where a
//! protected file is mapped, which is raised in the gate that a repair closes before it looks; the
//! bar and the pages of first stores in `base/pmem`, whose steps are changes of rights by the
//! kernel and returns from its handlers, with a lock around each page (`tests/first_store_order.rs`
//! tries all their orders on a model of the kernel); how many of its threads `base/pmem` counts as
//! storing while the protection is off, which `tests/protection.rs` tries with real rights; which
//! pages of a mapping are remembered as bad, and how often a thread came back to one: hints, for a
//! page is met again when it is touched; how many repair threads there are, which who waits looks
//! at again and again; who stands while a page is replaced, which the supervisor alone writes down,
//! and nobody acts upon before it is dead; what `preload` keeps in the program it is loaded into,
//! in statics that signal handlers and forks share, where neither checker can be: `tests/processes`
//! and the guard's programs run it for real; a zone of the heap that grows, which does not fit the
//! stack of one of loom's threads: its locks are modelled here, and that it is shown after them
//! `engines/object/tests/all/growth.rs` stops to see.

mod board;
mod columns;
mod faults;
mod heap;
mod lanes;
mod ledger;
mod marks;
mod numbers;
mod seats;
mod words;

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use holdfast_sync::{Access, weaken};

use crate::cli::{Cli, Ran, Report};

/// What the message of a broken law names.
const LAW: &str = "broken law";
/// What loom says of two that use a place at once.
const RACE: &[&str] = &["Causality violation", "Concurrent", "cannot access"];

/// Runs of models so far.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// A core and its law.
struct Model {
    name: &'static str,
    /// Goes through it, with something left out; panics if the law is broken.
    run: fn(&'static str),
    /// What has to be convicted.
    wrong: &'static [Wrong],
}

/// A wrong variant of a core.
#[derive(Debug, Clone, Copy)]
enum Wrong {
    /// A site, or a step of the model's own, left out.
    Off(&'static str),
    /// Accesses of a file without their ordering.
    Weak(&'static str, Access),
}

/// What one thread at a time may touch: the checker finds two who do.
struct Own(loom::cell::UnsafeCell<u32>);

// SAFETY: that one thread at a time reaches the cell is what the models find out, before anything
// is written to it.
unsafe impl Send for Own {}
// SAFETY: as above.
unsafe impl Sync for Own {}

impl Default for Own {
    fn default() -> Self {
        Self(loom::cell::UnsafeCell::new(0))
    }
}

impl Own {
    /// Changes it.
    fn touch(&self) {
        // SAFETY: the pointer is valid as long as the cell; the model finds who else uses it.
        self.0.with_mut(|own| unsafe { *own += 1 });
    }

    /// Answers how often it was changed.
    fn look(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|own| unsafe { *own })
    }
}

/// Goes through all interleavings of `run` with up to `switches` preemptions.
fn explore(switches: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.max_branches = 10_000;
    // All of them, whatever else is set.
    (model.max_permutations, model.max_duration, model.checkpoint_file) = (None, None, None);
    model.check(move || {
        RUNS.fetch_add(1, Ordering::Relaxed);
        run();
    });
}

/// Runs the bodies as threads, and waits for them. What is modelled never runs in the thread that
/// starts others: the checker does not interrupt it as it does those.
fn threads<const N: usize>(bodies: [Box<dyn FnOnce() + Send>; N]) {
    for thread in bodies.map(|body| loom::thread::spawn(body)) {
        thread.join().expect("a broken law ends the whole run");
    }
}

/// Runs all models, or those asked for.
pub(crate) fn run(cli: &Cli) -> Result<Report> {
    let cores = [
        numbers::MODELS,
        lanes::MODELS,
        columns::MODELS,
        heap::MODELS,
        words::MODELS,
        marks::MODELS,
        faults::MODELS,
        board::MODELS,
        seats::MODELS,
        ledger::MODELS,
    ];
    for core in cores {
        crate::cli::enough(&names(core), core.iter().map(|model| model.wrong.len()).sum())?;
    }
    let models = cores.concat();
    for model in &models {
        crate::cli::listed("loom", model.name, model.wrong.len())?;
    }
    let wanted = holdfast_evidence::LOOM_MODELS;
    ensure!(
        models.len() as u64 == wanted,
        "there are {} models, and the list of what was run wants {wanted}: set LOOM_MODELS",
        models.len()
    );
    let drawn = cli.replay.is_some() || cli.schedules.is_some();
    ensure!(!drawn, "schedules are shuttle's: loom plays all there are each time");
    cli.knows("model", &models.iter().map(|model| model.name).collect::<Vec<_>>())?;
    let mut report = Report::default();
    for model in models.iter().filter(|model| cli.wants(model.name)) {
        report.add(one(model, cli), cli.json);
    }
    Ok(report)
}

fn names(models: &[Model]) -> String {
    models.iter().map(|model| model.name).collect::<Vec<_>>().join(", ")
}

impl Clone for Model {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

/// One model: as it ships, then each wrong variant.
fn one(model: &Model, cli: &Cli) -> Ran {
    let begun = std::time::Instant::now();
    let before = RUNS.load(Ordering::Relaxed);
    let mut findings: Vec<String> = alone(model.run, "").err().into_iter().collect();
    let count = RUNS.load(Ordering::Relaxed) - before;
    let shipped = begun.elapsed().as_secs_f64();
    let (mut convicted, mut verdicts) = (0, Vec::new());
    for wrong in model.wrong {
        let verdict = match *wrong {
            Wrong::Off(what) => alone(model.run, what),
            Wrong::Weak(file, access) => {
                let _weaker = weaken(file, access);
                alone(model.run, "")
            }
        };
        match verdict {
            Err(message) if is_conviction(&message) => {
                convicted += 1;
                if cli.verdicts {
                    verdicts.push(format!("{wrong:?}: {message}"));
                }
            }
            Err(message) => findings.push(format!("{wrong:?} failed otherwise: {message}")),
            Ok(()) => findings.push(format!("{wrong:?} was not convicted")),
        }
    }
    Ran {
        name: model.name.to_owned(),
        count,
        wrong: model.wrong.len() as u64,
        convicted,
        verdicts,
        findings,
        shipped,
        figures: BTreeMap::new(),
        seconds: begun.elapsed().as_secs_f64(),
    }
}

fn is_conviction(message: &str) -> bool {
    message.contains(LAW) || RACE.iter().any(|race| message.contains(race))
}

/// Runs a model on a thread of its own: after a panic loom leaves a thread as it is.
fn alone(run: fn(&'static str), off: &'static str) -> Result<(), String> {
    let thread = std::thread::spawn(move || {
        catch_unwind(|| run(off)).map_err(|panic| {
            crate::cli::first_message().unwrap_or_else(|| crate::cli::message(panic.as_ref()))
        })
    });
    thread.join().unwrap_or_else(|_| Err("the checker itself panicked".to_owned()))
}
