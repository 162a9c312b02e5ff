//! Large tables in DRAM, on large pages where the kernel has them.
//!
//! A table that is looked up at random costs a miss of the address translation with every miss of
//! the cache, and the translation's own data has to come from memory too. On pages of 2 MiB the
//! whole of it stays in the translation cache. Where the kernel gives none, pages are small and
//! everything else is the same. Memory is taken when it is first touched.

use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU16, AtomicU64};
use std::alloc::{Layout, handle_alloc_error};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::medium::PAGE;

/// Bytes of a large page.
const LARGE: usize = 2 << 20;
/// Tables from this size on get large pages: one of them is worth what it wastes of the last one,
/// since every small page would take one of the few entries of the translation cache.
const WORTH_IT: usize = LARGE / 8;

mod sealed {
    /// Types for which zero bytes are a value and which threads may share.
    pub trait Cell: Sync {}
    impl Cell for core::sync::atomic::AtomicU16 {}
    impl Cell for core::sync::atomic::AtomicU64 {}
}

/// What a [`Table`] consists of: an atomic number.
pub trait Cell: sealed::Cell {}
impl Cell for AtomicU16 {}
impl Cell for AtomicU64 {}

/// A fixed number of atomic numbers, zero at first. Nothing in it is durable.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// let table = holdfast_pmem::Table::<AtomicU64>::new(1000);
/// table[999].store(7, Ordering::Relaxed);
/// assert_eq!((table.len(), table[0].load(Ordering::Relaxed)), (1000, 0));
/// ```
#[derive(Debug)]
pub struct Table<T: Cell> {
    first: NonNull<T>,
    count: usize,
    /// The whole mapping: it is longer, so that a large page can start in it.
    start: NonNull<u8>,
    mapped: usize,
}

// SAFETY: the memory belongs to the table alone, and its elements may be shared and sent: `Cell`
// is implemented for atomic numbers only.
unsafe impl<T: Cell> Send for Table<T> {}
// SAFETY: as above.
unsafe impl<T: Cell> Sync for Table<T> {}

impl<T: Cell> Table<T> {
    /// A table of `count` zeros. As with `Vec`, the process ends if there is no memory.
    ///
    /// # Panics
    /// If the table would be larger than the address space.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let layout = Layout::array::<T>(count).expect("a table fits the address space");
        let large = layout.size() >= WORTH_IT;
        let (unit, slack) = if large { (LARGE, LARGE) } else { (PAGE as usize, 0) };
        let len = layout.size().max(1).next_multiple_of(unit);
        let mapped = len + slack;
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new anonymous mapping; nothing is replaced.
        let raw =
            unsafe { mmap_anonymous(ptr::null_mut(), mapped, rights, flags | MapFlags::NORESERVE) };
        let start = raw.ok().and_then(|raw| NonNull::new(raw.cast::<u8>()));
        let Some(start) = start else { handle_alloc_error(layout) };
        let skipped = if large { start.as_ptr().align_offset(LARGE) } else { 0 };
        debug_assert!(skipped <= slack, "an aligned start lies within the slack");
        // SAFETY: `skipped` is less than `slack`, so the start and `len` bytes behind it lie in the
        // mapping.
        let first = unsafe { start.add(skipped) };
        if large {
            // SAFETY: the range lies in the mapping made above. A refusal costs speed only.
            let _ = unsafe { madvise(first.as_ptr().cast(), len, Advice::LinuxHugepage) };
        }
        Self { first: first.cast(), count, start, mapped }
    }
}

impl<T: Cell> Deref for Table<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `first` is aligned (to a page) and has `count` elements in the mapping; the
        // kernel filled it with zeros, which are a value of every `Cell`; nobody unmaps it while
        // the table lives.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<T: Cell> Drop for Table<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; no reference outlives the table.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn tables_are_zeros_and_hold_what_is_stored_at_both_ends() {
        for count in [
            0,
            1,
            511,
            512,
            513,
            WORTH_IT / 8 - 1,
            WORTH_IT / 8,
            LARGE / 8 - 1,
            LARGE / 8,
            LARGE / 8 + 1,
            LARGE / 2,
        ] {
            let table = Table::<AtomicU64>::new(count);
            assert_eq!(table.len(), count);
            assert!(table.iter().all(|cell| cell.load(Relaxed) == 0));
            for at in [0, count / 2, count.saturating_sub(1)] {
                if let Some(cell) = table.get(at) {
                    cell.store(at as u64 + 1, Relaxed);
                    assert_eq!(table[at].load(Relaxed), at as u64 + 1);
                }
            }
        }
    }

    #[test]
    fn large_tables_start_where_a_large_page_can() {
        let table = Table::<AtomicU16>::new(3 * LARGE);
        assert_eq!(table.as_ptr().align_offset(LARGE), 0);
    }
}
