//! The collections: a million random keys inserted, looked up and removed, one a transaction; how
//! long the longest of these operations takes; and what keys cost that all begin alike.
//!
//! The longest operation of a run also contains whatever the machine did to the thread. What a
//! map does depends on nothing but what was done to it before, so the runs are repeated, the
//! shortest time of each operation counts, and the goal is judged by the longest of these: a stop
//! that the map causes would be in every run.

use std::time::Instant;

use holdfast_collections::{Key, Kind, Map};
use holdfast_object::{OpenOptions, Pool};
use holdfast_pmem::Mapped;
use holdfast_workloads::rng::Rng;

use crate::Options;
use crate::object::{MODES, options};
use crate::report::{Limit, Report, Spread};
use crate::rig::Rig;
use crate::say::say;

/// What is done with every key, in this order.
const STEPS: [&str; 3] = ["insert", "get", "remove"];
/// Longest stop, in milliseconds.
const STOP_MAX: f64 = 5.0;

pub(crate) fn maps(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let count = if o.quick { 100_000 } else { 1_000_000 };
    let mut rng = Rng::new(7);
    let keys: Vec<u64> = (0..count).map(|_| rng.next_u64()).collect();
    for kind in Kind::ALL {
        for len in [0, 100] {
            let name = format!("{kind} {{}}, values of {len}");
            speeds::<u64>(o, report, kind, &keys, len, &name)?;
        }
    }
    texts(o, report)?;
    stops(o, report, &keys)
}

/// A map of some kind in a pool of its own.
fn create<K: Key + ?Sized>(o: &Options, kind: Kind) -> anyhow::Result<(Rig, Map<K, [u8]>)> {
    let rig = Rig::new(&o.dir, &options(2 << 30, MODES[3]), OpenOptions::default())?;
    let map = rig.pool().run(|tx| Map::create(tx, kind))?;
    Ok((rig, map))
}

/// One operation, as a transaction of its own.
fn operate<K: Key + ?Sized>(
    pool: &Pool<Mapped>,
    map: Map<K, [u8]>,
    step: &str,
    key: &K,
    value: &[u8],
) -> anyhow::Result<()> {
    let done = match step {
        "insert" => !pool.run(|tx| map.put(tx, key, value))?,
        "get" => pool.run(|tx| map.get_with(tx, key, |v| v.len()))? == Some(value.len()),
        _ => pool.run(|tx| map.remove(tx, key))?,
    };
    anyhow::ensure!(done, "{} does not {step} a key", map.kind());
    Ok(())
}

/// Which key comes when: inserted in their order, then looked up and removed in another.
fn order(step: &str, i: usize, count: usize) -> usize {
    if step == "insert" { i } else { i * 7919 % count }
}

/// Average time of each operation. `name` has `{}` where its name goes.
fn speeds<K: Key + ?Sized>(
    o: &Options,
    report: &mut Report,
    kind: Kind,
    keys: &[impl std::borrow::Borrow<K>],
    len: usize,
    name: &str,
) -> anyhow::Result<()> {
    let (rig, map) = create::<K>(o, kind)?;
    let value = vec![3; len];
    for step in STEPS {
        let start = Instant::now();
        for i in 0..keys.len() {
            let key = keys[order(step, i, keys.len())].borrow();
            operate(rig.pool(), map, step, key, &value)?;
        }
        let ns = start.elapsed().as_secs_f64() * 1e9 / keys.len() as f64;
        report.figure(&name.replace("{}", step), "ns", Spread::of(vec![ns]));
    }
    Ok(())
}

/// Keys with 25 bytes in common against numbers; both kinds have an entry object.
fn texts(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let count = 100_000;
    let mut rng = Rng::new(7);
    let mut numbers: Vec<u64> = (0..count).collect();
    for i in (1..numbers.len()).rev() {
        numbers.swap(i, rng.below(i as u64 + 1) as usize);
    }
    let links: Vec<String> =
        numbers.iter().map(|n| format!("https://example.com/user/{n:07}")).collect();
    let words: Vec<u64> = numbers.iter().map(|_| rng.next_u64()).collect();
    for kind in Kind::ALL {
        speeds::<u64>(o, report, kind, &words, 8, &format!("{kind} {{}}, 100 K numbers"))?;
        speeds::<str>(o, report, kind, &links, 8, &format!("{kind} {{}}, 100 K links"))?;
    }
    Ok(())
}

/// The longest single operation of each sort, with the goal all have to keep.
fn stops(o: &Options, report: &mut Report, keys: &[u64]) -> anyhow::Result<()> {
    let value = [3; 16];
    let mut longest: f64 = 0.0;
    for kind in Kind::ALL {
        let mut least = vec![u32::MAX; STEPS.len() * keys.len()];
        let mut rounds = [const { Vec::new() }; STEPS.len()];
        for _ in 0..3 {
            let (rig, map) = create::<u64>(o, kind)?;
            for (s, step) in STEPS.into_iter().enumerate() {
                let mut worst = 0;
                for i in 0..keys.len() {
                    let key = &keys[order(step, i, keys.len())];
                    let start = Instant::now();
                    operate(rig.pool(), map, step, key, &value)?;
                    let ns = start.elapsed().as_nanos().min(u128::from(u32::MAX)) as u32;
                    worst = worst.max(ns);
                    let least = &mut least[s * keys.len() + i];
                    *least = (*least).min(ns);
                }
                rounds[s].push(f64::from(worst) / 1e6);
            }
        }
        for (s, step) in STEPS.into_iter().enumerate() {
            let least = &least[s * keys.len()..][..keys.len()];
            let (at, ns) = least.iter().enumerate().max_by_key(|(_, ns)| **ns).unwrap_or((0, &0));
            let ms = f64::from(*ns) / 1e6;
            longest = longest.max(ms);
            let round = Spread::of(core::mem::take(&mut rounds[s]));
            report.figure(&format!("{kind} longest {step}, as it came"), "ms", round);
            let name = format!("{kind} longest {step}, in every round");
            report.figure(&name, "us", Spread::of(vec![ms * 1e3]));
            say!("    operation {at} of {}", keys.len());
        }
    }
    if o.quick {
        report.left_out("map_longest_operation_ms", "--quick: fewer keys");
    } else {
        report.goal("map_longest_operation_ms", longest, Limit::AtMost(STOP_MAX));
    }
    Ok(())
}
