//! Ways around the other hooks that still lead through the C library: `syscall`, and functions that
//! write inside it.
//!
//! `syscall` is met in passing: only what concerns files is handled; everything else goes on as if
//! nobody had stood there, with the same stack, since it may start a thread or a process on it.
//! A child that is made without the functions for it is told as something that could not be told:
//! nobody sees what it stores. What a function of the library writes by itself is not announced, so
//! its file has a stream from then on, as long as the program runs.

use core::ffi::{c_char, c_int, c_long, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use holdfast_guard_wire::{MOST_FILES, Request};
use libc::{iovec, off_t};

use crate::files;
use crate::real::{Address, Errno, Real, copied, hooks};
use crate::{
    exec, fork, handing, lengths, maps, names, opens, reads, state, strict, syncs, writes,
};

type Dup = unsafe extern "C-unwind" fn(c_int) -> c_int;
type Dup2 = unsafe extern "C-unwind" fn(c_int, c_int) -> c_int;
type Dup3 = unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int;
type Fcntl = unsafe extern "C-unwind" fn(c_int, c_int, usize) -> c_int;
type Trace = unsafe extern "C-unwind" fn(*const *mut c_void, c_int, c_int);
type Ioctl = unsafe extern "C-unwind" fn(c_int, u64, *mut c_void) -> c_int;
type Remap = unsafe extern "C-unwind" fn(*mut c_void, usize, c_int, usize, c_int) -> c_int;

hooks! {
    dup(fd: c_int) -> c_int = duplicate;
    dup2(fd: c_int, to: c_int) -> c_int = duplicate_to;
    __dup2(fd: c_int, to: c_int) -> c_int = duplicate_to;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int = duplicate_with;
    fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = duplicate_above;
    fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int = duplicate_above;
    __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = duplicate_above;
    backtrace_symbols_fd(list: *const *mut c_void, len: c_int, fd: c_int) -> () = trace;
    ioctl(fd: c_int, request: u64, argument: *mut c_void) -> c_int = control;
    remap_file_pages(at: *mut c_void, len: usize, rights: c_int, page: usize, flags: c_int)
        -> c_int = shuffle;
}

/// The space for which a file was said to be written to by the library itself, and which of the
/// files of that number it was.
static FOREVER: [AtomicU64; MOST_FILES as usize] =
    [const { AtomicU64::new(0) }; MOST_FILES as usize];

/// From now on the file behind a descriptor, if it is guarded, has a stream: it counts as stored to
/// all over whenever it was changed.
pub(crate) fn forever(fd: c_int) {
    if !state::on() {
        return;
    }
    let _errno = Errno::keep();
    // SAFETY: used for calls that fail if it is no descriptor.
    let writable = unsafe { files::borrow(fd) }.is_some_and(files::is_writable);
    let Some(file) = files::of(fd).filter(|_| writable) else { return };
    let Some(told) = FOREVER.get(file.number as usize) else { return };
    let space = state::space();
    let this = key(space, file.turn);
    if told.swap(this, Ordering::AcqRel) != this {
        state::tell(&Request::Stream { space, file: file.number, begins: true }, None);
    }
}

/// Spaces and turns are counted from 1, one at a time.
fn key(space: u64, turn: u64) -> u64 {
    space << 32 | turn & u64::from(u32::MAX)
}

/// Standard streams, which the library writes to when it likes, that a program was started with.
pub(crate) fn inherited() {
    (0..3).for_each(forever);
}

/// The same for a child, whose parent was the space `from`.
pub(crate) fn handed_on(from: u64) {
    let space = state::space();
    for (file, told) in FOREVER.iter().enumerate() {
        let file = file as u32;
        // Of a number that is another file's by now, nothing is left to be told.
        let turn = state::ledger().turn(file);
        let (old, new) = (key(from, turn), key(space, turn));
        if told.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            state::tell(&Request::Stream { space, file, begins: true }, None);
        }
    }
}

/// A new descriptor: a standard stream is written to by the library.
fn new(fd: c_int) -> c_int {
    if (0..3).contains(&fd) {
        forever(fd);
    }
    fd
}

unsafe fn duplicate(real: Dup, fd: c_int) -> c_int {
    // SAFETY: the caller's promise.
    new(unsafe { real(fd) })
}

unsafe fn duplicate_to(real: Dup2, fd: c_int, to: c_int) -> c_int {
    // SAFETY: the caller's promise.
    new(unsafe { real(fd, to) })
}

unsafe fn duplicate_with(real: Dup3, fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    new(unsafe { real(fd, to, flags) })
}

/// Among other things, a new descriptor: the lowest from a number on.
unsafe fn duplicate_above(real: Fcntl, fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's promise.
    let done = unsafe { real(fd, command, argument) };
    if command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC { new(done) } else { done }
}

/// Writes a list of functions, each by calls of its own.
unsafe fn trace(real: Trace, list: *const *mut c_void, len: c_int, fd: c_int) {
    forever(fd);
    // SAFETY: the caller's promise.
    unsafe { real(list, len, fd) }
}

/// Requests that leave what is in a file as it is; any other may change it, and be it one that the
/// kernel has not learnt yet.
const HARMLESS: [u64; 13] = [
    // Is it a terminal, how much can be read, how large are its blocks, where do they lie.
    libc::TCGETS,
    0x802c_542a, // TCGETS2
    libc::TIOCGWINSZ,
    libc::FIONREAD,
    libc::FIOCLEX,
    libc::FIONCLEX,
    2,           // FIGETBSZ
    1,           // FIBMAP
    0xc020_660b, // FS_IOC_FIEMAP
    // Flags, attributes and versions of an inode, and of a file system.
    0x8008_6601, // FS_IOC_GETFLAGS
    0x8008_7601, // FS_IOC_GETVERSION
    0x801c_581f, // FS_IOC_FSGETXATTR
    0x8004_f50c, // F2FS_IOC_GET_FEATURES, which SQLite asks everywhere
];

/// Requests that change the content of a second file: the request without the length of its
/// argument, and where in that the other descriptor is.
const SECOND: [(u64, usize); 3] = [
    (MOVE, 4),        // EXT4_IOC_MOVE_EXT: the donor
    (0x4000_5881, 0), // XFS_IOC_EXCHANGE_RANGE: the other file
    (0xc000_586d, 8), // XFS_IOC_SWAPEXT: the file it is exchanged with
];
/// The donor gets blocks that hold anything, and shows what it had for as long as that is cached:
/// nobody could tell when it changed. So a guarded file is none.
const MOVE: u64 = 0xc000_660f;
const WITHOUT_LENGTH: u64 = 0xc000_ffff;

unsafe fn control(real: Ioctl, fd: c_int, request: u64, argument: *mut c_void) -> c_int {
    // The kernel takes 32 bits of it.
    let number = request & 0xffff_ffff;
    if HARMLESS.contains(&number) || !state::on() {
        // SAFETY: the caller's promise.
        return unsafe { real(fd, request, argument) };
    }
    let second = SECOND.iter().find(|(other, _)| *other == number & WITHOUT_LENGTH);
    let second = second.filter(|_| !argument.is_null());
    // SAFETY: the caller's promise: an argument as that request has it.
    let second = second
        .map(|(_, at)| unsafe { argument.cast::<u8>().add(*at).cast::<c_int>().read_unaligned() });
    let file = |fd| files::of(fd).map(|file| file.announce(0, u64::MAX));
    if number & WITHOUT_LENGTH == MOVE && second.and_then(files::of).is_some() {
        Errno::set(libc::EOPNOTSUPP);
        return -1;
    }
    let mut announced = [file(fd), second.and_then(file)];
    // SAFETY: the caller's promise.
    let done = unsafe { real(fd, request, argument) };
    // SAFETY: the calling thread's own variable.
    let unknown = done == -1 && unsafe { *libc::__errno_location() } == libc::ENOTTY;
    let _errno = Errno::keep();
    // Nothing if there is no such request, or all of what there is, not of what there could be.
    for (announced, fd) in announced.iter_mut().zip([Some(fd), second]) {
        if let (Some(announced), Some(now)) = (announced, fd.and_then(files::of)) {
            announced.narrow(0, if unknown { 0 } else { now.size });
        }
    }
    done
}

/// Pages of a mapping in another order cannot be followed.
unsafe fn shuffle(
    real: Remap,
    at: *mut c_void,
    len: usize,
    rights: c_int,
    page: usize,
    flags: c_int,
) -> c_int {
    if maps::is_behind(at, len) {
        Errno::set(libc::ENOSYS);
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe { real(at, len, rights, page, flags) }
}

/// Defines functions of unknown arguments: `prelude` is called with the first ones, and tells where
/// to go on, with all registers that can hold arguments as they were, and the same caller.
macro_rules! in_passing {
    ($($name:ident = $prelude:path;)*) => {$(
        #[doc = concat!("Stands before `", stringify!($name), "` of the C library.")]
        ///
        /// # Safety
        /// As the function of that name.
        #[allow(unreachable_pub, reason = "the dynamic linker reaches it")]
        #[allow(non_snake_case, reason = "named after functions")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            // Seven words keep the stack aligned for the call.
            core::arch::naked_asm!(
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                "sub rsp, 128",
                "movaps [rsp], xmm0", "movaps [rsp + 16], xmm1",
                "movaps [rsp + 32], xmm2", "movaps [rsp + 48], xmm3",
                "movaps [rsp + 64], xmm4", "movaps [rsp + 80], xmm5",
                "movaps [rsp + 96], xmm6", "movaps [rsp + 112], xmm7",
                "call {prelude}",
                "mov r11, rax",
                "movaps xmm0, [rsp]", "movaps xmm1, [rsp + 16]",
                "movaps xmm2, [rsp + 32]", "movaps xmm3, [rsp + 48]",
                "movaps xmm4, [rsp + 64]", "movaps xmm5, [rsp + 80]",
                "movaps xmm6, [rsp + 96]", "movaps xmm7, [rsp + 112]",
                "add rsp, 128",
                "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                "jmp r11",
                prelude = sym $prelude,
            )
        }
    )*};
}

pub(crate) use in_passing;

in_passing! {
    syscall = on_syscall;
    clone = on_clone;
    __clone = on_clone;
    _Fork = on_plain_fork;
    dprintf = on_dprintf;
    vdprintf = on_vdprintf;
    __dprintf_chk = on_dprintf_chk;
    __vdprintf_chk = on_vdprintf_chk;
}

/// The hook that stands before the function at that place.
pub(crate) fn any_before(real: Address) -> Option<Address> {
    let here: [(&Real, unsafe extern "C" fn()); 8] = [
        (&SYSCALL, syscall),
        (&CLONE, clone),
        (&CLONE, __clone),
        (&PLAIN_FORK, _Fork),
        (&DPRINTF, dprintf),
        (&VDPRINTF, vdprintf),
        (&DPRINTF_CHK, __dprintf_chk),
        (&VDPRINTF_CHK, __vdprintf_chk),
    ];
    let found = here.into_iter().find(|(function, _)| function.is_at(real));
    found.map(|(_, hook)| hook as *const () as Address).or_else(|| hook_of(real))
}

static SYSCALL: Real = Real::new(c"syscall");
static CLONE: Real = Real::new(c"clone");
static PLAIN_FORK: Real = Real::new(c"_Fork");

/// Where a function goes on that this system has not.
unsafe extern "C" fn missing() -> c_int {
    Errno::set(libc::ENOSYS);
    -1
}

pub(crate) fn go_on(real: &Real) -> Address {
    real.find().unwrap_or(missing as *mut c_void)
}

macro_rules! printing {
    ($($prelude:ident = $real:ident, $name:literal;)*) => {
        $(
            static $real: Real = Real::new($name);
            extern "C" fn $prelude(fd: c_int) -> Address {
                forever(fd);
                go_on(&$real)
            }
        )*

        /// Finds the real functions, those of the other hooks among them.
        pub(crate) fn find_all() {
            find();
            let _ = [SYSCALL.find(), CLONE.find(), PLAIN_FORK.find()];
            $(let _ = $real.find();)*
        }
    };
}

printing! {
    on_dprintf = DPRINTF, c"dprintf";
    on_vdprintf = VDPRINTF, c"vdprintf";
    on_dprintf_chk = DPRINTF_CHK, c"__dprintf_chk";
    on_vdprintf_chk = VDPRINTF_CHK, c"__vdprintf_chk";
}

/// Calls that may change a file, or show what changed.
const HANDLED: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    libc::SYS_splice,
    libc::SYS_ftruncate,
    libc::SYS_truncate,
    libc::SYS_fallocate,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_creat,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_process_madvise,
    libc::SYS_pkey_mprotect,
    libc::SYS_openat2,
    libc::SYS_ioctl,
    libc::SYS_remap_file_pages,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_lseek,
    libc::SYS_io_uring_setup,
    libc::SYS_io_setup,
    libc::SYS_fcntl,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_msync,
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_sync_file_range,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_prctl,
    libc::SYS_seccomp,
];

extern "C" fn on_syscall(number: c_long, first: u64) -> Address {
    if HANDLED.contains(&number) {
        return handled as *mut c_void;
    }
    match number {
        libc::SYS_fork => child_of_nobody(),
        libc::SYS_clone if first & SHARES == 0 => child_of_nobody(),
        libc::SYS_clone3 => {
            // SAFETY: the caller's promise: a structure that begins with the flags.
            let flags = unsafe { copied(first as *const u64) }.unwrap_or(0);
            if flags & SHARES == 0 {
                child_of_nobody();
            }
        }
        _ => {}
    }
    go_on(&SYSCALL)
}

/// The child has the same addresses, not copies of them.
const SHARES: u64 = libc::CLONE_VM as u64;

/// A child is about to be made that knows nothing of us: nobody sees what it stores.
fn child_of_nobody() {
    fork::share();
    if state::on() && maps::are_any() {
        state::ledger().lose();
    }
}

extern "C" fn on_clone(_entry: usize, _stack: usize, flags: c_int) -> Address {
    if flags & libc::CLONE_VM == 0 {
        child_of_nobody();
    }
    go_on(&CLONE)
}

extern "C" fn on_plain_fork() -> Address {
    child_of_nobody();
    go_on(&PLAIN_FORK)
}

type Syscall = unsafe extern "C-unwind" fn(c_long, i64, i64, i64, i64, i64, i64) -> c_long;

/// A system call that may change a file, by way of the hook of the function that does the same.
unsafe extern "C-unwind" fn handled(
    number: c_long,
    a: i64,
    b: i64,
    c: i64,
    d: i64,
    e: i64,
    f: i64,
) -> c_long {
    // SAFETY: the function of this name has these arguments, as words.
    let real = unsafe { core::mem::transmute::<Address, Syscall>(go_on(&SYSCALL)) };
    // SAFETY: the caller's promise.
    let with = |d| unsafe { real(number, a, b, c, d, e, f) };
    let call = || with(d);
    let short = || call() as isize;
    let int = || call() as c_int;
    let parts = b as *const iovec;
    // SAFETY: the caller's promise: arguments as the call of that number has them.
    unsafe {
        match number {
            libc::SYS_write => writes::raw(a as c_int, None, c as u64, short) as c_long,
            libc::SYS_pwrite64 => writes::raw(a as c_int, Some(d), c as u64, short) as c_long,
            libc::SYS_writev => writes::raw_parts(a as c_int, None, parts, c, short) as c_long,
            libc::SYS_pwritev => writes::raw_parts(a as c_int, Some(d), parts, c, short) as c_long,
            libc::SYS_pwritev2 => {
                writes::raw_flagged(a as c_int, d, parts, c, f as c_int, short) as c_long
            }
            libc::SYS_sendfile => writes::raw(a as c_int, None, d as u64, short) as c_long,
            libc::SYS_copy_file_range | libc::SYS_splice => {
                writes::raw_between(c as c_int, d as *const off_t, e as u64, short) as c_long
            }
            libc::SYS_ftruncate => lengths::raw(a as c_int, b, int).into(),
            libc::SYS_truncate => lengths::raw_by_name(a as *const c_char, b, int).into(),
            libc::SYS_fallocate => lengths::raw_allocate(a as c_int, b as c_int, c, d, int).into(),
            libc::SYS_open => {
                opens::around(libc::AT_FDCWD, a as *const c_char, b as c_int, int).into()
            }
            libc::SYS_openat => {
                opens::around(a as c_int, b as *const c_char, c as c_int, int).into()
            }
            libc::SYS_creat => {
                opens::around(libc::AT_FDCWD, a as *const c_char, opens::CREATE, int).into()
            }
            libc::SYS_openat2 => {
                // How to open begins with the flags.
                let flags = copied(c as *const u64).unwrap_or(0) as c_int;
                opens::around(a as c_int, b as *const c_char, flags, int).into()
            }
            libc::SYS_ioctl => ioctl(a as c_int, b as u64, c as *mut c_void).into(),
            libc::SYS_remap_file_pages => {
                let (rights, flags) = (c as c_int, e as c_int);
                remap_file_pages(a as *mut c_void, b as usize, rights, d as usize, flags).into()
            }
            libc::SYS_io_uring_setup | libc::SYS_io_setup => {
                let made = call();
                if made >= 0 && state::on() {
                    state::ledger().ring();
                }
                made
            }
            libc::SYS_lseek => writes::raw_seek(call),
            libc::SYS_dup | libc::SYS_dup2 | libc::SYS_dup3 => new(int()).into(),
            _ => reads_or_names(number, [a, b, c, d, e], call)
                .or_else(|| syncs::raw(number, [a, b, c, d]).map(|()| call()))
                .or_else(|| programs(real, number, [a, b, c, d, e]))
                .or_else(|| maps::raw(number, [a, b, c, d, e, f], with))
                .unwrap_or_else(call),
        }
    }
}

/// A call by which this program becomes another, or that may make a descriptor a standard stream or
/// hand one on; `None` if it is none of those.
///
/// # Safety
/// Arguments as the call of that number has them.
unsafe fn programs(real: Syscall, number: c_long, [a, b, c, d, e]: [i64; 5]) -> Option<c_long> {
    // SAFETY: the caller's promise.
    let call = |c, d| unsafe { real(number, a, b, c, d, e, 0) as c_int };
    // SAFETY: as above.
    let done = unsafe {
        match number {
            libc::SYS_execve => exec::raw(c, |list| call(list, d)),
            libc::SYS_execveat => exec::raw(d, |list| call(c, list)),
            libc::SYS_fcntl => fcntl(a as c_int, b as c_int, c as usize),
            libc::SYS_prctl | libc::SYS_seccomp => strict::raw(number, [a, b], || call(c, d)),
            libc::SYS_sendmsg => {
                handing::tell(a as c_int, b as *const libc::msghdr);
                return Some(real(number, a, b, c, d, e, 0));
            }
            libc::SYS_sendmmsg => {
                handing::tell_all(a as c_int, b as *const libc::mmsghdr, c as u32);
                return Some(real(number, a, b, c, d, e, 0));
            }
            libc::SYS_recvmsg => {
                let done = real(number, a, b, c, d, e, 0);
                handing::took(b as *const libc::msghdr, done);
                return Some(done);
            }
            libc::SYS_recvmmsg => {
                let done = real(number, a, b, c, d, e, 0);
                handing::took_all(b as *const libc::mmsghdr, done);
                return Some(done);
            }
            _ => return None,
        }
    };
    Some(done.into())
}

/// A read, or a call that gives a file a name; `None` if it is none of those.
///
/// # Safety
/// Arguments as the call of that number has them.
unsafe fn reads_or_names(
    number: c_long,
    [a, b, c, d, e]: [i64; 5],
    call: impl Fn() -> c_long,
) -> Option<c_long> {
    let short = || call() as isize;
    // SAFETY: the caller's promise.
    unsafe {
        Some(match number {
            libc::SYS_read | libc::SYS_pread64 => {
                reads::raw(a as c_int, b as *mut c_void, c as usize, short) as c_long
            }
            libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => {
                reads::raw_parts(a as c_int, b as *const iovec, c, short) as c_long
            }
            libc::SYS_rename
            | libc::SYS_renameat
            | libc::SYS_renameat2
            | libc::SYS_link
            | libc::SYS_linkat => names::raw(number, [a, b, c, d, e], || call() as c_int).into(),
            _ => return None,
        })
    }
}
