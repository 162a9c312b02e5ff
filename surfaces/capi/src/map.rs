//! Maps by name: each call is a transaction of its own or a part of one.

use core::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use holdfast::{Kind, Map, MapInfo, Pool, Tx, TxResult};

use crate::border::text;
use crate::border::{Done, Fail, Place, apart, border, bytes, put_sized, room};
use crate::border::{holdfast_code, holdfast_code as Code};
use crate::content::{Content, with_types};
use crate::handle::{Sort, Table};
use crate::pool::{POOLS, holdfast_pool, outside};
use crate::tx::{self, holdfast_tx, refuse_inside};

/// A map of a pool. `{0}` is none. Any thread may use it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct holdfast_map {
    /// Not for the program.
    pub id: u64,
}

/// Which structure a map is kept in; `docs/collections.md` says which to choose.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub enum holdfast_kind {
    /// A hash table that grows step by step: fewest reads, no order.
    HoldfastKindHashmap = 0,
    /// A B-tree: in order of keys, few levels whatever the keys are.
    HoldfastKindBtree = 1,
    /// A red-black tree: in order of keys, small inner nodes.
    HoldfastKindRbtree = 2,
    /// A crit-bit tree: in order of keys, for long keys that start the same.
    HoldfastKindCtree = 3,
    /// A skip list: in order of keys, for long walks.
    HoldfastKindSkiplist = 4,
    /// A radix tree: in order of keys, lookups nearly as cheap as in a hash table.
    HoldfastKindRtree = 5,
}

/// What a map was created as.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct holdfast_map_info {
    /// Its structure, a `holdfast_kind`.
    pub kind: u32,
    /// What its keys are, a `holdfast_content`.
    pub keys: u32,
    /// What its values are, a `holdfast_content`.
    pub values: u32,
    /// 0.
    pub reserved: u32,
}

/// Kinds by their numbers, and what they are called.
const KINDS: [(Kind, &CStr); 6] = [
    (Kind::Hash, c"hashmap"),
    (Kind::BTree, c"btree"),
    (Kind::RbTree, c"rbtree"),
    (Kind::CTree, c"ctree"),
    (Kind::SkipList, c"skiplist"),
    (Kind::RTree, c"rtree"),
];

fn kind_of(number: u32) -> Option<(Kind, &'static CStr)> {
    KINDS.get(usize::try_from(number).ok()?).copied()
}

/// A map that was opened. It names its pool by the handle: closing that closes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pool: u64,
    pub(crate) map: Map<[u8], [u8]>,
    pub(crate) keys: Content,
    pub(crate) values: Content,
}

static MAPS: Table<Entry> = Table::new(Sort::Map);

impl Entry {
    pub(crate) fn of(map: holdfast_map) -> Done<Self> {
        MAPS.get(map.id).map(|entry| *entry)
    }

    /// A value as it is kept, or why it is none.
    pub(crate) fn expect_value(&self, kept: &[u8]) -> TxResult<()> {
        if self.values.is_value(kept) {
            return Ok(());
        }
        Err(holdfast::TxError::Inconsistent("a map has a value that is none of its type"))
    }
}

/// Which map a call is about, and in which transaction.
pub(crate) struct Call {
    pub(crate) entry: Entry,
    pool: Arc<Pool>,
    tx: holdfast_tx,
}

impl Call {
    fn new(map: holdfast_map, tx: holdfast_tx) -> Done<Self> {
        Self::on(Entry::of(map)?, tx)
    }

    pub(crate) fn on(entry: Entry, tx: holdfast_tx) -> Done<Self> {
        let gone = |_| Fail::new(Code::HoldfastHandle, "the pool of this map was closed");
        let pool = POOLS.get(entry.pool).map_err(gone)?;
        Ok(Self { entry, pool, tx })
    }

    /// Does it: in the transaction handed over, else in one of its own.
    pub(crate) fn run<R>(
        &self,
        changes: bool,
        mut part: impl FnMut(&Tx<'_>, Map<[u8], [u8]>) -> TxResult<R>,
    ) -> Done<R> {
        let map = self.entry.map;
        if self.tx.id == 0 {
            refuse_inside(&self.pool)?;
            return Ok(self.pool.run(|tx| part(tx, map))?);
        }
        let entry = tx::entry(self.tx)?;
        if !Arc::ptr_eq(&entry.pool, &self.pool) {
            return Err(Fail::invalid("the map and the transaction are of different pools"));
        }
        entry.part(changes, |tx| part(tx, map))
    }
}

/// Name of a `holdfast_kind`, such as "btree"; null if it is none.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_kind_name(kind: u32) -> *const c_char {
    kind_of(kind).map_or(core::ptr::null(), |(_, name)| name.as_ptr())
}

/// Tells the `holdfast_kind` that is called `name`: "hashmap", "btree", "rbtree", "ctree",
/// "skiplist" or "rtree".
///
/// # Safety
/// `name` is null or a text with a zero at its end, `kind` is null or points to a `uint32_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_kind_from_name(
    name: *const c_char,
    kind: *mut u32,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let (place, name) = unsafe { (Place::new(kind, "the place")?, text(name, "the name")?) };
        let found = KINDS.iter().position(|(kind, _)| kind.name() == name);
        let found = found.ok_or_else(|| Fail::invalid(format!("no kind is called `{name}`")))?;
        place.set(found as u32);
        Ok(())
    })
}

/// Opens the map called `name`; `HOLDFAST_NOT_FOUND` if there is none, `HOLDFAST_WRONG_TYPE` if
/// its keys or values are nothing that C has a `holdfast_content` for.
///
/// # Safety
/// `name` is null or a text with a zero at its end, `map` is null or points to a `holdfast_map`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_map_open(
    pool: holdfast_pool,
    name: *const c_char,
    map: *mut holdfast_map,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let place = unsafe { Place::new(map, "the place for the map")? };
        place.set(holdfast_map { id: 0 });
        // SAFETY: as the caller vouches.
        let name = unsafe { text(name, "the name")? };
        let entry = find(pool, &*outside(pool)?, name)?;
        place.set(holdfast_map { id: MAPS.add(entry) });
        Ok(())
    })
}

/// The map called `name`.
fn find(handle: holdfast_pool, pool: &Pool, name: &str) -> Done<Entry> {
    let found = pool.run(|tx| match pool.map_header(tx, name)? {
        Some(header) => Ok(Some((MapInfo::read(tx, header)?, MapInfo::open_untyped(tx, header)?))),
        None => Ok(None),
    })?;
    let (info, map) = found
        .ok_or_else(|| Fail::new(Code::HoldfastNotFound, format!("no map is called `{name}`")))?;
    match (Content::of_keys(info.key), Content::of_values(info.value)) {
        (Some(keys), Some(values)) => Ok(Entry { pool: handle.id, map, keys, values }),
        _ => {
            let (key, value) = info.type_names();
            let text = format!("the map `{name}` has keys of {key} and values of {value}");
            Err(Fail::new(Code::HoldfastWrongType, text))
        }
    }
}

/// Opens the map called `name`; creates it if there is none, as a `holdfast_kind` with a
/// `holdfast_content` as keys and another as values. `HOLDFAST_WRONG_TYPE` if it was created as
/// something else.
///
/// # Safety
/// As `holdfast_map_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_map_create(
    pool: holdfast_pool,
    name: *const c_char,
    kind: u32,
    keys: u32,
    values: u32,
    map: *mut holdfast_map,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let place = unsafe { Place::new(map, "the place for the map")? };
        place.set(holdfast_map { id: 0 });
        // SAFETY: as the caller vouches.
        let name = unsafe { text(name, "the name")? };
        let owner = outside(pool)?;
        let (kind, _) =
            kind_of(kind).ok_or_else(|| Fail::invalid(format!("{kind} is no holdfast_kind")))?;
        let keys = Content::of_number(keys, "keys")?;
        let values = Content::of_number(values, "values")?;
        let found =
            with_types!(keys, values, K, V => owner.map_as::<K, V>(name, kind)?.map().kind());
        if found != kind {
            let text = format!("the map `{name}` is a {found} and no {kind}");
            return Err(Fail::new(Code::HoldfastWrongType, text));
        }
        let entry = find(pool, &owner, name)?;
        place.set(holdfast_map { id: MAPS.add(entry) });
        Ok(())
    })
}

/// Tells what a map was created as.
///
/// # Safety
/// `info` is null or points to a `holdfast_map_info`; `size` is its `sizeof`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_map_describe(
    map: holdfast_map,
    info: *mut holdfast_map_info,
    size: usize,
) -> holdfast_code {
    border(|| {
        let Entry { map, keys, values, .. } = Entry::of(map)?;
        let kind = KINDS.iter().position(|(kind, _)| *kind == map.kind());
        let told = holdfast_map_info {
            kind: kind.map_or(u32::MAX, |kind| kind as u32),
            keys: keys as u32,
            values: values as u32,
            reserved: 0,
        };
        // SAFETY: as the caller vouches.
        unsafe { put_sized(info, size, &told) }
    })
}

/// Removes the map called `name` from its pool, with everything in it, in one transaction.
/// `HOLDFAST_NOT_FOUND` if there is none. Handles and cursors of it find nothing any more.
///
/// # Safety
/// `name` is null or a text with a zero at its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_map_drop(
    pool: holdfast_pool,
    name: *const c_char,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let name = unsafe { text(name, "the name")? };
        let owner = outside(pool)?;
        let Entry { keys, values, .. } = find(pool, &owner, name)?;
        if with_types!(keys, values, K, V => owner.drop_map::<K, V>(name)?) {
            return Ok(());
        }
        Err(Fail::new(Code::HoldfastNotFound, format!("no map is called `{name}`")))
    })
}

/// Gives a map's handle back. The map stays in its pool.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_map_close(map: holdfast_map) -> holdfast_code {
    border(|| {
        MAPS.remove(map.id, || Fail::busy("another call uses the map"))?;
        Ok(())
    })
}

/// Gives a key a value. With `tx` `{0}`, it is durable when this returns.
///
/// # Safety
/// `key` and `value` are null or point to as many bytes as said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_map_put(
    map: holdfast_map,
    tx: holdfast_tx,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let (key, value) =
            unsafe { (bytes(key, key_len, "the key")?, bytes(value, value_len, "the value")?) };
        let call = Call::new(map, tx)?;
        let key = call.entry.keys.keep(key, "the key")?;
        call.entry.values.expect(value, "the value")?;
        call.run(true, |tx, map| map.put(tx, key.as_ref(), value))?;
        Ok(())
    })
}

/// Copies the value of a key into `into`. `len` is told the length of the value, also if `room` is
/// too small (`HOLDFAST_ROOM`). `HOLDFAST_NOT_FOUND` if there is no such key.
///
/// # Safety
/// `key` and `into` are null or point to as many bytes as said, `len` is null or points to a
/// `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_map_get(
    map: holdfast_map,
    tx: holdfast_tx,
    key: *const c_void,
    key_len: usize,
    into: *mut c_void,
    room: usize,
    len: *mut usize,
) -> holdfast_code {
    border(|| {
        let places = [(key.addr(), key_len), (into.addr(), room), (len.addr(), size_of::<usize>())];
        apart(&places, "the key, the room for the value and the place for its length")?;
        // SAFETY: as the caller vouches, and they do not overlap.
        let (key, into) = unsafe {
            (bytes(key, key_len, "the key")?, self::room(into, room, "the room for the value")?)
        };
        // SAFETY: as the caller vouches.
        let len = unsafe { Place::new(len, "the place for the length")? };
        len.set(0);
        let call = Call::new(map, tx)?;
        let (entry, key) = (call.entry, call.entry.keys.keep(key, "the key")?);
        let found = call.run(false, |tx, map| {
            let found = map.get_with(tx, key.as_ref(), |value| {
                entry.expect_value(value)?;
                if let Some(into) = into.get_mut(..value.len()) {
                    into.copy_from_slice(value);
                }
                Ok(value.len())
            })?;
            found.transpose()
        })?;
        let found =
            found.ok_or_else(|| Fail::new(Code::HoldfastNotFound, "the map has no such key"))?;
        len.set(found);
        if found > room {
            let text = format!("the value has {found} bytes, the room for it {room}");
            return Err(Fail::new(Code::HoldfastRoom, text));
        }
        Ok(())
    })
}

/// Removes a key; `HOLDFAST_NOT_FOUND` if there is none, which is no error of the transaction.
///
/// # Safety
/// `key` is null or points to `key_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_map_remove(
    map: holdfast_map,
    tx: holdfast_tx,
    key: *const c_void,
    key_len: usize,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let key = unsafe { bytes(key, key_len, "the key")? };
        let call = Call::new(map, tx)?;
        let key = call.entry.keys.keep(key, "the key")?;
        if call.run(true, |tx, map| map.remove(tx, key.as_ref()))? {
            return Ok(());
        }
        Err(Fail::new(Code::HoldfastNotFound, "the map has no such key"))
    })
}

/// Counts the entries of a map by reading all of it.
///
/// # Safety
/// `count` is null or points to a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_map_count(
    map: holdfast_map,
    tx: holdfast_tx,
    count: *mut u64,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let count = unsafe { Place::new(count, "the place for the count")? };
        count.set(Call::new(map, tx)?.run(false, |tx, map| map.len(tx))?);
        Ok(())
    })
}
