//! Handles on their way to others: to programs that are about to be there, and through sockets.
//!
//! A program inherits handles without opening anything, and as long as its parent keeps its own,
//! nothing is heard when it closes them. It may map the file, store and be gone between two looks.
//! So whoever makes such a program tells before, and what can be written by the handles that go
//! along is *handed* until the program has said that it announces what it does.
//!
//! | the new program | its files |
//! |---|---|
//! | is on its way | nothing of them is judged |
//! | says that it is set up | as ever |
//! | was not made after all | as ever |
//! | ends before that, or never says so | contested: it may have stored |
//!
//! A handle that is sent through a socket contests its file at once, unless whoever is at the other
//! end is guarded, and so is everybody who may have that end by now.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use holdfast_guard_wire::{Answer, Refusal, Spawned};
use holdfast_pmem::track::holders::{self, Seen};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::proc;
use crate::serve::{Guard, LATEST};

/// Programs on their way, and files of one, that are told apart.
const MOST: usize = 1024;
/// How often the handles of a process are looked at whose threads come and go.
const TRIES: usize = 8;

/// The ticket of what goes through a socket: those of programs are counted from 1.
const SENT: u64 = u64::MAX;

/// The files that may be written by handles; all of them if it is not known which.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Files {
    all: bool,
    keys: BTreeSet<(u64, u64)>,
}

impl Files {
    fn all() -> Self {
        Self { all: true, keys: BTreeSet::new() }
    }

    fn is_empty(&self) -> bool {
        !self.all && self.keys.is_empty()
    }

    pub(crate) fn has(&self, key: (u64, u64)) -> bool {
        self.all || self.keys.contains(&key)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.all |= other.all;
        self.keys.extend(&other.keys);
    }

    /// Those that a process can write to, now or, unless `closed` counts as well, as another
    /// program. The lists of all its threads count.
    fn of(process: u32, closed: bool) -> Self {
        // A list that several threads share is looked at through one of them, which may end.
        let mut tries = (0..TRIES).filter_map(|_| Self::found(process, closed));
        tries.next().unwrap_or_else(Self::all)
    }

    /// The same; `None` if a thread ended whose list was to be looked at.
    fn found(process: u32, closed: bool) -> Option<Self> {
        let mut keys = BTreeSet::new();
        let Some(folders) = holders::handle_lists(process) else { return Some(Self::all()) };
        for folder in folders {
            let ended = || std::fs::metadata(&folder).is_err();
            let Ok(handles) = holders::numbers(&format!("{folder}/fd")) else {
                return if ended() { None } else { Some(Self::all()) };
            };
            for handle in handles.into_iter().filter(|fd| goes_along(&folder, *fd, closed)) {
                match Seen::at(&format!("{folder}/fd/{handle}")) {
                    Ok(found) if !found.is_file => {}
                    Ok(found) if keys.len() < MOST => {
                        keys.insert((found.device, found.inode));
                    }
                    // Closed meanwhile: by another thread, so it does not go along.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound && !ended() => {}
                    Err(_) if ended() => return None,
                    Ok(_) | Err(_) => return Some(Self::all()),
                }
            }
            // One that ended shows an empty list.
            if ended() {
                return None;
            }
        }
        Some(Self { all: false, keys })
    }
}

/// Whether a handle can write, and stays open in another program.
fn goes_along(folder: &str, handle: u32, closed: bool) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("{folder}/fdinfo/{handle}")) else {
        return true;
    };
    let line = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let Some(flags) = line.and_then(|line| i32::from_str_radix(line.trim(), 8).ok()) else {
        return true;
    };
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0;
    writes && (closed || flags & libc::O_CLOEXEC == 0)
}

/// What is on its way to a program.
#[derive(Debug)]
pub(crate) struct Handing {
    /// Who told of it, and which of its starts it is; 0 if it becomes another program itself.
    by: u32,
    ticket: u64,
    files: Files,
    /// Those who may get it and are not set up yet. Readable when they are gone.
    to: BTreeMap<u32, Option<OwnedFd>>,
    /// Whether that is known.
    known: bool,
    /// Children of whoever told of it, before.
    before: BTreeSet<u32>,
    /// Those that were set up since.
    arrived: BTreeSet<u32>,
    since: Instant,
}

impl Handing {
    fn new(by: u32, ticket: u64, files: Files) -> Self {
        Self {
            by,
            ticket,
            files,
            to: BTreeMap::new(),
            known: false,
            before: children_of(by),
            arrived: BTreeSet::new(),
            since: Instant::now(),
        }
    }

    fn goes_to(&mut self, process: u32) {
        if self.arrived.contains(&process) {
            return;
        }
        let number = i32::try_from(process).ok().and_then(Pid::from_raw);
        let end = number.and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok());
        self.to.insert(process, end);
    }

    /// Who got it and never came to be set up.
    fn lost(&self) -> Option<u32> {
        let late = self.since.elapsed() > LATEST;
        if !self.known {
            return (late || proc::is_dead(self.by)).then_some(self.by);
        }
        let gone = |end: &Option<OwnedFd>| end.as_ref().is_none_or(is_over);
        self.to.iter().find(|(_, end)| late || gone(end)).map(|(process, _)| *process)
    }
}

/// Whether the process behind a descriptor is gone.
pub(crate) fn is_over(end: &OwnedFd) -> bool {
    let mut all = [PollFd::new(end, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut all, Some(&now)), Ok(0))
}

fn children_of(process: u32) -> BTreeSet<u32> {
    // That none is found is taken for one that is gone.
    proc::children(process).unwrap_or_default()
}

/// Who is at the other end of a socket, as the system knows it: who made it, or listened there.
fn other_end(socket: &OwnedFd) -> Option<u32> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = socket.as_raw_fd();
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: writes no more than `len` bytes into a value of that size.
    let done = unsafe { libc::getsockopt(fd, level, name, (&raw mut found).cast(), &raw mut len) };
    u32::try_from(found.pid).ok().filter(|process| done == 0 && *process > 0)
}

impl Guard {
    /// The files that are handed on at this moment.
    pub(crate) fn handed(&self) -> Files {
        let mut files = Files::default();
        self.handings.iter().for_each(|handing| files.add(&handing.files));
        files
    }

    /// A process is about to become another program, or did not after all.
    pub(crate) fn becomes(&mut self, process: u32, stays: bool) {
        self.handings.retain(|handing| handing.ticket != 0 || handing.by != process);
        if !stays {
            let mut handing = Handing::new(process, 0, Files::of(process, false));
            handing.goes_to(process);
            handing.known = true;
            self.hand(handing);
        }
        self.know();
    }

    /// A process is about to start another.
    pub(crate) fn spawn(&mut self, process: u32, ticket: u64, all: bool) {
        self.hand(Handing::new(process, ticket, Files::of(process, all)));
        self.know();
    }

    fn hand(&mut self, handing: Handing) {
        if handing.files.is_empty() {
            return;
        }
        if self.handings.len() >= MOST {
            let oldest = self.handings.remove(0);
            self.lose_handed(&oldest.files, "too many programs were started to be followed");
        }
        self.handings.push(handing);
    }

    /// It was started, or was not.
    pub(crate) fn spawned(&mut self, process: u32, ticket: u64, child: Spawned) {
        let it = |handing: &Handing| handing.by == process && handing.ticket == ticket;
        let Some(at) = self.handings.iter().position(it) else { return };
        let mut handing = self.handings.remove(at);
        let new: Vec<u32> = match child {
            Spawned::Nobody => Vec::new(),
            Spawned::Process(child) => vec![child],
            Spawned::Somebody => {
                let now = children_of(process);
                now.difference(&handing.before).copied().collect()
            }
        };
        if new.is_empty() && child != Spawned::Nobody {
            let why = format!("a child of process {process} was handed it, and is gone");
            self.lose_handed(&handing.files, &why);
        }
        new.into_iter().for_each(|child| handing.goes_to(child));
        handing.known = true;
        if !handing.to.is_empty() {
            self.handings.push(handing);
        }
        self.know();
    }

    /// A program says that it is set up.
    pub(crate) fn arrived(&mut self, process: u32) {
        let parent = proc::parent(process);
        for handing in &mut self.handings {
            handing.to.remove(&process);
            if Some(handing.by) == parent && !handing.known {
                handing.arrived.insert(process);
            }
        }
        self.handings.retain(|handing| !handing.known || !handing.to.is_empty());
    }

    /// Finds out who never came to be set up. At the end, nobody is waited for.
    pub(crate) fn follow_handed(&mut self, ends: bool) {
        // Who has something to say is heard first.
        if self.handings.is_empty() || !ends && !self.all_heard() {
            return;
        }
        // Of a file that is not guarded yet, nobody could be told.
        let waits = |files: &Files| self.asks.begins(|key| files.has(key));
        let (lost, rest): (Vec<_>, Vec<_>) = core::mem::take(&mut self.handings)
            .into_iter()
            .partition(|handing| ends || handing.lost().is_some() && !waits(&handing.files));
        self.handings = rest;
        for handing in &lost {
            let who = handing.lost().unwrap_or(handing.by);
            let why = format!("process {who} was handed it by a guarded one, and is not guarded");
            self.lose_handed(&handing.files, &why);
        }
        if !lost.is_empty() {
            self.know();
        }
    }

    fn lose_handed(&mut self, files: &Files, why: &str) {
        let theirs = self.files.values_mut().filter(|file| files.has(file.key()));
        theirs.for_each(|file| file.contest(why.to_owned()));
    }

    /// A handle that can write goes through a socket. Whoever may have the other end by now and is
    /// not set up yet may get it.
    pub(crate) fn send_on(
        &mut self,
        process: u32,
        file: u32,
        socket: Option<&OwnedFd>,
    ) -> Result<Answer, Refusal> {
        let known = self.known();
        let set_up = |id: &u32| {
            known.guarded.contains(id) && self.spaces.values().any(|space| space.process == *id)
        };
        let kept = socket.and_then(other_end).is_some_and(|to| set_up(&to));
        let coming = if kept { self.not_set_up(&known.guarded) } else { None };
        let file = self.files.get_mut(&(file as usize)).ok_or(Refusal::NoFile)?;
        let Some(coming) = coming else {
            file.contest(format!(
                "process {process} sent a handle of it to somebody who is not guarded, or is not \
                 known"
            ));
            return Ok(Answer::Done);
        };
        if !coming.is_empty() {
            let files = Files { all: false, keys: BTreeSet::from([file.key()]) };
            let mut handing = Handing::new(process, SENT, files);
            coming.into_iter().for_each(|id| handing.goes_to(id));
            handing.known = true;
            self.hand(handing);
            self.know();
        }
        Ok(Answer::Done)
    }

    /// Those that descend from guarded processes and do not announce what they do: on their way, or
    /// strangers. `None` if processes cannot be listed.
    fn not_set_up(&self, guarded: &BTreeSet<u32>) -> Option<BTreeSet<u32>> {
        let me = std::process::id();
        let roots = self.spaces.values().map(|space| space.process).chain([me]).collect();
        let others = proc::family(&roots)?.into_iter().filter(|id| {
            let known = *id == me || guarded.contains(id) || proc::is_dead(*id);
            // An anchor that was not told of yet runs none of the program's code.
            let anchors = || {
                let mut coming = self.spaces.values().filter(|space| space.is_coming());
                coming.any(|it| it.process != *id && proc::same_memory(it.process, *id))
            };
            !known && !anchors()
        });
        Some(others.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::os::unix::fs::MetadataExt;

    /// What may be written by a handle that stays open goes along; what is read does not, and what
    /// is closed on the way only if that may be changed.
    #[test]
    fn what_goes_along_is_told_by_its_handles() {
        let _alone = crate::alone();
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = file.as_file().metadata().unwrap();
        let key = (found.dev(), found.ino());
        let path = file.into_temp_path();
        let me = std::process::id();
        let has = |closed| Files::of(me, closed).has(key);
        assert!(!has(true), "it is closed");
        let reads = File::open(&path).unwrap();
        assert!(!has(true));
        let writes = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(has(true) && !has(false), "handles of this language close on the way");
        rustix::io::fcntl_setfd(&writes, rustix::io::FdFlags::empty()).unwrap();
        assert!(has(false));
        rustix::io::fcntl_setfd(&reads, rustix::io::FdFlags::empty()).unwrap();
        drop(writes);
        assert!(!has(true));
    }
}
