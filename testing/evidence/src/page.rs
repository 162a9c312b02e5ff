//! The list as a page: an introduction, goals, sums, and a table with a row for each run.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, bail, ensure};

use crate::goals::{Done, GOALS};
use crate::mended::inputs;
use crate::{Row, SHARE, open};

/// No run counts as far: the sum of as many rows as there can be is a number still.
const NUMBER_END: u64 = 1 << 48;
/// Inputs that may be under way when a run ends.
const UNDER_WAY: u64 = 1 << 10;

const OPENING: &str = "\
# What was run

Each row was added by the program that ran it (`--ledger`), none by hand. Two columns must be zero
in all that is open: pages that were called corrupt and were not damaged, and legitimate bytes that
a repair changed. The sums keep what was found and has been mended since. What a method does is told
in [testing.md](testing.md).
";
/// What was said there before: a page of then is read, and says the words above once it is written.
const EARLIER: &str = "\
# What was run

Each row was added by the program that ran it (`--ledger`), none by hand. Two columns must be zero
everywhere: pages that were called corrupt and were not damaged, and legitimate bytes that a repair
changed. What a method does is told in [testing.md](testing.md).
";
const GOALS_HEAD: &str = "## Goals";
const GOALS_WORDS: &str = "\
What all runs together should come to, and what they have. Runs count in which nothing was wrong, of
a source that is in the history; of those that were done again of the same source with the same
seeds the largest, and no numbered input twice. Where all of something is wanted, the newest run of
each method counts, whatever it found; of campaigns against what there is in the source as it is
now. A method has a run if nothing of it was left out: of campaigns that is one of the long tier.
Different images or sequences are those of the largest run of each method: another may have met the
same ones. A `-` in the columns that must be zero stands for a method that cannot see such a thing.
";
const GOALS_EARLIER: &str = "\
What all runs together should come to, and what they have. A `-` in the columns that must be zero
stands for a method that cannot see such a thing.
What all runs together should come to, and what they have. Runs count in which nothing was wrong;
where all of something is wanted, the newest run of each method, whatever it found. Different images
or sequences are those of the largest run of each method: another may have met the same ones. A `-`
in the columns that must be zero stands for a method that cannot see such a thing.
What all runs together should come to, and what they have. Runs count in which nothing was wrong,
one that was done again of the same source with the same seeds once; where all of something is
wanted, the newest run of each method, whatever it found. Different images or sequences are those of
the largest run of each method: another may have met the same ones. A `-` in the columns that must
be zero stands for a method that cannot see such a thing.
What all runs together should come to, and what they have. Runs count in which nothing was wrong, of
a source that is in the history; of those that were done again of the same source with the same
seeds the largest, and no numbered input twice. Where all of something is wanted, the newest run of
each method counts, whatever it found. Different images or sequences are those of the largest run of
each method: another may have met the same ones. A `-` in the columns that must be zero stands for a
method that cannot see such a thing.
What all runs together should come to, and what they have. Runs count in which nothing was wrong, of
a source that is in the history; of those that were done again of the same source with the same
seeds the largest, and no numbered input twice. Where all of something is wanted, the newest run of
each method counts, whatever it found, against what there is in the source as it is now. A method
has a run if nothing of it was left out: of campaigns that is one of the long tier. Different images
or sequences are those of the largest run of each method: another may have met the same ones. A `-`
in the columns that must be zero stands for a method that cannot see such a thing.
";
const GOALS_TABLE: &str = "| figure | wanted | reached | done | counted of |";
const OPEN: &str =
    "Open rows, in which something was wrong that no later run has shown to be mended: ";
const SUMS: &str = "## Sums";
const RUNS: &str = "## Runs";
const HEAD: &str = "| commit | method | how | count | violations | false reports | reverted bytes \
                    | seconds | figures |";

/// What is in the list.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) rows: Vec<Row>,
}

/// What all runs of a method come to.
#[derive(Debug, Default)]
struct Sum {
    runs: u64,
    count: u64,
    violations: u64,
    false_reports: Option<u64>,
    reverted: Option<u64>,
    seconds: u64,
    figures: BTreeMap<String, u64>,
}

impl Sum {
    /// Adds a run.
    fn add(&mut self, row: &Row) {
        let add = |sum: &mut Option<u64>, of: Option<u64>| {
            *sum = of.map_or(*sum, |of| Some(sum.unwrap_or(0) + of));
        };
        self.runs += 1;
        self.count += row.count;
        self.violations += row.violations;
        add(&mut self.false_reports, row.false_reports);
        add(&mut self.reverted, row.reverted);
        self.seconds += row.seconds;
        for (name, value) in row.figures.iter().filter(|(name, _)| !name.ends_with(SHARE)) {
            *self.figures.entry(name.clone()).or_default() += value;
        }
    }
}

impl Page {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (sums, runs) = text.split_once(RUNS).context("it has no table of runs")?;
        let mut lines = runs.lines().filter(|line| !line.is_empty());
        ensure!(lines.next() == Some(HEAD), "the table of runs has another head");
        ensure!(lines.next().is_some_and(|line| line.starts_with("|---")), "it has no rule");
        let rows = lines.map(|line| row(line).with_context(|| format!("not a run: {line}")));
        let page = Self { rows: rows.collect::<Result<_>>()? };
        // Whatever somebody changed or added by hand would be lost, so it is not touched.
        let opened = sums.strip_prefix(OPENING).or_else(|| sums.strip_prefix(EARLIER));
        let goals = opened.and_then(|rest| rest.split_once(SUMS));
        let (goals, _) = goals.context("it does not begin like the list")?;
        let ours = |line: &str| {
            let words = GOALS_WORDS.lines().chain(GOALS_EARLIER.lines()).any(|words| words == line);
            words || line.is_empty() || line == GOALS_HEAD || line.starts_with(['|', 'O'])
        };
        // What is wanted changes with the work: a page from before has other goals, or none.
        ensure!(goals.lines().all(ours), "somebody has changed its goals by hand");
        ensure!(text.ends_with(&page.reckoned()), "somebody has changed it by hand");
        Ok(page)
    }

    pub(crate) fn text(&self) -> String {
        format!("{OPENING}\n{}\n{}", self.goals(), self.reckoned())
    }

    /// What the runs should come to.
    fn goals(&self) -> String {
        let done = Done::new(&self.rows);
        let mut text = format!("{GOALS_HEAD}\n\n{GOALS_WORDS}\n{GOALS_TABLE}\n");
        text.push_str("|---|---|---|---|---|\n");
        for goal in GOALS {
            let _ = writeln!(text, "{}", goal.line(&done));
        }
        let _ = writeln!(text, "\n{OPEN}{}.", open(&self.rows).len());
        text
    }

    /// Sums and runs.
    fn reckoned(&self) -> String {
        let mut text = format!("{SUMS}\n\n");
        text.push_str("| method | runs | count | violations | false reports | reverted bytes ");
        text.push_str("| hours | figures |\n|---|---|---|---|---|---|---|---|\n");
        // Writing into a string cannot fail.
        for (method, sum) in sums_of(&self.rows) {
            let hours = sum.seconds as f64 / 3600.0;
            let _ = writeln!(
                text,
                "| {method} | {} | {} | {} | {} | {} | {hours:.1} | {} |",
                sum.runs,
                sum.count,
                sum.violations,
                seen(sum.false_reports),
                seen(sum.reverted),
                figures(&sum.figures)
            );
        }
        let _ = write!(text, "\n{RUNS}\n\n{HEAD}\n|---|---|---|---|---|---|---|---|---|\n");
        for row in &self.rows {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                cell(&row.commit),
                cell(&row.method),
                cell(&row.how),
                row.count,
                row.violations,
                seen(row.false_reports),
                seen(row.reverted),
                row.seconds,
                figures(&row.figures)
            );
        }
        text
    }
}

/// Sums by method.
fn sums_of(rows: &[Row]) -> BTreeMap<&str, Sum> {
    let mut sums = BTreeMap::<&str, Sum>::new();
    for row in rows {
        sums.entry(&row.method).or_default().add(row);
    }
    sums
}

/// A number that a method may not be able to give.
fn seen(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// Text that does not end its cell.
fn cell(text: &str) -> String {
    text.replace(['|', '\n'], " ").trim().to_owned()
}

/// The same row with names of figures as they are in the list: they have none of the marks that
/// come between names and values.
pub(crate) fn plain(row: &Row) -> Row {
    let name = |name: &str| cell(name).replace(": ", " ").replace("; ", ", ");
    let figures = row.figures.iter().map(|(figure, value)| (name(figure), *value)).collect();
    Row { figures, ..row.clone() }
}

/// `name: value` by name.
fn figures(figures: &BTreeMap<String, u64>) -> String {
    let parts: Vec<String> =
        figures.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    parts.join("; ")
}

/// What a line of the table of runs says.
///
/// # Errors
/// It is none, or has a number that no run comes to: sums of all rows would not be numbers.
fn row(line: &str) -> Result<Row> {
    let inner = line.strip_prefix("| ").and_then(|line| line.strip_suffix('|'));
    let cells: Vec<&str> = inner.context("no row")?.split('|').map(str::trim).collect();
    let [commit, method, how, count, violations, false_reports, reverted, seconds, figures] =
        cells.as_slice()
    else {
        bail!("{} cells", cells.len());
    };
    let number = |text: &str| {
        let number = text.parse().ok().filter(|number| *number < NUMBER_END);
        number.with_context(|| format!("no number of anything that was run: {text}"))
    };
    let seen = |text: &str| if text == "-" { Ok(None) } else { number(text).map(Some) };
    let numbered = how.split(", ").any(|part| part.starts_with("inputs "));
    if numbered {
        // Those under way when it was stopped have numbers and are not counted.
        let (from, to) = inputs(how).context("no numbers of inputs")?;
        let of = to.checked_sub(from).filter(|_| to < NUMBER_END).context("no such inputs")?;
        // One that did not end is run by somebody else as well, and counted.
        let left = of.saturating_sub(number(count)?);
        ensure!(left <= UNDER_WAY, "{left} of its inputs were not run");
    }
    let mut named = BTreeMap::new();
    for part in figures.split("; ").filter(|part| !part.is_empty()) {
        let (name, value) = part.rsplit_once(": ").context("a figure without a value")?;
        named.insert(name.to_owned(), number(value)?);
    }
    Ok(Row {
        commit: (*commit).to_owned(),
        method: (*method).to_owned(),
        how: (*how).to_owned(),
        count: number(count)?,
        violations: number(violations)?,
        false_reports: seen(false_reports)?,
        reverted: seen(reverted)?,
        seconds: number(seconds)?,
        figures: named,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        let figures = |n| BTreeMap::from([("repaired".to_owned(), n), ("in: a | b".to_owned(), 1)]);
        let one = Row {
            commit: "1234567+".to_owned(),
            method: "mapped writers".to_owned(),
            how: "seed 1, tier long".to_owned(),
            count: 10,
            violations: 2,
            false_reports: None,
            reverted: Some(4096),
            seconds: 1800,
            figures: figures(5),
        };
        let two = Row { count: 7, violations: 0, figures: figures(6), ..one.clone() };
        Page { rows: [one, two].iter().map(plain).collect() }
    }

    #[test]
    fn a_run_in_which_something_was_wrong_counts_towards_no_goal() {
        let mut page = page();
        page.rows.iter_mut().for_each(|row| "object sigkill".clone_into(&mut row.method));
        page.rows.iter_mut().for_each(|row| "1234567".clone_into(&mut row.commit));
        let killed = |page: &Page| {
            let goals = page.goals();
            let line = goals.lines().find(|line| line.contains("SIGKILL and reopen"));
            line.and_then(|line| line.split('|').nth(3)).map(|cell| cell.trim().to_owned())
        };
        assert_eq!(killed(&page).as_deref(), Some("0"), "bytes were reverted in both");
        page.rows[1].reverted = Some(0);
        assert_eq!(killed(&page).as_deref(), Some("7"));
    }

    #[test]
    fn what_is_written_is_read() {
        let text = page().text();
        let read = Page::parse(&text).unwrap();
        let first = &read.rows[0];
        assert_eq!((read.rows.len(), first.count, first.false_reports), (2, 10, None));
        assert_eq!(first.reverted, Some(4096));
        assert_eq!(read.rows[1].figures["repaired"], 6);
        assert_eq!(read.text(), text);
    }

    #[test]
    fn sums_are_those_of_the_rows() {
        let text = page().text();
        let sum = "| mapped writers | 2 | 17 | 2 | - | 8192 | 1.0 | in a   b: 2; repaired: 11 |";
        assert!(text.contains(sum), "{text}");
    }

    #[test]
    fn shares_stand_in_their_rows_and_in_no_sum() {
        let mut page = page();
        let share = (format!("taken{SHARE}"), 897);
        page.rows.iter_mut().for_each(|row| row.figures.extend([share.clone()]));
        let text = page.text();
        assert_eq!(text.matches("; taken in 1000: 897 |").count(), 2, "{text}");
        assert_eq!(text.matches("taken").count(), 2, "{text}");
        assert_eq!(Page::parse(&text).unwrap().text(), text);
    }

    #[test]
    fn a_column_that_one_row_cannot_see_has_the_sum_of_the_others() {
        let mut page = page();
        page.rows[1].false_reports = Some(0);
        assert!(page.text().contains("| mapped writers | 2 | 17 | 2 | 0 | 8192 |"));
        page.rows[0].false_reports = Some(3);
        assert!(page.text().contains("| mapped writers | 2 | 17 | 2 | 3 | 8192 |"));
    }

    #[test]
    fn a_page_without_goals_or_with_other_goals_is_read_and_gets_them() {
        let text = page().text();
        let (head, rest) = text.split_once(GOALS_HEAD).unwrap();
        let (goals, rest) = rest.split_once(SUMS).unwrap();
        let old = format!("{head}{SUMS}{rest}");
        assert_eq!(Page::parse(&old).unwrap().text(), text);
        let line = "| cups of tea | 3 | 2 | no | somebody |\n";
        let other = format!("{head}{GOALS_HEAD}{goals}{line}{SUMS}{rest}");
        assert_eq!(Page::parse(&other).unwrap().text(), text);
        let words = format!("{head}{GOALS_HEAD}{goals}My own notes.\n{SUMS}{rest}");
        assert!(Page::parse(&words).is_err());
    }

    #[test]
    fn a_page_with_the_words_of_before_is_read_and_gets_those_of_now() {
        let text = page().text();
        let old = text.replace(OPENING, EARLIER).replace(GOALS_WORDS, GOALS_EARLIER);
        assert!(old != text && old.contains("zero\neverywhere"), "{old}");
        assert_eq!(Page::parse(&old).unwrap().text(), text);
    }

    #[test]
    fn what_must_be_zero_is_not_said_of_sums_that_keep_what_was_mended() {
        let mut page = page();
        page.rows[0].false_reports = Some(3);
        page.rows[1].reverted = Some(0);
        page.rows[1].commit = "def".to_owned();
        let text = page.text();
        assert!(text.contains("| 17 | 2 | 3 | 4096 |"), "it is in the sums: {text}");
        assert!(text.contains("must be zero\nin all that is open:"), "{text}");
    }

    #[test]
    fn a_page_that_somebody_changed_is_refused() {
        let text = page().text();
        assert!(Page::parse(&text.replace("| 17 |", "| 18 |")).is_err(), "a sum");
        assert!(Page::parse(&text.replace("# What", "# All that")).is_err(), "its text");
        assert!(Page::parse(&text.replace("| 4096 |", "| x |")).is_err(), "no number");
        let end = format!("| {NUMBER_END} |");
        assert!(Page::parse(&text.replace("| 4096 |", &end)).is_err(), "sums would have no room");
        assert!(Page::parse("").is_err());
    }

    #[test]
    fn inputs_are_as_many_as_were_run() {
        let mut page = page();
        let mut of = |how: &str| {
            page.rows.iter_mut().for_each(|row| (row.how, row.count) = (how.to_owned(), 5));
            Page::parse(&page.text()).is_ok()
        };
        assert!(of("seed 1, inputs 0 to 5") && of("seed 1, inputs 7 to 14"));
        let refused = ["9 to 4", "0 to 100000000", "0 to 18446744073709551615", "all"];
        for inputs in refused {
            assert!(!of(&format!("seed 1, inputs {inputs}")), "{inputs}");
        }
    }
}
