//! The collections, tried in one program: linking one for each file takes minutes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod cost;
mod crash;
mod engine;
mod hostile;
mod map;
mod misuse;
mod model;
mod random;
mod support;
