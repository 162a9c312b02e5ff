//! A unit that disagrees because a page of it came back as it once was, with all that lies there.
//!
//! Most of such a page verifies. What does not is what also has bytes on another page: a granule
//! across the border, a slot apart from its object. Cured by itself it would be as it was last
//! written, beside neighbours in the same object that stay as they once were and verify: a state
//! that never was, and the one witness is gone. So before a unit is cured, each page that it lies
//! on is tried as a whole, as parity says. That is the cure if the unit verifies then, and all else
//! over the page does, and some of that is not as it is now.

use holdfast_heap::format::{SLOT_LEN, SUM_LEN};
use holdfast_heap::sums::granule_range;
use holdfast_heap::verify::{Direct, Found, Overlay, Source, read_slot};
use holdfast_heap::{Unit, ZoneTable};
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_redundancy::Wrong;

use crate::changes::Changes;
use crate::halves::MayBe;
use crate::mend_unit::{Cure, Part, judging};
use crate::shared::Shared;

/// Trying a page as a whole before a unit on it.
const TRY: Site = Site::new("object.whole_page.try");

/// A cure of `unit` by one of the pages that its parts lie on, judged as it will be after
/// `changes`. `may_be` answers what a range may have been.
pub(crate) fn find_page<M: Medium>(
    shared: &Shared<M>,
    unit: &Unit,
    parts: &[Part],
    changes: &Changes,
    may_be: &mut MayBe<'_>,
) -> Option<Cure> {
    if !matches!(unit, Unit::Granule { .. }) || !shared.heap.sums().active() {
        return None;
    }
    let ends = parts.iter().flat_map(|part| [part.at, part.at + part.len.max(1) - 1]);
    let mut pages: Vec<u64> = ends.map(|at| at / PAGE * PAGE).collect();
    pages.sort_unstable();
    pages.dedup();
    pages.retain(|_| shared.m.enabled(TRY));
    pages.into_iter().find_map(|page| {
        let candidates = may_be(page, PAGE);
        candidates.iter().find_map(|then| try_page(shared, unit, parts, changes, page, then))
    })
}

fn try_page<M: Medium>(
    shared: &Shared<M>,
    unit: &Unit,
    parts: &[Part],
    changes: &Changes,
    page: u64,
    candidate: &[u8],
) -> Option<Cure> {
    let table = shared.heap.zone_of(page)?;
    let direct = Direct(&shared.m);
    let mut now = vec![0; PAGE as usize];
    direct.read(page, &mut now).ok()?;
    let mut bytes = now.clone();
    let as_it_was = Overlay { under: &direct, at: page, bytes: candidate };
    covered(table, page, &changes.over(&as_it_was), &mut |at, len| {
        let (from, to) = (at.max(page) - page, (at + len).min(page + PAGE).saturating_sub(page));
        if let Some(part) = candidate.get(from as usize..to as usize) {
            bytes[from as usize..to as usize].copy_from_slice(part);
        }
    });
    let mut differ = (page..).zip(now.iter().zip(&bytes)).filter(|(_, (a, b))| a != b);
    let of_unit = |at: u64| parts.iter().any(|part| at.wrapping_sub(part.at) < part.len);
    if differ.clone().all(|(at, _)| of_unit(at)) {
        return None;
    }
    let certify = judging(shared);
    let as_cured = Overlay { under: &direct, at: page, bytes: &bytes };
    let good = unit.check(&changes.over(&as_cured), shared.heap.sums(), certify);
    if good != Ok(Found::Good) || shared.bad_units(page, &bytes, changes, certify) > 0 {
        return None;
    }
    let first = differ.next()?.0;
    let last = differ.last().map_or(first, |(at, _)| at);
    let part = Part { at: first, len: last + 1 - first, wrong: Wrong::Data };
    let bytes = bytes[(first - page) as usize..=(last - page) as usize].to_vec();
    Some(Cure { parts: vec![(part, bytes)], whole_page: true })
}

/// Calls `each` for every range over a page that a sum vouches for, as the slots in `then` say.
/// Nothing tells what is right of the rest.
fn covered(table: &ZoneTable, page: u64, then: &impl Source, each: &mut impl FnMut(u64, u64)) {
    table.units_over(page, PAGE, &mut |unit| {
        let Unit::Granule { spot, granule } = unit else { return };
        let Ok(slot) = read_slot(then, &spot) else { return };
        each(spot.slot, SLOT_LEN as u64);
        if !slot.is_live() {
            return;
        }
        let (from, len) = granule_range(granule, u64::from(slot.len).min(spot.capacity));
        if len > 0 {
            each(spot.object + from, len);
        }
        if granule > 0 {
            each(spot.sum_at(granule), SUM_LEN);
        }
    });
}
