//! Cores of this crate that ship on plain words, in memory that is static or shared with other
//! processes, where no word of a model checker can lie: the same source, on its words.

/// The words of the model checker.
mod words {
    pub(super) use holdfast_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
    pub(super) use holdfast_sync::thread::yield_now;
}

use core::ops::Range;

use crate::medium::PAGE;
use crate::registry::{Fault, Verdict};
use crate::track::bits::{PageBits, words as parts};

#[path = "registry/life.rs"]
pub mod life;
#[path = "track/first_store/seats.rs"]
pub mod seats;
#[path = "track/board/sheet.rs"]
mod sheet;
#[path = "registry/slot.rs"]
pub mod slot;

/// An entry that nobody has.
#[must_use]
pub fn free_life() -> life::Life {
    use words::{AtomicU32, AtomicU64};
    let word = || AtomicU64::new(0);
    let (turn, view, alias, span, mapped) = (word(), word(), word(), word(), word());
    life::Life { state: AtomicU32::new(0), turn, view, alias, span, mapped }
}

/// A free place.
#[must_use]
pub fn free_slot() -> slot::Slot {
    use words::{AtomicU32, AtomicU64};
    slot::Slot {
        state: AtomicU32::new(0),
        thread: AtomicU32::new(0),
        at: AtomicU64::new(0),
        len: AtomicU64::new(0),
        memory: AtomicU64::new(0),
    }
}

/// A seat that nobody has.
#[must_use]
pub fn free_seat<T>() -> seats::Seat<T> {
    use words::{AtomicPtr, AtomicU32};
    seats::Seat { source: AtomicPtr::new(core::ptr::null_mut()), inside: AtomicU32::new(0) }
}

/// A board of a file of one or two pages and of one slot.
#[derive(Debug)]
pub struct SmallBoard {
    slots: [sheet::Slot; 1],
    bits: [words::AtomicU64; 1],
    unslotted: words::AtomicU64,
}

/// A write that was announced on it.
#[derive(Debug, Clone, Copy)]
pub struct Announced<'a>(Option<&'a sheet::Slot>, u64);

impl Default for SmallBoard {
    fn default() -> Self {
        use words::{AtomicU32, AtomicU64};
        let word = || AtomicU64::new(0);
        let owner = AtomicU32::new(0);
        let slot = sheet::Slot { owner, turn: word(), at: word(), end: word() };
        Self { slots: [slot], bits: [word()], unslotted: word() }
    }
}

impl SmallBoard {
    const PAGES: Range<u64> = 0..2;

    fn sheet(&self) -> sheet::Sheet<'_> {
        let Self { slots, bits, unslotted } = self;
        sheet::Sheet { slots, words: bits, unslotted, pages: Self::PAGES.end }
    }

    /// Thread `me` is about to write to a page.
    pub fn open(&self, me: u32, page: u64) -> Announced<'_> {
        Announced(self.sheet().open(me, page * PAGE, (page + 1) * PAGE), page)
    }

    /// It has.
    pub fn close(&self, write: Announced<'_>) {
        self.sheet().close(write.0, write.1 * PAGE, (write.1 + 1) * PAGE);
    }

    /// The same in the wrong order: not under way any more, and then done.
    pub fn close_first(&self, write: Announced<'_>) {
        self.sheet().leave(write.0);
        self.sheet().mark(write.1 * PAGE, (write.1 + 1) * PAGE);
    }

    /// Whether any write is under way.
    pub fn is_busy(&self) -> bool {
        self.sheet().is_busy()
    }

    /// Thread `dead` is: its write counts as done. Answers whether there was one.
    pub fn reap(&self, dead: u32) -> bool {
        self.sheet().reap(&mut |owner| owner == dead) > 0
    }

    /// Which pages it tells of; what is done is forgotten if `take`.
    pub fn told(&self, take: bool) -> [bool; 2] {
        let mut told = PageBits::new();
        self.sheet().collect(Self::PAGES, take, &mut told);
        [0, 1].map(|page| told.all(page..page + 1))
    }

    /// The same in the wrong order: what is done, and then what is under way.
    pub fn told_late(&self, take: bool) -> [bool; 2] {
        let mut told = PageBits::new();
        self.sheet().done(Self::PAGES, take, &mut told);
        self.sheet().under_way(Self::PAGES, &mut told);
        [0, 1].map(|page| told.all(page..page + 1))
    }
}
