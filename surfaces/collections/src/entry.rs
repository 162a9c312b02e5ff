//! Entries: objects with a key and value that do not fit an item, shared by all structures.
//!
//! An entry is read once, into a buffer that holds all of it if it is small, and then compared and
//! handed out from there. Lengths come from the object and its first word, and are held against
//! each other before anything is read or allocated by them.

use core::cmp::Ordering;
use core::ops::Range;

use holdfast_layout::RawPtr;
use holdfast_txn::{Result, Transaction, TxError};

use crate::format::{ENTRY, ENTRY_HEAD, KEY_MAX};
use crate::item::common_len;

/// Entries up to this many bytes are read and written in one piece.
const HELD: usize = 512;

/// Allocates an entry.
pub(crate) fn create<T: Transaction>(tx: &T, key: &[u8], value: &[u8]) -> Result<RawPtr> {
    if key.len() > KEY_MAX {
        return Err(TxError::TooLarge { wanted: key.len() as u64, limit: KEY_MAX as u64 });
    }
    let head = (key.len() as u32).to_le_bytes();
    let len = ENTRY_HEAD + key.len() + value.len();
    if len <= HELD {
        let mut bytes = [0; HELD];
        let mut at = 0;
        for part in [&head[..], key, value] {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        return tx.alloc_from(ENTRY, &bytes[..len]);
    }
    let entry = tx.alloc_bytes(ENTRY, len as u64)?;
    let mut at = 0;
    for part in [&head[..], key, value] {
        if !part.is_empty() {
            tx.write_bytes(entry, at, part)?;
        }
        at += part.len() as u64;
    }
    Ok(entry)
}

/// The first eight bytes as a number that orders as they do; missing bytes count as zeros.
#[expect(clippy::big_endian_bytes, reason = "the order of bytes is what makes numbers comparable")]
#[inline]
pub(crate) fn prefix_of(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(word)
}

/// An entry that has been read: all of it if it is small, else its beginning.
#[derive(Debug)]
pub(crate) struct EntryBuf {
    at: RawPtr,
    len: u64,
    key_len: usize,
    held: usize,
    bytes: [u8; HELD],
}

impl EntryBuf {
    /// Holds nothing yet.
    pub(crate) fn new() -> Self {
        Self { at: RawPtr::NULL, len: 0, key_len: 0, held: 0, bytes: [0; HELD] }
    }

    /// An entry just read.
    pub(crate) fn read<T: Transaction>(tx: &T, at: RawPtr) -> Result<Self> {
        let mut this = Self::new();
        this.load(tx, at)?;
        Ok(this)
    }

    /// Reads another entry. Whatever it holds may be used only in the same transaction.
    pub(crate) fn load<T: Transaction>(&mut self, tx: &T, at: RawPtr) -> Result<()> {
        let len = tx.read_start(at, &mut self.bytes)?;
        let held = len.min(HELD as u64) as usize;
        let [a, b, c, d, ..] = self.bytes;
        let key_len = u32::from_le_bytes([a, b, c, d]) as usize;
        if held < ENTRY_HEAD || key_len > KEY_MAX || (ENTRY_HEAD + key_len) as u64 > len {
            return Err(TxError::Inconsistent("an entry is shorter than its key"));
        }
        (self.at, self.len, self.key_len, self.held) = (at, len, key_len, held);
        Ok(())
    }

    /// The object the entry is in.
    pub(crate) fn pointer(&self) -> RawPtr {
        self.at
    }

    /// How the key of the entry compares with `key`, byte by byte.
    pub(crate) fn compare<T: Transaction>(&self, tx: &T, key: &[u8]) -> Result<Ordering> {
        let held = self.held_key();
        if held.len() == self.key_len {
            return Ok(held.cmp(key));
        }
        let mut piece = [0; HELD];
        let mut done = held.len();
        let mut order = held.cmp(&key[..done.min(key.len())]);
        while order == Ordering::Equal && done < self.key_len {
            let len = (self.key_len - done).min(HELD);
            tx.read_bytes(self.at, (ENTRY_HEAD + done) as u64, &mut piece[..len])?;
            order = piece[..len].cmp(&key[done.min(key.len())..(done + len).min(key.len())]);
            done += len;
        }
        Ok(order.then(self.key_len.cmp(&key.len())))
    }

    /// How many bytes `key` starts with like this one's, or fewer if not all of this was read.
    pub(crate) fn common(&self, key: &[u8]) -> usize {
        common_len(self.held_key(), key)
    }

    /// Whether its key has so many bytes.
    #[inline]
    pub(crate) fn has_key_of(&self, len: usize) -> bool {
        self.key_len == len
    }

    /// Whether this is the entry of `key`.
    pub(crate) fn is<T: Transaction>(&self, tx: &T, key: &[u8]) -> Result<bool> {
        Ok(self.key_len == key.len() && self.compare(tx, key)?.is_eq())
    }

    /// Lends the value.
    #[inline]
    pub(crate) fn value<T: Transaction, R>(
        &self,
        tx: &T,
        use_it: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        match self.held_range(self.value_range()) {
            Some(value) => Ok(use_it(value)),
            None => {
                let mut value = Vec::new();
                self.value_into(tx, &mut value)?;
                Ok(use_it(&value))
            }
        }
    }

    /// Puts the value into `into`, in place of what was there.
    pub(crate) fn value_into<T: Transaction>(&self, tx: &T, into: &mut Vec<u8>) -> Result<()> {
        self.range_into(tx, self.value_range(), into)
    }

    /// Puts the key into `into`, in place of what was there.
    pub(crate) fn key_into<T: Transaction>(&self, tx: &T, into: &mut Vec<u8>) -> Result<()> {
        self.range_into(tx, ENTRY_HEAD as u64..(ENTRY_HEAD + self.key_len) as u64, into)
    }

    /// Changes the value in place if the new one is as long; returns whether it did.
    pub(crate) fn overwrite<T: Transaction>(&self, tx: &T, value: &[u8]) -> Result<bool> {
        let range = self.value_range();
        if range.end - range.start != value.len() as u64 {
            return Ok(false);
        }
        if !value.is_empty() {
            tx.write_bytes(self.at, range.start, value)?;
        }
        Ok(true)
    }

    fn value_range(&self) -> Range<u64> {
        (ENTRY_HEAD + self.key_len) as u64..self.len
    }

    fn held_key(&self) -> &[u8] {
        let end = (ENTRY_HEAD + self.key_len).min(self.held);
        &self.bytes[ENTRY_HEAD.min(end)..end]
    }

    fn held_range(&self, range: Range<u64>) -> Option<&[u8]> {
        (range.end <= self.held as u64)
            .then(|| &self.bytes[range.start as usize..range.end as usize])
    }

    fn range_into<T: Transaction>(
        &self,
        tx: &T,
        range: Range<u64>,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        into.clear();
        if let Some(bytes) = self.held_range(range.clone()) {
            into.extend_from_slice(bytes);
            return Ok(());
        }
        // No longer than the object, which exists: an allocation of this size is honest.
        into.resize((range.end - range.start) as usize, 0);
        tx.read_bytes(self.at, range.start, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_txn::toy::ToyStore;
    use holdfast_txn::{Isolation, Store};

    fn run<R>(body: impl FnMut(&<ToyStore as Store>::Tx<'_>) -> Result<R>) -> R {
        ToyStore::new().run(Isolation::Serializable, body).expect("committed")
    }

    #[test]
    fn entries_of_any_length_come_back_and_compare_as_their_keys() {
        run(|tx| {
            let lens = [0_usize, 1, 7, 8, 24, 32, 33, 507, 508, 509, 1020, 1024, 5000, KEY_MAX];
            for key_len in lens {
                for value_len in [0_usize, 1, 300, 508, 70_000] {
                    let key: Vec<u8> = (0..key_len).map(|i| (i % 251) as u8).collect();
                    let value = vec![7; value_len];
                    let buf = EntryBuf::read(tx, create(tx, &key, &value)?)?;
                    let (mut k, mut v) = (vec![1], vec![2]);
                    buf.key_into(tx, &mut k)?;
                    buf.value_into(tx, &mut v)?;
                    assert_eq!((&k, &v), (&key, &value));
                    assert_eq!(buf.value(tx, <[u8]>::len)?, value_len);
                    for other in around(&key) {
                        assert_eq!(buf.compare(tx, &other)?, key.cmp(&other), "{key_len}");
                        assert_eq!(buf.is(tx, &other)?, key == other);
                    }
                }
            }
            Ok(())
        });
    }

    /// The key, and keys next to it: shorter, longer, different near its start and its end.
    fn around(key: &[u8]) -> Vec<Vec<u8>> {
        let mut list = vec![key.to_vec(), [key, &[0]].concat(), [key, &[9; 600]].concat()];
        if let Some(last) = key.len().checked_sub(1) {
            list.push(key[..last].to_vec());
            list.push(key[..last / 2].to_vec());
            for (at, add) in [(0, 1), (last, 1), (last, 255), (last / 2, 3)] {
                let mut other = key.to_vec();
                other[at] = other[at].wrapping_add(add);
                list.push(other);
            }
        }
        list
    }

    #[test]
    fn values_of_the_same_length_are_changed_in_place() {
        run(|tx| {
            let buf = EntryBuf::read(tx, create(tx, b"key", b"value")?)?;
            assert!(!buf.overwrite(tx, b"longer")?);
            assert!(buf.overwrite(tx, b"other")?);
            let mut found = Vec::new();
            EntryBuf::read(tx, buf.pointer())?.value_into(tx, &mut found)?;
            assert_eq!(found, b"other");
            Ok(())
        });
    }

    #[test]
    fn keys_beyond_the_limit_and_entries_that_lie_are_refused() {
        run(|tx| {
            let key = vec![0; KEY_MAX + 1];
            let limit = KEY_MAX as u64;
            assert_eq!(create(tx, &key, b""), Err(TxError::TooLarge { wanted: limit + 1, limit }));
            for (object_len, key_len) in [(0, 0), (3, 0), (4, 1), (100, 97), (1 << 20, 65_537)] {
                let object = tx.alloc_bytes(ENTRY, object_len)?;
                if object_len >= 4 {
                    tx.write_bytes(object, 0, &u32::to_le_bytes(key_len))?;
                }
                let refused = EntryBuf::read(tx, object).err();
                assert!(matches!(refused, Some(TxError::Inconsistent(_))), "{object_len}");
            }
            Ok(())
        });
    }
}
