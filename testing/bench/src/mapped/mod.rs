//! Mapped files: what background redundancy costs a program that stores to a plain mapping.
//!
//! ```text
//! cargo xtask bench mapped [--quick] [--check] [--all] [--brief] [--only PART] [--dir DIR]
//!                          [--disk DIR] [--json FILE] [--charts DIR] [--trace FILE]
//! ```
//!
//! # Tour
//!
//! - `area.rs` the file a program stores to; `loads.rs`, `hash.rs`, `tree.rs` what it does there
//! - `kept.rs` every way to protect it, with its switches
//! - `measure.rs`, `latency.rs` turns with and without protection; `model.rs` what they should
//!   cost; `cases.rs` one workload under one protection, printed
//! - `losses.rs` the cases that goals hang on, `switches.rs` those that none does
//! - `costs.rs` scans, rates, space; `fio.rs` somebody else's program
//! - `vulnerable.rs` how much is not covered at a time, live and from a trace
//! - `published.rs` the figures of the design this goes back to, and ours; `drawings.rs` charts

mod area;
mod cases;
mod costs;
mod drawings;
mod fio;
mod hash;
mod kept;
pub(crate) mod latency;
mod loads;
mod losses;
mod measure;
mod model;
mod published;
mod switches;
mod tree;
mod vulnerable;

use std::path::PathBuf;

use anyhow::Context;

use crate::asked::{self, require};
use crate::place::Place;
use crate::report::Report;
use crate::say;

/// How mapped files are measured.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Small files and short periods: shows that everything runs, and judges no loss.
    #[arg(long)]
    quick: bool,
    /// Also what no goal hangs on: every switch, every period.
    #[arg(long)]
    all: bool,
    /// Periods of one second only: the goals of longer ones are left out.
    #[arg(long)]
    brief: bool,
    /// Only this part: costs, hash, tree, lines, disk, switches, fio or vulnerability.
    #[arg(long)]
    only: Option<String>,
    /// Where the files of the main figures are made: in memory.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Where the files on a disk are made [default: the target folder].
    #[arg(long)]
    disk: Option<PathBuf>,
    /// A trace of passes, which the part vulnerability reads.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Write all figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Exit 1 if a goal is missed, or could not be judged although it was not left out.
    #[arg(long)]
    pub(crate) check: bool,
    /// Write charts to this folder.
    #[arg(long)]
    charts: Option<PathBuf>,
}

type Part = fn(&Options, &mut Report) -> anyhow::Result<()>;

/// What there is to run, in this order, and whether a goal hangs on it.
const PARTS: [(&str, Part, bool); 8] = [
    ("costs", costs::costs, true),
    ("hash", losses::hash, true),
    ("tree", losses::tree, true),
    ("lines", losses::lines, true),
    ("disk", losses::disk, true),
    ("switches", switches::switches, false),
    ("fio", fio::fio, true),
    ("vulnerability", vulnerable::vulnerability, false),
];

fn check(o: &Options) -> anyhow::Result<()> {
    let names = PARTS.map(|(name, ..)| name);
    if let Some(only) = o.only.as_deref() {
        require(names.contains(&only), || {
            format!("--only {only}: there is no such part; the parts are {}", names.join(", "))
        })?;
    }
    let reads = o.only.as_deref() == Some("vulnerability");
    require(o.trace.is_none() || reads, || {
        "--trace FILE is read by the part vulnerability: add --only vulnerability".to_owned()
    })?;
    asked::writable_file(o.json.as_deref())?;
    asked::writable_folder(o.charts.as_deref())?;
    asked::disk(o.disk.as_deref())
}

/// Runs everything. Answers the number of goals missed, or asked for and not judged.
pub(crate) fn run(mut o: Options) -> anyhow::Result<u32> {
    check(&o)?;
    let place = Place::make(&o.dir).context("--dir")?;
    o.dir = place.path().to_owned();
    let mut report = Report::default();
    measure::pin(0);
    let ran = say::heard(|| measure_all(&o, &mut report));
    report.remark("complete", ran.is_ok().into());
    if let Some(path) = &o.json {
        report.save(path)?;
    }
    if let Some(dir) = &o.charts {
        drawings::draw(&report, dir)?;
    }
    ran?;
    Ok(report.missed() + report.not_judged())
}

fn measure_all(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    for (name, part, judged) in PARTS {
        let wanted = match o.only.as_deref() {
            Some(only) => only == name,
            None => judged || o.all || o.quick,
        };
        if wanted {
            part(o, report).with_context(|| format!("part {name}"))?;
        }
    }
    published::print(report);
    report.summary();
    Ok(())
}
