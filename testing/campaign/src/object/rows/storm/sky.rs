//! What the threads of a storm are told of the weather: what may fail, which objects to leave
//! alone, and when to hold still.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use holdfast_object::Error;
use holdfast_txn::TxError;

use crate::object::model::Objects;
use crate::object::toil::Weather;
use crate::tally::Judged;

/// The weather, as the chaos makes it and the threads see it.
#[derive(Debug, Default)]
pub(super) struct Sky {
    /// Held by each step of a thread, and alone by whoever wants none to be under way.
    gate: RwLock<()>,
    /// Calls of the medium fail just now: any error may be answered.
    failing: AtomicBool,
    /// The redundancy does not cover what was done: objects may be lost.
    beyond: AtomicBool,
    /// Two faults met where nobody wanted it: this storm says nothing.
    given_up: AtomicBool,
    /// A thread had something to tell before two faults met.
    told: AtomicBool,
    /// Objects that may be read as they once were.
    shunned: Mutex<BTreeSet<u64>>,
    /// Objects in doubt, to be written anew as a program would.
    anew: Mutex<BTreeSet<u64>>,
    /// Objects that were refused as lost or in doubt, while no call failed.
    refusals: Mutex<BTreeSet<u64>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sky {
    /// Does something while no thread is in the middle of a step.
    pub(super) fn calm<T>(&self, work: impl FnOnce() -> T) -> T {
        let _alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        work()
    }

    pub(super) fn fail(&self, failing: bool) {
        self.failing.store(failing, Ordering::Release);
    }

    pub(super) fn exceed(&self) {
        self.beyond.store(true, Ordering::Release);
    }

    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    /// Whether the storm says nothing: what a thread told before counts.
    pub(super) fn says_nothing(&self) -> bool {
        self.is_given_up() && !self.told.load(Ordering::Acquire)
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    pub(super) fn is_beyond(&self) -> bool {
        self.beyond.load(Ordering::Acquire)
    }

    pub(super) fn shun(&self, objects: BTreeSet<u64>) {
        *lock(&self.shunned) = objects;
    }

    pub(super) fn write_anew(&self, objects: impl IntoIterator<Item = u64>) {
        lock(&self.anew).extend(objects);
    }

    /// Something is wrong. Once a storm is given up, that says nothing.
    fn tell(&self) {
        if !self.is_given_up() {
            self.told.store(true, Ordering::Release);
        }
    }

    /// Objects that threads were refused as lost or in doubt.
    pub(super) fn refusals(&self) -> BTreeSet<u64> {
        lock(&self.refusals).clone()
    }

    pub(super) fn in_doubt(&self) -> usize {
        lock(&self.anew).len()
    }
}

/// A step under way; dropped only where it panics.
struct Panics<'a>(&'a Sky);

impl Drop for Panics<'_> {
    fn drop(&mut self) {
        self.0.tell();
    }
}

impl Weather for Sky {
    fn excuses(&self, error: &Error) -> bool {
        let failing = self.failing.load(Ordering::Acquire);
        if failing || self.is_given_up() || !self.is_beyond() {
            return failing || self.is_given_up();
        }
        match error {
            // A file whose log cannot be written any more says so; who repairs meets it first.
            Error::Sync(_) | Error::Tx(TxError::ReadOnly) => true,
            // What is lost may be a part of the object, and the error names the part. Whether it
            // may be is for later, when all that was hurt is known.
            Error::Tx(TxError::Lost { object: named } | TxError::InDoubt { pointer: named }) => {
                lock(&self.refusals).insert(named.word());
                true
            }
            // The page that its slot was in is gone, and holds nothing now.
            Error::Tx(TxError::Dangling { pointer }) => {
                lock(&self.refusals).insert(pointer.word());
                true
            }
            _ => false,
        }
    }

    fn step(&self, step: &mut dyn FnMut() -> Judged<()>) -> Judged<()> {
        let _going = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        // Where it panics, nothing is returned: as if it had told of it.
        let panics = Panics(self);
        let done = step();
        std::mem::forget(panics);
        if done.is_err() {
            self.tell();
        }
        done
    }

    fn shunned(&self, object: u64) -> bool {
        lock(&self.shunned).contains(&object)
    }

    fn anew(&self, of: &Objects) -> Option<u64> {
        let mut anew = lock(&self.anew);
        let mine = anew.iter().copied().find(|word| of.get(*word).is_some())?;
        anew.remove(&mine);
        Some(mine)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::tally::{Fault, Violation};

    #[test]
    fn what_goes_wrong_in_a_step_is_told_though_the_storm_is_given_up_for_it() {
        let bad = || Err(Violation::new(Fault::Wrong, "a wrong byte"));
        let told = |before: bool, step: &mut dyn FnMut() -> Judged<()>| {
            let sky = Sky::default();
            if before {
                sky.give_up();
            }
            let _ = catch_unwind(AssertUnwindSafe(|| sky.step(step)));
            sky.give_up();
            !sky.says_nothing()
        };
        assert!(told(false, &mut || bad()));
        assert!(told(false, &mut || panic!("the engine does")));
        assert!(!told(false, &mut || Ok(())));
        assert!(!told(true, &mut || bad()), "two faults may have met by then");
    }
}
