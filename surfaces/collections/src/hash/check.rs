//! Read-only check of a whole table: every word, every depth, every hash.

use holdfast_layout::{Ptr, RawPtr};
use holdfast_txn::{Result, Transaction, TxError};

use super::{CHAINED_MIN, HASH_BITS, Table, Words, directory_of, first_bits};
use crate::common::{Core, Spot};
use crate::format::{Bucket, DIRECTORY_BITS, DIRECTORY_CODE_MAX};
use crate::item::{KeyBuf, Sought};
use crate::report::{CheckReport, Checker};

/// Checks the table.
pub(super) fn check<T: Transaction>(tx: &T, table: &Table) -> Result<CheckReport> {
    let mut checker = Checker::default();
    checker.meet(table.header.raw(), "header");
    let read = tx.read(table.header);
    let Some(header) = checker.readable(table.header.raw(), read)? else {
        return Ok(checker.finish());
    };
    checker.expect(header.seed == table.seed, || "the table was opened with another seed".into());
    let mut walk = Walk { tx, table, checker };
    walk.words(&table.top(), 0)?;
    Ok(walk.checker.finish())
}

struct Walk<'t, T> {
    tx: &'t T,
    table: &'t Table,
    checker: Checker,
}

impl<T: Transaction> Walk<'_, T> {
    /// Checks what words lead to; hashes there start with the first bits of `path`. Not deeper
    /// than hashes have bits, as `directory_of` sees to.
    fn words(&mut self, words: &Words, path: u64) -> Result<()> {
        let object = words.object;
        let read = words.read_all(self.tx);
        let Some(content) = self.checker.readable(object, read)? else { return Ok(()) };
        if words.base > 0 {
            let len =
                self.tx.len_of(object).and_then(|len| match len == 8 * words.count() as u64 {
                    true => Ok(()),
                    false => {
                        Err(TxError::Inconsistent("a directory is of another size than its word"))
                    }
                });
            self.checker.readable(RawPtr::NULL, len)?;
        }
        let mut index = 0;
        while let Some(word) = content.get(index).copied() {
            let below = path | (index as u64) << (HASH_BITS - words.end());
            let count = match directory_of(word, words.end()) {
                Ok(None) => self.bucket(RawPtr::from_word(word).typed(), below, words)?,
                Ok(Some(directory)) => {
                    if self.checker.meet(directory.object, "directory") {
                        self.words(&directory, below)?;
                    }
                    1
                }
                Err(error) => {
                    self.checker.readable::<()>(RawPtr::NULL, Err(error))?;
                    1
                }
            };
            let same = content[index..].iter().take(count).filter(|other| **other == word).count();
            self.checker.expect(same == count, || {
                format!("directory {object} word {index}: not all {count} lead to the same bucket")
            });
            index += count;
        }
        debug_assert!(words.bits <= DIRECTORY_BITS + DIRECTORY_CODE_MAX);
        Ok(())
    }

    /// Checks a bucket and its chain; returns how many words should lead there.
    fn bucket(&mut self, at: Ptr<Bucket>, path: u64, words: &Words) -> Result<usize> {
        let Some(first) = self.read(at)? else { return Ok(1) };
        let depth = first.depth;
        let fits = (words.base..=words.end()).contains(&depth) && first_bits(path, depth) == path;
        if !fits {
            self.checker.find(format!("bucket {at:?} of depth {depth} is out of its place"));
            return Ok(1);
        }
        let mut keys = Vec::new();
        let (mut at, mut bucket) = (at, first);
        loop {
            self.items(at, &bucket, path, &mut keys)?;
            if bucket.next.is_null() {
                break;
            }
            at = bucket.next;
            let Some(next) = self.read(at)? else { break };
            self.checker.expect(next.depth == depth && depth >= CHAINED_MIN, || {
                format!("bucket {at:?} does not belong to its chain")
            });
            bucket = next;
        }
        keys.sort();
        self.checker.expect(keys.windows(2).all(|pair| pair[0] != pair[1]), || {
            format!("the chain to bucket {at:?} has a key twice")
        });
        Ok(1 << (words.end() - depth))
    }

    fn read(&mut self, at: Ptr<Bucket>) -> Result<Option<Bucket>> {
        if !self.checker.meet(at.raw(), "bucket") {
            return Ok(None);
        }
        let read = self.tx.read(at);
        self.checker.readable(at.raw(), read)
    }

    fn items(
        &mut self,
        at: Ptr<Bucket>,
        bucket: &Bucket,
        path: u64,
        keys: &mut Vec<KeyBuf>,
    ) -> Result<()> {
        for full in self.checker.items(self.tx, at, bucket)? {
            let hash = self.table.hash(full.key.bytes());
            let sought = Sought::hashed(full.key.bytes(), hash);
            let fits = sought.among(&[full.item], 0).is_some()
                && first_bits(hash, bucket.depth.min(HASH_BITS)) == path;
            let mut spot = Spot::new();
            let look = self.table.look(self.tx, &sought, &mut spot);
            let found = self.checker.readable(RawPtr::NULL, look)?.is_some() && spot.at == at;
            self.checker.expect(fits && found, || {
                format!("bucket {at:?}: item {} is filed under a wrong hash", full.slot)
            });
            keys.push(full.key);
        }
        Ok(())
    }
}
