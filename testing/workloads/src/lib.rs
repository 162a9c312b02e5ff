//! Seeded workloads: which key, which value, which operation comes next.
//!
//! # Guarantee, and what is not covered
//!
//! The same seed gives the same workload, in every build and for every version of any dependency,
//! because there is none: the generators are written out here and compared with their reference
//! outputs. The distributions are tested against their probabilities. Nothing here talks to a
//! store, measures time or spawns threads; the random numbers are not fit for secrets. Skewed keys
//! use `powf`, so a draw that falls exactly between two keys may differ between machines.
//!
//! # Picture
//!
//! ```text
//!  seed --> Rng --> Uniform | Zipfian | ScrambledZipfian | Latest | HotSpot --> key number
//!             |       |
//!             |       +--> ycsb::Operations (mixes A to F) --> read, update, insert, scan, ...
//!             +--------> bytes::ByteStrings --> awkward keys; bytes::value --> checkable values
//!  alphabet ------------> sequences::Sequences (all of 1 and 2), sample (of 3) --> crash explorer
//! ```
//!
//! # Vocabulary
//!
//! - *key number*: keys are numbered in the order of their insertion, from 0.
//! - *rank*: 0 for the most popular, whatever its number.
//! - *mix*: shares of operations and a choice of keys.
//! - *alphabet*: all operations on a small namespace; a *sequence* is a word over it.
//! - *stream*: what one client draws; parts of a run have streams of their own (`Rng::part`).
//!
//! # Life of one operation
//!
//! 1. the harness draws an `Op` from its stream;
//! 2. it turns the key number into a name (`ycsb::key_name`) and derives the value of the next
//!    version (`bytes::value`);
//! 3. it runs it against the store, where the fences are; and
//! 4. later checks any value it reads with `bytes::first_wrong_byte`, having kept none.
//!
//! # Tour
//!
//! | file | concept |
//! |---|---|
//! | `rng.rs` | SplitMix64, xoshiro256**, streams for parts |
//! | `keys.rs` | choices of keys, FNV-64 |
//! | `ycsb.rs` | mixes A to F |
//! | `bytes.rs` | awkward byte strings, checkable values |
//! | `sequences.rs` | all short sequences, and samples of longer ones |
//!
//! # Smallest use
//!
//! ```
//! use holdfast_workloads::ycsb::{Mix, Operations, key_name};
//!
//! let mut stream = Operations::new(Mix::A, 42, 1_000, 10);
//! assert_eq!(stream.next_op(), Operations::new(Mix::A, 42, 1_000, 10).next_op());
//! assert!(key_name(0).starts_with(b"user"));
//! ```
#![forbid(unsafe_code)]

pub mod bytes;
pub mod keys;
pub mod rng;
pub mod sequences;
pub mod ycsb;

pub use rng::Rng;
