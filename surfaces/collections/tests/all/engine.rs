//! Maps on the real engine: against a model, and with stray writes coming in while they are used.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::pool::{Change, Model, TestPool, apply, apply_to_model, content, create};
use crate::support::{Bytes, KINDS, Rng, Shape};
use holdfast_collections::Map;
use holdfast_faultmem::FaultMedium;
use holdfast_layout::RawPtr;
use holdfast_object::{ScrubControl, ScrubOptions, Tx, VerifyReads};
use holdfast_txn::{Result, Transaction};

/// Bytes of a pool.
const SIZE: u64 = 4 << 20;

/// Puts or removes one key out of 300, of those that are `own` modulo two.
fn step(rng: &mut Rng, shape: Shape, puts: u64, own: Option<u64>) -> Change {
    let n = rng.below(300);
    let key = shape.key(own.map_or(n, |own| n & !1 | own));
    let value = vec![rng.next_u64() as u8; rng.below(12) as usize];
    (key, (rng.below(100) < puts).then_some(value))
}

#[test]
fn the_engine_serves_what_the_model_has() {
    for kind in KINDS {
        for shape in [Shape::Words, Shape::Names, Shape::Starts] {
            let pool = create(SIZE, VerifyReads::default());
            let map = pool.run(|tx| Map::create(tx, kind)).unwrap();
            let (mut model, mut rng) = (Model::new(), Rng::new(kind as u64));
            for n in 0..1200 {
                let change = step(&mut rng, shape, if n < 700 { 80 } else { 15 }, None);
                assert_eq!(apply(&pool, map, &change), apply_to_model(&mut model, change));
            }
            assert_eq!(content(&pool, map), model, "{kind} {shape:?}");
        }
    }
}

fn scrub(pool: &TestPool) {
    pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {}).unwrap();
}

/// Objects of a map, to be written over.
fn objects(pool: &TestPool, map: Bytes) -> Vec<RawPtr> {
    pool.run(|tx| map.check(tx)).map(|report| report.objects).unwrap_or_default()
}

/// Writes over live objects, one at a time, each repaired before the next: the redundancy covers
/// one damage per column.
fn harm(pool: &TestPool, map: Bytes, over: &AtomicBool, strays: &AtomicU64) {
    let (mut rng, mut all) = (Rng::new(99), Vec::new());
    while !over.load(Ordering::Relaxed) {
        // To list them takes a while in which nothing may change, so a list serves several times.
        if all.is_empty() || rng.below(6) == 0 {
            all = objects(pool, map);
            continue;
        }
        let victim = all[rng.below(all.len() as u64) as usize];
        // If it goes in this moment, what is free is written over.
        let Ok(len) = pool.run(|tx| tx.len_of(victim)) else { continue };
        let noise = rng.next_u64().to_le_bytes();
        let noise = &noise[..1 + rng.below(8.min(len)) as usize];
        let at = rng.below(len - noise.len() as u64 + 1);
        pool.medium().stray(victim.offset() + at, noise).unwrap();
        strays.fetch_add(1, Ordering::Relaxed);
        scrub(pool);
    }
}

/// Stray writes into each map.
const STRAYS: u64 = 12;

/// Changes and looks up every other key until there was harm enough; what is there at the end.
fn work(
    pool: &TestPool,
    map: Bytes,
    shape: Shape,
    own: u64,
    mut model: Model,
    strays: &AtomicU64,
) -> Model {
    let mut rng = Rng::new(5 + own);
    for n in 0..300 * (STRAYS + 1) {
        // Not too far ahead of the harm, which has to list all objects while none changes.
        let mut waits = 0_u32;
        while n / 300 > strays.load(Ordering::Relaxed) {
            std::thread::yield_now();
            waits += 1;
            assert!(waits < 100_000_000, "no more harm is done");
        }
        let change = step(&mut rng, shape, if n % 600 < 300 { 70 } else { 30 }, Some(own));
        assert_eq!(apply(pool, map, &change), apply_to_model(&mut model, change));
        let key = shape.key(rng.below(300) & !1 | own);
        let found = pool.run(|tx| map.get(tx, &key)).unwrap();
        assert_eq!(found.as_ref(), model.get(&key), "{}", map.kind());
    }
    model
}

#[test]
fn stray_writes_while_two_threads_use_a_map_are_repaired_and_nothing_is_lost() {
    for kind in KINDS {
        for shape in [Shape::Words, Shape::Names] {
            // Every read verifies, so that each of them is right and not only the last ones.
            let pool = create(SIZE, VerifyReads::Always);
            let map: Bytes = pool.run(|tx| Map::create(tx, kind)).unwrap();
            let mut models = [Model::new(), Model::new()];
            for n in 0..300 {
                let change = (shape.key(n), Some(vec![1; 9]));
                apply(&pool, map, &change);
                apply_to_model(&mut models[n as usize % 2], change);
            }
            let (over, strays) = (AtomicBool::new(false), AtomicU64::new(0));
            let model = std::thread::scope(|scope| {
                let (pool, over, strays) = (&pool, &over, &strays);
                scope.spawn(move || harm(pool, map, over, strays));
                let workers = [0, 1].map(|own| {
                    let model = core::mem::take(&mut models[own]);
                    scope.spawn(move || work(pool, map, shape, own as u64, model, strays))
                });
                let ends = workers.map(std::thread::ScopedJoinHandle::join);
                over.store(true, Ordering::Relaxed);
                let mut all = Model::new();
                ends.into_iter().for_each(|end| all.extend(end.unwrap()));
                all
            });
            scrub(&pool);
            let strays = strays.into_inner();
            assert!(strays >= STRAYS, "{kind}: {strays}");
            assert_eq!(content(&pool, map), model, "{kind}");
        }
    }
}

/// Values for every way an object can lie: in an item, among others, in chunks of its own.
const LENGTHS: [usize; 8] = [0, 7, 15, 300, 1024, 4000, 9000, 40_000];

#[test]
fn two_threads_that_replace_large_values_of_one_map_never_miss_an_object() {
    for kind in KINDS {
        let pool = create(4 * SIZE, VerifyReads::default());
        let map: Bytes = pool.run(|tx| Map::create(tx, kind)).unwrap();
        std::thread::scope(|scope| {
            for own in 0..2 {
                let pool = &pool;
                scope.spawn(move || {
                    for n in 0..240 {
                        // One splits buckets, and reads all keys there, while the other one frees
                        // and replaces.
                        let key = Shape::Names.key(if own == 0 { n % 40 * 12 } else { 2 * n + 1 });
                        let value = vec![n as u8; LENGTHS[n as usize * 5 % LENGTHS.len()]];
                        let add = |old: Option<Vec<u8>>| match old.as_deref() {
                            Some([low, high]) => u16::from_le_bytes([*low, *high]) + 1,
                            _ => 1,
                        };
                        pool.run(|tx| {
                            let count = add(map.get(tx, b"count")?);
                            map.put(tx, b"count", &count.to_le_bytes())?;
                            map.put(tx, &key, &value).map(drop)
                        })
                        .unwrap();
                    }
                });
            }
        });
        let found = content(&pool, map);
        assert_eq!(found.len(), 281);
        assert_eq!(found[&b"count"[..]], 480_u16.to_le_bytes());
    }
}

/// Changes something of a map that must not stay, and panics.
type Panic = fn(&Tx<'_, FaultMedium>, Bytes, &[u8]) -> Result<()>;

/// Ways to panic while a map is changed.
const PANICS: [Panic; 4] = [
    |tx, map, key| {
        map.put(tx, key, b"never")?;
        panic!("in the closure")
    },
    |tx, map, key| {
        map.remove(tx, key)?;
        map.for_each(tx, |_, _| panic!("in a visitor"))
    },
    |tx, map, key| {
        map.put(tx, key, &[9; 5000])?;
        map.get_with(tx, key, |_| panic!("in a reader")).map(drop)
    },
    |tx, map, _| {
        map.clear(tx)?;
        let source = (b'a'..=b'z').map(|n| if n < b'd' { [n] } else { panic!("in a source") });
        let keys: Vec<[u8; 1]> = (b'a'..=b'z').map(|n| [n]).collect();
        let pairs = keys.iter().zip(source).map(|(key, _)| (&key[..], &key[..]));
        map.load(tx, pairs).map(drop)
    },
];

#[test]
fn a_thread_that_panics_in_a_change_leaves_the_map_as_committed_to_it_and_to_others() {
    for kind in KINDS {
        let pool = create(SIZE, VerifyReads::Always);
        let map: Bytes = pool.run(|tx| Map::create(tx, kind)).unwrap();
        let model = std::thread::scope(|scope| {
            let pool = &pool;
            let workers = [0, 1].map(|own: u64| {
                scope.spawn(move || {
                    let (mut model, mut rng) = (Model::new(), Rng::new(own));
                    for n in 0..400_usize {
                        if own == 1 && n % 4 == 3 {
                            let key = Shape::Names.key(rng.below(300));
                            let change = || pool.run(|tx| PANICS[n / 4 % 4](tx, map, &key));
                            let change = std::panic::AssertUnwindSafe(change);
                            std::panic::catch_unwind(change).unwrap_err();
                            continue;
                        }
                        let change = step(&mut rng, Shape::Names, 70, Some(own));
                        assert_eq!(apply(pool, map, &change), apply_to_model(&mut model, change));
                    }
                    model
                })
            });
            let ends = workers.map(|worker| worker.join().unwrap());
            ends.into_iter().fold(Model::new(), |mut all, own| {
                all.extend(own);
                all
            })
        });
        assert_eq!(content(&pool, map), model, "{kind}");
        assert_eq!(pool.stats().aborts, 100);
    }
}

#[test]
fn kinds_share_nothing_in_a_pool() {
    let pool = create(SIZE, VerifyReads::default());
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
