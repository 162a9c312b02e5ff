//! Mapped files, tried in one program: linking one for each file takes minutes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod common;
mod crashes;
mod errors_between;
mod first_steps;
mod lengths;
mod mutants;
mod reasons;
mod second_faults;
mod switches;
mod writers;
