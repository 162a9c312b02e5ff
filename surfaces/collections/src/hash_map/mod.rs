//! A growing hash table of byte strings.
//!
//! ```text
//!  header ---> directory ----> directory ----> leaf: slot slot slot ...   (same first bits)
//!  seed, root  256 words  \                           |
//!              8 bits of   \-> leaf (several words)   v
//!              the hash                               entry: key, value
//! ```
//!
//! A leaf holds the entries whose hash starts with the leaf's own bits, its *path*. When it is
//! full it splits in two by the next bit; when that bit is beyond its directory, a directory is
//! put between. So an operation changes one leaf, at times two and some words of a directory, and
//! never anything as large as the table: no insertion waits for a rehash. There is no count of
//! entries and no other word that every insertion would change, so that insertions into different
//! leaves do not conflict.
//!
//! Each leaf names its path and is held against it when it is reached; a word that leads to a
//! wrong place is an error, not a wrong answer.

mod check;
mod shrink;
mod split;
mod walk;

use holdfast_layout::{Ptr, RawPtr, bytemuck};
use holdfast_txn::{Result, Transaction, TxError};

use crate::entry::{self, EntryBuf};
use crate::format::{
    DIRECTORY_BITS, HEADER_ROOT, HashHeader, HashLeaf, HashSlot, LEAF_SLOTS, SLOT_ENTRY,
    directory_word, leaf_slot,
};
use crate::sip;

/// Bits of a hash.
const HASH_BITS: u32 = u64::BITS;

/// A hash table of byte strings in a store. The value is only a pointer: copy it freely, keep it
/// anywhere.
///
/// Keys have at most [`KEY_MAX`](crate::KEY_MAX) bytes. Errors of all functions are those of the
/// transaction, `TooLarge` for a longer key, and `Inconsistent` for a structure that contradicts
/// itself.
///
/// ```
/// use holdfast_collections::HashTable;
/// use holdfast_txn::{Isolation, Store, toy::ToyStore};
///
/// let store = ToyStore::new();
/// let found = store.run(Isolation::Serializable, |tx| {
///     let table = HashTable::create(tx, [1, 2])?;
///     table.put(tx, b"key", b"value")?;
///     table.get(tx, b"key")
/// })?;
/// assert_eq!(found.as_deref(), Some(&b"value"[..]));
/// # Ok::<(), holdfast_txn::TxError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HashTable {
    header: Ptr<HashHeader>,
}

/// Where a word of the structure is.
#[derive(Debug, Clone, Copy)]
struct Word {
    object: RawPtr,
    at: u64,
}

/// The place of a leaf.
#[derive(Debug, Clone, Copy)]
struct Spot {
    leaf: Ptr<HashLeaf>,
    /// The directory the leaf is in; null for the only leaf of a small table.
    directory: RawPtr,
    /// The word that leads to this directory, or to the only leaf.
    parent: Word,
    /// Bits of the hash the directories down to this one have used up.
    base: u32,
}

/// What a search came to.
#[derive(Debug)]
struct Seek {
    spot: Spot,
    /// Slot of the key, if it is there.
    found: Option<Word>,
    /// First empty slot, if there is one.
    free: Option<Word>,
    /// Where the search ended: the leaf itself, or the last one chained to it.
    end: Ptr<HashLeaf>,
    /// Its contents.
    last: HashLeaf,
}

impl HashTable {
    /// Creates an empty table. Choose `seed` at random where keys come from people you do not
    /// trust; it is kept in the table.
    ///
    /// # Errors
    /// See the type.
    pub fn create<T: Transaction>(tx: &T, seed: [u64; 2]) -> Result<Self> {
        let root = leaf_word(tx.alloc(HashLeaf::empty(0, 0))?)?;
        Ok(Self::new(tx.alloc(HashHeader { seed, root })?))
    }

    /// The table whose header is at `header`. Whether there is one is seen when it is used.
    #[must_use]
    pub fn new(header: Ptr<HashHeader>) -> Self {
        Self { header }
    }

    /// Where the header is: what to store to find the table again.
    #[must_use]
    pub fn pointer(&self) -> Ptr<HashHeader> {
        self.header
    }

    /// Lends the value of `key` to `use_it`; `None` if there is no such key. Allocates nothing
    /// for entries of up to 512 bytes.
    ///
    /// # Errors
    /// See the type.
    pub fn get_with<T: Transaction, R>(
        &self,
        tx: &T,
        key: &[u8],
        use_it: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let mut buf = EntryBuf::new();
        if self.find(tx, key, &mut buf)? { buf.value(tx, use_it).map(Some) } else { Ok(None) }
    }

    /// Puts the value of `key` into `into`, in place of what was there; `false` if there is no
    /// such key.
    ///
    /// # Errors
    /// See the type.
    pub fn get_into<T: Transaction>(&self, tx: &T, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        let mut buf = EntryBuf::new();
        let found = self.find(tx, key, &mut buf)?;
        if found {
            buf.value_into(tx, into)?;
        }
        Ok(found)
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// See the type.
    pub fn get<T: Transaction>(&self, tx: &T, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(tx, key, &mut value)?.then_some(value))
    }

    /// Whether there is a value for `key`.
    ///
    /// # Errors
    /// See the type.
    pub fn contains<T: Transaction>(&self, tx: &T, key: &[u8]) -> Result<bool> {
        self.find(tx, key, &mut EntryBuf::new())
    }

    /// Gives `key` a value; returns whether it had one. A value of the same length is changed in
    /// place.
    ///
    /// # Errors
    /// See the type.
    pub fn put<T: Transaction>(&self, tx: &T, key: &[u8], value: &[u8]) -> Result<bool> {
        let header = tx.read(self.header)?;
        self.put_hashed(tx, header.root, sip::hash(header.seed, key), (key, value), None)
    }

    /// Gives `key` a value; returns the one it had.
    ///
    /// # Errors
    /// See the type.
    pub fn replace<T: Transaction>(
        &self,
        tx: &T,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let header = tx.read(self.header)?;
        let (hash, mut old) = (sip::hash(header.seed, key), Vec::new());
        let had = self.put_hashed(tx, header.root, hash, (key, value), Some(&mut old))?;
        Ok(had.then_some(old))
    }

    /// Removes `key`; returns whether it was there.
    ///
    /// # Errors
    /// See the type.
    pub fn remove<T: Transaction>(&self, tx: &T, key: &[u8]) -> Result<bool> {
        let header = tx.read(self.header)?;
        self.remove_hashed(tx, header.root, sip::hash(header.seed, key), key, None)
    }

    /// Removes `key`; returns the value it had.
    ///
    /// # Errors
    /// See the type.
    pub fn take<T: Transaction>(&self, tx: &T, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let header = tx.read(self.header)?;
        let (hash, mut old) = (sip::hash(header.seed, key), Vec::new());
        let had = self.remove_hashed(tx, header.root, hash, key, Some(&mut old))?;
        Ok(had.then_some(old))
    }

    fn find<T: Transaction>(&self, tx: &T, key: &[u8], buf: &mut EntryBuf) -> Result<bool> {
        let header = tx.read(self.header)?;
        let hash = sip::hash(header.seed, key);
        Ok(self.seek(tx, header.root, hash, key, buf)?.found.is_some())
    }

    fn put_hashed<T: Transaction>(
        &self,
        tx: &T,
        mut root: u64,
        hash: u64,
        (key, value): (&[u8], &[u8]),
        old: Option<&mut Vec<u8>>,
    ) -> Result<bool> {
        let mut buf = EntryBuf::new();
        // Each split uses up a bit of the hash, even if it leaves all entries on one side.
        for _ in 0..=HASH_BITS {
            let seek = self.seek(tx, root, hash, key, &mut buf)?;
            if let Some(slot) = seek.found {
                if let Some(old) = old {
                    buf.value_into(tx, old)?;
                }
                if !buf.overwrite(tx, value)? {
                    let entry = entry::create(tx, key, value)?;
                    let at = slot.at + SLOT_ENTRY;
                    tx.write_bytes(slot.object, at, bytemuck::bytes_of(&entry))?;
                    tx.free(buf.pointer())?;
                }
                return Ok(true);
            }
            if let Some(slot) = seek.free {
                let filled = HashSlot { hash, entry: entry::create(tx, key, value)? };
                tx.write_bytes(slot.object, slot.at, bytemuck::bytes_of(&filled))?;
                return Ok(false);
            }
            if seek.last.depth < HASH_BITS {
                split::split(tx, &seek.spot, &seek.last)?;
                root = tx.read(self.header)?.root;
            } else {
                let entry = entry::create(tx, key, value)?;
                split::chain(tx, &seek, HashSlot { hash, entry })?;
                return Ok(false);
            }
        }
        Err(TxError::Inconsistent("a hash leaf stays full however often it splits"))
    }

    fn remove_hashed<T: Transaction>(
        &self,
        tx: &T,
        root: u64,
        hash: u64,
        key: &[u8],
        old: Option<&mut Vec<u8>>,
    ) -> Result<bool> {
        let mut buf = EntryBuf::new();
        let seek = self.seek(tx, root, hash, key, &mut buf)?;
        let Some(slot) = seek.found else { return Ok(false) };
        if let Some(old) = old {
            buf.value_into(tx, old)?;
        }
        tx.write_bytes(slot.object, slot.at, bytemuck::bytes_of(&HashSlot::default()))?;
        tx.free(buf.pointer())?;
        self.shrink(tx, hash, &seek)?;
        Ok(true)
    }

    /// Finds the leaf for a hash.
    fn locate<T: Transaction>(&self, tx: &T, root: u64, hash: u64) -> Result<(Spot, HashLeaf)> {
        let mut parent = Word { object: self.header.raw(), at: HEADER_ROOT };
        let (mut word, mut directory, mut base) = (root, RawPtr::NULL, 0);
        while let Some(next) = as_directory(word) {
            if base == HASH_BITS {
                return Err(TxError::Inconsistent("directories for more bits than hashes have"));
            }
            if base > 0 {
                let at = directory_word(index_of(hash, base));
                parent = Word { object: directory, at };
            }
            directory = next;
            base += DIRECTORY_BITS;
            let at = directory_word(index_of(hash, base));
            word = read_word(tx, Word { object: directory, at })?;
        }
        let leaf: Ptr<HashLeaf> = RawPtr::from_word(word).typed();
        let content = tx.read(leaf)?;
        content.check_place(hash, base)?;
        Ok((Spot { leaf, directory, parent, base }, content))
    }

    /// Finds the slot of a key; its entry is in `buf` if it was found.
    fn seek<T: Transaction>(
        &self,
        tx: &T,
        root: u64,
        hash: u64,
        key: &[u8],
        buf: &mut EntryBuf,
    ) -> Result<Seek> {
        let (spot, mut last) = self.locate(tx, root, hash)?;
        let (mut end, mut free) = (spot.leaf, None);
        loop {
            for (index, slot) in last.slots.iter().enumerate() {
                let word = Word { object: end.raw(), at: leaf_slot(index) };
                if slot.entry.is_null() {
                    free = free.or(Some(word));
                } else if slot.hash == hash {
                    buf.load(tx, slot.entry)?;
                    if buf.is(tx, key)? {
                        return Ok(Seek { spot, found: Some(word), free, end, last });
                    }
                }
            }
            if last.next.is_null() {
                return Ok(Seek { spot, found: None, free, end, last });
            }
            end = last.next;
            last = last.follow(tx)?;
        }
    }
}

impl HashLeaf {
    /// A leaf without entries for hashes that start with the first `depth` bits of `path`.
    fn empty(path: u64, depth: u32) -> Self {
        let slots = [HashSlot::default(); LEAF_SLOTS];
        Self { path, next: Ptr::null(), depth, ordinal: 0, slots }
    }

    /// Whether this is the first leaf for `hash` in a directory that ends at bit `base`.
    fn check_place(&self, hash: u64, base: u32) -> Result<()> {
        let lowest = (base + 1).saturating_sub(DIRECTORY_BITS);
        let fits = (lowest..=base).contains(&self.depth) && self.ordinal == 0;
        if fits && self.path == first_bits(hash, self.depth) {
            Ok(())
        } else {
            Err(TxError::Inconsistent("a hash leaf is not where its path belongs"))
        }
    }

    /// The leaf chained to this one; there is one if `next` is not null.
    fn follow<T: Transaction>(&self, tx: &T) -> Result<Self> {
        let next = tx.read(self.next)?;
        let fits = next.path == self.path && next.depth == HASH_BITS && self.depth == HASH_BITS;
        if fits && next.ordinal > self.ordinal {
            Ok(next)
        } else {
            Err(TxError::Inconsistent("a chain of hash leaves does not belong together"))
        }
    }

    /// The entries in it.
    fn entries(&self) -> impl Iterator<Item = &HashSlot> {
        self.slots.iter().filter(|slot| !slot.entry.is_null())
    }
}

/// The first `bits` bits of a hash; the others zero.
fn first_bits(hash: u64, bits: u32) -> u64 {
    hash & u64::MAX.checked_shl(HASH_BITS - bits).unwrap_or(0)
}

/// Where a hash belongs in a directory that ends at bit `base`, which is at least 8.
fn index_of(hash: u64, base: u32) -> usize {
    (hash << (base - DIRECTORY_BITS) >> (HASH_BITS - DIRECTORY_BITS)) as usize
}

/// The word that leads to a leaf.
fn leaf_word(leaf: Ptr<HashLeaf>) -> Result<u64> {
    even(leaf.raw())
}

/// The word that leads to a directory.
fn directory_word_of(directory: RawPtr) -> Result<u64> {
    even(directory).map(|word| word | 1)
}

/// The directory a word leads to, unless it leads to a leaf.
fn as_directory(word: u64) -> Option<RawPtr> {
    (word & 1 == 1).then(|| RawPtr::from_word(word & !1))
}

fn even(pointer: RawPtr) -> Result<u64> {
    match pointer.word() & 1 {
        0 => Ok(pointer.word()),
        _ => Err(TxError::Inconsistent("the store has put an object at an odd offset")),
    }
}

fn read_word<T: Transaction>(tx: &T, word: Word) -> Result<u64> {
    let mut bytes = [0; 8];
    tx.read_bytes(word.object, word.at, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn write_word<T: Transaction>(tx: &T, word: Word, value: u64) -> Result<()> {
    tx.write_bytes(word.object, word.at, &value.to_le_bytes())
}

#[cfg(test)]
mod tests;
