//! The campaign against the engine for mapped files and its guard.
//!
//! The program stores, and remembers what; the engine covers, looks and repairs; faults and
//! crashes hit both. One law is judged in everything: *what was not damaged is never taken back,
//! and never called corrupt; what was covered and is damaged is never called good*.
//!
//! # Tour
//!
//! - `machine.rs`, `tap.rs` a data file and a side file on one faulty medium; what the engine does
//! - `model.rs`, `session.rs` what the program stored; what happens to a protected file
//! - `judge.rs`, `ledger.rs` verdicts and bytes against the model; the figures of each row
//! - `goals.rs` how much a whole run has to do
//! - `life.rs`, `images.rs` lives, and what crashes leave of them
//! - `hands.rs` a program that loads and stores by address; `sick.rs` on a machine that fails,
//!   `lives.rs` on one that is ended
//! - `rows/` the rows

pub mod crowd;
pub mod goals;
pub mod hands;
pub mod images;
pub mod judge;
pub mod ledger;
pub mod life;
pub mod lives;
pub mod logged;
pub mod machine;
pub mod model;
pub mod real;
pub mod rows;
pub mod session;
pub mod sick;
pub mod side;
pub mod specimen;
pub mod storm;
pub mod tap;
pub mod told;
pub mod ward;
pub mod wounds;
