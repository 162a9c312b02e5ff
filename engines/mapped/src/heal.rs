//! Loads of the program that met a media error.
//!
//! | the page could not be read in, and is | done |
//! |---|---|
//! | good: it can be read, and is what was covered | nothing; whoever maps it sees to its window |
//! | corrupt | repaired, as by a scrub |
//! | beyond parity; undecided, also as stored to since it was covered; in use | told as lost |
//!
//! A page that was stored to and is gone could be given back only as it was before, which would
//! take the store back. So it is lost, and whoever loads it learns that.
//!
//! Where the memory itself failed, that a page can be read is no good sign: the system throws its
//! copy away, stores that were not written back yet with it, and reads in again what the device
//! has. That may be older than what was covered, or agree with it and lack what was stored since.
//!
//! | the memory of a page failed that | done |
//! |---|---|
//! | was stored to since it was covered, for all the source knows | undecided: *memory failed* |
//! | was covered since, perhaps as the device had it; the source lost track | the same |
//! | else: agrees; differs | good; repaired, as by a scrub |
//!
//! | step of making it undecided | crash after it leaves |
//! |---|---|
//! | 1 stale, not observed, in both copies; the reason in both records | some of it: undecided |
//! | **drain** | undecided, with its reason; not told, so that the next opening tells it |
//! | 2 an event, **drain** | the same, and told |
//! | 3 the source forgets what it knows of the page | the same |
//!
//! Why in this order: a source that forgot leaves a page that may agree with its sum, and nobody
//! who knows better. A source that still knows has the next pass cover what the device had.

use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_redundancy::events::{Cause, Event, Finder, Outcome};
use holdfast_redundancy::{PageVerdict, Unsure};

use crate::bits::Bits;
use crate::check::Vouched;
use crate::engine::{Inner, Mapped};
use crate::error::Result;
use crate::options::Writers;
use crate::repair::{Force, Mended};
use crate::side::COPIES;

/// Heeding stores that went with the memory.
const STORES: Site = Site::new("mapped.heal.stores");
/// Heeding passes that came between the failure and the question.
const SINCE: Site = Site::new("mapped.heal.since");
const BITS: Site = Site::new("mapped.heal.bits");
const RECORD: Site = Site::new("mapped.heal.record");
const DRAIN: Site = Site::new("mapped.heal.drain");
/// Having the source forget the page.
const FORGET: Site = Site::new("mapped.heal.forget");

/// A thread that meets a failure may wait so long for a processor before it notes the time.
const LATE_NS: u64 = 10_000_000;

/// What a load of the program met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadFault {
    /// The page was not in memory, and could not be read in: no store to it was lost.
    Unread,
    /// The memory that held the page failed (on Linux, `BUS_MCEERR_AR` and `BUS_MCEERR_AO`).
    Memory {
        /// For how long the thread has known it by now, in nanoseconds.
        age_ns: u64,
    },
}

impl<F: Medium, S: Medium, D: DirtySource> Mapped<F, S, D> {
    /// Puts right the page numbered `page`, which a load could not have. `writers` holds up whoever
    /// may store to this page. What is not given back is told, once.
    ///
    /// # Errors
    /// As [`repair`](Self::repair).
    pub fn heal_load(&self, page: u64, met: LoadFault, writers: &dyn Writers) -> Result<Mended> {
        let started = self.clock.now();
        // From the verdict to what is done about it: a pass that came between would cover what the
        // system read in.
        let mut inner = self.lock_to_write()?;
        let inner = &mut *inner;
        let failed = match met {
            LoadFault::Unread => None,
            LoadFault::Memory { age_ns } => Some(started.saturating_sub(age_ns)),
        };
        if let Some(since) = failed
            && self.is_too_late(inner, page, since)
        {
            return self.lost_stores(inner, page);
        }
        let mended = match self.look_at_locked(inner, page, &mut Vouched::default())? {
            PageVerdict::Good => return Ok(Mended::Good),
            PageVerdict::Corrupt => self.repair_in(inner, page, writers, Force::No)?,
            PageVerdict::Undecided(why) => Mended::Undecided(why),
        };
        match mended {
            // Of one that parity cannot give back, the repair has said so.
            Mended::Good | Mended::Repaired | Mended::Lost => {}
            // That was told when it was found.
            Mended::Undecided(Unsure::MemoryFailed) => {}
            // Stored to since it was covered, perhaps just now, on top of what the system read in.
            Mended::Undecided(Unsure::Uncovered | Unsure::StoredTo | Unsure::Media(_))
                if failed.is_some() && self.side.s.enabled(STORES) =>
            {
                return self.lost_stores(inner, page);
            }
            Mended::Busy => self.tell_lost(inner, page, 0),
            Mended::Undecided(why) => self.tell_lost(inner, page, why.code()),
        }
        Ok(mended)
    }

    /// The memory of a page failed, and nobody may say what was stored to it: it is undecided.
    ///
    /// # Errors
    /// As [`heal_load`](Self::heal_load).
    pub fn doubt_load(&self, page: u64) -> Result<Mended> {
        let mut inner = self.lock_to_write()?;
        self.lost_stores(&mut inner, page)
    }

    /// Whether the source cannot say any more what was stored to a page whose memory failed at
    /// `since`: it lost track, or a pass took that away, and covered what the system had read in.
    fn is_too_late(&self, inner: &Inner, page: u64, since: u64) -> bool {
        let place = self.stripes.place(page);
        let region = inner.regions.get(&place.region).filter(|region| region.admitted);
        region.is_some_and(|region| {
            let covered = region.record.covered_ns >= since.saturating_sub(LATE_NS);
            let intact = || self.d.intact(page.saturating_mul(PAGE), PAGE);
            let unasked = region.unasked().has(place.inside);
            covered && self.side.s.enabled(SINCE) || unasked || !intact()
        })
    }

    /// Makes a page undecided for good: what was stored to it is gone, and what it holds may look
    /// right.
    fn lost_stores(&self, inner: &mut Inner, page: u64) -> Result<Mended> {
        let place = self.stripes.place(page);
        let why = Unsure::MemoryFailed;
        let region = inner.regions.get_mut(&place.region);
        let Some(region) = region.filter(|region| place.inside < region.record.pages) else {
            // Nothing covers it, so nothing can be taken for right by mistake.
            self.tell_lost(inner, page, Unsure::Uncovered.code());
            return Ok(Mended::Undecided(Unsure::Uncovered));
        };
        let one = Bits::one(place.inside);
        let told = region.undecided().has(place.inside)
            && region.is_told(place.inside)
            && region.reason(place.inside) == why;
        region.stale = region.stale.or(one);
        region.observed = region.observed.without(one);
        region.marks = region.marks.without(one);
        region.reasons.insert(place.inside, why);
        // Until the journal has it, the record says that it was not told: else nobody would, if
        // this comes to nothing, or we die.
        if !told {
            region.presumed.insert(place.inside);
        }
        region.record.generation += 1;
        region.tell_why(place.region, &self.side.places, region.undecided(), Unsure::Unobserved);
        let done = self.keep_doubt(inner, place.region);
        self.settle(inner, done)?;
        if !told {
            inner.counts.undecided += 1;
            let event = self.unsure(self.since(inner, page), Finder::Load, why);
            self.report(inner, &event);
            if let Some(region) = inner.regions.get_mut(&place.region) {
                region.presumed.remove(one);
            }
        }
        if self.side.s.enabled(FORGET) {
            self.take_own(inner, page)?;
            self.d.forget(page.saturating_mul(PAGE), PAGE);
        }
        Ok(Mended::Undecided(why))
    }

    /// Step 1, and its drain.
    fn keep_doubt(&self, inner: &Inner, number: u64) -> Result<()> {
        let Some(region) = inner.regions.get(&number) else { return Ok(()) };
        self.side.put_bits(BITS, number, region.stale, Some(region.observed))?;
        for copy in COPIES {
            self.side.put_record(RECORD, number, copy, &region.record)?;
        }
        self.side.persist(DRAIN)
    }

    /// Tells, once, that a page is not given back to who loads it.
    fn tell_lost(&self, inner: &mut Inner, page: u64, reason: u8) {
        let place = self.stripes.place(page);
        if let Some(region) = inner.regions.get_mut(&place.region) {
            // Damage was told when it was found: that it stays is another thing.
            let told = region.reported.has(place.inside) && reason != 0;
            region.reported.insert(place.inside);
            if told {
                return;
            }
        }
        let event = self.event(self.since(inner, page), Finder::Load, Outcome::Lost);
        self.report(inner, &Event { cause: Cause::MediaError, object: reason.into(), ..event });
    }
}
