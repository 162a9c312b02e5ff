//! How long transactions take: a histogram from a sample.
//!
//! Timing a transaction takes up to 300 ns: two looks at a clock, which wait for what was flushed
//! before, and a locked instruction. That is longer than a short one. So only some are timed, and
//! each of these counts for all of its thread since the last: the more the shorter they are, so
//! that timing takes about one part in 200 of the time, and every one where they are slow enough
//! for it not to matter. What is not timed pays for a counter of its thread. The histogram has four
//! classes for each doubling, so a figure read from it is at most a quarter above what was
//! measured.

use core::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Nanoseconds that timing one takes, about.
const COST: u64 = 300;
/// Part of the time that timing may take.
const SHARE: u64 = 200;
/// Most transactions of a thread that one counts for: so many slow ones may pass unseen after a
/// short one.
const GAP_MAX: u64 = 256;
/// Powers of two of the smallest and the largest time that classes tell apart: 64 ns, 137 s.
const FIRST: u32 = 6;
const LAST: u32 = 37;
/// Classes: one for all below, four for each doubling, the last for all above too.
const CLASSES: usize = 1 + 4 * (LAST - FIRST) as usize;

thread_local! {
    /// Transactions of this thread that are not timed before the next one that is.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    /// How many that one counts for.
    static WEIGHT: Cell<u32> = const { Cell::new(1) };
}

/// Counts what takes how long. All threads of a pool share one.
#[derive(Debug)]
pub(crate) struct Latencies([AtomicU64; CLASSES]);

impl Default for Latencies {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; CLASSES])
    }
}

impl Latencies {
    /// Runs something, and times it if its turn has come.
    #[inline]
    pub(crate) fn timed<R>(&self, run: impl FnOnce() -> R) -> R {
        let left = LEFT.get();
        if left > 0 {
            LEFT.set(left - 1);
            return run();
        }
        self.time(run)
    }

    #[cold]
    #[inline(never)]
    fn time<R>(&self, run: impl FnOnce() -> R) -> R {
        let weight = WEIGHT.get();
        let begun = Instant::now();
        let done = run();
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let gap = gap_after(nanos);
        LEFT.set(gap - 1);
        WEIGHT.set(gap);
        if let Some(class) = self.0.get(class_of(nanos)) {
            class.fetch_add(weight.into(), Ordering::Relaxed);
        }
        done
    }

    /// How it is now.
    pub(crate) fn now(&self) -> Latency {
        Latency(self.0.iter().map(|class| class.load(Ordering::Relaxed)).collect())
    }
}

/// How long the transactions of a pool took that ran since it was opened, reads included: about,
/// from a sample.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latency(Vec<u64>);

impl Latency {
    /// Transactions, about.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |all, class| all.saturating_add(*class))
    }

    /// Nanoseconds within which this part of them (0.5 for the median) were done, at most a
    /// quarter too high; nothing if there were none.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let count = self.count();
        let wanted = (count as f64 * part.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0_u64;
        for (class, here) in self.0.iter().enumerate() {
            seen = seen.saturating_add(*here);
            if *here > 0 && seen >= wanted {
                return Some(end_of(class));
            }
        }
        None
    }

    /// Those since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.0.iter().copied().chain(core::iter::repeat(0));
        Self(self.0.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect())
    }

    /// The classes that are not empty, each after its number.
    pub(crate) fn words(&self) -> String {
        let filled = self.0.iter().enumerate().filter(|(_, here)| **here > 0);
        let words: Vec<String> = filled.map(|(class, here)| format!("{class} {here}")).collect();
        words.join(" ")
    }

    pub(crate) fn parse(words: &[u64]) -> Option<Self> {
        let mut classes = vec![0; CLASSES];
        let (pairs, rest) = words.as_chunks::<2>();
        for [class, here] in pairs {
            *classes.get_mut(usize::try_from(*class).ok()?)? = *here;
        }
        rest.is_empty().then_some(Self(classes))
    }
}

/// How many transactions the next one that is timed counts for, after one that took so long.
fn gap_after(nanos: u64) -> u32 {
    (COST * SHARE / nanos.max(1)).clamp(1, GAP_MAX) as u32
}

/// The class of a time.
fn class_of(nanos: u64) -> usize {
    if nanos < 1 << FIRST {
        return 0;
    }
    let power = nanos.ilog2();
    let quarter = (nanos >> (power - 2)) & 3;
    let class = 1 + 4 * (power - FIRST) as usize + quarter as usize;
    class.min(CLASSES - 1)
}

/// The first time that is longer than all of a class.
fn end_of(class: usize) -> u64 {
    let Some(above) = class.checked_sub(1) else { return 1 << FIRST };
    let (power, quarter) = (FIRST + (above / 4) as u32, (above % 4) as u64);
    (5 + quarter) << (power - 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_time_lies_in_its_class_and_not_far_from_its_end() {
        for power in FIRST..LAST {
            for nanos in [(1_u64 << power) - 1, 1 << power, (1 << power) * 3 / 2 + 1] {
                let end = end_of(class_of(nanos));
                assert!(nanos < end, "{nanos} {end}");
                assert!(nanos < 64 || end - nanos <= nanos / 4 + 1, "{nanos} {end}");
            }
        }
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
        assert_eq!(class_of(0), 0);
    }

    #[test]
    fn quantiles_are_those_of_what_was_counted() {
        let mut classes = vec![0; CLASSES];
        classes[class_of(1000)] = 90;
        classes[class_of(1_000_000)] = 10;
        let latency = Latency(classes);
        assert_eq!(latency.count(), 100);
        let near = |part: f64, nanos: u64| {
            let found = latency.quantile(part).unwrap_or(0);
            assert!(found >= nanos && found <= nanos + nanos / 4, "{part}: {found}");
        };
        near(0.0, 1000);
        near(0.5, 1000);
        near(0.9, 1000);
        near(0.91, 1_000_000);
        near(1.0, 1_000_000);
        assert_eq!(Latency::default().quantile(0.5), None);
        assert_eq!(latency.since(&latency).count(), 0);
        let words: Vec<u64> =
            latency.words().split(' ').map(|word| word.parse().unwrap_or(0)).collect();
        assert_eq!(Latency::parse(&words), Some(latency));
        assert_eq!(Latency::parse(&[1]), None);
        assert_eq!(Latency::parse(&[1 << 20, 1]), None);
    }

    #[test]
    fn timing_takes_a_small_part_of_the_time_and_slow_ones_are_all_timed() {
        for nanos in [240, 1000, 5000, 25_000] {
            let time = u64::from(gap_after(nanos)) * nanos;
            assert!(time <= COST * SHARE, "{nanos}: too few are timed");
            assert!(time * 2 >= COST * SHARE, "{nanos}: too many are timed");
        }
        assert_eq!([0, 1, 50].map(gap_after), [256; 3]);
        assert_eq!([60_000, 100_000, u64::MAX].map(gap_after), [1; 3]);
    }

    #[test]
    fn the_sample_counts_for_all_of_a_thread() {
        let latencies = Latencies::default();
        for _ in 0..10 * GAP_MAX {
            latencies.timed(|| ());
        }
        // All up to the last one that was timed.
        let counted = latencies.now().count();
        assert!((9 * GAP_MAX..=10 * GAP_MAX).contains(&counted), "{counted}");
        let slow = latencies.now();
        LEFT.set(0);
        WEIGHT.set(1);
        for _ in 0..3 {
            latencies.timed(|| std::thread::sleep(Duration::from_micros(200)));
        }
        assert_eq!(latencies.now().since(&slow).count(), 3);
    }
}
