//! A small zone on the faulty medium, and the stores a commit would make to its heap.
#![allow(dead_code, reason = "each test binary uses its own part")]

use holdfast_faultmem::{Config, FaultMedium};
use holdfast_heap::format::{SLOT_LEN, STATE_LIVE};
use holdfast_heap::sums::granules;
use holdfast_heap::verify::Direct;
use holdfast_heap::{Cache, ChunkEntry, ChunkKind, Heap, ReserveError, Slot, Spot, ZoneTable};
use holdfast_layout::{Region, RegionKind, SumKind};
use holdfast_pmem::{Medium, MediumKind, Site};

pub(crate) const PAGE: u64 = 4096;
pub(crate) const START: u64 = 3 * PAGE;
pub(crate) const SEED: u32 = 0x5eed_0001;
const STORE: Site = Site::new("test.heap.store");
const DRAIN: Site = Site::new("test.heap.drain");

/// A zone of `pages` pages of data in one row, cut into chunks of `chunk` bytes.
pub(crate) fn region(start: u64, pages: u64, chunk: u64) -> Region {
    let row_len = pages * PAGE;
    let kind = RegionKind::Zone;
    Region { start, len: row_len, kind, data_rows: 1, parity_rows: 0, row_len, chunk }
}

/// A medium and a heap of one zone whose directory says that every chunk is free.
pub(crate) struct Zone {
    pub(crate) m: FaultMedium,
    pub(crate) heap: Heap,
    pub(crate) region: Region,
    pub(crate) kind: SumKind,
}

impl Zone {
    pub(crate) fn new(pages: u64, chunk: u64) -> Self {
        Self::with(pages, chunk, SumKind::Crc32c)
    }

    pub(crate) fn with(pages: u64, chunk: u64, kind: SumKind) -> Self {
        let region = region(START, pages, chunk);
        let m = FaultMedium::new(START + region.len, MediumKind::Shm, &Config::default());
        let heap = Heap::new(SEED, kind);
        assert_eq!(heap.add_zone(&region), Some(0));
        let this = Self { m, heap, region, kind };
        for chunk in 0..this.table().chunks() {
            this.write_entry(chunk, &ChunkEntry::VIRGIN);
        }
        this
    }

    pub(crate) fn table(&self) -> &ZoneTable {
        self.heap.zone(0).unwrap()
    }

    /// Stores and drains: what a commit that is complete left.
    pub(crate) fn store(&self, at: u64, bytes: &[u8]) {
        self.m.put(STORE, at, bytes).unwrap();
        self.m.drain(DRAIN);
    }

    pub(crate) fn write_entry(&self, chunk: u32, entry: &ChunkEntry) {
        let at = self.table().entry_at(chunk);
        self.store(at, &entry.encode(self.heap.sums(), at));
    }

    /// Commits a new entry and makes it known.
    pub(crate) fn become_kind(&self, chunk: u32, entry: &ChunkEntry) {
        self.write_entry(chunk, entry);
        self.heap.publish(0, chunk, entry);
    }

    /// Makes a free chunk a run of `class`; false if there is none.
    pub(crate) fn format_run(&self, class: u8) -> bool {
        let Some((zone, chunk, before)) = self.heap.claim_chunk() else { return false };
        assert_eq!(zone, 0);
        let entry = before.next(ChunkKind::Run, class, 0);
        let shape = self.table().shape(class).unwrap();
        for place in 0..shape.places {
            let spot = self.table().spot(chunk, &entry, &shape, place);
            let slot = self.heap.sums().first_slot(spot.object, entry.generation);
            self.store(spot.slot, &slot.encode());
        }
        self.become_kind(chunk, &entry);
        true
    }

    /// Reserves, formatting runs as they are asked for. `None` if there is no room.
    pub(crate) fn reserve(&self, cache: &mut Cache, len: u64) -> Option<Spot> {
        loop {
            match self.heap.reserve(&self.m, cache, len) {
                Ok(spot) => return Some(spot),
                Err(ReserveError::NeedRun { class }) => {
                    if !self.format_run(class) {
                        return None;
                    }
                }
                Err(ReserveError::NoSpace | ReserveError::TooLarge { .. }) => return None,
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    /// What a commit does for a reserved place: bytes, sums, slot, directory entries.
    pub(crate) fn commit(&self, spot: &Spot, bytes: &[u8]) {
        let slot = self.live_slot(spot, bytes);
        self.store(spot.object, bytes);
        for granule in 1..granules(bytes.len() as u64) {
            let part = bytes.chunks(1024).nth(granule as usize).unwrap();
            let sum = self.heap.sums().granule(spot.object, &slot, granule, part);
            self.store(spot.sum_at(granule), &sum.to_le_bytes());
        }
        self.store(spot.slot, &slot.encode());
        if spot.class == Spot::LARGE {
            for i in 0..spot.chunks {
                let before = self.table().reserved(spot.chunk + i, ChunkKind::Free).unwrap();
                let entry = match i {
                    0 => before.next(ChunkKind::Large, 0, spot.chunks),
                    _ => before.next(ChunkKind::Tail, 0, i),
                };
                self.become_kind(spot.chunk + i, &entry);
            }
        }
    }

    pub(crate) fn live_slot(&self, spot: &Spot, bytes: &[u8]) -> Slot {
        let generation = self.slot(spot).generation.wrapping_add(1);
        let len = bytes.len() as u32;
        let mut slot =
            Slot { sum: 0, generation, state: STATE_LIVE, writes: 0, type_number: 7, len };
        let first = &bytes[..bytes.len().min(1024)];
        slot.sum = self.heap.sums().granule(spot.object, &slot, 0, first);
        slot
    }

    pub(crate) fn slot(&self, spot: &Spot) -> Slot {
        let mut bytes = [0; SLOT_LEN];
        self.m.read(spot.slot, &mut bytes).unwrap();
        Slot::decode(&bytes)
    }

    /// What a commit that frees does, and what follows once it is complete.
    pub(crate) fn free(&self, cache: &mut Cache, spot: &Spot) {
        self.heap.know_run(&self.m, spot).unwrap();
        let mut slot = self.slot(spot).freed();
        slot.sum = self.heap.sums().free_slot(spot.object, &slot);
        self.store(spot.slot, &slot.encode());
        if spot.class == Spot::LARGE {
            for chunk in spot.chunk..spot.chunk + spot.chunks {
                let before = self.table().entry(chunk).unwrap();
                self.become_kind(chunk, &before.next(ChunkKind::Free, 0, 0));
            }
        } else {
            self.heap.release(cache, spot);
        }
    }

    /// Frees the chunk of an empty run, if there is one.
    pub(crate) fn recycle(&self) -> bool {
        let Some((_, chunk, before)) = self.heap.claim_empty_run(&self.m) else { return false };
        self.become_kind(chunk, &before.next(ChunkKind::Free, 0, 0));
        true
    }

    /// The same medium under a heap that knows nothing yet: what an open after a crash makes.
    pub(crate) fn reopened(self) -> Self {
        let image = self.m.crash_point().persisted();
        let m = FaultMedium::from_crash(image, MediumKind::Shm, &Config::default());
        let heap = Heap::new(SEED, self.kind);
        assert_eq!(heap.add_zone(&self.region), Some(0));
        assert_eq!(heap.load_zone(&Direct(&m), 0), []);
        Self { m, heap, ..self }
    }

    /// Every place of the zone.
    pub(crate) fn places(&self) -> Vec<Spot> {
        let mut all = Vec::new();
        for chunk in 0..self.table().chunks() {
            self.table().each_place(chunk, &mut |spot| all.push(*spot));
        }
        all
    }
}

/// Bytes that depend on a number.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .collect()
}
