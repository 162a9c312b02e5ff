//! Redundancy in a region of a pool: it does what a side file does, it is protected itself, and
//! whatever happens to the pool costs no byte of the file.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[path = "all/common/mod.rs"]
mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, SystemTime};

use common::{Here, PAGE, content, starts_none, starts_programs};
use holdfast::protect::{
    Durability, ProtectOptions, ProtectedFile, ProtectedMap, Tracking, Unsure, Verified, side_path,
};
use holdfast::{Error, ErrorKind, Pool};

const PAGES: u64 = 700;

impl Here {
    fn file() -> Self {
        Self::with("data.bin", PAGES)
    }

    fn kept() -> Self {
        let here = Self::file();
        let file = ProtectedFile::protect(&here.path, &here.within()).unwrap();
        assert_eq!(file.pool(), Some(fs::canonicalize(&here.pool).unwrap().as_path()));
        file.close().unwrap();
        here
    }

    fn within(&self) -> ProtectOptions {
        ProtectOptions::new().pool(&self.pool)
    }

    /// Changes a byte; as rot does, or as a program does.
    fn change(&self, page: u64, rot: bool) {
        let before = fs::metadata(&self.path).unwrap().modified().unwrap();
        let file = File::options().read(true).write(true).open(&self.path).unwrap();
        let (mut byte, at) = ([0], page * PAGE + 100);
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[!byte[0]], at).unwrap();
        file.set_modified(if rot { before } else { SystemTime::now() }).unwrap();
    }

    fn verify(&self) -> Verified {
        let file = ProtectedFile::look(&self.path, &options()).unwrap();
        file.verify(|_, _| true).unwrap()
    }

    fn repair(&self, force: bool) -> holdfast::protect::Repaired {
        let file = ProtectedFile::open(&self.path, &options()).unwrap();
        let done = file.repair(force, |_, _| true).unwrap();
        file.close().unwrap();
        done
    }

    fn look(&self) -> Error {
        ProtectedFile::look(&self.path, &options()).map(drop).unwrap_err()
    }
}

/// Those that know nothing of a pool: the pointer tells.
fn options() -> ProtectOptions {
    ProtectOptions::new()
}

#[test]
fn a_region_does_what_a_side_file_does() {
    let _beside = starts_none();
    let here = Here::kept();
    assert!(here.verify().is_clean());
    assert!(fs::metadata(side_path(&here.path)).unwrap().len() <= 2 * PAGE, "it only points");
    let file = ProtectedFile::look_beside(&here.path, &options()).unwrap();
    let status = file.status().unwrap();
    assert_eq!((status.coverage.pages, status.coverage.without_parity), (PAGES, 0));
    drop(file);
    for page in [0, 299, PAGES - 1] {
        here.change(page, true);
    }
    assert_eq!(here.verify().corrupt, [0, 299, PAGES - 1]);
    assert_eq!(here.repair(false).repaired, [0, 299, PAGES - 1]);
    assert!(fs::read(&here.path).unwrap() == content(PAGES) && here.verify().is_clean());
    // What somebody wrote stays, and the reason is kept.
    here.change(5, false);
    let written = fs::read(&here.path).unwrap();
    assert_eq!(here.verify().undecided, [(5, Unsure::ChangedWhileUnprotected)]);
    assert_eq!(here.repair(false).undecided, [(5, Unsure::ChangedWhileUnprotected)]);
    assert_eq!(here.verify().undecided, [(5, Unsure::ChangedWhileUnprotected)]);
    assert!(fs::read(&here.path).unwrap() == written);
    assert_eq!(here.repair(true).forced, [5]);
    assert!(fs::read(&here.path).unwrap() == content(PAGES));
    // It grows with the file.
    let more = [content(PAGES), content(PAGES)].concat();
    fs::write(&here.path, &more).unwrap();
    let done = here.repair(false);
    assert_eq!(done.undecided.len(), 0, "{done:?}");
    here.change(2 * PAGES - 3, true);
    assert_eq!(here.repair(false).repaired, [2 * PAGES - 3]);
    assert!(fs::read(&here.path).unwrap() == more);
    // Taken as it is, in the same pool; then given up.
    here.change(9, false);
    ProtectedFile::protect_again(&here.path, &options()).unwrap().close().unwrap();
    assert!(here.verify().is_clean());
    assert_eq!(here.maps().len(), 1, "the old one is gone");
    ProtectedFile::open(&here.path, &options()).unwrap().unprotect().unwrap();
    assert!(!side_path(&here.path).exists() && here.maps().is_empty());
    assert_eq!(here.look().kind(), ErrorKind::NotFound);
}

#[test]
fn damage_to_the_pool_costs_nothing() {
    let _beside = starts_none();
    let here = Here::kept();
    let whole = fs::read(&here.pool).unwrap();
    // Every 97th page of the pool behind its logs, of which parity gives back each.
    let pool = File::options().write(true).open(&here.pool).unwrap();
    let begin = whole.len() as u64 / 2;
    let mut damaged = 0;
    for page in (begin / PAGE..whole.len() as u64 / PAGE).step_by(97) {
        if whole[(page * PAGE) as usize..][..PAGE as usize].iter().any(|byte| *byte != 0) {
            pool.write_all_at(&[0xa5; PAGE as usize], page * PAGE).unwrap();
            damaged += 1;
        }
    }
    drop(pool);
    assert!(damaged > 0, "there was something to damage");
    assert!(here.verify().is_clean());
    here.change(3, true);
    assert_eq!(here.repair(false).repaired, [3]);
    assert!(fs::read(&here.path).unwrap() == content(PAGES) && here.verify().is_clean());
}

#[test]
fn locks_hold() {
    let _beside = starts_none();
    let here = Here::file();
    let open = Pool::open(&here.pool).unwrap();
    let error = ProtectedFile::protect(&here.path, &here.within()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    assert!(!side_path(&here.path).exists());
    drop(open);
    let kept = ProtectedFile::protect(&here.path, &here.within()).unwrap();
    assert_eq!(Pool::open(&here.pool).unwrap_err().kind(), ErrorKind::Locked);
    kept.close().unwrap();
    let open = Pool::open(&here.pool).unwrap();
    let opened = ProtectedFile::open(&here.path, &options()).map(drop).unwrap_err();
    for error in [here.look(), opened] {
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    }
    drop(open);
    assert!(here.verify().is_clean());
    // Whoever maps it has to have its notes synced.
    let error = ProtectedMap::open(&here.path, &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let map = ProtectedMap::open(&here.path, &in_use()).unwrap();
    assert_eq!(Pool::open(&here.pool).unwrap_err().kind(), ErrorKind::Locked);
    assert_eq!(here.look().kind(), ErrorKind::Locked);
    map.close().unwrap();
    assert!(here.verify().is_clean());
}

/// In use, with passes when asked for.
fn in_use() -> ProtectOptions {
    let options = options().durability(Durability::Power).scrub_regions(0);
    options.tracking(Tracking::Notified).period(Duration::from_secs(3600))
}

#[test]
fn a_mapped_file_is_covered_in_its_pool() {
    let _beside = starts_none();
    let here = Here::kept();
    // A handler of a signal can make no transaction.
    let error = ProtectedMap::open(&here.path, &in_use().tracking(Tracking::Recorded)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("signal handler") && !error.remedy().is_empty());
    let map = ProtectedMap::open(&here.path, &in_use()).unwrap();
    map.write(3 * PAGE + 5, b"covered").unwrap();
    map.grow((PAGES + 300) * PAGE).unwrap();
    map.write((PAGES + 200) * PAGE, b"further").unwrap();
    map.update_now().unwrap();
    let now = fs::read(&here.path).unwrap();
    // Rot that leaves no trace cannot be had beside who listens: it is done where nobody does.
    map.close().unwrap();
    assert!(here.verify().is_clean());
    for page in [3, PAGES + 200] {
        here.change(page, true);
    }
    let map = ProtectedMap::open(&here.path, &in_use()).unwrap();
    let done = map.scrub().unwrap();
    assert_eq!((done.repaired, done.report.undecided.len()), (2, 0), "{done:?}");
    map.close().unwrap();
    assert!(fs::read(&here.path).unwrap() == now && here.verify().is_clean());
}

/// The other half of the next test, which runs it in a process of its own.
#[test]
fn stores_and_dies() {
    let Some(path) = std::env::var_os("HOLDFAST_TEST_DIES") else { return };
    let map = ProtectedMap::open(&path, &in_use()).unwrap();
    map.write(3 * PAGE, b"covered").unwrap();
    map.update_now().unwrap();
    map.write(5 * PAGE, b"not covered").unwrap();
    map.write(PAGES / 2 * PAGE, b"nor this").unwrap();
    std::process::abort();
}

#[test]
fn what_was_stored_before_a_death_is_undecided_and_stays() {
    let _beside = starts_programs();
    let here = Here::kept();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "stores_and_dies"]).env("HOLDFAST_TEST_DIES", &here.path);
    assert_eq!(child.output().unwrap().status.code(), None, "it did not die");
    let stored = fs::read(&here.path).unwrap();
    assert!(stored[3 * PAGE as usize..].starts_with(b"covered"));
    // The date of the file is put back: only what the region knows keeps the stores.
    let found = here.verify();
    let lost = [(5, Unsure::TrackingLost), (PAGES / 2, Unsure::TrackingLost)];
    assert_eq!((found.undecided, found.corrupt.len()), (lost.to_vec(), 0));
    assert_eq!(here.repair(false).undecided, lost);
    assert!(fs::read(&here.path).unwrap() == stored);
    here.change(3, true);
    assert_eq!(here.repair(false).repaired, [3]);
    assert!(fs::read(&here.path).unwrap() == stored);
}

#[test]
fn what_is_stopped_or_fails_leaves_nothing_in_the_pool() {
    let _beside = starts_none();
    let here = Here::file();
    let mut calls = 0;
    let made = ProtectedFile::protect_in_steps(&here.path, &here.within(), |done, all| {
        calls += 1;
        done < all
    });
    assert!(made.unwrap().is_none() && calls >= 2);
    assert!(here.maps().is_empty() && !side_path(&here.path).exists());
    // No room.
    let small = here.folder.path().join("small.pool");
    Pool::options().size(4 << 20).frame(4096).create(&small).unwrap().close();
    fs::write(&here.path, content(4000)).unwrap();
    let error = ProtectedFile::protect(&here.path, &options().pool(&small)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.remedy().contains("pool grow"), "{error}");
    let pool = Pool::open_read_only(&small).unwrap();
    assert!(pool.maps().unwrap().is_empty());
    drop(pool);
    assert_eq!(fs::read_dir(here.folder.path()).unwrap().count(), 3, "two pools and the file");
    // The pool itself.
    let error = ProtectedFile::protect(&here.pool, &here.within()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    // What a killed maker left goes with the next one.
    let pool = Pool::open(&here.pool).unwrap();
    let left = pool.map::<u64, [u8]>("holdfast.side.00112233445566778899aabbccddeeff").unwrap();
    let mut extent = [0; 48];
    extent[8] = 1;
    left.put(&u64::MAX, &extent[..]).unwrap();
    left.put(&7, &[1; 4096][..]).unwrap();
    pool.map::<u64, [u8]>("somebody's").unwrap();
    drop((left, pool));
    ProtectedFile::protect(&here.path, &here.within()).unwrap().close().unwrap();
    let maps = here.maps();
    assert!(maps.len() == 2 && maps.contains(&"somebody's".to_owned()), "{maps:?}");
    // Killed when the pointer had its name and the region did not know it yet: it is no leftover.
    let pool = Pool::open(&here.pool).unwrap();
    let name = maps.iter().find(|name| name.starts_with("holdfast.side.")).unwrap();
    let map = pool.map::<u64, [u8]>(name).unwrap();
    let mut extent = map.get(&u64::MAX).unwrap().unwrap();
    extent[8] = 1;
    map.put(&u64::MAX, &extent[..]).unwrap();
    drop((map, pool));
    let other = here.folder.path().join("other.bin");
    fs::write(&other, content(9)).unwrap();
    ProtectedFile::protect(&other, &here.within()).unwrap().close().unwrap();
    assert_eq!(here.maps().len(), 3);
    assert!(here.verify().is_clean());
    ProtectedFile::open(&here.path, &options()).unwrap().unprotect().unwrap();
    assert_eq!(here.maps().len(), 2);
}

#[test]
fn pools_and_pointers_that_are_not_what_they_were() {
    let _beside = starts_none();
    let here = Here::kept();
    let pointer = fs::read(side_path(&here.path)).unwrap();
    // Moved: said where to.
    let moved = here.folder.path().join("moved.pool");
    fs::rename(&here.pool, &moved).unwrap();
    let error = here.look();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.remedy().contains("--in"), "{error}");
    let there = options().pool(&moved);
    let file = ProtectedFile::look(&here.path, &there).unwrap();
    assert!(file.verify(|_, _| true).unwrap().is_clean());
    drop(file);
    // Another one under its name.
    Pool::options().size(16 << 20).create(&here.pool).unwrap().close();
    let error = here.look();
    assert!(
        error.kind() == ErrorKind::Damaged && error.cause().contains("not the pool"),
        "{error}"
    );
    fs::rename(&moved, &here.pool).unwrap();
    // Any one damage of the pointer is survived; both copies are not.
    for at in [20, 60, 4096 + 20, 4096 + 60] {
        let mut bytes = pointer.clone();
        bytes[at] ^= 4;
        fs::write(side_path(&here.path), &bytes).unwrap();
        assert!(here.verify().is_clean(), "{at}");
    }
    let mut bytes = pointer.clone();
    (bytes[60], bytes[4096 + 60]) = (!bytes[60], !bytes[4096 + 60]);
    fs::write(side_path(&here.path), &bytes).unwrap();
    assert_eq!(here.look().kind(), ErrorKind::Damaged);
    ProtectedFile::remove_side(&here.path, &options()).unwrap();
    assert!(!side_path(&here.path).exists() && fs::read(&here.path).unwrap() == content(PAGES));
    // A region that somebody removed.
    let here = Here::kept();
    let name = here.maps().remove(0);
    let pool = Pool::open(&here.pool).unwrap();
    let map = pool.map::<u64, [u8]>(&name).unwrap();
    map.put(&u64::MAX, &b"nonsense"[..]).unwrap();
    drop((map, pool));
    assert_eq!(here.look().kind(), ErrorKind::Damaged);
    ProtectedFile::remove_side(&here.path, &options()).unwrap();
    assert!(here.maps().is_empty() && !side_path(&here.path).exists());
}

#[test]
fn what_is_lost_of_a_region_is_made_anew() {
    let _beside = starts_none();
    let here = Here::kept();
    let name = here.maps().remove(0);
    let pool = Pool::open(&here.pool).unwrap();
    let map = pool.map::<u64, [u8]>(&name).unwrap();
    // Parity of the second stripe, and the last page, which has a copy of states.
    let bytes = content(PAGES);
    let row = |row: usize| &bytes[(4 + row) * PAGE as usize..][..PAGE as usize];
    let parity: Vec<u8> =
        (0..PAGE as usize).map(|at| (0..4).fold(0, |sum, number| sum ^ row(number)[at])).collect();
    let pages = map.scan(..u64::MAX, 100_000).unwrap();
    let of_parity = pages.iter().find(|(_, page)| *page == parity).unwrap().0;
    for number in [of_parity, pages.last().unwrap().0] {
        map.put(&number, &b"short"[..]).unwrap();
    }
    drop((map, pool));
    assert!(here.verify().is_clean());
    here.change(2, true);
    let done = here.repair(false);
    assert_eq!((done.redundancy, done.repaired), (1, vec![2]));
    here.change(6, true);
    assert_eq!(here.repair(false).repaired, [6]);
    assert!(fs::read(&here.path).unwrap() == bytes && here.verify().is_clean());
}
