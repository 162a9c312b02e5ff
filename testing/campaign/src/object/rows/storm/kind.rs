//! Kinds of faults of a storm, and their names in figures.

use std::fmt;

use holdfast_faultmem::Clear;

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Flip,
    Stray,
    Poison(Clear),
    Lost,
    Misdirected,
    Torn,
    Stale,
    Failed,
}

impl Kind {
    /// All of them.
    pub(super) const ALL: [Self; 9] = [
        Self::Flip,
        Self::Stray,
        Self::Poison(Clear::Able),
        Self::Poison(Clear::Unable),
        Self::Lost,
        Self::Misdirected,
        Self::Torn,
        Self::Stale,
        Self::Failed,
    ];

    /// Whether it may leave what a place has been before, which verifies.
    pub(super) const fn leaves_older(self) -> bool {
        matches!(self, Self::Lost | Self::Misdirected | Self::Torn | Self::Stale)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flip => "bit flips",
            Self::Stray => "stray writes",
            Self::Poison(Clear::Able) => "poison that a rewrite clears",
            Self::Poison(Clear::Unable) => "poison for good",
            Self::Lost => "lost writes",
            Self::Misdirected => "misdirected writes",
            Self::Torn => "torn writes",
            Self::Stale => "stale places",
            Self::Failed => "failed calls",
        })
    }
}
