//! The table of kernels: for each, the instruction sets that have it, best first.
//!
//! This is the only place where one version is preferred to another.

use crate::reference;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::{cpu, x86};

/// Returns the kernel's answer from the first set that was found.
#[cfg(all(target_arch = "x86_64", not(miri)))]
macro_rules! first_of {
    ($found:ident, $name:ident, $arguments:tt, $($isa:ident),+) => {
        $(if let Some(isa) = x86::$isa::on($found) {
            return isa.$name $arguments;
        })+
    };
}

macro_rules! kernels {
    ($(fn $name:ident($($arg:ident: $of:ty),*) $(-> $result:ty)? = $($isa:ident),+;)+) => {$(
        #[doc = concat!("See [`reference::", stringify!($name), "`].")]
        #[inline]
        pub(crate) fn $name($($arg: $of),*) $(-> $result)? {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            {
                let found = cpu::found();
                first_of!(found, $name, ($($arg),*), $($isa),+);
            }
            reference::$name($($arg),*)
        }
    )+};
}

kernels! {
    fn crc_update(state: u32, bytes: &[u8]) -> u32 = Avx512, Folds256, Sse42;
    fn crc_shift(state: u32, n: usize) -> u32 = Sse42;
    fn crc_delta(delta: &[u8], tail: usize) -> u32 = Avx512, Sse42;
    fn adler_sums(bytes: &[u8]) -> (u32, u32) = Avx512, Avx2;
    fn xor_into(dst: &mut [u8], src: &[u8]) = Avx512, Avx2;
    fn xor_delta(out: &mut [u8], old: &[u8], new: &[u8]) = Avx512, Avx2;
    fn delta_words(out: &mut [u8], old: &[u8], new: &[u8], words: &mut [u8]) = Avx512, Avx2;
    fn xor_many(dst: &mut [u8], sources: &[&[u8]]) = Avx512, Avx2;
    fn is_zero(bytes: &[u8]) -> bool = Avx512, Avx2;
    fn pq_encode(p: &mut [u8], q: &mut [u8], rows: &[&[u8]]) = Avx512, Avx2;
    fn pq_add(p: &mut [u8], q: &mut [u8], src: &[u8], coef: u8) = Avx512, Avx2;
    fn gf_mul_into(out: &mut [u8], src: &[u8], coef: u8) = Avx512, Avx2;
    fn gf_mul_xor_into(dst: &mut [u8], src: &[u8], coef: u8) = Avx512, Avx2;
}

/// `crc_update` without a call, for a few bytes: where it is possible, code that is inlined into
/// the caller; elsewhere nothing.
#[inline]
pub(crate) fn crc_update_inline(state: u32, bytes: &[u8]) -> Option<u32> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if let Some(isa) = x86::Sse42::on(cpu::found()) {
        return Some(isa.chain(state, bytes));
    }
    let _ = (state, bytes);
    None
}
