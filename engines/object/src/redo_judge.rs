//! Step 3 of a redo: whether parity says that a write of the rows was lost, and of what.
//!
//! Parity may be that of the rows as found or as they will be: see `redo.rs`. Who completes a
//! commit asks once more when the rows were read for the new parity, since others work meanwhile,
//! and a write of theirs may be lost in between: such a row verifies, and the new parity would go
//! by it.

use holdfast_codes::xor_into;
use holdfast_heap::verify::{Direct, Overlay, Source};
use holdfast_layout::RawPtr;
use holdfast_pmem::{MediaError, Medium, PAGE, Site};
use holdfast_redundancy::parity::{Suspect, Syndromes};
use holdfast_redundancy::{Exempt, ExemptRanges, Wrong, Zone, zone};

use crate::anew::Differ;
use crate::blame::{Apart, Doubt, Judged, Newer, Of, Others, stays_bad};
use crate::changes::Changes;
use crate::error::Error;
use crate::redo::{Redo, Redone};
use crate::shared::{Repairer, Shared};

/// Asking parity whether a write of the rows was lost.
const ADDS_UP: Site = Site::new("object.redo_judge.adds-up");

impl<M: Medium> Shared<M> {
    /// Whether no write of the rows was lost but those that parity goes on saying.
    pub(crate) fn none_lost(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        zone: &Zone,
        columns: (u64, u64),
        redone: &Redone,
    ) -> bool {
        let judged = self.judge_writes(repairer, redo, zone, columns, &redone.given_up);
        judged.is_ok_and(|Judged { newer, doubts, .. }| {
            let newer = newer.iter().map(|newer| &newer.doubt);
            newer.chain(&doubts).all(|doubt| redone.keeps(doubt))
        })
    }

    /// Whose last writes over some columns were lost.
    pub(crate) fn judge_writes(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        zone: &Zone,
        columns: (u64, u64),
        given_up: &[u64],
    ) -> Result<Judged, Error> {
        if !self.m.enabled(ADDS_UP) || !zone.has_p() {
            return Ok(Judged::default());
        }
        if !zone.has_q() {
            return self.judge_rows(repairer, redo, zone, (columns, false), given_up);
        }
        // Parity that cannot be read is made anew from the rows: the other one tells what of them
        // was lost.
        let page = columns.0 / PAGE * PAGE;
        match [zone.p_at(page), zone.q_at(page)].map(|parity| given_up.contains(&parity)) {
            [false, false] => self.located_rows(repairer, redo, zone, columns, given_up),
            [true, true] => Ok(Judged::default()),
            [_, of_p] => {
                let judged = self.judge_rows(repairer, redo, zone, (columns, !of_p), given_up)?;
                Ok(judged.of(if of_p { zone::Unit::P } else { zone::Unit::Q }))
            }
        }
    }

    /// With P alone, or Q: see `blame.rs`.
    fn judge_rows(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        zone: &Zone,
        (columns, of_q): ((u64, u64), bool),
        given_up: &[u64],
    ) -> Result<Judged, Error> {
        self.judge_states(redo, zone, (columns, [!of_q, of_q]), given_up, |differ| {
            let by = if of_q { &differ.by.q } else { &differ.by.p };
            let apart = Apart { col: differ.col, by, of_q };
            self.judge_again(repairer, redo, zone, apart, (None, given_up))
        })
    }

    /// Judges by how P, Q or both, as `asked`, differ from the rows as found, and as they will be.
    fn judge_states(
        &self,
        redo: &Redo<'_>,
        zone: &Zone,
        (columns, asked): ((u64, u64), [bool; 2]),
        given_up: &[u64],
        mut judge: impl FnMut(&Differ) -> Result<Judged, Error>,
    ) -> Result<Judged, Error> {
        let (direct, was, exempt) = (Direct(&self.m), ExemptRanges(redo.was_exempt), self.exempt());
        let future = redo.changes.over(&direct);
        let as_found = |of| self.differ_from(&direct, zone, (of, asked), &was, given_up);
        let as_will_be = |of| self.differ_from(&future, zone, (of, asked), &exempt, given_up);
        let adds_up = |differ: Option<Differ>| differ.is_none_or(|differ| differ.adds_up());
        // Parity that is right for one of these states of the rows: no write of them was lost.
        if adds_up(as_found(columns)?) || adds_up(as_will_be(columns)?) {
            return Ok(Judged::default());
        }
        // Now the whole page: an object and its slot may lie at different bytes of it.
        let page = (columns.0 / PAGE * PAGE, PAGE);
        let mut doubts = Vec::new();
        for differ in [as_found(page)?, as_will_be(page)?].into_iter().flatten() {
            let judged = judge(&differ)?;
            if !judged.newer.is_empty() {
                return Ok(judged);
            }
            doubts.extend(judged.doubts);
        }
        Ok(Judged { doubts, ..Judged::default() })
    }

    /// How P, Q or both differ from the rows, as `from` shows them; `None` where nothing can be
    /// said.
    fn differ_from(
        &self,
        from: &impl Source,
        zone: &Zone,
        (columns, [p, q]): ((u64, u64), [bool; 2]),
        exempt: &impl Exempt,
        given_up: &[u64],
    ) -> Result<Option<Differ>, MediaError> {
        let sum = |asked: bool, of_q| match asked {
            true => self.apart_from_rows(from, zone, (columns, of_q), exempt),
            false => Ok(Vec::new()),
        };
        match sum(p, false).and_then(|p| Ok(Syndromes { p, q: sum(q, true)? })) {
            Err(e) if stays_bad(given_up, &e) => Ok(None),
            by => by.map(|by| Some(Differ { col: columns.0, by })),
        }
    }

    /// Judges columns, and once more with the other pages of what is torn as parity says: nobody
    /// else is there, or their columns are held (`owed.rs`).
    fn judge_again(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        zone: &Zone,
        apart: Apart<'_>,
        (located, given_up): (Option<u32>, &[u64]),
    ) -> Result<Judged, Error> {
        let (changes, none) = (redo.changes, Changes::default());
        let others = Others { by_parity: &none, given_up };
        let judged = self.judge_columns(zone, apart, changes, located, others)?;
        if judged.torn.is_empty() {
            return Ok(judged);
        }
        let was = ExemptRanges(redo.was_exempt);
        let scratch = &mut repairer.scratch;
        let beside = self.pages_by_parity((&judged.torn, given_up), &was, scratch)?;
        let others = Others { by_parity: &beside, given_up };
        Ok(self.judge_columns(zone, apart, changes, located, others)?)
    }

    /// With P and Q: what over the rows they name verifies as they say, where the changes do not
    /// cover what was wrong there. They may be those of the rows as found or as they will be.
    fn located_rows(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        zone: &Zone,
        columns: (u64, u64),
        given_up: &[u64],
    ) -> Result<Judged, Error> {
        self.judge_states(redo, zone, (columns, [true; 2]), given_up, |differ| {
            self.judge_blamed(repairer, redo, zone, (differ, columns), given_up)
        })
    }

    /// What over the units that explain a difference of some columns verifies as parity says.
    fn judge_blamed(
        &self,
        repairer: &mut Repairer,
        redo: &Redo<'_>,
        zone: &Zone,
        (differ, columns): (&Differ, (u64, u64)),
        given_up: &[u64],
    ) -> Result<Judged, Error> {
        let (mut all, sums) = (Judged::default(), self.heap.sums().active());
        for blamed in self.blamed(zone, differ).iter().filter(|b| b.lies_over(columns)) {
            let Suspect::Unit(unit) = blamed.suspect else { continue };
            let (col, by) = (blamed.col, &blamed.by[..]);
            let judged = match unit {
                zone::Unit::Row(row) if !sums => self.as_located(redo, zone.at(row, col), by),
                zone::Unit::Row(row) => {
                    let apart = Apart { col, by, of_q: false };
                    self.judge_again(repairer, redo, zone, apart, (Some(row), given_up))?
                }
                // The other one may have been made from the rows as they are: see `one_sided.rs`.
                _ if !sums => continue,
                parity => {
                    let apart = Apart { col, by, of_q: parity == zone::Unit::Q };
                    let judged = self.judge_again(repairer, redo, zone, apart, (None, given_up))?;
                    match self.speaks_alone(zone, parity, col) {
                        true => judged.of(parity),
                        false => judged.by_its_own(),
                    }
                }
            };
            all.newer.extend(judged.newer);
            all.doubts.extend(judged.doubts);
        }
        Ok(all)
    }

    /// Without sums: all of what P and Q say of a row, if the changes do not cover it. While others
    /// work, nothing of it can be held, so it is left.
    fn as_located(&self, redo: &Redo<'_>, at: u64, syndrome: &[u8]) -> Judged {
        let Ok(bytes) = self.as_parity_says(at, syndrome) else { return Judged::default() };
        let direct = Direct(&self.m);
        let overlay = Overlay { under: &direct, at, bytes: &bytes };
        let seen = |from: &dyn Fn(&mut [u8]) -> Result<(), MediaError>| {
            let mut seen = vec![0; syndrome.len()];
            from(&mut seen).ok().map(|()| seen)
        };
        let now = seen(&|into| redo.changes.over(&direct).read(at, into));
        let then = seen(&|into| redo.changes.over(&overlay).read(at, into));
        let certify = self.redo_certify();
        let (Some(mut difference), Some(then)) = (now, then) else { return Judged::default() };
        xor_into(&mut difference, &then);
        let same = difference.iter().all(|byte| *byte == 0);
        if same || self.bad_units(at, &bytes, redo.changes, certify) > 0 {
            return Judged::default();
        }
        let Some((_, place)) = self.place_of(at) else { return Judged::default() };
        let (wrong, object, len) = (Wrong::Data, RawPtr::NULL, bytes.len() as u64);
        let columns = vec![(place.col, difference)];
        let doubt = Doubt { at, len, wrong, object, row: place.row, columns, of: None };
        let newer =
            vec![Newer { of: Of::Row, parts: vec![(at, bytes)], wrong, doubt, follows: false }];
        Judged { newer, ..Judged::default() }
    }
}
