//! Forked children: they have the parent's mappings, and nobody sees what they store there until
//! they have registered them anew, which they do before `fork` returns. Streams are theirs, too,
//! standard ones among them, and outlive the parent.
//!
//! Others have such handlers, too, and those that were there before ours run in the child before it
//! does, while this thread holds the lock. They may call what they like: the thread passes, and the
//! first hook that has something to tell introduces the child.
//!
//! `vfork` and `posix_spawn` share the parent's addresses: there is nothing to do, but that the
//! program which the child becomes has the parent's descriptors, and with them the positions of its
//! files: these may be moved by both. The same is true of what a program was started with, and of
//! descriptors that go through a socket.

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::os::fd::BorrowedFd;

use rustix::fs::fstat;

use crate::real::{Errno, variable};
use crate::state::{self, Quiet};
use crate::{faults, files};
use crate::{handles, maps, raw, streams};

/// A process was given all that this one has open, or this one all that it had: positions of files
/// are shared with another one.
static FORKED: AtomicBool = AtomicBool::new(false);
/// Where the C library says that there never was a second thread.
static SINGLE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// A file of which another process has the very descriptor that this one has: it came with this
/// program, or went through a socket.
struct Shared {
    device: AtomicU64,
    inode: AtomicU64,
}

/// Such files, at most; if there are more, all are shared.
const MOST: usize = 64;
static SHARED: [Shared; MOST] =
    [const { Shared { device: AtomicU64::new(0), inode: AtomicU64::new(0) } }; MOST];
/// How many there are. Those before that number never change.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The positions of all files are shared from now on.
pub(crate) fn share() {
    FORKED.store(true, Ordering::SeqCst);
}

/// Whether the positions of all files are.
pub(crate) fn has_shared_all() -> bool {
    FORKED.load(Ordering::SeqCst)
}

/// The position of an open file is shared from now on. Said before another process can move it,
/// or else before this one can use it.
pub(crate) fn share_position(fd: BorrowedFd<'_>) {
    if has_shared_all() || !files::is_writable(fd) {
        return;
    }
    let Ok(stat) = fstat(fd) else { return };
    if !files::regular(&stat) {
        return;
    }
    let _quiet = Quiet::take();
    let count = COUNT.load(Ordering::SeqCst);
    if is_listed(stat.st_dev, stat.st_ino) {
        return;
    }
    let Some(free) = SHARED.get(count) else { return share() };
    free.device.store(stat.st_dev, Ordering::SeqCst);
    free.inode.store(stat.st_ino, Ordering::SeqCst);
    COUNT.store(count + 1, Ordering::SeqCst);
}

fn is_listed(device: u64, inode: u64) -> bool {
    SHARED.iter().take(COUNT.load(Ordering::SeqCst)).any(|shared| {
        shared.inode.load(Ordering::SeqCst) == inode
            && shared.device.load(Ordering::SeqCst) == device
    })
}

/// Whether another process may move the position of an open file.
pub(crate) fn is_shared(fd: BorrowedFd<'_>) -> bool {
    let some = has_shared_all() || COUNT.load(Ordering::SeqCst) > 0;
    let listed = || fstat(fd).map_or(true, |stat| is_listed(stat.st_dev, stat.st_ino));
    some && (has_shared_all() || listed())
}

/// Whether the C library knows of no other thread.
pub(crate) fn is_single() -> bool {
    let single = SINGLE.load(Ordering::Relaxed).cast::<c_char>();
    // SAFETY: null, or a byte of the C library's that lives as long as the program.
    !single.is_null() && unsafe { single.read_volatile() } != 0
}

/// Whether nobody else moves the position of an open file: no other thread, no other process.
pub(crate) fn is_alone(fd: BorrowedFd<'_>) -> bool {
    is_single() && !is_shared(fd)
}

/// Looks up what has to be known of threads.
pub(crate) fn find() {
    let single = variable(c"__libc_single_threaded").unwrap_or(core::ptr::null_mut());
    SINGLE.store(single, Ordering::Relaxed);
}

/// Has forks told from now on.
pub(crate) fn watch() {
    // SAFETY: the three functions are as `pthread_atfork` wants them, and stay loaded: a preloaded
    // library is never unloaded.
    let done = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    if done != 0 {
        state::ledger().lose();
    }
}

/// Holds the lock across the fork, so that the child does not inherit it from another thread.
unsafe extern "C" fn before() {
    share();
    Quiet::take().keep_for_fork();
}

unsafe extern "C" fn in_parent() {
    drop(Quiet::after_fork());
}

unsafe extern "C" fn in_child() {
    // Introduces it, unless one of the others' handlers had something to tell before.
    state::on();
    drop(Quiet::after_fork());
}

/// A child tells that it is there, and what it has. It holds the lock.
pub(crate) fn introduce() {
    let _errno = Errno::keep();
    let mut quiet = Quiet::take();
    let parent = state::space();
    if state::hello(parent, false).is_err() {
        state::ledger().lose();
        return;
    }
    faults::inherited();
    // What the library writes by itself, it writes in both.
    raw::handed_on(parent);
    streams::inherited();
    handles::inherited();
    maps::adopt_again(&mut quiet);
    if state::joined().is_err() {
        state::ledger().lose();
    }
}
