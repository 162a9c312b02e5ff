//! Which files are guarded: a page or two of memory shared with every guarded program, so that
//! most system calls are answered "none of ours" without asking anybody.
//!
//! The supervisor writes the entries, and who stands while a page is replaced, and reads back
//! nothing but counters: of what was lost and of rings, where more makes it more careful, of writes
//! that were announced and are over, and of files that nobody could ask about. Nobody
//! keeps a guarded program from writing here: one that takes a file out of the list has others
//! write to it unannounced, and one that counts writes that never were may excuse such a write. So
//! the programs of one guard have to trust each other; strangers cannot reach this memory.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use self::entries::Entry;
use crate::message::{MOST_FILES, VERSION};

mod entries;

/// The words that ship.
mod words {
    pub(super) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

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
    /// Files that were opened for writing, are not in the list, and could not be asked about.
    unasked: AtomicU64,
}

/// Most processes that are noted to stand; others are not made to go on.
const MOST_STANDING: usize = 1023;

/// Processes that are stopped while a page is replaced, parents before their children.
#[repr(C, align(64))]
struct Standing {
    count: AtomicU32,
    processes: [AtomicU32; MOST_STANDING],
}

#[repr(C)]
struct Sheet {
    head: Head,
    entries: [Entry; MOST_FILES as usize],
    standing: Standing,
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
        // Turns are counted from 1.
        (0..MOST_FILES).for_each(|file| ledger.leave(file));
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
        entry.enter(device, inode);
        self.sheet().head.used.fetch_max(file + 1, Ordering::SeqCst);
        true
    }

    /// A file is about to be let go of. Who writes still finds it, and announces that; who opens it
    /// finds that it has to ask.
    pub fn leaving(&self, file: u32) {
        if let Some(entry) = self.entry(file) {
            entry.leaving();
        }
    }

    /// It stays, as if nothing had been.
    pub fn stay(&self, file: u32) {
        if let Some(entry) = self.entry(file) {
            entry.show();
        }
    }

    /// Takes a file out: from now on nobody finds it, and its number is that of the next.
    pub fn leave(&self, file: u32) {
        if let Some(entry) = self.entry(file) {
            entry.leave();
        }
    }

    /// How many files had a number until now: another value is another file.
    #[must_use]
    pub fn turn(&self, file: u32) -> u64 {
        self.entry(file).map_or(0, Entry::turn)
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
        (0..used.min(MOST_FILES))
            .find_map(|file| self.entry(file)?.find(device, inode).map(|turn| (file, turn)))
    }

    /// Whether the file that has a number in a turn stays: one that does not is about to be let go
    /// of, and whoever opened it asks about it.
    #[must_use]
    pub fn stays(&self, file: u32, turn: u64) -> bool {
        self.entry(file).is_some_and(|entry| entry.stays(turn))
    }

    /// The numbers of all files that are guarded now, those included that are about to be let go
    /// of.
    pub fn files(&self) -> impl Iterator<Item = u32> {
        let used = self.sheet().head.used.load(Ordering::Acquire);
        (0..used.min(MOST_FILES)).filter(|file| self.entry(*file).is_some_and(Entry::is_there))
    }

    /// Says that a write was announced, before it begins, to the file that has a number in a turn.
    pub fn begin(&self, file: u32, turn: u64) {
        if let Some(entry) = self.entry(file) {
            entry.begin(turn);
        }
    }

    /// Says that it is over.
    pub fn end(&self, file: u32, turn: u64) {
        if let Some(entry) = self.entry(file) {
            entry.end(turn);
        }
    }

    /// Writes announced so far, and those that are over.
    #[must_use]
    pub fn announced(&self, file: u32) -> (u64, u64) {
        self.entry(file).map_or((0, 0), Entry::announced)
    }

    /// Says that a process is about to be stopped, so that it is made to go on if the supervisor
    /// dies before it does so. The supervisor alone says so, and from one thread.
    pub fn stops(&self, process: u32) {
        let Standing { count, processes } = &self.sheet().standing;
        let noted = count.load(Ordering::SeqCst);
        if let Some(slot) = processes.get(noted as usize) {
            slot.store(process, Ordering::SeqCst);
            count.store(noted + 1, Ordering::SeqCst);
        }
    }

    /// Says that nobody stands any more.
    pub fn all_go_on(&self) {
        self.sheet().standing.count.store(0, Ordering::SeqCst);
    }

    /// The processes that stand, the last one first. Allocates nothing, and calls nobody.
    pub fn standing(&self) -> impl Iterator<Item = u32> {
        let Standing { count, processes } = &self.sheet().standing;
        let noted = (count.load(Ordering::SeqCst) as usize).min(MOST_STANDING);
        let noted = processes.iter().take(noted).rev();
        noted.map(|process| process.load(Ordering::SeqCst))
    }

    /// Says that something happened which could not be told.
    pub fn lose(&self) {
        self.sheet().head.lost.fetch_add(1, Ordering::SeqCst);
    }

    /// Says that a program could not ask about a file that it opened for writing, and that is not
    /// in the list: so it is not guarded, and nothing of another file went unseen.
    pub fn unasked(&self) {
        self.sheet().head.unasked.fetch_add(1, Ordering::SeqCst);
    }

    /// How often that was.
    #[must_use]
    pub fn times_unasked(&self) -> u64 {
        self.sheet().head.unasked.load(Ordering::SeqCst)
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
    use super::entries::{count, none_of};
    use super::*;

    #[test]
    fn programs_find_what_was_entered() {
        let ledger = Ledger::create().unwrap();
        let seen = Ledger::attach(ledger.file().unwrap()).unwrap();
        assert_eq!(seen.find(1, 2), None);
        assert!(ledger.enter(0, 1, 1) && ledger.enter(7, 1, 2) && !ledger.enter(MOST_FILES, 1, 3));
        assert_eq!((seen.find(1, 2), seen.find(2, 2), seen.find(0, 0)), (Some(7), None, None));
        assert_eq!(seen.files().collect::<Vec<_>>(), [0, 7]);
        seen.begin(7, seen.turn(7));
        seen.end(u32::MAX, 1);
        seen.lose();
        assert_eq!((ledger.announced(7), ledger.lost()), ((1, 0), 1));
        seen.unasked();
        assert_eq!((ledger.times_unasked(), ledger.lost()), (1, 1));
        // The same number for another file: who knew the first one sees it.
        let turn = seen.turn(7);
        assert_eq!(seen.find_turn(1, 2), Some((7, turn)));
        assert!(seen.stays(7, turn) && !seen.stays(7, turn + 1));
        ledger.leaving(7);
        assert_eq!(seen.find_turn(1, 2), Some((7, turn)), "who has it open goes on announcing");
        assert!(!seen.stays(7, turn), "who opens it asks");
        assert_eq!(seen.files().collect::<Vec<_>>(), [0, 7], "who syncs all waits for it");
        ledger.stay(7);
        assert!(seen.stays(7, turn));
        ledger.leave(7);
        assert!(seen.find(1, 2).is_none() && !seen.stays(7, turn));
        assert!(ledger.enter(7, 1, 9) && seen.find(1, 2).is_none());
        assert_eq!(seen.find_turn(1, 9), Some((7, turn + 1)));
    }

    #[test]
    fn numbers_beyond_the_last_are_nobodys_and_other_files_are_no_ledgers() {
        let ledger = Ledger::create().unwrap();
        assert!(ledger.enter(0, 1, 1));
        for file in [MOST_FILES, u32::MAX] {
            ledger.leaving(file);
            ledger.stay(file);
            ledger.begin(file, 1);
            ledger.end(file, 1);
            ledger.leave(file);
            assert_eq!((ledger.turn(file), ledger.stays(file, 0)), (0, false));
        }
        assert_eq!(ledger.files().collect::<Vec<_>>(), [0]);
        let made = |bytes: usize, seals: SealFlags| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = memfd_create("holdfast-test", flags).unwrap();
            ftruncate(&file, bytes as u64).unwrap();
            fcntl_add_seals(&file, seals).unwrap();
            file
        };
        let sealed = SealFlags::SHRINK | SealFlags::GROW;
        let others = [
            (made(BYTES, SealFlags::GROW), "it could become shorter"),
            (made(BYTES - 1, sealed), "it is shorter"),
            (made(BYTES, sealed), "there is nothing in it"),
        ];
        for (file, what) in others {
            let refused = Ledger::attach(file.as_fd()).map(|_| ()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{what}");
        }
    }

    /// A write whose number became that of another file meanwhile leaves that one's counts alone.
    #[test]
    fn no_write_counts_for_another_file_than_its_own() {
        let ledger = Ledger::create().unwrap();
        assert!(ledger.enter(3, 1, 1));
        let turn = ledger.turn(3);
        ledger.begin(3, turn);
        assert_eq!(ledger.announced(3), (1, 0));
        ledger.leave(3);
        assert_eq!(ledger.announced(3), (0, 0), "counted from 0 before the next is entered");
        assert!(ledger.enter(3, 1, 2));
        ledger.end(3, turn);
        assert_eq!(ledger.announced(3), (0, 0));
        ledger.begin(3, turn + 1);
        ledger.end(3, turn + 1);
        assert_eq!(ledger.announced(3), (1, 1));
        // Turns are told apart by their low bits, and counts never run over into them.
        let counter = AtomicU64::new(none_of(5) | !none_of(u64::MAX));
        count(&counter, 5);
        assert_eq!(counter.load(Ordering::SeqCst), none_of(5));
    }

    #[test]
    fn who_stands_is_known_to_all() {
        let ledger = Ledger::create().unwrap();
        let seen = Ledger::attach(ledger.file().unwrap()).unwrap();
        assert_eq!(seen.standing().count(), 0);
        [7, 5, 9].into_iter().for_each(|process| ledger.stops(process));
        assert_eq!(seen.standing().collect::<Vec<_>>(), [9, 5, 7]);
        ledger.all_go_on();
        assert_eq!(seen.standing().count(), 0);
        (0..2 * MOST_STANDING as u32).for_each(|process| ledger.stops(process));
        assert_eq!(seen.standing().count(), MOST_STANDING);
        // Whatever another program wrote there.
        ledger.sheet().standing.count.store(u32::MAX, Ordering::SeqCst);
        assert_eq!(seen.standing().count(), MOST_STANDING);
        ledger.stops(3);
        assert_eq!(seen.standing().next(), Some(MOST_STANDING as u32 - 1));
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
