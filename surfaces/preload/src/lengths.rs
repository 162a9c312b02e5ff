//! Calls that change a file's length, or make holes: `ftruncate`, `truncate`, `fallocate`.

use core::ffi::{c_char, c_int};

use libc::off_t;
use rustix::fs::{AtFlags, CWD, statat};

use crate::files::{self, Guarded};
use crate::real::{hooks, path};
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

/// A change of length: all between the old end and the new one.
fn resize(file: Option<Guarded>, len: off_t, call: impl FnOnce() -> c_int) -> c_int {
    let Some(file) = file else { return call() };
    let len = len.max(0) as u64;
    let from = len.min(file.size);
    // Everything behind counts while it lasts; the byte before, since its page loses its end.
    let mut announced = file.announce(from.saturating_sub(1), u64::MAX);
    let done = call();
    let end = len.max(file.size);
    announced.narrow(from.saturating_sub(1), end - from.saturating_sub(1));
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
    let mut file = None;
    if state::on() {
        // SAFETY: the caller's promise.
        let found = unsafe { path(name) }.and_then(|p| statat(CWD, p, AtFlags::empty()).ok());
        file = found.and_then(|stat| files::known(&stat));
    }
    resize(file, len, call)
}

/// What an allocation changes: nothing that is there, unless it makes holes or shifts.
fn changed(file: &Guarded, mode: c_int, at: u64, len: u64) -> (u64, u64) {
    let shifts = libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE;
    if mode & shifts != 0 {
        (at, u64::MAX)
    } else if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0 {
        (at, len)
    } else {
        let end = at.saturating_add(len);
        let from = file.size.min(end);
        (from, end - from)
    }
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
        let (at, len) = changed(&file, mode, at.max(0) as u64, len.max(0) as u64);
        file.announce(at, len.min(file.size.saturating_add(1 << 30)))
    });
    call()
}

unsafe fn allocate_plainly(real: Allocate, fd: c_int, at: off_t, len: off_t) -> c_int {
    let file = if state::on() { files::of(fd) } else { None };
    let _announced = file.map(|file| {
        let (at, len) = changed(&file, 0, at.max(0) as u64, len.max(0) as u64);
        file.announce(at, len)
    });
    // SAFETY: the caller's promise.
    unsafe { real(fd, at, len) }
}
