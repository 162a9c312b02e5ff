//! The numbered commit as a list of steps, each of which is one place to crash at.
//!
//! ```text
//! 3 number    PublishBound, Draw, PublishNumber, Scan every lane, TakeWatermark
//! 4 space     AwaitPlace
//! 5 record    Compose, StoreRecord A and B, FlushRecord
//!   F1        Drain, Acknowledge                                  <== commit point
//! 6 columns   LockColumn, ascending
//! 7 apply     Store, LoadParity + PatchParity, FlushHeap
//! 8 release   UnlockColumns, ReleaseUnits
//!   F2        Drain
//! 9 done      Done
//! ```
//!
//! Steps 0 to 2 (lock, verify, compute the deltas) happen in one go when a job is opened, since
//! they touch nothing that others see but the locks.

use super::MediumKind;
use super::geometry::Copy;
use super::mutant::Mutant;
use super::record::{Entry, Overflow};
use super::state::{World, empty_zone, header_words, table_words};

/// One atomic step of a lane. Other lanes run, and crashes happen, between any two.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Publish a number no greater than the one about to be drawn.
    PublishBound,
    /// Draw the commit number from the shared counter.
    Draw,
    /// Publish the number drawn.
    PublishNumber,
    /// Read the counter: nothing above it is complete.
    ReadCounter,
    /// Look at what one lane has published.
    Scan(usize),
    /// L of the coming record: everything below what the scan found.
    TakeWatermark,
    /// Wait until the next place of the ring may be overwritten.
    AwaitPlace,
    /// Wait until no record that concerns this space can be replayed any more.
    AwaitCovered(Cover),
    /// Fix the content of the record. The logical writes are for the judge only.
    Compose(Plan),
    /// Write one copy of the record.
    StoreRecord(Copy),
    /// Flush what was written of the record.
    FlushRecord,
    /// Make this lane's flushes durable (File: the append or the sync returned).
    Drain(Site),
    /// The commit is durable: the caller may be told.
    Acknowledge,
    /// Take a column lock.
    LockColumn(usize),
    /// Store a heap word.
    Store {
        /// Heap word.
        word: usize,
        /// New content.
        value: u64,
    },
    /// Read the parity of a column.
    LoadParity(usize),
    /// Write the parity just read, with a change applied.
    PatchParity {
        /// The column.
        column: usize,
        /// Old content of the column's words summed with the new.
        delta: u64,
    },
    /// Flush words.
    Flush(Vec<usize>),
    /// Release all column locks of this lane.
    UnlockColumns,
    /// Release units for other lanes.
    ReleaseUnits(Vec<usize>),
    /// Publish that no commit of this lane is under way.
    Done,
    /// File: remember the dirty heap words, to be synced.
    SyncBegin,
    /// File: the sync returned.
    SyncEnd,
    /// Write a mark if the watermark just computed helps anyone.
    ConsiderMark,
    /// Write one copy of a mark that carries this watermark.
    StoreMark(Copy, u64),
    /// The mark is durable.
    MarkDurable(u64),
    /// The log chunks are taken: open the objects of the transaction, then go on.
    OpenObjects([usize; 2]),
    /// Let every lane allocate from the zone just added.
    OpenZone,
}

/// The two drains of a commit, and the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// Record durable.
    F1,
    /// Applied data, slots and parity durable.
    F2,
    /// Anything else, always kept.
    Other,
}

/// What an `AwaitCovered` step waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cover {
    /// The number of this lane's last record.
    OwnLast,
    /// The commit that freed this unit.
    FreedBy(usize),
}

/// A record to be: its changes, and what they mean.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// Changes in the record.
    pub(super) entries: Vec<Entry>,
    /// Log chunks that carry further changes, and the seal of their words.
    pub(super) overflow: Option<Overflow>,
    /// What the transaction promises to its caller: words and their new content.
    pub(super) logical: Vec<(usize, u64)>,
}

/// One pass through the commit table.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    /// The record.
    pub(super) plan: Plan,
    /// Stores of step 7.
    pub(super) stores: Vec<(usize, u64)>,
    /// The stores that parity counts, as (word, old exclusive-or new).
    pub(super) deltas: Vec<(usize, u64)>,
    /// Units to release in step 8.
    pub(super) release: Vec<usize>,
    /// The content is in no record: on File, too, it must be drained by itself.
    pub(super) unlogged: bool,
}

/// Steps 3 to 9 of one commit.
pub(super) fn commit(world: &World, section: Section) -> Vec<Step> {
    let apply_first = world.mutant == Some(Mutant::FileApplyBeforeAppend);
    let mut steps = number(world);
    steps.push(Step::AwaitPlace);
    let apply = apply(world, &section);
    let record = record(section.plan);
    if apply_first {
        steps.extend(apply);
        steps.extend(record);
    } else {
        steps.extend(record);
        steps.extend(apply);
    }
    steps.push(Step::ReleaseUnits(section.release));
    if world.kind == MediumKind::Flushed || section.unlogged {
        steps.push(Step::Drain(Site::F2));
    }
    steps.push(Step::Done);
    steps
}

/// Step 3. The bound is published before the number is drawn, so that whoever scans after a
/// higher number was drawn finds this lane.
fn number(world: &World) -> Vec<Step> {
    let mut steps = vec![Step::PublishBound, Step::Draw, Step::PublishNumber];
    if world.mutant == Some(Mutant::DrawBeforePublish) {
        steps.remove(0);
    }
    if world.kind == MediumKind::Flushed {
        steps.extend((0..world.geometry.lanes).map(Step::Scan));
    }
    steps.push(Step::TakeWatermark);
    steps
}

/// Step 5 and F1.
fn record(plan: Plan) -> Vec<Step> {
    let mut steps = vec![Step::Compose(plan)];
    steps.extend(Copy::BOTH.map(Step::StoreRecord));
    steps.extend([Step::FlushRecord, Step::Drain(Site::F1), Step::Acknowledge]);
    steps
}

/// Steps 6 to 8, without the release of the units.
pub(super) fn apply(world: &World, section: &Section) -> Vec<Step> {
    let geometry = world.geometry;
    let mut columns: Vec<_> = section.stores.iter().map(|&(w, _)| geometry.column(w)).collect();
    columns.sort_unstable();
    columns.dedup();
    let mut steps: Vec<_> = columns.iter().map(|&c| Step::LockColumn(c)).collect();
    steps.extend(section.stores.iter().map(|&(word, value)| Step::Store { word, value }));
    let mut dirty: Vec<_> = section.stores.iter().map(|&(w, _)| w).collect();
    for &column in &columns {
        let of_column = section.deltas.iter().filter(|&&(w, _)| geometry.column(w) == column);
        let delta = of_column.fold(0, |sum, &(_, delta)| sum ^ delta);
        if delta != 0 {
            steps.extend([Step::LoadParity(column), Step::PatchParity { column, delta }]);
            dirty.push(geometry.parity(column));
        }
    }
    if world.kind == MediumKind::Flushed || section.unlogged {
        steps.push(Step::Flush(dirty));
    }
    steps.push(Step::UnlockColumns);
    steps
}

/// What a lane does instead of waiting: compute a fresh L and make it durable in a mark. On File
/// L rises only by a sync of the heap, and must be computed before the sync begins.
pub(super) fn help(world: &World) -> Vec<Step> {
    let mut steps = vec![Step::ReadCounter];
    steps.extend((0..world.geometry.lanes).map(Step::Scan));
    if world.kind == MediumKind::File {
        let late = world.mutant == Some(Mutant::FileWatermarkAfterSync);
        steps.insert(if late { 0 } else { steps.len() }, Step::SyncBegin);
        steps.push(Step::SyncEnd);
    }
    steps.push(Step::ConsiderMark);
    steps
}

/// Writes a mark: the same form, two copies and drain as any record.
pub(super) fn mark(watermark: u64) -> Vec<Step> {
    let mut steps: Vec<_> = Copy::BOTH.map(|copy| Step::StoreMark(copy, watermark)).into();
    steps.extend([Step::FlushRecord, Step::Drain(Site::Other), Step::MarkDurable(watermark)]);
    steps
}

/// Growth: the empty zone and its header first, then the replica of the table, a drain, then the
/// primary. While
/// the replica is written the primary must be good, so it is verified, and healed, before.
pub(super) fn grow(world: &World) -> Vec<Step> {
    let (geometry, zone) = (world.geometry, world.zones);
    let durably = |writes: Vec<(usize, u64)>| {
        let flush = Step::Flush(writes.iter().map(|&(word, _)| word).collect());
        let stores = writes.into_iter().map(|(word, value)| Step::Store { word, value });
        stores.chain([flush, Step::Drain(Site::Other)]).collect::<Vec<_>>()
    };
    let write = |at: usize, words: [u64; 2]| durably((at..).zip(words).collect());
    let header = header_words(zone);
    let table = table_words(zone + 1);
    let mut phases = vec![
        durably(empty_zone(geometry, zone)),
        write(geometry.zone_header(zone, Copy::B), header),
        write(geometry.zone_header(zone, Copy::A), header),
        write(geometry.table(Copy::B), table),
        write(geometry.table(Copy::A), table),
    ];
    if world.mutant == Some(Mutant::GrowthPrimaryFirst) {
        phases.reverse();
    }
    let primary = &world.medium.visible()[geometry.table(Copy::A)..][..2];
    if primary != table_words(zone) && world.mutant != Some(Mutant::MirrorUnverified) {
        phases.insert(0, write(geometry.table(Copy::A), table_words(zone)));
    }
    let mut steps = phases.concat();
    steps.push(Step::OpenZone);
    steps
}

/// How stores that parity counts change what their words hold now.
pub(super) fn deltas(world: &World, stores: &[(usize, u64)]) -> Vec<(usize, u64)> {
    stores.iter().map(|&(word, value)| (word, world.medium.load(word) ^ value)).collect()
}
