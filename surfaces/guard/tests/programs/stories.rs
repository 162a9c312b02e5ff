//! What the programs do. They know nothing of a guard.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its programs too")]
#![allow(dead_code, reason = "a program of its own, and a part of the test")]

#[path = "coming.rs"]
mod coming;
#[path = "flows.rs"]
mod flows;
#[path = "going.rs"]
mod going;
#[path = "hands.rs"]
mod hands;
#[path = "leaps.rs"]
mod leaps;
#[path = "moved.rs"]
mod moved;
#[path = "races.rs"]
mod races;
#[path = "rests.rs"]
mod rests;
#[path = "starts.rs"]
mod starts;
#[path = "ways.rs"]
mod ways;

/// The descriptor that the test leaves open.
pub(crate) const LEFT: i32 = 50;

use std::ffi::{CString, c_void};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub(crate) const PAGE: usize = 4096;
/// Pages of every file at the beginning.
pub(crate) const PAGES: usize = 600;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, role, story, file] = arguments.as_slice() else {
        println!("these are programs to be guarded: --story NAME FILE");
        return;
    };
    assert_eq!(role, "--story");
    tell(story, file.as_ref());
}

pub(crate) fn tell(story: &str, path: &Path) {
    match story {
        "takes" => return ways::takes(path),
        "takes at once" => return hands::takes(path),
        "leaves" => return ways::leaves(path),
        _ if coming::tell_first(story, path)
            || going::tell(story, path)
            || rests::tell(story, path)
            || starts::tell_first(story, path) =>
        {
            return;
        }
        _ => {}
    }
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    match story {
        "touch" => {}
        "store" => store(&file, 1),
        "pwrite" => pwrite(&file),
        "family" => family(&file),
        "append" => append(path),
        "lengths" => lengths(&file, path),
        "stream" => stream(path),
        "moves" => moves(&file),
        "fork" => fork(&file),
        "exec" => becomes_another(&file, path),
        "kill" => is_killed(&file),
        "sync" => {
            let map = Map::new(&file, 0, PAGES);
            map.store(5 * PAGE, &[5; 100]);
            map.sync();
            file.write_all_at(&[6; 100], 9 * PAGE as u64).unwrap();
            file.sync_data().unwrap();
            wait_for(path, "go");
        }
        "wait" => {
            store(&file, 4);
            let map = Map::new(&file, 0, PAGES);
            file.write_all_at(&[8; 100], 300 * PAGE as u64).unwrap();
            map.store(0, &[1]);
            mark(path, "ready");
            wait_for(path, "go");
            map.store(400 * PAGE, b"the last words");
            file.write_all_at(b"written", 401 * PAGE as u64).unwrap();
            mark(path, "gone");
        }
        "ring" => ring(path, true),
        "short ring" => ring(path, false),
        "no ring" => no_ring(&file),
        "prints" => prints(&file),
        "numbers" => numbers(&file),
        "busy" => busy(&file, path),
        "clone" => clone(&file, path, 400),
        "short clone" => clone(&file, path, 0),
        "short fork" => short_fork(&file),
        "signals" => signals(&file),
        "closes" => closes(&file),
        "direct" => direct(&file, path),
        "threads" => threads(&file),
        "storm" => storm(&file, path),
        "junk" => junk(&file),
        _ if coming::tell(story, &file, path)
            || races::tell(story, &file, path)
            || moved::tell(story, &file, path)
            || leaps::tell(story, &file, path)
            || starts::tell(story, &file, path)
            || hands::tell(story, &file, path) => {}
        _ => ways::tell(story, &file, path),
    }
}

fn is_killed(file: &File) {
    store(file, 3);
    file.write_all_at(&[7; 9000], 77_777).unwrap();
    // SAFETY: ends this process.
    unsafe { libc::raise(libc::SIGKILL) };
}

fn becomes_another(file: &File, path: &Path) {
    store(file, 2);
    let again = std::env::current_exe().unwrap();
    let gone = Command::new(again).args(["--story", "pwrite"]).arg(path).env_clear().exec();
    panic!("{gone}");
}

/// A file beside the story's, by which it speaks with its test.
pub(crate) fn beside(path: &Path, what: &str) -> std::path::PathBuf {
    path.with_extension(what)
}

pub(crate) fn mark(path: &Path, what: &str) {
    std::fs::write(beside(path, what), b"x").unwrap();
}

/// Longer than the test waits for anything before it says so.
pub(crate) fn wait_for(path: &Path, what: &str) {
    for _ in 0..60_000 {
        if beside(path, what).exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("nobody said {what}");
}

struct Map {
    at: *mut u8,
    len: usize,
}

impl Map {
    fn new(file: &File, from: usize, pages: usize) -> Self {
        Self::with(file, from, pages, libc::PROT_READ | libc::PROT_WRITE, None)
    }

    fn with(file: &File, from: usize, pages: usize, rights: i32, over: Option<*mut u8>) -> Self {
        let flags = libc::MAP_SHARED | if over.is_some() { libc::MAP_FIXED } else { 0 };
        let (at, fd) = (over.unwrap_or(core::ptr::null_mut()), file.as_raw_fd());
        let len = pages * PAGE;
        // SAFETY: a new mapping, or one over a mapping of the caller's.
        let at = unsafe { libc::mmap(at.cast(), len, rights, flags, fd, (from * PAGE) as i64) };
        assert_ne!(at, libc::MAP_FAILED);
        Self { at: at.cast(), len }
    }

    fn store(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len);
        // SAFETY: inside the mapping, which is writable.
        unsafe { core::ptr::copy(bytes.as_ptr(), self.at.add(at), bytes.len()) };
    }

    fn place(&self, at: usize) -> *mut c_void {
        self.at.wrapping_add(at).cast()
    }

    fn sync(&self) {
        // SAFETY: the mapping.
        assert_eq!(unsafe { libc::msync(self.place(0), self.len, libc::MS_SYNC) }, 0);
    }
}

fn store(file: &File, seed: u8) {
    let map = Map::new(file, 0, PAGES);
    for page in (0..PAGES).step_by(7) {
        map.store(page * PAGE + page, &[seed, page as u8, 3, 4]);
    }
    map.store(100 * PAGE, &[seed; 10 * PAGE]);
}

fn pwrite(file: &File) {
    for page in (3..PAGES as u64).step_by(11) {
        file.write_all_at(&[page as u8; 100], page * PAGE as u64 + 50).unwrap();
    }
    file.write_all_at(&[9; 3 * PAGE + 5], 200 * PAGE as u64 - 3).unwrap();
}

fn family(file: &File) {
    let mut file = file.try_clone().unwrap();
    let fd = file.as_raw_fd();
    file.seek(SeekFrom::Start(10 * PAGE as u64 + 9)).unwrap();
    file.write_all(&[1; 5000]).unwrap();
    let parts = [[2_u8; 600], [3; 600]];
    let list = parts
        .each_ref()
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    let at = |page: usize| (page * PAGE + 17) as i64;
    // SAFETY: the lists and offsets live across the calls.
    unsafe {
        assert_eq!(libc::lseek(fd, at(30), libc::SEEK_SET), at(30));
        assert_eq!(libc::writev(fd, list.as_ptr(), 2), 1200);
        assert_eq!(libc::pwritev(fd, list.as_ptr(), 2, at(50)), 1200);
        assert_eq!(libc::pwritev2(fd, list.as_ptr(), 2, at(70), 0), 1200);
        let other = RawFd::from(libc::dup(fd));
        assert_eq!(libc::pwrite(other, [4; 50].as_ptr().cast(), 50, at(90)), 50);
        libc::close(other);
        let mut from = 0;
        assert_eq!(libc::lseek(fd, at(110), libc::SEEK_SET), at(110));
        assert_eq!(libc::sendfile(fd, fd, &raw mut from, 3000), 3000);
        let (mut from, mut to) = (at(10), at(400));
        let copied = libc::copy_file_range(fd, &raw mut from, fd, &raw mut to, 9000, 0);
        assert!(copied > 0);
        let mut pipe = [0; 2];
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        assert_eq!(libc::write(pipe[1], [5; 700].as_ptr().cast(), 700), 700);
        let mut to = at(450);
        let moved = libc::splice(pipe[0], core::ptr::null_mut(), fd, &raw mut to, 700, 0);
        assert_eq!(moved, 700);
    }
}

fn append(path: &Path) {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    for round in 0..50 {
        file.write_all(&[round; 3000]).unwrap();
    }
    let mut synced = OpenOptions::new();
    let synced = synced.write(true).custom_flags(libc::O_DSYNC).open(path).unwrap();
    synced.write_all_at(&[1; 10], 5).unwrap();
}

fn lengths(file: &File, path: &Path) {
    let map = Map::new(file, 0, 2 * PAGES);
    file.set_len(300 * PAGE as u64 + 99).unwrap();
    file.set_len(900 * PAGE as u64).unwrap();
    map.store(800 * PAGE, &[1; 5000]);
    let fd = file.as_raw_fd();
    // SAFETY: descriptors, numbers and a path that ends with a zero.
    unsafe {
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        assert_eq!(libc::fallocate(fd, punch, 20 * PAGE as i64, 6 * PAGE as i64 + 9), 0);
        assert_eq!(libc::posix_fallocate(fd, 0, 1000 * PAGE as i64), 0);
        let hole = libc::madvise(map.place(50 * PAGE), 3 * PAGE, libc::MADV_REMOVE);
        assert_eq!(hole, 0);
        let name = CString::new(path.to_str().unwrap()).unwrap();
        assert_eq!(libc::truncate(name.as_ptr(), 700 * PAGE as i64 + 1), 0);
    }
    // Cut off at the opening, and filled anew.
    let keep = std::fs::read(path).unwrap();
    let again = OpenOptions::new().write(true).truncate(true).open(path).unwrap();
    again.write_all_at(&keep, 0).unwrap();
    map.store(33 * PAGE, &[2; 10]);
}

fn stream(path: &Path) {
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a stream that is used while it is open; buffers live across the calls.
    unsafe {
        let stream = libc::fopen(name.as_ptr(), c"r+".as_ptr());
        assert!(!stream.is_null());
        for page in [5, 6, 70, 300] {
            assert_eq!(libc::fseek(stream, page * PAGE as i64 + 5, libc::SEEK_SET), 0);
            assert_eq!(libc::fwrite([page as u8; 64].as_ptr().cast(), 1, 64, stream), 64);
            std::thread::sleep(Duration::from_millis(60));
        }
        assert_eq!(libc::fclose(stream), 0);
    }
}

fn moves(file: &File) {
    let naps = || std::thread::sleep(Duration::from_millis(60));
    let map = Map::new(file, 0, 100);
    map.store(PAGE, &[1]);
    // SAFETY: this program's own mappings, used as they are after each call.
    unsafe {
        let free = libc::mmap(
            core::ptr::null_mut(),
            300 * PAGE,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let moved = libc::mremap(map.place(0), 100 * PAGE, 200 * PAGE, flags, free);
        assert_eq!(moved, free);
        let map = Map { at: moved.cast(), len: 200 * PAGE };
        map.store(2 * PAGE, &[2]);
        map.store(150 * PAGE, &[2]);
        naps();
        map.store(3 * PAGE, &[3]);
        // A part goes, a part is replaced by another part of the file.
        assert_eq!(libc::munmap(map.place(10 * PAGE), 10 * PAGE), 0);
        map.store(40 * PAGE, &[4]);
        let over = Map::with(file, 500, 20, libc::PROT_READ, Some(map.at.add(40 * PAGE)));
        naps();
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        assert_eq!(libc::mprotect(over.place(0), over.len, rights), 0);
        over.store(5 * PAGE, &[5; 3 * PAGE]);
        map.store(60 * PAGE, &[6]);
        // In place: shorter, then longer again.
        let same = libc::mremap(map.place(100 * PAGE), 100 * PAGE, 50 * PAGE, 0);
        assert_eq!(same, map.place(100 * PAGE));
        map.store(149 * PAGE, &[7]);
        let same = libc::mremap(map.place(100 * PAGE), 50 * PAGE, 80 * PAGE, 0);
        assert_eq!(same, map.place(100 * PAGE));
        naps();
        map.store(170 * PAGE, &[8]);
        assert_eq!(libc::madvise(map.place(160 * PAGE), 20 * PAGE, libc::MADV_DONTNEED), 0);
        map.store(171 * PAGE, &[9]);
    }
}

fn fork(file: &File) {
    let map = Map::new(file, 0, PAGES);
    map.store(0, &[1; 100]);
    // SAFETY: the child stores, writes and exits; nothing of Rust's is used in between.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            map.store(250 * PAGE, &[2; 100]);
            libc::usleep(150_000);
            map.store(260 * PAGE, &[3; 100]);
            let bytes = [4_u8; 100];
            libc::pwrite(file.as_raw_fd(), bytes.as_ptr().cast(), 100, 270 * PAGE as i64);
            let grandchild = libc::fork();
            if grandchild == 0 {
                map.store(280 * PAGE, &[5; 100]);
                libc::raise(libc::SIGKILL);
            }
            libc::waitpid(grandchild, core::ptr::null_mut(), 0);
            libc::_exit(0);
        }
        map.store(290 * PAGE, &[6; 100]);
        assert_eq!(libc::waitpid(-1, core::ptr::null_mut(), 0), child);
        assert_eq!(libc::waitpid(-1, core::ptr::null_mut(), 0), -1, "no other children");
    }
    map.store(300 * PAGE, &[7; 100]);
    assert!(Command::new("true").status().unwrap().success());
}

fn threads(file: &File) {
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            scope.spawn(move || {
                for round in 0..40_usize {
                    let map = Map::new(file, 0, PAGES);
                    let page = thread * 150 + round * 3;
                    map.store(page * PAGE + 1, &[round as u8 + 1; 20]);
                    file.write_all_at(&[thread as u8 + 1; 30], ((page + 1) * PAGE) as u64).unwrap();
                    // SAFETY: this thread's own mapping, not used any more.
                    assert_eq!(unsafe { libc::munmap(map.place(0), map.len) }, 0);
                }
            });
        }
    });
}

/// Asks for a ring of the kernel's.
fn ask_for_ring() -> i64 {
    // Zeros ask for one without anything special.
    let mut wishes = [0_u64; 15];
    // SAFETY: the structure is at least as long as the kernel's, and lives across the call.
    unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, wishes.as_mut_ptr()) }
}

/// Has a ring for long, or for a moment only.
fn ring(path: &Path, stays: bool) {
    let ring = ask_for_ring();
    if !stays {
        // SAFETY: what was just opened, or nothing.
        unsafe { libc::close(ring as i32) };
    }
    // The guard has the time of a few passes to see it.
    std::thread::sleep(Duration::from_millis(100));
    mark(path, "ready");
    wait_for(path, "go");
    if ring < 0 {
        std::process::exit(77);
    }
}

/// Does without a ring, if it has to.
fn no_ring(file: &File) {
    if ask_for_ring() >= 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS) {
        std::process::exit(78);
    }
    store(file, 9);
}

unsafe extern "C" {
    fn dprintf(fd: RawFd, format: *const core::ffi::c_char, ...) -> i32;
}

/// Writes by functions that nobody calls `write`.
fn prints(file: &File) {
    let fd = file.as_raw_fd();
    let at = |page: usize| (page * PAGE + 17) as i64;
    let bytes = [0x5a_u8; 300];
    // SAFETY: descriptors, texts that end with a zero, buffers that live across the calls.
    unsafe {
        assert_eq!(libc::lseek(fd, at(10), libc::SEEK_SET), at(10));
        assert_eq!(dprintf(fd, c"%s %d %.2f".as_ptr(), c"text".as_ptr(), 7, 2.5_f64), 11);
        // As a standard stream, among other writes.
        let kept = libc::dup(1);
        assert_eq!(libc::lseek(fd, at(200), libc::SEEK_SET), at(200));
        assert_eq!(libc::dup2(fd, 1), 1);
        for round in 0..20 {
            libc::printf(c"line %d\n".as_ptr(), round);
            libc::fflush(core::ptr::null_mut());
            libc::pwrite(fd, bytes.as_ptr().cast(), 300, at(300));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(libc::dup2(kept, 1), 1);
        libc::close(kept);
    }
}

/// Calls that are made by their numbers, among others.
fn numbers(file: &File) {
    let fd = file.as_raw_fd();
    let at = |page: usize| (page * PAGE + 17) as i64;
    let bytes = [0x5a_u8; 300];
    // SAFETY: a descriptor, a mapping that is used while it is there, buffers that live across.
    unsafe {
        let by_number = libc::syscall(libc::SYS_pwrite64, fd, bytes.as_ptr(), 300, at(100));
        assert_eq!(by_number, 300);
        let parts = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: 300 };
        let by_number = libc::syscall(libc::SYS_pwritev, fd, &raw const parts, 1, at(150), 0);
        assert_eq!(by_number, 300);
        let (null, rights) = (core::ptr::null_mut::<u8>(), libc::PROT_READ | libc::PROT_WRITE);
        let shared = libc::MAP_SHARED;
        let map = libc::syscall(libc::SYS_mmap, null, PAGE, rights, shared, fd, 400 * PAGE);
        (map as *mut u8).add(9).write_volatile(9);
        std::thread::sleep(Duration::from_millis(60));
        (map as *mut u8).add(10).write_volatile(10);
        assert_eq!(libc::syscall(libc::SYS_munmap, map, PAGE), 0);
        assert_eq!(libc::syscall(libc::SYS_ftruncate, fd, 590 * PAGE), 0);
    }
}

/// Writes all the time, each time to a page of its own, so that nothing is ever quiet.
fn busy(file: &File, path: &Path) {
    mark(path, "ready");
    let mut round = 0_u64;
    while !beside(path, "go").exists() {
        file.write_all_at(&round.to_le_bytes(), (round % 50) * PAGE as u64).unwrap();
        round += 1;
        std::thread::sleep(Duration::from_micros(200));
    }
}

unsafe extern "C" {
    fn _Fork() -> i32;
}

/// A child by the call that asks nobody to prepare for it.
fn short_fork(file: &File) {
    let map = Map::new(file, 0, PAGES);
    // SAFETY: the child stores and exits.
    unsafe {
        let child = _Fork();
        if child == 0 {
            map.store(250 * PAGE, b"a child of nobody");
            libc::_exit(0);
        }
        assert_eq!(libc::waitpid(-1, core::ptr::null_mut(), 0), child);
    }
    std::thread::sleep(Duration::from_millis(100));
}

/// A child by a bare system call: nobody is told of it.
fn clone(file: &File, path: &Path, millis: u32) {
    let map = Map::new(file, 0, PAGES);
    // SAFETY: the child stores, sleeps and exits.
    unsafe {
        let child = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0);
        if child == 0 {
            map.store(250 * PAGE, b"a child of nobody");
            libc::usleep(millis * 1000);
            libc::_exit(0);
        }
        assert_eq!(libc::waitpid(-1, core::ptr::null_mut(), 0) as i64, child);
    }
    std::thread::sleep(Duration::from_millis(100));
    mark(path, "ready");
}

static HANDLED: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);
static FILE: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(-1);

/// A handler and the program it interrupts do the same things, on pages of their own.
fn signals(file: &File) {
    use std::sync::atomic::Ordering::Relaxed;
    extern "C" fn handler(_: i32) {
        let (round, fd) = (HANDLED.fetch_add(1, Relaxed), FILE.load(Relaxed));
        if round < 200 {
            map_and_write(fd, (round as usize % 100) * 3);
        }
    }
    FILE.store(file.as_raw_fd(), Relaxed);
    // SAFETY: installs a handler that calls functions of the system only, and a timer.
    unsafe {
        libc::signal(libc::SIGALRM, handler as *const () as usize);
        let often = libc::timeval { tv_sec: 0, tv_usec: 700 };
        let timer = libc::itimerval { it_interval: often, it_value: often };
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, core::ptr::null_mut());
    }
    let mut round = 0;
    while HANDLED.load(Relaxed) < 200 || round < 100 {
        map_and_write(file.as_raw_fd(), 300 + round % 100 * 3);
        round += 1;
    }
}

fn map_and_write(fd: RawFd, page: usize) {
    let (at, rights) = ((page * PAGE) as i64, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a mapping that is stored to and given up; a buffer that lives across the call.
    unsafe {
        let null = core::ptr::null_mut();
        let map = libc::mmap(null, PAGE, rights, libc::MAP_SHARED, fd, at).cast::<u8>();
        map.add(9).write_volatile(page as u8 ^ 0xff);
        libc::munmap(map.cast(), PAGE);
        let byte = [page as u8 ^ 0x0f];
        libc::pwrite(fd, byte.as_ptr().cast(), 1, at + PAGE as i64 + 5);
    }
}

fn closes(file: &File) {
    let map = Map::new(file, 0, PAGES);
    map.store(7 * PAGE, &[1; 10]);
    let fd = file.as_raw_fd() as u32;
    // SAFETY: closes descriptors that this program knows nothing of.
    unsafe {
        if fd > 3 {
            libc::syscall(libc::SYS_close_range, 3, fd - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, fd + 1, u32::MAX, 0);
    }
    std::thread::sleep(Duration::from_millis(60));
    map.store(8 * PAGE, &[2; 10]);
    file.write_all_at(&[3; 10], 9 * PAGE as u64).unwrap();
    let again = Map::new(file, 100, 100);
    again.store(5 * PAGE, &[4; 10]);
}

fn direct(file: &File, path: &Path) {
    #[repr(C, align(4096))]
    struct Aligned([u8; 2 * PAGE]);
    let mut options = OpenOptions::new();
    let opened = options.write(true).custom_flags(libc::O_DIRECT).open(path);
    let bytes = Aligned([7; 2 * PAGE]);
    let to = opened.as_ref().unwrap_or(file);
    for page in [3, 40, 41, 590] {
        to.write_all_at(&bytes.0, page * PAGE as u64).unwrap();
    }
}

/// Pages that the storm writes to: three of four, in the lower half.
pub(crate) fn is_hot(page: usize) -> bool {
    page < PAGES / 2 && page % 4 != 3
}

/// Stores and writes, and notes each in a file of its own that nobody guards.
fn storm(file: &File, path: &Path) {
    let oracle = OpenOptions::new().read(true).write(true).open(beside(path, "oracle")).unwrap();
    let (map, noted) = (Map::new(file, 0, PAGES), Map::new(&oracle, 0, PAGES));
    let mut state = 88_172_645_463_325_252_u64;
    mark(path, "ready");
    let mut rounds = 0_u64;
    // On a busy machine it may be told to go on before it has done anything.
    while rounds <= 1000 || !beside(path, "go").exists() {
        for _ in 0..50 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let page = (state % PAGES as u64) as usize;
            if !is_hot(page) {
                continue;
            }
            let at = page * PAGE + (state >> 32) as usize % (PAGE - 8);
            let bytes = state.to_le_bytes();
            if state & 1 << 60 == 0 {
                map.store(at, &bytes);
            } else {
                file.write_all_at(&bytes, at as u64).unwrap();
            }
            noted.store(at, &bytes);
            rounds += 1;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Talks nonsense to whoever guards it.
fn junk(file: &File) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;
    if let Ok(name) = std::env::var("HOLDFAST_GUARD") {
        let _ = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let name = name.as_bytes();
        for round in 0..40_u8 {
            // SAFETY: a socket, an address and a buffer that live across the calls.
            unsafe {
                let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
                let mut to: libc::sockaddr_un = core::mem::zeroed();
                to.sun_family = libc::AF_UNIX as u16;
                for (slot, byte) in to.sun_path[1..].iter_mut().zip(name) {
                    *slot = *byte as i8;
                }
                let len = (3 + name.len()) as u32;
                assert_eq!(libc::connect(socket, (&raw const to).cast(), len), 0);
                let mut bytes = [round.wrapping_mul(37); 200];
                bytes[..8].copy_from_slice(b"hfgw\x01\0\x05\0");
                let len = [64, 64, 3, 200][usize::from(round % 4)];
                libc::send(socket, bytes.as_ptr().cast(), len, libc::MSG_NOSIGNAL);
                libc::recv(socket, bytes.as_mut_ptr().cast(), 200, 0);
                libc::close(socket);
            }
        }
    }
    store(file, 6);
}
