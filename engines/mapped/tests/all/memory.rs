//! Memory that fails under a load: the system throws its copy of the page away, and reads in what
//! the device has. That may look right.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Chosen, Counter, Engine, Machine, any_image, boot, content, tiny, verdict};
use holdfast_faultmem::{Budget, Clear, CrashPoint};
use holdfast_mapped::format::{EVENTS_FROM, SIDE_LENS};
use holdfast_mapped::{
    AtRest, Durability, Force, LoadFault, Mapped, Mended, ProtectOptions, Writing,
};
use holdfast_pmem::{MediumKind, PAGE};
use holdfast_redundancy::events::{Cause, Finder, Outcome};
use holdfast_redundancy::{PageVerdict, Unsure};

const PAGES: u64 = 19;
const GONE: Unsure = Unsure::MemoryFailed;
/// Long enough for what was covered to be older than any failure.
const LATER: u64 = 1_000_000_000;
/// It was met just now.
const NOW: LoadFault = LoadFault::Memory { age_ns: 0 };

/// A file whose writers are let in, all of it covered a while ago.
fn kept(off: &str) -> (Machine, Engine, Arc<Counter>) {
    let machine = Machine::new(MediumKind::File, PAGES * PAGE);
    machine.medium.elide_name(off);
    let clock = Arc::new(Counter::default());
    let engine = Mapped::protect(
        machine.data.clone(),
        machine.side.clone(),
        machine.data.clone(),
        machine.world.clone(),
        Arc::clone(&clock) as _,
        &ProtectOptions { open: boot(1, Durability::Power), ..tiny(1) },
    );
    let engine = engine.unwrap();
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    clock.skip(LATER);
    (machine, engine, clock)
}

/// The memory of page 5 fails: what it has is what the device has, which is that version.
fn fails(machine: &Machine, version: u64) {
    machine.medium.stray(5 * PAGE, &content(5, version)).unwrap();
}

fn is_gone(engine: &Engine) -> bool {
    verdict(engine, 5) == PageVerdict::Undecided(GONE)
}

/// Page 5 was stored to, and nothing covers that: whatever it holds, it stays undecided, at once,
/// after passes and scrubs, after a power cut and after a close.
pub(crate) fn what_was_stored_went_with_the_memory(off: &str) -> bool {
    let (machine, engine, _) = kept(off);
    machine.store(5, 1);
    fails(&machine, 0);
    if engine.heal_load(5, NOW, &AtRest).unwrap() != Mended::Undecided(GONE) {
        return true;
    }
    let mut gone = is_gone(&engine);
    for bits in [true, false] {
        let image = machine.medium.crash_point().persisted();
        let marks = bits.then(|| machine.data.marks());
        let next = Machine::after(image, MediumKind::File, PAGES * PAGE, marks);
        next.medium.elide_name(off);
        let (again, _) = next.open(boot(2, Durability::Power));
        again.admit(0, u64::MAX, Writing::NotYet).unwrap();
        again.pass().unwrap();
        gone &= is_gone(&again);
    }
    // Its stripe is gone over, too.
    machine.store(6, 1);
    engine.pass().unwrap();
    engine.scrub(Some(&AtRest)).unwrap();
    gone &= is_gone(&engine) && engine.counts().undecided == 1;
    engine.close().unwrap();
    let (engine, _) = machine.open(boot(1, Durability::Power));
    !gone || !is_gone(&engine) || machine.page(5) != content(5, 0)
}

/// The question is served late, and a pass has covered what the device had by then.
pub(crate) fn a_pass_came_before_the_question(off: &str) -> bool {
    let (machine, engine, clock) = kept(off);
    machine.store(5, 1);
    fails(&machine, 0);
    engine.pass().unwrap();
    clock.skip(LATER);
    let met = LoadFault::Memory { age_ns: LATER + 1_000_000 };
    engine.heal_load(5, met, &AtRest).unwrap() != Mended::Undecided(GONE) || !is_gone(&engine)
}

/// The same where no page of the journal can be written, so that nothing is stored after the doubt
/// itself: it outlives a power cut.
pub(crate) fn a_doubt_that_no_journal_takes_lasts(off: &str) -> bool {
    let (machine, engine, _) = kept(off);
    let side_len = SIDE_LENS[0];
    for start in [EVENTS_FROM, side_len + EVENTS_FROM] {
        let (at, len) = (machine.side.place(start), side_len - EVENTS_FROM);
        machine.medium.poison(at, len, Clear::Unable).unwrap();
    }
    machine.store(5, 1);
    fails(&machine, 0);
    if engine.heal_load(5, NOW, &AtRest).unwrap() != Mended::Undecided(GONE) {
        return true;
    }
    assert!(engine.counts().unreported > 0, "the journal took it");
    let image = machine.medium.crash_point().persisted();
    let next = Machine::after(image, MediumKind::File, PAGES * PAGE, None);
    next.medium.elide_name(off);
    !is_gone(&next.open(boot(2, Durability::Power)).0)
}

#[test]
fn nothing_that_was_stored_is_lost_in_silence() {
    assert!(!what_was_stored_went_with_the_memory("nothing"));
    assert!(!a_pass_came_before_the_question("nothing"));
}

#[test]
fn it_is_told_once_and_what_was_covered_is_offered() {
    let (machine, engine, _) = kept("nothing");
    machine.store(5, 1);
    // What the device has is older than what was covered.
    fails(&machine, 7);
    for _ in 0..2 {
        assert_eq!(engine.heal_load(5, NOW, &AtRest).unwrap(), Mended::Undecided(GONE));
    }
    let told: Vec<_> = engine.events().into_iter().filter(|event| event.at == 5 * PAGE).collect();
    let [event] = &told[..] else { panic!("{told:?}") };
    assert_eq!((event.outcome, event.cause), (Outcome::Undecided, Cause::MediaError));
    assert_eq!((event.finder, event.object), (Finder::Load, GONE.code().into()));
    assert_eq!(engine.counts().undecided, 1);
    assert_eq!(engine.before_image(5).unwrap().unwrap(), content(5, 0));
    assert_eq!(machine.page(5), content(5, 7), "kept as it is");
    assert_eq!(engine.repair(5, &AtRest, Force::No).unwrap(), Mended::Undecided(GONE));
    assert_eq!(engine.repair(5, &AtRest, Force::Undecided).unwrap(), Mended::Repaired);
    engine.pass().unwrap();
    assert_eq!(verdict(&engine, 5), PageVerdict::Good);
    assert_eq!(machine.page(5), content(5, 0));
}

#[test]
fn who_decides_or_stores_again_ends_it() {
    for decides in [false, true] {
        let (machine, engine, _) = kept("nothing");
        machine.store(5, 1);
        fails(&machine, 0);
        assert_eq!(engine.heal_load(5, NOW, &AtRest).unwrap(), Mended::Undecided(GONE));
        if decides {
            engine.accept(5 * PAGE, PAGE).unwrap();
        } else {
            machine.store(5, 2);
            engine.pass().unwrap();
        }
        assert_eq!(verdict(&engine, 5), PageVerdict::Good);
    }
}

#[test]
fn what_was_covered_and_not_stored_to_since_is_good_or_given_back() {
    let (machine, engine, clock) = kept("nothing");
    assert_eq!(engine.heal_load(5, NOW, &AtRest).unwrap(), Mended::Good);
    machine.store(5, 1);
    engine.pass().unwrap();
    clock.skip(LATER);
    // It was covered, and not written back.
    fails(&machine, 0);
    assert_eq!(engine.heal_load(5, NOW, &AtRest).unwrap(), Mended::Repaired);
    assert_eq!((machine.page(5), verdict(&engine, 5)), (content(5, 1), PageVerdict::Good));
    // Nobody vouches for it: undecided, whatever it was.
    machine.data.lose(5 * PAGE, PAGE);
    assert_eq!(engine.heal_load(5, NOW, &AtRest).unwrap(), Mended::Undecided(GONE));
    assert_eq!(engine.doubt_load(9).unwrap(), Mended::Undecided(GONE));
    assert_eq!(verdict(&engine, 9), PageVerdict::Undecided(GONE));
    assert_eq!(engine.counts().undecided, 2);
}

/// A page that could not be read in was not in memory: no store to it was lost.
#[test]
fn what_could_not_be_read_in_is_judged_as_it_is_by_then() {
    let (machine, engine, clock) = kept("nothing");
    machine.rot(5, 100);
    assert_eq!(engine.heal_load(5, LoadFault::Unread, &AtRest).unwrap(), Mended::Repaired);
    assert_eq!(engine.heal_load(5, LoadFault::Unread, &AtRest).unwrap(), Mended::Good);
    machine.store(5, 1);
    let uncovered = Mended::Undecided(Unsure::Uncovered);
    assert_eq!(engine.heal_load(5, LoadFault::Unread, &AtRest).unwrap(), uncovered);
    engine.pass().unwrap();
    clock.skip(LATER);
    assert_eq!(verdict(&engine, 5), PageVerdict::Good, "what it holds is covered");
}

/// What is told, for how many times it was asked.
fn told_of(engine: &Engine, page: u64) -> Vec<(Outcome, u64)> {
    let events = engine.events().into_iter().filter(|event| event.at == page * PAGE);
    events.map(|event| (event.outcome, event.object)).collect()
}

#[test]
fn what_is_doubted_for_good_is_told_once() {
    let (_machine, engine, _) = kept("nothing");
    for _ in 0..3 {
        assert_eq!(engine.doubt_load(5).unwrap(), Mended::Undecided(GONE));
    }
    assert!(is_gone(&engine));
    assert_eq!(told_of(&engine, 5), [(Outcome::Undecided, GONE.code().into())]);
    assert_eq!(engine.counts().undecided, 1);
}

/// The power is cut at any time meanwhile: as long as the doubt is there, it is told once.
#[test]
fn what_went_with_the_memory_is_told_whenever_the_power_is_cut() {
    let (machine, engine, _) = kept("nothing");
    machine.store(5, 1);
    fails(&machine, 0);
    let all = |point: &CrashPoint| -> Chosen { Box::new(point.images(&Budget::default())) };
    let seen = Arc::new(AtomicUsize::new(0));
    let doubts = Arc::clone(&seen);
    let wrong = move |next: &Machine| {
        let (engine, _) = next.open(boot(2, Durability::Power));
        let told = told_of(&engine, 5).len();
        doubts.fetch_add(usize::from(is_gone(&engine)), Ordering::SeqCst);
        told != usize::from(is_gone(&engine))
    };
    let heals = || {
        assert_eq!(engine.heal_load(5, NOW, &AtRest).unwrap(), Mended::Undecided(GONE));
    };
    assert!(!any_image(&machine, ("nothing", "", false), all, wrong, heals));
    assert!(seen.load(Ordering::SeqCst) > 0);
}

#[test]
fn a_page_that_nothing_covers_is_lost_and_nothing_else_with_it() {
    let (_machine, engine, _) = kept("nothing");
    let beyond = 1000 * PAGES;
    let why = Unsure::Uncovered;
    assert_eq!(engine.doubt_load(beyond).unwrap(), Mended::Undecided(why));
    assert_eq!(told_of(&engine, beyond), [(Outcome::Lost, why.code().into())]);
    for page in 0..PAGES {
        assert_eq!(verdict(&engine, page), PageVerdict::Good);
    }
}

#[test]
fn what_cannot_be_read_in_and_was_stored_to_is_told_once() {
    let (machine, engine, _) = kept("nothing");
    machine.store(5, 1);
    let why = Unsure::Uncovered;
    for _ in 0..3 {
        let met = engine.heal_load(5, LoadFault::Unread, &AtRest).unwrap();
        assert_eq!(met, Mended::Undecided(why));
    }
    assert_eq!(told_of(&engine, 5), [(Outcome::Lost, why.code().into())]);
    assert_eq!(machine.page(5), content(5, 1), "kept as it is");
}
