//! The only source of chance in this crate: a 64-bit counter generator seeded per trial.
//!
//! The crate depends on no other workspace crate, so that a fault in a shared generator cannot
//! blind the model and the thing it judges at once.

/// A SplitMix64 stream: one add and three xor-shift-multiply rounds per number.
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: u64,
}

/// The finalizer of SplitMix64: a bijection on 64-bit words in which every input bit reaches
/// every output bit.
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rng {
    /// Starts a stream. Neighbouring seeds give unrelated streams because the seed is mixed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: mix(seed ^ 0x9E37_79B9_7F4A_7C15) }
    }

    /// The next 64 uniform bits.
    pub(crate) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// A number below `bound` (which must not be 0). The bias of the multiply-shift reduction is
    /// below 2^-32 for the small bounds used here.
    pub(crate) const fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "an empty range has no member");
        (((self.next() >> 32) * bound as u64) >> 32) as usize
    }

    /// True once in `n` calls on average; never for `n` = 0.
    pub(crate) const fn one_in(&mut self, n: usize) -> bool {
        n > 0 && self.below(n) == 0
    }

    /// True in `percent` of 100 calls on average.
    pub(crate) const fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One element of a non-empty slice.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
