//! On an ordinary file: our File medium against what a user would take instead, every commit
//! durable, on the same disk.
//!
//! The floor is one write of 4 KiB and one `fdatasync`. All take the same keys and values of
//! [`VALUE`] bytes. Runs are long enough for our log to be reclaimed [`RECLAIMS`] times, which is
//! counted: what a reclaim costs is in the figures, or no goal is judged by them.

mod stores;

use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use holdfast_workloads::rng::Rng;

use crate::Options;
use crate::place::Place;
use crate::report::{Limit, Report, Spread};
use crate::say::say;
use stores::{Store, Writer};

/// Bytes of a value.
pub(crate) const VALUE: usize = 100;
/// Reclaims of our log that the figures hold.
const RECLAIMS: u64 = 3;
/// Bytes of each copy of our log: the default on files.
pub(crate) const LOG: u64 = 32 << 20;
/// Bytes of a page: what a commit takes of the log at least.
const PAGE: u64 = 4096;
/// Inserts of a large transaction.
const BATCH: usize = 64;
/// Bytes of log a large transaction takes at least: each entry has a key and a value.
const BATCH_LOG: u64 = (BATCH * (8 + VALUE)) as u64;

/// How the inserts come.
#[derive(Debug, Clone, Copy)]
struct Load {
    name: &'static str,
    threads: usize,
    batch: usize,
    /// Log of ours that one transaction takes at least. Two threads may share a page.
    log: u64,
}

const LOADS: [Load; 3] = [
    Load { name: "1 insert, 1t", threads: 1, batch: 1, log: PAGE },
    Load { name: "1 insert, 2t", threads: 2, batch: 1, log: PAGE / 2 },
    Load { name: "64 inserts, 2t", threads: 2, batch: BATCH, log: BATCH_LOG },
];

/// Everything on the disk.
pub(crate) fn disk(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let dir = match &o.disk {
        Some(dir) => dir.clone(),
        None => {
            let program = std::env::current_exe()?;
            program.ancestors().nth(2).context("not in a target folder")?.to_owned()
        }
    };
    let dir = Place::make(&dir)?;
    say!("-- files in {}", dir.path().display());
    let rounds = if o.quick { 1 } else { 3 };
    let mut reclaims = [u64::MAX; LOADS.len()];
    for (load, reclaims) in LOADS.into_iter().zip(&mut reclaims) {
        let mut values: Vec<(&str, Taken)> = Vec::new();
        for round in 0..rounds {
            let before = floor(dir.path(), o.quick)?;
            for store in Store::ALL {
                if o.alone && store.is_fetched() {
                    continue;
                }
                match one(o, dir.path(), store, load, round) {
                    Ok(done) => {
                        *reclaims = done.reclaims.unwrap_or(*reclaims).min(*reclaims);
                        keep(&mut values, store.name(), done.ns, done.times);
                    }
                    Err(error) if store.is_fetched() => {
                        say!("{} takes no part: {error:#}", store.name());
                    }
                    Err(error) => return Err(error),
                }
            }
            // The disk's own speed drifts: the floor is what it was before and after.
            let after = floor(dir.path(), o.quick)?;
            keep(&mut values, "floor", (before + after) / 2.0, Vec::new());
        }
        for (store, (values, times)) in values {
            let per = if store == "floor" { "us/write" } else { "us/insert" };
            let values = values.into_iter().map(|ns| ns / 1e3).collect();
            let name = format!("disk {}, {store}", load.name);
            report.rounds(&name, per, values);
            report.percentiles(&name, times);
        }
        let name = format!("disk {}, reclaims of our log", load.name);
        report.figure(&name, "times", Spread::of(vec![*reclaims as f64]));
    }
    goals(o, reclaims, report);
    Ok(())
}

/// The figures to reach; they hold the price of reclaims, or they are none.
fn goals(o: &Options, reclaims: [u64; LOADS.len()], report: &mut Report) {
    for (name, load, over, under, limit) in [
        ("durable_insert_over_floor", 0, "ours", "floor", Limit::AtMost(1.3)),
        ("durable_batches_over_lmdb", 2, "LMDB", "ours", Limit::AtLeast(5.0)),
    ] {
        let figure = |store: &str| format!("disk {}, {store}", LOADS[load].name);
        let reclaims = reclaims[load];
        if reclaims >= RECLAIMS {
            report.ratio_goal(name, &figure(over), &figure(under), limit);
        } else if o.quick {
            report.left_out(name, "--quick: too short for reclaims of the log");
        } else {
            report.unmeasured(name, &format!("{reclaims} reclaims of the log in a run"));
        }
    }
}

/// Nanoseconds of an insert in each round, and of each transaction.
type Taken = (Vec<f64>, Vec<u32>);

fn keep(all: &mut Vec<(&'static str, Taken)>, name: &'static str, ns: f64, times: Vec<u32>) {
    match all.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) => {
            known.0.push(ns);
            known.1.extend(times);
        }
        None => all.push((name, (vec![ns], times))),
    }
}

/// Nanoseconds of one write of 4 KiB and its `fdatasync`, in a file that has all its blocks.
fn floor(dir: &Path, quick: bool) -> anyhow::Result<f64> {
    const BLOCKS: u64 = 256;
    let mut file = std::fs::File::create(dir.join("floor"))?;
    file.write_all(&vec![1; (BLOCKS * PAGE) as usize])?;
    file.sync_all()?;
    let count = if quick { 200 } else { 2000 };
    let page = vec![2; PAGE as usize];
    let start = Instant::now();
    for i in 0..count {
        file.seek(SeekFrom::Start(i % BLOCKS * PAGE))?;
        file.write_all(&page)?;
        file.sync_data()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / count as f64)
}

/// What one run came to.
struct Run {
    /// Nanoseconds of wall time per insert, all threads together.
    ns: f64,
    /// Nanoseconds of each transaction.
    times: Vec<u32>,
    /// Reclaims of our log.
    reclaims: Option<u64>,
}

/// Of large transactions every store does the same number: trees grow deeper, and slower, by them.
/// Small ones add too few keys for that; the others, which have no such log, run as long as their
/// figure needs to be steady.
fn one(o: &Options, dir: &Path, store: Store, load: Load, round: u64) -> anyhow::Result<Run> {
    let enough = RECLAIMS * LOG / load.log;
    let transactions = match (o.quick, store == Store::Ours || load.batch > 1) {
        (true, _) => 200,
        (false, true) => enough,
        (false, false) => enough.min(10_000),
    };
    let path: PathBuf = dir.join(store.file());
    let opened = stores::open(store, &path, load.threads)?;
    let before = opened.reclaims();
    let each = transactions as usize / load.threads;
    let value = vec![3; VALUE];
    let start = Instant::now();
    let times = std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (thread, writer) in (0..).zip(opened.writers()?) {
            let mut rng = Rng::new(round << 8 | thread);
            let value = &value;
            running.push(scope.spawn(move || insert(writer, &mut rng, each, load.batch, value)));
        }
        let mut times = Vec::new();
        for one in running {
            times.extend(one.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??);
        }
        anyhow::Ok(times)
    })?;
    let inserts = each * load.threads * load.batch;
    let ns = start.elapsed().as_secs_f64() * 1e9 / inserts as f64;
    let reclaims = opened.reclaims().zip(before).map(|(after, before)| after - before);
    drop(opened);
    stores::remove(&path);
    Ok(Run { ns, times, reclaims })
}

/// Inserts, and tells what each transaction took.
fn insert(
    mut writer: Box<dyn Writer + '_>,
    rng: &mut Rng,
    transactions: usize,
    batch: usize,
    value: &[u8],
) -> anyhow::Result<Vec<u32>> {
    let mut keys = vec![0; batch];
    let mut times = Vec::with_capacity(transactions);
    for _ in 0..transactions {
        keys.fill_with(|| rng.next_u64());
        let start = Instant::now();
        writer.put_all(&keys, value)?;
        times.push(u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX));
    }
    Ok(times)
}
