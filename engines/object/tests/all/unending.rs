//! Who waits for the number of another commit waits for one that will be done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::beyond::{over, two_rows};
use crate::common::{TestPool, create, get, pattern, put};
use holdfast_faultmem::{Clear, FailMode};
use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_object::Error;
use holdfast_pmem::{MediumKind, PAGE};
use holdfast_txn::{Transaction, TxError};

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);
/// A length that is written in place, after a wait for all commits that freed anything.
const IN_PLACE: usize = 3_000;

/// A change of so many bytes does not fit a log.
const OVERFLOWS: usize = 12_000;

/// A step at which a thread stops until it may go on.
struct Stop {
    thread: &'static str,
    step: &'static str,
    met: AtomicBool,
    go: AtomicBool,
}

impl Stop {
    const fn at(thread: &'static str, step: &'static str) -> Self {
        Self { thread, step, met: AtomicBool::new(false), go: AtomicBool::new(false) }
    }

    fn meet(&self, step: &str) {
        if step == self.step && std::thread::current().name() == Some(self.thread) {
            self.met.store(true, Ordering::Release);
            wait_for(self.step, || self.go.load(Ordering::Acquire));
        }
    }

    fn wait(&self) {
        wait_for(self.step, || self.met.load(Ordering::Acquire));
    }

    fn go(&self) {
        self.go.store(true, Ordering::Release);
    }
}

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

/// A thread that begins to commit a change of `object` and stops once it has its number. When it
/// goes on, the medium stores nothing any more.
fn unstored(pool: &TestPool, object: RawPtr) -> (&'static Stop, JoinHandle<()>) {
    let stop = Stop::at("unstored", "object.commit.step-numbered");
    let stop: &'static Stop = Box::leak(Box::new(stop));
    let hooked = pool.clone();
    pool.medium().on_step(Box::new(move |site| {
        stop.meet(site.name());
        let own = std::thread::current().name() == Some(stop.thread);
        // From here on its record is durable, and nothing can be stored.
        if own && site.name() == "object.commit.step-durable" {
            hooked.medium().fail_nth(hooked.medium().calls() + 1, FailMode::Forever);
        }
    }));
    let writing = pool.clone();
    let write = move || {
        let _ = writing.run(|tx| tx.write_bytes(object, 0, &[7; 8]));
        assert!(writing.is_read_only(), "nothing could be stored");
    };
    let thread = std::thread::Builder::new().name(stop.thread.to_owned()).spawn(write).unwrap();
    stop.wait();
    (stop, thread)
}

/// Lets that commit go while another thread waits for its number: that one is told at once.
fn is_told<T: std::fmt::Debug>(
    pool: &TestPool,
    (stop, thread): (&Stop, JoinHandle<()>),
    told: &Receiver<Result<T, Error>>,
) {
    stop.go();
    thread.join().unwrap();
    let before = asked(pool);
    let answer = told.recv_timeout(LIMIT).expect("an answer");
    assert!(matches!(answer, Err(Error::Tx(TxError::ReadOnly))), "{answer:?}");
    let rounds = asked(pool) - before;
    assert!(rounds < 1_000, "{rounds} rounds after nothing was to be waited for");
    pool.medium().fail_none();
    pool.medium().clear_on_step();
}

/// A commit that cannot be stored keeps its number under way for good, and the pool stops writing.
#[test]
fn who_waits_for_a_commit_that_stays_unstored_is_told_that_nothing_is_written() {
    let pool = create(MediumKind::Shm);
    let [kept, freed] = [1, 2].map(|seed| put(&pool, &pattern(seed, 200)));
    put(&pool, &pattern(3, IN_PLACE));
    let unstored = unstored(&pool, kept);
    pool.run(|tx| tx.free(freed)).unwrap();
    let waits = passed(&pool, "object.in_place.reuse");
    let (waiting, (tell, told)) = (pool.clone(), channel());
    let waiter = std::thread::spawn(move || {
        let done = waiting.run(|tx| tx.alloc_from(TypeNumber::BYTES, &pattern(4, IN_PLACE)));
        tell.send(done).unwrap();
    });
    wait_for("it waits", || passed(&pool, "object.in_place.reuse") > waits);
    is_told(&pool, unstored, &told);
    waiter.join().unwrap();
}

/// Records behind that number cannot be overwritten, so a log fills up.
#[test]
fn who_waits_for_room_in_the_log_is_told_that_nothing_is_written() {
    let pool = create(MediumKind::Shm);
    let [kept, changed] = [1, 2].map(|seed| put(&pool, &pattern(seed, 200)));
    let unstored = unstored(&pool, kept);
    let done = Arc::new(AtomicUsize::new(0));
    let (waiting, counted, (tell, told)) = (pool.clone(), Arc::clone(&done), channel());
    let waiter = std::thread::spawn(move || {
        let change = |seed| waiting.run(|tx| tx.write_bytes(changed, 0, &pattern(seed, 100)));
        let failed = (3..).map(change).find(|result| {
            counted.fetch_add(1, Ordering::Release);
            result.is_err()
        });
        tell.send(failed.unwrap()).unwrap();
    });
    wait_for("it waits for room", || {
        let before = (done.load(Ordering::Acquire), asked(&pool));
        std::thread::sleep(Duration::from_millis(5));
        // So often within one commit.
        asked(&pool) > before.1 + 10 && done.load(Ordering::Acquire) == before.0
    });
    is_told(&pool, unstored, &told);
    waiter.join().unwrap();
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

/// Two threads overflow the log, each by a change of an object of its own. One of them frees its
/// chunks, for which it waits for the lane of a third one; the other one has filled some by then.
#[test]
fn who_frees_chunks_of_the_log_keeps_nobody_from_filling_others() {
    let pool = create(MediumKind::Shm);
    // Three chunks each: with two, both would have the same word of a small table of versions.
    let [one, other] = [1, 2].map(|seed| put(&pool, &pattern(seed, 20_000)));
    let stops: &'static [Stop; 5] = Box::leak(Box::new([
        Stop::at("filling", "object.overflow.step-stored"),
        Stop::at("filling", "object.commit.step-durable"),
        Stop::at("freeing", "object.overflow.step-stored"),
        Stop::at("freeing", "object.commit.step-done"),
        Stop::at("system", "object.commit.step-numbered"),
    ]));
    let [filled, listed, to_free, freeing, holds] = stops;
    pool.medium().on_step(Box::new(|site| stops.iter().for_each(|stop| stop.meet(site.name()))));
    let spawn = |stop: &Stop, work: fn(&TestPool, RawPtr), of: RawPtr| {
        let (thread, pool) =
            (std::thread::Builder::new().name(stop.thread.to_owned()), pool.clone());
        thread.spawn(move || work(&pool, of)).unwrap()
    };
    let change = |pool: &TestPool, of| {
        pool.run(|tx| tx.write_bytes(of, 0, &pattern(3, OVERFLOWS))).unwrap();
    };
    let fills = spawn(filled, change, one);
    filled.wait();
    freeing.go();
    let frees = spawn(to_free, change, other);
    to_free.wait();
    // Objects of this length have no run yet.
    let make = |pool: &TestPool, _| {
        put(pool, &[7; 700]);
    };
    let system = spawn(holds, make, RawPtr::NULL);
    holds.wait();
    freeing.met.store(false, Ordering::Release);
    to_free.go();
    freeing.wait();
    // It may not wait for the lane yet, which would show less.
    std::thread::sleep(Duration::from_millis(100));
    filled.go();
    listed.wait();
    listed.go();
    holds.go();
    for thread in [fills, frees, system] {
        thread.join().unwrap();
    }
    pool.medium().clear_on_step();
}

/// This thread runs on no processor but the first of those that it may run on.
fn on_one_processor() {
    let all = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|number| all.is_set(*number)).unwrap());
    sched_setaffinity(None, &one).unwrap();
}

/// Each look at what is lost is a repair in vain, which holds its columns. On one processor others
/// get them only when this thread gives way.
#[test]
fn who_asks_for_what_is_lost_again_and_again_does_not_keep_others_from_its_columns() {
    const CHANGES: u64 = 1_000;
    let (f, page) = two_rows();
    let (gone, parity) = (f.zone.at(0, page * PAGE), f.zone.p_at(page * PAGE));
    for at in [gone, parity] {
        f.pool.medium().poison(at, PAGE, Clear::Able).unwrap();
    }
    let (lost, other) = (over(&f, 0, page)[0], over(&f, 1, page)[0]);
    let is_lost = || matches!(get(&f.pool, lost), Err(Error::Tx(TxError::Lost { .. })));
    assert!(is_lost());
    let done = AtomicBool::new(false);
    let looks = std::thread::scope(|threads| {
        let looking = threads.spawn(|| {
            on_one_processor();
            let mut looks = 0;
            while !done.load(Ordering::Acquire) {
                assert!(is_lost());
                looks += 1;
            }
            looks
        });
        threads.spawn(|| {
            on_one_processor();
            for change in 0..CHANGES {
                f.pool.run(|tx| tx.write_bytes(other, 8, &change.to_le_bytes())).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        looking.join().unwrap()
    });
    assert!(looks < CHANGES / 10, "{looks} looks beside {CHANGES} changes");
}
