//! Row `sigkill`: a process with several threads is killed at any instant, in the middle of
//! transactions, recovery, scrub, growth or close; the pool it leaves must hold what it said was
//! acknowledged.
//!
//! Between kills the file is damaged (`sigkill/hurt.rs`): after one, before the recovery; or while
//! the pool is closed, and then the process is killed in the middle of mending it.
//!
//! Pools are real files: on the file system of the temporary directory, and in shared memory. The
//! contents and the kind of each kill follow from the seed; the instant also from the machine, so
//! a replay repeats the story, and may need several runs to hit the same instruction.

mod hurt;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_object::{CreateOptions, Parity, Pool};
use holdfast_pmem::{Mapped, Medium, MediumKind, Options, SystemClock};
use holdfast_workloads::Rng;

use self::hurt::{State, hurt, last_event, mended};
use crate::object::model::Object;
use crate::object::promise::{LEFT, Promise, judge};
use crate::object::scenes::refused;
use crate::object::victim::{Ill, Orders, Phase, Said, hear, open_options, was_killed};
use crate::object::wrong::{Lie, Variant, are_enough, is_on_purpose, lie, or_right, told};
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "sigkill",
    story: "a process killed at any instant: work, recovery, scrub, growth, close",
    cases: |tier| WRONG.len() as u64 + CASES * if matches!(tier, Tier::Ci) { 1 } else { 25 },
    run,
    finish: |_| {},
    patience: Duration::from_secs(1800),
    threads: 1,
};

/// Cases of the CI tier.
const CASES: u64 = 20;
/// Kills of each.
const KILLS: u64 = 10;
/// Bytes of the journal of events.
const EVENTS: u64 = 12 << 12;
/// Bytes of a new pool, and bytes it grows by.
const SIZE: u64 = 1 << 20;
/// Longest pool.
const SIZE_MAX: u64 = 4 << 20;
/// Where shared memory is.
const SHARED: &str = "/dev/shm";
/// Longest time to wait for the process to come to its phase.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the judge must convict.
const WRONG: &[Variant] = &[
    lie(Lie::Claims, "what nobody did is acknowledged", Fault::Wrong),
    lie(Lie::Forgets, "what was acknowledged is gone", Fault::Wrong),
    lie(Lie::WrongByte, "a wrong byte is served", Fault::Wrong),
    lie(Lie::Silent, "the journal says nothing", Fault::Unnoticed),
    lie(Lie::Accuses, "the journal names what nothing damaged", Fault::FalseReport),
    lie(Lie::Panics, "a thread of the process panics", Fault::Panicked),
    lie(Lie::Dies, "the process ends before it is killed", Fault::Panicked),
];
const _: () = are_enough(WRONG);
/// Kills of a story in which something is wrong.
const FEW: u64 = 4;

fn run(case: &Case) -> Tally {
    or_right(WRONG, case, |_, case| kills(case, FEW), |case| kills(case, KILLS))
}

/// So many kills of one pool.
fn kills(case: &Case, kills: u64) -> Tally {
    let mut tally = Tally::default();
    let shared = case.number.is_multiple_of(2);
    let folder = if shared { PathBuf::from(SHARED) } else { std::env::temp_dir() };
    if shared && !folder.is_dir() {
        tally.lines.push(format!("case {} skipped: there is no {SHARED}", case.number));
        return tally;
    }
    let temporary = tempfile::Builder::new().prefix("holdfast-campaign-").tempdir_in(&folder);
    let failed = |error| Violation::new(Fault::Refused, format!("{}: {error}", folder.display()));
    let done = temporary.map_err(failed).and_then(|temporary| {
        let told = story(case, kills, &temporary.path().join("pool"), &mut tally);
        told.map_err(|violation| {
            if is_on_purpose() {
                return violation;
            }
            // No replay hits the same instant: what the process left is kept to be looked at.
            let kept = temporary.keep();
            violation.during(format!("{} ({LEFT} is what was killed)", kept.display()))
        })
    });
    tally.judge(done);
    tally
}

fn story(case: &Case, kills: u64, path: &Path, tally: &mut Tally) -> Judged<()> {
    let mut rng = case.rng(1);
    let parity = if (case.number / 2).is_multiple_of(2) { Parity::P } else { Parity::PQ };
    let medium = Mapped::create(path, SIZE, &Options::default())
        .map_err(|error| Violation::new(Fault::Refused, format!("create: {error}")))?;
    let options = CreateOptions {
        parity,
        log: 5 * 16_384,
        uuid: *b"holdfastcampaign",
        // Room for all that is told of the damage between two kills.
        events: EVENTS,
        ..CreateOptions::tiny(SIZE)
    };
    let kind = medium.kind();
    let pool = Pool::create(medium, &options, open_options(), Arc::new(SystemClock::new()));
    drop(pool.map_err(|error| refused("create", &error))?);
    let mut size = SIZE;
    let mut promise = judge(path, None, tally)?;
    for kill in 0..kills {
        let phase = match rng.below(8) {
            0..3 => Phase::Work,
            3 => Phase::Scrub,
            4 if size < SIZE_MAX => Phase::Growth,
            5 => Phase::Close,
            _ => Phase::Recovery,
        };
        let told = |v: Violation| v.during(format!("kill {kill} of {kind}, {phase:?}"));
        let grow = size + SIZE / 2;
        // Recovery has something to do only after another kill.
        let first = if phase == Phase::Recovery { Phase::Work } else { phase };
        promise = kill_once(path, first, grow, kind, promise, &mut rng, tally).map_err(told)?;
        if phase == Phase::Recovery {
            for _ in 0..=rng.below(2) {
                promise =
                    kill_once(path, phase, grow, kind, promise, &mut rng, tally).map_err(told)?;
            }
        }
        if rng.below(3) == 0 {
            let state = State::Killed { apart: kind != MediumKind::File };
            let injuries = hurt(path, state, &mut rng).map_err(told)?;
            let told = |v: Violation| told(v.during(format!("damaged after it: {injuries:x?}")));
            mended(path, (&injuries, 0), state, tally).map_err(told)?;
        }
        promise = judge(path, Some(&promise), tally).map_err(told)?;
        if rng.below(3) == 0 {
            promise = mend(path, kind, promise, &mut rng, tally).map_err(told)?;
        }
        size = std::fs::metadata(path).map_or(size, |found| found.len());
    }
    Ok(())
}

/// Damages a pool that is closed, and kills the process that mends it.
fn mend(
    path: &Path,
    kind: MediumKind,
    promise: Promise,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Judged<Promise> {
    let seen = last_event(path)?;
    let injuries = hurt(path, State::Closed, rng)?;
    let told = |v: Violation| v.during(format!("damaged when closed: {injuries:x?}"));
    let promise = kill_once(path, Phase::Mend, 0, kind, promise, rng, tally).map_err(told)?;
    mended(path, (&injuries, seen), State::Closed, tally).map_err(told)?;
    judge(path, Some(&promise), tally).map_err(told)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the process, lets it come to its phase, and kills it there.
fn kill_once(
    path: &Path,
    phase: Phase,
    grow: u64,
    kind: MediumKind,
    promise: Promise,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Judged<Promise> {
    let before = told(Lie::Forgets).then(|| std::fs::read(path).unwrap_or_default());
    let ill = match (told(Lie::Panics), told(Lie::Dies)) {
        (true, _) => Some(Ill::Panics),
        (_, true) => Some(Ill::Dies),
        _ => None,
    };
    let orders = Orders { path: path.to_path_buf(), seed: rng.next_u64(), phase, grow, ill };
    let mut child = spawn(&orders)?;
    let Some(mut pipe) = child.stdout.take() else {
        return Err(Violation::new(Fault::Refused, "the process has no pipe"));
    };
    let shared = Arc::new(Mutex::new(promise));
    let (tell, heard) = channel();
    let listener = {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut sense = true;
            while let Some(said) = hear(&mut pipe) {
                use Said::{Accused, Failed, Panicked, Past, Phase};
                if let Phase(_) | Past(_) | Failed(_) | Accused(_) | Panicked(_) = &said {
                    // Whoever waited may have seen enough.
                    let _ = tell.send(said.clone());
                }
                sense &= lock(&shared).note(said);
            }
            sense
        })
    };
    let reached = reach(&heard, phase);
    std::thread::sleep(Duration::from_micros(rng.below(longest(phase, kind))));
    let killed = child.kill().and_then(|()| child.wait());
    let sense = listener.join().unwrap_or(false);
    let ended = killed.map_err(|error| Violation::new(Fault::Refused, format!("kill: {error}")))?;
    reached?;
    let mut taken = std::mem::take(&mut *lock(&shared));
    if let Some(failure) = taken.failures.first() {
        return Err(failure.clone());
    }
    was_killed(ended)?;
    let past = heard.try_iter().any(|said| said == Said::Past(phase));
    let inside = matches!(phase, Phase::Work | Phase::Scrub) || !past;
    tally.count += 1;
    tally.add(format!("{kind}: killed {} {phase:?}", if inside { "in" } else { "just after" }), 1);
    if !sense {
        return Err(Violation::new(Fault::Wrong, "what the process said makes no sense"));
    }
    lie_about(&mut taken, path, before)?;
    Ok(taken)
}

/// Longest time in a phase before the kill, in microseconds: short where the phase is short.
const fn longest(phase: Phase, kind: MediumKind) -> u64 {
    match (phase, kind) {
        (Phase::Work | Phase::Scrub, MediumKind::File) => 120_000,
        (Phase::Work | Phase::Scrub, _) => 40_000,
        (Phase::Mend, MediumKind::File) => 30_000,
        (Phase::Mend, _) => 8_000,
        (Phase::Growth, MediumKind::File) => 20_000,
        (Phase::Growth, _) => 1_200,
        (Phase::Recovery | Phase::Close, MediumKind::File) => 6_000,
        (Phase::Recovery | Phase::Close, _) => 400,
    }
}

/// Tells lies about what was acknowledged, and about what is there: what there was `before`.
fn lie_about(promise: &mut Promise, path: &Path, before: Option<Vec<u8>>) -> Judged<()> {
    if told(Lie::Claims) {
        let object = Object { kind: 1, bytes: Arc::from(vec![7; 24]) };
        // No object begins there.
        let claimed = [Said::Begin(0, vec![(64, Some(object))]), Said::Ack(0)];
        for said in claimed {
            promise.note(said);
        }
    }
    let Some(before) = before else { return Ok(()) };
    let restored = std::fs::write(path, before);
    restored.map_err(|error| Violation::new(Fault::Refused, error.to_string()))
}

fn spawn(orders: &Orders) -> Judged<Child> {
    let failed = |what: String| Violation::new(Fault::Refused, what);
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let orders = serde_json::to_string(orders).map_err(|error| failed(error.to_string()))?;
    Command::new(program)
        .args(["object", "--victim", &orders])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("starting a process: {error}")))
}

/// Waits until the process says that it begins with its phase.
fn reach(told: &Receiver<Said>, phase: Phase) -> Judged<()> {
    loop {
        match told.recv_timeout(PATIENCE) {
            Ok(Said::Phase(begun)) if begun == phase => return Ok(()),
            // Told with everything else it said.
            Ok(Said::Failed(_) | Said::Accused(_) | Said::Panicked(_)) => return Ok(()),
            // It has ended: by itself, and that is looked at.
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => {
                let story = format!("the process did not come to {phase:?} in {PATIENCE:?}");
                return Err(Violation::new(Fault::Hung, story));
            }
        }
    }
}
