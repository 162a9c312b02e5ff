//! Mapped files, tried in one program: linking one for each file takes minutes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod busy;
mod common;
mod crashes;
mod cut_short;
mod dates;
mod drained;
mod errors_between;
mod first_steps;
mod known;
mod lengths;
mod memory;
mod mutants;
mod neighbours;
mod older;
mod promises;
mod reasons;
mod records;
mod second_faults;
mod stories;
mod switches;
mod told;
mod writers;
