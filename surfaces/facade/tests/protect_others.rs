//! A protected file, and other processes: who cannot hear of them vouches for nothing, and who is
//! refused is no stranger.
//!
//! These start programs, one test at a time: a child that has not become its program yet has the
//! handles of all tests beside it, by which it may write.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[path = "all/common/mod.rs"]
mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{Alone, PAGE, refuse};
use holdfast::ErrorKind;
use holdfast::protect::{ProtectOptions, ProtectedFile, ProtectedMap, Unsure};

static ONE: Mutex<()> = Mutex::new(());

fn one() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes by hand only.
fn by_hand() -> ProtectOptions {
    ProtectOptions::new().period(Duration::from_secs(3600))
}

/// Another process writes, and is gone again.
fn stranger(path: &Path, at: u64) {
    let line = format!("printf foreign | dd of='{}' bs=1 seek={at} conv=notrunc", path.display());
    assert!(Command::new("sh").arg("-c").arg(line).output().unwrap().status.success());
}

/// Somebody has all inotify instances of the user, and fanotify is not permitted: that nothing is
/// heard says nothing, at rest and in use.
#[test]
fn who_cannot_be_heard_is_not_nobody() {
    let _one = one();
    let here = Alone::protected(40 * PAGE);
    let path = here.path.clone();
    let deaf = std::thread::spawn(move || {
        if !refuse(&[libc::SYS_fanotify_init, libc::SYS_inotify_init1], libc::EMFILE) {
            return false;
        }
        let file = ProtectedFile::look(&path, &ProtectOptions::new()).unwrap();
        assert!(file.verify(|_, _| true).unwrap().is_clean());
        stranger(&path, 9 * PAGE);
        let found = file.verify(|_, _| true).unwrap();
        assert_eq!((found.undecided, found.corrupt.len()), (vec![(9, Unsure::Contested)], 0));
        drop(file);
        let file = ProtectedFile::open(&path, &ProtectOptions::new()).unwrap();
        file.accept().unwrap();
        file.close().unwrap();
        let map = ProtectedMap::open(&path, &by_hand()).unwrap();
        assert!(!map.status().unwrap().listens);
        map.write(20 * PAGE, b"covered").unwrap();
        map.update_now().unwrap();
        stranger(&path, 7 * PAGE);
        let done = map.scrub().unwrap();
        let told = (done.report.undecided, done.report.corrupt.len(), done.repaired);
        assert_eq!(told, (vec![(7, Unsure::Contested)], 0, 0));
        map.close().unwrap();
        true
    });
    if !deaf.join().unwrap() {
        return;
    }
    let written = fs::read(&here.path).unwrap();
    assert!(written[7 * PAGE as usize..].starts_with(b"foreign"));
    assert!(written[20 * PAGE as usize..].starts_with(b"covered"));
    // Whoever hears well believes nothing either.
    let file = ProtectedFile::open(&here.path, &ProtectOptions::new()).unwrap();
    let done = file.repair(false, |_, _| true).unwrap();
    let undecided: Vec<u64> = done.undecided.iter().map(|(page, _)| *page).collect();
    assert_eq!((undecided, done.repaired.len(), done.lost.len()), (vec![7], 0, 0));
    file.close().unwrap();
    assert!(fs::read(&here.path).unwrap() == written);
}

/// The other half of the next test, which runs it in a process of its own.
#[test]
fn is_refused() {
    let Some(path) = std::env::var_os("HOLDFAST_TEST_REFUSED") else { return };
    let error = ProtectedMap::open(&path, &by_hand()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
}

#[test]
fn who_is_refused_does_not_make_it_contested() {
    let _one = one();
    let here = Alone::protected(40 * PAGE);
    let map = ProtectedMap::open(&here.path, &by_hand()).unwrap();
    let mut other = Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", "is_refused"]).env("HOLDFAST_TEST_REFUSED", &here.path);
    assert!(other.output().unwrap().status.success(), "it was not refused");
    assert_eq!(map.status().unwrap().contested, None);
    map.close().unwrap();
}
