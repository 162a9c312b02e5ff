//! Files protected at rest: damage is found and given back, what somebody wrote never is, and
//! whatever is wrong with the side file costs nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[path = "all/common/mod.rs"]
mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use common::{starts_none, starts_programs};
use holdfast::ErrorKind;
use holdfast::protect::{ProtectOptions, ProtectedFile, Unsure, Verified, side_path};

const PAGE: u64 = 4096;

struct Here {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

/// Bytes that differ from page to page.
fn content(len: u64) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(next).collect()
}

impl Here {
    /// A file of so many bytes, not protected yet.
    fn file(len: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.bin");
        fs::write(&path, content(len)).unwrap();
        Self { _folder: folder, path }
    }

    fn protected(len: u64) -> Self {
        let here = Self::file(len);
        ProtectedFile::protect(&here.path, &options()).unwrap().close().unwrap();
        here
    }

    fn side(&self) -> PathBuf {
        side_path(&self.path)
    }

    /// Changes a byte as rot would: nobody sees it in the file's times.
    fn rot(&self, at: u64) {
        let before = self.times();
        self.change(at);
        File::options().write(true).open(&self.path).unwrap().set_modified(before).unwrap();
    }

    fn times(&self) -> SystemTime {
        fs::metadata(&self.path).unwrap().modified().unwrap()
    }

    /// Changes a byte as programs do.
    fn change(&self, at: u64) {
        let file = File::options().read(true).write(true).open(&self.path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
        file.set_modified(SystemTime::now()).unwrap();
    }

    fn verify(&self) -> Verified {
        let file = ProtectedFile::look(&self.path, &options()).unwrap();
        file.verify(|_, _| true).unwrap()
    }
}

fn options() -> ProtectOptions {
    ProtectOptions::new()
}

#[test]
fn rot_is_found_and_given_back() {
    let _beside = starts_none();
    for len in [1, 100, PAGE, 3 * PAGE + 17, 700 * PAGE + 1, 3000 * PAGE] {
        let here = Here::protected(len);
        assert!(here.verify().is_clean(), "{len}");
        let victims: Vec<u64> = [0, len / 2, len - 1].map(|at| at / PAGE / 4).to_vec();
        let mut pages: Vec<u64> =
            victims.iter().map(|stripe| (stripe * 4).min((len - 1) / PAGE)).collect();
        pages.dedup();
        for page in &pages {
            here.rot((page * PAGE + 99).min(len - 1));
        }
        let found = here.verify();
        assert_eq!((found.corrupt.clone(), found.undecided.len()), (pages.clone(), 0), "{len}");
        let file = ProtectedFile::open(&here.path, &options()).unwrap();
        let done = file.repair(false, |_, _| true).unwrap();
        file.close().unwrap();
        assert_eq!((done.repaired, done.lost.len(), done.undecided.len()), (pages, 0, 0));
        assert!(fs::read(&here.path).unwrap() == content(len), "{len}");
        assert!(here.verify().is_clean());
    }
}

#[test]
fn what_somebody_wrote_stays_and_the_page_before_is_beside_it() {
    let _beside = starts_none();
    let here = Here::protected(40 * PAGE);
    here.change(5 * PAGE + 7);
    let written = fs::read(&here.path).unwrap();
    let found = here.verify();
    assert_eq!(found.undecided, [(5, Unsure::ChangedWhileUnprotected)]);
    assert!(found.corrupt.is_empty() && found.changed);
    // Opening it for repair, and closing it, makes it no less undecided.
    for _ in 0..2 {
        let file = ProtectedFile::open(&here.path, &options()).unwrap();
        let done = file.repair(false, |_, _| true).unwrap();
        assert_eq!(done.undecided.iter().map(|(page, _)| *page).collect::<Vec<_>>(), [5]);
        assert!(done.repaired.is_empty() && done.lost.is_empty());
        file.close().unwrap();
        assert!(fs::read(&here.path).unwrap() == written);
    }
    let out = here.path.with_extension("before");
    let file = ProtectedFile::look(&here.path, &options()).unwrap();
    let before = file.before(&out, |_, _| true).unwrap().unwrap();
    assert_eq!((before.given_back, before.missing.len()), (vec![5], 0));
    assert!(fs::read(&out).unwrap() == content(40 * PAGE));
    assert!(fs::read(&here.path).unwrap() == written, "looking changed the file");
    drop(file);
    let file = ProtectedFile::open(&here.path, &options()).unwrap();
    assert_eq!(file.repair(true, |_, _| true).unwrap().forced, [5]);
    file.close().unwrap();
    assert!(fs::read(&here.path).unwrap() == content(40 * PAGE));
    assert!(here.verify().is_clean());
}

/// What somebody appends lies in the last page of what was covered, and is not of that.
#[test]
fn what_was_appended_is_not_in_the_image_before() {
    let _beside = starts_none();
    let out = |here: &Here| here.path.with_extension("before");
    for (len, more) in [(10_000, 2_000), (10_000, 9_000), (8 * PAGE, 100), (100, 50)] {
        let here = Here::protected(len);
        let file = File::options().write(true).open(&here.path).unwrap();
        file.write_all_at(&vec![9; more], len).unwrap();
        drop(file);
        let written = fs::read(&here.path).unwrap();
        let last = if len % PAGE == 0 { vec![] } else { vec![len / PAGE] };
        // Who opens it to repair it covers whole pages that it has grown by.
        let inside = (len + more as u64).div_ceil(PAGE) == len.div_ceil(PAGE);
        for write in [false, true].into_iter().filter(|write| inside || !write) {
            let open = if write { ProtectedFile::open } else { ProtectedFile::look };
            let file = open(&here.path, &options()).unwrap();
            let before = file.before(&out(&here), |_, _| true).unwrap().unwrap();
            assert!(fs::read(out(&here)).unwrap() == content(len), "{len} and {more}: {write}");
            let told = (before.given_back, before.missing, before.gone);
            assert_eq!(told, (last.clone(), vec![], 0), "{len} and {more}: {write}");
            fs::remove_file(out(&here)).unwrap();
        }
        // Taken for right, it is of what was covered.
        let file = ProtectedFile::open(&here.path, &options()).unwrap();
        file.accept().unwrap();
        file.close().unwrap();
        let file = ProtectedFile::look(&here.path, &options()).unwrap();
        file.before(&out(&here), |_, _| true).unwrap().unwrap();
        assert!(fs::read(out(&here)).unwrap() == written, "{len} and {more}");
    }
}

/// Zeros behind the end of what was covered look as if they had been there.
#[test]
fn zeros_that_were_appended_are_not_in_the_image_before() {
    let _beside = starts_none();
    let out = |here: &Here| here.path.with_extension("before");
    for (len, more) in [(10_000, 2_000), (10_000, 9_000), (8 * PAGE, 100), (100, 50 * PAGE)] {
        for written in [false, true] {
            let here = Here::protected(len);
            let file = File::options().write(true).open(&here.path).unwrap();
            match written {
                true => file.write_all_at(&vec![0; more as usize], len).unwrap(),
                false => file.set_len(len + more).unwrap(),
            }
            drop(file);
            let found = here.verify();
            assert!(found.is_clean() && found.changed, "{found:?}");
            let covered = len.next_multiple_of(PAGE).min(len + more);
            assert_eq!((found.good, found.grown), (len.div_ceil(PAGE), len + more - covered));
            for write in [false, true] {
                let open = if write { ProtectedFile::open } else { ProtectedFile::look };
                let file = open(&here.path, &options()).unwrap();
                let before = file.before(&out(&here), |_, _| true).unwrap().unwrap();
                assert!(fs::read(out(&here)).unwrap() == content(len), "{len} {more} {written}");
                assert_eq!((before.given_back, before.missing, before.gone), (vec![], vec![], 0));
                fs::remove_file(out(&here)).unwrap();
            }
        }
    }
}

/// Nobody closes the file: as a kill leaves it, or a power cut.
#[test]
fn damage_behind_a_repair_that_was_cut_short_is_no_doubt() {
    let _beside = starts_none();
    let here = Here::protected(700 * PAGE);
    for page in [3, 600] {
        here.rot(page * PAGE + 9);
    }
    let file = ProtectedFile::open(&here.path, &options()).unwrap();
    let mut steps = 0;
    let done = file.repair(false, |_, _| {
        steps += 1;
        steps == 1
    });
    let done = done.unwrap();
    assert_eq!((done.repaired, done.stopped), (vec![3], true));
    drop(file);
    let found = here.verify();
    assert_eq!((found.corrupt, found.undecided.len(), found.changed), (vec![600], 0, false));
    let file = ProtectedFile::open(&here.path, &options()).unwrap();
    let done = file.repair(false, |_, _| true).unwrap();
    assert_eq!((done.repaired, done.undecided.len()), (vec![600], 0));
    file.close().unwrap();
    assert!(fs::read(&here.path).unwrap() == content(700 * PAGE));
}

#[test]
fn what_was_written_can_be_accepted() {
    let _beside = starts_none();
    let here = Here::protected(40 * PAGE);
    here.change(9 * PAGE);
    let file = ProtectedFile::open(&here.path, &options()).unwrap();
    file.accept().unwrap();
    file.close().unwrap();
    assert!(here.verify().is_clean());
    here.change(10 * PAGE);
    ProtectedFile::protect_again(&here.path, &options()).unwrap().close().unwrap();
    assert!(here.verify().is_clean());
    // But damage is not taken for right.
    here.rot(10 * PAGE);
    let side = fs::read(here.side()).unwrap();
    let error = ProtectedFile::protect_again(&here.path, &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(fs::read(here.side()).unwrap() == side);
}

#[test]
fn a_file_may_grow_and_shrink_while_nobody_looks() {
    let _beside = starts_none();
    let here = Here::protected(300 * PAGE);
    let file = File::options().write(true).open(&here.path).unwrap();
    file.set_len(400 * PAGE + 5).unwrap();
    file.write_all_at(b"new", 390 * PAGE).unwrap();
    let found = here.verify();
    assert!(found.is_clean() && found.changed, "{found:?}");
    assert_eq!(found.grown, 100 * PAGE + 5);
    let open = ProtectedFile::open(&here.path, &options()).unwrap();
    let done = open.repair(false, |_, _| true).unwrap();
    assert!(done.undecided.is_empty() && done.lost.is_empty(), "{done:?}");
    open.close().unwrap();
    assert_eq!(here.verify().grown, 0);
    here.rot(390 * PAGE);
    assert_eq!(here.verify().corrupt, [390]);
    let open = ProtectedFile::open(&here.path, &options()).unwrap();
    assert_eq!(open.repair(false, |_, _| true).unwrap().repaired, [390]);
    open.close().unwrap();
    // Cut off: what is gone is told, what is left is kept.
    file.set_len(200 * PAGE + 9).unwrap();
    let kept = fs::read(&here.path).unwrap();
    let found = here.verify();
    assert!(!found.is_clean() && found.gone == 201, "{found:?}");
    assert!(found.corrupt.is_empty() && found.undecided.is_empty(), "{found:?}");
    let open = ProtectedFile::open(&here.path, &options()).unwrap();
    assert!(open.repair(false, |_, _| true).unwrap().lost.is_empty());
    open.close().unwrap();
    assert!(fs::read(&here.path).unwrap() == kept);
}

#[test]
fn a_sparse_file_takes_no_space_for_its_holes() {
    let _beside = starts_none();
    use std::os::unix::fs::MetadataExt;
    let here = Here::file(10);
    let file = File::options().write(true).open(&here.path).unwrap();
    file.set_len(8 << 30).unwrap();
    file.write_all_at(&content(PAGE), 5 << 30).unwrap();
    ProtectedFile::protect(&here.path, &options()).unwrap().close().unwrap();
    let taken = fs::metadata(here.side()).unwrap().blocks() * 512;
    assert!(taken < 16 << 20, "{taken} bytes");
    here.rot((5 << 30) + 1);
    let open = ProtectedFile::open(&here.path, &options()).unwrap();
    assert_eq!(open.repair(false, |_, _| true).unwrap().repaired, [(5 << 30) / PAGE]);
}

#[test]
fn side_files_that_cannot_be_used_are_told_apart() {
    let _beside = starts_none();
    let here = Here::protected(40 * PAGE);
    let data = fs::read(&here.path).unwrap();
    let good = fs::read(here.side()).unwrap();
    let start = good.windows(8).position(|word| word == b"HOLDSIDE").unwrap();
    assert!(start < 64);
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut side = good.clone();
        change(&mut side);
        fs::write(here.side(), &side).unwrap();
        let look = ProtectedFile::look(&here.path, &options()).map(drop).unwrap_err();
        let open = ProtectedFile::open(&here.path, &options()).map(drop).unwrap_err();
        assert_eq!(look.kind(), open.kind(), "{look} {open}");
        assert!(fs::read(here.side()).unwrap() == side, "the side file was changed");
        assert!(fs::read(&here.path).unwrap() == data, "the data file was changed");
        assert!(look.to_string().contains("; "), "{look}");
        look
    };
    let both = |side: &mut Vec<u8>, at: usize, bytes: &[u8]| {
        for copy in [0, 64 << 10] {
            side[copy + start + at..][..bytes.len()].copy_from_slice(bytes);
        }
    };
    assert_eq!(with(&|side| side.clear()).kind(), ErrorKind::Truncated);
    assert_eq!(with(&|side| side.truncate(100)).kind(), ErrorKind::Truncated);
    assert_eq!(with(&|side| side.fill(0)).kind(), ErrorKind::NotAPool);
    assert_eq!(with(&|side| side.fill(7)).kind(), ErrorKind::NotAPool);
    assert_eq!(with(&|side| both(side, 20, b"rot")).kind(), ErrorKind::Damaged);
    // No side file at all.
    fs::remove_file(here.side()).unwrap();
    let error = ProtectedFile::look(&here.path, &options()).unwrap_err();
    assert!(error.kind() == ErrorKind::NotFound && error.to_string().contains("not protected"));
    // One copy of the header is enough.
    let mut side = good.clone();
    side[start + 20] ^= 1;
    fs::write(here.side(), side).unwrap();
    assert!(here.verify().is_clean());
}

#[test]
fn a_side_file_that_is_cut_off_or_damaged_inside_costs_no_data() {
    let _beside = starts_none();
    let here = Here::protected(2000 * PAGE);
    let data = fs::read(&here.path).unwrap();
    let good = fs::read(here.side()).unwrap();
    for len in [8192_usize, 100 << 10, 130 << 10, 200 << 10, 9 << 20] {
        fs::write(here.side(), &good[..len.min(good.len())]).unwrap();
        match ProtectedFile::open(&here.path, &options()) {
            Ok(open) => {
                let done = open.repair(true, |_, _| true).unwrap();
                assert!(done.repaired.is_empty() && done.lost.is_empty(), "{len}: {done:?}");
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Truncated, "{len}: {error}"),
        }
        assert!(fs::read(&here.path).unwrap() == data, "{len}");
    }
    for seed in 0..40_usize {
        let mut side = good.clone();
        let at = (128 << 10) + seed * 7919 % (200 << 10);
        side[at..at + 300].fill(0xa5);
        fs::write(here.side(), &side).unwrap();
        let open = ProtectedFile::open(&here.path, &options()).unwrap();
        let done = open.repair(true, |_, _| true).unwrap();
        assert!(done.repaired.is_empty() && done.lost.is_empty(), "{at}: {done:?}");
        drop(open);
        assert!(fs::read(&here.path).unwrap() == data, "{at}");
    }
}

#[test]
fn a_side_file_of_another_file_repairs_nothing() {
    let _beside = starts_none();
    let (here, other) = (Here::protected(40 * PAGE), Here::file(40 * PAGE));
    let mut bytes = content(40 * PAGE);
    bytes.reverse();
    fs::write(&other.path, &bytes).unwrap();
    fs::copy(here.side(), other.side()).unwrap();
    let found = other.verify();
    assert!(found.changed && found.corrupt.is_empty() && found.undecided.len() == 40, "{found:?}");
    let open = ProtectedFile::open(&other.path, &options()).unwrap();
    let done = open.repair(false, |_, _| true).unwrap();
    assert!(done.repaired.is_empty() && done.undecided.len() == 40, "{done:?}");
    drop(open);
    assert!(fs::read(&other.path).unwrap() == bytes);
    // An older side file of the same file is no better.
    let stale = fs::read(here.side()).unwrap();
    here.change(3 * PAGE);
    ProtectedFile::protect_again(&here.path, &options()).unwrap().close().unwrap();
    let written = fs::read(&here.path).unwrap();
    fs::write(here.side(), stale).unwrap();
    let open = ProtectedFile::open(&here.path, &options()).unwrap();
    assert!(open.repair(false, |_, _| true).unwrap().repaired.is_empty());
    drop(open);
    assert!(fs::read(&here.path).unwrap() == written);
}

#[test]
fn files_that_cannot_be_protected() {
    let _beside = starts_none();
    let here = Here::protected(PAGE);
    let error = ProtectedFile::protect(&here.path, &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    let error = ProtectedFile::protect(here.side(), &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let folder = here.path.parent().unwrap();
    let error = ProtectedFile::protect(folder, &options().side(folder.join("x"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotAFile, "{error}");
    let error = ProtectedFile::protect(folder.join("none"), &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let nowhere = options().side(folder.join("no").join("side"));
    let error = ProtectedFile::protect(&here.path, &nowhere).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let many = options().side(folder.join("x")).stripe(65, 1);
    let error = ProtectedFile::protect(&here.path, &many).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let left: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn one_at_a_time() {
    let _beside = starts_none();
    let here = Here::protected(PAGE);
    let open = ProtectedFile::open(&here.path, &options()).unwrap();
    for error in [
        ProtectedFile::open(&here.path, &options()).map(drop).unwrap_err(),
        ProtectedFile::look(&here.path, &options()).map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    }
    let status = ProtectedFile::look_beside(&here.path, &options()).unwrap().status().unwrap();
    assert_eq!(status.in_use, Some(Some(std::process::id())));
    drop(open);
    here.verify();
}

#[test]
fn two_parity_pages_give_two_back_and_the_side_file_may_be_elsewhere() {
    let _beside = starts_none();
    let here = Here::file(100 * PAGE);
    let elsewhere = here.path.with_extension("elsewhere");
    let options = options().stripe(8, 2).side(&elsewhere);
    ProtectedFile::protect(&here.path, &options).unwrap().close().unwrap();
    assert!(!here.side().exists());
    here.rot(17 * PAGE);
    here.rot(18 * PAGE);
    let open = ProtectedFile::open(&here.path, &options).unwrap();
    assert_eq!(open.repair(false, |_, _| true).unwrap().repaired, [17, 18]);
    let status = open.status().unwrap();
    assert_eq!((status.data, status.parity, status.coverage.without_parity), (8, 2, 0));
    open.unprotect().unwrap();
    assert!(!elsewhere.exists());
    assert!(fs::read(&here.path).unwrap() == content(100 * PAGE));
}

/// Another process writes and is gone again, between two looks.
fn stranger(path: &std::path::Path, at: u64) {
    let line = format!("printf stranger | dd of='{}' bs=1 seek={at} conv=notrunc", path.display());
    let done = std::process::Command::new("sh").arg("-c").arg(line).output().unwrap();
    assert!(done.status.success());
}

#[test]
fn a_writer_that_came_and_went_is_never_taken_back() {
    let _beside = starts_programs();
    let here = Here::protected(40 * PAGE);
    let file = ProtectedFile::open(&here.path, &options()).unwrap();
    stranger(&here.path, 5 * PAGE);
    let error = file.repair(false, |_, _| true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    // Nor in the middle.
    drop(file);
    let here = Here::protected(400 * PAGE);
    let file = ProtectedFile::open(&here.path, &options()).unwrap();
    let came = std::cell::Cell::new(false);
    let error = file.repair(false, |_, _| {
        if !came.replace(true) {
            stranger(&here.path, 350 * PAGE);
        }
        true
    });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Locked);
    let seen = fs::read(&here.path).unwrap();
    assert_eq!(&seen[350 * PAGE as usize..][..8], b"stranger");
    drop(file);
    // What is only looked at calls it a doubt, not damage.
    let here = Here::protected(40 * PAGE);
    let file = ProtectedFile::look(&here.path, &options()).unwrap();
    stranger(&here.path, 5 * PAGE);
    let found = file.verify(|_, _| true).unwrap();
    assert_eq!(
        (found.corrupt.len(), found.undecided.as_slice()),
        (0, &[(5, Unsure::Contested)][..])
    );
    assert!(found.unrest.is_some());
}

/// Another process that has a file open for writing until its input ends, and does nothing.
fn holder(path: &std::path::Path) -> std::process::Child {
    use std::io::Read;
    use std::process::Stdio;
    let mut holder = std::process::Command::new("sh")
        .args(["-c", "exec 3<>\"$0\"; echo ready; read line", path.to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    holder.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    holder
}

#[test]
fn damage_is_not_taken_for_right_because_somebody_was_there_meanwhile() {
    let _beside = starts_programs();
    let here = Here::protected(200 * PAGE);
    here.rot(5 * PAGE + 9);
    let side = fs::read(here.side()).unwrap();
    let mut there = None;
    let made = ProtectedFile::protect_again_in_steps(&here.path, &options(), |done, _| {
        match done {
            0 => there = Some(holder(&here.path)),
            // The last time that it is asked before all pages have been looked at.
            192 => {
                let mut there = there.take().unwrap();
                drop(there.stdin.take());
                there.wait().unwrap();
            }
            _ => {}
        }
        true
    });
    assert_eq!(made.unwrap_err().kind(), ErrorKind::Locked);
    assert!(there.is_none(), "he was gone again");
    assert!(fs::read(here.side()).unwrap() == side);
    assert_eq!(here.verify().corrupt, [5], "what can give it back is still there");
    let open = ProtectedFile::open(&here.path, &options()).unwrap();
    assert_eq!(open.repair(false, |_, _| true).unwrap().repaired, [5]);
    assert!(fs::read(&here.path).unwrap() == content(200 * PAGE));
}

/// Bytes that this thread has read by system calls.
fn read_by_us() -> Option<u64> {
    let told = fs::read_to_string("/proc/thread-self/io").ok()?;
    told.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
}

#[test]
fn holes_are_not_read_and_what_is_gone_is_not_looked_for() {
    let _beside = starts_none();
    let here = Here::file(10);
    let file = File::options().write(true).open(&here.path).unwrap();
    file.set_len(8 << 30).unwrap();
    file.write_all_at(&content(PAGE), 5 << 30).unwrap();
    ProtectedFile::protect(&here.path, &options()).unwrap().close().unwrap();
    let all = (8 << 30) / PAGE;
    let before_that = read_by_us();
    let found = here.verify();
    assert_eq!((found.pages, found.good, found.is_clean()), (all, all, true), "{found:?}");
    here.rot((5 << 30) + 1);
    assert_eq!(here.verify().corrupt, [(5 << 30) / PAGE]);
    let out = here.path.with_extension("before");
    let before = |expected: (usize, usize, u64, u64)| {
        let file = ProtectedFile::look(&here.path, &options()).unwrap();
        let told = file.before(&out, |_, _| true).unwrap().unwrap();
        let len = fs::metadata(&out).unwrap().len();
        assert_eq!((told.given_back.len(), told.missing.len(), told.gone, len), expected);
        fs::remove_file(&out).unwrap();
    };
    before((1, 0, 0, 8 << 30));
    // Cut off in the middle of a stripe: what parity can give back of it is given back.
    here.rot((5 << 30) + 1);
    file.set_len((5 << 30) + 3 * PAGE).unwrap();
    before((1, 0, all - (5 << 30) / PAGE - 4, (5 << 30) + 4 * PAGE));
    file.set_len(0).unwrap();
    assert_eq!(here.verify().gone, all);
    before((0, 0, all, 0));
    match read_by_us().zip(before_that) {
        Some((now, then)) => assert!(now - then < 64 << 20, "{} bytes were read", now - then),
        None => eprintln!("skipped: the system does not count what is read"),
    }
}

/// A handle for writing that is on its way through a socket is nobody's, and can be everybody's.
#[test]
fn a_writer_that_nobody_can_see_is_noticed_at_rest() {
    let _beside = starts_none();
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
        SocketType, sendmsg, socketpair,
    };
    use std::os::fd::AsFd;
    let here = Here::protected(40 * PAGE);
    here.rot(5 * PAGE);
    assert_eq!(here.verify().corrupt, [5]);
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    let ends = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    {
        let file = File::options().write(true).open(&here.path).unwrap();
        let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = SendAncillaryBuffer::new(&mut room);
        let handles = [file.as_fd()];
        assert!(with.push(SendAncillaryMessage::ScmRights(&handles)));
        let parts = [std::io::IoSlice::new(b"x")];
        sendmsg(&ends.0, &parts, &mut with, SendFlags::empty()).unwrap();
    }
    let found = here.verify();
    assert!(found.corrupt.is_empty() && found.undecided.len() == 1, "{found:?}");
    let error = ProtectedFile::open(&here.path, &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    drop(ends);
    assert_eq!(here.verify().corrupt, [5]);
}

#[test]
fn who_wants_to_open_it_waits_while_a_page_is_replaced() {
    let _beside = starts_none();
    let here = Here::protected(40 * PAGE);
    for page in [3, 17, 38] {
        here.rot(page * PAGE + 9);
    }
    let good = content(40 * PAGE);
    let file = ProtectedFile::open(&here.path, &options()).unwrap();
    let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (done, opened) = std::thread::scope(|scope| {
        let visitor = scope.spawn(|| {
            let mut opened = 0_u32;
            while !over.load(Ordering::Relaxed) {
                opened += u32::from(File::open(&here.path).is_ok());
                begun.store(true, Ordering::Relaxed);
            }
            opened
        });
        // On a busy machine the repair was over before the first look.
        while !begun.load(Ordering::Relaxed) && !visitor.is_finished() {
            std::thread::yield_now();
        }
        let done = file.repair(false, |_, _| true).unwrap();
        over.store(true, Ordering::Relaxed);
        (done, visitor.join().unwrap())
    });
    assert_eq!(done.repaired, [3, 17, 38]);
    assert!(opened > 0 && fs::read(&here.path).unwrap() == good);
}

#[test]
fn what_is_stopped_leaves_nothing_behind() {
    let _beside = starts_none();
    let here = Here::file(9_000 * PAGE);
    let folder = here.path.parent().unwrap().to_path_buf();
    let names = || {
        let found = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut found: Vec<_> = found.collect();
        found.sort();
        found
    };
    let alone = names();
    // At each step: before the first page, among them, when all of them are covered.
    let mut told = Vec::new();
    let whole = |stop: usize, told: &mut Vec<(u64, u64)>| {
        told.clear();
        let made = ProtectedFile::protect_in_steps(&here.path, &options(), |done, all| {
            assert!(names().len() > alone.len(), "made under another name");
            told.push((done, all));
            // Asked once; whoever goes on all the same is not told again.
            told.len() != stop + 1
        });
        made.unwrap().is_some()
    };
    let mut steps = 0;
    while !whole(steps, &mut told) {
        assert_eq!(names(), alone, "{steps}");
        steps += 1;
        assert!(steps < 100);
    }
    assert!(steps >= 3, "{steps}");
    assert!(told.is_sorted() && told.iter().all(|(done, all)| done <= all), "{told:?}");
    // When all is covered, and once more when it is durable.
    assert_eq!(told[told.len() - 2..], [(9_000, 9_000); 2]);
    // The same where it is to take its time: whoever waits is asked.
    fs::remove_file(here.side()).unwrap();
    let (began, mut calls) = (std::time::Instant::now(), 0);
    let made = ProtectedFile::protect_in_steps(&here.path, &options().pace(1), |_, _| {
        calls += 1;
        calls < 5
    });
    assert!(made.unwrap().is_none() && calls == 5);
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "it would take a year");
    ProtectedFile::protect(&here.path, &options()).unwrap().close().unwrap();
    // The same beside one that is there, which stays as it was.
    let (side, both) = (fs::read(here.side()).unwrap(), names());
    for stop in [0, 5, 141, 142] {
        let mut calls = 0;
        let made = ProtectedFile::protect_again_in_steps(&here.path, &options(), |done, all| {
            assert!(done <= all, "{done} of {all}");
            calls += 1;
            calls <= stop
        });
        assert!(made.unwrap().is_none(), "{stop}");
        assert!(fs::read(here.side()).unwrap() == side && names() == both, "{stop}");
    }
    assert!(here.verify().is_clean());
    let out = folder.join("before");
    for stop in [0, 3] {
        let file = ProtectedFile::look(&here.path, &options()).unwrap();
        let mut calls = 0;
        let made = file.before(&out, |_, _| {
            calls += 1;
            calls <= stop
        });
        assert!(made.unwrap().is_none() && names() == both, "{stop}");
    }
}

#[test]
fn an_opening_that_is_stopped_begins_again() {
    let _beside = starts_none();
    let here = Here::protected(9_000 * PAGE);
    here.change(5 * PAGE + 7);
    let written = fs::read(&here.path).unwrap();
    for stop in 0..2 {
        let mut calls = 0;
        let opened = ProtectedFile::open_in_steps(&here.path, &options(), |_, all| {
            assert_eq!(all, 9_000);
            calls += 1;
            calls <= stop
        });
        assert!(opened.unwrap().is_none(), "{stop}");
        assert!(here.verify().corrupt.is_empty());
    }
    let file = ProtectedFile::open_in_steps(&here.path, &options(), |_, _| true).unwrap().unwrap();
    let done = file.repair(false, |_, _| true).unwrap();
    assert_eq!(done.undecided.iter().map(|(page, _)| *page).collect::<Vec<_>>(), [5]);
    file.close().unwrap();
    // By force, too: what is done stays, the rest is told.
    let file = ProtectedFile::open(&here.path, &options()).unwrap();
    let done = file.repair(true, |done, all| done < all).unwrap();
    assert!(done.stopped && done.forced.is_empty(), "{done:?}");
    file.close().unwrap();
    assert!(fs::read(&here.path).unwrap() == written);
}

#[test]
fn a_copy_of_what_it_was_is_for_those_who_may_read_it() {
    let _beside = starts_none();
    use std::os::unix::fs::PermissionsExt;
    for mode in [0o600, 0o644, 0o640] {
        let here = Here::protected(300 * PAGE);
        fs::set_permissions(&here.path, fs::Permissions::from_mode(mode)).unwrap();
        let out = here.path.with_extension("before");
        let rights = |name: &std::path::Path| {
            fs::metadata(name).map(|found| found.permissions().mode() & 0o7777)
        };
        let file = ProtectedFile::look(&here.path, &options()).unwrap();
        let mut seen = 0;
        // From before the first byte on, under whatever name.
        let made = file.before(&out, |_, _| {
            for entry in fs::read_dir(here.path.parent().unwrap()).unwrap() {
                let name = entry.unwrap().path();
                if name.to_string_lossy().contains("before") {
                    assert_eq!(rights(&name).unwrap(), mode, "{}", name.display());
                    seen += 1;
                }
            }
            true
        });
        assert!(made.unwrap().is_some() && seen >= 5, "{seen}");
        assert_eq!(rights(&out).unwrap(), mode);
        assert!(fs::read(&out).unwrap() == content(300 * PAGE));
    }
}

/// Storage that was never written to, and was read: that changes no byte, and nothing is in doubt.
#[test]
fn a_file_with_storage_that_was_never_written_to_may_be_read() {
    let _beside = starts_none();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("data.bin");
    fs::write(&path, content(20 * PAGE)).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let flags = rustix::fs::FallocateFlags::empty();
    if let Err(error) = rustix::fs::fallocate(&file, flags, 0, 8 << 20) {
        eprintln!("skipped: no storage without bytes here: {error}");
        return;
    }
    drop(file);
    ProtectedFile::protect(&path, &ProtectOptions::new()).unwrap().close().unwrap();
    let bytes = fs::read(&path).unwrap();
    for look in [true, false] {
        let options = ProtectOptions::new();
        let open = if look { ProtectedFile::look } else { ProtectedFile::open };
        let file = open(&path, &options).unwrap();
        let found = file.verify(|_, _| true).unwrap();
        assert!(!found.changed && found.corrupt.is_empty());
        assert_eq!(found.undecided.len(), 0, "pages in doubt");
        file.close().unwrap();
    }
    assert!(fs::read(&path).unwrap() == bytes);
}
