//! Columns in which a page was made up: it could not be read, nothing told what was in it, and
//! zeros took its place, so that it can be used again. They read as if they were right.
//!
//! What else goes bad in such a column comes back as the other rows and parity have it, zeros
//! included: likelier than anything else, and where a sum bears it out, right. But the page as a
//! whole is lost, and its event says so. Until the column adds up again: parity is made from the
//! rows as they are, or a scrub finds that nothing differs.
//!
//! Known to this process only. After a crash the events of the page say that it is back, and those
//! of the objects over it, one by one, that they are lost.

use holdfast_pmem::{Medium, PAGE};
use holdfast_redundancy::events::{Cause, Event};
use holdfast_redundancy::parity::{self, Scratch};
use holdfast_redundancy::{ColumnId, Exempt, Wrong, Zone};
use holdfast_sync::{MutexGuard, PoisonError};

use crate::repair::Mended;
use crate::shared::Shared;

/// Columns that are remembered; of more the oldest is forgotten.
const MADE_UP_MAX: usize = 1 << 12;

impl<M: Medium> Shared<M> {
    fn made_up(&self) -> MutexGuard<'_, Vec<u64>> {
        self.made_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What became of the damage of an event, as its journal is to tell it: a page of a row that
    /// comes from what was made up is lost. Takes down where something is made up.
    pub(crate) fn as_far_as_known(&self, event: &Event, mended: Mended) -> Mended {
        let page = event.len == PAGE
            && event.at.is_multiple_of(PAGE)
            && matches!(event.cause, Cause::MediaError | Cause::Listed)
            // A page of a log chunk counts as nothing in parity.
            && self.exempt().first_in(event.at, PAGE).is_none();
        let zone = self.zone_unit(event.at).filter(|(zone, ..)| page && zone.has_p());
        let Some((zone, _, col)) = zone else { return mended };
        let column = zone.p_at(col);
        match mended {
            // One that stays bad does not read as zeros.
            Mended::Lost(_) if !self.is_bad(event.at) => {
                let mut made_up = self.made_up();
                if !made_up.contains(&column) {
                    if made_up.len() == MADE_UP_MAX {
                        made_up.remove(0);
                    }
                    made_up.push(column);
                }
                mended
            }
            Mended::Repaired(wrong) | Mended::Relocated(wrong) | Mended::StoodIn(wrong)
                if self.made_up().contains(&column) =>
            {
                // With what is there now, one more loss is none.
                self.believe(&zone, col);
                if wrong == Wrong::Data { Mended::Lost(wrong) } else { mended }
            }
            mended => mended,
        }
    }

    /// Forgets that something was made up in a page column, and parity of it, if it adds up.
    pub(crate) fn believe(&self, zone: &Zone, col: u64) {
        let (col, scratch) = (col / PAGE * PAGE, &mut Scratch::new());
        let left = parity::check(&self.m, zone, col, PAGE, &self.exempt(), scratch);
        if left.is_ok_and(|left| left.is_empty()) {
            self.made_up().retain(|column| *column != zone.p_at(col));
            let is_of =
                |page: u64| page == zone.p_at(col) || zone.has_q() && page == zone.q_at(col);
            self.one_sided().retain(|page| !is_of(*page));
        }
    }

    /// The same for all of these columns, which are held; for all there are, if none are given.
    pub(crate) fn believe_what_adds_up(&self, held: Option<&[ColumnId]>) {
        let mut all = self.made_up().clone();
        all.extend(self.one_sided().iter());
        for (zone, _, col) in all.into_iter().filter_map(|at| self.zone_unit(at)) {
            let column = self.columns.id(&zone, col);
            match held {
                Some(held) if held.contains(&column) => self.believe(&zone, col),
                Some(_) => {}
                None => {
                    let _held = self.columns.lock_one(&self.m, column);
                    self.believe(&zone, col);
                }
            }
        }
    }
}
