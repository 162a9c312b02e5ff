//! Maps used as they should not be: changed while they are walked through; closures that go on
//! after an error in the middle of a change.

use std::collections::BTreeSet;

use crate::support::failing::Failing;
use crate::support::pool::{Model, content, create};
use crate::support::{Bytes, KINDS, Shape, Tx, check_no_leak, run};
use holdfast_collections::{Kind, Map};
use holdfast_layout::TypeNumber;
use holdfast_object::{Error, VerifyReads};
use holdfast_txn::toy::ToyStore;
use holdfast_txn::{Isolation, Result, Store, Transaction, TxError};

/// Puts keys, 20 in a transaction, until `limit` did not fit, and goes on after each failure; what
/// the transactions that committed have put.
fn overfill(kind: Kind, shape: Shape, value: &[u8], limit: u32) {
    let pool = create(2 << 20, VerifyReads::default());
    let map: Bytes = pool.run(|tx| Map::create(tx, kind)).unwrap();
    let (mut model, mut failed, mut refused) = (Model::new(), 0, 0);
    for batch in 0_u64.. {
        let mut put = Vec::new();
        let end = pool.run(|tx| {
            put.clear();
            for n in 20 * batch..20 * batch + 20 {
                match map.put(tx, &shape.key(n), value) {
                    Ok(_) => put.push((shape.key(n), value.to_vec())),
                    Err(TxError::NoSpace { .. }) => failed += 1,
                    Err(other) => return Err(other),
                }
            }
            Ok(())
        });
        match end {
            Ok(()) => model.extend(put),
            Err(Error::Tx(TxError::NoSpace { .. })) => refused += 1,
            Err(other) => panic!("{kind} {shape:?}: {other}"),
        }
        if failed > limit {
            break;
        }
    }
    assert_eq!(content(&pool, map), model, "{kind} {shape:?}: {refused} refused");
}

#[test]
fn a_pool_that_is_full_in_the_middle_of_an_insertion_costs_no_entry() {
    for kind in KINDS {
        overfill(kind, Shape::Words, &[7; 16], 60);
        overfill(kind, Shape::Long, &[7; 3], 60);
    }
}

#[test]
fn a_value_no_pool_can_hold_changes_nothing() {
    let huge = vec![1; 40 << 20];
    for kind in KINDS {
        let pool = create(4 << 20, VerifyReads::default());
        let map: Bytes = pool.run(|tx| Map::create(tx, kind)).unwrap();
        let mut model = Model::new();
        // At some time the bucket is full.
        for n in 0..130 {
            pool.run(|tx| {
                map.put(tx, &Shape::Ascending.key(n), b"1234567")?;
                let refused = map.put(tx, &Shape::Ascending.key(1000), &huge);
                assert!(matches!(refused, Err(TxError::TooLarge { .. })), "{refused:?}");
                Ok(())
            })
            .unwrap();
            model.insert(Shape::Ascending.key(n), b"1234567".to_vec());
        }
        assert_eq!(content(&pool, map), model, "{kind}");
    }
}

/// What a visitor does to the map at each key.
type Change = fn(&Tx, Bytes, Shape, &[u8], u64) -> Result<()>;

const CHANGES: [(&str, Change); 4] = [
    ("removes it", |tx, map, _, key, _| map.remove(tx, key).map(drop)),
    ("gives it a longer value", |tx, map, _, key, _| {
        map.put(tx, key, &[key, key].concat()).map(drop)
    }),
    ("adds others", |tx, map, shape, _, n| map.put(tx, &shape.key(5000 + n), b"new").map(drop)),
    ("removes others", |tx, map, shape, _, n| map.remove(tx, &shape.key(n * 7 % 2000)).map(drop)),
];

#[test]
fn a_visitor_that_changes_the_map_is_told_so_or_misses_nothing() {
    for kind in KINDS {
        for shape in [Shape::Words, Shape::Names] {
            let store = ToyStore::new();
            let map: Bytes = run(&store, |tx| Map::create(tx, kind));
            let keys: BTreeSet<_> = (0..2000).map(|n| shape.key(n)).collect();
            run(&store, |tx| keys.iter().try_for_each(|key| map.put(tx, key, key).map(drop)));
            for (what, change) in CHANGES {
                let mut seen = BTreeSet::new();
                let end = store.run(Isolation::Serializable, |tx| {
                    map.for_each(tx, |key, value| {
                        let n = seen.len() as u64;
                        assert!(seen.insert(key.to_vec()), "{kind}: a visitor that {what}: twice");
                        assert!(key == value || value == b"new", "{kind}: a visitor that {what}");
                        if n < 3000 { change(tx, map, shape, key, n) } else { Ok(()) }
                    })
                });
                let Err(error) = end else {
                    // It never changed what it was being shown at the time.
                    assert!(what == "adds others" && shape == Shape::Names, "{kind}: {what}");
                    assert!(seen.len() == 5000 && keys.is_subset(&seen), "{kind}: {what}");
                    run(&store, |tx| {
                        (0..3000).try_for_each(|n| {
                            assert!(map.remove(tx, &shape.key(5000 + n))?);
                            Ok(())
                        })
                    });
                    continue;
                };
                let text = error.to_string();
                assert!(text.contains("changed while") && text.contains("cursor"), "{text}");
            }
            // A value of the same length, in an entry of its own, is no change to the structure.
            let mut count = 0;
            run(&store, |tx| {
                map.for_each(tx, |key, _| {
                    count += 1;
                    if shape == Shape::Names { map.put(tx, key, key).map(drop) } else { Ok(()) }
                })
            });
            assert_eq!(count, 2000);
        }
    }
}

/// A change to a map, or to the store around it.
type Work = fn(&Failing<'_, Tx>, Bytes, &[u8]) -> Result<()>;

/// Does the work with each of its changes refused in turn, in a closure that goes on after the
/// error, until it comes through: by then it was not done, and nothing else either.
fn refuse_each(store: &ToyStore, map: Bytes, key: &[u8], work: Work) -> u64 {
    for after in 0.. {
        let mut failed = false;
        let end = store.run(Isolation::Serializable, |tx| {
            let failing = Failing::new(tx, after);
            let done = work(&failing, map, key);
            failed = failing.has_failed();
            assert_eq!(done.is_err(), failed, "{} {done:?}", map.kind());
            Ok(())
        });
        if !failed {
            assert_eq!(end, Ok(()));
            return after;
        }
        // The first change there would have been leaves nothing by half.
        assert_eq!(end.is_err(), after > 0, "{} change {after}", map.kind());
    }
    0
}

#[test]
fn no_change_is_committed_by_half_wherever_it_fails() {
    for kind in KINDS {
        for shape in [Shape::Words, Shape::Names] {
            let store = ToyStore::new();
            let map: Bytes = run(&store, |tx| Map::create(tx, kind));
            let mut most = 0;
            let put: Work = |tx, map, key| map.put(tx, key, b"value of some length").map(drop);
            for n in 0..300 {
                most = most.max(refuse_each(&store, map, &shape.key(n), put));
            }
            assert!(most > 4, "{kind}: {most}");
            assert_eq!(check_no_leak(&store, map).entries, 300);
            let longer: Work = |tx, map, key| map.put(tx, key, b"another").map(drop);
            let remove: Work = |tx, map, key| map.remove(tx, key).map(drop);
            most = 0;
            for n in 0..290 {
                refuse_each(&store, map, &shape.key(n), longer);
                most = most.max(refuse_each(&store, map, &shape.key(n), remove));
            }
            assert!(most > 3, "{kind}: {most}");
            assert_eq!(check_no_leak(&store, map).entries, 10);
            refuse_each(&store, map, b"", |tx, map, _| map.clear(tx));
            assert_eq!(check_no_leak(&store, map).entries, 0);
            refuse_each(&store, map, b"", |tx, map, _| map.destroy(tx));
            assert_eq!(store.live(), []);
            refuse_each(&store, map, b"", |tx, map, _| Bytes::create(tx, map.kind()).map(drop));
        }
    }
}

#[test]
fn a_full_pool_can_be_emptied() {
    for kind in KINDS {
        for shape in [Shape::Words, Shape::Names] {
            let pool = create(4 << 20, VerifyReads::default());
            let map: Bytes = pool.run(|tx| Map::create(tx, kind)).unwrap();
            pool.run(|tx| (0..3000).try_for_each(|n| map.put(tx, &shape.key(n), b"v").map(drop)))
                .unwrap();
            // Large pieces first, then whatever still fits.
            let mut len = 32 << 10;
            while len >= 16 {
                match pool.run(|tx| tx.alloc_bytes(TypeNumber::BYTES, len)) {
                    Ok(_) => {}
                    Err(Error::Tx(TxError::NoSpace { .. })) => len /= 2,
                    Err(other) => panic!("{other}"),
                }
            }
            for n in 0..3000 {
                let removed = pool.run(|tx| map.remove(tx, &shape.key(n * 7 % 3000)));
                assert!(removed.is_ok_and(|was_there| was_there), "{kind} {shape:?} {n}");
            }
            assert!(pool.run(|tx| map.is_empty(tx)).unwrap());
        }
    }
}
