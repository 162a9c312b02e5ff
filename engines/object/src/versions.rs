//! Version words: which commit last changed an object, and who holds it.
//!
//! One word serves all objects whose address hashes to it; a collision costs a retry, never
//! correctness. A word holds `version << 8 | pins << 1 | locked`. Readers check it before and
//! after they copy; committers lock it from before their number is drawn until their bytes are
//! stored; guards pin it so that no committer stores under a borrowed view.

use holdfast_sync::atomic::{AtomicU64, Ordering, fence};
use holdfast_sync::hint::spin_loop;

use holdfast_pmem::{Medium, Table};
use holdfast_sync::patience;

const LOCKED: u64 = 1;
const PIN: u64 = 2;
const PINS: u64 = 0xfe;
const VERSION_SHIFT: u32 = 8;
/// Rounds a reader waits for a committer before it gives up the transaction: a commit holds its
/// words for less than a microsecond unless its thread was descheduled.
const SPINS: u32 = patience(2_000);
/// The same where a committer holds its words until a disk has written its record.
const SPINS_DISK: u32 = patience(100);

/// Version words by default, as a power of two: they stay in the cache.
const BITS: u32 = 16;
/// The same where they are held until a disk has written: two that collide are dear.
const BITS_DISK: u32 = 20;

/// Rounds somebody who wants to pin a word waits for one of its many pins to end: some tenth of a
/// second. Their holders may be who waits.
const PATIENCE: u32 = patience(1_000);

/// What became of an attempt to pin a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pinned {
    /// It is pinned, at this version.
    At(Version),
    /// A committer holds it, longer than a reader waits.
    Held,
    /// It has as many pins as it can have, and none of them ended.
    Full,
}

/// A version as read: compare to see whether anything changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version(u64);

impl Version {
    /// Number of the commit that last changed the word's objects.
    pub(crate) fn number(self) -> u64 {
        self.0 >> VERSION_SHIFT
    }
}

/// The table of version words of a pool.
#[derive(Debug)]
pub(crate) struct Versions {
    words: Table<AtomicU64>,
    mask: u64,
    /// Rounds that [`read`](Self::read) waits.
    patience: u32,
}

impl Versions {
    /// A table of `1 << bits` words (0 chooses). `disk`: commits wait for one while they hold
    /// words.
    pub(crate) fn new(bits: u32, disk: bool) -> Self {
        let (chosen, patience) = if disk { (BITS_DISK, SPINS_DISK) } else { (BITS, SPINS) };
        let bits = if bits == 0 { chosen } else { bits.clamp(4, 26) };
        Self { words: Table::new(1 << bits), mask: (1 << bits) - 1, patience }
    }

    /// Index of the word of the object at `object`. Neighbours get neighbouring words, so that a
    /// scan walks the table as it walks the pool.
    #[inline]
    pub(crate) fn index(&self, object: u64) -> u32 {
        let line = object >> 6;
        ((line ^ (line >> 18)) & self.mask) as u32
    }

    #[inline]
    fn word(&self, index: u32) -> &AtomicU64 {
        &self.words[index as usize]
    }

    /// Version now, or `None` if a committer holds the word longer than a reader waits.
    #[inline]
    pub(crate) fn read(&self, index: u32) -> Option<Version> {
        let word = self.word(index);
        let now = word.load(Ordering::Acquire);
        if now & LOCKED != 0 {
            return self.read_later(index, self.patience);
        }
        Some(Version(now & !PINS))
    }

    /// Version as soon as no committer holds the word, or `None` after so many rounds.
    #[cold]
    fn read_later(&self, index: u32, rounds: u32) -> Option<Version> {
        let word = self.word(index);
        let mut now = word.load(Ordering::Acquire);
        let mut spins = 0;
        while now & LOCKED != 0 {
            if spins == rounds {
                return None;
            }
            spins += 1;
            if spins % 256 == 0 {
                holdfast_sync::thread::yield_now();
            }
            spin_loop();
            now = word.load(Ordering::Acquire);
        }
        Some(Version(now & !PINS))
    }

    /// Version, of a word whose committer is not waiting for a disk any more.
    pub(crate) fn read_soon(&self, index: u32) -> Option<Version> {
        self.read_later(index, SPINS)
    }

    /// Version now, if no committer holds the word.
    #[inline]
    pub(crate) fn now(&self, index: u32) -> Option<Version> {
        let now = self.word(index).load(Ordering::Acquire);
        (now & LOCKED == 0).then_some(Version(now & !PINS))
    }

    /// Whether the word still has `version`, for bytes read since. Pins do not count.
    ///
    /// The load is in one order with the locks of [`try_lock`](Self::try_lock): of two commits
    /// that each lock what the other one validates, one sees the other's lock.
    #[inline]
    pub(crate) fn unchanged(&self, index: u32, version: Version) -> bool {
        fence(Ordering::Acquire);
        self.word(index).load(Ordering::SeqCst) & !PINS == version.0
    }

    /// Locks the word if it has `version`, nobody holds it and nobody pins it.
    #[inline]
    pub(crate) fn try_lock<M: Medium>(&self, m: &M, index: u32, version: Version) -> bool {
        m.locked();
        let (next, word) = (version.0 | LOCKED, self.word(index));
        let locked =
            word.compare_exchange(version.0, next, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        // Who sees a byte that is stored from here on sees the lock as well. No instruction on x86.
        fence(Ordering::Release);
        locked
    }

    /// Releases a word this thread locked, as changed by commit `number`.
    #[inline]
    pub(crate) fn release(&self, index: u32, number: u64) {
        self.word(index).store(number << VERSION_SHIFT, Ordering::Release);
    }

    /// Releases a word this thread locked, unchanged.
    #[inline]
    pub(crate) fn unlock(&self, index: u32, version: Version) {
        self.word(index).store(version.0, Ordering::Release);
    }

    /// Keeps committers from storing to the word's objects. Waits a little where that cannot be.
    pub(crate) fn pin(&self, index: u32) -> Pinned {
        for _ in 0..PATIENCE {
            match self.pin_now(index) {
                Pinned::Full => holdfast_sync::thread::yield_now(),
                pinned => return pinned,
            }
        }
        Pinned::Full
    }

    fn pin_now(&self, index: u32) -> Pinned {
        let word = self.word(index);
        let mut why = Pinned::Held;
        for _ in 0..SPINS {
            let now = word.load(Ordering::Acquire);
            if now & LOCKED != 0 || now & PINS == PINS {
                why = if now & LOCKED != 0 { Pinned::Held } else { Pinned::Full };
                spin_loop();
                continue;
            }
            if word
                .compare_exchange_weak(now, now + PIN, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return Pinned::At(Version(now & !PINS));
            }
        }
        why
    }

    /// Ends a pin.
    pub(crate) fn unpin(&self, index: u32) {
        self.word(index).fetch_sub(PIN, Ordering::AcqRel);
    }
}
