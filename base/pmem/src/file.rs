//! The file behind a mapping: finding, creating, allocating, locking and syncing it.

use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

use crate::call;
use crate::error::OpenError;
use crate::medium::{PAGE, SyncError};
use crate::options::Access;
use crate::site::Site;
use crate::track::holders::is_child;

/// The size of a file that was made, and its name; the size of one that has grown.
const MADE: Site = Site::new("pmem.file.made");
const NAMED: Site = Site::new("pmem.file.named");
const GROWN: Site = Site::new("pmem.file.grown");

/// Zeros written at a time where a file system cannot allocate.
const ZEROS: usize = 1 << 20;
/// How often a lock is asked for again that nobody lasting is seen to hold, and how long is waited
/// in between. It ends with the last use of the open file: a child that was forked for another
/// program has that until it runs it, and who reads what a process maps keeps the mapping for so
/// long beyond the end of that.
const TRIES: u32 = 50;
const NAP: Duration = Duration::from_millis(2);
/// Processes and files looked at for whoever holds a lock.
const MOST_LOOKED_AT: usize = 100_000;

/// A file system's number (`statfs`), and its name.
const FILE_SYSTEMS: [(i64, &str); 11] = [
    (EXT4, "ext4"),
    (XFS, "xfs"),
    (BTRFS, "btrfs"),
    (TMPFS, "tmpfs"),
    (RAMFS, "ramfs"),
    (HUGETLBFS, "hugetlbfs"),
    (0x794c_7630, "overlayfs"),
    (0x6573_5546, "fuse"),
    (0x6969, "nfs"),
    (0x2fc1_2fc1, "zfs"),
    (F2FS, "f2fs"),
];
/// ext2 and ext3, too.
pub(crate) const EXT4: i64 = 0xef53;
pub(crate) const XFS: i64 = 0x5846_5342;
pub(crate) const BTRFS: i64 = 0x9123_683e;
pub(crate) const F2FS: i64 = 0xf2f5_2010;
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;
const HUGETLBFS: i64 = 0x9584_58f6;
/// File systems that live in memory.
pub(crate) const IN_MEMORY: [i64; 3] = [TMPFS, RAMFS, HUGETLBFS];

/// An open, checked and (for writers) locked file.
#[derive(Debug)]
pub(crate) struct Backing {
    file: File,
    path: PathBuf,
    /// It is somebody else's: of what lies behind the mapping nothing is ours to drop.
    foreign: bool,
    /// The first failed write or sync of this file. Set once, never cleared.
    failure: OnceLock<Failure>,
    /// The write or sync that is to fail, counted down; negative is none.
    fail_in: AtomicI64,
    /// Writes and syncs that reached the system.
    issued: AtomicU64,
    /// Bytes that are mapped, so that the file has to have them.
    relied_on: AtomicU64,
    /// Whether it was ever found to have fewer. Set once, never cleared.
    cut_off: AtomicBool,
}

/// A write or sync that failed.
#[derive(Debug)]
struct Failure {
    call: &'static str,
    kind: io::ErrorKind,
    text: String,
}

impl Backing {
    /// Opens an existing file.
    pub(crate) fn open(path: &Path, access: Access, keep_still: bool) -> Result<Self, OpenError> {
        // Looked at before it is opened: opening a device can have effects.
        let found = std::fs::metadata(path).map_err(|error| explain(path, "stat", error))?;
        refuse_kind(path, &found)?;
        let write = access == Access::Write;
        let mut options = OpenOptions::new();
        options.read(true).write(write).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = open_as(&options, path).map_err(|error| explain_open(path, write, error))?;
        let backing = Self::checked(file, path)?;
        if write {
            backing.lock(Lock::Write)?;
        } else if access == Access::PrivateCopy && keep_still {
            backing.lock(Lock::Read)?;
        }
        Ok(backing)
    }

    /// Takes a file that is open for writing, and was opened by this name.
    pub(crate) fn over(file: &File, path: &Path) -> Result<Self, OpenError> {
        let twin = call::ask("dup", Errno::MFILE).map_err(io::Error::from);
        let file = twin.and_then(|()| file.try_clone());
        let file = file.map_err(|error| explain(path, "dup", error))?;
        let backing = Self::checked(file, path)?;
        backing.lock(Lock::Write)?;
        Ok(backing)
    }

    /// Holds an open file against what can be mapped.
    fn checked(file: File, path: &Path) -> Result<Self, OpenError> {
        let found = file.metadata().map_err(|error| explain(path, "fstat", error))?;
        refuse_kind(path, &found)?;
        if found.len() < PAGE {
            return Err(OpenError::TooSmall { path: path.into(), len: found.len() });
        }
        Ok(Self::of(file, path))
    }

    /// Creates a file of `len` bytes, all allocated, all zero. Removes it again on failure.
    pub(crate) fn create(path: &Path, len: u64) -> Result<Self, OpenError> {
        if len == 0 || !len.is_multiple_of(PAGE) || i64::try_from(len).is_err() {
            return Err(OpenError::BadLength { len });
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = open_as(&options, path).map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                OpenError::NoSpace { path: path.into(), wanted: len, free: None }
            }
            _ => explain(path, "open", error),
        })?;
        let backing = Self::of(file, path);
        let made = backing.lock(Lock::Write).and_then(|()| backing.allocate_new(len));
        if made.is_err() {
            backing.remove();
        }
        made.map(|()| backing)
    }

    fn of(file: File, path: &Path) -> Self {
        Self {
            file,
            path: path.into(),
            foreign: false,
            failure: OnceLock::new(),
            fail_in: AtomicI64::new(-1),
            issued: AtomicU64::new(0),
            relied_on: AtomicU64::new(0),
            cut_off: AtomicBool::new(false),
        }
    }

    /// The same, of somebody else's file if `foreign`.
    pub(crate) fn belonging(self, foreign: bool) -> Self {
        Self { foreign, ..self }
    }

    fn allocate_new(&self, len: u64) -> Result<(), OpenError> {
        allocate(self.fd(), 0, len).map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => {
                // Asked once the partial file's blocks are free again.
                let _ = self.file.set_len(0);
                let free = rustix::fs::fstatvfs(&self.file).ok();
                OpenError::NoSpace {
                    path: self.path.clone(),
                    wanted: len,
                    free: free.map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize)),
                }
            }
            _ => explain(&self.path, "fallocate", error),
        })?;
        if self.is_memory() {
            return Ok(());
        }
        // The name and the size are durable before anybody relies on the contents.
        call::sync_all(MADE, &self.file).map_err(|error| explain(&self.path, "fsync", error))?;
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        open_as(OpenOptions::new().read(true), parent)
            .and_then(|folder| call::sync_all(NAMED, &folder))
            .map_err(|error| explain(parent, "fsync", error))
    }

    /// Removes the file that this value has created.
    pub(crate) fn remove(&self) {
        let same = std::fs::symlink_metadata(&self.path).ok().zip(self.file.metadata().ok());
        if same.is_some_and(|(named, ours)| (named.dev(), named.ino()) == (ours.dev(), ours.ino()))
        {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// The open file.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The name it was opened by.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its bytes now.
    pub(crate) fn size(&self) -> io::Result<u64> {
        self.file.metadata().map(|found| found.len())
    }

    /// The same, found without a look at the file's times. Whoever asks for those makes the next
    /// write stamp them anew, which goes through the file system's journal: before each durable
    /// write it would cost a third of that write. The position it moves is used by nobody.
    fn end(&self) -> io::Result<u64> {
        Ok(rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0))?)
    }

    /// Notes that `len` bytes are mapped from now on.
    pub(crate) fn rely_on(&self, len: u64) {
        self.relied_on.store(len, Ordering::Relaxed);
    }

    /// Bytes that are mapped.
    pub(crate) fn relied_on(&self) -> u64 {
        self.relied_on.load(Ordering::Relaxed)
    }

    /// Whether the file is, or ever was found to be, shorter than what is mapped of it.
    pub(crate) fn cut_off(&self) -> bool {
        let known = self.cut_off.load(Ordering::Relaxed);
        if !known && self.end().is_ok_and(|end| end < self.relied_on()) {
            self.cut_off.store(true, Ordering::Relaxed);
            return true;
        }
        known
    }

    /// Refuses to write to a file that was cut off: that would lengthen it, and so hide it.
    fn refuse_cut_off(&self) -> io::Result<()> {
        if self.cut_off() {
            let text = "the file was cut off while in use";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        Ok(())
    }

    /// Bytes of it that have storage.
    pub(crate) fn allocated(&self) -> io::Result<u64> {
        self.file.metadata().map(|found| found.blocks().saturating_mul(512))
    }

    /// The first byte from `at` on that has storage; `at` itself if the system does not say.
    pub(crate) fn data_from(&self, at: u64) -> Option<u64> {
        match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
            // A device may answer whatever it is asked.
            Ok(found) => Some(found.max(at)),
            Err(Errno::NXIO) => None,
            Err(_) => Some(at),
        }
    }

    /// The device it lies on.
    pub(crate) fn device(&self) -> io::Result<u64> {
        self.file.metadata().map(|found| found.dev())
    }

    /// The file system's name.
    pub(crate) fn file_system(&self) -> &'static str {
        let number = self.file_system_number();
        let known = FILE_SYSTEMS.iter().find(|(known, _)| Some(*known) == number);
        known.map_or("other", |(_, name)| name)
    }

    /// Whether the file lives in memory only.
    pub(crate) fn is_memory(&self) -> bool {
        self.file_system_number().is_some_and(|number| IN_MEMORY.contains(&number))
    }

    fn file_system_number(&self) -> Option<i64> {
        rustix::fs::fstatfs(&self.file).ok().map(|stat| stat.f_type)
    }

    /// Takes a lock of the whole file, which the open file owns: it ends when it is given back, or
    /// with the last descriptor, in this process and in children that inherited it. One that is let
    /// go of in a moment is waited for.
    fn lock(&self, kind: Lock) -> Result<(), OpenError> {
        let mut left = TRIES;
        loop {
            let Err(error) = self.try_lock(kind) else { return Ok(()) };
            match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => {}
                // Where there are no locks, there are no writers that hold one.
                _ if kind == Lock::Read => return Ok(()),
                _ => return Err(explain(&self.path, "fcntl", error)),
            }
            // To find out who it is takes a look at all processes.
            let looks = left == TRIES || left == 0;
            let holder = if looks { self.holder() } else { None };
            if left == 0 || holder.is_some_and(|id| !is_child(id)) {
                let reads = kind == Lock::Write && !self.is_written_to();
                return Err(OpenError::Locked { path: self.path.clone(), holder, reads });
            }
            left -= 1;
            std::thread::sleep(NAP);
        }
    }

    fn try_lock(&self, kind: Lock) -> io::Result<()> {
        call::ask("fcntl", Errno::NOLCK)?;
        let wanted = kind.of_whole_file();
        // SAFETY: the structure lives across the call; the descriptor is open.
        let done =
            unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &raw const wanted) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Gives the lock back, if there is one, whoever else has the open file.
    pub(crate) fn unlock(&self) {
        let mut wanted = Lock::Read.of_whole_file();
        wanted.l_type = libc::F_UNLCK as libc::c_short;
        // SAFETY: the structure lives across the call; the descriptor is open. A refusal leaves the
        // lock to the end of the last descriptor.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &raw const wanted) };
    }

    /// Whether another open file holds the lock of a writer. Takes none, not even for a moment.
    pub(crate) fn is_written_to(&self) -> bool {
        let mut found = Lock::Read.of_whole_file();
        // SAFETY: the structure lives across the call; the descriptor is open.
        let done = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut found) };
        done == 0 && libc::c_int::from(found.l_type) != libc::F_UNLCK
    }

    /// A process that holds a lock of the file, other than through this value.
    pub(crate) fn holder(&self) -> Option<u32> {
        let ours = self.file.metadata().ok()?;
        let own = self.file.as_raw_fd();
        let mut left = MOST_LOOKED_AT;
        for process in std::fs::read_dir("/proc").ok()?.flatten() {
            let Some(id) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
            else {
                continue;
            };
            let Ok(open) = std::fs::read_dir(process.path().join("fd")) else { continue };
            for descriptor in open.flatten() {
                left = left.checked_sub(1)?;
                let is_own = id == std::process::id()
                    && descriptor.file_name().to_str() == Some(own.to_string().as_str());
                let Ok(found) = std::fs::metadata(descriptor.path()) else { continue };
                let same = (found.dev(), found.ino()) == (ours.dev(), ours.ino());
                if !is_own && same && holds_lock(&process.path(), &descriptor.file_name()) {
                    return Some(id);
                }
            }
        }
        None
    }

    /// Whether a write or sync has failed.
    pub(crate) fn failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// Lets the `nth` write or sync from now on fail (1 is the next).
    pub(crate) fn fail_in(&self, nth: u32) {
        self.fail_in.store(i64::from(nth) - 1, Ordering::Relaxed);
    }

    /// Writes and syncs that reached the system.
    pub(crate) fn issued(&self) -> u64 {
        self.issued.load(Ordering::Relaxed)
    }

    /// Writes `bytes` at `at` of the file; they are on stable storage on return.
    pub(crate) fn write_durably(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.once("pwritev2", || write_all(self.fd(), at, bytes, Some(site)))
    }

    /// Makes what was stored to the mapping durable.
    pub(crate) fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.once("fdatasync", || call::sync_data(site, &self.file))
    }

    /// Runs a write or sync unless one has failed before. A failure is for good: the kernel may
    /// have dropped the pages it could not write, so a success after it would prove nothing.
    fn once(
        &self,
        call: &'static str,
        run: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), SyncError> {
        self.refuse_failed(call)?;
        let result = if self.is_to_fail() {
            Err(Errno::IO.into())
        } else {
            self.refuse_cut_off().and_then(|()| {
                self.issued.fetch_add(1, Ordering::Relaxed);
                run()
            })
        };
        result.map_err(|source| {
            let _ =
                self.failure.set(Failure { call, kind: source.kind(), text: source.to_string() });
            SyncError { call, source }
        })
    }

    /// Refuses to go on after a failure.
    fn refuse_failed(&self, call: &'static str) -> Result<(), SyncError> {
        let Some(failure) = self.failure.get() else { return Ok(()) };
        let text = format!(
            "an earlier {} failed ({}), so nothing is written any more; reopen the pool",
            failure.call, failure.text
        );
        Err(SyncError { call, source: io::Error::new(failure.kind, text) })
    }

    fn is_to_fail(&self) -> bool {
        self.fail_in.load(Ordering::Relaxed) >= 0
            && self.fail_in.fetch_sub(1, Ordering::Relaxed) == 0
    }

    /// Rewrites one page of the file, durably. Its failure concerns this page alone.
    pub(crate) fn rewrite_page(&self, site: Site, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.refuse_cut_off()?;
        write_all(self.fd(), at, bytes, Some(site))
    }

    /// Changes bytes of the file, in no hurry.
    pub(crate) fn overwrite(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.refuse_cut_off()?;
        write_all(self.fd(), at, bytes, None)
    }

    /// Extends the file from `from` to `to` bytes; what it has beyond `from` is dropped first, so
    /// that new bytes are zero. Of somebody else's file nothing is dropped: what lies behind the
    /// last whole page is its own. How long it was then: what [`cut`](Self::cut) is to be given.
    pub(crate) fn extend(&self, from: u64, to: u64) -> Result<u64, SyncError> {
        self.refuse_failed("fdatasync")?;
        self.refuse_cut_off().map_err(|source| SyncError { call: "grow", source })?;
        let before = if self.foreign {
            let size = self.size().map_err(|source| SyncError { call: "fstat", source })?;
            lengthen(&self.file, size, to)
                .map_err(|source| SyncError { call: "fallocate", source })?;
            size
        } else {
            call::set_len(&self.file, from)
                .map_err(|source| SyncError { call: "ftruncate", source })?;
            if let Err(source) = allocate(self.fd(), from, to - from) {
                let _ = self.file.set_len(from);
                return Err(SyncError { call: "fallocate", source });
            }
            from
        };
        if !self.is_memory() {
            self.sync(GROWN)?;
        }
        Ok(before)
    }

    /// Drops what an extension to `to` bytes, which could not be mapped, has added to `before`.
    pub(crate) fn cut(&self, before: u64, to: u64) {
        // Somebody else's file that is longer by now has been written to.
        if !self.foreign || before < to && self.size().is_ok_and(|size| size == to) {
            let _ = self.file.set_len(before);
        }
    }

    /// Gives every hole in the first `len` bytes storage.
    pub(crate) fn fill_holes(&self, len: u64) -> Result<(), SyncError> {
        self.refuse_cut_off().map_err(|source| SyncError { call: "fallocate", source })?;
        allocate_so(self.fd(), FallocateFlags::empty(), 0, len)
            .map_err(|error| SyncError { call: "fallocate", source: error.into() })
    }
}

/// What a lock keeps out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lock {
    /// Everybody else who locks.
    Write,
    /// Writers.
    Read,
}

impl Lock {
    fn of_whole_file(self) -> libc::flock {
        // SAFETY: an all-zero flock is a valid value of the type: the whole file, from its start.
        let mut lock: libc::flock = unsafe { core::mem::zeroed() };
        let kind = if self == Self::Write { libc::F_WRLCK } else { libc::F_RDLCK };
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock
    }
}

/// Whether a descriptor of a process holds a lock, as the system tells of it.
fn holds_lock(process: &Path, descriptor: &OsStr) -> bool {
    let told = std::fs::read_to_string(process.join("fdinfo").join(descriptor));
    told.is_ok_and(|text| text.lines().any(|line| line.starts_with("lock:")))
}

/// Makes somebody else's file longer, from `from` bytes to `to`, with storage where the file system
/// can give it. Never cuts off what others add meanwhile; after an error it is as long as before.
fn lengthen(file: &File, from: u64, to: u64) -> io::Result<()> {
    if from >= to {
        return Ok(());
    }
    // First the storage, then the length: a disk that is full has changed no length then.
    let ways = [FallocateFlags::KEEP_SIZE, FallocateFlags::empty()];
    match ways.into_iter().try_for_each(|how| allocate_so(file.as_fd(), how, from, to - from)) {
        Err(Errno::OPNOTSUPP) if file.metadata()?.len() < to => call::set_len(file, to),
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(error) => {
            if file.metadata().is_ok_and(|found| found.len() == from) {
                // Gives storage back that lies behind the end.
                let _ = file.set_len(from);
            }
            Err(error.into())
        }
    }
}

/// Opens a file or a folder.
pub(crate) fn open_as(options: &OpenOptions, path: &Path) -> io::Result<File> {
    call::ask("open", Errno::MFILE)?;
    options.open(path)
}

/// Allocates, however often that is interrupted.
fn allocate_so(file: BorrowedFd<'_>, how: FallocateFlags, at: u64, len: u64) -> Result<(), Errno> {
    call::ask_of("fallocate", Errno::NOSPC, file)?;
    loop {
        match rustix::fs::fallocate(file, how, at, len) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Allocates a new range of a file, or writes it where the file system cannot allocate.
pub(crate) fn allocate(file: BorrowedFd<'_>, at: u64, len: u64) -> io::Result<()> {
    match allocate_so(file, FallocateFlags::empty(), at, len) {
        Err(Errno::OPNOTSUPP) => {}
        done => return Ok(done?),
    }
    let zeros = vec![0; ZEROS.min(usize::try_from(len).unwrap_or(ZEROS))];
    let mut done = 0;
    while done < len {
        let part = zeros.len().min((len - done) as usize);
        write_all(file, at + done, &zeros[..part], None)?;
        done += part as u64;
    }
    Ok(())
}

/// Writes all of `bytes`, durably if the place that wants it so is named. A short write is
/// continued; a failed one is not.
fn write_all(
    file: BorrowedFd<'_>,
    mut at: u64,
    mut bytes: &[u8],
    durable: Option<Site>,
) -> io::Result<()> {
    let flags = match durable {
        Some(site) if call::waits(site, file)? => ReadWriteFlags::DSYNC,
        _ => {
            call::ask_of("pwritev2", Errno::IO, file)?;
            ReadWriteFlags::empty()
        }
    };
    while !bytes.is_empty() {
        match rustix::io::pwritev2(file, &[IoSlice::new(bytes)], at, flags) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(done) => {
                at += done as u64;
                bytes = &bytes[done..];
            }
            // Interrupted before anything was written.
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn refuse_kind(path: &Path, found: &std::fs::Metadata) -> Result<(), OpenError> {
    let kind = found.file_type();
    if kind.is_file() {
        return Ok(());
    }
    if kind.is_dir() {
        return Err(OpenError::IsDirectory { path: path.into() });
    }
    let found = if kind.is_block_device() {
        "block device"
    } else if kind.is_char_device() {
        "character device"
    } else if kind.is_fifo() {
        "pipe"
    } else if kind.is_socket() {
        "socket"
    } else {
        "special file"
    };
    Err(OpenError::NotRegular { path: path.into(), found })
}

/// An open that was refused for writing may be a matter of the file alone.
fn explain_open(path: &Path, write: bool, error: io::Error) -> OpenError {
    let read_only = match error.raw_os_error() {
        Some(libc::EROFS) => true,
        Some(libc::EACCES | libc::EPERM) => write && File::open(path).is_ok(),
        _ => false,
    };
    if read_only {
        return OpenError::ReadOnlyFile { path: path.into() };
    }
    explain(path, "open", error)
}

pub(crate) fn explain(path: &Path, call: &'static str, error: io::Error) -> OpenError {
    let path = path.to_path_buf();
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => OpenError::NotFound { path },
        Some(libc::EEXIST) => OpenError::Exists { path },
        Some(libc::EISDIR) => OpenError::IsDirectory { path },
        Some(libc::EACCES | libc::EPERM) => OpenError::Permission { path },
        Some(libc::EROFS) => OpenError::ReadOnlyFile { path },
        _ => OpenError::Io { path, call, source: error },
    }
}

#[cfg(test)]
mod tests;
