//! What a program had installed for faults before a pool was opened is called for what is none of
//! ours, in whichever form it was installed.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{numbered, protected};
use holdfast_pmem::inject::signal_bus;
use holdfast_pmem::{Medium, PAGE, Protect};

/// A page without rights, and how often somebody gave it some.
static CLOSED: AtomicUsize = AtomicUsize::new(0);
static OPENED: AtomicUsize = AtomicUsize::new(0);

/// The older form, without knowledge of where the fault was.
extern "C" fn open_up(_: c_int) {
    OPENED.fetch_add(1, Ordering::SeqCst);
    let page = CLOSED.load(Ordering::SeqCst) as *mut c_void;
    // SAFETY: the page of this test, mapped as long as the process lives.
    unsafe { libc::mprotect(page, PAGE as usize, libc::PROT_READ | libc::PROT_WRITE) };
}

fn close(rights: c_int) {
    let page = CLOSED.load(Ordering::SeqCst) as *mut c_void;
    // SAFETY: as above.
    assert_eq!(unsafe { libc::mprotect(page, PAGE as usize, rights) }, 0);
}

#[test]
fn they_are_called_for_what_is_not_ours() {
    // SAFETY: a new mapping of nobody; a handler that touches what is async-signal-safe only.
    let page = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(ptr::null_mut(), PAGE as usize, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        let mut plain: libc::sigaction = core::mem::zeroed();
        plain.sa_sigaction = open_up as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const plain, ptr::null_mut()), 0);
        assert_ne!(libc::signal(libc::SIGBUS, libc::SIG_IGN), libc::SIG_ERR);
        page
    };
    CLOSED.store(page as usize, Ordering::SeqCst);
    let folder = tempfile::tempdir().unwrap();
    let (_, medium) = numbered(&folder, 2, &protected(Protect::Mprotect));
    // SAFETY: the page of this test; the fault is mended by the handler, and the load repeated.
    assert_eq!(unsafe { page.cast::<u64>().read_volatile() }, 0);
    assert_eq!(OPENED.load(Ordering::SeqCst), 1);
    // A store to a page that may only be read: that might have been one of a tracked mapping.
    close(libc::PROT_READ);
    // SAFETY: as above.
    unsafe { page.cast::<u64>().write_volatile(7) };
    assert_eq!(OPENED.load(Ordering::SeqCst), 2);
    // SAFETY: sends a signal to this thread, which the program had asked to be ignored.
    assert_eq!(unsafe { libc::raise(libc::SIGBUS) }, 0);
    let mut first = [9; 8];
    medium.read(0, &mut first).unwrap();
    assert_eq!(first, [0; 8], "and the pool is served as ever");

    // A stray store to the program's view of the pool is the program's affair.
    let view = medium.view(PAGE, PAGE).unwrap().cast_mut();
    CLOSED.store(view.expose_provenance(), Ordering::SeqCst);
    // SAFETY: the view of a page that nobody else uses, which the handler opens.
    unsafe { view.write_volatile(7) };
    assert_eq!(OPENED.load(Ordering::SeqCst), 3);
    // A page that the system found bad without anybody's touching it.
    assert!(medium.bad_ranges().is_empty());
    signal_bus(FOUND_BAD, view.expose_provenance(), 12);
    assert_eq!(medium.bad_ranges(), [(PAGE, PAGE)]);
    // An address that is none is no failure of the medium. It is not to be ignored either, as it
    // could not be: what comes next would end the program.
    signal_bus(NOT_ALIGNED, view.expose_provenance(), 12);
    // SAFETY: asks what there is, by putting the same.
    assert_eq!(unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) }, libc::SIG_DFL);
    assert_eq!(medium.bad_ranges(), [(PAGE, PAGE)]);
}

/// Codes of `SIGBUS`: an address that is not aligned, and memory that the system found bad.
const NOT_ALIGNED: i32 = 1;
const FOUND_BAD: i32 = 5;
