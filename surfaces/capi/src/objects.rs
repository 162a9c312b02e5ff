//! Objects in a transaction: allocated, opened, read, changed, freed; and the root.

use core::ffi::{c_char, c_void};

use holdfast::{RawPtr, Transaction, Tx, TxError, TxResult, TypeNumber};

use crate::border::{Done, Fail, Place, border, bytes, holdfast_code, room, text};
use crate::tx::{Entry, entry, holdfast_tx};

/// A pointer into a pool: 48 bits of offset, 16 of generation. 0 names nothing. Plain data: it
/// may be stored in objects, and names the same object as long as the pool lives.
pub type holdfast_ptr = u64;

/// Number of the type called `name`, in its `version`: what to give to `holdfast_tx_alloc`, so
/// that objects are not taken for what they are not. 0 if `name` is null or no text.
///
/// # Safety
/// `name` is null or a text with a zero at its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_type(name: *const c_char, version: u32) -> u32 {
    let mut number = 0;
    border(|| {
        // SAFETY: as the caller vouches.
        number = TypeNumber::of_name(unsafe { text(name, "the name")? }, version).0;
        Ok(())
    });
    number
}

/// Checks the type of an object; 0 takes any.
fn expect_type(tx: &Tx<'_>, of: RawPtr, wanted: u32) -> TxResult<()> {
    if wanted == 0 {
        return Ok(());
    }
    let found = tx.type_of(of)?;
    if found.0 == wanted {
        return Ok(());
    }
    Err(TxError::WrongType { object: of, wanted: TypeNumber(wanted), found })
}

impl Entry {
    /// A part that uses an object through the engine: while it lasts, the program's loan of the
    /// private copy is off. Its address stays the same.
    fn on_object<R>(
        &self,
        changes: bool,
        of: RawPtr,
        part: impl FnOnce(&Tx<'_>) -> TxResult<R>,
    ) -> Done<R> {
        let lent = self.opened.borrow().contains_key(&of);
        self.part(changes, |tx| {
            if !lent {
                return part(tx);
            }
            tx.close_raw(of);
            let answer = part(tx);
            tx.open_raw(of)?;
            answer
        })
    }

    /// Whether memory of the program is a private copy that was lent to it: the engine must not
    /// copy between that and itself.
    fn is_lent(&self, bytes: &[u8]) -> bool {
        let (from, end) = (bytes.as_ptr().addr(), bytes.as_ptr().addr() + bytes.len());
        let opened = self.opened.borrow();
        opened.values().any(|(at, len)| from < at.addr() + *len as usize && at.addr() < end)
    }

    /// The private copy of an object, opened if need be.
    fn open(&self, of: RawPtr, wanted: u32) -> Done<(*mut u8, u64)> {
        let known = self.opened.borrow().get(&of).copied();
        let copy = self.part(true, |tx| {
            expect_type(tx, of, wanted)?;
            known.map_or_else(|| tx.open_raw(of), Ok)
        })?;
        self.opened.borrow_mut().insert(of, copy);
        Ok(copy)
    }
}

/// Allocates an object of `len` zero bytes of a type (see `holdfast_type`; 0 is plain bytes). If
/// `address` is not null, the private copy is opened as by `holdfast_tx_open`.
///
/// # Safety
/// `pointer` is null or points to a `holdfast_ptr`, `address` is null or points to a `void *`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_alloc(
    tx: holdfast_tx,
    len: u64,
    type_number: u32,
    pointer: *mut holdfast_ptr,
    address: *mut *mut c_void,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let pointer = unsafe { Place::new(pointer, "the place for the pointer")? };
        pointer.set(0);
        let address = if address.is_null() {
            None
        } else {
            // SAFETY: as the caller vouches.
            Some(unsafe { Place::new(address, "the place for the address")? })
        };
        if len == 0 {
            return Err(Fail::invalid("an object has at least one byte"));
        }
        let entry = entry(tx)?;
        let of = if type_number == 0 { TypeNumber::BYTES } else { TypeNumber(type_number) };
        let object = entry.part(true, |tx| tx.alloc_bytes(of, len))?;
        if let Some(address) = address {
            address.set(entry.open(object, 0)?.0.cast());
        }
        pointer.set(object.word());
        Ok(())
    })
}

/// Frees an object once the transaction commits. The address of its private copy is void.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_tx_free(tx: holdfast_tx, pointer: holdfast_ptr) -> holdfast_code {
    border(|| {
        let (entry, of) = (entry(tx)?, RawPtr::from_word(pointer));
        entry.part(true, |tx| {
            tx.close_raw(of);
            tx.free(of)
        })?;
        entry.opened.borrow_mut().remove(&of);
        Ok(())
    })
}

/// Opens an object for change: `address` is a private copy of all of it, verified, of the same
/// address as long as the transaction is under way. What is stored there is committed.
/// `type_number` 0 takes any type. `len` may be null.
///
/// # Safety
/// `address` is null or points to a `void *`, `len` is null or points to a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_open(
    tx: holdfast_tx,
    pointer: holdfast_ptr,
    type_number: u32,
    address: *mut *mut c_void,
    len: *mut u64,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let address = unsafe { Place::new(address, "the place for the address")? };
        address.set(core::ptr::null_mut());
        let (start, bytes) = entry(tx)?.open(RawPtr::from_word(pointer), type_number)?;
        if !len.is_null() {
            // SAFETY: as the caller vouches.
            unsafe { Place::new(len, "the place for the length")? }.set(bytes);
        }
        address.set(start.cast());
        Ok(())
    })
}

/// Opens an object for a change of `len` bytes from byte `from` on; `address` is where those are
/// in the private copy. The whole object is copied: for a small change of a large object,
/// `holdfast_tx_write` is faster. In a pool opened with `check_ranges`, a change outside of all
/// ranges added of an object is an error of the commit.
///
/// # Safety
/// `address` is null or points to a `void *`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_add_range(
    tx: holdfast_tx,
    pointer: holdfast_ptr,
    from: u64,
    len: u64,
    address: *mut *mut c_void,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let address = unsafe { Place::new(address, "the place for the address")? };
        address.set(core::ptr::null_mut());
        let (entry, of) = (entry(tx)?, RawPtr::from_word(pointer));
        let (start, whole) = entry.open(of, 0)?;
        let end = from.saturating_add(len);
        let start = entry.part(true, |tx| {
            if end > whole {
                return Err(TxError::OutOfBounds { object: of, end, len: whole });
            }
            tx.declare(of, from, end);
            Ok(start.wrapping_add(from as usize))
        })?;
        address.set(start.cast());
        Ok(())
    })
}

/// Copies `len` bytes of an object, from byte `from` on, as the transaction sees them.
///
/// # Safety
/// `into` is null or points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_read(
    tx: holdfast_tx,
    pointer: holdfast_ptr,
    from: u64,
    into: *mut c_void,
    len: usize,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let into = unsafe { room(into, len, "the room for the bytes")? };
        let of = RawPtr::from_word(pointer);
        let entry = entry(tx)?;
        if !entry.is_lent(into) {
            return entry.on_object(false, of, |tx| tx.read_bytes(of, from, into));
        }
        let mut apart = vec![0; into.len()];
        entry.on_object(false, of, |tx| tx.read_bytes(of, from, &mut apart))?;
        into.copy_from_slice(&apart);
        Ok(())
    })
}

/// Changes `len` bytes of an object, from byte `from` on. Only the kilobytes concerned are copied.
///
/// # Safety
/// `bytes` is null or points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_write(
    tx: holdfast_tx,
    pointer: holdfast_ptr,
    from: u64,
    bytes: *const c_void,
    len: usize,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let new = unsafe { self::bytes(bytes, len, "the bytes to write")? };
        let of = RawPtr::from_word(pointer);
        let entry = entry(tx)?;
        let apart = entry.is_lent(new).then(|| new.to_vec());
        let new = apart.as_deref().unwrap_or(new);
        entry.on_object(true, of, |tx| {
            tx.declare(of, from, from.saturating_add(new.len() as u64));
            tx.write_bytes(of, from, new)
        })
    })
}

/// Tells length and type of an object. Either place may be null.
///
/// # Safety
/// `len` is null or points to a `uint64_t`, `type_number` is null or points to a `uint32_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_stat(
    tx: holdfast_tx,
    pointer: holdfast_ptr,
    len: *mut u64,
    type_number: *mut u32,
) -> holdfast_code {
    border(|| {
        let of = RawPtr::from_word(pointer);
        let found = entry(tx)?.part(false, |tx| Ok((tx.len_of(of)?, tx.type_of(of)?)))?;
        if !len.is_null() {
            // SAFETY: as the caller vouches.
            unsafe { Place::new(len, "the place for the length")? }.set(found.0);
        }
        if !type_number.is_null() {
            // SAFETY: as the caller vouches.
            unsafe { Place::new(type_number, "the place for the type")? }.set(found.1.0);
        }
        Ok(())
    })
}

/// Tells the pool's root object, 0 if none was set.
///
/// # Safety
/// `pointer` is null or points to a `holdfast_ptr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_root(
    tx: holdfast_tx,
    pointer: *mut holdfast_ptr,
) -> holdfast_code {
    border(|| {
        // SAFETY: as the caller vouches.
        let pointer = unsafe { Place::new(pointer, "the place for the pointer")? };
        pointer.set(entry(tx)?.part(false, |tx| tx.raw_root())?.word());
        Ok(())
    })
}

/// Makes an object the pool's root: where a program starts from. 0 unsets it.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_tx_set_root(tx: holdfast_tx, pointer: holdfast_ptr) -> holdfast_code {
    border(|| {
        let of = RawPtr::from_word(pointer);
        entry(tx)?.part(true, |tx| {
            if !of.is_null() {
                tx.len_of(of)?;
            }
            tx.set_raw_root(of)
        })
    })
}
