//! Which granules were verified since the pool was opened: two bytes for each 64 bytes of data.
//!
//! They hold the generation that was verified, so that a pointer to an earlier object of the same
//! place does not pass as verified either. Costs 1/32 of the data in DRAM, as far as it is
//! touched.

use core::ops::Range;
use holdfast_sync::OnceLock;
use holdfast_sync::atomic::{AtomicU16, Ordering};

use holdfast_heap::format::GRANULE;
use holdfast_heap::{Spot, ZoneTable};
use holdfast_pmem::Table;

/// The tables of all zones.
#[derive(Debug)]
pub(crate) struct Touched {
    zones: [OnceLock<Table<AtomicU16>>; holdfast_heap::heap::ZONES_MAX],
}

impl Touched {
    /// No zones.
    pub(crate) fn new() -> Self {
        Self { zones: core::array::from_fn(|_| OnceLock::new()) }
    }

    /// Adds the table of a zone, all untouched.
    pub(crate) fn add_zone(&self, zone: &ZoneTable) {
        let lines = u64::from(zone.chunks()) * zone.chunk_len() / 64;
        // A zone is added once; a second table would only forget what was touched.
        let _ = self.zones[usize::from(zone.index())].set(Table::new(lines as usize));
    }

    #[inline]
    fn cell(&self, zone: &ZoneTable, object: u64, granule: u64) -> Option<&AtomicU16> {
        let at = object + granule * GRANULE;
        let line = (at - zone.chunks_at()) / 64;
        self.zones[usize::from(zone.index())].get()?.get(line as usize)
    }

    /// Whether the granule of that generation was verified.
    #[inline]
    pub(crate) fn is(&self, zone: &ZoneTable, spot: &Spot, granule: u64, generation: u16) -> bool {
        self.cell(zone, spot.object, granule)
            .is_some_and(|c| c.load(Ordering::Relaxed) == generation)
    }

    /// Whether the granules of bytes `range`, which is not empty and lies in the place at `object`,
    /// were verified in that generation.
    #[inline(always)]
    pub(crate) fn all(
        &self,
        zone: &ZoneTable,
        object: u64,
        range: Range<u64>,
        generation: u16,
    ) -> bool {
        let Some(cells) = self.zones[usize::from(zone.index())].get() else { return false };
        let mut at = (object - zone.chunks_at() + range.start / GRANULE * GRANULE) / 64;
        let last = (object - zone.chunks_at() + (range.end - 1)) / 64;
        while at <= last {
            let Some(cell) = cells.get(at as usize) else { return false };
            if cell.load(Ordering::Relaxed) != generation {
                return false;
            }
            at += GRANULE / 64;
        }
        true
    }

    /// Records that the granule of that generation was verified.
    #[inline]
    pub(crate) fn set(&self, zone: &ZoneTable, object: u64, granule: u64, generation: u16) {
        if let Some(cell) = self.cell(zone, object, granule) {
            cell.store(generation, Ordering::Relaxed);
        }
    }

    /// Forgets a granule: it was freed.
    pub(crate) fn forget(&self, zone: &ZoneTable, spot: &Spot, granule: u64) {
        if let Some(cell) = self.cell(zone, spot.object, granule) {
            cell.store(0, Ordering::Relaxed);
        }
    }
}
