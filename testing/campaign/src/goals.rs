//! What the goals of both campaigns have in common: what was asked for, and that no row left
//! anything out for a reason that was not allowed.

use crate::object::wrong::TRIED;
use crate::runner::{Outcome, Tier};

/// What was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// How much.
    pub tier: Tier,
    /// Whether it was all rows and all cases.
    pub whole: bool,
    /// Reasons, or parts of them, for which rows may leave something out.
    pub allowed: &'a [String],
}

/// Lines of goals, and whether all were reached.
#[derive(Debug)]
pub struct Told {
    /// A line for each.
    pub lines: Vec<String>,
    /// Whether none was missed.
    pub reached: bool,
}

impl Told {
    /// Begins with what rows have left out: each reason once, which is a goal that is missed unless
    /// the reason is allowed.
    #[must_use]
    pub fn of_skips(outcomes: &[Outcome], asked: Asked<'_>) -> Self {
        let mut all = Self { lines: Vec::new(), reached: true };
        for outcome in outcomes {
            let mut told: Vec<&str> = Vec::new();
            for line in &outcome.tally.lines {
                let Some((_, reason)) = line.split_once("skipped: ") else { continue };
                if told.contains(&reason) {
                    continue;
                }
                told.push(reason);
                let allowed = asked.allowed.iter().any(|part| reason.contains(part.as_str()));
                let how = if allowed { "" } else { "; --allow-skip REASON allows it" };
                let what = format!("row {} leaves nothing out ({reason}{how})", outcome.row);
                all.say(&what, allowed);
            }
        }
        all
    }

    /// Adds a goal for what rows try all of each time: as much as the list of what is run says, by
    /// which it knows an older source. What cannot be tried on this machine is told as left out.
    pub fn say_tried(&mut self, campaign: &str, outcomes: &[Outcome]) {
        for outcome in outcomes {
            let method = format!("{campaign} {}", outcome.row);
            let listed: Vec<_> = holdfast_evidence::least(&method).collect();
            let left_out = outcome.tally.lines.iter().any(|line| line.contains("skipped: "));
            let tried = |figure| outcome.tally.figures.get(figure).copied().unwrap_or(0);
            for &(figure, there_are) in &listed {
                let (row, tried) = (outcome.row, tried(figure));
                let what =
                    format!("{figure} of row {row} {tried}, in the list (LEAST) {there_are}");
                self.say(&what, tried == there_are || left_out && tried < there_are);
            }
            if listed.iter().all(|(figure, _)| *figure != TRIED) && tried(TRIED) > 0 {
                let what = format!("{TRIED} of row {} in the list (LEAST)", outcome.row);
                self.say(&what, false);
            }
        }
    }

    /// Adds a goal.
    pub fn say(&mut self, what: &str, done: bool) {
        self.lines.push(format!("goal {what}: {}", if done { "as asked" } else { "MISSED" }));
        self.reached &= done;
    }

    /// The lines, and whether all was reached.
    #[must_use]
    pub fn end(self) -> (Vec<String>, bool) {
        (self.lines, self.reached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Tally;

    fn reached(row: &'static str, figure: &str, tried: u64, line: &str) -> bool {
        let mut tally = Tally::default();
        tally.add(figure, tried);
        tally.lines.extend((!line.is_empty()).then(|| line.to_owned()));
        let outcome = Outcome { row, tally, left: 0, seconds: 1.0 };
        let mut told = Told { lines: Vec::new(), reached: true };
        told.say_tried("object", &[outcome]);
        told.reached
    }

    #[test]
    fn the_list_knows_how_much_is_tried() {
        let (figure, there_are) = holdfast_evidence::least("object storm").next().unwrap();
        let storm = |tried, line| reached("storm", figure, tried, line);
        assert!(storm(there_are, ""));
        assert!(!storm(there_are - 1, "") && !storm(there_are + 1, ""), "the list is another's");
        assert!(storm(there_are - 1, "case 3 skipped: there is no such memory"));
        assert!(!reached("crash-single", TRIED, 3, ""), "it is in no list");
        assert!(reached("crash-single", "images", 3, ""));
    }
}
