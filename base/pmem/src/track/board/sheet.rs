//! What a board says and how it is read, wherever its words lie.
//!
//! | writer | reader |
//! |---|---|
//! | 1 its range, then its turn is odd: under way | 1 slots: what is under way |
//! | 2 writes | 2 **fence** |
//! | 3 sets the bits of its pages | 3 bits: what is done |
//! | 4 its turn is even, its slot is free | |
//!
//! This file is compiled twice in a build for the model checker: as it ships, and on its words.

use core::ops::Range;

use super::words::{AtomicU32, AtomicU64, Ordering, fence};
use super::{PAGE, PageBits, parts};

/// A slot that changes so often under the reader's eyes is taken to be any range.
const LOOKS: u32 = 64;

/// One write under way. The range counts while `turn` is odd.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Slot {
    /// The thread it belongs to; 0 if it is free.
    pub(super) owner: AtomicU32,
    pub(super) turn: AtomicU64,
    pub(super) at: AtomicU64,
    pub(super) end: AtomicU64,
}

/// The words of a board.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sheet<'a> {
    pub(super) slots: &'a [Slot],
    /// A bit for each page.
    pub(super) words: &'a [AtomicU64],
    /// Writes under way that found no slot: while there are any, everything counts as stored to.
    pub(super) unslotted: &'a AtomicU64,
    pub(super) pages: u64,
}

impl<'a> Sheet<'a> {
    /// Sets the bits of the pages that the bytes `[at, end)` touch, cut to the file.
    pub(crate) fn mark(self, at: u64, end: u64) {
        for (word, mask) in parts(self.clip(at, end)) {
            self.words[word].fetch_or(mask, Ordering::AcqRel);
        }
    }

    fn clip(self, at: u64, end: u64) -> Range<u64> {
        let stop = end.div_ceil(PAGE).min(self.pages);
        let first = (at / PAGE).min(stop);
        if at < end { first..stop } else { first..first }
    }

    /// A write by thread `me` is about to begin; answers its slot, if one was free.
    pub(crate) fn open(self, me: u32, at: u64, end: u64) -> Option<&'a Slot> {
        let free = self.slots.iter().find(|slot| {
            slot.owner.load(Ordering::Relaxed) == 0
                && slot.owner.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        match free {
            Some(slot) => {
                // Who reads either while the turn seems to be that of the write before finds that
                // it is not when it reads the turn again: its end was told before.
                slot.at.store(at, Ordering::Release);
                slot.end.store(end, Ordering::Release);
                // Published before the write begins: a locked instruction, in order with it.
                slot.turn.fetch_add(1, Ordering::SeqCst);
            }
            None => {
                self.unslotted.fetch_add(1, Ordering::SeqCst);
            }
        }
        free
    }

    /// It is done.
    pub(crate) fn close(self, slot: Option<&Slot>, at: u64, end: u64) {
        self.mark(at, end);
        self.leave(slot);
    }

    /// The last step of that.
    pub(crate) fn leave(self, slot: Option<&Slot>) {
        match slot {
            Some(slot) => {
                slot.turn.fetch_add(1, Ordering::SeqCst);
                slot.owner.store(0, Ordering::Release);
            }
            None => {
                self.unslotted.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    /// Whether any slot is taken, or anybody is without one.
    pub(crate) fn is_busy(self) -> bool {
        let taken = |slot: &Slot| slot.owner.load(Ordering::SeqCst) != 0;
        self.slots.iter().any(taken) || self.unslotted.load(Ordering::SeqCst) != 0
    }

    /// Closes the slots of threads that are dead, as they would have. Answers how many there were.
    pub(crate) fn reap(self, dead: &mut dyn FnMut(u32) -> bool) -> usize {
        let mut found = 0;
        for slot in self.slots {
            let owner = slot.owner.load(Ordering::Acquire);
            if owner == 0 || !dead(owner) {
                continue;
            }
            found += 1;
            if slot.turn.load(Ordering::Acquire) % 2 == 1 {
                let (at, end) = (slot.at.load(Ordering::Relaxed), slot.end.load(Ordering::Relaxed));
                self.close(Some(slot), at, end);
            } else {
                // It died before it began.
                slot.owner.store(0, Ordering::Release);
            }
        }
        found
    }

    /// Adds to `told` the pages under way, then those that are done, which are forgotten if `take`.
    pub(crate) fn collect(self, pages: Range<u64>, take: bool, told: &mut PageBits) {
        self.under_way(pages.clone(), told);
        fence(Ordering::SeqCst);
        self.done(pages, take, told);
    }

    /// The first half of that.
    pub(crate) fn under_way(self, pages: Range<u64>, told: &mut PageBits) {
        if self.unslotted.load(Ordering::SeqCst) != 0 {
            told.set(pages.clone());
        }
        for slot in self.slots {
            if let Some((at, end)) = slot.range() {
                let under_way = self.clip(at, end);
                let start = under_way.start.clamp(pages.start, pages.end);
                told.set(start..under_way.end.clamp(start, pages.end));
            }
        }
    }

    /// The second half.
    pub(crate) fn done(self, pages: Range<u64>, take: bool, told: &mut PageBits) {
        for (word, mask) in parts(pages) {
            let found = if take {
                self.words[word].fetch_and(!mask, Ordering::AcqRel)
            } else {
                self.words[word].load(Ordering::Acquire)
            };
            told.join_word(word, found & mask);
        }
    }
}

impl Slot {
    /// The range of the write under way, if there is one.
    fn range(&self) -> Option<(u64, u64)> {
        for _ in 0..LOOKS {
            let before = self.turn.load(Ordering::SeqCst);
            if before.is_multiple_of(2) {
                return None;
            }
            let range = (self.at.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if self.turn.load(Ordering::Relaxed) == before {
                return Some(range);
            }
        }
        Some((0, u64::MAX))
    }
}
