//! Start, what is known of the supervisor, and the one lock.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use core::mem::MaybeUninit;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use holdfast_guard_wire::{Answer, Ledger, Refusal, Request, link};

use crate::real::Errno;
use crate::{
    anchor, exec, faults, fork, handing, handles, lengths, maps, names, opens, raw, reads, streams,
    strict, syncs, writes,
};

const UNSTARTED: u8 = 0;
const STARTING: u8 = 1;
const READY: u8 = 2;
/// Nobody guards this program.
const OFF: u8 = 3;
/// Ready, and a thread forks: a child that finds this has not introduced itself yet.
const FORKS: u8 = 4;
/// Guarded, but it may make no calls any more, and hooks announce nothing.
const SILENT: u8 = 5;
/// Ready, and a child that borrows this memory may make no calls any more.
const CHILD_SILENT: u8 = 6;

static STATE: AtomicU8 = AtomicU8::new(UNSTARTED);
static SPACE: AtomicU64 = AtomicU64::new(0);
static SAME_NUMBERS: AtomicBool = AtomicBool::new(false);
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
        FORKS => between(),
        CHILD_SILENT => is_heard(),
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
    let _uncancelled = Uncancelled::begin();
    for find in [
        exec::find_all,
        faults::find,
        fork::find,
        handles::find,
        handing::find,
        lengths::find,
        maps::find,
        names::find,
        opens::find,
        raw::find_all,
        reads::find,
        streams::find,
        strict::find,
        syncs::find,
        writes::find,
    ] {
        find();
    }
    let ready = set_up().is_some();
    if ready {
        fork::watch();
        faults::watch();
        names::inherited();
        raw::inherited();
    } else {
        STATE.store(OFF, Ordering::Release);
    }
    ready
}

/// From now on hooks make no calls of their own; false if there are none that do.
pub(crate) fn be_silent() -> bool {
    STATE.compare_exchange(READY, SILENT, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// They do again.
pub(crate) fn speak() {
    let _ = STATE.compare_exchange(SILENT, READY, Ordering::AcqRel, Ordering::Acquire);
}

/// The child that is silent; 0 once it is gone, which the kernel says before its parent goes on.
static SILENT_CHILD: AtomicU32 = AtomicU32::new(0);
/// Its thread, which is that of its parent.
static SILENT_THREAD: AtomicUsize = AtomicUsize::new(0);

/// Has hooks make no calls of their own in this process, which borrows its parent's memory, nor in
/// the thread of its parent that waits for it. False if there is such a child already.
pub(crate) fn be_silent_alone() -> bool {
    if SILENT_CHILD.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return false;
    }
    SILENT_THREAD.store(this_thread(), Ordering::Release);
    // SAFETY: a number that lives as long as the program. The kernel clears it when this thread
    // ends, if others have its memory.
    unsafe { libc::syscall(libc::SYS_set_tid_address, SILENT_CHILD.as_ptr()) };
    // Last: whoever asks from now on finds who is silent.
    let begun = STATE.compare_exchange(READY, CHILD_SILENT, Ordering::AcqRel, Ordering::Acquire);
    if begun.is_err() {
        speak_alone();
    }
    begun.is_ok()
}

/// They do again: it may make calls after all.
pub(crate) fn speak_alone() {
    // SAFETY: nothing is cleared from now on.
    unsafe { libc::syscall(libc::SYS_set_tid_address, 0) };
    SILENT_CHILD.store(0, Ordering::Release);
    is_heard();
}

/// Whether this is not the child that is silent. Asked without a call: it may make none.
#[cold]
fn is_heard() -> bool {
    if SILENT_CHILD.load(Ordering::Acquire) == 0 {
        let _ = STATE.compare_exchange(CHILD_SILENT, READY, Ordering::AcqRel, Ordering::Acquire);
        return true;
    }
    SILENT_THREAD.load(Ordering::Acquire) != this_thread()
}

/// The process whose memory this is.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// This process has its memory for itself, as one has that said hello.
#[cfg(test)]
pub(crate) fn own() {
    // SAFETY: asks for a number.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
}

/// Whether this process runs in the memory of another, its parent: a child as of `vfork`. What it
/// changes here, it changes there.
pub(crate) fn is_borrowed() -> bool {
    // SAFETY: asks for a number.
    unsafe { libc::getpid() != OWNER.load(Ordering::Relaxed) && !Quiet::is_child() }
}

/// Somebody else is starting, or a hook was met on the way: passed through.
fn on_after() -> bool {
    matches!(STATE.load(Ordering::Acquire), READY | FORKS | CHILD_SILENT)
}

/// Others' handlers may run in a child before ours does: whichever has something to tell first.
fn between() -> bool {
    if Quiet::is_child() {
        STATE.store(READY, Ordering::Release);
        fork::introduce();
    }
    true
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
            Err(READY | FORKS | CHILD_SILENT) => Err(libc::EALREADY),
            Err(_) => Err(libc::EAGAIN),
        }
    }

    /// Introduces this space to the supervisor `name`; from now on hooks announce. New programs are
    /// given `library`.
    pub(crate) fn finish(self, name: &[u8], library: Option<&CStr>) -> Option<Late> {
        exec::remember_late(library, name);
        // Whom it gave its descriptors to before, nobody saw.
        fork::share();
        join(name, true)?;
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

/// Makes a supervisor ours. From before it believes that, hooks announce: so there is no moment at
/// which it takes for granted what is not done.
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
        let given = environment(c"HOLDFAST_GUARD_IMPATIENT");
        let millis = given.map(|given| given.to_str().ok().and_then(|text| text.parse().ok()));
        IMPATIENT.store(millis.map_or(0, |millis| millis.unwrap_or(300)), Ordering::Relaxed);
    }
    hello(0, late).ok()?;
    STATE.store(READY, Ordering::Release);
    joined().ok()
}

/// Says that all is set up. An answer that is late may still come to be: then hooks announce to
/// nobody's harm, and until then this program is a stranger to the supervisor.
pub(crate) fn joined() -> Result<(), Refusal> {
    match ask(&Request::Joined { space: space() }, None) {
        Ok(_) | Err(Refusal::Late) => Ok(()),
        Err(why) => Err(why),
    }
}

/// Introduces this address space, maps the ledger if there is none yet, and has an anchor keep the
/// space. Nothing of it is believed before [`joined`].
pub(crate) fn hello(from: u64, late: bool) -> Result<(), Refusal> {
    let socket = link::reach(name(), patience()).map_err(|_| Refusal::Failed)?;
    let hello = Request::Hello { from, late };
    let (answer, ledger) = link::ask_on(&socket, &hello, None, patience())?;
    let Answer::Welcome { space, process } = answer else { return Err(Refusal::Malformed) };
    // Its descriptor is cut off where this program may have no more of them.
    let ledger = ledger.ok_or(Refusal::NoDescriptor)?;
    if from == 0 {
        let ledger = Ledger::attach(ledger.as_fd()).map_err(|_| Refusal::Failed)?;
        // SAFETY: this thread alone is starting, and nobody reads before `STATE` is `READY`.
        unsafe { LEDGER.set(ledger) };
    }
    SPACE.store(space, Ordering::Release);
    // SAFETY: asks for a number.
    let own = unsafe { libc::getpid() };
    OWNER.store(own, Ordering::Relaxed);
    let same = u32::try_from(own) == Ok(process);
    SAME_NUMBERS.store(same, Ordering::Release);
    // Where there is none, the supervisor hears the connection end.
    if let Some(process) = anchor::cast(socket.as_fd()) {
        ask(&Request::Anchored { space, process }, None)?;
    }
    Ok(())
}

/// Whether the supervisor numbers processes as this one does. After [`hello`].
pub(crate) fn has_same_numbers() -> bool {
    SAME_NUMBERS.load(Ordering::Acquire)
}

/// Where the supervisor listens. After [`join`] began.
pub(crate) fn name() -> &'static [u8] {
    // SAFETY: called after `set_up` has set it, which `NAME_LEN` says.
    let name = unsafe { NAME.get() };
    name.get(..NAME_LEN.load(Ordering::Acquire)).unwrap_or_default()
}

/// The number of this address space.
pub(crate) fn space() -> u64 {
    SPACE.load(Ordering::Acquire)
}

/// The list of guarded files. Only after [`on`] said yes, or in an anchor.
pub(crate) fn ledger() -> &'static Ledger {
    // SAFETY: set before `STATE` became `READY`, which whoever calls has seen, and by `hello`
    // before it casts an anchor.
    unsafe { LEDGER.get() }
}

/// Asks the supervisor.
pub(crate) fn ask(
    request: &Request,
    with: Option<BorrowedFd<'_>>,
) -> Result<(Answer, Option<OwnedFd>), Refusal> {
    let _uncancelled = Uncancelled::begin();
    let hasty = may_be_late(request) && stands();
    let request = match *request {
        Request::Ask { .. } => Request::Ask { hasty },
        other => other,
    };
    let patience = if hasty { link::hasty(patience()) } else { patience() };
    noted(link::ask(name(), &request, with, patience))
}

/// The supervisor did not answer in time when it was last asked.
static LATE: AtomicBool = AtomicBool::new(false);

/// Whether nothing is lost if the supervisor does not answer in time: then nobody has to wait for
/// long again and again, should it stand still.
fn may_be_late(request: &Request) -> bool {
    matches!(request, Request::Ask { .. } | Request::Named { .. } | Request::Cover { .. })
}

/// Whether the supervisor stands still, as far as is known: it was late, and is still.
fn stands() -> bool {
    if !LATE.load(Ordering::Relaxed) {
        return false;
    }
    let asked = link::ask(name(), &Request::Listen, None, link::hasty(patience()));
    noted(asked).is_err_and(|why| why == Refusal::Late)
}

fn noted<T>(asked: Result<T, Refusal>) -> Result<T, Refusal> {
    let late = asked.as_ref().is_err_and(|why| *why == Refusal::Late);
    LATE.store(late, Ordering::Relaxed);
    asked
}

/// How long an answer is waited for.
fn patience() -> Duration {
    #[cfg(feature = "untracked")]
    if let millis @ 1.. = IMPATIENT.load(Ordering::Relaxed) {
        return Duration::from_millis(millis);
    }
    link::PATIENCE
}

/// Tells the supervisor and waits until it has seen to it; what cannot be told is noted.
pub(crate) fn tell(request: &Request, with: Option<BorrowedFd<'_>>) {
    if ask(request, with).is_err() {
        ledger().lose();
    }
}

/// The same of what the supervisor can do as well when it comes to it: that it does not answer in
/// time is no loss.
pub(crate) fn tell_in_time_or_not(request: &Request) {
    if ask(request, None).is_err_and(|why| why != Refusal::Late) {
        ledger().lose();
    }
}

#[cfg(feature = "untracked")]
static UNTRACKED: AtomicBool = AtomicBool::new(false);
/// How many milliseconds a test wants to wait, if it does not want to wait for long.
#[cfg(feature = "untracked")]
static IMPATIENT: AtomicU64 = AtomicU64::new(0);

/// Whether a test wants writes to go unannounced.
pub(crate) fn untracked() -> bool {
    #[cfg(feature = "untracked")]
    return UNTRACKED.load(Ordering::Relaxed);
    #[cfg(not(feature = "untracked"))]
    false
}

static LOCK: AtomicBool = AtomicBool::new(false);
/// The thread that forks, and holds the lock for that; 0 if none does.
static FORKING: AtomicUsize = AtomicUsize::new(0);
/// Its process.
static PARENT: AtomicI32 = AtomicI32::new(0);

/// The lock, with all signals blocked: a handler that calls a hook never finds its own thread
/// holding it. A thread that forks holds it while others' handlers run in it: it passes.
#[derive(Debug)]
pub(crate) struct Quiet {
    before: libc::sigset_t,
    passes: bool,
    /// Whether it is held, or passed.
    has: bool,
    uncancelled: Uncancelled,
}

/// Waits for a moment, and longer if that did not help: who has the lock may have to be let run by
/// a thread that goes before it.
fn pause(round: u32) {
    const YIELDS: u32 = 100;
    if round < YIELDS {
        rustix::thread::sched_yield();
    } else {
        let moment = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 50_000 };
        let _ = rustix::thread::nanosleep(&moment);
    }
}

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of this C library.
const DISABLE: c_int = 1;

/// This thread is not cancelled until this is dropped. To close a descriptor is a place to be
/// cancelled at; there, our frames cannot be unwound, and the program expects it elsewhere.
#[derive(Debug)]
pub(crate) struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    pub(crate) fn begin() -> Self {
        let mut before = 0;
        // SAFETY: changes the calling thread's own state, and writes what it was.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: what `begin` found, of this very thread.
        unsafe { pthread_setcancelstate(self.before, core::ptr::null_mut()) };
    }
}

/// This thread; the same in a child that it forks.
pub(crate) fn this_thread() -> usize {
    // SAFETY: asks for a number.
    unsafe { libc::pthread_self() as usize }
}

impl Quiet {
    pub(crate) fn take() -> Self {
        let mut quiet = Self::begin();
        for round in 0_u32.. {
            if quiet.is_held() {
                break;
            }
            pause(round);
        }
        quiet
    }

    /// The same, as long as it is needed: `None` once it is not. Whoever holds locks of others
    /// while it waits, an allocator for one, would stand still for ever if the thread that has this
    /// one waits for those, in order to fork.
    pub(crate) fn take_while(needed: impl Fn() -> bool) -> Option<Self> {
        let mut quiet = Self::begin();
        for round in 0_u32.. {
            if quiet.is_held() || !needed() {
                break;
            }
            pause(round);
        }
        quiet.has.then_some(quiet)
    }

    /// Before the lock is taken.
    fn begin() -> Self {
        let uncancelled = Uncancelled::begin();
        Self { before: block(), passes: false, has: false, uncancelled }
    }

    /// Tries to take the lock, or passes.
    fn is_held(&mut self) -> bool {
        self.passes = FORKING.load(Ordering::Relaxed) == this_thread();
        let free = || LOCK.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        self.has = self.passes || free().is_ok();
        self.has
    }

    /// Holds on to the lock beyond this value, for a fork.
    pub(crate) fn keep_for_fork(self) {
        // SAFETY: under the lock nobody else writes it, and nobody reads it without.
        unsafe { KEPT.set((self.before, self.uncancelled.before)) };
        // SAFETY: asks for a number.
        PARENT.store(unsafe { libc::getpid() }, Ordering::Relaxed);
        FORKING.store(this_thread(), Ordering::Relaxed);
        STATE.store(FORKS, Ordering::Release);
        core::mem::forget(self);
    }

    /// Whether this is the child of the fork for which the lock is held.
    fn is_child() -> bool {
        // SAFETY: asks for a number.
        let process = unsafe { libc::getpid() };
        FORKING.load(Ordering::Relaxed) == this_thread()
            && PARENT.load(Ordering::Relaxed) != process
    }

    /// Takes up what [`keep_for_fork`](Self::keep_for_fork) held on to.
    pub(crate) fn after_fork() -> Option<Self> {
        let kept = FORKING.load(Ordering::Relaxed) == this_thread();
        kept.then(|| {
            STATE.store(READY, Ordering::Release);
            FORKING.store(0, Ordering::Relaxed);
            // SAFETY: set by `keep_for_fork`, by this thread, which holds the lock.
            let (before, cancelled) = *unsafe { KEPT.get() };
            let uncancelled = Uncancelled { before: cancelled };
            Self { before, passes: false, has: true, uncancelled }
        })
    }
}

static KEPT: Cell<(libc::sigset_t, c_int)> = Cell::new();

impl Drop for Quiet {
    fn drop(&mut self) {
        if self.has && !self.passes {
            LOCK.store(false, Ordering::Release);
        }
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
