//! The heap of a pool: finds objects, reserves places, gives them back.
//!
//! A reservation is volatile: it needs no fence, is published by the slot that the transaction's
//! record carries, and is forgotten by a crash or a `cancel`. A place becomes reusable only after
//! the commit that freed it is complete.

use holdfast_sync::atomic::{AtomicUsize, Ordering};
use holdfast_sync::{Mutex, OnceLock, PoisonError};

use holdfast_layout::{Certify, Region, SumKind};
use holdfast_pmem::{MediaError, Medium, Site};

use crate::class::{CLASS_COUNT, class_of, large_chunks};
use crate::directory::{ChunkEntry, ChunkKind};
use crate::sums::{Slot, Sums};
use crate::table::{FreePlaces, Spot, ZoneTable};
use crate::verify::{Direct, Source, read_entry, read_slot};

/// Zones a pool can have.
pub const ZONES_MAX: usize = holdfast_layout::format::REGIONS_MAX;
/// Believing only directory entries whose sum is right.
const VERIFY_ENTRY: Site = Site::new("heap.heap.verify-entry");
/// Handing out only places whose free slot has a right sum.
const VERIFY_FREE: Site = Site::new("heap.heap.verify-free");
/// Places a lane takes from a run at a time.
const BATCH: usize = 32;

/// Why a reservation could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveError {
    /// A run of this class must be formatted first: claim a chunk, commit its entry, publish it.
    NeedRun {
        /// The class.
        class: u8,
    },
    /// Neither free chunks nor free places are left.
    NoSpace,
    /// Longer than any zone can hold.
    TooLarge {
        /// Longest object.
        limit: u64,
    },
    /// A slot could not be read, or does not verify.
    Damaged(MediaError),
}

/// Free places a lane holds, so that most allocations touch nothing shared.
#[derive(Debug, Default)]
pub struct Cache {
    places: [Vec<Spot>; CLASS_COUNT],
}

impl Cache {
    /// Places held, over all classes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.iter().map(Vec::len).sum()
    }

    /// Whether no place is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How much of a heap is what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of all chunks.
    pub total: u64,
    /// Bytes in chunks nothing uses.
    pub free_chunks: u64,
    /// Bytes of free places in runs.
    pub free_places: u64,
    /// Bytes of places and chunks that hold objects.
    pub used: u64,
    /// Bytes of slots, sums, directories and rounding inside runs and large objects.
    pub overhead: u64,
    /// Live objects.
    pub objects: u64,
    /// Bytes of live objects as asked for.
    pub object_bytes: u64,
    /// Bytes of the largest object that fits now.
    pub largest: u64,
}

/// The heap of a pool.
#[derive(Debug)]
pub struct Heap {
    zones: [OnceLock<ZoneTable>; ZONES_MAX],
    count: AtomicUsize,
    partial: [Mutex<Vec<(u8, u32)>>; CLASS_COUNT],
    sums: Sums,
}

/// A directory entry that does not verify, found while a zone was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadEntry {
    /// Address of the entry.
    pub at: u64,
    /// The media error, if it could not be read at all.
    pub media: Option<MediaError>,
}

impl Heap {
    /// A heap without zones.
    #[must_use]
    pub fn new(seed: u32, kind: SumKind) -> Self {
        Self {
            zones: core::array::from_fn(|_| OnceLock::new()),
            count: AtomicUsize::new(0),
            partial: core::array::from_fn(|_| Mutex::new(Vec::new())),
            sums: Sums::new(seed, kind),
        }
    }

    /// How sums are computed.
    #[inline]
    #[must_use]
    pub fn sums(&self) -> &Sums {
        &self.sums
    }

    /// The zones, oldest first.
    pub fn zones(&self) -> impl Iterator<Item = &ZoneTable> {
        self.zones[..self.count.load(Ordering::Acquire)].iter().filter_map(OnceLock::get)
    }

    /// Zone number `index`.
    #[inline]
    #[must_use]
    pub fn zone(&self, index: u8) -> Option<&ZoneTable> {
        self.zones.get(usize::from(index))?.get()
    }

    /// The zone whose data holds `at`.
    #[inline]
    #[must_use]
    pub fn zone_of(&self, at: u64) -> Option<&ZoneTable> {
        self.zones().find(|z| z.contains(at))
    }

    /// Finds the object that starts at exactly `object`.
    #[inline]
    #[must_use]
    pub fn locate(&self, object: u64) -> Option<Spot> {
        self.zone_of(object)?.locate(object)
    }

    /// Adds a zone whose directory was not read yet. Returns its index, or `None` if the pool
    /// has as many as it can.
    pub fn add_zone(&self, region: &Region) -> Option<u8> {
        self.add_zone_with(region, |_| ())
    }

    /// As [`add_zone`](Self::add_zone); `before` is called before a place in the zone can be taken,
    /// for whatever has to know of it by then.
    pub fn add_zone_with(&self, region: &Region, before: impl FnOnce(&ZoneTable)) -> Option<u8> {
        let index = self.count.load(Ordering::Acquire);
        let table = ZoneTable::new(u8::try_from(index).ok()?, region);
        let cell = self.zones.get(index)?;
        cell.set(table).ok()?;
        before(cell.get()?);
        self.count.store(index + 1, Ordering::Release);
        Some(index as u8)
    }

    /// The directory entry that `from` has at `at`; `None` if it is not valid. Changes nothing.
    ///
    /// # Errors
    /// A [`MediaError`] if it cannot be read.
    pub fn entry_found(
        &self,
        from: &impl Source,
        at: u64,
    ) -> Result<Option<ChunkEntry>, MediaError> {
        read_entry(from, &self.sums, at, Certify::when(from.enabled(VERIFY_ENTRY)))
    }

    /// Reads the directory entry of one chunk into the table. A bad one is returned and leaves
    /// the chunk as it was known.
    ///
    /// # Errors
    /// The [`BadEntry`].
    pub fn load_entry(&self, from: &impl Source, zone: u8, chunk: u32) -> Result<(), BadEntry> {
        let Some(table) = self.zone(zone) else { return Ok(()) };
        let at = table.entry_at(chunk);
        match self.entry_found(from, at) {
            Ok(Some(entry)) if table.plausible(chunk, &entry) => {
                table.set(chunk, &entry);
                if entry.kind == ChunkKind::Run {
                    self.list(zone, chunk, entry.class);
                }
                Ok(())
            }
            Ok(_) => Err(BadEntry { at, media: None }),
            Err(media) => Err(BadEntry { at, media: Some(media) }),
        }
    }

    /// Reads the whole directory of a zone; bad entries are returned.
    pub fn load_zone(&self, from: &impl Source, zone: u8) -> Vec<BadEntry> {
        let chunks = self.zone(zone).map_or(0, ZoneTable::chunks);
        (0..chunks).filter_map(|chunk| self.load_entry(from, zone, chunk).err()).collect()
    }

    fn list(&self, zone: u8, chunk: u32, class: u8) {
        if let Some(list) = self.partial.get(usize::from(class)) {
            let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
            if !list.contains(&(zone, chunk)) {
                list.push((zone, chunk));
            }
        }
    }

    /// Reserves a place for an object of `len` bytes. Objects without a class get chunks of their
    /// own; `chunks` of the spot says how many entries the commit must write.
    ///
    /// # Errors
    /// A [`ReserveError`].
    pub fn reserve<M: Medium>(
        &self,
        m: &M,
        cache: &mut Cache,
        len: u64,
    ) -> Result<Spot, ReserveError> {
        let limit = self.zones().map(ZoneTable::object_max).max().unwrap_or(0);
        if len > limit {
            return Err(ReserveError::TooLarge { limit });
        }
        let chunk_len = self.zones().next().map_or(0, ZoneTable::chunk_len);
        let Some(class) = class_of(len, chunk_len) else {
            return self.reserve_large(len);
        };
        let places = &mut cache.places[usize::from(class)];
        if let Some(spot) = places.pop() {
            return Ok(spot);
        }
        self.refill(m, places, class)?;
        places.pop().ok_or(ReserveError::NeedRun { class })
    }

    fn reserve_large(&self, len: u64) -> Result<Spot, ReserveError> {
        for zone in self.zones() {
            let count = large_chunks(len, zone.chunk_len());
            let Ok(count) = u32::try_from(count) else { continue };
            if let Some(chunk) = zone.claim(count) {
                let before = zone.reserved(chunk, ChunkKind::Free).unwrap_or(ChunkEntry::VIRGIN);
                return Ok(zone.large_spot(chunk, &before.next(ChunkKind::Large, 0, count)));
            }
        }
        Err(ReserveError::NoSpace)
    }

    /// Takes up to a batch of free places of `class` from listed runs, lowest first.
    fn refill<M: Medium>(
        &self,
        m: &M,
        into: &mut Vec<Spot>,
        class: u8,
    ) -> Result<(), ReserveError> {
        let list = &self.partial[usize::from(class)];
        let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
        while into.is_empty() {
            let Some(&(zone, chunk)) = list.last() else { return Ok(()) };
            let table = self.zone(zone).ok_or(ReserveError::NoSpace)?;
            let entry = table.entry(chunk).filter(|e| e.kind == ChunkKind::Run && e.class == class);
            let (Some(entry), Some(shape)) = (entry, table.shape(class)) else {
                list.pop();
                continue;
            };
            self.load_run(m, table, chunk, &entry).map_err(ReserveError::Damaged)?;
            let Some(mut run) = table.run(chunk) else { return Ok(()) };
            let Some(free) = run.as_mut() else { continue };
            while into.len() < BATCH
                && let Some(place) = free.take()
            {
                into.push(table.spot(chunk, &entry, &shape, place));
            }
            free.listed = free.free > 0;
            if !free.listed {
                list.pop();
            }
        }
        into.reverse();
        Ok(())
    }

    /// Reads the slots of a run unless that was done already. Places whose slot is not a valid
    /// free one are never handed out.
    fn load_run<M: Medium>(
        &self,
        m: &M,
        table: &ZoneTable,
        chunk: u32,
        entry: &ChunkEntry,
    ) -> Result<(), MediaError> {
        let Some(mut run) = table.run(chunk) else { return Ok(()) };
        let Some(shape) = table.shape(entry.class).filter(|_| run.is_none()) else {
            return Ok(());
        };
        let certify = Certify::when(m.enabled(VERIFY_FREE));
        let mut free = FreePlaces::none(shape.places);
        for place in 0..shape.places {
            let spot = table.spot(chunk, entry, &shape, place);
            let slot = read_slot(&Direct(m), &spot)?;
            if !slot.is_live() && self.sums.free_slot_good(spot.object, &slot, certify) {
                free.give(place);
            }
        }
        free.listed = true;
        *run = Some(Box::new(free));
        Ok(())
    }

    /// Makes sure the free places of the run that holds `spot` are known. Must precede the commit
    /// that frees the object: a run read later would find the place free before it is given
    /// back, and hand it out twice.
    ///
    /// # Errors
    /// A [`MediaError`] if a slot of the run cannot be read.
    pub fn know_run<M: Medium>(&self, m: &M, spot: &Spot) -> Result<(), MediaError> {
        let Some(table) = self.zone(spot.zone) else { return Ok(()) };
        match table.entry(spot.chunk) {
            Some(entry) if entry.kind == ChunkKind::Run => {
                self.load_run(m, table, spot.chunk, &entry)
            }
            _ => Ok(()),
        }
    }

    /// Gives back a place whose reservation came to nothing, or whose object was freed by a
    /// commit that is complete.
    pub fn release(&self, cache: &mut Cache, spot: &Spot) {
        if spot.class == Spot::LARGE {
            if let Some(zone) = self.zone(spot.zone) {
                for chunk in spot.chunk..spot.chunk + spot.chunks {
                    zone.unreserve(chunk, ChunkKind::Free);
                }
            }
            return;
        }
        let Some(places) = cache.places.get_mut(usize::from(spot.class)) else { return };
        places.push(*spot);
        if places.len() >= 3 * BATCH {
            for spot in places.drain(..2 * BATCH) {
                self.give(&spot);
            }
        }
    }

    /// Gives all places of a cache back to their runs.
    pub fn flush(&self, cache: &mut Cache) {
        for places in &mut cache.places {
            for spot in places.drain(..) {
                self.give(&spot);
            }
        }
    }

    fn give(&self, spot: &Spot) {
        let Some(table) = self.zone(spot.zone) else { return };
        let Some(mut run) = table.run(spot.chunk) else { return };
        // A run not loaded yet will find the place free when it is.
        let Some(free) = run.as_mut() else { return };
        free.give(spot.place);
        let list_it = !core::mem::replace(&mut free.listed, true);
        drop(run);
        if list_it {
            self.list(spot.zone, spot.chunk, spot.class);
        }
    }

    /// Takes a free chunk to become a run or log space. The caller commits its new entry, then
    /// calls [`publish`](Self::publish), or gives it back with [`ZoneTable::unreserve`].
    #[must_use]
    pub fn claim_chunk(&self) -> Option<(u8, u32, ChunkEntry)> {
        self.zones().find_map(|zone| {
            let chunk = zone.claim(1)?;
            let before = zone.reserved(chunk, ChunkKind::Free).unwrap_or(ChunkEntry::VIRGIN);
            Some((zone.index(), chunk, before))
        })
    }

    /// Takes a run without objects out of service, so that its chunk can be used otherwise. The
    /// caller commits the free entry, then calls [`publish`](Self::publish).
    pub fn claim_empty_run<M: Medium>(&self, m: &M) -> Option<(u8, u32, ChunkEntry)> {
        for zone in self.zones() {
            for chunk in 0..zone.chunks() {
                let entry = zone.entry(chunk).filter(|e| e.kind == ChunkKind::Run);
                let Some(entry) = entry else { continue };
                let Some(shape) = zone.shape(entry.class) else { continue };
                if self.load_run(m, zone, chunk, &entry).is_err() {
                    continue;
                }
                // The list lock is taken first, as everywhere: no place can leave meanwhile.
                let list = &self.partial[usize::from(entry.class)];
                let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(mut run) = zone.run(chunk) else { continue };
                // Another run by now: of that one, so many free places say nothing.
                let same = zone.entry(chunk) == Some(entry);
                let empty = same && run.as_ref().is_some_and(|f| f.free == shape.places);
                if empty && zone.reserve_if(chunk, ChunkKind::Run) {
                    *run = None;
                    list.retain(|c| *c != (zone.index(), chunk));
                    return Some((zone.index(), chunk, entry));
                }
            }
        }
        None
    }

    /// Takes a run out of service of which nobody knows the free places yet: so nobody has one.
    #[must_use]
    pub fn claim_unread_run(&self, zone: u8, chunk: u32) -> bool {
        let Some(table) = self.zone(zone) else { return false };
        let entry = table.entry(chunk).filter(|e| e.kind == ChunkKind::Run);
        let Some(list) = entry.and_then(|e| self.partial.get(usize::from(e.class))) else {
            return false;
        };
        let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(run) = table.run(chunk) else { return false };
        let taken = run.is_none() && table.reserve_if(chunk, ChunkKind::Run);
        if taken {
            list.retain(|c| *c != (zone, chunk));
        }
        taken
    }

    /// Hands out no more places of a run, if the chunk is one.
    pub fn shut_run(&self, zone: u8, chunk: u32) {
        let Some(table) = self.zone(zone) else { return };
        let entry = table.entry(chunk).filter(|e| e.kind == ChunkKind::Run);
        let Some(shape) = entry.and_then(|e| table.shape(e.class)) else { return };
        if let Some(mut run) = table.run(chunk) {
            *run = Some(Box::new(FreePlaces::none(shape.places)));
        }
    }

    /// Makes a reserved chunk known as the run that it is to become, and gives nobody a place in
    /// it: from now on its slots are judged. Then the caller commits its entry and calls
    /// [`publish`](Self::publish), or gives it back with [`ZoneTable::set`].
    pub fn show_run(&self, zone: u8, chunk: u32, entry: &ChunkEntry) {
        let Some(table) = self.zone(zone) else { return };
        let Some(shape) = table.shape(entry.class) else { return };
        if let Some(mut run) = table.run(chunk) {
            *run = Some(Box::new(FreePlaces::none(shape.places)));
        }
        table.set(chunk, entry);
    }

    /// Records what a reserved chunk became, after the commit of its entry is complete.
    pub fn publish(&self, zone: u8, chunk: u32, entry: &ChunkEntry) {
        let Some(table) = self.zone(zone) else { return };
        table.set(chunk, entry);
        if entry.kind == ChunkKind::Run
            && let Some(shape) = table.shape(entry.class)
        {
            if let Some(mut run) = table.run(chunk) {
                let mut free = FreePlaces::all(shape.places);
                free.listed = true;
                *run = Some(Box::new(free));
            }
            self.list(zone, chunk, entry.class);
        }
    }

    /// Forgets what is known of the free places of a run whose slots were replayed. Only while no
    /// transaction runs: reservations in the run would be forgotten with it.
    pub fn forget_run(&self, zone: u8, chunk: u32) {
        let Some(table) = self.zone(zone) else { return };
        if let Some(mut run) = table.run(chunk) {
            *run = None;
        }
        if let Some(entry) = table.entry(chunk).filter(|e| e.kind == ChunkKind::Run) {
            self.list(zone, chunk, entry.class);
        }
    }

    /// The first range of log chunks that meets `[at, at + len)`.
    #[must_use]
    pub fn log_chunk_in(&self, at: u64, len: u64) -> Option<(u64, u64)> {
        let zone = self.zone_of(at)?;
        let end = at.saturating_add(len);
        let from = at.max(zone.chunks_at());
        if from >= end {
            return None;
        }
        let last = zone.chunk_of(end - 1).unwrap_or(zone.chunks().saturating_sub(1));
        (zone.chunk_of(from)?..=last)
            .find(|c| zone.entry(*c).is_some_and(|e| e.kind == ChunkKind::Log))
            .map(|c| (zone.chunk_at(c), zone.chunk_len()))
    }

    /// Calls `each` for every live object. Slots that cannot be read are reported to `bad` and
    /// skipped. Meant for checks and figures: objects of running transactions may be missing.
    pub fn for_each_live<M: Medium>(
        &self,
        m: &M,
        each: &mut impl FnMut(&Spot, &Slot),
        bad: &mut impl FnMut(&Spot, MediaError),
    ) {
        for zone in self.zones() {
            for chunk in 0..zone.chunks() {
                zone.each_place(chunk, &mut |spot| match read_slot(&Direct(m), spot) {
                    Ok(slot) if slot.is_live() => each(spot, &slot),
                    Ok(_) => {}
                    Err(error) => bad(spot, error),
                });
            }
        }
    }

    /// Counts the heap. Reads every slot.
    pub fn space<M: Medium>(&self, m: &M) -> Space {
        let mut space = Space::default();
        for zone in self.zones() {
            let mut longest = 0;
            let mut here = 0;
            for chunk in 0..zone.chunks() {
                space.total += zone.chunk_len();
                let free = zone.entry(chunk).is_some_and(|e| e.kind == ChunkKind::Free);
                here = if free { here + 1 } else { 0 };
                longest = longest.max(here);
                if free {
                    space.free_chunks += zone.chunk_len();
                }
                let mut places = 0;
                zone.each_place(chunk, &mut |spot| {
                    places += spot.capacity;
                    match read_slot(&Direct(m), spot) {
                        Ok(slot) if slot.is_live() => {
                            space.objects += 1;
                            space.object_bytes += u64::from(slot.len);
                            space.used += spot.capacity;
                        }
                        _ => {
                            space.free_places += spot.capacity;
                            space.largest = space.largest.max(spot.capacity);
                        }
                    }
                });
                if places > 0 {
                    let entry = zone.entry(chunk);
                    let chunks = entry.map_or(1, |e| {
                        if e.kind == ChunkKind::Large { u64::from(e.count) } else { 1 }
                    });
                    space.overhead += (chunks * zone.chunk_len()).saturating_sub(places);
                }
            }
            let room = longest * zone.chunk_len();
            let head = crate::class::large_head(longest, zone.chunk_len());
            space.largest = space.largest.max(room.saturating_sub(head));
        }
        space
    }
}

impl ZoneTable {
    /// Calls `each` for every place of chunk `index`, free or not; a large object has one place,
    /// named by its first chunk.
    pub fn each_place(&self, index: u32, each: &mut impl FnMut(&Spot)) {
        let Some(entry) = self.entry(index) else { return };
        match entry.kind {
            ChunkKind::Run => {
                let Some(shape) = self.shape(entry.class) else { return };
                for place in 0..shape.places {
                    each(&self.spot(index, &entry, &shape, place));
                }
            }
            ChunkKind::Large => each(&self.large_spot(index, &entry)),
            ChunkKind::Free | ChunkKind::Tail | ChunkKind::Log => {}
        }
    }

    /// Whether place `place` of run `index` is known to be free and not reserved.
    #[must_use]
    pub fn is_place_free(&self, index: u32, place: u32) -> bool {
        self.run(index).is_some_and(|r| r.as_ref().is_some_and(|f| f.contains(place)))
    }
}
