//! The record of what a program did, call by call, for whoever explains a crash image: which store
//! it was that had arrived, where in the source it stands, and whether it was ever flushed.
//!
//! Kept only where [`Config::trace`](crate::Config::trace) asks for it: campaigns build millions
//! of images and ask about none.

use core::panic::Location;

use holdfast_pmem::Site;

use crate::sites::SiteKind;

/// One call that stored, flushed or ordered something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The name the caller gave.
    pub site: Site,
    /// What the call does.
    pub kind: SiteKind,
    /// Where in the source the call stands; of calls through `dyn Medium`, where the trait does.
    pub place: &'static Location<'static>,
    /// First byte stored, flushed or added, as an offset into the pool; 0 for barriers of
    /// everything.
    pub at: u64,
    /// Bytes stored, flushed or added.
    pub len: u64,
    /// Number of the newest store before the call.
    pub before: u64,
    /// Number of the newest store after it: what it stored has the numbers in between, this one
    /// included.
    pub after: u64,
    /// Lines flushed; 0 where the place is switched off.
    pub flushed: u64,
    /// Of these, lines of which a flush could make nothing durable that an earlier one does not.
    pub wasted: u64,
    /// Whether the call is a barrier that had nothing to wait for.
    pub idle: bool,
    /// A number of the calling thread.
    pub thread: u32,
}

impl Call {
    /// Whether the call made the store of this number.
    #[must_use]
    pub const fn made(&self, store: u64) -> bool {
        self.before < store && store <= self.after
    }

    /// Whether the call waits for what its thread flushed, or makes something durable by itself.
    #[must_use]
    pub const fn is_barrier(&self) -> bool {
        use SiteKind as Kind;
        matches!(self.kind, Kind::Drain | Kind::Append | Kind::Sync | Kind::Heal | Kind::Grow)
    }

    /// Whether everything the call was for had been done before it.
    #[must_use]
    pub const fn is_redundant(&self) -> bool {
        match self.kind {
            SiteKind::Drain | SiteKind::Sync => self.idle,
            SiteKind::Append | SiteKind::Heal | SiteKind::Grow => false,
            _ => self.flushed > 0 && self.wasted == self.flushed,
        }
    }
}

/// A piece of the medium that a crash leaves in one of several states, for whoever builds an image
/// of choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitStates {
    /// First byte in the file.
    pub at: u64,
    /// The state the program sees; 0 if that is the persisted one.
    pub newest: u32,
    /// Number of the store that completes each state, from state 1 on.
    pub stores: Vec<u64>,
}
