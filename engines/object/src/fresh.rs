//! Objects that do not exist yet: a place from the heap, a slot to be, private copies to fill.

use holdfast_heap::format::{SLOT_LEN, STATE_LIVE};
use holdfast_heap::sums::granules;
use holdfast_heap::verify::{Direct, read_slot};
use holdfast_heap::{ReserveError, Slot, Spot};
use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_pmem::Medium;
use holdfast_redundancy::events::{Cause, Finder};
use holdfast_txn::{Result, TxError};

use crate::lane::{Fate, Piece, Work};
use crate::tx::{Tx, damaged};

impl<M: Medium> Tx<'_, M> {
    /// Reserves a place and makes the copies of a fresh object: `new` holds `bytes`, or zeros, and
    /// `old` what the free place holds now.
    pub(crate) fn fresh(&self, of: TypeNumber, len: u64, bytes: Option<&[u8]>) -> Result<RawPtr> {
        let shared = self.shared;
        if shared.is_read_only() {
            return Err(TxError::ReadOnly);
        }
        let mut work = self.work();
        let (spot, before, copies, found_at) = loop {
            let spot = self.reserve(&mut work, len)?;
            // Of a place, too, a lost write may be brought back: what is read now has to hold.
            let Some(version) = shared.versions.read(shared.versions.index(spot.object)) else {
                shared.heap.release(&mut work.cache, &spot);
                return Err(TxError::Conflict);
            };
            let mut arena = self.lane.arena.borrow_mut();
            let copies = arena.make(len as usize);
            let Some((old, new)) = arena.both_mut(copies) else { return Err(TxError::Conflict) };
            match bytes {
                Some(bytes) => new.copy_from_slice(bytes),
                None => new.fill(0),
            }
            let read = shared.m.read(spot.object, old);
            match read.and_then(|()| read_slot(&Direct(&shared.m), &spot)) {
                // The first use of chunks of its own: whatever lies where the slot will be.
                Ok(slot) if spot.class == Spot::LARGE || !slot.is_live() => {
                    break (spot, slot, copies, version);
                }
                // The write that freed it was lost. It is looked after once this transaction is
                // through; until the next open nobody is given the place.
                Ok(_) => shared.suspect(spot.slot, SLOT_LEN as u64, Cause::Parity, Finder::Change),
                Err(error) => {
                    shared.heap.release(&mut work.cache, &spot);
                    return Err(damaged(error));
                }
            }
        };
        let generation = crate::newer::next_generation(&spot, &before);
        let after = Slot {
            sum: 0,
            generation,
            state: STATE_LIVE,
            writes: 0,
            type_number: of.0,
            len: len as u32,
        };
        if len > shared.inline_max {
            work.freed_before = work.freed_before.max(shared.last_freed());
        }
        work.add(Piece {
            spot,
            before,
            after,
            first: 0,
            count: granules(len),
            copies,
            fate: Fate::Fresh,
            sums: 0,
            version: None,
            found_at: Some(found_at),
        });
        Ok(RawPtr::new(spot.object, generation))
    }

    fn reserve(&self, work: &mut Work, len: u64) -> Result<Spot> {
        loop {
            match self.shared.heap.reserve(&self.shared.m, &mut work.cache, len) {
                Ok(spot) => {
                    if spot.class == Spot::LARGE {
                        self.shared.await_owed();
                    }
                    return Ok(spot);
                }
                Err(ReserveError::NeedRun { class }) => self.shared.format_run(class)?,
                Err(ReserveError::TooLarge { limit }) => {
                    return Err(TxError::TooLarge { wanted: len, limit });
                }
                Err(ReserveError::NoSpace) => {
                    // Runs that became empty may give the chunks that are missing.
                    if !self.shared.recycle_run()? {
                        return Err(TxError::NoSpace { wanted: len });
                    }
                }
                Err(ReserveError::Damaged(error)) => return Err(damaged(error)),
            }
        }
    }
}
