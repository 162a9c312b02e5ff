//! What a scan, a pass and a side file cost by themselves.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use holdfast_mapped::Rearm;
use holdfast_pmem::PAGE;
use holdfast_pmem::track::folios::Folios;
use holdfast_workloads::rng::Rng;

use super::Options;
use super::area::Area;
use super::cases::judge;
use super::kept::{Kept, Means, Protection, taken};
use super::losses::lines_len;
use super::measure::thread_cpu;
use super::model::{Model, streaming};
use crate::report::{Limit, Report, Spread};
use crate::say::say;

/// Shares of the pages that are dirty when they are scanned, in percent.
const SHARES: [u64; 4] = [0, 10, 30, 100];
/// Pages of one call.
const BATCHES: [u64; 3] = [512, 8192, u64::MAX / PAGE];
/// Bytes of the sparse file, and of each of its parts.
const SPARSE: u64 = 64 << 30;
const PART: u64 = 1 << 20;
/// Parts it has.
const PARTS: u64 = 256;

pub(crate) fn costs(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let len = lines_len(o);
    let area = Arc::new(Area::new(&o.dir.join("costs"), len, Folios::Small)?);
    area.touch();
    say!("-- {} MiB; {}", len >> 20, area.folios);
    // What the first file of a process costs is not what a larger one costs.
    let fixed = in_use();
    {
        let small = Arc::new(Area::new(&o.dir.join("small"), 16 << 20, Folios::Small)?);
        let kept = Kept::new(&small, all_again())?;
        kept.begin()?;
        kept.end()?;
    }
    let before = in_use();
    report.count("memory of the first file, of 16 MiB", "KiB", before.saturating_sub(fixed) >> 10);
    let lazy = Kept::new(&area, all_again())?;
    lazy.begin()?;
    // What passes take counts, too: over everything, and over what is spread.
    kept_busy(&lazy)?;
    let used = in_use().saturating_sub(before) as f64 / f64::from(1 << 20);
    let per_gib = used * (1_u64 << 30) as f64 / len as f64;
    report.figure("memory of the protection, per GiB", "MiB", Spread::of(vec![per_gib]));
    lazy.end()?;
    space(o, report, &lazy)?;
    judge(o, report, "ram_mib_per_gib", Some(per_gib), Limit::AtMost(0.5));
    rate(o, report, &lazy)?;
    passes(o, report, &lazy)?;
    drop(lazy);
    scans(o, report, &area)?;
    drop(area);
    idle(o, report)
}

fn rounds(o: &Options) -> usize {
    if o.quick { 2 } else { 9 }
}

/// What a pass costs that leaves nothing open.
fn all_again() -> Protection {
    Protection { rearm: Rearm::All, ..Protection::of(Means::Lazy) }
}

/// Bytes of this process that are memory of its own: neither page cache nor page tables.
fn in_use() -> u64 {
    told("RssAnon:") << 10
}

/// Passes over everything and over a third.
fn kept_busy(kept: &Kept) -> anyhow::Result<()> {
    let mut rng = Rng::new(2);
    for percent in [100, 30] {
        dirty(kept.area(), percent, &mut rng);
        kept.pass()?;
    }
    Ok(())
}

/// The side file.
fn space(o: &Options, report: &mut Report, kept: &Kept) -> anyhow::Result<()> {
    let len = kept.area().len() as f64;
    let side = taken(kept.side())? as f64;
    let engine = kept.engine().context("a file that is protected has an engine")?;
    let stripes = engine.stripes();
    let parity = f64::from(stripes.parity()) / f64::from(stripes.data());
    let sums = holdfast_mapped::format::ENTRY_LEN as f64 / PAGE as f64;
    let percent = |share: f64| Spread::of(vec![100.0 * share]);
    report.figure("side file", "% of data", percent(side / len));
    report.figure("parity", "% of data", percent(parity));
    report.figure("states, notes and events", "% of data", percent(side / len - parity - sums));
    judge(o, report, "sums_percent", Some(100.0 * sums), Limit::AtMost(0.2));
    judge(o, report, "parity_percent", Some(100.0 * parity), Limit::AtMost(25.0));
    Ok(())
}

/// A pass over everything, against reading it.
fn rate(o: &Options, report: &mut Report, kept: &Kept) -> anyhow::Result<()> {
    let ordered = Model::of(kept, true, rounds(o))?;
    let random = Model::of(kept, false, rounds(o))?;
    let one = |value| Spread::of(vec![value]);
    report.figure("first store to a page, in order", "ns", one(ordered.first));
    report.figure("first store to a page, at random", "ns", one(random.first));
    let pass = PAGE as f64 / ordered.cover;
    let read = streaming(kept, rounds(o)) / 1e9;
    report.figure("a pass over everything", "GB/s", one(pass));
    report.figure("streaming read", "GB/s", one(read));
    judge(o, report, "updater_over_streaming", Some(pass / read), Limit::AtLeast(0.5));
    Ok(())
}

/// Stores to so many percent of the pages, chosen at random.
fn dirty(area: &Area, percent: u64, rng: &mut Rng) {
    for page in 0..area.len() / PAGE {
        if rng.below(100) < percent {
            area.store(page * PAGE, page);
        }
    }
}

/// Scanning and re-arming, nothing computed.
fn scans(o: &Options, report: &mut Report, area: &Arc<Area>) -> anyhow::Result<()> {
    let tracked = Kept::new(area, Protection::of(Means::TrackOnly))?;
    let source = tracked.source().context("a file that is tracked has a source")?;
    tracked.begin()?;
    let mut rng = Rng::new(4);
    for percent in SHARES {
        for batch in BATCHES {
            let mut times = Vec::new();
            for _ in 0..rounds(o) {
                dirty(area, percent, &mut rng);
                let (start, mut runs) = (Instant::now(), 0_u64);
                let step = batch.saturating_mul(PAGE).min(area.len());
                for at in (0..area.len()).step_by(step as usize) {
                    source.take(at, step.min(area.len() - at), &mut |_, _| runs += 1)?;
                }
                times.push(start.elapsed().as_secs_f64() * 1e3);
                black_box(runs);
            }
            let calls = area.len().div_ceil(batch.saturating_mul(PAGE).min(area.len()));
            let name = format!("scan and re-arm, {percent} % dirty, {calls} calls");
            report.figure(&name, "ms", Spread::of(times));
        }
    }
    tracked.end()?;
    let whole = |percent| report.median(&format!("scan and re-arm, {percent} % dirty, 1 calls"));
    let (clean, third) = (whole(0), whole(30));
    judge(o, report, "scan_clean_ms", clean, Limit::AtMost(0.6));
    judge(o, report, "scan_30_percent_ms", third, Limit::AtMost(7.0));
    Ok(())
}

/// Whole passes at the same shares: what the updater takes.
fn passes(o: &Options, report: &mut Report, kept: &Kept) -> anyhow::Result<()> {
    kept.begin()?;
    let mut rng = Rng::new(6);
    for percent in SHARES {
        let mut times = Vec::new();
        for _ in 0..rounds(o).min(5) {
            dirty(kept.area(), percent, &mut rng);
            let start = thread_cpu();
            kept.pass()?;
            times.push((thread_cpu() - start) * 1e3);
        }
        report.figure(&format!("pass, {percent} % dirty"), "CPU-ms", Spread::of(times));
    }
    kept.end()
}

/// A file that is mostly holes, to which nobody stores.
fn idle(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let parts: Vec<(u64, u64)> = (0..PARTS).map(|i| (i * (SPARSE / PARTS), PART)).collect();
    let path = o.dir.join("sparse");
    let area = Arc::new(Area::sparse(&path, SPARSE, &parts, Folios::Small)?);
    area.touch_parts(&parts);
    let tables = page_tables();
    let kept = Kept::new(&area, all_again())?;
    kept.begin()?;
    let tables = page_tables().saturating_sub(tables);
    say!("-- sparse: {} GiB, {PARTS} parts of {} MiB with storage", SPARSE >> 30, PART >> 20);
    report.count("page tables of the sparse file", "KiB", tables);
    let mut times = Vec::new();
    for _ in 0..rounds(o) * 2 {
        let start = Instant::now();
        let pages = kept.pass()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        anyhow::ensure!(pages == 0, "{pages} pages of an idle file were stored to");
    }
    let times = Spread::of(times);
    report.figure("pass over the sparse file, idle", "ms", times);
    judge(o, report, "idle_sparse_ms", Some(times.median), Limit::AtMost(1.0));
    kept.end()
}

/// KiB of page tables of this process.
fn page_tables() -> u64 {
    told("VmPTE:")
}

/// What the system says of this process, in KiB.
fn told(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
