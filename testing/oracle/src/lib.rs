//! Naive models and independent checkers.
#![forbid(unsafe_code)]

pub mod commit_model;
mod rng;
