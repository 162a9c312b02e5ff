//! `map get`, `put`, `del`, `scan` and `list`.

use core::ops::Bound;

use holdfast::collections::KEY_MAX;
use holdfast::{Error, ErrorKind, Kind, MapInfo, NamedMap, Pool, TxError, TypeNumber};
use serde_json::{Value, json};

use std::path::Path;

use crate::args::{KeyArgs, KindArg, PutArgs, ScanArgs, TypesArg};
use crate::commands::transfer::Pair;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, json_bytes, show_bytes, table};
use crate::session;

impl From<KindArg> for Kind {
    fn from(kind: KindArg) -> Self {
        match kind {
            KindArg::Btree => Self::BTree,
            KindArg::Hashmap => Self::Hash,
            KindArg::Rbtree => Self::RbTree,
            KindArg::Ctree => Self::CTree,
            KindArg::Skiplist => Self::SkipList,
            KindArg::Rtree => Self::RTree,
        }
    }
}

/// A map whose types this tool can write: texts or bytes.
#[derive(Debug)]
pub(crate) enum AnyMap {
    TextToBytes(NamedMap<str, [u8]>),
    TextToText(NamedMap<str, str>),
    BytesToBytes(NamedMap<[u8], [u8]>),
}

/// Calls the same on whichever map it is, with the key and the value as it wants them.
macro_rules! on_map {
    ($any:expr, $map:ident, $key:ident = $text:expr => $call:expr) => {
        match $any {
            AnyMap::TextToBytes($map) => {
                let $key: &str = $text;
                $call
            }
            AnyMap::TextToText($map) => {
                let $key: &str = $text;
                $call
            }
            AnyMap::BytesToBytes($map) => {
                let $key: &[u8] = $text.as_bytes();
                $call
            }
        }
    };
}

/// How much of a map is read in one transaction, and held in memory: no more entries, and none
/// after these bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch {
    pub(crate) pairs: usize,
    pub(crate) bytes: usize,
}

impl AnyMap {
    /// Finds the map called `name`.
    pub(crate) fn find(pool: &Pool, name: &str) -> Outcome<Option<Self>> {
        let maps = pool.maps()?;
        let Some((_, info)) = maps.iter().find(|(known, _)| known == name) else {
            return Ok(None);
        };
        let types = (info.key, info.value);
        let text = <str as holdfast::Key>::TYPE;
        let bytes = TypeNumber::BYTES;
        if types == (text, bytes) {
            Ok(pool.existing_map(name)?.map(Self::TextToBytes))
        } else if types == (text, text) {
            Ok(pool.existing_map(name)?.map(Self::TextToText))
        } else if types == (bytes, bytes) {
            Ok(pool.existing_map(name)?.map(Self::BytesToBytes))
        } else {
            let (key, value) = info.type_names();
            let cause = format!("the map `{name}` has keys of {key} and values of {value}");
            let remedy = "use the program it belongs to; this command knows texts and bytes";
            Err(located(pool, Error::new(ErrorKind::WrongType, cause).with_remedy(remedy)))
        }
    }

    /// Finds it, or says that there is none and which there are.
    pub(crate) fn expect(pool: &Pool, name: &str) -> Outcome<Self> {
        if let Some(map) = Self::find(pool, name)? {
            return Ok(map);
        }
        let names: Vec<String> = pool.maps()?.into_iter().map(|(name, _)| name).collect();
        let remedy = match names.as_slice() {
            [] => "the pool has no maps; `holdfast map put` makes one".to_owned(),
            names => format!("the pool has: {}", names.join(", ")),
        };
        let error = Error::new(ErrorKind::NotFound, format!("no map is called `{name}`"));
        Err(located(pool, error.with_remedy(remedy)))
    }

    /// Finds it, or makes one from texts to bytes.
    pub(crate) fn find_or_make(pool: &Pool, name: &str, kind: Kind) -> Outcome<Self> {
        match Self::find(pool, name)? {
            Some(map) => Ok(map),
            None => Ok(Self::TextToBytes(pool.map_as(name, kind)?)),
        }
    }

    /// Finds it, or makes one of these types.
    pub(crate) fn find_or_make_of(
        pool: &Pool,
        name: &str,
        kind: Kind,
        types: TypesArg,
    ) -> Outcome<Self> {
        if let Some(map) = Self::find(pool, name)? {
            return Ok(map);
        }
        Ok(match types {
            TypesArg::TextBytes => Self::TextToBytes(pool.map_as(name, kind)?),
            TypesArg::TextText => Self::TextToText(pool.map_as(name, kind)?),
            TypesArg::BytesBytes => Self::BytesToBytes(pool.map_as(name, kind)?),
        })
    }

    /// Its structure.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::TextToBytes(map) => map.map().kind(),
            Self::TextToText(map) => map.map().kind(),
            Self::BytesToBytes(map) => map.map().kind(),
        }
    }

    fn get(&self, key: &str) -> Outcome<Option<Vec<u8>>> {
        Ok(match self {
            Self::TextToBytes(map) => map.get(key)?,
            Self::TextToText(map) => map.get(key)?.map(String::into_bytes),
            Self::BytesToBytes(map) => map.get(key.as_bytes())?,
        })
    }

    fn put(&self, key: &str, value: &str) -> Outcome<bool> {
        Ok(match self {
            Self::TextToBytes(map) => map.put(key, value.as_bytes())?,
            Self::TextToText(map) => map.put(key, value)?,
            Self::BytesToBytes(map) => map.put(key.as_bytes(), value.as_bytes())?,
        })
    }

    /// Puts several in one transaction; answers how many keys were new.
    pub(crate) fn put_all(&self, pool: &Pool, pairs: &[(&str, &str)]) -> Outcome<u64> {
        let new = pool.run(|tx| {
            let mut new = 0;
            for (key, value) in pairs {
                let had = match self {
                    Self::TextToBytes(map) => map.map().put(tx, key, value.as_bytes())?,
                    Self::TextToText(map) => map.map().put(tx, key, value)?,
                    Self::BytesToBytes(map) => {
                        map.map().put(tx, key.as_bytes(), value.as_bytes())?
                    }
                };
                new += u64::from(!had);
            }
            Ok(new)
        });
        Ok(new?)
    }

    fn remove(&self, key: &str) -> Outcome<bool> {
        Ok(on_map!(self, map, key = key => map.remove(key)?))
    }

    /// Puts several in one transaction, keys and values as bytes; answers how many keys were new.
    /// Bytes for texts have to be some: see [`fits`](Self::fits).
    pub(crate) fn put_pairs(&self, pool: &Pool, pairs: &[(Vec<u8>, Vec<u8>)]) -> Outcome<u64> {
        let new = pool.run(|tx| {
            let mut new = 0;
            for (key, value) in pairs {
                let had = match self {
                    Self::TextToBytes(map) => map.map().put(tx, text(key)?, value)?,
                    Self::TextToText(map) => map.map().put(tx, text(key)?, text(value)?)?,
                    Self::BytesToBytes(map) => map.map().put(tx, key, value)?,
                };
                new += u64::from(!had);
            }
            Ok(new)
        });
        Ok(new?)
    }

    /// What of a pair this map cannot hold.
    pub(crate) fn fits(&self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let (texts, values) = match self {
            Self::TextToBytes(_) => (true, false),
            Self::TextToText(_) => (true, true),
            Self::BytesToBytes(_) => (false, false),
        };
        if texts && core::str::from_utf8(key).is_err() {
            return Err("a key of bytes, and the map's are of text");
        }
        if values && core::str::from_utf8(value).is_err() {
            return Err("a value of bytes, and the map's are of text");
        }
        Ok(())
    }

    /// The entries that come next after a key, keys and values as bytes: as many as `batch` takes.
    /// In order of keys, or of hashes; none once there is no more.
    pub(crate) fn next_batch(
        &self,
        pool: &Pool,
        after: Option<&[u8]>,
        batch: Batch,
    ) -> Outcome<Vec<Pair>> {
        let found = pool.run(|tx| {
            let (mut found, mut bytes) = (Vec::new(), 0);
            let mut add = |key: &[u8], value: &[u8]| {
                bytes += key.len() + value.len();
                found.push((key.to_vec(), value.to_vec()));
                Ok(found.len() < batch.pairs && bytes < batch.bytes)
            };
            // A key that a map of texts gave out is text.
            let word = after.map(text).transpose();
            match self {
                Self::TextToBytes(map) => {
                    map.map().visit_after(tx, word?, |k, v| add(k.as_bytes(), v))
                }
                Self::TextToText(map) => {
                    map.map().visit_after(tx, word?, |k, v| add(k.as_bytes(), v.as_bytes()))
                }
                Self::BytesToBytes(map) => map.map().visit_after(tx, after, add),
            }?;
            Ok(found)
        });
        Ok(found?)
    }

    /// Some entries in order, keys and values as bytes.
    fn scan(
        &self,
        (from, to): (Bound<&str>, Bound<&str>),
        limit: usize,
    ) -> Outcome<Vec<(Vec<u8>, Vec<u8>)>> {
        Ok(match self {
            Self::TextToBytes(map) => {
                let found = map.scan((from, to), limit)?;
                found.into_iter().map(|(key, value)| (key.into_bytes(), value)).collect()
            }
            Self::TextToText(map) => {
                let found = map.scan((from, to), limit)?;
                found.into_iter().map(|(k, v)| (k.into_bytes(), v.into_bytes())).collect()
            }
            Self::BytesToBytes(map) => {
                let range = (from.map(str::as_bytes), to.map(str::as_bytes));
                map.scan(range, limit)?
            }
        })
    }
}

/// Bytes as the text they have to be.
fn text(bytes: &[u8]) -> holdfast::TxResult<&str> {
    core::str::from_utf8(bytes).map_err(|error| TxError::cancel(error.to_string()))
}

/// An error, told with the pool's file.
fn located(pool: &Pool, error: Error) -> Failure {
    match pool.path() {
        Some(path) => error.at(path).into(),
        None => error.into(),
    }
}

/// What went wrong with something in a map, told with the map's name.
pub(crate) fn in_map(name: &str) -> impl Fn(Failure) -> Failure {
    move |failure| {
        let Failure::Pool(error) = failure else { return failure };
        let cause = format!("in the map `{name}`: {}", error.cause());
        let named = Error::new(error.kind(), cause).with_remedy(error.remedy());
        match error.path() {
            Some(path) => named.at(path).into(),
            None => named.into(),
        }
    }
}

/// Refuses a key that no map takes.
pub(crate) fn refuse_long_key(key: &str) -> Outcome<()> {
    if key.len() <= KEY_MAX {
        return Ok(());
    }
    let cause =
        format!("a key of {} bytes is longer than {KEY_MAX}, the most one can have", key.len());
    Err(Failure::new("invalid", cause, "choose a shorter key"))
}

/// Prints the value of a key.
pub(crate) fn get(out: Out, args: &KeyArgs) -> Outcome {
    let pool = session::to_look(&args.pool)?;
    let map = AnyMap::expect(&pool, &args.map)?;
    let kind = map.kind();
    let found = map.get(&args.key).map_err(in_map(&args.map))?;
    drop(map);
    let exit = session::finish(out, pool, false)?;
    let Some(value) = found else {
        return Err(no_key(args, kind));
    };
    out.object("map get", json!({ "key": args.key, "value": json_bytes(&value) }));
    out.answer(show_bytes(&value));
    Ok(exit)
}

/// Gives a key a value.
pub(crate) fn put(out: Out, args: &PutArgs) -> Outcome {
    let place = &args.place;
    refuse_long_key(&place.key)?;
    let pool = session::to_change(&place.pool)?;
    let map = AnyMap::find_or_make(&pool, &place.map, args.kind.into())?;
    let replaced = map.put(&place.key, &args.value).map_err(in_map(&place.map))?;
    drop(map);
    let exit = session::finish(out, pool, true)?;
    out.object("map put", json!({ "key": place.key, "replaced": replaced }));
    out.more(|| (if replaced { "replaced" } else { "added" }).to_owned());
    Ok(exit)
}

/// Removes a key.
pub(crate) fn del(out: Out, args: &KeyArgs) -> Outcome {
    let pool = session::to_change(&args.pool)?;
    let map = AnyMap::expect(&pool, &args.map)?;
    let kind = map.kind();
    let removed = map.remove(&args.key).map_err(in_map(&args.map))?;
    drop(map);
    let exit = session::finish(out, pool, true)?;
    if !removed {
        return Err(no_key(args, kind));
    }
    out.object("map del", json!({ "key": args.key, "removed": removed }));
    Ok(exit)
}

fn no_key(args: &KeyArgs, kind: Kind) -> Failure {
    let remedy =
        if kind.is_ordered() { "`holdfast map scan` lists its keys" } else { "check the key" };
    let cause = format!("the map `{}` has no key `{}`", args.map, args.key);
    Error::new(ErrorKind::NotFound, cause).with_remedy(remedy).at(&args.pool).into()
}

fn no_order(args: &ScanArgs) -> Failure {
    let cause = format!("the map `{}` is a hash map, which has no order to scan in", args.map);
    let remedy =
        "ask for its keys by `holdfast map get`, or load its lines into a map of --kind btree";
    Error::new(ErrorKind::WrongType, cause).with_remedy(remedy).at(&args.pool).into()
}

/// Prints keys and values in order.
pub(crate) fn scan(out: Out, args: &ScanArgs) -> Outcome {
    /// Entries read in one transaction.
    const PAGE: usize = 1000;
    let pool = session::to_look(&args.pool)?;
    let map = AnyMap::expect(&pool, &args.map)?;
    if !map.kind().is_ordered() {
        return Err(no_order(args));
    }
    let prefix = args.prefix.as_deref().unwrap_or_default();
    let first = args.prefix.as_deref().or(args.from.as_deref());
    let mut from = first.map_or(Bound::Unbounded, |key| Bound::Included(key.to_owned()));
    let to = args.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let mut left = args.limit;
    while left > 0 && !crate::interrupt::asked() {
        let part = map
            .scan((from.as_ref().map(String::as_str), to), left.min(PAGE))
            .map_err(in_map(&args.map))?;
        let Some((last, _)) = part.last() else { break };
        // A key of bytes may be no text: then the next page starts at what comes close, below.
        let next = String::from_utf8(last.clone());
        let whole = part.len() == left.min(PAGE);
        for (key, value) in &part {
            if !key.starts_with(prefix.as_bytes()) {
                return end(out, map, pool);
            }
            left -= 1;
            let body = json!({ "key": json_bytes(key), "value": json_bytes(value) });
            out.item("map scan", body, || format!("{}\t{}", show_bytes(key), show_bytes(value)));
        }
        match next {
            Ok(key) if whole => from = Bound::Excluded(key),
            _ => break,
        }
    }
    end(out, map, pool)
}

fn end(out: Out, map: AnyMap, pool: Pool) -> Outcome {
    drop(map);
    let exit = session::finish(out, pool, false)?;
    Ok(if crate::interrupt::asked() { exit.and(Exit::CANCELLED) } else { exit })
}

/// Lists the maps of a pool.
pub(crate) fn list(out: Out, path: &Path) -> Outcome {
    let pool = session::to_look(path)?;
    let maps = pool.maps()?;
    let exit = session::finish(out, pool, false)?;
    out.object("map list", json!({ "maps": json_of(&maps) }));
    out.words(table_of(&maps).to_string());
    Ok(exit)
}

/// Maps as a table.
pub(crate) fn table_of(maps: &[(String, MapInfo)]) -> comfy_table::Table {
    let mut table = table(&["map", "kind", "keys", "values"]);
    for (name, info) in maps {
        let (key, value) = info.type_names();
        table.add_row([name.clone(), info.kind.name().to_owned(), key, value]);
    }
    table
}

/// Maps as objects.
pub(crate) fn json_of(maps: &[(String, MapInfo)]) -> Value {
    let one = |(name, info): &(String, MapInfo)| {
        let (key, value) = info.type_names();
        json!({ "name": name, "kind": info.kind.name(), "key": key, "value": value })
    };
    maps.iter().map(one).collect()
}
