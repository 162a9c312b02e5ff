//! Atomics of the numbers: the standard ones, or those of the model checker.
//!
//! Under `--cfg loom` the very code of `numbers.rs` runs in the model; see `tests/loom.rs`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
