//! Every call of the system refused in its turn, while pools and protected files are used: a test
//! of the facade does it, one call in nine in CI. Here all of them, with a row for the list of what
//! was run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Result;
use holdfast_evidence::{Begun, Row};

use crate::workspace::{cargo, keep_json, listened};

/// What a row of it is called.
const METHOD: &str = "system calls";

/// Where to note what was done.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Add what was run and found to this list (docs/evidence.md).
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Write what it came to to this file as well.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the test. Exits with 1 if it failed.
pub(crate) fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    let begun = Begun::at(root);
    if let Some(path) = &args.ledger {
        holdfast_evidence::append(path, &[])?;
    }
    keep_json(args.json.as_deref(), "")?;
    let started = std::time::Instant::now();
    let mut command = Command::new(cargo());
    command
        .current_dir(root)
        .args(["test", "-p", "holdfast", "--test", "system_fails", "--", "--nocapture"])
        .env("HOLDFAST_ALL", "1");
    let mut came = Came::default();
    let passed = listened(&mut command, |line| came.add(line))? && came.is_whole();
    println!(
        "{METHOD}: {} refused in {} deeds: {}",
        came.calls,
        came.deeds,
        if passed { "nothing lost, nothing in the way" } else { "FAILED" }
    );
    let row = came.row(begun.commit_now(), started.elapsed().as_secs(), passed);
    // What was not built, or found no test, says nothing.
    if let Some(path) = args.ledger.as_ref().filter(|_| came.calls > 0) {
        holdfast_evidence::append(path, std::slice::from_ref(&row))?;
    }
    keep_json(args.json.as_deref(), &row.json(&came.wrong))?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the test said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Came {
    /// Deeds, each done with calls that are refused once, and then with calls refused for ever.
    deeds: u64,
    calls: u64,
    /// Runs that were answered success although a call was refused.
    absorbed: u64,
    /// What was planted, and what of that was seen.
    planted: u64,
    seen: u64,
    /// Runs that went wrong.
    wrong: Vec<String>,
}

impl Came {
    /// Adds what a line says.
    fn add(&mut self, line: &str) {
        let number = |text: &str, word: &str| -> Option<u64> {
            text.split(", ").find_map(|part| part.strip_suffix(word))?.parse().ok()
        };
        if let Some(what) = line.strip_prefix("wrong: ") {
            self.wrong.push(what.to_owned());
        } else if let Some(planted) = number(line, " planted") {
            self.planted += planted;
            self.seen += number(line, " seen").unwrap_or(0);
        } else if let Some((_, told)) = line.rsplit_once(": ")
            && let (Some(calls), Some(absorbed)) =
                (number(told, " calls"), number(told, " done without"))
        {
            self.deeds += u64::from(line.contains(", Once: "));
            self.calls += calls;
            self.absorbed += absorbed;
        }
    }

    fn is_whole(&self) -> bool {
        // As the list of what is run has it (LEAST): a run of fewer is told from one of all.
        let planted = holdfast_evidence::variants(METHOD);
        self.calls > 0 && self.planted == planted && self.seen == planted && self.wrong.is_empty()
    }

    fn row(&self, commit: String, seconds: u64, passed: bool) -> Row {
        let figures = [
            ("deeds", self.deeds),
            ("done without the call", self.absorbed),
            ("wrong variants", self.planted),
            ("wrong variants convicted", self.seen),
        ];
        Row {
            commit,
            method: METHOD.to_owned(),
            how: "tier long".to_owned(),
            count: self.calls,
            // A program that ends before its last word tells of no wrong run.
            violations: if passed { 0 } else { (self.wrong.len() as u64).max(1) },
            seconds,
            figures: BTreeMap::from(figures.map(|(name, value)| (name.to_owned(), value))),
            ..Row::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_in_the_list_of_what_is_run() {
        assert_eq!(holdfast_evidence::unlisted("system", ["calls"]), Vec::<String>::new());
    }

    #[test]
    fn what_the_test_says_is_added_up() {
        let mut came = Came::default();
        for line in [
            "running 1 test",
            "8 planted, 8 seen",
            "make a pool, Once: 40 calls, 3 done without",
            "    1.2s",
            "make a pool, ForEver: 39 calls, 0 done without",
        ] {
            came.add(line);
        }
        let Came { deeds, calls, absorbed, planted, seen, .. } = came;
        assert_eq!((deeds, calls, absorbed, planted, seen), (1, 79, 3, 8, 8));
        assert!(came.is_whole());
        let row = came.row("abc".to_owned(), 5, true);
        assert_eq!((row.count, row.violations, row.figures["deeds"]), (79, 0, 1));
        came.add("wrong: make a pool, call 7 refused (Once): open, answered success");
        assert!(!came.is_whole());
        let row = came.row("abc".to_owned(), 5, false);
        assert_eq!(row.violations, 1);
    }

    #[test]
    fn a_test_that_said_nothing_was_not_run() {
        assert!(!Came::default().is_whole());
        let mut blind = Came { calls: 9, ..Came::default() };
        blind.add("8 planted, 7 seen");
        assert!(!blind.is_whole(), "one was not seen");
    }
}
