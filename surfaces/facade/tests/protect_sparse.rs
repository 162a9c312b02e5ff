//! Files that are mostly holes: what it costs to open them hangs on what they have storage for, not
//! on their length.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use holdfast::protect::{ProtectOptions, ProtectedFile, side_path};

const PAGE: u64 = 4096;
/// Where files live in memory, and may have any length.
const MEMORY: &str = "/dev/shm";

/// A file of some pages in memory; nothing, said aloud, where there is no such place.
fn in_memory(pages: u64) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir_in(MEMORY);
    let folder = folder.inspect_err(|error| println!("skipped: {MEMORY}: {error}")).ok()?;
    let path = folder.path().join("data.bin");
    let bytes: Vec<u8> = (0..pages * PAGE).map(|at| (at / PAGE * 31 + at % 251) as u8).collect();
    fs::write(&path, bytes).unwrap();
    Some((folder, path))
}

/// Makes a file longer, by a hole; whether it may have that length here.
fn lengthen(path: &Path, len: u64) -> bool {
    let done = File::options().write(true).open(path).unwrap().set_len(len);
    done.inspect_err(|error| println!("skipped: no file of {len} bytes here: {error}")).is_ok()
}

/// Does it on a thread of its own, which is left behind if it does not come to its end.
fn soon(what: impl FnOnce() + Send + 'static) {
    let (tell, told) = mpsc::channel();
    let done = std::thread::spawn(move || {
        what();
        tell.send(()).unwrap();
    });
    match told.recv_timeout(Duration::from_secs(30)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it does not come to its end"),
        _ => done.join().unwrap(),
    }
}

#[test]
fn a_file_of_an_exbibyte_opens() {
    let Some((_folder, path)) = in_memory(40) else { return };
    let options = ProtectOptions::new();
    ProtectedFile::protect(&path, &options).unwrap().close().unwrap();
    let len = 1 << 60;
    if !lengthen(&path, len) {
        return;
    }
    soon(move || {
        // The first opening sees it grow, the others know how long it is.
        for _ in 0..2 {
            let file = ProtectedFile::open(&path, &options).unwrap();
            file.accept().unwrap();
            assert_eq!(file.status().unwrap().coverage.without_sum, 0);
            file.close().unwrap();
        }
        let file = ProtectedFile::look(&path, &options).unwrap();
        assert_eq!(file.status().unwrap().size, len);
        let found = file.verify(|_, _| true).unwrap();
        assert!(found.is_clean(), "{found:?}");
        assert_eq!((found.pages, found.good), (len / PAGE, len / PAGE));
        drop(file);
        let file = ProtectedFile::open(&path, &options).unwrap();
        let done = file.repair(false, |_, _| true).unwrap();
        assert!(done.lost.is_empty() && done.undecided.is_empty(), "{done:?}");
        file.close().unwrap();
    });
}

/// The side file of a sparse file is one, too: to look at a hole in memory gives it storage.
#[test]
fn a_look_gives_the_holes_of_a_side_file_no_storage() {
    let Some((_folder, path)) = in_memory(40) else { return };
    let far = 64 << 30;
    if !lengthen(&path, far + PAGE) {
        return;
    }
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[9; PAGE as usize], far).unwrap();
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    let options = ProtectOptions::new();
    ProtectedFile::protect(&path, &options).unwrap().close().unwrap();
    let taken = || fs::metadata(side_path(&path)).unwrap().blocks() * 512;
    let at_first = taken();
    let look = || ProtectedFile::look(&path, &options).unwrap().verify(|_, _| true).unwrap();
    assert!(look().is_clean());
    assert!(taken() < at_first + (256 << 10), "{at_first} bytes came to {}", taken());
    // What is at the far end is known none the less.
    file.write_all_at(&[8; 10], far + 9).unwrap();
    file.set_modified(before).unwrap();
    let found = look();
    assert_eq!(found.corrupt.len() + found.undecided.len(), 1, "{found:?}");
}
