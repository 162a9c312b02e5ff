//! Adjacent copies on a file: group commit, reclaim, a log that wraps, torn sectors, failed
//! syncs, and a crash at every append and sync.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};

use common::engine::{End, Engine, Lose, judge, judged_medium};
use common::gated::Gated;
use common::{OBJECTS, Oracle, Rng, SharedOracle, lock, superblock};
use holdfast_faultmem::{Budget, Clear, Config, FaultMedium, Mode};
use holdfast_layout::LogPlacement;
use holdfast_logs::{Log, LogError, Numbers, RecordBuilder, scan};
use holdfast_pmem::MediumKind;

const BUDGET: Budget = Budget { exhaustive: 16, singles: 2, pairs: 1, samples: 2, seed: 7 };

type Shared = Arc<Engine<Gated>>;

fn engine(ring_pages: u64, off: &'static str, mode: Mode) -> (Shared, SharedOracle) {
    let superblock = superblock(LogPlacement::Adjacent, 4, ring_pages, 2);
    let oracle = SharedOracle::default();
    let m = judged_medium(&superblock, Lose::Nothing, off, Some(mode), BUDGET, &oracle);
    let m = Gated::new(m);
    (Arc::new(Engine::new(m, superblock, Arc::clone(&oracle))), oracle)
}

/// Objects for a transaction; now and then so many entries that the record needs a page or two.
fn objects(rng: &mut Rng, entries: usize) -> Vec<usize> {
    let first = rng.below(OBJECTS as u64) as usize;
    match rng.below(8) {
        0 => vec![first; entries],
        1..4 => vec![first, (first + 1) % OBJECTS],
        _ => vec![first],
    }
}

/// Threads commit `commits` times each and reclaim when it is due; the last one holds a commit
/// between its commit point and its end for long.
fn run(ring_pages: u64, commits: u64) -> (Shared, Oracle) {
    let entries = if ring_pages > 4 { 60 } else { 20 };
    let (engine, oracle) = engine(ring_pages, "", Mode::Sectors);
    let left = Arc::new(AtomicU64::new(3));
    let work = |lane: usize| {
        let (engine, left) = (Arc::clone(&engine), Arc::clone(&left));
        move || {
            let mut rng = Rng::new(lane as u64);
            let mut done = 0;
            while if lane < 3 { done < commits } else { left.load(Ordering::Relaxed) > 0 } {
                let objects = objects(&mut rng, entries);
                let wait = || engine.reclaim();
                match engine.begin(lane, &objects, wait) {
                    Ok(open) => {
                        let nap = if lane < 3 { 0 } else { 3 };
                        std::thread::sleep(std::time::Duration::from_millis(nap));
                        engine.finish(open);
                        done += 1;
                    }
                    Err(End::Stopped) => break,
                    Err(_) => std::thread::yield_now(),
                }
                if engine.log.reclaim_due() && !engine.reclaim() {
                    break;
                }
            }
            left.fetch_sub(u64::from(lane < 3), Ordering::Relaxed);
        }
    };
    let threads: Vec<_> = (0..4).map(|lane| std::thread::spawn(work(lane))).collect();
    for thread in threads {
        thread.join().expect("no worker panics");
    }
    let oracle = std::mem::take(&mut *lock(&oracle));
    (engine, oracle)
}

#[test]
fn no_acknowledged_update_is_ever_lost() {
    let mut saved = 0;
    for (ring_pages, commits) in [(4, 25), (8, 15)] {
        let (engine, oracle) = run(ring_pages, commits);
        let counters = engine.m.inner.counters();
        println!(
            "{} commits, {} appends, {} syncs, {} images",
            oracle.acked.len(),
            counters.appends,
            counters.syncs,
            oracle.images
        );
        assert_eq!(oracle.wrong, Default::default());
        assert!(oracle.pending.is_empty() && oracle.acked.len() as u64 >= 3 * commits);
        let batches = counters.appends - counters.syncs;
        // Each takes a page or more. How few reclaims suffice is the threads' luck.
        assert!(batches > 2 * ring_pages, "the log wraps: {batches} batches");
        assert!(counters.syncs > 0, "somebody made room");
        saved += (oracle.acked.len() as u64).saturating_sub(batches);
        assert!(oracle.most >= 3 && oracle.images > 200);
    }
    // How many commits share an append is the threads' luck: that they do, and how, is proved by
    // `two_batches_are_written_abreast_and_the_others_share_the_next`.
    println!("{saved} appends saved");
}

/// One thread, so that every run is the same: lane 3 is parked for a while, the log wraps.
fn alone(off: &'static str) -> Oracle {
    let (engine, oracle) = engine(8, off, Mode::Sectors);
    let mut rng = Rng::new(5);
    for round in 0..3 {
        // Longer than a sector, so that it can be torn.
        let many: Vec<usize> = (20..36).collect();
        assert_eq!(engine.update(round % 3, &many, || engine.reclaim()), End::Committed);
        let parked = engine.begin(3, &[0], || engine.reclaim()).expect("there is room");
        for i in 0..34 {
            if i % 8 == 7 {
                engine.reclaim();
            }
            engine.update(round % 3, &[1 + rng.below(7) as usize], || false);
        }
        engine.finish(parked);
        engine.reclaim();
    }
    let oracle = std::mem::take(&mut *lock(&oracle));
    println!("{off}: {} images, {:?}", oracle.images, oracle.wrong);
    oracle
}

/// Two reclaims with nothing committed in between. A mark lies in one sector: what writes sectors
/// whole could overwrite it in place, what writes words could not.
fn reclaim_twice(off: &'static str) -> Oracle {
    let (engine, oracle) = engine(4, off, Mode::Words);
    assert_eq!(engine.update(0, &[1], || false), End::Committed);
    let parked = engine.begin(3, &[0], || false).expect("there is room");
    assert_eq!(engine.update(0, &[2], || false), End::Committed);
    assert!(engine.reclaim());
    engine.finish(parked);
    assert!(engine.reclaim());
    std::mem::take(&mut lock(&oracle))
}

#[test]
fn marks_take_turns() {
    assert_eq!(reclaim_twice("").violations(), 0);
    assert!(reclaim_twice("logs.group.turn").violations() > 0);
}

/// Passing over what is complete is not among them: batches are overwritten oldest first, so all
/// that is left may be replayed again. Where each lane has a ring of its own it is needed.
#[test]
fn each_step_is_needed() {
    assert_eq!(alone("").violations(), 0);
    for site in [
        "logs.group.F1",
        "logs.group.synced",
        "logs.group.marked",
        "logs.group.reuse",
        "logs.scan.certify",
        "logs.scan.order",
    ] {
        assert!(alone(site).violations() > 0, "{site} is not needed, or the judge is blind");
    }
}

/// Every page of the log lost in turn: a record there has one copy left.
#[test]
fn any_page_may_be_lost() {
    let (engine, oracle) = engine(8, "", Mode::Sectors);
    for object in 0..12 {
        let repeat = if object % 4 == 0 { 60 } else { 1 };
        assert_eq!(engine.update(0, &vec![object; repeat], || false), End::Committed);
    }
    let superblock = &engine.superblock;
    let area = u64::from(superblock.lanes) * superblock.ring_len;
    let mut damaged = 0;
    for side in [0, superblock.side_len] {
        for page in (0..area).step_by(4096) {
            let image = engine.m.inner.crash_point().persisted();
            let data = image.bytes()[2 * superblock.side_len as usize..].to_vec();
            let m = FaultMedium::from_crash(image, MediumKind::File, &Config::default());
            let at = side + superblock.log_start + page;
            m.poison(at, 4096, Clear::Able).expect("it is in the pool");
            let found = scan(&m, superblock).expect("the log can be read");
            assert_eq!(found.bad, [(at, 4096)]);
            assert_eq!(found.records.len(), 12);
            damaged += found.records.iter().filter(|record| record.copy_damaged).count();
            lock(&oracle).judge(superblock, &data, &found);
        }
    }
    assert_eq!(lock(&oracle).wrong, Default::default());
    assert!(damaged >= 2 * 12, "each record's copies were lost, one at a time: {damaged}");
}

/// The log is stopped by the first failure of an append or a sync, and nothing is retried.
#[test]
fn a_failure_stops_the_log_for_good() {
    for nth in 1..12 {
        let (engine, oracle) = engine(4, "", Mode::Sectors);
        engine.m.fail_sync(nth);
        let mut ends = 0;
        for object in 0..12 {
            let end = engine.update(0, &[object], || engine.reclaim());
            assert!(matches!(end, End::Committed | End::Stopped), "{end:?}");
            let running = object % 3 != 2 || engine.reclaim();
            if end == End::Stopped || !running {
                break;
            }
            ends += 1;
        }
        assert!(ends < 12, "call {nth} failed");
        let before = engine.m.inner.calls();
        assert_eq!(engine.update(1, &[30], || false), End::Stopped);
        let reclaimed = engine.log.reclaim(&engine.m, &engine.numbers);
        assert!(matches!(reclaimed, Err(LogError::Stopped(_))));
        assert_eq!(engine.m.inner.calls(), before, "nothing is written any more");
        for image in engine.m.inner.images(&BUDGET) {
            judge(&engine.superblock, image, Lose::Nothing, "", &mut lock(&oracle));
        }
        assert_eq!(lock(&oracle).wrong, Default::default());
    }
}

/// Everybody whose record was in the failed batch, or waited for its turn, is told.
#[test]
fn a_failure_is_told_to_all_who_wait() {
    let (engine, oracle) = engine(4, "", Mode::Sectors);
    engine.m.fail_sync(40);
    let work = |lane: usize| {
        let engine = Arc::clone(&engine);
        move || {
            let mut commits = 0;
            for i in 0.. {
                let wait = || engine.reclaim();
                match engine.update(lane, &[lane * 10 + i % 10], wait) {
                    End::Committed => commits += 1,
                    // No room, and the reclaim that would make some has failed.
                    End::Retry => {}
                    End::Stopped => break,
                }
            }
            commits
        }
    };
    let threads: Vec<_> = (0..4).map(|lane| std::thread::spawn(work(lane))).collect();
    let commits: usize = threads.into_iter().map(|t| t.join().expect("no worker panics")).sum();
    assert_eq!(lock(&oracle).acked.len(), commits, "acknowledged means before the failure");
    assert_eq!(lock(&oracle).wrong, Default::default());
    for image in engine.m.inner.images(&BUDGET) {
        judge(&engine.superblock, image, Lose::Nothing, "", &mut lock(&oracle));
    }
    assert_eq!(lock(&oracle).wrong, Default::default());
}

/// Commits that come while the leader lingers share its append.
#[test]
fn a_lingering_leader_takes_company_along() {
    let superblock = superblock(LogPlacement::Adjacent, 4, 4, 2);
    let m = Gated::new(FaultMedium::new(superblock.size, MediumKind::File, &Config::default()));
    let linger = std::time::Duration::from_millis(200);
    let log = Log::open_lingering(&m, &superblock, linger).expect("the geometry is good");
    let numbers = Numbers::new(log.lanes(), 1);
    let ready = Barrier::new(4);
    std::thread::scope(|scope| {
        for lane in 0..4 {
            let (m, log, numbers, ready) = (&m, &log, &numbers, &ready);
            scope.spawn(move || {
                let mut lane = log.acquire(m, lane).expect("there are four");
                let mut record = RecordBuilder::default();
                record.data(2 * 4096, b"together");
                lane.reserve(m, numbers, 64, || false).expect("the log is empty");
                let number = numbers.draw(m, lane.id());
                ready.wait();
                lane.commit_record(m, numbers, number, &mut record).expect("nothing fails");
            });
        }
    });
    assert!(m.inner.counters().appends < 4, "at least two shared one");
    assert_eq!(scan(&m, &superblock).expect("it can be read").records.len(), 4);
}

/// Lets each thread that is about to write a batch wait for the gate to be opened.
#[derive(Debug, Default)]
struct Gate {
    /// Threads that have come to it, and whether it is open.
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    fn before_writes_of(m: &FaultMedium) -> Arc<Self> {
        let gate = Arc::new(Self::default());
        let hook = Arc::clone(&gate);
        m.on_step(Box::new(move |site| {
            if site.name() == "logs.group.writing" {
                let mut state = lock(&hook.state);
                state.0 += 1;
                hook.changed.notify_all();
                while !state.1 {
                    state = hook.changed.wait(state).expect("nobody panics with it");
                }
            }
        }));
        gate
    }

    /// Waits until `count` threads are or were there; false if that takes too long.
    fn reached_by(&self, count: usize) -> bool {
        let state = lock(&self.state);
        let short = |state: &mut (usize, bool)| state.0 < count;
        let limit = std::time::Duration::from_secs(10);
        let waited = self.changed.wait_timeout_while(state, limit, short).expect("as above");
        !waited.1.timed_out()
    }

    fn open(&self) {
        lock(&self.state).1 = true;
        self.changed.notify_all();
    }
}

/// Two batches are written at the same time; who comes meanwhile shares the third.
#[test]
fn two_batches_are_written_abreast_and_the_others_share_the_next() {
    let superblock = superblock(LogPlacement::Adjacent, 4, 4, 2);
    let m = FaultMedium::new(superblock.size, MediumKind::File, &Config::default());
    let gate = Gate::before_writes_of(&m);
    let log = Log::open(&m, &superblock).expect("the geometry is good");
    let numbers = Numbers::new(log.lanes(), 1);
    std::thread::scope(|scope| {
        for lane in 0..4 {
            let (m, log, numbers) = (&m, &log, &numbers);
            scope.spawn(move || {
                let mut lane = log.acquire_exact(m, lane).expect("each has its own");
                let mut record = RecordBuilder::default();
                record.data(2 * 4096, b"abreast");
                lane.reserve(m, numbers, 64, || false).expect("the log is empty");
                let number = numbers.draw(m, lane.id());
                lane.commit_record(m, numbers, number, &mut record).expect("nothing fails");
                numbers.done(lane.id());
            });
        }
        let two = gate.reached_by(2);
        // All have drawn before long; the last two have nowhere to go but the open batch.
        while numbers.next() < 5 {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        let came = lock(&gate.state).0;
        gate.open();
        assert!(two, "the second batch waits for the first");
        assert_eq!(came, 2, "a third is written at the same time");
    });
    assert_eq!(m.counters().appends, 3);
    assert_eq!(scan(&m, &superblock).expect("it can be read").records.len(), 4);
}

/// A reclaim writes each page once, however often it was changed: so it comes late, but before
/// anybody lacks room.
#[test]
fn a_reclaim_is_due_late_and_in_time() {
    let superblock = superblock(LogPlacement::Adjacent, 4, 16, 2);
    let m = FaultMedium::new(superblock.size, MediumKind::File, &Config::default());
    let log = Log::open(&m, &superblock).expect("the geometry is good");
    let numbers = Numbers::new(log.lanes(), 1);
    let mut lane = log.acquire_exact(&m, 0).expect("it is free");
    let mut commits = 0;
    while !log.reclaim_due() {
        let mut record = RecordBuilder::default();
        record.data(2 * 4096, b"late");
        lane.reserve(&m, &numbers, 64, || false).expect("a reclaim is due before");
        let number = numbers.draw(&m, lane.id());
        lane.commit_record(&m, &numbers, number, &mut record).expect("nothing fails");
        numbers.done(lane.id());
        commits += 1;
    }
    // A page for the record, one for its replica.
    let total = 2 * 4 * 16 - 4;
    assert!(2 * commits > total * 3 / 4 && 2 * commits < total - 8, "{commits} in {total} pages");
    lane.reserve(&m, &numbers, 64, || false).expect("there is room meanwhile");
}
