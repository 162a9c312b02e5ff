//! Stores, passes and repairs among each other: what was stored to is covered, what was not is
//! verified first, and a repair gives way to a store.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use crate::common::{Machine, STORE, Stopped, boot, content, tiny};
use holdfast_faultmem::Clear;
use holdfast_mapped::{AtRest, Durability, Force, Mended, OpenOptions, ProtectOptions, Writing};
use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::events::{Finder, Outcome};
use holdfast_redundancy::{PageVerdict, Unsure};

const SIZE: u64 = 19 * PAGE + 100;

fn admitted(machine: &Machine, parity: u32) -> crate::common::Engine {
    let engine = machine.protect(&tiny(parity));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    engine
}

fn quick() -> OpenOptions {
    boot(1, Durability::Process)
}

#[test]
fn what_was_stored_to_is_covered_by_the_next_pass_and_comes_back() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = admitted(&machine, 1);
    assert_eq!(engine.pass().unwrap().regions, 0, "nobody stored, nothing is written");
    let stores = machine.medium.counters().stores;
    engine.pass().unwrap();
    assert_eq!(machine.medium.counters().stores, stores);
    machine.store(3, 1);
    machine.store(9, 1);
    let uncovered = PageVerdict::Undecided(Unsure::Uncovered);
    assert_eq!(engine.verify(3).unwrap().verdict, uncovered);
    let coverage = engine.coverage().unwrap();
    assert_eq!((coverage.without_sum, coverage.without_parity), (2, 8));
    assert!(coverage.oldest_ns > 0);
    assert_eq!(coverage.histogram[0], 1, "one region of three has all its pages covered");
    let done = engine.pass().unwrap();
    assert_eq!((done.regions, done.pages, done.stripes), (2, 2, 2));
    assert_eq!(engine.coverage().unwrap().without_parity, 0);
    machine.store(3, 1);
    let done = engine.pass().unwrap();
    assert_eq!((done.pages, done.unchanged), (0, 1), "the same bytes again change nothing");
    for page in [3, 9, 2] {
        machine.rot(page, 5);
        assert_eq!(engine.repair(page, &AtRest, Force::No).unwrap(), Mended::Repaired);
        assert_eq!(machine.page(page), content(page, u64::from(page != 2)));
    }
}

#[test]
fn only_what_is_asked_for_is_covered() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = admitted(&machine, 1);
    machine.store(3, 1);
    machine.store(9, 1);
    assert_eq!(engine.cover(9 * PAGE, 10).unwrap().pages, 1);
    assert_eq!(engine.coverage().unwrap().without_sum, 1);
}

#[test]
fn a_damaged_neighbour_is_told_and_not_made_part_of_parity() {
    for parity in [1, 2] {
        let machine = Machine::new(MediumKind::Shm, SIZE);
        let engine = admitted(&machine, parity);
        machine.rot(5, 100);
        machine.store(6, 1);
        let done = engine.pass().unwrap();
        assert_eq!(done.corrupt, 1);
        assert_eq!(engine.verify(5).unwrap().verdict, PageVerdict::Corrupt);
        let event = engine.events().into_iter().find(|e| e.at == 5 * PAGE).unwrap();
        assert_eq!((event.finder, event.outcome), (Finder::Commit, Outcome::Detected));
        let mended = engine.repair(5, &AtRest, Force::No).unwrap();
        if parity == 2 {
            assert_eq!((done.deferred, mended), (1, Mended::Repaired));
            assert_eq!(engine.pass().unwrap().deferred, 0);
            assert!(engine.verify_all().unwrap().is_clean());
            assert_eq!(engine.coverage().unwrap().without_parity, 0);
        } else {
            assert_eq!(mended, Mended::Lost, "parity was of what page 6 held before");
            assert_eq!(engine.coverage().unwrap().without_parity, 4);
            engine.accept(5 * PAGE, PAGE).unwrap();
            assert_eq!(engine.coverage().unwrap().without_parity, 0);
        }
        machine.rot(4, 1);
        assert_eq!(engine.repair(4, &AtRest, Force::No).unwrap(), Mended::Repaired);
    }
}

#[test]
fn a_page_of_a_stripe_that_was_stored_to_is_found_and_not_repaired() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = admitted(&machine, 1);
    machine.store(6, 1);
    machine.rot(5, 100);
    assert_eq!(engine.verify(5).unwrap().verdict, PageVerdict::Corrupt);
    assert_eq!(engine.repair(5, &AtRest, Force::No).unwrap(), Mended::Lost);
    let rotten = machine.page(5);
    assert_ne!(rotten, content(5, 0));
    // Damage to a page that was stored to is part of it from then on.
    machine.rot(6, 3);
    engine.pass().unwrap();
    assert_eq!(engine.verify(6).unwrap().verdict, PageVerdict::Good);
}

#[test]
fn a_page_stored_to_while_it_is_repaired_keeps_what_was_stored() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = admitted(&machine, 1);
    machine.rot(5, 100);
    let writers = Stopped::default();
    let twin = machine.clone();
    *writers.between.lock().unwrap() = Some(Box::new(move || twin.store(5, 9)));
    let kept = engine.repair(5, &writers, Force::No).unwrap();
    assert_eq!(kept, Mended::Undecided(Unsure::StoredTo));
    assert_eq!(machine.page(5), content(5, 9));
    assert_eq!(
        (writers.frozen.load(Ordering::SeqCst), writers.thawed.load(Ordering::SeqCst)),
        (1, 1)
    );
    engine.pass().unwrap();
    assert!(engine.verify_all().unwrap().is_clean());
    // The same by a store that is not tracked, and by writers that cannot be stopped.
    machine.rot(5, 100);
    let twin = machine.clone();
    *writers.between.lock().unwrap() = Some(Box::new(move || {
        twin.data.window().put(Site::new("test.foreign"), 5 * PAGE, &[7; 8]).unwrap();
    }));
    let kept = engine.repair(5, &writers, Force::No).unwrap();
    assert_eq!(kept, Mended::Undecided(Unsure::StoredTo));
    assert_eq!(machine.page(5)[..8], [7; 8]);
    writers.refuse.store(true, Ordering::SeqCst);
    assert_eq!(engine.repair(5, &writers, Force::No).unwrap(), Mended::Busy);
    assert_eq!(machine.page(5)[..8], [7; 8]);
}

#[test]
fn reports_of_everything_at_once_cover_nothing_that_differs() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = admitted(&machine, 1);
    machine.rot(5, 100);
    machine.data.lose(0, 8 * PAGE);
    let done = engine.pass().unwrap();
    assert_eq!((done.pages, done.undecided), (0, 1));
    let lost = PageVerdict::Undecided(Unsure::TrackingLost);
    assert_eq!(engine.verify(5).unwrap().verdict, lost);
    assert_eq!(engine.before_image(5).unwrap().unwrap(), content(5, 0));
    engine.pass().unwrap();
    assert_eq!(engine.verify(5).unwrap().verdict, lost, "and stays so");
    machine.store(5, 3);
    engine.pass().unwrap();
    assert!(engine.verify_all().unwrap().is_clean(), "a store that is seen decides");
    // Tracking that begins while writers are there.
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = machine.protect(&tiny(1));
    machine.rot(5, 100);
    engine.admit(0, u64::MAX, Writing::Already).unwrap();
    machine.data.window().put(Site::new("test.early"), 6 * PAGE, &[7; 8]).unwrap();
    let done = engine.pass().unwrap();
    assert_eq!((done.pages, done.undecided), (0, 2));
    engine.accept(0, u64::MAX).unwrap();
    assert!(engine.verify_all().unwrap().is_clean());
}

#[test]
fn what_is_said_to_be_written_is_covered_and_what_is_contested_is_left_alone() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = admitted(&machine, 1);
    machine.data.window().put(Site::new("test.write"), 5 * PAGE, &[7; 8]).unwrap();
    engine.mark(5 * PAGE, 8).unwrap();
    assert_eq!(engine.pass().unwrap().pages, 1);
    assert!(engine.verify_all().unwrap().is_clean());
    machine.data.window().put(Site::new("test.write"), 6 * PAGE, &[7; 8]).unwrap();
    engine.contest(true).unwrap();
    let contested = PageVerdict::Undecided(Unsure::Contested);
    assert_eq!(engine.verify(6).unwrap().verdict, contested);
    machine.store(4, 1);
    engine.pass().unwrap();
    assert_eq!(engine.verify(6).unwrap().verdict, contested);
    engine.close().unwrap();
    let (engine, _) = machine.open(quick());
    assert!(engine.is_contested(), "also after it was closed");
    let kept = engine.repair(6, &AtRest, Force::No).unwrap();
    assert!(matches!(kept, Mended::Undecided(_)));
    engine.accept(0, u64::MAX).unwrap();
    assert!(!engine.is_contested() && engine.verify_all().unwrap().is_clean());
}

#[test]
fn a_lost_or_misdirected_write_of_a_page_is_found() {
    use holdfast_faultmem::{FaultKind, When};
    for kind in [FaultKind::Lost, FaultKind::Misdirected { to: 12 * PAGE }] {
        let machine = Machine::new(MediumKind::File, SIZE);
        let open = boot(1, Durability::Power);
        let engine = machine.protect(&ProtectOptions { open, ..tiny(1) });
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        machine.medium.arm(kind, When::touching(5 * PAGE, PAGE));
        machine.store(5, 1);
        // The page cache shows the write, and the pass covers it, until the device is asked.
        engine.pass().unwrap();
        let report = engine.verify_all().unwrap();
        assert!(report.corrupt.contains(&5), "{report:?}");
    }
}

#[test]
fn unreadable_pages_come_back_and_parity_that_rots_is_made_anew() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = admitted(&machine, 2);
    machine.medium.poison(7 * PAGE, 1, Clear::Able).unwrap();
    assert_eq!(engine.scrub(Some(&AtRest)).unwrap().repaired, 1);
    assert_eq!(machine.page(7), content(7, 0));
    let image = machine.page(4);
    // Parity of the first group of regions: behind the states, the entries and the records.
    let parity = (128 << 10) + 3 * PAGE;
    machine.medium.flip_bit(machine.side.place(parity + 2 * PAGE), 1).unwrap();
    machine.medium.poison(machine.side.place(parity + 5 * PAGE), 1, Clear::Able).unwrap();
    let scrubbed = engine.scrub(Some(&AtRest)).unwrap();
    assert_eq!(scrubbed.parity, 3, "one by its bytes, two of a stripe that cannot be read");
    assert_eq!(engine.scrub(None).unwrap().parity, 0);
    machine.rot(4, 4);
    engine.repair(4, &AtRest, Force::No).unwrap();
    assert_eq!(machine.page(4), image);
}

/// Tells a writer to end, also where its test fails: a thread that nobody ends is waited for.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Long enough for a store of another thread.
const TURN: Duration = Duration::from_micros(100);

/// Stores as a program does for as long as a test takes: the faulty medium keeps each store until
/// it is durable, so that a writer without a drain fills memory.
fn store_and_drain(machine: &Machine, page: u64, version: u64) {
    machine.store(page, version);
    machine.data.drain(STORE);
}

#[test]
fn a_program_that_stores_while_passes_run_is_never_contradicted() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = admitted(&machine, 1);
    let writer = machine.clone();
    let (stored, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let version = stored.fetch_add(1, Ordering::SeqCst) + 1;
                store_and_drain(&writer, version % 19, version);
            }
        });
        let end = Ending(&stop);
        for round in 0..150 {
            engine.pass().unwrap();
            let report = engine.verify_all().unwrap();
            assert!(report.is_clean(), "{round}: {report:?}");
            if round % 10 == 0 {
                std::thread::sleep(TURN);
                let scrubbed = engine.scrub(Some(&AtRest)).unwrap();
                assert_eq!((scrubbed.repaired, scrubbed.lost), (0, 0));
            }
        }
        // On a busy machine it may have had no turn yet.
        let begun = Instant::now();
        while stored.load(Ordering::SeqCst) <= 10 {
            assert!(begun.elapsed() < Duration::from_secs(60), "nobody stores");
            std::thread::sleep(TURN);
            engine.pass().unwrap();
            assert!(engine.verify_all().unwrap().is_clean());
        }
        drop(end);
    });
    engine.pass().unwrap();
    assert!(engine.verify_all().unwrap().is_clean());
    assert_eq!(engine.coverage().unwrap().without_sum, 0);
    assert!(engine.source().intact(0, 19 * PAGE));
}

/// A program that stores to pages, and can be stopped between two of its stores.
#[derive(Default)]
struct Program {
    /// Version of each page that was stored last; locked while it is.
    newest: [Mutex<u64>; 16],
    running: RwLock<()>,
    /// Rounds of the test so far.
    rounds: AtomicU64,
    stop: AtomicBool,
}

impl Program {
    /// Stores to drawn pages until it is told to end.
    fn run(&self, machine: &Machine) {
        let mut x = 1_u64;
        while !self.stop.load(Ordering::SeqCst) {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let page = x >> 60;
            {
                let _running = self.running.read().unwrap();
                let mut version = self.newest(page);
                *version += 1;
                store_and_drain(machine, page, *version);
            }
            // Now and then a round or two are left alone: where stores are much quicker than
            // passes, every repair would have to give way.
            let next = self.rounds.load(Ordering::SeqCst) + (x >> 40) % 3;
            while self.rounds.load(Ordering::SeqCst) < next && !self.stop.load(Ordering::SeqCst) {
                std::thread::sleep(TURN / 4);
            }
        }
    }

    fn newest(&self, page: u64) -> MutexGuard<'_, u64> {
        self.newest[page as usize].lock().unwrap()
    }
}

/// Stops the program between two of its stores, as a guard stops threads.
struct Gate<'a>(&'a RwLock<()>, Mutex<Option<RwLockWriteGuard<'a, ()>>>);

impl holdfast_mapped::Writers for Gate<'_> {
    fn freeze(&self) -> bool {
        *self.1.lock().unwrap() = Some(self.0.write().unwrap());
        true
    }
    fn thaw(&self) {
        *self.1.lock().unwrap() = None;
    }
}

/// Passes, scrubs and repairs among stores to the very pages that are damaged and to their stripes:
/// no page holds anything but what the writer stored last, unless it is still told as damaged.
#[test]
fn repairs_among_stores_revert_nothing() {
    let machine = Machine::new(MediumKind::Shm, 16 * PAGE);
    let engine = admitted(&machine, 1);
    let program = Program::default();
    let gate = Gate(&program.running, Mutex::default());
    let (mut repaired, mut gave_way) = (0, 0);
    std::thread::scope(|threads| {
        let stores = threads.spawn(|| program.run(&machine));
        let end = Ending(&program.stop);
        let mut round = 0_u64;
        while (repaired < 200 || gave_way < 50) && round < 200_000 {
            round += 1;
            program.rounds.store(round, Ordering::SeqCst);
            let page = round * 7 % 16;
            engine.pass().unwrap();
            let kept = {
                // Damage hits a page that nobody is storing to at that moment.
                let version = program.newest(page);
                machine.rot(page, round * 13 % 4096);
                *version
            };
            if round.is_multiple_of(3) {
                // On one processor nobody else would get his turn here.
                std::thread::sleep(TURN);
            }
            match engine.repair(page, &gate, Force::No).unwrap() {
                Mended::Repaired => repaired += 1,
                Mended::Undecided(_) => gave_way += 1,
                Mended::Good | Mended::Lost | Mended::Busy => {}
            }
            let version = program.newest(page);
            let now = machine.page(page);
            let wrong = now.iter().zip(content(page, *version)).filter(|(a, b)| **a != *b).count();
            // At most the bit that was flipped; a store in between may have taken it away.
            assert!(wrong <= 1, "round {round}: {wrong} bytes of page {page}, version {kept}");
            if wrong == 1 {
                machine.rot(page, round * 13 % 4096);
            }
        }
        drop(end);
        stores.join().unwrap();
    });
    assert!(repaired >= 200 && gave_way >= 50, "{repaired} repaired, {gave_way} gave way");
    engine.pass().unwrap();
    for page in 0..16 {
        assert_eq!(machine.page(page), content(page, *program.newest(page)));
    }
}

#[test]
fn only_of_pages_whose_damage_would_be_undone_it_is_certain() {
    for parity in [1, 2] {
        let machine = Machine::new(MediumKind::Shm, SIZE);
        let engine = admitted(&machine, parity);
        assert_eq!(engine.certain(3).unwrap().unwrap(), machine.page(3));
        assert_eq!(engine.certain(19).unwrap().unwrap().len(), 100, "the end of the last page");
        assert_eq!(engine.certain(20).unwrap(), None, "behind the end");
        // Each page of a stripe that is damaged takes some of what parity carries.
        let stripe = u64::from(engine.stripes().data());
        for (count, page) in (0..stripe).enumerate() {
            let certain = engine.certain(page).unwrap().is_some();
            assert_eq!(certain, count < parity as usize, "{count} damaged of {parity}");
            if certain {
                // Not the same bit of each, which would cancel out in parity.
                machine.rot(page, 5 + page);
                assert_eq!(engine.certain(page).unwrap(), None, "damaged already");
            }
        }
        for page in 0..u64::from(parity) {
            assert_eq!(engine.repair(page, &AtRest, Force::No).unwrap(), Mended::Repaired);
        }
        // Nor of one that was stored to, or whose neighbours were.
        machine.store(stripe, 1);
        assert_eq!(engine.certain(stripe).unwrap(), None);
        assert_eq!(engine.certain(stripe + 1).unwrap().is_some(), parity == 2);
        engine.pass().unwrap();
        assert!(engine.certain(stripe).unwrap().is_some());
        engine.contest(true).unwrap();
        assert_eq!(engine.certain(stripe).unwrap(), None, "it would be undecided");
    }
}
