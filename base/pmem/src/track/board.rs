//! Where writes are announced: memory shared by all processes that write to a file.
//!
//! ```text
//!   head | slots: writes under way | one bit per page: writes that are done
//!
//!   writer:  publish a slot -> write(2) -> set the bits -> clear the slot
//!   reader:  slots, then bits
//! ```
//!
//! The reader looks at the slots *first*: a write whose slot is gone by then has set its bits, and
//! one whose slot is still there counts as stored to. In the other order, a write could set its
//! bits behind the reader and clear its slot before it.
//!
//! A slot outlives its thread: whoever finds the thread dead sets the bits for it
//! ([`Board::reap`]). Every range that comes from other processes is cut to the file. Whoever has
//! the board can set too many bits, and can clear those that another set: who shares one is trusted
//! with the writes of all.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::bits::{PageBits, WORD, words as parts};
use super::error::TrackError;
use super::span::out;
use crate::medium::PAGE;
use crate::registry::this_thread;

use self::sheet::{Sheet, Slot};

mod sheet;

/// The words that ship.
mod words {
    pub(super) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

const MAGIC: u64 = u64::from_le_bytes(*b"hf-board");
const VERSION: u32 = 1;
/// Most slots of a board; more writes at a time are counted, not told apart.
const MOST_SLOTS: u32 = 4096;
/// Most pages: 64 TiB of file.
const MOST_PAGES: u64 = 1 << 34;

#[repr(C, align(64))]
struct Head {
    magic: AtomicU64,
    version: AtomicU32,
    slots: AtomicU32,
    pages: AtomicU64,
    /// Writes under way that found no slot: while there are any, everything counts as stored to.
    unslotted: AtomicU64,
}

/// Announced writes to one file.
#[derive(Debug)]
pub struct Board {
    file: OwnedFd,
    base: NonNull<u8>,
    bytes: usize,
    slots: u32,
    pages: u64,
}

// SAFETY: all of the shared memory is atomics; the rest never changes.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

/// Bytes before the bits, for so many slots.
fn head_bytes(slots: u32) -> u64 {
    (size_of::<Head>() as u64 + u64::from(slots) * size_of::<Slot>() as u64).next_multiple_of(PAGE)
}

fn total_bytes(slots: u32, pages: u64) -> u64 {
    head_bytes(slots) + (pages.div_ceil(WORD) * 8).next_multiple_of(PAGE)
}

fn failed<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> TrackError {
    move |error| TrackError::Io { call, source: error.into() }
}

impl Board {
    /// A board for a file of at most `len` bytes, with room for `slots` writes at a time (at most
    /// 4096).
    ///
    /// # Errors
    /// [`TrackError::OutOfRange`] if it is too large a file or too many slots; or no memory.
    pub fn create(len: u64, slots: u32) -> Result<Self, TrackError> {
        let pages = len.div_ceil(PAGE);
        if pages == 0 || pages > MOST_PAGES || slots > MOST_SLOTS {
            return Err(out(0, len));
        }
        let file = memfd_create("holdfast-board", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(failed("memfd_create"))?;
        ftruncate(&file, total_bytes(slots, pages)).map_err(failed("ftruncate"))?;
        // Nobody can pull the memory from under another's feet.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL).map_err(failed("fcntl"))?;
        let board = Self::map(file, slots, pages)?;
        let head = board.head();
        head.slots.store(slots, Ordering::Relaxed);
        head.pages.store(pages, Ordering::Relaxed);
        head.version.store(VERSION, Ordering::Relaxed);
        head.magic.store(MAGIC, Ordering::Release);
        Ok(board)
    }

    /// The board behind a descriptor that another process made.
    ///
    /// # Errors
    /// [`TrackError::Io`] if it is not a board of this version.
    pub fn attach(file: OwnedFd) -> Result<Self, TrackError> {
        let wrong = |why: &'static str| TrackError::Io {
            call: "attaching to a board",
            source: io::Error::new(io::ErrorKind::InvalidData, why),
        };
        let size = u64::try_from(fstat(&file).map_err(failed("fstat"))?.st_size).unwrap_or(0);
        let sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if size < total_bytes(0, 1) || !sealed {
            return Err(wrong("it is too short to be one, or could become so"));
        }
        let probe = Self::map(file, 0, 1)?;
        let head = probe.head();
        if head.magic.load(Ordering::Acquire) != MAGIC
            || head.version.load(Ordering::Relaxed) != VERSION
        {
            return Err(wrong(
                "it is none, or of another version; use the same version everywhere",
            ));
        }
        let slots = head.slots.load(Ordering::Relaxed);
        let pages = head.pages.load(Ordering::Relaxed);
        let sane = slots <= MOST_SLOTS && (1..=MOST_PAGES).contains(&pages);
        if !sane || size != total_bytes(slots, pages) {
            return Err(wrong("its size is not what its head says"));
        }
        let file = probe.file.try_clone().map_err(failed("dup"))?;
        drop(probe);
        Self::map(file, slots, pages)
    }

    fn map(file: OwnedFd, slots: u32, pages: u64) -> Result<Self, TrackError> {
        let bytes = total_bytes(slots, pages) as usize;
        // SAFETY: a new mapping wherever the kernel likes.
        let base = unsafe {
            mmap(
                core::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        let base =
            NonNull::new(base.map_err(failed("mmap"))?.cast()).ok_or(TrackError::last("mmap"))?;
        Ok(Self { file, base, bytes, slots, pages })
    }

    /// Gives up the memory, and leaves the descriptor alone: for who has closed that already.
    pub fn unmap(self) {
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: mapped by `map` with this length; nothing refers to it any more.
        let _ = unsafe { munmap(this.base.as_ptr().cast(), this.bytes) };
    }

    /// What another process needs to attach.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Pages it has bits for.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    fn head(&self) -> &Head {
        // SAFETY: the mapping is at least a page, page-aligned, and lives as long as `self`;
        // every bit pattern is a valid value of atomics.
        unsafe { self.base.cast::<Head>().as_ref() }
    }

    fn slots(&self) -> &[Slot] {
        // SAFETY: `total_bytes` has room for so many slots behind the head, whose size is a
        // multiple of their alignment; as above otherwise.
        unsafe {
            let first = self.base.add(size_of::<Head>()).cast::<Slot>();
            core::slice::from_raw_parts(first.as_ptr(), self.slots as usize)
        }
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: `total_bytes` has room for so many words from a page's border on; as above.
        unsafe {
            let first = self.base.add(head_bytes(self.slots) as usize).cast::<AtomicU64>();
            core::slice::from_raw_parts(first.as_ptr(), self.pages.div_ceil(WORD) as usize)
        }
    }

    /// What it says.
    fn sheet(&self) -> Sheet<'_> {
        Sheet {
            slots: self.slots(),
            words: self.words(),
            unslotted: &self.head().unslotted,
            pages: self.pages,
        }
    }

    /// Says that the bytes `[at, at + len)` were written: every page they touch, cut to the file.
    pub fn mark(&self, at: u64, len: u64) {
        self.sheet().mark(at, at.saturating_add(len));
    }

    /// Says that the bytes `[at, at + len)` are about to be written; `len` may be without limit
    /// (`u64::MAX`: appending, cutting off). Dropping the value says that it is done, whether or
    /// not it succeeded.
    #[must_use]
    pub fn open(&self, at: u64, len: u64) -> Open<'_> {
        let end = at.saturating_add(len);
        let thread = this_thread();
        Open { board: self, slot: self.sheet().open(thread, at, end), thread, at, end }
    }

    /// Whether any write is under way, or was when its thread died and was not reaped since. Who
    /// counts writes as well, before they are opened here and after they are done, asks this first:
    /// what is not under way by then has either not begun or is done.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.sheet().is_busy()
    }

    /// Closes the slots of threads that are dead, as they would have: what they were writing
    /// counts as stored to. Answers how many there were. Nobody else reaps meanwhile.
    pub fn reap(&self, dead: &mut dyn FnMut(u32) -> bool) -> usize {
        self.sheet().reap(dead)
    }

    /// Adds to `told` the pages under way, then those that are done, which are forgotten if `take`.
    pub(crate) fn collect(&self, pages: core::ops::Range<u64>, take: bool, told: &mut PageBits) {
        self.sheet().collect(pages, take, told);
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; nothing refers to it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A write under way: see [`Board::open`].
pub struct Open<'a> {
    board: &'a Board,
    slot: Option<&'a Slot>,
    thread: u32,
    at: u64,
    end: u64,
}

impl core::fmt::Debug for Open<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Open").field("at", &self.at).field("end", &self.end).finish_non_exhaustive()
    }
}

impl Open<'_> {
    /// Says which bytes were written after all, now that it is known: only these count once the
    /// value is dropped. Until then the whole range does.
    pub fn narrow(&mut self, at: u64, len: u64) {
        self.at = at;
        self.end = at.saturating_add(len);
    }

    /// Whether the calling thread opened it. Who finds one of another thread, which is gone, leaves
    /// it to [`Board::reap`].
    #[must_use]
    pub fn is_of_this_thread(&self) -> bool {
        self.thread == this_thread()
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.board.sheet().close(self.slot, self.at, self.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(board: &Board, take: bool) -> Vec<u64> {
        let mut bits = PageBits::new();
        board.collect(0..board.pages(), take, &mut bits);
        (0..board.pages()).filter(|page| bits.all(*page..*page + 1)).collect()
    }

    #[test]
    fn a_write_counts_from_before_it_begins_until_it_was_taken() {
        let board = Board::create(100 * PAGE, 2).unwrap();
        assert_eq!(told(&board, true), [0_u64; 0]);
        let open = board.open(5 * PAGE + 9, PAGE);
        assert_eq!(told(&board, true), [5, 6]);
        assert_eq!(told(&board, true), [5, 6]);
        drop(open);
        assert_eq!(told(&board, false), [5, 6]);
        assert_eq!(told(&board, true), [5, 6]);
        assert_eq!(told(&board, true), [0_u64; 0]);
        drop(board.open(98 * PAGE, u64::MAX));
        assert_eq!(told(&board, true), [98, 99]);
        board.mark(u64::MAX - 3, 9);
        board.mark(7, 0);
        assert_eq!(told(&board, true), [0_u64; 0]);
    }

    #[test]
    fn what_turned_out_to_be_written_counts_afterwards() {
        let board = Board::create(100 * PAGE, 2).unwrap();
        let mut open = board.open(90 * PAGE, u64::MAX);
        open.narrow(91 * PAGE, PAGE);
        assert_eq!(told(&board, true).len(), 10);
        drop(open);
        assert_eq!(told(&board, true), [91]);
    }

    #[test]
    fn without_a_slot_everything_counts() {
        let board = Board::create(8 * PAGE, 1).unwrap();
        let first = board.open(0, 1);
        let second = board.open(PAGE, 1);
        assert_eq!(told(&board, true).len(), 8);
        drop(first);
        assert!(board.is_busy());
        let first = board.open(0, 1);
        drop(second);
        assert_eq!(told(&board, true), [0, 1]);
        assert!(board.is_busy());
        drop(first);
        assert!(!board.is_busy());
        assert_eq!(told(&board, true), [0]);
    }

    #[test]
    fn others_see_it_and_the_dead_are_spoken_for() {
        let board = Board::create(8 * PAGE, 4).unwrap();
        let other = Board::attach(board.file().try_clone_to_owned().unwrap()).unwrap();
        core::mem::forget(other.open(3 * PAGE, PAGE));
        assert_eq!(told(&board, true), [3]);
        assert_eq!(board.reap(&mut |_| false), 0);
        assert!(board.is_busy());
        assert_eq!(board.reap(&mut |thread| thread == this_thread()), 1);
        assert!(!board.is_busy());
        assert_eq!(told(&board, true), [3]);
        assert_eq!(told(&board, true), [0_u64; 0]);
    }

    #[test]
    fn what_is_no_board_is_refused() {
        let file = memfd_create("no", MemfdFlags::CLOEXEC).unwrap();
        assert!(Board::attach(file.try_clone().unwrap()).is_err());
        ftruncate(&file, 1 << 20).unwrap();
        assert!(Board::attach(file).is_err());
        let board = Board::create(8 * PAGE, 4).unwrap();
        board.head().pages.store(u64::MAX, Ordering::Relaxed);
        assert!(Board::attach(board.file().try_clone_to_owned().unwrap()).is_err());
    }
}
