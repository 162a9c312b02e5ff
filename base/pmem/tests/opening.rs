//! Everything that is not a file of ours is refused with its cause, and left as it was.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;

use common::{HERE, folders, numbered};
use holdfast_pmem::{
    Access, Cpu, Durability, Mapped, Medium, MediumKind, OpenError, Options, PAGE,
    PersistenceDomain, Protect, Protection,
};

fn refusal(path: &Path) -> OpenError {
    let refused = |access| Mapped::open(path, access, &Options::default()).unwrap_err();
    refused(Access::ReadOnly);
    refused(Access::PrivateCopy);
    refused(Access::Write)
}

#[test]
fn wrong_kinds_of_files_are_named() {
    for folder in folders() {
        let inside = |name: &str| folder.path().join(name);
        assert!(matches!(refusal(&inside("nothing")), OpenError::NotFound { .. }));
        assert!(matches!(refusal(&inside("no/such/folder")), OpenError::NotFound { .. }));
        assert!(matches!(refusal(folder.path()), OpenError::IsDirectory { .. }));
        let _listener = UnixListener::bind(inside("socket")).unwrap();
        let socket = refusal(&inside("socket"));
        assert!(matches!(socket, OpenError::NotRegular { found: "socket", .. }), "{socket}");
        let device = refusal(Path::new("/dev/null"));
        assert!(matches!(device, OpenError::NotRegular { found: "character device", .. }));
        for len in [0_usize, 1, 4095] {
            std::fs::write(inside("small"), vec![0x5a; len]).unwrap();
            let error = refusal(&inside("small"));
            assert!(matches!(error, OpenError::TooSmall { len: found, .. } if found == len as u64));
            assert_eq!(error.to_string().contains("is empty"), len == 0);
            assert_eq!(std::fs::read(inside("small")).unwrap(), vec![0x5a; len]);
        }
        // A name whose parent is a file.
        assert!(matches!(refusal(&inside("small/er")), OpenError::NotFound { .. }));
    }
}

#[test]
fn creation_refuses_what_exists_and_leaves_nothing_behind() {
    for folder in folders() {
        let path = folder.path().join("pool");
        std::fs::write(&path, "mine").unwrap();
        let refused = Mapped::create(&path, PAGE, &Options::default()).unwrap_err();
        assert!(matches!(refused, OpenError::Exists { .. }), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        let new = folder.path().join("new");
        for len in [0, 1, PAGE - 1, PAGE + 1, u64::MAX, u64::MAX - PAGE + 1, 1 << 63, 1 << 60] {
            let refused = Mapped::create(&new, len, &Options::default()).unwrap_err();
            assert!(matches!(refused, OpenError::BadLength { .. }), "{refused}");
        }
        let lost = Mapped::create(&folder.path().join("no/pool"), PAGE, &Options::default());
        assert!(matches!(lost, Err(OpenError::NotFound { .. })));
        // More than any disk holds, less than can be mapped.
        let refused = Mapped::create(&new, 30 << 40, &Options::default()).unwrap_err();
        assert!(matches!(refused, OpenError::NoSpace { free: Some(_), .. }), "{refused}");
        assert!(refused.to_string().contains("free"), "{refused}");
        if Cpu::detect().protection_keys {
            continue;
        }
        // An option the machine cannot serve, found out after the file was made.
        let keys = Options { protection: Protect::Keys, ..Options::default() };
        let refused = Mapped::create(&new, PAGE, &keys).unwrap_err();
        assert!(matches!(refused, OpenError::Unsupported { .. }), "{refused}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "only the first is left");
    }
}

#[test]
fn options_decide_and_the_status_tells() {
    for folder in folders() {
        let path = folder.path().join("pool");
        let medium = Mapped::create(&path, 4 * PAGE, &Options::default()).unwrap();
        let status = medium.status();
        assert_eq!(status.kind, medium.kind());
        let needless = match medium.kind() {
            MediumKind::File => true,
            MediumKind::Dax => status.domain == PersistenceDomain::CpuCache,
            MediumKind::Shm => false,
        };
        assert_eq!(status.flushes, !needless);
        assert!(matches!(status.protection, Protection::Alias | Protection::Keys));
        assert_eq!((status.len, status.relocated, status.failed), (4 * PAGE, 0, false));
        let text = status.to_string();
        assert!(text.contains(status.survives()) && text.contains(status.file_system), "{text}");
        drop(medium);

        let process = Options { durability: Durability::Process, ..Options::default() };
        let medium = Mapped::open(&path, Access::Write, &process).unwrap();
        assert_eq!(medium.kind(), MediumKind::Shm);
        assert_eq!(medium.status().survives(), "process crash only");
        assert!(!medium.status().flushes, "a process that dies leaves the caches as they are");
        medium.append(HERE, 0, b"stored").unwrap();
        medium.sync(HERE).unwrap();
        assert_eq!(medium.syncs(), 0, "nothing is synced");
        drop(medium);

        let open = |access| Mapped::open(&path, access, &Options::default()).unwrap();
        assert_eq!(open(Access::ReadOnly).protection(), Protection::ReadOnly);
        assert_eq!(open(Access::PrivateCopy).protection(), Protection::None);
        assert!(open(Access::PrivateCopy).status().survives().starts_with("nothing"));
    }
}

#[test]
fn a_sparse_file_gets_its_storage() {
    use std::os::unix::fs::MetadataExt;
    for folder in folders() {
        let path = folder.path().join("pool");
        std::fs::File::create(&path).unwrap().set_len(64 * PAGE).unwrap();
        let stored = || std::fs::metadata(&path).unwrap().blocks() * 512;
        let medium = Mapped::open(&path, Access::Write, &Options::default()).unwrap();
        assert!(stored() < 64 * PAGE, "opening alone allocates nothing");
        medium.fill_holes().unwrap();
        assert!(stored() >= 64 * PAGE);
    }
}

#[test]
fn readers_that_keep_the_file_still_keep_writers_out_and_each_other_in() {
    for folder in folders() {
        let (path, writer) = numbered(&folder, 4, &Options::default());
        let (still, usual) =
            (Options { keep_still: true, ..Options::default() }, Options::default());
        let open = |access, options: &Options| Mapped::open(&path, access, options);
        assert_eq!(Mapped::writer_of(&path).unwrap(), Some(Some(std::process::id())));
        let refused = open(Access::PrivateCopy, &still).unwrap_err();
        assert!(matches!(refused, OpenError::Locked { reads: false, .. }), "{refused}");
        // Without the wish it is let in, as observers are.
        open(Access::PrivateCopy, &usual).unwrap();
        open(Access::ReadOnly, &still).unwrap();
        drop(writer);
        assert_eq!(Mapped::writer_of(&path).unwrap(), None);
        let readers = [(); 2].map(|()| open(Access::PrivateCopy, &still).unwrap());
        assert_eq!(Mapped::writer_of(&path).unwrap(), None, "readers are no writers");
        let refused = open(Access::Write, &usual).unwrap_err();
        assert!(matches!(refused, OpenError::Locked { reads: true, .. }), "{refused}");
        assert!(refused.to_string().contains("is being read by this process; wait"), "{refused}");
        drop(readers);
        open(Access::Write, &usual).unwrap();
    }
}

#[test]
fn a_closed_file_is_free_although_a_child_still_has_it_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let m = Mapped::create(&path, 1 << 20, &Options::default()).unwrap();
    let (mut told, mut tell) = std::io::pipe().unwrap();
    let (mut wait, mut go) = std::io::pipe().unwrap();
    let child = std::thread::spawn(move || {
        let mut command = std::process::Command::new("true");
        // SAFETY: a write and a read are all that is done between the fork and the new program.
        unsafe {
            std::os::unix::process::CommandExt::pre_exec(&mut command, move || {
                tell.write_all(b"x")?;
                wait.read_exact(&mut [0])
            });
        }
        command.status().unwrap()
    });
    told.read_exact(&mut [0]).unwrap();
    drop(m);
    drop(Mapped::open(&path, Access::Write, &Options::default()).unwrap());
    go.write_all(b"x").unwrap();
    assert!(child.join().unwrap().success());
}
