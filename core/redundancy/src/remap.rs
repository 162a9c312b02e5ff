//! Relocation: a frame whose page stays bad is served from a spare frame from then on.
//!
//! # Life of a relocation
//!
//! The caller keeps everybody from writing to the frame (it holds all of its columns).
//!
//! 1. the superblock gets the feature bit, if this is the first relocation of the pool; the table
//!    is rewritten as it is: if its own pages are bad, that shows before anything depends on them
//! 2. the good bytes of the whole frame are stored in a free spare frame. **Drain** (a sync of the
//!    file on [`MediumKind::File`]); what was stored is read back and compared by sum
//! 3. the table with the new entry is written to side B, **drain**, side A, **drain**
//! 4. the medium maps the frame to the spare
//!
//! | crash | found at the next open |
//! |---|---|
//! | in 1 or 2 | the old mapping; nobody refers to the spare; the bad page is found again |
//! | in 3, side B torn | the old mapping, from side A |
//! | in 3 after the first drain, or later | the new mapping; the spare is complete since 2 |
//!
//! Both mappings are valid throughout, because nobody writes to the frame in between.
//!
//! The first pages of both sides cannot be relocated: they lead to the table.

use holdfast_codes::crc32c;
use holdfast_layout::format::{INCOMPATIBLE_REMAP, KIND_REMAP, PAGE_LEN, REMAP_PAGE, REMAPS_MAX};
use holdfast_layout::remap::{decode, encode};
use holdfast_layout::{Certify, Region, RegionKind, Remap, Superblock};
use holdfast_pmem::{Medium, MediumKind, Site};

use crate::error::{Error, Result};
use crate::mirror::{Mirror, MirrorSites};
use crate::record::Record;
use crate::superblock::write_superblock;
use crate::verdict::Side;

const SITES: MirrorSites = MirrorSites {
    b: Site::new("redundancy.remap.b"),
    drain_b: Site::new("redundancy.remap.drain-b"),
    a: Site::new("redundancy.remap.a"),
    drain_a: Site::new("redundancy.remap.drain-a"),
    clear: Site::new("redundancy.remap.clear"),
    heal: Site::new("redundancy.remap.heal"),
};
const COPY: Site = Site::new("redundancy.remap.copy");
const COPY_HEAL: Site = Site::new("redundancy.remap.heal-copy");
const COPY_DRAIN: Site = Site::new("redundancy.remap.drain-copy");
const COPY_SYNC: Site = Site::new("redundancy.remap.sync-copy");
const COPY_VERIFY: Site = Site::new("redundancy.remap.verify-copy");
const COPIED: Site = Site::new("redundancy.remap.copied");
const RECORDED: Site = Site::new("redundancy.remap.recorded");

/// First byte of a side that is not needed to find the table.
const MOVABLE: u64 = REMAP_PAGE + PAGE_LEN as u64;

/// Which frames are relocated, and which spare frames are left.
#[derive(Debug)]
pub struct RemapTable {
    record: Record,
    /// Bytes of a frame.
    frame: u64,
    side_len: u64,
    /// Runs of spare frames: first byte and end, whole frames.
    spares: Vec<(u64, u64)>,
    entries: Vec<Remap>,
    /// Spare frames that turned out bad since the pool was opened.
    bad: Vec<u64>,
    /// Sides of the superblock that a relocation found bad and cleared.
    superblock_cleared: Vec<Side>,
}

impl RemapTable {
    /// Writes the table of a new pool: nothing is relocated.
    ///
    /// # Errors
    /// As [`Record::write`].
    pub fn create<M: Medium>(m: &M, superblock: &Superblock, regions: &[Region]) -> Result<Self> {
        let mirror = Mirror::of(superblock);
        let mut record = Record::create(mirror, REMAP_PAGE, KIND_REMAP, SITES);
        record.write(m, 0, &[])?;
        Ok(Self::with(record, superblock, regions, Vec::new()))
    }

    /// Reads the table, before any access to bytes that may be relocated. Writes nothing and maps
    /// nothing: [`apply`](Self::apply) does.
    ///
    /// # Errors
    /// [`Error::BothCopies`]; [`Error::Table`] if it moves something that is not a frame, cannot
    /// be moved, or not to a spare frame.
    pub fn load<M: Medium>(m: &M, superblock: &Superblock, regions: &[Region]) -> Result<Self> {
        let mirror = Mirror::of(superblock);
        let record = Record::load(m, mirror, REMAP_PAGE, KIND_REMAP, SITES)?;
        let page = record.page();
        let fail = |expected, found| {
            Err(Error::Table { what: "remap table", place: REMAP_PAGE, expected, found })
        };
        let Some(entries) = decode(&page.body, page.count, superblock.frame, superblock.size)
        else {
            return fail("different whole frames of the pool", page.count.into());
        };
        let this = Self::with(record, superblock, regions, entries);
        for entry in &this.entries {
            if !this.is_spare(entry.physical) {
                return fail("spare frames as new places", entry.physical);
            }
            if this.unmovable(entry.frame).is_some() {
                return fail("frames that can be relocated", entry.frame);
            }
        }
        Ok(this)
    }

    fn with(
        record: Record,
        superblock: &Superblock,
        regions: &[Region],
        entries: Vec<Remap>,
    ) -> Self {
        let (frame, side_len) = (superblock.frame, superblock.side_len);
        let (spares, bad, superblock_cleared) = (Vec::new(), Vec::new(), Vec::new());
        let mut this = Self { record, frame, side_len, spares, entries, bad, superblock_cleared };
        this.set_regions(regions);
        this
    }

    /// Takes note of the pool's regions: after growth there may be more spare frames.
    pub fn set_regions(&mut self, regions: &[Region]) {
        let frame = self.frame;
        let whole = |r: &Region| {
            (r.start.next_multiple_of(frame), r.start.saturating_add(r.len) / frame * frame)
        };
        let spare = regions.iter().filter(|r| r.kind == RegionKind::Spare);
        self.spares = spare.map(whole).filter(|(first, end)| first < end).collect();
    }

    /// The record, to heal its copies.
    pub const fn record(&mut self) -> &mut Record {
        &mut self.record
    }

    /// Sides whose page of the superblock a relocation found bad and cleared since the last call.
    pub fn take_superblock_cleared(&mut self) -> Vec<Side> {
        core::mem::take(&mut self.superblock_cleared)
    }

    /// The relocated frames.
    #[must_use]
    pub fn entries(&self) -> &[Remap] {
        &self.entries
    }

    /// Spare frames the pool has, and how many of them are neither used nor known bad.
    #[must_use]
    pub fn spares(&self) -> (u64, u64) {
        let all: u64 = self.spares.iter().map(|(first, end)| (end - first) / self.frame).sum();
        let bad = self.bad.iter().filter(|at| self.entries.iter().all(|e| e.physical != **at));
        (all, all.saturating_sub((self.entries.len() + bad.count()) as u64))
    }

    fn is_spare(&self, at: u64) -> bool {
        let inside = |(first, end): &(u64, u64)| (*first..*end).contains(&at);
        at.is_multiple_of(self.frame) && self.spares.iter().any(inside)
    }

    /// The first spare frame that is neither used nor known bad; one that the platform lists as
    /// bad only if there is no other, because storing to it may clear it.
    fn free_spare(&self, listed: &[(u64, u64)]) -> Option<u64> {
        let step = usize::try_from(self.frame).ok()?;
        let unlisted = |at: &u64| {
            listed.iter().all(|(bad, n)| bad.saturating_add(*n) <= *at || *bad >= at + self.frame)
        };
        let free = || {
            let all = self.spares.iter().flat_map(|(first, end)| (*first..*end).step_by(step));
            all.filter(|at| self.is_free(*at))
        };
        free().find(unlisted).or_else(|| free().next())
    }

    /// Whether the frame at `frame` can be moved, as far as can be told without trying; `listed`
    /// are the ranges that the medium lists as bad.
    ///
    /// # Errors
    /// [`Error::Unmovable`]; [`Error::NoSpare`].
    pub fn can_move(&self, frame: u64, listed: &[(u64, u64)]) -> Result<()> {
        if let Some(reason) = self.unmovable(frame) {
            return Err(Error::Unmovable { frame, reason });
        }
        match self.free_spare(listed) {
            Some(_) => Ok(()),
            None => Err(Error::NoSpare { frame, spares: self.spares().0 }),
        }
    }

    /// Maps every relocated frame to its new place.
    ///
    /// # Errors
    /// [`Error::Media`] if the medium cannot map one.
    pub fn apply<M: Medium>(&self, m: &M) -> Result<()> {
        for entry in &self.entries {
            m.remap(entry.frame, entry.physical, self.frame)?;
        }
        Ok(())
    }

    /// The first byte of the frame that the byte at `at` is in.
    #[must_use]
    pub const fn frame_of(&self, at: u64) -> u64 {
        at / self.frame * self.frame
    }

    /// Moves the frame at `frame` to a spare one. `contents` fills in the right bytes of the page
    /// at the offset it is given (rebuilt for the bad pages, read for the others); it may be asked
    /// twice for the same page. Nobody may write to the frame meanwhile. If the frame was moved
    /// before, it moves on.
    ///
    /// # Errors
    /// What `contents` answers; [`Error::Unmovable`]; [`Error::NoSpare`] (nothing was written if
    /// none was left to begin with); [`Error::Media`] if the table cannot be written or the frame
    /// not be mapped; [`Error::Sync`]. The old mapping stays
    /// in force, now and at the next open. Only after [`Error::InDoubt`] the next open may find
    /// either: the pool must not be written any more.
    pub fn relocate<M: Medium, E: From<Error>>(
        &mut self,
        m: &M,
        superblock: &mut Superblock,
        frame: u64,
        mut contents: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Remap, E> {
        let listed = m.bad_ranges();
        self.can_move(frame, &listed)?;
        if superblock.incompatible & INCOMPATIBLE_REMAP == 0 {
            superblock.incompatible |= INCOMPATIBLE_REMAP;
            self.superblock_cleared.extend(write_superblock(m, superblock)?);
        }
        self.write(m)?;
        loop {
            let Some(physical) = self.free_spare(&listed) else {
                return Err(Error::NoSpare { frame, spares: self.spares().0 }.into());
            };
            if self.fill(m, frame, physical, &mut contents)? {
                m.step(COPIED);
                let entry = Remap { frame, physical };
                self.record_and_map(m, entry)?;
                return Ok(entry);
            }
            self.bad.push(physical);
        }
    }

    /// Stores the frame's contents in the spare frame at `physical`; false if that is bad too.
    fn fill<M: Medium, E: From<Error>>(
        &self,
        m: &M,
        frame: u64,
        physical: u64,
        contents: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let pages = || (0..self.frame).step_by(PAGE_LEN);
        let mut page = vec![0; PAGE_LEN];
        let mut stored = 0;
        for offset in pages() {
            contents(frame + offset, &mut page)?;
            stored = crc32c(stored, &page);
            if m.put(COPY, physical + offset, &page).is_err()
                && m.heal(COPY_HEAL, physical + offset, &page).is_err()
            {
                return Ok(false);
            }
        }
        if m.kind() == MediumKind::File {
            m.sync(COPY_SYNC).map_err(Error::Sync)?;
        } else {
            m.drain(COPY_DRAIN);
        }
        let mut found = 0;
        for offset in pages() {
            if m.read(physical + offset, &mut page).is_err() {
                return Ok(false);
            }
            found = crc32c(found, &page);
        }
        Ok(Certify::when(m.enabled(COPY_VERIFY)).agrees(stored, found))
    }

    fn record_and_map<M: Medium>(&mut self, m: &M, entry: Remap) -> Result<()> {
        let before = self.entries.clone();
        self.entries.retain(|e| e.frame != entry.frame);
        self.entries.push(entry);
        let done = self.write(m).and_then(|()| {
            m.step(RECORDED);
            Ok(m.remap(entry.frame, entry.physical, self.frame)?)
        });
        // A spare that was moved away from, or could not be moved to, is not used again.
        let old = before.iter().find(|e| e.frame == entry.frame).map(|e| e.physical);
        match done {
            Ok(()) => self.bad.extend(old),
            Err(error) => {
                self.bad.push(entry.physical);
                self.entries = before;
                return Err(self.take_back(m, entry.frame, error));
            }
        }
        Ok(())
    }

    /// This process goes on with the old mapping, so the next open must as well.
    fn take_back<M: Medium>(&mut self, m: &M, frame: u64, error: Error) -> Error {
        match error {
            Error::Sync(_) => error,
            _ if self.write(m).is_ok() => error,
            _ => Error::InDoubt { frame },
        }
    }

    fn write<M: Medium>(&mut self, m: &M) -> Result<()> {
        self.record.write(m, self.entries.len() as u32, &encode(&self.entries))
    }

    fn is_free(&self, spare: u64) -> bool {
        !self.bad.contains(&spare) && self.entries.iter().all(|e| e.physical != spare)
    }

    fn unmovable(&self, frame: u64) -> Option<&'static str> {
        if !frame.is_multiple_of(self.frame) {
            return Some("it does not start on a frame");
        }
        let place = if frame < self.side_len { frame } else { frame.wrapping_sub(self.side_len) };
        if place < MOVABLE {
            return Some("the table of relocations is found through it");
        }
        if self.is_spare(frame) {
            return Some("it is a spare frame");
        }
        let known = self.entries.iter().any(|e| e.frame == frame);
        (!known && self.entries.len() >= REMAPS_MAX).then_some("the table is full")
    }
}
