//! What to run, what came of it.

use std::collections::BTreeMap;
use std::fmt;

use super::{Mutant, trial};

/// How words become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MediumKind {
    /// Mapped memory: lines are flushed and drained.
    Flushed,
    /// A file in the page cache: records are appended with a sync, the heap reaches the medium at
    /// any time and for certain only when log space is reclaimed.
    File,
}

/// A budget of trials.
#[derive(Clone, Debug)]
pub struct Config {
    /// The medium.
    pub medium: MediumKind,
    /// The rule left out, if any.
    pub mutant: Option<Mutant>,
    /// Seed of the first trial; trial `i` uses `first_seed + i`.
    pub first_seed: u64,
    /// Number of trials.
    pub trials: u64,
    /// Lanes (at least 2); the last one is mostly idle.
    pub lanes: usize,
    /// Record places per lane (at least 1); every fourth trial has one place.
    pub ring: usize,
    /// Times the busiest ring must be filled before the first crash for good.
    pub wraps: usize,
    /// Openings of the pool per trial.
    pub runs: usize,
    /// One crash image is probed every this many steps on average, more often before drains.
    pub image_every: usize,
    /// Most crashes inside the recovery of one image.
    pub depth: usize,
    /// Share of runs and of images with one damaged word, in percent.
    pub rot_percent: usize,
    /// End at the first trial that is violated.
    pub stop_at_first: bool,
}

impl Config {
    /// The usual shape: 3 lanes, rings of 3 filled at least 4 times, 3 openings, depth 2.
    #[must_use]
    pub const fn new(medium: MediumKind, mutant: Option<Mutant>, trials: u64) -> Self {
        Self {
            medium,
            mutant,
            first_seed: 1,
            trials,
            lanes: 3,
            ring: 3,
            wraps: 4,
            runs: 3,
            image_every: 48,
            depth: 2,
            rot_percent: 30,
            stop_at_first: false,
        }
    }
}

impl Config {
    /// A budget aimed at one mutant: damage only where its rule is about damage, and places, runs
    /// and probes set so that its rule is needed often.
    #[must_use]
    pub const fn against(mutant: Mutant, medium: MediumKind, trials: u64) -> Self {
        let mut config = Self::new(medium, Some(mutant), trials);
        match mutant {
            Mutant::MarkInPlace => {
                config.ring = 1;
                config.wraps = 12;
                config.runs = 1;
                config.image_every = 400;
                config.rot_percent = 0;
            }
            Mutant::MirrorUnverified => config.rot_percent = 100,
            Mutant::NoReplica
            | Mutant::LogChunkNoReplica
            | Mutant::RecomputeUnverified
            | Mutant::RepairWithoutDrain
            | Mutant::PatchUnverified => config.rot_percent = 60,
            _ => config.rot_percent = 0,
        }
        config
    }
}

/// Counts of what a set of trials exercised, so that a pass that proves little can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Turns taken.
    pub steps: u64,
    /// Turns in which a lane had to wait for another.
    pub waits: u64,
    /// Commits acknowledged.
    pub commits: u64,
    /// Crash images recovered and judged.
    pub images: u64,
    /// Crashes inside recovery.
    pub nested: u64,
    /// Records replayed.
    pub replayed: u64,
    /// Marks written.
    pub marks: u64,
    /// File: syncs of the heap.
    pub syncs: u64,
    /// File: syncs that failed.
    pub failed_syncs: u64,
    /// Transactions that overflowed into log chunks.
    pub overflows: u64,
    /// Log chunks found after a crash and given back.
    pub orphans: u64,
    /// Large fresh objects written unlogged.
    pub fresh: u64,
    /// Zones added.
    pub growths: u64,
    /// Words damaged while lanes ran.
    pub rots: u64,
    /// Words repaired online or by recovery.
    pub repairs: u64,
    /// Damage found online that no candidate explained; always a violation at close.
    pub unrepaired_online: u64,
    /// Units named lost, all judged unavoidable.
    pub named_lost: u64,
    /// Clean closes judged.
    pub closes: u64,
    /// The smallest number of times the busiest ring of a trial was filled.
    pub least_wraps: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            steps: 0,
            waits: 0,
            commits: 0,
            images: 0,
            nested: 0,
            replayed: 0,
            marks: 0,
            syncs: 0,
            failed_syncs: 0,
            overflows: 0,
            orphans: 0,
            fresh: 0,
            growths: 0,
            rots: 0,
            repairs: 0,
            unrepaired_online: 0,
            named_lost: 0,
            closes: 0,
            least_wraps: u64::MAX,
        }
    }
}

impl Tally {
    /// Adds the counts of another set of trials.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.waits += other.waits;
        self.commits += other.commits;
        self.images += other.images;
        self.nested += other.nested;
        self.replayed += other.replayed;
        self.marks += other.marks;
        self.syncs += other.syncs;
        self.failed_syncs += other.failed_syncs;
        self.overflows += other.overflows;
        self.orphans += other.orphans;
        self.fresh += other.fresh;
        self.growths += other.growths;
        self.rots += other.rots;
        self.repairs += other.repairs;
        self.unrepaired_online += other.unrepaired_online;
        self.named_lost += other.named_lost;
        self.closes += other.closes;
        self.least_wraps = self.least_wraps.min(other.least_wraps);
    }
}

/// What a recovered pool did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ViolationKind {
    /// An acknowledged commit is missing or half there, or one under way is half there.
    WrongContent,
    /// Parity does not describe its column.
    WrongParity,
    /// A unit is lost although what remained determined it.
    NeedlessLoss,
    /// The pool cannot be opened.
    Unreadable,
    /// A lane waits for ever.
    Stuck,
    /// Records are still valid after a finished recovery.
    NotFinal,
}

/// One violated trial. The seed repeats it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Seed of the trial.
    pub seed: u64,
    /// What was wrong.
    pub kind: ViolationKind,
    /// Where.
    pub detail: String,
}

/// The outcome of a budget of trials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Trials run.
    pub trials: u64,
    /// Trials with a violation.
    pub violated: u64,
    /// The same by kind.
    pub by_kind: BTreeMap<ViolationKind, u64>,
    /// The first few violations.
    pub violations: Vec<Violation>,
    /// What was exercised.
    pub tally: Tally,
}

/// Violations kept with their details.
const KEPT: usize = 8;

/// Runs a budget of trials. The same configuration gives the same report.
///
/// # Panics
///
/// If the configuration has fewer than 2 lanes, or rings or probes of size 0.
#[must_use]
pub fn run(config: &Config) -> Report {
    assert!(config.lanes >= 2 && config.ring >= 1, "two lanes and one place at least");
    let mut report = Report {
        trials: 0,
        violated: 0,
        by_kind: BTreeMap::new(),
        violations: Vec::new(),
        tally: Tally::default(),
    };
    for seed in config.first_seed..config.first_seed + config.trials {
        report.trials += 1;
        let Err((kind, detail)) = trial::run(config, seed, &mut report.tally) else { continue };
        report.violated += 1;
        *report.by_kind.entry(kind).or_default() += 1;
        if report.violations.len() < KEPT {
            report.violations.push(Violation { seed, kind, detail });
        }
        if config.stop_at_first {
            break;
        }
    }
    report
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = &self.tally;
        write!(
            f,
            "{} trials, {} violated; {} commits, {} images, {} nested, {} replayed, {} waits, \
             {} marks, {} syncs ({} failed), {} overflows, {} orphans, {} fresh, {} growths, \
             {} rots, \
             {} repairs, {} named lost, {} closes, wraps >= {}",
            self.trials,
            self.violated,
            t.commits,
            t.images,
            t.nested,
            t.replayed,
            t.waits,
            t.marks,
            t.syncs,
            t.failed_syncs,
            t.overflows,
            t.orphans,
            t.fresh,
            t.growths,
            t.rots,
            t.repairs,
            t.named_lost,
            t.closes,
            t.least_wraps
        )?;
        for violation in &self.violations {
            write!(f, "\n  seed {}: {:?}: {}", violation.seed, violation.kind, violation.detail)?;
        }
        Ok(())
    }
}
