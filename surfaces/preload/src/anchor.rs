//! The anchor: a process that shares this program's addresses and nothing else. It keeps the page
//! tables, and in them which pages were stored to, when the program is killed or replaced.
//!
//! It is the child of a child that is gone at once, so the program never meets it in `wait`. It has
//! its own session, blocks all signals, stands in no folder of the program's, has no open file but
//! the connection to the supervisor, and reads from that until the supervisor hangs up or dies. It
//! runs on a stack of its own and touches nothing of the program's memory but what is ours.
//!
//! A supervisor that is killed while it replaces a page leaves programs standing. Whoever stands is
//! in the ledger, and the anchors make them go on. Not so in a drill: what they would find then is
//! damaged on purpose.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, c_void};
use core::mem::size_of;
use core::sync::atomic::{AtomicI32, Ordering};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::real::Errno;
use crate::state::{self, block, unblock};

const STACK: usize = 16 << 10;

#[repr(C, align(64))]
struct Stack(UnsafeCell<[u8; STACK]>);

// SAFETY: each belongs to one process at a time; never read by anybody else.
unsafe impl Sync for Stack {}

impl Stack {
    const fn new() -> Self {
        Self(UnsafeCell::new([0; STACK]))
    }

    fn top(&self) -> *mut c_void {
        self.0.get().cast::<u8>().wrapping_add(STACK).cast()
    }
}

static FIRST: Stack = Stack::new();
static SECOND: Stack = Stack::new();
/// What the first child came to.
static CAST: AtomicI32 = AtomicI32::new(-1);

/// A system call that leaves `errno` alone, which these processes share with the program.
///
/// # Safety
/// As the call.
unsafe fn raw(number: i64, a: i64, b: i64, c: i64) -> i64 {
    // SAFETY: the caller's promise; the fourth argument is looked at by none of these.
    unsafe { raw4(number, a, b, c, 0) }
}

/// The same with one more argument.
///
/// # Safety
/// As the call.
unsafe fn raw4(number: i64, a: i64, b: i64, c: i64, d: i64) -> i64 {
    let mut done = number;
    // SAFETY: the kernel's calling convention; the caller's promise for the rest.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") done,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    done
}

/// Starts the anchor, which keeps `socket`. Its process; `None` if the system refused.
pub(crate) fn cast(socket: BorrowedFd<'_>) -> Option<u32> {
    let _errno = Errno::keep();
    let before = block();
    CAST.store(-1, Ordering::Relaxed);
    let socket = socket.as_raw_fd() as usize as *mut c_void;
    // SAFETY: the child runs `first` on a stack that nobody uses, and this thread stands still
    // until it is gone (`VFORK`). It has copies of the descriptors and no signals.
    let child =
        unsafe { libc::clone(first, FIRST.top(), libc::CLONE_VM | libc::CLONE_VFORK, socket) };
    if child > 0 {
        let mut status = 0;
        // SAFETY: waits for the child just made, which sends no signal when it ends.
        while unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) } == -1
            && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
        {}
    }
    unblock(&before);
    let anchor = u32::try_from(CAST.load(Ordering::Relaxed)).ok()?;
    (child > 0).then_some(anchor)
}

/// A program to be started that is nobody's child.
#[derive(Debug)]
pub(crate) struct Launch {
    /// Its file.
    pub(crate) command: *const c_char,
    /// Its words, and its variables; each list ends with a null.
    pub(crate) words: *const *const c_char,
    pub(crate) environment: *const *const c_char,
    /// The descriptor that it keeps beside standard error.
    pub(crate) keep: c_int,
}

/// Starts it, before there is an anchor. False if the system refused; whether the program could be
/// executed shows by what it does.
pub(crate) fn launch(what: &Launch) -> bool {
    let _errno = Errno::keep();
    let before = block();
    CAST.store(-1, Ordering::Relaxed);
    let what = core::ptr::from_ref(what).cast_mut().cast::<c_void>();
    // SAFETY: as for the anchor; `what` lives until the child is gone, which waits for its own
    // child to have a memory of its own.
    let child =
        unsafe { libc::clone(parent, FIRST.top(), libc::CLONE_VM | libc::CLONE_VFORK, what) };
    if child > 0 {
        let mut status = 0;
        // SAFETY: waits for the child just made, which sends no signal when it ends.
        while unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) } == -1
            && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
        {}
    }
    unblock(&before);
    child > 0 && CAST.load(Ordering::Relaxed) > 0
}

extern "C" fn parent(what: *mut c_void) -> c_int {
    // SAFETY: begins a session; runs `replaced` on a stack that nobody uses, and stands still until
    // that has become another program or is gone.
    unsafe {
        raw(libc::SYS_setsid, 0, 0, 0);
        let child = libc::clone(replaced, SECOND.top(), libc::CLONE_VM | libc::CLONE_VFORK, what);
        CAST.store(child, Ordering::Relaxed);
    }
    0
}

extern "C" fn replaced(what: *mut c_void) -> c_int {
    // SAFETY: what `launch` was given, which lives until this process has a memory of its own.
    let what = unsafe { &*what.cast::<Launch>() };
    let nobody = 0_u64;
    // SAFETY: calls on descriptors of this process, which are copies; strings and lists that live.
    unsafe {
        let null = raw(
            libc::SYS_open,
            c"/dev/null".as_ptr() as i64,
            i64::from(libc::O_RDWR | libc::O_CLOEXEC),
            0,
        );
        raw(libc::SYS_dup2, null, 0, 0);
        raw(libc::SYS_dup2, null, 1, 0);
        raw(libc::SYS_fcntl, what.keep.into(), libc::F_SETFD.into(), 0);
        // What else the program has open is not for its supervisor to hold.
        let keep = i64::from(what.keep);
        if keep > 3 {
            raw(libc::SYS_close_range, 3, keep - 1, 0);
        }
        raw(libc::SYS_close_range, (keep + 1).max(3), i64::from(u32::MAX), 0);
        raw4(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK.into(), &raw const nobody as i64, 0, 8);
        raw(libc::SYS_execve, what.command as i64, what.words as i64, what.environment as i64);
        raw(libc::SYS_exit, 127, 0, 0);
    }
    0
}

extern "C" fn first(socket: *mut c_void) -> c_int {
    let keep = socket as usize as i64;
    // SAFETY: closes descriptors of this process, which are copies, begins a session, and leaves
    // its folder, which is a copy, too.
    unsafe {
        if keep > 0 {
            raw(libc::SYS_close_range, 0, keep - 1, 0);
        }
        raw(libc::SYS_close_range, keep + 1, i64::from(u32::MAX), 0);
        raw(libc::SYS_setsid, 0, 0, 0);
        // Where the program began may be unmounted once it has left.
        raw(libc::SYS_chdir, c"/".as_ptr() as i64, 0, 0);
    }
    // SAFETY: runs `second` on a stack that nobody else uses for as long as these addresses last:
    // one anchor is cast per address space.
    let anchor =
        unsafe { libc::clone(second, SECOND.top(), libc::CLONE_VM | libc::CLONE_FILES, socket) };
    CAST.store(anchor, Ordering::Relaxed);
    0
}

extern "C" fn second(socket: *mut c_void) -> c_int {
    let mut byte = 0_u8;
    // SAFETY: names this process; reads at most one byte into this stack.
    unsafe {
        raw(libc::SYS_prctl, libc::PR_SET_NAME.into(), c"hf-anchor".as_ptr() as i64, 0);
        loop {
            let got = raw(libc::SYS_read, socket as usize as i64, &raw mut byte as i64, 1);
            if got <= 0 && got != i64::from(-libc::EINTR) {
                wake();
                raw(libc::SYS_exit, 0, 0, 0);
            }
        }
    }
}

/// How often it is looked whether the supervisor lives, and how long is waited between two looks:
/// of what a process has, that which ends last ends milliseconds after the first.
const LOOKS: u32 = 300;
static NAP: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Makes those go on who stand since the supervisor died. One that lives lets them go on itself,
/// and has only hung up.
fn wake() {
    if !state::has_same_numbers() {
        // Who is meant by a number here is somebody else; others' anchors know.
        return;
    }
    for _ in 0..LOOKS {
        // Looked at again each time: whoever lives lets them go.
        let mut standing = state::ledger().standing().peekable();
        if standing.peek().is_none() {
            return;
        }
        if is_deserted() {
            for process in standing.filter(|process| *process > 1) {
                // SAFETY: a signal. One that is gone, or runs, is none the worse for it.
                unsafe { raw(libc::SYS_kill, process.into(), libc::SIGCONT.into(), 0) };
            }
            return;
        }
        // SAFETY: reads a time that lives for ever, and tells nobody how much of it was left.
        unsafe { raw(libc::SYS_nanosleep, &raw const NAP as i64, 0, 0) };
    }
}

/// Whether nobody listens any more where the supervisor did.
fn is_deserted() -> bool {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    // It begins with a zero: it lies in no folder.
    let name = state::name();
    for (slot, byte) in address.sun_path.iter_mut().skip(1).zip(name) {
        *slot = *byte as c_char;
    }
    let len = size_of::<u16>() + 1 + name.len();
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: makes a socket, connects it to an address that lives across the call and is at least
    // as long as it says (`join` refuses longer names), and closes it.
    unsafe {
        let socket = raw(libc::SYS_socket, libc::AF_UNIX.into(), kind.into(), 0);
        if socket < 0 {
            return false;
        }
        let done = raw(libc::SYS_connect, socket, &raw const address as i64, len as i64);
        raw(libc::SYS_close, socket, 0, 0);
        done == i64::from(-libc::ECONNREFUSED)
    }
}
