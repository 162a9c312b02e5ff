//! The commit and recovery protocol as a small program that can be wrong on purpose.
//!
//! A trial interleaves the steps of several lanes, one of them mostly idle, on a medium whose
//! words may survive a crash in any state since they were last drained. At random steps it takes
//! a crash image, perhaps damages a word, recovers it, crashing inside recovery up to twice more,
//! and lets a judge compare the result with what was acknowledged. The same trial with one rule
//! of the protocol left out (`Mutant`) must be convicted; the right protocol must never be.
//!
//! # What is modelled
//!
//! Lanes with wrapping rings; records {number, L, entries} in two copies; marks that carry a fresh
//! L when no record can; the two drains; column locks; small objects with slots kept apart; chunks
//! that are large objects or log space; transactions that overflow into log chunks; large fresh
//! objects written unlogged; growth by a zone; a page-cache file with appends and reclaim; one
//! damaged word at a time, anywhere; the mirrored superblock, region table and zone headers.
//!
//! # What is not
//!
//! Weak memory order between threads (steps interleave sequentially; the engine uses sequentially
//! consistent operations for the numbers), group commit (an append of several records is several
//! appends that return together), failed syncs, the second parity row, poison and relocation.
//!
//! # Findings: rules the model proves necessary
//!
//! 1. A full ring needs a place for a watermark that no record can carry: two *marks* per lane,
//!    used in turn, each in two copies (`NoMarks`, `MarkInPlace`).
//! 2. A log chunk is log space: its bytes may be zeroed only when a durable watermark covers the
//!    record they belong to (`LogChunkZeroedEarly`), and may be written only when one covers the
//!    record that took the chunk, else a second attempt at recovery finds them zeroed by the first
//!    (`LogBytesUncovered`).
//! 3. The content of a large fresh object must be drained before its commit record is written: a
//!    record may leak ahead of what it vouches for (`FreshContentWithRecord`).
//! 4. Recovery writes repairs and drains them before it replays (`RepairWithoutDrain`).
//! 5. Directory words are verified wherever they lie before any parity is recomputed, because they
//!    decide what counts as zero (`DirectoryUnverified`).
//! 6. On File the watermark is computed before the sync begins (`FileWatermarkAfterSync`).
//!
//! # Tour
//!
//! `step` the numbered commit -> `jobs` transactions made of it -> `lane` one lane running it ->
//! `state` what lanes share -> `recovery` -> `repair` -> `check` the judge -> `trial`.

mod check;
mod geometry;
mod jobs;
mod lane;
mod media;
mod mutant;
mod record;
mod recovery;
mod repair;
mod report;
mod state;
mod step;
mod trial;

pub use mutant::Mutant;
pub use report::{Config, MediumKind, Report, Tally, Violation, ViolationKind, run};
