//! Drives a pool through jobs and keeps the ledger of what was acknowledged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_layout::RawPtr;
use holdfast_object::{Error, Pool, Tx};
use holdfast_oracle::acked::Acked;
use holdfast_txn::{Transaction, TxError};
use holdfast_workloads::Rng;

use super::handle::Handle;
use super::model::{Change, Objects, name};
use super::ops::{Job, any_job};
use super::owned::tree;
use super::raw::{Bytes, Scope, Survey, survey};
use super::wrong::{Lie, told};
use super::{linked, mapper};
use crate::tally::{Fault, Judged, Violation};

/// What was promised: shared by the threads that work and the hooks that judge.
#[derive(Debug, Clone)]
pub struct Ledger {
    log: Arc<Mutex<Acked<Objects>>>,
    /// Whether everything hangs on the root: see `linked.rs`.
    pub linked: bool,
}

impl Ledger {
    /// A ledger that begins with these objects.
    #[must_use]
    pub fn new(objects: Objects) -> Self {
        Self { log: Arc::new(Mutex::new(Acked::new(objects))), linked: false }
    }

    /// The same log, of a pool in which everything hangs on the root, or not.
    #[must_use]
    pub fn linked(self, linked: bool) -> Self {
        Self { linked, ..self }
    }

    /// The log, for changing it or asking it.
    pub fn lock(&self) -> MutexGuard<'_, Acked<Objects>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is promised right now.
    #[must_use]
    pub fn promise(&self) -> Acked<Objects> {
        self.lock().clone()
    }

    /// The objects acknowledged.
    #[must_use]
    pub fn objects(&self) -> Objects {
        self.lock().model().clone()
    }
}

/// A pool in use.
#[derive(Debug)]
pub struct Driver {
    /// Its medium.
    pub medium: Handle,
    /// The pool.
    pub pool: Pool<Handle>,
    /// What it promised.
    pub ledger: Ledger,
    /// Pointer to the anchor.
    pub anchor: u64,
}

impl Driver {
    /// Drives a pool that holds exactly these objects.
    #[must_use]
    pub fn new(medium: Handle, pool: Pool<Handle>, objects: Objects) -> Self {
        let anchor = pool.superblock().anchor;
        Self { medium, pool, ledger: Ledger::new(objects), anchor }
    }

    /// Drives a pool that holds what is found in it; a violation if it is not whole.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn found(medium: Handle, pool: Pool<Handle>) -> Judged<Self> {
        let found = whole(&medium)?;
        Ok(Self::new(medium, pool, found.objects))
    }

    /// Runs a job as one transaction. `false` if it was refused for want of space.
    ///
    /// # Errors
    /// What the engine answered, if nothing explains it.
    pub fn run(&self, job: &Job) -> Result<bool, Error> {
        self.run_as(job.takes_space(), |tx, now| job.execute(tx, now, self.anchor))
    }

    /// Runs a transaction on a pool that holds what it is told; it answers what will have changed.
    /// `false` if it was refused for want of space, where that may be.
    ///
    /// # Errors
    /// What the engine answered, if nothing explains it.
    pub fn run_as(
        &self,
        takes_space: bool,
        mut body: impl FnMut(&Tx<'_, Handle>, &Objects) -> holdfast_txn::Result<Change>,
    ) -> Result<bool, Error> {
        let mut ticket = None;
        let done = self.pool.run(|tx| {
            if let Some(ticket) = ticket.take() {
                self.settle(ticket, told(Lie::Claims));
            }
            let now = self.ledger.objects();
            let change = body(tx, &now)?;
            ticket = Some(self.ledger.lock().begin(change));
            Ok(())
        });
        match done {
            Ok(()) => {
                if let Some(ticket) = ticket {
                    self.settle(ticket, true);
                }
                Ok(true)
            }
            // After a failed sync nobody knows: the change stays in flight.
            Err(Error::Tx(TxError::ReadOnly)) => Err(Error::Tx(TxError::ReadOnly)),
            Err(error) => {
                if let Some(ticket) = ticket {
                    self.settle(ticket, told(Lie::Claims));
                }
                match error {
                    Error::Tx(TxError::NoSpace { .. }) if takes_space => Ok(false),
                    error => Err(error),
                }
            }
        }
    }

    /// As [`run`](Self::run), where an error is a violation.
    ///
    /// # Errors
    /// The violation.
    pub fn must(&self, job: &Job) -> Judged<bool> {
        self.run(job).map_err(|error| {
            Violation::new(Fault::Refused, format!("{:?} was refused: {error}", job.ops))
        })
    }

    fn settle(&self, ticket: holdfast_oracle::acked::Ticket, done: bool) {
        let mut ledger = self.ledger.lock();
        // Begun by this very call, and settled once.
        let _ = if done { ledger.ack(ticket) } else { ledger.refuse(ticket) };
    }

    /// Runs a job and cancels it: nothing must change.
    ///
    /// # Errors
    /// What the engine answered instead of the cancellation.
    pub fn cancel(&self, job: &Job) -> Judged<()> {
        self.cancelled(job)?
            .map_err(|error| Violation::new(Fault::Refused, format!("cancelling: {error}")))
    }

    /// As [`cancel`](Self::cancel), where an error is an answer.
    ///
    /// # Errors
    /// It went through.
    pub fn cancelled(&self, job: &Job) -> Judged<Result<(), Error>> {
        let done = self.pool.run(|tx| {
            job.execute(tx, &self.ledger.objects(), self.anchor)?;
            Err::<(), _>(TxError::cancel("on purpose"))
        });
        match done {
            Err(Error::Tx(TxError::Cancelled(_) | TxError::NoSpace { .. })) => Ok(Ok(())),
            Err(error) => Ok(Err(error)),
            Ok(()) => Err(Violation::new(Fault::Wrong, "a cancelled transaction went through")),
        }
    }

    /// Puts a map into the pool.
    ///
    /// # Errors
    /// What the engine answered.
    pub fn give_map(&self, rng: &mut Rng) -> Judged<()> {
        let change = mapper::make(&self.pool, rng)?;
        let ticket = self.ledger.lock().begin(change);
        self.settle(ticket, true);
        Ok(())
    }

    /// A job of any kind that goes with what the pool is like.
    pub fn any_job(&self, rng: &mut Rng) -> Job {
        let objects = self.ledger.objects();
        if self.ledger.linked {
            return linked::any_job(rng, &objects, self.anchor, &[], true);
        }
        any_job(rng, &objects)
    }

    /// Runs `count` jobs of any kind.
    ///
    /// # Errors
    /// The first violation.
    pub fn go_on(&self, rng: &mut Rng, count: u32) -> Judged<()> {
        for _ in 0..count {
            self.must(&self.any_job(rng))?;
        }
        Ok(())
    }

    /// Reads every object through the engine and compares.
    ///
    /// # Errors
    /// The first difference.
    pub fn read_all(&self) -> Judged<()> {
        for (word, object) in self.ledger.objects().iter() {
            let mut bytes = vec![0; object.bytes.len()];
            let read = self.pool.run(|tx| {
                let of = RawPtr::from_word(word);
                tx.read_bytes(of, 0, &mut bytes)?;
                Ok((tx.len_of(of)?, tx.type_of(of)?))
            });
            match read {
                Err(error) => {
                    let story = format!("reading {}: {error}", name(word));
                    return Err(Violation::new(Fault::Refused, story));
                }
                Ok((len, kind)) => {
                    let same = len == object.bytes.len() as u64
                        && kind.0 == object.kind
                        && bytes[..] == object.bytes[..];
                    if !same {
                        let story = format!("reading {} gave something else", name(word));
                        return Err(Violation::new(Fault::Wrong, story));
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks the medium against the ledger: nothing in flight, everything there, nothing more.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Judged<Survey> {
        let found = whole(&self.medium)?;
        if self.ledger.linked {
            tree(&found)?;
        }
        let promise = self.ledger.promise();
        agree(&promise, &found.objects)?;
        Ok(found)
    }
}

/// Surveys a medium and convicts whatever is wrong with it.
///
/// # Errors
/// The violation.
pub fn whole(medium: &Handle) -> Judged<Survey> {
    let found = survey(&Bytes::of(medium), Scope::ALL)
        .ok_or_else(|| Violation::new(Fault::Wrong, "no superblock verifies"))?;
    match found.complaint() {
        None => Ok(found),
        Some((true, what)) => Err(Violation::new(Fault::Exposed, what)),
        Some((false, what)) => Err(Violation::new(Fault::Wrong, what)),
    }
}

/// Compares what was found with what was promised.
///
/// # Errors
/// The difference to the acknowledged objects.
pub fn agree(promise: &Acked<Objects>, found: &Objects) -> Judged<()> {
    match promise.verify(found) {
        Ok(_) => Ok(()),
        Err(error) => {
            let difference = promise.model().difference(found);
            Err(Violation::new(Fault::Wrong, format!("{error}: {difference}")))
        }
    }
}
