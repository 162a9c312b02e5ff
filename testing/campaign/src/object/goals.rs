//! How much a whole run has to do: one that did less proves less than it seems to.
//!
//! Each goal is a line of one table: a figure, summed over the rows that count, and its least value
//! in either tier. Rows that were asked for one by one, or single cases, are judged by what they
//! found only.

use crate::goals::{Asked, Told};
use crate::object::judge::DISTINCT_NESTED;
use crate::object::watch::DISTINCT;
use crate::runner::{Outcome, Tier};
use crate::sequences::{ONES, TWOS};

/// A goal of whole runs.
#[derive(Debug, Clone, Copy)]
pub struct Goal {
    /// What it is about, as the line says.
    pub what: &'static str,
    /// Rows that count.
    pub rows: &'static [&'static str],
    /// The figure of theirs.
    pub figure: &'static str,
    /// At least so much in the CI tier.
    pub ci: u64,
    /// At least so much in the long tier.
    pub long: u64,
}

/// Rows that look at crash images.
const CRASHES: &[&str] = &["crash-single", "crash-pairs", "sequences", "nested"];

/// All goals. Of sequences: those that the extents of the row come to, objects and six maps.
#[rustfmt::skip]
pub const GOALS: &[Goal] = &[
    Goal { what: "distinct crash images", rows: CRASHES, figure: DISTINCT,
           ci: 20_000, long: 3_000_000 },
    Goal { what: "distinct crash images of recoveries and repairs", rows: CRASHES,
           figure: DISTINCT_NESTED, ci: 2_000, long: 200_000 },
    Goal { what: "all sequences of one step", rows: &["sequences"], figure: ONES,
           ci: 16 + 6 * 8, long: 12 * (16 + 6 * 8) },
    Goal { what: "all sequences of two steps", rows: &["sequences"], figure: TWOS,
           ci: 256 / 4 + 6 * 64 / 4, long: 12 * (256 + 6 * 64) },
];

/// Goals as lines, and whether all were reached.
#[must_use]
pub fn judge(outcomes: &[Outcome], asked: Asked<'_>) -> (Vec<String>, bool) {
    let mut told = Told::of_skips(outcomes, asked);
    if !asked.whole {
        told.lines.push("goals of numbers are for whole runs: not judged".to_owned());
        return told.end();
    }
    told.say_tried("object", outcomes);
    for goal in GOALS {
        let least = if matches!(asked.tier, Tier::Ci) { goal.ci } else { goal.long };
        let rows = outcomes.iter().filter(|outcome| goal.rows.contains(&outcome.row));
        let figures = rows.map(|outcome| outcome.tally.figures.get(goal.figure).copied());
        let done: u64 = figures.map(|figure| figure.unwrap_or(0)).sum();
        told.say(&format!("{} {done} of {least}", goal.what), done >= least);
    }
    told.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Tally;

    /// A run that did just what is asked in a tier, but for one goal.
    fn run(tier: Tier, short: Option<usize>) -> Vec<Outcome> {
        let goals = GOALS.iter().enumerate();
        goals
            .map(|(index, goal)| {
                let mut tally = Tally::default();
                let least = if matches!(tier, Tier::Ci) { goal.ci } else { goal.long };
                tally.add(goal.figure, least - u64::from(short == Some(index)));
                Outcome { row: goal.rows[0], tally, left: 0, seconds: 1.0 }
            })
            .chain([Outcome { row: "no such row", tally: Tally::default(), left: 0, seconds: 1.0 }])
            .collect()
    }

    #[test]
    fn a_run_that_did_too_little_of_anything_fails() {
        for tier in [Tier::Ci, Tier::Long] {
            let asked = Asked { tier, whole: true, allowed: &[] };
            assert!(judge(&run(tier, None), asked).1);
            for short in 0..GOALS.len() {
                let (lines, reached) = judge(&run(tier, Some(short)), asked);
                assert!(!reached && lines[short].ends_with("MISSED"), "{lines:?}");
                let missed = lines.iter().filter(|line| line.contains("MISSED")).count();
                assert_eq!(missed, 1, "{lines:?}");
            }
        }
    }

    #[test]
    fn a_row_that_left_something_out_fails_unless_that_was_allowed() {
        for whole in [true, false] {
            let mut rows = run(Tier::Ci, None);
            let told = |rows: &[Outcome], allowed: &[&str]| {
                let allowed: Vec<String> = allowed.iter().copied().map(str::to_owned).collect();
                judge(rows, Asked { tier: Tier::Ci, whole, allowed: &allowed })
            };
            assert!(told(&rows, &[]).1);
            rows[0].tally.lines.push("case 3 skipped: there is no /dev/shm".to_owned());
            let (lines, reached) = told(&rows, &[]);
            assert!(!reached && lines[0].contains("crash-single leaves nothing out"), "{lines:?}");
            assert!(!told(&rows, &["no permission"]).1);
            assert!(told(&rows, &["no permission", "no /dev/shm"]).1);
        }
    }

    #[test]
    fn what_is_no_whole_run_is_not_judged_and_other_rows_do_not_count() {
        let asked = |whole| Asked { tier: Tier::Ci, whole, allowed: &[] };
        assert!(judge(&[], asked(false)).1 && !judge(&[], asked(true)).1);
        let mut elsewhere = run(Tier::Ci, None);
        elsewhere.iter_mut().for_each(|outcome| outcome.row = "damage");
        assert!(!judge(&elsewhere, asked(true)).1);
    }
}
