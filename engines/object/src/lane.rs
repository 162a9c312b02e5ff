//! What one running transaction knows: its private copies, what it read, what it allocated.

use core::cell::{Cell, RefCell};

use holdfast_heap::{Cache, Slot, Spot};
use holdfast_txn::TxError;

use crate::batch::Batch;
use crate::versions::Version;
use crate::view::{Arena, CopyId};

/// Up to so many pieces are searched one by one; beyond, there is an index.
const FEW: usize = 8;

/// What becomes of a piece at commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// An object that existed before; its changed ranges are committed.
    Changed,
    /// An object allocated by this transaction; all of it is committed.
    Fresh,
    /// An object freed by this transaction.
    Freed,
    /// Nothing is committed: allocated and freed by this transaction, or another piece stands for
    /// it.
    Nothing,
}

/// A private copy of consecutive granules of one object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) spot: Spot,
    /// The slot as it was verified; of a fresh object, as found free.
    pub(crate) before: Slot,
    /// The slot as it will be, but for its sum.
    pub(crate) after: Slot,
    /// First granule copied.
    pub(crate) first: u64,
    /// Granules copied.
    pub(crate) count: u64,
    pub(crate) copies: CopyId,
    pub(crate) fate: Fate,
    /// Where the sums of the granules copied, as verified, start in `Work::sums`.
    pub(crate) sums: usize,
    /// Version of the object when it was copied; `None` if fresh.
    pub(crate) version: Option<Version>,
    /// Version of the place when a fresh object's bytes to be replaced were read.
    pub(crate) found_at: Option<Version>,
}

/// A declared range of an object: `(object, from, to)`.
pub(crate) type Declared = (u64, u64, u64);

/// Pieces and reads of a running transaction.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Numbers below this are seen by the transaction. Carried over from the lane's transaction
    /// before: one that is too low costs a second look at what was read so far, and asking the
    /// counter each time costs a line that all lanes write to.
    pub(crate) sees_below: u64,
    pub(crate) pieces: Vec<Piece>,
    /// Sums of copied granules as they were verified: patches start from these, never from a
    /// second read of the medium.
    pub(crate) sums: Vec<u32>,
    /// Whether an object was made or freed. A commit of neither, which most are, need not look for
    /// pieces that were.
    pub(crate) remade: bool,
    /// Pieces that do not start at their object's first granule.
    partial: usize,
    /// Rises with everything opened, written, allocated or freed, also if it was open already.
    pub(crate) changes: u64,
    index: Index,
    /// Version words read, with their versions.
    pub(crate) reads: Vec<(u32, Version)>,
    /// Declared ranges (debug mode).
    pub(crate) declared: Vec<Declared>,
    /// Highest number of a commit that may have freed what this transaction allocated.
    pub(crate) freed_before: u64,
    /// Why a part that had to be whole failed after it had changed something.
    pub(crate) doomed: Option<TxError>,
    pub(crate) cache: Cache,
}

/// State of a lane. Starts a line of its own: its thread writes to it all the time.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct LaneState {
    pub(crate) work: RefCell<Work>,
    pub(crate) arena: RefCell<Arena>,
    pub(crate) batch: RefCell<Batch>,
    pub(crate) locks: RefCell<Vec<(u32, Version)>>,
    /// The thread's last commit here was flushed and not drained.
    pub(crate) owes: Cell<bool>,
}

impl Work {
    /// Forgets the transaction; reserved places stay in the lane's cache.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.index.clear();
        self.sums.clear();
        self.remade = false;
        self.partial = 0;
        self.reads.clear();
        self.declared.clear();
        self.freed_before = 0;
        self.doomed = None;
    }

    /// A part of the transaction failed that began when there were `before` changes: if it added
    /// some, there is no whole to commit any more.
    #[cold]
    pub(crate) fn doom_if_changed(&mut self, before: u64, error: &TxError) {
        if self.changes > before {
            self.doomed.get_or_insert_with(|| error.clone());
        }
    }

    /// Adds a piece.
    pub(crate) fn add(&mut self, piece: Piece) -> usize {
        let at = self.pieces.len();
        self.changes += 1;
        self.partial += usize::from(piece.first > 0);
        self.remade |= piece.fate != Fate::Changed;
        self.pieces.push(piece);
        match at {
            0..FEW => {}
            FEW => (0..=at).for_each(|i| self.enter(i)),
            _ => self.enter(at),
        }
        at
    }

    /// Makes the piece at `whole`, just added, stand for its object instead of the pieces of parts
    /// of it that were there before, with what was written to those.
    #[cold]
    pub(crate) fn join(&mut self, whole: usize, arena: &mut Arena) {
        let Piece { spot, copies, .. } = self.pieces[whole];
        for part in self.pieces[..whole].iter_mut().filter(|p| p.spot.object == spot.object) {
            let start = (part.first * holdfast_heap::format::GRANULE) as usize;
            // Only pieces that are whole objects are lent.
            let written = arena.new_bytes(part.copies).map(<[u8]>::to_vec).unwrap_or_default();
            if let Some((_, new)) = arena.both_mut(copies) {
                new[start..start + written.len()].copy_from_slice(&written);
            }
            (part.fate, part.count) = (Fate::Nothing, 0);
        }
    }

    fn enter(&mut self, at: usize) {
        let piece = self.pieces[at];
        for granule in piece.first..piece.first + piece.count {
            self.index.insert(key(piece.spot.object, granule), at as u32);
        }
    }

    /// The piece that holds a granule of the object at `object`.
    #[inline]
    pub(crate) fn find(&self, object: u64, granule: u64) -> Option<usize> {
        if self.pieces.len() <= FEW {
            // Pieces of an object do not overlap.
            let holds =
                |p: &Piece| p.spot.object == object && granule.wrapping_sub(p.first) < p.count;
            return self.pieces.iter().position(holds);
        }
        self.index.find(key(object, granule)).map(|at| at as usize)
    }

    /// Whether the transaction may have pieces of the object; false for certain if it opened
    /// nothing, which makes read-only transactions cheap.
    #[inline]
    pub(crate) fn any_of_fast(&self, object: u64) -> bool {
        !self.pieces.is_empty() && self.any_of(object).is_some()
    }

    /// Any piece of the object, its first granule's first.
    pub(crate) fn any_of(&self, object: u64) -> Option<usize> {
        self.find(object, 0).or_else(|| {
            let partial = self.partial > 0;
            partial.then(|| self.pieces.iter().position(|p| p.spot.object == object)).flatten()
        })
    }
}

/// Objects are 64-byte aligned and granules 1 KiB long, so this is one number for each granule.
fn key(object: u64, granule: u64) -> u64 {
    object + granule * holdfast_heap::format::GRANULE
}

/// Finds a piece by the address of a granule: open addressing, emptied by raising a stamp.
#[derive(Debug)]
struct Index {
    cells: Vec<(u64, u32, u32)>,
    stamp: u32,
    len: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self { cells: vec![(0, 0, 0); 64], stamp: 1, len: 0 }
    }
}

impl Index {
    fn clear(&mut self) {
        if self.len == 0 {
            return;
        }
        self.len = 0;
        if self.cells.len() > 1 << 16 || self.stamp == u32::MAX {
            *self = Self::default();
        } else {
            self.stamp += 1;
        }
    }

    fn start(&self, key: u64) -> usize {
        let mixed = (key >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.cells.len() - 1)
    }

    fn find(&self, key: u64) -> Option<u32> {
        let mut i = self.start(key);
        loop {
            let (k, stamp, at) = self.cells[i];
            if stamp != self.stamp {
                return None;
            }
            if k == key {
                return Some(at);
            }
            i = (i + 1) & (self.cells.len() - 1);
        }
    }

    fn insert(&mut self, key: u64, at: u32) {
        if (self.len + 1) * 2 > self.cells.len() {
            let cells = vec![(0, 0, 0); self.cells.len() * 2];
            let old = core::mem::replace(&mut self.cells, cells);
            let stamp = core::mem::replace(&mut self.stamp, 1);
            self.len = 0;
            for (k, s, a) in old {
                if s == stamp {
                    self.insert(k, a);
                }
            }
        }
        let mut i = self.start(key);
        while self.cells[i].1 == self.stamp && self.cells[i].0 != key {
            i = (i + 1) & (self.cells.len() - 1);
        }
        self.len += usize::from(self.cells[i].1 != self.stamp);
        self.cells[i] = (key, self.stamp, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_finds_what_was_inserted_and_nothing_else() {
        let mut index = Index::default();
        for round in 0..3_u64 {
            for i in 0..1000_u64 {
                index.insert(i * 64, (i + round) as u32);
            }
            for i in 0..1000_u64 {
                assert_eq!(index.find(i * 64), Some((i + round) as u32));
            }
            assert_eq!(index.find(1000 * 64), None);
            index.clear();
            assert_eq!(index.find(0), None);
        }
    }
}
