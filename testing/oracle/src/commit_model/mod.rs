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
//! Weak memory order between threads (steps interleave sequentially; the engine must use
//! sequentially consistent operations for bounds, numbers and the scan), group commit (an append
//! of several records is several appends that return together), the second parity row, poison and
//! relocation, background rebuilding of stale columns, sharing one drain between two commits.
//!
//! # Findings: rules the model proves necessary
//!
//! Each is stated by the mutant that lacks it, the last two by unit tests.
//!
//! 1. A full ring may hold only records above the durable watermark, with nobody left to carry a
//!    fresh one: each lane needs two *marks*, records without changes, in places of their own,
//!    used in turn and in two copies each (`NoMarks`, `MarkInPlace`).
//! 2. A log chunk is log space. Its bytes are zeroed only when a durable watermark covers the
//!    record they belong to (`LogChunkZeroedEarly`). They are written only when one covers the
//!    record that took the chunk: that record zeroes the chunk, so a recovery that replays it and
//!    crashes would take the log bytes from the next recovery (`LogBytesUncovered`).
//! 3. The content of a large fresh object is drained before its commit record is written, since a
//!    record may leak ahead of content it vouches for (`FreshContentWithRecord`): four drains, two
//!    ordinary commits, of which the first one's entry is the intent.
//! 4. Recovery writes its repairs and drains them before it replays (`RepairWithoutDrain`). Parity
//!    as found describes rows before the replay; a crash amid the replay takes those rows away.
//! 5. Before one copy of a mirrored record is overwritten the other is verified, and healed
//!    (`MirrorUnverified`); a superblock copy is drained before the other is begun
//!    (`GenerationOneDrain`).
//! 6. On File the watermark is computed before the sync begins (`FileWatermarkAfterSync`).
//! 7. Zero proves nothing: free slots and free directory words certify themselves. Log bytes are
//!    copies of words; in a column found half-changed such a copy cancels the word itself, and the
//!    candidate zero would pass for a free slot (see the test in `repair`).
//! 8. Every candidate tried is one more chance for a sum to agree by accident, and half-changed
//!    columns offer candidates a few bits away from the truth: repair may only trust a sum under
//!    which small changes in different words cannot cancel (see `sum_delta` in `record`).
//!
//! Not necessary, as the trials also show: covering a small place that is freed and allocated
//! again by logged commits; a fresh scan for every record; holding units until F2.
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
