//! Dirty source (e): dirty bits kept by the medium's controller, emulated.
//!
//! A controller that sees every store could set a durable bit per page with it; then neither page
//! tables nor crashes are special cases. No such hardware is to be had, so this wraps a medium: the
//! data in front, one bit per page behind it, on the same medium, so that one crash image holds
//! both.
//!
//! ```text
//!   put to a clean page:  bit set -> drain (the bit is durable) -> data stored
//!   put to a dirty page:  data stored
//!   take:                 bits told and cleared; a crash before that is durable tells them again
//! ```
//!
//! One lock per word of bits makes a store and its bit one step for whoever takes or peeks. Seen is
//! what goes through this medium; stores through an address that it hands out are not.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::sync::{Mutex, PoisonError};

use super::bits::{Runs, WORD, words};
use super::error::TrackError;
use super::span::out;
use super::{DirtySource, Observed, SourceKind, WriteWay};
use crate::medium::{MediaCause, MediaError, Medium, MediumKind, PAGE, SyncError};
use crate::site::Site;

/// Bytes of data that one word of bits covers.
const REACH: u64 = WORD * PAGE;

/// A medium whose controller keeps dirty bits.
#[derive(Debug)]
pub struct Controller<M> {
    medium: M,
    len: u64,
    words: Box<[Word]>,
}

#[derive(Debug, Default)]
struct Word {
    turn: Mutex<()>,
    bits: AtomicU64,
}

impl<M: Medium> Controller<M> {
    /// Bytes of medium that `len` bytes of data need, bits included.
    #[must_use]
    pub fn room_for(len: u64) -> u64 {
        (len.saturating_add(len.div_ceil(REACH) * 8)).next_multiple_of(PAGE)
    }

    /// Takes over a medium whose first `len` bytes, whole pages, are data, with every page dirty.
    ///
    /// # Errors
    /// [`TrackError::OutOfRange`] if it has no room for the bits, or the medium fails.
    pub fn create(medium: M, len: u64) -> Result<Self, TrackError> {
        let controller = Self::empty(medium, len)?;
        for (word, mask) in words(0..len / PAGE) {
            controller.set(word, mask)?;
        }
        Ok(controller)
    }

    /// Takes over a medium with the bits it has: those that a crash left.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn open(medium: M, len: u64) -> Result<Self, TrackError> {
        let controller = Self::empty(medium, len)?;
        for (word, mask) in words(0..len / PAGE) {
            let mut bytes = [0; 8];
            controller.medium.read(controller.place(word), &mut bytes)?;
            let found = u64::from_le_bytes(bytes) & mask;
            controller.words[word].bits.store(found, Ordering::Release);
        }
        Ok(controller)
    }

    fn empty(medium: M, len: u64) -> Result<Self, TrackError> {
        let room = len.is_multiple_of(PAGE) && len <= medium.len();
        if !room || Self::room_for(len) > medium.len() {
            return Err(out(0, len));
        }
        let words = (0..len.div_ceil(REACH)).map(|_| Word::default()).collect();
        Ok(Self { medium, len, words })
    }

    /// The medium behind, bits included.
    #[must_use]
    pub fn medium(&self) -> &M {
        &self.medium
    }

    fn place(&self, word: usize) -> u64 {
        self.len + word as u64 * 8
    }

    /// Makes bits durable that are not. The word is locked.
    fn set(&self, word: usize, mask: u64) -> Result<(), MediaError> {
        let before = self.words[word].bits.load(Ordering::Acquire);
        if before & mask == mask {
            return Ok(());
        }
        let after = before | mask;
        let at = self.place(word);
        if self.medium.kind() == MediumKind::File {
            let site = Site::new("pmem.track.ControllerAppend");
            self.medium.append(site, at, &after.to_le_bytes()).map_err(|_| MediaError {
                at,
                len: 8,
                cause: MediaCause::Unclearable,
            })?;
        } else {
            self.medium.put(Site::new("pmem.track.ControllerBit"), at, &after.to_le_bytes())?;
            // Before the data: no image holds new data under a clear bit.
            self.medium.drain(Site::new("pmem.track.ControllerF1"));
        }
        self.words[word].bits.store(after, Ordering::Release);
        Ok(())
    }

    /// Runs `store` piece by piece, each in one step with its bits.
    fn storing<E: From<MediaError>>(
        &self,
        at: u64,
        len: u64,
        mut store: impl FnMut(u64, Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.inside(at, len)?;
        let mut done = 0;
        while done < len {
            let from = at + done;
            let word = (from / REACH) as usize;
            let piece = (len - done).min(REACH - from % REACH);
            let first = from / PAGE;
            let mask = words(first..(from + piece).div_ceil(PAGE)).fold(0, |_, (_, mask)| mask);
            let _turn = self.words[word].turn.lock().unwrap_or_else(PoisonError::into_inner);
            self.set(word, mask)?;
            store(from, done as usize..(done + piece) as usize)?;
            done += piece;
        }
        Ok(())
    }

    fn inside(&self, at: u64, len: u64) -> Result<(), MediaError> {
        if len <= self.len && at <= self.len - len {
            return Ok(());
        }
        Err(MediaError { at, len, cause: MediaCause::OutOfRange })
    }

    fn pages(&self, at: u64, len: u64) -> Result<Range<u64>, TrackError> {
        let whole = at.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        if whole && self.inside(at, len).is_ok() {
            return Ok(at / PAGE..(at + len) / PAGE);
        }
        Err(out(at, len))
    }
}

impl<M: Medium> DirtySource for Controller<M> {
    fn kind(&self) -> SourceKind {
        SourceKind::Controller
    }

    /// Always armed: the bits are from before.
    fn arm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        self.pages(at, len).map(|_| ())
    }

    fn disarm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        self.pages(at, len).map(|_| ())
    }

    fn take(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        let mut runs = Runs::new(0, each);
        for (word, mask) in words(self.pages(at, len)?) {
            let place = self.place(word);
            let Word { turn, bits } = &self.words[word];
            let turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            let before = bits.load(Ordering::Acquire);
            if before & mask != 0 {
                let after = before & !mask;
                // Not drained: until it is durable, a crash tells the pages once more. A later bit
                // of the same word is stored after it, to the same line.
                self.medium.put(
                    Site::new("pmem.track.ControllerClear"),
                    place,
                    &after.to_le_bytes(),
                )?;
                bits.store(after, Ordering::Release);
            }
            drop(turn);
            runs.word(word as u64 * WORD, before & mask);
        }
        runs.end();
        Ok(())
    }

    fn peek(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        let mut runs = Runs::new(0, each);
        for (word, mask) in words(self.pages(at, len)?) {
            let bits = self.words[word].bits.load(Ordering::Acquire);
            runs.word(word as u64 * WORD, bits & mask);
        }
        runs.end();
        Ok(())
    }

    fn intact(&self, at: u64, len: u64) -> bool {
        self.pages(at, len).is_ok() && !self.medium.inherited()
    }

    /// Of what goes through this medium.
    fn coverage(&self, way: WriteWay) -> Observed {
        match way {
            WriteWay::Store | WriteWay::Exec | WriteWay::Kill => Observed::Seen,
            WriteWay::ForkedChild => Observed::Refused,
            _ => Observed::Undecided,
        }
    }
}

impl<M: Medium> Medium for Controller<M> {
    fn len(&self) -> u64 {
        self.len
    }

    fn inherited(&self) -> bool {
        self.medium.inherited()
    }

    fn cut_off(&self) -> bool {
        self.medium.cut_off()
    }

    fn kind(&self) -> MediumKind {
        self.medium.kind()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.inside(at, into.len() as u64)?;
        self.medium.read(at, into)
    }

    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.storing(at, bytes.len() as u64, |at, part| self.medium.put(site, at, &bytes[part]))
    }

    fn put_aside(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        let len = bytes.len() as u64;
        self.storing(at, len, |at, part| self.medium.put_aside(site, at, &bytes[part]))
    }

    fn put_is_cached(&self, len: u64) -> bool {
        self.medium.put_is_cached(len)
    }

    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        self.storing(at, delta.len() as u64, |at, part| self.medium.xor(site, at, &delta[part]))
    }

    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        self.storing(at, len, |at, part| self.medium.zero(site, at, part.len() as u64))
    }

    fn drain(&self, site: Site) {
        self.medium.drain(site);
    }

    fn enabled(&self, site: Site) -> bool {
        self.medium.enabled(site)
    }

    fn locked(&self) {
        self.medium.locked();
    }

    fn step(&self, site: Site) {
        self.medium.step(site);
    }

    fn begin_write(&self) {
        self.medium.begin_write();
    }

    fn end_write(&self) {
        self.medium.end_write();
    }

    fn prepare(&self, at: u64, len: u64) {
        self.medium.prepare(at, len);
    }

    fn prefetch(&self, at: u64, len: u64) {
        self.medium.prefetch(at, len);
    }

    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        let len = bytes.len() as u64;
        let stored: Result<(), Failed> = self.storing(at, len, |at, part| {
            self.medium.append(site, at, &bytes[part]).map_err(Failed)
        });
        stored.map_err(|Failed(error)| error)
    }

    fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.medium.sync(site)
    }

    fn sync_through(&self, site: Site) -> Result<(), SyncError> {
        self.medium.sync_through(site)
    }

    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.inside(at, len).ok()?;
        self.medium.view(at, len)
    }

    /// Refused: the bits lie behind the data.
    fn grow(&self, len: u64) -> Result<(), SyncError> {
        if len == self.len {
            return Ok(());
        }
        let why = "a medium with dirty bits behind its data does not grow";
        Err(SyncError { call: "grow", source: io::Error::new(io::ErrorKind::Unsupported, why) })
    }

    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        // A page is never cut.
        self.storing(at, bytes.len() as u64, |at, part| self.medium.heal(site, at, &bytes[part]))
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        self.inside(physical, len)?;
        self.storing(at, len, |_, _| Ok::<(), MediaError>(()))?;
        self.medium.remap(at, physical, len)
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        let inside = self.medium.bad_ranges().into_iter().filter(|(at, _)| *at < self.len);
        inside.map(|(at, len)| (at, len.min(self.len - at))).collect()
    }
}

/// So that a bit that could not be set ends a durable write as the write's own failure would.
struct Failed(SyncError);

impl From<MediaError> for Failed {
    fn from(error: MediaError) -> Self {
        Self(SyncError { call: "store", source: io::Error::other(error) })
    }
}
