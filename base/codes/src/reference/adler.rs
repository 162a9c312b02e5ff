//! The two sums of Adler-32, one byte at a time.

use crate::adler::MODULUS;

/// Bytes after which the sums must be reduced: 5,552 bytes of 255 are the most that leave the
/// second sum, starting from `MODULUS - 1` in both, below 2^32.
const CHUNK: usize = 5552;

/// The sum of `bytes`, and the sum in which each byte counts as often as it has bytes at or
/// after it (the last byte once, the one before twice, ...). Both modulo 65,521.
pub fn adler_sums(bytes: &[u8]) -> (u32, u32) {
    let (mut plain, mut weighted) = (0, 0);
    for chunk in bytes.chunks(CHUNK) {
        for byte in chunk {
            plain += u32::from(*byte);
            weighted += plain;
        }
        plain %= MODULUS;
        weighted %= MODULUS;
    }
    (plain, weighted)
}
