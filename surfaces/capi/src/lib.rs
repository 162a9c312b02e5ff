//! Holdfast for C and C++: what `holdfast.h` declares.
//!
//! # Guarantee
//!
//! Durability and repair are those of the crate `holdfast`. At the border: a null or misaligned
//! pointer, a place for an answer that lies in a pool or overlaps what is read, a handle that was
//! given back or made up or is of another sort, a transaction used by another thread, an unknown
//! value, a key or value of the wrong size and a panic each become a code and a text. A handle is
//! a number that is looked up, never an address that is followed.
//!
//! Not covered: an address of memory that is too short or not the program's, a pointer of another
//! pool that by chance names an object of the same type here, and an exception or a jump out of a
//! function that is called back. What the program writes through an address after its transaction
//! ended goes to memory that may serve another.
//!
//! # Picture
//!
//! ```text
//!   C, C++ (holdfast.hpp)
//!      |  numbers, addresses, lengths
//!   border.rs  code + text of the thread; panics stop here
//!      |                       |
//!   handle.rs: tables of      tx.rs: transactions in
//!   pools, maps, views,       a table of their thread
//!   cursors                     |
//!      |                        |
//!      +----------- holdfast::Pool -----------+
//! ```
//!
//! # Vocabulary
//!
//! *handle*: a number with sort, generation and place in a table. *code*: how a call ended.
//! *message*: the text of the thread's last error. *private copy*: what a transaction lends.
//!
//! # Life of a transaction
//!
//! 1. `holdfast_tx_begin` takes a lane; the handle is good on this thread only.
//! 2. `holdfast_tx_open` verifies an object and lends its private copy. The file is untouched.
//! 3. `holdfast_tx_commit` takes all loans back and commits, with the two **fences** the engine
//!    names; or answers `HOLDFAST_AGAIN`, and the transaction is as after step 1.
//!
//! A read that fails leaves the transaction as it was, unless the code is `HOLDFAST_AGAIN`; after a
//! change that failed it can only be aborted, and a commit tells why.
//!
//! # Tour
//!
//! `border.rs` codes, texts, looking at what C hands over; `handle.rs` tables; `pool.rs` pools;
//! `tx.rs` begin, commit, run; `objects.rs` objects in a transaction; `read.rs` reads and views
//! outside; `map.rs` maps, `content.rs` their keys and values, `walk.rs` scans and cursors;
//! `mapped.rs` where no answer goes; `scrub.rs` check, scrub, repair; `event.rs` the history.
//! `include/holdfast.h` is made from this by `cargo xtask capi`.

#![allow(non_camel_case_types, reason = "the names are those of the header")]

mod border;
mod content;
mod event;
mod handle;
mod map;
mod mapped;
mod objects;
mod pool;
mod read;
mod scrub;
mod tx;
mod walk;

pub use border::*;
pub use content::*;
pub use event::*;
pub use map::*;
pub use objects::*;
pub use pool::*;
pub use read::*;
pub use scrub::*;
pub use tx::*;
pub use walk::*;
