//! One spin lock per page column: who holds it sees a column whose rows and parity agree.
//!
//! A commit holds all its columns from before its first data store until after its last parity
//! store; a repair or a scrub holds one. The locks live in DRAM only: after a crash nobody holds
//! anything, and recovery makes the columns agree again.
//!
//! # Cost
//!
//! A lock is one 32-bit word. Sixteen share a cache line, but neighbouring *columns* never do
//! where the row has more than sixteen pages: the words are stored transposed, so that two threads
//! that work side by side do not pass one line back and forth. Taking a lock is one locked
//! instruction, announced with [`Medium::locked`] because it would act as a drain; releasing it is
//! a plain store.
//!
//! # Deadlock
//!
//! Many locks are always taken in ascending order of [`ColumnId`]; a holder of one takes no other.

use core::fmt;
use holdfast_sync::OnceLock;
use holdfast_sync::atomic::{AtomicU32, Ordering};

use holdfast_layout::format::REGIONS_MAX;
use holdfast_pmem::{Medium, PAGE};
use holdfast_sync::patience;

use crate::zone::Zone;

/// Lock words in a cache line.
const WORDS_PER_LINE: u32 = 16;
/// Tries before a waiting thread gives up its time slice: about the length of a column repair.
const SPINS: u32 = patience(256);

const FREE: u32 = 0;
const HELD: u32 = 1;

/// Names one page column of one zone. Ascending ids are the order in which locks are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(u64);

impl ColumnId {
    /// The page column that byte column `col` of zone `zone` belongs to.
    #[inline]
    #[must_use]
    pub const fn new(zone: u32, col: u64) -> Self {
        Self((zone as u64) << 32 | (col / PAGE) & 0xffff_ffff)
    }

    /// Number of the zone.
    #[must_use]
    pub const fn zone(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Number of the page column in its zone.
    #[must_use]
    pub const fn page(self) -> u32 {
        self.0 as u32
    }
}

/// The locks of all page columns of all zones of a pool.
pub struct Columns {
    /// A slot per possible zone: filled once, never moved, so that readers need no lock.
    zones: Box<[OnceLock<Locks>]>,
}

struct Locks {
    lines: Box<[Line]>,
    /// log2 of the number of lines.
    shift: u32,
}

/// Keeps the words of a line together in one.
#[repr(align(64))]
struct Line([AtomicU32; WORDS_PER_LINE as usize]);

impl Locks {
    fn new(columns: u32) -> Self {
        let lines = columns.div_ceil(WORDS_PER_LINE).next_power_of_two();
        let line = || Line(core::array::from_fn(|_| AtomicU32::new(FREE)));
        Self { lines: (0..lines).map(|_| line()).collect(), shift: lines.trailing_zeros() }
    }

    #[inline]
    fn word(&self, page: u32) -> &AtomicU32 {
        let line = page as usize & (self.lines.len() - 1);
        &self.lines[line].0[(page >> self.shift) as usize % WORDS_PER_LINE as usize]
    }
}

impl fmt::Debug for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zones = self.zones.iter().filter(|z| z.get().is_some()).count();
        f.debug_struct("Columns").field("zones", &zones).finish()
    }
}

impl Default for Columns {
    fn default() -> Self {
        Self::new()
    }
}

impl Columns {
    /// Locks for a pool without zones; [`add_zone`](Self::add_zone) each.
    #[must_use]
    pub fn new() -> Self {
        Self { zones: (0..REGIONS_MAX).map(|_| OnceLock::new()).collect() }
    }

    /// Adds the locks of `zone`, before anybody else learns of the zone. Adding one twice does
    /// nothing. Takes 4 bytes per page column.
    pub fn add_zone(&self, zone: &Zone) {
        if let Some(slot) = self.zones.get(zone.index() as usize) {
            slot.get_or_init(|| Locks::new(zone.page_columns()));
        }
    }

    /// Number of zones whose columns can be locked.
    #[must_use]
    pub fn zones(&self) -> usize {
        self.zones.iter().filter(|slot| slot.get().is_some()).count()
    }

    /// The page column of byte column `col` of `zone`.
    #[inline]
    #[must_use]
    pub const fn id(&self, zone: &Zone, col: u64) -> ColumnId {
        ColumnId::new(zone.index(), col)
    }

    /// Appends the ids of all page columns that `[at, at + len)` of `zone` touches to `into`, in
    /// the order of the range: sort and deduplicate when all ranges of a commit are in.
    #[inline]
    pub fn ids_of(&self, zone: &Zone, at: u64, len: u64, into: &mut Vec<ColumnId>) {
        for piece in zone.split(at, len) {
            let last = (piece.col + piece.len - 1) / PAGE;
            for page in piece.col / PAGE..=last {
                into.push(ColumnId::new(zone.index(), page * PAGE));
            }
        }
    }

    #[inline]
    fn word(&self, id: ColumnId) -> &AtomicU32 {
        self.zones
            .get(id.zone() as usize)
            .and_then(OnceLock::get)
            .expect("a zone's locks are added before any of its columns is named")
            .word(id.page())
    }

    /// Takes the locks of `ids`, which are ascending and without repetition. Waits for each as
    /// long as it takes: nobody holds a column across anything that may block.
    #[inline]
    pub fn lock_all<M: Medium>(&self, m: &M, ids: &[ColumnId]) {
        debug_assert!(ids.windows(2).all(|w| w[0] < w[1]), "columns are taken in ascending order");
        for id in ids {
            self.lock(m, *id);
        }
    }

    /// Takes the locks of `ids` (ascending, no repetition) if all are free; else takes none.
    #[must_use]
    pub fn try_lock_all<M: Medium>(&self, m: &M, ids: &[ColumnId]) -> bool {
        debug_assert!(ids.windows(2).all(|w| w[0] < w[1]), "columns are taken in ascending order");
        for (taken, id) in ids.iter().enumerate() {
            if !take(m, self.word(*id)) {
                self.unlock_all(&ids[..taken]);
                return false;
            }
        }
        true
    }

    /// Releases locks taken with [`lock_all`](Self::lock_all): plain stores, no drain.
    #[inline]
    pub fn unlock_all(&self, ids: &[ColumnId]) {
        for id in ids {
            let word = self.word(*id);
            debug_assert_eq!(word.load(Ordering::Relaxed), HELD, "only a holder unlocks");
            word.store(FREE, Ordering::Release);
        }
    }

    /// Takes one lock until the guard is dropped.
    pub fn lock_one<'a, M: Medium>(&'a self, m: &M, id: ColumnId) -> Held<'a> {
        self.lock(m, id);
        Held { columns: self, id }
    }

    /// Takes one lock until the guard is dropped, if it is free.
    pub fn try_lock<'a, M: Medium>(&'a self, m: &M, id: ColumnId) -> Option<Held<'a>> {
        // Built only once it is held: dropping a guard unlocks.
        take(m, self.word(id)).then(|| Held { columns: self, id })
    }

    #[inline]
    fn lock<M: Medium>(&self, m: &M, id: ColumnId) {
        let word = self.word(id);
        if !take(m, word) {
            wait(m, word);
        }
    }
}

/// One try; looks before it locks, so that waiting threads share the line instead of fighting
/// over it.
#[inline]
fn take<M: Medium>(m: &M, word: &AtomicU32) -> bool {
    if word.load(Ordering::Relaxed) != FREE {
        return false;
    }
    m.locked();
    word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

#[cold]
fn wait<M: Medium>(m: &M, word: &AtomicU32) {
    loop {
        for _ in 0..SPINS {
            if take(m, word) {
                return;
            }
            holdfast_sync::hint::spin_loop();
        }
        holdfast_sync::thread::yield_now();
    }
}

/// A page column held by this thread; dropping it lets others in.
#[derive(Debug)]
#[must_use = "the column is unlocked as soon as this is dropped"]
pub struct Held<'a> {
    columns: &'a Columns,
    id: ColumnId,
}

impl Held<'_> {
    /// Which column.
    #[must_use]
    pub const fn id(&self) -> ColumnId {
        self.id
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.columns.unlock_all(&[self.id]);
    }
}
