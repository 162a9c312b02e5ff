//! Faults in a file in use: rounds of stores, passes and damage, met in seven ways.

use std::collections::BTreeSet;

use holdfast_mapped::{Force, Mended};
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_workloads::Rng;

use super::judge::{bytes, gives_back, name, refused, verdicts};
use super::ledger::Ledger;
use super::machine::{Machine, Setting};
use super::session::{Program, Session};
use super::wounds::{Wounds, in_doubt};
use crate::tally::{Fault, Judged, Tally, Violation};

/// Putting right what redundancy could not.
const CURE: Site = Site::new("campaign.cure");

/// How damage is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meeting {
    Scrub,
    /// A pass over stripes that were stored to, then a scrub.
    Pass,
    /// Each page by itself.
    Repair,
    /// Closed and opened.
    Reopen,
    /// Killed; the bits of the source outlive it, or do not.
    Kill(bool),
    /// Opened anew, stored to, and killed before the first pass; the bits die.
    Doors,
}

/// One file and what is known of its damage.
struct Storm<'a> {
    session: Session,
    /// Who has the program store meanwhile.
    listening: Option<Listening>,
    wounds: Wounds,
    rng: &'a mut Rng,
    ledger: &'a mut Ledger,
    tally: &'a mut Tally,
}

/// Plays `rounds` rounds with a place of the engine switched off, or with none.
///
/// # Errors
/// The first thing that was wrong.
pub fn storm(
    setting: Setting,
    rounds: u64,
    off: Option<&'static str>,
    rng: &mut Rng,
    ledger: &mut Ledger,
    tally: &mut Tally,
) -> Judged<()> {
    let size = (24 + rng.below(8)) * PAGE - [0, 3000][rng.below(2) as usize];
    let machine = Machine::new(&setting, size, rng, off);
    let program = Program::new(&machine, &setting, Rng::new(rng.next_u64())).without(off);
    let listening = Some(Listening::begin(&program));
    let session = Session::begin(&program, setting)?;
    let wounds = Wounds::none(rng);
    let mut storm = Storm { session, listening, wounds, rng, ledger, tally };
    for round in 0..rounds {
        let program = storm.session.program.clone();
        program.state().log.clear();
        storm = storm.round().map_err(|violation| {
            let violation = violation.during(format!("{setting:?}, round {round}"));
            let log = program.state().log.join(", ");
            Violation { story: format!("{}\n      round: {log}", violation.story), ..violation }
        })?;
    }
    Ok(())
}

/// Has the program store while the engine works, until dropped: the machine of a program that its
/// own machine calls would never go, and a long run would fill the memory.
struct Listening(Program);

impl Listening {
    fn begin(program: &Program) -> Self {
        let (one, other) = (program.clone(), program.clone());
        program.machine.ear.listen(Box::new(move |doing| one.hears(doing)));
        program.machine.medium.on_barrier(Box::new(move |_, _, _| other.interfere()));
        Self(program.clone())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.machine.ear.forget();
        self.0.machine.medium.clear_on_barrier();
    }
}

impl Storm<'_> {
    fn round(mut self) -> Judged<Self> {
        let program = self.session.program.clone();
        let wish = [0, 1, 6][self.rng.below(3) as usize];
        (program.state().wish, program.state().restless) = (wish, wish);
        (0..self.rng.below(6)).for_each(|_| program.store());
        if self.rng.below(4) > 0 {
            self.session.pass()?;
            program.state().log.push("pass".to_owned());
        }
        match self.rng.below(24) {
            0 => program.resize()?,
            1 => program.punch(),
            _ => {}
        }
        for _ in 0..=self.rng.below(6) {
            self.wounds.add(&self.session, self.rng, self.ledger, self.tally)?;
        }
        let meeting = match self.rng.below(17) {
            0..5 => Meeting::Scrub,
            5..9 => Meeting::Pass,
            9..12 => Meeting::Repair,
            12..14 => Meeting::Reopen,
            14 => Meeting::Kill(true),
            15 => Meeting::Kill(false),
            _ => Meeting::Doors,
        };
        program.state().log.push(format!("{meeting:?}"));
        self = self.meet(meeting).map_err(|v| v.during(format!("met by {meeting:?}")))?;
        self.settle().map_err(|v| v.during(format!("after {meeting:?}")))
    }

    fn judge(&mut self) -> Judged<()> {
        let mut state = self.session.program.state();
        // Nobody stores while it is looked who has stored.
        let restless = std::mem::take(&mut state.restless);
        bytes(&self.session.program.machine, &mut state.model, self.ledger)?;
        drop(state);
        let doubt = |page| in_doubt(&self.wounds.doubt, page);
        verdicts(&self.session.engine, &self.session.program, doubt, self.ledger)?;
        self.session.program.state().restless = restless;
        Ok(())
    }

    fn meet(mut self, meeting: Meeting) -> Judged<Self> {
        self.judge()?;
        match meeting {
            Meeting::Scrub => {}
            Meeting::Repair => {
                self.repairs()?;
                return Ok(self);
            }
            Meeting::Pass => {
                let pages = self.session.program.state().model.count();
                for _ in 0..=self.rng.below(4) {
                    self.session.program.store_to_page(self.rng.below(pages));
                }
                self.session.pass()?;
            }
            Meeting::Reopen => {
                self.session = self.session.reopen()?;
                self.judge()?;
                self.session.admit()?;
            }
            Meeting::Kill(bits) => self = self.killed(bits)?,
            Meeting::Doors => {
                self.session = self.session.reopen()?;
                self.session.admit()?;
                (0..=self.rng.below(4)).for_each(|_| self.session.program.store());
                self.wounds.states(&self.session, self.rng, self.tally)?;
                self = self.killed(false)?;
            }
        }
        self.judge()?;
        self.scrub()
    }

    fn killed(mut self, bits: bool) -> Judged<Self> {
        self.session = self.session.kill(bits)?;
        // The one before first: machines may have one ear.
        self.listening = None;
        self.listening = Some(Listening::begin(&self.session.program));
        if !bits {
            self.wounds.doubt.extend(0..16);
        }
        self.judge()?;
        self.session.admit()?;
        self.session.pass()?;
        Ok(self)
    }

    /// Pages that redundancy suffices for.
    fn hopeful(&self) -> BTreeSet<u64> {
        let state = self.session.program.state();
        let model = &state.model;
        let hopeful = |page: &u64| {
            model.page(*page).is_damaged()
                && model.can_give_back(*page / 4)
                && !self.wounds.parity.contains(&(*page / 4))
                && !in_doubt(&self.wounds.doubt, *page)
        };
        (0..model.count()).filter(hopeful).collect()
    }

    fn scrub(mut self) -> Judged<Self> {
        // Stores in the middle decide what can be given back; they are tried in `Repair`.
        let quiet = self.rng.below(2) == 0;
        if quiet {
            self.session.program.state().restless = 0;
        }
        let hopeful = self.hopeful();
        let engine = &self.session.engine;
        engine.scrub(Some(&self.session.program)).map_err(|error| refused("scrub", &error))?;
        self.judge()?;
        // Even the quiet store in the worst moment of a repair, and to other stripes with it.
        let hopeful = &hopeful & &self.hopeful();
        self.given_back(if quiet { hopeful } else { BTreeSet::new() })?;
        Ok(self)
    }

    fn repairs(&mut self) -> Judged<()> {
        let damaged = self.damaged();
        for page in damaged {
            let program = &self.session.program;
            let mended = self.session.engine.repair(page, program, Force::No);
            let mended = mended.map_err(|error| refused("repair", &error))?;
            self.judge().map_err(|v| v.during(format!("{} {mended:?}", name(page))))?;
            let left = self.session.program.state().model.page(page).is_damaged();
            if mended == Mended::Repaired && left {
                let story = format!("{} is said to be repaired, and is not", name(page));
                return Err(Violation::new(Fault::Wrong, story));
            }
        }
        Ok(())
    }

    fn damaged(&self) -> Vec<u64> {
        let state = self.session.program.state();
        let model = &state.model;
        (0..model.count()).filter(|page| model.page(*page).is_damaged()).collect()
    }

    fn given_back(&mut self, hopeful: BTreeSet<u64>) -> Judged<()> {
        let left = self.damaged();
        match left.iter().find(|page| hopeful.contains(page)) {
            None => Ok(()),
            Some(page) => {
                let story = format!("{} could be given back, and was not", name(*page));
                Err(Violation::new(Fault::Unnoticed, story))
            }
        }
    }

    /// What could not be repaired is put right; then all must be as good as new.
    fn settle(mut self) -> Judged<Self> {
        let program = self.session.program.clone();
        (program.state().wish, program.state().restless) = (0, 0);
        self.ledger.lost += self.damaged().len() as u64;
        for page in self.damaged() {
            let now = program.state().model.page(page).now.clone();
            let at = page * PAGE;
            let len = (program.state().model.size - at).min(PAGE) as usize;
            let cured = if program.state().model.page(page).unreadable {
                program.machine.data.window().heal(CURE, at, &now)
            } else {
                program.machine.medium.stray(at, &now[..len])
            };
            cured.map_err(|error| refused("putting right", &error))?;
        }
        program.state().model.put_right();
        if self.wounds.header {
            self.session = self.session.reopen()?;
            self.session.admit()?;
        }
        self.session.pass()?;
        let coverage = self.session.engine.coverage().map_err(|e| refused("coverage", &e))?;
        if !self.wounds.doubt.is_empty() || coverage.without_parity > 0 {
            let done = self.session.engine.accept(0, u64::MAX);
            done.map_err(|error| refused("accept", &error))?;
        }
        let scrubbed = self.session.engine.scrub(Some(&program));
        scrubbed.map_err(|error| refused("scrub", &error))?;
        let mut state = program.state();
        state.model.all_covered();
        bytes(&program.machine, &mut state.model, self.ledger)?;
        state.model.forget_past();
        drop(state);
        verdicts(&self.session.engine, &program, |_| false, self.ledger)?;
        let coverage = self.session.engine.coverage().map_err(|e| refused("coverage", &e))?;
        if coverage.without_sum + coverage.without_parity > 0 {
            let story = format!("all was put right, and {coverage:?}");
            return Err(Violation::new(Fault::Exposed, story));
        }
        if self.rng.below(8) == 0 {
            let turn = self.rng.below(64);
            gives_back(&program.machine, &self.session.engine, turn)?;
        }
        // All is as it was, and what was said of it so far has been judged.
        let events = self.session.engine.events();
        program.state().model.all_calm(events.last());
        self.wounds = Wounds::none(self.rng);
        Ok(self)
    }
}
