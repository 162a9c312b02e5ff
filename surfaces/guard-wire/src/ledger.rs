//! Which files are guarded: a page or two of memory shared with every guarded program, so that
//! most system calls are answered "none of ours" without asking anybody.
//!
//! The supervisor writes the entries and believes nothing it reads here but four counters, each
//! of which can only make it more careful.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::message::{MOST_FILES, VERSION};

const MAGIC: u64 = u64::from_le_bytes(*b"hfledger");

#[repr(C, align(64))]
struct Head {
    magic: AtomicU64,
    version: AtomicU64,
    /// Entries that were ever used.
    used: AtomicU32,
    /// Things a program could not tell.
    lost: AtomicU64,
    /// Rings of the kernel's that were asked for.
    rings: AtomicU64,
}

#[repr(C, align(64))]
struct Entry {
    /// Whether the rest is valid.
    live: AtomicU32,
    /// How many files had this number, the present one included.
    turn: AtomicU64,
    device: AtomicU64,
    inode: AtomicU64,
    /// Writes announced, and those that are over.
    began: AtomicU64,
    ended: AtomicU64,
}

#[repr(C)]
struct Sheet {
    head: Head,
    entries: [Entry; MOST_FILES as usize],
}

const BYTES: usize = size_of::<Sheet>().next_multiple_of(4096);

/// The list of guarded files.
#[derive(Debug)]
pub struct Ledger {
    sheet: NonNull<Sheet>,
    file: Option<OwnedFd>,
}

// SAFETY: all of the shared memory is atomics; the rest never changes.
unsafe impl Send for Ledger {}
// SAFETY: as above.
unsafe impl Sync for Ledger {}

impl Ledger {
    /// An empty list.
    ///
    /// # Errors
    /// What the system said.
    pub fn create() -> io::Result<Self> {
        let file =
            memfd_create("holdfast-ledger", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, BYTES as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mut ledger = Self::map(file.as_fd())?;
        ledger.sheet().head.version.store(VERSION.into(), Ordering::Relaxed);
        ledger.sheet().head.magic.store(MAGIC, Ordering::Release);
        ledger.file = Some(file);
        Ok(ledger)
    }

    /// The list behind a descriptor from the supervisor, which can be closed afterwards. Allocates
    /// nothing unless it fails.
    ///
    /// # Errors
    /// It is none of this version.
    pub fn attach(file: BorrowedFd<'_>) -> io::Result<Self> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        let sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        let size = usize::try_from(fstat(file)?.st_size).unwrap_or(0);
        if !sealed || size != BYTES {
            return Err(wrong());
        }
        let ledger = Self::map(file)?;
        let head = &ledger.sheet().head;
        let known = head.magic.load(Ordering::Acquire) == MAGIC
            && head.version.load(Ordering::Relaxed) == u64::from(VERSION);
        if known { Ok(ledger) } else { Err(wrong()) }
    }

    fn map(file: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: a new mapping wherever the kernel likes.
        let base = unsafe {
            mmap(
                core::ptr::null_mut(),
                BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        let sheet = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { sheet, file: None })
    }

    fn sheet(&self) -> &Sheet {
        // SAFETY: the mapping is as long as a sheet, page-aligned, cannot shrink (sealed) and
        // lives as long as `self`; every bit pattern is a valid value of atomics.
        unsafe { self.sheet.as_ref() }
    }

    fn entry(&self, file: u32) -> Option<&Entry> {
        self.sheet().entries.get(file as usize)
    }

    /// What a program needs to attach; `None` where it was attached itself.
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Enters a file; false if there is no such number.
    pub fn enter(&self, file: u32, device: u64, inode: u64) -> bool {
        let Some(entry) = self.entry(file) else { return false };
        // Who reads it meanwhile finds another turn at the end than at the beginning.
        entry.live.store(0, Ordering::SeqCst);
        entry.turn.fetch_add(1, Ordering::SeqCst);
        entry.device.store(device, Ordering::SeqCst);
        entry.inode.store(inode, Ordering::SeqCst);
        // Nobody writes to the one before any more, or it would not have been let go of.
        entry.ended.store(0, Ordering::SeqCst);
        entry.began.store(0, Ordering::SeqCst);
        entry.live.store(1, Ordering::SeqCst);
        self.sheet().head.used.fetch_max(file + 1, Ordering::SeqCst);
        true
    }

    /// Takes a file out: from now on nobody finds it.
    pub fn leave(&self, file: u32) {
        if let Some(entry) = self.entry(file) {
            entry.live.store(0, Ordering::SeqCst);
        }
    }

    /// Takes one in again that was just taken out, as if it had not been.
    pub fn stay(&self, file: u32) {
        if let Some(entry) = self.entry(file) {
            entry.live.store(1, Ordering::SeqCst);
        }
    }

    /// How many files had a number until now: another value is another file.
    #[must_use]
    pub fn turn(&self, file: u32) -> u64 {
        self.entry(file).map_or(0, |entry| entry.turn.load(Ordering::SeqCst))
    }

    /// The number under which a file is guarded.
    #[must_use]
    pub fn find(&self, device: u64, inode: u64) -> Option<u32> {
        self.find_turn(device, inode).map(|(file, _)| file)
    }

    /// The same, and its turn.
    #[must_use]
    pub fn find_turn(&self, device: u64, inode: u64) -> Option<(u32, u64)> {
        let used = self.sheet().head.used.load(Ordering::Acquire);
        (0..used.min(MOST_FILES)).find_map(|file| {
            let entry = self.entry(file)?;
            let turn = entry.turn.load(Ordering::SeqCst);
            let same = entry.live.load(Ordering::SeqCst) == 1
                && entry.inode.load(Ordering::SeqCst) == inode
                && entry.device.load(Ordering::SeqCst) == device;
            (same && entry.turn.load(Ordering::SeqCst) == turn).then_some((file, turn))
        })
    }

    /// Says that a write was announced, before it begins.
    pub fn begin(&self, file: u32) {
        if let Some(entry) = self.entry(file) {
            entry.began.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Says that it is over.
    pub fn end(&self, file: u32) {
        if let Some(entry) = self.entry(file) {
            entry.ended.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Writes announced so far, and those that are over.
    #[must_use]
    pub fn announced(&self, file: u32) -> (u64, u64) {
        // The second first: what is over has begun.
        self.entry(file).map_or((0, 0), |entry| {
            let ended = entry.ended.load(Ordering::SeqCst);
            (entry.began.load(Ordering::SeqCst), ended)
        })
    }

    /// Says that something happened which could not be told.
    pub fn lose(&self) {
        self.sheet().head.lost.fetch_add(1, Ordering::SeqCst);
    }

    /// Says that a program asks for a ring, by which it may write unseen.
    pub fn ring(&self) {
        self.sheet().head.rings.fetch_add(1, Ordering::SeqCst);
    }

    /// How often that was.
    #[must_use]
    pub fn rings(&self) -> u64 {
        self.sheet().head.rings.load(Ordering::SeqCst)
    }

    /// How often something could not be told.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sheet().head.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; nothing refers to it any more.
        let _ = unsafe { munmap(self.sheet.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_find_what_was_entered() {
        let ledger = Ledger::create().unwrap();
        let seen = Ledger::attach(ledger.file().unwrap()).unwrap();
        assert_eq!(seen.find(1, 2), None);
        assert!(ledger.enter(0, 1, 1) && ledger.enter(7, 1, 2) && !ledger.enter(MOST_FILES, 1, 3));
        assert_eq!((seen.find(1, 2), seen.find(2, 2), seen.find(0, 0)), (Some(7), None, None));
        seen.begin(7);
        seen.end(u32::MAX);
        seen.lose();
        assert_eq!((ledger.announced(7), ledger.lost()), ((1, 0), 1));
        // The same number for another file: who knew the first one sees it.
        let turn = seen.turn(7);
        assert_eq!(seen.find_turn(1, 2), Some((7, turn)));
        ledger.leave(7);
        assert_eq!(seen.find(1, 2), None);
        ledger.stay(7);
        assert_eq!(seen.find_turn(1, 2), Some((7, turn)));
        ledger.leave(7);
        assert!(ledger.enter(7, 1, 9) && seen.find(1, 2).is_none());
        assert_eq!(seen.find_turn(1, 9), Some((7, turn + 1)));
    }

    #[test]
    fn what_is_no_ledger_is_refused() {
        let file = memfd_create("no", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(Ledger::attach(file.as_fd()).is_err());
        ftruncate(&file, BYTES as u64).unwrap();
        assert!(Ledger::attach(file.as_fd()).is_err(), "it could be cut off");
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert!(Ledger::attach(file.as_fd()).is_err(), "it says nothing");
    }
}
