//! The `holdfast` command: pools made, checked, scrubbed, repaired, damaged on purpose, shown.
//!
//! # Guarantee
//!
//! A command that only looks never changes the file, not even to recover a pool that was not
//! closed: it works on pages of its own. Nothing is repaired unless the command says so by its
//! name or `--repair`. Every failure names its cause and a remedy, on standard error and with
//! `--json` as an object, and the exit code tells the kind; no input makes it panic.
//!
//! Not covered: a file that changes under a command because somebody ignores the lock. `inject`
//! damages files, and only those made for it.
//!
//! # Picture
//!
//! ```text
//!   args.rs -> main.rs -> commands/ -> the facade -> one file
//!                            |             |
//!                     out.rs, exit.rs   the owner, if the pool is open elsewhere
//! ```
//!
//! # Vocabulary
//!
//! *owner*: the process that has a pool open for writing; commands on such a pool reach it by a
//! local socket. *protected file*: one of any program, with a side file beside it. *fault*: damage
//! done on purpose. *record*: the line that tells what a fault did and what was there before.
//!
//! # Life of one command
//!
//! 1. `config.rs` reads the defaults of whoever runs it, `args.rs` the command line; what they do
//!    not understand ends with code 16.
//! 2. The pool is opened: privately to look, for writing to change, or its owner is reached.
//! 3. Progress goes to standard error if a terminal is there; results go to standard output.
//! 4. Closing the pool fences what was changed; `exit.rs` makes the code from what was found.
//!
//! # Tour
//!
//! `main.rs` only calls [`main`]; `commands/` one file each; `top/` the dashboard; `faults/`
//! choosing and doing damage; `demo/` the demo and its two child processes; `out.rs` tables and
//! objects; `size.rs` sizes and times; `failure.rs` what can go wrong; `interrupt.rs` Ctrl-C;
//! `progress.rs` bars.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod config;
mod demo;
mod exit;
mod failure;
mod faults;
mod interrupt;
mod out;
mod progress;
mod rng;
mod session;
mod size;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use args::{Cli, Command, FileArgs, InjectCommand, MapCommand, PoolCommand, ScrubCommand};
use commands::keeper::explained;
use config::Config;
use exit::Exit;
use failure::{Failure, Outcome};
use out::Out;

/// Runs the command that the arguments of this process name.
#[must_use]
pub fn main() -> ExitCode {
    let known = Cli::command();
    let config = match Config::find(std::env::args_os(), &known) {
        Ok(config) => config,
        Err(failure) => {
            for_programs(false).failure("holdfast", &failure);
            return failure.exit().into();
        }
    };
    let (json, quiet, verbose) = (config.json, config.quiet, config.verbose);
    let mut known = config.apply(known);
    let read = known.try_get_matches_from_mut(std::env::args_os());
    let cli = match read.and_then(|read| Cli::from_arg_matches(&read)) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers; everything else is misuse.
            let printed = error.print();
            if !error.use_stderr() {
                return printed.map_or_else(|error| out::give_up(&error), |()| Exit::CLEAN.into());
            }
            misused(&error, json);
            return Exit::USAGE.into();
        }
    };
    let common = &cli.common;
    let out = Out {
        json: common.json || json && !common.no_json,
        quiet: common.quiet || quiet && !common.no_quiet,
        verbose: if common.verbose > 0 { common.verbose } else { verbose },
    };
    // Signals to a guard are its program's.
    if !matches!(cli.command, Command::Guard(_)) {
        interrupt::listen();
    }
    let name = name(&cli.command);
    match run(out, cli.command) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            out.failure(name, &failure);
            failure.exit().into()
        }
    }
}

/// All commands and options there are, with their built-in defaults.
#[must_use]
pub fn known() -> clap::Command {
    Cli::command()
}

/// Reads a command line, and the text of a configuration if there is one, and does nothing of what
/// they say: whether they make sense. `known` is what [`known`] answers.
///
/// # Errors
/// What is wrong with them, as people are told.
pub fn understand(
    known: clap::Command,
    config: Option<&str>,
    words: impl IntoIterator<Item = std::ffi::OsString>,
) -> Result<(), String> {
    let config = config.map(|text| Config::of_text(text, &known)).transpose()?.unwrap_or_default();
    let read = config.apply(known).try_get_matches_from_mut(words);
    let read = read.and_then(|read| Cli::from_arg_matches(&read));
    read.map(drop).map_err(|error| error.to_string())
}

/// Tells programs, too, that the command line makes no sense; people were told.
fn misused(error: &clap::Error, json: bool) {
    let out = for_programs(json);
    if !out.json {
        return;
    }
    let text = error.to_string();
    let cause = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    let failure = Failure::usage(cause, "see `holdfast --help`");
    out.failure_object("holdfast", &failure);
}

/// Output as long as nobody can tell what the command line says of it.
fn for_programs(json: bool) -> Out {
    // What follows is a guarded program's.
    let words = || std::env::args_os().take_while(|word| word != "--");
    let says = |wanted: &str| words().any(|word| word == wanted);
    let json = says("--json") || says("-j") || json && !says("--no-json");
    Out { json, quiet: false, verbose: 0 }
}

fn run(out: Out, command: Command) -> Outcome {
    match command {
        Command::Pool(PoolCommand::Create(args)) => commands::pool::create(out, &args),
        Command::Pool(PoolCommand::Info(args)) => commands::pool::info(out, &args.pool),
        Command::Pool(PoolCommand::Grow(args)) => commands::grow::grow(out, &args),
        Command::Pool(PoolCommand::List(args)) => commands::list::list(out, &args.dir),
        Command::Pool(PoolCommand::Rm(args)) => commands::rm::rm(out, &args),
        Command::Pool(PoolCommand::Sweep(args)) => commands::sweep::sweep(out, &args),
        Command::Check(args) => commands::check::check(out, &args),
        Command::Scrub(command) => match command {
            ScrubCommand::Start(args) => commands::scrub::start(out, &args, false),
            ScrubCommand::Resume(args) => commands::scrub::start(out, &args, true),
            ScrubCommand::Status(args) => commands::scrub::status(out, &args.pool),
            ScrubCommand::Pause(args) => commands::scrub::stop(out, &args.pool, false),
            ScrubCommand::Cancel(args) => commands::scrub::stop(out, &args.pool, true),
        },
        Command::Repair(args) => {
            explained(commands::mend::repair(out, &args), &args.pool, args.side.as_ref())
        }
        Command::Protect(args) => {
            let FileArgs { file, side, .. } = &args.file;
            explained(commands::protect::protect(out, &args), file, side.as_ref())
        }
        Command::Verify(args) => {
            explained(commands::mend::verify(out, &args), &args.file, args.side.as_ref())
        }
        Command::Status(args) => commands::protect::status(out, &args),
        Command::Unprotect(args) => {
            let FileArgs { file, side, .. } = &args.file;
            explained(commands::protect::unprotect(out, &args), file, side.as_ref())
        }
        Command::Guard(args) => commands::guard::guard(out, &args),
        Command::Inject(InjectCommand::Restore(args)) => commands::inject::restore(out, &args),
        Command::Inject(command) => commands::inject::inject(out, &command),
        Command::Events(args) => commands::events::events(out, &args),
        Command::Stats(args) => commands::stats::stats(out, &args.pool),
        Command::Export(args) => commands::export::export(out, &args),
        Command::Import(args) => commands::import::import(out, &args),
        Command::Bench(args) => commands::bench::bench(out, &args),
        Command::Top(args) => top::top(out, &args),
        Command::Map(command) => match command {
            MapCommand::Get(args) => commands::map::get(out, &args),
            MapCommand::Put(args) => commands::map::put(out, &args),
            MapCommand::Del(args) => commands::map::del(out, &args),
            MapCommand::Scan(args) => commands::map::scan(out, &args),
            MapCommand::Load(args) => commands::load::load(out, &args),
            MapCommand::List(args) => commands::map::list(out, &args.pool),
        },
        Command::Demo(args) => demo::run(out, &args),
        Command::Completions(args) => commands::manual::completions(out, args.shell),
        Command::Man(args) => commands::manual::man(out, args.dir.as_deref()),
        Command::DemoInjector(args) => demo::injector::run(&args),
        Command::DemoVictim(args) => demo::victim::run(&args),
    }
}

/// The command as it is called, for its output.
fn name(command: &Command) -> &'static str {
    match command {
        Command::Pool(PoolCommand::Create(_)) => "pool create",
        Command::Pool(PoolCommand::Info(_)) => "pool info",
        Command::Pool(PoolCommand::Grow(_)) => "pool grow",
        Command::Pool(PoolCommand::List(_)) => "pool list",
        Command::Pool(PoolCommand::Rm(_)) => "pool rm",
        Command::Pool(PoolCommand::Sweep(_)) => "pool sweep",
        Command::Check(_) => "check",
        Command::Scrub(ScrubCommand::Start(_)) => "scrub start",
        Command::Scrub(ScrubCommand::Resume(_)) => "scrub resume",
        Command::Scrub(ScrubCommand::Status(_)) => "scrub status",
        Command::Scrub(ScrubCommand::Pause(_)) => "scrub pause",
        Command::Scrub(ScrubCommand::Cancel(_)) => "scrub cancel",
        Command::Repair(_) => "repair",
        Command::Protect(_) => "protect",
        Command::Verify(_) => "verify",
        Command::Status(_) => "status",
        Command::Unprotect(_) => "unprotect",
        Command::Guard(_) => "guard",
        Command::Inject(_) => "inject",
        Command::Events(_) => "events",
        Command::Stats(_) => "stats",
        Command::Export(_) => "export",
        Command::Import(_) => "import",
        Command::Bench(_) => "bench",
        Command::Top(_) => "top",
        Command::Map(MapCommand::Get(_)) => "map get",
        Command::Map(MapCommand::Put(_)) => "map put",
        Command::Map(MapCommand::Del(_)) => "map del",
        Command::Map(MapCommand::Scan(_)) => "map scan",
        Command::Map(MapCommand::Load(_)) => "map load",
        Command::Map(MapCommand::List(_)) => "map list",
        Command::Demo(_) => "demo",
        Command::Completions(_) => "completions",
        Command::Man(_) => "man",
        Command::DemoInjector(_) => "demo-injector",
        Command::DemoVictim(_) => "demo-victim",
    }
}
