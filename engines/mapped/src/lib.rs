//! Background redundancy for mapped files: page sums, parity, update pass, scrub, repair.
//!
//! # Guarantee
//!
//! A page that was covered and not stored to since is found if it is damaged, and given back if its
//! stripe has no more bad or uncovered pages than parity pages. *A write that was not observed is
//! never repaired away*: *corrupt* is said only of a page to which no store can have gone unseen;
//! whatever else differs is *undecided*, keeps its content through crashes and later openings, and
//! its last covered image is offered beside it.
//!
//! Not covered: what is read (nothing is verified on a load); pages stored to since the last pass,
//! until the next one; clean pages of a stripe with such a page, whose damage is found but not
//! repaired; damage to a page between a store to it and the pass, which becomes part of it; stray
//! stores of the program, which look like any others; malice.
//!
//! # Picture
//!
//! ```text
//!  program --- stores ---> data file F   page page page page | page ...       a region: 256 pages
//!     |                        |           \___ stripe ___/
//!     |  DirtySource           | sums, parity
//!     v                        v
//!  dirty pages --- pass ---> side file S  | headers, intent, events | twice, in two sides
//!                                         | states | entries | parity | states |  per group
//! ```
//!
//! # Vocabulary
//!
//! *covered*: its entry is of what it holds. *entry*: the sum last covered and the one before, one
//! word. *stale*: known, durably, to be behind. *observed*: a store to this very page was seen.
//! *suspect*: somebody may store to the region. *in doubt*: what was stored to was forgotten.
//! *unusable*: parity of bytes that are gone. *admit*, *dismiss*: let writers in, see them off.
//!
//! # Life of a store
//!
//! 1. [`Mapped::admit`]: its region is suspect on the medium (**drain**), and tracked
//! 2. the program stores; its page is dirty, as the source knows
//! 3. [`Mapped::pass`] (`commit.rs`): batch stale, **B**; taken; narrowed, **N**; records of first
//!    stores forgotten; neighbours verified; entry and parity, data synced (**D**), **C**; no
//!    longer stale, **E**
//!    Or at once: [`Mapped::commit`], where the program says which bytes it has just stored.
//! 4. [`Mapped::dismiss`] or [`Mapped::close`]: a last pass, region clean (**drain**)
//!
//! # After a crash
//!
//! `recover.rs` has the table. In regions somebody may have stored to, what agrees is good and what
//! differs is undecided, unless the source's knowledge outlived the crash: its bits, or the record
//! that it made in the side file before it let a first store through ([`record_places`]).
//!
//! # Tour
//!
//! | file | concept |
//! |---|---|
//! | `engine.rs` | the parts, and what all operations share |
//! | `options.rs`, `error.rs` | policies as values; what can go wrong |
//! | `protect.rs`, `admit.rs` | beginning and end; writers, growth, truncation |
//! | `commit.rs`, `look.rs` | the pass; what the rows of a stripe are |
//! | `take.rs`, `busy.rs` | asking the source; regions that passes leave open |
//! | `recover.rs` | opening |
//! | `check.rs` | the verdict table |
//! | `repair.rs`, `scrub.rs` | replacing a page, images before; looking at everything |
//! | `heal.rs` | loads of the program that met a media error |
//! | `coverage.rs`, `trace.rs` | what is covered now; what was not, over windows of any length |
//! | `live.rs` | what whoever keeps a file tells of it, as words |
//! | `format.rs`, `header.rs`, `side.rs`, `bits.rs`, `why.rs` | the side file |
//! | `region.rs` | regions in DRAM |

#![forbid(unsafe_code)]

mod admit;
mod bits;
mod busy;
mod check;
mod commit;
mod coverage;
mod engine;
mod error;
pub mod format;
mod header;
mod heal;
pub mod live;
mod look;
mod options;
mod protect;
mod recover;
mod region;
mod repair;
mod scrub;
mod side;
mod take;
pub mod trace;
mod why;

pub use admit::Writing;
pub use busy::Rearm;
pub use check::{Judged, Report};
pub use commit::Covered;
pub use coverage::{Coverage, STEPS};
pub use engine::{Counts, Mapped};
pub use error::{Error, Result};
pub use header::{Left, State, inode_of, left};
pub use heal::LoadFault;
pub use options::{
    AtRest, Durability, Facts, Folios, Identity, Instructions, Keep, OpenOptions, ProtectOptions,
    When, Writers,
};
pub use recover::{Opened, record_places};
pub use repair::{Force, Mended};
pub use scrub::Scrubbed;
