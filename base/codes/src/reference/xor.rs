//! XOR and comparison with zero, eight bytes at a time.

use core::ops::Range;

use crate::xor::{same_length, word_for_each_line};

/// `dst ^= src`. Panics if the lengths differ.
#[inline]
pub fn xor_into(dst: &mut [u8], src: &[u8]) {
    same_length(dst, src);
    let (dst_words, dst_rest) = dst.as_chunks_mut::<8>();
    let (src_words, src_rest) = src.as_chunks::<8>();
    for (to, from) in dst_words.iter_mut().zip(src_words) {
        *to = (u64::from_le_bytes(*to) ^ u64::from_le_bytes(*from)).to_le_bytes();
    }
    for (to, from) in dst_rest.iter_mut().zip(src_rest) {
        *to ^= from;
    }
}

/// `out = old ^ new`. Panics if the lengths differ.
#[inline]
pub fn xor_delta(out: &mut [u8], old: &[u8], new: &[u8]) {
    same_length(out, old);
    same_length(out, new);
    let (out_words, out_rest) = out.as_chunks_mut::<8>();
    let (old_words, old_rest) = old.as_chunks::<8>();
    let (new_words, new_rest) = new.as_chunks::<8>();
    for ((to, a), b) in out_words.iter_mut().zip(old_words).zip(new_words) {
        *to = (u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b)).to_le_bytes();
    }
    for ((to, a), b) in out_rest.iter_mut().zip(old_rest).zip(new_rest) {
        *to = a ^ b;
    }
}

/// `out = old ^ new`, and a bit in `words` for each word that differs. Panics if the lengths
/// differ, or `words` is not a byte for each 64 bytes begun.
pub fn delta_words(out: &mut [u8], old: &[u8], new: &[u8], words: &mut [u8]) {
    xor_delta(out, old, new);
    word_for_each_line(out, words);
    for (line, bits) in out.chunks(64).zip(words) {
        let differ = line.chunks(8).map(|word| !is_zero(word));
        *bits = differ.enumerate().fold(0, |bits, (i, differs)| bits | u8::from(differs) << i);
    }
}

/// `dst` = XOR of all `sources`; zero if there are none. Panics if the lengths differ.
pub fn xor_many(dst: &mut [u8], sources: &[&[u8]]) {
    for source in sources {
        same_length(dst, source);
    }
    xor_many_part(dst, sources, 0..dst.len());
}

/// `xor_many` for one range of the bytes.
pub(crate) fn xor_many_part(dst: &mut [u8], sources: &[&[u8]], range: Range<usize>) {
    let dst = &mut dst[range.clone()];
    match sources.split_first() {
        None => dst.fill(0),
        Some((first, others)) => {
            dst.copy_from_slice(&first[range.clone()]);
            for source in others {
                xor_into(dst, &source[range.clone()]);
            }
        }
    }
}

/// Whether every byte is zero.
#[inline]
pub fn is_zero(bytes: &[u8]) -> bool {
    // A whole line at a time without a branch: most are zero to the end.
    let (lines, rest) = bytes.as_chunks::<64>();
    lines.iter().all(|line| union(line) == 0) && union(rest) == 0
}

/// A word that is zero only if all bytes are.
#[inline]
fn union(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().fold(0, |seen, word| seen | u64::from_le_bytes(*word));
    rest.iter().fold(words, |seen, byte| seen | u64::from(*byte))
}
