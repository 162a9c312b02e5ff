//! A protected file in use by a program that is not given what it asks for: disk space, file
//! handles. Nothing that anybody wrote is lost by that, nor taken back.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[path = "all/common/mod.rs"]
mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{Alone, PAGE};
use holdfast::ErrorKind;
use holdfast::protect::{ProtectOptions, ProtectedFile, ProtectedMap, Tracking};

/// The file of the test that this process is a part of.
const PATH: &str = "HOLDFAST_TEST_PATH";

/// One test at a time: a child that another one begins has, until it is a program of its own, a
/// handle on the file of this one, and counts as a stranger who may write to it.
static ONE: Mutex<()> = Mutex::new(());

fn one_at_a_time() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the test `name` once more, in a process of its own, with the file at `path`.
fn apart(name: &str, path: &Path) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    let done = child.args(["--exact", name, "--nocapture"]).env(PATH, path).status().unwrap();
    assert!(done.success(), "{name}: {done}");
}

/// Whether this is that process.
fn part() -> Option<PathBuf> {
    std::env::var_os(PATH).map(PathBuf::from)
}

fn limit(what: u32, most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: both change settings of this process only, which is of this test alone.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(what, &raw const limit), 0);
    }
}

/// Passes are made by the test alone.
fn by_hand() -> ProtectOptions {
    ProtectOptions::new().period(Duration::from_hours(1))
}

/// A file with a different byte everywhere that ends in the middle of a page.
fn uneven(pages: u64) -> (Alone, Vec<u8>) {
    let here = Alone::protected(pages * PAGE - 1000);
    let mut bytes = common::content(pages);
    bytes.truncate((pages * PAGE - 1000) as usize);
    let map = ProtectedMap::open(&here.path, &by_hand()).unwrap();
    map.write(0, &bytes).unwrap();
    map.close().unwrap();
    (here, bytes)
}

fn is_good(path: &Path) {
    let file = ProtectedFile::look(path, &ProtectOptions::new()).unwrap();
    let found = file.verify(|_, _| true).unwrap();
    assert!(found.is_clean() && !found.changed && found.uncovered == 0, "{found:?}");
}

#[test]
fn growth_keeps_what_lies_behind_the_last_whole_page() {
    let _one = one_at_a_time();
    for (more, pages) in [(1, 3), (500, 3), (9000, 3), (700_000, 3), (9000, 1)] {
        let (here, mut bytes) = uneven(pages);
        let map = ProtectedMap::open(&here.path, &by_hand()).unwrap();
        for _ in 0..2 {
            bytes.resize(bytes.len() + more, 0);
            map.grow(bytes.len() as u64).unwrap();
            let at = bytes.len() - 1;
            bytes[at] = 0xee;
            map.write(at as u64, &[0xee]).unwrap();
            assert!(fs::read(&here.path).unwrap() == bytes, "{more} bytes more");
        }
        map.close().unwrap();
        assert!(fs::read(&here.path).unwrap() == bytes, "{more} bytes more");
        is_good(&here.path);
    }
}

#[test]
fn growth_that_fails_keeps_what_lies_behind_the_last_whole_page() {
    let _one = one_at_a_time();
    if let Some(path) = part() {
        // The largest file that this process may have stands in for a full disk.
        let map = ProtectedMap::open(&path, &by_hand()).unwrap();
        limit(libc::RLIMIT_FSIZE, 1 << 20);
        map.grow(2 << 20).unwrap_err();
        let len = map.len();
        map.grow(len + 2 * PAGE).unwrap();
        map.close().unwrap();
        return;
    }
    let (here, mut bytes) = uneven(3);
    apart("growth_that_fails_keeps_what_lies_behind_the_last_whole_page", &here.path);
    bytes.resize(bytes.len() + 2 * PAGE as usize, 0);
    assert!(fs::read(&here.path).unwrap() == bytes);
    is_good(&here.path);
}

/// A part of [`who_cannot_be_looked_for_is_not_nobody`]: it has no handle left to look around with,
/// in use by a way to track stores that needs none, or at rest.
fn looks_without_handles(path: &Path, in_use: bool) {
    let (map, file) = if in_use {
        let options = by_hand().tracking(Tracking::Notified);
        (Some(ProtectedMap::open(path, &options).unwrap()), None)
    } else {
        (None, Some(ProtectedFile::open(path, &ProtectOptions::new()).unwrap()))
    };
    limit(libc::RLIMIT_NOFILE, 64);
    let taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    println!("ready");
    std::io::stdin().read_exact(&mut [0]).unwrap();
    if let Some(map) = map {
        let done = map.scrub().unwrap();
        assert_eq!((done.repaired, done.report.corrupt), (0, Vec::new()));
        assert!(map.status().unwrap().contested.is_some());
        drop(taken);
        map.close().unwrap();
    }
    if let Some(file) = file {
        // Somebody may have it.
        let error = file.repair(false, |_, _| true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked);
    }
}

/// A stranger comes, and stores through a mapping.
#[test]
fn who_cannot_be_looked_for_is_not_nobody() {
    const NAME: &str = "who_cannot_be_looked_for_is_not_nobody";
    const HOW: &str = "HOLDFAST_TEST_HOW";
    const AT: u64 = 5 * PAGE;
    let _one = one_at_a_time();
    if let Some(path) = part() {
        return looks_without_handles(&path, std::env::var_os(HOW).unwrap() == "in use");
    }
    for how in ["in use", "at rest"] {
        let here = Alone::protected(40 * PAGE);
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", NAME, "--nocapture"]).env(PATH, &here.path).env(HOW, how);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(told.any(|line| line.unwrap().contains("ready")));
        let file = File::options().read(true).write(true).open(&here.path).unwrap();
        let (null, len) = (std::ptr::null_mut(), 40 * PAGE as usize);
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of an open file, which stays until the test is over.
        let at = unsafe { libc::mmap(null, len, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: inside of that mapping, and nobody else of this process has it.
        unsafe { at.cast::<u8>().add(AT as usize).cast::<[u8; 7]>().write_volatile(*b"foreign") };
        child.stdin.take().unwrap().write_all(b"x").unwrap();
        told.for_each(drop);
        let done = child.wait().unwrap();
        assert_eq!(&fs::read(&here.path).unwrap()[AT as usize..][..7], b"foreign", "{how}");
        assert!(done.success(), "{how}: {done}");
    }
}
