//! Every offset of the pointer file and of what a pool keeps of a region. The page:
//! `docs/formats/pointer.md`.

use holdfast_layout::{Field, covers};

/// First bytes of a pointer's body.
pub(crate) const MAGIC: [u8; 8] = *b"HOLDPTR\n";
/// Version of the format this build writes.
pub(crate) const VERSION: u32 = 1;
/// Kind word of the pointer's mirrored page.
pub(crate) const KIND_POINTER: u32 = 0x2052_5450;
/// Bytes of a side of a pointer file: its one page.
pub(crate) const SIDE_LEN: u64 = 4096;

/// The body of a pointer's mirrored page.
pub(crate) const FIELDS_POINTER: &[Field] = &[
    Field::new("magic", 0, 8),
    Field::new("version", 8, 4),
    Field::new("path_len", 12, 4),
    Field::new("pool", 16, 16),
    Field::new("region", 32, 16),
];
/// Where the path begins, which goes on for `path_len` bytes.
pub(crate) const PATH_START: usize = 48;

/// What a pool keeps of a region beside its pages.
pub(crate) const FIELDS_EXTENT: &[Field] = &[
    Field::new("len", 0, 8),
    Field::new("stage", 8, 4),
    Field::new("path_len", 12, 4),
    Field::new("device", 16, 8),
    Field::new("inode", 24, 8),
    Field::new("replaces", 32, 16),
];
/// Bytes of that; the path begins there.
pub(crate) const EXTENT_LEN: usize = 48;
/// Key of that; pages have their numbers as keys.
pub(crate) const EXTENT_KEY: u64 = u64::MAX;
/// Most bytes of a region.
pub(crate) const LEN_MAX: u64 = 1 << 45;

const _: () = {
    assert!(covers(FIELDS_POINTER, PATH_START as u64));
    assert!(covers(FIELDS_EXTENT, EXTENT_LEN as u64));
};
