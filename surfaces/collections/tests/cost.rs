//! What operations cost: how many reads a lookup takes, how little an insertion changes, and that
//! growing never writes much at once. Counted by a transaction that wraps another.

mod support;

use holdfast_collections::{Kind, Map};
use holdfast_txn::toy::ToyStore;
use support::counting::Counting;
use support::{Bytes, KINDS, SHAPES, Shape, run};

#[test]
fn an_insertion_changes_little_however_large_the_map() {
    for kind in KINDS {
        let store = ToyStore::new();
        run(&store, |tx| {
            let map: Bytes = Map::create(tx, kind)?;
            let (mut changed, mut objects) = (0, 0);
            for n in 0..20_000 {
                let counting = Counting::new(tx);
                map.put(&counting, &Shape::Words.key(n), &[1; 16])?;
                let (changes, fresh) = (counting.changes.get(), counting.fresh.get());
                // A red-black tree is mended up to its root, by few bytes each; a B-tree splits at
                // every level at the very worst.
                let most = if kind == Kind::RbTree { (40, 3) } else { (10, 5) };
                assert!(changes.0 <= most.0 && fresh.0 <= most.1, "{changes:?} {fresh:?}");
                assert!(changes.1 + fresh.1 < 8 << 10, "{changes:?} {fresh:?}");
                changed += changes.1;
                objects += changes.0 + fresh.0;
            }
            // Entry and bucket, and now and then a split.
            assert!(objects < 20_000 * 10 / 3, "{kind}: {objects}");
            let average = changed / 20_000;
            assert!((30..150).contains(&average), "{kind}: {average} bytes changed on average");
            Ok(())
        });
    }
}

#[test]
fn a_lookup_takes_few_reads_per_level_and_one_for_the_entry() {
    for kind in KINDS {
        for shape in SHAPES {
            let store = ToyStore::new();
            run(&store, |tx| {
                let map: Bytes = Map::create(tx, kind)?;
                for n in 0..10_000 {
                    map.put(tx, &shape.key(n), &[1; 16])?;
                }
                let counting = Counting::new(tx);
                for n in 0..10_000 {
                    let found = map.get_with(&counting, &shape.key(n), <[u8]>::len)?;
                    assert_eq!(found, Some(16));
                }
                let long = matches!(shape, Shape::Long | Shape::Names);
                let most = match kind {
                    // Header, directory, line of a bucket, entry; a long entry takes two reads,
                    // and one key in ten is not in its home line.
                    Kind::Hash => 5.0,
                    // Header, nodes, line, entry.
                    Kind::RTree => 12.0,
                    Kind::CTree => 15.0,
                    // Where long keys start the same, separators have to be read as well.
                    Kind::BTree if long => 30.0,
                    Kind::BTree => 10.0,
                    Kind::RbTree if long => 30.0,
                    Kind::RbTree => 13.0,
                    Kind::SkipList if long => 60.0,
                    Kind::SkipList => 18.0,
                };
                let reads = counting.reads.get() as f64 / 10_000.0;
                assert!(reads <= most, "{kind:?} {shape:?}: {reads} reads per lookup");
                assert_eq!((counting.changes.get(), counting.fresh.get()), ((0, 0), (0, 0)));
                Ok(())
            });
        }
    }
}

#[test]
fn a_value_of_the_same_length_is_all_that_changes() {
    for kind in KINDS {
        let store = ToyStore::new();
        run(&store, |tx| {
            let map: Bytes = Map::create(tx, kind)?;
            for n in 0..1000 {
                map.put(tx, &Shape::Names.key(n), &[1; 16])?;
            }
            let counting = Counting::new(tx);
            assert!(map.put(&counting, &Shape::Names.key(500), &[2; 16])?);
            assert_eq!((counting.changes.get(), counting.fresh.get()), ((1, 16), (0, 0)));
            Ok(())
        });
    }
}
