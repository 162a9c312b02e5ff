//! Dirty source (a): asynchronous write protection. Stores lift it, a scan tells and renews it.
//!
//! Nothing of the program changes and nothing waits; the first store to a page after it was taken
//! costs about a microsecond, later ones nothing. The bits live in the page tables: they die with
//! the address space, and know nothing of writes that go round it.
//!
//! What a moved, replaced or unmapped piece takes with it is noticed rather than prevented: such
//! pages count as stored to, and as not intact, until they are armed again.

use core::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::bar::Bar;
use super::bits::{PageBits, Runs};
use super::direct;
use super::error::TrackError;
use super::maps::Vma;
use super::pagemap::{Pagemap, Room, Scan};
use super::span::{Forks, Place, Span, address};
use super::uffd::Uffd;
use super::{DirtySource, Observed, SourceKind, WriteWay};
use crate::handler;
use crate::mapped::Mapped;
use crate::medium::PAGE;

/// Tracks the stores of this process through one mapping of a file.
///
/// ```
/// use holdfast_pmem::track::{AsyncProtect, DirtySource, Forks, TrackError};
/// use holdfast_pmem::{Mapped, Medium, Options, Site};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let medium = Mapped::create(&folder.path().join("bytes"), 1 << 20, &Options::default())?;
/// let source = match AsyncProtect::of(&medium) {
///     Err(TrackError::KernelLacks { .. } | TrackError::NoPermission { .. }) => return Ok(()),
///     source => source?,
/// };
/// source.arm(0, 1 << 20)?;
/// source.take(0, 1 << 20, &mut |_, _| {})?; // the first take tells everything
/// medium.put(Site::new("example.put"), 8192, b"kept")?;
/// let mut dirty = Vec::new();
/// source.take(0, 1 << 20, &mut |at, len| dirty.push((at, len)))?;
/// assert_eq!(dirty, [(8192, 4096)]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncProtect {
    place: Place,
    forks: Forks,
    uffd: Uffd,
    pagemap: Pagemap,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    armed: PageBits,
    /// Armed, and not taken since.
    fresh: PageBits,
    /// What one call tells; clear between calls.
    told: PageBits,
    /// From the first page ever armed to the last: registered as one piece, where it can be.
    hull: Range<u64>,
    room: Room,
}

/// What a scan does about pages whose tracking was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// It tells them.
    Told,
    /// Nothing: whoever scans asks for them once he has scanned everything.
    AskedLater,
}

impl AsyncProtect {
    /// A source over the addresses of a span, which show this file through a shared mapping.
    ///
    /// # Errors
    /// A [`TrackError`] that names cause and remedy. Files on persistent memory without a page
    /// cache ([`is_direct`](super::is_direct)) are refused: who stores there would not go on.
    pub fn new(span: Span, file: BorrowedFd<'_>, forks: Forks) -> Result<Self, TrackError> {
        direct::refuse(file)?;
        let place = Place::find(span)?;
        let uffd = Uffd::open()?;
        let pagemap = Pagemap::own()?;
        // A kernel without the call says so now, not in the first pass.
        pagemap.all_tracked(span.address, span.len)?;
        let state = State {
            armed: PageBits::new(),
            fresh: PageBits::new(),
            told: PageBits::new(),
            hull: 0..0,
            room: Room::new(),
        };
        Ok(Self { place, forks, uffd, pagemap, state: Mutex::new(state) })
    }

    /// A source over a medium's mapping, and as far as that may grow. Forked children have nothing
    /// of it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of(medium: &Mapped) -> Result<Self, TrackError> {
        let span = Span::new(medium.store_base(), medium.status().reserved, 0)?;
        Self::new(span, medium.backing().fd(), Forks::Excluded)
    }

    /// What is tracked.
    #[must_use]
    pub fn span(&self) -> Span {
        self.place.span
    }

    /// Holds up the stores to the page at `at` of the file, which is mapped. Those that came before
    /// show in the next [`peek`](DirtySource::peek).
    ///
    /// # Errors
    /// A [`TrackError`]: the page is not tracked, or its rights cannot be changed.
    pub fn bar(&self, at: u64) -> Result<Bar, TrackError> {
        self.place.mine()?;
        let page = self.place.span.pages_of(at, PAGE)?.start;
        let address = self.place.span.address_of(page);
        if !self.all_intact(&[(at, PAGE)]) {
            let why = "it is not the page that was tracked any more";
            return Err(TrackError::NotTrackable { address, len: PAGE, why });
        }
        handler::install().map_err(|source| TrackError::Io { call: "sigaction", source })?;
        // SAFETY: a page of the mapping that is tracked, as was just asked; whoever unmaps it or
        // changes its rights meanwhile could as well do so at any other time.
        unsafe { Bar::close(address, true) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pages of a range, all of them inside the span, whose tracking was lost.
    fn lost(&self, pages: Range<u64>) -> Result<Option<PageBits>, TrackError> {
        if pages.is_empty() {
            return Ok(None);
        }
        let start = self.place.span.address_of(pages.start);
        let len = self.place.span.address_of(pages.end) - start;
        // SAFETY: without a wish to write or to invalidate, the call only looks whether every page
        // of the range is mapped.
        let mapped = unsafe { libc::msync(address(start), len, libc::MS_ASYNC) } == 0;
        if mapped && self.pagemap.all_tracked(start, len as u64)? {
            return Ok(None);
        }
        self.look(pages).map(Some)
    }

    /// The same, mapping by mapping; also finds another file that is tracked by somebody else.
    fn look(&self, pages: Range<u64>) -> Result<PageBits, TrackError> {
        self.place.lost(pages, |vma| self.tracks(vma))
    }

    fn tracks(&self, vma: &Vma) -> bool {
        let span = self.place.span;
        // Only what overlaps the span is asked about.
        let start = vma.start.max(span.address);
        let end = vma.end.min(span.address + span.len as usize);
        self.pagemap.all_tracked(start, (end - start) as u64).unwrap_or(false)
    }

    fn register(&self, pages: &Range<u64>) -> Result<(), TrackError> {
        let span = self.place.span;
        self.place.ready(pages.clone(), self.forks)?;
        let (start, len) = (span.address_of(pages.start), (pages.end - pages.start) * PAGE);
        // Asked for a part of a large page, some kernels forget what was stored to the rest. Where
        // there are none, this fails, and nothing is to be kept out of them.
        // SAFETY: `ready` has just found a shared mapping of the file all over the range; the
        // advice changes how it is mapped, and no byte.
        unsafe { libc::madvise(address(start), len as usize, libc::MADV_NOHUGEPAGE) };
        self.uffd.register(start, len)
    }

    fn scan(
        &self,
        at: u64,
        len: u64,
        (scan, lost): (Scan, Lost),
        each: &mut dyn FnMut(u64, u64),
    ) -> Result<(), TrackError> {
        self.place.mine()?;
        let span = self.place.span;
        let pages = span.pages_of(at, len)?;
        let mut state = self.state();
        let State { armed, fresh, told, room, .. } = &mut *state;
        let mut armed_runs = Vec::new();
        let mut note = |at: u64, len: u64| armed_runs.push(at / PAGE..(at + len) / PAGE);
        let mut runs = Runs::new(0, &mut note);
        armed.tell(pages, &mut runs);
        runs.end();
        let mut ended = Ok(());
        for run in armed_runs.iter().cloned() {
            let start = span.address_of(run.start);
            let len = (run.end - run.start) * PAGE;
            ended = self.pagemap.written(start, len, scan, room, &mut |start, end| {
                told.set(span.pages_in(start..end));
            });
            // After the scan: what was lost before or during it told nothing.
            let gone = if lost == Lost::Told { self.lost(run.clone()) } else { Ok(None) };
            match gone {
                Ok(None) => {}
                Ok(Some(lost)) => told.join(&lost, run.clone()),
                Err(error) => ended = ended.and(Err(error)),
            }
            told.join(fresh, run);
            if ended.is_err() {
                break;
            }
        }
        let mut runs = Runs::new(span.at, each);
        for run in armed_runs {
            match (scan, &ended) {
                // Some may be cleared: they wait for a take that can tell them.
                (Scan::Take, Err(_)) => fresh.join(told, run.clone()),
                (Scan::Take, Ok(())) => fresh.clear(run.clone()),
                (Scan::Peek, _) => {}
            }
            if ended.is_ok() {
                told.tell(run.clone(), &mut runs);
            }
            told.clear(run);
        }
        runs.end();
        ended
    }
}

impl DirtySource for AsyncProtect {
    fn kind(&self) -> SourceKind {
        SourceKind::AsyncProtect
    }

    fn arm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        let span = self.place.span;
        let pages = span.pages_of(at, len)?;
        if pages.is_empty() {
            return Ok(());
        }
        let start = span.address_of(pages.start);
        let mut state = self.state();
        let hull = match state.hull.is_empty() {
            true => pages.clone(),
            false => state.hull.start.min(pages.start)..state.hull.end.max(pages.end),
        };
        // What lies between costs nothing, and the mapping stays in one piece: a file with holes
        // would have hundreds, and every question is asked of each.
        if self.register(&hull).is_ok() {
            state.hull = hull;
        } else {
            self.register(&pages)?;
        }
        self.uffd.protect(start, len)?;
        state.armed.set(pages.clone());
        state.fresh.set(pages);
        Ok(())
    }

    fn disarm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        self.place.mine()?;
        let span = self.place.span;
        let pages = span.pages_of(at, len)?;
        let mut state = self.state();
        state.armed.clear(pages.clone());
        state.fresh.clear(pages.clone());
        if pages.is_empty() {
            return Ok(());
        }
        // What was lost is not protected any more; what is left of it still is.
        match self.uffd.unprotect(span.address_of(pages.start), len) {
            Ok(()) | Err(TrackError::NotTrackable { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn take(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.scan(at, len, (Scan::Take, Lost::Told), each)
    }

    fn peek(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.scan(at, len, (Scan::Peek, Lost::Told), each)
    }

    fn peek_all(
        &self,
        ranges: &[(u64, u64)],
        each: &mut dyn FnMut(u64, u64),
    ) -> Result<bool, TrackError> {
        for (at, len) in ranges {
            self.scan(*at, *len, (Scan::Peek, Lost::AskedLater), each)?;
        }
        // Not before: what was lost before a scan or during it told nothing.
        Ok(self.all_intact(ranges))
    }

    fn intact(&self, at: u64, len: u64) -> bool {
        self.all_intact(&[(at, len)])
    }

    fn all_intact(&self, ranges: &[(u64, u64)]) -> bool {
        let span = self.place.span;
        let asked: Result<Vec<_>, _> =
            ranges.iter().map(|(at, len)| span.pages_of(*at, *len)).collect();
        let Ok(mut asked) = asked else { return false };
        asked.sort_unstable_by_key(|pages| pages.start);
        // One reading of the list of mappings answers for all of them.
        self.place.mine().is_ok()
            && asked.iter().all(|pages| self.state().armed.all(pages.clone()))
            && self.place.holds(&asked, |vma| self.tracks(vma)).unwrap_or(false)
    }

    fn coverage(&self, way: WriteWay) -> Observed {
        match way {
            WriteWay::Store => Observed::Seen,
            WriteWay::ForkedChild if self.forks == Forks::Excluded => Observed::Refused,
            _ => Observed::Undecided,
        }
    }
}
