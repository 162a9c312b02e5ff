//! Redundancy of bytes on a medium: stripe geometry, mirrored records, rebuild, repair
//! bookkeeping, scrub pacing and the history of repairs.
//!
//! # Guarantee
//!
//! * A zone whose columns are patched under their locks can give back any one unit of a column
//!   (a data row or the parity row), and any two where Q is kept. What cannot be read is never
//!   taken for zeros. What is rebuilt is a candidate until a sum, or P and Q together, confirm it.
//! * Of a mirrored record, at least one valid copy exists at every instant of every write, and the
//!   newest valid one is what a read answers.
//! * Whatever bytes are found on the medium, every offset, length and count used is bounded.
//!
//! Not covered: two wrong units over the same bytes of a column with P only (three with Q); a
//! crash *and* a damage in the same column of a commit in flight (the engine's recovery names what
//! is lost); free space, which has no sum; and malice.
//!
//! # Picture
//!
//! ```text
//!  side A          side B              zone
//!  | superblock |  | superblock |      row 0   | directory, chunks ...        |
//!  | regions    |  | regions    |      row 1   | ...                          |
//!  | remap      |  | remap      |       :             column: all rows at one
//!  | intent     |  | intent     |      row n   | ...         offset in the row|
//!  | progress   |  | progress   |      P       | sum of the rows              |
//!  | events     |  | events     |      Q       | sum of g^row * row           |
//!    written second  written first
//! ```
//!
//! # Vocabulary
//!
//! *row*, *column*: a zone seen as a table, one row `row_len` bytes. *page column*: one page wide;
//! what a lock covers. *unit*: a row or a parity row within a column. *delta*: old bytes XOR new
//! bytes. *exempt*: counts as zeros in parity (log chunks). *mirrored record*: a page in both
//! sides. *stale*: a valid copy that is older than the other one. *spare*: a frame kept free for
//! relocation.
//!
//! # Life of a change, as far as this crate sees it
//!
//! 1. the engine takes the [`Columns`] of everything it is about to change, ascending
//! 2. it stores the new bytes; [`parity::patch`] XORs their deltas into P and Q (flushed only)
//! 3. it releases the columns, then drains: that **drain** is the engine's second one
//!
//! # Life of a repair
//!
//! 1. something fails to verify or to be read; the engine takes that one column
//! 2. [`parity::rebuild`] computes candidates; the engine accepts one by its sum
//! 3. [`RepairIntent::begin`] (**two drains**), the bytes are stored (**drain**) or their frame is
//!    moved by [`RemapTable::relocate`], [`RepairIntent::clear`] (**two drains**)
//! 4. the column is released; [`Journal::append`] tells the story (**two drains**)
//!
//! # Tour
//!
//! | file | concept |
//! |---|---|
//! | `verdict.rs` | good, corrupt, undecided; the units that can be wrong |
//! | `zone.rs`, `columns.rs`, `exempt.rs` | rows and columns; their locks; what counts as zeros |
//! | `parity.rs` | patch, store, check, rebuild |
//! | `copies.rs`, `mirror.rs`, `record.rs` | two copies of a page: order, reading, owner |
//! | `superblock.rs` | the first page, and how its copy is found without it |
//! | `remap.rs` | relocation of frames |
//! | `intent.rs`, `progress.rs` | notes a repair and a scrub leave for the next open |
//! | `event.rs`, `events.rs` | an event; the journal of events |
//! | `pace.rs` | when to scrub and how fast |
//! | `pages.rs`, `pages/` | stripes of whole pages of a file that is not ours, and what a page is |
//! | `format.rs`, `error.rs` | every offset; what can go wrong |

#![forbid(unsafe_code)]

pub mod columns;
mod copies;
pub mod error;
mod event;
pub mod events;
pub mod exempt;
pub mod format;
pub mod intent;
pub mod mirror;
pub mod pace;
pub mod pages;
pub mod parity;
pub mod progress;
pub mod record;
pub mod remap;
pub mod superblock;
pub mod verdict;
pub mod zone;

pub use columns::{ColumnId, Columns, Held};
pub use error::{Error, Result};
pub use events::{Event, Journal};
pub use exempt::{Exempt, ExemptRanges, NoneExempt};
pub use intent::{Intent, RepairIntent};
pub use mirror::{CopyState, Mirror, MirrorSites, Mirrored};
pub use pace::{Pace, Schedule, Scheduler, Trigger};
pub use pages::{Instructions, PagePlace, PageStripes, PageVerdict, Unsure};
pub use parity::{Mismatch, Parity, ParitySites, Scratch, Suspect};
pub use progress::{Progress, ScrubProgress, ScrubState};
pub use record::Again;
pub use record::Record;
pub use remap::RemapTable;
pub use superblock::{FoundSuperblock, heal_superblock, read_superblock, write_superblock};
pub use verdict::{Reason, Side, Verdict, Wrong};
pub use zone::{Piece, Pieces, Place, Unit, Zone};
