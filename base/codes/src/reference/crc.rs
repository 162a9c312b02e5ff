//! CRC-32C by table, eight bytes at a time.

use crate::crc_tables::{BYTES, ORDER, multiply, power_of_x};

/// Advances a raw CRC state (no inversion before or after) over `bytes`.
pub fn crc_update(state: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut state = state;
    for word in words {
        let mixed = u64::from_le_bytes(*word) ^ u64::from(state);
        state = (0..8).fold(0, |sum, k| sum ^ BYTES[7 - k][(mixed >> (8 * k)) as usize & 0xFF]);
    }
    for byte in rest {
        state = (state >> 8) ^ BYTES[0][(state as u8 ^ byte) as usize];
    }
    state
}

/// The raw CRC state that `delta` and `tail` zero bytes leave behind, from a state of zero.
pub fn crc_delta(delta: &[u8], tail: usize) -> u32 {
    crc_shift(crc_update(0, delta), tail)
}

/// Advances a raw CRC state over `n` zero bytes, in time proportional to the logarithm of `n`.
pub fn crc_shift(state: u32, n: usize) -> u32 {
    multiply(state, power_of_x((n as u64 % ORDER) * 8))
}
