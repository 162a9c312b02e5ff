//! Operations on maps, against a model: the kind by the head, one operation a step.

use std::ops::Bound;

use holdfast_collections::{Kind, Map};
use holdfast_oracle::map_model::MapModel;
use holdfast_txn::toy::{ToyStore, ToyTx};
use holdfast_txn::{Isolation, Result, Store, TxError};
use holdfast_workloads::Rng;

use crate::bed::STEPS;
use crate::lie::lie;
use crate::script::{Script, Step};

const ALL: [Kind; 6] =
    [Kind::Hash, Kind::BTree, Kind::RbTree, Kind::CTree, Kind::SkipList, Kind::RTree];
/// Structures.
pub(super) const KINDS: u8 = ALL.len() as u8;
/// Operations.
pub(super) const VERBS: u8 = 12;
/// The transaction is cancelled after the operation.
const CANCELLED: u8 = 1;
/// The operation is done for each of several keys.
const MANY: u8 = 2;

type Bytes = Map<[u8], [u8]>;

/// Target `maps`.
pub(super) fn run(input: &[u8]) {
    let script = Script::read(input);
    let kind = ALL[usize::from(script.head[0]) % ALL.len()];
    let seed = [script.head[1].into(), 0];
    let store = ToyStore::new();
    let map = within(&store, |tx| Bytes::create_seeded(tx, kind, seed)).expect("memory has room");
    let mut model = MapModel::new();
    for step in script.steps.iter().take(4 * STEPS) {
        let mut next = model.clone();
        let cancelled = step.has(CANCELLED);
        let done = within(&store, |tx| {
            next = model.clone();
            for part in 0..if step.has(MANY) { 12 } else { 1 } {
                one(&map, tx, &mut next, step, part)?;
            }
            if lie("cancelled", cancelled, |_| false) {
                return Err(TxError::cancel("on purpose"));
            }
            Ok(())
        });
        match done {
            Ok(()) => {
                assert!(!cancelled, "{kind:?}, {step:?}: was to be cancelled");
                model = next;
            }
            Err(TxError::Cancelled(_)) if cancelled => {}
            Err(error) => panic!("{kind:?}, {step:?}: {error}"),
        }
    }
    within(&store, |tx| {
        whole(&map, tx, &model)?;
        if lie("destroyed", true, |_| false) { map.destroy(tx) } else { Ok(()) }
    })
    .unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    assert_eq!(store.live(), [0_u64; 0], "destroyed, and something is left");
}

fn within<R>(store: &ToyStore, body: impl FnMut(&ToyTx) -> Result<R>) -> Result<R> {
    store.run(Isolation::Serializable, body)
}

/// Keys that crowd: of few bytes, with long common beginnings, of all lengths.
fn key(step: &Step, part: u64) -> Vec<u8> {
    let number = u64::from(step.place) + part * 7;
    let bytes = number.to_le_bytes();
    match number % 5 {
        0 => bytes[..1 + (number / 5 % 2) as usize].to_vec(),
        1 => bytes.to_vec(),
        2 => [&vec![b'k'; (number / 5 % 70) as usize], &bytes[..1]].concat(),
        3 => [b"a common beginning, longer than a word ", &bytes[1..2]].concat(),
        _ => vec![bytes[1] % 3; (number / 5 % 300) as usize],
    }
}

fn value(step: &Step, part: u64) -> Vec<u8> {
    let number = step.value.wrapping_add(part);
    let len = match number % 4 {
        0 => number >> 2 & 15,
        1 => number >> 2 & 63,
        2 => number >> 2 & 1023,
        _ => number >> 2 & 7,
    };
    let mut bytes = vec![0; len as usize];
    Rng::new(number).fill(&mut bytes);
    bytes
}

/// One operation, on both.
fn one(map: &Bytes, tx: &ToyTx, model: &mut MapModel, step: &Step, part: u64) -> Result<()> {
    let (key, value) = (&key(step, part)[..], &value(step, part)[..]);
    match step.verb % VERBS {
        0 | 1 => {
            let lost = lie("put lost", false, |_| true);
            let was = if lost { map.contains(tx, key)? } else { map.put(tx, key, value)? };
            assert_eq!(lie("put", was, not), model.put(key, value).is_some(), "put");
        }
        2 => {
            let was = lie("replace", map.replace(tx, key, value)?, other);
            assert_eq!(was, model.put(key, value), "replace");
        }
        3 | 4 => {
            let lost = lie("remove lost", false, |_| true);
            let was = if lost { map.contains(tx, key)? } else { map.remove(tx, key)? };
            assert_eq!(lie("remove", was, not), model.delete(key).is_some(), "remove");
        }
        5 => assert_eq!(lie("take", map.take(tx, key)?, other), model.delete(key), "take"),
        6 => {
            assert_eq!(lie("get", map.get(tx, key)?, other).as_deref(), model.get(key), "get");
            let there = lie("contains", map.contains(tx, key)?, not);
            assert_eq!(there, model.get(key).is_some(), "contains");
        }
        7 | 8 => scan(map, tx, model, step, key)?,
        9 => walk(map, tx, model, step)?,
        10 => {
            map.clear(tx)?;
            *model = MapModel::new();
        }
        _ => whole(map, tx, model)?,
    }
    Ok(())
}

fn not(told: bool) -> bool {
    !told
}

/// A value that is not the one that was told.
fn other(told: Option<Vec<u8>>) -> Option<Vec<u8>> {
    told.is_none().then(Vec::new)
}

/// Entries between two keys, either way.
fn scan(map: &Bytes, tx: &ToyTx, model: &MapModel, step: &Step, key: &[u8]) -> Result<()> {
    if map.kind() == Kind::Hash {
        let refused = map.scan(tx, .., 1, |_, _| Ok(()));
        let refused = lie("hash order", matches!(refused, Err(TxError::Cancelled(_))), not);
        assert!(refused, "a hash map has no order");
        return Ok(());
    }
    let other = self::key(&Step { place: step.value as u16, ..*step }, 0);
    let bound = |by: u8, key| match by % 3 {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    };
    let (from, to) = (bound(step.flags >> 4, key), bound(step.flags >> 6, &other[..]));
    let limit = (step.value >> 16 & 31) as usize;
    let mut wanted: Vec<(Vec<u8>, Vec<u8>)> =
        model.scan(from, to).map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    let mut found = Vec::new();
    let mut note = |key: &[u8], value: &[u8]| {
        found.push((key.to_vec(), value.to_vec()));
        Ok(())
    };
    let count = if step.verb.is_multiple_of(2) {
        wanted.reverse();
        map.scan_back(tx, (from, to), limit, &mut note)?
    } else {
        map.scan(tx, (from, to), limit, &mut note)?
    };
    wanted.truncate(limit);
    let count = lie("scan count", count, |count| count + 1);
    let found = lie("scan", found, |mut found| {
        found.reverse();
        found
    });
    assert_eq!((count, found), (wanted.len(), wanted), "{from:?} to {to:?}");
    Ok(())
}

/// A cursor, while entries it has passed are removed.
fn walk(map: &Bytes, tx: &ToyTx, model: &mut MapModel, step: &Step) -> Result<()> {
    let mut cursor = map.cursor();
    let mut seen = 0;
    let all = model.len();
    while let Some((key, value)) = cursor.next(tx)? {
        let value = lie("cursor", value, |value| [&value[..], b"x"].concat());
        assert_eq!(model.get(&key), Some(&value[..]), "what the cursor shows");
        seen += lie("cursor skips", 1, |_| 0);
        if step.value >> (seen % 64) & 1 == 1 {
            assert!(map.remove(tx, &key)?, "the cursor was there");
            model.delete(&key);
        }
    }
    assert_eq!(seen, all, "the cursor came by each once");
    Ok(())
}

/// Everything is there, in order, and the structure is sound.
fn whole(map: &Bytes, tx: &ToyTx, model: &MapModel) -> Result<()> {
    let mut pairs = Vec::new();
    map.for_each(tx, |key, value| {
        pairs.push((key.to_vec(), value.to_vec()));
        Ok(())
    })?;
    if map.kind() == Kind::Hash {
        pairs.sort();
    } else {
        let end = |pair: Option<&(Vec<u8>, Vec<u8>)>| pair.cloned();
        let (first, last) = (map.first(tx)?, map.last(tx)?);
        assert_eq!(lie("first", first, |_| Some(Default::default())), end(pairs.first()), "first");
        assert_eq!(lie("last", last, |_| Some(Default::default())), end(pairs.last()), "last");
    }
    assert_eq!(model.difference(pairs), None);
    assert_eq!(lie("len", map.len(tx)?, |len| len + 1), model.len() as u64, "len");
    assert_eq!(lie("empty", map.is_empty(tx)?, not), model.is_empty(), "is_empty");
    let found = map.check(tx)?;
    assert!(lie("sound", found.is_sound(), not), "unsound: {:?}", found.findings);
    assert_eq!(
        lie("entries", found.entries, |count| count + 1),
        model.len() as u64,
        "entries of a check"
    );
    Ok(())
}
