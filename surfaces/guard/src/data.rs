//! The data file as the engine sees it: read and written by system calls beside the program, never
//! mapped and never locked, so that nothing the program does to it can hurt the supervisor.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use holdfast_mapped::{Facts, Identity};
use holdfast_pmem::track::allocated;
use holdfast_pmem::{MediaCause, MediaError, Medium, MediumKind, Site, SyncError};

/// An open data file.
#[derive(Debug, Clone)]
pub(crate) struct Data {
    file: Arc<File>,
}

impl Data {
    pub(crate) fn new(file: Arc<File>) -> Self {
        Self { file }
    }

    pub(crate) fn file(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn size(&self) -> u64 {
        self.file.metadata().map_or(0, |found| found.len())
    }

    fn checked(&self, at: u64, len: u64) -> Result<(), MediaError> {
        let end = at.checked_add(len);
        if end.is_some_and(|end| end <= self.size()) {
            return Ok(());
        }
        Err(MediaError { at, len, cause: MediaCause::OutOfRange })
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        let len = bytes.len() as u64;
        self.checked(at, len)?;
        let failed = |_| MediaError { at, len, cause: MediaCause::Unclearable };
        self.file.write_all_at(bytes, at).map_err(failed)
    }
}

fn refused(call: &'static str) -> SyncError {
    SyncError { call, source: io::Error::from(io::ErrorKind::Unsupported) }
}

impl Medium for Data {
    fn len(&self) -> u64 {
        self.size()
    }

    fn kind(&self) -> MediumKind {
        MediumKind::File
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        let len = into.len() as u64;
        self.checked(at, len)?;
        self.file.read_exact_at(into, at).map_err(|error| {
            let cut = error.kind() == io::ErrorKind::UnexpectedEof;
            let cause = if cut { MediaCause::Truncated } else { MediaCause::Poison };
            MediaError { at, len, cause }
        })
    }

    fn put(&self, _site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.write(at, bytes)
    }

    fn put_is_cached(&self, _len: u64) -> bool {
        true
    }

    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        let mut bytes = vec![0; delta.len()];
        self.read(at, &mut bytes)?;
        for (byte, delta) in bytes.iter_mut().zip(delta) {
            *byte ^= delta;
        }
        self.put(site, at, &bytes)
    }

    fn zero(&self, _site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        self.write(at, &vec![0; len as usize])
    }

    fn drain(&self, _site: Site) {}

    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        self.file.write_all_at(bytes, at).map_err(|source| SyncError { call: "pwrite", source })?;
        self.sync(site)
    }

    fn sync(&self, _site: Site) -> Result<(), SyncError> {
        self.file.sync_data().map_err(|source| SyncError { call: "fdatasync", source })
    }

    fn view(&self, _at: u64, _len: u64) -> Option<*const u8> {
        None
    }

    fn grow(&self, _len: u64) -> Result<(), SyncError> {
        // Its length is the program's.
        Err(refused("ftruncate"))
    }

    fn heal(&self, _site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        let left = self.size().saturating_sub(at).min(bytes.len() as u64) as usize;
        self.write(at, &bytes[..left])
    }

    fn remap(&self, at: u64, _physical: u64, len: u64) -> Result<(), MediaError> {
        // Offsets are the program's.
        Err(MediaError { at, len, cause: MediaCause::Unclearable })
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }
}

impl Facts for Data {
    fn identity(&self) -> Identity {
        let Ok(found) = self.file.metadata() else { return Identity::default() };
        let mtime_ns =
            found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec());
        Identity { inode: found.ino(), size: found.len(), mtime_ns }
    }

    fn allocated(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) {
        if allocated(self.file.as_fd(), at, len, each).is_err() {
            each(at, len);
        }
    }
}
