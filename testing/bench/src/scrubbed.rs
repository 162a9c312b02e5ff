//! Inserts into the collections with a scrub of the whole pool every so many transactions, on the
//! same thread: how the price of looking at everything depends on how often it is paid.
//!
//! The last row of [`EVERY`] is what one has without: every object is verified when it is changed.

use std::time::Instant;

use holdfast_collections::{Kind, Map};
use holdfast_object::{OpenOptions, ScrubControl, ScrubOptions};
use holdfast_workloads::rng::Rng;

use crate::Options;
use crate::foreign::pmemobj::MAPS;
use crate::object::{MODES, options};
use crate::report::Report;
use crate::rig::Rig;
use crate::say::say;

/// Scrubs of a run, by the share of its inserts that lies between two.
pub(crate) const EVERY: [(&str, Option<usize>); 4] = [
    ("a scrub every 20th of the inserts", Some(20)),
    ("a scrub every 5th", Some(5)),
    ("one at the end", Some(1)),
    ("none", None),
];

/// What a figure is called.
pub(crate) fn name(map: &str, every: &str) -> String {
    format!("{map} insert, {every}")
}

/// Measures; see the top of the file.
pub(crate) fn inserts(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let (count, rounds) = if o.quick { (10_000, 1) } else { (100_000, 3) };
    let size = if o.quick { 128 << 20 } else { 512 << 20 };
    let mut rng = Rng::new(7);
    let keys: Vec<u64> = (0..count).map(|_| rng.next_u64()).collect();
    say!("-- {count} inserts, values of 16 bytes, with scrubs between");
    for map in MAPS {
        let kind =
            Kind::from_name(map).ok_or_else(|| anyhow::anyhow!("{map} is no kind of map"))?;
        let mut values = [const { Vec::new() }; EVERY.len()];
        for _ in 0..rounds {
            for ((_, scrubs), values) in EVERY.iter().zip(&mut values) {
                let rig = Rig::new(&o.dir, &options(size, MODES[3]), OpenOptions::default())?;
                values.push(one(&rig, kind, &keys, *scrubs)?);
            }
        }
        for ((every, _), values) in EVERY.iter().zip(values) {
            report.rounds(&name(map, every), "ns", values);
        }
        for (every, _) in &EVERY[..EVERY.len() - 1] {
            let without = name(map, EVERY[EVERY.len() - 1].0);
            if let Some(ratio) = report.ratio(&name(map, every), &without) {
                report.figure(&format!("{map} insert, {every} / none"), "x", ratio);
            }
        }
    }
    Ok(())
}

/// Nanoseconds of an insert, scrubs included.
fn one(rig: &Rig, kind: Kind, keys: &[u64], scrubs: Option<usize>) -> anyhow::Result<f64> {
    let pool = rig.pool();
    let map = pool.run(|tx| Map::<u64, [u8]>::create(tx, kind))?;
    let between = scrubs.map_or(keys.len(), |scrubs| keys.len() / scrubs);
    let options = ScrubOptions { rate: None, resume: false };
    let start = Instant::now();
    for some in keys.chunks(between) {
        for key in some {
            pool.run(|tx| map.put(tx, key, &[3; 16]))?;
        }
        if scrubs.is_some() {
            let done = pool.scrub(options, &ScrubControl::default(), |_, _| {})?;
            anyhow::ensure!(done.report.is_clean(), "the scrub found damage");
        }
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / keys.len() as f64)
}
