//! What becomes of a page that stays bad: its frame moves to a spare one; where none is left, or
//! the table of relocations cannot be written, memory stands in for the page.
//!
//! A *stand-in* holds the bytes that the redundancy gave back. Reads find it, commits store there,
//! and parity on the medium follows, as if the page were good: what is in it can be rebuilt from
//! there at the next open, as it was at this one. So there may be as many stand-ins in a page
//! column as there are parity rows in its zone, and no more: the medium alone has to determine
//! every byte. A page beyond that stays unreadable, and what is over it is lost.
//!
//! What a redo puts into one is not durable: from its step 4 to the end of its step 5 parity on the
//! medium goes with the bytes of before, and another crash in between may leave nothing to rebuild
//! the page from.
//!
//! What it costs: the column has so much less redundancy. A crash in the middle of a commit over
//! the same columns may leave parity that goes with neither state of the rows, and then nothing is
//! left to rebuild the page's bytes from; they do not verify, and are named as lost.
//!
//! Stand-ins end with the process: the next open tries the page, then its frame, then again this.

use std::collections::BTreeMap;

use holdfast_layout::RawPtr;
use holdfast_pmem::{MediaCause, MediaError, Medium, PAGE};
use holdfast_redundancy::events::{Cause, Finder};
use holdfast_redundancy::parity::Scratch;
use holdfast_redundancy::{ColumnId, Side, Verdict, Wrong, Zone, verdict::Reason};
use holdfast_sync::{MutexGuard, PoisonError};

use crate::error::Error;
use crate::pool::Pool;
use crate::repair::{Mended, wrong_in};
use crate::shared::{Repairer, Shared};
use crate::sweep::{CheckReport, Finding};

impl<M: Medium> Pool<M> {
    /// Pages (offsets, ascending) that stay bad and are served from memory of this process, since
    /// no spare frame is left for them. What is in them is on the medium as parity only: the pool
    /// should be copied to another device before more goes bad.
    #[must_use]
    pub fn stand_ins(&self) -> Vec<u64> {
        let mut pages = self.shared.stand_ins().clone();
        pages.sort_unstable();
        pages
    }
}

impl<M: Medium> Shared<M> {
    fn stand_ins(&self) -> MutexGuard<'_, Vec<u64>> {
        self.stand_ins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether memory stands in for any page of a range.
    pub(crate) fn stands_in(&self, at: u64, len: u64) -> bool {
        let inside = |page: &u64| *page < at.saturating_add(len) && at < page + PAGE;
        self.stand_ins().iter().any(inside)
    }

    /// Number of pages that memory stands in for.
    pub(crate) fn count_stand_ins(&self) -> usize {
        self.stand_ins().len()
    }

    /// Whether the frame of a page can be moved, as far as is known.
    pub(crate) fn can_move(&self, repairer: &Repairer, page: u64) -> bool {
        let frame = repairer.remap.frame_of(page);
        !repairer.stuck.contains(&frame)
            && repairer.remap.can_move(frame, &self.m.bad_ranges()).is_ok()
    }

    /// Moves the frame of a page that stays bad, with these bytes in the page if they are given,
    /// else with what its columns say. All columns are held meanwhile; a caller that holds some
    /// gets `Unclearable` and has to come back without, as others have to while columns wait to
    /// be completed. Other pages of it that cannot be read are good then as well, and told of.
    /// Answers what became of the page itself.
    pub(crate) fn relocate(
        &self,
        repairer: &mut Repairer,
        page: u64,
        known: Option<&[u8]>,
        finder: Finder,
    ) -> Result<Mended, Error> {
        // To move a frame makes a superblock valid, and that of a pool that is being made must not
        // be before its root is there.
        if repairer.holds_columns || self.anchor().is_null() {
            let cause = MediaCause::Unclearable;
            return Err(Error::Media(MediaError { at: page, len: PAGE, cause }));
        }
        let frame_len = self.superblock().frame;
        let frame = repairer.remap.frame_of(page);
        let columns = self.columns_of_frame(frame, frame_len);
        self.columns.lock_all(&self.m, &columns);
        if !repairer.completes
            && let Err(disturbed) = self.may_judge()
        {
            self.columns.unlock_all(&columns);
            return Err(disturbed);
        }
        // Records, the journal and the log have no columns.
        let (side_len, copies) = {
            let superblock = self.superblock();
            (superblock.side_len, superblock.copies)
        };
        let sides = frame < 2 * side_len;
        let log = sides.then(|| self.log.hold_still(&self.m, frame, frame_len));
        let Some(log) = log.map_or(Some(None), |held| held.map(Some)) else {
            // A commit that holds a lane may be waiting for the repairer.
            self.columns.unlock_all(&columns);
            return Err(Error::Tx(holdfast_txn::TxError::Conflict));
        };
        let regions = sides
            .then(|| self.regions.lock().unwrap_or_else(holdfast_sync::PoisonError::into_inner));
        let journal = sides.then(|| self.journal.hold_still());
        let mut superblock = self.superblock();
        let (mut scratch, mut beside) = (Scratch::new(), BTreeMap::new());
        let moved = repairer.remap.relocate(&self.m, &mut superblock, frame, |at, bytes| {
            // Twice: what is rebuilt may be less than what is there.
            if self.m.read(at, bytes).is_err() && self.m.read(at, bytes).is_err() {
                match known.filter(|_| at == page) {
                    Some(known) => bytes.copy_from_slice(known),
                    None => {
                        let sides = (side_len, copies);
                        beside.insert(at, self.rebuild_for_move(&mut scratch, at, sides, bytes));
                    }
                }
            }
            Ok::<(), Error>(())
        });
        drop((superblock, journal, regions, log));
        if moved.is_ok() {
            beside.keys().chain(&[page]).for_each(|at| self.know_rebuilt(*at));
        }
        self.columns.unlock_all(&columns);
        // Who asked tells of the page itself.
        let of_page = beside.remove(&page);
        if moved.is_ok() {
            for (at, mended) in beside {
                self.report_mended(self.event(Cause::MediaError, finder, at, PAGE), mended);
            }
        }
        self.report_cleared(repairer);
        let wrong = || self.wrong_at(page, side_len);
        moved.map(|_| of_page.unwrap_or_else(|| Mended::Relocated(wrong())))
    }

    fn columns_of_frame(&self, frame: u64, frame_len: u64) -> Vec<ColumnId> {
        let pages = (frame..frame + frame_len).step_by(PAGE as usize);
        let column = |(zone, _, col): (Zone, _, u64)| self.columns.id(&zone, col);
        let mut columns: Vec<_> = pages.filter_map(|at| self.zone_unit(at)).map(column).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// What is wrong where a page cannot be read.
    fn wrong_at(&self, page: u64, side_len: u64) -> Wrong {
        match self.zone_unit(page) {
            Some((_, unit, _)) => wrong_in(unit),
            None if self.log.owns(page) => Wrong::Log,
            None => Wrong::Mirror { side: if page < side_len { Side::A } else { Side::B } },
        }
    }

    /// The likeliest contents of a page of a frame that is moved: from its twin, or from its
    /// columns, which are held; and what that makes of the page. Zeros where nothing is known: what
    /// is over it is lost with or without the frame, and no longer verifies.
    fn rebuild_for_move(
        &self,
        scratch: &mut Scratch,
        at: u64,
        (side_len, copies): (u64, u32),
        bytes: &mut [u8],
    ) -> Mended {
        // Asked without the lock of the log, which is held.
        let wrong = self.wrong_at(at, side_len);
        let is_known = match self.zone_unit(at) {
            Some((zone, unit, col)) => {
                let rebuilt = self.rebuild_page(scratch, &zone, unit, col);
                bytes.copy_from_slice(&rebuilt.bytes);
                if rebuilt.in_doubt {
                    return Mended::Undecided(wrong);
                }
                rebuilt.is_known
            }
            None => {
                let twin = self.twin_of(at, side_len, copies);
                let is_known = twin.is_some_and(|twin| self.m.read(twin, bytes).is_ok());
                if !is_known {
                    bytes.fill(0);
                }
                is_known
            }
        };
        if is_known { Mended::Relocated(wrong) } else { Mended::Lost(wrong) }
    }

    /// Where the other copy of a page of the sides is, if there is one.
    fn twin_of(&self, page: u64, side_len: u64, copies: u32) -> Option<u64> {
        if self.log.owns(page) {
            return self.log.twin(page);
        }
        let twin = if page < side_len { page + side_len } else { page - side_len };
        (copies == 2 && twin < 2 * side_len).then_some(twin)
    }

    /// Moves the frame of a page that stays bad, see [`relocate`](Self::relocate). Nothing if that
    /// cannot be; then it is not tried again.
    pub(crate) fn moved(
        &self,
        repairer: &mut Repairer,
        page: u64,
        known: Option<&[u8]>,
        finder: Finder,
    ) -> Result<Option<Mended>, Error> {
        use holdfast_redundancy::Error as Why;
        match self.relocate(repairer, page, known, finder) {
            Ok(mended) => {
                let frame_len = self.superblock().frame;
                let frame = repairer.remap.frame_of(page);
                self.stand_ins().retain(|page| !(frame..frame + frame_len).contains(page));
                Ok(Some(mended))
            }
            // The caller has to come back without its columns.
            Err(Error::Media(error)) if repairer.holds_columns => Err(error.into()),
            Err(
                Error::Media(_) | Error::Redundancy(Why::NoSpare { .. } | Why::Unmovable { .. }),
            ) => {
                repairer.stuck.push(repairer.remap.frame_of(page));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Serves a page that stays bad from elsewhere, with these bytes; they are the right ones if
    /// they are `known`. Its column is held, or nobody else is there.
    pub(crate) fn move_or_stand_in(
        &self,
        repairer: &mut Repairer,
        page: u64,
        (bytes, known): (&[u8], bool),
        (wrong, finder): (Wrong, Finder),
    ) -> Result<Mended, Error> {
        let moves = self.can_move(repairer, page);
        if moves && self.moved(repairer, page, Some(bytes), finder)?.is_some() {
            return Ok(if known { Mended::Relocated(wrong) } else { Mended::Lost(wrong) });
        }
        Ok(if known { self.stand_in(page, bytes, wrong) } else { Mended::Lost(wrong) })
    }

    /// Has memory stand in for a page of a zone, whose column is held and whose bytes come from the
    /// rest of it.
    pub(crate) fn stand_in(&self, page: u64, bytes: &[u8], wrong: Wrong) -> Mended {
        let column = |page| self.zone_unit(page).map(|(zone, _, col)| (zone.index(), col));
        let Some((zone, ..)) = self.zone_unit(page) else { return Mended::Lost(wrong) };
        let parity_rows = usize::from(zone.has_p()) + usize::from(zone.has_q());
        let mut pages = self.stand_ins();
        let beside = pages.iter().filter(|other| column(**other) == column(page)).count();
        if beside >= parity_rows || self.m.stand_in(page, bytes).is_err() {
            return Mended::Lost(wrong);
        }
        pages.push(page);
        Mended::StoodIn(wrong)
    }

    /// Reports the pages that memory stands in for: they read as good.
    pub(crate) fn sweep_stand_ins(&self, report: &mut CheckReport) {
        let mut pages = self.stand_ins().clone();
        pages.sort_unstable();
        for at in pages {
            let error = MediaError { at, len: PAGE, cause: MediaCause::Unclearable };
            let verdict = Verdict::Undecided(Reason::Media(error));
            report.add(Finding { at, len: PAGE, verdict, object: RawPtr::NULL });
        }
    }
}
