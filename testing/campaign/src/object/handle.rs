//! A medium that outlives the pool on it: pools own their medium and close it when they go, but a
//! campaign wants to look at what is left, and to let a pool die instead of closing it.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_faultmem::{FailMode, Fallen, FaultMedium, Passed};
use holdfast_object::Pool;
use holdfast_pmem::{MediaError, Medium, MediumKind, Site, SyncError};

/// The sites passed on any of several media, and what happened there.
#[derive(Debug, Clone, Default)]
pub struct Visited(Arc<Mutex<BTreeSet<Passed>>>);

impl Visited {
    /// Their names, in order.
    #[must_use]
    pub fn names(&self) -> BTreeSet<&'static str> {
        self.passed().into_iter().map(|(site, ..)| site.name()).collect()
    }

    /// Everything that was passed.
    #[must_use]
    pub fn passed(&self) -> BTreeSet<Passed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a place was passed, given by its name or by its name and a kind.
    #[must_use]
    pub fn has(&self, place: &str) -> bool {
        let passed = self.passed();
        passed.iter().any(|(site, kind, _)| site.name() == place || kind.at(*site) == place)
    }
}

/// A store of the program.
#[derive(Debug, Clone, Copy)]
struct Stored {
    /// The name of its place.
    site: &'static str,
    /// First byte, bytes.
    at: u64,
    len: u64,
    /// Stores of the medium made by then.
    made: u64,
    /// What was there before is gone: a change on top of it leaves what was wrong wrong.
    over: bool,
}

impl Stored {
    const fn touches(&self, at: u64, len: u64) -> bool {
        self.at < at + len && at < self.at + self.len
    }

    /// Whether it is one of the program, and not of a repair, a cure of who recovers, or a scrub.
    fn is_own(&self) -> bool {
        let mends = ["object.repair.", "object.redo.cure", "object.bring_back."];
        let in_name = ["scrub", "heal"];
        !mends.iter().any(|mends| self.site.starts_with(mends))
            && !in_name.iter().any(|word| self.site.contains(word))
    }
}

/// A medium, and who wants to know where it was passed once it goes.
#[derive(Debug)]
struct Noted {
    medium: FaultMedium,
    visited: Option<Visited>,
    /// What was stored since somebody asked for it.
    stores: Mutex<Option<Vec<Stored>>>,
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(visited) = &self.visited {
            let passed = self.medium.passed();
            visited.0.lock().unwrap_or_else(PoisonError::into_inner).extend(passed);
        }
    }
}

/// A shared faulty medium.
#[derive(Debug, Clone)]
pub struct Handle(Arc<Noted>);

impl Handle {
    /// Shares a medium; when the last handle goes, `visited` learns which sites it has seen.
    #[must_use]
    pub fn new(medium: FaultMedium, visited: Option<Visited>) -> Self {
        Self(Arc::new(Noted { medium, visited, stores: Mutex::default() }))
    }

    /// Takes down each store from now on.
    pub fn note_stores(&self) {
        *self.stores() = Some(Vec::new());
    }

    /// Whether anybody has stored over all these bytes.
    #[must_use]
    pub fn any_stored(&self, bytes: impl Iterator<Item = u64>) -> bool {
        let stores = self.stores();
        let stores = stores.as_deref().unwrap_or_default();
        let over = |byte: u64| stores.iter().any(|it| it.over && it.touches(byte, 1));
        bytes.into_iter().all(over)
    }

    /// Whether the program has stored to any byte of a range, or changed one.
    #[must_use]
    pub fn worked_on(&self, at: u64, len: u64) -> bool {
        let stores = self.stores();
        let mut all = stores.as_deref().unwrap_or_default().iter();
        all.any(|it| it.is_own() && it.touches(at, len))
    }

    /// Whether the program has stored over each of these bytes after as many stores of the medium.
    /// What repairs and scrubs store does not count.
    #[must_use]
    pub fn stored_over(&self, bytes: &[Fallen]) -> bool {
        let stores = self.stores();
        let stores = stores.as_deref().unwrap_or_default();
        let all = bytes.iter().map(|byte| byte.at);
        let (Some(first), Some(last)) = (all.clone().min(), all.max()) else { return true };
        let near = |it: &&Stored| it.over && it.is_own() && it.touches(first, last - first + 1);
        let near: Vec<&Stored> = stores.iter().filter(near).collect();
        let over =
            |byte: &Fallen| near.iter().any(|it| it.made > byte.stores && it.touches(byte.at, 1));
        bytes.iter().all(over)
    }

    fn stores(&self) -> std::sync::MutexGuard<'_, Option<Vec<Stored>>> {
        self.0.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes down a store that was made after so many others. What failed is not over what was.
    fn note(stores: &mut Option<Vec<Stored>>, site: Site, (at, len): (u64, u64), how: (u64, bool)) {
        if let Some(stores) = stores.as_mut() {
            let (before, over) = how;
            stores.push(Stored { site: site.name(), at, len, made: before + 1, over });
        }
    }

    /// Lets a pool on this medium go without a clean close, as a killed process would: from now
    /// on nothing reaches the medium any more, so look at it first.
    pub fn abandon(&self, pool: Pool<Self>) {
        self.clear_on_barrier();
        self.clear_on_step();
        self.fail_nth(self.calls() + 1, FailMode::Forever);
        drop(pool);
    }
}

impl Deref for Handle {
    type Target = FaultMedium;

    fn deref(&self) -> &FaultMedium {
        &self.0.medium
    }
}

/// Makes a store and takes it down. No closure: the medium asks for the line of who called.
macro_rules! noted {
    ($self:ident, $over:expr, $name:ident($site:ident, $at:ident, $len:expr; $($arg:expr),*)) => {{
        // Whoever stores meanwhile waits, so that the count of stores is that of this one.
        let mut stores = $self.stores();
        let before = $self.0.medium.stores();
        let done = $self.0.medium.$name($site, $at, $($arg),*);
        Self::note(&mut stores, $site, ($at, $len), (before, $over && done.is_ok()));
        done
    }};
}

/// The same of one that ends in a barrier, at which somebody may look on.
macro_rules! noted_behind {
    ($self:ident, $name:ident($site:ident, $at:ident, $bytes:ident)) => {{
        let before = $self.0.medium.stores();
        let done = $self.0.medium.$name($site, $at, $bytes);
        let len = $bytes.len() as u64;
        Self::note(&mut $self.stores(), $site, ($at, len), (before, done.is_ok()));
        done
    }};
}

impl Medium for Handle {
    fn len(&self) -> u64 {
        self.0.medium.len()
    }

    fn kind(&self) -> MediumKind {
        self.0.medium.kind()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.0.medium.read(at, into)
    }

    #[track_caller]
    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        noted!(self, true, put(site, at, bytes.len() as u64; bytes))
    }

    fn put_is_cached(&self, len: u64) -> bool {
        self.0.medium.put_is_cached(len)
    }

    #[track_caller]
    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        noted!(self, false, xor(site, at, delta.len() as u64; delta))
    }

    #[track_caller]
    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        noted!(self, true, zero(site, at, len; len))
    }

    #[track_caller]
    fn drain(&self, site: Site) {
        self.0.medium.drain(site);
    }

    #[track_caller]
    fn enabled(&self, site: Site) -> bool {
        self.0.medium.enabled(site)
    }

    fn locked(&self) {
        self.0.medium.locked();
    }

    #[track_caller]
    fn step(&self, site: Site) {
        self.0.medium.step(site);
    }

    #[track_caller]
    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        noted_behind!(self, append(site, at, bytes))
    }

    #[track_caller]
    fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.0.medium.sync(site)
    }

    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.0.medium.view(at, len)
    }

    fn grow(&self, len: u64) -> Result<(), SyncError> {
        self.0.medium.grow(len)
    }

    #[track_caller]
    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        noted_behind!(self, heal(site, at, bytes))
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        self.0.medium.remap(at, physical, len)
    }

    fn stand_in(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.0.medium.stand_in(at, bytes)
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        self.0.medium.bad_ranges()
    }
}
