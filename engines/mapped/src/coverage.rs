//! How much is covered at this moment, by sums and by parity, and since when not.

use std::collections::BTreeMap;

use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{Medium, PAGE};
use holdfast_redundancy::Unsure;

use crate::bits::Bits;
use crate::engine::Mapped;
use crate::error::Result;
use crate::header::State;
use crate::trace::{Share, Window, class};

/// Steps of the histogram of uncovered shares.
pub const STEPS: usize = 11;

/// What is covered and what is not. Pages are counted, of those the data file has storage for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Pages looked after.
    pub pages: u64,
    /// Pages whose sum is not of what they hold: damage there is not found.
    pub without_sum: u64,
    /// Pages of stripes whose parity is not of what they hold: damage there is not repaired, also
    /// not on those of them whose sum is right.
    pub without_parity: u64,
    /// Pages left undecided.
    pub undecided: u64,
    /// Age of the oldest store that is not covered, at most, in nanoseconds: since the writes of
    /// its region were last taken, or, where nobody is let in, since it was last covered. 0 if all
    /// is covered.
    pub oldest_ns: u64,
    /// Regions by the share of their pages without sum: none, up to 10 %, up to 20 %, ... all.
    pub histogram: [u64; STEPS],
    /// Pages a scrub verified longest ago: when that was, in nanoseconds of the clock; 0 if some
    /// were never.
    pub verified_ns: u64,
    /// When a pass last covered something, in nanoseconds of the clock; 0 if none did.
    pub covered_ns: u64,
}

impl<F: Medium, S: Medium, D: DirtySource> Mapped<F, S, D> {
    /// What is covered now. Asks the source and clears nothing.
    ///
    /// # Errors
    /// An error of the source.
    pub fn coverage(&self) -> Result<Coverage> {
        let inner = self.lock();
        let now = self.clock.now();
        let data = self.stripes.data();
        let mut all = Coverage { verified_ns: u64::MAX, ..Coverage::default() };
        for (number, region) in &inner.regions {
            let bits = self.uncovered(*number, region)?;
            let pages = region.record.pages;
            let count = u64::from(bits.count());
            all.pages += u64::from(pages);
            all.without_sum += count;
            all.undecided += u64::from(region.undecided().count());
            all.histogram[class(count, u64::from(pages))] += 1;
            for stripe in 0..pages.div_ceil(data) {
                let first = stripe * data;
                let last = (first + data).min(pages);
                let stale = (first..last).any(|page| bits.has(page));
                if stale || !region.parity_usable(stripe) || self.stripes.parity() == 0 {
                    all.without_parity += u64::from(last - first);
                }
            }
            if !bits.is_empty() {
                let record = &region.record;
                let since = if region.admitted { region.taken_ns } else { record.covered_ns };
                all.oldest_ns = all.oldest_ns.max(now.saturating_sub(since));
            }
            all.covered_ns = all.covered_ns.max(region.record.covered_ns);
            all.verified_ns = all.verified_ns.min(region.record.verified_ns);
        }
        if inner.regions.is_empty() {
            all.verified_ns = 0;
        }
        Ok(all)
    }

    /// Why pages were left undecided: each reason, and of how many pages it is known. Pages of
    /// which none is known differ, and no store to them was seen.
    #[must_use]
    pub fn undecided(&self) -> Vec<(Unsure, u64)> {
        let mut reasons = BTreeMap::new();
        for region in self.lock().regions.values() {
            for inside in region.undecided().and(Bits::first(region.record.pages)).iter() {
                let why = region.reason(inside);
                reasons.entry(why.code()).or_insert((why, 0)).1 += 1;
            }
        }
        reasons.into_values().collect()
    }

    /// When the region of a page was last verified, and nothing in it was damaged or in doubt, by
    /// the clock given at open; 0 if never. What is damaged now has been so since then at the
    /// longest.
    #[must_use]
    pub fn verified_ns(&self, page: u64) -> u64 {
        self.since(&self.lock(), page).1
    }

    /// Pages that were left undecided, by number in the file, ascending, and why; at most `most`.
    #[must_use]
    pub fn undecided_pages(&self, most: usize) -> Vec<(u64, Unsure)> {
        let inner = self.lock();
        let pages = inner.regions.iter().flat_map(|(number, region)| {
            let left = region.undecided().and(Bits::first(region.record.pages));
            let page = |inside| (self.number(*number, inside), region.reason(inside));
            left.iter().map(page).collect::<Vec<_>>()
        });
        pages.take(most).collect()
    }

    /// What passes found stored to since this was asked last, if
    /// [`trace`](crate::OpenOptions::trace) is on.
    pub fn take_trace(&self) -> Vec<Window> {
        self.lock().trace.take()
    }

    /// How much of the file each of the last windows left uncovered, the oldest first: the last
    /// [`SHARES_KEPT`](crate::trace::SHARES_KEPT) passes over all of it.
    #[must_use]
    pub fn shares(&self) -> Vec<Share> {
        self.lock().trace.shares()
    }

    /// Bytes of the data file that are looked after.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.lock().size
    }

    /// Pages of the data file, the last one counted even if it is not whole.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.size().div_ceil(PAGE)
    }

    /// What the side file says of itself.
    #[must_use]
    pub fn state(&self) -> State {
        self.header().state
    }

    /// Whether somebody untracked is known to write to the file.
    #[must_use]
    pub fn is_contested(&self) -> bool {
        self.header().contested()
    }
}
