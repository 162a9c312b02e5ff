//! Why pages of a region are undecided, as the region's record keeps it from one opening to the
//! next: the reason of most, and up to three pages that have others. Where more have others, most
//! have none that is known.
//!
//! It is told of one set of pages, and a sum says which. Bits and record are not stored together:
//! where a crash came between, or a bit rotted, the set is another one, and nothing is told.

use holdfast_codes::crc32c;
use holdfast_layout::bytes::{get_u32, put_u32};
use holdfast_redundancy::Unsure;

use crate::bits::Bits;
use crate::format::{WHY_APART, WHY_LEN, WHY_MOST, WHY_OF};

/// Pages with a reason of their own.
const APART: usize = 3;

/// The reasons of a region's undecided pages, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Why {
    /// Sum of the set of pages this is told of.
    pub(crate) of: u32,
    /// The reason of those that are not apart; 0 is none that is known.
    most: u8,
    /// Pages of the region with other reasons; a reason of 0 is no page.
    apart: [(u8, u8); APART],
}

/// Sum of a set of a region's pages.
pub(crate) fn sum_of(seed: u32, region: u64, pages: Bits) -> u32 {
    crc32c(crc32c(seed, &region.to_le_bytes()), &pages.encode())
}

impl Why {
    /// What is told of `pages`.
    pub(crate) fn of(sum: u32, pages: Bits, reason: impl Fn(u32) -> Unsure) -> Self {
        if pages.is_empty() {
            return Self::default();
        }
        let code = |page| reason(page).code();
        let mut counts = [0_u32; u8::MAX as usize + 1];
        for page in pages.iter() {
            counts[usize::from(code(page))] += 1;
        }
        let most = (0..=u8::MAX).rev().max_by_key(|code| counts[usize::from(*code)]);
        let most = most.unwrap_or_default();
        let mut others = pages.iter().filter(|page| code(*page) != most);
        let mut apart = [(0, 0); APART];
        for (slot, page) in apart.iter_mut().zip(others.by_ref()) {
            *slot = (page as u8, code(page));
        }
        let most = if others.next().is_some() { 0 } else { most };
        Self { of: sum, most, apart }
    }

    /// The reason of one page of the set, if it is known. Only one that is a doubt is believed:
    /// nothing that is read makes a page look as if it were in order.
    pub(crate) fn reason(&self, inside: u32, at: u64) -> Option<Unsure> {
        let apart = self.apart.iter().find(|(page, why)| *why != 0 && u32::from(*page) == inside);
        let code = apart.map_or(self.most, |(_, why)| *why);
        Unsure::of_code(code, at).filter(|why| why.is_doubt())
    }

    pub(crate) fn encode(&self, record: &mut [u8]) {
        put_u32(record, WHY_OF, self.of);
        record[WHY_MOST] = self.most;
        for (at, (page, why)) in (WHY_APART..).step_by(2).zip(self.apart) {
            (record[at], record[at + 1]) = (page, why);
        }
    }

    pub(crate) fn decode(record: &[u8]) -> Self {
        let pair = |i: usize| (record[WHY_APART + 2 * i], record[WHY_APART + 2 * i + 1]);
        Self {
            of: get_u32(record, WHY_OF),
            most: record[WHY_MOST],
            apart: core::array::from_fn(pair),
        }
    }
}

const _: () = assert!(WHY_APART + 2 * APART == WHY_OF + WHY_LEN);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::RECORD_LEN;

    const LOST: Unsure = Unsure::TrackingLost;
    const CHANGED: Unsure = Unsure::ChangedWhileUnprotected;

    fn stored(pages: Bits, reason: impl Fn(u32) -> Unsure) -> Why {
        let mut record = [0; RECORD_LEN];
        Why::of(7, pages, reason).encode(&mut record);
        Why::decode(&record)
    }

    #[test]
    fn reasons_come_back_as_far_as_there_is_room() {
        let pages = Bits::range(3, 250);
        for others in 0..=4 {
            let reason = |page| if page < 3 + others { CHANGED } else { LOST };
            let why = stored(pages, reason);
            for page in pages.iter() {
                let told = why.reason(page, 0);
                let kept = others <= 3 || page < 6;
                assert_eq!(told, kept.then(|| reason(page)), "{others}: {page}");
            }
        }
        // Page 0 is no empty place, and an empty place is not page 0.
        let why = stored(Bits::first(2), |page| if page == 0 { CHANGED } else { LOST });
        assert_eq!((why.reason(0, 0), why.reason(1, 0)), (Some(CHANGED), Some(LOST)));
        let why = stored(Bits::first(2), |_| LOST);
        assert_eq!((why.reason(0, 0), why.reason(1, 0)), (Some(LOST), Some(LOST)));
        assert_eq!(stored(Bits::NONE, |_| LOST), Why::default());
    }

    #[test]
    fn only_doubts_are_believed() {
        for code in 0..=u8::MAX {
            let why = Why { of: 0, most: code, apart: [(5, code), (0, 0), (0, 0)] };
            for page in [4, 5] {
                let told = why.reason(page, 0);
                assert!(told.is_none_or(|why| why.is_doubt() && why.code() == code), "{code}");
                assert_eq!(told.is_some(), [2, 3, 4, 5, 6, 7, 9, 10].contains(&code), "{code}");
            }
        }
    }
}
