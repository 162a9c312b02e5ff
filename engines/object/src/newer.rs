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
//! has entries over the columns.

use holdfast_codes::xor_into;
use holdfast_heap::format::{SLOT_LEN, STATE_LIVE};
use holdfast_heap::sums::Slot;
use holdfast_heap::verify::{Direct, Found, Overlay, Source, read_entry, read_slot};
use holdfast_heap::{Spot, Unit};
use holdfast_layout::Certify;
use holdfast_pmem::{Medium, Site};
use holdfast_redundancy::{Wrong, Zone};

use crate::changes::Changes;
use crate::shared::Shared;

/// Comparing what a row is with what parity says it was written to be.
const COMPARE: Site = Site::new("object.newer.compare");

/// Believing what parity says only where sums of its own bear it out.
const VERIFY: Site = Site::new("object.newer.verify");

/// The generation an object gets: one more than the place's last, never zero. Chunks of their own
/// have no slot before their object: their generation is the chunk's.
pub(crate) fn next_generation(spot: &Spot, before: &Slot) -> u16 {
    let large = spot.class == Spot::LARGE;
    let last = if large { spot.chunk_generation.wrapping_mul(0x6d2b) } else { before.generation };
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

    fn compare(&self, unit: &Unit, now: &impl Source, then: &impl Source) -> Order {
        let sums = self.heap.sums();
        let certify = Certify::when(self.m.enabled(VERIFY));
        match unit {
            Unit::Entry { at, .. } => {
                let found = read_entry(now, sums, *at, certify);
                match (found, read_entry(then, sums, *at, certify)) {
                    (Ok(Some(now)), Ok(Some(then))) if now == then => Order::Same,
                    (Ok(Some(now)), Ok(Some(then))) if rises(now.generation, then.generation) => {
                        Order::Newer(Wrong::Directory)
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
                    (true, false) if !sums.active() || !succeeds(&before, &after) => Order::Worse,
                    (true, false) if tells(&before, &after) => Order::Newer(Wrong::Slot),
                    (true, false) => Order::Perhaps,
                }
            }
        }
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

/// Whether `after` is a state that a slot takes after `before`.
fn succeeds(before: &Slot, after: &Slot) -> bool {
    if before.generation == after.generation {
        return before.state == STATE_LIVE && !after.is_live();
    }
    rises(before.generation, after.generation)
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
        let life =
            [slot(7, STATE_FREE), slot(8, STATE_LIVE), slot(8, STATE_FREE), slot(9, STATE_LIVE)];
        for (i, before) in life.iter().enumerate() {
            for (k, after) in life.iter().enumerate() {
                assert_eq!(succeeds(before, after), i < k, "{i} to {k}");
            }
        }
    }
}
