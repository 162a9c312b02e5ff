//! The six collections, in turns with libpmemobj's; and ours alone, to see how each grows.

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use holdfast_collections::{Kind, Map};
use holdfast_object::{OpenOptions, Pool};
use holdfast_pmem::Mapped;
use holdfast_workloads::rng::Rng;

use super::Racer;
use crate::Options;
use crate::foreign::pmemobj::{MAPS, Peer, Shim};
use crate::object::options;
use crate::report::{Limit, Report, Spread};
use crate::rig::Rig;
use crate::say::say;

/// Keys of the smaller runs that show how ours grow; the others have ten times as many.
pub(crate) const MILLION: usize = 1_000_000;
/// Lengths of the values.
const LENGTHS: [usize; 2] = [0, 100];
/// What is done, in this order, to all keys.
const OPS: [&str; 3] = ["insert", "get", "remove"];

/// Keys both sides get through in reasonable time.
fn keys_of(name: &str, quick: bool) -> usize {
    let count = match name {
        "skiplist" => 20_000,
        "rtree" => 200_000,
        _ => 1_000_000,
    };
    if quick { count / 20 } else { count }
}

/// Who takes part: our modes are compared too.
const RACERS: [Racer; 5] = [Racer::Full, Racer::Bare, Racer::Parity, Racer::Peer, Racer::Replica];

/// A map of one side, with its pool.
enum Side {
    Ours(Rig, Map<u64, [u8]>),
    Peer(Peer),
}

impl Side {
    fn new(
        racer: Racer,
        name: &str,
        shim: Option<Shim>,
        dir: &Path,
        size: u64,
    ) -> anyhow::Result<Self> {
        if let Some(mode) = racer.mode() {
            let kind =
                Kind::from_name(name).with_context(|| format!("{name} is no kind of map"))?;
            let rig = Rig::named(dir, "maps", &options(size, mode), OpenOptions::default())?;
            let map = rig.pool().run(|tx| Map::create(tx, kind))?;
            return Ok(Self::Ours(rig, map));
        }
        let shim = shim.ok_or_else(|| anyhow::anyhow!("libpmemobj is not there"))?;
        let mut peer = Peer::create(shim, dir, size, racer == Racer::Replica)?;
        peer.map(name)?;
        Ok(Self::Peer(peer))
    }

    /// One pass over all keys.
    fn pass(&mut self, op: &str, keys: &[u64], len: usize) -> anyhow::Result<Pass> {
        let value = vec![3; len];
        let mut into = vec![0; len];
        match self {
            Self::Ours(rig, map) => {
                let pool = rig.pool();
                match op {
                    "insert" => passed(keys, true, |key| ours_insert(pool, map, key, &value)),
                    "get" => passed(keys, false, |key| ours_get(pool, map, key, &mut into)),
                    _ => passed(keys, true, |key| ours_remove(pool, map, key)),
                }
            }
            Self::Peer(peer) => match op {
                "insert" => passed(keys, true, |key| peer.insert(key, &value)),
                "get" => passed(keys, false, |key| found(peer.get(key, &mut into)?)),
                _ => passed(keys, true, |key| peer.remove(key, len as u64)),
            },
        }
    }
}

type Bytes = Map<u64, [u8]>;

fn ours_insert(pool: &Pool<Mapped>, map: &Bytes, key: u64, value: &[u8]) -> anyhow::Result<()> {
    Ok(pool.run(|tx| map.put(tx, &key, value)).map(drop)?)
}

fn ours_get(pool: &Pool<Mapped>, map: &Bytes, key: u64, into: &mut [u8]) -> anyhow::Result<()> {
    let copied = pool.run(|tx| {
        map.get_with(tx, &key, |value| {
            if value.len() == into.len() {
                into.copy_from_slice(value);
            }
        })
    })?;
    found(copied.is_some())
}

fn ours_remove(pool: &Pool<Mapped>, map: &Bytes, key: u64) -> anyhow::Result<()> {
    found(pool.run(|tx| map.remove(tx, &key))?)
}

fn found(there: bool) -> anyhow::Result<()> {
    anyhow::ensure!(there, "a key that was inserted is not there");
    Ok(())
}

/// What a pass over all keys took.
struct Pass {
    /// Nanoseconds per operation.
    ns: f64,
    /// Nanoseconds of each, if they were asked for.
    each: Vec<u32>,
}

/// Does `step` to every key. The clock is read between any two if what each takes is asked for:
/// look-ups are too short for that.
fn passed(
    keys: &[u64],
    each: bool,
    mut step: impl FnMut(u64) -> anyhow::Result<()>,
) -> anyhow::Result<Pass> {
    let mut times = Vec::with_capacity(if each { keys.len() } else { 0 });
    let start = Instant::now();
    let mut last = start;
    for key in keys {
        step(*key)?;
        if each {
            let now = Instant::now();
            times.push(u32::try_from((now - last).as_nanos()).unwrap_or(u32::MAX));
            last = now;
        }
    }
    let ns = start.elapsed().as_secs_f64() * 1e9 / keys.len() as f64;
    Ok(Pass { ns, each: times })
}

/// The keys in the order they are inserted, and in the order they are looked up and removed.
fn orders(count: usize, seed: u64) -> [Vec<u64>; 2] {
    let mut rng = Rng::new(seed);
    let inserted: Vec<u64> = (0..count).map(|_| rng.next_u64()).collect();
    let mut later = inserted.clone();
    rng.shuffle(&mut later);
    [inserted, later]
}

/// The race.
pub(crate) fn race(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let takes_part = |racer: &Racer| racer.mode().is_some() || o.shim.is_some();
    let racers: Vec<Racer> = RACERS.into_iter().filter(takes_part).collect();
    let rounds = if o.quick { 1 } else { 3 };
    for name in MAPS {
        let count = keys_of(name, o.quick);
        for len in LENGTHS {
            say!("-- {name}, {count} keys, values of {len} bytes, in turns");
            let mut values = vec![[const { (Vec::new(), Vec::new()) }; 3]; racers.len()];
            for round in 0..rounds {
                let [inserted, later] = orders(count, round);
                for turn in 0..racers.len() {
                    // Nobody always runs after the same one.
                    let at = (turn + round as usize) % racers.len();
                    let (racer, values) = (&racers[at], &mut values[at]);
                    let size = if o.quick { 1 << 30 } else { 4 << 30 };
                    let mut side = Side::new(*racer, name, o.shim, &o.dir, size)?;
                    for (op, values) in OPS.iter().zip(values) {
                        let keys = if *op == "insert" { &inserted } else { &later };
                        let pass = side.pass(op, keys, len)?;
                        values.0.push(pass.ns);
                        values.1.extend(pass.each);
                    }
                }
            }
            for (racer, values) in racers.iter().zip(values) {
                for (op, (values, each)) in OPS.iter().zip(values) {
                    let figure = format!("{name} {op} v{len}, {}", racer.name());
                    report.rounds(&figure, "ns", values);
                    report.percentiles(&figure, each);
                }
            }
        }
    }
    goals(report);
    Ok(())
}

/// The figures to reach against libpmemobj: ratios of throughput.
fn goals(report: &mut Report) {
    for len in LENGTHS {
        for (racer, least) in [(Racer::Peer, 1.5), (Racer::Replica, 2.2)] {
            for op in ["insert", "remove"] {
                let name = format!("maps_{op}_v{len}_over_{}", racer.name());
                let ratio = |map: &str| {
                    let figure = |racer: Racer| format!("{map} {op} v{len}, {}", racer.name());
                    report.ratio(&figure(racer), &figure(Racer::Full)).map(|r| r.median.ln())
                };
                match MAPS.iter().map(|map| ratio(map)).collect::<Option<Vec<f64>>>() {
                    Some(logs) => {
                        let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
                        report.goal(&name, mean, Limit::AtLeast(least));
                    }
                    None => report.absent(&name, "not all six on both sides"),
                }
            }
        }
        for map in MAPS {
            let figure = |racer: Racer| format!("{map} get v{len}, {}", racer.name());
            let (a, b) = (figure(Racer::Peer), figure(Racer::Full));
            report.ratio_goal(&format!("{map}_get_v{len}"), &a, &b, Limit::AtLeast(1.0));
        }
    }
}

/// Ours alone: a million keys, then ten.
pub(crate) fn growth(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let counts: &[usize] = if o.quick { &[MILLION / 10] } else { &[MILLION, 10 * MILLION] };
    for name in MAPS {
        for count in counts.iter().copied() {
            for len in LENGTHS {
                // The longest operation also holds what the machine did to the thread: the part
                // `maps` judges it. Ten times as many keys are run once.
                let rounds = if count > MILLION || o.quick { 1 } else { 3 };
                let mut values = [const { Vec::new() }; 3];
                let mut longest = [const { Vec::new() }; 3];
                for round in 0..rounds {
                    let [inserted, later] = orders(count, round);
                    let size = if count > MILLION { 10 << 30 } else { 2 << 30 };
                    let mut side = Side::new(Racer::Full, name, None, &o.dir, size)?;
                    for (at, op) in OPS.iter().enumerate() {
                        let keys = if *op == "insert" { &inserted } else { &later };
                        let Pass { ns, each } = side.pass(op, keys, len)?;
                        values[at].push(ns);
                        longest[at].extend(each.into_iter().max().map(|ns| f64::from(ns) / 1e6));
                    }
                }
                grown(name, count, len, values, longest, report);
            }
        }
    }
    if o.quick {
        report.left_out("hashmap_insert_1m_us", "--quick: fewer keys");
    }
    Ok(())
}

/// Figures and goals of one collection at one size.
fn grown(
    name: &str,
    count: usize,
    len: usize,
    values: [Vec<f64>; 3],
    longest: [Vec<f64>; 3],
    report: &mut Report,
) {
    for ((op, values), longest) in OPS.iter().zip(values).zip(longest) {
        let figure = format!("{name} {op} {count} keys v{len}");
        let time = Spread::of(values);
        report.figure(&figure, "ns", time);
        if *op != "get" {
            let worst = Spread::of(longest);
            report.figure(&format!("{figure}, longest"), "ms", worst);
        }
        if (name, *op, count, len) == ("hashmap", "insert", MILLION, 0) {
            report.goal("hashmap_insert_1m_us", time.median / 1e3, Limit::AtMost(1.6));
        }
    }
}
