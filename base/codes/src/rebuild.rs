//! Rebuilding lost rows when all surviving units of a stripe are at hand as slices.
//!
//! Thin forms of what [`PqSums`] does one row at a time. Losses that include P or Q need no form
//! of their own: once the rows are back, [`pq_encode`](crate::pq_encode) makes both anew.

use crate::gf::{gf_inv, gf_mul_xor_into, gf_pow_g};
use crate::pq::{MAX_ROWS, PqSums, scale};
use crate::xor::xor_into;

/// Rebuilds a lost row from P: `out` = `p` XOR all `others`.
///
/// # Panics
///
/// If the lengths differ.
pub fn rebuild_from_p(out: &mut [u8], others: &[&[u8]], p: &[u8]) {
    out.copy_from_slice(p);
    for other in others {
        xor_into(out, other);
    }
}

/// Rebuilds row `row` from Q and all other rows, each with its index.
///
/// # Panics
///
/// If the lengths differ, or an index is not below [`MAX_ROWS`] or equal to `row`.
pub fn rebuild_from_q(out: &mut [u8], row: usize, others: &[(usize, &[u8])], q: &[u8]) {
    assert!(row < MAX_ROWS, "a stripe has at most {MAX_ROWS} rows, there is no row {row}");
    out.copy_from_slice(q);
    for (index, bytes) in others {
        assert!(*index < MAX_ROWS && *index != row, "row {index} cannot help to rebuild row {row}");
        gf_mul_xor_into(out, bytes, gf_pow_g(*index));
    }
    scale(out, gf_inv(gf_pow_g(row)));
}

/// Rebuilds two rows from P, Q and all other rows; `lost` and `others` carry row indices.
///
/// # Panics
///
/// If the lengths differ, or an index is not below [`MAX_ROWS`] or given twice.
pub fn rebuild_two(lost: [(usize, &mut [u8]); 2], others: &[(usize, &[u8])], p: &[u8], q: &[u8]) {
    let [(x, row_x), (y, row_y)] = lost;
    let mut sums = PqSums::new(row_x, row_y);
    for (index, bytes) in others {
        sums.add(*index, bytes);
    }
    sums.add_p(p);
    sums.add_q(q);
    sums.solve_rows(x, y);
}
