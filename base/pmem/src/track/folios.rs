//! How the page cache holds a file: in small pieces, so that a first store is cheap.
//!
//! Kernels of late cache files in folios of up to 2 MiB. The first store to a protected page of
//! one costs 8-18 us on ext4 (measured on 6.18), against 1.5 us in a folio of one page: of random
//! stores to a gigabyte that is re-armed each second, a thousandth remains. The remedy is to ask
//! for random access *before* pages are cached: then the cache is filled page by page. What is
//! cached already is dropped first, where it is clean and not mapped by anybody: the kernel drops
//! nothing else, so no byte is at risk.

use core::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::error::TrackError;
use super::span::{Span, address};
use crate::file::IN_MEMORY;
use crate::mapped::Mapped;
use crate::medium::Medium;

/// `cachestat`, by its number (Linux 6.5).
const CACHESTAT: i64 = 451;

/// Bytes read ahead by one call.
const WARM: u64 = 1 << 20;

/// Which pieces the cache is to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Folios {
    /// Those the kernel chooses.
    AsFound,
    /// Single pages, warmed by reading ahead.
    #[default]
    Small,
}

/// What was done, and what is the case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolioReport {
    /// What was asked for.
    pub asked: Folios,
    /// The file lives in memory: its pages are what they were made as.
    pub in_memory: bool,
    /// The file is marked for random access.
    pub file_advised: bool,
    /// The mapping is.
    pub mapping_advised: bool,
    /// Pages in the cache before, if the kernel tells.
    pub cached_before: Option<u64>,
    /// Pages that were kept, being dirty or mapped: their folios are as they were.
    pub kept: Option<u64>,
    /// Pages in the cache after reading ahead.
    pub cached_after: Option<u64>,
}

impl FolioReport {
    /// Whether all pages that will be cached from now on, and all that are, are small as far as is
    /// known.
    #[must_use]
    pub fn small(&self) -> bool {
        self.file_advised && !self.in_memory && self.kept == Some(0)
    }
}

impl fmt::Display for FolioReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.asked == Folios::AsFound {
            return f.write_str("folios as the kernel chooses");
        }
        if self.in_memory {
            return f.write_str("folios as they were made: the file lives in memory");
        }
        let told = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |n| n.to_string());
        write!(
            f,
            "small folios {}; mapping {}advised; pages cached: {} before, {} kept as they were, {} \
             now",
            if self.file_advised { "asked for" } else { "REFUSED" },
            if self.mapping_advised { "" } else { "not " },
            told(self.cached_before),
            told(self.kept),
            told(self.cached_after),
        )
    }
}

/// Puts a policy in force for the first `len` bytes of a file. Best before it is mapped, or before
/// the mapping is touched, and through the descriptor that it is (or will be) mapped by.
///
/// # Errors
/// The file cannot be asked what it lies on. A system that ignores the advice is reported.
pub fn apply(file: BorrowedFd<'_>, len: u64, asked: Folios) -> Result<FolioReport, TrackError> {
    let stat = rustix::fs::fstatfs(file)
        .map_err(|error| TrackError::Io { call: "fstatfs", source: error.into() })?;
    let mut report = FolioReport {
        asked,
        in_memory: IN_MEMORY.contains(&stat.f_type),
        file_advised: false,
        mapping_advised: false,
        cached_before: cached(file, len),
        kept: None,
        cached_after: None,
    };
    if asked == Folios::AsFound || report.in_memory {
        report.cached_after = report.cached_before;
        return Ok(report);
    }
    let Ok(bytes) = i64::try_from(len) else {
        return Err(TrackError::OutOfRange { at: 0, len });
    };
    let raw = file.as_raw_fd();
    // SAFETY: advice about a descriptor that is open: takes numbers only, and changes no byte.
    unsafe {
        report.file_advised = libc::posix_fadvise(raw, 0, 0, libc::POSIX_FADV_RANDOM) == 0;
        libc::posix_fadvise(raw, 0, bytes, libc::POSIX_FADV_DONTNEED);
        report.kept = cached(file, len);
    }
    for from in (0..bytes).step_by(WARM as usize) {
        // SAFETY: as above. One call reads no more than the device takes at once.
        unsafe { libc::readahead(raw, from, WARM as usize) };
    }
    report.cached_after = cached(file, len);
    Ok(report)
}

/// Marks a mapping for random access, so that its faults read single pages.
///
/// # Errors
/// What the system said.
pub fn advise(span: Span) -> Result<(), TrackError> {
    // SAFETY: the advice changes how faults read ahead, no byte and no right, whatever is mapped.
    let done =
        unsafe { libc::madvise(address(span.address), span.len as usize, libc::MADV_RANDOM) };
    if done == 0 { Ok(()) } else { Err(TrackError::last("madvise(MADV_RANDOM)")) }
}

/// Puts a policy in force for a medium that was just opened and not used yet.
///
/// # Errors
/// As [`apply`] and [`advise`].
pub fn apply_to(medium: &Mapped, asked: Folios) -> Result<FolioReport, TrackError> {
    let mut report = apply(medium.backing().fd().as_fd(), medium.len(), asked)?;
    if asked == Folios::Small && !report.in_memory {
        advise(Span::new(medium.store_base(), medium.len(), 0)?)?;
        report.mapping_advised = true;
    }
    Ok(report)
}

/// Pages of the file in the cache, if the kernel tells.
fn cached(file: BorrowedFd<'_>, len: u64) -> Option<u64> {
    #[repr(C)]
    struct Asked {
        at: u64,
        len: u64,
    }
    let asked = Asked { at: 0, len };
    // Cached, dirty, under writeback, evicted, recently evicted.
    let mut told = [0_u64; 5];
    // SAFETY: both structures have the layout of the call and live across it.
    let done = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const asked, told.as_mut_ptr(), 0)
    };
    match (done, io::Error::last_os_error().raw_os_error()) {
        (0, _) => Some(told[0]),
        _ => None,
    }
}
