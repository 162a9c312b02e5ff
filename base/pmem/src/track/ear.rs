//! Hearing of what happens to a file: that somebody opened, wrote, closed it, and who.
//!
//! | ear | needs | tells who |
//! |---|---|---|
//! | [`Hears::Everybody`] | the right to administer the system | every process |
//! | [`Hears::Ourselves`] | Linux 5.13, a file system with handles | us, or somebody else |
//! | [`Hears::Nobody`] | - | nobody |
//!
//! What is heard is no proof that nothing else happened: stores through a mapping are not heard,
//! and a `write` only when it is over. Events that are alike and follow each other are told once,
//! so their number says nothing; those of different processes are told apart, where names are.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const MODIFIED: u64 = 0x2;
const CLOSED_WRITTEN: u64 = 0x8;
const CLOSED: u64 = 0x10;
const OPENED: u64 = 0x20;
const OVERFLOWED: u64 = 0x4000;
const ALL: u64 = MODIFIED | CLOSED_WRITTEN | CLOSED | OPENED;
/// Bytes of one event's fixed part, and of one without a name.
const EVENT: usize = 24;
const NOTE: usize = 16;
/// Close on exec, do not wait, name files by handle.
const FLAGS: u32 = 0x1 | 0x2 | 0x200;
/// Queue without limit, which only those may ask for who are told names.
const UNLIMITED: u32 = 0x10;
const ADD: u32 = 1;

/// Listens to one file.
#[derive(Debug)]
pub struct Ear {
    fd: Option<OwnedFd>,
    hears: Hears,
}

/// Whose doings an ear can tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hears {
    /// Those of every process.
    Everybody,
    /// Those of this process from those of all others.
    Ourselves,
    /// Only that something was done.
    Nobody,
    /// Nothing at all is heard.
    Nothing,
}

/// Who did it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// This process.
    Us,
    /// That process.
    Process(u32),
    /// Another process than this one.
    Other,
    /// Anybody.
    Unknown,
}

/// One thing that happened, or several alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Who did it.
    pub who: Who,
    /// It was opened, for whatever.
    pub opened: bool,
    /// It was written to, cut off or made longer.
    pub modified: bool,
    /// A handle was given up that could write.
    pub closed_written: bool,
    /// A handle was given up that could only read.
    pub closed: bool,
    /// More happened than could be told.
    pub overflowed: bool,
}

impl Event {
    fn new(who: Who, what: u64) -> Self {
        let is = |bit| what & bit != 0;
        Self {
            who,
            opened: is(OPENED),
            modified: is(MODIFIED),
            closed_written: is(CLOSED_WRITTEN),
            closed: is(CLOSED),
            overflowed: is(OVERFLOWED),
        }
    }
}

impl Ear {
    /// The best there is for an open file, of those that hear no better than `most`. It listens to
    /// the file itself, whatever becomes of its names.
    #[must_use]
    pub fn best(file: BorrowedFd<'_>, most: Hears) -> Self {
        let wish = |hears: Hears, flags: u32| {
            let wished = match most {
                Hears::Everybody => true,
                Hears::Ourselves => hears == Hears::Ourselves,
                Hears::Nobody | Hears::Nothing => false,
            };
            let fd = if wished { named(file, flags) } else { None };
            fd.map(|fd| Self { fd: Some(fd), hears })
        };
        let plain = || {
            let fd = if most == Hears::Nothing { None } else { unnamed(file) };
            fd.map(|fd| Self { fd: Some(fd), hears: Hears::Nobody })
        };
        wish(Hears::Everybody, FLAGS | UNLIMITED)
            .or_else(|| wish(Hears::Ourselves, FLAGS))
            .or_else(plain)
            .unwrap_or(Self { fd: None, hears: Hears::Nothing })
    }

    /// Whom it can tell apart.
    #[must_use]
    pub fn hears(&self) -> Hears {
        self.hears
    }

    /// What happened since the last time, in the order in which it was heard.
    #[must_use]
    pub fn hear(&self) -> Vec<Event> {
        let mut all = Vec::new();
        let Some(fd) = &self.fd else { return all };
        let mut bytes = [0_u8; 8192];
        while let Ok(len @ 1..) = rustix::io::read(fd, &mut bytes) {
            match self.hears {
                Hears::Everybody | Hears::Ourselves => events(&bytes[..len], self.hears, &mut all),
                Hears::Nobody | Hears::Nothing => notes(&bytes[..len], &mut all),
            }
        }
        all
    }
}

/// A name for the file that no renaming changes.
fn name(file: BorrowedFd<'_>) -> Option<std::ffi::CString> {
    std::ffi::CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

fn named(file: BorrowedFd<'_>, flags: u32) -> Option<OwnedFd> {
    // SAFETY: flags only; answers a descriptor or -1.
    let ear = unsafe { libc::fanotify_init(flags, libc::O_RDONLY as u32) };
    if ear < 0 {
        return None;
    }
    // SAFETY: a descriptor that was just opened and belongs to nobody yet.
    let ear = unsafe { OwnedFd::from_raw_fd(ear) };
    let path = name(file)?;
    // SAFETY: an open descriptor and a path that ends with a zero.
    let marked =
        unsafe { libc::fanotify_mark(ear.as_raw_fd(), ADD, ALL, libc::AT_FDCWD, path.as_ptr()) };
    (marked == 0).then_some(ear)
}

fn unnamed(file: BorrowedFd<'_>) -> Option<OwnedFd> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let ear = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    let what = WatchFlags::from_bits_retain(ALL as u32);
    add_watch(&ear, name(file)?, what).ok()?;
    Some(ear)
}

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let part = bytes.get(at..at + len).unwrap_or_default();
    part.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Length, version, length of the fixed part, mask, descriptor, process.
fn events(mut bytes: &[u8], hears: Hears, all: &mut Vec<Event>) {
    let me = std::process::id();
    while bytes.len() >= EVENT {
        let len = number(bytes, 0, 4) as usize;
        let who = match number(bytes, 20, 4) as u32 {
            process if process == me => Who::Us,
            // Of all others, or of one that is not in our sight.
            0 => Who::Other,
            _ if hears == Hears::Ourselves => Who::Other,
            process => Who::Process(process),
        };
        all.push(Event::new(who, number(bytes, 8, 8)));
        bytes = bytes.get(len.max(EVENT)..).unwrap_or_default();
    }
}

/// Watch, mask, cookie, length of the name. The bits are the same, as far as we ask.
fn notes(mut bytes: &[u8], all: &mut Vec<Event>) {
    while bytes.len() >= NOTE {
        all.push(Event::new(Who::Unknown, number(bytes, 4, 4)));
        let len = NOTE + number(bytes, 12, 4) as usize;
        bytes = bytes.get(len..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::process::Command;

    /// What each ear makes of a write of ours and of one of somebody else's.
    #[test]
    fn each_ear_tells_apart_what_it_says() {
        for most in [Hears::Everybody, Hears::Ourselves, Hears::Nobody, Hears::Nothing] {
            let file = tempfile::NamedTempFile::new().unwrap();
            let ear = Ear::best(file.as_file().as_fd(), most);
            if ear.hears() != most {
                eprintln!("skipped: {most:?} is not permitted here");
                continue;
            }
            // Renamed: it is the file that counts.
            let aside = file.path().with_extension("aside");
            std::fs::rename(file.path(), &aside).unwrap();
            std::fs::write(&aside, b"ours").unwrap();
            let ours = ear.hear();
            Command::new("truncate").arg("-s3").arg(&aside).status().unwrap();
            let theirs = ear.hear();
            std::fs::remove_file(&aside).unwrap();
            let all = |events: &[Event], who: &dyn Fn(Who) -> bool| {
                !events.is_empty() && events.iter().all(|event| who(event.who))
            };
            let us = |who| if most == Hears::Nobody { who == Who::Unknown } else { who == Who::Us };
            let them = |who| match most {
                Hears::Everybody => matches!(who, Who::Process(_)),
                Hears::Ourselves => who == Who::Other,
                _ => who == Who::Unknown,
            };
            if most == Hears::Nothing {
                assert_eq!((ours, theirs), (vec![], vec![]));
                continue;
            }
            assert!(all(&ours, &us) && all(&theirs, &them), "{most:?} {ours:?} {theirs:?}");
            assert!(theirs.iter().any(|event| event.modified), "{theirs:?}");
        }
    }

    #[test]
    fn rubbish_is_no_event() {
        let mut all = Vec::new();
        events(&[0xff; 23], Hears::Everybody, &mut all);
        notes(&[0xff; 15], &mut all);
        assert!(all.is_empty());
        events(&[0xff; 30], Hears::Everybody, &mut all);
        notes(&[0xff; 17], &mut all);
        assert_eq!(all.len(), 2);
    }
}
