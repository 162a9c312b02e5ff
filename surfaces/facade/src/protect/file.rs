//! The data file as the engine sees it: read and written by system calls, never locked, and of any
//! length. Stores of the program go through its mapping, which shows the same pages of the cache.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use holdfast_mapped::{Facts, Identity};
use holdfast_pmem::track::allocated;
use holdfast_pmem::{MediaCause, MediaError, Medium, MediumKind, Site, SyncError};

use crate::error::{Error, ErrorKind, Result};
use crate::protect::watch::Watch;

/// An open data file. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct DataFile {
    file: Arc<File>,
    /// Who has to be told that a write is ours.
    watch: Option<Arc<Watch>>,
}

impl DataFile {
    /// Opens the regular file `path`.
    pub(crate) fn open(path: &Path, write: bool) -> Result<Self> {
        let found = std::fs::metadata(path).map_err(|error| failed(path, &error))?;
        if !found.is_file() {
            let what = "is no regular file, and only those can be protected";
            return Err(Error::new(ErrorKind::NotAFile, what).at(path));
        }
        let file = File::options().read(true).write(write).open(path);
        let file = Arc::new(file.map_err(|error| failed(path, &error))?);
        Ok(Self { file, watch: None })
    }

    /// The same, whose writes are made known to a watch as ours.
    pub(crate) fn watched(self, watch: Arc<Watch>) -> Self {
        Self { watch: Some(watch), ..self }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn size(&self) -> u64 {
        self.file.metadata().map_or(0, |found| found.len())
    }

    /// Makes all of it durable.
    pub(crate) fn sync_all(&self) -> Result<(), SyncError> {
        self.file.sync_data().map_err(|source| SyncError { call: "fdatasync", source })
    }

    /// Changes the file in a way that is ours.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&File) -> T) -> T {
        match &self.watch {
            Some(watch) => watch.ours(|| change(&self.file)),
            None => change(&self.file),
        }
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
        self.change(|file| file.write_all_at(bytes, at)).map_err(failed)
    }
}

/// What the system said of a file.
pub(crate) fn failed(path: &Path, error: &io::Error) -> Error {
    use io::ErrorKind as Io;
    let kind = match error.kind() {
        Io::NotFound | Io::NotADirectory => ErrorKind::NotFound,
        Io::AlreadyExists => ErrorKind::Exists,
        Io::IsADirectory => ErrorKind::NotAFile,
        Io::PermissionDenied => ErrorKind::Permission,
        Io::ReadOnlyFilesystem => ErrorKind::ReadOnly,
        Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => ErrorKind::NoSpace,
        _ => ErrorKind::System,
    };
    let text = match kind {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        ErrorKind::Permission => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    let error = Error::new(kind, text).at(path);
    match kind {
        ErrorKind::NotFound => error.with_remedy("check the path"),
        ErrorKind::ReadOnly => error.with_remedy("use a file system that can be written to"),
        ErrorKind::NoSpace => error.with_remedy("make room, or raise the limit"),
        _ => error,
    }
}

impl Medium for DataFile {
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
        self.checked(at, len)?;
        self.write(at, &vec![0; len as usize])
    }

    fn drain(&self, _site: Site) {}

    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        let written = self.change(|file| file.write_all_at(bytes, at));
        written.map_err(|source| SyncError { call: "pwrite", source })?;
        self.sync(site)
    }

    fn sync(&self, _site: Site) -> Result<(), SyncError> {
        self.sync_all()
    }

    fn view(&self, _at: u64, _len: u64) -> Option<*const u8> {
        None
    }

    fn grow(&self, _len: u64) -> Result<(), SyncError> {
        // Its length is the program's.
        let source = io::Error::from(io::ErrorKind::Unsupported);
        Err(SyncError { call: "ftruncate", source })
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

impl Facts for DataFile {
    fn identity(&self) -> Identity {
        let Ok(found) = self.file.metadata() else { return Identity::default() };
        let mtime_ns =
            found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec());
        Identity { inode: found.ino(), size: found.len(), mtime_ns }
    }

    fn allocated(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) {
        // A file system that cannot tell has no holes.
        let mut told = Vec::new();
        let asked = allocated(self.file.as_fd(), at, len, &mut |at, len| told.push((at, len)));
        match asked {
            Ok(()) => told.into_iter().for_each(|(at, len)| each(at, len)),
            Err(_) => each(at, len),
        }
    }
}
