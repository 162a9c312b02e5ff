//! What a redundancy area lies in: a side file, or a region of a pool.

use std::sync::Arc;

use holdfast_pmem::{Mapped as Mapping, MediaError, Medium, MediumKind, Site, SyncError};

use crate::protect::region::PoolRegion;

/// Either of them.
#[derive(Debug)]
pub(crate) enum SideMedium {
    /// A source that records first stores in it has it, too.
    File(Arc<Mapping>),
    Region(Box<PoolRegion>),
}

/// Hands a call on, whichever it is.
macro_rules! either {
    ($self:ident, $medium:ident => $call:expr) => {
        match $self {
            Self::File($medium) => $call,
            Self::Region($medium) => $call,
        }
    };
}

impl Medium for SideMedium {
    fn len(&self) -> u64 {
        either!(self, medium => medium.len())
    }

    #[inline(always)]
    fn inherited(&self) -> bool {
        either!(self, medium => medium.inherited())
    }

    fn cut_off(&self) -> bool {
        either!(self, medium => medium.cut_off())
    }

    fn kind(&self) -> MediumKind {
        either!(self, medium => medium.kind())
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        either!(self, medium => medium.read(at, into))
    }

    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        either!(self, medium => medium.put(site, at, bytes))
    }

    #[inline]
    fn put_aside(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        either!(self, medium => medium.put_aside(site, at, bytes))
    }

    fn put_is_cached(&self, len: u64) -> bool {
        either!(self, medium => medium.put_is_cached(len))
    }

    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        either!(self, medium => medium.xor(site, at, delta))
    }

    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        either!(self, medium => medium.zero(site, at, len))
    }

    fn drain(&self, site: Site) {
        either!(self, medium => medium.drain(site));
    }

    #[inline(always)]
    fn enabled(&self, site: Site) -> bool {
        either!(self, medium => medium.enabled(site))
    }

    #[inline(always)]
    fn locked(&self) {
        either!(self, medium => medium.locked());
    }

    #[inline(always)]
    fn step(&self, site: Site) {
        either!(self, medium => medium.step(site));
    }

    #[inline(always)]
    fn begin_write(&self) {
        either!(self, medium => medium.begin_write());
    }

    #[inline(always)]
    fn end_write(&self) {
        either!(self, medium => medium.end_write());
    }

    fn prepare(&self, at: u64, len: u64) {
        either!(self, medium => medium.prepare(at, len));
    }

    #[inline(always)]
    fn prefetch(&self, at: u64, len: u64) {
        either!(self, medium => medium.prefetch(at, len));
    }

    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        either!(self, medium => medium.append(site, at, bytes))
    }

    fn sync(&self, site: Site) -> Result<(), SyncError> {
        either!(self, medium => medium.sync(site))
    }

    fn sync_through(&self, site: Site) -> Result<(), SyncError> {
        either!(self, medium => medium.sync_through(site))
    }

    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        either!(self, medium => medium.view(at, len))
    }

    fn grow(&self, len: u64) -> Result<(), SyncError> {
        either!(self, medium => medium.grow(len))
    }

    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        either!(self, medium => medium.heal(site, at, bytes))
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        either!(self, medium => medium.remap(at, physical, len))
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        either!(self, medium => medium.bad_ranges())
    }

    fn storage_from(&self, at: u64) -> Option<u64> {
        either!(self, medium => medium.storage_from(at))
    }
}
