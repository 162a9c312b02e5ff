//! Work on a pool on a disk whose block writes somebody logs: threads say what they are about to
//! do and what was acknowledged, as in `victim.rs`, and mark it on the disk itself (`marks.rs`).
//!
//! What the disk may hold after a power cut is afterwards made of the log (`cargo xtask lab`) and
//! judged by `images.rs`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_object::{CreateOptions, Parity, Pool, ScrubControl, ScrubOptions};
use holdfast_pmem::{Access, Mapped, Medium, MediumKind, Options, SystemClock};
use holdfast_workloads::Rng;
use serde::Deserialize;

use super::marks::Marks;
use super::model::Objects;
use super::raw::{Bytes, Scope, survey};
use super::unsynced::Unsynced;
use super::victim::{Said, Voice, Worker, divide, open_options};

/// Bytes of the pool, and by how many it grows.
const SIZE: u64 = 8 << 20;
const GROWTH: u64 = 2 << 20;
/// Bytes of its log: so few that it goes around often.
const LOG: u64 = 8 * 16_384;

/// What goes on beside the transactions, each between an opening and a closing of the pool.
const ROUNDS: [Beside; 4] = [Beside::Nothing, Beside::Scrub, Beside::Growth, Beside::Nothing];

/// What goes on beside transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Scrub,
    Growth,
}

/// What is to be done.
#[derive(Debug, Clone, Deserialize)]
pub struct Orders {
    /// The pool, which is made.
    pool: PathBuf,
    /// The disk it lies on.
    disk: PathBuf,
    /// First byte of the marks there.
    marks: u64,
    /// Of everything random.
    seed: u64,
    /// Transactions of each thread between an opening and a closing.
    jobs: u64,
    /// A place in the engine at which nothing is waited for: a fault that must be found.
    off: Option<String>,
}

/// Does what the orders say, to its end.
#[must_use]
pub fn run(orders: &str) -> ExitCode {
    let Ok(orders) = serde_json::from_str::<Orders>(orders) else { return ExitCode::from(2) };
    match obey(&orders) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("logged: {error}");
            ExitCode::FAILURE
        }
    }
}

fn obey(orders: &Orders) -> Result<(), String> {
    let told = |error: std::io::Error| format!("marks on {}: {error}", orders.disk.display());
    let marks = Arc::new(Marks::new(&orders.disk, orders.marks).map_err(told)?);
    let voice = Voice::default().marking(Arc::clone(&marks));
    let (anchor, mut parts) = make(orders, &voice)?;
    marks.made().map_err(told)?;
    for (round, beside) in (0..).zip(ROUNDS) {
        let medium = Mapped::open(&orders.pool, Access::Write, &Options::default());
        let medium = medium.map_err(|error| error.to_string())?;
        let round = Round { beside, jobs: orders.jobs, seed: orders.seed ^ round << 32, anchor };
        match &orders.off {
            None => round.play(medium, &mut parts, &voice)?,
            Some(off) => round.play(Unsynced::new(medium, off), &mut parts, &voice)?,
        }
    }
    Ok(())
}

/// Makes the pool, and says what is in it as a transaction that was acknowledged.
fn make(orders: &Orders, voice: &Voice) -> Result<(u64, Vec<Objects>), String> {
    let medium = Mapped::create(&orders.pool, SIZE, &Options::default());
    let medium = medium.map_err(|error| error.to_string())?;
    if medium.kind() != MediumKind::File {
        return Err(format!("the pool is on {}, not on a file", medium.kind()));
    }
    let options = CreateOptions {
        parity: Parity::PQ,
        log: LOG,
        uuid: *b"holdfastcampaign",
        ..CreateOptions::tiny(SIZE)
    };
    let clock = Arc::new(SystemClock::new());
    let pool = Pool::create(medium, &options, open_options(), clock);
    let pool = pool.map_err(|error| error.to_string())?;
    let found = survey(&Bytes::of(pool.medium()), Scope::OBJECTS);
    let found = found.ok_or("no superblock verifies")?;
    let parts = divide(&found.objects, found.anchor);
    for (thread, part) in (0..).zip(&parts) {
        for (word, object) in part.iter() {
            voice.say(&Said::Begin(thread, vec![(word, Some(object.clone()))]));
            voice.say(&Said::Ack(thread));
        }
    }
    Ok((found.anchor, parts))
}

/// Transactions between an opening and a closing.
#[derive(Debug)]
struct Round {
    beside: Beside,
    jobs: u64,
    seed: u64,
    anchor: u64,
}

impl Round {
    /// Each thread goes on with the objects that it had.
    fn play<M: Medium>(
        &self,
        medium: M,
        parts: &mut [Objects],
        voice: &Voice,
    ) -> Result<(), String> {
        let clock = Arc::new(SystemClock::new());
        let (pool, _) =
            Pool::open(medium, open_options(), clock).map_err(|error| error.to_string())?;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| self.beside(&pool, voice, &over));
            let mut workers = Vec::new();
            for (thread, objects) in (0_u8..).zip(parts.iter_mut()) {
                let anchor = self.anchor;
                let mut worker =
                    Worker { pool: &pool, voice, thread, objects: std::mem::take(objects), anchor };
                let mut rng = Rng::part(self.seed, u64::from(thread));
                workers.push(scope.spawn(move || {
                    (0..self.jobs).for_each(|_| worker.job(&mut rng));
                    worker.objects
                }));
            }
            let dead = |_| "a thread panicked".to_owned();
            for (objects, worker) in parts.iter_mut().zip(workers) {
                *objects = worker.join().map_err(dead)?;
            }
            over.store(true, Ordering::Relaxed);
            other.join().map_err(dead)
        })
    }

    fn beside<M: Medium>(&self, pool: &Pool<M>, voice: &Voice, over: &AtomicBool) {
        match self.beside {
            Beside::Nothing => {}
            Beside::Growth => {
                if let Err(error) = pool.grow(pool.medium().len() + GROWTH) {
                    voice.say(&Said::Failed(format!("grow: {error}")));
                }
            }
            Beside::Scrub => {
                while !over.load(Ordering::Relaxed) {
                    let control = ScrubControl::default();
                    match pool.scrub(ScrubOptions::default(), &control, |_, _| {}) {
                        Ok(done) if done.report.found == 0 => {}
                        Ok(done) => {
                            let first = done.report.findings.first();
                            voice.say(&Said::Accused(format!("a scrub found {first:?}")));
                        }
                        Err(error) => voice.say(&Said::Failed(format!("scrub: {error}"))),
                    }
                }
            }
        }
    }
}
