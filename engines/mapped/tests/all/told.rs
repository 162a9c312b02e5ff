//! What is told of damage: each damage once, also where there was one before, and since when it may
//! have been there.

use crate::common::{Engine, Machine, ROOM, boot, content, killed, tiny, verdict};
use holdfast_faultmem::{Clear, FailMode};
use holdfast_mapped::{AtRest, Durability, Force, Mended, OpenOptions, State, Writing};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::events::{Cause, Event, Finder, Outcome};
use holdfast_redundancy::{PageVerdict, Side, Unsure, Wrong};

const SIZE: u64 = 19 * PAGE;

fn quick() -> OpenOptions {
    boot(1, Durability::Process)
}

fn admitted(machine: &Machine) -> Engine {
    let engine = machine.protect(&tiny(1));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    engine
}

fn about(engine: &Engine, page: u64, outcome: Outcome) -> Vec<Event> {
    let events = engine.events().into_iter();
    events.filter(|event| event.at == page * PAGE && event.outcome == outcome).collect()
}

#[test]
fn damage_after_a_page_was_covered_anew_is_another_damage() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = admitted(&machine);
    machine.rot(4, 9);
    machine.rot(5, 9);
    // Two of a stripe: lost. Told once, however often it is found.
    for _ in 0..2 {
        assert_eq!(engine.scrub(Some(&AtRest)).unwrap().lost, 2);
    }
    assert_eq!((engine.counts().corrupt, about(&engine, 4, Outcome::Detected).len()), (2, 1));
    // The program writes over them.
    machine.store(4, 1);
    machine.store(5, 1);
    engine.pass().unwrap();
    machine.rot(4, 77);
    engine.scrub(None).unwrap();
    assert_eq!((engine.counts().corrupt, about(&engine, 4, Outcome::Detected).len()), (3, 2));
    // The same where it stores what was covered, as a pass finds, or as a scrub does.
    let mut expected = (3, 2);
    for by_pass in [true, false] {
        machine.store(4, 1);
        if by_pass {
            assert_eq!(engine.pass().unwrap().unchanged, 1);
        } else {
            take(&machine, 4);
            assert_eq!(engine.scrub(None).unwrap().report.corrupt, [0; 0]);
        }
        assert_eq!(verdict(&engine, 4), PageVerdict::Good);
        machine.rot(4, 78);
        // Found beside a page that was stored to.
        machine.store(6, expected.0);
        engine.pass().unwrap();
        expected = (expected.0 + 1, expected.1 + 1);
        let told = about(&engine, 4, Outcome::Detected);
        assert_eq!((engine.counts().corrupt, told.len() as u64), expected, "{by_pass}");
        assert_eq!(told.last().unwrap().finder, Finder::Commit);
    }
}

/// A store that nobody is to be told of any more.
fn take(machine: &Machine, page: u64) {
    use holdfast_pmem::track::DirtySource;
    machine.data.take(page * PAGE, PAGE, &mut |_, _| {}).unwrap();
}

#[test]
fn damage_is_told_with_the_time_when_its_region_was_last_verified() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = admitted(&machine);
    assert_eq!((engine.verified_ns(3), engine.coverage().unwrap().verified_ns), (0, 0));
    machine.rot(3, 1);
    let step = engine.scrub(Some(&AtRest)).unwrap();
    assert_eq!((step.repaired, step.verified_ns), (1, Some(0)), "never before");
    assert_eq!(about(&engine, 3, Outcome::Detected)[0].verified_ns, 0);
    // It was put right, so all of it is verified now.
    let first = engine.verified_ns(3);
    assert!(first > 0 && engine.coverage().unwrap().verified_ns > 0);
    assert_eq!(engine.scrub(None).unwrap().verified_ns, None, "all is good");
    let second = engine.verified_ns(3);
    assert!(second > first);
    // Damage that stays leaves its region with the time it had, and the others go on.
    machine.rot(4, 1);
    machine.rot(5, 1);
    for _ in 0..2 {
        let step = engine.scrub(Some(&AtRest)).unwrap();
        assert_eq!((step.lost, step.verified_ns), (2, Some(second)));
        assert_eq!(engine.verified_ns(4), second);
        assert!(engine.verified_ns(9) > second);
    }
    for outcome in [Outcome::Detected, Outcome::Lost] {
        let told = about(&engine, 5, outcome);
        assert!(!told.is_empty() && told.iter().all(|e| e.verified_ns == second), "{told:?}");
    }
    assert_eq!(engine.coverage().unwrap().verified_ns, second, "the oldest of all");
    // So does what nobody can judge.
    let before = engine.verified_ns(17);
    machine.data.lose(16 * PAGE, 3 * PAGE);
    machine.rot(17, 1);
    engine.pass().unwrap();
    assert_eq!(verdict(&engine, 17), PageVerdict::Undecided(Unsure::TrackingLost));
    assert_eq!(engine.scrub(Some(&AtRest)).unwrap().verified_ns, Some(second));
    assert_eq!(engine.verified_ns(17), before);
    assert_eq!(about(&engine, 17, Outcome::Undecided)[0].verified_ns, before);
}

#[test]
fn when_it_was_verified_is_on_record_also_if_nobody_was_let_in() {
    let machine = Machine::new(MediumKind::File, SIZE);
    let power = boot(1, Durability::Power);
    let options = holdfast_mapped::ProtectOptions { open: power, ..tiny(1) };
    machine.protect(&options).close().unwrap();
    let (engine, _) = machine.open(power);
    machine.medium.poison(2 * PAGE, 1, Clear::Able).unwrap();
    assert_eq!(engine.scrub(Some(&AtRest)).unwrap().repaired, 1);
    let verified = engine.verified_ns(2);
    engine.close().unwrap();
    assert!(verified > 0);
    let looking = OpenOptions { read_only: true, ..power };
    let (engine, opened) = machine.open(looking);
    assert_eq!((engine.verified_ns(2), opened.doubtful, opened.damaged), (verified, 0, 0));
    // Looking does not count: it keeps nothing.
    engine.verify_all().unwrap();
    assert_eq!(engine.verified_ns(2), verified);
    drop(engine);
    // In either copy.
    for copy in [128 << 10, (128 << 10) + 7 * PAGE] {
        machine.medium.flip_bit(machine.side.place(copy + 9), 3).unwrap();
        let (engine, opened) = machine.open(looking);
        assert_eq!((engine.verified_ns(2), opened.damaged), (verified, 1));
        machine.medium.flip_bit(machine.side.place(copy + 9), 3).unwrap();
    }
}

#[test]
fn pages_that_could_not_be_read_are_left_out_and_named() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    for page in [5, 17] {
        machine.medium.poison(page * PAGE, 1, Clear::Able).unwrap();
    }
    let engine = machine.protect(&tiny(1));
    let left = engine.undecided_pages(usize::MAX);
    assert_eq!(left.iter().map(|(page, _)| *page).collect::<Vec<_>>(), [5, 17]);
    assert!(left.iter().all(|(_, why)| matches!(why, Unsure::Media(_))), "{left:?}");
    assert_eq!(engine.undecided_pages(1), left[..1]);
    // No other page of their stripes is given back by parity that was never made.
    machine.rot(4, 1);
    assert_eq!(engine.repair(4, &AtRest, Force::No).unwrap(), Mended::Lost);
    engine.close().unwrap();
    let (engine, _) = machine.open(OpenOptions { read_only: true, ..quick() });
    assert_eq!(engine.undecided_pages(9), left);
}

#[test]
fn holes_are_not_looked_at() {
    let machine = Machine::new(MediumKind::Shm, 32 * PAGE);
    machine.medium.stray(8 * PAGE, &vec![0; 16 * PAGE as usize]).unwrap();
    *machine.world.holes.lock().unwrap() = vec![(8 * PAGE, 16 * PAGE)];
    let engine = machine.protect(&tiny(1));
    assert_eq!(engine.to_look_at(32), [0..8, 24..32]);
    assert_eq!(engine.to_look_at(26), [0..8, 24..26]);
    assert_eq!(engine.to_look_at(9), vec![0..8; 1]);
    // Whoever read there would find a bad page.
    machine.medium.poison(12 * PAGE, 1, Clear::Able).unwrap();
    let report = engine.verify_all().unwrap();
    assert!(report.is_clean() && report.uncovered == 0, "{report:?}");
    assert_eq!((report.pages, report.good), (32, 32));
    // A part that has got storage since is looked at, and nothing beside it.
    *machine.world.holes.lock().unwrap() = vec![(8 * PAGE, 10 * PAGE), (19 * PAGE, 5 * PAGE)];
    machine
        .data
        .window()
        .put(holdfast_pmem::Site::new("test.foreign"), 18 * PAGE, &content(18, 1))
        .unwrap();
    assert_eq!(engine.to_look_at(32), [0..8, 18..19, 24..32]);
    let report = engine.verify_all().unwrap();
    assert_eq!((report.pages, report.good, report.uncovered), (32, 31, 1));
}

/// Copies of the header of which events say something, as found by a scrub.
fn of_header(engine: &Engine, outcome: Outcome) -> Vec<Side> {
    let events = engine.events().into_iter();
    let events = events.filter(|e| e.finder == Finder::Scrub && e.outcome == outcome);
    let side = |e: Event| match e.wrong {
        Some(Wrong::Mirror { side }) if e.cause == Cause::Copies => Some(side),
        _ => None,
    };
    events.filter_map(side).collect()
}

#[test]
fn a_header_that_rots_while_its_file_is_in_use_is_made_anew_by_a_scrub() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = admitted(&machine);
    assert_eq!(engine.scrub(Some(&AtRest)).unwrap().records, 0);
    let places = [0, 64 << 10].map(|side| machine.side.place(side));
    let mut told = Vec::new();
    for hurt in [vec![Side::A], vec![Side::B], vec![Side::A, Side::B]] {
        for side in &hurt {
            let at = places[usize::from(*side == Side::B)];
            match told.len() % 2 {
                0 => machine.medium.flip_bit(at + 100, 3).unwrap(),
                _ => machine.medium.poison(at, PAGE, Clear::Able).unwrap(),
            }
            told.push(*side);
        }
        assert_eq!(engine.scrub(None).unwrap().records, hurt.len() as u64, "{hurt:?}");
        assert_eq!(of_header(&engine, Outcome::Repaired), told);
        assert_eq!(engine.scrub(None).unwrap().records, 0, "{hurt:?}");
    }
    // One that stays bad is told, and the other one is left alone: it is the only one.
    machine.medium.poison(places[1], PAGE, Clear::Unable).unwrap();
    let other = |machine: &Machine| {
        let mut page = vec![0; PAGE as usize];
        machine.side.read(0, &mut page).unwrap();
        page
    };
    // Also after a store of it failed.
    for failed in [false, true] {
        if failed {
            engine.contest(true).unwrap_err();
        }
        let before = other(&machine);
        machine.medium.on_barrier(Box::new(move |medium, _, _| {
            let mut page = vec![0; PAGE as usize];
            medium.read(ROOM, &mut page).unwrap();
            assert!(page == before, "the only header is stored to");
        }));
        for _ in 0..2 {
            assert_eq!(engine.scrub(None).unwrap().records, 0);
        }
        machine.medium.clear_on_barrier();
    }
    assert_eq!(of_header(&engine, Outcome::Detected), [Side::B; 4]);
    assert_eq!(of_header(&engine, Outcome::Repaired), told);
    machine.store(4, 1);
    assert_eq!(engine.pass().unwrap().pages, 1);
    drop(engine);
    let machine = killed(&machine, true);
    let (engine, _) = machine.open(OpenOptions { read_only: true, ..quick() });
    assert_eq!(verdict(&engine, 4), PageVerdict::Good);
}

#[test]
fn a_header_that_could_not_be_stored_is_stored_by_the_next_who_needs_it() {
    for scrub in [false, true] {
        let machine = Machine::new(MediumKind::Shm, SIZE);
        let engine = machine.protect(&tiny(1));
        engine.close().unwrap();
        let (engine, _) = machine.open(quick());
        let before = holdfast_mapped::left(&machine.side).unwrap();
        machine.medium.poison(machine.side.place(0), PAGE, Clear::Able).unwrap();
        machine.medium.fail_nth(machine.medium.calls() + 1, FailMode::Forever);
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap_err();
        machine.medium.fail_none();
        if scrub {
            engine.scrub(None).unwrap();
        } else {
            engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        }
        assert_eq!(before.state, State::Clean);
        assert_eq!(holdfast_mapped::left(&machine.side).unwrap().state, State::Open, "{scrub}");
    }
}
