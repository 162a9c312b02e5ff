//! What any transactional memory offers: the traits collections and checkers are written against.
//!
//! # Guarantee
//!
//! Code written against [`Store`] and [`Transaction`] runs on every engine of the workspace: the
//! object store today, multi-version transactions later, and the plain in-memory
//! [`toy::ToyStore`] that tests use to keep the traits honest. What isolation and durability a
//! run has is the engine's promise, not this crate's.
//!
//! Not covered: registered operations and thread placement; they belong to engines.
//!
//! # Picture
//!
//! ```text
//!   collections, checkers, programs
//!            |  written against
//!      Store, Transaction  ------ TxError: what a closure may see
//!            |  implemented by
//!   an engine on a medium        toy::ToyStore in memory
//! ```
//!
//! # Rules an engine keeps
//!
//! - A closure given to [`Store::run`] may be executed several times. It must not keep effects
//!   outside the transaction that a second execution would repeat.
//! - Every read goes through the handle, so that it can be recorded and validated.
//! - An error returned by the closure aborts: nothing it did is visible or durable. `Conflict`
//!   and `Damaged` make the engine run it again (after repair); other errors reach the caller.
//! - A part done by [`Transaction::whole`], or by a `run` inside a `run`, that fails after it
//!   changed something takes the transaction with it, even if the closure goes on; a panic in it,
//!   even if the closure catches it.
//! - A private copy is opened at most once: a second `open_mut` of an object while the first
//!   guard lives is [`TxError::AlreadyOpen`].
//!
//! # Life of one run
//!
//! 1. [`Store::run`] calls the closure with a handle. Reads go through it and are recorded.
//! 2. `open_mut` and `write_bytes` change private copies; nobody else sees them.
//! 3. The closure returns `Ok`: the engine validates the reads and commits. What was changed is
//!    durable once `run` returns; which **fences** that takes is the engine's to say.
//! 4. The closure returns an error: the copies are dropped. After `Conflict` and `Damaged` step 1
//!    comes again, and whatever the closure did outside of the transaction is done twice.
//!
//! After a crash the store holds what the runs that returned have changed, and of each run under
//! way everything or nothing.
//!
//! # Vocabulary
//!
//! *handle*: the `&Tx` a closure receives. *private copy*: the transaction's own copy of an
//! object. *guard*: a value that lends a private copy for change. *isolation*: which anomalies a
//! run may see.
//!
//! # Tour
//!
//! `error.rs` what can go wrong; `store.rs` the traits; `toy.rs` a second implementor.

#![forbid(unsafe_code)]

pub mod error;
pub mod store;
pub mod toy;

pub use error::{Result, TxError};
pub use store::{Isolation, Store, Transaction};
