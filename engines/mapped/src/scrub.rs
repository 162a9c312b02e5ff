//! Looking at everything in small steps, and putting right what can be.
//!
//! A step judges the pages of one region, repairs those that are damaged, and, where all rows of a
//! stripe are good, holds its parity against them. Redundancy that rotted is as bad as none: it is
//! made anew from rows that verify. The last step looks at both copies of the header as well.

use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_redundancy::events::{Cause, Event, Finder, Outcome};
use holdfast_redundancy::{Again, PageVerdict, Wrong, verdict};

use crate::bits::Bits;
use crate::check::{Report, Vouched};
use crate::engine::{Inner, Mapped, cause};
use crate::error::{Error, Result};
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
    /// Damaged pages that parity cannot give back, or whose places take no other bytes.
    pub lost: u64,
    /// Parity pages that did not add up and were made anew.
    pub parity: u64,
    /// Copies of region records, and of the header, that were made anew.
    pub records: u64,
    /// When what is not good was verified last, the earliest if there is more, by the clock given
    /// at open; 0 if never. `None` if all is good.
    pub verified_ns: Option<u64>,
    /// Whether the scrub came to the end of the file: the next step begins anew.
    pub finished: bool,
}

impl Scrubbed {
    /// Adds when something else that is not good was verified last.
    fn not_since(&mut self, verified_ns: Option<u64>) {
        self.verified_ns = match (self.verified_ns, verified_ns) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
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
        if done.finished {
            let mut inner = self.lock_to_write()?;
            let step = self.scrub_header(&mut inner);
            done.records += self.settle(&mut inner, step)?;
        }
        let Some((number, pages)) = turn.region else { return Ok(done) };
        // A page that rots behind the look at it was right at this time, not at its end.
        let started = self.clock.now();
        let mut vouched = Vouched::default();
        for inside in 0..pages {
            let page = self.number(number, inside);
            self.scrub_page_among(page, writers, &mut done, &mut vouched)?;
        }
        let mut inner = self.lock_to_write()?;
        let inner = &mut *inner;
        for stripe in 0..self.stripes.stripes() {
            let step = self.scrub_parity(inner, number, stripe);
            done.parity += self.settle(inner, step)?;
        }
        let step = self.scrub_state(inner, number);
        done.records += self.settle(inner, step)?;
        // One in which something is left keeps the time since when that may have been so.
        let right = done.report.undecided.is_empty()
            && done.repaired == done.report.corrupt.len() as u64
            && inner.header.value.sums();
        if !done.report.is_clean() {
            done.not_since(inner.regions.get(&number).map(|region| region.record.verified_ns));
        }
        if let Some(region) = inner.regions.get_mut(&number).filter(|_| right) {
            region.record.verified_ns = started;
            region.verified = true;
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
        self.scrub_page_among(page, writers, done, &mut Vouched::default())
    }

    fn scrub_page_among(
        &self,
        page: u64,
        writers: Option<&dyn Writers>,
        done: &mut Scrubbed,
        vouched: &mut Vouched,
    ) -> Result<()> {
        let verdict = self.look_at_locked(&mut self.lock(), page, vouched)?;
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
        self.scrub_while(writers, &|| true)
    }

    /// The same for as long as it is to go on, which is asked before each region.
    ///
    /// # Errors
    /// As [`scrub_step`](Self::scrub_step).
    pub fn scrub_while(
        &self,
        writers: Option<&dyn Writers>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Scrubbed> {
        self.expect_writable()?;
        let mut total = Scrubbed::default();
        let mut from = Some(0);
        while let Some(next) = from.filter(|_| go_on()) {
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
            total.not_since(step.verified_ns);
            total.finished = step.finished;
        }
        Ok(total)
    }

    /// Judges a page; damage is told, once.
    pub(crate) fn look_at_locked(
        &self,
        inner: &mut Inner,
        page: u64,
        vouched: &mut Vouched,
    ) -> Result<PageVerdict> {
        let mut bytes = vec![0; PAGE as usize];
        let judged = self.judge_among(inner, page, &mut bytes, vouched)?;
        let place = self.stripes.place(page);
        let Some(region) = inner.regions.get_mut(&place.region) else {
            return Ok(judged.verdict);
        };
        if judged.verdict == PageVerdict::Good {
            // Damage that comes now is another one.
            region.reported.remove(Bits::one(place.inside));
        }
        if judged.verdict == PageVerdict::Corrupt && !region.reported.has(place.inside) {
            region.reported.insert(place.inside);
            inner.counts.corrupt += 1;
            let cause = cause(judged.readable);
            let since = (page, region.record.verified_ns);
            let event = self.event(since, Finder::Scrub, Outcome::Detected);
            self.report(inner, &Event { cause, before_sum: judged.found, ..event });
        }
        Ok(judged.verdict)
    }

    /// Makes parity of a stripe anew if all its rows are good and it does not add up, or is of
    /// bytes that are gone: a pass leaves that behind where a row could not be read for a moment.
    /// Answers the pages made anew.
    fn scrub_parity(&self, inner: &mut Inner, number: u64, stripe: u32) -> Result<u64> {
        let Some(region) = inner.regions.get(&number) else { return Ok(0) };
        let data = self.stripes.data();
        let kept = self.stripes.parity() > 0 && inner.header.value.sums();
        if !kept || stripe * data >= region.record.pages {
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
        let (mut good, mut vouched) = (true, Vouched::default());
        for (row, bytes) in (0..data).zip(rows.chunks_mut(PAGE as usize)) {
            let inside = stripe * data + row;
            let page = self.number(number, inside);
            if inside < inner.regions.get(&number).map_or(0, |r| r.record.pages) {
                let judged = self.judge_among(inner, page, bytes, &mut vouched)?;
                good &= judged.verdict == PageVerdict::Good;
            } else {
                bytes.fill(0);
            }
        }
        if !good {
            return Ok(0);
        }
        let mut parity = vec![0; self.stripes.parity_len()];
        let both = [true, self.stripes.parity() > 1];
        let gone = inner.regions.get(&number).is_some_and(|r| !r.parity_usable(stripe));
        let found = self.side.parity(number, stripe, &mut parity);
        let differ = match &found {
            Ok(()) if !gone => self.stripes.differing(rows, &parity),
            _ => both,
        };
        let wrong = differ.contains(&true) && (gone || s.enabled(VERIFY_PARITY));
        if !wrong {
            return Ok(0);
        }
        self.stripes.encode(rows, &mut parity);
        self.side.put_parity((PARITY, PARITY_HEAL), number, stripe, &parity)?;
        self.side.persist(PARITY_DRAIN)?;
        if gone {
            // Nothing was damaged, and that it was missing is no news: coverage tells.
            if let Some(region) = inner.regions.get_mut(&number) {
                region.record.unusable &= !(1 << stripe);
                region.verified = true;
            }
        } else {
            let unit = if differ[0] { Wrong::ParityP } else { Wrong::ParityQ };
            let since = self.since(inner, self.number(number, stripe * data));
            let event = self.event(since, Finder::Scrub, Outcome::Repaired);
            let cause = if found.is_ok() { Cause::Parity } else { Cause::MediaError };
            let len = u64::from(data) * PAGE;
            self.report(inner, &Event { cause, len, wrong: Some(unit), ..event });
        }
        Ok(differ.iter().filter(|differs| **differs).count() as u64)
    }

    /// Makes durable when regions were verified, as far as nothing else has. One copy is whole at
    /// any time.
    pub(crate) fn keep_verified(&self, inner: &mut Inner) -> Result<()> {
        let mut numbers = Vec::new();
        for (number, region) in inner.regions.iter_mut().filter(|(_, region)| region.verified) {
            region.verified = false;
            region.record.generation += 1;
            numbers.push(*number);
        }
        if numbers.is_empty() { Ok(()) } else { self.put_records(inner, &numbers, [true; 2]) }
    }

    /// Stores copies of the records of regions, those of one side after those of the other.
    fn put_records(&self, inner: &Inner, numbers: &[u64], which: [bool; 2]) -> Result<()> {
        let puts = [RECORD_B, RECORD_A];
        for ((copy, _), put) in COPIES.into_iter().zip(which).zip(puts).filter(|((_, is), _)| *is) {
            for number in numbers {
                if let Some(region) = inner.regions.get(number) {
                    self.side.put_record(put, *number, copy, &region.record)?;
                }
            }
            self.side.persist(RECORD_DRAIN)?;
        }
        Ok(())
    }

    /// Makes a copy of the header anew that rotted: found at the next open only, the other one may
    /// be gone by then, and with it all sums and parity of the file. One that stays bad is told
    /// each time; the other is left alone then, since a crash while it is stored would cost both.
    fn scrub_header(&self, inner: &mut Inner) -> Result<u64> {
        let Again { damaged, mut healed, known } = inner.header.look_again(&self.side.s)?;
        let whole = damaged.iter().all(|side| healed.contains(side));
        // What is only in memory: a store that failed, writes that were lost, both copies.
        if !known && (whole || damaged.len() > 1) {
            match inner.header.store(&self.side.s) {
                Ok(()) if whole => {}
                Ok(()) => healed.clone_from(&damaged),
                Err(Error::Media(_)) => {}
                Err(error) => return Err(error),
            }
        }
        for copy in damaged {
            let done = healed.contains(&copy);
            let outcome = if done { Outcome::Repaired } else { Outcome::Detected };
            self.report_copy(inner, copy, Finder::Scrub, outcome);
        }
        Ok(healed.len() as u64)
    }

    /// Makes a damaged copy of a region's state anew from what is known of it.
    fn scrub_state(&self, inner: &mut Inner, number: u64) -> Result<u64> {
        let found = self.side.state(number);
        let Some(region) = inner.regions.get(&number) else { return Ok(0) };
        if !found.damaged.contains(&true) {
            return Ok(0);
        }
        let since = (self.number(number, 0), region.record.verified_ns);
        self.put_records(inner, &[number], found.damaged)?;
        let wrong = found.damaged.iter().filter(|damaged| **damaged).count() as u64;
        let side = if found.damaged[0] { verdict::Side::B } else { verdict::Side::A };
        let event = self.event(since, Finder::Scrub, Outcome::Repaired);
        let cause = Cause::Copies;
        self.report(inner, &Event { cause, wrong: Some(Wrong::Mirror { side }), ..event });
        Ok(wrong)
    }
}
