//! A medium, or a source of writes, with a scheduling point at each access: what the engine of
//! mapped files works on.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_pmem::track::{DirtySource, Observed, SourceKind, TrackError, WriteWay};
use holdfast_pmem::{MediaError, Medium, MediumKind, Site, SyncError};
use shuttle::sync::atomic::AtomicBool;

/// What is done at the instant that is drawn.
pub(super) type Noted = Box<dyn FnOnce() + Send>;

/// Counts accesses; at one of them something is noted.
#[derive(Default)]
pub(super) struct Instant {
    /// Loaded at each access: there another thread may go on.
    point: AtomicBool,
    left: AtomicI64,
    noted: Mutex<Option<Noted>>,
}

impl Instant {
    /// Has the instant before the access after so many others noted.
    pub(super) fn after(&self, accesses: i64, noted: Noted) {
        *self.noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(noted);
        self.left.store(accesses, Ordering::SeqCst);
    }

    /// Notes nothing any more.
    pub(super) fn forget(&self) {
        *self.noted.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn pass(&self) {
        self.point.load(Ordering::SeqCst);
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            let noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(noted) = noted {
                noted();
            }
        }
    }
}

/// `M`, with a scheduling point before each access. Its own locks are never held across one.
#[derive(Clone)]
pub(super) struct Paused<M> {
    inner: M,
    instant: Arc<Instant>,
}

impl<M: std::fmt::Debug> std::fmt::Debug for Paused<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Paused").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<M> Paused<M> {
    pub(super) fn new(inner: M, instant: &Arc<Instant>) -> Self {
        Self { inner, instant: Arc::clone(instant) }
    }
}

impl<M: Medium> Medium for Paused<M> {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn kind(&self) -> MediumKind {
        self.inner.kind()
    }
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.instant.pass();
        // Others may store between two words of what is read: here, between two halves.
        let half = if into.len() >= 32 { into.len() / 16 * 8 } else { 0 };
        let (first, second) = into.split_at_mut(half);
        if !first.is_empty() {
            self.inner.read(at, first)?;
            self.instant.pass();
        }
        self.inner.read(at + half as u64, second)
    }
    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.instant.pass();
        self.inner.put(site, at, bytes)
    }
    fn put_is_cached(&self, len: u64) -> bool {
        self.inner.put_is_cached(len)
    }
    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        self.instant.pass();
        self.inner.xor(site, at, delta)
    }
    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        self.instant.pass();
        self.inner.zero(site, at, len)
    }
    fn drain(&self, site: Site) {
        self.instant.pass();
        self.inner.drain(site);
    }
    fn enabled(&self, site: Site) -> bool {
        self.inner.enabled(site)
    }
    fn step(&self, site: Site) {
        self.instant.pass();
        self.inner.step(site);
    }
    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        self.instant.pass();
        self.inner.append(site, at, bytes)
    }
    fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.instant.pass();
        self.inner.sync(site)
    }
    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.inner.view(at, len)
    }
    fn grow(&self, len: u64) -> Result<(), SyncError> {
        self.instant.pass();
        self.inner.grow(len)
    }
    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.instant.pass();
        self.inner.heal(site, at, bytes)
    }
    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        self.instant.pass();
        self.inner.remap(at, physical, len)
    }
    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        self.inner.bad_ranges()
    }
}

impl<M: DirtySource> DirtySource for Paused<M> {
    fn kind(&self) -> SourceKind {
        self.inner.kind()
    }
    fn arm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        self.instant.pass();
        self.inner.arm(at, len)
    }
    fn disarm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        self.instant.pass();
        self.inner.disarm(at, len)
    }
    fn take(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.instant.pass();
        self.inner.take(at, len, each)
    }
    fn peek(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.instant.pass();
        self.inner.peek(at, len, each)
    }
    fn intact(&self, at: u64, len: u64) -> bool {
        self.instant.pass();
        self.inner.intact(at, len)
    }
    fn coverage(&self, way: WriteWay) -> Observed {
        self.inner.coverage(way)
    }
}
