//! Typed maps: keys in their order, values of their types, and headers that refuse what they are
//! not.

use std::ops::Bound;

use crate::support::{KINDS, run};
use holdfast_collections::{KEY_MAX, Kind, Map, MapHeader, MapInfo};
use holdfast_layout::{Persist, Ptr, RawPtr};
use holdfast_txn::toy::ToyStore;
use holdfast_txn::{Transaction, TxError};

#[derive(Debug, Clone, Copy, PartialEq, Persist)]
#[repr(C)]
struct Account {
    balance: i64,
    next: Ptr<Account>,
}

#[test]
fn values_are_of_their_type() {
    for kind in KINDS {
        let store = ToyStore::new();
        run(&store, |tx| {
            let accounts = Map::<str, Account>::create(tx, kind)?;
            let account = Account { balance: -3, next: RawPtr::new(64, 1).typed() };
            assert!(!accounts.put(tx, "ada", &account)?);
            assert_eq!(accounts.get(tx, "ada")?, Some(account));
            assert_eq!(accounts.get_with(tx, "ada", |a| a.balance)?, Some(-3));
            let richer = Account { balance: 7, ..account };
            assert_eq!(accounts.replace(tx, "ada", &richer)?, Some(account));
            assert_eq!(accounts.take(tx, "ada")?, Some(richer));
            assert_eq!(accounts.take(tx, "ada")?, None);
            let texts = Map::<u32, str>::create(tx, kind)?;
            texts.put(tx, &7, "seven")?;
            assert_eq!(texts.get(tx, &7)?.as_deref(), Some("seven"));
            assert_eq!(texts.get_with(tx, &7, str::len)?, Some(5));
            assert_eq!(texts.check(tx)?.findings, Vec::<String>::new());
            Ok(())
        });
    }
}

#[test]
fn numbers_are_scanned_in_their_order() {
    let store = ToyStore::new();
    run(&store, |tx| {
        let map = Map::<i64, u64>::create(tx, Kind::BTree)?;
        let keys = [i64::MIN, -1 << 40, -256, -255, -1, 0, 1, 255, 256, 1 << 40, i64::MAX];
        for key in keys.iter().rev() {
            map.put(tx, key, &key.unsigned_abs())?;
        }
        let mut found = Vec::new();
        map.for_each(tx, |key, value| {
            assert_eq!(*value, key.unsigned_abs());
            found.push(*key);
            Ok(())
        })?;
        assert_eq!(found, keys);
        found.clear();
        let count = map.scan(tx, -255..=255, 4, |key, _| {
            found.push(*key);
            Ok(())
        })?;
        assert_eq!((count, &found[..]), (4, &[-255, -1, 0, 1][..]));
        Ok(())
    });
}

#[test]
fn a_map_opened_with_other_types_says_what_it_holds() {
    let store = ToyStore::new();
    for kind in KINDS {
        run(&store, |tx| {
            let map = Map::<str, [u8]>::create(tx, kind)?;
            map.put(tx, "key", b"value")?;
            let again = Map::<str, [u8]>::open(tx, map.pointer())?;
            assert_eq!(again, map);
            assert_eq!(again.kind(), kind);
            assert_eq!(again.get(tx, "key")?.as_deref(), Some(&b"value"[..]));
            let error = Map::<u64, str>::open(tx, map.pointer()).unwrap_err().to_string();
            let holds = "has keys of str and values of [u8]";
            let asked = "cannot be opened with keys of u64 and values of str";
            assert!(error.contains(holds) && error.contains(asked), "{error}");
            let info = MapInfo::read(tx, map.pointer())?;
            assert_eq!((info.kind, info.type_names()), (kind, ("str".into(), "[u8]".into())));
            Ok(())
        });
    }
}

#[test]
fn what_is_no_map_is_not_opened() {
    let store = ToyStore::new();
    run(&store, |tx| {
        let number = tx.alloc(5_u64)?.raw();
        let open = |at: RawPtr| Map::<str, str>::open(tx, at.typed()).unwrap_err();
        assert!(matches!(open(number), TxError::WrongType { .. }));
        assert!(matches!(open(RawPtr::NULL), TxError::Dangling { .. }));
        let map = Map::<str, str>::create(tx, Kind::Hash)?;
        let header: Ptr<MapHeader> = map.pointer();
        tx.write_bytes(header.raw(), 0, &9_u32.to_le_bytes())?;
        assert!(matches!(open(header.raw()), TxError::Inconsistent(_)));
        assert!(!map.check(tx)?.is_sound());
        // One structure is not taken for the other.
        for kind in 2..=6_u32 {
            tx.write_bytes(header.raw(), 0, &kind.to_le_bytes())?;
            assert!(matches!(open(header.raw()), TxError::WrongType { .. }));
        }
        // Nor one tree for another.
        let header = Map::<str, str>::create(tx, Kind::BTree)?.pointer();
        for kind in [3, 4, 6_u32] {
            tx.write_bytes(header.raw(), 0, &kind.to_le_bytes())?;
            assert!(matches!(open(header.raw()), TxError::Inconsistent(_)));
        }
        Ok(())
    });
}

#[test]
fn bytes_that_are_no_value_of_the_type_are_an_error() {
    for kind in KINDS {
        let store = ToyStore::new();
        run(&store, |tx| {
            let map = Map::<str, str>::create(tx, kind)?;
            let raw = Map::<[u8], [u8]>::create(tx, kind)?;
            raw.put(tx, b"key", b"\xff")?;
            // The entries of one under the header of the other: a map damaged unnoticed.
            let mut root = [0; 8];
            tx.read_bytes(raw.pointer().raw(), 16, &mut root)?;
            tx.write_bytes(map.pointer().raw(), 16, &root)?;
            let map = Map::<str, str>::open(tx, map.pointer())?;
            assert!(matches!(map.get(tx, "key"), Err(TxError::Inconsistent(_))));
            assert!(matches!(map.for_each(tx, |_, _| Ok(())), Err(TxError::Inconsistent(_))));
            let findings = map.check(tx)?.findings;
            assert!(findings[0].contains("value that is none of its type"), "{findings:?}");
            Ok(())
        });
    }
}

#[test]
fn hash_maps_have_no_order_and_say_so() {
    let store = ToyStore::new();
    run(&store, |tx| {
        let map = Map::<str, u8>::create(tx, Kind::Hash)?;
        let error = map.scan(tx, .., 1, |_, _| Ok(())).unwrap_err().to_string();
        assert!(error.contains("create it as a B-tree"), "{error}");
        Ok(())
    });
}

#[test]
fn keys_have_a_longest_length() {
    for kind in KINDS {
        let store = ToyStore::new();
        run(&store, |tx| {
            let map = Map::<[u8], u8>::create(tx, kind)?;
            let key = vec![1; KEY_MAX + 1];
            map.put(tx, &key[1..], &5)?;
            assert_eq!(map.get(tx, &key[1..])?, Some(5));
            assert_eq!(map.get(tx, &key)?, None);
            assert!(matches!(map.put(tx, &key, &5), Err(TxError::TooLarge { .. })));
            Ok(())
        });
    }
}

#[test]
fn a_visitor_may_stop_a_walk() {
    for kind in KINDS {
        let store = ToyStore::new();
        run(&store, |tx| {
            let map = Map::<u32, u32>::create(tx, kind)?;
            (0..100).try_for_each(|n| map.put(tx, &n, &n).map(drop))?;
            let mut seen = 0;
            let stopped = map.for_each(tx, |_, _| {
                seen += 1;
                if seen == 10 { Err(TxError::cancel("enough")) } else { Ok(()) }
            });
            assert_eq!((stopped, seen), (Err(TxError::cancel("enough")), 10));
            Ok(())
        });
    }
}

#[test]
fn a_cursor_sees_what_stays_once_whatever_changes_between_its_steps() {
    for kind in KINDS {
        for round in 0..12 {
            let store = ToyStore::new();
            let map = run(&store, |tx| {
                let map = Map::<u32, u32>::create(tx, kind)?;
                (0..1500_u32).try_for_each(|n| map.put(tx, &n, &n).map(drop))?;
                Ok(map)
            });
            let mut cursor = map.cursor();
            let mut seen = Vec::new();
            while let Some((key, value)) = run(&store, |tx| cursor.next(tx)) {
                assert_eq!(key, value);
                seen.push(key);
                if seen.len() % 100 != 7 {
                    continue;
                }
                run(&store, |tx| {
                    for n in 0..200 {
                        // In even rounds buckets split, in odd ones they merge; either way the
                        // key the cursor is at may be gone.
                        let n = (n * 7 + key * 13) % 1500;
                        if round % 2 == 0 {
                            map.put(tx, &(n + 1500), &(n + 1500))?;
                        } else if n % 5 > 0 {
                            map.remove(tx, &n)?;
                        }
                    }
                    map.remove(tx, &key).map(drop)
                });
            }
            assert_eq!(run(&store, |tx| cursor.next(tx)), None);
            assert!(kind == Kind::Hash || seen.is_sorted());
            seen.sort_unstable();
            assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "a key is seen twice");
            let missed = (0..1500).step_by(5).find(|n| seen.binary_search(n).is_err());
            assert_eq!(missed, None, "{kind} round {round}");
            cursor.rewind();
            assert!(run(&store, |tx| cursor.clone().next(tx)).is_some());
        }
    }
}

#[test]
fn an_ordered_walk_goes_on_after_the_last_key() {
    for kind in KINDS.into_iter().filter(|kind| kind.is_ordered()) {
        let store = ToyStore::new();
        let map = run(&store, |tx| {
            let map = Map::<[u8], [u8]>::create(tx, kind)?;
            (0..2000_u32).try_for_each(|n| map.put(tx, &n.to_le_bytes(), b"").map(drop))?;
            Ok(map)
        });
        let (mut last, mut count) = (None::<Vec<u8>>, 0);
        loop {
            let start = last.clone();
            let start = start.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let visited = run(&store, |tx| {
                map.scan(tx, (start, Bound::Unbounded), 150, |key, _| {
                    assert!(last.as_deref().is_none_or(|last| last < key));
                    last = Some(key.to_vec());
                    Ok(())
                })
            });
            if visited == 0 {
                break;
            }
            count += visited;
        }
        assert_eq!(count, 2000);
    }
}

#[test]
fn entries_are_loaded_in_order_only() {
    for kind in KINDS {
        let store = ToyStore::new();
        run(&store, |tx| {
            let map = Map::<u64, u64>::create(tx, kind)?;
            let keys: Vec<u64> = (0..3000).map(|n| n * 3).collect();
            assert_eq!(map.load(tx, keys.iter().map(|n| (n, n)))?, 3000);
            assert_eq!(map.len(tx)?, 3000);
            assert_eq!(map.get(tx, &2997)?, Some(2997));
            let report = map.check(tx)?;
            assert_eq!(report.findings, Vec::<String>::new());
            for wrong in [[5, 4], [5, 5]] {
                let refused = map.load(tx, wrong.iter().map(|n| (n, n))).unwrap_err().to_string();
                assert!(refused.contains("rising order"), "{refused}");
            }
            Ok(())
        });
    }
}

#[test]
fn kinds_have_names() {
    for kind in KINDS {
        assert_eq!(Kind::from_name(kind.name()), Some(kind));
        assert_eq!(kind.to_string(), kind.name());
    }
    assert_eq!(Kind::from_name("heap"), None);
}
