//! Writers that nobody tracks: other processes, other handles of this one. They cannot be refused,
//! only noticed; from then on the file is contested, checked and not repaired.
//!
//! | what happens | heard as | taken as |
//! |---|---|---|
//! | somebody has it open for writing when it begins | a look at all processes | contested |
//! | it is opened | `OPEN`, and another look | contested if for writing |
//! | `write`, `truncate` | `MODIFY`, unless it is our own | contested |
//! | a handle for writing is closed | `CLOSE_WRITE` | contested |
//!
//! Not heard: stores through a mapping by a process of another user, whose handles this one may not
//! see, as long as it keeps the handle; a mapping of this process that was made for reading and is
//! given the right to write later.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdfast_pmem::Ours;
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};

/// Bytes before the name of an event.
const EVENT: usize = 16;
/// Processes and handles looked at.
const MOST_LOOKED_AT: u32 = 200_000;

/// Listens for writers to one file.
#[derive(Debug)]
pub(crate) struct Watch {
    device: u64,
    inode: u64,
    /// Handles of this process that are ours.
    own: BTreeSet<u64>,
    state: Mutex<State>,
}

/// What this process has of a file before it is opened to be kept.
#[derive(Debug)]
pub(crate) struct Before {
    handles: BTreeSet<u64>,
    mapped: bool,
}

impl Before {
    pub(crate) fn of(path: &Path) -> std::io::Result<Self> {
        let found = fs::metadata(path)?;
        let (device, inode) = (found.dev(), found.ino());
        let mapped = maps(Path::new("/proc/self"), (device, inode));
        Ok(Self { handles: own_handles(device, inode), mapped })
    }
}

#[derive(Debug)]
struct State {
    /// Nothing where the system has no ears left.
    ear: Option<OwnedFd>,
    /// Why the file is contested.
    why: Option<String>,
}

impl Watch {
    /// Begins to listen. Every handle that this process has of the file, of those not in `before`,
    /// is taken for ours.
    pub(crate) fn begin(file: &fs::File, before: &Before) -> Self {
        let (device, inode) = file.metadata().map_or((0, 0), |found| (found.dev(), found.ino()));
        let ear = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok().filter(|ear| {
            let what = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::OPEN;
            let name = format!("/proc/self/fd/{}", file.as_raw_fd());
            add_watch(ear, name, what).is_ok()
        });
        let all = own_handles(device, inode);
        let own = all.difference(&before.handles).copied().collect();
        let this = Self { device, inode, own, state: Mutex::new(State { ear, why: None }) };
        // What was there before the ear was.
        let mapped = before.mapped.then(|| "this process stores to it by a mapping".to_owned());
        let present = mapped.or_else(|| this.present());
        this.state().why = present;
        this
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything can be heard at all.
    pub(crate) fn listens(&self) -> bool {
        self.state().ear.is_some()
    }

    /// Hears what happened since the last look. Why the file is contested, if it is.
    pub(crate) fn look(&self) -> Option<String> {
        let mut state = self.state();
        self.hear(&mut state, false);
        state.why.clone()
    }

    /// Begins anew: what is there now is accepted, whoever wrote it. Only a look of now counts.
    pub(crate) fn forgive(&self) {
        let mut state = self.state();
        self.hear(&mut state, false);
        state.why = self.present();
    }

    fn hear(&self, state: &mut State, ours: bool) {
        let Some(ear) = &state.ear else { return };
        let mut bytes = [0_u8; 4096];
        let mut heard = WatchFlags::empty();
        let mut missed = false;
        while let Ok(len @ 1..) = rustix::io::read(ear, &mut bytes) {
            let mut rest = &bytes[..len];
            while rest.len() >= EVENT {
                let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| rest[at + i]));
                let what = word(4);
                heard |= WatchFlags::from_bits_retain(what);
                missed |= what & OVERFLOWED != 0;
                rest = rest.get(EVENT + word(12) as usize..).unwrap_or_default();
            }
        }
        if state.why.is_some() {
            return;
        }
        state.why = if missed {
            Some("too much happened to it to be followed".to_owned())
        } else if heard.contains(WatchFlags::MODIFY) && !ours {
            Some("it was written to by somebody who is not tracked".to_owned())
        } else if heard.contains(WatchFlags::CLOSE_WRITE) {
            Some("somebody who is not tracked had it open for writing".to_owned())
        } else if heard.contains(WatchFlags::OPEN) {
            self.present()
        } else {
            None
        };
    }

    /// Who has the file open for writing now, other than through our own handles.
    fn present(&self) -> Option<String> {
        if own_handles(self.device, self.inode).iter().any(|handle| !self.own.contains(handle)) {
            return Some("this process has it open for writing another time".to_owned());
        }
        writer_of(self.device, self.inode).map(told)
    }
}

impl Ours for Watch {
    fn ours(&self, change: &mut dyn FnMut()) {
        let mut state = self.state();
        self.hear(&mut state, false);
        change();
        self.hear(&mut state, true);
    }
}

/// The event that says that some were lost.
const OVERFLOWED: u32 = 0x4000;

fn told(process: u32) -> String {
    format!("process {process} has it open for writing")
}

/// Why a file is not at rest: another process has it open for writing.
pub(crate) fn unrest(file: &fs::File) -> Option<String> {
    let found = file.metadata().ok()?;
    writer_of(found.dev(), found.ino()).map(told)
}

/// Handles of this process that can write to a file.
fn own_handles(device: u64, inode: u64) -> BTreeSet<u64> {
    let mut left = MOST_LOOKED_AT;
    handles(Path::new("/proc/self"), (device, inode), &mut left)
}

/// Another process that has a file open, or mapped, for writing, of those that may be looked at.
fn writer_of(device: u64, inode: u64) -> Option<u32> {
    let me = std::process::id();
    let mut left = MOST_LOOKED_AT;
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let name = process.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if id == me {
            continue;
        }
        left = left.checked_sub(1)?;
        let at = process.path();
        if !handles(&at, (device, inode), &mut left).is_empty() || maps(&at, (device, inode)) {
            return Some(id);
        }
    }
    None
}

/// Handles of a process that can write to a file.
fn handles(process: &Path, file: (u64, u64), left: &mut u32) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let Ok(open) = fs::read_dir(process.join("fd")) else { return found };
    for handle in open.flatten() {
        let Some(rest) = left.checked_sub(1) else { break };
        *left = rest;
        let same = fs::metadata(handle.path()).is_ok_and(|of| (of.dev(), of.ino()) == file);
        if !same {
            continue;
        }
        let name = handle.file_name();
        let flags = fs::read_to_string(process.join("fdinfo").join(&name)).unwrap_or_default();
        let flags = flags.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
        // One that cannot be read might be anything.
        let writes = flags.is_none_or(|flags| flags & 3 != 0);
        if writes && let Some(number) = name.to_str().and_then(|name| name.parse().ok()) {
            found.insert(number);
        }
    }
    found
}

/// Whether a process maps a file so that it can store to it.
fn maps(process: &Path, (device, inode): (u64, u64)) -> bool {
    let Ok(all) = fs::read_to_string(process.join("maps")) else { return false };
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    all.lines().any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (Some(rights), Some(_), Some(on), Some(number)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return false;
        };
        let on = on.split_once(':').and_then(|(major, minor)| {
            Some((u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?))
        });
        let writes = rights.contains('w') && rights.contains('s');
        writes && number.parse() == Ok(inode) && on == Some(device)
    })
}
