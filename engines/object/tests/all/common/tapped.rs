//! The faulty medium, with somebody who is asked before each read.

use std::fmt;

use holdfast_faultmem::FaultMedium;
use holdfast_pmem::{MediaError, Medium, MediumKind, Site, SyncError};

/// Asked with the first byte and the number of bytes; what it refuses is not read.
type Tap = Box<dyn Fn(u64, u64) -> Result<(), MediaError> + Send + Sync>;

/// A medium on which somebody listens to the reads.
pub(crate) struct Tapped {
    m: FaultMedium,
    tap: Tap,
}

impl Tapped {
    pub(crate) fn new(
        m: FaultMedium,
        tap: impl Fn(u64, u64) -> Result<(), MediaError> + Send + Sync + 'static,
    ) -> Self {
        Self { m, tap: Box::new(tap) }
    }

    pub(crate) fn faulty(&self) -> &FaultMedium {
        &self.m
    }
}

impl fmt::Debug for Tapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.m.fmt(f)
    }
}

impl Medium for Tapped {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        (self.tap)(at, into.len() as u64)?;
        self.m.read(at, into)
    }

    fn enabled(&self, site: Site) -> bool {
        self.m.enabled(site)
    }
    fn step(&self, site: Site) {
        self.m.step(site);
    }
    fn locked(&self) {
        self.m.locked();
    }
    fn put_aside(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.m.put_aside(site, at, bytes)
    }

    fn len(&self) -> u64 {
        self.m.len()
    }
    fn kind(&self) -> MediumKind {
        self.m.kind()
    }
    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.m.put(site, at, bytes)
    }
    fn put_is_cached(&self, len: u64) -> bool {
        self.m.put_is_cached(len)
    }

    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        self.m.xor(site, at, delta)
    }
    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        self.m.zero(site, at, len)
    }
    fn drain(&self, site: Site) {
        self.m.drain(site);
    }
    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        self.m.append(site, at, bytes)
    }
    fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.m.sync(site)
    }
    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.m.view(at, len)
    }
    fn grow(&self, len: u64) -> Result<(), SyncError> {
        self.m.grow(len)
    }
    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.m.heal(site, at, bytes)
    }
    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        self.m.remap(at, physical, len)
    }
    fn stand_in(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.m.stand_in(at, bytes)
    }
    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        self.m.bad_ranges()
    }
}
