//! Reads outside of transactions: copies, and objects in place.

use core::ffi::c_void;
use std::sync::Arc;

use holdfast::pmem::Mapped;
use holdfast::{Pool, RawPtr, RawView, Transaction};

use crate::border::{Fail, Place, border, holdfast_code, room};
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
    /// Keeps the pool from being closed.
    #[expect(dead_code, reason = "it is counted")]
    pool: Arc<Pool>,
}

static VIEWS: Table<Entry> = Table::new(Sort::View);

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
/// `len` may be null.
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
        let pool = outside(pool)?;
        let raw = pool.view_raw(RawPtr::from_word(pointer))?;
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
        view.set(holdfast_view { id: VIEWS.add(Entry { view: raw, pool }) });
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
