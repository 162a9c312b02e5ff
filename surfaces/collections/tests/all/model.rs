//! Maps against the standard library's: 120,000 operations in a fixed random order, in batches
//! that commit or abort, with a check of the structure and for leaks along the way.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::support::{Bytes, KINDS, Rng, SHAPES, Shape, Tx, check_no_leak, run};
use holdfast_collections::{Kind, Map};
use holdfast_txn::toy::ToyStore;
use holdfast_txn::{Isolation, Result, Store, TxError};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Operations of each kind with each shape of keys.
const OPERATIONS: u64 = 12_000;
const BATCH: u64 = 50;

/// A map and what it should hold.
struct Pair {
    store: ToyStore,
    map: Bytes,
    model: Model,
    rng: Rng,
    shape: Shape,
    /// Keys are chosen among this many; for ascending ones, from here on.
    keys: u64,
}

impl Pair {
    fn new(kind: Kind, shape: Shape) -> Self {
        let store = ToyStore::new();
        let map = run(&store, |tx| Map::create_seeded(tx, kind, [7, shape as u64]));
        let keys = if shape == Shape::Ascending { 0 } else { 1200 };
        Self { store, map, model: Model::new(), rng: Rng::new(kind as u64 + 1), shape, keys }
    }

    /// One batch; `puts` of 100 operations are insertions.
    fn batch(&mut self, puts: u64) {
        let (map, shape, keys) = (self.map, self.shape, self.keys);
        let abort = self.rng.below(10) == 0;
        let mut after = None;
        let result = self.store.run(Isolation::Serializable, |tx| {
            let (mut model, mut rng) = (self.model.clone(), self.rng.clone());
            let mut keys = keys;
            for _ in 0..BATCH {
                operate(tx, map, &mut model, &mut rng, (shape, &mut keys), puts)?;
            }
            after = Some((model, rng, keys));
            if abort { Err(TxError::cancel("every tenth")) } else { Ok(()) }
        });
        let (model, rng, keys) = after.expect("the closure ran");
        self.rng = rng;
        if abort {
            assert_eq!(result, Err(TxError::cancel("every tenth")));
        } else {
            result.expect("committed");
            (self.model, self.keys) = (model, keys);
        }
    }

    fn check(&self) {
        let report = check_no_leak(&self.store, self.map);
        assert_eq!(report.entries, self.model.len() as u64);
        let mut found = Model::new();
        let mut order = Vec::new();
        run(&self.store, |tx| {
            assert_eq!(self.map.len(tx)?, self.model.len() as u64);
            assert_eq!(self.map.is_empty(tx)?, self.model.is_empty());
            self.map.for_each(tx, |key, value| {
                order.push(key.to_vec());
                assert_eq!(found.insert(key.to_vec(), value.to_vec()), None, "visited once");
                Ok(())
            })
        });
        assert_eq!(found, self.model);
        assert!(self.map.kind() == Kind::Hash || order.is_sorted());
    }
}

/// A key to work on: mostly one that may be there.
fn pick(rng: &mut Rng, shape: Shape, keys: &mut u64) -> Vec<u8> {
    if shape != Shape::Ascending {
        return shape.key(rng.below(*keys));
    }
    match rng.below(3) {
        0 => {
            *keys += 1;
            shape.key(*keys)
        }
        _ => shape.key(keys.saturating_sub(rng.below(800))),
    }
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(20) {
        0 => 0,
        1 => 500 + rng.below(40),
        2 => rng.below(3000),
        3..10 => rng.below(10),
        _ => 8 * rng.below(3),
    };
    vec![rng.next_u64() as u8; len as usize]
}

fn operate(
    tx: &Tx,
    map: Bytes,
    model: &mut Model,
    rng: &mut Rng,
    (shape, keys): (Shape, &mut u64),
    puts: u64,
) -> Result<()> {
    let key = pick(rng, shape, keys);
    let choice = rng.below(100);
    if choice < puts {
        let value = value(rng);
        if choice.is_multiple_of(2) {
            assert_eq!(map.put(tx, &key, &value)?, model.insert(key, value).is_some());
        } else {
            assert_eq!(map.replace(tx, &key, &value)?, model.insert(key, value));
        }
    } else if choice < 80 {
        if choice.is_multiple_of(2) {
            assert_eq!(map.remove(tx, &key)?, model.remove(&key).is_some());
        } else {
            assert_eq!(map.take(tx, &key)?, model.remove(&key));
        }
    } else if choice < 95 || map.kind() == Kind::Hash {
        assert_eq!(map.get(tx, &key)?.as_ref(), model.get(&key));
        assert_eq!(map.contains(tx, &key)?, model.contains_key(&key));
        assert_eq!(map.get_with(tx, &key, <[u8]>::len)?, model.get(&key).map(Vec::len));
    } else {
        scan(tx, map, model, (key, pick(rng, shape, keys)), rng)?;
        let pair = |(k, v): (&Vec<u8>, &Vec<u8>)| (k.clone(), v.clone());
        assert_eq!(map.first(tx)?, model.first_key_value().map(pair));
        assert_eq!(map.last(tx)?, model.last_key_value().map(pair));
    }
    Ok(())
}

fn scan(
    tx: &Tx,
    map: Bytes,
    model: &Model,
    (mut from, mut to): (Vec<u8>, Vec<u8>),
    rng: &mut Rng,
) -> Result<()> {
    if from > to {
        core::mem::swap(&mut from, &mut to);
    }
    let mut bound = |key: Vec<u8>| match rng.below(3) {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    };
    let (from, to) = (bound(from), bound(to));
    if let (Bound::Excluded(a), Bound::Excluded(b)) = (&from, &to)
        && a == b
    {
        // An empty range to the map, a panic to the model.
        return Ok(());
    }
    let limit = [1, 5, 40, usize::MAX][rng.below(4) as usize];
    let inside = model.range((from.clone(), to.clone()));
    let back = rng.below(2) == 0;
    let expected: Vec<_> =
        if back { inside.rev().take(limit).collect() } else { inside.take(limit).collect() };
    let mut found = Vec::new();
    let range = (from.as_ref().map(|k| &k[..]), to.as_ref().map(|k| &k[..]));
    let visit = |key: &[u8], value: &[u8]| {
        found.push((key.to_vec(), value.to_vec()));
        Ok(())
    };
    let count = match back {
        true => map.scan_back(tx, range, limit, visit)?,
        false => map.scan(tx, range, limit, visit)?,
    };
    assert_eq!(count, expected.len());
    assert!(found.iter().map(|(k, v)| (k, v)).eq(expected), "{from:?}..{to:?}");
    Ok(())
}

#[test]
fn maps_do_what_the_standard_maps_do() {
    for kind in KINDS {
        for shape in SHAPES {
            let mut pair = Pair::new(kind, shape);
            let batches = OPERATIONS / BATCH;
            for batch in 0..batches {
                // Grow for a third, stay for a third, shrink for a third.
                pair.batch([70, 45, 10][(batch * 3 / batches) as usize]);
                if batch % 8 == 7 {
                    pair.check();
                }
            }
            pair.check();
        }
    }
}

#[test]
fn what_has_grown_shrinks_to_nothing() {
    for kind in KINDS {
        for shape in SHAPES {
            let store = ToyStore::new();
            let map: Bytes = run(&store, |tx| Map::create(tx, kind));
            let empty = store.live().len();
            let mut keys: Vec<_> = (0..3000).map(|n| shape.key(n)).collect();
            keys.sort_unstable();
            keys.dedup();
            for order in 0..3 {
                run(&store, |tx| keys.iter().try_for_each(|key| map.put(tx, key, key).map(drop)));
                check_no_leak(&store, map);
                let mut removal = keys.clone();
                match order {
                    0 => {}
                    1 => removal.reverse(),
                    _ => removal.sort_unstable_by_key(|key| {
                        Rng::new(key.len() as u64).next_u64() ^ hash(key)
                    }),
                }
                for part in removal.chunks(500) {
                    run(&store, |tx| {
                        part.iter().try_for_each(|key| {
                            assert!(map.remove(tx, key)?, "{key:?}");
                            assert!(!map.contains(tx, key)?);
                            Ok(())
                        })
                    });
                    check_no_leak(&store, map);
                }
                assert_eq!(store.live().len(), empty, "{kind:?} {shape:?} order {order}");
            }
        }
    }
}

/// Some number for a key, to mix an order with.
fn hash(key: &[u8]) -> u64 {
    key.iter().fold(1, |h, b| Rng::new(h ^ u64::from(*b)).next_u64())
}

#[test]
fn clear_and_destroy_leave_nothing_behind() {
    for kind in KINDS {
        let store = ToyStore::new();
        let map: Bytes = run(&store, |tx| Map::create(tx, kind));
        let empty = store.live().len();
        let fill = |tx: &Tx| {
            (0..2000).try_for_each(|n| map.put(tx, &Shape::Names.key(n), b"value").map(drop))
        };
        run(&store, fill);
        run(&store, |tx| map.clear(tx));
        assert_eq!(store.live().len(), empty);
        run(&store, |tx| {
            assert!(map.is_empty(tx)?);
            assert_eq!(map.get(tx, &Shape::Names.key(1))?, None);
            fill(tx)
        });
        assert_eq!(check_no_leak(&store, map).entries, 2000);
        run(&store, |tx| map.destroy(tx));
        assert_eq!(store.live(), []);
    }
}
