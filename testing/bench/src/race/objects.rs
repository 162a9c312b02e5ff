//! Allocate, overwrite, free: 64 B to 4 KiB, hot and cold, one and two threads.

use std::path::Path;

use super::measure::{Op, Slice};
use super::ours::Ours;
use super::{Racer, THREADS, Worker};
use crate::Options;
use crate::foreign::pmemobj::{Peer, Shim};
use crate::object::{LENGTHS, options};
use crate::report::{Limit, Report, Spread};
use crate::say::say;

/// Objects of the hot set.
const HOT: u64 = 1000;
/// Bytes the cold set's objects cover.
const COLD: u64 = 4 << 30;
/// The cold set covers this many tenths of it.
const TENTHS: u64 = 10;

/// How much is run.
#[derive(Debug, Clone, Copy)]
struct Plan {
    rounds: usize,
    slices: usize,
    /// Operations of each thread in a slice.
    count: usize,
    /// Objects of the cold set, in each table.
    cold: u64,
    /// Bytes of a pool of ours; libpmemobj's needs twice that for the same objects.
    pool: u64,
}

impl Plan {
    fn of(o: &Options, len: u64) -> Self {
        let share = if o.quick { 10 } else { 1 };
        let cold = COLD / TENTHS / share / (len + 16) / THREADS as u64;
        let (rounds, slices, count) = if o.quick { (3, 3, 2000) } else { (5, 9, 5000) };
        let pool = if o.quick { 256 << 20 } else { 1 << 30 };
        Self { rounds, slices, count, cold: cold.max(HOT), pool }
    }
}

/// One of the racers, with its tables: the first ones filled, the others empty.
enum Field {
    Ours(Ours),
    Peer(Peer),
}

impl Field {
    fn set_up(
        racer: Racer,
        shim: Option<Shim>,
        dir: &Path,
        plan: Plan,
        len: u64,
    ) -> anyhow::Result<Self> {
        let empty = plan.count as u64;
        if let Some(mode) = racer.mode() {
            let mut ours = Ours::create(dir, racer.name(), &options(plan.pool, mode))?;
            for table in 0..2 * THREADS {
                let filled = table < THREADS;
                ours.table(if filled { plan.cold } else { empty }, len, filled)?;
            }
            return Ok(Self::Ours(ours));
        }
        let shim = shim.ok_or_else(|| anyhow::anyhow!("libpmemobj is not there"))?;
        let mut peer = Peer::create(shim, dir, 2 * plan.pool, racer == Racer::Replica)?;
        for table in 0..THREADS as u64 {
            peer.table(table, plan.cold, len)?;
            peer.fill(table)?;
            peer.table(table + THREADS as u64, empty, len)?;
        }
        Ok(Self::Peer(peer))
    }

    /// The filled tables, or the empty ones.
    fn workers(&mut self, filled: bool) -> Vec<Box<dyn Worker + '_>> {
        let mut all: Vec<Box<dyn Worker + '_>> = match self {
            Self::Ours(ours) => {
                ours.tables().into_iter().map(|t| Box::new(t) as Box<dyn Worker + '_>).collect()
            }
            Self::Peer(peer) => {
                peer.tables().into_iter().map(|t| Box::new(t) as Box<dyn Worker + '_>).collect()
            }
        };
        let empty = all.split_off(THREADS);
        if filled { all } else { empty }
    }
}

/// Runs the race for every size.
pub(crate) fn race(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let racers = Racer::all(o.shim.is_some());
    for len in LENGTHS {
        if o.len.is_some_and(|only| only != len) {
            continue;
        }
        say!("-- objects of {len} bytes, in turns");
        let plan = Plan::of(o, len);
        let mut field = Vec::new();
        for racer in &racers {
            let mut ready = Field::set_up(*racer, o.shim, &o.dir, plan, len)?;
            touch(&mut ready, plan, len)?;
            field.push((*racer, ready));
        }
        for threads in [1, THREADS] {
            for (set, slots) in [("hot", HOT / THREADS as u64), ("cold", plan.cold)] {
                for (what, bytes) in [("overwrite", len), ("overwrite 8 B of", 8)] {
                    let name = format!("{what} {len} {set} {threads}t");
                    let slice =
                        Slice { op: Op::Overwrite(bytes), slots, count: plan.count, seed: 1 };
                    run(&mut field, plan, slice, threads, &name, report)?;
                }
            }
            make_and_free(&mut field, plan, len, threads, report)?;
        }
        goals(len, report);
    }
    Ok(())
}

/// Overwrites every object once: first accesses to pages are no part of the race.
fn touch(field: &mut Field, plan: Plan, len: u64) -> anyhow::Result<()> {
    let bytes = vec![9; len as usize];
    let all: Vec<u64> = (0..plan.cold).collect();
    for mut worker in field.workers(true) {
        worker.line_up(&all)?;
        for place in 0..all.len() {
            worker.overwrite(place, &bytes)?;
        }
    }
    Ok(())
}

/// A seed that no other run and slice has: objects visited a moment ago are not cold.
fn seed_of(name: &str, number: usize) -> u64 {
    // FNV-1a: any spread will do.
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().chain(number.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, mix)
}

/// One kind of overwrite: rounds of slices, then percentiles.
fn run(
    field: &mut [(Racer, Field)],
    plan: Plan,
    slice: Slice,
    threads: usize,
    name: &str,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut rounds = vec![Vec::new(); field.len()];
    let mut single = vec![Vec::new(); field.len()];
    for round in 0..plan.rounds {
        let mut slices = vec![Vec::new(); field.len()];
        for number in 0..plan.slices {
            for turn in 0..field.len() {
                // Nobody always runs after the same one.
                let at = (turn + number) % field.len();
                let (racer, times) = (&mut field[at].1, &mut slices[at]);
                let seed = seed_of(name, round * plan.slices + number);
                let mut workers = racer.workers(true);
                times.push(Slice { seed, ..slice }.time(&mut workers, threads)?);
            }
        }
        for (times, of_rounds) in slices.into_iter().zip(&mut rounds) {
            of_rounds.push(Spread::of(times).median);
        }
        if threads == 1 {
            for ((_, racer), times) in field.iter_mut().zip(&mut single) {
                let seed = seed_of(name, plan.rounds * plan.slices + round);
                Slice { seed, ..slice }.each(&mut racer.workers(true), times)?;
            }
        }
    }
    for (((racer, _), values), times) in field.iter().zip(rounds).zip(single) {
        report.rounds(&format!("{name}, {}", racer.name()), "ns", values);
        report.percentiles(&format!("{name}, {}", racer.name()), times);
    }
    Ok(())
}

/// Allocates as many as the empty tables hold and frees them again.
fn make_and_free(
    field: &mut [(Racer, Field)],
    plan: Plan,
    len: u64,
    threads: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let ops = [("alloc", Op::Alloc(len)), ("free", Op::Free)];
    let mut rounds = vec![[Vec::new(), Vec::new()]; field.len()];
    let mut single = vec![[Vec::new(), Vec::new()]; field.len()];
    for round in 0..plan.rounds {
        let mut slices = vec![[Vec::new(), Vec::new()]; field.len()];
        for number in 0..=plan.slices {
            for turn in 0..field.len() {
                let at = (turn + number) % field.len();
                let (racer, times) = (&mut field[at].1, &mut slices[at]);
                for ((_, op), times) in ops.iter().zip(times) {
                    let seed = (round * plan.slices + number) as u64;
                    let slice = Slice { op: *op, slots: 0, count: plan.count, seed };
                    let time = slice.time(&mut racer.workers(false), threads)?;
                    // The first slice of a round warms up.
                    if number > 0 {
                        times.push(time);
                    }
                }
            }
        }
        for (times, of_rounds) in slices.into_iter().zip(&mut rounds) {
            for (times, of_rounds) in times.into_iter().zip(of_rounds) {
                of_rounds.push(Spread::of(times).median);
            }
        }
        for ((_, racer), times) in field.iter_mut().zip(&mut single) {
            for ((_, op), times) in ops.iter().zip(times) {
                let slice = Slice { op: *op, slots: 0, count: plan.count, seed: round as u64 };
                slice.each(&mut racer.workers(false), times)?;
            }
        }
    }
    for (((racer, _), values), times) in field.iter().zip(rounds).zip(single) {
        for (((what, _), values), times) in ops.iter().zip(values).zip(times) {
            let name = format!("{what} {len} {threads}t, {}", racer.name());
            report.rounds(&name, "ns", values);
            report.percentiles(&name, if threads == 1 { times } else { Vec::new() });
        }
    }
    Ok(())
}

/// The figures to reach for objects of this length.
fn goals(len: u64, report: &mut Report) {
    let most = match len {
        0..=256 => 0.55,
        257..=1024 => 0.75,
        _ => 1.0,
    };
    for set in ["hot", "cold"] {
        let base = format!("overwrite {len} {set} 1t");
        let ours = format!("{base}, full");
        let against = |other: &str| (ours.clone(), format!("{base}, {other}"));
        let (a, b) = against("libpmemobj");
        report.ratio_goal(&format!("overwrite_{len}_{set}_latency"), &a, &b, Limit::AtMost(most));
        // Throughputs are compared the other way round than latencies.
        if len <= 1024 {
            let least = if len <= 256 { 0.75 } else { 0.55 };
            let (a, b) = against("unprotected");
            let name = format!("overwrite_{len}_{set}_of_unprotected");
            report.ratio_goal(&name, &b, &a, Limit::AtLeast(least));
        }
        let least = if set == "hot" { 0.85 } else { 0.75 };
        let both = format!("{base}, P+Q");
        let name = format!("overwrite_{len}_{set}_pq_of_p");
        report.ratio_goal(&name, &ours, &both, Limit::AtLeast(least));
        let two = format!("overwrite {len} {set} {THREADS}t, full");
        let name = format!("overwrite_{len}_{set}_{THREADS}_threads");
        match report.ratio(&ours, &two) {
            Some(ratio) => {
                report.goal(&name, ratio.median * THREADS as f64, Limit::AtLeast(1.7));
            }
            None => report.unmeasured(&name, "one of the two runs is missing"),
        }
    }
    for what in ["alloc", "free"] {
        let (a, b) = (format!("{what} {len} 1t, full"), format!("{what} {len} 1t, libpmemobj"));
        report.ratio_goal(&format!("{what}_{len}_latency"), &a, &b, Limit::AtMost(0.6));
    }
}
