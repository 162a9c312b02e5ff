//! `FILE` streams: the C library writes them out by itself, when it likes. As long as one is open
//! for writing, everything in its file counts as stored to.

use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicU32, Ordering};

use holdfast_guard_wire::{MOST_FILES, Request};
use libc::FILE;

use crate::files;
use crate::opens;
use crate::real::{Errno, hooks, path};
use crate::state;

type Fopen = unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> *mut FILE;
type Freopen = unsafe extern "C-unwind" fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE;
type Fdopen = unsafe extern "C-unwind" fn(c_int, *const c_char) -> *mut FILE;
type Fclose = unsafe extern "C-unwind" fn(*mut FILE) -> c_int;

hooks! {
    fopen(name: *const c_char, mode: *const c_char) -> *mut FILE = open;
    fopen64(name: *const c_char, mode: *const c_char) -> *mut FILE = open;
    freopen(name: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = reopen;
    freopen64(name: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = reopen;
    fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = of_descriptor;
    fclose(stream: *mut FILE) -> c_int = close;
}

/// The number of the guarded file that a stream may write to.
unsafe fn behind(stream: *mut FILE) -> Option<u32> {
    if stream.is_null() || !state::on() {
        return None;
    }
    let _errno = Errno::keep();
    // SAFETY: a stream that is open.
    let fd = unsafe { libc::fileno(stream) };
    // SAFETY: used for calls that fail if it is no descriptor.
    let fd = unsafe { files::borrow(fd)? };
    if !files::is_writable(fd) {
        return None;
    }
    files::of_or_ask(fd).map(|file| file.number)
}

/// Streams of this process that are open for writing, by file.
static OPEN: [AtomicU32; MOST_FILES as usize] = [const { AtomicU32::new(0) }; MOST_FILES as usize];

fn tell(file: Option<u32>, begins: bool) {
    let Some(file) = file else { return };
    if let Some(open) = OPEN.get(file as usize) {
        let _ = open.fetch_update(Ordering::AcqRel, Ordering::Acquire, |streams| {
            if begins { streams.checked_add(1) } else { streams.checked_sub(1) }
        });
    }
    state::tell(&Request::Stream { space: state::space(), file, begins }, None);
}

/// Tells of the streams that a child was born with: the parent's end ends only the parent's.
pub(crate) fn inherited() {
    for (file, open) in OPEN.iter().enumerate() {
        for _ in 0..open.load(Ordering::Acquire) {
            let (space, file) = (state::space(), file as u32);
            state::tell(&Request::Stream { space, file, begins: true }, None);
        }
    }
}

/// Flags of an `open` that does what a mode says, as far as it matters to us.
unsafe fn flags(mode: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let mode = unsafe { path(mode) }.map_or(&b""[..], |mode| mode.to_bytes());
    match mode.first() {
        Some(b'w') => libc::O_WRONLY | libc::O_TRUNC,
        Some(b'a') => libc::O_WRONLY,
        _ if mode.contains(&b'+') => libc::O_RDWR,
        _ => libc::O_RDONLY,
    }
}

/// Opens by name, as any open, then tells of the stream.
unsafe fn opening(
    name: *const c_char,
    mode: *const c_char,
    call: impl FnOnce() -> *mut FILE,
) -> *mut FILE {
    let mut stream = core::ptr::null_mut();
    // SAFETY: the caller's promise; a stream that was just opened has a descriptor.
    unsafe {
        opens::around(libc::AT_FDCWD, name, flags(mode), || {
            stream = call();
            if stream.is_null() { -1 } else { libc::fileno(stream) }
        });
        tell(behind(stream), true);
    }
    stream
}

unsafe fn open(real: Fopen, name: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's promise.
    unsafe { opening(name, mode, || real(name, mode)) }
}

unsafe fn reopen(
    real: Freopen,
    name: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: the caller's promise.
    unsafe {
        let before = behind(stream);
        let found = opening(name, mode, || real(name, mode, stream));
        tell(before, false);
        found
    }
}

unsafe fn of_descriptor(real: Fdopen, fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's promise.
    unsafe {
        let stream = real(fd, mode);
        tell(behind(stream), true);
        stream
    }
}

unsafe fn close(real: Fclose, stream: *mut FILE) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let before = behind(stream);
        let done = real(stream);
        tell(before, false);
        done
    }
}
