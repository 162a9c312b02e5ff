//! Regions that are stored to in full in each period are left open by the passes: further stores to
//! them cost nothing. What rests again is decided, and nothing is called damage that was stored.

use std::sync::{Arc, Mutex};

use crate::common::{Counter, Engine, Machine, boot, content, killed, tiny, verdict};
use holdfast_faultmem::Budget;
use holdfast_mapped::{
    AtRest, Durability, Force, Mapped, Mended, OpenOptions, ProtectOptions, Rearm, Writing,
};
use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{MediumKind, PAGE};
use holdfast_redundancy::{PageVerdict, Unsure};

/// Two regions of eight pages, and a part of a third.
const SIZE: u64 = 20 * PAGE;
const UNCOVERED: PageVerdict = PageVerdict::Undecided(Unsure::Uncovered);

fn admitted(off: &str, rearm: Rearm) -> (Machine, Engine) {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    machine.medium.elide_name(off);
    let open = OpenOptions { rearm, trace: true, ..boot(1, Durability::Process) };
    let engine = machine.protect(&ProtectOptions { open, ..tiny(1) });
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    (machine, engine)
}

/// The pages are stored to, and a pass is made.
fn period(machine: &Machine, engine: &Engine, pages: impl IntoIterator<Item = u64>, version: u64) {
    pages.into_iter().for_each(|page| machine.store(page, version));
    let done = engine.pass().unwrap();
    assert_eq!((done.corrupt, done.undecided, done.deferred), (0, 0, 0), "{done:?}");
}

fn doubted(verdict: PageVerdict) -> bool {
    matches!(verdict, PageVerdict::Undecided(why) if why.is_doubt())
}

fn told(machine: &Machine) -> u64 {
    let mut bytes = 0;
    machine.data.peek(0, SIZE, &mut |_, len| bytes += len).unwrap();
    bytes / PAGE
}

#[test]
fn only_whole_regions_that_are_stored_to_in_full_time_after_time_are_left_open() {
    let all = || (0..9).chain(16..20);
    let (machine, engine) = admitted("", Rearm::default());
    period(&machine, &engine, all(), 1);
    assert_eq!(told(&machine), 0, "once may be chance");
    period(&machine, &engine, all(), 2);
    assert_eq!(told(&machine), 8, "the first region, not page 8 and not the part of a region");
    assert_eq!(engine.coverage().unwrap().without_sum, 8);
    for version in 3..6 {
        period(&machine, &engine, all(), version);
        assert_eq!((told(&machine), verdict(&engine, 3)), (8, UNCOVERED), "{version}");
    }
    // Whoever wants all of it covered gets that.
    assert_eq!(engine.update_now().unwrap().pages, 0);
    assert_eq!((told(&machine), engine.coverage().unwrap().without_sum), (0, 0));
    assert!(engine.verify_all().unwrap().is_clean());
    // Nor is it left open where it is not told in full again.
    period(&machine, &engine, all(), 6);
    period(&machine, &engine, [0], 7);
    assert_eq!(told(&machine), 0);
    // As without any of it.
    let (machine, engine) = admitted("", Rearm::All);
    for version in 1..4 {
        period(&machine, &engine, all(), version);
        assert_eq!(told(&machine), 0);
    }
    // Nor does whoever covers a range, or has a pass of his own, leave anything open.
    let (machine, engine) = admitted("", Rearm::default());
    for version in 1..4 {
        all().for_each(|page| machine.store(page, version));
        engine.cover(0, SIZE).unwrap();
        assert_eq!(told(&machine), 0);
        all().for_each(|page| machine.store(page, version + 10));
        engine.pass_in_steps(Rearm::All, &mut |_| ()).unwrap();
        assert_eq!(told(&machine), 0);
    }
}

/// The same by a pass in steps, as whoever keeps a file makes them.
#[test]
fn a_pass_in_steps_leaves_open_and_closes_again() {
    let (machine, engine) = admitted("", Rearm::default());
    for version in 1..4 {
        (0..16).for_each(|page| machine.store(page, version));
        let done = engine.pass_in_steps(Rearm::WhereItPays, &mut |_| ()).unwrap();
        assert_eq!((done.regions, done.pages, done.unchanged), (2, 16, 0), "{version}");
        assert_eq!(told(&machine), if version == 1 { 0 } else { 16 });
    }
    (1..16).for_each(|page| machine.store(page, 9));
    let done = engine.pass_in_steps(Rearm::WhereItPays, &mut |_| ()).unwrap();
    assert_eq!((done.regions, done.pages, done.unchanged), (2, 15, 1), "once each");
    assert_eq!(told(&machine), 8);
    let last = engine.take_trace().pop().unwrap();
    assert_eq!(last.runs, [(0, 16)], "what was told, once");
}

/// A page of an open region that is stored to no more is decided by the pass that finds it so.
pub(crate) fn a_page_that_rests_is_decided(off: &str) -> bool {
    let (machine, engine) = admitted(off, Rearm::default());
    for version in 1..4 {
        period(&machine, &engine, 0..8, version);
    }
    let stays = engine.repair(3, &AtRest, Force::No).unwrap() != Mended::Repaired;
    period(&machine, &engine, (0..8).filter(|page| *page != 3), 4);
    // All of its region is protected again.
    let closed = told(&machine) == 0;
    machine.rot(3, 77);
    let found = verdict(&engine, 3) == PageVerdict::Corrupt;
    let mended = engine.repair(3, &AtRest, Force::No).unwrap() == Mended::Repaired;
    !stays || !closed || !found || !mended || machine.page(3) != content(3, 3)
}

#[test]
fn what_rests_is_protected_again() {
    assert!(!a_page_that_rests_is_decided(""));
}

/// A store is uncovered since the last look before it; what an open region held at the look before
/// that has been stored over since.
#[test]
fn the_age_of_stores_to_an_open_region_does_not_grow() {
    const SECOND: u64 = 1_000_000_000;
    let (machine, clock) = (Machine::new(MediumKind::Shm, SIZE), Arc::new(Counter::default()));
    let engine = Mapped::protect(
        machine.data.clone(),
        machine.side.clone(),
        machine.data.clone(),
        machine.world.clone(),
        clock.clone(),
        &tiny(1),
    );
    let engine = engine.unwrap();
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    let oldest = || engine.coverage().unwrap().oldest_ns / SECOND;
    for version in 1..9 {
        clock.skip(SECOND);
        period(&machine, &engine, 0..8, version);
        assert_eq!(oldest(), u64::from(version > 1), "{version}");
    }
}

/// Crashes at every step of passes over open regions, with the source's bits and without, and with
/// first stores on record: nothing is lost, nothing called damage.
#[test]
fn crashes_while_a_region_is_open_leave_what_was_stored() {
    for (bits, recorded) in [(true, false), (false, false), (false, true)] {
        let (machine, engine) = admitted("", Rearm::default());
        if recorded {
            machine.record();
        }
        (1..3).for_each(|version| period(&machine, &engine, 0..16, version));
        // In the next pass one region stays open, the other one is closed.
        (0..9).for_each(|page| machine.store(page, 3));
        let images = Arc::new(Mutex::new(0));
        let (count, marks) = (Arc::clone(&images), machine.clone());
        machine.medium.on_barrier(Box::new(move |_, _, point| {
            let budget = Budget { exhaustive: 16, singles: 6, pairs: 4, samples: 8, seed: 5 };
            for image in point.images(&budget) {
                let marks = bits.then(|| marks.data.marks());
                let next = Machine::after(image, MediumKind::Shm, SIZE, marks);
                let (engine, _) = next.open(boot(1, Durability::Process));
                for page in 0..20 {
                    let is = verdict(&engine, page);
                    assert_ne!(is, PageVerdict::Corrupt, "{bits} {recorded} page {page}");
                    let known = bits || recorded || page > 15;
                    assert!(!known || !doubted(is), "{bits} {recorded} {page}: {is:?}");
                }
                *count.lock().unwrap() += 1;
            }
        }));
        engine.pass().unwrap();
        machine.medium.clear_on_barrier();
        assert!(*images.lock().unwrap() > 4);
        assert_eq!(told(&machine), 8);
        // And between passes, after a store to the open one.
        machine.store(5, 4);
        let next = killed(&machine, bits);
        let (engine, _) = next.open(boot(1, Durability::Process));
        assert_eq!(doubted(verdict(&engine, 5)), !bits && !recorded, "{bits} {recorded}");
        assert!(next.page(5) == content(5, 4));
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        engine.update_now().unwrap();
        assert_eq!(verdict(&engine, 5) == PageVerdict::Good, bits || recorded);
    }
}
