//! A pool file of which one named place does not wait for the disk: a fault for a checker to find.

use holdfast_pmem::{Mapped, MediaError, Medium, MediumKind, Site, SyncError};

/// A mapped file; at the named place an append is a plain store, a sync nothing, and a step left
/// out.
#[derive(Debug)]
pub struct Unsynced {
    file: Mapped,
    off: String,
}

impl Unsynced {
    /// The file, with this place switched off.
    #[must_use]
    pub fn new(file: Mapped, off: &str) -> Self {
        Self { file, off: off.to_owned() }
    }

    fn is_off(&self, site: Site) -> bool {
        site.name() == self.off
    }
}

impl Medium for Unsynced {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn inherited(&self) -> bool {
        self.file.inherited()
    }

    fn cut_off(&self) -> bool {
        self.file.cut_off()
    }

    fn kind(&self) -> MediumKind {
        self.file.kind()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.file.read(at, into)
    }

    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.file.put(site, at, bytes)
    }

    fn put_is_cached(&self, len: u64) -> bool {
        self.file.put_is_cached(len)
    }

    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        self.file.xor(site, at, delta)
    }

    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        self.file.zero(site, at, len)
    }

    fn drain(&self, site: Site) {
        self.file.drain(site);
    }

    fn enabled(&self, site: Site) -> bool {
        !self.is_off(site)
    }

    fn begin_write(&self) {
        self.file.begin_write();
    }

    fn end_write(&self) {
        self.file.end_write();
    }

    fn prepare(&self, at: u64, len: u64) {
        self.file.prepare(at, len);
    }

    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        if self.is_off(site) {
            let failed = |error| SyncError { call: "store", source: std::io::Error::other(error) };
            return self.file.put(site, at, bytes).map_err(failed);
        }
        self.file.append(site, at, bytes)
    }

    fn sync(&self, site: Site) -> Result<(), SyncError> {
        if self.is_off(site) { Ok(()) } else { self.file.sync(site) }
    }

    fn sync_through(&self, site: Site) -> Result<(), SyncError> {
        if self.is_off(site) { Ok(()) } else { self.file.sync_through(site) }
    }

    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.file.view(at, len)
    }

    fn grow(&self, len: u64) -> Result<(), SyncError> {
        self.file.grow(len)
    }

    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.file.heal(site, at, bytes)
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        self.file.remap(at, physical, len)
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        self.file.bad_ranges()
    }

    fn storage_from(&self, at: u64) -> Option<u64> {
        self.file.storage_from(at)
    }
}
