//! The object engine: overwrite, allocate, free; modes; scrub; open and recovery; space.

use std::time::Instant;

use anyhow::Context;
use holdfast_layout::{RawPtr, SumKind, TypeNumber};
use holdfast_object::{CreateOptions, OpenOptions, Parity, Pool, ScrubControl, ScrubOptions};
use holdfast_pmem::Mapped;
use holdfast_txn::Transaction;
use holdfast_workloads::rng::Rng;

use crate::Options;
use crate::asked::{self, require};
use crate::foreign::pmemobj::Shim;
use crate::place::Place;
use crate::report::{Limit, Report, Spread};
use crate::rig::{Rig, fill};
use crate::say::{self, say};

/// What a pool is protected by: its name, parity, sums, and whether metadata and log have copies.
pub(crate) type Mode = (&'static str, Parity, SumKind, bool);

/// Protections, from none to all: each row's price is its difference to the one above.
pub(crate) const MODES: [Mode; 5] = [
    ("private copies only", Parity::None, SumKind::None, false),
    ("+ metadata and log copies", Parity::None, SumKind::None, true),
    ("+ parity P", Parity::P, SumKind::None, true),
    ("+ sums (default)", Parity::P, SumKind::Crc32c, true),
    ("+ parity Q", Parity::PQ, SumKind::Crc32c, true),
];

pub(crate) fn options(size: u64, mode: Mode) -> CreateOptions {
    CreateOptions {
        size,
        parity: mode.1,
        sums: mode.2,
        metadata_copies: mode.3,
        ..CreateOptions::default()
    }
}

type Part = fn(&Options, &mut Report) -> anyhow::Result<()>;

/// What there is to run, in this order.
const PARTS: [(&str, Part); 15] = [
    ("race", crate::race::objects::race),
    ("race-maps", crate::race::maps::race),
    ("growth", crate::race::maps::growth),
    ("steps", crate::steps::steps),
    ("latencies", latencies),
    ("maps", crate::maps::maps),
    ("placement", crate::placement::placement),
    ("scrub", scrubbing),
    ("interference", crate::interference::interference),
    ("disk", crate::disk::disk),
    ("open", opening),
    ("space", space),
    ("waits", crate::waits::waits),
    ("replica", crate::replica::replica),
    ("damage", crate::damage::damage),
];

/// Lengths of objects.
pub(crate) const LENGTHS: [u64; 4] = [64, 256, 1024, 4096];

/// Looks at what was asked for.
fn check(o: &Options) -> anyhow::Result<()> {
    let names = PARTS.map(|(name, _)| name);
    if let Some(only) = o.only.as_deref() {
        require(names.contains(&only), || {
            format!("--only {only}: there is no such part; the parts are {}", names.join(", "))
        })?;
    }
    if let Some(len) = o.len {
        require(LENGTHS.contains(&len), || format!("--len {len}: only {LENGTHS:?} are measured"))?;
    }
    asked::writable_file(o.json.as_deref())?;
    asked::writable_folder(o.charts.as_deref())?;
    asked::disk(o.disk.as_deref())
}

/// Runs everything. Answers the number of goals missed, or asked for and not judged.
pub(crate) fn run(mut o: Options) -> anyhow::Result<u32> {
    check(&o)?;
    if let Some(path) = &o.ledger {
        // Before the minutes that it takes.
        holdfast_evidence::append(path, &[])?;
        o.begun = Some(Box::new(holdfast_evidence::Begun::with_this_program()?));
    }
    let place = Place::make(&o.dir).context("--dir")?;
    o.dir = place.path().to_owned();
    let mut report = Report::of(o.alone);
    let peers = ["race", "race-maps", "replica", "damage"];
    let asked = o.only.as_deref().is_none_or(|only| peers.contains(&only));
    if asked && !o.alone {
        match Shim::load() {
            Ok(shim) => o.shim = Some(shim),
            Err(error) => say!("libpmemobj takes no part: {error:#}"),
        }
    }
    // What was measured before something went wrong is kept.
    let ran = say::heard(|| measure(&o, &mut report));
    report.remark("complete", ran.is_ok().into());
    if let Some(path) = &o.json {
        report.save(path)?;
    }
    if let Some(dir) = &o.charts {
        crate::drawings::draw(&report, dir)?;
    }
    ran?;
    Ok(report.missed() + report.not_judged())
}

fn measure(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    for (name, part) in PARTS {
        if o.only.as_deref().is_none_or(|only| only == name) {
            part(o, report).with_context(|| format!("part {name}"))?;
        }
    }
    if !o.alone
        && let Ok(versions) = crate::foreign::fetch::versions()
    {
        report.remark("packages", versions.into());
    }
    crate::headlines::print(report);
    report.summary();
    Ok(())
}

/// Nanoseconds per call of `step`, over `count` calls, in each of several rounds.
pub(crate) fn time(
    rounds: usize,
    count: usize,
    mut step: impl FnMut(usize) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<f64>> {
    let mut values = Vec::new();
    for round in 0..=rounds {
        let start = Instant::now();
        for i in 0..count {
            step(i)?;
        }
        // The first round warms up caches, lanes and arenas.
        if round > 0 {
            values.push(start.elapsed().as_secs_f64() * 1e9 / count as f64);
        }
    }
    Ok(values)
}

fn latencies(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let size = if o.quick { 256 << 20 } else { 1 << 30 };
    let rounds = if o.quick { 3 } else { 7 };
    let count = if o.quick { 20_000 } else { 100_000 };
    for len in LENGTHS {
        if o.len.is_some_and(|only| only != len) {
            continue;
        }
        say!("-- objects of {len} bytes");
        for mode in MODES {
            let rig = Rig::new(&o.dir, &options(size, mode), OpenOptions::default())?;
            let pool = rig.pool();
            let cold = (size * 2 / 5 / (len + 64)) as usize;
            let objects = fill(pool, cold.min(1_000_000), len)?;
            let mut bytes = vec![0; len as usize];
            let mut rng = Rng::new(7);
            for (set, some) in [("hot", &objects[..1000]), ("cold", &objects[..])] {
                let values = time(rounds, count, |i| {
                    let object = some[rng.below(some.len() as u64) as usize];
                    bytes.fill(i as u8);
                    overwrite(pool, object, &bytes)
                })?;
                let name = format!("overwrite {len} {set}, {}", mode.0);
                report.figure(&name, "ns", Spread::of(values));
            }
            allocate_and_free(pool, len, mode.0, rounds, report)?;
        }
    }
    Ok(())
}

pub(crate) fn overwrite(pool: &Pool<Mapped>, object: RawPtr, bytes: &[u8]) -> anyhow::Result<()> {
    Ok(pool.run(|tx| tx.write_bytes(object, 0, bytes))?)
}

fn allocate_and_free(
    pool: &Pool<Mapped>,
    len: u64,
    mode: &str,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let count = 10_000;
    let bytes = vec![3; len as usize];
    let mut allocated: Vec<RawPtr> = Vec::with_capacity(count);
    let mut alloc = Vec::new();
    let mut free = Vec::new();
    for round in 0..=rounds {
        let start = Instant::now();
        for _ in 0..count {
            let p = pool.run(|tx| tx.alloc_from(TypeNumber::BYTES, &bytes))?;
            allocated.push(p);
        }
        let middle = Instant::now();
        for p in allocated.drain(..) {
            pool.run(|tx| tx.free(p))?;
        }
        if round > 0 {
            let each = |d: std::time::Duration| d.as_secs_f64() * 1e9 / count as f64;
            alloc.push(each(middle - start));
            free.push(each(middle.elapsed()));
        }
    }
    report.figure(&format!("allocate {len}, {mode}"), "ns", Spread::of(alloc));
    report.figure(&format!("free {len}, {mode}"), "ns", Spread::of(free));
    Ok(())
}

fn scrubbing(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let size = if o.quick { 256 << 20 } else { 1 << 30 };
    let mut rig = Rig::new(&o.dir, &options(size, MODES[3]), OpenOptions::default())?;
    fill(rig.pool(), (size / 5200) as usize, 4096)?;
    let (mut live, mut columns, mut full) = (Vec::new(), Vec::new(), 0.0);
    for _ in 0..3 {
        let start = Instant::now();
        let control = ScrubControl::default();
        let done = rig.pool().scrub(ScrubOptions::default(), &control, |_, _| {})?;
        anyhow::ensure!(done.report.is_clean(), "a fresh pool has findings");
        let nanoseconds = start.elapsed().as_secs_f64() * 1e9;
        live.push(done.report.object_bytes as f64 / nanoseconds);
        columns.push(done.report.column_bytes as f64 / nanoseconds);
        full = done.report.object_bytes as f64 * 100.0 / size as f64;
    }
    // Every live byte is verified against its sum, and every column, free bytes included, against
    // its parity, in the same time. What was asked for is the rate of the former.
    say!("scrub: objects of 4 KiB fill {full:.0} % of the pool");
    let rate = Spread::of(live);
    report.figure("scrub with parity, live bytes verified", "GB/s", rate);
    report.figure("scrub with parity, bytes of columns compared", "GB/s", Spread::of(columns));
    report.goal("scrub_live_gb_per_s", rate.median, Limit::AtLeast(4.0));
    let mut opens = Vec::new();
    for _ in 0..5 {
        opens.push(rig.reopen(true)?.0);
    }
    let open = Spread::of(opens);
    report.figure("open after clean close", "ms", open);
    if o.quick {
        report.left_out("open_clean_1gib_ms", "--quick: a smaller pool");
    } else {
        report.goal("open_clean_1gib_ms", open.median, Limit::AtMost(50.0));
    }
    Ok(())
}

fn opening(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let size = if o.quick { 256 << 20 } else { 1 << 30 };
    let mut rig = Rig::new(&o.dir, &options(size, MODES[3]), OpenOptions::default())?;
    let objects = fill(rig.pool(), 200_000, 256)?;
    let mut rng = Rng::new(11);
    let mut times = Vec::new();
    for round in 0..3_u8 {
        for i in 0..20_000 {
            let object = objects[rng.below(objects.len() as u64) as usize];
            overwrite(rig.pool(), object, &[round.wrapping_add(i as u8); 256])?;
        }
        let (ms, opened) = rig.reopen(false)?;
        anyhow::ensure!(!opened.clean, "the copy was taken from an open pool");
        times.push(ms);
    }
    let spread = Spread::of(times);
    report.figure("recovery after a kill under load", "ms", spread);
    report.goal("recovery_ms", spread.median, Limit::AtMost(200.0));
    Ok(())
}

fn space(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let size = 1_u64 << 30;
    let rig = Rig::new(&o.dir, &options(size, MODES[3]), OpenOptions::default())?;
    let sb = rig.pool().superblock();
    let zones = rig.pool().regions();
    let parity: u64 = zones.iter().map(|r| u64::from(r.parity_rows) * r.row_len).sum();
    report.goal("parity_percent", parity as f64 * 100.0 / size as f64, Limit::AtMost(1.1));
    let metadata = sb.log_start * u64::from(sb.copies);
    let share = metadata as f64 * 100.0 / size as f64;
    report.goal("metadata_percent", share, Limit::AtMost(0.2));
    Ok(())
}
