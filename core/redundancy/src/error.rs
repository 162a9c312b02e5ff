//! What can go wrong here: each error says where, what was expected and what was found.

use core::fmt;

use holdfast_layout::SuperblockError;
use holdfast_pmem::{MediaError, SyncError};

use crate::mirror::CopyState;

/// An operation on redundant bytes that could not be done.
#[derive(Debug)]
pub enum Error {
    /// Bytes that were needed cannot be read or written.
    Media(MediaError),
    /// A write or sync of the backing file failed: the pool must not be written any more.
    Sync(SyncError),
    /// Neither copy of the superblock can be used; `source` says what copy A is instead.
    Superblock {
        /// What the page at the start of the pool is.
        source: SuperblockError,
        /// How many bytes from the start were searched for copy B.
        searched: u64,
    },
    /// No copy of a mirrored page is valid.
    BothCopies {
        /// Which page: its offset in its side.
        place: u64,
        /// Kind word expected there.
        kind: u32,
        /// What was found in side A.
        a: CopyState,
        /// What was found in side B.
        b: CopyState,
    },
    /// A mirrored page verifies, but what it says is impossible.
    Table {
        /// Which record.
        what: &'static str,
        /// Its offset in its side.
        place: u64,
        /// What had to be there.
        expected: &'static str,
        /// The value that was there instead.
        found: u64,
    },
    /// A region cannot be divided into rows as asked.
    Geometry {
        /// First byte of the region.
        at: u64,
        /// Its length in bytes.
        len: u64,
        /// What had to hold.
        expected: &'static str,
    },
    /// A range does not lie in the rows of its zone.
    OutsideZone {
        /// Offset in the pool (or in the row, for ranges of columns).
        at: u64,
        /// Length in bytes.
        len: u64,
        /// Bytes that there are.
        limit: u64,
    },
    /// More units of a column are missing than its parity can give back.
    TooManyMissing {
        /// The zone's index.
        zone: u32,
        /// First byte of the column range, from the start of the row.
        col: u64,
        /// Length in bytes.
        len: u64,
        /// Units missing.
        missing: usize,
        /// Units that the parity allowed here can give back.
        limit: usize,
    },
    /// P and Q give different bytes for the same row: something else is wrong as well.
    Contradiction {
        /// First byte that differs, as an offset into the pool.
        at: u64,
        /// Bytes from there to the last one that differs.
        len: u64,
    },
    /// Every spare frame is used or bad.
    NoSpare {
        /// The frame that had to move.
        frame: u64,
        /// Spare frames the pool has.
        spares: u64,
    },
    /// A relocation failed, and so did taking it back: the next open may find the frame at its
    /// old or at its new place. Stop writing to the pool.
    InDoubt {
        /// The frame concerned.
        frame: u64,
    },
    /// This frame cannot be relocated: it is needed to find the table of relocations, is not a
    /// frame, or the table is full.
    Unmovable {
        /// The frame asked for.
        frame: u64,
        /// Why not.
        reason: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Media(error) => write!(f, "{error}"),
            Self::Sync(error) => write!(f, "{error}; the pool is read-only from now on"),
            Self::Superblock { source, searched } => {
                write!(f, "{source}; no second copy in the first {searched} bytes")
            }
            Self::BothCopies { place, kind, a, b } => write!(
                f,
                "both copies of the page at {place:#x} of the sides (kind {kind:#010x}) are \
                 unusable: side A {a}, side B {b}; restore the pool from a backup"
            ),
            Self::Table { what, place, expected, found } => write!(
                f,
                "{what} (page {place:#x} of the sides) must hold {expected}, but holds {found:#x}"
            ),
            Self::Geometry { at, len, expected } => {
                write!(f, "region {at:#x}+{len:#x} cannot be a zone: {expected}")
            }
            Self::OutsideZone { at, len, limit } => {
                write!(f, "range {at:#x}+{len:#x} does not lie in its zone ({limit:#x} bytes)")
            }
            Self::TooManyMissing { zone, col, len, missing, limit } => write!(
                f,
                "zone {zone}, column {col:#x}+{len:#x}: {missing} units missing, parity can give \
                 back {limit}"
            ),
            Self::Contradiction { at, len } => write!(
                f,
                "P and Q disagree about {at:#x}+{len:#x}: another unit of the column is wrong"
            ),
            Self::NoSpare { frame, spares } => write!(
                f,
                "frame {frame:#x} cannot be relocated: none of the {spares} spare frames is left; \
                 move the pool to another device"
            ),
            Self::InDoubt { frame } => write!(
                f,
                "relocating frame {frame:#x} failed half-way: the pool is read-only from now on"
            ),
            Self::Unmovable { frame, reason } => {
                write!(f, "frame {frame:#x} cannot be relocated: {reason}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Media(error) => Some(error),
            Self::Sync(error) => Some(error),
            Self::Superblock { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<MediaError> for Error {
    fn from(error: MediaError) -> Self {
        Self::Media(error)
    }
}

impl From<SyncError> for Error {
    fn from(error: SyncError) -> Self {
        Self::Sync(error)
    }
}

/// Result of the operations of this crate.
pub type Result<T, E = Error> = core::result::Result<T, E>;
