//! Naive models and independent checkers: what a test believes when the engine disagrees.
//!
//! # Guarantee, and what is not covered
//!
//! Everything here is sequential, deterministic from its seeds, and shares no code with what it
//! judges: this crate depends on no other crate of the workspace. It judges *results*: it does not
//! open pools, kill processes or make crash images of real ones; the campaigns do, and ask here
//! what to make of what they find.
//!
//! # Picture
//!
//! ```text
//!                 before code exists           while code runs          after a crash
//!  commit_model   are the rules sound?
//!  map_model                                   does the map answer      does it hold the same?
//!                                              like a naive one?
//!  acked                                       note begin and ack       all acked, nothing half?
//!  reach                                                                allocated = reachable?
//!  linear                                      note calls and answers   is there an order that
//!                                                                       explains all answers?
//! ```
//!
//! # Vocabulary
//!
//! - *model*: a naive program that is obviously right and slow.
//! - *judge*: compares a recovered state with what was promised, knowing nothing of how it is kept.
//! - *mutant*: the protocol with one rule left out; a *conviction* is a wrong state it led to.
//! - *trial*: everything that follows from one seed.
//! - *acknowledged*, *in flight*: an operation whose caller was told, or was not yet told.
//!
//! # Life of one trial of the commit model
//!
//! 1. a pool is created from the seed; lanes take turns, one step at a time;
//! 2. a commit publishes a bound, draws its number, computes L, waits for its place, writes its
//!    record twice: **F1**, the commit point; locks columns, stores, patches parity, releases:
//!    **F2**; and is done. On File, F1 is the append's sync, and a sync of the heap at reclaim
//!    takes the place of F2;
//! 3. at random steps a crash image is taken, damaged perhaps, recovered with crashes inside;
//! 4. the judge compares; a difference is a violation, repeated by the seed.
//!
//! # Tour
//!
//! | file | concept |
//! |---|---|
//! | `commit_model/` | commit and recovery as a small program that can be wrong on purpose |
//! | `map_model.rs` | ordered map of byte strings, and the first difference to it |
//! | `acked.rs` | acknowledged operations against a recovered state |
//! | `reach.rs` | reachability and leaks |
//! | `linear/` | linearizability of what threads were answered, across crashes as well |
//! | `rng.rs` | chance, from a seed |
//!
//! # Smallest use
//!
//! ```
//! use holdfast_oracle::acked::Acked;
//! use holdfast_oracle::map_model::{MapModel, MapOp};
//!
//! let mut log = Acked::new(MapModel::new());
//! let ticket = log.begin(MapOp::Put { key: b"k".to_vec(), value: b"v".to_vec() });
//! // ... the program under test is killed here, and its map read back ...
//! let recovered: MapModel = [("k", "v")].into_iter().collect();
//! assert_eq!(log.verify(&recovered)?.happened, [ticket]);
//! # Ok::<(), holdfast_oracle::acked::AckedError>(())
//! ```
#![forbid(unsafe_code)]

pub mod acked;
pub mod commit_model;
pub mod linear;
pub mod map_model;
pub mod reach;
mod rng;
