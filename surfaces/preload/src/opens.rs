//! Opening for writing: the supervisor is asked whether it wants the file; cutting it off on the
//! way is announced as any other change.

use core::ffi::{CStr, c_char, c_int, c_uint};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, openat as open_at, statat};
use rustix::io::fcntl_dupfd_cloexec;

use crate::files::{self, Announced, Guarded};
use crate::real::{self, hooks};
use crate::state::{self, Uncancelled};

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

/// How `creat` opens.
pub(crate) const CREATE: c_int = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;

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
    if let Some(Cut { file, mut announced, .. }) = cut {
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

/// A guarded file that is about to be cut off by its name.
pub(crate) struct Cut {
    pub(crate) file: Guarded,
    pub(crate) announced: Announced,
    /// As long as it is under way, this process has the file open, and the supervisor does not let
    /// go of it. Behind the announcement, so that it is closed after it.
    _held: Held,
}

/// A descriptor of ours, away from the numbers that the program is given.
struct Held(Option<OwnedFd>);

impl Held {
    /// Numbers from here on, if there are so many.
    const AWAY: c_int = 500;

    fn new(found: Option<OwnedFd>) -> Self {
        let _uncancelled = Uncancelled::begin();
        // The lowest that is free is for what the program opens.
        let moved = found.as_ref().and_then(|fd| fcntl_dupfd_cloexec(fd, Self::AWAY).ok());
        Self(moved.or(found))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _uncancelled = Uncancelled::begin();
        drop(self.0.take());
    }
}

impl Cut {
    /// Opens the file of a name, without rights, asks about it, and announces a change from `from`
    /// of its length on.
    pub(crate) fn begin(
        folder: BorrowedFd<'_>,
        name: &CStr,
        stat: &Stat,
        from: impl FnOnce(u64) -> u64,
    ) -> Option<Self> {
        let found = open_at(folder, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let held = Held::new(found.ok());
        let asked = held.0.as_ref().and_then(|held| files::of_or_ask(held.as_fd()));
        // Without a descriptor, or an answer, it is announced as well as it can be.
        let file = asked.or_else(|| files::known(stat))?;
        let announced = file.announce(from(file.size), u64::MAX);
        Some(Self { file, announced, _held: held })
    }
}

/// What an open with `O_TRUNC` is about to cut off, announced.
unsafe fn before(folder: c_int, name: *const c_char, flags: c_int) -> Option<Cut> {
    if flags & libc::O_TRUNC == 0 {
        return None;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { real::name(folder, name, 0)? };
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
    Cut::begin(folder, name, &stat, |_| 0)
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
    // SAFETY: the caller's promise.
    unsafe { around(libc::AT_FDCWD, name, CREATE, || real(name, mode)) }
}

unsafe fn plain(real: Plain, name: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { around(libc::AT_FDCWD, name, flags, || real(name, flags)) }
}

unsafe fn plain_at(real: PlainAt, folder: c_int, name: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { around(folder, name, flags, || real(folder, name, flags)) }
}
