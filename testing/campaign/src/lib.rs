//! Fault campaigns: a seed makes a workload, a crash or a fault hits it, the engine recovers, and
//! checkers that share nothing with the engine judge what is left.
#![forbid(unsafe_code)]

pub mod cli;
pub mod object;
pub mod report;
pub mod runner;
pub mod tally;
