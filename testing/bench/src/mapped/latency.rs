//! How long single operations took, in a fixed space however many there were.

use std::time::Duration;

/// Steps between a power of two and the next.
const STEPS: u64 = 32;

/// Counts of operations by their length: exact to 3 %.
#[derive(Debug, Clone)]
pub(crate) struct Latency {
    counts: Vec<u64>,
    all: u64,
    longest: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { counts: vec![0; (64 * STEPS) as usize], all: 0, longest: 0 }
    }
}

impl Latency {
    #[inline(always)]
    pub(crate) fn add(&mut self, took: Duration) {
        let ns = took.as_nanos() as u64;
        self.counts[index(ns)] += 1;
        self.all += 1;
        self.longest = self.longest.max(ns);
    }

    /// The time that this share of the operations did not exceed, in nanoseconds.
    pub(crate) fn at(&self, share: f64) -> u64 {
        let wanted = (self.all as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (i, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                return upper(i as u64).min(self.longest);
            }
        }
        self.longest
    }

    pub(crate) fn longest(&self) -> u64 {
        self.longest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all == 0
    }
}

fn index(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let power = u64::from(ns.ilog2() - STEPS.ilog2());
    (STEPS * power + (ns >> power)) as usize
}

/// The longest time counted at an index.
fn upper(index: u64) -> u64 {
    if index < STEPS {
        return index;
    }
    let power = index / STEPS - 1;
    ((index - STEPS * power + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_to_three_percent() {
        for ns in (0..5_000).chain([65_535, 1 << 20, 3_000_000_000, u64::MAX >> 20]) {
            let top = upper(index(ns) as u64);
            assert!(top >= ns && top - ns <= ns / 31, "{ns}: {top}");
        }
    }

    #[test]
    fn shares_are_those_of_the_operations() {
        let mut latency = Latency::default();
        for ns in 1..=1000 {
            latency.add(Duration::from_nanos(ns));
        }
        assert!((490..=510).contains(&latency.at(0.5)), "{}", latency.at(0.5));
        assert_eq!((latency.at(1.0), latency.longest()), (1000, 1000));
    }
}
