//! Which file a descriptor is, and announcing writes to it.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU8, Ordering};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use holdfast_guard_wire::{Answer, MOST_FILES, Request};
use holdfast_pmem::track::{Board, Open};
use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fstat};

use crate::state::{self, Cell, Quiet};

const NONE: u8 = 0;
const HERE: u8 = 1;

struct Slot {
    state: AtomicU8,
    board: Cell<Board>,
}

static BOARDS: [Slot; MOST_FILES as usize] =
    [const { Slot { state: AtomicU8::new(NONE), board: Cell::new() } }; MOST_FILES as usize];

/// A guarded file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guarded {
    pub(crate) number: u32,
    /// Its length when it was looked up.
    pub(crate) size: u64,
    board: Option<&'static Board>,
}

/// A write under way.
pub(crate) struct Announced {
    number: u32,
    pub(crate) open: Option<Open<'static>>,
}

/// A number the program calls a descriptor.
///
/// # Safety
/// It is used at once, for calls that fail if it is none.
pub(crate) unsafe fn borrow<'a>(fd: c_int) -> Option<BorrowedFd<'a>> {
    // SAFETY: not -1; the caller's promise for the rest.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

fn regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// The guarded file behind a descriptor. Nobody is asked.
pub(crate) fn of(fd: c_int) -> Option<Guarded> {
    // SAFETY: `fstat` fails on what is no descriptor.
    let stat = fstat(unsafe { borrow(fd)? }).ok()?;
    known(&stat)
}

/// The guarded file that has these numbers.
pub(crate) fn known(stat: &Stat) -> Option<Guarded> {
    if !regular(stat) {
        return None;
    }
    let number = state::ledger().find(stat.st_dev, stat.st_ino)?;
    Some(found(number, stat))
}

fn found(number: u32, stat: &Stat) -> Guarded {
    Guarded { number, size: u64::try_from(stat.st_size).unwrap_or(0), board: board(number) }
}

/// A guarded file whose board was attached before. Safe under the lock.
pub(crate) fn by_number(number: u32) -> Option<Guarded> {
    let slot = BOARDS.get(number as usize)?;
    let here = slot.state.load(Ordering::Acquire) == HERE;
    // SAFETY: set before the state said so.
    here.then(|| Guarded { number, size: 0, board: Some(unsafe { slot.board.get() }) })
}

/// The file behind a descriptor, if it is or is to be guarded: asks, if it is not known.
pub(crate) fn of_or_ask(fd: BorrowedFd<'_>) -> Option<Guarded> {
    let stat = fstat(fd).ok()?;
    if let Some(guarded) = known(&stat) {
        return Some(guarded);
    }
    if !regular(&stat) {
        return None;
    }
    match state::ask(&Request::Ask, Some(fd)) {
        Ok((Answer::Guarded { file }, _)) => Some(found(file, &stat)),
        Ok(_) => None,
        Err(_) => {
            state::ledger().lose();
            None
        }
    }
}

/// Whether a descriptor may be written through.
pub(crate) fn is_writable(fd: BorrowedFd<'_>) -> bool {
    fcntl_getfl(fd).is_ok_and(|flags| {
        !flags.contains(OFlags::PATH) && (flags & OFlags::RWMODE) != OFlags::RDONLY
    })
}

/// The board of a file, attached at the first use.
fn board(number: u32) -> Option<&'static Board> {
    let slot = BOARDS.get(number as usize)?;
    if slot.state.load(Ordering::Acquire) != HERE {
        let _quiet = Quiet::take();
        if slot.state.load(Ordering::Acquire) != HERE {
            let Some(board) = attach(number) else {
                state::ledger().lose();
                return None;
            };
            // SAFETY: under the lock, and nobody reads before the state says so.
            unsafe { slot.board.set(board) };
            slot.state.store(HERE, Ordering::Release);
        }
    }
    // SAFETY: set before the state said so.
    Some(unsafe { slot.board.get() })
}

fn attach(number: u32) -> Option<Board> {
    let (answer, file) = state::ask(&Request::Board { file: number }, None).ok()?;
    let Answer::Guarded { .. } = answer else { return None };
    let board = Board::attach(file?).ok()?;
    // The mapping is all that is used of it. It is never dropped, so nobody closes it again.
    // SAFETY: a descriptor that belongs to the board, which does not use it any more.
    unsafe { rustix::io::close(board.file().as_fd().as_raw_fd()) };
    Some(board)
}

impl Guarded {
    /// Says that `[at, at + len)` is about to be written, until the value is dropped.
    pub(crate) fn announce(&self, at: u64, len: u64) -> Announced {
        state::ledger().begin(self.number);
        let board = self.board.filter(|_| !state::untracked());
        Announced { number: self.number, open: board.map(|board| board.open(at, len)) }
    }
}

impl Announced {
    /// Says what was written after all.
    pub(crate) fn narrow(&mut self, at: u64, len: u64) {
        if let Some(open) = &mut self.open {
            open.narrow(at, len);
        }
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        // The bits first: whoever finds the write over must find them.
        self.open = None;
        state::ledger().end(self.number);
    }
}
