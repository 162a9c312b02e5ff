//! A unit that disagrees because a page of it came back as it once was, with all that lies there.
//!
//! Most of such a page verifies. What does not is what also has bytes on another page: a granule
//! across the border, a slot apart from its object. Cured by itself it would be as it was last
//! written, beside neighbours in the same object that stay as they once were and verify: a state
//! that never was, and the one witness is gone. So before a unit is cured, each page that it lies
//! on is tried as a whole, as parity says. That is the cure if the unit verifies then, nothing
//! that verifies stops doing so, and something that verifies becomes another.
//!
//! It may be parity that is older instead. So P and Q must agree, no slot may go back by its own
//! numbers, and only one page may be the cure: where two of them are, two columns are wrong, and
//! nothing here tells which of them lost what.

use core::ops::Range;

use holdfast_heap::format::{SLOT_LEN, SUM_LEN};
use holdfast_heap::sums::granule_range;
use holdfast_heap::verify::{Direct, Found, Overlay, Source, read_slot};
use holdfast_heap::{Spot, Unit, ZoneTable};
use holdfast_layout::Certify;
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_redundancy::Wrong;
use holdfast_redundancy::events::{Cause, Finder};

use crate::changes::Changes;
use crate::halves::MayBe;
use crate::mend_unit::{Cure, Part, judging, parts_of};
use crate::newer::{Order, order_of};
use crate::shared::Shared;

/// Trying a page as a whole before a unit on it.
const TRY: Site = Site::new("object.whole_page.try");

/// What a page is and would be.
struct Page<'a> {
    at: u64,
    now: Vec<u8>,
    /// As parity says, where a sum vouches for it; else as it is.
    then: Vec<u8>,
    changes: &'a Changes,
    certify: Certify,
}

/// A cure of `unit` by one of the pages that its parts lie on, judged as it will be after
/// `changes`. `may_be` answers what a range may have been.
pub(crate) fn find_page<M: Medium>(
    shared: &Shared<M>,
    unit: &Unit,
    parts: &[Part],
    changes: &Changes,
    may_be: &mut MayBe<'_>,
) -> Option<Cure> {
    let judged = matches!(unit, Unit::Granule { .. }) && shared.heap.sums().active();
    if !judged || !shared.m.enabled(TRY) {
        return None;
    }
    let ends = parts.iter().flat_map(|part| [part.at, part.at + part.len.max(1) - 1]);
    let mut pages: Vec<u64> = ends.map(|at| at / PAGE * PAGE).collect();
    pages.sort_unstable();
    pages.dedup();
    let has_q = |page| shared.zone_of(page).is_some_and(|zone| zone.has_q());
    let tried = pages.into_iter().filter_map(|page| {
        let candidates = may_be(page, PAGE);
        // P, Q, and both together say the same, if it is this row that is wrong.
        if has_q(page) && candidates.len() > 1 {
            return None;
        }
        candidates.iter().find_map(|then| try_page(shared, unit, changes, page, then))
    });
    let [page] = <[Page<'_>; 1]>::try_from(Vec::from_iter(tried)).ok()?;
    page.cure(shared, parts)
}

/// Has the columns of what is stored of a page looked at by themselves: of bytes that no sum
/// vouches for nothing tells what is right.
pub(crate) fn look_beside<M: Medium>(shared: &Shared<M>, cure: &Cure) {
    for (part, _) in cure.parts.iter().filter(|_| !cure.holds.is_empty()) {
        shared.suspect(part.at / PAGE * PAGE, PAGE, Cause::Parity, Finder::Repair);
    }
}

/// A page with which the unit verifies, as parity says.
fn try_page<'a, M: Medium>(
    shared: &Shared<M>,
    unit: &Unit,
    changes: &'a Changes,
    at: u64,
    candidate: &[u8],
) -> Option<Page<'a>> {
    let table = shared.heap.zone_of(at)?;
    let direct = Direct(&shared.m);
    let mut now = vec![0; PAGE as usize];
    direct.read(at, &mut now).ok()?;
    let then = vouched(table, at, &now, candidate, changes, &direct);
    let certify = judging(shared);
    let overlay = Overlay { under: &direct, at, bytes: &then };
    let good = unit.check(&changes.over(&overlay), shared.heap.sums(), certify);
    (good == Ok(Found::Good)).then_some(Page { at, now, then, changes, certify })
}

/// A page as parity says, where a sum vouches for that, by the slots as parity says. Of the rest
/// nothing tells what is right, and what is replayed over it needs none.
fn vouched(
    table: &ZoneTable,
    page: u64,
    now: &[u8],
    candidate: &[u8],
    changes: &Changes,
    under: &impl Source,
) -> Vec<u8> {
    let mut then = now.to_vec();
    let mut put = |from: u64, len: u64, bytes: &[u8]| {
        let part = within(page, from, len);
        if let (Some(into), Some(part)) = (then.get_mut(part.clone()), bytes.get(part)) {
            into.copy_from_slice(part);
        }
    };
    let overlay = Overlay { under, at: page, bytes: candidate };
    let seen = changes.over(&overlay);
    table.units_over(page, PAGE, &mut |unit| {
        let Unit::Granule { spot, granule } = unit else { return };
        let Ok(slot) = read_slot(&seen, &spot) else { return };
        put(spot.slot, SLOT_LEN as u64, candidate);
        let (from, len) = granule_range(granule, u64::from(slot.len).min(spot.capacity));
        if slot.is_live() && len > 0 {
            put(spot.object + from, len, candidate);
            if granule > 0 {
                put(spot.sum_at(granule), SUM_LEN, candidate);
            }
        }
    });
    changes.pieces().for_each(|(at, bytes)| put(at, bytes.len() as u64, now));
    then
}

impl Page<'_> {
    /// The cure that this page is, if more of it differs than `parts`.
    fn cure<M: Medium>(&self, shared: &Shared<M>, parts: &[Part]) -> Option<Cure> {
        let both = self.now.iter().zip(&self.then);
        let mut differ = (self.at..).zip(both).filter(|(_, (now, then))| now != then);
        let of_unit = |at: u64| parts.iter().any(|part| at.wrapping_sub(part.at) < part.len);
        if differ.clone().all(|(at, _)| of_unit(at)) {
            return None;
        }
        let holds = self.becomes_another(shared)?;
        let first = differ.next()?.0;
        let last = differ.last().map_or(first, |(at, _)| at);
        let part = Part { at: first, len: last + 1 - first, wrong: Wrong::Data };
        let bytes = self.then[(first - self.at) as usize..=(last - self.at) as usize].to_vec();
        Some(Cure { parts: vec![(part, bytes)], holds })
    }

    /// The version words of what verifies as it is and becomes another. `None` if nothing does, or
    /// if something of that does not verify any more, or goes back by its own numbers.
    fn becomes_another<M: Medium>(&self, shared: &Shared<M>) -> Option<Vec<u32>> {
        let table = shared.heap.zone_of(self.at)?;
        let direct = Direct(&shared.m);
        let overlay = Overlay { under: &direct, at: self.at, bytes: &self.then };
        let (now, then) = (self.changes.over(&direct), self.changes.over(&overlay));
        let sums = shared.heap.sums();
        let (mut holds, mut refused) = (Vec::new(), false);
        table.units_over(self.at, PAGE, &mut |unit| {
            let Unit::Granule { spot, .. } = unit else { return };
            // What cannot be read, or is damaged by itself, says nothing of this page.
            if !unit.check(&now, sums, self.certify).is_ok_and(|found| !found.is_bad()) {
                return;
            }
            let bad = unit.check(&then, sums, self.certify).is_ok_and(Found::is_bad);
            refused |= bad || goes_back(&now, &then, &spot);
            if self.changes_part_of(&unit) {
                holds.push(shared.versions.index(spot.object));
            }
        });
        holds.sort_unstable();
        holds.dedup();
        (!refused && !holds.is_empty()).then_some(holds)
    }

    fn changes_part_of(&self, unit: &Unit) -> bool {
        parts_of(unit).iter().any(|part| {
            let range = within(self.at, part.at, part.len);
            self.now.get(range.clone()) != self.then.get(range)
        })
    }
}

/// The part of a range that lies on a page, as bytes of the page; none that it has, if none does.
fn within(page: u64, from: u64, len: u64) -> Range<usize> {
    let (start, end) = (from.max(page) - page, (from + len).min(page + PAGE));
    start as usize..end.saturating_sub(page) as usize
}

/// Whether a slot would be an older one.
fn goes_back(now: &impl Source, then: &impl Source, spot: &Spot) -> bool {
    match (read_slot(now, spot), read_slot(then, spot)) {
        (Ok(now), Ok(then)) if now != then => order_of(&now, &then, spot) == Order::Older,
        _ => false,
    }
}
