//! An unordered map of byte strings: an extendible hash table.
//!
//! ```text
//!  header: seed, 256 words, by the first 8 bits of the hash
//!     |        |
//!     v        v
//!  bucket   directory: 16 to 2,048 words, by the next 4 to 11 bits
//!              |   |
//!              v   v
//!         bucket   directory: by further bits
//! ```
//!
//! A bucket has all keys whose hashes start with the same `depth` bits; all words that these bits
//! lead to lead to it. One that is full is split by its next bit. If its words are down to one,
//! its directory doubles, or it gets a directory below; so no operation moves more than one
//! directory of 16 KiB, however large the table is. Keys with equal hashes, as good as impossible
//! unless someone knows the seed, are chained from bucket to bucket when the bits are used up.

mod check;
mod grow;
mod shrink;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use holdfast_layout::{Ptr, RawPtr};
use holdfast_txn::{Result, Transaction, TxError};

use crate::bucket::{Full, Hit};
use crate::common::{Core, OpenHeader, Spot, Stretch, Walk};
use crate::format::{
    Bucket, DIRECTORY_BITS, HEADER_BITS, HEADER_FIRST, HEADER_WORDS, HashHeader, Item,
};
use crate::item::{KeyBuf, Sought, TAG_MASK, word_of};
use crate::report::CheckReport;
use crate::sip;

/// Bits of a hash.
const HASH_BITS: u32 = 64;
/// Depth below which a bucket can always be split.
const CHAINED_MIN: u32 = HASH_BITS - DIRECTORY_BITS + 1;
/// Most buckets in a chain.
const CHAIN_MAX: usize = 1 << 16;
/// Most empty buckets next to each other: a few per bit of the hash can be.
const EMPTY_MAX: usize = 1 << 12;

/// A hash table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Table {
    header: Ptr<HashHeader>,
    /// Read once: it never changes.
    seed: [u64; 2],
}

/// Words that are looked up by some bits of a hash: the header's, or a directory.
#[derive(Debug, Clone, Copy)]
struct Words {
    object: RawPtr,
    /// Where they start in the object.
    first: u64,
    /// Bits used up before.
    base: u32,
    /// Bits used up here.
    bits: u32,
}

/// The bucket for a hash, and how to get there.
#[derive(Debug)]
struct Way {
    /// From the header's words on.
    words: Vec<Words>,
    at: Ptr<Bucket>,
    bucket: Bucket,
}

/// The directory a word leads to, looked up after `base` bits; `None` if it leads to a bucket.
#[inline]
fn directory_of(word: u64, base: u32) -> Result<Option<Words>> {
    if word & 1 == 0 {
        return Ok(None);
    }
    let bits = DIRECTORY_BITS + (word >> 1 & 7) as u32;
    if base + bits > HASH_BITS {
        return Err(TxError::Inconsistent("a directory is for bits that hashes lack"));
    }
    Ok(Some(Words { object: RawPtr::from_word(word & !TAG_MASK), first: 0, base, bits }))
}

impl Words {
    fn count(&self) -> usize {
        1 << self.bits
    }

    #[inline]
    fn index(&self, hash: u64) -> usize {
        ((hash << self.base) >> (HASH_BITS - self.bits)) as usize
    }

    #[inline]
    fn read<T: Transaction>(&self, tx: &T, index: usize) -> Result<u64> {
        let mut word = [0; 8];
        tx.read_bytes(self.object, self.first + 8 * index as u64, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn read_all<T: Transaction>(&self, tx: &T) -> Result<Vec<u64>> {
        let mut bytes = vec![0; 8 * self.count()];
        tx.read_bytes(self.object, self.first, &mut bytes)?;
        let words = bytes.as_chunks::<8>().0;
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Bits used up at the end.
    fn end(&self) -> u32 {
        self.base + self.bits
    }

    /// Makes all words that the first `depth` bits of `path` lead to lead to `word`.
    fn fill<T: Transaction>(&self, tx: &T, path: u64, depth: u32, word: u64) -> Result<()> {
        let count = 1_usize << (self.end() - depth.max(self.base));
        let first = self.index(first_bits(path, depth));
        let bytes = word.to_le_bytes().repeat(count);
        tx.write_bytes(self.object, self.first + 8 * first as u64, &bytes)
    }
}

/// The first `count` bits of a hash; the others are zero.
fn first_bits(hash: u64, count: u32) -> u64 {
    hash & u64::MAX.checked_shl(HASH_BITS - count).unwrap_or(0)
}

impl Table {
    pub(crate) fn create<T: Transaction>(tx: &T, seed: [u64; 2]) -> Result<Self> {
        let bucket = word_of(tx.alloc(Bucket::EMPTY)?.raw())?;
        let header = tx.alloc(HashHeader { seed, words: [bucket; HEADER_WORDS] })?;
        Ok(Self { header, seed })
    }

    #[inline]
    fn top(&self) -> Words {
        Words { object: self.header.raw(), first: HEADER_FIRST, base: 0, bits: HEADER_BITS }
    }

    fn hash(&self, key: &[u8]) -> u64 {
        sip::hash(self.seed, key)
    }

    /// Hash of the key of an item.
    fn hash_of<T: Transaction>(&self, tx: &T, item: &Item) -> Result<u64> {
        match item.short_key()? {
            Some(key) => Ok(self.hash(key.bytes())),
            None if item.is_hashed() => Ok(item.key),
            None => Ok(self.hash(KeyBuf::read(tx, item)?.bytes())),
        }
    }

    /// The bucket for a hash, the first one of its chain, and the words on the way.
    fn way<T: Transaction>(&self, tx: &T, hash: u64) -> Result<Way> {
        let mut words = vec![self.top()];
        loop {
            let last = words[words.len() - 1];
            let word = last.read(tx, last.index(hash))?;
            if let Some(directory) = directory_of(word, last.end())? {
                words.push(directory);
                continue;
            }
            let at = RawPtr::from_word(word).typed();
            let bucket: Bucket = tx.read(at)?;
            if bucket.depth < last.base || bucket.depth > last.end() {
                return Err(TxError::Inconsistent("a bucket of a hash table is out of its place"));
            }
            return Ok(Way { words, at, bucket });
        }
    }

    /// All items of the chain that starts with a bucket.
    fn chain<T: Transaction>(&self, tx: &T, first: &Bucket) -> Result<Vec<Full>> {
        let mut all = first.sorted(tx)?;
        let mut next = first.next;
        for _ in 0..CHAIN_MAX {
            if next.is_null() {
                all.sort_by_cached_key(|full| self.hash(full.key.bytes()));
                return Ok(all);
            }
            let bucket: Bucket = tx.read(next)?;
            all.extend(bucket.sorted(tx)?);
            all.sort_by(|a, b| a.key.cmp(&b.key));
            next = bucket.next;
        }
        Err(TxError::Inconsistent("a chain of a hash table has no end"))
    }

    /// Calls `visit` with every bucket and its place, and `directory` with every directory after
    /// what it leads to.
    fn each<T: Transaction>(
        &self,
        tx: &T,
        mut visit: impl FnMut(Ptr<Bucket>, &Bucket) -> Result<bool>,
        mut directory: impl FnMut(RawPtr) -> Result<()>,
    ) -> Result<()> {
        let mut seen = BTreeSet::new();
        let mut open = Vec::new();
        open.push((self.top(), self.top().read_all(tx)?, 0));
        while let Some((words, content, index)) = open.last_mut() {
            let Some(word) = content.get(*index).copied() else {
                if words.base > 0 {
                    directory(words.object)?;
                }
                open.pop();
                continue;
            };
            let same = content[*index..].iter().take_while(|other| **other == word).count();
            *index += same;
            if !seen.insert(word) {
                return Err(TxError::Inconsistent("a part of a hash table is reached twice"));
            }
            if let Some(directory) = directory_of(word, words.end())? {
                open.push((directory, directory.read_all(tx)?, 0));
                continue;
            }
            let mut at: Ptr<Bucket> = RawPtr::from_word(word).typed();
            while !at.is_null() {
                let bucket = tx.read(at)?;
                if !visit(at, &bucket)? {
                    return Ok(());
                }
                at = bucket.next;
                if !at.is_null() && !seen.insert(at.raw().word()) {
                    return Err(TxError::Inconsistent("a chain of a hash table has no end"));
                }
            }
        }
        Ok(())
    }
}

impl Core for Table {
    fn anchor(&self) -> RawPtr {
        self.header.raw()
    }

    #[inline]
    fn sought<'k>(&self, key: &'k [u8]) -> Sought<'k> {
        Sought::hashed(key, self.hash(key))
    }

    #[inline]
    fn place<T: Transaction>(
        &self,
        tx: &T,
        sought: &Sought<'_>,
        _: &mut u32,
    ) -> Result<Option<Ptr<Bucket>>> {
        let mut words = self.top();
        let mut word = words.read(tx, words.index(sought.hash))?;
        while let Some(directory) = directory_of(word, words.end())? {
            words = directory;
            word = words.read(tx, words.index(sought.hash))?;
        }
        Ok(Some(RawPtr::from_word(word).typed()))
    }

    #[cold]
    fn along<T: Transaction>(&self, tx: &T, sought: &Sought<'_>, spot: &mut Spot) -> Result<()> {
        let mut room = None;
        for _ in 0..CHAIN_MAX {
            if Hit::new().find(tx, sought, &spot.bucket.items, 0)? {
                return Ok(());
            }
            if room.is_none() && spot.bucket.free_slot(sought.number()).is_some() {
                room = Some(spot.at);
            }
            if spot.bucket.next.is_null() {
                return room.map_or(Ok(()), |at| spot.go(tx, at));
            }
            spot.go(tx, spot.bucket.next)?;
        }
        Err(TxError::Inconsistent("a chain of a hash table has no end"))
    }

    fn make_room<T: Transaction>(&self, tx: &T, sought: &Sought<'_>) -> Result<()> {
        grow::make_room(tx, self, sought.hash)
    }

    fn tidy<T: Transaction>(&self, tx: &T, sought: &Sought<'_>) -> Result<()> {
        shrink::tidy(tx, self, sought.hash)
    }

    fn each_bucket<T: Transaction>(
        &self,
        tx: &T,
        mut visit: impl FnMut(&Bucket) -> Result<bool>,
    ) -> Result<()> {
        self.each(tx, |_, bucket| visit(bucket), |_| Ok(()))
    }

    fn empty_out<T: Transaction>(&self, tx: &T) -> Result<()> {
        self.free_all(tx)?;
        let bucket = word_of(tx.alloc(Bucket::EMPTY)?.raw())?;
        self.top().fill(tx, 0, 0, bucket)
    }

    fn demolish<T: Transaction>(&self, tx: &T) -> Result<()> {
        self.free_all(tx)?;
        tx.free(self.anchor())
    }

    fn check_all<T: Transaction>(&self, tx: &T) -> Result<CheckReport> {
        check::check(tx, self)
    }
}

impl Table {
    fn free_all<T: Transaction>(&self, tx: &T) -> Result<()> {
        let free = |at: Ptr<Bucket>, bucket: &Bucket| {
            bucket.free_entries(tx)?;
            tx.free(at.raw()).map(|()| true)
        };
        self.each(tx, free, |directory| tx.free(directory))
    }
}

impl Walk for Table {
    fn rank(&self, key: &[u8]) -> u64 {
        self.hash(key)
    }

    fn items_at<T: Transaction>(
        &self,
        tx: &T,
        key: Option<&[u8]>,
        back: bool,
        further: bool,
    ) -> Result<Option<Stretch>> {
        let edge = if back { u64::MAX } else { 0 };
        let mut hash = key.map_or(edge, |key| self.hash(key));
        let mut go_on = further;
        for _ in 0..EMPTY_MAX {
            let way = self.way(tx, hash)?;
            if !go_on {
                let items = self.chain(tx, &way.bucket)?;
                if !items.is_empty() || (key.is_some() && !further) {
                    return Ok(Some(Stretch::new(way.at, way.bucket, items)));
                }
            }
            go_on = false;
            let path = first_bits(hash, way.bucket.depth);
            let last = path | !first_bits(u64::MAX, way.bucket.depth);
            let next = if back { path.checked_sub(1) } else { last.checked_add(1) };
            let Some(next) = next else { return Ok(None) };
            hash = next;
        }
        Err(TxError::Inconsistent("a hash table has too many empty buckets in a row"))
    }
}

impl OpenHeader<HashHeader> for Table {
    /// With a seed of its own; there is [`Table::create`] to choose one.
    fn create_header<T: Transaction>(tx: &T) -> Result<Self> {
        Self::create(tx, crate::map::SEED)
    }

    fn open_header<T: Transaction>(tx: &T, header: Ptr<HashHeader>) -> Result<Self> {
        Ok(Self { header, seed: tx.read(header)?.seed })
    }
}
