//! What was found out about a page of a file that others write to.
//!
//! In a pool nobody stores but us, so bytes that disagree with their sum are damaged. In a file of
//! a foreign program they may as well be its newest data, stored while nobody looked. Therefore
//! *corrupt* is said only where a store cannot have gone unseen; everything else that disagrees is
//! *unsure*, keeps its content, and is counted.

use core::fmt;

use holdfast_pmem::{MediaCause, MediaError, PAGE};

/// Why no verdict about a page was possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsure {
    /// It was stored to since it was last covered. This is how things are between two passes.
    Uncovered,
    /// It differs, it was reported as stored to only together with everything around it, and
    /// nobody saw a store to it.
    Unobserved,
    /// It differs, and what was stored to was forgotten: by a crash, or by the source itself.
    TrackingLost,
    /// It differs, and the file was changed while nobody protected it.
    ChangedWhileUnprotected,
    /// It differs, and the file may have been changed while nobody protected it: its file system
    /// does not date stores through mappings.
    Undated,
    /// It differs, and somebody writes to the file who is not tracked.
    Contested,
    /// It differed, and was stored to while its repair was under way.
    StoredTo,
    /// It differs, and the sums of its region are damaged themselves.
    SumsDamaged,
    /// No sums are kept.
    NoSums,
    /// It cannot be read, and was stored to since it was last covered.
    Media(MediaError),
    /// Its memory failed, and with it what was stored there since it was last covered. It may agree
    /// with its sum: the system reads it in again as it was before those stores.
    MemoryFailed,
}

impl Unsure {
    /// The number under which events keep it; 0 is none.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Uncovered => 1,
            Self::Unobserved => 2,
            Self::TrackingLost => 3,
            Self::ChangedWhileUnprotected => 4,
            Self::Contested => 5,
            Self::StoredTo => 6,
            Self::SumsDamaged => 7,
            Self::NoSums => 8,
            Self::Media(_) => 9,
            Self::Undated => 10,
            Self::MemoryFailed => 11,
        }
    }

    /// The reason that was kept under a number, of the page at `at`; none of a number that means
    /// nothing here. Of a media error the number says no more than that it was one.
    #[must_use]
    pub const fn of_code(code: u8, at: u64) -> Option<Self> {
        Some(match code {
            1 => Self::Uncovered,
            2 => Self::Unobserved,
            3 => Self::TrackingLost,
            4 => Self::ChangedWhileUnprotected,
            5 => Self::Contested,
            6 => Self::StoredTo,
            7 => Self::SumsDamaged,
            8 => Self::NoSums,
            9 => Self::Media(MediaError { at, len: PAGE, cause: MediaCause::Poison }),
            10 => Self::Undated,
            11 => Self::MemoryFailed,
            _ => return None,
        })
    }

    /// Whether something may be wrong: everything but what passes and settings bring about.
    #[must_use]
    pub const fn is_doubt(self) -> bool {
        !matches!(self, Self::Uncovered | Self::NoSums)
    }
}

impl fmt::Display for Unsure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uncovered => f.write_str("stored to since it was last covered"),
            Self::Unobserved => f.write_str("differs, and no store to it was seen"),
            Self::TrackingLost => f.write_str("differs, and what was stored to was forgotten"),
            Self::ChangedWhileUnprotected => {
                f.write_str("differs, and the file was changed while it was not protected")
            }
            Self::Undated => f.write_str(
                "differs, and its file system would not show a store while it was not protected",
            ),
            Self::Contested => f.write_str("differs, and somebody untracked writes to the file"),
            Self::StoredTo => f.write_str("was stored to while it was being repaired"),
            Self::SumsDamaged => f.write_str("differs, and so do the sums around it"),
            Self::NoSums => f.write_str("no sums are kept"),
            Self::Media(error) => write!(f, "{error}, and nothing covers what it held"),
            Self::MemoryFailed => {
                f.write_str("its memory failed, and nothing covers what was stored there")
            }
        }
    }
}

/// What was found out about a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageVerdict {
    /// It is what was last covered.
    Good,
    /// It is not, nobody stored to it, and repair may act.
    Corrupt,
    /// It could not be decided: the content is kept.
    Undecided(Unsure),
}

impl fmt::Display for PageVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good => f.write_str("good"),
            Self::Corrupt => f.write_str("corrupt"),
            Self::Undecided(why) => write!(f, "undecided: {why}"),
        }
    }
}
