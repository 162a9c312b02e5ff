//! Negative controls: the protocol with one rule taken away. A model that convicts none of them
//! would prove nothing by convicting none of the right protocol's runs.

use super::{MediumKind, ViolationKind};

/// One rule left out. Every variant must be convicted within the budget of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// The record is not drained before it is applied.
    DropF1,
    /// The commit counts as complete before what it applied is drained.
    DropF2,
    /// A place of the ring is overwritten whatever the durable watermark says.
    NoReuseRule,
    /// L is the commit counter: commits that drew a number count as complete.
    WatermarkFromCounter,
    /// A number is drawn before the lane has published a lower bound of it.
    DrawBeforePublish,
    /// Marks have one place each, overwritten where they lie.
    MarkInPlace,
    /// Watermarks travel only in records: a full ring has nowhere to write a fresh one.
    NoMarks,
    /// Recovery raises the log generation before it replays.
    GenerationBeforeReplay,
    /// Recovery never raises the log generation.
    GenerationKept,
    /// Both superblock copies are written before one drain.
    GenerationOneDrain,
    /// Recovery replays lane by lane instead of by commit number.
    ReplayUnordered,
    /// Records have one copy.
    NoReplica,
    /// Parity patches of different lanes to one column may overlap.
    NoColumnLocks,
    /// File: the heap changes before the append returned.
    FileApplyBeforeAppend,
    /// File: log space is reclaimed without a sync of the heap.
    FileReclaimWithoutSync,
    /// File: L is computed after the sync began, so it covers commits that the sync missed.
    FileWatermarkAfterSync,
    /// File: a sync that failed is tried again, and believed.
    FileSyncRetried,
    /// Log chunks are given back with log bytes in them.
    LogChunkNotZeroed,
    /// Log bytes are written while the record that took the chunk could still be replayed.
    LogBytesUncovered,
    /// Log chunks are zeroed while the record they belong to could still be replayed.
    LogChunkZeroedEarly,
    /// Log bytes exist once.
    LogChunkNoReplica,
    /// A large fresh object is written in place without an intent record.
    FreshWithoutIntent,
    /// A large fresh object is written over space whose earlier records could be replayed.
    FreshUncovered,
    /// The content of a large fresh object is drained together with its commit record.
    FreshContentWithRecord,
    /// Growth publishes the zone in the primary table before the zone exists.
    GrowthPrimaryFirst,
    /// One copy of a mirrored record is overwritten without a look at the other.
    MirrorUnverified,
    /// Recovery recomputes parity without verifying the rows it sums up.
    RecomputeUnverified,
    /// Recovery repairs and replays in one go, without a drain between.
    RepairWithoutDrain,
    /// Sums and parity are patched from old bytes that were not verified.
    PatchUnverified,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 29] = [
        Self::DropF1,
        Self::DropF2,
        Self::NoReuseRule,
        Self::WatermarkFromCounter,
        Self::DrawBeforePublish,
        Self::MarkInPlace,
        Self::NoMarks,
        Self::GenerationBeforeReplay,
        Self::GenerationKept,
        Self::GenerationOneDrain,
        Self::ReplayUnordered,
        Self::NoReplica,
        Self::NoColumnLocks,
        Self::FileApplyBeforeAppend,
        Self::FileReclaimWithoutSync,
        Self::FileWatermarkAfterSync,
        Self::FileSyncRetried,
        Self::LogChunkNotZeroed,
        Self::LogBytesUncovered,
        Self::LogChunkZeroedEarly,
        Self::LogChunkNoReplica,
        Self::FreshWithoutIntent,
        Self::FreshUncovered,
        Self::FreshContentWithRecord,
        Self::GrowthPrimaryFirst,
        Self::MirrorUnverified,
        Self::RecomputeUnverified,
        Self::RepairWithoutDrain,
        Self::PatchUnverified,
    ];

    /// Whether a violation of this kind convicts the mutant. Only a missing place for marks may be
    /// seen by a lane that waits for ever; every other rule must be seen in a wrong pool.
    #[must_use]
    pub fn convicted_by(self, kind: ViolationKind) -> bool {
        (self == Self::NoMarks) == (kind == ViolationKind::Stuck)
    }

    /// The media on which the rule exists, and so can be missed.
    #[must_use]
    pub const fn media(self) -> &'static [MediumKind] {
        match self {
            Self::DropF2 => &[MediumKind::Flushed],
            Self::FileApplyBeforeAppend
            | Self::FileReclaimWithoutSync
            | Self::FileWatermarkAfterSync
            | Self::FileSyncRetried => &[MediumKind::File],
            _ => &[MediumKind::Flushed, MediumKind::File],
        }
    }
}
