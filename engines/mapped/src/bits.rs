//! Sets of pages of one region: 256 bits, the same in DRAM and on the medium.

use holdfast_layout::bytes::{get_u64, put_u64};

use crate::format::BITS_LEN;

/// A set of pages of one region, by their number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Bits([u64; 4]);

impl Bits {
    pub(crate) const NONE: Self = Self([0; 4]);

    /// The first `count` pages.
    pub(crate) fn first(count: u32) -> Self {
        let mut bits = Self::NONE;
        for (i, word) in bits.0.iter_mut().enumerate() {
            let here = count.saturating_sub(i as u32 * 64).min(64);
            *word = if here == 64 { u64::MAX } else { (1 << here) - 1 };
        }
        bits
    }

    /// `count` pages from `page` on.
    pub(crate) fn range(page: u32, count: u32) -> Self {
        Self::first(page.saturating_add(count)).without(Self::first(page))
    }

    pub(crate) fn one(page: u32) -> Self {
        let mut bits = Self::NONE;
        bits.insert(page);
        bits
    }

    pub(crate) const fn has(&self, page: u32) -> bool {
        self.0[page as usize / 64] >> (page % 64) & 1 == 1
    }

    pub(crate) const fn insert(&mut self, page: u32) {
        self.0[page as usize / 64] |= 1 << (page % 64);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    pub(crate) fn or(self, other: Self) -> Self {
        self.with(other, |a, b| a | b)
    }

    pub(crate) fn and(self, other: Self) -> Self {
        self.with(other, |a, b| a & b)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        self.with(other, |a, b| a & !b)
    }

    fn with(mut self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        for (a, b) in self.0.iter_mut().zip(other.0) {
            *a = f(*a, b);
        }
        self
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = u32> {
        self.0.into_iter().zip(0..).flat_map(|(word, at): (u64, u32)| {
            let rest = core::iter::successors(Some(word), |rest| Some(rest & rest.wrapping_sub(1)));
            rest.take_while(|rest| *rest != 0).map(move |rest| at * 64 + rest.trailing_zeros())
        })
    }

    pub(crate) fn encode(&self) -> [u8; BITS_LEN] {
        let mut bytes = [0; BITS_LEN];
        for (i, word) in self.0.iter().enumerate() {
            put_u64(&mut bytes, i * 8, *word);
        }
        bytes
    }

    /// From bytes of at least [`BITS_LEN`].
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        Self([0, 1, 2, 3].map(|i| get_u64(bytes, i * 8)))
    }
}

/// A set of pages that has none for most regions, and takes room where it has.
#[derive(Debug, Default)]
pub(crate) struct Rare(Option<Box<Bits>>);

impl Rare {
    pub(crate) fn get(&self) -> Bits {
        self.0.as_deref().copied().unwrap_or(Bits::NONE)
    }

    pub(crate) fn set(&mut self, pages: Bits) {
        self.0 = (!pages.is_empty()).then(|| Box::new(pages));
    }

    pub(crate) fn has(&self, page: u32) -> bool {
        self.get().has(page)
    }

    pub(crate) fn insert(&mut self, page: u32) {
        self.set(self.get().or(Bits::one(page)));
    }

    pub(crate) fn remove(&mut self, pages: Bits) {
        self.set(self.get().without(pages));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_what_their_pages_say() {
        for count in [0, 1, 63, 64, 65, 128, 255, 256] {
            let bits = Bits::first(count);
            assert_eq!(bits.count(), count);
            assert!(bits.iter().eq(0..count));
            assert_eq!(Bits::decode(&bits.encode()), bits);
        }
        let a = Bits::first(10);
        let b = Bits::one(9).or(Bits::one(200));
        assert!(a.and(b).iter().eq([9]));
        assert!(b.without(a).iter().eq([200]));
        assert!(Bits::range(60, 70).iter().eq(60..130));
        assert!(Bits::range(250, 9).iter().eq(250..256));
        assert!(Bits::NONE.is_empty() && !b.is_empty());
    }
}
