//! Pointers to redundancy in a pool: whoever has a copy of one does nothing to the file it was
//! copied from, what is moved stays itself, and what is left is removed only if that is sure.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{Here, PAGE, content};
use holdfast::protect::{
    Durability, KeptRegion, ProtectOptions, ProtectedFile, ProtectedMap, Standing, Tracking,
    Verified, side_path,
};
use holdfast::{ErrorKind, Pool};

const PAGES: u64 = 300;
/// Where an extent has its stage.
const STAGE: usize = 8;

fn options() -> ProtectOptions {
    ProtectOptions::new()
}

/// In use, with passes when asked for.
fn in_use() -> ProtectOptions {
    let options = options().durability(Durability::Power).scrub_regions(0);
    options.tracking(Tracking::Notified).period(Duration::from_secs(3600))
}

impl Here {
    fn new() -> Self {
        Self::with("a.db", PAGES)
    }

    fn protected() -> Self {
        let here = Self::new();
        here.protect(&here.path).unwrap();
        here
    }

    fn protect(&self, path: &Path) -> holdfast::Result<()> {
        ProtectedFile::protect(path, &options().pool(&self.pool))?.close()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Another file, protected in the same pool: whoever makes it sweeps.
    fn protect_another(&self, name: &str) {
        fs::write(self.at(name), content(9)).unwrap();
        self.protect(&self.at(name)).unwrap();
    }

    /// Changes what the pool has of the one region there is.
    fn with_extent(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let pool = Pool::open(&self.pool).unwrap();
        let name = pool.maps().unwrap().remove(0).0;
        let map = pool.map::<u64, [u8]>(&name).unwrap();
        let mut extent = map.get(&u64::MAX).unwrap().unwrap();
        change(&mut extent);
        map.put(&u64::MAX, &extent[..]).unwrap();
    }
}

fn verify(path: &Path) -> Verified {
    ProtectedFile::look(path, &options()).unwrap().verify(|_, _| true).unwrap()
}

fn rot(path: &Path, page: u64) {
    let before = fs::metadata(path).unwrap().modified().unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    let (mut byte, at) = ([0], page * PAGE + 100);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
    file.set_modified(before).unwrap();
}

fn repaired(path: &Path) -> Vec<u64> {
    let file = ProtectedFile::open(path, &options()).unwrap();
    let done = file.repair(false, |_, _| true).unwrap();
    file.close().unwrap();
    done.repaired
}

/// Copies a file with its pointer and their dates, as a copy for safety does.
fn copy(from: &Path, to: &Path) {
    for (from, to) in [(from.to_path_buf(), to.to_path_buf()), (side_path(from), side_path(to))] {
        let time = fs::metadata(&from).unwrap().modified().unwrap();
        fs::copy(from, &to).unwrap();
        File::options().write(true).open(to).unwrap().set_modified(time).unwrap();
    }
}

fn rename(from: &Path, to: &Path) {
    let sides = (side_path(from), side_path(to));
    fs::rename(from, to).unwrap();
    fs::rename(sides.0, sides.1).unwrap();
}

#[test]
fn a_copy_does_nothing_to_the_file_it_was_copied_from() {
    let here = Here::protected();
    let (original, copied) = (&here.path, here.at("b.db"));
    copy(original, &copied);
    let pointer = fs::read(side_path(original)).unwrap();
    let looked = ProtectedFile::look(&copied, &options()).unwrap();
    let known = fs::canonicalize(side_path(original)).unwrap();
    assert_eq!(looked.copy_of(), Some(known.as_path()));
    // Looked at, it is as good as the original: nothing is changed by that.
    assert!(looked.verify(|_, _| true).unwrap().is_clean());
    drop(looked);
    let opened = ProtectedFile::open(&copied, &options()).map(drop);
    let again = ProtectedFile::protect_again(&copied, &options()).map(drop);
    let mapped = ProtectedMap::open(&copied, &in_use()).map(drop);
    for refused in [opened, again, mapped] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("a.db") && error.remedy().contains("--force"));
    }
    assert_eq!(ProtectedFile::remove_side(&copied, &options()).unwrap(), None);
    assert!(!side_path(&copied).exists() && here.maps().len() == 1);
    assert!(fs::read(side_path(original)).unwrap() == pointer);
    assert!(verify(original).is_clean() && !verify(original).changed);
    rot(original, 5);
    assert_eq!(repaired(original), [5]);
    assert!(fs::read(original).unwrap() == content(PAGES));
    // With one of its own, it is nobody's copy.
    here.protect(&copied).unwrap();
    assert!(verify(&copied).is_clean() && verify(original).is_clean());
}

#[test]
fn what_was_moved_linked_or_put_back_stays_itself() {
    let here = Here::protected();
    // Moved, and something of that name is there again: a copy.
    let moved = here.at("moved.db");
    rename(&here.path, &moved);
    copy(&moved, &here.path);
    rot(&moved, 3);
    assert_eq!(repaired(&moved), [3]);
    let refused = ProtectedFile::open(&here.path, &options()).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    // A second name of the same file.
    let second = here.at("second.db");
    fs::hard_link(&moved, &second).unwrap();
    fs::hard_link(side_path(&moved), side_path(&second)).unwrap();
    rot(&second, 4);
    assert_eq!(repaired(&second), [4]);
    fs::remove_file(&second).unwrap();
    fs::remove_file(side_path(&second)).unwrap();
    // Put back from a copy, when the file itself is no more.
    fs::remove_file(&moved).unwrap();
    fs::remove_file(side_path(&moved)).unwrap();
    rot(&here.path, 7);
    let file = ProtectedFile::open(&here.path, &options()).unwrap();
    file.repair(false, |_, _| true).unwrap();
    file.close().unwrap();
    assert_eq!(ProtectedFile::look(&here.path, &options()).unwrap().copy_of(), None);
    ProtectedFile::open(&here.path, &options()).unwrap().unprotect().unwrap();
    assert!(here.maps().is_empty());
}

#[test]
fn a_pointer_that_cannot_be_read_just_now_keeps_its_region() {
    let here = Here::protected();
    let side = side_path(&here.path);
    let pointer = fs::read(&side).unwrap();
    // Killed when the pointer had its name and the region did not know it yet.
    here.with_extent(|extent| extent[STAGE] = 1);
    let mut damaged = pointer.clone();
    (damaged[60], damaged[4096 + 60]) = (!damaged[60], !damaged[4096 + 60]);
    fs::write(&side, &damaged).unwrap();
    here.protect_another("other.db");
    assert_eq!(here.maps().len(), 2);
    fs::write(&side, &pointer).unwrap();
    assert!(verify(&here.path).is_clean());
    // Not there, and its folder is not where it was: perhaps nothing is mounted there.
    let here = Here::new();
    fs::create_dir(here.at("d")).unwrap();
    let path = here.at("d/a.db");
    fs::write(&path, content(PAGES)).unwrap();
    here.protect(&path).unwrap();
    here.with_extent(|extent| extent[STAGE] = 1);
    fs::rename(here.at("d"), here.at("away")).unwrap();
    here.protect_another("other.db");
    fs::rename(here.at("away"), here.at("d")).unwrap();
    assert!(verify(&path).is_clean());
    // But what is sure goes.
    fs::remove_file(side_path(&path)).unwrap();
    here.protect_another("third.db");
    assert_eq!(here.maps().len(), 2);
}

#[test]
fn an_ending_that_was_cut_short_is_ended_by_the_next() {
    // The pointer was put aside, and nothing else was done.
    let here = Here::protected();
    let side = side_path(&here.path);
    fs::rename(&side, here.at("a.db.holdfast.making")).unwrap();
    let error = ProtectedFile::look(&here.path, &options()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    here.protect_another("other.db");
    assert_eq!(here.maps().len(), 1, "that of the other");
    here.protect(&here.path).unwrap();
    assert!(verify(&here.path).is_clean() && here.maps().len() == 2);
    assert!(!here.at("a.db.holdfast.making").exists());
    // The side file is back where it was, of a file whose protection has ended.
    let here = Here::new();
    ProtectedFile::protect(&here.path, &options()).unwrap().close().unwrap();
    let kept = here.at("kept");
    let side = side_path(&here.path);
    fs::hard_link(&side, &kept).unwrap();
    ProtectedFile::open(&here.path, &options()).unwrap().unprotect().unwrap();
    assert!(!side.exists());
    for within in [false, true] {
        fs::copy(&kept, &side).unwrap();
        let error = ProtectedFile::look(&here.path, &options()).map(drop).unwrap_err();
        assert!(error.remedy().contains("protect"), "{error}");
        let again = if within { options().pool(&here.pool) } else { options() };
        // Named wrongly, a pool does no harm to what is no pointer.
        let made = ProtectedFile::protect(&here.path, &again);
        if within {
            assert_eq!(made.map(drop).unwrap_err().kind(), ErrorKind::Exists);
            ProtectedFile::remove_side(&here.path, &options()).unwrap();
            here.protect(&here.path).unwrap();
        } else {
            made.unwrap().close().unwrap();
            assert!(verify(&here.path).is_clean());
            fs::remove_file(&side).unwrap();
        }
    }
    assert!(verify(&here.path).is_clean());
}

#[test]
fn an_ending_that_was_cut_short_leaves_nothing_whoever_is_next() {
    // The pointer was put aside, and nothing else was done; then the file is protected without the
    // pool, or in another one.
    for other in [false, true] {
        let here = Here::protected();
        fs::rename(side_path(&here.path), here.at("a.db.holdfast.making")).unwrap();
        let second = here.at("second.pool");
        Pool::options().size(32 << 20).create(&second).unwrap().close();
        let how = if other { options().pool(&second) } else { options() };
        // While the pool is in use, nobody can see to it, and nothing is forgotten.
        let busy = Pool::open(&here.pool).unwrap();
        let error = ProtectedFile::protect(&here.path, &how).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
        assert!(here.at("a.db.holdfast.making").exists() && !side_path(&here.path).exists());
        busy.close();
        assert_eq!(here.maps().len(), 1);
        ProtectedFile::protect(&here.path, &how).unwrap().close().unwrap();
        assert_eq!(here.maps(), [""; 0], "{other}");
        assert!(verify(&here.path).is_clean());
    }
    // One whose pool is not there any more is in nobody's way.
    let here = Here::protected();
    fs::rename(side_path(&here.path), here.at("a.db.holdfast.making")).unwrap();
    fs::rename(&here.pool, here.at("away.pool")).unwrap();
    ProtectedFile::protect(&here.path, &options()).unwrap().close().unwrap();
    assert!(verify(&here.path).is_clean());
}

#[test]
fn what_was_replaced_and_not_removed_goes_with_what_replaced_it() {
    for force in [false, true] {
        let here = Here::protected();
        let replaced = [9_u8; 16];
        here.with_extent(|extent| extent[32..48].copy_from_slice(&replaced));
        let pool = Pool::open(&here.pool).unwrap();
        let now = pool.map::<u64, [u8]>(&pool.maps().unwrap()[0].0).unwrap();
        let mut extent = now.get(&u64::MAX).unwrap().unwrap();
        extent[32..48].fill(0);
        let old = pool.map::<u64, [u8]>(&format!("holdfast.side.{}", "09".repeat(16))).unwrap();
        old.put(&u64::MAX, &extent[..]).unwrap();
        drop((now, old, pool));
        assert_eq!(here.maps().len(), 2);
        if force {
            assert_eq!(ProtectedFile::remove_side(&here.path, &options()).unwrap(), None);
        } else {
            ProtectedFile::open(&here.path, &options()).unwrap().unprotect().unwrap();
        }
        assert_eq!(here.maps(), [""; 0], "{force}");
    }
}

#[test]
fn a_map_that_was_made_for_nothing_goes() {
    let here = Here::new();
    let pool = Pool::open(&here.pool).unwrap();
    let name = |first: char| format!("holdfast.side.{first}0112233445566778899aabbccddeeff");
    pool.map::<u64, [u8]>(&name('0')).unwrap();
    // What is not as ours are is somebody's.
    pool.map::<u64, [u8]>("holdfast.side.mine").unwrap();
    pool.map::<u64, u64>(&name('1')).unwrap();
    pool.map::<u64, [u8]>(&name('2')).unwrap().put(&3, &b"mine"[..]).unwrap();
    drop(pool);
    here.protect(&here.path).unwrap();
    let maps = here.maps();
    assert!(maps.len() == 4 && !maps.contains(&name('0')), "{maps:?}");
    assert!(verify(&here.path).is_clean());
}

#[test]
fn a_moved_pool_is_found_again_at_the_end() {
    let here = Here::protected();
    let moved = here.at("moved.pool");
    fs::copy(&here.pool, &moved).unwrap();
    // What lies where it was is a copy of it, and stays what it is.
    let stale = fs::read(&here.pool).unwrap();
    let map = ProtectedMap::open(&here.path, &in_use().pool(&moved)).unwrap();
    map.write(3 * PAGE, b"written").unwrap();
    map.close().unwrap();
    assert!(fs::read(&here.pool).unwrap() == stale);
    fs::remove_file(&here.pool).unwrap();
    let file = ProtectedFile::look(&here.path, &options().pool(&moved)).unwrap();
    assert!(file.verify(|_, _| true).unwrap().is_clean());
    drop(file);
    let map = ProtectedMap::open(&here.path, &in_use().pool(&moved)).unwrap();
    map.write(5 * PAGE, b"written").unwrap();
    map.close().unwrap();
}

#[test]
fn a_pointer_learns_where_its_pool_is() {
    let here = Here::protected();
    let moved = here.at("moved.pool");
    fs::rename(&here.pool, &moved).unwrap();
    let there = options().pool(&moved);
    // A look changes nothing.
    let pointer = fs::read(side_path(&here.path)).unwrap();
    drop(ProtectedFile::look(&here.path, &there).unwrap());
    assert!(fs::read(side_path(&here.path)).unwrap() == pointer);
    ProtectedFile::open(&here.path, &there).unwrap().close().unwrap();
    assert!(verify(&here.path).is_clean());
    // Both copies of it know.
    let mut damaged = fs::read(side_path(&here.path)).unwrap();
    for at in [60, 4096 + 60] {
        damaged[at] ^= 1;
        fs::write(side_path(&here.path), &damaged).unwrap();
        assert!(verify(&here.path).is_clean(), "{at}");
        damaged[at] ^= 1;
    }
}

#[test]
fn who_may_read_it_stays_as_it_was() {
    for within in [false, true] {
        let here = Here::new();
        let how = if within { options().pool(&here.pool) } else { options() };
        ProtectedFile::protect(&here.path, &how).unwrap().close().unwrap();
        let side = side_path(&here.path);
        assert_eq!(fs::metadata(&side).unwrap().mode() & 0o777, 0o600);
        for mode in [0o644, 0o640, 0o400] {
            fs::set_permissions(&side, fs::Permissions::from_mode(mode)).unwrap();
            let given = std::os::unix::fs::chown(&side, Some(12345), Some(23456));
            let before = fs::metadata(&side).unwrap();
            ProtectedFile::protect_again(&here.path, &options()).unwrap().close().unwrap();
            let after = fs::metadata(&side).unwrap();
            assert_ne!(before.ino(), after.ino());
            let rights = |of: &fs::Metadata| (of.uid(), of.gid(), of.mode() & 0o777);
            assert_eq!(rights(&before), rights(&after), "{within} {mode:o}");
            if given.is_err() {
                println!("  skipped: only root gives files away");
            }
        }
    }
}

#[test]
fn a_name_as_long_as_can_be_is_protected() {
    for (within, len) in [(false, 246), (true, 246), (false, 240)] {
        let here = Here::new();
        let path = here.at(&"n".repeat(len));
        fs::write(&path, content(9)).unwrap();
        let how = if within { options().pool(&here.pool) } else { options() };
        ProtectedFile::protect(&path, &how).unwrap().close().unwrap();
        assert!(verify(&path).is_clean());
        ProtectedFile::protect_again(&path, &options()).unwrap().close().unwrap();
        ProtectedFile::open(&path, &options()).unwrap().unprotect().unwrap();
        assert!(!side_path(&path).exists());
    }
}

/// Destroys the page of the pool in which `bytes` begin, with all parity of it.
fn destroy(pool: &Path, bytes: &[u8]) {
    let regions = Pool::open_read_only(pool).unwrap().regions();
    let whole = fs::read(pool).unwrap();
    let file = File::options().write(true).open(pool).unwrap();
    let mut found = 0;
    for zone in regions.iter().filter(|zone| zone.row_len > 0) {
        let part = &whole[zone.start as usize..][..zone.len as usize];
        let Some(at) = part.windows(bytes.len()).position(|window| window == bytes) else {
            continue;
        };
        let (row, inside) = (at as u64 / zone.row_len, at as u64 % zone.row_len / PAGE * PAGE);
        assert!(row < zone.data_rows.into(), "this is parity");
        let parity = u64::from(zone.data_rows)..u64::from(zone.data_rows + zone.parity_rows);
        for row in [row].into_iter().chain(parity) {
            let at = zone.start + row * zone.row_len + inside;
            file.write_all_at(&[0xa5; PAGE as usize], at).unwrap();
        }
        found += 1;
    }
    assert_eq!(found, 1);
}

#[test]
fn what_is_lost_of_a_region_is_in_nobodys_way() {
    let here = Here::protected();
    // Parity of the second stripe.
    let bytes = content(PAGES);
    let row = |row: usize| &bytes[(4 + row) * PAGE as usize..][..PAGE as usize];
    let parity: Vec<u8> =
        (0..64).map(|at| (0..4).fold(0, |sum, number| sum ^ row(number)[at])).collect();
    destroy(&here.pool, &parity);
    let pages = |here: &Here| {
        let pool = Pool::open_read_only(&here.pool).unwrap();
        let name = pool.maps().unwrap().remove(0).0;
        pool.map::<u64, [u8]>(&name).unwrap().len().unwrap()
    };
    let before = pages(&here);
    let left = ProtectedFile::remove_side(&here.path, &options()).unwrap();
    assert_eq!(left.as_deref(), Some(fs::canonicalize(&here.pool).unwrap().as_path()));
    assert!(!side_path(&here.path).exists());
    assert!(before > 50 && pages(&here) < 10, "{} of {before}", pages(&here));
    here.protect(&here.path).unwrap();
    assert!(verify(&here.path).is_clean());
    here.protect_another("other.db");
    // Named, neither kept nor in the way.
    let pool = Pool::open_read_only(&here.pool).unwrap();
    let found = KeptRegion::of(&pool).unwrap();
    let count = |standing| found.iter().filter(|region| region.standing == standing).count();
    assert_eq!((count(Standing::Pointed), count(Standing::Left)), (2, 1), "{found:?}");
}

#[test]
fn what_belongs_to_no_file_is_named_and_goes_if_it_is_asked_for() {
    let here = Here::protected();
    here.protect_another("other.db");
    let listed = || KeptRegion::of(&Pool::open_read_only(&here.pool).unwrap()).unwrap();
    let of = |path: &Path| {
        let side = fs::canonicalize(path.parent().unwrap()).unwrap();
        let side = side_path(&side.join(path.file_name().unwrap()));
        listed().into_iter().find(|region| region.pointer.as_deref() == Some(&*side)).unwrap()
    };
    assert_eq!(of(&here.path).standing, Standing::Pointed);
    let refused = KeptRegion::sweep(&here.pool, &[of(&here.path).id]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    assert!(refused.to_string().contains("a.db"), "{refused}");
    // The pool was elsewhere when the protection was given up.
    let away = here.at("away.pool");
    fs::rename(&here.pool, &away).unwrap();
    let left = ProtectedFile::remove_side(&here.path, &options()).unwrap();
    assert_eq!(left.unwrap().file_name(), here.pool.file_name());
    fs::rename(&away, &here.pool).unwrap();
    let lost = of(&here.path);
    assert!(lost.standing == Standing::Lost && lost.len > 0, "{lost:?}");
    // Not unasked: it may have been moved.
    let (removed, kept) = KeptRegion::sweep(&here.pool, &[]).unwrap();
    assert_eq!((removed.len(), kept.len()), (0, 2));
    let none = KeptRegion::sweep(&here.pool, &["ff".repeat(16)]).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound, "{none}");
    let (removed, kept) = KeptRegion::sweep(&here.pool, std::slice::from_ref(&lost.id)).unwrap();
    assert_eq!((removed.as_slice(), kept.len()), (&[lost][..], 1));
    assert!(verify(&here.at("other.db")).is_clean());
}
