//! Opening a pool: tables, relocated frames, recovery if it was not closed, directory.

use holdfast_sync::atomic::Ordering;
use std::sync::Arc;

use holdfast_heap::verify::Direct;
use holdfast_heap::{BadEntry, Heap};
use holdfast_layout::format::{
    INTENT_PAGE, KIND_REGIONS, PROGRESS_PAGE, REGIONS_PAGE, SUPERBLOCK_PAGE,
};
use holdfast_layout::{Region, RegionKind, Superblock, region};
use holdfast_logs::Log;
use holdfast_pmem::{Clock, Medium, PAGE, Site};
use holdfast_redundancy::events::{Cause, Event, Finder, Journal, Outcome};
use holdfast_redundancy::intent::RepairIntent;
use holdfast_redundancy::progress::{Progress, ScrubProgress};
use holdfast_redundancy::remap::RemapTable;
use holdfast_redundancy::superblock::{FoundSuperblock, heal_superblock, read_superblock};
use holdfast_redundancy::{Mirror, MirrorSites, Mirrored, Side, Wrong};

use crate::error::Error;
use crate::geometry;
use crate::hopeless::Hopeless;
use crate::options::OpenOptions;
use crate::pool::Pool;
use crate::recover::Recovered;
use crate::repair::{Asked, Mended};
use crate::report::sum_there;
use crate::shared::{Parts, Repairer};

const REGIONS: MirrorSites = MirrorSites {
    b: Site::new("object.open.regions-b"),
    drain_b: Site::new("object.open.regions-b-drain"),
    a: Site::new("object.open.regions-a"),
    drain_a: Site::new("object.open.regions-a-drain"),
    clear: Site::new("object.open.regions-clear"),
    heal: Site::new("object.open.regions-heal"),
};

/// Writes the region table. Answers the sides whose page had been bad and was cleared by it.
pub(crate) fn write_regions<M: Medium>(
    m: &M,
    mirror: Mirror,
    sequence: u64,
    regions: &[Region],
) -> Result<Vec<Side>, Error> {
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

/// What was damaged in the tables.
#[derive(Debug, Default)]
struct Wounds {
    /// Copies written again: where in the pool, which side, and the sum of what was there.
    mended: Vec<(u64, Side, u32)>,
    /// Records that were lost in both copies and can be done without: they say where a repair or
    /// a scrub was interrupted.
    lost: Vec<u64>,
}

/// A page that stays bad leaves its record with one copy, which is no reason to refuse the pool.
fn staying(healed: holdfast_redundancy::Result<Vec<Side>>) -> Result<Vec<Side>, Error> {
    match healed {
        Err(holdfast_redundancy::Error::Media(_)) => Ok(Vec::new()),
        other => Ok(other?),
    }
}

/// The tables as they were found, before anything is written.
struct Tables {
    superblock: Superblock,
    regions: Vec<Region>,
    /// Where both copies of each of the two stand.
    found: (FoundSuperblock, Mirrored),
    /// Places of notes that both copies of are lost.
    lost: Vec<u64>,
}

/// Reads every table that opening depends on. Nothing is written.
fn tables<M: Medium>(m: &M) -> Result<(Tables, Repairer), Error> {
    let found = read_superblock(m)?;
    let mut superblock = found.superblock.clone();
    if m.len() < superblock.size {
        return Err(Error::Truncated { pool: superblock.size, file: m.len() });
    }
    if !superblock.writable() {
        return Err(Error::ReadOnlyFeatures(superblock.read_only_compatible));
    }
    let mirror = Mirror::of(&superblock);
    let (regions, table) = read_regions(m, &superblock)?;
    // A growth that stopped after its zone was listed: the zone counts, and so do its bytes.
    let end = regions.iter().map(|r| r.start.saturating_add(r.len)).max().unwrap_or(0);
    superblock.size = superblock.size.max(end);
    let remap = RemapTable::load(m, &superblock, &regions)?;
    let mut lost = Vec::new();
    let intent = RepairIntent::load(m, mirror, superblock.size).unwrap_or_else(|_| {
        lost.push(INTENT_PAGE);
        RepairIntent::lost(mirror)
    });
    let progress = ScrubProgress::load(m, mirror, superblock.size);
    let (progress, scrubbed) = progress.unwrap_or_else(|_| {
        lost.push(PROGRESS_PAGE);
        (ScrubProgress::lost(mirror), Progress::default())
    });
    remap.apply(m)?;
    let scratch = holdfast_redundancy::parity::Scratch::new();
    let repairer = Repairer {
        intent,
        remap,
        progress,
        scrubbed,
        scratch,
        holds_columns: false,
        completes: false,
        beside: 0,
        stuck: Vec::new(),
        given_up: Vec::new(),
        healed: Vec::new(),
        hopeless: Hopeless::default(),
        installs: 0,
    };
    Ok((Tables { superblock, regions, found: (found, table), lost }, repairer))
}

/// Writes the damaged and old copies of all tables anew: the pool is going to be opened.
fn heal_tables<M: Medium>(
    m: &M,
    (found, table): &(FoundSuperblock, Mirrored),
    lost: Vec<u64>,
    repairer: &mut Repairer,
) -> Result<Wounds, Error> {
    let mirror = Mirror::of(&found.superblock);
    let side_len = found.superblock.side_len;
    let wound = |side: Side, place: u64| {
        let at = if side == Side::A { place } else { side_len + place };
        (at, side, sum_there(m, at, PAGE))
    };
    let mut wounds = Wounds { mended: Vec::new(), lost };
    wounds.mended.extend(found.damaged().map(|side| wound(side, SUPERBLOCK_PAGE)));
    wounds.mended.extend(table.damaged().map(|side| wound(side, REGIONS_PAGE)));
    staying(heal_superblock(m, found))?;
    staying(mirror.heal(m, REGIONS_PAGE, KIND_REGIONS, table, REGIONS))?;
    let records = [repairer.intent.record(), repairer.remap.record(), repairer.progress.record()];
    for record in records {
        if !record.needs_heal() {
            continue;
        }
        let before = [Side::A, Side::B].map(|side| wound(side, record.place()));
        let healed = staying(record.heal(m))?;
        wounds.mended.extend(before.into_iter().filter(|(_, side, _)| healed.contains(side)));
    }
    if wounds.lost.contains(&INTENT_PAGE) {
        staying(repairer.intent.clear(m).map(|()| Vec::new()))?;
    }
    if wounds.lost.contains(&PROGRESS_PAGE) {
        let scrubbed = repairer.scrubbed;
        staying(repairer.progress.store(m, &scrubbed).map(|()| Vec::new()))?;
    }
    Ok(wounds)
}

impl<M: Medium> Pool<M> {
    /// Opens a pool, recovering it first if it was not closed.
    ///
    /// # Errors
    /// What the medium holds is no pool, is of a newer version, is cut off, or is damaged beyond
    /// its redundancy in what everything else depends on: then nothing was written. Only a write or
    /// a sync that fails ends an open that has begun to.
    pub fn open(
        m: M,
        options: OpenOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Opened), Error> {
        let (Tables { superblock, regions, found, lost }, repairer) = tables(&m)?;
        let clean = superblock.clean;
        let scan = if clean { None } else { Some(holdfast_logs::scan(&m, &superblock)?) };
        let first_number = scan.as_ref().map_or(0, |s| s.max_number) + 1;
        let seed = holdfast_logs::Seed::new(&superblock);
        // The superblock as it will be once recovery is done: its generation kills old records, so
        // until then nothing may write it, whatever page recovery has to relocate. The medium
        // decides how new records lie.
        let superblock = Superblock { clean: false, ..superblock };
        let next = Superblock {
            log_generation: superblock.log_generation + u64::from(!clean),
            log_placement: geometry::placement(m.kind()),
            ..superblock.clone()
        };
        let pool = Self::assemble(Parts {
            heap: Heap::new(superblock.seed(), superblock.sum_kind),
            log: Log::open(&m, &next)?,
            first_number,
            repairer,
            journal: Journal::open(&m, &superblock),
            superblock,
            regions,
            regions_sequence: found.1.page.sequence,
            options,
            clock,
            read_only: false,
            m,
        })?;
        let shared = &*pool.shared;
        let replay = scan.map(|scan| shared.read_records(&scan, seed)).transpose()?;
        // Nothing that could keep the pool closed is left to be found out.
        let wounds = heal_tables(&shared.m, &found, lost, &mut shared.repairer())?;
        let mended = (wounds.mended.len() + wounds.lost.len()) as u64;
        let mut opened = Opened { clean, mended, ..Opened::default() };
        pool.report_wounds(&wounds);
        match replay {
            None => opened.mended += pool.load_heap()?,
            Some(replay) => opened.recovered = shared.recover(replay)?,
        }
        pool.claim(&next)?;
        // Before anything is appended to the log: an append that meets a bad page of a file stops
        // the pool for good.
        opened.mended += pool.shared.mend_listed()?;
        pool.shared.free_stale_log_chunks()?;
        pool.finish_repair()?;
        pool.shared.report_early();
        pool.shared.closable.store(true, Ordering::Release);
        Ok((pool, opened))
    }

    /// Writes the superblock: from here on the pool is in use, and a crash leaves it to be
    /// recovered. Where one of its copies cannot be written any more, the other is not risked: the
    /// pool can be read.
    fn claim(&self, next: &Superblock) -> Result<(), Error> {
        let mut superblock = self.shared.superblock();
        superblock.log_generation = next.log_generation;
        superblock.log_placement = next.log_placement;
        let written = self.shared.store_superblock(&mut superblock);
        match written {
            Err(Error::Media(_)) => self.shared.stop_writing(),
            other => other?,
        }
        Ok(())
    }

    /// Looks at what a repair was about to replace when the pool stopped. Whether it got through
    /// or not: the bytes verify, or they are rebuilt like any others.
    fn finish_repair(&self) -> Result<(), Error> {
        let shared = &*self.shared;
        let Some(intent) = shared.repairer().intent.active() else { return Ok(()) };
        if shared.is_read_only() {
            return Ok(());
        }
        let asked = Asked { cause: Cause::Sum, finder: Finder::Open };
        shared.mend_through(intent.at, intent.len, asked)?;
        shared.mend_columns(intent.at, intent.len, Finder::Open)?;
        let mut repairer = shared.repairer();
        shared.end_install(&mut repairer)
    }

    fn report_wounds(&self, wounds: &Wounds) {
        let event = |side, at, before_sum| Event {
            wrong: Some(Wrong::Mirror { side }),
            before_sum,
            ..self.shared.event(Cause::Copies, Finder::Open, at, PAGE)
        };
        for (at, side, before) in &wounds.mended {
            self.shared.report_mended(
                event(*side, *at, *before),
                Mended::Repaired(Wrong::Mirror { side: *side }),
            );
        }
        for place in &wounds.lost {
            let event = event(Side::A, *place, 0);
            self.shared.report(Event { outcome: Outcome::Lost, ..event });
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
        self.shared.regions.lock().unwrap_or_else(holdfast_sync::PoisonError::into_inner).clone()
    }

    /// Parts of the pool that this build does not know and leaves alone.
    #[must_use]
    pub fn unknown_regions(&self) -> usize {
        let unknown = |r: &&Region| matches!(r.kind, RegionKind::Unknown(_));
        self.regions().iter().filter(unknown).count()
    }
}
