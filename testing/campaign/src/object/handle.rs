//! A medium that outlives the pool on it: pools own their medium and close it when they go, but a
//! campaign wants to look at what is left, and to let a pool die instead of closing it.

use std::ops::Deref;
use std::sync::Arc;

use holdfast_faultmem::{FailMode, FaultMedium};
use holdfast_object::Pool;
use holdfast_pmem::{MediaError, Medium, MediumKind, Site, SyncError};

/// A shared faulty medium.
#[derive(Debug, Clone)]
pub struct Handle(Arc<FaultMedium>);

impl Handle {
    /// Shares a medium.
    #[must_use]
    pub fn new(medium: FaultMedium) -> Self {
        Self(Arc::new(medium))
    }

    /// Lets a pool on this medium go without a clean close, as a killed process would: from now
    /// on nothing reaches the medium any more, so look at it first.
    pub fn abandon(&self, pool: Pool<Self>) {
        self.clear_on_barrier();
        self.clear_on_step();
        self.fail_nth(self.calls() + 1, FailMode::Forever);
        drop(pool);
    }
}

impl Deref for Handle {
    type Target = FaultMedium;

    fn deref(&self) -> &FaultMedium {
        &self.0
    }
}

impl Medium for Handle {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn kind(&self) -> MediumKind {
        self.0.kind()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.0.read(at, into)
    }

    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.0.put(site, at, bytes)
    }

    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        self.0.xor(site, at, delta)
    }

    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        self.0.zero(site, at, len)
    }

    fn drain(&self, site: Site) {
        self.0.drain(site);
    }

    fn enabled(&self, site: Site) -> bool {
        self.0.enabled(site)
    }

    fn locked(&self) {
        self.0.locked();
    }

    fn step(&self, site: Site) {
        self.0.step(site);
    }

    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        self.0.append(site, at, bytes)
    }

    fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.0.sync(site)
    }

    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.0.view(at, len)
    }

    fn grow(&self, len: u64) -> Result<(), SyncError> {
        self.0.grow(len)
    }

    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.0.heal(site, at, bytes)
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        self.0.remap(at, physical, len)
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        self.0.bad_ranges()
    }
}
