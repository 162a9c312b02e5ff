//! Refusals of a transaction that rest on what the medium says of an object: they count only if
//! that can be relied on. What is verified is what was read: the same place, read once more, may
//! have been repaired in between, and a repair changes no version.

use holdfast_heap::format::{CHUNK_LEN, SLOT_LEN, STATE_LIVE};
use holdfast_heap::verify::{Direct, Overlay, check_granule, read_slot};
use holdfast_heap::{Slot, Spot};
use holdfast_layout::{Certify, RawPtr};
use holdfast_pmem::{Medium, Site};
use holdfast_txn::{Result, TxError};

use crate::bring_back::Doubtful;
use crate::tx::{Seen, Tx, damaged};

/// Verifying a slot before anything is refused for what it says.
const VERIFY_SLOT: Site = Site::new("object.judged.verify-slot");
/// A slot was read that is to be verified.
const STEP_READ: Site = Site::new("object.judged.step-read");

impl<M: Medium> Tx<'_, M> {
    pub(crate) fn dangling(of: RawPtr) -> TxError {
        TxError::Dangling { pointer: of }
    }

    /// What a pointer to a place that the directory does not know is: dangling, if parity bears
    /// the directory out. Else it is damage, and in doubt if that cannot be settled, as with slots:
    /// see `judge_slot`.
    #[cold]
    pub(crate) fn without_place(&self, of: RawPtr) -> TxError {
        let shared = self.shared;
        let entries = match shared.doubtful_entries(of.offset()) {
            Ok(entries) => entries,
            Err(conflict) => return conflict,
        };
        match entries.first() {
            Some((at, doubtful)) => Self::doubt(of, (*at, CHUNK_LEN as u64), *doubtful),
            // Whoever restored the entry has made it known.
            None if shared.heap.locate(of.offset()).is_some() => TxError::Conflict,
            None => Self::dangling(of),
        }
    }

    /// That a place is damaged, until that was tried to be settled in vain: then what `of` names by
    /// it is in doubt. What is not left so is held by somebody, and tried again.
    fn doubt(of: RawPtr, (at, len): (u64, u64), doubtful: Doubtful) -> TxError {
        match doubtful {
            Doubtful::Unsettled => TxError::InDoubt { pointer: of },
            Doubtful::Untried => TxError::Damaged { at, len },
        }
    }

    /// Whether the slot is of the object the pointer names.
    fn names(of: RawPtr, slot: &Slot, spot: &Spot) -> Result<()> {
        let good = slot.state == STATE_LIVE
            && slot.generation == of.generation()
            && u64::from(slot.len) <= spot.capacity;
        if good { Ok(()) } else { Err(Self::dangling(of)) }
    }

    /// A slot that does not fit the pointer: a stale pointer if the slot verifies, else damage. A
    /// slot that is of another object may be an older one, whose last write was lost: if its
    /// columns do not add up, that is damage as well, and in doubt if that cannot be settled.
    /// (Freed slots keep the generation of their object, so most stale pointers are known for what
    /// they are.)
    #[inline]
    pub(crate) fn judge_slot(&self, seen: &Seen<'_>, of: RawPtr, slot: &Slot) -> Result<()> {
        let Err(dangling) = Self::names(of, slot, &seen.spot) else { return Ok(()) };
        self.verify_slot(seen, slot)?;
        if slot.generation == of.generation() {
            return Err(dangling);
        }
        let (at, len) = (seen.spot.slot, SLOT_LEN as u64);
        if let Some(doubtful) = self.shared.doubtful(at, len)? {
            return Err(Self::doubt(of, (at, len), doubtful));
        }
        // Its columns may add up because the older one was put right in between.
        let now = read_slot(&Direct(&self.shared.m), &seen.spot).map_err(damaged)?;
        Err(if now == *slot { dangling } else { TxError::Conflict })
    }

    /// A refusal that rests on what a slot says counts only if the slot verifies.
    #[inline]
    pub(crate) fn confirm(&self, seen: &Seen<'_>, slot: &Slot, answer: Result<()>) -> Result<()> {
        let Err(error) = answer else { return Ok(()) };
        self.verify_slot(seen, slot)?;
        Err(error)
    }

    /// Verifies a slot, as it was read: what lies there by now may be its repair. The sum of the
    /// first granule covers both.
    pub(crate) fn verify_slot(&self, seen: &Seen<'_>, slot: &Slot) -> Result<()> {
        self.shared.m.step(STEP_READ);
        let (direct, bytes) = (Direct(&self.shared.m), slot.encode());
        let found = check_granule(
            &Overlay { under: &direct, at: seen.spot.slot, bytes: &bytes },
            self.shared.heap.sums(),
            &seen.spot,
            0,
            Certify::when(self.shared.m.enabled(VERIFY_SLOT)),
        )
        .map_err(damaged)?;
        if found.is_bad() {
            return Err(TxError::Damaged { at: seen.spot.slot, len: SLOT_LEN as u64 });
        }
        Ok(())
    }
}
