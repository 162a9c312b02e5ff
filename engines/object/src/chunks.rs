//! System transactions: chunks change their kind by small commits of their own, on a lane kept
//! for them, whatever becomes of the transaction that needed them.

use holdfast_sync::PoisonError;

use holdfast_heap::format::{CHUNK_LEN, SLOT_LEN};
use holdfast_heap::{ChunkEntry, ChunkKind, ZoneTable};
use holdfast_pmem::{Medium, Site};
use holdfast_redundancy::events::{Cause, Finder};
use holdfast_redundancy::{Zone, parity};
use holdfast_txn::{Result, TxError};

use crate::batch::Batch;
use crate::error::Error;
use crate::owed::Applied;
use crate::shared::{SYSTEM_LANE, Shared};
use crate::tx::damaged;

/// Entries of a new zone's directory.
const DIRECTORY: Site = Site::new("object.chunks.directory");
/// Their parity.
const DIRECTORY_PARITY: parity::ParitySites = parity::ParitySites {
    p: Site::new("object.chunks.directory-p"),
    q: Site::new("object.chunks.directory-q"),
};
/// Making them durable.
const DIRECTORY_DONE: Site = Site::new("object.chunks.directory-done");
/// The same on a file.
const DIRECTORY_SYNC: Site = Site::new("object.chunks.directory-sync");
/// Sums of the entries of a new zone, of an entry that changes, of the slots of a run.
const VIRGIN_SUMS: Site = Site::new("object.chunks.virgin-sums");
const ENTRY_SUM: Site = Site::new("object.chunks.entry-sum");
const SLOT_SUMS: Site = Site::new("object.chunks.slot-sums");
/// The slots of a chunk are on the medium, and it is free space to everybody.
const STEP_SLOTS: Site = Site::new("object.chunks.step-slots");
/// They are known as slots, and not by the medium yet.
const STEP_SHOWN: Site = Site::new("object.chunks.step-shown");
/// Comparing the slots of a run before they are known as such.
const LOOK_AGAIN: Site = Site::new("object.chunks.look-again");

/// How often slots are stored again that were hit before they were known.
const LOOKS: u32 = 8;

impl<M: Medium> Shared<M> {
    /// Writes the directory of a new, all-zero zone: every chunk free. Nothing refers to the zone
    /// yet, so the order of the stores does not matter; they are durable on return.
    pub(crate) fn format_directory(
        &self,
        table: &ZoneTable,
        zone: &Zone,
    ) -> core::result::Result<(), Error> {
        let mut scratch = parity::Scratch::new();
        let each = (4096 / CHUNK_LEN) as u32;
        for first in (0..table.chunks()).step_by(each as usize) {
            let mut block = Vec::with_capacity(4096);
            for chunk in first..table.chunks().min(first + each) {
                let at = table.entry_at(chunk);
                let mut entry = ChunkEntry::VIRGIN.encode(self.heap.sums(), at);
                if !self.m.enabled(VIRGIN_SUMS) {
                    entry[..4].fill(0);
                }
                block.extend_from_slice(&entry);
            }
            let at = table.entry_at(first);
            self.m.put(DIRECTORY, at, &block)?;
            if zone.has_p() {
                // What was there is zero, so the difference is what is there now.
                parity::patch(&self.m, zone, at, &block, &mut scratch, DIRECTORY_PARITY)?;
            }
        }
        if self.is_file() {
            self.m.sync(DIRECTORY_SYNC)?;
        } else {
            self.m.drain(DIRECTORY_DONE);
        }
        Ok(())
    }

    /// Makes a free chunk a run of `class`.
    pub(crate) fn format_run(&self, class: u8) -> Result<()> {
        let (zone, chunk, before) = loop {
            match self.heap.claim_chunk() {
                Some(claimed) => break claimed,
                None if self.recycle_run()? => {}
                None => {
                    let chunk = self.heap.zones().next().map_or(0, |z| z.chunk_len());
                    return Err(TxError::NoSpace { wanted: chunk });
                }
            }
        };
        self.await_owed();
        let next = before.next(ChunkKind::Run, class, 0);
        match self.write_run(zone, chunk, &before, &next) {
            Ok(()) => {
                self.heap.publish(zone, chunk, &next);
                Ok(())
            }
            Err(error) => {
                // Records of slots may be durable: nobody may write there unlogged before they are
                // complete.
                self.note_freed(self.numbers.next() - 1);
                self.put_back(zone, chunk, &before);
                Err(error)
            }
        }
    }

    /// Writes the slots of a run, all free, then its directory entry. While the entry says free,
    /// so are the bytes: the slots may take as many commits as the log likes. Damage to free bytes
    /// is no damage, and a repair takes it into parity; so the run is made known only once its
    /// slots are seen to be what was written, and from then on they are judged.
    fn write_run(
        &self,
        zone: u8,
        chunk: u32,
        before: &ChunkEntry,
        next: &ChunkEntry,
    ) -> Result<()> {
        let table = self.table(zone)?;
        let shape = table.shape(next.class).ok_or(TxError::NoSpace { wanted: 0 })?;
        let first = |place| {
            let object = table.spot(chunk, next, &shape, place).object;
            let mut slot = self.heap.sums().first_slot(object, next.generation);
            if !self.m.enabled(SLOT_SUMS) {
                slot.sum = 0;
            }
            slot.encode()
        };
        let slots: Vec<u8> = (0..shape.places).flat_map(first).collect();
        let at = table.chunk_at(chunk);
        self.write_slots(at, &slots, true)?;
        self.m.step(STEP_SLOTS);
        let mut looks = 0;
        while !self.show_if_there((zone, chunk, next), at, &slots) {
            self.write_slots(at, &slots, false)?;
            // What was hit and is not in parity yet went into it now, by the difference.
            self.suspect(at, slots.len() as u64, Cause::Parity, Finder::Commit);
            looks += 1;
            if looks == LOOKS {
                // They do not stay. What hits them is judged from here on, and told.
                self.heap.show_run(zone, chunk, next);
                break;
            }
        }
        self.m.step(STEP_SHOWN);
        self.system_commit(|batch| self.change_entry(batch, zone, chunk, before, next))?;
        Ok(())
    }

    /// Stores slots, a commit for as many as a record takes: all, or those that differ.
    fn write_slots(&self, at: u64, slots: &[u8], all: bool) -> Result<()> {
        let step = (self.log.max_record_len() / 2 / SLOT_LEN).clamp(1, 256) * SLOT_LEN;
        let mut old = vec![0; step.min(slots.len())];
        for (i, new) in slots.chunks(step).enumerate() {
            let at = at + (i * step) as u64;
            let old = &mut old[..new.len()];
            // A page that is bad is better found now than when the record is durable.
            self.m.read(at, old).map_err(damaged)?;
            if all || old != new {
                self.system_commit(|batch| {
                    batch.free_data(at, new);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Makes a run known if its slots are what was written. With their columns held: else a repair
    /// could take what hits them for free bytes, after they were looked at and before it knows.
    fn show_if_there(
        &self,
        (zone, chunk, next): (u8, u32, &ChunkEntry),
        at: u64,
        slots: &[u8],
    ) -> bool {
        let columns = self.columns_of(&[(at, slots.len() as u64)]);
        let mut found = vec![0; slots.len()];
        self.columns.lock_all(&self.m, &columns);
        let there = !self.m.enabled(LOOK_AGAIN)
            || self.m.read(at, &mut found).is_ok_and(|()| found == slots);
        if there {
            self.heap.show_run(zone, chunk, next);
        }
        self.columns.unlock_all(&columns);
        there
    }

    /// Frees the chunk of a run without objects. Whether there was one.
    pub(crate) fn recycle_run(&self) -> Result<bool> {
        let Some((zone, chunk, before)) = self.heap.claim_empty_run(&self.m) else {
            return Ok(false);
        };
        let next = before.next(ChunkKind::Free, 0, 0);
        match self.system_commit(|b| self.change_entry(b, zone, chunk, &before, &next)) {
            Ok(number) => {
                self.note_freed(number);
                self.heap.publish(zone, chunk, &next);
                Ok(true)
            }
            Err(error) => {
                self.put_back(zone, chunk, &before);
                self.heap.forget_run(zone, chunk);
                Err(error)
            }
        }
    }

    /// The table of a zone that chunks were taken from.
    ///
    /// # Errors
    /// There is no such zone.
    pub(crate) fn table(&self, zone: u8) -> Result<&ZoneTable> {
        self.heap.zone(zone).ok_or(TxError::NoSpace { wanted: 0 })
    }

    /// A chunk that was taken is what it was.
    fn put_back(&self, zone: u8, chunk: u32, before: &ChunkEntry) {
        if let Some(table) = self.heap.zone(zone) {
            table.set(chunk, before);
        }
    }

    /// Adds the change of a directory entry. What it is was verified when it became known; what the
    /// medium has by now is overwritten whole, and parity changes by what it was.
    pub(crate) fn change_entry(
        &self,
        batch: &mut Batch,
        zone: u8,
        chunk: u32,
        before: &ChunkEntry,
        next: &ChunkEntry,
    ) -> Result<()> {
        let (at, sums) = (self.table(zone)?.entry_at(chunk), self.heap.sums());
        let mut next = next.encode(sums, at);
        if !self.m.enabled(ENTRY_SUM) {
            next[..4].fill(0);
        }
        batch.data(at, &before.encode(sums, at), &next);
        Ok(())
    }

    /// Runs a commit on the system lane. Returns its number.
    pub(crate) fn system_commit(
        &self,
        prepare: impl FnOnce(&mut Batch) -> Result<()>,
    ) -> Result<u64> {
        if self.is_read_only() {
            return Err(TxError::ReadOnly);
        }
        let mut batch = self.system.lock().unwrap_or_else(PoisonError::into_inner);
        batch.clear();
        prepare(&mut batch)?;
        let mut log = self.hold_log(SYSTEM_LANE);
        let _gate = crate::commit::WriteGate::open(&self.m);
        let (number, held) = self.write_fitting(&mut log, &mut batch)?;
        if self.apply(&mut batch, held, || {}, || {}, || {}) != Applied::Unstored {
            self.complete(&log);
        }
        Ok(number)
    }
}
