//! Items: a key and its value in sixteen bytes if they are short, else where their entry is.

use core::cmp::Ordering;

use holdfast_layout::RawPtr;
use holdfast_txn::{Result, Transaction, TxError};

use crate::entry::{self, EntryBuf, prefix_of};
use crate::format::{Item, KEY_MAX};
use crate::sip;

/// Longest key that a number holds.
pub(crate) const SHORT: usize = 8;
/// Longest value that an item holds.
const VALUE_MAX: usize = 7;
/// Bits of a word that are no part of a pointer.
pub(crate) const TAG_MASK: u64 = 15;

/// A key that is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sought<'k> {
    pub(crate) key: &'k [u8],
    /// Its first eight bytes as a number.
    pub(crate) prefix: u64,
    /// Its hash: what tells keys apart that are too long for a number, and orders a hash table.
    pub(crate) hash: u64,
}

impl<'k> Sought<'k> {
    /// For structures in order of keys: hashes only keys that do not fit a number.
    #[inline]
    pub(crate) fn ordered(key: &'k [u8]) -> Self {
        let hash = if code_of(key) == 0 { sip::hash([0; 2], key) } else { 0 };
        Self { key, prefix: prefix_of(key), hash }
    }

    /// For hash tables.
    #[inline]
    pub(crate) fn hashed(key: &'k [u8], hash: u64) -> Self {
        Self { key, prefix: prefix_of(key), hash }
    }

    /// The number most items of this key have.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        if self.key.len() <= SHORT { self.prefix } else { self.hash }
    }

    /// Whether the number and code of an item with an entry tell the whole key.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        code_of(self.key) != 0
    }

    /// Both numbers an item of this key may have, with what its word must start with: of an item
    /// that holds all of it, and of one that points to an entry.
    fn signs(&self) -> [(u64, u64, u64); 2] {
        let code = code_of(self.key);
        let number = if code == 0 { self.hash } else { self.prefix };
        let inline = if self.key.len() <= SHORT { 1 | (self.key.len() as u64) << 1 } else { 0 };
        [(self.prefix, 0x1f, inline), (number, TAG_MASK, code << 1)]
    }

    /// Which of `items` may be this key's, from `from` on.
    #[inline]
    pub(crate) fn among(&self, items: &[Item], from: usize) -> Option<usize> {
        let [(a, mask_a, tag_a), (b, mask_b, tag_b)] = self.signs();
        items[from..]
            .iter()
            .position(|item| {
                (item.key == a || item.key == b)
                    && item.word != 0
                    && ((item.key == a && item.word & mask_a == tag_a)
                        || (item.key == b && item.word & mask_b == tag_b))
            })
            .map(|at| at + from)
    }
}

/// The code in the word of an item whose entry has this key.
#[inline]
fn code_of(key: &[u8]) -> u64 {
    if (2..=SHORT).contains(&key.len()) { key.len() as u64 - 1 } else { 0 }
}

impl Item {
    /// An item for a key and its value; allocates an entry if they do not fit.
    pub(crate) fn create<T: Transaction>(tx: &T, of: &Sought<'_>, value: &[u8]) -> Result<Self> {
        if let Some(item) = Self::inline(of, value) {
            return Ok(item);
        }
        let entry = word_of(entry::create(tx, of.key, value)?)?;
        let code = code_of(of.key);
        let key = if code == 0 { of.hash } else { of.prefix };
        Ok(Self { key, word: entry | code << 1 })
    }

    /// An item that holds all of a key and its value.
    #[inline]
    pub(crate) fn inline(of: &Sought<'_>, value: &[u8]) -> Option<Self> {
        if of.key.len() > SHORT || value.len() > VALUE_MAX {
            return None;
        }
        let mut word = [0; 8];
        word[0] = 1 | (of.key.len() as u8) << 1 | (value.len() as u8) << 5;
        word[1..=value.len()].copy_from_slice(value);
        Some(Self { key: of.prefix, word: u64::from_le_bytes(word) })
    }

    /// Whether the key and value are here.
    #[inline]
    pub(crate) fn is_inline(&self) -> bool {
        self.word & 1 == 1
    }

    /// The entry, if there is one.
    #[inline]
    pub(crate) fn entry(&self) -> Option<RawPtr> {
        (self.word != 0 && !self.is_inline()).then(|| RawPtr::from_word(self.word & !TAG_MASK))
    }

    /// The key, if it can be told without reading an entry.
    pub(crate) fn short_key(&self) -> Result<Option<ShortKey>> {
        let code = (self.word >> 1 & 7) as usize;
        let len = match self.word {
            0 => return Ok(None),
            _ if self.is_inline() => (self.word >> 1 & 15) as usize,
            _ if code == 0 => return Ok(None),
            _ => code + 1,
        };
        ShortKey::new(self.key, len).map(Some)
    }

    /// Whether the number is the hash of the key.
    #[inline]
    pub(crate) fn is_hashed(&self) -> bool {
        self.word != 0 && self.word & TAG_MASK == 0
    }

    /// The value, if it is here.
    #[inline]
    pub(crate) fn with_value<R>(&self, use_it: impl FnOnce(&[u8]) -> R) -> R {
        let bytes = self.word.to_le_bytes();
        use_it(&bytes[1..=usize::from(bytes[0] >> 5)])
    }
}

/// A key of at most eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShortKey {
    number: u64,
    bytes: [u8; SHORT],
    len: u8,
}

impl ShortKey {
    #[expect(clippy::big_endian_bytes, reason = "as the number was made")]
    fn new(number: u64, len: usize) -> Result<Self> {
        let bytes = number.to_be_bytes();
        if len > SHORT || bytes[len..].iter().any(|b| *b != 0) {
            return Err(TxError::Inconsistent("an item has a longer key than it says"));
        }
        Ok(Self { number, bytes, len: len as u8 })
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A key that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyBuf {
    Short(ShortKey),
    Long(Vec<u8>),
}

impl KeyBuf {
    /// The key of an item.
    pub(crate) fn read<T: Transaction>(tx: &T, item: &Item) -> Result<Self> {
        if let Some(short) = item.short_key()? {
            return Ok(Self::Short(short));
        }
        let Some(entry) = item.entry() else {
            return Err(TxError::Inconsistent("an item without a key"));
        };
        Self::of_entry(tx, entry)
    }

    /// The key of an entry.
    pub(crate) fn of_entry<T: Transaction>(tx: &T, entry: RawPtr) -> Result<Self> {
        let mut key = Vec::new();
        EntryBuf::read(tx, entry)?.key_into(tx, &mut key)?;
        Ok(Self::Long(key))
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(short) => short.bytes(),
            Self::Long(bytes) => bytes,
        }
    }
}

impl PartialOrd for KeyBuf {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KeyBuf {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Short(a), Self::Short(b)) => (a.number, a.len).cmp(&(b.number, b.len)),
            _ => self.bytes().cmp(other.bytes()),
        }
    }
}

/// How many bytes both start with.
pub(crate) fn common_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The word of a pointer, whose lowest bits have to be free for other uses.
pub(crate) fn word_of(at: RawPtr) -> Result<u64> {
    if at.word() & TAG_MASK == 0 {
        Ok(at.word())
    } else {
        Err(TxError::Inconsistent("an object does not start at a multiple of 16"))
    }
}

/// Whether a key may be stored.
pub(crate) fn check_len(key: &[u8]) -> Result<()> {
    if key.len() <= KEY_MAX {
        return Ok(());
    }
    Err(TxError::TooLarge { wanted: key.len() as u64, limit: KEY_MAX as u64 })
}
