//! Looking at everything in small steps, and putting right what can be.
//!
//! A step judges the pages of one region, repairs those that are damaged, and, where all rows of a
//! stripe are good, holds its parity against them. Redundancy that rotted is as bad as none: it is
//! made anew from rows that verify.

use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_redundancy::events::{Cause, Event, Finder, Outcome};
use holdfast_redundancy::{PageVerdict, Wrong, verdict};

use crate::check::Report;
use crate::engine::{Inner, Mapped};
use crate::error::Result;
use crate::options::Writers;
use crate::repair::{Force, Mended};
use crate::side::COPIES;

/// Holding parity against rows that verify.
const VERIFY_PARITY: Site = Site::new("mapped.scrub.verify-parity");
const PARITY: Site = Site::new("mapped.scrub.parity");
const PARITY_HEAL: Site = Site::new("mapped.scrub.parity-heal");
const PARITY_DRAIN: Site = Site::new("mapped.scrub.parity-drain");
const RECORD_B: Site = Site::new("mapped.scrub.record-b");
const RECORD_A: Site = Site::new("mapped.scrub.record-a");
const RECORD_DRAIN: Site = Site::new("mapped.scrub.record-drain");

/// What a step of the scrub did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Pages and what they were before anything was repaired.
    pub report: Report,
    /// Damaged pages that are right again.
    pub repaired: u64,
    /// Damaged pages that parity cannot give back.
    pub lost: u64,
    /// Parity pages that did not add up and were made anew.
    pub parity: u64,
    /// Copies of region records that were made anew.
    pub records: u64,
    /// Whether the scrub came to the end of the file: the next step begins anew.
    pub finished: bool,
}

/// Whose turn it is in a scrub.
struct Turn {
    /// The region and its pages, if there is one left.
    region: Option<(u64, u32)>,
    /// Where the next turn begins, unless this is the last.
    next: Option<u64>,
}

impl Turn {
    fn of(inner: &Inner, from: u64) -> Self {
        let mut left = inner.regions.range(from..).map(|(n, region)| (*n, region.record.pages));
        Self { region: left.next(), next: left.next().map(|(number, _)| number) }
    }
}

impl<F: Medium, S: Medium, D: DirtySource> Mapped<F, S, D> {
    /// Looks at the next region; repairs what is damaged if `writers` is given.
    ///
    /// # Errors
    /// An error of the side file or of the source.
    pub fn scrub_step(&self, writers: Option<&dyn Writers>) -> Result<Scrubbed> {
        self.expect_writable()?;
        let turn = {
            let mut inner = self.lock_to_write()?;
            let turn = Turn::of(&inner, inner.scrub_next);
            inner.scrub_next = turn.next.unwrap_or(0);
            turn
        };
        self.scrub_region(&turn, writers)
    }

    fn scrub_region(&self, turn: &Turn, writers: Option<&dyn Writers>) -> Result<Scrubbed> {
        let mut done = Scrubbed { finished: turn.next.is_none(), ..Scrubbed::default() };
        let Some((number, pages)) = turn.region else { return Ok(done) };
        for inside in 0..pages {
            self.scrub_page(self.number(number, inside), writers, &mut done)?;
        }
        let mut inner = self.lock_to_write()?;
        let inner = &mut *inner;
        for stripe in 0..self.stripes.stripes() {
            let step = self.scrub_parity(inner, number, stripe);
            done.parity += self.settle(inner, step)?;
        }
        let step = self.scrub_state(inner, number);
        done.records = self.settle(inner, step)?;
        if let Some(region) = inner.regions.get_mut(&number) {
            region.record.verified_ns = self.clock.now();
        }
        Ok(done)
    }

    /// Looks at one page, wherever the scrub is; repairs it if it is damaged and `writers` is
    /// given. What it came to is added to `done`.
    ///
    /// # Errors
    /// As [`scrub_step`](Self::scrub_step).
    pub fn scrub_page(
        &self,
        page: u64,
        writers: Option<&dyn Writers>,
        done: &mut Scrubbed,
    ) -> Result<()> {
        let verdict = self.look_at_page(page)?;
        done.report.add(page, verdict);
        let (PageVerdict::Corrupt, Some(writers)) = (verdict, writers) else { return Ok(()) };
        match self.repair(page, writers, Force::No)? {
            Mended::Repaired => done.repaired += 1,
            Mended::Lost => done.lost += 1,
            Mended::Good | Mended::Undecided(_) | Mended::Busy => {}
        }
        Ok(())
    }

    /// Scrubs the whole file once, wherever steps of others are.
    ///
    /// # Errors
    /// As [`scrub_step`](Self::scrub_step).
    pub fn scrub(&self, writers: Option<&dyn Writers>) -> Result<Scrubbed> {
        self.expect_writable()?;
        let mut total = Scrubbed::default();
        let mut from = Some(0);
        while let Some(next) = from {
            let turn = Turn::of(&*self.lock_to_write()?, next);
            let step = self.scrub_region(&turn, writers)?;
            from = turn.next;
            total.report.pages += step.report.pages;
            total.report.good += step.report.good;
            total.report.uncovered += step.report.uncovered;
            total.report.corrupt.extend(step.report.corrupt);
            total.report.undecided.extend(step.report.undecided);
            total.repaired += step.repaired;
            total.lost += step.lost;
            total.parity += step.parity;
            total.records += step.records;
            total.finished = step.finished;
        }
        Ok(total)
    }

    fn look_at_page(&self, page: u64) -> Result<PageVerdict> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let mut bytes = vec![0; PAGE as usize];
        let judged = self.judge(inner, page, &mut bytes)?;
        let place = self.stripes.place(page);
        if judged.verdict == PageVerdict::Corrupt
            && let Some(region) = inner.regions.get_mut(&place.region)
            && !region.reported.has(place.inside)
        {
            region.reported.insert(place.inside);
            inner.counts.corrupt += 1;
            let cause = if judged.readable { Cause::Sum } else { Cause::MediaError };
            let event = self.event(page, Finder::Scrub, Outcome::Detected);
            self.report(inner, &Event { cause, before_sum: judged.found, ..event });
        }
        Ok(judged.verdict)
    }

    /// Makes parity of a stripe anew if all its rows are good and it does not add up. Answers the
    /// pages made anew.
    fn scrub_parity(&self, inner: &mut Inner, number: u64, stripe: u32) -> Result<u64> {
        let Some(region) = inner.regions.get(&number) else { return Ok(0) };
        let data = self.stripes.data();
        let kept = self.stripes.parity() > 0 && inner.header.value.sums();
        if !kept || stripe * data >= region.record.pages || !region.parity_usable(stripe) {
            return Ok(0);
        }
        let mut rows = core::mem::take(&mut inner.rows);
        let done = self.hold_parity(inner, number, stripe, &mut rows);
        inner.rows = rows;
        done
    }

    /// Holds the parity of a stripe against its rows, if all of them are good; answers the units
    /// made anew.
    fn hold_parity(
        &self,
        inner: &mut Inner,
        number: u64,
        stripe: u32,
        rows: &mut [u8],
    ) -> Result<u64> {
        let s = &self.side.s;
        let data = self.stripes.data();
        let mut good = true;
        for (row, bytes) in (0..data).zip(rows.chunks_mut(PAGE as usize)) {
            let inside = stripe * data + row;
            let page = self.number(number, inside);
            if inside < inner.regions.get(&number).map_or(0, |r| r.record.pages) {
                good &= self.judge(inner, page, bytes)?.verdict == PageVerdict::Good;
            } else {
                bytes.fill(0);
            }
        }
        let mut parity = vec![0; self.stripes.parity_len()];
        let readable = self.side.parity(number, stripe, &mut parity).is_ok();
        let mut differ = self.stripes.differing(rows, &parity);
        if !readable {
            differ = [true, self.stripes.parity() > 1];
        }
        let wrong = good && differ.contains(&true) && s.enabled(VERIFY_PARITY);
        if wrong {
            self.stripes.encode(rows, &mut parity);
            self.side.put_parity((PARITY, PARITY_HEAL), number, stripe, &parity)?;
            self.side.persist(PARITY_DRAIN)?;
            let unit = if differ[0] { Wrong::ParityP } else { Wrong::ParityQ };
            let page = self.number(number, stripe * data);
            let event = self.event(page, Finder::Scrub, Outcome::Repaired);
            let cause = if readable { Cause::Parity } else { Cause::MediaError };
            let len = u64::from(data) * PAGE;
            self.report(inner, &Event { cause, len, wrong: Some(unit), ..event });
        }
        Ok(if wrong { differ.iter().filter(|differs| **differs).count() as u64 } else { 0 })
    }

    /// Makes a damaged copy of a region's state anew from what is known of it.
    fn scrub_state(&self, inner: &mut Inner, number: u64) -> Result<u64> {
        let found = self.side.state(number);
        let Some(region) = inner.regions.get(&number) else { return Ok(0) };
        if !found.damaged.contains(&true) {
            return Ok(0);
        }
        let puts = [RECORD_B, RECORD_A];
        for ((copy, damaged), put) in COPIES.into_iter().zip(found.damaged).zip(puts) {
            if !damaged {
                continue;
            }
            self.side.put_record(put, number, copy, &region.record)?;
            self.side.persist(RECORD_DRAIN)?;
        }
        let wrong = found.damaged.iter().filter(|damaged| **damaged).count() as u64;
        let side = if found.damaged[0] { verdict::Side::B } else { verdict::Side::A };
        let event = self.event(self.number(number, 0), Finder::Scrub, Outcome::Repaired);
        let cause = Cause::Copies;
        self.report(inner, &Event { cause, wrong: Some(Wrong::Mirror { side }), ..event });
        Ok(wrong)
    }
}
