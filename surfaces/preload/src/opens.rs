//! Opening for writing: the supervisor is asked whether it wants the file; cutting it off on the
//! way is announced as any other change.

use core::ffi::{c_char, c_int, c_uint};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat as open_at, statat};

use crate::files::{self, Announced, Guarded};
use crate::real::{hooks, path};
use crate::state;

type Open = unsafe extern "C-unwind" fn(*const c_char, c_int, c_uint) -> c_int;
type OpenAt = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, c_uint) -> c_int;
type Creat = unsafe extern "C-unwind" fn(*const c_char, c_uint) -> c_int;
type Plain = unsafe extern "C-unwind" fn(*const c_char, c_int) -> c_int;
type PlainAt = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int) -> c_int;

hooks! {
    open(name: *const c_char, flags: c_int, mode: c_uint) -> c_int = here;
    open64(name: *const c_char, flags: c_int, mode: c_uint) -> c_int = here;
    __open(name: *const c_char, flags: c_int, mode: c_uint) -> c_int = here;
    __open64(name: *const c_char, flags: c_int, mode: c_uint) -> c_int = here;
    openat(folder: c_int, name: *const c_char, flags: c_int, mode: c_uint) -> c_int = there;
    openat64(folder: c_int, name: *const c_char, flags: c_int, mode: c_uint) -> c_int = there;
    creat(name: *const c_char, mode: c_uint) -> c_int = create;
    creat64(name: *const c_char, mode: c_uint) -> c_int = create;
    __open_2(name: *const c_char, flags: c_int) -> c_int = plain;
    __open64_2(name: *const c_char, flags: c_int) -> c_int = plain;
    __openat_2(folder: c_int, name: *const c_char, flags: c_int) -> c_int = plain_at;
    __openat64_2(folder: c_int, name: *const c_char, flags: c_int) -> c_int = plain_at;
}

/// One open.
///
/// # Safety
/// `name` is null or ends with a zero.
pub(crate) unsafe fn around(
    folder: c_int,
    name: *const c_char,
    flags: c_int,
    open: impl FnOnce() -> c_int,
) -> c_int {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0;
    if !(writes || flags & libc::O_TRUNC != 0) || !state::on() {
        return open();
    }
    // SAFETY: the caller's promise.
    let cut = unsafe { before(folder, name, flags) };
    let fd = open();
    if let Some((file, mut announced)) = cut {
        announced.narrow(0, if fd >= 0 { file.size } else { 0 });
    }
    if fd >= 0 && writes {
        // SAFETY: a descriptor that was just opened.
        if let Some(fd) = unsafe { files::borrow(fd) } {
            let _ = files::of_or_ask(fd);
        }
        if fd < 3 {
            // A standard stream, which the C library writes to when it likes.
            crate::raw::forever(fd);
        }
    }
    fd
}

/// What an open with `O_TRUNC` is about to cut off, announced.
unsafe fn before(folder: c_int, name: *const c_char, flags: c_int) -> Option<(Guarded, Announced)> {
    if flags & libc::O_TRUNC == 0 {
        return None;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { path(name)? };
    let folder = match folder {
        0.. => {
            // SAFETY: used for calls that fail if it is no descriptor.
            unsafe { files::borrow(folder)? }
        }
        // Nobody asks for the folder of an absolute name; any other name fails there.
        _ if folder == libc::AT_FDCWD || name.to_bytes().starts_with(b"/") => CWD,
        _ => return None,
    };
    let stat = statat(folder, name, AtFlags::empty()).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let file = match files::known(&stat) {
        Some(file) => file,
        None => {
            let probe =
                open_at(folder, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
            files::of_or_ask(std::os::fd::AsFd::as_fd(&probe))?
        }
    };
    let announced = file.announce(0, u64::MAX);
    Some((file, announced))
}

unsafe fn here(real: Open, name: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { around(libc::AT_FDCWD, name, flags, || real(name, flags, mode)) }
}

unsafe fn there(
    real: OpenAt,
    folder: c_int,
    name: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { around(folder, name, flags, || real(folder, name, flags, mode)) }
}

unsafe fn create(real: Creat, name: *const c_char, mode: c_uint) -> c_int {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
    // SAFETY: the caller's promise.
    unsafe { around(libc::AT_FDCWD, name, flags, || real(name, mode)) }
}

unsafe fn plain(real: Plain, name: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { around(libc::AT_FDCWD, name, flags, || real(name, flags)) }
}

unsafe fn plain_at(real: PlainAt, folder: c_int, name: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { around(folder, name, flags, || real(folder, name, flags)) }
}
