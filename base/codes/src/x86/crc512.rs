//! CRC-32C by folding 512-bit registers with carry-less multiplication.
//!
//! A CRC is a remainder, so any block of the message may be replaced by another that is congruent
//! to it. Folding replaces the block in the register and the one that follows, D bits later, by
//! their sum after the first is multiplied by x^D: two carry-less multiplies by constants and one
//! XOR, for four 128-bit lanes at a time.
//!
//! ```text
//!   message    [ 0 ][ 1 ][ 2 ][ 3 ][ 4 ][ 5 ][ 6 ][ 7 ] ...  64-byte blocks
//!   4 streams   s0   s1   s2   s3   s0   s1   s2   s3         each folded by 4 blocks
//!   joined                 s0, s1, s2 folded by 3, 2, 1 blocks onto s3
//!   lanes                  3 of 4 lanes folded onto the last, 128 bits left
//!   CRC32 twice            128 bits -> 32
//! ```
//!
//! A length that is no multiple of 64 is made one at the end: what the register holds is shifted
//! to the right by the missing bytes, the bytes that fall out are folded once more, and the last
//! 64 bytes of the message, loaded whole, fill the gap. Nothing outside the message is read.

use core::arch::x86_64::*;

use super::tables::fold;
use super::{Avx512, Sse42};

/// Bytes of one register.
const BLOCK: usize = 64;

/// Fold constants for the four lanes; all ones of a kind but for `LANES`.
static BY_1: [[u64; 2]; 4] = [fold(512); 4];
static BY_2: [[u64; 2]; 4] = [fold(1024); 4];
static BY_3: [[u64; 2]; 4] = [fold(1536); 4];
static BY_4: [[u64; 2]; 4] = [fold(2048); 4];
static LANES: [[u64; 2]; 4] = [fold(384), fold(256), fold(128), [0; 2]];

/// 0, 1, 2, ... 63.
static RAMP: [u8; 64] = {
    let mut ramp = [0; 64];
    let mut i = 0;
    while i < 64 {
        ramp[i] = i as u8;
        i += 1;
    }
    ramp
};

impl Avx512 {
    /// See [`crate::reference::crc_update`].
    #[inline]
    pub(crate) fn crc_update(self, state: u32, bytes: &[u8]) -> u32 {
        if bytes.len() < BLOCK {
            return Sse42(()).chain(state, bytes);
        }
        // SAFETY: the token proves the set, which includes SSE4.2 and PCLMULQDQ; the length is
        // at least one block.
        unsafe { update(state, bytes) }
    }

    /// See [`crate::reference::crc_delta`].
    #[inline]
    pub(crate) fn crc_delta(self, delta: &[u8], tail: usize) -> u32 {
        if delta.len() <= BLOCK {
            return Sse42(()).crc_delta(delta, tail);
        }
        Sse42(()).crc_shift(self.crc_update(0, delta), tail)
    }
}

/// # Safety
///
/// `bytes` holds at least one block.
#[target_feature(enable = "sse4.2,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,vpclmulqdq")]
unsafe fn update(state: u32, bytes: &[u8]) -> u32 {
    let n = bytes.len();
    let from = bytes.as_ptr();
    let by_1 = constant(&BY_1);
    // SAFETY: every load is of 64 bytes at an offset that the condition before it left room for.
    unsafe {
        let seed = _mm512_zextsi128_si512(_mm_cvtsi32_si128(state as i32));
        let mut sum = _mm512_xor_si512(load(from), seed);
        let mut i = BLOCK;
        if n >= 4 * BLOCK {
            let by_4 = constant(&BY_4);
            let (mut s1, mut s2, mut s3) =
                (load(from.add(64)), load(from.add(128)), load(from.add(192)));
            i = 4 * BLOCK;
            while i + 4 * BLOCK <= n {
                sum = onto(sum, by_4, load(from.add(i)));
                s1 = onto(s1, by_4, load(from.add(i + 64)));
                s2 = onto(s2, by_4, load(from.add(i + 128)));
                s3 = onto(s3, by_4, load(from.add(i + 192)));
                i += 4 * BLOCK;
            }
            let s3 = onto(s2, by_1, s3);
            let low = onto(sum, constant(&BY_3), s3);
            sum = onto(s1, constant(&BY_2), low);
        }
        while i + BLOCK <= n {
            sum = onto(sum, by_1, load(from.add(i)));
            i += BLOCK;
        }
        if i < n {
            let last = load(from.add(n - BLOCK));
            sum = append(sum, by_1, last, n - i);
        }
        finish(sum)
    }
}

/// Moves `sum` on by `rest` bytes (1 to 63), the last of which are the last of `last`.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,vpclmulqdq")]
#[inline]
fn append(sum: __m512i, by_1: __m512i, last: __m512i, rest: usize) -> __m512i {
    // Byte i of the rotated register is byte i + rest (mod 64) of `sum`: the kept bytes come
    // first, then the `rest` bytes that fall out, where they stand as a block padded with zeros.
    let index = _mm512_add_epi8(constant_bytes(), _mm512_set1_epi8(rest as i8));
    let rotated = _mm512_permutexvar_epi8(index, sum);
    let kept: u64 = u64::MAX >> rest;
    let next = _mm512_mask_mov_epi8(last, kept, rotated);
    onto(_mm512_maskz_mov_epi8(!kept, rotated), by_1, next)
}

/// `a` folded ahead by the distance of `by`, onto `b`.
#[target_feature(enable = "avx512f,vpclmulqdq")]
#[inline]
fn onto(a: __m512i, by: __m512i, b: __m512i) -> __m512i {
    let earlier = _mm512_clmulepi64_epi128::<0x00>(a, by);
    let later = _mm512_clmulepi64_epi128::<0x11>(a, by);
    _mm512_ternarylogic_epi64::<0x96>(earlier, later, b)
}

/// The raw CRC state of the block in the register.
#[target_feature(enable = "sse4.2,avx512f,avx512vl,avx512dq,vpclmulqdq")]
#[inline]
fn finish(sum: __m512i) -> u32 {
    let lanes = onto(sum, constant(&LANES), _mm512_maskz_mov_epi64(0xC0, sum));
    let pairs =
        _mm256_xor_si256(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64::<1>(lanes));
    let last = _mm_xor_si128(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs));
    let state = _mm_crc32_u64(0, _mm_cvtsi128_si64(last) as u64);
    _mm_crc32_u64(state, _mm_extract_epi64::<1>(last) as u64) as u32
}

/// # Safety
///
/// 64 bytes are readable from `from`.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn load(from: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_loadu_si512(from.cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn constant(lanes: &[[u64; 2]; 4]) -> __m512i {
    // SAFETY: the array has 64 bytes.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn constant_bytes() -> __m512i {
    // SAFETY: the array has 64 bytes.
    unsafe { _mm512_loadu_si512(RAMP.as_ptr().cast()) }
}
