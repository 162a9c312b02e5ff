//! What DRAM knows of a region.

use std::collections::BTreeMap;

use holdfast_redundancy::Unsure;

use crate::bits::Bits;
use crate::side::{Kind, Places, RegionRecord};
use crate::why::Why;

/// A region that has storage in the data file.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) record: RegionRecord,
    /// Pages known to be behind: being covered, put off, or undecided.
    pub(crate) stale: Bits,
    /// Those of them to which a store was seen.
    pub(crate) observed: Bits,
    /// Pages that somebody said were written.
    pub(crate) marks: Bits,
    /// Writers may store to it and are tracked.
    pub(crate) admitted: bool,
    /// Its next report means nothing by itself: tracking has just begun while writers were there.
    pub(crate) fresh: bool,
    /// Why a page of it that differs proves nothing, if that is so.
    pub(crate) doubt: Option<Unsure>,
    /// A pass was cut off among the entries of these pages: the sum of all says nothing, that of
    /// the rest does.
    pub(crate) unfinished: Option<Bits>,
    /// The source vouched for it when the file was opened, and that is why it is not in doubt.
    pub(crate) relied: bool,
    /// The machine stopped and nothing had been synced: pages may be what they were a pass ago.
    pub(crate) thrown: bool,
    /// Why single pages are undecided, as far as it is known. Durable is that they are stale and
    /// not observed, and of their reasons what fits into the record.
    pub(crate) reasons: BTreeMap<u32, Unsure>,
    /// It was taken in, and what the side file has for it is of a pass that was cut off, or of a
    /// file that was longer once.
    pub(crate) strange: bool,
    /// A copy of its record is damaged.
    pub(crate) renew: bool,
    /// Damaged pages that were reported already.
    pub(crate) reported: Bits,
    /// When its writes were last taken.
    pub(crate) taken_ns: u64,
}

impl Region {
    pub(crate) fn new(pages: u32, now_ns: u64) -> Self {
        let record = RegionRecord {
            kind: Kind::Clean,
            generation: 0,
            meta: 0,
            rest: 0,
            pages,
            verified_ns: 0,
            covered_ns: 0,
            unusable: 0,
            why: Why::default(),
        };
        Self { strange: true, ..Self::found(record, now_ns) }
    }

    pub(crate) fn found(record: RegionRecord, now_ns: u64) -> Self {
        Self {
            record,
            stale: Bits::NONE,
            observed: Bits::NONE,
            marks: Bits::NONE,
            admitted: false,
            fresh: false,
            doubt: None,
            unfinished: None,
            relied: false,
            thrown: false,
            reasons: BTreeMap::new(),
            strange: false,
            renew: false,
            reported: Bits::NONE,
            taken_ns: now_ns,
        }
    }

    /// Pages known to have been stored to, without asking the source.
    pub(crate) fn known_dirty(&self) -> Bits {
        self.stale.and(self.observed).or(self.marks)
    }

    /// Pages that an earlier look could not decide.
    pub(crate) fn undecided(&self) -> Bits {
        self.stale.without(self.observed)
    }

    /// Why a page that could not be decided could not.
    pub(crate) fn reason(&self, inside: u32) -> Unsure {
        self.reasons.get(&inside).copied().unwrap_or(Unsure::Unobserved)
    }

    /// Has the record say why the pages are undecided that are by the bits in DRAM.
    pub(crate) fn tell_why(&mut self, number: u64, places: &Places) {
        self.record.why = places.why(number, self.undecided(), |inside| self.reason(inside));
    }

    pub(crate) const fn parity_usable(&self, stripe: u32) -> bool {
        self.record.unusable >> stripe & 1 == 0
    }
}
