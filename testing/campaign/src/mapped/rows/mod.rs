//! The rows of the campaign against the engine for mapped files, one module each.

pub mod crash;
pub mod damage;

use crate::runner::Row;

/// All rows, in the order they are run.
pub const ROWS: &[Row] = &[crash::ROW, damage::ROW];
