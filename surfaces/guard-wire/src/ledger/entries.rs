//! What the list says of files, wherever its words lie: which number is whose, and how many writes
//! were announced.
//!
//! | supervisor | programs |
//! |---|---|
//! | enters: the file's numbers, then *live* | 1 the turn |
//! | lets go: 1 not *live* | 2 *live*, and the file's numbers |
//! | 2 the next turn | 3 the turn is the same: that file had the number, in that turn |
//! | 3 counts from 0, which bear it | 4 counts a write before it begins and when it is over |
//!
//! In one turn a number is that of one file at the most, and a count bears the turn of whose writes
//! it is: the end of a write never counts for another file than its beginning.
//!
//! This file is compiled twice in a build for the model checker: as it ships, and on its words.

use super::words::{AtomicU32, AtomicU64, Ordering};

/// What an entry is: of nobody, of a guarded file, of one that is about to be let go of.
const NONE: u32 = 0;
const LIVE: u32 = 1;
const LEAVING: u32 = 2;

/// Bits of a count; those above are the low ones of its turn.
const COUNT: u32 = 48;

/// A count of zero, of a turn.
pub(super) const fn none_of(turn: u64) -> u64 {
    turn << COUNT
}

/// One more, if the count is of that turn.
pub(super) fn count(counter: &AtomicU64, turn: u64) {
    let mut found = counter.load(Ordering::SeqCst);
    while found >> COUNT == none_of(turn) >> COUNT {
        let next = none_of(turn) | found.wrapping_add(1) & !none_of(u64::MAX);
        match counter.compare_exchange_weak(found, next, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return,
            Err(now) => found = now,
        }
    }
}

/// A file's place in the list.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Entry {
    /// Whether the rest is valid.
    pub(super) live: AtomicU32,
    /// How many files had this number, the present one or the next included.
    pub(super) turn: AtomicU64,
    pub(super) device: AtomicU64,
    pub(super) inode: AtomicU64,
    /// Writes announced, and those that are over: counts that bear the turn.
    pub(super) began: AtomicU64,
    pub(super) ended: AtomicU64,
}

impl Entry {
    /// A file has it.
    pub(super) fn enter(&self, device: u64, inode: u64) {
        self.name(device, inode);
        self.show();
    }

    /// The first step of that: which file.
    pub(super) fn name(&self, device: u64, inode: u64) {
        self.device.store(device, Ordering::SeqCst);
        self.inode.store(inode, Ordering::SeqCst);
    }

    /// The second; or the file stays, as if nothing had been.
    pub(super) fn show(&self) {
        self.live.store(LIVE, Ordering::SeqCst);
    }

    /// The file is about to be let go of.
    pub(super) fn leaving(&self) {
        self.live.store(LEAVING, Ordering::SeqCst);
    }

    /// The file has it no more.
    pub(super) fn leave(&self) {
        // Who reads it meanwhile finds another turn at the end than at the beginning.
        self.hide();
        let turn = self.next_turn();
        self.count_from(turn);
    }

    /// The first step of that.
    pub(super) fn hide(&self) {
        self.live.store(NONE, Ordering::SeqCst);
    }

    /// The second: from now on it is that of the next, whose turn is the answer.
    pub(super) fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The third: nothing was written to that one yet.
    pub(super) fn count_from(&self, turn: u64) {
        // Exchanged, as a store in one order is: who counts at the same time does so before it, or
        // finds another turn.
        self.ended.swap(none_of(turn), Ordering::SeqCst);
        self.began.swap(none_of(turn), Ordering::SeqCst);
    }

    pub(super) fn turn(&self) -> u64 {
        self.turn.load(Ordering::SeqCst)
    }

    pub(super) fn is_there(&self) -> bool {
        self.live.load(Ordering::SeqCst) != NONE
    }

    pub(super) fn is_live(&self) -> bool {
        self.live.load(Ordering::SeqCst) == LIVE
    }

    /// Whether it is that of a file, which holds of the turn only that it has before and after.
    pub(super) fn is_of(&self, device: u64, inode: u64) -> bool {
        self.is_there()
            && self.inode.load(Ordering::SeqCst) == inode
            && self.device.load(Ordering::SeqCst) == device
    }

    /// The turn in which it is that of a file.
    pub(super) fn find(&self, device: u64, inode: u64) -> Option<u64> {
        let turn = self.turn();
        (self.is_of(device, inode) && self.turn() == turn).then_some(turn)
    }

    /// Whether the file of a turn is to stay.
    pub(super) fn stays(&self, turn: u64) -> bool {
        // In this order: who sees that of a later turn to be live sees that turn.
        self.is_live() && self.turn() == turn
    }

    /// A write to the file of a turn is about to begin.
    pub(super) fn begin(&self, turn: u64) {
        count(&self.began, turn);
    }

    /// It is over.
    pub(super) fn end(&self, turn: u64) {
        count(&self.ended, turn);
    }

    /// Writes announced so far.
    pub(super) fn began(&self) -> u64 {
        self.began.load(Ordering::SeqCst) & !none_of(u64::MAX)
    }

    /// Those that are over.
    pub(super) fn ended(&self) -> u64 {
        self.ended.load(Ordering::SeqCst) & !none_of(u64::MAX)
    }

    /// Both.
    pub(super) fn announced(&self) -> (u64, u64) {
        // The second first: what is over has begun.
        let ended = self.ended();
        (self.began(), ended)
    }
}
