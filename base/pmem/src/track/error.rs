//! Why pages could not be tracked, and what to do about it.

use core::fmt;
use std::io;

use crate::medium::{MediaError, SyncError};

/// Why a dirty source could not be made, armed or asked. Nothing was lost by it: a source that
/// fails has cleared nothing that it has not told.
#[derive(Debug)]
pub enum TrackError {
    /// The kernel is too old, or was built without it.
    KernelLacks {
        /// What it lacks.
        what: &'static str,
        /// The version that brought it, and the option it hangs on.
        since: &'static str,
    },
    /// The kernel has it and forbids it to this process.
    NoPermission {
        /// What is forbidden.
        what: &'static str,
        /// How to be allowed.
        remedy: &'static str,
    },
    /// The addresses cannot be tracked: not mapped, not a shared mapping of one file, or of a kind
    /// of memory that the kernel cannot protect.
    NotTrackable {
        /// First address.
        address: usize,
        /// Bytes.
        len: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Somebody else tracks it already, in a way that excludes us.
    Busy {
        /// What is taken.
        what: &'static str,
    },
    /// The range is not one of whole pages inside what the source tracks.
    OutOfRange {
        /// First byte of the file.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// This process is a forked child of the one that made the source.
    Forked,
    /// The medium that keeps the bits failed.
    Media(MediaError),
    /// A write of the bits failed.
    Sync(SyncError),
    /// Another system call failed.
    Io {
        /// The call.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl TrackError {
    /// The last error of the system, in this call.
    pub(crate) fn last(call: &'static str) -> Self {
        Self::Io { call, source: io::Error::last_os_error() }
    }
}

impl fmt::Display for TrackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KernelLacks { what, since } => {
                write!(f, "this kernel has no {what} ({since}); use another dirty source")
            }
            Self::NoPermission { what, remedy } => {
                write!(f, "{what} is not permitted to this process; {remedy}")
            }
            Self::NotTrackable { address, len, why } => {
                write!(f, "addresses {address:#x}+{len:#x} cannot be tracked: {why}")
            }
            Self::Busy { what } => {
                write!(f, "{what} already; stop that first, two cannot share it")
            }
            Self::OutOfRange { at, len } => write!(
                f,
                "range {at:#x}+{len:#x} is not one of whole pages inside what is tracked; round it \
                 to pages"
            ),
            Self::Forked => {
                f.write_str("the source belongs to the process that forked this one; make one here")
            }
            Self::Media(error) => write!(f, "the dirty bits cannot be kept: {error}"),
            Self::Sync(error) => write!(f, "the dirty bits cannot be kept: {error}"),
            Self::Io { call, source } => write!(f, "{call} failed while tracking: {source}"),
        }
    }
}

impl std::error::Error for TrackError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Media(error) => Some(error),
            Self::Sync(error) => Some(error),
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<MediaError> for TrackError {
    fn from(error: MediaError) -> Self {
        Self::Media(error)
    }
}

impl From<SyncError> for TrackError {
    fn from(error: SyncError) -> Self {
        Self::Sync(error)
    }
}
