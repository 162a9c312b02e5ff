//! Covering what was stored to, in numbered steps: one batch of regions.
//!
//! | step | what | crash after it leaves |
//! |---|---|---|
//! | 1 batch | every page of the batch stale, both copies | dirty bits as they were |
//! | **B** | drain | stale pages: those whose sum agrees are good, the others undecided |
//! | 2 take | the source tells what was stored to and forgets it, or not (`busy.rs`) | the same |
//! | 3 narrow | stale and observed are what was taken, and a sum of the other entries | either |
//! | **N** | drain | what was taken is known to be written: it may be covered without a question |
//! | 3b forget | a source that records first stores clears the records of what it told | the same |
//! | 4 look | sums of what was taken; the other pages of those stripes verified first | the same |
//! | 5 cover | entries, parity, record in copy B, all flushed | some of it: recomputed |
//! | **D** | the data file is synced, where power cuts count | the same |
//! | **C** | drain | all of it, and stale |
//! | 6 clear | stale is what stayed undecided or was put off; record A | stale pages that verify |
//! | **E** | drain | all of it |
//!
//! Why B: taking forgets. A page whose bit is gone and that is not stale must be covered. Why N: a
//! page that is stale but not observed might have rotted just as well, so recovery would have to
//! leave it undecided; and where a pass is cut off, the entries that it could not have renewed must
//! stay certified. Why D and C: once a page is not stale any more, data that did not arrive and
//! entries that did (or the other way round) would look like damage. Why E: a later batch stales
//! everything, and pages observed in an earlier one must not count as observed then. Why 3b is not
//! part of 2: a page on record is known to be written, in every image, until N says so.
//!
//! A store between 2 and 6 sets its bit again, and its record, which 3b leaves then. Its page is
//! dirty for the next pass, whatever mix of old and new its sum was made of. Nobody who stores ever
//! waits.
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
//! vouches for. It stays as it is and is marked as unusable, until a pass over its rows or a scrub
//! finds all of them good; unless parity could still give the corrupt rows back without the changed
//! ones: then those are put off.

use core::ops::Range;

use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_redundancy::events::{Finder, Outcome};
use holdfast_redundancy::{Unsure, verdict};

use crate::admit::Seen;
use crate::bits::Bits;
use crate::busy::Rearm;
use crate::engine::{Inner, Mapped, cause};
use crate::error::{Error, Result};
use crate::options::When;
use crate::region::Region;
use crate::side::{Entry, LOST_ENTRY, sync_file};

/// Marking the batch as stale.
const BATCH: Site = Site::new("mapped.commit.batch");
/// Drain B.
const BATCH_DRAIN: Site = Site::new("mapped.commit.B");
/// Taking before looking, not after.
const TAKE_FIRST: Site = Site::new("mapped.commit.take-first");
/// Taking what was left open and found quiet.
const QUIET: Site = Site::new("mapped.commit.quiet");
/// Narrowing to what was taken.
const NARROW: Site = Site::new("mapped.commit.narrow");
/// The sum of the entries that stay.
const REST: Site = Site::new("mapped.commit.rest");
/// Drain N.
const NARROW_DRAIN: Site = Site::new("mapped.commit.N");
/// Having the source forget what it has on record.
const FORGET: Site = Site::new("mapped.commit.forget");
/// Clearing records of first stores that a crash left.
const RECORDS: Site = Site::new("mapped.commit.records");
/// Every row of a stripe decides about its parity, not the last one.
const ANY_ROW: Site = Site::new("mapped.commit.any-row");
/// Reports of everything at once prove no store.
const BLANKET: Site = Site::new("mapped.commit.blanket");
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
    pub(crate) number: u64,
    pub(crate) region: Box<Region>,
    pub(crate) entries: Vec<u64>,
    /// What the source told of it, and whether it had lost track.
    pub(crate) taken: Bits,
    pub(crate) lost: bool,
    /// It is not taken: the source goes on telling it.
    pub(crate) open: bool,
    /// Pages stored to for certain.
    pub(crate) observed: Bits,
    /// Pages that may have been.
    pub(crate) blanket: Bits,
    /// Why those that differ are undecided.
    pub(crate) why: Unsure,
    /// The region was in doubt: that a page has no entry may only mean that it was lost.
    pub(crate) doubted: bool,
    /// Its pages may have been thrown back by the stop of the machine.
    pub(crate) thrown: bool,
    /// Pages whose stripes need parity that adds up, changed or not.
    again: Bits,
    /// Pages an earlier look left undecided.
    pub(crate) left: Bits,
    pub(crate) undecided: Bits,
    pub(crate) deferred: Bits,
}

/// Where the pages to be covered come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The source is asked, and forgets.
    Take,
    /// As `Take`, but for regions that are left open.
    Skim,
    /// What is known is enough: nobody stores.
    Known,
    /// As `Known`, and everything that differs counts as stored to.
    Everything,
}

impl Ask {
    /// Whether the source is asked.
    pub(crate) const fn source(self) -> bool {
        matches!(self, Self::Take | Self::Skim)
    }
}

impl<F: Medium, S: Medium, D: DirtySource> Mapped<F, S, D> {
    /// One pass over everything that writers may store to: what was stored to since the last one
    /// is covered. Regions that are stored to in full each time are left open, if that is the
    /// [policy](crate::OpenOptions::rearm). Does nothing where redundancy is not kept lazily.
    ///
    /// # Errors
    /// An error of the side file or the source; everything not covered stays known as such.
    pub fn pass(&self) -> Result<Covered> {
        if self.options.when != When::Lazily {
            return Ok(Covered::default());
        }
        self.cover_by(self.lightly(), 0, u64::MAX)
    }

    /// A pass at once, whatever the policy: when it returns, everything stored before it began is
    /// covered, and every page that is stored to after it is known.
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
        self.cover_by(Ask::Take, at, len)
    }

    /// How the passes of an updater ask.
    fn lightly(&self) -> Ask {
        if self.options.rearm == Rearm::WhereItPays { Ask::Skim } else { Ask::Take }
    }

    fn cover_by(&self, ask: Ask, at: u64, len: u64) -> Result<Covered> {
        let mut inner = self.lock_to_write()?;
        let inner = &mut *inner;
        let done = self.resize(inner, Seen::Watched).and_then(|()| {
            let done = self.cover_locked(inner, ask, at, len)?;
            let size = inner.size;
            if at <= inner.header.value.identity.size && at.saturating_add(len) >= size {
                self.remember_size(inner, size)?;
            }
            Ok(done)
        });
        self.settle(inner, done)
    }

    /// Covers `[at, at + len)` before it returns: the program says that it has just stored there,
    /// and that this is the end of one of its operations. No source is asked, and nothing else is
    /// covered; so this is what redundancy costs without a window. A source that saw the store as
    /// well tells of it later, and the page is found unchanged then.
    ///
    /// # Errors
    /// As [`pass`](Self::pass).
    pub fn commit(&self, at: u64, len: u64) -> Result<Covered> {
        let mut inner = self.lock_to_write()?;
        let inner = &mut *inner;
        // It may be where the file has just grown to, or got storage.
        let size = self.size_now()?;
        let mut touched = self.touched(at, len, size);
        if size != inner.size || touched.any(|number| !inner.regions.contains_key(&number)) {
            let done = self.resize(inner, Seen::Watched);
            self.settle(inner, done)?;
        }
        let mut total = Covered::default();
        for number in self.known(inner, at, len) {
            let Some(region) = inner.regions.get_mut(&number) else { continue };
            let mut marks = region.marks;
            self.note(number, &mut marks, at, len);
            region.marks = marks.and(Bits::first(region.record.pages));
            let done = self.cover_batch(inner, &[number], Ask::Known, Finder::Commit);
            total.add(&self.settle(inner, done)?);
        }
        Ok(total)
    }

    /// Notes that the file has grown to `size`, once what it grew by is covered: an opening after a
    /// crash would otherwise take all of it for new, and damage there for content. What is not
    /// covered yet has to stay new for it: else it would be held against sums that it never had.
    fn remember_size(&self, inner: &mut Inner, size: u64) -> Result<()> {
        if size > inner.header.stored().identity.size {
            self.wipe_cut_off(inner)?;
            inner.header.value.identity.size = size;
            inner.header.store(&self.side.s)?;
        }
        Ok(())
    }

    fn cover_locked(&self, inner: &mut Inner, ask: Ask, at: u64, len: u64) -> Result<Covered> {
        let now = self.clock.now();
        let due = self.due(inner, at, len)?;
        let mut total = Covered::default();
        for batch in due.chunks(self.per_batch()) {
            total.add(&self.cover_next(inner, batch, ask)?);
        }
        self.passed(inner, &total, now, at == 0 && len >= inner.size);
        Ok(total)
    }

    /// One batch of a pass. Regions that were left open and found quiet are taken, and looked at
    /// again: what is in them was not stored to since the last pass, and is covered for good now.
    fn cover_next(&self, inner: &mut Inner, batch: &[u64], ask: Ask) -> Result<Covered> {
        let mut done = self.cover_batch(inner, batch, ask, Finder::Commit)?;
        let quiet = |number: &u64| inner.regions.get(number).is_some_and(|r| r.busy.is_quiet());
        let quiet: Vec<u64> = batch.iter().copied().filter(quiet).collect();
        if !quiet.is_empty() && self.side.s.enabled(QUIET) {
            let again = self.cover_batch(inner, &quiet, Ask::Take, Finder::Commit)?;
            done.add(&Covered { regions: 0, unchanged: 0, ..again });
        }
        Ok(done)
    }

    /// A pass that lets others at the file between batches: `pause` is told how many bytes of the
    /// data file were just covered, and may take its time. With [`Rearm::All`] it leaves nothing
    /// open, as [`update_now`](Self::update_now); otherwise the policy says.
    ///
    /// # Errors
    /// As [`pass`](Self::pass).
    pub fn pass_in_steps(&self, rearm: Rearm, pause: &mut dyn FnMut(u64)) -> Result<Covered> {
        let ask = if rearm == Rearm::All { Ask::Take } else { self.lightly() };
        let mut inner = self.lock_to_write()?;
        let now = self.clock.now();
        let due = self.resize(&mut inner, Seen::Watched);
        let due = due.and_then(|()| self.due(&mut inner, 0, u64::MAX));
        let due = self.settle(&mut inner, due)?;
        // Others see it grow, or cut off, between two batches: of that, nothing is in this pass.
        let (size, cuts) = (inner.size, inner.cuts);
        drop(inner);
        let mut total = Covered::default();
        for batch in due.chunks(self.per_batch()) {
            // Regions that are gone by now, the file having been cut off, are passed over.
            let mut inner = self.lock_to_write()?;
            let done = self.cover_next(&mut inner, batch, ask);
            let done = self.settle(&mut inner, done)?;
            drop(inner);
            total.add(&done);
            pause((done.pages + done.unchanged) * PAGE);
        }
        let mut inner = self.lock_to_write()?;
        if inner.cuts == cuts {
            let done = self.remember_size(&mut inner, size);
            self.settle(&mut inner, done)?;
        }
        self.passed(&mut inner, &total, now, true);
        Ok(total)
    }

    pub(crate) fn per_batch(&self) -> usize {
        (self.options.batch_pages / self.stripes.pages()).max(1) as usize
    }

    /// A pass that began at `began` is over. Only one over `all` of the file ends a window: of the
    /// rest it is not known how much was stored to.
    fn passed(&self, inner: &mut Inner, total: &Covered, began: u64, all: bool) {
        inner.counts.passes += u64::from(total.regions > 0);
        if all {
            let took = self.clock.now().saturating_sub(began);
            let pages = inner.size.div_ceil(PAGE);
            inner.trace.end((began, took), pages, u64::from(self.stripes.data()));
        }
    }

    /// Regions with something to cover. The others are known to be covered now.
    fn due(&self, inner: &mut Inner, at: u64, len: u64) -> Result<Vec<u64>> {
        let range = self.touched(at, len, inner.size);
        let dirty = self.dirty_regions(inner, range.clone())?;
        let now = self.clock.now();
        let mut due = Vec::new();
        for (number, region) in inner.regions.range_mut(range) {
            let doubted = region.admitted && region.doubt.is_some();
            let known = !region.known_dirty().or(region.unasked()).is_empty();
            if known || region.fresh || doubted || dirty.binary_search(number).is_ok() {
                due.push(*number);
            } else if region.admitted {
                region.taken_ns = now;
            }
        }
        Ok(due)
    }

    /// Regions of which the source has something to tell, or for which it does not vouch any more.
    /// Regions that lie side by side are asked about in one call.
    fn dirty_regions(&self, inner: &Inner, range: Range<u64>) -> Result<Vec<u64>> {
        let mut dirty = Vec::new();
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
        let bytes: Vec<(u64, u64)> = runs
            .iter()
            .map(|run| {
                let last = inner.regions.get(&(run.end - 1)).map_or(0, |r| r.record.pages);
                let (from, len) = self.span(run.end - 1, last);
                (run.start * region, from + len - run.start * region)
            })
            .collect();
        let mut told = |at: u64, len: u64| {
            let told = at / region..at.saturating_add(len).div_ceil(region);
            if told.end - told.start > 1 || dirty.last() != Some(&told.start) {
                dirty.extend(told);
            }
        };
        if !self.d.peek_all(&bytes, &mut told)? {
            // Of those that are not intact, nobody knows what they would have told.
            let gone = |range: &(u64, u64)| !self.d.intact(range.0, range.1);
            dirty.extend(runs.into_iter().zip(&bytes).filter(|(_, r)| gone(r)).flat_map(|r| r.0));
        }
        dirty.sort_unstable();
        dirty.dedup();
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
        // The mutant that takes after looking.
        let first = self.side.s.enabled(TAKE_FIRST);
        self.note_batch(inner, works, ask)?;
        if ask.source() {
            let taken = self.take(works, ask, first);
            taken.inspect_err(|_| works.iter_mut().for_each(Work::keep_taken))?;
        }
        let evidence = self.side.s.enabled(BLANKET);
        for work in &mut *works {
            self.weigh(work, ask, evidence);
            if ask.source() {
                inner.trace.note(work.number, work.observed.or(work.blanket), self.stripes.pages());
            }
        }
        self.narrow(works)?;
        self.forget(works, ask, finder);
        let mut total = Covered { regions: works.len() as u64, ..Covered::default() };
        for work in &mut *works {
            let before = total.pages;
            for stripe in 0..self.stripes.stripes() {
                self.cover_stripe(inner, work, stripe, &mut total, finder)?;
            }
            let all = total.pages - before == u64::from(work.region.record.pages);
            work.region.busy.looked(all && ask.source() && !work.lost);
            self.renew_record(work);
            self.side.put_record(RECORD_B, work.number, verdict::Side::B, &work.region.record)?;
        }
        sync_file(&self.f, self.side.durability, DATA).map_err(Error::DataSync)?;
        self.side.persist(COVER_DRAIN)?;
        if ask.source() && !first {
            for work in works.iter().filter(|work| !work.open) {
                let (at, len) = self.span(work.number, work.region.record.pages);
                self.d.take(at, len, &mut |_, _| {})?;
            }
        }
        self.clear(works)?;
        inner.counts.covered += total.pages;
        inner.counts.unchanged += total.unchanged;
        Ok(total)
    }

    /// Step 1.
    fn note_batch(&self, inner: &mut Inner, works: &mut [Work], ask: Ask) -> Result<()> {
        for work in &mut *works {
            self.load_entries(inner, work)?;
            let all = Bits::first(work.region.record.pages);
            // Where the machine stopped with nothing synced, any parity may be an older one.
            let strange = work.region.strange || work.region.thrown;
            let strange = if strange { all } else { Bits::NONE };
            let unasked = work.region.unasked();
            work.again = work.region.stale.or(strange).or(unasked);
            work.left = work.region.undecided().or(unasked);
            (work.observed, work.blanket) = (work.region.known_dirty(), work.left);
            if ask.source() {
                work.region.stale = all;
                self.side.put_bits(BATCH, work.number, all, None)?;
            }
        }
        if ask.source() { self.side.persist(BATCH_DRAIN) } else { Ok(()) }
    }

    /// Step 3. The bits of all come first: until then, who is killed leaves nobody who knows what
    /// was taken.
    fn narrow(&self, works: &mut [Work]) -> Result<()> {
        for work in &mut *works {
            (work.region.stale, work.region.observed) =
                (work.observed.or(work.blanket), work.observed);
            work.region.marks = Bits::NONE;
        }
        for work in &*works {
            self.side.put_bits(NARROW, work.number, work.region.stale, Some(work.observed))?;
        }
        for work in &mut *works {
            let record = &mut work.region.record;
            record.generation += 1;
            record.rest = self.side.places.meta(work.number, &work.entries, work.region.stale);
            // What is cut off here and differs is undecided for the reason of this pass, and was
            // not told by it.
            work.region.tell_why(work.number, &self.side.places, work.region.undecided(), work.why);
            work.region.unfinished = Some(Box::new(work.region.stale));
            let record = &work.region.record;
            self.side.put_record(REST, work.number, verdict::Side::A, record)?;
        }
        self.side.persist(NARROW_DRAIN)
    }

    /// Step 3b. What a crash left on record is cleared by recovery itself: no source has it.
    fn forget(&self, works: &[Work], ask: Ask, finder: Finder) {
        for work in works {
            let (at, len) = self.span(work.number, work.region.record.pages);
            if ask.source() && work.region.admitted && self.side.s.enabled(FORGET) {
                self.d.forget(at, len);
            }
            let left = ask == Ask::Known && finder == Finder::Open;
            if left && self.side.s.enabled(RECORDS) {
                self.side.clear_records(RECORDS, work.number);
            }
        }
    }

    /// Step 6.
    fn clear(&self, works: &mut [Work]) -> Result<()> {
        for work in works {
            let rest = work.undecided.or(work.deferred);
            (work.region.stale, work.region.observed) = (rest, work.deferred);
            // A page that verifies again, and becomes undecided another time, is told again.
            let undecided = work.undecided;
            work.region.reasons.retain(|inside, _| undecided.has(*inside));
            work.region.presumed.set(Bits::NONE);
            self.side.put_bits(CLEAR, work.number, rest, Some(work.deferred))?;
            self.side.put_record(RECORD_A, work.number, verdict::Side::A, &work.region.record)?;
        }
        self.side.persist(CLEAR_DRAIN)
    }

    /// Reads the entries; damaged ones turn everything that differs into a doubt.
    fn load_entries(&self, inner: &mut Inner, work: &mut Work) -> Result<()> {
        let found = self.side.entries(work.number);
        let readable = found.is_ok();
        work.entries = found.unwrap_or_else(|_| {
            work.region.doubt = work.region.doubt.or(Some(Unsure::SumsDamaged));
            vec![LOST_ENTRY; self.stripes.pages() as usize]
        });
        if inner.header.value.sums()
            && work.region.record.generation > 0
            && !self.meta_agrees(work.number, &work.region, &work.entries)
        {
            work.region.doubt = work.region.doubt.or(Some(Unsure::SumsDamaged));
            let first = (self.number(work.number, 0), work.region.record.verified_ns);
            let event = self.event(first, Finder::Commit, Outcome::Detected);
            let wrong = Some(holdfast_redundancy::Wrong::Sum);
            let len = u64::from(work.region.record.pages) * PAGE;
            let cause = cause(readable);
            self.report(inner, &holdfast_redundancy::Event { cause, wrong, len, ..event });
        }
        Ok(())
    }

    /// What was taken proves a store, or does not.
    fn weigh(&self, work: &mut Work, ask: Ask, evidence: bool) {
        let all = Bits::first(work.region.record.pages);
        let (taken, lost) = (work.taken.and(all), work.lost);
        let blanket = (work.region.fresh || lost) && evidence;
        work.region.fresh &= !ask.source();
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
        work.thrown = work.region.thrown;
        (work.region.doubt, work.region.thrown) = (None, false);
        work.blanket = work.blanket.without(work.observed);
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
        let here = Bits::range(stripe * data, data);
        let asked = work.observed.or(work.blanket).or(work.again).and(here);
        if asked.is_empty() {
            return Ok(());
        }
        let mut rows = self.look(inner, work, stripe)?;
        self.hold_against_parity(inner, work, stripe, &mut rows);
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

    fn renew_entry(&self, inner: &Inner, work: &mut Work, inside: u32, sum: u32) -> Result<()> {
        let header = &inner.header.value;
        work.region.forget_reason(inside);
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
        (work.region.unfinished, work.region.torn, work.region.strange) = (None, false, false);
        // As the bits are going to be.
        let left = work.undecided.without(work.deferred);
        work.region.tell_why(work.number, &self.side.places, left, Unsure::Unobserved);
        let record = &mut work.region.record;
        record.generation += 1;
        record.covered_ns = self.clock.now();
        record.meta = self.side.places.meta(work.number, &work.entries, Bits::NONE);
    }
}

impl Work {
    /// What the source tells of what we did ourselves is no store of the program, and is told once.
    pub(crate) fn leave_out_ours(&mut self, first: bool) {
        self.taken = self.taken.without(self.region.ours.get());
        if first && !self.open && self.region.admitted {
            self.region.ours.set(Bits::NONE);
        }
    }

    /// What the source told of a batch that comes to nothing is not told again.
    fn keep_taken(&mut self) {
        let all = Bits::first(self.region.record.pages);
        let taken = self.taken.and(all).without(self.region.ours.get());
        if self.lost || self.region.fresh {
            self.region.fresh = true;
        } else {
            self.region.marks = self.region.marks.or(taken);
        }
    }

    fn new(number: u64, region: Box<Region>) -> Self {
        Self {
            number,
            region,
            entries: Vec::new(),
            taken: Bits::NONE,
            lost: false,
            open: false,
            observed: Bits::NONE,
            blanket: Bits::NONE,
            why: Unsure::Unobserved,
            doubted: false,
            thrown: false,
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
