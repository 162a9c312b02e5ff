//! One place where a thread waits for an answer about a bad page, and what may become of it.
//!
//! Its state is one word: a phase, and how often the place was handed out. Whoever takes or answers
//! a fault reads the state first, then the fault, and changes the state only if it is still the
//! same. Without the count, a place that was answered, left and posted anew in between would look
//! the same: one thread would get the answer to another one's fault, or its fault be taken by
//! somebody who repairs another page, and never be taken again.
//!
//! This file is compiled twice in a build for the model checker: as it ships, and on its words.

use super::words::{AtomicU32, AtomicU64, Ordering};
use super::{Fault, Verdict};

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const POSTED: u32 = 2;
const TAKEN: u32 = 3;
const HEALED: u32 = 4;
const LOST: u32 = 5;

/// The bits of the phase; above them, how often the place was handed out.
const PHASE: u32 = 7;

/// State of a place at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State(u32);

impl State {
    const fn phase(self) -> u32 {
        self.0 & PHASE
    }

    const fn with(self, phase: u32) -> Self {
        Self(self.0 & !PHASE | phase)
    }

    /// As the word is in memory.
    #[must_use]
    pub const fn word(self) -> u32 {
        self.0
    }

    /// Whether a fault is posted that nobody is repairing.
    #[must_use]
    pub const fn is_posted(self) -> bool {
        self.phase() == POSTED
    }

    /// Whether somebody is repairing the fault.
    #[must_use]
    pub const fn is_taken(self) -> bool {
        self.phase() == TAKEN
    }

    /// The answer, if there is one.
    #[must_use]
    pub const fn answer(self) -> Option<Verdict> {
        match self.phase() {
            HEALED => Some(Verdict::Healed),
            LOST => Some(Verdict::Lost),
            _ => None,
        }
    }
}

/// One waiting thread.
#[derive(Debug)]
pub struct Slot {
    pub(super) state: AtomicU32,
    pub(super) thread: AtomicU32,
    pub(super) at: AtomicU64,
    pub(super) len: AtomicU64,
    /// When the memory failed; 0 if it did not.
    pub(super) memory: AtomicU64,
}

impl Slot {
    /// Its state. The fault that it says is posted is seen from then on.
    pub fn look(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    /// Takes the place if it is free; answers what its state is then.
    pub fn claim(&self) -> Option<State> {
        let free = State(self.state.load(Ordering::Relaxed));
        if free.phase() != FREE {
            return None;
        }
        let mine = State(free.0.wrapping_add(PHASE + 1)).with(CLAIMED);
        let won = self.state.compare_exchange(free.0, mine.0, Ordering::AcqRel, Ordering::Relaxed);
        won.is_ok().then_some(mine)
    }

    /// Posts a fault in a place that the caller has claimed.
    pub fn post(&self, mine: State, fault: Fault) {
        self.thread.store(fault.thread, Ordering::Relaxed);
        self.at.store(fault.at, Ordering::Relaxed);
        self.len.store(fault.len, Ordering::Relaxed);
        self.memory.store(fault.memory.unwrap_or(0), Ordering::Relaxed);
        self.state.store(mine.with(POSTED).0, Ordering::Release);
    }

    /// The fault: that of a state that was looked at, if the state is changed from that afterwards.
    pub fn fault(&self) -> Fault {
        Fault {
            at: self.at.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            thread: self.thread.load(Ordering::Relaxed),
            memory: Some(self.memory.load(Ordering::Relaxed)).filter(|since| *since != 0),
        }
    }

    /// Takes the fault on, if it is still posted as it was.
    pub fn take(&self, posted: State) -> bool {
        self.change(posted, TAKEN)
    }

    /// Answers the fault, if nobody has since its state was looked at.
    pub fn give(&self, waits: State, verdict: Verdict) -> bool {
        self.change(waits, if verdict == Verdict::Healed { HEALED } else { LOST })
    }

    /// The waiting thread leaves, if the state is still this one.
    pub fn leave(&self, state: State) -> bool {
        self.change(state, FREE)
    }

    fn change(&self, from: State, phase: u32) -> bool {
        let to = from.with(phase).0;
        self.state.compare_exchange(from.0, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}
