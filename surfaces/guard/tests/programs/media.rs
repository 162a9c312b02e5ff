//! Media errors under the program's loads. They are made by mapping a file without bytes over one
//! page, by a system call that no hook sees: the kernel signals as it does for a page it has lost.
//! Where the kernel can poison memory, a true one is made as well.

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::checks::{is_good, options, place, run_of};
use crate::stories::{PAGE, PAGES};

static FAULTS: AtomicUsize = AtomicUsize::new(0);

/// The program's own handler: gives whatever failed an empty page.
extern "C" fn own(_: i32, info: *mut libc::siginfo_t, _: *mut c_void) {
    FAULTS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the address of the fault; a page of its own takes the place of one without bytes.
    unsafe {
        let at = ((*info).si_addr() as usize & !(PAGE - 1)) as *mut c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::syscall(libc::SYS_mmap, at, PAGE, libc::PROT_READ, flags, -1, 0);
    }
}

fn own_action() -> libc::sigaction {
    // SAFETY: all zeros is a valid action; the handler has the signature that its flag says.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) = own;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO;
    action
}

fn map(fd: i32) -> *mut u8 {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(null_mut(), PAGES * PAGE, rights, libc::MAP_SHARED, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

/// Has every access to a page fail, behind everybody's back.
fn fail(at: *mut u8) {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: takes the place of a page of the caller's mapping.
    unsafe {
        let empty = libc::memfd_create(c"nothing".as_ptr(), 0);
        let done: usize;
        core::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_mmap as usize => done,
            in("rdi") at, in("rsi") PAGE, in("rdx") i64::from(libc::PROT_READ),
            in("r10") i64::from(flags), in("r8") i64::from(empty), in("r9") 0,
            out("rcx") _, out("r11") _,
        );
        assert_eq!(done, at as usize);
    }
}

fn load(at: *mut u8) -> u8 {
    // SAFETY: an address of a mapping; what fails is signalled.
    unsafe { at.read_volatile() }
}

pub(crate) fn tell(story: &str, path: &Path) {
    let file = &OpenOptions::new().read(true).write(true).open(path).unwrap();
    let base = map(file.as_raw_fd());
    let page = |page: usize| base.wrapping_add(page * PAGE);
    let mut before = own_action();
    // SAFETY: sets an action of this program, and reads what it is.
    unsafe {
        assert_eq!(libc::sigaction(libc::SIGBUS, &own_action(), null_mut()), 0);
        assert_eq!(libc::sigaction(libc::SIGBUS, core::ptr::null(), &mut before), 0);
    }
    assert_eq!(before.sa_sigaction, own_action().sa_sigaction, "it sees its own action");
    // SAFETY: inside the mapping.
    unsafe { page(50).write_volatile(77) };
    std::thread::sleep(std::time::Duration::from_millis(200));
    // Not guarded: its faults are the program's.
    let copy = tempfile::tempfile().unwrap();
    copy.set_len((PAGES * PAGE) as u64).unwrap();
    let other = map(copy.as_raw_fd());
    match story {
        "media" => {
            for healed in [50, 51, 52] {
                let expected = file_byte(file, healed);
                fail(page(healed));
                assert_eq!(load(page(healed)), expected, "page {healed}");
                // SAFETY: inside the mapping.
                unsafe { page(healed).add(9).write_volatile(99) };
            }
            assert_eq!(FAULTS.load(Ordering::SeqCst), 0, "the program noticed");
            fail(other);
            assert_eq!((load(other), FAULTS.load(Ordering::SeqCst)), (0, 1), "its own handler");
        }
        _ => {
            // SAFETY: poisons memory behind a page of the mapping, if that is permitted.
            let done = unsafe { libc::madvise(page(60).cast(), PAGE, libc::MADV_HWPOISON) };
            if done != 0 {
                std::process::exit(77);
            }
            assert_eq!(load(page(60)), first_byte(60), "it was given back");
        }
    }
}

/// Of a page nobody wrote to.
fn first_byte(page: usize) -> u8 {
    let at = page * PAGE;
    (at / 13 + page * 31 + at) as u8
}

fn file_byte(file: &File, page: usize) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, (page * PAGE) as u64).unwrap();
    byte[0]
}

fn byte(path: &Path, page: usize, at: usize) -> u8 {
    let mut byte = [0];
    let file = OpenOptions::new().read(true).open(path).unwrap();
    file.read_exact_at(&mut byte, (page * PAGE + at) as u64).unwrap();
    byte[0]
}

/// The stories of this file are told by this very program: they make calls of their own.
fn me() -> std::path::PathBuf {
    std::env::current_exe().unwrap()
}

/// A load completes, the program notices nothing, and what it stores there afterwards is seen.
pub(crate) fn mapped_anew() {
    let place = place();
    let (summary, report) = run_of(&me(), "media", &place.file, options());
    assert!(summary.status.success(), "{summary}");
    for page in [50, 51, 52] {
        assert_eq!(byte(&place.file, page, 9), 99, "{summary}");
    }
    assert_eq!(byte(&place.file, 50, 0), 77);
    assert_eq!((report.counts.corrupt, report.lost), (0, 0), "{summary}");
    assert!(report.closed && report.contested.is_empty(), "{summary}");
    assert!(report.doubtful.iter().all(|(page, _)| (50..53).contains(page)), "{summary}");
}

/// Memory that is truly lost.
pub(crate) fn poisoned() {
    let place = place();
    let (summary, report) = run_of(&me(), "poison", &place.file, options());
    if summary.status.code() == Some(77) {
        println!("  skipped: this kernel poisons no memory (CONFIG_MEMORY_FAILURE), or not for us");
        return;
    }
    assert!(summary.status.success() && is_good(&summary, &report), "{summary}");
    assert_eq!(report.counts.repaired, 1, "{summary}");
}
