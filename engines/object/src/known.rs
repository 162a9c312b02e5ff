//! Reads that find everything as it is nearly always: nearly all of them, and so the shortest way
//! there is.
//!
//! Nothing is judged here. A read goes through if the object is where the pointer says, nobody
//! changed it since the counter was looked at, its granules were verified in this generation or
//! verify at once, its slot has the type and length asked for. Else the answer is `None`, and
//! [`Tx`] reads again the long way, which finds out what is the matter.
//!
//! All addresses follow from the pointer: that of the bytes, of the slot, of the version word and
//! of what was verified. So the processor asks memory for all of them at once, and for what the
//! bytes lead to, before any of the checks is through.

use core::ops::Range;

use holdfast_heap::format::{GRANULE, SLOT_LEN, STATE_LIVE};
use holdfast_heap::{ChunkKind, Slot, Spot, ZoneTable};
use holdfast_layout::{Certify, RawPtr, TypeNumber};
use holdfast_pmem::{Medium, Site};

use crate::lane::Work;
use crate::options::VerifyReads;
use crate::shared::Shared;
use crate::tx::Tx;
use crate::versions::Version;

/// Verifying an object that nobody has read yet.
const VERIFY: Site = Site::new("object.known.verify");

/// Bytes of an object of unknown length that are asked for ahead.
const FETCHED: u64 = 128;
/// The same of an object that is to be changed: a granule, which is verified as a whole. More is
/// left to the hardware, which sees by then where it goes.
const FETCHED_TO_CHANGE: u64 = GRANULE;

/// What is known of an object before its bytes are looked at.
struct Known<'z> {
    zone: &'z ZoneTable,
    slot: Slot,
    word: u32,
    version: Version,
}

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
        let known = self.know(work, of)?;
        let len = u64::from(known.slot.len);
        let end = from.checked_add(into.len() as u64).filter(|end| *end <= len)?;
        if typed.is_some_and(|(of, whole)| of.0 != known.slot.type_number || whole != len) {
            return None;
        }
        self.copy_known(work, of, from..end, into, &known)
    }

    /// The same for the start of an object, as much as there is room for. Answers its length.
    #[inline(always)]
    pub(crate) fn start_known(&self, work: &mut Work, of: RawPtr, into: &mut [u8]) -> Option<u64> {
        // How much there is to copy, the slot tells: without this the bytes would wait for it.
        self.shared.m.prefetch(of.offset(), FETCHED.min(into.len() as u64));
        let known = self.know(work, of)?;
        let len = u64::from(known.slot.len);
        let held = len.min(into.len() as u64);
        self.copy_known(work, of, 0..held, &mut into[..held as usize], &known)?;
        Some(len)
    }

    /// Asks for the lines that a change of `[from, end)` of an object will need: slot, bytes, and
    /// parity of both. They arrive side by side: read one after the other, each would wait for what
    /// the one before says.
    #[inline]
    pub(crate) fn fetch(&self, spot: &Spot, from: u64, end: u64) {
        let m = &self.shared.m;
        let (object, len) =
            (spot.object + from, end.clamp(from + 1, from + FETCHED_TO_CHANGE) - from);
        m.prefetch(spot.slot, 1);
        m.prefetch(object, len);
        let Some(zone) = self.shared.zone(spot.zone.into()).filter(|z| z.has_p()) else {
            return;
        };
        let (Some(slot), Some(object)) = (zone.place(spot.slot), zone.place(object)) else {
            return;
        };
        m.prefetch(zone.p_at(slot.col), 1);
        m.prefetch(zone.p_at(object.col), len);
        if zone.has_q() {
            m.prefetch(zone.q_at(slot.col), 1);
            m.prefetch(zone.q_at(object.col), len);
        }
    }

    /// The slot of an object that this transaction may see.
    #[inline(always)]
    fn know(&self, work: &Work, of: RawPtr) -> Option<Known<'_>> {
        let shared = self.shared;
        if shared.verify_reads() == VerifyReads::Always {
            return None;
        }
        let object = of.offset();
        let word = shared.versions.index(object);
        let version = shared.versions.now(word)?;
        let zone = zone_of(shared, object)?;
        let (slot_at, capacity) = find(zone, object)?;
        let mut bytes = [0; SLOT_LEN];
        shared.m.read(slot_at, &mut bytes).ok()?;
        let slot = Slot::decode(&bytes);
        let fits = version.number() < work.sees_below
            && slot.state == STATE_LIVE
            && slot.generation == of.generation()
            && u64::from(slot.len) <= capacity;
        fits.then_some(Known { zone, slot, word, version })
    }

    /// Copies a range that lies in the object, if all granules of it were verified or can be now.
    #[inline(always)]
    fn copy_known(
        &self,
        work: &mut Work,
        of: RawPtr,
        range: Range<u64>,
        into: &mut [u8],
        known: &Known<'_>,
    ) -> Option<()> {
        let shared = self.shared;
        if range.is_empty() {
            return None;
        }
        let object = of.offset();
        let from = object + range.start;
        let verified = shared.touched.all(known.zone, object, range, known.slot.generation);
        shared.m.read(from, into).ok()?;
        if (!verified && !self.passes(object, into, known))
            || !shared.versions.unchanged(known.word, known.version)
        {
            return None;
        }
        work.reads.push((known.word, known.version));
        Some(())
    }

    /// Whether an object of one granule that was copied whole verifies now, or nothing has to.
    #[inline(never)]
    fn passes(&self, object: u64, bytes: &[u8], known: &Known<'_>) -> bool {
        let shared = self.shared;
        let (sums, slot) = (shared.heap.sums(), &known.slot);
        if !sums.active() || shared.verify_reads() == VerifyReads::Never {
            return true;
        }
        let whole = bytes.len() as u64 == u64::from(slot.len) && bytes.len() as u64 <= GRANULE;
        let good = whole
            && Certify::when(shared.m.enabled(VERIFY))
                .agrees(slot.sum, sums.granule(object, slot, 0, bytes));
        if good {
            self.lane.count_verified(1);
        }
        // What changed meanwhile may verify by chance: nothing is noted of it.
        if good && shared.versions.unchanged(known.word, known.version) {
            shared.touched.set(known.zone, object, 0, slot.generation);
        }
        good
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
