//! What a scrub costs those who commit meanwhile, by its rate.

use std::time::{Duration, Instant};

use holdfast_object::{OpenOptions, ScrubControl, ScrubOptions};
use holdfast_workloads::rng::Rng;

use crate::Options;
use crate::object::{MODES, options, overwrite};
use crate::report::Report;
use crate::rig::{Rig, fill};

/// Rates of the scrub in MB/s; none is a run without one, the last is as fast as it goes.
pub(crate) const RATES: [(&str, Option<u64>); 5] = [
    ("no scrub", Some(0)),
    ("scrub at 50 MB/s", Some(50)),
    ("scrub at 250 MB/s", Some(250)),
    ("scrub at 1000 MB/s", Some(1000)),
    ("scrub at full speed", None),
];

/// Overwrites 256 B objects on one thread while another scrubs, round and round.
pub(crate) fn interference(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let size = if o.quick { 256 << 20 } else { 1 << 30 };
    let rig = Rig::new(&o.dir, &options(size, MODES[3]), OpenOptions::default())?;
    let pool = rig.pool();
    let objects = fill(pool, (size / 1024) as usize, 256)?;
    // First accesses to pages are no part of it.
    for object in &objects {
        overwrite(pool, *object, &[9; 256])?;
    }
    let rounds = if o.quick { 3 } else { 5 };
    let length = Duration::from_millis(if o.quick { 100 } else { 1000 });
    let mut values = [const { Vec::new() }; RATES.len()];
    // Caches and lanes are as they will be.
    commits(pool, &objects, u64::MAX, length)?;
    for round in 0..rounds {
        for turn in 0..RATES.len() {
            // Nobody always runs after the same one, or overwrites what that left in the caches.
            let at = (turn + round) % RATES.len();
            let (rate, values) = (&RATES[at].1, &mut values[at]);
            let seed = (round * RATES.len() + turn) as u64;
            let control = ScrubControl::default();
            let scrub = ScrubOptions { rate: rate.map(|mb| mb << 20), resume: false };
            let count = std::thread::scope(|scope| {
                // A pass that found no time to end is cancelled; one that ended starts anew.
                let running = (*rate != Some(0)).then(|| {
                    scope.spawn(|| {
                        let end = Instant::now() + length;
                        while Instant::now() < end {
                            let done = pool.scrub(scrub, &control, |_, _| {})?;
                            anyhow::ensure!(done.report.is_clean(), "the scrub found damage");
                        }
                        Ok(())
                    })
                });
                let counted = commits(pool, &objects, seed, length);
                control.cancel();
                if let Some(running) = running {
                    running.join().map_err(|_| anyhow::anyhow!("the scrub panicked"))??;
                }
                counted
            })?;
            values.push(count as f64 / length.as_secs_f64() / 1e3);
        }
    }
    for ((name, _), values) in RATES.iter().zip(values) {
        report.rounds(&format!("overwrites of 256 B, {name}"), "k/s", values);
    }
    for (name, _) in &RATES[1..] {
        let figure = |name: &str| format!("overwrites of 256 B, {name}");
        if let Some(ratio) = report.ratio(&figure(name), &figure(RATES[0].0)) {
            report.figure(&format!("share left beside a {name}"), "", ratio);
        }
    }
    crate::scrubbed::inserts(o, report)
}

/// How many overwrites fit into so long.
fn commits(
    pool: &holdfast_object::Pool<holdfast_pmem::Mapped>,
    objects: &[holdfast_layout::RawPtr],
    seed: u64,
    length: Duration,
) -> anyhow::Result<u64> {
    let mut rng = Rng::new(seed);
    let mut bytes = [0; 256];
    let start = Instant::now();
    let mut count = 0;
    // The clock is read every so often only.
    while start.elapsed() < length {
        for _ in 0..64 {
            bytes.fill(rng.next_u64() as u8);
            overwrite(pool, objects[rng.below(objects.len() as u64) as usize], &bytes)?;
        }
        count += 64;
    }
    Ok(count)
}
