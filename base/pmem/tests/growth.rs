//! A pool grows while it is in use: addresses stay, new bytes are zero, refusals change nothing.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{HERE, filled, folders, numbered, protected};
use holdfast_pmem::{Access, Mapped, Medium, Options, PAGE, Protect};

/// Ends the writers, also if the test fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_reference_survives_growth_under_load() {
    for folder in folders() {
        for protection in [Protect::Auto, Protect::Alias, Protect::Mprotect, Protect::None] {
            let folder = tempfile::tempdir_in(folder.path()).unwrap();
            let (path, medium) = numbered(&folder, 16, &protected(protection));
            let address = medium.view(5 * PAGE, PAGE).unwrap();
            // SAFETY: the page lies in the mapping, which outlives the slice; nobody stores to it.
            let held = unsafe { std::slice::from_raw_parts(address, PAGE as usize) };
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                let _stops = Stops(&stop);
                for writer in 0..2_u8 {
                    let (medium, stop) = (&medium, &stop);
                    scope.spawn(move || {
                        let at = u64::from(writer) * PAGE;
                        while !stop.load(Ordering::Relaxed) {
                            medium.begin_write();
                            medium.put(HERE, at, &filled(writer)).unwrap();
                            medium.xor(HERE, at + 64, &[1; 64]).unwrap();
                            medium.xor(HERE, at + 64, &[1; 64]).unwrap();
                            medium.end_write();
                            medium.drain(HERE);
                        }
                    });
                }
                // Often enough to meet a writer that begins or ends in the middle of it.
                for pages in (17..400).chain([1000]) {
                    medium.grow(pages * PAGE).unwrap();
                    assert_eq!(medium.len(), pages * PAGE);
                    let mut last = filled(1);
                    medium.read((pages - 1) * PAGE, &mut last).unwrap();
                    assert_eq!(last, filled(0));
                    medium.put(HERE, (pages - 1) * PAGE, &filled(0xab)).unwrap();
                    assert_eq!(held, filled(5));
                }
            });
            assert_eq!(medium.view(5 * PAGE, PAGE), Some(address));
            let new = medium.view(999 * PAGE, 1).unwrap();
            // SAFETY: the byte lies in the grown mapping; the writers are done.
            assert_eq!(unsafe { new.read() }, 0xab);
            drop(medium);
            let medium = Mapped::open(&path, Access::Write, &Options::default()).unwrap();
            assert_eq!(medium.len(), 1000 * PAGE);
            let mut found = filled(0);
            medium.read(PAGE, &mut found).unwrap();
            assert_eq!(found, filled(1));
        }
    }
}

#[test]
fn what_cannot_be_grown_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { reserve: Some(1), ..Options::default() };
    let (path, medium) = numbered(&folder, 4, &options);
    assert_eq!(medium.status().reserved, 2 << 20, "rounded up to a large page");
    for wrong in [0, PAGE, 4 * PAGE + 1, (2 << 20) + PAGE, u64::MAX - PAGE + 1] {
        assert!(medium.grow(wrong).is_err(), "{wrong}");
        assert_eq!(medium.len(), 4 * PAGE);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 * PAGE);
    }
    medium.grow(4 * PAGE).unwrap();
    medium.grow(2 << 20).unwrap();
    let observer = Mapped::open(&path, Access::ReadOnly, &Options::default()).unwrap();
    assert!(observer.grow(4 << 20).is_err());
}

#[test]
fn bytes_behind_the_last_whole_page_do_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    std::fs::write(&path, vec![0xee; 2 * PAGE as usize + 100]).unwrap();
    let medium = Mapped::open(&path, Access::Write, &Options::default()).unwrap();
    assert_eq!(medium.len(), 2 * PAGE);
    medium.grow(3 * PAGE).unwrap();
    let mut found = filled(1);
    medium.read(2 * PAGE, &mut found).unwrap();
    assert_eq!(found, filled(0));
}

#[test]
fn holes_have_no_storage_and_all_has_where_the_file_does_not_say() {
    // In memory, storage is given page by page.
    let folder = folders().pop().unwrap();
    let path = folder.path().join("sparse");
    let far = 512 << 20;
    let file = std::fs::File::create_new(&path).unwrap();
    file.set_len(1 << 30).unwrap();
    for at in [0, far] {
        std::os::unix::fs::FileExt::write_all_at(&file, &filled(1), at).unwrap();
    }
    drop(file);
    let medium = Mapped::open(&path, Access::Write, &Options::default()).unwrap();
    let from = |at: u64| medium.storage_from(at);
    assert_eq!([from(0), from(9), from(PAGE)], [Some(0), Some(9), Some(far)]);
    assert_eq!([from(far + PAGE), from(1 << 30), from(u64::MAX)], [None; 3]);
    // What has storage in the file is shown elsewhere now.
    medium.remap(9 * PAGE, far, PAGE).unwrap();
    assert_eq!([from(8 * PAGE), from(1 << 30)], [Some(8 * PAGE), None]);
}
