//! A medium with nothing on it, for cores that only ask it which sites are in force.

use holdfast_pmem::{MediaError, Medium, MediumKind, Site, SyncError};

/// Holds nothing, and is long enough for any geometry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nothing {
    /// The site that is switched off.
    pub(crate) off: &'static str,
}

impl Medium for Nothing {
    fn len(&self) -> u64 {
        1 << 40
    }
    fn kind(&self) -> MediumKind {
        MediumKind::Dax
    }
    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), MediaError> {
        Ok(())
    }
    fn put(&self, _: Site, _: u64, _: &[u8]) -> Result<(), MediaError> {
        Ok(())
    }
    fn put_is_cached(&self, _: u64) -> bool {
        true
    }
    fn xor(&self, _: Site, _: u64, _: &[u8]) -> Result<(), MediaError> {
        Ok(())
    }
    fn zero(&self, _: Site, _: u64, _: u64) -> Result<(), MediaError> {
        Ok(())
    }
    fn drain(&self, _: Site) {}
    fn enabled(&self, site: Site) -> bool {
        site.name() != self.off
    }
    fn append(&self, _: Site, _: u64, _: &[u8]) -> Result<(), SyncError> {
        Ok(())
    }
    fn sync(&self, _: Site) -> Result<(), SyncError> {
        Ok(())
    }
    fn view(&self, _: u64, _: u64) -> Option<*const u8> {
        None
    }
    fn grow(&self, _: u64) -> Result<(), SyncError> {
        Ok(())
    }
    fn heal(&self, _: Site, _: u64, _: &[u8]) -> Result<(), MediaError> {
        Ok(())
    }
    fn remap(&self, _: u64, _: u64, _: u64) -> Result<(), MediaError> {
        Ok(())
    }
    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }
}
