//! One vector register of bytes, as the kernels see it.

use core::arch::x86_64::*;

use super::tables::MATRIX;
use crate::gf_tables::NIBBLES;

/// A vector register of `SIZE` bytes and the few operations that parity needs.
///
/// Every method is `#[inline(always)]` and has no `target_feature` of its own: it takes on the
/// features of the shell it is inlined into.
///
/// # Safety
///
/// Callers of any method must run on a processor with the implementing type's instruction set.
/// Pointers must be valid for reads or writes of `SIZE` bytes; only `stream` needs alignment.
pub(super) trait Block: Copy {
    /// Bytes in the register.
    const SIZE: usize;

    /// A factor in the form that `times` wants.
    type Factor: Copy;

    unsafe fn load(from: *const u8) -> Self;
    unsafe fn store(self, to: *mut u8);

    /// Stores around the caches. `to` must be aligned to `SIZE`, and `drain` must follow before
    /// the memory is accessed in any other way.
    unsafe fn stream(self, to: *mut u8);

    unsafe fn zero() -> Self;
    unsafe fn xor(self, other: Self) -> Self;

    /// Every byte times g.
    unsafe fn double(self) -> Self;
    unsafe fn factor(coef: u8) -> Self::Factor;

    /// Every byte times the factor.
    unsafe fn times(self, factor: Self::Factor) -> Self;
}

/// What comparing with zero and summing need besides; only for whole registers. Same contract.
pub(super) trait Wide: Block {
    unsafe fn and(self, other: Self) -> Self;
    unsafe fn or(self, other: Self) -> Self;
    unsafe fn is_zero(self) -> bool;

    /// A bit for each 8 bytes that are not all zero, the first ones' lowest.
    unsafe fn words(self) -> u8;

    /// Lanes of 32 bits added.
    unsafe fn add32(self, other: Self) -> Self;

    /// Sums of each 8 bytes, in the even 32-bit lanes; the odd ones are zero.
    unsafe fn sums(self) -> Self;

    /// Sums of each 4 bytes, byte i weighted by `SIZE - i`, in 32-bit lanes.
    unsafe fn weighted_sums(self) -> Self;

    /// The sum of all 32-bit lanes, modulo 2^32.
    unsafe fn total(self) -> u32;
}

/// Orders streamed stores before every later access.
pub(super) fn drain() {
    // SAFETY: SFENCE is part of the x86-64 baseline and touches no memory.
    unsafe { _mm_sfence() }
}

/// `WEIGHTS[i]` = 64 - i; a register of 32 bytes uses the second half.
static WEIGHTS: [u8; 64] = {
    let mut weights = [0; 64];
    let mut i = 0;
    while i < 64 {
        weights[i] = 64 - i as u8;
        i += 1;
    }
    weights
};

// SAFETY of every block below: the trait requires the caller to have checked for AVX2, and
// pointers to be valid for 32 bytes (aligned to 32 for `stream`).
impl Block for __m256i {
    const SIZE: usize = 32;

    /// Products of the low and of the high nibbles, each in both halves of a register.
    type Factor = (__m256i, __m256i);

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: AVX2 present, 32 readable bytes (trait contract).
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: AVX2 present, 32 writable bytes (trait contract).
        unsafe { _mm256_storeu_si256(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: AVX2 present, 32 writable and aligned bytes (trait contract).
        unsafe { _mm256_stream_si256(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: AVX2 present (trait contract).
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: AVX2 present (trait contract).
        unsafe { _mm256_xor_si256(self, other) }
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: AVX2 present (trait contract).
        unsafe {
            // A byte with its top bit set is negative: all ones, then the reduction.
            let tops = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self);
            let reduction = _mm256_and_si256(tops, _mm256_set1_epi8(0x1D));
            _mm256_xor_si256(_mm256_add_epi8(self, self), reduction)
        }
    }

    #[inline(always)]
    unsafe fn factor(coef: u8) -> Self::Factor {
        let table = NIBBLES[usize::from(coef)].as_ptr();
        // SAFETY: AVX2 present (trait contract); a row of NIBBLES has 32 bytes, read as 16 + 16.
        unsafe {
            (
                _mm256_broadcastsi128_si256(_mm_loadu_si128(table.cast())),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(table.add(16).cast())),
            )
        }
    }

    #[inline(always)]
    unsafe fn times(self, factor: Self::Factor) -> Self {
        // SAFETY: AVX2 present (trait contract).
        unsafe {
            let nibble = _mm256_set1_epi8(15);
            let low = _mm256_and_si256(self, nibble);
            let high = _mm256_and_si256(_mm256_srli_epi64::<4>(self), nibble);
            _mm256_xor_si256(
                _mm256_shuffle_epi8(factor.0, low),
                _mm256_shuffle_epi8(factor.1, high),
            )
        }
    }
}

// SAFETY: as above.
impl Wide for __m256i {
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: AVX2 present (trait contract).
        unsafe { _mm256_and_si256(self, other) }
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: AVX2 present (trait contract).
        unsafe { _mm256_or_si256(self, other) }
    }

    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        // SAFETY: AVX2 present (trait contract).
        unsafe { _mm256_testz_si256(self, self) == 1 }
    }

    #[inline(always)]
    unsafe fn words(self) -> u8 {
        // SAFETY: AVX2 present (trait contract).
        unsafe {
            let zero = _mm256_cmpeq_epi64(self, _mm256_setzero_si256());
            !_mm256_movemask_pd(_mm256_castsi256_pd(zero)) as u8 & 0xf
        }
    }

    #[inline(always)]
    unsafe fn add32(self, other: Self) -> Self {
        // SAFETY: AVX2 present (trait contract).
        unsafe { _mm256_add_epi32(self, other) }
    }

    #[inline(always)]
    unsafe fn sums(self) -> Self {
        // SAFETY: AVX2 present (trait contract).
        unsafe { _mm256_sad_epu8(self, _mm256_setzero_si256()) }
    }

    #[inline(always)]
    unsafe fn weighted_sums(self) -> Self {
        // SAFETY: AVX2 present (trait contract); bytes 32..64 of WEIGHTS exist.
        unsafe {
            let weights = _mm256_loadu_si256(WEIGHTS.as_ptr().add(32).cast());
            // Pairs: at most 255 * (32 + 31), far from the 16-bit saturation of this multiply.
            let pairs = _mm256_maddubs_epi16(self, weights);
            _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
        }
    }

    #[inline(always)]
    unsafe fn total(self) -> u32 {
        // SAFETY: AVX2 present (trait contract).
        unsafe {
            let low = _mm256_castsi256_si128(self);
            let four = _mm_add_epi32(low, _mm256_extracti128_si256::<1>(self));
            let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
            let one = _mm_add_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two));
            _mm_cvtsi128_si32(one) as u32
        }
    }
}

/// The low 16 or 8 bytes of a 32-byte register, for what is left after the last whole one.
#[derive(Clone, Copy)]
pub(super) struct Part<const BYTES: usize>(__m256i);

// SAFETY of every block below: as for the whole register, with `BYTES` bytes at the pointers.
impl<const BYTES: usize> Block for Part<BYTES> {
    const SIZE: usize = {
        assert!(BYTES == 8 || BYTES == 16);
        BYTES
    };

    type Factor = <__m256i as Block>::Factor;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: AVX2 present, SIZE readable bytes (trait contract).
        Self(unsafe {
            _mm256_zextsi128_si256(if Self::SIZE == 8 {
                _mm_loadl_epi64(from.cast())
            } else {
                _mm_loadu_si128(from.cast())
            })
        })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: AVX2 present, SIZE writable bytes (trait contract).
        unsafe {
            let low = _mm256_castsi256_si128(self.0);
            if Self::SIZE == 8 {
                _mm_storel_epi64(to.cast(), low);
            } else {
                _mm_storeu_si128(to.cast(), low);
            }
        }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // A few bytes are not worth streaming. SAFETY: trait contract.
        unsafe { self.store(to) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: trait contract.
        Self(unsafe { __m256i::zero() })
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: trait contract.
        Self(unsafe { self.0.xor(other.0) })
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: trait contract.
        Self(unsafe { self.0.double() })
    }

    #[inline(always)]
    unsafe fn factor(coef: u8) -> Self::Factor {
        // SAFETY: trait contract.
        unsafe { __m256i::factor(coef) }
    }

    #[inline(always)]
    unsafe fn times(self, factor: Self::Factor) -> Self {
        // SAFETY: trait contract.
        Self(unsafe { self.0.times(factor) })
    }
}

// SAFETY of every block below: the trait requires the caller to have checked for AVX-512 (F, BW,
// VL, DQ, VBMI, GFNI), and pointers to be valid for 64 bytes (aligned to 64 for `stream`).
impl Block for __m512i {
    const SIZE: usize = 64;

    /// The bit matrix of the factor, in every 64-bit lane.
    type Factor = __m512i;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: AVX-512 present, 64 readable bytes (trait contract).
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: AVX-512 present, 64 writable bytes (trait contract).
        unsafe { _mm512_storeu_si512(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: AVX-512 present, 64 writable and aligned bytes (trait contract).
        unsafe { _mm512_stream_si512(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: AVX-512 present (trait contract).
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: AVX-512 present (trait contract).
        unsafe { _mm512_xor_si512(self, other) }
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: AVX-512 with GFNI present (trait contract).
        unsafe { self.times(Self::factor(2)) }
    }

    #[inline(always)]
    unsafe fn factor(coef: u8) -> Self::Factor {
        // SAFETY: AVX-512 present (trait contract).
        unsafe { _mm512_set1_epi64(MATRIX[usize::from(coef)] as i64) }
    }

    #[inline(always)]
    unsafe fn times(self, factor: Self::Factor) -> Self {
        // SAFETY: AVX-512 with GFNI present (trait contract).
        unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self, factor) }
    }
}

// SAFETY: as above.
impl Wide for __m512i {
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: AVX-512 present (trait contract).
        unsafe { _mm512_and_si512(self, other) }
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: AVX-512 present (trait contract).
        unsafe { _mm512_or_si512(self, other) }
    }

    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        // SAFETY: AVX-512 present (trait contract).
        unsafe { _mm512_test_epi64_mask(self, self) == 0 }
    }

    #[inline(always)]
    unsafe fn words(self) -> u8 {
        // SAFETY: AVX-512 present (trait contract).
        unsafe { _mm512_test_epi64_mask(self, self) }
    }

    #[inline(always)]
    unsafe fn add32(self, other: Self) -> Self {
        // SAFETY: AVX-512 present (trait contract).
        unsafe { _mm512_add_epi32(self, other) }
    }

    #[inline(always)]
    unsafe fn sums(self) -> Self {
        // SAFETY: AVX-512 present (trait contract).
        unsafe { _mm512_sad_epu8(self, _mm512_setzero_si512()) }
    }

    #[inline(always)]
    unsafe fn weighted_sums(self) -> Self {
        // SAFETY: AVX-512 present (trait contract); WEIGHTS has 64 bytes.
        unsafe {
            let weights = _mm512_loadu_si512(WEIGHTS.as_ptr().cast());
            // Pairs: at most 255 * (64 + 63) = 32,385, below the 16-bit saturation at 32,767.
            let pairs = _mm512_maddubs_epi16(self, weights);
            _mm512_madd_epi16(pairs, _mm512_set1_epi16(1))
        }
    }

    #[inline(always)]
    unsafe fn total(self) -> u32 {
        // SAFETY: AVX-512 present (trait contract), which includes AVX2.
        unsafe {
            let low = _mm512_castsi512_si256(self);
            low.add32(_mm512_extracti64x4_epi64::<1>(self)).total()
        }
    }
}
