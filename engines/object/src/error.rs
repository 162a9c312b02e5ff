//! What can go wrong with a pool as a whole.

use core::fmt;

use holdfast_logs::LogError;
use holdfast_pmem::{MediaCause, MediaError, SyncError};
use holdfast_txn::TxError;

/// Why a pool could not be made, opened or used. Nothing was changed unless a variant says so.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A transaction was refused or failed; it did nothing.
    Tx(TxError),
    /// A media error that could not be repaired.
    Media(MediaError),
    /// A write or sync of the file failed; the pool is read-only until it is opened anew.
    Sync(SyncError),
    /// The file could not be made longer; the pool is as it was.
    Extend(SyncError),
    /// Metadata could not be read or written.
    Redundancy(holdfast_redundancy::Error),
    /// The log could not be used.
    Log(LogError),
    /// The options cannot make a pool.
    Options {
        /// What is wrong, with `{}` where the limit belongs, and what to do.
        what: &'static str,
        /// The smallest or largest value that would do.
        limit: u64,
    },
    /// The pool cannot grow to the size asked for; it is as it was.
    Growth {
        /// What is wrong, with `{}` where the limit belongs, and what to do.
        what: &'static str,
        /// The smallest or largest value that would do.
        limit: u64,
    },
    /// The pool is larger than its file: the file was cut off, or copied in part.
    Truncated {
        /// Bytes the pool has.
        pool: u64,
        /// Bytes the file has.
        file: u64,
    },
    /// The file was cut off while the pool was open. Nothing is written to it any more.
    CutOff,
    /// The pool was not closed and cannot be recovered because it is open read-only.
    NeedsRecovery,
    /// Damage beyond the redundancy in what the whole pool depends on.
    Fatal {
        /// What is lost.
        what: &'static str,
        /// Where.
        at: u64,
    },
    /// The pool's features allow reading only.
    ReadOnlyFeatures(u64),
    /// The handle came through a fork; open the pool in the child instead.
    Forked,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tx(e) => write!(f, "{e}"),
            Self::Media(e) => write!(f, "media error: {e}"),
            Self::Sync(e) => write!(f, "{e}; the pool is read-only until it is opened anew"),
            Self::Extend(e) => write!(f, "the pool's file cannot be made longer: {e}"),
            Self::Redundancy(e) => write!(f, "{e}"),
            Self::Log(e) => write!(f, "{e}"),
            Self::Options { what, limit } => {
                write!(f, "cannot make this pool: {}", with_limit(what, *limit))
            }
            Self::Growth { what, limit } => {
                write!(f, "cannot grow the pool like this: {}", with_limit(what, *limit))
            }
            Self::Truncated { pool, file } => write!(
                f,
                "the pool has {pool} bytes but its file only {file}; restore the whole file from \
                 a copy"
            ),
            Self::CutOff => write!(
                f,
                "the pool file was cut off while in use, and nothing is written to it any more; \
                 restore the whole file from a copy"
            ),
            Self::NeedsRecovery => {
                write!(f, "the pool was not closed and must be recovered; open it for writing once")
            }
            Self::Fatal { what, at } => write!(
                f,
                "{what} at {at:#x} is damaged beyond the pool's redundancy; no object was changed"
            ),
            Self::ReadOnlyFeatures(mask) => {
                write!(
                    f,
                    "the pool's features ({mask:#x}) allow this build to read it only; use a newer \
                     build"
                )
            }
            Self::Forked => {
                write!(f, "this handle was inherited through a fork; open the pool again here")
            }
        }
    }
}

/// The limit where the text has a place for it, else behind it.
fn with_limit(what: &str, limit: u64) -> String {
    match what.split_once("{}") {
        Some((before, after)) => format!("{before}{limit}{after}"),
        None => format!("{what} ({limit})"),
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Tx(e) => Some(e),
            Self::Media(e) => Some(e),
            Self::Sync(e) | Self::Extend(e) => Some(e),
            Self::Redundancy(e) => Some(e),
            Self::Log(e) => Some(e),
            _ => None,
        }
    }
}

impl From<TxError> for Error {
    fn from(e: TxError) -> Self {
        Self::Tx(e)
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

impl From<holdfast_redundancy::Error> for Error {
    fn from(e: holdfast_redundancy::Error) -> Self {
        match e {
            holdfast_redundancy::Error::Media(e) => Self::Media(e),
            holdfast_redundancy::Error::Sync(e) => Self::Sync(e),
            other => Self::Redundancy(other),
        }
    }
}

impl From<LogError> for Error {
    fn from(e: LogError) -> Self {
        Self::Log(e)
    }
}

/// The media error behind a parity operation at `at` that failed; operations on places that a
/// zone table gave out fail in no other way, so anything else is reported as the range asked for.
pub(crate) fn media_of(error: holdfast_redundancy::Error, at: u64) -> MediaError {
    match error {
        holdfast_redundancy::Error::Media(e) => e,
        _ => MediaError { at, len: 1, cause: MediaCause::OutOfRange },
    }
}
