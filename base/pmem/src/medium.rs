//! The seam to the medium: one trait, two worlds behind it.
//!
//! Everything above this crate reaches durable bytes through [`Medium`] only. The real mapping
//! (`Mapped`) and the faulty twin (`holdfast-faultmem`) implement it; code above is generic over
//! it and monomorphised, so that a hook the real medium does not need costs nothing.
//!
//! Addresses are byte offsets from the start of the pool, never pointers. Every access is checked
//! against the medium's length and answers a media error as a value: the library never takes a
//! signal while it holds a lock.

mod owned;

use core::fmt;

use crate::site::Site;

/// Bytes of a page: the unit of mapping, poison and repair.
pub const PAGE: u64 = 4096;

/// Puts of at most so many bytes keep their lines in the cache even where they cover them whole, on
/// CPUs that write lines back without dropping them. Measured on commits that overwrite one object
/// of a thousand: up to a page, what is stored will be read again, and a drain that waits for lines
/// around the cache costs more than flushing them.
pub const PUT_CACHED_MAX: usize = 4608;
/// Bytes of a cache line: the unit of flushing.
pub const LINE: u64 = 64;

/// What kind of storage lies behind a medium, and with it when a commit is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MediumKind {
    /// A direct-access mapping (`MAP_SYNC`): durable once flushed and fenced.
    Dax,
    /// An ordinary file behind the page cache: durable once synced.
    File,
    /// Shared memory (tmpfs, memfd), or durability against process crashes only.
    Shm,
}

impl fmt::Display for MediumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dax => "dax",
            Self::File => "file",
            Self::Shm => "shm",
        })
    }
}

/// Why bytes of the medium could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaCause {
    /// The range ends beyond the medium (a caller's error, or a hostile offset).
    OutOfRange,
    /// The hardware or the kernel refuses the page (poison, bad block).
    Poison,
    /// The file became shorter than the mapping.
    Truncated,
    /// Healing was tried and the page stays bad: it must be relocated.
    Unclearable,
    /// There is no room: a part without storage was to get some, and the file system is full, or a
    /// limit is reached. No damage.
    NoSpace,
}

/// An access that failed, with the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaError {
    /// First failing byte, as an offset into the pool.
    pub at: u64,
    /// Bytes known to be affected (a page for poison, the range asked for otherwise).
    pub len: u64,
    /// Why.
    pub cause: MediaCause,
}

impl MediaCause {
    /// Why a page could not be rewritten, by what the system says.
    pub(crate) fn of_rewrite(error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        match error.kind() {
            Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => Self::NoSpace,
            _ => Self::Unclearable,
        }
    }
}

impl fmt::Display for MediaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.cause {
            MediaCause::OutOfRange => "lies beyond the end of the medium",
            MediaCause::Poison => "cannot be read (media error)",
            MediaCause::Truncated => "was cut off: the file is shorter than its mapping",
            MediaCause::Unclearable => "stays bad after it was rewritten",
            MediaCause::NoSpace => "cannot be written (no room for it)",
        };
        write!(f, "range {:#x}+{:#x} {why}", self.at, self.len)
    }
}

impl std::error::Error for MediaError {}

/// A failed `write` or `sync` of the backing file. Never retried: the pages it covered may have
/// been dropped by the kernel, so a later success would prove nothing.
#[derive(Debug)]
pub struct SyncError {
    /// The system call that failed.
    pub call: &'static str,
    /// What the system said.
    pub source: std::io::Error,
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.call, self.source)
    }
}

impl std::error::Error for SyncError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Byte-addressable durable storage.
///
/// # Order
///
/// Nothing written is durable, and nothing written by one call is ordered against another, until
/// the *same thread* calls [`drain`](Medium::drain). A drain makes durable what this thread's
/// `put`, `xor` and `zero` calls flushed before it. On [`MediumKind::File`] a drain orders
/// nothing on the medium; there [`append`](Medium::append) and [`sync`](Medium::sync) do.
///
/// # Sites
///
/// Every call that persistence or integrity hangs on carries a [`Site`], a name for the place in
/// the code. The real medium ignores it; the faulty twin can switch it off, which is how tests
/// prove that each one is needed.
pub trait Medium: Send + Sync + fmt::Debug + 'static {
    /// Bytes in the medium now; grows only through [`grow`](Medium::grow).
    fn len(&self) -> u64;

    /// Whether the medium has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this process inherited the medium through a fork, and so cannot use it.
    #[inline(always)]
    fn inherited(&self) -> bool {
        false
    }

    /// Whether the file behind became shorter than what is mapped of it. Then nothing is written
    /// to it any more: what fails is no damage that a repair could do anything about. Asks the
    /// system, until it is so.
    fn cut_off(&self) -> bool {
        false
    }

    /// What lies behind, and so what makes a commit durable.
    fn kind(&self) -> MediumKind;

    /// Copies `into.len()` bytes at `at` into DRAM.
    ///
    /// # Errors
    /// A [`MediaError`] if any page of the range is bad; the contents of `into` are then
    /// unspecified.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError>;

    /// Stores `bytes` at `at` and flushes the lines touched (`site` names the flush). Aligned
    /// 8-byte words are stored whole.
    ///
    /// Long runs of whole lines go around the cache. Such stores are not ordered against later
    /// ones, not even as other threads of this process see them: drain before storing anything
    /// that lets others read the bytes (a released lock, a raised version).
    ///
    /// # Errors
    /// A [`MediaError`]; part of the range may have been stored.
    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError>;

    /// As [`put`](Medium::put), for bytes that nobody is going to read soon (log records): goes
    /// around the cache where that is cheaper, also where a `put` would not.
    ///
    /// # Errors
    /// As [`put`](Medium::put).
    #[inline]
    fn put_aside(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.put(site, at, bytes)
    }

    /// Whether a [`put`](Medium::put) of `len` bytes goes through the cache. Other threads see it
    /// before anything its thread stores later, and whoever flushes its lines again and drains
    /// has made it durable.
    fn put_is_cached(&self, len: u64) -> bool;

    /// XORs `delta` into the bytes at `at` and flushes the lines touched. Through the cache, as
    /// [`put_is_cached`](Medium::put_is_cached) says. Not atomic: the caller holds the column.
    ///
    /// # Errors
    /// A [`MediaError`]; part of the range may have been changed.
    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        let mut bytes = vec![0; delta.len()];
        self.read(at, &mut bytes)?;
        holdfast_codes::xor_into(&mut bytes, delta);
        self.put(site, at, &bytes)
    }

    /// Stores `len` zero bytes at `at` and flushes the lines touched. Other threads see them as
    /// late as those of a [`put`](Medium::put).
    ///
    /// # Errors
    /// A [`MediaError`]; part of the range may have been zeroed.
    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError>;

    /// Waits until everything this thread flushed is on the medium.
    fn drain(&self, site: Site);

    /// Whether the step named by `site` is to be done. Always true on a real medium.
    #[inline(always)]
    fn enabled(&self, site: Site) -> bool {
        let _ = site;
        true
    }

    /// Tells the medium that this thread is about to execute a locked instruction (an atomic
    /// read-modify-write), which acts as a drain if flushes are outstanding. Only counted.
    #[inline(always)]
    fn locked(&self) {}

    /// Hook at a named step of a protocol: nothing on a real medium. Tests park, kill or crash
    /// a thread here.
    #[inline(always)]
    fn step(&self, site: Site) {
        let _ = site;
    }

    /// Announces that this thread is about to store a number of times: a medium whose write
    /// protection opens per thread or per window opens it here once, instead of for each store.
    /// Paired with [`end_write`](Medium::end_write); not needed for correctness.
    #[inline(always)]
    fn begin_write(&self) {}

    /// Ends what [`begin_write`](Medium::begin_write) began. One too many is harmless to a thread
    /// that is alone; where all threads share the gate (`mprotect`) it ends another's window, whose
    /// next store then fails.
    #[inline(always)]
    fn end_write(&self) {}

    /// Hints that durable writes to the range will follow. Where its storage is allocated but was
    /// never written, the first write of each block costs the file system a commit of its own;
    /// this pays for all of them at once. Changes no byte, and makes nothing durable that a caller
    /// could rely on. Nobody stores to the range meanwhile.
    fn prepare(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// Hints that the lines of `[at, at + len)` will be used soon.
    #[inline(always)]
    fn prefetch(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// Writes `bytes` at `at` through the file and returns once they are on stable storage
    /// (one `pwritev2` with `RWF_DSYNC`). Only for [`MediumKind::File`]; elsewhere it is a
    /// `put` followed by a `drain`.
    ///
    /// # Errors
    /// A [`SyncError`]; the caller must stop writing to the pool for good.
    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError>;

    /// Makes every earlier store to the mapping durable (`fdatasync`). Only for
    /// [`MediumKind::File`]; elsewhere it is a `drain`.
    ///
    /// # Errors
    /// A [`SyncError`]; the caller must stop writing to the pool for good.
    fn sync(&self, site: Site) -> Result<(), SyncError>;

    /// Makes every earlier store durable against the loss of power whatever the kind, also what
    /// an earlier opening of another kind has left in some cache. For the moment in which what is
    /// promised about the medium changes.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    fn sync_through(&self, site: Site) -> Result<(), SyncError> {
        self.sync(site)
    }

    /// Address of `[at, at + len)` in the program's view (read-only where the pool is protected),
    /// or `None` if it lies outside. Loads through it may meet media errors: they are healed by
    /// the handler, or the process dies of them as it would with any mapped file.
    fn view(&self, at: u64, len: u64) -> Option<*const u8>;

    /// Extends the medium to `len` bytes; addresses handed out stay valid. New bytes are zero.
    ///
    /// # Errors
    /// A [`SyncError`] naming the call (no space, no reserved address range left).
    fn grow(&self, len: u64) -> Result<(), SyncError>;

    /// Rewrites the whole page at `at` (page-aligned, `bytes` is one page) and clears its poison
    /// if the platform can. Durable on return.
    ///
    /// # Errors
    /// [`MediaCause::Unclearable`] if the page stays bad: relocate its frame.
    /// [`MediaCause::NoSpace`] if it has no storage and gets none.
    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError>;

    /// From now on the frame `[at, at + len)` is served from the file range at `physical`. Frames
    /// are multiples of a page. Contents are not moved.
    ///
    /// # Errors
    /// A [`MediaError`] if either range is outside the medium or cannot be mapped.
    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError>;

    /// From now on the page at `at` (page-aligned, `bytes` is one page) is served from memory of
    /// this process, which holds `bytes`: a *stand-in* for a page that stays bad. What is stored
    /// there is as visible as anywhere and never durable, whatever is drained or synced: only who
    /// has it from elsewhere may rely on it. Lasts until the frame is served from elsewhere
    /// ([`remap`](Self::remap)) or the medium is let go of; until then healing the page is refused.
    /// Observers in other processes see the bad page.
    ///
    /// # Errors
    /// A [`MediaError`] if there can be none.
    fn stand_in(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        let _ = bytes;
        Err(MediaError { at, len: PAGE, cause: MediaCause::Unclearable })
    }

    /// Ranges of the pool that the platform lists as bad, page-aligned, ascending.
    fn bad_ranges(&self) -> Vec<(u64, u64)>;

    /// The first byte from `at` on that has storage, `None` if there is none: all before it read as
    /// zeros. Where nobody can say, it is `at`. Of a private copy, that of its file.
    fn storage_from(&self, at: u64) -> Option<u64> {
        (at < self.len()).then_some(at)
    }
}
