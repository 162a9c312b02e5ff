//! Cores of this crate as exhaustive models see them: nothing of this is in a build that ships.

use crate::versions::{Pinned, Version, Versions};
use crate::view::Lanes;
use holdfast_pmem::Medium;

/// Version words.
#[derive(Debug)]
pub struct Words(Versions);

/// A version as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen(Version);

impl Seen {
    /// Number of the commit that last changed the word's objects.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0.number()
    }
}

impl Default for Words {
    fn default() -> Self {
        Self(Versions::new(4, false))
    }
}

impl Words {
    /// As [`Versions::read`].
    #[must_use]
    pub fn read(&self, word: u32) -> Option<Seen> {
        self.0.read(word).map(Seen)
    }

    /// As [`Versions::unchanged`].
    #[must_use]
    pub fn unchanged(&self, word: u32, seen: Seen) -> bool {
        self.0.unchanged(word, seen.0)
    }

    /// As [`Versions::try_lock`].
    pub fn try_lock<M: Medium>(&self, m: &M, word: u32, seen: Seen) -> bool {
        self.0.try_lock(m, word, seen.0)
    }

    /// As [`Versions::release`].
    pub fn release(&self, word: u32, number: u64) {
        self.0.release(word, number);
    }

    /// As [`Versions::unlock`].
    pub fn unlock(&self, word: u32, seen: Seen) {
        self.0.unlock(word, seen.0);
    }

    /// As [`Versions::pin`]; whether it is pinned.
    pub fn pin(&self, word: u32) -> bool {
        matches!(self.0.pin(word), Pinned::At(_))
    }

    /// As [`Versions::unpin`].
    pub fn unpin(&self, word: u32) {
        self.0.unpin(word);
    }
}

/// State that one thread at a time has.
#[derive(Debug)]
pub struct PerThread<T>(Lanes<T>);

impl<T> PerThread<T> {
    /// `count` of them.
    pub fn new(count: u32, make: impl Fn(u32) -> T) -> Self {
        Self(Lanes::new(count, make))
    }

    /// Hands one to `body`, with its number and whether another thread had it before; `None` if all
    /// are taken.
    pub fn with<R>(&self, body: impl FnOnce(u32, &T, bool) -> R) -> Option<R> {
        let (held, _) = self.0.enter()?;
        Some(body(held.lane(), &held, held.was_passed_on()))
    }
}
