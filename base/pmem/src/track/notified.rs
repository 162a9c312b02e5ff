//! Dirty source (d): writes that are announced, on a [`Board`].
//!
//! The form in which system calls that write to a file arrive from whoever stands between the
//! program and the system, and the form for a program that announces each of its stores. What is
//! not announced is not seen; so the source is told at its making which ways of writing its
//! announcers cover, and vouches for these alone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bits::{PageBits, Runs};
use super::board::Board;
use super::error::TrackError;
use super::span::out;
use super::{DirtySource, Observed, SourceKind, WriteWay};
use crate::medium::PAGE;

/// Tells what was announced.
///
/// ```
/// use std::sync::Arc;
/// use holdfast_pmem::track::{Board, DirtySource, Notified, WriteWay};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let board = Arc::new(Board::create(1 << 20, 64)?);
/// let source = Notified::new(Arc::clone(&board), &[WriteWay::Pwrite]);
/// let write = board.open(5000, 10); // before pwrite(fd, ..., 10, 5000)
/// drop(write); // after it
/// let mut dirty = Vec::new();
/// source.take(0, 1 << 20, &mut |at, len| dirty.push((at, len)))?;
/// assert_eq!(dirty, [(4096, 4096)]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Notified {
    board: Arc<Board>,
    announced: Vec<WriteWay>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    armed: PageBits,
    /// What one call tells; clear between calls.
    told: PageBits,
}

impl Notified {
    /// A source that reads a board. `announced` are the ways to write whose every use is announced
    /// there: the promise of whoever writes.
    #[must_use]
    pub fn new(board: Arc<Board>, announced: &[WriteWay]) -> Self {
        let bits = || PageBits::new();
        let state = Mutex::new(State { armed: bits(), told: bits() });
        Self { board, announced: announced.to_vec(), state }
    }

    /// Where to announce.
    #[must_use]
    pub fn board(&self) -> &Board {
        &self.board
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages(&self, at: u64, len: u64) -> Result<core::ops::Range<u64>, TrackError> {
        let whole = at.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        match at.checked_add(len) {
            Some(end) if whole && end / PAGE <= self.board.pages() => Ok(at / PAGE..end / PAGE),
            _ => Err(out(at, len)),
        }
    }

    fn tell(
        &self,
        at: u64,
        len: u64,
        take: bool,
        each: &mut dyn FnMut(u64, u64),
    ) -> Result<(), TrackError> {
        let pages = self.pages(at, len)?;
        let mut state = self.state();
        self.board.collect(pages.clone(), take, &mut state.told);
        let mut runs = Runs::new(0, each);
        state.told.tell(pages.clone(), &mut runs);
        runs.end();
        state.told.clear(pages);
        Ok(())
    }
}

impl DirtySource for Notified {
    fn kind(&self) -> SourceKind {
        SourceKind::Notified
    }

    fn arm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        let pages = self.pages(at, len)?;
        self.board.mark(at, len);
        self.state().armed.set(pages);
        Ok(())
    }

    fn disarm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        let pages = self.pages(at, len)?;
        self.state().armed.clear(pages);
        Ok(())
    }

    /// Announcements of pages that are not armed are told as well: they are facts.
    fn take(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.tell(at, len, true, each)
    }

    fn peek(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.tell(at, len, false, each)
    }

    /// Announcing costs the same whether the page was announced before or not.
    fn skim(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.take(at, len, each)
    }

    fn intact(&self, at: u64, len: u64) -> bool {
        self.pages(at, len).is_ok_and(|pages| self.state().armed.all(pages))
    }

    fn coverage(&self, way: WriteWay) -> Observed {
        if self.announced.contains(&way) { Observed::Seen } else { Observed::Undecided }
    }
}
