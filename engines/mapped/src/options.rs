//! How a file is protected and opened. Every policy is a value.

use core::fmt;
use std::io;

use holdfast_pmem::{ForeignFile, Site, call};
pub use holdfast_redundancy::Instructions;

use crate::busy::Rearm;

/// Which stops of the machine the redundancy is to survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub enum Durability {
    /// The death of processes: nothing is synced. After the machine itself stopped, what differs
    /// is undecided.
    #[default]
    Process,
    /// Power cuts as well: data and side file are synced before a page counts as covered.
    Power,
}

/// How the page cache is asked to keep the data file. Only recorded here: whoever maps the file
/// sees to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Folios {
    /// As the file system likes. The first store to a page after a pass may cost ten times as much.
    #[default]
    Any,
    /// Single pages.
    Small,
}

/// What is kept of each page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Keep {
    /// A sum per page: damage is found.
    pub sums: bool,
    /// The sum before the last: content that a crash threw back by one pass is recognised.
    pub previous: bool,
    /// Parity pages of a stripe: 0, 1 or 2. So many pages of a stripe are given back.
    pub parity: u32,
}

impl Default for Keep {
    fn default() -> Self {
        Self { sums: true, previous: true, parity: 1 }
    }
}

/// When redundancy is brought up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum When {
    /// In passes, and where somebody asks.
    #[default]
    Lazily,
    /// Only where the program says that it committed: passes do nothing.
    AtCommit,
    /// Never: what it costs to track and do nothing.
    Never,
}

/// How a side file is made.
#[derive(Debug, Clone)]
pub struct ProtectOptions {
    /// Identity of the side file. Chosen by the caller, so that campaigns are repeatable.
    pub uuid: [u8; 16],
    /// Data pages of a stripe, 1 to 64.
    pub data: u32,
    /// Stripes of a region; 0 takes as many as there may be.
    pub stripes: u32,
    /// Regions whose records lie together; 0 chooses.
    pub group: u32,
    /// Bytes of a side, 64 KiB or 2 MiB; 0 chooses by the length of the data file.
    pub side_len: u64,
    /// What is kept.
    pub keep: Keep,
    /// Folio policy in force.
    pub folios: Folios,
    /// What holds for this opening too.
    pub open: OpenOptions,
}

impl Default for ProtectOptions {
    fn default() -> Self {
        Self {
            uuid: [0; 16],
            data: 4,
            stripes: 0,
            group: 0,
            side_len: 0,
            keep: Keep::default(),
            folios: Folios::default(),
            open: OpenOptions::default(),
        }
    }
}

impl ProtectOptions {
    /// Small regions and sides, for tests and campaigns: a file of two dozen pages has several
    /// regions in several groups.
    #[must_use]
    pub fn tiny(parity: u32) -> Self {
        Self {
            uuid: *b"side of the test",
            stripes: 2,
            group: 2,
            side_len: 64 << 10,
            keep: Keep { parity, ..Keep::default() },
            ..Self::default()
        }
    }
}

/// How a side file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Which stops the redundancy is to survive from now on.
    pub durability: Durability,
    /// Names the machine's present run: what was not synced is not believed in another one.
    pub boot: [u8; 16],
    /// Most pages of which the sources of writes are asked in one step, as one batch.
    pub batch_pages: u32,
    /// When redundancy is brought up to date.
    pub when: When,
    /// Which pages the passes of an updater protect again.
    pub rearm: Rearm,
    /// By which instructions sums and parity are computed.
    pub instructions: Instructions,
    /// Whether passes keep note of the pages they found stored to, for [`trace`](crate::trace).
    pub trace: bool,
    /// Whether to look only: nothing is written, nothing recovered.
    pub read_only: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            boot: [0; 16],
            batch_pages: 8192,
            when: When::default(),
            rearm: Rearm::default(),
            instructions: Instructions::default(),
            trace: false,
            read_only: false,
        }
    }
}

/// What the system says of the data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Identity {
    /// Its inode number.
    pub inode: u64,
    /// Its length in bytes.
    pub size: u64,
    /// When it was last changed, in nanoseconds since the epoch of the system.
    pub mtime_ns: i64,
}

/// What only the caller can find out about the data file.
pub trait Facts: Send + Sync + fmt::Debug + 'static {
    /// What the system says now.
    ///
    /// # Errors
    /// It does not say: then nothing is concluded about the file.
    fn identity(&self) -> io::Result<Identity>;

    /// Makes durable, at `site`, what [`identity`](Self::identity) says. A sync of the data need
    /// not: on many file systems the time of change follows seconds later.
    ///
    /// # Errors
    /// What the system says: after a power cut, the file may have another date.
    fn sync_identity(&self, site: Site) -> io::Result<()>;

    /// Whether the time of change tells of stores through mappings, too. Where it does not, equal
    /// identities prove nothing.
    fn dates_stores(&self) -> bool {
        true
    }

    /// The parts of `[at, at + len)` that have storage, as runs of (first byte, length),
    /// ascending. Holes are known to be zeros: they need neither sums nor tracking.
    fn allocated(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) {
        each(at, len);
    }

    /// Whether nobody untracked can have written to it until now. Asked after a page was read that
    /// differs, and before it is called damaged; where the answer is no, it is undecided.
    fn vouches(&self) -> bool {
        true
    }
}

impl Facts for ForeignFile {
    fn identity(&self) -> io::Result<Identity> {
        let (inode, size, mtime_ns) = self.numbers()?;
        Ok(Identity { inode, size, mtime_ns })
    }

    fn sync_identity(&self, site: Site) -> io::Result<()> {
        call::sync_all(site, self.file())
    }

    fn dates_stores(&self) -> bool {
        Self::dates_stores(self)
    }

    fn allocated(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) {
        self.parts(at, len, each);
    }
}

/// Stops and continues whoever may store to the data file while a page is replaced.
pub trait Writers {
    /// Stops them all; false if that cannot be had now, and then nothing is replaced.
    fn freeze(&self) -> bool;

    /// Lets them go on. Called once for each freeze that succeeded.
    fn thaw(&self);
}

/// Nobody stores: the file is at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtRest;

impl Writers for AtRest {
    fn freeze(&self) -> bool {
        true
    }

    fn thaw(&self) {}
}
