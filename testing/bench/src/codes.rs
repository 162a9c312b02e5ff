//! The codes: checksums in cache, patches of sums, parity of a gibibyte.
//!
//! Sums are measured on data in the first-level cache. Parity is measured against the fastest way
//! found to read the same data in the same round, since both depend on the machine alike.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use holdfast_codes::{crc32c, crc32c_patch, pq_encode, xor_many};

use crate::report::{Limit, Report, Spread};

/// How the codes are measured.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Fewer rounds, a quarter of the memory.
    #[arg(long)]
    quick: bool,
    /// Write all figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Exit 1 if a goal is missed.
    #[arg(long)]
    pub(crate) check: bool,
}

/// Bytes of a page, which fits the first-level cache.
const PAGE: usize = 4096;
/// Bytes of a short object.
const SHORT: usize = 64;
/// Rows that parity is made of.
pub(crate) const ROWS: usize = 4;

/// Runs everything. Answers the number of goals missed.
pub(crate) fn run(o: &Options) -> anyhow::Result<u32> {
    crate::asked::writable_file(o.json.as_deref())?;
    let mut report = Report::default();
    in_cache(o, &mut report);
    in_memory(o, &mut report);
    report.summary();
    if let Some(path) = &o.json {
        report.save(path)?;
    }
    Ok(report.missed() + report.not_judged())
}

/// Nanoseconds per call of `work`, averaged over `calls`, in each of `rounds`.
fn time(rounds: usize, calls: usize, mut work: impl FnMut()) -> Vec<f64> {
    let round = |_| {
        let start = Instant::now();
        (0..calls).for_each(|_| work());
        start.elapsed().as_secs_f64() * 1e9 / calls as f64
    };
    (0..rounds).map(round).collect()
}

/// Prints rates of `bytes` per time; the best one is what the code can do and is answered: in
/// cache everything slower is somebody else's doing.
fn best_rate(report: &mut Report, name: &str, bytes: usize, times: &[f64]) -> f64 {
    let rates = Spread::of(times.iter().map(|ns| bytes as f64 / ns).collect());
    report.figure(name, "GB/s", rates);
    rates.high
}

/// Sums and patches of data in the first-level cache.
fn in_cache(o: &Options, report: &mut Report) {
    let (rounds, calls) = if o.quick { (10, 4_000) } else { (20, 20_000) };
    let page: Vec<u8> = (0..PAGE).map(|i| (i * i / 7) as u8).collect();
    let whole = time(rounds, calls, || {
        black_box(crc32c(0, black_box(&page)));
    });
    let rate = best_rate(report, "CRC-32C of 4 KiB", PAGE, &whole);
    report.goal("crc32c_4kib_gb_per_s", rate, Limit::AtLeast(35.0));

    // One object after the other, as a scrub or a commit of several meets them.
    let objects = time(rounds, calls, || {
        for object in black_box(&page).chunks_exact(SHORT) {
            black_box(crc32c(0, object));
        }
    });
    let rate = best_rate(report, "CRC-32C of 64 B, one after the other", PAGE, &objects);
    report.goal("crc32c_64b_gb_per_s", rate, Limit::AtLeast(7.0));

    // Each sum is the seed of the next: the latency of a single call.
    let mut sum = 0;
    let chained = time(rounds, 64 * calls, || sum = crc32c(sum, black_box(&page[..SHORT])));
    black_box(sum);
    report.figure("CRC-32C of 64 B, each seeded with the last", "ns", Spread::of(chained));

    // A change of each line in turn; delta and place wait for the result before.
    let (mut old, mut delta) = (0, [7; SHORT]);
    let patches = time(rounds, calls, || {
        for line in (0..PAGE).step_by(SHORT) {
            delta[..8].copy_from_slice(&u64::from(old).to_le_bytes());
            let tail = line + (old as usize >> 31 >> 1);
            old = crc32c_patch(old, black_box(&delta), tail);
        }
    });
    black_box(old);
    let each = patches.iter().map(|ns| ns / (PAGE / SHORT) as f64).collect();
    let each = Spread::of(each);
    report.figure("patch of 64 B in a sum of 4 KiB", "ns", each);
    report.goal("crc32c_patch_64b_in_4kib_ns", each.low, Limit::AtMost(15.0));
}

/// Reads everything once, front to back.
pub(crate) fn read_one_stream(bytes: &[u8]) -> u64 {
    bytes.as_chunks().0.iter().fold(0, |sum, word| sum ^ u64::from_le_bytes(*word))
}

/// Reads all rows side by side; what is made of them stays in the first-level cache.
pub(crate) fn read_rows(rows: &[&[u8]; ROWS]) -> u8 {
    let mut sum = [0; PAGE];
    let mut last = 0;
    let [a, b, c, d] = rows.map(|row| row.chunks_exact(PAGE));
    for (((a, b), c), d) in a.zip(b).zip(c).zip(d) {
        xor_many(&mut sum, &[a, b, c, d]);
        last ^= black_box(&sum)[0];
    }
    last
}

/// Parity of a gibibyte in four rows, as a share of the streaming read bandwidth.
fn in_memory(o: &Options, report: &mut Report) {
    let (length, rounds) = if o.quick { (1 << 28, 5) } else { (1 << 30, 7) };
    let data: Vec<u8> = (0..length).map(|i: usize| (i >> 6) as u8 | 1).collect();
    let quarter = length / ROWS;
    let rows = [0, 1, 2, 3].map(|row| &data[row * quarter..][..quarter]);
    let (mut p, mut q) = (vec![1; quarter], vec![1; quarter]);
    let [mut one, mut four, mut xor, mut both] = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        // In turns, so that a busy neighbour slows all of them.
        one.extend(time(1, 1, || {
            black_box(read_one_stream(black_box(&data)));
        }));
        four.extend(time(1, 1, || {
            black_box(read_rows(black_box(&rows)));
        }));
        xor.extend(time(1, 1, || xor_many(black_box(&mut p), black_box(&rows))));
        both.extend(time(1, 1, || {
            pq_encode(black_box(&mut p), black_box(&mut q), black_box(&rows));
        }));
    }
    let read = best_rate(report, "streaming read, one stream", length, &one);
    let read = read.max(best_rate(report, "streaming read, four streams", length, &four));
    let xor = best_rate(report, "parity 4+1, data bytes", length, &xor);
    let both = best_rate(report, "parity 4+2, data bytes", length, &both);
    report.goal("parity_4_1_percent_of_read", 100.0 * xor / read, Limit::AtLeast(70.0));
    report.goal("parity_4_2_percent_of_read", 100.0 * both / read, Limit::AtLeast(55.0));
}
