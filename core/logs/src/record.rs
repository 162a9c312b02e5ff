//! Building a record: header, entries, padding, checksum, in one buffer that is used again.

use holdfast_codes::crc32c;
use holdfast_layout::bytes::{get_u16, get_u64, put_u16, put_u32, put_u64};

use crate::entry::{Entries, counted, entries};
use crate::error::LogError;
use crate::format::{
    DATA_LEN, ENTRY_ALIGN, FRESH_LEN, KIND_DATA, KIND_FRESH, KIND_OVERFLOW, KIND_SLOT, LINE_LEN,
    NUMBER_BELIEVED_END, NUMBER_BITS, NUMBER_END, OFFSET_BITS, OVERFLOW_LEN, RECORD_COVERED_AT,
    RECORD_CRC_AT, RECORD_ENTRIES_AT, RECORD_ENTRIES_MAX, RECORD_LEN, RECORD_LINES_AT,
    RECORD_NUMBER_AT, RECORD_WATERMARK_AT, SLOT_BYTES, SLOT_LEN,
};

/// A record under construction. Keeps its capacity over [`clear`](Self::clear), so that a lane
/// that is warmed up allocates nothing.
#[derive(Debug)]
pub struct RecordBuilder {
    /// Room for the header, the entries, and once sealed the padding. What lies behind `end` is
    /// left over from earlier records.
    bytes: Vec<u8>,
    /// End of the entries, a multiple of their alignment.
    end: usize,
    /// Where the payload of the last entry starts, if it is one of data.
    last_data: Option<usize>,
    entries: usize,
}

impl Default for RecordBuilder {
    fn default() -> Self {
        Self::with_capacity(1024)
    }
}

impl RecordBuilder {
    /// A builder that takes entries of `capacity` bytes in all before it allocates again.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let bytes = vec![0; (RECORD_LEN + capacity).next_multiple_of(LINE_LEN)];
        Self { bytes, end: RECORD_LEN, last_data: None, entries: 0 }
    }

    /// Forgets all entries.
    #[inline]
    pub fn clear(&mut self) {
        self.end = RECORD_LEN;
        self.last_data = None;
        self.entries = 0;
    }

    /// Adds: the bytes at `at` become `bytes`. Returns where [`payload`](Self::payload) finds
    /// them again.
    #[inline]
    pub fn data(&mut self, at: u64, bytes: &[u8]) -> usize {
        debug_assert!(u32::try_from(bytes.len()).is_ok(), "payloads are shorter than 4 GiB");
        let padded = bytes.len().next_multiple_of(ENTRY_ALIGN);
        let entry = self.add(DATA_LEN + padded);
        let (head, payload) = entry.split_at_mut(DATA_LEN);
        head[..8].copy_from_slice(&word(at, KIND_DATA));
        head[8..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        payload[..bytes.len()].copy_from_slice(bytes);
        payload[bytes.len()..].fill(0);
        let place = self.end - padded;
        self.last_data = Some(place);
        place
    }

    /// Makes an entry of data longer: `more` follows its `len` bytes, of which
    /// [`data`](Self::data) answered the place. Says no, and does nothing, if it is not the last
    /// entry or not made of whole words.
    #[inline]
    pub fn extend_data(&mut self, place: usize, len: usize, more: &[u8]) -> bool {
        if self.last_data != Some(place) || place + len != self.end {
            return false;
        }
        let padded = more.len().next_multiple_of(ENTRY_ALIGN);
        let payload = self.room(padded);
        payload[..more.len()].copy_from_slice(more);
        payload[more.len()..].fill(0);
        let len = (len + more.len()) as u64;
        self.bytes[place - 8..place].copy_from_slice(&len.to_le_bytes());
        true
    }

    /// Adds: the slot at `at` becomes `slot`. Returns where [`payload`](Self::payload) finds it.
    #[inline]
    pub fn slot(&mut self, at: u64, slot: &[u8; SLOT_BYTES]) -> usize {
        let entry = self.add(SLOT_LEN);
        entry[..8].copy_from_slice(&word(at, KIND_SLOT));
        entry[8..].copy_from_slice(slot);
        self.end - SLOT_BYTES
    }

    /// Adds: `[at, at + len)` is about to be written in place, unlogged.
    #[inline]
    pub fn fresh(&mut self, at: u64, len: u64) {
        let entry = self.add(FRESH_LEN);
        entry[..8].copy_from_slice(&word(at, KIND_FRESH));
        entry[8..].copy_from_slice(&len.to_le_bytes());
    }

    /// Adds: `len` bytes of further entries are at `a` and at `b`, with the sum `crc`
    /// ([`Seed::overflow`](crate::Seed::overflow)).
    #[inline]
    pub fn overflow(&mut self, a: u64, b: u64, len: u64, crc: u32) {
        let entry = self.add(OVERFLOW_LEN);
        entry[..8].copy_from_slice(&word(a, KIND_OVERFLOW));
        entry[8..16].copy_from_slice(&b.to_le_bytes());
        entry[16..24].copy_from_slice(&len.to_le_bytes());
        entry[24..].copy_from_slice(&u64::from(crc).to_le_bytes());
    }

    /// The payload of an entry: `place` as `data` or `slot` answered it. Empty if there is none.
    #[inline]
    #[must_use]
    pub fn payload(&self, place: usize, len: usize) -> &[u8] {
        let end = place.saturating_add(len).min(self.end);
        self.bytes.get(place..end).unwrap_or_default()
    }

    /// The encoded entries: what an overflow payload holds.
    #[inline]
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.bytes[RECORD_LEN..self.end]
    }

    /// Whether there is no entry.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Number of entries.
    #[inline]
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// The entries as recovery would read them, for a pool of `size` bytes.
    #[must_use]
    pub fn parsed(&self, size: u64) -> Entries<'_> {
        entries(self.body(), size)
    }

    /// Bytes of the record in the log: whole lines.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.end.next_multiple_of(LINE_LEN)
    }

    /// Refuses a record that is empty, longer than `max` bytes, or of too many entries.
    #[inline]
    pub(crate) fn check(&self, max: usize) -> Result<(), LogError> {
        if self.entries == 0 {
            return Err(LogError::Empty);
        }
        if self.len() > max {
            return Err(LogError::TooBig { len: self.len() as u64, max: max as u64 });
        }
        if self.entries > RECORD_ENTRIES_MAX {
            let (len, max) = (self.entries as u64, RECORD_ENTRIES_MAX as u64);
            return Err(LogError::TooBig { len, max });
        }
        Ok(())
    }

    /// Fills the header, pads to whole lines and sums: the bytes as they are stored in a place
    /// whose seed is `seed`. `last` is the number of the lane's record before. May be called again
    /// with other arguments. The record has passed [`check`](Self::check).
    #[inline]
    pub(crate) fn seal(
        &mut self,
        seed: u32,
        number: u64,
        last: u64,
        watermark: u64,
        summed: bool,
    ) -> &[u8] {
        let bytes = self.frame(number, last, watermark);
        let crc = if summed { crc32c(seed, &bytes[RECORD_COVERED_AT..]) } else { 0 };
        bytes[RECORD_CRC_AT..][..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// As [`seal`](Self::seal), but without the sum.
    #[inline]
    pub(crate) fn frame(&mut self, number: u64, last: u64, watermark: u64) -> &mut [u8] {
        debug_assert!(watermark < number);
        debug_assert!(number < NUMBER_END);
        let len = self.len();
        // `add` left room for whole lines.
        let (bytes, padding) = (&mut self.bytes[..len], self.end);
        bytes[padding..].fill(0);
        let (lines, entries) = ((len / LINE_LEN) as u16, self.entries as u16);
        bytes[RECORD_LINES_AT..][..2].copy_from_slice(&lines.to_le_bytes());
        bytes[RECORD_ENTRIES_AT..][..2].copy_from_slice(&entries.to_le_bytes());
        let numbers = number | back(number, last) << NUMBER_BITS;
        bytes[RECORD_NUMBER_AT..][..8].copy_from_slice(&numbers.to_le_bytes());
        bytes[RECORD_WATERMARK_AT..][..8].copy_from_slice(&watermark.to_le_bytes());
        bytes
    }

    /// Room for one more entry of `len` bytes, with anything in it.
    #[inline]
    fn add(&mut self, len: usize) -> &mut [u8] {
        self.last_data = None;
        self.entries += 1;
        self.room(len)
    }

    /// Room for `len` more bytes, with anything in it.
    #[inline]
    fn room(&mut self, len: usize) -> &mut [u8] {
        let (start, end) = (self.end, self.end + len);
        if end.next_multiple_of(LINE_LEN) > self.bytes.len() {
            self.grow(end);
        }
        self.end = end;
        &mut self.bytes[start..end]
    }

    /// Doubles, so that records of a length once met cost nothing from then on.
    #[cold]
    fn grow(&mut self, end: usize) {
        let len = end.next_multiple_of(LINE_LEN).max(2 * self.bytes.len());
        self.bytes.resize(len, 0);
    }
}

/// How far before `number` its lane's last record is; 0 if there was none, or too far to say.
#[inline]
fn back(number: u64, last: u64) -> u64 {
    let back = number.saturating_sub(last);
    if last == 0 || back > u64::from(u16::MAX) { 0 } else { back }
}

/// First word of an entry.
#[inline]
fn word(at: u64, kind: u8) -> [u8; 8] {
    debug_assert!(at >> OFFSET_BITS == 0, "offsets have 48 bits");
    let word = at & ((1 << OFFSET_BITS) - 1) | u64::from(kind) << OFFSET_BITS;
    word.to_le_bytes()
}

/// A sealed watermark record: one line without entries, whose number is its watermark.
pub(crate) fn mark(seed: u32, watermark: u64, summed: bool) -> [u8; LINE_LEN] {
    let mut line = [0; LINE_LEN];
    put_u16(&mut line, RECORD_LINES_AT, 1);
    put_u64(&mut line, RECORD_NUMBER_AT, watermark);
    put_u64(&mut line, RECORD_WATERMARK_AT, watermark);
    let crc = if summed { crc32c(seed, &line[RECORD_COVERED_AT..]) } else { 0 };
    put_u32(&mut line, RECORD_CRC_AT, crc);
    line
}

/// The header of what may be a record, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) lines: usize,
    pub(crate) entries: usize,
    pub(crate) number: u64,
    /// Number of the lane's record before; 0 if it does not say.
    pub(crate) last: u64,
    pub(crate) watermark: u64,
}

impl Head {
    /// Reads a header that may be anything; `None` if no record of at most `lines_max` lines
    /// starts like this. Cheap: tells almost all other lines from records without a sum.
    #[inline]
    pub(crate) fn of(line: &[u8], lines_max: usize) -> Option<Self> {
        let word = get_u64(line, RECORD_NUMBER_AT);
        let (number, back) = (word & (NUMBER_END - 1), word >> NUMBER_BITS);
        let head = Self {
            lines: get_u16(line, RECORD_LINES_AT).into(),
            entries: get_u16(line, RECORD_ENTRIES_AT).into(),
            number,
            last: if back == 0 { 0 } else { number.saturating_sub(back) },
            watermark: get_u64(line, RECORD_WATERMARK_AT),
        };
        let Self { lines, entries, watermark, .. } = head;
        let sized = (1..=lines_max).contains(&lines);
        let dated = if entries == 0 { watermark == number } else { watermark < number };
        (sized && dated && (1..NUMBER_BELIEVED_END).contains(&number)).then_some(head)
    }
}

/// The entries of the sealed record `bytes`, for a pool of `size` bytes.
pub(crate) fn record_entries(bytes: &[u8], size: u64) -> Entries<'_> {
    let count = get_u16(bytes, RECORD_ENTRIES_AT).into();
    counted(bytes.get(RECORD_LEN..).unwrap_or_default(), count, size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a record of one line and one entry.
    fn head(number: u64) -> Option<Head> {
        let mut line = [0; crate::format::LINE_LEN];
        line[RECORD_LINES_AT] = 1;
        line[RECORD_ENTRIES_AT] = 1;
        line[RECORD_NUMBER_AT..RECORD_NUMBER_AT + 8].copy_from_slice(&number.to_le_bytes());
        Head::of(&line, 1)
    }

    #[test]
    fn a_number_that_leaves_no_room_for_others_is_none() {
        assert_eq!(head(1).map(|head| head.number), Some(1));
        assert!(head(NUMBER_BELIEVED_END - 1).is_some());
        assert!(head(NUMBER_BELIEVED_END).is_none() && head(NUMBER_END - 1).is_none());
    }
}
