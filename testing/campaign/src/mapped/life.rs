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
    let setting = course.setting;
    let size = (16 + rng.below(8)) * PAGE + [0, 1000][rng.below(2) as usize];
    let machine = Machine::new(setting.kind, size, rng, off);
    let program = Program::new(&machine, &setting, Rng::new(rng.next_u64()));
    let watch = Watch::begin(&program, setting, off, course.plan, Rng::new(rng.next_u64()));
    let mut ledger = Ledger::default();
    let done = story(course, &program, &watch, rng, &mut ledger);
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
    program: &Program,
    watch: &Shared,
    rng: &mut Rng,
    ledger: &mut Ledger,
) -> Judged<()> {
    let mut session = Session::begin(program, course.setting)?;
    lock(watch).protected = true;
    program.state().wish = course.restless;
    program.state().restless = course.restless;
    for _ in 0..course.steps {
        if lock(watch).wrong.is_some() {
            return Ok(());
        }
        session = step(session, course, rng, ledger)?;
        let mut state = program.state();
        state.restless = 0;
        bytes(&program.machine, &mut state.model, ledger)?;
        let model = state.model.clone();
        drop(state);
        verdicts(&session.engine, &model, |_| false, ledger)?;
        program.state().restless = course.restless;
    }
    session = session.reopen()?;
    let model = program.state().model.clone();
    verdicts(&session.engine, &model, |_| false, ledger)
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
        Step::Rot => rot(&program, rng, ledger)?,
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

/// A covered page of a stripe that is covered rots, if none has yet.
fn rot(program: &Program, rng: &mut Rng, ledger: &mut Ledger) -> Judged<()> {
    let mut state = program.state();
    let page = rng.below(state.model.count().max(1));
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
