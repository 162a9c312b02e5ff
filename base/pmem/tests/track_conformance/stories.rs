//! What else can happen to a tracked mapping: the system's own stores, holes torn into it, healing,
//! another process looking at it, a fork, more mappings than the kernel allows, and writers that do
//! not pause.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_pmem::inject::{Poison, poison};
use holdfast_pmem::track::folios::{self, Folios};
use holdfast_pmem::track::pagemap::{Pagemap, Room, Scan};
use holdfast_pmem::track::uffd::Uffd;
use holdfast_pmem::track::{
    AsyncProtect, Controller, DirtySource, FirstStore, Forks, MediumRecord, Record, RecordPlaces,
    Span, TrackError, allocated,
};
use holdfast_pmem::{Access, Mapped, Medium, Options, PAGE, Protect};

use crate::Story;
use crate::cells::{Ended, LEN, fork, map, store, wait};
use crate::common::{HERE, filled, folders, protected};

pub(crate) const STORIES: &[Story] = &[
    ("stores_by_the_system", stores_by_the_system),
    ("torn_mappings_are_noticed_and_armed_again", torn_mappings_are_noticed_and_armed_again),
    ("healed_pages_are_armed_again", healed_pages_are_armed_again),
    ("sources_grow_with_the_medium", sources_grow_with_the_medium),
    ("another_process_is_scanned", another_process_is_scanned),
    ("a_forked_child_has_no_source", a_forked_child_has_no_source),
    ("children_meet_the_protection", children_meet_the_protection),
    ("what_cannot_be_tracked_is_refused", what_cannot_be_tracked_is_refused),
    ("only_allocated_parts_are_listed", only_allocated_parts_are_listed),
    ("a_record_that_fails_refuses_the_store", a_record_that_fails_refuses_the_store),
    ("records_stay_until_they_are_noted_elsewhere", records_stay_until_they_are_noted_elsewhere),
    ("nobody_stores_before_the_record_is_durable", nobody_stores_before_the_record_is_durable),
    ("folios_are_asked_for_and_reported", folios_are_asked_for_and_reported),
    ("more_pages_than_mappings", more_pages_than_mappings),
    ("what_is_tracked_lies_in_single_pages", what_is_tracked_lies_in_single_pages),
    ("storm", storm),
];

/// A file in memory, mapped.
fn memory(len: u64) -> (File, *mut u8) {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.set_len(len).unwrap();
    let base = map(&file, len);
    (file, base)
}

fn span(base: *mut u8, len: u64) -> Span {
    Span::new(base as usize, len, 0).unwrap()
}

/// A source of this kind, if there is one here.
pub(crate) fn async_protect(file: &File, base: *mut u8, len: u64) -> Option<AsyncProtect> {
    let source = AsyncProtect::new(span(base, len), file.as_fd(), Forks::Excluded);
    crate::made("async protect", source)
}

/// Notes pages in memory of this process.
struct Notes(Vec<AtomicU8>, AtomicBool);

impl Notes {
    fn new(pages: u64) -> Arc<Self> {
        Arc::new(Self((0..pages).map(|_| AtomicU8::new(0)).collect(), AtomicBool::new(true)))
    }
}

impl Record for Notes {
    fn set(&self, at: u64) -> bool {
        self.0[(at / PAGE) as usize].store(1, Ordering::SeqCst);
        self.1.load(Ordering::SeqCst)
    }
    fn clear(&self, at: u64, len: u64) {
        for page in at / PAGE..(at + len) / PAGE {
            self.0[page as usize].store(0, Ordering::SeqCst);
        }
    }
    fn is_set(&self, at: u64) -> bool {
        self.0[(at / PAGE) as usize].load(Ordering::SeqCst) != 0
    }
}

fn first_store(base: *mut u8, len: u64, notes: &Arc<Notes>) -> FirstStore {
    let notes: Arc<dyn Record> = Arc::clone(notes) as Arc<dyn Record>;
    // SAFETY: the tests map what they track for as long as they run, and change no rights.
    unsafe { FirstStore::over(span(base, len), Forks::Excluded, notes).unwrap() }
}

fn taken(source: &dyn DirtySource, len: u64) -> Vec<(u64, u64)> {
    let mut told = Vec::new();
    source.take(0, len, &mut |at, len| told.push((at / PAGE, len / PAGE))).unwrap();
    told
}

fn armed(source: &dyn DirtySource, len: u64) {
    source.arm(0, len).unwrap();
    assert_eq!(taken(source, len), [(0, len / PAGE)]);
    assert_eq!(taken(source, len), []);
    assert!(source.intact(0, len));
}

fn stores_by_the_system() {
    let (file, base) = memory(LEN);
    let mut from = tempfile::tempfile().unwrap();
    from.write_all(&filled(9)).unwrap();
    let read = |at: u64| {
        // SAFETY: the range is mapped by this test.
        unsafe { libc::pread(from.as_raw_fd(), base.add(at as usize).cast(), 100, 0) }
    };
    if let Some(source) = async_protect(&file, base, LEN) {
        armed(&source, LEN);
        assert_eq!(read(3 * PAGE), 100);
        assert_eq!(taken(&source, LEN), [(3, 1)]);
        println!("async protect: read(2) into the mapping is seen");
    }
    let notes = Notes::new(LEN / PAGE);
    let source = first_store(base, LEN, &notes);
    armed(&source, LEN);
    assert_eq!(read(4 * PAGE), -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
    assert_eq!(taken(&source, LEN), []);
    store(base, 4 * PAGE, 1);
    assert!(notes.is_set(4 * PAGE));
    assert_eq!(read(4 * PAGE), 100, "once the page is open, the system may store as well");
    assert_eq!(taken(&source, LEN), [(4, 1)]);
    assert!(notes.is_set(4 * PAGE), "until whoever has taken it has noted it");
    source.forget(0, LEN);
    assert!(!notes.is_set(4 * PAGE));
    println!("first store: read(2) into a protected page is refused (EFAULT)");
    drop(source);
    assert_eq!(read(5 * PAGE), 100, "without the source nothing is protected");
    drop(file);
}

fn torn_mappings_are_noticed_and_armed_again() {
    let (file, base) = memory(LEN);
    let Some(source) = async_protect(&file, base, LEN) else { return };
    let remap = |page: u64| {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let at = (page * PAGE) as usize;
        // SAFETY: replaces pages of this test's own mapping by the same bytes.
        let new = unsafe {
            libc::mmap(
                base.add(at).cast(),
                PAGE as usize,
                rights,
                flags,
                file.as_raw_fd(),
                at as i64,
            )
        };
        assert_ne!(new, libc::MAP_FAILED);
    };
    armed(&source, LEN);
    store(base, PAGE, 1);
    store(base, 12 * PAGE, 1);
    remap(6);
    store(base, 6 * PAGE, 1); // nobody sees this one
    assert!(!source.intact(0, LEN) && !source.intact(6 * PAGE, PAGE));
    assert!(source.intact(0, 6 * PAGE) && source.intact(7 * PAGE, LEN - 7 * PAGE));
    // What is still tracked is told, and so is what was lost, again and again.
    assert_eq!(taken(&source, LEN), [(1, 1), (6, 1), (12, 1)]);
    assert_eq!(taken(&source, LEN), [(6, 1)]);
    source.arm(6 * PAGE, PAGE).unwrap();
    assert!(source.intact(0, LEN));
    assert_eq!(taken(&source, LEN), [(6, 1)]);
    assert_eq!(taken(&source, LEN), []);
    store(base, 6 * PAGE, 2);
    assert_eq!(taken(&source, LEN), [(6, 1)]);
    // SAFETY: unmaps a page of this test's, used no more until it is mapped again.
    assert_eq!(unsafe { libc::munmap(base.add(9 * PAGE as usize).cast(), PAGE as usize) }, 0);
    assert!(!source.intact(0, LEN));
    assert_eq!(taken(&source, LEN), [(9, 1)]);
    assert!(source.arm(0, LEN).is_err(), "what is not mapped cannot be armed");
    remap(9);
    source.arm(9 * PAGE, PAGE).unwrap();
    assert!(source.intact(0, LEN));
    source.disarm(0, 4 * PAGE).unwrap();
    store(base, PAGE, 3);
    assert_eq!(taken(&source, LEN), [(9, 1)]);
    assert!(!source.intact(0, LEN) && source.intact(4 * PAGE, LEN - 4 * PAGE));
}

fn healed_pages_are_armed_again() {
    for folder in folders() {
        let options = protected(Protect::Alias);
        let medium = Mapped::create(&folder.path().join("pool"), LEN, &options).unwrap();
        let medium = Arc::new(medium);
        let sources: [Option<Box<dyn DirtySource>>; 2] = [
            AsyncProtect::of(&medium).ok().map(|source| Box::new(source) as _),
            Some(Box::new(FirstStore::of(Arc::clone(&medium), Notes::new(LEN / PAGE)).unwrap())),
        ];
        for source in sources.into_iter().flatten() {
            armed(&*source, LEN);
            medium.put(HERE, PAGE, &[1; 100]).unwrap();
            assert_eq!(taken(&*source, LEN), [(1, 1)]);
            poison(&medium, 3 * PAGE, PAGE, Poison::Clearable).unwrap();
            medium.heal(HERE, 3 * PAGE, &filled(3)).unwrap();
            assert!(!source.intact(0, LEN), "{}", source.kind());
            source.arm(3 * PAGE, PAGE).unwrap();
            assert!(source.intact(0, LEN));
            assert_eq!(taken(&*source, LEN), [(3, 1)]);
            medium.put(HERE, 3 * PAGE, &[1; 100]).unwrap();
            assert_eq!(taken(&*source, LEN), [(3, 1)]);
        }
    }
}

fn another_process_is_scanned() {
    let (_file, base) = memory(LEN);
    let (mut hear, mut say) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    let child = fork(|| {
        let turn = |byte: u8, hear: &mut std::io::PipeReader, say: &mut std::io::PipeWriter| {
            say.write_all(&[byte]).unwrap();
            hear.read_exact(&mut [0]).unwrap();
        };
        let Ok(uffd) = Uffd::open() else { return 1 };
        uffd.register(base as usize, LEN).unwrap();
        uffd.protect(base as usize, LEN).unwrap();
        store(base, 2 * PAGE, 1);
        store(base, 3 * PAGE, 1);
        turn(1, &mut say.0, &mut hear.1);
        store(base, 7 * PAGE, 1);
        turn(2, &mut say.0, &mut hear.1);
        drop(uffd);
        0
    });
    let mut room = Room::new();
    let mut answer = [0];
    drop(std::mem::replace(&mut hear.1, std::io::pipe().unwrap().1));
    if hear.0.read_exact(&mut answer).is_err() {
        println!("skipped: no userfaultfd here");
        assert_eq!(wait(child), Ended::Code(1));
        return;
    }
    let map = Pagemap::of(child as u32).unwrap();
    let mut scan = |how| {
        let mut told = Vec::new();
        let page = |address: usize| (address - base as usize) as u64 / PAGE;
        map.written(base as usize, LEN, how, &mut room, &mut |start, end| {
            told.push((page(start), page(end)));
        })
        .map(|()| told)
    };
    assert_eq!(scan(Scan::Peek).unwrap(), [(2, 4)]);
    assert_eq!(scan(Scan::Take).unwrap(), [(2, 4)]);
    assert_eq!(scan(Scan::Take).unwrap(), []);
    assert!(map.all_tracked(base as usize, LEN).unwrap());
    say.1.write_all(&[0]).unwrap();
    hear.0.read_exact(&mut answer).unwrap();
    assert_eq!(scan(Scan::Take).unwrap(), [(7, 8)]);
    say.1.write_all(&[0]).unwrap();
    assert_eq!(wait(child), Ended::Code(0));
    // A dead process must not look as if nothing had been stored to.
    assert!(scan(Scan::Take).is_err());
    assert!(holdfast_pmem::track::maps::walk(Some(child as u32), |_| {}).is_err());
}

fn a_forked_child_has_no_source() {
    let (file, base) = memory(LEN);
    let Some(source) = async_protect(&file, base, LEN) else { return };
    armed(&source, LEN);
    store(base, 5 * PAGE, 1);
    let child = fork(|| {
        let failed = matches!(source.take(0, LEN, &mut |_, _| {}), Err(TrackError::Forked));
        i32::from(!failed || source.intact(0, LEN) || source.arm(0, LEN).is_ok())
    });
    assert_eq!(wait(child), Ended::Code(0));
    assert_eq!(taken(&source, LEN), [(5, 1)], "the child took nothing of it");
    assert!(source.intact(0, LEN));
}

/// A child that inherits a protected mapping goes on, unseen; one that did not ends as it would
/// have without us, also where its parent's pages lay.
fn children_meet_the_protection() {
    let (_file, base) = memory(LEN);
    let notes: Arc<dyn Record> = Notes::new(LEN / PAGE);
    // SAFETY: mapped by this test for as long as it runs; it changes no rights.
    let source = unsafe { FirstStore::over(span(base, LEN), Forks::Inherit, notes).unwrap() };
    armed(&source, LEN);
    let child = fork(|| {
        store(base, 4 * PAGE, 7);
        i32::from(!matches!(source.take(0, LEN, &mut |_, _| {}), Err(TrackError::Forked)))
    });
    assert_eq!(wait(child), Ended::Code(0));
    // SAFETY: mapped by this test.
    assert_eq!(unsafe { base.add(4 * PAGE as usize).read_volatile() }, 7);
    assert_eq!(taken(&source, LEN), []);
    drop(source);

    let folder = tempfile::tempdir().unwrap();
    let options = protected(Protect::None);
    let medium = Arc::new(Mapped::create(&folder.path().join("pool"), LEN, &options).unwrap());
    let source = FirstStore::of(Arc::clone(&medium), Notes::new(LEN / PAGE)).unwrap();
    armed(&source, LEN);
    let base = medium.view(0, LEN).unwrap().cast_mut();
    for page in [1, 4] {
        let child = fork(|| {
            store(base, page * PAGE, 7);
            0
        });
        assert_eq!(wait(child), Ended::Signal(libc::SIGSEGV), "no store goes nowhere");
        store(base, PAGE, 9); // the second child comes while this page is open
    }
    assert_eq!(taken(&source, LEN), [(1, 1)]);
}

fn what_cannot_be_tracked_is_refused() {
    let (file, base) = memory(LEN);
    assert!(Span::new(base as usize + 1, LEN, 0).is_err());
    assert!(Span::new(base as usize, 0, 0).is_err());
    assert!(Span::new(base as usize, LEN, u64::MAX - PAGE + 1).is_err());
    let fails = |span: Span| {
        let error = AsyncProtect::new(span, file.as_fd(), Forks::Inherit).unwrap_err();
        println!("{error}");
        assert!(matches!(error, TrackError::NotTrackable { .. }), "{error:?}");
    };
    fails(Span::new(PAGE as usize, PAGE, 0).unwrap());
    let heap = vec![0_u8; 1 << 20];
    fails(Span::new((heap.as_ptr() as usize).next_multiple_of(PAGE as usize), PAGE, 0).unwrap());
    // Room to grow may be tracked; what is not mapped yet cannot be armed.
    if let Some(source) = async_protect(&file, base, LEN + (64 << 20)) {
        source.arm(0, LEN).unwrap();
        let error = source.arm(LEN, PAGE).unwrap_err();
        println!("{error}");
        assert!(matches!(error, TrackError::NotTrackable { .. }), "{error:?}");
        assert!(source.intact(0, LEN) && !source.intact(0, LEN + PAGE));
    }
    // The span's byte 0 is shown elsewhere.
    fails(Span::new(base as usize + PAGE as usize, LEN - PAGE, 0).unwrap());
    let Some(source) = async_protect(&file, base, LEN) else { return };
    for (at, len) in [(1, PAGE), (0, 1), (LEN, PAGE), (0, LEN + PAGE), (u64::MAX, PAGE)] {
        assert!(matches!(source.arm(at, len), Err(TrackError::OutOfRange { .. })), "{at} {len}");
        assert!(source.peek(at, len, &mut |_, _| {}).is_err());
        assert!(!source.intact(at, len));
    }
    assert!(!source.intact(0, LEN), "not armed yet");
    armed(&source, LEN);
    let rival = AsyncProtect::new(span(base, LEN), file.as_fd(), Forks::Inherit).unwrap();
    assert!(matches!(rival.arm(0, LEN), Err(TrackError::Busy { .. })));
    drop(rival);
    assert!(source.intact(0, LEN));
    // A file that was opened for reading is never stored to through this mapping.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let readable = File::open(path).unwrap();
    // SAFETY: a new mapping wherever the kernel likes.
    let base = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            LEN as usize,
            libc::PROT_READ,
            libc::MAP_SHARED,
            readable.as_raw_fd(),
            0,
        )
    };
    let source = AsyncProtect::new(span(base.cast(), LEN), file.as_fd(), Forks::Inherit).unwrap();
    let error = source.arm(0, LEN).unwrap_err();
    println!("{error}");
    assert!(matches!(error, TrackError::NotTrackable { .. }));
}

fn only_allocated_parts_are_listed() {
    for folder in folders() {
        use std::os::fd::AsFd;
        use std::os::unix::fs::FileExt;
        let path = folder.path().join("sparse");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 30).unwrap();
        file.write_all_at(&[1; 10], 5 * PAGE + 7).unwrap();
        file.write_all_at(&[1; 10], (512 << 20) - 5).unwrap();
        file.sync_all().unwrap();
        let mut told = Vec::new();
        allocated(file.as_fd(), 0, 1 << 30, &mut |at, len| told.push((at, len))).unwrap();
        let covers = |at: u64| told.iter().any(|(from, len)| (*from..from + len).contains(&at));
        assert!(covers(5 * PAGE) && covers((512 << 20) - 1) && covers(512 << 20), "{told:?}");
        let sum: u64 = told.iter().map(|(_, len)| len).sum();
        assert!(sum < 8 << 20, "holes are left out: {told:?}");
        assert!(told.iter().all(|(at, len)| at % PAGE == 0 && len % PAGE == 0));
    }
}

fn a_record_that_fails_refuses_the_store() {
    let (_file, base) = memory(LEN);
    let child = fork(|| {
        let notes = Notes::new(LEN / PAGE);
        let source = first_store(base, LEN, &notes);
        armed(&source, LEN);
        notes.1.store(false, Ordering::SeqCst);
        store(base, 5 * PAGE, 7);
        0
    });
    assert_eq!(wait(child), Ended::Signal(libc::SIGSEGV));
    // SAFETY: mapped by this test.
    assert_eq!(unsafe { base.add(5 * PAGE as usize).read_volatile() }, 0);
}

fn sources_grow_with_the_medium() {
    for folder in folders() {
        let options = protected(Protect::Alias);
        let medium = Mapped::create(&folder.path().join("pool"), LEN, &options).unwrap();
        let medium = Arc::new(medium);
        let sources: [Option<Box<dyn DirtySource>>; 2] = [
            AsyncProtect::of(&medium).ok().map(|source| Box::new(source) as _),
            Some(Box::new(FirstStore::of(Arc::clone(&medium), Notes::new(64)).unwrap())),
        ];
        for (grown, source) in (1..).zip(sources.into_iter().flatten()) {
            armed(&*source, LEN);
            let (before, after) = (medium.len(), LEN + grown * 4 * PAGE);
            assert!(source.arm(before, PAGE).is_err());
            medium.grow(after).unwrap();
            assert!(source.intact(0, LEN));
            source.arm(LEN, after - LEN).unwrap();
            assert_eq!(taken(&*source, after), [(LEN / PAGE, (after - LEN) / PAGE)]);
            medium.put(HERE, before, &[1; 9]).unwrap();
            medium.put(HERE, PAGE, &[1; 9]).unwrap();
            assert_eq!(taken(&*source, after), [(1, 1), (before / PAGE, 1)]);
            assert!(source.intact(0, after));
        }
    }
}

fn folios_are_asked_for_and_reported() {
    for folder in folders() {
        let path = folder.path().join("pool");
        let options = protected(Protect::None);
        drop(Mapped::create(&path, 64 * LEN, &options).unwrap());
        std::fs::write(&path, vec![1; 64 * LEN as usize]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let medium = Mapped::open(&path, Access::Write, &options).unwrap();
        let found = folios::apply_to(&medium, Folios::AsFound).unwrap();
        assert!(!found.file_advised && !found.mapping_advised && !found.small(), "{found}");
        let report = folios::apply_to(&medium, Folios::Small).unwrap();
        println!("{report}");
        assert_eq!(report.file_advised, !report.in_memory);
        assert_eq!(report.mapping_advised, !report.in_memory);
        let mut byte = [0];
        medium.read(63 * LEN, &mut byte).unwrap();
        assert_eq!(byte, [1], "dropping the cache loses nothing");
        if let (false, Some(before), Some(after)) =
            (report.in_memory, report.cached_before, report.cached_after)
        {
            assert_eq!((before, after), (64 * LEN / PAGE, 64 * LEN / PAGE));
            assert!(report.kept.is_some_and(|kept| kept < before), "{report}");
        }
    }
}

/// A record that takes its time, and looks at the page at the end of it.
struct Slow(usize, AtomicU64);

impl Record for Slow {
    fn set(&self, _at: u64) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(100) {
            core::hint::spin_loop();
        }
        let base: *mut u8 = core::ptr::with_exposed_provenance_mut(self.0);
        self.1.fetch_add(1 + 100 * word(base, 3).load(Ordering::SeqCst), Ordering::SeqCst);
        true
    }
    fn clear(&self, _at: u64, _len: u64) {}
    fn is_set(&self, _at: u64) -> bool {
        true
    }
}

/// A page that is stored to again before its record is forgotten stays on record; others do not.
fn records_stay_until_they_are_noted_elsewhere() {
    let (_file, base) = memory(LEN);
    let notes = Notes::new(LEN / PAGE);
    let source = first_store(base, LEN, &notes);
    armed(&source, LEN);
    let set = || (0..LEN / PAGE).filter(|page| notes.is_set(page * PAGE)).collect::<Vec<u64>>();
    for page in [1, 2, 3, 7] {
        store(base, page * PAGE, 1);
    }
    assert_eq!(taken(&source, LEN), [(1, 3), (7, 1)]);
    assert_eq!(set(), [1, 2, 3, 7]);
    store(base, 2 * PAGE, 2);
    store(base, 9 * PAGE, 2);
    source.forget(0, LEN);
    assert_eq!(set(), [2, 9]);
    // Nothing of it was taken since.
    source.forget(0, LEN);
    assert_eq!(set(), [2, 9]);
    assert_eq!(taken(&source, LEN), [(2, 1), (9, 1)]);
    source.forget(0, 8 * PAGE);
    assert_eq!(set(), [9]);
    source.forget(0, LEN);
    assert_eq!(set(), []);
    // Where nothing can be recorded, nothing is protected.
    let folder = tempfile::tempdir().unwrap();
    let options = protected(Protect::None);
    let short = Arc::new(Mapped::create(&folder.path().join("notes"), PAGE, &options).unwrap());
    let record = MediumRecord::new(short, RecordPlaces::in_a_row(PAGE - 3), 0, LEN).unwrap();
    let (_file, base) = memory(LEN);
    // SAFETY: mapped by this test for as long as it runs; it changes no rights.
    let source =
        unsafe { FirstStore::over(span(base, LEN), Forks::Excluded, Arc::new(record)).unwrap() };
    source.arm(0, 3 * PAGE).unwrap();
    let error = source.arm(PAGE, 3 * PAGE).unwrap_err();
    assert!(matches!(error, TrackError::NotTrackable { .. }), "{error}");
    store(base, 5 * PAGE, 1);
    store(base, 2 * PAGE, 1);
}

/// While the page is being recorded, a second thread's store to it waits like the first one's.
fn nobody_stores_before_the_record_is_durable() {
    let (_file, base) = memory(LEN);
    let record = Arc::new(Slow(base.expose_provenance(), AtomicU64::new(0)));
    let shared: Arc<dyn Record> = Arc::clone(&record) as Arc<dyn Record>;
    // SAFETY: mapped by this test for as long as it runs; it changes no rights.
    let source = unsafe { FirstStore::over(span(base, LEN), Forks::Excluded, shared).unwrap() };
    armed(&source, LEN);
    let counter = word(base, 3);
    std::thread::scope(|scope| {
        scope.spawn(|| counter.fetch_add(1, Ordering::SeqCst));
        std::thread::sleep(Duration::from_millis(30));
        scope.spawn(|| counter.fetch_add(1, Ordering::SeqCst));
    });
    assert_eq!(counter.load(Ordering::SeqCst), 2);
    assert_eq!(record.1.load(Ordering::SeqCst), 1, "recorded once, and nothing stored by then");
    assert_eq!(taken(&source, LEN), [(3, 1)]);
}

/// Every second page open would be more mappings than a process may have (65,530 by default).
fn more_pages_than_mappings() {
    const MANY: u64 = 140_000;
    let (_file, base) = memory(MANY * PAGE);
    let notes = Notes::new(MANY);
    let source = first_store(base, MANY * PAGE, &notes);
    armed(&source, MANY * PAGE);
    for page in (0..MANY).step_by(2) {
        store(base, page * PAGE, 1);
        assert!(notes.is_set(page * PAGE));
    }
    assert!(source.intact(0, MANY * PAGE));
    let told = taken(&source, MANY * PAGE);
    let missing = (0..MANY).step_by(2).filter(|page| {
        let at = told.partition_point(|(first, _)| first <= page);
        at == 0 || told[at - 1].0 + told[at - 1].1 <= *page
    });
    assert_eq!(missing.count(), 0);
    println!(
        "{} of {MANY} pages told, in {} runs",
        told.iter().map(|run| run.1).sum::<u64>(),
        told.len()
    );
    // Protecting them again met the limit as well: what could not be closed is told once more.
    let again = taken(&source, MANY * PAGE);
    assert!(source.intact(0, MANY * PAGE));
    println!("{} told once more", again.iter().map(|run| run.1).sum::<u64>());
    store(base, PAGE, 1);
    assert!(taken(&source, MANY * PAGE).contains(&(1, 1)));
}

/// Asked for a part of a large page, some kernels forget what was stored to the rest.
fn what_is_tracked_lies_in_single_pages() {
    let len = 8 << 20;
    let (file, base) = memory(len);
    // SAFETY: the mapping just made.
    let large = unsafe { libc::madvise(base.cast(), len as usize, libc::MADV_HUGEPAGE) } == 0;
    let Some(source) = async_protect(&file, base, len) else { return };
    armed(&source, len);
    if large {
        let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let begin = all.find(&format!("{:x}-", base as usize)).unwrap();
        let flags = all[begin..].lines().find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.contains(" nh") && !flags.contains(" hg"), "{flags}");
    }
    store(base, 5 * PAGE, 1);
    store(base, 300 * PAGE, 1);
    let mut told = taken(&source, 16 * PAGE);
    told.extend(taken(&source, len));
    assert_eq!(told, [(5, 1), (300, 1)]);
}

/// Writers count up in random pages while pages are taken. Whatever was counted up after a page was
/// last read must be told by then: no store is missed. With a record, a page that is not on record
/// must be as it was when it was last read: that is what a crash would find.
fn storm() {
    const LEN: u64 = 512 * PAGE;
    let (file, base) = memory(LEN);
    let count_up = move |page| {
        word(base, page).fetch_add(1, Ordering::SeqCst);
    };
    if let Some(source) = async_protect(&file, base, LEN) {
        Race { source: &source, base, len: LEN, count_up: &count_up, record: None }.run();
    }
    let notes = Notes::new(LEN / PAGE);
    let source = first_store(base, LEN, &notes);
    Race { source: &source, base, len: LEN, count_up: &count_up, record: Some(&*notes) }.run();
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let room = Controller::<Mapped>::room_for(LEN);
    let medium = Mapped::create(&folder.path().join("pool"), room, &Options::default()).unwrap();
    let controller = Controller::create(medium, LEN).unwrap();
    let base = controller.view(0, LEN).unwrap().cast_mut();
    // Two writers share no page: a put is not atomic.
    let count_up = |page| {
        let next = word(base, page).load(Ordering::SeqCst) + 1;
        controller.put(HERE, page * PAGE, &next.to_le_bytes()).unwrap();
    };
    Race { source: &controller, base, len: LEN, count_up: &count_up, record: None }.run();
}

/// The counter at the beginning of a page.
fn word<'a>(base: *mut u8, page: u64) -> &'a AtomicU64 {
    // SAFETY: mapped for the whole of the test, page-aligned; used as an atomic by everybody.
    unsafe { &*base.add((page * PAGE) as usize).cast::<AtomicU64>() }
}

/// Keeps this thread on one side of the machine, so that takers and writers meet.
fn stay(taker: bool) {
    let cpus = std::thread::available_parallelism().unwrap().get();
    // SAFETY: an all-zero set is valid; the calls fill and read a local one. A refusal harms
    // nothing.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        for cpu in (0..cpus).filter(|cpu| cpus == 1 || (*cpu + 1 == cpus) == taker) {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Ends the writers, also when a verdict fails.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Race<'a> {
    source: &'a dyn DirtySource,
    base: *mut u8,
    len: u64,
    count_up: &'a dyn Fn(u64),
    record: Option<&'a Notes>,
}

// SAFETY: the base and the closures reach shared memory through atomics and a medium only.
unsafe impl Sync for Race<'_> {}

impl Race<'_> {
    fn counter(&self, page: u64) -> u64 {
        word(self.base, page).load(Ordering::SeqCst)
    }

    /// Counts up in every second page, beginning with `me`; answers how often.
    fn write(&self, me: u64, stop: &AtomicBool) -> u64 {
        stay(false);
        let mut random = 0x9e37_79b9_7f4a_7c15_u64 + me;
        let mut stores = 0;
        while !stop.load(Ordering::Relaxed) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let page = random % (self.len / PAGE / 2) * 2 + me;
            for _ in 0..random % 4 {
                (self.count_up)(page);
                stores += 1;
            }
        }
        stores
    }

    /// Takes, and reads what was told, as a checksum would be computed. Answers how many pages.
    fn cover(&self, covered: &mut [u64]) -> u64 {
        let mut told = Vec::new();
        let mut each = |at: u64, len: u64| told.extend(at / PAGE..(at + len) / PAGE);
        self.source.take(0, self.len, &mut each).unwrap();
        for page in &told {
            covered[*page as usize] = self.counter(*page);
        }
        self.source.forget(0, self.len);
        told.len() as u64
    }

    /// Finds a verdict: the bytes first, the bit again afterwards. Whether it was one.
    fn judge(&self, page: u64, covered: &[u64]) -> bool {
        let found = self.counter(page);
        let recorded = self.record.is_none_or(|record| record.is_set(page * PAGE));
        let mut dirty = false;
        self.source.peek(page * PAGE, PAGE, &mut |_, _| dirty = true).unwrap();
        if !dirty || !recorded {
            let kind = self.source.kind();
            assert_eq!(found, covered[page as usize], "{kind}: a store to page {page} escaped");
        }
        !dirty
    }

    fn run(&self) {
        let pages = self.len / PAGE;
        let stop = AtomicBool::new(false);
        let mut covered = vec![0; pages as usize];
        let (mut passes, mut told, mut clean) = (0_u64, 0_u64, 0_u64);
        self.source.arm(0, self.len).unwrap();
        self.cover(&mut covered);
        let stores: u64 = std::thread::scope(|scope| {
            let writers = [0, 1].map(|me| {
                let stop = &stop;
                scope.spawn(move || self.write(me, stop))
            });
            let stopper = Stopper(&stop);
            stay(true);
            // On a busy machine takers and writers meet seldom.
            let end = Instant::now() + Duration::from_millis(1500);
            let last = end + Duration::from_secs(4);
            while Instant::now() < end || (told < 100_000 && Instant::now() < last) {
                told += self.cover(&mut covered);
                clean += u64::from(self.judge(passes * 7919 % pages, &covered));
                passes += 1;
            }
            drop(stopper);
            writers.map(|writer| writer.join().unwrap()).iter().sum()
        });
        self.cover(&mut covered);
        let missed = (0..pages).filter(|page| self.counter(*page) != covered[*page as usize]);
        let (kind, missed) = (self.source.kind(), missed.count());
        println!(
            "{kind}: {stores} stores, {passes} passes, {told} pages told, {clean} verdicts of \
             clean pages, {missed} missed"
        );
        assert_eq!(missed, 0);
        assert!(self.source.intact(0, self.len));
        assert!(stores > 1000 && passes > 10 && clean > 0);
    }
}
