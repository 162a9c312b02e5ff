//! What this CPU offers for durable stores, asked once by CPUID; and a hint to it.
//!
//! Never by compile-time target features: a program checker that hides instructions (and answers
//! CPUID accordingly) must get a program that does not use them.

use core::arch::x86_64::{__cpuid_count, _MM_HINT_ET0, _mm_prefetch};
use core::{fmt, ptr};
use std::sync::OnceLock;

/// Asks for the line of `value` to be had for writing soon. A hint: what other threads write to
/// arrives while this one goes on, instead of being waited for at the first store.
#[inline(always)]
pub fn claim<T: Sync>(value: &T) {
    // SAFETY: a prefetch never faults and changes nothing the program can see.
    unsafe { _mm_prefetch::<_MM_HINT_ET0>(ptr::from_ref(value).cast()) };
}

/// The instruction that writes a cache line back to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushInstruction {
    /// Writes the line back and may keep it in the cache.
    Clwb,
    /// Writes the line back and drops it; unordered among its own kind.
    Clflushopt,
    /// Writes the line back and drops it, one after the other: the oldest and slowest.
    Clflush,
}

impl fmt::Display for FlushInstruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clwb => "clwb",
            Self::Clflushopt => "clflushopt",
            Self::Clflush => "clflush",
        })
    }
}

/// The abilities that decide how this crate stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// How a line is flushed.
    pub flush: FlushInstruction,
    /// Whether 64-byte vectors are usable (AVX-512 F and VL, by CPU and system).
    pub wide: bool,
    /// Whether the system has switched protection keys on (the CPU alone does not suffice).
    pub protection_keys: bool,
}

impl Cpu {
    /// Asks the CPU, the first time; every later call returns the same answer.
    #[must_use]
    pub fn detect() -> Self {
        static FOUND: OnceLock<Cpu> = OnceLock::new();
        *FOUND.get_or_init(Self::ask)
    }

    /// Bytes of the widest non-temporal store.
    #[must_use]
    pub fn non_temporal_bytes(&self) -> usize {
        if self.wide && self.flush == FlushInstruction::Clwb { 64 } else { 16 }
    }

    fn ask() -> Self {
        const FEATURES: u32 = 7;
        const EBX_CLFLUSHOPT: u32 = 1 << 23;
        const EBX_CLWB: u32 = 1 << 24;
        const ECX_OSPKE: u32 = 1 << 4;
        let highest = __cpuid_count(0, 0).eax;
        let (ebx, ecx) = if highest >= FEATURES {
            let leaf = __cpuid_count(FEATURES, 0);
            (leaf.ebx, leaf.ecx)
        } else {
            (0, 0)
        };
        let flush = if ebx & EBX_CLWB != 0 {
            FlushInstruction::Clwb
        } else if ebx & EBX_CLFLUSHOPT != 0 {
            FlushInstruction::Clflushopt
        } else {
            // Part of every x86-64 CPU.
            FlushInstruction::Clflush
        };
        // The macro also asks whether the system saves the wide registers.
        let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
        Self { flush, wide, protection_keys: ecx & ECX_OSPKE != 0 }
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}-byte non-temporal stores", self.flush, self.non_temporal_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_what_the_kernel_lists() {
        let listed = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = listed.lines().find(|line| line.starts_with("flags")).unwrap();
        let has = |name: &str| flags.split_whitespace().any(|flag| flag == name);
        let cpu = Cpu::detect();
        assert_eq!(cpu.flush == FlushInstruction::Clwb, has("clwb"));
        assert_eq!(cpu.wide, has("avx512f") && has("avx512vl"));
        assert_eq!(cpu.protection_keys, has("ospke"));
    }
}
