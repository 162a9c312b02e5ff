//! The faulty medium with a scheduling point at each access, and wrong variants that no site of it
//! can make.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdfast_faultmem::{CrashPoint, FaultMedium};
use holdfast_pmem::{MediaError, Medium, MediumKind, Site, SyncError};
use shuttle::sync::atomic::AtomicBool;

/// Names of the steps after which a commit is visible.
const VISIBLE: [&str; 2] = ["object.commit.step-put-off", "object.commit.step-done"];

/// What is held back until somebody's commit is visible: in a wrong variant.
enum Late {
    Put(Site, u64, Vec<u8>),
    Xor(Site, u64, Vec<u8>),
}

/// What is noted at the instant of the crash.
pub(super) type Noted = Box<dyn Fn(CrashPoint) + Send + Sync>;

/// The medium. Its own locks are of the standard library and never held across a scheduling point.
pub(super) struct Stepped {
    pub(super) inner: FaultMedium,
    /// Loaded at each access: there another thread may go on.
    point: AtomicBool,
    /// Sites whose stores come late.
    late: &'static str,
    kept: Mutex<Vec<Late>>,
    /// Barriers until the crash.
    left: AtomicI64,
    noted: Mutex<Option<Noted>>,
}

impl std::fmt::Debug for Stepped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stepped").field("inner", &self.inner).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stepped {
    /// `inner`, with the stores of sites that start with `late` held back, if there are any.
    pub(super) fn new(inner: FaultMedium, late: &'static str) -> Self {
        let left = AtomicI64::new(i64::MAX);
        let (kept, noted) = (Mutex::new(Vec::new()), Mutex::new(None));
        Self { inner, point: AtomicBool::new(false), late, kept, left, noted }
    }

    /// Has the instant just before the barrier after so many others noted.
    pub(super) fn crash_before(&self, barriers: i64, noted: Noted) {
        *lock(&self.noted) = Some(noted);
        self.left.store(barriers, Ordering::SeqCst);
    }

    /// Has the present instant noted, unless that was done.
    pub(super) fn crash_now(&self) {
        if let Some(noted) = lock(&self.noted).take() {
            noted(self.inner.crash_point());
        }
    }

    /// Notes no instant any more.
    pub(super) fn forget_crash(&self) {
        *lock(&self.noted) = None;
    }

    fn pause(&self) {
        self.point.load(Ordering::SeqCst);
    }

    fn barrier(&self) {
        self.pause();
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.crash_now();
        }
    }

    fn is_late(&self, site: Site) -> bool {
        !self.late.is_empty() && site.name().starts_with(self.late)
    }

    fn catch_up(&self) {
        for late in std::mem::take(&mut *lock(&self.kept)) {
            // The variant is wrong already; what it cannot store is missing, too.
            let _ = match late {
                Late::Put(site, at, bytes) => self.inner.put(site, at, &bytes),
                Late::Xor(site, at, delta) => self.inner.xor(site, at, &delta),
            };
        }
    }
}

impl Medium for Stepped {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn kind(&self) -> MediumKind {
        self.inner.kind()
    }
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.pause();
        // Others may store between two words of what is read: here, between two halves.
        let half = if into.len() >= 32 { into.len() / 16 * 8 } else { 0 };
        let (first, second) = into.split_at_mut(half);
        if !first.is_empty() {
            self.inner.read(at, first)?;
            self.pause();
        }
        self.inner.read(at + half as u64, second)
    }
    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.pause();
        if self.is_late(site) {
            lock(&self.kept).push(Late::Put(site, at, bytes.to_vec()));
            return Ok(());
        }
        self.inner.put(site, at, bytes)
    }
    fn put_aside(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.pause();
        self.inner.put_aside(site, at, bytes)
    }
    fn put_is_cached(&self, len: u64) -> bool {
        self.inner.put_is_cached(len)
    }
    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        self.pause();
        if self.is_late(site) {
            lock(&self.kept).push(Late::Xor(site, at, delta.to_vec()));
            return Ok(());
        }
        self.inner.xor(site, at, delta)
    }
    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        self.pause();
        self.inner.zero(site, at, len)
    }
    fn drain(&self, site: Site) {
        self.barrier();
        self.inner.drain(site);
    }
    fn enabled(&self, site: Site) -> bool {
        self.inner.enabled(site)
    }
    fn locked(&self) {
        self.inner.locked();
    }
    fn step(&self, site: Site) {
        self.inner.step(site);
        if VISIBLE.contains(&site.name()) {
            self.pause();
            self.catch_up();
        }
    }
    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        self.barrier();
        self.inner.append(site, at, bytes)
    }
    fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.barrier();
        self.inner.sync(site)
    }
    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.inner.view(at, len)
    }
    fn grow(&self, len: u64) -> Result<(), SyncError> {
        self.barrier();
        self.inner.grow(len)
    }
    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.barrier();
        self.inner.heal(site, at, bytes)
    }
    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        self.pause();
        self.inner.remap(at, physical, len)
    }
    fn stand_in(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.pause();
        self.inner.stand_in(at, bytes)
    }
    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        self.inner.bad_ranges()
    }
}
