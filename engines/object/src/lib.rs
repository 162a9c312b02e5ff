//! Transactional object store: private copies, object sums, zone parity, online repair.
//!
//! # Guarantee
//!
//! Once [`Pool::run`] has returned `Ok`, the transaction is on the medium as a whole, and survives
//! what the medium's kind says (a power cut on `Dax` and `File`, a killed process on `Shm`). Before
//! that it is there as a whole or not at all, after any crash. Any one page of a column (any two
//! with Q), any stray write up to a row long, and any one copy of metadata or log is found and put
//! right while the pool is in use. What is damaged beyond that is named, and the rest stays usable.
//!
//! Not covered: reads under `FirstTouch` and `Never` serve damage that came after the last look,
//! until a scrub finds it; a second damage in the ranges of transactions that were in flight at a
//! crash, which is named; a wrong value the program itself commits; malice.
//!
//! # Picture
//!
//! ```text
//!  program ---- tx.open_mut ---> private copy (DRAM, between guard words)
//!                                     |  commit
//!              lane's log, copy A <---+---> copy B        F1: the commit point
//!                                     |
//!              object, slot, sums <---+---> P (and Q)     F2, then locks are released
//! ```
//!
//! # Vocabulary
//!
//! *private copy*: the transaction's verified copy of an object, or of granules of one. *version
//! word*: says which commit last changed an object and who holds it. *column*: a page wide, over
//! all rows of a zone; held while anything over it is stored or judged. *watermark*: every commit
//! up to it is complete. *unit*: bytes with a sum of their own.
//!
//! # Life of a commit
//!
//! `commit.rs` numbers the steps: guards, prepare, lock, validate, touch, number, columns, record,
//! **F1**, apply, release, and **F2**, put off until the lane's next commit where it can be
//! (`settle.rs`), then done. On files F1 comes before the columns. Objects too long for the record
//! go by `in_place.rs` (**F0**, **FC**), records too long for the log by `overflow.rs` (**FO**).
//!
//! # After a crash
//!
//! `recover.rs` has the case table: records above the watermark are replayed in order of number,
//! what lies over the same columns is verified, parity is recomputed, and then the log generation
//! is raised, which kills all records at once.
//!
//! # Tour
//!
//! - `pool.rs`, `tx.rs` what programs call, `fresh.rs` new objects, `known.rs` usual reads;
//!   `options.rs` all policies as values
//! - `begun.rs`, `raw_view.rs` the same for programs without closures and types
//! - `commit.rs`, `settle.rs`, `in_place.rs`, `overflow.rs`, `chunks.rs`, `batch.rs`, `diff.rs` the
//!   way to the medium
//! - `open.rs`, `recover.rs`, `redo.rs`, `redo_judge.rs`, `redo_parity.rs`, `owed.rs` after a crash
//! - `repair.rs`, `candidates.rs`, `mend_unit.rs`, `whole_page.rs`, `halves.rs`, `located.rs`,
//!   `blame.rs`, `newer.rs`, `one_sided.rs`, `bring_back.rs`, `hold.rs`, `hopeless.rs`, `copies.rs`
//!   putting right; `report.rs`, `made_up.rs` telling of it
//! - `sweep.rs`, `scrub.rs` looking
//! - `grow.rs` more room; `versions.rs`, `touched.rs`, `marks.rs`, `lane.rs`, `view.rs` what DRAM
//!   keeps
//! - `format.rs`, `anchor.rs`, `geometry.rs` where things are

#![deny(unsafe_code)]

mod anchor;
mod anew;
mod batch;
mod begun;
mod beside;
mod blame;
mod bring_back;
mod candidates;
mod changes;
mod chunks;
mod commit;
mod copies;
mod diff;
mod error;
pub mod format;
mod fresh;
mod geometry;
mod grow;
mod halves;
mod hold;
mod hopeless;
mod in_place;
mod judged;
mod known;
mod lane;
mod located;
mod log;
mod made_up;
mod marks;
mod mend_unit;
#[cfg(loom)]
pub mod modelled;
mod newer;
mod one_sided;
mod open;
mod options;
mod overflow;
mod owed;
mod patched;
mod pool;
mod raw_view;
mod recover;
mod redo;
mod redo_judge;
mod redo_parity;
mod repair;
mod report;
mod scrub;
mod settle;
mod shared;
mod stand_in;
mod sweep;
mod touched;
mod tx;
mod versions;
#[allow(unsafe_code)]
mod view;
mod whole_page;

pub use anchor::Anchor;
pub use begun::Begun;
pub use error::Error;
pub use open::Opened;
pub use options::{CreateOptions, OpenOptions, Parity, VerifyReads};
pub use pool::{Pool, Stats, View};
pub use raw_view::RawView;
pub use recover::Recovered;
pub use scrub::{ScrubControl, ScrubOptions, Scrubbed};
pub use sweep::{CheckReport, Finding};
pub use tx::Tx;
pub use view::Mut;
