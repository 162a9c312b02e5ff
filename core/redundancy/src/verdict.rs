//! Three verdicts about bytes found on a medium, and the names of the units that can be wrong.
//!
//! Two verdicts are not enough: "I could not tell" must never be acted upon as "it is bad" (a
//! repair would overwrite good bytes) nor as "it is good" (a patch would launder the damage into
//! checksum and parity). Everything that judges bytes therefore answers one of three.

use core::fmt;

use holdfast_pmem::MediaError;

/// One of the two places where metadata and log are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The primary, written second.
    A,
    /// The replica, written first.
    B,
}

impl Side {
    /// The side that still has the copy when this one is damaged.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "side A",
            Self::B => "side B",
        })
    }
}

/// Which unit was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wrong {
    /// Bytes of an object.
    Data,
    /// The slot that describes an object.
    Slot,
    /// A sum kept apart from the object it covers (the object itself agrees with its parity).
    Sum,
    /// An entry of a zone's chunk directory.
    Directory,
    /// The P row.
    ParityP,
    /// The Q row.
    ParityQ,
    /// One copy of a mirrored record.
    Mirror {
        /// The copy that was wrong.
        side: Side,
    },
    /// A copy of a log record.
    Log,
    /// A column does not add up although every object over it verifies: a free byte or a parity
    /// byte changed, and no sum says which.
    FreeOrParity,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Slot => "slot",
            Self::Sum => "sum",
            Self::Directory => "chunk directory",
            Self::ParityP => "parity P",
            Self::ParityQ => "parity Q",
            Self::Mirror { side: Side::A } => "mirrored record, side A",
            Self::Mirror { side: Side::B } => "mirrored record, side B",
            Self::Log => "log record",
            Self::FreeOrParity => "free space or parity",
        })
    }
}

/// Why no verdict was possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Something that had to be read cannot be read.
    Media(MediaError),
    /// A column does not add up; its parity names no unit, and there are no sums that could.
    Unlocated,
    /// It verifies, and so does what its column's parity says that it was; nothing that is kept
    /// tells which of the two came last.
    Older,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Media(error) => write!(f, "{error}"),
            Self::Unlocated => f.write_str("nothing kept tells which unit of the column is wrong"),
            Self::Older => {
                f.write_str("it may be older than what was committed last, or parity is")
            }
        }
    }
}

/// What was found out about some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// They are what was written last.
    Good,
    /// They are not, and this unit is the wrong one.
    Corrupt(Wrong),
    /// It could not be decided; nothing may be overwritten because of this.
    Undecided(Reason),
}

impl Verdict {
    /// Whether the bytes may be used and patched.
    #[must_use]
    pub const fn is_good(self) -> bool {
        matches!(self, Self::Good)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good => f.write_str("good"),
            Self::Corrupt(wrong) => write!(f, "corrupt: {wrong}"),
            Self::Undecided(reason) => write!(f, "undecided: {reason}"),
        }
    }
}
