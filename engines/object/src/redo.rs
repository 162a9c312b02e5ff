//! Completing changes that a durable record describes: after a crash, and after a media error
//! under a commit. Both come to the same, since nobody knows how far the stores and the parity
//! patches got.
//!
//! | step | what | crash after it leaves |
//! |---|---|---|
//! | 1 pages | under the columns: those that cannot be read, rebuilt | the same records |
//! | 2 units | over the columns: those that would not verify *after* the replay, rebuilt | same |
//! | 3 rows | whose last write was lost: brought back | same |
//! | drain | what was rebuilt is on the medium | same |
//! | 4 store | what the records say | same |
//! | 5 parity | that of the rows, all of which verify | same |
//!
//! Recomputing parity from rows that were not verified would bless damage in them for ever: hence
//! 2 and 3 before 5, and why they verify once more when they were read for it: see
//! `redo_parity.rs`. They come before 4 too, and are made durable before it: parity on the medium
//! may still be that of the bytes which 4 overwrites. A rebuilt row is judged by its sum with the
//! changes over it, and what was rebuilt is stored without them: then a crash between any two
//! steps finds bytes that go with the parity found.
//!
//! A page that memory stands in for is not durable by that drain: see `stand_in.rs`.
//!
//! Parity is that of the rows as found, with nothing patched, or of the rows as they will be, with
//! all of it patched; both are tried. Between the two (some patched, some not, in the very bytes
//! of the column in which a third row is damaged) the row is lost: a crash and a damage at once.

use holdfast_codes::xor_into;
use holdfast_heap::Unit;
use holdfast_heap::verify::{Direct, Found, Source};
use holdfast_layout::Certify;
use holdfast_pmem::{MediaCause, MediaError, Medium, PAGE, Site};
use holdfast_redundancy::events::{Cause, Finder};
use holdfast_redundancy::exempt::read_exempt_by;
use holdfast_redundancy::zone::{self, Piece};
use holdfast_redundancy::{Exempt, ExemptRanges, Place, Wrong, Zone};

use crate::blame::{Doubt, Newer, stays_bad};
use crate::changes::Changes;
use crate::error::Error;
use crate::hold::Holding;
use crate::mend_unit::{Part, find_cure, find_cure_of_two, is_there, parts_of};
use crate::one_sided::other_of;
use crate::redo_parity::{ToBe, by_pages};
use crate::repair::{Asked, Mended};
use crate::shared::{Repairer, Shared};
use crate::whole_page::{find_page, look_beside};

/// The pages of a unit that could not be read are cured.
const STEP_REACHED: Site = Site::new("object.redo.step-reached");
/// It is known what cures a unit.
const STEP_CURE: Site = Site::new("object.redo.step-cure");
/// It is known which write of a row was lost.
const STEP_NEWER: Site = Site::new("object.redo.step-newer");
const STEP_CURED: Site = Site::new("object.redo.step-cured");
const STEP_STORED: Site = Site::new("object.redo.step-stored");
/// Storing what a record says.
const STORE: Site = Site::new("object.redo.store");
/// Rewriting a bad page.
const HEAL: Site = Site::new("object.redo.heal");
/// Verifying rows before parity is recomputed from them.
const VERIFY: Site = Site::new("object.redo.verify");
/// Storing a rebuilt unit.
const CURE: Site = Site::new("object.redo.cure");
/// Storing a row whose last write was lost.
const CURE_ROW: Site = Site::new("object.redo.cure-row");
/// The drain of steps 1 to 3.
const CURED: Site = Site::new("object.redo.cured");
/// The same on a file.
const CURED_SYNC: Site = Site::new("object.redo.cured-sync");
/// Making all of it durable; on a file who asked for it syncs.
const REDONE: Site = Site::new("object.redo.redone");

/// Pages that may turn bad under one store, or the repair of one unit, before it is given up.
const BAD_PAGES_MAX: u32 = 8;
/// Pages that are made up to judge some columns by.
const JUDGED_MAX: u32 = 64;

/// What is to be completed.
pub(crate) struct Redo<'a> {
    /// What the records say.
    pub(crate) changes: &'a Changes,
    /// Ranges that counted as zeros before, ascending: as found, the directory knows those after.
    pub(crate) was_exempt: &'a [(u64, u64)],
    /// Who found out.
    pub(crate) finder: Finder,
}

/// What a redo did.
#[derive(Debug, Default)]
pub(crate) struct Redone {
    /// Units rebuilt on the way.
    pub(crate) cured: u64,
    /// Units that could not be.
    pub(crate) lost: Vec<Unit>,
    /// Bytes of columns whose parity was recomputed.
    pub(crate) columns: u64,
    /// What parity goes on saying of rows beside what they are: in doubt, or held by somebody.
    pub(crate) kept: Vec<Doubt>,
    /// Pages that cannot be read, and stay so until step 5 at least: rows are judged without.
    pub(crate) given_up: Vec<u64>,
}

impl Redone {
    /// Whether parity goes on saying something.
    pub(crate) fn keeps(&self, doubt: &Doubt) -> bool {
        self.kept.iter().any(|kept| doubt.is_of(kept))
    }
}

/// Where the bytes of a page come from that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MadeUp {
    /// Nowhere.
    Nothing,
    /// From parity on the medium, or something over them does not verify.
    AsFound,
    /// From the parity that was summed before the stores, and all over them verifies.
    AsItWillBe,
}

/// What became of a unit that would not have verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cured {
    /// It verifies.
    Whole,
    /// It is none: its chunk is something else than the directory said.
    Entry,
    /// It is beyond the redundancy.
    Lost,
}

impl<M: Medium> Shared<M> {
    /// Steps 1 to 5. The directory is known as it will be after the changes.
    ///
    /// # Errors
    /// A page stays bad and its frame can move, for which columns must not be held; a write fails.
    pub(crate) fn redo(&self, repairer: &mut Repairer, redo: &Redo<'_>) -> Result<Redone, Error> {
        let mut redone = Redone::default();
        let zones: Vec<Zone> = self.zones().copied().collect();
        let mut to_be = self.cure_and_sum(repairer, redo, &zones, &mut redone)?;
        self.harden_cures()?;
        self.m.step(STEP_CURED);
        self.redo_stores(repairer, redo, &mut to_be)?;
        self.m.step(STEP_STORED);
        for zone in &zones {
            let columns = redo.changes.columns(zone);
            for (col, len) in columns.iter().copied() {
                self.redo_columns(repairer, redo, (zone, (col, len)), &to_be, &mut redone)?;
                redone.columns += len;
            }
        }
        if !self.is_file() {
            self.m.drain(REDONE);
        }
        Ok(redone)
    }

    /// Has parity say again of rows what it said before it was recomputed from them, over these
    /// columns.
    pub(crate) fn keep_apart(
        &self,
        repairer: &mut Repairer,
        zone: &Zone,
        (from, len): (u64, u64),
        kept: &[Doubt],
    ) {
        for doubt in kept.iter().filter(|doubt| zone.contains(doubt.at)) {
            for (col, difference) in &doubt.columns {
                let end = col + difference.len() as u64;
                let (from, to) = (from.max(*col), (from + len).min(end));
                if from < to {
                    let part = &difference[(from - col) as usize..(to - col) as usize];
                    let place = Place { row: doubt.row, col: from };
                    let what = (part, doubt.of);
                    // A page that cannot be read says nothing any more, as was reported.
                    let _ = self.set_apart(zone, place, what, &mut repairer.scratch);
                    if let Some(other) = doubt.of.and_then(other_of) {
                        self.set_one_sided(zone, other, from);
                    }
                }
            }
        }
    }

    pub(crate) fn harden_cures(&self) -> Result<(), Error> {
        if self.is_file() {
            self.m.sync(CURED_SYNC)?;
        } else {
            self.m.drain(CURED);
        }
        Ok(())
    }

    /// Steps 1 to 3 of some columns.
    pub(crate) fn cure_columns(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        zone: &Zone,
        col: u64,
        len: u64,
        redone: &mut Redone,
    ) -> Result<(), Error> {
        self.cure_rows(repairer, redo, zone, (col, len), redone)?;
        for columns in by_pages((col, len)) {
            self.cure_lost_write(repairer, redo, zone, columns, None, redone)?;
        }
        Ok(())
    }

    /// Steps 1 and 2 of some columns.
    pub(crate) fn cure_rows(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        zone: &Zone,
        (col, len): (u64, u64),
        redone: &mut Redone,
    ) -> Result<(), Error> {
        redone.cured += self.cure_pages(repairer, redo, zone, (col, len))?;
        let mut bad = self.units_to_cure(redo, zone, (col, len), redone);
        while let Some(unit) = bad.pop() {
            match self.cure_unit(repairer, redo, &unit)? {
                Cured::Whole => redone.cured += 1,
                Cured::Lost => redone.lost.push(unit),
                Cured::Entry => {
                    redone.cured += 1;
                    bad = self.units_to_cure(redo, zone, (col, len), redone);
                }
            }
        }
        Ok(())
    }

    /// The units over some columns that would not verify after the replay and were not given up,
    /// the last one first.
    pub(crate) fn units_to_cure(
        &self,
        redo: &Redo<'_>,
        zone: &Zone,
        (col, len): (u64, u64),
        redone: &Redone,
    ) -> Vec<Unit> {
        let mut bad = Vec::new();
        self.units_of_columns(zone, (col, len), &mut |unit| {
            let known = |unit| redone.lost.contains(unit) || bad.contains(unit);
            if !self.will_verify(&unit, redo.changes) && !known(&unit) {
                bad.push(unit);
            }
        });
        bad.reverse();
        bad
    }

    /// Step 1. Answers how many pages are as they were.
    fn cure_pages(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        zone: &Zone,
        (col, len): (u64, u64),
    ) -> Result<u64, Error> {
        let mut cured = 0;
        for page in (col / PAGE * PAGE..col + len).step_by(PAGE as usize) {
            for row in 0..zone.data_rows() {
                let at = zone.at(row, page);
                if self.is_bad(at) && self.exempt().first_in(at, PAGE).is_none() {
                    let (made, _) = self.cure_page(repairer, redo, at, None)?;
                    cured += u64::from(made != MadeUp::Nothing);
                }
            }
        }
        Ok(cured)
    }

    /// Whether sums decide in a redo: one answer for all its steps, each of which sees to what the
    /// one before it let pass.
    pub(crate) fn redo_certify(&self) -> Certify {
        Certify::when(self.m.enabled(VERIFY))
    }

    /// Whether a unit verifies once the changes are made.
    fn will_verify(&self, unit: &Unit, changes: &Changes) -> bool {
        let direct = Direct(&self.m);
        let found = unit.check(&changes.over(&direct), self.heap.sums(), self.redo_certify());
        matches!(found, Ok(Found::Good | Found::Nothing))
    }

    /// Rewrites a page of a row that cannot be read with the likeliest of what it may have been, or
    /// will be by the sums of `to_be`. Answers also whether it can be used again.
    pub(crate) fn cure_page(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        page: u64,
        to_be: Option<&ToBe>,
    ) -> Result<(MadeUp, bool), Error> {
        let event = self.event(Cause::MediaError, redo.finder, page, PAGE);
        let found = self.may_have_been(repairer, redo, page, PAGE);
        let summed = to_be.into_iter().flat_map(|to_be| {
            found.iter().filter_map(|found| self.as_it_will_be(redo, to_be, page, found))
        });
        let summed = summed.map(|bytes| (MadeUp::AsItWillBe, bytes));
        let found = found.iter().map(|bytes| (MadeUp::AsFound, bytes.clone()));
        let candidates: Vec<_> = summed.chain(found).collect();
        let certify = self.redo_certify();
        let bad = |c: &[u8]| self.bad_units(page, c, redo.changes, certify);
        let judged = candidates.into_iter().map(|(made, c)| (bad(&c), made, c));
        let best = judged.min_by_key(|(bad, ..)| *bad);
        let (made, bytes) = match best {
            Some((0, made, bytes)) => (made, bytes),
            Some((_, _, bytes)) => (MadeUp::AsFound, bytes),
            None => (MadeUp::Nothing, vec![0; PAGE as usize]),
        };
        let known = made != MadeUp::Nothing;
        let healed = self.m.heal(HEAL, page, &bytes);
        let mended = match healed {
            Ok(()) if known => Mended::Repaired(Wrong::Data),
            Ok(()) => Mended::Lost(Wrong::Data),
            Err(_) => {
                let what = (Wrong::Data, event.finder);
                self.move_or_stand_in(repairer, page, (&bytes, known), what)?
            }
        };
        // What is lost may have moved all the same.
        let mended_it = healed.is_ok() || !matches!(mended, Mended::Lost(_));
        let usable = mended_it || !self.is_bad(page);
        match redo.finder {
            _ if !known => {}
            Finder::Open => self.know_future(redo.changes, (page, PAGE)),
            _ => self.know_rebuilt(page),
        }
        self.report_mended(event, mended);
        Ok((made, usable))
    }

    /// Step 1 for the pages that a unit has its parts on. False if one stays bad.
    fn cure_pages_of(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        parts: &[Part],
    ) -> Result<bool, Error> {
        let mut usable = true;
        for part in parts {
            for page in (part.at / PAGE * PAGE..part.at + part.len).step_by(PAGE as usize) {
                if self.is_bad(page) {
                    usable &= self.cure_page(repairer, redo, page, None)?.1;
                }
            }
        }
        Ok(usable)
    }

    /// Step 2 for one unit.
    pub(crate) fn cure_unit(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        unit: &Unit,
    ) -> Result<Cured, Error> {
        let parts = parts_of(unit);
        let (at, len) = unit.range();
        let reached = || unit.reach(&Direct(&self.m), self.heap.sums()).is_ok();
        let mut tries = 0;
        loop {
            let usable = self.cure_pages_of(repairer, redo, &parts)?;
            self.m.step(STEP_REACHED);
            if self.will_verify(unit, redo.changes) || !is_there(self, unit) {
                return Ok(Cured::Whole);
            }
            let event = self.event(Cause::Sum, redo.finder, at, len);
            let cured = match reached() {
                true => self.cure_reached(repairer, redo, (unit, &parts)),
                false => Ok(Cured::Lost),
            };
            tries += 1;
            // A page that turned bad meanwhile can be made up, and the unit cured then.
            let again = usable && tries < BAD_PAGES_MAX;
            match cured {
                Err(Error::Media(e))
                    if e.cause == MediaCause::Poison && again && self.is_of_row(e.at) =>
                {
                    // It may be one that can be read, and refuses stores.
                    if !self.cure_page(repairer, redo, e.at / PAGE * PAGE, None)?.1 {
                        return Err(Error::Media(e));
                    }
                }
                Ok(Cured::Lost) if again && !reached() => {}
                Ok(Cured::Lost) => {
                    self.report_mended(event, Mended::Lost(parts[0].wrong));
                    return Ok(Cured::Lost);
                }
                done => return done,
            }
        }
    }

    fn is_of_row(&self, at: u64) -> bool {
        matches!(self.zone_unit(at), Some((_, zone::Unit::Row(_), _)))
    }

    /// Step 2 for a unit all of which could be read. One that is lost is not reported yet.
    fn cure_reached(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        (unit, parts): (&Unit, &[Part]),
    ) -> Result<Cured, Error> {
        let certify = self.redo_certify();
        let mut may_be = |at, len| self.may_have_been(repairer, redo, at, len);
        let whole = find_page(self, unit, parts, redo.changes, &mut may_be);
        let mut holding = Holding::default();
        // While a pool is opened, nobody holds anything.
        let open = redo.finder == Finder::Open;
        let whole = whole.filter(|cure| open || self.hold_words(&cure.holds, &mut holding));
        let cure = whole.or_else(|| find_cure(self, unit, parts, redo.changes, &mut may_be));
        let cure = cure.or_else(|| {
            let was = ExemptRanges(redo.was_exempt);
            find_cure_of_two(self, repairer, unit, parts, redo.changes, &was, certify)
        });
        let Some(cure) = cure else {
            // Only what an open finds can be an older one: from then on the directory is known.
            if redo.finder == Finder::Open && self.restore_entries_found(repairer, redo, unit)? {
                return Ok(Cured::Entry);
            }
            return Ok(Cured::Lost);
        };
        self.m.step(STEP_CURE);
        let put: Result<(), MediaError> = cure.parts.iter().try_for_each(|(part, bytes)| {
            let event = self.event(Cause::Sum, redo.finder, part.at, part.len);
            self.m.put(CURE, part.at, bytes)?;
            self.report_mended(event, Mended::Repaired(part.wrong));
            Ok(())
        });
        self.release(holding);
        look_beside(self, &cure);
        Ok(put.map(|()| Cured::Whole)?)
    }

    /// Step 3. Only a write of `row` is brought back, if one is named and P and Q can tell.
    ///
    /// The page of such a write may turn bad before that is stored, or one that it is judged by.
    /// Made up from parity it has the write, or is judged anew; judged without it, if it stays bad.
    pub(crate) fn cure_lost_write(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        zone: &Zone,
        columns: (u64, u64),
        row: Option<u32>,
        redone: &mut Redone,
    ) -> Result<(), Error> {
        // While a pool is opened, nobody holds anything.
        let open = redo.finder == Finder::Open;
        let (mut brought, mut cured) = (Vec::new(), 0);
        let mut tries = 0;
        let (doubts, left) = loop {
            let judged = match self.judge_writes(repairer, redo, zone, columns, &redone.given_up) {
                Err(Error::Media(e)) if !stays_bad(&redone.given_up, &e) => {
                    let page = e.at / PAGE * PAGE;
                    cured += 1;
                    // It may be that it could not be read for once.
                    if cured < JUDGED_MAX && !self.is_bad(page) {
                        continue;
                    }
                    let cure = cured < JUDGED_MAX && self.is_of_row(page);
                    if !cure || !self.cure_page(repairer, redo, page, None)?.1 {
                        redone.given_up.push(page);
                    }
                    continue;
                }
                judged => judged?,
            };
            let newer = judged.newer.into_iter().filter(|n| row.is_none_or(|r| n.doubt.row == r));
            let mut holding = Holding::default();
            let (held, left): (Vec<Newer>, Vec<Newer>) =
                newer.partition(|newer| open || self.hold(newer, &mut holding));
            let done = self.put_newer(&held, redo.finder);
            self.release(holding);
            brought.extend(held);
            tries += 1;
            match done {
                Ok(cured) => {
                    redone.cured += cured;
                    break (judged.doubts, left);
                }
                Err(e) if e.cause == MediaCause::Poison && tries < BAD_PAGES_MAX => {
                    let page = e.at / PAGE * PAGE;
                    if !self.cure_page(repairer, redo, page, None)?.1 {
                        return Err(e.into());
                    }
                }
                Err(e) => return Err(e.into()),
            }
        };
        for (at, bytes) in brought.iter().filter(|_| open).flat_map(|newer| &newer.parts) {
            self.know_future(redo.changes, (*at, bytes.len() as u64));
        }
        // What an earlier try left there was brought back since, by this one or under a cure.
        redone.kept.retain(|kept| !(zone.contains(kept.at) && kept.lies_over(columns)));
        // What stays in doubt is said now; parity goes on saying what it did.
        let asked = Asked { cause: Cause::Parity, finder: redo.finder };
        doubts.iter().for_each(|doubt| self.report_doubt(doubt, asked));
        for doubt in doubts.into_iter().chain(left.into_iter().map(|newer| newer.doubt)) {
            if !redone.keeps(&doubt) {
                redone.kept.push(doubt);
            }
        }
        Ok(())
    }

    /// Stores what was written and lost. Answers in how many places.
    fn put_newer(&self, newer: &[Newer], finder: Finder) -> Result<u64, MediaError> {
        let mut done = 0;
        for (at, bytes, wrong) in self.by_page(newer)? {
            self.m.step(STEP_NEWER);
            let event = self.event(Cause::Parity, finder, at, bytes.len() as u64);
            self.m.put(CURE_ROW, at, &bytes)?;
            self.report_mended(event, Mended::Repaired(wrong));
            done += 1;
        }
        Ok(done)
    }

    /// What `[at, at + len)` of a row may have been when parity was last right.
    fn may_have_been(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        at: u64,
        len: u64,
    ) -> Vec<Vec<u8>> {
        let was = ExemptRanges(redo.was_exempt);
        let mut all = self.range_candidates(repairer, at, len, &was);
        let direct = Direct(&self.m);
        let (future, exempt) = (redo.changes.over(&direct), self.exempt());
        let Some(zone) = self.zone_of(at).filter(|z| z.has_p()) else { return all };
        let mut patched = Some(Vec::with_capacity(len as usize));
        for piece in zone.split(at, len) {
            let of = |Piece { row, col, len, .. }: Piece| {
                self.sum_of_rows(&future, zone, Some(row), col, len, &exempt).ok()
            };
            let part = of(piece).or_else(|| self.by_pages(piece, of));
            patched = patched.zip(part).map(|(head, part)| [head, part].concat());
        }
        all.extend(patched.filter(|p| !all.contains(p)));
        all
    }

    /// P over `[col, col + len)` XOR all rows but `missing`, as `from` shows them.
    ///
    /// # Errors
    /// One cannot be read.
    pub(crate) fn sum_of_rows(
        &self,
        from: &impl Source,
        zone: &Zone,
        missing: Option<u32>,
        col: u64,
        len: u64,
        exempt: &impl Exempt,
    ) -> Result<Vec<u8>, MediaError> {
        let mut sum = vec![0; len as usize];
        self.m.read(zone.p_at(col), &mut sum)?;
        self.add_rows(from, zone, missing, (col, &mut sum), exempt)?;
        Ok(sum)
    }

    /// Adds all rows but `missing` to `sum`, as `from` shows them.
    ///
    /// # Errors
    /// One cannot be read.
    pub(crate) fn add_rows(
        &self,
        from: &impl Source,
        zone: &Zone,
        missing: Option<u32>,
        (col, sum): (u64, &mut [u8]),
        exempt: &impl Exempt,
    ) -> Result<(), MediaError> {
        let mut row_bytes = vec![0; sum.len()];
        for row in (0..zone.data_rows()).filter(|row| Some(*row) != missing) {
            let read = |at, into: &mut [u8]| from.read(at, into);
            read_exempt_by(zone.at(row, col), &mut row_bytes, exempt, read)?;
            xor_into(sum, &row_bytes);
        }
        Ok(())
    }

    /// Step 4, whatever turns bad under it. What belongs on a page that stays bad beyond the
    /// redundancy is lost, as was reported when that was found out; all else is stored.
    fn redo_stores(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        to_be: &mut ToBe,
    ) -> Result<(), Error> {
        let (mut tries, mut left) = (0, Vec::new());
        'anew: loop {
            for (at, bytes) in redo.changes.pieces() {
                match self.store_around(at, bytes, &left) {
                    Err(MediaError { at: bad, cause: MediaCause::Poison, .. })
                        if tries < BAD_PAGES_MAX =>
                    {
                        let page = bad / PAGE * PAGE;
                        let (made, _) = self.cure_page(repairer, redo, page, Some(&*to_be))?;
                        if made != MadeUp::AsItWillBe
                            && let Some((zone, place)) = self.place_of(page)
                        {
                            to_be.forget_over(zone, place);
                        }
                        if self.is_bad(page) {
                            if redo.finder == Finder::Commit {
                                // Perhaps only for now: the record stays, and an open tries again.
                                let (len, cause) = (PAGE, MediaCause::Poison);
                                return Err(Error::Media(MediaError { at: page, len, cause }));
                            }
                            left.push(page);
                        } else {
                            tries += 1;
                        }
                        // The page is as it was before all changes, also those stored already.
                        continue 'anew;
                    }
                    other => other?,
                }
            }
            return Ok(());
        }
    }

    /// Stores bytes of a row, but on none of these pages.
    fn store_around(&self, at: u64, bytes: &[u8], left: &[u64]) -> Result<(), MediaError> {
        let (mut from, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let whole = if left.is_empty() { rest.len() } else { (PAGE - from % PAGE) as usize };
            let (part, tail) = rest.split_at(rest.len().min(whole));
            if !left.contains(&(from / PAGE * PAGE)) {
                self.m.put(STORE, from, part)?;
            }
            (from, rest) = (from + part.len() as u64, tail);
        }
        Ok(())
    }

    /// The ranges of all log chunks, ascending, as the directory in memory has them.
    pub(crate) fn log_ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges = Vec::new();
        for table in self.heap.zones() {
            for chunk in 0..table.chunks() {
                let log = |e: holdfast_heap::ChunkEntry| e.kind == holdfast_heap::ChunkKind::Log;
                if table.entry(chunk).is_some_and(log) {
                    ranges.push((table.chunk_at(chunk), table.chunk_len()));
                }
            }
        }
        ranges
    }
}
