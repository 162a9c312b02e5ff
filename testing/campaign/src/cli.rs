//! The command line: which campaign, how much of it, from which seed.

use std::process::ExitCode;

use clap::Parser;

use crate::object::rows::ROWS;
use crate::object::victim;
use crate::report;
use crate::runner::{self, Plan, Row, Tier};

/// Runs fault campaigns; exits with 1 if anything was wrong.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask campaign", version)]
pub struct Cli {
    /// Which campaign: `object`, or `all`.
    name: String,
    /// How much to do.
    #[arg(long, value_enum, default_value_t = Tier::Ci)]
    tier: Tier,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only the rows of these names.
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
    /// Run only this case of each row, as a replay command says.
    #[arg(long, value_name = "N")]
    case: Option<u64>,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// List the rows and stop.
    #[arg(long)]
    list: bool,
    /// Be the process that a row kills: what to do, as JSON.
    #[arg(long, hide = true, value_name = "ORDERS")]
    victim: Option<String>,
}

/// Runs what the command line asks for.
#[must_use]
pub fn run(cli: &Cli) -> ExitCode {
    if !matches!(cli.name.as_str(), "object" | "all") {
        eprintln!("campaign: there is no campaign `{}`; known are: object, all", cli.name);
        return ExitCode::from(2);
    }
    if let Some(orders) = &cli.victim {
        return victim::run(orders);
    }
    if cli.list {
        ROWS.iter().for_each(|row| println!("{:<16} {}", row.name, row.story));
        return ExitCode::SUCCESS;
    }
    let unknown = cli.only.iter().find(|only| ROWS.iter().all(|row| row.name != **only));
    if let Some(unknown) = unknown {
        eprintln!("campaign: there is no row `{unknown}`; --list shows all");
        return ExitCode::from(2);
    }
    runner::keep_panics_quiet();
    let plan = Plan {
        seed: cli.seed,
        tier: cli.tier,
        threads: cli.threads.max(1),
        only: cli.case,
        progress: !cli.json,
    };
    let chosen = |row: &&Row| cli.only.is_empty() || cli.only.iter().any(|o| o == row.name);
    let mut outcomes = Vec::new();
    for row in ROWS.iter().filter(chosen) {
        let outcome = runner::run(row, &plan);
        if !cli.json {
            print!("{}", report::row(&outcome, &plan));
        }
        outcomes.push(outcome);
    }
    if cli.json {
        println!("{}", report::json(&outcomes, &plan));
    } else {
        print!("{}", report::closing(&outcomes, &plan));
    }
    let passed = outcomes.iter().all(|outcome| outcome.tally.violated() == 0);
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
