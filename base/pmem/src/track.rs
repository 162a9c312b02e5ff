//! Dirty sources: who stored to which pages of a file, and how sure that is.
//!
//! Redundancy that is kept up to date afterwards hangs on one question: which pages were stored to
//! since it was asked last? Each source here answers it by other means, behind one trait; none
//! knows anything of checksums. The law they serve: *a write that was not observed must never be
//! repaired away*. So each source also says, for every way to write, whether it sees it, prevents
//! it, or cannot tell ([`coverage`](DirtySource::coverage)), and for every range, whether its
//! answer can still be trusted ([`intact`](DirtySource::intact)).
//!
//! | source | bits live in | a first store costs | for |
//! |---|---|---|---|
//! | [`AsyncProtect`] | the page tables | about 1 us | any program, Linux 6.7; no fs-dax |
//! | [`SoftDirty`] | the page tables | about 1 us | older kernels; threads must be stopped |
//! | [`FirstStore`] | a [`Record`] on the medium | 5-7 us | bits that survive a crash |
//! | [`Notified`] | memory shared by processes | nothing | writes that are announced |
//! | [`Controller`] | the medium, beside its data | a flush | hardware to come, emulated |
//!
//! ```text
//!   program ---- store ----> page            take(): told and cleared in one step
//!      |                      | first one            ^
//!      |                      v                      |
//!      |                 bit of the page ------------+--> peek(): told only
//!      +-- write(2) --> slot, then mark -------------+
//! ```
//!
//! With several sources on one file (stores by one, announced writes by another), pages are the
//! union of what they tell, a way is as good as the best of their claims for it, and a range is
//! intact if it is so for all of them.
//!
//! Parts: [`uffd`] and [`pagemap`], the kernel's calls, for any process; [`maps`], what is mapped
//! where; [`holders`], who can change a file, and [`ear`], who does; [`folios`], how the page
//! cache is to hold a file so that a first store is cheap; [`Span`] and [`allocated`], which
//! addresses and which parts are worth arming.

mod async_protect;
pub(crate) mod bar;
pub(crate) mod bits;
mod board;
mod controller;
mod direct;
pub mod ear;
mod error;
mod first_store;
pub mod folios;
pub mod holders;
pub mod maps;
mod notified;
pub mod pagemap;
mod record;
mod soft_dirty;
mod span;
pub mod uffd;

use core::fmt;
use std::sync::Arc;

pub use async_protect::AsyncProtect;
pub use bar::Bar;
pub use board::{Board, Open};
pub use controller::Controller;
pub use direct::is_direct;
pub use error::TrackError;
pub use first_store::FirstStore;
pub(crate) use first_store::{begin_child, let_through};
pub use notified::Notified;
pub use record::{MediumRecord, NOTED, Record, RecordPlaces};
pub use soft_dirty::{Freeze, SoftDirty};
pub use span::{Forks, Span, allocated};

/// Knows which pages of a file were stored to. Ranges are bytes of the file, whole pages.
pub trait DirtySource: Send + Sync {
    /// Which one it is.
    fn kind(&self) -> SourceKind;

    /// Begins to track `[at, at + len)`. Everything there counts as stored to until it was taken
    /// once, except with bits that have survived since before ([`Controller`]). Arming again what
    /// is armed begins anew, which is the remedy for a range that is not intact any more. Only
    /// allocated parts need arming ([`allocated`]).
    ///
    /// # Errors
    /// A [`TrackError`]; nothing can be said of the range.
    fn arm(&self, at: u64, len: u64) -> Result<(), TrackError>;

    /// Ends the tracking of `[at, at + len)`.
    ///
    /// # Errors
    /// A [`TrackError`].
    fn disarm(&self, at: u64, len: u64) -> Result<(), TrackError>;

    /// Tells the pages of `[at, at + len)` stored to since they were last taken, as runs (first
    /// byte, bytes) in ascending order, each cleared in one step with being told. Pages that are
    /// not armed are not told, nor are they intact. `each` must not call the source.
    ///
    /// # Errors
    /// A [`TrackError`]: nothing was told, and nothing is forgotten that should have been.
    fn take(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError>;

    /// The same, with nothing cleared.
    ///
    /// # Errors
    /// A [`TrackError`].
    fn peek(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError>;

    /// Tells what [`take`](Self::take) would, and leaves every page open that was stored to:
    /// further stores to it cost nothing, and it is told again by every call until it is taken.
    /// Facts that nobody pays for are taken.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    fn skim(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        self.peek(at, len, each)
    }

    /// Peeks into several ranges (first byte, bytes), and says whether all of them are
    /// [intact](Self::intact) *after* that: if not, what was told of any of them may not be all.
    /// Runs come in any order. For a file with holes this is one question less for each part.
    ///
    /// # Errors
    /// A [`TrackError`].
    fn peek_all(
        &self,
        ranges: &[(u64, u64)],
        each: &mut dyn FnMut(u64, u64),
    ) -> Result<bool, TrackError> {
        for (at, len) in ranges {
            self.peek(*at, *len, each)?;
        }
        Ok(self.all_intact(ranges))
    }

    /// Says that whatever [`take`](Self::take) has told of `[at, at + len)` is noted elsewhere,
    /// durably. A source whose bits outlive a crash by themselves keeps those of pages it has told
    /// until then; others have nothing to forget.
    fn forget(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// Whether it is known that no store of a kind the source sees can have escaped it in the range
    /// since it was armed: nothing was moved, unmapped, mapped over or forked away.
    fn intact(&self, at: u64, len: u64) -> bool;

    /// The same of several ranges (first byte, bytes) at once, all of them: a file with holes has
    /// hundreds, and what it costs to ask is mostly the same for one.
    fn all_intact(&self, ranges: &[(u64, u64)]) -> bool {
        ranges.iter().all(|(at, len)| self.intact(*at, *len))
    }

    /// What becomes of a write that goes this way.
    fn coverage(&self, way: WriteWay) -> Observed;
}

impl<D: DirtySource + ?Sized> DirtySource for Arc<D> {
    fn kind(&self) -> SourceKind {
        (**self).kind()
    }

    fn arm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        (**self).arm(at, len)
    }

    fn disarm(&self, at: u64, len: u64) -> Result<(), TrackError> {
        (**self).disarm(at, len)
    }

    fn take(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        (**self).take(at, len, each)
    }

    fn peek(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        (**self).peek(at, len, each)
    }

    fn skim(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) -> Result<(), TrackError> {
        (**self).skim(at, len, each)
    }

    fn peek_all(
        &self,
        ranges: &[(u64, u64)],
        each: &mut dyn FnMut(u64, u64),
    ) -> Result<bool, TrackError> {
        (**self).peek_all(ranges, each)
    }

    fn forget(&self, at: u64, len: u64) {
        (**self).forget(at, len);
    }

    fn intact(&self, at: u64, len: u64) -> bool {
        (**self).intact(at, len)
    }

    fn all_intact(&self, ranges: &[(u64, u64)]) -> bool {
        (**self).all_intact(ranges)
    }

    fn coverage(&self, way: WriteWay) -> Observed {
        (**self).coverage(way)
    }
}

/// The dirty sources there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// Asynchronous write protection by the kernel.
    AsyncProtect,
    /// The kernel's soft-dirty bits.
    SoftDirty,
    /// Write protection with a fault handler and a persistent record.
    FirstStore,
    /// Writes that are announced.
    Notified,
    /// Dirty bits kept by the medium itself (emulated).
    Controller,
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::AsyncProtect => "async protect",
            Self::SoftDirty => "soft dirty",
            Self::FirstStore => "first store",
            Self::Notified => "notified",
            Self::Controller => "controller",
        })
    }
}

/// The ways in which the bytes of a mapped file can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteWay {
    /// A store through the tracked mapping.
    Store,
    /// `write`, `pwrite` and their kin, through the page cache.
    Pwrite,
    /// The same past the page cache.
    DirectPwrite,
    /// The file is cut off (and may grow again, with zeros).
    Truncate,
    /// A hole is punched: bytes become zeros.
    Punch,
    /// A store through another mapping of the same process.
    SecondMapping,
    /// A store by a forked child, through the mapping it inherited.
    ForkedChild,
    /// A store at the new addresses of a mapping that was moved.
    Mremap,
    /// A store, after which the process replaces its program before anybody asked.
    Exec,
    /// A store, after which the process is killed before anybody asked.
    Kill,
    /// A store or write by a process that knows nothing of us.
    ForeignProcess,
}

impl WriteWay {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Store,
        Self::Pwrite,
        Self::DirectPwrite,
        Self::Truncate,
        Self::Punch,
        Self::SecondMapping,
        Self::ForkedChild,
        Self::Mremap,
        Self::Exec,
        Self::Kill,
        Self::ForeignProcess,
    ];
}

impl fmt::Display for WriteWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Store => "store",
            Self::Pwrite => "pwrite",
            Self::DirectPwrite => "direct pwrite",
            Self::Truncate => "truncate",
            Self::Punch => "punch hole",
            Self::SecondMapping => "second mapping",
            Self::ForkedChild => "forked child",
            Self::Mremap => "mremap",
            Self::Exec => "exec",
            Self::Kill => "kill",
            Self::ForeignProcess => "foreign process",
        })
    }
}

/// What a source does with a way to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Observed {
    /// The page is told.
    Seen,
    /// The write fails, and the bytes stay.
    Refused,
    /// The bytes may change without the page being told, or its bit may be lost: a checksum that
    /// does not match proves nothing.
    Undecided,
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Seen => "seen",
            Self::Refused => "refused",
            Self::Undecided => "undecided",
        })
    }
}
