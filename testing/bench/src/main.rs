//! Own benchmarks: latencies of commits, scrub, open, recovery, space. Every figure with a goal is
//! printed as a line `goal NAME value limit met|missed`.
//!
//! The engine runs on the real medium (`/dev/shm` unless told otherwise). Everything runs in one
//! process, several rounds, and is reported as medians with their spread. Ratios are taken between
//! figures of the same round, since machines are noisy and differ.
//!
//! # Guarantee
//!
//! A figure that is printed was measured in this run, by this program; a ratio compares two that
//! were taken in the same round, and one against somebody else's library takes both through the
//! same work. What could not be measured is said, and is no figure. Not covered: other machines,
//! longer runs, other mixes than those named; medians of rounds hide what happens once in a run.
//!
//! # Picture
//!
//! ```text
//!  rounds x (ours | baseline, in turns) --> medians, spreads --> ratios --> goals --> exit code
//!                                                  \--> JSON, charts, a row of the ledger
//! ```
//!
//! # Commands
//!
//! ```text
//! cargo xtask bench object [--quick] [--check] [--only PART] [--alone]
//!                          [--dir DIR] [--disk DIR] [--json FILE] [--charts DIR]
//!                          [--rounds N] [--seed N] [--ledger FILE]
//! cargo xtask bench codes [--quick] [--json FILE] [--check]
//! cargo xtask bench mapped [--quick] [--check] [--all] [--brief] [--only PART] [--dir DIR]
//!                          [--disk DIR] [--json FILE] [--charts DIR] [--trace FILE]
//! ```
//!
//! Exit codes: 0; 1 with `--check` if a goal is missed or could not be judged; 8 if the command
//! could not do what it was asked for; 16 if it does not understand that.
//!
//! What is measured of the engine: overwriting, allocating and freeing objects of 64 B to 4 KiB,
//! on a hot and on a cold set, with every protection switched on one after the other; sums in slots
//! against sums in headers; scrubbing; opening a pool that was closed and one that was killed;
//! space taken by parity and metadata. Of the codes: sums of short and long data in cache, patches
//! of sums, parity of data in memory.
//!
//! # Tour
//!
//! - `race/` our engine and libpmemobj in turns: `objects.rs` and `maps.rs` what is run,
//!   `measure.rs` slices of work, `ours.rs` our side
//! - `disk/` durable inserts on an ordinary file, against what one would take instead
//! - `foreign/` other people's libraries: got by `fetch.rs`, one file for each
//! - `object.rs` the runs of the engine; `steps.rs` a commit step by step, with `counters.rs`
//!   of the processor; `interference.rs` commits beside a scrub; `scrubbed.rs` inserts with scrubs
//!   between; `waits.rs` commits beside repairs; `placement.rs` sums in slots against sums in
//!   headers
//! - `replica.rs` what a replica of libpmemobj does about damage and loss, beside our parity;
//!   `damage.rs` what is served after the same damage to both, thousands of times
//! - `codes.rs` the runs of the codes
//! - `mapped/` programs that store to a plain mapping, protected and not; its own tour
//! - `asked.rs` what was asked for, looked at before anything runs; `say.rs` what is printed
//! - `place.rs` folders for pools, which go with their run; `rig.rs` pools to measure on
//! - `report.rs` medians, ratios, percentiles, goals, JSON
//! - `headlines.rs` the ratios published for the design this engine goes back to, and ours
//! - `charts.rs` bars as SVG; `drawings.rs` which of them, from which figures

mod asked;
mod charts;
mod codes;
mod counters;
mod damage;
mod disk;
mod drawings;
mod foreign;
mod headlines;
mod interference;
mod mapped;
mod maps;
mod object;
mod place;
mod placement;
mod profile;
mod race;
mod replica;
mod report;
mod rig;
mod say;
mod scrubbed;
mod steps;
mod waits;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use holdfast_evidence::{Begun, stop};

#[derive(Debug, Parser)]
#[command(about = "Own benchmarks: every figure with its goal")]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The object engine.
    Object(Options),
    /// One operation over and over, for a profiler.
    Profile(profile::Options),
    /// Mapped files.
    Mapped(mapped::Options),
    /// Checksums and parity.
    Codes(codes::Options),
}

/// How a benchmark runs.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Fewer rounds, smaller pools.
    #[arg(long)]
    quick: bool,
    /// Only this part: race, race-maps, growth, steps, latencies, maps, placement, scrub,
    /// interference, disk, open, space, waits, replica or damage.
    #[arg(long)]
    only: Option<String>,
    /// How often the part `damage` damages both pools [default: 1000, or 50 with --quick].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// What the part `damage` draws its damage from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Add what the part `damage` did to this list of what was run.
    #[arg(long)]
    ledger: Option<PathBuf>,
    /// Only objects of this length: 64, 256, 1024 or 4096.
    #[arg(long)]
    len: Option<u64>,
    /// Where pools are made.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Write all figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Exit 1 if a goal is missed, or could not be judged although it was not left out.
    #[arg(long)]
    check: bool,
    /// Do not fetch other people's libraries; run our side alone.
    #[arg(long)]
    alone: bool,
    /// Where the pools and files of the comparison on a disk are made [default: target folder].
    #[arg(long)]
    disk: Option<PathBuf>,
    /// Write charts to this folder.
    #[arg(long)]
    charts: Option<PathBuf>,
    /// libpmemobj, if it could be loaded.
    #[arg(skip)]
    shim: Option<foreign::pmemobj::Shim>,
    /// What the source was before anything was run, if that is to be noted.
    #[arg(skip)]
    begun: Option<Box<Begun>>,
}

/// A goal was missed, or could not be judged.
const MISSED: u8 = 1;
/// The command could not do what it was asked for.
const OPERATIONAL: u8 = 8;
/// The command was asked in a way it does not understand.
const USAGE: u8 = 16;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help is asked for, and is no error. Nothing is left to do if it cannot be written.
            let _ = error.print();
            return if error.use_stderr() { USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    stop::end_at_once();
    let check = match &args.what {
        What::Object(options) => options.check,
        What::Profile(_) => false,
        What::Mapped(options) => options.check,
        What::Codes(options) => options.check,
    };
    let done = say::heard(|| match args.what {
        What::Object(options) => object::run(options),
        What::Profile(options) => profile::run(options).map(|()| 0),
        What::Codes(options) => codes::run(&options),
        What::Mapped(options) => mapped::run(options),
    });
    match done {
        Ok(missed) if missed > 0 && check => MISSED.into(),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "bench: {error:#}");
            if error.is::<asked::Usage>() { USAGE.into() } else { OPERATIONAL.into() }
        }
    }
}
