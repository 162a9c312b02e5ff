//! Every offset of the records of this crate. The pages: `docs/formats/events.md` and
//! `docs/formats/repair.md`.

use holdfast_layout::Field;

/// One entry of the events journal.
pub const FIELDS_EVENT: &[Field] = &[
    Field::new("crc", 0, 4),
    Field::new("cause", 4, 1),
    Field::new("finder", 5, 1),
    Field::new("wrong", 6, 1),
    Field::new("outcome", 7, 1),
    Field::new("sequence", 8, 8),
    Field::new("time", 16, 8),
    Field::new("at", 24, 8),
    Field::new("len", 32, 8),
    Field::new("object", 40, 8),
    Field::new("duration", 48, 8),
    Field::new("before_sum", 56, 4),
    Field::new("after_sum", 60, 4),
    Field::new("verified", 64, 8),
    Field::new("reserved", 72, 56),
];
/// Bytes of an entry of the events journal: a page holds a whole number of them.
pub const EVENT_LEN: usize = 128;

/// The repair intent, body of its mirrored page.
pub const FIELDS_INTENT: &[Field] = &[
    Field::new("at", 0, 8),
    Field::new("len", 8, 8),
    Field::new("sum", 16, 4),
    Field::new("reserved", 20, 12),
];
/// Bytes of a repair intent.
pub const INTENT_LEN: usize = 32;

/// The scrub progress, body of its mirrored page.
pub const FIELDS_PROGRESS: &[Field] = &[
    Field::new("pass", 0, 8),
    Field::new("next", 8, 8),
    Field::new("started", 16, 8),
    Field::new("scanned", 24, 8),
    Field::new("found", 32, 8),
    Field::new("repaired", 40, 8),
    Field::new("lost", 48, 8),
    Field::new("undecided", 56, 8),
    Field::new("state", 64, 4),
    Field::new("reserved", 68, 4),
    Field::new("objects", 72, 8),
    Field::new("object_bytes", 80, 8),
    Field::new("reserved", 88, 8),
];
/// Bytes of a scrub progress.
pub const PROGRESS_LEN: usize = 96;
