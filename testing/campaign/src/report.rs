//! What is printed: a line for each row, its figures, a replay command for each violation, and at
//! the end a ledger line and how many rows passed.

use std::fmt::Write;

use holdfast_evidence::Row;

use crate::mapped::ledger::Ledger;
use crate::runner::{Outcome, Plan, Tier, replay};
use crate::tally::Fault;

/// Rows whose checkers would see that something undamaged is called damaged, and whether they would
/// see that a repair changes legitimate bytes. Of others only what they saw is told.
pub const SEE: &[(&str, &str, bool)] = &[
    ("object", "crash-single", false),
    ("object", "crash-pairs", false),
    ("object", "nested", false),
    ("object", "damage", true),
    ("object", "storm", false),
    ("object", "lost", true),
    ("object", "beyond", false),
    ("object", "fields", true),
    ("object", "histories", false),
    ("object", "sigkill", false),
    ("object", "media", true),
    ("object", "large", true),
    ("mapped", "crash", true),
    ("mapped", "sequences", true),
    ("mapped", "damage", true),
    ("mapped", "fail-nth", true),
    ("mapped", "fields", true),
    ("mapped", "pointers", true),
    ("mapped", "writers", true),
    ("mapped", "sigkill", true),
];

/// Violations told in full for each row.
const TOLD: usize = 10;

/// The lines of one row.
#[must_use]
pub fn row(outcome: &Outcome, plan: &Plan) -> String {
    let tally = &outcome.tally;
    let mut text = format!(
        "row {} count {} violations {} time {:.1} s\n",
        outcome.row,
        tally.count,
        tally.violated(),
        outcome.seconds
    );
    // Writing into a string cannot fail.
    for line in &tally.lines {
        let _ = writeln!(text, "    {line}");
    }
    for (figure, value) in &tally.figures {
        let _ = writeln!(text, "    {figure}: {value}");
    }
    if outcome.left > 0 {
        let _ = writeln!(text, "    stopped: {} cases were left", outcome.left);
    }
    for violation in tally.violations.iter().take(TOLD) {
        let _ = writeln!(text, "    violation ({:?}): {}", violation.fault, violation.story);
        let _ = writeln!(text, "      replay: {}", replay(outcome.row, plan, violation.case));
    }
    if tally.violated() > TOLD as u64 {
        let _ = writeln!(text, "    and {} more", tally.violated() - TOLD as u64);
    }
    text
}

/// The ledger line and the last line.
#[must_use]
pub fn closing(outcomes: &[Outcome], plan: &Plan) -> String {
    let failed = outcomes.iter().filter(|outcome| outcome.tally.violated() > 0).count();
    let mut text = ledger(outcomes, plan);
    let _ = writeln!(text, "{} passed, {failed} failed", outcomes.len() - failed);
    text
}

/// One line for the ledger: seed, tier, counts, violations, time.
fn ledger(outcomes: &[Outcome], plan: &Plan) -> String {
    let tier = if plan.tier == Tier::Ci { "ci" } else { "long" };
    let counts: Vec<String> =
        outcomes.iter().map(|o| format!("{} {}", o.row, o.tally.count)).collect();
    let violations: u64 = outcomes.iter().map(|o| o.tally.violated()).sum();
    let seconds: f64 = outcomes.iter().map(|o| o.seconds).sum();
    format!(
        "ledger {} tier {tier} seed {} | {} | violations {violations} | {seconds:.0} s\n",
        plan.campaign,
        plan.seed,
        counts.join(", ")
    )
}

/// The whole report as one JSON value, with lines about its goals.
#[must_use]
pub fn json(outcomes: &[Outcome], plan: &Plan, goals: &[String]) -> String {
    let failed = outcomes.iter().filter(|outcome| outcome.tally.violated() > 0).count();
    let report = serde_json::json!({
        "campaign": plan.campaign,
        "seed": plan.seed,
        "tier": if plan.tier == Tier::Ci { "ci" } else { "long" },
        "rows": outcomes,
        "goals": goals,
        "passed": outcomes.len() - failed,
        "failed": failed,
        "ledger": ledger(outcomes, plan).trim_end(),
    });
    report.to_string()
}

/// The row of an outcome for the list of what was run.
#[must_use]
pub fn evidence(outcome: &Outcome, plan: &Plan, commit: &str) -> Row {
    let tally = &outcome.tally;
    let mut figures = tally.figures.clone();
    // What the rows of mapped files count is in one line, and only what is more than nothing is
    // of interest; what must be nothing has columns of its own.
    for part in tally.lines.iter().flat_map(|line| line.split(", ")) {
        if let Some((name, value)) = part.rsplit_once(' ')
            && let Ok(value) = value.parse::<u64>()
            && value > 0
            && Ledger::NAMES.contains(&name)
        {
            figures.insert(name.to_owned(), value);
        }
    }
    let seen =
        SEE.iter().find(|(campaign, row, _)| (*campaign, *row) == (plan.campaign, outcome.row));
    // What mapped files count says how many bytes, and a violation that there were any.
    let column = |counted: Option<u64>, fault: Fault, sees: bool| {
        let count = counted.unwrap_or(0).max(tally.of(fault));
        (sees || count > 0).then_some(count)
    };
    let false_reports = column(figures.remove("false reports"), Fault::FalseReport, seen.is_some());
    let reverted = column(
        figures.remove("reverted bytes"),
        Fault::Reverted,
        seen.is_some_and(|(.., reverted)| *reverted),
    );
    let tier = if plan.tier == Tier::Ci { "ci" } else { "long" };
    let case = plan.only.map_or_else(String::new, |case| format!(", case {case}"));
    let left = outcome.left;
    if left > 0 {
        // Some are kept for the goals of the row, which takes them out; and there are none of all.
        figures.clear();
    }
    let stopped =
        if left > 0 { format!(", stopped with {left} cases left") } else { String::new() };
    Row {
        commit: commit.to_owned(),
        method: format!("{} {}", plan.campaign, outcome.row),
        how: format!("seed {}, tier {tier}{case}{stopped}", plan.seed),
        count: tally.count,
        violations: tally.violated(),
        false_reports,
        reverted,
        seconds: outcome.seconds.round() as u64,
        figures,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::{Tally, Violation};

    fn columns(
        campaign: &'static str,
        row: &'static str,
        faults: &[Fault],
    ) -> (Option<u64>, Option<u64>) {
        let mut tally = Tally::default();
        if campaign == "mapped" {
            Ledger { reverted: 4_096, ..Ledger::default() }.note(&mut tally);
            Ledger::finish(&mut tally);
        }
        faults.iter().for_each(|fault| tally.convict(Violation::new(*fault, "planted")));
        let plan = Plan {
            campaign,
            seed: 1,
            tier: Tier::Ci,
            threads: 1,
            only: None,
            progress: false,
            stop: || false,
        };
        let row = evidence(&Outcome { row, tally, left: 0, seconds: 1.0 }, &plan, "abc");
        assert!(!row.figures.contains_key("reverted bytes"));
        (row.false_reports, row.reverted)
    }

    #[test]
    fn what_is_convicted_of_either_sort_is_in_its_column() {
        use Fault::{Exposed, FalseReport, Reverted};
        assert_eq!(columns("object", "damage", &[]), (Some(0), Some(0)));
        assert_eq!(columns("object", "damage", &[FalseReport, Exposed]), (Some(1), Some(0)));
        assert_eq!(columns("object", "damage", &[Reverted, FalseReport]), (Some(1), Some(1)));
        assert_eq!(columns("object", "histories", &[Exposed]), (Some(0), None));
    }

    #[test]
    fn who_cannot_see_such_a_thing_says_so_until_it_does() {
        assert_eq!(columns("object", "fail-nth", &[]), (None, None));
        assert_eq!(columns("object", "fail-nth", &[Fault::FalseReport]), (Some(1), None));
        assert_eq!(columns("mapped", "mutants", &[]), (None, Some(4_096)));
    }

    #[test]
    fn bytes_that_were_counted_are_not_counted_once_more_as_violations() {
        assert_eq!(columns("mapped", "writers", &[Fault::Reverted]), (Some(0), Some(4_096)));
    }
}
