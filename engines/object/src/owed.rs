//! Commits that met a media error after their records were durable: they must be completed,
//! whatever went bad under them, and until they are nobody judges a column.

use holdfast_pmem::{MediaCause, Medium, PAGE, Site};
use holdfast_redundancy::ColumnId;
use holdfast_redundancy::events::{Cause, Finder};
use holdfast_sync::PoisonError;
use holdfast_sync::atomic::Ordering;
use std::collections::BTreeSet;

use crate::batch::Batch;
use crate::changes::Changes;
use crate::error::Error;
use crate::mend_unit::{first_of, parts_of};
use crate::redo::Redo;
use crate::shared::{Repairer, Shared};

/// A commit is owed, and its columns are free.
const STEP_OWED: Site = Site::new("object.owed.step-owed");

/// Pages relocated for the sake of one commit before it is given up.
const RELOCATIONS_MAX: u32 = 64;

/// What became of a commit whose record is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applied {
    /// It is stored, and drained.
    Stored,
    /// It is stored, and its drain is put off.
    PutOff,
    /// It could not be stored: the next open does that. What it changes is held until then, and its
    /// number is not done, so that no watermark passes its record.
    Unstored,
}

/// What a commit changes that met a media error after its record was durable.
#[derive(Debug)]
pub(crate) struct Owed {
    changes: Changes,
    /// Ranges that become log chunks.
    exempts: Vec<(u64, u64)>,
}

impl<M: Medium> Shared<M> {
    /// Notes what a commit changes that met a media error after its record was durable. Its
    /// columns are still held: from now on nobody judges any column until it is completed.
    pub(crate) fn owe(&self, batch: &Batch) {
        let mut changes = Changes::default();
        for write in &batch.writes {
            changes.put(write.at, batch.builder.payload(write.payload, write.len as usize));
        }
        for (at, len) in &batch.exempts {
            changes.touch(*at, *len);
        }
        self.redoing.begin();
        for (zone, chunk, entry) in &batch.publish {
            self.heap.publish(*zone, *chunk, entry);
        }
        let exempts = batch.exempts.clone();
        self.owed.lock().unwrap_or_else(PoisonError::into_inner).push(Owed { changes, exempts });
    }

    /// Waits until no commit is owed. To be called by whoever has taken a free chunk, before
    /// anything is stored there or in its entry: the commit that freed it may be owed. Its chunk is
    /// known as free all the same, since a redo judges by what will be; and then its record is
    /// stored once more, over whatever came to be there.
    pub(crate) fn await_owed(&self) {
        while self.redoing.any() {
            holdfast_sync::thread::yield_now();
        }
    }

    fn take_owed(&self) -> Vec<Owed> {
        core::mem::take(&mut *self.owed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Completes all commits that met a media error: each may have left the columns of the others
    /// half patched, so they are completed together. Recomputing their parity ends with a drain,
    /// which is their F2. No columns are held: relocation needs them all. The version words of
    /// these commits still are.
    ///
    /// False if that cannot be: then the medium holds what was before them, or a part of them.
    /// Their version words stay held, so nobody is served that; the pool has stopped writing.
    #[must_use]
    pub(crate) fn complete_owed(&self) -> bool {
        self.m.step(STEP_OWED);
        let mut repairer = self.repairer_now();
        let mut owed = self.take_owed();
        if owed.is_empty() {
            // Somebody else's completion took this one along, for good or ill.
            return !self.is_unstored();
        }
        repairer.completes = true;
        let done = self.redo_owed(&mut repairer, &mut owed);
        repairer.completes = false;
        if done.is_err() {
            // Neither healed nor moved: what is lost is on the medium's own account, the records
            // are durable, and the next open replays them. Until then nothing more is written.
            self.unstored.store(true, Ordering::Release);
            self.stop_writing();
        }
        self.redoing.done(owed.len() as u64);
        !self.is_unstored()
    }

    /// Whether a commit that was answered is in the log alone: what it changes cannot be had before
    /// the pool is opened anew.
    pub(crate) fn is_unstored(&self) -> bool {
        self.unstored.load(Ordering::Acquire)
    }

    /// The columns of what a redo of these changes may judge and store: they, and all parts of the
    /// units over pages of their columns, which may lie elsewhere.
    fn columns_to_redo(&self, changes: &Changes) -> Vec<ColumnId> {
        let mut all = BTreeSet::from_iter(self.columns_of(changes.ranges()));
        for zone in self.zones() {
            let mut pages = BTreeSet::new();
            for (col, len) in changes.columns(zone) {
                pages.extend((col / PAGE * PAGE..col + len).step_by(PAGE as usize));
            }
            for page in pages {
                let mut ranges = Vec::new();
                self.units_of_columns(zone, (page, PAGE), &mut |unit| {
                    let parts = parts_of(&unit).into_iter().chain(first_of(&unit));
                    ranges.extend(parts.map(|part| (part.at, part.len)));
                });
                all.extend(self.columns_of(&ranges));
            }
        }
        all.into_iter().collect()
    }

    /// The redo of `owed`, and of what joins it, while their columns are held. A page that has to
    /// be relocated on the way is, once they are released, since that takes all columns of its
    /// frame; then all is done again.
    fn redo_owed(&self, repairer: &mut Repairer, owed: &mut Vec<Owed>) -> Result<(), Error> {
        let mut relocations = 0;
        loop {
            let mut changes = Changes::default();
            for one in owed.iter() {
                one.changes.pieces().for_each(|(at, bytes)| changes.put(at, bytes));
                one.changes.ranges().iter().for_each(|(at, len)| changes.touch(*at, *len));
            }
            let mut was_exempt = self.log_ranges();
            was_exempt.retain(|range| !owed.iter().any(|one| one.exempts.contains(range)));
            let columns = self.columns_to_redo(&changes);
            self.columns.lock_all(&self.m, &columns);
            let joined = self.take_owed();
            // Units may have come about since.
            let now = self.columns_to_redo(&changes);
            if !joined.is_empty() || now.iter().any(|id| columns.binary_search(id).is_err()) {
                self.columns.unlock_all(&columns);
                owed.extend(joined);
                continue;
            }
            let redo = Redo { changes: &changes, was_exempt: &was_exempt, finder: Finder::Commit };
            repairer.holds_columns = true;
            let done = self.redo(repairer, &redo);
            repairer.holds_columns = false;
            // Parity over them was made from the rows as they are.
            self.believe_what_adds_up(Some(&columns));
            self.columns.unlock_all(&columns);
            match done {
                Err(Error::Media(e))
                    if matches!(e.cause, MediaCause::Unclearable | MediaCause::NoSpace)
                        && relocations < RELOCATIONS_MAX =>
                {
                    relocations += 1;
                    let event = self.event(Cause::MediaError, Finder::Commit, e.at, PAGE);
                    // If it cannot move after all, the next round serves it from memory.
                    if let Some(mended) = self.moved(repairer, e.at, None, Finder::Commit)? {
                        self.report_mended(event, mended);
                    }
                }
                other => return other.map(|_| ()),
            }
        }
    }
}
