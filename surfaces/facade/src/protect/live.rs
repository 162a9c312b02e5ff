//! A protected file that this process has mapped: it stores, and a thread covers what it stored.
//!
//! Whole pages are mapped; what lies behind the last one is reached by [`ProtectedMap::write`] and
//! [`ProtectedMap::read`] only, as is a file of less than a page.

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_mapped::live::{Keeping, Live, Tally};
use holdfast_mapped::trace::Window;
use holdfast_mapped::{
    Covered, Durability, Folios, Judged, Mapped, Rearm, Scrubbed, Writers, Writing,
};
use holdfast_pmem::desk::Desk;
use holdfast_pmem::track::folios::{self, FolioReport};
use holdfast_pmem::track::{DirtySource, MediumRecord, Record, SourceKind};
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
use crate::protect::gate::Gate;
use crate::protect::heal::Healer;
use crate::protect::keeper::{Keeper, begin_trace};
use crate::protect::medium::SideMedium;
use crate::protect::options::ProtectOptions;
use crate::protect::pointer::Pointer;
use crate::protect::source::{Source, Tracking};
use crate::protect::status::{LastPass, ProtectStatus};
use crate::protect::told;
use crate::protect::watch::{Before, Listening, Watch};

/// What a program stores, by the mapping and behind it. Nothing hangs on these being flushed: what
/// is to be durable is synced.
const STORE: Site = Site::new("facade.live.store");
const STORE_BEHIND: Site = Site::new("facade.live.store-behind");
const SYNC_DATA: Site = Site::new("facade.live.sync-data");
/// Bytes of file, at the least, that writes can be announced for: room to grow.
const ROOM: u64 = 1 << 36;

/// A protected file, mapped. Dropped, it is closed.
#[derive(Debug)]
pub struct ProtectedMap {
    shared: Option<Arc<Shared>>,
    keeper: Option<Keeper>,
    healer: Option<Healer>,
    /// Tells others what only this process knows.
    desk: Option<Desk>,
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
    /// What scrubs found.
    tally: Mutex<Tally>,
    period: Duration,
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
    /// It is not protected, the side file cannot be used, somebody works with it, stores cannot be
    /// tracked in the way that was asked for, or a trace cannot be written where it is to be.
    pub fn open(path: impl AsRef<Path>, options: &ProtectOptions) -> Result<Self> {
        let trace = options.trace.as_deref().map(begin_trace).transpose()?;
        let shared = Arc::new(Shared::open(path.as_ref(), options)?);
        let keeper = Keeper::start(&shared, options, trace);
        let keeper = keeper.map_err(|error| failed(&shared.path, &error))?;
        let healer = if options.heal_loads { Healer::start(&shared) } else { Ok(None) };
        let healer = match healer {
            Ok(healer) => healer,
            Err(error) => {
                keeper.stop();
                return Err(failed(&shared.path, &error));
            }
        };
        let desk = told::begin(path.as_ref(), &shared);
        Ok(Self { shared: Some(shared), keeper: Some(keeper), healer, desk })
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
    /// nothing is repaired in use unless [`ProtectOptions::writers`] were given, except what a load
    /// could not have: see [`ProtectOptions::heal_loads`].
    ///
    /// What the kernel copies here (`read` through the page cache) is seen as a store is. What a
    /// device puts here by itself is seen only if that is done inside of
    /// [`filling`](Self::filling).
    #[must_use]
    pub fn address(&self) -> Option<(*mut u8, u64)> {
        let shared = self.shared();
        let mapping = shared.window()?;
        // Whoever has just stopped all writes must not be passed by the first of these.
        shared.gate.pass(|| shared.addressed.store(true, Ordering::SeqCst));
        let len = mapping.len();
        mapping.view(0, len).map(|address| (address.cast_mut(), len))
    }

    /// Has the kernel or a device put bytes into `[at, at + len)` of the mapping: by a direct read
    /// (`O_DIRECT`, and file systems that read so unasked), a ring, asynchronous input, a driver
    /// that keeps pages. `fill` begins it, and returns once all bytes have arrived.
    ///
    /// The kernel marks a page as stored to when such a request begins, and its bytes come later.
    /// A pass in between takes the mark and covers what was there before: then what arrives looks
    /// like damage, and is taken back. In here the pages count as stored to until it is over, and
    /// no page of the file is replaced. Where a handler tracks stores ([`Tracking::FirstStore`],
    /// [`Tracking::Recorded`]), the kernel refuses to fill a page that was not stored to since the
    /// last pass (`EFAULT`): read to elsewhere and copy.
    pub fn filling<T>(&self, at: u64, len: u64, fill: impl FnOnce() -> T) -> T {
        let shared = self.shared();
        shared.gate.pass(|| shared.engine.source().announce_store(at, len, fill))
    }

    /// Makes the file longer. New bytes are zero; those that it has stay, also after an error.
    ///
    /// # Errors
    /// It is longer already; no space; no addresses left for the mapping.
    pub fn grow(&self, len: u64) -> Result<()> {
        let shared = self.shared();
        // One at a time: who came second with less would cut off what the first made.
        let _turn = shared.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = shared.size()?;
        if len < old {
            let what = "the new length is shorter than the file";
            return Err(Error::new(ErrorKind::Invalid, what).at(&shared.path));
        }
        let whole = len - len % PAGE;
        let mapping = shared.mapping.as_ref().filter(|mapping| mapping.len() < whole);
        let source = shared.engine.source();
        source.announce(old, len - old, || {
            if let Some(mapping) = mapping {
                let region = shared.engine.stripes().region_len();
                let grow = || shared.data.change(|_| mapping.grow(whole));
                let grown = source.growing((old, region), grow);
                grown.map_err(|error| Error::from(error).at(&shared.path))?;
            }
            if shared.size()? >= len {
                return Ok(()); // nor is anything cut off that others have added
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
        // A pass leaves nothing of the side file on its way that its owner wants to survive.
        self.update_now()?;
        let synced = shared.data.sync_all(SYNC_DATA);
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
        done.as_ref().into_iter().for_each(|done| shared.tally().look(done, shared.clock.now()));
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
        let again = status.look_again(&shared.engine);
        again.map_err(|error| shared.explain(&error))?;
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

    fn stop_threads(&mut self) {
        self.desk = None;
        if let Some(keeper) = self.keeper.take() {
            keeper.stop();
        }
        if let Some(healer) = self.healer.take() {
            healer.stop();
        }
    }

    fn end(&mut self) -> Result<()> {
        // Nobody is told anything from here on, and nobody else has a part in it.
        self.stop_threads();
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
            self.stop_threads();
            return;
        }
        let _ = self.end();
    }
}

impl Shared {
    fn open(path: &Path, options: &ProtectOptions) -> Result<Self> {
        let side = options.side_of(path);
        let looked = file::open(path, false)?;
        let survive = match options.durability {
            Durability::Process => Survive::Process,
            Durability::Power => Survive::Auto,
        };
        let recorded = options.tracking == Tracking::Recorded;
        if Pointer::is_at(&side) {
            fits_a_pool(path, options)?;
        }
        let pool = options.pool.as_deref();
        let (medium, region) = area::open(&looked, &side, Access::Write, survive, pool)?;
        // Only with the lock of the side file: opened for writing by us, a file that somebody else
        // keeps would count as written to by a stranger, for good.
        drop(looked);
        let before = Before::of(path).map_err(|error| failed(path, &error))?;
        let data = file::open(path, true)?;
        let (mapping, folio_report) = map(path, &data, options)?;
        let watch = Watch::begin(&data, &before).map_err(|error| failed(path, &error))?;
        let watch = Arc::new(watch);
        let data = data.heard_by(Arc::clone(&watch) as Arc<dyn Ours>);
        let most = data.size().saturating_mul(2).max(ROOM);
        let record = if recorded {
            let room = mapping.as_ref().map_or(0, |mapping| mapping.status().reserved);
            Some(record_in(&medium, room.max(most.next_multiple_of(PAGE)), (path, &side))?)
        } else {
            None
        };
        let (source, passed_over) = Source::over(mapping.clone(), most, options.tracking, record)
            .map_err(|e| of_track(&e).at(path))?;
        let (engine, _) = Mapped::open(
            data.clone(),
            medium,
            Arc::new(source),
            Arc::new(Listening(data.clone(), Arc::clone(&watch))),
            Arc::new(WallClock::new()),
            options.to_keep(),
        )
        .map_err(|error| of_engine(&error, (path, &side)))?;
        if let Some(there) = &region {
            area::tend(&side, there, &engine);
        }
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
            tally: Mutex::default(),
            period: options.period,
            clock: WallClock::new(),
        };
        this.listen()?;
        this.engine.admit(0, u64::MAX, Writing::NotYet).map_err(|error| this.explain(&error))?;
        Ok(this)
    }

    /// Bytes of the file; an error if the system does not say.
    fn size(&self) -> Result<u64> {
        let found = self.data.file().metadata().map_err(|error| failed(&self.path, &error))?;
        Ok(found.len())
    }

    /// What the program may load from and store to by its address.
    pub(crate) fn window(&self) -> Option<&Arc<Mapping>> {
        self.mapping.as_ref().filter(|_| !self.engine.source().wants_stores())
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Keeps our own writes out; false if somebody stays inside.
    pub(crate) fn close_gate(&self) -> bool {
        self.gate.close()
    }

    pub(crate) fn open_gate(&self) {
        self.gate.open();
    }

    /// Whether nobody untracked was heard of, nor can be found.
    pub(crate) fn is_alone(&self) -> bool {
        self.watch.listens() && self.watch.look_around(false).is_none()
    }

    /// Notes what went wrong last.
    pub(crate) fn note(&self, error: &Error) {
        self.last().1 = Some(error.to_string());
    }

    pub(crate) fn explain(&self, error: &holdfast_mapped::Error) -> Error {
        of_engine(error, (&self.path, &self.side))
    }

    fn last(&self) -> MutexGuard<'_, (Option<LastPass>, Option<String>)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.engine.source().storing(|mapped| self.store_beside(mapped, at, bytes))
    }

    /// The same, by the mapping as far as it has `mapped` bytes, and around it behind them.
    fn store_beside(&self, mapped: u64, at: u64, bytes: &[u8]) -> Result<()> {
        let error = |error: holdfast_pmem::MediaError| Error::from(error).at(&self.path);
        let split = mapped.saturating_sub(at).min(bytes.len() as u64) as usize;
        let (first, rest) = bytes.split_at(split);
        let source = self.engine.source();
        if let Some(mapping) = self.mapping.as_ref().filter(|_| !first.is_empty()) {
            let put = || mapping.put(STORE, at, first);
            let stored = if source.wants_stores() {
                source.announce_store(at, first.len() as u64, put)
            } else {
                put()
            };
            stored.map_err(error)?;
        }
        if !rest.is_empty() {
            let at = at.saturating_add(split as u64);
            let put = || self.data.put(STORE_BEHIND, at, rest);
            source.announce_store(at, rest.len() as u64, put).map_err(error)?;
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
        self.noted(|| {
            self.engine.pass_in_steps(Rearm::WhereItPays, &mut |bytes| {
                pause(self.clock.now(), bytes);
            })
        })
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
            let step = self.engine.scrub_step(Some(self)).map_err(|error| self.explain(&error))?;
            self.tally().add(&step, self.clock.now());
            Ok(())
        });
        if let Err(error) = done {
            self.note(&error);
        }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What others are told.
    pub(crate) fn live(&self) -> holdfast_mapped::Result<Live> {
        let keeping = Keeping {
            guards: false,
            period_ns: u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX),
            longest_ns: 0,
            tracking: self.engine.source().kind(),
        };
        let tally = *self.tally();
        self.engine.live(keeping, &tally, self.data.size())
    }

    fn close(self) -> Result<()> {
        self.listen()?;
        let Self { engine, path, side, .. } = self;
        // At rest it is to survive everything: synced, and said so.
        engine.close_at_rest().map_err(|error| of_engine(&error, (&path, &side)))
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

/// What first stores to the file are recorded in, for pages of the first `room` bytes of it.
fn record_in(
    medium: &SideMedium,
    room: u64,
    (path, side): (&Path, &Path),
) -> Result<Arc<dyn Record>> {
    let SideMedium::File(file) = medium else { return Err(no_record(path)) };
    let places = holdfast_mapped::record_places(&**file);
    let places = places.map_err(|error| of_engine(&error, (path, side)))?;
    let record = MediumRecord::new(Arc::clone(file), places, 0, room);
    Ok(Arc::new(record.map_err(|error| of_track(&error).at(side))?))
}

/// Refuses what cannot be had of redundancy in a pool.
fn fits_a_pool(path: &Path, options: &ProtectOptions) -> Result<()> {
    if options.tracking == Tracking::Recorded {
        return Err(no_record(path));
    }
    if options.durability == Durability::Process {
        // What a region has is what was synced: a death would take notes along that have to
        // outlive it.
        let what = "its redundancy is in a pool, where nothing survives that is not synced";
        return Err(Error::new(ErrorKind::Refused, what)
            .with_remedy("ask for durability against power cuts, or protect it without a pool")
            .at(path));
    }
    Ok(())
}

fn no_record(path: &Path) -> Error {
    let what = "its redundancy is in a pool, whose stores are transactions: first stores are \
                recorded by a signal handler, which cannot make one";
    let remedy = "choose another way to track stores, or protect the file without a pool";
    Error::new(ErrorKind::Refused, what).with_remedy(remedy).at(path)
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
        foreign: true,
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
