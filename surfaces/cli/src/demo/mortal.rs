//! A medium that is the real one but dies at a named step: the process kills itself there, as hard
//! as anything can.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use holdfast_pmem::{Mapped, MediaError, Medium, MediumKind, Site, SyncError};
use rustix::process::{Signal, getpid, kill_process};

/// A mapping, the steps it met, and the one it dies at.
pub(crate) struct Mortal {
    mapped: Mapped,
    /// Step to die at, and the how-manieth time it is reached.
    fate: Option<(String, u64)>,
    met: Mutex<BTreeMap<&'static str, u64>>,
}

impl Mortal {
    /// The medium `mapped`, with its fate.
    pub(crate) fn new(mapped: Mapped, fate: Option<(String, u64)>) -> Self {
        Self { mapped, fate, met: Mutex::default() }
    }

    /// Steps met so far, and how often.
    pub(crate) fn met(&self) -> BTreeMap<&'static str, u64> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Mortal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mortal").field("mapped", &self.mapped).finish_non_exhaustive()
    }
}

impl Medium for Mortal {
    fn step(&self, site: Site) {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let count = met.entry(site.name()).or_default();
        *count += 1;
        if let Some((step, nth)) = &self.fate
            && step == site.name()
            && nth == count
        {
            // Nothing runs after this: no destructor, no handler, no other thread.
            let _ = kill_process(getpid(), Signal::KILL);
            std::process::abort();
        }
    }

    fn len(&self) -> u64 {
        self.mapped.len()
    }

    fn inherited(&self) -> bool {
        self.mapped.inherited()
    }

    fn cut_off(&self) -> bool {
        self.mapped.cut_off()
    }

    fn kind(&self) -> MediumKind {
        self.mapped.kind()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.mapped.read(at, into)
    }

    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.mapped.put(site, at, bytes)
    }

    fn put_is_cached(&self, len: u64) -> bool {
        self.mapped.put_is_cached(len)
    }

    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        self.mapped.xor(site, at, delta)
    }

    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        self.mapped.zero(site, at, len)
    }

    fn drain(&self, site: Site) {
        self.mapped.drain(site);
    }

    fn begin_write(&self) {
        self.mapped.begin_write();
    }

    fn end_write(&self) {
        self.mapped.end_write();
    }

    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        self.mapped.append(site, at, bytes)
    }

    fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.mapped.sync(site)
    }

    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.mapped.view(at, len)
    }

    fn grow(&self, len: u64) -> Result<(), SyncError> {
        self.mapped.grow(len)
    }

    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.mapped.heal(site, at, bytes)
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        self.mapped.remap(at, physical, len)
    }

    fn stand_in(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.mapped.stand_in(at, bytes)
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        self.mapped.bad_ranges()
    }
}
