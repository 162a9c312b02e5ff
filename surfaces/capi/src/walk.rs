//! Going through maps: by a function that is called for entries, or step by step with a cursor.

use core::ffi::{c_int, c_void};
use core::ops::Bound;
use std::sync::{Mutex, TryLockError};

use holdfast::{Cursor, Kind, Map, Tx, TxError, TxResult};

use crate::border::{Done, Fail, Place, apart, border, bytes, room};
use crate::border::{holdfast_code, holdfast_code as Code};
use crate::handle::{Sort, Table};
use crate::map::{Call, Entry as MapEntry, holdfast_map};
use crate::tx::{self, holdfast_tx};

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

/// A place in a map, between two of its entries. `{0}` is none. One thread at a time may use it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct holdfast_cursor {
    /// Not for the program.
    pub id: u64,
}

/// Entries that a scan visits: keys as the map keeps them, copied, because the program may change
/// its own while its function runs.
struct Range {
    first: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    limit: usize,
    back: bool,
}

impl Range {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (
            self.first.as_deref().map_or(Bound::Unbounded, Bound::Included),
            self.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        )
    }
}

/// One end of a range; null is none.
///
/// # Safety
/// `key` is null or points to `len` bytes.
unsafe fn end_of(
    map: &MapEntry,
    key: *const c_void,
    len: usize,
    what: &str,
) -> Done<Option<Vec<u8>>> {
    if key.is_null() && len == 0 {
        return Ok(None);
    }
    // SAFETY: as the caller vouches.
    let key = unsafe { bytes(key, len, what)? };
    Ok(Some(map.keys.keep(key, what)?.as_ref().to_vec()))
}

/// Calls `visit` for the entries of a map with keys from `first` on and before `end`, at most
/// `limit` of them, in order of keys. A null key is no bound; a hash map has no order, and takes
/// no bounds. With `tx` `{0}`, entries are collected in memory before, all of one committed state.
///
/// # Safety
/// `first` and `end` are null or point to as many bytes as said; `visit` is null or can be called
/// with `argument`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_map_scan(
    map: holdfast_map,
    tx: holdfast_tx,
    first: *const c_void,
    first_len: usize,
    end: *const c_void,
    end_len: usize,
    limit: usize,
    visit: holdfast_visit,
    argument: *mut c_void,
) -> holdfast_code {
    let ends = ((first, first_len), (end, end_len));
    // SAFETY: as the caller vouches.
    border(|| unsafe { scan(map, tx, ends, (limit, false), (visit, argument)) })
}

/// The same from the last entry before `end` back to `first`. Not for hash maps.
///
/// # Safety
/// As `holdfast_map_scan`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_map_scan_back(
    map: holdfast_map,
    tx: holdfast_tx,
    first: *const c_void,
    first_len: usize,
    end: *const c_void,
    end_len: usize,
    limit: usize,
    visit: holdfast_visit,
    argument: *mut c_void,
) -> holdfast_code {
    let ends = ((first, first_len), (end, end_len));
    // SAFETY: as the caller vouches.
    border(|| unsafe { scan(map, tx, ends, (limit, true), (visit, argument)) })
}

type Bytes = (*const c_void, usize);

/// What both ways have in common.
///
/// # Safety
/// As `holdfast_map_scan`.
unsafe fn scan(
    map: holdfast_map,
    tx: holdfast_tx,
    (first, end): (Bytes, Bytes),
    (limit, back): (usize, bool),
    (visit, argument): (holdfast_visit, *mut c_void),
) -> Done {
    let visit = visit.ok_or_else(|| Fail::invalid("the function is null"))?;
    let entry = MapEntry::of(map)?;
    // SAFETY: as the caller vouches.
    let (first, end) = unsafe {
        (
            end_of(&entry, first.0, first.1, "the first key")?,
            end_of(&entry, end.0, end.1, "the key to end before")?,
        )
    };
    let range = Range { first, end, limit, back };
    if entry.map.kind() == Kind::Hash && (range.first.is_some() || range.end.is_some() || back) {
        return Err(Fail::invalid("a hash map has no order: no first key, no end, no way back"));
    }
    let show = |key: &[u8], value: &[u8]| {
        let see = |key: &[u8]| {
            // SAFETY: both slices live until the function returns; as the caller vouches.
            unsafe {
                visit(key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len(), argument)
            }
        };
        entry.expect_value(value)?;
        entry.keys.show_key(key, see).ok_or_else(not_a_key)
    };
    let call = Call::on(entry, tx)?;
    if tx.id == 0 {
        let mut found = Vec::new();
        call.run(false, |tx, map| {
            found.clear();
            each(tx, map, &range, |key, value| {
                found.push((key.to_vec(), value.to_vec()));
                Ok(true)
            })
        })?;
        for (key, value) in &found {
            if show(key, value)? != 0 {
                break;
            }
        }
        return Ok(());
    }
    let own = tx::entry(tx)?;
    call.run(false, |tx, map| {
        each(tx, map, &range, |key, value| Ok(own.visiting(|| show(key, value))? == 0))
    })
}

fn not_a_key() -> TxError {
    TxError::Inconsistent("a map has a key that is none of its type")
}

/// Visits entries until there are `limit`, or `visit` has enough.
fn each(
    tx: &Tx<'_>,
    map: Map<[u8], [u8]>,
    range: &Range,
    mut visit: impl FnMut(&[u8], &[u8]) -> TxResult<bool>,
) -> TxResult<()> {
    let mut left = range.limit;
    let mut enough = left == 0;
    // An error is how a walk is ended early; it goes no further than this.
    let stop = || TxError::cancel("enough");
    let mut step = |key: &[u8], value: &[u8]| {
        left -= 1;
        enough = !visit(key, value)? || left == 0;
        if enough { Err(stop()) } else { Ok(()) }
    };
    if range.limit == 0 {
        return Ok(());
    }
    let done = if map.kind() == Kind::Hash {
        map.for_each(tx, &mut step)
    } else if range.back {
        map.scan_back(tx, range.bounds(), range.limit, &mut step).map(drop)
    } else {
        map.scan(tx, range.bounds(), range.limit, &mut step).map(drop)
    };
    if enough { Ok(()) } else { done }
}

/// A cursor: where it is, and in which map.
#[derive(Debug)]
struct Entry {
    map: MapEntry,
    at: Mutex<Cursor<[u8], [u8]>>,
}

static CURSORS: Table<Entry> = Table::new(Sort::Cursor);

impl Entry {
    /// Does something with the position, unless another thread does.
    fn with<R>(&self, work: impl FnOnce(&mut Cursor<[u8], [u8]>) -> Done<R>) -> Done<R> {
        match self.at.try_lock() {
            Ok(mut at) => work(&mut at),
            // A step that panicked has not moved it.
            Err(TryLockError::Poisoned(at)) => work(&mut at.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Fail::busy("another thread uses the cursor")),
        }
    }
}

/// Places a cursor before the first entry of a map. It may be held while the map is changed, by
/// whomever and also in the middle of a transaction: it goes on behind the key it was at, and
/// meets each entry that is there all the time exactly once. Give it back by
/// `holdfast_cursor_close`.
///
/// # Safety
/// `cursor` is null or points to a `holdfast_cursor`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_cursor_open(
    map: holdfast_map,
    cursor: *mut holdfast_cursor,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let place = unsafe { Place::new(cursor, "the place for the cursor")? };
        place.set(holdfast_cursor { id: 0 });
        let map = MapEntry::of(map)?;
        let at = Mutex::new(map.map.cursor());
        place.set(holdfast_cursor { id: CURSORS.add(Entry { map, at }) });
        Ok(())
    })
}

/// Steps over the next entry and copies its key and value; in order of keys unless the map is a
/// hash map. `HOLDFAST_NOT_FOUND` once there is no more. `HOLDFAST_ROOM` if either room is too
/// small: both lengths were told, and the cursor stays where it is. `HOLDFAST_DANGLING` if the map
/// was dropped. If the transaction starts over, the cursor does not: rewind it.
///
/// # Safety
/// `key` and `value` are null or point to as many bytes as said, `key_len` and `value_len` are
/// null or point to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_cursor_next(
    cursor: holdfast_cursor,
    tx: holdfast_tx,
    key: *mut c_void,
    key_room: usize,
    key_len: *mut usize,
    value: *mut c_void,
    value_room: usize,
    value_len: *mut usize,
) -> holdfast_code {
    border(|| {
        let size = size_of::<usize>();
        let (lens, rooms) = ((key_len.addr(), value_len.addr()), (key.addr(), value.addr()));
        let places = [(rooms.0, key_room), (rooms.1, value_room), (lens.0, size), (lens.1, size)];
        apart(&places, "the rooms for key and value and the places for their lengths")?;
        // SAFETY: as the caller vouches, and they do not overlap.
        let (key, key_len, value, value_len) = unsafe {
            (
                room(key, key_room, "the room for the key")?,
                Place::new(key_len, "the place for the key's length")?,
                room(value, value_room, "the room for the value")?,
                Place::new(value_len, "the place for the value's length")?,
            )
        };
        key_len.set(0);
        value_len.set(0);
        let entry = CURSORS.get(cursor.id)?;
        let call = Call::on(entry.map, tx)?;
        entry.with(|at| {
            let (next, found) = call.run(false, |tx, _| {
                let mut next = at.clone();
                let found = next.next(tx)?;
                if let Some((_, value)) = &found {
                    entry.map.expect_value(value)?;
                }
                Ok((next, found))
            })?;
            let Some((found_key, found_value)) = found else {
                *at = next;
                return Err(Fail::new(Code::HoldfastNotFound, "the cursor is at the end"));
            };
            value_len.set(found_value.len());
            let fits = entry.map.keys.show_key(&found_key, |shown| {
                key_len.set(shown.len());
                match (key.get_mut(..shown.len()), value.get_mut(..found_value.len())) {
                    (Some(key), Some(value)) => {
                        key.copy_from_slice(shown);
                        value.copy_from_slice(&found_value);
                        true
                    }
                    _ => false,
                }
            });
            if fits.ok_or_else(not_a_key)? {
                *at = next;
                return Ok(());
            }
            Err(Fail::new(Code::HoldfastRoom, "the room for the key or the value is too small"))
        })
    })
}

/// Puts a cursor before the first entry again.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_cursor_rewind(cursor: holdfast_cursor) -> holdfast_code {
    border(|| {
        CURSORS.get(cursor.id)?.with(|at| {
            at.rewind();
            Ok(())
        })
    })
}

/// Gives a cursor back.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_cursor_close(cursor: holdfast_cursor) -> holdfast_code {
    border(|| {
        CURSORS.remove(cursor.id, || Fail::busy("another thread uses the cursor"))?;
        Ok(())
    })
}
