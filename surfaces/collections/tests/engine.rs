//! Maps on the real engine: against a model, cut off at every drain, and with stray writes coming
//! in while they are used.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use holdfast_collections::{Kind, Map};
use holdfast_faultmem::{Budget, Config, CrashPoint, FaultMedium};
use holdfast_layout::RawPtr;
use holdfast_object::{CreateOptions, OpenOptions, Pool, ScrubControl, ScrubOptions, VerifyReads};
use holdfast_pmem::{Clock, MediumKind};
use support::{Bytes, KINDS, Rng, Shape};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type TestPool = Pool<FaultMedium>;

/// A clock that advances a microsecond whenever it is asked.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Clock for Counter {
    fn now(&self) -> u64 {
        self.0.fetch_add(1000, Ordering::Relaxed)
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(Counter::default())
}

fn options(verify: VerifyReads) -> OpenOptions {
    OpenOptions { version_bits: 10, verify, ..OpenOptions::default() }
}

fn create(verify: VerifyReads) -> TestPool {
    let size = 4 << 20;
    let config = Config { reserve: 4 << 20, ..Config::default() };
    let medium = FaultMedium::new(size, MediumKind::Shm, &config);
    let create = CreateOptions { chunk: 32_768, frame: 4096, ..CreateOptions::tiny(size) };
    let create = CreateOptions { log: 5 * 32_768, ..create };
    Pool::create(medium, &create, options(verify), clock()).unwrap()
}

/// Everything in the map, which is sound and, but for the anchor, all there is in the pool.
fn content(pool: &TestPool, map: Bytes) -> Model {
    let report = pool.run(|tx| map.check(tx)).unwrap();
    assert_eq!(report.findings, Vec::<String>::new());
    assert_eq!(pool.space().objects, report.objects.len() as u64 + 1, "objects leaked");
    pool.run(|tx| {
        let mut found = Model::new();
        map.for_each(tx, |key, value| {
            found.insert(key.to_vec(), value.to_vec());
            Ok(())
        })?;
        Ok(found)
    })
    .unwrap()
}

/// Puts or removes one key; the key, and its value from now on.
fn step(rng: &mut Rng, shape: Shape, puts: u64) -> (Vec<u8>, Option<Vec<u8>>) {
    let key = shape.key(rng.below(300));
    let value = vec![rng.next() as u8; rng.below(12) as usize];
    (key, (rng.below(100) < puts).then_some(value))
}

fn apply(pool: &TestPool, map: Bytes, (key, value): &(Vec<u8>, Option<Vec<u8>>)) -> bool {
    let done = pool.run(|tx| match value {
        Some(value) => map.put(tx, key, value),
        None => map.remove(tx, key),
    });
    done.unwrap()
}

fn apply_to_model(model: &mut Model, (key, value): (Vec<u8>, Option<Vec<u8>>)) -> bool {
    match value {
        Some(value) => model.insert(key, value).is_some(),
        None => model.remove(&key).is_some(),
    }
}

#[test]
fn the_engine_serves_what_the_model_has() {
    for kind in KINDS {
        for shape in [Shape::Words, Shape::Names, Shape::Starts] {
            let pool = create(VerifyReads::default());
            let map = pool.run(|tx| Map::create(tx, kind)).unwrap();
            let (mut model, mut rng) = (Model::new(), Rng(kind as u64));
            for n in 0..1200 {
                let change = step(&mut rng, shape, if n < 700 { 80 } else { 15 });
                assert_eq!(apply(&pool, map, &change), apply_to_model(&mut model, change));
            }
            assert_eq!(content(&pool, map), model, "{kind} {shape:?}");
        }
    }
}

/// A map with enough keys that the next ones split something, or their removal joins something.
fn filled(kind: Kind, count: u64) -> (TestPool, Bytes, Model) {
    let pool = create(VerifyReads::default());
    let map: Bytes = pool.run(|tx| Map::create(tx, kind)).unwrap();
    let keys = (0..count).map(|n| (Shape::Words.key(n), vec![1; 9]));
    let model: Model = keys.collect();
    pool.run(|tx| model.iter().try_for_each(|(k, v)| map.put(tx, k, v).map(drop))).unwrap();
    (pool, map, model)
}

#[test]
fn a_crash_leaves_a_sound_map_before_or_after_each_change() {
    let (mut images, mut grown, mut shrunk) = (0, 0, 0);
    for kind in KINDS {
        let (pool, map, mut model) = filled(kind, 200);
        for n in 0..300_u64 {
            let change = match n {
                0..100 => (Shape::Words.key(1000 + n), Some(vec![2; 5])),
                _ => (Shape::Words.key(n - 100), None),
            };
            let before = model.clone();
            let objects = pool.space().objects;
            let points: Arc<Mutex<Vec<CrashPoint>>> = Arc::default();
            let sink = Arc::clone(&points);
            pool.medium()
                .on_barrier(Box::new(move |_, _, point| sink.lock().unwrap().push(point.clone())));
            apply(&pool, map, &change);
            pool.medium().clear_on_barrier();
            let has_entry = u64::from(change.1.is_none());
            apply_to_model(&mut model, change);
            // Only what changes more than a bucket is worth a look at many images.
            let now = pool.space().objects;
            let structural = now != objects - has_entry;
            grown += u64::from(now > objects);
            shrunk += u64::from(now + 1 < objects);
            if !structural && n % 16 > 0 {
                continue;
            }
            let few = if structural { 8 } else { 1 };
            for point in points.lock().unwrap().iter() {
                let budget =
                    Budget { exhaustive: 1, singles: few, pairs: 1, samples: few, seed: n };
                for image in point.images(&budget).take(few) {
                    images += 1;
                    let medium =
                        FaultMedium::from_crash(image, MediumKind::Shm, &Config::default());
                    let open = options(VerifyReads::default());
                    let (again, _) = Pool::open(medium, open, clock()).unwrap();
                    let found = content(&again, map);
                    assert!(found == before || found == model, "{kind} step {n}");
                }
            }
        }
        assert_eq!(content(&pool, map), model);
    }
    assert!(images > 500 && grown > 12 && shrunk > 6, "{images} {grown} {shrunk}");
}

fn scrub(pool: &TestPool) {
    pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {}).unwrap();
}

/// Objects of a map, to be written over.
fn objects(pool: &TestPool, map: Bytes) -> Vec<RawPtr> {
    pool.run(|tx| map.check(tx)).map(|report| report.objects).unwrap_or_default()
}

#[test]
fn stray_writes_while_a_map_is_used_are_repaired_and_nothing_is_lost() {
    for kind in KINDS {
        let (pool, map, mut model) = filled(kind, 300);
        let pool = {
            // Every read verifies, so that each of them is right and not only the last ones.
            let image = pool.medium().crash_point().newest();
            core::mem::forget(pool);
            let medium = FaultMedium::from_crash(image, MediumKind::Shm, &Config::default());
            Pool::open(medium, options(VerifyReads::Always), clock()).unwrap().0
        };
        let (over, strays) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (pool, over, strays) = (&pool, &over, &strays);
            scope.spawn(move || {
                let mut rng = Rng(99);
                while !over.load(Ordering::Relaxed) {
                    let all = objects(pool, map);
                    if all.is_empty() {
                        continue;
                    }
                    let victim = all[rng.below(all.len() as u64) as usize];
                    let noise = rng.next().to_le_bytes();
                    pool.medium().stray(victim.offset() + 8 * rng.below(2), &noise).unwrap();
                    strays.fetch_add(1, Ordering::Relaxed);
                    // One at a time: the redundancy covers one damage per column.
                    scrub(pool);
                }
            });
            let mut rng = Rng(5);
            for n in 0..20_000 {
                if n >= 600 && strays.load(Ordering::Relaxed) >= 12 {
                    break;
                }
                let change = step(&mut rng, Shape::Words, if n % 600 < 300 { 70 } else { 30 });
                assert_eq!(apply(pool, map, &change), apply_to_model(&mut model, change));
                let key = Shape::Words.key(rng.below(300));
                let found = pool.run(|tx| map.get(tx, &key)).unwrap();
                assert_eq!(found.as_ref(), model.get(&key), "{kind}");
            }
            over.store(true, Ordering::Relaxed);
        });
        scrub(&pool);
        let strays = strays.into_inner();
        assert!(strays >= 3, "{kind}: {strays}");
        assert_eq!(content(&pool, map), model, "{kind}");
    }
}

#[test]
fn kinds_share_nothing_in_a_pool() {
    let pool = create(VerifyReads::default());
    let maps: Vec<Bytes> =
        KINDS.iter().map(|kind| pool.run(|tx| Map::create(tx, *kind)).unwrap()).collect();
    for n in 0..300 {
        pool.run(|tx| {
            maps.iter().try_for_each(|m| m.put(tx, &Shape::Names.key(n), b"v").map(drop))
        })
        .unwrap();
    }
    let mut seen = BTreeSet::new();
    for map in &maps {
        let report = pool.run(|tx| map.check(tx)).unwrap();
        assert!(report.is_sound() && report.entries == 300, "{:?}", report.findings);
        assert!(report.objects.iter().all(|object| seen.insert(*object)));
    }
    assert_eq!(pool.space().objects, seen.len() as u64 + 1);
}
