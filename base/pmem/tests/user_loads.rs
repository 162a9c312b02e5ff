//! A load by the program that meets a bad page waits for the repair thread and is then completed.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::{HERE, filled, folders, numbered, protected};
use holdfast_pmem::inject::{Poison, poison};
use holdfast_pmem::{Mapped, Medium, PAGE, Protect, Verdict};

/// Loads one byte through the program's view.
fn load(medium: &Mapped, at: u64) -> u8 {
    let address = medium.view(at, 1).unwrap();
    // SAFETY: the address lies in the mapping, which outlives the load; nobody stores there.
    unsafe { address.read_volatile() }
}

/// Heals every fault with the number of its page, until told to stop; returns how many.
fn repair_until(medium: &Mapped, stop: &AtomicBool) -> usize {
    let mailbox = medium.faults();
    let mut healed = 0;
    while !stop.load(Ordering::Acquire) {
        let Some(fault) = mailbox.wait(Duration::from_millis(20)) else { continue };
        assert_eq!((fault.at % PAGE, fault.len), (0, PAGE));
        assert_ne!(fault.thread, 0);
        medium.heal(HERE, fault.at, &filled((fault.at / PAGE) as u8)).unwrap();
        mailbox.answer(fault, Verdict::Healed);
        healed += 1;
    }
    healed
}

/// Runs `load` beside a repair thread.
fn beside_repair(medium: &Mapped, loads: impl FnOnce()) -> usize {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // Attached before the first load, or that would be fatal.
        let mailbox = medium.faults();
        let repair = scope.spawn(|| repair_until(medium, &stop));
        loads();
        stop.store(true, Ordering::Release);
        let healed = repair.join().unwrap();
        drop(mailbox);
        healed
    })
}

#[test]
fn the_load_completes_with_the_healed_byte() {
    for folder in folders() {
        for protection in [Protect::Auto, Protect::Alias, Protect::None] {
            let folder = tempfile::tempdir_in(folder.path()).unwrap();
            let (_, medium) = numbered(&folder, 16, &protected(protection));
            let healed = beside_repair(&medium, || {
                for page in [3, 9, 15] {
                    poison(&medium, page * PAGE, PAGE, Poison::Clearable).unwrap();
                    assert_eq!(load(&medium, page * PAGE + 1234), page as u8);
                }
                assert_eq!(load(&medium, 4 * PAGE), 4);
            });
            assert_eq!(healed, 3);
            assert!(medium.bad_ranges().is_empty());
        }
    }
}

#[test]
fn a_page_poisoned_again_and_again_is_healed_again_and_again() {
    let (_folder, medium) = {
        let folder = tempfile::tempdir().unwrap();
        let (_, medium) = numbered(&folder, 4, &protected(Protect::Alias));
        (folder, medium)
    };
    let healed = beside_repair(&medium, || {
        for _ in 0..50 {
            poison(&medium, 2 * PAGE, PAGE, Poison::Clearable).unwrap();
            assert_eq!(load(&medium, 2 * PAGE + 8), 2);
        }
    });
    assert_eq!(healed, 50);
}

#[test]
fn more_threads_than_places_to_wait_all_complete() {
    const THREADS: u64 = 48;
    let folder = tempfile::tempdir().unwrap();
    let (_, medium) = numbered(&folder, THREADS, &protected(Protect::Alias));
    poison(&medium, 0, THREADS * PAGE, Poison::Clearable).unwrap();
    let right = AtomicUsize::new(0);
    let healed = beside_repair(&medium, || {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (medium, right) = (&medium, &right);
                scope.spawn(move || {
                    // One page all share, and one of its own.
                    for page in [0, thread] {
                        if load(medium, page * PAGE + 8 * thread) == page as u8 {
                            right.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
    });
    assert_eq!(right.into_inner(), 2 * THREADS as usize);
    assert!(healed >= THREADS as usize, "{healed}");
}
