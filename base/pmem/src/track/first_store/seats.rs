//! Where the fault handler finds a source, and how one is taken away from under it.
//!
//! | handler | who sits there |
//! |---|---|
//! | 1 counts itself in | 1 takes the pointer out |
//! | 2 reads the pointer | 2 waits until nobody is inside |
//! | 3 looks, if there is one | 3 frees |
//! | 4 counts itself out | |
//!
//! The first two steps of either are in one order of all: a handler that is not waited for comes to
//! an empty seat. In any other order it may look at what is freed; the model `seats` tries them.
//!
//! This file is compiled twice in a build for the model checker: as it ships, and on its words.

use core::ptr;

use super::words::{AtomicPtr, AtomicU32, Ordering, yield_now};

/// Room for one source.
#[derive(Debug)]
pub struct Seat<T> {
    /// The source; null if nobody sits there.
    pub source: AtomicPtr<T>,
    /// Handlers that may be looking at it.
    pub inside: AtomicU32,
}

impl<T: Sync> Seat<T> {
    /// Takes the seat, if nobody has it: handlers that begin from now on find the source.
    ///
    /// # Safety
    /// If this answers true, the source is valid, and there are no references to it but shared
    /// ones, until [`give_back`](Self::give_back) has returned.
    pub unsafe fn take(&self, source: *mut T) -> bool {
        let nobody = ptr::null_mut();
        self.source.compare_exchange(nobody, source, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Gives the seat back, by whoever has it. No handler has the source then, or can get it.
    pub fn give_back(&self) {
        self.hide();
        self.wait();
    }

    /// The first step of that.
    pub fn hide(&self) {
        self.source.store(ptr::null_mut(), Ordering::SeqCst);
    }

    /// The second.
    pub fn wait(&self) {
        while self.inside.load(Ordering::SeqCst) != 0 {
            yield_now();
        }
    }

    /// What `look` makes of the source, if there is one. Async-signal-safe if `look` is.
    pub fn look<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.enter();
        // SAFETY: as `take` wants it, a pointer that was read here was valid when it was, and is
        // until `give_back` has returned, which waits for who entered before it took the pointer
        // out. Who enters later reads null.
        let found = unsafe { self.found().as_ref() }.map(look);
        self.leave();
        found
    }

    /// The first step of that.
    pub fn enter(&self) {
        self.inside.fetch_add(1, Ordering::SeqCst);
    }

    /// The second: valid until the last, if it is not null.
    pub fn found(&self) -> *mut T {
        self.source.load(Ordering::SeqCst)
    }

    /// The last.
    pub fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    /// Forgets, in a child that was just forked, the parent's threads that were inside.
    /// Async-signal-safe.
    pub fn begin_child(&self) {
        self.inside.store(0, Ordering::SeqCst);
    }
}
