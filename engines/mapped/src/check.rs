//! What a page is: the verdict table. Reads only.
//!
//! | first that applies | verdict |
//! |---|---|
//! | its region has no storage and it is zeros | good |
//! | stored to since it was covered, as source, mark or side file know | undecided: uncovered |
//! | its memory failed with what was stored there | undecided: memory failed |
//! | agrees with its entry, and the region's entries with their sum, or parity adds up | good |
//! | agrees with its entry, which may be an older one | undecided: sums damaged |
//! | agrees with the entry before, where the machine stopped and may have thrown it back | good |
//! | left undecided earlier | undecided, for the reason known or as unobserved |
//! | what was stored to in its region was forgotten | undecided: tracking lost |
//! | the file changed while nobody protected it | undecided: changed while unprotected |
//! | somebody untracked writes to the file | undecided: contested |
//! | the region's entries are damaged themselves | undecided: sums damaged |
//! | somebody untracked may have written to it, as is heard now | undecided: contested |
//! | anything else | **corrupt** |
//!
//! The source is asked after the page was read, so a store that the sum may have seen is known.

use core::ops::Range;

use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{MediaCause, Medium, PAGE, Site};
use holdfast_redundancy::{PageVerdict, Unsure};

use crate::bits::Bits;
use crate::engine::{Inner, Mapped};
use crate::error::Result;
use crate::region::Region;
use crate::side::Entry;

/// Heeding what is known of a region when one of its pages differs.
const DOUBT: Site = Site::new("mapped.check.doubt");
/// Asking whoever listens for untracked writers before anything is called damage.
const VOUCHES: Site = Site::new("mapped.check.vouches");
/// Keeping pages undecided whose memory failed, though they agree.
const LOST: Site = Site::new("mapped.check.lost");
/// Holding the entries of a region against their sum before one of them proves anything.
const PROVEN: Site = Site::new("mapped.check.proven");
/// Heeding pages that are known to be stale.
const STALE: Site = Site::new("mapped.check.stale");

/// A page, judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// What it is.
    pub verdict: PageVerdict,
    /// Its sum as it was found; 0 if it could not be read.
    pub found: u32,
    /// Whether it could be read.
    pub readable: bool,
}

/// The region whose entries were last held against the sum of them, and whether they agreed: once
/// for who judges all of its pages.
#[derive(Debug, Default)]
pub(crate) struct Vouched(Option<(u64, bool)>);

impl Vouched {
    fn of(&mut self, region: u64, look: impl FnOnce() -> bool) -> bool {
        match self.0 {
            Some((known, agreed)) if known == region => agreed,
            _ => self.0.insert((region, look())).1,
        }
    }
}

/// What a look at many pages came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Pages looked at.
    pub pages: u64,
    /// Pages that are good.
    pub good: u64,
    /// Pages that were stored to since they were last covered, which is no fault.
    pub uncovered: u64,
    /// Damaged pages, by number in the file.
    pub corrupt: Vec<u64>,
    /// Pages in doubt, and why.
    pub undecided: Vec<(u64, Unsure)>,
}

impl Report {
    /// Whether nothing is wrong and nothing in doubt.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.corrupt.is_empty() && self.undecided.is_empty()
    }

    pub(crate) fn add(&mut self, page: u64, verdict: PageVerdict) {
        self.pages += 1;
        match verdict {
            PageVerdict::Good => self.good += 1,
            PageVerdict::Corrupt => self.corrupt.push(page),
            PageVerdict::Undecided(why) if why.is_doubt() => self.undecided.push((page, why)),
            PageVerdict::Undecided(_) => self.uncovered += 1,
        }
    }
}

/// What lies before `end` in any of the runs, as runs in ascending order that do not touch.
pub(crate) fn joined(mut found: Vec<Range<u64>>, end: u64) -> Vec<Range<u64>> {
    found.sort_unstable_by_key(|run| run.start);
    let mut runs: Vec<Range<u64>> = Vec::new();
    for run in found {
        let run = run.start..run.end.min(end);
        match runs.last_mut() {
            _ if run.is_empty() => {}
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            _ => runs.push(run),
        }
    }
    runs
}

impl<F: Medium, S: Medium, D: DirtySource> Mapped<F, S, D> {
    /// What the page numbered `page` in the data file is.
    ///
    /// # Errors
    /// An error of the source or of the side file; damage of either file is a verdict.
    pub fn verify(&self, page: u64) -> Result<Judged> {
        let inner = self.lock();
        let mut bytes = vec![0; PAGE as usize];
        self.judge(&inner, page, &mut bytes)
    }

    /// What all pages are. Changes nothing.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn verify_all(&self) -> Result<Report> {
        let inner = self.lock();
        let mut bytes = vec![0; PAGE as usize];
        let (mut report, mut vouched) = (Report::default(), Vouched::default());
        let (all, there) = (inner.size.div_ceil(PAGE), self.size_now()?.div_ceil(PAGE));
        // A header may say what it likes: what is cut off is counted, not looked at.
        let end = all.min(there);
        report.uncovered = all - end;
        for page in self.runs_to_look_at(&inner, end).into_iter().flatten() {
            let judged = self.judge_among(&inner, page, &mut bytes, &mut vouched)?;
            report.add(page, judged.verdict);
        }
        // Holes that never had anything to cover.
        report.good += end - report.pages;
        report.pages = all;
        Ok(report)
    }

    /// Of the first `pages` pages, those that somebody who looks at everything has to ask about, as
    /// ascending runs of numbers: of regions that are known, and of parts of others that have
    /// storage. All others are holes that never had anything to cover, and good.
    #[must_use]
    pub fn to_look_at(&self, pages: u64) -> Vec<Range<u64>> {
        self.runs_to_look_at(&self.lock(), pages)
    }

    fn runs_to_look_at(&self, inner: &Inner, pages: u64) -> Vec<Range<u64>> {
        let per = u64::from(self.stripes.pages());
        let known = |number: &u64| number * per..number * per + per;
        let mut found: Vec<Range<u64>> = inner.regions.keys().map(known).collect();
        let end = pages.saturating_mul(PAGE);
        for gap in self.gaps(inner) {
            let (from, to) = (self.range(gap.start).0, self.range(gap.end).0.min(end));
            if from < to {
                self.facts.allocated(from, to - from, &mut |at, len| {
                    found.push(at / PAGE..at.saturating_add(len).div_ceil(PAGE));
                });
            }
        }
        joined(found, pages)
    }

    /// The verdict about a page, whose content is left in `bytes`.
    pub(crate) fn judge(&self, inner: &Inner, page: u64, bytes: &mut [u8]) -> Result<Judged> {
        self.judge_among(inner, page, bytes, &mut Vouched::default())
    }

    /// The same for who judges many in turn.
    pub(crate) fn judge_among(
        &self,
        inner: &Inner,
        page: u64,
        bytes: &mut [u8],
        vouched: &mut Vouched,
    ) -> Result<Judged> {
        let place = self.stripes.place(page);
        let answer = |verdict, found| Judged { verdict, found, readable: true };
        let unsure = |why| PageVerdict::Undecided(why);
        // Where nothing was synced, what counts as new may have been covered.
        let uncovered =
            unsure(if inner.believed { Unsure::Uncovered } else { Unsure::TrackingLost });
        let read = self.read_page(inner.size, page, bytes);
        let region = inner.regions.get(&place.region);
        let region = region.filter(|region| place.inside < region.record.pages);
        let Some(region) = region else {
            // What the file has grown by since is looked at by nobody yet.
            let at = page.saturating_mul(PAGE);
            let grown = at >= inner.size && at < self.size_now()?;
            let zeros = read.is_ok() && !grown && holdfast_codes::is_zero(bytes);
            return Ok(answer(if zeros { PageVerdict::Good } else { uncovered }, 0));
        };
        if !inner.header.value.sums() {
            return Ok(answer(unsure(Unsure::NoSums), 0));
        }
        let stale = self.side.s.enabled(STALE);
        let dirty =
            stale && region.known_dirty().has(place.inside) || self.is_dirty(region, page)?;
        if let Err(error) = read {
            let cut = matches!(error.cause, MediaCause::OutOfRange | MediaCause::Truncated);
            let left = stale && region.undecided().has(place.inside);
            let excused = || self.excuse(inner, region, page, left, || true).is_some();
            let verdict = match (cut, dirty || excused()) {
                (true, _) => uncovered,
                (false, true) => unsure(Unsure::Media(error)),
                (false, false) => PageVerdict::Corrupt,
            };
            return Ok(Judged { verdict, found: 0, readable: false });
        }
        let found = self.sum(page, bytes);
        if dirty {
            return Ok(answer(uncovered, found));
        }
        let verdict = match self.side.entry(place.region, place.inside) {
            Ok(entry) => self.hold(inner, region, page, (found, stale), entry, vouched),
            Err(_) => unsure(Unsure::SumsDamaged),
        };
        Ok(answer(verdict, found))
    }

    /// Holds the sum of a page that nobody is known to have stored to against its entry; with
    /// `stale`, what is known to be stale is heeded.
    fn hold(
        &self,
        inner: &Inner,
        region: &Region,
        page: u64,
        (found, stale): (u32, bool),
        entry: Entry,
        vouched: &mut Vouched,
    ) -> PageVerdict {
        let place = self.stripes.place(page);
        let header = &inner.header.value;
        let certify = self.certify_pages();
        let mut entries =
            || vouched.of(place.region, || self.vouch_for_entries(place.region, region));
        let left = stale && region.undecided().or(region.unasked()).has(place.inside);
        let lost = left && region.reason(place.inside) == Unsure::MemoryFailed;
        if lost && self.side.s.enabled(LOST) {
            return PageVerdict::Undecided(Unsure::MemoryFailed);
        }
        if !entry.is_covered() && !left && region.doubt.is_none() {
            // An entry that was wiped out is no sign of a page that was never covered.
            let why = if entries() { Unsure::Uncovered } else { Unsure::SumsDamaged };
            return PageVerdict::Undecided(why);
        }
        if entry.is_covered() && certify.agrees(entry.current, found) {
            // Where a write of entries was lost, a page that was set back agrees with an old one,
            // and an opening since has taken the sum of it. Of a region whose record is lost nobody
            // can tell, nor of one in which crashes left entries of several passes.
            let denied = left && region.is_denied(place.inside);
            let sums = region.record.generation == 0 || region.torn || entries();
            let proven = sums && !denied
                || !self.side.s.enabled(PROVEN)
                || self.adds_up(inner, region, page) == Some(true);
            let unsure = PageVerdict::Undecided(Unsure::SumsDamaged);
            return if proven { PageVerdict::Good } else { unsure };
        }
        let reverted = header.previous() && certify.agrees(entry.previous, found);
        let cut_off = left && !region.reasons.contains_key(&place.inside);
        if reverted && (region.thrown || cut_off && inner.stopped) {
            return PageVerdict::Good;
        }
        let why = self.excuse(inner, region, page, left, entries);
        why.map_or(PageVerdict::Corrupt, PageVerdict::Undecided)
    }

    /// Why a page that is not what was covered, and that nobody is known to have stored to, is not
    /// damaged for certain; `left` if an earlier look could not decide, `entries` says whether the
    /// sums it was held against are believed.
    fn excuse(
        &self,
        inner: &Inner,
        region: &Region,
        page: u64,
        left: bool,
        entries: impl FnOnce() -> bool,
    ) -> Option<Unsure> {
        let place = self.stripes.place(page);
        if left {
            return Some(region.reason(place.inside));
        }
        if let Some(doubt) = self.doubt(region, page) {
            return Some(doubt);
        }
        if inner.header.value.contested() {
            return Some(Unsure::Contested);
        }
        if !entries() {
            return Some(Unsure::SumsDamaged);
        }
        let heard = self.side.s.enabled(VOUCHES) && !self.facts.vouches();
        heard.then_some(Unsure::Contested)
    }

    /// Whether a page that is good, with the sum `found`, would be called corrupt if it differed.
    pub(crate) fn would_convict(&self, inner: &Inner, page: u64, found: u32) -> bool {
        let place = self.stripes.place(page);
        let (Some(region), Ok(entry)) =
            (inner.regions.get(&place.region), self.side.entry(place.region, place.inside))
        else {
            return false;
        };
        let other = (!found, true);
        self.hold(inner, region, page, other, entry, &mut Vouched::default())
            == PageVerdict::Corrupt
    }

    /// Whether the source knows of a store to a page. Where nobody was let in yet, only what
    /// outlived a crash counts, if the store did, too.
    pub(crate) fn is_dirty(&self, region: &Region, page: u64) -> Result<bool> {
        let asked = region.admitted || !region.thrown && self.d.intact(page * PAGE, PAGE);
        let ours = region.ours.has(self.stripes.place(page).inside);
        Ok(asked && !ours && self.peek_page(page)?)
    }

    /// Why a page of a region that differs proves nothing, if that is so.
    fn doubt(&self, region: &Region, page: u64) -> Option<Unsure> {
        let asked = region.admitted || region.relied;
        let lost = asked && !self.d.intact(page * PAGE, PAGE);
        let doubt = region.doubt.or(lost.then_some(Unsure::TrackingLost));
        doubt.filter(|_| self.side.s.enabled(DOUBT))
    }

    /// Whether parity of a page's stripe adds up with what lies there; `None` if it cannot tell.
    fn adds_up(&self, inner: &Inner, region: &Region, page: u64) -> Option<bool> {
        let place = self.stripes.place(page);
        let mut rows = vec![0; self.stripes.rows_len()];
        for (row, bytes) in (0..self.stripes.data()).zip(rows.chunks_mut(PAGE as usize)) {
            let number = self.number(place.region, place.stripe * self.stripes.data() + row);
            self.read_page(inner.size, number, bytes).ok()?;
        }
        let mut parity = vec![0; self.stripes.parity_len()];
        self.parity_says(region, (place.region, place.stripe), &rows, &mut parity)
    }

    /// Whether parity, which is left in `parity`, says that rows are what was last covered; `None`
    /// if it cannot tell.
    pub(crate) fn parity_says(
        &self,
        region: &Region,
        (number, stripe): (u64, u32),
        rows: &[u8],
        parity: &mut [u8],
    ) -> Option<bool> {
        let known = self.stripes.parity() > 0 && region.parity_usable(stripe);
        let read = known && self.side.parity(number, stripe, parity).is_ok();
        // Whoever wipes out a stripe may have wiped out its parity: zeros vouch for nothing.
        let some = read && parity.iter().any(|byte| *byte != 0);
        some.then(|| self.stripes.differing(rows, parity) == [false; 2])
    }

    /// Whether all entries of a region can be read and are what was last covered.
    fn vouch_for_entries(&self, number: u64, region: &Region) -> bool {
        self.side.entries(number).is_ok_and(|entries| self.meta_agrees(number, region, &entries))
    }

    /// Pages of a region whose sums do not cover them now.
    pub(crate) fn uncovered(&self, number: u64, region: &Region) -> Result<Bits> {
        let mut bits = region.stale.or(region.marks);
        let (at, len) = self.span(number, region.record.pages);
        if region.admitted || self.d.intact(at, len) {
            bits = bits.or(self.peek(number, region.record.pages)?.without(region.ours.get()));
        }
        Ok(bits.and(Bits::first(region.record.pages)))
    }
}
