//! Forked children: they have the parent's mappings, and nobody sees what they store there until
//! they have registered them anew, which they do before `fork` returns.
//!
//! `vfork` and `posix_spawn` share the parent's addresses: there is nothing to do.

use crate::maps;
use crate::real::Errno;
use crate::state::{self, Quiet};

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
    Quiet::take().keep_for_fork();
}

unsafe extern "C" fn in_parent() {
    drop(Quiet::after_fork());
}

unsafe extern "C" fn in_child() {
    let _errno = Errno::keep();
    let Some(mut quiet) = Quiet::after_fork() else { return };
    if state::hello(state::space(), false).is_err() {
        state::ledger().lose();
        return;
    }
    maps::adopt_again(&mut quiet);
}
