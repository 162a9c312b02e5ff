//! Threads at work on objects of their own while the medium goes bad: each commits and reads until
//! it is told to stop, and what was acknowledged is in the ledger.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_layout::RawPtr;
use holdfast_object::{Error, Pool, Tx};
use holdfast_oracle::acked::Model;
use holdfast_pmem::Medium;
use holdfast_txn::{Transaction, TxError};
use holdfast_workloads::Rng;

use super::driver::Ledger;
use super::histories::shake;
use super::mapper::{Mapper, is_of_map};
use super::model::{Change, Object, Objects, name};
use super::ops::{Choice, Job, Op, any_job};
use super::scenes::refused;
use crate::runner::panic_text;
use crate::tally::{Fault, Judged, Violation};

/// Objects of a thread above which it rather frees.
const ENOUGH: usize = 40;
/// Bytes of an object above which it is never freed: something large is always there to be hit.
const HUGE: usize = 32 << 10;
/// One step in so many is a read.
const READ_EACH: u64 = 3;

/// Divides all objects that are not of maps among so many threads. The anchor is not in hand: its
/// object has no kind that a job changes.
#[must_use]
pub fn divide(objects: &Objects, threads: usize) -> Vec<Objects> {
    let mut parts = vec![Objects::default(); threads];
    let apart = objects.iter().filter(|(_, object)| !is_of_map(object.kind));
    for (index, (word, object)) in apart.enumerate() {
        parts[index % threads].insert(word, object.clone());
    }
    parts
}

/// What a thread came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Transactions acknowledged.
    pub jobs: u64,
    /// Objects read, and right.
    pub reads: u64,
    /// Changes of maps and looks at them, and right.
    pub steps: u64,
    /// Errors that were excused.
    pub excused: u64,
}

impl Done {
    /// The sum.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            jobs: self.jobs + other.jobs,
            reads: self.reads + other.reads,
            steps: self.steps + other.steps,
            excused: self.excused + other.excused,
        }
    }
}

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ran {
    /// It was acknowledged.
    Done,
    /// It was refused, as may be.
    Refused,
    /// So it was, and nothing can be written any more.
    Ended,
}

/// What is known of the medium that threads work on.
pub trait Weather: Sync + std::fmt::Debug {
    /// Whether an error may be answered now.
    fn excuses(&self, error: &Error) -> bool;

    /// Runs one step; steps of several threads may run at once. Whoever changes the weather may
    /// hold them off.
    fn step(&self, step: &mut dyn FnMut() -> Judged<()>) -> Judged<()> {
        step()
    }

    /// Objects that are better left alone.
    fn shunned(&self, _object: u64) -> bool {
        false
    }

    /// An object that has to be written anew, if one of these has to be.
    fn anew(&self, _of: &Objects) -> Option<u64> {
        None
    }
}

/// Within tolerance nothing is excused.
#[derive(Debug, Clone, Copy)]
pub struct Fair;

impl Weather for Fair {
    fn excuses(&self, _error: &Error) -> bool {
        false
    }
}

/// Stops the threads, also if what they work beside panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The threads' pool.
#[derive(Debug)]
pub struct Toil<'a, M: Medium> {
    /// The pool.
    pub pool: &'a Pool<M>,
    /// What was promised.
    pub ledger: &'a Ledger,
    /// Pointer to its anchor.
    pub anchor: u64,
    /// Whether they are to stop.
    pub over: &'a AtomicBool,
    /// What is known of the medium.
    pub weather: &'a dyn Weather,
}

impl<M: Medium> Toil<'_, M> {
    /// Works with as many threads as there are seeds, beside `beside`; they stop when it is done.
    /// If there is a map in the pool, the last of them is on that.
    ///
    /// # Errors
    /// What was wrong with `beside`, then what was with a thread.
    pub fn during<T>(
        &self,
        seeds: &[u64],
        beside: impl FnOnce() -> Judged<T>,
    ) -> Judged<(T, Done)> {
        let objects = self.ledger.objects();
        let map = Mapper::of(self.pool, &objects)?;
        let mut parts = divide(&objects, seeds.len() - usize::from(map.is_some()));
        let mut maps = vec![None; parts.len()];
        if map.is_some() {
            let mut of_map = Objects::default();
            let its = objects.iter().filter(|(_, object)| is_of_map(object.kind));
            its.for_each(|(word, object)| of_map.insert(word, object.clone()));
            parts.push(of_map);
            maps.push(map);
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = parts
                .into_iter()
                .zip(maps)
                .zip(seeds)
                .map(|(on, seed)| scope.spawn(move || self.work(on, Rng::new(*seed))))
                .collect();
            let other = {
                let _stop = Stop(self.over);
                beside()
            };
            let mut all = Done::default();
            let mut wrong = None;
            for thread in threads {
                let panicked = |panic: Box<dyn std::any::Any + Send>| {
                    Violation::new(Fault::Panicked, panic_text(&*panic))
                };
                match thread.join().map_err(panicked).and_then(|done| done) {
                    Ok(done) => all = all.and(done),
                    Err(violation) => wrong = wrong.or(Some(violation)),
                }
            }
            let other = other?;
            wrong.map_or(Ok((other, all)), Err)
        })
    }

    /// One thread, on these objects alone, or on the map that they are of.
    fn work(&self, (mut part, mut map): (Objects, Option<Mapper>), mut rng: Rng) -> Judged<Done> {
        // It may pause at steps of the engine, if the medium is asked to say where they are.
        shake::begin(Rng::new(rng.next_u64()));
        let mut done = Done::default();
        while !self.over.load(Ordering::Acquire) {
            let mut going = true;
            let mut step = || -> Judged<()> {
                going = match &mut map {
                    Some(map) => map.one(self, &mut part, &mut rng, &mut done)?,
                    None => self.one(&mut part, &mut rng, &mut done)?,
                };
                Ok(())
            };
            let stepped = self.weather.step(&mut step);
            if let Err(violation) = stepped {
                self.over.store(true, Ordering::Release);
                return Err(violation.during("under load"));
            }
            if !going {
                break;
            }
        }
        Ok(done)
    }

    /// One transaction or one read. `false` if nothing can be written any more.
    fn one(&self, part: &mut Objects, rng: &mut Rng, done: &mut Done) -> Judged<bool> {
        if let Some(of) = self.weather.anew(part) {
            let len = part.get(of).map_or(0, |object| object.bytes.len() as u64);
            let job = Job::new(rng, [Op::Write { of, from: 0, len }]);
            return self.commit(&job, part, done);
        }
        if rng.below(READ_EACH) == 0 {
            self.read(part, rng, done)?;
            return Ok(true);
        }
        let mut fit = Objects::default();
        for (word, object) in part.iter().filter(|(word, _)| !self.weather.shunned(*word)) {
            fit.insert(word, object.clone());
        }
        let choice = Choice::of(&fit);
        let mut job = any_job(rng, &fit);
        if fit.len() > ENOUGH
            && rng.below(2) == 0
            && let Some((of, _)) = rng.pick(&choice.small).copied()
        {
            job = Job::new(rng, [Op::Free { of }]);
        }
        let kept = |op: &Op| match op {
            Op::Root { .. } => true,
            Op::Free { of } => fit.get(*of).is_some_and(|object| object.bytes.len() > HUGE),
            _ => false,
        };
        if job.ops.iter().any(kept) {
            job = Job::new(rng, [Op::AllocNode]);
        }
        self.commit(&job, part, done)
    }

    /// Runs a job as one transaction. `false` if nothing can be written any more.
    ///
    /// # Errors
    /// An error that nothing excuses.
    pub(super) fn commit(&self, job: &Job, part: &mut Objects, done: &mut Done) -> Judged<bool> {
        let ran = self.transact(&job.ops, job.takes_space(), part, done, |tx, part| {
            job.execute(tx, part, self.anchor)
        })?;
        Ok(ran != Ran::Ended)
    }

    /// Runs a transaction on objects of a thread; it answers what will have changed of them.
    ///
    /// # Errors
    /// An error that nothing excuses: not want of space either, unless it `takes_space`.
    pub(super) fn transact(
        &self,
        what: &dyn std::fmt::Debug,
        takes_space: bool,
        part: &mut Objects,
        done: &mut Done,
        mut body: impl FnMut(&Tx<'_, M>, &Objects) -> holdfast_txn::Result<Change>,
    ) -> Judged<Ran> {
        let mut change = Change::new();
        let mut ticket = None;
        let ran = self.pool.run(|tx| {
            if let Some(ticket) = ticket.take() {
                // Begun by the attempt before, which came to nothing.
                let _ = self.ledger.lock().refuse(ticket);
            }
            change = body(tx, part)?;
            ticket = Some(self.ledger.lock().begin(change.clone()));
            Ok(())
        });
        match ran {
            Ok(()) => {
                if let Some(ticket) = ticket {
                    let _ = self.ledger.lock().ack(ticket);
                }
                part.apply(&change);
                done.jobs += 1;
                Ok(Ran::Done)
            }
            Err(error) => {
                let due = self.weather.excuses(&error);
                done.excused += u64::from(due);
                // After a failed sync nobody knows: the change stays in flight.
                if due && self.pool.is_read_only() {
                    return Ok(Ran::Ended);
                }
                if let Some(ticket) = ticket {
                    let _ = self.ledger.lock().refuse(ticket);
                }
                let full = matches!(error, Error::Tx(TxError::NoSpace { .. })) && takes_space;
                if due || full {
                    return Ok(Ran::Refused);
                }
                Err(refused(&format!("{what:?}"), &error))
            }
        }
    }

    fn read(&self, part: &Objects, rng: &mut Rng, done: &mut Done) -> Judged<()> {
        let all: Vec<u64> = part.iter().map(|(word, _)| word).collect();
        let Some(word) = rng.pick(&all).copied() else { return Ok(()) };
        if self.weather.shunned(word) {
            return Ok(());
        }
        match served(self.pool, word) {
            Ok(found) if Some(&found) == part.get(word) => done.reads += 1,
            Ok(_) => {
                let story = format!("a wrong byte of {} was served", name(word));
                return Err(Violation::new(Fault::Wrong, story));
            }
            Err(error) if self.weather.excuses(&error) => done.excused += 1,
            Err(error) => return Err(refused(&format!("reading {}", name(word)), &error)),
        }
        Ok(())
    }
}

/// Bytes of an object, as the engine serves them.
///
/// # Errors
/// What the engine answered.
pub fn served<M: Medium>(pool: &Pool<M>, word: u64) -> Result<Object, Error> {
    pool.run(|tx| {
        let of = RawPtr::from_word(word);
        let mut bytes = vec![0; tx.len_of(of)? as usize];
        tx.read_bytes(of, 0, &mut bytes)?;
        Ok(Object { kind: tx.type_of(of)?.0, bytes: Arc::from(bytes) })
    })
}
