//! The data file grows, is cut off, has holes, and changes behind our back.

use std::sync::atomic::Ordering;

use crate::common::{Machine, boot, content, tiny};
use holdfast_mapped::{AtRest, Durability, Force, Mended, OpenOptions, Writing};
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::{PageVerdict, Unsure};

fn quick() -> OpenOptions {
    boot(1, Durability::Process)
}

#[test]
fn a_file_that_grows_is_covered_to_its_new_end() {
    for (from, to) in [(3, 5), (8, 9), (7, 30), (0, 1), (0, 17)] {
        let (from, to) = (from * PAGE + 10 * u64::from(from != 0), to * PAGE + 77);
        let machine = Machine::new(MediumKind::Shm, from);
        let engine = machine.protect(&tiny(1));
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        machine.world.set_size(to);
        for page in from / PAGE..to.div_ceil(PAGE) {
            machine.store(page, 1);
        }
        engine.pass().unwrap();
        let report = engine.verify_all().unwrap();
        assert_eq!((report.pages, report.good), (to.div_ceil(PAGE), to.div_ceil(PAGE)));
        machine.rot(to / PAGE, 5);
        assert_eq!(engine.repair(to / PAGE, &AtRest, Force::No).unwrap(), Mended::Repaired);
        machine.store(to / PAGE, 2);
        assert_eq!(engine.pass().unwrap().pages, 1, "what it grew by is tracked, too");
        engine.close().unwrap();
        let (engine, opened) = machine.open(quick());
        assert!(!opened.changed && engine.verify_all().unwrap().is_clean());
    }
}

#[test]
fn a_file_that_is_cut_off_is_covered_to_its_new_end_and_may_grow_again() {
    for (from, to) in [(19, 3), (19, 8), (19, 6), (12, 11), (19, 0)] {
        for odd in [0, 100] {
            let machine = Machine::new(MediumKind::Shm, from * PAGE);
            let engine = machine.protect(&tiny(1));
            engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
            machine.world.set_size(to * PAGE + odd);
            let cut = engine.verify(to + 1).unwrap().verdict;
            assert!(!matches!(cut, PageVerdict::Corrupt), "{cut:?}");
            engine.pass().unwrap();
            let report = engine.verify_all().unwrap();
            let pages = (to * PAGE + odd).div_ceil(PAGE);
            assert_eq!((report.pages, report.good), (pages, pages), "{from} {to} {odd}");
            if pages > 0 {
                let page = machine.page(0);
                machine.rot(0, 5);
                assert_eq!(engine.repair(0, &AtRest, Force::No).unwrap(), Mended::Repaired);
                assert_eq!(machine.page(0), page);
            }
            // What was there once must not be taken for what is there now.
            machine.world.set_size(from * PAGE);
            let zeros = vec![0; (from * PAGE - pages * PAGE) as usize];
            machine.data.window().put(Site::new("test.zeros"), pages * PAGE, &zeros).unwrap();
            let report = engine.verify_all().unwrap();
            assert!(report.corrupt.is_empty(), "{report:?}");
            engine.pass().unwrap();
            assert!(engine.verify_all().unwrap().is_clean());
            engine.close().unwrap();
            let (engine, _) = machine.open(quick());
            assert!(engine.verify_all().unwrap().is_clean());
        }
    }
}

#[test]
fn parts_without_storage_take_no_entries_until_they_have_some() {
    let machine = Machine::new(MediumKind::Shm, 32 * PAGE);
    machine.medium.stray(8 * PAGE, &vec![0; 16 * PAGE as usize]).unwrap();
    *machine.world.holes.lock().unwrap() = vec![(8 * PAGE, 16 * PAGE)];
    let engine = machine.protect(&tiny(1));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    assert_eq!(engine.coverage().unwrap().pages, 16);
    assert_eq!(engine.verify(10).unwrap().verdict, PageVerdict::Good, "zeros, as a hole is");
    machine.store(10, 1);
    let uncovered = PageVerdict::Undecided(Unsure::Uncovered);
    assert_eq!(engine.verify(10).unwrap().verdict, uncovered);
    *machine.world.holes.lock().unwrap() = vec![(16 * PAGE, 8 * PAGE)];
    engine.pass().unwrap();
    assert_eq!(engine.coverage().unwrap().pages, 24);
    machine.store(11, 1);
    engine.pass().unwrap();
    machine.rot(10, 5);
    assert_eq!(engine.repair(10, &AtRest, Force::No).unwrap(), Mended::Repaired);
    assert_eq!(machine.page(10), content(10, 1));
    engine.close().unwrap();
    let (engine, _) = machine.open(quick());
    assert!(engine.verify_all().unwrap().is_clean());
    assert_eq!(engine.coverage().unwrap().pages, 24);
}

#[test]
fn a_hole_punched_and_told_is_covered_as_zeros() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let engine = machine.protect(&tiny(1));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    let zeros = vec![0; 2 * PAGE as usize];
    machine.data.window().put(Site::new("test.punch"), 4 * PAGE, &zeros).unwrap();
    engine.mark(4 * PAGE, 2 * PAGE).unwrap();
    engine.pass().unwrap();
    assert!(engine.verify_all().unwrap().is_clean());
    machine.rot(4, 0);
    assert_eq!(engine.repair(4, &AtRest, Force::No).unwrap(), Mended::Repaired);
    assert_eq!(machine.page(4), vec![0; PAGE as usize]);
}

#[test]
fn a_length_that_changed_while_nobody_looked_proves_nothing() {
    for to in [5 * PAGE + 9, 30 * PAGE] {
        let machine = Machine::new(MediumKind::Shm, 19 * PAGE + 100);
        machine.protect(&tiny(1)).close().unwrap();
        machine.world.set_size(to);
        let last = (to / PAGE).min(19);
        machine.data.window().put(Site::new("test.foreign"), last * PAGE, &[3; 9]).unwrap();
        machine.data.window().put(Site::new("test.foreign"), PAGE, &[3; 9]).unwrap();
        let (engine, opened) = machine.open(quick());
        assert!(opened.changed);
        let changed = PageVerdict::Undecided(Unsure::ChangedWhileUnprotected);
        assert_eq!(engine.verify(1).unwrap().verdict, changed);
        assert!(!matches!(
            engine.verify(last).unwrap().verdict,
            PageVerdict::Good | PageVerdict::Corrupt
        ));
        engine.scrub(Some(&AtRest)).unwrap();
        assert_eq!(machine.page(1)[..9], [3; 9]);
        assert_eq!(machine.page(last)[..9], [3; 9]);
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        engine.pass().unwrap();
        assert!(engine.verify_all().unwrap().corrupt.is_empty());
        assert_eq!(engine.verify(0).unwrap().verdict, PageVerdict::Good);
        engine.close().unwrap();
        let (engine, _) = machine.open(quick());
        assert!(matches!(engine.verify(1).unwrap().verdict, PageVerdict::Undecided(_)));
    }
}

#[test]
fn another_file_under_the_same_name_is_not_repaired_into_the_old_one() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    machine.protect(&tiny(1)).close().unwrap();
    machine.world.inode.store(99, Ordering::SeqCst);
    for page in 0..19 {
        machine.store(page, 50);
    }
    let (engine, opened) = machine.open(quick());
    assert!(opened.changed);
    let report = engine.verify_all().unwrap();
    assert_eq!((report.corrupt.len(), report.undecided.len()), (0, 19));
    let scrubbed = engine.scrub(Some(&AtRest)).unwrap();
    assert_eq!(scrubbed.repaired, 0);
    for page in 0..19 {
        assert_eq!(machine.page(page), content(page, 50));
    }
}
