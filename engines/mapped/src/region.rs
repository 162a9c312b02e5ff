//! What DRAM knows of a region.

use std::collections::BTreeMap;

use holdfast_redundancy::Unsure;

use crate::bits::{Bits, Rare};
use crate::busy::Busy;
use crate::side::{Kind, Places, RegionRecord};
use crate::why::{Reason, Why};

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
    pub(crate) unfinished: Option<Box<Bits>>,
    /// One was, and no sum of them says anything: there were crashes in the middle of two.
    pub(crate) torn: bool,
    /// The source vouched for it when the file was opened, and that is why it is not in doubt.
    pub(crate) relied: bool,
    /// The machine stopped and nothing had been synced: pages may be what they were a pass ago.
    pub(crate) thrown: bool,
    /// Why single pages are undecided, as far as it is known. Durable is that they are stale and
    /// not observed, and of their reasons what fits into the record.
    pub(crate) reasons: BTreeMap<u32, Unsure>,
    /// Pages of those that a pass took to be undecided and was cut off before it looked: they are
    /// not told yet.
    pub(crate) presumed: Rare,
    /// It was taken in, and what the side file has for it is of a pass that was cut off, or of a
    /// file that was longer once.
    pub(crate) strange: bool,
    /// A copy of its record is damaged.
    pub(crate) renew: bool,
    /// Pages that the source tells of for what we did ourselves: it failed when that was to be
    /// taken from it. What it says of them counts for nothing until it is taken, nor can it say
    /// whether the program stored there as well: what agrees with its entry is good, and all else
    /// in doubt.
    pub(crate) ours: Rare,
    /// Damaged pages that were reported already.
    pub(crate) reported: Rare,
    /// When it was verified, or that parity was made anew, is not on record yet.
    pub(crate) verified: bool,
    /// When its writes were last taken.
    pub(crate) taken_ns: u64,
    /// Whether passes leave it open.
    pub(crate) busy: Busy,
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
            torn: false,
            relied: false,
            thrown: false,
            reasons: BTreeMap::new(),
            presumed: Rare::default(),
            strange: false,
            renew: false,
            ours: Rare::default(),
            reported: Rare::default(),
            verified: false,
            taken_ns: now_ns,
            busy: Busy::default(),
        }
    }

    /// Pages known to have been stored to, without asking the source.
    pub(crate) fn known_dirty(&self) -> Bits {
        self.stale.and(self.observed).or(self.marks)
    }

    /// Pages of which the source cannot say whether the program stored to them. Before writers are
    /// let in nobody has.
    pub(crate) fn unasked(&self) -> Bits {
        if self.admitted { self.ours.get() } else { Bits::NONE }
    }

    /// Whether parity denied that a page is what was covered; not of what a pass that was cut off
    /// only took to be so.
    pub(crate) fn is_denied(&self, inside: u32) -> bool {
        self.reason(inside) == Unsure::SumsDamaged && !self.presumed.has(inside)
    }

    /// Pages that an earlier look could not decide.
    pub(crate) fn undecided(&self) -> Bits {
        self.stale.without(self.observed)
    }

    /// Why a page that could not be decided could not.
    pub(crate) fn reason(&self, inside: u32) -> Unsure {
        self.reasons.get(&inside).copied().unwrap_or(Unsure::Unobserved)
    }

    /// Whether it was told that a page is undecided.
    pub(crate) fn is_told(&self, inside: u32) -> bool {
        self.reasons.contains_key(&inside) && !self.presumed.has(inside)
    }

    /// A page is not undecided any more.
    pub(crate) fn forget_reason(&mut self, inside: u32) {
        self.reasons.remove(&inside);
        self.presumed.remove(Bits::one(inside));
    }

    /// Has the record say why `pages` are undecided, and which of them were not told; those of
    /// which nothing is known are so for the reason `other`.
    pub(crate) fn tell_why(&mut self, number: u64, places: &Places, pages: Bits, other: Unsure) {
        self.record.why = places.why(number, pages, |inside| Reason {
            why: self.reasons.get(&inside).copied().unwrap_or(other),
            told: self.is_told(inside),
        });
    }

    pub(crate) const fn parity_usable(&self, stripe: u32) -> bool {
        self.record.unusable >> stripe & 1 == 0
    }
}
