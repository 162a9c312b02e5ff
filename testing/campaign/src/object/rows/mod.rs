//! The rows of the campaign against the object engine, one module each.

pub mod beyond;
pub mod crash_pairs;
pub mod crash_single;
pub mod damage;
pub mod fail_nth;
pub mod fields;
pub mod histories;
pub mod large;
pub mod lost;
pub mod media;
pub mod mutants;
pub mod nested;
pub mod sequences;
pub mod sigkill;
mod spared;
mod stale;
pub mod storm;

use crate::runner::Row;

/// All rows, in the order they are run.
pub const ROWS: &[Row] = &[
    crash_single::ROW,
    crash_pairs::ROW,
    sequences::ROW,
    nested::ROW,
    mutants::ROW,
    damage::ROW,
    lost::ROW,
    beyond::ROW,
    storm::ROW,
    fail_nth::ROW,
    fields::ROW,
    histories::ROW,
    sigkill::ROW,
    media::ROW,
    large::ROW,
];
