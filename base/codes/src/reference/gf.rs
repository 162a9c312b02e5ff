//! Arithmetic on slices of field elements, one byte at a time (eight where doubling suffices).

use core::ops::Range;

use crate::gf_tables::NIBBLES;
use crate::pq::check_rows;
use crate::xor::same_length;

use super::xor::{xor_into, xor_many_part};

/// The product of `byte` and the factor whose row of `NIBBLES` is given.
fn times(byte: u8, table: &[u8; 32]) -> u8 {
    table[usize::from(byte & 15)] ^ table[16 + usize::from(byte >> 4)]
}

/// `out = coef * src`, byte by byte. Panics if the lengths differ.
pub fn gf_mul_into(out: &mut [u8], src: &[u8], coef: u8) {
    same_length(out, src);
    let table = &NIBBLES[usize::from(coef)];
    for (to, from) in out.iter_mut().zip(src) {
        *to = times(*from, table);
    }
}

/// `dst ^= coef * src`, byte by byte. Panics if the lengths differ.
pub fn gf_mul_xor_into(dst: &mut [u8], src: &[u8], coef: u8) {
    same_length(dst, src);
    let table = &NIBBLES[usize::from(coef)];
    for (to, from) in dst.iter_mut().zip(src) {
        *to ^= times(*from, table);
    }
}

/// `p ^= src` and `q ^= coef * src`. Panics if the lengths differ.
pub fn pq_add(p: &mut [u8], q: &mut [u8], src: &[u8], coef: u8) {
    xor_into(p, src);
    gf_mul_xor_into(q, src, coef);
}

/// `p` = sum of all rows, `q` = sum of g^i times row i. Panics if the lengths differ or there
/// are more than `MAX_ROWS` rows.
pub fn pq_encode(p: &mut [u8], q: &mut [u8], rows: &[&[u8]]) {
    check_rows(p, q, rows);
    pq_encode_part(p, q, rows, 0..p.len());
}

/// `pq_encode` for one range of the bytes.
pub(crate) fn pq_encode_part(p: &mut [u8], q: &mut [u8], rows: &[&[u8]], range: Range<usize>) {
    xor_many_part(p, rows, range.clone());
    let q = &mut q[range.clone()];
    q.fill(0);
    // From the last row to the first: each pass doubles what is there, so row i is doubled i times.
    for row in rows.iter().rev() {
        double(q);
        xor_into(q, &row[range.clone()]);
    }
}

/// Multiplies every byte by g, eight bytes at a time: shift each byte left and reduce those whose
/// top bit was set.
fn double(bytes: &mut [u8]) {
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        let value = u64::from_le_bytes(*word);
        let tops = (value >> 7) & 0x0101_0101_0101_0101;
        let shifted = (value << 1) & 0xFEFE_FEFE_FEFE_FEFE;
        *word = (shifted ^ (tops * 0x1D)).to_le_bytes();
    }
    for byte in rest {
        *byte = (*byte << 1) ^ ((*byte >> 7) * 0x1D);
    }
}
