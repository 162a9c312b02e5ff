//! Random numbers: SplitMix64 to spread seeds, xoshiro256** to draw.
//!
//! Both are written out here because a seed in a report must repeat its run in ten years; a
//! library may change its streams. Neither is fit for secrets.

/// SplitMix64: one 64-bit word of state, every seed a good one. Steele, Lea and Flood's generator
/// with the finalizer constants of its reference implementation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Starts a stream.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits. The state visits every value once, so no output repeats within 2^64.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// xoshiro256**: 256 bits of state, period 2^256 - 1, the generator of all workloads. Blackman and
/// Vigna's algorithm, seeded through SplitMix64 as they recommend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Starts a stream. Unequal seeds give unrelated streams.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        let mut split = SplitMix64::new(seed);
        let state = [split.next_u64(), split.next_u64(), split.next_u64(), split.next_u64()];
        Self { state }
    }

    /// The stream of one of many parts (threads, phases) of a run: neither drawing from one nor
    /// adding another changes the rest.
    #[must_use]
    pub const fn part(seed: u64, part: u64) -> Self {
        let mut split = SplitMix64::new(part);
        Self::new(seed ^ split.next_u64())
    }

    /// The next 64 uniform bits.
    pub const fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A uniform number below `bound`, without bias: the high half of a product, with the short
    /// uneven stretch at the bottom rejected.
    ///
    /// # Panics
    ///
    /// If `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "an empty range has no member");
        let uneven = bound.wrapping_neg() % bound;
        loop {
            let product = self.next_u64() as u128 * bound as u128;
            if product as u64 >= uneven {
                return (product >> 64) as u64;
            }
        }
    }

    /// A uniform number in `0.0..1.0`, a multiple of 2^-53.
    pub const fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// True with this probability.
    pub const fn chance(&mut self, probability: f64) -> bool {
        self.next_f64() < probability
    }

    /// One element of a slice; `None` if it is empty.
    pub const fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { Some(&from[self.below(from.len() as u64) as usize]) }
    }

    /// Fills a buffer with uniform bytes, the same on every machine.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Puts a slice into a uniform random order.
    pub fn shuffle<T>(&mut self, slice: &mut [T]) {
        for i in (1..slice.len()).rev() {
            slice.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First outputs of the reference implementation for seed 1234567.
    #[test]
    fn split_mix_equals_its_reference() {
        let mut rng = SplitMix64::new(1_234_567);
        let expect = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
        ];
        assert_eq!(std::array::from_fn(|_| rng.next_u64()), expect);
    }

    /// First outputs of the reference implementation for the state 1, 2, 3, 4.
    #[test]
    fn xoshiro_equals_its_reference() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let expect = [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240];
        assert_eq!(std::array::from_fn(|_| rng.next_u64()), expect);
    }

    #[test]
    fn below_is_uniform_and_in_range() {
        for bound in [1, 2, 3, 7, 10, 1_000] {
            let mut rng = Rng::new(bound);
            let draws = 20_000 * bound.min(10);
            let mut counts = vec![0_u64; bound as usize];
            (0..draws).for_each(|_| counts[rng.below(bound) as usize] += 1);
            let expect = draws as f64 / bound as f64;
            let chi: f64 = counts.iter().map(|&n| (n as f64 - expect).powi(2) / expect).sum();
            let free = bound as f64 - 1.0;
            assert!(chi <= free + 5.0 * (2.0 * free).sqrt() + 5.0, "bound {bound}: chi {chi}");
        }
        assert!((0..100).all(|seed| Rng::new(seed).below(u64::MAX) < u64::MAX));
    }

    #[test]
    fn floats_lie_in_the_unit_interval() {
        let mut rng = Rng::new(1);
        let draws: Vec<_> = (0..100_000).map(|_| rng.next_f64()).collect();
        assert!(draws.iter().all(|f| (0.0..1.0).contains(f)));
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!((mean - 0.5).abs() < 0.005, "mean {mean}");
    }

    #[test]
    fn bits_are_balanced() {
        let mut rng = Rng::new(2);
        let mut ones = [0_u32; 64];
        for _ in 0..20_000 {
            let word = rng.next_u64();
            ones.iter_mut().enumerate().for_each(|(bit, n)| *n += (word >> bit & 1) as u32);
        }
        assert!(ones.iter().all(|&n| n.abs_diff(10_000) < 400), "{ones:?}");
    }

    #[test]
    fn parts_are_unrelated_and_repeatable() {
        let first = |seed, part| Rng::part(seed, part).next_u64();
        assert_eq!(first(1, 2), first(1, 2));
        let mut all: Vec<_> = (0..100).flat_map(|s| (0..100).map(move |p| first(s, p))).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 10_000);
    }

    #[test]
    fn fill_covers_every_byte_and_any_length() {
        for len in 0..40 {
            let mut buffer = vec![0; len];
            let mut seen = vec![0_u8; len];
            let mut rng = Rng::new(len as u64);
            for _ in 0..64 {
                rng.fill(&mut buffer);
                seen.iter_mut().zip(&buffer).for_each(|(seen, &byte)| *seen |= byte);
            }
            assert!(seen.iter().all(|&byte| byte == 255), "length {len}");
        }
    }

    #[test]
    fn shuffles_permute_uniformly() {
        let mut rng = Rng::new(4);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..24_000 {
            let mut order = [0, 1, 2, 3];
            rng.shuffle(&mut order);
            *counts.entry(order).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len(), 24);
        assert!(counts.values().all(|n| n.abs_diff(1_000) < 150), "{counts:?}");
    }

    #[test]
    fn picks_and_chances() {
        let mut rng = Rng::new(5);
        assert_eq!(rng.pick::<u8>(&[]), None);
        assert_eq!(rng.pick(&[7]), Some(&7));
        let hits = (0..100_000).filter(|_| rng.chance(0.2)).count();
        assert!(hits.abs_diff(20_000) < 700, "{hits}");
        assert!((0..1_000).all(|_| !rng.chance(0.0) && rng.chance(1.0)));
    }
}
