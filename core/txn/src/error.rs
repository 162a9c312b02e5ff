//! What can go wrong inside a transaction, for every engine.

use core::fmt;

use holdfast_layout::{RawPtr, TypeNumber};

/// Result of an operation inside a transaction.
pub type Result<T> = core::result::Result<T, TxError>;

/// Why an operation inside a transaction failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TxError {
    /// Another transaction changed or holds something this one read or opened. The engine runs
    /// the closure again; code should pass it on with `?`.
    Conflict,
    /// Bytes read are damaged. The engine repairs them and runs the closure again; code should
    /// pass it on with `?`.
    Damaged {
        /// First damaged byte known.
        at: u64,
        /// Bytes affected.
        len: u64,
    },
    /// Damage beyond the redundancy: the object is lost, the rest of the pool stays usable.
    Lost {
        /// The object.
        object: RawPtr,
    },
    /// The pointer names nothing: null, never allocated, or freed and perhaps reused.
    Dangling {
        /// The pointer.
        pointer: RawPtr,
    },
    /// By what is there the pointer names no object, but a write there was lost beyond the
    /// redundancy: nothing tells whether that is the older or the newer state. The rest of the
    /// pool stays usable.
    InDoubt {
        /// The pointer.
        pointer: RawPtr,
    },
    /// The object is of another type or length than asked for.
    WrongType {
        /// The object.
        object: RawPtr,
        /// Type wanted.
        wanted: TypeNumber,
        /// Type found.
        found: TypeNumber,
    },
    /// A range ends beyond the object.
    OutOfBounds {
        /// The object.
        object: RawPtr,
        /// End of the range asked for.
        end: u64,
        /// Length of the object.
        len: u64,
    },
    /// The object is open for change already.
    AlreadyOpen {
        /// The object.
        object: RawPtr,
    },
    /// The object cannot be borrowed in place: too many views of it, or of objects that the engine
    /// guards together with it, are alive.
    TooManyViews {
        /// The object.
        object: RawPtr,
    },
    /// A guard word around a private copy was overwritten: the program wrote beyond the object.
    /// Nothing reached the medium.
    Overrun {
        /// The object whose copy was overrun.
        object: RawPtr,
    },
    /// No free space for an allocation.
    NoSpace {
        /// Bytes asked for.
        wanted: u64,
    },
    /// An allocation larger than the pool can ever hold in one object.
    TooLarge {
        /// Bytes asked for.
        wanted: u64,
        /// Largest object.
        limit: u64,
    },
    /// The pool is open read-only or turned read-only after a failed sync. Of a read: what is to be
    /// read was changed by a commit that is in the log alone; open the pool anew.
    ReadOnly,
    /// The closure declared a smaller range than it changed (debug mode).
    Undeclared {
        /// The object.
        object: RawPtr,
        /// First changed byte outside the declared ranges, from the start of the object.
        at: u64,
    },
    /// Contents of a structure contradict each other: a bug, or damage that sums did not cover.
    Inconsistent(&'static str),
    /// The closure decided not to commit.
    Cancelled(String),
}

impl TxError {
    /// Aborts the transaction for a reason of the caller's own.
    #[must_use]
    pub fn cancel(reason: impl Into<String>) -> Self {
        Self::Cancelled(reason.into())
    }

    /// Whether running the closure again may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Conflict | Self::Damaged { .. })
    }
}

impl fmt::Display for TxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => write!(f, "conflict with another transaction"),
            Self::Damaged { at, len } => write!(f, "damage found at {at:#x}+{len:#x}"),
            Self::Lost { object } => {
                write!(f, "object {object} is lost: damaged beyond the pool's redundancy")
            }
            Self::Dangling { pointer } => write!(f, "pointer {pointer} names no object"),
            Self::InDoubt { pointer } => write!(
                f,
                "whether pointer {pointer} names an object is in doubt: what lies there may be \
                 older than what was committed last, beyond the pool's redundancy"
            ),
            Self::WrongType { object, wanted, found } => write!(
                f,
                "object {object} has type {:#010x}, not {:#010x} as asked for",
                found.0, wanted.0
            ),
            Self::OutOfBounds { object, end, len } => {
                write!(f, "range ends at {end} in object {object} of {len} bytes")
            }
            Self::AlreadyOpen { object } => {
                write!(f, "object {object} is already open for change in this transaction")
            }
            Self::TooManyViews { object } => write!(
                f,
                "too many views of object {object}, or of objects guarded together with it, are \
                 alive"
            ),
            Self::Overrun { object } => write!(
                f,
                "the program wrote beyond its copy of object {object}; nothing was committed"
            ),
            Self::NoSpace { wanted } => {
                write!(f, "no free space for {wanted} bytes: free objects or grow the pool")
            }
            Self::TooLarge { wanted, limit } => {
                write!(f, "object of {wanted} bytes is larger than the limit of {limit}")
            }
            Self::ReadOnly => write!(f, "the pool is read-only"),
            Self::Undeclared { object, at } => {
                write!(f, "object {object} was changed at byte {at}, outside declared ranges")
            }
            Self::Inconsistent(what) => write!(f, "inconsistent structure: {what}"),
            Self::Cancelled(why) => write!(f, "cancelled: {why}"),
        }
    }
}

impl std::error::Error for TxError {}
