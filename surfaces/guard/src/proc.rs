//! What `/proc` says of other processes.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use holdfast_pmem::track::maps;

/// Numbers of all processes that can be seen.
pub(crate) fn processes() -> Vec<u32> {
    numbers("/proc")
}

fn numbers(path: &str) -> Vec<u32> {
    let Ok(folder) = std::fs::read_dir(path) else { return Vec::new() };
    folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// State and parent of a process or thread, from its `stat`.
fn stat(path: &str) -> Option<(u8, u32)> {
    // All processes are asked while programs stand still, so with one call. The rest may be cut.
    let mut bytes = [0; 1024];
    let len = std::fs::File::open(path).and_then(|mut file| file.read(&mut bytes)).ok()?;
    let text = bytes.get(..len)?;
    // The name is in parentheses and may hold anything.
    let behind = text.iter().rposition(|byte| *byte == b')')?;
    let rest = core::str::from_utf8(text.get(behind + 1..)?).ok()?;
    let mut words = rest.split_ascii_whitespace();
    let state = *words.next()?.as_bytes().first()?;
    Some((state, words.next()?.parse().ok()?))
}

/// The parent of a process.
pub(crate) fn parent(process: u32) -> Option<u32> {
    stat(&format!("/proc/{process}/stat")).map(|(_, parent)| parent)
}

/// The number of the processor on which a process ran last.
pub(crate) fn processor(process: u32) -> Option<usize> {
    let text = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    let behind = text.iter().rposition(|byte| *byte == b')')?;
    let rest = core::str::from_utf8(text.get(behind + 1..)?).ok()?;
    // The state is the third field, the processor the 39th.
    rest.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// How many threads a process has; `None` if it is gone.
pub(crate) fn threads(process: u32) -> Option<usize> {
    let threads = numbers(&format!("/proc/{process}/task"));
    (!threads.is_empty()).then_some(threads.len())
}

/// Whether every thread of a process stands still, or is dead.
pub(crate) fn stands(process: u32) -> bool {
    numbers(&format!("/proc/{process}/task")).into_iter().all(|thread| {
        let found = stat(&format!("/proc/{process}/task/{thread}/stat"));
        found.is_none_or(|(state, _)| matches!(state, b'T' | b't' | b'Z' | b'X' | b'x'))
    })
}

/// Those processes and all that descend from them.
pub(crate) fn family(roots: &BTreeSet<u32>) -> BTreeSet<u32> {
    let parents: Vec<(u32, u32)> =
        processes().into_iter().filter_map(|id| Some((id, parent(id)?))).collect();
    let mut family = roots.clone();
    loop {
        let before = family.len();
        for (id, parent) in &parents {
            if family.contains(parent) {
                family.insert(*id);
            }
        }
        if family.len() == before {
            return family;
        }
    }
}

/// How a process holds a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Not at all, as far as can be seen.
    No,
    /// For reading.
    Reads,
    /// So that it can change it.
    Writes,
}

/// How a process holds the file of these numbers. `standard` asks for descriptors 0 to 2 only.
pub(crate) fn holds(process: u32, device: u64, inode: u64, standard: bool) -> Holds {
    let mut held = Holds::No;
    for fd in numbers(&format!("/proc/{process}/fd")) {
        if standard && fd > 2 {
            continue;
        }
        let same = std::fs::metadata(format!("/proc/{process}/fd/{fd}"))
            .is_ok_and(|found| found.dev() == device && found.ino() == inode);
        if !same {
            continue;
        }
        match access(process, fd) {
            Some(flags) if flags & libc::O_PATH != 0 => {}
            Some(flags) if flags & libc::O_ACCMODE == libc::O_RDONLY => {
                if held == Holds::No {
                    held = Holds::Reads;
                }
            }
            _ => return Holds::Writes,
        }
    }
    if !standard {
        let listed = maps::walk(Some(process), |vma| {
            if vma.shared && vma.writable && vma.inode == inode {
                held = Holds::Writes;
            }
        });
        // Not ours to look at: what cannot be seen is told by what it does.
        let _ = listed;
    }
    held
}

/// The flags a descriptor was opened with.
fn access(process: u32, fd: u32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{process}/fdinfo/{fd}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    i32::from_str_radix(line.trim(), 8).ok()
}

/// Whether a process has means of writing that nobody sees: a ring of the kernel's.
pub(crate) fn has_ring(process: u32) -> bool {
    let link = |fd: u32| std::fs::read_link(format!("/proc/{process}/fd/{fd}")).ok();
    let ring = numbers(&format!("/proc/{process}/fd"))
        .into_iter()
        .any(|fd| link(fd).is_some_and(|to| to.to_str().is_some_and(|to| to.contains("io_uring"))));
    // Older asynchronous requests have their ring in memory.
    ring || std::fs::read_to_string(format!("/proc/{process}/maps"))
        .is_ok_and(|text| text.contains("/[aio]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen() {
        let me = std::process::id();
        assert!(processes().contains(&me));
        assert!(threads(me).unwrap() > 0 && !stands(me) && !has_ring(me));
        assert!(family(&BTreeSet::from([parent(me).unwrap()])).contains(&me));
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = file.as_file().metadata().unwrap();
        assert_eq!(holds(me, found.dev(), found.ino(), false), Holds::Writes);
        assert_eq!(holds(me, found.dev(), found.ino(), true), Holds::No);
        let read = std::fs::File::open(file.path()).unwrap();
        drop(file);
        assert_eq!(holds(me, found.dev(), found.ino(), false), Holds::Reads);
        drop(read);
        assert_eq!(holds(me, found.dev(), found.ino(), false), Holds::No);
    }
}
