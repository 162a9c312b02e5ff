//! Step 5 of a redo: parity of the columns that it changed.
//!
//! Of columns whose bytes a record replaces, parity is summed before step 4, from the rows as they
//! will be, and those are verified once they were read. What is damaged from then on, the new
//! parity can mend; and what was damaged before is cured while the parity on the medium still goes
//! with the bytes on it, which step 4 replaces. Columns that keep their bytes, those of objects
//! written in place, are many, and go with no parity yet: they are summed, verified and stored a
//! page at a time. See `anew.rs`.

use std::collections::BTreeMap;

use holdfast_heap::verify::Direct;
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_redundancy::events::{Cause, Finder};
use holdfast_redundancy::parity::ParitySites;
use holdfast_redundancy::{Place, Wrong, Zone, zone};

use crate::anew::Sums;
use crate::error::Error;
use crate::redo::{Redo, Redone};
use crate::repair::Mended;
use crate::shared::{Repairer, Shared};

/// What is damaged was cured, and parity is about to be summed.
const STEP_SUM: Site = Site::new("object.redo_parity.step-sum");
/// Making up a page, that turned bad under a store, from the parity that was summed before.
const TO_BE: Site = Site::new("object.redo_parity.to-be");
/// Verifying the rows once more, now that they were read for it.
const VERIFY_SUMMED: Site = Site::new("object.redo_parity.verify-summed");
/// Judging what was read for it once more.
const AS_JUDGED: Site = Site::new("object.redo_parity.as-judged");
/// Recomputing parity.
const RECOMPUTE: Site = Site::new("object.redo_parity.recompute");
/// Storing parity.
const PARITY: ParitySites = ParitySites {
    p: Site::new("object.redo_parity.parity-p"),
    q: Site::new("object.redo_parity.parity-q"),
};
/// Rewriting a bad parity page.
const HEAL_PARITY: Site = Site::new("object.redo_parity.heal-parity");

/// How often rows are cured that have gone bad since they were verified.
const TRIES: u32 = 8;

/// Parity as it will be, by zone and column.
#[derive(Debug, Default)]
pub(crate) struct ToBe(BTreeMap<(u32, u64), Sums>);

impl ToBe {
    /// Forgets the columns over a page that had to be made up since: nobody knows whether it is
    /// what it was when they were summed.
    pub(crate) fn forget_over(&mut self, zone: &Zone, place: Place) {
        self.0.retain(|(index, col), _| *index != zone.index() || col / PAGE != place.col / PAGE);
    }

    /// What lies over a page.
    fn over(&self, zone: &Zone, page: u64) -> impl Iterator<Item = &Sums> {
        let col = zone.place(page).map_or(0, |place| place.col / PAGE * PAGE);
        let range = (zone.index(), col)..(zone.index(), col + PAGE);
        self.0.range(range).map(|(_, sums)| sums)
    }
}

impl<M: Medium> Shared<M> {
    /// Steps 1 to 3, until all that was not given up verifies after it was read for the parity, and
    /// none of it is an older state that came about in between.
    pub(crate) fn cure_and_sum(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        zones: &[Zone],
        redone: &mut Redone,
    ) -> Result<ToBe, Error> {
        let mut tries = 0;
        loop {
            for zone in zones {
                for (col, len) in redo.changes.columns(zone) {
                    self.cure_columns(repairer, redo, zone, col, len, redone)?;
                }
            }
            self.m.step(STEP_SUM);
            tries += 1;
            let mut to_be = ToBe::default();
            let sound = zones.iter().fold(true, |sound, zone| {
                let summed = self.sum_replaced(redo, zone, redone, &mut to_be);
                sound & summed & self.is_judged(repairer, redo, zone, redone)
            });
            if sound || tries == TRIES {
                return Ok(to_be);
            }
        }
    }

    /// Sums the columns whose bytes are replaced, as they will be. Whether the rows verify.
    fn sum_replaced(
        &self,
        redo: &Redo<'_>,
        zone: &Zone,
        redone: &Redone,
        to_be: &mut ToBe,
    ) -> bool {
        let direct = Direct(&self.m);
        let (future, exempt) = (redo.changes.over(&direct), self.exempt());
        let mut sound = true;
        for (col, len) in redo.changes.columns(zone).into_iter().flat_map(by_pages) {
            if !zone.has_p() || !redo.changes.replace_over(zone, col, len) {
                continue;
            }
            let sums = self.sum_columns(&future, zone, (col, len), &exempt);
            if !self.still_verify(redo, zone, (col, len), redone) {
                sound = false;
                continue;
            }
            // What cannot be read stays so, or turned bad just now: step 5 sees to it.
            if let Ok(sums) = sums {
                to_be.0.insert((zone.index(), col), sums);
            }
        }
        sound
    }

    /// Whether no write of the rows that were just read was lost since they were judged. While a
    /// pool is opened, only cures are on their way, which are seen until they are drained.
    fn is_judged(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        zone: &Zone,
        redone: &Redone,
    ) -> bool {
        if redo.finder == Finder::Open || !self.m.enabled(AS_JUDGED) {
            return true;
        }
        let replaced = |columns: &(u64, u64)| redo.changes.replace_over(zone, columns.0, columns.1);
        let mut columns = redo.changes.columns(zone).into_iter().flat_map(by_pages);
        columns.all(|columns| {
            !replaced(&columns) || self.none_lost(repairer, redo, zone, columns, redone)
        })
    }

    /// Whether the rows verify that were just read, but for what was given up.
    fn still_verify(
        &self,
        redo: &Redo<'_>,
        zone: &Zone,
        columns: (u64, u64),
        redone: &Redone,
    ) -> bool {
        let enabled = self.m.enabled(VERIFY_SUMMED);
        !enabled || self.units_to_cure(redo, zone, columns, redone).is_empty()
    }

    /// A page that turned bad while the changes were stored: `found` is what parity on the medium
    /// says, which goes with none of the columns where some are stored and some are not. Of those
    /// it is known what they will be. `None` if there are none, or another row cannot be read.
    pub(crate) fn as_it_will_be(
        &self,
        redo: &Redo<'_>,
        to_be: &ToBe,
        page: u64,
        found: &[u8],
    ) -> Option<Vec<u8>> {
        let zone = self.zone_of(page).filter(|_| self.m.enabled(TO_BE))?;
        let row = zone.place(page)?.row;
        let direct = Direct(&self.m);
        let future = redo.changes.over(&direct);
        let mut bytes = None;
        for sums in to_be.over(zone, page) {
            let mut part = sums.p().to_vec();
            let columns = (sums.col(), &mut part[..]);
            self.add_rows(&future, zone, Some(row), columns, &self.exempt()).ok()?;
            let from = (sums.col() % PAGE) as usize;
            bytes.get_or_insert_with(|| found.to_vec())[from..from + part.len()]
                .copy_from_slice(&part);
        }
        bytes
    }

    /// Step 5 for some columns, not drained. Parity pages that are bad are rewritten whole:
    /// elsewhere on the page parity has no other source than the rows as they are.
    pub(crate) fn redo_columns(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        (zone, columns): (&Zone, (u64, u64)),
        to_be: &ToBe,
        redone: &mut Redone,
    ) -> Result<(), Error> {
        if !zone.has_p() || !self.m.enabled(RECOMPUTE) {
            return Ok(());
        }
        // A page column at a time: what cannot be had of one costs the next ones nothing.
        for (col, len) in by_pages(columns) {
            let page = col / PAGE * PAGE;
            let sums = to_be.0.get(&(zone.index(), col));
            let mut done = match sums {
                Some(sums) => self.put_redone(zone, sums),
                None => self.sum_and_put(repairer, redo, zone, (col, len), redone),
            };
            // It may be that a row could not be read for once.
            if sums.is_none()
                && matches!(&done, Err(Error::Media(e)) if !self.is_bad(e.at / PAGE * PAGE))
                && !self.was_put(zone, &done)
            {
                done = self.sum_and_put(repairer, redo, zone, (col, len), redone);
            }
            if self.was_put(zone, &done) {
                // At once: whatever stops a redo later, the next one finds these columns so; and
                // where one parity failed, the rest of the page is judged by the one that is left.
                self.keep_apart(repairer, zone, (col, len), &redone.kept);
            }
            if done.is_err() && self.was_put(zone, &done) {
                self.clear_parity(repairer, zone, page, redo.finder, redone)?;
                done = self.remake_page(repairer, redo, zone, page, redone);
                if done.is_ok()
                    && let Some(sums) = sums
                {
                    done = self.put_redone(zone, sums);
                    if self.was_put(zone, &done) {
                        self.keep_apart(repairer, zone, (col, len), &redone.kept);
                    }
                }
            }
            match done {
                // A row that could not be read and could not be mended either, or parity that stays
                // bad, as was reported.
                Err(Error::Media(e)) if self.is_bad(e.at / PAGE * PAGE) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Parity of columns whose bytes are on the medium, from rows that verify once they were read.
    fn sum_and_put(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        zone: &Zone,
        (col, len): (u64, u64),
        redone: &mut Redone,
    ) -> Result<(), Error> {
        // Their parity goes with them, so it tells what of them was lost; elsewhere it is that of
        // what they were before.
        let goes_with_them = !redo.changes.replace_over(zone, col, len);
        for _ in 0..TRIES {
            let mut judged = || self.none_lost(repairer, redo, zone, (col, len), redone);
            let verify = || {
                self.still_verify(redo, zone, (col, len), redone) && (!goes_with_them || judged())
            };
            if self.put_verified(zone, (col, len), verify)? {
                return Ok(());
            }
            self.cure_columns(repairer, redo, zone, col, len, redone)?;
            self.harden_cures()?;
        }
        self.put_verified(zone, (col, len), || true).map(drop)
    }

    /// Sums the rows over some columns, and stores that if they verify then. Answers whether they
    /// did.
    fn put_verified(
        &self,
        zone: &Zone,
        columns: (u64, u64),
        verify: impl FnOnce() -> bool,
    ) -> Result<bool, Error> {
        let sums = self.sum_columns(&Direct(&self.m), zone, columns, &self.exempt())?;
        let good = verify();
        if good {
            self.put_redone(zone, &sums)?;
        }
        Ok(good)
    }

    fn put_redone(&self, zone: &Zone, sums: &Sums) -> Result<(), Error> {
        self.put_sums(zone, sums, PARITY)
    }

    /// Parity of a page column of which a parity page was cleared. With the other one damage in the
    /// rows beside the change can be cured, and what was lost of them brought back: neither would
    /// tell of it any more afterwards. What is in doubt or held there is set apart again.
    fn remake_page(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        zone: &Zone,
        page: u64,
        redone: &mut Redone,
    ) -> Result<(), Error> {
        let (all, mut done) = ((page, PAGE), Ok(false));
        for _ in 0..if zone.has_q() { TRIES } else { 0 } {
            self.cure_columns(repairer, redo, zone, page, PAGE, redone)?;
            self.harden_cures()?;
            let verify = || {
                self.still_verify(redo, zone, all, redone)
                    && self.none_lost(repairer, redo, zone, all, redone)
            };
            done = self.put_verified(zone, all, verify);
            if !matches!(done, Ok(false)) {
                break;
            }
        }
        if matches!(done, Ok(false)) {
            done = self.put_verified(zone, all, || true);
        }
        let done = done.map(drop);
        if self.was_put(zone, &done) {
            self.keep_apart(repairer, zone, all, &redone.kept);
        }
        done
    }

    /// Whether parity was stored, of which one may have failed: the other one was nevertheless.
    fn was_put(&self, zone: &Zone, done: &Result<(), Error>) -> bool {
        let of_parity = |at| {
            zone.unit(at)
                .is_some_and(|(unit, _): (zone::Unit, u64)| !matches!(unit, zone::Unit::Row(_)))
        };
        match done {
            Err(Error::Media(e)) => of_parity(e.at),
            done => done.is_ok(),
        }
    }

    /// Makes the parity pages of a page column usable; what they hold is to be recomputed.
    fn clear_parity(
        &self,
        repairer: &mut Repairer,
        zone: &Zone,
        page: u64,
        finder: Finder,
        redone: &mut Redone,
    ) -> Result<(), Error> {
        let contents = vec![0; PAGE as usize];
        let kept = [(zone.has_p(), zone::Unit::P), (zone.has_q(), zone::Unit::Q)];
        for (_, unit) in kept.into_iter().filter(|(kept, _)| *kept) {
            let at = zone.unit_at(unit, page);
            if !self.is_bad(at) {
                continue;
            }
            // It says nothing, whether it can be read then or not.
            redone.given_up.push(at);
            let wrong = if unit == zone::Unit::P { Wrong::ParityP } else { Wrong::ParityQ };
            let event = self.event(Cause::MediaError, finder, at, PAGE);
            let mended = match self.m.heal(HEAL_PARITY, at, &contents) {
                Ok(()) => Mended::Repaired(wrong),
                // It is recomputed from the rows, whatever it holds.
                Err(_) => {
                    self.move_or_stand_in(repairer, at, (&contents, true), (wrong, finder))?
                }
            };
            self.report_mended(event, mended);
        }
        Ok(())
    }
}

/// Columns cut at page boundaries.
pub(crate) fn by_pages((col, len): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    let (mut from, end) = (col, col + len);
    core::iter::from_fn(move || {
        let at = from;
        from = end.min((at / PAGE + 1) * PAGE);
        (at < end).then(|| (at, from - at))
    })
}
