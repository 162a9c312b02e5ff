//! Syncs: what the program wrote is covered before the call returns, so that a program that syncs
//! has no window.

use core::ffi::{c_int, c_void};

use holdfast_guard_wire::Request;
use libc::size_t;

use crate::real::hooks;
use crate::{files, maps, state};

type Fsync = unsafe extern "C-unwind" fn(c_int) -> c_int;
type Msync = unsafe extern "C-unwind" fn(*mut c_void, size_t, c_int) -> c_int;

hooks! {
    fsync(fd: c_int) -> c_int = sync;
    fdatasync(fd: c_int) -> c_int = sync;
    msync(at: *mut c_void, len: size_t, flags: c_int) -> c_int = sync_place;
}

unsafe fn sync(real: Fsync, fd: c_int) -> c_int {
    if state::on()
        && let Some(file) = files::of(fd)
    {
        state::tell(&Request::Cover { file: file.number, at: 0, len: u64::MAX }, None);
    }
    // SAFETY: the caller's promise.
    unsafe { real(fd) }
}

unsafe fn sync_place(real: Msync, at: *mut c_void, len: size_t, flags: c_int) -> c_int {
    if flags & libc::MS_SYNC != 0
        && let Some((file, at, len)) = maps::behind(at, len)
    {
        state::tell(&Request::Cover { file, at, len }, None);
    }
    // SAFETY: the caller's promise.
    unsafe { real(at, len, flags) }
}
