//! Start, what is known of the supervisor, and the one lock.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use holdfast_guard_wire::{Answer, Ledger, Refusal, Request, link};

use crate::real::Errno;
use crate::{
    anchor, exec, faults, fork, handles, lengths, maps, names, opens, raw, reads, streams, syncs,
    writes,
};

const UNSTARTED: u8 = 0;
const STARTING: u8 = 1;
const READY: u8 = 2;
/// Nobody guards this program.
const OFF: u8 = 3;

/// The number of the first program's space.
const FIRST: u64 = 1;

static STATE: AtomicU8 = AtomicU8::new(UNSTARTED);
static SPACE: AtomicU64 = AtomicU64::new(0);
static NAME_LEN: AtomicUsize = AtomicUsize::new(0);
static NAME: Cell<[u8; link::MOST_NAME]> = Cell::new();
static LEDGER: Cell<Ledger> = Cell::new();

/// A value that is written once, before `STATE` says that it is there.
pub(crate) struct Cell<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: written by one thread before it is published, read by any afterwards.
unsafe impl<T: Send + Sync> Sync for Cell<T> {}

impl<T> Cell<T> {
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// # Safety
    /// Nobody reads or writes it at the same time.
    pub(crate) unsafe fn set(&self, value: T) {
        // SAFETY: the caller's promise.
        unsafe { (*self.0.get()).write(value) };
    }

    /// # Safety
    /// It was set, and that happened before.
    pub(crate) unsafe fn get(&self) -> &T {
        // SAFETY: the caller's promise.
        unsafe { (*self.0.get()).assume_init_ref() }
    }
}

/// Whether this program is guarded. Starts at the first question, which may come before `main`.
#[inline]
pub(crate) fn on() -> bool {
    match STATE.load(Ordering::Acquire) {
        READY => true,
        UNSTARTED => start(),
        _ => false,
    }
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn first() {
        on();
    }
    first
};

fn start() -> bool {
    let begun = STATE.compare_exchange(UNSTARTED, STARTING, Ordering::AcqRel, Ordering::Acquire);
    if begun.is_err() {
        return on_after();
    }
    let _errno = Errno::keep();
    for find in [
        exec::find,
        faults::find,
        fork::find,
        handles::find,
        lengths::find,
        maps::find,
        names::find,
        opens::find,
        raw::find_all,
        reads::find,
        streams::find,
        syncs::find,
        writes::find,
    ] {
        find();
    }
    let ready = set_up().is_some();
    STATE.store(if ready { READY } else { OFF }, Ordering::Release);
    if ready {
        fork::watch();
        faults::watch();
        if space() == FIRST {
            // Of all others it is known what they were started with.
            names::inherited();
        }
        raw::inherited();
    }
    ready
}

/// Somebody else is starting, or a hook was met on the way: passed through.
fn on_after() -> bool {
    STATE.load(Ordering::Acquire) == READY
}

/// The value of an environment variable.
pub(crate) fn environment(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: a name that ends with a zero; the answer is null or does so too.
    let value: *const c_char = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: as above; what the start reads is copied before the program can change it.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

fn set_up() -> Option<()> {
    let given = environment(c"HOLDFAST_GUARD")?.to_bytes();
    exec::remember();
    join(given, false)
}

/// The start of a program that attaches itself. Dropped on the way, it is as if there had been
/// none.
#[derive(Debug)]
pub(crate) struct Begun;

impl Begun {
    /// Begins.
    ///
    /// # Errors
    /// A number as `errno` has it: it is guarded already, or somebody is at it.
    pub(crate) fn late() -> Result<Self, i32> {
        let _ = on();
        match STATE.compare_exchange(OFF, STARTING, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(Self),
            Err(READY) => Err(libc::EALREADY),
            Err(_) => Err(libc::EAGAIN),
        }
    }

    /// Introduces this space to the supervisor `name`; from now on hooks announce. New programs are
    /// given `library`.
    pub(crate) fn finish(self, name: &[u8], library: Option<&CStr>) -> Option<Late> {
        join(name, true)?;
        exec::remember_late(library, name);
        STATE.store(READY, Ordering::Release);
        core::mem::forget(self);
        Some(Late)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        STATE.store(OFF, Ordering::Release);
    }
}

/// Hooks announce; what was there before is being told.
#[derive(Debug)]
pub(crate) struct Late;

impl Late {
    /// All is told.
    pub(crate) fn done(self) {
        fork::watch();
        faults::watch();
    }
}

/// Makes a supervisor ours.
fn join(given: &[u8], late: bool) -> Option<()> {
    if given.is_empty() || given.len() > link::MOST_NAME {
        return None;
    }
    let mut name = [0; link::MOST_NAME];
    name.get_mut(..given.len())?.copy_from_slice(given);
    // SAFETY: this thread alone is starting; nobody reads before `STATE` is `READY`, apart from
    // this function.
    unsafe { NAME.set(name) };
    NAME_LEN.store(given.len(), Ordering::Release);
    #[cfg(feature = "untracked")]
    {
        UNTRACKED.store(environment(c"HOLDFAST_GUARD_UNTRACKED").is_some(), Ordering::Relaxed);
        IMPATIENT.store(environment(c"HOLDFAST_GUARD_IMPATIENT").is_some(), Ordering::Relaxed);
    }
    let ledger = hello(0, late).ok()?;
    let ledger = Ledger::attach(ledger.as_fd()).ok()?;
    // SAFETY: as above.
    unsafe { LEDGER.set(ledger) };
    Some(())
}

/// Introduces this address space, and has an anchor keep it. Answers the ledger's descriptor.
pub(crate) fn hello(from: u64, late: bool) -> Result<OwnedFd, Refusal> {
    let socket = link::reach(name(), patience()).map_err(|_| Refusal::Failed)?;
    let hello = Request::Hello { from, late };
    let (answer, ledger) = link::ask_on(&socket, &hello, None, patience())?;
    let Answer::Welcome { space } = answer else { return Err(Refusal::Malformed) };
    SPACE.store(space, Ordering::Release);
    // Where there is none, the supervisor hears the connection end.
    if let Some(process) = anchor::cast(socket.as_fd()) {
        ask(&Request::Anchored { space, process }, None)?;
    }
    ledger.ok_or(Refusal::NoDescriptor)
}

fn name() -> &'static [u8] {
    // SAFETY: called after `set_up` has set it, which `NAME_LEN` says.
    let name = unsafe { NAME.get() };
    name.get(..NAME_LEN.load(Ordering::Acquire)).unwrap_or_default()
}

/// The number of this address space.
pub(crate) fn space() -> u64 {
    SPACE.load(Ordering::Acquire)
}

/// The list of guarded files. Only after [`on`] said yes.
pub(crate) fn ledger() -> &'static Ledger {
    // SAFETY: set before `STATE` became `READY`, which whoever calls has seen.
    unsafe { LEDGER.get() }
}

/// Asks the supervisor.
pub(crate) fn ask(
    request: &Request,
    with: Option<BorrowedFd<'_>>,
) -> Result<(Answer, Option<OwnedFd>), Refusal> {
    link::ask(name(), request, with, patience())
}

/// How long an answer is waited for.
fn patience() -> Duration {
    #[cfg(feature = "untracked")]
    if IMPATIENT.load(Ordering::Relaxed) {
        return Duration::from_millis(300);
    }
    link::PATIENCE
}

/// Tells the supervisor and waits until it has seen to it; what cannot be told is noted.
pub(crate) fn tell(request: &Request, with: Option<BorrowedFd<'_>>) {
    if ask(request, with).is_err() {
        ledger().lose();
    }
}

#[cfg(feature = "untracked")]
static UNTRACKED: AtomicBool = AtomicBool::new(false);
/// Whether a test does not want to wait for long.
#[cfg(feature = "untracked")]
static IMPATIENT: AtomicBool = AtomicBool::new(false);

/// Whether a test wants writes to go unannounced.
pub(crate) fn untracked() -> bool {
    #[cfg(feature = "untracked")]
    return UNTRACKED.load(Ordering::Relaxed);
    #[cfg(not(feature = "untracked"))]
    false
}

static LOCK: AtomicBool = AtomicBool::new(false);
/// Which fork holds the lock, if one does: signals it blocked, to be given back.
static FORKING: AtomicU32 = AtomicU32::new(0);

/// The lock, with all signals blocked: a handler that calls a hook never finds its own thread
/// holding it.
#[derive(Debug)]
pub(crate) struct Quiet {
    before: libc::sigset_t,
}

impl Quiet {
    pub(crate) fn take() -> Self {
        let before = block();
        while LOCK.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            rustix::thread::sched_yield();
        }
        Self { before }
    }

    /// Holds on to the lock beyond this value, for a fork.
    pub(crate) fn keep_for_fork(self) {
        // SAFETY: under the lock nobody else writes it, and nobody reads it without.
        unsafe { KEPT.set(self.before) };
        FORKING.store(1, Ordering::Relaxed);
        core::mem::forget(self);
    }

    /// Takes up what [`keep_for_fork`](Self::keep_for_fork) held on to.
    pub(crate) fn after_fork() -> Option<Self> {
        let kept = FORKING.swap(0, Ordering::Relaxed) == 1;
        // SAFETY: set by `keep_for_fork`, by this thread, which holds the lock.
        kept.then(|| Self { before: *unsafe { KEPT.get() } })
    }
}

static KEPT: Cell<libc::sigset_t> = Cell::new();

impl Drop for Quiet {
    fn drop(&mut self) {
        LOCK.store(false, Ordering::Release);
        unblock(&self.before);
    }
}

/// Blocks all signals of this thread; answers which were blocked before.
pub(crate) fn block() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both live across the calls; all zeros is a valid (empty) set.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

/// Blocks those that were blocked before, and no others.
pub(crate) fn unblock(before: &libc::sigset_t) {
    // SAFETY: a set that `block` answered.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, core::ptr::null_mut()) };
}
