//! Rows whose last write was lost, found by the columns that do not add up, and brought back.
//!
//! P and Q name the row; with P alone `blame.rs` tells which it is. A scrub gets there by itself,
//! column after column. Two others must not wait for it:
//!
//! - *Who would give a granule up.* A chunk whose directory entry is an older one has units that
//!   were never there: the slot of an object that has been freed, of a run that has not been made.
//!   They verify by chance at most, and no candidate cures them. So before a unit is given up, the
//!   columns of the entries that make it one are looked at; where one is brought back, what lies in
//!   the chunk is listed anew.
//! - *Who would call a pointer dangling.* An object in a chunk whose entry says that it is free, or
//!   something else, has no place; one whose slot is an older one was never made. That counts if
//!   the columns of the entry or the slot add up.

use holdfast_heap::Unit;
use holdfast_heap::format::CHUNK_LEN;
use holdfast_layout::Certify;
use holdfast_pmem::{Medium, Site};
use holdfast_redundancy::events::{Cause, Event};
use holdfast_redundancy::parity::{self, Mismatch, Scratch, Suspect};
use holdfast_redundancy::{Wrong, Zone, zone};
use holdfast_sync::{MutexGuard, PoisonError};
use holdfast_txn::TxError;

use crate::blame::Doubt;
use crate::changes::Changes;
use crate::error::Error;
use crate::redo::{Redo, Redone};
use crate::repair::{Asked, Mended};
use crate::shared::{Repairer, Shared};

/// Verifying a row as P and Q would have it, before it is stored.
const VERIFY_ROW: Site = Site::new("object.bring_back.verify-row");
/// Looking at the entries of a unit that is to be given up.
const ENTRIES: Site = Site::new("object.bring_back.entries");
/// The same while records are replayed.
const ENTRIES_FOUND: Site = Site::new("object.bring_back.entries-found");
/// Looking at the entry or the slot that a pointer does not agree with.
const DOUBT: Site = Site::new("object.bring_back.doubt");

/// Places remembered whose columns cannot be settled.
const UNSETTLED_MAX: usize = 1024;

/// What was brought back of a mismatch.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    /// What it concerns, if anything was.
    pub(crate) back: Option<Wrong>,
    /// What may be older than what was committed, and stays as it is.
    pub(crate) doubts: Vec<Doubt>,
}

/// Whether nobody but this row is suspected, or nobody can be named.
fn is_of_row(suspect: Suspect, row: u32) -> bool {
    !matches!(suspect, Suspect::Unit(unit) if unit != zone::Unit::Row(row))
}

impl<M: Medium> Shared<M> {
    /// Brings back what explains a mismatch, if something does. Columns are held. With P alone, or
    /// for a part of a row, everything over them has to verify as it is (`all_verify`) to be known
    /// for an older state.
    pub(crate) fn bring_back(
        &self,
        repairer: &mut Repairer,
        zone: &Zone,
        mismatch: &Mismatch,
        all_verify: bool,
        asked: Asked,
    ) -> Result<Brought, Error> {
        let (col, len) = (mismatch.col, mismatch.len);
        let located = match mismatch.suspect {
            Suspect::Unit(zone::Unit::Row(row)) => Some(row),
            Suspect::Any if all_verify => None,
            _ => return Ok(Brought::default()),
        };
        let scratch = &mut repairer.scratch;
        let found = parity::syndromes(&self.m, zone, col, len, &self.exempt(), scratch)?;
        let none = Changes::default();
        let judged = self.judge_columns(zone, col, &found.p, &none, located);
        if let Some(row) = located.filter(|_| !judged.parity_older) {
            let unit = zone::Unit::Row(row);
            let event = self.event(asked.cause, asked.finder, zone.unit_at(unit, col), len);
            if self.bring_back_row(repairer, zone, unit, col, len)? {
                let entries = self.table_of(event.at).is_some_and(|t| event.at < t.chunks_at());
                let wrong = if entries { Wrong::Directory } else { Wrong::Data };
                self.report_mended(event, Mended::Repaired(wrong));
                return Ok(Brought { back: Some(wrong), doubts: Vec::new() });
            }
        }
        if !all_verify {
            return Ok(Brought::default());
        }
        let mut brought = Brought { back: None, doubts: judged.doubts };
        for newer in judged.newer {
            let len = newer.bytes.len() as u64;
            let event = self.event(asked.cause, asked.finder, newer.at, len);
            self.install_range(repairer, newer.at, &newer.bytes)?;
            self.know_entries(newer.at, len);
            self.report_mended(event, Mended::Repaired(newer.wrong));
            brought.back = Some(newer.wrong);
        }
        Ok(brought)
    }

    /// Says of something that it may be older than what was committed, once in each pass.
    pub(crate) fn report_doubt(&self, doubt: &Doubt, asked: Asked) {
        if self.is_unsettled(doubt.at) {
            return;
        }
        self.leave_unsettled(doubt.at);
        let event = self.event(Cause::Parity, asked.finder, doubt.at, doubt.len);
        let event = Event { object: doubt.object.word(), ..event };
        self.report_mended(event, Mended::Undecided(doubt.wrong));
    }

    /// P and Q agree that one row is wrong although everything over it verifies: its last write was
    /// lost, and what is there is an older state with the sums of that time. The row is rebuilt, if
    /// everything over it verifies then as well.
    fn bring_back_row(
        &self,
        repairer: &mut Repairer,
        zone: &Zone,
        unit: zone::Unit,
        col: u64,
        len: u64,
    ) -> Result<bool, Error> {
        let at = zone.unit_at(unit, col);
        let candidates = self.range_candidates(repairer, at, len, &self.exempt());
        let [candidate] = &candidates[..] else { return Ok(false) };
        let certify = Certify::when(self.m.enabled(VERIFY_ROW));
        if self.bad_units(at, candidate, &Changes::default(), certify) > 0 {
            return Ok(false);
        }
        self.install_range(repairer, at, candidate)?;
        self.know_entries(at, candidate.len() as u64);
        Ok(true)
    }

    /// The directory entries that say what a granule is part of. A large object has one for each
    /// of its chunks: their writes are lost together.
    pub(crate) fn entries_of(&self, unit: &Unit) -> Option<(u64, u64)> {
        let Unit::Granule { spot, .. } = unit else { return None };
        let table = self.heap.zone(spot.zone)?;
        Some((table.entry_at(spot.chunk), u64::from(spot.chunks.max(1)) * CHUNK_LEN as u64))
    }

    /// Brings back the entries of a unit that nothing cures. True if its chunk is something else
    /// than it was taken for. The columns of the entries are held.
    pub(crate) fn restore_entries(
        &self,
        repairer: &mut Repairer,
        unit: &Unit,
        asked: Asked,
    ) -> Result<bool, Error> {
        let Some((at, len)) = self.entries_of(unit).filter(|_| self.m.enabled(ENTRIES)) else {
            return Ok(false);
        };
        let Some(zone) = self.zone_of(at).copied() else { return Ok(false) };
        self.unless_the_same(unit, || {
            // One after the other: another damage over some of them says nothing of the rest.
            for entry in (at..at + len).step_by(CHUNK_LEN) {
                for piece in zone.split(entry, CHUNK_LEN as u64) {
                    let (exempt, scratch) = (self.exempt(), &mut repairer.scratch);
                    let (col, len) = (piece.col, piece.len);
                    let found = parity::check(&self.m, &zone, col, len, &exempt, scratch);
                    // A page that cannot be read is another damage, and found as one.
                    for mismatch in found.unwrap_or_default() {
                        if is_of_row(mismatch.suspect, piece.row) {
                            // What the entries in doubt are about may lie over their own columns,
                            // so not everything over them verifies.
                            self.bring_back(repairer, &zone, &mismatch, true, asked)?;
                        }
                    }
                }
            }
            Ok(())
        })
    }

    /// The same for a unit over columns that are about to be replayed, before anybody else works.
    pub(crate) fn restore_entries_found(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        unit: &Unit,
    ) -> Result<bool, Error> {
        let entries = self.entries_of(unit).filter(|_| self.m.enabled(ENTRIES_FOUND));
        let Some((at, len)) = entries else { return Ok(false) };
        let Some(zone) = self.zone_of(at).copied() else { return Ok(false) };
        let mut redone = Redone::default();
        self.unless_the_same(unit, || {
            for entry in (at..at + len).step_by(CHUNK_LEN) {
                for piece in zone.split(entry, CHUNK_LEN as u64) {
                    let columns = (piece.col, piece.len);
                    let row = Some(piece.row);
                    self.cure_lost_write(repairer, redo, &zone, columns, row, &mut redone)?;
                }
            }
            Ok(())
        })
    }

    /// Whether `change` made another entry of that of `unit`.
    fn unless_the_same(
        &self,
        unit: &Unit,
        change: impl FnOnce() -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let Unit::Granule { spot, .. } = unit else { return Ok(false) };
        let entry = || self.heap.zone(spot.zone).and_then(|table| table.entry(spot.chunk));
        let before = entry();
        change()?;
        Ok(entry() != before)
    }

    /// The directory entry that denies `object` a place, if its columns do not add up.
    ///
    /// # Errors
    /// `Conflict` while columns wait to be completed.
    pub(crate) fn doubtful_entry(&self, object: u64) -> Result<Option<u64>, TxError> {
        let table = self.heap.zone_of(object);
        let entry = table.and_then(|t| t.chunk_of(object).map(|chunk| t.entry_at(chunk)));
        let Some(at) = entry else { return Ok(None) };
        Ok(self.is_doubtful(at, CHUNK_LEN as u64)?.then_some(at))
    }

    /// Notes that the columns of a place in doubt cannot be settled: nobody doubts it again before
    /// a scrub has passed.
    pub(crate) fn leave_unsettled(&self, at: u64) {
        let mut unsettled = self.unsettled_now();
        if unsettled.len() < UNSETTLED_MAX && !unsettled.contains(&at) {
            unsettled.push(at);
        }
    }

    fn is_unsettled(&self, at: u64) -> bool {
        self.unsettled_now().contains(&at)
    }

    fn unsettled_now(&self) -> MutexGuard<'_, Vec<u64>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the columns of some bytes do not add up.
    ///
    /// # Errors
    /// `Conflict` while columns wait to be completed.
    #[cold]
    pub(crate) fn is_doubtful(&self, at: u64, len: u64) -> Result<bool, TxError> {
        let Some(zone) = self.zone_of(at).filter(|_| self.m.enabled(DOUBT)) else {
            return Ok(false);
        };
        if self.is_unsettled(at) {
            return Ok(false);
        }
        let mut scratch = Scratch::new();
        for piece in zone.split(at, len) {
            let held = self.columns.lock_one(&self.m, self.columns.id(zone, piece.col));
            self.may_judge().map_err(|_| TxError::Conflict)?;
            let (exempt, (col, len)) = (self.exempt(), (piece.col, piece.len));
            let found = parity::check(&self.m, zone, col, len, &exempt, &mut scratch);
            drop(held);
            // A page that cannot be read bears nothing out.
            if found.map_or(true, |found| !found.is_empty()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
