//! Rows whose last write was lost, found by the columns that do not add up, and brought back.
//!
//! P and Q name the row; with P alone `blame.rs` tells which it is. A scrub gets there by itself,
//! column after column. Two others must not wait for it:
//!
//! - *Who would give a granule up.* A chunk whose directory entry is an older one has units that
//!   were never there: the slot of an object that has been freed, of a run that has not been made.
//!   They verify by chance at most, and no candidate cures them. So before a unit is given up, the
//!   columns of the entries that make it one are looked at; where one is brought back, what lies in
//!   the chunk is listed anew.
//! - *Who would call a pointer dangling.* An object in a chunk whose entry says that it is free, or
//!   something else, has no place; one whose slot is an older one was never made. That counts if
//!   the columns of the entry or the slot add up. If they do not and nothing settles it, what the
//!   pointer names is in doubt.

use holdfast_heap::format::CHUNK_LEN;
use holdfast_heap::verify::Direct;
use holdfast_heap::{ChunkKind, Unit, ZoneTable};
use holdfast_layout::RawPtr;
use holdfast_pmem::{MediaError, Medium, PAGE, Site};
use holdfast_redundancy::events::{Cause, Event, Finder};
use holdfast_redundancy::parity::{self, Mismatch, ParitySites, Scratch, Suspect};
use holdfast_redundancy::zone::Piece;
use holdfast_redundancy::{Exempt, Place, Wrong, Zone, zone};
use holdfast_sync::atomic::Ordering;
use holdfast_sync::{MutexGuard, PoisonError};
use holdfast_txn::TxError;
use std::collections::{BTreeMap, BTreeSet};

use crate::anew::Differ;
use crate::blame::{Apart, Doubt, Judged, Newer, Others, stays_bad};
use crate::changes::Changes;
use crate::error::Error;
use crate::hold::Holding;
use crate::located::Blamed;
use crate::one_sided::other_of;
use crate::redo::{Redo, Redone};
use crate::repair::{Asked, BAD_PAGES_MAX, Mended};
use crate::shared::{Repairer, Shared};
use crate::tx::damaged;

/// Looking at the entries of a unit that is to be given up.
const ENTRIES: Site = Site::new("object.bring_back.entries");
/// The same of all entries, before a scrub.
const DIRECTORIES: Site = Site::new("object.bring_back.directories");
/// The same while records are replayed.
const ENTRIES_FOUND: Site = Site::new("object.bring_back.entries-found");
/// Having parity say that a row differs from what it is.
const APART: ParitySites = ParitySites {
    p: Site::new("object.bring_back.apart-p"),
    q: Site::new("object.bring_back.apart-q"),
};
/// Judging rows by one parity where the other agrees with them.
const ALONE: Site = Site::new("object.bring_back.alone");
/// Looking at the entry or the slot that a pointer does not agree with.
const DOUBT: Site = Site::new("object.bring_back.doubt");

/// Places remembered whose columns cannot be settled.
const UNSETTLED_MAX: usize = 1024;

/// Pages beside some columns that are held with them at most. A page of sums is about 256 others,
/// and a column may go through several such pages.
pub(crate) const BESIDE_MAX: usize = 4096;

/// Of columns that do not add up: whether anybody tried to settle that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doubtful {
    /// Nobody has since the last scrub.
    Untried,
    /// It was tried in vain.
    Unsettled,
}

/// What is known of columns before they are judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    /// Everything over them verifies as it is: only then it can be known for an older state.
    pub(crate) all_verify: bool,
    /// Pages beside them whose columns are held as well; `None` if none can be.
    pub(crate) beside: Option<&'a [u64]>,
    /// Pages that cannot be read and stay so.
    pub(crate) given_up: &'a [u64],
}

/// Where which bytes are to be stored.
type Stored<'a> = &'a (u64, Vec<u8>);

/// What was brought back of a mismatch.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    /// What it concerns, if anything was.
    pub(crate) back: Option<Wrong>,
    /// What may be older than what was committed, and stays as it is.
    pub(crate) doubts: Vec<Doubt>,
    /// What is older, and is held by somebody: it is left for the next pass.
    pub(crate) left: Vec<Doubt>,
    /// Pages whose columns have to be held as well before anything can be said.
    pub(crate) wider: Vec<u64>,
    /// There are more of these than can be held.
    pub(crate) cut: bool,
    /// It lay in several rows of the columns: what else was said of them is not so any more.
    pub(crate) across: bool,
}

/// Whether no other row is suspected. Where a parity is, that one may be right after all: the other
/// may have been made from this row as it is.
fn is_of_row(suspect: Suspect, row: u32) -> bool {
    !matches!(suspect, Suspect::Unit(zone::Unit::Row(other)) if other != row)
}

impl<M: Medium> Shared<M> {
    /// Brings back what explains a difference, if something does. Columns are held.
    ///
    /// Where one parity alone differs, the other may have been made from a row whose last write was
    /// lost, when it could not be read itself. So it is judged as if there were no other. But only
    /// what is newer by its own numbers counts then, unless it is known that it was made so.
    ///
    /// `others` are wrong in the same page of columns, each by itself.
    ///
    /// # Errors
    /// Among others, a page that is needed to judge them cannot be read.
    pub(crate) fn bring_back(
        &self,
        repairer: &mut Repairer,
        zone: &Zone,
        (blamed, others): (&Blamed, &[Blamed]),
        known: Known<'_>,
        asked: Asked,
    ) -> Result<Brought, Error> {
        let (col, by) = (blamed.col, &blamed.by[..]);
        let (located, alone) = match blamed.suspect {
            Suspect::Unit(zone::Unit::Row(row)) => (Some(row), false),
            Suspect::Any => (None, false),
            Suspect::Unit(parity) => (None, !self.speaks_alone(zone, parity, col)),
            Suspect::Several => return Ok(Brought::default()),
        };
        if !known.all_verify || (alone && !self.m.enabled(ALONE)) {
            return Ok(Brought::default());
        }
        // Where sums do not say what belongs to what, the row comes back as a whole.
        if let Some(row) = located.filter(|_| !self.heap.sums().active()) {
            let (row, none) = (zone.at(row, col), Changes::default());
            if let Some(brought) = self.bring_back_row(repairer, (row, by), &none, asked)? {
                return Ok(brought);
            }
        }
        let (mut judged, pages, across) =
            self.judge_with_others(repairer, zone, (blamed, others), located, known)?;
        if alone {
            judged = judged.by_its_own();
        }
        let (scratch, mut cut) = (&mut repairer.scratch, false);
        if let Some(beside) = known.beside {
            let (wider, too_many) = self.pages_to_hold(zone, col, judged.torn, beside, scratch);
            if !wider.is_empty() {
                return Ok(Brought { wider, ..Brought::default() });
            }
            cut = too_many;
        }
        // Nothing that a sum covers differs: then what none covers is theirs as well.
        let nothing = judged.newer.is_empty() && judged.doubts.is_empty() && !cut;
        if let Some(row) = located.filter(|_| nothing) {
            let row = zone.at(row, col);
            if let Some(brought) = self.bring_back_row(repairer, (row, by), &pages, asked)? {
                return Ok(brought);
            }
        }
        let mut brought = Brought { doubts: judged.doubts, cut, across, ..Brought::default() };
        let mut holding = Holding::default();
        let mut held: Vec<Newer> = Vec::new();
        for newer in judged.newer {
            if self.hold(&newer, &mut holding) {
                held.push(newer);
            } else {
                brought.left.push(newer.doubt);
            }
        }
        let done = self.install_newer(repairer, &held, asked);
        self.release(holding);
        done?;
        brought.back = held.first().map(|newer| newer.wrong);
        Ok(brought)
    }

    /// Judges columns with the pages beside them; where something does not verify so, also with
    /// what `others` are wrong in, if that tells more. Answers what was taken for known, too, and
    /// whether some of that is of these columns.
    fn judge_with_others(
        &self,
        repairer: &mut Repairer,
        zone: &Zone,
        (blamed, others): (&Blamed, &[Blamed]),
        located: Option<u32>,
        known: Known<'_>,
    ) -> Result<(Judged, Changes, bool), Error> {
        let (none, beside) = (Changes::default(), known.beside.unwrap_or(&[]));
        let (exempt, scratch) = (self.exempt(), &mut repairer.scratch);
        let pages = self.pages_by_parity((beside, known.given_up), &exempt, scratch)?;
        let of_q = blamed.suspect == Suspect::Unit(zone::Unit::Q);
        let apart = Apart { col: blamed.col, by: &blamed.by, of_q };
        let judge = |by_parity: &Changes| {
            let others = Others { by_parity, given_up: known.given_up };
            self.judge_columns(zone, apart, &none, located, others)
        };
        let judged = judge(&pages)?;
        if located.is_some() && !judged.torn.is_empty() {
            // It may be of the same object.
            let mut all = pages.clone();
            if self.add_rows_by_parity(zone, others, located, &mut all)? {
                let with_them = judge(&all)?;
                if with_them.says() > judged.says() {
                    return Ok((with_them, all, true));
                }
            }
        }
        Ok((judged, pages, false))
    }

    /// Adds what other rows of these columns were, each by its own part of the difference. Whether
    /// there are any.
    fn add_rows_by_parity(
        &self,
        zone: &Zone,
        others: &[Blamed],
        but: Option<u32>,
        into: &mut Changes,
    ) -> Result<bool, Error> {
        let mut any = false;
        for other in others {
            let Suspect::Unit(zone::Unit::Row(row)) = other.suspect else { continue };
            if Some(row) == but {
                continue;
            }
            any = true;
            for (from, len) in other.ranges.iter().copied() {
                let (at, first) = (zone.at(row, from), (from - other.col) as usize);
                let by = &other.by[first..first + len as usize];
                into.put(at, &self.as_parity_says(at, by)?);
            }
        }
        Ok(any)
    }

    /// Stores what is held, a page at a time: a page is what gets lost, and one intent's.
    fn install_newer(
        &self,
        repairer: &mut Repairer,
        held: &[Newer],
        asked: Asked,
    ) -> Result<(), Error> {
        for (at, bytes, wrong) in self.by_page(held)? {
            let event = self.event(asked.cause, asked.finder, at, bytes.len() as u64);
            self.install_range(repairer, at, &bytes)?;
            self.report_mended(event, Mended::Repaired(wrong));
        }
        Ok(())
    }

    /// One range of each page, with all that is to be brought back there. What lies in between is
    /// stored as it is: nobody stores there while the columns are held.
    ///
    /// # Errors
    /// A page cannot be read.
    pub(crate) fn by_page(
        &self,
        newer: &[Newer],
    ) -> Result<Vec<(u64, Vec<u8>, Wrong)>, MediaError> {
        let mut pages: BTreeMap<u64, (Vec<Stored<'_>>, Wrong)> = BTreeMap::new();
        for one in newer {
            for part in &one.parts {
                let (parts, _) =
                    pages.entry(part.0 / PAGE).or_insert_with(|| (Vec::new(), one.wrong));
                parts.push(part);
            }
        }
        let whole = |(parts, wrong): (Vec<Stored<'_>>, Wrong)| {
            let at = parts.iter().map(|(at, _)| *at).min().unwrap_or(0);
            let end = parts.iter().map(|(at, bytes)| at + bytes.len() as u64).max().unwrap_or(at);
            let mut bytes = vec![0; (end - at) as usize];
            self.m.read(at, &mut bytes)?;
            for (from, part) in parts {
                bytes[(from - at) as usize..][..part.len()].copy_from_slice(part);
            }
            Ok((at, bytes, wrong))
        };
        pages.into_values().map(whole).collect()
    }

    /// Has parity say that a row differs from what it is; only one of them, if it is `of` that.
    /// Flushes, does not drain. The column is held.
    pub(crate) fn set_apart(
        &self,
        zone: &Zone,
        place: Place,
        (difference, of): (&[u8], Option<zone::Unit>),
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let end = place.col + difference.len() as u64;
        let says = |unit| of.is_none_or(|of| of == unit);
        let both = (says(zone::Unit::P), zone.has_q() && says(zone::Unit::Q));
        let mut col = place.col;
        while col < end {
            let to = end.min((col / PAGE + 1) * PAGE);
            let part = &difference[(col - place.col) as usize..(to - place.col) as usize];
            let here = Place { col, ..place };
            parity::patch_some(&self.m, zone, both, here, part, scratch, APART)?;
            col = to;
        }
        Ok(())
    }

    /// Pages as parity says that they were, where their columns do not add up and P and Q do not
    /// contradict it. Their columns are held, or nobody else is there.
    ///
    /// # Errors
    /// Something over their columns cannot be read, and was not given up.
    pub(crate) fn pages_by_parity(
        &self,
        (pages, given_up): (&[u64], &[u64]),
        exempt: &impl Exempt,
        scratch: &mut Scratch,
    ) -> Result<Changes, Error> {
        let mut all = Changes::default();
        for page in pages {
            let here = self.place_of(*page).filter(|(zone, _)| zone.has_p());
            let Some((zone, place)) = here else { continue };
            let by = match parity::syndromes(&self.m, zone, place.col, PAGE, exempt, scratch) {
                Err(holdfast_redundancy::Error::Media(e)) if stays_bad(given_up, &e) => {
                    self.page_by_the_other((*page, zone, place), e.at, exempt, &mut all)?;
                    continue;
                }
                by => by?,
            };
            let of_page = |suspect| match suspect {
                Suspect::Unit(unit @ (zone::Unit::P | zone::Unit::Q)) => {
                    self.speaks_alone(zone, unit, place.col)
                }
                Suspect::Unit(unit) => unit == zone::Unit::Row(place.row),
                Suspect::Any => true,
                Suspect::Several => false,
            };
            let differ = Differ { col: place.col, by };
            for blamed in self.blamed(zone, &differ).iter().filter(|b| of_page(b.suspect)) {
                let at = page + (blamed.col - place.col);
                let of_q = blamed.suspect == Suspect::Unit(zone::Unit::Q);
                let by = Apart { col: blamed.col, by: &blamed.by, of_q }.of_row(place.row);
                all.put(at, &self.as_parity_says(at, &by)?);
            }
        }
        Ok(all)
    }

    /// The same of a page whose columns cannot be read at `bad`: if that is a parity, the other one
    /// tells.
    fn page_by_the_other(
        &self,
        (page, zone, place): (u64, &Zone, Place),
        bad: u64,
        exempt: &impl Exempt,
        into: &mut Changes,
    ) -> Result<(), Error> {
        let unit = zone.unit(bad).map(|(unit, _)| unit);
        let Some(other) = unit.and_then(other_of).filter(|_| zone.has_q()) else { return Ok(()) };
        let (columns, of_q) = ((place.col, PAGE), other == zone::Unit::Q);
        // What cannot be read either says nothing.
        if let Ok(by) = self.apart_from_rows(&Direct(&self.m), zone, (columns, of_q), exempt) {
            let by = Apart { col: place.col, by: &by, of_q }.of_row(place.row);
            into.put(page, &self.as_parity_says(page, &by)?);
        }
        Ok(())
    }

    /// Those of `torn` that have to be held, too, to judge these columns: whose own do not add up.
    /// And whether there are too many.
    fn pages_to_hold(
        &self,
        zone: &Zone,
        col: u64,
        torn: Vec<u64>,
        beside: &[u64],
        scratch: &mut Scratch,
    ) -> (Vec<u64>, bool) {
        let mut wider = Vec::new();
        // These are held, and the pages of many rows lie over the same few others.
        let mut known = BTreeMap::from([(self.columns.id(zone, col), false)]);
        for page in torn.into_iter().filter(|page| !beside.contains(page)) {
            let Some((other, place)) = self.place_of(page) else { continue };
            let differs = known.entry(self.columns.id(other, place.col)).or_insert_with(|| {
                // What is seen without holding them is looked at again once they are held.
                let exempt = self.exempt();
                let found = parity::check(&self.m, other, place.col, PAGE, &exempt, scratch);
                found.map_or(true, |found| !found.is_empty())
            });
            if *differs {
                wider.push(page);
            }
        }
        let room = BESIDE_MAX.saturating_sub(beside.len());
        // As long as there is room, what can be held is.
        let cut = room == 0 && !wider.is_empty();
        wider.truncate(room);
        (wider, cut)
    }

    /// Settles the columns of a place that a transaction found in doubt. What somebody holds may be
    /// settled the next time.
    pub(crate) fn settle_found(&self, at: u64, len: u64, finder: Finder) -> Result<(), Error> {
        let (mended, held) = self.settle_over(at, len, finder)?;
        if held || !matches!(mended, Mended::Undecided(_) | Mended::Lost(_)) {
            return Ok(());
        }
        if self.leave_unsettled(at) {
            // What was reported is about the columns, and perhaps about another row of them.
            let of_entry = self.table_of(at).is_some_and(|table| at < table.chunks_at());
            let wrong = if of_entry { Wrong::Directory } else { Wrong::Slot };
            let event = self.event(Cause::Parity, finder, at, len);
            self.report_mended(event, Mended::Undecided(wrong));
        }
        Ok(())
    }

    /// Says of something that it may be older than what was committed, once in each pass.
    pub(crate) fn report_doubt(&self, doubt: &Doubt, asked: Asked) {
        if doubt.object.is_null() {
            self.withhold(doubt.at);
        }
        if !self.leave_unsettled(doubt.at) {
            return;
        }
        let event = self.event(Cause::Parity, asked.finder, doubt.at, doubt.len);
        let event = Event { object: doubt.object.word(), ..event };
        self.report_mended(event, Mended::Undecided(doubt.wrong));
    }

    /// P and Q agree on a row, and no sums tell what differs: it is what they say, if all over it
    /// verifies then, with the pages `beside` it as parity says, and can be held. Chunks that
    /// nobody has are left to be what they are: who takes one goes by the bytes that he finds.
    fn bring_back_row(
        &self,
        repairer: &mut Repairer,
        (at, by): (u64, &[u8]),
        beside: &Changes,
        asked: Asked,
    ) -> Result<Option<Brought>, Error> {
        let Some((_, place)) = self.place_of(at) else { return Ok(None) };
        let (len, mut candidate) = (by.len() as u64, self.as_parity_says(at, by)?);
        self.leave_free(at, &mut candidate)?;
        if self.bad_units(at, &candidate, beside, self.blame_certify()) > 0 {
            return Ok(None);
        }
        let entries = self.table_of(at).is_some_and(|t| at < t.chunks_at());
        let wrong = if entries { Wrong::Directory } else { Wrong::Data };
        let mut holding = Holding::default();
        let held = self.hold_range(at, &candidate, &mut holding);
        let event = self.event(asked.cause, asked.finder, at, len);
        let done = if held { self.install_range(repairer, at, &candidate) } else { Ok(()) };
        self.release(holding);
        done?;
        if !held {
            let (object, Place { row, col }) = (RawPtr::NULL, place);
            let columns = vec![(col, vec![0; len as usize])];
            let left = vec![Doubt { at, len, wrong, object, row, columns, of: None }];
            return Ok(Some(Brought { left, ..Brought::default() }));
        }
        self.report_mended(event, Mended::Repaired(wrong));
        Ok(Some(Brought { back: Some(wrong), ..Brought::default() }))
    }

    /// Puts back into `bytes`, to be stored at `at`, what lies in chunks that are free or reserved.
    fn leave_free(&self, at: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let Some(table) = self.table_of(at) else { return Ok(()) };
        let end = at + bytes.len() as u64;
        let mut from = at.max(table.chunks_at());
        while from < end
            && let Some(chunk) = table.chunk_of(from)
        {
            let to = end.min(table.chunk_at(chunk) + table.chunk_len());
            if table.entry(chunk).is_none_or(|entry| entry.kind == ChunkKind::Free) {
                self.m.read(from, &mut bytes[(from - at) as usize..(to - at) as usize])?;
            }
            from = to;
        }
        Ok(())
    }

    /// The directory entries that say what a granule is part of, and the table they are of. A large
    /// object has one for each of its chunks: their writes are lost together.
    pub(crate) fn entries_of(&self, unit: &Unit) -> Option<(&ZoneTable, (u64, u64))> {
        let Unit::Granule { spot, .. } = unit else { return None };
        let table = self.heap.zone(spot.zone)?;
        let len = u64::from(spot.chunks.max(1)) * CHUNK_LEN as u64;
        Some((table, (table.entry_at(spot.chunk), len)))
    }

    /// Brings back the entries of a unit that nothing cures. True if its chunk is something else
    /// than it was taken for. The columns of the entries are held.
    pub(crate) fn restore_entries(
        &self,
        repairer: &mut Repairer,
        unit: &Unit,
        asked: Asked,
    ) -> Result<bool, Error> {
        let entries = self.entries_of(unit).filter(|_| self.m.enabled(ENTRIES));
        let Some((table, (at, len))) = entries else { return Ok(false) };
        self.unless_the_same((table, at), |zone| {
            self.restore_range(repairer, zone, (at, len), asked).map(drop)
        })
    }

    /// Brings back the entries of a range, whose columns are held. Answers what was, in how many
    /// pieces, and a page that could not be read for it.
    fn restore_range(
        &self,
        repairer: &mut Repairer,
        zone: &Zone,
        (at, len): (u64, u64),
        asked: Asked,
    ) -> Result<(u64, Option<u64>), Error> {
        let (mut back, mut unread) = (0, None);
        let (exempt, scratch) = (self.exempt(), &mut repairer.scratch);
        let mut adds_up = |piece: Piece| {
            let (col, len) = (piece.col, piece.len);
            let found = parity::check(&self.m, zone, col, len, &exempt, scratch);
            found.is_ok_and(|found| found.is_empty())
        };
        if zone.split(at, len).all(&mut adds_up) {
            return Ok((0, None));
        }
        // One after the other: another damage over some of them says nothing of the rest.
        for entry in (at..at + len).step_by(CHUNK_LEN) {
            for piece in zone.split(entry, CHUNK_LEN as u64) {
                let (exempt, scratch) = (self.exempt(), &mut repairer.scratch);
                let (col, len) = (piece.col, piece.len);
                let mut ask = || parity::syndromes(&self.m, zone, col, len, &exempt, scratch);
                // It may be that something could not be read for once.
                let by = match ask().or_else(|_| ask()) {
                    // Another damage, and found as one.
                    Err(holdfast_redundancy::Error::Media(e)) => {
                        unread = Some(e.at / PAGE * PAGE);
                        continue;
                    }
                    by => by?,
                };
                let mut all = self.blamed(zone, &Differ { col, by });
                all.retain(|blamed| is_of_row(blamed.suspect, piece.row));
                for blamed in all {
                    // What the entries in doubt are about may lie over their own columns, so not
                    // everything over them verifies.
                    let given_up = repairer.given_up.clone();
                    let known = Known { all_verify: true, beside: None, given_up: &given_up };
                    let brought = self.bring_back(repairer, zone, (&blamed, &[]), known, asked)?;
                    brought.doubts.iter().for_each(|doubt| self.report_doubt(doubt, asked));
                    back += u64::from(brought.back.is_some());
                }
            }
        }
        Ok((back, unread))
    }

    /// Brings back all entries whose last writes were lost, before anything else is looked at: what
    /// lies in a chunk that one of them calls free is free bytes until then, and what differs there
    /// would become the truth. `go_on` is told of so many bytes that were read, and may say that it
    /// is enough. Answers what was brought back, in how many pieces.
    ///
    /// # Errors
    /// Something other than damage stopped it.
    pub(crate) fn restore_directories(
        &self,
        finder: Finder,
        mut go_on: impl FnMut(u64) -> bool,
    ) -> Result<u64, Error> {
        let (mut back, mut all) = (0, true);
        for table in self.heap.zones().filter(|_| self.m.enabled(DIRECTORIES)) {
            let (from, end) = (table.entry_at(0), table.entry_at(table.chunks()));
            let Some(zone) = self.zone_of(from).filter(|zone| zone.has_p()) else { continue };
            for at in (from / PAGE * PAGE..end).step_by(PAGE as usize) {
                let (here, seen) = self.restore_entries_on(zone, table, at, finder)?;
                (back, all) = (back + here, all && seen);
                if !go_on(u64::from(zone.data_rows()) * PAGE) {
                    return Ok(back);
                }
            }
        }
        self.directories_seen.store(all, Ordering::Release);
        Ok(back)
    }

    /// The same for the entries on a page of a zone's directory. Answers also whether all that
    /// tells of them could be read: pages that cannot be are mended first.
    fn restore_entries_on(
        &self,
        zone: &Zone,
        table: &ZoneTable,
        page: u64,
        finder: Finder,
    ) -> Result<(u64, bool), Error> {
        let asked = Asked { cause: Cause::Parity, finder };
        let (from, end) = (table.entry_at(0).max(page), table.entry_at(table.chunks()));
        let range = (from, end.min(page + PAGE) - from);
        let mut all = 0;
        for _ in 0..BAD_PAGES_MAX {
            let done = self.undisturbed(|| {
                let mut repairer = self.repairer();
                let columns = self.columns_of(&[range]);
                self.columns.lock_all(&self.m, &columns);
                let restored = self
                    .may_judge()
                    .and_then(|()| self.restore_range(&mut repairer, zone, range, asked));
                self.columns.unlock_all(&columns);
                restored
            });
            let unread = match self.or_stop(done) {
                Err(Error::Media(e)) => e.at / PAGE * PAGE,
                done => {
                    let (back, unread) = done?;
                    all += back;
                    let Some(unread) = unread else { return Ok((all, true)) };
                    unread
                }
            };
            let asked = Asked { cause: Cause::MediaError, finder };
            self.mend_through(unread, PAGE, asked)?;
            if self.is_bad(unread) {
                break;
            }
        }
        Ok((all, false))
    }

    /// Brings back the entries of what seems to be free over some columns, if no scrub has looked
    /// at all of them since the pool was opened. Whether what tells of them could be read.
    pub(crate) fn restore_called_free(
        &self,
        zone: &Zone,
        (col, len): (u64, u64),
        finder: Finder,
    ) -> Result<bool, Error> {
        if self.directories_seen.load(Ordering::Acquire) {
            return Ok(true);
        }
        let Some(table) = self.table_of(zone.at(0, 0)) else { return Ok(true) };
        let mut pages = BTreeSet::new();
        for row in 0..zone.data_rows() {
            let (at, end) = (zone.at(row, col), zone.at(row, col) + len);
            let chunks = table.chunk_of(at.max(table.chunks_at())).into_iter();
            let chunks = chunks.flat_map(|first| {
                let last = table.chunk_of(end - 1).unwrap_or(first);
                first..=last
            });
            let free = |chunk: &u32| table.entry(*chunk).is_none_or(|e| e.kind == ChunkKind::Free);
            pages.extend(chunks.filter(free).map(|chunk| table.entry_at(chunk) / PAGE * PAGE));
        }
        let mut all = true;
        for page in pages {
            all &= self.restore_entries_on(zone, table, page, finder)?.1;
        }
        Ok(all)
    }

    /// The same for a unit over columns that are about to be replayed, before anybody else works.
    pub(crate) fn restore_entries_found(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        unit: &Unit,
    ) -> Result<bool, Error> {
        let entries = self.entries_of(unit).filter(|_| self.m.enabled(ENTRIES_FOUND));
        let Some((table, (at, len))) = entries else { return Ok(false) };
        let mut redone = Redone::default();
        self.unless_the_same((table, at), |zone| {
            for entry in (at..at + len).step_by(CHUNK_LEN) {
                for piece in zone.split(entry, CHUNK_LEN as u64) {
                    let columns = (piece.col, piece.len);
                    let row = Some(piece.row);
                    self.cure_lost_write(repairer, redo, zone, columns, row, &mut redone)?;
                }
            }
            Ok(())
        })
    }

    /// Does `change` in the zone of the entry at `at`. Whether that is known as another one then.
    fn unless_the_same(
        &self,
        (table, at): (&ZoneTable, u64),
        change: impl FnOnce(&Zone) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let chunk = ((at - table.entry_at(0)) / CHUNK_LEN as u64) as u32;
        let before = table.entry(chunk);
        self.zone_of(at).map_or(Ok(()), change)?;
        Ok(table.entry(chunk) != before)
    }

    /// The directory entries that deny `object` a place and are damaged, or whose columns do not
    /// add up, those first that nobody tried to settle.
    ///
    /// # Errors
    /// `Conflict` while columns wait to be completed. `Damaged` if an entry cannot be read.
    pub(crate) fn doubtful_entries(&self, object: u64) -> Result<Vec<(u64, Doubtful)>, TxError> {
        let mut all = Vec::new();
        let known = self.heap.zone_of(object).and_then(|t| Some((t, t.chunk_of(object)?)));
        let Some((table, chunk)) = known else { return Ok(all) };
        // A very long object is known by its first chunk, and begins in another.
        let tail = table.entry(chunk).filter(|entry| entry.kind == ChunkKind::Tail);
        let head = tail.and_then(|entry| chunk.checked_sub(entry.count));
        for chunk in [Some(chunk), head].into_iter().flatten() {
            let at = table.entry_at(chunk);
            if self.heap.entry_found(&Direct(&self.m), at).map_err(damaged)?.is_none() {
                // Nothing says what is there, whether its columns add up or not.
                all.push((at, Doubtful::Untried));
                continue;
            }
            all.extend(self.doubtful(at, CHUNK_LEN as u64)?.map(|doubtful| (at, doubtful)));
        }
        all.sort_by_key(|(_, doubtful)| *doubtful);
        Ok(all)
    }

    /// Notes that the columns of a place in doubt cannot be settled: nobody tries it again before
    /// a scrub has passed. False if that was known. Of too many the oldest is forgotten.
    pub(crate) fn leave_unsettled(&self, at: u64) -> bool {
        let mut unsettled = self.unsettled_now();
        if unsettled.contains(&at) {
            return false;
        }
        if unsettled.len() == UNSETTLED_MAX {
            unsettled.remove(0);
        }
        unsettled.push(at);
        true
    }

    pub(crate) fn is_unsettled(&self, at: u64) -> bool {
        self.unsettled_now().contains(&at)
    }

    fn unsettled_now(&self) -> MutexGuard<'_, Vec<u64>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the columns of some bytes do not add up, and if so, whether that was tried to be
    /// settled.
    ///
    /// # Errors
    /// `Conflict` while columns wait to be completed.
    #[cold]
    pub(crate) fn doubtful(&self, at: u64, len: u64) -> Result<Option<Doubtful>, TxError> {
        let Some(zone) = self.zone_of(at).filter(|_| self.m.enabled(DOUBT)) else {
            return Ok(None);
        };
        let mut scratch = Scratch::new();
        for piece in zone.split(at, len) {
            let held = self.columns.lock_one(&self.m, self.columns.id(zone, piece.col));
            self.may_judge().map_err(|_| TxError::Conflict)?;
            let (exempt, (col, len)) = (self.exempt(), (piece.col, piece.len));
            let found = parity::check(&self.m, zone, col, len, &exempt, &mut scratch);
            drop(held);
            // A page that cannot be read bears nothing out; P and Q that name another row do.
            let concerned = |found: Vec<Mismatch>| {
                found.iter().any(|mismatch| is_of_row(mismatch.suspect, piece.row))
            };
            if found.map_or(true, concerned) {
                let tried = self.is_unsettled(at);
                return Ok(Some(if tried { Doubtful::Unsettled } else { Doubtful::Untried }));
            }
        }
        Ok(None)
    }
}
