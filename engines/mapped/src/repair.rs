//! Replacing a damaged page, and showing what an undecided one was.
//!
//! | step | crash after it leaves |
//! |---|---|
//! | 1 the page is corrupt: nobody stored to it, nothing casts doubt | the damage |
//! | 2 its content is kept; the page is rebuilt; its sum must be the entry's | the damage |
//! | 3 all writers are stopped; the page has to be what was kept, not stored to | the damage |
//! | 4 intent: copy B, drain, copy A, drain | the damage, and the intent |
//! | 5 nobody untracked was heard; the page is stored, **drain** or **sync** | any bytes, intent |
//! | 6 it is read again and held against its entry | the page |
//! | 6b if nobody is let in: the date that the file has by our store, **sync** | the page |
//! | 6c the same: the header has it | the page |
//! | 7 an event, **drain** | the page, and who opens it tells of it again |
//! | 8 intent cleared; writers go on | the page |
//!
//! A crash in 5 leaves a page that may differ, and may be told as stored to, by us. The intent says
//! so at the next opening: the page is good if it verifies, else undecided, and never covered on
//! account of our own store. Where that cannot be put off the record, the intent stays, and no
//! other page is repaired before it can. By then somebody may have stored, so it is not installed
//! by itself; the image before is what it was to be.
//!
//! Why 6b and 6c: our store changes the date of the file. Where nobody is let in, an opening takes
//! a date that the header does not know for somebody else's change, and all damage that is left for
//! a doubt. So a repair that does not come to its end leaves the rest as it was; but for who dies
//! between 5 and 6c. Step 5 makes the bytes durable and not the date, which a power cut after 6c
//! would take back.
//!
//! A place that takes no other bytes in 5 (a bad device, a full file system) is told as lost, and
//! its intent cleared: the page was damaged for certain and nobody but us was at it since, so that
//! it is as damaged as before, whatever arrived. The rest of the file is no worse for it.
//!
//! | row of the stripe | counts as |
//! |---|---|
//! | stored to, stale, or different from its entry | missing: parity is of bytes that are gone |
//! | agrees with its entry | there |
//!
//! Parity gives back as many missing rows as it has pages. What comes out is believed only if its
//! sum is the entry's.
//!
//! After the stop, only the page itself is asked about again, not its stripe. A store to another
//! row before its copy was taken, or into it, leaves a copy that differs from its entry, and the
//! row is missing; one behind it changes nothing that was read. Entries and parity change under
//! the same lock only, so what was rebuilt is of the bytes that were covered, whatever the stripe
//! holds by now. That a torn copy has the sum of its entry is as likely as that damage has it: all
//! verdicts rest on this. To give way to such a store would lose the page, since the next pass
//! makes parity without it.

use holdfast_codes::crc32c;
use holdfast_layout::Certify;
use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::events::{Event, Finder, Outcome};
use holdfast_redundancy::{Intent, PageVerdict, Unsure};

use crate::bits::Bits;
use crate::engine::{Inner, Mapped, cause};
use crate::error::{Error, Result};
use crate::options::{Identity, Writers};
use crate::side::{Entry, sync_file};

/// Holding what was rebuilt against the entry.
const JUDGE: Site = Site::new("mapped.repair.judge");
/// Stopping the writers.
const FREEZE: Site = Site::new("mapped.repair.freeze");
/// Looking once more after they stopped.
const RECHECK: Site = Site::new("mapped.repair.recheck");
/// Listening once more, right before the page is stored.
const LAST: Site = Site::new("mapped.repair.last");
const STORE: Site = Site::new("mapped.repair.store");
const STORE_DRAIN: Site = Site::new("mapped.repair.store-drain");
const STORE_SYNC: Site = Site::new("mapped.repair.store-sync");
const HEAL: Site = Site::new("mapped.repair.heal");
/// The date that the file has by it.
const DATE: Site = Site::new("mapped.repair.date");
/// Our own store is off the record before the intent is.
const FORGET_SYNC: Site = Site::new("mapped.repair.forget-sync");
/// Reading the page again.
const CONFIRM: Site = Site::new("mapped.repair.confirm");
const STEP_FROZEN: Site = Site::new("mapped.repair.step-frozen");
const STEP_INTENT: Site = Site::new("mapped.repair.step-intent");

/// What became of a page that was to be repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mended {
    /// It was good.
    Good,
    /// It is again what it was when it was last covered.
    Repaired,
    /// It is damaged, and parity cannot give it back, or its place in the file takes no other
    /// bytes.
    Lost,
    /// It is undecided: nothing was overwritten.
    Undecided(Unsure),
    /// Its writers could not be stopped: nothing was overwritten.
    Busy,
}

/// Which pages may be overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// Damaged ones only.
    No,
    /// Undecided ones as well, with what they were when they were last covered: somebody decided
    /// that what they hold is worth less.
    Undecided,
}

/// What a page is to be replaced with, and what it was.
struct Replacement {
    bytes: Vec<u8>,
    /// Whether it is what was covered last.
    newest: bool,
    kept: Vec<u8>,
    readable: bool,
}

impl<F: Medium, S: Medium, D: DirtySource> Mapped<F, S, D> {
    /// Repairs the page numbered `page` if it is damaged; `writers` stops whoever may store to the
    /// file for as long as the page is replaced.
    ///
    /// # Errors
    /// An error of the side file or of the source, or the data file cannot be synced. If the page
    /// was being replaced, it is damaged still, and the next look finds it.
    pub fn repair(&self, page: u64, writers: &dyn Writers, force: Force) -> Result<Mended> {
        self.repair_in(&mut *self.lock_to_write()?, page, writers, force)
    }

    /// The same for who has the lock already.
    pub(crate) fn repair_in(
        &self,
        inner: &mut Inner,
        page: u64,
        writers: &dyn Writers,
        force: Force,
    ) -> Result<Mended> {
        let started = self.clock.now();
        let mut kept = vec![0; PAGE as usize];
        let judged = self.judge(inner, page, &mut kept)?;
        match (judged.verdict, force) {
            (PageVerdict::Good, _) => return Ok(Mended::Good),
            (PageVerdict::Undecided(why), Force::No) => return Ok(Mended::Undecided(why)),
            (PageVerdict::Undecided(why), _) if !why.is_doubt() => {
                return Ok(Mended::Undecided(why));
            }
            _ => {}
        }
        let event = self.event(self.since(inner, page), Finder::Repair, Outcome::Lost);
        let event = Event { cause: cause(judged.readable), before_sum: judged.found, ..event };
        let Some(bytes) = self.rebuild(inner, page, judged.verdict != PageVerdict::Corrupt)? else {
            self.report(inner, &event);
            return Ok(Mended::Lost);
        };
        let newest = judged.verdict == PageVerdict::Corrupt;
        let with = Replacement { bytes, newest, kept, readable: judged.readable };
        if self.side.s.enabled(FREEZE) && !writers.freeze() {
            return Ok(Mended::Busy);
        }
        let done = self.replace(inner, page, &with, (&event, started));
        writers.thaw();
        match self.settle(inner, done) {
            Ok(mended) => {
                inner.counts.repaired += u64::from(mended == Mended::Repaired);
                Ok(mended)
            }
            Err(error) => {
                // What became of the page the next look finds; that it was found is told even so.
                let outcome = if newest { Outcome::Detected } else { Outcome::Undecided };
                self.report(inner, &Event { outcome, ..event });
                Err(error)
            }
        }
    }

    /// Tells what became of a page that was to be replaced, and answers it.
    fn told(
        &self,
        inner: &mut Inner,
        (event, started): (&Event, u64),
        after_sum: u32,
        mended: Mended,
    ) -> Mended {
        let (outcome, object) = match mended {
            Mended::Repaired => (Outcome::Repaired, 0),
            Mended::Undecided(why) => (Outcome::Undecided, why.code().into()),
            _ => (Outcome::Lost, 0),
        };
        let duration_ns = self.clock.now().saturating_sub(started);
        self.report(inner, &Event { outcome, after_sum, object, duration_ns, ..*event });
        mended
    }

    /// Steps 3 to 8, with all writers stopped.
    fn replace(
        &self,
        inner: &mut Inner,
        page: u64,
        with: &Replacement,
        told: (&Event, u64),
    ) -> Result<Mended> {
        let s = &self.side.s;
        s.step(STEP_FROZEN);
        let place = self.stripes.place(page);
        let region = inner.regions.get(&place.region).filter(|region| region.admitted);
        let (admitted, ours) =
            (region.is_some(), region.is_some_and(|it| it.ours.has(place.inside)));
        if s.enabled(RECHECK) {
            let mut now = vec![0; PAGE as usize];
            let readable = self.read_page(inner.size, page, &mut now).is_ok();
            let same = readable == with.readable && (!readable || now == with.kept);
            let stored = admitted && !ours && self.peek_page(page)?;
            if stored || !same {
                return Ok(self.told(inner, told, 0, Mended::Undecided(Unsure::StoredTo)));
            }
        }
        let at = page * PAGE;
        let len = inner.size.saturating_sub(at).min(PAGE);
        let bytes = &with.bytes[..len as usize];
        self.forget_earlier(inner)?;
        inner.intent.begin(s, Intent { at, len, sum: crc32c(0, bytes) })?;
        s.step(STEP_INTENT);
        if s.enabled(LAST) && !self.facts.vouches() {
            // Somebody who is not tracked came meanwhile: nothing was stored yet.
            inner.intent.clear(s)?;
            return Ok(self.told(inner, told, 0, Mended::Undecided(Unsure::Contested)));
        }
        inner.touched = true;
        let stored = self.install(at, bytes, with);
        let mut again = vec![0; PAGE as usize];
        let readable = self.read_page(inner.size, page, &mut again).is_ok();
        let right = !s.enabled(CONFIRM) || readable && again == with.bytes;
        if admitted && (stored.is_err() || !right || with.newest) {
            self.forget_own(inner, page)?;
        }
        let refused = matches!(stored, Err(Error::Data(_)));
        if !refused {
            stored?;
        }
        if !right || refused {
            let lost = self.told(inner, told, 0, Mended::Lost);
            inner.intent.clear(s)?;
            return Ok(lost);
        }
        self.note_date(inner)?;
        // As long as the intent is there, who opens the file tells of the page in any case.
        let mended = self.told(inner, told, self.sum(page, &with.bytes), Mended::Repaired);
        inner.intent.clear(s)?;
        if let Some(region) = inner.regions.get_mut(&place.region) {
            let one = Bits::one(place.inside);
            region.reported.remove(one);
            // Undecided until now: the next pass takes it from the stale ones, since it verifies.
            region.forget_reason(place.inside);
            if !with.newest {
                // Or, if it is what was covered before the last time, because somebody wants it.
                region.marks.insert(place.inside);
            }
        }
        Ok(mended)
    }

    /// The only store since a page was looked at is ours. It put back what was covered, or nothing
    /// that is to be covered.
    fn forget_own(&self, inner: &mut Inner, page: u64) -> Result<()> {
        inner.on_record = Some(page);
        self.take_own(inner, page)?;
        self.d.forget(page * PAGE, PAGE);
        // Else a power cut leaves our own store on record, and no intent that says so.
        sync_file(&self.side.s, self.side.durability, FORGET_SYNC)?;
        inner.on_record = None;
        Ok(())
    }

    /// The same of a page of an earlier repair that this failed for: the intent to come takes the
    /// place of the one that says so. If a pass has taken it, that has put it off the record, and
    /// what is there since is the program's.
    fn forget_earlier(&self, inner: &mut Inner) -> Result<()> {
        let Some(page) = inner.on_record.take() else { return Ok(()) };
        let place = self.stripes.place(page);
        if inner.regions.get(&place.region).is_some_and(|it| it.ours.has(place.inside)) {
            self.forget_own(inner, page)?;
        }
        Ok(())
    }

    /// Steps 6b and 6c: the file counts as what it is after our own store, unless somebody
    /// untracked was at it. Where writers are let in, dates say nothing.
    fn note_date(&self, inner: &mut Inner) -> Result<()> {
        if inner.admitted.is_some() {
            return Ok(());
        }
        // Whoever changes the file from here on leaves another date than this. Where the system
        // does not tell it, the old one stays, as after a crash.
        let Ok(identity) = self.identity() else { return Ok(()) };
        if !self.facts.vouches() {
            return Ok(());
        }
        self.sync_identity(DATE)?;
        let header = &mut inner.header;
        // What it grew by is not covered for that.
        header.value.identity = Identity { size: header.value.identity.size, ..identity };
        header.store(&self.side.s)
    }

    /// Step 5: the store itself, durable.
    fn install(&self, at: u64, bytes: &[u8], with: &Replacement) -> Result<()> {
        if !with.readable {
            return self.f.heal(HEAL, at, &with.bytes).map_err(Error::Data);
        }
        self.f.put(STORE, at, bytes).map_err(Error::Data)?;
        match self.f.kind() {
            MediumKind::Dax | MediumKind::Shm => self.f.drain(STORE_DRAIN),
            MediumKind::File => {
                let durability = self.side.durability;
                sync_file(&self.f, durability, STORE_SYNC).map_err(Error::DataSync)?;
            }
        }
        Ok(())
    }

    /// The bytes of a page of which it is certain that damage to it would be found and undone: it
    /// is covered, nobody stored to it since, nothing casts doubt on it, and the rest of its stripe
    /// gives these very bytes. `None` of any other.
    ///
    /// # Errors
    /// An error of the source or of the side file.
    pub fn certain(&self, page: u64) -> Result<Option<Vec<u8>>> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let mut bytes = vec![0; PAGE as usize];
        let judged = self.judge(inner, page, &mut bytes)?;
        if judged.verdict != PageVerdict::Good || !self.would_convict(inner, page, judged.found) {
            return Ok(None);
        }
        let rebuilt = self.rebuild(inner, page, false)?;
        let at = page.saturating_mul(PAGE);
        let len = inner.size.saturating_sub(at).min(PAGE) as usize;
        // Held against the entry that the page agrees with.
        Ok(rebuilt.map(|mut bytes| {
            bytes.truncate(len);
            bytes
        }))
    }

    /// What the page numbered `page` was when it was last covered, or the time before that, if
    /// parity can still tell; for pages that are undecided.
    ///
    /// # Errors
    /// An error of the source or of the side file.
    pub fn before_image(&self, page: u64) -> Result<Option<Vec<u8>>> {
        let mut inner = self.lock();
        let image = self.rebuild(&mut inner, page, true)?;
        let at = page.saturating_mul(PAGE);
        let len = inner.size.saturating_sub(at).min(PAGE) as usize;
        Ok(image.map(|mut image| {
            image.truncate(len);
            image
        }))
    }

    /// Bytes that the file had when it was last covered. If it has more now, the page in which it
    /// ended then can tell whether those in it were there: it verifies with them, or not; and the
    /// last one, whether all was covered since. Zeros tell nothing: a page verifies with them
    /// whether they were there or not, and so does a hole that nobody ever covered. They are taken
    /// for added.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn covered_size(&self) -> Result<u64> {
        let inner = self.lock();
        let (known, now) = (inner.header.value.identity.size, inner.size);
        let mut bytes = vec![0; PAGE as usize];
        let end = known.next_multiple_of(PAGE).min(now);
        for size in [now, end].into_iter().filter(|size| known < *size) {
            let page = (size - 1) / PAGE;
            let good = self.judge(&inner, page, &mut bytes)?.verdict == PageVerdict::Good;
            let added = known.saturating_sub(page * PAGE) as usize;
            if good && !holdfast_codes::is_zero(&bytes[added..]) {
                return Ok(size);
            }
        }
        Ok(known.min(now))
    }

    /// Rebuilds a page from the others of its stripe; `None` unless its sum is the entry's, or with
    /// `older` that of the entry before.
    fn rebuild(&self, inner: &mut Inner, page: u64, older: bool) -> Result<Option<Vec<u8>>> {
        let place = self.stripes.place(page);
        let Some(region) = inner.regions.get(&place.region) else { return Ok(None) };
        let usable = region.parity_usable(place.stripe) && self.stripes.parity() > 0;
        if !usable || place.inside >= region.record.pages {
            return Ok(None);
        }
        let Ok(entries) = self.side.entries(place.region) else { return Ok(None) };
        let mut rows = vec![0; self.stripes.rows_len()];
        let missing = self.missing(inner, page, &mut rows)?;
        let mut parity = vec![0; self.stripes.parity_len()];
        let mut units = [true; 2];
        for (unit, bytes) in parity.chunks_mut(PAGE as usize).enumerate() {
            let at = self.side.places.parity(place.region, place.stripe) + unit as u64 * PAGE;
            units[unit] = self.side.s.read(at, bytes).is_ok();
        }
        let entry = Entry::decode(entries[place.inside as usize]);
        let certify = Certify::when(self.side.s.enabled(JUDGE));
        let at = place.row as usize * PAGE as usize;
        let given = |missing: &[u32], usable: [bool; 2]| {
            let mut candidate = rows.clone();
            if !self.stripes.rebuild(&mut candidate, missing, &parity, usable) {
                return None;
            }
            let bytes = &candidate[at..at + PAGE as usize];
            let sum = self.sum(page, bytes);
            let older = older && inner.header.value.previous();
            let right =
                certify.agrees(entry.current, sum) || older && certify.agrees(entry.previous, sum);
            right.then(|| bytes.to_vec())
        };
        let by = [units, [false, units[1]], [units[0], false]];
        let found = by.into_iter().find_map(|usable| given(&missing, usable));
        // One more may be damaged, or not what parity was made of, though it agrees with its entry:
        // a pass may have been cut off between the two.
        let beside = || {
            let others = (0..self.stripes.data()).filter(|row| *row != place.row);
            let alone = missing.len() == 1 && units == [true; 2];
            others.filter(|_| alone).find_map(|row| given(&[place.row, row], units))
        };
        Ok(found.or_else(beside))
    }

    /// Reads a stripe; answers the rows that parity has to make up for, `page` first: those that
    /// cannot be read, and those that were stored to since.
    fn missing(&self, inner: &Inner, page: u64, rows: &mut [u8]) -> Result<Vec<u32>> {
        let place = self.stripes.place(page);
        let Some(region) = inner.regions.get(&place.region) else { return Ok(Vec::new()) };
        let dirty = self.uncovered(place.region, region)?;
        let mut missing = vec![place.row];
        for (row, bytes) in (0..self.stripes.data()).zip(rows.chunks_mut(PAGE as usize)) {
            let inside = place.stripe * self.stripes.data() + row;
            let number = self.number(place.region, inside);
            let readable = self.read_page(inner.size, number, bytes).is_ok();
            let known = row != place.row && inside < region.record.pages;
            if known && (dirty.has(inside) || !readable) {
                missing.push(row);
            }
        }
        Ok(missing)
    }

    /// Refused unless the engine may write.
    pub(crate) fn expect_writable(&self) -> Result<()> {
        if self.options.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }
}
