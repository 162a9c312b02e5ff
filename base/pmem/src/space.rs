//! Address space: the reservation, the views in it, and checked access to them.
//!
//! ```text
//!   view   |#### file, read-only for the program ####|..... reserved, inaccessible .....|
//!   alias  |#### the same file, writable ####|........ reserved, inaccessible ..........|
//!          0                                  len                                      span
//! ```
//!
//! Both are reserved once and never move, so an address handed out stays right when the file
//! grows, and pages are replaced in place when they are healed or relocated. Without an alias
//! (no protection, `mprotect`, read-only, private copy) there is the view alone.
//!
//! Every access is checked against the length first. Loads and stores then run in
//! [`crate::asm`], so a bad page is an error value.

use core::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap,
};

use crate::asm::{self, Outcome, Stores};
use crate::call;
use crate::fork::Stamp;
use crate::keys::Key;
use crate::medium::{LINE, PAGE, PUT_CACHED_MAX};
use crate::options::Protection;

/// Reservations begin at multiples of this, so that large pages stay possible.
const ALIGNMENT: usize = 2 << 20;
/// Lines prefetched by one call; more would be dropped by the CPU anyway.
const MOST_PREFETCHED: u64 = 64;

/// How pages of the file are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// With the file, synchronously (direct access).
    Sync,
    /// With the file, through the page cache.
    Shared,
    /// Copied at the first store.
    Private,
}

impl Sharing {
    fn flags(self) -> MapFlags {
        match self {
            Self::Sync => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            Self::Shared => MapFlags::SHARED,
            // Few pages of a copy are ever stored to: memory for all of them is not promised, or a
            // pool larger than it could not be looked at.
            Self::Private => MapFlags::PRIVATE | MapFlags::NORESERVE,
        }
    }
}

/// Why an access was not done.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Miss {
    /// It would leave the medium.
    Beyond,
    /// It met a fault.
    Trapped(Outcome),
}

/// What a store must do first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    Key(Key),
    Mprotect,
}

/// How a space is to be laid out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Bytes of the file to map, a multiple of a page.
    pub(crate) len: u64,
    /// Bytes of address space to reserve, per view.
    pub(crate) span: u64,
    /// How pages are shared.
    pub(crate) sharing: Sharing,
    /// The protection to put in force.
    pub(crate) protection: Protection,
    /// How stores reach the medium.
    pub(crate) stores: Stores,
    /// Whether 64-byte vectors may be used.
    pub(crate) wide: bool,
    /// The process that maps.
    pub(crate) stamp: Stamp,
}

/// The mapped address space of one file. What the hot paths read comes first.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Space {
    /// Bytes open to loads.
    len: AtomicU64,
    /// Bytes open to stores: `len`, or 0 in a read-only space.
    store_len: AtomicU64,
    load: usize,
    store: usize,
    stores: Stores,
    wide: bool,
    gate: Gate,
    view: usize,
    alias: Option<usize>,
    span: usize,
    plan: Plan,
    /// Threads inside `begin_write` or a store, under `mprotect` only.
    writers: AtomicU32,
    /// Held while the rights of the mapping change, or pages of it are replaced.
    turn: Mutex<()>,
}

impl Space {
    /// Reserves the addresses; nothing is mapped yet and the length is 0.
    pub(crate) fn reserve(plan: Plan) -> io::Result<Self> {
        let span = usize::try_from(plan.span).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let gate = match plan.protection {
            Protection::Keys => Gate::Key(Key::get().ok_or(io::ErrorKind::Unsupported)?),
            Protection::Mprotect => Gate::Mprotect,
            _ => Gate::Open,
        };
        let view = reserve(span)?;
        let alias = match plan.protection {
            Protection::Keys | Protection::Alias => match reserve(span) {
                Ok(alias) => Some(alias),
                Err(error) => {
                    release(view, span);
                    return Err(error);
                }
            },
            _ => None,
        };
        let store = alias.unwrap_or(view);
        // With keys, loads through the alias would need the key as well.
        let load = if matches!(gate, Gate::Key(_)) { view } else { store };
        Ok(Self {
            len: AtomicU64::new(0),
            store_len: AtomicU64::new(0),
            load,
            store,
            stores: plan.stores,
            wide: plan.wide,
            gate,
            view,
            alias,
            span,
            plan,
            writers: AtomicU32::new(0),
            turn: Mutex::new(()),
        })
    }

    /// Bytes open to loads.
    #[inline(always)]
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Bytes open to stores.
    pub(crate) fn store_len(&self) -> u64 {
        self.store_len.load(Ordering::Acquire)
    }

    /// Bytes of address space reserved.
    pub(crate) fn span(&self) -> u64 {
        self.span as u64
    }

    /// Addresses of view and alias (0 if there is none), for the registry.
    pub(crate) fn bases(&self) -> (usize, usize) {
        (self.view, self.alias.unwrap_or(0))
    }

    /// The plan it was made by.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Opens `[0, len)`, which is mapped by now, to accesses.
    pub(crate) fn set_len(&self, len: u64) {
        assert!(len <= self.span as u64, "a space never outgrows its reservation");
        if self.gate == Gate::Mprotect {
            // What was mapped a moment ago has the rights of then: writers that came or left since
            // have changed those of the old length only.
            let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            self.len.store(len, Ordering::Release);
            let writing = self.writers.load(Ordering::Acquire) > 0;
            let write = if writing { MprotectFlags::WRITE } else { MprotectFlags::empty() };
            self.set_rights(MprotectFlags::READ | write);
        }
        self.len.store(len, Ordering::Release);
        if self.plan.protection != Protection::ReadOnly {
            self.store_len.store(len, Ordering::Release);
        }
    }

    #[inline(always)]
    fn range(bound: &AtomicU64, base: usize, at: u64, len: u64) -> Result<usize, Miss> {
        let bound = bound.load(Ordering::Acquire);
        if len > bound || at > bound - len {
            return Err(Miss::Beyond);
        }
        Ok(base + at as usize)
    }

    #[inline(always)]
    fn ended(outcome: Outcome) -> Result<(), Miss> {
        if outcome.trapped() { Err(Miss::Trapped(outcome)) } else { Ok(()) }
    }

    /// Copies bytes of the medium.
    #[inline(always)]
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Miss> {
        let from = Self::range(&self.len, self.load, at, into.len() as u64)?;
        // SAFETY: `into` is a valid slice; the range was checked to lie in the registered mapping;
        // `wide` comes from CPUID.
        Self::ended(unsafe { asm::load(self.wide, into.as_mut_ptr(), from, into.len()) })
    }

    /// Copies bytes as the program would see them, through its view.
    pub(crate) fn read_view(&self, at: u64, into: &mut [u8]) -> Result<(), Miss> {
        let from = Self::range(&self.len, self.view, at, into.len() as u64)?;
        // SAFETY: as in `read`.
        Self::ended(unsafe { asm::load(self.wide, into.as_mut_ptr(), from, into.len()) })
    }

    /// Stores bytes and flushes them.
    #[inline(always)]
    pub(crate) fn put(&self, at: u64, bytes: &[u8]) -> Result<(), Miss> {
        self.put_near(at, bytes, PUT_CACHED_MAX)
    }

    /// As `put`, for bytes that nobody is going to read soon.
    #[inline(always)]
    pub(crate) fn put_aside(&self, at: u64, bytes: &[u8]) -> Result<(), Miss> {
        self.put_near(at, bytes, asm::NEAR_ASIDE)
    }

    #[inline(always)]
    fn put_near(&self, at: u64, bytes: &[u8], near: usize) -> Result<(), Miss> {
        let to = Self::range(&self.store_len, self.store, at, bytes.len() as u64)?;
        // SAFETY: `bytes` is a valid slice; the range was checked to lie in the registered
        // mapping, to which no reference is ever made; `stores` was chosen by CPUID.
        let store = || unsafe { asm::put(self.stores, to, bytes.as_ptr(), bytes.len(), near) };
        Self::ended(if self.gate == Gate::Open { store() } else { self.gated(store) })
    }

    /// Whether a put of so many bytes goes through the cache.
    #[inline(always)]
    pub(crate) fn put_is_cached(&self, len: u64) -> bool {
        asm::put_is_cached(self.stores, len)
    }

    /// XORs bytes into the medium and flushes them.
    #[inline(always)]
    pub(crate) fn xor(&self, at: u64, delta: &[u8]) -> Result<(), Miss> {
        let to = Self::range(&self.store_len, self.store, at, delta.len() as u64)?;
        // SAFETY: as in `put`.
        let store = || unsafe { asm::xor(self.stores, to, delta.as_ptr(), delta.len()) };
        Self::ended(if self.gate == Gate::Open { store() } else { self.gated(store) })
    }

    /// Stores zeros and flushes them.
    #[inline(always)]
    pub(crate) fn zero(&self, at: u64, len: u64) -> Result<(), Miss> {
        let to = Self::range(&self.store_len, self.store, at, len)?;
        // SAFETY: as in `put`, without a source.
        let store = || unsafe { asm::zero(self.stores, to, len as usize) };
        Self::ended(if self.gate == Gate::Open { store() } else { self.gated(store) })
    }

    /// The program's address of a range.
    #[inline(always)]
    pub(crate) fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        let address = Self::range(&self.len, self.view, at, len).ok()?;
        Some(ptr::with_exposed_provenance(address))
    }

    /// Hints that lines will be used soon.
    #[inline(always)]
    pub(crate) fn prefetch(&self, at: u64, len: u64) {
        let Ok(from) = Self::range(&self.len, self.load, at, len) else { return };
        let lines = (at % LINE + len).div_ceil(LINE).min(MOST_PREFETCHED) as usize;
        for line in 0..lines {
            let address = ptr::with_exposed_provenance(from + line * LINE as usize);
            // SAFETY: a prefetch never faults and changes nothing the program can see.
            unsafe {
                // The nearest cache is too small for pages that are read after the next work.
                if len < PAGE {
                    _mm_prefetch::<_MM_HINT_T0>(address);
                } else {
                    _mm_prefetch::<_MM_HINT_T1>(address);
                }
            }
        }
    }

    fn gated(&self, store: impl FnOnce() -> Outcome) -> Outcome {
        match self.gate {
            Gate::Open => store(),
            Gate::Key(key) => {
                let before = key.open();
                let outcome = store();
                before.restore();
                outcome
            }
            Gate::Mprotect => {
                self.begin_write();
                let outcome = store();
                self.end_write();
                outcome
            }
        }
    }

    /// Opens the gate for the stores that follow, so that it is not opened for each of them.
    #[inline(always)]
    pub(crate) fn begin_write(&self) {
        match self.gate {
            Gate::Open => {}
            Gate::Key(key) => {
                key.open();
            }
            Gate::Mprotect => self.join_writers(),
        }
    }

    /// Closes it again.
    #[inline(always)]
    pub(crate) fn end_write(&self) {
        match self.gate {
            Gate::Open => {}
            Gate::Key(key) => key.close(),
            Gate::Mprotect => self.leave_writers(),
        }
    }

    fn join_writers(&self) {
        let joined = self.writers.fetch_update(Ordering::Acquire, Ordering::Relaxed, |writers| {
            (writers > 0).then_some(writers + 1)
        });
        if joined.is_err() {
            let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            // Only a holder of the turn leaves or reaches 0, so the rights follow the count.
            if self.writers.load(Ordering::Acquire) == 0 {
                self.set_rights(MprotectFlags::READ | MprotectFlags::WRITE);
            }
            self.writers.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn leave_writers(&self) {
        let left = self.writers.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |writers| {
            (writers > 1).then(|| writers - 1)
        });
        if left.is_err() {
            let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            if self.writers.load(Ordering::Acquire) == 0 {
                return; // an end without a beginning
            }
            if self.writers.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.set_rights(MprotectFlags::READ);
            }
        }
    }

    /// A refusal needs no report of its own: the store that follows meets a fault and says so.
    fn set_rights(&self, rights: MprotectFlags) {
        let len = self.len() as usize;
        if call::ask("mprotect", Errno::NOMEM).is_err() {
            return;
        }
        // SAFETY: the range is this space's own mapping, and no reference to it is ever made.
        let _ = unsafe { mprotect(ptr::with_exposed_provenance_mut(self.view), len, rights) };
    }

    /// Maps the file range at `physical` over `[at, at + len)` of every view, in place of
    /// whatever is there. All three are multiples of a page.
    pub(crate) fn place(
        &self,
        file: BorrowedFd<'_>,
        at: u64,
        physical: u64,
        len: u64,
    ) -> io::Result<()> {
        self.replace(at, len, |address, len, rights| {
            call::ask("mmap", Errno::NOMEM)?;
            let flags = self.plan.sharing.flags() | MapFlags::FIXED;
            // SAFETY: `replace` hands out ranges inside this space's own reservation only.
            unsafe {
                mmap(ptr::with_exposed_provenance_mut(address), len, rights, flags, file, physical)
            }
        })
    }

    /// Maps zeroed memory of this process over `[at, at + len)`.
    pub(crate) fn place_memory(&self, at: u64, len: u64) -> io::Result<()> {
        self.replace(at, len, |address, len, rights| {
            call::ask("mmap", Errno::NOMEM)?;
            let flags = MapFlags::PRIVATE | MapFlags::FIXED;
            // SAFETY: `replace` hands out ranges inside this space's own reservation only.
            unsafe { mmap_anonymous(ptr::with_exposed_provenance_mut(address), len, rights, flags) }
        })
    }

    /// Maps `file`, memory of this process, from its start over `[at, at + len)`. One without bytes
    /// makes every access there fail as a media error does.
    pub(crate) fn place_shared(&self, file: BorrowedFd<'_>, at: u64, len: u64) -> io::Result<()> {
        self.replace(at, len, |address, len, rights| {
            call::ask("mmap", Errno::NOMEM)?;
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            // SAFETY: `replace` hands out ranges inside this space's own reservation only.
            unsafe { mmap(ptr::with_exposed_provenance_mut(address), len, rights, flags, file, 0) }
        })
    }

    /// Moves what is mapped at `[at, at + len)`, memory of the system, to large pages: a commit
    /// touches four or five places far from each other, and small ones cost a miss of the address
    /// translation each. Only whole large pages are moved; where the kernel cannot or the system's
    /// policy denies them, nothing is.
    pub(crate) fn gather(&self, at: u64, len: u64) {
        /// At once, also where the policy gives none by itself (Linux 6.1).
        const COLLAPSE: libc::c_int = 25;
        let from = at.next_multiple_of(ALIGNMENT as u64);
        let end = (at + len).min(self.span as u64) / ALIGNMENT as u64 * ALIGNMENT as u64;
        if from >= end {
            return;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, len) = (from as usize, (end - from) as usize);
        // Without an alias the two are one, and the second call finds nothing to do.
        for base in [self.store, self.view] {
            let address = ptr::with_exposed_provenance_mut(base + at);
            // SAFETY: the range lies in this space's own mapping; contents and rights stay as they
            // are. A refusal costs speed only.
            unsafe { libc::madvise(address, len, COLLAPSE) };
        }
    }

    fn replace(
        &self,
        at: u64,
        len: u64,
        map: impl Fn(usize, usize, ProtFlags) -> rustix::io::Result<*mut core::ffi::c_void>,
    ) -> io::Result<()> {
        let inside = len > 0 && len <= self.span as u64 && at <= self.span as u64 - len;
        if !inside {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let writable = match self.plan.protection {
            Protection::None => true,
            Protection::Mprotect => self.writers.load(Ordering::Acquire) > 0,
            Protection::Keys | Protection::Alias | Protection::ReadOnly => false,
        };
        let read = ProtFlags::READ;
        let view = if writable { read | ProtFlags::WRITE } else { read };
        let (at, len) = (at as usize, len as usize);
        leave_to_parent(map(self.view + at, len, view)?, len)?;
        let Some(alias) = self.alias else { return Ok(()) };
        match self.gate {
            Gate::Key(key) => {
                // Without rights until it is tagged, so that it is never open to all.
                leave_to_parent(map(alias + at, len, ProtFlags::empty())?, len)?;
                // SAFETY: the range was mapped by the line above.
                unsafe { key.tag(alias + at, len) }
            }
            _ => leave_to_parent(map(alias + at, len, read | ProtFlags::WRITE)?, len),
        }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // A forked child does not have the views; what lies there is not ours to unmap.
        if self.plan.stamp.forked() {
            return;
        }
        release(self.view, self.span);
        if let Some(alias) = self.alias {
            release(alias, self.span);
        }
    }
}

/// Whether `file` can be mapped for direct access.
pub(crate) fn can_sync(file: BorrowedFd<'_>, len: usize) -> bool {
    // SAFETY: a new mapping wherever the kernel likes, unmapped again before anyone sees it.
    unsafe {
        match mmap(ptr::null_mut(), len, ProtFlags::READ, Sharing::Sync.flags(), file, 0) {
            Ok(address) => munmap(address, len).is_ok(),
            Err(_) => false,
        }
    }
}

/// Excludes a fresh mapping from what a forked child inherits.
fn leave_to_parent(address: *mut core::ffi::c_void, len: usize) -> io::Result<()> {
    call::ask("madvise", Errno::NOMEM)?;
    // SAFETY: the caller has just mapped the range; the advice changes nothing in this process.
    unsafe { madvise(address, len, Advice::LinuxDontFork) }.map_err(io::Error::from)
}

/// Reserves `span` bytes of inaccessible, unbacked addresses.
fn reserve(span: usize) -> io::Result<usize> {
    let padded = span.checked_add(ALIGNMENT).ok_or(io::ErrorKind::OutOfMemory)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    call::ask("mmap", Errno::NOMEM)?;
    // SAFETY: a new mapping wherever the kernel likes.
    let raw = unsafe { mmap_anonymous(ptr::null_mut(), padded, ProtFlags::empty(), flags)? };
    let raw = raw.expose_provenance();
    let base = raw.next_multiple_of(ALIGNMENT);
    // What alignment does not need is given back.
    release(raw, base - raw);
    release(base + span, raw + padded - (base + span));
    Ok(base)
}

/// Unmaps `[address, address + len)`, which this file has mapped.
fn release(address: usize, len: usize) {
    if len > 0 {
        // SAFETY: all callers pass ranges they mapped and no longer use.
        let _ = unsafe { munmap(ptr::with_exposed_provenance_mut(address), len) };
    }
}

#[cfg(test)]
mod tests;
