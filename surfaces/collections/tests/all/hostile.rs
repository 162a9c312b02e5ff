//! Maps whose bytes were changed behind their back, in thousands of ways, with all sums taken to
//! agree: every function ends, without a panic; and what the check calls sound and complete still
//! has every key.

use std::collections::BTreeSet;

use crate::support::{Bytes, KINDS, Rng, Shape, Tx, run};
use holdfast_collections::{Kind, Map};
use holdfast_layout::RawPtr;
use holdfast_txn::toy::ToyStore;
use holdfast_txn::{Isolation, Result, Store, Transaction, TxError};

const ROUNDS: u64 = 1000;
const ENTRIES: u64 = 400;

/// Bytes of the only objects here that are no structure but entries: sums, not pointers, have to
/// find damage to keys and values.
const ENTRY_LEN: u64 = 4 + 15 + 16;

struct Target {
    store: ToyStore,
    map: Bytes,
    objects: Vec<RawPtr>,
    structure: Vec<RawPtr>,
    keys: BTreeSet<Vec<u8>>,
}

fn target(kind: Kind) -> Target {
    let store = ToyStore::new();
    let map: Bytes = run(&store, |tx| Map::create(tx, kind));
    let keys: BTreeSet<_> = (0..ENTRIES).map(|n| Shape::Names.key(n)).collect();
    run(&store, |tx| keys.iter().try_for_each(|key| map.put(tx, key, &[1; 16]).map(drop)));
    let objects = run(&store, |tx| map.check(tx)).objects;
    let structure = run(&store, |tx| {
        let mut list = objects.clone();
        list.retain(|object| tx.len_of(*object) != Ok(ENTRY_LEN));
        Ok(list)
    });
    assert!(objects.len() - structure.len() >= ENTRIES as usize);
    Target { store, map, objects, structure, keys }
}

/// Damages one object: some bytes, a whole field in one of the ways fields are tested with, or a
/// pointer to another object of the map.
fn damage(tx: &Tx, rng: &mut Rng, object: RawPtr, objects: &[RawPtr]) -> Result<()> {
    let len = tx.len_of(object)?;
    let width = [1, 2, 4, 8][rng.below(4) as usize];
    let at = rng.below(len / width) * width;
    let mut bytes = [0; 8];
    let field = &mut bytes[..width as usize];
    tx.read_bytes(object, at, field)?;
    match rng.below(9) {
        0 => field.fill(0),
        1 => field.fill(0xff),
        2 => field[width as usize - 1] ^= 0x80,
        3 => field[width as usize / 2] ^= 0x10,
        4 => field[0] ^= 1,
        5 => field[0] = field[0].wrapping_add(1),
        6 => field[0] = field[0].wrapping_sub(1),
        7 => field.iter_mut().for_each(|b| *b = rng.next_u64() as u8),
        _ => {
            let other = objects[rng.below(objects.len() as u64) as usize];
            let word = other.word() | rng.below(2);
            return tx.write_bytes(object, rng.below(len / 8) * 8, &word.to_le_bytes());
        }
    }
    tx.write_bytes(object, at, field)
}

/// Uses every function; only that each returns is asked for.
fn use_all(tx: &Tx, rng: &mut Rng, map: Bytes) {
    for _ in 0..6 {
        let key = Shape::Names.key(rng.below(ENTRIES + 100));
        let _ = map.get(tx, &key);
        let _ = map.put(tx, &key, &vec![2; rng.below(30) as usize]);
        let _ = map.take(tx, &Shape::Names.key(rng.below(ENTRIES)));
    }
    let _ = map.len(tx);
    let _ = map.is_empty(tx);
    let _ = map.for_each(tx, |_, _| Ok(()));
    let _ = map.scan_back(tx, .., 50, |_, _| Ok(()));
    let _ = map.first(tx);
    let _ = map.last(tx);
    let mut cursor = map.cursor();
    for _ in 0..5 {
        let _ = cursor.next(tx);
    }
    let from = Shape::Names.key(rng.below(ENTRIES));
    let range = (std::ops::Bound::Excluded(&from[..]), std::ops::Bound::Unbounded);
    let _ = map.scan(tx, range, 50, |_, _| Ok(()));
    let _ = map.check(tx);
    let _ = map.clear(tx);
    let _ = map.destroy(tx);
}

/// Every key that is there, or the error of the walk.
fn keys_of(tx: &Tx, map: Bytes) -> Result<BTreeSet<Vec<u8>>> {
    let mut keys = BTreeSet::new();
    map.for_each(tx, |key, _| {
        keys.insert(key.to_vec());
        Ok(())
    })?;
    Ok(keys)
}

#[test]
fn damaged_maps_give_errors_and_nothing_worse() {
    for kind in KINDS {
        let target = target(kind);
        let live: BTreeSet<u64> = target.store.live().into_iter().collect();
        let mut rng = Rng::new(11 + kind as u64);
        let mut found = 0;
        for round in 0..ROUNDS {
            let ended = target.store.run(Isolation::Serializable, |tx| {
                // Every other round harms the structure only, once, to see what the check says.
                let gentle = round % 2 == 0;
                let victims = if gentle { &target.structure } else { &target.objects };
                for _ in 0..if gentle { 1 } else { 1 + rng.below(5) } {
                    let victim = victims[rng.below(victims.len() as u64) as usize];
                    damage(tx, &mut rng, victim, &target.objects)?;
                }
                let report = target.map.check(tx).expect("no error may pass with time");
                let reached: BTreeSet<u64> =
                    report.objects.iter().map(|object| object.offset()).collect();
                if !report.is_sound() {
                    found += 1;
                } else if gentle && reached == live {
                    // A place that was free may hold a short key now: as with values, that is for
                    // sums to find.
                    let found = keys_of(tx, target.map)?;
                    assert!(found.is_superset(&target.keys), "{kind}: sound, yet keys are gone");
                    for key in &target.keys {
                        assert!(target.map.contains(tx, key)?, "sound, yet not found");
                    }
                }
                use_all(tx, &mut rng, target.map);
                Err::<(), _>(TxError::cancel("undo the damage"))
            });
            assert_eq!(ended, Err(TxError::cancel("undo the damage")));
        }
        assert!(found > ROUNDS / 4, "{kind:?}: only {found} of {ROUNDS} damages were found");
        assert!(run(&target.store, |tx| target.map.check(tx)).is_sound());
    }
}

#[test]
fn a_lost_object_is_a_finding_with_its_name() {
    for kind in KINDS {
        let target = target(kind);
        for victim in &target.objects[1..] {
            let report = target.store.run(Isolation::Serializable, |tx| {
                tx.free(*victim)?;
                let report = target.map.check(tx)?;
                let named = report.findings.iter().any(|f| f.contains(&victim.to_string()));
                assert!(named, "{victim} is not named in {:?}", report.findings);
                assert!(!report.objects.contains(victim), "what is gone belongs to nothing");
                Err::<(), _>(TxError::cancel("undo"))
            });
            assert_eq!(report, Err(TxError::cancel("undo")));
        }
    }
}
