//! What a method did and what was found: the same figures for every row.

use crate::tally::Tally;

/// Counts of one method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Faults done.
    pub faults: u64,
    /// Covered pages they hit.
    pub covered: u64,
    /// Pages of these that were taken for good, or for merely stored to.
    pub missed: u64,
    /// Pages called corrupt that nothing had damaged.
    pub false_reports: u64,
    /// Bytes that changed by the engine's doing and were not damaged before.
    pub reverted: u64,
    /// Verdicts of doubt.
    pub undecided: u64,
    /// Pages that are again what the program made them.
    pub repaired: u64,
    /// Damaged pages for which redundancy did not suffice.
    pub lost: u64,
    /// Damage that a store and a pass made part of the page, before anybody looked.
    pub absorbed: u64,
}

impl Ledger {
    /// What the counts are called.
    pub const NAMES: [&'static str; 9] = [
        "faults",
        "covered pages hit",
        "missed",
        "false reports",
        "reverted bytes",
        "undecided",
        "repaired",
        "lost",
        "absorbed",
    ];

    const fn values(&self) -> [u64; 9] {
        [
            self.faults,
            self.covered,
            self.missed,
            self.false_reports,
            self.reverted,
            self.undecided,
            self.repaired,
            self.lost,
            self.absorbed,
        ]
    }

    /// Adds the counts to those of a row.
    pub fn note(&self, tally: &mut Tally) {
        for (name, value) in Self::NAMES.into_iter().zip(self.values()) {
            tally.add(name, value);
        }
    }

    /// What the row of a report says in one line.
    pub fn finish(tally: &mut Tally) {
        let told = Self::NAMES.map(|name| {
            let value = tally.figures.remove(name).unwrap_or(0);
            format!("{name} {value}")
        });
        tally.lines.push(told.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_all_figures_and_zeros_too() {
        let mut tally = Tally::default();
        Ledger { faults: 7, repaired: 5, ..Ledger::default() }.note(&mut tally);
        Ledger { faults: 1, ..Ledger::default() }.note(&mut tally);
        Ledger::finish(&mut tally);
        let line = tally.lines.first().expect("a line");
        assert!(line.starts_with("faults 8, covered pages hit 0, missed 0, false reports 0"));
        assert!(line.contains("repaired 5") && tally.figures.is_empty());
    }
}
