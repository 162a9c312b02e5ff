//! What a piece of work adds to a row: how much was done, what was wrong, figures by name.

use std::collections::BTreeMap;

use serde::Serialize;

/// Violations kept with their story; more are only counted.
const KEPT: usize = 200;

/// How something was found to be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// A checker saw a state that must not be: a lost, torn or invented change, bytes that do not
    /// verify, parity that does not add up, a leak.
    Wrong,
    /// Redundancy that should be there is not: a copy or a parity is stale or bad.
    Exposed,
    /// Damage that was not found, not located or not repaired, or an event that says otherwise.
    Unnoticed,
    /// What nothing had damaged was called damaged.
    FalseReport,
    /// Legitimate bytes were changed by a repair.
    Reverted,
    /// An operation or an open answered an error it should not.
    Refused,
    /// The program panicked.
    Panicked,
    /// The program did not come back.
    Hung,
}

impl Fault {
    /// Whether a checker judged a state, as against code that merely gave up.
    #[must_use]
    pub const fn is_wrong_state(self) -> bool {
        match self {
            Self::Wrong | Self::Exposed | Self::Unnoticed | Self::FalseReport | Self::Reverted => {
                true
            }
            Self::Refused | Self::Panicked | Self::Hung => false,
        }
    }
}

/// One violation: what, and its story.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// How it was found.
    pub fault: Fault,
    /// What happened, where, and what was expected.
    pub story: String,
    /// The case of the row it was seen in: with the seed, enough to repeat it.
    pub case: u64,
}

impl Violation {
    /// A violation seen in the case that is running; the runner fills the case in.
    pub fn new(fault: Fault, story: impl Into<String>) -> Self {
        Self { fault, story: story.into(), case: 0 }
    }

    /// The same with words put before its story: where it was seen.
    #[must_use]
    pub fn during(self, place: impl std::fmt::Display) -> Self {
        Self { story: format!("{place}: {}", self.story), ..self }
    }
}

/// Result of something a checker may convict.
pub type Judged<T> = Result<T, Violation>;

/// Counts and violations of a row, or of a part of it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Tally {
    /// What the row counts: images, kills, faults.
    pub count: u64,
    /// Violations, the first few with their story.
    pub violations: Vec<Violation>,
    /// Violations beyond those kept, by how they were found.
    pub unkept: BTreeMap<Fault, u64>,
    /// Figures by name, such as events by finder.
    pub figures: BTreeMap<String, u64>,
    /// Lines to be shown below the row.
    pub lines: Vec<String>,
    /// Fingerprints of what was looked at, by the figure that will say how many are distinct.
    #[serde(skip)]
    pub seen: BTreeMap<&'static str, Vec<u64>>,
}

impl Tally {
    /// Adds to a figure.
    pub fn add(&mut self, figure: impl Into<String>, by: u64) {
        *self.figures.entry(figure.into()).or_default() += by;
    }

    /// Takes down that something of this fingerprint was looked at.
    pub fn saw(&mut self, figure: &'static str, fingerprint: u64) {
        self.seen.entry(figure).or_default().push(fingerprint);
    }

    /// Makes figures of the fingerprints: what different cases looked at alike counts once.
    pub fn count_distinct(&mut self) {
        for (figure, mut all) in std::mem::take(&mut self.seen) {
            all.sort_unstable();
            all.dedup();
            self.add(figure, all.len() as u64);
        }
    }

    /// Takes down a violation.
    pub fn convict(&mut self, violation: Violation) {
        if self.violations.len() < KEPT {
            self.violations.push(violation);
        } else {
            *self.unkept.entry(violation.fault).or_default() += 1;
        }
    }

    /// Takes down what was judged, if it was convicted.
    pub fn judge<T>(&mut self, judged: Judged<T>) -> Option<T> {
        judged.map_err(|violation| self.convict(violation)).ok()
    }

    /// Adds another part of the same row.
    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        for (fault, by) in other.unkept {
            *self.unkept.entry(fault).or_default() += by;
        }
        for (figure, by) in other.figures {
            self.add(figure, by);
        }
        self.lines.extend(other.lines);
        for (figure, all) in other.seen {
            self.seen.entry(figure).or_default().extend(all);
        }
        for violation in other.violations {
            self.convict(violation);
        }
    }

    /// All violations, kept or not.
    #[must_use]
    pub fn violated(&self) -> u64 {
        self.violations.len() as u64 + self.unkept.values().sum::<u64>()
    }

    /// Violations that were found in this way, kept or not.
    #[must_use]
    pub fn of(&self, fault: Fault) -> u64 {
        let kept = self.violations.iter().filter(|violation| violation.fault == fault).count();
        kept as u64 + self.unkept.get(&fault).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_beyond_those_kept_are_counted_by_how_they_were_found() {
        let mut tally = Tally::default();
        for _ in 0..KEPT {
            tally.convict(Violation::new(Fault::Wrong, "w"));
        }
        tally.convict(Violation::new(Fault::FalseReport, "f"));
        let mut all = Tally::default();
        all.convict(Violation::new(Fault::FalseReport, "f"));
        all.merge(tally);
        assert_eq!((all.of(Fault::Wrong), all.of(Fault::FalseReport)), (KEPT as u64, 2));
        assert_eq!(all.violated(), KEPT as u64 + 2);
    }

    #[test]
    fn what_several_cases_saw_alike_is_distinct_once() {
        let case = |all: &[u64]| {
            let mut tally = Tally::default();
            all.iter().for_each(|fingerprint| tally.saw("distinct images", *fingerprint));
            tally
        };
        let mut row = Tally::default();
        for part in [case(&[7, 5, 7]), case(&[5, 9]), case(&[])] {
            row.merge(part);
        }
        row.count_distinct();
        row.count_distinct();
        assert_eq!(row.figures.get("distinct images"), Some(&3));
    }
}
