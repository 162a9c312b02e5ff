//! Where the words of the model pool lie, and which of them guard which.
//!
//! ```text
//! superblock A, B | region table A, B | zone headers A, B | lanes A | lanes B | zone 0 | zone 1
//!
//! one zone, 5 data rows of 6 columns, then the parity row:
//!   directory words of 3 chunks, slots of 5 small objects, the objects (2 words each),
//!   the chunks (4 words each); they wrap from row to row as in a real zone
//! ```
//!
//! A lane has `ring` places for records and two more for marks (records that only carry a
//! watermark). Every place exists in two copies.

use std::ops::Range;

/// Columns of a zone, in words.
pub(super) const COLUMNS: usize = 6;
/// Small objects per zone.
const SMALL: usize = 5;
/// Chunks per zone: each is free, one large object, or log space.
const CHUNKS: usize = 3;
/// Words of a small object.
const SMALL_WORDS: usize = 2;
/// Words of a chunk.
pub(super) const CHUNK_WORDS: usize = 4;
/// Units (small objects and chunks) per zone.
pub(super) const UNITS: usize = SMALL + CHUNKS;
/// Most zones a trial can have: one at the start, one more by growth.
pub(super) const MAX_ZONES: usize = 2;
/// Words of one copy of a record; see `record.rs`.
pub(super) const RECORD_WORDS: usize = 15;

/// Words of a zone that parity guards.
const ZONE_DATA: usize = CHUNKS + SMALL + SMALL * SMALL_WORDS + CHUNKS * CHUNK_WORDS;
/// Words of a zone with its parity row.
const ZONE_WORDS: usize = ZONE_DATA + COLUMNS;
/// Where the slot of each small object lies: never in a column of its own object.
const SLOT_PLACES: [usize; SMALL] = [5, 6, 3, 4, 7];

const _: () = assert!(ZONE_DATA.is_multiple_of(COLUMNS), "whole rows only");

/// The two copies of whatever is mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copy {
    /// The primary.
    A,
    /// The replica, written first.
    B,
}

impl Copy {
    /// Both, primary first.
    pub(super) const BOTH: [Self; 2] = [Self::A, Self::B];

    const fn index(self) -> usize {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }
}

/// The shape of one pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// Lanes that commit.
    pub(super) lanes: usize,
    /// Record places per lane.
    pub(super) ring: usize,
}

impl Geometry {
    /// First of the two words {generation, seal} of a superblock copy.
    pub(super) const fn superblock(self, copy: Copy) -> usize {
        copy.index() * 2
    }

    /// First of the two words {zones, seal} of a region table copy.
    pub(super) const fn table(self, copy: Copy) -> usize {
        4 + copy.index() * 2
    }

    /// First of the two words {mark, seal} of a zone header copy.
    pub(super) const fn zone_header(self, zone: usize, copy: Copy) -> usize {
        8 + zone * 4 + copy.index() * 2
    }

    /// Places of a lane: its ring and two marks.
    pub(super) const fn places(self) -> usize {
        self.ring + 2
    }

    /// First word of a copy of a record.
    pub(super) const fn record(self, lane: usize, place: usize, copy: Copy) -> usize {
        let index = (copy.index() * self.lanes + lane) * self.places() + place;
        8 + MAX_ZONES * 4 + index * RECORD_WORDS
    }

    /// First word of the heap.
    pub(super) const fn heap(self) -> usize {
        8 + MAX_ZONES * 4 + 2 * self.lanes * self.places() * RECORD_WORDS
    }

    /// Words of the pool.
    pub(super) const fn words(self) -> usize {
        self.heap() + MAX_ZONES * ZONE_WORDS
    }

    const fn zone(self, zone: usize) -> usize {
        self.heap() + zone * ZONE_WORDS
    }

    /// Whether the unit is a chunk (else a small object).
    pub(super) const fn is_chunk(self, unit: usize) -> bool {
        unit % UNITS >= SMALL
    }

    /// The word that certifies a unit: the slot of a small object, the directory word of a chunk.
    pub(super) const fn meta(self, unit: usize) -> usize {
        let (zone, index) = (unit / UNITS, unit % UNITS);
        let at = if index < SMALL { SLOT_PLACES[index] } else { index - SMALL };
        self.zone(zone) + at
    }

    /// The content words of a unit.
    pub(super) const fn content(self, unit: usize) -> Range<usize> {
        let (zone, index) = (unit / UNITS, unit % UNITS);
        let small = CHUNKS + SMALL;
        let (at, words) = if index < SMALL {
            (small + index * SMALL_WORDS, SMALL_WORDS)
        } else {
            (small + SMALL * SMALL_WORDS + (index - SMALL) * CHUNK_WORDS, CHUNK_WORDS)
        };
        let from = self.zone(zone) + at;
        from..from + words
    }

    /// All words of a unit, the certifying one first.
    pub(super) fn unit_words(self, unit: usize) -> impl Iterator<Item = usize> {
        std::iter::once(self.meta(unit)).chain(self.content(unit))
    }

    /// The pool-wide column of a heap word (data or parity).
    pub(super) fn column(self, word: usize) -> usize {
        let at = word.checked_sub(self.heap()).expect("only heap words have columns");
        at / ZONE_WORDS * COLUMNS + at % ZONE_WORDS % COLUMNS
    }

    /// The parity word of a column.
    pub(super) const fn parity(self, column: usize) -> usize {
        self.zone(column / COLUMNS) + ZONE_DATA + column % COLUMNS
    }

    /// The words of a column that parity sums up, one per row.
    pub(super) fn rows(self, column: usize) -> impl Iterator<Item = usize> {
        let top = self.zone(column / COLUMNS) + column % COLUMNS;
        (top..top + ZONE_DATA).step_by(COLUMNS)
    }

    /// The chunk a heap word lies in, if it lies in the content of one.
    pub(super) fn chunk_of(self, word: usize) -> Option<usize> {
        let at = word - self.heap();
        let first = ZONE_DATA - CHUNKS * CHUNK_WORDS;
        let within = (at % ZONE_WORDS).checked_sub(first)?;
        let chunk = within / CHUNK_WORDS;
        (chunk < CHUNKS).then_some(at / ZONE_WORDS * UNITS + SMALL + chunk)
    }

    /// Whether a word is a parity word.
    #[cfg(test)]
    fn is_parity(self, word: usize) -> bool {
        (word - self.heap()) % ZONE_WORDS >= ZONE_DATA
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Geometry = Geometry { lanes: 3, ring: 3 };

    #[test]
    fn every_heap_word_has_exactly_one_owner() {
        let mut owners = vec![0; SHAPE.words()];
        for unit in 0..MAX_ZONES * UNITS {
            for word in SHAPE.unit_words(unit) {
                owners[word] += 1;
            }
        }
        for column in 0..MAX_ZONES * COLUMNS {
            owners[SHAPE.parity(column)] += 1;
            assert!(SHAPE.is_parity(SHAPE.parity(column)));
        }
        assert!(owners[..SHAPE.heap()].iter().all(|&n| n == 0));
        assert!(owners[SHAPE.heap()..].iter().all(|&n| n == 1));
    }

    #[test]
    fn columns_partition_the_data_words() {
        let mut seen = vec![false; SHAPE.words()];
        for column in 0..MAX_ZONES * COLUMNS {
            for word in SHAPE.rows(column) {
                assert_eq!(SHAPE.column(word), column);
                assert!(!std::mem::replace(&mut seen[word], true));
            }
            assert_eq!(SHAPE.column(SHAPE.parity(column)), column);
        }
        assert_eq!(seen.iter().filter(|&&s| s).count(), MAX_ZONES * ZONE_DATA);
    }

    #[test]
    fn slots_and_objects_share_no_column() {
        for unit in (0..MAX_ZONES * UNITS).filter(|&u| !SHAPE.is_chunk(u)) {
            let slot = SHAPE.column(SHAPE.meta(unit));
            assert!(SHAPE.content(unit).all(|w| SHAPE.column(w) != slot));
        }
    }

    #[test]
    fn chunks_are_found_by_their_words() {
        for unit in 0..MAX_ZONES * UNITS {
            for word in SHAPE.content(unit) {
                assert_eq!(SHAPE.chunk_of(word), SHAPE.is_chunk(unit).then_some(unit));
            }
            assert_eq!(SHAPE.chunk_of(SHAPE.meta(unit)), None);
        }
        assert!((0..MAX_ZONES * COLUMNS).all(|c| SHAPE.chunk_of(SHAPE.parity(c)).is_none()));
    }

    #[test]
    fn records_end_where_the_heap_begins() {
        let last = SHAPE.record(SHAPE.lanes - 1, SHAPE.places() - 1, Copy::B);
        assert_eq!(last + RECORD_WORDS, SHAPE.heap());
        assert_eq!(SHAPE.record(0, 0, Copy::A), SHAPE.zone_header(MAX_ZONES, Copy::A));
    }
}
