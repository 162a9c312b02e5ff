//! What `/proc` says of guarded processes: their family, and whether they stand.
//!
//! A process that is gone has nothing and does nothing. One that cannot be asked, for want of a
//! right or of a handle to ask with, may have anything and do anything.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use holdfast_pmem::track::holders::{self, Seen, processes};
use holdfast_pmem::track::maps;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// The numbers among the names in a folder of a process, none of one that is gone; `None` if they
/// cannot be listed.
fn numbers(path: &str) -> Option<Vec<u32>> {
    match holders::numbers(path) {
        Err(error) if is_gone(&error) => Some(Vec::new()),
        found => found.ok(),
    }
}

/// Whether what was asked about is not there any more.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// State and parent of a process or thread, from its `stat`.
fn stat(path: &str) -> io::Result<(u8, u32)> {
    // All processes are asked while programs stand still, so with one call. The rest may be cut.
    let mut bytes = [0; 1024];
    let len = std::fs::File::open(path)?.read(&mut bytes)?;
    let found = bytes.get(..len).and_then(state_and_parent);
    found.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn state_and_parent(text: &[u8]) -> Option<(u8, u32)> {
    // The name is in parentheses and may hold anything.
    let behind = text.iter().rposition(|byte| *byte == b')')?;
    let rest = core::str::from_utf8(text.get(behind + 1..)?).ok()?;
    let mut words = rest.split_ascii_whitespace();
    let state = *words.next()?.as_bytes().first()?;
    Some((state, words.next()?.parse().ok()?))
}

/// The parent of a process.
pub(crate) fn parent(process: u32) -> Option<u32> {
    stat(&format!("/proc/{process}/stat")).ok().map(|(_, parent)| parent)
}

/// How far up a process's ancestors are looked at.
const DEEPEST: usize = 256;

/// A process, its parent, and so on.
pub(crate) fn line(process: u32) -> impl Iterator<Item = u32> {
    core::iter::successors(Some(process), |id| parent(*id)).take(DEEPEST)
}

/// The number of the processor on which a process ran last.
pub(crate) fn processor(process: u32) -> Option<usize> {
    let text = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    let behind = text.iter().rposition(|byte| *byte == b')')?;
    let rest = core::str::from_utf8(text.get(behind + 1..)?).ok()?;
    // The state is the third field, the processor the 39th.
    rest.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// Whether a process numbers its threads otherwise than we do: it lives in another world of process
/// numbers (a PID namespace). What cannot be had is taken for such a one.
pub(crate) fn has_other_numbers(process: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    innermost(&text) != Some(process)
}

/// The number of a process as it sees itself.
fn innermost(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

/// How many threads a process has; `None` if it is gone, or cannot be asked.
pub(crate) fn threads(process: u32) -> Option<usize> {
    let threads = numbers(&format!("/proc/{process}/task"))?;
    (!threads.is_empty()).then_some(threads.len())
}

/// Whether every thread of a process stands still, or is dead.
pub(crate) fn stands(process: u32) -> bool {
    all_are(process, b"TtZXx")
}

/// Whether every thread of a process was stopped by a signal, or is dead: no debugger holds it.
pub(crate) fn is_stopped(process: u32) -> bool {
    all_are(process, b"TZXx")
}

/// Whether every thread of a process is dead.
pub(crate) fn is_dead(process: u32) -> bool {
    all_are(process, b"ZXx")
}

/// Whether a single thread is dead, for certain. One whose end nobody has asked about yet is.
pub(crate) fn is_over(thread: u32) -> bool {
    let number = i32::try_from(thread).ok().and_then(Pid::from_raw);
    let gone = number.is_none_or(|number| test_kill_process(number) == Err(Errno::SRCH));
    let state = || stat(&format!("/proc/{thread}/stat")).map(|(state, _)| state);
    gone || state().is_ok_and(|state| b"ZXx".contains(&state))
}

/// Whether all threads of a process are known to be in one of these states, or gone.
fn all_are(process: u32, states: &[u8]) -> bool {
    let folder = format!("/proc/{process}/task");
    let is_in = |thread: u32| match stat(&format!("{folder}/{thread}/stat")) {
        Ok((state, _)) => states.contains(&state),
        Err(error) => is_gone(&error),
    };
    numbers(&folder).is_some_and(|threads| threads.into_iter().all(is_in))
}

/// Calls by which the C library writes to a file that is open.
const WRITES: [i64; 5] =
    [libc::SYS_write, libc::SYS_writev, libc::SYS_pwrite64, libc::SYS_pwritev, libc::SYS_pwritev2];

/// Whether a thread of a process may be in the middle of a write. Of one that is running, nobody
/// can tell; one that waits for something else has finished what it wrote before.
pub(crate) fn may_be_writing(process: u32) -> bool {
    let folder = format!("/proc/{process}/task");
    let may_be = |thread: u32| {
        let it = format!("{folder}/{thread}");
        match std::fs::read_to_string(format!("{it}/syscall")) {
            Ok(text) => waits_in(&text).is_none_or(|number| WRITES.contains(&number)),
            // One that ended meanwhile had finished.
            Err(error) => !is_gone(&error) && is_there(&it),
        }
    };
    numbers(&folder).is_none_or(|threads| threads.into_iter().any(may_be))
}

/// Whether a folder of `/proc` is there. That takes no handle.
fn is_there(folder: &str) -> bool {
    !std::fs::metadata(folder).is_err_and(|error| is_gone(&error))
}

/// The number of the call that a thread waits in, -1 if it waits for something else; `None` if it
/// runs.
fn waits_in(text: &str) -> Option<i64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Each process that there is, with its parent; `None` if they cannot be listed, or asked.
fn parents() -> Option<BTreeMap<u32, u32>> {
    let mut parents = BTreeMap::new();
    for id in processes().ok()? {
        match stat(&format!("/proc/{id}/stat")) {
            Ok((_, parent)) => {
                parents.insert(id, parent);
            }
            // It ended meanwhile.
            Err(error) if is_gone(&error) => {}
            Err(_) => return None,
        }
    }
    Some(parents)
}

/// Those processes and all that descend from them; `None` if processes cannot be listed.
pub(crate) fn family(roots: &BTreeSet<u32>) -> Option<BTreeSet<u32>> {
    lineage(roots).map(|family| family.into_keys().collect())
}

/// The same, each with its parent.
pub(crate) fn lineage(roots: &BTreeSet<u32>) -> Option<BTreeMap<u32, u32>> {
    let parents = parents()?;
    let of = |id: &u32| (*id, parents.get(id).copied().unwrap_or(0));
    let mut family: BTreeMap<u32, u32> = roots.iter().map(of).collect();
    loop {
        let before = family.len();
        for (id, parent) in &parents {
            if family.contains_key(parent) {
                family.insert(*id, *parent);
            }
        }
        if family.len() == before {
            return Some(family);
        }
    }
}

/// How many ancestors of a process are of its family, and one more.
pub(crate) fn depth(family: &BTreeMap<u32, u32>, process: u32) -> usize {
    let up = |id: &u32| family.get(id).copied();
    core::iter::successors(up(&process), up).take(DEEPEST).count()
}

/// Adds the inodes of all files that a process has open or mapped. False if it is not known.
///
/// Each thread is asked: the first one may be gone before the others, and nothing is shown by it
/// then; and a thread may have its own descriptors.
pub(crate) fn files_of(process: u32, held: &mut BTreeSet<u64>) -> bool {
    let folder = format!("/proc/{process}/task");
    let is_there = |thread: u32| match stat(&format!("{folder}/{thread}/stat")) {
        Ok((state, _)) => !b"ZXx".contains(&state),
        Err(error) => !is_gone(&error),
    };
    let Some(threads) = numbers(&folder) else { return false };
    let mut asked: Option<u32> = None;
    for thread in threads.into_iter().filter(|thread| is_there(*thread)) {
        if asked.is_some_and(|other| same_files(other, thread)) {
            continue;
        }
        let Ok(open) = holders::numbers(&format!("{folder}/{thread}/fd")) else {
            // One that has just ended is no loss.
            if is_there(thread) {
                return false;
            }
            continue;
        };
        for fd in open {
            match Seen::at(&format!("{folder}/{thread}/fd/{fd}")) {
                Ok(found) => held.extend(found.is_file.then_some(found.inode)),
                // Closed meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(_) => return false,
            }
        }
        let mapped =
            maps::walk(Some(thread), |vma| held.extend((vma.inode > 0).then_some(vma.inode)));
        if mapped.is_err() && is_there(thread) {
            return false;
        }
        asked = Some(thread);
    }
    // All threads that were there may have ended while they were asked.
    asked.is_some()
}

/// Whether two threads have the same descriptors, for certain.
fn same_files(one: u32, other: u32) -> bool {
    const FILES: libc::c_int = 2;
    have_same(one, other, FILES)
}

/// Whether two processes have the same memory, for certain.
pub(crate) fn same_memory(one: u32, other: u32) -> bool {
    have_same(one, other, MEMORY)
}

/// Whether two processes have different memory, for certain.
pub(crate) fn has_other_memory(one: u32, other: u32) -> bool {
    (1..=3).contains(&compare(one, other, MEMORY))
}

const MEMORY: libc::c_int = 1;

fn have_same(one: u32, other: u32, what: libc::c_int) -> bool {
    compare(one, other, what) == 0
}

/// 0 if two threads have the same of something, up to 3 if not, less if nobody tells.
fn compare(one: u32, other: u32, what: libc::c_int) -> libc::c_long {
    // SAFETY: compares two threads, and takes numbers only.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, what, 0, 0) }
}

/// Whose parent a process is, by birth or since another parent is gone; `None` if processes cannot
/// be listed.
pub(crate) fn children(process: u32) -> Option<BTreeSet<u32>> {
    let theirs = parents()?.into_iter().filter(|(_, parent)| *parent == process);
    Some(theirs.map(|(child, _)| child).collect())
}

/// A child of this process that is dead, and whose end nobody has asked about yet. Nor does this.
pub(crate) fn dead_child() -> Option<u32> {
    let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: a structure of numbers, of which zeros are some.
    let mut found: libc::siginfo_t = unsafe { core::mem::zeroed() };
    // SAFETY: writes into that structure; then who it is is told there, or zero.
    let process = unsafe {
        let done = libc::waitid(libc::P_ALL, 0, &raw mut found, look);
        if done == 0 { found.si_pid() } else { 0 }
    };
    u32::try_from(process).ok().filter(|process| *process > 0)
}

/// Whether a process has a file in its memory, or may have, by the file's full name.
pub(crate) fn may_have_mapped(process: u32, file: &Path) -> bool {
    let name = file.as_os_str().as_bytes();
    match maps::text(process) {
        Ok(text) => text.split(|byte| *byte == b'\n').any(|line| line.ends_with(name)),
        Err(_) => !is_dead(process),
    }
}

/// Whether a process has a file in its memory, by its inode; `None` if it is gone, or going, or
/// cannot be asked.
pub(crate) fn has_inode_mapped(process: u32, inode: u64) -> Option<bool> {
    let (mut any, mut has) = (false, false);
    let listed = maps::walk(Some(process), |vma| {
        any = true;
        has |= vma.inode == inode;
    });
    (listed.is_ok() && any).then_some(has)
}

/// Whether a process has means of writing that nobody sees: a ring of the kernel's. `None` if that
/// cannot be told of one that lives.
pub(crate) fn has_ring(process: u32) -> Option<bool> {
    let found = (0..LOOKS).find_map(|_| ring_of(process));
    found.or_else(|| is_dead(process).then_some(false))
}

/// Times that lists are looked at whose threads end meanwhile.
const LOOKS: u32 = 3;

/// The same; `None` if something of it cannot be asked, or ended meanwhile.
fn ring_of(process: u32) -> Option<bool> {
    for folder in holders::handle_lists(process)? {
        for fd in numbers(&format!("{folder}/fd"))? {
            match std::fs::read_link(format!("{folder}/fd/{fd}")) {
                Ok(to) if to.to_str().is_some_and(|to| to.contains("io_uring")) => {
                    return Some(true);
                }
                Ok(_) => {}
                // Closed meanwhile.
                Err(error) if is_gone(&error) => {}
                Err(_) => return None,
            }
        }
        // Of a thread that ended, the list is empty, and others may have the same one.
        if !is_there(&folder) {
            return None;
        }
    }
    // Older asynchronous requests have their ring in memory.
    let text = maps::text(process).ok()?;
    Some(text.windows(6).any(|word| word == b"/[aio]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn numbers_inside_and_outside() {
        assert_eq!(innermost("Name:\tx\nNSpid:\t77\t5\t1\nVm: 3\n"), Some(1));
        assert_eq!(innermost("NSpid:\t77\n"), Some(77));
        assert_eq!(innermost("Name:\tx\n"), None);
        assert!(!has_other_numbers(std::process::id()));
    }

    #[test]
    fn who_waits_for_something_else_has_finished_its_write() {
        use std::process::{Command, Stdio};
        assert_eq!((waits_in("1 0x1 0x7f"), waits_in("-1 0x7f"), waits_in("running")), {
            (Some(1), Some(-1), None)
        });
        let mut sleeps = Command::new("sleep").arg("60").spawn().unwrap();
        // It fills the pipe, which nobody reads, and waits in the middle of a write.
        let mut writes = Command::new("yes").stdout(Stdio::piped()).spawn().unwrap();
        let settles = |process: u32, writing: bool| {
            (0..2000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(5));
                let text = std::fs::read_to_string(format!("/proc/{process}/syscall"));
                let waits = text.is_ok_and(|text| waits_in(&text).is_some_and(|it| it >= 0));
                waits && may_be_writing(process) == writing
            })
        };
        assert!(settles(sleeps.id(), false) && settles(writes.id(), true));
        for child in [&mut sleeps, &mut writes] {
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(!may_be_writing(child.id()), "it is gone");
        }
    }

    #[test]
    fn threads_that_are_gone_are_over() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            send.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            std::thread::park();
        });
        let other = receive.recv().unwrap();
        assert!(!is_over(child.id()) && !is_over(other) && is_over(0));
        thread.thread().unpark();
        thread.join().unwrap();
        child.kill().unwrap();
        let over = |thread: u32| {
            (0..2000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(2));
                is_over(thread)
            })
        };
        assert!(over(child.id()) && over(other), "nobody has asked about the child");
        child.wait().unwrap();
        assert!(is_over(child.id()));
    }

    /// A process without a handle to look around with takes nobody for one that stands, is dead,
    /// or has nothing.
    #[test]
    fn who_cannot_be_asked_is_not_nobody() {
        let name = "proc::tests::who_cannot_be_asked_is_not_nobody";
        crate::in_a_process_of_its_own(name, || {
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let (it, roots) = (child.id(), BTreeSet::from([child.id()]));
            let mut all = BTreeSet::new();
            let nowhere = Path::new("/nowhere");
            while may_be_writing(it) {}
            assert!(!may_have_mapped(it, nowhere) && has_ring(it) == Some(false));
            assert!(family(&roots).unwrap() == roots && files_of(it, &mut all));
            let none = crate::without_handles();
            assert!(!stands(it) && !is_stopped(it) && !is_dead(it) && !is_over(it));
            assert!(may_be_writing(it) && may_have_mapped(it, nowhere) && has_other_numbers(it));
            assert_eq!((has_ring(it), has_inode_mapped(it, 1), threads(it)), (None, None, None));
            assert!(family(&roots).is_none() && children(std::process::id()).is_none());
            assert!(!files_of(it, &mut BTreeSet::new()));
            drop(none);
            assert_eq!(children(std::process::id()), Some(roots));
            child.kill().unwrap();
            while !is_dead(it) {}
            assert_eq!((has_ring(it), may_have_mapped(it, nowhere)), (Some(false), false));
            child.wait().unwrap();
            assert_eq!((has_ring(it), may_have_mapped(it, nowhere)), (Some(false), false));
            assert!(is_dead(it) && stands(it) && !may_be_writing(it) && threads(it).is_none());
        });
    }

    /// Another user's process may have whatever it likes.
    #[test]
    fn who_may_not_be_looked_into_may_have_anything() {
        let name = "proc::tests::who_may_not_be_looked_into_may_have_anything";
        crate::in_a_process_of_its_own(name, || {
            // SAFETY: asks for a number; then becomes another user, for good.
            if unsafe { libc::geteuid() != 0 } {
                println!("skipped: needs the right to become another user");
                return;
            }
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let (it, file) = (child.id(), tempfile::tempfile().unwrap());
            let id = holders::FileId::of(file.as_fd()).unwrap();
            while may_be_writing(it) {}
            assert!(!holders::has_as_stream(it, &id));
            // SAFETY: as above; the child stays root's.
            assert_eq!(unsafe { libc::setresuid(65_534, 65_534, 0) }, 0);
            assert!(!files_of(it, &mut BTreeSet::new()) && may_be_writing(it));
            assert!(may_have_mapped(it, Path::new("/nowhere")) && holders::has_as_stream(it, &id));
            assert_eq!((has_ring(it), has_inode_mapped(it, 1)), (None, None));
            // SAFETY: as above.
            assert_eq!(unsafe { libc::seteuid(0) }, 0);
            child.kill().unwrap();
            child.wait().unwrap();
        });
    }

    #[test]
    fn this_process_is_seen() {
        let me = std::process::id();
        assert!(threads(me).unwrap() > 0 && !stands(me) && has_ring(me) == Some(false));
        assert!(family(&BTreeSet::from([parent(me).unwrap()])).unwrap().contains(&me));
    }

    #[test]
    fn parents_are_less_deep_than_their_children() {
        // Whatever their numbers are: those are used again.
        let family = BTreeMap::from([(50, 1), (9, 50), (70, 9), (60, 50), (80, 79)]);
        let depths = [50, 9, 70, 60, 80].map(|process| depth(&family, process));
        assert_eq!(depths, [1, 2, 3, 2, 1]);
        let circle = BTreeMap::from([(5, 6), (6, 5)]);
        assert_eq!(depth(&circle, 5), DEEPEST);
        let me = std::process::id();
        let up = parent(me).unwrap();
        let family = lineage(&BTreeSet::from([up, me])).unwrap();
        assert_eq!(family[&me], up);
        assert_eq!(depth(&family, me), depth(&family, up) + 1);
    }
}
