//! One operation, over and over, for a profiler to look at.
//!
//! What is counted lies within [`profiled`]: `valgrind --tool=callgrind --collect-atstart=no
//! --toggle-collect='*profiled*'` sees the operation alone, without the making of the pool.

use std::time::Instant;

use anyhow::Context;
use holdfast_collections::{Kind, Map};
use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_object::{OpenOptions, Pool};
use holdfast_pmem::Mapped;
use holdfast_txn::Transaction;
use holdfast_workloads::rng::Rng;

use crate::asked::{Usage, require};
use crate::object::{MODES, options, overwrite};
use crate::place::Place;
use crate::report::Spread;
use crate::rig::{Rig, fill};
use crate::say::say;

/// Operations that are timed together.
const ROUND: usize = 10_000;
/// Bytes of the longest object or value.
const LEN_MAX: u64 = 1 << 20;

/// What to run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// overwrite, alloc, free, read, or insert, get or remove (with --map).
    op: String,
    /// Length of the objects or values.
    #[arg(long, default_value_t = 64)]
    len: u64,
    /// Times.
    #[arg(long, default_value_t = 1000)]
    count: usize,
    /// Kind of map.
    #[arg(long, default_value = "hashmap")]
    map: String,
    /// Objects to choose from: 2000 stay in the caches, some millions do not.
    #[arg(long, default_value_t = 2000)]
    objects: usize,
    /// Threads, each with objects of its own (overwrite and read).
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Entries in the map before.
    #[arg(long, default_value_t = 10_000)]
    entries: usize,
    /// Which protections, 0 (none) to 4 (all and Q).
    #[arg(long, default_value_t = 3)]
    mode: usize,
    /// Where the pool is made.
    #[arg(long, default_value = "/dev/shm")]
    dir: std::path::PathBuf,
}

/// What can be run on objects.
const OBJECT_OPS: [&str; 4] = ["overwrite", "read", "alloc", "free"];
/// What can be run on a map.
const MAP_OPS: [&str; 3] = ["insert", "get", "remove"];

/// Looks at what was asked for.
fn check(o: &Options) -> anyhow::Result<()> {
    let op = o.op.as_str();
    require(OBJECT_OPS.contains(&op) || MAP_OPS.contains(&op), || {
        format!("{op} is no operation; there are {OBJECT_OPS:?} and {MAP_OPS:?}")
    })?;
    require(o.mode < MODES.len(), || format!("--mode {}: 0 to {}", o.mode, MODES.len() - 1))?;
    require((1..=LEN_MAX).contains(&o.len), || format!("--len {}: 1 to {LEN_MAX}", o.len))?;
    let all_there = |what: &str, there: usize, needed: usize| {
        require(there >= needed, || format!("{op} needs --{what} {needed} or more, not {there}"))
    };
    all_there("objects", o.objects, if op == "free" { o.count } else { 1 })?;
    all_there("entries", o.entries, if op == "remove" { o.count } else { 1 })?;
    all_there("threads", o.threads, 1)?;
    require(o.threads == 1 || ["overwrite", "read"].contains(&op), || {
        format!("--threads {}: {op} is run by one", o.threads)
    })
}

/// Runs it.
pub(crate) fn run(mut o: Options) -> anyhow::Result<()> {
    check(&o)?;
    let place = Place::make(&o.dir).context("--dir")?;
    o.dir = place.path().to_owned();
    let o = &o;
    let mode = MODES[o.mode];
    let rig = Rig::new(&o.dir, &options(2 << 30, mode), OpenOptions::default())?;
    let pool = rig.pool();
    let mut rng = Rng::new(7);
    if MAP_OPS.contains(&o.op.as_str()) {
        let kind = Kind::from_name(&o.map)
            .ok_or_else(|| Usage(format!("--map {}: no kind of map", o.map)))?;
        let map = pool.run(|tx| Map::<u64, [u8]>::create(tx, kind))?;
        let value = vec![3; o.len as usize];
        let keys: Vec<u64> = (0..o.entries + o.count).map(|_| rng.next_u64()).collect();
        for key in &keys[..o.entries] {
            pool.run(|tx| map.put(tx, key, &value))?;
        }
        return profiled(o.count, |i| {
            match o.op.as_str() {
                "insert" => pool.run(|tx| map.put(tx, &keys[o.entries + i], &value)).map(drop)?,
                "get" => {
                    let key = &keys[i * 7919 % o.entries];
                    pool.run(|tx| map.get_with(tx, key, |v| v.len())).map(drop)?;
                }
                _ => pool.run(|tx| map.remove(tx, &keys[i])).map(drop)?,
            }
            Ok(())
        });
    }
    if o.threads > 1 {
        return side_by_side(o, pool);
    }
    let mut objects = fill(pool, o.objects, o.len)?;
    let mut bytes = vec![0; o.len as usize];
    for (i, object) in objects.iter().enumerate() {
        bytes.fill(i as u8);
        overwrite(pool, *object, &bytes)?;
    }
    profiled(o.count, |i| {
        match o.op.as_str() {
            "overwrite" => {
                bytes.fill(i as u8 ^ 0x5a);
                overwrite(pool, objects[rng.below(objects.len() as u64) as usize], &bytes)?;
            }
            "read" => {
                let object = objects[rng.below(objects.len() as u64) as usize];
                pool.run(|tx| tx.read_bytes(object, 0, &mut bytes))?;
            }
            "alloc" => {
                objects.push(pool.run(|tx| tx.alloc_from(TypeNumber::BYTES, &bytes))?);
            }
            "free" => {
                let object = objects.pop().ok_or_else(|| anyhow::anyhow!("more --objects"))?;
                pool.run(|tx| tx.free(object))?;
            }
            other => anyhow::bail!("{other} is no operation"),
        }
        Ok(())
    })
}

/// Overwrites, or reads, by several threads at once.
fn side_by_side(o: &Options, pool: &Pool<Mapped>) -> anyhow::Result<()> {
    let sets: Vec<_> =
        (0..o.threads).map(|_| fill(pool, o.objects, o.len)).collect::<anyhow::Result<_>>()?;
    let work = |objects: &[RawPtr], seed: usize| -> anyhow::Result<()> {
        let mut rng = Rng::new(seed as u64);
        let mut bytes = vec![0; o.len as usize];
        profiled(o.count, |i| {
            let object = objects[rng.below(objects.len() as u64) as usize];
            if o.op == "read" {
                return Ok(pool.run(|tx| tx.read_bytes(object, 0, &mut bytes))?);
            }
            bytes.fill(i as u8 ^ 0x5a);
            overwrite(pool, object, &bytes)
        })
    };
    std::thread::scope(|s| {
        let workers: Vec<_> = sets
            .iter()
            .enumerate()
            .map(|(seed, objects)| s.spawn(move || work(objects, seed)))
            .collect();
        workers.into_iter().try_for_each(|w| w.join().map_err(|_| anyhow::anyhow!("a panic"))?)
    })
}

/// What the profiler counts.
#[inline(never)]
fn profiled(count: usize, mut step: impl FnMut(usize) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let (mut rounds, mut done) = (Vec::new(), 0);
    while done < count {
        let n = ROUND.min(count - done);
        let start = Instant::now();
        for i in done..done + n {
            step(i)?;
        }
        rounds.push(start.elapsed().as_secs_f64() * 1e9 / n as f64);
        done += n;
    }
    say!("{:.0} ns each", Spread::of(rounds).median);
    Ok(())
}
