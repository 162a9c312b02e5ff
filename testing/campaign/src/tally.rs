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
        matches!(self, Self::Wrong | Self::Exposed | Self::Unnoticed)
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
    /// Violations beyond those kept.
    pub unkept: u64,
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
            self.unkept += 1;
        }
    }

    /// Takes down what was judged, if it was convicted.
    pub fn judge<T>(&mut self, judged: Judged<T>) -> Option<T> {
        judged.map_err(|violation| self.convict(violation)).ok()
    }

    /// Adds another part of the same row.
    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.unkept += other.unkept;
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
        self.violations.len() as u64 + self.unkept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
