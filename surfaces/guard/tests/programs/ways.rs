//! More of what the programs do: ways of writing that are easily overlooked.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Map, PAGE, PAGES, beside, mark, wait_for};

pub(super) fn tell(story: &str, file: &File, path: &Path) {
    match story {
        "flags" => flags(path),
        "together" => together(file),
        "seeks" => seeks(file),
        "heir of a stream" => heir_of_stream(path),
        "heir of output" => heir_of_output(file, path),
        "handles" => handles(file, 0),
        "deep" => handles(file, libc::RTLD_DEEPBIND),
        "nowhere" => nowhere(file, path),
        "rights" => rights(file),
        "lowest" => lowest(path),
        "passes" => passes(file, path),
        "wraps" => {
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            again.args(["--story", "wrapped"]).arg(path);
            let gone = again.env_clear().env("LD_PRELOAD", "libm.so.6").exec();
            panic!("{gone}");
        }
        "wrapped" => {
            let list = std::env::var("LD_PRELOAD").unwrap();
            assert!(list.split(':').any(|library| library == "libm.so.6"), "{list}");
            file.write_all_at(&[1; 300], at(100).unsigned_abs()).unwrap();
        }
        "own only" => {
            // Nobody may open it again, this program's user neither.
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(0o444);
            let own = options.open(path.with_file_name("own.bin")).unwrap();
            own.write_all_at(&[1; 9000], 0).unwrap();
        }
        "controls" => controls(file, path),
        "gives" => gives(file, path),
        "restless" => restless(file),
        "spools" => spools(path),
        "goes unseen" => goes_unseen(file),
        "maps behind a filter" => maps_behind_a_filter(file),
        "goes unseen after a kill" => {
            is_killed_amid(file);
            goes_unseen(file);
        }
        "goes unseen after an exec" => is_replaced_amid(file, told("goes unseen", path)),
        "is replaced amid a write" => is_replaced_amid(file, told("wait", path)),
        "goes unseen beside one that is bare" => beside_one_replaced(file, path),
        _ => panic!("{story}"),
    }
}

/// This program, with another story.
fn told(story: &str, path: &Path) -> Command {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--story", story]).arg(path);
    again
}

/// Makes, renames, links and appends to files that nobody guards, in a folder of theirs.
fn spools(path: &Path) {
    let spool = beside(path, "spool");
    let (part, whole) = (spool.join("part"), spool.join("whole"));
    let made = File::create_new(&part).unwrap();
    made.write_all_at(&[1; 3 * PAGE], 0).unwrap();
    drop(made);
    std::fs::rename(&part, &whole).unwrap();
    std::fs::hard_link(&whole, spool.join("also")).unwrap();
    OpenOptions::new().append(true).open(&whole).unwrap().write_all(b"more").unwrap();
}

fn at(page: usize) -> i64 {
    (page * PAGE + 17) as i64
}

/// Writes at an offset through a descriptor that appends, which one flag allows, and with a flag
/// to append through one that does not.
fn flags(path: &Path) {
    let appends = OpenOptions::new().append(true).open(path).unwrap();
    let plain = OpenOptions::new().write(true).open(path).unwrap();
    let bytes = [0x5a_u8; 300];
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: 300 };
    let (no, yes) = (libc::RWF_NOAPPEND, libc::RWF_APPEND);
    let by_number = |fd: i32, page: usize, flags: i32| {
        // SAFETY: a list and a buffer that live across the call.
        unsafe { libc::syscall(libc::SYS_pwritev2, fd, &raw const part, 1, at(page), 0, flags) }
    };
    // SAFETY: as above.
    let by_name = |fd: i32, page: usize, flags: i32| unsafe {
        libc::pwritev2(fd, &raw const part, 1, at(page), flags)
    };
    let (one, other) = (appends.as_raw_fd(), plain.as_raw_fd());
    if by_name(one, 50, no) == 300 {
        assert_eq!(by_number(one, 150, no), 300);
    } else {
        println!("  skipped: this kernel appends whatever it is told");
    }
    assert_eq!(by_name(other, 50, yes), 300);
    assert_eq!(by_number(other, 50, yes), 300);
}

/// One after the other, at the position that all of them share.
fn one_by_one(fd: i32, times: u32) {
    let bytes = [0x5a_u8; 9001];
    for _ in 0..times {
        // SAFETY: a buffer that lives across the call.
        assert_eq!(unsafe { libc::write(fd, bytes.as_ptr().cast(), 9001) }, 9001);
    }
}

/// Is gone before the program that it leaves behind is there.
pub(super) fn leaves(path: &Path) {
    // SAFETY: the child sleeps and becomes another program, with what was made before.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if child == 0 {
        std::thread::sleep(Duration::from_millis(700));
        let again = std::env::current_exe().unwrap();
        panic!("{}", Command::new(again).args(["--story", "pwrite"]).arg(path).exec());
    }
}

/// Threads, and a child, that write at one position.
fn together(file: &File) {
    let fd = file.as_raw_fd();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| one_by_one(fd, 150));
        }
    });
    // SAFETY: the child writes and exits.
    unsafe {
        let child = libc::fork();
        one_by_one(fd, 300);
        if child == 0 {
            libc::_exit(0);
        }
        assert_eq!(libc::waitpid(-1, core::ptr::null_mut(), 0), child);
    }
}

/// Threads that write at one position while others move it.
fn seeks(file: &File) {
    let fd = file.as_raw_fd();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| one_by_one(fd, 800));
        }
        for thread in 0..2 {
            scope.spawn(move || {
                for round in 0..3000 {
                    let to = at((round * 7 + thread * 3) % PAGES);
                    // SAFETY: moves a position.
                    unsafe { libc::lseek(fd, to, libc::SEEK_SET) };
                }
            });
        }
    });
}

/// Changes by requests that are no write.
fn controls(file: &File, path: &Path) {
    #[repr(C)]
    struct Space {
        kind: i16,
        whence: i16,
        start: i64,
        len: i64,
        more: [u64; 6],
    }
    let zero =
        Space { kind: 0, whence: 0, start: 20 * PAGE as i64, len: 30 * PAGE as i64, more: [0; 6] };
    // SAFETY: arguments as these requests have them, which live across the calls.
    unsafe {
        // FS_IOC_ZERO_RANGE
        if libc::ioctl(file.as_raw_fd(), 0x4030_5839, &raw const zero) != 0 {
            println!("  skipped: no zeroing here: {}", std::io::Error::last_os_error());
        }
    }
    // As a defragmenter does.
    file.sync_all().unwrap();
    if let Err(error) = exchange(file, &donor(path)) {
        println!("  skipped: nothing is moved here: {error}");
    }
}

/// One write, and a store to each page from then on, one after the other.
fn restless(file: &File) {
    let pages = file.metadata().unwrap().len() as usize / PAGE;
    let map = Map::new(file, 0, pages);
    file.write_all_at(&[8; 100], 0).unwrap();
    for page in 1..pages {
        map.store(page * PAGE + 100, &[2]);
        if page % 5 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Another file, as long as the first, with room for all of it.
fn donor(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    let other = options.open(path.with_extension("donor")).unwrap();
    // SAFETY: a file that was just made.
    unsafe { libc::fallocate(other.as_raw_fd(), 0, 0, at(PAGES)) };
    other
}

/// The blocks of some pages go to the donor, and its own take their place (EXT4_IOC_MOVE_EXT).
fn exchange(file: &File, donor: &File) -> std::io::Result<()> {
    let extent: [u64; 5] = [(donor.as_raw_fd() as u64) << 32, 100, 100, 50, 0];
    // SAFETY: an argument as the request has it, which lives across the call.
    match unsafe { libc::ioctl(file.as_raw_fd(), 0xc028_660f, &raw const extent) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Offers the blocks of its file to another one.
fn gives(file: &File, path: &Path) {
    file.sync_all().unwrap();
    let refused = exchange(&donor(path), file).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP));
    mark(path, "refused");
}

/// Goes on as a child whose parent is gone.
unsafe fn outlive() {
    // SAFETY: the child is alone, and goes on with what it has.
    unsafe {
        if libc::fork() != 0 {
            // The child has introduced itself by then.
            libc::usleep(100_000);
            libc::_exit(0);
        }
        libc::usleep(250_000);
    }
}

/// A child writes to a stream that its parent opened.
fn heir_of_stream(path: &Path) {
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a stream that stays open, buffers that live across the calls.
    unsafe {
        let stream = libc::fopen(name.as_ptr(), c"r+".as_ptr());
        assert!(!stream.is_null());
        outlive();
        for page in [5, 70, 300] {
            assert_eq!(libc::fseek(stream, at(page), libc::SEEK_SET), 0);
            assert_eq!(libc::fwrite([page as u8; 64].as_ptr().cast(), 1, 64, stream), 64);
            assert_eq!(libc::fflush(stream), 0);
            libc::usleep(60_000);
        }
        mark(path, "written");
        libc::_exit(0);
    }
}

/// A child prints to what its parent made its standard output.
fn heir_of_output(file: &File, path: &Path) {
    // SAFETY: descriptors, and texts that end with a zero.
    unsafe {
        assert_eq!(libc::lseek(file.as_raw_fd(), at(300), libc::SEEK_SET), at(300));
        assert_eq!(libc::dup2(file.as_raw_fd(), 1), 1);
        outlive();
        libc::printf(c",,,\n".as_ptr());
        libc::fflush(core::ptr::null_mut());
        libc::usleep(60_000);
        mark(path, "written");
        libc::_exit(0);
    }
}

/// Writes by functions that the C library itself was asked for.
fn handles(file: &File, flags: i32) {
    type Pwrite = unsafe extern "C" fn(i32, *const u8, usize, i64) -> isize;
    type Syscall = unsafe extern "C" fn(i64, i32, *const u8, usize, i64) -> i64;
    let (fd, bytes) = (file.as_raw_fd(), [0x5a_u8; 300]);
    // SAFETY: functions of these names have these arguments; a buffer that lives across the calls.
    unsafe {
        let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW | flags);
        let pwrite = libc::dlsym(library, c"pwrite".as_ptr());
        let pwrite = core::mem::transmute::<*mut libc::c_void, Pwrite>(pwrite);
        assert_eq!(pwrite(fd, bytes.as_ptr(), 300, at(100)), 300);
        let syscall = libc::dlsym(library, c"syscall".as_ptr());
        let syscall = core::mem::transmute::<*mut libc::c_void, Syscall>(syscall);
        assert_eq!(syscall(libc::SYS_pwrite64, fd, bytes.as_ptr(), 300, at(200)), 300);
        let own = libc::dlsym(libc::RTLD_DEFAULT, c"pwrite".as_ptr());
        let own = core::mem::transmute::<*mut libc::c_void, Pwrite>(own);
        assert_eq!(own(fd, bytes.as_ptr(), 300, at(250)), 300);
        assert!(libc::dlsym(library, c"no such function".as_ptr()).is_null());
        assert!(!libc::dlerror().is_null());
    }
}

/// A child is killed in the middle of a write: what it is to write comes out of a pipe that nobody
/// fills.
fn is_killed_amid(file: &File) {
    let fd = file.as_raw_fd();
    // SAFETY: the child waits until it is killed; an offset that lives across the call.
    unsafe {
        let mut pipe = [0; 2];
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let child = libc::fork();
        if child == 0 {
            let mut to = at(10);
            libc::splice(pipe[0], core::ptr::null_mut(), fd, &raw mut to, PAGE, 0);
            libc::_exit(1);
        }
        libc::usleep(300_000);
        assert_eq!(libc::kill(child, libc::SIGKILL), 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(libc::WIFSIGNALED(status));
        // Until that is known.
        libc::usleep(500_000);
    }
}

/// Becomes another program by its second thread, while the first one is in the middle of a write:
/// what that is to write comes out of a pipe that nobody fills.
fn is_replaced_amid(file: &File, mut next: Command) {
    let first = std::process::id();
    let mut pipe = [0; 2];
    // SAFETY: writes two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    std::thread::spawn(move || {
        let waits = || std::fs::read_to_string(format!("/proc/self/task/{first}/syscall"));
        let splices =
            || waits().is_ok_and(|text| text.starts_with(&format!("{} ", libc::SYS_splice)));
        for _ in 0..300 {
            if splices() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        println!("{}", next.exec());
        std::process::exit(1);
    });
    let mut to = at(10);
    // SAFETY: an offset that lives across the call.
    unsafe {
        libc::splice(pipe[0], core::ptr::null_mut(), file.as_raw_fd(), &raw mut to, PAGE, 0);
    }
    panic!("nobody fills the pipe");
}

/// The same of a child, which becomes a program that knows nobody, and lives on while this one goes
/// unseen.
fn beside_one_replaced(file: &File, path: &Path) {
    let other = beside(path, "other");
    // SAFETY: the child becomes another program.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: sets a flag of this process: it does not outlive its parent.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let mut bare = Command::new(beside(path, "bare"));
        bare.arg(&other).arg("stays");
        is_replaced_amid(file, bare);
    }
    let stored =
        || std::fs::read(&other).is_ok_and(|now| now[250 * PAGE..].starts_with(b"unseen!!"));
    for _ in 0..4000 {
        if stored() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(stored(), "it is not there");
    // Until that is known.
    std::thread::sleep(Duration::from_millis(500));
    goes_unseen(file);
    let mut status = 0;
    // SAFETY: ends a child of this process, and waits for it.
    unsafe {
        assert_eq!(libc::kill(child, libc::SIGKILL), 0);
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
    }
}

/// Writes as the C library does it, by a way that leads around whoever stands before that; then as
/// ever.
pub(super) fn goes_unseen(file: &File) {
    type Pwrite = unsafe extern "C" fn(i32, *const u8, usize, i64) -> isize;
    let nap = || std::thread::sleep(Duration::from_millis(400));
    file.write_all_at(b"announced", at(20).unsigned_abs()).unwrap();
    nap();
    // SAFETY: a function of that name has these arguments; a buffer that lives across the call.
    unsafe {
        let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW);
        let found = libc::dlvsym(library, c"pwrite".as_ptr(), c"GLIBC_2.2.5".as_ptr());
        if found.is_null() {
            std::process::exit(77);
        }
        let pwrite = core::mem::transmute::<*mut libc::c_void, Pwrite>(found);
        assert_eq!(pwrite(file.as_raw_fd(), b"unseen".as_ptr(), 6, (250 * PAGE) as i64), 6);
    }
    nap();
    file.write_all_at(b"announced", at(300).unsigned_abs()).unwrap();
    nap();
}

/// Gives up the call by which its mappings are tracked, as programs do that need few calls.
fn maps_behind_a_filter(file: &File) {
    let early = Map::new(file, 0, 100);
    early.store(PAGE, b"before");
    let step = |code: u16, jt: u8, jf: u8, k: u32| libc::sock_filter { code, jt, jf, k };
    let steps = [
        step(0x20, 0, 0, 0),
        step(0x15, 0, 1, libc::SYS_userfaultfd as u32),
        step(0x06, 0, 0, 0x0005_0000 | libc::EPERM as u32),
        step(0x06, 0, 0, 0x7fff_0000),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_ptr().cast_mut() };
    // SAFETY: sets flags of this thread; the list lives across the call, and is as long as it says.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if !set {
        std::process::exit(77);
    }
    let nap = || std::thread::sleep(Duration::from_millis(200));
    nap();
    let late = Map::new(file, 0, PAGES);
    late.store(250 * PAGE, b"unseen");
    nap();
    late.store(251 * PAGE, b"unseen");
    file.write_all_at(b"written", at(300).unsigned_abs()).unwrap();
    nap();
}

/// Opens below what is no folder: an absolute name does not mind.
fn nowhere(file: &File, path: &Path) {
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let keep = std::fs::read(path).unwrap();
    let flags = libc::O_WRONLY | libc::O_TRUNC;
    for folder in [-1, -2, i32::MIN, libc::AT_FDCWD, 9999] {
        // SAFETY: names that end with a zero, and numbers.
        unsafe {
            assert_eq!(libc::openat(folder, c"no such file".as_ptr(), flags), -1);
            let fd = libc::openat(folder, name.as_ptr(), flags);
            assert!(fd >= 0);
            libc::close(fd);
        }
        file.write_all_at(&keep, 0).unwrap();
    }
}

/// Gets the lowest number that is free for a file that it cuts off.
fn lowest(path: &Path) {
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let keep = std::fs::read(path).unwrap();
    // SAFETY: a name that ends with a zero, and numbers.
    let made = unsafe {
        let kept = libc::fcntl(1, libc::F_DUPFD_CLOEXEC, 100);
        libc::close(1);
        let made = libc::creat(name.as_ptr(), 0o600);
        let written = libc::write(made, keep.as_ptr().cast(), keep.len());
        assert_eq!(usize::try_from(written), Ok(keep.len()));
        libc::dup2(kept, 1);
        made
    };
    assert_eq!(made, 1);
}

/// What may be done to a page, by its line in the list of mappings.
fn rights_of(at: *mut libc::c_void) -> String {
    let all = std::fs::read_to_string("/proc/self/maps").unwrap();
    let number = |text: &str| usize::from_str_radix(text, 16).unwrap();
    let line = all.lines().find(|line| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        (number(start)..number(end)).contains(&(at as usize))
    });
    line.unwrap().split(' ').nth(1).unwrap().to_owned()
}

/// Calls that fail, and calls that move: what the program may do stays what it was.
fn rights(file: &File) {
    let map = Map::new(file, 0, 100);
    let other = Map::new(file, 300, 10);
    let (fixed, len) = (libc::MAP_SHARED | libc::MAP_FIXED, 10 * PAGE);
    let error = || std::io::Error::last_os_error().raw_os_error();
    // SAFETY: this program's own mappings, used as they are after each call.
    unsafe {
        map.store(20 * PAGE, &[1]);
        // Over a part of it: a descriptor that is none, and one of the same file that is none.
        let none = libc::mmap(map.place(20 * PAGE), len, libc::PROT_READ, fixed, 9999, 0);
        assert_eq!(error(), Some(libc::EBADF));
        assert_eq!((none, rights_of(map.place(20 * PAGE))), (libc::MAP_FAILED, "rw-s".to_owned()));
        let odd =
            libc::mmap(map.place(20 * PAGE), len, libc::PROT_READ, fixed, file.as_raw_fd(), 7);
        assert_eq!(error(), Some(libc::EINVAL));
        assert_eq!((odd, rights_of(map.place(20 * PAGE))), (libc::MAP_FAILED, "rw-s".to_owned()));
        map.store(21 * PAGE, &[2]);
        // A part is to go, and does not: flags that nobody knows.
        let odd = libc::mremap(map.place(80 * PAGE), len, PAGE, 1 << 20);
        assert_eq!((odd, error()), (libc::MAP_FAILED, Some(libc::EINVAL)));
        assert_eq!(rights_of(map.place(85 * PAGE)), "rw-s");
        map.store(85 * PAGE, &[7]);
        // What is read-only stays it, moved or not.
        assert_eq!(libc::mprotect(map.place(60 * PAGE), len, libc::PROT_READ), 0);
        assert_eq!(libc::munmap(map.place(60 * PAGE), usize::MAX), -1);
        assert_eq!(rights_of(map.place(60 * PAGE)), "r--s");
        let moves = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let moved = libc::mremap(map.place(60 * PAGE), len, len, moves, other.place(0));
        assert_eq!((moved, rights_of(other.place(0))), (other.place(0), "r--s".to_owned()));
        assert_eq!(libc::mprotect(other.place(0), PAGE, libc::PROT_READ | libc::PROT_WRITE), 0);
        other.store(0, &[3]);
        // A target that is no address.
        let odd = libc::mremap(map.place(0), len, len, moves, other.place(1));
        assert_eq!(error(), Some(libc::EINVAL));
        assert_eq!((odd, rights_of(map.place(0))), (libc::MAP_FAILED, "rw-s".to_owned()));
        assert_eq!(
            (rights_of(other.place(0)), rights_of(other.place(PAGE))),
            ("rw-s".to_owned(), "r--s".to_owned())
        );
        map.store(5 * PAGE, &[4]);
        std::thread::sleep(std::time::Duration::from_millis(60));
        map.store(22 * PAGE, &[5]);
        other.store(9, &[6]);
    }
}

/// Room for one descriptor beside a message.
#[repr(C)]
pub(super) struct Beside {
    pub(super) head: libc::cmsghdr,
    pub(super) fd: i32,
    pub(super) unused: i32,
}

/// A message of one byte, and what lies beside it; `act` sends or receives it.
pub(super) fn with_message(beside: &mut Beside, act: impl FnOnce(*mut libc::msghdr) -> isize) {
    let mut byte = 0_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: zeros are a message without anything.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = core::ptr::from_mut(beside).cast();
    message.msg_controllen = size_of::<Beside>();
    assert_eq!(act(&raw mut message), 1);
}

/// Hands its descriptor to a stranger, who never opened anything.
fn passes(file: &File, path: &Path) {
    let to = std::os::unix::net::UnixStream::connect(beside(path, "socket")).unwrap();
    let head =
        libc::cmsghdr { cmsg_len: 20, cmsg_level: libc::SOL_SOCKET, cmsg_type: libc::SCM_RIGHTS };
    let mut beside = Beside { head, fd: file.as_raw_fd(), unused: 0 };
    // SAFETY: a message that lives across the call.
    with_message(&mut beside, |message| unsafe { libc::sendmsg(to.as_raw_fd(), message, 0) });
    wait_for(path, "go");
}

/// The stranger: maps what it was handed, and stores when it is told to.
pub(super) fn takes(path: &Path) {
    let server = std::os::unix::net::UnixListener::bind(beside(path, "socket")).unwrap();
    mark(path, "listens");
    let (from, _) = server.accept().unwrap();
    let head = libc::cmsghdr { cmsg_len: 0, cmsg_level: 0, cmsg_type: 0 };
    let mut beside = Beside { head, fd: -1, unused: 0 };
    // SAFETY: a message that lives across the call.
    with_message(&mut beside, |message| unsafe { libc::recvmsg(from.as_raw_fd(), message, 0) });
    // SAFETY: a descriptor that came along and belongs to nobody yet.
    let file: File = unsafe { std::os::fd::FromRawFd::from_raw_fd(beside.fd) };
    let map = Map::new(&file, 0, PAGES);
    drop(file);
    mark(path, "mapped");
    wait_for(path, "store");
    map.store(250 * PAGE, b"a stranger's");
    mark(path, "stored");
    wait_for(path, "go");
}
