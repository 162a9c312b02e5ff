//! Every offset of the object engine's own structures. The page: `docs/formats/object.md`.

use holdfast_layout::Field;

/// The anchor object: where a program finds everything else.
pub const FIELDS_ANCHOR: &[Field] =
    &[Field::new("root", 0, 8), Field::new("maps", 8, 8), Field::new("reserved", 16, 48)];

/// The status page: what observers of an open pool may know.
pub const FIELDS_STATUS: &[Field] = &[
    Field::new("process", 0, 8),
    Field::new("commits", 8, 8),
    Field::new("live", 16, 8),
    Field::new("socket_len", 24, 4),
    Field::new("reserved", 28, 4),
    Field::new("socket", 32, 108),
];
/// Bytes of the body of the status page that have a meaning.
pub const STATUS_LEN: usize = 140;
