//! Names are given to what is whole, never taken from others, and nothing is left behind.

use super::*;
use std::os::unix::fs::PermissionsExt;

struct Here {
    _folder: tempfile::TempDir,
    to: PathBuf,
    at: PathBuf,
}

impl Here {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("a.holdfast");
        let at = folder.path().join("a.holdfast.making");
        Self { _folder: folder, to, at }
    }

    fn begin(&self) -> Result<Making, OpenError> {
        Making::begin(&self.to)
    }
}

const LEN: u64 = 128 << 10;

#[test]
fn what_was_cut_short_is_made_anew_and_what_is_whole_has_its_name() {
    let here = Here::new();
    let making = here.begin().unwrap();
    assert!(here.at.exists() && !here.to.exists());
    // Before it is mapped, and after.
    assert!(matches!(here.begin(), Err(OpenError::Locked { .. })), "somebody is at it");
    let side = making.map(LEN, Room::Taken, &Options::default()).unwrap();
    assert!(matches!(here.begin(), Err(OpenError::Locked { .. })), "somebody is at it");
    drop((making, side));
    assert!(!here.at.exists() && !here.to.exists(), "given up");
    for left in [&b""[..], &[7; 9000]] {
        // As if somebody had been killed.
        fs::write(&here.at, left).unwrap();
        let making = here.begin().unwrap();
        let mapped = making.map(LEN, Room::Sparse, &Options::default()).unwrap();
        assert_eq!(fs::read(&here.at).unwrap(), [0; LEN as usize]);
        drop((making, mapped));
    }
    here.begin().unwrap().keep(false).unwrap();
    assert!(!here.at.exists() && here.to.exists());
    let mut other = here.begin().unwrap();
    assert!(matches!(other.keep(false), Err(OpenError::Exists { .. })));
    drop(other);
    assert!(!here.at.exists() && here.to.exists());
}

#[test]
fn a_name_is_never_taken_from_another_unless_asked_for() {
    for supported in [false, true] {
        let here = Here::new();
        let rename = |at: &Path, to: &Path| match supported {
            true => rustix::fs::renameat_with(CWD, at, CWD, to, RenameFlags::NOREPLACE),
            false => Err(Errno::INVAL),
        };
        let with = |bytes: &[u8]| {
            let making = here.begin().unwrap();
            std::io::Write::write_all(&mut making.file(), bytes).unwrap();
            making
        };
        with(b"first").name(false, rename).unwrap();
        assert_eq!(fs::read(&here.to).unwrap(), b"first", "{supported}");
        let refused = with(b"second").name(false, rename).unwrap_err();
        assert!(matches!(refused, OpenError::Exists { .. }), "{supported}: {refused}");
        assert_eq!(fs::read(&here.to).unwrap(), b"first", "{supported}");
        assert!(!here.at.exists());
        with(b"third").name(true, rename).unwrap();
        assert_eq!(fs::read(&here.to).unwrap(), b"third", "{supported}");
        assert!(!here.at.exists());
    }
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let here = Here::new();
    fs::create_dir(&here.at).unwrap();
    assert!(matches!(here.begin(), Err(OpenError::Exists { .. })));
    fs::remove_dir(&here.at).unwrap();
    // A build that knows no such lock is at it.
    let mapped = Mapped::create(&here.at, LEN, &Options::default()).unwrap();
    assert!(matches!(here.begin(), Err(OpenError::Locked { .. })));
    drop(mapped);
    // A name that somebody may have given to anything.
    let (other, whole) = (here.to.with_extension("x.making"), here.to.with_extension("x"));
    fs::write(&other, b"a program's own").unwrap();
    Making::begin(&whole).unwrap().keep(false).unwrap();
    assert_eq!((fs::read(&other).unwrap(), whole.exists()), (b"a program's own".to_vec(), true));
    let making = here.begin().unwrap();
    // Somebody removed it and put another one there.
    fs::remove_file(&here.at).unwrap();
    fs::write(&here.at, b"other").unwrap();
    drop(making);
    assert_eq!(fs::read(&here.at).unwrap(), b"other");
}

#[test]
fn a_copy_is_readable_by_nobody_who_may_not_read_the_original() {
    for mode in [0o600, 0o644, 0o640, 0o400, 0o4755] {
        let here = Here::new();
        let original = tempfile::tempfile().unwrap();
        original.set_permissions(fs::Permissions::from_mode(mode)).unwrap();
        let making = here.begin().unwrap();
        assert_eq!(making.file().metadata().unwrap().mode() & 0o7777, 0o600, "until it is told");
        making.like(&original).unwrap();
        let copy = making.file().metadata().unwrap();
        assert_eq!(copy.mode() & 0o7777, mode & 0o777, "{mode:o}");
        assert_eq!((copy.uid(), copy.len()), (original.metadata().unwrap().uid(), 0));
    }
}

#[test]
fn a_copy_has_the_owner_of_the_original_or_fewer_rights() {
    let theirs = |copy: &File| {
        let copy = copy.metadata().unwrap();
        (copy.uid(), copy.gid(), copy.mode() & 0o7777)
    };
    let original = tempfile::tempfile().unwrap();
    let (uid, gid) = (Uid::from_raw(12345), Gid::from_raw(23456));
    let given = rustix::fs::fchown(&original, Some(uid), Some(gid));
    original.set_permissions(fs::Permissions::from_mode(0o604)).unwrap_or_default();
    if given.is_ok() {
        let here = Here::new();
        let making = here.begin().unwrap();
        making.like(&original).unwrap();
        assert_eq!(theirs(making.file()), (12345, 23456, 0o604));
    } else {
        println!("  skipped: only root gives files away");
    }
    // A list of rights: what the mode shows for the group is what the list grants at the most.
    let original = tempfile::tempfile().unwrap();
    let entries = [(1_u16, 6_u16, u32::MAX), (2, 6, 1), (4, 0, u32::MAX), (16, 6, u32::MAX)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, who) in entries.into_iter().chain([(32, 0, u32::MAX)]) {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(who.to_le_bytes());
    }
    let none = rustix::fs::XattrFlags::empty();
    if rustix::fs::fsetxattr(&original, ACCESS_LIST, &list, none).is_err() {
        println!("  skipped: this file system keeps no lists of rights");
        return;
    }
    assert_eq!(original.metadata().unwrap().mode() & 0o777, 0o660);
    let here = Here::new();
    let making = here.begin().unwrap();
    making.like(&original).unwrap();
    assert_eq!(making.file().metadata().unwrap().mode() & 0o777, 0o600);
}

#[test]
fn a_link_in_its_place_is_neither_mapped_nor_named() {
    let (none, whole) = (Options::default(), b"somebody else's");
    for named in [false, true] {
        let here = Here::new();
        let victim = here.to.with_extension("victim");
        fs::write(&victim, vec![b'v'; LEN as usize]).unwrap();
        let mut making = here.begin().unwrap();
        let swap = || {
            fs::rename(&here.at, here.to.with_extension("away")).unwrap();
            std::os::unix::fs::symlink(&victim, &here.at).unwrap();
        };
        if named {
            let mapped = making.map(LEN, Room::Sparse, &none).unwrap();
            crate::Medium::put(&mapped, crate::Site::new("pmem.test"), 0, whole).unwrap();
            swap();
            assert!(making.keep(false).is_err() && making.keep(true).is_err());
            assert!(!making.is_kept() && here.to.symlink_metadata().is_err());
        } else {
            swap();
            assert!(making.map(LEN, Room::Sparse, &none).is_err());
        }
        drop(making);
        assert_eq!(fs::read(&victim).unwrap(), vec![b'v'; LEN as usize], "{named}");
        assert!(here.at.symlink_metadata().is_ok(), "what is not ours stays");
    }
}

#[test]
fn names_as_long_as_can_be_are_made() {
    let here = Here::new();
    for len in [200, 239, 240, 246, 255] {
        let to = here.to.with_file_name("n".repeat(len));
        for to in [to.clone(), with(&to, OURS)] {
            if to.file_name().unwrap().len() > NAME_MAX {
                continue;
            }
            let mut making = Making::begin(&to).unwrap();
            assert!(matches!(Making::begin(&to), Err(OpenError::Locked { .. })));
            making.keep(false).unwrap();
            assert!(to.exists() && !Making::name_of(&to).exists(), "{len}");
            fs::remove_file(&to).unwrap();
        }
    }
    assert_eq!(Making::name_of(&here.to), here.at);
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[test]
fn what_is_put_aside_comes_back_or_goes() {
    let here = Here::new();
    fs::write(&here.to, b"whole").unwrap();
    let aside = PutAside::begin(&here.to).unwrap();
    assert!(here.at.exists() && !here.to.exists());
    assert!(matches!(here.begin(), Err(OpenError::Locked { .. })), "somebody is at it");
    aside.back().unwrap();
    assert_eq!(fs::read(&here.to).unwrap(), b"whole");
    // Killed in between: whoever makes the next one clears it away.
    drop(PutAside::begin(&here.to).unwrap());
    assert!(here.at.exists() && !here.to.exists());
    drop(here.begin().unwrap());
    assert!(!here.at.exists());
    // A link to it elsewhere goes itself.
    let target = here.to.with_extension("elsewhere");
    fs::write(&target, b"whole").unwrap();
    std::os::unix::fs::symlink(&target, &here.to).unwrap();
    PutAside::begin(&here.to).unwrap().remove();
    assert!(here.at.symlink_metadata().is_err() && here.to.symlink_metadata().is_err());
    assert!(target.exists());
    // What was left there before is cleared away; what somebody is making is not.
    fs::write(&here.to, b"whole").unwrap();
    fs::write(&here.at, b"left").unwrap();
    PutAside::begin(&here.to).unwrap().remove();
    assert!(!here.at.exists() && !here.to.exists());
    fs::write(&here.to, b"whole").unwrap();
    let making = here.begin().unwrap();
    assert!(matches!(PutAside::begin(&here.to), Err(OpenError::Locked { .. })));
    drop(making);
    // Nor is one put aside that somebody has just made.
    let held = File::open(&here.to).unwrap();
    rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(matches!(PutAside::begin(&here.to), Err(OpenError::Locked { .. })));
    assert_eq!(fs::read(&here.to).unwrap(), b"whole");
    drop(held);
    // Another one that has got either name meanwhile keeps it.
    let aside = PutAside::begin(&here.to).unwrap();
    fs::write(&here.to, b"other").unwrap();
    assert!(aside.back().is_err());
    assert_eq!(fs::read(&here.to).unwrap(), b"other");
    let aside = PutAside::begin(&here.to).unwrap();
    fs::remove_file(&here.at).unwrap();
    fs::write(&here.at, b"third").unwrap();
    aside.remove();
    assert_eq!(fs::read(&here.at).unwrap(), b"third");
}

#[test]
fn an_error_after_the_name_takes_nothing_away() {
    let unsynced = |here: &Here| {
        let mut options = File::options();
        // Of such a handle the system syncs nothing.
        options.read(true).custom_flags(libc::O_PATH).open(here.to.parent().unwrap()).unwrap()
    };
    let here = Here::new();
    let mut making = here.begin().unwrap();
    making.folder = unsynced(&here);
    assert!(making.keep(false).is_err() && making.is_kept());
    drop(making);
    assert!(here.to.exists() && !here.at.exists());
}
