//! Repairs that do not come to their end, and places that take no other bytes: what one page costs
//! the others. Where nobody is let in, our own store changes the date of the file; an opening that
//! does not know that date calls all damage that is left a doubt.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use crate::common::{Engine, Machine, boot, content, killed, tiny, verdict};
use holdfast_faultmem::Clear;
use holdfast_mapped::{
    AtRest, Durability, Force, Mended, OpenOptions, ProtectOptions, State, Writing,
};
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::events::Outcome;
use holdfast_redundancy::{PageVerdict, Unsure};

const FOREIGN: Site = Site::new("test.foreign");
const SIZE: u64 = 19 * PAGE;

fn quick() -> OpenOptions {
    boot(1, Durability::Process)
}

/// A file at rest with damage in two regions, opened to be repaired. From now on `then` is called
/// when a page was stored to by a repair, which gives the file another date.
fn damaged(then: impl Fn(&Machine) + Send + 'static) -> (Machine, Engine) {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    machine.protect(&tiny(1)).close().unwrap();
    machine.rot(1, 9);
    machine.rot(9, 9);
    let (engine, opened) = machine.open(quick());
    assert!(!opened.changed && opened.state == State::Clean);
    let twin = machine.clone();
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        if site.name() == "mapped.repair.store-drain" {
            twin.world.mtime.fetch_add(1, Ordering::SeqCst);
            then(&twin);
        }
    }));
    (machine, engine)
}

/// The machine after whoever works at it was killed, with the date that the file has.
fn dead(machine: &Machine) -> Machine {
    let next = killed(machine, false);
    next.world.mtime.store(machine.world.mtime.load(Ordering::SeqCst), Ordering::SeqCst);
    next
}

#[test]
fn damage_beside_a_page_that_was_repaired_stays_certain() {
    let (machine, engine) = damaged(|_| {});
    assert_eq!(engine.repair(1, &AtRest, Force::No).unwrap(), Mended::Repaired);
    machine.medium.clear_on_barrier();
    drop(engine);
    // Never closed.
    let machine = dead(&machine);
    let (engine, opened) = machine.open(quick());
    assert_eq!((opened.changed, opened.interrupted, opened.recovered.undecided), (false, None, 0));
    assert_eq!(verdict(&engine, 1), PageVerdict::Good);
    assert_eq!(verdict(&engine, 9), PageVerdict::Corrupt);
    assert_eq!(engine.repair(9, &AtRest, Force::No).unwrap(), Mended::Repaired);
    assert_eq!((machine.page(1), machine.page(9)), (content(1, 0), content(9, 0)));
}

/// Cut off at each barrier: before the date is known all is doubted, and after it nothing is.
#[test]
fn at_no_barrier_of_a_repair_is_anything_believed_too_early() {
    let (machine, engine) = damaged(|_| {});
    let twin = machine.clone();
    let left = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&left);
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        if site.name() == "mapped.repair.store-drain" {
            twin.world.mtime.fetch_add(1, Ordering::SeqCst);
        }
        kept.lock().unwrap().push((site.name(), dead(&twin)));
    }));
    assert_eq!(engine.repair(1, &AtRest, Force::No).unwrap(), Mended::Repaired);
    machine.medium.clear_on_barrier();
    let mut said = Vec::new();
    for (site, next) in left.lock().unwrap().drain(..) {
        let before = next.page(1);
        let (engine, opened) = next.open(quick());
        let (first, other) = (verdict(&engine, 1), verdict(&engine, 9));
        let stored = before == content(1, 0);
        assert_eq!(first == PageVerdict::Good, stored, "{site}: {first:?}");
        // The store is ours: whoever was killed in it leaves a doubt of this page.
        let began = opened.interrupted.is_some();
        assert!(!began || first != PageVerdict::Corrupt, "{site}");
        let doubted = matches!(other, PageVerdict::Undecided(why) if why.is_doubt());
        assert!(doubted || other == PageVerdict::Corrupt, "{site}: {other:?}");
        assert_eq!(doubted, opened.changed, "{site}");
        engine.scrub(Some(&AtRest)).unwrap();
        let now = next.page(9);
        assert_eq!(now == content(9, 0), !doubted, "{site}");
        said.push(doubted);
    }
    assert!(said.contains(&true) && said.last() == Some(&false), "{said:?}");
}

#[test]
fn what_a_stranger_wrote_beside_a_repair_is_not_vouched_for() {
    let (machine, engine) = damaged(|machine| {
        machine.data.window().put(FOREIGN, 13 * PAGE, &content(13, 7)).unwrap();
        machine.world.strange.store(true, Ordering::SeqCst);
    });
    assert_eq!(engine.repair(1, &AtRest, Force::No).unwrap(), Mended::Repaired);
    machine.medium.clear_on_barrier();
    drop(engine);
    let machine = dead(&machine);
    let (engine, opened) = machine.open(quick());
    assert!(opened.changed);
    let why = Unsure::ChangedWhileUnprotected;
    assert_eq!(verdict(&engine, 13), PageVerdict::Undecided(why));
    assert_eq!(engine.repair(13, &AtRest, Force::No).unwrap(), Mended::Undecided(why));
    assert_eq!(machine.page(13), content(13, 7));
}

/// What the file had grown by when it was opened is not covered because a page was repaired.
#[test]
fn a_repair_beside_growth_covers_nothing_of_it() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    machine.protect(&tiny(1)).close().unwrap();
    machine.world.set_size(SIZE + 2 * PAGE);
    machine.data.window().put(FOREIGN, SIZE, &content(19, 1)).unwrap();
    machine.rot(1, 9);
    machine.world.mtime.fetch_add(1, Ordering::SeqCst);
    let (engine, _) = machine.open(quick());
    // Of a file that has changed it is not certain.
    assert_eq!(engine.repair(1, &AtRest, Force::Undecided).unwrap(), Mended::Repaired);
    drop(engine);
    let machine = dead(&machine);
    let (engine, opened) = machine.open(quick());
    assert!(opened.changed, "it is longer than what was covered");
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    engine.pass().unwrap();
    assert_eq!(verdict(&engine, 19), PageVerdict::Good);
    assert_eq!(machine.page(19), content(19, 1));
}

#[test]
fn a_page_that_takes_no_other_bytes_is_lost_alone() {
    for admit in [false, true] {
        let machine = Machine::new(MediumKind::Shm, SIZE);
        // All of them in one region.
        let engine = machine.protect(&ProtectOptions { stripes: 4, ..tiny(1) });
        if admit {
            engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        }
        machine.rot(1, 100);
        machine.medium.poison(5 * PAGE, 1, Clear::Unable).unwrap();
        machine.rot(9, 100);
        let done = engine.scrub(Some(&AtRest)).unwrap();
        assert_eq!(done.report.corrupt, [1, 5, 9], "{admit}");
        assert_eq!((done.repaired, done.lost, done.finished), (2, 1, true), "{admit}");
        assert_eq!((machine.page(1), machine.page(9)), (content(1, 0), content(9, 0)));
        let lost: Vec<u64> = engine
            .events()
            .into_iter()
            .filter(|event| event.outcome == Outcome::Lost)
            .map(|event| event.at / PAGE)
            .collect();
        assert_eq!(lost, [5], "{admit}");
        // It is damaged as before, and no repair is under way.
        assert_eq!(verdict(&engine, 5), PageVerdict::Corrupt, "{admit}");
        assert_eq!(engine.before_image(5).unwrap().unwrap(), content(5, 0), "{admit}");
        engine.close().unwrap();
        let (engine, opened) = machine.open(quick());
        assert_eq!((opened.interrupted, opened.doubtful), (None, 0), "{admit}");
        assert_eq!(verdict(&engine, 5), PageVerdict::Corrupt, "{admit}");
    }
}
