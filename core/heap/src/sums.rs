//! Sums of objects: seeded with pool, address, generation, type and length, so that bytes of
//! another object, an older object, or another place do not verify (lost and misdirected writes).
//!
//! Checksums are linear: what turns one object into another state of it that verifies would turn
//! every object of its shape into something that verifies. What is stored is therefore the
//! checksum after a bijection that is not linear (`mix`). Then a difference between rows and
//! parity belongs to the one object whose other state verifies with it.

use holdfast_codes::{adler32, adler32_patch, crc32c, crc32c_patch, crc32c_u64};
use holdfast_layout::bytes::{get_u16, get_u32, put_u16, put_u32};
use holdfast_layout::{Certify, SumKind};

use crate::format::{CHUNK_LEN, GRANULE, SLOT_LEN, STATE_FREE, STATE_LIVE};

/// Numbers of writes that a slot can tell apart: it has 15 bits for them.
pub const WRITES: u16 = 1 << 15;

/// A slot, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slot {
    /// Sum of the first granule and of the other fields; of the fields alone if free.
    pub sum: u32,
    /// Generation of the object; pointers carry it.
    pub generation: u16,
    /// `STATE_FREE` or `STATE_LIVE`.
    pub state: u8,
    /// Times that the slot was written for the sake of its object's bytes, modulo
    /// [`WRITES`]: it tells which of two states of one object is the newer.
    pub writes: u16,
    /// Type number of the object.
    pub type_number: u32,
    /// Length of the object in bytes.
    pub len: u32,
}

impl Slot {
    /// From its bytes.
    #[inline]
    #[must_use]
    pub fn decode(bytes: &[u8; SLOT_LEN]) -> Self {
        Self {
            sum: get_u32(bytes, 0),
            generation: get_u16(bytes, 4),
            state: bytes[6] & 1,
            writes: get_u16(bytes, 6) >> 1,
            type_number: get_u32(bytes, 8),
            len: get_u32(bytes, 12),
        }
    }

    /// Its bytes.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; SLOT_LEN] {
        let mut bytes = [0; SLOT_LEN];
        put_u32(&mut bytes, 0, self.sum);
        put_u16(&mut bytes, 4, self.generation);
        put_u16(&mut bytes, 6, self.writes << 1 | u16::from(self.state));
        put_u32(&mut bytes, 8, self.type_number);
        put_u32(&mut bytes, 12, self.len);
        bytes
    }

    /// Whether it holds an object.
    #[inline]
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.state == STATE_LIVE
    }

    /// The slot with the next number of writes.
    #[inline]
    #[must_use]
    pub fn written(&self) -> Self {
        Self { writes: (self.writes + 1) % WRITES, ..*self }
    }

    /// The slot after its object was freed: the generation stays, so that the next object of
    /// this place gets another one.
    #[inline]
    #[must_use]
    pub fn freed(&self) -> Self {
        Self { generation: self.generation, state: STATE_FREE, ..Self::default() }
    }
}

/// How sums are computed in one pool.
#[derive(Debug, Clone, Copy)]
pub struct Sums {
    seed: u32,
    kind: SumKind,
}

impl Sums {
    /// Sums of `kind` in the pool whose seed is `seed`.
    #[must_use]
    pub const fn new(seed: u32, kind: SumKind) -> Self {
        Self { seed, kind }
    }

    /// Whether objects are checked at all.
    #[inline]
    #[must_use]
    pub fn active(&self) -> bool {
        self.kind != SumKind::None
    }

    #[inline]
    fn header_seed(&self, object: u64, slot: &Slot, granule: u64) -> u32 {
        let first = u64::from(slot.generation)
            | u64::from(slot.state) << 16
            | u64::from(slot.type_number) << 32;
        let second = u64::from(slot.len) | granule << 32;
        crc32c_u64(crc32c_u64(crc32c_u64(self.seed, object), first), second)
    }

    /// Sum of granule number `granule` of the object at `object` described by `slot`, whose
    /// bytes are `bytes`. Zero where sums are off.
    #[inline]
    #[must_use]
    pub fn granule(&self, object: u64, slot: &Slot, granule: u64, bytes: &[u8]) -> u32 {
        let seed = self.header_seed(object, slot, granule);
        let plain = match self.kind {
            SumKind::Crc32c => crc32c(seed, bytes),
            SumKind::Adler32 => adler32(adler_seed(seed), bytes),
            SumKind::None => return 0,
        };
        self.stored(plain, slot, granule)
    }

    /// What is stored for the checksum `plain` of a granule.
    #[inline]
    #[must_use]
    pub fn stored(&self, plain: u32, slot: &Slot, granule: u64) -> u32 {
        if self.active() { mix(plain ^ spread(slot, granule)) } else { 0 }
    }

    /// The checksum of a granule for which `stored` is stored: what [`patch`](Self::patch) starts
    /// from.
    #[inline]
    #[must_use]
    pub fn plain(&self, stored: u32, slot: &Slot, granule: u64) -> u32 {
        unmix(stored) ^ spread(slot, granule)
    }

    /// The checksum after `old` bytes at the end of which `tail` more bytes of the granule follow
    /// became `new`; `delta` is their XOR. Costs what the range costs, not the granule.
    #[inline]
    #[must_use]
    pub fn patch(&self, plain: u32, old: &[u8], new: &[u8], delta: &[u8], tail: usize) -> u32 {
        match self.kind {
            SumKind::Crc32c => crc32c_patch(plain, delta, tail),
            SumKind::Adler32 => adler32_patch(plain, old, new, tail),
            SumKind::None => 0,
        }
    }

    /// Sum of a slot without an object.
    #[inline]
    #[must_use]
    pub fn free_slot(&self, object: u64, slot: &Slot) -> u32 {
        self.granule(object, slot, 0, &[])
    }

    /// Whether a free slot is as it was written.
    #[must_use]
    pub fn free_slot_good(&self, object: u64, slot: &Slot, certify: Certify) -> bool {
        !self.active() || certify.agrees(slot.sum, self.free_slot(object, slot))
    }

    /// The slot of the object place `object` when its run is formatted. Free slots carry sums
    /// like others: were zeros a valid slot, an object whose slot was wiped out would pass for
    /// one that never was. `chunk_generation` makes generations differ from the chunk's last life.
    #[must_use]
    pub fn first_slot(&self, object: u64, chunk_generation: u16) -> Slot {
        let generation = chunk_generation.wrapping_mul(0x6d2b);
        let mut slot = Slot { generation, state: STATE_FREE, ..Slot::default() };
        slot.sum = self.free_slot(object, &slot);
        slot
    }

    /// Sum of a directory entry at `at`; always CRC-32C, since entries decide what bytes mean.
    #[must_use]
    pub fn chunk_entry(&self, at: u64, entry: &[u8; CHUNK_LEN]) -> u32 {
        mix(crc32c(crc32c_u64(self.seed, at), &entry[4..]))
    }
}

/// What the number of writes adds to the checksum of the first granule. It is not among what the
/// checksum starts from: then it could not change without all that follows. Sums of further
/// granules do not know of it, as they are not written with it.
#[inline]
fn spread(slot: &Slot, granule: u64) -> u32 {
    if granule == 0 { u32::from(slot.writes).wrapping_mul(SPREAD) } else { 0 }
}

/// Odd: each number of writes adds something else.
const SPREAD: u32 = 0x85eb_ca6b;

/// Odd, and without a pattern in its bits: the high half of each product depends on all bits below.
const MIX: u32 = 0x9e37_79b1;
/// `MIX * UNMIX` is 1.
const UNMIX: u32 = 0x0e8b_2f51;

/// From a checksum to what is stored: a bijection under which the XOR of two values says next to
/// nothing about the XOR of their images. The first shift brings the high bits down, since a
/// product carries upwards only.
#[inline]
const fn mix(sum: u32) -> u32 {
    let sum = (sum ^ sum >> 16).wrapping_mul(MIX);
    sum ^ sum >> 16
}

/// What [`mix`] makes this of.
#[inline]
const fn unmix(stored: u32) -> u32 {
    let sum = (stored ^ stored >> 16).wrapping_mul(UNMIX);
    sum ^ sum >> 16
}

const _: () = assert!(MIX.wrapping_mul(UNMIX) == 1, "what is mixed can be had back");

/// An Adler-32 state both of whose halves are below the modulus, mixed from a 32-bit seed.
fn adler_seed(seed: u32) -> u32 {
    let low = (seed & 0xffff) % 65_521;
    let high = (seed >> 16) % 65_521;
    high << 16 | low
}

/// Number of granules of an object of `len` bytes; an empty object has one.
#[inline]
#[must_use]
pub fn granules(len: u64) -> u64 {
    len.div_ceil(GRANULE).max(1)
}

/// First byte and length of a granule of an object of `len` bytes.
#[inline]
#[must_use]
pub fn granule_range(granule: u64, len: u64) -> (u64, u64) {
    let start = (granule * GRANULE).min(len);
    (start, (len - start).min(GRANULE))
}
