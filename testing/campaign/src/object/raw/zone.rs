//! One zone: its directory, the places in its chunks, their slots, and the objects in them.

use std::sync::Arc;

use holdfast_heap::class::{RunShape, large_head, run_shape};
use holdfast_heap::format::{
    CHUNK_LEN, FIELDS_CHUNK, FIELDS_SLOT, GRANULE, KIND_FREE, KIND_LARGE, KIND_LOG, KIND_RUN,
    KIND_TAIL, SLOT_LEN, STATE_FREE, SUM_LEN,
};
use holdfast_layout::format::{FIELDS_REGION, FIELDS_SUPERBLOCK};
use holdfast_pmem::PAGE;

use super::sums::{adler, crc, stored};
use super::{Bytes, Survey, number};
use crate::object::model::Object;

/// Codes of the kinds of sums in the superblock.
const SUMS_NONE: u64 = 0;
const SUMS_ADLER: u64 = 2;

/// What a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkKind {
    /// Nothing.
    Free,
    /// A run of places of one size.
    Run(RunShape),
    /// The first of so many chunks of one object.
    Large(u64),
    /// The chunk so far behind the first one of its object.
    Tail(u64),
    /// Log space: zeros in parity.
    Log,
    /// Its entry does not verify or says something impossible.
    Bad,
}

/// A chunk as the directory describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// What it is.
    pub kind: ChunkKind,
    /// First byte.
    pub at: u64,
}

/// Room for one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// First byte of the object.
    pub object: u64,
    /// Its slot.
    pub slot: u64,
    /// Sums of its granules from the second on.
    pub sums: u64,
    /// Bytes there is room for.
    pub capacity: u64,
    /// Whether it has chunks of its own.
    pub large: bool,
}

/// A slot, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Sum stored.
    pub sum: u32,
    /// Generation.
    pub generation: u64,
    /// State, without the number of writes.
    pub state: u8,
    /// Number of writes.
    pub writes: u64,
    /// Type number.
    pub kind: u64,
    /// Length of the object.
    pub len: u64,
}

/// A zone as its directory describes it.
#[derive(Debug, Clone)]
pub struct ZoneMap {
    /// First byte.
    pub start: u64,
    /// Bytes of a row.
    pub row_len: u64,
    /// Rows of data.
    pub data_rows: u64,
    /// Rows of parity.
    pub parity_rows: u64,
    /// Bytes of a chunk.
    pub chunk_len: u64,
    /// The chunks.
    pub chunks: Vec<Chunk>,
    seed: u32,
    sums: u64,
}

impl ZoneMap {
    /// Reads the directory of the zone that `region` describes.
    pub fn read(
        pool: &Bytes,
        region: &[u8],
        seed: u32,
        superblock: &[u8],
        survey: &mut Survey,
    ) -> Self {
        let field = |name| number(FIELDS_REGION, name, region);
        let (start, chunk_len) = (field("start"), field("chunk"));
        let (row_len, data_rows) = (field("row_len"), field("data_rows"));
        let data_len = row_len * data_rows;
        let directory = |count: u64| (count * CHUNK_LEN as u64).next_multiple_of(PAGE);
        let mut count = data_len / chunk_len;
        while count > 0 && directory(count) + count * chunk_len > data_len {
            count -= 1;
        }
        let mut map = Self {
            start,
            row_len,
            data_rows,
            parity_rows: field("parity_rows"),
            chunk_len,
            chunks: Vec::new(),
            seed,
            sums: number(FIELDS_SUPERBLOCK, "sum_kind", superblock),
        };
        let first = start + directory(count);
        for index in 0..count {
            let kind = map.entry(pool, index, count);
            if kind == ChunkKind::Bad {
                let at = start + index * CHUNK_LEN as u64;
                survey.flaw(format!("directory entry {index} at {at:#x} does not verify"));
            }
            map.chunks.push(Chunk { kind, at: first + index * chunk_len });
        }
        map.check_chains(survey);
        map
    }

    /// Decodes the directory entry of chunk `index`.
    fn entry(&self, pool: &Bytes, index: u64, count: u64) -> ChunkKind {
        let at = self.start + index * CHUNK_LEN as u64;
        let Some(entry) = pool.get(at, CHUNK_LEN as u64) else { return ChunkKind::Bad };
        let sum = stored(crc(crc(self.seed, &at.to_le_bytes()), &entry[4..]));
        if u64::from(sum) != number(FIELDS_CHUNK, "crc", entry) {
            return ChunkKind::Bad;
        }
        let n = number(FIELDS_CHUNK, "count", entry);
        let class = number(FIELDS_CHUNK, "class", entry) as u8;
        match number(FIELDS_CHUNK, "kind", entry) as u8 {
            KIND_FREE => ChunkKind::Free,
            KIND_RUN => run_shape(class, self.chunk_len).map_or(ChunkKind::Bad, ChunkKind::Run),
            KIND_LARGE if n > 0 && index + n <= count => ChunkKind::Large(n),
            KIND_TAIL if n > 0 && n <= index => ChunkKind::Tail(n),
            KIND_LOG => ChunkKind::Log,
            _ => ChunkKind::Bad,
        }
    }

    /// Every tail belongs to a large object, every large object has its tails.
    fn check_chains(&self, survey: &mut Survey) {
        let mut expected = 0;
        let mut behind = 0;
        for (index, chunk) in self.chunks.iter().enumerate() {
            if let ChunkKind::Tail(n) = chunk.kind
                && expected > 0
                && n == behind
            {
                expected -= 1;
                behind += 1;
                continue;
            }
            if expected > 0 || matches!(chunk.kind, ChunkKind::Tail(_)) {
                survey.flaw(format!("chunk {index} breaks a chain of chunks of a large object"));
            }
            (expected, behind) = match chunk.kind {
                ChunkKind::Large(n) => (n - 1, 1),
                _ => (0, 0),
            };
        }
        if expected > 0 {
            survey.flaw("the last large object has too few chunks".to_owned());
        }
    }

    /// Every place of the zone, in order.
    pub fn each_place(&self, mut each: impl FnMut(&Place)) {
        for chunk in &self.chunks {
            match chunk.kind {
                ChunkKind::Run(shape) => {
                    for place in 0..u64::from(shape.places) {
                        each(&in_run(chunk.at, &shape, place));
                    }
                }
                ChunkKind::Large(count) => {
                    let head = large_head(count, self.chunk_len);
                    each(&Place {
                        object: chunk.at + head,
                        slot: chunk.at,
                        sums: chunk.at + SLOT_LEN as u64,
                        capacity: count * self.chunk_len - head,
                        large: true,
                    });
                }
                _ => {}
            }
        }
    }

    /// Log chunks, as ranges that count as zeros in parity.
    pub fn exempt(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let log = self.chunks.iter().filter(|chunk| chunk.kind == ChunkKind::Log);
        log.map(|chunk| (chunk.at, self.chunk_len))
    }

    /// Whether objects have sums.
    #[must_use]
    pub const fn summed(&self) -> bool {
        self.sums != SUMS_NONE
    }

    /// Collects the live objects, checking slots and sums.
    pub fn objects(&self, pool: &Bytes, survey: &mut Survey) {
        for chunk in &self.chunks {
            survey.log_chunks += u64::from(chunk.kind == ChunkKind::Log);
            survey.free_chunks += u64::from(chunk.kind == ChunkKind::Free);
        }
        self.each_place(|place| {
            if let Err(flaw) = self.object(pool, place, survey) {
                survey.flaw(flaw);
            }
        });
    }

    fn object(&self, pool: &Bytes, place: &Place, survey: &mut Survey) -> Result<(), String> {
        let Place { object, slot: at, .. } = *place;
        let unreadable = |what: &str, at: u64| format!("{what} at {at:#x} cannot be read");
        let bytes = pool.get(at, SLOT_LEN as u64).ok_or_else(|| unreadable("slot", at))?;
        let slot = Slot::decode(bytes);
        match slot.state {
            STATE_FREE if place.large => {
                return Err(format!("large object at {object:#x} has a free slot"));
            }
            STATE_FREE => {
                let good = !self.summed() || self.sum(object, &slot, 0, &[]) == slot.sum;
                return if good { Ok(()) } else { Err(format!("free slot at {at:#x} is bad")) };
            }
            _ => {}
        }
        if slot.len > place.capacity {
            return Err(format!("slot at {at:#x} has length {} in too small a place", slot.len));
        }
        let data = pool.get(object, slot.len).ok_or_else(|| unreadable("object", object))?;
        let word = object | slot.generation << 48;
        let kind = slot.kind as u32;
        survey.objects.insert(word, Object { kind, bytes: Arc::from(data) });
        if !self.summed() {
            return Ok(());
        }
        let granules = slot.len.div_ceil(GRANULE).max(1);
        for granule in 0..granules {
            let from = (granule * GRANULE) as usize;
            let part = &data[from..data.len().min(from + GRANULE as usize)];
            let stored = if granule == 0 {
                slot.sum
            } else {
                let at = place.sums + (granule - 1) * SUM_LEN;
                let sum = pool.get(at, SUM_LEN).ok_or_else(|| unreadable("sum", at))?;
                u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]])
            };
            if self.sum(object, &slot, granule, part) != stored {
                return Err(format!("object {object:#x}: granule {granule} does not verify"));
            }
        }
        Ok(())
    }

    /// Sum of a granule of an object.
    #[must_use]
    pub fn sum(&self, object: u64, slot: &Slot, granule: u64, bytes: &[u8]) -> u32 {
        let first = slot.generation | u64::from(slot.state) << 16 | slot.kind << 32;
        let second = slot.len | granule << 32;
        let words = [object, first, second];
        let seed = words.iter().fold(self.seed, |sum, word| crc(sum, &word.to_le_bytes()));
        let writes = if granule == 0 { (slot.writes * 2_246_822_507) as u32 } else { 0 };
        if self.sums == SUMS_ADLER {
            let halves = ((seed & 0xffff) % 65_521) | (((seed >> 16) % 65_521) << 16);
            return stored(adler(halves, bytes) ^ writes);
        }
        stored(crc(seed, bytes) ^ writes)
    }
}

impl Slot {
    /// From its bytes.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        let field = |name| number(FIELDS_SLOT, name, bytes);
        Self {
            sum: field("sum") as u32,
            generation: field("generation"),
            state: (field("state") & 1) as u8,
            writes: field("state") >> 1,
            kind: field("type"),
            len: field("len"),
        }
    }
}

fn in_run(chunk: u64, shape: &RunShape, place: u64) -> Place {
    let sums = u64::from(shape.sums) + place * u64::from(shape.sums_each) * SUM_LEN;
    Place {
        object: chunk + u64::from(shape.objects) + place * u64::from(shape.size),
        slot: chunk + place * SLOT_LEN as u64,
        sums: chunk + sums,
        capacity: shape.size.into(),
        large: false,
    }
}
