//! CRC-32C: whole, continued, patched, joined.
//!
//! A CRC-32C is `!state(message)`, where the state starts at all ones. Between the two inversions
//! it is linear over GF(2), and that is what makes the incremental functions exact: changing the
//! message by XOR with a delta changes the sum by the state that the delta alone, followed by as
//! many zero bytes as follow it in the message, leaves behind when started from zero.

use crate::dispatch;

/// Longest input that is summed inside the caller instead of through a call, in steps of eight
/// bytes. Bytes that were stored a moment ago, as a delta was, can be loaded at once in pieces of
/// that size, while a wide load would wait until several smaller stores have left the core.
const INLINE: usize = 64;

/// The CRC-32C of a message of which `seed` is the CRC-32C so far (0 at the start) and `bytes`
/// follow: `crc32c(crc32c(0, a), b)` is the sum of `a` and `b` in a row.
///
/// ```
/// assert_eq!(holdfast_codes::crc32c(0, b"123456789"), 0xE306_9283);
/// ```
#[inline]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !update(!seed, bytes)
}

/// `crc32c(seed, &word.to_le_bytes())`.
#[inline]
pub fn crc32c_u64(seed: u32, word: u64) -> u32 {
    crc32c(seed, &word.to_le_bytes())
}

/// The CRC-32C of a message whose sum was `old`, after a range of it was XORed with `delta`;
/// `tail` bytes of the message follow the range.
///
/// Neither the rest of the message nor its length is needed. The new sum is right for the new
/// message exactly if `old` was right for the old one: damage is neither hidden nor added.
///
/// ```
/// use holdfast_codes::{crc32c, crc32c_patch};
/// let patched = crc32c_patch(crc32c(0, b"one two six"), &[b'h' ^ b'i'], 1);
/// assert_eq!(patched, crc32c(0, b"one two shx"));
/// ```
#[inline]
pub fn crc32c_patch(old: u32, delta: &[u8], tail: usize) -> u32 {
    old ^ dispatch::crc_delta(delta, tail)
}

/// The CRC-32C of two messages in a row, from the sum of each and the length of the second.
#[inline]
pub fn crc32c_combine(crc_a: u32, crc_b: u32, len_b: usize) -> u32 {
    dispatch::crc_shift(crc_a, len_b) ^ crc_b
}

/// The CRC-32C of a message whose sum was `crc`, after `n` zero bytes are appended.
#[inline]
pub fn crc32c_zeros(crc: u32, n: usize) -> u32 {
    !dispatch::crc_shift(!crc, n)
}

/// Advances a raw state, inside the caller if that takes only a few instructions.
#[inline]
fn update(state: u32, bytes: &[u8]) -> u32 {
    if bytes.len() <= INLINE
        && let Some(state) = dispatch::crc_update_inline(state, bytes)
    {
        return state;
    }
    dispatch::crc_update(state, bytes)
}
