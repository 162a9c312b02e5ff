//! Telling what was found wrong and what became of it: counters, and the events journal.

use holdfast_sync::atomic::Ordering;

use holdfast_codes::crc32c;
use holdfast_layout::Superblock;
use holdfast_layout::format::SUPERBLOCK_PAGE;
use holdfast_pmem::{Medium, PAGE};
use holdfast_redundancy::events::{Cause, Event, Finder, Outcome};
use holdfast_redundancy::{Side, Wrong, write_superblock};

use crate::error::Error;
use crate::repair::Mended;
use crate::shared::{Repairer, Shared};

/// Events written for the sake of one: pages of the journal itself may turn bad under it.
const CLEARED_MAX: u32 = 8;

/// CRC-32C of what a range holds; 0 if it cannot be read.
pub(crate) fn sum_there<M: Medium>(m: &M, at: u64, len: u64) -> u32 {
    let mut page = [0; PAGE as usize];
    let mut sum = 0;
    for from in (at..at.saturating_add(len)).step_by(PAGE as usize) {
        let bytes = &mut page[..(at + len - from).min(PAGE) as usize];
        if m.read(from, bytes).is_err() {
            return 0;
        }
        sum = crc32c(sum, bytes);
    }
    sum
}

impl<M: Medium> Shared<M> {
    /// An event at a place, to be filled in, with the sum of what is there now.
    pub(crate) fn event(&self, cause: Cause, finder: Finder, at: u64, len: u64) -> Event {
        // Pages known to be bad are left alone: reading them again may cost a machine check.
        let unreadable = matches!(cause, Cause::MediaError | Cause::Listed);
        let before_sum = if unreadable { 0 } else { self.sum_there(at, len) };
        Event {
            sequence: 0,
            time_ns: self.clock.now(),
            cause,
            finder,
            at,
            len,
            wrong: None,
            before_sum,
            after_sum: 0,
            outcome: Outcome::Repaired,
            duration_ns: 0,
            object: 0,
            verified_ns: 0,
        }
    }

    /// Sum of what a range holds; 0 if it cannot be read.
    pub(crate) fn sum_there(&self, at: u64, len: u64) -> u32 {
        sum_there(&self.m, at, len)
    }

    /// Counts an event and appends it to the journal. A journal page that is bad is mended later:
    /// losing an event must not stop a repair.
    pub(crate) fn report(&self, event: Event) {
        self.counters.detected.fetch_add(1, Ordering::Relaxed);
        let counter = match event.outcome {
            Outcome::Repaired | Outcome::Relocated => Some(&self.counters.repaired),
            Outcome::Lost => Some(&self.counters.lost),
            _ => None,
        };
        counter.map(|c| c.fetch_add(1, Ordering::Relaxed));
        let event = Event { duration_ns: self.clock.now().saturating_sub(event.time_ns), ..event };
        if self.is_read_only() {
            return;
        }
        let mut early = self.early.lock().unwrap_or_else(holdfast_sync::PoisonError::into_inner);
        if let Some(early) = early.as_mut() {
            early.push(event);
            return;
        }
        drop(early);
        self.journalize(&event);
    }

    /// Writes the events of an opening that is through.
    pub(crate) fn report_early(&self) {
        let mut early = self.early.lock().unwrap_or_else(holdfast_sync::PoisonError::into_inner);
        let events = early.take();
        drop(early);
        events.iter().flatten().for_each(|event| self.journalize(event));
    }

    /// Writes an event, and one about each page of the journal that turns out bad under it.
    fn journalize(&self, event: &Event) {
        let mut due = vec![*event];
        for _ in 0..CLEARED_MAX {
            let Some(event) = due.pop() else { return };
            let Ok(appended) = self.journal.append(&self.m, &event) else { continue };
            if let Some((_, error)) = appended.failed {
                self.suspect(error.at, PAGE, Cause::MediaError, Finder::Repair);
            }
            for (side, at) in appended.cleared.into_iter().flatten() {
                let wrong = Some(Wrong::Mirror { side });
                let event = self.event(Cause::MediaError, Finder::Repair, at, PAGE);
                self.counters.detected.fetch_add(1, Ordering::Relaxed);
                self.counters.repaired.fetch_add(1, Ordering::Relaxed);
                let after_sum = self.sum_there(at, PAGE);
                due.push(Event { wrong, after_sum, ..event });
            }
        }
    }

    /// Makes the copies of the journal's pages the same, and says which were not.
    pub(crate) fn heal_journal(&self) {
        for page in self.journal.heal(&self.m) {
            let cause = if page.before_sum == 0 { Cause::MediaError } else { Cause::Copies };
            if let Some(error) = page.error {
                self.suspect(error.at, PAGE, Cause::MediaError, Finder::Scrub);
                continue;
            }
            if page.cut_short {
                continue;
            }
            let event = self.event(cause, Finder::Scrub, page.at, PAGE);
            let event = Event { before_sum: page.before_sum, ..event };
            self.report_mended(event, Mended::Repaired(Wrong::Mirror { side: page.side }));
        }
    }

    /// Reports what became of the damage of an event, with the sum of what is there now. Answers
    /// what was told.
    pub(crate) fn report_mended(&self, event: Event, mended: Mended) -> Mended {
        let told = self.as_far_as_known(&event, mended);
        let (outcome, wrong) = match told {
            Mended::Nothing => return told,
            Mended::Repaired(wrong) => (Outcome::Repaired, wrong),
            Mended::Relocated(wrong) => (Outcome::Relocated, wrong),
            Mended::StoodIn(wrong) => (Outcome::StoodIn, wrong),
            Mended::Lost(wrong) => (Outcome::Lost, wrong),
            Mended::Undecided(wrong) => (Outcome::Undecided, wrong),
        };
        let mended = matches!(outcome, Outcome::Repaired | Outcome::Relocated | Outcome::StoodIn);
        let after_sum = if mended { self.sum_there(event.at, event.len) } else { 0 };
        self.report(Event { wrong: Some(wrong), outcome, after_sum, ..event });
        told
    }

    /// Replaces the superblock, and reports the copies that turned out bad under it.
    ///
    /// # Errors
    /// As [`write_superblock`].
    pub(crate) fn store_superblock(&self, superblock: &mut Superblock) -> Result<(), Error> {
        let cleared = write_superblock(&self.m, superblock)?;
        self.report_cleared_sides(cleared, SUPERBLOCK_PAGE, superblock.side_len);
        Ok(())
    }

    /// Reports pages of records that a write of the record found bad and cleared.
    pub(crate) fn report_cleared(&self, repairer: &mut Repairer) {
        let side_len = self.superblock().side_len;
        let superblock = repairer.remap.take_superblock_cleared();
        self.report_cleared_sides(superblock, SUPERBLOCK_PAGE, side_len);
        let records =
            [repairer.intent.record(), repairer.remap.record(), repairer.progress.record()];
        for record in records {
            self.report_cleared_sides(record.take_cleared(), record.place(), side_len);
        }
    }

    /// The same for the pages of one record.
    pub(crate) fn report_cleared_sides(&self, sides: Vec<Side>, place: u64, side_len: u64) {
        for side in sides {
            let at = if side == Side::A { place } else { side_len + place };
            let event = self.event(Cause::MediaError, Finder::Repair, at, PAGE);
            self.report_mended(event, Mended::Repaired(Wrong::Mirror { side }));
        }
    }
}
