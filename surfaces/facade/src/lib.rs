//! Durable, self-checking data in one memory-mapped file: objects, transactions, typed maps.
//!
//! # Guarantee
//!
//! What a transaction changed is durable when [`Pool::run`] returns, all of it or nothing, through
//! a crash of the process and, on files and direct-access media, a power cut; what is in force is
//! told by [`Pool::status`]. No committed byte is ever silently wrong where reads verify
//! [`VerifyReads::Always`]. Damage within the redundancy (with [`Parity::P`] one page of each
//! column, with [`Parity::PQ`] two) is repaired while the pool is in use. Beyond it, the objects
//! lost are named and the rest stays usable.
//!
//! Not covered: under `FirstTouch` (the default) and `Never`, damage that comes after the last
//! look is served until the next scrub or change finds it. Nothing is covered against malice, or
//! against the loss of the whole file.
//!
//! # Five lines
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # std::env::set_current_dir(&folder)?;
//! let pool = holdfast::Pool::options().size(16 << 20).create("words.pool")?;
//! let words = pool.map::<str, [u8]>("words")?;
//! words.put("hello", b"world")?;
//! assert_eq!(words.get("hello")?.as_deref(), Some(&b"world"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Picture
//!
//! ```text
//!   pool.run(|tx| ...)   pool.map("words")   pool.scrub(...)      other processes
//!          |                    |                  |                |         |
//!          +---- transactions --+                  |             Observer   Owner
//!                      |                           |                |         |
//!   private copies, log record, fence, objects + parity, fence      |   commands, by a
//!                      |                           |                |   local socket
//!                 one file: metadata twice | log twice | objects, slots, parity
//! ```
//!
//! # Vocabulary
//!
//! *pool*: one file with everything in it. *transaction*: a closure that may be executed again.
//! *private copy*: the transaction's own copy of an object, checked when it was made. *root*: the
//! object a program starts from. *event*: the report of a detection or repair. *observer*: looks
//! at a pool that somebody else has open. *owner*: who has it open for writing.
//!
//! # Life of one change
//!
//! 1. `tx.open_mut(ptr)` verifies the object and copies it to DRAM.
//! 2. The closure changes the copy; the file is untouched.
//! 3. The closure returns `Ok`: what it read is compared with what is there now. If another
//!    transaction came first, the closure is executed again.
//! 4. The change goes to both copies of the log. **First fence**: from here on it survives.
//! 5. Object, sum and parity are changed. **Second fence**. On an ordinary file the first fence is
//!    one synchronous write, and there is no second.
//!
//! # Tour
//!
//! [`Options`] how a pool is made and opened; [`Pool`] what can be done with it; [`NamedMap`]
//! maps by name; [`Error`] what can go wrong, and the remedy; [`Observer`], [`Owner`] pools that
//! other processes have open; [`anatomy`] where the live bytes are; `background.rs` and `serve.rs`
//! threads that serve a pool; `scrubbing.rs` a scrub and how far it is;
//! [`Latency`] how long transactions take; [`protect`] redundancy for files of any kind;
//! `clock.rs` the time of events; `examples/` bank transfer, linked list, word index.

#![forbid(unsafe_code)]

pub mod anatomy;
mod background;
mod clock;
mod error;
mod latency;
mod maps;
mod observer;
mod options;
mod owner;
mod pool;
pub mod protect;
mod scrubbing;
mod serve;

pub use clock::WallClock;
pub use error::{Error, ErrorKind, Result};
pub use latency::Latency;
pub use maps::{NAME_MAX, NamedMap};
pub use observer::Observer;
pub use options::{LABEL_MAX, Options};
pub use owner::{Owner, Summary};
pub use pool::{Figures, Pool};
pub use scrubbing::ScrubStatus;

pub use holdfast_collections as collections;
pub use holdfast_collections::{BTree, Cursor, HashTable, Key, Kind, Map, MapInfo, Value};
pub use holdfast_derive::PersistFacade as Persist;
pub use holdfast_heap::Space;
/// What the derive of [`Persist`](macro@Persist) refers to.
pub use holdfast_layout as layout;
pub use holdfast_layout::persist::Persist;
pub use holdfast_layout::{Ptr, RawPtr, SumKind, TypeNumber};
pub use holdfast_object::{
    Begun, CheckReport, Finding, Mut, Opened, Parity, RawView, ScrubControl, ScrubOptions,
    Scrubbed, Stats, VerifyReads, View,
};
/// The medium below, for programs that bring their own.
pub use holdfast_pmem as pmem;
pub use holdfast_pmem::{Durability, Protect, Protection, Status};
pub use holdfast_redundancy::events::{Cause, Event, Finder, Outcome};
pub use holdfast_redundancy::progress::{Progress, ScrubState};
pub use holdfast_redundancy::{Reason, Verdict, Wrong};
pub use holdfast_txn::{Result as TxResult, Transaction, TxError};

/// The handle a transaction's closure receives.
pub type Tx<'p, M = holdfast_pmem::Mapped> = holdfast_object::Tx<'p, M>;
