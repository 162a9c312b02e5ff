//! Where the live bytes of a pool are, for tools that damage them on purpose or show them.
//!
//! Everything is read from the medium anew, by nobody's leave: the pool may be open elsewhere, and
//! what is told here is then how it was a moment ago. Nothing is written.

use std::collections::BTreeSet;

use holdfast_heap::format::{CHUNK_LEN, GRANULE, SLOT_LEN, SUM_LEN};
use holdfast_heap::sums::granules;
use holdfast_heap::verify::Direct;
use holdfast_heap::{Heap, Slot, Spot};
use holdfast_layout::format::{
    INTENT_PAGE, KIND_REGIONS, PROGRESS_PAGE, REGIONS_PAGE, REMAP_PAGE, SUPERBLOCK_PAGE,
};
use holdfast_layout::{RawPtr, Region, RegionKind, Remap, Superblock, region};
use holdfast_pmem::{Medium, PAGE};
use holdfast_redundancy::{Mirror, RemapTable, Side, Zone, read_superblock, zone};

use crate::error::{Error, ErrorKind, Result};

/// What bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Bytes of an object.
    Object,
    /// The slot that describes an object.
    Slot,
    /// Sums of an object's later granules.
    Sums,
    /// An entry of a zone's chunk directory.
    Directory,
    /// P over a page column with live bytes.
    ParityP,
    /// Q over a page column with live bytes.
    ParityQ,
    /// A copy of a mirrored record: superblock, region table, remap table, intent, progress.
    Metadata,
    /// A copy of a log record that a crash now would need.
    Log,
}

impl Part {
    /// All parts, in order.
    pub const ALL: [Self; 8] = [
        Self::Object,
        Self::Slot,
        Self::Sums,
        Self::Directory,
        Self::ParityP,
        Self::ParityQ,
        Self::Metadata,
        Self::Log,
    ];

    /// The part in a word or two.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Slot => "slot",
            Self::Sums => "sums",
            Self::Directory => "directory",
            Self::ParityP => "parity P",
            Self::ParityQ => "parity Q",
            Self::Metadata => "metadata",
            Self::Log => "log",
        }
    }
}

/// Live bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// What they are.
    pub part: Part,
    /// First byte, as an offset into the pool.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// The object they belong to, or null.
    pub object: RawPtr,
}

/// What shares its redundancy: damages in different stripes never get into each other's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stripe {
    /// One page of all rows of a zone.
    Column {
        /// The zone's index.
        zone: u32,
        /// The page, counted from the start of the row.
        page: u64,
    },
    /// One page of both sides.
    Mirror {
        /// The page, counted from the start of the side.
        page: u64,
    },
    /// Neither: spare frames and bytes outside of all regions.
    None,
}

/// The parts of a pool.
#[derive(Debug, Clone)]
pub struct Anatomy {
    superblock: Superblock,
    regions: Vec<Region>,
    zones: Vec<Zone>,
    remaps: Vec<Remap>,
    places: Vec<Place>,
}

impl Anatomy {
    /// Reads where everything is. Relocated frames are mapped on `medium` as a side effect.
    ///
    /// # Errors
    /// The medium holds no pool, or one too damaged to be taken apart.
    pub fn read<M: Medium>(medium: &M) -> Result<Self> {
        let superblock = read_superblock(medium)?.superblock;
        if medium.len() < superblock.size {
            let (pool, file) = (superblock.size, medium.len());
            return Err(holdfast_object::Error::Truncated { pool, file }.into());
        }
        let regions = read_regions(medium, &superblock)?;
        let remap = RemapTable::load(medium, &superblock, &regions)?;
        remap.apply(medium)?;
        let zones = regions
            .iter()
            .filter(|region| region.kind == RegionKind::Zone)
            .zip(0..)
            .map(|(region, index)| Zone::new(region, index))
            .collect::<core::result::Result<Vec<_>, _>>()?;
        let remaps = remap.entries().to_vec();
        let mut this = Self { superblock, regions, zones, remaps, places: Vec::new() };
        this.add_heap(medium);
        this.add_parity();
        this.add_metadata();
        this.add_log(medium)?;
        Ok(this)
    }

    /// The superblock.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The region table.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// All live places, by part and then by address within most of them.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The live places of one part.
    pub fn of(&self, part: Part) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(move |place| place.part == part)
    }

    /// What the byte at `at` shares its redundancy with.
    #[must_use]
    pub fn stripe(&self, at: u64) -> Stripe {
        let side = self.superblock.side_len;
        if at < 2 * side {
            return Stripe::Mirror { page: at % side / PAGE };
        }
        let unit = |zone: &Zone| zone.unit(at).map(|(_, col)| (zone.index(), col));
        match self.zones.iter().find_map(unit) {
            Some((zone, col)) => Stripe::Column { zone, page: col / PAGE },
            None => Stripe::None,
        }
    }

    /// Where in the file the byte at `at` of the pool is: elsewhere in relocated frames.
    #[must_use]
    pub fn in_file(&self, at: u64) -> u64 {
        let frame = at / self.superblock.frame * self.superblock.frame;
        match self.remaps.iter().find(|remap| remap.frame == frame) {
            Some(remap) => remap.physical + (at - frame),
            None => at,
        }
    }

    fn add(&mut self, part: Part, at: u64, len: u64, object: RawPtr) {
        self.places.push(Place { part, at, len, object });
    }

    fn add_heap<M: Medium>(&mut self, medium: &M) {
        let heap = Heap::new(self.superblock.seed(), self.superblock.sum_kind);
        for region in self.regions.iter().filter(|r| r.kind == RegionKind::Zone) {
            if let Some(index) = heap.add_zone(region) {
                // Entries that do not verify are left out; what lies in their chunks is too.
                heap.load_zone(&Direct(medium), index);
            }
        }
        let mut live: Vec<(Spot, Slot)> = Vec::new();
        let note = &mut |spot: &Spot, slot: &Slot| live.push((*spot, *slot));
        heap.for_each_live(medium, note, &mut |_, _| {});
        for (spot, slot) in &live {
            let object = RawPtr::new(spot.object, slot.generation);
            let len = u64::from(slot.len).min(spot.capacity);
            self.add(Part::Object, spot.object, len, object);
            self.add(Part::Slot, spot.slot, SLOT_LEN as u64, object);
            if len > GRANULE {
                self.add(Part::Sums, spot.sums, (granules(len) - 1) * SUM_LEN, object);
            }
        }
        for zone in heap.zones() {
            for chunk in 0..zone.chunks() {
                let at = zone.entry_at(chunk);
                self.add(Part::Directory, at, CHUNK_LEN as u64, RawPtr::NULL);
            }
        }
    }

    /// Parity over every page column in which something lives.
    fn add_parity(&mut self) {
        let mut columns = BTreeSet::new();
        for place in &self.places {
            let last = place.at + place.len.max(1) - 1;
            for page in place.at / PAGE..=last / PAGE {
                columns.insert(self.stripe(page * PAGE));
            }
        }
        for stripe in columns {
            let Stripe::Column { zone, page } = stripe else { continue };
            let Some(zone) = self.zones.get(zone as usize).copied() else { continue };
            let units = [(Part::ParityP, zone::Unit::P), (Part::ParityQ, zone::Unit::Q)];
            for (part, unit) in units.into_iter().take(zone.parity_rows() as usize) {
                self.add(part, zone.unit_at(unit, page * PAGE), PAGE, RawPtr::NULL);
            }
        }
    }

    fn add_metadata(&mut self) {
        let mirror = Mirror::of(&self.superblock);
        for page in [SUPERBLOCK_PAGE, REGIONS_PAGE, REMAP_PAGE, INTENT_PAGE, PROGRESS_PAGE] {
            for side in [Side::A, Side::B] {
                if let Some(at) = mirror.at(side, page) {
                    self.add(Part::Metadata, at, PAGE, RawPtr::NULL);
                }
            }
        }
    }

    /// Records that recovery would replay now.
    fn add_log<M: Medium>(&mut self, medium: &M) -> Result<()> {
        if self.superblock.clean {
            return Ok(());
        }
        let scan = holdfast_logs::scan(medium, &self.superblock)
            .map_err(|error| Error::from(holdfast_object::Error::Log(error)))?;
        for record in scan.to_replay().iter().filter(|record| !record.copy_damaged) {
            self.add(Part::Log, record.at, record.bytes.len() as u64, RawPtr::NULL);
        }
        Ok(())
    }
}

/// Reads the region table of the pool that `superblock` describes.
pub(crate) fn read_regions<M: Medium>(medium: &M, superblock: &Superblock) -> Result<Vec<Region>> {
    let found = Mirror::of(superblock).read(medium, REGIONS_PAGE, KIND_REGIONS)?;
    region::decode(&found.page.body, found.page.count, medium.len())
        .map_err(|error| Error::new(ErrorKind::Damaged, error.to_string()))
}
