//! Cores of this crate as exhaustive models see them: nothing of this is in a build that ships.

use crate::marks;
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

/// How often parity was made anew.
#[derive(Debug, Default)]
pub struct Remade(marks::Remade);

impl Remade {
    /// As [`marks::Remade::note`].
    pub fn note(&self) {
        self.0.note();
    }

    /// As [`marks::Remade::times`].
    #[must_use]
    pub fn times(&self) -> u64 {
        self.0.times()
    }
}

/// Commits that are owed.
#[derive(Debug, Default)]
pub struct Redoing(marks::Redoing);

impl Redoing {
    /// As [`marks::Redoing::begin`].
    pub fn begin(&self) {
        self.0.begin();
    }

    /// As [`marks::Redoing::done`].
    pub fn done(&self, count: u64) {
        self.0.done(count);
    }

    /// As [`marks::Redoing::any`].
    #[must_use]
    pub fn any(&self) -> bool {
        self.0.any()
    }
}

/// Numbers of the last commits that freed anything.
#[derive(Debug)]
pub struct Freed(marks::Freed);

impl Freed {
    /// As [`marks::Freed::new`].
    #[must_use]
    pub fn new(lanes: usize, before: u64) -> Self {
        Self(marks::Freed::new(lanes, before))
    }

    /// As [`marks::Freed::last`].
    #[must_use]
    pub fn last(&self) -> u64 {
        self.0.last()
    }

    /// As [`marks::Freed::note_in`].
    pub fn note_in(&self, lane: usize, number: u64) {
        self.0.note_in(lane, number);
    }

    /// As [`marks::Freed::note_shared`].
    pub fn note_shared(&self, lane: usize, number: u64) {
        self.0.note_shared(lane, number);
    }
}

/// Places found bad.
#[derive(Debug, Default)]
pub struct Suspects(marks::Suspects<u64>);

impl Suspects {
    /// As [`marks::Suspects::add`].
    pub fn add(&self, at: u64) {
        self.0.add(at);
    }

    /// As [`marks::Suspects::any`].
    #[must_use]
    pub fn any(&self) -> bool {
        self.0.any()
    }

    /// As [`marks::Suspects::lower`].
    #[must_use]
    pub fn lower(&self) -> bool {
        self.0.lower()
    }

    /// As [`marks::Suspects::take`].
    #[must_use]
    pub fn take(&self) -> Vec<u64> {
        self.0.take()
    }
}
