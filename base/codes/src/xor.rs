//! XOR parity and deltas for it.

use crate::{dispatch, reference};

/// Longest input that is handled inside the caller instead of through a call.
const INLINE: usize = 64;

/// `dst ^= src`.
///
/// # Panics
///
/// If the lengths differ.
#[inline]
pub fn xor_into(dst: &mut [u8], src: &[u8]) {
    if dst.len() <= INLINE { reference::xor_into(dst, src) } else { dispatch::xor_into(dst, src) }
}

/// `out = old ^ new`: what must be XORed into a parity unit when `old` becomes `new`.
///
/// # Panics
///
/// If the lengths differ.
#[inline]
pub fn xor_delta(out: &mut [u8], old: &[u8], new: &[u8]) {
    if out.len() <= INLINE {
        reference::xor_delta(out, old, new)
    } else {
        dispatch::xor_delta(out, old, new)
    }
}

/// As [`xor_delta`], and says which words of 8 bytes differ: `words` gets a byte for each 64 bytes,
/// with a bit for each word, the first word's lowest. A last word of fewer bytes counts as one.
///
/// # Panics
///
/// If the lengths differ, or `words` is not a byte for each 64 bytes begun.
#[inline]
pub fn delta_words(out: &mut [u8], old: &[u8], new: &[u8], words: &mut [u8]) {
    dispatch::delta_words(out, old, new, words);
}

/// `dst` = XOR of all `sources`: the parity of rows, or the lost one of them if `dst` gets the
/// others and their parity. All zero if there are no sources.
///
/// Outputs of several MiB are written around the caches with streaming stores, which are ordered
/// before everything later on this thread when the function returns (it ends with an `sfence`).
///
/// # Panics
///
/// If the lengths differ.
pub fn xor_many(dst: &mut [u8], sources: &[&[u8]]) {
    dispatch::xor_many(dst, sources);
}

/// Whether every byte is zero; true for no bytes.
#[inline]
pub fn is_zero(bytes: &[u8]) -> bool {
    if bytes.len() <= INLINE { reference::is_zero(bytes) } else { dispatch::is_zero(bytes) }
}

/// The check every function over several slices makes before it relies on one length.
#[inline(always)]
#[track_caller]
pub(crate) fn same_length(a: &[u8], b: &[u8]) {
    if a.len() != b.len() {
        unequal(a.len(), b.len());
    }
}

/// Checks that there is a byte of `words` for each 64 of `bytes` begun.
#[inline(always)]
#[track_caller]
pub(crate) fn word_for_each_line(bytes: &[u8], words: &[u8]) {
    if words.len() != bytes.len().div_ceil(64) {
        unequal(bytes.len().div_ceil(64), words.len());
    }
}

#[cold]
#[track_caller]
fn unequal(a: usize, b: usize) -> ! {
    panic!("slices of one operation must have one length, not {a} and {b} bytes");
}
