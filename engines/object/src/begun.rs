//! A transaction that is a value: for programs that cannot hand over a closure.
//!
//! What a closure gets from [`Pool::run`](crate::Pool::run) by being executed again, the program
//! has to do itself: [`Begun::commit`] may answer that the work is to be done anew.

use core::cell::RefCell;

use holdfast_pmem::Medium;
use holdfast_txn::TxError;

use crate::error::Error;
use crate::pool::{Pool, Retry, Undo, after_commit};
use crate::tx::Tx;
use crate::view::Detached;

/// A transaction under way. It stays on its thread; dropped, it is aborted. While it lives, a
/// `run` on the same pool and thread joins it.
#[derive(Debug)]
pub struct Begun<M: Medium> {
    pool: Pool<M>,
    /// `None` once it was given back, in `drop`.
    lane: Option<Detached>,
    /// Why the transaction cannot be committed.
    failed: RefCell<Option<TxError>>,
    retry: Retry,
    committed: bool,
}

impl<M: Medium> Pool<M> {
    /// Begins a transaction. Where a closure will do, [`run`](Self::run) is simpler.
    ///
    /// # Errors
    /// This thread has a transaction of the pool under way already.
    pub fn begin(&self) -> Result<Begun<M>, Error> {
        if self.shared.m.inherited() {
            return Err(Error::Forked);
        }
        let (lane, nested) = self.enter_lane();
        if nested {
            let text = "this thread has a transaction of the pool under way";
            return Err(TxError::cancel(text).into());
        }
        Ok(Begun {
            pool: self.clone(),
            lane: Some(lane.detach()),
            failed: RefCell::new(None),
            retry: Retry::default(),
            committed: false,
        })
    }
}

impl<M: Medium> Begun<M> {
    /// Does a part of the transaction. After an error it cannot be committed any more: the part
    /// may have been done by half.
    ///
    /// # Errors
    /// What `part` returned, or what an earlier part did.
    pub fn step<R>(
        &self,
        part: impl FnOnce(&Tx<'_, M>) -> holdfast_txn::Result<R>,
    ) -> holdfast_txn::Result<R> {
        self.execute(part, |_| true)
    }

    /// Does a part that changes nothing. Errors that pass when the transaction is executed again
    /// end it; after others it goes on.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn look<R>(
        &self,
        part: impl FnOnce(&Tx<'_, M>) -> holdfast_txn::Result<R>,
    ) -> holdfast_txn::Result<R> {
        self.execute(part, TxError::is_transient)
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    /// Makes everything done durable. If another transaction came between, or damage was found
    /// and repaired, nothing happened, and the answer is this transaction at its start, to be
    /// done again: what it read and the addresses it lent mean nothing any more.
    ///
    /// # Errors
    /// Why it cannot be committed; nothing happened then.
    pub fn commit(mut self) -> Result<Option<Self>, Error> {
        let shared = &*self.pool.shared;
        if shared.m.inherited() {
            return Err(Error::Forked);
        }
        match self.conclude() {
            Ok(()) => {
                self.committed = true;
                after_commit(shared);
                Ok(None)
            }
            Err(error) => {
                self.retry.after(shared, error)?;
                Ok(Some(self))
            }
        }
    }

    fn lane(&self) -> &Detached {
        self.lane.as_ref().expect("a transaction has its lane until it is dropped")
    }

    fn execute<R>(
        &self,
        part: impl FnOnce(&Tx<'_, M>) -> holdfast_txn::Result<R>,
        ends: impl Fn(&TxError) -> bool,
    ) -> holdfast_txn::Result<R> {
        if let Some(error) = &*self.failed.borrow() {
            return Err(error.clone());
        }
        let shared = &*self.pool.shared;
        if shared.m.inherited() {
            return Err(TxError::cancel(
                "the transaction was begun before this process was forked",
            ));
        }
        let watch = Watch(&self.failed);
        let done = part(&Tx { shared, lane: shared.lanes.attach(self.lane()) });
        core::mem::forget(watch);
        done.inspect_err(|error| {
            if ends(error) {
                self.failed.borrow_mut().get_or_insert_with(|| error.clone());
            }
        })
    }

    /// Commits, or undoes everything.
    fn conclude(&self) -> holdfast_txn::Result<()> {
        let shared = &*self.pool.shared;
        let lane = shared.lanes.attach(self.lane());
        let undo = Undo { shared, lane: &lane };
        match self.failed.take() {
            Some(error) => Err(error),
            None => undo.commit_instead(),
        }
    }
}

impl<M: Medium> Drop for Begun<M> {
    fn drop(&mut self) {
        let shared = &*self.pool.shared;
        let Some(lane) = self.lane.take() else { return };
        let held = shared.lanes.attach(&lane);
        drop(Undo { shared, lane: &held });
        if !self.committed {
            held.count_abort();
        }
        drop(held);
        shared.lanes.give_back(lane);
    }
}

/// Dropped only by a panic in a part of the transaction.
struct Watch<'a>(&'a RefCell<Option<TxError>>);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let error = TxError::cancel("a part of the transaction panicked");
        self.0.borrow_mut().get_or_insert(error);
    }
}
