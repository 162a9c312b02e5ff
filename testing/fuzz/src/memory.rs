//! What a thread has allocated: an allocator that counts, so that a length from outside that is
//! believed too early shows as memory.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting by thread. To be made the global one by whoever judges.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counting;

thread_local! {
    /// Bytes allocated less bytes freed by this thread, and the most that was.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// Adds to what this thread holds. A thread that ends has none any more.
fn note(by: isize) {
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        let now = now.saturating_add(by);
        held.set((now, most.max(now)));
    });
}

/// From now on the peak is counted from what is held at this moment.
pub fn begin() {
    HELD.set((0, 0));
}

/// The most bytes this thread had allocated at once since [`begin`], beyond what it had then. Zero
/// for ever if [`Counting`] is not the global allocator.
#[must_use]
pub fn peak() -> usize {
    HELD.get().1.unsigned_abs()
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

// SAFETY: every call goes to the system's allocator with the arguments as they came; what is added
// is arithmetic on a cell of this thread, which allocates nothing (const, no destructor).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(signed(layout.size()));
        // SAFETY: as the caller promised for this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(signed(layout.size()));
        // SAFETY: as the caller promised for this call.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(-signed(layout.size()));
        // SAFETY: as the caller promised for this call.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        note(signed(new).saturating_sub(signed(layout.size())));
        // SAFETY: as the caller promised for this call.
        unsafe { System.realloc(at, layout, new) }
    }
}
