//! F2, put off. The stores of a small commit are flushed when it returns and drained when its lane
//! commits again: what is left to wait for by then is little or nothing. Until then the commit's
//! number stays under way, so that its record outlives it: a crash replays it.
//!
//! A lane that commits no more would hold the watermark back for ever. Whoever waits for it
//! flushes the lane's stores once more, in its stead, and drains. That works for stores that went
//! through the cache only; a commit with others drains before it returns.

use holdfast_logs::{DEFERRED_MAX, Lane};
use holdfast_pmem::{Medium, Site};

use crate::batch::{Batch, Part};
use crate::lane::LaneState;
use crate::shared::Shared;
use crate::view::Held;

/// F2 of a commit that cannot put it off.
const F2_NOW: Site = Site::new("object.settle.F2-now");
/// F2 of a lane's last commit.
const F2: Site = Site::new("object.settle.F2");
/// Flushing another lane's stores in its stead.
const FLUSH: Site = Site::new("object.settle.flush");
/// F2 in its stead.
const F2_FOR: Site = Site::new("object.settle.F2-for");

impl<M: Medium> Shared<M> {
    /// Before anything of a commit: what this thread's last one in this lane flushed. Comes before
    /// the first locked instruction, which would wait as well.
    #[inline]
    pub(crate) fn drain_last(&self, lane: &Held<'_, LaneState>) {
        if lane.owes.replace(false) {
            self.m.drain(F2);
        }
    }

    /// Before a number is drawn in a lane: the last one drawn there is complete.
    #[inline]
    pub(crate) fn settle_last(&self, lane: &Held<'_, LaneState>, log: &mut Lane<'_>) {
        let passed_on = lane.was_passed_on();
        if log.deferred().is_none() {
            return;
        }
        if passed_on {
            // The drain was this thread's, the stores were not.
            self.settle_for(log);
        } else {
            log.drained(&self.numbers);
        }
    }

    /// Whether a commit whose stores are under way may put F2 off: few stores, all through the
    /// cache, in a lane whose thread will come back to it.
    pub(crate) fn may_defer(&self, lane: &Held<'_, LaneState>, batch: &Batch) -> bool {
        lane.is_kept()
            && !self.is_file()
            && 3 * batch.parts.len() <= DEFERRED_MAX
            && batch.parts.len() >= batch.writes.len()
            && batch.exempts.is_empty()
            && batch.writes.iter().all(|w| self.m.put_is_cached(w.len.into()))
    }

    /// Where a commit stores its parts and their parity.
    #[inline]
    pub(crate) fn stores(&self, parts: &[Part]) -> impl Iterator<Item = (u64, u32)> {
        parts.iter().flat_map(|part| {
            let len = part.len as u32;
            let zone = self.zone(part.zone);
            let data = zone.map(|z| (z.at(part.row, part.col), len));
            let p = zone.filter(|z| z.has_p()).map(|z| (z.p_at(part.col), len));
            let q = zone.filter(|z| z.has_q()).map(|z| (z.q_at(part.col), len));
            [data, p, q].into_iter().flatten()
        })
    }

    /// Puts F2 of the commit just applied off.
    #[inline]
    pub(crate) fn defer(&self, log: &mut Lane<'_>, lane: &Held<'_, LaneState>) {
        lane.owes.set(true);
        log.defer();
    }

    /// F2 at once.
    pub(crate) fn settle_now(&self) {
        if !self.is_file() {
            self.m.drain(F2_NOW);
        }
    }

    /// Completes what the last commits of all lanes but `mine` put off, as far as nobody holds
    /// them. The caller holds no column.
    pub(crate) fn settle_others(&self, mine: usize) {
        for lane in (0..self.log.lanes()).filter(|lane| *lane != mine) {
            let Some(mut log) = self.log.acquire_exact(&self.m, lane) else { continue };
            if log.deferred().is_some() {
                self.settle_for(&mut log);
            }
        }
    }

    /// Completes the last commit of a lane in its thread's stead.
    fn settle_for(&self, log: &mut Lane<'_>) {
        let Some(last) = log.deferred().copied() else { return };
        let known = |(at, len): &(u64, u32)| Some((*at, *len, self.zone_unit(*at)?));
        for (at, len, (zone, _, col)) in last.ranges().iter().filter_map(known) {
            let column = self.columns.lock_one(&self.m, self.columns.id(&zone, col));
            // Changes nothing and flushes every line. A page that is bad by now is repaired like
            // any other: what was to be flushed is gone.
            let _ = self.m.xor(FLUSH, at, &vec![0; len as usize]);
            drop(column);
        }
        self.m.drain(F2_FOR);
        log.drained(&self.numbers);
    }
}
