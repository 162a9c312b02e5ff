//! Own benchmarks: latencies of commits, scrub, open, recovery, space. Every figure with a goal is
//! printed as a line `goal NAME value limit met|missed`.
//!
//! The engine runs on the real medium (`/dev/shm` unless told otherwise). Everything runs in one
//! process, several rounds, and is reported as medians with their spread. Ratios are taken between
//! figures of the same round, since machines are noisy and differ.
//!
//! ```text
//! cargo xtask bench object [--quick] [--check] [--only PART] [--alone]
//!                          [--dir DIR] [--disk DIR] [--json FILE] [--charts DIR]
//! cargo xtask bench codes [--quick] [--json FILE] [--check]
//! ```
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
//! - `object.rs` the runs of the engine; `steps.rs` a commit step by step; `interference.rs`
//!   commits beside a scrub; `waits.rs` commits beside repairs; `placement.rs` sums in slots
//!   against sums in headers
//! - `codes.rs` the runs of the codes
//! - `rig.rs` pools to measure on
//! - `report.rs` medians, ratios, percentiles, goals, JSON
//! - `headlines.rs` the ratios published for the design this engine goes back to, and ours
//! - `charts.rs` bars as SVG; `drawings.rs` which of them, from which figures

mod charts;
mod codes;
mod disk;
mod drawings;
mod foreign;
mod headlines;
mod interference;
mod maps;
mod object;
mod placement;
mod profile;
mod race;
mod report;
mod rig;
mod steps;
mod waits;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    /// interference, disk, open, space or waits.
    #[arg(long)]
    only: Option<String>,
    /// Only objects of this length.
    #[arg(long)]
    len: Option<u64>,
    /// Where pools are made.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Write all figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Exit 1 if a goal is missed.
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
}

fn main() -> ExitCode {
    let (done, check) = match Args::parse().what {
        What::Object(options) => (object::run(options.clone()), options.check),
        What::Profile(options) => (profile::run(&options).map(|()| 0), false),
        What::Codes(options) => (codes::run(&options), options.check),
    };
    match done {
        Ok(missed) if missed > 0 && check => ExitCode::from(1),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::from(8)
        }
    }
}
