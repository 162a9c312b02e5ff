//! Memory of private copies, and lanes: the only file of this crate with `unsafe`.
//!
//! A transaction's copies lie in an [`Arena`] whose blocks never move while the transaction runs,
//! so that guards may lend them out while further objects are opened. Each copy is laid out as
//! `old bytes | guard line | new bytes | guard line`; whatever runs over either end of the new
//! bytes hits a guard line before it hits anything else.
//!
//! Lent copies are tracked: while a copy is lent, the arena does not show it, and it cannot be
//! lent twice. [`Lanes`] hands per-lane state to one thread at a time, and again to a nested run
//! on that same thread.

use core::cell::{RefCell, UnsafeCell};
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use holdfast_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use holdfast_sync::unmodelled;
use std::sync::{Arc, Weak};

use holdfast_layout::Persist;

/// Bytes of a guard.
const GUARD_LEN: usize = 64;
/// What every 8-byte word of a guard holds.
const GUARD_WORD: u64 = 0x9d5b_21f3_c6a8_4e17;
/// Lines of an ordinary block.
const BLOCK_LINES: usize = 1024;
/// Ordinary blocks kept between transactions.
const BLOCKS_KEPT: usize = 16;

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

/// A block of lines, by raw pointer: copies inside are reached by pointers of their own, which a
/// reference to the whole block would invalidate.
struct Block {
    start: *mut Line,
    lines: usize,
}

impl Block {
    fn new(lines: usize) -> Self {
        let lines_box = vec![Line([0; 64]); lines].into_boxed_slice();
        Self { start: Box::into_raw(lines_box).cast::<Line>(), lines }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let slice = core::ptr::slice_from_raw_parts_mut(self.start, self.lines);
        // SAFETY: `new` made exactly this slice with `Box::into_raw`; it is freed once, here.
        drop(unsafe { Box::from_raw(slice) });
    }
}

/// Number of a pair of copies in an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyId(u32);

/// One object's two copies: `old` at `start`, `new` a guard line later.
#[derive(Clone, Copy)]
struct Copies {
    start: *mut u8,
    len: usize,
    room: usize,
    lent: Loan,
}

/// Who has a private copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loan {
    /// The arena.
    None,
    /// A [`Mut`].
    Guard,
    /// Code that got its address.
    Raw,
}

impl Copies {
    fn new_start(&self) -> *mut u8 {
        self.start.wrapping_add(self.room + GUARD_LEN)
    }

    /// The lines before which nothing of the private copy lies, and behind which nothing does.
    fn guards(&self) -> [*mut [u64; GUARD_LEN / 8]; 2] {
        [self.room, 2 * self.room + GUARD_LEN].map(|at| self.start.wrapping_add(at).cast())
    }
}

/// Blocks of 64-byte lines, handed out from the front and all given back at once.
#[derive(Default)]
pub(crate) struct Arena {
    blocks: Vec<Block>,
    block: usize,
    used: usize,
    copies: Vec<Copies>,
}

impl core::fmt::Debug for Arena {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Arena").field("copies", &self.copies.len()).finish_non_exhaustive()
    }
}

impl Arena {
    /// Makes room for two copies of `len` bytes, guards set. The bytes are unspecified.
    pub(crate) fn make(&mut self, len: usize) -> CopyId {
        let lines = len.div_ceil(64).max(1);
        let start = self.take(2 * lines + 2 * GUARD_LEN / 64);
        let copies = Copies { start, len, room: lines * 64, lent: Loan::None };
        for guard in copies.guards() {
            // SAFETY: `take` reserved 2 * room + 2 * GUARD_LEN bytes from `start`; both guards
            // lie inside and are 8-byte aligned because `start` is 64-byte aligned.
            unsafe { guard.write([GUARD_WORD; GUARD_LEN / 8]) };
        }
        self.copies.push(copies);
        CopyId(self.copies.len() as u32 - 1)
    }

    fn take(&mut self, count: usize) -> *mut u8 {
        loop {
            if let Some(block) = self.blocks.get(self.block) {
                if self.used + count <= block.lines {
                    let start = block.start.wrapping_add(self.used);
                    self.used += count;
                    return start.cast();
                }
                // A block too short for this request is passed over until the next reset.
                self.block += 1;
            } else {
                self.blocks.push(Block::new(count.max(BLOCK_LINES)));
                self.block = self.blocks.len() - 1;
            }
            self.used = 0;
        }
    }

    /// Gives everything back. Blocks beyond the ordinary are freed: a huge transaction should
    /// not keep its memory for ever. Called when no guard can be alive any more.
    #[inline]
    pub(crate) fn reset(&mut self) {
        // Whoever only read has made none.
        if !self.copies.is_empty() {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        self.copies.clear();
        if self.blocks.len() > BLOCKS_KEPT || self.blocks.iter().any(|b| b.lines > BLOCK_LINES) {
            self.blocks.retain(|b| b.lines == BLOCK_LINES);
            self.blocks.truncate(BLOCKS_KEPT);
        }
        self.block = 0;
        self.used = 0;
    }

    /// The bytes as they were verified.
    pub(crate) fn old(&self, id: CopyId) -> &[u8] {
        let c = &self.copies[id.0 as usize];
        // SAFETY: `make` reserved `room >= len` initialised bytes at `start` in a block that
        // lives until `reset` or drop, both of which need `&mut self`; nobody writes the old
        // copy except through `&mut self`.
        unsafe { core::slice::from_raw_parts(c.start, c.len) }
    }

    /// Both copies, to be filled: `(old, new)`. `None` while the copy is lent.
    pub(crate) fn both_mut(&mut self, id: CopyId) -> Option<(&mut [u8], &mut [u8])> {
        let c = self.copies[id.0 as usize];
        if c.lent != Loan::None {
            return None;
        }
        // SAFETY: as in `old`; the two ranges do not overlap (a guard lies between), `&mut self`
        // excludes other borrows from the arena, and `lent` excludes a guard's.
        unsafe {
            Some((
                core::slice::from_raw_parts_mut(c.start, c.len),
                core::slice::from_raw_parts_mut(c.new_start(), c.len),
            ))
        }
    }

    /// The private copy. `None` while it is lent.
    pub(crate) fn new_bytes(&self, id: CopyId) -> Option<&[u8]> {
        let c = &self.copies[id.0 as usize];
        if c.lent != Loan::None {
            return None;
        }
        // SAFETY: as in `both_mut`; `lend` needs `&mut self`, so no guard can appear meanwhile.
        Some(unsafe { core::slice::from_raw_parts(c.new_start(), c.len) })
    }

    /// Whether both guards are as they were set.
    pub(crate) fn guards_intact(&self, id: CopyId) -> bool {
        self.copies[id.0 as usize].guards().into_iter().all(|guard| {
            // SAFETY: as in `make`; guards are never lent.
            let words = unsafe { guard.read() };
            words.iter().fold(0, |differ, word| differ | (word ^ GUARD_WORD)) == 0
        })
    }

    /// Lends the private copy. `None` if it is lent already or is no `T`-sized copy.
    fn lend<T: Persist>(&mut self, id: CopyId) -> Option<*mut T> {
        let c = &mut self.copies[id.0 as usize];
        let at = c.new_start();
        let fits = c.len == size_of::<T>() && at.addr().is_multiple_of(align_of::<T>());
        if c.lent != Loan::None || !fits {
            return None;
        }
        c.lent = Loan::Guard;
        Some(at.cast())
    }

    /// Lends the private copy as raw bytes to code that is checked by guards only.
    pub(crate) fn lend_raw(&mut self, id: CopyId) -> Option<*mut u8> {
        let c = &mut self.copies[id.0 as usize];
        if c.lent != Loan::None {
            return None;
        }
        c.lent = Loan::Raw;
        Some(c.new_start())
    }

    /// Ends the loan to a [`Mut`].
    fn take_back(&mut self, id: CopyId) {
        if let Some(c) = self.copies.get_mut(id.0 as usize) {
            c.lent = Loan::None;
        }
    }

    /// Ends a loan as raw bytes; a guard keeps its own.
    pub(crate) fn take_back_raw(&mut self, id: CopyId) {
        if let Some(c) = self.copies.get_mut(id.0 as usize)
            && c.lent == Loan::Raw
        {
            c.lent = Loan::None;
        }
    }

    /// Ends all loans, of guards that were forgotten.
    pub(crate) fn take_all_back(&mut self) {
        self.copies.iter_mut().for_each(|c| c.lent = Loan::None);
    }
}

/// Lends the private copy of a `T` for change; gives it back when dropped.
#[derive(Debug)]
pub struct Mut<'t, T: Persist> {
    arena: &'t RefCell<Arena>,
    id: CopyId,
    value: *mut T,
    of: PhantomData<&'t mut T>,
}

impl<'t, T: Persist> Mut<'t, T> {
    /// Lends copy `id` of `arena`, or `None` if it is lent already or has another length.
    pub(crate) fn lend(arena: &'t RefCell<Arena>, id: CopyId) -> Option<Self> {
        let value = arena.borrow_mut().lend(id)?;
        Some(Self { arena, id, value, of: PhantomData })
    }
}

impl<T: Persist> Deref for Mut<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: `lend` checked length and alignment and marked the copy as lent, so nobody else
        // reaches these bytes until `drop`; the arena is reset only after the transaction's
        // closure returned, which `'t` cannot outlive; every bit pattern is a `T` (Persist).
        unsafe { &*self.value }
    }
}

impl<T: Persist> DerefMut for Mut<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes the borrow unique.
        unsafe { &mut *self.value }
    }
}

impl<T: Persist> Drop for Mut<'_, T> {
    fn drop(&mut self) {
        self.arena.borrow_mut().take_back(self.id);
    }
}

/// What other threads see of a lane. On a line of its own: its thread writes it at each commit.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Flag {
    taken: AtomicBool,
    /// Another thread has it now than the one that committed in it last.
    passed_on: AtomicBool,
    commits: AtomicU64,
    aborts: AtomicU64,
    verified: AtomicU64,
}

/// Per-lane state that one thread at a time uses.
///
/// A thread keeps the lane it took until it ends, as long as enough lanes are left for others:
/// taking it again costs no locked instruction then, which would wait for the last commit's drain.
#[derive(Debug)]
pub(crate) struct Lanes<T> {
    id: u64,
    values: Box<[UnsafeCell<T>]>,
    flags: Arc<[Flag]>,
}

// SAFETY: a value is reached only through `Held`, of which one thread at a time has some:
// `take_another` sets the flag with acquire/release, `enter` finds only lanes its own thread kept
// or is in, and `attach` needs the `Detached` of a lane, which stays on its thread.
unsafe impl<T: Send> Sync for Lanes<T> {}

/// A lane held by this thread. Not `Send`: nested runs find it through the thread.
///
/// Two words, so that it travels in registers. A structure that is stored field by field and then
/// copied whole cannot be taken from the stores under way: the copy waits until they have reached
/// the cache, and so for the last commit's drain.
#[derive(Debug)]
pub(crate) struct Held<'l, T> {
    lanes: &'l Lanes<T>,
    /// Number of the lane, and [`OWNER`].
    lane: u64,
    stays: PhantomData<*const ()>,
}

/// Who drops this `Held` gives the lane back.
const OWNER: u64 = 1 << 32;

/// A lane held by this thread without a borrow of the lanes. Not `Send` either. One that is leaked
/// leaves its lane taken.
#[derive(Debug)]
pub(crate) struct Detached {
    /// Of which lanes.
    id: u64,
    lane: u32,
    stays: PhantomData<*const ()>,
}

/// A lane this thread took.
struct Mine {
    /// Of which lanes.
    id: u64,
    lane: u32,
    /// A transaction is under way in it.
    busy: bool,
    /// Not given back when the transaction ends.
    kept: bool,
    /// Gone with the pool.
    flags: Weak<[Flag]>,
}

impl Drop for Mine {
    fn drop(&mut self) {
        // With a transaction under way, whoever ends that gives the lane back.
        if let Some(flags) = self.flags.upgrade().filter(|_| !self.busy) {
            flags[self.lane as usize].taken.store(false, Ordering::Release);
        }
    }
}

holdfast_sync::thread_local! {
    /// Lanes this thread took, of all pools it uses; dropped, and so given back, when it ends.
    static MINE: RefCell<Vec<Mine>> = const { RefCell::new(Vec::new()) };
}

/// Tells pools apart for good: an address may be used again.
static NEXT_ID: unmodelled::AtomicU64 = unmodelled::AtomicU64::new(1);

impl<T> Lanes<T> {
    /// `count` lanes with states from `make`.
    pub(crate) fn new(count: u32, make: impl Fn(u32) -> T) -> Self {
        Self {
            id: NEXT_ID.fetch_add(1, unmodelled::Ordering::Relaxed),
            values: (0..count).map(|lane| UnsafeCell::new(make(lane))).collect(),
            flags: (0..count).map(|_| Flag::default()).collect(),
        }
    }

    fn held(&self, lane: u32, owner: bool) -> Held<'_, T> {
        let lane = u64::from(lane) | if owner { OWNER } else { 0 };
        Held { lanes: self, lane, stays: PhantomData }
    }

    /// Takes a free lane, the one this thread kept if it did; or joins the one it is in already,
    /// for a nested run, and says so. `None` if all are taken.
    #[inline]
    pub(crate) fn enter(&self) -> Option<(Held<'_, T>, bool)> {
        let mine = MINE.with(|mine| {
            let mut mine = mine.borrow_mut();
            let own = mine.iter_mut().find(|m| m.id == self.id)?;
            Some((own.lane, core::mem::replace(&mut own.busy, true)))
        });
        match mine {
            Some((lane, nested)) => Some((self.held(lane, !nested), nested)),
            None => self.take_another().map(|held| (held, false)),
        }
    }

    #[cold]
    fn take_another(&self) -> Option<Held<'_, T>> {
        let free = |flag: &Flag| {
            !flag.taken.load(Ordering::Relaxed) && !flag.taken.swap(true, Ordering::Acquire)
        };
        let lane = self.flags.iter().position(free)?;
        // Low lanes are taken first, and the last quarter is never kept: however many threads
        // there are, none waits for a lane that nobody uses.
        self.flags[lane].passed_on.store(true, Ordering::Relaxed);
        let kept = self.keeps(lane);
        let flags = Arc::downgrade(&self.flags);
        let lane = lane as u32;
        MINE.with(|mine| {
            let mut mine = mine.borrow_mut();
            // Those of pools that were closed meanwhile.
            mine.retain(|m| m.flags.strong_count() > 0);
            mine.push(Mine { id: self.id, lane, busy: true, kept, flags });
        });
        Some(self.held(lane, true))
    }

    /// Whether the lane stays with its thread.
    #[inline]
    fn keeps(&self, lane: usize) -> bool {
        lane < self.flags.len() / 4 * 3
    }

    /// The lane that was detached, for one step of its transaction.
    ///
    /// # Panics
    /// If it is a lane of others.
    pub(crate) fn attach(&self, detached: &Detached) -> Held<'_, T> {
        assert_eq!(self.id, detached.id, "a transaction stays with its pool");
        self.held(detached.lane, false)
    }

    /// Gives back the lane that was detached.
    ///
    /// # Panics
    /// If it is a lane of others.
    #[expect(clippy::needless_pass_by_value, reason = "it is over")]
    pub(crate) fn give_back(&self, detached: Detached) {
        assert_eq!(self.id, detached.id, "a transaction stays with its pool");
        drop(self.held(detached.lane, true));
    }

    /// Commits counted in all lanes.
    pub(crate) fn commits(&self) -> u64 {
        self.flags.iter().map(|flag| flag.commits.load(Ordering::Relaxed)).sum()
    }

    /// Aborts counted in all lanes.
    pub(crate) fn aborts(&self) -> u64 {
        self.flags.iter().map(|flag| flag.aborts.load(Ordering::Relaxed)).sum()
    }

    /// Granules verified by reads, counted in all lanes.
    pub(crate) fn verified(&self) -> u64 {
        self.flags.iter().map(|flag| flag.verified.load(Ordering::Relaxed)).sum()
    }
}

impl<'l, T> Held<'l, T> {
    /// The same lane for a part of the same run.
    pub(crate) fn share(&self) -> Held<'l, T> {
        self.lanes.held(self.lane(), false)
    }

    /// Keeps the lane beyond the borrow.
    ///
    /// # Panics
    /// If it is not the owner's.
    pub(crate) fn detach(self) -> Detached {
        assert!(self.lane & OWNER != 0, "only who took a lane keeps it");
        let detached = Detached { id: self.lanes.id, lane: self.lane(), stays: PhantomData };
        core::mem::forget(self);
        detached
    }

    /// Number of the lane.
    #[inline]
    pub(crate) fn lane(&self) -> u32 {
        self.lane as u32
    }

    /// Whether the lane came to this thread since its last commit. Asked by a commit, and answered
    /// once.
    pub(crate) fn was_passed_on(&self) -> bool {
        let passed_on = &self.lanes.flags[self.lane() as usize].passed_on;
        let answer = passed_on.load(Ordering::Relaxed);
        passed_on.store(false, Ordering::Relaxed);
        answer
    }

    /// Whether the lane stays with this thread.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.lanes.keeps(self.lane() as usize)
    }

    /// Counts a commit.
    pub(crate) fn count_commit(&self) {
        self.count(|flag| &flag.commits, 1);
    }

    /// Counts a transaction that was given up.
    pub(crate) fn count_abort(&self) {
        self.count(|flag| &flag.aborts, 1);
    }

    /// Counts granules that a read verified.
    pub(crate) fn count_verified(&self, granules: u64) {
        self.count(|flag| &flag.verified, granules);
    }

    /// Only the lane's holder writes its counts, so they take no locked instruction.
    #[inline]
    fn count(&self, what: impl Fn(&Flag) -> &AtomicU64, more: u64) {
        let count = what(&self.lanes.flags[self.lane() as usize]);
        count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this thread took the lane (`enter`), or an outer `Held` or a `Detached` on this
        // thread did (`enter` finds only entries of this thread, `attach` needs the `Detached`, and
        // neither is `Send`); values are shared between those by `&` only.
        unsafe { &*self.lanes.values[self.lane() as usize].get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        if self.lane & OWNER == 0 {
            return;
        }
        let noted = MINE.try_with(|mine| {
            let mut mine = mine.borrow_mut();
            let Some(i) = mine.iter().position(|m| m.id == self.lanes.id && m.lane == self.lane())
            else {
                return;
            };
            mine[i].busy = false;
            if !mine[i].kept {
                mine.swap_remove(i);
            }
        });
        if noted.is_err() {
            // The thread is ending, and gave back only the lanes that nothing used.
            self.lanes.flags[self.lane() as usize].taken.store(false, Ordering::Release);
        }
    }
}

// SAFETY: the raw pointers of an arena name memory that the arena owns; nothing is tied to a
// thread.
unsafe impl Send for Arena {}

/// The object at `at` in the program's view of the medium.
///
/// # Panics
/// If the range lies outside the medium: the caller located an object of this length there.
pub(crate) fn in_place<T: Persist, M: holdfast_pmem::Medium>(m: &M, at: u64) -> &T {
    let view = m.view(at, size_of::<T>() as u64).expect("a located object lies in its medium");
    assert!(view.addr().is_multiple_of(align_of::<T>()), "objects are 64-byte aligned");
    // SAFETY: `view` gave an address valid for `size_of::<T>()` bytes as long as the medium
    // lives; alignment was checked; every bit pattern is a `T`. The caller pins the object's
    // version word, so no commit of this process stores to it while the borrow lives.
    unsafe { &*view.cast::<T>() }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn closed_pools_are_forgotten_by_two_threads() {
        let barrier = std::sync::Barrier::new(2);
        let slot: std::sync::Mutex<Option<Arc<Lanes<u8>>>> = std::sync::Mutex::new(None);
        std::thread::scope(|s| {
            let (barrier, slot) = (&barrier, &slot);
            let work = move |lead: bool| {
                for _ in 0..100 {
                    if lead {
                        *slot.lock().expect("no thread panics") =
                            Some(Arc::new(Lanes::new(16, |_| 0)));
                    }
                    barrier.wait();
                    let lanes =
                        slot.lock().expect("no thread panics").clone().expect("no thread panics");
                    drop(lanes.enter().expect("no thread panics"));
                    drop(lanes);
                    barrier.wait();
                    if lead {
                        *slot.lock().expect("no thread panics") = None;
                    }
                    barrier.wait();
                }
                MINE.with(|m| m.borrow().len())
            };
            let other = s.spawn(move || work(false));
            let mine = work(true);
            let theirs = other.join().expect("no thread panics");
            assert!(mine < 10 && theirs < 10, "kept: {mine} and {theirs}");
        });
    }
}
