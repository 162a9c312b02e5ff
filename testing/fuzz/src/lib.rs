//! Fuzz targets for everything in Holdfast that reads bytes somebody else wrote, each with a
//! mutator that knows what it changes.
//!
//! # What it guarantees, and what it does not
//!
//! Of each input that was run: no panic, no run longer than [`drive::SLOW`] and none without an
//! end, never more memory at once than the target's [`Target::bound`]. Where a target has an
//! oracle, its answers were right: objects that damage had nothing to do with were served as they
//! were or refused, a check changed nothing, a check after a repair that found nothing more to do
//! found nothing, no byte of a data file changed, a map held what its model held.
//!
//! Not covered: what no input reached (a count of runs is no proof), threads (each run has one),
//! what the kernel does with bad arguments, and malice that computes sums and parity for content
//! of its own: such damage must not break the program, and may change what it owns.
//!
//! # Picture
//!
//! ```text
//!   corpus/NAME/*  --+--> storm::run -----> mutate --> run     stable Rust, in `cargo test`
//!   Target::seeds  --+                        |         |
//!                    +--> libFuzzer, with coverage and AddressSanitizer: fuzz/, `xtask fuzz`
//!                                             |         v
//!                          script: head + steps --> damage of fields, sealed or not --> engine
//! ```
//!
//! # Words
//!
//! *Input*: the bytes of one run. *Script*: an input read as a head and steps of fixed length.
//! *Step*: one thing done before or while the target runs, such as damage to one field. *Bed*: a
//! pool or side file made once and damaged anew in each run. *Sealed*: with sums and parity
//! computed again, so that the damage verifies. *Storm*: mutated inputs for some seconds.
//! *Finding*: an input that broke the law, and how.
//!
//! # Life of one run
//!
//! 1. The mutator takes an input of the corpus, changes one part of it, and keeps the form.
//! 2. The target reads it. Bytes that are missing are zeros, numbers too large wrap: each input
//!    means something, so that no run is wasted on a refusal of the fuzzer's own.
//! 3. A bed is copied, and the steps damage fields of it. The places of fields, and what seals
//!    them, are those of the campaign's row `fields`.
//! 4. The engine opens, checks, repairs, recovers. The oracle judges. A violation is a panic.
//! 5. [`drive::play`] catches it, looks at the clock and at [`memory::peak`], and tells.
//!
//! # Tour
//!
//! `script.rs` inputs as steps, their mutator | `bed.rs` pools to damage, how, and what must hold
//! afterwards | `targets/` one file for each kind of target | `words.rs` mutators of text |
//! `drive.rs` one input, judged | `storm.rs` many of them on several threads, without libFuzzer |
//! `lie.rs` false answers planted in tests | `memory.rs` what is allocated | `main.rs` the command
//! | `fuzz/` a workspace of its own: the same targets under libFuzzer | `corpus/` some inputs that
//! targets begin with (`seed-`), those that `xtask fuzz --merge` chose for what they reach
//! (`new-`), and every one that ever broke the law.

#![deny(unsafe_code)]

mod bed;
pub mod drive;
pub mod lie;
pub mod memory;
pub mod script;
pub mod storm;
pub mod targets;
mod words;

use std::time::Duration;

use holdfast_workloads::Rng;

/// Changes an input: what it was, most bytes of the answer, where chance comes from.
pub type Mutate = fn(&[u8], usize, &mut Rng) -> Vec<u8>;

/// Something that reads hostile bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// What it reads, and what must hold.
    pub story: &'static str,
    /// One run. A panic is a violation of the law.
    pub run: fn(&[u8]),
    /// Makes another input of one.
    pub mutate: Mutate,
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Longest input, in bytes.
    pub longest: usize,
    /// Most bytes that a run may have allocated at once, what its bed takes included.
    pub bound: usize,
    /// Longest time of a run.
    pub slow: Duration,
}

/// The target of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    targets::ALL.iter().find(|target| target.name == name)
}
