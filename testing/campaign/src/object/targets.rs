//! Where damage can be done: every live byte of a pool, by what it belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use holdfast_heap::format::{CHUNK_LEN, GRANULE, SLOT_LEN, STATE_LIVE, SUM_LEN};
use holdfast_layout::format::{
    FIELDS_REGION, FIELDS_SUPERBLOCK, INTENT_PAGE, PROGRESS_PAGE, REGIONS_PAGE, REMAP_PAGE,
    SUPERBLOCK_PAGE,
};
use holdfast_pmem::PAGE;
use holdfast_workloads::Rng;

use super::raw::{Bytes, ChunkKind, Slot, Survey, ZoneMap, number};

/// What a byte of a pool belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Area {
    /// Bytes of a live object.
    Object,
    /// The slot of a live object.
    Slot,
    /// The slot of a free place.
    FreeSlot,
    /// A sum of a granule after the first.
    Sum,
    /// An entry of the chunk directory.
    Directory,
    /// P over live bytes.
    ParityP,
    /// Q over live bytes.
    ParityQ,
    /// Free bytes: no sum covers them, parity does.
    Free,
    /// The superblock, copy A or B.
    Superblock(Side),
    /// The region table.
    Regions(Side),
    /// The remap table.
    Remap(Side),
    /// The repair intent.
    Intent(Side),
    /// The scrub progress.
    Progress(Side),
    /// The log.
    Log(Side),
}

/// Which copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The first.
    A,
    /// The second.
    B,
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, side) = match self {
            Self::Object => ("object", None),
            Self::Slot => ("slot", None),
            Self::FreeSlot => ("free slot", None),
            Self::Sum => ("sum", None),
            Self::Directory => ("directory", None),
            Self::ParityP => ("parity P", None),
            Self::ParityQ => ("parity Q", None),
            Self::Free => ("free bytes", None),
            Self::Superblock(side) => ("superblock", Some(side)),
            Self::Regions(side) => ("regions", Some(side)),
            Self::Remap(side) => ("remap", Some(side)),
            Self::Intent(side) => ("intent", Some(side)),
            Self::Progress(side) => ("progress", Some(side)),
            Self::Log(side) => ("log", Some(side)),
        };
        match side {
            None => f.write_str(name),
            Some(side) => write!(f, "{name} {side:?}"),
        }
    }
}

impl Area {
    /// The areas of mirrored records.
    #[must_use]
    pub const fn is_mirrored(self) -> bool {
        use Area::{Intent, Progress, Regions, Remap, Superblock};
        matches!(self, Superblock(_) | Regions(_) | Remap(_) | Intent(_) | Progress(_))
    }

    /// Whether it is in this side.
    #[must_use]
    pub fn is_of(self, side: Side) -> bool {
        use Area::{Intent, Log, Progress, Regions, Remap, Superblock};
        match self {
            Superblock(s) | Regions(s) | Remap(s) | Intent(s) | Progress(s) | Log(s) => s == side,
            _ => false,
        }
    }
}

/// A range of one area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// What it belongs to.
    pub area: Area,
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub len: u64,
}

/// Bytes of the sums, but for the first one, of an object of `len` bytes.
const fn sums_len(len: u64) -> u64 {
    len.saturating_sub(1) / GRANULE * SUM_LEN
}

/// The ranges, first byte and length, that an object of `len` bytes has at a place of
/// [`places`](Targets::places).
#[must_use]
pub fn parts_at(object: u64, (slot, sums): (u64, u64), len: u64) -> [(u64, u64); 3] {
    [(object, len), (slot, SLOT_LEN as u64), (sums, sums_len(len))]
}

/// Bytes that come back together as they once were: a line, a sector or a page.
pub fn unit_set_back(rng: &mut Rng) -> usize {
    const UNITS: [usize; 3] = [64, 512, PAGE as usize];
    UNITS[rng.below(UNITS.len() as u64) as usize]
}

/// Where the chunks of a zone are, and their entries in the directory.
#[derive(Debug, Clone, Copy)]
pub struct Chunks {
    entries: u64,
    first: u64,
    len: u64,
    count: u64,
}

impl Chunks {
    fn of(map: &ZoneMap) -> Option<Self> {
        let first = map.chunks.first()?.at;
        let count = map.chunks.len() as u64;
        Some(Self { entries: map.start, first, len: map.chunk_len, count })
    }

    /// The entries, first byte and length, of the chunks from one byte up to another.
    fn between(&self, from: u64, end: u64) -> (u64, u64) {
        let entry = |byte: u64| {
            self.entries + byte.saturating_sub(self.first) / self.len * CHUNK_LEN as u64
        };
        let (from, last) = (entry(from), entry(end.saturating_sub(1)));
        (from, last + CHUNK_LEN as u64 - from)
    }

    /// Those of the chunks in which `len` bytes lie, if they lie in this zone.
    #[must_use]
    pub fn entries(&self, at: u64, len: u64) -> Option<(u64, u64)> {
        let here = self.first..self.first + self.count * self.len;
        here.contains(&at).then(|| self.between(at, at + len.max(1)))
    }
}

/// Everything in a pool that damage can hit.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    all: Vec<Target>,
}

impl Targets {
    /// The targets in a pool that is whole; empty if no superblock verifies.
    #[must_use]
    pub fn of(pool: &Bytes) -> Self {
        let mut this = Self::default();
        let Some((superblock, seed)) = pool.superblock() else { return this };
        this.mirrored(superblock);
        this.log(superblock);
        let mut survey = Survey::default();
        for region in pool.zones(superblock, seed) {
            let map = ZoneMap::read(pool, region, seed, superblock, &mut survey);
            this.zone(pool, &map, number(FIELDS_REGION, "parity_rows", region));
        }
        this
    }

    /// The zones of a pool that is whole.
    #[must_use]
    pub fn zones(pool: &Bytes) -> Vec<ZoneMap> {
        let Some((superblock, seed)) = pool.superblock() else { return Vec::new() };
        let mut survey = Survey::default();
        let regions = pool.zones(superblock, seed).into_iter();
        regions.map(|region| ZoneMap::read(pool, region, seed, superblock, &mut survey)).collect()
    }

    /// Where slot and sums are of what lies at a place or is to, by the first byte of the place.
    #[must_use]
    pub fn places(pool: &Bytes) -> BTreeMap<u64, (u64, u64)> {
        let mut places = BTreeMap::new();
        for map in Self::zones(pool) {
            map.each_place(|place| {
                places.insert(place.object, (place.slot, place.sums));
            });
        }
        places
    }

    fn add(&mut self, area: Area, at: u64, len: u64) {
        if len > 0 {
            self.all.push(Target { area, at, len });
        }
    }

    fn mirrored(&mut self, superblock: &[u8]) {
        let side_len = number(FIELDS_SUPERBLOCK, "side_len", superblock);
        let copies = number(FIELDS_SUPERBLOCK, "copies", superblock);
        for (side, start) in [(Side::A, 0), (Side::B, side_len)].into_iter().take(copies as usize) {
            self.add(Area::Superblock(side), start + SUPERBLOCK_PAGE, PAGE);
            self.add(Area::Regions(side), start + REGIONS_PAGE, PAGE);
            self.add(Area::Remap(side), start + REMAP_PAGE, PAGE);
            self.add(Area::Intent(side), start + INTENT_PAGE, PAGE);
            self.add(Area::Progress(side), start + PROGRESS_PAGE, PAGE);
        }
    }

    fn log(&mut self, superblock: &[u8]) {
        let field = |name| number(FIELDS_SUPERBLOCK, name, superblock);
        let (start, len) = (field("log_start"), field("ring_len") * field("lanes"));
        self.add(Area::Log(Side::A), start, len);
        self.add(Area::Log(Side::B), field("side_len") + start, len);
    }

    fn zone(&mut self, pool: &Bytes, map: &ZoneMap, parity_rows: u64) {
        for (index, chunk) in map.chunks.iter().enumerate() {
            let at = map.start + (index * CHUNK_LEN) as u64;
            self.add(Area::Directory, at, CHUNK_LEN as u64);
            if chunk.kind == ChunkKind::Free {
                self.add(Area::Free, chunk.at, map.chunk_len);
            }
        }
        let live_from = self.all.len();
        map.each_place(|place| {
            let Some(slot) = pool.get(place.slot, SLOT_LEN as u64).map(Slot::decode) else {
                return;
            };
            if slot.state != STATE_LIVE {
                self.add(Area::FreeSlot, place.slot, SLOT_LEN as u64);
                return;
            }
            self.add(Area::Object, place.object, slot.len);
            self.add(Area::Slot, place.slot, SLOT_LEN as u64);
            self.add(Area::Sum, place.sums, sums_len(slot.len));
        });
        // Parity over what was just found, row by row.
        let live: Vec<Target> = self.all[live_from..].to_vec();
        for target in live.iter().filter(|target| target.area == Area::Object) {
            let from = (target.at - map.start) % map.row_len;
            let len = target.len.min(map.row_len - from);
            let p = map.start + map.data_rows * map.row_len + from;
            if parity_rows > 0 {
                self.add(Area::ParityP, p, len);
            }
            if parity_rows > 1 {
                self.add(Area::ParityQ, p + map.row_len, len);
            }
        }
    }

    /// All targets of an area.
    pub fn of_area(&self, area: Area) -> impl Iterator<Item = Target> + '_ {
        self.all.iter().filter(move |target| target.area == area).copied()
    }

    /// The object at `at`, its slot and its sums.
    #[must_use]
    pub fn of_object(&self, at: u64, len: u64) -> Vec<Target> {
        let mut parts = vec![Target { area: Area::Object, at, len }];
        // Objects and slots are listed in pairs; the sums of one lie between slot and object.
        for (object, slot) in self.of_area(Area::Object).zip(self.of_area(Area::Slot)) {
            if object.at == at {
                parts.push(slot);
                let between = |t: &&Target| t.area == Area::Sum && t.at > slot.at && t.at < at;
                parts.extend(self.all.iter().filter(between));
            }
        }
        parts
    }

    /// Where the objects lie that have a part in a range.
    #[must_use]
    pub fn owners(&self, at: u64, len: u64) -> BTreeSet<u64> {
        let within = |part: &Target| part.at < at + len && at < part.at + part.len;
        let objects = self.of_area(Area::Object);
        let hit = objects.filter(|o| self.of_object(o.at, o.len).iter().any(within));
        hit.map(|object| object.at).collect()
    }

    /// Where the objects lie of which a chunk has its entry in a range: without that nothing says
    /// where slot and sums of such an object are.
    #[must_use]
    pub fn of_entries(pool: &Bytes, at: u64, len: u64) -> BTreeSet<u64> {
        let mut objects = BTreeSet::new();
        for map in Self::zones(pool) {
            let Some(chunks) = Chunks::of(&map) else { continue };
            map.each_place(|place| {
                let (from, n) = chunks.between(place.slot, place.object + place.capacity);
                if from < at + len && at < from + n {
                    objects.insert(place.object);
                }
            });
        }
        objects
    }

    /// Where the chunks of all zones are.
    #[must_use]
    pub fn chunks(pool: &Bytes) -> Vec<Chunks> {
        Self::zones(pool).iter().filter_map(Chunks::of).collect()
    }

    /// Whether any of these areas has a byte in a range.
    pub fn any_in(&self, areas: impl Fn(Area) -> bool, at: u64, len: u64) -> bool {
        self.all.iter().any(|it| areas(it.area) && it.at < at + len && at < it.at + it.len)
    }

    /// The areas there are, in order.
    #[must_use]
    pub fn areas(&self) -> Vec<Area> {
        let mut areas: Vec<Area> = self.all.iter().map(|target| target.area).collect();
        areas.sort_unstable();
        areas.dedup();
        areas
    }

    /// A target of an area, if it has any.
    pub fn pick(&self, area: Area, rng: &mut Rng) -> Option<Target> {
        let all: Vec<Target> = self.of_area(area).collect();
        rng.pick(&all).copied()
    }

    /// The target that holds a byte; objects, slots and sums before parity and free space.
    #[must_use]
    pub fn at(&self, at: u64) -> Option<Target> {
        let holds = |target: &&Target| target.at <= at && at - target.at < target.len;
        self.all.iter().filter(holds).min_by_key(|target| target.area).copied()
    }
}
