//! Which certified units lie over a range of bytes: what a repair of the range must satisfy.

use holdfast_layout::Certify;
use holdfast_pmem::MediaError;

use crate::directory::{ChunkEntry, ChunkKind};
use crate::format::{CHUNK_LEN, GRANULE, SLOT_LEN, SUM_LEN};
use crate::sums::{Sums, granules};
use crate::table::{Spot, ZoneTable};
use crate::verify::{Found, Source, check_granule, read_entry};

/// Something with a sum of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// An entry of the chunk directory, by address.
    Entry {
        /// Its address.
        at: u64,
        /// Chunk it describes.
        chunk: u32,
    },
    /// A granule of the object in a place; granule 0 stands for the slot too.
    Granule {
        /// The place.
        spot: Spot,
        /// Number of the granule.
        granule: u64,
    },
}

impl Unit {
    /// Checks the unit as `from` shows it.
    ///
    /// # Errors
    /// A [`MediaError`] if part of it cannot be read.
    pub fn check(
        &self,
        from: &impl Source,
        sums: &Sums,
        certify: Certify,
    ) -> Result<Found, MediaError> {
        match self {
            Self::Granule { spot, granule } => check_granule(from, sums, spot, *granule, certify),
            Self::Entry { at, .. } => Ok(match read_entry(from, sums, *at, certify)? {
                Some(_) => Found::Good,
                None => Found::Bad { expected: 0, found: 0 },
            }),
        }
    }

    /// Reads all that a check of the unit looks at, and judges nothing.
    ///
    /// # Errors
    /// A [`MediaError`] if part of it cannot be read.
    pub fn reach(&self, from: &impl Source, sums: &Sums) -> Result<(), MediaError> {
        self.check(from, sums, Certify::when(false)).map(|_| ())
    }

    /// The bytes that belong to the unit: its own, without what certifies it.
    #[must_use]
    pub fn range(&self) -> (u64, u64) {
        match self {
            Self::Entry { at, .. } => (*at, CHUNK_LEN as u64),
            Self::Granule { spot, granule } => {
                let start = granule * GRANULE;
                (spot.object + start, spot.capacity.saturating_sub(start).min(GRANULE))
            }
        }
    }
}

impl ZoneTable {
    /// Calls `each` for every unit that has bytes in `[at, at + len)`, from the directory down.
    /// Units may be named twice where a range covers both an object and its slot.
    pub fn units_over(&self, at: u64, len: u64, each: &mut impl FnMut(Unit)) {
        let end = at.saturating_add(len);
        let directory = (self.entry_at(0), self.entry_at(self.chunks()));
        for chunk in indices(at, end, directory, CHUNK_LEN as u64) {
            each(Unit::Entry { at: self.entry_at(chunk), chunk });
        }
        let mut from = at.max(self.chunks_at());
        while from < end {
            let Some(chunk) = self.chunk_of(from) else { break };
            let chunk_end = self.chunk_at(chunk) + self.chunk_len();
            let to = end.min(chunk_end);
            self.chunk_units(chunk, from, to, each);
            from = chunk_end;
        }
    }

    fn chunk_units(&self, chunk: u32, from: u64, to: u64, each: &mut impl FnMut(Unit)) {
        let Some(entry) = self.entry(chunk) else { return };
        match entry.kind {
            ChunkKind::Free | ChunkKind::Log => {}
            ChunkKind::Run => self.run_units(chunk, &entry, from, to, each),
            ChunkKind::Large => {
                let spot = self.large_spot(chunk, &entry);
                large_units(&spot, from, to, each);
            }
            ChunkKind::Tail => {
                let Some(head) = chunk.checked_sub(entry.count) else { return };
                if let Some(first) = self.entry(head).filter(|e| e.kind == ChunkKind::Large) {
                    let spot = self.large_spot(head, &first);
                    large_units(&spot, from, to, each);
                }
            }
        }
    }

    fn run_units(
        &self,
        chunk: u32,
        entry: &ChunkEntry,
        from: u64,
        to: u64,
        each: &mut impl FnMut(Unit),
    ) {
        let Some(shape) = self.shape(entry.class) else { return };
        let chunk_at = self.chunk_at(chunk);
        let spot = |place| self.spot(chunk, entry, &shape, place);
        // Slots: granule 0 stands for them.
        let slots = (chunk_at, chunk_at + u64::from(shape.places) * SLOT_LEN as u64);
        for place in indices(from, to, slots, SLOT_LEN as u64) {
            each(Unit::Granule { spot: spot(place), granule: 0 });
        }
        if shape.sums_each > 0 {
            let start = chunk_at + u64::from(shape.sums);
            let all = u64::from(shape.places) * u64::from(shape.sums_each);
            for sum in indices(from, to, (start, start + all * SUM_LEN), SUM_LEN) {
                let granule = u64::from(sum % shape.sums_each) + 1;
                each(Unit::Granule { spot: spot(sum / shape.sums_each), granule });
            }
        }
        let objects = chunk_at + u64::from(shape.objects);
        let size = u64::from(shape.size);
        let area = (objects, objects + u64::from(shape.places) * size);
        for place in indices(from, to, area, size) {
            let spot = spot(place);
            for granule in indices(from, to, (spot.object, spot.object + size), GRANULE) {
                each(Unit::Granule { spot, granule: granule.into() });
            }
        }
    }
}

fn large_units(spot: &Spot, from: u64, to: u64, each: &mut impl FnMut(Unit)) {
    if from < spot.slot + SLOT_LEN as u64 && to > spot.slot {
        each(Unit::Granule { spot: *spot, granule: 0 });
    }
    // Between the last sum and the object there is rounding, which belongs to nobody.
    let sums_end = spot.sums + (granules(spot.capacity) - 1) * SUM_LEN;
    for sum in indices(from, to, (spot.sums, sums_end), SUM_LEN) {
        each(Unit::Granule { spot: *spot, granule: u64::from(sum) + 1 });
    }
    for granule in indices(from, to, (spot.object, spot.object + spot.capacity), GRANULE) {
        each(Unit::Granule { spot: *spot, granule: granule.into() });
    }
}

/// Indices of the `size`-byte cells of `area` that `[from, to)` touches.
fn indices(from: u64, to: u64, area: (u64, u64), size: u64) -> core::ops::Range<u32> {
    let from = from.max(area.0);
    let to = to.min(area.1);
    if from >= to {
        return 0..0;
    }
    ((from - area.0) / size) as u32..((to - area.0).div_ceil(size)) as u32
}
