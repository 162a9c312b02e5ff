//! The kernel's asynchronous write protection: a store to a protected page lifts the protection of
//! that page by itself, and nobody waits. Which pages those were, [`pagemap`](super::pagemap) says.
//!
//! Opened for user mode only, which needs no privilege; stores by the kernel on behalf of this
//! process (a `read` into the page) are seen all the same, since nobody has to be asked about them.
//! The constants are our own: the headers of many distributions do not have them yet.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::error::TrackError;
use crate::call::ask;

/// Only faults in user mode are delivered. Needs no privilege.
const USER_MODE_ONLY: i32 = 1;
/// The version of the interface.
const API: u64 = 0xaa;
/// Pages that have no page-table entry yet can be protected.
const WP_UNPOPULATED: u64 = 1 << 13;
/// Shared memory and huge pages can be protected. (Files proper came with the asynchronous kind.)
const WP_SHARED: u64 = 1 << 12;
/// Faults on protected pages resolve themselves.
const WP_ASYNC: u64 = 1 << 15;
const WANTED: u64 = WP_SHARED | WP_UNPOPULATED | WP_ASYNC;

/// Registration for write protection.
const MODE_WP: u64 = 2;
/// Protect, rather than lift the protection.
const PROTECT: u64 = 1;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Range {
    start: u64,
    len: u64,
}

#[repr(C)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct WriteProtect {
    range: Range,
    mode: u64,
}

/// The number of a control call: 3 is both ways, 2 is reading.
const fn control<T>(way: u64, number: u64) -> u64 {
    way << 30 | (size_of::<T>() as u64) << 16 | API << 8 | number
}

const CONTROL_API: u64 = control::<Api>(3, 0x3f);
const CONTROL_REGISTER: u64 = control::<Register>(3, 0);
const CONTROL_UNREGISTER: u64 = control::<Range>(2, 1);
const CONTROL_PROTECT: u64 = control::<WriteProtect>(3, 6);

/// A right to track ranges of this process' addresses. Each range belongs to one of these at a
/// time; dropping it ends the tracking of all of them. It goes on belonging to the process that
/// made it in every child that inherits it.
#[derive(Debug)]
pub struct Uffd {
    file: OwnedFd,
}

impl Uffd {
    /// Asks the kernel what it has, then opens.
    ///
    /// # Errors
    /// [`TrackError::KernelLacks`] or [`TrackError::NoPermission`], each with the remedy.
    pub fn open() -> Result<Self, TrackError> {
        // One that has been asked for its features cannot be opened with others any more.
        let offered = Self::raw()?.hello(0)?;
        if offered & WANTED != WANTED {
            return Err(TrackError::KernelLacks {
                what: "asynchronous write protection (userfaultfd)",
                since: "Linux 6.7, CONFIG_PTE_MARKER_UFFD_WP",
            });
        }
        let uffd = Self::raw()?;
        uffd.hello(WANTED)?;
        Ok(uffd)
    }

    fn raw() -> Result<Self, TrackError> {
        let flags = USER_MODE_ONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        ask("userfaultfd", Errno::MFILE)
            .map_err(|error| TrackError::Io { call: "userfaultfd", source: error.into() })?;
        // SAFETY: takes flags and answers a descriptor or an error.
        let file = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let error = io::Error::last_os_error();
        let failed = match error.raw_os_error() {
            _ if file >= 0 => {
                // SAFETY: a descriptor that was just opened and belongs to nobody yet.
                return Ok(Self { file: unsafe { OwnedFd::from_raw_fd(file as i32) } });
            }
            Some(libc::ENOSYS) => TrackError::KernelLacks {
                what: "userfaultfd",
                since: "Linux 4.3, CONFIG_USERFAULTFD",
            },
            Some(libc::EINVAL) => TrackError::KernelLacks {
                what: "userfaultfd for user mode only",
                since: "Linux 5.11",
            },
            Some(libc::EPERM | libc::EACCES) => TrackError::NoPermission {
                what: "userfaultfd",
                remedy: "a filter of system calls (a container's seccomp profile) refuses it: \
                         allow userfaultfd there",
            },
            _ => TrackError::Io { call: "userfaultfd", source: error },
        };
        Err(failed)
    }

    /// Agrees on the interface; answers what the kernel offers.
    fn hello(&self, features: u64) -> Result<u64, TrackError> {
        let mut api = Api { api: API, features, ioctls: 0 };
        self.call(CONTROL_API, &mut api)
            .map_err(|source| TrackError::Io { call: "ioctl(UFFDIO_API)", source })?;
        Ok(api.features)
    }

    /// Calls the kernel with a structure of the size that the number says.
    fn call<T>(&self, number: u64, argument: &mut T) -> io::Result<()> {
        ask("ioctl", Errno::IO)?;
        // SAFETY: every number is made by `control` from the type of its argument, which lives
        // across the call; the kernel checks what the structure says. Asynchronous protection,
        // the only thing asked for, changes no byte and stops no access, whatever the addresses.
        let done =
            unsafe { libc::ioctl(self.file.as_raw_fd(), number, core::ptr::from_mut(argument)) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Registers `[start, start + len)`, whole pages, which is mapped all over. What was registered
    /// by this one before is left as it is; new parts are not protected yet.
    ///
    /// # Errors
    /// [`TrackError::Busy`] if another one tracks part of it, [`TrackError::NotTrackable`].
    pub fn register(&self, start: usize, len: u64) -> Result<(), TrackError> {
        let range = Range { start: start as u64, len };
        let mut register = Register { range, mode: MODE_WP, ioctls: 0 };
        let refuse = |why| TrackError::NotTrackable { address: start, len, why };
        self.call(CONTROL_REGISTER, &mut register).map_err(|source| match source.raw_os_error() {
            Some(libc::EBUSY) => {
                TrackError::Busy { what: "another userfaultfd tracks these pages" }
            }
            Some(libc::EPERM) => refuse("the file was opened read-only, so it is never stored to"),
            Some(libc::EINVAL) => refuse("the kernel cannot protect this kind of memory"),
            Some(libc::ENOMEM) => {
                refuse("it is not mapped all over, or the limit of mappings is met")
            }
            _ => TrackError::Io { call: "ioctl(UFFDIO_REGISTER)", source },
        })
    }

    /// Ends the tracking of `[start, start + len)`; parts that are not tracked are left alone.
    ///
    /// # Errors
    /// What the system said.
    pub fn unregister(&self, start: usize, len: u64) -> Result<(), TrackError> {
        let mut range = Range { start: start as u64, len };
        self.call(CONTROL_UNREGISTER, &mut range)
            .map_err(|source| TrackError::Io { call: "ioctl(UFFDIO_UNREGISTER)", source })
    }

    /// Protects the registered range `[start, start + len)`: from here on, the next store to each
    /// page is seen. Holes get page-table entries too, so arm what is allocated only.
    ///
    /// # Errors
    /// [`TrackError::NotTrackable`] if part of it is not registered.
    pub fn protect(&self, start: usize, len: u64) -> Result<(), TrackError> {
        self.set_protection(start, len, PROTECT)
    }

    /// Lifts the protection: every page counts as stored to.
    ///
    /// # Errors
    /// As for [`protect`](Self::protect).
    pub fn unprotect(&self, start: usize, len: u64) -> Result<(), TrackError> {
        self.set_protection(start, len, 0)
    }

    fn set_protection(&self, start: usize, len: u64, mode: u64) -> Result<(), TrackError> {
        let range = Range { start: start as u64, len };
        let mut argument = WriteProtect { range, mode };
        loop {
            match self.call(CONTROL_PROTECT, &mut argument) {
                Ok(()) => return Ok(()),
                // The address space is changing (a fork, say): the kernel asks to come again.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                    let why = "it is not registered: it was unmapped, moved or mapped over";
                    return Err(TrackError::NotTrackable { address: start, len, why });
                }
                Err(source) => {
                    return Err(TrackError::Io { call: "ioctl(UFFDIO_WRITEPROTECT)", source });
                }
            }
        }
    }
}

/// For whoever keeps it open: tracking lasts as long as any process has the descriptor.
impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As printed by a C program with the kernel's own headers.
    #[test]
    fn numbers_are_the_kernels() {
        assert_eq!(CONTROL_API, 0xc018_aa3f);
        assert_eq!(CONTROL_REGISTER, 0xc020_aa00);
        assert_eq!(CONTROL_UNREGISTER, 0x8010_aa01);
        assert_eq!(CONTROL_PROTECT, 0xc018_aa06);
    }
}
