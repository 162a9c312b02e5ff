//! Faults that come at the worst moment: a page goes bad under a commit, at each of its steps; the
//! power goes in the middle of a repair, at each of its drains.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{TestPool, clock, crash, create_with, get, pattern, put};
use holdfast_faultmem::{Budget, Clear, Config, CrashPoint, FaultMedium};
use holdfast_layout::{RawPtr, Region, RegionKind};
use holdfast_object::{CreateOptions, OpenOptions, Parity, Pool, ScrubControl, ScrubOptions};
use holdfast_pmem::MediumKind;
use holdfast_txn::Transaction;

const STEPS: [&str; 5] = [
    "object.commit.step-locked",
    "object.commit.step-durable",
    "object.commit.step-columns",
    "object.commit.step-applied",
    STEP_DONE,
];
const STEP_DONE: &str = "object.commit.step-done";

struct Filled {
    pool: TestPool,
    objects: Vec<(RawPtr, Vec<u8>)>,
    zone: Region,
}

fn filled(kind: MediumKind, parity: Parity) -> Filled {
    let pool = create_with(kind, &CreateOptions { parity, ..CreateOptions::tiny(1 << 20) });
    let mut objects = Vec::new();
    for i in 0..60_u64 {
        let bytes = pattern(i + 1, [60, 300, 1000, 3000][i as usize % 4]);
        objects.push((put(&pool, &bytes), bytes));
    }
    let zone = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    Filled { pool, objects, zone }
}

impl Filled {
    /// Pages a commit to `object` needs: its own, its slot's, P's and Q's over it, the directory's.
    fn pages(&self, object: RawPtr) -> Vec<u64> {
        let Region { start, row_len, data_rows, parity_rows, .. } = self.zone;
        let page = object.offset() / 4096 * 4096;
        let col = (page - start) % row_len;
        let mut pages = vec![page, start];
        let parity = (0..u64::from(parity_rows)).map(|n| u64::from(data_rows) + n);
        pages.extend(parity.map(|row| start + row * row_len + col));
        // The slot is at the head of the chunk.
        pages.push(start + 4096 + (page - start - 4096) / 8192 * 8192);
        pages.sort_unstable();
        pages.dedup();
        pages
    }
}

fn check(pool: &TestPool, objects: &[(RawPtr, Vec<u8>)], what: &str) {
    for (p, bytes) in objects {
        assert_eq!(&get(pool, *p).unwrap(), bytes, "{what}: {p}");
    }
    let control = ScrubControl::default();
    let done = pool.scrub(ScrubOptions::default(), &control, |_, _| {}).unwrap();
    assert_eq!(done.lost, 0, "{what}: {:?}", done.report.findings);
    let report = pool.check(|_, _| {}).unwrap();
    assert!(report.is_clean(), "{what}: {:?}", report.findings);
}

/// Poisons `page` when the commit that `run` starts passes `step`.
fn poison_at(pool: &TestPool, step: &'static str, page: u64, clear: Clear, run: impl FnOnce()) {
    let (hooked, done) = (pool.clone(), Arc::new(AtomicBool::new(false)));
    let once = Arc::clone(&done);
    pool.medium().on_step(Box::new(move |site| {
        if site.name() == step && !once.swap(true, Ordering::AcqRel) {
            hooked.medium().poison(page, 4096, clear).unwrap();
        }
    }));
    run();
    pool.medium().clear_on_step();
    assert!(done.load(Ordering::Acquire), "{step} was passed");
}

#[test]
fn a_page_that_goes_bad_under_a_commit_costs_nothing() {
    let mut trials = 0;
    for (parity, clear) in
        [(Parity::P, Clear::Able), (Parity::P, Clear::Unable), (Parity::PQ, Clear::Able)]
    {
        for step in STEPS {
            let mut n = 0;
            loop {
                let mut f = filled(MediumKind::Shm, parity);
                let object = f.objects[6].0;
                let Some(page) = f.pages(object).get(n).copied() else { break };
                let what = format!("{parity:?} {clear:?} {step} page {page:#x}");
                // Only who changes more than can be put off is done before it returns.
                let also = if step == STEP_DONE { 20..28 } else { 0..0 };
                for changed in also.clone().chain([6]) {
                    f.objects[changed].1 = pattern(999, f.objects[changed].1.len());
                }
                poison_at(&f.pool, step, page, clear, || {
                    let changed: Vec<_> = also.chain([6]).map(|i| f.objects[i].clone()).collect();
                    f.pool
                        .run(|tx| {
                            changed.iter().try_for_each(|(p, new)| tx.write_bytes(*p, 0, new))
                        })
                        .unwrap();
                });
                check(&f.pool, &f.objects, &what);
                let (pool, _) = crash(f.pool);
                check(&pool, &f.objects, &what);
                (n, trials) = (n + 1, trials + 1);
            }
        }
    }
    assert!(trials >= 45, "{trials}");
}

/// Pictures of the medium at every barrier of `run`.
fn points(pool: &TestPool, run: impl FnOnce()) -> Vec<CrashPoint> {
    let points: Arc<Mutex<Vec<CrashPoint>>> = Arc::default();
    let sink = Arc::clone(&points);
    pool.medium().on_barrier(Box::new(move |_, _, point| sink.lock().unwrap().push(point.clone())));
    run();
    pool.medium().clear_on_barrier();
    core::mem::take(&mut *points.lock().unwrap())
}

fn crash_in_repair(kind: MediumKind, parity: Parity, damage: impl Fn(&Filled) -> u64) -> u64 {
    let f = filled(kind, parity);
    let at = damage(&f);
    let points = points(&f.pool, || assert!(f.pool.heal_load(at, 64), "{at:#x}"));
    assert!(points.len() >= 4, "{} barriers", points.len());
    let budget = Budget { exhaustive: 3, singles: 2, pairs: 0, samples: 2, seed: 1 };
    let mut images = 0;
    for point in points {
        for image in point.images(&budget).take(25) {
            let m = FaultMedium::from_crash(image, kind, &Config::default());
            let (pool, _) = Pool::open(m, OpenOptions::default(), clock()).unwrap();
            check(&pool, &f.objects, &format!("{kind} {parity:?} {:?}", point.barrier()));
            images += 1;
        }
    }
    images
}

#[test]
fn a_crash_in_a_repair_leaves_nothing_worse() {
    for (kind, parity) in
        [(MediumKind::Shm, Parity::P), (MediumKind::Shm, Parity::PQ), (MediumKind::File, Parity::P)]
    {
        let mut images = 0;
        images += crash_in_repair(kind, parity, |f| {
            f.pool.medium().stray(f.objects[3].0.offset() + 1500, &[0xbb; 700]).unwrap();
            f.objects[3].0.offset() + 1500
        });
        for page in 0..4 {
            images += crash_in_repair(kind, parity, |f| {
                let pages = f.pages(f.objects[6].0);
                let page = pages[page.min(pages.len() - 1)];
                f.pool.medium().poison(page, 4096, Clear::Able).unwrap();
                page
            });
        }
        images += crash_in_repair(kind, parity, |f| {
            let page = f.objects[9].0.offset() / 4096 * 4096;
            f.pool.medium().poison(page, 4096, Clear::Unable).unwrap();
            page
        });
        println!("{kind} {parity:?}: {images} images");
        assert!(images > 60, "{images}");
    }
}
