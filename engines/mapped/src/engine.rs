//! The protection of one file: its parts, and what all operations share.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_layout::Certify;
use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{Clock, MediaError, Medium, PAGE, Site, SyncError};
use holdfast_redundancy::events::{Cause, Event, Finder, Outcome};
use holdfast_redundancy::{Journal, PageStripes, RepairIntent, Unsure, Wrong, verdict};
use holdfast_sync::{Mutex, MutexGuard, PoisonError};

use crate::bits::Bits;
use crate::error::{Error, Result};
use crate::header::{Header, HeaderPage};
use crate::options::{Durability, Facts, Folios, Identity, OpenOptions};
use crate::region::Region;
use crate::side::Side;
use crate::trace::Tracer;

/// Holding a page against its sum.
const VERIFY_PAGE: Site = Site::new("mapped.engine.verify-page");
/// Holding the entries of a region against their sum.
const VERIFY_META: Site = Site::new("mapped.engine.verify-meta");

/// Protects one data file with one side file: keeps sums and parity of its pages, finds what was
/// damaged, and repairs it. Drives nothing by itself: whoever owns it calls
/// [`pass`](Self::pass) and [`scrub_step`](Self::scrub_step).
pub struct Mapped<F, S, D> {
    pub(crate) f: F,
    pub(crate) side: Side<S>,
    pub(crate) d: D,
    pub(crate) facts: Arc<dyn Facts>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: OpenOptions,
    pub(crate) stripes: PageStripes,
    pub(crate) seed: u32,
    pub(crate) journal: Journal,
    pub(crate) inner: Mutex<Inner>,
}

/// What changes.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) header: HeaderPage,
    pub(crate) intent: RepairIntent,
    /// The page that was stored to by us last, if that could not be put off the record: its intent
    /// has to go on saying so.
    pub(crate) on_record: Option<u64>,
    /// Regions that have storage in the data file. In boxes: ascending numbers leave the nodes of a
    /// tree half empty, and a region is large.
    pub(crate) regions: BTreeMap<u64, Box<Region>>,
    /// Bytes of the data file that are looked after.
    pub(crate) size: u64,
    /// How often it was seen to have been cut off.
    pub(crate) cuts: u64,
    /// Range in which writers are admitted: from, to.
    pub(crate) admitted: Option<(u64, u64)>,
    /// The next region a scrub looks at.
    pub(crate) scrub_next: u64,
    /// Buffers of one stripe.
    pub(crate) rows: Vec<u8>,
    pub(crate) parity: Vec<u8>,
    pub(crate) counts: Counts,
    /// Which pages passes found stored to, if anybody wants to know.
    pub(crate) trace: Tracer,
    /// The machine stopped since the file was last open, and nothing was recovered yet: a page that
    /// was being covered may be what it was before.
    pub(crate) stopped: bool,
    /// What the side file notes outlived that. If not, and until it is recovered, no page counts
    /// as new or stored to.
    pub(crate) believed: bool,
    /// We changed the data file, or let somebody: its date is another one because of us.
    pub(crate) touched: bool,
    /// A write failed: nothing more is written.
    pub(crate) failed: bool,
}

/// What was found and done since the file was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Passes that covered something.
    pub passes: u64,
    /// Pages covered.
    pub covered: u64,
    /// Pages reported as stored to that had not changed.
    pub unchanged: u64,
    /// Damaged pages found.
    pub corrupt: u64,
    /// Pages put right.
    pub repaired: u64,
    /// Pages that became undecided.
    pub undecided: u64,
    /// Events that could not be written to the journal.
    pub unreported: u64,
}

impl<F: Medium, S: Medium, D: DirtySource> Mapped<F, S, D> {
    #[expect(clippy::too_many_arguments, reason = "the parts of the engine, once")]
    pub(crate) fn assemble(
        f: F,
        side: Side<S>,
        d: D,
        facts: Arc<dyn Facts>,
        clock: Arc<dyn Clock>,
        options: OpenOptions,
        header: HeaderPage,
        intent: RepairIntent,
    ) -> Self {
        let value = header.value;
        let events = value.side_len - crate::format::EVENTS_FROM;
        let journal = Journal::open_at(&side.s, value.mirror(), events);
        let inner = Inner {
            header,
            intent,
            on_record: None,
            regions: BTreeMap::new(),
            size: 0,
            cuts: 0,
            admitted: None,
            scrub_next: 0,
            rows: vec![0; value.stripes.rows_len()],
            parity: vec![0; value.stripes.parity_len()],
            counts: Counts::default(),
            trace: Tracer::new(options.trace),
            stopped: false,
            believed: true,
            touched: false,
            failed: false,
        };
        Self {
            f,
            side,
            d,
            facts,
            clock,
            options,
            stripes: value.stripes.by(options.instructions),
            seed: value.seed(),
            journal,
            inner: Mutex::new(inner),
        }
    }

    /// After a thread panicked while it held this lock, pages are still looked at: regions it had
    /// taken out count as not covered.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`lock`](Self::lock), for changes.
    pub(crate) fn lock_to_write(&self) -> Result<MutexGuard<'_, Inner>> {
        let inner = self.inner.lock().map_err(|_| Error::ReadOnly)?;
        if self.options.read_only || inner.failed {
            return Err(Error::ReadOnly);
        }
        Ok(inner)
    }

    /// Remembers a failed write: nothing is written from then on.
    pub(crate) fn settle<T>(&self, inner: &mut Inner, result: Result<T>) -> Result<T> {
        if let Err(Error::Sync(_) | Error::DataSync(_)) = result {
            inner.failed = true;
        }
        result
    }

    /// The data file.
    pub fn data(&self) -> &F {
        &self.f
    }

    /// The side file.
    pub fn side(&self) -> &S {
        &self.side.s
    }

    /// The source of writes.
    pub fn source(&self) -> &D {
        &self.d
    }

    /// The history of what was found and repaired.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// All events in the journal, ascending.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.journal.read_all(&self.side.s)
    }

    /// How the pages are divided.
    #[must_use]
    pub fn stripes(&self) -> PageStripes {
        self.stripes
    }

    /// The folio policy that was recorded.
    #[must_use]
    pub fn folios(&self) -> Folios {
        self.header().folios
    }

    /// What was found and done since the file was opened.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    pub(crate) fn header(&self) -> Header {
        self.lock().header.value
    }

    /// Bytes the system says the data file has, as far as they are mapped.
    pub(crate) fn size_now(&self) -> Result<u64> {
        Ok(self.identity()?.size.min(self.f.len()))
    }

    /// What the system says of the data file.
    pub(crate) fn identity(&self) -> Result<Identity> {
        self.facts.identity().map_err(Error::Identity)
    }

    /// To be called before the side file notes what the system says of the data file: a power cut
    /// that takes the date back would leave another one than is noted, and everything in doubt.
    pub(crate) fn sync_identity(&self, site: Site) -> Result<()> {
        if self.side.durability != Durability::Power || !self.side.s.enabled(site) {
            return Ok(());
        }
        let failed = |source| Error::DataSync(SyncError { call: "fsync", source });
        self.facts.sync_identity(site).map_err(failed)
    }

    /// Range of a region in the data file.
    pub(crate) fn range(&self, region: u64) -> (u64, u64) {
        let len = self.stripes.region_len();
        (region.saturating_mul(len), len)
    }

    /// The part of a region that is in the file, in whole pages: what is tracked of it.
    pub(crate) fn span(&self, region: u64, pages: u32) -> (u64, u64) {
        (self.range(region).0, u64::from(pages) * PAGE)
    }

    /// Pages of a region that are in a file of `size` bytes.
    pub(crate) fn pages_of(&self, region: u64, size: u64) -> u32 {
        let (at, len) = self.range(region);
        size.saturating_sub(at).min(len).div_ceil(PAGE) as u32
    }

    /// Number in the file of a region's page.
    pub(crate) fn number(&self, region: u64, inside: u32) -> u64 {
        region * u64::from(self.stripes.pages()) + u64::from(inside)
    }

    /// Reads a page; what lies behind the end of the file is zeros.
    pub(crate) fn read_page(
        &self,
        size: u64,
        page: u64,
        into: &mut [u8],
    ) -> Result<(), MediaError> {
        let at = page.saturating_mul(PAGE);
        let here = size.saturating_sub(at).min(PAGE) as usize;
        into[here..].fill(0);
        if here > 0 { self.f.read(at, &mut into[..here]) } else { Ok(()) }
    }

    /// The sum of a page as it is.
    pub(crate) fn sum(&self, page: u64, bytes: &[u8]) -> u32 {
        self.stripes.sum(self.seed, page, bytes)
    }

    /// Whether pages are held against their sums.
    pub(crate) fn certify_pages(&self) -> Certify {
        Certify::when(self.side.s.enabled(VERIFY_PAGE))
    }

    /// Whether the entries of a region are what was last covered; where a pass was cut off among
    /// them, all but those that it may have renewed.
    pub(crate) fn meta_agrees(&self, region: u64, state: &Region, entries: &[u64]) -> bool {
        let certify = Certify::when(self.side.s.enabled(VERIFY_META));
        let (sum, except) = match &state.unfinished {
            Some(renewed) => (state.record.rest, **renewed),
            None => (state.record.meta, Bits::NONE),
        };
        certify.agrees(sum, self.side.places.meta(region, entries, except))
    }

    /// Pages of a region stored to since they were last taken, without clearing anything.
    pub(crate) fn peek(&self, region: u64, pages: u32) -> Result<Bits> {
        let (at, len) = self.span(region, pages);
        let mut bits = Bits::NONE;
        self.d.peek(at, len, &mut |from, len| self.note(region, &mut bits, from, len))?;
        Ok(bits)
    }

    /// Takes what we stored to a page ourselves from what the source tells.
    pub(crate) fn take_own(&self, inner: &mut Inner, page: u64) -> Result<()> {
        let done = self.d.take(page.saturating_mul(PAGE), PAGE, &mut |_, _| {});
        let place = self.stripes.place(page);
        if let Some(region) = inner.regions.get_mut(&place.region) {
            match &done {
                Ok(()) => region.ours.remove(Bits::one(place.inside)),
                Err(_) => region.ours.insert(place.inside),
            }
        }
        Ok(done?)
    }

    /// Whether one page was stored to since it was last taken.
    pub(crate) fn peek_page(&self, page: u64) -> Result<bool> {
        let mut any = false;
        self.d.peek(page * PAGE, PAGE, &mut |_, len| any |= len > 0)?;
        Ok(any)
    }

    /// Adds a run of the file to a set of a region's pages.
    pub(crate) fn note(&self, region: u64, bits: &mut Bits, from: u64, len: u64) {
        let (at, whole) = self.range(region);
        let (start, end) = (from.max(at), from.saturating_add(len).min(at + whole));
        if start < end {
            for page in (start - at) / PAGE..(end - at).div_ceil(PAGE) {
                bits.insert(page as u32);
            }
        }
    }

    /// Regions that `[at, at + len)` touches, of those a file of `size` bytes has.
    pub(crate) fn touched(&self, at: u64, len: u64, size: u64) -> core::ops::Range<u64> {
        let region = self.stripes.region_len();
        let end = at.saturating_add(len).min(size).div_ceil(region);
        (at / region).min(end)..end
    }

    /// Those of them that are known. Of holes there may be more than can be counted.
    pub(crate) fn known(&self, inner: &Inner, at: u64, len: u64) -> Vec<u64> {
        let range = self.touched(at, len, inner.size);
        inner.regions.range(range).map(|(number, _)| *number).collect()
    }

    /// A page, and when its region was last verified; 0 if never.
    pub(crate) fn since(&self, inner: &Inner, page: u64) -> (u64, u64) {
        let region = inner.regions.get(&self.stripes.place(page).region);
        (page, region.map_or(0, |region| region.record.verified_ns))
    }

    /// Writes an event. A journal that cannot be written stops nothing.
    pub(crate) fn report(&self, inner: &mut Inner, event: &Event) {
        if !self.options.read_only && self.journal.append(&self.side.s, event).is_err() {
            inner.counts.unreported += 1;
        }
    }

    /// Tells in the journal that of two copies which lead to the redundancy of the whole file one
    /// was damaged when it was opened, or torn by a crash, and what became of it: of the header, or
    /// of what a program keeps beside it.
    pub fn tell_copy(&self, copy: verdict::Side, outcome: Outcome) {
        self.report_copy(&mut self.lock(), copy, Finder::Open, outcome);
    }

    pub(crate) fn report_copy(
        &self,
        inner: &mut Inner,
        copy: verdict::Side,
        finder: Finder,
        outcome: Outcome,
    ) {
        let (cause, wrong, len) = (Cause::Copies, Some(Wrong::Mirror { side: copy }), inner.size);
        let event = self.event((0, 0), finder, outcome);
        self.report(inner, &Event { cause, wrong, len, ..event });
    }

    /// An event about one page of the data file, whose region was last verified at `verified_ns`.
    pub(crate) fn event(
        &self,
        (page, verified_ns): (u64, u64),
        finder: Finder,
        outcome: Outcome,
    ) -> Event {
        Event { time_ns: self.clock.now(), verified_ns, ..about(page, finder, outcome) }
    }

    /// An event about a page that could not be decided; `object` keeps the reason.
    pub(crate) fn unsure(&self, page: (u64, u64), finder: Finder, why: Unsure) -> Event {
        let event = self.event(page, finder, Outcome::Undecided);
        let cause = cause(!matches!(why, Unsure::Media(_) | Unsure::MemoryFailed));
        Event { cause, object: why.code().into(), wrong: None, ..event }
    }
}

/// An event about one page of the data file, of no time.
pub(crate) const fn about(page: u64, finder: Finder, outcome: Outcome) -> Event {
    Event {
        sequence: 0,
        time_ns: 0,
        cause: Cause::Sum,
        finder,
        at: page * PAGE,
        len: PAGE,
        wrong: Some(Wrong::Data),
        before_sum: 0,
        after_sum: 0,
        outcome,
        duration_ns: 0,
        object: 0,
        verified_ns: 0,
    }
}

/// What tells that a page is not what was covered: its sum, if it could be read.
pub(crate) const fn cause(readable: bool) -> Cause {
    if readable { Cause::Sum } else { Cause::MediaError }
}

impl<F: fmt::Debug, S: fmt::Debug, D> fmt::Debug for Mapped<F, S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapped")
            .field("data", &self.f)
            .field("side", &self.side.s)
            .field("stripes", &self.stripes)
            .finish_non_exhaustive()
    }
}
