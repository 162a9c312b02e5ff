//! A medium that lets one call in at a time, hooks included, and yields between calls: what a
//! hook judges is then the instant it judges.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use holdfast_faultmem::{FailMode, FaultMedium};
use holdfast_pmem::{MediaError, Medium, MediumKind, Site, SyncError};

use super::lock;

/// A faulty medium, one call at a time.
#[derive(Debug)]
pub(crate) struct Gated {
    pub(crate) inner: Arc<FaultMedium>,
    gate: Mutex<()>,
    /// Which append or sync from now on fails: 1 is the next; 0 is none.
    fails: AtomicU64,
}

impl Gated {
    pub(crate) fn new(inner: FaultMedium) -> Self {
        Self { inner: Arc::new(inner), gate: Mutex::new(()), fails: AtomicU64::new(0) }
    }

    /// Lets the `nth` append or sync from now on fail, once.
    pub(crate) fn fail_sync(&self, nth: u64) {
        self.fails.store(nth, Ordering::Relaxed);
    }

    /// An append or sync; the gate is closed.
    fn arm(&self, m: &FaultMedium) {
        let left = self.fails.load(Ordering::Relaxed);
        self.fails.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 1 {
            m.fail_nth(m.calls() + 1, FailMode::Once);
        }
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

    fn put_is_cached(&self, len: u64) -> bool {
        self.inner.put_is_cached(len)
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
        self.inner.locked();
    }

    fn step(&self, site: Site) {
        self.inner.step(site);
    }

    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        self.alone(|m| {
            self.arm(m);
            m.append(site, at, bytes)
        })
    }

    fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.alone(|m| {
            self.arm(m);
            m.sync(site)
        })
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
