//! How a table shrinks: a leaf with few entries takes in its other half, and a directory that one
//! leaf fills goes away.

use holdfast_layout::{Ptr, RawPtr, bytemuck};
use holdfast_txn::{Result, Transaction, TxError};

use super::split::{buddy_word, fill};
use super::{
    HASH_BITS, HashTable, Seek, Spot, as_directory, first_bits, index_of, leaf_word, write_word,
};
use crate::format::{DIRECTORY_BITS, HashLeaf, LEAF_NEXT, LEAF_SLOTS};

/// Two halves with this many entries together become one: half a leaf, so that it takes as many
/// insertions again before it splits.
const MERGE_MAX: usize = LEAF_SLOTS / 2;
/// Looking at the other half costs a read: it is done when a removal leaves this many, or none.
const LOOK_EVERY: usize = 4;

impl HashTable {
    /// Gives back what is no longer needed after the entry that `seek` had found was removed.
    pub(super) fn shrink<T: Transaction>(&self, tx: &T, hash: u64, seek: &Seek) -> Result<()> {
        let left = seek.last.entries().count().saturating_sub(1);
        if seek.last.ordinal > 0 && left == 0 {
            self.unchain(tx, hash, seek)?;
        }
        if left > MERGE_MAX / 2 + 1 || !left.is_multiple_of(LOOK_EVERY) {
            return Ok(());
        }
        for _ in 0..HASH_BITS {
            if !self.merge(tx, hash)? {
                break;
            }
        }
        Ok(())
    }

    /// Merges the leaf of a hash with its other half if both fit; returns whether they did.
    fn merge<T: Transaction>(&self, tx: &T, hash: u64) -> Result<bool> {
        let root = tx.read(self.header)?.root;
        let (spot, leaf) = self.locate(tx, root, hash)?;
        if leaf.depth == 0 {
            return Ok(false);
        }
        let word = buddy_word(tx, &spot, &leaf)?;
        if as_directory(word).is_some() {
            return Ok(false);
        }
        let other: Ptr<HashLeaf> = RawPtr::from_word(word).typed();
        let buddy = tx.read(other)?;
        let bit = 1 << (HASH_BITS - leaf.depth);
        if first_bits(buddy.path, leaf.depth) != leaf.path ^ bit || buddy.depth < leaf.depth {
            return Err(TxError::Inconsistent("a hash leaf is not where its path belongs"));
        }
        let together = leaf.entries().count() + buddy.entries().count();
        let chained = !leaf.next.is_null() || !buddy.next.is_null();
        if buddy.depth > leaf.depth || chained || together > MERGE_MAX {
            return Ok(false);
        }
        if leaf.path & bit == 0 {
            self.absorb(tx, &spot, leaf, (other, buddy))?;
        } else {
            self.absorb(tx, &Spot { leaf: other, ..spot }, buddy, (spot.leaf, leaf))?;
        }
        Ok(true)
    }

    /// Takes the entries of `high` into the leaf at `spot`, whose content is `low`.
    fn absorb<T: Transaction>(
        &self,
        tx: &T,
        spot: &Spot,
        mut low: HashLeaf,
        high: (Ptr<HashLeaf>, HashLeaf),
    ) -> Result<()> {
        let words = 1 << (spot.base - low.depth);
        low.depth -= 1;
        let mut moving = high.1.entries();
        for slot in low.slots.iter_mut().filter(|slot| slot.entry.is_null()) {
            *slot = moving.next().copied().unwrap_or_default();
        }
        *tx.open_mut(spot.leaf)? = low;
        tx.free(high.0.raw())?;
        let word = leaf_word(spot.leaf)?;
        if low.depth + DIRECTORY_BITS == spot.base {
            // One leaf is all that is left of the directory.
            write_word(tx, spot.parent, word)?;
            return tx.free(spot.directory);
        }
        fill(tx, spot, index_of(low.path, spot.base) + words, words, word)
    }

    /// Takes an empty leaf out of its chain.
    fn unchain<T: Transaction>(&self, tx: &T, hash: u64, seek: &Seek) -> Result<()> {
        let root = tx.read(self.header)?.root;
        let (spot, mut before) = self.locate(tx, root, hash)?;
        let mut at = spot.leaf;
        while before.next != seek.end {
            if before.next.is_null() {
                return Err(TxError::Inconsistent("a chain of hash leaves has lost one"));
            }
            at = before.next;
            before = before.follow(tx)?;
        }
        tx.write_bytes(at.raw(), LEAF_NEXT, bytemuck::bytes_of(&seek.last.next))?;
        tx.free(seek.end.raw())
    }
}
