//! What calls are made on.

use std::collections::BTreeMap;

use holdfast_object::{Error, Pool};
use holdfast_oracle::linear::Spec;
use holdfast_workloads::Rng;

use super::wrong::Wrong;
use crate::object::handle::Handle;
use crate::tally::Judged;

/// A call on a subject, and its answer.
pub type Op<S> = <<S as Subject>::Spec as Spec>::Op;
/// What a call answers.
pub type Answer<S> = <<S as Subject>::Spec as Spec>::Answer;

/// What one thread has beside the pool.
#[derive(Debug)]
pub struct Caller {
    /// Decides how it calls.
    pub rng: Rng,
    /// What is wrong with it, if it has to be convicted.
    pub wrong: Option<Wrong>,
    /// Whether it may borrow objects in place: not where they may be damaged meanwhile, since
    /// plain loads see damage.
    pub views: bool,
    /// What it read last of each register.
    pub seen: BTreeMap<u64, u64>,
}

impl Caller {
    /// Whether this is wrong with it.
    #[must_use]
    pub fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }
}

/// Registers, a map, a queue: something in a pool that several threads use.
pub trait Subject: Clone + Sync {
    /// What its calls do, one after the other.
    type Spec: Spec<Op: Send + Sync, Answer: Send + Sync>;

    /// Calls of each thread in a history.
    const CALLS: u64;

    /// What it holds when a history begins.
    fn start(&self) -> <Self::Spec as Spec>::State;

    /// What a thread calls next; `unique` is no other call's.
    fn next(&self, caller: &mut Caller, unique: u64) -> Op<Self>;

    /// Makes a call.
    ///
    /// # Errors
    /// Of the engine; nothing was done then.
    fn call(
        &self,
        pool: &Pool<Handle>,
        op: &Op<Self>,
        caller: &mut Caller,
    ) -> Result<Answer<Self>, Error>;

    /// The answer of a call, where it is known before the call is made.
    fn foreseen(op: &Op<Self>) -> Option<Answer<Self>>;

    /// Asks for all there is, while nobody else calls: after a crash, and at the end.
    ///
    /// # Errors
    /// What `ask` answers.
    fn audit(
        &self,
        last: bool,
        ask: &mut dyn FnMut(Op<Self>) -> Judged<Answer<Self>>,
    ) -> Judged<()>;

    /// Looks at what calls do not show, at the end.
    ///
    /// # Errors
    /// What is wrong.
    fn sound(&self, pool: &Pool<Handle>) -> Judged<()>;
}
