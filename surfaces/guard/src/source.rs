//! Who stored to which pages of one file: all mappings of it in all address spaces, and the board.
//!
//! Nothing is ever forgotten: what is harvested out of turn is held until it is taken; a space that
//! cannot be asked makes the pages it could store to *lost*, which is not intact.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_guard_wire::{Ledger, Place};
use holdfast_pmem::track::holders::FileId;
use holdfast_pmem::track::maps::{self, Vma};
use holdfast_pmem::track::pagemap::{Pagemap, Room, Scan};
use holdfast_pmem::track::{
    Board, DirtySource, Notified, Observed, SourceKind, TrackError, WriteWay,
};

use crate::runs::Runs;

/// Bytes of any file.
const EVERYTHING: u64 = 1 << 62;

/// A mapping of the file in some space.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) space: u64,
    pub(crate) pages: Arc<Pagemap>,
    pub(crate) place: Place,
    /// The file's byte at the start.
    pub(crate) at: u64,
    pub(crate) writable: bool,
    /// What keeps it registered; shared by the parts of what was one mapping.
    pub(crate) keep: Option<Arc<OwnedFd>>,
}

/// The dirty source of one guarded file.
#[derive(Debug)]
pub(crate) struct Source {
    number: u32,
    id: FileId,
    board: Arc<Board>,
    notified: Notified,
    ledger: Arc<Ledger>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    views: Vec<View>,
    /// Harvested and not taken yet.
    held: Runs,
    /// Armed: of the rest nothing is known, which is how it is before anybody was let in.
    watched: Runs,
    /// Armed and not taken since: told, and nothing that was seen.
    armed: Runs,
    /// Written by streams that ended, and not taken yet.
    streamed: Runs,
    /// Where a store can have escaped.
    lost: Runs,
    /// Writable mappings nobody told of: by space, first address, and the one behind the last.
    untold: Vec<(u64, usize, usize)>,
    /// Streams that write when they like.
    streams: BTreeMap<u64, u32>,
    room: Room,
    counts: Seen,
}

/// What was seen of the program's writing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Bytes of pages that were stored to through mappings, counted once per pass.
    pub stored: u64,
    /// Bytes of pages that were written by system calls, counted once per pass.
    pub written: u64,
    /// Bytes mapped to be stored to, and tracked, at most at a time.
    pub tracked: u64,
}

impl View {
    /// Another one of the same mapping.
    fn again(&self) -> Self {
        let (pages, keep) = (Arc::clone(&self.pages), self.keep.clone());
        Self {
            space: self.space,
            pages,
            place: self.place,
            at: self.at,
            writable: self.writable,
            keep,
        }
    }

    /// Bytes of the file that it shows.
    fn range(&self) -> (u64, u64) {
        (self.at, self.place.bytes())
    }

    /// The addresses that show `[at, at + len)`.
    fn place_of(&self, at: u64, len: u64) -> Option<Place> {
        let start = at.max(self.at);
        let end = at.saturating_add(len).min(self.at + self.place.bytes());
        let first = self.place.start + start.checked_sub(self.at)?;
        (start < end).then(|| Place { start: first, end: first + (end - start) })
    }

    /// Tells the runs of the file that were stored to in a place of it. False if it cannot be
    /// asked any more.
    fn scan(
        &self,
        place: Place,
        scan: Scan,
        room: &mut Room,
        each: &mut dyn FnMut(u64, u64),
    ) -> bool {
        let to_file = |address: usize| (address as u64) - self.place.start + self.at;
        let asked = self.pages.written(
            place.start as usize,
            place.bytes(),
            scan,
            room,
            &mut |start, end| each(to_file(start), (end - start) as u64),
        );
        asked.is_ok()
            && self.pages.all_tracked(place.start as usize, place.bytes()).unwrap_or(false)
    }
}

impl State {
    /// Scans what writable views show of a range.
    fn scan(&mut self, at: u64, len: u64, scan: Scan, each: &mut dyn FnMut(u64, u64)) {
        let Self { views, lost, room, .. } = self;
        for view in views.iter().filter(|view| view.writable) {
            let Some(place) = view.place_of(at, len) else { continue };
            if !view.scan(place, scan, room, each) {
                let (at, len) = view.range();
                lost.add(at, len);
            }
        }
    }

    /// Takes what one view was stored to into what is held.
    fn harvest(&mut self, index: usize, place: Place) {
        let Self { views, lost, held, room, .. } = self;
        let Some(view) = views.get(index).filter(|view| view.writable) else { return };
        let Some(place) = view.place.and(place) else { return };
        if !view.scan(place, Scan::Take, room, &mut |at, len| held.add(at, len)) {
            lost.add(view.at + (place.start - view.place.start), place.bytes());
        }
    }

    fn tracked(&mut self) {
        let stored_to = self.views.iter().filter(|view| view.writable);
        let bytes = stored_to.map(|view| view.place.bytes()).sum();
        self.counts.tracked = self.counts.tracked.max(bytes);
    }
}

impl Source {
    pub(crate) fn new(number: u32, id: FileId, board: Arc<Board>, ledger: Arc<Ledger>) -> Self {
        let ways = [WriteWay::Pwrite, WriteWay::DirectPwrite, WriteWay::Truncate, WriteWay::Punch];
        let notified = Notified::new(Arc::clone(&board), &ways);
        Self { number, id, board, notified, ledger, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    pub(crate) fn seen(&self) -> Seen {
        self.state().counts
    }

    /// Adds a mapping that nobody has stored to yet, and arms it; `raced` if somebody may have.
    /// `allocated` are the parts of the file that have storage.
    pub(crate) fn add(&self, view: View, raced: bool, allocated: &[(u64, u64)]) {
        let mut state = self.state();
        let (from, len) = view.range();
        let writable = view.writable;
        if raced {
            state.lost.add(from, len);
        }
        state.views.push(view);
        state.tracked();
        if writable {
            let index = state.views.len() - 1;
            Self::arm_view(&mut state, index, allocated);
        }
    }

    /// Protects the pages of a view; what it tells meanwhile was not stored by anybody.
    fn arm_view(state: &mut State, index: usize, allocated: &[(u64, u64)]) {
        let State { views, lost, room, .. } = state;
        let Some(view) = views.get(index) else { return };
        for (at, len) in allocated {
            let Some(place) = view.place_of(*at, *len) else { continue };
            if !view.scan(place, Scan::Take, room, &mut |_, _| {}) {
                lost.add(*at, *len);
            }
        }
    }

    /// A place of a space is about to become writable.
    pub(crate) fn open_up(&self, space: u64, place: Place, allocated: &[(u64, u64)]) {
        let mut state = self.state();
        for index in 0..state.views.len() {
            let view = &mut state.views[index];
            if view.space == space && view.place.and(place).is_some() && !view.writable {
                view.writable = true;
                Self::arm_view(&mut state, index, allocated);
            }
        }
        state.tracked();
    }

    /// Whether nobody maps it, streams to it or is writing to it, as far as was told.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state();
        let (began, ended) = self.ledger.announced(self.number);
        state.views.is_empty() && state.streams.is_empty() && began == ended
    }

    /// Takes what was stored to in a place of a space, to be told later.
    pub(crate) fn harvest(&self, space: u64, place: Place) {
        let mut state = self.state();
        for index in 0..state.views.len() {
            if state.views[index].space == space {
                state.harvest(index, place);
            }
        }
    }

    /// The same, and the place is gone.
    pub(crate) fn remove(&self, space: u64, place: Place) {
        self.harvest(space, place);
        let mut state = self.state();
        let mut left = Vec::new();
        for view in core::mem::take(&mut state.views) {
            if view.space != space || view.place.and(place).is_none() {
                left.push(view);
                continue;
            }
            for part in view.place.without(place).into_iter().flatten() {
                let at = view.at + (part.start - view.place.start);
                left.push(View { place: part, at, ..view.again() });
            }
        }
        state.views = left;
    }

    /// A space is at its end.
    pub(crate) fn end(&self, space: u64) {
        self.remove(space, Place { start: 0, end: u64::MAX });
        let left = self.state().streams.remove(&space);
        for _ in 0..left.unwrap_or(0) {
            self.stream_ends();
        }
    }

    /// Streams begin and end. As long as there is one, a write is under way.
    pub(crate) fn stream(&self, space: u64, begins: bool) {
        let mut state = self.state();
        if begins {
            self.ledger.begin(self.number);
            *state.streams.entry(space).or_insert(0) += 1;
            return;
        }
        let Some(count) = state.streams.get_mut(&space) else { return };
        *count -= 1;
        if *count == 0 {
            state.streams.remove(&space);
        }
        drop(state);
        self.stream_ends();
    }

    fn stream_ends(&self) {
        self.state().streamed.add(0, EVERYTHING);
        self.ledger.end(self.number);
    }

    /// Closes slots of threads that are gone.
    pub(crate) fn reap(&self) {
        self.board.reap(&mut |thread| !std::path::Path::new(&format!("/proc/{thread}")).exists());
    }

    /// Looks whether every mapping is still what was told of it, in a space that lives. The
    /// program in it knows us if it has `ledger`, by its inode.
    pub(crate) fn check(&self, space: u64, process: u32, ledger: u64) -> Checked {
        let mut found = Vec::new();
        let (mut knows, mut any) = (false, false);
        let listed = maps::walk(Some(process), |vma| {
            any = true;
            knows |= vma.inode == ledger;
            if vma.shared && self.id.is_shown_by(vma) {
                found.push(*vma);
            }
        });
        if listed.is_err() || !any {
            // It is gone, or is going: its end is told in another way.
            return Checked { knows: true, told: true };
        }
        if !knows {
            // Another program: its mappings are not those of the space.
            return Checked { knows, told: false };
        }
        let mut state = self.state();
        let State { views, lost, untold, .. } = &mut *state;
        let before = untold.clone();
        untold.retain(|(other, ..)| *other != space);
        for view in views.iter().filter(|view| view.space == space) {
            let mut bare = Runs::default();
            bare.add(view.place.start, view.place.bytes());
            for vma in
                found.iter().filter(|vma| base(vma) == view.at.wrapping_sub(view.place.start))
            {
                bare.cut(vma.start as u64, (vma.end - vma.start) as u64);
            }
            for (start, len) in bare.iter() {
                lost.add(view.at + (start - view.place.start), len);
            }
        }
        for vma in found.iter().filter(|vma| vma.writable) {
            let mut bare = Runs::default();
            bare.add(vma.start as u64, (vma.end - vma.start) as u64);
            // A view of other bytes than lie there now tells nothing of these.
            let told = views.iter().filter(|view| {
                let base_of = view.at.wrapping_sub(view.place.start);
                view.space == space && view.writable && base_of == base(vma)
            });
            for view in told {
                bare.cut(view.place.start, view.place.bytes());
            }
            let this = (space, vma.start, vma.end);
            for (start, len) in bare.iter() {
                if !untold.contains(&this) {
                    untold.push(this);
                }
                // It may be about to be told, in which case nobody knows its address yet.
                if before.contains(&this) {
                    lost.add(vma.at + (start - vma.start as u64), len);
                }
            }
        }
        let told = !untold.iter().any(|(other, ..)| *other == space);
        Checked { knows, told }
    }

    /// Whether no store can have escaped anywhere.
    pub(crate) fn is_whole(&self) -> bool {
        self.ledger.lost() == 0 && self.state().lost.bytes() == 0
    }

    fn told(&self, at: u64, len: u64, scan: Scan) -> Result<Runs, TrackError> {
        let mut told = Runs::default();
        let mut state = self.state();
        let mut written = |at, len| told.add(at, len);
        match scan {
            // Slots first, then bits, then stores: what ends meanwhile is found further on.
            Scan::Take => self.notified.take(at, len, &mut written)?,
            Scan::Peek => self.notified.peek(at, len, &mut written)?,
        }
        if !state.streams.is_empty() {
            told.add(at, len);
        }
        let streamed = match scan {
            Scan::Take => state.streamed.cut(at, len),
            Scan::Peek => state.streamed.inside(at, len).collect(),
        };
        streamed.into_iter().for_each(|(at, len)| told.add(at, len));
        let by_write = told.bytes();
        let mut stored = Runs::default();
        state.scan(at, len, scan, &mut |from, len| stored.add(from, len));
        let held = match scan {
            Scan::Take => state.held.cut(at, len),
            Scan::Peek => state.held.inside(at, len).collect(),
        };
        for (from, len) in held {
            stored.add(from, len);
        }
        if scan == Scan::Take {
            state.counts.written += by_write;
            state.counts.stored += stored.bytes();
        }
        let armed = match scan {
            Scan::Take => state.armed.cut(at, len),
            Scan::Peek => state.armed.inside(at, len).collect(),
        };
        for (from, len) in stored.iter().chain(armed) {
            told.add(from, len);
        }
        Ok(told)
    }
}

/// What a look at a space came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checked {
    /// The program there is one that knows us.
    pub(crate) knows: bool,
    /// It has told of all mappings it may store through.
    pub(crate) told: bool,
}

/// The file's byte that would lie at address 0.
fn base(vma: &Vma) -> u64 {
    vma.at.wrapping_sub(vma.start as u64)
}

impl DirtySource for Source {
    fn kind(&self) -> SourceKind {
        SourceKind::AsyncProtect
    }

    fn arm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        let mut state = self.state();
        state.lost.cut(at, len);
        state.scan(at, len, Scan::Take, &mut |_, _| {});
        state.watched.add(at, len);
        state.armed.add(at, len);
        Ok(())
    }

    fn disarm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        let mut state = self.state();
        state.watched.cut(at, len);
        state.armed.cut(at, len);
        Ok(())
    }

    fn take(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        let told = self.told(at, len, Scan::Take)?;
        told.inside(at, len).for_each(|(at, len)| each(at, len));
        Ok(())
    }

    fn peek(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        let told = self.told(at, len, Scan::Peek)?;
        told.inside(at, len).for_each(|(at, len)| each(at, len));
        Ok(())
    }

    fn intact(&self, at: u64, len: u64) -> bool {
        let state = self.state();
        self.ledger.lost() == 0 && state.watched.cover(at, len) && !state.lost.touch(at, len)
    }

    fn coverage(&self, way: WriteWay) -> Observed {
        if way == WriteWay::ForeignProcess { Observed::Undecided } else { Observed::Seen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_pmem::PAGE;

    fn source() -> Source {
        let ledger = Arc::new(Ledger::create().unwrap());
        assert!(ledger.enter(0, 1, 2));
        Source::new(0, FileId::any_device(2), Arc::new(Board::create(1 << 30, 8).unwrap()), ledger)
    }

    fn told(source: &Source, take: bool) -> Vec<(u64, u64)> {
        let mut told = Vec::new();
        let each = &mut |at, len| told.push((at / PAGE, len / PAGE));
        match take {
            true => source.take(0, 64 * PAGE, each).unwrap(),
            false => source.peek(0, 64 * PAGE, each).unwrap(),
        }
        told
    }

    /// A side file that was left open must find nobody who vouches for what was stored since.
    #[test]
    fn nothing_is_vouched_for_before_it_is_armed() {
        let source = source();
        assert!(!source.intact(0, PAGE));
        source.arm(0, 8 * PAGE).unwrap();
        assert!(source.intact(0, 8 * PAGE) && !source.intact(0, 9 * PAGE));
        assert_eq!(told(&source, true), [(0, 8)]);
        assert_eq!(told(&source, true), []);
        source.disarm(4 * PAGE, 4 * PAGE).unwrap();
        assert!(!source.intact(0, 8 * PAGE));
        source.ledger.lose();
        assert!(!source.intact(0, PAGE), "something could not be told");
    }

    #[test]
    fn a_space_that_cannot_be_asked_is_lost() {
        let _alone = crate::alone();
        let source = source();
        source.arm(0, 64 * PAGE).unwrap();
        told(&source, true);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pages = Arc::new(Pagemap::of(child.id()).unwrap());
        let place = Place { start: 0x7000_0000, end: 0x7000_0000 + 8 * PAGE };
        let view = View { space: 1, pages, place, at: 8 * PAGE, writable: true, keep: None };
        child.kill().unwrap();
        child.wait().unwrap();
        source.add(
            View { writable: false, place: Place { start: 0, end: PAGE }, at: 0, ..view.again() },
            false,
            &[],
        );
        assert_eq!(source.seen().tracked, 0, "it is only read");
        source.add(view, false, &[]);
        assert_eq!(source.seen().tracked, 8 * PAGE);
        assert!(source.intact(0, 64 * PAGE));
        source.end(1);
        assert!(!source.intact(8 * PAGE, PAGE) && source.intact(0, 8 * PAGE));
        assert!(!source.is_whole());
        source.arm(8 * PAGE, 8 * PAGE).unwrap();
        assert!(source.is_whole());
    }

    #[test]
    fn streams_write_all_the_time_and_once_more_at_their_end() {
        let source = source();
        source.stream(7, true);
        source.stream(7, true);
        assert_eq!((told(&source, true), told(&source, true)), (vec![(0, 64)], vec![(0, 64)]));
        source.stream(7, false);
        source.end(7);
        assert_eq!(source.ledger.announced(0), (2, 2));
        assert_eq!((told(&source, false), told(&source, true)), (vec![(0, 64)], vec![(0, 64)]));
        assert_eq!(told(&source, true), []);
        assert_eq!(source.seen().written, 3 * 64 * PAGE);
    }
}
