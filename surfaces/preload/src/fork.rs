//! Forked children: they have the parent's mappings, and nobody sees what they store there until
//! they have registered them anew, which they do before `fork` returns. Streams are theirs, too,
//! standard ones among them, and outlive the parent.
//!
//! `vfork` and `posix_spawn` share the parent's addresses: there is nothing to do.

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::real::{Errno, variable};
use crate::state::{self, Quiet};
use crate::{handles, maps, raw, streams};

/// A process forked, or was forked off: positions of files are shared with another one.
static FORKED: AtomicBool = AtomicBool::new(false);
/// Where the C library says that there never was a second thread.
static SINGLE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Whether this process ever forked, or was forked off.
pub(crate) fn has_forked() -> bool {
    FORKED.load(Ordering::SeqCst)
}

/// Positions are shared from now on.
pub(crate) fn share() {
    FORKED.store(true, Ordering::SeqCst);
}

/// Whether nobody else moves the positions of open files: no other thread, no child.
pub(crate) fn is_alone() -> bool {
    let single = SINGLE.load(Ordering::Relaxed).cast::<c_char>();
    // SAFETY: null, or a byte of the C library's that lives as long as the program.
    let single = !single.is_null() && unsafe { single.read_volatile() } != 0;
    single && !has_forked()
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
    let _errno = Errno::keep();
    let Some(mut quiet) = Quiet::after_fork() else { return };
    let parent = state::space();
    if state::hello(parent, false).is_err() {
        state::ledger().lose();
        return;
    }
    // What the library writes by itself, it writes in both.
    raw::handed_on(parent);
    streams::inherited();
    handles::inherited();
    maps::adopt_again(&mut quiet);
}
