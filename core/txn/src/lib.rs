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
//! # Rules an engine keeps
//!
//! - A closure given to [`Store::run`] may be executed several times. It must not keep effects
//!   outside the transaction that a second execution would repeat.
//! - Every read goes through the handle, so that it can be recorded and validated.
//! - An error returned by the closure aborts: nothing it did is visible or durable. `Conflict`
//!   and `Damaged` make the engine run it again (after repair); other errors reach the caller.
//! - A private copy is opened at most once: a second `open_mut` of an object while the first
//!   guard lives is [`TxError::AlreadyOpen`].
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
