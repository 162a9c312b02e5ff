//! A mirrored record with one owner: it knows where it is and counts its sequence.
//!
//! The tables and notes of a pool (regions, relocations, repair intent, scrub progress) are each
//! one page that is always rewritten whole; this is what they have in common.

use holdfast_layout::mirrored::MirroredPage;
use holdfast_pmem::Medium;

use crate::copies::Against;
use crate::error::Result;
use crate::mirror::{CopyState, Mirror, MirrorSites, Mirrored};
use crate::verdict::Side;

/// The owner's handle of one mirrored record.
#[derive(Debug)]
pub struct Record {
    mirror: Mirror,
    place: u64,
    kind: u32,
    sites: MirrorSites,
    /// What the record was when it was last read or written.
    found: Mirrored,
    /// The last write failed: of either copy nobody knows whether it is the new one.
    unfinished: bool,
    cleared: Vec<Side>,
}

/// What a second look at a record found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Again {
    /// Sides whose copy was damaged.
    pub damaged: Vec<Side>,
    /// Sides that were written from the other one: of those that were damaged, and older ones.
    pub healed: Vec<Side>,
    /// What is there is what was last read or written.
    pub known: bool,
}

impl Record {
    /// A record that is not on the medium yet: its first [`write`](Self::write) puts it there.
    #[must_use]
    pub fn create(mirror: Mirror, place: u64, kind: u32, sites: MirrorSites) -> Self {
        let page = MirroredPage { sequence: 0, count: 0, body: Vec::new() };
        let found = Mirrored { page, a: CopyState::None, b: CopyState::None };
        Self { mirror, place, kind, sites, found, unfinished: false, cleared: Vec::new() }
    }

    /// Reads the record of `kind` at `place` of the sides. Writes nothing.
    ///
    /// # Errors
    /// [`Error::BothCopies`](crate::Error::BothCopies) if neither copy is valid.
    pub fn load<M: Medium>(
        m: &M,
        mirror: Mirror,
        place: u64,
        kind: u32,
        sites: MirrorSites,
    ) -> Result<Self> {
        let found = mirror.read(m, place, kind)?;
        Ok(Self { mirror, place, kind, sites, found, unfinished: false, cleared: Vec::new() })
    }

    /// The newest valid page, as it was last read or written.
    #[must_use]
    pub const fn page(&self) -> &MirroredPage {
        &self.found.page
    }

    /// Where the record is in the sides.
    #[must_use]
    pub const fn place(&self) -> u64 {
        self.place
    }

    /// The side whose copy was damaged when the record was read, if one was.
    #[must_use]
    pub const fn damaged(&self) -> Option<Side> {
        self.found.damaged()
    }

    /// Whether a copy was damaged or stale when the record was read.
    #[must_use]
    pub const fn needs_heal(&self) -> bool {
        self.found.needs_heal()
    }

    /// Reads both copies again, and writes the newest over one that does not verify or is older. A
    /// copy that verifies is left alone: it may be the only one.
    ///
    /// # Errors
    /// Anything but a page that stays bad: that is told by what was not healed.
    pub fn look_again<M: Medium>(&self, m: &M) -> Result<Again> {
        let Ok(found) = self.mirror.read(m, self.place, self.kind) else {
            let kept = [Side::A, Side::B].into_iter();
            let kept = kept.filter(|side| self.mirror.at(*side, self.place).is_some());
            return Ok(Again { damaged: kept.collect(), healed: Vec::new(), known: false });
        };
        let healed = match self.mirror.heal(m, self.place, self.kind, &found, self.sites) {
            Err(crate::Error::Media(_)) => Vec::new(),
            healed => healed?,
        };
        // What was written was as short as it is; what is read is a whole page of it.
        let MirroredPage { sequence, count, body } = &self.found.page;
        let same = (found.page.sequence, found.page.count) == (*sequence, *count);
        let known = !self.unfinished && same && found.page.body.starts_with(body);
        Ok(Again { damaged: found.damaged().into_iter().collect(), healed, known })
    }

    /// Writes the good copy over the damaged or stale one, if [`needs_heal`](Self::needs_heal).
    /// Answers which sides were written.
    ///
    /// # Errors
    /// [`Error::Media`](crate::Error::Media) if a page stays bad.
    pub fn heal<M: Medium>(&mut self, m: &M) -> Result<Vec<Side>> {
        let healed = self.mirror.heal(m, self.place, self.kind, &self.found, self.sites)?;
        self.settle();
        Ok(healed)
    }

    /// Replaces the record with `count` entries in `body`: side B, drain, side A, drain.
    ///
    /// # Errors
    /// [`Error::Media`](crate::Error::Media) if a copy cannot be written: the record is then the
    /// old or the new one; [`Error::Sync`](crate::Error::Sync): stop writing to the pool.
    pub fn write<M: Medium>(&mut self, m: &M, count: u32, body: &[u8]) -> Result<()> {
        self.write_against(m, count, body, Against::Kind)
    }

    /// As [`write`](Self::write), and each copy survives the loss of power before the next is
    /// stored, in whatever cache the medium keeps them.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_through<M: Medium>(&mut self, m: &M, count: u32, body: &[u8]) -> Result<()> {
        self.write_against(m, count, body, Against::Power)
    }

    fn write_against<M: Medium>(
        &mut self,
        m: &M,
        count: u32,
        body: &[u8],
        against: Against,
    ) -> Result<()> {
        let sequence = self.found.page.sequence + 1;
        // Counted up even if the write fails: the failed one may be on the medium.
        self.found.page.sequence = sequence;
        self.unfinished = true;
        let Self { place, kind, sites, .. } = *self;
        let (which, what) = ((place, kind), (sequence, count));
        let cleared = self.mirror.write_against(m, which, what, body, sites, against)?;
        self.cleared.extend(cleared);
        self.found.page.count = count;
        self.found.page.body = body.to_vec();
        self.unfinished = false;
        self.settle();
        Ok(())
    }

    /// Sides whose page had been bad and was cleared by a write since the last call.
    pub fn take_cleared(&mut self) -> Vec<Side> {
        core::mem::take(&mut self.cleared)
    }

    /// Both copies are known to be the same.
    fn settle(&mut self) {
        let good = CopyState::Good(self.found.page.sequence);
        self.found.a = good;
        self.found.b = if self.mirror.copies >= 2 { good } else { CopyState::None };
    }
}
