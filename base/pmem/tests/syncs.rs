//! Writes and syncs of a file: counted, and after the first failure never tried again.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use common::{HERE, filled, numbered, protected};
use holdfast_pmem::inject::fail_sync;
use holdfast_pmem::{Medium, PAGE, Protect};

#[test]
fn an_append_is_one_write_and_visible_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let (path, medium) = numbered(&folder, 4, &protected(Protect::Alias));
    let before = medium.syncs();
    medium.append(HERE, PAGE - 3, b"record").unwrap();
    assert_eq!(medium.syncs() - before, 1);
    let mut found = [0; 8];
    medium.read(PAGE - 4, &mut found).unwrap();
    assert_eq!(&found, b"\x00record\x01");
    let view = medium.view(PAGE, 1).unwrap();
    // SAFETY: the byte lies in the mapping; nobody stores to it now.
    assert_eq!(unsafe { view.read() }, b'o');
    assert_eq!(&std::fs::read(&path).unwrap()[PAGE as usize - 3..PAGE as usize + 3], b"record");
    medium.append(HERE, 4 * PAGE, b"").unwrap();
    medium.sync(HERE).unwrap();
    assert_eq!(medium.syncs() - before, 2, "an empty append writes nothing");
}

#[test]
fn the_first_failure_is_the_last_try() {
    let folder = tempfile::tempdir().unwrap();
    let (path, medium) = numbered(&folder, 4, &protected(Protect::Alias));
    fail_sync(&medium, 3);
    medium.append(HERE, 0, b"one").unwrap();
    medium.sync(HERE).unwrap();
    assert!(!medium.failed());
    let first = medium.append(HERE, PAGE, b"lost").unwrap_err();
    assert_eq!((first.call, first.source.raw_os_error()), ("pwritev2", Some(libc::EIO)));
    assert!(medium.failed() && medium.status().failed);
    let issued = medium.syncs();
    for _ in 0..3 {
        let later = medium.append(HERE, PAGE, b"never").unwrap_err();
        assert!(later.to_string().contains("earlier pwritev2 failed"), "{later}");
        assert_eq!(medium.sync(HERE).unwrap_err().call, "fdatasync");
        assert!(medium.grow(8 * PAGE).is_err());
    }
    assert_eq!(medium.syncs(), issued, "nothing reached the system any more");
    assert_eq!(medium.len(), 4 * PAGE);
    let raw = std::fs::read(&path).unwrap();
    assert_eq!(raw.len() as u64, 4 * PAGE);
    assert_eq!(&raw[..3], b"one");
    assert_eq!(
        raw[PAGE as usize..2 * PAGE as usize],
        filled(1),
        "the failed bytes were not written"
    );
}

#[test]
fn a_failed_sync_is_as_final_as_a_failed_write() {
    let folder = tempfile::tempdir().unwrap();
    let (_, medium) = numbered(&folder, 4, &protected(Protect::Alias));
    fail_sync(&medium, 1);
    assert!(medium.sync(HERE).is_err());
    assert!(medium.append(HERE, 0, b"x").is_err());
}

#[test]
fn preparing_for_writes_changes_no_byte_and_keeps_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let (path, medium) = numbered(&folder, 4, &protected(Protect::Alias));
    let before = std::fs::read(&path).unwrap();
    let syncs = medium.syncs();
    medium.prepare(0, 4 * PAGE);
    assert_eq!(medium.syncs() - syncs, 1);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    // A range that leaves the file is prepared as far as there is a file.
    medium.prepare(3 * PAGE, 9 * PAGE);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    fail_sync(&medium, 1);
    medium.prepare(0, PAGE);
    assert!(medium.failed());
    assert!(medium.append(HERE, 0, b"more").is_err());
}
