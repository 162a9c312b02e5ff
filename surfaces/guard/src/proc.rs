//! What `/proc` says of guarded processes: their family, and whether they stand.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use holdfast_pmem::track::holders::{self, processes};

fn numbers(path: &str) -> Vec<u32> {
    holders::numbers(path).unwrap_or_default()
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

/// How many threads a process has; `None` if it is gone.
pub(crate) fn threads(process: u32) -> Option<usize> {
    let threads = numbers(&format!("/proc/{process}/task"));
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

fn all_are(process: u32, states: &[u8]) -> bool {
    numbers(&format!("/proc/{process}/task")).into_iter().all(|thread| {
        let found = stat(&format!("/proc/{process}/task/{thread}/stat"));
        found.is_none_or(|(state, _)| states.contains(&state))
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

/// Whose parent this process is, by birth or since another parent is gone.
pub(crate) fn children() -> Vec<u32> {
    let me = std::process::id();
    processes().into_iter().filter(|process| parent(*process) == Some(me)).collect()
}

/// Whether a process has a file in its memory, by the file's full name.
pub(crate) fn maps(process: u32, file: &Path) -> bool {
    let name = file.as_os_str().as_bytes();
    std::fs::read(format!("/proc/{process}/maps"))
        .is_ok_and(|text| text.split(|byte| *byte == b'\n').any(|line| line.ends_with(name)))
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
    fn numbers_inside_and_outside() {
        assert_eq!(innermost("Name:\tx\nNSpid:\t77\t5\t1\nVm: 3\n"), Some(1));
        assert_eq!(innermost("NSpid:\t77\n"), Some(77));
        assert_eq!(innermost("Name:\tx\n"), None);
        assert!(!has_other_numbers(std::process::id()));
    }

    #[test]
    fn this_process_is_seen() {
        let me = std::process::id();
        assert!(threads(me).unwrap() > 0 && !stands(me) && !has_ring(me));
        assert!(family(&BTreeSet::from([parent(me).unwrap()])).contains(&me));
    }
}
