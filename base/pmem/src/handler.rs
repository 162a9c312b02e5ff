//! The process-wide handler of `SIGBUS` and `SIGSEGV`. Who touched the page decides:
//!
//! - Anybody, by the first store to a page that [`FirstStore`](crate::track::FirstStore) protects:
//!   it is recorded, the page opened, the store repeated. If nothing is protected any more when the
//!   handler looks, it is repeated as well.
//! - Anybody, by a store to a page that is being put right: it waits, and is repeated.
//! - A routine of [`crate::asm`], on a registered mapping: the handler sends it to its error exit,
//!   so the access returns an error in normal context.
//! - The program, through a view, and the medium failed (`SIGBUS`): the handler posts the address,
//!   waits for the repair thread, and repeats the load, or passes the signal on.
//! - Nobody: the kernel announces a page it found bad (`BUS_MCEERR_AO`), which is remembered.
//! - Anybody else, anywhere else: the signal goes on to the handler that was there before.
//!
//! Repair never happens in here. Everything called from [`on_fault`] is async-signal-safe: atomics
//! in static memory, `futex`, `gettid`, `clock_gettime`, `signal`, `raise`. The stack it needs is
//! small, since alternate signal stacks are.
//!
//! The default action is passed on by restoring it and returning: the instruction faults again
//! and the process ends as it would have without us, with the true address in its core.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::io;
use std::sync::OnceLock;

use crate::asm::{self, PAGE_SHIFT};
use crate::fork;
use crate::medium::PAGE;
use crate::registry::{self, Fault, Verdict};
use crate::track::{self, bar};

/// Codes of `SIGBUS` (`siginfo_t.si_code`): no such physical place, and the two kinds of hardware
/// memory error, "action required" and "action optional".
const BUS_ADRERR: c_int = 2;
const BUS_OBJERR: c_int = 3;
const BUS_MCEERR_AR: c_int = 4;
const BUS_MCEERR_AO: c_int = 5;

/// Code of `SIGSEGV`: the page is there, and its rights forbid the access.
const SEGV_ACCERR: c_int = 2;
/// Set in the error code of a page fault if the access was a store.
const FAULT_OF_STORE: i64 = 1 << 1;

/// Where the kernel puts `si_addr_lsb` on x86-64: after the address, which follows three words and
/// a gap.
const ADDR_LSB_OFFSET: usize = 24;

/// What was installed before us, per signal.
struct Previous {
    signal: c_int,
    action: AtomicUsize,
    flags: AtomicI32,
}

impl Previous {
    const fn of(signal: c_int) -> Self {
        Self { signal, action: AtomicUsize::new(libc::SIG_DFL), flags: AtomicI32::new(0) }
    }

    fn remember(&self, old: &libc::sigaction) {
        self.flags.store(old.sa_flags, Ordering::Relaxed);
        self.action.store(old.sa_sigaction, Ordering::Release);
    }
}

/// In this order: see [`pass_on`].
static PREVIOUS: [Previous; 2] = [Previous::of(libc::SIGBUS), Previous::of(libc::SIGSEGV)];

/// Times the handler ran in this process.
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// Times the handler ran in this process.
pub(crate) fn count() -> u64 {
    HANDLED.load(Ordering::Relaxed)
}

/// Installs the handler, the first time.
pub(crate) fn install() -> io::Result<()> {
    static DONE: OnceLock<Result<(), i32>> = OnceLock::new();
    DONE.get_or_init(|| {
        for previous in &PREVIOUS {
            install_for(previous).map_err(|error| error.raw_os_error().unwrap_or(0))?;
        }
        Ok(())
    })
    .map_err(io::Error::from_raw_os_error)
}

fn install_for(previous: &Previous) -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value of the type.
    let (mut old, mut new): (libc::sigaction, libc::sigaction) = unsafe { core::mem::zeroed() };
    new.sa_sigaction = on_fault as *const () as usize;
    // The signal stays blocked inside: a second fault in here ends the process, it cannot loop.
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    if previous.signal == libc::SIGSEGV {
        // Nor may another handler of the program run on top and store to a tracked page: that would
        // be such a second fault.
        fill_but_faults(&mut new.sa_mask);
    }
    // The old action is stored before ours can run, and once more in case it changed in between.
    // SAFETY: both structures live across the calls; the handler has the three-argument form that
    // SA_SIGINFO asks for and is async-signal-safe.
    unsafe {
        if libc::sigaction(previous.signal, core::ptr::null(), &raw mut old) != 0 {
            return Err(io::Error::last_os_error());
        }
        previous.remember(&old);
        if libc::sigaction(previous.signal, &raw const new, &raw mut old) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    previous.remember(&old);
    Ok(())
}

/// All signals, except those by which an instruction fails: blocked, these end the process.
/// Async-signal-safe.
pub(crate) fn fill_but_faults(set: &mut libc::sigset_t) {
    // SAFETY: both calls write to the set only.
    unsafe {
        libc::sigfillset(set);
        for signal in [libc::SIGBUS, libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP] {
            libc::sigdelset(set, signal);
        }
    }
}

/// The handler.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the kernel passes valid pointers (SA_SIGINFO); errno belongs to this thread.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        if !absorb(signal, info, context.cast()) {
            pass_on(signal, info, context);
        }
        *errno = before;
    }
}

/// Deals with the fault if it is ours.
///
/// # Safety
/// The arguments are those of a signal handler.
unsafe fn absorb(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) -> bool {
    // SAFETY: the kernel's own structures, valid for the duration of the handler.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code <= 0 {
        return false; // sent by a process, not by the memory
    }
    // SAFETY: as above; REG_ERR indexes the general registers.
    let fault = unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] };
    let protected = signal == libc::SIGSEGV && code == SEGV_ACCERR && fault & FAULT_OF_STORE != 0;
    // The store is repeated, by whomever, a routine of ours included.
    if protected && (track::let_through(address) || bar::wait(address) || bar::has_met(address)) {
        return true;
    }
    let Some((entry, at)) = registry::find(address) else { return false };
    // SAFETY: as above; the field lies inside the structure.
    let lsb = unsafe { extent_shift(signal, code, info) };
    if signal == libc::SIGBUS && code == BUS_MCEERR_AO {
        entry.note_bad(at);
        return true;
    }
    // SAFETY: as above; REG_RIP, REG_RAX and REG_RDX index the general registers.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    if let Some(exit) = asm::error_exit(registers[libc::REG_RIP as usize] as usize) {
        registers[libc::REG_RAX as usize] = (asm::TRAPPED | lsb) as i64;
        registers[libc::REG_RDX as usize] = address as i64;
        registers[libc::REG_RIP as usize] = exit as i64;
        return true;
    }
    let medium = matches!(code, BUS_ADRERR | BUS_OBJERR | BUS_MCEERR_AR);
    if signal != libc::SIGBUS || !medium || !entry.is_of(fork::generation()) {
        return false; // a stray store, or a forked child's own business
    }
    entry.note_bad(at);
    let len = (1_u64 << lsb).max(PAGE);
    let memory = (code == BUS_MCEERR_AR).then(|| monotonic().max(1));
    let fault = Fault { at: at & !(len - 1), len, thread: registry::this_thread(), memory };
    entry.park(fault, monotonic) == Verdict::Healed
}

/// Binary logarithm of the bad extent.
///
/// # Safety
/// `info` is valid.
unsafe fn extent_shift(signal: c_int, code: c_int, info: *const libc::siginfo_t) -> u64 {
    if signal != libc::SIGBUS || !matches!(code, BUS_MCEERR_AR | BUS_MCEERR_AO) {
        return PAGE_SHIFT;
    }
    // SAFETY: the structure is larger than the offset, and the field is aligned.
    let lsb = unsafe { *info.cast::<u8>().add(ADDR_LSB_OFFSET).cast::<i16>() };
    // Large pages are 2 MiB in our views; anything else is not believed.
    u64::try_from(lsb).unwrap_or(PAGE_SHIFT).clamp(PAGE_SHIFT, 21)
}

/// Nanoseconds of the monotonic clock. Async-signal-safe.
pub(crate) fn monotonic() -> u64 {
    // SAFETY: writes one local structure; this clock always exists.
    let now = unsafe {
        let mut now: libc::timespec = core::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
        now
    };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Does what would have happened without us.
///
/// # Safety
/// The arguments are those of a signal handler.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = &PREVIOUS[usize::from(signal == libc::SIGSEGV)];
    let action = previous.action.load(Ordering::Acquire);
    // SAFETY: reads the kernel's structure.
    let sent = unsafe { (*info).si_code } <= 0;
    // SAFETY: `signal` and `raise` are async-signal-safe. The stored address, where it is neither
    // constant, is the handler the program had installed with these flags.
    unsafe {
        match action {
            // A fault that is ignored kills as well: the kernel would not ignore it either.
            libc::SIG_IGN if sent => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::signal(signal, libc::SIG_DFL);
                if sent {
                    // Nothing will fault again, so the signal is sent again.
                    libc::raise(signal);
                }
            }
            _ if previous.flags.load(Ordering::Relaxed) & libc::SA_SIGINFO != 0 => {
                let call: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    core::mem::transmute(action);
                call(signal, info, context);
            }
            _ => {
                let call: extern "C" fn(c_int) = core::mem::transmute(action);
                call(signal);
            }
        }
    }
}
