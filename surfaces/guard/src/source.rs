//! Who stored to which pages of one file: all mappings of it in all address spaces, and the board.
//!
//! Nothing is ever forgotten: what is harvested out of turn is held until it is taken; a space that
//! cannot be asked makes the pages it could store to *lost*, which is not intact.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use holdfast_guard_wire::{Ledger, Place};
use holdfast_pmem::PAGE;
use holdfast_pmem::track::holders::FileId;
use holdfast_pmem::track::maps::{self, Vma};
use holdfast_pmem::track::pagemap::{Pagemap, Room, Scan};
use holdfast_pmem::track::{
    Board, DirtySource, Notified, Observed, SourceKind, TrackError, WriteWay,
};

use crate::eyes::Eyes;
use crate::foreign::Watch;
use crate::proc;
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
    /// Who hears that streams write.
    eyes: OnceLock<Arc<Eyes>>,
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
    /// Written by streams, as far as is known, and not taken yet.
    streamed: Runs,
    /// Changes that had been heard when it was asked last whether streams wrote.
    changes: u64,
    /// Where a store can have escaped.
    lost: Runs,
    /// Writable mappings nobody told of: by space, first address, and the one behind the last.
    untold: Vec<(u64, usize, usize)>,
    /// Streams that write when they like: by space, its process, and how many there are.
    streams: BTreeMap<u64, (u32, u32)>,
    /// There was one before.
    had_streams: bool,
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
        let (eyes, state) = (OnceLock::new(), Mutex::default());
        Self { number, id, board, notified, ledger, eyes, state }
    }

    /// From now on it can be heard whether streams write.
    pub(crate) fn hear_by(&self, eyes: Arc<Eyes>) {
        let _ = self.eyes.set(eyes);
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

    /// Whether anybody may store to it through a mapping, or writes to it by a stream.
    pub(crate) fn is_stored_to(&self) -> bool {
        let state = self.state();
        state.views.iter().any(|view| view.writable) || !state.streams.is_empty()
    }

    /// Whether nobody maps it, streams to it or is writing to it, as far as was told. Writes that
    /// died with who made them are none.
    pub(crate) fn is_idle(&self) -> bool {
        self.reap();
        let state = self.state();
        state.views.is_empty() && state.streams.is_empty() && !self.board.is_busy()
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
        let mut state = self.state();
        let left = state.streams.get(&space).map_or(0, |(_, count)| *count);
        for _ in 0..left {
            self.stream_ends(&mut state, space);
        }
    }

    /// Streams of a process begin and end. As long as there is one, a write is under way.
    pub(crate) fn stream(&self, space: u64, process: u32, begins: bool) {
        let mut state = self.state();
        if !begins {
            self.stream_ends(&mut state, space);
            return;
        }
        self.ledger.begin(self.number, self.turn());
        // One that is told late may have written before. Whoever never changed it has not.
        self.hear_streams(&mut state);
        if state.changes > 0 {
            state.streamed.add(0, EVERYTHING);
        }
        state.streams.entry(space).or_insert((process, 0)).1 += 1;
        self.expect_streams(&state);
    }

    /// Whether this was not asked before.
    pub(crate) fn is_first_stream(&self) -> bool {
        !core::mem::replace(&mut self.state().had_streams, true)
    }

    /// What is heard is theirs as long as there are any.
    fn expect_streams(&self, state: &State) {
        if let Some(eyes) = self.eyes.get() {
            eyes.watch(|watch| watch.expect_streams(!state.streams.is_empty()));
        }
    }

    /// The supervisor alone gives the number to others.
    fn turn(&self) -> u64 {
        self.ledger.turn(self.number)
    }

    /// What it wrote last is over, and therefore heard.
    fn stream_ends(&self, state: &mut State, space: u64) {
        if !self.hear_streams(state) {
            state.streamed.add(0, EVERYTHING);
        }
        let Some((_, count)) = state.streams.get_mut(&space) else { return };
        *count -= 1;
        if *count == 0 {
            state.streams.remove(&space);
        }
        self.expect_streams(state);
        self.ledger.end(self.number, self.turn());
    }

    /// Listens whether the file was changed: if so, streams may have written anywhere. False if
    /// nothing is ever heard.
    fn hear_streams(&self, state: &mut State) -> bool {
        let heard = self.eyes.get().and_then(|eyes| eyes.watch(Watch::changes));
        let before = core::mem::replace(&mut state.changes, heard.unwrap_or(0));
        if heard.is_some_and(|now| now != before) && !state.streams.is_empty() {
            state.streamed.add(0, EVERYTHING);
        }
        heard.is_some()
    }

    /// Whether streams may have written anywhere, and nothing tells where. Asked after a page was
    /// read (`one`), which may show a write that is under way, and is heard only once it is over.
    fn streams_write(&self, state: &mut State, one: bool) -> bool {
        if state.streams.is_empty() {
            return false;
        }
        // Before listening: what is over by then is heard.
        let writing =
            one && state.streams.values().any(|(process, _)| proc::may_be_writing(*process));
        !self.hear_streams(state) || writing
    }

    /// Closes slots of threads that are gone: their writes are never said to be over.
    pub(crate) fn reap(&self) {
        self.reap_if(&mut proc::is_over);
    }

    /// The same, and those of the first thread of a process that has become another program: its
    /// number is that of a thread that lives, and what it was writing is over all the same.
    pub(crate) fn reap_replaced(&self, process: u32) {
        self.reap_if(&mut |thread| thread == process || proc::is_over(thread));
    }

    fn reap_if(&self, over: &mut dyn FnMut(u32) -> bool) {
        // One at a time: a file that is about to be closed is looked at by another thread.
        let _alone = self.state();
        let count = self.board.reap(over);
        if let (true, Some(eyes)) = (count > 0, self.eyes.get()) {
            eyes.watch(|watch| watch.reaped(count as u64));
        }
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
            // Of one that is gone, or is going, the end is told in another way. One that lives and
            // cannot be asked may map anything.
            return Checked { knows: true, told: listed.is_ok() || proc::is_dead(process) };
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

    fn told(&self, at: u64, len: u64, tell: Tell) -> Result<Runs, TrackError> {
        let mut told = Runs::default();
        let mut state = self.state();
        let mut written = |at, len| told.add(at, len);
        let forget = tell != Tell::Peek;
        // Slots first, then bits, then stores: what ends meanwhile is found further on.
        if forget {
            self.notified.take(at, len, &mut written)?;
        } else {
            self.notified.peek(at, len, &mut written)?;
        }
        let one = !forget && len <= PAGE;
        if self.streams_write(&mut state, one) {
            told.add(at, len);
        }
        let streamed = if forget {
            state.streamed.cut(at, len)
        } else {
            state.streamed.inside(at, len).collect()
        };
        streamed.into_iter().for_each(|(at, len)| told.add(at, len));
        let by_write = told.bytes();
        let mut stored = Runs::default();
        let scan = if tell == Tell::Take { Scan::Take } else { Scan::Peek };
        state.scan(at, len, scan, &mut |from, len| stored.add(from, len));
        let held =
            if forget { state.held.cut(at, len) } else { state.held.inside(at, len).collect() };
        for (from, len) in held {
            stored.add(from, len);
        }
        if forget {
            state.counts.written += by_write;
            state.counts.stored += stored.bytes();
        }
        let armed =
            if forget { state.armed.cut(at, len) } else { state.armed.inside(at, len).collect() };
        for (from, len) in stored.iter().chain(armed) {
            told.add(from, len);
        }
        Ok(told)
    }
}

/// What becomes of that which is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tell {
    /// Nothing.
    Peek,
    /// It is forgotten, and pages stay open to the programs.
    Skim,
    /// It is forgotten, and the next store to a page costs the program a fault again.
    Take,
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
        let told = self.told(at, len, Tell::Take)?;
        told.inside(at, len).for_each(|(at, len)| each(at, len));
        Ok(())
    }

    fn peek(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        let told = self.told(at, len, Tell::Peek)?;
        told.inside(at, len).for_each(|(at, len)| each(at, len));
        Ok(())
    }

    fn skim(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        let told = self.told(at, len, Tell::Skim)?;
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

    /// Whether one that lives maps more than it told cannot be told without a handle; of one that
    /// is gone, it is told in another way.
    #[test]
    fn what_cannot_be_listed_is_not_told() {
        let name = "source::tests::what_cannot_be_listed_is_not_told";
        crate::in_a_process_of_its_own(name, || {
            let source = source();
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let check = || source.check(1, child.id(), 0);
            let none = crate::without_handles();
            assert!(check().knows && !check().told);
            drop(none);
            child.kill().unwrap();
            child.wait().unwrap();
            let gone = source.check(1, child.id(), 0);
            assert!(gone.knows && gone.told);
        });
    }

    /// It was killed in the middle of a write; nobody ever says that this is over.
    #[test]
    fn who_was_killed_writes_no_more() {
        let _alone = crate::alone();
        let source = source();
        // SAFETY: the child stores to memory that is shared and made before, and sleeps.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                source.ledger.begin(0, source.turn());
                core::mem::forget(source.board().open(5 * PAGE, PAGE));
                libc::sleep(60);
                libc::_exit(0);
            }
            child
        };
        let waits = |idle: bool| {
            (0..2000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(2));
                source.is_idle() == idle && source.board().is_busy() != idle
            })
        };
        assert!(waits(false));
        // SAFETY: a signal to a child of this process; nobody asks about its end yet.
        unsafe { libc::kill(child, libc::SIGKILL) };
        assert!(waits(true));
        assert_eq!(source.ledger.announced(0), (1, 0));
        assert_eq!(told(&source, true), [(5, 1)], "what it wrote counts");
        // SAFETY: that child.
        unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
    }

    #[test]
    fn streams_write_all_the_time_and_once_more_at_their_end() {
        let source = source();
        source.stream(7, 1, true);
        source.stream(7, 1, true);
        assert_eq!((told(&source, true), told(&source, true)), (vec![(0, 64)], vec![(0, 64)]));
        source.stream(7, 1, false);
        source.end(7);
        assert_eq!(source.ledger.announced(0), (2, 2));
        assert_eq!((told(&source, false), told(&source, true)), (vec![(0, 64)], vec![(0, 64)]));
        assert_eq!(told(&source, true), []);
        assert_eq!(source.seen().written, 3 * 64 * PAGE);
    }
}
