//! The command line: which campaign, how much of it, from which seed.

use std::process::ExitCode;

use clap::Parser;

use crate::runner::{self, Plan, Row, Tier};
use crate::{mapped, object, report};

/// A campaign: its name, its rows, and what its rows start as processes of their own.
struct Campaign {
    name: &'static str,
    rows: &'static [Row],
    victim: fn(&str) -> ExitCode,
}

/// All of them.
const CAMPAIGNS: &[Campaign] = &[
    Campaign { name: "object", rows: object::rows::ROWS, victim: object::victim::run },
    Campaign { name: "mapped", rows: mapped::rows::ROWS, victim: mapped::ward::run },
];

/// Runs fault campaigns; exits with 1 if anything was wrong.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask campaign", version)]
pub struct Cli {
    /// Which campaign: `object`, `mapped`, or `all`.
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
    let chosen = |campaign: &&Campaign| cli.name == "all" || cli.name == campaign.name;
    let chosen: Vec<&Campaign> = CAMPAIGNS.iter().filter(chosen).collect();
    let Some(first) = chosen.first() else {
        let known: Vec<&str> = CAMPAIGNS.iter().map(|campaign| campaign.name).collect();
        let known = known.join(", ");
        eprintln!("campaign: there is no campaign `{}`; known are: {known}, all", cli.name);
        return ExitCode::from(2);
    };
    if let Some(orders) = &cli.victim {
        return (first.victim)(orders);
    }
    let rows = || chosen.iter().flat_map(|campaign| campaign.rows);
    if cli.list {
        rows().for_each(|row| println!("{:<16} {}", row.name, row.story));
        return ExitCode::SUCCESS;
    }
    let unknown = cli.only.iter().find(|only| !rows().any(|row| row.name == *only));
    if let Some(unknown) = unknown {
        eprintln!("campaign: there is no row `{unknown}`; --list shows all");
        return ExitCode::from(2);
    }
    runner::keep_panics_quiet();
    let mut passed = true;
    for campaign in chosen {
        passed &= play(cli, campaign);
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the rows of one campaign and prints what came of it.
fn play(cli: &Cli, campaign: &Campaign) -> bool {
    let plan = Plan {
        campaign: campaign.name,
        seed: cli.seed,
        tier: cli.tier,
        threads: cli.threads.max(1),
        only: cli.case,
        progress: !cli.json,
    };
    let chosen = |row: &&Row| cli.only.is_empty() || cli.only.iter().any(|o| o == row.name);
    let mut outcomes = Vec::new();
    for row in campaign.rows.iter().filter(chosen) {
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
    outcomes.iter().all(|outcome| outcome.tally.violated() == 0)
}
