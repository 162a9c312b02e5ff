//! The command line, and the report.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use clap::Parser;
use holdfast_evidence::{Begun, Row, append};

/// Exit code for what is not understood.
pub(crate) const USAGE: u8 = 16;
/// Exit code for what could not be done.
const FAILED: u8 = 8;
/// Wrong variants that are convicted of each core or harness at the least: what judges is tried as
/// well.
const VARIANTS: usize = 5;

/// Runs the models of one checker; exits with 1 if a law was broken, or a wrong variant was not
/// convicted.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask models", version)]
pub(crate) struct Cli {
    /// Schedules to draw for each harness, in batches of 50; without it, as many as CI has time
    /// for.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) schedules: Option<u64>,
    /// Seed of everything that is drawn.
    #[arg(long, default_value_t = 1, value_name = "S")]
    pub(crate) seed: u64,
    /// Only the models or harnesses of these names.
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Run one drawn schedule again, as a finding says: `HARNESS:WRONG:SCHEDULER:SEED`.
    #[arg(long, value_name = "SCHEDULE", conflicts_with_all = ["ledger", "schedules", "only"])]
    pub(crate) replay: Option<String>,
    /// Say what each wrong variant was convicted of.
    #[arg(long)]
    pub(crate) verdicts: bool,
    /// Print a JSON object for each, with what was found, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    /// Add what was run and found to this list (docs/evidence.md).
    #[arg(long, value_name = "FILE")]
    pub(crate) ledger: Option<PathBuf>,
    /// Of which source this program was built, as who has built it says.
    #[arg(long, hide = true, value_name = "COMMIT")]
    built_of: Option<String>,
}

impl Cli {
    /// Whether what has this name is to be run.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// Refuses a name that is none of these: what was asked for and is left out nobody would miss.
    pub(crate) fn knows(&self, what: &str, names: &[&str]) -> Result<()> {
        let unknown = self.only.iter().find(|only| !names.contains(&only.as_str()));
        unknown.map_or(Ok(()), |unknown| {
            bail!("no {what} `{unknown}`; there are {}", names.join(", "))
        })
    }
}

/// What one model or harness came to.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) name: String,
    /// Interleavings, or schedules.
    pub(crate) count: u64,
    /// Wrong variants, and those convicted.
    pub(crate) wrong: u64,
    pub(crate) convicted: u64,
    /// What each was convicted of.
    pub(crate) verdicts: Vec<String>,
    /// What the schedules of what ships came to, and how often.
    pub(crate) figures: BTreeMap<String, u64>,
    /// Seconds that what ships took.
    pub(crate) shipped: f64,
    /// What was found, in words.
    pub(crate) findings: Vec<String>,
    pub(crate) seconds: f64,
}

impl Ran {
    fn tell(&self) {
        println!(
            "{:16} {:>9} at {:>6.0}/s {:>3} of {:<3} wrong variants convicted {:>7.1} s{}",
            self.name,
            self.count,
            self.count as f64 / self.shipped.max(0.001),
            self.convicted,
            self.wrong,
            self.seconds,
            if self.findings.is_empty() { "" } else { "  FAILED" }
        );
        for (what, times) in &self.figures {
            println!("  {times} {what}");
        }
        for line in self.verdicts.iter().chain(&self.findings) {
            println!("  {line}");
        }
    }
}

/// What all of them came to.
#[derive(Debug, Default)]
pub(crate) struct Report(Vec<Ran>);

impl Report {
    /// Adds one, and tells it.
    pub(crate) fn add(&mut self, ran: Ran, json: bool) {
        if !json {
            ran.tell();
        }
        self.0.push(ran);
    }

    fn is_clean(&self) -> bool {
        self.0.iter().all(|ran| ran.findings.is_empty())
    }

    fn rows(&self, begun: &Begun, checker: &str, how: &str) -> Vec<Row> {
        let row = |ran: &Ran| Row {
            commit: begun.commit(),
            method: format!("models {checker} {}", ran.name),
            how: how.to_owned(),
            count: ran.count,
            violations: ran.findings.len() as u64,
            seconds: ran.seconds.ceil() as u64,
            figures: [("wrong variants", ran.wrong), ("wrong variants convicted", ran.convicted)]
                .map(|(name, value)| (name.to_owned(), value))
                .into_iter()
                .chain(ran.figures.clone())
                .collect(),
            ..Row::default()
        };
        self.0.iter().map(row).collect()
    }
}

/// Refuses a model of which the list of what is run knows another number of wrong variants: a row
/// of an older source would be taken for one of all there are.
pub(crate) fn listed(checker: &str, name: &str, count: usize) -> Result<()> {
    let known = holdfast_evidence::variants(&format!("models {checker} {name}"));
    ensure!(
        count as u64 == known,
        "{name} has {count} wrong variants, and the list of what was run knows {known}: set LEAST"
    );
    Ok(())
}

/// Refuses a core or harness with few wrong variants.
pub(crate) fn enough(name: &str, count: usize) -> Result<()> {
    ensure!(count >= VARIANTS, "{name} has {count} wrong variants, and not {VARIANTS}");
    Ok(())
}

/// Runs `models` of `checker` and says what became of them.
pub(crate) fn run(cli: &Cli, checker: &str, models: fn(&Cli) -> Result<Report>) -> ExitCode {
    if let Some(name) = meddles(std::env::vars_os().map(|(name, _)| name)) {
        println!("models: {} is set, which changes what a checker runs: unset it", name.display());
        return ExitCode::from(USAGE);
    }
    let begun = cli.built_of.clone().map_or_else(Begun::now, Begun::built_of);
    // Whoever starts this program has nobody read what it says of what is convicted: on the other
    // stream. And hours are not spent on what cannot be noted.
    if let Some(path) = &cli.ledger
        && let Err(error) = append(path, &[])
    {
        println!("models: {error:#}");
        return ExitCode::from(FAILED);
    }
    // What is convicted panics, on purpose and often. Who runs one schedule again wants to see it.
    if cli.replay.is_none() {
        std::panic::set_hook(Box::new(|info| remember(message(info.payload()))));
    }
    let report = match models(cli) {
        Ok(report) => report,
        Err(error) => {
            println!("models: {error:#}");
            return ExitCode::from(USAGE);
        }
    };
    let count: u64 = report.0.iter().map(|ran| ran.count).sum();
    let (wrong, convicted) =
        report.0.iter().fold((0, 0), |sum, ran| (sum.0 + ran.wrong, sum.1 + ran.convicted));
    let verdict = if report.is_clean() { "ok" } else { "FAILED" };
    let rows = report.rows(&begun, checker, &format!("seed {}", cli.seed));
    if cli.json {
        rows.iter().zip(&report.0).for_each(|(row, ran)| println!("{}", row.json(&ran.findings)));
    } else {
        println!(
            "models {checker}: {verdict}, {} models, {count} schedules, {convicted} of {wrong} \
             wrong variants convicted",
            report.0.len()
        );
    }
    if let Some(path) = &cli.ledger
        && let Err(error) = append(path, &rows)
    {
        println!("models: {error:#}");
        if report.is_clean() {
            return ExitCode::from(FAILED);
        }
    }
    if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The first of these variables of the environment that a checker goes by, whatever it is told
/// here: such a one may end it early, or give each batch the same seed.
fn meddles(mut names: impl Iterator<Item = OsString>) -> Option<OsString> {
    names.find(|name| {
        let name = name.to_string_lossy();
        name.starts_with("LOOM_") || name.starts_with("SHUTTLE_")
    })
}

thread_local! {
    /// What the first panic of this thread said, of those that nobody has asked for.
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn remember(message: String) {
    FIRST.with_borrow_mut(|first| {
        if first.is_none() {
            *first = Some(message);
        }
    });
}

/// What the first panic of this thread said, and nothing from then on. A run that a broken law ends
/// is cleared away while others are in the middle of something, and they may panic as well.
pub(crate) fn first_message() -> Option<String> {
    FIRST.take()
}

/// What a panic says.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("something without words").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cli(words: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from([&["models"], words].concat())
    }

    #[test]
    fn a_name_that_there_is_not_is_refused_beside_one_that_there_is() {
        let known = ["numbers", "columns"];
        let asked = |words: &[&str]| cli(words).unwrap().knows("harness", &known);
        asked(&[]).unwrap();
        asked(&["--only", "numbers", "--only", "columns"]).unwrap();
        for other in ["nope", ""] {
            let refused = asked(&["--only", "numbers", "--only", other]).unwrap_err().to_string();
            assert_eq!(refused, format!("no harness `{other}`; there are numbers, columns"));
        }
    }

    #[test]
    fn what_a_checker_would_go_by_instead_is_noticed() {
        let found = |names: &[&str]| meddles(names.iter().map(OsString::from)).is_some();
        assert!(found(&["HOME", "SHUTTLE_RANDOM_SEED"]) && found(&["LOOM_MAX_DURATION"]));
        assert!(!found(&["HOME", "BLOOM_X"]));
    }

    #[test]
    fn one_batch_again_is_no_run_to_be_noted() {
        assert!(cli(&["--replay", "numbers:0:pct:1"]).is_ok());
        assert!(cli(&["--replay", "numbers:0:pct:1", "--ledger", "list.md"]).is_err());
    }

    #[test]
    fn no_schedules_are_no_run() {
        assert_eq!(cli(&["--schedules", "1"]).unwrap().schedules, Some(1));
        assert!(cli(&["--schedules", "0"]).is_err());
    }
}
