//! Opening a side file, after whatever happened.
//!
//! | found | doubt | done |
//! |---|---|---|
//! | no header that verifies | | an error; the data file is not touched |
//! | both copies of a region's record damaged | tracking lost | as below |
//! | other boot, and nothing was synced | tracking lost | as below |
//! | the same, and nothing is left of a region that has storage | tracking lost | as below |
//! | closed and unchanged, the same, and it is not zeros | tracking lost | as below |
//! | region suspect, and the source does not vouch for it | tracking lost | as below |
//! | data file changed, and the source does not vouch | changed while unprotected | as below |
//! | the same but for the change, where stores are not dated | undated | as below |
//! | entries of a region damaged or unreadable | sums damaged | as below; parity may vouch |
//! | region suspect, and the source vouches | none | its stale pages only |
//! | region clean | none | its stale pages only |
//! | a repair that was under way | its page: unobserved | as below, and told |
//! | region suspect, a first store to a page is on record | of that page none | stale, observed |
//!
//! | page of a region in doubt, or stale | done |
//! |---|---|
//! | agrees with its entry | good; parity of its stripe is made to add up |
//! | agrees with the entry before, if the machine stopped | thrown back: entry and parity follow |
//! | differs, was observed | it was stored to for certain: covered |
//! | differs, was not observed | undecided; stays stale, so that no later opening says corrupt |
//!
//! The entry before counts where the machine stopped since the header was written: for pages a pass
//! was cut off at, and, where nothing was synced, for all. A kill throws nothing back.
//!
//! A record of a first store is believed where the notes of a pass are, if the region's own record
//! says that it was suspect, and not in a region at rest, of which rot is all that it could tell.
//! It is there from before the store until a pass has durably noted that the page was stored to
//! (drain **N**), so a page stored to is one or the other in every image a crash may leave.
//! Recovery is a pass in which nothing is asked and nobody stores: it takes over the same way,
//! region by region.
//!
//! | step (those of `commit.rs`) | crash after it leaves of a page that was on record |
//! |---|---|
//! | 3 stale and observed, both copies | the record, and perhaps the bits |
//! | **N** | both |
//! | 3b the record cleared, whether it was believed or not | the bits, and perhaps the record |
//! | 4 to **C** | the bits; the clearing is durable by **C** at the latest |
//! | 6, **E** | a page that is covered, or undecided, and not on record |
//! | header | the same; not before, writers are let in |
//!
//! So what a session recorded is used up before the next one begins: no rot of later days is taken
//! for a store. What lies there in regions that need no recovery is cleared when writers are let in
//! (`admit.rs`).
//!
//! A file that had grown when the header was written, and of whose new part a region's record does
//! not know yet, was never covered there: those pages are marked. So is what it grew by since; but
//! not a page there that a repair was replacing, for that had been covered. Where the machine
//! stopped with nothing synced, header and record may be older than the cover, and a page older
//! than its repair: there nothing is marked, no note of a store is believed, and what the source
//! tells of one is thrown away.
//!
//! Only after all of that is durable is the header brought up to date, which makes the regions
//! believed again. Everything may be done twice: a crash in the middle finds the same again.

use core::ops::Range;
use std::sync::Arc;

use holdfast_pmem::track::{DirtySource, RecordPlaces};
use holdfast_pmem::{Clock, Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::events::{Cause, Event, Finder, Outcome};
use holdfast_redundancy::{RepairIntent, Unsure};

use crate::admit::Seen;
use crate::bits::Bits;
use crate::check::joined;
use crate::commit::{Ask, Covered};
use crate::engine::{Inner, Mapped};
use crate::error::{Error, Result};
use crate::header::{Header, HeaderPage, State};
use crate::options::{Durability, Facts, Identity, OpenOptions};
use crate::region::Region;
use crate::side::{Found, Kind, Places, RegionRecord, Side};
use crate::why::Why;

/// Believing records of first stores.
const RECORDED: Site = Site::new("mapped.recover.recorded");
/// Taking the store of an interrupted repair for what it is.
const INTERRUPTED: Site = Site::new("mapped.recover.interrupted");
/// What a region has lost is not what it never had.
const WIPED: Site = Site::new("mapped.recover.wiped");
/// That less is promised is on the disk.
const LOWER: Site = Site::new("mapped.recover.lower");
/// What more is promised of is there: the data, and the side file.
const RAISE_DATA: Site = Site::new("mapped.recover.raise-data");
const RAISE: Site = Site::new("mapped.recover.raise");
/// The date of a file that has another one than was noted.
const DATE: Site = Site::new("mapped.recover.date");

/// How far a side file is believed as it was found.
#[derive(Debug, Clone, Copy)]
struct Trust {
    /// What it notes outlived the last stop, of whatever stopped.
    believed: bool,
    /// The data file is not what it was then.
    changed: bool,
    /// Its date would tell.
    dated: bool,
}

/// What opening found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// What the header said.
    pub state: State,
    /// The data file is not the one that was left: another inode, length or time of change.
    pub changed: bool,
    /// It has another inode: it is another file.
    pub other: bool,
    /// Regions in which a page that differs proved nothing.
    pub doubtful: u64,
    /// Regions whose records had a damaged copy.
    pub damaged: u64,
    /// What was covered, and what is undecided now. Nothing if opened for looking.
    pub recovered: Covered,
    /// The page a repair was replacing when it was interrupted.
    pub interrupted: Option<u64>,
}

/// What is assumed of a region whose record is lost in both copies.
fn unknown(pages: u32) -> RegionRecord {
    RegionRecord {
        kind: Kind::Suspect,
        generation: 0,
        meta: 0,
        rest: 0,
        pages,
        verified_ns: 0,
        covered_ns: 0,
        unusable: u64::MAX,
        why: Why::default(),
    }
}

/// Where in the side file `s` first stores are recorded, for a source that does so before it lets
/// them through: asked before the file is opened with that source. While the data file grows, the
/// side file does before anything new is tracked.
///
/// # Errors
/// As [`Mapped::open`]: there is no header that can be used.
pub fn record_places<S: Medium>(s: &S) -> Result<RecordPlaces> {
    let header = HeaderPage::load(s)?.value.in_force()?;
    let stripe = Error::Header { what: "stripe", found: header.stripes.data().into() };
    Places::of(&header).records().ok_or(stripe)
}

impl<F: Medium, S: Medium, D: DirtySource> Mapped<F, S, D> {
    /// Opens the side file `s` of the data file `f`. Writers are let in by
    /// [`admit`](Self::admit); until then nobody stores, or the source vouches for it.
    ///
    /// # Errors
    /// What kept the side file from being used; the data file is never changed.
    pub fn open(
        f: F,
        s: S,
        d: D,
        facts: Arc<dyn Facts>,
        clock: Arc<dyn Clock>,
        options: OpenOptions,
    ) -> Result<(Self, Opened)> {
        // Nobody stops it.
        let (this, opened, _) = Self::begin_open(f, s, d, facts, clock, options, &mut |_, _| true)?;
        Ok((this, opened))
    }

    /// The same in steps, if there is something to recover: `step` is told how many of how many
    /// pages were looked at, and answers whether to go on. `None` if it was stopped: the side file
    /// is then as after a crash in the middle, and the next opening begins again.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in_steps(
        f: F,
        s: S,
        d: D,
        facts: Arc<dyn Facts>,
        clock: Arc<dyn Clock>,
        options: OpenOptions,
        step: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Option<(Self, Opened)>> {
        let (this, opened, whole) = Self::begin_open(f, s, d, facts, clock, options, step)?;
        Ok(whole.then_some((this, opened)))
    }

    /// Opens the side file; whether it is recovered whole.
    fn begin_open(
        f: F,
        s: S,
        d: D,
        facts: Arc<dyn Facts>,
        clock: Arc<dyn Clock>,
        options: OpenOptions,
        step: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(Self, Opened, bool)> {
        let header = HeaderPage::load(&s)?;
        let value = header.value.in_force()?;
        // Whoever changes the file from here on leaves another date than this.
        let identity = facts.identity().map_err(Error::Identity)?;
        // A page that was repaired may lie in a part that the file had just grown by, and of which
        // the header does not know yet.
        let most = value.identity.size.max(identity.size.min(f.len()));
        let intent = RepairIntent::load(&s, value.mirror(), most)
            .unwrap_or_else(|_| RepairIntent::lost(value.mirror()));
        let side = Side { s, places: Places::of(&value), durability: options.durability };
        let this = Self::assemble(f, side, d, facts, clock, options, header, intent);
        let mut inner = this.lock();
        let mut opened = this.load(&mut inner, &value, identity)?;
        let whole = if options.read_only {
            true
        } else {
            this.promise_less(&mut inner)?;
            this.recover(&mut inner, &mut opened, identity, step)?
        };
        drop(inner);
        Ok((this, opened, whole))
    }

    /// Reads the states of all regions and says which of them are in doubt. Writes nothing.
    fn load(&self, inner: &mut Inner, header: &Header, identity: Identity) -> Result<Opened> {
        let changed = identity != header.identity;
        let dated = self.facts.dates_stores();
        let believed = self.is_believed(header);
        let size = header.identity.size;
        // Who only looks sees the last page as long as it is now: it may have been covered so.
        let last = size.next_multiple_of(PAGE);
        let there = self.size_now()?;
        let grown = if self.options.read_only { there.min(last) } else { 0 };
        inner.size = size.max(grown);
        inner.believed = believed;
        // A file that was closed has no pass that was cut off.
        inner.stopped = header.boot != self.options.boot && header.state == State::Open;
        let mut opened = Opened {
            state: header.state,
            changed,
            other: identity.inode != header.identity.inode,
            doubtful: 0,
            damaged: 0,
            recovered: Covered::default(),
            interrupted: inner.intent.active().map(|intent| intent.at / PAGE),
        };
        // Of what is cut off now nothing is asked, however long the header says that it was.
        let count = size.min(there).div_ceil(self.stripes.region_len());
        let trust = Trust { believed, changed, dated };
        let at_rest = believed && !changed && dated && header.state == State::Clean;
        let mut events = None;
        for number in self.to_load(count, size.min(there)).into_iter().flatten() {
            if self.side.places.len_for(number + 1) > self.side.s.len() {
                if !at_rest || !self.reads_as_zeros(number, size) {
                    self.load_nothing(inner, number, size, &mut opened);
                }
                continue;
            }
            let found = self.side.state(number);
            if found.empty && at_rest && self.side.s.enabled(WIPED) {
                // Closed, and nobody changed it since: it was covered, and was wiped out.
                if !self.reads_as_zeros(number, size) {
                    self.load_nothing(inner, number, size, &mut opened);
                }
                continue;
            }
            if found.empty && (believed || !self.has_storage(number, size)) {
                continue;
            }
            let mut region = self.load_region(number, size, &found, trust);
            self.load_reasons(number, &found, &mut region, &mut events);
            if header.sums() && region.record.generation > 0 {
                self.load_sums(number, &mut region);
            }
            if trust.believed && !opened.other {
                self.load_records(number, &found, &mut region);
            }
            opened.doubtful += u64::from(region.doubt.is_some());
            region.renew = found.damaged.contains(&true);
            opened.damaged += u64::from(region.renew);
            inner.regions.insert(number, Box::new(region));
        }
        Ok(opened)
    }

    /// Of `count` regions, those that either file has storage for. All others are holes in both,
    /// of which nothing is known and nothing is missed: there may be more than can be counted.
    fn to_load(&self, count: u64, size: u64) -> Vec<Range<u64>> {
        let mut found = self.side.written(0..count);
        // Asking for the others is enough, and all there is to it where there are none.
        let mut next = 0;
        for run in found.clone().into_iter().chain(core::iter::once(count..count)) {
            let (at, end) = (self.range(next).0, self.range(run.start).0.min(size));
            if at < end {
                let each = &mut |at, len| found.push(self.touched(at, len, size));
                self.facts.allocated(at, end - at, each);
            }
            next = run.end;
        }
        joined(found, count)
    }

    /// Whether what a side file with this header notes outlived the last stop.
    fn is_believed(&self, header: &Header) -> bool {
        let synced = header.durability == Durability::Power && self.f.kind() != MediumKind::Dax;
        let named = header.boot != [0; 16];
        synced || named && header.boot == self.options.boot
    }

    /// What the states of a region say of it, and whether it is in doubt.
    fn load_region(&self, number: u64, size: u64, found: &Found, trust: Trust) -> Region {
        let pages = self.pages_of(number, size);
        let (at, len) = self.span(number, pages);
        let vouched = trust.believed && self.d.intact(at, len);
        let relied = vouched && (found.suspect || trust.changed || !trust.dated);
        let record = found.record.unwrap_or_else(|| unknown(pages));
        let kind = if found.suspect { Kind::Suspect } else { record.kind };
        let known = record.pages.min(pages);
        // Cut off, and no pass had come by since.
        let unusable = record.unusable | self.cut_stripes(number, pages, record.pages);
        let record = RegionRecord { kind, pages, unusable, ..record };
        let mut region = Region::found(record, self.clock.now());
        region.stale = found.stale;
        // Where nothing was synced, an old note that a page was stored to, or that the file had
        // less of them, may have outlived the newer one that it was covered.
        if trust.believed {
            region.observed = found.observed;
            // The header knew that the file had grown, and no pass had come by since.
            region.marks = Bits::first(pages).without(Bits::first(known));
        }
        (region.thrown, region.relied) = (!trust.believed, relied);
        let lost = found.record.is_none() || !trust.believed || found.suspect && !vouched;
        region.doubt = match (lost, vouched || !trust.changed, vouched || trust.dated) {
            (true, ..) => Some(Unsure::TrackingLost),
            (_, false, _) => Some(Unsure::ChangedWhileUnprotected),
            (.., false) => Some(Unsure::Undated),
            _ => None,
        };
        region
    }

    /// Why pages are undecided. A pass that was cut off may have told of some before it could note
    /// that it did.
    fn load_reasons(
        &self,
        number: u64,
        found: &Found,
        region: &mut Region,
        events: &mut Option<Vec<Event>>,
    ) {
        let (reasons, presumed) = self.side.reasons(number, found);
        region.reasons = reasons;
        region.presumed.set(presumed);
        if presumed.is_empty() || self.options.read_only {
            return;
        }
        let events = events.get_or_insert_with(|| self.events()).iter();
        let since = events.filter(|event| event.time_ns >= found.covered_ns);
        for event in since.filter(|event| event.outcome == Outcome::Undecided) {
            let place = self.stripes.place(event.at / PAGE);
            let why = region.reasons.get(&place.inside).map(|why| u64::from(why.code()));
            if place.region == number && why == Some(event.object) {
                region.presumed.remove(Bits::one(place.inside));
            }
        }
    }

    /// Pages of which a first store is on record were stored to. Asked after the sums: those of a
    /// pass that was cut off are of its own notes.
    fn load_records(&self, number: u64, found: &Found, region: &mut Region) {
        let suspect = found.suspect && found.record.is_some();
        if suspect && self.side.s.enabled(RECORDED) {
            let recorded = self.side.recorded(number).and(Bits::first(region.record.pages));
            region.stale = region.stale.or(recorded);
            region.observed = region.observed.or(recorded);
        }
    }

    /// Holds the entries of a region against their sum, or against that of the rest if a pass was
    /// cut off among them.
    fn load_sums(&self, number: u64, region: &mut Region) {
        let entries = self.side.entries(number).unwrap_or_default();
        if !entries.is_empty() && self.meta_agrees(number, region, &entries) {
            return;
        }
        region.unfinished = Some(Box::new(region.stale));
        let cut_off = !entries.is_empty() && !region.stale.is_empty();
        if !cut_off || !self.meta_agrees(number, region, &entries) {
            (region.unfinished, region.torn) = (None, cut_off);
            region.doubt = region.doubt.or(Some(Unsure::SumsDamaged));
        }
    }

    /// The side file was cut off before a region: nothing is known of it.
    fn load_nothing(&self, inner: &mut Inner, number: u64, size: u64, opened: &mut Opened) {
        if !self.has_storage(number, size) {
            return;
        }
        let record = unknown(self.pages_of(number, size));
        let mut region = Region::found(record, self.clock.now());
        (region.doubt, region.renew) = (Some(Unsure::TrackingLost), true);
        inner.regions.insert(number, Box::new(region));
        opened.doubtful += 1;
        opened.damaged += 1;
    }

    /// A page that was being replaced may be a mix of what it was and what it was to be, and the
    /// store that the source tells of may be ours: it proves nothing.
    fn doubt_interrupted(&self, inner: &mut Inner, page: u64) -> Result<()> {
        let place = self.stripes.place(page);
        let Some(region) = inner.regions.get_mut(&place.region) else { return Ok(()) };
        if place.inside >= region.record.pages || !self.side.s.enabled(INTERRUPTED) {
            return Ok(());
        }
        let one = Bits::one(place.inside);
        region.stale = region.stale.or(one);
        region.observed = region.observed.without(one);
        // Nor does it count as new: the file had grown, but the page was covered before.
        region.marks = region.marks.without(one);
        if self.d.intact(page * PAGE, PAGE) {
            self.d.take(page * PAGE, PAGE, &mut |_, _| {})?;
        }
        Ok(())
    }

    /// Where nothing was synced, nothing counts as stored to, nor as what the file grew by: what is
    /// noted of it may be older than that it was covered, and what lies there older than a repair.
    /// Nor is a store that the source tells of there for certain.
    fn doubt_all(&self, inner: &mut Inner) -> Result<()> {
        if inner.believed {
            return Ok(());
        }
        for (number, region) in &mut inner.regions {
            region.doubt = region.doubt.or(Some(Unsure::TrackingLost));
            (region.marks, region.thrown) = (Bits::NONE, true);
            for inside in 0..region.record.pages {
                let at = self.number(*number, inside) * PAGE;
                if self.d.intact(at, PAGE) {
                    self.d.take(at, PAGE, &mut |_, _| {})?;
                }
            }
        }
        Ok(())
    }

    /// Whether the data file has storage for some of a region.
    fn has_storage(&self, number: u64, size: u64) -> bool {
        let (at, len) = self.span(number, self.pages_of(number, size));
        let mut any = false;
        self.facts.allocated(at, len, &mut |_, len| any |= len > 0);
        any
    }

    /// Whether a region is zeros, as storage is that was never written to. File systems call that
    /// data once somebody has read it; it was never covered, and there is nothing to miss.
    fn reads_as_zeros(&self, number: u64, size: u64) -> bool {
        if !self.has_storage(number, size) {
            return true;
        }
        let mut bytes = vec![0; PAGE as usize];
        (0..self.pages_of(number, size)).all(|inside| {
            let read = self.read_page(size, self.number(number, inside), &mut bytes);
            read.is_ok() && holdfast_codes::is_zero(&bytes)
        })
    }

    /// From here on redundancy is not to survive power cuts any more: that has to be on the disk
    /// before anybody stores, whatever else of the side file gets there. Else a power cut would
    /// leave a file that says it was closed, and a program's synced bytes that are not what it
    /// says.
    fn promise_less(&self, inner: &mut Inner) -> Result<()> {
        if inner.header.value.durability <= self.options.durability {
            return Ok(());
        }
        let header = &mut inner.header.value;
        if self.is_believed(header) && !inner.stopped {
            // Nor is it of an earlier run, in which nothing had to be synced: else nobody would
            // believe it if this opening does not come to its end. Of a pass that a stop of the
            // machine cut off, the next one has to know.
            header.boot = self.options.boot;
        }
        header.durability = self.options.durability;
        header.generation += 1;
        inner.header.store(&self.side.s)?;
        self.side.s.sync_through(LOWER)?;
        Ok(())
    }

    /// Writes the copies of header and events anew that are damaged, or older.
    fn heal_copies(&self, inner: &mut Inner) -> Result<()> {
        let damaged = inner.header.take_damaged();
        if inner.header.needs_heal() {
            inner.header.heal(&self.side.s)?;
        }
        self.journal.heal(&self.side.s);
        if let Some(copy) = damaged {
            self.report_copy(inner, copy, Finder::Open, Outcome::Repaired);
        }
        Ok(())
    }

    /// Whether it came to its end: `step` may stop it.
    fn recover(
        &self,
        inner: &mut Inner,
        opened: &mut Opened,
        identity: Identity,
        step: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<bool> {
        self.heal_copies(inner)?;
        self.resize(inner, Seen::Unwatched)?;
        if let Some((last, _)) = inner.regions.last_key_value() {
            self.side.reach(last + 1)?;
        }
        self.doubt_all(inner)?;
        if let Some(page) = opened.interrupted {
            self.doubt_interrupted(inner, page)?;
        }
        // A page that was covered, in a part of which the header does not know: the next opening
        // would take it for new with all of that, so that is covered now, but for the page.
        let known = inner.header.value.identity.size;
        // Of a header that may be an older one the same goes for all that is not in it.
        let grown =
            !inner.believed || opened.interrupted.is_some_and(|page| page >= known.div_ceil(PAGE));
        let due: Vec<u64> = inner
            .regions
            .iter()
            .filter(|(_, r)| {
                let new = grown && !r.marks.is_empty();
                r.doubt.is_some() || !r.stale.is_empty() || r.renew || new
            })
            .map(|(number, _)| *number)
            .collect();
        let Some(covered) = self.cover_in_steps(inner, &due, Ask::Known, step)? else {
            return Ok(false);
        };
        opened.recovered = covered;
        if let Some(page) = opened.interrupted {
            let after_sum = inner.intent.active().map_or(0, |intent| intent.sum);
            let since = self.since(inner, page);
            let event = self.event(since, Finder::Repair, Outcome::Detected);
            self.report(inner, &Event { cause: Cause::Sum, after_sum, ..event });
            inner.intent.clear(&self.side.s)?;
        }
        if inner.header.value.durability < self.options.durability {
            // What was covered for the death of processes is to survive power cuts from here on:
            // both files, in whatever cache they are, before the header says so.
            self.f.sync_through(RAISE_DATA).map_err(Error::DataSync)?;
            self.side.s.sync_through(RAISE)?;
        }
        if grown {
            self.wipe_cut_off(inner)?;
        }
        let noted = &inner.header.value;
        if noted.identity.mtime_ns != identity.mtime_ns
            || noted.durability < self.options.durability
        {
            self.sync_identity(DATE)?;
        }
        let header = &mut inner.header.value;
        // What the file grew by is not covered yet. Until it is, what the side file has for it may
        // be of a longer file that was cut off long ago, and must not be taken for its sums.
        let size = if grown { inner.size } else { header.identity.size.min(inner.size) };
        header.identity = Identity { size, ..identity };
        header.boot = self.options.boot;
        header.durability = self.options.durability;
        header.generation += 1;
        inner.header.store(&self.side.s)?;
        (inner.stopped, inner.believed) = (false, true);
        Ok(true)
    }
}
