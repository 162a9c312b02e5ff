//! Syncs: what the program wrote is covered before the call returns, so that a program that syncs
//! has no window.
//!
//! | call | covers |
//! |---|---|
//! | `fsync`, `fdatasync`, `aio_fsync` | the file |
//! | `msync` that waits | the parts of files that are mapped there |
//! | `sync_file_range` that waits | the range; one that only begins to write is no sync |
//! | `sync`, `syncfs` | all guarded files: which lie on one file system, devices do not tell |

use core::ffi::{c_int, c_uint, c_void};

use holdfast_guard_wire::Request;
use libc::{off_t, size_t};
use rustix::fs::fstat;

use crate::real::{copied, hooks};
use crate::{files, maps, state};

type Fsync = unsafe extern "C-unwind" fn(c_int) -> c_int;
type Msync = unsafe extern "C-unwind" fn(*mut c_void, size_t, c_int) -> c_int;
type Range = unsafe extern "C-unwind" fn(c_int, off_t, off_t, c_uint) -> c_int;
type Aio = unsafe extern "C-unwind" fn(c_int, *mut libc::aiocb) -> c_int;
type Sync = unsafe extern "C-unwind" fn() -> c_int;

hooks! {
    fsync(fd: c_int) -> c_int = sync_file;
    fdatasync(fd: c_int) -> c_int = sync_file;
    msync(at: *mut c_void, len: size_t, flags: c_int) -> c_int = sync_place;
    sync_file_range(fd: c_int, at: off_t, len: off_t, flags: c_uint) -> c_int = sync_range;
    aio_fsync(kind: c_int, what: *mut libc::aiocb) -> c_int = sync_later;
    aio_fsync64(kind: c_int, what: *mut libc::aiocb) -> c_int = sync_later;
    sync() -> c_int = sync_all;
    syncfs(fd: c_int) -> c_int = sync_system;
}

fn tell(file: u32, at: u64, len: u64) {
    state::tell_in_time_or_not(&Request::Cover { file, at, len });
}

fn cover(fd: c_int, at: u64, len: u64) {
    if state::on()
        && let Some(file) = files::of(fd)
    {
        tell(file.number, at, len);
    }
}

fn cover_place(at: *mut c_void, len: size_t, flags: c_int) {
    if flags & libc::MS_SYNC != 0 {
        maps::behind(at, len, tell);
    }
}

/// Waits for what was on its way before, or is now.
const WAITS: c_uint = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER;

fn cover_range(fd: c_int, at: off_t, len: off_t, flags: c_uint) {
    if flags & WAITS != 0
        && let (Ok(at), Ok(len)) = (u64::try_from(at), u64::try_from(len))
    {
        // No length is up to the end.
        cover(fd, at, if len == 0 { u64::MAX - at } else { len });
    }
}

fn cover_all() {
    if state::on() {
        state::ledger().files().for_each(|file| tell(file, 0, u64::MAX));
    }
}

fn cover_system(fd: c_int) {
    // SAFETY: used for a call that fails if it is no descriptor.
    if unsafe { files::borrow(fd) }.is_some_and(|fd| fstat(fd).is_ok()) {
        cover_all();
    }
}

unsafe fn sync_file(real: Fsync, fd: c_int) -> c_int {
    cover(fd, 0, u64::MAX);
    // SAFETY: the caller's promise.
    unsafe { real(fd) }
}

unsafe fn sync_place(real: Msync, at: *mut c_void, len: size_t, flags: c_int) -> c_int {
    cover_place(at, len, flags);
    // SAFETY: the caller's promise.
    unsafe { real(at, len, flags) }
}

unsafe fn sync_range(real: Range, fd: c_int, at: off_t, len: off_t, flags: c_uint) -> c_int {
    cover_range(fd, at, len, flags);
    // SAFETY: the caller's promise.
    unsafe { real(fd, at, len, flags) }
}

/// What it syncs was written before it was asked to: later writes are not its affair.
unsafe fn sync_later(real: Aio, kind: c_int, what: *mut libc::aiocb) -> c_int {
    // SAFETY: the caller's promise: a request, if anything is there.
    if let Some(what) = unsafe { copied(what) } {
        cover(what.aio_fildes, 0, u64::MAX);
    }
    // SAFETY: the caller's promise.
    unsafe { real(kind, what) }
}

unsafe fn sync_all(real: Sync) -> c_int {
    cover_all();
    // SAFETY: the caller's promise.
    unsafe { real() }
}

unsafe fn sync_system(real: Fsync, fd: c_int) -> c_int {
    cover_system(fd);
    // SAFETY: the caller's promise.
    unsafe { real(fd) }
}

/// Covers what a call syncs that is about to be made by its number; `None` if it is none of those.
pub(crate) fn raw(number: i64, [a, b, c, d]: [i64; 4]) -> Option<()> {
    match number {
        libc::SYS_fsync | libc::SYS_fdatasync => cover(a as c_int, 0, u64::MAX),
        libc::SYS_msync => cover_place(a as *mut c_void, b as size_t, c as c_int),
        libc::SYS_sync_file_range => cover_range(a as c_int, b, c, d as c_uint),
        libc::SYS_sync => cover_all(),
        libc::SYS_syncfs => cover_system(a as c_int),
        _ => return None,
    }
    Some(())
}
