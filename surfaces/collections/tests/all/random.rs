//! Maps against the standard library's under sequences of operations that chance makes up: keys
//! that begin alike, begin one another, end in zeros, are empty, as long as can be or longer;
//! batches that commit or abort; a cursor that stays while all else changes. On the toy store,
//! and a few on the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::support::{Bytes, KINDS};
use holdfast_collections::{Cursor, KEY_MAX, Kind, Map};
use holdfast_faultmem::{Config, FaultMedium};
use holdfast_object::{CreateOptions, OpenOptions, Pool};
use holdfast_pmem::{MediumKind, SystemClock};
use holdfast_txn::toy::ToyStore;
use holdfast_txn::{Isolation, Result, Store, Transaction, TxError};
use proptest::prelude::*;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Where keys come from: number `n` of each family is always the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Links, which begin with the same 25 bytes.
    Links,
    /// Beginnings of one key, the empty one among them.
    Starts,
    /// The same with zeros behind: zeros count, though they add nothing to a number.
    Zeros,
    /// Few letters, the least and the greatest byte among them.
    Letters,
    /// Eight bytes, all used.
    Numbers,
    /// Keys of the lengths where entries are read in pieces, and of those where keys end.
    Lengths,
}

/// What the zeros are behind of, and what has the beginnings.
const TEXT: &[u8] = b"a\0b/https://example.com/user/0000123?with=some&more";

impl Family {
    #[expect(clippy::big_endian_bytes, reason = "the first bytes of numbers in order are alike")]
    fn key(self, n: usize) -> Vec<u8> {
        match self {
            Self::Links => format!("https://example.com/user/{n:07}").into_bytes(),
            Self::Starts => TEXT[..n % (TEXT.len() + 1)].to_vec(),
            Self::Zeros => {
                let mut key = TEXT[..n / 10 % 12].to_vec();
                key.resize(key.len() + n % 10, 0);
                key
            }
            Self::Letters => {
                let letters = (0..n % 6).map(|i| [0, b'a', b'b', 255][n >> (2 * i) & 3]);
                letters.collect()
            }
            Self::Numbers => ((n as u64) << 13 | 5).to_be_bytes().to_vec(),
            Self::Lengths => {
                const LENGTHS: [usize; 16] = [
                    7, 8, 9, 500, 507, 508, 509, 512, 1020, 1021, 4096, 9000, 65_535, 65_536,
                    65_537, 70_000,
                ];
                let mut key = vec![b'x'; LENGTHS[n % LENGTHS.len()]];
                // Two of each length, which differ at their end.
                let last = key.len() - 1;
                key[last] = (n / LENGTHS.len() % 2) as u8;
                key
            }
        }
    }
}

/// One operation. Keys are a family and a number.
#[derive(Debug, Clone)]
enum Op {
    Put(Family, usize, u8, usize),
    Replace(Family, usize, u8, usize),
    Remove(Family, usize),
    Take(Family, usize),
    Get(Family, usize),
    /// From one key to another, with the kinds of the bounds, a limit, and back.
    Scan([(Family, usize, u8); 2], usize, bool),
    /// Puts keys next to each other in their family: makes buckets full.
    Fill(Family, usize, usize),
    /// Removes as many: makes them thin.
    Drain(Family, usize, usize),
    /// Loads a sorted part of a family.
    Load(Family, usize, usize),
    Clear,
    /// Steps of the cursor.
    Step(usize),
    Rewind,
}

fn family(long: bool) -> impl Strategy<Value = Family> {
    prop_oneof![
        4 => Just(Family::Links),
        2 => Just(Family::Starts),
        2 => Just(Family::Zeros),
        2 => Just(Family::Letters),
        3 => Just(Family::Numbers),
        u32::from(long) => Just(Family::Lengths),
    ]
}

fn op(long: bool) -> impl Strategy<Value = Op> {
    let one = || (family(long), 0..400_usize);
    let put = move || (one(), any::<u8>(), prop_oneof![8 => 0..10_usize, 1 => 490..520_usize]);
    let bound = move || (one(), 0..3_u8).prop_map(|((f, n), kind)| (f, n, kind));
    // Enough keys next to each other to fill buckets and empty them.
    let many =
        prop_oneof![4 => Just(Family::Links), 4 => Just(Family::Numbers), 1 => family(false)];
    let part = move || (many.clone(), 0..400_usize, 1..250_usize);
    prop_oneof![
        6 => put().prop_map(|((f, n), v, len)| Op::Put(f, n, v, len)),
        3 => put().prop_map(|((f, n), v, len)| Op::Replace(f, n, v, len)),
        4 => one().prop_map(|(f, n)| Op::Remove(f, n)),
        2 => one().prop_map(|(f, n)| Op::Take(f, n)),
        4 => one().prop_map(|(f, n)| Op::Get(f, n)),
        4 => ([bound(), bound()], 1..90_usize, any::<bool>())
            .prop_map(|(ends, limit, back)| Op::Scan(ends, limit, back)),
        5 => part().prop_map(|(f, n, count)| Op::Fill(f, n, count)),
        5 => part().prop_map(|(f, n, count)| Op::Drain(f, n, count)),
        1 => part().prop_map(|(f, n, count)| Op::Load(f, n, count)),
        1 => prop_oneof![3 => Just(Op::Rewind), 1 => Just(Op::Clear)],
        4 => (1..60_usize).prop_map(Op::Step),
    ]
}

/// A cursor and what it must have shown when it comes to the end.
#[derive(Clone)]
struct Walker {
    cursor: Cursor<[u8], [u8]>,
    /// Keys that were there when it began and ever since.
    stayed: BTreeSet<Vec<u8>>,
    seen: BTreeSet<Vec<u8>>,
}

/// What a map should hold.
#[derive(Clone)]
struct World {
    map: Bytes,
    model: Model,
    walker: Walker,
}

impl World {
    fn new(map: Bytes) -> Self {
        let cursor = map.cursor();
        let walker = Walker { cursor, stayed: BTreeSet::new(), seen: BTreeSet::new() };
        Self { map, model: Model::new(), walker }
    }

    fn put<T: Transaction>(&mut self, tx: &T, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        if key.len() > KEY_MAX {
            return self.refuses(tx, &key);
        }
        let had = self.map.put(tx, &key, &value)?;
        assert_eq!(had, self.model.insert(key, value).is_some());
        Ok(())
    }

    fn refuses<T: Transaction>(&self, tx: &T, key: &[u8]) -> Result<()> {
        let refusal = TxError::TooLarge { wanted: key.len() as u64, limit: KEY_MAX as u64 };
        assert_eq!(self.map.put(tx, key, b""), Err(refusal));
        assert!(!self.map.remove(tx, key)?);
        Ok(())
    }

    fn remove<T: Transaction>(&mut self, tx: &T, key: &[u8]) -> Result<()> {
        self.walker.stayed.remove(key);
        assert_eq!(self.map.remove(tx, key)?, self.model.remove(key).is_some());
        Ok(())
    }

    fn apply<T: Transaction>(&mut self, tx: &T, op: &Op) -> Result<()> {
        match *op {
            Op::Put(f, n, byte, len) => self.put(tx, f.key(n), vec![byte; len]),
            Op::Replace(f, n, byte, len) => {
                let (key, value) = (f.key(n), vec![byte; len]);
                if key.len() > KEY_MAX {
                    return self.refuses(tx, &key);
                }
                let old = self.map.replace(tx, &key, &value)?;
                assert_eq!(old, self.model.insert(key, value));
                Ok(())
            }
            Op::Remove(f, n) => self.remove(tx, &f.key(n)),
            Op::Take(f, n) => {
                let key = f.key(n);
                self.walker.stayed.remove(&key);
                assert_eq!(self.map.take(tx, &key)?, self.model.remove(&key));
                Ok(())
            }
            Op::Get(f, n) => {
                let key = f.key(n);
                assert_eq!(self.map.get(tx, &key)?.as_ref(), self.model.get(&key));
                Ok(())
            }
            Op::Scan(ends, limit, back) => self.scan(tx, ends, limit, back),
            Op::Fill(f, from, count) => {
                (from..from + count).try_for_each(|n| self.put(tx, f.key(n), vec![n as u8; n % 11]))
            }
            Op::Drain(f, from, count) => {
                (from..from + count).try_for_each(|n| self.remove(tx, &f.key(n)))
            }
            Op::Load(f, from, count) => self.load(tx, f, from, count),
            Op::Clear => {
                self.map.clear(tx)?;
                self.model.clear();
                self.walker.stayed.clear();
                assert!(self.map.is_empty(tx)?);
                Ok(())
            }
            Op::Step(count) => (0..count).try_for_each(|_| self.step(tx)),
            Op::Rewind => {
                self.walker.cursor.rewind();
                self.walker.seen.clear();
                self.walker.stayed = self.model.keys().cloned().collect();
                Ok(())
            }
        }
    }

    fn load<T: Transaction>(&mut self, tx: &T, f: Family, from: usize, count: usize) -> Result<()> {
        let keys: BTreeSet<Vec<u8>> = (from..from + count).map(|n| f.key(n)).collect();
        let value: &[u8] = b"loaded";
        let loaded = self.map.load(tx, keys.iter().map(|key| (&key[..], value)))?;
        assert_eq!(loaded, keys.len() as u64);
        self.model.extend(keys.into_iter().map(|key| (key, value.to_vec())));
        Ok(())
    }

    fn step<T: Transaction>(&mut self, tx: &T) -> Result<()> {
        let Walker { cursor, stayed, seen } = &mut self.walker;
        match cursor.next(tx)? {
            Some((key, value)) => {
                assert_eq!(self.model.get(&key), Some(&value), "a cursor shows what is there");
                if self.map.kind().is_ordered() {
                    assert!(seen.last().is_none_or(|last| *last < key), "in order");
                }
                assert!(seen.insert(key), "a cursor shows a key twice");
            }
            None => assert!(stayed.is_subset(seen), "a cursor missed what was there all the time"),
        }
        Ok(())
    }

    fn scan<T: Transaction>(
        &self,
        tx: &T,
        ends: [(Family, usize, u8); 2],
        limit: usize,
        back: bool,
    ) -> Result<()> {
        let [from, to] = ends.map(|(f, n, kind)| match kind {
            0 => Bound::Included(f.key(n)),
            1 => Bound::Excluded(f.key(n)),
            _ => Bound::Unbounded,
        });
        let inside = |key: &Vec<u8>| {
            let from = match &from {
                Bound::Included(from) => key >= from,
                Bound::Excluded(from) => key > from,
                Bound::Unbounded => true,
            };
            let to = match &to {
                Bound::Included(to) => key <= to,
                Bound::Excluded(to) => key < to,
                Bound::Unbounded => true,
            };
            from && to
        };
        let mut expected: Vec<_> = self.model.iter().filter(|(key, _)| inside(key)).collect();
        if back {
            expected.reverse();
        }
        expected.truncate(limit);
        let mut found = Vec::new();
        let visit = |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            Ok(())
        };
        let range = (from.as_ref().map(|k| &k[..]), to.as_ref().map(|k| &k[..]));
        let count = match back {
            true => self.map.scan_back(tx, range, limit, visit),
            false => self.map.scan(tx, range, limit, visit),
        };
        if self.map.kind() == Kind::Hash {
            assert!(matches!(count, Err(TxError::Cancelled(_))), "{count:?}");
            return Ok(());
        }
        assert_eq!(count?, expected.len());
        assert!(found.iter().map(|(k, v)| (k, v)).eq(expected), "{from:?}..{to:?}");
        Ok(())
    }

    /// The number of objects of the map, which is sound and holds what it should.
    fn check<T: Transaction>(&self, tx: &T) -> Result<usize> {
        let report = self.map.check(tx)?;
        assert_eq!(report.findings, Vec::<String>::new());
        assert_eq!(report.entries, self.model.len() as u64);
        let mut found = Model::new();
        self.map.for_each(tx, |key, value| {
            assert_eq!(found.insert(key.to_vec(), value.to_vec()), None, "visited twice");
            Ok(())
        })?;
        assert_eq!(found, self.model);
        let pair = |(k, v): (&Vec<u8>, &Vec<u8>)| (k.clone(), v.clone());
        if self.map.kind().is_ordered() {
            assert_eq!(self.map.first(tx)?, self.model.first_key_value().map(pair));
            assert_eq!(self.map.last(tx)?, self.model.last_key_value().map(pair));
        }
        Ok(report.objects.len())
    }
}

/// Batches of operations, each of which commits or aborts.
fn batches(long: bool, most: usize) -> impl Strategy<Value = Vec<(Vec<Op>, bool)>> {
    let batch = (prop::collection::vec(op(long), 1..12), prop::bool::weighted(0.85));
    prop::collection::vec(batch, 1..most)
}

fn play<S: Store>(store: &S, kind: Kind, batches: &[(Vec<Op>, bool)], live: impl Fn() -> usize)
where
    S::Error: std::fmt::Debug,
{
    let run = Isolation::Serializable;
    let empty = live();
    let map = store.run(run, |tx| Map::create_seeded(tx, kind, [3, 4])).expect("committed");
    let mut world = World::new(map);
    for (n, (ops, commits)) in batches.iter().enumerate() {
        let mut after = None;
        let end = store.run(run, |tx| {
            let mut next = world.clone();
            ops.iter().try_for_each(|op| next.apply(tx, op))?;
            after = Some(next);
            if *commits { Ok(()) } else { Err(TxError::cancel("aborts")) }
        });
        assert_eq!(end.is_ok(), *commits, "{kind} batch {n}: {end:?}");
        if *commits {
            world = after.expect("the closure ran");
        }
        if n % 3 == 2 || n + 1 == batches.len() {
            let objects = store.run(run, |tx| world.check(tx)).expect("committed");
            assert_eq!(live(), empty + objects, "{kind} batch {n}: objects leaked");
        }
    }
    store.run(run, |tx| map.destroy(tx)).expect("committed");
    assert_eq!(live(), empty, "{kind}: objects left behind");
}

fn pool() -> Pool<FaultMedium> {
    let size = 8 << 20;
    let config = Config { reserve: 8 << 20, ..Config::default() };
    let medium = FaultMedium::new(size, MediumKind::Shm, &config);
    let create = CreateOptions { chunk: 32_768, frame: 4096, ..CreateOptions::tiny(size) };
    let create = CreateOptions { log: 12 * 32_768, ..create };
    let open = OpenOptions { version_bits: 10, ..OpenOptions::default() };
    Pool::create(medium, &create, open, Arc::new(SystemClock::new())).expect("created")
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn maps_do_what_standard_maps_do_whatever_comes(batches in batches(true, 24)) {
        for kind in KINDS {
            let store = ToyStore::new();
            play(&store, kind, &batches, || store.live().len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 8,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn so_they_do_on_the_engine(batches in batches(false, 10)) {
        for kind in KINDS {
            let pool = pool();
            play(&pool, kind, &batches, || pool.space().objects as usize);
        }
    }
}
