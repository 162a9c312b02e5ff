//! What the tests of this folder share: places to put files, and a page full of a pattern.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::PathBuf;

use holdfast_pmem::track::Record;
use holdfast_pmem::{Mapped, Options, PAGE, Protect, Site};
use tempfile::TempDir;

/// The site of every call in these tests.
pub(crate) const HERE: Site = Site::new("pmem.test");

/// A folder on the disk's file system and one in shared memory.
pub(crate) fn folders() -> Vec<TempDir> {
    let memory = tempfile::Builder::new().prefix("holdfast").tempdir_in("/dev/shm").unwrap();
    vec![tempfile::tempdir().unwrap(), memory]
}

/// Options with this protection.
pub(crate) fn protected(protection: Protect) -> Options {
    Options { protection, ..Options::default() }
}

/// A record of first stores that keeps none.
#[derive(Debug)]
pub(crate) struct Nothing;

impl Record for Nothing {
    fn set(&self, _at: u64) -> bool {
        true
    }

    fn clear(&self, _at: u64, _len: u64) {}

    fn is_set(&self, _at: u64) -> bool {
        true
    }
}

/// A new file of `pages` pages in `folder`, each filled with its number.
pub(crate) fn numbered(folder: &TempDir, pages: u64, options: &Options) -> (PathBuf, Mapped) {
    use holdfast_pmem::Medium;
    let path = folder.path().join("pool");
    let medium = Mapped::create(&path, pages * PAGE, options).unwrap();
    for page in 0..pages {
        medium.put(HERE, page * PAGE, &filled(page as u8)).unwrap();
    }
    medium.drain(HERE);
    (path, medium)
}

/// One page of this byte.
pub(crate) fn filled(byte: u8) -> Vec<u8> {
    vec![byte; PAGE as usize]
}
