//! An engine in miniature: objects of a few words, locks on them, commits in the steps of the
//! real one, and a look at crash images at every barrier.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use holdfast_faultmem::{Budget, Clear, Config, FaultMedium, Image, Mode};
use holdfast_layout::{LogPlacement, Superblock};
use holdfast_logs::{Lane, Log, LogError, Numbers, RecordBuilder, scan};
use holdfast_pmem::{Medium, MediumKind, Site};

use super::lockstep::{Lockstep, Turns};
use super::{OBJECTS, Oracle, SharedOracle, WORDS, contents, lock, place};

const DATA: Site = Site::new("test.engine.data");
const F2: Site = Site::new("test.engine.F2");

/// What a worker of the engine needs.
#[derive(Debug)]
pub(crate) struct Engine<M> {
    pub(crate) m: M,
    pub(crate) superblock: Superblock,
    pub(crate) log: Log,
    pub(crate) numbers: Numbers,
    pub(crate) oracle: SharedOracle,
    locks: Mutex<[bool; OBJECTS]>,
    stamps: AtomicU64,
}

/// A commit between its commit point and its end.
#[derive(Debug)]
pub(crate) struct Open<'a> {
    lane: Lane<'a>,
    record: RecordBuilder,
    number: u64,
    writes: Vec<(usize, u64, usize)>,
}

/// How one transaction ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Committed,
    /// Its objects were locked, or no room came free.
    Retry,
    /// The log is stopped.
    Stopped,
}

impl<M: Medium> Engine<M> {
    pub(crate) fn new(m: M, superblock: Superblock, oracle: SharedOracle) -> Self {
        let log = Log::open(&m, &superblock).expect("the geometry is good");
        let numbers = Numbers::new(log.lanes(), 1);
        let locks = Mutex::new([false; OBJECTS]);
        Self { m, superblock, log, numbers, oracle, locks, stamps: AtomicU64::new(1) }
    }

    /// Commits new contents for `objects`; `wait` is called for want of room.
    pub(crate) fn update(&self, lane: usize, objects: &[usize], wait: impl FnMut() -> bool) -> End {
        match self.begin(lane, objects, wait) {
            Ok(open) => {
                self.finish(open);
                End::Committed
            }
            Err(end) => end,
        }
    }

    /// The first half of an update: up to the commit point. What it holds it holds from then on.
    pub(crate) fn begin(
        &self,
        lane: usize,
        objects: &[usize],
        wait: impl FnMut() -> bool,
    ) -> Result<Open<'_>, End> {
        if !self.try_lock(objects) {
            return Err(End::Retry);
        }
        let begun = self.write(lane, objects, wait);
        if matches!(&begun, Err(End::Retry)) {
            self.unlock(objects.iter().copied());
        }
        begun
    }

    fn write(
        &self,
        lane: usize,
        objects: &[usize],
        wait: impl FnMut() -> bool,
    ) -> Result<Open<'_>, End> {
        let Self { m, numbers, superblock, .. } = self;
        let mut lane = self.log.acquire_exact(m, lane).expect("each thread has its own lane");
        let mut record = RecordBuilder::default();
        let mut writes = Vec::new();
        for object in objects {
            let stamp = self.stamps.fetch_add(1, Ordering::Relaxed);
            let at = record.data(place(superblock, *object), &contents(stamp));
            writes.push((*object, stamp, at));
        }
        let end = |error| match error {
            LogError::GaveUp => End::Retry,
            LogError::Stopped(_) => End::Stopped,
            error => panic!("{error}"),
        };
        lane.reserve(m, numbers, record.len(), wait).map_err(end)?;
        let number = numbers.draw(m, lane.id());
        let plain = writes.iter().map(|(object, stamp, _)| (*object, *stamp)).collect();
        lock(&self.oracle).pending.insert(number, plain);
        lane.commit_record(m, numbers, number, &mut record).map_err(end)?;
        let mut oracle = lock(&self.oracle);
        let plain = oracle.pending.remove(&number).expect("it was drawn");
        oracle.acked.insert(number, plain);
        drop(oracle);
        Ok(Open { lane, record, number, writes })
    }

    /// The second half: data, F2, done.
    pub(crate) fn finish(&self, open: Open<'_>) {
        let Self { m, numbers, superblock, .. } = self;
        for (object, _, at) in &open.writes {
            let bytes = open.record.payload(*at, WORDS * 8);
            m.put(DATA, place(superblock, *object), bytes).expect("data is good");
        }
        if m.kind() != MediumKind::File {
            m.drain(F2);
        }
        let mut oracle = lock(&self.oracle);
        // On a file this means applied: that is all a reclaim may count on.
        oracle.done.insert(open.number);
        oracle.durable = oracle.durable.max(numbers.durable());
        drop(oracle);
        numbers.done(open.lane.id());
        self.unlock(open.writes.iter().map(|(object, ..)| *object));
        drop(open.lane);
    }

    /// Syncs and frees log space. Whether the log still runs.
    pub(crate) fn reclaim(&self) -> bool {
        let reclaimed = self.log.reclaim(&self.m, &self.numbers);
        if let Ok(durable) = reclaimed {
            let mut oracle = lock(&self.oracle);
            oracle.durable = oracle.durable.max(durable);
        }
        reclaimed.is_ok()
    }

    fn unlock(&self, objects: impl Iterator<Item = usize>) {
        let mut locks = lock(&self.locks);
        objects.for_each(|object| locks[object] = false);
    }

    fn try_lock(&self, objects: &[usize]) -> bool {
        let mut locks = lock(&self.locks);
        let free = objects.iter().all(|object| !locks[*object]);
        if free {
            objects.iter().for_each(|object| locks[*object] = true);
        }
        free
    }
}

/// Which copy of the log an image loses before it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lose {
    Nothing,
    A,
    B,
    /// One of the above for each image, in turn.
    Turns,
}

/// Opens an image as recovery would, loses what is to be lost, and judges it.
pub(crate) fn judge(
    superblock: &Superblock,
    image: Image,
    lose: Lose,
    off: &str,
    oracle: &mut Oracle,
) {
    let data = image.bytes()[2 * superblock.side_len as usize..].to_vec();
    let m = FaultMedium::from_crash(image, MediumKind::Dax, &Config::default());
    m.elide_name(off);
    let copy = match (lose, oracle.images % 3) {
        (Lose::A, _) | (Lose::Turns, 1) => Some(0),
        (Lose::B, _) | (Lose::Turns, 2) => Some(superblock.side_len),
        _ => None,
    };
    if let Some(side) = copy {
        let len = u64::from(superblock.lanes) * superblock.ring_len;
        m.poison(side + superblock.log_start, len, Clear::Able).expect("it is in the pool");
    }
    let found = scan(&m, superblock).expect("the log can be read");
    assert_eq!(found.bad.is_empty(), copy.is_none());
    oracle.judge(superblock, &data, &found);
}

/// A medium with `off` switched off, whose crash images are judged at every barrier.
pub(crate) fn judged_medium(
    superblock: &Superblock,
    lose: Lose,
    off: &'static str,
    mode: Option<Mode>,
    budget: Budget,
    oracle: &SharedOracle,
) -> FaultMedium {
    let kind = match superblock.log_placement {
        LogPlacement::Apart => MediumKind::Dax,
        LogPlacement::Adjacent => MediumKind::File,
    };
    let m = FaultMedium::new(superblock.size, kind, &Config { mode, ..Config::default() });
    m.elide_name(off);
    watch(&m, superblock, lose, off, budget, oracle);
    m
}

/// Judges crash images at every barrier from now on, so many as `budget` says.
pub(crate) fn watch(
    m: &FaultMedium,
    superblock: &Superblock,
    lose: Lose,
    off: &'static str,
    budget: Budget,
    oracle: &SharedOracle,
) {
    let (superblock, oracle) = (superblock.clone(), Arc::clone(oracle));
    m.on_barrier(Box::new(move |_, _, point| {
        let budget = Budget { seed: budget.seed << 32 | point.ordinal(), ..budget };
        for image in point.images(&budget) {
            judge(&superblock, image, lose, off, &mut lock(&oracle));
        }
    }));
}

/// A run with copies apart.
#[derive(Debug, Clone)]
pub(crate) struct Apart {
    pub(crate) superblock: Superblock,
    /// A lane for each; the higher, the faster.
    pub(crate) weights: Vec<u64>,
    pub(crate) turns: u64,
    pub(crate) seed: u64,
    pub(crate) lose: Lose,
    /// Random images at each barrier.
    pub(crate) samples: usize,
    /// Site that is switched off.
    pub(crate) off: &'static str,
}

impl Apart {
    /// Lets the lanes commit in turns and judges crash images at every barrier.
    pub(crate) fn run(&self) -> Oracle {
        let oracle: SharedOracle = Arc::default();
        let budget =
            Budget { exhaustive: 4, singles: 1, pairs: 0, samples: self.samples, seed: self.seed };
        let inner = judged_medium(&self.superblock, self.lose, self.off, None, budget, &oracle);
        let turns = Turns::new(&self.weights, self.turns, self.seed);
        let m = Lockstep { inner: Arc::new(inner), turns: Arc::clone(&turns) };
        let engine = Arc::new(Engine::new(m, self.superblock.clone(), Arc::clone(&oracle)));
        let ready = Arc::new(Barrier::new(self.weights.len()));
        let threads: Vec<_> = (0..self.weights.len())
            .map(|lane| {
                let (engine, turns) = (Arc::clone(&engine), Arc::clone(&turns));
                let ready = Arc::clone(&ready);
                std::thread::spawn(move || work(&engine, &turns, lane, &ready))
            })
            .collect();
        for thread in threads {
            thread.join().expect("no worker panics");
        }
        std::mem::take(&mut lock(&oracle))
    }
}

fn work(engine: &Engine<Lockstep>, turns: &Turns, lane: usize, ready: &Barrier) {
    turns.join(lane, ready);
    while turns.going() {
        let first = turns.below(OBJECTS as u64) as usize;
        let second = turns.below(OBJECTS as u64) as usize;
        let objects = if second.is_multiple_of(2) && second != first {
            vec![first, second]
        } else {
            vec![first]
        };
        let mut tries = 0;
        engine.update(lane, &objects, || {
            tries += 1;
            turns.pass();
            tries < 60
        });
        turns.pass();
    }
    turns.leave(lane);
}
