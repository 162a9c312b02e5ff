//! Which instruction sets this processor offers, asked once and then read from one byte.
//!
//! Every kernel is chosen at run time, call by call: a relaxed load of one byte that is already
//! in the cache, and a branch that always goes the same way. That is cheaper than a call through
//! a function pointer and lets the smallest inputs stay inline in the caller.
//!
//! Nothing is inferred from a processor's name: a set counts only if CPUID reports each of its
//! parts *and* the operating system saves the registers (both asked by
//! `is_x86_feature_detected!`). Emulators that hide AVX-512 are thus served by the next set down.

use core::sync::atomic::{AtomicU8, Ordering};

/// Bit that marks the byte as filled in, so that "asked, found nothing" differs from "not asked".
const ASKED: u8 = 1;

/// CRC32 and PCLMULQDQ instructions.
pub(crate) const SSE42: u8 = 1 << 1;

/// 256-bit integer instructions.
pub(crate) const AVX2: u8 = 1 << 2;

/// 512-bit integer instructions with byte permutes, carry-less multiply and GFNI.
pub(crate) const AVX512: u8 = 1 << 3;

/// 256-bit carry-less multiply, beside AVX2 and SSE4.2.
pub(crate) const FOLDS256: u8 = 1 << 4;

static FOUND: AtomicU8 = AtomicU8::new(0);

/// What was found. Only this file makes one, so that a token made from it is proof.
#[derive(Clone, Copy)]
pub(crate) struct Found(u8);

impl Found {
    /// Whether `set`, one of the constants above, is there.
    #[inline(always)]
    pub(crate) fn has(self, set: u8) -> bool {
        self.0 & set != 0
    }
}

/// The sets found.
#[inline(always)]
pub(crate) fn found() -> Found {
    // Relaxed is enough: the byte guards no other memory, and two threads that race to fill it
    // in store the same value.
    match FOUND.load(Ordering::Relaxed) {
        0 => Found(ask()),
        found => Found(found),
    }
}

#[cold]
fn ask() -> u8 {
    let mut found = ASKED;
    if is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq") {
        found |= SSE42;
    }
    if is_x86_feature_detected!("avx2") {
        found |= AVX2;
    }
    if found & SSE42 != 0 && found & AVX2 != 0 && is_x86_feature_detected!("vpclmulqdq") {
        found |= FOLDS256;
    }
    if found & SSE42 != 0
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("gfni")
    {
        found |= AVX512;
    }
    FOUND.store(found, Ordering::Relaxed);
    found
}
