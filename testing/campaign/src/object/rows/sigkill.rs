//! Row `sigkill`: a process with several threads is killed at any instant, in the middle of
//! transactions, recovery, scrub, growth or close; the pool it leaves must hold what it said was
//! acknowledged.
//!
//! Pools are real files: on the file system of the temporary directory, and in shared memory. The
//! contents and the kind of each kill follow from the seed; the instant also from the machine, so
//! a replay repeats the story, and may need several runs to hit the same instruction.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_layout::RawPtr;
use holdfast_object::{CreateOptions, Parity, Pool, ScrubControl, ScrubOptions};
use holdfast_oracle::acked::{Acked, Ticket};
use holdfast_pmem::{Mapped, Medium, MediumKind, Options, SystemClock};
use holdfast_txn::Transaction;
use holdfast_workloads::Rng;

use crate::object::driver::agree;
use crate::object::model::{Change, Objects, name};
use crate::object::raw::{Bytes, Scope, survey};
use crate::object::scenes::refused;
use crate::object::victim::{Orders, Phase, Said, WORKERS, divide, hear, open, open_options};
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "sigkill",
    story: "a process killed at any instant: work, recovery, scrub, growth, close",
    cases: |tier| CASES * if matches!(tier, Tier::Ci) { 1 } else { 25 },
    run,
    finish: |_| {},
    patience: Duration::from_secs(180),
    threads: 1,
};

/// Cases of the CI tier.
const CASES: u64 = 20;
/// Kills of each.
const KILLS: u64 = 10;
/// Bytes of a new pool, and bytes it grows by.
const SIZE: u64 = 1 << 20;
/// Longest pool.
const SIZE_MAX: u64 = 4 << 20;
/// Where shared memory is.
const SHARED: &str = "/dev/shm";
/// The pool as a kill left it, beside the one that was opened since.
const LEFT: &str = "pool.left";
/// Longest time to wait for the process to come to its phase.
const PATIENCE: Duration = Duration::from_secs(30);

fn run(case: &Case) -> Tally {
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
        let told = story(case, &temporary.path().join("pool"), &mut tally);
        told.map_err(|violation| {
            // No replay hits the same instant: what the process left is kept to be looked at.
            let kept = temporary.keep();
            violation.during(format!("{} ({LEFT} is what was killed)", kept.display()))
        })
    });
    tally.judge(done);
    tally
}

/// What the threads of the process said.
#[derive(Debug, Default)]
struct Promise {
    logs: Vec<Acked<Objects>>,
    /// What each thread has asked for and not heard of.
    open: Vec<Option<(Ticket, Change)>>,
    failures: Vec<String>,
}

impl Promise {
    fn of(objects: &Objects, anchor: u64) -> Self {
        let logs = divide(objects, anchor).into_iter().map(Acked::new).collect();
        Self { logs, open: vec![None; WORKERS], failures: Vec::new() }
    }

    /// Takes down what was said; `false` if it makes no sense.
    fn note(&mut self, said: Said) -> bool {
        let ended = match &said {
            Said::Begin(thread, _) | Said::Ack(thread) | Said::Refused(thread) => *thread,
            Said::Failed(_) => {
                if let Said::Failed(text) = said {
                    self.failures.push(text);
                }
                return true;
            }
            _ => return true,
        };
        let thread = usize::from(ended);
        let (Some(log), Some(open)) = (self.logs.get_mut(thread), self.open.get_mut(thread)) else {
            return false;
        };
        let ticket = open.take().map(|(ticket, _)| ticket);
        match said {
            Said::Ack(_) => ticket.is_some_and(|ticket| log.ack(ticket).is_ok()),
            Said::Refused(_) => ticket.is_none_or(|ticket| log.refuse(ticket).is_ok()),
            Said::Begin(_, change) => {
                // A second beginning is the same transaction once more, after a conflict.
                let again = ticket.is_none_or(|ticket| log.refuse(ticket).is_ok());
                *open = Some((log.begin(change.clone()), change));
                again
            }
            _ => true,
        }
    }

    /// Compares what was found. Every object belongs to one of the threads.
    fn verify(&self, found: &Objects) -> Judged<u64> {
        let mut parts = vec![Objects::default(); self.logs.len()];
        for (word, object) in found.iter() {
            let makes = |change: &Change| change.iter().any(|(other, _)| *other == word);
            let knows = |thread: &usize| {
                self.logs[*thread].model().get(word).is_some()
                    || self.open[*thread].as_ref().is_some_and(|(_, change)| makes(change))
            };
            let Some(thread) = (0..self.logs.len()).find(knows) else {
                let story = format!("{} was never asked for", name(word));
                return Err(Violation::new(Fault::Wrong, story));
            };
            parts[thread].insert(word, object.clone());
        }
        for (thread, (log, part)) in self.logs.iter().zip(&parts).enumerate() {
            agree(log, part).map_err(|v| v.during(format!("thread {thread}")))?;
        }
        Ok(self.logs.iter().map(Acked::acked).sum())
    }
}

fn story(case: &Case, path: &Path, tally: &mut Tally) -> Judged<()> {
    let mut rng = case.rng(1);
    let parity = if (case.number / 2).is_multiple_of(2) { Parity::P } else { Parity::PQ };
    let medium = Mapped::create(path, SIZE, &Options::default())
        .map_err(|error| Violation::new(Fault::Refused, format!("create: {error}")))?;
    let options = CreateOptions {
        parity,
        log: 5 * 16_384,
        uuid: *b"holdfastcampaign",
        ..CreateOptions::tiny(SIZE)
    };
    let kind = medium.kind();
    let pool = Pool::create(medium, &options, open_options(), Arc::new(SystemClock::new()));
    drop(pool.map_err(|error| refused("create", &error))?);
    let mut size = SIZE;
    let mut promise = judge(path, None, tally)?;
    for kill in 0..KILLS {
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
        promise = judge(path, Some(&promise), tally).map_err(told)?;
        size = std::fs::metadata(path).map_or(size, |found| found.len());
    }
    Ok(())
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
    let orders = Orders { path: path.to_path_buf(), seed: rng.next_u64(), phase, grow };
    let mut child = spawn(&orders)?;
    let Some(mut pipe) = child.stdout.take() else {
        return Err(Violation::new(Fault::Refused, "the process has no pipe"));
    };
    let shared = Arc::new(Mutex::new(promise));
    let (tell, told) = channel();
    let listener = {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut sense = true;
            while let Some(said) = hear(&mut pipe) {
                if let Said::Phase(_) | Said::Past(_) | Said::Failed(_) = &said {
                    // Whoever waited may have seen enough.
                    let _ = tell.send(said.clone());
                }
                sense &= lock(&shared).note(said);
            }
            sense
        })
    };
    let reached = reach(&told, phase);
    // Microseconds: short where the phase is short.
    let most = match (phase, kind) {
        (Phase::Work | Phase::Scrub, MediumKind::File) => 120_000,
        (Phase::Work | Phase::Scrub, _) => 40_000,
        (Phase::Growth, MediumKind::File) => 20_000,
        (Phase::Growth, _) => 1_200,
        (Phase::Recovery | Phase::Close, MediumKind::File) => 6_000,
        (Phase::Recovery | Phase::Close, _) => 400,
    };
    std::thread::sleep(Duration::from_micros(rng.below(most)));
    let killed = child.kill().and_then(|()| child.wait());
    let sense = listener.join().unwrap_or(false);
    killed.map_err(|error| Violation::new(Fault::Refused, format!("kill: {error}")))?;
    reached?;
    let past = told.try_iter().any(|said| said == Said::Past(phase));
    let inside = matches!(phase, Phase::Work | Phase::Scrub) || !past;
    tally.count += 1;
    tally.add(format!("{kind}: killed {} {phase:?}", if inside { "in" } else { "just after" }), 1);
    let taken = std::mem::take(&mut *lock(&shared));
    if !sense {
        return Err(Violation::new(Fault::Wrong, "what the process said makes no sense"));
    }
    match taken.failures.first() {
        Some(text) => Err(Violation::new(Fault::Refused, text.clone())),
        None => Ok(taken),
    }
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
            Ok(Said::Failed(_)) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => {
                let story = format!("the process did not come to {phase:?} in {PATIENCE:?}");
                return Err(Violation::new(Fault::Hung, story));
            }
        }
    }
}

/// Opens what the process left, compares, checks and scrubs it, and closes it. Answers what is
/// promised from here on.
fn judge(path: &Path, promise: Option<&Promise>, tally: &mut Tally) -> Judged<Promise> {
    let kept = std::fs::copy(path, path.with_file_name(LEFT));
    kept.map_err(|error| Violation::new(Fault::Refused, format!("{LEFT}: {error}")))?;
    let opened = open(path);
    let (pool, opened) = opened.map_err(|error| Violation::new(Fault::Refused, error))?;
    tally.add("records replayed", opened.recovered.replayed);
    let found = survey(&Bytes::of(pool.medium()), Scope::ALL)
        .ok_or_else(|| Violation::new(Fault::Wrong, "no superblock verifies"))?;
    if let Some((exposed, what)) = found.complaint() {
        let fault = if exposed { Fault::Exposed } else { Fault::Wrong };
        return Err(Violation::new(fault, what));
    }
    if let Some(promise) = promise {
        tally.add("transactions acknowledged", promise.verify(&found.objects)?);
    }
    if found.log_chunks > 0 {
        let story = format!("{} log chunks are left after the open", found.log_chunks);
        return Err(Violation::new(Fault::Wrong, story));
    }
    let report = pool.check(|_, _| {}).map_err(|error| refused("check", &error))?;
    if !report.is_clean() {
        let story = format!("a check finds {:?}", report.findings.first());
        return Err(Violation::new(Fault::Exposed, story));
    }
    served(&pool, &found.objects)?;
    let done = pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {});
    let done = done.map_err(|error| refused("scrub", &error))?;
    if done.lost > 0 || done.repaired > 0 {
        let story = format!("the scrub found {:?}", done.report.findings.first());
        return Err(Violation::new(Fault::Exposed, story));
    }
    Ok(Promise::of(&found.objects, found.anchor))
}

/// The engine serves what the second reader found.
fn served(pool: &Pool<Mapped>, objects: &Objects) -> Judged<()> {
    for (word, object) in objects.iter() {
        let mut bytes = vec![0; object.bytes.len()];
        let read = pool.run(|tx| tx.read_bytes(RawPtr::from_word(word), 0, &mut bytes));
        read.map_err(|error| refused(&format!("reading {}", name(word)), &error))?;
        if bytes[..] != object.bytes[..] {
            let story = format!("reading {} gave something else", name(word));
            return Err(Violation::new(Fault::Wrong, story));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::model::Object;

    fn change(word: u64, byte: u8) -> Change {
        vec![(word, Some(Object { kind: 1, bytes: Arc::from(vec![byte; 8]) }))]
    }

    fn holding(changes: &[Change]) -> Objects {
        let mut objects = Objects::default();
        for (word, object) in changes.iter().flatten() {
            objects.insert(*word, object.clone().expect("a change that makes something"));
        }
        objects
    }

    #[test]
    fn what_was_acknowledged_must_be_there_and_nothing_half() {
        let mut promise = Promise::of(&Objects::default(), 0);
        for said in [
            Said::Begin(0, change(64, 1)),
            Said::Ack(0),
            Said::Begin(1, change(128, 2)),
            // Once more after a conflict, then killed.
            Said::Begin(1, change(192, 3)),
        ] {
            assert!(promise.note(said));
        }
        let found = |changes: &[Change]| promise.verify(&holding(changes));
        assert_eq!(found(&[change(64, 1)]), Ok(1));
        assert_eq!(found(&[change(64, 1), change(192, 3)]), Ok(1));
        assert!(found(&[]).is_err(), "an acknowledged change is lost");
        assert!(found(&[change(64, 1), change(192, 4)]).is_err(), "a change is torn");
        assert!(found(&[change(64, 1), change(128, 2)]).is_err(), "one taken back is there");
        assert!(found(&[change(64, 1), change(256, 5)]).is_err(), "one is invented");
    }
}
