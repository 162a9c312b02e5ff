//! The list as a page: an introduction, sums, and a table with a row for each run.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, bail, ensure};

use crate::Row;

const OPENING: &str = "\
# What was run

Each row was added by the program that ran it (`--ledger`), none by hand. Two columns must be zero
everywhere: pages that were called corrupt and were not damaged, and legitimate bytes that a repair
changed. What a method does is told in [testing.md](testing.md).
";

const RUNS: &str = "## Runs";
const HEAD: &str = "| commit | method | how | count | violations | false reports | reverted bytes \
                    | seconds | figures |";

/// What is in the list.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) rows: Vec<Row>,
}

/// What all runs of a method come to.
#[derive(Default)]
struct Sum {
    runs: u64,
    count: u64,
    violations: u64,
    false_reports: u64,
    reverted: u64,
    seconds: u64,
    figures: BTreeMap<String, u64>,
}

impl Page {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (_, runs) = text.split_once(RUNS).context("it has no table of runs")?;
        let mut lines = runs.lines().filter(|line| !line.is_empty());
        ensure!(lines.next() == Some(HEAD), "the table of runs has another head");
        ensure!(lines.next().is_some_and(|line| line.starts_with("|---")), "it has no rule");
        let rows = lines.map(|line| row(line).with_context(|| format!("not a run: {line}")));
        let page = Self { rows: rows.collect::<Result<_>>()? };
        // Whatever somebody changed or added by hand would be lost, so it is not touched.
        ensure!(page.text() == text, "somebody has changed it by hand");
        Ok(page)
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{OPENING}\n## Sums\n\n");
        text.push_str("| method | runs | count | violations | false reports | reverted bytes ");
        text.push_str("| hours | figures |\n|---|---|---|---|---|---|---|---|\n");
        // Writing into a string cannot fail.
        for (method, sum) in self.sums() {
            let hours = sum.seconds as f64 / 3600.0;
            let _ = writeln!(
                text,
                "| {method} | {} | {} | {} | {} | {} | {hours:.1} | {} |",
                sum.runs,
                sum.count,
                sum.violations,
                sum.false_reports,
                sum.reverted,
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
                row.false_reports,
                row.reverted,
                row.seconds,
                figures(&row.figures)
            );
        }
        text
    }

    fn sums(&self) -> BTreeMap<&str, Sum> {
        let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
        for row in &self.rows {
            let sum = sums.entry(&row.method).or_default();
            sum.runs += 1;
            sum.count += row.count;
            sum.violations += row.violations;
            sum.false_reports += row.false_reports;
            sum.reverted += row.reverted;
            sum.seconds += row.seconds;
            for (name, value) in &row.figures {
                // As it is read again: a row that was just made may have another spelling.
                *sum.figures.entry(plain(name)).or_default() += value;
            }
        }
        sums
    }
}

/// Text that does not end its cell.
fn cell(text: &str) -> String {
    text.replace(['|', '\n'], " ").trim().to_owned()
}

/// A name as it is written: without the two marks of figures.
fn plain(name: &str) -> String {
    cell(name).replace(": ", " ").replace("; ", ", ")
}

/// `name: value` by name.
fn figures(figures: &BTreeMap<String, u64>) -> String {
    let parts: Vec<String> =
        figures.iter().map(|(name, value)| format!("{}: {value}", plain(name))).collect();
    parts.join("; ")
}

fn row(line: &str) -> Result<Row> {
    let inner = line.strip_prefix("| ").and_then(|line| line.strip_suffix('|'));
    let cells: Vec<&str> = inner.context("no row")?.split('|').map(str::trim).collect();
    let [commit, method, how, count, violations, false_reports, reverted, seconds, figures] =
        cells.as_slice()
    else {
        bail!("{} cells", cells.len());
    };
    let number = |text: &str| text.parse::<u64>().with_context(|| format!("not a number: {text}"));
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
        false_reports: number(false_reports)?,
        reverted: number(reverted)?,
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
            false_reports: 1,
            reverted: 4096,
            seconds: 1800,
            figures: figures(5),
        };
        let two = Row { count: 7, violations: 0, figures: figures(6), ..one.clone() };
        Page { rows: vec![one, two] }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = page().text();
        let read = Page::parse(&text).unwrap();
        assert_eq!((read.rows.len(), read.rows[0].count, read.rows[0].reverted), (2, 10, 4096));
        assert_eq!(read.rows[1].figures["repaired"], 6);
        assert_eq!(read.text(), text);
    }

    #[test]
    fn sums_are_those_of_the_rows() {
        let text = page().text();
        let sum = "| mapped writers | 2 | 17 | 2 | 2 | 8192 | 1.0 | in a   b: 2; repaired: 11 |";
        assert!(text.contains(sum), "{text}");
    }

    #[test]
    fn a_page_that_somebody_changed_is_refused() {
        let text = page().text();
        assert!(Page::parse(&text.replace("| 17 |", "| 18 |")).is_err(), "a sum");
        assert!(Page::parse(&text.replace("# What", "# All that")).is_err(), "its text");
        assert!(Page::parse(&text.replace("| 4096 |", "| x |")).is_err(), "no number");
        assert!(Page::parse("").is_err());
    }
}
