//! Loads of a program, from a protected file that it has mapped, of pages that cannot be read: the
//! load waits and has the right byte then, or ends as without us, and is told as lost.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod sick;

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use holdfast::Outcome;
use holdfast::protect::{
    PageVerdict, ProtectOptions, ProtectedFile, ProtectedMap, Tracking, Unsure,
};
use holdfast_pmem::inject::signal_bus;
use sick::Sick;

const PAGE: usize = 4096;
const PAGES: usize = 300;
const WAYS: [Tracking; 3] = [Tracking::AsyncProtect, Tracking::FirstStore, Tracking::Recorded];

/// `BUS_MCEERR_AR`.
const FAILED_MEMORY: i32 = 4;

static FAULTS: AtomicUsize = AtomicUsize::new(0);
static ONE: Mutex<()> = Mutex::new(());

/// The program's own handler: gives whatever failed an empty page.
extern "C" fn own(_: i32, info: *mut libc::siginfo_t, _: *mut c_void) {
    FAULTS.fetch_add(1, Ordering::SeqCst);
    // The kernel has read in something else: the page is there.
    // SAFETY: what the kernel hands to a handler of this kind.
    if unsafe { (*info).si_code } == FAILED_MEMORY {
        return;
    }
    // SAFETY: the address of the fault; a page of its own takes the place of the one that failed.
    unsafe {
        let at = ((*info).si_addr() as usize & !(PAGE - 1)) as *mut c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::mmap(at, PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
    }
}

/// One story at a time: faults are counted. The program's handler is there before ours.
fn begin() -> MutexGuard<'static, ()> {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: all zeros is a valid action; the handler has the signature that its flag says.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) = own;
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGBUS, &action, core::ptr::null_mut()), 0);
        }
    });
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    FAULTS.store(0, Ordering::SeqCst);
    one
}

fn byte(page: usize) -> u8 {
    (page % 250) as u8 + 1
}

/// A protected file on a device that loses pages, and its redundancy on another.
struct Here {
    sick: Sick,
    _folder: tempfile::TempDir,
    side: PathBuf,
}

impl Here {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let side = folder.path().join("side");
        let bytes = (0..PAGES * PAGE).map(|at| byte(at / PAGE)).collect();
        let sick = Sick::mount(bytes)?;
        let here = Self { sick, _folder: folder, side };
        ProtectedFile::protect(here.sick.path(), &here.options()).unwrap().close().unwrap();
        Some(here)
    }

    fn options(&self) -> ProtectOptions {
        ProtectOptions::new().side(&self.side).period(Duration::from_secs(3600))
    }

    /// Opened with passes by hand, which pause before anything is lost.
    fn open(&self, tracking: Tracking, heal: bool) -> Option<(ProtectedMap, *mut u8)> {
        let options = self.options().tracking(tracking).heal_loads(heal);
        let map = ProtectedMap::open(self.sick.path(), &options);
        let map = map.map_err(|error| eprintln!("skipped: {tracking:?}: {error}")).ok()?;
        map.pause();
        let (address, len) = map.address().unwrap();
        assert_eq!(len, (PAGES * PAGE) as u64);
        Some((map, address))
    }
}

fn load(base: *mut u8, page: usize) -> u8 {
    // SAFETY: a page of the mapping, which outlives the load.
    unsafe { base.add(page * PAGE + 77).read_volatile() }
}

fn store(base: *mut u8, page: usize, value: u8) {
    // SAFETY: a page of the mapping, which outlives the store.
    unsafe { base.add(page * PAGE + 77).write_volatile(value) };
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn lost(map: &ProtectedMap) -> Vec<usize> {
    let all = map.events();
    let lost = all.iter().filter(|event| event.outcome == Outcome::Lost);
    lost.map(|event| event.at as usize / PAGE).collect()
}

#[test]
fn a_load_of_a_page_that_cannot_be_read_completes_with_the_right_byte() {
    let _one = begin();
    for tracking in WAYS {
        let Some(here) = Here::new() else { return };
        let Some((map, base)) = here.open(tracking, true) else { continue };
        // One that was stored to and covered since, one that was loaded, one never touched.
        store(base, 10, 99);
        assert_eq!(load(base, 50), byte(50));
        map.update_now().unwrap();
        map.sync().unwrap();
        for (round, (page, value)) in
            [(10, 99), (50, byte(50)), (90, byte(90))].into_iter().enumerate()
        {
            here.sick.lose(page as u64);
            assert_eq!(load(base, page), value, "{tracking:?}: page {page}");
            assert_eq!(map.status().unwrap().counts.repaired, round as u64 + 1, "{tracking:?}");
            assert!(!here.sick.is_lost(page as u64));
            assert_eq!(map.verify(page as u64).unwrap().verdict, PageVerdict::Good);
        }
        assert_eq!(FAULTS.load(Ordering::SeqCst), 0, "the program noticed");
        assert_eq!(lost(&map), [0_usize; 0]);
        // What is stored there afterwards is seen, and kept.
        store(base, 90, 7);
        assert_eq!(map.update_now().unwrap().pages, 1, "{tracking:?}");
        map.sync().unwrap();
        here.sick.lose(90);
        assert_eq!(load(base, 90), 7, "{tracking:?}");
        assert_eq!(map.status().unwrap().contested, None, "{tracking:?}");
        map.close().unwrap();
        let file = ProtectedFile::look(here.sick.path(), &here.options()).unwrap();
        assert!(file.verify(|_, _| true).unwrap().is_clean());
    }
}

#[test]
fn what_cannot_be_given_back_ends_as_without_us_and_is_told() {
    let _one = begin();
    for tracking in WAYS {
        let Some(here) = Here::new() else { return };
        let Some((map, base)) = here.open(tracking, true) else { continue };
        map.update_now().unwrap();
        // Two of a stripe with one parity page.
        here.sick.lose(20);
        here.sick.lose(21);
        assert_eq!(load(base, 20), 0, "{tracking:?}");
        assert_eq!((FAULTS.swap(0, Ordering::SeqCst), lost(&map)), (1, vec![20]));
        // One that was stored to since: what it was before is not given back.
        store(base, 40, 99);
        // SAFETY: a page of the mapping.
        let synced = unsafe { libc::msync(base.add(40 * PAGE).cast(), PAGE, libc::MS_SYNC) };
        assert_eq!(synced, 0);
        here.sick.lose(40);
        assert_eq!(load(base, 40), 0, "{tracking:?}");
        assert_eq!((FAULTS.swap(0, Ordering::SeqCst), lost(&map)), (1, vec![20, 40]));
        assert!(here.sick.is_lost(40), "nothing was written");
        assert_eq!(map.status().unwrap().counts.repaired, 0, "{tracking:?}");
        drop(map);
        FAULTS.store(0, Ordering::SeqCst);
    }
}

#[test]
fn without_the_thread_the_signal_is_the_programs() {
    let _one = begin();
    let Some(here) = Here::new() else { return };
    let Some((map, base)) = here.open(Tracking::FirstStore, false) else { return };
    map.update_now().unwrap();
    here.sick.lose(10);
    assert_eq!((load(base, 10), FAULTS.load(Ordering::SeqCst)), (0, 1));
    drop(map);
}

#[test]
fn stores_beside_a_page_that_is_given_back_are_kept() {
    let _one = begin();
    for tracking in WAYS {
        let Some(here) = Here::new() else { return };
        let Some((map, base)) = here.open(tracking, true) else { continue };
        map.update_now().unwrap();
        let (stop, base) = (AtomicBool::new(false), base.expose_provenance());
        let begun = AtomicBool::new(false);
        let at = |page: usize| std::ptr::with_exposed_provenance_mut::<u8>(base).wrapping_add(page);
        thread::scope(|scope| {
            let others = scope.spawn(|| {
                let mut stored = 0_u8;
                loop {
                    stored = stored.wrapping_add(1);
                    // In other stripes.
                    for page in [3, 90, 200] {
                        store(at(0), page, stored);
                        assert_eq!(load(at(0), page), stored);
                    }
                    begun.store(true, Ordering::Release);
                    if stop.load(Ordering::Acquire) {
                        return stored;
                    }
                }
            });
            // Also of a failed test, which would wait for it.
            let _stop = Stop(&stop);
            // On a busy machine all pages were given back before the first store.
            while !begun.load(Ordering::Acquire) && !others.is_finished() {
                thread::yield_now();
            }
            for round in 0..20 {
                // One of each stripe.
                let page = 100 + 4 * round;
                here.sick.lose(page as u64);
                assert_eq!(load(at(0), page), byte(page), "{tracking:?}");
            }
            stop.store(true, Ordering::Release);
            let stored = others.join().unwrap();
            assert_eq!(load(at(0), 200), stored);
        });
        assert_eq!(FAULTS.load(Ordering::SeqCst), 0, "{tracking:?}");
        assert_eq!(map.status().unwrap().counts.repaired, 20, "{tracking:?}");
        map.close().unwrap();
    }
}

/// Says to this thread what the kernel says to one whose load met memory that failed: an extent of
/// so many bytes, as a power of two.
fn tell_of_failed_memory(base: *mut u8, page: usize, shift: u64) {
    let address = base.wrapping_add(page * PAGE).expose_provenance();
    signal_bus(FAILED_MEMORY, address, shift);
}

#[test]
fn what_was_stored_to_memory_that_failed_is_undecided_though_it_can_be_read() {
    let _one = begin();
    for tracking in WAYS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![3; PAGES * PAGE]).unwrap();
        let options = ProtectOptions::new().period(Duration::from_secs(3600)).tracking(tracking);
        ProtectedFile::protect(&path, &options).unwrap().close().unwrap();
        let map = ProtectedMap::open(&path, &options);
        let Ok(map) = map.map_err(|error| eprintln!("skipped: {tracking:?}: {error}")) else {
            continue;
        };
        map.pause();
        let (base, _) = map.address().unwrap();
        // What was covered is older than any failure.
        thread::sleep(Duration::from_millis(100));
        tell_of_failed_memory(base, 50, 12);
        assert_eq!(FAULTS.load(Ordering::SeqCst), 0, "{tracking:?}: nothing was stored there");
        store(base, 40, 99);
        // One page of the four is lost, the first: the others are looked at none the less.
        tell_of_failed_memory(base, 42, 14);
        assert_eq!(FAULTS.swap(0, Ordering::SeqCst), 1, "{tracking:?}");
        for page in 41..44 {
            let found = map.verify(page).unwrap().verdict;
            assert_eq!(found, PageVerdict::Good, "{tracking:?}, page {page}");
        }
        let gone = PageVerdict::Undecided(Unsure::MemoryFailed);
        for _ in 0..2 {
            assert_eq!(map.verify(40).unwrap().verdict, gone, "{tracking:?}");
            assert_eq!(map.update_now().unwrap().pages, 0, "{tracking:?}: it was covered");
        }
        map.close().unwrap();
        let file = ProtectedFile::look(&path, &options).unwrap();
        let found = file.verify(|_, _| true).unwrap();
        assert_eq!(found.undecided, [(40, Unsure::MemoryFailed)], "{tracking:?}");
    }
}
