//! Every routine of every flavour against plain byte loops, at all alignments.

mod stepped;

use proptest::prelude::*;

use super::*;
use crate::cpu::Cpu;
use crate::cpu::FlushInstruction;

/// A buffer whose start is line-aligned, so that a test decides alignment.
#[repr(align(64))]
struct Lines([u8; 1024]);

fn flavours() -> Vec<Stores> {
    let cpu = Cpu::detect();
    let mut all = vec![Stores::Plain, Stores::Clflush];
    if cpu.flush != FlushInstruction::Clflush {
        all.push(Stores::Clflushopt);
    }
    if cpu.flush == FlushInstruction::Clwb {
        all.push(Stores::Clwb);
        if cpu.wide {
            all.push(Stores::Wide);
        }
    }
    all
}

fn pattern(seed: u64) -> Lines {
    let mut lines = Lines([0; 1024]);
    let mut state = seed | 1;
    for byte in &mut lines.0 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (state >> 56) as u8;
    }
    lines
}

/// `at + len` stays below 1024, so a store of one byte too many is seen as well.
fn ranges() -> impl Strategy<Value = (usize, usize)> {
    (0usize..200, prop_oneof![0usize..140, 0usize..800])
}

proptest! {
    #[test]
    fn put_stores_exactly_the_range(
        (at, len) in ranges(), from in 0usize..20, near in 0usize..900, seed: u64,
    ) {
        let source = pattern(!seed);
        for stores in flavours() {
            let mut lines = pattern(seed);
            let mut expected = lines.0;
            expected[at..at + len].copy_from_slice(&source.0[from..from + len]);
            let to = lines.0.as_mut_ptr() as usize + at;
            // SAFETY: both ranges lie in the buffers; the flavour was offered by the CPU.
            let out = unsafe { put(stores, to, source.0.as_ptr().add(from), len, near) };
            fence();
            prop_assert!(!out.trapped());
            prop_assert!(lines.0 == expected, "{stores:?} {at}+{len}");
        }
    }

    #[test]
    fn xor_changes_exactly_the_range((at, len) in ranges(), from in 0usize..20, seed: u64) {
        let source = pattern(!seed);
        for stores in flavours() {
            let mut lines = pattern(seed);
            let mut expected = lines.0;
            for (byte, delta) in expected[at..at + len].iter_mut().zip(&source.0[from..]) {
                *byte ^= delta;
            }
            let to = lines.0.as_mut_ptr() as usize + at;
            // SAFETY: both ranges lie in the buffers; the flavour was offered by the CPU.
            let out = unsafe { xor(stores, to, source.0.as_ptr().add(from), len) };
            fence();
            prop_assert!(!out.trapped());
            prop_assert!(lines.0 == expected, "{stores:?} {at}+{len}");
        }
    }

    #[test]
    fn zero_clears_exactly_the_range((at, len) in ranges(), seed: u64) {
        for stores in flavours() {
            let mut lines = pattern(seed);
            let mut expected = lines.0;
            expected[at..at + len].fill(0);
            // SAFETY: the range lies in the buffer; the flavour was offered by the CPU.
            let out = unsafe { zero(stores, lines.0.as_mut_ptr() as usize + at, len) };
            fence();
            prop_assert!(!out.trapped());
            prop_assert!(lines.0 == expected, "{stores:?} {at}+{len}");
        }
    }

    #[test]
    fn load_copies_exactly_the_range((at, len) in ranges(), to in 0usize..20, seed: u64) {
        let source = pattern(!seed);
        for wide in [false, true] {
            if wide && !Cpu::detect().wide {
                continue;
            }
            let mut lines = pattern(seed);
            let mut expected = lines.0;
            expected[to..to + len].copy_from_slice(&source.0[at..at + len]);
            let from = source.0.as_ptr() as usize + at;
            // SAFETY: both ranges lie in the buffers; the flavour was offered by the CPU.
            let out = unsafe { load(wide, lines.0.as_mut_ptr().add(to), from, len) };
            prop_assert!(!out.trapped());
            prop_assert!(lines.0 == expected, "wide {wide} {at}+{len}");
        }
    }
}

#[test]
fn only_addresses_inside_the_routines_have_an_error_exit() {
    let inside = holdfast_pmem_put_wide as *const () as usize;
    assert_eq!(error_exit(inside), Some(holdfast_pmem_access_failed as *const () as usize));
    assert_eq!(error_exit(holdfast_pmem_access_failed as *const () as usize), None);
    assert_eq!(error_exit(ranges as *const () as usize), None);
}
