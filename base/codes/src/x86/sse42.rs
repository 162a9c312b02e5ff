//! `Sse42`: CRC-32C by the CRC32 instruction, and shifts by carry-less multiplication.

use core::arch::asm;
use core::arch::x86_64::*;

use super::tables::SHIFT;
use crate::cpu::{self, Found};
use crate::crc_tables::ORDER;

/// From this length on three interleaved streams beat one, in spite of joining them.
const THREE_WAYS_FROM: usize = 64;

/// Up to this length `crc_delta` works in two streams; longer ones gain from three.
const HALVES_UP_TO: usize = 128;

/// Proof that the processor has SSE4.2 and PCLMULQDQ.
#[derive(Clone, Copy)]
pub(crate) struct Sse42(pub(super) ());

impl Sse42 {
    /// The token, if `found` (from [`cpu::found`]) has the set.
    #[inline(always)]
    pub(crate) fn on(found: Found) -> Option<Self> {
        found.has(cpu::SSE42).then_some(Self(()))
    }

    /// Advances a raw CRC state over the eight bytes of `word`, lowest first.
    ///
    /// Written as assembly because a function with a `target_feature` cannot be inlined into one
    /// without, and here the call would cost more than the work.
    #[inline(always)]
    pub(crate) fn word(self, state: u32, word: u64) -> u32 {
        let mut state = u64::from(state);
        // SAFETY: `on` saw SSE4.2; the instruction only changes its register operand.
        unsafe {
            asm!("crc32 {0}, {1}", inout(reg) state, in(reg) word,
                options(pure, nomem, nostack, preserves_flags));
        }
        state as u32
    }

    /// Advances a raw CRC state over `bytes` in one stream: best up to 64 bytes.
    #[inline(always)]
    pub(crate) fn chain(self, state: u32, bytes: &[u8]) -> u32 {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut state = state;
        for word in words {
            state = self.word(state, u64::from_le_bytes(*word));
        }
        if rest.is_empty() { state } else { self.partial(state, last_word(bytes), rest.len()) }
    }

    /// Advances a raw CRC state over the upper `count` (1 to 7) bytes of `word`.
    ///
    /// A state of zero is not changed by zero bytes. So the state is mixed into the bytes where
    /// they stand, the place of the lower ones is left zero, and one instruction does for all of
    /// them. Of a state longer than `count` bytes the rest is still to come, one XOR.
    #[inline(always)]
    fn partial(self, state: u32, word: u64, count: usize) -> u32 {
        let (place, bits) = (64 - 8 * count, 8 * count);
        let mixed = (word >> place ^ u64::from(state)) << place;
        self.word(0, mixed) ^ (u64::from(state) >> bits) as u32
    }

    /// See [`crate::reference::crc_update`].
    pub(crate) fn crc_update(self, state: u32, bytes: &[u8]) -> u32 {
        if bytes.len() < THREE_WAYS_FROM {
            return self.chain(state, bytes);
        }
        // SAFETY: `on` saw SSE4.2 and PCLMULQDQ.
        unsafe { three_ways(self, state, bytes) }
    }

    /// See [`crate::reference::crc_shift`].
    #[inline]
    pub(crate) fn crc_shift(self, state: u32, n: usize) -> u32 {
        // SAFETY: `on` saw SSE4.2 and PCLMULQDQ.
        unsafe { shift(state, n) }
    }

    /// See [`crate::reference::crc_delta`].
    #[inline]
    pub(crate) fn crc_delta(self, delta: &[u8], tail: usize) -> u32 {
        if delta.len() > HALVES_UP_TO {
            return self.crc_shift(self.crc_update(0, delta), tail);
        }
        // SAFETY: `on` saw SSE4.2 and PCLMULQDQ.
        unsafe { halves(self, delta, tail) }
    }
}

/// Three streams over one third each, joined by multiplying the first two by the powers of x that
/// stand for the bytes after them.
///
/// CRC32 takes one operand per cycle but answers after three; three streams keep it busy.
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn three_ways(isa: Sse42, state: u32, bytes: &[u8]) -> u32 {
    let third = bytes.len() / 24 * 8;
    let (first, others) = bytes.split_at(third);
    let (second, others) = others.split_at(third);
    let (third_part, rest) = others.split_at(third);
    let (mut a, mut b, mut c) = (u64::from(state), 0, 0);
    let words = first.as_chunks().0.iter().zip(second.as_chunks().0);
    for ((x, y), z) in words.zip(third_part.as_chunks().0) {
        a = _mm_crc32_u64(a, u64::from_le_bytes(*x));
        b = _mm_crc32_u64(b, u64::from_le_bytes(*y));
        c = _mm_crc32_u64(c, u64::from_le_bytes(*z));
    }
    // Products are linear in the message too, so one reduction serves both.
    let joined = product(a as u32, shift_by(2 * third)) ^ product(b as u32, shift_by(third));
    isa.chain(reduce(joined) ^ c as u32, rest)
}

/// The state of `delta` and `tail` zero bytes as the sum over its two halves, each shifted by what
/// follows it. The multipliers do not wait for the bytes, so that a short delta that has only just
/// been made costs half its length and one reduction.
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn halves(isa: Sse42, delta: &[u8], tail: usize) -> u32 {
    let half = delta.len() / 16 * 8;
    let (first, second) = delta.split_at(half);
    let (mut a, mut b) = (0, 0);
    for (x, y) in first.as_chunks().0.iter().zip(second.as_chunks().0) {
        a = _mm_crc32_u64(a, u64::from_le_bytes(*x));
        b = _mm_crc32_u64(b, u64::from_le_bytes(*y));
    }
    let b = isa.chain(b as u32, &second[half..]);
    let mut sum = product(b, shift_by(tail));
    if half > 0 {
        // Lengths of one message, so the sum of the two cannot overflow.
        sum ^= product(a as u32, shift_by(tail.wrapping_add(second.len())));
    }
    reduce(sum)
}

/// A raw state after `n` zero bytes.
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn shift(state: u32, n: usize) -> u32 {
    reduce(product(state, shift_by(n)))
}

/// The multiplier that appends `n` zero bytes, from one table row per base-256 digit.
#[target_feature(enable = "sse4.2,pclmulqdq")]
#[inline]
pub(super) fn shift_by(n: usize) -> u32 {
    let n = if n as u64 >= ORDER { n as u64 % ORDER } else { n as u64 };
    let mut multiplier = SHIFT[0][n as usize & 0xFF];
    let mut digits = n >> 8;
    for row in &SHIFT[1..] {
        if digits == 0 {
            break;
        }
        multiplier = reduce(product(multiplier, row[digits as usize & 0xFF]));
        digits >>= 8;
    }
    multiplier
}

/// Carry-less product of two reflected polynomials below degree 32.
#[target_feature(enable = "sse4.2,pclmulqdq")]
#[inline]
pub(super) fn product(a: u32, b: u32) -> u64 {
    let (a, b) = (_mm_cvtsi32_si128(a as i32), _mm_cvtsi32_si128(b as i32));
    _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(a, b)) as u64
}

/// Remainder of a product, times x^33: the CRC32 instruction supplies x^32 and the reflected
/// product is one bit short. The multipliers of [`SHIFT`] carry x^-33.
#[target_feature(enable = "sse4.2")]
#[inline]
pub(super) fn reduce(product: u64) -> u32 {
    _mm_crc32_u64(0, product) as u32
}

/// The last eight of at least one byte, as a word; of fewer than eight, all in the upper places.
#[inline(always)]
fn last_word(bytes: &[u8]) -> u64 {
    let n = bytes.len();
    if let Some(last) = bytes.last_chunk() {
        return u64::from_le_bytes(*last);
    }
    let word = match (bytes.first_chunk(), bytes.last_chunk()) {
        // The halves overlap in the same bytes, which OR leaves as they are.
        (Some(first), Some(last)) => {
            let last = u64::from(u32::from_le_bytes(*last));
            u64::from(u32::from_le_bytes(*first)) | last << (8 * (n - 4))
        }
        _ => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    word << (64 - 8 * n)
}
