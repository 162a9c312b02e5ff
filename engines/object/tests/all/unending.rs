//! Who waits for the number of another commit waits for one that will be done.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::common::{TestPool, create, pattern, put};
use holdfast_faultmem::FailMode;
use holdfast_layout::TypeNumber;
use holdfast_object::Error;
use holdfast_pmem::MediumKind;
use holdfast_txn::{Transaction, TxError};

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);
/// A length that is written in place, after a wait for all commits that freed anything.
const IN_PLACE: usize = 3_000;

/// How often the pool asked how far all commits are.
fn asked(pool: &TestPool) -> u64 {
    passed(pool, "logs.numbers.busy")
}

fn passed(pool: &TestPool, site: &str) -> u64 {
    let seen = pool.medium().sites_seen();
    seen.iter().filter(|(passed, ..)| passed.name() == site).map(|(.., times)| times).sum()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// A commit that cannot be stored keeps its number under way for good, and the pool stops writing.
#[test]
fn who_waits_for_a_commit_that_stays_unstored_is_told_that_nothing_is_written() {
    let pool = create(MediumKind::Shm);
    let [kept, freed] = [1, 2].map(|seed| put(&pool, &pattern(seed, 200)));
    put(&pool, &pattern(3, IN_PLACE));
    let (stopped, go) = (AtomicBool::new(false), AtomicBool::new(false));
    let flags: &'static (AtomicBool, AtomicBool) = Box::leak(Box::new((stopped, go)));
    let hooked = pool.clone();
    pool.medium().on_step(Box::new(move |site| {
        if std::thread::current().name() != Some("unstored") {
            return;
        }
        match site.name() {
            "object.commit.step-numbered" => {
                flags.0.store(true, Ordering::Release);
                wait_for("it is let go", || flags.1.load(Ordering::Acquire));
            }
            // From here on its record is durable, and nothing can be stored.
            "object.commit.step-durable" => {
                hooked.medium().fail_nth(hooked.medium().calls() + 1, FailMode::Forever);
            }
            _ => {}
        }
    }));
    let (writing, waiting) = (pool.clone(), pool.clone());
    let write = move || writing.run(|tx| tx.write_bytes(kept, 0, &[7; 8])).is_ok();
    let unstored = std::thread::Builder::new().name("unstored".to_owned()).spawn(write).unwrap();
    wait_for("the commit has its number", || flags.0.load(Ordering::Acquire));
    pool.run(|tx| tx.free(freed)).unwrap();
    let waits = passed(&pool, "object.in_place.reuse");
    let (tell, told) = channel();
    let waiter = std::thread::spawn(move || {
        let done = waiting.run(|tx| tx.alloc_from(TypeNumber::BYTES, &pattern(4, IN_PLACE)));
        tell.send(done).unwrap();
    });
    wait_for("it waits", || passed(&pool, "object.in_place.reuse") > waits);
    flags.1.store(true, Ordering::Release);
    unstored.join().unwrap();
    let before = asked(&pool);
    assert!(pool.is_read_only(), "nothing could be stored");
    let answer = told.recv_timeout(LIMIT).expect("an answer");
    assert!(matches!(answer, Err(Error::Tx(TxError::ReadOnly))), "{answer:?}");
    let rounds = asked(&pool) - before;
    assert!(rounds < 1_000, "{rounds} rounds after nothing was to be waited for");
    waiter.join().unwrap();
    pool.medium().fail_none();
    pool.medium().clear_on_step();
}

/// Where a run cannot be made, nobody may write to its chunk before what was written there is
/// complete; and no more than that, which may be all there is for a long time.
#[test]
fn after_a_run_that_was_not_made_nobody_waits_for_the_next_commit() {
    let mut refused = 0;
    for nth in 1..80 {
        let pool = create(MediumKind::Shm);
        put(&pool, &pattern(1, IN_PLACE));
        pool.medium().fail_nth(pool.medium().calls() + nth, FailMode::Once);
        let times = AtomicUsize::new(0);
        // Objects of this length have no run yet.
        let done = pool.run(|tx| match times.fetch_add(1, Ordering::Relaxed) {
            0 => tx.alloc_from(TypeNumber::BYTES, &[7; 700]).map(drop),
            _ => Err(TxError::Inconsistent("enough of it")),
        });
        pool.medium().fail_none();
        refused += u32::from(done.is_err());
        let (tell, told) = channel();
        std::thread::spawn(move || tell.send(put(&pool, &pattern(2, IN_PLACE))));
        assert!(told.recv_timeout(LIMIT).is_ok(), "call {nth}: it waits for ever");
    }
    assert!(refused > 0, "none of them was refused");
}
