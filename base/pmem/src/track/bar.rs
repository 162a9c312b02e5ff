//! Holding up the stores to one page, while it is put right under a program that is not stopped.
//!
//! | who stores | meets | and |
//! |---|---|---|
//! | before the bar | an open page | the source tells of it, and nothing is replaced |
//! | while it is closed | a page that is write-protected: the handler waits here | repeats it |
//! | just as it opens | a fault of before, a page of now | repeats it, however late |
//!
//! One page of the process at a time. Loads pass. Everything that the handler calls is
//! async-signal-safe: atomics in static memory and `futex`.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::thread::futex;

use super::error::TrackError;
use super::span::address;
use crate::medium::PAGE;

/// Where the page is that was barred last; 0 before the first.
static PAGE_AT: AtomicUsize = AtomicUsize::new(0);
/// Those that were barred last, it among them: a thread that met a bar may come to its handler when
/// another page was barred since.
static LATEST: [AtomicUsize; MEMORY] = [const { AtomicUsize::new(0) }; MEMORY];
/// How many pages were barred; changed by whoever bars.
static BARRED: AtomicUsize = AtomicUsize::new(0);
/// 1 while it is closed.
static CLOSED: AtomicU32 = AtomicU32::new(0);
/// Faults that were repeated since it was opened.
static STRAYS: AtomicU32 = AtomicU32::new(0);
/// Whoever bars.
static TURN: Mutex<()> = Mutex::new(());

/// So many pages are remembered.
const MEMORY: usize = 16;
/// More faults at pages that are open are not ours.
const MOST_STRAYS: u32 = 1024;
/// A wait looks again after this time, should it not be woken.
const LOOK: futex::Timespec = futex::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// As long as it lives, stores to one page wait.
#[derive(Debug)]
pub struct Bar {
    /// The page, if its rights have to be given back.
    protected: Option<usize>,
    _turn: MutexGuard<'static, ()>,
}

impl Bar {
    /// Closes the page at `page`. With `protect`, stores are made to fault by its rights; else
    /// they fault already, and the handler of the caller asks [`is_closed`].
    ///
    /// # Safety
    /// With `protect`, the page is one of a mapping that may be stored to, which outlives the bar,
    /// and whose rights nobody else changes meanwhile.
    pub(crate) unsafe fn close(page: usize, protect: bool) -> Result<Self, TrackError> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = BARRED.fetch_add(1, Ordering::SeqCst);
        LATEST[number % MEMORY].store(page, Ordering::SeqCst);
        PAGE_AT.store(page, Ordering::SeqCst);
        STRAYS.store(0, Ordering::SeqCst);
        CLOSED.store(1, Ordering::SeqCst);
        let bar = Self { protected: protect.then_some(page), _turn: turn };
        // SAFETY: the caller's promise; loads go on as they were.
        if protect && unsafe { libc::mprotect(address(page), PAGE as usize, libc::PROT_READ) } != 0
        {
            return Err(TrackError::last("mprotect"));
        }
        Ok(bar)
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(page) = self.protected {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: the promise made to `close`. To give back what the mapping had needs no room:
            // at the worst its pieces are joined again.
            unsafe { libc::mprotect(address(page), PAGE as usize, rights) };
        }
        CLOSED.store(0, Ordering::SeqCst);
        let _ = futex::wake(&CLOSED, futex::Flags::PRIVATE, u32::MAX >> 1);
    }
}

/// Whether stores to the page of an address wait. Async-signal-safe.
pub(crate) fn is_closed(at: usize) -> bool {
    CLOSED.load(Ordering::SeqCst) == 1 && is_last(at)
}

fn is_last(at: usize) -> bool {
    PAGE_AT.load(Ordering::SeqCst) == page_of(at)
}

const fn page_of(at: usize) -> usize {
    at & !(PAGE as usize - 1)
}

/// Waits while the page of an address is closed; whether it was. Async-signal-safe.
pub(crate) fn wait(at: usize) -> bool {
    let waited = is_closed(at);
    while is_closed(at) {
        let _ = futex::wait(&CLOSED, futex::Flags::PRIVATE, 1, Some(&LOOK));
    }
    waited
}

/// Whether a store that failed, and that nobody else explains, may have met a bar that is open by
/// now. Async-signal-safe.
pub(crate) fn has_met(at: usize) -> bool {
    let met = LATEST.iter().any(|page| page.load(Ordering::SeqCst) == page_of(at));
    // Addresses in the first page are nobody's, and what was never barred is 0.
    met && page_of(at) > 0 && STRAYS.fetch_add(1, Ordering::SeqCst) < MOST_STRAYS
}

/// In a child that was just forked: whoever closed it is not here. Async-signal-safe.
pub(crate) fn begin_child() {
    CLOSED.store(0, Ordering::SeqCst);
    PAGE_AT.store(0, Ordering::SeqCst);
    LATEST.iter().for_each(|page| page.store(0, Ordering::SeqCst));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses that nobody ever stores to.
    const FAR: usize = 1 << 46;

    fn close(number: usize) -> Bar {
        // SAFETY: no rights are changed.
        unsafe { Bar::close(FAR + number * PAGE as usize, false).unwrap() }
    }

    /// A thread that met a bar may come to its handler when other pages were barred since.
    #[test]
    fn whoever_met_a_bar_is_late() {
        let met = |number: usize| has_met(FAR + number * PAGE as usize + 77);
        assert!(!met(1));
        drop(close(1));
        assert!(met(1));
        let second = close(2);
        assert!(met(1) && !is_closed(FAR + PAGE as usize) && !wait(FAR + PAGE as usize));
        drop(second);
        for number in 3..2 + MEMORY {
            drop(close(number));
        }
        assert!(met(2) && met(1 + MEMORY) && !met(0) && !met(2 + MEMORY));
        drop(close(2 + MEMORY));
        drop(close(3 + MEMORY));
        assert!(!met(1), "not for ever");
    }
}
