//! Switches of the engine do what they say: covering at commits, portable instructions, passes in
//! steps, traces. A switch that does nothing, or does harm, is noticed.

use std::sync::{Arc, Mutex};

use crate::common::{Machine, STORE, boot, content, tiny};
use holdfast_faultmem::Budget;
use holdfast_mapped::{
    AtRest, Durability, Force, Instructions, Mended, OpenOptions, ProtectOptions, Rearm, When,
    Writing,
};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::{PageVerdict, Unsure};

const SIZE: u64 = 19 * PAGE + 100;

fn at_commit(durability: Durability) -> ProtectOptions {
    let open = OpenOptions { when: When::AtCommit, ..boot(1, durability) };
    ProtectOptions { open, ..tiny(1) }
}

#[test]
fn a_commit_leaves_no_window_and_covers_nothing_else() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = machine.protect(&at_commit(Durability::Process));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(1, 1);
    machine.store(2, 1);
    assert_eq!(engine.pass().unwrap().regions, 0, "passes do nothing here");
    let done = engine.commit(PAGE + 10, 100).unwrap();
    assert_eq!((done.pages, done.corrupt, done.undecided), (1, 0, 0), "{done:?}");
    assert!(done.deferred > 0, "page 2 of the same stripe was stored to, and nobody told");
    let uncovered = PageVerdict::Undecided(Unsure::Uncovered);
    assert_eq!(engine.verify(2).unwrap().verdict, uncovered);
    // Told now: both come back, though no pass was ever made.
    assert_eq!(engine.commit(2 * PAGE - 1, 2).unwrap().pages, 1);
    assert_eq!(engine.update_now().unwrap().pages, 0, "nothing was left over");
    for page in [1, 2] {
        machine.rot(page, 5);
        assert_eq!(engine.verify(page).unwrap().verdict, PageVerdict::Corrupt);
        assert_eq!(engine.repair(page, &AtRest, Force::No).unwrap(), Mended::Repaired);
        assert_eq!(machine.page(page), content(page, 1));
    }
}

/// What a commit covers is what was there before or after it, never a lie about it.
#[test]
fn a_crash_in_a_commit_is_no_damage() {
    for (kind, durability) in [
        (MediumKind::Shm, Durability::Process),
        (MediumKind::Dax, Durability::Power),
        (MediumKind::File, Durability::Power),
    ] {
        let machine = Machine::new(kind, SIZE);
        let engine = machine.protect(&at_commit(durability));
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        machine.store(5, 1);
        let images = Arc::new(Mutex::new(0));
        let count = Arc::clone(&images);
        machine.medium.on_barrier(Box::new(move |_, _, point| {
            let budget = Budget { exhaustive: 32, singles: 8, pairs: 4, samples: 8, seed: 5 };
            for image in point.images(&budget) {
                let next = Machine::after(image, kind, SIZE, None);
                let (engine, _) = next.open(boot(2, durability));
                for page in 0..20 {
                    let verdict = engine.verify(page).unwrap().verdict;
                    assert_ne!(verdict, PageVerdict::Corrupt, "{kind:?} page {page}");
                    assert!(page == 5 || verdict == PageVerdict::Good || kind == MediumKind::Shm);
                }
                *count.lock().unwrap() += 1;
            }
        }));
        assert_eq!(engine.commit(5 * PAGE, PAGE).unwrap().pages, 1);
        machine.medium.clear_on_barrier();
        assert!(*images.lock().unwrap() > 0 || kind == MediumKind::Shm, "{kind:?}");
        // The source of this machine saw the store, too.
        let done = engine.update_now().unwrap();
        assert_eq!((done.pages, done.unchanged), (0, 1));
        assert_eq!(engine.verify(5).unwrap().verdict, PageVerdict::Good);
    }
}

#[test]
fn portable_instructions_make_the_same_bytes() {
    for parity in [1, 2] {
        for (first, second) in [
            (Instructions::Best, Instructions::Portable),
            (Instructions::Portable, Instructions::Best),
        ] {
            let machine = Machine::new(MediumKind::Shm, SIZE);
            let by = |instructions| OpenOptions { instructions, ..boot(1, Durability::Process) };
            let options = ProtectOptions { open: by(first), ..tiny(parity) };
            machine.protect(&options).close().unwrap();
            let (engine, _) = machine.open(by(second));
            assert!(engine.verify_all().unwrap().is_clean());
            for page in [4, 6].into_iter().take(parity as usize) {
                machine.rot(page, 9);
            }
            assert_eq!(engine.scrub(Some(&AtRest)).unwrap().repaired, u64::from(parity));
            assert_eq!((machine.page(4), machine.page(6)), (content(4, 0), content(6, 0)));
        }
    }
}

#[test]
fn a_pass_in_steps_lets_others_in_and_covers_all() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let open = OpenOptions { batch_pages: 1, trace: true, ..boot(1, Durability::Process) };
    let engine = machine.protect(&ProtectOptions { open, ..tiny(1) });
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    for page in [0, 9, 10, 17] {
        machine.store(page, 1);
    }
    let mut steps = Vec::new();
    let done = engine.pass_in_steps(Rearm::All, &mut |bytes| {
        // Whoever holds the engine meanwhile would wait for ever.
        steps.push((bytes, engine.coverage().unwrap().without_sum));
    });
    assert_eq!(done.unwrap().pages, 4);
    assert_eq!(steps, [(PAGE, 3), (2 * PAGE, 1), (PAGE, 0)], "a region at a time");
    let trace = engine.take_trace();
    assert_eq!(trace.len(), 1);
    assert_eq!((trace[0].pages, &trace[0].runs[..]), (20, &[(0, 1), (9, 2), (17, 1)][..]));
    assert!(engine.take_trace().is_empty());
}

/// What is looked at between two steps of a pass is judged as ever, ahead of it and behind it.
#[test]
fn a_scrub_amid_a_pass_gives_back_what_rotted() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let open = OpenOptions { batch_pages: 1, ..boot(1, Durability::Process) };
    let engine = machine.protect(&ProtectOptions { open, ..tiny(1) });
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    for page in [0, 9, 10, 17] {
        machine.store(page, 1);
    }
    let mut repaired = Vec::new();
    let done = engine.pass_in_steps(Rearm::All, &mut |_| {
        for page in [1, 13] {
            machine.rot(page, 9);
        }
        repaired.push(engine.scrub(Some(&AtRest)).unwrap().repaired);
    });
    assert_eq!((done.unwrap().pages, repaired), (4, vec![2; 3]));
    for page in 0..19 {
        let version = u32::from([0, 9, 10, 17].contains(&page));
        assert!(machine.page(page) == content(page, version.into()), "{page}");
    }
    assert!(engine.verify_all().unwrap().is_clean());
}

#[test]
fn nobody_pays_for_a_trace_that_is_off() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = machine.protect(&tiny(1));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(3, 1);
    assert_eq!(engine.pass().unwrap().pages, 1);
    assert!(engine.take_trace().is_empty());
}

#[test]
fn a_sync_ends_no_window_and_a_page_counts_once_in_it() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let open = OpenOptions { trace: true, ..boot(1, Durability::Process) };
    let engine = machine.protect(&ProtectOptions { open, ..tiny(1) });
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    engine.pass().unwrap();
    engine.take_trace();
    let before = engine.shares().len();
    for version in 1..4 {
        machine.store(1, version);
        assert_eq!(engine.cover(PAGE, PAGE).unwrap().pages, 1);
    }
    machine.store(1, 5);
    machine.store(17, 1);
    assert_eq!(engine.shares().len(), before, "of the rest of the file nothing is known");
    engine.pass().unwrap();
    let shares = engine.shares();
    let last = shares.last().unwrap();
    assert_eq!((shares.len(), last.pages, last.stored), (before + 1, 20, 2));
    assert_eq!(last.in_stripes, 8, "with the other pages of their stripes");
    let trace = engine.take_trace();
    assert_eq!((trace.len(), &trace[0].runs[..]), (1, &[(1, 1), (17, 1)][..]));
}

/// What a commit is told of may lie where nothing was a moment ago.
#[test]
fn a_commit_covers_what_the_file_has_grown_by_and_holes_that_were_filled() {
    let machine = Machine::new(MediumKind::Shm, 24 * PAGE);
    machine.medium.stray(8 * PAGE, &vec![0; 8 * PAGE as usize]).unwrap();
    *machine.world.holes.lock().unwrap() = vec![(8 * PAGE, 8 * PAGE)];
    let engine = machine.protect(&tiny(1));
    // No source is asked: it is only said that these stores were made.
    let store = |page: u64| {
        let at = page * PAGE;
        let len = (machine.data.window().len() - at).min(PAGE) as usize;
        machine.data.window().put(STORE, at, &content(page, 1)[..len]).unwrap();
    };
    store(10);
    machine.world.holes.lock().unwrap().clear();
    assert!(engine.commit(10 * PAGE, PAGE).unwrap().pages > 0);
    machine.world.set_size(34 * PAGE + 9);
    for page in [30, 34] {
        store(page);
        assert!(engine.commit(page * PAGE, 9).unwrap().pages > 0);
    }
    for page in [10, 30, 34] {
        let before = machine.page(page);
        machine.rot(page, 5);
        assert_eq!(engine.repair(page, &AtRest, Force::No).unwrap(), Mended::Repaired);
        assert_eq!(machine.page(page), before);
    }
}
