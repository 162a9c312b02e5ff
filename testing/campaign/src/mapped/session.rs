//! A file that is protected and used: what its program does, and what the engine is asked to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_mapped::{Durability, OpenOptions, Writers, Writing};
use holdfast_pmem::Medium;
use holdfast_pmem::{MediumKind, PAGE, Site};
use holdfast_workloads::Rng;

use super::judge::refused;
use super::machine::{Engine, Machine, ROOM, STORE, Setting};
use super::model::{Change, Model};
use super::tap::Doing;
use crate::tally::Judged;

/// Writes that go round the mapping, and are announced.
const WRITE: Site = Site::new("campaign.write");

/// The program: what it stores and remembers. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Program {
    /// What it runs on.
    pub machine: Machine,
    off: Option<&'static str>,
    shared: Arc<Mutex<State>>,
}

/// What a program remembers.
#[derive(Debug)]
pub struct State {
    /// Its file as it should be.
    pub model: Model,
    rng: Rng,
    /// What happened so far, in words.
    pub log: Vec<String>,
    /// It was stopped.
    frozen: bool,
    /// Out of 256, how often it stores while the engine works, once it is let in.
    pub wish: u64,
    /// The same now.
    pub restless: u64,
}

impl Program {
    /// A program that has stored nothing yet.
    #[must_use]
    pub fn new(machine: &Machine, setting: &Setting, rng: Rng) -> Self {
        let model = Model::new(&machine.all(), machine.size(), setting.parity);
        let state = State { model, rng, log: Vec::new(), frozen: false, wish: 0, restless: 0 };
        Self { machine: machine.clone(), off: None, shared: Arc::new(Mutex::new(state)) }
    }

    /// The same program after a crash, on the machine that is left.
    #[must_use]
    pub fn on(&self, machine: &Machine) -> Self {
        let mut state = self.state();
        let shared = State {
            model: state.model.again(),
            rng: Rng::new(state.rng.next_u64()),
            log: state.log.clone(),
            frozen: false,
            wish: state.wish,
            restless: 0,
        };
        let shared = Arc::new(Mutex::new(shared));
        Self { machine: machine.clone(), off: self.off, shared }
    }

    /// The same, where a place of the engine is switched off.
    #[must_use]
    pub fn without(self, off: Option<&'static str>) -> Self {
        Self { off, ..self }
    }

    /// The place of the engine that is switched off.
    #[must_use]
    pub const fn off(&self) -> Option<&'static str> {
        self.off
    }

    /// What it remembers.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It stores a few bytes, or a few pages, somewhere.
    pub fn store(&self) {
        let mut state = self.state();
        let count = state.model.count();
        if state.frozen || count == 0 {
            return;
        }
        let page = state.rng.below(count);
        self.store_to(&mut state, page, None);
    }

    /// It stores to a page.
    pub fn store_to_page(&self, page: u64) {
        let mut state = self.state();
        if !state.frozen && page < state.model.count() {
            self.store_to(&mut state, page, None);
        }
    }

    /// It writes to a page by a call, and announces that.
    pub fn write_to_page(&self, page: u64) {
        let mut state = self.state();
        if !state.frozen && page < state.model.count() {
            self.store_to(&mut state, page, Some(true));
        }
    }

    /// Stores to a page, or writes; which, is left to chance unless it is said.
    fn store_to(&self, state: &mut State, page: u64, announced: Option<bool>) {
        let size = state.model.size;
        let at = page * PAGE + state.rng.below(PAGE);
        let most = match state.rng.below(8) {
            0..5 => 64,
            5..7 => PAGE,
            _ => 3 * PAGE,
        };
        let at = at.min(size - 1);
        let len = (1 + state.rng.below(most)).min(size - at);
        let touched = at / PAGE..(at + len).div_ceil(PAGE);
        for page in touched.clone() {
            // Repaired since anybody looked: then the store does not make damage part of it. What
            // is wrong stays so and is told by whoever looks.
            let now = self.machine.page(page);
            state.model.repaired += u64::from(
                now.is_some() && state.model.changed(page, now.as_deref()) == Change::Repaired,
            );
        }
        if touched.into_iter().any(|page| state.model.page(page).unreadable) {
            // It would die of it.
            return;
        }
        let mut bytes = vec![0; len as usize];
        state.rng.fill(&mut bytes);
        let announced = announced.unwrap_or_else(|| state.rng.below(8) == 0);
        let done = if announced {
            self.machine.data.announce(at, len);
            let done = self.machine.data.window().put(WRITE, at, &bytes);
            self.machine.data.announce(at, len);
            done
        } else {
            self.machine.data.put(STORE, at, &bytes)
        };
        if done.is_ok() {
            let how = if announced { "written" } else { "stored" };
            state.log.push(format!("{how} {at}+{len}"));
            state.model.stored(at, &bytes);
        }
    }

    /// It stores to a page that is damaged, in the worst moment.
    fn pester(&self) {
        let mut state = self.state();
        if state.frozen || state.wish == 0 || state.rng.below(4) > 0 {
            return;
        }
        let model = &state.model;
        let damaged = |page: &u64| model.page(*page).is_damaged() && !model.page(*page).unreadable;
        let damaged: Vec<u64> = (0..model.count()).filter(damaged).collect();
        if let Some(page) = state.rng.pick(&damaged) {
            self.store_to(&mut state, *page, None);
        }
    }

    /// What the engine is about to do gives it an occasion to store.
    pub fn hears(&self, doing: Doing<'_>) {
        match doing {
            Doing::Store(site, ..) if site.name() == "mapped.repair.store" => self.pester(),
            _ => self.interfere(),
        }
    }

    /// Now and then it stores while the engine works. Where records of first stores are cleared, it
    /// would wait.
    pub fn interfere(&self) {
        if self.machine.data.is_forgetting() {
            return;
        }
        let stores = {
            let mut state = self.state();
            let restless = state.restless;
            restless > 0 && state.rng.below(256) < restless
        };
        if stores {
            self.store();
        }
    }

    fn end_pass(&self) {
        let bits = self.machine.data.marks().dirty;
        self.state().model.end_pass(&bits);
    }

    /// It makes its file longer or shorter.
    ///
    /// # Errors
    /// The medium's.
    pub fn resize(&self) -> Judged<()> {
        let mut state = self.state();
        let size = match state.rng.below(4) {
            0 => (8 + state.rng.below(ROOM - 8)) * PAGE,
            _ => 8 * PAGE + state.rng.below((ROOM - 8) * PAGE),
        };
        drop(state);
        self.resize_to(size)
    }

    /// It makes its file this long.
    ///
    /// # Errors
    /// The medium's.
    pub fn resize_to(&self, size: u64) -> Judged<()> {
        let mut state = self.state();
        self.machine.set_size(size).map_err(|error| refused("a change of length", &error))?;
        state.model.resized(size);
        state.log.push(format!("size {size}"));
        Ok(())
    }

    /// It punches a hole.
    pub fn punch(&self) {
        let mut state = self.state();
        let count = state.model.count().max(1);
        let page = state.rng.below(count);
        drop(state);
        self.punch_page(page);
    }

    /// It punches a hole where a page is.
    pub fn punch_page(&self, page: u64) {
        let mut state = self.state();
        let (at, size) = (page * PAGE, state.model.size);
        let len = PAGE.min(size.saturating_sub(at));
        if state.model.page(page).unreadable || len == 0 {
            return;
        }
        self.machine.data.announce(at, len);
        let zeros = vec![0; len as usize];
        if self.machine.data.window().put(WRITE, at, &zeros).is_ok() {
            state.model.stored(at, &zeros);
        }
        self.machine.data.announce(at, len);
    }
}

impl Writers for Program {
    fn freeze(&self) -> bool {
        // What it does in the very moment.
        self.pester();
        self.state().frozen = true;
        true
    }

    fn thaw(&self) {
        self.state().frozen = false;
    }
}

/// A file under protection.
#[derive(Debug)]
pub struct Session {
    /// How it is kept.
    pub setting: Setting,
    /// Which run of the machine this is.
    pub run: u8,
    /// Who stores.
    pub program: Program,
    /// The engine.
    pub engine: Engine,
}

impl Session {
    /// Protects the file of `program` and lets writers in.
    ///
    /// # Errors
    /// The engine's.
    pub fn begin(program: &Program, setting: Setting) -> Judged<Self> {
        let engine =
            program.machine.protect(&setting).map_err(|error| refused("protect", &error))?;
        if setting.recorded {
            program.machine.record().map_err(|error| refused("records", &error))?;
        }
        let this = Self { setting, run: 1, program: program.clone(), engine };
        this.admit()?;
        Ok(this)
    }

    /// How it is opened.
    #[must_use]
    pub fn options(&self) -> OpenOptions {
        self.setting.open(self.run)
    }

    /// Lets writers in.
    ///
    /// # Errors
    /// The engine's.
    pub fn admit(&self) -> Judged<()> {
        let done = self.engine.admit(0, u64::MAX, Writing::NotYet);
        done.map_err(|error| refused("admit", &error))?;
        let mut state = self.program.state();
        state.restless = state.wish;
        Ok(())
    }

    /// A pass.
    ///
    /// # Errors
    /// The engine's.
    pub fn pass(&self) -> Judged<()> {
        self.pass_and(|_| {})
    }

    /// A pass, and something that happened before it was over.
    ///
    /// # Errors
    /// The engine's.
    pub fn pass_and(&self, done: impl FnOnce(&Program)) -> Judged<()> {
        self.program.state().model.begin_pass();
        self.engine.update_now().map_err(|error| refused("pass", &error))?;
        done(&self.program);
        self.program.end_pass();
        Ok(())
    }

    /// Sees writers off: nobody stores until they are let in again.
    ///
    /// # Errors
    /// The engine's.
    pub fn dismiss(&self) -> Judged<()> {
        // Nobody stores any more when this is called.
        self.program.state().restless = 0;
        self.program.state().model.begin_pass();
        self.engine.dismiss(0, u64::MAX).map_err(|error| refused("dismiss", &error))?;
        self.program.end_pass();
        Ok(())
    }

    /// Closes the side file and opens it again.
    ///
    /// # Errors
    /// The engine's.
    pub fn reopen(self) -> Judged<Self> {
        let Self { setting, run, program, engine } = self;
        program.state().restless = 0;
        program.state().model.begin_pass();
        engine.close().map_err(|error| refused("close", &error))?;
        program.end_pass();
        let opened = program.machine.open(setting.open(run));
        let (engine, _) = opened.map_err(|error| refused("open", &error))?;
        Ok(Self { setting, run, program, engine })
    }

    /// The process is killed, and the file opened again: with the bits of the source, or without.
    ///
    /// # Errors
    /// The engine's.
    pub fn kill(self, bits: bool) -> Judged<Self> {
        let Self { setting, run, program, engine } = self;
        let machine = &program.machine;
        let left = machine.medium.crash_point().newest();
        let marks = bits.then(|| machine.data.marks());
        let next = Machine::after(left, &setting, machine.size(), marks, program.off());
        drop(engine);
        if setting.recorded {
            next.record().map_err(|error| refused("records", &error))?;
        }
        let program = program.on(&next);
        let opened = next.open(setting.open(run)).map_err(|error| refused("open", &error))?;
        Ok(Self { setting, run, program, engine: opened.0 })
    }

    /// Whether each pass syncs.
    #[must_use]
    pub fn syncs(&self) -> bool {
        self.setting.kind == MediumKind::File && self.setting.durability == Durability::Power
    }
}
