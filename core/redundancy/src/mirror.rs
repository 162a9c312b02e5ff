//! Mirrored records: one page in each side, the newer valid copy wins.
//!
//! The order of writes and what each crash leaves is told in `copies.rs`. One writer at a time:
//! the owner of a record serialises its writes and counts its sequence up.

use holdfast_layout::format::{MIRRORED_LEN, PAGE_LEN};
use holdfast_layout::mirrored::{self, MirroredPage};
use holdfast_layout::{Certify, Superblock};
use holdfast_pmem::{Medium, Site};

use crate::copies::{self, Against, CopyState as State, Newest, Places};
pub use crate::copies::{CopyState, MirrorSites};
use crate::error::{Error, Result};
use crate::verdict::Side;

/// Believing only copies whose sum is right.
const VERIFY: Site = Site::new("redundancy.mirror.verify");
/// The sum of a page.
const SUM: Site = Site::new("redundancy.mirror.sum");

/// Bytes a mirrored page has for its entries.
pub const BODY_LEN: usize = PAGE_LEN - MIRRORED_LEN;

/// Where the two copies of all mirrored pages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mirror {
    /// Seed of the pool's sums.
    pub seed: u32,
    /// Bytes of a side: side B starts there.
    pub side_len: u64,
    /// Copies kept: 1 or 2.
    pub copies: u32,
}

/// A mirrored page as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirrored {
    /// The newest valid copy.
    pub page: MirroredPage,
    /// State of the copy in side A.
    pub a: CopyState,
    /// State of the copy in side B.
    pub b: CopyState,
}

impl Mirrored {
    /// The side whose copy is damaged, if one is: an event is due.
    #[must_use]
    pub const fn damaged(&self) -> Option<Side> {
        damaged(self.a, self.b)
    }

    /// Whether one copy has to be written again from the other.
    #[must_use]
    pub const fn needs_heal(&self) -> bool {
        self.a.needs_heal() || self.b.needs_heal()
    }
}

pub(crate) const fn damaged(a: CopyState, b: CopyState) -> Option<Side> {
    match (a.is_damaged(), b.is_damaged()) {
        (true, _) => Some(Side::A),
        (false, true) => Some(Side::B),
        (false, false) => None,
    }
}

impl Mirror {
    /// The mirror of the pool `superblock` describes.
    #[must_use]
    pub fn of(superblock: &Superblock) -> Self {
        Self { seed: superblock.seed(), side_len: superblock.side_len, copies: superblock.copies }
    }

    /// Offset into the pool of the copy of `place` in `side`; `None` for side B of a pool with
    /// one copy.
    #[must_use]
    pub fn at(&self, side: Side, place: u64) -> Option<u64> {
        match side {
            Side::A => Some(place),
            Side::B if self.copies >= 2 => self.side_len.checked_add(place),
            Side::B => None,
        }
    }

    fn places(&self, place: u64) -> Places {
        Places { a: place, b: self.at(Side::B, place) }
    }

    fn find<M: Medium>(&self, m: &M, place: u64, kind: u32) -> Newest<MirroredPage> {
        let certify = Certify::when(m.enabled(VERIFY));
        copies::read(m, self.places(place), |page| {
            let page = mirrored::decode(self.seed, place, kind, page, certify)?;
            Some((page.sequence, page))
        })
    }

    /// Reads the page of `kind` at `place` of the sides: the newest valid copy. Writes nothing.
    ///
    /// # Errors
    /// [`Error::BothCopies`] if neither copy is valid.
    pub fn read<M: Medium>(&self, m: &M, place: u64, kind: u32) -> Result<Mirrored> {
        let Newest { value, a, b } = self.find(m, place, kind);
        match value {
            Some(page) => Ok(Mirrored { page, a, b }),
            None => Err(Error::BothCopies { place, kind, a, b }),
        }
    }

    /// Writes the good copy of a page just read over the stale or damaged one and clears poison.
    /// Durable on return. Answers which sides were written.
    ///
    /// # Errors
    /// [`Error::Media`] if a page stays bad: the pool runs on one copy of this record, and the
    /// record must not be written until its frame is relocated.
    pub fn heal<M: Medium>(
        &self,
        m: &M,
        place: u64,
        kind: u32,
        found: &Mirrored,
        sites: MirrorSites,
    ) -> Result<Vec<Side>> {
        let page = &found.page;
        let bytes = self.encode(m, (place, kind), (page.sequence, page.count), &page.body);
        copies::heal(m, self.places(place), (found.a, found.b), &bytes, sites.heal)
    }

    /// Replaces the page of `kind` at `place`: side B, drain, side A, drain. `sequence` is above
    /// that of every earlier write; `count` entries are in `body`, at most [`BODY_LEN`] bytes.
    /// Answers the sides whose page had been bad and was cleared by it.
    ///
    /// # Errors
    /// [`Error::Media`] if a copy cannot be written; then the other one is valid, old or new.
    /// [`Error::Sync`]: the pool must not be written any more.
    #[expect(clippy::too_many_arguments, reason = "the header of the page, field by field")]
    pub fn write<M: Medium>(
        &self,
        m: &M,
        place: u64,
        kind: u32,
        sequence: u64,
        count: u32,
        body: &[u8],
        sites: MirrorSites,
    ) -> Result<Vec<Side>> {
        self.write_against(m, (place, kind), (sequence, count), body, sites, Against::Kind)
    }

    pub(crate) fn write_against<M: Medium>(
        &self,
        m: &M,
        (place, kind): (u64, u32),
        (sequence, count): (u64, u32),
        body: &[u8],
        sites: MirrorSites,
        against: Against,
    ) -> Result<Vec<Side>> {
        if body.len() > BODY_LEN {
            return Err(Error::Table {
                what: "mirrored record",
                place,
                expected: "entries that fit its page",
                found: body.len() as u64,
            });
        }
        let Newest { value, a, b } = self.find(m, place, kind);
        let mut cleared = Vec::new();
        if let (Some(page), true, State::Good(_)) = (value, a.needs_heal(), b) {
            // Side B is about to be overwritten and is the only copy of what is valid now.
            cleared = self.heal(m, place, kind, &Mirrored { page, a, b }, sites)?;
        }
        let page = self.encode(m, (place, kind), (sequence, count), body);
        cleared.extend(copies::write(m, self.places(place), &page, sites, against)?);
        Ok(cleared)
    }

    /// A page as it is stored.
    fn encode<M: Medium>(
        &self,
        m: &M,
        (place, kind): (u64, u32),
        (sequence, count): (u64, u32),
        body: &[u8],
    ) -> Vec<u8> {
        let mut page = mirrored::encode(self.seed, place, kind, sequence, count, body);
        if !m.enabled(SUM) {
            page[..4].fill(0);
        }
        page
    }
}
