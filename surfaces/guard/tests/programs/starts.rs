//! More of what the programs do: starting others, and calls whose arguments make no sense.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::ptr::null;
use std::sync::OnceLock;
use std::time::Duration;

use super::{LEFT, Map, PAGE, PAGES, beside, mark, wait_for};

/// Programs that do not open their file as others do.
pub(super) fn tell_first(story: &str, path: &Path) -> bool {
    match story {
        "headless" => headless(path),
        "spawns" => spawns(path),
        "has left" => {
            // SAFETY: a descriptor that was inherited and belongs to nobody else here.
            let file = unsafe { File::from_raw_fd(LEFT) };
            file.write_all_at(&[7; 9000], 300).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            file.write_all_at(&[8; 300], 5 * PAGE as u64).unwrap();
        }
        "idles" | "stores and idles" => {
            let second = path.with_file_name("second.bin");
            let stores = story == "stores and idles";
            let file = stores.then(|| OpenOptions::new().read(true).write(true).open(&second));
            let map = file.map(|file| Map::new(&file.unwrap(), 0, PAGES));
            map.iter().for_each(|map| map.store(250 * PAGE, b"unseen!!"));
            mark(path, "idles");
            wait_for(path, "go");
        }
        "stores late" => {
            mark(path, "begun");
            wait_for(path, "resume");
            store_unseen(&OpenOptions::new().read(true).write(true).open(path).unwrap());
        }
        _ => return false,
    }
    true
}

pub(super) fn tell(story: &str, file: &File, path: &Path) -> bool {
    match story {
        "bare execl" | "bare execlp" | "bare execle" | "bare number" => bare(story, file, path),
        "listed" => listed(file, path, 0),
        "listed 1" => listed(file, path, 1),
        "listed 2" => listed(file, path, 2),
        "listed 3" => listed(file, path, 3),
        "cramped" => cramped(file, path),
        "beside one that is bare" => beside_bare(file, path),
        "beside one that is cramped" => beside_cramped(file, path, false),
        "beside one that is cramped and stores" => beside_cramped(file, path, true),
        "stores unseen" => store_unseen(file),
        "starts late" => starts_late(file, path),
        "goes headless" => goes_headless(file),
        "reopens" => reopens(file, path),
        "duplicates" => duplicates(file),
        "odd places" => odd_places(file, path),
        "borrowed stacks" => borrowed_stacks(file),
        "python" => python(),
        "goes elsewhere" => goes_elsewhere(path),
        "looks behind" => looks_behind(),
        "syncs in all ways" => syncs(file, path),
        _ => return false,
    }
    true
}

fn name(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Where the program of `bare.rs` stores as well.
fn store_unseen(file: &File) {
    Map::new(file, 0, PAGES).store(250 * PAGE, b"unseen!!");
}

/// The child becomes a program that knows nobody, by a call that calls another one inside.
fn bare(story: &str, file: &File, path: &Path) {
    let (program, path) = (name(&beside(path, "bare")), name(path));
    let (program, path) = (program.as_ptr(), path.as_ptr());
    let end = null::<c_char>();
    file.write_all_at(&[1; 100], 0).unwrap();
    // SAFETY: the child becomes another program; words that live, and end with a null.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            match story {
                "bare execl" => libc::execl(program, program, path, end),
                "bare execlp" => libc::execlp(program, program, path, end),
                "bare execle" => libc::execle(program, program, path, end, &raw const end),
                _ => {
                    let words = [program, path, end];
                    libc::syscall(libc::SYS_execve, program, &raw const words, &raw const end)
                        as c_int
                }
            };
            libc::_exit(127);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
    std::thread::sleep(Duration::from_millis(400));
}

/// Becomes itself again and again, by calls that list words, in an environment that names nobody.
fn listed(file: &File, path: &Path, round: usize) {
    let page = 10 + round * 40;
    file.write_all_at(&[round as u8 + 1; 300], (page * PAGE) as u64).unwrap();
    Map::new(file, 0, PAGES).store((page + 9) * PAGE, &[round as u8 + 1; 300]);
    let own = name(&std::env::current_exe().unwrap());
    let (own, path) = (own.as_ptr(), name(path));
    let next = CString::new(format!("listed {}", round + 1)).unwrap();
    let (path, role, next) = (path.as_ptr(), c"--story".as_ptr(), next.as_ptr());
    let end = null::<c_char>();
    let nothing = &raw const end;
    // SAFETY: words that live, and end with a null.
    unsafe {
        match round {
            0 => libc::execle(own, own, role, next, path, end, nothing),
            1 => {
                libc::clearenv();
                libc::execl(own, own, role, next, path, end)
            }
            2 => {
                let (sh, what, run) = (c"sh".as_ptr(), c"-c".as_ptr(), c"exec \"$@\"".as_ptr());
                libc::execlp(sh, sh, what, run, sh, own, role, next, path, end)
            }
            _ => {
                let words = [own, role, c"pwrite".as_ptr(), path, end];
                libc::syscall(libc::SYS_execve, own, &raw const words, nothing) as c_int
            }
        };
    }
    panic!("{}", std::io::Error::last_os_error());
}

/// Starts a program that may open one file at a time, which is too little to be guarded.
fn cramped(file: &File, path: &Path) {
    file.write_all_at(&[1; 100], 0).unwrap();
    let own = std::env::current_exe().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 4; exec \"$@\"", "sh"]).arg(own);
    assert!(shell.args(["--story", "stores unseen"]).arg(path).status().unwrap().success());
    std::thread::sleep(Duration::from_millis(400));
}

/// Has its file beside a program that could not be set up, and lives on; another file, which is
/// guarded, too, is stored to by that one.
fn beside_cramped(file: &File, path: &Path, stores: bool) {
    let (_, other) = second(path);
    file.write_all_at(&[1; 100], 0).unwrap();
    let own = std::env::current_exe().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 4; exec \"$@\"", "sh"]).arg(own);
    let story = if stores { "stores and idles" } else { "idles" };
    let mut child = shell.args(["--story", story]).arg(path).spawn().unwrap();
    wait_for(path, "idles");
    std::thread::sleep(Duration::from_millis(500));
    mark(path, "ready");
    assert!(child.wait().unwrap().success());
    drop(other);
}

/// The same beside one that loads nothing.
fn beside_bare(file: &File, path: &Path) {
    let (second, other) = second(path);
    file.write_all_at(&[1; 100], 0).unwrap();
    let mut child = Command::new(beside(path, "bare")).arg(&second).arg("idles").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    mark(path, "ready");
    wait_for(path, "go");
    child.kill().unwrap();
    child.wait().unwrap();
    drop(other);
}

/// Another guarded file.
fn second(path: &Path) -> (std::path::PathBuf, File) {
    let second = path.with_file_name("second.bin");
    std::fs::write(&second, vec![5; PAGES * PAGE]).unwrap();
    let other = OpenOptions::new().read(true).write(true).open(&second).unwrap();
    (second, other)
}

/// Starts a program while its supervisor stands still.
fn starts_late(file: &File, path: &Path) {
    file.write_all_at(&[1; 100], 0).unwrap();
    mark(path, "ready");
    wait_for(path, "start");
    let own = std::env::current_exe().unwrap();
    assert!(
        Command::new(own).args(["--story", "stores late"]).arg(path).status().unwrap().success()
    );
    mark(path, "stored");
    wait_for(path, "go");
}

/// Ends the first thread of this process, and no other.
fn behead() -> ! {
    // SAFETY: nobody waits for this thread, and what lies on its stack stays.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("it is gone");
}

/// A stranger whose first thread is gone, so that its lists are empty.
fn headless(path: &Path) {
    let path = path.to_owned();
    std::thread::spawn(move || {
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let map = Map::new(&file, 0, PAGES);
        drop(file);
        std::thread::sleep(Duration::from_millis(50));
        mark(&path, "mapped");
        wait_for(&path, "store");
        map.store(250 * PAGE, b"unseen!!");
        mark(&path, "stored");
        wait_for(&path, "over");
        std::process::exit(0);
    });
    behead();
}

/// The same of a program under guard.
fn goes_headless(file: &File) {
    let file = file.try_clone().unwrap();
    std::thread::spawn(move || {
        let map = Map::new(&file, 0, PAGES);
        for round in 0..20 {
            map.store(round * 20 * PAGE, &[round as u8 + 1; 100]);
            file.write_all_at(&[round as u8 + 1; 100], ((round * 20 + 3) * PAGE) as u64).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        std::process::exit(0);
    });
    behead();
}

/// What children do that run on a stack of this program's, and in its memory, one after the other.
const WAYS: [extern "C" fn(*mut c_void) -> c_int; 4] = [by_path, by_name, by_words, by_words_found];

/// Words of a program that does nothing.
fn nothing() -> [*const c_char; 3] {
    [c"true".as_ptr(), c"x".as_ptr(), null()]
}

/// Ends a child that was not replaced: it shares the memory, so it does nothing else.
fn gone() -> ! {
    // SAFETY: ends this process.
    unsafe { libc::_exit(127) }
}

extern "C" fn by_path(_: *mut c_void) -> c_int {
    // SAFETY: words that end with a null, here and below.
    unsafe { libc::execv(c"/bin/true".as_ptr(), nothing().as_ptr()) };
    gone()
}

extern "C" fn by_name(_: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { libc::execvp(c"true".as_ptr(), nothing().as_ptr()) };
    gone()
}

extern "C" fn by_words(_: *mut c_void) -> c_int {
    let [first, second, end] = nothing();
    // SAFETY: as above.
    unsafe { libc::execl(c"/bin/true".as_ptr(), first, second, end) };
    gone()
}

extern "C" fn by_words_found(_: *mut c_void) -> c_int {
    let [first, second, end] = nothing();
    // SAFETY: as above.
    unsafe { libc::execlp(c"true".as_ptr(), first, second, end) };
    gone()
}

/// All that this program knows of its environment, by what the C library finds.
fn variables() -> Vec<String> {
    let names = [c"PATH", c"LD_PRELOAD", c"HOLDFAST_GUARD", c"NOTHING_OF_THAT_NAME"];
    let found = names.map(|name| {
        // SAFETY: a text that ends with a zero; the answer is null or one.
        unsafe {
            let value = libc::getenv(name.as_ptr());
            (!value.is_null()).then(|| std::ffi::CStr::from_ptr(value).to_str().unwrap())
        }
    });
    found.into_iter().flatten().map(str::to_owned).collect()
}

/// Children in this program's memory become others, as `vfork` has it, on stacks that are small and
/// gone afterwards.
fn borrowed_stacks(file: &File) {
    let (rights, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let before = variables();
    Map::new(file, 0, PAGES).store(100 * PAGE, b"before");
    for way in WAYS.iter().cycle().take(8) {
        // SAFETY: a new mapping, the lowest page of which nobody may touch; the child runs on the
        // rest of it while this program stands still, and then nobody does.
        unsafe {
            let len = 5 * PAGE;
            let stack = libc::mmap(core::ptr::null_mut(), len, rights, flags, -1, 0);
            assert_ne!(stack, libc::MAP_FAILED);
            let usable = stack.add(PAGE);
            assert_eq!(libc::mprotect(usable, 4 * PAGE, libc::PROT_READ | libc::PROT_WRITE), 0);
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            let child = libc::clone(*way, stack.add(len), flags, core::ptr::null_mut());
            let mut status = 0;
            assert_eq!((child > 0, libc::waitpid(child, &raw mut status, 0)), (true, child));
            assert_eq!(status, 0);
            assert_eq!(libc::munmap(stack, len), 0);
        }
        assert_eq!(variables(), before);
    }
    file.write_all_at(b"after", 200 * PAGE as u64).unwrap();
}

/// Begins in a folder of its own, and leaves it.
fn goes_elsewhere(path: &Path) {
    let folder = beside(path, "folder");
    std::fs::create_dir_all(&folder).unwrap();
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--story", "looks behind"]).arg(path).current_dir(&folder);
    assert!(again.status().unwrap().success());
}

/// Nobody else is left in the folder in which this program began.
fn looks_behind() {
    let begun = std::env::current_dir().unwrap();
    std::env::set_current_dir("/").unwrap();
    let inside = |process: &std::fs::DirEntry| {
        let found = std::fs::read_link(process.path().join("cwd"));
        found.is_ok_and(|folder| folder == begun)
    };
    let left = std::fs::read_dir("/proc").unwrap().flatten().filter(inside);
    assert_eq!(left.count(), 0, "somebody is left in {}", begun.display());
}

/// An interpreter that starts others as `vfork` has it.
fn python() {
    let text = "import subprocess\nfor _ in range(3): subprocess.run(['true'], check=True)\n\
                import ctypes\nget = ctypes.CDLL(None).getenv\nget.restype = ctypes.c_char_p\n\
                assert get(b'PATH')";
    match Command::new("python3").args(["-c", text]).status() {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(_) => println!("  skipped: no such interpreter here"),
    }
}

/// The log that a child opens again.
static LOG: OnceLock<CString> = OnceLock::new();

extern "C" fn reopen() {
    let Some(log) = LOG.get() else { return };
    // SAFETY: a name that ends with a zero; a stream that is used while it is open.
    unsafe {
        let stream = libc::fopen(log.as_ptr(), c"a".as_ptr());
        libc::fputs(c"a child\n".as_ptr(), stream);
        libc::fclose(stream);
    }
}

/// Before any library is set up: what is to be done after a fork is in place before all others'.
extern "C" fn early(count: c_int, words: *const *const c_char) {
    // SAFETY: the words that this program was started with.
    let asked = count == 4 && unsafe { libc::strcmp(*words.add(2), c"reopens".as_ptr()) == 0 };
    if asked {
        // SAFETY: a function that stays where it is.
        unsafe { libc::pthread_atfork(None, None, Some(reopen)) };
    }
}

#[used]
#[unsafe(link_section = ".preinit_array")]
static EARLY: extern "C" fn(c_int, *const *const c_char) = early;

/// Forks; the child opens a stream before anybody else is told that it is there.
fn reopens(file: &File, path: &Path) {
    let _ = LOG.set(name(&beside(path, "log")));
    let map = Map::new(file, 0, PAGES);
    // SAFETY: the child stores and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        map.store(100 * PAGE, &[5; 300]);
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    for _ in 0..1000 {
        let mut status = 0;
        // SAFETY: looks after the child.
        if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
            assert_eq!(status, 0);
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: ends the child, which waits for itself.
    unsafe { libc::kill(child, libc::SIGKILL) };
    panic!("the child stands still");
}

/// Has another program write to a file that nobody opened before it was started.
fn spawns(path: &Path) {
    let file = name(&path.with_file_name("spawned.bin"));
    let own = name(&std::env::current_exe().unwrap());
    let path = name(path);
    let words = [own.as_ptr(), c"--story".as_ptr(), c"has left".as_ptr(), path.as_ptr(), null()];
    let nothing = null::<c_char>();
    // SAFETY: structures that are made, used and given up; words that end with a null.
    unsafe {
        let mut actions: libc::posix_spawn_file_actions_t = core::mem::zeroed();
        libc::posix_spawn_file_actions_init(&raw mut actions);
        let flags = libc::O_RDWR | libc::O_CREAT;
        let (to, mode) = (&raw mut actions, 0o600);
        libc::posix_spawn_file_actions_addopen(to, LEFT, file.as_ptr(), flags, mode);
        let mut child = 0;
        let words = words.as_ptr().cast::<*mut c_char>();
        let environment = (&raw const nothing).cast::<*mut c_char>();
        let done = libc::posix_spawn(
            &raw mut child,
            own.as_ptr(),
            &raw const actions,
            null(),
            words,
            environment,
        );
        assert_eq!(done, 0);
        libc::posix_spawn_file_actions_destroy(&raw mut actions);
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
}

/// Prints to a standard stream that is a duplicate from a number on, by name and by number.
fn duplicates(file: &File) {
    let fd = file.as_raw_fd();
    let at = |page: usize| (page * PAGE + 17) as i64;
    // SAFETY: descriptors, and texts that end with a zero.
    unsafe {
        let kept = libc::fcntl(1, libc::F_DUPFD_CLOEXEC, 100);
        for by_number in [false, true] {
            libc::close(1);
            let got = match by_number {
                true => libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD, 1) as c_int,
                false => libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 1),
            };
            assert_eq!(got, 1);
            let page = 100 + 200 * usize::from(by_number);
            assert_eq!(libc::lseek(fd, at(page), libc::SEEK_SET), at(page));
            for round in 0..20 {
                libc::printf(c"line %d\n".as_ptr(), round);
                libc::fflush(core::ptr::null_mut());
                std::thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(libc::dup2(kept, 1), 1);
        }
        libc::close(kept);
    }
}

/// Calls that the kernel refuses, since nothing can be read where they point.
fn odd_places(file: &File, path: &Path) {
    let map = Map::new(file, 0, PAGES);
    map.store(PAGE, &[1; 100]);
    let fd = file.as_raw_fd();
    // Nothing is ever there.
    let odd = 0x10 as *const c_void;
    let good = name(path);
    let fails = |what: &str, done: i64| {
        let error = std::io::Error::last_os_error();
        assert_eq!((done, error.raw_os_error()), (-1, Some(libc::EFAULT)), "{what}");
    };
    let (text, parts, offset) = (odd.cast::<c_char>(), odd.cast::<libc::iovec>(), odd as *mut i64);
    // SAFETY: the kernel looks at what it is given, and refuses it.
    unsafe {
        fails("readv", libc::readv(fd, parts, 2) as i64);
        fails("preadv", libc::preadv(fd, parts, 1000, 0) as i64);
        fails("syscall readv", libc::syscall(libc::SYS_readv, fd, parts, 2));
        fails("writev", libc::writev(fd, parts, 2) as i64);
        fails("pwritev", libc::pwritev(fd, parts, 1024, 4096) as i64);
        fails("rename", libc::rename(text, good.as_ptr()).into());
        fails("rename to", libc::rename(good.as_ptr(), text).into());
        fails("link", libc::link(text, good.as_ptr()).into());
        fails("syscall rename", libc::syscall(libc::SYS_rename, text, good.as_ptr()));
        fails("open", libc::open(text, libc::O_WRONLY | libc::O_TRUNC).into());
        fails("truncate", libc::truncate(text, 0).into());
        let copied = libc::copy_file_range(fd, core::ptr::null_mut(), fd, offset, 100, 0);
        fails("copy_file_range", copied as i64);
        let none = core::ptr::null_mut::<i64>();
        let copied = libc::syscall(libc::SYS_copy_file_range, fd, none, fd, offset, 100, 0);
        fails("syscall copy_file_range", copied);
        fails("openat2", libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, good.as_ptr(), odd, 24));
        let words = [good.as_ptr(), null()];
        let (own, list) = (c"/bin/true".as_ptr(), odd.cast::<*const c_char>());
        fails("execve", libc::syscall(libc::SYS_execve, own, &raw const words, list));
    }
    // A list that is there, of two buffers in the mapping.
    let part = |page: usize| libc::iovec { iov_base: map.place(page * PAGE), iov_len: 3000 };
    let list = [part(20), part(40)];
    // SAFETY: a list that lives across the call.
    assert_eq!(unsafe { libc::preadv(fd, list.as_ptr(), 2, 200 * PAGE as i64) }, 6000);
}

/// Has `sync` do nothing from now on: all other files of this machine are nobody's business here.
fn without_sync() {
    let step = |code: u16, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let filter = [
        step(0x20, 0, 0, 0),
        step(0x15, 0, 1, libc::SYS_sync as u32),
        step(0x06, 0, 0, libc::SECCOMP_RET_ERRNO),
        step(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let all = libc::sock_fprog { len: 4, filter: filter.as_ptr().cast_mut() };
    // SAFETY: a list that lives across the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const all), 0);
    }
}

/// All ways to sync; how many of them are to be covered is known to the test.
fn syncs(file: &File, path: &Path) {
    without_sync();
    let map = Map::new(file, 0, PAGES);
    let fd = file.as_raw_fd();
    // Cheap to sync: nothing of it is ever written back.
    let other = File::open("/proc/self/status").unwrap();
    let write = |page: u64| file.write_all_at(&[page as u8; 100], page * PAGE as u64).unwrap();
    let (at, len) = (50 * PAGE as i64, 10 * PAGE as i64);
    let waits = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE;
    // SAFETY: descriptors, a mapping, and a request that lives until it is over.
    unsafe {
        write(10);
        assert_eq!(libc::syscall(libc::SYS_fsync, fd), 0);
        write(20);
        assert_eq!(libc::syscall(libc::SYS_fdatasync, fd), 0);
        map.store(30 * PAGE, &[30; 100]);
        assert_eq!(libc::syscall(libc::SYS_msync, map.place(0), map.len, libc::MS_SYNC), 0);
        map.store(31 * PAGE, &[31; 100]);
        // Not to be waited for.
        assert_eq!(libc::syscall(libc::SYS_msync, map.place(0), map.len, libc::MS_ASYNC), 0);
        write(51);
        assert_eq!(libc::sync_file_range(fd, at, len, waits), 0);
        write(52);
        assert_eq!(libc::syscall(libc::SYS_sync_file_range, fd, at, len, waits), 0);
        assert_eq!(libc::sync_file_range(fd, at, len, libc::SYNC_FILE_RANGE_WRITE), 0);
        write(70);
        let mut request: libc::aiocb = core::mem::zeroed();
        request.aio_fildes = fd;
        assert_eq!(libc::aio_fsync(libc::O_SYNC, &raw mut request), 0);
        while libc::aio_error(&raw const request) == libc::EINPROGRESS {
            std::thread::sleep(Duration::from_millis(1));
        }
        write(80);
        assert_eq!(libc::syncfs(other.as_raw_fd()), 0);
        write(81);
        assert_eq!(libc::syscall(libc::SYS_syncfs, other.as_raw_fd()), 0);
        assert_eq!(libc::syncfs(-1), -1);
        write(90);
        libc::sync();
        write(91);
        libc::syscall(libc::SYS_sync);
    }
    mark(path, "synced");
    wait_for(path, "go");
}
