//! An object of any type borrowed in place: for code in other languages.

use holdfast_heap::Slot;
use holdfast_heap::format::GRANULE;
use holdfast_heap::verify::{Direct, read_slot};
use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_pmem::Medium;
use holdfast_txn::{Transaction, TxError};

use crate::error::Error;
use crate::pool::Pool;
use crate::versions::Pinned;

/// An object in place. While it lives, commits that would change the object are run again later,
/// and the pool stays open.
#[derive(Debug)]
pub struct RawView<M: Medium> {
    pool: Pool<M>,
    word: u32,
    at: u64,
    slot: Slot,
}

impl<M: Medium> Pool<M> {
    /// Borrows an object of any type in place; see [`view`](Self::view).
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub fn view_raw(&self, of: RawPtr) -> Result<RawView<M>, Error> {
        let shared = &*self.shared;
        let word = shared.versions.index(of.offset());
        loop {
            // Verified (as the policy says) and checked for life by ordinary reads.
            self.run(|tx| {
                let len = tx.len_of(of)?;
                let mut bytes = [0; GRANULE as usize];
                for from in (0..len).step_by(GRANULE as usize) {
                    tx.read_bytes(of, from, &mut bytes[..(len - from).min(GRANULE) as usize])?;
                }
                Ok(())
            })?;
            let version = match shared.versions.pin(word) {
                Pinned::At(version) => version,
                Pinned::Held => {
                    holdfast_sync::thread::yield_now();
                    continue;
                }
                Pinned::Full => return Err(TxError::TooManyViews { object: of }.into()),
            };
            let mut view =
                RawView { pool: self.clone(), word, at: of.offset(), slot: Slot::default() };
            // Between the reads and the pin the object may have been freed or replaced.
            let Some(spot) = shared.heap.locate(view.at) else { continue };
            let slot = read_slot(&Direct(&shared.m), &spot)?;
            let same = slot.is_live()
                && slot.generation == of.generation()
                && u64::from(slot.len) <= spot.capacity;
            if same && shared.versions.unchanged(word, version) {
                if shared.m.view(view.at, slot.len.into()).is_none() {
                    return Err(TxError::Dangling { pointer: of }.into());
                }
                view.slot = slot;
                return Ok(view);
            }
        }
    }
}

impl<M: Medium> RawView<M> {
    /// Address of the object's first byte, valid for [`len`](Self::len) bytes while this lives.
    #[must_use]
    pub fn address(&self) -> *const u8 {
        let view = self.pool.shared.m.view(self.at, self.slot.len.into());
        view.map_or(core::ptr::null(), |start| start)
    }

    /// Bytes of the object.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.slot.len.into()
    }

    /// Whether the object has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slot.len == 0
    }

    /// Type number of the object.
    #[must_use]
    pub fn type_number(&self) -> TypeNumber {
        TypeNumber(self.slot.type_number)
    }
}

impl<M: Medium> Drop for RawView<M> {
    fn drop(&mut self) {
        self.pool.shared.versions.unpin(self.word);
    }
}
