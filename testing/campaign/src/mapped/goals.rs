//! How much a whole run has to do: one that did less proves less than it seems to.
//!
//! | goal | tier |
//! |---|---|
//! | so many faults, over all rows | both |
//! | so many repairs while threads store | long |
//! | so many distinct crash images, over all rows | both |
//! | all sequences of one step and of two, or the part that is due | both |
//! | no row left anything out, unless that was allowed | both |
//!
//! Rows that were asked for one by one, or single cases, are judged by what they found only.

use crate::goals::{Asked, Told};
use crate::mapped::images::DISTINCT;
use crate::runner::{Outcome, Tier};
use crate::sequences::{ONES, TWOS};

/// Faults of a whole run; with those of the campaign against the object engine there are twice as
/// many in the CI tier.
const FAULTS: u64 = 60_000;
/// Repairs of the row `writers`, in the long tier.
const REPAIRS: u64 = 1_000_000;

/// Distinct crash images of a whole run, by tier.
const IMAGES: [u64; 2] = [5_000, 500_000];
/// Sequences of one step, by tier: the alphabet, and that in each setting.
const SINGLES: [u64; 2] = [12, 12 * 20];
/// Sequences of two.
const PAIRS: [u64; 2] = [144 / 6, 144 * 20];

/// Goals as lines, and whether all were reached.
#[must_use]
pub fn judge(outcomes: &[Outcome], asked: Asked<'_>) -> (Vec<String>, bool) {
    let mut told = Told::of_skips(outcomes, asked);
    if asked.whole {
        told.say_tried("mapped", outcomes);
        let faults: u64 = outcomes.iter().map(|outcome| figure(outcome, "faults ")).sum();
        told.say(&format!("faults {faults} of {FAULTS}"), faults >= FAULTS);
        let tier = usize::from(asked.tier == Tier::Long);
        for (what, figure, least) in [
            ("distinct crash images", DISTINCT, IMAGES[tier]),
            ("all sequences of one step", ONES, SINGLES[tier]),
            ("all sequences of two steps", TWOS, PAIRS[tier]),
        ] {
            let figures = outcomes.iter().filter_map(|it| it.tally.figures.get(figure));
            let done: u64 = figures.sum();
            told.say(&format!("{what} {done} of {least}"), done >= least);
        }
        if asked.tier == Tier::Long {
            let writers = outcomes.iter().filter(|outcome| outcome.row == "writers");
            let repairs: u64 = writers.map(|outcome| figure(outcome, "repaired ")).sum();
            told.say(&format!("repairs among writers {repairs} of {REPAIRS}"), repairs >= REPAIRS);
        }
    } else {
        told.lines.push("goals of numbers are for whole runs: not judged".to_owned());
    }
    told.end()
}

/// A figure of the line that each row ends with (`ledger.rs`); 0 if it has none.
fn figure(outcome: &Outcome, name: &str) -> u64 {
    let parts = outcome.tally.lines.iter().flat_map(|line| line.split(", "));
    parts.filter_map(|part| part.strip_prefix(name)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapped::ledger::Ledger;
    use crate::tally::Tally;

    fn outcome(row: &'static str, faults: u64, repaired: u64, line: &str) -> Outcome {
        let mut tally = Tally::default();
        if row == "crash" || row == "damage" {
            let all = [(DISTINCT, IMAGES), (ONES, SINGLES), (TWOS, PAIRS)];
            all.into_iter().for_each(|(figure, least)| tally.add(figure, least[1]));
        }
        Ledger { faults, repaired, ..Ledger::default() }.note(&mut tally);
        Ledger::finish(&mut tally);
        let method = format!("mapped {row}");
        let tried = holdfast_evidence::least(&method);
        tried.for_each(|(figure, count)| tally.add(figure, count));
        tally.lines.extend((!line.is_empty()).then(|| line.to_owned()));
        Outcome { row, tally, left: 0, seconds: 1.0 }
    }

    fn reached(outcomes: &[Outcome], tier: Tier, whole: bool, allow: &str) -> bool {
        let allowed: Vec<String> = allow.split_terminator(';').map(str::to_owned).collect();
        let (lines, reached) = judge(outcomes, Asked { tier, whole, allowed: &allowed });
        assert_eq!(reached, !lines.iter().any(|line| line.contains("MISSED")), "{lines:?}");
        assert_eq!(whole, !lines.iter().any(|line| line.contains("not judged")), "{lines:?}");
        reached
    }

    #[test]
    fn a_run_that_did_too_little_fails() {
        let rows = |faults| [outcome("crash", 40_000, 9, ""), outcome("writers", faults, 9, "")];
        assert!(reached(&rows(20_000), Tier::Ci, true, ""));
        assert!(!reached(&rows(19_999), Tier::Ci, true, ""));
        // Some rows are no run.
        assert!(reached(&rows(0), Tier::Ci, false, ""));
        assert!(reached(&[], Tier::Ci, false, ""));
        assert!(!reached(&[], Tier::Ci, true, ""));
    }

    #[test]
    fn a_run_with_too_few_images_or_sequences_fails() {
        for figure in [DISTINCT, ONES, TWOS] {
            let mut rows = [outcome("crash", 600_000, 9, ""), outcome("writers", 9, 1_000_000, "")];
            assert!(reached(&rows, Tier::Long, true, ""));
            *rows[0].tally.figures.get_mut(figure).expect("a figure") -= 1;
            assert!(!reached(&rows, Tier::Long, true, ""), "{figure}");
            assert!(reached(&rows, Tier::Ci, true, "") && reached(&rows, Tier::Long, false, ""));
        }
    }

    #[test]
    fn a_long_run_repairs_so_much_among_writers_and_nowhere_else() {
        let rows = |here, there| {
            [outcome("damage", 600_000, there, ""), outcome("writers", 600_000, here, "")]
        };
        assert!(reached(&rows(1_000_000, 0), Tier::Long, true, ""));
        assert!(!reached(&rows(999_999, 5_000_000), Tier::Long, true, ""));
        assert!(reached(&rows(9, 0), Tier::Ci, true, ""));
    }

    #[test]
    fn a_row_that_left_something_out_fails_unless_that_was_allowed() {
        let line = "case 3 skipped: there is no /dev/shm";
        let rows = [outcome("writers", 200_000, 9, line), outcome("damage", 9, 9, "")];
        for whole in [true, false] {
            assert!(!reached(&rows, Tier::Ci, whole, ""));
            assert!(!reached(&rows, Tier::Ci, whole, "no permission"));
            assert!(reached(&rows, Tier::Ci, whole, "no permission;no /dev/shm"));
        }
        let (lines, _) = judge(&rows, Asked { tier: Tier::Ci, whole: true, allowed: &[] });
        assert!(lines[0].contains("row writers") && lines[0].contains("no /dev/shm"), "{lines:?}");
    }
}
