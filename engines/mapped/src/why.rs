//! Why pages of a region are undecided, as the region's record keeps it from one opening to the
//! next: the reason of most, and up to three pages that have others. Where more have others, most
//! have none that is known.
//!
//! A pass that is cut off leaves pages undecided that it did not look at any more. Their reason has
//! a mark: they differ or not, and nobody was told of them yet.
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
/// Of a reason of pages that were not told yet.
const PRESUMED: u8 = 0x80;

/// Why a page is undecided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) why: Unsure,
    /// An event told of it.
    pub(crate) told: bool,
}

impl Reason {
    const fn code(self) -> u8 {
        if self.told { self.why.code() } else { self.why.code() | PRESUMED }
    }
}

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
    pub(crate) fn of(sum: u32, pages: Bits, reason: impl Fn(u32) -> Reason) -> Self {
        if pages.is_empty() {
            return Self::default();
        }
        let code = |page| reason(page).code();
        let mut counts = [0_u32; u8::MAX as usize + 1];
        for page in pages.iter() {
            counts[usize::from(code(page))] += 1;
        }
        // The one reason that decides: without it, such a page may look right.
        let heavy = |code: u8| code & !PRESUMED == Unsure::MemoryFailed.code();
        let many = |code: &u8| heavy(*code) && counts[usize::from(*code)] > APART as u32;
        let most = (0..=u8::MAX).rev().max_by_key(|code| counts[usize::from(*code)]);
        let most = (0..=u8::MAX).find(many).or(most).unwrap_or_default();
        let others = |which: bool| {
            pages.iter().filter(move |page| code(*page) != most && heavy(code(*page)) == which)
        };
        let mut others = others(true).chain(others(false));
        let mut apart = [(0, 0); APART];
        for (slot, page) in apart.iter_mut().zip(others.by_ref()) {
            *slot = (page as u8, code(page));
        }
        let most = if others.next().is_some() && !heavy(most) { 0 } else { most };
        Self { of: sum, most, apart }
    }

    /// The reason of one page of the set, if it is known. Only one that is a doubt is believed:
    /// nothing that is read makes a page look as if it were in order.
    pub(crate) fn reason(&self, inside: u32, at: u64) -> Option<Reason> {
        let apart = self.apart.iter().find(|(page, why)| *why != 0 && u32::from(*page) == inside);
        let code = apart.map_or(self.most, |(_, why)| *why);
        let why = Unsure::of_code(code & !PRESUMED, at).filter(|why| why.is_doubt())?;
        Some(Reason { why, told: code & PRESUMED == 0 })
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

    const LOST: Reason = Reason { why: Unsure::TrackingLost, told: true };
    const CHANGED: Reason = Reason { why: Unsure::ChangedWhileUnprotected, told: true };

    fn stored(pages: Bits, reason: impl Fn(u32) -> Reason) -> Why {
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
        // The same reason, told of some only.
        let presumed = Reason { told: false, ..LOST };
        let why = stored(pages, |page| if page < 5 { LOST } else { presumed });
        assert_eq!((why.reason(4, 0), why.reason(5, 0)), (Some(LOST), Some(presumed)));
        // Page 0 is no empty place, and an empty place is not page 0.
        let why = stored(Bits::first(2), |page| if page == 0 { CHANGED } else { LOST });
        assert_eq!((why.reason(0, 0), why.reason(1, 0)), (Some(CHANGED), Some(LOST)));
        let why = stored(Bits::first(2), |_| LOST);
        assert_eq!((why.reason(0, 0), why.reason(1, 0)), (Some(LOST), Some(LOST)));
        assert_eq!(stored(Bits::NONE, |_| LOST), Why::default());
    }

    /// A page that lost what was stored there is told from one that agrees by its reason alone.
    #[test]
    fn failed_memory_finds_room_before_others() {
        let failed = Reason { why: Unsure::MemoryFailed, told: true };
        let kinds =
            [LOST, CHANGED, Reason { told: false, ..LOST }, Reason { told: false, ..CHANGED }];
        for (few, many) in [(1, 200), (3, 200), (4, 200), (100, 9)] {
            let reason = |page: u32| match page {
                page if page >= 256 - few => failed,
                page => kinds[page as usize % kinds.len()],
            };
            let pages = Bits::range(256 - few - many.min(256 - few), 256);
            let why = stored(pages, reason);
            for page in pages.iter().filter(|page| reason(*page) == failed) {
                assert_eq!(why.reason(page, 0), Some(failed), "{few}: {page}");
            }
        }
    }

    #[test]
    fn only_doubts_are_believed() {
        for code in 0..=u8::MAX {
            let why = Why { of: 0, most: code, apart: [(5, code), (0, 0), (0, 0)] };
            for page in [4, 5] {
                let told = why.reason(page, 0);
                assert!(told.is_none_or(|it| it.why.is_doubt() && it.code() == code), "{code}");
                let known = [2, 3, 4, 5, 6, 7, 9, 10, 11].contains(&(code & !PRESUMED));
                assert_eq!(told.is_some(), known, "{code}");
            }
        }
    }
}
