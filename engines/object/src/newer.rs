//! Lost writes of what certifies itself: slots and directory entries.
//!
//! A granule whose last write was lost disagrees with its slot and is found by its sum. A slot or
//! a directory entry whose last write was lost is an older one, and *verifies*: only parity, which
//! was patched for the newer one, knows better. With P and Q the row is located. With P alone the
//! columns do not add up and any unit may be to blame, P included; recomputing P would make the
//! loss permanent. But what P says a row was has sums of its own: the one row whose other state
//! verifies *and is newer* (generations rise, and of one generation the free slot comes after the
//! live one) lost its write. If no row has one, P itself is what is wrong.
//!
//! Sums are linear, which makes some evidence worthless: if P is stale for a slot of one row, then
//! XOR with the same difference also turns a slot of another row into one that verifies, where
//! both sums cover equally many bytes (free and free; live and live of one length). What counts
//! is a slot that goes from free to live or back: its sum covers the object's bytes in one state
//! and not in the other, which ties it to its place. Directory entries count where only one row
//! has entries over the columns, and what lies in the chunk bears them out.

use holdfast_codes::xor_into;
use holdfast_heap::format::{SLOT_LEN, STATE_LIVE};
use holdfast_heap::sums::Slot;
use holdfast_heap::verify::{Direct, Found, Overlay, Source, read_entry, read_slot};
use holdfast_heap::{ChunkEntry, ChunkKind, Spot, Unit};
use holdfast_layout::Certify;
use holdfast_pmem::{Medium, Site};
use holdfast_redundancy::{Wrong, Zone};

use crate::changes::Changes;
use crate::shared::Shared;

/// Comparing what a row is with what parity says it was written to be.
const COMPARE: Site = Site::new("object.newer.compare");

/// Generations of a place that count as the first of its chunk's life.
const FIRST_OF_LIFE: u16 = 512;

/// Believing what parity says only where sums of its own bear it out.
const VERIFY: Site = Site::new("object.newer.verify");

/// The generation an object gets: one more than the place's last, never zero. Chunks of their own
/// have no slot before their object: their generation is the chunk's.
pub(crate) fn next_generation(spot: &Spot, before: &Slot) -> u16 {
    let large = spot.class == Spot::LARGE;
    let last = if large { first_of_life(spot.chunk_generation) } else { before.generation };
    last.wrapping_add(1).max(1)
}

/// A row whose last write was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Newer {
    /// Where.
    pub(crate) at: u64,
    /// What was to be written there.
    pub(crate) bytes: Vec<u8>,
    /// What it concerns.
    pub(crate) wrong: Wrong,
}

/// How another state of a unit stands to the present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Newer(Wrong),
    /// Newer, but a difference that belongs to another row could look the same.
    Perhaps,
    /// Nothing that is certified differs.
    Same,
    /// Older, or wrong.
    Worse,
}

impl<M: Medium> Shared<M> {
    /// The one row over `[col, col + syndrome.len())` whose state XOR `syndrome` is newer and
    /// verifies, seen through `changes`. Columns are held; everything over them verifies. For
    /// zones with P only: Q tells more.
    pub(crate) fn newer_row(
        &self,
        zone: &Zone,
        col: u64,
        syndrome: &[u8],
        changes: &Changes,
    ) -> Option<Newer> {
        let first = syndrome.iter().position(|b| *b != 0)?;
        let last = syndrome.iter().rposition(|b| *b != 0)?;
        if !self.m.enabled(COMPARE) {
            return None;
        }
        let (col, syndrome) = (col + first as u64, &syndrome[first..=last]);
        let entries = self.rows_of_entries(zone, col, syndrome.len() as u64);
        let mut rows = (0..zone.data_rows()).filter_map(|row| {
            let at = zone.at(row, col);
            let mut bytes = vec![0; syndrome.len()];
            self.m.read(at, &mut bytes).ok()?;
            xor_into(&mut bytes, syndrome);
            let wrong = self.is_newer(at, &bytes, changes, entries == 1)?;
            Some(Newer { at, bytes, wrong })
        });
        let found = rows.next()?;
        // Two would be a coincidence of sums; then nothing can be told.
        rows.next().is_none().then_some(found)
    }

    /// Number of rows that have directory entries over the columns.
    fn rows_of_entries(&self, zone: &Zone, col: u64, len: u64) -> usize {
        let has_entries = |row: &u32| {
            let at = zone.at(*row, col);
            let mut any = false;
            if let Some(table) = self.heap.zone_of(at) {
                table.units_over(at, len, &mut |u| any |= matches!(u, Unit::Entry { .. }));
            }
            any
        };
        (0..zone.data_rows()).filter(has_entries).count()
    }

    /// Whether `bytes` at `at` would be newer than what is there, and what they concern.
    fn is_newer(
        &self,
        at: u64,
        bytes: &[u8],
        changes: &Changes,
        trust_entries: bool,
    ) -> Option<Wrong> {
        let direct = Direct(&self.m);
        let overlay = Overlay { under: &direct, at, bytes };
        let (now, then) = (changes.over(&direct), changes.over(&overlay));
        let mut newer = None;
        let mut worse = false;
        self.heap.zone_of(at)?.units_over(at, bytes.len() as u64, &mut |unit| match self
            .compare(&unit, &now, &then)
        {
            Order::Newer(Wrong::Directory) if !trust_entries => {}
            Order::Newer(wrong) => newer = Some(wrong),
            Order::Same | Order::Perhaps => {}
            Order::Worse => worse = true,
        });
        newer.filter(|_| !worse)
    }

    /// Whether sums decide about what is newer.
    fn newer_certify(&self) -> Certify {
        Certify::when(self.m.enabled(VERIFY))
    }

    fn compare(&self, unit: &Unit, now: &impl Source, then: &impl Source) -> Order {
        let sums = self.heap.sums();
        let certify = self.newer_certify();
        match unit {
            Unit::Entry { at, chunk } => {
                let found = read_entry(now, sums, *at, certify);
                match (found, read_entry(then, sums, *at, certify)) {
                    (Ok(Some(now)), Ok(Some(then))) if now == then => Order::Same,
                    (Ok(Some(before)), Ok(Some(after)))
                        if rises(before.generation, after.generation) =>
                    {
                        let entries = (*chunk, &before, &after);
                        let told = self.chunk_tells(*at, entries, now, then);
                        if told { Order::Newer(Wrong::Directory) } else { Order::Perhaps }
                    }
                    _ => Order::Worse,
                }
            }
            Unit::Granule { spot, .. } => {
                let slots = (read_slot(now, spot), read_slot(then, spot));
                let (Ok(before), Ok(after)) = slots else { return Order::Worse };
                let good =
                    matches!(unit.check(then, sums, certify), Ok(Found::Good | Found::Nothing));
                match (good, before == after) {
                    (false, _) => Order::Worse,
                    // Bytes that the unchanged slot certifies cannot have changed and verify.
                    (true, true) => Order::Same,
                    (true, false) if !sums.active() => Order::Worse,
                    (true, false) if !succeeds(&before, &after, spot) => Order::Worse,
                    (true, false) if tells(&before, &after) => Order::Newer(Wrong::Slot),
                    (true, false) => Order::Perhaps,
                }
            }
        }
    }

    /// Whether what lies in a chunk bears out that its entry went from one state to the other. The
    /// sums of entries of one chunk are linear: of three that were right at some time a fourth can
    /// be made that verifies and never was.
    fn chunk_tells(
        &self,
        at: u64,
        (chunk, before, after): (u32, &ChunkEntry, &ChunkEntry),
        now: &impl Source,
        then: &impl Source,
    ) -> bool {
        let sums = self.heap.sums();
        let certify = self.newer_certify();
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
            (_, ChunkKind::Large) => self.is_live(&table.large_spot(chunk, after), then),
            (_, ChunkKind::Tail) => {
                head_of(after, &read_then).is_some_and(|spot| self.is_live(&spot, then))
            }
            (ChunkKind::Large, ChunkKind::Free) => {
                !self.is_live(&table.large_spot(chunk, before), now)
            }
            (ChunkKind::Tail, ChunkKind::Free) => {
                head_of(before, &read_then).is_none_or(|spot| !self.is_live(&spot, now))
            }
            (_, ChunkKind::Run) => table.shape(after.class).is_some_and(|shape| {
                let spot = table.spot(chunk, after, &shape, 0);
                let unit = Unit::Granule { spot, granule: 0 };
                let of_life = |slot: Slot| is_of_life(slot.generation, after.generation);
                read_slot(then, &spot).is_ok_and(of_life)
                    && unit.check(then, sums, certify) == Ok(Found::Good)
            }),
            // Nothing tells an empty run from a free chunk; left as a run it does no harm.
            _ => false,
        }
    }

    /// Whether an object is there that its first granule certifies.
    fn is_live(&self, spot: &Spot, from: &impl Source) -> bool {
        let certify = self.newer_certify();
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

/// Whether `after` is a state that the slot of a place takes after `before`. What lay there in an
/// earlier life of the chunk, when it was divided otherwise, comes before all of this one.
fn succeeds(before: &Slot, after: &Slot, spot: &Spot) -> bool {
    if before.generation == after.generation {
        return before.state == STATE_LIVE && !after.is_live();
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

/// Whether only this place's slot can have gone from one to the other.
fn tells(before: &Slot, after: &Slot) -> bool {
    before.is_live() != after.is_live() && before.len != after.len
}

const _: () = assert!(SLOT_LEN == 16, "a slot is one lost write");

#[cfg(test)]
mod tests {
    use holdfast_heap::format::STATE_FREE;

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
