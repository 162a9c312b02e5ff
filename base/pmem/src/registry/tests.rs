//! The mailbox without signals: threads call what the handler calls.

use super::*;
use core::sync::atomic::AtomicU64;
use std::thread;

/// Ranges far from any mapping; one per test, since the table is shared.
fn registration(base: usize) -> Registration {
    Registration::claim(base, base + 0x4000_0000, 0x1000_0000, 4096, 77).unwrap()
}

fn fault(at: u64, thread: u32) -> Fault {
    Fault { at, len: PAGE, thread, memory: None }
}

#[test]
fn addresses_of_both_views_are_found_until_retired() {
    let owner = registration(0x1_0000_0000);
    let found = |address| find(address).map(|(_, at)| at);
    assert_eq!(found(0x1_0000_0000), Some(0));
    assert_eq!(found(0x1_4000_1234), Some(0x1234));
    assert_eq!(found(0x1_0000_0000 - 1), None);
    assert_eq!(found(0x1_1000_0000), None, "the first address behind the span");
    assert!(owner.entry().is_of(77) && !owner.entry().is_of(78));
    owner.retire();
    assert_eq!(found(0x1_0000_0000), None);
}

#[test]
fn without_a_repair_thread_nobody_waits() {
    let owner = registration(0x2_0000_0000);
    assert_eq!(owner.entry().park(fault(0, 5), || 0), Verdict::Lost);
    owner.entry().attach();
    owner.entry().detach();
    assert_eq!(owner.entry().park(fault(0, 5), || 0), Verdict::Lost);
}

#[test]
fn the_repair_thread_does_not_wait_for_itself() {
    let owner = registration(0x3_0000_0000);
    owner.entry().attach();
    assert_eq!(owner.entry().wait(Duration::ZERO), None);
    assert_eq!(owner.entry().park(fault(0, this_thread()), || 0), Verdict::Lost);
}

#[test]
fn threads_waiting_for_one_page_are_answered_together() {
    let owner = registration(0x4_0000_0000);
    let entry = owner.entry();
    entry.attach();
    thread::scope(|scope| {
        let waiting: Vec<_> = (1..=5)
            .map(|thread| scope.spawn(move || entry.park(fault(PAGE, thread), || 0)))
            .collect();
        let other = scope.spawn(|| entry.park(fault(9 * PAGE, 9), || 0));
        let all_posted = || {
            let waits = |state: State| state.is_posted() || state.is_taken();
            let posted = entry.parked.iter().filter(|slot| waits(slot.look()));
            posted.count() == 6
        };
        while !all_posted() {
            thread::yield_now();
        }
        let mut taken: Vec<_> =
            (0..2).map(|_| entry.wait(Duration::from_secs(5)).unwrap().at).collect();
        taken.sort_unstable();
        assert_eq!(taken, [PAGE, 9 * PAGE]);
        assert_eq!(entry.wait(Duration::ZERO), None, "the other four need no repair of their own");
        entry.answer(PAGE, PAGE, Verdict::Healed);
        for thread in waiting {
            assert_eq!(thread.join().unwrap(), Verdict::Healed);
        }
        assert!(!other.is_finished());
        entry.detach();
        assert_eq!(other.join().unwrap(), Verdict::Lost, "the repair thread went away");
    });
}

#[test]
fn a_thread_told_healed_in_vain_is_given_up() {
    let owner = registration(0x5_0000_0000);
    let entry = owner.entry();
    entry.attach();
    let clock = AtomicU64::new(1 << 40);
    let turns = |thread: u32, step: u64| {
        // The repairer is another thread than the faulting number.
        let mut healed = 0;
        thread::scope(|scope| {
            let faulting = scope.spawn(|| {
                let mut healed = 0;
                while healed < 30 {
                    clock.fetch_add(step, Ordering::Relaxed);
                    let now = || clock.load(Ordering::Relaxed);
                    if entry.park(fault(3 * PAGE, thread), now) == Verdict::Lost {
                        break;
                    }
                    healed += 1;
                }
                healed
            });
            while !faulting.is_finished() {
                if let Some(fault) = entry.wait(Duration::from_millis(1)) {
                    entry.answer(fault.at, fault.len, Verdict::Healed);
                }
            }
            healed = faulting.join().unwrap();
        });
        healed
    };
    assert_eq!(turns(1_000_001, 1000), MOST_TURNS);
    assert_eq!(turns(1_000_001, 1000), 0, "still the same loop");
    entry.forget_turns(3 * PAGE, PAGE);
    assert_eq!(turns(1_000_001, 1000), MOST_TURNS, "poisoned anew");
    assert_eq!(turns(1_000_001, 2 * TURN_WINDOW), 30, "far apart: separate events");
}

#[test]
fn bad_pages_are_remembered_once_and_forgotten_when_good() {
    let owner = registration(0x6_0000_0000);
    let entry = owner.entry();
    for at in [0, 5, 8192 + 17, 8192] {
        entry.note_bad(at);
    }
    let mut pages: Vec<_> = entry.bad_pages().collect();
    pages.sort_unstable();
    assert_eq!(pages, [0, 8192]);
    entry.note_good(0, PAGE);
    assert_eq!(entry.bad_pages().collect::<Vec<_>>(), [8192]);
    for page in 0..1000 {
        entry.note_bad(page * PAGE);
    }
    assert_eq!(entry.bad_pages().count(), KNOWN_BAD);
    entry.note_good(0, 1000 * PAGE);
    assert_eq!(entry.bad_pages().count(), 0);
}

/// Two repair threads: one has looked at a fault and goes to take it, or to answer it, while the
/// other one answers it, and the same place is given to a thread that met another page.
#[test]
fn a_place_that_was_given_anew_is_another_one() {
    let owner = registration(0xa_0000_0000);
    let slot = &owner.entry().parked[0];
    let first = slot.claim().unwrap();
    slot.post(first, fault(PAGE, 1));
    let (seen, met) = (slot.look(), slot.fault());
    assert!(seen.is_posted() && met.at == PAGE);
    assert!(slot.give(slot.look(), Verdict::Healed));
    assert!(slot.leave(slot.look()));
    let second = slot.claim().unwrap();
    slot.post(second, fault(2 * PAGE, 2));
    assert!(!slot.take(seen), "nobody would repair the second page");
    assert!(!slot.give(seen, Verdict::Lost), "the answer is about another page");
    assert!(slot.look().is_posted() && slot.take(slot.look()));
    assert!(slot.give(slot.look(), Verdict::Healed) && slot.leave(slot.look()));
}

/// That a page can be read in by now says nothing of what its memory lost.
#[test]
fn who_met_failed_memory_is_not_answered_with_those_who_could_not_read_in() {
    let owner = registration(0x9_0000_0000);
    let entry = owner.entry();
    entry.attach();
    thread::scope(|scope| {
        let unread = scope.spawn(|| entry.park(fault(PAGE, 1), || 0));
        let first = loop {
            if let Some(first) = entry.wait(Duration::from_millis(20)) {
                break first;
            }
        };
        let failed = Fault { memory: Some(7), ..fault(PAGE, 2) };
        let failed = scope.spawn(move || entry.park(failed, || 0));
        let posted = |slot: &Slot| slot.look().is_posted();
        while !entry.parked.iter().any(posted) {
            thread::yield_now();
        }
        entry.answer_fault(first, Verdict::Healed);
        assert_eq!(unread.join().unwrap(), Verdict::Healed);
        let second = entry.wait(Duration::from_secs(20)).expect("it waits still");
        assert_eq!((second.memory, second.thread), (Some(7), 2));
        entry.answer_fault(second, Verdict::Lost);
        assert_eq!(failed.join().unwrap(), Verdict::Lost);
    });
}
