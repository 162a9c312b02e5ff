//! Maps by name: bytes or text to bytes or text, each call a transaction of its own or a part of
//! one.

use core::ffi::{c_char, c_int, c_void};
use core::ops::Bound;
use std::sync::Arc;

use holdfast::{Key, Kind, Map, MapInfo, Pool, Tx, TxError, TxResult, TypeNumber};

use crate::border::text;
use crate::border::{Done, Fail, Place, border, bytes, holdfast_code, holdfast_code as Code, room};
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

/// Which structure a map is kept in.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub enum holdfast_kind {
    /// A hash table: fewest reads, no order.
    HoldfastKindHash = 0,
    /// A B-tree: in order of keys, with range scans.
    HoldfastKindBtree = 1,
}

/// What keys or values are.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub enum holdfast_content {
    /// Any bytes.
    HoldfastContentBytes = 0,
    /// UTF-8, without a zero at its end.
    HoldfastContentText = 1,
}

/// A function called for each entry; anything but 0 ends the scan. It may read in the transaction
/// of the scan, if there is one, and not change. Key and value are valid while it runs.
pub type holdfast_visit = Option<
    unsafe extern "C" fn(
        key: *const c_void,
        key_len: usize,
        value: *const c_void,
        value_len: usize,
        argument: *mut c_void,
    ) -> c_int,
>;

/// A map that was opened. It names its pool by the handle: closing that closes it.
#[derive(Debug)]
struct Entry {
    pool: u64,
    map: Map<[u8], [u8]>,
    key: TypeNumber,
    value: TypeNumber,
}

static MAPS: Table<Entry> = Table::new(Sort::Map);

/// Whether bytes may be a key or value of that type.
fn fits(content: TypeNumber, bytes: &[u8], what: &str) -> Done {
    if content == TypeNumber::BYTES || core::str::from_utf8(bytes).is_ok() {
        return Ok(());
    }
    Err(Fail::invalid(format!("the map takes text; this {what} is not UTF-8")))
}

fn known(content: TypeNumber) -> bool {
    content == TypeNumber::BYTES || content == <str as Key>::TYPE
}

/// Which map a call is about, and in which transaction.
struct Call {
    entry: Arc<Entry>,
    pool: Arc<Pool>,
    tx: holdfast_tx,
}

impl Call {
    fn new(map: holdfast_map, tx: holdfast_tx) -> Done<Self> {
        let entry = MAPS.get(map.id)?;
        let gone = |_| Fail::new(Code::HoldfastHandle, "the pool of this map was closed");
        let pool = POOLS.get(entry.pool).map_err(gone)?;
        Ok(Self { entry, pool, tx })
    }

    /// Does it: in the transaction handed over, else in one of its own.
    fn run<R>(
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

/// Opens the map called `name`, of bytes or text; `HOLDFAST_NOT_FOUND` if there is none.
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
        place.set(open(pool, &*outside(pool)?, name)?);
        Ok(())
    })
}

fn open(handle: holdfast_pool, pool: &Pool, name: &str) -> Done<holdfast_map> {
    let found = pool.run(|tx| match pool.map_header(tx, name)? {
        Some(header) => Ok(Some((MapInfo::read(tx, header)?, MapInfo::open_untyped(tx, header)?))),
        None => Ok(None),
    })?;
    let (info, map) = found
        .ok_or_else(|| Fail::new(Code::HoldfastNotFound, format!("no map is called `{name}`")))?;
    if !known(info.key) || !known(info.value) {
        let (key, value) = info.type_names();
        let text = format!("the map `{name}` has keys of {key} and values of {value}");
        return Err(Fail::new(Code::HoldfastWrongType, text));
    }
    let entry = Entry { pool: handle.id, map, key: info.key, value: info.value };
    Ok(holdfast_map { id: MAPS.add(entry) })
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
        let kind = match kind {
            0 => Kind::Hash,
            1 => Kind::BTree,
            other => return Err(Fail::invalid(format!("{other} is no holdfast_kind"))),
        };
        let found = match (keys, values) {
            (0, 0) => owner.map_as::<[u8], [u8]>(name, kind)?.map().kind(),
            (0, 1) => owner.map_as::<[u8], str>(name, kind)?.map().kind(),
            (1, 0) => owner.map_as::<str, [u8]>(name, kind)?.map().kind(),
            (1, 1) => owner.map_as::<str, str>(name, kind)?.map().kind(),
            _ => return Err(Fail::invalid("keys or values are no holdfast_content")),
        };
        if found != kind {
            let text = format!("the map `{name}` is kept in another structure ({found:?})");
            return Err(Fail::new(Code::HoldfastWrongType, text));
        }
        place.set(open(pool, &owner, name)?);
        Ok(())
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
        fits(call.entry.key, key, "key")?;
        fits(call.entry.value, value, "value")?;
        call.run(true, |tx, map| map.put(tx, key, value))?;
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
        let (from, at) = (key.addr(), into.addr());
        if from < at.saturating_add(room) && at < from.saturating_add(key_len) {
            return Err(Fail::invalid("the key lies in the room for the value"));
        }
        // SAFETY: as the caller vouches, and they do not overlap.
        let (key, into) = unsafe {
            (bytes(key, key_len, "the key")?, self::room(into, room, "the room for the value")?)
        };
        // SAFETY: as the caller vouches.
        let len = unsafe { Place::new(len, "the place for the length")? };
        len.set(0);
        let call = Call::new(map, tx)?;
        let found = call.run(false, |tx, map| {
            map.get_with(tx, key, |value| {
                if let Some(into) = into.get_mut(..value.len()) {
                    into.copy_from_slice(value);
                }
                value.len()
            })
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
        if Call::new(map, tx)?.run(true, |tx, map| map.remove(tx, key))? {
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

/// Calls `visit` for the entries of a map whose keys are not below `first`, at most `limit` of
/// them; in order of keys unless the map is a hash map, for which `first` has to be empty. With
/// `tx` `{0}`, they are collected in memory before, all of one committed state.
///
/// # Safety
/// `first` is null or points to `first_len` bytes; `visit` is null or can be called with
/// `argument`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_map_scan(
    map: holdfast_map,
    tx: holdfast_tx,
    first: *const c_void,
    first_len: usize,
    limit: usize,
    visit: holdfast_visit,
    argument: *mut c_void,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let first = unsafe { bytes(first, first_len, "the first key")? };
        let visit = visit.ok_or_else(|| Fail::invalid("the function is null"))?;
        let call = Call::new(map, tx)?;
        if call.entry.map.kind() == Kind::Hash && !first.is_empty() {
            return Err(Fail::invalid("a hash map has no order, and so no first key"));
        }
        let show = |key: &[u8], value: &[u8]| {
            // SAFETY: both slices live until the function returns; as the caller vouches.
            unsafe {
                visit(key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len(), argument)
            }
        };
        if tx.id == 0 {
            let mut found = Vec::new();
            call.run(false, |tx, map| {
                found.clear();
                each(tx, map, first, limit, |key, value| {
                    found.push((key.to_vec(), value.to_vec()));
                    true
                })
            })?;
            let _ = found.iter().all(|(key, value)| show(key, value) == 0);
            return Ok(());
        }
        let entry = tx::entry(tx)?;
        call.run(false, |tx, map| {
            each(tx, map, first, limit, |key, value| entry.visiting(|| show(key, value)) == 0)
        })
    })
}

/// Visits entries until there are `limit`, or `visit` has enough.
fn each(
    tx: &Tx<'_>,
    map: Map<[u8], [u8]>,
    first: &[u8],
    limit: usize,
    mut visit: impl FnMut(&[u8], &[u8]) -> bool,
) -> TxResult<()> {
    const ENOUGH: &str = "enough";
    let mut left = limit;
    let stopped = || TxError::Inconsistent(ENOUGH);
    let done = if map.kind() == Kind::Hash {
        map.for_each(tx, |key, value| {
            left = left.checked_sub(1).ok_or_else(stopped)?;
            if visit(key, value) { Ok(()) } else { Err(stopped()) }
        })
    } else {
        let range = (Bound::Included(first), Bound::Unbounded);
        map.scan(
            tx,
            range,
            limit,
            |key, value| {
                if visit(key, value) { Ok(()) } else { Err(stopped()) }
            },
        )
        .map(drop)
    };
    match done {
        Err(TxError::Inconsistent(ENOUGH)) => Ok(()),
        other => other,
    }
}
