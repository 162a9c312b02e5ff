//! Who has a file open or mapped so that it can change it, as far as `/proc` tells.
//!
//! | a process | answer |
//! |---|---|
//! | has a handle for writing | writes |
//! | maps it shared and may store, now or after an `mprotect` | writes |
//! | has it open, or mapped, for reading | reads |
//! | may not be looked into, and its user may open the file for writing | cannot see |
//! | may not be looked into, and could not open it; or is root's | no |
//!
//! Root is trusted: it can hide whatever it likes. Not seen either: a handle on its way through a
//! socket, or kept by a ring of the kernel's and nowhere else; a handle that somebody was given who
//! could not have opened it; processes of other process namespaces.

use core::fmt;
use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::maps::{self, Vma};
use crate::medium::PAGE;

/// Most handles of one process that are looked at; more than that is as good as not seen.
const MOST_HANDLES: usize = 1 << 20;
/// Capability to open what its mode forbids.
const OVERRIDES: u64 = 1 << 1;

/// Which file: by the numbers of `stat`, and by those that lists of mappings show. On some file
/// systems they differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    /// Number of its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// Device and inode as mapped; `None` where it cannot be mapped to find out, and then any
    /// mapping of that inode is taken for one of the file.
    shown: Option<((u32, u32), u64)>,
}

impl FileId {
    /// The file behind an open descriptor.
    ///
    /// # Errors
    /// What `fstat` says.
    pub fn of(file: BorrowedFd<'_>) -> io::Result<Self> {
        let found = rustix::fs::fstat(file)?;
        Ok(Self { device: found.st_dev, inode: found.st_ino, shown: shown(file) })
    }

    /// One of which only the inode is known, on any device.
    #[must_use]
    pub fn any_device(inode: u64) -> Self {
        Self { device: 0, inode, shown: None }
    }

    /// Whether a mapping is one of this file.
    #[must_use]
    pub fn is_shown_by(&self, vma: &Vma) -> bool {
        match self.shown {
            Some((device, inode)) => vma.inode == inode && vma.device == device,
            None => vma.inode == self.inode,
        }
    }

    fn is(&self, found: &Metadata) -> bool {
        found.dev() == self.device && found.ino() == self.inode
    }
}

/// How a mapping of the file is listed: found by making one.
fn shown(file: BorrowedFd<'_>) -> Option<((u32, u32), u64)> {
    let len = PAGE as usize;
    // SAFETY: a new mapping wherever the kernel likes, which nobody ever loads from.
    let base = unsafe {
        mmap(core::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0).ok()?
    };
    let mut found = None;
    let listed = maps::walk(None, |vma| {
        // It may have been joined to another mapping of the file.
        if (vma.start..vma.end).contains(&(base as usize)) {
            found = Some((vma.device, vma.inode));
        }
    });
    // SAFETY: the mapping just made, which nobody else knows.
    let _ = unsafe { munmap(base, len) };
    listed.ok().and(found)
}

/// How a process holds a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Not at all.
    No,
    /// For reading.
    Reads,
    /// So that it can change it.
    Writes,
    /// It may not be looked into, and its user may write to the file.
    CannotSee,
}

/// Somebody who may change a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// This process holds it for writing.
    Writes(u32),
    /// This process may do so: it cannot be looked into.
    Hidden(u32),
    /// The system hides processes from this user, and others may write to the file.
    Others,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Writes(id) => write!(f, "process {id} has it open for writing"),
            Self::Hidden(id) => write!(
                f,
                "process {id} of another user may have it open for writing, and cannot be \
                 looked into"
            ),
            Self::Others => f.write_str(
                "others may write to it, and this system hides their processes from this user",
            ),
        }
    }
}

/// Numbers of all processes that can be seen.
#[must_use]
pub fn processes() -> Vec<u32> {
    numbers("/proc").unwrap_or_default()
}

/// The numbers among the names in a folder.
///
/// # Errors
/// What the system says.
pub fn numbers(path: &str) -> io::Result<Vec<u32>> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    Ok(fs::read_dir(path)?.flatten().filter_map(number).take(MOST_HANDLES + 1).collect())
}

/// Somebody who holds a file so that it can change it, or may: of all processes but this one and
/// those that are `known`.
#[must_use]
pub fn others(file: &File, id: &FileId, known: impl Fn(u32) -> bool) -> Option<Holder> {
    let me = std::process::id();
    let mut hidden = None;
    for process in processes() {
        if process == me || known(process) {
            continue;
        }
        match holds_of(process, id, file) {
            Holds::Writes => return Some(Holder::Writes(process)),
            Holds::CannotSee => hidden = Some(Holder::Hidden(process)),
            Holds::No | Holds::Reads => {}
        }
    }
    // The first process of all is root's: who cannot see it does not see those of others.
    let hides = fs::metadata("/proc/1").is_err();
    hidden.or_else(|| (hides && is_open_to_others(file)).then_some(Holder::Others))
}

/// Whether any process has a file open or mapped, for whatever: of all that may be looked into,
/// this one but for one handle of its own.
#[must_use]
pub fn is_held(file: &File, id: &FileId) -> bool {
    let me = std::process::id();
    let own = numbers("/proc/self/fd").unwrap_or_default();
    let own = own.into_iter().filter(|fd| is_handle(me, *fd, id)).count();
    let mapped = stores(me, id) != Some(Holds::No);
    let other = |process: &u32| {
        *process != me && matches!(holds_of(*process, id, file), Holds::Reads | Holds::Writes)
    };
    own > 1 || mapped || processes().iter().any(other)
}

/// How a process holds a file. Handles first: who gives one up for a mapping has made that before.
#[must_use]
pub fn holds_of(process: u32, id: &FileId, file: &File) -> Holds {
    let Some((writes, reads)) = handles(process, id) else {
        return cannot_see(process, file);
    };
    if !writes.is_empty() {
        return Holds::Writes;
    }
    match stores(process, id) {
        Some(Holds::No) if reads => Holds::Reads,
        Some(found) => found,
        None => cannot_see(process, file),
    }
}

/// Handles of a process by which it can write to a file; `None` if they cannot be looked at.
#[must_use]
pub fn writing_handles(process: u32, id: &FileId) -> Option<BTreeSet<u32>> {
    handles(process, id).map(|(writes, _)| writes)
}

/// Whether a process can change a file by one of its standard streams.
#[must_use]
pub fn has_as_stream(process: u32, id: &FileId) -> bool {
    (0..3).any(|fd| is_handle(process, fd, id) && access(process, fd) != Some(Access::Reads))
}

/// How the mappings of a process hold a file; `None` if they cannot be looked at.
#[must_use]
pub fn stores(process: u32, id: &FileId) -> Option<Holds> {
    let (mut held, mut asked) = (Holds::No, false);
    let listed = maps::walk(Some(process), |vma| {
        if vma.shared && id.is_shown_by(vma) {
            asked |= !vma.writable;
            held = if vma.writable { Holds::Writes } else { held };
        }
    });
    match listed {
        Err(_) if is_there(process) => return None,
        Err(_) => return Some(Holds::No),
        Ok(()) => {}
    }
    if held == Holds::Writes || !asked {
        return Some(held);
    }
    // Only who maps it is asked this, which takes a walk through its page tables.
    match maps::may_write(process, |vma| vma.shared && id.is_shown_by(vma)) {
        Ok(false) => Some(Holds::Reads),
        // What cannot be told might be.
        Ok(true) | Err(_) => Some(Holds::Writes),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Nothing,
    Reads,
    Writes,
}

/// Handles for writing, and whether there is one for reading. `None`: they may not be looked at.
fn handles(process: u32, id: &FileId) -> Option<(BTreeSet<u32>, bool)> {
    let (mut writes, mut reads) = (BTreeSet::new(), false);
    let all = match numbers(&format!("/proc/{process}/fd")) {
        Ok(all) if all.len() <= MOST_HANDLES => all,
        Err(_) if !is_there(process) => return Some((writes, reads)),
        _ => return None,
    };
    for fd in all.into_iter().filter(|fd| is_handle(process, *fd, id)) {
        match access(process, fd) {
            Some(Access::Nothing) => {}
            Some(Access::Reads) => reads = true,
            // One that cannot be asked might be anything.
            Some(Access::Writes) | None => {
                writes.insert(fd);
            }
        }
    }
    Some((writes, reads))
}

fn is_handle(process: u32, fd: u32, id: &FileId) -> bool {
    fs::metadata(format!("/proc/{process}/fd/{fd}")).is_ok_and(|found| id.is(&found))
}

/// What a descriptor was opened for.
fn access(process: u32, fd: u32) -> Option<Access> {
    let text = fs::read_to_string(format!("/proc/{process}/fdinfo/{fd}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    let flags = i32::from_str_radix(line.trim(), 8).ok()?;
    Some(match flags {
        _ if flags & libc::O_PATH != 0 => Access::Nothing,
        _ if flags & libc::O_ACCMODE == libc::O_RDONLY => Access::Reads,
        _ => Access::Writes,
    })
}

fn is_there(process: u32) -> bool {
    fs::metadata(format!("/proc/{process}")).is_ok()
}

/// Whether a process that cannot be looked into may have opened a file for writing.
fn cannot_see(process: u32, file: &File) -> Holds {
    let Ok(found) = file.metadata() else { return Holds::CannotSee };
    let Ok(text) = fs::read_to_string(format!("/proc/{process}/status")) else {
        return if is_there(process) { Holds::CannotSee } else { Holds::No };
    };
    let can = Rights::of(&text).is_none_or(|rights| rights.can_open(&found, has_list(file)));
    if can { Holds::CannotSee } else { Holds::No }
}

/// As whom a process opens files.
#[derive(Debug, PartialEq, Eq)]
struct Rights {
    users: Vec<u32>,
    groups: Vec<u32>,
    overrides: bool,
}

impl Rights {
    fn of(status: &str) -> Option<Self> {
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let all = |line: &str| -> Option<Vec<u32>> {
            line.split_ascii_whitespace().map(|word| word.parse().ok()).collect()
        };
        let users = all(line("Uid:")?)?;
        let groups: Vec<u32> = [all(line("Gid:")?)?, all(line("Groups:").unwrap_or(""))?]
            .into_iter()
            .flatten()
            .collect();
        let rights = u64::from_str_radix(line("CapPrm:")?.trim(), 16).ok()?;
        Some(Self { users, groups, overrides: rights & OVERRIDES != 0 })
    }

    /// Whether it may open a file for writing, or might have: `list` says that the mode is not all
    /// there is to it.
    fn can_open(&self, found: &Metadata, list: bool) -> bool {
        if self.users.contains(&0) {
            // Root is trusted.
            return false;
        }
        let mode = found.mode();
        self.overrides
            || list
            || self.users.contains(&found.uid())
            || mode & 0o002 != 0
            || mode & 0o020 != 0 && self.groups.contains(&found.gid())
    }
}

/// Whether a list of rights says more than the mode.
fn has_list(file: &File) -> bool {
    let mut nothing: [u8; 0] = [];
    rustix::fs::fgetxattr(file.as_fd(), "system.posix_acl_access", &mut nothing)
        .is_ok_and(|len| len > 0)
}

/// Whether anybody but this user and root may write to a file.
fn is_open_to_others(file: &File) -> bool {
    let me = rustix::process::geteuid().as_raw();
    file.metadata().map_or(true, |found| {
        found.mode() & 0o022 != 0 || ![0, me].contains(&found.uid()) || has_list(file)
    })
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn this_process_is_seen() {
        let me = std::process::id();
        assert!(processes().contains(&me));
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
        let other = Rights {
            users: vec![found.uid() + 1],
            groups: vec![found.gid() + 1],
            overrides: false,
        };
        assert!(!other.can_open(&found, false) && other.can_open(&found, true));
        let member = Rights { groups: vec![found.gid()], ..Rights::of(text).unwrap() };
        assert!(member.can_open(&found, false) && !member.can_open(&with(0o644), false));
        assert!(other.can_open(&with(0o606), false));
        let strong = Rights { overrides: true, ..Rights::of(text).unwrap() };
        assert!(strong.can_open(&with(0o600), false));
        let root = Rights { users: vec![0], ..strong };
        assert!(!root.can_open(&with(0o666), true), "trusted");
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
}
