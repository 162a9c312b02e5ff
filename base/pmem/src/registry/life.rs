//! The life of one entry of the registry: taken, shown to the handler, retired, given back, and
//! where the views of its mapping lie meanwhile.
//!
//! Handlers read it without a lock, and the entry may be given back and taken for another mapping
//! while they do. Half of one mapping and half of another would be a third, which reaches over what
//! lies behind it: a fault there would wait for the wrong mapping's repair. So each time the entry
//! is taken it gets a number, and what was read counts if the number is still the same after it.
//!
//! This file is compiled twice in a build for the model checker: as it ships, and on its words.

use super::words::{AtomicU32, AtomicU64, Ordering, fence};

const UNUSED: u32 = 0;
const TAKEN: u32 = 1;
const LIVE: u32 = 2;
const RETIRED: u32 = 3;

/// Who has an entry, and where its views are.
#[derive(Debug)]
pub struct Life {
    /// Who has it.
    pub state: AtomicU32,
    /// How often it was taken.
    pub turn: AtomicU64,
    /// As in [`Spans`].
    pub view: AtomicU64,
    /// The same.
    pub alias: AtomicU64,
    /// The same.
    pub span: AtomicU64,
    /// The same.
    pub mapped: AtomicU64,
}

/// Where the views of a mapping are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spans {
    /// First byte of the view.
    pub view: u64,
    /// First byte of the other one; 0 if there is none.
    pub alias: u64,
    /// Bytes of addresses that each has.
    pub span: u64,
    /// Bytes of them that are mapped.
    pub mapped: u64,
}

impl Life {
    /// Takes the entry for a mapping that nobody sees yet. False if somebody has it.
    pub fn take(&self) -> bool {
        let taken = self.state.compare_exchange(UNUSED, TAKEN, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            // Whoever sees the number sees that the mapping before is gone;
            self.turn.fetch_add(1, Ordering::Release);
            // and whoever sees one of the words stored from here on, the number.
            fence(Ordering::Release);
        }
        taken.is_ok()
    }

    /// Shows its mapping to the handler.
    pub fn show(&self, spans: Spans) {
        self.view.store(spans.view, Ordering::Relaxed);
        self.alias.store(spans.alias, Ordering::Relaxed);
        self.span.store(spans.span, Ordering::Relaxed);
        self.mapped.store(spans.mapped, Ordering::Relaxed);
        self.state.store(LIVE, Ordering::Release);
    }

    /// Hides it, before its addresses are given back.
    pub fn retire(&self) {
        self.state.store(RETIRED, Ordering::Release);
    }

    /// Gives the entry back.
    pub fn give_back(&self) {
        self.state.store(UNUSED, Ordering::Release);
    }

    /// Where the views of its mapping are, if it has one. One that comes or goes meanwhile is none:
    /// a thread that faults in a mapping keeps it from going. Async-signal-safe.
    pub fn look(&self) -> Option<Spans> {
        let turn = self.turn.load(Ordering::Acquire);
        if self.state.load(Ordering::Acquire) != LIVE {
            return None;
        }
        let spans = Spans {
            view: self.view.load(Ordering::Relaxed),
            alias: self.alias.load(Ordering::Relaxed),
            span: self.span.load(Ordering::Relaxed),
            mapped: self.mapped.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        (self.turn.load(Ordering::Relaxed) == turn).then_some(spans)
    }
}
