//! Opening a side file, after whatever happened.
//!
//! | found | doubt | done |
//! |---|---|---|
//! | no header that verifies | | an error; the data file is not touched |
//! | both copies of a region's record damaged | tracking lost | as below |
//! | other boot, and nothing was synced | tracking lost | as below |
//! | the same, and nothing is left of a region that has storage | tracking lost | as below |
//! | region suspect, and the source does not vouch for it | tracking lost | as below |
//! | data file changed, and the source does not vouch | changed while unprotected | as below |
//! | the same but for the change, where stores are not dated | undated | as below |
//! | entries of a region damaged or unreadable | sums damaged | as below; parity may vouch |
//! | region suspect, and the source vouches | none | its stale pages only |
//! | region clean | none | its stale pages only |
//! | a repair that was under way | its page: unobserved | as below, and told |
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
//! A file that had grown when the header was written, and of whose new part a region's record does
//! not know yet, was never covered there: those pages are marked.
//!
//! Only after all of that is durable is the header brought up to date, which makes the regions
//! believed again. Everything may be done twice: a crash in the middle finds the same again.

use std::sync::Arc;

use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{Clock, Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::events::{Cause, Event, Finder, Outcome};
use holdfast_redundancy::{RepairIntent, Unsure};

use crate::admit::Seen;
use crate::bits::Bits;
use crate::commit::{Ask, Covered};
use crate::engine::{Inner, Mapped};
use crate::error::{Error, Result};
use crate::header::{Header, HeaderPage, State};
use crate::options::{Durability, Facts, Identity, OpenOptions};
use crate::region::Region;
use crate::side::{Kind, Places, RegionRecord, Side};
use crate::why::Why;

/// Taking the store of an interrupted repair for what it is.
const INTERRUPTED: Site = Site::new("mapped.recover.interrupted");

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
        let value = header.value;
        if value.state == State::Ended {
            return Err(Error::Ended);
        }
        let intent = RepairIntent::load(&s, value.mirror(), value.identity.size)
            .unwrap_or_else(|_| RepairIntent::lost(value.mirror()));
        let side = Side { s, places: Places::of(&value), durability: options.durability };
        let this = Self::assemble(f, side, d, facts, clock, options, header, intent);
        let mut inner = this.lock();
        // Whoever changes the file from here on leaves another date than this.
        let identity = this.facts.identity();
        let mut opened = this.load(&mut inner, &value, identity)?;
        let whole = options.read_only || this.recover(&mut inner, &mut opened, identity, step)?;
        drop(inner);
        Ok((this, opened, whole))
    }

    /// Reads the states of all regions and says which of them are in doubt. Writes nothing.
    fn load(&self, inner: &mut Inner, header: &Header, identity: Identity) -> Result<Opened> {
        let changed = identity != header.identity;
        let dated = self.facts.dates_stores();
        let synced = header.durability == Durability::Power && self.f.kind() != MediumKind::Dax;
        let named = header.boot != [0; 16];
        let believed = synced || named && header.boot == self.options.boot;
        let size = header.identity.size;
        // Who only looks sees the last page as long as it is now: it may have been covered so.
        let last = size.next_multiple_of(PAGE);
        let grown = if self.options.read_only { self.size_now().min(last) } else { 0 };
        inner.size = size.max(grown);
        inner.stopped = header.boot != self.options.boot;
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
        let count = size.min(self.size_now()).div_ceil(self.stripes.region_len());
        for number in 0..count {
            if self.side.places.len_for(number + 1) > self.side.s.len() {
                self.load_nothing(inner, number, size, &mut opened);
                continue;
            }
            let found = self.side.state(number);
            if found.empty && (believed || !self.has_storage(number, size)) {
                continue;
            }
            let pages = self.pages_of(number, size);
            let (at, len) = self.span(number, pages);
            let vouched = believed && self.d.intact(at, len);
            let relied = vouched && (found.suspect || changed || !dated);
            let record = found.record.unwrap_or_else(|| unknown(pages));
            let kind = if found.suspect { Kind::Suspect } else { record.kind };
            let known = record.pages.min(pages);
            let mut region =
                Region::found(RegionRecord { kind, pages, ..record }, self.clock.now());
            // The header knew that the file had grown, and no pass had come by since.
            region.marks = Bits::first(pages).without(Bits::first(known));
            // Where nothing was synced, an old note that a page was stored to may have outlived
            // the newer one that it was covered.
            let observed = if believed { found.observed } else { Bits::NONE };
            (region.stale, region.observed) = (found.stale, observed);
            region.reasons = self.side.reasons(number, &found);
            (region.thrown, region.relied) = (!believed, relied);
            let lost = found.record.is_none() || !believed || found.suspect && !vouched;
            region.doubt = match (lost, vouched || !changed, vouched || dated) {
                (true, ..) => Some(Unsure::TrackingLost),
                (_, false, _) => Some(Unsure::ChangedWhileUnprotected),
                (.., false) => Some(Unsure::Undated),
                _ => None,
            };
            if header.sums() && region.record.generation > 0 {
                self.load_sums(number, &mut region);
            }
            opened.doubtful += u64::from(region.doubt.is_some());
            let damaged = found.damaged.contains(&true);
            opened.damaged += u64::from(damaged);
            region.renew = damaged;
            inner.regions.insert(number, Box::new(region));
        }
        Ok(opened)
    }

    /// Holds the entries of a region against their sum, or against that of the rest if a pass was
    /// cut off among them.
    fn load_sums(&self, number: u64, region: &mut Region) {
        let entries = self.side.entries(number).unwrap_or_default();
        if !entries.is_empty() && self.meta_agrees(number, region, &entries) {
            return;
        }
        region.unfinished = Some(region.stale);
        let cut_off = !entries.is_empty() && !region.stale.is_empty();
        if !cut_off || !self.meta_agrees(number, region, &entries) {
            region.unfinished = None;
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
        if self.d.intact(page * PAGE, PAGE) {
            self.d.take(page * PAGE, PAGE, &mut |_, _| {})?;
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

    /// Whether it came to its end: `step` may stop it.
    fn recover(
        &self,
        inner: &mut Inner,
        opened: &mut Opened,
        identity: Identity,
        step: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<bool> {
        if inner.header.needs_heal() {
            inner.header.heal(&self.side.s)?;
        }
        self.journal.heal(&self.side.s);
        self.resize(inner, Seen::Unwatched)?;
        if let Some((last, _)) = inner.regions.last_key_value() {
            self.side.reach(last + 1)?;
        }
        if let Some(page) = opened.interrupted {
            self.doubt_interrupted(inner, page)?;
        }
        let due: Vec<u64> = inner
            .regions
            .iter()
            .filter(|(_, r)| r.doubt.is_some() || !r.stale.is_empty() || r.renew)
            .map(|(number, _)| *number)
            .collect();
        let Some(covered) = self.cover_in_steps(inner, &due, Ask::Known, step)? else {
            return Ok(false);
        };
        opened.recovered = covered;
        if let Some(page) = opened.interrupted {
            let after_sum = inner.intent.active().map_or(0, |intent| intent.sum);
            let event = self.event(page, Finder::Repair, Outcome::Detected);
            self.report(inner, &Event { cause: Cause::Sum, after_sum, ..event });
            inner.intent.clear(&self.side.s)?;
        }
        if inner.header.value.durability != self.options.durability {
            // What was covered for the death of processes is now to survive power cuts.
            crate::commit::sync_data(&self.f, self.options.durability)?;
        }
        let header = &mut inner.header.value;
        // What the file grew by is not covered yet. Until it is, what the side file has for it may
        // be of a longer file that was cut off long ago, and must not be taken for its sums.
        let size = header.identity.size.min(inner.size);
        header.identity = Identity { size, ..identity };
        header.boot = self.options.boot;
        header.durability = self.options.durability;
        header.generation += 1;
        inner.header.store(&self.side.s)?;
        inner.stopped = false;
        Ok(true)
    }
}
