//! Fault campaigns: a seed makes a workload, a crash or a fault hits it, the engine recovers, and
//! checkers that share nothing with the engine judge what is left.
//!
//! # Guarantee
//!
//! A row that ends without a violation says that no judge saw a wrong state in any of its cases: no
//! acknowledged change missing, nothing wrong served, nothing called damaged that was not, nothing
//! changed by a repair that was not damaged. That judges see such states is shown too: many rows
//! begin with wrong variants, each of which they have to convict, and of the others row `mutants`
//! or a test asks for it. What a row set out to reach and has
//! not (too few images, no call that failed) is a violation as well, and what it left out is told.
//! The same seed plays the same cases, up to what threads make of them.
//!
//! # Picture
//!
//! ```text
//!  seed, row, number --> case: workload on a medium of ours --> crash, fault, failing call
//!                                   |                                |
//!                        acknowledged operations                 recovery
//!                                   |                                |
//!                                 model ----------- judge ------- what is left
//!                                                     |
//!                                  tally: counts, violations --> report, row of the ledger
//! ```
//!
//! # What a row is
//!
//! One kind of evidence with one story: crash images of every operation, crashes within
//! recovery, damage of every kind of place, failing calls. A row consists of cases; a case is
//! repeated exactly by the campaign's seed, the row's name and the case's number, which is what
//! every violation prints as its replay command.
//!
//! # What is not covered
//!
//! Interleavings of threads are left to chance here; `testing/models` tries those of cores.
//! Media that lie about a completed flush, and malice.
//!
//! # Tour
//!
//! - `cli.rs` arguments, `runner.rs` rows, cases, threads and budgets
//! - `goals.rs` what whole runs have to do, and what rows may leave out
//! - `sequences.rs` all short sequences of steps, by number
//! - `tally.rs`, `report.rs` counts, violations, the ledger line
//! - `object/` the campaign against the object engine: worlds, scenes, operations, judges, rows
//! - `mapped/` the campaign against the engine for mapped files, and its guard
//! - `lab.rs` what is run in a machine whose own memory and device fail
//!
#![deny(unsafe_code)]

pub mod cli;
pub mod goals;
pub mod lab;
pub mod mapped;
pub mod object;
pub mod report;
pub mod runner;
pub mod sequences;
pub mod stacks;
pub mod tally;
