//! The table of a program that runs in a model checker: its words are no plain memory, so they are
//! made one by one, of a few kilobytes at most.

use core::ops::Deref;

use holdfast_sync::atomic::{AtomicU16, AtomicU64};

mod sealed {
    /// Atomic numbers of the checker.
    pub trait Cell: Sync + Default {}
    impl Cell for holdfast_sync::atomic::AtomicU16 {}
    impl Cell for holdfast_sync::atomic::AtomicU64 {}
}

/// What a [`Table`] consists of: an atomic number.
pub trait Cell: sealed::Cell {}
impl Cell for AtomicU16 {}
impl Cell for AtomicU64 {}

/// A fixed number of atomic numbers, zero at first.
#[derive(Debug)]
pub struct Table<T: Cell>(Box<[T]>);

impl<T: Cell> Table<T> {
    /// A table of `count` zeros.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|_| T::default()).collect())
    }
}

impl<T: Cell> Deref for Table<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}
