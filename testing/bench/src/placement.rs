//! The price of sums kept apart from their objects, in slots, against sums in object headers.
//!
//! The engine has one placement, the slot: a sum in the object itself would travel with a write
//! that is lost or lands elsewhere, and verify there. So what the other one would cost is measured
//! as a program would build it on the same engine: a pool without sums of the engine's, whose
//! objects begin with a header of 16 bytes, the length of a slot. The program verifies the header's
//! sum when it opens an object, on its private copy, and stores the new one with the bytes. Both
//! sides do the same work on the same bytes (open, verify, overwrite, sum, commit under P); what
//! differs is where sixteen bytes go: into the object's own range, or into a second range, mostly
//! in another column. Rounds alternate, and the price is taken within each.
//!
//! What this cannot show: an engine with headers would not read a slot at all, and here both sides
//! do, to check the pointer. On a hot set that is a load from cache; on a cold one it may be a
//! miss. So the goal is judged on the hot set, and the cold figures are lower bounds of the price.

use std::time::Instant;

use holdfast_codes::crc32c;
use holdfast_layout::{Persist, Ptr, SumKind, bytemuck};
use holdfast_object::{OpenOptions, Parity};
use holdfast_txn::{Transaction, TxError};
use holdfast_workloads::rng::Rng;

use crate::Options;
use crate::object::options;
use crate::report::{Limit, Report, Spread};
use crate::rig::Rig;
use crate::say::say;

/// Words of a header: sum and generation, type and length.
const HEADER: usize = 2;

/// Measures payloads of 8, 32 and 126 words: with a header, 80, 272 and 1,024 bytes.
pub(crate) fn placement(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    say!("-- sums kept apart, in slots, against sums in headers of the objects");
    one::<8, 10>(o, report)?;
    one::<32, 34>(o, report)?;
    one::<126, 128>(o, report)
}

/// Objects of `N` words without a header, and of `H` words with one. The longest stand for those of
/// 1 KiB: with a header they are as long.
fn one<const N: usize, const H: usize>(o: &Options, report: &mut Report) -> anyhow::Result<()>
where
    [u64; N]: Persist,
    [u64; H]: Persist,
{
    let len = 8 * N;
    if o.len.is_some_and(|only| only != len.next_power_of_two() as u64) {
        return Ok(());
    }
    let size = if o.quick { 256 << 20 } else { 1 << 30 };
    // Many short rounds: a neighbour that disturbs one spoils that one's price and no other.
    let rounds = if o.quick { 31 } else { 101 };
    let count = 5_000;
    let cold = (size / 5 / (len as u64 + 64)) as usize;
    let with = |sums| Rig::new(&o.dir, &options(size, ("", Parity::P, sums, true)), open());
    let (slots, headers) = (with(SumKind::Crc32c)?, with(SumKind::None)?);
    let apart: Vec<Ptr<[u64; N]>> = fill(&slots, cold, |_| [1; N])?;
    let inside: Vec<Ptr<[u64; H]>> = fill(&headers, cold, sealed::<H>)?;
    for (set, some) in [("hot", cold.min(1_000)), ("cold", cold)] {
        let mut prices = Vec::new();
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..=rounds {
            let seed = round as u64;
            let a = time(count, some, seed, |i, value| {
                Ok(slots.pool().run(|tx| {
                    tx.open_mut(apart[i])?.fill(value);
                    Ok(())
                })?)
            })?;
            let b = time(count, some, seed, |i, value| {
                Ok(headers.pool().run(|tx| {
                    let mut object = tx.open_mut(inside[i])?;
                    if object[0] != sum(&*object) {
                        return Err(TxError::Inconsistent("a header's sum does not verify"));
                    }
                    object[HEADER..].fill(value);
                    object[0] = sum(&*object);
                    Ok(())
                })?)
            })?;
            // The first round warms up caches, lanes and arenas.
            if round > 0 {
                times[0].push(a);
                times[1].push(b);
                prices.push((a / b - 1.0) * 100.0);
            }
        }
        let [a, b] = times.map(Spread::of);
        report.figure(&format!("overwrite {len} {set}, sums in slots"), "ns", a);
        report.figure(&format!("overwrite {len} {set}, sums in headers"), "ns", b);
        let price = Spread::of(prices);
        report.figure(&format!("price of slots, {len} {set}"), "%", price);
        if set == "hot" {
            let name = format!("sums_apart_price_percent_{len}_hot");
            report.goal(&name, price.median, Limit::AtMost(10.0));
        }
    }
    Ok(())
}

fn open() -> OpenOptions {
    OpenOptions::default()
}

/// A new object with a header that verifies.
fn sealed<const H: usize>(number: usize) -> [u64; H] {
    let mut object = [1; H];
    object[1] = number as u64;
    object[0] = sum(&object);
    object
}

/// The sum of everything behind the first word.
fn sum(object: &[u64]) -> u64 {
    crc32c(0, bytemuck::cast_slice(&object[1..])).into()
}

fn fill<T: Persist>(
    rig: &Rig,
    count: usize,
    make: impl Fn(usize) -> T,
) -> anyhow::Result<Vec<Ptr<T>>> {
    (0..count).map(|number| Ok(rig.pool().run(|tx| tx.alloc(make(number)))?)).collect()
}

/// Nanoseconds per call of `step`, told which object and what to fill it with.
fn time(
    count: usize,
    objects: usize,
    seed: u64,
    mut step: impl FnMut(usize, u64) -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    let mut rng = Rng::new(seed);
    let start = Instant::now();
    for _ in 0..count {
        step(rng.below(objects as u64) as usize, rng.next_u64())?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / count as f64)
}
