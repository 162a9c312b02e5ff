//! The data file grows, is cut off, has holes, and changes behind our back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Engine, Machine, boot, content, killed, tiny, verdict};
use holdfast_mapped::{
    AtRest, Durability, Error, Force, Mended, OpenOptions, ProtectOptions, Rearm, Report, Writing,
};
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

/// For a moment the system does not say how long the file is: that is no file of no bytes, whose
/// sums could be forgotten.
#[test]
fn a_file_of_which_nothing_is_said_has_not_been_cut_off() {
    let machine = Machine::new(MediumKind::Shm, 32 * PAGE);
    let engine = machine.protect(&tiny(1));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(3, 1);
    let silent = |silent| machine.world.silent.store(silent, Ordering::SeqCst);
    silent(true);
    machine.rot(20, 5);
    let untold = |error: &Error| matches!(error, Error::Identity(_));
    assert!(untold(&engine.pass().unwrap_err()) && untold(&engine.verify_all().unwrap_err()));
    assert!(untold(&engine.commit(3 * PAGE, 9).unwrap_err()));
    assert!(untold(&machine.try_protect(&tiny(1)).unwrap_err()));
    silent(false);
    assert_eq!(engine.pass().unwrap().pages, 1);
    assert_eq!(engine.verify_all().unwrap().corrupt, [20]);
    silent(true);
    assert!(untold(&engine.close().unwrap_err()));
    for read_only in [true, false] {
        let options = OpenOptions { read_only, ..quick() };
        assert!(untold(&machine.try_open(options).unwrap_err()));
    }
    silent(false);
    let (engine, _) = machine.open(quick());
    assert_eq!(engine.repair(20, &AtRest, Force::No).unwrap(), Mended::Repaired);
    assert_eq!(machine.page(20), content(20, 0));
}

/// Storage that was never written to counts as such once it was read, on some file systems.
#[test]
fn a_hole_that_was_read_is_no_region_that_was_wiped_out() {
    // The side file has states for one, not for the other.
    for hole in [(16 * PAGE, 8 * PAGE), (16 * PAGE, 24 * PAGE)] {
        let machine = Machine::new(MediumKind::Shm, 40 * PAGE);
        let zeros = vec![0; hole.1 as usize];
        machine.medium.stray(hole.0, &zeros).unwrap();
        *machine.world.holes.lock().unwrap() = vec![hole];
        machine.protect(&tiny(1)).close().unwrap();
        machine.world.holes.lock().unwrap().clear();
        for read_only in [true, false] {
            let (engine, opened) = machine.open(OpenOptions { read_only, ..quick() });
            let found = engine.verify_all().unwrap();
            assert!(opened.doubtful == 0 && found.corrupt.is_empty(), "{opened:?} {found:?}");
            assert_eq!(found.undecided, [], "{hole:?}");
        }
    }
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

/// A file loses its end at `to`, and gets it back as a hole in two steps, under our eyes or while
/// nobody looks: what an opening says of it then.
fn end_that_comes_back_as_a_hole(to: u64, back: u64, in_use: bool) -> Report {
    let machine = Machine::new(MediumKind::Shm, 32 * PAGE);
    let engine = machine.protect(&tiny(1));
    let mut kept = if in_use {
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        Some(engine)
    } else {
        engine.close().unwrap();
        None
    };
    machine.medium.stray(to, &vec![0; (32 * PAGE - to) as usize]).unwrap();
    for size in [to, back, 32 * PAGE] {
        let hole = (to.next_multiple_of(8 * PAGE), 32 * PAGE);
        *machine.world.holes.lock().unwrap() = vec![hole];
        machine.world.set_size(size);
        machine.world.mtime.fetch_add(1, Ordering::SeqCst);
        match &kept {
            Some(engine) => drop(engine.pass().unwrap()),
            None => machine.open(quick()).0.close().unwrap(),
        }
    }
    if let Some(engine) = kept.take() {
        engine.close().unwrap();
    }
    let (engine, opened) = machine.open(quick());
    assert!(!opened.changed);
    engine.verify_all().unwrap()
}

#[test]
fn what_was_cut_off_is_not_missed_where_there_is_a_hole_now() {
    for to in [8 * PAGE, 9 * PAGE + 100, 16 * PAGE, 0] {
        for (back, in_use) in [(24, true), (24, false), (32, true), (32, false)] {
            let found = end_that_comes_back_as_a_hole(to, back * PAGE, in_use);
            // Of a page that was cut in the middle while nobody looked, nobody knows.
            let cut = !in_use && to % PAGE > 0;
            let doubted: Vec<u64> = found.undecided.iter().map(|(page, _)| *page).collect();
            assert_eq!(found.corrupt, [], "{to} {back} {in_use}");
            assert_eq!(doubted, cut.then_some(to / PAGE).into_iter().collect::<Vec<_>>());
        }
    }
}

/// A file loses its end, and has it back as a hole: the power is cut at each barrier after that.
pub(crate) fn cut_off_and_a_hole(off: &str) -> bool {
    let (whole, size) = (32 * PAGE, 8 * PAGE);
    let machine = Machine::new(MediumKind::File, whole);
    machine.medium.elide_name(off);
    let options = ProtectOptions { open: boot(1, Durability::Power), ..tiny(1) };
    machine.protect(&options).close().unwrap();
    let change = |size: u64| {
        machine.world.set_size(size);
        machine.world.mtime.fetch_add(1, Ordering::SeqCst);
        machine.open(boot(1, Durability::Power)).0
    };
    change(size).close().unwrap();
    machine.medium.stray(size, &vec![0; (whole - size) as usize]).unwrap();
    *machine.world.holes.lock().unwrap() = vec![(size, whole)];
    let engine = change(whole);
    let wrong = Arc::new(AtomicBool::new(false));
    let (seen, twin, name) = (Arc::clone(&wrong), machine.clone(), off.to_owned());
    machine.medium.on_barrier(Box::new(move |_, _, _| {
        let image = twin.medium.crash_point().persisted();
        let next = Machine::after(image, MediumKind::File, whole, None);
        next.medium.elide_name(&name);
        next.world.mtime.store(twin.world.mtime.load(Ordering::SeqCst), Ordering::SeqCst);
        next.world.holes.lock().unwrap().push((size, whole));
        let looking = OpenOptions { read_only: true, ..boot(1, Durability::Power) };
        let (engine, _) = next.try_open(looking).unwrap();
        let report = engine.verify_all().unwrap();
        seen.fetch_or(!report.is_clean(), Ordering::SeqCst);
    }));
    engine.close().unwrap();
    machine.medium.clear_on_barrier();
    wrong.load(Ordering::SeqCst)
}

/// The same, where an opening finds that what the file grew by was covered, since a page of it was
/// under repair.
#[test]
fn what_was_cut_off_is_not_missed_after_an_interrupted_repair() {
    let machine = Machine::new(MediumKind::Shm, 32 * PAGE);
    machine.protect(&tiny(1)).close().unwrap();
    machine.world.set_size(8 * PAGE);
    machine.open(quick()).0.close().unwrap();
    machine.medium.stray(8 * PAGE, &vec![0; 24 * PAGE as usize]).unwrap();
    *machine.world.holes.lock().unwrap() = vec![(16 * PAGE, 32 * PAGE)];
    machine.world.set_size(32 * PAGE);
    let (engine, _) = machine.open(quick());
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(9, 1);
    engine.cover(8 * PAGE, 8 * PAGE).unwrap();
    machine.rot(9, 5);
    let judged = Arc::new(AtomicBool::new(false));
    let (twin, seen) = (machine.clone(), Arc::clone(&judged));
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        if !site.name().starts_with("mapped.repair.store") {
            return;
        }
        let next = killed(&twin, true);
        next.world.holes.lock().unwrap().push((16 * PAGE, 32 * PAGE));
        let (engine, opened) = next.open(quick());
        assert_eq!(opened.interrupted, Some(9));
        engine.close().unwrap();
        let (engine, _) = next.open(quick());
        assert_eq!(engine.verify_all().unwrap().corrupt, []);
        seen.store(true, Ordering::SeqCst);
    }));
    engine.repair(9, &AtRest, Force::No).unwrap();
    machine.medium.clear_on_barrier();
    assert!(judged.load(Ordering::SeqCst));
}

/// Grows or cuts the file and stores a version of all that it then has from page 16 on; somebody
/// else, who wants the first page covered, sees it.
fn change_and_see(machine: &Machine, engine: &Engine, version: u64, sizes: &[u64]) {
    for size in sizes {
        machine.world.set_size(size * PAGE);
        for page in 16..*size {
            machine.store(page, version);
        }
        engine.cover(0, PAGE).unwrap();
    }
}

/// What a kill leaves is undecided nowhere: what was never covered is new, and covered.
fn nothing_is_in_doubt(machine: &Machine) {
    let next = killed(machine, false);
    let (engine, _) = next.open(quick());
    let found = engine.verify_all().unwrap();
    assert_eq!((found.corrupt, found.undecided), (vec![], vec![]));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    engine.pass().unwrap();
    let found = engine.verify_all().unwrap();
    assert_eq!(found.good, found.pages, "{found:?}");
}

/// A pass in steps covers what it began with. What others see the file grow by meanwhile is not in
/// it, nor what comes anew where it was cut off.
#[test]
fn growth_between_two_steps_of_a_pass_is_new_until_it_is_covered() {
    for (first, sizes) in [(16, &[32][..]), (32, &[20, 32]), (30, &[20, 40])] {
        let machine = Machine::new(MediumKind::Shm, 16 * PAGE);
        let open = OpenOptions { batch_pages: 1, ..quick() };
        let engine = machine.protect(&ProtectOptions { open, ..tiny(1) });
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        machine.world.set_size(first * PAGE);
        machine.store(12, 1);
        let mut steps = 0;
        let pause = &mut |_| {
            steps += 1;
            change_and_see(&machine, &engine, steps, sizes);
        };
        engine.pass_in_steps(Rearm::All, pause).unwrap();
        assert!(steps > 0);
        nothing_is_in_doubt(&machine);
    }
}

#[test]
fn what_was_cut_off_before_it_was_covered_is_new() {
    let machine = Machine::new(MediumKind::Shm, 16 * PAGE);
    let engine = machine.protect(&tiny(1));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    change_and_see(&machine, &engine, 1, &[32, 28]);
    nothing_is_in_doubt(&machine);
}

/// A life of a file whose length changes by zeros: watched, at rest, in use by nobody who looks,
/// with kills. What each step found to be damaged.
fn life_of_lengths(seed: u64) -> Vec<(String, Vec<u64>)> {
    let mut x = seed * 2 + 1;
    let mut next = |most: u64| {
        x = x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (x >> 33) % most
    };
    let mut machine = Machine::new(MediumKind::Shm, 1 + next(32) * PAGE + next(2) * 100);
    let mut kept = Some(machine.protect(&tiny(1)));
    let (mut admitted, mut found) = (false, Vec::new());
    for step in 0..16 {
        let what = match (&kept, next(9)) {
            // Of a file at rest that somebody has open, whoever changes it is heard.
            (kept, 0..3) if kept.is_none() || admitted => {
                let size = next(33) * PAGE + next(3) * 100;
                resize(&machine, size, next(2) == 0);
                kept.as_ref().map(|engine| engine.cover(0, PAGE).unwrap());
                "length"
            }
            (Some(engine), 3) if !admitted => {
                engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
                admitted = true;
                "let in"
            }
            (Some(engine), 3..5) if admitted => {
                let last = machine.data.window().len().div_ceil(PAGE);
                (0..last.min(3)).for_each(|_| machine.store(next(last), step));
                engine.cover(next(9) * PAGE, PAGE).unwrap();
                "stores"
            }
            (Some(engine), 5) => {
                engine.pass().unwrap();
                "pass"
            }
            (Some(_), 6) => {
                kept.take().unwrap().close().unwrap();
                admitted = false;
                "close"
            }
            (Some(_), 7) => {
                let after = killed(&machine, false);
                resembles(&after, &machine);
                (machine, kept, admitted) = (after, None, false);
                "kill"
            }
            (None, _) => {
                kept = Some(machine.open(quick()).0);
                "open"
            }
            _ => "nothing",
        };
        let looking = OpenOptions { read_only: true, ..quick() };
        let looks = [kept.as_ref().map(|engine| engine.verify_all().unwrap()), {
            // Who only looks at the side file beside who has it open.
            let beside = kept.is_none().then(|| machine.open(looking).0);
            beside.map(|engine| engine.verify_all().unwrap())
        }];
        let corrupt = looks.into_iter().flatten().flat_map(|report| report.corrupt).collect();
        found.push((format!("{step}: {what}"), corrupt));
    }
    found
}

/// The file gets another length: zeros are added, with storage or without.
fn resize(machine: &Machine, size: u64, hole: bool) {
    let old = machine.data.window().len();
    if size < old {
        machine.medium.stray(size, &vec![0; (old - size) as usize]).unwrap();
    }
    let holes = &mut *machine.world.holes.lock().unwrap();
    holes.retain(|(at, _)| *at < size.min(old));
    if hole && size > old {
        holes.push((old.next_multiple_of(PAGE), size - old));
    }
    machine.world.set_size(size);
    machine.world.mtime.fetch_add(1, Ordering::SeqCst);
}

fn resembles(next: &Machine, before: &Machine) {
    next.world.mtime.store(before.world.mtime.load(Ordering::SeqCst), Ordering::SeqCst);
    *next.world.holes.lock().unwrap() = before.world.holes.lock().unwrap().clone();
}

#[test]
fn zeros_that_come_and_go_are_never_damage() {
    for seed in 0..400 {
        let found = life_of_lengths(seed);
        let bad = found.iter().any(|(_, corrupt)| !corrupt.is_empty());
        assert!(!bad, "{seed}: {found:?}");
    }
}

/// Beside damage, what is stored to waits for as long as parity may give the damage back. Parity of
/// pages that were cut off gives nothing back, and nothing waits for it.
#[test]
fn nothing_waits_for_parity_of_what_was_cut_off() {
    for reopened in [false, true] {
        let machine = Machine::new(MediumKind::Shm, 16 * PAGE);
        let engine = machine.protect(&tiny(2));
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        // A stripe has four pages; of the last one the last is cut off.
        machine.rot(12, 5);
        machine.world.set_size(15 * PAGE);
        let (machine, engine) = if reopened {
            // It is known to be shorter from here on, and the other region is not covered.
            engine.commit(0, PAGE).unwrap();
            let next = killed(&machine, true);
            next.world.set_size(15 * PAGE);
            let (engine, _) = next.open(quick());
            engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
            (next, engine)
        } else {
            (machine, engine)
        };
        machine.store(13, 2);
        let covered = engine.pass().unwrap();
        assert_eq!((covered.deferred, verdict(&engine, 13)), (0, PageVerdict::Good), "{covered:?}");
        assert_eq!(verdict(&engine, 12), PageVerdict::Corrupt, "what is damaged stays found");
    }
}

/// Zeros that are gone are no part of parity: what it gives back it still gives back.
#[test]
fn zeros_that_are_cut_off_cost_no_parity() {
    let machine = Machine::new(MediumKind::Shm, 6 * PAGE);
    let engine = machine.protect(&tiny(2));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.world.set_size(8 * PAGE);
    engine.pass().unwrap();
    let before = machine.page(4);
    machine.rot(4, 5);
    machine.world.set_size(6 * PAGE);
    machine.store(5, 2);
    engine.pass().unwrap();
    assert_eq!(engine.repair(4, &AtRest, Force::No).unwrap(), Mended::Repaired);
    assert_eq!(machine.page(4), before);
    engine.pass().unwrap();
    assert!(engine.verify_all().unwrap().is_clean());
}
