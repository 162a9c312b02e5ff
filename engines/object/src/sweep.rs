//! Going over a whole pool: every object, every column, every copy. Shared by `check` (looks
//! only) and `scrub` (repairs what it finds).
//!
//! Commits go on meanwhile. An object is judged between two looks at its version word; a column
//! is judged while it is held, which excludes every store to anything that lies over it.

use holdfast_heap::format::{GRANULE, SLOT_LEN};
use holdfast_heap::sums::granules;
use holdfast_heap::verify::{Direct, check_granule, read_slot};
use holdfast_heap::{Spot, Unit, ZoneTable};
use holdfast_layout::{Certify, RawPtr};
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_redundancy::parity::{self, Mismatch, Scratch, Suspect};
use holdfast_redundancy::{Verdict, Wrong, Zone, verdict::Reason, zone};

use crate::blame::{Apart, Doubt, Others};
use crate::changes::Changes;
use crate::error::Error;
use crate::shared::Shared;

/// Verifying objects.
const VERIFY: Site = Site::new("object.sweep.verify");
/// Verifying directory entries.
const VERIFY_ENTRY: Site = Site::new("object.sweep.verify-entry");
/// Findings kept in a report; further ones are only counted.
const FINDINGS_MAX: usize = 10_000;
/// Page columns checked under one set of locks.
const COLUMNS_AT_ONCE: u64 = 4;

/// How far ahead of what is judged bytes are asked for: one stream alone does not use the memory
/// that there is.
const AHEAD: u64 = 4096;

/// Something a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// First byte concerned.
    pub at: u64,
    /// Bytes concerned.
    pub len: u64,
    /// What was found out about them.
    pub verdict: Verdict,
    /// The object concerned, or null.
    pub object: RawPtr,
}

/// What a pass over a pool saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Live objects.
    pub objects: u64,
    /// Their bytes.
    pub object_bytes: u64,
    /// Bytes of columns compared with their parity.
    pub column_bytes: u64,
    /// Number of findings.
    pub found: u64,
    /// The first of them.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.found == 0
    }

    pub(crate) fn add(&mut self, finding: Finding) {
        self.found += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// Where a pass is: what it does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// Objects of this chunk of this zone.
    Chunk(u8, u32),
    /// The column at this offset of this zone's rows.
    Column(u8, u64),
    /// Copies of metadata.
    Copies,
    /// Nothing.
    End,
}

impl Position {
    /// Where a pass begins.
    pub(crate) const FRONT: Self = Self::Chunk(0, 0);
}

impl<M: Medium> Shared<M> {
    /// Position at which the pass with persisted offset `next` goes on: an offset in a zone's data
    /// means its chunk, one in its P row means its column, the end of the pool the copies of
    /// metadata. Any other, as of a pool that has grown since, means the front.
    pub(crate) fn position_of(&self, next: u64) -> Position {
        if next == self.superblock().size {
            return Position::Copies;
        }
        for (table, zone) in self.heap.zones().zip(self.zones()) {
            if let Some(chunk) = table.chunk_of(next) {
                return Position::Chunk(table.index(), chunk);
            }
            if let Some((zone::Unit::P, col)) = zone.unit(next) {
                return Position::Column(table.index(), col);
            }
        }
        Position::FRONT
    }

    /// The offset that stands for a position.
    pub(crate) fn offset_of(&self, position: Position) -> u64 {
        match position {
            Position::Chunk(z, chunk) => self.heap.zone(z).map_or(0, |t| t.chunk_at(chunk)),
            Position::Column(z, col) => {
                self.zones().nth(z.into()).map_or(0, |zone| zone.unit_at(zone::Unit::P, col))
            }
            Position::Copies => self.superblock().size,
            Position::End => 0,
        }
    }

    /// Looks at what is at `position`; answers what comes next. Findings go to `report`.
    pub(crate) fn sweep_step(
        &self,
        position: Position,
        scratch: &mut Scratch,
        report: &mut CheckReport,
    ) -> Result<Position, Error> {
        match position {
            Position::Chunk(z, chunk) => {
                let Some(table) = self.heap.zone(z) else { return Ok(Position::Copies) };
                self.sweep_chunk(table, chunk, report);
                if chunk + 1 < table.chunks() {
                    return Ok(Position::Chunk(z, chunk + 1));
                }
                self.sweep_entries(table, report);
                Ok(Position::Column(z, 0))
            }
            Position::Column(z, col) => {
                let Some(zone) = self.zones().nth(z.into()).copied() else {
                    return Ok(Position::Copies);
                };
                let len = (COLUMNS_AT_ONCE * PAGE).min(zone.row_len() - col);
                self.sweep_columns(&zone, col, len, scratch, report)?;
                if col + len < zone.row_len() {
                    return Ok(Position::Column(z, col + len));
                }
                Ok(match self.heap.zone(z + 1) {
                    Some(_) => Position::Chunk(z + 1, 0),
                    None => Position::Copies,
                })
            }
            Position::Copies => {
                self.sweep_copies(report);
                self.sweep_stand_ins(report);
                Ok(Position::End)
            }
            Position::End => Ok(Position::End),
        }
    }

    fn sweep_chunk(&self, table: &ZoneTable, chunk: u32, report: &mut CheckReport) {
        let mut spots = Vec::new();
        table.each_place(chunk, &mut |spot| spots.push(*spot));
        for spot in spots {
            self.sweep_object(table, &spot, report);
        }
    }

    /// Judges all granules of a place. A finding counts only if the object did not change while
    /// it was looked at, and if there still is such a place: its chunk may have become something
    /// else since its places were listed, and what is in it now came after this pass began.
    fn sweep_object(&self, table: &ZoneTable, spot: &Spot, report: &mut CheckReport) {
        let word = self.versions.index(spot.object);
        let m = Direct(&self.m);
        let certify = Certify::when(self.m.enabled(VERIFY));
        loop {
            let Some(version) = self.versions.read(word) else {
                if self.is_unstored() {
                    // Held for good: its last commit is in the log alone.
                    let verdict = Verdict::Undecided(Reason::Older);
                    let object = RawPtr::new(spot.object, 0);
                    report.add(Finding { at: spot.slot, len: SLOT_LEN as u64, verdict, object });
                    return;
                }
                holdfast_sync::thread::yield_now();
                continue;
            };
            let mut findings = Vec::new();
            let mut live = None;
            match read_slot(&m, spot) {
                Err(e) => findings.push((spot.slot, 16, Verdict::Undecided(Reason::Media(e)), 0)),
                Ok(slot) => {
                    live = slot.is_live().then_some(slot);
                    let count = if slot.is_live() { granules(slot.len.into()) } else { 1 };
                    for granule in 0..count.min(granules(spot.capacity)) {
                        let ahead = spot.object + granule * GRANULE + AHEAD;
                        self.m.prefetch(ahead, GRANULE);
                        let found = check_granule(&m, self.heap.sums(), spot, granule, certify);
                        let verdict = match found {
                            Ok(f) if f.is_bad() => Verdict::Corrupt(Wrong::Data),
                            Ok(_) => continue,
                            Err(e) => Verdict::Undecided(Reason::Media(e)),
                        };
                        let unit = Unit::Granule { spot: *spot, granule };
                        let (at, len) = unit.range();
                        findings.push((at, len, verdict, slot.generation));
                    }
                }
            }
            if !self.versions.unchanged(word, version) {
                continue;
            }
            if table.locate(spot.object) != Some(*spot) {
                return;
            }
            if let Some(slot) = live {
                report.objects += 1;
                // What a damaged slot says of its length is nothing to go by.
                report.object_bytes += u64::from(slot.len).min(spot.capacity);
            }
            for (at, len, verdict, generation) in findings {
                let object = RawPtr::new(spot.object, generation);
                report.add(Finding { at, len, verdict, object });
            }
            return;
        }
    }

    fn sweep_entries(&self, table: &ZoneTable, report: &mut CheckReport) {
        let certify = Certify::when(self.m.enabled(VERIFY_ENTRY));
        for chunk in 0..table.chunks() {
            let at = table.entry_at(chunk);
            // Column first: an entry is changed only while its column is held.
            let Some((zone, place)) = self.place_of(at) else { continue };
            let held = self.columns.lock_one(&self.m, self.columns.id(zone, place.col));
            let unit = Unit::Entry { at, chunk };
            let found = unit.check(&Direct(&self.m), self.heap.sums(), certify);
            drop(held);
            let verdict = match found {
                Ok(f) if f.is_bad() => Verdict::Corrupt(Wrong::Directory),
                Ok(_) => continue,
                Err(e) => Verdict::Undecided(Reason::Media(e)),
            };
            report.add(Finding { at, len: 32, verdict, object: RawPtr::NULL });
        }
    }

    /// Compares columns with their parity.
    fn sweep_columns(
        &self,
        zone: &Zone,
        col: u64,
        len: u64,
        scratch: &mut Scratch,
        report: &mut CheckReport,
    ) -> Result<(), Error> {
        report.column_bytes += len * u64::from(zone.data_rows());
        if !zone.has_p() {
            return Ok(());
        }
        let columns: Vec<_> =
            (col..col + len).step_by(PAGE as usize).map(|c| self.columns.id(zone, c)).collect();
        self.columns.lock_all(&self.m, &columns);
        let exempt = self.exempt();
        let whole = parity::check(&self.m, zone, col, len, &exempt, scratch);
        let found: Vec<_> = if whole.is_ok_and(|found| found.is_empty()) {
            Vec::new()
        } else {
            // A page column at a time: damage in one must not blur what is found in the next.
            let pages = (col..col + len).step_by(PAGE as usize);
            pages.map(|c| parity::check(&self.m, zone, c, PAGE, &exempt, scratch)).collect()
        };
        let doubts: Vec<_> = found
            .iter()
            .flatten()
            .flatten()
            .map(|mismatch| self.doubts_of(zone, mismatch, scratch))
            .collect();
        self.columns.unlock_all(&columns);
        let mut doubts = doubts.into_iter();
        for found in found {
            match found {
                Ok(mismatches) => {
                    for (mismatch, doubts) in mismatches.iter().zip(&mut doubts) {
                        if doubts.is_empty() {
                            report.add(self.column_finding(zone, mismatch));
                        }
                        doubts.into_iter().for_each(|doubt| report.add(doubt));
                    }
                }
                Err(holdfast_redundancy::Error::Media(e)) => {
                    let verdict = Verdict::Undecided(Reason::Media(e));
                    report.add(Finding { at: e.at, len: e.len, verdict, object: RawPtr::NULL });
                }
                Err(other) => return Err(other.into()),
            }
        }
        Ok(())
    }

    /// What over a mismatch may be older than what was committed, as findings. Columns are held.
    fn doubts_of(&self, zone: &Zone, mismatch: &Mismatch, scratch: &mut Scratch) -> Vec<Finding> {
        let (col, len) = (mismatch.col, mismatch.len);
        let located = match mismatch.suspect {
            Suspect::Any => None,
            Suspect::Unit(zone::Unit::Row(row)) => Some(row),
            Suspect::Unit(parity) if self.speaks_alone(zone, parity, col) => None,
            _ => return Vec::new(),
        };
        let of_q = mismatch.suspect == Suspect::Unit(zone::Unit::Q);
        let found = parity::syndromes(&self.m, zone, col, len, &self.exempt(), scratch);
        let judged = found.ok().filter(|_| self.may_judge().is_ok()).and_then(|found| {
            let by = if of_q { &found.q } else { &found.p };
            let (none, columns) = (Changes::default(), Apart { col, by, of_q });
            let others = Others { by_parity: &none, given_up: &[] };
            // What cannot be read is a finding of its own, after which this is looked at again.
            let judged = self.judge_columns(zone, columns, &none, located, others);
            judged.ok().map(|judged| judged.doubts)
        });
        // The columns are what does not add up, all of them; the object is what it is about.
        let finding = |doubt: Doubt| {
            let verdict = Verdict::Undecided(Reason::Older);
            Finding { at: zone.at(doubt.row, col), len, verdict, object: doubt.object }
        };
        judged.unwrap_or_default().into_iter().map(finding).collect()
    }

    /// Every page of both sides can be read, and copies of mirrored records agree.
    fn sweep_copies(&self, report: &mut CheckReport) {
        let superblock = self.superblock().clone();
        let mut page = vec![0; PAGE as usize];
        for at in (0..2 * superblock.side_len).step_by(PAGE as usize) {
            if let Err(e) = self.m.read(at, &mut page) {
                let verdict = Verdict::Undecided(Reason::Media(e));
                report.add(Finding { at, len: PAGE, verdict, object: RawPtr::NULL });
            }
        }
        // Nobody writes a record while its copies are compared: between the two stores of a write
        // they differ. In the order in which writers take these locks.
        let damaged = {
            let _repairer = self.repairer();
            let _regions =
                self.regions.lock().unwrap_or_else(holdfast_sync::PoisonError::into_inner);
            let superblock = self.superblock();
            crate::copies::damaged_copies(&self.m, &superblock)
        };
        for (place, damaged) in damaged {
            let base = match damaged {
                holdfast_redundancy::Side::A => 0,
                holdfast_redundancy::Side::B => superblock.side_len,
            };
            report.add(Finding {
                at: base + place,
                len: PAGE,
                verdict: Verdict::Corrupt(Wrong::Mirror { side: damaged }),
                object: RawPtr::NULL,
            });
        }
    }

    /// A mismatch as a finding: at the unit that explains it, or at P where none can be named.
    fn column_finding(&self, zone: &Zone, mismatch: &Mismatch) -> Finding {
        let (unit, wrong) = match mismatch.suspect {
            Suspect::Unit(zone::Unit::P) => (zone::Unit::P, Wrong::ParityP),
            Suspect::Unit(zone::Unit::Q) => (zone::Unit::Q, Wrong::ParityQ),
            Suspect::Unit(row) => (row, Wrong::FreeOrParity),
            Suspect::Any | Suspect::Several => (zone::Unit::P, Wrong::FreeOrParity),
        };
        let verdict = if self.cannot_tell(zone, mismatch.col, mismatch.suspect) {
            Verdict::Undecided(Reason::Unlocated)
        } else {
            Verdict::Corrupt(wrong)
        };
        let at = zone.unit_at(unit, mismatch.col);
        Finding { at, len: mismatch.len, verdict, object: RawPtr::NULL }
    }

    /// Whether nothing that is kept can say which unit of a column is wrong: there are no sums,
    /// and parity names none. The parity may be all that is left of the right bytes.
    pub(crate) fn cannot_tell(&self, zone: &Zone, col: u64, suspect: Suspect) -> bool {
        let names_none = || match suspect {
            Suspect::Unit(unit) => self.speaks_alone(zone, unit, col),
            Suspect::Any | Suspect::Several => true,
        };
        !self.heap.sums().active() && names_none()
    }
}
