//! Every offset of the heap's structures. The page: `docs/formats/zone.md`.

use holdfast_layout::Field;

/// One entry of the chunk directory.
pub const FIELDS_CHUNK: &[Field] = &[
    Field::new("crc", 0, 4),
    Field::new("kind", 4, 1),
    Field::new("class", 5, 1),
    Field::new("generation", 6, 2),
    Field::new("count", 8, 4),
    Field::new("reserved", 12, 20),
];
/// Bytes of a directory entry.
pub const CHUNK_LEN: usize = 32;

/// One slot: the header of an object, kept apart from it.
pub const FIELDS_SLOT: &[Field] = &[
    Field::new("sum", 0, 4),
    Field::new("generation", 4, 2),
    Field::new("state", 6, 2),
    Field::new("type", 8, 4),
    Field::new("len", 12, 4),
];
/// Bytes of a slot.
pub const SLOT_LEN: usize = 16;
/// Bytes one sum covers at most.
pub const GRANULE: u64 = 1024;
/// Bytes of the sum of one granule.
pub const SUM_LEN: u64 = 4;
/// Objects start at multiples of this.
pub const OBJECT_ALIGN: u64 = 64;
/// Longest object: its length is a 32-bit field, and a page less keeps sums of it in range.
pub const OBJECT_MAX: u64 = (1 << 32) - 4096;

/// Chunk is free.
pub const KIND_FREE: u8 = 0;
/// Chunk is a run of objects of one class.
pub const KIND_RUN: u8 = 1;
/// Chunk begins a large object.
pub const KIND_LARGE: u8 = 2;
/// Chunk continues a large object.
pub const KIND_TAIL: u8 = 3;
/// Chunk holds overflowing log records; counts as zeros in parity.
pub const KIND_LOG: u8 = 4;

/// Slot is free: the lowest bit of its state.
pub const STATE_FREE: u8 = 0;
/// Slot holds an object: the lowest bit of its state. The others count writes.
pub const STATE_LIVE: u8 = 1;
