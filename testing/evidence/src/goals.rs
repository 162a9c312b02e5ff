//! What all runs together should come to: one table, to which whoever adds a method adds a line or
//! a source.
//!
//! A source is a method and what is counted of it, under the names that the method itself writes
//! (`a: b` becomes `a b` in the list).

use crate::is_meant;
use crate::page::{Sum, Sums};

/// Something that is counted of a method.
#[derive(Debug, Clone, Copy)]
enum What {
    /// What its rows count.
    Count,
    /// How many such methods there are that counted something.
    Methods,
    /// What the method counts that counts least.
    Fewest,
    /// A figure of its rows.
    Figure(&'static str),
    /// A figure that says how many different ones there were: of runs alike, one counts.
    Distinct(&'static str),
    /// What the rows of whole runs count, in which nothing is drawn that could be gone through.
    Whole,
    /// A figure of these.
    WholeFigure(&'static str),
    /// Reports of damage where there was none.
    FalseReports,
    /// Legitimate bytes that a repair changed.
    Reverted,
}

/// A method, or all that begin with what stands before a `*`, and what is counted of it.
type Source = (&'static str, What);

/// How much is wanted.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    /// So many.
    Times(u64),
    /// As many as these count.
    All(&'static [Source]),
    /// Whatever there is: that it was run is what can be told from here.
    Run,
    /// None.
    None,
}

/// A figure, how much of it is wanted, and where it is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    figure: &'static str,
    wanted: Wanted,
    of: &'static [Source],
}

const fn goal(figure: &'static str, wanted: Wanted, of: &'static [Source]) -> Goal {
    Goal { figure, wanted, of }
}

use Wanted::{All, None as Zero, Run, Times};
use What::{Count, Distinct, FalseReports, Fewest, Figure, Methods, Reverted, Whole, WholeFigure};

/// Models that are gone through whole; those who run them hold this number against their list.
pub const LOOM_MODELS: u64 = 22;

/// What each target is to be fed at the least, and each drawn model to be run.
const FEWEST_EXECUTIONS: u64 = 100_000;
const FEWEST_SCHEDULES: u64 = 20_000;

/// Sequences of one and two steps in every setting: 5,632 on objects and maps, 2,496 on mapped
/// files.
const SEQUENCES: u64 = 5_632 + 2_496;

/// What is wanted.
#[rustfmt::skip]
pub(crate) const GOALS: &[Goal] = &[
    goal("distinct crash images, object store and mapped files", Times(5_000_000), &[
        ("object crash-single", Distinct("distinct images")),
        ("object crash-pairs", Distinct("distinct images")),
        ("object sequences", Distinct("distinct images")),
        ("mapped crash", Distinct("distinct images")),
        ("mapped sequences", Distinct("distinct images")),
    ]),
    goal("sequences of one and two operations, in every setting", Times(SEQUENCES), &[
        ("object sequences", WholeFigure("sequences of one step")),
        ("object sequences", WholeFigure("sequences of two steps")),
        ("mapped sequences", WholeFigure("sequences of one step")),
        ("mapped sequences", WholeFigure("sequences of two steps")),
    ]),
    goal("nested crash images", Times(200_000), &[
        ("object nested", Count),
        ("mapped crash", Figure("crash images of recoveries")),
    ]),
    goal("places switched off that were noticed", All(&[
        ("object mutants", Figure("mutants")),
        ("mapped mutants", Figure("wrong variants")),
    ]), &[
        ("object mutants", Figure("mutants killed")),
        ("mapped mutants", Figure("wrong variants convicted")),
    ]),
    goal("SIGKILL and reopen", Times(5_000), &[
        ("object sigkill", Count),
        ("mapped sigkill", Count),
    ]),
    goal("media errors healed under load", Times(1_000_000), &[
        ("object media", Figure("healed under threads")),
    ]),
    goal("losses of 2 MiB", Times(2_000), &[
        ("object large", Figure("losses of 2 MiB")),
    ]),
    goal("stray writes and bit flips found and healed", Times(5_000_000), &[
        ("object damage", Figure("named in the journal")),
        ("object storm", Figure("bit flips repaired")),
        ("object storm", Figure("stray writes repaired")),
        ("mapped damage", Figure("repaired")),
        ("mapped writers", Figure("repaired")),
    ]),
    goal("lost writes, all found", Times(300_000), &[
        ("object lost", Figure("lost, located")),
        ("object storm", Figure("lost writes detected")),
    ]),
    goal("misdirected writes, all found", Times(300_000), &[
        ("object lost", Figure("misdirected, located")),
        ("object storm", Figure("misdirected writes detected")),
    ]),
    goal("torn writes, all found", Times(300_000), &[
        ("object lost", Figure("torn, located")),
        ("object storm", Figure("torn writes detected")),
    ]),
    goal("stale places, all found", Times(300_000), &[
        ("object lost", Figure("stale, located")),
        ("object storm", Figure("stale places detected")),
    ]),
    goal("beyond tolerance: contained, nothing wrong served", Times(300_000), &[
        ("object beyond", Count),
        ("object storm", Figure("beyond tolerance faults")),
    ]),
    goal("every field, 8 verbs, 5 uses", Run, &[
        ("object fields", Whole),
        ("mapped fields", Whole),
        ("mapped pointers", Whole),
    ]),
    goal("fuzz executions", Times(100_000_000), &[("fuzz *", Count)]),
    goal("of these, of the target that has fewest", Times(FEWEST_EXECUTIONS), &[
        ("fuzz *", Fewest),
    ]),
    goal("loom models", Times(LOOM_MODELS), &[("models loom *", Methods)]),
    goal("shuttle schedules", Times(10_000_000), &[("models shuttle *", Count)]),
    goal("of these, of the model that has fewest", Times(FEWEST_SCHEDULES), &[
        ("models shuttle *", Fewest),
    ]),
    goal("power cuts and kernel crashes on fs-dax", Times(150), &[
        ("lab cuts", Count),
        ("lab cuts-mapped", Count),
    ]),
    goal("images of block-write logs, ext4 and xfs", Times(10_000), &[
        ("lab blocklog", Count),
        ("lab blocklog-mapped", Count),
    ]),
    goal("the same damage to another library's pools", Run, &[("bench damage", Count)]),
    goal("wrong variants of what checkers check, convicted", All(&[
        ("*", Figure("wrong variants")),
        ("object histories", Figure("wrong ones")),
    ]), &[
        ("*", Figure("wrong variants convicted")),
        ("object histories", Figure("wrong ones convicted")),
    ]),
    goal("false reports that are open", Zero, &[("*", FalseReports)]),
    goal("reverted bytes that are open", Zero, &[("*", Reverted)]),
];

impl What {
    fn of(self, sum: &Sum) -> u64 {
        match self {
            Count | Fewest => sum.count,
            Methods => u64::from(sum.count > 0),
            Figure(name) => sum.figures.get(name).copied().unwrap_or(0),
            Distinct(name) => sum.distinct(name),
            Whole => sum.whole.count,
            WholeFigure(name) => sum.whole.figures.get(name).copied().unwrap_or(0),
            FalseReports => sum.false_reports.unwrap_or(0),
            Reverted => sum.reverted.unwrap_or(0),
        }
    }
}

fn reckon(sources: &[Source], sums: &Sums<'_>) -> u64 {
    let of = |(pattern, what): &Source| {
        let methods = sums.iter().filter(|(method, _)| is_meant(pattern, method));
        let each = methods.map(|(_, sum)| what.of(sum));
        if matches!(what, Fewest) { each.min().unwrap_or(0) } else { each.sum::<u64>() }
    };
    sources.iter().map(of).sum()
}

fn named((method, what): &Source) -> String {
    match what {
        Figure(name) | Distinct(name) => format!("`{method}`: {name}"),
        WholeFigure(name) => format!("`{method}`, tier long: {name}"),
        Whole => format!("`{method}`, tier long"),
        Methods => format!("`{method}`: how many"),
        Fewest => format!("`{method}`: the least"),
        Count | FalseReports | Reverted => format!("`{method}`"),
    }
}

impl Goal {
    /// Whether there may be none.
    pub(crate) const fn is_of_none(&self) -> bool {
        matches!(self.wanted, Zero)
    }

    /// The goal as a line of a table.
    pub(crate) fn line(&self, sums: &Sums<'_>) -> String {
        let reached = reckon(self.of, sums);
        let (wanted, done) = match self.wanted {
            Times(times) => (times.to_string(), reached >= times),
            All(of) => {
                let all = reckon(of, sums);
                (format!("all of {all}"), all > 0 && reached >= all)
            }
            Run => ("all".to_owned(), reached > 0),
            Zero => ("0".to_owned(), reached == 0),
        };
        let done = if done { "yes" } else { "no" };
        let of: Vec<String> = self.of.iter().map(named).collect();
        format!("| {} | {wanted} | {reached} | {done} | {} |", self.figure, of.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn sum(count: u64, figures: &[(&str, u64)]) -> Sum {
        let mut sum = Sum::default();
        sum.add(&row("seed 1, tier ci", count, figures));
        sum
    }

    fn row(how: &str, count: u64, figures: &[(&str, u64)]) -> crate::Row {
        let figures = figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        crate::Row { how: how.to_owned(), count, figures, ..crate::Row::default() }
    }

    #[test]
    fn different_things_are_counted_once_and_whole_runs_by_themselves() {
        let mut sum = Sum::default();
        for (how, n) in [("seed 1, tier ci", 5), ("seed 1, tier ci", 7), ("seed 2, tier long", 3)] {
            sum.add(&row(how, n, &[("x", n)]));
        }
        let sums = BTreeMap::from([("a", sum)]);
        let reached = |what| reckon(&[("a", what)], &sums);
        assert_eq!((reached(Figure("x")), reached(Distinct("x"))), (15, 10));
        assert_eq!((reached(Whole), reached(WholeFigure("x"))), (3, 3));
    }

    #[test]
    fn counts_and_figures_of_several_methods_are_added() {
        let goal = goal("f", Times(10), &[("a b", Count), ("a c", Figure("x")), ("d *", Count)]);
        let mut sums = BTreeMap::from([
            ("a b", sum(3, &[])),
            ("a c", sum(90, &[("x", 4)])),
            ("a", sum(7, &[])),
        ]);
        assert_eq!(goal.line(&sums), "| f | 10 | 7 | no | `a b`, `a c`: x, `d *` |");
        sums.insert("d e", sum(2, &[]));
        sums.insert("d f", sum(1, &[]));
        assert_eq!(goal.line(&sums), "| f | 10 | 10 | yes | `a b`, `a c`: x, `d *` |");
    }

    #[test]
    fn methods_are_counted_and_the_least_of_them_is_told() {
        let sums = BTreeMap::from([("a b", sum(3, &[])), ("a c", sum(0, &[])), ("d", sum(1, &[]))]);
        let reached = |what| reckon(&[("a *", what)], &sums);
        assert_eq!((reached(Methods), reached(Fewest)), (1, 0));
        assert_eq!(reckon(&[("x *", Fewest)], &sums), 0);
    }

    #[test]
    fn all_is_all_and_not_nothing_of_nothing() {
        let goal = goal("f", All(&[("*", Figure("tried"))]), &[("*", Figure("seen"))]);
        assert!(goal.line(&BTreeMap::new()).contains("| no |"));
        let sums = |seen| BTreeMap::from([("a", sum(1, &[("tried", 5), ("seen", seen)]))]);
        assert!(goal.line(&sums(4)).contains("| all of 5 | 4 | no |"));
        assert!(goal.line(&sums(5)).contains("| all of 5 | 5 | yes |"));
    }

    #[test]
    fn what_must_be_zero_is_not_done_above() {
        let goal = goal("f", Zero, &[("*", FalseReports)]);
        let sums = |n| BTreeMap::from([("a", Sum { false_reports: n, ..Sum::default() })]);
        assert!(goal.line(&sums(None)).contains("| 0 | 0 | yes |"));
        assert!(goal.line(&sums(Some(1))).contains("| 0 | 1 | no |"));
    }

    #[test]
    fn goals_have_different_names_and_no_bars() {
        let names: std::collections::BTreeSet<&str> =
            GOALS.iter().map(|goal| goal.figure).collect();
        assert_eq!(names.len(), GOALS.len());
        assert!(GOALS.iter().all(|goal| goal.line(&BTreeMap::new()).matches('|').count() == 6));
    }
}
