//! Calls that change a file's length, or make holes: `ftruncate`, `truncate`, `fallocate`.

use core::ffi::{c_char, c_int};

use libc::off_t;
use rustix::fs::{AtFlags, CWD, statat};

use crate::files::{self, Guarded};
use crate::opens::Cut;
use crate::real::{self, hooks};
use crate::state;

type Ftruncate = unsafe extern "C-unwind" fn(c_int, off_t) -> c_int;
type Truncate = unsafe extern "C-unwind" fn(*const c_char, off_t) -> c_int;
type Fallocate = unsafe extern "C-unwind" fn(c_int, c_int, off_t, off_t) -> c_int;
type Allocate = unsafe extern "C-unwind" fn(c_int, off_t, off_t) -> c_int;

hooks! {
    ftruncate(fd: c_int, len: off_t) -> c_int = cut;
    ftruncate64(fd: c_int, len: off_t) -> c_int = cut;
    truncate(name: *const c_char, len: off_t) -> c_int = cut_by_name;
    truncate64(name: *const c_char, len: off_t) -> c_int = cut_by_name;
    fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int = allocate;
    fallocate64(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int = allocate;
    posix_fallocate(fd: c_int, at: off_t, len: off_t) -> c_int = allocate_plainly;
    posix_fallocate64(fd: c_int, at: off_t, len: off_t) -> c_int = allocate_plainly;
}

/// What a change of length changes. If the shorter end is inside a page, that page counts; if not,
/// the page before it is left alone, and so is what rotted there.
fn resized(size: u64, len: u64) -> (u64, u64) {
    (len.min(size), len.abs_diff(size))
}

/// A change of length: all between the old end and the new one.
fn resize(file: Option<Guarded>, len: off_t, call: impl FnOnce() -> c_int) -> c_int {
    let Some(file) = file else { return call() };
    let (from, len) = resized(file.size, len.max(0) as u64);
    // Everything behind counts while it lasts.
    let mut announced = file.announce(from, u64::MAX);
    let done = call();
    announced.narrow(from, len);
    done
}

/// A change of length by a bare call.
pub(crate) fn raw(fd: c_int, len: off_t, call: impl FnOnce() -> c_int) -> c_int {
    let file = if state::on() { files::of(fd) } else { None };
    resize(file, len, call)
}

unsafe fn cut(real: Ftruncate, fd: c_int, len: off_t) -> c_int {
    // SAFETY: the caller's promise.
    raw(fd, len, || unsafe { real(fd, len) })
}

unsafe fn cut_by_name(real: Truncate, name: *const c_char, len: off_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { raw_by_name(name, len, || real(name, len)) }
}

/// The same by name.
///
/// # Safety
/// `name` is null or ends with a zero.
pub(crate) unsafe fn raw_by_name(
    name: *const c_char,
    len: off_t,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let mut cut = None;
    if state::on() {
        // SAFETY: the caller's promise.
        let name = unsafe { real::name(libc::AT_FDCWD, name, 0) };
        let found = name.and_then(|name| Some((name, statat(CWD, name, AtFlags::empty()).ok()?)));
        let new = len.max(0) as u64;
        // What is not guarded is not asked about.
        cut = found
            .filter(|(_, stat)| state::ledger().find(stat.st_dev, stat.st_ino).is_some())
            .and_then(|(name, stat)| Cut::begin(CWD, name, &stat, |size| resized(size, new).0));
    }
    let done = call();
    if let Some(Cut { file, mut announced, .. }) = cut {
        let (from, len) = resized(file.size, len.max(0) as u64);
        announced.narrow(from, len);
    }
    done
}

/// What an allocation changes: nothing that is there, unless it makes holes, shifts, or does what
/// nobody knows of.
fn changed(size: u64, mode: c_int, at: u64, len: u64) -> (u64, u64) {
    let shifts = libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE;
    let keeps = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_UNSHARE_RANGE;
    let end = at.saturating_add(len);
    if mode & shifts != 0 {
        return (at, u64::MAX);
    }
    // A file that grows loses what lay behind its end.
    let grown = if mode & libc::FALLOC_FL_KEEP_SIZE == 0 { size.min(end) } else { end };
    let from = if mode & !keeps == 0 { grown } else { at.min(grown) };
    (from, end - from)
}

unsafe fn allocate(real: Fallocate, fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    // SAFETY: the caller's promise.
    raw_allocate(fd, mode, at, len, || unsafe { real(fd, mode, at, len) })
}

/// An allocation by a bare call.
pub(crate) fn raw_allocate(
    fd: c_int,
    mode: c_int,
    at: off_t,
    len: off_t,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let file = if state::on() { files::of(fd) } else { None };
    let _announced = file.map(|file| {
        let (at, len) = changed(file.size, mode, at.max(0) as u64, len.max(0) as u64);
        file.announce(at, len.min(file.size.saturating_add(1 << 30)))
    });
    call()
}

unsafe fn allocate_plainly(real: Allocate, fd: c_int, at: off_t, len: off_t) -> c_int {
    let file = if state::on() { files::of(fd) } else { None };
    let _announced = file.map(|file| {
        let (at, len) = changed(file.size, 0, at.max(0) as u64, len.max(0) as u64);
        file.announce(at, len)
    });
    // SAFETY: the caller's promise.
    unsafe { real(fd, at, len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_before_the_border_is_left_alone() {
        assert_eq!((resized(9000, 8192), resized(8192, 9000)), ((8192, 808), (8192, 808)));
        assert_eq!((resized(9000, 8191), resized(7, 7)), ((8191, 809), (7, 0)));
    }

    #[test]
    fn what_an_allocation_changes() {
        let (keep, zero) = (libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_ZERO_RANGE);
        assert_eq!(changed(100, 0, 10, 20), (30, 0), "it is there already");
        assert_eq!(changed(100, 0, 10, 200), (100, 110), "it grows");
        assert_eq!(changed(100, keep, 90, 200).1, 0);
        assert_eq!(changed(100, keep | libc::FALLOC_FL_UNSHARE_RANGE, 10, 20).1, 0);
        assert_eq!(changed(100, keep | libc::FALLOC_FL_PUNCH_HOLE, 10, 20), (10, 20));
        assert_eq!(changed(100, zero, 10, 20), (10, 20));
        assert_eq!(changed(100, zero, 200, 20), (100, 120), "zeros, and it grows");
        // `FALLOC_FL_WRITE_ZEROES`, and one that does not exist yet.
        assert_eq!(changed(100, 0x80, 10, 20), (10, 20));
        assert_eq!(changed(100, keep | 1 << 20, 10, 20), (10, 20));
        assert_eq!(changed(100, libc::FALLOC_FL_COLLAPSE_RANGE, 10, 20), (10, u64::MAX));
    }
}
