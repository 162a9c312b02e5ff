//! Compares the speed of the codes with the figures the project asks of them:
//! `cargo bench -p holdfast-codes --bench goals`.
//!
//! One line per goal: `goal NAME VALUE UNIT limit LIMIT met|missed`. Parity is measured against
//! the streaming read bandwidth of the same run, because both depend on the machine alike. Run
//! without `--bench`, as tests are, the buffers are small and the figures mean nothing.

use std::hint::black_box;
use std::time::Instant;

use holdfast_codes::{crc32c, crc32c_patch, pq_encode, xor_many};

/// Seconds per call of `work`: the best of `rounds` averages over `calls`.
fn seconds(rounds: usize, calls: usize, mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let start = Instant::now();
        for _ in 0..calls {
            work();
        }
        best = best.min(start.elapsed().as_secs_f64() / calls as f64);
    }
    best
}

fn at_least(name: &str, value: f64, unit: &str, limit: f64) {
    let verdict = if value >= limit { "met" } else { "missed" };
    println!("goal {name} {value:.1} {unit} limit >={limit} {verdict}");
}

fn at_most(name: &str, value: f64, unit: &str, limit: f64) {
    let verdict = if value <= limit { "met" } else { "missed" };
    println!("goal {name} {value:.1} {unit} limit <={limit} {verdict}");
}

/// Sums and patches of data in the first-level cache.
fn in_cache(calls: usize) {
    let page: Vec<u8> = (0..4096usize).map(|i| (i * i / 7) as u8).collect();
    let whole = seconds(20, calls, || {
        black_box(crc32c(0, black_box(&page)));
    });
    at_least("crc32c_4KiB", 4096e-9 / whole, "GB/s", 35.0);

    // One object after the other, as a scrub or a commit of several meets them.
    let objects = seconds(20, calls, || {
        for object in black_box(&page).chunks_exact(64) {
            black_box(crc32c(0, object));
        }
    }) / 64.0;
    at_least("crc32c_64B", 64e-9 / objects, "GB/s", 7.0);

    // Each sum is the seed of the next: the latency of a single call. For the record only.
    let mut sum = 0;
    let chained = seconds(20, 64 * calls, || sum = crc32c(sum, black_box(&page[..64])));
    black_box(sum);
    println!("crc32c of 64 B: {:.1} ns one after the other", chained * 1e9);

    // A change of each line in turn; delta and place wait for the result before.
    let (mut old, mut delta) = (0, [7; 64]);
    let patch = seconds(20, calls, || {
        for line in (0..4096).step_by(64) {
            delta[..8].copy_from_slice(&u64::from(old).to_le_bytes());
            let tail = line + (old as usize >> 31 >> 1);
            old = crc32c_patch(old, black_box(&delta), tail);
        }
    }) / 64.0;
    black_box(old);
    at_most("crc32c_patch_64B_in_4KiB", patch * 1e9, "ns", 15.0);
}

/// Reads everything once, front to back.
fn read_one_stream(bytes: &[u8]) -> u64 {
    bytes.as_chunks().0.iter().fold(0, |sum, word| sum ^ u64::from_le_bytes(*word))
}

/// Reads all rows side by side; what is made of them stays in the first-level cache.
fn read_rows(rows: &[&[u8]; 4]) -> u8 {
    let mut sum = [0; 4096];
    let mut last = 0;
    let [a, b, c, d] = rows.map(|row| row.chunks_exact(4096));
    for (((a, b), c), d) in a.zip(b).zip(c).zip(d) {
        xor_many(&mut sum, &[a, b, c, d]);
        last ^= black_box(&sum)[0];
    }
    last
}

/// Parity of `length` bytes in four rows, as a share of the fastest way found to read them.
fn in_memory(length: usize, rounds: usize) {
    let data: Vec<u8> = (0..length).map(|i| (i >> 6) as u8 | 1).collect();
    let quarter = length / 4;
    let rows = [0, 1, 2, 3].map(|row| &data[row * quarter..][..quarter]);
    let (mut p, mut q) = (vec![1; quarter], vec![1; quarter]);
    let [mut one, mut four, mut xor, mut both] = [f64::MAX; 4];
    for _ in 0..rounds {
        // In turns, so that a busy neighbour slows all of them.
        one = one.min(seconds(1, 1, || {
            black_box(read_one_stream(black_box(&data)));
        }));
        four = four.min(seconds(1, 1, || {
            black_box(read_rows(black_box(&rows)));
        }));
        xor = xor.min(seconds(1, 1, || xor_many(black_box(&mut p), black_box(&rows))));
        both = both.min(seconds(1, 1, || {
            pq_encode(black_box(&mut p), black_box(&mut q), black_box(&rows));
        }));
    }
    let rate = |seconds: f64| length as f64 * 1e-9 / seconds;
    println!("streaming read: {:.1} GB/s as one stream, {:.1} as four", rate(one), rate(four));
    println!("parity of data: {:.1} GB/s 4+1, {:.1} GB/s 4+2", rate(xor), rate(both));
    let read = one.min(four);
    at_least("parity_4+1_of_streaming_read", 100.0 * read / xor, "%", 70.0);
    at_least("parity_4+2_of_streaming_read", 100.0 * read / both, "%", 55.0);
}

fn main() {
    if std::env::args().any(|argument| argument == "--bench") {
        in_cache(20_000);
        in_memory(1 << 30, 5);
    } else {
        in_cache(10);
        in_memory(1 << 20, 1);
    }
}
