//! Every offset of the side file. The page: `docs/formats/side.md`.

use holdfast_layout::Field;

/// First bytes of a header's body.
pub const MAGIC: [u8; 8] = *b"HOLDSIDE";
/// Version of the format this build writes.
pub const VERSION: u32 = 1;
/// Kind word of the header's mirrored page.
pub const KIND_HEADER: u32 = 0x4544_4953;
/// Where the header starts in its side.
pub const HEADER_PAGE: u64 = 0;
/// Lengths a side may have, tried in this order where no header says which.
pub const SIDE_LENS: [u64; 2] = [64 << 10, 2 << 20];
/// Bytes of a side before its events.
pub const EVENTS_FROM: u64 = 24576;
/// Most regions of a group.
pub const GROUP_MAX: u32 = 64;

/// The header, body of its mirrored page.
pub const FIELDS_HEADER: &[Field] = &[
    Field::new("magic", 0, 8),
    Field::new("version", 8, 4),
    Field::new("state", 12, 4),
    Field::new("compatible", 16, 8),
    Field::new("read_only_compatible", 24, 8),
    Field::new("incompatible", 32, 8),
    Field::new("uuid", 40, 16),
    Field::new("side_len", 56, 8),
    Field::new("data", 64, 4),
    Field::new("parity", 68, 4),
    Field::new("stripes", 72, 4),
    Field::new("group", 76, 4),
    Field::new("inode", 80, 8),
    Field::new("size", 88, 8),
    Field::new("mtime", 96, 8),
    Field::new("generation", 104, 8),
    Field::new("boot", 112, 16),
    Field::new("durability", 128, 4),
    Field::new("folios", 132, 4),
    Field::new("flags", 136, 4),
    Field::new("reserved", 140, 52),
];
/// Bytes of the header.
pub const HEADER_LEN: usize = 192;
/// Flag of a header: no sums are kept.
pub const FLAG_NO_SUMS: u32 = 1;
/// Flag of a header: entries keep no sum before the last.
pub const FLAG_NO_PREVIOUS: u32 = 2;
/// Flag of a header: somebody untracked writes to the file.
pub const FLAG_CONTESTED: u32 = 4;
/// Flags this build knows.
pub const FLAGS_KNOWN: u32 = FLAG_NO_SUMS | FLAG_NO_PREVIOUS | FLAG_CONTESTED;

/// State of one region: the record, and the bitmaps of its pages.
pub const FIELDS_REGION: &[Field] = &[
    Field::new("crc", 0, 4),
    Field::new("kind", 4, 1),
    Field::new("reserved", 5, 3),
    Field::new("generation", 8, 8),
    Field::new("meta", 16, 4),
    Field::new("pages", 20, 4),
    Field::new("verified", 24, 8),
    Field::new("covered", 32, 8),
    Field::new("unusable", 40, 8),
    Field::new("rest", 48, 4),
    Field::new("why_of", 52, 4),
    Field::new("why_most", 56, 1),
    Field::new("why_apart", 57, 6),
    Field::new("reserved", 63, 1),
    Field::new("stale", 64, 32),
    Field::new("observed", 96, 32),
];
/// Bytes of a region's record.
pub const RECORD_LEN: usize = 64;
/// Where a region's record says why pages of it are undecided: of which set of them,
pub const WHY_OF: usize = 52;
/// the reason of most,
pub const WHY_MOST: usize = 56;
/// and pages that have others, each a byte for the page and one for the reason.
pub const WHY_APART: usize = 57;
/// Bytes of all three.
pub const WHY_LEN: usize = 11;
/// Bytes of a bitmap.
pub const BITS_LEN: usize = 32;
/// Where the bitmap of stale pages is in a region's state.
pub const STALE_START: u64 = 64;
/// Where the bitmap of pages observed is in a region's state.
pub const OBSERVED_START: u64 = 96;
/// Bytes of a region's state.
pub const REGION_LEN: u64 = 128;
/// Kind of a region nobody may store to.
pub const KIND_CLEAN: u8 = 1;
/// Kind of a region somebody may store to.
pub const KIND_SUSPECT: u8 = 2;

/// Entry of one page.
pub const FIELDS_ENTRY: &[Field] = &[Field::new("current", 0, 4), Field::new("previous", 4, 4)];
/// Bytes of an entry: one aligned word, so that it is old or new after a crash.
pub const ENTRY_LEN: usize = 8;
