//! `FILE` streams: the C library writes them out by itself, when it likes. As long as one is open
//! for writing, everything in its file counts as stored to whenever the file was changed.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use holdfast_guard_wire::{MOST_FILES, Request};
use libc::FILE;
use rustix::fs::fstat;

use crate::files::{self, Announced, Guarded};
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
    _IO_fopen(name: *const c_char, mode: *const c_char) -> *mut FILE = open;
    _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = of_descriptor;
    _IO_fclose(stream: *mut FILE) -> c_int = close;
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

/// A stream that this process opened for writing. The end of any other is not told: standard
/// streams of one file are told as one, for ever, and of what was opened before anybody watched
/// the beginning was not.
#[derive(Debug, Clone, Copy)]
struct Opened {
    /// Where it is, or an odd number, where none is, while it is being closed.
    stream: usize,
    device: u64,
    inode: u64,
    /// The guarded file that it was told of: its number and turn. One that is not guarded may
    /// become so.
    told: Option<(u32, u64)>,
}

/// Streams at a time, at most. What is told of a guarded file and finds no room never ends; if
/// there were more of others, it is said to be lost when a file becomes guarded.
const MOST: usize = 1024;

#[derive(Debug)]
struct All {
    streams: [Option<Opened>; MOST],
    /// Those behind it are empty.
    used: usize,
    /// There were more.
    more: bool,
}

struct Shared(UnsafeCell<All>);

// SAFETY: used under the lock only.
unsafe impl Sync for Shared {}

static ALL: Shared = Shared(UnsafeCell::new(All { streams: [None; MOST], used: 0, more: false }));
/// The next odd number.
static CLOSING: AtomicUsize = AtomicUsize::new(1);

fn all(_quiet: &mut Quiet) -> &mut All {
    // SAFETY: the one lock is held, and borrowed for as long as the answer lives.
    unsafe { &mut *ALL.0.get() }
}

impl All {
    fn find(&mut self, stream: usize) -> Option<&mut Option<Opened>> {
        let same = |slot: &&mut Option<Opened>| slot.is_some_and(|one| one.stream == stream);
        self.streams.iter_mut().take(self.used).find(same)
    }

    fn add(&mut self, new: Opened) {
        match self.streams.iter_mut().enumerate().find(|(_, slot)| slot.is_none()) {
            Some((at, slot)) => {
                *slot = Some(new);
                self.used = self.used.max(at + 1);
            }
            None => self.more |= new.told.is_none(),
        }
    }
}

/// A stream was opened.
///
/// # Safety
/// It is null or open.
unsafe fn begins(stream: *mut FILE) {
    // SAFETY: the caller's promise.
    let Some(Behind { device, inode, file }) = (unsafe { behind(stream) }) else { return };
    let told = file.map(|file| (file.number, file.turn));
    let stream = stream as usize;
    let before = {
        let mut quiet = Quiet::take();
        let all = all(&mut quiet);
        // One that was there was closed in a way that nobody saw.
        let before = all.find(stream).and_then(Option::take);
        all.add(Opened { stream, device, inode, told });
        before
    };
    end(before);
    match file {
        Some(file) => tell_of(&file, true),
        // Another thread may have had it guarded meanwhile.
        None => {
            if let Some((number, turn)) = state::ledger().find_turn(device, inode) {
                taken(device, inode, &Guarded { number, turn, size: 0 });
            }
        }
    }
}

/// A stream is about to be closed; the answer is what to call it when it is.
fn ends(stream: *mut FILE) -> Option<usize> {
    if !state::on() {
        return None;
    }
    let closing = CLOSING.fetch_add(2, Ordering::Relaxed);
    let mut quiet = Quiet::take();
    let opened = all(&mut quiet).find(stream as usize)?.as_mut()?;
    opened.stream = closing;
    Some(closing)
}

/// It is closed, and what it wrote last is over.
fn ended(closing: Option<usize>) {
    let Some(closing) = closing else { return };
    let opened = {
        let mut quiet = Quiet::take();
        all(&mut quiet).find(closing).and_then(Option::take)
    };
    end(opened);
}

fn end(opened: Option<Opened>) {
    let Some((number, turn)) = opened.and_then(|opened| opened.told) else { return };
    // With a file that was let go of, its streams are forgotten.
    if state::ledger().turn(number) == turn {
        tell_of(&Guarded { number, turn, size: 0 }, false);
    }
}

/// Tells of the streams of a file that is guarded since now.
pub(crate) fn taken(device: u64, inode: u64, file: &Guarded) {
    let told = Some((file.number, file.turn));
    let mut count = 0;
    {
        let mut quiet = Quiet::take();
        let All { streams, used, more } = all(&mut quiet);
        let same = |one: &&mut Opened| one.device == device && one.inode == inode;
        for one in streams.iter_mut().take(*used).flatten().filter(same) {
            count += u32::from(one.told != told);
            one.told = told;
        }
        if *more {
            state::ledger().lose();
        }
    }
    for _ in 0..count {
        tell_of(file, true);
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
        begins(stream);
    }
    stream
}

unsafe fn open(real: Fopen, name: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's promise.
    unsafe { opening(name, mode, || real(name, mode)) }
}

/// What is about to be cut off, announced: without a name, a stream's own file is opened again.
unsafe fn cut(
    name: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> Option<(Guarded, Announced)> {
    // SAFETY: the caller's promise: a mode, and a stream that is open.
    unsafe {
        let cuts = name.is_null() && flags(mode) & libc::O_TRUNC != 0 && state::on();
        let file = if cuts { files::of(libc::fileno(stream))? } else { return None };
        Some((file, file.announce(0, u64::MAX)))
    }
}

unsafe fn reopen(
    real: Freopen,
    name: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: the caller's promise.
    unsafe {
        let before = ends(stream);
        let cut = cut(name, mode, stream);
        let found = opening(name, mode, || real(name, mode, stream));
        if let Some((file, mut announced)) = cut {
            announced.narrow(0, if found.is_null() { 0 } else { file.size });
        }
        ended(before);
        found
    }
}

unsafe fn of_descriptor(real: Fdopen, fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's promise.
    unsafe {
        let stream = real(fd, mode);
        begins(stream);
        stream
    }
}

unsafe fn close(real: Fclose, stream: *mut FILE) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let before = ends(stream);
        let done = real(stream);
        ended(before);
        done
    }
}
