//! What a guarded program and its supervisor say to each other, and what they share.
//!
//! # Guarantee
//!
//! A message that is believed is of this version and has every field in its bounds; whatever else
//! arrives is an error value. Whatever stands in the shared memory, the supervisor reads and writes
//! no memory but that.
//!
//! Not covered: a guarded program that lies, in messages or in the shared memory. It can hide its
//! own writes, and those of the others under the same guard: they share the ledger and the boards,
//! and have to trust each other.
//!
//! # Picture
//!
//! ```text
//!   program                                        supervisor
//!     |--- connect, request, descriptor -------------->|   link.rs, message.rs
//!     |<-- answer, descriptor -------------------------|
//!     |                                                |
//!     |--- reads --> [ ledger: which files ] <-- writes|   ledger.rs
//!     |--- writes -> [ board of each file  ] --> reads |   holdfast-pmem, track::Board
//! ```
//!
//! # Vocabulary
//!
//! *space*: an address space, by the number the supervisor gave it. *file*: a guarded file, by its
//! entry in the *ledger*. *place*: pages of addresses. *board*: where writes of one file are
//! announced. *anchor*: what keeps the page tables of a space when its program is gone.
//!
//! # Life of a mapping
//!
//! 1. the program maps a file; `fstat` says which; the ledger, or [`Request::Ask`], whether it is
//!    guarded
//! 2. it registers the pages with the kernel and sends [`Request::Map`]; the supervisor arms them
//!    and answers; only then does the call return to the program
//! 3. [`Request::Unmap`] before it goes: the supervisor takes what was stored, and answers
//!
//! # Tour
//!
//! | file | concept |
//! |---|---|
//! | `message.rs` | requests and answers as words |
//! | `link.rs` | sockets |
//! | `ledger.rs` | the shared list of files |

mod ledger;
pub mod link;
mod message;

pub use ledger::Ledger;
pub use message::{Answer, MESSAGE, MOST_FILES, Place, Refusal, Request, Spawned, VERSION};

/// Environment variable by which a program finds its supervisor.
pub const NAME: &str = "HOLDFAST_GUARD";
/// Slots of every board: writes under way at a time that are told apart.
pub const SLOTS: u32 = 256;
