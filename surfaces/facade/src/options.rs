//! How a pool is made and opened: every policy is a value, and every value has a default.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_layout::SumKind;
use holdfast_object::{CreateOptions, OpenOptions, Parity, VerifyReads};
use holdfast_pmem::{
    Access, Durability, Mapped, Medium, MediumKind, OpenError, Options as MapOptions, Protect,
};

use holdfast_redundancy::Schedule;

use crate::background::Background;
use crate::clock::WallClock;
use crate::error::{Error, ErrorKind, Result};
use crate::pool::Pool;

/// What the system counts the room of files in.
const BLOCK: u64 = 512;
/// How long a pool that is to be opened for writing waits for those who only read its file,
const READERS_WAIT: Duration = Duration::from_secs(3);
/// and how often it looks.
const READERS_LOOK: Duration = Duration::from_millis(5);
/// Longest label.
pub const LABEL_MAX: usize = holdfast_layout::superblock::LABEL_LEN;

/// Builder for pools: [`Pool::options`].
///
/// ```
/// use holdfast::{Parity, Pool, VerifyReads};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("bank.pool");
/// let pool = Pool::options()
///     .size(32 << 20)
///     .parity(Parity::PQ)
///     .verify_reads(VerifyReads::Always)
///     .label("bank")
///     .create(&path)?;
/// assert_eq!(pool.superblock().label, "bank");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    create: CreateOptions,
    open: OpenOptions,
    map: MapOptions,
    uuid: Option<[u8; 16]>,
    heal_loads: bool,
    commands: bool,
    scrub: Schedule,
    scrub_rate: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: CreateOptions::default(),
            open: OpenOptions::default(),
            map: MapOptions::default(),
            uuid: None,
            heal_loads: true,
            commands: true,
            scrub: Schedule::default(),
            scrub_rate: None,
        }
    }
}

/// Defines setters that take and give back the builder.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($value:ident: $type:ty) $place:expr;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $value: $type) -> Self {
            let place: fn(&mut Self) -> &mut $type = $place;
            *place(&mut self) = $value;
            self
        }
    )*};
}

impl Options {
    setters! {
        /// Bytes of a new pool, all its parts included. Default 64 MiB.
        size(bytes: u64) |o| &mut o.create.size;
        /// Parity of a new pool. Default P: any one lost page of a column is rebuilt.
        parity(parity: Parity) |o| &mut o.create.parity;
        /// Sums of objects in a new pool. Default CRC-32C.
        sums(kind: SumKind) |o| &mut o.create.sums;
        /// Whether a new pool keeps metadata and log twice. Default yes.
        metadata_copies(twice: bool) |o| &mut o.create.metadata_copies;
        /// Rows of a zone, parity included: the price of parity is one row in so many. Default
        /// 100 where there is room.
        rows(rows: u32) |o| &mut o.create.rows;
        /// Bytes of a frame: the largest contiguous loss a new pool survives. Default 2 MiB; pools
        /// of less than 16 MiB need smaller ones, down to 4 KiB.
        frame(bytes: u64) |o| &mut o.create.frame;
        /// Bytes of a heap chunk of a new pool; 0, the default, chooses by size.
        chunk(bytes: u64) |o| &mut o.create.chunk;
        /// Transactions that can run at once in a new pool; 0, the default, chooses.
        lanes(count: u32) |o| &mut o.create.lanes;
        /// Bytes of log in each copy of a new pool; 0, the default, chooses by medium.
        log(bytes: u64) |o| &mut o.create.log;
        /// Bytes of the events journal in each copy of a new pool.
        events(bytes: u64) |o| &mut o.create.events;
        /// Whether faults may be injected into a new pool on purpose. Default no.
        allow_inject(yes: bool) |o| &mut o.create.allow_inject;
        /// When reads verify. Default once after open; opening for change always verifies.
        verify_reads(policy: VerifyReads) |o| &mut o.open.verify;
        /// Whether guard words around private copies are checked at commit. Default yes.
        guards(yes: bool) |o| &mut o.open.guards;
        /// Whether changes outside declared ranges are refused. Default no.
        debug_ranges(yes: bool) |o| &mut o.open.debug_ranges;
        /// Which crashes a commit is to survive. Default whatever the medium can survive.
        durability(durability: Durability) |o| &mut o.map.durability;
        /// Protection of the mapping against stray stores of the program. Default the strongest
        /// that needs no system call per commit.
        protection(protection: Protect) |o| &mut o.map.protection;
        /// Address space to reserve for growth; `None`, the default, is 64 times the size.
        reserve(bytes: Option<u64>) |o| &mut o.map.reserve;
        /// Whether plain loads that meet a media error wait for its repair, which takes a thread.
        /// Default yes; without, the process dies of them as with any mapped file.
        heal_loads(yes: bool) |o| &mut o.heal_loads;
        /// Whether operators' commands reach this process while it has the pool open: a local
        /// socket that answers the same user only. Default yes.
        commands(yes: bool) |o| &mut o.commands;
        /// Scrubs by itself whenever so many transactions were committed since the last pass
        /// began. Default never.
        scrub_after_transactions(count: Option<u64>) |o| &mut o.scrub.every_transactions;
        /// Bytes per second that scrubs of its own may read. Default as many as it can.
        scrub_rate(bytes: Option<u64>) |o| &mut o.scrub_rate;
        /// Identity of a new pool; chosen at random unless given.
        uuid(uuid: Option<[u8; 16]>) |o| &mut o.uuid;
    }

    /// Scrubs by itself whenever this long passed since the last pass began. Default never.
    ///
    /// A pass that runs when the last handle of the pool is dropped is paused, and goes on at the
    /// next one; the pool is closed, and its file unlocked, once it has stopped.
    #[must_use]
    pub fn scrub_every(mut self, time: Option<Duration>) -> Self {
        let nanoseconds = |t: Duration| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX);
        self.scrub.every_ns = time.map(nanoseconds);
        self
    }

    /// A name for people, at most 64 bytes of it.
    #[must_use]
    pub fn label(mut self, text: impl Into<String>) -> Self {
        self.create.label = text.into();
        self
    }

    /// Creates the file `path` with a new, empty pool, and opens it.
    ///
    /// # Errors
    /// The file exists, the options make no pool, or there is no space; a file that could not be
    /// completed is removed.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Pool> {
        let path = path.as_ref();
        self.check(path)?;
        let mapped = Mapped::create(path, self.bytes(), &self.map)
            .map_err(|error| Error::from(error).at(path))?;
        match self.create_on(mapped) {
            Ok(pool) => Ok(self.serve(pool.of(path))),
            Err(error) => {
                // Ours: `create` above made it and nobody else could have opened it for writing.
                let _ = std::fs::remove_file(path);
                Err(error.at(path))
            }
        }
    }

    /// Opens the pool in the file `path` for reading and writing, recovering it first if it was
    /// not closed. One process at a time.
    ///
    /// # Errors
    /// The file is missing, no pool, of a newer version, cut off, in use, or damaged beyond its
    /// redundancy in what everything else depends on. It was not changed then.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Pool> {
        let path = path.as_ref();
        let mapped = self.map(path, Access::Write)?;
        self.look(path, &mapped)?;
        mapped.fill_holes().map_err(|error| Error::from(error).at(path))?;
        let pool = self.open_on(mapped).map_err(|error| error.at(path))?;
        Ok(self.serve(pool.of(path)))
    }

    /// Opens the pool for reading; the file is never changed, not even to recover it. What was
    /// not closed is recovered in memory, and so is damage repaired.
    ///
    /// # Errors
    /// As [`open`](Self::open). While another process has the pool open for writing, it cannot be
    /// read like this; [`Observer`](crate::Observer) shows its state. And nobody can open it for
    /// writing until this pool is dropped.
    pub fn open_read_only(&self, path: impl AsRef<Path>) -> Result<Pool> {
        let pool = self.open_private(path)?;
        pool.engine().stop_writing();
        Ok(pool)
    }

    /// Opens the pool on pages of this process' own: everything works, nothing reaches the file.
    /// For dry runs.
    ///
    /// # Errors
    /// As [`open_read_only`](Self::open_read_only).
    pub fn open_private(&self, path: impl AsRef<Path>) -> Result<Pool> {
        let path = path.as_ref();
        let mapped = self.map(path, Access::PrivateCopy)?;
        self.look(path, &mapped)?;
        room_to_read(path, &mapped)?;
        let pool = self.open_on(mapped).map_err(|error| error.at(path))?;
        Ok(pool.of(path))
    }

    /// Creates a pool on any medium, an empty one.
    ///
    /// # Errors
    /// The options make no pool, or whatever the medium answers.
    pub fn create_on<M: Medium>(&self, medium: M) -> Result<Pool<M>> {
        let uuid = match self.uuid {
            Some(uuid) => uuid,
            None => random_uuid()?,
        };
        let options = CreateOptions { uuid, size: self.bytes(), ..self.create.clone() };
        let clock = Arc::new(WallClock::new());
        let engine = holdfast_object::Pool::create(medium, &options, self.open, clock)?;
        Ok(Pool::new(engine, holdfast_object::Opened { clean: true, ..Default::default() }))
    }

    /// Opens the pool on any medium.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on<M: Medium>(&self, medium: M) -> Result<Pool<M>> {
        let clock = Arc::new(WallClock::new());
        let (engine, opened) = holdfast_object::Pool::open(medium, self.open, clock)?;
        Ok(Pool::new(engine, opened))
    }

    /// Maps the file. A writer waits a little for those who only read it: most are soon done.
    fn map(&self, path: &Path, access: Access) -> Result<Mapped> {
        let options = MapOptions { keep_still: true, ..self.map };
        let begun = Instant::now();
        loop {
            match Mapped::open(path, access, &options) {
                Err(OpenError::Locked { reads: true, .. }) if begun.elapsed() < READERS_WAIT => {
                    std::thread::sleep(READERS_LOOK);
                }
                other => return other.map_err(|error| Error::from(error).at(path)),
            }
        }
    }

    /// Removes the file of a pool; see [`Pool::remove`].
    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        let found = std::fs::symlink_metadata(path);
        if found.is_ok_and(|found| found.is_symlink()) {
            let error = Error::new(ErrorKind::NotAFile, "is a link to a file");
            return Err(error.with_remedy("name the file itself").at(path));
        }
        let locked = self.map(path, Access::Write)?;
        if let Err(error) = self.look(path, &locked)
            && error.kind() != ErrorKind::Truncated
        {
            return Err(error);
        }
        std::fs::remove_file(path).map_err(|error| {
            let kind = match error.kind() {
                std::io::ErrorKind::PermissionDenied => ErrorKind::Permission,
                std::io::ErrorKind::NotFound => ErrorKind::NotFound,
                _ => ErrorKind::System,
            };
            Error::new(kind, format!("cannot be removed: {error}")).at(path)
        })
    }

    /// Whole pages, one at least: how many it takes is then told by whoever lays the pool out.
    fn bytes(&self) -> u64 {
        (self.create.size / holdfast_pmem::PAGE).max(1) * holdfast_pmem::PAGE
    }

    fn check(&self, path: &Path) -> Result<()> {
        let len = self.create.label.len();
        if len > LABEL_MAX {
            let text = format!("a label of {len} bytes is longer than {LABEL_MAX}");
            return Err(Error::new(ErrorKind::Invalid, text).at(path));
        }
        Ok(())
    }

    /// What is no pool of ours is told apart before a byte of it is touched.
    fn look(&self, path: &Path, mapped: &Mapped) -> Result<()> {
        let found = holdfast_redundancy::read_superblock(mapped)
            .map_err(|error| Error::from(error).at(path))?;
        let (pool, file) = (found.superblock.size, mapped.len());
        if file < pool {
            let error = holdfast_object::Error::Truncated { pool, file };
            return Err(Error::from(error).at(path));
        }
        Ok(())
    }

    fn serve(&self, pool: Pool) -> Pool {
        Background::start(&pool, self.heal_loads, self.commands, (self.scrub, self.scrub_rate));
        pool
    }
}

/// In memory file systems, even loads of a hole take a page. Where there is none, every hole would
/// look like a page that cannot be read: the answer is that, not a list of damages.
fn room_to_read(path: &Path, mapped: &Mapped) -> Result<()> {
    if mapped.kind() != MediumKind::Shm {
        return Ok(());
    }
    let (Ok(found), Ok(system)) = (std::fs::metadata(path), rustix::fs::statvfs(path)) else {
        return Ok(());
    };
    let missing = mapped.len().saturating_sub(found.blocks().saturating_mul(BLOCK));
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    if missing <= free {
        return Ok(());
    }
    let text = format!(
        "reading the holes in the file takes {missing} bytes of its file system, which has {free}"
    );
    let error = Error::new(ErrorKind::NoSpace, text);
    Err(error.with_remedy("make room there, or copy the pool to another file system").at(path))
}

/// A random identity, by the rules for such numbers (version 4).
pub(crate) fn random_uuid() -> Result<[u8; 16]> {
    let mut uuid = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut uuid))
        .map_err(|error| {
            Error::new(ErrorKind::System, format!("no random identity for the pool: {error}"))
                .with_remedy("make /dev/urandom readable, or give the pool a uuid")
        })?;
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}
