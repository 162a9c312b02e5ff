//! The code that ships, run by model checkers: `cargo xtask models`.
//!
//! # Guarantee, and what is not covered
//!
//! Built with `--cfg loom`, every core of `exhaustive` is run in all interleavings of up to four
//! threads, with at most two or three switches away from a thread that could go on, and with
//! every value that the memory model lets a load see. Built with `--cfg shuttle`, the harnesses of
//! `drawn` run the engine in schedules drawn from a seed, and judge what they leave with a model
//! and, after a crash at an instant that is drawn as well, with recovery. Each law has wrong
//! variants of what it is about; a run fails if one of them is not convicted.
//!
//! Not covered: larger cores in all interleavings, weak memory in drawn schedules, and what neither
//! checker sees: the machine, the kernel, other processes.
//!
//! # Picture
//!
//! ```text
//!   wrong variants --+              +--> a law broken: the schedule, and how to run it again
//!   code that ships -+--> checker --+
//!   seed ------------+              +--> how many schedules, how many wrong variants convicted
//! ```
//!
//! # Tour
//!
//! `cli`: the command line and the report | `exhaustive`: models for loom, one file a core |
//! `drawn`: harnesses for shuttle.

#![cfg_attr(
    not(any(loom, shuttle)),
    expect(dead_code, reason = "there is no checker in this build")
)]

mod cli;
#[cfg(shuttle)]
mod drawn;
#[cfg(loom)]
mod exhaustive;

#[cfg(any(loom, shuttle))]
mod nothing;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, USAGE};

fn main() -> ExitCode {
    holdfast_evidence::stop::end_at_once();
    match Cli::try_parse() {
        Ok(cli) => run(&cli),
        Err(error) => {
            let code = if error.use_stderr() { USAGE } else { 0 };
            // Nobody reads it: there is nobody to tell that.
            let _ = error.print();
            ExitCode::from(code)
        }
    }
}

#[cfg(loom)]
fn run(cli: &Cli) -> ExitCode {
    cli::run(cli, "loom", exhaustive::run)
}

#[cfg(shuttle)]
fn run(cli: &Cli) -> ExitCode {
    cli::run(cli, "shuttle", drawn::run)
}

/// Without a checker there is nothing to run.
#[cfg(not(any(loom, shuttle)))]
fn run(_: &Cli) -> ExitCode {
    eprintln!("models: this build has no checker in it; start it with cargo xtask models");
    ExitCode::from(USAGE)
}
