//! What can go wrong in a log, and what the caller may do about it.

use core::fmt;
use std::sync::Arc;

use holdfast_pmem::{MediaError, SyncError};

/// Why a log could not be opened, or a record was not committed.
#[derive(Debug, Clone)]
pub enum LogError {
    /// The superblock's log area cannot hold a log.
    Geometry {
        /// What is wrong with it.
        what: &'static str,
        /// The value that is wrong.
        value: u64,
    },
    /// The record is longer than the log takes: move its entries into an overflow payload.
    TooBig {
        /// Bytes or entries of the record.
        len: u64,
        /// Most that fit.
        max: u64,
    },
    /// A record without entries: there is nothing to commit.
    Empty,
    /// `commit` without a `reserve` for a record at least as long.
    NoRoom,
    /// The caller's `wait` gave up. Nothing was written; try again later.
    GaveUp,
    /// No copy of the record could be written. It is not committed; another lane may do.
    Media(MediaError),
    /// A write or sync of the file failed, now or earlier. Whether the record is on the medium is
    /// not known. Nothing more is ever written to this log: the pool is read-only until it is
    /// opened anew.
    Stopped(Arc<SyncError>),
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Geometry { what, value } => {
                write!(f, "the log cannot be used: {what} ({value:#x})")
            }
            Self::TooBig { len, max } => {
                write!(f, "record too long for the log ({len}, at most {max}): let it overflow")
            }
            Self::Empty => write!(f, "a record without entries cannot be committed"),
            Self::NoRoom => write!(f, "no room was reserved in the log for a record this long"),
            Self::GaveUp => write!(f, "the log is full of commits that are not complete yet"),
            Self::Media(e) => write!(f, "no copy of the log record could be written: {e}"),
            Self::Stopped(e) => {
                write!(f, "the log is stopped and the pool read-only until reopened: {e}")
            }
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Media(e) => Some(e),
            Self::Stopped(e) => Some(e.as_ref()),
            _ => None,
        }
    }
}

/// An entry that certifies (or whose record does) and yet makes no sense: written by a newer or a
/// broken program. Nothing of the record may be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryError {
    /// Where the entry starts, in bytes from the start of what was parsed.
    pub at: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log entry at byte {} {}; do not replay this record", self.at, self.what)
    }
}

impl std::error::Error for EntryError {}
