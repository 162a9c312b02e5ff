//! A protected file that this process has mapped: it stores, and a thread covers what it stored.
//!
//! Whole pages are mapped; what lies behind the last one is reached by [`ProtectedMap::write`] and
//! [`ProtectedMap::read`] only, as is a file of less than a page.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_mapped::trace::Window;
use holdfast_mapped::{
    Covered, Durability, Folios, Judged, Mapped, OpenOptions, Scrubbed, Writers, Writing,
};
use holdfast_pmem::track::folios::{self, FolioReport};
use holdfast_pmem::track::{DirtySource, SourceKind};
use holdfast_pmem::{
    Access, Clock, Durability as Survive, ForeignFile, Mapped as Mapping, Medium, Ours, PAGE, Site,
};
use holdfast_redundancy::events::Event;

use crate::clock::WallClock;
use crate::error::{Error, ErrorKind, Result};
use crate::protect::Engine;
use crate::protect::area;
use crate::protect::error::{of_engine, of_track};
use crate::protect::file::{self, failed};
use crate::protect::keeper::{Gate, Keeper};
use crate::protect::options::{ProtectOptions, to_open};
use crate::protect::pointer::Pointer;
use crate::protect::rest::ProtectedFile;
use crate::protect::source::Source;
use crate::protect::status::{LastPass, ProtectStatus};
use crate::protect::watch::{Before, Listening, Watch};

const STORE: Site = Site::new("holdfast.protect.store");
const SYNC: Site = Site::new("holdfast.protect.sync-side");
/// Bytes of file, at the least, that writes can be announced for: room to grow.
const ROOM: u64 = 1 << 36;

/// A protected file, mapped. Dropped, it is closed.
#[derive(Debug)]
pub struct ProtectedMap {
    shared: Option<Arc<Shared>>,
    keeper: Option<Keeper>,
}

/// What the thread works with, too.
pub(crate) struct Shared {
    engine: Engine,
    data: ForeignFile,
    mapping: Option<Arc<Mapping>>,
    watch: Arc<Watch>,
    /// Held by whoever makes the file longer.
    growing: Mutex<()>,
    /// Closed while a page is replaced.
    gate: Gate,
    /// Somebody may store without asking.
    addressed: AtomicBool,
    writers: Option<Arc<dyn Writers + Send + Sync>>,
    path: PathBuf,
    side: PathBuf,
    passed_over: Vec<String>,
    folio_report: Option<FolioReport>,
    last: Mutex<(Option<LastPass>, Option<String>)>,
    clock: WallClock,
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shared").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ProtectedMap {
    /// Maps the protected file `path` for reading and writing, and begins to cover what is stored.
    ///
    /// # Errors
    /// It is not protected, the side file cannot be used, somebody works with it, or stores cannot
    /// be tracked in the way that was asked for.
    pub fn open(path: impl AsRef<Path>, options: &ProtectOptions) -> Result<Self> {
        let shared = Arc::new(Shared::open(path.as_ref(), options)?);
        let keeper =
            Keeper::start(&shared, options).map_err(|error| failed(&shared.path, &error))?;
        Ok(Self { shared: Some(shared), keeper: Some(keeper) })
    }

    fn shared(&self) -> &Shared {
        self.shared.as_ref().expect("taken by close and drop only, which have the value")
    }

    /// Bytes of the file.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.shared().data.size()
    }

    /// Whether the file has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads `into.len()` bytes at `at`.
    ///
    /// # Errors
    /// They lie behind the end, or cannot be read.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let shared = self.shared();
        shared.data.read(at, into).map_err(|error| Error::from(error).at(&shared.path))
    }

    /// Stores `bytes` at `at`.
    ///
    /// # Errors
    /// They lie behind the end, which [`grow`](Self::grow) moves, or cannot be stored.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let shared = self.shared();
        shared.gate.pass(|| shared.store(at, bytes))
    }

    /// Address of the mapped part of the file, and its bytes, to load from and store to, while this
    /// value lives; nothing where no stores can be tracked, or nothing is mapped. From now on
    /// nothing is repaired in use unless [`ProtectOptions::writers`] were given.
    #[must_use]
    pub fn address(&self) -> Option<(*mut u8, u64)> {
        let shared = self.shared();
        let mapping = shared.mapping.as_ref().filter(|_| !shared.engine.source().wants_stores())?;
        // Whoever has just stopped all writes must not be passed by the first of these.
        shared.gate.pass(|| shared.addressed.store(true, Ordering::SeqCst));
        let len = mapping.len();
        mapping.view(0, len).map(|address| (address.cast_mut(), len))
    }

    /// Makes the file longer. New bytes are zero.
    ///
    /// # Errors
    /// It is longer already; no space; no addresses left for the mapping.
    pub fn grow(&self, len: u64) -> Result<()> {
        let shared = self.shared();
        // One at a time: who came second with less would cut off what the first made.
        let _turn = shared.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.len();
        if len < old {
            let what = "the new length is shorter than the file";
            return Err(Error::new(ErrorKind::Invalid, what).at(&shared.path));
        }
        let whole = len - len % PAGE;
        let mapping = shared.mapping.as_ref().filter(|mapping| mapping.len() < whole);
        shared.engine.source().announce(old, len - old, || {
            if let Some(mapping) = mapping {
                let grown = shared.data.change(|_| mapping.grow(whole));
                grown.map_err(|error| Error::from(error).at(&shared.path))?;
            }
            let set = shared.data.change(|file| file.set_len(len));
            set.map_err(|error| failed(&shared.path, &error))
        })?;
        shared.engine.update_now().map(drop).map_err(|error| shared.explain(&error))
    }

    /// A pass at once: what was stored before is covered when it returns.
    ///
    /// # Errors
    /// An error of the side file or of the tracking.
    pub fn update_now(&self) -> Result<Covered> {
        self.shared().pass()
    }

    /// Covers what was stored in `[at, at + len)` and around it.
    ///
    /// # Errors
    /// As [`update_now`](Self::update_now).
    pub fn cover(&self, at: u64, len: u64) -> Result<Covered> {
        let shared = self.shared();
        shared.listen()?;
        shared.engine.cover(at, len).map_err(|error| shared.explain(&error))
    }

    /// Makes what was stored durable, covered first: damage after it is found and repaired.
    ///
    /// # Errors
    /// As [`update_now`](Self::update_now), or the file cannot be synced.
    pub fn sync(&self) -> Result<()> {
        let shared = self.shared();
        self.update_now()?;
        let synced = shared.data.sync_all().and_then(|()| shared.engine.side().sync(SYNC));
        synced.map_err(|error| Error::from(error).at(&shared.path))
    }

    /// No passes from now on; waits for one that is under way.
    pub fn pause(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.pause();
        }
    }

    /// Passes go on.
    pub fn resume(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.resume();
        }
    }

    /// Looks at the whole file and repairs what is damaged, if writers can be stopped.
    ///
    /// # Errors
    /// As [`update_now`](Self::update_now).
    pub fn scrub(&self) -> Result<Scrubbed> {
        let shared = self.shared();
        shared.listen()?;
        let done = shared.engine.scrub(Some(shared)).map_err(|error| shared.explain(&error));
        shared.listen()?;
        done
    }

    /// What the page numbered `page` is.
    ///
    /// # Errors
    /// As [`update_now`](Self::update_now).
    pub fn verify(&self, page: u64) -> Result<Judged> {
        let shared = self.shared();
        shared.listen()?;
        shared.engine.verify(page).map_err(|error| shared.explain(&error))
    }

    /// What a page was when it was last covered, or the time before that, if parity can tell.
    ///
    /// # Errors
    /// The side file cannot be read.
    pub fn before_image(&self, page: u64) -> Result<Option<Vec<u8>>> {
        let shared = self.shared();
        shared.engine.before_image(page).map_err(|error| shared.explain(&error))
    }

    /// Takes the file for right as it is, and whoever wrote to it for right, too.
    ///
    /// # Errors
    /// An error of the side file or of the tracking.
    pub fn accept(&self) -> Result<Covered> {
        let shared = self.shared();
        shared.watch.forgive();
        shared.engine.accept(0, u64::MAX).map_err(|error| shared.explain(&error))
    }

    /// What is covered at this moment, what was found, and how stores are noticed.
    ///
    /// # Errors
    /// The tracking cannot be asked.
    pub fn status(&self) -> Result<ProtectStatus> {
        let shared = self.shared();
        let status = ProtectStatus::of(&shared.engine, shared.data.size());
        let mut status = status.map_err(|error| shared.explain(&error))?;
        status.contested = shared.watch.look().or(status.contested);
        status.in_use = Some(Some(std::process::id()));
        status.folio_report = shared.folio_report;
        status.tracking = Some(shared.engine.source().kind());
        status.passed_over.clone_from(&shared.passed_over);
        status.listens = shared.watch.listens();
        (status.last_pass, status.last_error) = shared.last().clone();
        Ok(status)
    }

    /// How stores are noticed.
    #[must_use]
    pub fn tracking(&self) -> SourceKind {
        self.shared().engine.source().kind()
    }

    /// The journal: what was found and repaired.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.shared().engine.events()
    }

    /// Covers what was stored, makes it durable, and ends the mapping. Nobody may store any more.
    ///
    /// # Errors
    /// An error of either file: it is then as after a crash, and what differs is undecided.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if let Some(keeper) = self.keeper.take() {
            keeper.stop();
        }
        let Some(shared) = self.shared.take() else { return Ok(()) };
        match Arc::try_unwrap(shared) {
            Ok(shared) => shared.close(),
            // The thread is gone, and nobody else has it.
            Err(_) => Ok(()),
        }
    }
}

impl Drop for ProtectedMap {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The next opening finds what differs undecided.
            if let Some(keeper) = self.keeper.take() {
                keeper.stop();
            }
            return;
        }
        let _ = self.end();
    }
}

impl Shared {
    fn open(path: &Path, options: &ProtectOptions) -> Result<Self> {
        let side = options.side_of(path);
        let before = Before::of(path).map_err(|error| failed(path, &error))?;
        let data = file::open(path, true)?;
        let survive = match options.durability {
            Durability::Process => Survive::Process,
            Durability::Power => Survive::Auto,
        };
        if Pointer::is_at(&side) && options.durability == Durability::Process {
            // What a region has is what was synced: a death would take notes along that have to
            // outlive it.
            let what = "its redundancy is in a pool, where nothing survives that is not synced";
            return Err(Error::new(ErrorKind::Refused, what)
                .with_remedy("ask for durability against power cuts, or protect it without a pool")
                .at(path));
        }
        let (medium, _) = area::open(&side, Access::Write, survive, options.pool.as_deref())?;
        let (mapping, folio_report) = map(path, &data, options)?;
        let watch = Watch::begin(&data, &before).map_err(|error| failed(path, &error))?;
        let watch = Arc::new(watch);
        let data = data.heard_by(Arc::clone(&watch) as Arc<dyn Ours>);
        let most = data.size().saturating_mul(2).max(ROOM);
        let (source, passed_over) = Source::over(mapping.clone(), most, options.tracking)
            .map_err(|e| of_track(&e).at(path))?;
        let (engine, _) = Mapped::open(
            data.clone(),
            medium,
            Arc::new(source),
            Arc::new(Listening(data.clone(), Arc::clone(&watch))),
            Arc::new(WallClock::new()),
            OpenOptions { trace: options.trace.is_some(), ..to_open(options.durability) },
        )
        .map_err(|error| of_engine(&error, &side))?;
        let this = Self {
            engine,
            data,
            mapping,
            watch,
            growing: Mutex::default(),
            gate: Gate::default(),
            addressed: AtomicBool::new(false),
            writers: options.writers.clone(),
            path: path.into(),
            side,
            passed_over,
            folio_report,
            last: Mutex::default(),
            clock: WallClock::new(),
        };
        this.listen()?;
        this.engine.admit(0, u64::MAX, Writing::NotYet).map_err(|error| this.explain(&error))?;
        Ok(this)
    }

    fn explain(&self, error: &holdfast_mapped::Error) -> Error {
        of_engine(error, &self.side)
    }

    fn last(&self) -> MutexGuard<'_, (Option<LastPass>, Option<String>)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let error = |error: holdfast_pmem::MediaError| Error::from(error).at(&self.path);
        let mapped = self.mapping.as_ref().map_or(0, |mapping| mapping.len());
        let split = mapped.saturating_sub(at).min(bytes.len() as u64) as usize;
        let (first, rest) = bytes.split_at(split);
        let source = self.engine.source();
        if let Some(mapping) = self.mapping.as_ref().filter(|_| !first.is_empty()) {
            let put = || mapping.put(STORE, at, first);
            let stored = if source.wants_stores() {
                source.announce(at, first.len() as u64, put)
            } else {
                put()
            };
            stored.map_err(error)?;
        }
        if !rest.is_empty() {
            let at = at.saturating_add(split as u64);
            let put = || self.data.put(STORE, at, rest);
            source.announce(at, rest.len() as u64, put).map_err(error)?;
        }
        Ok(())
    }

    /// Hears of foreign writers; from then on the file is contested, durably.
    pub(crate) fn listen(&self) -> Result<()> {
        if self.watch.look().is_some() && !self.engine.is_contested() {
            self.engine.contest(true).map_err(|error| self.explain(&error))?;
        }
        Ok(())
    }

    /// A pass, noted.
    fn pass(&self) -> Result<Covered> {
        self.noted(|| self.engine.update_now())
    }

    /// The same, in steps: `pause` is told the time and the bytes covered.
    pub(crate) fn pass_at(&self, pause: &mut dyn FnMut(u64, u64)) -> Result<Covered> {
        self.noted(|| self.engine.pass_in_steps(&mut |bytes| pause(self.clock.now(), bytes)))
    }

    /// What passes found stored to since this was asked last.
    pub(crate) fn take_trace(&self) -> Vec<Window> {
        self.engine.take_trace()
    }

    fn noted(&self, pass: impl FnOnce() -> holdfast_mapped::Result<Covered>) -> Result<Covered> {
        let at_ns = self.clock.now();
        let heard = self.listen();
        let done = heard.and_then(|()| pass().map_err(|error| self.explain(&error)));
        let mut last = self.last();
        match &done {
            Ok(covered) => {
                let nanos = self.clock.now().saturating_sub(at_ns);
                *last = (Some(LastPass { at_ns, nanos, covered: *covered }), None);
            }
            Err(error) => last.1 = Some(error.to_string()),
        }
        done
    }

    /// A step of the scrub, noted if it fails.
    pub(crate) fn scrub_step(&self) {
        let done = self.listen().and_then(|()| {
            self.engine.scrub_step(Some(self)).map(drop).map_err(|error| self.explain(&error))
        });
        if let Err(error) = done {
            self.last().1 = Some(error.to_string());
        }
    }

    fn close(self) -> Result<()> {
        self.listen()?;
        let Self { engine, data, mapping, path, side, .. } = self;
        engine.close().map_err(|error| of_engine(&error, &side))?;
        drop(mapping);
        // At rest it is to survive everything: synced, and said so.
        data.sync_all().map_err(|error| Error::from(error).at(&path))?;
        let synced = std::fs::File::open(&side).and_then(|file| file.sync_all());
        synced.map_err(|error| failed(&side, &error))?;
        drop(data);
        match ProtectedFile::open(&path, &ProtectOptions::new().side(&side)) {
            Ok(file) => file.close(),
            // Somebody else has it already, and sees to it.
            Err(error) if error.kind() == ErrorKind::Locked => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// A page is replaced only while nobody can store and nobody untracked was heard of.
impl Writers for Shared {
    fn freeze(&self) -> bool {
        if !self.watch.listens() {
            return false;
        }
        // First: threads on their way to where they stop may pass the gate.
        if self.writers.as_ref().is_some_and(|writers| !writers.freeze()) {
            return false;
        }
        let closed = self.gate.close();
        // Asked once nobody can get the address any more without being waited for.
        let stopped = self.writers.is_some() || !self.addressed.load(Ordering::SeqCst);
        if closed && stopped && self.watch.look_around(false).is_none() {
            return true;
        }
        self.thaw();
        false
    }

    fn thaw(&self) {
        self.gate.open();
        if let Some(writers) = &self.writers {
            writers.thaw();
        }
    }
}

/// Maps the whole pages of a file, under the folio policy.
fn map(
    path: &Path,
    data: &ForeignFile,
    options: &ProtectOptions,
) -> Result<(Option<Arc<Mapping>>, Option<FolioReport>)> {
    if data.size() < PAGE {
        return Ok((None, None));
    }
    let how = holdfast_pmem::Options {
        durability: Survive::Process,
        protection: holdfast_pmem::Protect::None,
        ..holdfast_pmem::Options::default()
    };
    let mapping =
        Mapping::open(path, Access::Write, &how).map_err(|error| Error::from(error).at(path))?;
    let asked = match options.folios {
        Folios::Small => folios::Folios::Small,
        Folios::Any => folios::Folios::AsFound,
    };
    // A system that refuses only makes first stores dearer.
    let report = folios::apply_to(&mapping, asked).ok();
    Ok((Some(Arc::new(mapping)), report))
}
