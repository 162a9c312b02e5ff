//! The real medium: one file, mapped.

mod repair;
mod serve;

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::asm::Stores;
use crate::badblocks::{Device, PersistenceDomain};
use crate::cpu::{Cpu, FlushInstruction};
use crate::error::OpenError;
use crate::faults::FaultMailbox;
use crate::file::{Backing, explain};
use crate::fork::Stamp;
use crate::frames::Frames;
use crate::handler;
use crate::inject::Poison;
use crate::keys::Key;
use crate::medium::{MediumKind, PAGE, SyncError};
use crate::options::{Access, Durability, Options, Protect, Protection};
use crate::registry::Registration;
use crate::space::{Plan, Sharing, Space, can_sync};
use crate::status::Status;

/// Where the system describes its devices.
pub(crate) const SYSFS: &str = "/sys";
/// Addresses are reserved in multiples of this (the largest page a view is mapped by).
const SPAN_STEP: u64 = 2 << 20;
/// Reserved by default: this many times the size of the file,
const RESERVE_FACTOR: u64 = 64;
/// but, beyond the size itself, not more than this.
const RESERVE_MOST: u64 = 1 << 40;
/// No file larger than this can be mapped: user space has 2^47 bytes, and there are two views.
pub(crate) const LARGEST: u64 = 1 << 45;

/// A mapped file: the real [`Medium`](crate::Medium).
///
/// ```
/// use holdfast_pmem::{Access, Mapped, Medium, Options, Site};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("bytes");
/// let medium = Mapped::create(&path, 1 << 20, &Options::default())?;
/// medium.put(Site::new("example.put"), 4096, b"kept")?;
/// medium.drain(Site::new("example.drain"));
/// medium.sync(Site::new("example.sync"))?;
/// drop(medium);
///
/// let medium = Mapped::open(&path, Access::ReadOnly, &Options::default())?;
/// let mut found = [0; 4];
/// medium.read(4096, &mut found)?;
/// assert_eq!(&found, b"kept");
/// # Ok(())
/// # }
/// ```
pub struct Mapped {
    space: Space,
    kind: MediumKind,
    access: Access,
    /// Whether a drain has anything to wait for.
    fenced: bool,
    stamp: Stamp,
    /// Whether `frames` is anything but the identity.
    moved: AtomicBool,
    layout: Mutex<Layout>,
    registration: Arc<Registration>,
    domain: PersistenceDomain,
    backing: Backing,
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Addresses are left out: that of the alias is nobody's business.
        f.debug_struct("Mapped")
            .field("path", &self.backing.path())
            .field("kind", &self.kind)
            .field("access", &self.access)
            .field("len", &self.space.len())
            .field("protection", &self.protection())
            .finish_non_exhaustive()
    }
}

/// What lies where, and what of it is made to fail.
#[derive(Debug, Default)]
struct Layout {
    frames: Frames,
    /// Poisoned pages of the file.
    holes: BTreeMap<u64, Poison>,
    /// Pages of the pool that memory stands in for.
    stand_ins: BTreeSet<u64>,
}

impl Mapped {
    /// Creates the file `path` with `len` bytes (a positive multiple of a page), all of them zero
    /// and allocated, and maps it for writing. The file is readable by its owner only.
    ///
    /// # Errors
    /// An [`OpenError`] that names cause and remedy; an existing file is never touched, and a file
    /// that could not be completed is removed.
    pub fn create(path: &Path, len: u64, options: &Options) -> Result<Self, OpenError> {
        if len > LARGEST {
            return Err(OpenError::BadLength { len });
        }
        let backing = Backing::create(path, len)?;
        match Parts::map(&backing, len, Access::Write, options) {
            Ok(parts) => {
                if backing.is_memory() {
                    parts.space.gather(0, len);
                }
                Ok(Self::of(backing, parts))
            }
            Err(error) => {
                backing.remove();
                Err(error)
            }
        }
    }

    /// Maps the existing file `path`. What exceeds the last whole page is left out.
    ///
    /// A writer holds the lock until the value is dropped; a forked child holds it as well, for as
    /// long as it lives and has not replaced itself by another program.
    ///
    /// # Errors
    /// An [`OpenError`] that names cause and remedy. The file is never changed by a failed open.
    pub fn open(path: &Path, access: Access, options: &Options) -> Result<Self, OpenError> {
        let backing = Backing::open(path, access, options.keep_still)?;
        Self::map_all(backing, path, access, options)
    }

    /// Maps a file for writing that is open, whatever the name leads to by now.
    pub(crate) fn over(file: &File, path: &Path, options: &Options) -> Result<Self, OpenError> {
        Self::map_all(Backing::over(file, path)?, path, Access::Write, options)
    }

    fn map_all(
        backing: Backing,
        path: &Path,
        access: Access,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let backing = backing.belonging(options.foreign);
        let size = backing.size().map_err(|error| explain(path, "fstat", error))?;
        let len = size - size % PAGE;
        if len > LARGEST {
            return Err(OpenError::BadLength { len });
        }
        let parts = Parts::map(&backing, len, access, options)?;
        Ok(Self::of(backing, parts))
    }

    fn of(backing: Backing, parts: Parts) -> Self {
        let Parts { space, registration, access, kind, domain } = parts;
        backing.rely_on(space.len());
        Self {
            kind,
            access,
            fenced: space.plan().stores != Stores::Plain || kind == MediumKind::Dax,
            stamp: space.plan().stamp,
            moved: AtomicBool::new(false),
            layout: Mutex::default(),
            registration: Arc::new(registration),
            domain,
            backing,
            space,
        }
    }

    /// Who has the file `path` open for writing: nobody, or a process, by its number where the
    /// system shows it. Nothing is locked for it.
    ///
    /// # Errors
    /// The file cannot be opened for reading.
    pub fn writer_of(path: &Path) -> Result<Option<Option<u32>>, OpenError> {
        let backing = Backing::open(path, Access::ReadOnly, false)?;
        Ok(backing.is_written_to().then(|| backing.holder()))
    }

    /// Whether this process is a forked child of the one that opened the file. Such a child has no
    /// mapping: every access answers an error. One load and one compare.
    #[inline(always)]
    #[must_use]
    pub fn forked(&self) -> bool {
        self.stamp.forked()
    }

    /// Whether a write or sync of the file has failed. None is done after that.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.backing.failed()
    }

    /// Writes and syncs of the file that reached the system so far.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.backing.issued()
    }

    /// The protection against stray stores that is in force.
    #[must_use]
    pub fn protection(&self) -> Protection {
        self.space.plan().protection
    }

    /// How the file was opened.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// What is in force, for reports.
    #[must_use]
    pub fn status(&self) -> Status {
        let plan = self.space.plan();
        Status {
            kind: self.kind,
            file_system: self.backing.file_system(),
            access: self.access,
            domain: self.domain,
            cpu: Cpu::detect(),
            flushes: plan.stores != Stores::Plain,
            protection: plan.protection,
            len: self.space.len(),
            reserved: self.space.span(),
            relocated: self.relocated(),
            failed: self.failed(),
        }
    }

    /// A mailbox for the faults of this mapping. From now until the last one is dropped, loads by
    /// the program that meet a media error wait for an answer.
    #[must_use]
    pub fn faults(&self) -> FaultMailbox {
        FaultMailbox::new(Arc::clone(&self.registration))
    }

    /// Gives storage to holes of the file (it was copied sparsely), so that no later store dies of
    /// a full disk. Call it once the file is known to be ours. Does nothing without write access.
    ///
    /// # Errors
    /// A [`SyncError`] naming the call: there is no space.
    pub fn fill_holes(&self) -> Result<(), SyncError> {
        let len = self.space.len();
        let allocated =
            self.backing.allocated().map_err(|source| SyncError { call: "fstat", source })?;
        if self.access != Access::Write || allocated >= len {
            return Ok(());
        }
        self.backing.fill_holes(len)
    }

    #[cfg(test)]
    pub(crate) fn space_bases(&self) -> (usize, usize) {
        self.space.bases()
    }

    /// The address through which stores reach the file, the program's where it may store.
    pub(crate) fn store_base(&self) -> usize {
        let (view, alias) = self.space.bases();
        if alias == 0 { view } else { alias }
    }

    pub(crate) fn backing(&self) -> &Backing {
        &self.backing
    }

    fn layout(&self) -> MutexGuard<'_, Layout> {
        self.layout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Relocated ranges. A forked child must not wait for a lock: its holder may not exist there.
    fn relocated(&self) -> usize {
        if self.forked() { 0 } else { self.layout().frames.count() }
    }

    fn is_moved(&self) -> bool {
        self.moved.load(Ordering::Acquire)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // First hidden from the handler; then the fields go, and with them the addresses.
        self.registration.retire();
        // A child that was forked for another program has the open file until it runs that; in one
        // that goes on with this program, the lock is its parent's.
        if !self.forked() {
            self.backing.unlock();
        }
    }
}

/// What mapping a file yields.
struct Parts {
    space: Space,
    registration: Registration,
    access: Access,
    kind: MediumKind,
    domain: PersistenceDomain,
}

impl Parts {
    /// Maps the first `len` bytes of a file.
    fn map(
        backing: &Backing,
        len: u64,
        access: Access,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let failed = |call| move |error: io::Error| explain(backing.path(), call, error);
        handler::install().map_err(failed("sigaction"))?;
        let stamp = Stamp::take().map_err(failed("madvise"))?;
        let kind = kind_of(backing, options.durability);
        let domain = domain_of(backing, kind);
        let plan = Plan {
            len,
            span: span_of(len, options.reserve),
            sharing: match (access, kind) {
                (Access::PrivateCopy, _) => Sharing::Private,
                (_, MediumKind::Dax) => Sharing::Sync,
                _ => Sharing::Shared,
            },
            protection: protection_of(access, options.protection)?,
            stores: stores_of(access, kind, domain, options.durability),
            wide: Cpu::detect().wide,
            stamp,
        };
        let space = reserve(plan).map_err(failed("mmap"))?;
        space.place(backing.fd(), 0, 0, len).map_err(failed("mmap"))?;
        let (view, alias) = space.bases();
        let registration =
            Registration::claim(view, alias, space.span() as usize, len as usize, stamp.number())
                .ok_or(OpenError::TooManyMappings)?;
        space.set_len(len);
        Ok(Self { space, registration, access, kind, domain })
    }
}

fn kind_of(backing: &Backing, durability: Durability) -> MediumKind {
    if durability == Durability::Process || backing.is_memory() {
        MediumKind::Shm
    } else if can_sync(backing.fd(), PAGE as usize) {
        MediumKind::Dax
    } else {
        MediumKind::File
    }
}

fn domain_of(backing: &Backing, kind: MediumKind) -> PersistenceDomain {
    match (kind, backing.device()) {
        (MediumKind::Dax, Ok(number)) => Device::new(Path::new(SYSFS), number).persistence_domain(),
        _ => PersistenceDomain::Unknown,
    }
}

fn protection_of(access: Access, asked: Protect) -> Result<Protection, OpenError> {
    match access {
        Access::ReadOnly => return Ok(Protection::ReadOnly),
        // Two views of private pages would not show the same bytes.
        Access::PrivateCopy => return Ok(Protection::None),
        Access::Write => {}
    }
    match asked {
        Protect::Auto if Key::get().is_some() => Ok(Protection::Keys),
        Protect::Auto | Protect::Alias => Ok(Protection::Alias),
        Protect::Keys if Key::get().is_some() => Ok(Protection::Keys),
        Protect::Keys => Err(OpenError::Unsupported {
            what: "protection keys",
            instead: "choose the alias, which costs about as much",
        }),
        Protect::Mprotect => Ok(Protection::Mprotect),
        Protect::None => Ok(Protection::None),
    }
}

/// Flushes are skipped where they do nothing (page cache, private copy), where the platform states
/// that its caches survive a power cut, and where only the death of the process is to be survived,
/// which leaves the caches as they are; there alone.
fn stores_of(
    access: Access,
    kind: MediumKind,
    domain: PersistenceDomain,
    durability: Durability,
) -> Stores {
    let plain = access == Access::PrivateCopy
        || durability == Durability::Process
        || kind == MediumKind::File
        || (kind == MediumKind::Dax && domain == PersistenceDomain::CpuCache);
    let cpu = Cpu::detect();
    match cpu.flush {
        _ if plain => Stores::Plain,
        FlushInstruction::Clwb if cpu.wide => Stores::Wide,
        FlushInstruction::Clwb => Stores::Clwb,
        FlushInstruction::Clflushopt => Stores::Clflushopt,
        FlushInstruction::Clflush => Stores::Clflush,
    }
}

fn span_of(len: u64, asked: Option<u64>) -> u64 {
    let wanted = asked.unwrap_or(len.saturating_mul(RESERVE_FACTOR).min(RESERVE_MOST));
    wanted.clamp(len, LARGEST).next_multiple_of(SPAN_STEP)
}

/// Reserves what the plan wants or, where addresses are scarce, less, down to the file itself.
fn reserve(mut plan: Plan) -> io::Result<Space> {
    let least = plan.len.next_multiple_of(SPAN_STEP);
    loop {
        match Space::reserve(plan) {
            // A program checker that keeps addresses for itself calls a range too long invalid.
            Err(error) if scarce(&error) && plan.span > least => {
                plan.span = (plan.span / 2).next_multiple_of(SPAN_STEP).max(least);
            }
            result => return result,
        }
    }
}

fn scarce(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EINVAL))
}
