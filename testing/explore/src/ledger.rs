//! What was acknowledged: the model in DRAM that a recovered medium is compared with.

use core::fmt::{self, Debug};
use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::verdict::Verdict;

/// A model of the user's structure: a `Vec`, a `BTreeMap`, anything that can be copied, compared
/// and shown.
pub trait Model: Clone + PartialEq + Debug + Hash + Send + Sync + 'static {}

impl<A: Clone + PartialEq + Debug + Hash + Send + Sync + 'static> Model for A {}

/// What a medium may hold at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Seen<A> {
    /// The effect of every operation that returned.
    pub acked: A,
    /// The same with the operation under way, if there is one.
    pub pending: Option<A>,
}

impl<A: Model> Seen<A> {
    /// Whether `found` is what was acknowledged, or that with the operation under way: the promise
    /// of a structure whose operations are all or nothing.
    ///
    /// # Errors
    /// What was found and what should have been.
    pub fn agree(&self, found: &A) -> Verdict {
        if *found == self.acked || self.pending.as_ref() == Some(found) {
            return Ok(());
        }
        let or = self.pending.as_ref().map_or_else(String::new, |then| format!(" or {then:?}"));
        Err(format!("recovered {found:?}, acknowledged {:?}{or}", self.acked).into())
    }

    /// Equal for equal states; the same in each run.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// Called after each acknowledgement: a crash there may lose nothing any more.
pub(crate) type Watcher = Arc<dyn Fn() + Send + Sync>;

/// Where a workload says what it is about to do and what has returned.
pub struct Ledger<A> {
    seen: Arc<Mutex<Seen<A>>>,
    watcher: Arc<Mutex<Option<Watcher>>>,
}

impl<A> Clone for Ledger<A> {
    fn clone(&self) -> Self {
        Self { seen: Arc::clone(&self.seen), watcher: Arc::clone(&self.watcher) }
    }
}

impl<A: Model> Ledger<A> {
    pub(crate) fn new(acked: A) -> Self {
        let seen = Seen { acked, pending: None };
        Self { seen: Arc::new(Mutex::new(seen)), watcher: Arc::default() }
    }

    /// What the medium may hold right now.
    #[must_use]
    pub fn seen(&self) -> Seen<A> {
        self.lock().clone()
    }

    /// Says what the operation about to begin will do. One operation is under way at a time; a
    /// second announcement before [`ack`](Self::ack) adds to the first.
    pub fn begin(&self, change: impl FnOnce(&mut A)) {
        let mut seen = self.lock();
        let mut then = seen.pending.take().unwrap_or_else(|| seen.acked.clone());
        change(&mut then);
        seen.pending = Some(then);
    }

    /// Says that the operation has returned: from here on it has to survive.
    pub fn ack(&self) {
        {
            let mut seen = self.lock();
            if let Some(then) = seen.pending.take() {
                seen.acked = then;
            }
        }
        let watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(watcher) = watcher {
            watcher();
        }
    }

    /// One operation: announced, done and acknowledged. If it fails it stays under way.
    ///
    /// # Errors
    /// What `work` answered.
    pub fn attempt(&self, change: impl FnOnce(&mut A), work: impl FnOnce() -> Verdict) -> Verdict {
        self.begin(change);
        work()?;
        self.ack();
        Ok(())
    }

    pub(crate) fn watch(&self, watcher: Option<Watcher>) {
        *self.watcher.lock().unwrap_or_else(PoisonError::into_inner) = watcher;
    }

    fn lock(&self) -> MutexGuard<'_, Seen<A>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A: Model> fmt::Debug for Ledger<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_pending_until_it_is_acknowledged() {
        let ledger = Ledger::new(vec![1]);
        ledger.begin(|all| all.push(2));
        let seen = ledger.seen();
        assert!(seen.agree(&vec![1]).is_ok() && seen.agree(&vec![1, 2]).is_ok());
        let wrong = seen.agree(&vec![2]).unwrap_err();
        assert_eq!(wrong.text(), "recovered [2], acknowledged [1] or [1, 2]");
        ledger.ack();
        assert!(ledger.seen().agree(&vec![1]).is_err(), "the operation has returned");
        assert_ne!(seen.fingerprint(), ledger.seen().fingerprint());
    }
}
