//! What is known of damage now, not what was once written down: whoever asks about a file in use
//! hears of pages that are damaged, and of none that was put right. Of a page that nobody can judge
//! he hears once, whatever a pass was cut off at.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{Counter, Engine, Machine, boot, content, killed, tiny, verdict};
use holdfast_faultmem::Clear;
use holdfast_mapped::live::{Keeping, Live, Tally};
use holdfast_mapped::{AtRest, Durability, Mapped, Writing};
use holdfast_pmem::track::SourceKind;
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::events::{Cause, Event, Finder, Outcome};
use holdfast_redundancy::{PageVerdict, Unsure};

const SIZE: u64 = 19 * PAGE;
const FOREIGN: Site = Site::new("test.foreign");

fn protected(machine: &Machine) -> Engine {
    let engine = machine.protect(&tiny(1));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    engine
}

fn asked(engine: &Engine, tally: &Tally) -> Live {
    let tracking = SourceKind::AsyncProtect;
    let keeping = Keeping { guards: false, period_ns: 1, longest_ns: 0, tracking };
    let live = engine.live(keeping, tally, SIZE).unwrap();
    assert_eq!(Live::parse(&live.words()), Some(live.clone()));
    live
}

#[test]
fn damage_counts_as_long_as_it_is_there() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = protected(&machine);
    let mut tally = Tally::default();
    let left = |engine: &Engine, tally: &Tally| asked(engine, tally).damaged;
    // Two of a stripe: lost, as the journal knows from now on.
    machine.rot(8, 1);
    machine.rot(9, 1);
    assert_eq!(engine.scrub(Some(&AtRest)).unwrap().lost, 2);
    assert_eq!(left(&engine, &tally), 2);
    // Opened again, nothing was looked at yet.
    engine.close().unwrap();
    let (engine, _) = machine.open(boot(1, Durability::Process));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    assert_eq!((asked(&engine, &tally).damaged, engine.counts().corrupt), (2, 0));
    // The program gives them other content: no journal tells, and nobody scrubbed.
    machine.store(8, 1);
    assert_eq!(left(&engine, &tally), 1);
    machine.store(9, 1);
    engine.pass().unwrap();
    let live = asked(&engine, &tally);
    assert_eq!((live.damaged, live.unclear, live.found[2]), (0, 0, 2));
    // Damage after a whole scrub found everything good, found by a pass.
    tally.look(&engine.scrub(Some(&AtRest)).unwrap(), 7);
    machine.rot(3, 1);
    machine.store(1, 1);
    assert_eq!(engine.pass().unwrap().corrupt, 1);
    let live = asked(&engine, &tally);
    assert_eq!((live.verdicts.left(), live.verdicts.at_ns, live.damaged), (0, 7, 1));
    // And one that nobody can judge any more.
    machine.world.strange.store(true, Ordering::SeqCst);
    let live = asked(&engine, &tally);
    assert_eq!((live.damaged, live.unclear), (0, 1));
}

#[test]
fn what_cannot_be_read_is_told_as_that() {
    let causes = |engine: &Engine| -> Vec<(Finder, Cause, u32)> {
        let events = engine.events().into_iter().filter(|event| event.outcome == Outcome::Detected);
        events.map(|event| (event.finder, event.cause, event.before_sum)).collect()
    };
    for by_pass in [true, false] {
        let machine = Machine::new(MediumKind::Shm, SIZE);
        let engine = protected(&machine);
        machine.medium.poison(5 * PAGE, 1, Clear::Able).unwrap();
        let finder = if by_pass {
            machine.store(6, 1);
            assert_eq!(engine.pass().unwrap().corrupt, 1);
            Finder::Commit
        } else {
            engine.scrub(None).unwrap();
            Finder::Scrub
        };
        assert_eq!(causes(&engine), [(finder, Cause::MediaError, 0)]);
    }
    // The same of one that is undecided, and of the sums of a region.
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = protected(&machine);
    machine.medium.poison(5 * PAGE, 1, Clear::Able).unwrap();
    engine.mark(5 * PAGE, PAGE).unwrap();
    assert_eq!(engine.pass().unwrap().undecided, 1);
    let found: Vec<Event> = engine.events();
    assert_eq!((found.len(), found[0].cause), (1, Cause::MediaError), "{found:?}");
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let engine = protected(&machine);
    let entries = machine.side.place((128 << 10) + PAGE);
    machine.medium.poison(entries, 1, Clear::Able).unwrap();
    machine.store(6, 1);
    engine.pass().unwrap();
    assert!(causes(&engine).contains(&(Finder::Commit, Cause::MediaError, 0)));
}

/// Opens the file with a clock that goes on where the last one was.
fn opened(machine: &Machine, clock: &Arc<Counter>) -> Engine {
    let (data, side, world) = (machine.data.clone(), machine.side.clone(), machine.world.clone());
    let (clock, options) = (Arc::clone(clock), boot(1, Durability::Process));
    Mapped::open(data.clone(), side, data, world, clock, options).unwrap().0
}

/// What each barrier of something would leave if the process were killed there.
fn kills(machine: &Machine, during: impl FnOnce()) -> Vec<(String, Machine)> {
    let left = Arc::new(Mutex::new(Vec::new()));
    let (twin, kept) = (machine.clone(), Arc::clone(&left));
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        kept.lock().unwrap().push((site.name().to_owned(), killed(&twin, false)));
    }));
    during();
    machine.medium.clear_on_barrier();
    core::mem::take(&mut *left.lock().unwrap())
}

fn told(engine: &Engine, page: u64) -> Vec<u64> {
    let events = engine.events().into_iter();
    let about = events.filter(|e| e.outcome == Outcome::Undecided && e.at == page * PAGE);
    about.map(|event| event.object).collect()
}

#[test]
fn pages_that_a_pass_was_cut_off_at_are_told_once_with_their_reason() {
    let clock = Arc::new(Counter::default());
    let machine = Machine::new(MediumKind::Shm, SIZE);
    machine.protect(&tiny(1)).close().unwrap();
    // Far behind what the one that protected it knew.
    clock.skip(1 << 40);
    let engine = opened(&machine, &clock);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(12, 1);
    engine.pass().unwrap();
    machine.data.window().put(FOREIGN, 5 * PAGE, &content(5, 7)).unwrap();
    engine.doubt_unseen().unwrap();
    let left = kills(&machine, || assert_eq!(engine.pass().unwrap().undecided, 1));
    assert_eq!(told(&engine, 5), [u64::from(Unsure::Unobserved.code())]);
    let mut narrowed = 0;
    for (site, next) in left {
        let mut again = Vec::new();
        again.extend(kills(&next, || drop(opened(&next, &clock))));
        again.push(("the end".to_owned(), killed(&next, false)));
        for (within, last) in again {
            let engine = opened(&last, &clock);
            let PageVerdict::Undecided(why) = verdict(&engine, 5) else { panic!("{site}") };
            let reasons = told(&engine, 5);
            assert_eq!(reasons.len(), 1, "{site}, {within}: {reasons:?}");
            assert_eq!(reasons[0], u64::from(why.code()), "{site}, {within}");
            narrowed += u64::from(why == Unsure::Unobserved);
            // Of pages that are what they were, nothing is told.
            let others: usize =
                (0..19).filter(|page| *page != 5).map(|p| told(&engine, p).len()).sum();
            assert_eq!(others, 0, "{site}, {within}");
        }
    }
    assert!(narrowed > 10, "the pass was cut off behind its notes: {narrowed}");
}

#[test]
fn what_was_told_before_a_pass_was_cut_off_is_not_told_again_and_the_rest_is() {
    let clock = Arc::new(Counter::default());
    let machine = Machine::new(MediumKind::Shm, SIZE);
    machine.protect(&tiny(1)).close().unwrap();
    clock.skip(1 << 40);
    machine.world.mtime.fetch_add(1, Ordering::SeqCst);
    machine.data.window().put(FOREIGN, 4 * PAGE, &content(4, 7)).unwrap();
    let engine = opened(&machine, &clock);
    assert_eq!(told(&engine, 4), [u64::from(Unsure::ChangedWhileUnprotected.code())]);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.data.window().put(FOREIGN, 6 * PAGE, &content(6, 7)).unwrap();
    engine.doubt_unseen().unwrap();
    let (seen, first) = (AtomicU64::new(0), machine.world.mtime.load(Ordering::SeqCst));
    for (site, next) in kills(&machine, || assert_eq!(engine.pass().unwrap().undecided, 1)) {
        next.world.mtime.store(first, Ordering::SeqCst);
        let engine = opened(&next, &clock);
        assert!(matches!(verdict(&engine, 6), PageVerdict::Undecided(_)), "{site}");
        assert_eq!(told(&engine, 6).len(), 1, "{site}");
        seen.fetch_add(u64::from(told(&engine, 4).len() == 1), Ordering::SeqCst);
    }
    // Behind the notes of the pass, each page has its own reason; before them, none is believed.
    assert!(seen.load(Ordering::SeqCst) >= 3, "{seen:?}");
}
