//! What the goals of both campaigns have in common: what was asked for, and that no row left
//! anything out for a reason that was not allowed.

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
