//! Why a page is undecided is told after the file was opened again, too, as far as there is room;
//! and never of a page it was not found out about.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use crate::common::{Engine, Machine, boot, killed, tiny, verdict};
use holdfast_faultmem::Window;
use holdfast_mapped::{Durability, OpenOptions, Writing};
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::{PageVerdict, Unsure};

const FOREIGN: Site = Site::new("test.foreign");
const LOST: Unsure = Unsure::TrackingLost;
const CHANGED: Unsure = Unsure::ChangedWhileUnprotected;
/// Where the states of the first regions are, twice, and what the group has in between.
const STATES: u64 = 128 << 10;

fn kept() -> OpenOptions {
    boot(1, Durability::Process)
}

fn looking() -> OpenOptions {
    OpenOptions { read_only: true, ..kept() }
}

/// Somebody writes to pages while nobody protects the file.
fn change(machine: &Machine, pages: &[u64]) {
    machine.world.mtime.fetch_add(1, Ordering::SeqCst);
    for page in pages {
        machine.data.window().put(FOREIGN, page * PAGE, b"changed").unwrap();
    }
}

/// After a kill, with the bits of the source or without; the file has the date it had.
fn after_kill(machine: &Machine, bits: bool) -> Machine {
    let next = killed(machine, bits);
    next.world.mtime.store(machine.world.mtime.load(Ordering::SeqCst), Ordering::SeqCst);
    next
}

fn told(engine: &Engine, page: u64, why: Unsure) {
    assert_eq!(verdict(engine, page), PageVerdict::Undecided(why), "page {page}");
}

/// A closed file of which pages were changed, opened and closed since.
fn changed(pages: &[u64]) -> Machine {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    machine.protect(&tiny(1)).close().unwrap();
    change(&machine, pages);
    machine.open(kept()).0.close().unwrap();
    machine
}

#[test]
fn reasons_outlive_openings_and_kills() {
    let mut machine = changed(&[4, 17]);
    for _ in 0..2 {
        let (engine, opened) = machine.open(looking());
        assert!(!opened.changed, "the change itself is known by now");
        told(&engine, 4, CHANGED);
        told(&engine, 17, CHANGED);
        assert_eq!(engine.undecided(), [(CHANGED, 2)]);
        let (engine, opened) = machine.open(kept());
        assert_eq!(opened.recovered.undecided, 2);
        assert_eq!(engine.counts().undecided, 0, "told already");
        // Passes over the same regions keep them, too.
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        machine.store(5, 1);
        machine.store(16, 1);
        engine.pass().unwrap();
        told(&engine, 4, CHANGED);
        drop(engine);
        machine = after_kill(&machine, true);
    }
    let (engine, _) = machine.open(kept());
    engine.accept(4 * PAGE, PAGE).unwrap();
    assert_eq!(engine.undecided(), [(CHANGED, 1)]);
    engine.close().unwrap();
    let (engine, _) = machine.open(looking());
    assert_eq!(verdict(&engine, 4), PageVerdict::Good);
    assert_eq!(engine.undecided(), [(CHANGED, 1)]);
}

#[test]
fn pages_of_one_region_have_reasons_of_their_own() {
    // One page of the first region, then others, by a kill that took the bits with it.
    for others in [1, 3, 4] {
        let machine = changed(&[0]);
        let (engine, _) = machine.open(kept());
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        for page in 1..=others {
            machine.store(page, 1);
        }
        drop(engine);
        let machine = after_kill(&machine, false);
        machine.open(kept()).0.close().unwrap();
        let (engine, _) = machine.open(looking());
        told(&engine, 0, CHANGED);
        for page in 1..=others {
            told(&engine, page, LOST);
        }
    }
    // More of each than there is room for: what is not known is not made up.
    let machine = changed(&[0, 1, 2, 3]);
    let (engine, _) = machine.open(kept());
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    for page in 4..8 {
        machine.store(page, 1);
    }
    drop(engine);
    let machine = after_kill(&machine, false);
    machine.open(kept()).0.close().unwrap();
    let (engine, _) = machine.open(looking());
    for page in 0..8 {
        let right = if page < 4 { CHANGED } else { LOST };
        let PageVerdict::Undecided(why) = verdict(&engine, page) else { panic!("{page}") };
        assert!(why == right || why == Unsure::Unobserved, "{page}: {why}");
    }
    assert_eq!(engine.undecided().iter().map(|(_, pages)| pages).sum::<u64>(), 8);
}

#[test]
fn a_reason_is_not_told_of_pages_that_a_crash_left_beside() {
    let machine = changed(&[4]);
    let (engine, _) = machine.open(kept());
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(5, 1);
    machine.store(6, 1);
    let left = Arc::new(Mutex::new(Vec::new()));
    let (twin, kept_here) = (machine.clone(), Arc::clone(&left));
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        kept_here.lock().unwrap().push((site.name().to_owned(), after_kill(&twin, false)));
    }));
    engine.pass().unwrap();
    machine.medium.clear_on_barrier();
    let left = core::mem::take(&mut *left.lock().unwrap());
    assert!(left.iter().any(|(site, _)| site == "mapped.commit.B"));
    for (site, next) in left {
        for options in [looking(), kept()] {
            let (engine, _) = next.open(options);
            for page in [5, 6] {
                let ok = !matches!(verdict(&engine, page), PageVerdict::Undecided(CHANGED));
                assert!(ok, "{site}: page {page}");
            }
            let why = verdict(&engine, 4);
            let ok = [CHANGED, Unsure::Unobserved, LOST].map(PageVerdict::Undecided).contains(&why);
            assert!(ok, "{site}: {why}");
        }
    }
}

/// Writes bytes into both copies of the record of region 0, and seals it.
fn forge(machine: &Machine, at: usize, bytes: &[u8]) {
    let side: &Window = &machine.side;
    let seed = holdfast_codes::crc32c(0, b"side of the test");
    let group = |count: u64| count.next_multiple_of(PAGE);
    let second = STATES + PAGE + group(2 * 8 * 8) + group(2 * 8) + 2 * 2 * PAGE;
    for copy in [STATES, second] {
        let mut record = [0; 64];
        side.read(copy, &mut record).unwrap();
        let sum = |record: &[u8]| {
            let seeded = holdfast_codes::crc32c(seed, &0_u64.to_le_bytes());
            holdfast_codes::crc32c(seeded, &record[4..]).to_le_bytes()
        };
        assert_eq!(record[..4], sum(&record), "this is the record");
        record[at..at + bytes.len()].copy_from_slice(bytes);
        let new = sum(&record);
        record[..4].copy_from_slice(&new);
        side.put(FOREIGN, copy, &record).unwrap();
    }
}

#[test]
fn hostile_reasons_excuse_nothing_and_make_nothing_good() {
    for code in [1, 8, 12, 200, 255, 0] {
        for apart in [false, true] {
            let machine = changed(&[4]);
            let bytes =
                if apart { vec![CHANGED.code(), 4, code, 4, code, 99, 3] } else { vec![code] };
            forge(&machine, 56, &bytes);
            let (engine, _) = machine.open(looking());
            let why = if apart && code == 0 { CHANGED } else { Unsure::Unobserved };
            told(&engine, 4, why);
            let report = engine.verify_all().unwrap();
            assert_eq!((report.undecided.len(), report.uncovered), (1, 0), "{code} {apart}");
            // Nobody is called undecided who was not.
            assert_eq!(report.good, 18, "{code} {apart}");
            machine.rot(6, 1);
            let (engine, _) = machine.open(kept());
            assert_eq!(verdict(&engine, 6), PageVerdict::Corrupt, "{code} {apart}");
        }
    }
    // Of another set of pages.
    let machine = changed(&[4]);
    forge(&machine, 52, &[9; 4]);
    told(&machine.open(looking()).0, 4, Unsure::Unobserved);
}
