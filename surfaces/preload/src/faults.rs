//! Loads that meet a media error: the supervisor is asked to put the page right, and the load is
//! done again. What it cannot put right is the program's affair, as without us. It is told whether
//! the memory failed: then what was stored there may be gone, although the page can be read.
//!
//! Stands before `sigaction`, `signal` and their like for `SIGBUS` alone: the kernel knows our
//! handler, the program sees and sets its own. That is called as the kernel would: on the stack and
//! with the signals blocked that it asks for, once if it wants to be called once. A signal that the
//! program ignores is ignored by what it becomes by `exec`, and by what it starts: the kernel
//! ignores it meanwhile, so that a load that meets a media error just then is as without us. System
//! calls that meet a bad page fail with the kernel's error; nobody is signalled about those. A
//! thread that blocks `SIGBUS` is ended by the kernel.
//!
//! A child as of `vfork` runs in the memory of its parent, whose action is kept here, and has
//! actions of its own in the kernel: what it sets goes there, and our handler with it.
//!
//! | fault of a thread in a row at one page, within a second each | done |
//! |---|---|
//! | first | the supervisor puts the page of the file right |
//! | second | the page is mapped anew: told as gone, mapped to be read, told, made writable |
//! | third | the program's own action |

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use holdfast_guard_wire::{Answer, Place, Request};
use holdfast_pmem::PAGE;
use libc::{sighandler_t, siginfo_t};

use crate::maps;
use crate::real::{Errno, hooks};
use crate::state::{self, Quiet, Uncancelled};

type Sigaction =
    unsafe extern "C-unwind" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
type Signal = unsafe extern "C-unwind" fn(c_int, sighandler_t) -> sighandler_t;
type Ignore = unsafe extern "C-unwind" fn(c_int) -> c_int;

hooks! {
    sigaction(number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int
        = action;
    signal(number: c_int, handler: sighandler_t) -> sighandler_t = simply;
    bsd_signal(number: c_int, handler: sighandler_t) -> sighandler_t = simply;
    ssignal(number: c_int, handler: sighandler_t) -> sighandler_t = simply;
    sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t = once;
    __sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t = once;
    sigset(number: c_int, handler: sighandler_t) -> sighandler_t = set;
    sigignore(number: c_int) -> c_int = ignore;
    __sigaction(number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int
        = action;
}

/// Codes of the signal for memory that failed: an access met it, or somebody found it.
const BUS_MCEERR_AR: c_int = 4;
const BUS_MCEERR_AO: c_int = 5;

/// Faults in a row at one page until the program's own action is taken.
const MOST: u64 = 3;
/// Nanoseconds after which a fault at the same page is a new one: the load went well in between.
const IN_A_ROW: u64 = 1_000_000_000;
/// Threads whose rows are told apart; more share.
const THREADS: usize = 64;

/// The program's action.
struct Own(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: used under the lock only.
unsafe impl Sync for Own {}

static OWN: Own = Own(UnsafeCell::new(MaybeUninit::zeroed()));
/// Whether our handler is there, and `OWN` with it.
static HERE: AtomicU32 = AtomicU32::new(0);
/// Programs that are being started, for which the kernel ignores what this one ignores. Under the
/// lock.
static STARTING: AtomicU32 = AtomicU32::new(0);

/// The faults of a thread. Only that thread writes it, from its handler, unless it is shared.
struct Row {
    /// 0 is nobody.
    thread: AtomicU32,
    /// The page of the last fault, and how many there were in a row before that.
    page: AtomicU64,
    before: AtomicU64,
    /// When it was seen to, in nanoseconds.
    at: AtomicU64,
}

static ROWS: [Row; THREADS] = [const {
    Row {
        thread: AtomicU32::new(0),
        page: AtomicU64::new(0),
        before: AtomicU64::new(0),
        at: AtomicU64::new(0),
    }
}; THREADS];

impl Row {
    /// That of a thread. One that finds all taken takes another's, perhaps that of a dead one.
    fn of(thread: u32) -> &'static Self {
        let mine = |row: &&Self| row.thread.load(Ordering::Acquire) == thread;
        let free = |row: &&Self| {
            row.thread.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let own = || &ROWS[thread as usize % THREADS];
        ROWS.iter().find(mine).or_else(|| ROWS.iter().find(free)).unwrap_or_else(|| {
            own().page.store(0, Ordering::Release);
            own().thread.store(thread, Ordering::Release);
            own()
        })
    }

    /// A fault at a page: how many there were in a row before it.
    fn fault(&self, page: u64, now: u64) -> u64 {
        let same = self.page.swap(page, Ordering::AcqRel) == page;
        let soon = now.saturating_sub(self.at.load(Ordering::Acquire)) < IN_A_ROW;
        let before = if same && soon { self.before.load(Ordering::Acquire) + 1 } else { 0 };
        self.before.store(before, Ordering::Release);
        self.seen_to(now);
        before
    }

    /// The fault was seen to, which may have taken a while.
    fn seen_to(&self, now: u64) {
        self.at.store(now, Ordering::Release);
    }
}

fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a time. What cannot be told is no time at all.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

/// Puts our handler before that of the program. Called once, when the program is guarded.
pub(crate) fn watch() {
    let _quiet = Quiet::take();
    let mut done = stand_before(&new(libc::SIG_DFL, 0), OWN.0.get().cast());
    if done == 0 {
        // SAFETY: written just now, and used under the lock only.
        let own = unsafe { (*OWN.0.get()).assume_init_ref() };
        done = stand_before(own, core::ptr::null_mut());
    }
    HERE.store(u32::from(done == 0), Ordering::Release);
}

/// Has the kernel call our handler, on the stack that one of the program's asks for; `before` is
/// told what was there.
fn stand_before(own: &libc::sigaction, before: *mut libc::sigaction) -> c_int {
    let stack = if handles(own) { own.sa_flags & libc::SA_ONSTACK } else { libc::SA_ONSTACK };
    let ours = new(ours(), libc::SA_SIGINFO | libc::SA_RESTART | stack);
    // SAFETY: the handler has the signature that its flag says; null, or room for an action.
    unsafe { call(libc::SIGBUS, &raw const ours, before) }
}

/// Our handler.
fn ours() -> sighandler_t {
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = fault;
    handler as usize
}

/// Whether an action is a handler.
fn handles(action: &libc::sigaction) -> bool {
    ![libc::SIG_IGN, libc::SIG_DFL].contains(&action.sa_sigaction)
}

/// An action that blocks no other signals.
fn new(handler: sighandler_t, flags: c_int) -> libc::sigaction {
    let mut new = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeros is a valid action.
    unsafe {
        (*new.as_mut_ptr()).sa_sigaction = handler;
        (*new.as_mut_ptr()).sa_flags = flags;
        new.assume_init()
    }
}

/// This program is about to become another, which goes on ignoring what this one ignores: the
/// kernel has to know of it. The answer puts our handler back if it did not.
pub(crate) fn before_exec() -> Option<Ignored> {
    let ignores = is_ours(libc::SIGBUS) && exchange(None).sa_sigaction == libc::SIG_IGN;
    ignores.then(|| {
        let mut ours = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: puts an action there, and writes what was there before; all zeros is one, too.
        unsafe {
            call(libc::SIGBUS, &new(libc::SIG_IGN, 0), ours.as_mut_ptr());
            Ignored(ours.assume_init())
        }
    })
}

/// The kernel ignores the signal as the program does. Our handler comes back when this is dropped.
pub(crate) struct Ignored(libc::sigaction);

impl Drop for Ignored {
    fn drop(&mut self) {
        // SAFETY: an action that was there before.
        unsafe { call(libc::SIGBUS, &raw const self.0, core::ptr::null_mut()) };
    }
}

/// Other programs are about to be started, which ignore what this one ignores. Our handler comes
/// back with the last of these values.
pub(crate) fn before_start() -> Option<Starting> {
    // Who borrows this memory has actions of its own, and passes those on.
    if !is_ours(libc::SIGBUS) || state::is_borrowed() {
        return None;
    }
    let _quiet = Quiet::take();
    // SAFETY: under the lock; filled by `watch`, which `HERE` says.
    let own = unsafe { (*OWN.0.get()).assume_init_ref() };
    (own.sa_sigaction == libc::SIG_IGN).then(|| {
        if STARTING.fetch_add(1, Ordering::Relaxed) == 0 {
            // SAFETY: puts an action there.
            unsafe { call(libc::SIGBUS, own, core::ptr::null_mut()) };
        }
        Starting(())
    })
}

/// The kernel ignores the signal for a program that is being started.
pub(crate) struct Starting(());

impl Drop for Starting {
    fn drop(&mut self) {
        let _quiet = Quiet::take();
        if STARTING.fetch_sub(1, Ordering::Relaxed) == 1 {
            come_back();
        }
    }
}

/// Our handler again, if it was there. Under the lock.
fn come_back() {
    if is_ours(libc::SIGBUS) {
        // SAFETY: under the lock; filled by `watch`, which `HERE` says.
        let own = unsafe { (*OWN.0.get()).assume_init_ref() };
        stand_before(own, core::ptr::null_mut());
    }
}

/// A forked child starts nothing of what its parent was just starting. It holds the lock.
pub(crate) fn inherited() {
    if STARTING.swap(0, Ordering::Relaxed) > 0 {
        come_back();
    }
}

/// The C library's own `sigaction`.
///
/// # Safety
/// As that.
unsafe fn call(number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let Some(real) = found::sigaction.find() else { return -1 };
    // SAFETY: the function of this name has these arguments.
    let real = unsafe { core::mem::transmute::<crate::real::Address, Sigaction>(real) };
    // SAFETY: the caller's promise.
    unsafe { real(number, new, old) }
}

fn is_ours(number: c_int) -> bool {
    number == libc::SIGBUS && HERE.load(Ordering::Acquire) == 1
}

unsafe fn action(
    real: Sigaction,
    number: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if !is_ours(number) {
        // SAFETY: the caller's promise.
        return unsafe { real(number, new, old) };
    }
    // SAFETY: the caller's promise: null, or an action to be read.
    let new = (!new.is_null()).then(|| unsafe { new.read() });
    let before = exchange(new);
    if !old.is_null() {
        // SAFETY: the caller's promise: room for an action.
        unsafe { old.write(before) };
    }
    0
}

/// The program's action, and another in its place.
fn exchange(new: Option<libc::sigaction>) -> libc::sigaction {
    let borrowed = state::is_borrowed();
    let _quiet = Quiet::take();
    // SAFETY: under the lock; filled by `watch`, which `HERE` says.
    let own = unsafe { (*OWN.0.get()).assume_init_mut() };
    match new {
        _ if borrowed => exchange_there(new).unwrap_or(*own),
        Some(new) => {
            let starts = STARTING.load(Ordering::Relaxed) > 0;
            if starts && new.sa_sigaction == libc::SIG_IGN {
                // SAFETY: puts an action there.
                unsafe { call(libc::SIGBUS, &raw const new, core::ptr::null_mut()) };
            } else {
                stand_before(&new, core::ptr::null_mut());
            }
            core::mem::replace(own, new)
        }
        None => *own,
    }
}

/// The action that the kernel has for this process alone, and another in its place; `None` if it
/// is our handler, so that it is its parent's.
fn exchange_there(new: Option<libc::sigaction>) -> Option<libc::sigaction> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    let new = new.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: null, or an action; room for one, of which all zeros is one, too.
    let before = unsafe {
        call(libc::SIGBUS, new, before.as_mut_ptr());
        before.assume_init()
    };
    (before.sa_sigaction != ours()).then_some(before)
}

unsafe fn simply(real: Signal, number: c_int, handler: sighandler_t) -> sighandler_t {
    if !is_ours(number) {
        // SAFETY: the caller's promise.
        return unsafe { real(number, handler) };
    }
    exchange(Some(new(handler, libc::SA_RESTART))).sa_sigaction
}

/// `signal` as it was in System V: for one time, and without blocking anything.
unsafe fn once(real: Signal, number: c_int, handler: sighandler_t) -> sighandler_t {
    if !is_ours(number) {
        // SAFETY: the caller's promise.
        return unsafe { real(number, handler) };
    }
    exchange(Some(new(handler, libc::SA_RESETHAND | libc::SA_NODEFER))).sa_sigaction
}

/// `SIG_HOLD`: to be blocked, and no action.
const HOLD: sighandler_t = 2;

/// An action, and the signal let through; or the signal blocked.
unsafe fn set(real: Signal, number: c_int, handler: sighandler_t) -> sighandler_t {
    if !is_ours(number) {
        // SAFETY: the caller's promise.
        return unsafe { real(number, handler) };
    }
    let how = if handler == HOLD { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    let (mut bus, mut before) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
    // SAFETY: sets of signals that live across the calls; all zeros is an empty one.
    let held = unsafe {
        libc::sigemptyset(bus.as_mut_ptr());
        libc::sigaddset(bus.as_mut_ptr(), number);
        // The action first: what waits behind the bar meets the new one.
        libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), before.as_mut_ptr());
        libc::sigismember(before.as_ptr(), number) == 1
    };
    let old = exchange((handler != HOLD).then(|| new(handler, 0))).sa_sigaction;
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(how, bus.as_ptr(), core::ptr::null_mut()) };
    if held { HOLD } else { old }
}

unsafe fn ignore(real: Ignore, number: c_int) -> c_int {
    if !is_ours(number) {
        // SAFETY: the caller's promise.
        return unsafe { real(number) };
    }
    exchange(Some(new(libc::SIG_IGN, 0)));
    0
}

extern "C" fn fault(number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let errno = (Errno::keep(), Uncancelled::begin());
    // SAFETY: what the kernel hands to a handler of this kind.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as u64) };
    // Above 0 it is the kernel's; a request by somebody has no address.
    let memory = matches!(code, BUS_MCEERR_AR | BUS_MCEERR_AO);
    if code > 0 && heal(address, memory) {
        return;
    }
    drop(errno);
    // SAFETY: as it was given to us.
    unsafe { pass_on(number, info, context) };
}

/// Has the page of an address put right, whose memory failed or which could not be read in; false
/// if it is none of ours, or cannot be.
fn heal(address: u64, memory: bool) -> bool {
    let Some(place) = Place::new(address, 1) else { return false };
    let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    let faults = Row::of(thread);
    let row = faults.fault(place.start, now());
    let Some(mapping) = maps::over(place) else { return false };
    if row >= MOST {
        return false;
    }
    let at = mapping.at + (place.start - mapping.place.start);
    let (space, file) = (state::space(), mapping.file);
    let request = Request::Heal { space, file, page: at / PAGE, memory };
    let healed = match state::ask(&request, None) {
        Ok((Answer::Healed, Some(file))) => row == 0 || maps::renew(place, file),
        _ => false,
    };
    faults.seen_to(now());
    healed
}

/// The program's action, which may be for this one time.
fn take(borrowed: bool) -> libc::sigaction {
    let _quiet = Quiet::take();
    // SAFETY: under the lock; filled by `watch`, which put the handler there that asks.
    let own = unsafe { (*OWN.0.get()).assume_init_mut() };
    let before = *own;
    if handles(own) && own.sa_flags & libc::SA_RESETHAND != 0 {
        if borrowed {
            exchange_there(Some(new(libc::SIG_DFL, 0)));
        } else {
            own.sa_sigaction = libc::SIG_DFL;
        }
    }
    before
}

/// What the program wants done.
unsafe fn pass_on(number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let borrowed = state::is_borrowed();
    let own = take(borrowed);
    if !handles(&own) {
        // The fault comes again, or is sent again, and meets what it would have met.
        // SAFETY: puts an action back that the program had; sends a signal to this thread.
        unsafe {
            call(number, &raw const own, core::ptr::null_mut());
            if !borrowed {
                HERE.store(0, Ordering::Release);
            }
            if (*info).si_code <= 0 {
                libc::raise(number);
            }
        }
        return;
    }
    // SAFETY: the context of a handler, in which the kernel fills one word of the set of signals;
    // the handler has the signature that its flag says.
    unsafe {
        let blocked = (&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<u64>();
        let asked = (&raw const own.sa_mask).cast::<u64>();
        let itself = if own.sa_flags & libc::SA_NODEFER == 0 { 1 << (number - 1) } else { 0 };
        let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
        mask.as_mut_ptr().cast::<u64>().write(blocked.read() | asked.read() | itself);
        libc::pthread_sigmask(libc::SIG_SETMASK, mask.as_ptr(), core::ptr::null_mut());
        if own.sa_flags & libc::SA_SIGINFO != 0 {
            type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
            core::mem::transmute::<sighandler_t, Handler>(own.sa_sigaction)(number, info, context);
        } else {
            type Handler = extern "C" fn(c_int);
            core::mem::transmute::<sighandler_t, Handler>(own.sa_sigaction)(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel ignores the signal until the last of several programs was started.
    #[test]
    fn our_handler_comes_back_once_nothing_is_being_started() {
        state::own();
        let there = || exchange_there(None).map(|action| action.sa_sigaction);
        let program = |handler| exchange(Some(new(handler, 0))).sa_sigaction;
        watch();
        assert!(HERE.load(Ordering::Acquire) == 1 && there().is_none());
        program(libc::SIG_DFL);
        assert!(before_start().is_none(), "nothing is ignored");
        program(libc::SIG_IGN);
        let (one, other) = (before_start(), before_start());
        assert_eq!((there(), one.is_some()), (Some(libc::SIG_IGN), other.is_some()));
        drop(one);
        assert_eq!(there(), Some(libc::SIG_IGN), "one is still being started");
        // It is set anew meanwhile, to the same and to something else.
        assert_eq!((program(libc::SIG_IGN), there()), (libc::SIG_IGN, Some(libc::SIG_IGN)));
        assert_eq!((program(libc::SIG_DFL), there()), (libc::SIG_IGN, None));
        assert_eq!((program(libc::SIG_IGN), there()), (libc::SIG_DFL, Some(libc::SIG_IGN)));
        drop(other);
        assert_eq!((there(), program(libc::SIG_DFL)), (None, libc::SIG_IGN));
        // A child starts nothing of what its parent was just starting.
        program(libc::SIG_IGN);
        let parents = before_start();
        assert_eq!(there(), Some(libc::SIG_IGN));
        inherited();
        assert_eq!(there(), None);
        core::mem::forget(parents);
    }

    #[test]
    fn rows_are_of_one_thread_at_one_page_and_end() {
        let (one, other) = (Row::of(101), Row::of(102));
        let mut time = 5 * IN_A_ROW;
        // Two threads at two pages, one after the other: each comes to its end.
        for row in 0..4 {
            assert_eq!((one.fault(0x1000, time), other.fault(0x2000, time)), (row, row));
            time += 1000;
        }
        assert!(core::ptr::eq(Row::of(101), one));
        assert_eq!((one.fault(0x3000, time), one.fault(0x1000, time)), (0, 0), "elsewhere between");
        // It went well for a while.
        assert_eq!((one.fault(0x1000, time), one.fault(0x1000, time + IN_A_ROW)), (1, 0));
        // What takes long to be seen to is no success.
        one.seen_to(time + 5 * IN_A_ROW);
        assert_eq!(one.fault(0x1000, time + 5 * IN_A_ROW + 9), 1);
        for thread in 1000..1000 + 3 * THREADS as u32 {
            assert_eq!(Row::of(thread).fault(0x9000, time), 0);
        }
    }
}
