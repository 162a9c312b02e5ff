//! Handles that go to others: through a socket, or to a command that is run.
//!
//! | call | what is told |
//! |---|---|
//! | `sendmsg`, `sendmmsg` with writing handles of guarded files | each file, the socket, before |
//! | the same without | nothing |
//! | `recvmsg`, `recvmmsg` | nothing; the positions of files that come along are others', too |
//! | `system`, `popen` | that a child is started, before and after, as `posix_spawn` does |
//!
//! Inside the C library `system` starts its shell where nobody stands, so it is done here.

use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::os::fd::BorrowedFd;

use holdfast_guard_wire::{Request, Spawned};
use libc::{FILE, mmsghdr, msghdr};

use crate::exec::{self, Start};
use crate::real::{Errno, copied, hooks};
use crate::state::{self, Cell, Quiet};
use crate::{files, fork};

type Send = unsafe extern "C-unwind" fn(c_int, *const msghdr, c_int) -> isize;
type SendMany = unsafe extern "C-unwind" fn(c_int, *mut mmsghdr, u32, c_int) -> c_int;
type Receive = unsafe extern "C-unwind" fn(c_int, *mut msghdr, c_int) -> isize;
type ReceiveMany =
    unsafe extern "C-unwind" fn(c_int, *mut mmsghdr, u32, c_int, *mut libc::timespec) -> c_int;
type System = unsafe extern "C-unwind" fn(*const c_char) -> c_int;
type Popen = unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> *mut FILE;

hooks! {
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize = send;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int) -> c_int = send_many;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize = receive;
    recvmmsg(
        fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int, time: *mut libc::timespec,
    ) -> c_int = receive_many;
    system(command: *const c_char) -> c_int = run;
    popen(command: *const c_char, mode: *const c_char) -> *mut FILE = open;
    _IO_popen(command: *const c_char, mode: *const c_char) -> *mut FILE = open;
}

unsafe fn send(real: Send, fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        tell(fd, message);
        real(fd, message, flags)
    }
}

unsafe fn send_many(
    real: SendMany,
    fd: c_int,
    messages: *mut mmsghdr,
    count: u32,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        tell_all(fd, messages, count);
        real(fd, messages, count, flags)
    }
}

unsafe fn receive(real: Receive, fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        let done = real(fd, message, flags);
        took(message, done as i64);
        done
    }
}

unsafe fn receive_many(
    real: ReceiveMany,
    fd: c_int,
    messages: *mut mmsghdr,
    count: u32,
    flags: c_int,
    time: *mut libc::timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let done = real(fd, messages, count, flags, time);
        took_all(messages, done.into());
        done
    }
}

/// Messages have come: as many as `done` says, if the call went well.
///
/// # Safety
/// As for `recvmmsg`, which has answered `done`.
pub(crate) unsafe fn took_all(messages: *const mmsghdr, done: i64) {
    for at in 0..usize::try_from(done).unwrap_or(0) {
        // SAFETY: the caller's promise: the kernel has filled so many.
        unsafe { took(messages.wrapping_add(at).cast(), 0) };
    }
}

/// A message has come, if `done` is no error: who sent a handle with it may have kept its own.
///
/// # Safety
/// As for `recvmsg`, which has answered `done`.
pub(crate) unsafe fn took(message: *const msghdr, done: i64) {
    if done < 0 || !state::on() {
        return;
    }
    let _errno = Errno::keep();
    // SAFETY: the caller's promise: the kernel has just filled it.
    let Some((control, len)) = (unsafe { beside(message) }) else { return };
    let mut each = |handle| {
        // SAFETY: used for calls that fail if it is no descriptor.
        unsafe { files::borrow(handle) }.into_iter().for_each(fork::share_position);
    };
    // SAFETY: as above, and so says how much there is.
    unsafe { handles(control, len, &mut each) };
}

/// Tells of the handles that messages bear.
///
/// # Safety
/// As for `sendmmsg`.
pub(crate) unsafe fn tell_all(socket: c_int, messages: *const mmsghdr, count: u32) {
    // The kernel sends no more at a time.
    for at in 0..count.min(1024) as usize {
        // SAFETY: the caller's promise.
        unsafe { tell(socket, messages.wrapping_add(at).cast()) };
    }
}

/// Tells of the handles that a message bears.
///
/// # Safety
/// As for `sendmsg`.
pub(crate) unsafe fn tell(socket: c_int, message: *const msghdr) {
    let unguarded = || state::ledger().files().next().is_none();
    // What is guarded later may have been sent before, and its position is shared then.
    if message.is_null() || !state::on() || fork::has_shared_all() && unguarded() {
        return;
    }
    let _errno = Errno::keep();
    // SAFETY: the caller's promise; what cannot be read is the kernel's to refuse.
    let Some((control, len)) = (unsafe { beside(message) }) else { return };
    // SAFETY: as above.
    unsafe { handles(control, len, &mut |handle| hand(socket, handle)) };
}

/// What lies beside the bytes of a message, if something does.
///
/// # Safety
/// If anything can be read there, it is a message.
unsafe fn beside(message: *const msghdr) -> Option<(*const u8, usize)> {
    // SAFETY: the caller's promise.
    let message = unsafe { copied(message) }?;
    let (control, len) = (message.msg_control.cast::<u8>().cast_const(), message.msg_controllen);
    (!control.is_null() && len >= size_of::<libc::cmsghdr>()).then_some((control, len))
}

/// Parts of a message beside its bytes, more than the kernel takes.
const MOST: usize = 4096;

/// Calls `each` for the handles there. Programs put it where they like, on odd addresses, too.
///
/// # Safety
/// If anything can be read there, these are `len` bytes of such parts.
unsafe fn handles(control: *const u8, len: usize, each: &mut dyn FnMut(c_int)) {
    const HEAD: usize = size_of::<libc::cmsghdr>();
    let mut at = 0_usize;
    for _ in 0..MOST {
        if at.checked_add(HEAD).is_none_or(|end| end > len) {
            return;
        }
        // SAFETY: the caller's promise; as for the message itself.
        let Some(part) = (unsafe { copied(control.wrapping_add(at).cast::<libc::cmsghdr>()) })
        else {
            return;
        };
        let bytes = part.cmsg_len;
        if bytes < HEAD || bytes > len - at {
            return;
        }
        if part.cmsg_level == libc::SOL_SOCKET && part.cmsg_type == libc::SCM_RIGHTS {
            for handle in 0..((bytes - HEAD) / size_of::<c_int>()).min(MOST) {
                let place = control.wrapping_add(at + HEAD).cast::<c_int>().wrapping_add(handle);
                // SAFETY: as above.
                let Some(handle) = (unsafe { copied(place) }) else { return };
                each(handle);
            }
        }
        at += bytes.next_multiple_of(size_of::<usize>());
    }
    state::ledger().lose();
}

/// A descriptor is about to be sent.
fn hand(socket: c_int, handle: c_int) {
    // SAFETY: used for calls that fail if it is no descriptor.
    let Some(fd) = unsafe { files::borrow(handle) }.filter(|fd| files::is_writable(*fd)) else {
        return;
    };
    fork::share_position(fd);
    if let Some(file) = files::of(handle) {
        // SAFETY: as above.
        let socket: Option<BorrowedFd<'_>> = unsafe { files::borrow(socket) };
        state::tell(&Request::Handed { space: state::space(), file: file.number }, socket);
    }
}

unsafe fn open(real: Popen, command: *const c_char, mode: *const c_char) -> *mut FILE {
    if !state::on() {
        // SAFETY: the caller's promise.
        return unsafe { real(command, mode) };
    }
    let start = Start::begin(false);
    let mut stream = core::ptr::null_mut();
    // SAFETY: the caller's promise.
    unsafe { exec::with_own_environment(|| stream = real(command, mode)) };
    start.end(if stream.is_null() { Spawned::Nobody } else { Spawned::Somebody });
    stream
}

unsafe extern "C-unwind" {
    /// A thread may be cancelled here, which unwinds it.
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
}

/// Signals that nobody but the command hears while it runs, and what they did before.
static HEARD: Cell<[libc::sigaction; 2]> = Cell::new();
const DEAF: [c_int; 2] = [libc::SIGINT, libc::SIGQUIT];
/// Commands that run. Under the lock.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// A command that runs. Dropped before it has ended, it is killed: this thread was cancelled.
struct Running {
    process: c_int,
    before: libc::sigset_t,
}

fn none() -> libc::sigset_t {
    let mut none = MaybeUninit::zeroed();
    // SAFETY: writes the set.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        none.assume_init()
    }
}

impl Running {
    fn begin() -> Self {
        {
            let _quiet = Quiet::take();
            if RUNNING.fetch_add(1, Ordering::Relaxed) == 0 {
                let deaf = DEAF.map(|signal| {
                    // SAFETY: all zeros is a valid value; the signal is ignored from now on, and
                    // what it did before is written.
                    unsafe {
                        let mut ignored: libc::sigaction = core::mem::zeroed();
                        let mut before: libc::sigaction = core::mem::zeroed();
                        ignored.sa_sigaction = libc::SIG_IGN;
                        libc::sigaction(signal, &raw const ignored, &raw mut before);
                        before
                    }
                });
                // SAFETY: under the lock nobody else writes it, and nobody reads it without.
                unsafe { HEARD.set(deaf) };
            }
        }
        let (mut child, mut before) = (none(), none());
        // SAFETY: sets of signals that live across the calls.
        unsafe {
            libc::sigaddset(&raw mut child, libc::SIGCHLD);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const child, &raw mut before);
        }
        Self { process: 0, before }
    }

    /// Starts the command; a number as `errno` has it.
    unsafe fn start(&mut self, command: *const c_char) -> c_int {
        let mut defaults = none();
        {
            let _quiet = Quiet::take();
            // SAFETY: set before anything ran, and this runs; under the lock.
            for (signal, heard) in DEAF.iter().zip(unsafe { HEARD.get() }) {
                if heard.sa_sigaction != libc::SIG_IGN {
                    // SAFETY: a set that lives.
                    unsafe { libc::sigaddset(&raw mut defaults, *signal) };
                }
            }
        }
        let words = [c"sh".as_ptr(), c"-c".as_ptr(), command, core::ptr::null()];
        let mut how = MaybeUninit::<libc::posix_spawnattr_t>::zeroed();
        let flags = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        // SAFETY: attributes that are made, used and unmade here; words that end with a null, of
        // texts; the environment of this program.
        unsafe {
            let how = how.as_mut_ptr();
            libc::posix_spawnattr_init(how);
            libc::posix_spawnattr_setsigmask(how, &raw const self.before);
            libc::posix_spawnattr_setsigdefault(how, &raw const defaults);
            libc::posix_spawnattr_setflags(how, flags as i16);
            let failed = exec::posix_spawn(
                &raw mut self.process,
                c"/bin/sh".as_ptr(),
                core::ptr::null(),
                how.cast::<c_void>().cast_const(),
                words.as_ptr(),
                exec::own_environment(),
            );
            libc::posix_spawnattr_destroy(how);
            failed
        }
    }

    /// Waits for its end; how it ended, or -1.
    fn wait(&mut self) -> c_int {
        loop {
            let mut status = 0;
            // SAFETY: waits for a child of this process.
            let done = unsafe { waitpid(self.process, &raw mut status, 0) };
            if done == self.process {
                self.process = 0;
                return status;
            }
            if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                self.process = 0;
                return -1;
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _errno = Errno::keep();
        if self.process > 0 {
            // SAFETY: a child of this process that was not waited for yet.
            unsafe { libc::kill(self.process, libc::SIGKILL) };
            self.wait();
        }
        let quiet = Quiet::take();
        if RUNNING.fetch_sub(1, Ordering::Relaxed) == 1 {
            // SAFETY: set by the first that ran; under the lock.
            for (signal, heard) in DEAF.iter().zip(unsafe { HEARD.get() }) {
                // SAFETY: what the signal did before.
                unsafe { libc::sigaction(*signal, heard, core::ptr::null_mut()) };
            }
        }
        drop(quiet);
        state::unblock(&self.before);
    }
}

/// A command could not be executed, as a shell says it.
const NOT_FOUND: c_int = 127 << 8;

unsafe fn run(real: System, command: *const c_char) -> c_int {
    if command.is_null() || !state::on() {
        // SAFETY: the caller's promise.
        return unsafe { real(command) };
    }
    let mut running = Running::begin();
    // SAFETY: the caller's promise.
    let failed = unsafe { running.start(command) };
    let status = match failed {
        0 => running.wait(),
        _ => NOT_FOUND,
    };
    drop(running);
    if failed != 0 {
        Errno::set(failed);
    }
    status
}
