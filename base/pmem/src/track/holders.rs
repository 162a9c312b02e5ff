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
//! What cannot be found out, for want of a handle to look with, is never taken for *nobody*.
//!
//! Threads may have handles of their own, and the first one may be gone, which leaves its list
//! empty: so each list that a process has is looked at.
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
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::maps::{self, Vma};
use crate::medium::PAGE;

/// Most handles of one process that are looked at; more than that is as good as not seen.
const MOST_HANDLES: usize = 1 << 20;
/// Most processes, or threads of one: the kernel gives out no more numbers.
const MOST_PROCESSES: usize = 1 << 22;
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

    fn is(&self, found: &Seen) -> bool {
        found.device == self.device && found.inode == self.inode
    }
}

/// What a file is that others have open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Number of its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// Whether it is a plain file.
    pub is_file: bool,
}

impl Seen {
    /// The file at a path, followed. Its file system is not asked: one that nobody serves any more
    /// would never answer, and numbers do not change.
    ///
    /// # Errors
    /// What `statx` says.
    pub fn at(path: &str) -> io::Result<Self> {
        let wanted = StatxFlags::INO | StatxFlags::TYPE;
        let found = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::STATX_DONT_SYNC, wanted)?;
        Ok(Self {
            device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            is_file: FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile,
        })
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
    /// Processes could not be listed.
    Unlisted,
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
            Self::Unlisted => f.write_str(
                "processes cannot be listed, so anybody may have it open for writing; this \
                 process may have too many files open",
            ),
        }
    }
}

/// Numbers of all processes that can be seen.
///
/// # Errors
/// What the system says: then nobody knows who is there.
pub fn processes() -> io::Result<Vec<u32>> {
    all_of("/proc", MOST_PROCESSES)
}

/// The numbers among the names in a folder, all of them.
///
/// # Errors
/// What the system says; there are more than `most`.
fn all_of(path: &str, most: usize) -> io::Result<Vec<u32>> {
    let all = up_to(path, most)?;
    // Whoever is not among those that were listed must not be taken for nobody.
    if all.len() > most {
        return Err(io::Error::other(format!("{path} has more than {most} names")));
    }
    Ok(all)
}

/// The numbers among the names in a folder of a process.
///
/// # Errors
/// What the system says; there are more than can be looked at. That the folder's process or thread
/// ended meanwhile is none.
pub fn numbers(path: &str) -> io::Result<Vec<u32>> {
    all_of(path, MOST_HANDLES)
}

/// The numbers among the names in a folder; more than `most` if there are more than that.
fn up_to(path: &str, most: usize) -> io::Result<Vec<u32>> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let mut all = Vec::new();
    for entry in fs::read_dir(path)? {
        match entry {
            Ok(entry) => all.extend(number(entry)),
            Err(error) if is_gone(&error) => break,
            Err(error) => return Err(error),
        }
        if all.len() > most {
            break;
        }
    }
    Ok(all)
}

/// Whether a process or thread ended while it was asked about.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Somebody who holds a file so that it can change it, or may: of all processes but this one and
/// those that are `known`.
#[must_use]
pub fn others(file: &File, id: &FileId, known: impl Fn(u32) -> bool) -> Option<Holder> {
    let me = std::process::id();
    let mut hidden = None;
    let Ok(all) = processes() else { return Some(Holder::Unlisted) };
    for process in all {
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

/// Somebody of those who holds a file so that it can change it, or may, and stays. A child that
/// this process forks for another program has all its handles until it runs that: it is waited
/// for, for a moment.
#[must_use]
pub fn others_to_stay(file: &File, id: &FileId, known: impl Fn(u32) -> bool) -> Option<Holder> {
    let leaves = |found| matches!(found, Some(Holder::Writes(process)) if is_child(process));
    let mut found = others(file, id, &known);
    for _ in 0..TRIES {
        if !leaves(found) {
            break;
        }
        std::thread::sleep(NAP);
        found = others(file, id, &known);
        if found.is_none() {
            // It is heard that a handle was closed a moment after that can be seen.
            std::thread::sleep(NAP);
        }
    }
    found
}

/// How often and how long a child is waited for.
const TRIES: u32 = 50;
const NAP: Duration = Duration::from_millis(2);

/// Whether this process is the parent of another one.
#[must_use]
pub fn is_child(process: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.and_then(|line| line.trim().parse().ok()) == Some(std::process::id())
}

/// Whether any process is seen to have a file open or mapped, for whatever: of all that may be
/// looked into, this one but for one handle of its own.
#[must_use]
pub fn is_held(file: &File, id: &FileId) -> bool {
    let me = std::process::id();
    let own = numbers("/proc/self/fd").unwrap_or_default();
    let own = own.into_iter().filter(|fd| is_handle("/proc/self", *fd, id)).count();
    let mapped = matches!(stores(me, id), Some(Holds::Reads | Holds::Writes));
    let other = |process: &u32| {
        *process != me && matches!(holds_of(*process, id, file), Holds::Reads | Holds::Writes)
    };
    own > 1 || mapped || processes().is_ok_and(|all| all.iter().any(other))
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

/// Whether a process can change a file by one of its standard streams, or may be able to.
#[must_use]
pub fn has_as_stream(process: u32, id: &FileId) -> bool {
    let is_one = |List { folder, .. }: &List| {
        (0..3).any(|fd| may_be_handle(folder, fd, id) && access(folder, fd) != Some(Access::Reads))
    };
    lists(process).is_none_or(|lists| lists.iter().any(is_one))
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

/// Handles of some threads of a process.
#[derive(Debug)]
struct List {
    thread: u32,
    /// Where it is found.
    folder: String,
    /// Whether there are other threads that have it.
    shared: bool,
}

/// Folders of `/proc` that have the handles of a process: each has a different list in its `fd`.
/// `None` if its threads cannot be listed.
#[must_use]
pub fn handle_lists(process: u32) -> Option<Vec<String>> {
    Some(lists(process)?.into_iter().map(|list| list.folder).collect())
}

/// The first is that of the first thread, dead or alive. `None` if there may be others.
fn lists(process: u32) -> Option<Vec<List>> {
    let first = List { thread: process, folder: format!("/proc/{process}"), shared: false };
    let mut lists = vec![first];
    let mut tells = true;
    for thread in other_threads(process).ok()? {
        let mut found = None;
        for list in lists.iter_mut().take_while(|_| tells) {
            match have_same_handles(list.thread, thread) {
                Some(true) => found = Some(list),
                Some(false) => continue,
                // Nobody tells: so all are looked at.
                None => tells = false,
            }
            break;
        }
        match found {
            Some(list) => list.shared = true,
            None => {
                let folder = format!("/proc/{process}/task/{thread}");
                lists.push(List { thread, folder, shared: false });
            }
        }
    }
    Some(lists)
}

/// The threads of a process but its first; none if it is gone.
pub(super) fn other_threads(process: u32) -> io::Result<Vec<u32>> {
    let folder = format!("/proc/{process}/task");
    // It has a link for each thread, besides those that all folders have: most have just one, and
    // all processes are asked while programs stand still.
    if fs::metadata(&folder).is_ok_and(|found| found.nlink() == 3) {
        return Ok(Vec::new());
    }
    let mut all = match all_of(&folder, MOST_PROCESSES) {
        Err(error) if is_gone(&error) => Vec::new(),
        found => found?,
    };
    all.retain(|thread| *thread != process);
    Ok(all)
}

/// Whether two threads have the same handles: what one opens, the other has. `None` where the
/// kernel does not tell, or one is gone.
fn have_same_handles(one: u32, other: u32) -> Option<bool> {
    const HANDLES: libc::c_long = 2;
    // SAFETY: compares what two threads have.
    match unsafe { libc::syscall(libc::SYS_kcmp, one, other, HANDLES, 0, 0) } {
        0 => Some(true),
        1..=3 => Some(false),
        _ => None,
    }
}

/// Handles for writing, and whether there is one for reading. `None`: they may not be looked at.
fn handles(process: u32, id: &FileId) -> Option<(BTreeSet<u32>, bool)> {
    for _ in 0..LOOKS {
        let (mut writes, mut reads) = (BTreeSet::new(), false);
        let whole = lists(process)?.iter().try_fold(true, |whole, list| {
            Some(whole & look_into(list, id, &mut writes, &mut reads)?)
        })?;
        if whole {
            return Some((writes, reads));
        }
    }
    // Threads come and go too quickly, or theirs cannot be seen.
    None
}

/// Times that lists are looked at whose threads end meanwhile.
const LOOKS: u32 = 3;

/// Looks into one list. False if its thread ended meanwhile, so that others may have more; `None`
/// if it may not be looked at.
fn look_into(
    list: &List,
    id: &FileId,
    writes: &mut BTreeSet<u32>,
    reads: &mut bool,
) -> Option<bool> {
    let all = match numbers(&format!("{}/fd", list.folder)) {
        Ok(all) => all,
        Err(_) if fs::metadata(&list.folder).is_err() => return Some(!list.shared),
        _ => return None,
    };
    let whole = !(list.shared && all.is_empty());
    for fd in all {
        match Seen::at(&format!("{}/fd/{fd}", list.folder)) {
            Ok(found) if id.is(&found) => {}
            // A list that may be read says nothing if nobody may follow it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return None,
            _ => continue,
        }
        match access(&list.folder, fd) {
            Some(Access::Nothing) => {}
            Some(Access::Reads) => *reads = true,
            // One that cannot be asked might be anything.
            Some(Access::Writes) | None => {
                writes.insert(fd);
            }
        }
    }
    Some(whole)
}

fn is_handle(folder: &str, fd: u32, id: &FileId) -> bool {
    Seen::at(&format!("{folder}/fd/{fd}")).is_ok_and(|found| id.is(&found))
}

/// The same, or nobody can tell.
fn may_be_handle(folder: &str, fd: u32, id: &FileId) -> bool {
    match Seen::at(&format!("{folder}/fd/{fd}")) {
        Ok(found) => id.is(&found),
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

/// What a descriptor was opened for.
fn access(folder: &str, fd: u32) -> Option<Access> {
    let text = fs::read_to_string(format!("{folder}/fdinfo/{fd}")).ok()?;
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
mod tests;
