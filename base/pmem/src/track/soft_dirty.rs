//! Dirty source (b): the kernel's soft-dirty bits, for kernels that have them and nothing better.
//!
//! They are cleared for a whole address space at once, and not in one step with being read: a store
//! between the two would be lost. So both are done while every other thread is stopped, by a
//! [`Freeze`] of the caller's, and one process has one such source at a time. What is cleared for
//! ranges that were not asked about is kept until they are.
//!
//! A page of a file that the kernel takes out of the page table loses its bit. So what is armed is
//! locked into memory, and a page that the table does not know counts as stored to. Cut off and
//! grown again, or punched, a page would do so for ever: whoever takes it has it brought in first.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::bits::{PageBits, Runs, WORD};
use super::error::TrackError;
use super::pagemap::{Entry, Pagemap};
use super::span::{Forks, Place, Span, address};
use super::{DirtySource, Observed, SourceKind, WriteWay};
use crate::medium::PAGE;

/// Entries read at once.
const BATCH: u64 = 8 * WORD;
/// What makes the kernel clear the soft-dirty bits of a process.
const CLEAR_SOFT_DIRTY: &[u8] = b"4";

/// One process has one set of bits.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Stops the process' other threads.
pub trait Freeze: Send + Sync {
    /// Runs `work` while no other thread of this process runs, not even inside a system call that
    /// stores to its memory. `work` takes no lock and allocates nothing that a stopped thread could
    /// hold.
    ///
    /// # Errors
    /// The threads could not be stopped; `work` was not run.
    fn frozen(&self, work: &mut dyn FnMut()) -> io::Result<()>;
}

/// Tracks the stores of this process through one mapping, at the price of stopping it.
#[derive(Debug)]
pub struct SoftDirty<F> {
    place: Place,
    forks: Forks,
    pagemap: Pagemap,
    clear_refs: File,
    freeze: F,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    armed: PageBits,
    /// Known to be stored to, though the kernel's bit is cleared: armed and not taken since, or
    /// cleared when another range was asked about.
    kept: PageBits,
    told: PageBits,
    entries: Vec<Entry>,
}

impl<F: Freeze> SoftDirty<F> {
    /// A source over the addresses of a span, which show one file through a shared mapping.
    ///
    /// # Errors
    /// [`TrackError::KernelLacks`] where there are no such bits, [`TrackError::Busy`] if there is
    /// such a source already, or what is wrong with the span.
    pub fn new(span: Span, forks: Forks, freeze: F) -> Result<Self, TrackError> {
        let pagemap = Pagemap::own()?;
        probe(&pagemap)?;
        let place = Place::find(span)?;
        let clear_refs = File::options()
            .write(true)
            .open("/proc/self/clear_refs")
            .map_err(|source| TrackError::Io { call: "opening /proc/self/clear_refs", source })?;
        if TAKEN.swap(true, Ordering::AcqRel) {
            return Err(TrackError::Busy { what: "this process' soft-dirty bits are used" });
        }
        let bits = || PageBits::new();
        let entries = vec![Entry::default(); BATCH as usize];
        let state = Mutex::new(State { armed: bits(), kept: bits(), told: bits(), entries });
        Ok(Self { place, forks, pagemap, clear_refs, freeze, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to `told` the pages whose bit is set, or lost.
    fn read(
        &self,
        pages: Range<u64>,
        entries: &mut [Entry],
        told: &mut PageBits,
    ) -> Result<(), TrackError> {
        for from in pages.clone().step_by(BATCH as usize) {
            let count = BATCH.min(pages.end - from);
            let entries = &mut entries[..count as usize];
            self.pagemap.entries(self.place.span.address_of(from), entries)?;
            for (page, entry) in (from..).zip(entries.iter()) {
                if is_dirty(*entry) {
                    told.set(page..page + 1);
                }
            }
        }
        Ok(())
    }

    /// Has pages that the table does not know brought in, all of them told: from then on their bits
    /// say what is stored. What cannot be brought in, behind the end of the file, stays unknown.
    fn bring_in(&self, pages: Range<u64>, entries: &mut [Entry]) -> Result<(), TrackError> {
        for from in pages.clone().step_by(BATCH as usize) {
            let count = BATCH.min(pages.end - from);
            let entries = &mut entries[..count as usize];
            let start = self.place.span.address_of(from);
            self.pagemap.entries(start, entries)?;
            for (address, entry) in (start..).step_by(PAGE as usize).zip(entries.iter()) {
                if !entry.known() {
                    lock(address, PAGE);
                }
            }
        }
        Ok(())
    }

    /// Clears the bits of this process. Allocates nothing.
    fn clear(&self) -> Result<(), TrackError> {
        (&self.clear_refs)
            .write_all(CLEAR_SOFT_DIRTY)
            .map_err(|source| TrackError::Io { call: "writing /proc/self/clear_refs", source })
    }

    /// With all other threads stopped: keeps what the bits of the whole span say, then clears them.
    fn harvest(&self, state: &mut State) -> Result<(), TrackError> {
        let State { armed, kept, entries, .. } = state;
        let mut armed_runs = Vec::new();
        let mut note = |at: u64, len: u64| armed_runs.push(at / PAGE..(at + len) / PAGE);
        let mut runs = Runs::new(0, &mut note);
        armed.tell(0..self.place.span.pages(), &mut runs);
        runs.end();
        let mut done = Ok(());
        let stopped = self.freeze.frozen(&mut || {
            done = armed_runs.iter().try_for_each(|run| self.read(run.clone(), entries, kept));
            if done.is_ok() {
                done = self.clear();
            }
        });
        stopped.map_err(|source| TrackError::Io { call: "stopping the other threads", source })?;
        done
    }

    fn tell(
        &self,
        at: u64,
        len: u64,
        take: bool,
        each: &mut dyn FnMut(u64, u64),
    ) -> Result<(), TrackError> {
        self.place.mine()?;
        let span = self.place.span;
        let pages = span.pages_of(at, len)?;
        let mut state = self.state();
        let found = {
            let State { armed, told, entries, .. } = &mut *state;
            let read = self.read(pages.clone(), entries, told);
            told.restrict(armed, pages.clone());
            match read {
                Ok(()) if take && told.any(pages.clone()) => self.bring_in(pages.clone(), entries),
                other => other,
            }
        };
        let harvested = match found {
            // Nothing to clear: then nobody needs to be stopped.
            Ok(()) if take && state.told.any(pages.clone()) => self.harvest(&mut state),
            other => other,
        };
        let State { kept, told, .. } = &mut *state;
        if harvested.is_ok() {
            told.join(kept, pages.clone());
            if take {
                kept.clear(pages.clone());
            }
            let mut runs = Runs::new(span.at, each);
            told.tell(pages.clone(), &mut runs);
            runs.end();
        }
        told.clear(pages);
        harvested
    }
}

/// Keeps pages in memory, and brings them there.
fn lock(start: usize, len: u64) -> bool {
    // SAFETY: locking changes no byte, whatever is there; where nothing is, it fails.
    unsafe { libc::mlock(address(start), len as usize) == 0 }
}

/// Whether the page may have been stored to.
fn is_dirty(entry: Entry) -> bool {
    entry.soft_dirty() || !entry.known()
}

/// Whether the kernel keeps the bits: a page that was just made and stored to has its bit set.
fn probe(pagemap: &Pagemap) -> Result<(), TrackError> {
    let page = Box::new([1_u8; 2 * PAGE as usize]);
    let inside = core::hint::black_box(&*page).as_ptr() as usize;
    let mut entry = [Entry::default()];
    pagemap.entries(inside.next_multiple_of(PAGE as usize), &mut entry)?;
    if entry[0].soft_dirty() {
        return Ok(());
    }
    Err(TrackError::KernelLacks {
        what: "soft-dirty bits",
        since: "Linux 3.11, CONFIG_MEM_SOFT_DIRTY",
    })
}

impl<F: Freeze> DirtySource for SoftDirty<F> {
    fn kind(&self) -> SourceKind {
        SourceKind::SoftDirty
    }

    /// Locks the range into memory: the limit on locked memory must allow that.
    fn arm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        let span = self.place.span;
        let pages = span.pages_of(at, len)?;
        self.place.ready(pages.clone(), self.forks)?;
        // In the span, where `ready` has just found the file all over.
        if !lock(span.address_of(pages.start), len) {
            return Err(TrackError::last("mlock (raise the limit on locked memory)"));
        }
        let mut state = self.state();
        state.armed.set(pages.clone());
        state.kept.set(pages);
        Ok(())
    }

    fn disarm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        self.place.mine()?;
        let span = self.place.span;
        let pages = span.pages_of(at, len)?;
        let mut state = self.state();
        state.armed.clear(pages.clone());
        state.kept.clear(pages.clone());
        // SAFETY: as in `arm`; where the range is not mapped any more, nothing is unlocked.
        let _ = unsafe { libc::munlock(address(span.address_of(pages.start)), len as usize) };
        Ok(())
    }

    fn take(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.tell(at, len, true, each)
    }

    fn peek(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.tell(at, len, false, each)
    }

    fn intact(&self, at: u64, len: u64) -> bool {
        let Ok(pages) = self.place.span.pages_of(at, len) else { return false };
        self.place.mine().is_ok()
            && self.state().armed.all(pages.clone())
            && self.place.lost(pages.clone(), |_| true).is_ok_and(|lost| !lost.any(pages))
    }

    fn coverage(&self, way: WriteWay) -> Observed {
        match way {
            WriteWay::Store => Observed::Seen,
            WriteWay::ForkedChild if self.forks == Forks::Excluded => Observed::Refused,
            _ => Observed::Undecided,
        }
    }
}

impl<F> Drop for SoftDirty<F> {
    fn drop(&mut self) {
        if self.place.mine().is_ok() {
            TAKEN.store(false, Ordering::Release);
        }
    }
}
