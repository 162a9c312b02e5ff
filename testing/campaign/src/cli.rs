//! The command line: which campaign, how much of it, from which seed.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use clap::builder::NonEmptyStringValueParser;
use holdfast_evidence::{Begun, stop};

use crate::goals::Asked;
use crate::runner::{self, Outcome, Plan, Row, Tier};
use crate::{lab, mapped, object, report};

/// Exit code for what cannot be done here.
const CANNOT: u8 = 8;
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
    #[arg(long, value_name = "REASON", value_parser = NonEmptyStringValueParser::new())]
    allow_skip: Vec<String>,
    /// Threads.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
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
        rows().for_each(|row| say(format_args!("{:<16} {}\n", row.name, row.story)));
        return ExitCode::SUCCESS;
    }
    let unknown = cli.only.iter().find(|only| !rows().any(|row| row.name == *only));
    if let Some(unknown) = unknown {
        eprintln!("campaign: there is no row `{unknown}`; --list shows all");
        return ExitCode::from(USAGE);
    }
    if let Err(beyond) = has_case(cli, rows().filter(|row| cli.wants(row))) {
        eprintln!("campaign: {beyond}");
        return ExitCode::from(USAGE);
    }
    let notes = match cli.ledger.as_deref().map(Notes::begin).transpose() {
        Ok(notes) => notes,
        Err(error) => {
            eprintln!("campaign: what is run could not be noted: {error}");
            return ExitCode::from(CANNOT);
        }
    };
    runner::keep_panics_quiet();
    stop::listen();
    let (mut passed, mut whole) = (true, true);
    for campaign in chosen {
        let played = play(cli, campaign, (notes.as_ref(), stop::asked), &|| std::process::exit(1));
        passed &= played.passed;
        whole &= played.whole;
    }
    match (passed, whole) {
        (false, _) => ExitCode::FAILURE,
        (true, false) => ExitCode::from(stop::CANCELLED),
        (true, true) => ExitCode::SUCCESS,
    }
}

/// Whether all these rows have the one case that is asked for.
fn has_case<'a>(cli: &Cli, mut rows: impl Iterator<Item = &'a Row>) -> Result<(), String> {
    let Some(case) = cli.case else { return Ok(()) };
    let short = rows.find(|row| case >= (row.cases)(cli.tier));
    short.map_or(Ok(()), |row| {
        let (name, cases) = (row.name, (row.cases)(cli.tier));
        let tier = if cli.tier == Tier::Ci { "ci" } else { "long" };
        Err(format!("there is no case {case}: row {name} has {cases} in tier {tier}, from 0 on"))
    })
}

impl Cli {
    fn wants(&self, row: &Row) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == row.name)
    }
}

/// What came of a campaign.
struct Played {
    /// Nothing was wrong.
    passed: bool,
    /// Nobody stopped it.
    whole: bool,
}

/// Runs the rows of one campaign and prints what came of it. If a case hangs, what there is is
/// told and noted, and `end` ends the program. Once `stop` says so, what there is is told, and
/// noted if anything was wrong.
fn play(
    cli: &Cli,
    campaign: &Campaign,
    (notes, stop): (Option<&Notes>, fn() -> bool),
    end: &(dyn Fn() + Sync),
) -> Played {
    let plan = Plan {
        campaign: campaign.name,
        seed: cli.seed,
        tier: cli.tier,
        threads: cli.threads.into(),
        only: cli.case,
        progress: !cli.json,
        stop,
    };
    let note = |outcome: &Outcome| {
        if !cli.json {
            say(format_args!("{}", report::row(outcome, &plan)));
        }
        let counts = outcome.left == 0 || outcome.tally.violated() > 0;
        notes.filter(|_| counts).is_none_or(|notes| notes.add(outcome, &plan))
    };
    let (mut outcomes, mut noted) = (Vec::new(), true);
    let mut whole = true;
    for row in campaign.rows.iter().filter(|row| cli.wants(row)) {
        if stop() {
            whole = false;
            break;
        }
        let before = &outcomes;
        let outcome = runner::run(row, &plan, &|hung| {
            note(&hung);
            let all = [&before[..], &[hung]].concat();
            let goals = ["a case hung: goals are not judged".to_owned()];
            tell(cli, &plan, &all, &goals);
            end();
        });
        noted &= note(&outcome);
        whole &= outcome.left == 0;
        outcomes.push(outcome);
    }
    let all = cli.only.is_empty() && cli.case.is_none();
    let asked = Asked { tier: cli.tier, whole: all, allowed: &cli.allow_skip };
    let (goals, reached) = match whole {
        true => (campaign.goals)(&outcomes, asked),
        false => (vec!["it was stopped: goals are not judged".to_owned()], true),
    };
    tell(cli, &plan, &outcomes, &goals);
    let right = outcomes.iter().all(|outcome| outcome.tally.violated() == 0);
    Played { passed: noted && reached && right, whole }
}

/// Prints what comes after the rows, or all of it as JSON.
fn tell(cli: &Cli, plan: &Plan, outcomes: &[Outcome], goals: &[String]) {
    if cli.json {
        say(format_args!("{}\n", report::json(outcomes, plan, goals)));
    } else {
        goals.iter().for_each(|goal| say(format_args!("{goal}\n")));
        say(format_args!("{}", report::closing(outcomes, plan)));
    }
}

/// Prints for who listens: that nobody does any more changes nothing in what was found.
fn say(text: std::fmt::Arguments<'_>) {
    if let Err(error) = std::io::stdout().write_fmt(text)
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        eprintln!("campaign: it could not be printed: {error}");
    }
}

/// The list of what was run: each row is added as it ends, for those after it may take hours.
struct Notes<'a> {
    path: &'a Path,
    /// As it is when the run begins: later the source may be another, and the list itself be new.
    commit: String,
}

impl<'a> Notes<'a> {
    /// Makes sure, now and not after hours, that rows can be added: to add none needs the same.
    fn begin(path: &'a Path) -> Result<Self, String> {
        let begun = Begun::with_this_program();
        let begun = begun.and_then(|begun| holdfast_evidence::append(path, &[]).map(|()| begun));
        begun
            .map(|begun| Self { path, commit: begun.commit() })
            .map_err(|error| format!("{error:#}"))
    }

    /// Adds a row; whether that could be done.
    fn add(&self, outcome: &Outcome, plan: &Plan) -> bool {
        let row = report::evidence(outcome, plan, &self.commit);
        let done = holdfast_evidence::append(self.path, &[row]);
        if let Err(error) = &done {
            eprintln!("campaign: row {} is not noted: {error:#}", outcome.row);
        }
        done.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::tally::{Fault, Tally, Violation};

    static RELEASED: AtomicBool = AtomicBool::new(false);

    const FINE: Row = Row {
        name: "fine",
        story: "ends",
        cases: |_| 3,
        run: |_| Tally { count: 5, ..Tally::default() },
        finish: |_| {},
        patience: Duration::from_secs(60),
        threads: 1,
    };
    /// Its last case hangs until the program would have ended.
    const HANGS: Row = Row {
        name: "hangs",
        run: |case| {
            while case.number == 2 && !RELEASED.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            Tally { count: 7, ..Tally::default() }
        },
        finish: |tally| tally.convict(Violation::new(Fault::Unnoticed, "too few")),
        patience: Duration::from_millis(50),
        ..FINE
    };
    const ROWS: &[Row] = &[FINE, HANGS];

    static STOP: AtomicBool = AtomicBool::new(false);
    /// Its second case finds something, and in its third one somebody asks for an end.
    const STOPPED: Row = Row {
        name: "stopped",
        cases: |_| 9,
        run: |case| {
            let mut tally = Tally { count: 7, ..Tally::default() };
            if case.number > 0 {
                tally.convict(Violation::new(Fault::Wrong, "a wrong byte"));
            }
            STOP.fetch_or(case.number == 2, Ordering::SeqCst);
            tally
        },
        patience: Duration::from_secs(60),
        ..HANGS
    };
    static STOP_QUIET: AtomicBool = AtomicBool::new(false);
    const QUIET: Row = Row {
        name: "quiet",
        run: |case| {
            STOP_QUIET.fetch_or(case.number == 2, Ordering::SeqCst);
            Tally { count: 7, ..Tally::default() }
        },
        ..STOPPED
    };

    fn campaign(rows: &'static [Row]) -> Campaign {
        let no: fn(&str) -> ExitCode = |_| ExitCode::FAILURE;
        let goals: Goals = |_, _| (Vec::new(), true);
        Campaign {
            name: "tried",
            rows,
            victim: no,
            goals,
            logged: no,
            images: |_| ExitCode::FAILURE,
        }
    }

    #[test]
    fn what_was_done_before_a_case_hung_is_noted_and_that_it_hung() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("evidence.md");
        let cli = Cli::try_parse_from(["campaign", "tried"]).expect("words");
        let noted = std::sync::Mutex::new(None);
        // What is there when the program ends.
        let end = || {
            *noted.lock().expect("nobody panicked") = std::fs::read_to_string(&path).ok();
            RELEASED.store(true, Ordering::SeqCst);
        };
        let notes = Notes::begin(&path).expect("it can be written");
        play(&cli, &campaign(ROWS), (Some(&notes), || false), &end);
        let noted = noted.into_inner().expect("nobody panicked").expect("a list");
        let rows = holdfast_evidence::rows(&noted).expect("rows");
        let rows: Vec<_> =
            rows.iter().map(|it| (&it.method[..], it.count, it.violations)).collect();
        assert_eq!(rows, [("tried fine", 15, 0), ("tried hangs", 14, 2)]);
    }

    #[test]
    fn what_is_stopped_is_noted_if_it_had_found_something_and_nothing_is_run_behind_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("evidence.md");
        let cli = Cli::try_parse_from(["campaign", "tried"]).expect("words");
        let notes = Notes::begin(&path).expect("it can be written");
        let quiet = || STOP_QUIET.load(Ordering::SeqCst);
        let played = play(&cli, &campaign(&[QUIET, FINE]), (Some(&notes), quiet), &|| ());
        assert!(played.passed && !played.whole);
        let found = || STOP.load(Ordering::SeqCst);
        let played = play(&cli, &campaign(&[STOPPED, FINE]), (Some(&notes), found), &|| ());
        assert!(!played.passed && !played.whole);
        let noted = std::fs::read_to_string(&path).expect("a list");
        let rows = holdfast_evidence::rows(&noted).expect("rows");
        let rows: Vec<_> =
            rows.iter().map(|it| (&it.method[..], &it.how[..], it.count, it.violations)).collect();
        let how = "seed 1, tier ci, stopped with 7 cases left";
        assert_eq!(rows, [("tried stopped", how, 14, 1)]);
    }
}
