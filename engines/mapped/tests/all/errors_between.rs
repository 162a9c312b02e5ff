//! Errors in the middle of something, and strangers at the door: what an engine that goes on after
//! them may not have forgotten. Found by reading.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::bent::{Asked, Bend, Bent};
use crate::common::{Counter, Engine, Machine, boot, content, killed, tiny, verdict};
use holdfast_faultmem::{Clear, FailMode, FaultKind, Watched, When, Window};
use holdfast_mapped::{
    AtRest, Durability, Force, LoadFault, Mapped, Mended, OpenOptions, ProtectOptions, Writing,
};
use holdfast_pmem::track::TrackError;
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::events::Outcome;
use holdfast_redundancy::{PageVerdict, Unsure};

const FOREIGN: Site = Site::new("test.foreign");

/// A source of which one call fails.
#[derive(Debug, Clone)]
struct Failing {
    inner: Watched,
    /// Which call of a kind fails, counted down: looks at single pages, arming, taking.
    peek: Arc<AtomicU64>,
    arm: Arc<AtomicU64>,
    take: Arc<AtomicU64>,
}

impl Failing {
    fn of(inner: &Watched) -> Self {
        Self {
            inner: inner.clone(),
            peek: Arc::default(),
            arm: Arc::default(),
            take: Arc::default(),
        }
    }

    fn turn(count: &AtomicU64) -> Result<(), TrackError> {
        let before = count.load(Ordering::SeqCst);
        count.store(before.saturating_sub(1), Ordering::SeqCst);
        if before == 1 { Err(TrackError::Busy { what: "the source" }) } else { Ok(()) }
    }
}

impl Bend for Failing {
    fn inner(&self) -> &Watched {
        &self.inner
    }

    fn before(&self, asked: Asked, len: u64) -> Result<(), TrackError> {
        match asked {
            Asked::Arm => Self::turn(&self.arm),
            Asked::Take => Self::turn(&self.take),
            Asked::Peek if len == PAGE => Self::turn(&self.peek),
            Asked::Peek => Ok(()),
        }
    }
}

type FailingEngine = Mapped<Watched, Window, Bent<Failing>>;

fn protected(machine: &Machine) -> (FailingEngine, Failing) {
    let source = Failing::of(&machine.data);
    let (data, side, world) = (machine.data.clone(), machine.side.clone(), machine.world.clone());
    let clock = Arc::new(Counter::default());
    let bent = Bent(source.clone());
    (Mapped::protect(data, side, bent, world, clock, &tiny(1)).unwrap(), source)
}

fn failing(machine: &Machine) -> (FailingEngine, Failing) {
    failing_of(machine, false)
}

/// The same, first stores on record or not.
fn failing_of(machine: &Machine, recorded: bool) -> (FailingEngine, Failing) {
    let (engine, source) = protected(machine);
    if recorded {
        machine.record();
    }
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    (engine, source)
}

fn admitted(machine: &Machine) -> Engine {
    let engine = machine.protect(&tiny(1));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    engine
}

fn quick() -> OpenOptions {
    boot(1, Durability::Process)
}

#[test]
fn a_look_that_fails_forgets_no_store() {
    for nth in [1, 9] {
        let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
        let (engine, source) = failing(&machine);
        source.peek.store(nth, Ordering::SeqCst);
        assert!(engine.scrub_step(None).is_err(), "a page, and a page for its parity");
        machine.store(5, 1);
        assert_eq!(engine.pass().unwrap().pages, 1);
        assert_eq!(engine.verify(5).unwrap().verdict, PageVerdict::Good);
        assert_eq!(engine.scrub(None).unwrap().report.good, 19);
    }
}

/// Page 5 was damaged and put back, or that never arrived, and the source failed when the store was
/// to be taken from it.
fn put_back(machine: &Machine, arrives: bool) -> (FailingEngine, Failing) {
    put_back_of(machine, arrives, false)
}

/// The same, first stores on record or not.
fn put_back_of(machine: &Machine, arrives: bool, recorded: bool) -> (FailingEngine, Failing) {
    let (engine, source) = failing_of(machine, recorded);
    machine.rot(5, 100);
    source.take.store(1, Ordering::SeqCst);
    if !arrives {
        machine.medium.arm(FaultKind::Lost, When::touching(5 * PAGE, PAGE));
    }
    assert!(engine.repair(5, &AtRest, Force::No).is_err());
    assert_eq!(engine.verify(5).unwrap().verdict == PageVerdict::Good, arrives);
    (engine, source)
}

#[test]
fn a_repair_whose_own_store_cannot_be_taken_back_passes_no_damage_off_as_one() {
    for arrives in [true, false] {
        let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
        let (engine, _) = put_back(&machine, arrives);
        let said = |page| engine.verify(page).unwrap().verdict;
        assert_ne!(said(5), PageVerdict::Undecided(Unsure::Uncovered), "nobody stored there");
        machine.rot(5, 200);
        engine.pass().unwrap();
        let doubted = matches!(said(5), PageVerdict::Undecided(why) if why.is_doubt());
        assert!(doubted, "{:?}", said(5));
        // A store of the program is covered as ever.
        machine.store(5, 1);
        engine.pass().unwrap();
        assert_eq!(said(5), PageVerdict::Good);
    }
}

#[test]
fn a_store_behind_one_of_ours_that_could_not_be_taken_back_is_no_damage() {
    for commits in [true, false] {
        let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
        let (engine, _) = put_back(&machine, true);
        if commits {
            // Covers what is known, without the source.
            engine.commit(PAGE, PAGE).unwrap();
        }
        machine.store(5, 1);
        for _ in 0..2 {
            let said = engine.verify(5).unwrap().verdict;
            assert!(matches!(said, PageVerdict::Undecided(_)), "{commits}: {said:?}");
            let done = engine.scrub(Some(&AtRest)).unwrap();
            assert_eq!((done.repaired, done.report.corrupt), (0, vec![]));
            assert_eq!(machine.page(5), content(5, 1), "it is taken back");
            engine.pass().unwrap();
        }
        // The next one is told as ever.
        machine.store(5, 2);
        engine.pass().unwrap();
        assert_eq!(engine.verify(5).unwrap().verdict, PageVerdict::Good);
    }
}

#[test]
fn a_page_whose_own_store_could_not_be_taken_back_is_soon_asked_about_again() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let (engine, _) = put_back(&machine, true);
    engine.pass().unwrap();
    machine.store(5, 1);
    engine.pass().unwrap();
    assert_eq!(engine.verify(5).unwrap().verdict, PageVerdict::Good);
}

#[test]
fn memory_that_fails_behind_a_store_of_ours_loses_nothing_in_silence() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let (engine, _) = put_back(&machine, true);
    machine.store(5, 1);
    // What the device has is what was covered.
    machine.medium.stray(5 * PAGE, &content(5, 0)).unwrap();
    let met = LoadFault::Memory { age_ns: 0 };
    let mended = engine.heal_load(5, met, &AtRest).unwrap();
    assert_eq!(mended, Mended::Undecided(Unsure::MemoryFailed));
}

/// The same machine after a kill, opened again.
fn after_a_kill(machine: &Machine, engine: FailingEngine) -> Engine {
    drop(engine);
    killed(machine, false).open(quick()).0
}

#[test]
fn a_store_of_ours_that_could_not_be_taken_back_is_on_record_no_longer_than_its_intent() {
    for arrives in [true, false] {
        let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
        let (engine, _) = put_back_of(&machine, arrives, true);
        machine.rot(9, 100);
        assert_eq!(engine.repair(9, &AtRest, Force::No).unwrap(), Mended::Repaired);
        let said = verdict(&after_a_kill(&machine, engine), 5);
        assert_eq!(said == PageVerdict::Good, arrives, "{said:?}");
    }
}

#[test]
fn what_went_with_the_memory_is_told_though_the_source_fails() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let (engine, source) = failing(&machine);
    machine.store(5, 1);
    source.take.store(1, Ordering::SeqCst);
    let met = LoadFault::Memory { age_ns: 0 };
    assert!(engine.heal_load(5, met, &AtRest).is_err(), "the source refuses");
    for _ in 0..2 {
        let told = engine.events().into_iter().filter(|event| event.at == 5 * PAGE);
        assert_eq!(told.map(|event| event.outcome).collect::<Vec<_>>(), [Outcome::Undecided]);
        let gone = Mended::Undecided(Unsure::MemoryFailed);
        assert_eq!(engine.heal_load(5, met, &AtRest).unwrap(), gone);
    }
    assert_eq!(engine.counts().undecided, 1);
}

#[test]
fn writers_that_could_not_be_let_in_have_stored_nothing() {
    for again in [true, false] {
        let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
        let (engine, source) = protected(&machine);
        source.take.store(1, Ordering::SeqCst);
        assert!(engine.admit(0, u64::MAX, Writing::NotYet).is_err(), "the source refuses");
        assert!(engine.verify_all().unwrap().good == 19, "all is as it was covered");
        // A pass for what somebody else said changes nothing about that.
        engine.mark(0, PAGE).unwrap();
        engine.pass().unwrap();
        assert!(engine.verify_all().unwrap().good == 19, "all is as it was covered");
        machine.rot(5, 100);
        if again {
            engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
            machine.store(6, 1);
            let said = engine.verify(6).unwrap().verdict;
            assert_eq!(said, PageVerdict::Undecided(Unsure::Uncovered));
            engine.pass().unwrap();
            assert_eq!(engine.verify(6).unwrap().verdict, PageVerdict::Good);
        }
        assert_eq!(engine.verify(5).unwrap().verdict, PageVerdict::Corrupt);
        assert_eq!(
            engine.repair(5, &AtRest, Force::No).unwrap(),
            if again { Mended::Lost } else { Mended::Repaired }
        );
    }
}

#[test]
fn growth_that_could_not_be_tracked_is_tracked_the_next_time() {
    // To the end of the last region, and beyond it.
    for (to, page, nth) in [(24, 20, 1), (32, 28, 2)] {
        let machine = Machine::new(MediumKind::Shm, 18 * PAGE);
        let (engine, source) = failing(&machine);
        machine.world.set_size(to * PAGE);
        source.arm.store(nth, Ordering::SeqCst);
        assert!(engine.pass().is_err(), "the source refuses");
        engine.pass().unwrap();
        machine.store(page, 1);
        let said = engine.verify(page).unwrap().verdict;
        assert_eq!(said, PageVerdict::Undecided(Unsure::Uncovered), "{to}");
        engine.pass().unwrap();
        assert!(engine.verify_all().unwrap().is_clean());
    }
}

#[test]
fn what_was_told_before_an_error_is_covered_by_the_next_pass() {
    let machine = Machine::new(MediumKind::Shm, 24 * PAGE);
    let (engine, source) = failing(&machine);
    // Two runs: the second of them is not side by side with the first.
    engine.dismiss(8 * PAGE, 8 * PAGE).unwrap();
    for page in [2, 18] {
        machine.store(page, 1);
    }
    source.take.store(2, Ordering::SeqCst);
    assert!(engine.pass().is_err());
    engine.pass().unwrap();
    assert!(engine.verify_all().unwrap().is_clean(), "{:?}", engine.verify_all());
}

#[test]
fn entries_that_rot_after_a_pass_that_failed_are_no_damage_of_their_pages() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let (engine, source) = failing(&machine);
    machine.store(2, 1);
    machine.rot(3, 7);
    source.peek.store(1, Ordering::SeqCst);
    assert!(engine.pass().is_err(), "asked again about page 3");
    for (at, rotten) in [(5, [0x5a; 8]), (6, [0; 8])] {
        let place = machine.side.place((128 << 10) + PAGE + at * 8);
        machine.medium.stray(place, &rotten).unwrap();
    }
    for page in [5, 6] {
        let said = engine.verify(page).unwrap().verdict;
        assert_eq!(said, PageVerdict::Undecided(Unsure::SumsDamaged), "page {page}");
    }
}

#[test]
fn a_file_that_was_cut_off_and_changed_is_in_doubt_until_it_was_looked_at() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    machine.protect(&tiny(1)).close().unwrap();
    machine.world.set_size(10 * PAGE);
    machine.medium.stray(10 * PAGE, &[0; 9 * PAGE as usize]).unwrap();
    machine.data.window().put(FOREIGN, PAGE, &content(1, 7)).unwrap();
    machine.world.mtime.store(8, Ordering::SeqCst);
    let (twin, left) = (machine.clone(), Arc::new(Mutex::new(None)));
    let kept = Arc::clone(&left);
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        if site.name() == "mapped.header.drain-a" {
            kept.lock().unwrap().get_or_insert_with(|| killed(&twin, false));
        }
    }));
    machine.open(quick());
    machine.medium.clear_on_barrier();
    let next = left.lock().unwrap().take().unwrap();
    next.world.mtime.store(8, Ordering::SeqCst);
    let (engine, _) = next.open(quick());
    assert_ne!(verdict(&engine, 1), PageVerdict::Corrupt);
    assert_ne!(engine.repair(1, &AtRest, Force::No).unwrap(), Mended::Repaired);
    assert!(next.page(1) == content(1, 7));
}

/// A stranger writes at a barrier: it is heard, or only the file's date shows it.
fn strangers(machine: &Machine, at: &'static str, heard: bool) {
    let twin = machine.clone();
    on_barrier(machine, at, move || {
        twin.data.window().put(FOREIGN, PAGE, &content(1, 7)).unwrap();
        twin.world.mtime.store(9, Ordering::SeqCst);
        twin.world.strange.store(heard, Ordering::SeqCst);
    });
}

fn is_left_alone(machine: &Machine) {
    machine.medium.clear_on_barrier();
    machine.world.strange.store(false, Ordering::SeqCst);
    let (engine, _) = machine.open(quick());
    assert_ne!(verdict(&engine, 1), PageVerdict::Corrupt);
    assert_ne!(engine.repair(1, &AtRest, Force::No).unwrap(), Mended::Repaired);
    assert!(machine.page(1) == content(1, 7), "taken back");
}

#[test]
fn who_writes_while_the_side_file_is_closed_is_seen_by_the_next_opening() {
    for heard in [true, false] {
        let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
        let engine = admitted(&machine);
        machine.store(9, 1);
        strangers(&machine, "mapped.admit.clean-drain", heard);
        engine.close().unwrap();
        is_left_alone(&machine);
    }
}

#[test]
fn who_writes_after_the_file_was_covered_and_before_the_side_file_is_closed_is_seen() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let engine = machine.protect(&tiny(1));
    machine.data.window().put(FOREIGN, PAGE, &content(1, 7)).unwrap();
    machine.world.mtime.store(9, Ordering::SeqCst);
    engine.close().unwrap();
    is_left_alone(&machine);
}

#[test]
fn who_writes_while_the_side_file_is_opened_is_seen_by_the_next_opening() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    admitted(&machine).close().unwrap();
    // Changed already, so that there is something to look at.
    machine.world.mtime.store(8, Ordering::SeqCst);
    strangers(&machine, "mapped.commit.E", false);
    drop(machine.open(quick()));
    is_left_alone(&machine);
}

fn on_barrier(machine: &Machine, at: &'static str, once: impl Fn() + Send + Sync + 'static) {
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        if site.name() == at {
            once();
        }
    }));
}

#[test]
fn what_cannot_be_read_is_replaced_only_where_it_would_be_if_it_could() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let engine = machine.protect(&tiny(1));
    engine.contest(true).unwrap();
    machine.data.window().put(FOREIGN, 5 * PAGE, &content(5, 7)).unwrap();
    machine.medium.poison(5 * PAGE, 1, Clear::Able).unwrap();
    let mended = engine.repair(5, &AtRest, Force::No).unwrap();
    assert!(matches!(mended, Mended::Undecided(_)), "{mended:?}");
    // A pass that finds it beside another page says no more than that.
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(6, 1);
    let done = engine.pass().unwrap();
    assert_eq!((done.corrupt, done.undecided), (0, 1));
    engine.contest(false).unwrap();
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let engine = machine.protect(&tiny(1));
    machine.medium.poison(5 * PAGE, 1, Clear::Able).unwrap();
    assert_eq!(engine.repair(5, &AtRest, Force::No).unwrap(), Mended::Repaired);
}

#[test]
fn what_a_source_vouched_for_at_first_and_lost_then_is_in_doubt() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let engine = admitted(&machine);
    machine.store(5, 1);
    drop(engine);
    let machine = killed(&machine, true);
    let (engine, _) = machine.open(quick());
    machine.data.lose(0, 8 * PAGE);
    assert_eq!(verdict(&engine, 5), PageVerdict::Undecided(Unsure::TrackingLost));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    assert_eq!(verdict(&engine, 5), PageVerdict::Undecided(Unsure::TrackingLost));
}

#[test]
fn cutting_a_file_off_between_pages_covers_no_damage() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let engine = admitted(&machine);
    machine.rot(11, 5);
    machine.world.set_size(12 * PAGE);
    engine.pass().unwrap();
    assert_ne!(verdict(&engine, 11), PageVerdict::Good);
}

#[test]
fn a_repair_that_went_wrong_is_not_covered() {
    let machine = Machine::new(MediumKind::File, 19 * PAGE);
    let options = ProtectOptions { open: boot(1, Durability::Power), ..tiny(1) };
    let engine = machine.protect(&options);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.rot(5, 100);
    machine.medium.arm(FaultKind::Lost, When::touching(5 * PAGE, PAGE));
    assert_eq!(engine.repair(5, &AtRest, Force::No).unwrap(), Mended::Lost);
    engine.pass().unwrap();
    assert_eq!(verdict(&engine, 5), PageVerdict::Corrupt);
    assert_eq!(engine.repair(5, &AtRest, Force::No).unwrap(), Mended::Repaired);
    assert!(machine.page(5) == content(5, 0));
}

#[test]
fn a_side_file_that_was_cut_off_leaves_nothing_covered_behind_its_end() {
    let machine = Machine::new(MediumKind::Shm, 40 * PAGE);
    machine.protect(&tiny(1)).close().unwrap();
    machine.rot(37, 9);
    let side = machine.side.clone();
    // Two regions to a group: what is left says nothing of the last one.
    side.set_len((128 << 10) + 2 * 8 * PAGE);
    for read_only in [true, false] {
        let (engine, opened) = machine.open(OpenOptions { read_only, ..quick() });
        assert!(opened.doubtful > 0 && opened.damaged > 0, "{opened:?}");
        let said = verdict(&engine, 37);
        assert!(matches!(said, PageVerdict::Undecided(why) if why.is_doubt()), "{said:?}");
        assert!(!engine.verify_all().unwrap().is_clean());
    }
}

#[test]
fn what_was_forced_back_counts_from_then_on() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let engine = admitted(&machine);
    machine.store(5, 1);
    // Parity stays behind: it gives what was covered before the last time.
    machine.medium.elide_name("mapped.commit.parity");
    engine.pass().unwrap();
    engine.close().unwrap();
    machine.data.window().put(FOREIGN, 5 * PAGE, &content(5, 7)).unwrap();
    machine.world.mtime.store(9, Ordering::SeqCst);
    let (engine, _) = machine.open(quick());
    assert!(matches!(verdict(&engine, 5), PageVerdict::Undecided(_)));
    assert_eq!(engine.repair(5, &AtRest, Force::Undecided).unwrap(), Mended::Repaired);
    assert!(machine.page(5) == content(5, 0));
    engine.close().unwrap();
    let (engine, _) = machine.open(quick());
    assert!(engine.verify_all().unwrap().is_clean(), "{:?}", engine.verify_all());
}

#[test]
fn where_stores_leave_no_date_equal_numbers_prove_nothing() {
    for (undated, repaired) in [(true, false), (false, true)] {
        let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
        machine.world.undated.store(undated, Ordering::SeqCst);
        admitted(&machine).close().unwrap();
        machine.data.window().put(FOREIGN, PAGE, &content(1, 7)).unwrap();
        let (engine, opened) = machine.open(quick());
        assert!(!opened.changed);
        let said = verdict(&engine, 1);
        assert_eq!(said == PageVerdict::Undecided(Unsure::Undated), undated, "{said:?}");
        let mended = engine.repair(1, &AtRest, Force::No).unwrap();
        assert_eq!(mended == Mended::Repaired, repaired);
        // In use it is seen who stores, and that is all the difference.
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        machine.rot(9, 100);
        assert_eq!(engine.repair(9, &AtRest, Force::No).unwrap(), Mended::Repaired);
    }
}

#[test]
fn nobody_writes_after_a_panic() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let engine = Arc::new(admitted(&machine));
    machine.store(5, 1);
    on_barrier(&machine, "mapped.commit.N", || panic!("on purpose"));
    let other = Arc::clone(&engine);
    assert!(std::thread::spawn(move || other.pass()).join().is_err());
    machine.medium.clear_on_barrier();
    assert!(engine.pass().is_err());
    assert_ne!(verdict(&engine, 5), PageVerdict::Corrupt);
}

#[test]
fn damage_in_doubt_stays_so_through_passes_and_kills() {
    for (bits, last) in (0..60).map(|nth| (nth % 2 == 0, nth / 2)) {
        let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
        machine.world.undated.store(true, Ordering::SeqCst);
        admitted(&machine).close().unwrap();
        machine.rot(6, 100);
        let (twin, left) = (machine.clone(), Arc::new(Mutex::new(None)));
        let (kept, barriers) = (Arc::clone(&left), AtomicU64::new(0));
        machine.medium.on_barrier(Box::new(move |_, _, _| {
            if barriers.fetch_add(1, Ordering::SeqCst) == last {
                *kept.lock().unwrap() = Some(killed(&twin, bits));
            }
        }));
        in_doubt(&machine, 1);
        machine.medium.clear_on_barrier();
        let Some(next) = left.lock().unwrap().take() else { continue };
        next.world.undated.store(true, Ordering::SeqCst);
        in_doubt(&next, 2);
    }
}

/// Opens, stores beside page 6, covers, scrubs; the page is in doubt all the time.
fn in_doubt(machine: &Machine, version: u64) {
    let (engine, _) = machine.open(quick());
    for pass in 0..2 {
        let said = verdict(&engine, 6);
        assert!(matches!(said, PageVerdict::Undecided(why) if why.is_doubt()), "{said:?}");
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        machine.store(5, 10 * version + pass);
        engine.pass().unwrap();
        engine.scrub(Some(&AtRest)).unwrap();
    }
}

#[test]
fn what_is_doubted_is_undecided_unless_a_store_was_seen() {
    let machine = Machine::new(MediumKind::Shm, 24 * PAGE);
    let engine = machine.protect(&tiny(1));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    engine.pass().unwrap();
    for page in [1, 13] {
        machine.data.window().put(FOREIGN, page * PAGE, &content(page, 7)).unwrap();
    }
    machine.store(6, 1);
    engine.doubt_unseen().unwrap();
    assert_eq!(verdict(&engine, 1), PageVerdict::Undecided(Unsure::Unobserved));
    assert_eq!(engine.pass().unwrap().undecided, 2);
    for page in 0..24 {
        let expected = match page {
            1 | 13 => PageVerdict::Undecided(Unsure::Unobserved),
            _ => PageVerdict::Good,
        };
        assert_eq!(verdict(&engine, page), expected, "page {page}");
    }
    // The doubt is over: what comes now is damage again.
    machine.rot(20, 9);
    assert_eq!(verdict(&engine, 20), PageVerdict::Corrupt);
    assert_eq!(engine.repair(20, &AtRest, Force::No).unwrap(), Mended::Repaired);
    assert_eq!(machine.page(1), content(1, 7), "it is kept");
}

#[test]
fn a_page_that_verified_again_and_is_doubted_anew_is_told_anew() {
    use holdfast_redundancy::events::Outcome;
    let machine = Machine::new(MediumKind::Shm, 24 * PAGE);
    machine.protect(&tiny(1)).close().unwrap();
    // Changed while nobody looked, and stored back by its program.
    machine.world.mtime.fetch_add(1, Ordering::SeqCst);
    machine.data.window().put(FOREIGN, 5 * PAGE, &content(5, 7)).unwrap();
    let (engine, opened) = machine.open(boot(1, Durability::Process));
    assert_eq!(opened.recovered.undecided, 1);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(5, 0);
    assert_eq!(engine.pass().unwrap().unchanged, 1);
    assert_eq!(verdict(&engine, 5), PageVerdict::Good);
    let told = |engine: &Engine| {
        let events = engine.events().into_iter();
        events.filter(|e| e.outcome == Outcome::Undecided && e.at == 5 * PAGE).count()
    };
    let (before, counted) = (told(&engine), engine.counts().undecided);
    // And once more, for another reason.
    machine.data.window().put(FOREIGN, 5 * PAGE, &content(5, 8)).unwrap();
    engine.doubt_unseen().unwrap();
    assert_eq!(engine.pass().unwrap().undecided, 1);
    assert_eq!(verdict(&engine, 5), PageVerdict::Undecided(Unsure::Unobserved));
    assert_eq!((told(&engine), engine.counts().undecided), (before + 1, counted + 1));
}

#[test]
fn a_sum_that_cannot_be_stored_once_costs_no_other_sum() {
    let mut done = 0;
    for kind in [MediumKind::Shm, MediumKind::File] {
        for nth in 1.. {
            let machine = Machine::new(kind, 20 * PAGE);
            let engine = machine.protect(&tiny(1));
            engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
            machine.store(3, 1);
            let before = machine.medium.calls();
            machine.medium.fail_nth(before + nth, FailMode::Once);
            let covered = engine.commit(3 * PAGE, PAGE);
            machine.medium.fail_none();
            if machine.medium.calls() < before + nth {
                break;
            }
            let Ok(covered) = covered else { continue };
            if (covered.corrupt, covered.undecided, covered.deferred) != (0, 0, 0) {
                continue;
            }
            for page in (0..20).filter(|page| *page != 3) {
                assert_eq!(verdict(&engine, page), PageVerdict::Good, "{kind}, call {nth}: {page}");
            }
            let stored = Some(content(3, 1));
            assert_eq!(engine.before_image(3).unwrap(), stored, "{kind}, call {nth}");
            done += 1;
        }
    }
    assert!(done > 10, "{done}");
}
