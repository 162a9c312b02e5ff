//! Where sources were: a store that met the protection of one may come to its handler when the
//! source is gone, and the page is open.
//!
//! When a source is gone, each thread can have met it once more. So the stores that are repeated
//! are counted for all of a span together, and not for ever: whatever is protected there by
//! somebody else, now or later, the fault is the program's after that. So many spans are
//! remembered that a thread would have to be held up while as many sources came and went.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::super::span::Span;

/// Spans that are remembered.
const MEMORY: usize = 64;
/// Threads that can have met a source that is gone. What faults more often is not ours.
const MOST: u32 = 1024;

static LATEST: [Left; MEMORY] = [const { Left::new() }; MEMORY];
/// How many were noted.
static NOTED: AtomicUsize = AtomicUsize::new(0);

/// Addresses of a source that is gone.
struct Left {
    start: AtomicUsize,
    /// The first that was not its own; 0 is of no span.
    end: AtomicUsize,
    /// Stores there that were repeated since.
    repeated: AtomicU32,
}

impl Left {
    const fn new() -> Self {
        let (start, end) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { start, end, repeated: AtomicU32::new(0) }
    }

    fn is(&self, start: usize, end: usize) -> bool {
        self.start.load(Ordering::SeqCst) == start && self.end.load(Ordering::SeqCst) == end
    }

    /// A handler that looks meanwhile finds no span, or bounds of two: then a store is repeated
    /// that need not be, which is counted like all.
    fn put(&self, start: usize, end: usize) {
        self.end.store(0, Ordering::SeqCst);
        self.start.store(start, Ordering::SeqCst);
        self.repeated.store(0, Ordering::SeqCst);
        self.end.store(end, Ordering::SeqCst);
    }

    fn has_met(&self, at: usize) -> bool {
        let inside =
            at < self.end.load(Ordering::SeqCst) && at >= self.start.load(Ordering::SeqCst);
        // Never beyond it: a number that went round would begin anew.
        let more = |repeated| (repeated < MOST).then_some(repeated + 1);
        inside && self.repeated.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }
}

/// Notes the span of a source that leaves. It must still be found in its seat.
pub(super) fn note(span: Span) {
    let (start, end) = (span.address, span.address + span.len as usize);
    // Who opens the same again and again needs one place.
    let known = LATEST.iter().find(|left| left.is(start, end));
    known.unwrap_or_else(|| &LATEST[NOTED.fetch_add(1, Ordering::SeqCst) % MEMORY]).put(start, end);
}

/// Whether a store that failed, and that no source explains, may have met one that is gone.
/// Async-signal-safe.
pub(super) fn has_met(at: usize) -> bool {
    LATEST.iter().any(|left| left.has_met(at))
}

/// In a child that was just forked, which has none of it. Async-signal-safe.
pub(super) fn begin_child() {
    LATEST.iter().for_each(|left| left.end.store(0, Ordering::SeqCst));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::PAGE;

    /// Addresses that nobody ever stores to.
    const FAR: usize = 1 << 45;

    fn leave(number: usize) {
        note(Span { address: FAR + number * PAGE as usize, len: PAGE, at: 0 });
    }

    #[test]
    fn a_span_that_was_left_is_known_for_so_many_stores_and_so_many_others() {
        let met = |number: usize| has_met(FAR + number * PAGE as usize + 77);
        assert!(!met(1));
        leave(1);
        assert!(met(1) && !met(0) && !met(2));
        assert_eq!((1..2 * MOST).filter(|_| met(1)).count() as u32, MOST - 1);
        leave(1);
        assert!(met(1), "another source was there");
        for number in 2..=MEMORY {
            leave(number);
        }
        assert!(met(1) && met(2) && met(MEMORY));
        leave(1 + MEMORY);
        assert!(!met(1) && met(2), "not for ever");
        begin_child();
        assert!(!met(2), "a child has none of it");
    }
}
