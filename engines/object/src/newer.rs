//! Which of two states of a slot or a directory entry, both of which verify, is the newer one.
//!
//! Generations rise; of one generation the free slot comes after the live one; and with each commit
//! that changes the first granule of an object its number of writes rises. (Others do not write the
//! slot. Their bytes and sums share a page with it in the first page of a chunk only.)
//!
//! All of these numbers come round, and a place may be used very often, and its chunk live another
//! life, before anybody looks. So an order is an answer only between states that are near each
//! other: of states far apart any number may come out, and the nearer two have to be, the fewer of
//! those look like it. What is not near has no order, and is in doubt.

use holdfast_heap::format::SLOT_LEN;
use holdfast_heap::sums::{Slot, WRITES};
use holdfast_heap::verify::{Found, Source, read_entry, read_slot};
use holdfast_heap::{ChunkEntry, ChunkKind, Spot, Unit};
use holdfast_layout::Certify;
use holdfast_pmem::Medium;

use crate::shared::Shared;

/// Generations, and numbers of writes, by which two states may differ for their order to be known.
const NEAR: u16 = 128;

/// Places of a run that are asked whether it is there.
const PLACES_ASKED: u32 = 8;

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
    /// As good as the newer one, and left: it says nothing of what lies beside it.
    Idle,
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
        match order_near(before.generation, after.generation) {
            Order::Newer => {}
            other => return other,
        }
        if self.table_of(at).and_then(|t| t.entry(chunk)).as_ref() == Some(after) {
            return Order::Newer;
        }
        // Nothing tells an empty run from a free chunk; left as a run it does no harm.
        let idle = matches!(before.kind, ChunkKind::Free | ChunkKind::Run | ChunkKind::Log);
        if idle && matches!(after.kind, ChunkKind::Free | ChunkKind::Log) {
            return Order::Idle;
        }
        // Nobody puts anything into a free chunk without another write of its entry.
        let plausible = || self.table_of(at).is_some_and(|t| t.plausible(chunk, after));
        if before.kind == ChunkKind::Free && plausible() {
            return Order::Newer;
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
                table.plausible(chunk, before)
                    && !self.is_live(&table.large_spot(chunk, before), now, certify)
            }
            (ChunkKind::Tail, ChunkKind::Free) => {
                head_of(before, &read_then).is_none_or(|spot| !self.is_live(&spot, now, certify))
            }
            // All sorts of objects may lie in it: several places have to be good, wherever.
            (_, ChunkKind::Run) => table.shape(after.class).is_some_and(|shape| {
                let step = shape.places.div_ceil(PLACES_ASKED).max(1) as usize;
                (0..shape.places).step_by(step).all(|place| {
                    let spot = table.spot(chunk, after, &shape, place);
                    let unit = Unit::Granule { spot, granule: 0 };
                    unit.check(then, sums, certify) == Ok(Found::Good)
                })
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
}

/// How state `after` stands to `before` by numbers that come round after 2^16.
pub(crate) fn order_near(before: u16, after: u16) -> Order {
    match (after.wrapping_sub(before), before.wrapping_sub(after)) {
        (1..=NEAR, _) => Order::Newer,
        (_, 1..=NEAR) => Order::Older,
        _ => Order::Unknown,
    }
}

/// How state `after` of the slot of a place stands to `before`.
pub(crate) fn order_of(before: &Slot, after: &Slot, spot: &Spot) -> Order {
    if before.generation == after.generation {
        return match (before.is_live(), after.is_live()) {
            (true, false) => Order::Newer,
            (false, true) => Order::Older,
            (true, true) => order_of_writes(before.writes, after.writes),
            (false, false) => Order::Unknown,
        };
    }
    if spot.class == Spot::LARGE {
        // Of an object with chunks of its own, the entry says exactly which one it is.
        let this = |slot: &Slot| slot.generation == next_generation(spot, slot);
        return match (this(before), this(after)) {
            (false, true) => Order::Newer,
            (true, false) => Order::Older,
            _ => Order::Unknown,
        };
    }
    // What an earlier life of the chunk left has any generation; so has a place used very often.
    order_near(before.generation, after.generation)
}

/// How numbers of writes stand to each other.
fn order_of_writes(before: u16, after: u16) -> Order {
    match (after.wrapping_sub(before) % WRITES, before.wrapping_sub(after) % WRITES) {
        (1..=NEAR, _) => Order::Newer,
        (_, 1..=NEAR) => Order::Older,
        _ => Order::Unknown,
    }
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

    fn slot(generation: u16, state: u8) -> Slot {
        Slot { generation, state, ..Slot::default() }
    }

    /// Both ways round.
    fn told(before: &Slot, after: &Slot, spot: &Spot, order: Order) {
        assert_eq!(order_of(before, after, spot), order, "{before:?} {after:?}");
        let back = match order {
            Order::Newer => Order::Older,
            other => other,
        };
        assert_eq!(order_of(after, before, spot), back, "{after:?} {before:?}");
    }

    #[test]
    fn generations_rise_around_the_end_and_not_far() {
        for (a, b) in [(1, 2), (u16::MAX, 0), (7, 7 + NEAR), (65_500, 20)] {
            assert_eq!(order_near(a, b), Order::Newer, "{a} {b}");
            assert_eq!(order_near(b, a), Order::Older, "{b} {a}");
        }
        for (a, b) in [(5, 5), (0, NEAR + 1), (0, 0x8000), (0, 40_000)] {
            assert_eq!(order_near(a, b), Order::Unknown, "{a} {b}");
            assert_eq!(order_near(b, a), Order::Unknown, "{b} {a}");
        }
    }

    #[test]
    fn a_place_is_taken_then_freed_then_taken_anew() {
        let life =
            [slot(7, STATE_FREE), slot(8, STATE_LIVE), slot(8, STATE_FREE), slot(9, STATE_LIVE)];
        for (i, before) in life.iter().enumerate() {
            for after in &life[i + 1..] {
                told(before, after, &SPOT, Order::Newer);
            }
        }
    }

    #[test]
    fn what_was_written_more_often_is_newer_as_far_as_the_numbers_tell() {
        let slot = |writes| Slot { generation: 5, state: STATE_LIVE, writes, ..Slot::default() };
        for (a, b) in [(0, 1), (7, 7 + NEAR), (WRITES - 1, 0), (WRITES - 3, 9)] {
            told(&slot(a), &slot(b), &SPOT, Order::Newer);
        }
        for (a, b) in [(0, NEAR + 1), (0, 30_000), (9, WRITES / 2 + 9), (3, 3)] {
            told(&slot(a), &slot(b), &SPOT, Order::Unknown);
        }
    }

    #[test]
    fn other_lives_of_a_chunk_and_many_uses_cannot_be_told_apart() {
        let virgin = first_of_life(9);
        let spot = Spot { chunk_generation: 9, ..SPOT };
        for new in [slot(virgin, STATE_FREE), slot(virgin + 1, STATE_LIVE)] {
            for left in [first_of_life(7), first_of_life(1), first_of_life(5) + 9] {
                told(&slot(left, STATE_FREE), &new, &spot, Order::Unknown);
            }
            for uses in [601, 9_642, 40_001] {
                told(&new, &slot(virgin.wrapping_add(uses), STATE_LIVE), &spot, Order::Unknown);
            }
        }
        let often = virgin.wrapping_add(20_000);
        told(&slot(often, STATE_FREE), &slot(often + 1, STATE_LIVE), &spot, Order::Newer);
    }

    #[test]
    fn an_object_with_chunks_of_its_own_is_the_one_that_its_entry_says() {
        let spot = Spot { class: Spot::LARGE, chunk_generation: 3, ..SPOT };
        let this = slot(next_generation(&spot, &Slot::default()), STATE_LIVE);
        for other in [0, 1, this.generation.wrapping_add(1), this.generation.wrapping_sub(1)] {
            told(&slot(other, STATE_LIVE), &this, &spot, Order::Newer);
        }
        told(&slot(1, STATE_LIVE), &slot(2, STATE_LIVE), &spot, Order::Unknown);
    }
}
