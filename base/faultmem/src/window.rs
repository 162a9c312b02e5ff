//! Part of a medium as a medium of its own: two files on one machine crash at the same instant.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::sync::Arc;

use holdfast_pmem::{MediaCause, MediaError, Medium, MediumKind, PAGE, Site, SyncError};

use crate::medium::FaultMedium;

/// The bytes `[start, start + room)` of a shared [`FaultMedium`], as if they were a file. Clones
/// are the same file. A sync covers the window alone; a drain, as on the machine, all that its
/// thread flushed.
#[derive(Clone)]
pub struct Window {
    shared: Arc<FaultMedium>,
    start: u64,
    room: u64,
    len: Arc<AtomicU64>,
    as_file: bool,
}

impl Window {
    /// A file of `len` bytes that may grow to `room`.
    ///
    /// # Panics
    /// If the window does not lie on the medium, or does not start at a page.
    #[must_use]
    pub fn new(shared: Arc<FaultMedium>, start: u64, len: u64, room: u64) -> Self {
        let end = start.checked_add(room);
        assert!(start.is_multiple_of(PAGE) && len <= room, "a window of whole pages");
        assert!(end.is_some_and(|end| end <= shared.len()), "a window lies on its medium");
        Self { shared, start, room, len: Arc::new(AtomicU64::new(len)), as_file: false }
    }

    /// The same file as whoever calls the system sees it, whatever lies behind: nothing that is
    /// stored is durable before a sync, which waits for stores of others, too.
    #[must_use]
    pub fn as_file(self) -> Self {
        Self { as_file: true, ..self }
    }

    /// The medium behind, to damage it and to crash.
    #[must_use]
    pub fn shared(&self) -> &Arc<FaultMedium> {
        &self.shared
    }

    /// Where a byte of the window is on the medium behind.
    #[must_use]
    pub fn place(&self, at: u64) -> u64 {
        self.start.saturating_add(at)
    }

    /// Makes the file shorter or longer, as somebody else would.
    ///
    /// # Panics
    /// If there is no room.
    pub fn set_len(&self, len: u64) {
        assert!(len <= self.room, "a window grows up to its room");
        self.len.store(len, Ordering::Release);
    }

    fn inside(&self, at: u64, len: u64) -> Result<u64, MediaError> {
        match at.checked_add(len) {
            Some(end) if end <= self.len() => Ok(self.place(at)),
            _ => Err(MediaError { at, len, cause: MediaCause::OutOfRange }),
        }
    }

    /// An error of the medium behind, with the place in the window.
    fn here(&self, error: MediaError) -> MediaError {
        MediaError { at: error.at.saturating_sub(self.start), ..error }
    }

    fn refused(&self, error: MediaError) -> SyncError {
        SyncError { call: "window", source: io::Error::other(self.here(error)) }
    }
}

impl Medium for Window {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn kind(&self) -> MediumKind {
        if self.as_file { MediumKind::File } else { self.shared.kind() }
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        let place = self.inside(at, into.len() as u64)?;
        self.shared.read(place, into).map_err(|error| self.here(error))
    }

    #[track_caller]
    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        let place = self.inside(at, bytes.len() as u64)?;
        self.shared.put(site, place, bytes).map_err(|error| self.here(error))
    }

    fn put_is_cached(&self, len: u64) -> bool {
        self.shared.put_is_cached(len)
    }

    #[track_caller]
    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        let place = self.inside(at, delta.len() as u64)?;
        self.shared.xor(site, place, delta).map_err(|error| self.here(error))
    }

    #[track_caller]
    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        let place = self.inside(at, len)?;
        self.shared.zero(site, place, len).map_err(|error| self.here(error))
    }

    #[track_caller]
    fn drain(&self, site: Site) {
        self.shared.drain(site);
    }

    #[track_caller]
    fn enabled(&self, site: Site) -> bool {
        self.shared.enabled(site)
    }

    fn locked(&self) {
        self.shared.locked();
    }

    #[track_caller]
    fn step(&self, site: Site) {
        self.shared.step(site);
    }

    #[track_caller]
    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        let place = self.inside(at, bytes.len() as u64).map_err(|error| self.refused(error))?;
        self.shared.append(site, place, bytes)
    }

    #[track_caller]
    fn sync(&self, site: Site) -> Result<(), SyncError> {
        match self.kind() {
            MediumKind::File => self.sync_through(site),
            MediumKind::Dax | MediumKind::Shm => self.shared.sync(site),
        }
    }

    #[track_caller]
    fn sync_through(&self, site: Site) -> Result<(), SyncError> {
        self.shared.write_back(site, self.start, self.room)
    }

    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.inside(at, len).ok().and_then(|place| self.shared.view(place, len))
    }

    fn grow(&self, len: u64) -> Result<(), SyncError> {
        if len > self.room {
            return Err(SyncError { call: "grow", source: io::ErrorKind::StorageFull.into() });
        }
        self.len.fetch_max(len, Ordering::AcqRel);
        Ok(())
    }

    #[track_caller]
    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        // The last page of a file need not be whole.
        let place = self.inside(at, 1)?;
        self.shared.heal(site, place, bytes).map_err(|error| self.here(error))
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        let (at, physical) = (self.inside(at, len)?, self.inside(physical, len)?);
        self.shared.remap(at, physical, len).map_err(|error| self.here(error))
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        let end = self.place(self.len());
        let ranges = self.shared.bad_ranges().into_iter();
        let inside = ranges.filter_map(|(at, len)| {
            let (from, to) = (at.max(self.start), (at + len).min(end));
            (from < to).then(|| (from - self.start, to - from))
        });
        inside.collect()
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("start", &self.start).field("len", &self.len()).finish()
    }
}
