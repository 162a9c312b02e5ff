//! Loads that meet a media error: the supervisor is asked to put the page right, and the load is
//! done again. What it cannot put right is the program's affair, as without us.
//!
//! Stands before `sigaction` and `signal` for `SIGBUS` alone: the kernel knows our handler, the
//! program sees and sets its own. System calls that meet a bad page fail with the kernel's error;
//! nobody is signalled about those. A thread that blocks `SIGBUS` is ended by the kernel.
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
use crate::state::{self, Quiet};

type Sigaction =
    unsafe extern "C-unwind" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
type Signal = unsafe extern "C-unwind" fn(c_int, sighandler_t) -> sighandler_t;

hooks! {
    sigaction(number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int
        = action;
    signal(number: c_int, handler: sighandler_t) -> sighandler_t = simply;
    bsd_signal(number: c_int, handler: sighandler_t) -> sighandler_t = simply;
}

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
    let mut ours = MaybeUninit::<libc::sigaction>::zeroed();
    let _quiet = Quiet::take();
    // SAFETY: all zeros is a valid action; the handler has the signature that its flag says. The
    // program's is written under the lock.
    let done = unsafe {
        let action = &mut *ours.as_mut_ptr();
        let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = fault;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        call(libc::SIGBUS, ours.as_ptr(), (*OWN.0.get()).as_mut_ptr())
    };
    HERE.store(u32::from(done == 0), Ordering::Release);
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
    let _quiet = Quiet::take();
    // SAFETY: under the lock; filled by `watch`, which `HERE` says.
    let own = unsafe { (*OWN.0.get()).assume_init_mut() };
    match new {
        Some(new) => core::mem::replace(own, new),
        None => *own,
    }
}

unsafe fn simply(real: Signal, number: c_int, handler: sighandler_t) -> sighandler_t {
    if !is_ours(number) {
        // SAFETY: the caller's promise.
        return unsafe { real(number, handler) };
    }
    let mut new = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeros is a valid action.
    let new = unsafe {
        (*new.as_mut_ptr()).sa_sigaction = handler;
        (*new.as_mut_ptr()).sa_flags = libc::SA_RESTART;
        new.assume_init()
    };
    exchange(Some(new)).sa_sigaction
}

extern "C" fn fault(number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let errno = Errno::keep();
    // SAFETY: what the kernel hands to a handler of this kind.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as u64) };
    // Above 0 it is the kernel's; a request by somebody has no address.
    if code > 0 && heal(address) {
        return;
    }
    drop(errno);
    // SAFETY: as it was given to us.
    unsafe { pass_on(number, info, context) };
}

/// Has the page of an address put right; false if it is none of ours, or cannot be.
fn heal(address: u64) -> bool {
    let Some(place) = Place::new(address, 1) else { return false };
    let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    let faults = Row::of(thread);
    let row = faults.fault(place.start, now());
    let Some(mapping) = maps::over(place) else { return false };
    if row >= MOST {
        return false;
    }
    let at = mapping.at + (place.start - mapping.place.start);
    let request = Request::Heal { space: state::space(), file: mapping.file, page: at / PAGE };
    let healed = match state::ask(&request, None) {
        Ok((Answer::Healed, Some(file))) => row == 0 || maps::renew(place, file),
        _ => false,
    };
    faults.seen_to(now());
    healed
}

/// What the program wants done.
unsafe fn pass_on(number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let own = exchange(None);
    if own.sa_sigaction == libc::SIG_IGN || own.sa_sigaction == libc::SIG_DFL {
        // The fault comes again, or is sent again, and meets what it would have met.
        // SAFETY: puts an action back that the program had; sends a signal to this thread.
        unsafe {
            call(number, &raw const own, core::ptr::null_mut());
            HERE.store(0, Ordering::Release);
            if (*info).si_code <= 0 {
                libc::raise(number);
            }
        }
        return;
    }
    // SAFETY: the handler has the signature that its flag says.
    unsafe {
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
