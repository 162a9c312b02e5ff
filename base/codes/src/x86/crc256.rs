//! CRC-32C by folding 256-bit registers and by the CRC32 instruction at once, for processors with
//! wide carry-less multiplication and without AVX-512.
//!
//! The two use different parts of a core, and neither alone keeps it busy: CRC32 takes eight bytes
//! per cycle, a fold of 32 bytes two multiplies, which some processors begin only every fourth
//! cycle:
//!
//! ```text
//!   message   [ folded: 32 bytes a turn ][ b: 16 ][ c: 16 ][ d: 16 a turn ][ rest ]
//!   a turn     1 register, 2 multiplies      2        2        2 CRC32
//! ```
//!
//! The folded part ends as 128 bits and CRC32 makes a state of them; the states of the four parts
//! are joined as those of three streams are (`sse42.rs`). Folding is explained in `crc512.rs`.

use core::arch::x86_64::*;

use super::Sse42;
use super::sse42::{product, reduce, shift_by};
use super::tables::fold;
use crate::cpu::{self, Found};

/// Bytes that are folded in a turn, and bytes of each stream.
const FOLDED: usize = 32;
const STREAM: usize = 16;
const TURN: usize = FOLDED + 3 * STREAM;

/// From this length on joining four parts is worth it.
const FROM: usize = 8 * TURN;

/// Fold constants for the two lanes.
static BY_32: [[u64; 2]; 2] = [fold(256); 2];
static LANE: [u64; 2] = fold(128);

/// Proof that the processor has AVX2, VPCLMULQDQ and what `Sse42` has.
#[derive(Clone, Copy)]
pub(crate) struct Folds256(());

impl Folds256 {
    /// The token, if `found` (from [`cpu::found`]) has the set.
    #[inline(always)]
    pub(crate) fn on(found: Found) -> Option<Self> {
        found.has(cpu::FOLDS256).then_some(Self(()))
    }

    /// See [`crate::reference::crc_update`].
    #[inline]
    pub(crate) fn crc_update(self, state: u32, bytes: &[u8]) -> u32 {
        if bytes.len() < FROM {
            return Sse42(()).crc_update(state, bytes);
        }
        // SAFETY: the token proves the set.
        unsafe { update(state, bytes) }
    }
}

#[target_feature(enable = "sse4.2,pclmulqdq,avx2,vpclmulqdq")]
fn update(state: u32, bytes: &[u8]) -> u32 {
    let turns = bytes.len() / TURN;
    let (folded, others) = bytes.split_at(turns * FOLDED);
    let (one, others) = others.split_at(turns * STREAM);
    let (two, others) = others.split_at(turns * STREAM);
    let (three, rest) = others.split_at(turns * STREAM);
    let mut sum = _mm256_setzero_si256();
    // Folding zeros gives zeros: the state goes in with the first bytes.
    let mut seed = _mm256_zextsi128_si256(_mm_cvtsi32_si128(state as i32));
    let by_32 = constant(&BY_32);
    let (mut b, mut c, mut d) = (0, 0, 0);
    let streams = one.as_chunks::<STREAM>().0.iter().zip(two.as_chunks::<STREAM>().0);
    let streams = streams.zip(three.as_chunks::<STREAM>().0);
    for (block, ((x, y), z)) in folded.as_chunks::<FOLDED>().0.iter().zip(streams) {
        sum = _mm256_xor_si256(onto(sum, by_32, load(block)), seed);
        seed = _mm256_setzero_si256();
        let words = x.as_chunks::<8>().0.iter().zip(y.as_chunks::<8>().0);
        for ((x, y), z) in words.zip(z.as_chunks::<8>().0) {
            b = _mm_crc32_u64(b, u64::from_le_bytes(*x));
            c = _mm_crc32_u64(c, u64::from_le_bytes(*y));
            d = _mm_crc32_u64(d, u64::from_le_bytes(*z));
        }
    }
    let a = finish(sum);
    let stream = turns * STREAM;
    let joined = product(a, shift_by(3 * stream))
        ^ product(b as u32, shift_by(2 * stream))
        ^ product(c as u32, shift_by(stream));
    Sse42(()).crc_update(reduce(joined) ^ d as u32, rest)
}

/// `a` folded ahead by the distance of `by`, onto `b`.
#[target_feature(enable = "avx2,vpclmulqdq")]
#[inline]
fn onto(a: __m256i, by: __m256i, b: __m256i) -> __m256i {
    let earlier = _mm256_clmulepi64_epi128::<0x00>(a, by);
    let later = _mm256_clmulepi64_epi128::<0x11>(a, by);
    _mm256_xor_si256(_mm256_xor_si256(earlier, later), b)
}

/// The raw CRC state of the block in the register.
#[target_feature(enable = "sse4.2,pclmulqdq,avx2")]
#[inline]
fn finish(sum: __m256i) -> u32 {
    let (first, last) = (_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
    // SAFETY: a static of 16 bytes; any of them are a value of the register.
    let by = unsafe { _mm_loadu_si128(LANE.as_ptr().cast()) };
    let earlier = _mm_clmulepi64_si128::<0x00>(first, by);
    let later = _mm_clmulepi64_si128::<0x11>(first, by);
    let last = _mm_xor_si128(_mm_xor_si128(earlier, later), last);
    let state = _mm_crc32_u64(0, _mm_cvtsi128_si64(last) as u64);
    _mm_crc32_u64(state, _mm_extract_epi64::<1>(last) as u64) as u32
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the reference is to 32 bytes; the load asks for no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn constant(lanes: &[[u64; 2]; 2]) -> __m256i {
    // SAFETY: the reference is to 32 bytes; the load asks for no alignment.
    unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
}
