//! Reads outside of transactions: copies, and objects in place.

use core::ffi::c_void;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast::pmem::Mapped;
use holdfast::{Pool, RawPtr, RawView, Transaction};

use crate::border::{Done, Fail, Place, border, holdfast_code, room};
use crate::handle::{Sort, Table};
use crate::objects::holdfast_ptr;
use crate::pool::{holdfast_pool, outside};

/// An object borrowed in place. `{0}` is none. Any thread may give it back.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct holdfast_view {
    /// Not for the program.
    pub id: u64,
}

#[derive(Debug)]
struct Entry {
    #[expect(dead_code, reason = "dropping it ends the view")]
    view: RawView<Mapped>,
    #[expect(dead_code, reason = "it is counted")]
    seat: Seat,
    /// Keeps the pool from being closed.
    #[expect(dead_code, reason = "it is counted")]
    pool: Arc<Pool>,
}

static VIEWS: Table<Entry> = Table::new(Sort::View);

/// Views of one object at a time. The engine counts to 127 for all objects that share a word of its
/// table, and refuses whoever comes then: with a limit of its own, one object leaves room for
/// others.
const VIEWS_MAX: u32 = 96;

/// How many views there are of an object: by pool and pointer.
static SEATS: Mutex<BTreeMap<(u64, holdfast_ptr), u32>> = Mutex::new(BTreeMap::new());

fn seats() -> MutexGuard<'static, BTreeMap<(u64, holdfast_ptr), u32>> {
    SEATS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to one view of an object, given back when dropped.
#[derive(Debug)]
struct Seat((u64, holdfast_ptr));

impl Seat {
    fn take(pool: holdfast_pool, pointer: holdfast_ptr) -> Done<Self> {
        let of = (pool.id, pointer);
        let mut seats = seats();
        let taken = seats.entry(of).or_default();
        if *taken >= VIEWS_MAX {
            let text = format!(
                "there are {VIEWS_MAX} views of this object, the most there can be; give some back \
                 by holdfast_view_end, or copy it by holdfast_read"
            );
            return Err(Fail::busy(text));
        }
        *taken += 1;
        Ok(Self(of))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = seats();
        let left = seats.get(&self.0).map_or(0, |taken| taken.saturating_sub(1));
        if left == 0 {
            seats.remove(&self.0);
        } else {
            seats.insert(self.0, left);
        }
    }
}

/// Copies `len` bytes of an object, from byte `from` on, as one committed state of it has them.
///
/// # Safety
/// `into` is null or points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_read(
    pool: holdfast_pool,
    pointer: holdfast_ptr,
    from: u64,
    into: *mut c_void,
    len: usize,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let into = unsafe { room(into, len, "the room for the bytes")? };
        let of = RawPtr::from_word(pointer);
        Ok(outside(pool)?.run(|tx| tx.read_bytes(of, from, into))?)
    })
}

/// Tells the pool's root object, 0 if none was set.
///
/// # Safety
/// `pointer` is null or points to a `holdfast_ptr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_root(
    pool: holdfast_pool,
    pointer: *mut holdfast_ptr,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let pointer = unsafe { Place::new(pointer, "the place for the pointer")? };
        pointer.set(outside(pool)?.run(|tx| tx.raw_root())?.word());
        Ok(())
    })
}

/// Borrows an object in place: plain loads, no copy. Until `holdfast_view_end`, commits that would
/// change the object wait, so keep it short. Never store to it. `type_number` 0 takes any type;
/// `len` may be null. `HOLDFAST_BUSY` while there are 96 views of the object, or 127 of those
/// that the pool guards together with it.
///
/// # Safety
/// `view` is null or points to a `holdfast_view`, `address` is null or points to a `const void *`,
/// `len` is null or points to a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_view_begin(
    pool: holdfast_pool,
    pointer: holdfast_ptr,
    type_number: u32,
    view: *mut holdfast_view,
    address: *mut *const c_void,
    len: *mut u64,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let view = unsafe { Place::new(view, "the place for the view")? };
        view.set(holdfast_view { id: 0 });
        // SAFETY: as the caller vouches.
        let address = unsafe { Place::new(address, "the place for the address")? };
        address.set(core::ptr::null());
        let owned = outside(pool)?;
        let seat = Seat::take(pool, pointer)?;
        let raw = owned.view_raw(RawPtr::from_word(pointer))?;
        let found = raw.type_number().0;
        if type_number != 0 && found != type_number {
            let text = format!("the object has type {found:#010x}, not {type_number:#010x}");
            return Err(Fail::new(holdfast_code::HoldfastWrongType, text));
        }
        if !len.is_null() {
            // SAFETY: as the caller vouches.
            unsafe { Place::new(len, "the place for the length")? }.set(raw.len());
        }
        address.set(raw.address().cast());
        view.set(holdfast_view { id: VIEWS.add(Entry { view: raw, seat, pool: owned }) });
        Ok(())
    })
}

/// Gives a borrowed object back. Its address is void.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_view_end(view: holdfast_view) -> holdfast_code {
    border(|| {
        VIEWS.remove(view.id, || Fail::busy("another thread gives this view back"))?;
        Ok(())
    })
}
