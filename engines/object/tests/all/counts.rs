//! What an open pool counts: transactions given up, granules that reads verified, and how often its
//! log was freed. Each against what was done, or against what the medium saw.

use crate::common::{TestPool, crash, create, pattern, put};
use holdfast_heap::format::GRANULE;
use holdfast_layout::RawPtr;
use holdfast_object::{ScrubControl, ScrubOptions, Stats, VerifyReads};
use holdfast_pmem::MediumKind;
use holdfast_txn::{Transaction, TxError};

/// What the counts rose by.
fn risen(pool: &TestPool, work: impl FnOnce()) -> Stats {
    let before = pool.stats();
    work();
    let now = pool.stats();
    Stats {
        commits: now.commits - before.commits,
        aborts: now.aborts - before.aborts,
        conflicts: now.conflicts - before.conflicts,
        verified: now.verified - before.verified,
        reclaims: now.reclaims - before.reclaims,
        ..Stats::default()
    }
}

fn give_up(pool: &TestPool) {
    pool.run(|_| Err::<(), _>(TxError::cancel("enough"))).unwrap_err();
}

#[test]
fn what_is_given_up_counts_once_and_what_comes_through_does_not() {
    let pool = create(MediumKind::Shm);
    let object = put(&pool, &pattern(1, 100));
    assert_eq!(pool.stats().aborts, 0);
    let aborts = |work: &dyn Fn()| risen(&pool, work).aborts;
    assert_eq!(aborts(&|| give_up(&pool)), 1);
    let panics = || {
        let work = std::panic::AssertUnwindSafe(|| pool.run(|_| -> Result<(), _> { panic!() }));
        std::panic::catch_unwind(work).unwrap_err();
    };
    assert_eq!(aborts(&panics), 1);
    // A transaction within one is a part of it.
    let within = || {
        let outer = pool.run(|tx| {
            tx.write_bytes(object, 0, &[2])?;
            give_up(&pool);
            Ok(())
        });
        outer.unwrap();
    };
    assert_eq!(aborts(&within), 0);
    // A commit that is refused.
    let overrun = || {
        let answer = pool.run(|tx| {
            let (copy, len) = tx.open_raw(object)?;
            // SAFETY: the guard line behind the copy is the arena's own; this is what it is for.
            unsafe { copy.add(len as usize + 28).write(0x5a) };
            Ok(())
        });
        answer.unwrap_err();
    };
    assert_eq!(aborts(&overrun), 1);
    // Executed again is not given up.
    let risen = risen(&pool, || {
        let mut first = true;
        let came_between = pool.run(|tx| {
            tx.write_bytes(object, 0, &[3])?;
            if core::mem::take(&mut first) {
                std::thread::scope(|scope| {
                    scope.spawn(|| pool.run(|tx| tx.write_bytes(object, 0, &[4])).unwrap());
                });
            }
            Ok(())
        });
        came_between.unwrap();
    });
    assert_eq!((risen.aborts, risen.conflicts, risen.commits), (0, 1, 2));
}

#[test]
fn one_begun_as_a_value_is_given_up_by_dropping_it() {
    let pool = create(MediumKind::Shm);
    let object = put(&pool, &pattern(1, 100));
    let work = |change: bool, commit: bool| {
        risen(&pool, || {
            let begun = pool.begin().unwrap();
            if change {
                begun.step(|tx| tx.write_bytes(object, 0, &[2])).unwrap();
            }
            if commit {
                assert!(begun.commit().unwrap().is_none());
            }
        })
    };
    assert_eq!((work(true, true).aborts, work(true, true).commits), (0, 1));
    assert_eq!((work(true, false).aborts, work(false, false).aborts), (1, 1));
    let failed = risen(&pool, || {
        let begun = pool.begin().unwrap();
        begun.step(|tx| tx.write_bytes(object, 100, &[2])).unwrap_err();
        begun.commit().unwrap_err();
    });
    assert_eq!((failed.aborts, failed.commits), (1, 0));
}

#[test]
fn aborts_of_all_threads_are_there() {
    let pool = create(MediumKind::Shm);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| give_up(&pool)));
        }
    });
    assert_eq!(pool.stats().aborts, 400);
}

/// Granules verified by reading bytes `from` to `end`.
fn verified(pool: &TestPool, of: RawPtr, from: u64, end: u64) -> u64 {
    let mut bytes = vec![0; (end - from) as usize];
    risen(pool, || pool.run(|tx| tx.read_bytes(of, from, &mut bytes)).unwrap()).verified
}

#[test]
fn granules_verified_are_those_the_policy_asks_for() {
    let pool = create(MediumKind::Shm);
    let object = put(&pool, &pattern(1, 5 * GRANULE as usize));
    pool.set_verify_reads(VerifyReads::Never);
    assert_eq!(verified(&pool, object, 0, 5 * GRANULE), 0);
    pool.set_verify_reads(VerifyReads::Always);
    for _ in 0..3 {
        assert_eq!(verified(&pool, object, 0, 5 * GRANULE), 5);
        assert_eq!(verified(&pool, object, GRANULE - 1, GRANULE + 1), 2);
    }
    // The length is the slot's, which the first granule's sum covers.
    assert_eq!(risen(&pool, || drop(pool.run(|tx| tx.len_of(object)))).verified, 1);
    pool.set_verify_reads(VerifyReads::FirstTouch);
    assert_eq!(verified(&pool, object, 0, 5 * GRANULE), 0, "all were touched before");
    let (pool, _) = crash(pool);
    pool.set_verify_reads(VerifyReads::FirstTouch);
    assert_eq!(verified(&pool, object, 0, 2 * GRANULE), 2);
    assert_eq!(verified(&pool, object, 0, 5 * GRANULE), 5, "as far as it was asked for");
    assert_eq!(verified(&pool, object, 0, 5 * GRANULE), 0);
    // Opening for a change verifies as well, and is no read.
    let opened = risen(&pool, || pool.run(|tx| tx.write_bytes(object, 0, &[9])).unwrap());
    assert_eq!((opened.verified, opened.commits), (0, 1));
}

/// How often the medium met a barrier of this name.
fn met(pool: &TestPool, name: &str) -> u64 {
    let seen = pool.medium().sites_seen();
    seen.iter().filter(|(site, ..)| site.name() == name).map(|(.., times)| *times).sum()
}

#[test]
fn reclaims_are_the_syncs_of_a_file_and_the_marks_of_memory() {
    for (kind, barrier) in
        [(MediumKind::File, "logs.group.marked"), (MediumKind::Shm, "logs.ring.marked")]
    {
        let pool = create(kind);
        let (before, at) = (met(&pool, barrier), pool.stats().reclaims);
        let object = put(&pool, &pattern(1, 200));
        for i in 0..200 {
            pool.run(|tx| tx.write_bytes(object, 0, &pattern(i, 64))).unwrap();
        }
        // A scrub ends with a watermark over all that is complete.
        pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {}).unwrap();
        let (marks, counted) = (met(&pool, barrier) - before, pool.stats().reclaims - at);
        assert!(marks > 0, "{kind}: nothing was reclaimed");
        assert_eq!(counted, marks, "{kind}");
    }
}
