//! Programs that give up all calls but `read`, `write` and to end (`seccomp` in strict mode): any
//! other ends them, and be it one that a hook makes. So hooks are silent from then on. What the
//! program does is doubted, as if it made its calls by itself.
//!
//! A child as of `vfork` that does so is silent alone: its parent, whose memory it runs in, goes on
//! to announce. What the child writes is heard as a stranger's.

use core::ffi::c_int;

use crate::real::hooks;
use crate::{fork, handles, state};

type Prctl = unsafe extern "C-unwind" fn(c_int, usize, usize, usize, usize) -> c_int;

hooks! {
    prctl(what: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int = control;
}

/// Whether a request gives calls up.
fn gives_up(what: i64, a: i64) -> bool {
    what == i64::from(libc::PR_SET_SECCOMP) && a == i64::from(libc::SECCOMP_MODE_STRICT)
}

unsafe fn control(real: Prctl, what: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    // SAFETY: the caller's promise.
    let call = || unsafe { real(what, a, b, c, d) };
    if gives_up(what.into(), a as i64) { around(call) } else { call() }
}

/// The call after which there are no others.
fn around(call: impl FnOnce() -> c_int) -> c_int {
    if !state::on() {
        return call();
    }
    if state::is_borrowed() {
        let silent = state::be_silent_alone();
        let done = call();
        if silent && done != 0 {
            state::speak_alone();
        }
        return done;
    }
    handles::unfollowed();
    if !fork::is_single() {
        // Other threads may do what they like, and nobody stands before that any more.
        state::ledger().lose();
    }
    let silent = state::be_silent();
    let done = call();
    if silent && done != 0 {
        state::speak();
    }
    done
}

/// The same by its number.
pub(crate) fn raw(number: i64, [a, b]: [i64; 2], call: impl FnOnce() -> c_int) -> c_int {
    /// `SECCOMP_SET_MODE_STRICT`.
    const STRICT: i64 = 0;
    let gives_up = match number {
        libc::SYS_prctl => gives_up(a, b),
        _ => a == STRICT,
    };
    if gives_up { around(call) } else { call() }
}
