//! Which key comes next: uniform, Zipfian, scrambled Zipfian, latest, hot spot.
//!
//! The skewed choices follow the benchmark whose numbers others publish (YCSB core workloads):
//! the same constants, the same approximation of the Zipfian quantile, the same 64-bit FNV hash.
//! Drawing needs `powf`, whose last bit may differ between machines; a draw differs between
//! machines only if it falls exactly between two keys.

use crate::rng::Rng;

/// The skew of the published numbers.
pub const THETA: f64 = 0.99;

/// Draws key numbers. Keys are numbered in the order of their insertion, from 0.
pub trait KeyChooser {
    /// A key number below `keys`, the number of keys inserted so far (at least 1).
    fn next_key(&mut self, rng: &mut Rng, keys: u64) -> u64;
}

/// The 64-bit FNV-1a hash of a number's eight bytes, low byte first, with the sign bit cleared as
/// the benchmark's hash has it.
#[must_use]
pub const fn fnv_hash_64(value: u64) -> u64 {
    let mut hash: u64 = 0xCBF2_9CE4_8422_2325;
    let mut i = 0;
    while i < 8 {
        hash ^= value >> (8 * i) & 0xFF;
        hash = hash.wrapping_mul(0x0000_0100_0000_01B3);
        i += 1;
    }
    (hash as i64).unsigned_abs()
}

/// Every key equally likely.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uniform;

impl KeyChooser for Uniform {
    fn next_key(&mut self, rng: &mut Rng, keys: u64) -> u64 {
        rng.below(keys)
    }
}

/// Rank r drawn with probability proportional to 1 / (r + 1)^theta: rank 0 is the most popular.
///
/// Uses the closed form of Gray et al. for the quantile, which is exact for ranks 0 and 1 and a
/// continuous approximation above.
#[derive(Clone, Debug, PartialEq)]
pub struct Zipfian {
    theta: f64,
    items: u64,
    zeta_items: f64,
    zeta_two: f64,
}

impl Zipfian {
    /// A distribution over `items` ranks. Costs one addition per rank; growing costs one per new
    /// rank.
    ///
    /// # Panics
    ///
    /// If there are no items, or theta is not in `0.0..1.0`, for which the closed form fails.
    #[must_use]
    pub fn new(items: u64, theta: f64) -> Self {
        assert!(items > 0, "a distribution needs a rank");
        assert!((0.0..1.0).contains(&theta), "the closed form needs 0 <= theta < 1");
        let mut zipfian = Self { theta, items: 0, zeta_items: 0.0, zeta_two: zeta(0, 2, theta) };
        zipfian.grow(items);
        zipfian
    }

    /// A distribution whose normalising sum is known, so that it need not be added up.
    const fn with_sum(items: u64, theta: f64, zeta_items: f64, zeta_two: f64) -> Self {
        Self { theta, items, zeta_items, zeta_two }
    }

    /// Number of ranks.
    #[must_use]
    pub const fn items(&self) -> u64 {
        self.items
    }

    /// Adds ranks at the unpopular end. Fewer than now is no change.
    pub fn grow(&mut self, items: u64) {
        if items > self.items {
            self.zeta_items += zeta(self.items, items, self.theta);
            self.items = items;
        }
    }

    /// The exact probability of a rank.
    #[must_use]
    pub fn probability(&self, rank: u64) -> f64 {
        if rank < self.items {
            ((rank + 1) as f64).powf(-self.theta) / self.zeta_items
        } else {
            0.0
        }
    }

    /// Draws a rank.
    pub fn next_rank(&self, rng: &mut Rng) -> u64 {
        let u = rng.next_f64();
        let uz = u * self.zeta_items;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + 0.5_f64.powf(self.theta) {
            return 1.min(self.items - 1);
        }
        let items = self.items as f64;
        let alpha = 1.0 / (1.0 - self.theta);
        let eta =
            (1.0 - (2.0 / items).powf(1.0 - self.theta)) / (1.0 - self.zeta_two / self.zeta_items);
        ((items * (eta * u - eta + 1.0).powf(alpha)) as u64).min(self.items - 1)
    }
}

/// The part of the normalising sum from rank `from` up to `to`.
fn zeta(from: u64, to: u64, theta: f64) -> f64 {
    (from..to).map(|rank| ((rank + 1) as f64).powf(-theta)).sum()
}

impl KeyChooser for Zipfian {
    /// The first keys are the most popular.
    fn next_key(&mut self, rng: &mut Rng, keys: u64) -> u64 {
        self.grow(keys);
        self.next_rank(rng) % keys
    }
}

/// Popular keys spread over all keys: a Zipfian rank out of ten thousand million, hashed, modulo
/// the number of keys. The popularity of a key does not depend on when it was inserted.
#[derive(Clone, Debug, PartialEq)]
pub struct ScrambledZipfian {
    ranks: Zipfian,
}

impl ScrambledZipfian {
    /// Ranks drawn from.
    pub const RANKS: u64 = 10_000_000_000;
    /// The normalising sum of that many ranks with theta 0.99.
    const ZETA_RANKS: f64 = 26.469_028_201_783_02;

    /// The distribution of the published numbers: theta 0.99.
    #[must_use]
    pub fn new() -> Self {
        let zeta_two = zeta(0, 2, THETA);
        Self { ranks: Zipfian::with_sum(Self::RANKS, THETA, Self::ZETA_RANKS, zeta_two) }
    }
}

impl Default for ScrambledZipfian {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyChooser for ScrambledZipfian {
    fn next_key(&mut self, rng: &mut Rng, keys: u64) -> u64 {
        fnv_hash_64(self.ranks.next_rank(rng)) % keys
    }
}

/// The newest keys are the most popular: a Zipfian distance from the last key inserted.
#[derive(Clone, Debug, PartialEq)]
pub struct Latest {
    distance: Zipfian,
}

impl Latest {
    /// Theta 0.99, over the keys there are; grows with them.
    #[must_use]
    pub fn new(keys: u64) -> Self {
        Self { distance: Zipfian::new(keys.max(1), THETA) }
    }
}

impl KeyChooser for Latest {
    fn next_key(&mut self, rng: &mut Rng, keys: u64) -> u64 {
        self.distance.grow(keys);
        keys - 1 - self.distance.next_rank(rng) % keys
    }
}

/// A share of the operations goes to a share of the keys, uniformly within each part.
#[derive(Clone, Debug, PartialEq)]
pub struct HotSpot {
    hot_keys: f64,
    hot_operations: f64,
}

impl HotSpot {
    /// Both shares in `0.0..=1.0`; the hot keys are the first ones.
    ///
    /// # Panics
    ///
    /// If a share is outside that interval.
    #[must_use]
    pub fn new(hot_keys: f64, hot_operations: f64) -> Self {
        let share = 0.0..=1.0;
        assert!(share.contains(&hot_keys) && share.contains(&hot_operations), "shares of one");
        Self { hot_keys, hot_operations }
    }
}

impl KeyChooser for HotSpot {
    fn next_key(&mut self, rng: &mut Rng, keys: u64) -> u64 {
        let hot = ((keys as f64 * self.hot_keys) as u64).min(keys);
        // A part without keys leaves its operations to the other.
        if hot == keys || hot > 0 && rng.chance(self.hot_operations) {
            rng.below(hot)
        } else {
            hot + rng.below(keys - hot)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    fn counts(chooser: &mut impl KeyChooser, keys: u64) -> Vec<u64> {
        let mut rng = Rng::new(11);
        let mut counts = vec![0; keys as usize];
        (0..DRAWS).for_each(|_| counts[chooser.next_key(&mut rng, keys) as usize] += 1);
        counts
    }

    fn share(count: u64) -> f64 {
        count as f64 / DRAWS as f64
    }

    /// Published test vectors of FNV-1a hold for the bytes; these are the hash of whole numbers as
    /// the benchmark computes it.
    #[test]
    fn the_hash_is_fnv_1a_of_eight_bytes() {
        let plain = |value: u64| {
            let hash = value.to_le_bytes().iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, &byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
            });
            (hash as i64).unsigned_abs()
        };
        for value in [0, 1, 255, 256, 12_345, u64::MAX] {
            assert_eq!(fnv_hash_64(value), plain(value));
        }
        assert_eq!(fnv_hash_64(0), 0x5738_07CD_D7E5_C63B);
    }

    #[test]
    fn uniform_keys_are_equally_likely() {
        let counts = counts(&mut Uniform, 100);
        assert!(counts.iter().all(|n| n.abs_diff(2_000) < 250), "{counts:?}");
    }

    #[test]
    fn zipfian_ranks_have_their_probabilities() {
        let mut zipfian = Zipfian::new(1_000, THETA);
        let counts = counts(&mut zipfian, 1_000);
        for (rank, &count) in (0..2).zip(&counts) {
            let expect = zipfian.probability(rank);
            assert!((share(count) - expect).abs() < 0.004, "rank {rank}");
        }
        // Above rank 1 the quantile is an approximation: the mass of stretches is right to 3 %.
        for (from, to) in [(2, 10), (10, 100), (100, 1_000)] {
            let found: f64 = counts[from..to].iter().map(|&n| share(n)).sum();
            let expect: f64 = (from..to).map(|rank| zipfian.probability(rank as u64)).sum();
            assert!((found - expect).abs() < 0.03, "{from}..{to}: {found} instead of {expect}");
        }
        let total: f64 = (0..1_000).map(|rank| zipfian.probability(rank)).sum();
        assert!((total - 1.0).abs() < 1e-9);
        assert!(zipfian.probability(1_000) == 0.0);
    }

    #[test]
    fn growing_equals_starting_larger() {
        let mut grown = Zipfian::new(10, THETA);
        grown.grow(500);
        grown.grow(20);
        let fresh = Zipfian::new(500, THETA);
        assert_eq!(grown.items(), 500);
        assert!((grown.zeta_items - fresh.zeta_items).abs() < 1e-9);
    }

    #[test]
    fn tiny_sets_of_keys_work() {
        let mut rng = Rng::new(1);
        for keys in 1..4 {
            for _ in 0..1_000 {
                assert!(Zipfian::new(1, THETA).next_key(&mut rng, keys) < keys);
                assert!(ScrambledZipfian::new().next_key(&mut rng, keys) < keys);
                assert!(Latest::new(0).next_key(&mut rng, keys) < keys);
                assert!(HotSpot::new(0.2, 0.8).next_key(&mut rng, keys) < keys);
            }
        }
    }

    /// The known sum, against one added up over fewer ranks and the integral of the rest.
    #[test]
    fn the_scrambled_sum_is_that_of_its_ranks() {
        let added = 1_000_000_u64;
        let (from, to) = (added as f64 + 0.5, ScrambledZipfian::RANKS as f64 + 0.5);
        let rest = (to.powf(1.0 - THETA) - from.powf(1.0 - THETA)) / (1.0 - THETA);
        let sum = zeta(0, added, THETA) + rest;
        assert!((sum - ScrambledZipfian::ZETA_RANKS).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn scrambled_popularity_is_skewed_and_spread() {
        let keys = 1_000;
        let mut sorted = counts(&mut ScrambledZipfian::new(), keys);
        let hottest = fnv_hash_64(0) % keys;
        assert_eq!(sorted.iter().max(), Some(&sorted[hottest as usize]));
        let expect = 1.0 / ScrambledZipfian::ZETA_RANKS;
        assert!((share(sorted[hottest as usize]) - expect).abs() < 0.006);
        let first_half: u64 = sorted[..500].iter().sum();
        assert!((share(first_half) - 0.5).abs() < 0.1, "popular keys are spread");
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let top: u64 = sorted[..100].iter().sum();
        assert!((0.25..0.6).contains(&share(top)), "top tenth has {}", share(top));
    }

    #[test]
    fn latest_prefers_new_keys_and_follows_growth() {
        let mut latest = Latest::new(10);
        let counts = counts(&mut latest, 1_000);
        let newest = Zipfian::new(1_000, THETA).probability(0);
        assert!((share(counts[999]) - newest).abs() < 0.004);
        assert!(counts[999] > counts[998] && counts[998] > counts[900] && counts[900] > counts[0]);
    }

    #[test]
    fn hot_spots_get_their_share() {
        let counts = counts(&mut HotSpot::new(0.2, 0.8), 1_000);
        let hot: u64 = counts[..200].iter().sum();
        assert!((share(hot) - 0.8).abs() < 0.005, "{}", share(hot));
        assert!(counts[..200].iter().all(|n| n.abs_diff(800) < 160));
        assert!(counts[200..].iter().all(|n| n.abs_diff(50) < 40));
    }

    #[test]
    fn empty_parts_of_a_hot_spot_pass_their_share_on() {
        let mut rng = Rng::new(1);
        for (hot_keys, hot_operations) in [(0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.0, 0.0)] {
            let mut spot = HotSpot::new(hot_keys, hot_operations);
            assert!((0..100).all(|_| spot.next_key(&mut rng, 7) < 7));
        }
    }
}
