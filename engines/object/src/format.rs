//! Every offset of the object engine's own structures. The page: `docs/formats/object.md`.

use holdfast_layout::Field;

/// The anchor object: where a program finds everything else.
pub const FIELDS_ANCHOR: &[Field] =
    &[Field::new("root", 0, 8), Field::new("maps", 8, 8), Field::new("reserved", 16, 48)];
