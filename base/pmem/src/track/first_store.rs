//! Dirty source (c): write protection with a fault handler. The first store to a page waits until a
//! persistent record says that the page is going stale; so the record survives what the page
//! tables do not.
//!
//! Order, as proved by trying all interleavings (`tests/first_store_order.rs`):
//!
//! ```text
//!   store to a protected page              take
//!   1 lock the page                        1 lock the pages of a run
//!   2 record it: store, flush, fence       2 protect them (the kernel invalidates translations)
//!   3 unprotect it                         3 unlock, tell them
//!   4 unlock, repeat the store
//!                                          forget, once they are noted elsewhere, durably
//!   the same, open by now                  1 lock the pages of a run
//!   1 lock the page                        2 clear the records of those not open again
//!   2 count it, unlock                     3 unlock
//!   3 repeat the store
//!                                          disarm
//!   the same, its source gone by now       1 unprotect the pages of a run
//!   1 find the seat empty                  2 lock each, say that it is open, unlock
//!   2 find the span among those left
//!   3 count it, repeat the store           drop
//!                                          1 disarm
//!                                          2 note the span among those left
//!                                          3 give the seat back
//! ```
//!
//! Without the lock, a handler that was held up unprotects a page whose record was just cleared.
//! Since the record stays until the taker has its own note, a page is known to have been stored to
//! in every instant from before the store until it is covered.
//!
//! A handler may look long after the fault. The kernel asks a program whose store met a protected
//! page, not whether it still is: who finds the page open repeats the store, be it tracked or not
//! any more. Since a page is unprotected before anybody says that it is open, and not protected
//! again without saying so, a thread does that once. Where it happens a thousand times, the page is
//! protected by somebody else, and the fault is the program's. How often is counted with the state
//! of the page, so that no other page has a part in it, and begins anew with the next state.
//!
//! What runs in the handler is async-signal-safe: atomics, `mprotect`, `sched_yield`, and the
//! record. All signals are blocked while a page is locked, so that no handler of the program's can
//! store to the page its own thread has locked.

use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use super::bar::{self, Bar};
use super::bits::Runs;
use super::error::TrackError;
use super::record::Record;
use super::span::{Forks, Place, Span, address};
use super::{DirtySource, Observed, SourceKind, WriteWay};
use crate::call::ask;
use crate::fork::Stamp;
use crate::handler;
use crate::mapped::Mapped;
use crate::medium::PAGE;
use crate::options::{Access, Protection};

use self::seats::Seat;

mod left;
#[expect(unreachable_pub, reason = "public where a model checker runs it: `modelled.rs`")]
mod seats;

/// The words that ship.
mod words {
    pub(super) use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
    pub(super) use std::thread::yield_now;
}

/// Sources of this kind that a process can have at a time.
const SOURCES: usize = 64;
/// Pages locked, protected and cleared together.
const BATCH: u64 = 256;

/// State of a page: tracked; writable, since it was stored to or is not tracked any more; not taken
/// since it was armed; locked; taken, and on record from before.
const ARMED: u16 = 1;
const OPEN: u16 = 2;
const FRESH: u16 = 4;
const LOCKED: u16 = 8;
const TOLD: u16 = 16;
/// The upper bits count the faults at an open page since it is open. If they are full, it is
/// protected by somebody else.
const STRIKE: u16 = 64;
const MOST_STRIKES: u16 = !(STRIKE - 1);

/// Where the handler finds its sources.
static SEATS: [Seat<Shared>; SOURCES] =
    [const { Seat { source: AtomicPtr::new(ptr::null_mut()), inside: AtomicU32::new(0) } };
        SOURCES];

/// What a handler needs.
struct Shared {
    span: Span,
    forks: Forks,
    stamp: Stamp,
    pages: Box<[AtomicU16]>,
    record: Arc<dyn Record>,
}

/// Lets a store to a protected page through, once it is recorded; or to one that was protected when
/// it failed. `false` if the page was not tracked, or cannot be recorded: then the fault is the
/// program's. Async-signal-safe.
pub(crate) fn let_through(address: usize) -> bool {
    let look = |seat: &Seat<Shared>| seat.look(|shared| shared.let_through(address));
    // In this order: a source is among those that left before its seat is empty.
    SEATS.iter().any(|seat| look(seat).unwrap_or(false)) || left::has_met(address)
}

/// Forgets, in a child that was just forked, the parent's threads that were inside, and its sources
/// that left. Async-signal-safe.
pub(crate) fn begin_child() {
    SEATS.iter().for_each(Seat::begin_child);
    left::begin_child();
}

/// Every signal but those that say an instruction failed, blocked until dropped.
struct Quiet(libc::sigset_t);

impl Quiet {
    fn begin() -> Self {
        // SAFETY: all-zero signal sets are valid values; the calls are async-signal-safe and write
        // to the two local sets only.
        unsafe {
            let mut all: libc::sigset_t = core::mem::zeroed();
            let mut before: libc::sigset_t = core::mem::zeroed();
            handler::fill_but_faults(&mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: the set that was in force when this began.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

impl Shared {
    fn lock(&self, page: u64) -> u16 {
        let state = &self.pages[page as usize];
        let mut turns = 0_u32;
        loop {
            let before = state.fetch_or(LOCKED, Ordering::Acquire);
            if before & LOCKED == 0 {
                return before;
            }
            turns += 1;
            if turns.is_multiple_of(64) {
                // SAFETY: takes nothing and changes nothing; async-signal-safe.
                unsafe { libc::sched_yield() };
            } else {
                core::hint::spin_loop();
            }
        }
    }

    fn unlock(&self, page: u64, state: u16) {
        self.pages[page as usize].store(state & !LOCKED, Ordering::Release);
    }

    fn file_at(&self, page: u64) -> u64 {
        self.span.at + page * PAGE
    }

    /// Changes the rights of whole pages. Called with all of them locked.
    fn set_rights(&self, pages: Range<u64>, rights: i32) -> bool {
        let start = self.span.address_of(pages.start);
        let len = ((pages.end - pages.start) * PAGE) as usize;
        // SAFETY: the pages lie in the span, which the maker of the source has promised to be a
        // mapping whose rights are changed by the source alone. Async-signal-safe: one system call.
        unsafe { libc::mprotect(address(start), len, rights) == 0 }
    }

    fn let_through(&self, address: usize) -> bool {
        let Some(inside) = address.checked_sub(self.span.address) else { return false };
        if inside as u64 >= self.span.len {
            return false;
        }
        let page = inside as u64 / PAGE;
        if self.stamp.forked() {
            // What lies there in a child that did not inherit the mapping is not ours to open. In
            // one that did, nobody takes, and locks may be held by threads that it has not got.
            return self.forks == Forks::Inherit
                && self.record.set(self.file_at(page))
                && self.set_rights(page..page + 1, libc::PROT_READ | libc::PROT_WRITE);
        }
        let _quiet = Quiet::begin();
        let state = self.lock(page);
        if state & (ARMED | OPEN) == 0 {
            self.unlock(page, state);
            return false;
        }
        if bar::is_closed(address) {
            self.unlock(page, state);
            // Or it was opened right now; the next fault tells whose it is.
            bar::wait(address);
            return true;
        }
        if state & OPEN != 0 {
            // Another thread was first, or it was disarmed; unless it is not our protection that
            // this store met.
            let ours = state & MOST_STRIKES != MOST_STRIKES;
            self.unlock(page, if ours { state + STRIKE } else { state });
            return ours;
        }
        if !self.record.set(self.file_at(page)) {
            self.unlock(page, state);
            return false;
        }
        // Open is said before it is so: who reads that a page is writable finds it open.
        self.pages[page as usize].store(state | OPEN | LOCKED, Ordering::Release);
        let done = self.set_rights(page..page + 1, libc::PROT_READ | libc::PROT_WRITE);
        self.unlock(page, if done { state | OPEN } else { state });
        done || self.widen(page)
    }

    /// Every lone page of its own rights is a mapping of its own, and mappings are limited. Where
    /// there are no more, pages around are recorded and opened with it, until it is few enough.
    fn widen(&self, page: u64) -> bool {
        let all = self.pages.len() as u64;
        let mut width = 64;
        loop {
            let first = page - page % width;
            let around = first..(first + width).min(all);
            // In ascending order, as everybody does who locks more than one.
            for at in around.clone() {
                self.lock(at);
            }
            let address = |at: &u64| self.span.address_of(*at);
            if let Some(barred) = around.clone().find(|at| bar::is_closed(address(at))) {
                around.for_each(|at| self.unlock(at, self.state(at)));
                bar::wait(address(&barred));
                return true;
            }
            let states: bool = around.clone().fold(true, |good, at| {
                let armed = self.state(at) & ARMED != 0;
                good & (!armed || self.record.set(self.file_at(at)))
            });
            let done =
                states && self.set_rights(around.clone(), libc::PROT_READ | libc::PROT_WRITE);
            for at in around {
                let state = self.pages[at as usize].load(Ordering::Relaxed);
                let opened = done && state & ARMED != 0;
                self.unlock(at, if opened { state | OPEN } else { state });
            }
            if done || width >= all {
                return done;
            }
            width *= 8;
        }
    }

    fn state(&self, page: u64) -> u16 {
        self.pages[page as usize].load(Ordering::Acquire)
    }

    /// Protects a run of pages. Their records stay.
    fn close(&self, pages: Range<u64>) {
        let _quiet = Quiet::begin();
        for page in pages.clone() {
            self.lock(page);
        }
        let closed = self.set_rights(pages.clone(), libc::PROT_READ);
        for page in pages {
            let state = self.pages[page as usize].load(Ordering::Relaxed);
            let told = state & !(OPEN | FRESH | MOST_STRIKES) | TOLD;
            self.unlock(page, if closed { told } else { state });
        }
    }

    /// Clears the records of a run of pages that were taken. Those that are open again were stored
    /// to since, and it is the same record that says so.
    fn forget(&self, pages: Range<u64>) {
        let _quiet = Quiet::begin();
        for page in pages.clone() {
            self.lock(page);
        }
        let open = |page: &u64| self.pages[*page as usize].load(Ordering::Relaxed) & OPEN != 0;
        let mut rest = pages.clone();
        while let Some(first) = rest.find(|page| !open(page)) {
            let end = (first..pages.end).find(open).unwrap_or(pages.end);
            self.record.clear(self.file_at(first), (end - first) * PAGE);
            rest = end..pages.end;
        }
        for page in pages {
            let state = self.pages[page as usize].load(Ordering::Relaxed);
            self.unlock(page, state & !TOLD);
        }
    }
}

/// Tracks stores by making their pages read-only until the first one is on record.
///
/// A system call that stores into a protected page (`read` into the mapping) fails with `EFAULT`
/// and changes nothing: the kernel asks no handler.
pub struct FirstStore {
    place: Place,
    forks: Forks,
    shared: *mut Shared,
    seat: &'static Seat<Shared>,
    /// One taker, armer or judge at a time; handlers go on meanwhile.
    turn: Mutex<()>,
    /// The mapping, where it is ours to keep.
    _keep: Option<Arc<Mapped>>,
}

// SAFETY: `shared` is owned by this value and used through shared references only; all of its
// fields are atomics, plain values that never change, and a record that is `Send` and `Sync`.
unsafe impl Send for FirstStore {}
// SAFETY: as above.
unsafe impl Sync for FirstStore {}

impl core::fmt::Debug for FirstStore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FirstStore").field("span", &self.place.span).finish_non_exhaustive()
    }
}

impl FirstStore {
    /// A source over a medium's mapping, and as far as that may grow. Forked children have nothing
    /// of it.
    ///
    /// # Errors
    /// A [`TrackError`]: the medium cannot be stored to, or changes the rights of its pages itself.
    pub fn of(medium: Arc<Mapped>, record: Arc<dyn Record>) -> Result<Self, TrackError> {
        let span = Span::new(medium.store_base(), medium.status().reserved, 0)?;
        if medium.access() != Access::Write || medium.protection() == Protection::Mprotect {
            let why = "its pages are not writable all the time; open it for writing, with another \
                       protection";
            return Err(TrackError::NotTrackable { address: span.address, len: span.len, why });
        }
        // SAFETY: the medium's own mapping, writable as was just checked, kept alive by `keep`, and
        // its rights are changed by nobody else under any other protection.
        unsafe { Self::make(span, Forks::Excluded, record, Some(medium)) }
    }

    /// A source over the addresses of a span, which show one file through a shared mapping.
    ///
    /// # Errors
    /// A [`TrackError`] that names cause and remedy.
    ///
    /// # Safety
    /// As long as the source lives, the range stays what the caller has mapped there, readable and
    /// writable, and nobody else changes its rights.
    pub unsafe fn over(
        span: Span,
        forks: Forks,
        record: Arc<dyn Record>,
    ) -> Result<Self, TrackError> {
        // SAFETY: the caller's promise.
        unsafe { Self::make(span, forks, record, None) }
    }

    /// # Safety
    /// As for [`over`](Self::over).
    unsafe fn make(
        span: Span,
        forks: Forks,
        record: Arc<dyn Record>,
        keep: Option<Arc<Mapped>>,
    ) -> Result<Self, TrackError> {
        let place = Place::find(span)?;
        handler::install().map_err(|source| TrackError::Io { call: "sigaction", source })?;
        // Memory that is not touched before the file has grown so far.
        let pages = Box::<[AtomicU16]>::new_zeroed_slice(span.pages() as usize);
        // SAFETY: zero is a valid value of an atomic number: not tracked.
        let pages = unsafe { pages.assume_init() };
        let stamp = place.stamp;
        let shared = Box::new(Shared { span, forks, stamp, pages, record });
        let shared = Box::into_raw(shared);
        // SAFETY: made above, referred to by shared references only, and freed by `drop`, behind
        // `give_back`.
        let seat = SEATS.iter().find(|seat| unsafe { seat.take(shared) });
        let Some(seat) = seat else {
            // SAFETY: made above, and no seat has taken it.
            drop(unsafe { Box::from_raw(shared) });
            return Err(TrackError::Busy { what: "64 sources of this kind are in use" });
        };
        Ok(Self { place, forks, shared, seat, turn: Mutex::new(()), _keep: keep })
    }

    /// What is tracked.
    #[must_use]
    pub fn span(&self) -> Span {
        self.place.span
    }

    /// Holds up the stores to the page at `at` of the file. Those that were let through before show
    /// in the next [`peek`](DirtySource::peek).
    ///
    /// # Errors
    /// [`TrackError::OutOfRange`], or this is a forked child.
    pub fn bar(&self, at: u64) -> Result<Bar, TrackError> {
        self.place.mine()?;
        let page = self.place.span.pages_of(at, PAGE)?.start;
        // SAFETY: no rights are changed: `let_through` asks for the bar.
        let bar = unsafe { Bar::close(self.place.span.address_of(page), false)? };
        let _quiet = Quiet::begin();
        // Handlers that did not see it yet are done with the page, and have said that it is open.
        let state = self.shared().lock(page);
        self.shared().unlock(page, state);
        Ok(bar)
    }

    fn shared(&self) -> &Shared {
        // SAFETY: made by `make`, freed by `drop` only.
        unsafe { &*self.shared }
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the pages whose record is set: what a crash would leave unknown.
    ///
    /// # Errors
    /// [`TrackError::OutOfRange`].
    pub fn recorded(
        &self,
        at: u64,
        len: u64,
        each: &mut dyn FnMut(u64, u64),
    ) -> Result<(), TrackError> {
        let pages = self.place.span.pages_of(at, len)?;
        let shared = self.shared();
        let mut runs = Runs::new(self.place.span.at, each);
        for page in pages.filter(|page| shared.record.is_set(shared.file_at(*page))) {
            runs.push(page..page + 1);
        }
        runs.end();
        Ok(())
    }

    /// Pages that are not what the source has made them.
    fn lost(&self, pages: &Range<u64>) -> Result<super::bits::PageBits, TrackError> {
        let (shared, span) = (self.shared(), self.place.span);
        self.place.lost(pages.clone(), |vma| {
            let found = span.pages_in(vma.start..vma.end);
            let mut inside = found.start.max(pages.start)..found.end.min(pages.end);
            // A page that can be stored to without asking must be one that was let through.
            !vma.writable || inside.all(|page| shared.state(page) & (OPEN | ARMED) != ARMED)
        })
    }

    /// The next run of pages in any of these states, of at most so many.
    fn next(&self, pages: Range<u64>, states: u16, most: u64) -> Option<Range<u64>> {
        let shared = self.shared();
        let is = |page: u64| {
            let state = shared.state(page);
            state & ARMED != 0 && state & states != 0
        };
        let first = pages.clone().find(|page| is(*page))?;
        let stop = pages.end.min(first.saturating_add(most));
        let end = (first..stop).find(|page| !is(*page)).unwrap_or(stop);
        Some(first..end)
    }
}

impl DirtySource for FirstStore {
    fn kind(&self) -> SourceKind {
        SourceKind::FirstStore
    }

    fn arm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        self.place.mine()?;
        let pages = self.place.span.pages_of(at, len)?;
        let _turn = self.turn();
        self.place.ready(pages.clone(), self.forks)?;
        let shared = self.shared();
        if !shared.record.reach(at, len) {
            let why = "its first stores cannot be recorded: there is no room, or the record is bad";
            let address = self.place.span.address_of(pages.start);
            return Err(TrackError::NotTrackable { address, len, why });
        }
        for from in pages.clone().step_by(BATCH as usize) {
            let run = from..pages.end.min(from + BATCH);
            let _quiet = Quiet::begin();
            for page in run.clone() {
                shared.lock(page);
            }
            let may = ask("mprotect", Errno::NOMEM).is_ok();
            let done = may && shared.set_rights(run.clone(), libc::PROT_READ);
            for page in run {
                let state = shared.state(page);
                shared.unlock(page, if done { ARMED | FRESH } else { state });
            }
            if !done {
                return Err(TrackError::last("mprotect"));
            }
        }
        Ok(())
    }

    fn disarm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        self.place.mine()?;
        let pages = self.place.span.pages_of(at, len)?;
        let _turn = self.turn();
        let shared = self.shared();
        let mut rest = pages;
        while let Some(run) = self.next(rest.clone(), ARMED, u64::MAX) {
            rest.start = run.end;
            // Where the mapping is gone, nothing is protected any more.
            let _ = shared.set_rights(run.clone(), libc::PROT_READ | libc::PROT_WRITE);
            for page in run {
                let _quiet = Quiet::begin();
                shared.lock(page);
                shared.unlock(page, OPEN);
            }
        }
        Ok(())
    }

    fn take(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.place.mine()?;
        let pages = self.place.span.pages_of(at, len)?;
        let shared = self.shared();
        let _turn = self.turn();
        let mut runs = Runs::new(self.place.span.at, each);
        let mut rest = pages;
        while let Some(run) = self.next(rest.clone(), OPEN | FRESH, BATCH) {
            // Pages that cannot be protected stay open, and are told again next time. Pages that
            // were armed a moment ago may be on record from before.
            shared.close(run.clone());
            runs.push(run.clone());
            rest.start = run.end;
        }
        runs.end();
        Ok(())
    }

    fn peek(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.place.mine()?;
        let pages = self.place.span.pages_of(at, len)?;
        let mut runs = Runs::new(self.place.span.at, each);
        let mut rest = pages;
        while let Some(run) = self.next(rest.clone(), OPEN | FRESH, u64::MAX) {
            rest.start = run.end;
            runs.push(run);
        }
        runs.end();
        Ok(())
    }

    fn forget(&self, at: u64, len: u64) {
        let Ok(pages) = self.place.span.pages_of(at, len) else { return };
        if self.place.mine().is_err() {
            return;
        }
        let shared = self.shared();
        let _turn = self.turn();
        let mut rest = pages;
        while let Some(run) = self.next(rest.clone(), TOLD, BATCH) {
            rest.start = run.end;
            shared.forget(run);
        }
    }

    fn intact(&self, at: u64, len: u64) -> bool {
        let Ok(pages) = self.place.span.pages_of(at, len) else { return false };
        if self.place.mine().is_err() {
            return false;
        }
        let _turn = self.turn();
        pages.clone().all(|page| self.shared().state(page) & ARMED != 0)
            && self.lost(&pages).is_ok_and(|lost| !lost.any(pages))
    }

    fn coverage(&self, way: WriteWay) -> Observed {
        match way {
            // The record outlives the process.
            WriteWay::Store | WriteWay::Exec | WriteWay::Kill => Observed::Seen,
            WriteWay::ForkedChild if self.forks == Forks::Excluded => Observed::Refused,
            _ => Observed::Undecided,
        }
    }
}

impl Drop for FirstStore {
    fn drop(&mut self) {
        // A child's copy of the address space is its own, but the seat's count is not to be waited
        // for there: a thread of the parent's may be inside for ever.
        if self.place.mine().is_err() {
            return;
        }
        // First nothing is protected any more, then nobody is asked any more. Whoever met the
        // protection, and comes to ask when the seat is empty, must find what was there.
        let span = self.place.span;
        let _ = self.disarm(span.at, span.len);
        left::note(span);
        self.seat.give_back();
        // SAFETY: made by `make`, out of its seat: no handler has it or can get it.
        drop(unsafe { Box::from_raw(self.shared) });
    }
}
