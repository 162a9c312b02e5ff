//! A small generator of numbers from a seed: the same seed makes the same choices.

/// A generator (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// From a seed, and a number that tells its uses apart.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut this = Self(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        this.next();
        this
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64 }
    }

    /// One of the items, if there are any.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }

    /// Fills bytes.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_choices() {
        let numbers = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            [rng.below(1000), rng.below(1000), rng.below(1000), rng.below(1)]
        };
        assert_eq!(numbers(7, 1), numbers(7, 1));
        assert_ne!(numbers(7, 1), numbers(7, 2));
        assert_ne!(numbers(7, 1), numbers(8, 1));
        assert_eq!(numbers(7, 1)[3], 0);
        assert_eq!(Rng::new(1, 1).pick::<u8>(&[]), None);
    }
}
