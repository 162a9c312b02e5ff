//! The faulty medium, tried in one program: linking one for each file takes minutes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod common;
mod counters;
mod cures;
mod durable_bits;
mod elision;
mod failing;
mod faults_and_moves;
mod hooks;
mod images;
mod lines;
mod model;
mod notes;
mod poison;
mod sectors;
mod traces;
mod windows;
mod words;
mod writes;
