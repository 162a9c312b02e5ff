//! More of what the programs do with streams: reading, writing once, writing all the time.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use super::{PAGE, PAGES, mark, wait_for};

pub(super) fn tell(story: &str, file: &File, path: &Path) -> bool {
    match story {
        "reads by a stream" => once(path, false),
        "writes once by a stream" => once(path, true),
        "prints once" => prints_once(file, path),
        "traces itself" => traces_itself(file, path),
        "closes one of two" => closes_one_of_two(file),
        "streams all the time" => all_the_time(path),
        "a write that stands still" => stands_still(path),
        "streams beside a pass" => beside_a_pass(file, path),
        "streams when told" => {
            mark(path, "ready");
            wait_for(path, "go");
            in_passing(path);
        }
        _ => return false,
    }
    true
}

/// Opens a stream that could write, and leaves it open.
fn once(path: &Path, writes: bool) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut bytes = [5_u8; 300];
    // SAFETY: a stream that is used while it is open; a buffer that lives across the calls.
    unsafe {
        let stream = libc::fopen(name.as_ptr(), c"r+".as_ptr());
        assert!(!stream.is_null());
        assert_eq!(libc::fseek(stream, 40 * PAGE as i64 + 9, libc::SEEK_SET), 0);
        if writes {
            assert_eq!(libc::fwrite(bytes.as_ptr().cast(), 300, 1, stream), 1);
            assert_eq!(libc::fflush(stream), 0);
        } else {
            assert_eq!(libc::fread(bytes.as_mut_ptr().cast(), 300, 1, stream), 1);
        }
        mark(path, "ready");
        wait_for(path, "go");
        assert_eq!(libc::fclose(stream), 0);
    }
}

/// Has the file as a standard stream, prints a line, and leaves it so.
fn prints_once(file: &File, path: &Path) {
    let fd = file.as_raw_fd();
    // SAFETY: descriptors, and a text that ends with a zero.
    unsafe {
        let at = 40 * PAGE as i64 + 9;
        assert_eq!(libc::lseek(fd, at, libc::SEEK_SET), at);
        let kept = libc::fcntl(1, libc::F_DUPFD_CLOEXEC, 100);
        assert_eq!(libc::dup2(fd, 1), 1);
        libc::printf(c"a line\n".as_ptr());
        libc::fflush(core::ptr::null_mut());
        mark(path, "ready");
        wait_for(path, "go");
        assert_eq!(libc::dup2(kept, 1), 1);
    }
}

/// Writes by functions of the C library's that nobody calls `write`, in place and alone.
fn traces_itself(file: &File, path: &Path) {
    let nap = || std::thread::sleep(Duration::from_millis(400));
    let announced = |page: usize| {
        nap();
        file.write_all_at(b"announced", (page * PAGE) as u64).unwrap();
        nap();
    };
    let fd = file.as_raw_fd();
    let to = |page: usize| {
        let at = (page * PAGE + 17) as i64;
        // SAFETY: moves a position.
        assert_eq!(unsafe { libc::lseek(fd, at, libc::SEEK_SET) }, at);
    };
    announced(20);
    to(150);
    // SAFETY: a number of this process, and addresses of its functions, which live across the call.
    unsafe {
        assert_eq!(libc::eventfd_write(fd, 0x1122_3344_5566_7788), 0);
        announced(21);
        to(250);
        let functions = [traces_itself as *const () as *mut libc::c_void; 3];
        libc::backtrace_symbols_fd(functions.as_ptr(), 3, fd);
    }
    announced(22);
    std::fs::copy(path, path.with_extension("oracle")).unwrap();
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

/// Has the file as two standard streams, closes one, and prints to the other among other writes.
fn closes_one_of_two(file: &File) {
    let nap = || std::thread::sleep(Duration::from_millis(400));
    let fd = file.as_raw_fd();
    // SAFETY: descriptors, streams of the C library's, a text that ends with a zero.
    unsafe {
        let kept = [1, 2].map(|number| libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 100));
        for number in [1, 2] {
            assert_eq!(libc::dup2(fd, number), number);
        }
        assert_eq!(libc::fclose(stdout), 0);
        file.write_all_at(b"announced", 20 * PAGE as u64).unwrap();
        nap();
        let at = 250 * PAGE as i64;
        assert_eq!(libc::lseek(fd, at, libc::SEEK_SET), at);
        assert!(libc::fputs(c"a line\n".as_ptr(), stderr) >= 0);
        nap();
        file.write_all_at(b"announced", 300 * PAGE as u64).unwrap();
        nap();
        for (number, kept) in [1, 2].into_iter().zip(kept) {
            assert_eq!(libc::dup2(kept, number), number);
        }
    }
}

/// Writes by a stream, here and there, in small and in large parts.
fn all_the_time(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a stream that is used while it is open; buffers that live across the calls.
    unsafe {
        let stream = libc::fopen(name.as_ptr(), c"r+".as_ptr());
        assert!(!stream.is_null());
        for round in 0..1500 {
            let (page, len) = match round % 50 {
                0 => (round % (PAGES - 64), 60 * PAGE),
                _ => (round * 7 % (PAGES - 1), 100),
            };
            let bytes = vec![round as u8 | 1; len];
            assert_eq!(libc::fseek(stream, (page * PAGE + 3) as i64, libc::SEEK_SET), 0);
            assert_eq!(libc::fwrite(bytes.as_ptr().cast(), 1, len, stream), len);
            assert_eq!(libc::fflush(stream), 0);
            if round % 10 == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        assert_eq!(libc::fclose(stream), 0);
    }
}

/// Writes a little by a stream.
fn in_passing(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a stream that is used while it is open; a buffer that lives across the call.
    unsafe {
        let stream = libc::fopen(name.as_ptr(), c"r+".as_ptr());
        assert_eq!(libc::fseek(stream, 20 * PAGE as i64 + 17, libc::SEEK_SET), 0);
        assert_eq!(libc::fwrite(b"by a stream".as_ptr().cast(), 1, 11, stream), 11);
        assert_eq!(libc::fclose(stream), 0);
    }
    std::thread::sleep(Duration::from_millis(300));
}

/// Writes much, and to another file by a stream while that is covered bit by bit.
fn beside_a_pass(file: &File, path: &Path) {
    file.write_all_at(&[7; PAGES * PAGE], 0).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    in_passing(&path.with_file_name("second.bin"));
}

/// Memory whose second half is filled in only when somebody has waited for it for a while, which is
/// told by the kernel (a user fault). Where that is not permitted, it is filled in at once.
fn slow_memory(pages: usize) -> *mut u8 {
    const NEW: libc::c_ulong = 0xc018_aa3f; // UFFDIO_API
    const REGISTER: libc::c_ulong = 0xc020_aa00;
    const ZERO: libc::c_ulong = 0xc020_aa04; // UFFDIO_ZEROPAGE
    let (len, half) = (pages * PAGE, pages / 2 * PAGE);
    // SAFETY: a new mapping, a new descriptor, and requests as the kernel has them, which live
    // across the calls.
    unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = libc::mmap(core::ptr::null_mut(), len, rights, flags, -1, 0).cast::<u8>();
        at.write_bytes(9, half);
        let slow = at as u64 + half as u64;
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as i32;
        let mut api = [0xaa_u64, 0, 0];
        let mut range = [slow, half as u64, 1, 0];
        if fd < 0
            || libc::ioctl(fd, NEW, api.as_mut_ptr()) != 0
            || libc::ioctl(fd, REGISTER, range.as_mut_ptr()) != 0
        {
            eprintln!("  skipped: nobody may have memory that is slow here");
            return at;
        }
        std::thread::spawn(move || {
            let mut message = [0_u8; 32];
            assert_eq!(libc::read(fd, message.as_mut_ptr().cast(), 32), 32);
            std::thread::sleep(Duration::from_millis(700));
            let mut fill = [slow, half as u64, 0, 0];
            assert_eq!(libc::ioctl(fd, ZERO, fill.as_mut_ptr()), 0);
        });
        at
    }
}

/// A write of which one half is in the file for long before it is over.
fn stands_still(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    let pages = 256;
    let memory = slow_memory(pages);
    // SAFETY: a stream that is used while it is open; memory that lives as long as the process.
    unsafe {
        let stream = libc::fopen(name.as_ptr(), c"r+".as_ptr());
        assert!(!stream.is_null());
        assert_eq!(libc::fseek(stream, 300 * PAGE as i64, libc::SEEK_SET), 0);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(libc::fwrite(memory.cast(), PAGE, pages, stream), pages);
        assert_eq!(libc::fclose(stream), 0);
    }
    std::thread::sleep(Duration::from_millis(200));
}
