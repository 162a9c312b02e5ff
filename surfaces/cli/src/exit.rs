//! Exit codes in the style of fsck: bits that add up, so that scripts can tell what happened.

use std::process::ExitCode;

/// What a run of the command came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Exit(u8);

impl Exit {
    /// Nothing was wrong.
    pub(crate) const CLEAN: Self = Self(0);
    /// Damage was found, and all of it corrected.
    pub(crate) const CORRECTED: Self = Self(1);
    /// Nobody can tell damage from a write: a person has to decide. (`fsck` has the number for a
    /// machine that has to be started anew.)
    pub(crate) const UNDECIDED: Self = Self(2);
    /// Damage is left.
    pub(crate) const LEFT: Self = Self(4);
    /// The command could not do what it was asked for.
    pub(crate) const OPERATIONAL: Self = Self(8);
    /// The command was asked in a way it does not understand.
    pub(crate) const USAGE: Self = Self(16);
    /// Somebody interrupted it.
    pub(crate) const CANCELLED: Self = Self(32);

    /// What a program ended with, passed on.
    pub(crate) const fn of_program(code: u8) -> Self {
        Self(code)
    }

    /// Both.
    #[must_use]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The number.
    pub(crate) const fn code(self) -> u8 {
        self.0
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}
