//! Read-only check of a whole table: every pointer, every path, every hash.

use holdfast_layout::{Ptr, RawPtr};
use holdfast_txn::{Result, Transaction};

use super::{HASH_BITS, HashTable, as_directory, first_bits};
use crate::entry::EntryBuf;
use crate::format::{DIRECTORY_BITS, DIRECTORY_WORDS, HashDirectory, HashLeaf, HashSlot};
use crate::report::{CheckReport, Checker};
use crate::sip;

/// A walk over everything.
struct Walk<'t, T> {
    tx: &'t T,
    seed: [u64; 2],
    checker: Checker,
    buf: EntryBuf,
}

impl HashTable {
    /// Checks the table: that every word leads where its place says, every slot's hash is its
    /// key's, no key is there twice, and no object is reached twice. Damage beyond repair is a
    /// finding, not an error.
    ///
    /// # Errors
    /// Only those that may pass when the transaction runs again.
    pub fn check<T: Transaction>(&self, tx: &T) -> Result<CheckReport> {
        let mut checker = Checker::default();
        checker.meet(self.header.raw(), "header");
        let Some(header) = checker.readable(self.header.raw(), tx.read(self.header))? else {
            return Ok(checker.finish());
        };
        let mut walk = Walk { tx, seed: header.seed, checker, buf: EntryBuf::new() };
        walk.word(header.root, 0, 0)?;
        Ok(walk.checker.finish())
    }
}

impl<T: Transaction> Walk<'_, T> {
    /// Checks what a word leads to; hashes there start with the first `base` bits of `path`.
    /// Returns how many words of its directory lead to the same.
    fn word(&mut self, word: u64, path: u64, base: u32) -> Result<usize> {
        let Some(directory) = as_directory(word) else {
            return self.leaf(RawPtr::from_word(word).typed(), path, base);
        };
        if base == HASH_BITS {
            self.checker.find(format!("directory {directory} is for bits that hashes lack"));
        } else if self.checker.meet(directory, "directory") {
            let read = self.tx.read(directory.typed::<HashDirectory>());
            if let Some(content) = self.checker.readable(directory, read)? {
                self.directory(directory, &content, path, base + DIRECTORY_BITS)?;
            }
        }
        Ok(1)
    }

    fn directory(
        &mut self,
        place: RawPtr,
        content: &HashDirectory,
        path: u64,
        base: u32,
    ) -> Result<()> {
        let mut index = 0;
        while index < DIRECTORY_WORDS {
            let word = content.words[index];
            let below = path | (index as u64) << (HASH_BITS - base);
            let count = self.word(word, below, base)?;
            let same = content.words[index..].iter().take(count);
            let together = same.filter(|other| **other == word).count() == count;
            self.checker.expect(together, || {
                format!("directory {place} word {index}: not all {count} lead to the same leaf")
            });
            index += count;
        }
        Ok(())
    }

    fn leaf(&mut self, first: Ptr<HashLeaf>, path: u64, base: u32) -> Result<usize> {
        let Some(leaf) = self.read_leaf(first)? else { return Ok(1) };
        if leaf.check_place(path, base).is_err() || leaf.path != path {
            self.checker.find(format!(
                "leaf {:?} is for {:#x}/{}, found at {path:#x}/{base}",
                first, leaf.path, leaf.depth
            ));
            return Ok(1);
        }
        let mut known: Vec<HashSlot> = Vec::new();
        let (mut at, mut content) = (first, leaf);
        loop {
            self.slots(at, &content, &mut known)?;
            if content.next.is_null() {
                break;
            }
            at = content.next;
            let Some(next) = self.read_leaf(at)? else { break };
            let fits = content.depth == HASH_BITS && next.depth == HASH_BITS;
            if !fits || next.path != content.path || next.ordinal <= content.ordinal {
                self.checker.find(format!("leaf {at:?} does not belong to its chain"));
                break;
            }
            content = next;
        }
        Ok(1 << (base - leaf.depth))
    }

    fn read_leaf(&mut self, at: Ptr<HashLeaf>) -> Result<Option<HashLeaf>> {
        if !self.checker.meet(at.raw(), "leaf") {
            return Ok(None);
        }
        let read = self.tx.read(at);
        self.checker.readable(at.raw(), read)
    }

    /// Checks the slots of a leaf; `known` are those of the leaves before it in its chain.
    fn slots(
        &mut self,
        at: Ptr<HashLeaf>,
        leaf: &HashLeaf,
        known: &mut Vec<HashSlot>,
    ) -> Result<()> {
        for slot in leaf.entries() {
            if !self.checker.meet(slot.entry, "entry") {
                continue;
            }
            let loaded = self.buf.load(self.tx, slot.entry);
            if self.checker.readable(slot.entry, loaded)?.is_none() {
                continue;
            }
            self.checker.entry();
            let mut key = Vec::new();
            let read = self.buf.key_into(self.tx, &mut key);
            if self.checker.readable(slot.entry, read)?.is_none() {
                continue;
            }
            let fits = sip::hash(self.seed, &key) == slot.hash;
            let belongs = first_bits(slot.hash, leaf.depth) == leaf.path;
            self.checker.expect(fits && belongs, || {
                format!("entry {} in leaf {at:?} is filed under a wrong hash", slot.entry)
            });
            for twin in known.iter().filter(|twin| twin.hash == slot.hash) {
                let loaded = self.buf.load(self.tx, twin.entry);
                let same = loaded.and_then(|()| self.buf.is(self.tx, &key));
                let same = self.checker.readable(twin.entry, same)?.unwrap_or(false);
                self.checker.expect(!same, || {
                    format!("entries {} and {} have the same key", twin.entry, slot.entry)
                });
            }
            known.push(*slot);
        }
        Ok(())
    }
}
