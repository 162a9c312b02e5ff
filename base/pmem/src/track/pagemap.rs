//! `/proc/PID/pagemap`: which pages of a process were stored to, told and forgotten in one step.
//!
//! Works on any process whose memory the caller may look at: its own, one it guards, or one that
//! only keeps the page tables of a dead program alive. Three traps, met by how it is called here:
//!
//! - A scan that ends with an error has cleared bits that it does not count. So scans never ask to
//!   fail at a mapping that is not tracked: such mappings are passed over, and whoever needs to
//!   know asks [`all_tracked`](Pagemap::all_tracked) *after* the scan.
//! - Addresses where nothing is mapped are passed over as well: they look as if nothing had been
//!   stored to. [`maps`](super::maps) knows better. So does all of a process that has ended, on
//!   some kernels: whether it has is asked after each scan, and is an error.
//! - Pages that were never protected count as stored to on some kernels and not on others. Only
//!   what was protected since it was registered has an answer worth having.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use super::error::TrackError;
use crate::call::ask;
use crate::medium::PAGE;

/// Category: the page was stored to since it was protected.
const WRITTEN: u64 = 1 << 1;
/// Category: the mapping is tracked asynchronously.
const TRACKED: u64 = 1 << 0;
/// Categories: the page table has the page, in memory or swapped out.
const TOUCHED: u64 = 1 << 3 | 1 << 4;
/// Flag: protect what matches.
const PROTECT_MATCHING: u64 = 1;
/// Flag: fail at a mapping that is not tracked asynchronously.
const REFUSE_UNTRACKED: u64 = 2;

/// Bit of an entry: present in memory; swapped out (or on its way to another place).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// Bit of an entry: stored to since the soft-dirty bits were cleared.
const SOFT_DIRTY: u64 = 1 << 55;

/// A run of pages, as the kernel tells it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

#[repr(C)]
#[derive(Default)]
struct Request {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    /// Out: where the kernel stopped, the list being full or the range ended.
    walk_end: u64,
    list: u64,
    list_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_any: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, Request)`.
const SCAN: u64 = 3 << 30 | (size_of::<Request>() as u64) << 16 | (b'f' as u64) << 8 | 16;

/// Runs told by one call of the kernel.
const RUNS: usize = 1024;

/// Room for the kernel's answers, to be used again. Zeros between calls.
#[derive(Debug)]
pub struct Room(Box<[Region]>);

impl Room {
    /// Room for as many runs as one call tells.
    #[must_use]
    pub fn new() -> Self {
        Self(vec![Region::default(); RUNS].into_boxed_slice())
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::new()
    }
}

/// What a scan does with the pages it tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// Leaves them as they are.
    Peek,
    /// Protects them again, each in one step with being told: no store falls between.
    Take,
}

/// The page map of one process.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    /// It is of this process, which lives.
    own: bool,
}

impl Pagemap {
    /// That of this process.
    ///
    /// # Errors
    /// `/proc` is missing.
    pub fn own() -> Result<Self, TrackError> {
        Self::open("/proc/self/pagemap", true)
    }

    /// That of a process, by its number. It stays with the address space the process has now, as
    /// long as any process has it; after that every scan fails.
    ///
    /// # Errors
    /// [`TrackError::NoPermission`] if the process is not ours to look at, or there is none.
    pub fn of(process: u32) -> Result<Self, TrackError> {
        Self::open(&format!("/proc/{process}/pagemap"), false)
    }

    fn open(path: &str, own: bool) -> Result<Self, TrackError> {
        let may = ask("open", Errno::MFILE).map_err(io::Error::from);
        match may.and_then(|()| File::open(path)) {
            Ok(file) => Ok(Self { file, own }),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(TrackError::NoPermission {
                    what: "reading the page map of another process",
                    remedy: "run as its user, and let it be traced (ptrace scope, set-uid)",
                })
            }
            Err(source) => Err(TrackError::Io { call: "opening /proc/PID/pagemap", source }),
        }
    }

    /// Tells the runs `[start, end)` of pages of the tracked mappings in `[start, start + len)`,
    /// whole pages, that were stored to since they were protected.
    ///
    /// # Errors
    /// [`TrackError::KernelLacks`]. What was told until then is all that was cleared.
    pub fn written(
        &self,
        start: usize,
        len: u64,
        scan: Scan,
        room: &mut Room,
        each: &mut dyn FnMut(usize, usize),
    ) -> Result<(), TrackError> {
        let end = start as u64 + len;
        let mut from = start as u64;
        while from < end {
            let mut request = Request {
                flags: if scan == Scan::Take { PROTECT_MATCHING } else { 0 },
                start: from,
                end,
                category_mask: WRITTEN,
                return_mask: WRITTEN,
                ..Request::default()
            };
            let told = self.call(&mut request, &mut room.0);
            // Also after an error: runs that are in the list are cleared, counted or not.
            for run in room.0.iter_mut().take_while(|run| run.end > run.start) {
                each(run.start as usize, run.end as usize);
                *run = Region::default();
            }
            told.map_err(failed)?;
            // A kernel that does not say how far it came has come to the end.
            from = if request.walk_end > from { request.walk_end } else { end };
        }
        Ok(())
    }

    /// Tells the runs `[start, end)` of pages in `[start, start + len)`, whole pages, that the page
    /// table has. Allocates nothing.
    ///
    /// # Errors
    /// [`TrackError::KernelLacks`].
    pub fn touched(
        &self,
        start: usize,
        len: u64,
        each: &mut dyn FnMut(usize, usize),
    ) -> Result<(), TrackError> {
        let end = start as u64 + len;
        let mut from = start as u64;
        while from < end {
            let mut list = [Region::default(); 32];
            let mut request = Request {
                start: from,
                end,
                category_any: TOUCHED,
                return_mask: TOUCHED,
                ..Request::default()
            };
            self.call(&mut request, &mut list).map_err(failed)?;
            for run in list.iter().take_while(|run| run.end > run.start) {
                each(run.start as usize, run.end as usize);
            }
            from = if request.walk_end > from { request.walk_end } else { end };
        }
        Ok(())
    }

    /// Whether every mapping that lies in `[start, start + len)` is tracked asynchronously. Says
    /// nothing of addresses where nothing is mapped. Looks at no page, so it is cheap.
    ///
    /// # Errors
    /// [`TrackError::KernelLacks`].
    pub fn all_tracked(&self, start: usize, len: u64) -> Result<bool, TrackError> {
        let mut request = Request {
            flags: REFUSE_UNTRACKED,
            start: start as u64,
            end: start as u64 + len,
            // Only what is not tracked would be of interest, and that is refused before.
            category_inverted: TRACKED,
            category_mask: TRACKED,
            return_mask: TRACKED,
            ..Request::default()
        };
        match self.call(&mut request, &mut [Region::default()]) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    fn call(&self, request: &mut Request, list: &mut [Region]) -> io::Result<()> {
        ask("ioctl", Errno::IO)?;
        request.size = size_of::<Request>() as u64;
        request.list = list.as_mut_ptr() as u64;
        request.list_len = list.len() as u64;
        // SAFETY: the request names its own size and a list of exactly `list_len` regions, both of
        // which live across the call. Protecting is asynchronous (`PROTECT_MATCHING` passes over
        // everything else), so it stops no access of anybody.
        let told =
            unsafe { libc::ioctl(self.file.as_raw_fd(), SCAN, core::ptr::from_mut(request)) };
        if told < 0 {
            return Err(io::Error::last_os_error());
        }
        self.lives(request.start)
    }

    /// An error if nobody has the address space any more. Some kernels (6.18 is one) scan what is
    /// left of it, and find that nothing was stored to; of its entries none of them tells one.
    fn lives(&self, address: u64) -> io::Result<()> {
        let from = address / PAGE * size_of::<u64>() as u64;
        if self.own || self.file.read_at(&mut [0; size_of::<u64>()], from)? > 0 {
            return Ok(());
        }
        Err(Errno::SRCH.into())
    }

    /// Reads what the map says of the pages from `address` on, one by one. Allocates nothing.
    ///
    /// # Errors
    /// What the system said.
    pub fn entries(&self, address: usize, into: &mut [Entry]) -> Result<(), TrackError> {
        let failed = |source| TrackError::Io { call: "reading /proc/PID/pagemap", source };
        let from = address as u64 / PAGE * size_of::<u64>() as u64;
        // SAFETY: an entry is a word, any of whose values is valid, so a slice of them is bytes.
        let bytes =
            unsafe { core::slice::from_raw_parts_mut(into.as_mut_ptr().cast(), size_of_val(into)) };
        self.file.read_exact_at(bytes, from).map_err(failed)?;
        Ok(())
    }
}

fn failed(source: io::Error) -> TrackError {
    match source.raw_os_error() {
        // ENOTTY: no such call.
        Some(libc::ENOTTY | libc::EINVAL) => {
            TrackError::KernelLacks { what: "scan of page maps (PAGEMAP_SCAN)", since: "Linux 6.7" }
        }
        _ => TrackError::Io { call: "ioctl(PAGEMAP_SCAN)", source },
    }
}

/// What the map says of one page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Entry(u64);

impl Entry {
    /// Whether the page table knows the page at all. Of one that it does not know, any bit that was
    /// set is lost.
    #[must_use]
    pub fn known(self) -> bool {
        self.0 & (PRESENT | SWAPPED) != 0
    }

    /// Whether its soft-dirty bit is set.
    #[must_use]
    pub fn soft_dirty(self) -> bool {
        self.0 & SOFT_DIRTY != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_kernels() {
        assert_eq!(SCAN, 0xc060_6610);
        assert_eq!(size_of::<Region>(), 24);
    }

    #[test]
    fn a_page_that_was_touched_is_known() {
        let page = Box::new([1_u8; 2 * PAGE as usize]);
        let inside = core::hint::black_box(&*page).as_ptr() as usize;
        let mut found = [Entry::default(); 1];
        let map = Pagemap::own().unwrap();
        map.entries(inside.next_multiple_of(PAGE as usize), &mut found).unwrap();
        assert!(found[0].known());
        let first = inside.next_multiple_of(PAGE as usize);
        let mut runs = Vec::new();
        map.touched(first, PAGE, &mut |start, end| runs.push((start, end))).unwrap();
        assert_eq!(runs, [(first, first + PAGE as usize)]);
        // SAFETY: a new mapping, which nobody else knows.
        let fresh = unsafe {
            let (rights, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(core::ptr::null_mut(), PAGE as usize, rights, flags, -1, 0)
        };
        assert_ne!(fresh, libc::MAP_FAILED);
        map.touched(fresh as usize, PAGE, &mut |_, _| panic!("nobody touched it")).unwrap();
        assert!(!Entry(0).known() && !Entry(1 << 56).soft_dirty());
        assert!(Entry(1 << 62).known() && Entry(1 << 63 | 1 << 55).soft_dirty());
    }
}
