//! How a file is to be mapped, and what came of it.

use core::fmt;

/// What the opener may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Loads and stores; takes the exclusive lock.
    Write,
    /// Loads only, beside a writer; takes no lock. Every store is out of range.
    ReadOnly,
    /// Loads and stores on pages copied at the first store: nothing reaches the file, and nothing
    /// outlives the mapping. Takes no lock unless [`Options::keep_still`] asks for one.
    PrivateCopy,
}

/// Which crashes a commit is to survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Whatever the medium can survive.
    #[default]
    Auto,
    /// The death of the process only: every file is treated as shared memory, never synced, and
    /// nothing is flushed from the caches.
    Process,
}

/// Which protection against stray stores is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protect {
    /// The strongest that needs no system call per commit: keys, else the alias.
    #[default]
    Auto,
    /// The alias, with a protection key on it. An error where the machine has no keys.
    Keys,
    /// A read-only view for the program, a writable alias known to the library only.
    Alias,
    /// One mapping, made writable around each commit: two system calls per commit.
    Mprotect,
    /// One writable mapping.
    None,
}

/// Which protection against stray stores is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// The program's view is read-only; the writable alias opens by key, per thread.
    Keys,
    /// The program's view is read-only; a store hits only if it guesses the alias' address.
    Alias,
    /// The mapping is read-only except while some thread commits.
    Mprotect,
    /// The mapping is read-only for everybody.
    ReadOnly,
    /// The mapping is writable at any time.
    None,
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keys => "protection keys",
            Self::Alias => "read-only view, hidden alias",
            Self::Mprotect => "mprotect around commits",
            Self::ReadOnly => "read-only",
            Self::None => "none",
        })
    }
}

/// How to map a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Which crashes a commit is to survive.
    pub durability: Durability,
    /// Bytes of address space to reserve for growth; `None` is 64 times the size, at most 1 TiB.
    pub reserve: Option<u64>,
    /// Protection against stray stores.
    pub protection: Protect,
    /// Whether a private copy keeps writers out while it lives: pages it has not stored to show the
    /// file as it is at the time, so beside a writer they would not belong together.
    pub keep_still: bool,
    /// Whether the file is somebody else's: what it has behind its last whole page stays when it
    /// grows. In a file of ours there is nothing of anybody's, and new bytes are zero.
    pub foreign: bool,
}
