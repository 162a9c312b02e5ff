//! Crash recovery: what a pool that was not closed has to go through before it is used.
//!
//! | found | done |
//! |---|---|
//! | a record at or below the largest watermark | nothing: it is complete |
//! | a record above it, either copy | replayed, in order of number |
//! | a torn record, or one of an older generation | nothing: it was never committed |
//! | an intent (fresh range) | parity recomputed; the bytes are free or belong to a later record |
//! | an overflow record | its entries, from either copy in the heap, replayed in its place |
//! | a page that cannot be read under a replay | rebuilt, then replayed over |
//! | log chunks | freed, once the log generation was raised |
//!
//! Everything is idempotent, and the log is left alone until the end: a crash in the middle finds
//! the same records again. The last step raises the log generation, which kills them all.

use holdfast_logs::{Entry, FoundRecord, Scan, Seed};
use holdfast_pmem::{Medium, Site};
use holdfast_redundancy::events::Finder;

use crate::error::Error;
use crate::overflow::LogChunks;
use crate::redo::{Change, Redone};
use crate::shared::{Repairer, Shared};

const STEP_REPLAYED: Site = Site::new("object.recover.step-replayed");
const STEP_PARITY: Site = Site::new("object.recover.step-parity");
/// Replaying at all.
const REPLAY: Site = Site::new("object.recover.replay");
/// Recomputing parity of what was replayed.
const PARITY: Site = Site::new("object.recover.parity");
/// Making it all durable before the records die.
const DONE: Site = Site::new("object.recover.done");
/// The same on a file.
const DONE_SYNC: Site = Site::new("object.recover.done-sync");

/// What a recovery did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Records replayed.
    pub replayed: u64,
    /// Bytes they put in place.
    pub bytes: u64,
    /// Bytes of columns whose parity was recomputed.
    pub columns: u64,
    /// Damaged units over them that were rebuilt.
    pub cured: u64,
    /// Damaged units over them that were lost.
    pub lost: u64,
}

impl<M: Medium> Shared<M> {
    /// Replays the records found, loads the heap through `load`, and makes parity right.
    ///
    /// # Errors
    /// A record cannot be replayed: nothing it depends on can be repaired.
    pub(crate) fn recover(
        &self,
        scan: &Scan,
        seed: Seed,
        load: impl FnOnce() -> Result<u64, Error>,
    ) -> Result<Recovered, Error> {
        let mut repairer = self.repairer_now();
        let mut recovered = Recovered::default();
        let mut changes = Vec::new();
        for record in scan.to_replay() {
            if self.m.enabled(REPLAY) {
                self.replay(&mut repairer, record, seed, &mut changes)?;
                recovered.replayed += 1;
            }
        }
        recovered.bytes = changes.iter().map(|c| c.len).sum();
        self.m.step(STEP_REPLAYED);
        drop(repairer);
        load()?;
        let mut redone = Redone::default();
        if self.m.enabled(PARITY) {
            redone = self.redo_parity(&mut self.repairer_now(), &changes, Finder::Open)?;
        }
        recovered.columns = redone.columns;
        recovered.cured = redone.cured;
        recovered.lost = redone.lost;
        self.m.step(STEP_PARITY);
        if self.is_file() {
            self.m.sync(DONE_SYNC)?;
        } else {
            self.m.drain(DONE);
        }
        Ok(recovered)
    }

    fn replay(
        &self,
        repairer: &mut Repairer,
        record: &FoundRecord,
        seed: Seed,
        changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        let size = self.superblock().size;
        for entry in record.entries(size) {
            let entry = entry.map_err(|_| unreadable(record.at))?;
            if let Entry::Overflow { a, b, len, crc } = entry {
                let payload = self.overflow_payload(seed, record.number, (a, b), len, crc)?;
                for entry in holdfast_logs::entries(&payload, size) {
                    let entry = entry.map_err(|_| unreadable(a))?;
                    self.replay_entry(repairer, &entry, changes)?;
                }
            } else {
                self.replay_entry(repairer, &entry, changes)?;
            }
        }
        Ok(())
    }

    fn replay_entry(
        &self,
        repairer: &mut Repairer,
        entry: &Entry<'_>,
        changes: &mut Vec<Change>,
    ) -> Result<(), Error> {
        match *entry {
            Entry::Data { at, bytes } => changes.push(self.redo_store(repairer, at, bytes)?),
            Entry::Slot { at, slot } => changes.push(self.redo_store(repairer, at, slot)?),
            Entry::Fresh { at, len } => changes.push(Change { at, delta: None, len }),
            // An overflow inside an overflow is never written.
            Entry::Overflow { a, .. } => return Err(unreadable(a)),
            Entry::Zero { at, len } => {
                self.redo_store(repairer, at, &vec![0; len as usize])?;
                changes.push(Change { at, delta: None, len });
            }
        }
        Ok(())
    }

    /// The entries of a record that overflowed, from whichever copy verifies.
    fn overflow_payload(
        &self,
        seed: Seed,
        number: u64,
        (a, b): (u64, u64),
        len: u64,
        crc: u32,
    ) -> Result<Vec<u8>, Error> {
        let mut payload = vec![0; len as usize];
        for at in [a, b] {
            if self.m.read(at, &mut payload).is_ok() && seed.overflow(number, &payload) == crc {
                return Ok(payload);
            }
        }
        Err(Error::Fatal { what: "the entries of a large transaction", at: a })
    }

    /// Frees log chunks that a crash left: no record refers to them any more.
    pub(crate) fn free_stale_log_chunks(&self) -> Result<(), Error> {
        let mut stale = Vec::new();
        for zone in self.heap.zones() {
            for chunk in 0..zone.chunks() {
                let log = |e: holdfast_heap::ChunkEntry| e.kind == holdfast_heap::ChunkKind::Log;
                if zone.entry(chunk).is_some_and(log) {
                    stale.push(LogChunks { zone: zone.index(), first: chunk, count: 1, number: 0 });
                }
            }
        }
        if !stale.is_empty() {
            self.retiring.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(stale);
            self.retire_log_chunks()?;
        }
        Ok(())
    }
}

fn unreadable(at: u64) -> Error {
    Error::Fatal { what: "a log record", at }
}
