//! Calls that are left by a jump: a handler of a signal that comes while one is under way goes on
//! elsewhere (`siglongjmp`), and nobody comes back to say that it is over.
//!
//! What is under way would count for ever, and excuse what nobody announces. So it does not lie on
//! the stack of its thread but here, with the place on the stack at which it began. A write of the
//! same thread that begins there, or farther out, shows that nobody comes back: it is over then.
//! What it was to change counts as changed.
//!
//! | stack of the earlier call | of the later one | |
//! |---|---|---|
//! | any | the same, deeper | a handler on its way: both go on |
//! | any | the same, as deep or less | the earlier one was left |
//! | the one for signals | another | the earlier one was left |
//! | another | the one for signals | a handler on its way: both go on |
//!
//! A handler that jumps out of the few instructions in which a call takes its entry, or empties it,
//! leaves that taken, with nothing in it. It is not given back: a stack may be a coroutine's, so
//! that what looks left goes on after all. Who comes back to a call finds its turn gone, and says
//! so; who came back to an entry in the middle of taking it would write into another thread's. What
//! it costs is the entry: threads that find none free announce as ever, and a write of theirs that
//! is left counts until they end.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::files::UnderWay;
use crate::state;

/// Threads share rows; each row has room for a few calls.
const ROWS: usize = 64;
const ROW: usize = 4;

/// How much less of the stack a call may have taken that begins as deep: not all hooks take the
/// same. A handler leaves more than that to what it interrupts.
const SLACK: usize = 256;
/// Who is farther out than that stands on another stack.
const FAR: usize = 1 << 20;

/// A call under way. Only the thread that it belongs to uses it.
#[repr(align(64))]
pub(crate) struct Entry {
    /// 0 is nobody.
    thread: AtomicUsize,
    /// Odd while there is something.
    turn: AtomicU64,
    /// Where on the stack it began.
    stack: AtomicUsize,
    what: UnsafeCell<MaybeUninit<UnderWay>>,
}

// SAFETY: what is in it is touched by the thread only that took it, which `thread` says.
unsafe impl Sync for Entry {}

static ENTRIES: [[Entry; ROW]; ROWS] = [const {
    [const {
        Entry {
            thread: AtomicUsize::new(0),
            turn: AtomicU64::new(0),
            stack: AtomicUsize::new(0),
            what: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }; ROW]
}; ROWS];

fn row(thread: usize) -> &'static [Entry; ROW] {
    // Threads lie a multiple of pages apart.
    &ENTRIES[(thread >> 12).wrapping_mul(0x9e37_79b9) >> 8 & (ROWS - 1)]
}

/// How deep the stack is that the caller stands on.
#[inline(always)]
pub(crate) fn stack() -> usize {
    let at: usize;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, rsp", out(reg) at, options(nomem, nostack, preserves_flags));
    }
    at
}

impl Entry {
    /// Takes out what is there if it is that of a turn.
    fn take(&self, turn: u64) -> Option<UnderWay> {
        let now = self.turn.compare_exchange(turn, turn + 1, Ordering::AcqRel, Ordering::Relaxed);
        // SAFETY: the turn was odd, so it is there; it is another now, so it is taken out once.
        let what = now.is_ok().then(|| unsafe { (*self.what.get()).assume_init_read() });
        if what.is_some() {
            self.thread.store(0, Ordering::Release);
        }
        what
    }
}

/// A call under way, until it is dropped.
pub(crate) enum Kept {
    Entry(&'static Entry, u64),
    /// There was no room: nobody would notice that it is left.
    Here(UnderWay),
}

impl Kept {
    /// `began` is where its thread stood when it began: what is called from there on may use more
    /// of the stack than a handler that interrupts it later.
    #[inline(never)]
    pub(crate) fn new(what: UnderWay, began: usize) -> Self {
        let thread = state::this_thread();
        let free = |entry: &&Entry| {
            entry.thread.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let Some(entry) = row(thread).iter().find(free) else { return Self::Here(what) };
        entry.stack.store(began, Ordering::Relaxed);
        // SAFETY: the entry is this thread's, and an even turn says that nothing is there.
        unsafe { (*entry.what.get()).write(what) };
        // A handler that comes from now on finds it.
        Self::Entry(entry, entry.turn.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// What is under way, unless it was taken for left.
    pub(crate) fn get(&mut self) -> Option<&mut UnderWay> {
        match self {
            // SAFETY: it is there as long as the turn is the same, and this thread's alone.
            Self::Entry(entry, turn) if entry.turn.load(Ordering::Acquire) == *turn => unsafe {
                Some((*entry.what.get()).assume_init_mut())
            },
            Self::Here(what) => Some(what),
            Self::Entry(..) => None,
        }
    }

    /// It is over; whether it was still there.
    fn end(&mut self) -> bool {
        match self {
            Self::Entry(entry, turn) => entry.take(*turn).is_some(),
            Self::Here(_) => true,
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Somebody has come back to what was taken for left: what it changed since then was not
        // announced any more.
        if !self.end() && state::on() {
            state::ledger().lose();
        }
    }
}

/// This thread is about to write from a place on its stack: what it left before is over.
pub(crate) fn settle(now: usize) {
    let thread = state::this_thread();
    for entry in row(thread) {
        if entry.thread.load(Ordering::Acquire) == thread {
            settle_one(entry, now);
        }
    }
}

#[cold]
fn settle_one(entry: &Entry, now: usize) {
    let turn = entry.turn.load(Ordering::Acquire);
    // An even one says that it is being taken, or was when its thread left.
    let began = entry.stack.load(Ordering::Relaxed);
    if turn.is_multiple_of(2) || !is_left(began, now, for_signals()) {
        return;
    }
    // One that had this number before is spoken for by whoever finds it dead.
    if let Some(what) = entry.take(turn) {
        what.end_if_own();
    }
}

/// The stack for signals, if there is one, and whether this thread stands on it.
fn for_signals() -> (core::ops::Range<usize>, bool) {
    let mut found = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: writes what is set; all zeros is a valid value.
    let found = unsafe {
        libc::sigaltstack(core::ptr::null(), found.as_mut_ptr());
        found.assume_init()
    };
    let none = found.ss_flags & libc::SS_DISABLE != 0;
    let start = found.ss_sp as usize;
    let end = if none { start } else { start.saturating_add(found.ss_size) };
    (start..end, found.ss_flags & libc::SS_ONSTACK != 0)
}

/// Whether a call that began at one place was left, seen from one that begins at another.
fn is_left(began: usize, now: usize, (signals, on_it): (core::ops::Range<usize>, bool)) -> bool {
    match (signals.contains(&began), on_it) {
        (true, false) => true,
        (false, true) => false,
        _ => now + SLACK > began && now.saturating_sub(began) < FAR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_began_deeper_on_the_same_stack_was_left() {
        let (none, there) = (0..0, 0x1000..0x9000);
        let plain = |began, now| is_left(began, now, (none.clone(), false));
        assert!(plain(0x7_f000, 0x7_f800) && plain(0x7_f000, 0x7_f000 - SLACK + 1));
        assert!(!plain(0x7_f000, 0x7_e000), "a handler");
        assert!(!plain(0x7_f000, 0x7_f000 + FAR), "another stack");
        let (off, on) = ((there.clone(), false), (there, true));
        assert!(is_left(0x5000, 0x7_f000, off.clone()) && is_left(0x7_f000, 0x8_0000, off));
        assert!(!is_left(0x7_f000, 0x8000, on.clone()) && !is_left(0xa000, 0x8fff, on.clone()));
        assert!(is_left(0x5000, 0x6000, on.clone()) && !is_left(0x6000, 0x5000, on));
    }

    #[test]
    fn what_is_kept_is_taken_out_once() {
        let nothing = || Kept::new(UnderWay::nothing(), stack());
        let mut kept = nothing();
        assert!(kept.get().is_some());
        settle(stack().saturating_sub(16 << 10));
        assert!(kept.get().is_some(), "a handler writes");
        settle(stack());
        assert!(kept.get().is_none(), "it was left");
        assert!(!kept.end(), "who comes back to it is noticed");
        core::mem::forget(kept);
        let many: Vec<Kept> = (0..ROW + 1).map(|_| nothing()).collect();
        assert!(many.iter().any(|kept| matches!(kept, Kept::Here(_))), "no room for more");
        for mut kept in many {
            assert!(kept.end());
            core::mem::forget(kept);
        }
        assert!(matches!(nothing(), Kept::Entry(..)));
    }

    /// Somebody may come back to it, though it looks left.
    #[test]
    fn an_entry_that_is_being_taken_is_left_alone() {
        // On a thread of its own, which has a row of its own but for chance.
        let taken = std::thread::spawn(|| {
            let (thread, row) = (state::this_thread(), row(state::this_thread()));
            let free = |entry: &&Entry| {
                entry
                    .thread
                    .compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            };
            let Some(entry) = row.iter().find(free) else { return };
            let turn = entry.turn.load(Ordering::Acquire);
            entry.stack.store(stack() - (16 << 10), Ordering::Relaxed);
            settle(stack());
            let now = (entry.thread.load(Ordering::Acquire), entry.turn.load(Ordering::Acquire));
            assert_eq!((now, turn % 2), ((thread, turn), 0));
            // Others do without it.
            let mut kept = Kept::new(UnderWay::nothing(), stack());
            assert!(kept.get().is_some() && kept.end());
            core::mem::forget(kept);
            entry.thread.store(0, Ordering::Release);
        });
        taken.join().unwrap();
    }

    /// What is called to announce a read takes more of the stack than a handler leaves to it.
    #[test]
    fn a_call_began_where_its_caller_stands() {
        #[inline(never)]
        fn deep(began: usize) -> Kept {
            let room = [0_u8; 4096];
            core::hint::black_box(&room);
            let kept = Kept::new(UnderWay::nothing(), began);
            core::hint::black_box(&room);
            kept
        }
        let began = stack();
        let mut kept = deep(began);
        settle(began - 1500);
        assert!(kept.get().is_some(), "a handler writes");
    }
}
