//! Fault injection into a live mapping: real signals, for campaigns and for the command line.
//!
//! A poisoned page is made by mapping a file without bytes over it, in every view: each access
//! then raises a true `SIGBUS`, in the kernel's own way, with the true address. The contents are
//! destroyed as well, so that no repair can fetch them from the file behind.
//!
//! A pool that must not be damaged is protected from this by whoever offers it to users, not here.

pub mod device;

mod durable;

pub use crate::call::{Asked, Fails, Told};
pub use durable::taken_back;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

use crate::call;
use crate::handler;
use crate::mapped::Mapped;
use crate::medium::MediaError;

/// What becomes of a poisoned page that is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poison {
    /// [`heal`](crate::Medium::heal) restores it.
    Clearable,
    /// It stays bad: `heal` fails until the frame is served from elsewhere
    /// ([`remap`](crate::Medium::remap)).
    Unclearable,
}

/// Poisons the pages of `[at, at + len)`, both multiples of a page. It is the place in the file
/// that is bad: relocating the frame leaves it behind.
///
/// # Errors
/// [`MediaCause::OutOfRange`](crate::MediaCause::OutOfRange) if the range is not one of whole
/// pages inside the medium, or the pages could not be replaced.
pub fn poison(medium: &Mapped, at: u64, len: u64, kind: Poison) -> Result<(), MediaError> {
    medium.poison(at, len, kind)
}

/// Says to this thread what the kernel says of an address with `SIGBUS` and this code, as a load or
/// store there would make it: an extent of `1 << shift` bytes, where the code tells of one.
///
/// # Panics
/// The system refuses the signal.
pub fn signal_bus(code: i32, address: usize, shift: u64) {
    // As the kernel lays it out on x86-64: signal, error, code, a gap, address, extent.
    let mut words = [0_u64; 16];
    words[..4].copy_from_slice(&[libc::SIGBUS as u64, code as u64, address as u64, shift]);
    // SAFETY: sends a signal to this thread; the kernel reads as many words as there are.
    let sent = unsafe {
        let (process, thread) = (libc::getpid(), libc::gettid());
        let call = libc::SYS_rt_tgsigqueueinfo;
        libc::syscall(call, process, thread, libc::SIGBUS, words.as_ptr())
    };
    assert_eq!(sent, 0, "the system refuses the signal");
}

/// The byte of the file that serves the byte at `at` of the medium: another one once its frame was
/// relocated.
#[must_use]
pub fn place_in_file(medium: &Mapped, at: u64) -> u64 {
    medium.place_in_file(at)
}

/// Makes the `nth` write or sync of the file from now on fail with an input/output error instead
/// of being done; 1 is the next. Counts [`append`](crate::Medium::append) and
/// [`sync`](crate::Medium::sync) on a file medium, and the sync inside
/// [`grow`](crate::Medium::grow).
pub fn fail_sync(medium: &Mapped, nth: u32) {
    medium.backing().fail_in(nth);
}

/// Has the `nth` call that this process asks the system for from now on ([`crate::call`]) refused,
/// or it and all that follow; 1 is the next. They are counted until [`fail_no_call`].
pub fn fail_call(nth: u64, fails: Fails) {
    call::fail_call(nth, fails);
}

/// Has no call refused any more, and tells what became of those since [`fail_call`].
pub fn fail_no_call() -> Asked {
    call::fail_no_call()
}

/// Has what this process asks the system for from now on written down, and the sync of this name
/// left out if there is one, as if the system had lied. Until [`told`].
pub fn listen(off: Option<&str>) {
    call::listen(off);
}

/// What was asked for since [`listen`]; not what was left out.
#[must_use]
pub fn told() -> Vec<Told> {
    call::told()
}

/// Times the fault handler ran in this process: once per access that met a bad page. Healing or
/// failing to heal a poisoned page of a writable medium adds none.
#[must_use]
pub fn handler_count() -> u64 {
    handler::count()
}

/// A file in memory that holds `bytes`: it lives as long as it is mapped.
pub(crate) fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    call::ask("memfd_create", Errno::MFILE)?;
    let file = memfd_create("holdfast-stand-in", MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(file);
    io::Write::write_all(&mut file, bytes)?;
    Ok(file.into())
}

/// The file without bytes, one for the process.
pub(crate) fn empty_file() -> io::Result<BorrowedFd<'static>> {
    static EMPTY: OnceLock<Result<OwnedFd, i32>> = OnceLock::new();
    EMPTY
        .get_or_init(|| {
            memfd_create("holdfast-poison", MemfdFlags::CLOEXEC)
                .map_err(rustix::io::Errno::raw_os_error)
        })
        .as_ref()
        .map(AsFd::as_fd)
        .map_err(|errno| io::Error::from_raw_os_error(*errno))
}
