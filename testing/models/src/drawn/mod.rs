//! Schedules drawn from a seed: the engine and its parts under shuttle, by a scheduler that draws
//! each step and by one that draws few changes of priority (PCT).
//!
//! Schedules are run in batches. The seed of a batch is drawn from that of the run; a finding names
//! harness, variant, scheduler and batch, and a replay runs that batch until it fails again.

mod engine;
mod mapped;
mod parts;
mod paused;
mod stepped;
mod wraps;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use holdfast_faultmem::{CrashPoint, Image};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use self::engine::{damage, growth};
use crate::cli::{Cli, Ran, Report};

/// What the message of a broken law names.
const LAW: &str = "broken law";
/// Schedules of a batch.
const BATCH: u64 = 50;
/// Changes of priority that the second scheduler draws for each schedule.
const CHANGES: usize = 3;
/// Batches within which a wrong variant has to be convicted.
const PATIENCE: u64 = 200;
/// Bytes of a thread's stack: opening a pool takes most.
const STACK: usize = 1 << 20;
/// Steps of a schedule that are more than any needs: threads wait for each other for ever.
const STEPS: usize = 2_000_000;

/// A wrong variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    /// What ships.
    Nothing,
    /// A site switched off.
    Off(&'static str),
    /// Stores of these sites come after the commit is visible.
    Late(&'static str),
    /// A step of the harness's own.
    Own(&'static str),
}

impl Wrong {
    fn off(self) -> &'static str {
        if let Self::Off(site) = self { site } else { "" }
    }

    fn late(self) -> &'static str {
        if let Self::Late(sites) = self { sites } else { "" }
    }
}

/// A program whose schedules are drawn.
#[derive(Debug, Clone, Copy)]
struct Harness {
    name: &'static str,
    run: fn(Wrong),
    /// Schedules in CI.
    few: u64,
    wrong: &'static [Wrong],
    /// What schedules have to come to, or they prove little.
    reached: &'static [&'static Reached],
}

/// Something rare that a harness is for, and how often it was come to by what ships.
#[derive(Debug)]
struct Reached {
    what: &'static str,
    times: AtomicU64,
}

impl Reached {
    const fn new(what: &'static str) -> Self {
        Self { what, times: AtomicU64::new(0) }
    }

    fn add(&self, times: u64) {
        self.times.fetch_add(times, Ordering::Relaxed);
    }

    fn times(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }
}

/// All of them.
const HARNESSES: &[Harness] = &[
    Harness {
        name: "numbers",
        run: parts::numbers,
        few: 20_000,
        wrong: &[
            Wrong::Off("logs.numbers.bound"),
            Wrong::Off("logs.numbers.busy"),
            Wrong::Own("done before it is"),
            Wrong::Own("a lane for two"),
            Wrong::Own("never done"),
        ],
        reached: &[],
    },
    Harness {
        name: "columns",
        run: parts::columns,
        few: 20_000,
        wrong: &[
            Wrong::Own("parity after the lock"),
            Wrong::Own("judged without the lock"),
            Wrong::Own("judged with the lock of another"),
            Wrong::Own("one of two locked"),
            Wrong::Own("not locked, and went on"),
        ],
        reached: &[],
    },
    Harness {
        name: "group",
        run: parts::group,
        few: 2_000,
        wrong: &[
            Wrong::Off("logs.group.F1"),
            Wrong::Own("acknowledged first"),
            Wrong::Own("done before it is"),
            Wrong::Own("one record for all"),
            Wrong::Off("logs.numbers.busy"),
        ],
        reached: &[],
    },
    Harness {
        name: "rings",
        run: parts::rings,
        few: 2_000,
        wrong: &[
            Wrong::Off("logs.ring.F1"),
            Wrong::Own("acknowledged first"),
            Wrong::Own("done before it is"),
            Wrong::Own("one record for all"),
            Wrong::Off("logs.numbers.busy"),
        ],
        reached: &[],
    },
    Harness {
        name: "group-reclaim",
        run: wraps::group,
        few: 500,
        wrong: &[
            Wrong::Off("logs.group.synced"),
            Wrong::Off("logs.group.marked"),
            Wrong::Off("logs.group.reuse"),
            Wrong::Off("logs.group.turn"),
            Wrong::Off("logs.numbers.busy"),
        ],
        reached: &[&wraps::RECLAIMS, &wraps::GROUP_IMAGES],
    },
    Harness {
        name: "rings-wrap",
        run: wraps::rings,
        few: 500,
        wrong: &[
            Wrong::Off("logs.ring.reuse"),
            Wrong::Off("logs.ring.marked"),
            Wrong::Off("models.wraps.F2"),
            Wrong::Off("logs.numbers.bound"),
            Wrong::Off("logs.numbers.busy"),
        ],
        reached: &[&wraps::MARKS, &wraps::RING_IMAGES],
    },
    Harness {
        name: "engine",
        run: engine::memory,
        few: 1_000,
        wrong: &[
            Wrong::Off("object.commit.validate"),
            Wrong::Off("logs.ring.F1"),
            Wrong::Off("object.commit.sums"),
            Wrong::Off("object.commit.patch"),
            Wrong::Off("object.tx.verify-open"),
            Wrong::Late("object.commit.data"),
            Wrong::Late("object.commit.parity"),
        ],
        reached: &[
            &damage::MOVED,
            &damage::LOG_MOVED,
            &damage::STOOD_IN,
            &damage::ASIDE,
            &growth::SETTLED,
        ],
    },
    Harness {
        name: "engine-file",
        run: engine::file,
        few: 500,
        wrong: &[
            Wrong::Off("object.commit.validate"),
            Wrong::Off("logs.group.F1"),
            Wrong::Off("object.commit.sums"),
            Wrong::Off("object.commit.patch"),
            Wrong::Late("object.commit.data"),
        ],
        reached: &[],
    },
    Harness {
        name: "mapped",
        run: mapped::file,
        few: 1_000,
        wrong: &[
            Wrong::Off("mapped.repair.freeze"),
            Wrong::Off("mapped.repair.recheck"),
            Wrong::Off("mapped.repair.judge"),
            Wrong::Off("mapped.commit.take-first"),
            Wrong::Off("mapped.commit.batch"),
            Wrong::Off("mapped.commit.entry"),
            Wrong::Off("mapped.commit.parity"),
            Wrong::Off("mapped.commit.D"),
            Wrong::Off("mapped.commit.E"),
            Wrong::Off("mapped.engine.verify-page"),
            Wrong::Own("resized unannounced"),
        ],
        reached: &[
            &mapped::REPAIRS,
            &mapped::GAVE_WAY,
            &mapped::REFUSED,
            &mapped::STOPS,
            &mapped::CUT,
            &mapped::RESIZED,
        ],
    },
];

/// Draws schedules of all harnesses, or of those asked for.
pub(crate) fn run(cli: &Cli) -> Result<Report> {
    let mut report = Report::default();
    Runner::new(RandomScheduler::new_from_seed(0, 1), config()).run(|| {
        engine::make_bases();
        for setting in 0..2 {
            for parity in 1..=2 {
                mapped::base(parity, setting);
            }
        }
    });
    if let Some(schedule) = &cli.replay {
        report.add(replay(schedule)?, cli.json);
        return Ok(report);
    }
    let names: Vec<_> = HARNESSES.iter().map(|harness| harness.name).collect();
    let unlisted = holdfast_evidence::unlisted("models shuttle", names.iter().copied());
    ensure!(
        unlisted.is_empty(),
        "the list of what is run does not know {unlisted:?}: add to METHODS"
    );
    for harness in HARNESSES {
        crate::cli::listed("shuttle", harness.name, harness.wrong.len())?;
    }
    cli.knows("harness", &names)?;
    for harness in HARNESSES.iter().filter(|harness| cli.wants(harness.name)) {
        crate::cli::enough(harness.name, harness.wrong.len())?;
        report.add(one(harness, cli), cli.json);
    }
    Ok(report)
}

/// One harness: as it ships, then each wrong variant until it is convicted.
fn one(harness: &Harness, cli: &Cli) -> Ran {
    let begun = std::time::Instant::now();
    let batches = cli.schedules.unwrap_or(harness.few).div_ceil(BATCH);
    let (count, mut findings) = draw(harness, 0, cli.seed, batches);
    let reached = || harness.reached.iter().map(|reached| (reached.what, reached.times()));
    let none = reached().filter(|(_, times)| *times == 0);
    findings.extend(none.map(|(what, _)| format!("no {what} in {count} schedules")));
    let mut figures: BTreeMap<_, _> =
        reached().map(|(what, times)| (what.to_owned(), times)).collect();
    if !findings.is_empty() {
        // It stopped there. Who shows that it is mended has to do all of it.
        figures.insert(holdfast_evidence::ASKED.to_owned(), batches * BATCH);
    }
    let mut ran = Ran { name: harness.name.to_owned(), count, findings, figures, ..Ran::default() };
    ran.shipped = begun.elapsed().as_secs_f64();
    for (number, wrong) in (1..).zip(harness.wrong) {
        let (tried, found) = draw(harness, number, cli.seed, PATIENCE);
        ran.wrong += 1;
        match found.first() {
            Some(finding) if finding.contains(LAW) => {
                ran.convicted += 1;
                if cli.verdicts {
                    ran.verdicts.push(format!("{wrong:?}, schedule {tried}: {finding}"));
                }
            }
            Some(finding) => ran.findings.push(format!("{wrong:?} failed otherwise: {finding}")),
            None => ran.findings.push(format!("{wrong:?} was not convicted in {tried} schedules")),
        }
    }
    ran.seconds = begun.elapsed().as_secs_f64();
    ran
}

/// Draws batches of a variant (0: what ships) on two threads until one fails. Answers how many
/// schedules were run, and what failed.
fn draw(harness: &Harness, variant: usize, seed: u64, batches: u64) -> (u64, Vec<String>) {
    let (next, count) = (AtomicU64::new(0), AtomicU64::new(0));
    let (failed, findings) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let batch = next.fetch_add(1, Ordering::Relaxed);
            if batch >= batches {
                return;
            }
            let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(batch);
            let pct = batch % 2 == 1;
            if let Err(message) = drawn(harness, variant, pct, seed, &count) {
                failed.store(true, Ordering::Relaxed);
                let scheduler = if pct { "pct" } else { "random" };
                let schedule = format!("{}:{variant}:{scheduler}:{seed}", harness.name);
                let again = format!("cargo xtask models shuttle --replay {schedule}");
                let text = format!("{message}\n    replay: {again}");
                findings.lock().unwrap_or_else(PoisonError::into_inner).push(text);
            }
        }
    };
    std::thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(work)));
    });
    (count.into_inner(), findings.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// What an instant leaves, by chance: nothing of what was on its way, all of it, or any part, of
/// little to most, one thing alone and all but one among them.
fn left_at(point: &CrashPoint) -> Image {
    let seed = thread_rng().r#gen::<u64>();
    match seed % 16 {
        0 => point.persisted(),
        1 => point.newest(),
        number => point.sample(seed, number),
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    config.silence_warnings = true;
    config
}

/// Runs one batch, on a thread of its own: after a failure the checker leaves one as it is.
fn drawn(
    harness: &Harness,
    variant: usize,
    pct: bool,
    seed: u64,
    count: &AtomicU64,
) -> Result<(), String> {
    let wrong = if variant == 0 { Wrong::Nothing } else { harness.wrong[variant - 1] };
    let run = harness.run;
    let config = config();
    let counted = std::sync::Arc::new(AtomicU64::new(0));
    let counter = std::sync::Arc::clone(&counted);
    let body = move || {
        counter.fetch_add(1, Ordering::Relaxed);
        run(wrong);
    };
    let batch = move || {
        if pct {
            let scheduler = PctScheduler::new_from_seed(seed, CHANGES, BATCH as usize);
            Runner::new(scheduler, config).run(body)
        } else {
            let scheduler = RandomScheduler::new_from_seed(seed, BATCH as usize);
            Runner::new(scheduler, config).run(body)
        }
    };
    let thread = std::thread::spawn(move || {
        let done = catch_unwind(AssertUnwindSafe(batch));
        done.map(drop).map_err(|panic| {
            crate::cli::first_message().unwrap_or_else(|| crate::cli::message(panic.as_ref()))
        })
    });
    let done = thread.join().unwrap_or_else(|_| Err("the checker itself panicked".to_owned()));
    count.fetch_add(counted.load(Ordering::Relaxed), Ordering::Relaxed);
    done
}

/// Runs the batch that a finding names.
fn replay(schedule: &str) -> Result<Ran> {
    let what = "a schedule is HARNESS:VARIANT:SCHEDULER:SEED, as a finding says";
    let parts: Vec<_> = schedule.split(':').collect();
    let [name, variant, scheduler, seed] = parts[..] else { anyhow::bail!(what) };
    let harness = HARNESSES.iter().find(|harness| harness.name == name).context(what)?;
    let variant: usize = variant.parse().context(what)?;
    ensure!(variant <= harness.wrong.len(), what);
    let pct = match scheduler {
        "pct" => true,
        "random" => false,
        other => anyhow::bail!("there is no scheduler `{other}`: {what}"),
    };
    let count = AtomicU64::new(0);
    let done = drawn(harness, variant, pct, seed.parse().context(what)?, &count);
    Ok(Ran {
        name: harness.name.to_owned(),
        count: count.into_inner(),
        findings: done.err().into_iter().collect(),
        ..Ran::default()
    })
}
