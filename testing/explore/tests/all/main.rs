//! The explorer against structures with known faults: each is convicted, by the right name, and
//! what is right passes.

#[path = "../../examples/queue.rs"]
mod queue;

mod cures;
mod deep;
mod elisions;
mod facade;
mod growth;
mod mediums;
mod modes;
mod nothing;
mod pools;
mod replays;
mod steps;
mod transfer;
mod worked;
mod wrong;
