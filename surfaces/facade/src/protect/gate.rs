//! The gate that keeps our own writes out while a page is replaced.
//!
//! This file is compiled twice in a build for the model checker: as it ships, and on its locks.

use core::time::Duration;

use super::words::{Condvar, Mutex, MutexGuard, PoisonError};

/// Lets many through, or nobody.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<Passing>,
    told: Condvar,
}

#[derive(Debug, Default)]
struct Passing {
    closed: bool,
    inside: u64,
}

/// Longest that a write of a few bytes may take before it counts as stopped in the middle.
const PATIENCE: Duration = Duration::from_millis(500);

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Passing> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, passing: MutexGuard<'a, Passing>) -> MutexGuard<'a, Passing> {
        self.told.wait(passing).unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something while the gate is open, and keeps it so.
    pub(crate) fn pass<T>(&self, what: impl FnOnce() -> T) -> T {
        struct Inside<'a>(&'a Gate);
        impl Drop for Inside<'_> {
            fn drop(&mut self) {
                self.0.lock().inside -= 1;
                self.0.told.notify_all();
            }
        }
        let mut passing = self.lock();
        while passing.closed {
            passing = self.wait(passing);
        }
        passing.inside += 1;
        drop(passing);
        let _inside = Inside(self);
        what()
    }

    /// Closes it, once nobody is inside; false, and it is open, if somebody stays there: a thread
    /// may have been stopped in the middle.
    pub(crate) fn close(&self) -> bool {
        let mut passing = self.lock();
        while passing.closed {
            passing = self.wait(passing);
        }
        passing.closed = true;
        let waited = self.told.wait_timeout_while(passing, PATIENCE, |passing| passing.inside > 0);
        let (mut passing, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        passing.closed = !waited.timed_out();
        let closed = passing.closed;
        drop(passing);
        if !closed {
            self.told.notify_all();
        }
        closed
    }

    /// Opens it again.
    pub(crate) fn open(&self) {
        self.lock().closed = false;
        self.told.notify_all();
    }
}
