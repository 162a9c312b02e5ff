//! What a commit costs in drains, and that one thread's delay is not another's.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crate::common::{create, get, pattern, put};
use holdfast_layout::{RawPtr, RegionKind};
use holdfast_pmem::{Medium, MediumKind, Site};
use holdfast_txn::Transaction;

/// The most drains of any of `count` steps.
fn drains(pool: &crate::common::TestPool, count: u64, mut step: impl FnMut(u64)) -> u64 {
    // Warm-up: runs formatted, caches filled.
    (0..count).for_each(&mut step);
    let counted = (0..count).map(|i| {
        pool.medium().reset_counters();
        step(i);
        pool.medium().counters().all_drains()
    });
    counted.max().unwrap()
}

#[test]
fn a_small_commit_has_two_drains() {
    let pool = create(MediumKind::Shm);
    let objects: Vec<RawPtr> = (0..8).map(|i| put(&pool, &pattern(i, 200))).collect();
    let one = drains(&pool, 60, |i| {
        let p = objects[i as usize % 8];
        pool.run(|tx| tx.write_bytes(p, 0, &pattern(i, 64))).unwrap();
    });
    assert!(one <= 2, "overwrite of 64 B: {one} drains");
    let four = drains(&pool, 60, |i| {
        pool.run(|tx| {
            for (k, object) in (0..).zip(&objects[..4]) {
                tx.write_bytes(*object, 0, &pattern(i + k, 200))?;
            }
            Ok(())
        })
        .unwrap();
    });
    assert!(four <= 2, "four objects: {four} drains");
    let mut last = None;
    let alloc_and_free = drains(&pool, 60, |i| {
        let p = put(&pool, &pattern(i, 128));
        if let Some(old) = last.replace(p) {
            pool.run(|tx| tx.free(old)).unwrap();
        }
    });
    assert!(alloc_and_free <= 4, "an allocation and a free: {alloc_and_free} drains");
    let reads = drains(&pool, 60, |i| {
        get(&pool, objects[i as usize % 8]).unwrap();
    });
    assert!(reads == 0, "reads: {reads} drains");
}

#[test]
fn an_object_of_a_page_is_one_write_whose_drain_is_put_off() {
    let pool = create(MediumKind::Shm);
    let p = put(&pool, &pattern(1, 4096));
    let steps: Arc<Mutex<Vec<&str>>> = Arc::default();
    let sink = Arc::clone(&steps);
    pool.medium().on_step(Box::new(move |site| sink.lock().unwrap().push(site.name())));
    for i in 2..10 {
        pool.run(|tx| tx.write_bytes(p, 0, &pattern(i, 4096))).unwrap();
        assert_eq!(get(&pool, p).unwrap(), pattern(i, 4096));
    }
    pool.medium().clear_on_step();
    let steps = steps.lock().unwrap();
    let passed = |name: &str| steps.iter().filter(|step| **step == name).count();
    assert_eq!(passed("object.commit.step-put-off"), 8);
    assert_eq!(passed("object.commit.step-done"), 0);
}

#[test]
fn a_commit_on_a_file_is_one_sync() {
    let pool = create(MediumKind::File);
    let p = put(&pool, &pattern(1, 200));
    pool.run(|tx| tx.write_bytes(p, 0, &[1; 64])).unwrap();
    let mut others = 0;
    for i in 0..60 {
        pool.medium().reset_counters();
        let before = barriers(&pool);
        pool.run(|tx| tx.write_bytes(p, 0, &pattern(i, 64))).unwrap();
        let (now, counters) = (barriers(&pool) - before, pool.medium().counters());
        // A reclaim now and then adds its sync and its watermark record.
        let reclaimed = counters.syncs > 0;
        others += u32::from(reclaimed);
        assert_eq!(now, if reclaimed { 3 } else { 1 }, "commit {i}: {counters:?}");
    }
    // This log has ten pages; a record and its replica take two.
    assert!(others <= 15, "{others} of 60 commits had to reclaim the log");
}

fn barriers(pool: &crate::common::TestPool) -> u64 {
    let sites = pool.medium().sites_seen();
    sites
        .iter()
        .filter(|(_, kind, _)| {
            use holdfast_faultmem::SiteKind;
            matches!(kind, SiteKind::Append | SiteKind::Sync)
        })
        .map(|(_, _, count)| count)
        .sum()
}

/// Parks the first thread that passes a step, until released.
struct Park {
    parked: Mutex<bool>,
    changed: Condvar,
    armed: AtomicBool,
}

impl Park {
    fn at(pool: &crate::common::TestPool, step: &'static str) -> Arc<Self> {
        let park = Arc::new(Self {
            parked: Mutex::new(false),
            changed: Condvar::new(),
            armed: AtomicBool::new(true),
        });
        let hook = Arc::clone(&park);
        pool.medium().on_step(Box::new(move |site: Site| {
            if site.name() == step && hook.armed.swap(false, Ordering::AcqRel) {
                let mut parked = hook.parked.lock().unwrap();
                *parked = true;
                hook.changed.notify_all();
                while *parked {
                    parked = hook.changed.wait(parked).unwrap();
                }
            }
        }));
        park
    }

    fn wait_until_parked(&self) {
        let mut parked = self.parked.lock().unwrap();
        while !*parked {
            parked = self.changed.wait(parked).unwrap();
        }
    }

    fn release(&self) {
        *self.parked.lock().unwrap() = false;
        self.changed.notify_all();
    }
}

#[test]
fn a_thread_parked_between_its_drains_stops_nobody_else() {
    let pool = create(MediumKind::Shm);
    // Far enough apart to share no column: a parked committer holds its own.
    let objects: Vec<RawPtr> = (0..12).map(|i| put(&pool, &pattern(i, 3000))).collect();
    let park = Park::at(&pool, "object.commit.step-durable");
    std::thread::scope(|s| {
        let (first, last) = (objects[0], objects[11]);
        let pool = &pool;
        let slow = s.spawn(move || pool.run(|tx| tx.write_bytes(first, 0, &[1; 64])));
        park.wait_until_parked();
        for i in 0..30 {
            pool.run(|tx| tx.write_bytes(last, 0, &pattern(i, 64))).unwrap();
        }
        park.release();
        slow.join().unwrap().unwrap();
    });
    assert_eq!(&get(&pool, objects[0]).unwrap()[..64], &[1; 64]);
    assert_eq!(&get(&pool, objects[11]).unwrap()[..64], &pattern(29, 64));
    assert!(pool.check(|_, _| {}).unwrap().is_clean());
}

#[test]
fn a_repair_holds_one_column_and_others_commit() {
    let pool = create(MediumKind::Shm);
    let objects: Vec<RawPtr> = (0..12).map(|i| put(&pool, &pattern(i, 3000))).collect();
    let park = Park::at(&pool, "object.mend_unit.step-held");
    let (sick, other) = (objects[0], objects[11]);
    pool.medium().stray(sick.offset() + 10, &[0xee; 3]).unwrap();
    std::thread::scope(|s| {
        let pool = &pool;
        let repair = s.spawn(move || pool.run(|tx| tx.write_bytes(sick, 0, &[1; 8])));
        park.wait_until_parked();
        for i in 0..30 {
            pool.run(|tx| tx.write_bytes(other, 0, &pattern(i, 64))).unwrap();
        }
        park.release();
        repair.join().unwrap().unwrap();
    });
    assert_eq!(pool.stats().repaired, 1);
    assert!(pool.check(|_, _| {}).unwrap().is_clean());
}

#[test]
fn a_repair_waits_for_a_commit_in_the_middle_of_its_column() {
    // Columns held and nothing stored yet; objects and parity stored, and not yet durable.
    for step in ["object.commit.step-columns", "object.commit.step-applied"] {
        let pool = create(MediumKind::Shm);
        let objects: Vec<RawPtr> = (0..60).map(|i| put(&pool, &pattern(i, 3000))).collect();
        let zone = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
        let column = |p: &RawPtr| (p.offset() - zone.start) % zone.row_len / 4096;
        let row = |p: &RawPtr| (p.offset() - zone.start) / zone.row_len;
        let other = |p: &RawPtr| column(p) == column(&objects[0]) && row(p) != row(&objects[0]);
        let sick = objects.iter().position(other).expect("objects fill two rows");
        let park = Park::at(&pool, step);
        let repaired = AtomicBool::new(false);
        std::thread::scope(|s| {
            let (pool, objects, repaired) = (&pool, &objects, &repaired);
            let commit = s.spawn(move || {
                pool.run(|tx| tx.write_bytes(objects[0], 0, &pattern(99, 3000))).unwrap();
            });
            park.wait_until_parked();
            pool.medium().stray(objects[sick].offset(), &[0xee; 900]).unwrap();
            let repair = s.spawn(move || {
                assert!(pool.heal_load(objects[sick].offset(), 900));
                repaired.store(true, Ordering::Release);
            });
            // It must not judge a column that is half changed.
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(!repaired.load(Ordering::Acquire), "{step}: it did not wait");
            park.release();
            commit.join().unwrap();
            repair.join().unwrap();
        });
        assert_eq!((pool.stats().repaired, pool.stats().lost), (1, 0), "{step}");
        assert_eq!(get(&pool, objects[0]).unwrap(), pattern(99, 3000), "{step}");
        assert_eq!(get(&pool, objects[sick]).unwrap(), pattern(sick as u64, 3000), "{step}");
        assert!(pool.check(|_, _| {}).unwrap().is_clean(), "{step}");
    }
}

#[test]
fn threads_that_change_the_same_objects_lose_no_update() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        let pool = create(kind);
        let objects: Vec<RawPtr> = (0..3).map(|_| put(&pool, &[0; 64])).collect();
        let runs = AtomicU32::new(0);
        std::thread::scope(|s| {
            for thread in 0..3 {
                let (pool, objects, runs) = (&pool, &objects, &runs);
                s.spawn(move || {
                    for i in 0..200 {
                        let (a, b) = (objects[(i + thread) % 3], objects[(i + thread + 1) % 3]);
                        pool.run(|tx| {
                            runs.fetch_add(1, Ordering::Relaxed);
                            for p in [a, b] {
                                let mut n = [0; 8];
                                tx.read_bytes(p, 0, &mut n)?;
                                let next = u64::from_le_bytes(n) + 1;
                                tx.write_bytes(p, 0, &next.to_le_bytes())?;
                            }
                            Ok(())
                        })
                        .unwrap();
                    }
                });
            }
        });
        let count =
            |p: &RawPtr| u64::from_le_bytes(get(&pool, *p).unwrap()[..8].try_into().unwrap());
        assert_eq!(objects.iter().map(count).sum::<u64>(), 3 * 200 * 2, "{kind}");
        assert!(runs.load(Ordering::Relaxed) >= 600);
        let report = pool.check(|_, _| {}).unwrap();
        assert!(report.is_clean(), "{kind} {:?}", report.findings);
    }
}

#[test]
fn growth_adds_room_while_transactions_run() {
    let pool = create(MediumKind::Shm);
    let first = put(&pool, &pattern(1, 3000));
    let seen = pool.medium().view(first.offset(), 3000).unwrap();
    let before = pool.space();
    std::thread::scope(|s| {
        let writer = s.spawn(|| {
            for i in 0..300 {
                pool.run(|tx| tx.write_bytes(first, 0, &pattern(i, 3000))).unwrap();
            }
        });
        pool.grow(2 << 20).unwrap();
        writer.join().unwrap();
    });
    let after = pool.space();
    assert!(after.total >= before.total + (700 << 10), "{before:?} {after:?}");
    assert_eq!(pool.medium().view(first.offset(), 3000).unwrap(), seen);
    let many: Vec<RawPtr> = (0..100).map(|i| put(&pool, &pattern(i, 7000))).collect();
    assert!(pool.check(|_, _| {}).unwrap().is_clean());
    let (pool, _) = crate::common::crash(pool);
    for (i, p) in many.iter().enumerate() {
        assert_eq!(get(&pool, *p).unwrap(), pattern(i as u64, 7000));
    }
    assert!(pool.check(|_, _| {}).unwrap().is_clean());
}
