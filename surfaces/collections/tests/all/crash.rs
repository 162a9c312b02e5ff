//! Maps on the real engine, cut off at every drain of every kind of change to their structure:
//! whatever had arrived, what recovery leaves is sound, leaks nothing, and is what was there
//! before the change or after it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex};

use crate::support::counting::Counting;
use crate::support::pool::{Change, Model, TestPool, apply, apply_to_model, content, create, open};
use crate::support::{Bytes, KINDS, Rng, Shape};
use holdfast_collections::{Kind, Map};
use holdfast_faultmem::{Budget, CrashPoint};
use holdfast_object::{Error, VerifyReads};
use holdfast_txn::TxError;

/// What an operation does to which objects.
type Signature = Vec<(char, &'static str)>;

/// Of the changes of one signature, so many are cut off.
const OF_EACH: usize = 2;
/// Images of each drain.
const IMAGES: usize = 6;

/// What one change would do: tried and taken back.
fn signature(pool: &TestPool, map: Bytes, (key, value): &Change) -> Signature {
    let mut shape = Signature::new();
    let end: Result<(), Error> = pool.run(|tx| {
        let counting = Counting::new(tx);
        match value {
            Some(value) => map.put(&counting, key, value)?,
            None => map.remove(&counting, key)?,
        };
        shape = counting.shape();
        Err(TxError::cancel("only a try"))
    });
    assert!(matches!(end, Err(Error::Tx(TxError::Cancelled(_)))), "{end:?}");
    shape
}

/// Makes a change, and opens what crashes at its drains may leave; the number of images.
fn cut_off(pool: &TestPool, map: Bytes, model: &mut Model, change: Change, seed: u64) -> u64 {
    let before = model.clone();
    let points: Arc<Mutex<Vec<CrashPoint>>> = Arc::default();
    let sink = Arc::clone(&points);
    pool.medium().on_barrier(Box::new(move |_, _, point| sink.lock().unwrap().push(point.clone())));
    apply(pool, map, &change);
    pool.medium().clear_on_barrier();
    apply_to_model(model, change);
    let mut images = 0;
    for point in points.lock().unwrap().iter() {
        let budget = Budget { exhaustive: 1, singles: IMAGES, pairs: 1, samples: IMAGES, seed };
        for image in point.images(&budget).take(IMAGES) {
            images += 1;
            let again = open(image, VerifyReads::default());
            let found = content(&again, map);
            assert!(found == before || found == *model, "{}: neither", map.kind());
        }
    }
    images
}

/// Puts all keys in a random order and removes them in another; cuts off the first changes of each
/// signature. Answers the signatures, and how many images there were.
fn rise_and_fall(kind: Kind, keys: &[Vec<u8>], value: &[u8]) -> (BTreeMap<Signature, usize>, u64) {
    let pool = create(6 << 20, VerifyReads::default());
    let map: Bytes = pool.run(|tx| Map::create_seeded(tx, kind, [0, 0])).unwrap();
    let (mut model, mut rng) = (Model::new(), Rng::new(kind as u64));
    let (mut met, mut images) = (BTreeMap::<Signature, usize>::new(), 0);
    for puts in [true, false] {
        let mut order: Vec<&Vec<u8>> = keys.iter().collect();
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i as u64 + 1) as usize);
        }
        for key in order {
            let change = (key.clone(), puts.then(|| value.to_vec()));
            let signature = signature(&pool, map, &change);
            let times = met.entry(signature).or_default();
            *times += 1;
            if *times <= OF_EACH {
                images += cut_off(&pool, map, &mut model, change, rng.next_u64());
            } else {
                assert_eq!(apply(&pool, map, &change), !puts);
                apply_to_model(&mut model, change);
            }
        }
        assert_eq!(content(&pool, map), model, "{kind}");
    }
    assert!(model.is_empty());
    (met, images)
}

/// Keys whose hashes, by the seed of zeros, start with the same eight bits: those that make
/// directories double soon.
fn near_in_hash(count: usize) -> Vec<Vec<u8>> {
    let near = |key: &Vec<u8>| {
        let mut hasher = DefaultHasher::new();
        hasher.write(key);
        hasher.finish() >> 56 == 0
    };
    (0_u64..).map(|n| n.to_le_bytes().to_vec()).filter(near).take(count).collect()
}

/// Whether something that happened to a structure was among the changes.
fn has(met: &BTreeMap<Signature, usize>, parts: &[(char, &'static str)]) -> bool {
    met.keys().any(|signature| parts.iter().all(|part| signature.contains(part)))
}

#[test]
fn every_kind_of_change_to_a_structure_is_all_or_nothing() {
    for kind in KINDS {
        let keys = match kind {
            Kind::Hash => near_in_hash(1300),
            _ => (0..2700).map(|n| Shape::Words.key(n)).collect(),
        };
        let (met, images) = rise_and_fall(kind, &keys, &[1; 3]);
        let parts: &[&[(char, &'static str)]] = match kind {
            Kind::Hash => &[
                // A directory comes, doubles, goes.
                &[('+', "HashDirectory"), ('.', "")],
                &[('+', "HashDirectory"), ('-', "")],
                &[('~', "Bucket"), ('-', "")],
            ],
            Kind::BTree => {
                &[&[('+', "BTreeNode"), ('~', "BTreeNode")], &[('-', ""), ('~', "BTreeNode")]]
            }
            Kind::RbTree => &[&[('+', "RbNode"), ('~', "RbNode")], &[('-', ""), ('~', "RbNode")]],
            Kind::CTree => &[&[('+', "CritNode")], &[('-', ""), ('~', "CritNode")]],
            Kind::SkipList => &[&[('+', "SkipTall")], &[('+', "SkipShort")], &[('-', "")]],
            Kind::RTree => &[
                // A node grows through all sizes, and shrinks.
                &[('+', "Radix16"), ('-', "")],
                &[('+', "Radix48"), ('-', "")],
                &[('+', "Radix256"), ('-', "")],
                &[('+', "Radix4"), ('-', "")],
            ],
        };
        for part in parts {
            assert!(has(&met, part), "{kind}: {part:?} not among {:?}", met.keys());
        }
        assert!(images > 60, "{kind}: {images}");
    }
}

#[test]
fn so_it_is_with_separators_and_entries_that_are_objects() {
    for kind in KINDS {
        let keys: Vec<_> =
            (0..500_u32).map(|n| format!("https://example.com/user/{n:07}").into_bytes()).collect();
        let (met, images) = rise_and_fall(kind, &keys, b"");
        assert!(has(&met, &[('+', "Bucket"), ('+', "Entry")]), "{kind}");
        assert!(images > 40, "{kind}: {images}");
    }
}
