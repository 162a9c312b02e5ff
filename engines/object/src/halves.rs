//! Two damages of one column at different bytes. What parity makes of either row is wrong at the
//! bytes of the other, so no whole candidate verifies; but one of its halves does, with the rest
//! as it lies there.
//!
//! Trying every place to cut costs thousands of comparisons with a sum of 32 bits, too many to
//! believe the one that agrees. So a half is believed only together with its counterpart: some
//! unit of another row that is bad as well must verify with the *other* half of what parity makes
//! of it, cut at the same column. Two sums agreeing by chance is out of the question. The other
//! damage may lie where nothing has a sum: so [`ALONE_MAX`] trials for each unit are believed
//! without, first those at bytes that parity finds equal, between two damages. Where there is no Q,
//! which would tell which rows are wrong, [`ALONE_P_MAX`] are: as many as there are ways to cut a
//! granule. A stray write of a row's length ends in the page of the next row in which it began,
//! and must not cost the granule over that border.

use core::ops::Range;

use holdfast_heap::Unit;
use holdfast_heap::format::GRANULE;
use holdfast_heap::verify::{Direct, Found};
use holdfast_layout::Certify;
use holdfast_pmem::Medium;
use holdfast_redundancy::{Place, Zone};

use crate::changes::Changes;
use crate::mend_unit::{Cure, First, Part, SLOT, cures, current, judging, parts_of};
use crate::shared::Shared;

/// Bytes without a difference that part two damages: shorter ones come about by chance.
const GAP: usize = 8;
/// Trials for each unit that are believed without a counterpart.
const ALONE_MAX: usize = 256;
/// The same without Q: each place to cut a granule, on both sides of it, with its sum and without.
const ALONE_P_MAX: usize = 4 * GRANULE as usize;

/// What a range may have been, by parity.
pub(crate) type MayBe<'a> = dyn FnMut(u64, u64) -> Vec<Vec<u8>> + 'a;

/// A unit, with what its parts may be.
struct Half<'a, M: Medium> {
    shared: &'a Shared<M>,
    unit: &'a Unit,
    parts: &'a [Part],
    plain: &'a [Vec<Vec<u8>>],
    changes: &'a Changes,
    /// Parts that are right, or of which nothing is known: there is nothing to try.
    same: Vec<bool>,
}

/// Where a part was cut.
#[derive(Clone, Copy)]
struct Cut {
    row: u32,
    column: u64,
    /// Whether the bytes before it were replaced.
    head: bool,
}

/// Looks for a part of `unit` of which a half has to be replaced. `plain` is what each may be.
pub(crate) fn find_half<M: Medium>(
    shared: &Shared<M>,
    unit: &Unit,
    parts: &[Part],
    plain: &[Vec<Vec<u8>>],
    changes: &Changes,
    certify: Certify,
    may_be: &mut MayBe<'_>,
) -> Option<Cure> {
    let has_q = shared.zone_of(parts.first()?.at).is_some_and(Zone::has_q);
    let mut alone = if has_q { ALONE_MAX } else { ALONE_P_MAX };
    let half = Half::new(shared, unit, parts, plain, changes);
    let mut order: Vec<usize> = (0..parts.len()).filter(|i| !half.same[*i]).collect();
    if !has_q {
        // What is short has few places to be cut: it leaves enough for the rest.
        order.sort_by_key(|i| parts[*i].len);
    }
    let each = order.into_iter().flat_map(|i| plain[i].iter().map(move |bytes| (i, bytes)));
    for (i, bytes) in each {
        let found = half.of_candidate(i, bytes, &mut alone, &mut |cut, part| {
            has_counterpart(shared, part, cut, changes, certify, may_be)
        });
        if found.is_some() {
            return found;
        }
    }
    None
}

impl<'a, M: Medium> Half<'a, M> {
    fn new(
        shared: &'a Shared<M>,
        unit: &'a Unit,
        parts: &'a [Part],
        plain: &'a [Vec<Vec<u8>>],
        changes: &'a Changes,
    ) -> Self {
        let is_same = |(part, all): (&Part, &Vec<Vec<u8>>)| {
            let now = current(shared, part);
            all.iter().all(|bytes| now.as_ref() == Some(bytes))
        };
        let mut same: Vec<bool> = parts.iter().zip(plain).map(is_same).collect();
        // A slot that the first granule bears out is right, whatever its columns make of it.
        if let Unit::Granule { spot, granule: 1.. } = unit {
            let first = Unit::Granule { spot: *spot, granule: 0 };
            let direct = Direct(&shared.m);
            let certify = judging(shared);
            let found = first.check(&changes.over(&direct), shared.heap.sums(), certify);
            same[SLOT] |= found == Ok(Found::Good);
        }
        Self { shared, unit, parts, plain, changes, same }
    }

    /// The sets of parts with which part `i` is tried.
    fn sets(&self, i: usize) -> impl Iterator<Item = u32> {
        let count = self.parts.len();
        let idle = (0..count).filter(|n| *n != i && self.same[*n]).fold(0, |all, n| all | 1 << n);
        (0..1_u32 << count).filter(move |set| set >> i & 1 == 1 && set & idle == 0)
    }

    /// What makes the unit good with half of `bytes` as part `i`, and is believed.
    fn of_candidate(
        &self,
        i: usize,
        bytes: &[u8],
        alone: &mut usize,
        is_confirmed: &mut dyn FnMut(Cut, &Part) -> bool,
    ) -> Option<Cure> {
        let part = &self.parts[i];
        let place = self.place(part);
        let now = current(self.shared, part)?;
        let gaps = gaps(&now, bytes);
        let others = (1..now.len()).filter(|at| now[*at] != bytes[*at] && !gaps.contains(at));
        for cut in gaps.iter().copied().chain(others) {
            for keep in [0..cut, cut..now.len()] {
                let head = keep.start == 0;
                let half = with_half(&now, bytes, keep);
                if half == now {
                    continue;
                }
                // One for each set of parts that the half is tried with.
                let believed = *alone > 0;
                *alone = alone.saturating_sub(self.sets(i).count());
                let Some(cure) = self.cure_with(i, &half) else { continue };
                // Over a border of rows no one column says where it was cut.
                let column = |place: Place| place.col + cut as u64;
                let cut = place.map(|place| Cut { row: place.row, column: column(place), head });
                if believed || cut.is_some_and(|cut| is_confirmed(cut, part)) {
                    return Some(cure);
                }
            }
        }
        None
    }

    /// Where a part is, if it lies in one row.
    fn place(&self, part: &Part) -> Option<Place> {
        let zone = self.shared.zone_of(part.at)?;
        zone.place(part.at).filter(|place| place.col + part.len <= zone.row_len())
    }

    /// A cure of `bytes` as part `i`, alone or with other parts as parity has them.
    fn cure_with(&self, i: usize, bytes: &Vec<u8>) -> Option<Cure> {
        let count = self.parts.len();
        for set in self.sets(i) {
            let chosen: Vec<usize> = (0..count).filter(|n| set >> n & 1 == 1).collect();
            let pick = |n: &usize| if *n == i { Some(bytes) } else { self.plain[*n].first() };
            let Some(all) = chosen.iter().map(pick).collect::<Option<Vec<_>>>() else { continue };
            let first = First::default();
            if cures(self.shared, self.unit, &chosen, self.parts, &all, self.changes, &first) {
                let pair = |(n, bytes): (&usize, &Vec<u8>)| (self.parts[*n], bytes.clone());
                let parts = chosen.iter().zip(all).map(pair).collect();
                return Some(Cure { parts, holds: Vec::new() });
            }
        }
        None
    }

    /// Whether the unit verifies with the other half of a part, cut at the same column.
    fn fits(&self, cut: Cut) -> bool {
        (0..self.parts.len()).any(|i| {
            let part = &self.parts[i];
            let Some(place) = self.place(part) else { return false };
            let Some(now) = current(self.shared, part) else { return false };
            let at = cut.column.saturating_sub(place.col).min(part.len) as usize;
            let keep = if cut.head { at..now.len() } else { 0..at };
            self.plain[i].iter().any(|bytes| {
                let half = with_half(&now, bytes, keep.clone());
                half != now && self.cure_with(i, &half).is_some()
            })
        })
    }
}

/// Whether a bad unit of another row verifies with the other half, cut at the same column.
fn has_counterpart<M: Medium>(
    shared: &Shared<M>,
    part: &Part,
    cut: Cut,
    changes: &Changes,
    certify: Certify,
    may_be: &mut MayBe<'_>,
) -> bool {
    let Some(zone) = shared.zone_of(part.at) else { return false };
    let Some(place) = zone.place(part.at) else { return false };
    let others = (0..zone.data_rows()).filter(|other| *other != cut.row);
    let at = others.map(|row| zone.at(row, place.col));
    at.flat_map(|at| bad_units(shared, at, part.len, changes, certify)).any(|unit| {
        let parts = parts_of(&unit);
        let plain: Vec<Vec<Vec<u8>>> = parts.iter().map(|p| may_be(p.at, p.len)).collect();
        Half::new(shared, &unit, &parts, &plain, changes).fits(cut)
    })
}

/// Units over `[at, at + len)` that do not verify.
fn bad_units<M: Medium>(
    shared: &Shared<M>,
    at: u64,
    len: u64,
    changes: &Changes,
    certify: Certify,
) -> Vec<Unit> {
    let Some(table) = shared.heap.zone_of(at) else { return Vec::new() };
    let direct = Direct(&shared.m);
    let seen = changes.over(&direct);
    let mut bad = Vec::new();
    table.units_over(at, len, &mut |unit| {
        let found = unit.check(&seen, shared.heap.sums(), certify);
        if found.is_ok_and(Found::is_bad) {
            bad.push(unit);
        }
    });
    bad
}

/// What is there `now`, with `bytes` in a range.
fn with_half(now: &[u8], bytes: &[u8], range: Range<usize>) -> Vec<u8> {
    let mut half = now.to_vec();
    half[range.clone()].copy_from_slice(&bytes[range]);
    half
}

/// Where a difference begins after [`GAP`] bytes or more without one, itself after another
/// difference.
fn gaps(now: &[u8], bytes: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut last = None;
    for at in (0..now.len()).filter(|at| now[*at] != bytes[*at]) {
        if last.is_some_and(|last| at - last > GAP) {
            found.push(at);
        }
        last = Some(at);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damages_are_parted_where_nothing_differs_for_a_while() {
        let now = [0; 64];
        let mut bytes = now;
        bytes[3] = 1;
        bytes[10] = 1;
        assert!(gaps(&now, &bytes).is_empty(), "too near: one damage");
        bytes[40] = 1;
        bytes[63] = 1;
        assert_eq!(gaps(&now, &bytes), [40, 63]);
        assert_eq!(with_half(&now, &bytes, 0..40)[3..41], [&bytes[3..40], &[0]].concat()[..]);
    }
}
