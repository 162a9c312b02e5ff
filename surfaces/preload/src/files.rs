//! Which file a descriptor is, and announcing writes to it.
//!
//! A number is that of one file after another: the supervisor lets go of files that nobody has. So
//! a board is used only for the *turn* it was attached for, and given up when its number is met
//! with another one. Nobody can be using it then: who writes to a file has it open, be it for the
//! one call that takes a name, and one that somebody has is not let go of. While the supervisor
//! looks whether that is so, and closes it, the file is *leaving*: writes to it are announced as
//! ever, and who has just opened it asks.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use holdfast_guard_wire::{Answer, MOST_FILES, Refusal, Request};
use holdfast_pmem::track::{Board, Open};
use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fstat};

use crate::leaps::{self, Kept};
use crate::state::{self, Quiet, Uncancelled};
use crate::{names, streams};

const NONE: u8 = 0;
const HERE: u8 = 1;

struct Slot {
    state: AtomicU8,
    /// Of which file with this number the board is.
    turn: AtomicU64,
    /// Writes that use the board, or are about to look whether they may.
    users: AtomicU32,
    board: UnsafeCell<MaybeUninit<Board>>,
}

// SAFETY: the board is written under the lock, while the state says that there is none and nobody
// uses it; it is read by users only, once they saw that it is there.
unsafe impl Sync for Slot {}

static BOARDS: [Slot; MOST_FILES as usize] = [const {
    Slot {
        state: AtomicU8::new(NONE),
        turn: AtomicU64::new(0),
        users: AtomicU32::new(0),
        board: UnsafeCell::new(MaybeUninit::uninit()),
    }
}; MOST_FILES as usize];

/// A board in use: it stays until this is dropped.
struct Held(&'static Slot);

impl Held {
    /// The board of a file, if it is attached. Safe under the lock.
    fn of(number: u32, turn: u64) -> Option<Self> {
        let slot = BOARDS.get(number as usize)?;
        // In this order: who gives the board up changes the state, then looks for users.
        slot.users.fetch_add(1, Ordering::SeqCst);
        let held = Self(slot);
        let here = slot.state.load(Ordering::SeqCst) == HERE;
        (here && slot.turn.load(Ordering::SeqCst) == turn).then_some(held)
    }

    fn board(&self) -> &'static Board {
        // SAFETY: `of` saw that it is there, and it is not given up while there are users.
        unsafe { (*self.0.board.get()).assume_init_ref() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A guarded file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guarded {
    pub(crate) number: u32,
    /// Which of the files that had this number.
    pub(crate) turn: u64,
    /// Its length when it was looked up.
    pub(crate) size: u64,
}

/// What counts as under way.
pub(crate) struct UnderWay {
    open: Option<Open<'static>>,
    /// The file, by its number and turn, to which this is a write.
    write: Option<(u32, u64)>,
    /// Behind the others, so that it is dropped after them.
    _held: Option<Held>,
}

impl UnderWay {
    #[cfg(test)]
    pub(crate) const fn nothing() -> Self {
        Self { open: None, write: None, _held: None }
    }

    /// It was left: over, unless it was that of a thread of the same name, which is gone.
    pub(crate) fn end_if_own(mut self) {
        if let Some(open) = self.open.take_if(|open| !open.is_of_this_thread()) {
            core::mem::forget(open);
            self.write = None;
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // The bits first: whoever finds the write over must find them.
        self.open = None;
        if let Some((number, turn)) = self.write {
            state::ledger().end(number, turn);
        }
    }
}

/// A change under way: counts until it is dropped.
pub(crate) struct Change(Kept);

/// A write under way.
pub(crate) struct Announced(Change);

/// A number the program calls a descriptor.
///
/// # Safety
/// It is used at once, for calls that fail if it is none.
pub(crate) unsafe fn borrow<'a>(fd: c_int) -> Option<BorrowedFd<'a>> {
    // SAFETY: not -1; the caller's promise for the rest.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

pub(crate) fn regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// The guarded file behind a descriptor. Nobody is asked.
pub(crate) fn of(fd: c_int) -> Option<Guarded> {
    // Where nothing is guarded, nothing else is asked, which some programs may not do.
    state::ledger().files().next()?;
    // SAFETY: `fstat` fails on what is no descriptor.
    let stat = fstat(unsafe { borrow(fd)? }).ok()?;
    known(&stat)
}

/// The guarded file that has these numbers.
pub(crate) fn known(stat: &Stat) -> Option<Guarded> {
    if !regular(stat) {
        return None;
    }
    let (number, turn) = state::ledger().find_turn(stat.st_dev, stat.st_ino)?;
    Some(found(number, turn, stat))
}

fn found(number: u32, turn: u64, stat: &Stat) -> Guarded {
    if Held::of(number, turn).is_none() {
        attach(number, turn);
    }
    Guarded { number, turn, size: u64::try_from(stat.st_size).unwrap_or(0) }
}

/// A guarded file that is mapped here, and therefore was found before. Safe under the lock.
pub(crate) fn by_number(number: u32) -> Guarded {
    Guarded { number, turn: state::ledger().turn(number), size: 0 }
}

/// The file behind a descriptor that was just opened, if it is or is to be guarded: asks, if it is
/// not known, or about to be let go of.
pub(crate) fn of_or_ask(fd: BorrowedFd<'_>) -> Option<Guarded> {
    let _uncancelled = Uncancelled::begin();
    let stat = fstat(fd).ok()?;
    if !regular(&stat) {
        return None;
    }
    let listed = state::ledger().find_turn(stat.st_dev, stat.st_ino);
    if let Some((number, turn)) = listed.filter(|(file, turn)| state::ledger().stays(*file, *turn))
    {
        return Some(found(number, turn, &stat));
    }
    match state::ask(&Request::Ask { hasty: false }, Some(fd)) {
        Ok((Answer::Guarded { file }, _)) => {
            let file = found(file, state::ledger().turn(file), &stat);
            streams::taken(stat.st_dev, stat.st_ino, &file);
            Some(file)
        }
        Ok((Answer::Taken { file }, _)) => Some(taken(fd, file, &stat)),
        // The supervisor finds that nobody listens to its answer, and believes nothing then.
        Ok(_) | Err(Refusal::Late) => None,
        Err(_) => {
            // One that is not in the list is not guarded. If somebody else has it guarded later,
            // the supervisor finds that this program has it, too.
            match listed {
                None => state::ledger().unasked(),
                Some(_) => state::ledger().lose(),
            }
            None
        }
    }
}

/// A file is guarded since now, and the supervisor is told what this program has of it.
fn taken(fd: BorrowedFd<'_>, number: u32, stat: &Stat) -> Guarded {
    let file = found(number, state::ledger().turn(number), stat);
    // A handler that syncs would wait for what this very thread has still to tell.
    let before = state::block();
    names::tell_of(fd, stat, &file);
    state::tell_in_time_or_not(&Request::Ready { space: state::space(), file: Some(number) });
    state::unblock(&before);
    file
}

/// The file behind a descriptor was given a name. If it is guarded since now, the supervisor is
/// told what this program has of it.
pub(crate) fn named(fd: BorrowedFd<'_>) {
    let Ok(stat) = fstat(fd) else { return };
    if !regular(&stat) {
        return;
    }
    let _uncancelled = Uncancelled::begin();
    match state::ask(&Request::Named { space: state::space() }, Some(fd)) {
        Ok((Answer::Taken { file }, _)) => {
            taken(fd, file, &stat);
        }
        Ok(_) | Err(Refusal::Late) => {}
        Err(_) => state::ledger().lose(),
    }
}

/// Whether a descriptor may be written through.
pub(crate) fn is_writable(fd: BorrowedFd<'_>) -> bool {
    fcntl_getfl(fd).is_ok_and(|flags| {
        !flags.contains(OFlags::PATH) && (flags & OFlags::RWMODE) != OFlags::RDONLY
    })
}

/// Attaches the board of a file, in place of that of an earlier one with its number.
fn attach(number: u32, turn: u64) {
    let Some(slot) = BOARDS.get(number as usize) else { return };
    let _quiet = Quiet::take();
    if Held::of(number, turn).is_some() {
        return;
    }
    let Some(board) = ask_for(number) else {
        state::ledger().lose();
        return;
    };
    let old = slot.state.swap(NONE, Ordering::SeqCst) == HERE;
    if old && slot.users.load(Ordering::SeqCst) == 0 {
        // SAFETY: it was there, nobody uses it, and nobody will: the state says so. Its descriptor
        // is closed already, so only the mapping goes.
        let board = unsafe { (*slot.board.get()).assume_init_read() };
        board.unmap();
    }
    // SAFETY: under the lock, and nobody reads before the state says so. One that is still in use
    // stays mapped for ever.
    unsafe { (*slot.board.get()).write(board) };
    slot.turn.store(turn, Ordering::SeqCst);
    slot.state.store(HERE, Ordering::SeqCst);
}

fn ask_for(number: u32) -> Option<Board> {
    let (answer, file) = state::ask(&Request::Board { file: number }, None).ok()?;
    let Answer::Guarded { .. } = answer else { return None };
    let board = Board::attach(file?).ok()?;
    // The mapping is all that is used of it.
    // SAFETY: a descriptor that belongs to the board, which does not use it any more, and which is
    // never dropped, so nobody closes it again.
    unsafe { rustix::io::close(board.file().as_fd().as_raw_fd()) };
    Some(board)
}

impl Guarded {
    /// Says that `[at, at + len)` is about to be changed otherwise than by a write to the file: by
    /// the kernel, through a mapping. Safe under the lock.
    #[inline(always)]
    pub(crate) fn change(&self, at: u64, len: u64) -> Change {
        self.change_from(leaps::stack(), at, len)
    }

    /// The same, by a caller whose caller stood at `began` on its stack, and goes on there.
    pub(crate) fn change_from(&self, began: usize, at: u64, len: u64) -> Change {
        self.open(began, at, len, None)
    }

    /// Says that `[at, at + len)` is about to be written, until the value is dropped.
    #[inline(always)]
    pub(crate) fn announce(&self, at: u64, len: u64) -> Announced {
        state::ledger().begin(self.number, self.turn);
        Announced(self.open(leaps::stack(), at, len, Some((self.number, self.turn))))
    }

    fn open(&self, began: usize, at: u64, len: u64, write: Option<(u32, u64)>) -> Change {
        let tracked = !state::untracked();
        let held = if tracked { Held::of(self.number, self.turn) } else { None };
        if tracked && held.is_none() {
            state::ledger().lose();
        }
        let open = held.as_ref().map(|held| held.board().open(at, len));
        Change(Kept::new(UnderWay { open, write, _held: held }, began))
    }
}

impl Change {
    /// Says what was changed after all.
    pub(crate) fn narrow(&mut self, at: u64, len: u64) {
        if let Some(open) = self.0.get().and_then(|what| what.open.as_mut()) {
            open.narrow(at, len);
        }
    }
}

impl Announced {
    /// Says what was written after all.
    pub(crate) fn narrow(&mut self, at: u64, len: u64) {
        self.0.narrow(at, len);
    }
}
