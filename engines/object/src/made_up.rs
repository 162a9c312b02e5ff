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
use holdfast_redundancy::{Wrong, Zone, parity, zone};
use holdfast_sync::{MutexGuard, PoisonError};

use crate::repair::Mended;
use crate::shared::{Repairer, Shared};

/// Columns that are remembered; of more the oldest is forgotten.
const MADE_UP_MAX: usize = 1 << 12;

impl<M: Medium> Shared<M> {
    fn made_up(&self) -> MutexGuard<'_, Vec<u64>> {
        self.made_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What became of the damage of an event, as its journal is to tell it: a page of a row that
    /// comes from what was made up is lost. Takes down where something is made up.
    pub(crate) fn as_far_as_known(&self, event: &Event, mended: Mended) -> Mended {
        let page = event.len == PAGE && matches!(event.cause, Cause::MediaError | Cause::Listed);
        let Some((zone, _, col)) = self.zone_unit(event.at).filter(|_| page) else { return mended };
        let column = zone.p_at(col / PAGE * PAGE);
        let mut made_up = self.made_up();
        match mended {
            // One that stays bad does not read as zeros.
            Mended::Lost(_) if !made_up.contains(&column) && !self.is_bad(event.at) => {
                if made_up.len() == MADE_UP_MAX {
                    made_up.remove(0);
                }
                made_up.push(column);
                mended
            }
            Mended::Repaired(wrong @ Wrong::Data)
            | Mended::Relocated(wrong @ Wrong::Data)
            | Mended::StoodIn(wrong @ Wrong::Data)
                if made_up.contains(&column) =>
            {
                Mended::Lost(wrong)
            }
            mended => mended,
        }
    }

    /// Whether a page of a row comes from what was made up, and counts as lost.
    pub(crate) fn is_made_up(&self, page: u64) -> bool {
        let row = self.zone_unit(page).filter(|(_, unit, _)| matches!(unit, zone::Unit::Row(_)));
        row.is_some_and(|(zone, _, col)| self.made_up().contains(&zone.p_at(col / PAGE * PAGE)))
    }

    /// Forgets that something was made up in a page column that adds up, now that parity was made
    /// from its rows: a row that was made from the others adds up with them anyway. It is held.
    pub(crate) fn believe(&self, repairer: &mut Repairer, zone: &Zone, col: u64) {
        if !self.made_up().contains(&zone.p_at(col)) {
            return;
        }
        let left = parity::check(&self.m, zone, col, PAGE, &self.exempt(), &mut repairer.scratch);
        if left.is_ok_and(|left| left.is_empty()) {
            self.made_up().retain(|column| *column != zone.p_at(col));
        }
    }

    /// Forgets all columns that add up.
    pub(crate) fn believe_what_adds_up(&self) {
        let all = self.made_up().clone();
        for at in all {
            let Some((zone, _, col)) = self.zone_unit(at) else { continue };
            let column = self.columns_of(&[(zone.at(0, col), PAGE)]);
            if self.add_up(&zone, (col, PAGE), &column) {
                self.made_up().retain(|column| *column != at);
            }
        }
    }
}
