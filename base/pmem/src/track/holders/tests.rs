//! Who has a file, asked of this process and of others.

use super::*;
use std::fs::Permissions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

fn map(file: &File, rights: ProtFlags) -> *mut core::ffi::c_void {
    let (null, len) = (core::ptr::null_mut(), PAGE as usize);
    // SAFETY: a new mapping, which nobody loads from.
    unsafe { mmap(null, len, rights, MapFlags::SHARED, file, 0).unwrap() }
}

/// Whether this is a process for one test. If not, it starts one, whose test must pass: a child
/// that another test starts has all handles of this process until it runs its program, and a
/// thread that ends while it is looked at cannot be looked into.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "HOLDERS_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let me = fs::read_link("/proc/self/exe").unwrap();
    let name = format!("track::holders::tests::{test}");
    let done = Command::new(me).args(["--exact", &name]).env(ALONE, "").output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
    false
}

#[test]
fn this_process_is_seen() {
    if !is_alone("this_process_is_seen") {
        return;
    }
    let me = std::process::id();
    assert!(processes().unwrap().contains(&me));
    let file = tempfile::NamedTempFile::new().unwrap();
    let read = File::open(file.path()).unwrap();
    let id = FileId::of(read.as_fd()).unwrap();
    assert_eq!(holds_of(me, &id, &read), Holds::Writes);
    assert_eq!(writing_handles(me, &id).unwrap().len(), 1);
    let (write, path) = file.into_parts();
    drop(write);
    assert_eq!(holds_of(me, &id, &read), Holds::Reads);
    assert!(!has_as_stream(me, &id) && !is_held(&read, &id));
    let again = File::open(format!("/proc/self/fd/{}", read.as_raw_fd())).unwrap();
    assert!(is_held(&read, &id));
    drop(again);
    drop(path);
    let other = FileId::of(tempfile::tempfile().unwrap().as_fd()).unwrap();
    assert_eq!(holds_of(me, &other, &read), Holds::No);
    assert_eq!(holds_of(u32::MAX, &id, &read), Holds::No);
}

#[test]
fn a_list_that_is_too_long_is_not_taken_for_all() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["1", "2", "30", "4", "self", "5x"] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    let path = folder.path().to_str().unwrap();
    let mut all = all_of(path, 4).unwrap();
    all.sort_unstable();
    assert_eq!(all, [1, 2, 4, 30]);
    for most in 0..4 {
        assert!(all_of(path, most).is_err(), "{most}");
        assert!(up_to(path, most).unwrap().len() > most, "{most}");
    }
    assert!(all_of("/nowhere", 4).is_err());
}

/// Handles of a thread that has its own are found, and not counted once for each thread.
#[test]
fn handles_of_single_threads_are_seen() {
    if !is_alone("handles_of_single_threads_are_seen") {
        return;
    }
    let me = std::process::id();
    let file = tempfile::NamedTempFile::new().unwrap();
    let read = File::open(file.path()).unwrap();
    let id = FileId::of(read.as_fd()).unwrap();
    let (write, path) = file.into_parts();
    drop(write);
    let (tell, told) = std::sync::mpsc::channel();
    let (end, over) = std::sync::mpsc::channel::<()>();
    let name = path.to_path_buf();
    let thread = std::thread::spawn(move || {
        // SAFETY: from now on this thread opens and closes for itself only.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
        let file = File::options().write(true).open(name).unwrap();
        tell.send(()).unwrap();
        let _ = over.recv();
        drop(file);
    });
    told.recv().unwrap();
    // Those of the thread, and one for all others.
    assert_eq!(handle_lists(me).unwrap().len(), 2);
    assert_eq!(holds_of(me, &id, &read), Holds::Writes);
    drop(end);
    thread.join().unwrap();
    assert_eq!(holds_of(me, &id, &read), Holds::Reads);
}

#[test]
fn a_mapping_that_may_be_made_writable_counts_and_one_that_may_not_does_not() {
    let me = std::process::id();
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(PAGE).unwrap();
    let read = File::open(file.path()).unwrap();
    let id = FileId::of(read.as_fd()).unwrap();
    let only = map(&read, ProtFlags::READ);
    assert_eq!(stores(me, &id), Some(Holds::Reads));
    let later = map(file.as_file(), ProtFlags::READ);
    let (write, _path) = file.into_parts();
    drop(write);
    assert_eq!(stores(me, &id), Some(Holds::Writes), "its handle is gone, its right is not");
    // SAFETY: both are this test's own.
    unsafe {
        munmap(later, PAGE as usize).unwrap();
        assert_eq!(stores(me, &id), Some(Holds::Reads));
        munmap(only, PAGE as usize).unwrap();
    }
    assert_eq!(stores(me, &id), Some(Holds::No));
}

#[test]
fn a_file_of_the_same_number_on_another_device_is_another() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(PAGE).unwrap();
    let id = FileId::of(file.as_fd()).unwrap();
    let place = map(&file, ProtFlags::READ | ProtFlags::WRITE);
    let mut seen = Vec::new();
    maps::walk(None, |vma| seen.extend(id.is_shown_by(vma).then_some(*vma))).unwrap();
    let elsewhere = Vma { device: (seen[0].device.0, seen[0].device.1 + 1), ..seen[0] };
    assert!(!id.is_shown_by(&elsewhere));
    assert!(FileId::any_device(seen[0].inode).is_shown_by(&elsewhere));
    // SAFETY: this test's own.
    unsafe { munmap(place, PAGE as usize).unwrap() };
}

#[test]
fn who_may_open_is_read_from_its_status() {
    let text = "Name:\tx\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t9 10 \n\
                CapPrm:\t0000000000000000\n";
    let rights = Rights::of(text).unwrap();
    assert_eq!(
        rights,
        Rights { users: vec![7; 4], groups: vec![8, 8, 8, 8, 9, 10], overrides: false }
    );
    assert_eq!(Rights::of("Uid:\tx\n"), None);
    let file = tempfile::NamedTempFile::new().unwrap();
    let with = |mode| {
        std::fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
        file.as_file().metadata().unwrap()
    };
    let found = with(0o664);
    let other =
        Rights { users: vec![found.uid() + 1], groups: vec![found.gid() + 1], overrides: false };
    assert!(!other.can_open(&found, false) && other.can_open(&found, true));
    let member = Rights { groups: vec![found.gid()], ..Rights::of(text).unwrap() };
    assert!(member.can_open(&found, false) && !member.can_open(&with(0o644), false));
    assert!(other.can_open(&with(0o606), false));
    let strong = Rights { overrides: true, ..Rights::of(text).unwrap() };
    assert!(strong.can_open(&with(0o600), false));
    let root = Rights { users: vec![0], ..strong };
    assert!(!root.can_open(&with(0o666), true), "trusted");
}

/// A process without a handle to look around with.
#[test]
fn what_cannot_be_listed_is_not_nobody() {
    if !is_alone("what_cannot_be_listed_is_not_nobody") {
        return;
    }
    let me = std::process::id();
    let file = tempfile::tempfile().unwrap();
    let id = FileId::of(file.as_fd()).unwrap();
    assert!(others(&file, &id, |_| true).is_none());
    let limit = libc::rlimit { rlim_cur: 32, rlim_max: 32 };
    // SAFETY: a setting of this process, which is of this test alone.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let mut taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert_eq!(others(&file, &id, |_| true), Some(Holder::Unlisted));
    assert!(processes().is_err() && handle_lists(me).is_none());
    assert_eq!((writing_handles(me, &id), stores(me, &id)), (None, None));
    assert!(!is_held(&file, &id) && has_as_stream(me, &id));
    // With a single one, and none for the threads of others.
    drop(taken.pop());
    assert!(others(&file, &id, |_| true).is_none() && handle_lists(me).is_some());
    drop(taken);
}

/// Two other users: one must not be looked into by the other, but may write to its file.
#[test]
fn who_cannot_be_looked_into_is_told_if_it_may_write() {
    const STORY: &str = "HOLDERS_STORY";
    if let Ok(path) = std::env::var(STORY) {
        let file = File::open(path).unwrap();
        let id = FileId::of(file.as_fd()).unwrap();
        let found = others(&file, &id, |_| false);
        println!("{}", found.map_or_else(|| "nobody".to_owned(), |found| found.to_string()));
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs the right to become other users");
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut other = Command::new("sleep").arg("60").uid(65_533).gid(65_533).spawn().unwrap();
    let ask = |mode| {
        std::fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
        let me = fs::read_link("/proc/self/exe").unwrap();
        let told = Command::new(me)
            .args(["--exact", "--nocapture"])
            .arg("track::holders::tests::who_cannot_be_looked_into_is_told_if_it_may_write")
            .env(STORY, file.path())
            .uid(65_534)
            .gid(65_534)
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        String::from_utf8(told.stdout).unwrap()
    };
    let (shut, open) = (ask(0o644), ask(0o666));
    other.kill().unwrap();
    other.wait().unwrap();
    let name = format!("process {} of another user", other.id());
    assert!(!shut.contains(&name), "{shut}");
    assert!(open.contains("cannot be looked into"), "{open}");
}
