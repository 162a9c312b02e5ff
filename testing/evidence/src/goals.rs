//! What all runs together should come to: one table, to which whoever adds a method adds a line or
//! a source.
//!
//! A source is a method and what is counted of it, under the names that the method itself writes
//! (`a: b` becomes `a b` in the list).

use std::collections::BTreeMap;

use crate::least::{LEAST, least};
use crate::mended::{inputs, told};
use crate::{Row, is_meant, open};

/// Something that is counted of a method.
#[derive(Debug, Clone, Copy)]
enum What {
    /// What its rows count.
    Count,
    /// What those count that were run like this.
    CountOf(&'static str),
    /// How many such methods there are that counted something.
    Methods,
    /// What the method counts that counts least.
    Fewest,
    /// A figure of its rows.
    Figure(&'static str),
    /// A figure that says how many different ones there were: that of the largest run. Two runs
    /// may have met the same ones, whatever their seeds and tiers: nothing tells them apart.
    Distinct(&'static str),
    /// What the rows of whole runs count, in which nothing is drawn that could be gone through.
    Whole,
    /// A figure of these that says how many different ones there were: that of the largest run.
    DistinctWhole(&'static str),
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
    /// Of each source as many as the one beside it counts, in the newest run of each method.
    All(&'static [Source]),
    /// Whatever there is, of each source: that each was run is what can be told from here.
    Each,
    /// A run of each of these in which nothing was wrong, of all that there is of it: one that was
    /// never run is not missed by anything else here.
    OfEach(&'static [&'static str]),
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

use Wanted::{All, Each, None as Zero, OfEach, Times};
use What::{
    Count, CountOf, Distinct, DistinctWhole, FalseReports, Fewest, Figure, Methods, Reverted, Whole,
};

/// Models that are gone through whole; those who run them hold this number against their list.
pub const LOOM_MODELS: u64 = 27;

/// Every method whose runs this list is about, but for models, of which there is a number. Those
/// who run one hold its name against this.
const METHODS: &[&str] = &[
    "bench damage",
    "coverage open",
    "coverage parse",
    "coverage recovery",
    "coverage repair",
    "fuzz answers",
    "fuzz args",
    "fuzz check",
    "fuzz events",
    "fuzz logs",
    "fuzz maps",
    "fuzz messages",
    "fuzz open",
    "fuzz pointer",
    "fuzz repair",
    "fuzz side",
    "lab badblocks",
    "lab blocklog",
    "lab blocklog-mapped",
    "lab cuts",
    "lab cuts-mapped",
    "lab hwpoison",
    "lab keys",
    "lab stray",
    "lab strays",
    "lab track",
    "lab track-dax",
    "mapped crash",
    "mapped damage",
    "mapped fail-nth",
    "mapped fields",
    "mapped mutants",
    "mapped pointers",
    "mapped sequences",
    "mapped sigkill",
    "mapped writers",
    "models shuttle columns",
    "models shuttle engine",
    "models shuttle engine-file",
    "models shuttle group",
    "models shuttle group-reclaim",
    "models shuttle mapped",
    "models shuttle numbers",
    "models shuttle rings",
    "models shuttle rings-wrap",
    "object beyond",
    "object crash-pairs",
    "object crash-single",
    "object damage",
    "object fail-nth",
    "object fields",
    "object histories",
    "object large",
    "object lost",
    "object media",
    "object mutants",
    "object nested",
    "object sequences",
    "object sigkill",
    "object storm",
    "sanitize address",
    "sanitize thread",
    "system calls",
];

/// Methods that have no more to do in a long run.
const SHORT: &[&str] = &["mapped mutants", "object mutants"];

/// Those of a program that are not in the list: none, unless somebody has forgotten them.
#[must_use]
pub fn unlisted<'a>(family: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let methods = names.into_iter().map(|name| format!("{family} {name}"));
    methods.filter(|method| !METHODS.contains(&method.as_str())).collect()
}

/// What each target is to be fed at the least, and each drawn model to be run.
const FEWEST_EXECUTIONS: u64 = 100_000;
/// What all targets are to be fed together that do more than read one message: of those, millions
/// in a second are nothing.
const OTHER_EXECUTIONS: u64 = 2_500_000;
const FEWEST_SCHEDULES: u64 = 20_000;

/// Sequences of one and two steps in every setting: 8,448 on objects and maps, 3,120 on mapped
/// files.
const SEQUENCES: u64 = 8_448 + 3_120;

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
        ("object sequences", DistinctWhole("sequences of one step")),
        ("object sequences", DistinctWhole("sequences of two steps")),
        ("mapped sequences", DistinctWhole("sequences of one step")),
        ("mapped sequences", DistinctWhole("sequences of two steps")),
    ]),
    goal("nested crash images", Times(200_000), &[
        ("object nested", Count),
        ("mapped crash", Figure("crash images of recoveries")),
    ]),
    goal("places of pools and steps of passes switched off, all noticed", All(&[
        ("object mutants", Figure("sites")),
        ("mapped mutants", Figure("wrong variants")),
    ]), &[
        ("object mutants", Figure("sites killed")),
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
    goal("every field, 8 verbs, 5 uses", Each, &[
        ("object fields", Whole),
        ("mapped fields", Whole),
        ("mapped pointers", Whole),
    ]),
    goal("every call that can fail, refused once and for ever", Each, &[
        ("object fail-nth", Whole),
        ("mapped fail-nth", Whole),
        ("system calls", Whole),
    ]),
    goal("fuzz executions", Times(100_000_000), &[("fuzz *", Count)]),
    goal("of these, of the target that has fewest", Times(FEWEST_EXECUTIONS), &[
        ("fuzz *", Fewest),
    ]),
    goal("of these, of targets that read more than a message", Times(OTHER_EXECUTIONS), &[
        ("fuzz args", Count),
        ("fuzz check", Count),
        ("fuzz events", Count),
        ("fuzz logs", Count),
        ("fuzz maps", Count),
        ("fuzz open", Count),
        ("fuzz pointer", Count),
        ("fuzz repair", Count),
        ("fuzz side", Count),
    ]),
    goal("loom models", Times(LOOM_MODELS), &[("models loom *", Methods)]),
    goal("shuttle schedules", Times(10_000_000), &[("models shuttle *", Count)]),
    goal("of these, of the model that has fewest", Times(FEWEST_SCHEDULES), &[
        ("models shuttle *", Fewest),
    ]),
    goal("power cuts and kernel crashes on fs-dax", Times(150), &[
        ("lab cuts", Figure("crashes of the kernel")),
        ("lab cuts", Figure("killed while they worked")),
        ("lab cuts-mapped", Figure("crashes of the kernel")),
        ("lab cuts-mapped", Figure("killed while they worked")),
    ]),
    goal("images of block-write logs, ext4 and xfs", Times(10_000), &[
        ("lab blocklog", CountOf("ext4 and xfs")),
        ("lab blocklog-mapped", CountOf("ext4 and xfs")),
    ]),
    goal("the same damage to another library's pools", Times(1_000), &[("bench damage", Count)]),
    goal("wrong variants of what checkers check, convicted", All(&[
        ("*", Figure("wrong variants")),
        ("object histories", Figure("wrong ones")),
    ]), &[
        ("*", Figure("wrong variants convicted")),
        ("object histories", Figure("wrong ones convicted")),
    ]),
    goal("methods that have a run without a finding", OfEach(METHODS), &[]),
    goal("false reports that are open", Zero, &[("*", FalseReports)]),
    goal("reverted bytes that are open", Zero, &[("*", Reverted)]),
];

/// Runs by method.
type Runs = BTreeMap<String, Vec<Row>>;

fn by_method(rows: impl IntoIterator<Item = Row>) -> Runs {
    let mut runs = Runs::new();
    for row in rows {
        runs.entry(row.method.clone()).or_default().push(row);
    }
    runs
}

/// The runs that goals are reckoned from: of a source that can be looked at again, but for what is
/// open, which is so whatever its source.
#[derive(Debug)]
pub(crate) struct Done {
    /// Those in which nothing was wrong: what found something is, or was, to be done again.
    clean: Runs,
    /// Those in which something was, and is not shown to be mended.
    open: Runs,
    /// The newest of each method, whatever it found: one that missed some of all must not be left
    /// out for that. A single case is no such run, nor is one that was stopped.
    newest: Runs,
}

impl Done {
    pub(crate) fn new(rows: &[Row]) -> Self {
        let known = || rows.iter().filter(|row| row.is_known());
        let whole_run = |row: &&Row| row.case().is_none() && !row.was_stopped();
        let mut newest = by_method(known().filter(whole_run).cloned());
        newest.values_mut().for_each(|rows| drop(rows.drain(..rows.len() - 1)));
        // A case by itself is one of those that a run of all has, and counts there.
        let whole = |row: &&Row| row.is_clean() && row.case().is_none();
        let clean = by_method(once(known().filter(whole)));
        Self { clean, open: by_method(open(rows).into_iter().cloned()), newest }
    }
}

/// Of runs that were done again, the same source with the same seeds, the largest, as if no other
/// had been: how large one was is not always said of how it was run. Where inputs have numbers,
/// each of them counts, once.
pub(crate) fn once<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Row> {
    let mut same = BTreeMap::<_, Vec<&Row>>::new();
    for row in rows {
        let has_numbers = inputs(&row.how).is_some();
        let other = |part: &&str| !has_numbers || !part.starts_with("inputs ");
        let how: Vec<&str> = row.how.split(", ").filter(other).collect();
        same.entry((row.short_source(), &row.method, how, has_numbers)).or_default().push(row);
    }
    let largest = |rows: Vec<&Row>| {
        let numbered = rows.iter().filter_map(|row| inputs(&row.how)).collect::<Vec<_>>();
        let row = rows.into_iter().rev().max_by_key(|row| row.count).cloned()?;
        let count = if numbered.is_empty() { row.count } else { in_any(numbered) };
        Some(Row { count, ..row })
    };
    same.into_values().filter_map(largest).collect()
}

/// How many numbers are in any of these ranges.
fn in_any(mut ranges: Vec<(u64, u64)>) -> u64 {
    ranges.sort_unstable();
    let (mut count, mut end) = (0, 0);
    for (from, to) in ranges {
        count += to.saturating_sub(from.max(end));
        end = end.max(to);
    }
    count
}

impl What {
    /// What comes of runs of one method.
    fn of(self, runs: &[Row]) -> u64 {
        let whole = || runs.iter().filter(|row| row.is_whole());
        let figure = |row: &Row, name| row.figures.get(name).copied().unwrap_or(0);
        match self {
            Count | Fewest => runs.iter().map(|row| row.count).sum(),
            CountOf(like) => {
                let like = runs.iter().filter(|row| row.how.split(", ").any(|part| part == like));
                like.map(|row| row.count).sum()
            }
            Methods => u64::from(runs.iter().any(|row| row.count > 0)),
            Figure(name) => runs.iter().map(|row| figure(row, name)).sum(),
            Distinct(name) => runs.iter().map(|row| figure(row, name)).max().unwrap_or(0),
            Whole => whole().map(|row| row.count).sum(),
            DistinctWhole(name) => whole().map(|row| figure(row, name)).max().unwrap_or(0),
            FalseReports => runs.iter().filter_map(|row| row.false_reports).sum(),
            Reverted => runs.iter().filter_map(|row| row.reverted).sum(),
        }
    }
}

fn meant<'a>(runs: &'a Runs, pattern: &str) -> impl Iterator<Item = &'a [Row]> {
    let methods = runs.iter().filter(move |(method, _)| is_meant(pattern, method));
    methods.map(|(_, rows)| &rows[..])
}

fn reckon((pattern, what): &Source, runs: &Runs) -> u64 {
    let each = meant(runs, pattern).map(|rows| what.of(rows));
    if matches!(what, Fewest) { each.min().unwrap_or(0) } else { each.sum() }
}

/// How much there was of all, and how much was reached of that: what one method has too much of
/// makes up for nothing that another missed.
fn reckon_all(all: &[Source], reached: &[Source], runs: &Runs) -> (u64, u64) {
    let pairs = all.iter().zip(reached).flat_map(|((pattern, all), (_, reached))| {
        let there_are = |method: &str| match all {
            Figure(name) => least(method).find(|(known, _)| known == name).map_or(0, |(_, n)| n),
            _ => 0,
        };
        let run = runs.iter().filter(|(method, _)| is_meant(pattern, method));
        let run = run.map(|(method, rows)| (all.of(rows).max(there_are(method)), reached.of(rows)));
        let others = LEAST.iter().map(|(method, ..)| *method);
        let others =
            others.filter(|method| is_meant(pattern, method) && !runs.contains_key(*method));
        run.chain(others.map(|method| (there_are(method), 0))).collect::<Vec<_>>()
    });
    pairs.fold((0, 0), |sum, (all, reached)| (sum.0 + all, sum.1 + reached.min(all)))
}

fn named((method, what): &Source) -> String {
    match what {
        Figure(name) => format!("`{method}`: {name}"),
        Distinct(name) => format!("largest run of `{method}`: {name}"),
        DistinctWhole(name) => format!("largest run of `{method}`, tier long: {name}"),
        Whole => format!("`{method}`, tier long"),
        Methods => format!("`{method}`: how many"),
        Fewest => format!("`{method}`: the least"),
        Count | CountOf(_) | FalseReports | Reverted => format!("`{method}`"),
    }
}

impl Goal {
    /// The goal as a line of a table.
    pub(crate) fn line(&self, done: &Done) -> String {
        let of = |runs| self.of.iter().map(move |source| reckon(source, runs));
        let sum = of(&done.clean).sum::<u64>();
        let (wanted, reached, is_done) = match self.wanted {
            Times(times) => (times.to_string(), sum, sum >= times),
            All(all) => {
                let (all, reached) = reckon_all(all, self.of, &done.newest);
                (format!("all of {all}"), reached, all > 0 && reached >= all)
            }
            Each => ("all".to_owned(), sum, of(&done.clean).all(|reached| reached > 0)),
            OfEach(methods) => return self.line_of_each(methods, done),
            Zero => {
                let sum = of(&done.open).sum::<u64>();
                ("0".to_owned(), sum, sum == 0)
            }
        };
        let is_done = if is_done { "yes" } else { "no" };
        let newest = if matches!(self.wanted, All(_)) { "newest run of " } else { "" };
        let of: Vec<String> = self.of.iter().map(|it| format!("{newest}{}", named(it))).collect();
        format!("| {} | {wanted} | {reached} | {is_done} | {} |", self.figure, of.join(", "))
    }

    /// The same, with the names of those that were not run.
    fn line_of_each(&self, methods: &[&str], done: &Done) -> String {
        let is_whole = |row: &&Row| {
            let campaign = row.method.starts_with("object ") || row.method.starts_with("mapped ");
            let long = !campaign || row.is_long() || SHORT.contains(&row.method.as_str());
            let both = !row.method.starts_with("lab blocklog") || row.how.contains("ext4 and xfs");
            long && both && told(&row.how).is_none() && !row.was_stopped()
        };
        let was_run = |method: &&&str| {
            let mut runs = done.clean.get(**method).into_iter().flatten().filter(is_whole);
            runs.any(|row| row.count > 0)
        };
        let (run, missing): (Vec<&&str>, Vec<_>) = methods.iter().partition(was_run);
        let is_done = if missing.is_empty() { "yes" } else { "no" };
        let names: Vec<String> = missing.iter().map(|method| format!("`{method}`")).collect();
        let missing = if names.is_empty() { String::new() } else { ": not ".to_owned() };
        format!(
            "| {} | all of {} | {} | {is_done} | each{missing}{} |",
            self.figure,
            methods.len(),
            run.len(),
            names.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(method: &str, how: &str, count: u64, figures: &[(&str, u64)]) -> Row {
        let figures = figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let (method, how) = (method.to_owned(), how.to_owned());
        Row { method, how, count, figures, ..Row::default() }
    }

    fn line(goal: &Goal, rows: &[Row]) -> String {
        goal.line(&Done::new(rows))
    }

    #[test]
    fn what_is_wanted_of_two_file_systems_is_not_had_of_one() {
        let of = CountOf("ext4 and xfs");
        let runs = [("seed 1, ext4 and xfs", 3), ("seed 2, ext4", 50), ("seed 1, xfs", 50)];
        let rows = runs.map(|(how, count)| row("lab blocklog", how, count, &[]));
        assert_eq!(of.of(&rows), 3);
    }

    #[test]
    fn a_case_by_itself_adds_nothing() {
        let whole = row("object media", "seed 1, tier long", 7, &[]);
        let case = row("object media", "seed 1, tier long, case 3", 5, &[]);
        let done = Done::new(&[whole, case]);
        assert_eq!(reckon(&("object media", Count), &done.clean), 7);
    }

    #[test]
    fn a_method_that_nobody_ran_or_that_only_found_something_is_named() {
        const TWO: &[&str] = &["a", "b"];
        let goal = goal("f", OfEach(TWO), &[]);
        let (a, b) = (row("a", "seed 1", 2, &[]), row("b", "seed 1", 0, &[]));
        let bad = Row { violations: 1, ..row("b", "seed 2", 1, &[]) };
        let single = row("b", "seed 1, case 7", 1, &[]);
        let missing = "| f | all of 2 | 1 | no | each: not `b` |";
        assert_eq!(line(&goal, &[a.clone(), b.clone(), bad, single]), missing);
        let b = Row { count: 1, ..b };
        assert_eq!(line(&goal, &[a, b]), "| f | all of 2 | 2 | yes | each |");
    }

    #[test]
    fn a_part_of_a_method_is_no_run_of_it() {
        const TWO: &[&str] = &["object media", "sanitize thread"];
        let goal = goal("f", OfEach(TWO), &[]);
        let parts = [
            row("object media", "seed 1, tier ci", 2, &[]),
            row("object media", "seed 1, tier long, stopped after 5 s", 2, &[]),
            row("sanitize thread", "a b, told one_test", 1, &[]),
        ];
        assert!(line(&goal, &parts).contains("| all of 2 | 0 | no |"), "{}", line(&goal, &parts));
        let whole = [
            row("object media", "seed 1, tier long", 2, &[]),
            row("sanitize thread", "a b", 1, &[]),
        ];
        assert!(line(&goal, &whole).contains("| all of 2 | 2 | yes |"));
    }

    #[test]
    fn what_an_earlier_source_had_fewer_of_is_missed() {
        let goal = goal(
            "f",
            All(&[("object mutants", Figure("sites"))]),
            &[("object mutants", Figure("sites killed"))],
        );
        let (_, _, there_are) = LEAST.iter().find(|(name, ..)| *name == "object mutants").unwrap();
        let of = |sites| {
            row("object mutants", "seed 1", 1, &[("sites", sites), ("sites killed", sites)])
        };
        let told = |rows: &[Row]| line(&goal, rows);
        assert!(told(&[]).contains(&format!("| all of {there_are} | 0 | no |")), "{}", told(&[]));
        assert!(told(&[of(there_are - 1)]).contains("| no |"));
        assert!(told(&[of(*there_are)]).contains("| yes |"));
    }

    #[test]
    fn names_are_told_that_nobody_listed() {
        assert_eq!(unlisted("object", ["lost", "found"]), ["object found"]);
        let mut sorted = METHODS.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted, METHODS);
    }

    fn reached(source: Source, rows: &[Row]) -> u64 {
        reckon(&source, &Done::new(rows).clean)
    }

    #[test]
    fn of_different_things_the_largest_run_counts_whatever_its_seed_and_tier() {
        let runs = [("seed 1, tier ci", 5), ("seed 1, tier long", 3), ("seed 2, tier ci", 4)];
        let mut rows = runs.map(|(how, n)| row("a", how, n, &[("x", n)])).to_vec();
        rows.push(row("b", "seed 1, tier ci", 1, &[("x", 1)]));
        assert_eq!(reached(("a", Figure("x")), &rows), 12);
        assert_eq!(reached(("a", Distinct("x")), &rows), 5);
        assert_eq!(reached(("*", Distinct("x")), &rows), 6, "methods do different things");
    }

    #[test]
    fn two_half_runs_are_no_whole_one() {
        let halves = [1, 2].map(|seed| {
            row("a", &format!("seed {seed}, tier long"), 1, &[("sequences", SEQUENCES / 2)])
        });
        let goal = goal("f", Times(SEQUENCES), &[("a", DistinctWhole("sequences"))]);
        let (all, half) = (SEQUENCES, SEQUENCES / 2);
        let told = line(&goal, &halves);
        assert!(told.contains(&format!("| {all} | {half} | no |")), "{told}");
        let whole = row("a", "seed 1, tier long", 1, &[("sequences", SEQUENCES)]);
        assert!(line(&goal, &[whole]).contains(&format!("| {all} | {all} | yes |")));
    }

    #[test]
    fn short_runs_and_single_cases_are_not_whole() {
        let runs = [("seed 1, tier ci", 7), ("seed 2, tier long", 3), ("seed 3, tier long", 4)];
        let mut rows = runs.map(|(how, n)| row("a", how, n, &[("x", n)])).to_vec();
        rows.push(row("a", "seed 3, tier long, case 4", 9, &[("x", 9)]));
        let reached = |what| reached(("a", what), &rows);
        assert_eq!((reached(Whole), reached(DistinctWhole("x"))), (7, 4));
    }

    #[test]
    fn counts_and_figures_of_several_methods_are_added() {
        let goal = goal("f", Times(10), &[("a b", Count), ("a c", Figure("x")), ("d *", Count)]);
        let mut rows =
            vec![row("a b", "", 3, &[]), row("a c", "", 90, &[("x", 4)]), row("a", "", 7, &[])];
        assert_eq!(line(&goal, &rows), "| f | 10 | 7 | no | `a b`, `a c`: x, `d *` |");
        rows.extend([row("d e", "", 2, &[]), row("d f", "", 1, &[])]);
        assert_eq!(line(&goal, &rows), "| f | 10 | 10 | yes | `a b`, `a c`: x, `d *` |");
    }

    #[test]
    fn the_same_run_twice_counts_once() {
        let of = |commit: &str, how| Row { commit: commit.to_owned(), ..row("a", how, 3, &[]) };
        let rows = [of("1", "seed 1"), of("1", "seed 1"), of("1", "seed 2"), of("2", "seed 1")];
        assert_eq!(reached(("a", Count), &rows), 9);
    }

    #[test]
    fn of_runs_that_were_done_again_the_largest_counts_with_its_figures() {
        let of = |count| row("models shuttle a", "seed 1", count, &[("x", 2 * count)]);
        for sizes in [[20, 500, 30], [500, 20, 30]] {
            let rows = sizes.map(of);
            assert_eq!(reached(("models shuttle *", Count), &rows), 500);
            assert_eq!(reached(("models shuttle *", Figure("x")), &rows), 1000);
        }
        let bad = Row { violations: 1, ..of(900) };
        assert_eq!(reached(("*", Count), &[of(20), bad]), 20, "it found something");
    }

    #[test]
    fn inputs_that_have_numbers_count_once_each() {
        let fuzz = |commit: &str, seed: u64, from: u64, to: u64| Row {
            commit: commit.to_owned(),
            ..row("fuzz a", &format!("seed {seed}, inputs {from} to {to}"), to - from, &[])
        };
        let reached = |rows: &[Row]| reached(("fuzz *", Count), rows);
        let one = fuzz("1", 2, 0, 100);
        assert_eq!(reached(&[one.clone(), fuzz("1", 2, 0, 130)]), 130, "the end differs");
        assert_eq!(reached(&[fuzz("1", 2, 0, 130), one.clone()]), 130);
        assert_eq!(reached(&[one.clone(), fuzz("1", 2, 100, 130)]), 130, "it went on");
        assert_eq!(reached(&[fuzz("1", 2, 90, 130), one.clone()]), 130, "from before the end");
        assert_eq!(reached(&[fuzz("1", 2, 200, 230), one.clone()]), 130, "some were left out");
        assert_eq!(reached(&[one.clone(), fuzz("1", 2, 20, 30), fuzz("1", 2, 40, 110)]), 110);
        assert_eq!(reached(&[one.clone(), fuzz("1", 3, 0, 130)]), 230, "another seed");
        assert_eq!(reached(&[one.clone(), fuzz("2", 2, 0, 130)]), 230, "another source");
        let unnumbered = row("fuzz a", "libFuzzer, AddressSanitizer", 7, &[]);
        let unnumbered = Row { commit: "1".to_owned(), ..unnumbered };
        assert_eq!(reached(&[one, unnumbered.clone(), unnumbered]), 107);
    }

    #[test]
    fn what_nobody_can_look_at_again_reaches_nothing() {
        let of = |commit: &str, count| Row { commit: commit.to_owned(), ..seen("a", 5, count) };
        for commit in ["unknown", "abc+ tree 1", "6d66ca4"] {
            let lost = of(commit, 5);
            assert_eq!(reached(("a", Count), std::slice::from_ref(&lost)), 0, "{commit}");
            let rows = [of("abc tree 1", 4), lost];
            assert!(line(&SEEN, &rows).contains("| all of 5 | 4 | no |"), "{commit}");
            let bad = Row { false_reports: Some(1), ..of(commit, 5) };
            let goal = goal("f", Zero, &[("*", FalseReports)]);
            assert!(line(&goal, &[bad]).contains("| 0 | 1 | no |"), "{commit}: it is open");
        }
    }

    #[test]
    fn methods_are_counted_and_the_least_of_them_is_told() {
        let rows = [row("a b", "", 3, &[]), row("a c", "", 0, &[]), row("d", "", 1, &[])];
        assert_eq!(reached(("a *", Methods), &rows), 1);
        assert_eq!(reached(("a *", Fewest), &rows), 0);
        assert_eq!(reached(("x *", Fewest), &rows), 0);
    }

    #[test]
    fn of_all_that_are_wanted_each_has_to_be_run_whole() {
        let goal = goal("f", Each, &[("a", Whole), ("b", Whole)]);
        let long = |method| row(method, "seed 1, tier long", 2, &[]);
        assert!(line(&goal, &[long("a")]).contains("| all | 2 | no |"), "b was not run");
        let case = row("b", "seed 1, tier long, case 7", 1, &[]);
        assert!(line(&goal, &[long("a"), case]).contains("| all | 2 | no |"), "one case of b");
        let bad = Row { violations: 1, ..long("b") };
        assert!(line(&goal, &[long("a"), bad]).contains("| all | 2 | no |"), "b found something");
        assert!(line(&goal, &[long("a"), long("b")]).contains("| all | 4 | yes |"));
    }

    const SEEN: Goal = goal("f", All(&[("*", Figure("tried"))]), &[("*", Figure("seen"))]);

    fn seen(method: &str, tried: u64, seen: u64) -> Row {
        // Whoever missed one has found something wrong: the checker.
        let violations = tried.saturating_sub(seen);
        Row { violations, ..row(method, "seed 1", 1, &[("tried", tried), ("seen", seen)]) }
    }

    #[test]
    fn all_is_all_and_not_nothing_of_nothing() {
        assert!(line(&SEEN, &[]).contains("| no |"));
        assert!(line(&SEEN, &[seen("a", 5, 4)]).contains("| all of 5 | 4 | no |"));
        assert!(line(&SEEN, &[seen("a", 5, 5)]).contains("| all of 5 | 5 | yes |"));
    }

    #[test]
    fn of_all_the_newest_run_of_each_method_tells() {
        let mut rows = vec![seen("a", 5, 5), seen("b", 3, 3), seen("a", 6, 6)];
        assert!(line(&SEEN, &rows).contains("| all of 9 | 9 | yes |"), "the same ones, once");
        rows.push(seen("a", 6, 5));
        assert!(line(&SEEN, &rows).contains("| all of 9 | 8 | no |"), "one was missed");
        rows.push(Row { how: "seed 1, case 2".to_owned(), ..seen("a", 1, 1) });
        assert!(line(&SEEN, &rows).contains("| all of 9 | 8 | no |"), "a single case");
        rows.push(seen("a", 6, 6));
        assert!(line(&SEEN, &rows).contains("| all of 9 | 9 | yes |"), "now it is not");
    }

    #[test]
    fn what_one_method_has_too_much_of_makes_up_for_nothing() {
        let rows = [seen("a", 5, 4), seen("b", 0, 7)];
        assert!(line(&SEEN, &rows).contains("| all of 5 | 4 | no |"), "{}", line(&SEEN, &rows));
    }

    #[test]
    fn what_must_be_zero_is_not_done_above() {
        let goal = goal("f", Zero, &[("*", FalseReports)]);
        let of = |false_reports| [Row { false_reports, ..row("a", "", 1, &[]) }];
        assert!(line(&goal, &of(None)).contains("| 0 | 0 | yes |"));
        assert!(line(&goal, &of(Some(1))).contains("| 0 | 1 | no |"));
    }

    #[test]
    fn goals_have_different_names_and_no_bars() {
        let names: std::collections::BTreeSet<&str> =
            GOALS.iter().map(|goal| goal.figure).collect();
        assert_eq!(names.len(), GOALS.len());
        assert!(GOALS.iter().all(|goal| line(goal, &[]).matches('|').count() == 6));
    }

    #[test]
    fn what_all_are_stands_beside_what_is_reached_of_the_same_method() {
        for goal in GOALS {
            let All(all) = goal.wanted else { continue };
            let methods = |of: &[Source]| of.iter().map(|(method, _)| *method).collect::<Vec<_>>();
            assert_eq!(methods(all), methods(goal.of), "{}", goal.figure);
        }
    }
}
