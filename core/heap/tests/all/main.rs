//! The heap, tried in one program: linking one for each file takes minutes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod chunks;
mod common;
mod loading;
mod outside;
mod reservations;
mod space;
mod sums;
mod units;
mod verify;
