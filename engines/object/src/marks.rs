//! Words by which threads that hold nothing in common tell each other what happened.
//!
//! | word | set by | asked by, and what it is worth |
//! |---|---|---|
//! | [`Remade`] | who makes parity anew, before verifying | who fills a chunk: one sees it |
//! | [`Redoing`] | a commit that is owed, holding all | who judges: if none is, all is whole |
//! | [`Freed`] | a commit that frees, before it does | who takes: that number, or a later one |
//! | [`Suspects`] | whoever meets something bad | each commit: all are looked after |
//!
//! Each law is gone through in all interleavings (`testing/models/src/exhaustive/marks.rs`).

use holdfast_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use holdfast_sync::{Mutex, PoisonError};

/// Counts how often parity is made anew from rows: see `anew.rs`.
#[derive(Debug, Default)]
pub(crate) struct Remade(AtomicU64);

impl Remade {
    /// Before rows are verified that parity is made from. Both this and [`times`](Self::times)
    /// change the counter, so that of the two the second one sees what came before the first: the
    /// verifying what is known by then, or the one who made it known that parity was made.
    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// To be asked before a chunk is filled, and once what is in it is known.
    pub(crate) fn times(&self) -> u64 {
        self.0.fetch_add(0, Ordering::AcqRel)
    }
}

/// Commits whose durable changes met a media error and are being completed: until then no column
/// of theirs can be judged.
#[derive(Debug, Default)]
pub(crate) struct Redoing(AtomicU64);

impl Redoing {
    /// One more, whose columns are still held, and whose chunks nobody knows as free yet.
    pub(crate) fn begin(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// So many are complete.
    pub(crate) fn done(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::AcqRel);
    }

    /// Whether there is one.
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }
}

/// A number on a line of its own: the holder of a lane writes it at each commit that frees.
#[derive(Debug)]
#[repr(align(128))]
struct Line(AtomicU64);

/// The numbers of the last commits that freed anything, by lane.
#[derive(Debug)]
pub(crate) struct Freed(Box<[Line]>);

impl Freed {
    /// `lanes` of them, in which nothing was freed after commit `before`.
    pub(crate) fn new(lanes: usize, before: u64) -> Self {
        Self((0..lanes).map(|_| Line(AtomicU64::new(before))).collect())
    }

    /// The highest of them.
    pub(crate) fn last(&self) -> u64 {
        self.0.iter().map(|lane| lane.0.load(Ordering::Acquire)).max().unwrap_or(0)
    }

    /// Commit `number` of `lane`, whose holder calls, frees something. A plain store: a locked
    /// instruction would wait for the record, which is under way by now.
    pub(crate) fn note_in(&self, lane: usize, number: u64) {
        self.0[lane].0.store(number, Ordering::Release);
    }

    /// The same of a lane that several threads commit in.
    pub(crate) fn note_shared(&self, lane: usize, number: u64) {
        self.0[lane].0.fetch_max(number, Ordering::AcqRel);
    }
}

/// Places found bad while nothing could be done about them.
#[derive(Debug)]
pub(crate) struct Suspects<T> {
    list: Mutex<Vec<T>>,
    /// Raised after one was put into the list, lowered before all are taken out.
    raised: AtomicBool,
}

impl<T> Default for Suspects<T> {
    fn default() -> Self {
        Self { list: Mutex::default(), raised: AtomicBool::new(false) }
    }
}

impl<T> Suspects<T> {
    /// Notes one.
    pub(crate) fn add(&self, one: T) {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push(one);
        self.raised.swap(true, Ordering::AcqRel);
    }

    /// Whether any may be noted: to be asked at each commit.
    pub(crate) fn any(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    /// The same; from now on it tells of others. To be asked before they are taken.
    pub(crate) fn lower(&self) -> bool {
        self.raised.swap(false, Ordering::AcqRel)
    }

    /// All that are noted.
    pub(crate) fn take(&self) -> Vec<T> {
        core::mem::take(&mut *self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
