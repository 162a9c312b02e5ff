//! A protected file in use: what is stored is covered, damage is repaired while the program runs,
//! and nothing that anybody wrote is ever taken back.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[path = "all/common/mod.rs"]
mod common;

use std::fs::{self, File};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use common::{Alone, PAGE, refuse, starts_none, starts_programs};
use holdfast::ErrorKind;
use holdfast::protect::{
    PageVerdict, ProtectOptions, ProtectStatus, ProtectedFile, ProtectedMap, Rearm, SourceKind,
    Tracking, Unsure, Writers,
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

impl Alone {
    fn clean(&self) {
        let file = ProtectedFile::look(&self.path, &ProtectOptions::new()).unwrap();
        let found = file.verify(|_, _| true).unwrap();
        assert!(found.is_clean() && !found.changed, "{found:?}");
        assert_eq!(found.uncovered, 0);
        assert_eq!(file.status().unwrap().coverage.without_parity, 0);
    }
}

/// A handle of a file that nobody can see, on its way through a socket until it is wanted: damage
/// from beneath.
struct Beneath {
    on_its_way: OwnedFd,
    _to: OwnedFd,
    window: OnceLock<(usize, usize)>,
}

impl Beneath {
    /// Opened before the file is opened to be protected.
    fn of(path: &Path) -> Self {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
        let (to, from) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = SendAncillaryBuffer::new(&mut room);
        let handles = [file.as_fd()];
        assert!(with.push(SendAncillaryMessage::ScmRights(&handles)));
        sendmsg(&to, &[IoSlice::new(b"x")], &mut with, SendFlags::empty()).unwrap();
        Self { on_its_way: from, _to: to, window: OnceLock::new() }
    }

    fn open(&self) -> (usize, usize) {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = RecvAncillaryBuffer::new(&mut room);
        let mut byte = [0];
        let mut parts = [IoSliceMut::new(&mut byte)];
        recvmsg(&self.on_its_way, &mut parts, &mut with, RecvFlags::empty()).unwrap();
        let file = with.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut handles) => handles.next(),
            _ => None,
        });
        let file = File::from(file.unwrap());
        let len = file.metadata().unwrap().len() as usize;
        let (both, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of an open file, at an address of the system's choice.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), len, both, shared, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED);
        (at.expose_provenance(), len)
    }

    fn rot(&self, at: u64) {
        let (start, len) = *self.window.get_or_init(|| self.open());
        assert!((at as usize) < len);
        // SAFETY: the byte lies in the mapping, which lives as long as `self`; it is changed as a
        // faulty medium would.
        unsafe {
            let byte = std::ptr::with_exposed_provenance_mut::<u8>(start + at as usize);
            byte.write_volatile(byte.read_volatile() ^ 0x40);
        }
    }
}

impl Drop for Beneath {
    fn drop(&mut self) {
        if let Some((at, len)) = self.window.get() {
            // SAFETY: the mapping made above, used by nobody any more.
            unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(*at), *len) };
        }
    }
}

/// Passes by hand only.
fn by_hand(tracking: Tracking) -> ProtectOptions {
    ProtectOptions::new().period(Duration::from_secs(3600)).tracking(tracking)
}

/// The ways that this system permits.
fn ways(here: &Alone) -> Vec<Tracking> {
    let all =
        [Tracking::AsyncProtect, Tracking::FirstStore, Tracking::Recorded, Tracking::Notified];
    let permitted = |tracking: &Tracking| match ProtectedMap::open(&here.path, &by_hand(*tracking))
    {
        Ok(map) => {
            map.close().unwrap();
            true
        }
        Err(error) => {
            eprintln!("skipped: {error}");
            assert!(!error.remedy().is_empty());
            false
        }
    };
    all.into_iter().filter(permitted).collect()
}

#[test]
fn what_is_stored_is_covered_by_every_way_to_notice_it() {
    let _beside = starts_none();
    let here = Alone::protected(600 * PAGE + 100);
    let ways = ways(&here);
    let always = [Tracking::FirstStore, Tracking::Recorded, Tracking::Notified];
    assert!(always.iter().all(|way| ways.contains(way)));
    for (round, tracking) in ways.into_iter().enumerate() {
        let map = ProtectedMap::open(&here.path, &by_hand(tracking)).unwrap();
        let bytes = [round as u8 + 1; 300];
        // Within a page, across two, the part that is not mapped, and across its border.
        let places = [5 * PAGE, 9 * PAGE - 100, 600 * PAGE + 50, 600 * PAGE - 250];
        for at in places {
            let len = (600 * PAGE + 100 - at).min(300) as usize;
            map.write(at, &bytes[..len]).unwrap();
        }
        assert!(map.write(600 * PAGE, &bytes).is_err());
        if let Some((address, len)) = map.address() {
            assert_eq!(len, 600 * PAGE);
            // SAFETY: inside of the mapping, which lives as long as `map`.
            unsafe { address.add(77 * PAGE as usize + 3).write_volatile(round as u8 + 9) };
        } else {
            assert_eq!(map.tracking(), SourceKind::Notified);
        }
        let before = map.status().unwrap().coverage;
        assert!(before.without_sum >= 5 && before.without_parity >= before.without_sum);
        assert!(before.oldest_ns > 0, "{before:?}");
        let done = map.update_now().unwrap();
        assert!(done.corrupt == 0 && done.undecided == 0, "{tracking:?}: {done:?}");
        let status = map.status().unwrap();
        assert_eq!((status.coverage.without_sum, status.coverage.without_parity), (0, 0));
        assert_eq!(status.contested, None, "{tracking:?}");
        assert!(status.last_pass.is_some() && status.tracking.is_some());
        map.close().unwrap();
        here.clean();
        let mut read = [0; 300];
        File::open(&here.path).unwrap().read_exact_at(&mut read, 9 * PAGE - 100).unwrap();
        assert_eq!(read, bytes);
    }
}

/// As in a container whose filter of system calls refuses it. The next way is taken, which is told.
#[test]
fn where_the_kernel_may_not_track_stores_a_handler_does() {
    let _beside = starts_none();
    let here = Alone::protected(300 * PAGE);
    let path = here.path.clone();
    let done = std::thread::spawn(move || {
        if !refuse(&[libc::SYS_userfaultfd], libc::EPERM) {
            return;
        }
        let error = ProtectedMap::open(&path, &by_hand(Tracking::AsyncProtect)).unwrap_err();
        assert!(error.to_string().contains("userfaultfd"), "{error}");
        assert!(error.remedy().contains("allow userfaultfd"), "{}", error.remedy());
        for tracking in [Tracking::Auto, Tracking::Recorded] {
            let map = ProtectedMap::open(&path, &by_hand(tracking)).unwrap();
            let status = map.status().unwrap();
            assert_eq!(status.tracking, Some(SourceKind::FirstStore), "{tracking:?}");
            let told = status
                .passed_over
                .iter()
                .any(|why| why.starts_with("async protect: ") && why.contains("allow userfaultfd"));
            assert_eq!(told, tracking == Tracking::Auto, "{:?}", status.passed_over);
            let (address, _) = map.address().unwrap();
            // SAFETY: inside of the mapping, which lives as long as `map`.
            unsafe { address.add(77 * PAGE as usize + 3).write_volatile(tracking as u8 + 9) };
            assert_eq!(map.status().unwrap().coverage.without_sum, 1);
            let done = map.update_now().unwrap();
            assert_eq!((done.pages, done.corrupt, done.undecided), (1, 0, 0), "{tracking:?}");
            map.close().unwrap();
            // Nobody has the address any more.
            let beneath = Beneath::of(&path);
            let map = ProtectedMap::open(&path, &by_hand(tracking)).unwrap();
            beneath.rot(77 * PAGE + 2000);
            let done = map.scrub().unwrap();
            assert_eq!(map.status().unwrap().contested, None, "{tracking:?}");
            assert_eq!(done.repaired, 1, "{tracking:?}");
            map.close().unwrap();
        }
    });
    done.join().unwrap();
    here.clean();
}

#[test]
fn damage_in_use_is_repaired() {
    let _beside = starts_none();
    let here = Alone::protected(300 * PAGE);
    for tracking in ways(&here) {
        let beneath = Beneath::of(&here.path);
        let map = ProtectedMap::open(&here.path, &by_hand(tracking)).unwrap();
        map.write(10 * PAGE, b"stored").unwrap();
        map.update_now().unwrap();
        // Not opened: whoever opens it is looked for, and finds the window.
        let mut before = vec![0; map.len() as usize];
        map.read(0, &mut before).unwrap();
        beneath.rot(10 * PAGE + 2000);
        assert_eq!(map.verify(10).unwrap().verdict, PageVerdict::Corrupt, "{tracking:?}");
        let image = map.before_image(10).unwrap().unwrap();
        assert!(image == before[10 * PAGE as usize..11 * PAGE as usize]);
        let beside = tracking as u64;
        map.write(20 * PAGE, &beside.to_le_bytes()).unwrap();
        map.write(20 * PAGE + 8, b"beside").unwrap();
        assert_eq!(map.update_now().unwrap().pages, 1);
        assert_eq!(map.scrub().unwrap().repaired, 1, "{tracking:?}");
        map.update_now().unwrap();
        assert_eq!(map.status().unwrap().coverage.without_parity, 0);
        assert!(map.events().iter().any(|event| event.outcome == holdfast::Outcome::Repaired));
        map.close().unwrap();
        here.clean();
        let mut wanted = before;
        wanted[20 * PAGE as usize..][..8].copy_from_slice(&beside.to_le_bytes());
        wanted[20 * PAGE as usize + 8..][..6].copy_from_slice(b"beside");
        assert!(fs::read(&here.path).unwrap() == wanted);
    }
}

/// What a device puts into the mapping comes after the kernel's mark, which a pass has taken by
/// then: here it comes from beneath, in two parts, with a pass and scrubs around them.
#[test]
fn what_a_device_fills_in_is_no_damage() {
    let _beside = starts_none();
    let here = Alone::protected(300 * PAGE);
    for tracking in ways(&here) {
        let beneath = Beneath::of(&here.path);
        let map = ProtectedMap::open(&here.path, &by_hand(tracking)).unwrap();
        let mut wanted = vec![0; map.len() as usize];
        map.read(0, &mut wanted).unwrap();
        let at = 10 * PAGE;
        let mut arrives = |part: u64| {
            beneath.rot(at + part);
            wanted[(at + part) as usize] ^= 0x40;
        };
        map.filling(at, 2 * PAGE, || {
            // It has begun: the mark is taken, and what was there before is covered.
            map.update_now().unwrap();
            arrives(100);
            let uncovered = PageVerdict::Undecided(Unsure::Uncovered);
            assert_eq!(map.verify(10).unwrap().verdict, uncovered, "{tracking:?}");
            let done = map.scrub().unwrap();
            assert_eq!((done.report.corrupt, done.repaired), (vec![], 0), "{tracking:?}");
            map.update_now().unwrap();
            arrives(PAGE + 200);
        });
        let done = map.scrub().unwrap();
        assert_eq!((done.report.corrupt, done.repaired), (vec![], 0), "{tracking:?}");
        map.update_now().unwrap();
        let done = map.scrub().unwrap();
        assert_eq!((done.report.good, done.report.undecided), (300, vec![]), "{tracking:?}");
        map.close().unwrap();
        here.clean();
        assert!(fs::read(&here.path).unwrap() == wanted, "{tracking:?}");
    }
}

#[test]
fn growth_takes_no_damage_for_content() {
    let _beside = starts_none();
    let here = Alone::protected(40 * PAGE);
    let beneath = Beneath::of(&here.path);
    let map = ProtectedMap::open(&here.path, &by_hand(Tracking::Auto)).unwrap();
    beneath.rot(20 * PAGE);
    map.grow(50 * PAGE + 9).unwrap();
    assert_eq!(map.verify(20).unwrap().verdict, PageVerdict::Corrupt);
    assert_eq!(map.scrub().unwrap().repaired, 1);
    map.close().unwrap();
    here.clean();
}

#[test]
fn the_thread_covers_pauses_and_goes_on() {
    let _beside = starts_none();
    let here = Alone::protected(40 * PAGE);
    let beneath = Beneath::of(&here.path);
    let map =
        ProtectedMap::open(&here.path, &by_hand(Tracking::Auto).period(Duration::from_millis(20)))
            .unwrap();
    let until = |what: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !what() {
            assert!(begun.elapsed() < Duration::from_secs(20), "nothing happens");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let uncovered = || map.status().unwrap().coverage.without_sum;
    map.write(PAGE, b"one").unwrap();
    until(&|| uncovered() == 0);
    beneath.rot(20 * PAGE);
    until(&|| map.status().unwrap().counts.repaired == 1);
    map.pause();
    map.write(2 * PAGE, b"two").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(uncovered(), 1);
    map.sync().unwrap();
    assert_eq!(uncovered(), 0);
    map.write(3 * PAGE, b"three").unwrap();
    map.resume();
    until(&|| uncovered() == 0);
    map.grow(500 * PAGE + 9).unwrap();
    map.write(400 * PAGE, b"far").unwrap();
    map.write(500 * PAGE, b"end").unwrap();
    drop(map);
    here.clean();
    assert_eq!(fs::metadata(&here.path).unwrap().len(), 500 * PAGE + 9);
}

#[test]
fn whoever_is_not_tracked_makes_it_check_only() {
    let _beside = starts_programs();
    let foreign = |path: &Path| {
        let line =
            format!("printf foreign | dd of='{}' bs=1 seek=20480 conv=notrunc", path.display());
        assert!(Command::new("sh").arg("-c").arg(line).output().unwrap().status.success());
    };
    let own = |path: &Path| {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(b"our own", 5 * PAGE).unwrap();
    };
    type Write<'a> = &'a dyn Fn(&Path);
    let ways: [(Write<'_>, &[u8]); 2] = [(&foreign, b"foreign"), (&own, b"our own")];
    for (write, bytes) in ways {
        let here = Alone::protected(40 * PAGE);
        let map = ProtectedMap::open(&here.path, &by_hand(Tracking::Auto)).unwrap();
        // Readers are none.
        assert!(Command::new("cat").arg(&here.path).output().unwrap().status.success());
        assert_eq!(map.status().unwrap().contested, None);
        write(&here.path);
        let done = map.scrub().unwrap();
        assert_eq!((done.repaired, done.report.corrupt.len()), (0, 0));
        assert_eq!(done.report.undecided, [(5, Unsure::Contested)]);
        assert!(map.status().unwrap().contested.is_some());
        map.update_now().unwrap();
        map.close().unwrap();
        let found = &fs::read(&here.path).unwrap()[5 * PAGE as usize..];
        assert_eq!(&found[..bytes.len()], bytes);
        let file = ProtectedFile::open(&here.path, &ProtectOptions::new()).unwrap();
        assert!(file.repair(false, |_, _| true).unwrap().repaired.is_empty());
        file.accept().unwrap();
        file.close().unwrap();
        here.clean();
        let found = &fs::read(&here.path).unwrap()[5 * PAGE as usize..];
        assert_eq!(&found[..bytes.len()], bytes);
    }
}

/// A mapping for reading that may be given the right to write later, before and after.
#[test]
fn a_mapping_that_may_become_writable_makes_it_check_only() {
    let _beside = starts_none();
    let map = |path: &Path, write: bool| {
        let file = File::options().read(true).write(write).open(path).unwrap();
        let (null, len) = (std::ptr::null_mut(), PAGE as usize);
        // SAFETY: a new mapping of an open file, which stays until the test is over.
        let at = unsafe {
            libc::mmap(null, len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
    };
    for before in [true, false] {
        let here = Alone::protected(40 * PAGE);
        map(&here.path, false);
        if before {
            map(&here.path, true);
        }
        let file = ProtectedMap::open(&here.path, &by_hand(Tracking::Auto)).unwrap();
        assert_eq!(file.status().unwrap().contested.is_some(), before);
        if !before {
            map(&here.path, true);
        }
        let why = file.status().unwrap().contested.unwrap();
        assert!(why.contains("mapping") || why.contains("maps"), "{why}");
    }
}

#[test]
fn one_at_a_time_and_only_what_is_protected() {
    let _beside = starts_none();
    let here = Alone::protected(40 * PAGE);
    let map = ProtectedMap::open(&here.path, &by_hand(Tracking::Auto)).unwrap();
    let error = ProtectedMap::open(&here.path, &by_hand(Tracking::Auto)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    // Who is refused has changed nothing: he is no stranger who writes.
    assert_eq!(map.status().unwrap().contested, None);
    let error = ProtectedFile::look(&here.path, &ProtectOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    drop(map);
    let other = here.path.with_extension("other");
    fs::write(&other, b"text").unwrap();
    let error = ProtectedMap::open(&other, &by_hand(Tracking::Auto)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    here.clean();
}

/// The other half of the next test, which runs it in a process of its own.
#[test]
fn stores_and_dies() {
    let Some(path) = std::env::var_os("HOLDFAST_TEST_DIES") else { return };
    let map = ProtectedMap::open(&path, &by_hand(Tracking::Auto)).unwrap();
    map.write(3 * PAGE, b"covered").unwrap();
    map.update_now().unwrap();
    map.write(5 * PAGE, b"not covered").unwrap();
    std::process::abort();
}

#[test]
fn what_was_stored_before_a_death_is_undecided_and_stays() {
    let _beside = starts_programs();
    let here = Alone::protected(40 * PAGE);
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "stores_and_dies"]).env("HOLDFAST_TEST_DIES", &here.path);
    assert_eq!(child.output().unwrap().status.code(), None, "it did not die");
    let stored = fs::read(&here.path).unwrap();
    assert!(stored[3 * PAGE as usize..].starts_with(b"covered"));
    assert!(stored[5 * PAGE as usize..].starts_with(b"not covered"));
    let file = ProtectedFile::look(&here.path, &ProtectOptions::new()).unwrap();
    assert!(file.was_interrupted());
    let found = file.verify(|_, _| true).unwrap();
    assert_eq!((found.undecided, found.corrupt.len()), (vec![(5, Unsure::TrackingLost)], 0));
    assert!(file.before_image(5).unwrap().unwrap() == vec![7; PAGE as usize]);
    drop(file);
    let map = ProtectedMap::open(&here.path, &by_hand(Tracking::Auto)).unwrap();
    assert_eq!(map.scrub().unwrap().report.undecided.len(), 1);
    assert!(map.update_now().unwrap().corrupt == 0);
    map.accept().unwrap();
    map.close().unwrap();
    assert!(fs::read(&here.path).unwrap() == stored);
    here.clean();
}

/// What a thread that stores by address does when it is asked to stand.
#[derive(Default)]
struct Stand {
    asked: AtomicBool,
    stands: AtomicU64,
    of: u64,
}

impl Stand {
    fn here(&self) {
        if self.asked.load(Ordering::SeqCst) {
            self.stands.fetch_add(1, Ordering::SeqCst);
            while self.asked.load(Ordering::SeqCst) {
                std::hint::spin_loop();
                std::thread::yield_now();
            }
            self.stands.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Writers for Stand {
    fn freeze(&self) -> bool {
        self.asked.store(true, Ordering::SeqCst);
        while self.stands.load(Ordering::SeqCst) < self.of {
            std::thread::yield_now();
        }
        true
    }

    fn thaw(&self) {
        self.asked.store(false, Ordering::SeqCst);
        while self.stands.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
}

/// Damages bytes all over for a while, and on a machine that is busy until something was repaired.
fn damage(beneath: &Beneath, pages: u64, repaired: &dyn Fn() -> bool) {
    let started = Instant::now();
    let late = || started.elapsed() > Duration::from_secs(20);
    for n in (0..3000).take_while(|n| *n < 60_u64 || !repaired() && !late()) {
        beneath.rot(n * 37 % pages * PAGE + 64 + n);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One thread stores counters all over the file and knows what it stored; another damages bytes
/// that it never stores to. At the end every counter is what was stored last.
#[test]
fn a_storm_of_stores_and_damage_reverts_nothing() {
    let _beside = starts_none();
    const PAGES: u64 = 256;
    let here = Alone::protected(PAGES * PAGE);
    for tracking in ways(&here) {
        let beneath = Beneath::of(&here.path);
        let stand = Arc::new(Stand { of: 1, ..Stand::default() });
        let options = by_hand(tracking)
            .period(Duration::from_millis(3))
            .scrub_regions(1)
            .writers(Arc::clone(&stand) as Arc<dyn Writers + Send + Sync>);
        let map = ProtectedMap::open(&here.path, &options).unwrap();
        let stop = AtomicBool::new(false);
        let mut stored = vec![0_u64; PAGES as usize];
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let address = map.address().map(|(address, _)| address as usize);
                let (mut x, mut turn) = (88172645463325252_u64, 0_u64);
                while !stop.load(Ordering::SeqCst) {
                    stand.here();
                    x ^= x << 13;
                    x ^= x >> 7;
                    x ^= x << 17;
                    turn += 1;
                    let page = x % PAGES;
                    match address {
                        // SAFETY: an aligned word inside of the mapping, which outlives the scope.
                        Some(address) => unsafe {
                            let word = (address as *mut u64).add((page * PAGE / 8) as usize);
                            word.write_volatile(turn);
                        },
                        None => map.write(page * PAGE, &turn.to_le_bytes()).unwrap(),
                    }
                    stored[page as usize] = turn;
                    if turn % 64 == 0 {
                        // On a busy machine passes come late: fewer pages must be waiting then.
                        let slower = 1 + turn / 64 / 500;
                        std::thread::sleep(Duration::from_millis(2 * slower));
                    }
                }
            });
            damage(&beneath, PAGES, &|| map.status().unwrap().counts.repaired > 0);
            map.pause();
            stop.store(true, Ordering::SeqCst);
            writer.join().unwrap();
        });
        let read = |page: u64| {
            let mut word = [0; 8];
            map.read(page * PAGE, &mut word).unwrap();
            u64::from_le_bytes(word)
        };
        for page in (0..PAGES).filter(|page| stored[*page as usize] > 0) {
            assert_eq!(read(page), stored[page as usize], "{tracking:?}: page {page}");
        }
        let status = map.status().unwrap();
        let (counts, contested) = (status.counts, status.contested);
        assert_eq!(contested, None, "{tracking:?}: {counts:?}");
        assert!(counts.repaired > 0 && counts.undecided == 0, "{tracking:?}: {counts:?}");
        drop(map);
        for page in (0..PAGES).filter(|page| stored[*page as usize] > 0) {
            let mut word = [0; 8];
            File::open(&here.path).unwrap().read_exact_at(&mut word, page * PAGE).unwrap();
            assert_eq!(u64::from_le_bytes(word), stored[page as usize], "{tracking:?}: {page}");
        }
        // Damage between a store and its pass has become part of the page; all else is right.
        let file = ProtectedFile::open(&here.path, &ProtectOptions::new()).unwrap();
        file.repair(false, |_, _| true).unwrap();
        file.close().unwrap();
    }
}

#[test]
fn passes_keep_to_their_pace_and_leave_a_trace() {
    let _beside = starts_none();
    let here = Alone::protected(8 << 20);
    let trace = here.path.with_extension("trace");
    // 4 MiB stored to, 8 MiB a second: a pass of half a second, in which others get their turn.
    let options = ProtectOptions::new()
        .period(Duration::from_millis(20))
        .scrub_regions(0)
        .processor(0)
        .pace(8 << 20)
        .trace(&trace);
    let map = ProtectedMap::open(&here.path, &options).unwrap();
    map.pause();
    for page in 0..1024 {
        map.write(page * 2 * PAGE, &[9; 16]).unwrap();
    }
    let start = Instant::now();
    map.resume();
    while map.status().unwrap().coverage.without_sum > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing is covered any more");
        std::thread::sleep(Duration::from_millis(5));
    }
    // A tenth of a second's worth may be saved up, and the last step is not waited for.
    map.close().unwrap();
    here.clean();
}

/// A region all of which is stored to before each pass is not protected again, unless that is asked
/// for; once it rests, it is.
#[test]
fn what_is_stored_to_all_the_time_is_left_open_until_it_rests() {
    let _beside = starts_none();
    const LEN: u64 = 256 * PAGE;
    for (rearm, left) in [(Rearm::WhereItPays, 256), (Rearm::All, 0)] {
        let here = Alone::protected(2 * LEN);
        let options = ProtectOptions::new().period(Duration::from_millis(5)).rearm(rearm);
        let map = ProtectedMap::open(&here.path, &options).unwrap();
        let pass = |of: u8| {
            map.pause();
            for page in 0..u64::from(of != 0) * LEN / PAGE {
                map.write(page * PAGE, &[of; 16]).unwrap();
            }
            let before = map.status().unwrap().counts;
            map.resume();
            // One that came before the pause may have covered what rests: no other comes then.
            let covered = |now: &ProtectStatus| {
                now.counts.passes > before.passes || of == 0 && now.coverage.without_sum == 0
            };
            let start = Instant::now();
            while !covered(&map.status().unwrap()) {
                assert!(start.elapsed() < Duration::from_secs(60), "no pass");
                std::thread::sleep(Duration::from_millis(1));
            }
            map.pause();
            let without = map.status().unwrap().coverage.without_sum;
            map.resume();
            without
        };
        assert_eq!(pass(1), 0, "{rearm:?}: all stored to for the first time");
        // A second pass may have come before it was looked, and found it at rest.
        let found = (2..200).map(pass).find(|without| *without == left);
        assert_eq!(found, Some(left), "{rearm:?}");
        let rests = (0..200).map(|_| pass(0)).find(|without| *without == 0);
        assert_eq!(rests, Some(0), "{rearm:?}");
        map.close().unwrap();
        here.clean();
    }
}

#[test]
fn a_trace_overwrites_none_that_somebody_writes_and_nothing_else() {
    let _beside = starts_none();
    let (here, other) = (Alone::protected(9 * PAGE), Alone::protected(9 * PAGE));
    let trace = here.path.with_extension("trace");
    let options = ProtectOptions::new().period(Duration::from_secs(3600)).trace(&trace);
    let map = ProtectedMap::open(&here.path, &options).unwrap();
    map.write(3 * PAGE, b"stored").unwrap();
    map.update_now().unwrap();
    let error = ProtectedMap::open(&other.path, &options).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("data.trace"), "{error}");
    map.close().unwrap();
    let text = fs::read_to_string(&trace).unwrap();
    assert!(text.lines().any(|line| line.ends_with(" 3+1")), "{text}");
    // It is over: the next one begins anew. What is no trace stays.
    ProtectedMap::open(&other.path, &options).unwrap().close().unwrap();
    assert!(!fs::read_to_string(&trace).unwrap().contains("3+1"));
    fs::write(&trace, "mine").unwrap();
    let error = ProtectedMap::open(&other.path, &options).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert_eq!(fs::read_to_string(&trace).unwrap(), "mine");
    other.clean();
}

#[test]
fn a_trace_says_which_pages_passes_found() {
    let _beside = starts_none();
    let here = Alone::protected(64 * PAGE);
    let trace = here.path.with_extension("trace");
    let options = ProtectOptions::new().period(Duration::from_millis(10)).trace(&trace);
    let map = ProtectedMap::open(&here.path, &options).unwrap();
    map.write(7 * PAGE, &[1; 3 * PAGE as usize]).unwrap();
    let start = Instant::now();
    let found = loop {
        let text = fs::read_to_string(&trace).unwrap();
        if let Some(line) = text.lines().find(|line| line.contains('+')) {
            break line.to_owned();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no pass has left a trace: {text}");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(found.ends_with(" 64 7+3"), "{found}");
    map.close().unwrap();
    let none = ProtectOptions::new().trace(here.path.join("no/such/folder"));
    assert!(ProtectedMap::open(&here.path, &none).is_err());
}
