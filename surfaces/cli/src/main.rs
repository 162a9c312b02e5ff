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
//! local socket. *fault*: damage done on purpose. *record*: the line that tells what a fault did
//! and what was there before.
//!
//! # Life of one command
//!
//! 1. `args.rs` reads the command line; what it does not understand ends with code 16.
//! 2. The pool is opened: privately to look, for writing to change, or its owner is reached.
//! 3. Progress goes to standard error if a terminal is there; results go to standard output.
//! 4. Closing the pool fences what was changed; `exit.rs` makes the code from what was found.
//!
//! # Tour
//!
//! `commands/` one file each; `faults/` choosing and doing damage; `demo/` the demo and its two
//! child processes; `out.rs` tables and objects; `size.rs` sizes and times; `failure.rs` what
//! can go wrong; `interrupt.rs` Ctrl-C; `progress.rs` bars.

#![forbid(unsafe_code)]

mod args;
mod commands;
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

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, InjectCommand, MapCommand, PoolCommand, ScrubCommand};
use exit::Exit;
use failure::{Failure, Outcome};
use out::Out;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers; everything else is misuse.
            let _ = error.print();
            if !error.use_stderr() {
                return Exit::CLEAN.into();
            }
            misused(&error);
            return Exit::USAGE.into();
        }
    };
    let common = &cli.common;
    let out = Out { json: common.json, quiet: common.quiet, verbose: common.verbose };
    interrupt::listen();
    let name = name(&cli.command);
    match run(out, cli.command) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            out.failure(name, &failure);
            failure.exit().into()
        }
    }
}

/// Tells programs, too, that the command line makes no sense; people were told.
fn misused(error: &clap::Error) {
    let wants = |word: std::ffi::OsString| word == "--json" || word == "-j";
    if !std::env::args_os().any(wants) {
        return;
    }
    let text = error.to_string();
    let cause = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    let failure = Failure::usage(cause, "see `holdfast --help`");
    let out = Out { json: true, quiet: false, verbose: 0 };
    out.failure_object("holdfast", &failure);
}

fn run(out: Out, command: Command) -> Outcome {
    match command {
        Command::Pool(PoolCommand::Create(args)) => commands::pool::create(out, &args),
        Command::Pool(PoolCommand::Info(args)) => commands::pool::info(out, &args.pool),
        Command::Pool(PoolCommand::Grow(args)) => commands::grow::grow(out, &args),
        Command::Check(args) => commands::check::check(out, &args),
        Command::Scrub(command) => match command {
            ScrubCommand::Start(args) => commands::scrub::start(out, &args, false),
            ScrubCommand::Resume(args) => commands::scrub::start(out, &args, true),
            ScrubCommand::Status(args) => commands::scrub::status(out, &args.pool),
            ScrubCommand::Pause(args) => commands::scrub::stop(out, &args.pool, false),
            ScrubCommand::Cancel(args) => commands::scrub::stop(out, &args.pool, true),
        },
        Command::Repair(args) => commands::check::repair(out, &args.pool),
        Command::Inject(InjectCommand::Restore(args)) => commands::inject::restore(out, &args),
        Command::Inject(command) => commands::inject::inject(out, &command),
        Command::Events(args) => commands::events::events(out, &args),
        Command::Map(command) => match command {
            MapCommand::Get(args) => commands::map::get(out, &args),
            MapCommand::Put(args) => commands::map::put(out, &args),
            MapCommand::Del(args) => commands::map::del(out, &args),
            MapCommand::Scan(args) => commands::map::scan(out, &args),
            MapCommand::Load(args) => commands::load::load(out, &args),
            MapCommand::List(args) => commands::map::list(out, &args.pool),
        },
        Command::Demo(args) => demo::run(out, &args),
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
        Command::Check(_) => "check",
        Command::Scrub(ScrubCommand::Start(_)) => "scrub start",
        Command::Scrub(ScrubCommand::Resume(_)) => "scrub resume",
        Command::Scrub(ScrubCommand::Status(_)) => "scrub status",
        Command::Scrub(ScrubCommand::Pause(_)) => "scrub pause",
        Command::Scrub(ScrubCommand::Cancel(_)) => "scrub cancel",
        Command::Repair(_) => "repair",
        Command::Inject(_) => "inject",
        Command::Events(_) => "events",
        Command::Map(MapCommand::Get(_)) => "map get",
        Command::Map(MapCommand::Put(_)) => "map put",
        Command::Map(MapCommand::Del(_)) => "map del",
        Command::Map(MapCommand::Scan(_)) => "map scan",
        Command::Map(MapCommand::Load(_)) => "map load",
        Command::Map(MapCommand::List(_)) => "map list",
        Command::Demo(_) => "demo",
        Command::DemoInjector(_) => "demo-injector",
        Command::DemoVictim(_) => "demo-victim",
    }
}
