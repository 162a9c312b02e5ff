//! Redundancy, tried in one program: linking one for each file takes minutes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod columns;
mod common;
mod events;
mod mirror;
mod pace;
mod pages;
mod parity;
mod records;
mod remap;
mod zone;
