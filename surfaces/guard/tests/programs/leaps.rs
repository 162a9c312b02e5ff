//! More of what the programs do: calls that they never come back from, and calls that they give up.

use std::ffi::{CString, c_int};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use super::{PAGE, PAGES};

pub(super) fn tell(story: &str, file: &File, path: &Path) -> bool {
    match story {
        "goes unseen after a jump" => {
            leaves_a_write(file);
            super::ways::goes_unseen(file);
        }
        "comes back to a write" => comes_back(file),
        "gives up its calls" => gives_up(file, Way::Library),
        "gives up its calls by number" => gives_up(file, Way::Number),
        "gives up its calls unseen" => gives_up(file, Way::Around),
        "has a child that gives up its calls" => child_gives_up(file),
        "cuts off what it reads" => cuts_off(file, path),
        _ => return false,
    }
    true
}

// Calls a function, and goes on behind that once somebody jumps there.
core::arch::global_asm!(
    ".pushsection .bss",
    ".balign 8",
    "hf_leap_place: .quad 0",
    ".popsection",
    ".pushsection .text.hf_leap, \"ax\", @progbits",
    ".globl hf_leap_over",
    "hf_leap_over:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 8",
    "mov [rip + hf_leap_place], rsp",
    "call rdi",
    "xor eax, eax",
    "2:",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".globl hf_leap",
    "hf_leap:",
    "mov rsp, [rip + hf_leap_place]",
    "mov eax, 1",
    "jmp 2b",
    ".popsection",
);

unsafe extern "C" {
    /// Answers 0 if the function came back, 1 if somebody jumped out of it.
    fn hf_leap_over(function: extern "C" fn()) -> c_int;
    fn hf_leap() -> !;
}

static FROM: AtomicI32 = AtomicI32::new(-1);
static TO: AtomicI32 = AtomicI32::new(-1);
static FEED: AtomicI32 = AtomicI32::new(-1);

/// Writes what comes out of a pipe that nobody fills.
extern "C" fn waits() {
    // Deeper than what is written later.
    let deep = core::hint::black_box([0_u8; 32 << 10]);
    let mut to = (10 * PAGE + 17) as i64;
    let (from, file) = (FROM.load(Ordering::Relaxed), TO.load(Ordering::Relaxed));
    // SAFETY: an offset that lives across the call.
    unsafe { libc::splice(from, core::ptr::null_mut(), file, &raw mut to, PAGE, 0) };
    core::hint::black_box(&deep);
}

extern "C" fn jumps(_: c_int) {
    // SAFETY: `hf_leap_over` has not returned; nothing of what is jumped over is to be dropped.
    unsafe { hf_leap() }
}

/// Has a handler called in a while. There is a pipe to write from, whose other end is `FEED`.
fn soon(file: &File, handler: extern "C" fn(c_int), flags: c_int) {
    // SAFETY: descriptors that live on; an action with a handler of that signature; a timer.
    unsafe {
        let mut pipe = [0; 2];
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        FROM.store(pipe[0], Ordering::Relaxed);
        FEED.store(pipe[1], Ordering::Relaxed);
        TO.store(file.as_raw_fd(), Ordering::Relaxed);
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGALRM, &raw const action, core::ptr::null_mut()), 0);
        let never = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let soon = libc::timeval { tv_sec: 0, tv_usec: 300_000 };
        let once = libc::itimerval { it_interval: never, it_value: soon };
        libc::setitimer(libc::ITIMER_REAL, &raw const once, core::ptr::null_mut());
    }
}

fn leaves_a_write(file: &File) {
    // It does not come back, so it may be called again before it has.
    soon(file, jumps, libc::SA_NODEFER);
    // SAFETY: nothing of what is jumped over is to be dropped.
    assert_eq!(unsafe { hf_leap_over(waits) }, 1, "nobody jumped");
}

/// Writes, and lets the write go on that was interrupted, once that was looked at.
extern "C" fn writes(_: c_int) {
    let (file, feed) = (TO.load(Ordering::Relaxed), FEED.load(Ordering::Relaxed));
    // SAFETY: buffers that live across the calls.
    unsafe {
        assert_eq!(libc::pwrite(file, [3_u8; 50].as_ptr().cast(), 50, 30 * PAGE as i64), 50);
        libc::usleep(200_000);
        assert_eq!(libc::write(feed, [4_u8; PAGE].as_ptr().cast(), PAGE), PAGE as isize);
    }
}

/// A handler writes while a write is under way, and comes back to it: on the stack of the thread,
/// and on that for signals.
fn comes_back(file: &File) {
    for stack in [0, libc::SA_ONSTACK] {
        soon(file, writes, libc::SA_RESTART | stack);
        waits();
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// How a program asks to be left a few calls only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Library,
    Number,
    /// So that whoever stands before the function does not see it.
    Around,
}

/// Reads, writes and ends: any other call would end it at once.
fn gives_up(file: &File, way: Way) {
    type Prctl = unsafe extern "C" fn(c_int, usize, usize, usize, usize) -> c_int;
    let strict = libc::SECCOMP_MODE_STRICT;
    let mut pipe = [0; 2];
    let mut byte = 0_u8;
    // SAFETY: descriptors, and buffers that live across the calls.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let at = (250 * PAGE) as i64;
        assert_eq!(libc::lseek(file.as_raw_fd(), at, libc::SEEK_SET), at);
        let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW);
        let found = libc::dlvsym(library, c"prctl".as_ptr(), c"GLIBC_2.2.5".as_ptr());
        let done = match way {
            Way::Library => libc::prctl(libc::PR_SET_SECCOMP, strict),
            Way::Number => libc::syscall(libc::SYS_seccomp, 0, 0, 0) as c_int,
            Way::Around if found.is_null() => -1,
            Way::Around => {
                let prctl = core::mem::transmute::<*mut libc::c_void, Prctl>(found);
                prctl(libc::PR_SET_SECCOMP, strict as usize, 0, 0, 0)
            }
        };
        if done != 0 {
            std::process::exit(77);
        }
        let wrote = libc::write(pipe[1], b"x".as_ptr().cast(), 1);
        let read = libc::read(pipe[0], (&raw mut byte).cast(), 1);
        let stored = libc::write(file.as_raw_fd(), b"strict".as_ptr().cast(), 6);
        let good = (wrote, read, stored, byte) == (1, 1, 6, b'x');
        libc::syscall(libc::SYS_exit, i32::from(!good));
    }
}

extern "C" fn gives_up_alone(pipe: *mut libc::c_void) -> c_int {
    // SAFETY: a descriptor, and a text that lives; nothing comes back.
    unsafe {
        if libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) != 0 {
            libc::syscall(libc::SYS_exit, 77);
        }
        let wrote = libc::write(pipe as usize as c_int, b"x".as_ptr().cast(), 1);
        libc::syscall(libc::SYS_exit, i32::from(wrote != 1));
    }
    1
}

/// A child in this program's memory gives up its calls, as `vfork` has it; this program does not.
fn child_gives_up(file: &File) {
    let mut stack = vec![0_u8; 64 << 10];
    let mut pipe = [0; 2];
    for _ in 0..2 {
        // SAFETY: the child runs on a stack of its own while this program stands still.
        let status = unsafe {
            assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            let top = stack.as_mut_ptr_range().end.map_addr(|at| at & !15).cast();
            let pipe = pipe[1] as usize as *mut libc::c_void;
            let child = libc::clone(gives_up_alone, top, flags, pipe);
            let mut status = 0;
            assert_eq!((child > 0, libc::waitpid(child, &raw mut status, 0)), (true, child));
            status
        };
        if status == 77 << 8 {
            std::process::exit(77);
        }
        assert_eq!(status, 0, "it was ended");
    }
    file.write_all_at(b"announced", 250 * PAGE as u64).unwrap();
    let map = super::Map::new(file, 0, PAGES);
    map.store(251 * PAGE, b"told");
    std::thread::sleep(Duration::from_millis(400));
}

/// Opens a stream to read, and has it opened again so that the file is cut off.
fn cuts_off(file: &File, path: &Path) {
    let nap = || std::thread::sleep(Duration::from_millis(400));
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    let keep = std::fs::read(path).unwrap();
    file.write_all_at(b"announced", 20 * PAGE as u64).unwrap();
    nap();
    // SAFETY: a stream that is used while it is open.
    unsafe {
        let stream = libc::fopen(name.as_ptr(), c"r".as_ptr());
        assert!(!stream.is_null());
        let stream = libc::freopen(core::ptr::null(), c"w".as_ptr(), stream);
        assert!(!stream.is_null() && file.metadata().unwrap().len() == 0);
        nap();
        assert_eq!(libc::fclose(stream), 0);
    }
    file.write_all_at(&keep, 0).unwrap();
    file.write_all_at(b"announced", (PAGES - 300) as u64 * PAGE as u64).unwrap();
    nap();
}
