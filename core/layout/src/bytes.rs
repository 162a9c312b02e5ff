//! Little-endian numbers in byte slices: the only way numbers go to and come from a medium.
//!
//! A read beyond the end answers zero and a write beyond the end does nothing: structures are
//! sized by constants next to their fields, and the format check compares both, so a short slice
//! is a caller's error that must not become a panic on hostile input.

/// Reads a `u16` at `at`.
#[inline]
#[must_use]
pub fn get_u16(from: &[u8], at: usize) -> u16 {
    from.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

/// Reads a `u32` at `at`.
#[inline]
#[must_use]
pub fn get_u32(from: &[u8], at: usize) -> u32 {
    from.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// Reads a `u64` at `at`.
#[inline]
#[must_use]
pub fn get_u64(from: &[u8], at: usize) -> u64 {
    from.get(at..at + 8)
        .map_or(0, |b| u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
}

/// Writes a `u16` at `at`.
#[inline]
pub fn put_u16(into: &mut [u8], at: usize, value: u16) {
    put(into, at, &value.to_le_bytes());
}

/// Writes a `u32` at `at`.
#[inline]
pub fn put_u32(into: &mut [u8], at: usize, value: u32) {
    put(into, at, &value.to_le_bytes());
}

/// Writes a `u64` at `at`.
#[inline]
pub fn put_u64(into: &mut [u8], at: usize, value: u64) {
    put(into, at, &value.to_le_bytes());
}

/// Writes `bytes` at `at`.
#[inline]
pub fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = into.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}
