//! Covering what was stored to, in numbered steps: one batch of regions.
//!
//! | step | what | crash after it leaves |
//! |---|---|---|
//! | 1 batch | every page of the batch stale, both copies | dirty bits as they were |
//! | **B** | drain | stale pages: those whose sum agrees are good, the others undecided |
//! | 2 take | the source tells which pages were stored to, and forgets it | the same |
//! | 3 narrow | stale and observed are what was taken | stale of the batch or of what was taken |
//! | **N** | drain | what was taken is known to be written: it may be covered without a question |
//! | 4 look | sums of what was taken; the other pages of those stripes verified first | the same |
//! | 5 cover | entries, parity, record in copy B, all flushed | some of it: recomputed |
//! | **D** | the data file is synced, where power cuts count | the same |
//! | **C** | drain | all of it, and stale |
//! | 6 clear | stale is what stayed undecided or was put off; record A | stale pages that verify |
//! | **E** | drain | all of it |
//!
//! Why B: taking forgets. A page whose bit is gone and that is not stale must be covered. Why N: a
//! page that is stale but not observed might have rotted just as well, so recovery would have to
//! leave it undecided. Why D and C: once a page is not stale any more, data that did not arrive and
//! entries that did (or the other way round) would look like damage. Why E: a later batch stales
//! everything, and pages observed in an earlier one must not count as observed then.
//!
//! A store between 2 and 6 sets its bit again. Its page is dirty for the next pass, whatever mix of
//! old and new its sum was made of. Nobody who stores ever waits.
//!
//! | a row of a stripe | in step 4 |
//! |---|---|
//! | agrees with its entry | unchanged, whatever was reported |
//! | differs, was observed, or has no entry and nobody doubts that | new sum |
//! | differs, reported only together with everything around it | undecided: the entry stays |
//! | differs, the entries are damaged, and the stripe adds up | new sum: parity vouches for it |
//! | differs, nothing was reported, and still nothing is | corrupt: parity is not made over it |
//!
//! Where a stripe has a row that is corrupt or undecided, its parity would be made of bytes nobody
//! vouches for. It stays as it is and is marked as unusable; unless parity could still give the
//! corrupt rows back without the changed ones: then those are put off.

use core::ops::Range;
use std::collections::BTreeSet;

use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{MediaCause, Medium, PAGE, Site};
use holdfast_redundancy::events::{Cause, Finder, Outcome};
use holdfast_redundancy::{Unsure, verdict};

use crate::admit::Seen;
use crate::bits::Bits;
use crate::engine::{Inner, Mapped};
use crate::error::Result;
use crate::format::{OBSERVED_START, STALE_START};
use crate::options::When;
use crate::region::Region;
use crate::side::{Entry, LOST_ENTRY, persist};

/// Marking the batch as stale.
const BATCH: Site = Site::new("mapped.commit.batch");
/// Drain B.
const BATCH_DRAIN: Site = Site::new("mapped.commit.B");
/// Taking before looking, not after.
const TAKE_FIRST: Site = Site::new("mapped.commit.take-first");
/// Narrowing to what was taken.
const NARROW: Site = Site::new("mapped.commit.narrow");
/// Drain N.
const NARROW_DRAIN: Site = Site::new("mapped.commit.N");
/// Verifying the rows that were not stored to.
const NEIGHBOURS: Site = Site::new("mapped.commit.neighbours");
/// Asking again whether a row was stored to before it is called corrupt.
const AGAIN: Site = Site::new("mapped.commit.again");
/// Every row of a stripe decides about its parity, not the last one.
const ANY_ROW: Site = Site::new("mapped.commit.any-row");
/// Asking whoever listens for untracked writers before a neighbour is called damaged.
const VOUCHES: Site = Site::new("mapped.commit.vouches");
/// Reports of everything at once prove no store.
const BLANKET: Site = Site::new("mapped.commit.blanket");
/// Letting parity vouch for pages whose sums are lost.
const VOUCH: Site = Site::new("mapped.commit.vouch");
const ENTRY: Site = Site::new("mapped.commit.entry");
const PARITY: Site = Site::new("mapped.commit.parity");
const PARITY_HEAL: Site = Site::new("mapped.commit.parity-heal");
const RECORD_B: Site = Site::new("mapped.commit.record-b");
/// Sync D of the data file.
const DATA: Site = Site::new("mapped.commit.D");
/// Drain C.
const COVER_DRAIN: Site = Site::new("mapped.commit.C");
const CLEAR: Site = Site::new("mapped.commit.clear");
const RECORD_A: Site = Site::new("mapped.commit.record-a");
/// Drain E.
const CLEAR_DRAIN: Site = Site::new("mapped.commit.E");

/// Undecided pages of one batch that are told one by one. After a crash they may be very many; all
/// are counted, and every look finds them.
const UNDECIDED_TOLD: u64 = 64;

/// What a pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Covered {
    /// Regions that had something to cover.
    pub regions: u64,
    /// Pages whose sum was renewed.
    pub pages: u64,
    /// Pages reported as stored to whose content had not changed.
    pub unchanged: u64,
    /// Stripes whose parity was made anew.
    pub stripes: u64,
    /// Pages found damaged next to pages that were stored to.
    pub corrupt: u64,
    /// Pages that became undecided.
    pub undecided: u64,
    /// Pages put off because a neighbour has to be repaired first.
    pub deferred: u64,
}

/// One region on its way through the steps.
pub(crate) struct Work {
    number: u64,
    region: Region,
    entries: Vec<u64>,
    /// Pages stored to for certain.
    observed: Bits,
    /// Pages that may have been.
    blanket: Bits,
    /// Why those that differ are undecided.
    why: Unsure,
    /// The region was in doubt: that a page has no entry may only mean that it was lost.
    doubted: bool,
    /// Pages whose stripes need parity that adds up, changed or not.
    again: Bits,
    /// Pages an earlier look left undecided.
    left: Bits,
    undecided: Bits,
    deferred: Bits,
}

/// What the rows of a stripe turned out to be.
#[derive(Default)]
struct Rows {
    changed: Vec<(u32, u32)>,
    corrupt: Vec<u32>,
    unsure: Vec<(u32, Unsure, u32)>,
    /// Rows being stored to right now.
    moving: Vec<u32>,
    unchanged: u64,
    /// Whether the last row changed.
    last: bool,
}

/// Where the pages to be covered come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The source is asked, and forgets.
    Take,
    /// What is known is enough: nobody stores.
    Known,
    /// As `Known`, and everything that differs counts as stored to.
    Everything,
}

impl<F: Medium, S: Medium, D: DirtySource> Mapped<F, S, D> {
    /// One pass over everything that writers may store to: what was stored to since the last one
    /// is covered. Does nothing where redundancy is not kept lazily.
    ///
    /// # Errors
    /// An error of the side file or the source; everything not covered stays known as such.
    pub fn pass(&self) -> Result<Covered> {
        if self.options.when != When::Lazily {
            return Ok(Covered::default());
        }
        self.cover(0, u64::MAX)
    }

    /// A pass at once, whatever the policy: when it returns, everything stored before it began is
    /// covered.
    ///
    /// # Errors
    /// As [`pass`](Self::pass).
    pub fn update_now(&self) -> Result<Covered> {
        self.cover(0, u64::MAX)
    }

    /// The same for the regions that `[at, at + len)` of the data file touches: what a program
    /// that syncs a range wants before the sync returns.
    ///
    /// # Errors
    /// As [`pass`](Self::pass).
    pub fn cover(&self, at: u64, len: u64) -> Result<Covered> {
        let mut inner = self.lock_to_write()?;
        let inner = &mut *inner;
        let done =
            self.resize(inner, Seen::Watched).and_then(|()| self.cover_locked(inner, at, len));
        self.settle(inner, done)
    }

    fn cover_locked(&self, inner: &mut Inner, at: u64, len: u64) -> Result<Covered> {
        let per_batch = (self.options.batch_pages / self.stripes.pages()).max(1) as usize;
        let range = self.touched(at, len, inner.size);
        let dirty = self.dirty_regions(inner, range.clone())?;
        let now = self.clock.now();
        let mut due = Vec::new();
        for (number, region) in inner.regions.range_mut(range) {
            let known = !region.known_dirty().is_empty() || region.fresh;
            if known || dirty.contains(number) {
                due.push(*number);
            } else if region.admitted {
                region.taken_ns = now;
            }
        }
        let mut total = Covered::default();
        for batch in due.chunks(per_batch) {
            let done = self.cover_batch(inner, batch, Ask::Take, Finder::Commit)?;
            total.add(&done);
        }
        inner.counts.passes += u64::from(total.regions > 0);
        Ok(total)
    }

    /// Regions of which the source has something to tell, or for which it does not vouch any more.
    /// Regions that lie side by side are asked about in one call.
    fn dirty_regions(&self, inner: &Inner, range: Range<u64>) -> Result<BTreeSet<u64>> {
        let mut dirty = BTreeSet::new();
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut end = 0;
        for (number, region) in inner.regions.range(range).filter(|(_, r)| r.admitted) {
            let (at, len) = self.span(*number, region.record.pages);
            match runs.last_mut() {
                Some(run) if end == at => run.end = number + 1,
                _ => runs.push(*number..number + 1),
            }
            end = at + len;
        }
        let region = self.stripes.region_len();
        for run in runs {
            let last = inner.regions.get(&(run.end - 1)).map_or(0, |r| r.record.pages);
            let (from, len) = self.span(run.end - 1, last);
            let (at, to) = (run.start * region, from + len);
            if self.d.intact(at, to - at) {
                self.d.peek(at, to - at, &mut |at, len| {
                    dirty.extend(at / region..at.saturating_add(len).div_ceil(region));
                })?;
            } else {
                dirty.extend(run);
            }
        }
        Ok(dirty)
    }

    /// Takes the regions out, covers them, puts them back, whatever happens.
    pub(crate) fn cover_batch(
        &self,
        inner: &mut Inner,
        batch: &[u64],
        ask: Ask,
        finder: Finder,
    ) -> Result<Covered> {
        let mut works: Vec<Work> = batch
            .iter()
            .filter_map(|number| Some(Work::new(*number, inner.regions.remove(number)?)))
            .collect();
        let done = self.steps(inner, &mut works, ask, finder);
        for work in works {
            inner.regions.insert(work.number, work.region);
        }
        done
    }

    fn steps(
        &self,
        inner: &mut Inner,
        works: &mut [Work],
        ask: Ask,
        finder: Finder,
    ) -> Result<Covered> {
        let s = &self.side.s;
        for work in &mut *works {
            self.load_entries(inner, work)?;
            let all = Bits::first(work.region.record.pages);
            (work.again, work.left) = (work.region.stale, work.region.undecided());
            (work.observed, work.blanket) = (work.region.known_dirty(), work.left);
            work.region.stale = all;
            self.side.put_bits(BATCH, work.number, STALE_START, all)?;
        }
        self.side.persist(BATCH_DRAIN)?;
        let first = s.enabled(TAKE_FIRST);
        let evidence = s.enabled(BLANKET);
        for work in &mut *works {
            self.ask(work, ask, first, evidence)?;
        }
        for work in &mut *works {
            (work.region.stale, work.region.observed) =
                (work.observed.or(work.blanket), work.observed);
            work.region.marks = Bits::NONE;
            self.side.put_bits(NARROW, work.number, STALE_START, work.region.stale)?;
            self.side.put_bits(NARROW, work.number, OBSERVED_START, work.observed)?;
        }
        self.side.persist(NARROW_DRAIN)?;
        let mut total = Covered { regions: works.len() as u64, ..Covered::default() };
        for work in &mut *works {
            for stripe in 0..self.stripes.stripes() {
                self.cover_stripe(inner, work, stripe, &mut total, finder)?;
            }
            self.renew_record(work);
            self.side.put_record(RECORD_B, work.number, verdict::Side::B, &work.region.record)?;
        }
        persist(&self.f, self.side.durability, DATA)?;
        self.side.persist(COVER_DRAIN)?;
        for work in &mut *works {
            if ask == Ask::Take && !first {
                let (at, len) = self.span(work.number, work.region.record.pages);
                self.d.take(at, len, &mut |_, _| {})?;
            }
            let rest = work.undecided.or(work.deferred);
            (work.region.stale, work.region.observed) = (rest, work.deferred);
            self.side.put_bits(CLEAR, work.number, STALE_START, rest)?;
            self.side.put_bits(CLEAR, work.number, OBSERVED_START, work.deferred)?;
            self.side.put_record(RECORD_A, work.number, verdict::Side::A, &work.region.record)?;
        }
        self.side.persist(CLEAR_DRAIN)?;
        inner.counts.covered += total.pages;
        inner.counts.unchanged += total.unchanged;
        Ok(total)
    }

    /// Reads the entries; damaged ones turn everything that differs into a doubt.
    fn load_entries(&self, inner: &mut Inner, work: &mut Work) -> Result<()> {
        work.entries = match self.side.entries(work.number) {
            Ok(entries) => entries,
            Err(_) => {
                work.region.doubt = Some(Unsure::SumsDamaged);
                vec![LOST_ENTRY; self.stripes.pages() as usize]
            }
        };
        if inner.header.value.sums()
            && work.region.record.generation > 0
            && !self.meta_agrees(work.number, &work.region, &work.entries)
        {
            work.region.doubt = Some(Unsure::SumsDamaged);
            let event = self.event(self.number(work.number, 0), Finder::Commit, Outcome::Detected);
            let wrong = Some(holdfast_redundancy::Wrong::Sum);
            let len = u64::from(work.region.record.pages) * PAGE;
            self.report(inner, &holdfast_redundancy::Event { wrong, len, ..event });
        }
        Ok(())
    }

    /// Step 2.
    fn ask(&self, work: &mut Work, ask: Ask, first: bool, evidence: bool) -> Result<()> {
        let (at, len) = self.span(work.number, work.region.record.pages);
        let all = Bits::first(work.region.record.pages);
        let mut taken = Bits::NONE;
        let lost = ask == Ask::Take && work.region.admitted && !self.d.intact(at, len);
        if lost {
            // From here on stores are seen again; what was stored before, nobody knows.
            self.d.arm(at, len)?;
        }
        if ask == Ask::Take && work.region.admitted {
            let mut each = |from, len| self.note(work.number, &mut taken, from, len);
            if first {
                self.d.take(at, len, &mut each)?;
            } else {
                self.d.peek(at, len, &mut each)?;
            }
            work.region.taken_ns = self.clock.now();
        }
        taken = taken.and(all);
        let blanket = (work.region.fresh || lost) && evidence;
        work.region.fresh = false;
        if lost || work.region.doubt.is_some() {
            work.blanket = all;
        }
        if blanket {
            work.blanket = work.blanket.or(taken);
        } else {
            work.observed = work.observed.or(taken);
        }
        if ask == Ask::Everything {
            work.observed = all;
        }
        work.why = match work.region.doubt {
            Some(why) => why,
            None if lost => Unsure::TrackingLost,
            None => Unsure::Unobserved,
        };
        work.doubted = work.region.doubt.is_some();
        work.region.doubt = None;
        work.blanket = work.blanket.without(work.observed);
        Ok(())
    }

    /// Steps 4 and 5 for one stripe.
    fn cover_stripe(
        &self,
        inner: &mut Inner,
        work: &mut Work,
        stripe: u32,
        total: &mut Covered,
        finder: Finder,
    ) -> Result<()> {
        let data = self.stripes.data();
        let here = (stripe * data..(stripe + 1) * data).fold(Bits::NONE, |mut bits, page| {
            bits.insert(page);
            bits
        });
        let asked = work.observed.or(work.blanket).or(work.again).and(here);
        if asked.is_empty() {
            return Ok(());
        }
        let mut rows = self.look(inner, work, stripe)?;
        if work.why == Unsure::SumsDamaged && self.vouched(inner, work, stripe, &rows) {
            rows.changed.extend(rows.unsure.drain(..).map(|(row, _, sum)| (row, sum)));
        }
        self.tell(inner, work, stripe, &rows, total, finder);
        let s = &self.side.s;
        let needs = if s.enabled(ANY_ROW) { !rows.changed.is_empty() } else { rows.last };
        let blocked = rows.corrupt.len() + rows.unsure.len();
        if blocked > 0 {
            let missing = rows.changed.len() + blocked + rows.moving.len();
            let can = rows.unsure.is_empty() && missing <= self.stripes.parity() as usize;
            if can && work.region.parity_usable(stripe) {
                for (row, _) in &rows.changed {
                    work.deferred.insert(stripe * data + row);
                    total.deferred += 1;
                }
                return Ok(());
            }
            if needs {
                work.region.record.unusable |= 1 << stripe;
            }
        }
        for row in &rows.moving {
            // If it is stored back to what it was, its entry will agree and parity will not.
            work.deferred.insert(stripe * data + row);
            total.deferred += 1;
        }
        for (row, sum) in &rows.changed {
            self.renew_entry(inner, work, stripe * data + row, *sum)?;
            total.pages += 1;
        }
        let again = !work.again.and(here).is_empty() || !work.region.parity_usable(stripe);
        if blocked == 0 && (needs || again) && self.stripes.parity() > 0 {
            self.stripes.encode(&inner.rows, &mut inner.parity);
            self.side.put_parity((PARITY, PARITY_HEAL), work.number, stripe, &inner.parity)?;
            work.region.record.unusable &= !(1 << stripe);
            total.stripes += 1;
        }
        Ok(())
    }

    /// Whether parity says, where sums are damaged, that a stripe is what was last covered.
    fn vouched(&self, inner: &mut Inner, work: &Work, stripe: u32, rows: &Rows) -> bool {
        let still = rows.changed.is_empty() && rows.corrupt.is_empty() && rows.moving.is_empty();
        let readable = rows.unsure.iter().all(|(_, why, _)| *why == Unsure::SumsDamaged);
        still
            && readable
            && self.stripes.parity() > 0
            && work.region.parity_usable(stripe)
            && self.side.s.enabled(VOUCH)
            && self.side.parity(work.number, stripe, &mut inner.parity).is_ok()
            && self.stripes.differing(&inner.rows, &inner.parity) == [false; 2]
    }

    /// Reads a stripe into the buffer and says what each row is.
    fn look(&self, inner: &mut Inner, work: &Work, stripe: u32) -> Result<Rows> {
        let data = self.stripes.data();
        let mut rows = Rows::default();
        let mut buffer = core::mem::take(&mut inner.rows);
        for (row, bytes) in (0..data).zip(buffer.chunks_mut(PAGE as usize)) {
            self.look_at(inner, work, stripe * data + row, row, bytes, &mut rows)?;
        }
        inner.rows = buffer;
        Ok(rows)
    }

    fn look_at(
        &self,
        inner: &Inner,
        work: &Work,
        inside: u32,
        row: u32,
        bytes: &mut [u8],
        rows: &mut Rows,
    ) -> Result<()> {
        let header = &inner.header.value;
        let page = self.number(work.number, inside);
        rows.last = false;
        let readable = self.read_page(inner.size, page, bytes);
        if inside >= work.region.record.pages {
            return Ok(());
        }
        let asked = work.observed.or(work.blanket).has(inside);
        if let Err(error) = readable {
            bytes.fill(0);
            if matches!(error.cause, MediaCause::OutOfRange | MediaCause::Truncated) {
                // Cut off since the size was asked for: the next pass sees to it.
                rows.moving.push(row);
            } else if asked {
                rows.unsure.push((row, Unsure::Media(error), 0));
            } else {
                rows.corrupt.push(row);
            }
            return Ok(());
        }
        let sum = self.sum(page, bytes);
        let entry = Entry::decode(work.entries[inside as usize]);
        let certify = self.certify_pages();
        let same = if header.sums() { certify.agrees(entry.current, sum) } else { !asked };
        if same && (entry.is_covered() || !header.sums()) {
            rows.unchanged += u64::from(asked);
            return Ok(());
        }
        let reverted = header.previous() && certify.agrees(entry.previous, sum);
        let new = !entry.is_covered() && !work.doubted && !work.left.has(inside);
        let written = work.observed.has(inside) || new || !header.sums();
        if written || work.blanket.has(inside) && reverted {
            rows.changed.push((row, sum));
            rows.last = true;
        } else if !asked && !self.side.s.enabled(NEIGHBOURS) {
            rows.unchanged += 1;
        } else if self.side.s.enabled(AGAIN) && self.peek_page(page)? {
            rows.moving.push(row);
        } else if work.blanket.has(inside) {
            rows.unsure.push((row, work.why, sum));
        } else if header.contested() || self.side.s.enabled(VOUCHES) && !self.facts.vouches() {
            rows.unsure.push((row, Unsure::Contested, sum));
        } else {
            rows.corrupt.push(row);
        }
        Ok(())
    }

    /// Counts and reports what was found, each page once while it stays so.
    fn tell(
        &self,
        inner: &mut Inner,
        work: &mut Work,
        stripe: u32,
        rows: &Rows,
        total: &mut Covered,
        finder: Finder,
    ) {
        let first = stripe * self.stripes.data();
        total.unchanged += rows.unchanged;
        for row in &rows.corrupt {
            total.corrupt += 1;
            if work.region.reported.has(first + row) {
                continue;
            }
            work.region.reported.insert(first + row);
            inner.counts.corrupt += 1;
            let at = *row as usize * PAGE as usize;
            let page = self.number(work.number, first + row);
            let before_sum = self.sum(page, &inner.rows[at..at + PAGE as usize]);
            let event = self.event(page, finder, Outcome::Detected);
            self.report(
                inner,
                &holdfast_redundancy::Event { cause: Cause::Sum, before_sum, ..event },
            );
        }
        for (row, why, _) in &rows.unsure {
            work.undecided.insert(first + row);
            if work.region.reasons.contains_key(&(first + row)) {
                continue;
            }
            work.region.reasons.insert(first + row, *why);
            total.undecided += 1;
            inner.counts.undecided += 1;
            if total.undecided > UNDECIDED_TOLD {
                continue;
            }
            let event = self.unsure(self.number(work.number, first + row), finder, *why);
            self.report(inner, &event);
        }
    }

    fn renew_entry(&self, inner: &Inner, work: &mut Work, inside: u32, sum: u32) -> Result<()> {
        let header = &inner.header.value;
        work.region.reasons.remove(&inside);
        if !header.sums() {
            return Ok(());
        }
        let old = Entry::decode(work.entries[inside as usize]);
        let previous = if header.previous() { old.current } else { 0 };
        let entry = Entry { current: sum, previous }.encode();
        work.entries[inside as usize] = entry;
        self.side.put_entry(ENTRY, work.number, inside, entry)
    }

    fn renew_record(&self, work: &mut Work) {
        let record = &mut work.region.record;
        record.generation += 1;
        record.covered_ns = self.clock.now();
        record.meta = self.side.places.meta(work.number, &work.entries);
    }
}

impl Work {
    fn new(number: u64, region: Region) -> Self {
        Self {
            number,
            region,
            entries: Vec::new(),
            observed: Bits::NONE,
            blanket: Bits::NONE,
            why: Unsure::Unobserved,
            doubted: false,
            again: Bits::NONE,
            left: Bits::NONE,
            undecided: Bits::NONE,
            deferred: Bits::NONE,
        }
    }
}

impl Covered {
    pub(crate) fn add(&mut self, other: &Self) {
        self.regions += other.regions;
        self.pages += other.pages;
        self.unchanged += other.unchanged;
        self.stripes += other.stripes;
        self.corrupt += other.corrupt;
        self.undecided += other.undecided;
        self.deferred += other.deferred;
    }
}
