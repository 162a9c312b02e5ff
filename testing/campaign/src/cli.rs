//! The command line: which campaign, how much of it, from which seed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use holdfast_evidence::Begun;

use crate::goals::Asked;
use crate::runner::{self, Outcome, Plan, Row, Tier};
use crate::{lab, mapped, object, report};

/// Exit code for what is not understood.
pub const USAGE: u8 = 16;

/// A campaign: its name, its rows, and what its rows start as processes of their own.
struct Campaign {
    name: &'static str,
    rows: &'static [Row],
    victim: fn(&str) -> ExitCode,
    goals: Goals,
    logged: fn(&str) -> ExitCode,
    images: fn(&Path) -> ExitCode,
}

/// Lines about how much was done, and whether that was enough.
type Goals = fn(&[Outcome], Asked<'_>) -> (Vec<String>, bool);

/// All of them.
const CAMPAIGNS: &[Campaign] = &[
    Campaign {
        name: "object",
        rows: object::rows::ROWS,
        victim: object::victim::run,
        goals: object::goals::judge,
        logged: object::logged::run,
        images: object::images::run,
    },
    Campaign {
        name: "mapped",
        rows: mapped::rows::ROWS,
        victim: mapped::ward::run,
        goals: mapped::goals::judge,
        logged: mapped::logged::run,
        images: mapped::logged::judge,
    },
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
    /// Let rows leave something out for a printed reason that contains this text.
    #[arg(long, value_name = "REASON")]
    allow_skip: Vec<String>,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Add what was done and found to this list (docs/evidence.md).
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// List the rows and stop.
    #[arg(long)]
    list: bool,
    /// Be the process that a row kills: what to do, as JSON.
    #[arg(long, hide = true, value_name = "ORDERS")]
    victim: Option<String>,
    /// Let a machine fail under pools: what, and how often, as JSON.
    #[arg(long, hide = true, value_name = "ORDERS")]
    sick: Option<String>,
    /// Have the memory of a page of a file fail: which, as JSON.
    #[arg(long, hide = true, value_name = "PAGE")]
    fail_memory: Option<String>,
    /// Store astray into a pool: which, as JSON.
    #[arg(long, hide = true, value_name = "ORDERS")]
    stray: Option<String>,
    /// Live one life of a pool between two ends of the machine: what to do, as JSON.
    #[arg(long, hide = true, value_name = "LIFE")]
    life: Option<String>,
    /// Work on a disk whose block writes are logged: what to do, as JSON.
    #[arg(long, hide = true, value_name = "ORDERS")]
    logged: Option<String>,
    /// Judge images of such a disk, as told line by line; this is what was said there.
    #[arg(long, hide = true, value_name = "FILE")]
    images: Option<PathBuf>,
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
        return ExitCode::from(USAGE);
    };
    if let Some(orders) = &cli.victim {
        return (first.victim)(orders);
    }
    if let Some(orders) = &cli.sick {
        return lab::run(first.name, orders);
    }
    if let Some(page) = &cli.fail_memory {
        return object::sick::run(page);
    }
    if let Some(orders) = &cli.stray {
        return object::stray::run(orders);
    }
    if let Some(life) = &cli.life {
        let mapped = first.name == "mapped";
        return if mapped { mapped::lives::run(life) } else { object::lives::run(life) };
    }
    if let Some(orders) = &cli.logged {
        return (first.logged)(orders);
    }
    if let Some(said) = &cli.images {
        return (first.images)(said);
    }
    let rows = || chosen.iter().flat_map(|campaign| campaign.rows);
    if cli.list {
        rows().for_each(|row| println!("{:<16} {}", row.name, row.story));
        return ExitCode::SUCCESS;
    }
    let unknown = cli.only.iter().find(|only| !rows().any(|row| row.name == *only));
    if let Some(unknown) = unknown {
        eprintln!("campaign: there is no row `{unknown}`; --list shows all");
        return ExitCode::from(USAGE);
    }
    let begun = Begun::now();
    runner::keep_panics_quiet();
    let mut passed = true;
    for campaign in chosen {
        passed &= play(cli, campaign, &begun);
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the rows of one campaign and prints what came of it.
fn play(cli: &Cli, campaign: &Campaign, begun: &Begun) -> bool {
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
    let whole = cli.only.is_empty() && cli.case.is_none();
    let asked = Asked { tier: cli.tier, whole, allowed: &cli.allow_skip };
    let (goals, reached) = (campaign.goals)(&outcomes, asked);
    if cli.json {
        println!("{}", report::json(&outcomes, &plan, &goals));
    } else {
        goals.iter().for_each(|goal| println!("{goal}"));
        print!("{}", report::closing(&outcomes, &plan));
    }
    let noted = cli.ledger.as_deref().is_none_or(|path| note(path, &outcomes, &plan, begun));
    noted && reached && outcomes.iter().all(|outcome| outcome.tally.violated() == 0)
}

/// Adds the rows to the list of what was run; whether that could be done.
fn note(path: &Path, outcomes: &[Outcome], plan: &Plan, begun: &Begun) -> bool {
    let commit = begun.commit();
    let rows: Vec<_> = outcomes.iter().map(|it| report::evidence(it, plan, &commit)).collect();
    let done = holdfast_evidence::append(path, &rows);
    if let Err(error) = &done {
        eprintln!("campaign: what was run is not noted: {error:#}");
    }
    done.is_ok()
}
