//! Row `fail-nth`: every call that can fail does fail, once or from then on, while a file is
//! protected, opened, kept, put right and closed: calls of the media, of the source that tells of
//! stores, of the system about the file, and of who stops the writers for a repair.
//!
//! Each case is one thing the engine is asked for, in one setting. Its calls are counted, then it
//! is done again in a machine of the same past for every n, with the nth call failing; the CI tier
//! makes a share of them fail, another with every seed. Whatever is answered: no page that is
//! sound is called corrupt, no byte is taken back, damage to a covered page is found; success
//! means that it was done. A kill and a power cut leave what they may leave after any other
//! instant. Once calls succeed again, at the latest in a file that is opened anew, all is well.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use holdfast_faultmem::FailMode;
use holdfast_mapped::{AtRest, Error, Force, LoadFault, Mended, Writing};
use holdfast_pmem::PAGE;
use holdfast_redundancy::{PageVerdict, Unsure};
use holdfast_workloads::Rng;

use crate::mapped::images::left;
use crate::mapped::judge::{bytes, gives_back, name, refused, verdicts};
use crate::mapped::ledger::Ledger;
use crate::mapped::machine::{Engine, Machine, Setting};
use crate::mapped::session::{Program, Session};
use crate::object::wrong::{Lie, Variant, are_enough, lie, or_right, straight};
use crate::runner::{Case, Row, Tier, panic_text};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "fail-nth",
    story: "every call that can fail fails, once and for ever, whatever the engine is asked for",
    cases: |_| WRONG.len() as u64 + (DEEDS.len() as u64) * SETTINGS,
    run,
    finish,
    patience: Duration::from_secs(3_600),
    threads: 2,
};

/// Ways to keep a file.
const SETTINGS: u64 = 8;
/// Calls of one deed that the CI tier makes fail at most; beyond, every so many of them.
const CALLS: u64 = 6;
/// Figures that only tell which deeds had calls that failed.
const FAILED: &str = "failed ";
/// The page that is damaged, where one is.
const ROTTEN: u64 = 5;

/// What the engine is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Protect,
    /// The file was closed.
    Open,
    /// Its process was killed; the bits of the source outlived it.
    OpenKilled,
    /// Its process was killed, and a page rots.
    OpenRotten,
    Admit,
    /// After stores.
    Pass,
    /// After stores, beside a page that rots.
    PassRotten,
    Cover,
    Scrub,
    /// A page rots.
    ScrubRotten,
    /// A page rots, and is repaired by itself.
    Repair,
    /// The same, for a load that could not have it.
    Load,
    /// The memory of a page failed, and what was stored to it is not known.
    Doubt,
    /// The file is longer, or shorter: a pass follows it.
    Resize,
    Dismiss,
    /// What was stored to one page is covered before it returns.
    Commit,
    /// Somebody untracked writes, and has done so.
    Contest,
    Accept,
    Close,
    CloseAtRest,
    Unprotect,
}

const DEEDS: [Deed; 21] = [
    Deed::Protect,
    Deed::Open,
    Deed::OpenKilled,
    Deed::OpenRotten,
    Deed::Admit,
    Deed::Pass,
    Deed::PassRotten,
    Deed::Cover,
    Deed::Scrub,
    Deed::ScrubRotten,
    Deed::Repair,
    Deed::Load,
    Deed::Doubt,
    Deed::Resize,
    Deed::Dismiss,
    Deed::Commit,
    Deed::Contest,
    Deed::Accept,
    Deed::Close,
    Deed::CloseAtRest,
    Deed::Unprotect,
];

impl Deed {
    const fn opens(self) -> bool {
        matches!(self, Self::Open | Self::OpenKilled | Self::OpenRotten)
    }

    const fn rots(self) -> bool {
        matches!(
            self,
            Self::OpenRotten | Self::PassRotten | Self::ScrubRotten | Self::Repair | Self::Load
        )
    }

    /// Whether nothing is stored before it.
    const fn follows_a_pass(self) -> bool {
        matches!(self, Self::Scrub | Self::Repair | Self::Load | Self::Doubt)
    }

    /// Whether it covers what was stored to.
    const fn covers(self) -> bool {
        matches!(
            self,
            Self::Pass
                | Self::PassRotten
                | Self::Cover
                | Self::Resize
                | Self::Dismiss
                | Self::Close
                | Self::CloseAtRest
        )
    }
}

/// Which of them is a pass beside a page that rots.
const PASS_ROTTEN: u64 = 6;

/// The call that fails, counted from one, and whether all after it do so too.
type Failing = Option<(u64, FailMode)>;

/// What a case does over and over.
struct Story {
    deed: Deed,
    setting: Setting,
    seed: u64,
}

/// What the judge must convict.
pub const WRONG: &[Variant] = &[
    lie(Lie::Accuses, "a sound page is called corrupt", Fault::FalseReport),
    lie(Lie::Elsewhere, "the journal names a sound page", Fault::FalseReport),
    lie(Lie::OneOfTwo, "the journal does not tell of a repair", Fault::Unnoticed),
    lie(Lie::Silent, "a page that rots is called good", Fault::Wrong),
    lie(Lie::Neighbour, "a page that is covered is said not to be", Fault::Wrong),
    lie(Lie::Reverts, "a page is changed", Fault::Reverted),
    lie(Lie::Panics, "a look panics", Fault::Panicked),
];
const _: () = are_enough(WRONG);
const _: () = assert!(matches!(DEEDS[PASS_ROTTEN as usize], Deed::PassRotten));

fn named(number: u64) -> (Deed, Setting, String) {
    let deed = DEEDS[number as usize % DEEDS.len()];
    let setting = number / DEEDS.len() as u64 % SETTINGS;
    (deed, Setting::numbered(setting), format!("{deed:?} in setting {setting}"))
}

fn run(case: &Case) -> Tally {
    // A pass beside a page that rots, in each setting.
    let rotten = |number| number * DEEDS.len() as u64 + PASS_ROTTEN;
    let brief = |_: &Variant, case: &Case| played(&Case { number: rotten(case.number), ..*case });
    or_right(WRONG, case, brief, played)
}

fn played(case: &Case) -> Tally {
    let (mut tally, mut ledger) = (Tally::default(), Ledger::default());
    let (deed, setting, name) = named(case.number);
    let story = Story { deed, setting, seed: case.rng(1).next_u64() };
    let done = story.every_call(case, &mut ledger, &mut tally);
    if let Some(ran) = tally.judge(done) {
        tally.add(format!("{FAILED}{name}"), ran);
    }
    for violation in &mut tally.violations {
        violation.story = format!("{name}, {setting:?}: {}", violation.story);
    }
    tally.count = ledger.faults;
    ledger.note(&mut tally);
    tally
}

/// Which calls fail: all of them, or a share that begins elsewhere with every seed.
fn chosen(calls: u64, case: &Case) -> impl Iterator<Item = u64> + use<> {
    let stride = match case.tier {
        Tier::Ci => calls.div_ceil(CALLS).max(1),
        Tier::Long => 1,
    };
    (1 + case.seed.wrapping_add(case.number) % stride..=calls).step_by(stride as usize)
}

/// One run: the file, and what is known of it.
struct Run<'a> {
    story: &'a Story,
    program: Program,
    fail: Failing,
    /// Calls before the deed.
    before: u64,
    /// Pages that the deed said it put off, and those of which it should have covered all others.
    deferred: u64,
    covered: Vec<u64>,
    /// A commit said that it covered what it was asked to.
    committed: bool,
    ledger: &'a mut Ledger,
}

/// What a deed answered, and the engine, if there is one.
type Outcome = (Result<(), Error>, Option<Engine>);

impl Story {
    /// Answers how many runs had a call that failed.
    fn every_call(&self, case: &Case, ledger: &mut Ledger, tally: &mut Tally) -> Judged<u64> {
        // With every call answered no judge has to tell a lie from what a failed call excuses.
        let (calls, _) = straight(|| self.once(None, ledger))?;
        tally.add("calls that can fail", calls);
        let mut ran = 0;
        for nth in chosen(calls, case) {
            for mode in [FailMode::Once, FailMode::Forever] {
                ledger.faults += 1;
                let done = catch_unwind(AssertUnwindSafe(|| self.once(Some((nth, mode)), ledger)));
                let done =
                    done.unwrap_or_else(|p| Err(Violation::new(Fault::Panicked, panic_text(&*p))));
                let done = done.map_err(|v| v.during(format!("call {nth} of {calls} ({mode:?})")));
                if let Some((made, succeeded)) = tally.judge(done) {
                    ran += u64::from(made >= nth);
                    let how = if succeeded { "answered success" } else { "answered an error" };
                    tally.add(how, 1);
                }
            }
        }
        Ok(ran)
    }

    /// Answers how many calls were made, and whether it succeeded.
    fn once(&self, fail: Failing, ledger: &mut Ledger) -> Judged<(u64, bool)> {
        let mut rng = Rng::new(self.seed);
        let size = 20 * PAGE + [0, 1000][rng.below(2) as usize];
        let machine = Machine::new(&self.setting, size, &mut rng, None);
        let program = Program::new(&machine, &self.setting, Rng::new(rng.next_u64()));
        let (story, covered) = (self, Vec::new());
        let (before, deferred, committed) = (0, 0, false);
        let mut run = Run { story, program, fail, before, deferred, covered, committed, ledger };
        let (answer, engine) = run.play(&mut rng)?;
        let medium = &run.program.machine.medium;
        let calls = medium.calls() - run.before;
        medium.fail_none();
        if let (Err(error), None) = (&answer, fail) {
            return Err(refused("nothing failed", error));
        }
        let succeeded = answer.is_ok();
        let told = match &answer {
            Ok(()) => "it answered success".to_owned(),
            Err(error) => format!("it answered: {error}"),
        };
        run.judge(succeeded, engine).map_err(|v| v.during(told))?;
        Ok((calls, succeeded))
    }
}

impl Run<'_> {
    fn arm(&mut self) {
        let medium = &self.program.machine.medium;
        self.before = medium.calls();
        if let Some((nth, mode)) = self.fail {
            medium.fail_nth(self.before + nth, mode);
        }
    }

    /// The past of the file, and the deed.
    fn play(&mut self, rng: &mut Rng) -> Judged<Outcome> {
        let setting = self.story.setting;
        if self.story.deed == Deed::Protect {
            self.arm();
            return Ok(match self.program.machine.protect(&setting) {
                Ok(engine) => (Ok(()), Some(engine)),
                Err(error) => (Err(error), None),
            });
        }
        let mut session = Session::begin(&self.program, setting)?;
        for page in [1, 8, 9, 18] {
            self.program.store_to_page(page);
        }
        session.pass()?;
        if self.story.deed.opens() {
            return self.open(session, rng);
        }
        if self.story.deed == Deed::Admit {
            session = session.reopen()?;
        } else if !self.story.deed.follows_a_pass() {
            self.more();
        }
        if self.story.deed.rots() {
            self.rot(rng)?;
        }
        if self.story.deed == Deed::Resize {
            self.program.resize()?;
        }
        self.program.state().model.begin_pass();
        self.arm();
        let answer = self.act(session.engine)?;
        if answer.0.is_ok() && self.story.deed.covers() {
            let bits = self.program.machine.data.marks().dirty;
            let mut state = self.program.state();
            let was: Vec<bool> = state.model.pages.iter().map(|page| page.dirty).collect();
            state.model.end_pass(&bits);
            let is = state.model.pages.iter().map(|page| page.dirty || page.vague);
            let covered = was.into_iter().zip(is).map(|(was, is)| was && !is);
            self.covered = (0..).zip(covered).filter(|it| it.1).map(|it| it.0).collect();
        }
        if answer.0.is_err() && self.story.deed == Deed::Accept {
            // It takes all pages for stored to, and covers them one after the other.
            self.program.state().model.pages.iter_mut().for_each(|page| page.vague = true);
        }
        Ok(answer)
    }

    /// Stores beside the page that rots, in its stripe too, which never reach it: what a crash
    /// shows of it is what was covered, and the rot.
    fn more(&self) {
        for page in [ROTTEN + 1, 13] {
            self.program.store_to_page(page);
        }
    }

    fn act(&mut self, engine: Engine) -> Judged<Outcome> {
        let (from, to) = (0, u64::MAX);
        let still = self.program.machine.still();
        let answer = match self.story.deed {
            Deed::Protect | Deed::Open | Deed::OpenKilled | Deed::OpenRotten => Ok(()),
            Deed::Admit => engine.admit(from, to, Writing::NotYet),
            Deed::Pass | Deed::PassRotten | Deed::Resize => {
                engine.update_now().map(|done| self.deferred = done.deferred)
            }
            Deed::Cover => engine.cover(from, to).map(|done| self.deferred = done.deferred),
            Deed::Scrub | Deed::ScrubRotten => engine.scrub(Some(&still)).map(|_| ()),
            Deed::Repair => self.mended(engine.repair(ROTTEN, &still, Force::No))?,
            Deed::Load => self.mended(engine.heal_load(ROTTEN, LoadFault::Unread, &still))?,
            Deed::Doubt => engine.doubt_load(ROTTEN).map(|_| ()),
            Deed::Commit => engine.commit((ROTTEN + 1) * PAGE, PAGE).map(|done| {
                self.committed = done.deferred + done.undecided == 0;
            }),
            Deed::Contest => engine.contest(true).and_then(|()| engine.contest(false)),
            Deed::Dismiss => engine.dismiss(from, to).map(|_| ()),
            Deed::Accept => engine.accept(from, to).map(|_| ()),
            Deed::Close => return Ok((engine.close(), None)),
            Deed::CloseAtRest => return Ok((engine.close_at_rest(), None)),
            Deed::Unprotect => return Ok((engine.unprotect(), None)),
        };
        Ok((answer, Some(engine)))
    }

    /// A page that is said to be repaired is whole.
    fn mended(&self, done: Result<Mended, Error>) -> Judged<Result<(), Error>> {
        if matches!(done, Ok(Mended::Repaired | Mended::Good)) && self.is_rotten() {
            let story = format!("{} is said to be repaired, and is not", name(ROTTEN));
            return Err(Violation::new(Fault::Wrong, story));
        }
        Ok(done.map(|_| ()))
    }

    /// Parity gives back what a commit stored, if it said so.
    fn committed(&self, engine: &Engine) -> Judged<()> {
        let page = ROTTEN + 1;
        let kept = engine.before_image(page).map_err(|error| refused("parity", &error))?;
        if kept.as_deref() == Some(&self.program.state().model.page(page).now[..]) {
            return Ok(());
        }
        let what = kept.map_or("nothing", |_| "something else");
        let story = format!("{} is said to be covered, and parity has {what} of it", name(page));
        Err(Violation::new(Fault::Wrong, story))
    }

    /// Whether the page that rots still does: asked of what lies behind, which does not fail.
    fn is_rotten(&self) -> bool {
        let left = self.program.machine.medium.crash_point().newest().into_bytes();
        let at = (ROTTEN * PAGE) as usize;
        left[at..at + PAGE as usize] != self.program.state().model.page(ROTTEN).now[..]
    }

    /// Closes or kills, and opens again.
    fn open(&mut self, session: Session, rng: &mut Rng) -> Judged<Outcome> {
        let setting = self.story.setting;
        let killed = self.story.deed != Deed::Open;
        if killed {
            self.more();
        }
        if self.story.deed.rots() {
            self.rot(rng)?;
        }
        if !killed {
            self.program.state().model.begin_pass();
            session.engine.close().map_err(|error| refused("close", &error))?;
            let bits = self.program.machine.data.marks().dirty;
            self.program.state().model.end_pass(&bits);
        }
        let machine = &self.program.machine;
        let left = machine.medium.crash_point().newest();
        let marks = killed.then(|| machine.data.marks());
        let next = Machine::after(left, &setting, machine.size(), marks, None);
        self.program = self.program.on(&next);
        self.arm();
        Ok(match self.program.machine.open(setting.open(1)) {
            Ok((engine, _)) => (Ok(()), Some(engine)),
            Err(error) => (Err(error), None),
        })
    }

    /// A covered page rots.
    fn rot(&mut self, rng: &mut Rng) -> Judged<()> {
        let machine = &self.program.machine;
        let at = ROTTEN * PAGE + rng.below(PAGE);
        let bit = rng.below(8) as u8;
        machine.medium.flip_bit(at, bit).map_err(|error| refused("damage", &error))?;
        let mut state = self.program.state();
        let byte = state.model.page(ROTTEN).now[(at % PAGE) as usize] ^ (1 << bit);
        self.ledger.covered += state.model.damaged(at, &[byte]);
        Ok(())
    }

    /// What is said and what was done, right after; what a kill or a power cut would leave; and
    /// how it goes on.
    fn judge(mut self, succeeded: bool, engine: Option<Engine>) -> Judged<()> {
        let setting = self.story.setting;
        let protected = match self.story.deed {
            Deed::Protect => succeeded,
            Deed::Unprotect => false,
            _ => true,
        };
        let ended = succeeded && self.story.deed == Deed::Unprotect;
        if ended && self.program.machine.open(setting.open(1)).is_ok() {
            let story = "the protection is said to have ended, and the file is opened";
            return Err(Violation::new(Fault::Wrong, story));
        }
        if let Some(engine) = &engine {
            self.put_off(engine)?;
        }
        if let Some(engine) = engine.as_ref().filter(|_| self.committed) {
            self.committed(engine)?;
        }
        {
            let mut state = self.program.state();
            state.model.calls_fail = self.fail.is_some();
            bytes(&self.program.machine, &mut state.model, self.ledger)?;
        }
        left(&self.program, setting, protected, self.story.seed, self.ledger)?;
        if let Some(engine) = &engine {
            self.verdicts(engine)?;
        }
        let engine = match engine {
            Some(engine) => self.go_on(engine).map_err(|v| v.during("calls succeed again"))?,
            None => None,
        };
        let engine = match engine {
            Some(engine) => engine,
            None => self.begin_anew(protected)?,
        };
        self.all_is_well(engine).map_err(|v| v.during("in the end"))
    }

    /// Beside a page that could not be read for a moment, what was stored to waits for the next
    /// pass: so many pages as was told.
    fn put_off(&mut self, engine: &Engine) -> Judged<()> {
        if self.fail.is_none() || self.deferred == 0 {
            return Ok(());
        }
        let mut waiting = 0;
        for page in std::mem::take(&mut self.covered) {
            let said = engine.verify(page).map_err(|error| refused("verify", &error))?;
            if said.verdict == PageVerdict::Undecided(Unsure::Uncovered) {
                waiting += 1;
                self.program.state().model.pages[page as usize].vague = true;
            }
        }
        if waiting > self.deferred {
            let story = format!("{waiting} pages wait, and {} were told", self.deferred);
            return Err(Violation::new(Fault::Wrong, story));
        }
        Ok(())
    }

    /// A call that failed is a reason for doubt.
    fn verdicts(&mut self, engine: &Engine) -> Judged<()> {
        let doubted = |page| self.story.deed == Deed::Doubt && page == ROTTEN;
        let doubt = |page| self.fail.is_some() || doubted(page);
        verdicts(engine, &self.program, doubt, self.ledger)
    }

    /// Whether the program stores once calls succeed again: every other time.
    fn stores_again(&self) -> bool {
        self.fail.is_some_and(|(nth, _)| (nth + self.story.seed).is_multiple_of(2))
    }

    /// The engine goes on, unless it says that the file has to be opened anew.
    fn go_on(&mut self, engine: Engine) -> Judged<Option<Engine>> {
        let failing = self.fail.is_some();
        let anew = |error: &Error| {
            failing && matches!(error, Error::Sync(_) | Error::DataSync(_) | Error::ReadOnly)
        };
        {
            let mut state = self.program.state();
            state.model.calls_fail = false;
        }
        let admitted = engine.admit(0, u64::MAX, Writing::NotYet);
        if admitted.is_ok() && self.stores_again() {
            for page in [ROTTEN, 8] {
                self.program.store_to_page(page);
            }
            self.verdicts(&engine).map_err(|v| v.during("after a store"))?;
        }
        self.program.state().model.begin_pass();
        match admitted.and_then(|()| engine.update_now()) {
            Ok(_) => {
                let bits = self.program.machine.data.marks().dirty;
                self.program.state().model.end_pass(&bits);
                self.verdicts(&engine)?;
                Ok(Some(engine))
            }
            Err(error) if anew(&error) => Ok(None),
            Err(error) => Err(refused("a pass", &error)),
        }
    }

    /// Protects a file that is not, or opens it.
    fn begin_anew(&mut self, protected: bool) -> Judged<Engine> {
        let setting = self.story.setting;
        let machine = &self.program.machine;
        let opened = machine.open(setting.open(1));
        let engine = match opened {
            Ok((engine, _)) => engine,
            Err(_) if !protected => {
                machine.protect(&setting).map_err(|error| refused("protect anew", &error))?
            }
            Err(error) => return Err(refused("open anew", &error)),
        };
        self.verdicts(&engine)?;
        self.program.state().model.calls_fail = false;
        engine
            .admit(0, u64::MAX, Writing::NotYet)
            .and_then(|()| engine.update_now())
            .map_err(|error| refused("a pass of a file opened anew", &error))?;
        self.verdicts(&engine)?;
        Ok(engine)
    }

    /// What rots comes back, nothing is in doubt for good, and redundancy is whole.
    fn all_is_well(&mut self, engine: Engine) -> Judged<()> {
        let machine = self.program.machine.clone();
        if engine.is_contested() {
            engine.contest(false).map_err(|error| refused("the end of a contest", &error))?;
        }
        engine.scrub(Some(&AtRest)).map_err(|error| refused("scrub", &error))?;
        bytes(&machine, &mut self.program.state().model, self.ledger)?;
        let doubtful = engine.undecided().iter().any(|(why, _)| *why != Unsure::Uncovered);
        let model = self.program.state().model.clone();
        for page in 0..model.count() {
            let hopeful = !doubtful && model.can_give_back(page / 4);
            if model.page(page).is_damaged() && hopeful {
                let story = format!("{} could be given back, and was not", name(page));
                return Err(Violation::new(Fault::Unnoticed, story));
            }
            if model.page(page).is_damaged() {
                self.ledger.lost += 1;
                let now = &model.page(page).now;
                let put = machine.medium.stray(page * PAGE, now);
                put.map_err(|error| refused("putting right", &error))?;
            }
        }
        self.program.state().model.put_right();
        let done = engine.accept(0, u64::MAX).and_then(|_| engine.scrub(Some(&AtRest)));
        done.map_err(|error| refused("accept and scrub", &error))?;
        let mut state = self.program.state();
        state.model.all_covered();
        bytes(&machine, &mut state.model, self.ledger)?;
        drop(state);
        verdicts(&engine, &self.program, |_| false, self.ledger)?;
        gives_back(&machine, &engine, self.story.seed % 64)?;
        engine.close().map_err(|error| refused("close", &error))
    }
}

/// Every deed had a call that failed.
fn finish(tally: &mut Tally) {
    let figures = std::mem::take(&mut tally.figures);
    let (ran, told): (std::collections::BTreeMap<_, _>, _) =
        figures.into_iter().partition(|(name, _)| name.starts_with(FAILED));
    tally.figures = told;
    for number in 0..DEEDS.len() as u64 * SETTINGS {
        let (_, _, name) = named(number);
        if ran.get(&format!("{FAILED}{name}")).is_none_or(|runs: &u64| *runs == 0) {
            let story = format!("{name}: no call of it failed");
            tally.convict(Violation::new(Fault::Unnoticed, story));
        }
    }
    Ledger::finish(tally);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deed_without_a_failing_call_is_a_violation() {
        let mut tally = Tally::default();
        let all = DEEDS.len() as u64 * SETTINGS;
        for number in 2..all {
            tally.add(format!("{FAILED}{}", named(number).2), 3);
        }
        tally.add(format!("{FAILED}{}", named(1).2), 0);
        finish(&mut tally);
        assert_eq!(tally.violated(), 2);
        assert!(tally.violations[0].story.contains(&named(0).2));
    }
}
