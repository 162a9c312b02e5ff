//! A fault handler looks later than the store failed. What was protected then may be open by now,
//! and nobody's: such a store is repeated. What is protected by somebody else is the program's
//! affair, soon or late.
//!
//! Three handlers lie one above the other: the first stops until what is to happen in between has
//! happened, and calls the library's, which passes on to the last what it does not explain.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use common::{Nothing, protected};
use holdfast_pmem::inject::handler_count;
use holdfast_pmem::track::{DirtySource, FirstStore};
use holdfast_pmem::{Mapped, Medium, PAGE, Protect};

/// How many faults were passed on; whether the next is held up; whether one is, until it is not.
static PASSED: AtomicUsize = AtomicUsize::new(0);
static HOLD: AtomicBool = AtomicBool::new(false);
static HELD: AtomicBool = AtomicBool::new(false);
/// How long each fault is held up.
static SLOW: AtomicUsize = AtomicUsize::new(0);
/// The library's handler.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// All of these tests look at these.
static TURN: Mutex<()> = Mutex::new(());

const PAGES: u64 = 16;
/// Before a fault is passed on, it may be repeated so many times.
const MOST: u64 = 2048;

type Full = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

extern "C" fn stop(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if HOLD.swap(false, Ordering::SeqCst) {
        HELD.store(true, Ordering::SeqCst);
        while HELD.load(Ordering::SeqCst) {
            core::hint::spin_loop();
        }
    }
    (0..SLOW.load(Ordering::SeqCst)).for_each(|_| core::hint::spin_loop());
    // SAFETY: the action that was there before, which has this form.
    let next: Full = unsafe { core::mem::transmute(NEXT.load(Ordering::SeqCst)) };
    next(signal, info, context);
}

extern "C" fn open_up(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    PASSED.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the kernel's structure; a page that one of these tests has protected.
    unsafe { rights((*info).si_addr() as usize, 1, libc::PROT_READ | libc::PROT_WRITE) };
}

/// # Safety
/// The pages are those of a test.
unsafe fn rights(at: usize, pages: u64, rights: c_int) {
    let page = ptr::with_exposed_provenance_mut(at & !(PAGE as usize - 1));
    // SAFETY: the caller's promise.
    assert_eq!(unsafe { libc::mprotect(page, (pages * PAGE) as usize, rights) }, 0);
}

fn install(handler: Full) -> usize {
    // SAFETY: a handler of this form, async-signal-safe; the old action is one as well, or none.
    unsafe {
        let (mut new, mut old): (libc::sigaction, libc::sigaction) = core::mem::zeroed();
        new.sa_sigaction = handler as *const () as usize;
        new.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const new, &raw mut old), 0);
        old.sa_sigaction
    }
}

/// A medium, its first address, and a source over it, with all handlers in place.
fn world() -> (MutexGuard<'static, ()>, Arc<Mapped>, usize, FirstStore) {
    static ONCE: Once = Once::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    ONCE.call_once(|| {
        install(open_up);
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let medium = Mapped::create(&path, PAGES * PAGE, &protected(Protect::None)).unwrap();
    let medium = Arc::new(medium);
    let source = FirstStore::of(Arc::clone(&medium), Arc::new(Nothing)).unwrap();
    if NEXT.load(Ordering::SeqCst) == 0 {
        NEXT.store(install(stop), Ordering::SeqCst);
    }
    PASSED.store(0, Ordering::SeqCst);
    let base = medium.view(0, PAGES * PAGE).unwrap().expose_provenance();
    (turn, medium, base, source)
}

fn word(base: usize, page: u64) -> &'static AtomicU64 {
    let at = base + (page * PAGE) as usize;
    // SAFETY: a page of the medium of a test, which outlives its use there.
    unsafe { AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(at)) }
}

/// Stores to a page that is protected. What happens before the handler looks is `between`.
fn held_up(base: usize, page: u64, between: impl FnOnce()) {
    let before = word(base, page).load(Ordering::SeqCst);
    HOLD.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| word(base, page).fetch_add(1, Ordering::SeqCst));
        while !HELD.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        between();
        HELD.store(false, Ordering::SeqCst);
    });
    assert_eq!(word(base, page).load(Ordering::SeqCst), before + 1);
}

fn passed() -> usize {
    PASSED.swap(0, Ordering::SeqCst)
}

#[test]
fn a_store_is_repeated_if_its_page_was_disarmed_before_the_handler_looks() {
    let (_turn, _medium, base, source) = world();
    for _ in 0..3 {
        source.arm(0, PAGES * PAGE).unwrap();
        held_up(base, 3, || source.disarm(3 * PAGE, PAGE).unwrap());
        held_up(base, 4, || source.disarm(0, PAGES * PAGE).unwrap());
        assert_eq!(passed(), 0, "it was no fault of the program's");
    }
    source.arm(0, PAGES * PAGE).unwrap();
    held_up(base, 3, || {
        source.disarm(0, PAGES * PAGE).unwrap();
        source.arm(0, PAGES * PAGE).unwrap();
    });
    let mut told = Vec::new();
    source.take(0, PAGES * PAGE, &mut |_, _| {}).unwrap();
    held_up(base, 5, || {});
    source.peek(0, PAGES * PAGE, &mut |at, len| told.push((at, len))).unwrap();
    assert_eq!((passed(), told), (0, vec![(5 * PAGE, PAGE)]));
}

#[test]
fn a_store_is_repeated_if_its_source_is_gone_before_the_handler_looks() {
    let (_turn, medium, base, mut source) = world();
    let next = || FirstStore::of(Arc::clone(&medium), Arc::new(Nothing)).unwrap();
    for _ in 0..3 {
        source.arm(0, PAGES * PAGE).unwrap();
        held_up(base, 3, || drop(source));
        assert_eq!(passed(), 0, "it was no fault of the program's");
        source = next();
    }
    // The seat is another one's by then, over the same pages, which it does not track.
    source.arm(0, PAGES * PAGE).unwrap();
    let mut other = None;
    held_up(base, 3, || {
        drop(source);
        other = Some(next());
    });
    assert_eq!(passed(), 0);
}

#[test]
fn stores_go_on_while_their_page_is_armed_and_disarmed() {
    let (_turn, medium, base, source) = world();
    let over = AtomicBool::new(false);
    SLOW.store(500, Ordering::SeqCst);
    let end = Instant::now() + Duration::from_secs(2);
    thread::scope(|scope| {
        let stored = scope.spawn(|| {
            let mut stored = 0;
            while !over.load(Ordering::Acquire) {
                word(base, 3).fetch_add(1, Ordering::Relaxed);
                stored += 1;
            }
            stored
        });
        let mut source = Some(source);
        while passed() == 0 && Instant::now() < end {
            for _ in 0..100 {
                let now = source.as_ref().unwrap();
                now.arm(0, PAGES * PAGE).unwrap();
                now.disarm(0, PAGES * PAGE).unwrap();
            }
            source.as_ref().unwrap().arm(0, PAGES * PAGE).unwrap();
            drop(source.take());
            source = Some(FirstStore::of(Arc::clone(&medium), Arc::new(Nothing)).unwrap());
        }
        over.store(true, Ordering::Release);
        SLOW.store(0, Ordering::SeqCst);
        assert_eq!(stored.join().unwrap(), word(base, 3).load(Ordering::Relaxed));
    });
    assert!(Instant::now() >= end, "a fault was passed on that was not the program's");
}

#[test]
fn what_is_protected_by_somebody_else_is_passed_on() {
    let (_turn, _medium, base, source) = world();
    let protect = |page: u64| {
        // SAFETY: a page of this test's medium, to which the handler gives its rights back.
        unsafe { rights(base + (page * PAGE) as usize, 1, libc::PROT_READ) };
    };
    let store = |page: u64| {
        let before = handler_count();
        word(base, page).fetch_add(1, Ordering::SeqCst);
        handler_count() - before
    };
    // Never tracked: at once, but for the sources of other tests that were there.
    protect(1);
    store(1);
    assert_eq!(passed(), 1);
    protect(1);
    assert_eq!((store(1), passed()), (1, 1));
    // Open, and let go of: late, but not more than once.
    source.arm(0, PAGES * PAGE).unwrap();
    assert_eq!((store(2), passed()), (1, 0));
    source.disarm(3 * PAGE, PAGE).unwrap();
    for page in [2, 3] {
        protect(page);
        let rounds = store(page);
        assert!((2..=MOST).contains(&rounds), "{rounds}");
        assert_eq!(passed(), 1);
        protect(page);
        assert_eq!((store(page), passed()), (1, 1));
    }
    // What others do meanwhile on other pages prolongs nothing.
    source.arm(0, PAGES * PAGE).unwrap();
    source.disarm(0, 4 * PAGE).unwrap();
    let pages = [0, 1, 2, 3];
    pages.into_iter().for_each(protect);
    let before = handler_count();
    thread::scope(|scope| {
        for page in pages {
            scope.spawn(move || word(base, page).fetch_add(1, Ordering::SeqCst));
        }
        for _ in 0..1000 {
            word(base, 5).fetch_add(1, Ordering::SeqCst);
            source.take(4 * PAGE, 4 * PAGE, &mut |_, _| {}).unwrap();
        }
    });
    let rounds = handler_count() - before;
    assert!(rounds <= 4 * MOST + 1000, "{rounds}");
    assert_eq!(passed(), 4);
    // And where a source was.
    drop(source);
    protect(7);
    let rounds = store(7);
    assert!((2..=64 * MOST).contains(&rounds), "{rounds}");
    protect(7);
    assert_eq!((store(7), passed()), (1, 2));
}
