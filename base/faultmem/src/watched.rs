//! A file that knows which of its pages were stored to: the dirty source of tests.
//!
//! The bits are kept beside the medium. What becomes of them in a crash is the test's choice: it
//! takes [`Watched::marks`] with the image and starts with them again, as if a controller or an
//! address space had kept them, or starts without. With a [`Record`], a first store to a page is
//! recorded before it is made, and the record forgotten when the engine says so.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_pmem::track::{DirtySource, Observed, Record, SourceKind, TrackError, WriteWay};
use holdfast_pmem::{MediaError, Medium, MediumKind, PAGE, Site, SyncError};

use crate::medium::EIO;
use crate::window::Window;

/// Forgetting what was told, and nothing else. Switched off, a look at one part forgets all of it,
/// as a system does that can only clear every bit of a process.
const SELECTIVE: Site = Site::new("faultmem.watched.selective");
/// Telling the processors that a page is protected again. Switched off, the next store to a page
/// whose bit was taken goes through an entry that a processor still has, and sets no bit.
const INVALIDATE: Site = Site::new("faultmem.watched.invalidate");

/// What is tracked, and what was stored to: page numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// Pages that are tracked.
    pub armed: BTreeSet<u64>,
    /// Pages that were stored to since they were taken.
    pub dirty: BTreeSet<u64>,
    /// Pages whose tracking was lost.
    pub lost: BTreeSet<u64>,
    /// Pages whose next store sets no bit, because a processor was not told.
    pub unseen: BTreeSet<u64>,
}

/// A [`Window`] whose stores set bits. Clones are the same file.
#[derive(Debug, Clone)]
pub struct Watched {
    window: Window,
    marks: Arc<Mutex<Marks>>,
    record: Arc<Mutex<Noted>>,
    forgetting: Arc<AtomicBool>,
    kind: SourceKind,
    /// Whether its calls fail in turn with those of the medium.
    refusable: bool,
}

/// Where first stores are recorded, if they are.
#[derive(Default)]
struct Noted(Option<Arc<dyn Record>>);

impl core::fmt::Debug for Noted {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(if self.0.is_some() { "Noted" } else { "Forgotten" })
    }
}

impl Watched {
    /// A file of which nothing is tracked yet.
    #[must_use]
    pub fn new(window: Window, kind: SourceKind) -> Self {
        Self::surviving(window, kind, Marks::default())
    }

    /// A file whose bits outlived a crash.
    #[must_use]
    pub fn surviving(window: Window, kind: SourceKind, marks: Marks) -> Self {
        let marks = Arc::new(Mutex::new(marks));
        let (record, forgetting) = (Arc::default(), Arc::default());
        Self { window, marks, record, forgetting, kind, refusable: false }
    }

    /// The same file, whose calls as a source are among those that
    /// [`fail_nth`](crate::FaultMedium::fail_nth) counts: one that fails has done nothing.
    #[must_use]
    pub fn refusable(self) -> Self {
        Self { refusable: true, ..self }
    }

    fn asked(&self, call: &'static str) -> Result<(), TrackError> {
        if self.refusable && self.window.shared().refuses() {
            let source = std::io::Error::from_raw_os_error(EIO);
            return Err(TrackError::Io { call, source });
        }
        Ok(())
    }

    /// From now on first stores are recorded there before they are made.
    pub fn record(&self, record: Arc<dyn Record>) {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).0 = Some(record);
    }

    fn recorder(&self) -> Option<Arc<dyn Record>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// The file without its bits: stores through it are not seen.
    #[must_use]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// The bits at this instant.
    #[must_use]
    pub fn marks(&self) -> Marks {
        self.lock().clone()
    }

    /// Loses track of the range, as a mapping that is moved does.
    pub fn lose(&self, at: u64, len: u64) {
        let mut marks = self.lock();
        for page in pages(at, len) {
            marks.lost.insert(page);
            marks.armed.remove(&page);
            marks.dirty.remove(&page);
        }
    }

    /// Whether records are being cleared. A first store waits meanwhile: who stores from inside
    /// a step of the medium has to put it off.
    #[must_use]
    pub fn is_forgetting(&self) -> bool {
        self.forgetting.load(Ordering::SeqCst)
    }

    /// Tells of a write to the range that went round the file, as a `write` that is announced.
    pub fn announce(&self, at: u64, len: u64) {
        Self::set(self.storing(at, len), at, len);
    }

    fn lock(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is held while a store is made and until [`Self::set`] has set its bits: both are one
    /// step as others see it. A processor whose page is protected again before the store went
    /// through meets the protection once more.
    fn storing(&self, at: u64, len: u64) -> MutexGuard<'_, Marks> {
        if let Some(record) = self.recorder() {
            // Without the lock: whoever watches the record's drains may ask for the marks. One that
            // fails leaves the page without record.
            let first = |page: &u64| {
                let marks = self.lock();
                marks.armed.contains(page) && !marks.dirty.contains(page)
            };
            for page in pages(at, len).filter(first) {
                record.set(page * PAGE);
            }
        }
        self.lock()
    }

    /// Sets the bits of a store.
    fn set(mut marks: MutexGuard<'_, Marks>, at: u64, len: u64) {
        for page in pages(at, len) {
            if !marks.unseen.remove(&page) && marks.armed.contains(&page) {
                marks.dirty.insert(page);
            }
        }
    }

    fn tell(some: impl Iterator<Item = u64>, each: &mut dyn FnMut(u64, u64)) {
        let mut run: Option<(u64, u64)> = None;
        for page in some {
            run = Some(match run {
                Some((at, len)) if at + len == page * PAGE => (at, len + PAGE),
                Some((at, len)) => {
                    each(at, len);
                    (page * PAGE, PAGE)
                }
                None => (page * PAGE, PAGE),
            });
        }
        if let Some((at, len)) = run {
            each(at, len);
        }
    }
}

/// Numbers of the pages a range touches.
fn pages(at: u64, len: u64) -> core::ops::Range<u64> {
    if len == 0 { 0..0 } else { at / PAGE..at.saturating_add(len).div_ceil(PAGE) }
}

impl DirtySource for Watched {
    fn kind(&self) -> SourceKind {
        self.kind
    }

    fn arm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        self.asked("arm")?;
        let mut marks = self.lock();
        for page in pages(at, len) {
            marks.lost.remove(&page);
            marks.armed.insert(page);
            marks.dirty.insert(page);
        }
        Ok(())
    }

    fn disarm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        self.asked("disarm")?;
        let mut marks = self.lock();
        let range = pages(at, len);
        marks.armed.retain(|page| !range.contains(page));
        marks.dirty.retain(|page| !range.contains(page));
        Ok(())
    }

    fn take(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.asked("take")?;
        let (selective, told) = (self.window.enabled(SELECTIVE), self.window.enabled(INVALIDATE));
        let mut marks = self.lock();
        let taken: Vec<u64> = marks.dirty.range(pages(at, len)).copied().collect();
        for page in &taken {
            marks.dirty.remove(page);
        }
        if !selective {
            marks.dirty.clear();
        }
        if !told {
            marks.unseen.extend(&taken);
        }
        Self::tell(taken.into_iter(), each);
        Ok(())
    }

    fn peek(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.asked("peek")?;
        let dirty: Vec<u64> = self.lock().dirty.range(pages(at, len)).copied().collect();
        Self::tell(dirty.into_iter(), each);
        Ok(())
    }

    fn forget(&self, at: u64, len: u64) {
        let Some(record) = self.recorder() else { return };
        let dirty = self.lock().dirty.clone();
        let still = pages(at, len).filter(|page| !dirty.contains(page));
        self.forgetting.store(true, Ordering::SeqCst);
        Self::tell(still, &mut |at, len| record.clear(at, len));
        self.forgetting.store(false, Ordering::SeqCst);
    }

    fn intact(&self, at: u64, len: u64) -> bool {
        let marks = self.lock();
        pages(at, len).all(|page| marks.armed.contains(&page))
    }

    fn coverage(&self, way: WriteWay) -> Observed {
        match way {
            WriteWay::Store => Observed::Seen,
            _ => Observed::Undecided,
        }
    }
}

impl Medium for Watched {
    fn len(&self) -> u64 {
        self.window.len()
    }

    fn kind(&self) -> MediumKind {
        self.window.kind()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.window.read(at, into)
    }

    #[track_caller]
    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        let len = bytes.len() as u64;
        let marks = self.storing(at, len);
        let done = self.window.put(site, at, bytes);
        Self::set(marks, at, len);
        done
    }

    fn put_is_cached(&self, len: u64) -> bool {
        self.window.put_is_cached(len)
    }

    #[track_caller]
    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        let len = delta.len() as u64;
        let marks = self.storing(at, len);
        let done = self.window.xor(site, at, delta);
        Self::set(marks, at, len);
        done
    }

    #[track_caller]
    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        let seen = len.min(self.len());
        let marks = self.storing(at, seen);
        let done = self.window.zero(site, at, len);
        Self::set(marks, at, seen);
        done
    }

    #[track_caller]
    fn drain(&self, site: Site) {
        self.window.drain(site);
    }

    #[track_caller]
    fn enabled(&self, site: Site) -> bool {
        self.window.enabled(site)
    }

    #[track_caller]
    fn step(&self, site: Site) {
        self.window.step(site);
    }

    /// Goes through the file and not through the mapping: no bit is set.
    #[track_caller]
    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        self.window.append(site, at, bytes)
    }

    #[track_caller]
    fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.window.sync(site)
    }

    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.window.view(at, len)
    }

    fn grow(&self, len: u64) -> Result<(), SyncError> {
        self.window.grow(len)
    }

    #[track_caller]
    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.window.heal(site, at, bytes)
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        self.window.remap(at, physical, len)
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        self.window.bad_ranges()
    }
}
