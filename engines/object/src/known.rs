//! Reads of what was verified before: nearly all of them, and so the shortest way there is.
//!
//! Nothing is judged here. A read goes through if everything is as it is nearly always: the object
//! is where the pointer says, nobody changed it since the transaction began, its granules were
//! verified in this generation, its slot has the type and length asked for. Else the answer is
//! `None`, and [`Tx`] reads again the long way, which finds out what is the matter.
//!
//! All addresses follow from the pointer: that of the bytes, of the slot, of the version word and
//! of what was verified. So the processor asks memory for all of them at once, and for what the
//! bytes lead to, before any of the checks is through.

use holdfast_heap::format::{SLOT_LEN, STATE_LIVE};
use holdfast_heap::{ChunkKind, Slot, ZoneTable};
use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_pmem::Medium;

use crate::lane::Work;
use crate::options::VerifyReads;
use crate::shared::Shared;
use crate::tx::Tx;

impl<M: Medium> Tx<'_, M> {
    /// Copies bytes `[from, from + into.len())` of a committed object, if there is nothing to be
    /// found out about it first. `typed` is the type and length it must have.
    #[inline(always)]
    pub(crate) fn read_known(
        &self,
        work: &mut Work,
        of: RawPtr,
        from: u64,
        into: &mut [u8],
        typed: Option<(TypeNumber, u64)>,
    ) -> Option<()> {
        let shared = self.shared;
        if shared.verify_reads() != VerifyReads::FirstTouch {
            return None;
        }
        let (object, generation) = (of.offset(), of.generation());
        let word = shared.versions.index(object);
        let version = shared.versions.now(word)?;
        let zone = zone_of(shared, object)?;
        let (slot_at, capacity) = find(zone, object)?;
        let end = from.checked_add(into.len() as u64)?;
        // Capacity first, so that no granule is asked about that lies outside.
        if version.number() >= work.sees_below
            || into.is_empty()
            || end > capacity
            || !shared.touched.all(zone, object, from..end, generation)
        {
            return None;
        }
        let mut bytes = [0; SLOT_LEN];
        shared.m.read(slot_at, &mut bytes).ok()?;
        let slot = Slot::decode(&bytes);
        let len = u64::from(slot.len);
        let fits = slot.state == STATE_LIVE
            && slot.generation == generation
            && len <= capacity
            && end <= len
            && typed.is_none_or(|(of, whole)| of.0 == slot.type_number && whole == len);
        if !fits {
            return None;
        }
        shared.m.read(object + from, into).ok()?;
        if !shared.versions.unchanged(word, version) {
            return None;
        }
        work.reads.push((word, version));
        Some(())
    }
}

/// The zone whose data holds `at`.
#[inline(always)]
fn zone_of<M: Medium>(shared: &Shared<M>, at: u64) -> Option<&ZoneTable> {
    // Most pools have one.
    let first = shared.heap.zone(0)?;
    if first.contains(at) { Some(first) } else { shared.heap.zone_of(at) }
}

/// Slot and bytes of the place of an object in a run.
#[inline(always)]
fn find(zone: &ZoneTable, object: u64) -> Option<(u64, u64)> {
    let chunk = zone.chunk_of(object)?;
    let entry = zone.entry(chunk).filter(|entry| entry.kind == ChunkKind::Run)?;
    let shape = zone.shape(entry.class)?;
    let past = ((object - zone.chunk_at(chunk)) as u32).checked_sub(shape.objects)?;
    let place = past.checked_div(shape.size)?;
    if place * shape.size != past || place >= shape.places {
        return None;
    }
    let spot = zone.spot(chunk, &entry, &shape, place);
    Some((spot.slot, spot.capacity))
}
