//! Every target under libFuzzer: `HOLDFAST_FUZZ_TARGET` says which.

#![no_main]

use std::sync::OnceLock;

use holdfast_fuzz::{Target, drive, find, memory};
use holdfast_workloads::Rng;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

fn target() -> &'static Target {
    static TARGET: OnceLock<&'static Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var("HOLDFAST_FUZZ_TARGET").unwrap_or_default();
        find(&name).unwrap_or_else(|| panic!("HOLDFAST_FUZZ_TARGET names no target: {name:?}"))
    })
}

fuzz_target!(|input: &[u8]| {
    if let Err(finding) = drive::play(target(), input) {
        panic!("{finding}");
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max: usize, seed: u32| {
    // libFuzzer's own now and then: it knows what the program compares.
    if seed.is_multiple_of(4) {
        return fuzzer_mutate(data, size, max);
    }
    let mut rng = Rng::new(seed.into());
    let new = (target().mutate)(&data[..size], max, &mut rng);
    let len = new.len().min(max);
    data[..len].copy_from_slice(&new[..len]);
    len
});
