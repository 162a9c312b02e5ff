//! `Avx2` and `Avx512`: the tokens, and each kernel compiled for each of the two sets.

use core::arch::x86_64::{__m256i, __m512i};

use super::kernels;
use crate::cpu::{self, Found};
use crate::pq::check_rows;
use crate::xor::{same_length, word_for_each_line};

macro_rules! shell {
    ($(#[$doc:meta])* $token:ident, $block:ty, $bit:expr, $features:literal, $inner:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $token(());

        impl $token {
            /// The token, if `found` (from [`cpu::found`]) has the set.
            #[inline(always)]
            pub(crate) fn on(found: Found) -> Option<Self> {
                found.has($bit).then_some(Self(()))
            }

            pub(crate) fn xor_into(self, dst: &mut [u8], src: &[u8]) {
                same_length(dst, src);
                // SAFETY: `on` saw the set; `same_length` compared the lengths.
                unsafe { $inner::xor_into(dst, src) }
            }

            pub(crate) fn xor_delta(self, out: &mut [u8], old: &[u8], new: &[u8]) {
                same_length(out, old);
                same_length(out, new);
                // SAFETY: `on` saw the set; `same_length` compared the lengths.
                unsafe { $inner::xor_delta(out, old, new) }
            }

            pub(crate) fn delta_words(
                self,
                out: &mut [u8],
                old: &[u8],
                new: &[u8],
                words: &mut [u8],
            ) {
                same_length(out, old);
                same_length(out, new);
                word_for_each_line(out, words);
                // SAFETY: `on` saw the set; all lengths were compared.
                unsafe { $inner::delta_words(out, old, new, words) }
            }

            pub(crate) fn xor_many(self, dst: &mut [u8], sources: &[&[u8]]) {
                for source in sources {
                    same_length(dst, source);
                }
                // SAFETY: `on` saw the set; `same_length` compared all lengths.
                unsafe { $inner::xor_many(dst, sources) }
            }

            pub(crate) fn is_zero(self, bytes: &[u8]) -> bool {
                // SAFETY: `on` saw the set; there is only one slice.
                unsafe { $inner::is_zero(bytes) }
            }

            pub(crate) fn pq_encode(self, p: &mut [u8], q: &mut [u8], rows: &[&[u8]]) {
                check_rows(p, q, rows);
                // SAFETY: `on` saw the set; `check_rows` compared all lengths.
                unsafe { $inner::pq_encode(p, q, rows) }
            }

            pub(crate) fn pq_add(self, p: &mut [u8], q: &mut [u8], src: &[u8], coef: u8) {
                same_length(p, src);
                same_length(q, src);
                // SAFETY: `on` saw the set; `same_length` compared the lengths.
                unsafe { $inner::pq_add(p, q, src, coef) }
            }

            pub(crate) fn gf_mul_into(self, out: &mut [u8], src: &[u8], coef: u8) {
                same_length(out, src);
                // SAFETY: `on` saw the set; `same_length` compared the lengths.
                unsafe { $inner::gf_mul_into(out, src, coef) }
            }

            pub(crate) fn gf_mul_xor_into(self, dst: &mut [u8], src: &[u8], coef: u8) {
                same_length(dst, src);
                // SAFETY: `on` saw the set; `same_length` compared the lengths.
                unsafe { $inner::gf_mul_xor_into(dst, src, coef) }
            }

            pub(crate) fn adler_sums(self, bytes: &[u8]) -> (u32, u32) {
                // SAFETY: `on` saw the set; there is only one slice.
                unsafe { $inner::adler_sums(bytes) }
            }
        }

        /// The kernels compiled for this set. Safety: that of [`kernels`].
        mod $inner {
            use super::*;

            shell!(@ $features, $block, xor_into(dst: &mut [u8], src: &[u8]));
            shell!(@ $features, $block, xor_delta(out: &mut [u8], old: &[u8], new: &[u8]));
            shell!(@ $features, $block,
                delta_words(out: &mut [u8], old: &[u8], new: &[u8], words: &mut [u8]));
            shell!(@ $features, $block, xor_many(dst: &mut [u8], sources: &[&[u8]]));
            shell!(@ $features, $block, is_zero(bytes: &[u8]) -> bool);
            shell!(@ $features, $block, pq_encode(p: &mut [u8], q: &mut [u8], rows: &[&[u8]]));
            shell!(@ $features, $block, pq_add(p: &mut [u8], q: &mut [u8], src: &[u8], coef: u8));
            shell!(@ $features, $block, gf_mul_into(out: &mut [u8], src: &[u8], coef: u8));
            shell!(@ $features, $block, gf_mul_xor_into(dst: &mut [u8], src: &[u8], coef: u8));
            shell!(@ $features, $block, adler_sums(bytes: &[u8]) -> (u32, u32));
        }
    };

    (@ $features:literal, $block:ty, $name:ident($($arg:ident: $of:ty),*) $(-> $result:ty)?) => {
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name($($arg: $of),*) $(-> $result)? {
            // SAFETY: the caller keeps the contract of `kernels`; the set is enabled here.
            unsafe { kernels::$name::<$block>($($arg),*) }
        }
    };
}

shell! {
    /// Proof that the processor has AVX2.
    Avx2, __m256i, cpu::AVX2, "avx2", avx2
}

shell! {
    /// Proof that the processor has AVX-512 with everything [`cpu::AVX512`] asks for.
    Avx512, __m512i, cpu::AVX512,
    "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni", avx512
}
