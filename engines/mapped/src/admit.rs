//! Letting writers in and seeing them off; regions that come and go with the file's length.
//!
//! | step of letting in | crash after it leaves |
//! |---|---|
//! | 1 header says open | an open file without suspects |
//! | 1b first stores on record from before are cleared. **Drain**, if there were any | the same |
//! | 2 records say suspect, both copies. **Drain.** | some regions suspect, nobody stored |
//! | 3 source armed, first report thrown away | the same |
//!
//! Only then may anybody store. Seeing off goes the other way: a last pass, which syncs the data,
//! then records clean in both copies, **drain**. A region is clean only if a copy verifies and none
//! says suspect, so the copies need no order among them: torn ones leave a region in doubt.

use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_redundancy::{PageVerdict, Unsure};

use crate::bits::Bits;
use crate::busy::Busy;
use crate::commit::Covered;
use crate::engine::{Inner, Mapped};
use crate::error::Result;
use crate::header::State;
use crate::region::Region;
use crate::side::{COPIES, Kind};

const SUSPECT_B: Site = Site::new("mapped.admit.suspect-b");
const SUSPECT_A: Site = Site::new("mapped.admit.suspect-a");
const SUSPECT_DRAIN: Site = Site::new("mapped.admit.suspect-drain");
const CLEAN_B: Site = Site::new("mapped.admit.clean-b");
const CLEAN_A: Site = Site::new("mapped.admit.clean-a");
const CLEAN_DRAIN: Site = Site::new("mapped.admit.clean-drain");
/// Clearing records of first stores that are of no store to come.
const RECORDS: Site = Site::new("mapped.admit.records");
const RECORDS_DRAIN: Site = Site::new("mapped.admit.records-drain");
/// Stale pages of a region that was cut off in part.
const CUT: Site = Site::new("mapped.admit.cut");
const CUT_DRAIN: Site = Site::new("mapped.admit.cut-drain");
/// States of regions that were cut off.
const GONE: Site = Site::new("mapped.admit.gone");
const GONE_DRAIN: Site = Site::new("mapped.admit.gone-drain");

/// Whether writers have been at it already when they are let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writing {
    /// Nobody stores before `admit` returns.
    NotYet,
    /// They may have stored since the file was opened: what the source did not keep is unknown.
    Already,
}

/// Whether the file's length changed under our eyes: then its last page was written, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Watched,
    Unwatched,
}

impl<F: Medium, S: Medium, D: DirtySource> Mapped<F, S, D> {
    /// Lets writers in on `[at, at + len)` of the data file, also where it grows to: from when
    /// this has returned, stores there are tracked.
    ///
    /// # Errors
    /// An error of the side file or of the source: then nobody may store.
    pub fn admit(&self, at: u64, len: u64, writing: Writing) -> Result<()> {
        let mut inner = self.lock_to_write()?;
        let inner = &mut *inner;
        let end = at.saturating_add(len);
        inner.admitted = Some(match inner.admitted {
            Some((from, to)) => (from.min(at), to.max(end)),
            None => (at, end),
        });
        let done = self.admit_locked(inner, at, len, writing);
        self.settle(inner, done)
    }

    fn admit_locked(&self, inner: &mut Inner, at: u64, len: u64, how: Writing) -> Result<()> {
        // Also where that is known here and could not be stored.
        if inner.header.stored().state != State::Open {
            inner.header.value.state = State::Open;
            inner.header.store(&self.side.s)?;
        }
        inner.touched = true;
        self.resize(inner, Seen::Watched)?;
        let numbers: Vec<u64> = inner
            .regions
            .range(self.touched(at, len, inner.size))
            .filter(|(_, region)| !region.admitted)
            .map(|(number, _)| *number)
            .collect();
        self.suspect(inner, &numbers)?;
        for number in numbers {
            self.track(inner, number, how)?;
        }
        Ok(())
    }

    /// Makes regions suspect, durably. From then on a record of a first store is believed: what
    /// rot, or another file that lay there once, has left of them goes before.
    fn suspect(&self, inner: &mut Inner, numbers: &[u64]) -> Result<()> {
        let mut cleared = false;
        for number in numbers.iter().filter(|_| self.side.s.enabled(RECORDS)) {
            cleared |= self.side.clear_records(RECORDS, *number);
        }
        if cleared {
            self.side.persist(RECORDS_DRAIN)?;
        }
        self.set_kind(inner, numbers, Kind::Suspect, [SUSPECT_B, SUSPECT_A], SUSPECT_DRAIN)
    }

    fn set_kind(
        &self,
        inner: &mut Inner,
        numbers: &[u64],
        kind: Kind,
        puts: [Site; 2],
        drain: Site,
    ) -> Result<()> {
        for number in numbers {
            if let Some(region) = inner.regions.get_mut(number) {
                region.record.kind = kind;
                region.record.generation += 1;
                let left = region.undecided();
                region.tell_why(*number, &self.side.places, left, Unsure::Unobserved);
                region.verified = false;
            }
        }
        for (copy, put) in COPIES.into_iter().zip(puts) {
            for number in numbers {
                if let Some(region) = inner.regions.get(number) {
                    self.side.put_record(put, *number, copy, &region.record)?;
                }
            }
        }
        self.side.persist(drain)
    }

    /// Begins to track a region.
    fn track(&self, inner: &mut Inner, number: u64, how: Writing) -> Result<()> {
        let pages = inner.regions.get(&number).map_or(0, |region| region.record.pages);
        let (at, len) = self.span(number, pages);
        // What outlived the last opening stays with the source until a pass has noted it durably:
        // a second crash finds it again.
        let ours = inner.regions.get(&number).is_some_and(|region| !region.ours.get().is_empty());
        let kept = !ours && self.d.intact(at, len);
        if !kept && let Some(region) = inner.regions.get_mut(&number).filter(|region| region.relied)
        {
            // What it would have told is lost since the file was opened.
            region.doubt = Some(Unsure::TrackingLost);
        }
        if !kept {
            self.d.arm(at, len)?;
            if how == Writing::NotYet {
                // Nobody stored yet: what a source reports right after it was armed says nothing,
                // also if it fails now.
                let taken = self.d.take(at, len, &mut |_, _| {});
                if let Some(region) = inner.regions.get_mut(&number) {
                    region.ours.set(if taken.is_ok() { Bits::NONE } else { Bits::first(pages) });
                }
                taken?;
                self.d.forget(at, len);
            }
        }
        if let Some(region) = inner.regions.get_mut(&number) {
            region.ours.set(Bits::NONE);
            (region.admitted, region.relied) = (true, false);
            region.fresh = how == Writing::Already && !kept;
            (region.taken_ns, region.busy) = (self.clock.now(), Busy::default());
        }
        Ok(())
    }

    /// Casts doubt on what was not seen until now: somebody may have written unnoticed. The next
    /// pass looks at every page that writers were let in to: where a store was reported it is
    /// covered, any other page that differs becomes undecided.
    ///
    /// # Errors
    /// The engine is read-only, or failed before.
    pub fn doubt_unseen(&self) -> Result<()> {
        let mut inner = self.lock_to_write()?;
        for region in inner.regions.values_mut().filter(|region| region.admitted) {
            region.doubt = region.doubt.or(Some(Unsure::Unobserved));
        }
        Ok(())
    }

    /// Sees writers off `[at, at + len)`: nobody stores there any more when this is called. A last
    /// pass covers what they did, then the regions are clean.
    ///
    /// # Errors
    /// An error of the side file, of the source, or of syncing the data: the regions stay suspect.
    pub fn dismiss(&self, at: u64, len: u64) -> Result<Covered> {
        let covered = self.cover(at, len)?;
        let mut inner = self.lock_to_write()?;
        let inner = &mut *inner;
        let done = self.dismiss_locked(inner, at, len);
        self.settle(inner, done)?;
        Ok(covered)
    }

    pub(crate) fn dismiss_locked(&self, inner: &mut Inner, at: u64, len: u64) -> Result<()> {
        let numbers: Vec<u64> = inner
            .regions
            .range(self.touched(at, len, inner.size))
            .filter(|(_, region)| region.admitted || region.record.kind == Kind::Suspect)
            .map(|(number, _)| *number)
            .collect();
        for number in &numbers {
            if let Some(region) = inner.regions.get_mut(number)
                && region.admitted
            {
                let (at, len) = self.span(*number, region.record.pages);
                region.admitted = false;
                self.d.disarm(at, len)?;
                region.ours.set(Bits::NONE);
            }
        }
        if inner.regions.values().all(|region| !region.admitted) {
            inner.admitted = None;
        }
        self.set_kind(inner, &numbers, Kind::Clean, [CLEAN_B, CLEAN_A], CLEAN_DRAIN)
    }

    /// Says that `[at, at + len)` was written in a way the source does not see, such as through
    /// `write` or by punching a hole: the pages are covered by the next pass.
    ///
    /// # Errors
    /// [`Error::ReadOnly`](crate::Error::ReadOnly).
    pub fn mark(&self, at: u64, len: u64) -> Result<()> {
        let mut inner = self.lock_to_write()?;
        let size = inner.size;
        for (number, region) in inner.regions.range_mut(self.touched(at, len, size)) {
            let mut marks = region.marks;
            self.note(*number, &mut marks, at, len);
            region.marks = marks.and(Bits::first(region.record.pages));
        }
        Ok(())
    }

    /// Says that somebody untracked writes to the file, or that it is over: meanwhile, what
    /// differs is undecided. Durable.
    ///
    /// # Errors
    /// An error of the side file.
    pub fn contest(&self, contested: bool) -> Result<()> {
        let mut inner = self.lock_to_write()?;
        let inner = &mut *inner;
        let flags = &mut inner.header.value.flags;
        let flag = crate::format::FLAG_CONTESTED;
        *flags = if contested { *flags | flag } else { *flags & !flag };
        let done = inner.header.store(&self.side.s);
        self.settle(inner, done)
    }

    /// Follows the file's length, and takes in parts of it that have got storage.
    pub(crate) fn resize(&self, inner: &mut Inner, seen: Seen) -> Result<()> {
        let size = self.size_now()?;
        if size < inner.size {
            self.shrink(inner, size, seen)?;
        }
        let old = inner.size;
        if size > old
            && let Some((&number, region)) = inner.regions.iter_mut().next_back()
        {
            // Whoever made the file longer may have written to its last page as well.
            let (at, _) = self.range(number);
            let pages = self.pages_of(number, size);
            let from = first_new(old.saturating_sub(at), seen, pages);
            let (start, len) = self.span(number, pages);
            let (_, tracked) = self.span(number, region.record.pages);
            // Before writers are let in, a region of which a crash left the bits is tracked whole
            // or not at all: beside pages that are not, those bits would be thrown away.
            let kept = region.admitted || self.d.intact(start, tracked);
            if kept && tracked < len {
                self.d.arm(start + tracked, len - tracked)?;
            }
            region.record.pages = pages;
            for page in from..pages {
                region.marks.insert(page);
            }
        }
        // Not before: after an error the next call finds the file to have grown.
        inner.size = size;
        self.activate(inner)
    }

    /// Takes in regions that have storage and are not known.
    fn activate(&self, inner: &mut Inner) -> Result<()> {
        let size = inner.size;
        let mut new = Vec::new();
        for gap in self.gaps(inner) {
            // Asking what is known would cost file systems in memory a step for each page.
            let (at, _) = self.range(gap.start);
            let len = self.range(gap.end).0.min(size).saturating_sub(at);
            self.facts.allocated(at, len, &mut |at, len| {
                for number in self.touched(at, len, size) {
                    if gap.contains(&number) && new.last() != Some(&number) {
                        new.push(number);
                    }
                }
            });
        }
        let Some(last) = new.last() else { return Ok(()) };
        self.side.reach(last + 1)?;
        for number in &new {
            let pages = self.pages_of(*number, size);
            let mut region = Region::new(pages, self.clock.now());
            // They have no entries, so nothing that was covered can be forgotten by covering them.
            region.marks = Bits::first(pages);
            inner.regions.insert(*number, Box::new(region));
        }
        let done = self.admit_new(inner, &new);
        if done.is_err() {
            // Found again, and as new, by the next call: nobody would track them otherwise.
            inner.regions.retain(|number, region| region.admitted || !new.contains(number));
        }
        done
    }

    /// Lets writers into regions that were just taken in, as far as they may be there.
    fn admit_new(&self, inner: &mut Inner, new: &[u64]) -> Result<()> {
        let Some((from, to)) = inner.admitted else { return Ok(()) };
        let range = self.touched(from, to - from, inner.size);
        let new: Vec<u64> = new.iter().copied().filter(|number| range.contains(number)).collect();
        self.suspect(inner, &new)?;
        for number in new {
            self.track(inner, number, Writing::Already)?;
        }
        Ok(())
    }

    /// Regions that had no storage yet, as runs of them.
    pub(crate) fn gaps(&self, inner: &Inner) -> Vec<core::ops::Range<u64>> {
        let all = self.touched(0, u64::MAX, inner.size);
        let mut gaps = Vec::new();
        let mut from = all.start;
        for number in inner.regions.keys().copied().chain([all.end]) {
            if from < number {
                gaps.push(from..number);
            }
            from = number + 1;
        }
        gaps
    }

    /// To be called before the header says that the file is longer. What the side file has for a
    /// region that is not known is of a file that was as long once, and was cut off: where there is
    /// a hole now, nobody renews it, and zeros would be held against it.
    ///
    /// Who is cut off here leaves a header that does not reach there, of which an opening believes
    /// nothing. Nothing is wiped when the file is cut off: that the header has the old length until
    /// then, and a power cut may give the file its old end back, which was covered.
    pub(crate) fn wipe_cut_off(&self, inner: &Inner) -> Result<()> {
        let from = inner.header.value.identity.size / self.stripes.region_len();
        let mut wiped = false;
        let gaps = self.gaps(inner).into_iter();
        let written = gaps.flat_map(|gap| self.side.written(gap.start.max(from)..gap.end));
        for number in written.flatten() {
            if self.side.places.len_for(number + 1) > self.side.s.len() {
                break;
            }
            if !self.side.state(number).empty {
                self.side.wipe_state(GONE, number)?;
                wiped = true;
            }
        }
        if wiped { self.side.persist(GONE_DRAIN) } else { Ok(()) }
    }

    /// The stripes, one or none, of whose parity pages are gone that were covered and not zeros, of
    /// a region that had `had` pages and has `pages`: it gives nothing back, and what is stored to
    /// beside damage must not wait for that.
    pub(crate) fn cut_stripes(&self, number: u64, pages: u32, had: u32) -> u64 {
        let (zeros, certify) = ([0; PAGE as usize], self.certify_pages());
        let stripe = pages.saturating_sub(1) / self.stripes.data();
        let end = ((stripe + 1) * self.stripes.data()).min(had);
        let gone = (pages..end).any(|inside| {
            let sum = self.sum(self.number(number, inside), &zeros);
            let entry = self.side.entry(number, inside);
            entry.is_ok_and(|entry| entry.is_covered() && !certify.agrees(entry.current, sum))
        });
        u64::from(gone) << stripe
    }

    /// Forgets what lies behind the new end of the file.
    fn shrink(&self, inner: &mut Inner, size: u64, seen: Seen) -> Result<()> {
        let len = self.stripes.region_len();
        // A last page that is whole was not written to by that; but its parity is to be made anew.
        let lost_its_end = !size.is_multiple_of(PAGE);
        let last = (size / PAGE).saturating_sub(1);
        let known = lost_its_end
            || self.judge(inner, last, &mut vec![0; PAGE as usize])?.verdict == PageVerdict::Good;
        let gone = inner.regions.split_off(&size.div_ceil(len));
        inner.cuts += 1;
        for (number, region) in &gone {
            if region.admitted {
                let (at, len) = self.span(*number, region.record.pages);
                // The mapping behind the end may be gone already.
                let _ = self.d.disarm(at, len);
            }
        }
        if let Some((&number, region)) = inner.regions.iter_mut().next_back() {
            let pages = self.pages_of(number, size);
            let left = Bits::first(pages);
            // The last page lost its end, or only its stripe lost pages: both are made anew.
            let mut cut = Bits::NONE;
            // Where the file ends in a hole, this region is whole.
            let here = size < (number + 1).saturating_mul(len);
            if here {
                cut.insert(pages.saturating_sub(1));
            }
            region.record.unusable |= self.cut_stripes(number, pages, region.record.pages);
            region.record.pages = pages;
            region.stale = region.stale.and(left).or(cut);
            region.observed = region.observed.and(left);
            if seen == Seen::Watched && known {
                region.observed = region.observed.or(cut);
            }
            region.marks = region.marks.and(left);
            region.ours.set(region.ours.get().and(left));
            self.side.put_bits(CUT, number, region.stale, Some(region.observed))?;
        }
        self.side.persist(CUT_DRAIN)?;
        // From here on an opening that finds the file longer knows that it was shorter once. Who
        // else changed it is known no better than before, nor is what it had grown by covered.
        let identity = &mut inner.header.value.identity;
        identity.size = identity.size.min(size);
        inner.header.store(&self.side.s)
    }
}

/// The first of a region's pages that a growth may have changed, if the file ended so many bytes
/// behind the region's start before: far behind it, where only holes follow.
fn first_new(inside: u64, seen: Seen, pages: u32) -> u32 {
    let first = match seen {
        Seen::Watched => inside / PAGE,
        Seen::Unwatched => inside.div_ceil(PAGE),
    };
    // No more than there are, so it fits.
    first.min(u64::from(pages)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_marks_no_page_of_a_region_far_before_the_end() {
        for seen in [Seen::Watched, Seen::Unwatched] {
            // 2^32 pages and more, of which the region has the first 256.
            for inside in [16 << 40, (16 << 40) + 5, (16 << 40) + 7 * PAGE, u64::MAX] {
                assert_eq!(first_new(inside, seen, 256), 256, "{inside:#x}");
            }
            assert_eq!(first_new(9 * PAGE, seen, 256), 9);
            assert_eq!(first_new(9 * PAGE, seen, 7), 7);
            assert_eq!(first_new(0, seen, 256), 0);
        }
        // Whoever saw it grow saw what became of the page in which it ended.
        assert_eq!(first_new(9 * PAGE + 1, Seen::Watched, 256), 9);
        assert_eq!(first_new(9 * PAGE + 1, Seen::Unwatched, 256), 10);
    }
}
