//! A real mapping whose pages go bad in the middle of things: each call of the engine can be the
//! one before which a page is poisoned, and each media error it is answered is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use holdfast_pmem::inject::{Poison, poison};
use holdfast_pmem::{Mapped, MediaCause, MediaError, Medium, MediumKind, PAGE, Site, SyncError};

use super::sick::Sick;

/// Serving a frame from where it was relocated to: what the medium does then.
const MAPPED: Site = Site::new("campaign.live.mapped");

/// Hearing of a media error that a load met.
const HEARD: Site = Site::new("campaign.live.heard");

/// Giving back what was made good, and not other bytes.
const GIVEN_BACK: Site = Site::new("campaign.live.given-back");

/// Telling which pages the system lists as bad.
const LISTED: Site = Site::new("campaign.live.listed");

/// A page that is to go bad.
#[derive(Debug, Clone, Copy)]
pub struct Trip {
    /// Which calls count, by the names of their places.
    pub only: fn(&str) -> bool,
    /// It does so before the call with this number from now on; 0 is the next.
    pub after: u64,
    /// Its first byte.
    pub page: u64,
    /// Whether a rewrite cures it.
    pub poison: Poison,
}

#[derive(Debug)]
struct Inner {
    mapped: Mapped,
    /// Names of the calls since somebody asked for them.
    trace: Mutex<Option<Vec<&'static str>>>,
    trip: Mutex<Option<Trip>>,
    /// Where the last trip went off.
    hit: Mutex<Option<&'static str>>,
    /// Media errors answered, by page.
    met: Mutex<BTreeMap<u64, u64>>,
    /// Pages that the machine was to have fail.
    failed: Mutex<BTreeSet<u64>>,
    /// A page goes bad between two accesses. Injection destroys its bytes a moment before it can
    /// no longer be read, and no medium shows that.
    access: RwLock<()>,
    /// The machine that the mapping is on, if that is what errors come from.
    sick: Option<Sick>,
}

/// The mapping.
#[derive(Debug, Clone)]
pub struct Live(Arc<Inner>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    /// Watches over a mapping.
    #[must_use]
    pub fn new(mapped: Mapped) -> Self {
        Self::on(mapped, None)
    }

    /// The same, of a mapping on a machine whose errors are to be met.
    #[must_use]
    pub fn on(mapped: Mapped, sick: Option<Sick>) -> Self {
        Self(Arc::new(Inner {
            mapped,
            trace: Mutex::default(),
            trip: Mutex::default(),
            hit: Mutex::default(),
            met: Mutex::default(),
            failed: Mutex::default(),
            access: RwLock::default(),
            sick,
        }))
    }

    /// The mapping itself.
    #[must_use]
    pub fn mapped(&self) -> &Mapped {
        &self.0.mapped
    }

    /// Names the calls of `work`, in order.
    pub fn trace<T>(&self, work: impl FnOnce() -> T) -> (T, Vec<&'static str>) {
        *lock(&self.0.trace) = Some(Vec::new());
        let done = work();
        (done, lock(&self.0.trace).take().unwrap_or_default())
    }

    /// Has a page go bad before a call to come.
    pub fn arm(&self, trip: Trip) {
        *lock(&self.0.trip) = Some(trip);
        *lock(&self.0.hit) = None;
    }

    /// Where the page armed last went bad; nothing if it did not, and then it will not.
    #[must_use]
    pub fn disarm(&self) -> Option<&'static str> {
        *lock(&self.0.trip) = None;
        lock(&self.0.hit).take()
    }

    /// Media errors answered so far, by page.
    #[must_use]
    pub fn met(&self) -> BTreeMap<u64, u64> {
        lock(&self.0.met).clone()
    }

    /// Has a page go bad now.
    ///
    /// # Errors
    /// It is no page of the mapping.
    pub fn poison(&self, page: u64, kind: Poison) -> Result<(), MediaError> {
        lock(&self.0.failed).insert(page);
        // Its bytes stay as they are until nobody gets at them.
        if let Some(sick) = self.0.sick.as_ref().filter(|sick| sick.waits()) {
            return sick.lose(&self.0.mapped, page);
        }
        let _alone = self.0.access.write().unwrap_or_else(PoisonError::into_inner);
        match &self.0.sick {
            Some(sick) => sick.lose(&self.0.mapped, page),
            None => poison(&self.0.mapped, page, PAGE, kind),
        }
    }

    /// Has many pages go bad at once, injected into the mapping.
    ///
    /// # Errors
    /// They are not pages of the mapping.
    pub fn poison_all(&self, at: u64, len: u64, kind: Poison) -> Result<(), MediaError> {
        let _alone = self.0.access.write().unwrap_or_else(PoisonError::into_inner);
        poison(&self.0.mapped, at, len, kind)
    }

    /// The machine that errors come from, if they are not injected into the mapping.
    #[must_use]
    pub fn sick(&self) -> Option<&Sick> {
        self.0.sick.as_ref()
    }

    fn is_off(&self, site: Site) -> bool {
        self.0.sick.as_ref().is_some_and(|sick| sick.is_off(site))
    }

    fn access(&self) -> RwLockReadGuard<'_, ()> {
        self.0.access.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn before(&self, site: &'static str) {
        if let Some(trace) = lock(&self.0.trace).as_mut() {
            trace.push(site);
        }
        let mut trip = lock(&self.0.trip);
        let Some(armed) = trip.as_mut().filter(|trip| (trip.only)(site)) else { return };
        if armed.after > 0 {
            armed.after -= 1;
            return;
        }
        if self.poison(armed.page, armed.poison).is_ok() {
            *lock(&self.0.hit) = Some(site);
        }
        *trip = None;
    }

    /// Changes the first byte that was read of each page that has failed.
    fn change(&self, at: u64, read: &mut [u8]) {
        for page in lock(&self.0.failed).iter() {
            let first = usize::try_from(page.saturating_sub(at)).unwrap_or(usize::MAX);
            if at < page + PAGE
                && let Some(byte) = read.get_mut(first)
            {
                *byte ^= 1;
            }
        }
    }

    fn note<T>(&self, result: Result<T, MediaError>) -> Result<T, MediaError> {
        if let Err(MediaError { at, cause: MediaCause::Poison, .. }) = &result {
            *lock(&self.0.met).entry(at / PAGE * PAGE).or_default() += 1;
        }
        result
    }
}

impl Medium for Live {
    fn len(&self) -> u64 {
        self.0.mapped.len()
    }

    fn inherited(&self) -> bool {
        self.0.mapped.inherited()
    }

    fn cut_off(&self) -> bool {
        self.0.mapped.cut_off()
    }

    fn kind(&self) -> MediumKind {
        self.0.mapped.kind()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.before("read");
        let _access = self.access();
        let done = self.0.mapped.read(at, into);
        if done.is_err() && self.is_off(HEARD) {
            return Ok(());
        }
        if self.is_off(GIVEN_BACK) {
            self.change(at, into);
        }
        self.note(done)
    }

    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.before(site.name());
        if self.is_off(site) {
            return Ok(());
        }
        let _access = self.access();
        self.note(self.0.mapped.put(site, at, bytes))
    }

    fn enabled(&self, site: Site) -> bool {
        !self.is_off(site)
    }

    fn put_is_cached(&self, len: u64) -> bool {
        self.0.mapped.put_is_cached(len)
    }

    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        self.before(site.name());
        let _access = self.access();
        self.note(self.0.mapped.xor(site, at, delta))
    }

    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        self.before(site.name());
        let _access = self.access();
        self.note(self.0.mapped.zero(site, at, len))
    }

    fn drain(&self, site: Site) {
        self.before(site.name());
        self.0.mapped.drain(site);
    }

    fn step(&self, site: Site) {
        self.before(site.name());
        self.0.mapped.step(site);
    }

    fn begin_write(&self) {
        self.0.mapped.begin_write();
    }

    fn end_write(&self) {
        self.0.mapped.end_write();
    }

    fn prefetch(&self, at: u64, len: u64) {
        self.0.mapped.prefetch(at, len);
    }

    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        self.before(site.name());
        if self.kind() == MediumKind::File {
            return self.0.mapped.append(site, at, bytes);
        }
        // What the mapping does itself, with the media error in sight.
        let _access = self.access();
        self.note(self.0.mapped.put(site, at, bytes))
            .map_err(|error| SyncError { call: "store", source: std::io::Error::other(error) })?;
        self.0.mapped.drain(site);
        Ok(())
    }

    fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.before(site.name());
        self.0.mapped.sync(site)
    }

    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.0.mapped.view(at, len)
    }

    fn grow(&self, len: u64) -> Result<(), SyncError> {
        self.0.mapped.grow(len)
    }

    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.before(site.name());
        if self.is_off(site) {
            return Ok(());
        }
        self.0.mapped.heal(site, at, bytes)
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        if self.is_off(MAPPED) {
            return Ok(());
        }
        self.0.mapped.remap(at, physical, len)
    }

    fn stand_in(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.0.mapped.stand_in(at, bytes)
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        if self.is_off(LISTED) {
            return Vec::new();
        }
        self.0.mapped.bad_ranges()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_pmem::Options;
    use holdfast_pmem::inject::handler_count;

    use super::*;

    const HERE: Site = Site::new("campaign.live.test");

    #[test]
    fn a_page_goes_bad_before_the_call_asked_for_and_each_error_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let mapped = Mapped::create(&folder.path().join("pool"), 4 * PAGE, &Options::default());
        let live = Live::new(mapped.expect("a mapping"));
        let before = handler_count();
        live.arm(Trip { only: |_| true, after: 1, page: PAGE, poison: Poison::Clearable });
        let (done, calls) = live.trace(|| live.put(HERE, PAGE, &[1]));
        assert_eq!((done, calls), (Ok(()), vec![HERE.name()]));
        assert!(live.read(PAGE, &mut [0]).is_err());
        assert!(live.put(HERE, PAGE + 8, &[1]).is_err());
        assert_eq!(live.disarm(), Some("read"));
        assert_eq!(live.met().into_iter().collect::<Vec<_>>(), [(PAGE, 2)]);
        assert_eq!(handler_count() - before, 2);
    }
}
