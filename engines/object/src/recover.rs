//! Crash recovery: what a pool that was not closed has to go through before it is used.
//!
//! | found | done |
//! |---|---|
//! | a record at or below the largest watermark | nothing: it is complete |
//! | a record above it, either copy | replayed, in order of number |
//! | no copy of a record that a later one of its lane names | reported as lost |
//! | a torn record, or one of an older generation | nothing: it was never committed |
//! | an intent (fresh range) | parity recomputed; the bytes are free or belong to a later record |
//! | an overflow record | its entries, from either copy in the heap, replayed in its place |
//! | damage over the columns of a replay | rebuilt first, see `redo.rs` |
//! | log chunks | freed, once the log generation was raised |
//!
//! All records are read before anything is stored: what is damaged is judged by what the pool will
//! be, and rebuilt from what it still is. Everything is idempotent, and the log is left alone until
//! the end: a crash in the middle finds the same records again. The last step raises the log
//! generation, which kills them all.

use holdfast_heap::ChunkKind;
use holdfast_heap::format::CHUNK_LEN;
use holdfast_heap::verify::Direct;
use holdfast_heap::{BadEntry, Unit};
use holdfast_layout::Certify;
use holdfast_logs::{Entry, FoundRecord, Scan, Seed};
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_redundancy::Wrong;
use holdfast_redundancy::events::{Cause, Event, Finder};
use holdfast_txn::TxError;

use crate::changes::Changes;
use crate::error::Error;
use crate::overflow::LogChunks;
use crate::redo::{Cured, Redo};
use crate::repair::Mended;
use crate::shared::{Repairer, Shared};

const STEP_PARITY: Site = Site::new("object.recover.step-parity");
/// Replaying at all.
const REPLAY: Site = Site::new("object.recover.replay");
/// Believing only entries that the sum in their record certifies.
const VERIFY_OVERFLOW: Site = Site::new("object.recover.verify-overflow");
/// Making it all durable on a file before the records die; elsewhere recomputing parity drained.
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
    /// Bad pages and damaged units over them that were rebuilt.
    pub cured: u64,
    /// Damaged units over them that were lost, and transactions whose records were.
    pub lost: u64,
}

/// What the records of a pool that was not closed come to.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    changes: Changes,
    /// How many there are.
    records: u64,
    /// Numbers and places of those that are gone.
    missing: Vec<(u64, u64)>,
    /// Copies of entries that were damaged, beside a good one.
    damaged: Vec<Event>,
}

impl<M: Medium> Shared<M> {
    /// Reads all records that are to be replayed. Writes nothing.
    ///
    /// # Errors
    /// One cannot be read: nothing that depends on it can be repaired.
    pub(crate) fn read_records(&self, scan: &Scan, seed: Seed) -> Result<Replay, Error> {
        let mut replay = Replay { missing: scan.missing.clone(), ..Replay::default() };
        for record in scan.to_replay() {
            if self.m.enabled(REPLAY) {
                self.collect(record, seed, &mut replay)?;
                replay.records += 1;
            }
        }
        Ok(replay)
    }

    /// Loads the heap as the records make it, and completes what they say.
    ///
    /// # Errors
    /// A write or a sync fails.
    pub(crate) fn recover(&self, replay: Replay) -> Result<Recovered, Error> {
        let Replay { changes, records, missing, damaged } = replay;
        let mut recovered = Recovered { replayed: records, ..Recovered::default() };
        for (_, at) in &missing {
            // A transaction that was committed, and of which nothing is known but that.
            let event = self.event(Cause::Copies, Finder::Open, *at, PAGE);
            self.report_mended(event, Mended::Lost(Wrong::Log));
            recovered.lost += 1;
        }
        for at in self.log_pages_gone() {
            // What was committed there, if anything was, nobody knows any more.
            let event = self.event(Cause::Listed, Finder::Open, at, PAGE);
            self.report_mended(event, Mended::Lost(Wrong::Log));
            recovered.lost += 1;
        }
        for event in damaged {
            self.report_mended(event, Mended::Repaired(Wrong::Log));
        }
        let was_exempt = self.log_ranges_found();
        let redo = Redo { changes: &changes, was_exempt: &was_exempt, finder: Finder::Open };
        let mut repairer = self.repairer_now();
        let entries = self.load_future(&mut repairer, &redo)?;
        let redone = self.redo(&mut repairer, &redo)?;
        drop(repairer);
        // While some columns were half replayed, others than those in doubt may have been noted.
        self.believe_what_adds_up(None);
        recovered.bytes = changes.len();
        recovered.columns = redone.columns;
        recovered.cured = redone.cured + entries;
        recovered.lost += redone.lost.len() as u64;
        self.m.step(STEP_PARITY);
        if self.is_file() {
            self.m.sync(DONE_SYNC)?;
        }
        Ok(recovered)
    }

    /// Pages of the log, as the system lists them, of which neither copy can be read.
    fn log_pages_gone(&self) -> Vec<u64> {
        let ranges = self.m.bad_ranges();
        let pages = ranges.iter().flat_map(|(at, len)| (*at..at + len).step_by(PAGE as usize));
        let gone = |page: &u64| {
            let twin = self.log.twin(*page).filter(|twin| page < twin);
            twin.is_some_and(|twin| self.is_bad(*page) && self.is_bad(twin))
        };
        pages.filter(gone).collect()
    }

    /// Adds what a record says.
    fn collect(&self, record: &FoundRecord, seed: Seed, replay: &mut Replay) -> Result<(), Error> {
        let size = self.superblock().size;
        for entry in record.entries(size) {
            let entry = entry.map_err(|_| unreadable(record.at))?;
            if let Entry::Overflow { a, b, len, crc } = entry {
                let of = (record.number, len, crc);
                let (payload, bad) = self.overflow_payload(seed, of, (a, b))?;
                replay.damaged.extend(bad);
                for entry in holdfast_logs::entries(&payload, size) {
                    let entry = entry.map_err(|_| unreadable(a))?;
                    self.collect_entry(&entry, &mut replay.changes)?;
                }
            } else {
                self.collect_entry(&entry, &mut replay.changes)?;
            }
        }
        Ok(())
    }

    /// Adds what an entry says. A transaction changes what parity covers and nothing else: a
    /// record that names the superblock, a table, the log or parity itself was forged, and what it
    /// would overwrite may be what leads to everything.
    fn collect_entry(&self, entry: &Entry<'_>, changes: &mut Changes) -> Result<(), Error> {
        let (at, len) = match *entry {
            Entry::Data { at, bytes } => (at, bytes.len() as u64),
            Entry::Slot { at, slot } => (at, slot.len() as u64),
            Entry::Fresh { at, len } => (at, len),
            // An overflow inside an overflow is never written.
            Entry::Overflow { a, .. } => return Err(unreadable(a)),
        };
        if !self.zone_of(at).is_some_and(|zone| zone.contains_range(at, len)) {
            return Err(unreadable(at));
        }
        match *entry {
            Entry::Data { at, bytes } => changes.put(at, bytes),
            Entry::Slot { at, slot } => changes.put(at, slot),
            Entry::Fresh { .. } | Entry::Overflow { .. } => changes.touch(at, len),
        }
        Ok(())
    }

    /// The ranges of log chunks as the directory on the medium has them, ascending.
    fn log_ranges_found(&self) -> Vec<(u64, u64)> {
        let mut ranges = Vec::new();
        for table in self.heap.zones() {
            for chunk in 0..table.chunks() {
                let found = self.heap.entry_found(&Direct(&self.m), table.entry_at(chunk));
                if matches!(found, Ok(Some(entry)) if entry.kind == ChunkKind::Log) {
                    ranges.push((table.chunk_at(chunk), table.chunk_len()));
                }
            }
        }
        ranges
    }

    /// Reads the directories as they will be after the changes. Answers how many bad entries were
    /// rebuilt; the chunk of one that is lost is left alone.
    fn load_future(&self, repairer: &mut Repairer, redo: &Redo<'_>) -> Result<u64, Error> {
        let mut cured = 0;
        for table in self.heap.zones() {
            let (zone, direct) = (table.index(), Direct(&self.m));
            for BadEntry { at, .. } in self.heap.load_zone(&redo.changes.over(&direct), zone) {
                let chunk = ((at - table.entry_at(0)) / CHUNK_LEN as u64) as u32;
                let good =
                    self.cure_unit(repairer, redo, &Unit::Entry { at, chunk })? == Cured::Whole;
                let future = redo.changes.over(&direct);
                if good && self.heap.load_entry(&future, zone, chunk).is_ok() {
                    cured += 1;
                } else {
                    table.reserve_if(chunk, ChunkKind::Free);
                }
            }
        }
        Ok(cured)
    }

    /// The entries of a record that overflowed, of this number, length and sum, from whichever copy
    /// verifies; and what is wrong with the other.
    fn overflow_payload(
        &self,
        seed: Seed,
        (number, len, crc): (u64, u64, u32),
        (a, b): (u64, u64),
    ) -> Result<(Vec<u8>, Option<Event>), Error> {
        let certify = Certify::when(self.m.enabled(VERIFY_OVERFLOW));
        let read = |at| {
            let mut payload = vec![0; len as usize];
            let read = self.m.read(at, &mut payload);
            let good = read.is_ok() && certify.agrees(crc, seed.overflow(number, &payload));
            let cause = if read.is_ok() { Cause::Sum } else { Cause::MediaError };
            if good { Ok(payload) } else { Err(self.event(cause, Finder::Open, at, len)) }
        };
        // Both were durable before the record was: one that is not good was damaged since. The
        // replay makes it superfluous.
        match (read(a), read(b)) {
            (Ok(payload), other) => Ok((payload, other.err())),
            (Err(bad), Ok(payload)) => Ok((payload, Some(bad))),
            _ => Err(Error::Fatal { what: "the entries of a large transaction", at: a }),
        }
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
        if !stale.is_empty() && !self.is_read_only() {
            self.retiring
                .lock()
                .unwrap_or_else(holdfast_sync::PoisonError::into_inner)
                .extend(stale);
            match self.retire_log_chunks() {
                // Such a chunk stays what it is; it is tried again after each commit. A write that
                // failed has ended writing: the pool can be read.
                Err(TxError::Damaged { .. } | TxError::ReadOnly) => {}
                other => drop(other?),
            }
        }
        Ok(())
    }
}

fn unreadable(at: u64) -> Error {
    Error::Fatal { what: "a log record", at }
}
