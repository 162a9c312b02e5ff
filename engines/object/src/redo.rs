//! Completing changes that a durable record describes: after a crash, and after a media error
//! under a commit. Both come to the same: store what the record says, verify what lies over the
//! same columns, then recompute parity there, since nobody knows how far the patches got.
//!
//! Recomputing parity from rows that were not verified would bless damage in them for ever. So
//! every unit over the columns is checked first; a bad one is rebuilt from parity as found, and
//! from parity as it was before the record's change, and accepted only if its sum agrees.

use holdfast_codes::{crc32c, xor_into};
use holdfast_heap::Unit;
use holdfast_heap::verify::{Direct, Found, Overlay};
use holdfast_pmem::{MediaCause, MediaError, Medium, PAGE, Site};
use holdfast_redundancy::events::{Cause, Finder};
use holdfast_redundancy::{ColumnId, Wrong, Zone, zone};

use crate::batch::Batch;
use crate::error::Error;
use crate::repair::{Asked, Mended};
use crate::shared::{Repairer, Shared};

/// Storing what a record says.
const STORE: Site = Site::new("object.redo.store");
/// Rewriting a bad page under it.
const HEAL: Site = Site::new("object.redo.heal");
/// Verifying rows before parity is recomputed from them.
const VERIFY: Site = Site::new("object.redo.verify");
/// Storing a rebuilt unit.
const CURE: Site = Site::new("object.redo.cure");
/// Recomputing parity.
const RECOMPUTE: Site = Site::new("object.redo.recompute");

/// Bytes that a record put over others.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) at: u64,
    /// What was there before, XOR what is there now; `None` if it could not be read.
    pub(crate) delta: Option<Vec<u8>>,
    pub(crate) len: u64,
}

/// What a redo did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Redone {
    /// Units rebuilt on the way.
    pub(crate) cured: u64,
    /// Units that could not be.
    pub(crate) lost: u64,
    /// Bytes of columns whose parity was recomputed.
    pub(crate) columns: u64,
}

impl<M: Medium> Shared<M> {
    /// Stores bytes of a record, whatever is bad under them. Answers the change.
    ///
    /// # Errors
    /// The page stays bad and no frame is left for it.
    pub(crate) fn redo_store(
        &self,
        repairer: &mut Repairer,
        at: u64,
        bytes: &[u8],
    ) -> Result<Change, Error> {
        let mut old = vec![0; bytes.len()];
        let mut delta = None;
        if self.m.read(at, &mut old).is_ok() {
            xor_into(&mut old, bytes);
            delta = Some(old);
        } else {
            self.redo_pages(repairer, at, bytes)?;
        }
        self.m.put(STORE, at, bytes)?;
        Ok(Change { at, delta, len: bytes.len() as u64 })
    }

    /// Makes the bad pages under `[at, at + bytes.len())` usable: rebuilt from parity as found,
    /// with the record's bytes over it.
    fn redo_pages(&self, repairer: &mut Repairer, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let end = at + bytes.len() as u64;
        for page in (at / PAGE * PAGE..end).step_by(PAGE as usize) {
            let mut contents = vec![0; PAGE as usize];
            if self.m.read(page, &mut contents).is_ok() {
                continue;
            }
            let event = self.event(Cause::MediaError, Finder::Commit, page, PAGE);
            let rebuilt = self.range_candidates(repairer, page, PAGE).into_iter().next();
            let known = rebuilt.is_some();
            contents = rebuilt.unwrap_or(contents);
            let (from, to) = (at.max(page), end.min(page + PAGE));
            contents[(from - page) as usize..(to - page) as usize]
                .copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
            let mended = match self.m.heal(HEAL, page, &contents) {
                Ok(()) if known => Mended::Repaired(Wrong::Data),
                Ok(()) => Mended::Lost(Wrong::Data),
                Err(_) => {
                    self.relocate(repairer, page)?;
                    Mended::Relocated(Wrong::Data)
                }
            };
            self.report_mended(event, mended, 0, crc32c(0, &contents));
        }
        Ok(())
    }

    /// Verifies everything over the columns of `changes`, then recomputes their parity.
    pub(crate) fn redo_parity(
        &self,
        repairer: &mut Repairer,
        changes: &[Change],
        finder: Finder,
    ) -> Result<Redone, Error> {
        let mut redone = Redone::default();
        let zones: Vec<Zone> = self.zones().copied().collect();
        for zone in &zones {
            for (col, len) in column_ranges(zone, changes) {
                if self.m.enabled(VERIFY) {
                    self.verify_rows(repairer, zone, col, len, changes, finder, &mut redone)?;
                }
                if self.m.enabled(RECOMPUTE) {
                    self.redo_columns(repairer, zone, col, len)?;
                }
                redone.columns += len;
            }
        }
        Ok(redone)
    }

    /// Recomputes parity of a range; parity pages that are bad are rewritten whole, from rows that
    /// the caller verified over the range (and parity elsewhere on the page has no other source).
    fn redo_columns(
        &self,
        repairer: &mut Repairer,
        zone: &Zone,
        col: u64,
        len: u64,
    ) -> Result<(), Error> {
        match self.recompute_parity(&mut repairer.scratch, zone, col, len) {
            Err(Error::Media(e)) => {
                let bad_parity =
                    zone.unit(e.at).is_some_and(|(unit, _)| !matches!(unit, zone::Unit::Row(_)));
                if !bad_parity {
                    // A row that could not be read and could not be mended either.
                    return Ok(());
                }
                let (first, end) = (col / PAGE * PAGE, (col + len).next_multiple_of(PAGE));
                for page in (first..end).step_by(PAGE as usize) {
                    self.clear_parity(repairer, zone, page)?;
                }
                self.recompute_parity(&mut repairer.scratch, zone, first, end - first)
            }
            other => other,
        }
    }

    /// Makes the parity pages of a page column usable; what they hold is to be recomputed.
    fn clear_parity(&self, repairer: &mut Repairer, zone: &Zone, page: u64) -> Result<(), Error> {
        let mut contents = vec![0; PAGE as usize];
        let kept = [(zone.has_p(), zone::Unit::P), (zone.has_q(), zone::Unit::Q)];
        for (_, unit) in kept.into_iter().filter(|(kept, _)| *kept) {
            let at = zone.unit_at(unit, page);
            if self.m.read(at, &mut contents).is_err() {
                contents.fill(0);
                if self.m.heal(HEAL_PARITY, at, &contents).is_err() {
                    self.relocate(repairer, at)?;
                }
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "each is a different part of one question")]
    fn verify_rows(
        &self,
        repairer: &mut Repairer,
        zone: &Zone,
        col: u64,
        len: u64,
        changes: &[Change],
        finder: Finder,
        redone: &mut Redone,
    ) -> Result<(), Error> {
        let mut bad = Vec::new();
        for row in 0..zone.data_rows() {
            let at = zone.at(row, col);
            let Some(table) = self.table_of(at) else { continue };
            table.units_over(at, len, &mut |unit| {
                let found = unit.check(&Direct(&self.m), self.heap.sums());
                if !matches!(found, Ok(Found::Good | Found::Nothing)) && !bad.contains(&unit) {
                    bad.push(unit);
                }
            });
        }
        for unit in bad {
            let (at, len) = unit.range();
            let event = self.event(Cause::Sum, finder, at, len);
            let cured = self.cure(repairer, &unit, changes)?;
            let mended = if cured {
                redone.cured += 1;
                Mended::Repaired(Wrong::Data)
            } else {
                redone.lost += 1;
                Mended::Lost(Wrong::Data)
            };
            self.report_mended(event, mended, 0, 0);
        }
        Ok(())
    }

    /// Rebuilds a unit from parity as found, and from parity as it was before the changes.
    fn cure(
        &self,
        repairer: &mut Repairer,
        unit: &Unit,
        changes: &[Change],
    ) -> Result<bool, Error> {
        let (at, len) = unit.range();
        for page in (at / PAGE * PAGE..at + len).step_by(PAGE as usize) {
            let mut contents = vec![0; PAGE as usize];
            if self.m.read(page, &mut contents).is_err() {
                self.redo_pages(repairer, page, &[])?;
                if self.m.read(page, &mut contents).is_err() {
                    let whole = self.range_candidates(repairer, page, PAGE);
                    let whole = whole.into_iter().next().unwrap_or(vec![0; PAGE as usize]);
                    if self.m.heal(HEAL_ROW, page, &whole).is_err() {
                        self.relocate(repairer, page)?;
                    }
                }
            }
        }
        let asked = Asked { cause: Cause::Sum, finder: Finder::Open };
        let parts = crate::mend_unit::parts_of(unit);
        for part in &parts {
            for found in self.range_candidates(repairer, part.at, part.len) {
                let mut before = found.clone();
                self.undo_changes(part.at, &mut before, changes);
                for candidate in [&found, &before] {
                    let direct = Direct(&self.m);
                    let over = Overlay { under: &direct, at: part.at, bytes: candidate };
                    if unit.check(&over, self.heap.sums()) == Ok(Found::Good) {
                        self.m.put(CURE, part.at, candidate)?;
                        return Ok(true);
                    }
                }
            }
        }
        let _ = asked;
        Ok(matches!(
            unit.check(&Direct(&self.m), self.heap.sums()),
            Ok(Found::Good | Found::Nothing)
        ))
    }

    /// XORs into `bytes` (a candidate for a row, at `at`) what other rows of the same columns
    /// changed by: the candidate as if parity did not know of the changes yet.
    fn undo_changes(&self, at: u64, bytes: &mut [u8], changes: &[Change]) {
        let Some(zone) = self.zone_of(at) else { return };
        for piece in zone.split(at, bytes.len() as u64) {
            let part = &mut bytes[(piece.at - at) as usize..][..piece.len as usize];
            for change in changes {
                let Some(delta) = &change.delta else { continue };
                for other in zone.split(change.at, change.len) {
                    if other.row == piece.row {
                        continue;
                    }
                    let from = other.col.max(piece.col);
                    let to = (other.col + other.len).min(piece.col + piece.len);
                    if from < to {
                        let source = (other.at - change.at + from - other.col) as usize;
                        let n = (to - from) as usize;
                        let into = (from - piece.col) as usize;
                        xor_into(&mut part[into..into + n], &delta[source..source + n]);
                    }
                }
            }
        }
    }

    /// Completes a commit whose record is durable and whose stores met a media error. Columns are
    /// not held: relocation needs them all. The version words still are, and no repair judges any
    /// column meanwhile.
    pub(crate) fn complete_damaged(&self, batch: &mut Batch, _error: MediaError) {
        let mut repairer = self.repairer_now();
        let mut ranges: Vec<(u64, u64)> =
            batch.writes.iter().map(|w| (w.at, u64::from(w.len))).collect();
        ranges.extend(&batch.exempts);
        let redo = |repairer: &mut Repairer| -> Result<(), Error> {
            let mut changes = Vec::with_capacity(ranges.len());
            for write in &batch.writes {
                let bytes = batch.builder.payload(write.payload, write.len as usize);
                changes.push(self.redo_store(repairer, write.at, bytes)?);
            }
            for (at, len) in &batch.exempts {
                changes.push(Change { at: *at, delta: None, len: *len });
            }
            for (zone, chunk, entry) in &batch.publish {
                self.heap.publish(*zone, *chunk, entry);
            }
            self.redo_held(repairer, &self.columns_of(&ranges), &changes)
        };
        if redo(&mut repairer).is_err() {
            // Neither healed nor moved: what is lost is on the medium's own account, the record
            // is durable, and the next open replays it. Until then nothing more is written.
            self.stop_writing();
        }
    }

    /// Recomputes parity of `changes` while `columns` are held. A page that has to be relocated
    /// on the way is, once they are released, since that takes all columns of its frame; then all
    /// is done again.
    fn redo_held(
        &self,
        repairer: &mut Repairer,
        columns: &[ColumnId],
        changes: &[Change],
    ) -> Result<(), Error> {
        for _ in 0..RELOCATIONS_MAX {
            self.columns.lock_all(&self.m, columns);
            repairer.holds_columns = true;
            let done = self.redo_parity(repairer, changes, Finder::Commit);
            repairer.holds_columns = false;
            self.columns.unlock_all(columns);
            match done {
                Err(Error::Media(e)) if e.cause == MediaCause::Unclearable => {
                    self.relocate(repairer, e.at)?;
                }
                other => return other.map(|_| ()),
            }
        }
        Err(Error::Fatal { what: "a page under a commit", at: changes.first().map_or(0, |c| c.at) })
    }
}

/// Pages relocated for the sake of one commit before it is given up.
const RELOCATIONS_MAX: u32 = 64;
/// Rewriting a bad parity page.
const HEAL_PARITY: Site = Site::new("object.redo.heal-parity");
/// Rewriting a bad page of a row.
const HEAL_ROW: Site = Site::new("object.redo.heal-row");

/// The columns that changes lie in, merged and ascending.
fn column_ranges(zone: &Zone, changes: &[Change]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for change in changes.iter().filter(|c| zone.contains(c.at)) {
        ranges.extend(zone.split(change.at, change.len).map(|p| (p.col, p.len)));
    }
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (col, len) in ranges {
        match merged.last_mut() {
            Some((start, n)) if col <= *start + *n => *n = (*n).max(col + len - *start),
            _ => merged.push((col, len)),
        }
    }
    merged
}
