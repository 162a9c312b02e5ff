//! One operation, over and over, for a profiler to look at.
//!
//! What is counted lies within [`profiled`]: `valgrind --tool=callgrind --collect-atstart=no
//! --toggle-collect='*profiled*'` sees the operation alone, without the making of the pool.

use std::time::Instant;

use holdfast_collections::{Kind, Map};
use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_object::{OpenOptions, Pool};
use holdfast_pmem::Mapped;
use holdfast_txn::Transaction;
use holdfast_workloads::rng::Rng;

use crate::object::{MODES, options, overwrite};
use crate::report::Spread;
use crate::rig::{Rig, fill};

/// Operations that are timed together.
const ROUND: usize = 10_000;

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

/// Runs it.
pub(crate) fn run(o: &Options) -> anyhow::Result<()> {
    let mode = MODES.get(o.mode).copied().unwrap_or(MODES[3]);
    let rig = Rig::new(&o.dir, &options(2 << 30, mode), OpenOptions::default())?;
    let pool = rig.pool();
    let mut rng = Rng::new(7);
    if ["insert", "get", "remove"].contains(&o.op.as_str()) {
        let kind = Kind::from_name(&o.map)
            .ok_or_else(|| anyhow::anyhow!("{} is no kind of map", o.map))?;
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
    println!("{:.0} ns each", Spread::of(rounds).median);
    Ok(())
}
