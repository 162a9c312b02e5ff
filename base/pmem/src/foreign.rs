//! A file that belongs to somebody else: read and written by system calls beside its program,
//! never mapped, never locked, of any length, so that nothing the program does to it can hurt us.
//! Stores through the program's mappings show in the same pages of the cache.

use core::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use crate::call;
use crate::medium::{MediaCause, MediaError, Medium, MediumKind, SyncError};
use crate::site::Site;
use crate::track::allocated;

/// Has to know which changes of a file are ours: whoever listens for writers to it.
pub trait Ours: Send + Sync + fmt::Debug + 'static {
    /// Calls `change` once, which changes the file.
    fn ours(&self, change: &mut dyn FnMut());
}

/// An open file of somebody else's. Clones are the same.
///
/// A [`drain`](Medium::drain) orders nothing here; [`sync`](Medium::sync) makes everything durable,
/// the program's writes included. Its length is the program's: it cannot be grown, nor can frames
/// be remapped, since its offsets mean something to others.
#[derive(Debug, Clone)]
pub struct ForeignFile {
    file: Arc<File>,
    listener: Option<Arc<dyn Ours>>,
}

impl ForeignFile {
    /// Over a regular file that is open for reading, and for writing if it is to be repaired.
    #[must_use]
    pub fn new(file: Arc<File>) -> Self {
        Self { file, listener: None }
    }

    /// The same, whose changes are made known as ours.
    #[must_use]
    pub fn heard_by(self, listener: Arc<dyn Ours>) -> Self {
        Self { listener: Some(listener), ..self }
    }

    /// The file itself, for questions about it.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes; 0 if the system does not say.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.file.metadata().map_or(0, |found| found.len())
    }

    /// Its inode, its bytes and the time of its last change in nanoseconds, read at once.
    ///
    /// # Errors
    /// The system does not say.
    pub fn numbers(&self) -> io::Result<(u64, u64, i64)> {
        let found = self.file.metadata()?;
        let mtime_ns =
            found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec());
        Ok((found.ino(), found.len(), mtime_ns))
    }

    /// Whether its time of change tells of stores through mappings, too. Where it does not, a file
    /// with the same numbers may have been stored to all the same. Unknown file systems are tried.
    #[must_use]
    pub fn dates_stores(&self) -> bool {
        crate::dated::dates_stores(&self.file)
    }

    /// The parts of `[at, at + len)` that have storage, as runs of (first byte, bytes), ascending,
    /// each told once. Where the file system cannot say, everything has.
    pub fn parts(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) {
        // Collected first: after an error in the middle, some would be told twice.
        let mut told = Vec::new();
        match allocated(self.file.as_fd(), at, len, &mut |at, len| told.push((at, len))) {
            Ok(()) => told.into_iter().for_each(|(at, len)| each(at, len)),
            Err(_) => each(at, len),
        }
    }

    /// Changes the file in a way that is ours.
    pub fn change<T>(&self, change: impl FnOnce(&File) -> T) -> T {
        let Some(listener) = &self.listener else { return change(&self.file) };
        let (mut change, mut done) = (Some(change), None);
        listener.ours(&mut || {
            if let Some(change) = change.take() {
                done = Some(change(&self.file));
            }
        });
        let late = || change.map(|change| change(&self.file));
        done.or_else(late).expect("either the listener has called it, or it is still there")
    }

    /// Makes all of it durable.
    ///
    /// # Errors
    /// A [`SyncError`].
    pub fn sync_all(&self, site: Site) -> Result<(), SyncError> {
        call::sync_data(site, &self.file).map_err(|source| SyncError { call: "fdatasync", source })
    }

    /// Finds out whether anybody else has it open for writing, or mapped so: by asking for a lease,
    /// which the system grants to the only one. As long as the answer lives, whoever wants to open
    /// it, or to cut it off, waits (a minute at the most).
    #[must_use]
    pub fn alone(&self) -> Alone {
        let fd = self.file.as_raw_fd();
        let ask = |command: i32, what: i32| {
            // SAFETY: an open descriptor, and a command that takes a number.
            unsafe { libc::fcntl(fd, command, what) }
        };
        let flags = ask(libc::F_GETFL, 0);
        let only_reads = flags >= 0 && flags & libc::O_ACCMODE == libc::O_RDONLY;
        let lease = if only_reads { libc::F_RDLCK } else { libc::F_WRLCK };
        // Who waits is told by a signal that does nothing unless somebody wants it.
        if flags < 0 || ask(F_SETSIG, libc::SIGURG) < 0 {
            return Alone::Unknown;
        }
        match ask(libc::F_SETLEASE, lease) {
            0 => Alone::Yes(Lease { file: Arc::clone(&self.file) }),
            _ => match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN) => Alone::No,
                _ => Alone::Unknown,
            },
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
        let written = self.change(|file| call::write_all_at(file, bytes, at));
        written.map_err(|error| MediaError { at, len, cause: MediaCause::of_rewrite(&error) })
    }
}

/// Which signal says that somebody waits for a lease.
const F_SETSIG: i32 = 10;

/// Whether somebody is the only one to have a file open for writing.
#[derive(Debug)]
pub enum Alone {
    /// Nobody else has, nor can, as long as this lives.
    Yes(Lease),
    /// Somebody else has: another process, or another handle or mapping of this one.
    No,
    /// The file is somebody else's, or its file system grants no leases.
    Unknown,
}

/// Keeps others from opening a file until it is dropped.
#[derive(Debug)]
pub struct Lease {
    file: Arc<File>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // SAFETY: an open descriptor, and a command that takes a number.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    }
}

impl Medium for ForeignFile {
    /// If the system does not say, it may have any length: not that of a file that was cut off.
    fn len(&self) -> u64 {
        self.numbers().map_or(i64::MAX.cast_unsigned(), |(_, size, _)| size)
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

    fn zero(&self, _site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        // Before so many bytes are asked for.
        self.checked(at, len)?;
        self.write(at, &vec![0; len as usize])
    }

    fn drain(&self, _site: Site) {}

    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        let written = self.change(|file| call::write_all_at(file, bytes, at));
        written.map_err(|source| SyncError { call: "pwrite", source })?;
        self.sync_all(site)
    }

    fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.sync_all(site)
    }

    /// With its date, which tells whether anybody changed it.
    fn sync_through(&self, site: Site) -> Result<(), SyncError> {
        call::sync_all(site, &self.file).map_err(|source| SyncError { call: "fsync", source })
    }

    fn view(&self, _at: u64, _len: u64) -> Option<*const u8> {
        None
    }

    fn grow(&self, _len: u64) -> Result<(), SyncError> {
        // Its length is the program's.
        let source = io::Error::from(io::ErrorKind::Unsupported);
        Err(SyncError { call: "ftruncate", source })
    }

    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        let left = self.size().saturating_sub(at).min(bytes.len() as u64) as usize;
        self.write(at, &bytes[..left])?;
        let unsynced = |error: SyncError| MediaCause::of_rewrite(&error.source);
        let len = bytes.len() as u64;
        self.sync_all(site).map_err(|error| MediaError { at, len, cause: unsynced(error) })
    }

    fn remap(&self, at: u64, _physical: u64, len: u64) -> Result<(), MediaError> {
        // Offsets are the program's.
        Err(MediaError { at, len, cause: MediaCause::Unclearable })
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::PAGE;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Debug, Default)]
    struct Counts {
        calls: AtomicU32,
        lazy: bool,
    }

    impl Ours for Counts {
        fn ours(&self, change: &mut dyn FnMut()) {
            self.calls.fetch_add(1, Ordering::Relaxed);
            if !self.lazy {
                change();
                change();
            }
        }
    }

    const SITE: Site = Site::new("pmem.foreign.test");

    fn foreign(listener: &Arc<Counts>) -> ForeignFile {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 3 * PAGE as usize + 9], 0).unwrap();
        ForeignFile::new(Arc::new(file)).heard_by(Arc::clone(listener) as _)
    }

    #[test]
    fn every_change_is_heard_once_and_nothing_lies_behind_the_end() {
        let listener = Arc::new(Counts::default());
        let file = foreign(&listener);
        file.put(SITE, 5, b"abc").unwrap();
        file.xor(SITE, 5, &[1; 3]).unwrap();
        file.zero(SITE, 9, 2).unwrap();
        file.heal(SITE, 3 * PAGE, &[7; PAGE as usize]).unwrap();
        assert_eq!(listener.calls.load(Ordering::Relaxed), 4);
        let mut seen = [0; 7];
        file.read(5, &mut seen).unwrap();
        assert_eq!(seen, *b"`cb\x01\0\0\x01");
        assert_eq!(file.size(), 3 * PAGE + 9, "its length is not ours");
        for done in [
            file.put(SITE, 3 * PAGE + 8, b"ab"),
            file.zero(SITE, 0, u64::MAX),
            file.read(u64::MAX, &mut seen),
            file.remap(0, PAGE, PAGE),
        ] {
            assert!(done.is_err());
        }
        assert!(file.grow(9 * PAGE).is_err());
        assert_eq!(file.numbers().unwrap().1, 3 * PAGE + 9);
    }

    #[test]
    fn a_listener_that_does_not_call_stops_no_change() {
        let file = foreign(&Arc::new(Counts { lazy: true, ..Counts::default() }));
        assert_eq!(file.change(|file| file.metadata().unwrap().len()), 3 * PAGE + 9);
    }

    #[test]
    fn a_writer_that_nobody_sees_is_found_by_a_lease() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = |write| {
            let found = File::options().read(true).write(write).open(file.path()).unwrap();
            ForeignFile::new(Arc::new(found))
        };
        let keep = file.as_file().try_clone().unwrap();
        for write in [false, true] {
            assert!(matches!(open(write).alone(), Alone::No), "{write}");
        }
        drop(keep);
        let (other, path) = file.into_parts();
        drop(other);
        let found = File::options().read(true).write(true).open(&path).unwrap();
        let only = ForeignFile::new(Arc::new(found));
        for _ in 0..2 {
            let Alone::Yes(lease) = only.alone() else { panic!("nobody else has it") };
            use std::os::unix::fs::OpenOptionsExt;
            let mut now = File::options();
            let now = now.write(true).custom_flags(libc::O_NONBLOCK);
            let refused = now.open(&path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
            drop(lease);
            now.open(&path).unwrap();
        }
    }

    #[test]
    fn parts_are_told_once() {
        let file = foreign(&Arc::default());
        file.file().set_len(64 * PAGE).unwrap();
        let mut told = Vec::new();
        file.parts(0, 64 * PAGE, &mut |at, len| told.push((at, len)));
        assert!(told.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{told:?}");
        assert!(told.first().is_some_and(|(at, len)| *at == 0 && *len >= 4 * PAGE));
        // A pipe cannot tell, so all of it is told, once.
        let (end, _other) = std::io::pipe().unwrap();
        let end = std::os::fd::OwnedFd::from(end);
        let mut told = Vec::new();
        ForeignFile::new(Arc::new(File::from(end)))
            .parts(PAGE, PAGE, &mut |at, len| told.push((at, len)));
        assert_eq!(told, [(PAGE, PAGE)]);
    }
}
