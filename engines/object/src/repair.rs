//! Online repair: suspect, hold the columns, rebuild, judge, note the intent, install, verify,
//! release, report.
//!
//! One thread repairs at a time; commits go on except on the columns held, which is one page
//! column at a time. Nothing is overwritten before its replacement was judged by a sum that is
//! independent of the parity it came from; where no candidate passes, the unit is reported lost
//! and its bytes are left as they are.
//!
//! | found | repaired from | installed |
//! |---|---|---|
//! | a page of objects that cannot be read | P, else Q, else both | healed, else its frame moves |
//! | a parity page that cannot be read | the rows, once all objects over it verify | same |
//! | a granule that disagrees with its sum | data, slot or sum, whichever verifies | stored |
//! | a directory entry that does not verify | P, Q | stored |
//! | a metadata page | its mirror | healed |
//! | a log page | its copy | healed, else its frame moves |
//!
//! A crash in the middle: a page that was being healed is again bad or whole, a range that was
//! being stored verifies or not, and the intent says where to look first.

use holdfast_codes::crc32c;
use holdfast_heap::format::CHUNK_LEN;
use holdfast_heap::verify::{Direct, Found, Overlay};
use holdfast_heap::{ChunkKind, Unit, ZoneTable};
use holdfast_layout::Certify;
use holdfast_layout::format::SUPERBLOCK_PAGE;
use holdfast_pmem::{MediaCause, MediaError, Medium, PAGE, Site};
use holdfast_redundancy::events::{Cause, Event, Finder};
use holdfast_redundancy::parity::Scratch;
use holdfast_redundancy::{ColumnId, Exempt, Intent, Wrong, Zone, zone};

use crate::changes::Changes;
use crate::error::Error;
use crate::mend_unit::{mend_reached, mend_units, reach};
use crate::newer::Order;
use crate::shared::{Repairer, Shared, Suspicion};

/// Pages that may turn bad during one repair before it is given up.
pub(crate) const BAD_PAGES_MAX: u32 = 8;

/// How often it is tried to have what a page was, before zeros take its place.
const TRIES: u32 = 3;

/// How often one repair heals a page before it counts as one that stays bad, whatever the medium
/// says of it. Each unit over it would be tried in vain, else.
const HEALS_MAX: usize = 4;

/// Verifying the units of all rows before parity is made from them.
const VERIFY_ROWS: Site = Site::new("object.repair.verify-rows");
/// Taking the newest of what verifies.
const NEWEST: Site = Site::new("object.repair.newest");
/// Judging a candidate before it is installed.
const JUDGE: Site = Site::new("object.repair.judge");
const STEP_HELD: Site = Site::new("object.repair.step-held");
const STEP_INTENT: Site = Site::new("object.repair.step-intent");
const STEP_INSTALLED: Site = Site::new("object.repair.step-installed");
/// Rewriting a page.
const HEAL: Site = Site::new("object.repair.heal");
/// Storing a rebuilt range.
const STORE: Site = Site::new("object.repair.store");
/// Making it durable on a file.
const STORED_SYNC: Site = Site::new("object.repair.stored-sync");
/// Making it durable elsewhere, if the clearing of the intent did not.
const STORED_DRAIN: Site = Site::new("object.repair.stored-drain");

/// What became of a damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mended {
    /// It was no damage (any more).
    Nothing,
    /// The right bytes are back.
    Repaired(Wrong),
    /// The right bytes are back, elsewhere.
    Relocated(Wrong),
    /// The right bytes are back in memory: the page stays bad, and its frame cannot move.
    StoodIn(Wrong),
    /// Beyond the redundancy.
    Lost(Wrong),
    /// Nothing that is kept can tell what is right; nothing was changed.
    Undecided(Wrong),
}

/// Who asks for a repair and why; goes into the event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) cause: Cause,
    pub(crate) finder: Finder,
}

impl<M: Medium> Shared<M> {
    /// Repairs what a transaction found at `[at, at + len)`.
    ///
    /// # Errors
    /// The metadata that a repair needs could not be written, or the object is lost.
    pub(crate) fn mend_found(&self, at: u64, len: u64, finder: Finder) -> Result<(), Error> {
        let asked = Asked { cause: Cause::Sum, finder };
        let lost = self.mend_through(at, len, asked)?;
        self.settle_found(at, len, finder)?;
        self.mend_suspects();
        match lost {
            Some(at) => {
                let object = holdfast_layout::RawPtr::new(at, 0);
                Err(Error::Tx(holdfast_txn::TxError::Lost { object }))
            }
            None => Ok(()),
        }
    }

    /// As [`mend`](Self::mend), but a page that turns bad under the repair is repaired first, and
    /// then it is tried again.
    pub(crate) fn mend_through(
        &self,
        at: u64,
        len: u64,
        asked: Asked,
    ) -> Result<Option<u64>, Error> {
        for _ in 0..BAD_PAGES_MAX {
            match self.mend(at, len, asked) {
                Err(Error::Media(MediaError { at: bad, cause: MediaCause::Poison, .. })) => {
                    let asked = Asked { cause: Cause::MediaError, ..asked };
                    self.mend(bad / PAGE * PAGE, PAGE, asked)?;
                }
                other => return other,
            }
        }
        self.mend(at, len, asked)
    }

    /// The object that bytes belong to, as a range; the bytes themselves if they belong to none.
    pub(crate) fn whole_object(&self, at: u64, len: u64) -> (u64, u64) {
        let mut whole = (at, len);
        self.units_over(at, len, &mut |unit| {
            if let Unit::Granule { spot, .. } = unit
                && at >= spot.object
            {
                whole = (spot.object, spot.capacity);
            }
        });
        whole
    }

    /// Looks after the places noted by [`suspect`](Self::suspect). One that cannot be is looked
    /// after once more later; none keeps another from it, and none is an answer to who calls.
    pub(crate) fn mend_suspects(&self) {
        // A page that stays bad is suspected again by the very event that says so.
        let (mut seen, mut failed) = (Vec::new(), Vec::new());
        while self.suspects.lower() {
            for s in self.suspects.take() {
                if seen.contains(&s.at) {
                    continue;
                }
                seen.push(s.at);
                if self.mend_suspect(&s).is_err() && !s.again {
                    failed.push(Suspicion { again: true, ..s });
                }
            }
        }
        failed.into_iter().for_each(|s| self.suspects.add(s));
    }

    fn mend_suspect(&self, s: &Suspicion) -> Result<(), Error> {
        if s.cause == Cause::Parity {
            return self.mend_columns(s.at, s.len, s.finder).map(drop);
        }
        let asked = Asked { cause: s.cause, finder: s.finder };
        self.mend_through(s.at / PAGE * PAGE, PAGE, asked).map(drop)
    }

    /// Repairs every page the platform lists as bad. Returns how many there were.
    pub(crate) fn mend_listed(&self) -> Result<u64, Error> {
        let asked = Asked { cause: Cause::Listed, finder: Finder::Open };
        let mut pages = 0;
        for (at, len) in self.m.bad_ranges() {
            for page in (at..at + len).step_by(PAGE as usize) {
                if self.is_bad(page) {
                    self.mend_through(page, PAGE, asked)?;
                    pages += 1;
                }
            }
        }
        Ok(pages)
    }

    /// Whether a page cannot be read, also if it is tried again: what is made up for it may be less
    /// than what is there.
    pub(crate) fn is_bad(&self, page: u64) -> bool {
        let mut buffer = [0; PAGE as usize];
        let mut fails = || self.m.read(page, &mut buffer).is_err();
        fails() && fails()
    }

    /// Repairs `[at, at + len)`: its unreadable pages first, then the units over it that do not
    /// verify. Returns the place of something that is lost, if anything is.
    pub(crate) fn mend(&self, at: u64, len: u64, asked: Asked) -> Result<Option<u64>, Error> {
        let mended = self.or_stop(self.undisturbed(|| self.mend_all(at, len, asked)));
        self.report_cleared(&mut self.repairer_now());
        mended
    }

    /// Refuses, by a conflict, to judge columns while a commit that met a media error has left
    /// some to be completed. To be asked with the columns held.
    pub(crate) fn may_judge(&self) -> Result<(), Error> {
        if self.redoing.any() {
            return Err(Error::Tx(holdfast_txn::TxError::Conflict));
        }
        Ok(())
    }

    /// Tries again until no such commit came in between; each attempt takes the repairer anew,
    /// which they wait for.
    pub(crate) fn undisturbed<T>(
        &self,
        mut repair: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            match repair() {
                Err(Error::Tx(holdfast_txn::TxError::Conflict)) => {
                    holdfast_sync::thread::yield_now()
                }
                done => return done,
            }
        }
    }

    fn mend_all(&self, at: u64, len: u64, asked: Asked) -> Result<Option<u64>, Error> {
        self.refuse_cut_off()?;
        let mut repairer = self.repairer();
        repairer.given_up.clear();
        let end = at.saturating_add(len.max(1)).min(self.m.len());
        let mut lost = None;
        let mut page = at / PAGE * PAGE;
        while page < end {
            if self.is_bad(page) {
                let media = Asked {
                    cause: if asked.cause == Cause::Listed {
                        asked.cause
                    } else {
                        Cause::MediaError
                    },
                    ..asked
                };
                if let Mended::Lost(_) = self.mend_page(&mut repairer, page, media)? {
                    lost = Some(page);
                }
            }
            page += PAGE;
        }
        Ok(mend_units(self, &mut repairer, (at, end - at), asked)?.or(lost))
    }

    /// Repairs the pages that keep a unit from being judged: its slot and sums may lie on others
    /// than its bytes. False if one is left.
    pub(crate) fn mend_pages_of(
        &self,
        repairer: &mut Repairer,
        unit: &Unit,
        asked: Asked,
    ) -> Result<bool, Error> {
        // A unit has bytes on two pages, and a slot and a sum on one each.
        for _ in 0..4 {
            let Err(error) = reach(self, unit) else {
                return Ok(true);
            };
            let page = error.at / PAGE * PAGE;
            let asked = Asked { cause: Cause::MediaError, ..asked };
            if repairer.given_up.contains(&page)
                || matches!(self.mend_page(repairer, page, asked)?, Mended::Lost(_))
            {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Repairs the units of all rows over a page of columns, before parity is made from them.
    fn mend_rows(
        &self,
        repairer: &mut Repairer,
        zone: &Zone,
        col: u64,
        asked: Asked,
    ) -> Result<(), Error> {
        for _ in 0..BAD_PAGES_MAX {
            let mut anew = false;
            for unit in self.bad_units_over(zone, col) {
                let mended = mend_reached(self, repairer, &unit, asked)?;
                anew = mended == Mended::Repaired(Wrong::Directory)
                    && matches!(unit, Unit::Granule { .. });
                if anew {
                    // Its chunk is something else than its entry said: so are the units in it.
                    break;
                }
            }
            if !anew {
                break;
            }
        }
        Ok(())
    }

    /// The units of all rows over a page of columns that do not verify.
    fn bad_units_over(&self, zone: &Zone, col: u64) -> Vec<Unit> {
        let certify = Certify::when(self.m.enabled(VERIFY_ROWS));
        let mut bad = Vec::new();
        self.units_of_columns(zone, (col, PAGE), &mut |unit| {
            let found = unit.check(&Direct(&self.m), self.heap.sums(), certify);
            if found.is_ok_and(Found::is_bad) && !bad.contains(&unit) {
                bad.push(unit);
            }
        });
        bad
    }

    /// Repairs one page that cannot be read.
    pub(crate) fn mend_page(
        &self,
        repairer: &mut Repairer,
        page: u64,
        asked: Asked,
    ) -> Result<Mended, Error> {
        if let Some((zone, unit, col)) = self.zone_unit(page) {
            let mended = self.mend_zone_page(repairer, &zone, unit, col, asked)?;
            if let Mended::Lost(_) = mended {
                repairer.given_up.push(page);
            }
            return Ok(mended);
        }
        let sides = 2 * self.superblock().side_len;
        if page < sides {
            return self.mend_side_page(repairer, page, asked);
        }
        // A spare frame's page: nothing is there, and relocation passes over bad spares.
        Ok(Mended::Nothing)
    }

    /// The zone, row and column of a byte, parity rows included.
    pub(crate) fn zone_unit(&self, at: u64) -> Option<(Zone, zone::Unit, u64)> {
        self.zones().find_map(|z| z.unit(at).map(|(unit, col)| (*z, unit, col)))
    }

    /// Whether a place is nobody's bytes.
    pub(crate) fn is_parity(&self, at: u64) -> bool {
        self.zone_unit(at).is_some_and(|(_, unit, _)| !matches!(unit, zone::Unit::Row(_)))
    }

    fn mend_zone_page(
        &self,
        repairer: &mut Repairer,
        zone: &Zone,
        unit: zone::Unit,
        col: u64,
        asked: Asked,
    ) -> Result<Mended, Error> {
        let page = zone.unit_at(unit, col);
        let event = self.event(asked.cause, asked.finder, page, PAGE);
        if !matches!(unit, zone::Unit::Row(_)) {
            self.lose_rows(repairer, zone, col, asked)?;
            self.mend_rows(repairer, zone, col, asked)?;
        }
        let (wrong, lost) = (wrong_in(unit), Mended::Lost(wrong_in(unit)));
        let mut tries = 0;
        let mended = loop {
            let held = self.columns.lock_one(&self.m, self.columns.id(zone, col));
            self.m.step(STEP_HELD);
            self.may_judge()?;
            if !self.is_bad(page) {
                return Ok(Mended::Nothing);
            }
            let Rebuilt { bytes, is_known, in_doubt } =
                self.rebuild_page(&mut repairer.scratch, zone, unit, col);
            // It may be that something could not be read for once.
            tries += 1;
            if !is_known && tries < TRIES {
                continue;
            }
            let installed = self.install_page(repairer, page, &bytes);
            if installed.is_ok() && is_known {
                self.know_rebuilt(page);
            }
            match installed {
                Ok(()) if !is_known => break lost,
                Ok(()) if in_doubt => break Mended::Undecided(wrong),
                Ok(()) => break Mended::Repaired(wrong),
                Err(Error::Media(MediaError {
                    cause: MediaCause::Unclearable | MediaCause::NoSpace,
                    ..
                })) => {}
                Err(error) => return Err(error),
            }
            if !is_known {
                // Moving takes all columns of the frame.
                drop(held);
                break self.move_lost(repairer, page, event.finder)?.unwrap_or(lost);
            }
            if !self.can_move(repairer, page) {
                let stood = self.stand_in(page, &bytes, wrong);
                if stood == Mended::StoodIn(wrong) {
                    self.know_rebuilt(page);
                }
                let in_doubt = in_doubt && stood == Mended::StoodIn(wrong);
                break if in_doubt { Mended::Undecided(wrong) } else { stood };
            }
            drop(held);
            if let Some(mended) = self.moved(repairer, page, None, asked.finder)? {
                break mended;
            }
        };
        if self.one_sided().contains(&page) {
            self.suspect(zone.at(0, col / PAGE * PAGE), PAGE, Cause::Parity, event.finder);
        }
        Ok(self.report_mended(event, mended))
    }

    /// Moves what is lost and stays bad as well, as zeros: parity that is made after it has to go
    /// with something. Not if nothing at all can be read for a while.
    fn move_lost(
        &self,
        repairer: &mut Repairer,
        page: u64,
        finder: Finder,
    ) -> Result<Option<Mended>, Error> {
        let copies = [SUPERBLOCK_PAGE, self.superblock().side_len + SUPERBLOCK_PAGE];
        let reads = copies.iter().any(|copy| !self.is_bad(*copy));
        if !reads || !self.can_move(repairer, page) {
            return Ok(None);
        }
        self.moved(repairer, page, None, finder)
    }

    /// Has the pages of all rows over a page of parity that cannot be read mended while nothing is
    /// made up there: those that are lost with it would count as repaired from what is made of it
    /// without them.
    fn lose_rows(
        &self,
        repairer: &mut Repairer,
        zone: &Zone,
        col: u64,
        asked: Asked,
    ) -> Result<(), Error> {
        let media = Asked { cause: Cause::MediaError, ..asked };
        for at in (0..zone.data_rows()).map(|row| zone.at(row, col)) {
            // A page of a log chunk counts as nothing in parity.
            let counts = self.exempt().first_in(at, PAGE).is_none();
            if counts && !repairer.given_up.contains(&at) && self.is_bad(at) {
                self.mend_page(repairer, at, media)?;
            }
        }
        Ok(())
    }

    /// The likeliest bytes of a zone page: those under which the fewest units over it are bad, and
    /// of several such the newest, since the last write of a parity may have been lost. Units that
    /// are bad even so have damage elsewhere as well: they are repaired, or named lost, one by one
    /// afterwards.
    pub(crate) fn rebuild_page(
        &self,
        scratch: &mut Scratch,
        zone: &Zone,
        unit: zone::Unit,
        col: u64,
    ) -> Rebuilt {
        let mut best: Option<(usize, Vec<u8>)> = None;
        let (exempt, mut in_doubt) = (self.exempt(), false);
        let certify = Certify::when(self.m.enabled(JUDGE));
        let at = zone.unit_at(unit, col);
        let is_row = matches!(unit, zone::Unit::Row(_));
        self.note_one_sided(zone, unit, col);
        for candidate in self.candidates(scratch, zone, unit, (col, PAGE), &exempt).0 {
            let bad = match is_row {
                true => self.bad_units(at, &candidate, &Changes::default(), certify),
                false => 0,
            };
            let order = match &best {
                None => Order::Newer,
                Some((least, _)) if bad != *least => {
                    if bad < *least {
                        Order::Newer
                    } else {
                        Order::Older
                    }
                }
                Some((_, kept)) if is_row && self.m.enabled(NEWEST) => {
                    let order = self.order_of_pages(at, kept, &candidate);
                    in_doubt |= order == Order::Unknown;
                    order
                }
                Some(_) => Order::Idle,
            };
            if order == Order::Newer {
                best = Some((bad, candidate));
                in_doubt = false;
            }
        }
        let is_known = best.is_some();
        let bytes = best.map_or_else(|| vec![0; PAGE as usize], |(_, bytes)| bytes);
        Rebuilt { bytes, is_known, in_doubt }
    }

    /// Number of units that would be bad if the bytes at `at` were `bytes`, after `changes`.
    pub(crate) fn bad_units(
        &self,
        at: u64,
        bytes: &[u8],
        changes: &Changes,
        certify: Certify,
    ) -> usize {
        let direct = Direct(&self.m);
        let overlay = Overlay { under: &direct, at, bytes };
        let seen = changes.over(&overlay);
        let mut bad = 0;
        self.units_over(at, bytes.len() as u64, &mut |unit| {
            // A unit that lies partly on another bad page cannot be judged yet; that is no reason
            // to think worse of this candidate.
            let found = unit.check(&seen, self.heap.sums(), certify);
            bad += usize::from(found.is_ok_and(Found::is_bad));
        });
        bad
    }

    /// Whether a unit over `[at, at + len)` of a row is bad, or cannot be read, after `changes`.
    pub(crate) fn has_bad_units(
        &self,
        at: u64,
        len: u64,
        changes: &Changes,
        certify: Certify,
    ) -> bool {
        let direct = Direct(&self.m);
        let seen = changes.over(&direct);
        let mut bad = false;
        self.units_over(at, len, &mut |unit| {
            let found = unit.check(&seen, self.heap.sums(), certify);
            bad |= !found.is_ok_and(|f| !f.is_bad());
        });
        bad
    }

    /// Notes the intent, rewrites a page and looks whether it stayed.
    fn begin_install(&self, repairer: &mut Repairer, intent: Intent) -> Result<(), Error> {
        match repairer.intent.begin(&self.m, intent) {
            // A page of it stays bad: the repair goes on without, since what it installs comes
            // from bytes that it does not touch, and can be made again.
            Err(holdfast_redundancy::Error::Media(_)) => Ok(()),
            other => Ok(other?),
        }
    }

    pub(crate) fn end_install(&self, repairer: &mut Repairer) -> Result<(), Error> {
        let cleared = repairer.intent.clear(&self.m);
        self.report_cleared(repairer);
        match cleared {
            Err(holdfast_redundancy::Error::Media(_)) => {
                // It may not have come to its own drain, on which `install_range` relies.
                if !self.is_file() {
                    self.m.drain(STORED_DRAIN);
                }
                Ok(())
            }
            other => Ok(other?),
        }
    }

    fn install_page(&self, repairer: &mut Repairer, page: u64, bytes: &[u8]) -> Result<(), Error> {
        if repairer.healed.iter().filter(|healed| **healed == page).count() >= HEALS_MAX {
            let cause = MediaCause::Unclearable;
            return Err(Error::Media(MediaError { at: page, len: PAGE, cause }));
        }
        repairer.healed.push(page);
        repairer.installs += 1;
        let intent = Intent { at: page, len: PAGE, sum: crc32c(0, bytes) };
        self.begin_install(repairer, intent)?;
        self.m.step(STEP_INTENT);
        let healed = self.m.heal(HEAL, page, bytes);
        self.m.step(STEP_INSTALLED);
        self.end_install(repairer)?;
        Ok(healed?)
    }

    fn mend_side_page(
        &self,
        repairer: &mut Repairer,
        page: u64,
        asked: Asked,
    ) -> Result<Mended, Error> {
        let event = self.event(asked.cause, asked.finder, page, PAGE);
        if self.log.contains(page) {
            return self.mend_log_page(repairer, page, event);
        }
        if !self.is_bad(page) {
            return Ok(Mended::Nothing);
        }
        let side_len = self.superblock().side_len;
        let (side, base) = if page < side_len {
            (holdfast_redundancy::Side::A, 0)
        } else {
            (holdfast_redundancy::Side::B, side_len)
        };
        // Each record is rewritten whole from what memory holds or its twin has; the heal clears
        // the page first, so that the rewrite reaches it.
        let twin = if base == 0 { page + side_len } else { page - side_len };
        let mut bytes = vec![0; PAGE as usize];
        let copied = self.superblock().copies == 2 && self.m.read(twin, &mut bytes).is_ok();
        let healed = self.m.heal(HEAL_SIDE, page, &bytes);
        let wrong = Wrong::Mirror { side };
        let mended = match healed {
            Ok(()) if copied => Mended::Repaired(wrong),
            Ok(()) => Mended::Lost(wrong),
            Err(_) => match self.relocate(repairer, page, None, event.finder) {
                Ok(mended) => mended,
                Err(disturbed @ Error::Tx(_)) => return Err(disturbed),
                Err(_) => Mended::Lost(wrong),
            },
        };
        self.report_mended(event, mended);
        Ok(mended)
    }

    fn mend_log_page(
        &self,
        repairer: &mut Repairer,
        page: u64,
        event: Event,
    ) -> Result<Mended, Error> {
        let Some(healed) = self.log.heal(&self.m, &self.numbers, page) else {
            // The commit that holds the lane may be waiting for the repairer.
            return Err(Error::Tx(holdfast_txn::TxError::Conflict));
        };
        let mended = match healed {
            Ok(()) => Mended::Repaired(Wrong::Log),
            Err(_) => match self.relocate(repairer, page, None, event.finder) {
                Ok(_) => {
                    // What is not in its twin is made up for by a reclaim, and a new watermark
                    // record. A lane that is held now writes its own before long.
                    if self.log.twin(page).is_none() {
                        let _ = self.log.heal(&self.m, &self.numbers, page);
                    }
                    Mended::Relocated(Wrong::Log)
                }
                Err(disturbed @ Error::Tx(_)) => return Err(disturbed),
                // The other copy goes on alone; the page is found again at each scrub.
                Err(_) => Mended::Lost(Wrong::Log),
            },
        };
        self.report_mended(event, mended);
        Ok(mended)
    }

    /// Stores `bytes` at `at` under an intent and makes them durable. Columns are held.
    pub(crate) fn install_range(
        &self,
        repairer: &mut Repairer,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        repairer.installs += 1;
        let intent = Intent { at, len: bytes.len() as u64, sum: crc32c(0, bytes) };
        self.begin_install(repairer, intent)?;
        self.m.put(STORE, at, bytes)?;
        if self.is_file() {
            self.m.sync(STORED_SYNC)?;
        }
        // Elsewhere, clearing the intent drains: what was stored is durable with it.
        self.end_install(repairer)?;
        Ok(())
    }

    /// Repairs a directory entry that was bad when its zone was loaded. One that is lost leaves its
    /// chunk unknown: its objects are lost, and nothing new is put there.
    pub(crate) fn mend_entry_at_open(&self, zone: u8, at: u64) -> Result<(), Error> {
        let asked = Asked { cause: Cause::Sum, finder: Finder::Open };
        let lost = self.mend_through(at, CHUNK_LEN as u64, asked)?.is_some();
        self.load_mended_entry(zone, at, lost);
        Ok(())
    }

    /// Loads a directory entry after its repair, or withholds its chunk.
    pub(crate) fn load_mended_entry(&self, zone: u8, at: u64, lost: bool) {
        let Some(table) = self.heap.zone(zone) else { return };
        let chunk = ((at - table.entry_at(0)) / CHUNK_LEN as u64) as u32;
        if lost || self.heap.load_entry(&Direct(&self.m), zone, chunk).is_err() {
            table.reserve_if(chunk, ChunkKind::Free);
        }
    }

    /// Columns of ranges, sorted and without doubles.
    pub(crate) fn columns_of(&self, ranges: &[(u64, u64)]) -> Vec<ColumnId> {
        let mut ids = Vec::new();
        for (at, len) in ranges {
            if let Some(zone) = self.zone_of(*at) {
                self.columns.ids_of(zone, *at, *len, &mut ids);
            }
        }
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The table of a zone that holds `at`.
    pub(crate) fn table_of(&self, at: u64) -> Option<&ZoneTable> {
        self.heap.zone_of(at)
    }

    /// Calls `each` for every unit that has bytes in `[at, at + len)`: for none where no zone is.
    pub(crate) fn units_over(&self, at: u64, len: u64, each: &mut impl FnMut(Unit)) {
        if let Some(table) = self.table_of(at) {
            table.units_over(at, len, each);
        }
    }

    /// The same for columns, `[col, col + len)` of all rows.
    pub(crate) fn units_of_columns(
        &self,
        zone: &Zone,
        (col, len): (u64, u64),
        each: &mut impl FnMut(Unit),
    ) {
        for row in 0..zone.data_rows() {
            self.units_over(zone.at(row, col), len, each);
        }
    }
}

/// Rewriting a metadata page.
const HEAL_SIDE: Site = Site::new("object.repair.heal-side");

/// What a page that cannot be read may be.
pub(crate) struct Rebuilt {
    pub(crate) bytes: Vec<u8>,
    /// There is a source of it.
    pub(crate) is_known: bool,
    /// There are two, which verify and are not the same, and nothing tells which is the newer one.
    pub(crate) in_doubt: bool,
}

/// What is wrong where a page of a zone cannot be read.
pub(crate) const fn wrong_in(unit: zone::Unit) -> Wrong {
    match unit {
        zone::Unit::Row(_) => Wrong::Data,
        zone::Unit::P => Wrong::ParityP,
        zone::Unit::Q => Wrong::ParityQ,
    }
}
