//! Atomics, locks, threads and time, from one place: of the standard library, or of a model
//! checker, so that the very code that ships is what the checker runs.
//!
//! # Guarantee, and what is not covered
//!
//! Without a flag everything here is a re-export: no type of its own, no branch, no cost. Under
//! `--cfg loom` every atomic, lock and thread is one of loom, which goes through all interleavings
//! and all values that the memory model allows a load to see. Under `--cfg shuttle` they are those
//! of shuttle, which draws interleavings of larger programs from a seed; its atomics are
//! sequentially consistent. Crates below the surfaces take these things from here and from nowhere
//! else, which `cargo xtask tidy` checks.
//!
//! Not covered: `Arc` (the standard one everywhere: its counts decide no protocol), and code that
//! meets the kernel or another process (mapping, signals, dirty tracking), which no model runs.
//!
//! # Picture
//!
//! ```text
//!   logs    heap    redundancy    object     the code that ships
//!      \       \        /          /
//!       +-------- this crate -----+
//!          /         |        \
//!        std       loom     shuttle          one of them, by --cfg
//! ```
//!
//! # Words
//!
//! *Schedule*: which thread takes the next step, from the first one to the last. *Weakened*: an
//! access whose ordering was taken away by `weaken`, to prove that a model needs it.
//!
//! # Life of one load
//!
//! `word.load(Acquire)` in a crate above is an instruction of the processor; or a step of loom,
//! weakened first if a test asked for that in this file; or a step of shuttle, before which it may
//! let another thread go on.
//!
//! # Tour
//!
//! `plain`: the standard library | `under_loom`, `under_shuttle`: checkers, and what they lack |
//! `weak`: loom's atomics, made weaker on demand | `spin_lock`: a spin lock on modelled atomics |
//! `once`: a cell that is set once, on modelled atomics | `time`: a clock that counts its readers.

#![cfg_attr(not(loom), forbid(unsafe_code))]

#[cfg(all(loom, shuttle))]
compile_error!("a build is for one checker: --cfg loom or --cfg shuttle");

#[cfg(any(loom, shuttle))]
mod once;
#[cfg(not(any(loom, shuttle)))]
mod plain;
#[cfg(loom)]
mod under_loom;
#[cfg(shuttle)]
mod under_shuttle;
#[cfg(loom)]
mod weak;

#[cfg(not(any(loom, shuttle)))]
pub use plain::*;
#[cfg(loom)]
pub use under_loom::*;
#[cfg(shuttle)]
pub use under_shuttle::*;

pub use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// Atomics of the process that no model sees: for numbers that only have to differ, such as those
/// that tell two pools apart. A model starts over many times in one process and must not find a
/// count of the run before.
pub mod unmodelled {
    pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

/// How often to try something before waiting for it in another way: `rounds`. In a model a few,
/// because each is a step that the checker branches on, and what follows them has to be reached.
#[inline(always)]
#[must_use]
pub const fn patience(rounds: u32) -> u32 {
    if cfg!(any(loom, shuttle)) && rounds > MODEL_ROUNDS { MODEL_ROUNDS } else { rounds }
}

/// Rounds in a model: one, and one that shows that it is a loop.
const MODEL_ROUNDS: u32 = 2;
