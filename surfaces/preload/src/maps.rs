//! Mappings: `mmap`, `munmap`, `mremap`, `mprotect`, `madvise`.
//!
//! A place that is given up is made read-only first, then told, then given up: no store can fall
//! between what is harvested and the end. (Who stores there meanwhile dies of it a moment earlier
//! than without us.) A new one is told before its address is known to the program. Only where one
//! mapping of a guarded file replaces another can stores of other threads fall between; the
//! supervisor knows of those, and doubts what it finds there.

use core::ffi::{c_int, c_void};
use std::os::fd::AsFd;

use holdfast_guard_wire::{Place, Request};
use holdfast_pmem::track::TrackError;
use holdfast_pmem::track::uffd::Uffd;
use libc::{off_t, size_t};
use rustix::mm::{MprotectFlags, MsyncFlags};

use crate::files::{self, Guarded};
use crate::real::{Errno, hooks};
use crate::state::{self, Quiet};
use crate::table::{self, Mapping};

type Mmap =
    unsafe extern "C-unwind" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
type Munmap = unsafe extern "C-unwind" fn(*mut c_void, size_t) -> c_int;
type Mremap =
    unsafe extern "C-unwind" fn(*mut c_void, size_t, size_t, c_int, *mut c_void) -> *mut c_void;
type Mprotect = unsafe extern "C-unwind" fn(*mut c_void, size_t, c_int) -> c_int;
type PkeyMprotect = unsafe extern "C-unwind" fn(*mut c_void, size_t, c_int, c_int) -> c_int;

hooks! {
    mmap(at: *mut c_void, len: size_t, rights: c_int, flags: c_int, fd: c_int, from: off_t)
        -> *mut c_void = map;
    mmap64(at: *mut c_void, len: size_t, rights: c_int, flags: c_int, fd: c_int, from: off_t)
        -> *mut c_void = map;
    munmap(at: *mut c_void, len: size_t) -> c_int = unmap;
    mremap(at: *mut c_void, old: size_t, new: size_t, flags: c_int, to: *mut c_void)
        -> *mut c_void = remap;
    mprotect(at: *mut c_void, len: size_t, rights: c_int) -> c_int = protect;
    pkey_mprotect(at: *mut c_void, len: size_t, rights: c_int, key: c_int) -> c_int
        = protect_by_key;
    madvise(at: *mut c_void, len: size_t, advice: c_int) -> c_int = advise;
}

/// Whether any guarded file may be mapped here.
pub(crate) fn are_any() -> bool {
    !table::is_empty()
}

/// The pages of a range, if any mapping of ours may lie there.
fn concerned(at: *mut c_void, len: size_t) -> Option<Place> {
    if table::is_empty() || !state::on() {
        return None;
    }
    Place::new(at as u64, len as u64)
}

/// The file that a mapping shows and may be stored to through, now or later.
fn shared_file(flags: c_int, fd: c_int) -> Option<Guarded> {
    let kind = flags & libc::MAP_TYPE;
    let shared = kind == libc::MAP_SHARED || kind == libc::MAP_SHARED_VALIDATE;
    if !shared || flags & libc::MAP_ANONYMOUS != 0 || !state::on() {
        return None;
    }
    // SAFETY: used for calls that fail if it is no descriptor.
    let fd = unsafe { files::borrow(fd)? };
    if files::is_writable(fd) { files::of_or_ask(fd) } else { None }
}

unsafe fn map(
    real: Mmap,
    at: *mut c_void,
    len: size_t,
    rights: c_int,
    flags: c_int,
    fd: c_int,
    from: off_t,
) -> *mut c_void {
    let file = shared_file(flags, fd);
    let replaces = flags & libc::MAP_FIXED != 0 && flags & libc::MAP_FIXED_NOREPLACE == 0;
    let old = if replaces { concerned(at, len) } else { None };
    if file.is_none() && old.is_none() {
        // SAFETY: the caller's promise.
        return unsafe { real(at, len, rights, flags, fd, from) };
    }
    let mut quiet = Quiet::take();
    let _busy = table::busy(&mut quiet);
    let before = old.map(|old| Parts::of(&mut quiet, old));
    let over = old.is_some_and(|old| release(&mut quiet, old, file.is_none()));
    // Nothing that may be stored to is ever there untold, unless others store there already.
    let later = rights & libc::PROT_WRITE != 0 && file.is_some() && !replaces;
    let first = if later { rights & !libc::PROT_WRITE } else { rights };
    // SAFETY: the caller's promise.
    let found = unsafe { real(at, len, first, flags, fd, from) };
    if found == libc::MAP_FAILED {
        if let Some(before) = before.filter(|_| over) {
            before.take_back(&mut quiet);
        }
        return found;
    }
    if let (Some(file), Some(place)) = (file, Place::new(found as u64, len as u64)) {
        let writable = rights & libc::PROT_WRITE != 0;
        let rights = flags_of(rights);
        let mapping = Mapping { place, file: file.number, at: from as u64, writable, rights };
        adopt(&mut quiet, mapping, over || replaces, Registered::No);
        // SAFETY: the mapping just made, which nobody knows yet; its file is open for writing.
        if later && unsafe { rustix::mm::mprotect(found, len, mapping.rights) }.is_err() {
            release(&mut quiet, place, false);
            // SAFETY: as above.
            let _ = unsafe { rustix::mm::munmap(found, len) };
            Errno::set(libc::ENOMEM);
            return libc::MAP_FAILED;
        }
    }
    found
}

/// Rights as the program gave them.
fn flags_of(rights: c_int) -> MprotectFlags {
    MprotectFlags::from_bits_retain(rights.unsigned_abs())
}

/// Whether the kernel tracks a mapping already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Registered {
    No,
    Yes,
    /// It was, for as long as the supervisor needed its descriptor for other parts.
    Perhaps,
}

/// Registers a mapping that was there before anybody watched.
pub(crate) fn adopt_late(mapping: Mapping) {
    let mut quiet = Quiet::take();
    if table::with(&mut quiet).over(mapping.place).next().is_none() {
        adopt_as(&mut quiet, mapping, false, Registered::No, true);
    }
}

/// Registers a mapping and tells of it.
fn adopt(quiet: &mut Quiet, mapping: Mapping, replaced: bool, registered: Registered) {
    adopt_as(quiet, mapping, replaced, registered, false);
}

fn adopt_as(
    quiet: &mut Quiet,
    mapping: Mapping,
    replaced: bool,
    registered: Registered,
    late: bool,
) {
    if !table::with(quiet).add(mapping) {
        state::ledger().lose();
        return;
    }
    let Mapping { place, file, at, writable, .. } = mapping;
    let space = state::space();
    let request = Request::Map { space, file, place, at, writable, replaced, late };
    if registered == Registered::Yes {
        state::tell(&request, None);
        return;
    }
    let uffd = Uffd::open().and_then(|uffd| {
        uffd.register(place.start as usize, place.bytes())?;
        Ok(uffd)
    });
    match uffd {
        // The supervisor keeps it open, and with it the registration.
        Ok(uffd) => state::tell(&request, Some(uffd.as_fd())),
        // It looks whether the pages are tracked, and believes nothing if they are not.
        Err(_) if registered == Registered::Perhaps => state::tell(&request, None),
        // Only what may never be stored to is refused: made by a descriptor for reading.
        Err(error) if late && !writable && is_refused(&error) => {
            table::with(quiet).cut(place);
        }
        Err(_) => state::ledger().lose(),
    }
}

/// Whether the kernel tracks a mapping not because nobody can ever store there.
fn is_refused(error: &TrackError) -> bool {
    matches!(error, TrackError::NotTrackable { why, .. } if why.contains("read-only"))
}

/// Registers everything anew, in a child that has inherited the mappings and nothing else.
pub(crate) fn adopt_again(quiet: &mut Quiet) {
    for index in 0..table::MOST {
        let Some(mapping) = table::with(quiet).all_at(index) else { continue };
        let Mapping { place, .. } = mapping;
        // SAFETY: without a wish to write or to invalidate, the call only looks whether every page
        // of the range is mapped.
        let there = unsafe {
            rustix::mm::msync(place.start as *mut c_void, place.bytes() as usize, MsyncFlags::ASYNC)
        };
        table::with(quiet).cut(place);
        if there.is_ok() {
            adopt(quiet, mapping, false, Registered::No);
        }
    }
}

/// Gives up a place: answers whether any of it was ours. `still` keeps everybody from storing
/// there before it is harvested.
fn release(quiet: &mut Quiet, place: Place, still: bool) -> bool {
    let table = table::with(quiet);
    let mut any = false;
    for mapping in table.over(place) {
        any = true;
        let Some(part) = mapping.place.and(place) else { continue };
        if still && mapping.writable {
            set_rights(part, mapping.rights & !MprotectFlags::WRITE);
        }
    }
    if any {
        state::tell(&Request::Unmap { space: state::space(), place }, None);
        if !table.cut(place) {
            state::ledger().lose();
        }
    }
    any
}

/// The parts of mappings in a place that is about to be given up, should it not be after all.
struct Parts {
    all: [Option<Mapping>; 16],
    /// There are more of them.
    more: bool,
}

impl Parts {
    fn of(quiet: &mut Quiet, place: Place) -> Self {
        let mut parts = Self { all: [None; 16], more: false };
        let mut room = parts.all.iter_mut();
        for old in table::with(quiet).over(place) {
            let Some(inside) = old.place.and(place) else { continue };
            let at = old.at + (inside.start - old.place.start);
            match room.next() {
                Some(part) => *part = Some(Mapping { place: inside, at, ..old }),
                None => parts.more = true,
            }
        }
        parts
    }

    /// The call failed: everything is as it was. Where the kernel gave the place up none the less,
    /// or nobody remembers what was there, that is told.
    fn take_back(&self, quiet: &mut Quiet) {
        if self.more {
            state::ledger().lose();
        }
        for part in self.all.into_iter().flatten() {
            adopt(quiet, part, false, Registered::Perhaps);
            set_rights(part.place, part.rights);
        }
    }
}

fn set_rights(place: Place, rights: MprotectFlags) {
    // SAFETY: pages of a mapping in the table, which the program is giving up (read-only), or
    // with the rights that it was told that it has.
    let done =
        unsafe { rustix::mm::mprotect(place.start as *mut c_void, place.bytes() as usize, rights) };
    if done.is_err() {
        state::ledger().lose();
    }
}

unsafe fn unmap(real: Munmap, at: *mut c_void, len: size_t) -> c_int {
    let aligned = (at as u64).is_multiple_of(holdfast_pmem::PAGE);
    let Some(place) = concerned(at, len).filter(|_| aligned) else {
        // SAFETY: the caller's promise.
        return unsafe { real(at, len) };
    };
    let mut quiet = Quiet::take();
    let _busy = table::busy(&mut quiet);
    let before = Parts::of(&mut quiet, place);
    let ours = release(&mut quiet, place, true);
    // SAFETY: the caller's promise.
    let done = unsafe { real(at, len) };
    if done != 0 && ours {
        before.take_back(&mut quiet);
    }
    done
}

unsafe fn remap(
    real: Mremap,
    at: *mut c_void,
    old: size_t,
    new: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let fixed = flags & libc::MREMAP_FIXED != 0;
    let target = if fixed { concerned(to, new) } else { None };
    let source = concerned(at, old.max(1));
    if source.is_none() && target.is_none() {
        // SAFETY: the caller's promise.
        return unsafe { real(at, old, new, flags, to) };
    }
    let mut quiet = Quiet::take();
    let _busy = table::busy(&mut quiet);
    let under = target.map(|target| Parts::of(&mut quiet, target));
    if let Some(target) = target {
        release(&mut quiet, target, true);
    }
    // SAFETY: the caller's promise.
    let found = unsafe { remap_source(real, &mut quiet, (at, old, new, flags, to), source) };
    if let Some(under) = under.filter(|_| found == libc::MAP_FAILED) {
        under.take_back(&mut quiet);
    }
    found
}

/// The same, once what was at its target is given up.
unsafe fn remap_source(
    real: Mremap,
    quiet: &mut Quiet,
    (at, old, new, flags, to): (*mut c_void, size_t, size_t, c_int, *mut c_void),
    source: Option<Place>,
) -> *mut c_void {
    let fixed = flags & libc::MREMAP_FIXED != 0;
    let inside = source.and_then(|source| {
        let first = Place { start: source.start, end: source.start + holdfast_pmem::PAGE };
        table::with(quiet).over(first).next()
    });
    let (Some(source), Some(mapping)) = (source, inside) else {
        // SAFETY: the caller's promise.
        return unsafe { real(at, old, new, flags, to) };
    };
    // Parts that had other rights once count as one.
    let writable = table::with(quiet).over(source).any(|mapping| mapping.writable);
    let mapping = Mapping { writable, ..mapping };
    let from = mapping.at + (source.start - mapping.place.start);
    if !fixed && let Some(wanted) = Place::new(at as u64, new as u64) {
        if wanted.end <= source.end {
            let tail = Place { start: wanted.end, end: source.end };
            if tail.start < tail.end {
                release(quiet, tail, true);
            }
            // SAFETY: the caller's promise.
            return unsafe { real(at, old, new, flags, to) };
        }
        // SAFETY: the caller's promise; without leave to move, nothing else changes.
        let found = unsafe { real(at, old, new, 0, to) };
        if found != libc::MAP_FAILED {
            let place = Place { start: source.end, end: wanted.end };
            let more = Mapping { place, at: from + source.bytes(), ..mapping };
            adopt(quiet, more, false, Registered::Yes);
            return found;
        }
    }
    let moved = Mapping { place: source, at: from, ..mapping };
    // SAFETY: the caller's promise.
    unsafe { relocate(quiet, moved, || real(at, old, new, flags, to), new) }
}

/// Moves a mapping: read-only on the way, registered anew where it arrives.
unsafe fn relocate(
    quiet: &mut Quiet,
    old: Mapping,
    call: impl FnOnce() -> *mut c_void,
    len: size_t,
) -> *mut c_void {
    let before = Parts::of(quiet, old.place);
    release(quiet, old.place, true);
    let found = call();
    if found == libc::MAP_FAILED {
        before.take_back(quiet);
    } else if let Some(place) = Place::new(found as u64, len as u64) {
        adopt(quiet, Mapping { place, ..old }, false, Registered::No);
        set_rights(place, old.rights);
    }
    found
}

/// A change of rights: what is about to be writable is told before, and what the program may do
/// there is noted.
fn change(at: *mut c_void, len: size_t, rights: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let Some(place) = concerned(at, len) else { return call() };
    let mut quiet = Quiet::take();
    if table::with(&mut quiet).over(place).next().is_none() {
        drop(quiet);
        return call();
    }
    let writes = rights & libc::PROT_WRITE != 0;
    if writes && table::with(&mut quiet).over(place).any(|mapping| !mapping.writable) {
        state::tell(&Request::Writable { space: state::space(), place }, None);
        table::with(&mut quiet).make_writable(place);
    }
    let done = call();
    if done == 0 {
        table::with(&mut quiet).set_rights(place, flags_of(rights));
    }
    done
}

unsafe fn protect(real: Mprotect, at: *mut c_void, len: size_t, rights: c_int) -> c_int {
    // SAFETY: the caller's promise.
    change(at, len, rights, || unsafe { real(at, len, rights) })
}

unsafe fn protect_by_key(
    real: PkeyMprotect,
    at: *mut c_void,
    len: size_t,
    rights: c_int,
    key: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    change(at, len, rights, || unsafe { real(at, len, rights, key) })
}

unsafe fn advise(real: Mprotect, at: *mut c_void, len: size_t, advice: c_int) -> c_int {
    let changes = advice == libc::MADV_REMOVE || advice == libc::MADV_DONTNEED;
    let Some(place) = concerned(at, len).filter(|_| changes) else {
        // SAFETY: the caller's promise.
        return unsafe { real(at, len, advice) };
    };
    let mut quiet = Quiet::take();
    if table::with(&mut quiet).over(place).next().is_none() {
        drop(quiet);
        // SAFETY: the caller's promise.
        return unsafe { real(at, len, advice) };
    }
    let mut announced = [const { None }; 8];
    let mut slots = announced.iter_mut();
    for mapping in table::with(&mut quiet).over(place) {
        let Some(part) = mapping.place.and(place) else { continue };
        if advice == libc::MADV_REMOVE {
            let at = mapping.at + (part.start - mapping.place.start);
            let file = files::by_number(mapping.file);
            match slots.next() {
                Some(slot) => *slot = Some(file.announce(at, part.bytes())),
                None => state::ledger().lose(),
            }
        }
    }
    state::tell(&Request::Harvest { space: state::space(), place }, None);
    // SAFETY: the caller's promise.
    let done = unsafe { real(at, len, advice) };
    drop(announced);
    done
}

/// The mapping that a page belongs to.
pub(crate) fn over(page: Place) -> Option<Mapping> {
    let any = !table::is_empty() && state::on();
    if any { next_over(page) } else { None }
}

/// Maps a page anew from its file, opened by the supervisor: whatever is mapped there shows it no
/// more. It is told as gone, mapped to be read, told, and only then made writable.
pub(crate) fn renew(page: Place, file: std::os::fd::OwnedFd) -> bool {
    let mut quiet = Quiet::take();
    let Some(mapping) = table::with(&mut quiet).over(page).next() else { return false };
    let _busy = table::busy(&mut quiet);
    release(&mut quiet, page, false);
    let at = mapping.at + (page.start - mapping.place.start);
    let (address, len) = (page.start as *mut c_void, page.bytes() as usize);
    let (read, shared) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
    // SAFETY: takes the place of a page of a mapping of the same file, which cannot be loaded from.
    let mapped = unsafe {
        rustix::mm::mmap(address, len, read, shared | rustix::mm::MapFlags::FIXED, &file, at)
    };
    if mapped.is_err() {
        state::ledger().lose();
        return false;
    }
    adopt(&mut quiet, Mapping { place: page, at, ..mapping }, true, Registered::No);
    set_rights(page, mapping.rights);
    true
}

/// A call about addresses that was made by its number; `None` if it is none of those.
///
/// # Safety
/// Arguments as the call of that number has them.
pub(crate) unsafe fn raw(number: i64, [a, b, c, d, e, f]: [i64; 6]) -> Option<i64> {
    let (at, len) = (a as *mut c_void, b as size_t);
    // SAFETY: the caller's promise.
    unsafe {
        Some(match number {
            libc::SYS_mmap => mmap(at, len, c as c_int, d as c_int, e as c_int, f) as i64,
            libc::SYS_munmap => munmap(at, len).into(),
            libc::SYS_mremap => mremap(at, len, c as size_t, d as c_int, e as *mut c_void) as i64,
            libc::SYS_mprotect => mprotect(at, len, c as c_int).into(),
            libc::SYS_pkey_mprotect => pkey_mprotect(at, len, c as c_int, d as c_int).into(),
            libc::SYS_madvise => madvise(at, len, c as c_int).into(),
            _ => return None,
        })
    }
}

/// The lowest mapping that overlaps a place.
fn next_over(place: Place) -> Option<Mapping> {
    if place.start >= place.end {
        return None;
    }
    let mut quiet = Quiet::take();
    table::with(&mut quiet).over(place).min_by_key(|mapping| mapping.place.start)
}

/// The file and range behind addresses, for syncs.
pub(crate) fn behind(at: *mut c_void, len: size_t) -> Option<(u32, u64, u64)> {
    let place = concerned(at, len)?;
    let mapping = next_over(place)?;
    let part = mapping.place.and(place)?;
    Some((mapping.file, mapping.at + (part.start - mapping.place.start), part.bytes()))
}
