//! Writers that are not guarded: they cannot be refused, only noticed. Once one is, the file is
//! contested: checked and reported, not repaired, until it is protected anew.
//!
//! The kernel tells who opened, wrote and closed the file (`fanotify`, with the right to it), or
//! only that somebody did (`inotify`). In either case a write by a guarded program that nobody
//! announced shows as well: by ways the preloaded library does not know.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use crate::proc::{self, Holds};

const MODIFIED: u64 = 0x2;
const CLOSED_WRITTEN: u64 = 0x8;
const CLOSED: u64 = 0x10;
const OPENED: u64 = 0x20;
const OVERFLOWED: u64 = 0x4000;
const ALL: u64 = MODIFIED | CLOSED_WRITTEN | CLOSED | OPENED;
/// Bytes of one event's fixed part.
const EVENT: usize = 24;

/// Close on exec, do not wait, queue without limit, name files by handle.
const FLAGS: u32 = 0x1 | 0x2 | 0x10 | 0x200;
const ADD: u32 = 1;

/// What may tell of foreign writers.
#[derive(Debug)]
enum Ear {
    /// Tells who.
    Named(OwnedFd),
    /// Tells that somebody did.
    Unnamed(OwnedFd),
    /// Neither is to be had: nothing is repaired while the program runs.
    Deaf,
}

/// Understands what an ear heard.
type Parse = fn(&[u8], &mut Vec<Event>);

/// Listens for writers to one file.
#[derive(Debug)]
pub(crate) struct Watch {
    device: u64,
    inode: u64,
    ear: Ear,
    /// Processes that opened it and of which nothing more is known.
    pending: BTreeSet<u32>,
    /// Announced writes that were over at the last look.
    ended: u64,
    /// It was written to, and it was not clear yet that it was by an announced write.
    unsettled: bool,
}

/// One thing that happened.
struct Event {
    /// 0 if it is not told.
    who: u32,
    what: u64,
}

impl Watch {
    pub(crate) fn new(path: &Path, device: u64, inode: u64) -> Self {
        let ear = named(path).or_else(|| unnamed(path)).unwrap_or(Ear::Deaf);
        Self { device, inode, ear, pending: BTreeSet::new(), ended: 0, unsettled: false }
    }

    /// Whether it can tell guarded programs from others.
    pub(crate) fn is_named(&self) -> bool {
        matches!(self.ear, Ear::Named(_))
    }

    /// Who holds the file open for writing at this moment, of all but `known`.
    pub(crate) fn present(&self, known: &BTreeSet<u32>) -> Option<String> {
        let me = std::process::id();
        let found = proc::processes().into_iter().find(|process| {
            *process != me
                && !known.contains(process)
                && proc::holds(*process, self.device, self.inode, false) == Holds::Writes
        });
        found.map(|process| format!("process {process} has it open for writing"))
    }

    /// Looks at what happened since the last look. `known` are the guarded processes, `announced`
    /// tells how many writes were announced and how many of them are over. Answers why the file is
    /// contested from now on, if it is.
    pub(crate) fn look(
        &mut self,
        known: &BTreeSet<u32>,
        announced: impl Fn() -> (u64, u64),
    ) -> Option<String> {
        // Counted before anything is heard: a write that is heard now was announced, and is over
        // only after that.
        let (_, before) = announced();
        let mut written = false;
        let mut opened = false;
        for event in self.hear() {
            if event.what & OVERFLOWED != 0 {
                return Some("too much happened to it to be followed".to_owned());
            }
            if event.who == 0 || known.contains(&event.who) {
                written |= event.what & MODIFIED != 0;
                opened |= event.who == 0 && event.what & OPENED != 0;
                continue;
            }
            if event.who == std::process::id() {
                continue;
            }
            if event.what & (MODIFIED | CLOSED_WRITTEN) != 0 {
                return Some(format!("process {} wrote to it", event.who));
            }
            if event.what & OPENED != 0 {
                self.pending.insert(event.who);
            }
            if event.what & CLOSED != 0 {
                self.pending.remove(&event.who);
            }
        }
        let last = core::mem::replace(&mut self.ended, before);
        let (began, ended) = announced();
        written |= self.unsettled;
        self.unsettled = written && ended == last;
        if self.unsettled && began == ended {
            return Some("it was written to in a way that was not announced".to_owned());
        }
        if opened && let Some(why) = self.present(known) {
            return Some(why);
        }
        self.resolve(known)
    }

    /// Finds out what became of those that opened it.
    fn resolve(&mut self, known: &BTreeSet<u32>) -> Option<String> {
        let (device, inode) = (self.device, self.inode);
        let mut writer = None;
        self.pending.retain(|process| {
            if known.contains(process) {
                return false;
            }
            match proc::holds(*process, device, inode, false) {
                Holds::Writes => writer = Some(*process),
                Holds::Reads => return false,
                Holds::No => {}
            }
            true
        });
        writer.map(|process| format!("process {process} has it open for writing"))
    }

    /// Whether everything heard is understood.
    pub(crate) fn is_sure(&self) -> bool {
        self.pending.is_empty() && !self.unsettled && !matches!(self.ear, Ear::Deaf)
    }

    fn hear(&self) -> Vec<Event> {
        let (ear, parse): (_, Parse) = match &self.ear {
            Ear::Named(ear) => (ear, events),
            Ear::Unnamed(ear) => (ear, notes),
            Ear::Deaf => return Vec::new(),
        };
        let mut all = Vec::new();
        let mut bytes = [0_u8; 8192];
        while let Ok(len @ 1..) = rustix::io::read(ear, &mut bytes) {
            parse(&bytes[..len], &mut all);
        }
        all
    }
}

fn named(path: &Path) -> Option<Ear> {
    // SAFETY: flags only; answers a descriptor or -1.
    let ear = unsafe { libc::fanotify_init(FLAGS, libc::O_RDONLY as u32) };
    if ear < 0 {
        return None;
    }
    // SAFETY: a descriptor that was just opened and belongs to nobody yet.
    let ear = unsafe { OwnedFd::from_raw_fd(ear) };
    let path = name(path)?;
    // SAFETY: an open descriptor and a path that ends with a zero.
    let marked =
        unsafe { libc::fanotify_mark(ear.as_raw_fd(), ADD, ALL, libc::AT_FDCWD, path.as_ptr()) };
    (marked == 0).then_some(Ear::Named(ear))
}

fn unnamed(path: &Path) -> Option<Ear> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let ear = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    let what = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::OPEN;
    add_watch(&ear, path, what).ok()?;
    Some(Ear::Unnamed(ear))
}

fn name(path: &Path) -> Option<std::ffi::CString> {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::CString::new(path.as_os_str().as_bytes()).ok()
}

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let part = bytes.get(at..at + len).unwrap_or_default();
    part.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// `fanotify`: length, version, length of the fixed part, mask, descriptor, process.
fn events(mut bytes: &[u8], all: &mut Vec<Event>) {
    while bytes.len() >= EVENT {
        let len = number(bytes, 0, 4) as usize;
        let (what, who) = (number(bytes, 8, 8), number(bytes, 20, 4) as u32);
        // A process that is not in our sight is numbered 0, and is a stranger.
        let who = if who == 0 { u32::MAX } else { who };
        all.push(Event { who, what });
        bytes = bytes.get(len.max(EVENT)..).unwrap_or_default();
    }
}

/// `inotify`: watch, mask, cookie, length of the name. The bits are the same, as far as we ask.
fn notes(mut bytes: &[u8], all: &mut Vec<Event>) {
    while bytes.len() >= 16 {
        all.push(Event { who: 0, what: number(bytes, 4, 4) });
        let len = 16 + number(bytes, 12, 4) as usize;
        bytes = bytes.get(len..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn watched(ear: fn(&Path) -> Option<Ear>) -> Option<(tempfile::NamedTempFile, Watch)> {
        use std::os::unix::fs::MetadataExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = file.as_file().metadata().unwrap();
        let mut watch = Watch::new(file.path(), found.dev(), found.ino());
        watch.ear = ear(file.path())?;
        Some((file, watch))
    }

    #[test]
    fn strangers_are_noticed_and_readers_are_none() {
        let Some((file, mut watch)) = watched(named) else {
            eprintln!("skipped: not permitted to ask who it was");
            return;
        };
        let nobody = BTreeSet::new();
        let path = file.path().display();
        Command::new("cat").arg(file.path()).output().unwrap();
        assert_eq!(watch.look(&nobody, || (0, 0)), None);
        assert!(watch.is_sure());
        std::fs::write(file.path(), b"our own").unwrap();
        assert_eq!(watch.look(&nobody, || (0, 0)), None);
        Command::new("sh").arg("-c").arg(format!("echo x >> {path}")).status().unwrap();
        assert!(watch.look(&nobody, || (0, 0)).is_some_and(|why| why.contains("wrote to it")));
    }

    #[test]
    fn what_nobody_announced_is_noticed() {
        let (file, mut watch) = watched(unnamed).unwrap();
        let nobody = BTreeSet::new();
        std::fs::write(file.path(), b"announced").unwrap();
        assert_eq!(watch.look(&nobody, || (1, 1)), None);
        std::fs::write(file.path(), b"under way").unwrap();
        assert_eq!(watch.look(&nobody, || (2, 1)), None);
        assert_eq!(watch.look(&nobody, || (2, 2)), None);
        std::fs::write(file.path(), b"not announced").unwrap();
        assert!(watch.look(&nobody, || (2, 2)).is_some_and(|why| why.contains("not announced")));
    }
}
