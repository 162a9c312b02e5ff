//! What the fault handler may look at: a fixed table of mappings, made of atomics only.
//!
//! The table is static, so nothing the handler holds can be freed under it. An entry belongs to
//! one [`Registration`] at a time; its mailbox (`parked`) is where threads wait whose loads met a
//! bad page, until the repair thread has answered.
//!
//! ```text
//!   slot   FREE -> CLAIMED -> POSTED -> TAKEN -> HEALED | LOST -> FREE
//!           \_______ faulting thread ___/  \___ repair thread ___/  faulting thread
//! ```
//!
//! What may become of a slot is in `slot.rs`, of an entry in `life.rs`, both of which a model
//! checker runs as well.

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::Timespec;
use rustix::thread::futex;

use crate::medium::PAGE;

use self::life::{Life, Spans};
use self::slot::{Slot, State};

#[expect(unreachable_pub, reason = "public where a model checker runs it: `modelled.rs`")]
mod life;
#[expect(unreachable_pub, reason = "public where a model checker runs it: `modelled.rs`")]
mod slot;

/// The words that ship.
mod words {
    pub(super) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

/// Mappings a process can have at a time.
pub const MAPPINGS: usize = 256;
/// Threads per mapping that can wait for a repair; more of them wait for a slot first.
const PARKED: usize = 32;
/// Bad pages remembered per mapping; more are found again when they are touched again.
const KNOWN_BAD: usize = 128;
/// (Thread, page) pairs watched for loops.
const TURNS: usize = 32;
/// Times a thread may fault on one page, each time told it was healed, before it is given up.
const MOST_TURNS: u32 = 8;
/// Turns further apart than this are separate events.
const TURN_WINDOW: u64 = 1_000_000_000;
/// How often a waiting thread looks whether there still is a repair thread.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// How a fault ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The page is good again: the load may be repeated.
    Healed,
    /// It is not: the process meets the fault as it would with any mapped file.
    Lost,
}

/// A load by the program that met a bad page; its thread is waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// First byte of the bad extent, as an offset into the pool.
    pub at: u64,
    /// Bytes the platform takes for bad: a page, or 2 MiB of a large-page mapping.
    pub len: u64,
    /// The waiting thread, as the system numbers it.
    pub thread: u32,
    /// If the memory itself failed: when the thread learned of it, in nanoseconds of the system's
    /// monotonic clock, not 0. What was stored there and not written back is gone, though the page
    /// may be read.
    pub memory: Option<u64>,
}

impl Fault {
    /// For how long the thread has known by now that the memory failed, in nanoseconds; `None` if
    /// the page could only not be read in.
    #[must_use]
    pub fn memory_age_ns(&self) -> Option<u64> {
        self.memory.map(|since| crate::handler::monotonic().saturating_sub(since))
    }
}

/// How often one thread came back to one page.
#[derive(Debug)]
struct Turn {
    who: AtomicU64,
    count: AtomicU32,
    last: AtomicU64,
}

/// One mapping.
pub(crate) struct Entry {
    life: Life,
    generation: AtomicU64,
    /// Mailboxes handed out. With none, a fault is passed on at once.
    attached: AtomicU32,
    /// The thread that last waited for faults: its own faults must not wait for itself.
    repairer: AtomicU32,
    /// Counts posted faults; the repair thread sleeps on it.
    news: AtomicU32,
    parked: [Slot; PARKED],
    turns: [Turn; TURNS],
    /// Page offset + 1, or 0.
    bad: [AtomicU64; KNOWN_BAD],
}

static TABLE: [Entry; MAPPINGS] = [const { Entry::new() }; MAPPINGS];

/// Entries that were ever used: the rest of the table need not be looked at.
static USED: AtomicUsize = AtomicUsize::new(0);

fn used() -> &'static [Entry] {
    &TABLE[..USED.load(Ordering::Acquire).min(MAPPINGS)]
}

/// The mapping whose views contain `address`, and the offset in it. Async-signal-safe.
pub(crate) fn find(address: usize) -> Option<(&'static Entry, u64)> {
    used().iter().find_map(|entry| entry.offset_of(address).map(|at| (entry, at)))
}

/// Calls `each` with address and length of every mapped view. Async-signal-safe if `each` is.
pub(crate) fn for_each_mapped(each: impl Fn(usize, usize)) {
    for Spans { view, alias, mapped, .. } in used().iter().filter_map(|entry| entry.life.look()) {
        for base in [view, alias].into_iter().filter(|base| *base != 0) {
            each(base as usize, mapped as usize);
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("life", &self.life).finish_non_exhaustive()
    }
}

impl Entry {
    const fn new() -> Self {
        Self {
            life: Life {
                state: AtomicU32::new(0),
                turn: AtomicU64::new(0),
                view: AtomicU64::new(0),
                alias: AtomicU64::new(0),
                span: AtomicU64::new(0),
                mapped: AtomicU64::new(0),
            },
            generation: AtomicU64::new(0),
            attached: AtomicU32::new(0),
            repairer: AtomicU32::new(0),
            news: AtomicU32::new(0),
            parked: [const {
                Slot {
                    state: AtomicU32::new(0),
                    thread: AtomicU32::new(0),
                    at: AtomicU64::new(0),
                    len: AtomicU64::new(0),
                    memory: AtomicU64::new(0),
                }
            }; PARKED],
            turns: [const {
                Turn { who: AtomicU64::new(0), count: AtomicU32::new(0), last: AtomicU64::new(0) }
            }; TURNS],
            bad: [const { AtomicU64::new(0) }; KNOWN_BAD],
        }
    }

    /// The offset of `address` in this mapping, through either view. Async-signal-safe.
    pub(crate) fn offset_of(&self, address: usize) -> Option<u64> {
        let Spans { view, alias, span, .. } = self.life.look()?;
        let address = address as u64;
        let inside = |base: &u64| *base != 0 && address.wrapping_sub(*base) < span;
        [view, alias].into_iter().find(inside).map(|base| address - base)
    }

    /// Whether the mapping was made by this process and not by one that forked it.
    /// Async-signal-safe.
    pub(crate) fn is_of(&self, generation: u64) -> bool {
        self.generation.load(Ordering::Relaxed) == generation
    }

    /// Tells fork hooks how much of the views is mapped.
    pub(crate) fn set_mapped(&self, len: usize) {
        self.life.mapped.store(len as u64, Ordering::Relaxed);
    }

    /// Remembers the page at `at` as bad. Async-signal-safe.
    pub(crate) fn note_bad(&self, at: u64) {
        let word = (at & !(PAGE - 1)) + 1;
        if self.bad.iter().any(|slot| slot.load(Ordering::Relaxed) == word) {
            return;
        }
        for slot in &self.bad {
            if slot.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Forgets bad pages of `[at, at + len)`, and how often threads came back to them.
    pub(crate) fn note_good(&self, at: u64, len: u64) {
        for slot in &self.bad {
            let word = slot.load(Ordering::Relaxed);
            if word != 0 && (word - 1).wrapping_sub(at) < len {
                let _ = slot.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// The pages remembered as bad, in no order.
    pub(crate) fn bad_pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.bad.iter().filter_map(|slot| slot.load(Ordering::Relaxed).checked_sub(1))
    }

    /// Forgets that threads came back to a page: it was damaged anew.
    pub(crate) fn forget_turns(&self, at: u64, len: u64) {
        for turn in &self.turns {
            let page = (turn.who.load(Ordering::Relaxed) & u64::from(u32::MAX)) * PAGE;
            if page.wrapping_sub(at) < len {
                turn.count.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Waits, in the handler, until somebody has answered for the page. Async-signal-safe.
    pub(crate) fn park(&self, fault: Fault, now: impl Fn() -> u64) -> Verdict {
        let turn = self.turn(fault);
        let (seen, last) = (turn.count.load(Ordering::Relaxed), turn.last.load(Ordering::Relaxed));
        let looping = seen >= MOST_TURNS && now().saturating_sub(last) < TURN_WINDOW;
        if looping || self.repairer.load(Ordering::Relaxed) == fault.thread {
            return Verdict::Lost;
        }
        let Some((slot, mine)) = self.claim_slot() else { return Verdict::Lost };
        slot.post(mine, fault);
        self.news.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.news, futex::Flags::PRIVATE, u32::MAX >> 1);
        let verdict = self.await_answer(slot);
        if verdict == Verdict::Healed {
            let now = now();
            let near = now.saturating_sub(turn.last.load(Ordering::Relaxed)) < TURN_WINDOW;
            turn.last.store(now, Ordering::Relaxed);
            let count = turn.count.load(Ordering::Relaxed);
            turn.count.store(if near { count.saturating_add(1) } else { 1 }, Ordering::Relaxed);
        }
        verdict
    }

    /// The counter of this thread on this page, taken over from another pair if need be.
    fn turn(&self, fault: Fault) -> &Turn {
        let page = fault.at / PAGE;
        let who = (u64::from(fault.thread) << 32) | (page & u64::from(u32::MAX));
        let turn = &self.turns[(page ^ u64::from(fault.thread)) as usize % TURNS];
        if turn.who.swap(who, Ordering::Relaxed) != who {
            turn.count.store(0, Ordering::Relaxed);
        }
        turn
    }

    fn claim_slot(&self) -> Option<(&Slot, State)> {
        while self.attached.load(Ordering::Acquire) != 0 {
            let mut all = self.parked.iter();
            let won = all.find_map(|slot| slot.claim().map(|mine| (slot, mine)));
            if won.is_some() {
                return won;
            }
            // All slots are taken: wait a little for one that is answered.
            let word = &self.parked[0].state;
            let seen = word.load(Ordering::Relaxed);
            let _ = futex::wait(word, futex::Flags::PRIVATE, seen, Some(&LOOK));
        }
        None
    }

    fn await_answer(&self, slot: &Slot) -> Verdict {
        loop {
            let state = slot.look();
            let alone = || self.attached.load(Ordering::Acquire) == 0;
            match state.answer().or_else(|| alone().then_some(Verdict::Lost)) {
                None => {
                    let word = state.word();
                    let _ = futex::wait(&slot.state, futex::Flags::PRIVATE, word, Some(&LOOK));
                }
                // An answer may arrive at the same time: then look again.
                Some(verdict) if slot.leave(state) => return verdict,
                Some(_) => {}
            }
        }
    }

    /// Takes a posted fault whose extent nobody is repairing yet.
    fn take(&self) -> Option<Fault> {
        self.parked.iter().find_map(|slot| {
            let state = slot.look();
            if !state.is_posted() {
                return None;
            }
            let fault = slot.fault();
            let busy = self
                .parked
                .iter()
                .any(|other| other.look().is_taken() && other.fault().at == fault.at);
            (!busy && slot.take(state)).then_some(fault)
        })
    }

    /// Waits up to `timeout` for a fault. The caller becomes the repair thread.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<Fault> {
        self.repairer.store(this_thread(), Ordering::Relaxed);
        let end = Instant::now().checked_add(timeout);
        loop {
            let news = self.news.load(Ordering::Acquire);
            if let Some(fault) = self.take() {
                return Some(fault);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let _ = futex::wait(&self.news, futex::Flags::PRIVATE, news, left.as_ref());
        }
    }

    /// Releases every thread that waits for a page of the extent of a fault; not those whose
    /// memory failed if that was not the question: it is another one.
    pub(crate) fn answer_fault(&self, fault: Fault, verdict: Verdict) {
        self.answer_some((fault.at, fault.len), verdict, |slot| {
            fault.memory.is_some() || slot.memory.is_none()
        });
    }

    /// Releases every thread that waits for a page of the extent.
    pub(crate) fn answer(&self, at: u64, len: u64, verdict: Verdict) {
        self.answer_some((at, len), verdict, |_| true);
    }

    fn answer_some(&self, (at, len): (u64, u64), verdict: Verdict, which: impl Fn(Fault) -> bool) {
        for slot in &self.parked {
            let (state, fault) = (slot.look(), slot.fault());
            let waits = state.is_posted() || state.is_taken();
            if !waits || fault.at.wrapping_sub(at) >= len || !which(fault) {
                continue;
            }
            if slot.give(state, verdict) {
                let _ = futex::wake(&slot.state, futex::Flags::PRIVATE, u32::MAX >> 1);
            }
        }
    }

    /// Counts one more repair thread.
    pub(crate) fn attach(&self) {
        self.attached.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts one less; with the last one gone, nobody waits any more.
    pub(crate) fn detach(&self) {
        if self.attached.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.repairer.store(0, Ordering::Relaxed);
            self.answer(0, u64::MAX, Verdict::Lost);
        }
    }
}

/// The calling thread, as the system numbers it. Async-signal-safe.
pub(crate) fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// The right to one entry of the table; gives it back when dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    entry: &'static Entry,
}

impl Registration {
    /// Takes a free entry and shows it to the handler; `None` if all are taken.
    pub(crate) fn claim(
        view: usize,
        alias: usize,
        span: usize,
        mapped: usize,
        generation: u64,
    ) -> Option<Self> {
        let (index, entry) = TABLE.iter().enumerate().find(|(_, entry)| entry.life.take())?;
        USED.fetch_max(index + 1, Ordering::AcqRel);
        entry.generation.store(generation, Ordering::Relaxed);
        entry.attached.store(0, Ordering::Relaxed);
        entry.repairer.store(0, Ordering::Relaxed);
        for slot in &entry.bad {
            slot.store(0, Ordering::Relaxed);
        }
        for turn in &entry.turns {
            turn.count.store(0, Ordering::Relaxed);
        }
        let [view, alias, span, mapped] = [view, alias, span, mapped].map(|it| it as u64);
        entry.life.show(Spans { view, alias, span, mapped });
        Some(Self { entry })
    }

    /// The entry.
    #[inline(always)]
    pub(crate) fn entry(&self) -> &'static Entry {
        self.entry
    }

    /// Hides the mapping from the handler, before its addresses are given back.
    pub(crate) fn retire(&self) {
        self.entry.life.retire();
        self.entry.answer(0, u64::MAX, Verdict::Lost);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.entry.life.give_back();
    }
}

#[cfg(test)]
mod tests;
