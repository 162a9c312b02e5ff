//! System transactions: chunks change their kind by small commits of their own, on a lane kept
//! for them, whatever becomes of the transaction that needed them.

use std::sync::PoisonError;

use holdfast_heap::verify::{Direct, read_entry};
use holdfast_heap::{ChunkEntry, ChunkKind};
use holdfast_pmem::Medium;
use holdfast_txn::{Result, TxError};

use crate::batch::Batch;
use crate::commit::entry_bytes;
use crate::shared::{SYSTEM_LANE, Shared};
use crate::tx::damaged;

impl<M: Medium> Shared<M> {
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
        let next = before.next(ChunkKind::Run, class, 0);
        let table = self.heap.zone(zone).ok_or(TxError::NoSpace { wanted: 0 })?;
        let head = table.shape(class).map_or(0, |s| u64::from(s.objects));
        let at = table.chunk_at(chunk);
        // Slots and sums of the chunk's last life must not pass for objects of this one.
        let done = self.system_commit(|batch| {
            batch.zero(at, head);
            self.change_entry(batch, zone, chunk, &before, &next)
        });
        match done {
            Ok(_) => {
                self.heap.publish(zone, chunk, &next);
                Ok(())
            }
            Err(error) => {
                table.unreserve(chunk, ChunkKind::Free);
                Err(error)
            }
        }
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
                if let Some(table) = self.heap.zone(zone) {
                    table.set(chunk, &before);
                }
                self.heap.forget_run(zone, chunk);
                Err(error)
            }
        }
    }

    /// Adds the change of a directory entry; what is there is verified first.
    pub(crate) fn change_entry(
        &self,
        batch: &mut Batch,
        zone: u8,
        chunk: u32,
        before: &ChunkEntry,
        next: &ChunkEntry,
    ) -> Result<()> {
        let Some(table) = self.heap.zone(zone) else { return Ok(()) };
        let (at, sums) = (table.entry_at(chunk), self.heap.sums());
        let found = read_entry(&Direct(&self.m), sums, at).map_err(damaged)?;
        if found != Some(*before) {
            return Err(TxError::Damaged { at, len: 32 });
        }
        batch.data(at, &entry_bytes(sums, at, before), &entry_bytes(sums, at, next));
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
        let number = self.numbers.draw(&self.m, SYSTEM_LANE as usize);
        self.append(SYSTEM_LANE, number, &mut batch.builder)?;
        self.apply(&mut batch, number, || {});
        self.complete(SYSTEM_LANE, number);
        Ok(number)
    }
}
