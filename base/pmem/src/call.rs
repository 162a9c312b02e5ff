//! Calls that the system may refuse: each that this crate makes is asked for here first, so that a
//! test can have any of them refused ([`fail_call`](crate::inject::fail_call)).
//!
//! | asked for | refused for real by |
//! |---|---|
//! | opening, locking, lengthening, naming, syncing files and folders | full disks and tables |
//! | mapping, and changing rights of what is mapped | no addresses, too many mappings |
//! | what tracks stores: `userfaultfd`, page maps | other users of it, filters of calls |
//! | threads | limits of users and groups |
//!
//! What makes something durable has a name besides ([`sync_data`], [`sync_all`], writes that wait),
//! by which a test can have it left out. It is told with its file, as is what changes a file: so a
//! test knows what a power cut could have taken back.
//!
//! What is asked in a signal handler is not among them: there is nobody to be told. Nor are calls
//! that only look, and calls whose refusal changes nothing but speed. As long as no test has said
//! anything, asking costs one load of a word that nobody writes.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use rustix::io::Errno;

use crate::site::Site;

/// Whether a test wants to know of calls.
static HEARD: AtomicBool = AtomicBool::new(false);
/// Calls asked for since.
static ASKED: AtomicU64 = AtomicU64::new(0);
/// Which of them is refused, counted from one; and whether all after it are.
static NTH: AtomicU64 = AtomicU64::new(0);
static FOR_EVER: AtomicBool = AtomicBool::new(false);
/// The first that was refused.
static REFUSED: Mutex<Option<&'static str>> = Mutex::new(None);
/// What was asked for, and what is left out of it.
static LISTENER: Mutex<Option<Listener>> = Mutex::new(None);

/// A call that was asked for while a test listened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Its name.
    pub call: &'static str,
    /// The name of its place, if it makes something durable.
    pub site: Option<Site>,
    /// Number of the file or folder that it changes or makes durable, if that was said.
    pub inode: Option<u64>,
}

#[derive(Debug, Default)]
struct Listener {
    told: Vec<Told>,
    off: Option<String>,
}

/// How long calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fails {
    /// One does.
    Once,
    /// All do from then on.
    ForEver,
}

/// What became of calls while they were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// How many there were.
    pub calls: u64,
    /// The first that was refused.
    pub refused: Option<&'static str>,
}

pub(crate) fn fail_call(nth: u64, fails: Fails) {
    fail_no_call();
    NTH.store(nth, Ordering::Relaxed);
    FOR_EVER.store(fails == Fails::ForEver, Ordering::Relaxed);
    HEARD.store(true, Ordering::Release);
}

pub(crate) fn listen(off: Option<&str>) {
    fail_no_call();
    *listener() = Some(Listener { told: Vec::new(), off: off.map(str::to_owned) });
    NTH.store(u64::MAX, Ordering::Relaxed);
    HEARD.store(true, Ordering::Release);
}

pub(crate) fn told() -> Vec<Told> {
    fail_no_call();
    listener().take().map_or_else(Vec::new, |listener| listener.told)
}

fn listener() -> MutexGuard<'static, Option<Listener>> {
    LISTENER.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn fail_no_call() -> Asked {
    HEARD.store(false, Ordering::Release);
    let refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner).take();
    Asked { calls: ASKED.swap(0, Ordering::Relaxed), refused }
}

/// Asks whether `call` may be made. `as_errno` is what the system says when it refuses it.
///
/// # Errors
/// That, if a test wants this one to be refused.
#[inline]
pub fn ask(call: &'static str, as_errno: Errno) -> Result<(), Errno> {
    if HEARD.load(Ordering::Relaxed) {
        heard(Told { call, site: None, inode: None }, as_errno)?;
    }
    Ok(())
}

/// The same, of a call that changes `file`: what it leaves is to be made durable.
///
/// # Errors
/// As [`ask`].
#[inline]
pub fn ask_of(call: &'static str, as_errno: Errno, file: BorrowedFd<'_>) -> Result<(), Errno> {
    if HEARD.load(Ordering::Relaxed) {
        heard(Told { call, site: None, inode: inode_of(file) }, as_errno)?;
    }
    Ok(())
}

/// Makes a file longer or shorter.
///
/// # Errors
/// The system's answer, or that of a test.
pub fn set_len(file: &File, len: u64) -> io::Result<()> {
    ask_of("ftruncate", Errno::NOSPC, file.as_fd())?;
    file.set_len(len)
}

/// Writes all of `bytes` to a file.
///
/// # Errors
/// The system's answer, or that of a test.
pub fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    ask_of("pwrite", Errno::IO, file.as_fd())?;
    file.write_all_at(bytes, at)
}

/// Makes the bytes of a file durable: `fdatasync`.
///
/// # Errors
/// The system's answer, or that of a test.
pub fn sync_data(site: Site, file: impl AsFd) -> io::Result<()> {
    if is_on("fdatasync", site, file.as_fd())? {
        rustix::fs::fdatasync(file)?;
    }
    Ok(())
}

/// Makes a file or the names in a folder durable, with all that belongs to it: `fsync`.
///
/// # Errors
/// The system's answer, or that of a test.
pub fn sync_all(site: Site, file: &File) -> io::Result<()> {
    if is_on("fsync", site, file.as_fd())? {
        file.sync_all()?;
    }
    Ok(())
}

/// Whether a write to `file` is to wait until it is durable.
///
/// # Errors
/// That of a test.
pub(crate) fn waits(site: Site, file: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(is_on("pwritev2 that waits", site, file)?)
}

/// Whether a test has not switched this place off.
fn is_on(call: &'static str, site: Site, file: BorrowedFd<'_>) -> Result<bool, Errno> {
    if !HEARD.load(Ordering::Relaxed) {
        return Ok(true);
    }
    heard(Told { call, site: Some(site), inode: inode_of(file) }, Errno::IO)
}

fn inode_of(file: BorrowedFd<'_>) -> Option<u64> {
    rustix::fs::fstat(file).ok().map(|stat| stat.st_ino)
}

/// Counts and tells a call; whether its place is not switched off.
#[cold]
fn heard(told: Told, as_errno: Errno) -> Result<bool, Errno> {
    let mut on = true;
    if let Some(listener) = listener().as_mut() {
        on = listener.off.is_none() || listener.off.as_deref() != told.site.map(Site::name);
        if on {
            listener.told.push(told);
        }
    }
    let number = ASKED.fetch_add(1, Ordering::Relaxed) + 1;
    let nth = NTH.load(Ordering::Relaxed);
    if number != nth && (number < nth || !FOR_EVER.load(Ordering::Relaxed)) {
        return Ok(on);
    }
    REFUSED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(told.call);
    Err(as_errno)
}

/// Starts a thread of this name.
///
/// # Errors
/// The system has none to give.
pub fn start_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    ask("clone", Errno::AGAIN)?;
    Builder::new().name(name.to_owned()).spawn(work)
}
