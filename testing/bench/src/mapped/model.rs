//! What protection should cost, from two figures measured on the same file: the first store to a
//! page after a pass, and the processor time of a pass for each byte it covers.
//!
//! A period costs `pages x first store + bytes / rate`; on a core of its own the updater's share
//! is not the program's.

use std::hint::black_box;

use holdfast_pmem::PAGE;
use holdfast_workloads::rng::Rng;

use super::kept::Kept;
use super::measure::{Core, thread_cpu};
use crate::codes::{ROWS, read_one_stream, read_rows};

/// What one page costs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Model {
    /// Nanoseconds of the first store to a page, beyond those of any store.
    pub(crate) first: f64,
    /// Nanoseconds of a pass for a page it covers.
    pub(crate) cover: f64,
}

impl Model {
    /// Measured on a file that is protected already. `ordered`: pages are met in their order.
    pub(crate) fn of(kept: &Kept, ordered: bool, rounds: usize) -> anyhow::Result<Self> {
        let pages = kept.area().len() / PAGE;
        let mut order: Vec<u64> = (0..pages).collect();
        if !ordered {
            Rng::new(1).shuffle(&mut order);
        }
        let touch = || {
            let start = thread_cpu();
            for page in &order {
                // The same bytes: what the structures keep there stays right.
                kept.area().store_back(page * PAGE);
            }
            thread_cpu() - start
        };
        kept.begin()?;
        let (mut first, mut cover) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            kept.pass()?;
            let (cold, warm) = (touch(), touch());
            first.push((cold - warm) * 1e9 / pages as f64);
            let start = thread_cpu();
            let covered = kept.pass()?;
            cover.push((thread_cpu() - start) * 1e9 / covered.max(1) as f64);
        }
        kept.end()?;
        Ok(Self { first: middle(first), cover: middle(cover) })
    }

    /// The share of a period that `pages` stored to in it cost.
    pub(crate) fn loss(&self, pages: f64, period: f64, core: Core) -> f64 {
        let cover = if core == Core::Same { self.cover } else { 0.0 };
        (pages * (self.first + cover) * 1e-9 / period).min(1.0)
    }
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Bytes for each second of processor time of the fastest way found to read `bytes` of memory.
pub(crate) fn streaming(kept: &Kept, rounds: usize) -> f64 {
    // Nobody stores: the caller measures alone.
    let bytes = kept.area().still();
    let quarter = bytes.len() / ROWS / PAGE as usize * PAGE as usize;
    let rows = [0, 1, 2, 3].map(|row| &bytes[row * quarter..][..quarter]);
    let rate = |work: &dyn Fn()| {
        let start = thread_cpu();
        work();
        bytes.len() as f64 / (thread_cpu() - start)
    };
    let one = || {
        black_box(read_one_stream(black_box(bytes)));
    };
    let four = || {
        black_box(read_rows(black_box(&rows)));
    };
    middle((0..rounds).map(|_| rate(&one).max(rate(&four))).collect())
}
