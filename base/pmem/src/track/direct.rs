//! Which files are mapped without a page cache, straight from persistent memory (fs-dax).
//!
//! Asynchronous write protection leaves a mark in the page table where no page is. A file system
//! with direct access does not fill a place that is marked: its fault comes back with nothing done,
//! and the store is done again, and again, for ever (found on Linux 6.12). A page that is there
//! when it is protected is no better off: the mark stays when the page leaves the table.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, statx};

use super::error::TrackError;
use crate::medium::PAGE;
use crate::space::can_sync;

/// Whether a file is mapped directly. One of which the system does not say it, is, if it can be
/// mapped so that stores need no sync.
#[must_use]
pub fn is_direct(file: BorrowedFd<'_>) -> bool {
    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE);
    let told = found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::DAX));
    told || can_sync(file, PAGE as usize)
}

/// Refuses to protect what would stand still for ever.
pub(super) fn refuse(file: BorrowedFd<'_>) -> Result<(), TrackError> {
    if is_direct(file) {
        return Err(TrackError::KernelLacks {
            what: "asynchronous write protection of files on persistent memory (fs-dax)",
            since: "none is known to; a program that stores there would never go on",
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn what_has_a_page_cache_is_not_direct() {
        // Elsewhere a temporary file may well lie on such memory.
        let in_memory = memfd_create(c"cached", MemfdFlags::CLOEXEC).unwrap();
        let shared = std::fs::File::from(in_memory);
        for file in [shared, tempfile::tempfile_in("/dev/shm").unwrap()] {
            file.set_len(PAGE).unwrap();
            assert!(!is_direct(file.as_fd()));
            assert!(refuse(file.as_fd()).is_ok());
        }
    }
}
