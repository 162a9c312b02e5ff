//! A medium that tells of each thing the engine does before it does it: where a process may be
//! killed, and where a program may store in between.

use core::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_pmem::{MediaError, Medium, MediumKind, Site, SyncError};

/// What the engine is about to do.
#[derive(Debug, Clone, Copy)]
pub enum Doing<'a> {
    /// It reads.
    Read,
    /// It stores these bytes at this place of the machine.
    Store(Site, u64, &'a [u8]),
}

/// Who is told.
pub type Told = Box<dyn FnMut(Doing<'_>) + Send>;

/// Where the one who is told is kept; shared by all files of a machine.
#[derive(Clone, Default)]
pub struct Ear(Arc<Mutex<Option<Told>>>);

impl Ear {
    /// From now on `told` is told.
    pub fn listen(&self, told: Told) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
    }

    /// Nobody is told any more.
    pub fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Who listens may use the machine itself, which tells nobody then.
    fn tell(&self, doing: Doing<'_>) {
        if let Ok(mut told) = self.0.try_lock()
            && let Some(told) = told.as_mut()
        {
            told(doing);
        }
    }
}

impl fmt::Debug for Ear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ear")
    }
}

/// A file as the engine has it.
#[derive(Debug, Clone)]
pub struct Tap<M> {
    inner: M,
    start: u64,
    ear: Ear,
}

impl<M: Medium> Tap<M> {
    /// A file whose first byte is at `start` of its machine.
    pub const fn new(inner: M, start: u64, ear: Ear) -> Self {
        Self { inner, start, ear }
    }

    fn storing(&self, site: Site, at: u64, bytes: &[u8]) {
        self.ear.tell(Doing::Store(site, self.start.saturating_add(at), bytes));
    }
}

impl<M: Medium> Medium for Tap<M> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn kind(&self) -> MediumKind {
        self.inner.kind()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.ear.tell(Doing::Read);
        self.inner.read(at, into)
    }

    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.storing(site, at, bytes);
        self.inner.put(site, at, bytes)
    }

    fn put_is_cached(&self, len: u64) -> bool {
        self.inner.put_is_cached(len)
    }

    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        self.storing(site, at, &[]);
        self.inner.xor(site, at, delta)
    }

    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        self.storing(site, at, &[]);
        self.inner.zero(site, at, len)
    }

    fn drain(&self, site: Site) {
        self.inner.drain(site);
    }

    fn enabled(&self, site: Site) -> bool {
        self.inner.enabled(site)
    }

    fn locked(&self) {
        self.inner.locked();
    }

    fn step(&self, site: Site) {
        self.inner.step(site);
    }

    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        self.storing(site, at, bytes);
        self.inner.append(site, at, bytes)
    }

    fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.inner.sync(site)
    }

    fn sync_through(&self, site: Site) -> Result<(), SyncError> {
        self.inner.sync_through(site)
    }

    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.inner.view(at, len)
    }

    fn grow(&self, len: u64) -> Result<(), SyncError> {
        self.inner.grow(len)
    }

    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.storing(site, at, bytes);
        self.inner.heal(site, at, bytes)
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        self.inner.remap(at, physical, len)
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        self.inner.bad_ranges()
    }
}
