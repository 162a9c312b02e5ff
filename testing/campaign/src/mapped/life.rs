//! A life of a protected file, from its protection to its end, chosen by chance.

use holdfast_mapped::Writers;
use holdfast_pmem::PAGE;
use holdfast_workloads::Rng;

use super::images::{Plan, Shared, Watch};
use super::judge::{bytes, refused, verdicts};
use super::ledger::Ledger;
use super::machine::{Machine, ROOM, Setting};
use super::model::LEN;
use super::session::{Program, Session};
use crate::tally::{Judged, Violation};

/// What happens next.
#[derive(Debug, Clone, Copy)]
enum Step {
    Stores,
    Pass,
    Cover,
    Rot,
    Scrub,
    Resize,
    Punch,
    Visit,
    Reopen,
}

/// What happens next in a life that follows a script: the same, always to the same few pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Letter {
    /// The program stores to a page.
    Store(u64),
    /// It writes to a page by a call that it announces.
    Write(u64),
    /// A pass.
    Pass,
    /// A stripe is covered at once.
    Cover,
    /// A scrub that may stop the program.
    Scrub,
    /// A covered page rots, and a scrub repairs it.
    Repair,
    /// The file becomes longer.
    Grow,
    /// The file is cut within a page.
    Cut,
    /// A hole is punched.
    Punch,
    /// The side file is closed and opened.
    Reopen,
}

/// All letters: pages of two stripes and two regions, and the page that a cut takes a part of.
pub const LETTERS: [Letter; 12] = [
    Letter::Store(1),
    Letter::Store(CUT),
    Letter::Store(8),
    Letter::Write(1),
    Letter::Pass,
    Letter::Cover,
    Letter::Scrub,
    Letter::Repair,
    Letter::Grow,
    Letter::Cut,
    Letter::Punch,
    Letter::Reopen,
];

/// Pages of a file that follows a script, before its last part of one.
const SCRIPTED: u64 = 10;
/// The page that a cut takes a part of.
const CUT: u64 = 6;
/// Pages that are added to make a file longer.
const MORE: u64 = 3;

/// How a life is led.
#[derive(Debug, Clone, Copy)]
pub struct Course {
    /// How the file is kept.
    pub setting: Setting,
    /// Which crashes are looked at.
    pub plan: Plan,
    /// Steps of the life.
    pub steps: u64,
    /// Whether pages rot.
    pub rot: bool,
    /// Out of 256, how often the program stores while the engine works.
    pub restless: u64,
}

/// Lives it, with a place of the engine switched off or with none, and looks at its crashes.
pub fn live(course: &Course, off: Option<&str>, rng: &mut Rng) -> (Watch, Judged<()>) {
    let size = (16 + rng.below(8)) * PAGE + [0, 1000][rng.below(2) as usize];
    lead(course, None, size, off, rng)
}

/// The same, by a script.
pub fn follow(
    course: &Course,
    script: &[Letter],
    off: Option<&str>,
    rng: &mut Rng,
) -> (Watch, Judged<()>) {
    lead(course, Some(script), SCRIPTED * PAGE + 1000, off, rng)
}

fn lead(
    course: &Course,
    script: Option<&[Letter]>,
    size: u64,
    off: Option<&str>,
    rng: &mut Rng,
) -> (Watch, Judged<()>) {
    let setting = course.setting;
    let machine = Machine::new(&setting, size, rng, off);
    let program = Program::new(&machine, &setting, Rng::new(rng.next_u64()));
    let watch = Watch::begin(&program, setting, off, course.plan, Rng::new(rng.next_u64()));
    let mut ledger = Ledger::default();
    let done = story(course, script, &program, &watch, rng, &mut ledger);
    let mut watch = Watch::end(&program, &watch);
    let log = program.state().log.join(", ");
    let lived = |violation: Violation| {
        let story = format!("{}\n      life: {log}", violation.story);
        Violation { story, ..violation }
    };
    watch.wrong = watch.wrong.map(lived);
    let done = done.map_err(lived);
    watch.ledger.covered += ledger.covered;
    watch.ledger.faults += ledger.faults;
    watch.ledger.missed += ledger.missed;
    watch.ledger.false_reports += ledger.false_reports;
    watch.ledger.reverted += ledger.reverted;
    watch.ledger.repaired += ledger.repaired;
    watch.ledger.undecided += ledger.undecided;
    watch.ledger.absorbed += ledger.absorbed;
    (watch, done)
}

fn lock(watch: &Shared) -> std::sync::MutexGuard<'_, Watch> {
    watch.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn story(
    course: &Course,
    script: Option<&[Letter]>,
    program: &Program,
    watch: &Shared,
    rng: &mut Rng,
    ledger: &mut Ledger,
) -> Judged<()> {
    let mut session = Session::begin(program, course.setting)?;
    lock(watch).protected = true;
    program.state().wish = course.restless;
    program.state().restless = course.restless;
    for number in 0..course.steps {
        if lock(watch).wrong.is_some() {
            return Ok(());
        }
        session = match script {
            None => step(session, course, rng, ledger)?,
            Some(script) => match script.get(number as usize) {
                Some(letter) => follow_one(session, *letter, rng, ledger)?,
                None => break,
            },
        };
        let mut state = program.state();
        state.restless = 0;
        bytes(&program.machine, &mut state.model, ledger)?;
        drop(state);
        verdicts(&session.engine, program, |_| false, ledger)?;
        program.state().restless = course.restless;
    }
    session = session.reopen()?;
    verdicts(&session.engine, program, |_| false, ledger)
}

fn step(session: Session, course: &Course, rng: &mut Rng, ledger: &mut Ledger) -> Judged<Session> {
    let program = session.program.clone();
    let next = match rng.below(32) {
        0..10 => Step::Stores,
        10..17 => Step::Pass,
        17..19 => Step::Cover,
        19..22 if course.rot => Step::Rot,
        19..25 => Step::Scrub,
        25..27 => Step::Resize,
        27..28 => Step::Punch,
        28..30 => Step::Visit,
        _ => Step::Reopen,
    };
    program.state().log.push(format!("{next:?}"));
    match next {
        Step::Stores => (0..=rng.below(4)).for_each(|_| program.store()),
        Step::Pass => session.pass()?,
        Step::Cover => {
            let page = rng.below(ROOM);
            let done = session.engine.cover(page * PAGE, (1 + rng.below(9)) * PAGE);
            done.map_err(|error| refused("cover", &error))?;
        }
        Step::Rot => {
            let page = rng.below(program.state().model.count().max(1));
            rot(&program, page, rng, ledger)?;
        }
        Step::Scrub => {
            let writers: &dyn Writers = &program;
            let writers = (rng.below(4) > 0).then_some(writers);
            session.engine.scrub(writers).map_err(|error| refused("scrub", &error))?;
        }
        Step::Resize => program.resize()?,
        Step::Punch => program.punch(),
        Step::Visit => {
            session.dismiss()?;
            session.admit()?;
        }
        Step::Reopen => {
            let session = session.reopen()?;
            session.admit()?;
            return Ok(session);
        }
    }
    Ok(session)
}

/// One step of a script.
fn follow_one(
    session: Session,
    letter: Letter,
    rng: &mut Rng,
    ledger: &mut Ledger,
) -> Judged<Session> {
    let program = session.program.clone();
    program.state().log.push(format!("{letter:?}"));
    let size = program.state().model.size;
    match letter {
        Letter::Store(page) => program.store_to_page(page),
        Letter::Write(page) => program.write_to_page(page),
        Letter::Pass => session.pass()?,
        Letter::Cover => {
            let done = session.engine.cover(0, 4 * PAGE);
            done.map_err(|error| refused("cover", &error))?;
        }
        Letter::Repair => {
            rot(&program, 1, rng, ledger)?;
            scrub(&session)?;
        }
        Letter::Scrub => scrub(&session)?,
        Letter::Grow if size.div_ceil(PAGE) + MORE <= ROOM => {
            program.resize_to(size + MORE * PAGE)?;
        }
        Letter::Cut if size > CUT * PAGE + 100 => program.resize_to(CUT * PAGE + 100)?,
        Letter::Punch => program.punch_page(1),
        Letter::Reopen => {
            let session = session.reopen()?;
            session.admit()?;
            return Ok(session);
        }
        // There is no room, or it was cut already.
        Letter::Grow | Letter::Cut => {}
    }
    Ok(session)
}

/// A scrub that may stop the program.
fn scrub(session: &Session) -> Judged<()> {
    let done = session.engine.scrub(Some(&session.program));
    done.map(drop).map_err(|error| refused("scrub", &error))
}

/// A covered page of a stripe that is covered rots, if none has yet.
fn rot(program: &Program, page: u64, rng: &mut Rng, ledger: &mut Ledger) -> Judged<()> {
    let mut state = program.state();
    let mut row = state.model.row(page / 4);
    let left = (page + 1) * PAGE > state.model.size;
    if left || row.any(|page| state.model.page(page).dirty || state.model.page(page).is_damaged()) {
        return Ok(());
    }
    let at = page * PAGE + rng.below(PAGE - 64);
    let mut after = vec![0; 1 + rng.below(64) as usize];
    rng.fill(&mut after);
    for (at, byte) in (at as usize % LEN..).zip(&mut after) {
        // Nothing that a crash could show by itself.
        while state.model.page(page).was(at, *byte) {
            *byte = byte.wrapping_add(1);
        }
    }
    let done = program.machine.medium.stray(at, &after);
    done.map_err(|error| refused("damage", &error))?;
    ledger.faults += 1;
    state.log.push(format!("rot {at}+{}", after.len()));
    ledger.covered += state.model.damaged(at, &after);
    Ok(())
}
