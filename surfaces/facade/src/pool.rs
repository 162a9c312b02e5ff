//! The pool as users see it: the engine, a path, and threads that serve it.

use core::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use holdfast_layout::{Persist, Ptr, RawPtr, Region, Superblock};
use holdfast_object::{Anchor, Begun, CheckReport, Opened, RawView, Stats, VerifyReads, View};
use holdfast_pmem::{Mapped, Medium};
use holdfast_redundancy::{Error as RedundancyError, Event, Journal};
use holdfast_txn::{Isolation, Store};

use crate::Tx;
use crate::background::Background;
use crate::error::{Error, Result};
use crate::latency::{Latencies, Latency};
use crate::options::Options;
use crate::scrubbing::Scrubbing;

/// An open pool: objects in one file, changed by transactions, checked and repaired in use. Cheap
/// to clone; when the last clone goes, the pool is closed.
///
/// ```
/// use holdfast::{Persist, Pool, Ptr, Transaction};
///
/// #[derive(Clone, Copy, Persist)]
/// #[repr(C)]
/// struct Account {
///     balance: i64,
///     next: Ptr<Account>,
/// }
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("bank.pool");
/// let pool = Pool::options().size(16 << 20).create(&path)?;
/// let first = pool.run(|tx| {
///     let first = tx.alloc(Account { balance: 100, next: Ptr::null() })?;
///     tx.set_root(first)?;
///     Ok(first)
/// })?;
/// pool.run(|tx| {
///     let mut account = tx.open_mut(first)?; // a verified private copy
///     account.balance += 10;
///     account.next = tx.alloc(Account { balance: 0, next: Ptr::null() })?;
///     Ok(())
/// })?; // durable, checksummed, covered by parity, or untouched
/// drop(pool);
///
/// let pool = Pool::open(&path)?;
/// assert_eq!(pool.read(pool.root::<Account>()?)?.balance, 110);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pool<M: Medium = Mapped> {
    inner: Arc<Inner<M>>,
}

/// Figures of one opening of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// What transactions and repairs came to.
    pub stats: Stats,
    /// Writes and syncs of the file that reached the system.
    pub syncs: u64,
    /// Bytes up to which the pool can grow before it is opened anew.
    pub reserved: u64,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Nanoseconds since it was opened.
    pub nanos: u64,
}

/// What all clones share. The threads go first, then the engine, which closes the pool.
pub(crate) struct Inner<M: Medium> {
    pub(crate) background: OnceLock<Background>,
    engine: holdfast_object::Pool<M>,
    opened: Opened,
    path: Option<PathBuf>,
    anchor: Ptr<Anchor>,
    pub(crate) scrubbing: Scrubbing,
    pub(crate) latencies: Latencies,
    pub(crate) since: Instant,
}

impl<M: Medium> Drop for Inner<M> {
    fn drop(&mut self) {
        if self.engine.medium().inherited()
            && let Some(background) = self.background.take()
        {
            background.leave_to_parent();
        }
    }
}

impl Pool {
    /// Options to create or open a pool with.
    #[must_use]
    pub fn options() -> Options {
        Options::default()
    }

    /// Opens the pool in the file `path`; see [`Options::open`].
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// Opens the pool in the file `path` for reading; see [`Options::open_read_only`].
    ///
    /// # Errors
    /// As [`Options::open_read_only`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open_read_only(path)
    }

    /// Removes the file `path` with the pool in it, for good. Nobody can open it meanwhile; who
    /// only observes it goes on seeing what was there.
    ///
    /// # Errors
    /// The file is missing, a link, no pool, too damaged to be known for one, in use, or cannot be
    /// removed. It is still there then.
    pub fn remove(path: impl AsRef<Path>) -> Result<()> {
        Self::options().remove(path.as_ref())
    }

    /// What is in force: medium, durability, flushes, protection against stray stores.
    #[must_use]
    pub fn status(&self) -> holdfast_pmem::Status {
        self.medium().status()
    }

    /// Figures of this opening.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures {
            stats: self.stats(),
            syncs: self.medium().syncs(),
            reserved: self.status().reserved,
            read_only: self.is_read_only(),
            nanos: u64::try_from(self.inner.since.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

impl<M: Medium> Pool<M> {
    pub(crate) fn new(engine: holdfast_object::Pool<M>, opened: Opened) -> Self {
        let anchor = RawPtr::from_word(engine.superblock().anchor).typed();
        let inner = Inner {
            background: OnceLock::new(),
            engine,
            opened,
            path: None,
            anchor,
            scrubbing: Scrubbing::default(),
            latencies: Latencies::default(),
            since: Instant::now(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn from_inner(inner: Arc<Inner<M>>) -> Self {
        Self { inner }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner<M>> {
        &self.inner
    }

    /// Notes where the pool is. For a pool nobody else has a clone of yet.
    pub(crate) fn of(mut self, path: &Path) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.path = Some(path.to_path_buf());
        }
        self
    }

    pub(crate) fn engine(&self) -> &holdfast_object::Pool<M> {
        &self.inner.engine
    }

    pub(crate) fn anchor(&self) -> Ptr<Anchor> {
        self.inner.anchor
    }

    /// An error of the engine, said of this pool's file.
    pub(crate) fn fail(&self, error: impl Into<Error>) -> Error {
        match &self.inner.path {
            Some(path) => error.into().at(path),
            None => error.into(),
        }
    }

    /// Runs `body` as one serializable transaction and returns once it is durable. After a
    /// conflict with another transaction, or a repair, `body` is executed again: it must not keep
    /// effects outside the pool. A `run` inside a `run` on the same pool joins the outer one.
    ///
    /// If `body` panics, nothing happened, and the panic goes on. There is no poison: the pool and
    /// its maps hold what was committed, for this thread and for others.
    ///
    /// # Errors
    /// What `body` returned, or why it could not be committed; nothing happened then.
    pub fn run<R>(&self, body: impl FnMut(&Tx<'_, M>) -> holdfast_txn::Result<R>) -> Result<R> {
        let done = self.inner.latencies.timed(|| self.engine().run(body));
        done.map_err(|error| self.fail(error))
    }

    /// Begins a transaction as a value, for programs that cannot hand over a closure: whoever
    /// commits it may be told to do it again. Where a closure will do, [`run`](Self::run) is
    /// simpler.
    ///
    /// # Errors
    /// This thread has a transaction of the pool under way already.
    pub fn begin(&self) -> Result<Begun<M>> {
        self.engine().begin().map_err(|error| self.fail(error))
    }

    /// Reads an object: a copy of one committed state of it.
    ///
    /// # Errors
    /// The pointer names nothing, or something of another type; the object is lost.
    pub fn read<T: Persist>(&self, of: Ptr<T>) -> Result<T> {
        self.engine().read(of).map_err(|error| self.fail(error))
    }

    /// Borrows an object in place: plain loads. While the guard lives, commits that would change
    /// the object wait, so keep it short. Whether the bytes were verified depends on the policy.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn view<T: Persist>(&self, of: Ptr<T>) -> Result<View<'_, T, M>> {
        self.engine().view(of).map_err(|error| self.fail(error))
    }

    /// The same for an object of any type, as an address: for code in other languages.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn view_raw(&self, of: RawPtr) -> Result<RawView<M>> {
        self.engine().view_raw(of).map_err(|error| self.fail(error))
    }

    /// The root object, null if none was set with `tx.set_root`.
    ///
    /// # Errors
    /// The root is of another type; and as [`read`](Self::read).
    pub fn root<T: Persist>(&self) -> Result<Ptr<T>> {
        self.engine().root().map_err(|error| self.fail(error))
    }

    /// Grows the pool to `bytes`. Transactions go on meanwhile and no address changes.
    ///
    /// # Errors
    /// `bytes` is less than now, or too little more; there is no space; or the address space
    /// reserved when the pool was opened ([`Options::reserve`]) is less. The pool stays as it was.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        let now = self.superblock().size;
        self.engine().grow(bytes).map_err(|error| {
            let no_layout = matches!(
                error,
                holdfast_object::Error::Redundancy(RedundancyError::Geometry { .. })
            );
            let too_small = matches!(error, holdfast_object::Error::Growth { .. }) && bytes < now;
            let error = self.fail(error);
            if no_layout {
                error.with_remedy("ask for less, or grow in steps")
            } else if too_small {
                // The cause names the next size there can be.
                error.with_remedy(format!(
                    "ask for at least so many: it has {now} bytes already, and a pool cannot shrink"
                ))
            } else {
                error
            }
        })
    }

    /// Checks every object, every column and every copy of metadata; changes nothing.
    /// Transactions go on meanwhile. `progress` is told bytes done and bytes in all.
    ///
    /// # Errors
    /// Something other than damage stopped it.
    pub fn check(&self, progress: impl FnMut(u64, u64)) -> Result<CheckReport> {
        self.engine().check(progress).map_err(|error| self.fail(error))
    }

    /// The events in the pool's journal, oldest first: every detection and every repair. Times
    /// are nanoseconds since 1970.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.events_from(0)
    }

    /// The events from number `sequence` on.
    #[must_use]
    pub fn events_from(&self, sequence: u64) -> Vec<Event> {
        Journal::open(self.medium(), &self.superblock()).read_from(self.medium(), sequence)
    }

    /// Figures since the pool was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// How long transactions take, reads included, from a sample.
    #[must_use]
    pub fn latency(&self) -> Latency {
        self.inner.latencies.now()
    }

    /// How much of the heap is what. Reads every slot.
    #[must_use]
    pub fn space(&self) -> holdfast_heap::Space {
        self.engine().space()
    }

    /// What opening the pool had to do.
    #[must_use]
    pub fn opened(&self) -> &Opened {
        &self.inner.opened
    }

    /// What the pool is: size, geometry, protection, features.
    #[must_use]
    pub fn superblock(&self) -> Superblock {
        self.engine().superblock()
    }

    /// What lies where in the pool.
    #[must_use]
    pub fn regions(&self) -> Vec<Region> {
        self.engine().regions()
    }

    /// When reads verify, from now on.
    pub fn set_verify_reads(&self, policy: VerifyReads) {
        self.engine().set_verify_reads(policy);
    }

    /// Whether changes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.engine().is_read_only()
    }

    /// Asks the system whether the pool's file still has its full length. Every write to a file
    /// does; transactions on shared memory and direct-access media notice only once they touch
    /// what is gone.
    ///
    /// # Errors
    /// Somebody cut the file off. From now on nothing is written to it.
    pub fn expect_whole_file(&self) -> Result<()> {
        if !self.medium().cut_off() {
            return Ok(());
        }
        self.engine().stop_writing();
        Err(self.fail(holdfast_object::Error::CutOff))
    }

    /// The file, if the pool is in one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// The medium behind the pool.
    #[must_use]
    pub fn medium(&self) -> &M {
        self.engine().medium()
    }

    /// Gives this clone back. The last one closes the pool.
    pub fn close(self) {
        drop(self);
    }
}

impl<M: Medium> Clone for Pool<M> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<M: Medium> fmt::Debug for Pool<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("path", &self.inner.path)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl<M: Medium> Store for Pool<M> {
    type Tx<'s> = Tx<'s, M>;
    type Error = Error;

    fn run<R>(
        &self,
        _: Isolation,
        body: impl FnMut(&Tx<'_, M>) -> holdfast_txn::Result<R>,
    ) -> Result<R> {
        Pool::run(self, body)
    }
}
