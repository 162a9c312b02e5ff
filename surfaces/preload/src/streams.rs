//! `FILE` streams: the C library writes them out by itself, when it likes. As long as one is open
//! for writing, everything in its file counts as stored to.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use holdfast_guard_wire::{MOST_FILES, Request};
use libc::FILE;
use rustix::fs::fstat;

use crate::files::{self, Guarded};
use crate::opens;
use crate::real::{Errno, hooks, path};
use crate::state::{self, Quiet};

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

/// The file that a stream may write to, and its number if it is guarded.
#[derive(Debug, Clone, Copy)]
struct Behind {
    device: u64,
    inode: u64,
    file: Option<Guarded>,
}

unsafe fn behind(stream: *mut FILE) -> Option<Behind> {
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
    let stat = fstat(fd).ok().filter(files::regular)?;
    Some(Behind { device: stat.st_dev, inode: stat.st_ino, file: files::of_or_ask(fd) })
}

/// Streams of this process that are open for writing, by file: how many, and of which of the files
/// with that number.
struct Count {
    turn: AtomicU64,
    streams: AtomicU32,
}

static OPEN: [Count; MOST_FILES as usize] =
    [const { Count { turn: AtomicU64::new(0), streams: AtomicU32::new(0) } }; MOST_FILES as usize];

/// A file that is not guarded, and has streams that write to it: it may become so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unguarded {
    device: u64,
    inode: u64,
    streams: u32,
}

/// Files that are not guarded, at most; if there were more, it is said to be lost when one of those
/// that nobody knows of becomes guarded.
const MOST: usize = 256;

struct Others(UnsafeCell<([Option<Unguarded>; MOST], bool)>);

// SAFETY: used under the lock only.
unsafe impl Sync for Others {}

static OTHERS: Others = Others(UnsafeCell::new(([None; MOST], false)));

fn others(_quiet: &mut Quiet) -> &mut ([Option<Unguarded>; MOST], bool) {
    // SAFETY: the one lock is held, and borrowed for as long as the answer lives.
    unsafe { &mut *OTHERS.0.get() }
}

/// Notes a stream of a file that is not guarded, or its end.
fn note(stream: Behind, begins: bool) {
    let mut quiet = Quiet::take();
    let (all, more) = others(&mut quiet);
    let same = |other: &&mut Option<Unguarded>| {
        other.is_some_and(|one| one.device == stream.device && one.inode == stream.inode)
    };
    if let Some(slot) = all.iter_mut().find(same) {
        let streams = slot.map_or(0, |one| one.streams);
        let streams = if begins { streams + 1 } else { streams.saturating_sub(1) };
        *slot = slot.filter(|_| streams > 0).map(|one| Unguarded { streams, ..one });
    } else if begins {
        let (device, inode) = (stream.device, stream.inode);
        match all.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(Unguarded { device, inode, streams: 1 }),
            None => *more = true,
        }
    }
}

/// Tells of the streams of a file that is guarded since now.
pub(crate) fn taken(device: u64, inode: u64, file: &Guarded) {
    let mut count = 0;
    {
        let mut quiet = Quiet::take();
        let (all, more) = others(&mut quiet);
        let found = all
            .iter_mut()
            .find(|slot| slot.is_some_and(|one| one.device == device && one.inode == inode));
        match found.and_then(Option::take) {
            Some(one) => count = one.streams,
            None if *more => state::ledger().lose(),
            None => {}
        }
    }
    for _ in 0..count {
        tell_of(file, true);
    }
}

fn tell(stream: Option<Behind>, begins: bool) {
    let Some(stream) = stream else { return };
    match &stream.file {
        Some(file) => tell_of(file, begins),
        None => note(stream, begins),
    }
}

fn tell_of(file: &Guarded, begins: bool) {
    if let Some(open) = OPEN.get(file.number as usize) {
        if open.turn.swap(file.turn, Ordering::AcqRel) != file.turn {
            // Those of an earlier file with that number.
            open.streams.store(0, Ordering::Release);
        }
        let _ = open.streams.fetch_update(Ordering::AcqRel, Ordering::Acquire, |streams| {
            if begins { streams.checked_add(1) } else { streams.checked_sub(1) }
        });
    }
    let (space, file) = (state::space(), file.number);
    state::tell(&Request::Stream { space, file, begins }, None);
}

/// Tells of the streams that a child was born with: the parent's end ends only the parent's.
pub(crate) fn inherited() {
    for (file, open) in OPEN.iter().enumerate() {
        let file = file as u32;
        if open.turn.load(Ordering::Acquire) != state::ledger().turn(file) {
            continue;
        }
        for _ in 0..open.streams.load(Ordering::Acquire) {
            state::tell(&Request::Stream { space: state::space(), file, begins: true }, None);
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
