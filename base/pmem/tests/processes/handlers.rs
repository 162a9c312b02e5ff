//! Handlers that the program had installed before go on getting what is theirs.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::os::fd::AsRawFd;
use std::path::Path;

use holdfast_pmem::inject::{Poison, handler_count, poison};
use holdfast_pmem::{Access, Mapped, Medium, Options, PAGE};

use crate::common::folders;
use crate::{DONE, Role, Story, closed_file, dies_of, ends_with};

pub(crate) const STORIES: &[Story] = &[
    ("foreign_faults_reach_the_earlier_handler", foreign_faults_reach_the_earlier_handler),
    ("signals_sent_by_processes_keep_their_meaning", signals_sent_by_processes_keep_their_meaning),
];

pub(crate) const ROLES: &[Role] = &[
    ("foreign-bus", foreign_bus),
    ("foreign-segv", foreign_segv),
    ("ours-unhealed", ours_unhealed),
    ("foreign-default", foreign_default),
    ("sent-default", sent_default),
    ("sent-ignored", sent_ignored),
];

const REACHED: i32 = 40;

fn foreign_faults_reach_the_earlier_handler() {
    let [disk, _] = folders().try_into().unwrap();
    let path = closed_file(&disk);
    ends_with("foreign-bus", &path, REACHED + libc::SIGBUS);
    ends_with("foreign-segv", &path, REACHED + libc::SIGSEGV);
    ends_with("ours-unhealed", &path, REACHED + libc::SIGBUS);
    dies_of("foreign-default", &path, libc::SIGBUS);
}

fn signals_sent_by_processes_keep_their_meaning() {
    let [disk, _] = folders().try_into().unwrap();
    let path = closed_file(&disk);
    dies_of("sent-default", &path, libc::SIGBUS);
    ends_with("sent-ignored", &path, DONE);
}

/// The address the earlier handler expects; the exit code tells that it was called with it.
static EXPECTED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn earlier(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel's structure; `_exit` is async-signal-safe.
    unsafe {
        let right = (*info).si_addr() as usize == EXPECTED.load(Ordering::Relaxed);
        libc::_exit(if right { REACHED + signal } else { REACHED });
    }
}

/// The old form without details.
extern "C" fn earlier_plain(signal: c_int) {
    // SAFETY: `_exit` is async-signal-safe.
    unsafe { libc::_exit(REACHED + signal) }
}

fn install(signal: c_int, action: usize, flags: c_int) {
    // SAFETY: a zeroed sigaction is valid; the action has the form the flags promise.
    unsafe {
        let mut new: libc::sigaction = core::mem::zeroed();
        new.sa_sigaction = action;
        new.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &raw const new, core::ptr::null_mut()), 0);
    }
}

fn open(file: &Path) -> Mapped {
    Mapped::open(file, Access::Write, &Options::default()).unwrap()
}

/// A mapping of one page of a file that has none.
fn foreign_page() -> *const u8 {
    let empty = tempfile::tempfile().unwrap();
    // SAFETY: a new mapping wherever the kernel likes.
    let address = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            PAGE as usize,
            libc::PROT_READ,
            libc::MAP_SHARED,
            empty.as_raw_fd(),
            0,
        )
    };
    assert_ne!(address, libc::MAP_FAILED);
    address.cast_const().cast()
}

fn touch(address: *const u8) -> i32 {
    EXPECTED.store(address as usize, Ordering::Relaxed);
    // SAFETY: deliberately none: the load is made to fault.
    i32::from(unsafe { address.read_volatile() })
}

fn foreign_bus(file: &Path) -> i32 {
    install(libc::SIGBUS, earlier as *const () as usize, libc::SA_SIGINFO);
    let medium = open(file);
    // Ours first: it must not reach the earlier handler.
    poison(&medium, PAGE, PAGE, Poison::Clearable).unwrap();
    assert!(medium.read(PAGE, &mut [0]).is_err());
    touch(foreign_page())
}

fn foreign_segv(file: &Path) -> i32 {
    install(libc::SIGSEGV, earlier_plain as *const () as usize, 0);
    let _medium = open(file);
    touch(core::ptr::without_provenance(64))
}

fn ours_unhealed(file: &Path) -> i32 {
    install(libc::SIGBUS, earlier as *const () as usize, libc::SA_SIGINFO);
    let medium = open(file);
    poison(&medium, PAGE, PAGE, Poison::Clearable).unwrap();
    touch(medium.view(PAGE + 9, 1).unwrap())
}

fn foreign_default(file: &Path) -> i32 {
    install(libc::SIGBUS, libc::SIG_DFL, 0);
    let _medium = open(file);
    touch(foreign_page())
}

fn send(signal: c_int) {
    // SAFETY: sends a signal to this process.
    assert_eq!(unsafe { libc::kill(libc::getpid(), signal) }, 0);
}

fn sent_default(file: &Path) -> i32 {
    install(libc::SIGBUS, libc::SIG_DFL, 0);
    let _medium = open(file);
    send(libc::SIGBUS);
    DONE
}

fn sent_ignored(file: &Path) -> i32 {
    install(libc::SIGBUS, libc::SIG_IGN, 0);
    let medium = open(file);
    send(libc::SIGBUS);
    assert_eq!(handler_count(), 1);
    // And ours still works afterwards.
    poison(&medium, PAGE, PAGE, Poison::Clearable).unwrap();
    assert!(medium.read(PAGE, &mut [0]).is_err());
    DONE
}
