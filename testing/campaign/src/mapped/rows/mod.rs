//! The rows of the campaign against the engine for mapped files, one module each.

pub mod crash;
pub mod damage;
pub mod fail_nth;
pub mod fields;
pub mod mutants;
pub mod pointers;
pub mod sequences;
pub mod sigkill;
pub mod writers;

use crate::runner::Row;

/// All rows, in the order they are run.
pub const ROWS: &[Row] = &[
    crash::ROW,
    sequences::ROW,
    mutants::ROW,
    damage::ROW,
    fail_nth::ROW,
    fields::ROW,
    pointers::ROW,
    writers::ROW,
    sigkill::ROW,
];
