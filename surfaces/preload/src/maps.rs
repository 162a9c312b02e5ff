//! Mappings: `mmap`, `munmap`, `mremap`, `mprotect`, `madvise`.
//!
//! A place that is given up is made read-only first, then told, then given up: no store can fall
//! between what is harvested and the end. (Who stores there meanwhile dies of it a moment earlier
//! than without us.) A new one is told before its address is known to the program.
//!
//! Other threads may store by right to a place that somebody chooses for a writable mapping
//! (`MAP_FIXED`, `MREMAP_FIXED`), before and after, and to one that pages leave mapped
//! (`MREMAP_DONTUNMAP`). There, what is shown before and after is announced as changed, from before
//! the call until the new mapping is tracked: nobody is kept from anything, and all of it counts as
//! stored to. Where the C library knows of no second thread, the place is made read-only as ever.

use core::ffi::{c_int, c_uint, c_void};
use std::os::fd::AsFd;

use holdfast_guard_wire::{Place, Request};
use holdfast_pmem::track::TrackError;
use holdfast_pmem::track::pagemap::Pagemap;
use holdfast_pmem::track::uffd::Uffd;
use libc::{iovec, off_t, size_t};
use rustix::mm::{Advice, MapFlags, MprotectFlags, MsyncFlags, ProtFlags};

use crate::files::{self, Announced, Change, Guarded};
use crate::fork;
use crate::real::{Errno, copied, hooks};
use crate::state::{self, Quiet};
use crate::table::{self, Mapping, Table};

type Mmap =
    unsafe extern "C-unwind" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
type Munmap = unsafe extern "C-unwind" fn(*mut c_void, size_t) -> c_int;
type Mremap =
    unsafe extern "C-unwind" fn(*mut c_void, size_t, size_t, c_int, *mut c_void) -> *mut c_void;
type Mprotect = unsafe extern "C-unwind" fn(*mut c_void, size_t, c_int) -> c_int;
type AdviseParts = unsafe extern "C-unwind" fn(c_int, *const iovec, usize, c_int, c_uint) -> isize;
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
    process_madvise(
        process: c_int, parts: *const iovec, count: size_t, advice: c_int, flags: c_uint,
    ) -> isize = advise_parts;
}

/// Whether any guarded file may be mapped here.
pub(crate) fn are_any() -> bool {
    !table::is_empty()
}

/// The pages of a range, if any mapping of ours may lie there. Who calls for memory of its own goes
/// on without the lock: it may have others.
fn concerned(at: *mut c_void, len: size_t) -> Option<Place> {
    if table::is_empty() {
        return None;
    }
    Place::new(at as u64, len as u64).filter(|place| table::may_hold(*place) && state::on())
}

/// The lock, unless it shows meanwhile that no mapping of ours lies there: while the table changes,
/// nobody is sure of that.
fn take_for(place: Place) -> Option<Quiet> {
    Quiet::take_while(|| table::may_hold(place))
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
    let needed = || file.is_some() || old.is_some_and(table::may_hold);
    let Some(mut quiet) = needed().then(|| Quiet::take_while(needed)).flatten() else {
        // SAFETY: the caller's promise.
        return unsafe { real(at, len, rights, flags, fd, from) };
    };
    let _busy = table::busy(&mut quiet);
    let writes = rights & libc::PROT_WRITE != 0;
    let mut before = Parts::NONE;
    if let Some(old) = old {
        before.note(&mut quiet, old);
    }
    // Where the new one may be stored to as well, whoever stores all the time lives.
    let still = !writes || fork::is_single();
    let _old = old.filter(|_| !still).map(|old| announce(&mut quiet, old));
    let _new = file.filter(|_| replaces && !still).map(|file| file.change(from as u64, len as u64));
    let over = old.is_some_and(|old| release(&mut quiet, old, still));
    // Nothing that may be stored to is ever there untold, unless others store there already.
    let later = writes && file.is_some() && !replaces;
    let first = if later { rights & !libc::PROT_WRITE } else { rights };
    // SAFETY: the caller's promise.
    let found = unsafe { real(at, len, first, flags, fd, from) };
    if found == libc::MAP_FAILED {
        if over {
            before.take_back(&mut quiet);
        }
        return found;
    }
    if let (Some(file), Some(place)) = (file, Place::new(found as u64, len as u64)) {
        let rights = flags_of(rights);
        let (file, at) = (file.number, from as u64);
        let mapping = Mapping { place, file, at, writable: writes, rights };
        adopt(&mut quiet, mapping, replaces && still, Registered::No);
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
    let _errno = Errno::keep();
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
    let single = in_single_pages(place, late);
    let uffd = Uffd::open().and_then(|uffd| {
        uffd.register(place.start as usize, place.bytes())?;
        if !single {
            // Locked into memory. What is protected is split.
            uffd.protect(place.start as usize, place.bytes())?;
        }
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

/// Keeps a mapping out of large pages, and takes one that was there before out of those that it
/// lies in: asked for a part of one, some kernels (from 6.7 on) forget what was stored to the rest.
/// False if it may still lie in some. A kernel without large pages takes no such advice.
fn in_single_pages(place: Place, late: bool) -> bool {
    let (at, len) = (place.start as *mut c_void, place.bytes() as usize);
    // SAFETY: what is mapped there shows a file that is shared: its bytes stay where they are, and
    // are mapped again when they are touched.
    unsafe {
        let _ = rustix::mm::madvise(at, len, Advice::LinuxNoHugepage);
        !late || rustix::mm::madvise(at, len, Advice::LinuxDontNeed).is_ok()
    }
}

/// Whether the kernel tracks a mapping not because nobody can ever store there.
fn is_refused(error: &TrackError) -> bool {
    matches!(error, TrackError::NotTrackable { why, .. } if why.contains("read-only"))
}

/// Registers everything anew, in a child that has inherited the mappings and nothing else. Others'
/// handlers may have stored there before: pages that the child has touched count as stored to.
pub(crate) fn adopt_again(quiet: &mut Quiet) {
    forget_what_is_gone(quiet);
    let pages = Pagemap::own().ok();
    for index in 0..table::MOST {
        let Some(mapping) = table::with(quiet).all_at(index) else { continue };
        if mapping.writable {
            mark_touched(&mapping, pages.as_ref());
        }
        table::with(quiet).cut(mapping.place);
        adopt(quiet, mapping, false, Registered::No);
    }
}

/// Takes those parts out of the table that a child was not given (`MADV_DONTFORK`).
fn forget_what_is_gone(quiet: &mut Quiet) {
    let table = table::with(quiet);
    for index in 0..table::MOST {
        // What is left of a mapping in several parts is found again, and is all there.
        let Some(mapping) = table.all_at(index) else { continue };
        if !forget_gaps(table, mapping.place) {
            state::ledger().lose();
        }
    }
}

/// The same in one place, half by half; false if there is no room for what is left.
fn forget_gaps(table: &mut Table, place: Place) -> bool {
    let (at, len) = (place.start as *mut c_void, place.bytes() as usize);
    // SAFETY: without a wish to write or to invalidate, the call only looks whether every page of
    // the range is mapped.
    if unsafe { rustix::mm::msync(at, len, MsyncFlags::ASYNC) }.is_ok() {
        return true;
    }
    let half = place.bytes() / holdfast_pmem::PAGE / 2 * holdfast_pmem::PAGE;
    if half == 0 || is_empty(at, len) {
        return table.cut(place);
    }
    let middle = place.start + half;
    let first = forget_gaps(table, Place { end: middle, ..place });
    forget_gaps(table, Place { start: middle, ..place }) && first
}

/// Whether nothing at all is mapped in a range.
fn is_empty(at: *mut c_void, len: usize) -> bool {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: takes nobody's place; what is mapped is unmapped before anybody else runs, since a
    // child has one thread when it is made.
    unsafe {
        match rustix::mm::mmap_anonymous(at, len, ProtFlags::empty(), flags) {
            Ok(found) => rustix::mm::munmap(found, len).is_ok() && found == at,
            Err(_) => false,
        }
    }
}

/// Announces pages of a mapping that this process has in its page table, which is empty in a child
/// to begin with (or, where the medium is memory itself, a copy: then more is announced). What is
/// touched is in it, whether it was stored to or only read.
fn mark_touched(mapping: &Mapping, pages: Option<&Pagemap>) {
    let Mapping { place, at, .. } = *mapping;
    let file = files::by_number(mapping.file);
    let found = pages.is_some_and(|pages| {
        let touched = pages.touched(place.start as usize, place.bytes(), &mut |start, end| {
            drop(file.change(at + (start as u64 - place.start), (end - start) as u64));
        });
        touched.is_ok()
    });
    if !found {
        drop(file.change(at, place.bytes()));
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

/// Ranges of files that are announced apart: few, since handlers map on small stacks.
const APART: usize = 4;

/// Says that all that is shown in a place may be stored to, until the answer is dropped: others
/// store there by right while nobody tracks it.
#[inline(never)]
fn announce(quiet: &mut Quiet, place: Place) -> [Option<Change>; APART] {
    let mut ranges = [None::<(u32, u64, u64)>; APART];
    for mapping in table::with(quiet).over(place).filter(|mapping| mapping.writable) {
        let Some(part) = mapping.place.and(place) else { continue };
        let at = mapping.at + (part.start - mapping.place.start);
        let (file, end) = (mapping.file, at + part.bytes());
        if let Some(free) = ranges.iter_mut().find(|range| range.is_none()) {
            *free = Some((file, at, end));
        } else if let Some(range) = ranges.iter_mut().flatten().find(|range| range.0 == file) {
            // All between counts, too.
            *range = (file, range.1.min(at), range.2.max(end));
        } else {
            state::ledger().lose();
        }
    }
    ranges.map(|range| {
        range.map(|(file, at, end)| files::by_number(file).change(at, end.saturating_sub(at)))
    })
}

/// The parts of mappings in a place that is about to be given up, should it not be after all.
struct Parts {
    all: [Option<Mapping>; 16],
    /// There are more of them.
    more: bool,
}

impl Parts {
    const NONE: Self = Self { all: [None; 16], more: false };

    /// Notes those of one place. Filled where it lies: handlers map on small stacks.
    fn note(&mut self, quiet: &mut Quiet, place: Place) {
        let mut room = self.all.iter_mut();
        for old in table::with(quiet).over(place) {
            let Some(inside) = old.place.and(place) else { continue };
            let at = old.at + (inside.start - old.place.start);
            match room.next() {
                Some(part) => *part = Some(Mapping { place: inside, at, ..old }),
                None => self.more = true,
            }
        }
    }

    /// The call failed: everything is as it was. Where the kernel gave the place up none the less,
    /// or nobody remembers what was there, that is told.
    fn take_back(&self, quiet: &mut Quiet) {
        let _errno = Errno::keep();
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
    let place = concerned(at, len).filter(|_| aligned);
    let Some((place, mut quiet)) = place.and_then(|place| Some((place, take_for(place)?))) else {
        // SAFETY: the caller's promise.
        return unsafe { real(at, len) };
    };
    let _busy = table::busy(&mut quiet);
    let mut before = Parts::NONE;
    before.note(&mut quiet, place);
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
    let both = [source, target];
    let needed = || both.into_iter().flatten().any(table::may_hold);
    let any = both.iter().any(Option::is_some);
    let Some(mut quiet) = any.then(|| Quiet::take_while(needed)).flatten() else {
        // SAFETY: the caller's promise.
        return unsafe { real(at, old, new, flags, to) };
    };
    let _busy = table::busy(&mut quiet);
    let mut under = Parts::NONE;
    // What moves there may be stored to there, as what is there.
    let still = fork::is_single();
    let _announced = target.filter(|_| !still).map(|target| announce(&mut quiet, target));
    if let Some(target) = target {
        under.note(&mut quiet, target);
        release(&mut quiet, target, still);
    }
    // SAFETY: the caller's promise.
    let found = unsafe { remap_source(real, &mut quiet, (at, old, new, flags, to), source) };
    if found == libc::MAP_FAILED {
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
    let stays = flags & libc::MREMAP_DONTUNMAP != 0;
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
    if old == 0 {
        let again = Mapping { at: from, ..mapping };
        // SAFETY: the caller's promise.
        return duplicate(quiet, again, fixed, || unsafe { real(at, old, new, flags, to) }, new);
    }
    if !fixed
        && !stays
        && let Some(wanted) = Place::new(at as u64, new as u64)
    {
        if wanted.end <= source.end {
            let tail = Place { start: wanted.end, end: source.end };
            // SAFETY: the caller's promise.
            return unsafe { shorten(quiet, tail, || real(at, old, new, flags, to)) };
        }
        let stay = flags & !libc::MREMAP_MAYMOVE;
        // SAFETY: the caller's promise; without leave to move, nothing else changes.
        let found = unsafe { real(at, old, new, stay, to) };
        if found != libc::MAP_FAILED {
            let place = Place { start: source.end, end: wanted.end };
            let more = Mapping { place, at: from + source.bytes(), ..mapping };
            adopt(quiet, more, false, Registered::Yes);
            return found;
        }
        // Without leave, or for another reason than room, it fails in any place.
        let room = std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM);
        if stay == flags || !room {
            return found;
        }
    }
    let moved = Mapping { place: source, at: from, ..mapping };
    // SAFETY: the caller's promise.
    unsafe { relocate(quiet, moved, (fixed, stays), || real(at, old, new, flags, to), new) }
}

/// Gives up the end of a mapping.
fn shorten(quiet: &mut Quiet, tail: Place, call: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let mut before = Parts::NONE;
    if tail.start < tail.end {
        before.note(quiet, tail);
        release(quiet, tail, true);
    }
    let found = call();
    if found == libc::MAP_FAILED {
        before.take_back(quiet);
    }
    found
}

/// Maps what a mapping shows a second time: no page moves, and what is there stays as it is. Told
/// while it is read-only; where the program chose the place, others may store there all the time,
/// so what is shown there is announced.
fn duplicate(
    quiet: &mut Quiet,
    old: Mapping,
    chosen: bool,
    call: impl FnOnce() -> *mut c_void,
    len: size_t,
) -> *mut c_void {
    let _announced = chosen.then(|| files::by_number(old.file).change(old.at, len as u64));
    let found = call();
    if found == libc::MAP_FAILED {
        return found;
    }
    let Some(place) = Place::new(found as u64, len as u64) else { return found };
    if !chosen {
        set_rights(place, old.rights & !MprotectFlags::WRITE);
    }
    adopt(quiet, Mapping { place, ..old }, false, Registered::No);
    if !chosen {
        set_rights(place, old.rights);
    }
    found
}

/// Moves a mapping: read-only on the way, registered anew where it arrives, and where it was if
/// that stays mapped. Where others may store to either place all the time, it is announced instead.
unsafe fn relocate(
    quiet: &mut Quiet,
    old: Mapping,
    (chosen, stays): (bool, bool),
    call: impl FnOnce() -> *mut c_void,
    len: size_t,
) -> *mut c_void {
    let still = !(chosen || stays) || fork::is_single();
    let shown = old.place.bytes().max(len as u64);
    let _announced =
        (!still && old.writable).then(|| files::by_number(old.file).change(old.at, shown));
    let mut before = Parts::NONE;
    before.note(quiet, old.place);
    release(quiet, old.place, still);
    let found = call();
    if found == libc::MAP_FAILED {
        before.take_back(quiet);
    } else if let Some(place) = Place::new(found as u64, len as u64) {
        adopt(quiet, Mapping { place, ..old }, false, Registered::No);
        set_rights(place, old.rights);
        if stays {
            before.take_back(quiet);
        }
    }
    found
}

/// A change of rights: what is about to be writable is told before, and what the program may do
/// there is noted.
fn change(at: *mut c_void, len: size_t, rights: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let Some(place) = concerned(at, len) else { return call() };
    let Some(mut quiet) = take_for(place) else { return call() };
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

/// Changes that are announced while advice is followed.
type Changes = [Option<Announced>; 8];

/// What is to be done before advice about a place is followed: false if nothing of ours is there.
/// What makes holes is announced; what takes entries out of the page table has them harvested.
fn before_advice(quiet: &mut Quiet, place: Place, advice: c_int, changes: &mut Changes) -> bool {
    if table::with(quiet).over(place).next().is_none() {
        return false;
    }
    if advice == libc::MADV_HUGEPAGE {
        return true;
    }
    for mapping in table::with(quiet).over(place).filter(|_| advice == libc::MADV_REMOVE) {
        let Some(part) = mapping.place.and(place) else { continue };
        let at = mapping.at + (part.start - mapping.place.start);
        match changes.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(files::by_number(mapping.file).announce(at, part.bytes())),
            None => state::ledger().lose(),
        }
    }
    state::tell(&Request::Harvest { space: state::space(), place }, None);
    true
}

/// Whether advice changes what is there, or how it is seen that it is changed.
fn matters(advice: c_int) -> bool {
    const ALL: [c_int; 4] =
        [libc::MADV_REMOVE, libc::MADV_DONTNEED, libc::MADV_DONTNEED_LOCKED, libc::MADV_HUGEPAGE];
    ALL.contains(&advice)
}

/// The advice that is given in its place where a guarded file is mapped: what is tracked stays in
/// single pages.
fn instead_of(advice: c_int) -> c_int {
    if advice == libc::MADV_HUGEPAGE { libc::MADV_NOHUGEPAGE } else { advice }
}

/// A frame of its own: what it holds is not for the stack of whoever maps.
#[inline(never)]
unsafe fn advise(real: Mprotect, at: *mut c_void, len: size_t, advice: c_int) -> c_int {
    let place = concerned(at, len).filter(|_| matters(advice));
    let Some((place, mut quiet)) = place.and_then(|place| Some((place, take_for(place)?))) else {
        // SAFETY: the caller's promise.
        return unsafe { real(at, len, advice) };
    };
    let mut changes = Changes::default();
    if !before_advice(&mut quiet, place, advice, &mut changes) {
        drop(quiet);
        // SAFETY: the caller's promise.
        return unsafe { real(at, len, advice) };
    }
    // SAFETY: as above; large pages or single ones, the bytes are the same.
    let done = unsafe { real(at, len, instead_of(advice)) };
    drop(changes);
    done
}

unsafe fn advise_parts(
    real: AdviseParts,
    process: c_int,
    parts: *const iovec,
    count: size_t,
    advice: c_int,
    flags: c_uint,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { raw_parts(parts, count, advice, |advice| real(process, parts, count, advice, flags)) }
}

/// Advice about parts of some process, which is this one: the kernel takes none of what matters
/// about another.
///
/// # Safety
/// As for `process_madvise`; `call` is told which advice.
#[inline(never)]
pub(crate) unsafe fn raw_parts(
    parts: *const iovec,
    count: size_t,
    advice: c_int,
    call: impl FnOnce(c_int) -> isize,
) -> isize {
    /// More than the kernel takes.
    const MOST: usize = 1024;
    if !matters(advice) || table::is_empty() || !state::on() || count > MOST {
        return call(advice);
    }
    // SAFETY: the caller's promise; what cannot be read is the kernel's to refuse.
    let part = |index| unsafe { copied(parts.wrapping_add(index)) };
    let places = || {
        let parts = (0..count).map_while(part);
        parts.filter_map(|part| concerned(part.iov_base, part.iov_len))
    };
    let needed = || places().next().is_some();
    let Some(mut quiet) = needed().then(|| Quiet::take_while(needed)).flatten() else {
        return call(advice);
    };
    let mut changes = Changes::default();
    let mut any = false;
    for place in places() {
        any |= before_advice(&mut quiet, place, advice, &mut changes);
    }
    let done = call(if any { instead_of(advice) } else { advice });
    drop(changes);
    done
}

/// The mapping that a page belongs to.
pub(crate) fn over(page: Place) -> Option<Mapping> {
    if table::may_hold(page) && state::on() { next_over(page) } else { None }
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
    let (read, shared) = (ProtFlags::READ, MapFlags::SHARED);
    // SAFETY: takes the place of a page of a mapping of the same file, which cannot be loaded from.
    let mapped =
        unsafe { rustix::mm::mmap(address, len, read, shared | MapFlags::FIXED, &file, at) };
    if mapped.is_err() {
        state::ledger().lose();
        return false;
    }
    adopt(&mut quiet, Mapping { place: page, at, ..mapping }, true, Registered::No);
    set_rights(page, mapping.rights);
    true
}

/// A call about addresses that was made by its number; `None` if it is none of those. `advised` is
/// the same call with other advice.
///
/// # Safety
/// Arguments as the call of that number has them.
pub(crate) unsafe fn raw(
    number: i64,
    [a, b, c, d, e, f]: [i64; 6],
    advised: impl FnOnce(i64) -> i64,
) -> Option<i64> {
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
            libc::SYS_process_madvise => {
                let call = |advice: c_int| advised(advice.into()) as isize;
                raw_parts(b as *const iovec, c as size_t, d as c_int, call) as i64
            }
            _ => return None,
        })
    }
}

/// The lowest mapping that overlaps a place.
fn next_over(place: Place) -> Option<Mapping> {
    if place.start >= place.end {
        return None;
    }
    let mut quiet = take_for(place)?;
    table::with(&mut quiet).over(place).min_by_key(|mapping| mapping.place.start)
}

/// Whether a guarded file is mapped anywhere in a range of addresses.
pub(crate) fn is_behind(at: *mut c_void, len: size_t) -> bool {
    concerned(at, len).and_then(next_over).is_some()
}

/// Tells the files and ranges behind addresses, for syncs. The lock is not held meanwhile.
pub(crate) fn behind(at: *mut c_void, len: size_t, mut each: impl FnMut(u32, u64, u64)) {
    let Some(mut left) = concerned(at, len) else { return };
    while let Some(mapping) = next_over(left) {
        let Some(part) = mapping.place.and(left) else { return };
        each(mapping.file, mapping.at + (part.start - mapping.place.start), part.bytes());
        left.start = part.end;
    }
}
