//! Typed maps: a kind of structure, a type of keys, a type of values, and a header that holds
//! whoever opens the map to them.

use core::fmt;
use core::marker::PhantomData;
use core::ops::RangeBounds;

use holdfast_layout::{Ptr, TypeNumber};
use holdfast_txn::{Result, Transaction, TxError};

use crate::codec::{Key, Value, name_of};
use crate::format::MapHeader;
use crate::report::{CheckReport, Checker};
use crate::structures::{BTree, CritBitTree, HashTable, RadixTree, RbTree, SkipList};

/// Seed of hash maps that are created without one.
pub(crate) const SEED: [u64; 2] = [0x686f_6c64_6661_7374, 0x6d61_7020_7365_6564];

/// Which structure a map is kept in; the documentation of the crate says which to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// A [`HashTable`]: fewest reads, no order.
    Hash,
    /// A [`BTree`]: in order of keys, with range scans.
    #[default]
    BTree,
    /// An [`RbTree`]: in order of keys.
    RbTree,
    /// A [`CritBitTree`]: in order of keys.
    CTree,
    /// A [`SkipList`]: in order of keys.
    SkipList,
    /// A [`RadixTree`]: in order of keys.
    RTree,
}

/// What a map is, without knowing its types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapInfo {
    /// Its structure.
    pub kind: Kind,
    /// Number of the type of its keys, [`Key::TYPE`].
    pub key: TypeNumber,
    /// Number of the type of its values, [`Value::TYPE`].
    pub value: TypeNumber,
}

/// A durable map from `K` to `V`. The value is only pointers: copy it freely, keep it anywhere.
///
/// Errors of all functions are those of the transaction, `TooLarge` for keys of more than
/// [`KEY_MAX`](crate::KEY_MAX) bytes, and `Inconsistent` for a structure that contradicts itself
/// or holds bytes that are no key or value of the types. A change that fails half way, such as one
/// for which the pool has no room, takes the transaction with it: a closure may go on after the
/// error, but nothing of it is committed.
///
/// ```
/// use holdfast_collections::{Kind, Map};
/// use holdfast_txn::{Isolation, Store, toy::ToyStore};
///
/// let store = ToyStore::new();
/// let ages = store.run(Isolation::Serializable, |tx| {
///     let ages = Map::<str, u32>::create(tx, Kind::BTree)?;
///     ages.put(tx, "ada", &36)?;
///     ages.put(tx, "alan", &41)?;
///     Ok(ages)
/// })?;
/// let alan = store.run(Isolation::Serializable, |tx| ages.get(tx, "alan"))?;
/// assert_eq!(alan, Some(41));
/// # Ok::<(), holdfast_txn::TxError>(())
/// ```
pub struct Map<K: Key + ?Sized, V: Value + ?Sized> {
    header: Ptr<MapHeader>,
    root: Root,
    of: PhantomData<fn(&K, &V)>,
}

/// The structure that holds the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Root {
    Hash(HashTable),
    BTree(BTree),
    RbTree(RbTree),
    CTree(CritBitTree),
    SkipList(SkipList),
    RTree(RadixTree),
}

/// Calls the function of the same name on whichever structure it is.
macro_rules! on_root {
    ($root:expr, $of:ident => $call:expr) => {
        match $root {
            Root::Hash($of) => $call,
            Root::BTree($of) => $call,
            Root::RbTree($of) => $call,
            Root::CTree($of) => $call,
            Root::SkipList($of) => $call,
            Root::RTree($of) => $call,
        }
    };
}

/// Calls a function that only structures in order of keys have; else the second expression.
macro_rules! on_ordered {
    ($root:expr, $of:ident => $call:expr, $hash:expr) => {
        match $root {
            Root::Hash(_) => $hash,
            Root::BTree($of) => $call,
            Root::RbTree($of) => $call,
            Root::CTree($of) => $call,
            Root::SkipList($of) => $call,
            Root::RTree($of) => $call,
        }
    };
}

impl<K: Key + ?Sized, V: Value + ?Sized> Map<K, V> {
    /// Creates an empty map. A hash map made by this has a fixed seed; see
    /// [`create_seeded`](Self::create_seeded).
    ///
    /// # Errors
    /// See the type.
    pub fn create<T: Transaction>(tx: &T, kind: Kind) -> Result<Self> {
        Self::create_seeded(tx, kind, SEED)
    }

    /// Creates an empty map whose hash function, if it has one, is keyed by `seed`: random where
    /// keys come from people you do not trust, who could choose keys that collide.
    ///
    /// # Errors
    /// See the type.
    pub fn create_seeded<T: Transaction>(tx: &T, kind: Kind, seed: [u64; 2]) -> Result<Self> {
        tx.whole(|| {
            let root = match kind {
                Kind::Hash => Root::Hash(HashTable::create(tx, seed)?),
                Kind::BTree => Root::BTree(BTree::create(tx)?),
                Kind::RbTree => Root::RbTree(RbTree::create(tx)?),
                Kind::CTree => Root::CTree(CritBitTree::create(tx)?),
                Kind::SkipList => Root::SkipList(SkipList::create(tx)?),
                Kind::RTree => Root::RTree(RadixTree::create(tx)?),
            };
            let header = tx.alloc(MapHeader {
                kind: kind.code(),
                key: K::TYPE.0,
                value: V::TYPE.0,
                reserved: 0,
                root: on_root!(root, of => of.pointer().raw()),
            })?;
            Ok(Self { header, root, of: PhantomData })
        })
    }

    /// Opens the map whose header is at `header`.
    ///
    /// # Errors
    /// `Cancelled`, with a text that says what the map holds, if it was created with other types;
    /// `WrongType` if there is no map at all; and see the type.
    pub fn open<T: Transaction>(tx: &T, header: Ptr<MapHeader>) -> Result<Self> {
        let content = tx.read(header)?;
        let info = content.info()?;
        if (info.key, info.value) != (K::TYPE, V::TYPE) {
            return Err(TxError::cancel(format!(
                "the map at {header:?} has keys of {} and values of {}; it cannot be opened with \
                 keys of {} and values of {}",
                name_of(info.key),
                name_of(info.value),
                name_of(K::TYPE),
                name_of(V::TYPE),
            )));
        }
        Ok(Self { header, root: content.root_of(tx, info)?, of: PhantomData })
    }

    /// Where the header is: what to store to find the map again.
    #[must_use]
    pub fn pointer(&self) -> Ptr<MapHeader> {
        self.header
    }

    /// Which structure it is kept in.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.root {
            Root::Hash(_) => Kind::Hash,
            Root::BTree(_) => Kind::BTree,
            Root::RbTree(_) => Kind::RbTree,
            Root::CTree(_) => Kind::CTree,
            Root::SkipList(_) => Kind::SkipList,
            Root::RTree(_) => Kind::RTree,
        }
    }

    /// Lends the value of `key` to `use_it`; `None` if there is no such key. Allocates nothing
    /// for entries of up to 512 bytes.
    ///
    /// # Errors
    /// See the type.
    pub fn get_with<T: Transaction, R>(
        &self,
        tx: &T,
        key: &K,
        use_it: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>> {
        let key = key.bytes();
        let lend = |value: &[u8]| V::lend(value, use_it).ok_or_else(not_a_value);
        on_root!(self.root, of => of.get_with(tx, key.as_ref(), lend))?.transpose()
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// See the type.
    pub fn get<T: Transaction>(&self, tx: &T, key: &K) -> Result<Option<V::Owned>> {
        self.get_with(tx, key, V::to_owned)
    }

    /// Whether there is a value for `key`.
    ///
    /// # Errors
    /// See the type.
    pub fn contains<T: Transaction>(&self, tx: &T, key: &K) -> Result<bool> {
        on_root!(self.root, of => of.contains(tx, key.bytes().as_ref()))
    }

    /// Gives `key` a value; returns whether it had one.
    ///
    /// # Errors
    /// See the type.
    pub fn put<T: Transaction>(&self, tx: &T, key: &K, value: &V) -> Result<bool> {
        on_root!(self.root, of => of.put(tx, key.bytes().as_ref(), value.bytes()))
    }

    /// Gives `key` a value; returns the one it had.
    ///
    /// # Errors
    /// See the type.
    pub fn replace<T: Transaction>(&self, tx: &T, key: &K, value: &V) -> Result<Option<V::Owned>> {
        let old = on_root!(self.root, of => of.replace(tx, key.bytes().as_ref(), value.bytes()))?;
        old.map(owned::<V>).transpose()
    }

    /// Removes `key`; returns whether it was there.
    ///
    /// # Errors
    /// See the type.
    pub fn remove<T: Transaction>(&self, tx: &T, key: &K) -> Result<bool> {
        on_root!(self.root, of => of.remove(tx, key.bytes().as_ref()))
    }

    /// Removes `key`; returns the value it had.
    ///
    /// # Errors
    /// See the type.
    pub fn take<T: Transaction>(&self, tx: &T, key: &K) -> Result<Option<V::Owned>> {
        let old = on_root!(self.root, of => of.take(tx, key.bytes().as_ref()))?;
        old.map(owned::<V>).transpose()
    }

    /// Number of entries; counted, not kept: all nodes are read.
    ///
    /// # Errors
    /// See the type.
    pub fn len<T: Transaction>(&self, tx: &T) -> Result<u64> {
        on_root!(self.root, of => of.len(tx))
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    /// See the type.
    pub fn is_empty<T: Transaction>(&self, tx: &T) -> Result<bool> {
        on_root!(self.root, of => of.is_empty(tx))
    }

    /// Calls `visit` with the key and value of every entry; in order of keys if the kind has one.
    /// `visit` must not change the map; a [`Cursor`] goes through a map while it changes.
    ///
    /// # Errors
    /// `Cancelled` if `visit` changed what it was being shown; see the type; and whatever `visit`
    /// returns.
    pub fn for_each<T: Transaction>(
        &self,
        tx: &T,
        mut visit: impl FnMut(&K, &V) -> Result<()>,
    ) -> Result<()> {
        on_root!(self.root, of => of.for_each(tx, |key, value| lend(key, value, &mut visit)))
    }

    /// Visits up to `limit` entries with keys in `range`, in order of keys; returns how many. To
    /// go on, start after the last key seen. `visit` must not change the map; a [`Cursor`] goes
    /// through a map while it changes.
    ///
    /// # Errors
    /// `Cancelled` if the map is a hash map, which has no order, or if `visit` changed what it was
    /// being shown; see the type; and whatever `visit` returns.
    pub fn scan<T: Transaction>(
        &self,
        tx: &T,
        range: impl RangeBounds<K>,
        limit: usize,
        visit: impl FnMut(&K, &V) -> Result<()>,
    ) -> Result<usize> {
        self.scan_either(tx, range, limit, false, visit)
    }

    /// As [`scan`](Self::scan), from the end of the range back.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn scan_back<T: Transaction>(
        &self,
        tx: &T,
        range: impl RangeBounds<K>,
        limit: usize,
        visit: impl FnMut(&K, &V) -> Result<()>,
    ) -> Result<usize> {
        self.scan_either(tx, range, limit, true, visit)
    }

    fn scan_either<T: Transaction>(
        &self,
        tx: &T,
        range: impl RangeBounds<K>,
        limit: usize,
        back: bool,
        mut visit: impl FnMut(&K, &V) -> Result<()>,
    ) -> Result<usize> {
        let keys = (range.start_bound().map(K::bytes), range.end_bound().map(K::bytes));
        let range = (keys.0.as_ref().map(AsRef::as_ref), keys.1.as_ref().map(AsRef::as_ref));
        let visit = |key: &[u8], value: &[u8]| lend(key, value, &mut visit);
        let none = || self.no_order();
        if back {
            on_ordered!(self.root, of => of.scan_back::<T>(tx, range, limit, visit), none())
        } else {
            on_ordered!(self.root, of => of.scan::<T>(tx, range, limit, visit), none())
        }
    }

    /// Calls `visit` with the entries that come next after `after`, whether that is there or not,
    /// or from the first one on, until it returns false; whether it did. In order of keys; a hash
    /// map is gone through in the order of hashes, which is the same as long as the map is. Parts
    /// of a map are read best this way, whatever its kind is: each goes on after the last key of
    /// the one before. As in [`for_each`](Self::for_each), `visit` must not change the map.
    ///
    /// # Errors
    /// See the type, and whatever `visit` returns.
    pub fn visit_after<T: Transaction>(
        &self,
        tx: &T,
        after: Option<&K>,
        mut visit: impl FnMut(&K, &V) -> Result<bool>,
    ) -> Result<bool> {
        let after = after.map(K::bytes);
        let after = after.as_ref().map(AsRef::as_ref);
        let mut enough = false;
        let mut step = |key: &K, value: &V| {
            enough = !visit(key, value)?;
            // An error is how a walk is ended early; it goes no further than this.
            if enough { Err(TxError::cancel("enough")) } else { Ok(()) }
        };
        let each = |key: &[u8], value: &[u8]| lend(key, value, &mut step);
        let done = on_root!(self.root, of => of.for_each_after(tx, after, each));
        if enough { Ok(true) } else { done.map(|()| false) }
    }

    /// Up to `limit` keys that come next after `after`, whether that is there or not, or the first
    /// ones; in the order of [`visit_after`](Self::visit_after). No value is read, so keys of up to
    /// eight bytes are told whatever became of their values.
    ///
    /// # Errors
    /// See the type.
    pub fn keys_after<T: Transaction>(
        &self,
        tx: &T,
        after: Option<&K>,
        limit: usize,
    ) -> Result<Vec<K::Owned>> {
        let after = after.map(K::bytes);
        let after = after.as_ref().map(AsRef::as_ref);
        let found = on_root!(self.root, of => of.keys_after(tx, after, limit))?;
        let owned = |key: &Vec<u8>| K::lend(key, K::to_owned).ok_or_else(not_a_key);
        found.iter().map(owned).collect()
    }

    /// The first entry.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn first<T: Transaction>(&self, tx: &T) -> Result<Option<(K::Owned, V::Owned)>> {
        on_ordered!(self.root, of => of.first(tx), self.no_order())?
            .map(owned_pair::<K, V>)
            .transpose()
    }

    /// The last entry.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub fn last<T: Transaction>(&self, tx: &T) -> Result<Option<(K::Owned, V::Owned)>> {
        on_ordered!(self.root, of => of.last(tx), self.no_order())?
            .map(owned_pair::<K, V>)
            .transpose()
    }

    fn no_order<R>(&self) -> Result<R> {
        Err(TxError::cancel(format!(
            "the map at {:?} is a hash map and has no order; create it as a B-tree",
            self.header
        )))
    }

    /// Something to go through the map with that no change to it disturbs.
    #[must_use]
    pub fn cursor(&self) -> Cursor<K, V> {
        Cursor { map: *self, last: None, over: false }
    }

    /// Puts entries from an iterator whose keys rise; returns how many. Ordered maps are filled
    /// best this way. All of it is one transaction, so large loads are better done in parts.
    ///
    /// # Errors
    /// `Cancelled` if a key does not rise; see the type. Entries before it were put.
    pub fn load<'e, T: Transaction>(
        &self,
        tx: &T,
        entries: impl IntoIterator<Item = (&'e K, &'e V)>,
    ) -> Result<u64>
    where
        K: 'e,
        V: 'e,
    {
        let entries = entries.into_iter().map(|(key, value)| (key.bytes(), value.bytes()));
        on_root!(self.root, of => of.load(tx, entries))
    }

    /// Removes all entries.
    ///
    /// # Errors
    /// See the type.
    pub fn clear<T: Transaction>(&self, tx: &T) -> Result<()> {
        on_root!(self.root, of => of.clear(tx))
    }

    /// Frees the map with everything in it. Its pointer dangles afterwards.
    ///
    /// # Errors
    /// See the type.
    pub fn destroy<T: Transaction>(self, tx: &T) -> Result<()> {
        tx.whole(|| {
            on_root!(self.root, of => of.destroy(tx))?;
            tx.free(self.header.raw())
        })
    }

    /// Checks the structure, and that every key and value is one of its type.
    ///
    /// # Errors
    /// Only those that may pass when the transaction runs again.
    pub fn check<T: Transaction>(&self, tx: &T) -> Result<CheckReport> {
        let mut checker = Checker::default();
        checker.meet(self.header.raw(), "map header");
        let read = MapInfo::read(tx, self.header);
        if checker.readable(self.header.raw(), read)?.is_none() {
            return Ok(checker.finish());
        }
        let mut report = on_root!(self.root, of => of.check(tx))?;
        if report.is_sound() {
            let read = self.for_each(tx, |_, _| Ok(()));
            checker.readable(self.header.raw(), read)?;
        }
        let own = checker.finish();
        report.objects.splice(..0, own.objects);
        report.findings.extend(own.findings);
        Ok(report)
    }
}

impl MapInfo {
    /// What the map is whose header is at `header`, for tools that do not know its types.
    ///
    /// # Errors
    /// `WrongType` if there is no map, and those of the transaction.
    pub fn read<T: Transaction>(tx: &T, header: Ptr<MapHeader>) -> Result<Self> {
        tx.read(header)?.info()
    }

    /// The map whose header is at `header`, its keys and values as bytes whatever their types are:
    /// for tools that walk and check maps they know nothing about. What is written through it may
    /// be no key or value of the map's types.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn open_untyped<T: Transaction>(tx: &T, header: Ptr<MapHeader>) -> Result<Map<[u8], [u8]>> {
        let content = tx.read(header)?;
        let info = content.info()?;
        Ok(Map { header, root: content.root_of(tx, info)?, of: PhantomData })
    }

    /// Names of the types of keys and values, for people; types this crate does not know are
    /// named by their number.
    #[must_use]
    pub fn type_names(&self) -> (String, String) {
        (name_of(self.key), name_of(self.value))
    }
}

impl MapHeader {
    fn root_of<T: Transaction>(&self, tx: &T, info: MapInfo) -> Result<Root> {
        let at = self.root;
        Ok(match info.kind {
            Kind::Hash => Root::Hash(HashTable::open(tx, at.typed())?),
            Kind::BTree => Root::BTree(BTree::open(tx, at.typed())?),
            Kind::RbTree => Root::RbTree(RbTree::open(tx, at.typed())?),
            Kind::CTree => Root::CTree(CritBitTree::open(tx, at.typed())?),
            Kind::SkipList => Root::SkipList(SkipList::open(tx, at.typed())?),
            Kind::RTree => Root::RTree(RadixTree::open(tx, at.typed())?),
        })
    }

    fn info(&self) -> Result<MapInfo> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.code() == self.kind);
        let kind =
            kind.ok_or(TxError::Inconsistent("a map is of a kind this build does not know"))?;
        Ok(MapInfo { kind, key: TypeNumber(self.key), value: TypeNumber(self.value) })
    }
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Hash, Self::BTree, Self::RbTree, Self::CTree, Self::SkipList, Self::RTree];

    /// The number stored.
    const fn code(self) -> u32 {
        match self {
            Self::Hash => 1,
            Self::BTree => 2,
            Self::RbTree => 3,
            Self::CTree => 4,
            Self::SkipList => 5,
            Self::RTree => 6,
        }
    }

    /// What it is called: `hashmap`, `btree`, `rbtree`, `ctree`, `skiplist` or `rtree`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hashmap",
            Self::BTree => "btree",
            Self::RbTree => "rbtree",
            Self::CTree => "ctree",
            Self::SkipList => "skiplist",
            Self::RTree => "rtree",
        }
    }

    /// The kind of that name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether maps of this kind are in order of keys.
    #[must_use]
    pub const fn is_ordered(self) -> bool {
        !matches!(self, Self::Hash)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A way through a map, one entry at a time, in one transaction or many. It keeps the last key
/// only, and looks it up again for each step: whatever changes between steps, it goes on behind
/// that key, and sees every entry that is there all the time exactly once.
pub struct Cursor<K: Key + ?Sized, V: Value + ?Sized> {
    map: Map<K, V>,
    last: Option<Vec<u8>>,
    over: bool,
}

impl<K: Key + ?Sized, V: Value + ?Sized> Cursor<K, V> {
    /// The next entry; `None` once there is no more. Begins anew after [`rewind`](Self::rewind).
    ///
    /// # Errors
    /// Those of the map.
    pub fn next<T: Transaction>(&mut self, tx: &T) -> Result<Option<(K::Owned, V::Owned)>> {
        if self.over {
            return Ok(None);
        }
        let after = self.last.as_deref();
        let Some(pair) = on_root!(self.map.root, of => of.next_after(tx, after))? else {
            self.over = true;
            return Ok(None);
        };
        self.last = Some(pair.0.clone());
        owned_pair::<K, V>(pair).map(Some)
    }

    /// Goes back to before the first entry.
    pub fn rewind(&mut self) {
        (self.last, self.over) = (None, false);
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> Clone for Cursor<K, V> {
    fn clone(&self) -> Self {
        Self { map: self.map, last: self.last.clone(), over: self.over }
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> fmt::Debug for Cursor<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("map", &self.map).field("over", &self.over).finish()
    }
}

fn owned_pair<K: Key + ?Sized, V: Value + ?Sized>(
    (key, value): (Vec<u8>, Vec<u8>),
) -> Result<(K::Owned, V::Owned)> {
    let key = K::lend(&key, K::to_owned).ok_or_else(not_a_key)?;
    Ok((key, owned::<V>(value)?))
}

fn not_a_key() -> TxError {
    TxError::Inconsistent("a map has a key that is none of its type")
}

fn lend<K: Key + ?Sized, V: Value + ?Sized>(
    key: &[u8],
    value: &[u8],
    visit: &mut impl FnMut(&K, &V) -> Result<()>,
) -> Result<()> {
    let visited = K::lend(key, |key| V::lend(value, |value| visit(key, value)));
    visited.ok_or_else(not_a_key)?.unwrap_or_else(|| Err(not_a_value()))
}

fn owned<V: Value + ?Sized>(bytes: Vec<u8>) -> Result<V::Owned> {
    V::lend(&bytes, V::to_owned).ok_or_else(not_a_value)
}

fn not_a_value() -> TxError {
    TxError::Inconsistent("a map has a value that is none of its type")
}

impl<K: Key + ?Sized, V: Value + ?Sized> Clone for Map<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> Copy for Map<K, V> {}

impl<K: Key + ?Sized, V: Value + ?Sized> PartialEq for Map<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.header == other.header
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> Eq for Map<K, V> {}

impl<K: Key + ?Sized, V: Value + ?Sized> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("header", &self.header).field("kind", &self.kind()).finish()
    }
}
