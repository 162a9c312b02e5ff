//! Which of two states of a slot or a directory entry, both of which verify, is the newer one.
//!
//! Generations rise; of one generation the free slot comes after the live one; and with each commit
//! that changes the first granule of an object its number of writes rises. (Others do not write the
//! slot. Their bytes and sums share a page with it in the first page of a chunk only.)

use holdfast_heap::format::SLOT_LEN;
use holdfast_heap::sums::{Slot, WRITES};
use holdfast_heap::verify::{Direct, Found, Source, read_entry, read_slot};
use holdfast_heap::{ChunkEntry, ChunkKind, Spot, Unit};
use holdfast_layout::Certify;
use holdfast_pmem::Medium;

use crate::shared::Shared;

/// Generations of a place that count as the first of its chunk's life.
const FIRST_OF_LIFE: u16 = 512;

/// Writes by which two states may differ for their order to be known. Numbers of writes come round:
/// of states further apart half of the numbers say that one is newer, and as many the other, so
/// those are left without a meaning.
const WRITES_KNOWN: u16 = WRITES / 8;

/// The generation an object gets: one more than the place's last, never zero. Chunks of their own
/// have no slot before their object: their generation is the chunk's.
pub(crate) fn next_generation(spot: &Spot, before: &Slot) -> u16 {
    let large = spot.class == Spot::LARGE;
    let last = if large { first_of_life(spot.chunk_generation) } else { before.generation };
    last.wrapping_add(1).max(1)
}

/// How another state of something stands to the present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Newer,
    Older,
    Unknown,
}

impl<M: Medium> Shared<M> {
    /// How state `after` of an entry stands to `before`, which is there. What has come to lie in
    /// the chunk since then counts: whoever opened the pool meanwhile took the entry for what it
    /// says.
    pub(crate) fn order_of_entries(
        &self,
        at: u64,
        (chunk, before, after): (u32, &ChunkEntry, &ChunkEntry),
        now: &impl Source,
        then: &impl Source,
        certify: Certify,
    ) -> Order {
        if rises(after.generation, before.generation) {
            return Order::Older;
        }
        if !rises(before.generation, after.generation) {
            return Order::Unknown;
        }
        if self.table_of(at).and_then(|t| t.entry(chunk)).as_ref() == Some(after) {
            return Order::Newer;
        }
        // Nothing tells an empty run from a free chunk; left as a run it does no harm.
        let idle = matches!(before.kind, ChunkKind::Free | ChunkKind::Run | ChunkKind::Log);
        if idle && matches!(after.kind, ChunkKind::Free | ChunkKind::Log) {
            return Order::Older;
        }
        let told = self.chunk_tells(at, (chunk, before, after), now, then, certify);
        if told { Order::Newer } else { Order::Unknown }
    }

    /// Whether what lies in a chunk bears out that its entry went from one state to the other.
    fn chunk_tells(
        &self,
        at: u64,
        (chunk, before, after): (u32, &ChunkEntry, &ChunkEntry),
        now: &impl Source,
        then: &impl Source,
        certify: Certify,
    ) -> bool {
        let sums = self.heap.sums();
        let Some(table) = self.table_of(at).filter(|t| t.plausible(chunk, after)) else {
            return false;
        };
        // The head of the object that a tail says it belongs to, if that agrees.
        let head_of = |tail: &ChunkEntry, from: &dyn Fn(u64) -> Option<ChunkEntry>| {
            let head = chunk.checked_sub(tail.count)?;
            let entry = from(table.entry_at(head))?;
            let holds = entry.kind == ChunkKind::Large && entry.count > tail.count;
            (holds && table.plausible(head, &entry)).then(|| table.large_spot(head, &entry))
        };
        let read_then = |at| read_entry(then, sums, at, certify).ok().flatten();
        match (before.kind, after.kind) {
            (_, ChunkKind::Large) => self.is_live(&table.large_spot(chunk, after), then, certify),
            (_, ChunkKind::Tail) => {
                head_of(after, &read_then).is_some_and(|spot| self.is_live(&spot, then, certify))
            }
            (ChunkKind::Large, ChunkKind::Free) => {
                !self.is_live(&table.large_spot(chunk, before), now, certify)
            }
            (ChunkKind::Tail, ChunkKind::Free) => {
                head_of(before, &read_then).is_none_or(|spot| !self.is_live(&spot, now, certify))
            }
            (_, ChunkKind::Run) => table.shape(after.class).is_some_and(|shape| {
                let spot = table.spot(chunk, after, &shape, 0);
                let unit = Unit::Granule { spot, granule: 0 };
                let of_life = |slot: Slot| is_of_life(slot.generation, after.generation);
                read_slot(then, &spot).is_ok_and(of_life)
                    && unit.check(then, sums, certify) == Ok(Found::Good)
            }),
            _ => false,
        }
    }

    /// Whether an object is there that its first granule certifies.
    fn is_live(&self, spot: &Spot, from: &impl Source, certify: Certify) -> bool {
        let unit = Unit::Granule { spot: *spot, granule: 0 };
        read_slot(from, spot).is_ok_and(|slot| slot.is_live())
            && unit.check(from, self.heap.sums(), certify) == Ok(Found::Good)
    }

    /// Makes a directory entry that was brought back known, unless this process knew it all along
    /// or is using the chunk.
    pub(crate) fn know_entries(&self, at: u64, len: u64) {
        let Some(table) = self.table_of(at) else { return };
        table.units_over(at, len, &mut |unit| {
            if let Unit::Entry { at, chunk } = unit
                && let Ok(Some(entry)) = self.heap.entry_found(&Direct(&self.m), at)
                && table.entry(chunk).is_some_and(|known| rises(known.generation, entry.generation))
            {
                // It was read a moment ago under the lock of its column.
                let _ = self.heap.load_entry(&Direct(&self.m), table.index(), chunk);
            }
        });
    }
}

/// Whether generation `b` comes after `a`; they wrap around.
pub(crate) fn rises(a: u16, b: u16) -> bool {
    (1..=u16::MAX / 2).contains(&b.wrapping_sub(a))
}

/// How state `after` of the slot of a place stands to `before`.
pub(crate) fn order_of(before: &Slot, after: &Slot, spot: &Spot) -> Order {
    match (succeeds(before, after, spot), succeeds(after, before, spot)) {
        (true, false) => Order::Newer,
        (false, true) => Order::Older,
        _ => Order::Unknown,
    }
}

/// Whether `after` is a state that the slot of a place takes after `before`. What lay there in an
/// earlier life of the chunk, when it was divided otherwise, comes before all of this one.
fn succeeds(before: &Slot, after: &Slot, spot: &Spot) -> bool {
    if before.generation == after.generation {
        let more = after.writes.wrapping_sub(before.writes) % WRITES;
        let written = after.is_live() && (1..=WRITES_KNOWN).contains(&more);
        return before.is_live() && (written || !after.is_live());
    }
    let of_life = |slot: &Slot| is_of_life(slot.generation, spot.chunk_generation);
    match (of_life(before), of_life(after)) {
        // A place that has just been used too often for its generation to count as one of them
        // comes after those that do.
        (false, true) => before.generation.wrapping_sub(after.generation) > FIRST_OF_LIFE,
        (true, false) => after.generation.wrapping_sub(before.generation) <= FIRST_OF_LIFE,
        _ => rises(before.generation, after.generation),
    }
}

/// Whether a slot has one of the first generations of this life of its chunk. Those of other lives
/// lie anywhere: so few count that they are hardly ever among them.
fn is_of_life(generation: u16, chunk: u16) -> bool {
    generation.wrapping_sub(first_of_life(chunk)) < FIRST_OF_LIFE
}

/// The generation that places of a chunk begin with, before their first object.
fn first_of_life(chunk: u16) -> u16 {
    chunk.wrapping_mul(0x6d2b)
}

const _: () = assert!(SLOT_LEN == 16, "a slot is one lost write");

#[cfg(test)]
mod tests {
    use holdfast_heap::format::{STATE_FREE, STATE_LIVE};

    use super::*;

    #[test]
    fn generations_rise_around_the_end() {
        assert!(rises(1, 2) && rises(u16::MAX, 0) && rises(0, 0x7fff));
        assert!(!rises(2, 1) && !rises(5, 5) && !rises(0, 0x8000));
    }

    #[test]
    fn a_place_is_taken_then_freed_then_taken_anew() {
        let slot = |generation, state| Slot { generation, state, ..Slot::default() };
        let spot = Spot { chunk_generation: 0, ..SPOT };
        let life =
            [slot(7, STATE_FREE), slot(8, STATE_LIVE), slot(8, STATE_FREE), slot(9, STATE_LIVE)];
        for (i, before) in life.iter().enumerate() {
            for (k, after) in life.iter().enumerate() {
                assert_eq!(succeeds(before, after, &spot), i < k, "{i} to {k}");
            }
        }
    }

    #[test]
    fn what_was_written_more_often_is_newer_as_far_as_the_numbers_tell() {
        let slot = |writes| Slot { generation: 5, state: STATE_LIVE, writes, ..Slot::default() };
        let far = WRITES_KNOWN + 1;
        let pairs = [(0, 1), (7, 7 + WRITES_KNOWN), (WRITES - 1, 0), (WRITES - 3, 9)];
        for (a, b) in pairs.map(|(a, b)| (slot(a), slot(b))) {
            assert_eq!(order_of(&a, &b, &SPOT), Order::Newer, "{a:?} {b:?}");
            assert_eq!(order_of(&b, &a, &SPOT), Order::Older, "{a:?} {b:?}");
        }
        for (a, b) in [(0, far), (far, 0), (9, WRITES / 2 + 9), (3, 3)] {
            assert_eq!(order_of(&slot(a), &slot(b), &SPOT), Order::Unknown, "{a} {b}");
        }
    }

    const SPOT: Spot = Spot {
        object: 0,
        slot: 0,
        sums: 0,
        capacity: 64,
        zone: 0,
        chunk: 0,
        place: 0,
        class: 0,
        chunks: 0,
        chunk_generation: 0,
    };

    #[test]
    fn what_an_earlier_life_of_the_chunk_left_comes_before_all_of_this_one() {
        let slot = |generation, state| Slot { generation, state, ..Slot::default() };
        let virgin = first_of_life(3);
        let spot = Spot { chunk_generation: 3, ..SPOT };
        for left in [first_of_life(1) + 1, first_of_life(2) + 9, first_of_life(0) + 300] {
            let left = slot(left, STATE_FREE);
            for new in [slot(virgin, STATE_FREE), slot(virgin + 1, STATE_LIVE)] {
                assert!(succeeds(&left, &new, &spot) && !succeeds(&new, &left, &spot));
            }
        }
        let often = slot(virgin + FIRST_OF_LIFE, STATE_FREE);
        let oftener = slot(virgin + FIRST_OF_LIFE + 1, STATE_LIVE);
        let last = slot(virgin + FIRST_OF_LIFE - 1, STATE_FREE);
        assert!(succeeds(&last, &often, &spot) && succeeds(&often, &oftener, &spot));
        assert!(!succeeds(&oftener, &often, &spot) && !succeeds(&often, &last, &spot));
    }
}
