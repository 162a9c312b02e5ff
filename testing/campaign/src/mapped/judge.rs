//! Holds what the engine says and does against the model.
//!
//! | said of a page | must be so |
//! |---|---|
//! | good | it is what the program made of it |
//! | corrupt | it is damaged, and was covered when it was |
//! | undecided: uncovered | it was stored to since a pass covered it |
//! | undecided, in doubt | there is a reason for doubt |
//! | wrong, by the journal | it was damaged once |
//!
//! A page that came back has to be in the journal.

use holdfast_pmem::PAGE;
use holdfast_redundancy::events::{Cause, Event, Outcome};
use holdfast_redundancy::{PageVerdict, Unsure, Wrong};

use super::ledger::Ledger;
use super::machine::{Engine, Machine};
use super::model::{Change, Model};
use super::session::Program;
use super::told::{change_as_told, events_as_told, said_as_told};
use crate::object::wrong::Lie;
use crate::tally::{Fault, Judged, Violation};

/// A page by its number, in words.
#[must_use]
pub fn name(page: u64) -> String {
    format!("page {page} (stripe {}, region {})", page / 4, page / 8)
}

/// An error where none may be.
#[must_use]
pub fn refused(what: &str, error: &impl std::fmt::Display) -> Violation {
    Violation::new(Fault::Refused, format!("{what}: {error}"))
}

/// Holds one verdict of a running engine against the model; `doubt` says whether there is a reason
/// for it.
///
/// # Errors
/// What was said and is not so.
pub fn verdict(
    model: &Model,
    page: u64,
    said: PageVerdict,
    doubt: bool,
    ledger: &mut Ledger,
) -> Judged<()> {
    let known = model.page(page);
    if known.unknown {
        return Ok(());
    }
    let damaged = known.is_damaged();
    let wrong = |what: &str| Err(Violation::new(Fault::Wrong, format!("{}: {what}", name(page))));
    match said {
        PageVerdict::Good if damaged => {
            ledger.missed += 1;
            wrong("good was said of damage to a covered page")
        }
        PageVerdict::Good => Ok(()),
        PageVerdict::Corrupt if damaged => Ok(()),
        PageVerdict::Corrupt => {
            ledger.false_reports += 1;
            let story = format!("{}: corrupt was said of what the program stored", name(page));
            Err(Violation::new(Fault::FalseReport, story))
        }
        PageVerdict::Undecided(Unsure::Uncovered) if damaged => {
            ledger.missed += 1;
            wrong("damage to a covered page was taken for a store")
        }
        PageVerdict::Undecided(Unsure::Uncovered) if !known.dirty && !known.vague => {
            wrong("it is covered, and said not to be")
        }
        PageVerdict::Undecided(Unsure::Uncovered) => Ok(()),
        PageVerdict::Undecided(why) => {
            ledger.undecided += 1;
            if doubt { Ok(()) } else { wrong(&format!("in doubt for no reason: {why}")) }
        }
    }
}

/// All verdicts of a running engine, and what its journal says.
///
/// # Errors
/// The first that is not so.
pub fn verdicts(
    engine: &Engine,
    program: &Program,
    doubt: impl Fn(u64) -> bool,
    ledger: &mut Ledger,
) -> Judged<()> {
    let model = program.state().model.clone();
    for page in 0..model.count() {
        let said = engine.verify(page).map_err(|error| refused("verify", &error))?;
        verdict(&model, page, said_as_told(page, said.verdict), doubt(page), ledger)?;
    }
    let events = engine.events();
    let fresh = events.iter().filter(|event| model.is_new(event)).copied().collect();
    accused(&events_as_told(fresh), |page| is_innocent(&model, page), ledger)?;
    let silent = program.state().model.unnamed(&events_as_told(events));
    // Events that could not be written are counted instead.
    if engine.counts().unreported > 0 { Ok(()) } else { named(silent) }
}

/// Nothing ever damaged a page.
#[must_use]
pub fn is_innocent(model: &Model, page: u64) -> bool {
    let known = (page < model.count()).then(|| model.page(page));
    known.is_some_and(|known| !known.unknown && !known.ever)
}

/// Nothing in the journal calls the bytes of a page wrong that nothing ever damaged.
///
/// # Errors
/// An event that does.
pub fn accused(
    events: &[Event],
    innocent: impl Fn(u64) -> bool,
    ledger: &mut Ledger,
) -> Judged<()> {
    let of_bytes = |event: &&Event| {
        let of_sum = event.cause == Cause::Sum && event.wrong == Some(Wrong::Data);
        of_sum && event.outcome != Outcome::Undecided
    };
    let mut of_bytes = events.iter().filter(of_bytes);
    let Some(event) = of_bytes.find(|event| innocent(event.at / PAGE)) else { return Ok(()) };
    ledger.false_reports += 1;
    let page = name(event.at / PAGE);
    let story = format!("{page}, which nothing damaged, is in the journal: {event}");
    Err(Violation::new(Fault::FalseReport, story))
}

/// Whatever came back is in the journal.
///
/// # Errors
/// A page that is not.
pub fn named(silent: Option<u64>) -> Judged<()> {
    let Some(page) = silent else { return Ok(()) };
    let story = format!("{} came back, and the journal does not tell", name(page));
    Err(Violation::new(Fault::Unnoticed, story))
}

/// Holds the bytes of the data file against the model, after the engine has worked.
///
/// # Errors
/// Bytes that the engine changed and should not have.
pub fn bytes(machine: &Machine, model: &mut Model, ledger: &mut Ledger) -> Judged<()> {
    ledger.covered += model.settle(&machine.medium.injected());
    change_as_told(Lie::Reverts, machine);
    for page in 0..model.count() {
        match model.changed(page, machine.page(page).as_deref()) {
            Change::None => {}
            Change::Repaired => ledger.repaired += 1,
            Change::Reverted(bytes) => {
                ledger.reverted += bytes;
                let story = format!("{bytes} bytes of {} were taken back", name(page));
                return Err(Violation::new(Fault::Reverted, story));
            }
        }
    }
    ledger.absorbed += std::mem::take(&mut model.absorbed);
    ledger.repaired += std::mem::take(&mut model.repaired);
    Ok(())
}

/// Damages one page of each stripe: it must be found and come back.
///
/// # Errors
/// A page that is not given back.
pub fn gives_back(machine: &Machine, engine: &Engine, turn: u64) -> Judged<u64> {
    let failed = |what| Violation::new(Fault::Exposed, what);
    let mut tried = 0;
    for stripe in 0..machine.pages() / 4 {
        let mut good = true;
        for page in stripe * 4..stripe * 4 + 4 {
            let said = engine.verify(page).map_err(|error| refused("verify", &error))?;
            good &= said.verdict == PageVerdict::Good;
        }
        let page = stripe * 4 + turn % 4;
        let Some(whole) = machine.page(page).filter(|_| good) else { continue };
        let at = page * PAGE + turn * 37 % PAGE;
        if at >= machine.size() {
            continue;
        }
        let flipped = machine.medium.flip_bit(at, (turn % 8) as u8);
        flipped.map_err(|error| refused("a flipped bit", &error))?;
        let mended = engine.repair(page, &holdfast_mapped::AtRest, holdfast_mapped::Force::No);
        let mended = mended.map_err(|error| refused("repair", &error))?;
        if machine.page(page).is_none_or(|now| now != whole) {
            let said = engine.verify(page).map(|said| said.verdict);
            let what = format!(
                "{} is covered, was damaged and did not come back: {mended:?}, {said:?}; the file \
                 has {} bytes, the engine looks after {}; {:?}",
                name(page),
                machine.size(),
                engine.size(),
                engine.coverage()
            );
            return Err(failed(what));
        }
        tried += 1;
    }
    Ok(tried)
}
