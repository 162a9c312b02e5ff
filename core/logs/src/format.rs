//! Every offset of a log record and its entries. The page: `docs/formats/log.md`.

use holdfast_layout::{Field, covers};

/// Bytes of a line: records start and end at multiples of it.
pub const LINE_LEN: usize = 64;
/// Bytes of a page: batches start and end at multiples of it.
pub const PAGE_LEN: u64 = 4096;

/// Header of a record. Its entries follow, then zeros up to the end of its last line.
pub const FIELDS_RECORD: &[Field] = &[
    Field::new("crc", 0, 4),
    Field::new("lines", 4, 2),
    Field::new("entries", 6, 2),
    Field::new("number", 8, 6),
    Field::new("back", 14, 2),
    Field::new("watermark", 16, 8),
];
/// Bytes of the header of a record.
pub const RECORD_LEN: usize = 24;
/// Where the checksum of a record is.
pub const RECORD_CRC_AT: usize = 0;
/// Where the bytes that the checksum covers start.
pub const RECORD_COVERED_AT: usize = 4;
/// Where the number of lines is.
pub const RECORD_LINES_AT: usize = 4;
/// Where the number of entries is.
pub const RECORD_ENTRIES_AT: usize = 6;
/// Where the commit number is, in the low bits of a word of eight bytes.
pub const RECORD_NUMBER_AT: usize = 8;
/// Bits of a commit number. Above them is how far back the lane's record before this one is.
pub const NUMBER_BITS: u32 = 48;
/// Where the watermark is.
pub const RECORD_WATERMARK_AT: usize = 16;
/// Most lines of a record.
pub const RECORD_LINES_MAX: usize = u16::MAX as usize;
/// Most entries of a record.
pub const RECORD_ENTRIES_MAX: usize = u16::MAX as usize;
/// Commit numbers are below this.
pub const NUMBER_END: u64 = 1 << NUMBER_BITS;
/// Numbers of records that are believed are below this: a damaged one leaves room for the numbers
/// of all commits that follow.
pub const NUMBER_BELIEVED_END: u64 = NUMBER_END - (1 << 32);

/// First word of every entry: place, kind, and a byte that is zero.
pub const ENTRY_LEN: usize = 8;
/// Entries start at multiples of this, counted from the start of the record.
pub const ENTRY_ALIGN: usize = 8;
/// Bits of a place in the pool.
pub const OFFSET_BITS: u32 = 48;

/// Kind of an entry that changes bytes.
pub const KIND_DATA: u8 = 1;
/// Kind of an entry that changes one slot.
pub const KIND_SLOT: u8 = 2;
/// Kind of an entry that announces contents written in place.
pub const KIND_FRESH: u8 = 3;
/// Kind of an entry that says where further entries are.
pub const KIND_OVERFLOW: u8 = 4;

/// New bytes of a range; they follow, padded with zeros to a multiple of eight.
pub const FIELDS_DATA: &[Field] = &[
    Field::new("offset", 0, 6),
    Field::new("kind", 6, 1),
    Field::new("reserved", 7, 1),
    Field::new("len", 8, 4),
    Field::new("reserved", 12, 4),
];
/// Bytes of a DATA entry before its payload.
pub const DATA_LEN: usize = 16;

/// New contents of a slot.
pub const FIELDS_SLOT: &[Field] = &[
    Field::new("offset", 0, 6),
    Field::new("kind", 6, 1),
    Field::new("reserved", 7, 1),
    Field::new("slot", 8, 16),
];
/// Bytes of a slot.
pub const SLOT_BYTES: usize = 16;
/// Bytes of a SLOT entry.
pub const SLOT_LEN: usize = 24;

/// A range whose contents are written in place, unlogged, after this record is durable.
pub const FIELDS_FRESH: &[Field] = &[
    Field::new("offset", 0, 6),
    Field::new("kind", 6, 1),
    Field::new("reserved", 7, 1),
    Field::new("len", 8, 8),
];
/// Bytes of a FRESH entry.
pub const FRESH_LEN: usize = 16;

/// Where further entries are, twice.
pub const FIELDS_OVERFLOW: &[Field] = &[
    Field::new("offset", 0, 6),
    Field::new("kind", 6, 1),
    Field::new("reserved", 7, 1),
    Field::new("replica", 8, 8),
    Field::new("len", 16, 8),
    Field::new("crc", 24, 4),
    Field::new("reserved", 28, 4),
];
/// Bytes of an OVERFLOW entry.
pub const OVERFLOW_LEN: usize = 32;

/// Lines at the start of a lane's ring that only watermark records use, in turn.
pub const RING_MARKS: u32 = 2;
/// Pages at the start of the adjacent log that only watermark records use: two places of a page
/// and its replica, in turn.
pub const ADJACENT_MARK_PAGES: u64 = 4;
/// Pages of one of the two places for watermark records in the adjacent log.
pub const ADJACENT_MARK_STRIDE: u64 = 2;
/// The lane number that seeds the checksums of the adjacent log, which has no lanes.
pub const NO_LANE: u32 = u32::MAX;

const _: () = {
    assert!(covers(FIELDS_RECORD, RECORD_LEN as u64));
    assert!(covers(FIELDS_DATA, DATA_LEN as u64));
    assert!(covers(FIELDS_SLOT, SLOT_LEN as u64));
    assert!(covers(FIELDS_FRESH, FRESH_LEN as u64));
    assert!(covers(FIELDS_OVERFLOW, OVERFLOW_LEN as u64));
    assert!(RECORD_LEN + OVERFLOW_LEN <= LINE_LEN);
};
