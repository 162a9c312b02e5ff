//! Reading entries, of records and of overflow payloads. The bytes may be anything.

use holdfast_layout::bytes::{get_u32, get_u64};

use crate::error::EntryError;
use crate::format::{
    DATA_LEN, ENTRY_ALIGN, ENTRY_LEN, FRESH_LEN, KIND_DATA, KIND_FRESH, KIND_OVERFLOW, KIND_SLOT,
    OFFSET_BITS, OVERFLOW_LEN, SLOT_BYTES, SLOT_LEN,
};

/// One change that a record holds. Every range lies inside the pool it was parsed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<'a> {
    /// The bytes at `at` become these.
    Data {
        /// First byte, as an offset into the pool.
        at: u64,
        /// New bytes.
        bytes: &'a [u8],
    },
    /// The slot at `at` becomes this.
    Slot {
        /// First byte of the slot.
        at: u64,
        /// New slot.
        slot: &'a [u8; SLOT_BYTES],
    },
    /// The range was announced to be written in place: its contents are anything, its parity is
    /// to be recomputed.
    Fresh {
        /// First byte.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// Further entries are kept elsewhere, twice.
    Overflow {
        /// First byte of copy A.
        a: u64,
        /// First byte of copy B.
        b: u64,
        /// Bytes of either copy.
        len: u64,
        /// [`Seed::overflow`](crate::Seed::overflow) of the payload.
        crc: u32,
    },
}

/// Reads entries one after the other; after an error it ends.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    body: &'a [u8],
    at: usize,
    /// Entries still to come, or `None`: up to the end of `body`.
    left: Option<usize>,
    size: u64,
}

/// The entries that fill `body` to its end, for a pool of `size` bytes: an overflow payload.
#[must_use]
pub fn entries(body: &[u8], size: u64) -> Entries<'_> {
    Entries { body, at: 0, left: None, size }
}

/// The first `count` entries of `body`: those of a record, whose padding follows.
pub(crate) fn counted(body: &[u8], count: usize, size: u64) -> Entries<'_> {
    Entries { body, at: 0, left: Some(count), size }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, EntryError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.left {
            Some(0) => return None,
            Some(left) => self.left = Some(left - 1),
            None if self.at == self.body.len() => return None,
            None => {}
        }
        match parse(&self.body[self.at..], self.size) {
            Ok((entry, len)) => {
                self.at += len;
                Some(Ok(entry))
            }
            Err(what) => {
                let error = EntryError { at: self.at, what };
                (self.at, self.left) = (self.body.len(), Some(0));
                Some(Err(error))
            }
        }
    }
}

/// The entry that `body` starts with, and its bytes up to the next.
fn parse(body: &[u8], size: u64) -> Result<(Entry<'_>, usize), &'static str> {
    if body.len() < ENTRY_LEN {
        return Err("is cut off");
    }
    let word = get_u64(body, 0);
    let at = word & ((1 << OFFSET_BITS) - 1);
    let [.., kind, reserved] = word.to_le_bytes();
    if reserved != 0 {
        return Err("has a reserved byte that is not zero");
    }
    let inside = |at: u64, len: u64| match at.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err("names a range outside the pool"),
    };
    let whole = |len: usize| body.get(..len).ok_or("is cut off");
    match kind {
        KIND_DATA => {
            let len = get_u32(whole(DATA_LEN)?, ENTRY_LEN) as usize;
            inside(at, len as u64)?;
            if get_u32(body, ENTRY_LEN + 4) != 0 {
                return Err("has a reserved word that is not zero");
            }
            let end = DATA_LEN + len.next_multiple_of(ENTRY_ALIGN);
            Ok((Entry::Data { at, bytes: &whole(end)?[DATA_LEN..DATA_LEN + len] }, end))
        }
        KIND_SLOT => {
            inside(at, SLOT_BYTES as u64)?;
            let slot = whole(SLOT_LEN)?[ENTRY_LEN..].first_chunk().ok_or("is cut off")?;
            Ok((Entry::Slot { at, slot }, SLOT_LEN))
        }
        KIND_FRESH => {
            let len = get_u64(whole(FRESH_LEN)?, ENTRY_LEN);
            inside(at, len)?;
            Ok((Entry::Fresh { at, len }, FRESH_LEN))
        }
        KIND_OVERFLOW => {
            let fixed = whole(OVERFLOW_LEN)?;
            let (b, len) = (get_u64(fixed, ENTRY_LEN), get_u64(fixed, ENTRY_LEN + 8));
            inside(at, len)?;
            inside(b, len)?;
            if get_u32(fixed, ENTRY_LEN + 20) != 0 {
                return Err("has a reserved word that is not zero");
            }
            let crc = get_u32(fixed, ENTRY_LEN + 16);
            Ok((Entry::Overflow { a: at, b, len, crc }, OVERFLOW_LEN))
        }
        _ => Err("has a kind this build does not know"),
    }
}
