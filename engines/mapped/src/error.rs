//! What can go wrong with the protection of a file as a whole.

use core::fmt;

use holdfast_pmem::track::TrackError;
use holdfast_pmem::{MediaError, SyncError};

/// Why a file could not be protected, or its redundancy not be used. The data file is as it was
/// unless a variant says otherwise.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Bytes of the side file cannot be used and cannot be done without.
    Media(MediaError),
    /// A write or sync of the side file failed: nothing is written any more until the file is
    /// opened anew.
    Sync(SyncError),
    /// A place of the data file took no other bytes.
    Data(MediaError),
    /// The data file could not be synced: as [`Sync`](Self::Sync).
    DataSync(SyncError),
    /// The records of the side file cannot be read or written.
    Redundancy(holdfast_redundancy::Error),
    /// What was stored to cannot be asked.
    Track(TrackError),
    /// The system does not say which file the data file is, and how long. Nothing was forgotten for
    /// that: it may be tried again.
    Identity(std::io::Error),
    /// The options cannot make a side file.
    Options {
        /// What is wrong and what to do.
        what: &'static str,
        /// The value refused.
        found: u64,
    },
    /// This is no side file at all.
    NotASideFile,
    /// Both headers of the side file are damaged.
    Damaged,
    /// The side file was written by a newer build.
    Newer {
        /// Version of its format.
        version: u32,
    },
    /// The side file uses features this build does not know.
    Features {
        /// Those features.
        mask: u64,
    },
    /// The header verifies but says something impossible.
    Header {
        /// Which field.
        what: &'static str,
        /// What it holds.
        found: u64,
    },
    /// The protection was ended: the side file says nothing about the data any more.
    Ended,
    /// The file was opened to be looked at only.
    ReadOnly,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Media(e) => write!(f, "{e}"),
            Self::Sync(e) => {
                write!(f, "{e}; nothing more is written until the file is opened anew")
            }
            Self::Data(e) => write!(f, "data file: {e}"),
            Self::DataSync(e) => {
                write!(f, "data file: {e}; nothing more is written until it is opened anew")
            }
            Self::Redundancy(e) => write!(f, "side file: {e}"),
            Self::Track(e) => write!(f, "{e}; the file can be checked, not kept up to date"),
            Self::Identity(e) => write!(
                f,
                "the system does not say how long the data file is ({e}); try again once it does: \
                 nothing was changed"
            ),
            Self::Options { what, found } => write!(f, "{what} (asked for: {found})"),
            Self::NotASideFile => f.write_str(
                "this is not a side file; check the path, or protect the data file anew",
            ),
            Self::Damaged => f.write_str(
                "both headers of the side file are damaged; the data file was not touched; \
                 protect it anew",
            ),
            Self::Newer { version } => write!(
                f,
                "the side file has format version {version}; this build knows up to {}; use a \
                 newer build",
                crate::format::VERSION
            ),
            Self::Features { mask } => {
                write!(f, "the side file uses features {mask:#x}; use a newer build")
            }
            Self::Header { what, found } => write!(
                f,
                "the header of the side file is impossible ({what} is {found:#x}); protect the \
                 data file anew"
            ),
            Self::Ended => {
                f.write_str("the protection of this file was ended; protect it anew to begin again")
            }
            Self::ReadOnly => f.write_str(
                "the side file was opened for looking only; open it for writing to change anything",
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Media(e) | Self::Data(e) => Some(e),
            Self::Sync(e) | Self::DataSync(e) => Some(e),
            Self::Redundancy(e) => Some(e),
            Self::Track(e) => Some(e),
            Self::Identity(e) => Some(e),
            _ => None,
        }
    }
}

impl From<MediaError> for Error {
    fn from(e: MediaError) -> Self {
        Self::Media(e)
    }
}

impl From<SyncError> for Error {
    fn from(e: SyncError) -> Self {
        Self::Sync(e)
    }
}

impl From<TrackError> for Error {
    fn from(e: TrackError) -> Self {
        Self::Track(e)
    }
}

impl From<holdfast_redundancy::Error> for Error {
    fn from(e: holdfast_redundancy::Error) -> Self {
        match e {
            holdfast_redundancy::Error::Media(e) => Self::Media(e),
            holdfast_redundancy::Error::Sync(e) => Self::Sync(e),
            other => Self::Redundancy(other),
        }
    }
}

/// Result of the operations of this crate.
pub type Result<T, E = Error> = core::result::Result<T, E>;
