//! Damage of every kind to every part of both files, and who may be in doubt because of it.

use std::collections::BTreeSet;

use holdfast_faultmem::{Clear, FaultKind, Torn, When};
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_workloads::Rng;

use super::judge::refused;
use super::ledger::Ledger;
use super::machine::{Machine, ROOM};
use super::model::Model;
use super::session::{Program, Session};
use super::side::{Area, Layout, REGION};
use crate::object::targets::unit_set_back;
use crate::tally::{Judged, Tally};

/// Letting a write that went wrong come to what it comes to.
const SETTLE: Site = Site::new("campaign.settle");

/// What was hurt since all was well.
#[derive(Debug, Default)]
pub struct Wounds {
    /// Regions of which something in the side file was hurt: what differs may be in doubt.
    pub doubt: BTreeSet<u64>,
    /// Stripes whose parity was hurt.
    pub parity: BTreeSet<u64>,
    /// Both copies of one thing are never hurt together: the copy that may be.
    copy: u64,
    /// So are records of regions and their sums: which of them may be.
    sums: bool,
    /// A copy of the header was hurt: only an opening mends it.
    pub header: bool,
}

/// How something is hurt at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Flip,
    Stray,
    Poison,
    /// It is as it once was.
    Stale,
}

impl Wounds {
    /// Nothing is hurt.
    #[must_use]
    pub fn none(rng: &mut Rng) -> Self {
        Self { copy: rng.below(2), sums: rng.below(2) == 0, ..Self::default() }
    }

    /// Hurts one thing, somewhere.
    ///
    /// # Errors
    /// The medium's.
    pub fn add(
        &mut self,
        session: &Session,
        rng: &mut Rng,
        ledger: &mut Ledger,
        tally: &mut Tally,
    ) -> Judged<()> {
        ledger.faults += 1;
        match rng.below(16) {
            0..9 => data(&session.program, rng, ledger, tally),
            9 if session.syncs() && layout(session).pages >= 24 => {
                self.write(session, rng, ledger, tally)
            }
            _ => self.side(session, rng, tally),
        }
    }

    /// Hurts a copy of what the side file says of regions, unless their sums may be hurt.
    ///
    /// # Errors
    /// The medium's.
    pub fn states(&mut self, session: &Session, rng: &mut Rng, tally: &mut Tally) -> Judged<()> {
        if self.sums {
            return Ok(());
        }
        let group = rng.below(layout(session).groups());
        self.part(session, Area::States(group, self.copy), rng, tally)
    }

    /// Hurts the side file.
    fn side(&mut self, session: &Session, rng: &mut Rng, tally: &mut Tally) -> Judged<()> {
        let area = self.area(&layout(session), rng);
        self.part(session, area, rng, tally)
    }

    fn part(
        &mut self,
        session: &Session,
        area: Area,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Judged<()> {
        let machine = &session.program.machine;
        let layout = layout(session);
        let (start, len) = layout.place(area);
        let at = machine.side.place(start + rng.below(len));
        let room = machine.side.place(start + len) - at;
        let how = match rng.below(8) {
            0..4 => How::Flip,
            4..7 => How::Stray,
            // What nobody writes stays bad, and nobody needs it.
            _ if matches!(area, Area::Records(_) | Area::Intent(_)) => How::Flip,
            _ => How::Poison,
        };
        let most = [8, 64, PAGE][rng.below(3) as usize].min(room);
        hurt(machine, how, (at, 1 + rng.below(most)), rng)?;
        self.note(&layout, area);
        tally.add(format!("{} {how:?}", kind(area)).to_lowercase(), 1);
        session.program.state().log.push(format!("{how:?} {area:?}"));
        Ok(())
    }

    fn area(&self, layout: &Layout, rng: &mut Rng) -> Area {
        let group = rng.below(layout.groups());
        match rng.below(16) {
            0 => Area::Header(self.copy),
            1 => Area::Intent(self.copy),
            2 => Area::Events(self.copy),
            3..9 if self.sums => Area::Entries(group),
            3..9 => Area::States(group, self.copy),
            9 => Area::Records(group),
            _ => Area::Parity(rng.below(layout.pages.div_ceil(4))),
        }
    }

    /// Remembers who may be in doubt now.
    fn note(&mut self, layout: &Layout, area: Area) {
        match area {
            Area::States(..) | Area::Entries(_) => self.doubt.extend(layout.regions(area)),
            Area::Parity(stripe) => {
                self.parity.insert(stripe);
            }
            Area::Header(_) => self.header = true,
            _ => {}
        }
    }

    /// A write goes wrong: one of the program's, or one of the engine's to the side file.
    fn write(
        &mut self,
        session: &Session,
        rng: &mut Rng,
        ledger: &mut Ledger,
        tally: &mut Tally,
    ) -> Judged<()> {
        let machine = &session.program.machine;
        // What is hit is what is meant: nobody else stores.
        session.program.state().restless = 0;
        session.pass()?;
        let layout = layout(session);
        let pages = layout.pages;
        let page = rng.below(pages);
        let area = self.area(&layout, rng);
        let theirs = rng.below(2) == 0;
        let (at, len) = if theirs {
            (page * PAGE, PAGE)
        } else {
            let (at, len) = layout.place(area);
            (machine.side.place(at), len)
        };
        // In another stripe: that of the page is then hit only where it is meant to be.
        let to = (page + 8 + rng.below(pages - 16)) % pages * PAGE + rng.below(PAGE / 8) * 8;
        let vague = |page: &u64| session.program.state().model.page(*page).vague;
        // What lands behind the end of the file is read by nobody.
        if [page, to / PAGE].iter().any(vague) || to + PAGE > machine.size() {
            ledger.faults -= 1;
            return Ok(());
        }
        let (name, fault) = match rng.below(3) {
            0 => ("lost", FaultKind::Lost),
            1 => ("misdirected", FaultKind::Misdirected { to }),
            _ => ("torn", FaultKind::Torn(Torn::Subset(rng.next_u64()))),
        };
        machine.medium.arm(fault, When::touching(at, len));
        session.program.store_to_page(page);
        // The side file is synced before the pass looks, the data after it.
        session.pass_and(|program| {
            let mut state = program.state();
            if !theirs {
                ledger.covered += state.model.settle(&machine.medium.injected());
            }
        })?;
        // Not met: nothing there was written.
        let met = machine.medium.armed() == 0;
        machine.medium.disarm();
        machine.medium.sync(SETTLE).map_err(|error| refused("sync", &error))?;
        let mut state = session.program.state();
        ledger.covered += state.model.settle(&machine.medium.injected());
        state.log.push(format!("{name} at {at}+{len} {met} {theirs} {area:?}"));
        state.restless = state.wish;
        drop(state);
        if !met {
            ledger.faults -= 1;
        } else if theirs {
            tally.add(format!("data {name} write"), 1);
        } else {
            self.note(&layout, area);
            tally.add(format!("{} {name} write", kind(area)), 1);
        }
        Ok(())
    }
}

fn layout(session: &Session) -> Layout {
    let pages = session.program.state().model.count();
    Layout { parity: session.setting.parity.into(), pages }
}

const fn kind(area: Area) -> &'static str {
    match area {
        Area::Header(_) => "header",
        Area::Intent(_) => "intent",
        Area::Events(_) => "events",
        Area::States(..) => "states",
        Area::Entries(_) => "entries",
        Area::Records(_) => "records",
        Area::Parity(_) => "parity",
    }
}

/// Hurts the data file: one bit, up to the whole file, pages that cannot be read, or a line, sector
/// or page as it once was.
fn data(program: &Program, rng: &mut Rng, ledger: &mut Ledger, tally: &mut Tally) -> Judged<()> {
    let mut state = program.state();
    let size = state.model.size;
    let at = rng.below(size);
    let page = at / PAGE;
    let how = match rng.below(16) {
        0..8 => How::Flip,
        8..13 => How::Stray,
        13..15 => How::Stale,
        // What is lost before it was covered is lost, and a program that loads it dies.
        _ if state.model.page(page).dirty || (page + 1) * PAGE > size => How::Flip,
        _ => How::Poison,
    };
    let most = [8, 64, PAGE, 2 * PAGE, ROOM * PAGE][rng.below(5) as usize];
    let len = (1 + rng.below(most)).min(size - at);
    let past = if how == How::Stale { older(&state.model, rng) } else { None };
    let (at, len) = past.as_ref().map_or((at, len), |(at, past)| (*at, past.len() as u64));
    let page = at / PAGE;
    // Where nothing was stored yet, nothing is older.
    let how = if how == How::Stale && past.is_none() { How::Stray } else { how };
    let unfit = |page| state.model.page(page).unreadable || state.model.page(page).vague;
    if (at / PAGE..(at + len).div_ceil(PAGE)).any(unfit) {
        ledger.faults -= 1;
        return Ok(());
    }
    tally.add(format!("data {how:?}").to_lowercase(), 1);
    state.log.push(format!("{how:?} {at}+{len} (page {page})"));
    if how == How::Poison {
        let covered = !state.model.page(page).is_damaged();
        hurt(&program.machine, how, (at, 1), rng)?;
        state.model.poisoned(page);
        ledger.covered += u64::from(covered);
        return Ok(());
    }
    let len = match past {
        Some((at, past)) => put(&program.machine, at, &past)?,
        None => hurt(&program.machine, how, (at, len), rng)?,
    };
    let mut after = vec![0; len as usize];
    let read = program.machine.data.window().read(at, &mut after);
    read.map_err(|error| refused("reading what was damaged", &error))?;
    ledger.covered += state.model.damaged(at, &after);
    Ok(())
}

/// A line, sector or page of what was stored to, and what it once was.
fn older(model: &Model, rng: &mut Rng) -> Option<(u64, Vec<u8>)> {
    let changed =
        |number: &u64| model.page(*number).past.iter().any(|p| *p != model.page(*number).now);
    let pages: Vec<u64> = (0..model.count()).filter(changed).collect();
    let number = *rng.pick(&pages)?;
    let page = model.page(number);
    let past = rng.pick(&page.past)?;
    let unit = unit_set_back(rng);
    let size = (model.size - number * PAGE).min(PAGE) as usize;
    let differs =
        |from: &usize| past[*from..].iter().zip(&page.now[*from..]).take(unit).any(|(a, b)| a != b);
    let units: Vec<usize> = (0..size).step_by(unit).filter(differs).collect();
    let from = *rng.pick(&units)?;
    Some((number * PAGE + from as u64, past[from..size.min(from + unit)].to_vec()))
}

/// Puts these bytes where they do not belong; answers how many.
fn put(machine: &Machine, at: u64, bytes: &[u8]) -> Judged<u64> {
    let done = machine.medium.stray(at, bytes).map(|()| bytes.len() as u64);
    done.map_err(|error| refused("damage", &error))
}

/// Hurts a range of the medium; answers the bytes that were.
fn hurt(machine: &Machine, how: How, (at, len): (u64, u64), rng: &mut Rng) -> Judged<u64> {
    let medium = &machine.medium;
    let done = match how {
        How::Flip => medium.flip_bit(at, rng.below(8) as u8).map(|()| 1),
        How::Poison => medium.poison(at, 1, Clear::Able).map(|()| 1),
        How::Stray | How::Stale => {
            let mut bytes = vec![0; len as usize];
            match rng.below(4) {
                0 => {}
                1 => bytes.fill(0xff),
                _ => rng.fill(&mut bytes),
            }
            medium.stray(at, &bytes).map(|()| len)
        }
    };
    done.map_err(|error| refused("damage", &error))
}

/// Whether a page is in a region of which something was hurt.
#[must_use]
pub fn in_doubt(doubt: &BTreeSet<u64>, page: u64) -> bool {
    doubt.contains(&(page / REGION))
}
