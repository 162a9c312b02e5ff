//! One life of a pool between two ends of its machine: what was said in the last life to be
//! acknowledged must be there; then the pool is worked on until the machine is gone.
//!
//! The machine is one that can be ended from outside (`cargo xtask lab`). Whoever ends it keeps
//! what was said, and hands it to the next life. This one repeats first what is there already, so
//! that no life needs more than the one before it, and says on the console that it has.

pub mod lies;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use holdfast_object::{CreateOptions, Parity, Pool};
use holdfast_pmem::{Mapped, Medium, Options, SystemClock};
use holdfast_workloads::Rng;
use serde::Deserialize;

use super::model::Objects;
use super::promise::{LEFT, Promise, judge};
use super::raw::{Bytes, Scope, survey};
use super::scenes::refused;
use super::victim::{Orders, Phase, Said, Voice, divide, hear, open, open_options, work};
use crate::tally::{Fault, Judged, Tally, Violation};

/// What is said on the console once all that is there was repeated. What the life before said is
/// not needed any more.
pub const REPEATED: &str = "life: repeated";

/// Bytes of a new pool, and of the longest.
const SIZE: u64 = 4 << 20;
const SIZE_MAX: u64 = 16 << 20;

/// What is to be done in this life.
#[derive(Debug, Clone, Deserialize)]
pub struct Life {
    /// The pool; made if it is not there.
    pool: PathBuf,
    /// What the life before said.
    said: PathBuf,
    /// Of everything random.
    seed: u64,
    /// Milliseconds after which the kernel is told to crash.
    crash: Option<u64>,
    /// Instead of living: lies that are told of what is there, each to be convicted.
    #[serde(default)]
    lies: Vec<String>,
    /// What the life before the last one said.
    #[serde(default)]
    older: PathBuf,
}

/// Lives, until the machine is gone; comes back only if something is wrong.
#[must_use]
pub fn run(life: &str) -> ExitCode {
    let Ok(life) = serde_json::from_str::<Life>(life) else { return ExitCode::from(2) };
    if !life.lies.is_empty() {
        return lies::tell(&life.lies, &life.pool, (&life.said, &life.older));
    }
    let voice = Voice::default();
    match begin(&life, &voice) {
        Ok(orders) => {
            if let Some(after) = life.crash {
                crash_after(Duration::from_millis(after));
            }
            work(&orders, &voice)
        }
        Err(violation) => {
            eprintln!("life: {violation:?}");
            ExitCode::FAILURE
        }
    }
}

/// Has the kernel stop where it is after a while, with whatever it has in hand.
pub fn crash_after(after: Duration) {
    std::thread::spawn(move || crash(after));
}

fn crash(after: Duration) {
    std::thread::sleep(after);
    if let Err(error) = std::fs::write("/proc/sysrq-trigger", "c") {
        eprintln!("life: the kernel cannot be crashed: {error}");
        std::process::exit(1);
    }
}

/// Judges what is there, and repeats it; what is to be worked on.
fn begin(life: &Life, voice: &Voice) -> Judged<Orders> {
    let mut tally = Tally::default();
    if life.pool.exists() {
        let promise = heard(&life.said)?;
        judge(&life.pool, promise.as_ref(), &mut tally)?;
        // What was left is compared with once more when this life is over, however it ends.
        let left = life.pool.with_file_name(LEFT);
        let synced = File::open(&left).and_then(|file| file.sync_all());
        synced.map_err(|error| Violation::new(Fault::Refused, format!("{LEFT}: {error}")))?;
    } else {
        make(&life.pool)?;
    }
    let (pool, _) = open(&life.pool).map_err(|error| Violation::new(Fault::Refused, error))?;
    let kind = pool.medium().kind();
    let found = survey(&Bytes::of(pool.medium()), Scope::OBJECTS);
    let found = found.ok_or_else(|| Violation::new(Fault::Wrong, "no superblock verifies"))?;
    drop(pool);
    repeat(&found.objects, found.anchor, voice);
    let counts = tally.figures.iter().map(|(what, count)| format!("{what} {count}"));
    let counts: Vec<String> = counts.collect();
    eprintln!("{REPEATED} on {kind}: {} objects; {}", found.objects.len(), counts.join(", "));
    let mut rng = Rng::part(life.seed, 0);
    let len = std::fs::metadata(&life.pool).map_or(SIZE, |found| found.len());
    let phase = match rng.below(8) {
        0..4 => Phase::Work,
        4 => Phase::Close,
        5 if len < SIZE_MAX => Phase::Growth,
        _ => Phase::Scrub,
    };
    let (path, seed, grow) = (life.pool.clone(), rng.next_u64(), len + SIZE / 2);
    Ok(Orders { path, seed, phase, grow, ill: None })
}

/// Makes a pool.
///
/// # Errors
/// What the system or the engine answered.
pub(super) fn make(path: &Path) -> Judged<()> {
    // Under its name only once it is a pool: the machine may end before.
    let part = path.with_extension("part");
    let _ = std::fs::remove_file(&part);
    let medium = Mapped::create(&part, SIZE, &Options::default());
    let failed = |error| Violation::new(Fault::Refused, format!("create: {error}"));
    let medium = medium.map_err(failed)?;
    let options = CreateOptions {
        parity: Parity::PQ,
        log: 5 * 16_384,
        uuid: *b"holdfastcampaign",
        ..CreateOptions::tiny(SIZE)
    };
    let pool = Pool::create(medium, &options, open_options(), Arc::new(SystemClock::new()));
    pool.map(drop).map_err(|error| refused("create", &error))?;
    // Before anything in it is acknowledged its name is durable.
    let folder = path.parent().unwrap_or(Path::new("."));
    let renamed = std::fs::rename(&part, path).and_then(|()| File::open(folder)?.sync_all());
    renamed.map_err(|error| Violation::new(Fault::Refused, format!("its name: {error}")))
}

/// Says each object as a transaction of its owner that was acknowledged.
pub(super) fn repeat(objects: &Objects, anchor: u64, voice: &Voice) {
    for (thread, part) in (0..).zip(divide(objects, anchor)) {
        for (word, object) in part.iter() {
            voice.say(&Said::Begin(thread, vec![(word, Some(object.clone()))]));
            voice.say(&Said::Ack(thread));
        }
    }
}

/// What the last life promised; nothing if it said nothing.
fn heard(path: &Path) -> Judged<Option<Promise>> {
    let all = all_said(path);
    if all.is_empty() { Ok(None) } else { promised(all).map(Some) }
}

/// All that a life said.
pub(super) fn all_said(path: &Path) -> Vec<Said> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let mut file = BufReader::new(file);
    std::iter::from_fn(|| hear(&mut file)).collect()
}

/// What was promised by that.
pub(super) fn promised(all: Vec<Said>) -> Judged<Promise> {
    let mut promise = Promise::of(&Objects::default(), 0);
    for said in all {
        if !promise.note(said) {
            return Err(Violation::new(Fault::Wrong, "what the last life said makes no sense"));
        }
    }
    match promise.failures.first() {
        Some(failure) => Err(failure.clone()),
        None => Ok(promise),
    }
}
