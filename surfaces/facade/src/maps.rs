//! Maps with names: the catalogue, and a map that brings its own transactions.
//!
//! The catalogue is itself a map, from names to map headers. Its header is at the pool's anchor,
//! beside the root, so a program can have both a root object and named maps.

use core::fmt;
use core::ops::RangeBounds;

use holdfast_collections::{CheckReport, Key, Kind, Map, MapHeader, MapInfo, Value};
use holdfast_layout::{Ptr, RawPtr};
use holdfast_pmem::{Mapped, Medium};
use holdfast_txn::Transaction;

use crate::Tx;
use crate::error::{Error, ErrorKind, Result};
use crate::pool::Pool;

/// Longest name of a map, in bytes.
pub const NAME_MAX: usize = 255;

type Catalogue = Map<str, RawPtr>;

/// A map that has a name in a pool. Each operation is a transaction of its own; to do several in
/// one, use [`map`](Self::map) inside [`Pool::run`].
///
/// ```
/// use holdfast::Pool;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("index.pool");
/// let pool = Pool::options().size(16 << 20).create(&path)?;
/// let words = pool.map::<str, [u8]>("words")?;
/// words.put("tree", b"1,7,9")?;
/// assert_eq!(words.get("tree")?.as_deref(), Some(&b"1,7,9"[..]));
///
/// pool.run(|tx| {
///     words.map().put(tx, "leaf", b"2")?;
///     words.map().remove(tx, "tree")?;
///     Ok(())
/// })?;
/// assert_eq!(words.len()?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct NamedMap<K: Key + ?Sized, V: Value + ?Sized, M: Medium = Mapped> {
    pool: Pool<M>,
    map: Map<K, V>,
}

impl<M: Medium> Pool<M> {
    /// The map called `name`; created as a B-tree if there is none.
    ///
    /// # Errors
    /// The map was created with other types; the name is empty or too long; and as
    /// [`run`](Self::run).
    pub fn map<K: Key + ?Sized, V: Value + ?Sized>(&self, name: &str) -> Result<NamedMap<K, V, M>> {
        self.map_as(name, Kind::BTree)
    }

    /// The map called `name`; created as `kind` if there is none.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn map_as<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        name: &str,
        kind: Kind,
    ) -> Result<NamedMap<K, V, M>> {
        if name.is_empty() || name.len() > NAME_MAX {
            let text = format!("{} bytes are no name for a map", name.len());
            let error = Error::new(ErrorKind::Invalid, text)
                .with_remedy(format!("choose one of 1 to {NAME_MAX} bytes"));
            return Err(self.fail(error));
        }
        if let Some(map) = self.existing_map(name)? {
            return Ok(map);
        }
        let map = self.run(|tx| {
            let catalogue = match self.catalogue(tx)? {
                Some(catalogue) => catalogue,
                None => {
                    let new = Catalogue::create(tx, Kind::BTree)?;
                    tx.update(self.anchor(), |anchor| anchor.maps = new.pointer().raw())?;
                    new
                }
            };
            if let Some(header) = catalogue.get(tx, name)? {
                return Map::open(tx, header.typed());
            }
            let map = Map::create(tx, kind)?;
            catalogue.put(tx, name, &map.pointer().raw())?;
            Ok(map)
        })?;
        Ok(NamedMap { pool: self.clone(), map })
    }

    /// The map called `name`, if there is one.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn existing_map<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        name: &str,
    ) -> Result<Option<NamedMap<K, V, M>>> {
        let mut other = None;
        let map = self.run(|tx| match self.map_header(tx, name)? {
            Some(header) => {
                other = None;
                let info = MapInfo::read(tx, header)?;
                if (info.key, info.value) == (K::TYPE, V::TYPE) {
                    return Map::open(tx, header).map(Some);
                }
                other = Some(info);
                Ok(None)
            }
            None => Ok(None),
        })?;
        if let Some(info) = other {
            let (key, value) = info.type_names();
            let text = format!("the map `{name}` has keys of {key} and values of {value}");
            return Err(self.fail(Error::new(ErrorKind::WrongType, text)));
        }
        Ok(map.map(|map| NamedMap { pool: self.clone(), map }))
    }

    /// All maps of the pool that have names, in order.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn maps(&self) -> Result<Vec<(String, MapInfo)>> {
        self.run(|tx| {
            let mut found = Vec::new();
            if let Some(catalogue) = self.catalogue(tx)? {
                catalogue.for_each(tx, |name, header| {
                    found.push((name.to_owned(), MapInfo::read(tx, header.typed())?));
                    Ok(())
                })?;
            }
            Ok(found)
        })
    }

    /// Removes the map called `name` with everything in it; whether there was one. The map is
    /// emptied in one transaction, which has to fit the log and the free space.
    ///
    /// # Errors
    /// As [`existing_map`](Self::existing_map): the types have to be the map's.
    pub fn drop_map<K: Key + ?Sized, V: Value + ?Sized>(&self, name: &str) -> Result<bool> {
        let Some(named) = self.existing_map::<K, V>(name)? else { return Ok(false) };
        self.run(|tx| {
            let Some(catalogue) = self.catalogue(tx)? else { return Ok(false) };
            if !catalogue.remove(tx, name)? {
                return Ok(false);
            }
            named.map.destroy(tx)?;
            Ok(true)
        })
    }

    /// The header of the map called `name`, for tools and for use inside a transaction.
    ///
    /// # Errors
    /// Those of the transaction.
    pub fn map_header(
        &self,
        tx: &Tx<'_, M>,
        name: &str,
    ) -> holdfast_txn::Result<Option<Ptr<MapHeader>>> {
        let Some(catalogue) = self.catalogue(tx)? else { return Ok(None) };
        Ok(catalogue.get(tx, name)?.map(RawPtr::typed))
    }

    fn catalogue(&self, tx: &Tx<'_, M>) -> holdfast_txn::Result<Option<Catalogue>> {
        let maps = tx.read(self.anchor())?.maps;
        if maps.is_null() {
            return Ok(None);
        }
        Catalogue::open(tx, maps.typed()).map(Some)
    }

    /// Checks the structure of the catalogue: what it holds besides the maps themselves.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn check_catalogue(&self) -> Result<CheckReport> {
        self.run(|tx| match self.catalogue(tx)? {
            Some(catalogue) => catalogue.check(tx),
            None => Ok(CheckReport::default()),
        })
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> NamedMap<K, V, M> {
    /// The map itself, for use inside a transaction.
    #[must_use]
    pub fn map(&self) -> Map<K, V> {
        self.map
    }

    /// The pool it is in.
    #[must_use]
    pub fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// As [`Pool::run`].
    pub fn get(&self, key: &K) -> Result<Option<V::Owned>> {
        self.pool.run(|tx| self.map.get(tx, key))
    }

    /// Whether there is a value for `key`.
    ///
    /// # Errors
    /// As [`Pool::run`].
    pub fn contains(&self, key: &K) -> Result<bool> {
        self.pool.run(|tx| self.map.contains(tx, key))
    }

    /// Gives `key` a value; returns whether it had one.
    ///
    /// # Errors
    /// As [`Pool::run`].
    pub fn put(&self, key: &K, value: &V) -> Result<bool> {
        self.pool.run(|tx| self.map.put(tx, key, value))
    }

    /// Gives `key` a value; returns the one it had.
    ///
    /// # Errors
    /// As [`Pool::run`].
    pub fn replace(&self, key: &K, value: &V) -> Result<Option<V::Owned>> {
        self.pool.run(|tx| self.map.replace(tx, key, value))
    }

    /// Removes `key`; returns whether it was there.
    ///
    /// # Errors
    /// As [`Pool::run`].
    pub fn remove(&self, key: &K) -> Result<bool> {
        self.pool.run(|tx| self.map.remove(tx, key))
    }

    /// Number of entries; counted, not kept.
    ///
    /// # Errors
    /// As [`Pool::run`].
    pub fn len(&self) -> Result<u64> {
        self.pool.run(|tx| self.map.len(tx))
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    /// As [`Pool::run`].
    pub fn is_empty(&self) -> Result<bool> {
        self.pool.run(|tx| self.map.is_empty(tx))
    }

    /// Up to `limit` entries with keys in `range`, in order, all of one committed state.
    ///
    /// # Errors
    /// The map is a hash map and has no order; and as [`Pool::run`].
    pub fn scan(
        &self,
        range: impl RangeBounds<K> + Clone,
        limit: usize,
    ) -> Result<Vec<(K::Owned, V::Owned)>> {
        self.pool.run(|tx| {
            let mut found = Vec::new();
            self.map.scan(tx, range.clone(), limit, |key, value| {
                found.push((key.to_owned(), value.to_owned()));
                Ok(())
            })?;
            Ok(found)
        })
    }

    /// Checks the structure of the map.
    ///
    /// # Errors
    /// As [`Pool::run`].
    pub fn check(&self) -> Result<CheckReport> {
        self.pool.run(|tx| self.map.check(tx))
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> Clone for NamedMap<K, V, M> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), map: self.map }
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized, M: Medium> fmt::Debug for NamedMap<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedMap").field("map", &self.map).field("pool", &self.pool).finish()
    }
}
