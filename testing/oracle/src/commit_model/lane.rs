//! One lane: a queue of steps and the few registers they need.

use std::collections::VecDeque;

use super::geometry::Copy;
use super::media::Snapshot;
use super::mutant::Mutant;
use super::record::{Record, free_meta};
use super::state::World;
use super::step::{self, Cover, Plan, Site, Step};
use super::{MediumKind, geometry::RECORD_WORDS};

/// A lane of the log, with the thread that uses it.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    id: usize,
    steps: VecDeque<Step>,
    /// Number of the commit under way, or of the last one.
    number: u64,
    /// Smallest number found published by the last scan.
    low: u64,
    /// L of the coming record.
    watermark: u64,
    record: Option<Record>,
    logical: Vec<(usize, u64)>,
    /// Records written so far: the next place is this modulo the ring.
    written: usize,
    marks: usize,
    /// First words of the record copies to be flushed.
    unflushed: Vec<usize>,
    flushed: Vec<Snapshot>,
    parity: u64,
    syncing: Vec<Snapshot>,
}

/// Whether a step was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The step is done.
    Ran,
    /// The step must wait for another lane; nothing changed.
    Waits,
}

impl Lane {
    /// A lane with nothing to do.
    pub(super) fn new(id: usize) -> Self {
        Self {
            id,
            steps: VecDeque::new(),
            number: 0,
            low: 0,
            watermark: 0,
            record: None,
            logical: Vec::new(),
            written: 0,
            marks: 0,
            unflushed: Vec::new(),
            flushed: Vec::new(),
            parity: 0,
            syncing: Vec::new(),
        }
    }

    /// Whether the lane has nothing under way.
    pub(super) fn idle(&self) -> bool {
        self.steps.is_empty()
    }

    /// The drain the lane is about to do: every store of its epoch is out, none is certain.
    pub(super) fn next_drain(&self) -> Option<Site> {
        match self.steps.front() {
            Some(&Step::Drain(site)) => Some(site),
            _ => None,
        }
    }

    /// The log chunks a transaction has taken, if it is now to open what it changes.
    pub(super) fn awaits_objects(&self) -> Option<[usize; 2]> {
        match self.steps.front() {
            Some(&Step::OpenObjects(chunks)) => Some(chunks),
            _ => None,
        }
    }

    /// Continues the transaction that awaited its objects.
    pub(super) fn resume(&mut self, steps: Vec<Step>) {
        assert!(self.awaits_objects().is_some(), "only a waiting transaction resumes");
        self.steps = steps.into();
    }

    /// Its number, for lock tables.
    pub(super) fn id(&self) -> usize {
        self.id
    }

    /// Times the ring has been filled.
    pub(super) fn wraps(&self, world: &World) -> usize {
        self.written / world.geometry.ring
    }

    /// Gives an idle lane a job.
    pub(super) fn start(&mut self, steps: Vec<Step>) {
        assert!(self.idle(), "a lane does one job at a time");
        self.steps = steps.into();
    }

    /// Takes the next step.
    pub(super) fn advance(&mut self, world: &mut World) -> Progress {
        let Some(next) = self.steps.front().cloned() else { return Progress::Waits };
        match next {
            Step::AwaitPlace if !self.place_free(world) => return self.wait(world),
            Step::AwaitCovered(cover) if !self.covered(world, cover) => return self.wait(world),
            Step::LockColumn(column) if !self.lock_column(world, column) => return Progress::Waits,
            _ => {}
        }
        self.steps.pop_front();
        match next {
            Step::PublishBound
            | Step::Draw
            | Step::PublishNumber
            | Step::ReadCounter
            | Step::Scan(_)
            | Step::TakeWatermark
            | Step::Done => self.order(world, &next),
            Step::AwaitPlace | Step::AwaitCovered(_) | Step::LockColumn(_) => {}
            Step::Compose(plan) => self.compose(world, plan),
            Step::StoreRecord(copy) => self.store_record(world, copy),
            Step::FlushRecord => self.flush_record(world),
            Step::Drain(site) => self.drain(world, site),
            Step::Acknowledge => self.acknowledge(world),
            Step::Store { word, value } => world.medium.store(word, value),
            Step::LoadParity(column) => {
                self.parity = world.medium.load(world.geometry.parity(column));
            }
            Step::PatchParity { column, delta } => {
                world.medium.store(world.geometry.parity(column), self.parity ^ delta);
            }
            Step::Flush(words) => self.flush(world, words),
            Step::UnlockColumns => release(&mut world.column_lock, self.id),
            Step::ReleaseUnits(units) => units.iter().for_each(|&u| world.unit_lock[u] = None),
            Step::SyncBegin => self.sync_begin(world),
            Step::SyncEnd => self.sync_end(world),
            Step::ConsiderMark => return self.consider_mark(world),
            Step::StoreMark(copy, watermark) => self.store_mark(world, copy, watermark),
            Step::MarkDurable(watermark) => self.mark_durable(world, watermark),
            Step::OpenObjects(_) => unreachable!("the trial opens objects, then resumes the lane"),
            Step::OpenZone => {
                world.zones += 1;
                world.growing = false;
                world.tally.growths += 1;
            }
        }
        Progress::Ran
    }

    /// Steps 3 and 9: numbers, bounds and the scan.
    fn order(&mut self, world: &mut World, step: &Step) {
        match *step {
            Step::PublishBound => world.busy[self.id] = Some(world.counter + 1),
            Step::Draw => {
                world.counter += 1;
                self.number = world.counter;
                self.low = self.number;
            }
            Step::PublishNumber => world.busy[self.id] = Some(self.number),
            Step::ReadCounter => self.low = world.counter + 1,
            Step::Scan(lane) => {
                self.low = world.busy[lane].map_or(self.low, |bound| bound.min(self.low));
            }
            Step::TakeWatermark => {
                self.watermark = match world.kind {
                    MediumKind::File => world.synced,
                    // A cached L is merely low: every third commit carries the lane's last one.
                    MediumKind::Flushed if self.number.is_multiple_of(3) => self.watermark,
                    MediumKind::Flushed => self.low - 1,
                };
                if world.mutant == Some(Mutant::WatermarkFromCounter) {
                    self.watermark = self.number - 1;
                }
            }
            Step::Done => world.busy[self.id] = None,
            _ => unreachable!("not a step of the ordering"),
        }
    }

    fn place_free(&self, world: &World) -> bool {
        let place = self.written % world.geometry.ring;
        world.in_place[self.id][place] <= world.durable_watermark
            || world.mutant == Some(Mutant::NoReuseRule)
    }

    fn covered(&self, world: &World, cover: Cover) -> bool {
        let number = match cover {
            Cover::OwnLast => self.number,
            Cover::FreedBy(unit) => world.freed_by[unit],
        };
        number <= world.durable_watermark
    }

    fn lock_column(&self, world: &mut World, column: usize) -> bool {
        if world.mutant == Some(Mutant::NoColumnLocks) {
            return true;
        }
        let lock = &mut world.column_lock[column];
        let free = lock.is_none_or(|holder| holder == self.id);
        if free {
            *lock = Some(self.id);
        }
        free
    }

    /// Instead of waiting idly, try to make a fresher watermark durable.
    fn wait(&mut self, world: &World) -> Progress {
        for step in step::help(world).into_iter().rev() {
            self.steps.push_front(step);
        }
        Progress::Ran
    }

    fn consider_mark(&mut self, world: &World) -> Progress {
        let watermark = match world.kind {
            MediumKind::Flushed if world.mutant == Some(Mutant::WatermarkFromCounter) => {
                world.counter
            }
            MediumKind::Flushed => self.low - 1,
            MediumKind::File => world.synced,
        };
        let useless = watermark <= world.durable_watermark;
        if useless || world.mutant == Some(Mutant::NoMarks) {
            return Progress::Waits;
        }
        for step in step::mark(watermark).into_iter().rev() {
            self.steps.push_front(step);
        }
        Progress::Ran
    }

    fn compose(&mut self, world: &mut World, plan: Plan) {
        world.pending[self.id] = Some(plan.logical.clone());
        self.logical = plan.logical;
        self.record = Some(Record {
            number: self.number,
            watermark: self.watermark,
            entries: plan.entries,
            overflow: plan.overflow,
        });
        world.in_place[self.id][self.written % world.geometry.ring] = self.number;
    }

    fn store_record(&mut self, world: &mut World, copy: Copy) {
        let record = self.record.as_ref().expect("a record is composed before it is stored");
        let place = self.written % world.geometry.ring;
        let words = record.encode(world.generation, self.id as u64);
        self.put(world, copy, place, &words);
    }

    fn store_mark(&mut self, world: &mut World, copy: Copy, watermark: u64) {
        let turn = if world.mutant == Some(Mutant::MarkInPlace) { 0 } else { self.marks % 2 };
        let mark = Record { number: 0, watermark, entries: Vec::new(), overflow: None };
        let words = mark.encode(world.generation, self.id as u64);
        self.put(world, copy, world.geometry.ring + turn, &words);
    }

    fn put(&mut self, world: &mut World, copy: Copy, place: usize, words: &[u64]) {
        if copy == Copy::B && world.mutant == Some(Mutant::NoReplica) {
            return;
        }
        let first = world.geometry.record(self.id, place, copy);
        (first..).zip(words).for_each(|(word, &value)| world.medium.store(word, value));
        self.unflushed.push(first);
    }

    fn flush_record(&mut self, world: &World) {
        for first in std::mem::take(&mut self.unflushed) {
            self.flushed.extend((first..first + RECORD_WORDS).map(|w| world.medium.flush(w)));
        }
    }

    fn flush(&mut self, world: &World, words: Vec<usize>) {
        self.flushed.extend(words.into_iter().map(|word| world.medium.flush(word)));
    }

    /// A dropped drain leaves its flushes to the lane's next one, as on the machine.
    fn drain(&mut self, world: &mut World, site: Site) {
        let dropped = match site {
            Site::F1 => world.mutant == Some(Mutant::DropF1),
            Site::F2 => world.mutant == Some(Mutant::DropF2),
            Site::Other => false,
        };
        if !dropped {
            world.medium.persist(&std::mem::take(&mut self.flushed));
        }
    }

    /// From here on the commit must survive everything; before, it may or may not.
    fn acknowledge(&mut self, world: &mut World) {
        world.pending[self.id] = None;
        for (word, value) in std::mem::take(&mut self.logical) {
            world.expected[word] = value;
            let units = 0..world.units();
            let unit = units.into_iter().find(|&unit| world.geometry.meta(unit) == word);
            if let Some(unit) = unit.filter(|&unit| value == free_meta(unit)) {
                world.freed_by[unit] = self.number;
            }
        }
        world.durable_watermark = world.durable_watermark.max(self.watermark);
        self.written += 1;
        world.tally.commits += 1;
    }

    /// Snapshots the dirty heap, if the scan found anything that a sync would complete.
    fn sync_begin(&mut self, world: &World) {
        let late = world.mutant == Some(Mutant::FileWatermarkAfterSync);
        self.syncing.clear();
        if late || self.low - 1 > world.synced {
            let heap = world.geometry.heap()..world.geometry.words();
            self.syncing.extend(heap.map(|word| world.medium.flush(word)));
        }
    }

    fn sync_end(&mut self, world: &mut World) {
        world.tally.syncs += u64::from(!self.syncing.is_empty());
        if world.tally.syncs == world.failing_sync && !self.syncing.is_empty() {
            world.medium.drop_dirty(&self.syncing);
            world.read_only = world.mutant != Some(Mutant::FileSyncRetried);
            if world.read_only {
                return;
            }
        }
        if world.mutant != Some(Mutant::FileReclaimWithoutSync) {
            world.medium.persist(&std::mem::take(&mut self.syncing));
        }
        let through = match world.mutant {
            Some(Mutant::WatermarkFromCounter) => world.counter,
            _ => self.low - 1,
        };
        world.synced = world.synced.max(through);
    }

    fn mark_durable(&mut self, world: &mut World, watermark: u64) {
        self.marks += 1;
        world.durable_watermark = world.durable_watermark.max(watermark);
        world.tally.marks += 1;
    }
}

/// Frees every lock a lane holds.
fn release(locks: &mut [Option<usize>], lane: usize) {
    for lock in locks.iter_mut().filter(|lock| **lock == Some(lane)) {
        *lock = None;
    }
}
