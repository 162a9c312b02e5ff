//! Opening a pool: tables, relocated frames, recovery if it was not closed, directory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_heap::verify::Direct;
use holdfast_heap::{BadEntry, Heap};
use holdfast_layout::format::{KIND_REGIONS, REGIONS_PAGE};
use holdfast_layout::{Region, RegionKind, Superblock, region};
use holdfast_logs::Log;
use holdfast_pmem::{Clock, Medium, Site};
use holdfast_redundancy::events::{Cause, Event, Finder, Journal};
use holdfast_redundancy::intent::RepairIntent;
use holdfast_redundancy::progress::ScrubProgress;
use holdfast_redundancy::remap::RemapTable;
use holdfast_redundancy::superblock::{heal_superblock, read_superblock, write_superblock};
use holdfast_redundancy::{Mirror, MirrorSites, Mirrored, Side, Wrong};

use crate::error::Error;
use crate::geometry;
use crate::options::OpenOptions;
use crate::pool::Pool;
use crate::recover::Recovered;
use crate::shared::{Parts, Repairer};

const REGIONS: MirrorSites = MirrorSites {
    b: Site::new("object.open.regions-b"),
    drain_b: Site::new("object.open.regions-b-drain"),
    a: Site::new("object.open.regions-a"),
    drain_a: Site::new("object.open.regions-a-drain"),
    heal: Site::new("object.open.regions-heal"),
};

/// Writes the region table.
pub(crate) fn write_regions<M: Medium>(
    m: &M,
    mirror: Mirror,
    sequence: u64,
    regions: &[Region],
) -> Result<(), Error> {
    let body = region::encode(regions);
    let count = regions.len() as u32;
    Ok(mirror.write(m, REGIONS_PAGE, KIND_REGIONS, sequence, count, &body, REGIONS)?)
}

/// Reads the region table; tells which copy was damaged.
pub(crate) fn read_regions<M: Medium>(
    m: &M,
    superblock: &Superblock,
) -> Result<(Vec<Region>, Mirrored), Error> {
    let found = Mirror::of(superblock).read(m, REGIONS_PAGE, KIND_REGIONS)?;
    let regions = region::decode(&found.page.body, found.page.count, m.len())
        .map_err(|_| Error::Fatal { what: "the region table", at: REGIONS_PAGE })?;
    Ok((regions, found))
}

/// What an open had to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opened {
    /// Whether the pool had been closed clean.
    pub clean: bool,
    /// What recovery did, if it had not.
    pub recovered: Recovered,
    /// Bad pages and tables found and mended on the way.
    pub mended: u64,
}

/// Damaged copies of mirrored pages found while opening: which side, where.
type Wounds = Vec<(Side, u64)>;

/// Reads every table that opening depends on, then heals their damaged copies: nothing is written
/// before all of them were found.
fn tables<M: Medium>(m: &M) -> Result<(Superblock, Vec<Region>, u64, Repairer, Wounds), Error> {
    let found = read_superblock(m)?;
    let superblock = found.superblock.clone();
    if m.len() < superblock.size {
        return Err(Error::Truncated { pool: superblock.size, file: m.len() });
    }
    if !superblock.writable() {
        return Err(Error::ReadOnlyFeatures(superblock.read_only_compatible));
    }
    let mirror = Mirror::of(&superblock);
    let (regions, table) = read_regions(m, &superblock)?;
    let remap = RemapTable::load(m, &superblock, &regions)?;
    let intent = RepairIntent::load(m, mirror, superblock.size)?;
    let (progress, scrubbed) = ScrubProgress::load(m, mirror, superblock.size)?;
    let mut wounds = Wounds::new();
    wounds.extend(found.damaged().map(|side| (side, 0)));
    wounds.extend(table.damaged().map(|side| (side, REGIONS_PAGE)));
    remap.apply(m)?;
    heal_superblock(m, &found)?;
    mirror.heal(m, REGIONS_PAGE, KIND_REGIONS, &table, REGIONS)?;
    let scratch = holdfast_redundancy::parity::Scratch::new();
    let holds_columns = false;
    let mut repairer = Repairer { intent, remap, progress, scrubbed, scratch, holds_columns };
    for record in [repairer.intent.record(), repairer.remap.record()] {
        wounds.extend(record.heal(m)?.into_iter().map(|side| (side, record.place())));
    }
    let record = repairer.progress.record();
    wounds.extend(record.heal(m)?.into_iter().map(|side| (side, record.place())));
    Ok((superblock, regions, table.page.sequence, repairer, wounds))
}

impl<M: Medium> Pool<M> {
    /// Opens a pool, recovering it first if it was not closed.
    ///
    /// # Errors
    /// What the medium holds is no pool, is of a newer version, is cut off, or is damaged beyond
    /// its redundancy in what everything else depends on. Then nothing was changed.
    pub fn open(
        m: M,
        options: OpenOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Opened), Error> {
        let (superblock, regions, regions_sequence, repairer, wounds) = tables(&m)?;
        let clean = superblock.clean;
        let scan = if clean { None } else { Some(holdfast_logs::scan(&m, &superblock)?) };
        let first_number = scan.as_ref().map_or(0, |s| s.max_number) + 1;
        let seed = holdfast_logs::Seed::new(&superblock);
        // The superblock as it will be once recovery is done: its generation kills old records.
        // The medium decides how new ones lie.
        let superblock = Superblock {
            log_generation: superblock.log_generation + u64::from(!clean),
            log_placement: geometry::placement(m.kind()),
            clean: false,
            ..superblock
        };
        let pool = Self::assemble(Parts {
            heap: Heap::new(superblock.seed(), superblock.sum_kind),
            log: Log::open(&m, &superblock)?,
            first_number,
            repairer,
            journal: Journal::open(&m, &superblock),
            superblock,
            regions,
            regions_sequence,
            options,
            clock,
            read_only: false,
            m,
        })?;
        let mut opened = Opened { clean, mended: wounds.len() as u64, ..Opened::default() };
        pool.report_wounds(&wounds);
        match scan {
            None => opened.mended += pool.load_heap()?,
            Some(scan) => {
                opened.recovered = pool.shared.recover(&scan, seed)?;
            }
        }
        // From here on the pool is in use: a crash leaves it to be recovered.
        write_superblock(&pool.shared.m, &mut pool.shared.superblock())?;
        pool.shared.free_stale_log_chunks()?;
        opened.mended += pool.shared.mend_listed()?;
        pool.shared.closable.store(true, Ordering::Release);
        Ok((pool, opened))
    }

    fn report_wounds(&self, wounds: &Wounds) {
        for (side, place) in wounds {
            let base = if *side == Side::A { 0 } else { self.shared.superblock().side_len };
            self.shared.report(Event {
                wrong: Some(Wrong::Mirror { side: *side }),
                ..self.shared.event(Cause::Copies, Finder::Open, base + place, 4096)
            });
        }
    }

    /// Reads the directories of all zones, mending entries that are bad.
    fn load_heap(&self) -> Result<u64, Error> {
        let shared = &*self.shared;
        let zones: Vec<u8> = shared.heap.zones().map(holdfast_heap::ZoneTable::index).collect();
        let mut mended = 0;
        for zone in zones {
            for BadEntry { at, .. } in shared.heap.load_zone(&Direct(&shared.m), zone) {
                shared.mend_entry_at_open(zone, at)?;
                mended += 1;
            }
        }
        Ok(mended)
    }

    /// Regions of the pool.
    #[must_use]
    pub fn regions(&self) -> Vec<Region> {
        self.shared.regions.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Parts of the pool that this build does not know and leaves alone.
    #[must_use]
    pub fn unknown_regions(&self) -> usize {
        let unknown = |r: &&Region| matches!(r.kind, RegionKind::Unknown(_));
        self.regions().iter().filter(unknown).count()
    }
}
