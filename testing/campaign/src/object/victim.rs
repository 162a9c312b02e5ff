//! The process that is killed: it works on a real pool and says through a pipe what it is about to
//! do and what was acknowledged.
//!
//! Each frame is a tag, a thread, a length and so many bytes. A frame cut off by the kill is as if
//! it had never been sent; one that was sent whole is read whole, since a pipe outlives the writer.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_object::{Error, OpenOptions, Pool, ScrubControl, ScrubOptions, VerifyReads};
use holdfast_pmem::{Access, Mapped, Medium, Options, SystemClock};
use holdfast_txn::TxError;
use holdfast_workloads::Rng;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::marks::Marks;
use super::model::{Change, Object, Objects};
use super::ops::{Choice, Job, Op, any_job};
use super::raw::{Bytes, Scope, survey};
use crate::tally::{Fault, Judged, Violation};

/// Threads that work on a pool.
pub const WORKERS: usize = 3;
/// Objects of a thread above which it rather frees.
const ENOUGH: usize = 40;
/// Jobs of a thread before a close.
const JOBS_BEFORE_CLOSE: u64 = 12;
/// How often a process that has nothing to do looks whether anybody still listens.
const HEARTBEAT: Duration = Duration::from_millis(20);

/// What the process is doing when it is to be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Transactions.
    Work,
    /// Opening a pool that was not closed.
    Recovery,
    /// Transactions and a scrub.
    Scrub,
    /// Transactions and growth.
    Growth,
    /// Closing.
    Close,
    /// A scrub of a pool that is damaged, and nothing else.
    Mend,
}

/// What the process is told to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Orders {
    /// The pool.
    pub path: PathBuf,
    /// Of everything random in it.
    pub seed: u64,
    /// What it is to come to.
    pub phase: Phase,
    /// Length to grow to.
    pub grow: u64,
    /// How it is to end before anybody kills it, if it is.
    #[serde(default)]
    pub ill: Option<Ill>,
}

/// How a process ends that nobody kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ill {
    /// One of its threads panics; the others go on.
    Panics,
    /// All of it, without a word.
    Dies,
}

/// What the process says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// It begins with this.
    Phase(Phase),
    /// It came out of this.
    Past(Phase),
    /// A thread asks for a change to be committed.
    Begin(u8, Change),
    /// It was committed.
    Ack(u8),
    /// It was refused for want of space.
    Refused(u8),
    /// The engine answered an error.
    Failed(String),
    /// The engine called something damaged, and nothing is.
    Accused(String),
    /// A thread panicked.
    Panicked(String),
    /// Nothing: somebody is alive.
    Alive,
}

/// How pools are opened here.
#[must_use]
pub fn open_options() -> OpenOptions {
    OpenOptions { verify: VerifyReads::Always, ..OpenOptions::default() }
}

/// Opens the pool in a file.
///
/// # Errors
/// Why it cannot be opened.
pub fn open(path: &Path) -> Result<(Pool<Mapped>, holdfast_object::Opened), String> {
    let medium = Mapped::open(path, Access::Write, &Options::default());
    let medium = medium.map_err(|error| error.to_string())?;
    Pool::open(medium, open_options(), Arc::new(SystemClock::new()))
        .map_err(|error| error.to_string())
}

/// Which thread an object belongs to.
#[must_use]
pub fn owner(word: u64, anchor: u64) -> usize {
    if word == anchor { 0 } else { (word >> 6) as usize % WORKERS }
}

/// Objects by the thread they belong to.
#[must_use]
pub fn divide(objects: &Objects, anchor: u64) -> Vec<Objects> {
    let mut parts = vec![Objects::default(); WORKERS];
    for (word, object) in objects.iter() {
        parts[owner(word, anchor)].insert(word, object.clone());
    }
    parts
}

/// Where the process speaks. Who cannot be heard any more ends.
#[derive(Debug, Clone)]
pub struct Voice {
    out: Arc<Mutex<std::io::Stdout>>,
    /// Where it is noted on a disk that a transaction has ended, if it is.
    marks: Option<Arc<Marks>>,
}

impl Default for Voice {
    fn default() -> Self {
        Self { out: Arc::new(Mutex::new(std::io::stdout())), marks: None }
    }
}

impl Voice {
    /// The same, which also marks on a disk each end of a transaction.
    #[must_use]
    pub fn marking(self, marks: Arc<Marks>) -> Self {
        Self { marks: Some(marks), ..self }
    }

    /// Says one thing; it has been handed over whole when this comes back, and marked.
    pub fn say(&self, said: &Said) {
        let frame = encode(said);
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        if out.write_all(&frame).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
        drop(out);
        if let (Some(marks), Said::Ack(thread) | Said::Refused(thread)) = (&self.marks, said) {
            marks.ended(*thread);
        }
    }
}

/// Does what the orders say, until it is killed.
#[must_use]
pub fn run(orders: &str) -> ExitCode {
    let Ok(orders) = serde_json::from_str::<Orders>(orders) else { return ExitCode::from(2) };
    work(&orders, &Voice::default())
}

/// Does what the orders say, and then nothing any more.
pub fn work(orders: &Orders, voice: &Voice) -> ! {
    // Of a thread, nobody else would hear of it: the others go on, until the process is killed.
    let (heard, before) = (voice.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        heard.say(&Said::Panicked(panic.to_string()));
        before(panic);
    }));
    if let Err(error) = obey(orders, voice) {
        voice.say(&Said::Failed(error));
    }
    loop {
        voice.say(&Said::Alive);
        std::thread::sleep(HEARTBEAT);
    }
}

fn obey(orders: &Orders, voice: &Voice) -> Result<(), String> {
    voice.say(&Said::Phase(Phase::Recovery));
    let (pool, _) = open(&orders.path)?;
    voice.say(&Said::Past(Phase::Recovery));
    if orders.phase == Phase::Recovery {
        // Whatever it was, it must be so when somebody looks: nothing more is done.
        std::mem::forget(pool);
        return Ok(());
    }
    if orders.phase == Phase::Mend {
        voice.say(&Said::Phase(Phase::Mend));
        let done = pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {});
        let done = done.map_err(|error| format!("scrub: {error}"))?;
        if done.lost > 0 {
            return Err(format!("the scrub gave up {:?}", done.report.findings));
        }
        voice.say(&Said::Past(Phase::Mend));
        std::mem::forget(pool);
        return Ok(());
    }
    let found = survey(&Bytes::of(pool.medium()), Scope::OBJECTS);
    let found = found.ok_or("no superblock verifies")?;
    voice.say(&Said::Phase(Phase::Work));
    let anchor = found.anchor;
    let closing = orders.phase == Phase::Close;
    std::thread::scope(|scope| {
        let (pool, voice) = (&pool, &voice);
        for (thread, objects) in divide(&found.objects, anchor).into_iter().enumerate() {
            let mut worker = Worker { pool, voice, thread: thread as u8, objects, anchor };
            let mut rng = Rng::part(orders.seed, thread as u64);
            scope.spawn(move || {
                fall_ill(orders.ill.filter(|_| thread == 0));
                let mut jobs = 0;
                while !closing || jobs < JOBS_BEFORE_CLOSE {
                    worker.job(&mut rng);
                    jobs += 1;
                }
            });
        }
        match orders.phase {
            Phase::Scrub => scope.spawn(|| scrub_again_and_again(pool, voice)),
            Phase::Growth => scope.spawn(|| grow(pool, voice, orders)),
            _ => scope.spawn(|| ()),
        };
    });
    voice.say(&Said::Phase(Phase::Close));
    drop(pool);
    voice.say(&Said::Past(Phase::Close));
    Ok(())
}

/// Ends as it was told to.
#[allow(clippy::panic, reason = "whoever kills this process must notice it")]
fn fall_ill(ill: Option<Ill>) {
    match ill {
        Some(Ill::Panics) => panic!("as it was told to"),
        Some(Ill::Dies) => std::process::abort(),
        None => {}
    }
}

/// Whether a process ended as one does that is killed, and not by itself before that.
///
/// # Errors
/// How it ended.
pub fn was_killed(status: ExitStatus) -> Judged<()> {
    if status.signal() == Some(Signal::KILL.as_raw()) {
        return Ok(());
    }
    Err(Violation::new(Fault::Panicked, format!("the process ended by itself: {status}")))
}

fn scrub_again_and_again(pool: &Pool<Mapped>, voice: &Voice) {
    loop {
        voice.say(&Said::Phase(Phase::Scrub));
        let control = ScrubControl::default();
        match pool.scrub(ScrubOptions::default(), &control, |_, _| {}) {
            Ok(done) if done.lost > 0 || done.report.found > 0 => {
                let story = format!("a scrub under load found {:?}", done.report.findings.first());
                voice.say(&Said::Accused(story));
            }
            Ok(_) => voice.say(&Said::Past(Phase::Scrub)),
            Err(error) => voice.say(&Said::Failed(format!("scrub: {error}"))),
        }
    }
}

fn grow(pool: &Pool<Mapped>, voice: &Voice, orders: &Orders) {
    std::thread::sleep(Duration::from_millis(orders.seed % 8));
    voice.say(&Said::Phase(Phase::Growth));
    match pool.grow(orders.grow) {
        Ok(()) => voice.say(&Said::Past(Phase::Growth)),
        Err(error) => voice.say(&Said::Failed(format!("grow: {error}"))),
    }
}

/// A thread with objects of its own.
#[derive(Debug)]
pub(super) struct Worker<'a, M: Medium> {
    pub(super) pool: &'a Pool<M>,
    pub(super) voice: &'a Voice,
    pub(super) thread: u8,
    pub(super) objects: Objects,
    pub(super) anchor: u64,
}

impl<M: Medium> Worker<'_, M> {
    /// What to do next, on objects of this thread alone.
    fn choose(&self, rng: &mut Rng) -> Job {
        let choice = Choice::of(&self.objects);
        if self.objects.len() > ENOUGH
            && let Some((of, _)) = rng.pick(&choice.small).copied()
        {
            return Job::new(rng, [Op::Free { of }]);
        }
        let job = any_job(rng, &self.objects);
        let root = job.ops.iter().any(|op| matches!(op, Op::Root { .. }));
        // The anchor belongs to one thread.
        if root && self.thread != 0 { Job::new(rng, [Op::AllocNode]) } else { job }
    }

    /// Does one thing, and says so.
    pub(super) fn job(&mut self, rng: &mut Rng) {
        let job = self.choose(rng);
        let mut change = Change::new();
        let done = self.pool.run(|tx| {
            change = job.execute(tx, &self.objects, self.anchor)?;
            self.voice.say(&Said::Begin(self.thread, change.clone()));
            Ok(())
        });
        match done {
            Ok(()) => {
                self.voice.say(&Said::Ack(self.thread));
                holdfast_oracle::acked::Model::apply(&mut self.objects, &change);
            }
            Err(Error::Tx(TxError::NoSpace { .. })) if job.takes_space() => {
                self.voice.say(&Said::Refused(self.thread));
                let choice = Choice::of(&self.objects);
                let large = choice.large.first().or(choice.small.first()).copied();
                if let Some((of, _)) = large {
                    let job = Job::new(rng, [Op::Free { of }]);
                    self.free(&job);
                }
            }
            Err(error) => {
                self.voice.say(&Said::Failed(format!("{:?} was refused: {error}", job.ops)));
            }
        }
    }

    /// Makes room.
    fn free(&mut self, job: &Job) {
        let mut change = Change::new();
        let done = self.pool.run(|tx| {
            change = job.execute(tx, &self.objects, self.anchor)?;
            self.voice.say(&Said::Begin(self.thread, change.clone()));
            Ok(())
        });
        match done {
            Ok(()) => {
                self.voice.say(&Said::Ack(self.thread));
                holdfast_oracle::acked::Model::apply(&mut self.objects, &change);
            }
            Err(error) => self.voice.say(&Said::Failed(format!("making room: {error}"))),
        }
    }
}

const PHASES: [Phase; 6] =
    [Phase::Work, Phase::Recovery, Phase::Scrub, Phase::Growth, Phase::Close, Phase::Mend];

fn encode(said: &Said) -> Vec<u8> {
    let phase = |phase: &Phase| PHASES.iter().position(|p| p == phase).unwrap_or(0) as u8;
    let (tag, thread, body) = match said {
        Said::Phase(of) => (b'P', phase(of), Vec::new()),
        Said::Past(of) => (b'p', phase(of), Vec::new()),
        Said::Begin(thread, change) => (b'B', *thread, encode_change(change)),
        Said::Ack(thread) => (b'A', *thread, Vec::new()),
        Said::Refused(thread) => (b'N', *thread, Vec::new()),
        Said::Failed(text) => (b'E', 0, text.as_bytes().to_vec()),
        Said::Accused(text) => (b'F', 0, text.as_bytes().to_vec()),
        Said::Panicked(text) => (b'X', 0, text.as_bytes().to_vec()),
        Said::Alive => (b'.', 0, Vec::new()),
    };
    let mut frame = vec![tag, thread];
    frame.extend((body.len() as u32).to_le_bytes());
    frame.extend(body);
    frame
}

fn encode_change(change: &Change) -> Vec<u8> {
    let mut body = Vec::new();
    for (word, object) in change {
        body.extend(word.to_le_bytes());
        let (kind, bytes) = match object {
            Some(object) => (u64::from(object.kind), &object.bytes[..]),
            None => (u64::MAX, &[][..]),
        };
        body.extend(kind.to_le_bytes());
        body.extend((bytes.len() as u64).to_le_bytes());
        body.extend(bytes);
    }
    body
}

/// Reads what the process says; `None` once it says nothing more.
pub fn hear(pipe: &mut impl Read) -> Option<Said> {
    let mut head = [0; 6];
    pipe.read_exact(&mut head).ok()?;
    let len = u32::from_le_bytes([head[2], head[3], head[4], head[5]]);
    let mut body = vec![0; len as usize];
    pipe.read_exact(&mut body).ok()?;
    let phase = || PHASES.get(usize::from(head[1])).copied();
    Some(match head[0] {
        b'P' => Said::Phase(phase()?),
        b'p' => Said::Past(phase()?),
        b'B' => Said::Begin(head[1], decode_change(&body)?),
        b'A' => Said::Ack(head[1]),
        b'N' => Said::Refused(head[1]),
        b'E' => Said::Failed(String::from_utf8_lossy(&body).into_owned()),
        b'F' => Said::Accused(String::from_utf8_lossy(&body).into_owned()),
        b'X' => Said::Panicked(String::from_utf8_lossy(&body).into_owned()),
        // Behind what was said to a file that has its length from the beginning.
        0 => return None,
        _ => Said::Alive,
    })
}

fn decode_change(mut body: &[u8]) -> Option<Change> {
    let mut change = Change::new();
    while !body.is_empty() {
        let (words, rest) = body.split_at_checked(24)?;
        let (words, _) = words.as_chunks::<8>();
        let [word, kind, len] = [0, 1, 2].map(|n: usize| u64::from_le_bytes(words[n]));
        let (bytes, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        let object = (kind != u64::MAX)
            .then(|| Object { kind: kind as u32, bytes: Arc::from(bytes.to_vec()) });
        change.push((word, object));
        body = rest;
    }
    Some(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let object = Object { kind: 7, bytes: Arc::from(vec![1, 2, 3]) };
        let all = [
            Said::Phase(Phase::Growth),
            Said::Begin(2, vec![(5, Some(object)), (6, None)]),
            Said::Ack(2),
            Said::Accused("yes".to_owned()),
            Said::Panicked("here".to_owned()),
            Said::Failed("no".to_owned()),
        ];
        let frames: Vec<u8> = all.iter().flat_map(encode).collect();
        let mut pipe = &frames[..frames.len() - 1];
        assert_eq!(hear(&mut pipe).as_ref(), Some(&all[0]));
        assert_eq!(hear(&mut pipe).as_ref(), Some(&all[1]));
        assert_eq!(hear(&mut pipe).as_ref(), Some(&all[2]));
        assert_eq!(hear(&mut pipe).as_ref(), Some(&all[3]));
        assert_eq!(hear(&mut pipe).as_ref(), Some(&all[4]));
        assert_eq!(hear(&mut pipe), None);
    }

    #[test]
    fn who_ends_by_itself_was_not_killed() {
        let of = |raw| was_killed(ExitStatus::from_raw(raw)).is_ok();
        let (killed, segfault, panicked, ended) = (9, 11, 101 << 8, 0);
        assert_eq!([killed, segfault, panicked, ended].map(of), [true, false, false, false]);
    }
}
