//! More of what the programs do: handing handles to others, which are gone before anybody looks.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::ways::{Beside, with_message};
use super::{Map, PAGE, PAGES, beside, mark, wait_for};

/// What the program of `bare.rs` inherits.
const HANDLE: c_int = 60;

pub(super) fn tell(story: &str, file: &File, path: &Path) -> bool {
    match story {
        "hands on" => hands_on(file, path),
        "has inherited" => store_inherited(),
        "no room" => runs_in("ulimit -n 3; exec $BARE", file, path),
        "little room" => runs_in("ulimit -n 4; exec $SAME", file, path),
        "runs others" => runs_others(file),
        "leaves orphans" => leaves_orphans(path),
        "leaves an orphan" => {
            drop(Command::new(beside(path, "bare")).arg(beside(path, "other")).spawn().unwrap());
        }
        "sends" | "sends many" | "sends by number" => sends(story, file, path),
        "hears" => hears(path),
        "cancels" => cancels(file),
        "sends to its own" => sends_to_its_own(file),
        "shares a position" | "lends a position" | "sends a position" => {
            shares_a_position(story, file, path);
        }
        "writes what it is sent" => {
            leave_open(&received(SOCKET));
            writes_where_it_stood(path);
        }
        "writes where it stood" => writes_where_it_stood(path),
        "moves it back" => moves_it_back(path),
        _ => match story.strip_prefix("bare child ") {
            Some(way) => bare_child(way, file, path),
            None => return false,
        },
    }
    true
}

fn nap() {
    std::thread::sleep(Duration::from_millis(400));
}

/// Its handle stays open in children that become other programs.
fn leave_open(file: &File) {
    // SAFETY: a number that nobody else here uses.
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), HANDLE) }, HANDLE);
}

/// The same program again, or one that knows nobody, which may have few handles more.
fn runs_in(command: &str, file: &File, path: &Path) {
    leave_open(file);
    let (me, bare) = (std::env::current_exe().unwrap(), beside(path, "bare"));
    let same = format!("{} --story 'has inherited' {}", me.display(), path.display());
    let command = command.replace("$SAME", &same).replace("$BARE", bare.to_str().unwrap());
    // SAFETY: a text that ends with a zero. What became of it shows in the file.
    unsafe { libc::system(CString::new(command).unwrap().as_ptr()) };
    nap();
}

fn store_inherited() {
    // SAFETY: a descriptor that was inherited and belongs to nobody else here.
    let file = unsafe { File::from_raw_fd(HANDLE) };
    Map::new(&file, 0, PAGES).store(250 * PAGE, b"inherited");
}

/// Starts programs that load nothing, by others that are gone at once.
fn leaves_orphans(path: &Path) {
    for _ in 0..5 {
        let mut other = Command::new(std::env::current_exe().unwrap());
        let other = other.args(["--story", "leaves an orphan"]).arg(path).status();
        assert!(other.unwrap().success());
    }
    nap();
    mark(path, "ready");
    wait_for(path, "go");
}

extern "C" fn replaced(words: *mut c_void) -> c_int {
    let words = words.cast::<*const c_char>().cast_const();
    // SAFETY: words that end with a null, of texts.
    unsafe {
        libc::execv(*words, words);
        libc::_exit(127)
    }
}

/// A child that inherits the handle becomes a program that knows nobody. It is gone at once, and
/// its parent keeps the handle.
fn bare_child(way: &str, file: &File, path: &Path) {
    leave_open(file);
    let map = Map::new(file, 0, PAGES);
    map.store(0, b"its own");
    let program = CString::new(beside(path, "bare").as_os_str().as_bytes()).unwrap();
    let words = [program.as_ptr(), core::ptr::null()];
    let mut child = 0;
    let mut status = 0;
    // SAFETY: words that end with a null, of texts; stacks that nobody else uses; children that
    // become other programs, or end.
    unsafe {
        match way {
            "fork" => {
                child = libc::fork();
                if child == 0 {
                    replaced(words.as_ptr().cast_mut().cast());
                }
            }
            "vfork" => {
                let mut stack = vec![0_u8; 256 << 10];
                let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
                let top = stack.as_mut_ptr().add(stack.len() - 64);
                let top = top.sub(top as usize % 16).cast();
                child = libc::clone(replaced, top, flags, words.as_ptr().cast_mut().cast());
            }
            "spawn" => {
                let (name, list) = (program.as_ptr(), words.as_ptr().cast());
                let none = words.as_ptr().add(1).cast();
                let (a, b) = (core::ptr::null(), core::ptr::null());
                assert_eq!(libc::posix_spawn(&raw mut child, name, a, b, list, none), 0);
            }
            "system" => status = libc::system(program.as_ptr()),
            "lost system" => {
                libc::clearenv();
                status = libc::system(program.as_ptr());
            }
            "popen" => {
                let stream = libc::popen(program.as_ptr(), c"r".as_ptr());
                status = libc::pclose(stream);
            }
            _ => panic!("{way}"),
        }
        if child != 0 {
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        }
    }
    assert_eq!(status, 0);
    nap();
}

/// The same program again, found by nothing that its environment says.
fn hands_on(file: &File, path: &Path) {
    leave_open(file);
    let me = std::env::current_exe().unwrap();
    let command = format!("{} --story 'has inherited' {}", me.display(), path.display());
    let command = CString::new(command).unwrap();
    // SAFETY: no other thread looks at the environment; texts that end with zeros.
    unsafe {
        libc::clearenv();
        assert_eq!(libc::system(command.as_ptr()), 0);
        let stream = libc::popen(command.as_ptr(), c"r".as_ptr());
        assert_eq!(libc::pclose(stream), 0);
    }
    nap();
}

/// Ordinary commands, which inherit the handle and leave it alone.
fn runs_others(file: &File) {
    // Who runs the tests in the background may have it ignored.
    let interrupted = action_of(libc::SIGINT);
    leave_open(file);
    let map = Map::new(file, 0, PAGES);
    let run = |command: &CStr| {
        // SAFETY: a text that ends with a zero.
        unsafe { libc::system(command.as_ptr()) }
    };
    for round in 0..4 {
        map.store(round * 30 * PAGE, b"stored");
        assert_eq!(run(c"true | cat | (cat; exit 3)"), 3 << 8);
        assert_eq!(run(c"nothing-of-that-name 2>/dev/null"), 127 << 8);
        assert_eq!(run(c"kill -TERM $$"), libc::SIGTERM);
        // SAFETY: a stream that is closed once.
        unsafe {
            let stream = libc::popen(c"echo hello".as_ptr(), c"r".as_ptr());
            let mut room = [0_u8; 5];
            assert_eq!(libc::fread(room.as_mut_ptr().cast(), 1, 5, stream), 5);
            assert_eq!(&room, b"hello");
            assert_eq!(libc::pclose(stream), 0);
        }
        assert!(std::process::Command::new("true").status().unwrap().success());
        assert!(std::process::Command::new("/nothing/of that name").status().is_err());
    }
    assert_eq!(action_of(libc::SIGINT), interrupted, "as it was before");
    nap();
}

/// What a signal does.
fn action_of(signal: c_int) -> libc::sighandler_t {
    // SAFETY: only asks; what is asked for has the room that it takes.
    unsafe {
        let mut now: libc::sigaction = core::mem::zeroed();
        assert_eq!(libc::sigaction(signal, core::ptr::null(), &raw mut now), 0);
        now.sa_sigaction
    }
}

fn message_of(file: &File) -> Beside {
    let head =
        libc::cmsghdr { cmsg_len: 20, cmsg_level: libc::SOL_SOCKET, cmsg_type: libc::SCM_RIGHTS };
    Beside { head, fd: file.as_raw_fd(), unused: 0 }
}

/// Sends a handle through a socket, and keeps none.
pub(super) fn send(to: &std::os::unix::net::UnixStream, file: File) {
    let fd = to.as_raw_fd();
    // SAFETY: a message that lives across the call.
    with_message(&mut message_of(&file), |message| unsafe { libc::sendmsg(fd, message, 0) });
}

pub(super) fn received(from: c_int) -> File {
    let head = libc::cmsghdr { cmsg_len: 0, cmsg_level: 0, cmsg_type: 0 };
    let mut beside = Beside { head, fd: -1, unused: 0 };
    // SAFETY: a message that lives across the call; a descriptor that came along.
    unsafe {
        with_message(&mut beside, |message| libc::recvmsg(from, message, 0));
        File::from_raw_fd(beside.fd)
    }
}

/// Sends its handle to a stranger, and keeps its own.
fn sends(story: &str, file: &File, path: &Path) {
    let to = std::os::unix::net::UnixStream::connect(beside(path, "socket")).unwrap();
    let fd = to.as_raw_fd();
    // SAFETY: messages that live across the calls.
    with_message(&mut message_of(file), |message| unsafe {
        match story {
            "sends" => libc::sendmsg(fd, message, 0),
            "sends many" => {
                let mut many = libc::mmsghdr { msg_hdr: message.read(), msg_len: 0 };
                libc::sendmmsg(fd, &raw mut many, 1, 0) as isize
            }
            _ => libc::syscall(libc::SYS_sendmsg, fd, message, 0) as isize,
        }
    });
    wait_for(path, "stored");
    nap();
}

/// The stranger: stores and is done.
pub(super) fn takes(path: &Path) {
    let server = std::os::unix::net::UnixListener::bind(beside(path, "socket")).unwrap();
    mark(path, "listens");
    let (from, _) = server.accept().unwrap();
    let file = received(from.as_raw_fd());
    let map = Map::new(&file, 250, 1);
    map.store(0, b"unseen!!");
    // SAFETY: the mapping, which is not used any more.
    assert_eq!(unsafe { libc::munmap(map.place(0), PAGE) }, 0);
    drop(file);
    mark(path, "stored");
}

/// Waits for two signals.
fn hears(path: &Path) {
    static HEARD: AtomicU32 = AtomicU32::new(0);
    extern "C" fn heard(signal: c_int) {
        HEARD.fetch_or(1 << signal, Ordering::SeqCst);
    }
    let both = [libc::SIGUSR1, libc::SIGUSR2];
    // SAFETY: a handler that stores to memory.
    both.iter().for_each(|signal| unsafe {
        libc::signal(*signal, heard as *const () as usize);
    });
    mark(path, "ready");
    let all = both.iter().fold(0, |all, signal| all | 1 << signal);
    for _ in 0..2000 {
        if HEARD.load(Ordering::SeqCst) == all {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("heard {:x} of {all:x}", HEARD.load(Ordering::SeqCst));
}

/// A child that is guarded as well gets a handle, and reads of others' are sent.
fn sends_to_its_own(file: &File) {
    let (to, from) = std::os::unix::net::UnixStream::pair().unwrap();
    // SAFETY: the child stores and ends; a message that lives across the call.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            Map::new(&received(from.as_raw_fd()), 0, PAGES).store(70 * PAGE, b"received");
            libc::_exit(0);
        }
        let fd = to.as_raw_fd();
        with_message(&mut message_of(file), |message| libc::sendmsg(fd, message, 0));
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
    nap();
}

/// Where a program finds the socket by which it is sent a handle.
const SOCKET: c_int = 61;

/// Two programs that have one descriptor, and with it one position: by inheriting it, one from the
/// other, or through a socket.
fn shares_a_position(way: &str, file: &File, path: &Path) {
    let me = std::env::current_exe().unwrap();
    let start = |story: &str| Command::new(&me).args(["--story", story]).arg(path).spawn().unwrap();
    let mut writes = None;
    if way == "sends a position" {
        let (to, from) = std::os::unix::net::UnixStream::pair().unwrap();
        // SAFETY: a number that nobody else here uses; a message that lives across the call.
        unsafe {
            assert_eq!(libc::dup2(from.as_raw_fd(), SOCKET), SOCKET);
            writes = Some(start("writes what it is sent"));
            let fd = to.as_raw_fd();
            with_message(&mut message_of(file), |message| libc::sendmsg(fd, message, 0));
        }
        // Nobody else inherits the handle before.
        wait_for(path, "stands");
    }
    leave_open(file);
    if way == "shares a position" {
        writes = Some(start("writes where it stood"));
    }
    let mut moves = start("moves it back");
    let code = match &mut writes {
        Some(writes) => writes.wait().unwrap().code(),
        None => {
            writes_where_it_stood(path);
            Some(0)
        }
    };
    if code == Some(77) {
        // It may not filter its own calls, and the other one waits for it.
        moves.kill().unwrap();
        std::process::exit(77);
    }
    assert!(code == Some(0) && moves.wait().unwrap().success());
}

/// The file of the one that writes, and the function by which it does.
static WRITES: OnceLock<(PathBuf, Writev)> = OnceLock::new();
type Writev = unsafe extern "C" fn(c_int, *const libc::iovec, c_int) -> isize;

/// Whoever stands before `write` has looked where the position is. Only when the other one has
/// moved that is the write done, and it is over only when the other one has written, too.
extern "C" fn amid(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let (path, writev) = WRITES.get().unwrap();
    mark(path, "stands");
    wait_for(path, "moved");
    let mut page = [b'A'; PAGE];
    let part = libc::iovec { iov_base: page.as_mut_ptr().cast(), iov_len: PAGE };
    // SAFETY: the function has these arguments, which live across the call; the call that was
    // kept back answers what is put into its context.
    unsafe {
        let done = writev(HANDLE, &raw const part, 1);
        mark(path, "written");
        wait_for(path, "over");
        let context = context.cast::<libc::ucontext_t>();
        (*context).uc_mcontext.gregs[libc::REG_RAX as usize] = done as i64;
    }
}

/// Has a signal in place of each write to the handle.
fn keep_writes_back() -> bool {
    let step = |code: u16, jt: u8, jf: u8, k: u32| libc::sock_filter { code, jt, jf, k };
    let steps = [
        step(0x20, 0, 0, 0),
        step(0x15, 0, 3, libc::SYS_write as u32),
        step(0x20, 0, 0, 16),
        step(0x15, 0, 1, HANDLE as u32),
        step(0x06, 0, 0, libc::SECCOMP_RET_TRAP),
        step(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_ptr().cast_mut() };
    // SAFETY: a handler of that signature; flags of this thread; the list lives across the call,
    // and is as long as it says.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = amid as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSYS, &raw const action, core::ptr::null_mut()) == 0
            && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    }
}

fn writes_where_it_stood(path: &Path) {
    // SAFETY: a function of that name has these arguments; a buffer that lives across the call.
    unsafe {
        let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW);
        let found = libc::dlvsym(library, c"writev".as_ptr(), c"GLIBC_2.2.5".as_ptr());
        if found.is_null() || !keep_writes_back() {
            mark(path, "stands");
            std::process::exit(77);
        }
        let writev = core::mem::transmute::<*mut c_void, Writev>(found);
        WRITES.set((path.to_owned(), writev)).unwrap();
        let at = 2 * PAGE as i64;
        assert_eq!(libc::lseek(HANDLE, at, libc::SEEK_SET), at);
        assert_eq!(libc::write(HANDLE, [b'A'; PAGE].as_ptr().cast(), PAGE), PAGE as isize);
    }
}

fn moves_it_back(path: &Path) {
    wait_for(path, "stands");
    let bytes = [b'B'; 4 * PAGE];
    // SAFETY: a descriptor that was inherited, and a buffer that lives across the call.
    unsafe {
        assert_eq!(libc::lseek(HANDLE, 0, libc::SEEK_SET), 0);
        mark(path, "moved");
        wait_for(path, "written");
        assert_eq!(libc::write(HANDLE, bytes.as_ptr().cast(), bytes.len()), bytes.len() as isize);
    }
    mark(path, "over");
}

unsafe extern "C-unwind" {
    fn system(command: *const c_char) -> c_int;
    fn mmap(
        at: *mut c_void,
        len: usize,
        rights: c_int,
        flags: c_int,
        fd: c_int,
        from: i64,
    ) -> *mut c_void;
    fn pthread_testcancel();
}

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
}

type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// Runs a command that takes longer than this thread has.
extern "C-unwind" fn commands(_: *mut c_void) -> *mut c_void {
    // SAFETY: a text that ends with a zero.
    unsafe { system(c"exec sleep 100".as_ptr()) };
    core::ptr::null_mut()
}

/// Maps a file, which is no place to be cancelled at, once somebody has asked for that.
extern "C-unwind" fn maps(fd: *mut c_void) -> *mut c_void {
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: asks for the end of this thread; a new mapping, and stores inside it.
    unsafe {
        pthread_cancel(libc::pthread_self());
        let at = mmap(core::ptr::null_mut(), PAGE, rights, flags, fd as usize as c_int, 0);
        at.cast::<u8>().add(9).write(7);
        pthread_testcancel();
    }
    core::ptr::null_mut()
}

/// Threads that are cancelled in a call, or right after it, are gone; the program is not.
fn cancels(file: &File) {
    let file = file.as_raw_fd() as usize as *mut c_void;
    for start in [commands as Start, maps] {
        // SAFETY: a function of that signature but for unwinding, which nothing on its way minds.
        let start =
            unsafe { core::mem::transmute::<Start, extern "C" fn(*mut c_void) -> _>(start) };
        let mut thread = 0;
        let mut found = core::ptr::null_mut();
        // SAFETY: a thread that is waited for, with a descriptor that lives as long.
        unsafe {
            assert_eq!(libc::pthread_create(&raw mut thread, core::ptr::null(), start, file), 0);
            nap();
            pthread_cancel(thread);
            assert_eq!(libc::pthread_join(thread, &raw mut found), 0);
        }
        // PTHREAD_CANCELED
        assert_eq!(found as isize, -1);
    }
    // SAFETY: looks for a child that is left.
    assert_eq!(unsafe { libc::waitpid(-1, core::ptr::null_mut(), libc::WNOHANG) }, -1);
}
