//! The changes of one commit: the record that describes them, and what to do to the medium after
//! the record is durable.

use holdfast_codes::{delta_words, xor_delta};
use holdfast_heap::ChunkEntry;
use holdfast_logs::RecordBuilder;
use holdfast_redundancy::ColumnId;
use holdfast_redundancy::parity::Scratch;

/// One change of bytes that are covered by the record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    /// Where, in the pool.
    pub(crate) at: u64,
    /// How many bytes.
    pub(crate) len: u32,
    /// Where the new bytes are in the record.
    pub(crate) payload: usize,
    /// Where old XOR new is in `Batch::delta`.
    pub(crate) delta: usize,
    /// Whether the old bytes are anybody's: the difference is made when they are overwritten.
    pub(crate) free: bool,
}

/// A part of a write that lies in one page of one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// Number of the zone.
    pub(crate) zone: u32,
    /// Row of the zone.
    pub(crate) row: u32,
    /// First column.
    pub(crate) col: u64,
    /// Where old XOR new is in `Batch::delta`.
    pub(crate) delta: usize,
    /// How many bytes.
    pub(crate) len: usize,
}

/// A commit being prepared. Kept per lane; its buffers keep their capacity.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The record.
    pub(crate) builder: RecordBuilder,
    /// Changes carried by the record.
    pub(crate) writes: Vec<Write>,
    /// Their parts, of the first `placed` of them.
    pub(crate) parts: Vec<Part>,
    /// Writes whose parts are known.
    pub(crate) placed: usize,
    /// Old XOR new of what was compared. What lies behind `delta_end` is left over from earlier
    /// batches.
    pub(crate) delta: Vec<u8>,
    delta_end: usize,
    /// Ranges that become log chunks: their bytes leave parity.
    pub(crate) exempts: Vec<(u64, u64)>,
    /// Directory entries to make known while the columns are still held.
    pub(crate) publish: Vec<(u8, u32, ChunkEntry)>,
    /// Whether its last drain may be put off.
    pub(crate) put_off: bool,
    /// Columns touched.
    pub(crate) columns: Vec<ColumnId>,
    /// Buffers for parity.
    pub(crate) scratch: Scratch,
}

impl Batch {
    /// Empties the batch.
    pub(crate) fn clear(&mut self) {
        self.builder.clear();
        self.writes.clear();
        self.parts.clear();
        self.placed = 0;
        self.delta_end = 0;
        self.exempts.clear();
        self.publish.clear();
        self.put_off = false;
        self.columns.clear();
    }

    /// Adds a change of `old` to `new` (equally long, not longer than a record) at `at`. `old`
    /// must be verified bytes: parity is patched by the difference.
    #[inline]
    pub(crate) fn data(&mut self, at: u64, old: &[u8], new: &[u8]) {
        let payload = self.builder.data(at, new);
        self.push(at, payload, old, new);
    }

    /// Adds a change to `new` (not longer than a record) of bytes at `at` that no sum covers. What
    /// was read of them may have been damaged since, and parity made to agree with that: only what
    /// is there when they are overwritten tells the difference.
    #[inline]
    pub(crate) fn free_data(&mut self, at: u64, new: &[u8]) {
        let payload = self.builder.data(at, new);
        self.push_free(at, payload, new.len());
    }

    /// As [`free_data`](Self::free_data), for a slot.
    #[inline]
    pub(crate) fn free_slot(&mut self, at: u64, new: &[u8; 16]) {
        let payload = self.builder.slot(at, new);
        self.push_free(at, payload, new.len());
    }

    #[inline]
    fn push_free(&mut self, at: u64, payload: usize, len: usize) {
        let delta = self.room(len);
        self.writes.push(Write { at, len: len as u32, payload, delta, free: true });
    }

    /// Adds a change of a slot.
    #[inline]
    pub(crate) fn slot(&mut self, at: u64, old: &[u8; 16], new: &[u8; 16]) {
        let payload = self.builder.slot(at, new);
        self.push(at, payload, old, new);
    }

    /// Adds a range that stops counting in parity. Recovery recomputes parity there.
    pub(crate) fn exempt(&mut self, at: u64, len: u64) {
        self.builder.fresh(at, len);
        self.exempts.push((at, len));
    }

    /// Keeps `old` XOR `new` (equally long), and sets a bit in `words` for each word that differs.
    /// Answers where it is kept, for [`changed`](Self::changed).
    #[inline]
    pub(crate) fn compare(&mut self, old: &[u8], new: &[u8], words: &mut [u8]) -> usize {
        let delta = self.room(new.len());
        delta_words(&mut self.delta[delta..delta + new.len()], old, new, words);
        delta
    }

    /// Gives back what the last [`compare`](Self::compare) kept at `delta`: nothing differed.
    #[inline]
    pub(crate) fn forget(&mut self, delta: usize) {
        self.delta_end = delta;
    }

    /// Adds a change to `new` at `at` whose difference is kept at `delta`.
    #[inline]
    pub(crate) fn changed(&mut self, at: u64, new: &[u8], delta: usize) {
        let payload = self.builder.data(at, new);
        self.writes.push(Write { at, len: new.len() as u32, payload, delta, free: false });
    }

    /// As [`changed`](Self::changed), for bytes that may go on where the last change ended: those
    /// become one.
    #[inline]
    pub(crate) fn changed_on(&mut self, at: u64, new: &[u8], delta: usize) {
        if self.placed < self.writes.len()
            && let Some(last) = self.writes.last_mut().filter(|last| !last.free)
            && (last.at + u64::from(last.len), last.delta + last.len as usize) == (at, delta)
            && self.builder.extend_data(last.payload, last.len as usize, new)
        {
            last.len += new.len() as u32;
            return;
        }
        self.changed(at, new, delta);
    }

    #[inline]
    fn push(&mut self, at: u64, payload: usize, old: &[u8], new: &[u8]) {
        let delta = self.room(new.len());
        xor_delta(&mut self.delta[delta..delta + new.len()], old, new);
        self.writes.push(Write { at, len: new.len() as u32, payload, delta, free: false });
    }

    /// Room for a difference of `len` bytes, with anything in it.
    #[inline]
    fn room(&mut self, len: usize) -> usize {
        let (start, end) = (self.delta_end, self.delta_end + len);
        if end > self.delta.len() {
            self.delta.resize(end.next_power_of_two(), 0);
        }
        self.delta_end = end;
        start
    }

    /// Whether there is nothing to commit.
    pub(crate) fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }
}
