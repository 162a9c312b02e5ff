//! What operations cost: how many reads a lookup takes, how little an insertion changes, and that
//! growing never writes much at once. Counted by a transaction that wraps another.

use crate::support::counting::Counting;
use crate::support::{Bytes, KINDS, SHAPES, Shape, run};
use holdfast_collections::{Kind, Map};
use holdfast_txn::toy::ToyStore;
use holdfast_txn::{Result, Transaction};

/// What operations of one sort cost together.
#[derive(Debug, Default)]
struct Sum {
    reads: u64,
    changes: u64,
    changed: u64,
    fresh: u64,
    freed: u64,
}

impl Sum {
    fn add<T>(&mut self, counting: &Counting<'_, T>) {
        self.reads += counting.reads.get();
        self.changes += counting.changes.get().0;
        self.changed += counting.changes.get().1;
        self.fresh += counting.fresh.get().0;
        self.freed += counting.freed.get();
    }

    /// Prints the averages of `count` operations, as the guide to the maps has them.
    fn print(&self, what: &str, count: u64) {
        let each = [self.reads, self.changes, self.fresh, self.freed, self.changed];
        let [reads, changes, fresh, freed, bytes] = each.map(|sum| sum as f64 / count as f64);
        println!(
            "{what}: {reads:.1} read, {changes:.2} changed, {fresh:.2} allocated, \
             {freed:.2} freed, {bytes:.0} bytes changed"
        );
    }
}

#[test]
fn an_insertion_or_removal_changes_little_however_large_the_map() {
    const COUNT: u64 = 20_000;
    for kind in KINDS {
        let store = ToyStore::new();
        run(&store, |tx| {
            let map: Bytes = Map::create(tx, kind)?;
            // A red-black tree is mended up to its root, by few bytes each; a B-tree splits at
            // every level at the very worst.
            let most = if kind == Kind::RbTree { (40, 3) } else { (10, 5) };
            let mut sums = [Sum::default(), Sum::default()];
            for (sum, puts) in sums.iter_mut().zip([true, false]) {
                for n in 0..COUNT {
                    let counting = Counting::new(tx);
                    let key = Shape::Words.key(if puts { n } else { n * 7919 % COUNT });
                    if puts {
                        map.put(&counting, &key, &[1; 16])?;
                    } else {
                        assert!(map.remove(&counting, &key)?);
                    }
                    let (changes, fresh) = (counting.changes.get(), counting.fresh.get());
                    assert!(changes.0 <= most.0 && fresh.0 <= most.1, "{changes:?} {fresh:?}");
                    assert!(changes.1 + fresh.1 < 8 << 10, "{changes:?} {fresh:?}");
                    sum.add(&counting);
                }
                // Entry and bucket, and now and then a split.
                let objects = sum.changes + sum.fresh + sum.freed;
                assert!(objects < COUNT * 10 / 3, "{kind}: {objects}");
                // Wide nodes of a radix tree are written as a whole when they lose a child.
                let average = sum.changed / COUNT;
                assert!((16..150).contains(&average), "{kind}: {average} bytes on average");
                sum.print(&format!("{kind} {}", if puts { "insert" } else { "remove" }), COUNT);
            }
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
                let most = match kind {
                    // Header, directory, line of a bucket, entry; a long entry takes two reads,
                    // and one key in ten is not in its home line.
                    Kind::Hash => 5.0,
                    // Header, nodes, line, entry.
                    Kind::RTree => 12.0,
                    Kind::CTree => 15.0,
                    // Where keys start the same, entries of separators are read until it is known
                    // on both sides in how many bytes; where they do in hundreds, always.
                    Kind::BTree if shape == Shape::Long => 20.0,
                    Kind::BTree if shape == Shape::Names => 16.0,
                    Kind::BTree => 12.0,
                    Kind::RbTree if shape == Shape::Long => 25.0,
                    Kind::RbTree if shape == Shape::Names => 20.0,
                    Kind::RbTree => 14.0,
                    // Here the heights count, too, which follow from where nodes happen to lie.
                    Kind::SkipList if shape == Shape::Long => 48.0,
                    Kind::SkipList if shape == Shape::Names => 28.0,
                    Kind::SkipList => 18.0,
                };
                let reads = counting.reads.get() as f64 / 10_000.0;
                println!("{kind} get, {shape:?}: {reads:.1} read");
                assert!(reads <= most, "{kind} {shape:?}: {reads} reads per lookup");
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

#[test]
fn keys_take_little_more_than_their_items() {
    const COUNT: u64 = 20_000;
    for kind in KINDS {
        for shape in [Shape::Words, Shape::Ascending, Shape::Names] {
            let store = ToyStore::new();
            run(&store, |tx| {
                let map: Bytes = Map::create(tx, kind)?;
                (0..COUNT).try_for_each(|n| map.put(tx, &shape.key(n), b"").map(drop))?;
                let objects = map.check(tx)?.objects;
                let lens = objects.iter().map(|object| tx.len_of(*object));
                let bytes = lens.sum::<Result<u64>>()? as f64 / COUNT as f64;
                println!("{kind} {shape:?}: {bytes:.1} bytes a key");
                // Names have an entry of 19 bytes each.
                let entry = if shape == Shape::Names { 19.0 } else { 0.0 };
                // Buckets that were split are two thirds full on average; where keys come in order,
                // some are left full and others, that are split between symbols, half full.
                let halves = matches!(kind, Kind::CTree | Kind::RTree) && shape != Shape::Words;
                let most = if halves { 34.0 } else { 29.0 };
                assert!(bytes - entry <= most, "{kind} {shape:?}: {bytes} bytes a key");
                Ok(())
            });
        }
    }
}
