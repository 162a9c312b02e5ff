//! What persistence costs: stores, flushes, drains, by thread.

use core::cell::Cell;
use core::ops::AddAssign;
use holdfast_sync::unmodelled::{AtomicU32, Ordering};

/// Counts of one thread, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls of `put`, `xor` and `zero` (and on Dax and Shm, `append`) that stored something.
    pub stores: u64,
    /// Bytes they stored.
    pub stored_bytes: u64,
    /// Lines flushed.
    pub lines_flushed: u64,
    /// Lines flushed though nothing in them differed from the medium, or though this thread had
    /// flushed them since their newest store.
    pub redundant_flushes: u64,
    /// Calls of `drain` (on Dax and Shm also of `append` and `sync`) that were in force.
    pub drains: u64,
    /// Drains with nothing of this thread's outstanding. On File every drain is one.
    pub redundant_drains: u64,
    /// Locked instructions announced while this thread had flushes outstanding: each acts as a
    /// drain and is to be counted as one.
    pub hidden_drains: u64,
    /// Appends through a file that were in force.
    pub appends: u64,
    /// Syncs of a file that were in force.
    pub syncs: u64,
}

impl Counters {
    /// Drains paid for, in the open or hidden behind a locked instruction.
    #[must_use]
    pub const fn all_drains(&self) -> u64 {
        self.drains + self.hidden_drains
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.stores += other.stores;
        self.stored_bytes += other.stored_bytes;
        self.lines_flushed += other.lines_flushed;
        self.redundant_flushes += other.redundant_flushes;
        self.drains += other.drains;
        self.redundant_drains += other.redundant_drains;
        self.hidden_drains += other.hidden_drains;
        self.appends += other.appends;
        self.syncs += other.syncs;
    }
}

/// What one thread has flushed, and what it has cost so far.
#[derive(Debug, Default)]
pub(crate) struct Thread {
    /// Lines flushed and not drained, each with the number of the newest store the flush saw.
    /// In order of flushing.
    pub(crate) flushed: Vec<(u64, u64)>,
    /// Whether anything was flushed since the last drain, open or hidden.
    pub(crate) outstanding: bool,
    pub(crate) counters: Counters,
}

static NEXT_SLOT: AtomicU32 = AtomicU32::new(1);

holdfast_sync::thread_local! {
    static SLOT: Cell<u32> = const { Cell::new(0) };
}

/// A number of the calling thread, never 0, the same in all media, never used again.
pub(crate) fn slot() -> u32 {
    SLOT.with(|slot| {
        if slot.get() == 0 {
            slot.set(NEXT_SLOT.fetch_add(1, Ordering::Relaxed));
        }
        slot.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_its_own_slot() {
        let mine = slot();
        assert_eq!(mine, slot());
        let other = std::thread::spawn(slot).join().expect("the thread only reads its slot");
        assert_ne!(mine, other);
        assert_ne!(other, 0);
    }
}
