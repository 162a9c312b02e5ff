//! Where the fields of a pool lie, each with what certifies it.

use std::collections::BTreeMap;

use holdfast_collections::structure_of;
use holdfast_heap::format::{
    CHUNK_LEN, FIELDS_CHUNK, FIELDS_SLOT, GRANULE, SLOT_LEN, STATE_LIVE, SUM_LEN,
};
use holdfast_layout::Field;
use holdfast_layout::format::{
    EVENTS_START, FIELDS_MIRRORED, FIELDS_REGION, FIELDS_REMAP, FIELDS_SUPERBLOCK, INTENT_PAGE,
    MIRRORED_LEN, PROGRESS_PAGE, REGION_LEN, REGIONS_PAGE, REMAP_LEN, REMAP_PAGE,
};
use holdfast_logs::format::{
    FIELDS_DATA, FIELDS_FRESH, FIELDS_OVERFLOW, FIELDS_RECORD, KIND_DATA, KIND_FRESH,
    KIND_OVERFLOW, KIND_SLOT,
};
use holdfast_object::format::FIELDS_ANCHOR;
use holdfast_redundancy::format::{EVENT_LEN, FIELDS_EVENT, FIELDS_INTENT, FIELDS_PROGRESS};

use super::formats::{Structs, key, structure};
use super::seal::{Seal, Sealer};
use crate::object::ops::anchor_type;
use crate::object::raw::log::{Overflow, Record, marks, pending};
use crate::object::raw::{Bytes, ChunkKind, Place, Slot, number};

/// What a watermark record is called.
pub const MARK: &str = "mark";
/// What entries in chunks of the log are called.
pub const OVERFLOW: &str = "overflow";

/// What damage of a field is up against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Sums and parity.
    Unit,
    /// A second copy.
    Copy,
    /// A second copy, and whoever scrubs or opens writes it anew.
    Note,
    /// A second copy that only recovery looks at.
    Log,
    /// Nothing: nobody depends on it.
    Loose,
}

/// One field somewhere.
#[derive(Debug, Clone)]
pub struct Spot {
    /// What it is called, as the sources have it.
    pub key: String,
    /// Which kind of thing it is part of.
    pub of: &'static str,
    /// First byte in the pool.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// What certifies it.
    pub seal: Seal,
    /// The same field of the other copy.
    pub twin: Option<(u64, Seal)>,
    /// What it has against damage.
    pub guard: Guard,
    /// Range in which objects may be lost or changed if the damage verifies; everything, if none.
    pub owns: Option<(u64, u64)>,
}

/// All fields of a pool.
#[derive(Debug)]
pub struct Spots<'a> {
    pool: &'a Bytes,
    all: Vec<Spot>,
}

/// The fields of structures whose name starts with one of `wanted`, by kind of thing and name.
#[must_use]
pub fn find(
    pool: &Bytes,
    sealer: &Sealer,
    wanted: &[&str],
) -> BTreeMap<(String, String), Vec<Spot>> {
    let mut spots = Spots { pool, all: Vec::new() };
    if let Some((superblock, seed)) = pool.superblock() {
        spots.sides(superblock);
        spots.log(superblock, seed);
        spots.heap(sealer);
    }
    let mut sorted = BTreeMap::<_, Vec<Spot>>::new();
    for spot in spots.all {
        if wanted.iter().any(|name| spot.key.starts_with(name)) {
            sorted.entry((spot.key.clone(), spot.of.to_owned())).or_default().push(spot);
        }
    }
    sorted
}

impl Spots<'_> {
    /// Adds the fields of the structure at `at`.
    fn add(&mut self, name: &str, fields: &[Field], at: u64, like: &Spot) {
        let base = like.at;
        for field in fields {
            let mut spot = like.clone();
            spot.key = key(name, field.name, field.at);
            (spot.at, spot.len) = (at + field.at, field.len);
            spot.twin = like.twin.map(|(other, seal)| (other + (spot.at - base), seal));
            self.all.push(spot);
        }
    }

    fn sides(&mut self, superblock: &[u8]) {
        let field = |name| number(FIELDS_SUPERBLOCK, name, superblock);
        let (side_len, events_len) = (field("side_len"), field("events_len"));
        for (side, other) in [(0, side_len), (side_len, 0)] {
            let page = |of, place, guard| Spot {
                key: String::new(),
                of,
                at: side + place,
                len: 0,
                seal: Seal::Mirrored { page: side + place, place },
                twin: Some((other + place, Seal::Mirrored { page: other + place, place })),
                guard,
                owns: None,
            };
            let like = Spot {
                seal: Seal::Superblock(side),
                twin: Some((other, Seal::Superblock(other))),
                ..page("superblock", 0, Guard::Copy)
            };
            self.add("layout SUPERBLOCK", FIELDS_SUPERBLOCK, side, &like);
            let nothing = Some((0, 0));
            let regions = page("regions", REGIONS_PAGE, Guard::Copy);
            let remap = page("remap", REMAP_PAGE, Guard::Copy);
            let intent = Spot { owns: nothing, ..page("intent", INTENT_PAGE, Guard::Note) };
            let progress = Spot { owns: nothing, ..page("progress", PROGRESS_PAGE, Guard::Note) };
            for like in [&regions, &remap, &intent, &progress] {
                self.add("layout MIRRORED", FIELDS_MIRRORED, like.at, like);
            }
            self.entries("layout REGION", FIELDS_REGION, REGION_LEN, &regions);
            self.entries("layout REMAP", FIELDS_REMAP, REMAP_LEN, &remap);
            let body = |like: &Spot| like.at + MIRRORED_LEN as u64;
            if self.count(&intent) == 1 {
                self.add("redundancy INTENT", FIELDS_INTENT, body(&intent), &intent);
            }
            self.add("redundancy PROGRESS", FIELDS_PROGRESS, body(&progress), &progress);
            self.events((side, other), events_len, &progress);
        }
    }

    fn count(&self, page: &Spot) -> u64 {
        let header = self.pool.get(page.at, MIRRORED_LEN as u64);
        header.map_or(0, |header| number(FIELDS_MIRRORED, "count", header))
    }

    fn entries(&mut self, name: &str, fields: &[Field], len: usize, page: &Spot) {
        for index in 0..self.count(page) {
            let at = page.at + MIRRORED_LEN as u64 + index * len as u64;
            self.add(name, fields, at, page);
        }
    }

    fn events(&mut self, (side, other): (u64, u64), events_len: u64, page: &Spot) {
        for place in (0..events_len).step_by(EVENT_LEN) {
            let at = side + EVENTS_START + place;
            let twin = other + EVENTS_START + place;
            let written = self.pool.get(at, EVENT_LEN as u64);
            if written.is_some_and(|event| number(FIELDS_EVENT, "sequence", event) > 0) {
                let like = Spot {
                    of: "event",
                    at,
                    seal: Seal::Event { at, place },
                    twin: Some((twin, Seal::Event { at: twin, place })),
                    ..page.clone()
                };
                self.add("redundancy EVENT", FIELDS_EVENT, at, &like);
            }
        }
    }

    fn log(&mut self, superblock: &[u8], seed: u32) {
        if number(FIELDS_SUPERBLOCK, "state", superblock) == 1 {
            return;
        }
        self.records("record", &pending(self.pool, superblock, seed));
        self.records(MARK, &marks(self.pool, superblock, seed));
    }

    fn records(&mut self, of: &'static str, records: &[Record]) {
        let seal = |r: &Record| Seal::Record { at: r.at, len: r.len, seed: r.seed };
        for record in records {
            let twin = records.iter().find(|r| r.number == record.number && r.at != record.at);
            let Some(twin) = twin else { continue };
            let like = Spot {
                key: String::new(),
                of,
                at: record.at,
                len: 0,
                seal: seal(record),
                twin: Some((twin.at, seal(twin))),
                guard: Guard::Log,
                owns: None,
            };
            self.add("logs RECORD", FIELDS_RECORD, record.at, &like);
            for (kind, at) in &record.entries {
                self.entry(*kind, *at, &like);
                if *kind == KIND_OVERFLOW && record.at < twin.at {
                    self.overflow(record, twin, *at, &like);
                }
            }
        }
    }

    fn entry(&mut self, kind: u8, at: u64, like: &Spot) {
        let (name, fields) = match kind {
            KIND_DATA => ("logs DATA", FIELDS_DATA),
            KIND_SLOT => ("logs SLOT", holdfast_logs::format::FIELDS_SLOT),
            KIND_FRESH => ("logs FRESH", FIELDS_FRESH),
            KIND_OVERFLOW => ("logs OVERFLOW", FIELDS_OVERFLOW),
            _ => return,
        };
        self.add(name, fields, at, like);
    }

    /// The entries in chunks of the log, which one of a record leads to; its other copy has the
    /// same at the same place.
    fn overflow(&mut self, record: &Record, twin: &Record, at: u64, like: &Spot) {
        let Some(found) = Overflow::of(self.pool, record, at) else { return };
        let Overflow { copies, len, sum_at, entries } = found;
        let sums = [sum_at, twin.at + (sum_at - record.at)];
        let of = |record: &Record, sum| (sum, record.at, record.len);
        let seal = |at| Seal::Overflow {
            at,
            len,
            number: record.number,
            records: [of(record, sums[0]), of(twin, sums[1])],
            seeds: [record.seed, twin.seed],
        };
        for [copy, other] in [copies, [copies[1], copies[0]]] {
            let like = Spot {
                of: OVERFLOW,
                at: copy,
                seal: seal(copy),
                twin: Some((other, seal(other))),
                ..like.clone()
            };
            for (kind, from) in &entries {
                self.entry(*kind, copy + from, &like);
            }
        }
    }

    fn heap(&mut self, sealer: &Sealer) {
        let Some(zone) = sealer.zone() else { return };
        let like = |of, seal, owns| Spot {
            key: String::new(),
            of,
            at: 0,
            len: 0,
            seal,
            twin: None,
            guard: Guard::Unit,
            owns: Some(owns),
        };
        for (index, chunk) in zone.chunks.iter().enumerate() {
            let at = zone.start + (index * CHUNK_LEN) as u64;
            let (of, chunks) = match chunk.kind {
                ChunkKind::Free => ("free chunk", 1),
                ChunkKind::Run(_) => ("run", 1),
                ChunkKind::Large(count) => ("large chunk", count),
                ChunkKind::Tail(_) => ("tail chunk", 1),
                ChunkKind::Log => ("log chunk", 1),
                ChunkKind::Bad => continue,
            };
            let owns = (chunk.at, chunks * zone.chunk_len);
            self.add("heap CHUNK", FIELDS_CHUNK, at, &like(of, Seal::Chunk(at), owns));
        }
        let structs = Structs::collections();
        zone.each_place(|place| {
            let Some(bytes) = self.pool.get(place.slot, SLOT_LEN as u64) else { return };
            let slot = Slot::decode(bytes);
            let of = match (slot.state, place.large) {
                (STATE_LIVE, true) => "large object",
                (STATE_LIVE, false) => "object",
                _ => "free place",
            };
            let like = like(of, Seal::Object(*place), (place.object, place.capacity));
            self.add("heap SLOT", FIELDS_SLOT, place.slot, &like);
            if slot.state == STATE_LIVE {
                self.object(&structs, place, &slot, &like);
            }
        });
        self.parity(zone.start + zone.data_rows * zone.row_len, zone.row_len, zone.parity_rows);
    }

    /// Parity has no fields: a word over the start of each of its pages stands for them.
    fn parity(&mut self, at: u64, row_len: u64, rows: u64) {
        for (row, name) in (0..rows).zip(["parity P", "parity Q"]) {
            for col in (0..row_len).step_by(4096) {
                self.all.push(Spot {
                    key: key(name, "word", 0),
                    of: name,
                    at: at + row * row_len + col,
                    len: 8,
                    seal: Seal::None,
                    twin: None,
                    guard: Guard::Unit,
                    owns: Some((0, 0)),
                });
            }
        }
    }

    fn object(&mut self, structs: &Structs, place: &Place, slot: &Slot, like: &Spot) {
        for granule in 1..slot.len.div_ceil(GRANULE) {
            let at = place.sums + (granule - 1) * SUM_LEN;
            self.add("heap SUM", &[Field::new("sum", 0, SUM_LEN)], at, like);
        }
        let kind = slot.kind as u32;
        if kind == anchor_type() {
            self.add("object ANCHOR", FIELDS_ANCHOR, place.object, like);
        }
        let Some(name) = structure_of(holdfast_layout::TypeNumber(kind)) else { return };
        if name == "Entry" {
            let fields = [
                Field::new("key length", 0, 4),
                Field::new("key", 4, slot.len.saturating_sub(12)),
                Field::new("value", slot.len - 8, 8),
            ];
            self.add(&structure("Entry"), &fields, place.object, like);
            return;
        }
        if name == "HashDirectory" {
            let word = [Field::new("words", 0, 8)];
            self.add(&structure(name), &word, place.object, like);
        }
        self.parts(structs, name, place.object, like);
    }

    /// Adds the parts of a struct; of arrays the first element that is in use.
    fn parts(&mut self, structs: &Structs, name: &str, base: u64, like: &Spot) {
        for part in structs.parts(name) {
            let (mut kind, mut at, mut len) = (part.kind.as_str(), base + part.at, part.len);
            if let Some((element, count)) = structs.array(kind) {
                (kind, len) = (element, structs.size(element));
                let used = (0..count).map(|index| at + index * len).find(|at| {
                    self.pool.get(*at, len).is_some_and(|bytes| bytes.iter().any(|b| *b != 0))
                });
                at = used.unwrap_or(at);
            }
            let mut spot = like.clone();
            spot.key = key(&structure(name), &part.name, part.at);
            (spot.at, spot.len) = (at, len);
            self.all.push(spot);
            if !structs.parts(kind).is_empty() {
                self.parts(structs, kind, at, like);
            }
        }
    }
}
