//! Making a side file, and ending the protection.
//!
//! | step | crash after it leaves |
//! |---|---|
//! | 1 intent, entries, parity and records of all regions, all flushed | no header: no side file |
//! | **data sync**, **drain**; the date of the file, **sync** | the same |
//! | 2 header: copy B, drain, copy A, drain | a side file that covers everything |
//!
//! The header comes last: what has none protects nothing, and is made anew.
//!
//! | step of closing a file at rest that was kept for the death of processes | power cut after it |
//! |---|---|
//! | 1 a last pass; records of all regions clean | a header that promises nothing of power cuts |
//! | 2 **sync** of the data file, its date too | the same |
//! | 3 **sync** of the side file | the same |
//! | 4 header, which promises: copy B, **sync**, copy A, **sync** | the same, or all of it |
//!
//! Why 2 before 4: else the header would vouch for sums of bytes that are not on the disk, and what
//! is there would look like damage. The date goes with them, since the header has it: a file with
//! another one was changed. Why 3 before 4: else it would vouch for entries of an earlier time. Why
//! the copies of 4 apart: one that is torn must not be the only one.

use std::sync::Arc;

use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{Clock, Medium, PAGE, Site};
use holdfast_redundancy::events::Finder;
use holdfast_redundancy::{PageStripes, RepairIntent};

use crate::admit::Seen;
use crate::commit::{Ask, Covered};
use crate::engine::{Inner, Mapped};
use crate::error::{Error, Result};
use crate::format::{FLAG_CONTESTED, FLAG_NO_PREVIOUS, FLAG_NO_SUMS, GROUP_MAX, SIDE_LENS};
use crate::header::{Header, HeaderPage, State};
use crate::options::{Durability, Facts, Identity, ProtectOptions};
use crate::side::{Places, Side};

/// What is promised of a file at rest is there: the data, and the side file.
const REST_DATA: Site = Site::new("mapped.protect.rest-data");
const REST: Site = Site::new("mapped.protect.rest");

/// The date that the file has when it is protected, and closed.
const DATE: Site = Site::new("mapped.protect.date");
const CLOSE_DATE: Site = Site::new("mapped.protect.close-date");

/// Data files of so many bytes have sides of full length.
const LARGE: u64 = 64 << 20;

impl<F: Medium, S: Medium, D: DirtySource> Mapped<F, S, D> {
    /// Protects the data file `f` as it is now with the side file `s`, which is new or given up:
    /// everything is read and covered. Nobody may store meanwhile; writers are let in by
    /// [`admit`](Self::admit).
    ///
    /// # Errors
    /// [`Error::Options`]; an error of either file: then there is no side file.
    pub fn protect(
        f: F,
        s: S,
        d: D,
        facts: Arc<dyn Facts>,
        clock: Arc<dyn Clock>,
        options: &ProtectOptions,
    ) -> Result<Self> {
        // Nobody stops it.
        let (this, _) = Self::begin(f, s, d, facts, clock, options, &mut |_, _| true)?;
        Ok(this)
    }

    /// The same in steps: `step` is told how many of how many pages are covered, and answers
    /// whether to go on. `None` if it was stopped: then there is no side file.
    ///
    /// # Errors
    /// As [`protect`](Self::protect).
    pub fn protect_in_steps(
        f: F,
        s: S,
        d: D,
        facts: Arc<dyn Facts>,
        clock: Arc<dyn Clock>,
        options: &ProtectOptions,
        step: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Option<Self>> {
        let (this, whole) = Self::begin(f, s, d, facts, clock, options, step)?;
        Ok(whole.then_some(this))
    }

    /// Covers the file; whether all of it, and so whether there is a header.
    fn begin(
        f: F,
        s: S,
        d: D,
        facts: Arc<dyn Facts>,
        clock: Arc<dyn Clock>,
        options: &ProtectOptions,
        step: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(Self, bool)> {
        let value = header_for(&f, &*facts, options)?;
        let places = Places::of(&value);
        let side = Side { s, places, durability: options.open.durability };
        let size = value.identity.size.min(f.len());
        side.reach(size.div_ceil(value.stripes.region_len()))?;
        let intent = RepairIntent::create(&side.s, value.mirror())?;
        let header = HeaderPage::pending(value);
        let this = Self::assemble(f, side, d, facts, clock, options.open, header, intent);
        let whole = {
            let mut inner = this.lock();
            let inner = &mut *inner;
            this.resize(inner, Seen::Watched)?;
            let all: Vec<u64> = inner.regions.keys().copied().collect();
            let covered = this.cover_in_steps(inner, &all, Ask::Everything, step)?;
            if covered.is_some() {
                this.sync_identity(DATE)?;
                // A change between this and the first look at the pages is one while unprotected.
                inner.header.store(&this.side.s)?;
            }
            covered.is_some()
        };
        Ok((this, whole))
    }

    /// Covers regions for an opening, batch by batch; `None` if `step` wanted no more.
    pub(crate) fn cover_in_steps(
        &self,
        inner: &mut Inner,
        regions: &[u64],
        ask: Ask,
        step: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Option<Covered>> {
        let pages = |inner: &Inner, batch: &[u64]| -> u64 {
            let known = batch.iter().filter_map(|number| inner.regions.get(number));
            known.map(|region| u64::from(region.record.pages)).sum()
        };
        let (mut total, mut done, all) = (Covered::default(), 0, pages(inner, regions));
        for batch in regions.chunks(self.per_batch()) {
            if !step(done, all) {
                return Ok(None);
            }
            total.add(&self.cover_batch(inner, batch, ask, Finder::Open)?);
            done += pages(inner, batch);
        }
        Ok(step(all, all).then_some(total))
    }

    /// Takes the content of `[at, at + len)` for right as it is: what was undecided or damaged
    /// there is covered anew. What parity could have given back is gone then.
    ///
    /// # Errors
    /// An error of the side file or of the source.
    pub fn accept(&self, at: u64, len: u64) -> Result<Covered> {
        let mut inner = self.lock_to_write()?;
        let inner = &mut *inner;
        let mut total = Covered::default();
        for number in self.known(inner, at, len) {
            let Some(region) = inner.regions.get_mut(&number) else { continue };
            let (start, _) = self.range(number);
            let mut asked = crate::bits::Bits::NONE;
            self.note(number, &mut asked, at, len);
            let whole = at <= start && asked.count() >= region.record.pages;
            // Pages that are marked count as stored to; entries decide about the others.
            region.marks =
                region.marks.or(asked.and(crate::bits::Bits::first(region.record.pages)));
            region.doubt = region.doubt.filter(|_| !whole);
            for page in asked.iter() {
                region.forget_reason(page);
            }
            region.reported.remove(asked);
            let ask = if region.admitted { Ask::Take } else { Ask::Known };
            let done = self.cover_batch(inner, &[number], ask, Finder::Check);
            let done = self.settle(inner, done)?;
            total.pages += done.pages;
            total.stripes += done.stripes;
            total.regions += done.regions;
        }
        if at == 0 && len >= inner.size && inner.header.value.contested() {
            inner.header.value.flags &= !FLAG_CONTESTED;
            inner.header.store(&self.side.s)?;
        }
        Ok(total)
    }

    /// Closes the side file: sees all writers off, covers what they did, and remembers the data
    /// file as it is. Nobody may store any more when this is called. It survives what it survived
    /// while it was open.
    ///
    /// # Errors
    /// An error of either file or the source: the side file stays open, as after a crash.
    pub fn close(self) -> Result<()> {
        let promise = self.options.durability;
        self.end(promise)
    }

    /// The same, and from here on it survives power cuts, whatever it survived while it was open.
    /// Both files are synced for that, which may take as long as their programs wrote unsynced.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub fn close_at_rest(self) -> Result<()> {
        self.end(Durability::Power)
    }

    fn end(self, promise: Durability) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        // Whoever changes the file from here on leaves another date than this.
        let identity = self.identity()?;
        self.dismiss(0, u64::MAX)?;
        {
            let mut inner = self.lock_to_write()?;
            let done = self.keep_verified(&mut inner);
            self.settle(&mut inner, done)?;
            if promise > self.options.durability {
                let done = self.bring_to_rest();
                self.settle(&mut inner, done)?;
            }
        }
        self.leave((State::Clean, promise), Some(identity))
    }

    /// Steps 2 and 3 of a close at rest.
    fn bring_to_rest(&self) -> Result<()> {
        self.f.sync_through(REST_DATA).map_err(Error::DataSync)?;
        Ok(self.side.s.sync_through(REST)?)
    }

    /// Ends the protection: the side file says nothing about the data file from now on, and may be
    /// removed.
    ///
    /// # Errors
    /// An error of the side file.
    pub fn unprotect(self) -> Result<()> {
        let admitted = self.lock_to_write()?.admitted;
        if let Some((from, to)) = admitted {
            // What the source still tells does not matter any more.
            let _ = self.d.disarm(from, to - from);
        }
        let promise = self.options.durability;
        self.leave((State::Ended, promise), None)
    }

    /// Writes the last header. The file counts as `identity` from now on, unless somebody untracked
    /// was at it: then as what it was when it was opened, so that the next opening sees a change.
    fn leave(
        &self,
        (state, promise): (State, Durability),
        identity: Option<Identity>,
    ) -> Result<()> {
        let mut inner = self.lock_to_write()?;
        let inner = &mut *inner;
        // A file that we did not change has the date it had when it was looked at.
        let identity = identity.filter(|_| inner.touched && self.facts.vouches());
        if identity.is_some() {
            self.sync_identity(CLOSE_DATE)?;
        }
        let header = &mut inner.header;
        (header.value.state, header.value.durability) = (state, promise);
        if let Some(identity) = identity {
            header.value.identity = Identity { size: inner.size, ..identity };
        }
        if promise > self.options.durability {
            header.store_through(&self.side.s)
        } else {
            header.store(&self.side.s)
        }
    }
}

/// The header of a new side file.
fn header_for<F: Medium>(f: &F, facts: &dyn Facts, options: &ProtectOptions) -> Result<Header> {
    let bad = |what, found| Err(Error::Options { what, found });
    let ProtectOptions { data, keep, .. } = *options;
    let stripes = match options.stripes {
        0 => PageStripes::standard(data, keep.parity),
        stripes => PageStripes::new(data, keep.parity, stripes),
    };
    let Some(stripes) = stripes else {
        return bad("a stripe has 1 to 64 data pages and 0 to 2 parity pages", data.into());
    };
    let group = if options.group == 0 { 32 } else { options.group };
    if group > GROUP_MAX {
        return bad("a group has at most 64 regions", group.into());
    }
    let identity = facts.identity().map_err(Error::Identity)?;
    if identity.size > f.len().next_multiple_of(PAGE) {
        return bad("the data file is longer than what is mapped of it", identity.size);
    }
    let side_len = match options.side_len {
        0 if identity.size >= LARGE => SIDE_LENS[1],
        0 => SIDE_LENS[0],
        len => len,
    };
    if !SIDE_LENS.contains(&side_len) {
        return bad("a side has 65536 or 2097152 bytes", side_len);
    }
    let mut flags = 0;
    for (on, flag) in [(keep.sums, FLAG_NO_SUMS), (keep.previous, FLAG_NO_PREVIOUS)] {
        if !on {
            flags |= flag;
        }
    }
    Ok(Header {
        state: State::Clean,
        uuid: options.uuid,
        side_len,
        stripes,
        group,
        identity,
        generation: 1,
        boot: options.open.boot,
        durability: options.open.durability,
        folios: options.folios,
        flags,
    })
}
