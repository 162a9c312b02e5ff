//! After warm-up a commit allocates nothing, in either placement.
//!
//! The only test of its program, for the allocator counts what every thread does.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_layout::{LogPlacement, Superblock};
use holdfast_logs::{Log, Numbers, RecordBuilder};
use holdfast_pmem::{MediaError, Medium, MediumKind, Site, SyncError};

/// Counts allocations, and lets the system do them.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the system's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A medium that takes everything and keeps nothing, so that only the log can allocate.
#[derive(Debug)]
struct Sink(u64, MediumKind);

impl Medium for Sink {
    fn len(&self) -> u64 {
        self.0
    }
    fn kind(&self) -> MediumKind {
        self.1
    }
    fn read(&self, _: u64, into: &mut [u8]) -> Result<(), MediaError> {
        into.fill(0);
        Ok(())
    }
    fn put(&self, _: Site, _: u64, _: &[u8]) -> Result<(), MediaError> {
        Ok(())
    }
    fn put_is_cached(&self, _: u64) -> bool {
        true
    }

    fn xor(&self, _: Site, _: u64, _: &[u8]) -> Result<(), MediaError> {
        Ok(())
    }
    fn zero(&self, _: Site, _: u64, _: u64) -> Result<(), MediaError> {
        Ok(())
    }
    fn drain(&self, _: Site) {}
    fn append(&self, _: Site, _: u64, _: &[u8]) -> Result<(), SyncError> {
        Ok(())
    }
    fn sync(&self, _: Site) -> Result<(), SyncError> {
        Ok(())
    }
    fn view(&self, _: u64, _: u64) -> Option<*const u8> {
        None
    }
    fn grow(&self, _: u64) -> Result<(), SyncError> {
        Ok(())
    }
    fn heal(&self, _: Site, _: u64, _: &[u8]) -> Result<(), MediaError> {
        Ok(())
    }
    fn remap(&self, _: u64, _: u64, _: u64) -> Result<(), MediaError> {
        Ok(())
    }
    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }
}

/// Commits of one to four objects, some aborted after they reserved; every lane in turn.
fn commits(m: &Sink, log: &Log, numbers: &Numbers, record: &mut RecordBuilder, count: usize) {
    for i in 0..count {
        let mut lane = log.acquire(m, i).expect("none is held");
        record.clear();
        for object in 0..=i % 4 {
            let at = record.data(object as u64 * 64, &[i as u8; 256]);
            assert_eq!(record.payload(at, 256)[0], i as u8);
            record.slot(4096 + object as u64 * 16, &[i as u8; 16]);
        }
        lane.reserve(m, numbers, record.len(), || false).expect("room was made");
        if i % 17 == 0 {
            lane.cancel();
            drop(lane);
            continue;
        }
        let number = numbers.draw(m, lane.id());
        lane.commit_record(m, numbers, number, record).expect("nothing fails");
        numbers.done(lane.id());
        drop(lane);
        if log.reclaim_due() {
            // A reclaim may allocate: it is no commit.
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            log.reclaim(m, numbers).expect("nothing fails");
            let after = ALLOCATIONS.load(Ordering::Relaxed);
            ALLOCATIONS.fetch_sub(after - before, Ordering::Relaxed);
        }
    }
}

#[test]
fn commits_allocate_nothing_after_warm_up() {
    for (placement, kind) in
        [(LogPlacement::Apart, MediumKind::Dax), (LogPlacement::Adjacent, MediumKind::File)]
    {
        let superblock: Superblock = common::superblock(placement, 8, 8, 2);
        let m = Sink(superblock.size, kind);
        let log = Log::open(&m, &superblock).expect("the geometry is good");
        let numbers = Numbers::new(log.lanes(), 1);
        let mut record = RecordBuilder::default();
        commits(&m, &log, &numbers, &mut record, 20_000);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        commits(&m, &log, &numbers, &mut record, 1_000_000);
        let allocated = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!(allocated, 0, "{placement:?}");
    }
}
