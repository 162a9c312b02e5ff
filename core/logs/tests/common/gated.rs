//! A medium that lets one call in at a time, hooks included, and yields between calls: what a
//! hook judges is then the instant it judges.

use std::sync::{Arc, Mutex};

use holdfast_faultmem::FaultMedium;
use holdfast_pmem::{MediaError, Medium, MediumKind, Site, SyncError};

use super::lock;

/// A faulty medium, one call at a time.
#[derive(Debug)]
pub(crate) struct Gated {
    pub(crate) inner: Arc<FaultMedium>,
    gate: Mutex<()>,
}

impl Gated {
    pub(crate) fn new(inner: FaultMedium) -> Self {
        Self { inner: Arc::new(inner), gate: Mutex::new(()) }
    }

    fn alone<T>(&self, call: impl FnOnce(&FaultMedium) -> T) -> T {
        std::thread::yield_now();
        let _gate = lock(&self.gate);
        call(&self.inner)
    }
}

impl Medium for Gated {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn kind(&self) -> MediumKind {
        self.inner.kind()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.alone(|m| m.read(at, into))
    }

    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.alone(|m| m.put(site, at, bytes))
    }

    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        self.alone(|m| m.xor(site, at, delta))
    }

    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        self.alone(|m| m.zero(site, at, len))
    }

    fn drain(&self, site: Site) {
        self.alone(|m| m.drain(site));
    }

    fn enabled(&self, site: Site) -> bool {
        self.inner.enabled(site)
    }

    fn locked(&self) {
        self.alone(Medium::locked);
    }

    fn step(&self, site: Site) {
        self.inner.step(site);
    }

    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        self.alone(|m| m.append(site, at, bytes))
    }

    fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.alone(|m| m.sync(site))
    }

    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.inner.view(at, len)
    }

    fn grow(&self, len: u64) -> Result<(), SyncError> {
        self.inner.grow(len)
    }

    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.alone(|m| m.heal(site, at, bytes))
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        self.inner.remap(at, physical, len)
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        self.inner.bad_ranges()
    }
}
