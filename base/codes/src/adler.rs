//! Adler-32: whole, continued, patched.
//!
//! Two sums modulo 65,521: A, one more than the sum of the bytes, and B, the sum of all values A
//! takes. Kept because its patch touches only the changed range; on short objects its upper bits
//! hardly vary, so it is the weaker choice.

use crate::dispatch;
use crate::xor::same_length;

/// The largest prime below 2^16.
pub(crate) const MODULUS: u32 = 65_521;

/// The Adler-32 of a message of which `seed` is the Adler-32 so far (1 at the start) and `bytes`
/// follow. A seed with a half of 65,521 or more, which no message has, is taken modulo 65,521.
///
/// ```
/// assert_eq!(holdfast_codes::adler32(1, b"Wikipedia"), 0x11E6_0398);
/// ```
pub fn adler32(seed: u32, bytes: &[u8]) -> u32 {
    let (plain, weighted) = dispatch::adler_sums(bytes);
    let (a, b) = (seed & 0xFFFF, seed >> 16);
    pack(a + plain, u64::from(b) + u64::from(weighted) + times(a, bytes.len()))
}

/// The Adler-32 of a message whose sum was `old_sum`, after a range of it was replaced: `old`
/// became `new`, and `tail` bytes of the message follow the range.
///
/// # Panics
///
/// If `old` and `new` differ in length.
pub fn adler32_patch(old_sum: u32, old: &[u8], new: &[u8], tail: usize) -> u32 {
    same_length(old, new);
    let (old_plain, old_weighted) = dispatch::adler_sums(old);
    let (new_plain, new_weighted) = dispatch::adler_sums(new);
    let plain = new_plain + MODULUS - old_plain;
    let weighted = u64::from(new_weighted + MODULUS - old_weighted);
    let (a, b) = (old_sum & 0xFFFF, old_sum >> 16);
    pack(a + plain, u64::from(b) + weighted + times(plain, tail))
}

/// `value * count`, the count reduced first so that the product fits.
fn times(value: u32, count: usize) -> u64 {
    u64::from(value) * (count as u64 % u64::from(MODULUS))
}

fn pack(a: u32, b: u64) -> u32 {
    let b = (b % u64::from(MODULUS)) as u32;
    (b << 16) | (a % MODULUS)
}
