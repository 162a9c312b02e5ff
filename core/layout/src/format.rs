//! Every offset of the structures a pool starts with. The pages: `docs/formats/pool.md`.

use crate::field::Field;

/// First eight bytes of every pool.
pub const MAGIC: [u8; 8] = *b"HOLDFAST";
/// Version of the format this build writes.
pub const VERSION: u32 = 1;
/// Highest sequence or generation that is believed: no pool lives long enough to count further,
/// and whoever counts on from one does not overflow.
pub const SEQUENCE_MAX: u64 = 1 << 62;
/// Bytes of a page: each mirrored structure has one (the journal several).
pub const PAGE_LEN: usize = 4096;

/// Superblock: where it starts in its side.
pub const SUPERBLOCK_PAGE: u64 = 0;
/// Region table: where it starts in its side.
pub const REGIONS_PAGE: u64 = 4096;
/// Remap table: where it starts in its side.
pub const REMAP_PAGE: u64 = 8192;
/// Repair intent: where it starts in its side.
pub const INTENT_PAGE: u64 = 12288;
/// Scrub progress: where it starts in its side.
pub const PROGRESS_PAGE: u64 = 16384;
/// Events journal: where it starts in its side; its length is a field of the superblock.
pub const EVENTS_START: u64 = 24576;

/// The superblock, one page.
pub const FIELDS_SUPERBLOCK: &[Field] = &[
    Field::new("magic", 0, 8),
    Field::new("crc", 8, 4),
    Field::new("version", 12, 4),
    Field::new("sequence", 16, 8),
    Field::new("uuid", 24, 16),
    Field::new("compatible", 40, 8),
    Field::new("read_only_compatible", 48, 8),
    Field::new("incompatible", 56, 8),
    Field::new("log_generation", 64, 8),
    Field::new("state", 72, 8),
    Field::new("size", 80, 8),
    Field::new("frame", 88, 8),
    Field::new("chunk", 96, 8),
    Field::new("side_len", 104, 8),
    Field::new("events_len", 112, 8),
    Field::new("log_start", 120, 8),
    Field::new("ring_len", 128, 8),
    Field::new("lanes", 136, 4),
    Field::new("log_placement", 140, 4),
    Field::new("sum_kind", 144, 4),
    Field::new("parity", 148, 4),
    Field::new("copies", 152, 4),
    Field::new("flags", 156, 4),
    Field::new("anchor", 160, 8),
    Field::new("rows", 168, 4),
    Field::new("reserved", 172, 4),
    Field::new("label", 176, 64),
    Field::new("reserved", 240, 3856),
];

/// Header of every other mirrored page.
pub const FIELDS_MIRRORED: &[Field] = &[
    Field::new("crc", 0, 4),
    Field::new("kind", 4, 4),
    Field::new("sequence", 8, 8),
    Field::new("count", 16, 4),
    Field::new("reserved", 20, 12),
];
/// Bytes of the header of a mirrored page; its entries follow.
pub const MIRRORED_LEN: usize = 32;

/// One region of the pool.
pub const FIELDS_REGION: &[Field] = &[
    Field::new("start", 0, 8),
    Field::new("len", 8, 8),
    Field::new("kind", 16, 4),
    Field::new("data_rows", 20, 4),
    Field::new("parity_rows", 24, 4),
    Field::new("reserved", 28, 4),
    Field::new("row_len", 32, 8),
    Field::new("chunk", 40, 8),
    Field::new("reserved", 48, 16),
];
/// Bytes of a region entry.
pub const REGION_LEN: usize = 64;
/// Region entries in the table's page.
pub const REGIONS_MAX: usize = (PAGE_LEN - MIRRORED_LEN) / REGION_LEN;

/// One relocated frame.
pub const FIELDS_REMAP: &[Field] = &[Field::new("frame", 0, 8), Field::new("physical", 8, 8)];
/// Bytes of a remap entry.
pub const REMAP_LEN: usize = 16;
/// Remap entries in the table's page.
pub const REMAPS_MAX: usize = (PAGE_LEN - MIRRORED_LEN) / REMAP_LEN;

/// Kind words of the mirrored pages: a page read at the wrong place is not taken for another.
pub const KIND_REGIONS: u32 = 0x4e47_4552;
/// Kind word of the remap table.
pub const KIND_REMAP: u32 = 0x5041_4d52;
/// Kind word of the repair intent.
pub const KIND_INTENT: u32 = 0x4e45_544e;
/// Kind word of the scrub progress.
pub const KIND_PROGRESS: u32 = 0x474f_5250;

/// Incompatible: the pool has Q parity rows.
pub const INCOMPATIBLE_Q: u64 = 1;
/// Incompatible: sums are Adler-32, not CRC-32C.
pub const INCOMPATIBLE_ADLER: u64 = 2;
/// Incompatible: some frames are relocated.
pub const INCOMPATIBLE_REMAP: u64 = 4;
/// Every incompatible feature this build knows.
pub const INCOMPATIBLE_KNOWN: u64 = INCOMPATIBLE_Q | INCOMPATIBLE_ADLER | INCOMPATIBLE_REMAP;
/// Every read-only compatible feature this build knows.
pub const READ_ONLY_COMPATIBLE_KNOWN: u64 = 0;
