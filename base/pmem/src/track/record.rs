//! The persistent half of [`FirstStore`](super::FirstStore): which pages are going stale.

use std::sync::Arc;

use super::error::TrackError;
use super::span::out;
use crate::medium::{Medium, PAGE};
use crate::site::Site;

/// Remembers pages across a crash.
///
/// [`set`](Self::set) is called by a signal handler, in the place of a store to the tracked pages:
/// it must be async-signal-safe (atomics, loads and stores to memory that is mapped, plain system
/// calls; no lock that the interrupted thread could hold, no allocation) and must not store to
/// tracked pages itself. Calls for one page never overlap, nor do `set` and `clear` of one page;
/// calls for different pages do.
///
/// The bits of a record are its own. A pass that keeps a note of what it has taken keeps it
/// elsewhere: a store during the pass sets the record while the note still stands, and dropping the
/// note must not drop it.
pub trait Record: Send + Sync + 'static {
    /// Notes durably that the page at `at` may differ from what its checksum covers. Returns once
    /// the note would survive a crash; `false` says that it would not, and then the store that
    /// wants it is refused.
    fn set(&self, at: u64) -> bool;

    /// Forgets the pages of `[at, at + len)`. Need not be durable on return, and may fail: a note
    /// too many only makes a page unknown after a crash.
    fn clear(&self, at: u64, len: u64);

    /// Whether the page is noted, or that cannot be read.
    fn is_set(&self, at: u64) -> bool;
}

/// What a noted page holds; anything but zero counts.
const NOTED: u8 = 1;

/// A record with one byte per page on a medium: pages share no word that two threads would have to
/// change together.
#[derive(Debug)]
pub struct MediumRecord<M> {
    medium: Arc<M>,
    /// Where the byte of the first page lies on the medium.
    base: u64,
    first: u64,
    pages: u64,
}

impl<M: Medium> MediumRecord<M> {
    /// Keeps the notes of the file's pages `[at, at + len)` in as many bytes of the medium as there
    /// are pages, from `base` on. They are used as they are found. The medium's gate must be open
    /// (no `mprotect` around commits): its lock has no place in a signal handler.
    ///
    /// # Errors
    /// [`TrackError::OutOfRange`]: no whole pages, or the bytes do not lie on the medium.
    pub fn new(medium: Arc<M>, base: u64, at: u64, len: u64) -> Result<Self, TrackError> {
        let pages = len / PAGE;
        let fits = base.checked_add(pages).is_some_and(|end| end <= medium.len());
        if !at.is_multiple_of(PAGE) || !len.is_multiple_of(PAGE) || !fits {
            return Err(out(at, len));
        }
        Ok(Self { medium, base, first: at / PAGE, pages })
    }

    fn place(&self, at: u64) -> Option<u64> {
        let page = (at / PAGE).checked_sub(self.first)?;
        (page < self.pages).then_some(self.base + page)
    }
}

impl<M: Medium> Record for MediumRecord<M> {
    /// One store, flush and fence; on a file, one durable write.
    fn set(&self, at: u64) -> bool {
        let Some(place) = self.place(at) else { return false };
        self.medium.append(Site::new("pmem.track.Record"), place, &[NOTED]).is_ok()
    }

    fn clear(&self, at: u64, len: u64) {
        let clipped = len.min((self.first + self.pages).saturating_mul(PAGE).saturating_sub(at));
        if let Some(place) = self.place(at) {
            let _ = self.medium.zero(Site::new("pmem.track.Forget"), place, clipped / PAGE);
            // The next note of these pages may come from another thread, and must not be overtaken
            // by zeros that go around the cache.
            self.medium.drain(Site::new("pmem.track.Forgotten"));
        }
    }

    fn is_set(&self, at: u64) -> bool {
        let mut found = [0];
        self.place(at)
            .is_none_or(|place| self.medium.read(place, &mut found).is_err() || found[0] != 0)
    }
}
