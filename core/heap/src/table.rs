//! What DRAM knows of one zone: the kind of every chunk, and which places of its runs are free.
//!
//! The medium's directory and slots are the truth; this table is built from them and changed only
//! after a commit changed them, but for a run, which is shown before its entry says so. A chunk or
//! place that a running transaction reserved is taken here and free there, so a crash gives it back
//! by itself.

use holdfast_sync::atomic::{AtomicU64, Ordering};
use holdfast_sync::{Mutex, MutexGuard, PoisonError};

use holdfast_layout::Region;

use crate::class::{CLASS_COUNT, RunShape, large_head, run_shape};
use crate::directory::{ChunkEntry, ChunkKind};
use crate::format::{CHUNK_LEN, SLOT_LEN, SUM_LEN};

/// Where an object is and where what describes it is. All offsets are from the pool's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// First byte of the object.
    pub object: u64,
    /// Its slot.
    pub slot: u64,
    /// Sums of its granules from the second on.
    pub sums: u64,
    /// Bytes of the place; the object's length is at most this.
    pub capacity: u64,
    /// Index of the zone.
    pub zone: u8,
    /// Chunk in the zone (the first one of a large object).
    pub chunk: u32,
    /// Place in the run; zero for large objects.
    pub place: u32,
    /// Size class, or [`Spot::LARGE`].
    pub class: u8,
    /// Chunks of a large object; zero in runs.
    pub chunks: u32,
    /// Generation of the chunk: seeds the first generation of a virgin place.
    pub chunk_generation: u16,
}

impl Spot {
    /// The class of large objects.
    pub const LARGE: u8 = u8::MAX;

    /// Address of the sum of granule `granule`.
    #[inline]
    #[must_use]
    pub fn sum_at(&self, granule: u64) -> u64 {
        if granule == 0 { self.slot } else { self.sums + (granule - 1) * SUM_LEN }
    }
}

/// Bits of the free places of a run; `None` until the run's slots were read.
pub(crate) type RunMap = Option<Box<FreePlaces>>;

/// Free places of one run.
#[derive(Debug)]
pub(crate) struct FreePlaces {
    bits: Vec<u64>,
    /// Number of set bits.
    pub(crate) free: u32,
    /// Whether the run is in its class's list of runs with free places.
    pub(crate) listed: bool,
}

impl FreePlaces {
    pub(crate) fn none(places: u32) -> Self {
        Self { bits: vec![0; places.div_ceil(64) as usize], free: 0, listed: false }
    }

    pub(crate) fn all(places: u32) -> Self {
        let mut this = Self::none(places);
        for place in 0..places {
            this.give(place);
        }
        this
    }

    pub(crate) fn give(&mut self, place: u32) {
        let word = &mut self.bits[(place / 64) as usize];
        let bit = 1 << (place % 64);
        debug_assert!(*word & bit == 0, "place {place} is given back twice");
        self.free += u32::from(*word & bit == 0);
        *word |= bit;
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
        let (index, word) = self.bits.iter_mut().enumerate().find(|(_, w)| **w != 0)?;
        let bit = word.trailing_zeros();
        *word &= *word - 1;
        self.free -= 1;
        Some(index as u32 * 64 + bit)
    }

    pub(crate) fn contains(&self, place: u32) -> bool {
        self.bits.get((place / 64) as usize).is_some_and(|w| w >> (place % 64) & 1 == 1)
    }
}

/// Kind code of a chunk that a running transaction reserved; never on the medium.
const RESERVED: u64 = 0xff;

/// The table of one zone.
#[derive(Debug)]
pub struct ZoneTable {
    index: u8,
    start: u64,
    data_len: u64,
    chunks_at: u64,
    chunk: u64,
    shift: u32,
    shapes: [Option<RunShape>; CLASS_COUNT],
    words: Box<[AtomicU64]>,
    runs: Box<[Mutex<RunMap>]>,
    cursor: AtomicU64,
}

fn pack(entry: &ChunkEntry) -> u64 {
    let kind = match entry.kind {
        ChunkKind::Free => 0,
        ChunkKind::Run => 1,
        ChunkKind::Large => 2,
        ChunkKind::Tail => 3,
        ChunkKind::Log => 4,
    };
    kind | u64::from(entry.class) << 8
        | u64::from(entry.generation) << 16
        | u64::from(entry.count) << 32
}

fn unpack(word: u64) -> Option<ChunkEntry> {
    let kind = match word & 0xff {
        0 => ChunkKind::Free,
        1 => ChunkKind::Run,
        2 => ChunkKind::Large,
        3 => ChunkKind::Tail,
        4 => ChunkKind::Log,
        _ => return None,
    };
    Some(ChunkEntry {
        kind,
        class: (word >> 8) as u8,
        generation: (word >> 16) as u16,
        count: (word >> 32) as u32,
    })
}

/// Chunks and bytes of the directory of a zone with `data_len` bytes of data.
fn chunk_count(data_len: u64, chunk: u64) -> u64 {
    let page = holdfast_pmem::PAGE;
    let mut count = data_len / chunk;
    while count > 0 && (count * CHUNK_LEN as u64).next_multiple_of(page) + count * chunk > data_len
    {
        count -= 1;
    }
    count
}

impl ZoneTable {
    /// The table of a zone whose chunks are all virgin.
    #[must_use]
    pub fn new(index: u8, region: &Region) -> Self {
        let data_len = region.row_len * u64::from(region.data_rows);
        let count = chunk_count(data_len, region.chunk);
        let directory = (count * CHUNK_LEN as u64).next_multiple_of(holdfast_pmem::PAGE);
        let mut shapes = [None; CLASS_COUNT];
        for (class, shape) in shapes.iter_mut().enumerate() {
            *shape = run_shape(class as u8, region.chunk);
        }
        Self {
            index,
            start: region.start,
            data_len,
            chunks_at: region.start + directory,
            chunk: region.chunk,
            shift: region.chunk.trailing_zeros(),
            shapes,
            words: (0..count).map(|_| AtomicU64::new(pack(&ChunkEntry::VIRGIN))).collect(),
            runs: (0..count).map(|_| Mutex::new(None)).collect(),
            cursor: AtomicU64::new(0),
        }
    }

    /// Index of the zone.
    #[inline]
    #[must_use]
    pub fn index(&self) -> u8 {
        self.index
    }

    /// Number of chunks.
    #[inline]
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.words.len() as u32
    }

    /// Bytes of a chunk.
    #[inline]
    #[must_use]
    pub fn chunk_len(&self) -> u64 {
        self.chunk
    }

    /// Longest object the zone can hold.
    #[must_use]
    pub fn object_max(&self) -> u64 {
        let all = u64::from(self.chunks());
        (all * self.chunk)
            .saturating_sub(large_head(all, self.chunk))
            .min(crate::format::OBJECT_MAX)
    }

    /// Whether `at` lies in the zone's data.
    #[inline]
    #[must_use]
    pub fn contains(&self, at: u64) -> bool {
        at.wrapping_sub(self.start) < self.data_len
    }

    /// Address of the directory entry of chunk `index`.
    #[inline]
    #[must_use]
    pub fn entry_at(&self, index: u32) -> u64 {
        self.start + u64::from(index) * CHUNK_LEN as u64
    }

    /// First byte of chunk `index`.
    #[inline]
    #[must_use]
    pub fn chunk_at(&self, index: u32) -> u64 {
        self.chunks_at + u64::from(index) * self.chunk
    }

    /// First byte after the directory.
    #[inline]
    #[must_use]
    pub fn chunks_at(&self) -> u64 {
        self.chunks_at
    }

    /// Chunk that holds `at`, if `at` lies in one.
    #[inline]
    #[must_use]
    pub fn chunk_of(&self, at: u64) -> Option<u32> {
        let index = at.checked_sub(self.chunks_at)? >> self.shift;
        (index < self.words.len() as u64).then_some(index as u32)
    }

    /// What chunk `index` is; `None` if it is reserved by a running transaction or out of range.
    #[inline]
    #[must_use]
    pub fn entry(&self, index: u32) -> Option<ChunkEntry> {
        unpack(self.words.get(index as usize)?.load(Ordering::Acquire))
    }

    /// The inside of runs of `class`.
    #[inline]
    #[must_use]
    pub fn shape(&self, class: u8) -> Option<RunShape> {
        *self.shapes.get(usize::from(class))?
    }

    /// Whether the table's entry may stand for chunk `index`: its class and counts fit the zone.
    #[must_use]
    pub fn plausible(&self, index: u32, entry: &ChunkEntry) -> bool {
        match entry.kind {
            ChunkKind::Free | ChunkKind::Log => true,
            ChunkKind::Run => self.shape(entry.class).is_some(),
            ChunkKind::Large => {
                entry.count > 0 && u64::from(index) + u64::from(entry.count) <= self.chunks().into()
            }
            ChunkKind::Tail => entry.count > 0 && entry.count <= index,
        }
    }

    /// Records what chunk `index` is now.
    pub fn set(&self, index: u32, entry: &ChunkEntry) {
        if let Some(word) = self.words.get(index as usize) {
            word.store(pack(entry), Ordering::Release);
        }
        if entry.kind != ChunkKind::Run
            && let Some(run) = self.runs.get(index as usize)
        {
            *run.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    pub(crate) fn run(&self, index: u32) -> Option<MutexGuard<'_, RunMap>> {
        Some(self.runs.get(index as usize)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Finds the object that starts at exactly `object`.
    #[inline]
    #[must_use]
    pub fn locate(&self, object: u64) -> Option<Spot> {
        let chunk = self.chunk_of(object)?;
        let entry = self.entry(chunk)?;
        let chunk_at = self.chunk_at(chunk);
        let inside = object - chunk_at;
        match entry.kind {
            ChunkKind::Run => {
                let shape = self.shape(entry.class)?;
                let past = (inside as u32).checked_sub(shape.objects)?;
                let place = past / shape.size;
                if place * shape.size != past || place >= shape.places {
                    return None;
                }
                Some(self.spot(chunk, &entry, &shape, place))
            }
            ChunkKind::Large if inside == large_head(entry.count.into(), self.chunk) => {
                Some(self.large_spot(chunk, &entry))
            }
            // What stands before a very long object, its sums, fills chunks of its own.
            ChunkKind::Tail => {
                let head = chunk.checked_sub(entry.count)?;
                let first = self.entry(head).filter(|first| first.kind == ChunkKind::Large)?;
                Some(self.large_spot(head, &first)).filter(|spot| spot.object == object)
            }
            _ => None,
        }
    }

    /// The place `place` of run `chunk`.
    #[inline]
    #[must_use]
    pub fn spot(&self, chunk: u32, entry: &ChunkEntry, shape: &RunShape, place: u32) -> Spot {
        let chunk_at = self.chunk_at(chunk);
        let sums = shape.sums + place * shape.sums_each * SUM_LEN as u32;
        Spot {
            object: chunk_at + u64::from(shape.objects + place * shape.size),
            slot: chunk_at + u64::from(place) * SLOT_LEN as u64,
            sums: chunk_at + u64::from(sums),
            capacity: shape.size.into(),
            zone: self.index,
            chunk,
            place,
            class: entry.class,
            chunks: 0,
            chunk_generation: entry.generation,
        }
    }

    /// The large object that starts in `chunk`.
    #[must_use]
    pub fn large_spot(&self, chunk: u32, entry: &ChunkEntry) -> Spot {
        let chunk_at = self.chunk_at(chunk);
        let head = large_head(entry.count.into(), self.chunk);
        Spot {
            object: chunk_at + head,
            slot: chunk_at,
            sums: chunk_at + SLOT_LEN as u64,
            capacity: u64::from(entry.count) * self.chunk - head,
            zone: self.index,
            chunk,
            place: 0,
            class: Spot::LARGE,
            chunks: entry.count,
            chunk_generation: entry.generation,
        }
    }

    /// Takes `count` free neighbouring chunks for a running transaction, first fit.
    #[must_use]
    pub fn claim(&self, count: u32) -> Option<u32> {
        let all = self.chunks();
        if count == 0 || count > all {
            return None;
        }
        let from = (self.cursor.load(Ordering::Relaxed) as u32).min(all);
        self.claim_between(from, all, count).or_else(|| self.claim_between(0, all, count))
    }

    fn claim_between(&self, from: u32, to: u32, count: u32) -> Option<u32> {
        let mut first = from;
        while first + count <= to {
            // Walk down from the end of the window: a taken chunk rules out all windows up to it.
            match (first..first + count).rev().find(|i| !self.is_free(*i)) {
                Some(taken) => first = taken + 1,
                None if self.reserve(first, count) => {
                    if count == 1 {
                        self.cursor.store(u64::from(first) + 1, Ordering::Relaxed);
                    }
                    return Some(first);
                }
                None => {}
            }
        }
        None
    }

    fn is_free(&self, index: u32) -> bool {
        self.entry(index).is_some_and(|e| e.kind == ChunkKind::Free)
    }

    /// Reserves one by one; on a lost race gives back what it has.
    fn reserve(&self, first: u32, count: u32) -> bool {
        for index in first..first + count {
            if !self.reserve_if(index, ChunkKind::Free) {
                (first..index).for_each(|i| self.unreserve(i, ChunkKind::Free));
                return false;
            }
        }
        true
    }

    /// Reserves chunk `index` if it is of `kind`; generation and class are kept in the word.
    pub fn reserve_if(&self, index: u32, kind: ChunkKind) -> bool {
        let Some(word) = self.words.get(index as usize) else { return false };
        let now = word.load(Ordering::Acquire);
        match unpack(now) {
            Some(entry) if entry.kind == kind => word
                .compare_exchange(now, now | RESERVED, Ordering::AcqRel, Ordering::Acquire)
                .is_ok(),
            _ => false,
        }
    }

    /// Gives a reserved chunk back as `kind`.
    pub fn unreserve(&self, index: u32, kind: ChunkKind) {
        let Some(word) = self.words.get(index as usize) else { return };
        let now = word.load(Ordering::Acquire);
        if now & 0xff == RESERVED
            && let Some(entry) = unpack(now & !0xff)
        {
            word.store(pack(&ChunkEntry { kind, ..entry }), Ordering::Release);
        }
    }

    /// The entry of a reserved chunk before it was reserved.
    #[must_use]
    pub fn reserved(&self, index: u32, kind: ChunkKind) -> Option<ChunkEntry> {
        let word = self.words.get(index as usize)?.load(Ordering::Acquire);
        unpack(word & !0xff).map(|entry| ChunkEntry { kind, ..entry })
    }
}
