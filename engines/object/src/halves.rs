//! Two damages of one column at different bytes. What parity makes of either row is wrong at the
//! bytes of the other, so no whole candidate verifies; but one of its halves does, with the rest
//! as it lies there.
//!
//! Each trial is a comparison with a sum of 32 bits, and the more of them there are, the less the
//! one that agrees is to be believed. So there are [`TRIALS_MAX`] for each unit, first those at
//! bytes that parity finds equal, between two damages: P and Q together make good what these miss.
//! Where there is no Q, there are [`TRIALS_P_MAX`]: as many as there are ways to cut a granule. A
//! stray write of a row's length ends in the page of the next row in which it began, and must not
//! cost the granule over that border.

use core::ops::Range;

use holdfast_heap::Unit;
use holdfast_heap::format::GRANULE;
use holdfast_heap::verify::{Direct, Found};
use holdfast_pmem::Medium;
use holdfast_redundancy::Zone;

use crate::changes::Changes;
use crate::mend_unit::{Cure, First, Part, SLOT, cures, current, judging};
use crate::shared::Shared;

/// Bytes without a difference that part two damages: shorter ones come about by chance.
const GAP: usize = 8;
/// Trials for each unit.
const TRIALS_MAX: usize = 256;
/// The same without Q: each place to cut a granule, on both sides of it, with its sum and without;
/// and of what is short.
const TRIALS_P_MAX: usize = 4 * GRANULE as usize + TRIALS_MAX;

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

/// Looks for a part of `unit` of which a half has to be replaced. `plain` is what each may be.
pub(crate) fn find_half<M: Medium>(
    shared: &Shared<M>,
    unit: &Unit,
    parts: &[Part],
    plain: &[Vec<Vec<u8>>],
    changes: &Changes,
) -> Option<Cure> {
    let has_q = shared.zone_of(parts.first()?.at).is_some_and(Zone::has_q);
    let mut trials = if has_q { TRIALS_MAX } else { TRIALS_P_MAX };
    let half = Half::new(shared, unit, parts, plain, changes);
    let mut order: Vec<usize> = (0..parts.len()).filter(|i| !half.same[*i]).collect();
    if !has_q {
        // What is short has few places to be cut: it leaves enough for the rest.
        order.sort_by_key(|i| parts[*i].len);
    }
    let each = order.into_iter().flat_map(|i| plain[i].iter().map(move |bytes| (i, bytes)));
    { each }.find_map(|(i, bytes)| half.of_candidate(i, bytes, &mut trials))
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

    /// What makes the unit good with half of `bytes` as part `i`, within so many trials.
    fn of_candidate(&self, i: usize, bytes: &[u8], trials: &mut usize) -> Option<Cure> {
        let now = current(self.shared, &self.parts[i])?;
        let gaps = gaps(&now, bytes);
        let others = (1..now.len()).filter(|at| now[*at] != bytes[*at] && !gaps.contains(at));
        for cut in gaps.iter().copied().chain(others) {
            for keep in [0..cut, cut..now.len()] {
                let half = with_half(&now, bytes, keep);
                if half == now {
                    continue;
                }
                if *trials == 0 {
                    return None;
                }
                // One for each set of parts that the half is tried with.
                *trials = trials.saturating_sub(self.sets(i).count());
                let cure = self.cure_with(i, &half);
                if cure.is_some() {
                    return cure;
                }
            }
        }
        None
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
