//! The field GF(2^8) with polynomial 0x11D and generator g = 2, on single bytes and slices.

use crate::dispatch;
use crate::gf_tables::{EXP, LOG, ORDER};

/// Product of two field elements.
#[inline]
pub fn gf_mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[usize::from(LOG[usize::from(a)]) + usize::from(LOG[usize::from(b)])]
}

/// The inverse of `a`. Zero has none; for it the answer is zero.
#[inline]
pub fn gf_inv(a: u8) -> u8 {
    if a == 0 { 0 } else { EXP[ORDER - usize::from(LOG[usize::from(a)])] }
}

/// g to the power `row`, the coefficient of a row in Q. Repeats after 255 rows.
#[inline]
pub fn gf_pow_g(row: usize) -> u8 {
    EXP[row % ORDER]
}

/// The power of g that `a`, which is not zero, is: the inverse of [`gf_pow_g`].
pub(crate) fn logarithm(a: u8) -> usize {
    usize::from(LOG[usize::from(a)])
}

/// `out = coef * src`, byte by byte: with `coef = gf_pow_g(row)`, the change of Q for a change
/// `src` of that row.
///
/// # Panics
///
/// If the lengths differ.
#[inline]
pub fn gf_mul_into(out: &mut [u8], src: &[u8], coef: u8) {
    dispatch::gf_mul_into(out, src, coef);
}

/// `dst ^= coef * src`, byte by byte.
///
/// # Panics
///
/// If the lengths differ.
#[inline]
pub fn gf_mul_xor_into(dst: &mut [u8], src: &[u8], coef: u8) {
    dispatch::gf_mul_xor_into(dst, src, coef);
}
