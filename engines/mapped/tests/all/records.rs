//! First stores on record in the side file: whoever dies between two passes, or in one, leaves
//! pages of which it is known that they were stored to. Rot makes no store, and nothing is on
//! record longer than it has to be.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use crate::common::{
    Chosen, DEATHS, Engine, Machine, ROOM, any_image, boot, content, killed, tiny, verdict,
};
use holdfast_faultmem::{Budget, Clear, CrashPoint};
use holdfast_mapped::format::{EVENTS_FROM, SIDE_LENS};
use holdfast_mapped::{
    AtRest, Durability, Error, Force, Mended, OpenOptions, ProtectOptions, Writing,
};
use holdfast_pmem::track::{NOTED, Record};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::PageVerdict;

const PROCESS: Durability = Durability::Process;
/// Where the records of the first regions are, eight bytes for each.
const RECORDS: u64 = (128 << 10) + 2 * PAGE;

/// A file of 19 pages, with writers whose first stores are on record.
fn recorded(off: &str, kind: MediumKind, durability: Durability) -> (Machine, Engine) {
    let machine = Machine::new(kind, 19 * PAGE);
    machine.medium.elide_name(off);
    let options = ProtectOptions { open: boot(1, durability), ..tiny(1) };
    let engine = machine.protect(&options);
    machine.record();
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    (machine, engine)
}

/// The machine after a kill that no bits of the source outlived, opened again.
fn reopened(machine: &Machine, off: &str) -> (Machine, Engine) {
    reopened_after(machine, off, PROCESS)
}

/// The same after that or, where power cuts are survived, after one.
fn reopened_after(machine: &Machine, off: &str, durability: Durability) -> (Machine, Engine) {
    let next = match durability {
        Durability::Process => killed(machine, false),
        Durability::Power => {
            let image = machine.medium.crash_point().persisted();
            Machine::after(image, MediumKind::File, 19 * PAGE, None)
        }
    };
    next.medium.elide_name(off);
    let (engine, _) = next.open(boot(1, durability));
    (next, engine)
}

fn doubted(engine: &Engine, page: u64) -> bool {
    matches!(verdict(engine, page), PageVerdict::Undecided(why) if why.is_doubt())
}

/// A page stored to, and one that rots, die with the process: only the first is covered.
pub(crate) fn a_record_is_proof(off: &str) -> bool {
    let (machine, engine) = recorded(off, MediumKind::Shm, PROCESS);
    machine.store(5, 1);
    drop(engine);
    machine.rot(9, 100);
    let (next, engine) = reopened(&machine, off);
    let kept = next.page(5) == content(5, 1) && verdict(&engine, 5) == PageVerdict::Good;
    next.rot(5, 7);
    let back = engine.repair(5, &AtRest, Force::No).unwrap() == Mended::Repaired;
    !kept || !back || !doubted(&engine, 9)
}

/// What was covered since is not on record any more: rot there is no store.
pub(crate) fn what_is_covered_is_off_the_record(off: &str) -> bool {
    let (machine, engine) = recorded(off, MediumKind::Shm, PROCESS);
    machine.store(5, 1);
    engine.pass().unwrap();
    drop(engine);
    machine.rot(5, 100);
    !doubted(&reopened(&machine, off).1, 5)
}

/// What was on record at one crash is not at the next.
pub(crate) fn recovery_uses_records_up(off: &str) -> bool {
    DEATHS.into_iter().any(|(kind, durability)| {
        let (machine, engine) = recorded(off, kind, durability);
        machine.store(5, 1);
        drop(engine);
        let (machine, engine) = reopened_after(&machine, off, durability);
        drop(engine);
        machine.rot(5, 100);
        !doubted(&reopened_after(&machine, off, durability).1, 5)
    })
}

/// What lies there from before writers are let in is of no store of theirs.
pub(crate) fn old_records_are_cleared(off: &str) -> bool {
    let (machine, engine) = recorded(off, MediumKind::Shm, PROCESS);
    engine.close().unwrap();
    machine.medium.stray(machine.side.place(RECORDS + 5), &[NOTED]).unwrap();
    // They have a source that records nothing.
    let (machine, engine) = reopened(&machine, off);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    drop(engine);
    machine.rot(5, 100);
    !doubted(&reopened(&machine, off).1, 5)
}

/// The same where the power is cut before anybody was let in.
pub(crate) fn cleared_before_suspect(off: &str) -> bool {
    let power = boot(1, Durability::Power);
    let (machine, engine) = recorded(off, MediumKind::File, Durability::Power);
    engine.close().unwrap();
    machine.medium.stray(machine.side.place(RECORDS + 5), &[NOTED]).unwrap();
    machine.rot(5, 100);
    let (engine, _) = machine.open(power);
    let wrong = |next: &Machine| {
        let (engine, _) = next.open(boot(2, Durability::Power));
        verdict(&engine, 5) == PageVerdict::Good
    };
    any_image(&machine, (off, "mapped.admit.suspect-drain", false), some, wrong, || {
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    })
}

/// Some of the images that a power cut may leave.
fn some(point: &CrashPoint) -> Chosen {
    let budget = Budget { exhaustive: 64, singles: 32, pairs: 16, samples: 16, seed: 7 };
    Box::new(point.images(&budget))
}

/// The power is cut right behind a repair, whose own store went on record.
pub(crate) fn a_repair_is_off_the_record(off: &str) -> bool {
    let (machine, engine) = recorded(off, MediumKind::File, Durability::Power);
    machine.rot(5, 100);
    assert_eq!(engine.repair(5, &AtRest, Force::No).unwrap(), Mended::Repaired);
    let image = machine.medium.crash_point().persisted();
    let next = Machine::after(image, MediumKind::File, 19 * PAGE, None);
    next.medium.elide_name(off);
    let looking = OpenOptions { read_only: true, ..boot(2, Durability::Power) };
    verdict(&next.open(looking).0, 5) != PageVerdict::Good
}

/// The same at every step of it: our own store is in the intent, or it is not on record. Events
/// cannot be written, which would wait for more than themselves.
pub(crate) fn a_repair_is_on_no_record_without_its_intent(off: &str) -> bool {
    let (machine, engine) = recorded(off, MediumKind::File, Durability::Power);
    for side in [0, SIDE_LENS[0]] {
        let events = machine.side.place(side + EVENTS_FROM);
        machine.medium.poison(events, SIDE_LENS[0] - EVENTS_FROM, Clear::Unable).unwrap();
    }
    machine.rot(5, 100);
    let wrong = |next: &Machine| {
        let looking = OpenOptions { read_only: true, ..boot(2, Durability::Power) };
        let (engine, opened) = next.open(looking);
        let ours = opened.interrupted.is_none() && next.page(5) == content(5, 0);
        ours && verdict(&engine, 5) != PageVerdict::Good
    };
    any_image(&machine, (off, "", false), some, wrong, || {
        assert_eq!(engine.repair(5, &AtRest, Force::No).unwrap(), Mended::Repaired);
    })
}

/// A page of records that cannot be read is made anew before anybody depends on it.
pub(crate) fn a_bad_page_is_made_anew(off: &str) -> bool {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    machine.medium.elide_name(off);
    let engine = machine.protect(&tiny(1));
    machine.medium.poison(machine.side.place(RECORDS), 1, Clear::Able).unwrap();
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    if !machine.records().reach(0, 19 * PAGE) || !machine.records().set(5 * PAGE) {
        return true;
    }
    // Nor does it come to be bad again.
    drop(engine);
    machine.rot(5, 100);
    verdict(&reopened(&machine, off).1, 5) != PageVerdict::Good
}

#[test]
fn records_lie_in_groups_and_grow_with_the_file() {
    let (machine, engine) = recorded("nothing", MediumKind::Shm, PROCESS);
    machine.world.set_size(38 * PAGE);
    engine.update_now().unwrap();
    // Pages of four groups, the last of which was taken in a moment ago.
    let pages = [0, 7, 8, 15, 16, 18, 19, 31, 32, 37];
    for page in pages {
        machine.store(page, 1);
    }
    let records = machine.records();
    for page in 0..38 {
        assert_eq!(records.is_set(page * PAGE), pages.contains(&page), "{page}");
    }
    drop(engine);
    let (next, engine) = reopened(&machine, "nothing");
    assert_eq!(engine.undecided(), []);
    let report = engine.verify_all().unwrap();
    assert!(report.is_clean() && report.uncovered == 0, "{report:?}");
    for page in pages {
        assert_eq!(next.page(page), content(page, 1));
        next.rot(page, 9);
        assert_eq!(engine.repair(page, &AtRest, Force::No).unwrap(), Mended::Repaired);
    }
}

#[test]
fn places_are_refused_with_the_header() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    assert!(matches!(holdfast_mapped::record_places(&machine.side), Err(Error::NotASideFile)));
    machine.protect(&tiny(1)).unprotect().unwrap();
    assert!(matches!(holdfast_mapped::record_places(&machine.side), Err(Error::Ended)));
    let records = Machine::new(MediumKind::Shm, ROOM);
    records.protect(&tiny(1));
    let records = records.records();
    assert!(!records.set(ROOM) && !records.set(u64::MAX), "no page of the file");
    assert!(!records.reach(ROOM - PAGE, 2 * PAGE));
}

/// Every byte of the records wrong in every way: no page that was not damaged is called corrupt,
/// none is taken back, and only what was really written there makes a store.
#[test]
fn rot_of_records_costs_at_most_a_certainty() {
    for byte in [0x00, 0x01, 0x80, 0xff, NOTED ^ 1, NOTED] {
        for clean in [false, true] {
            let (machine, engine) = recorded("nothing", MediumKind::Shm, PROCESS);
            machine.store(5, 1);
            machine.rot(9, 100);
            if clean {
                // Of a file at rest.
                machine.rot(9, 100);
                engine.close().unwrap();
                machine.rot(9, 100);
            } else {
                drop(engine);
            }
            let rotten = [byte; 16];
            machine.medium.stray(machine.side.place(RECORDS), &rotten).unwrap();
            let before: Vec<Vec<u8>> = (0..19).map(|page| machine.page(page)).collect();
            let (next, engine) = reopened(&machine, "nothing");
            let report = engine.verify_all().unwrap();
            let wanted: &[u64] = if clean { &[9] } else { &[] };
            assert_eq!(report.corrupt, wanted, "{byte:#x}");
            if !clean {
                assert_eq!(doubted(&engine, 5), byte != NOTED, "{byte:#x}");
                assert_eq!(doubted(&engine, 9), byte != NOTED, "{byte:#x}");
            }
            engine.scrub(Some(&AtRest)).unwrap();
            engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
            engine.pass().unwrap();
            engine.scrub(Some(&AtRest)).unwrap();
            engine.close().unwrap();
            for page in (0..19).filter(|page| *page != 9 || !clean) {
                assert_eq!(next.page(page), before[page as usize], "{byte:#x}: taken back");
            }
        }
    }
}

/// A stray write holds the byte of a record by chance, and others beside it; a page has rotted.
pub(crate) fn among_strange_bytes_none_is_a_record(off: &str) -> bool {
    let (machine, engine) = recorded(off, MediumKind::Shm, PROCESS);
    drop(engine);
    machine.rot(1, 100);
    machine.medium.stray(machine.side.place(RECORDS), &[0x31, NOTED, 0x7c]).unwrap();
    let (_, engine) = reopened(&machine, off);
    !doubted(&engine, 1)
}

#[test]
fn records_that_cannot_be_read_prove_nothing() {
    assert!(!among_strange_bytes_none_is_a_record("nothing"));
    let (machine, engine) = recorded("nothing", MediumKind::Shm, PROCESS);
    machine.store(5, 1);
    drop(engine);
    machine.medium.poison(machine.side.place(RECORDS), 1, Clear::Able).unwrap();
    let (next, engine) = reopened(&machine, "nothing");
    assert!(doubted(&engine, 5));
    assert_eq!(engine.verify_all().unwrap().corrupt, [0_u64; 0]);
    assert_eq!(next.page(5), content(5, 1));
}

#[test]
fn records_of_another_file_or_of_another_run_of_the_machine_prove_nothing() {
    for other in [false, true] {
        let (machine, engine) = recorded("nothing", MediumKind::Shm, PROCESS);
        machine.store(5, 1);
        drop(engine);
        let next = killed(&machine, false);
        next.world.inode.fetch_add(u64::from(other), Ordering::SeqCst);
        let (engine, _) = next.open(boot(if other { 1 } else { 2 }, PROCESS));
        assert!(doubted(&engine, 5), "{other}");
        drop(engine);
        // Nor do they later.
        let again = killed(&next, false);
        let (engine, _) = again.open(boot(if other { 1 } else { 2 }, PROCESS));
        assert!(doubted(&engine, 5), "{other}");
        assert_eq!(again.page(5), content(5, 1));
    }
}

/// Who only looks is told that the page is not covered, and nothing is used up by it.
#[test]
fn looking_uses_nothing_up() {
    let (machine, engine) = recorded("nothing", MediumKind::Shm, PROCESS);
    machine.store(5, 1);
    drop(engine);
    let next = killed(&machine, false);
    for _ in 0..2 {
        let (engine, _) = next.open(OpenOptions { read_only: true, ..boot(1, PROCESS) });
        let uncovered = PageVerdict::Undecided(holdfast_redundancy::Unsure::Uncovered);
        assert_eq!(verdict(&engine, 5), uncovered);
    }
    let (engine, _) = next.open(boot(1, PROCESS));
    assert_eq!(verdict(&engine, 5), PageVerdict::Good);
}

/// A repair that is cut off, whose own store is on record: it proves nothing.
#[test]
fn our_own_store_on_record_proves_nothing() {
    let (machine, engine) = recorded("nothing", MediumKind::Shm, PROCESS);
    machine.rot(5, 100);
    let rotten = machine.page(5);
    let left = Arc::new(Mutex::new(None));
    let (kept, twin) = (Arc::clone(&left), machine.clone());
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        if site.name() == "mapped.repair.store-drain" {
            *kept.lock().unwrap() = Some(killed(&twin, false));
        }
    }));
    assert_eq!(engine.repair(5, &AtRest, Force::No).unwrap(), Mended::Repaired);
    machine.medium.clear_on_barrier();
    let next = left.lock().unwrap().take().unwrap();
    assert!(next.records().is_set(5 * PAGE), "the store of the repair went on record");
    // It arrived in part.
    next.medium.stray(5 * PAGE, &rotten).unwrap();
    let (engine, opened) = next.open(boot(1, PROCESS));
    assert_eq!(opened.interrupted, Some(5));
    assert!(doubted(&engine, 5));
    // And when it was whole, nothing of it is left: rot is no store of anybody.
    drop(engine);
    machine.rot(5, 9);
    let (_, engine) = reopened(&machine, "nothing");
    assert!(doubted(&engine, 5));
}

/// Recovery is cut off at every barrier, and once more: pages on record are covered in the
/// end, pages that are not stay undecided, and nothing is taken back.
#[test]
fn a_recovery_that_is_cut_off_finds_the_same_again() {
    for (kind, durability) in [
        (MediumKind::Shm, PROCESS),
        (MediumKind::File, PROCESS),
        (MediumKind::File, Durability::Power),
        (MediumKind::Dax, Durability::Power),
    ] {
        let (machine, engine) = recorded("nothing", kind, durability);
        for page in [0, 5, 8, 18] {
            machine.store(page, 1);
        }
        machine.rot(10, 3);
        drop(engine);
        let power = kind == MediumKind::File && durability == Durability::Power;
        let images = cut_off(&machine, kind, durability, power, 2);
        println!("{kind:?} {durability:?}: {images} images");
        assert!(images > 20, "{kind:?} {durability:?}: {images}");
    }
}

/// Opens what a crash of `machine` leaves, cut off at every barrier `depth` times; answers how many
/// images were judged.
fn cut_off(machine: &Machine, kind: MediumKind, how: Durability, power: bool, depth: u32) -> u64 {
    let first = killed(machine, false);
    let images = Arc::new(Mutex::new(Vec::new()));
    let (found, twin) = (Arc::clone(&images), first.clone());
    let mut dice = 0;
    first.medium.on_barrier(Box::new(move |_, _, point| {
        dice += 1;
        let mut all = vec![point.newest()];
        if power {
            let budget = Budget { exhaustive: 6, singles: 4, pairs: 0, samples: 3, seed: dice };
            all.extend(point.images(&budget).take(4).chain([point.persisted()]));
        }
        let size = twin.data.window().len();
        let after = all.into_iter().map(|image| Machine::after(image, kind, size, None));
        found.lock().unwrap().extend(after);
    }));
    let (engine, _) = first.open(boot(1, how));
    first.medium.clear_on_barrier();
    judge_recovered(&first, &engine);
    drop(engine);
    let images = std::mem::take(&mut *images.lock().unwrap());
    let mut count = images.len() as u64;
    for image in images.into_iter().step_by(if depth == 2 { 1 } else { 17 }) {
        if depth > 0 {
            count += cut_off(&image, kind, how, power, depth - 1);
        } else {
            let (engine, _) = image.open(boot(1, how));
            judge_recovered(&image, &engine);
        }
    }
    count
}

fn judge_recovered(machine: &Machine, engine: &Engine) {
    for page in 0..19 {
        let version = u64::from([0, 5, 8, 18].contains(&page));
        if page == 10 {
            assert!(doubted(engine, page));
            continue;
        }
        assert_eq!(machine.page(page), content(page, version), "{page}");
        assert_eq!(verdict(engine, page), PageVerdict::Good, "{page}");
    }
}
