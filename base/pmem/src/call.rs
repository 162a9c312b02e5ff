//! Calls that the system may refuse: each that this crate makes is asked for here first, so that a
//! test can have any of them refused ([`fail_call`](crate::inject::fail_call)).
//!
//! | asked for | refused for real by |
//! |---|---|
//! | opening, locking, lengthening, naming, syncing files and folders | full disks and tables |
//! | mapping, and changing rights of what is mapped | no addresses, too many mappings |
//! | what tracks stores: `userfaultfd`, page maps | other users of it, filters of calls |
//! | threads | limits of users and groups |
//!
//! What is asked in a signal handler is not among them: there is nobody to be told. Nor are calls
//! that only look, and calls whose refusal changes nothing but speed. As long as no test has said
//! anything, asking costs one load of a word that nobody writes.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use rustix::io::Errno;

/// Whether a test wants to know of calls.
static HEARD: AtomicBool = AtomicBool::new(false);
/// Calls asked for since.
static ASKED: AtomicU64 = AtomicU64::new(0);
/// Which of them is refused, counted from one; and whether all after it are.
static NTH: AtomicU64 = AtomicU64::new(0);
static FOR_EVER: AtomicBool = AtomicBool::new(false);
/// The first that was refused.
static REFUSED: Mutex<Option<&'static str>> = Mutex::new(None);

/// How long calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fails {
    /// One does.
    Once,
    /// All do from then on.
    ForEver,
}

/// What became of calls while they were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// How many there were.
    pub calls: u64,
    /// The first that was refused.
    pub refused: Option<&'static str>,
}

pub(crate) fn fail_call(nth: u64, fails: Fails) {
    fail_no_call();
    NTH.store(nth, Ordering::Relaxed);
    FOR_EVER.store(fails == Fails::ForEver, Ordering::Relaxed);
    HEARD.store(true, Ordering::Release);
}

pub(crate) fn fail_no_call() -> Asked {
    HEARD.store(false, Ordering::Release);
    let refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner).take();
    Asked { calls: ASKED.swap(0, Ordering::Relaxed), refused }
}

/// Asks whether `call` may be made. `as_errno` is what the system says when it refuses it.
///
/// # Errors
/// That, if a test wants this one to be refused.
#[inline]
pub fn ask(call: &'static str, as_errno: Errno) -> Result<(), Errno> {
    if HEARD.load(Ordering::Relaxed) { heard(call, as_errno) } else { Ok(()) }
}

#[cold]
fn heard(call: &'static str, as_errno: Errno) -> Result<(), Errno> {
    let number = ASKED.fetch_add(1, Ordering::Relaxed) + 1;
    let nth = NTH.load(Ordering::Relaxed);
    if number != nth && (number < nth || !FOR_EVER.load(Ordering::Relaxed)) {
        return Ok(());
    }
    REFUSED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(call);
    Err(as_errno)
}

/// Starts a thread of this name.
///
/// # Errors
/// The system has none to give.
pub fn start_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    ask("clone", Errno::AGAIN)?;
    Builder::new().name(name.to_owned()).spawn(work)
}
