//! Redundancy for files of any kind: sums and parity of their pages, in a side file beside them.
//!
//! # Guarantee
//!
//! A page that was covered and not changed since is found if it is damaged, and given back if its
//! stripe has no more bad pages than parity pages. *A write that was not observed is never repaired
//! away*: what differs and may have been written is *undecided*, keeps its content, and is replaced
//! only by force; what it was is offered beside it.
//!
//! Not covered: what was stored to since the last pass; reads, which verify nothing; the loss of
//! the whole file. If the program dies, what was stored to since the last pass is undecided, unless
//! it is on record ([`Tracking::Recorded`]). See `docs/design/mapped.md`.
//!
//! ```
//! use holdfast::protect::{ProtectOptions, ProtectedFile};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("book.txt");
//! std::fs::write(&path, b"It was a dark and stormy night. ".repeat(1000))?;
//! ProtectedFile::protect(&path, &ProtectOptions::new())?.close()?;
//!
//! let file = ProtectedFile::look(&path, &ProtectOptions::new())?;
//! assert!(file.verify(|_, _| true)?.is_clean());
//! # Ok(())
//! # }
//! ```
//!
//! # Tour
//!
//! [`ProtectedFile`] a file at rest; [`ProtectedMap`] one that this process has mapped, with a
//! thread that covers what is stored, and one that gives back what loads could not have
//! (`heal.rs`); [`Before`] an image of what a file was; [`ProtectOptions`]; [`ProtectStatus`] what
//! is covered; [`Told`] the same of a file that another process keeps, by a local socket.
//! `area.rs` where the redundancy lies: in a side file (`side.rs`), or in a region of a pool
//! (`region.rs`) to which a file of that name points (`pointer.rs`) and which knows whose it is
//! (`extent.rs`); [`KeptRegion`] what a pool has.

/// The locks of `gate.rs`.
mod words {
    pub(super) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
}

mod area;
mod before;
mod error;
mod extent;
mod file;
mod format;
mod gate;
mod heal;
mod keeper;
mod kept;
mod live;
mod medium;
mod options;
mod pointer;
mod region;
mod rest;
mod side;
mod source;
mod status;
mod told;
mod watch;

pub use before::Before;
pub use holdfast_mapped::live::{Keeping, Live, Verdicts};
pub use holdfast_mapped::trace;
pub use holdfast_mapped::{
    Counts, Coverage, Covered, Durability, Folios, Judged, Mended, Rearm, STEPS, State, Writers,
};
use holdfast_pmem::ForeignFile;
pub use holdfast_pmem::track::SourceKind;
pub use holdfast_redundancy::{PageVerdict, Unsure};
pub use kept::KeptRegion;
pub use live::ProtectedMap;
pub use options::ProtectOptions;
pub use region::Standing;
pub use rest::{ProtectedFile, Repaired, Verified};
pub use side::side_path;
pub use source::Tracking;
pub use status::{LastPass, ProtectStatus};
pub use told::Told;

/// The engine of a protected file.
pub(crate) type Engine =
    holdfast_mapped::Mapped<ForeignFile, medium::SideMedium, std::sync::Arc<source::Source>>;
