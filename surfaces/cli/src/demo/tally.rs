//! What became of each fault, told apart by what the pool's own journal says and by what the file
//! holds afterwards.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use holdfast::anatomy::{Anatomy, Part, Stripe};
use holdfast::{Event, Outcome as Became};
use holdfast_pmem::PAGE;

use crate::faults::{Fault, Kind};

/// Counts of faults by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) injected: u64,
    pub(crate) detected: u64,
    pub(crate) repaired: u64,
    pub(crate) lost: u64,
    /// Replaced by a write of the owner's before anybody read them: no harm, no detection.
    pub(crate) overwritten: u64,
    /// Still there, and nobody noticed.
    pub(crate) missed: u64,
}

impl Counts {
    /// Adds another count.
    pub(crate) fn add(&mut self, other: Self) {
        self.injected += other.injected;
        self.detected += other.detected;
        self.repaired += other.repaired;
        self.lost += other.lost;
        self.overwritten += other.overwritten;
        self.missed += other.missed;
    }

    /// What was added since.
    fn since(self, before: Self) -> Self {
        Self {
            injected: self.injected - before.injected,
            detected: self.detected - before.detected,
            repaired: self.repaired - before.repaired,
            lost: self.lost - before.lost,
            overwritten: self.overwritten - before.overwritten,
            missed: self.missed - before.missed,
        }
    }
}

/// The counts of a run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) by_kind: BTreeMap<Kind, Counts>,
    pub(crate) by_part: BTreeMap<Part, Counts>,
    pub(crate) all: Counts,
    /// Nanoseconds the repairs took, by event.
    pub(crate) repair_nanos: Vec<u64>,
    /// Frames that moved.
    pub(crate) relocated: u64,
    /// The first faults that were missed, in words.
    pub(crate) misses: Vec<String>,
}

/// Misses told in full.
const MISSES_MAX: usize = 8;

impl Tally {
    /// Judges the faults of one round by the events it brought and by the file after it; answers
    /// the counts of the round.
    pub(crate) fn judge(
        &mut self,
        faults: &[Fault],
        events: &[Event],
        anatomy: &Anatomy,
        file: &File,
    ) -> Counts {
        let before = self.all;
        let mut seen: BTreeMap<Stripe, Vec<Became>> = BTreeMap::new();
        for event in events {
            // What was found in neighbouring columns may be told as one.
            let last = event.at + event.len.max(1) - 1;
            for page in event.at / PAGE..=last / PAGE {
                seen.entry(anatomy.stripe(page * PAGE)).or_default().push(event.outcome);
            }
            if matches!(event.outcome, Became::Repaired | Became::Relocated) {
                self.repair_nanos.push(event.duration_ns);
            }
            self.relocated += u64::from(event.outcome == Became::Relocated);
        }
        for fault in faults {
            let counts = judge_one(fault, &seen, anatomy, file);
            if counts.missed > 0 && self.misses.len() < MISSES_MAX {
                self.misses.push(fault.to_string());
            }
            self.by_kind.entry(fault.kind).or_default().add(counts);
            self.by_part.entry(fault.part).or_default().add(counts);
            self.all.add(counts);
        }
        self.all.since(before)
    }
}

fn judge_one(
    fault: &Fault,
    seen: &BTreeMap<Stripe, Vec<Became>>,
    anatomy: &Anatomy,
    file: &File,
) -> Counts {
    let mut counts = Counts { injected: 1, ..Counts::default() };
    let outcomes = |at| seen.get(&anatomy.stripe(at)).map_or(&[][..], Vec::as_slice);
    let heard: Vec<Became> = fault.hits.iter().flat_map(|hit| outcomes(hit.at)).copied().collect();
    let still_there = |hit: &crate::faults::Hit| {
        let mut now = vec![0; hit.after.len()];
        file.read_exact_at(&mut now, hit.in_file).is_ok() && now == hit.after
    };
    let left = fault.hits.iter().any(|hit| outcomes(hit.at).is_empty() && still_there(hit));
    if left {
        counts.missed = 1;
    } else if heard.is_empty() {
        counts.overwritten = 1;
    } else {
        counts.detected = 1;
        let lost = heard.contains(&Became::Lost);
        counts.lost = u64::from(lost);
        counts.repaired = u64::from(!lost);
    }
    counts
}
