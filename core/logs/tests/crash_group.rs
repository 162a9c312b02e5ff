//! Adjacent copies on a file: group commit, reclaim, a log that wraps, torn sectors, failed
//! syncs, and a crash at every append and sync.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::engine::{End, Engine, Lose, judged_medium};
use common::gated::Gated;
use common::{OBJECTS, Oracle, Rng, SharedOracle, lock, superblock};
use holdfast_faultmem::{Budget, Clear, Config, FailMode, FaultMedium};
use holdfast_layout::LogPlacement;
use holdfast_logs::{LogError, scan};
use holdfast_pmem::MediumKind;

const BUDGET: Budget = Budget { exhaustive: 16, singles: 2, pairs: 1, samples: 4, seed: 7 };

type Shared = Arc<Engine<Gated>>;

fn engine(ring_pages: u64, off: &'static str) -> (Shared, SharedOracle) {
    let superblock = superblock(LogPlacement::Adjacent, 4, ring_pages, 2);
    let oracle = SharedOracle::default();
    let m = Gated::new(judged_medium(&superblock, Lose::Nothing, off, BUDGET, &oracle));
    (Arc::new(Engine::new(m, superblock, Arc::clone(&oracle))), oracle)
}

/// Objects for a transaction; now and then so many entries that the record needs two pages.
fn objects(rng: &mut Rng) -> Vec<usize> {
    let first = rng.below(OBJECTS as u64) as usize;
    match rng.below(8) {
        0 => vec![first; 60],
        1..4 => vec![first, (first + 1) % OBJECTS],
        _ => vec![first],
    }
}

/// Threads commit `commits` times each and reclaim when it is due; the last one holds a commit
/// between its commit point and its end for long.
fn run(ring_pages: u64, commits: u64, off: &'static str) -> (Shared, Oracle) {
    let (engine, oracle) = engine(ring_pages, off);
    let left = Arc::new(AtomicU64::new(3));
    let work = |lane: usize| {
        let (engine, left) = (Arc::clone(&engine), Arc::clone(&left));
        move || {
            let mut rng = Rng::new(lane as u64);
            let mut done = 0;
            while if lane < 3 { done < commits } else { left.load(Ordering::Relaxed) > 0 } {
                let objects = objects(&mut rng);
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
    for (ring_pages, commits) in [(4, 60), (8, 60)] {
        let (engine, oracle) = run(ring_pages, commits, "");
        let counters = engine.m.inner.counters();
        let pages = counters.stored_bytes / 4096;
        println!(
            "{} commits, {} appends, {} syncs, {} images",
            oracle.acked.len(),
            counters.appends,
            counters.syncs,
            oracle.images
        );
        let _ = pages;
        assert_eq!(oracle.wrong, Default::default());
        assert!(oracle.pending.is_empty() && oracle.acked.len() as u64 >= 3 * commits);
        assert!(counters.syncs >= 3, "the log wraps: {} reclaims", counters.syncs);
        assert!(oracle.most >= 3 && oracle.images > 200);
    }
}

/// One thread, so that every run is the same: lane 3 is parked for a while, the log wraps.
fn alone(off: &'static str) -> Oracle {
    let (engine, oracle) = engine(4, off);
    let mut rng = Rng::new(5);
    for round in 0..4 {
        let parked = engine.begin(3, &[0], || engine.reclaim()).expect("there is room");
        for _ in 0..9 {
            let objects: Vec<usize> = objects(&mut rng).iter().map(|o| o % 7 + 1).collect();
            engine.update(round % 3, &objects[..objects.len().min(2)], || false);
        }
        engine.reclaim();
        for _ in 0..5 {
            engine.update(round % 3, &[1 + rng.below(7) as usize], || false);
        }
        engine.finish(parked);
        engine.reclaim();
    }
    let oracle = std::mem::take(&mut *lock(&oracle));
    println!("{off}: {} images, {:?}", oracle.images, oracle.wrong);
    oracle
}

#[test]
fn each_step_is_needed() {
    assert_eq!(alone("").violations(), 0);
    for site in [
        "logs.group.F1",
        "logs.group.synced",
        "logs.group.marked",
        "logs.group.turn",
        "logs.group.reuse",
        "logs.scan.certify",
        "logs.scan.complete",
        "logs.scan.order",
    ] {
        assert!(alone(site).violations() > 0, "{site} is not needed, or the judge is blind");
    }
}

/// Every page of the log lost in turn, a batch of records then has one copy only.
#[test]
fn any_page_may_be_lost() {
    let (engine, oracle) = engine(8, "");
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

/// The log is stopped by the first failure, whoever waits for it is told, nothing is retried.
#[test]
fn a_failed_append_or_sync_stops_the_log_for_good() {
    for nth in 1..40 {
        let (engine, oracle) = engine(4, "");
        let calls = engine.m.inner.calls();
        engine.m.inner.fail_nth(calls + nth, FailMode::Once);
        let mut stopped = false;
        for object in 0..20 {
            match engine.begin(0, &[object], || engine.reclaim()) {
                // A failing store to the data is not the log's affair.
                Ok(open) => {
                    engine.m.inner.fail_none();
                    let failed = engine.m.inner.calls() >= calls + nth;
                    assert!(!failed, "acknowledged after a failure");
                    engine.m.inner.fail_nth(calls + nth + 1, FailMode::Once);
                    let before = engine.m.inner.calls();
                    engine.m.inner.fail_none();
                    engine.finish(open);
                    let stores = engine.m.inner.calls() - before;
                    assert_eq!(stores, 1);
                    engine.m.inner.fail_nth(calls + nth + object as u64, FailMode::Once);
                }
                Err(end) => {
                    assert_eq!(end, End::Stopped);
                    stopped = true;
                    break;
                }
            }
            if engine.log.reclaim_due() && !engine.reclaim() {
                stopped = true;
                break;
            }
        }
        assert!(stopped);
        let appends = engine.m.inner.counters().appends;
        assert!(engine.log.stopped().is_some());
        assert_eq!(engine.update(1, &[30], || false), End::Stopped);
        assert!(matches!(
            engine.log.reclaim(&engine.m, &engine.numbers),
            Err(LogError::Stopped(_))
        ));
        assert_eq!(engine.m.inner.counters().appends, appends, "nothing is written any more");
        assert_eq!(lock(&oracle).wrong, Default::default());
    }
}
