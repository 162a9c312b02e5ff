//! Walking a whole table: in order of hashes, which is the order of leaves.
//!
//! A walk goes from leaf to leaf by looking up where the next path starts, so it can stop and go
//! on in another transaction, and cannot run in circles: paths only rise.

use holdfast_layout::RawPtr;
use holdfast_txn::{Result, Transaction};

use super::{HASH_BITS, HashTable, as_directory, leaf_word};
use crate::entry::EntryBuf;
use crate::format::{DIRECTORY_BITS, HashDirectory, HashLeaf};

impl HashTable {
    /// Number of entries. There is no counter, which every insertion would have to change: all
    /// leaves are read, about one for 20 entries.
    ///
    /// # Errors
    /// See the type.
    pub fn len<T: Transaction>(&self, tx: &T) -> Result<u64> {
        let mut count = 0;
        let mut from = Some(0);
        while let Some(path) = from {
            from = self.each_leaf_at(tx, path, |leaf| {
                count += leaf.entries().count() as u64;
                Ok(())
            })?;
        }
        Ok(count)
    }

    /// Whether there is no entry. Stops at the first one.
    ///
    /// # Errors
    /// See the type.
    pub fn is_empty<T: Transaction>(&self, tx: &T) -> Result<bool> {
        let mut from = Some(0);
        while let Some(path) = from {
            let mut count = 0;
            from = self.each_leaf_at(tx, path, |leaf| {
                count += leaf.entries().count();
                Ok(())
            })?;
            if count > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Calls `visit` with the key and value of every entry, in no useful order.
    ///
    /// # Errors
    /// See the type, and whatever `visit` returns.
    pub fn for_each<T: Transaction>(
        &self,
        tx: &T,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut from = Some(0);
        while let Some(path) = from {
            from = self.scan(tx, path, 1, &mut visit)?;
        }
        Ok(())
    }

    /// Visits part of the entries: start with `from` = 0, go on with what the call before
    /// returned, until it returns `None`. At least `limit` entries are visited per call if there
    /// are as many, and at most those of one leaf more. Calls may be in different transactions:
    /// entries that are there all the time are visited exactly once.
    ///
    /// # Errors
    /// See the type, and whatever `visit` returns.
    pub fn scan<T: Transaction>(
        &self,
        tx: &T,
        from: u64,
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<Option<u64>> {
        let mut buf = EntryBuf::new();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut seen = 0;
        let mut next = Some(from);
        while let Some(path) = next
            && seen < limit.max(1)
        {
            next = self.each_leaf_at(tx, path, |leaf| {
                // A leaf that was merged since the last call holds entries seen before.
                for slot in leaf.entries().filter(|slot| slot.hash >= from) {
                    buf.load(tx, slot.entry)?;
                    buf.key_into(tx, &mut key)?;
                    buf.value_into(tx, &mut value)?;
                    seen += 1;
                    visit(&key, &value)?;
                }
                Ok(())
            })?;
        }
        Ok(next)
    }

    /// Removes all entries.
    ///
    /// # Errors
    /// See the type.
    pub fn clear<T: Transaction>(&self, tx: &T) -> Result<()> {
        let header = tx.read(self.header)?;
        free_below(tx, header.root, 0)?;
        let root = leaf_word(tx.alloc(HashLeaf::empty(0, 0))?)?;
        tx.update(self.header, |header| header.root = root)
    }

    /// Frees the table with everything in it. Its pointer dangles afterwards.
    ///
    /// # Errors
    /// See the type.
    pub fn destroy<T: Transaction>(self, tx: &T) -> Result<()> {
        let header = tx.read(self.header)?;
        free_below(tx, header.root, 0)?;
        tx.free(self.header.raw())
    }

    /// Calls `visit` with the leaf for `hash` and all chained to it; returns the path of the next
    /// leaf.
    fn each_leaf_at<T: Transaction>(
        &self,
        tx: &T,
        hash: u64,
        mut visit: impl FnMut(&HashLeaf) -> Result<()>,
    ) -> Result<Option<u64>> {
        let root = tx.read(self.header)?.root;
        let (_, mut leaf) = self.locate(tx, root, hash)?;
        let next = match leaf.depth {
            0 => None,
            depth => leaf.path.checked_add(1 << (HASH_BITS - depth)),
        };
        loop {
            visit(&leaf)?;
            if leaf.next.is_null() {
                return Ok(next);
            }
            leaf = leaf.follow(tx)?;
        }
    }
}

/// Frees what a word leads to. A structure that meets itself is found out by freeing twice.
fn free_below<T: Transaction>(tx: &T, word: u64, base: u32) -> Result<()> {
    if let Some(directory) = as_directory(word).filter(|_| base < HASH_BITS) {
        let words = tx.read(directory.typed::<HashDirectory>())?.words;
        let mut before = 0;
        for word in words {
            // Words that lead to the same leaf are next to each other.
            if word != before {
                free_below(tx, word, base + DIRECTORY_BITS)?;
            }
            before = word;
        }
        return tx.free(directory);
    }
    let mut at = RawPtr::from_word(word);
    while !at.is_null() {
        let leaf = tx.read(at.typed::<HashLeaf>())?;
        for slot in leaf.entries() {
            tx.free(slot.entry)?;
        }
        tx.free(at)?;
        at = leaf.next.raw();
    }
    Ok(())
}
