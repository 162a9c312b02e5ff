//! A small seeded generator. Everything random in this crate comes from a caller's seed.

/// Scrambles 64 bits so that near inputs give unrelated outputs.
pub(crate) const fn scramble(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Share of one 8-byte word in a fingerprint: zero for a zero word, so that growth by zeroes
/// changes nothing. Shares of all words are combined by exclusive or, hence the fingerprint of a
/// patched image costs only its patches.
pub(crate) const fn share(word: u64, value: u64) -> u64 {
    if value == 0 {
        return 0;
    }
    scramble(scramble(word.wrapping_add(GOLDEN)).wrapping_add(value))
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A counter-based generator: state is one word, any seed will do.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A stream of its own for each pair of seed and stream number.
    pub(crate) const fn new(seed: u64, stream: u64) -> Self {
        Self(scramble(seed.wrapping_add(GOLDEN)) ^ scramble(stream.wrapping_mul(GOLDEN)))
    }

    /// The next 64 bits.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        scramble(self.0)
    }

    /// A number below `bound` (which is not zero).
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        // The bias is below bound / 2^64: of no matter for sampling.
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            [rng.next(), rng.next(), rng.next()]
        };
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
    }

    #[test]
    fn below_reaches_every_value_and_no_other() {
        let mut rng = Rng::new(1, 1);
        let mut seen = [0_u32; 5];
        for _ in 0..1000 {
            seen[rng.below(5) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| n > 100), "{seen:?}");
    }

    #[test]
    fn share_tells_word_and_value_apart() {
        assert_eq!(share(3, 0), 0);
        assert_ne!(share(3, 5), share(5, 3));
        assert_ne!(share(3, 5), share(4, 5));
    }
}
