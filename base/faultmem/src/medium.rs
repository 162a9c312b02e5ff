//! The faulty medium: the program's view, the state behind it, and the hooks.

use core::fmt;
use core::panic::Location;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_pmem::{
    MediaCause, MediaError, Medium, MediumKind, PAGE, PUT_CACHED_MAX, Site, SyncError,
};

use crate::config::{Config, Mode};
use crate::counters::{Counters, slot};
use crate::crash::{CrashPoint, Image};
use crate::durable::Durable;
use crate::images::{Budget, Images};
use crate::sites::{Passed, SiteKind};
use crate::state::{State, Write};
use crate::trace::Call;
use crate::view::View;

/// Called just before a barrier takes effect, with the instant it would come too late for.
pub type BarrierHook = Box<dyn FnMut(&FaultMedium, Site, &CrashPoint) + Send>;
/// Called at every named step of a protocol.
pub type StepHook = Box<dyn Fn(Site) + Send + Sync>;

/// The name under which growth is listed and recorded; the call itself carries none.
pub const GROW: Site = Site::new("faultmem.medium.grow");
/// What the system answers when a device fails.
pub(crate) const EIO: i32 = 5;

/// A [`Medium`] in DRAM that knows what a crash may leave of it, and that can be damaged.
pub struct FaultMedium {
    pub(crate) view: View,
    state: Mutex<State>,
    len: AtomicU64,
    kind: MediumKind,
    mode: Mode,
    pub(crate) seed: u64,
    crash_at_steps: bool,
    hook: Mutex<Option<BarrierHook>>,
    hooked: AtomicBool,
    /// Slot of the thread that runs the hook, or 0: its own barriers do not call the hook again.
    in_hook: AtomicU32,
    step: Mutex<Option<Arc<StepHook>>>,
}

impl FaultMedium {
    /// A medium of `len` zero bytes.
    #[must_use]
    pub fn new(len: u64, kind: MediumKind, config: &Config) -> Self {
        Self::from_image(vec![0; len as usize], kind, config)
    }

    /// A medium that holds `bytes`, all of them persisted.
    #[must_use]
    pub fn from_image(bytes: Vec<u8>, kind: MediumKind, config: &Config) -> Self {
        Self::from_durable(Durable::new(bytes), kind, config)
    }

    /// A medium as a crash left it, bad pages included.
    #[must_use]
    pub fn from_crash(image: Image, kind: MediumKind, config: &Config) -> Self {
        let (bad, known) = (image.bad_pages().to_vec(), image.content_fingerprint());
        let mut durable = Durable::new(image.into_bytes());
        durable.keep_fingerprint(Some(known));
        durable.bad_mut().extend(bad);
        Self::from_durable(durable, kind, config)
    }

    fn from_durable(durable: Durable, kind: MediumKind, config: &Config) -> Self {
        let len = durable.image().len() as u64;
        let view = View::new(durable.padded(), config.reserve.max(len));
        let mode = config.mode.unwrap_or(match kind {
            MediumKind::File => Mode::Sectors,
            MediumKind::Dax | MediumKind::Shm => Mode::Words,
        });
        let mut state = State::new(durable, kind);
        state.trace = config.trace.then(Vec::new);
        Self {
            view,
            state: Mutex::new(state),
            len: AtomicU64::new(len),
            kind,
            mode,
            seed: config.seed,
            crash_at_steps: config.crash_at_steps,
            hook: Mutex::new(None),
            hooked: AtomicBool::new(false),
            in_hook: AtomicU32::new(0),
            step: Mutex::new(None),
        }
    }

    /// The unit in which a crash tears this medium.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The present instant.
    #[must_use]
    pub fn crash_point(&self) -> CrashPoint {
        self.point(&mut self.state(), None)
    }

    /// Images that a crash at the present instant may leave.
    #[must_use]
    pub fn images(&self, budget: &Budget) -> Images {
        self.crash_point().images(budget)
    }

    fn point(&self, state: &mut State, barrier: Option<(Site, SiteKind)>) -> CrashPoint {
        if !state.durable.has_fingerprint() {
            Arc::make_mut(&mut state.durable).keep_fingerprint(None);
        }
        CrashPoint {
            durable: Arc::clone(&state.durable),
            mode: self.mode,
            barrier,
            ordinal: state.barriers,
            calls: state.trace.as_ref().map_or(0, Vec::len),
        }
    }

    /// Has `hook` called just before each drain, append, sync, heal and growth takes effect, and
    /// before each step if the configuration says so. Barriers that are switched off, and drains
    /// of a File, take no effect and are not announced.
    ///
    /// The medium is not locked meanwhile: the hook may read it, and open media made from images.
    /// Barriers passed by the hook itself are not announced. Barriers of other threads wait for
    /// it, so it must not wait for them. It must not set hooks of the same medium.
    pub fn on_barrier(&self, hook: BarrierHook) {
        *lock(&self.hook) = Some(hook);
        self.hooked.store(true, Ordering::Release);
    }

    /// Takes the barrier hook away.
    pub fn clear_on_barrier(&self) {
        self.hooked.store(false, Ordering::Release);
        *lock(&self.hook) = None;
    }

    /// Has `hook` called at every [`step`](Medium::step), by the thread that takes it, with
    /// nothing locked: it may park or unwind.
    pub fn on_step(&self, hook: StepHook) {
        *lock(&self.step) = Some(Arc::new(hook));
    }

    /// Counts a call of something beside the medium (a dirty source, the system) as one that can
    /// fail; whether it is to fail now.
    pub fn refuses(&self) -> bool {
        self.state().gate.fails()
    }

    /// Takes the step hook away.
    pub fn clear_on_step(&self) {
        *lock(&self.step) = None;
    }

    /// Switches a named place off: see [`SiteKind`] for what is left of each kind.
    pub fn elide(&self, site: Site) {
        self.elide_name(site.name());
    }

    /// Switches a place off by its name, as the list of places seen gives it. `name:kind` switches
    /// off what of that kind happens there and nothing else: see [`SiteKind::at`]. With a line of
    /// the source behind it, it is what happens there alone: see [`at_line`](crate::at_line).
    pub fn elide_name(&self, name: &str) {
        self.state().sites.switch_off(name);
    }

    /// Switches every place on again.
    pub fn restore_sites(&self) {
        self.state().sites.restore();
    }

    /// Every place passed so far, what it does, and how often; ordered by name.
    #[must_use]
    pub fn sites_seen(&self) -> Vec<(Site, SiteKind, u64)> {
        self.state().sites.seen()
    }

    /// Every name passed so far with what happened there and where in the source that is; ordered
    /// by name. A name that stands for several places or deeds is there several times.
    #[must_use]
    pub fn passed(&self) -> Vec<Passed> {
        self.state().sites.passed().collect()
    }

    /// From here on everything stored is made durable just before each store, drain, append, sync
    /// or heal at `place`, as if flushes and a fence stood there: to try whether that is what is
    /// missing.
    pub fn persist_before(&self, place: &'static Location<'static>) {
        self.state().cures.push(place);
    }

    /// Every store, flush and barrier in force so far, in order; empty unless the configuration
    /// asks for it. Of calls that failed only those that could have made something durable.
    #[must_use]
    pub fn trace(&self) -> Vec<Call> {
        self.state().trace.clone().unwrap_or_default()
    }

    /// Stores without a flush, for code that flushes by itself.
    ///
    /// # Errors
    /// As [`Medium::put`].
    #[track_caller]
    pub fn store(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.store_as(SiteKind::Store, site, Location::caller(), at, bytes)
    }

    /// Flushes the lines of a range: the calling thread's next drain makes durable what they hold
    /// now. On File it does nothing.
    ///
    /// # Errors
    /// As [`Medium::put`].
    #[track_caller]
    pub fn flush(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        let place = Location::caller();
        let mut state = self.state();
        let on = state.sites.visit(site, SiteKind::Flush, place);
        state.in_range(at, len)?;
        if on && self.kind != MediumKind::File {
            let before = state.thread(slot()).counters;
            state.flush(slot(), at, len);
            let now = self.call(&mut state, (site, SiteKind::Flush, place), at, len);
            let flushed = now.flushed - before.lines_flushed;
            let wasted = now.wasted - before.redundant_flushes;
            state.note(Call { flushed, wasted, ..now });
        }
        Ok(())
    }

    /// A call as it stands after it was made, with all that its thread flushed and wasted so far.
    fn call(
        &self,
        state: &mut State,
        (site, kind, place): (Site, SiteKind, &'static Location<'static>),
        at: u64,
        len: u64,
    ) -> Call {
        let (thread, number) = (slot(), state.number());
        let counters = state.thread(thread).counters;
        let (flushed, wasted) = (counters.lines_flushed, counters.redundant_flushes);
        let (before, after) = (number, number);
        Call { site, kind, place, at, len, before, after, flushed, wasted, idle: false, thread }
    }

    /// Records a barrier about to take effect.
    fn note_barrier(
        &self,
        state: &mut State,
        (site, kind, place): (Site, SiteKind, &'static Location<'static>),
        (before, idle): (u64, bool),
        (at, len): (u64, u64),
    ) {
        if state.trace.is_some() {
            let call = self.call(state, (site, kind, place), at, len);
            state.note(Call { before, flushed: 0, wasted: 0, idle, ..call });
        }
    }

    /// Counts of all threads together.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let state = self.state();
        state.threads.values().fold(Counters::default(), |mut sum, thread| {
            sum += thread.counters;
            sum
        })
    }

    /// Counts of the calling thread.
    #[must_use]
    pub fn thread_counters(&self) -> Counters {
        self.state().threads.get(&slot()).map_or_else(Counters::default, |thread| thread.counters)
    }

    /// Sets the counts of every thread to zero. What is outstanding stays so.
    pub fn reset_counters(&self) {
        for thread in self.state().threads.values_mut() {
            thread.counters = Counters::default();
        }
    }

    /// Whether the calling thread has flushed lines that it has not drained.
    #[must_use]
    pub fn has_outstanding(&self) -> bool {
        self.state().threads.get(&slot()).is_some_and(|thread| !thread.flushed.is_empty())
    }

    /// Announces a barrier: runs the hook with the state unlocked, then counts the barrier.
    ///
    /// The hook stays taken until the caller has made the barrier effective. So whoever runs the
    /// hook sees an instant that includes every barrier passed before, and with it everything
    /// that other threads may have acknowledged meanwhile.
    fn barrier<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        site: Site,
        kind: SiteKind,
    ) -> Passing<'a> {
        let me = slot();
        let hooked = self.hooked.load(Ordering::Acquire);
        let mut taken = None;
        if hooked && self.in_hook.load(Ordering::Acquire) != me {
            drop(state);
            let mut hook = lock(&self.hook);
            if let Some(hook) = hook.as_mut() {
                let point = self.point(&mut self.state(), Some((site, kind)));
                let _running = Running::start(&self.in_hook, me);
                hook(self, site, &point);
            }
            state = self.state();
            taken = Some(hook);
        }
        state.barriers += 1;
        Passing { state, _hook: taken }
    }

    /// A store, with its flush unless it is to have none, the place is switched off or the medium
    /// is a file.
    fn store_as(
        &self,
        kind: SiteKind,
        site: Site,
        place: &'static Location<'static>,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), MediaError> {
        let mut state = self.state();
        let on = state.sites.visit(site, kind, place);
        let fails = state.gate.fails();
        state.in_range(at, bytes.len() as u64)?;
        state.cure(&self.view, place);
        let mixed;
        let bytes = if kind == SiteKind::Xor {
            let mut now = vec![0; bytes.len()];
            self.view.read(at, &mut now);
            now.iter_mut().zip(bytes).for_each(|(now, delta)| *now ^= delta);
            mixed = now;
            &mixed[..]
        } else {
            bytes
        };
        let me = slot();
        let flushes = on && kind != SiteKind::Store && self.kind != MediumKind::File;
        let flush_for = flushes.then_some(me);
        let write = Write { site, at, bytes, whole: false, flush_for };
        let count = |state: &mut State, len: usize| {
            let counters = &mut state.thread(me).counters;
            counters.stores += 1;
            counters.stored_bytes += len as u64;
        };
        if fails {
            // The worst a failing store may do: part of the range is stored.
            let half = &bytes[..bytes.len() / 2];
            state.write(&self.view, &Write { bytes: half, ..write })?;
            return Err(refused(at, bytes.len() as u64));
        }
        count(&mut state, bytes.len());
        if state.trace.is_none() {
            return state.write(&self.view, &write);
        }
        // The barrier of an append to memory is recorded by itself.
        let kind = if kind == SiteKind::Append { SiteKind::Put } else { kind };
        let before = self.call(&mut state, (site, kind, place), at, bytes.len() as u64);
        let stored = state.write(&self.view, &write);
        let after = self.call(&mut state, (site, kind, place), at, bytes.len() as u64);
        let (flushed, wasted) = (after.flushed - before.flushed, after.wasted - before.wasted);
        state.note(Call { before: before.before, flushed, wasted, ..after });
        stored
    }

    fn append_to_file(
        &self,
        site: Site,
        place: &'static Location<'static>,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), SyncError> {
        let mut state = self.state();
        let before = state.number();
        let on = state.sites.visit(site, SiteKind::Append, place);
        let fails = state.gate.fails();
        let len = bytes.len() as u64;
        state.in_range(at, len).map_err(|error| sync_error("append", invalid(error)))?;
        state.cure(&self.view, place);
        let stored = {
            let bytes = if fails { &bytes[..bytes.len() / 2] } else { bytes };
            let write = Write { site, at, bytes, whole: true, flush_for: None };
            state.write(&self.view, &write)
        };
        if fails || stored.is_err() {
            state.leave_in_doubt(Some((at, len)));
            return Err(sync_error("pwritev2", io::Error::from_raw_os_error(EIO)));
        }
        let this = (site, SiteKind::Append, place);
        self.note_barrier(&mut state, this, (before, false), (at, len));
        if on {
            let upto = state.number();
            let mut passing = self.barrier(state, site, SiteKind::Append);
            passing.state.thread(slot()).counters.appends += 1;
            passing.state.persist_range(&self.view, at, len, upto);
        }
        Ok(())
    }

    /// As [`Medium::sync`], for `[at, at + len)` alone: what a sync of one of several files that
    /// share this medium does.
    ///
    /// # Errors
    /// As [`Medium::sync`].
    #[track_caller]
    pub fn sync_range(&self, site: Site, at: u64, len: u64) -> Result<(), SyncError> {
        match self.kind {
            MediumKind::File => self.write_back(site, at, len),
            MediumKind::Dax | MediumKind::Shm => self.sync(site),
        }
    }

    /// What the system does when a file is synced: everything stored to `[at, at + len)` is made
    /// durable, whoever stored it, and on persistent memory whether it was flushed or not.
    ///
    /// # Errors
    /// As [`Medium::sync`].
    #[track_caller]
    pub fn write_back(&self, site: Site, at: u64, len: u64) -> Result<(), SyncError> {
        let place = Location::caller();
        let this = (site, SiteKind::Sync, place);
        let mut state = self.state();
        let on = state.sites.visit(site, SiteKind::Sync, place);
        state.in_range(at, len).map_err(|error| sync_error("fdatasync", invalid(error)))?;
        state.cure(&self.view, place);
        if state.gate.fails() {
            state.leave_in_doubt(Some((at, len)));
            return Err(sync_error("fdatasync", io::Error::from_raw_os_error(EIO)));
        }
        if on {
            let upto = state.number();
            self.note_barrier(&mut state, this, (upto, false), (at, len));
            let mut passing = self.barrier(state, site, SiteKind::Sync);
            passing.state.thread(slot()).counters.syncs += 1;
            passing.state.persist_range(&self.view, at, len, upto);
        }
        Ok(())
    }

    fn drain_as<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        site: Site,
        kind: SiteKind,
        place: &'static Location<'static>,
    ) {
        if self.kind == MediumKind::File {
            state.drain(&self.view, slot());
        } else {
            let idle = state.trace.is_some() && state.waits_for_nothing(slot());
            let number = state.number();
            self.note_barrier(&mut state, (site, kind, place), (number, idle), (0, 0));
            self.barrier(state, site, kind).state.drain(&self.view, slot());
        }
    }
}

impl Medium for FaultMedium {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn kind(&self) -> MediumKind {
        self.kind
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        let mut state = self.state();
        let len = into.len() as u64;
        let fails = state.gate.fails();
        state.in_range(at, len)?;
        if fails {
            return Err(refused(at, len));
        }
        if let Some(bad) = state.first_bad(at, len) {
            return Err(bad);
        }
        self.view.read(at, into);
        Ok(())
    }

    #[track_caller]
    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.store_as(SiteKind::Put, site, Location::caller(), at, bytes)
    }

    #[track_caller]
    fn put_aside(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.put(site, at, bytes)
    }

    /// As on the real medium: short ones do.
    fn put_is_cached(&self, len: u64) -> bool {
        len <= PUT_CACHED_MAX as u64
    }

    #[track_caller]
    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        self.store_as(SiteKind::Xor, site, Location::caller(), at, delta)
    }

    #[track_caller]
    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        // A hostile length must not become an allocation; one byte too many is refused as well.
        let zeroes = vec![0; len.min(self.len() + 1) as usize];
        let stored = self.store_as(SiteKind::Zero, site, Location::caller(), at, &zeroes);
        stored.map_err(|error| match error.cause {
            MediaCause::OutOfRange => MediaError { len, ..error },
            _ => error,
        })
    }

    #[track_caller]
    fn drain(&self, site: Site) {
        let place = Location::caller();
        let mut state = self.state();
        state.cure(&self.view, place);
        if state.sites.visit(site, SiteKind::Drain, place) {
            self.drain_as(state, site, SiteKind::Drain, place);
        }
    }

    #[track_caller]
    fn enabled(&self, site: Site) -> bool {
        self.state().sites.visit(site, SiteKind::Enabled, Location::caller())
    }

    fn locked(&self) {
        let mut state = self.state();
        let thread = state.thread(slot());
        thread.counters.hidden_drains += u64::from(thread.outstanding);
        thread.outstanding = false;
    }

    #[track_caller]
    fn step(&self, site: Site) {
        let mut state = self.state();
        state.sites.visit(site, SiteKind::Step, Location::caller());
        if self.crash_at_steps {
            drop(self.barrier(state, site, SiteKind::Step));
        } else {
            drop(state);
        }
        let hook = lock(&self.step).clone();
        if let Some(hook) = hook {
            hook(site);
        }
    }

    #[track_caller]
    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        let place = Location::caller();
        if self.kind == MediumKind::File {
            return self.append_to_file(site, place, at, bytes);
        }
        let stored = self.store_as(SiteKind::Append, site, place, at, bytes);
        stored.map_err(|error| match error.cause {
            MediaCause::OutOfRange => sync_error("store", invalid(error)),
            _ => sync_error("store", io::Error::other(error)),
        })?;
        let state = self.state();
        if !state.sites.is_off((site, SiteKind::Append, place)) {
            self.drain_as(state, site, SiteKind::Append, place);
        }
        Ok(())
    }

    #[track_caller]
    fn sync(&self, site: Site) -> Result<(), SyncError> {
        let place = Location::caller();
        let mut state = self.state();
        state.cure(&self.view, place);
        let on = state.sites.visit(site, SiteKind::Sync, place);
        let file = self.kind == MediumKind::File;
        if state.gate.fails() {
            if file {
                state.leave_in_doubt(None);
            }
            return Err(sync_error("fdatasync", io::Error::from_raw_os_error(EIO)));
        }
        if !on {
            return Ok(());
        }
        if file {
            let upto = state.number();
            let traced = state.trace.is_some();
            let idle = traced && state.durable.lines_to_sync(upto).is_empty();
            self.note_barrier(&mut state, (site, SiteKind::Sync, place), (upto, idle), (0, 0));
            let mut passing = self.barrier(state, site, SiteKind::Sync);
            passing.state.thread(slot()).counters.syncs += 1;
            passing.state.sync(&self.view, upto);
        } else {
            self.drain_as(state, site, SiteKind::Sync, place);
        }
        Ok(())
    }

    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        (at.checked_add(len)? <= self.len()).then(|| self.view.address(at))
    }

    #[track_caller]
    fn grow(&self, len: u64) -> Result<(), SyncError> {
        let place = Location::caller();
        let mut state = self.state();
        state.sites.visit(GROW, SiteKind::Grow, place);
        if state.gate.fails() {
            return Err(sync_error("fallocate", io::ErrorKind::StorageFull.into()));
        }
        if len == state.len() {
            return Ok(());
        }
        if !len.is_multiple_of(PAGE) || len < state.len() {
            let why = "the new size is smaller or no multiple of a page";
            return Err(sync_error("grow", io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        if len > self.view.capacity() {
            let why = "no address range left: construct the medium with a greater reserve";
            return Err(sync_error("grow", io::Error::new(io::ErrorKind::OutOfMemory, why)));
        }
        let (now, old) = (state.number(), state.len());
        let this = (GROW, SiteKind::Grow, place);
        self.note_barrier(&mut state, this, (now, false), (old, len - old));
        let mut passing = self.barrier(state, GROW, SiteKind::Grow);
        // Another thread may have grown the medium further meanwhile.
        if len > passing.state.len() {
            Arc::make_mut(&mut passing.state.durable).grow(len);
            self.len.store(len, Ordering::Release);
        }
        Ok(())
    }

    #[track_caller]
    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        let place = Location::caller();
        let mut state = self.state();
        let on = state.sites.visit(site, SiteKind::Heal, place);
        let fails = state.gate.fails();
        state.in_range(at, PAGE)?;
        if !at.is_multiple_of(PAGE) || bytes.len() as u64 != PAGE {
            let len = bytes.len() as u64;
            return Err(MediaError { at, len, cause: MediaCause::OutOfRange });
        }
        state.cure(&self.view, place);
        let before = state.number();
        let page = state.frames.physical_page(at / PAGE);
        let unable = state.durable.bad().get(&page) == Some(&crate::Clear::Unable);
        if fails || unable || state.frames.stands_in(at / PAGE) {
            return Err(MediaError { at, len: PAGE, cause: MediaCause::Unclearable });
        }
        // Loads see the rewrite at once. Until the barrier a crash shows a part of it without the
        // poison, or the poison and nothing of it.
        Arc::make_mut(&mut state.durable).begin_rewrite(page, on);
        state.write(&self.view, &Write { site, at, bytes, whole: true, flush_for: None })?;
        self.note_barrier(&mut state, (site, SiteKind::Heal, place), (before, false), (at, PAGE));
        if on {
            let upto = state.number();
            let mut passing = self.barrier(state, site, SiteKind::Heal);
            passing.state.persist_range(&self.view, at, PAGE, upto);
            Arc::make_mut(&mut passing.state.durable).end_rewrite(page);
        }
        Ok(())
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        let mut state = self.state();
        let fails = state.gate.fails();
        state.in_range(at, len)?;
        state.in_range(physical, len)?;
        if let Some(&odd) = [at, physical, len].iter().find(|place| !place.is_multiple_of(PAGE)) {
            return Err(MediaError { at: odd, len, cause: MediaCause::OutOfRange });
        }
        if fails {
            return Err(MediaError { at, len, cause: MediaCause::Unclearable });
        }
        for page in 0..len / PAGE {
            state.frames.relocate(at / PAGE + page, physical / PAGE + page);
            state.refresh(&self.view, physical / PAGE + page);
        }
        Ok(())
    }

    fn stand_in(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        let mut state = self.state();
        let fails = state.gate.fails();
        state.in_range(at, PAGE)?;
        let len = bytes.len() as u64;
        if !at.is_multiple_of(PAGE) || len != PAGE {
            return Err(MediaError { at, len, cause: MediaCause::OutOfRange });
        }
        if fails {
            return Err(MediaError { at, len, cause: MediaCause::Unclearable });
        }
        state.frames.stand_in(at / PAGE);
        self.view.write(at, bytes);
        Ok(())
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        let state = self.state();
        let mut pages = Vec::new();
        for &physical in state.durable.bad().keys() {
            state.frames.for_each_alias(physical, |page| pages.push(page));
        }
        pages.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for at in pages.into_iter().map(|page| page * PAGE) {
            match ranges.last_mut() {
                Some((start, len)) if *start + *len == at => *len += PAGE,
                _ => ranges.push((at, PAGE)),
            }
        }
        ranges
    }
}

impl fmt::Debug for FaultMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultMedium")
            .field("len", &self.len())
            .field("kind", &self.kind)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// A barrier that was announced and is about to take effect. The state is let go first.
struct Passing<'a> {
    state: MutexGuard<'a, State>,
    _hook: Option<MutexGuard<'a, Option<BarrierHook>>>,
}

/// Marks the thread that runs the hook, until dropped, also by a panic of the hook.
struct Running<'a>(&'a AtomicU32);

impl<'a> Running<'a> {
    fn start(owner: &'a AtomicU32, slot: u32) -> Self {
        owner.store(slot, Ordering::Release);
        Self(owner)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Locks, also after a panic of another holder: tests unwind on purpose, and nothing here is
/// left half done by it, because hooks run with the state unlocked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error of an access made to fail.
const fn refused(at: u64, len: u64) -> MediaError {
    MediaError { at, len, cause: MediaCause::Poison }
}

fn sync_error(call: &'static str, source: io::Error) -> SyncError {
    SyncError { call, source }
}

fn invalid(error: MediaError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
