//! Logs so small that they wrap: rooms that are used again, marks that allow it, reclaims by
//! whoever finds one due. A crash image at drawn instants is judged by what was acknowledged.
//!
//! Two threads commit as fast as they can. A third one holds each of its commits, from the commit
//! point on, for long, or until somebody waits for room: so the watermark lags, rings are full
//! again and again, and the rule of reuse decides. One object is in many records at a time, old and
//! new, so that a record which is overwritten too early is one that recovery would have needed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_faultmem::{Config, CrashPoint, FaultMedium, Mode};
use holdfast_layout::{LogPlacement, Superblock};
use holdfast_logs::{Entry, Lane, Log, Numbers, RecordBuilder, Scan, scan};
use holdfast_pmem::{Medium as _, MediumKind, Site};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use shuttle::thread;

use super::parts::{PAGE, join, superblock};
use super::stepped::Stepped;
use super::{LAW, Reached, Wrong};

/// Marks of rings, written when there was no room.
pub(super) static MARKS: Reached = Reached::new("marks written for room");
/// Reclaims of the group's log.
pub(super) static RECLAIMS: Reached = Reached::new("reclaims");
/// Images looked at.
pub(super) static RING_IMAGES: Reached = Reached::new("images of rings that wrapped");
/// The same of the group's log.
pub(super) static GROUP_IMAGES: Reached = Reached::new("images of a log that wrapped");

/// Lanes, one for each thread and one that nobody uses.
const LANES: u32 = 4;
/// Threads; the last one is slow.
const THREADS: usize = 3;
/// Commits of each.
const COMMITS: usize = 12;
/// Objects, and bytes of each.
const OBJECTS: usize = 5;
const LEN: usize = 64;
/// Most often that a record says the same thing, to be long.
const LONGEST: usize = 24;
const SHORTEST: usize = 14;
/// Most turns that the slow thread holds a commit.
const PATIENCE: u32 = 400;
/// One of so many barriers is an instant at which the machine stops.
const INSTANTS: u32 = 12;

const DATA: Site = Site::new("models.wraps.data");
const F2: Site = Site::new("models.wraps.F2");

/// What is known of all commits: for each number, the object, which ends up saying that number.
#[derive(Debug, Default)]
struct Known {
    /// Drawn, and not acknowledged.
    pending: BTreeMap<u64, usize>,
    acked: BTreeMap<u64, usize>,
    /// As the program said: drained, or, on a file, in memory.
    complete: BTreeSet<u64>,
    /// The durable watermark, as it was answered last.
    durable: u64,
    /// Objects in use.
    held: [bool; OBJECTS],
}

struct World {
    m: Stepped,
    superblock: Superblock,
    log: Log,
    numbers: Numbers,
    known: Arc<Mutex<Known>>,
    /// Somebody waits for room.
    wanted: AtomicBool,
    /// Threads under way that are not slow.
    fast: AtomicUsize,
}

/// A commit past its commit point.
struct Open<'a> {
    lane: Lane<'a>,
    number: u64,
    object: usize,
}

/// Rings of two pages.
pub(super) fn rings(wrong: Wrong) {
    let world = play(wrong, LogPlacement::Apart, MediumKind::Dax, &RING_IMAGES);
    MARKS.add(world.numbers.reclaims());
}

/// The group's log, of twelve pages.
pub(super) fn group(wrong: Wrong) {
    let world = play(wrong, LogPlacement::Adjacent, MediumKind::File, &GROUP_IMAGES);
    let reclaims = world.numbers.reclaims();
    assert!(reclaims > 0, "the records of all do not fit the log at once");
    RECLAIMS.add(reclaims);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn contents(number: u64) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    for (i, word) in (0..).zip(bytes.chunks_exact_mut(8)) {
        word.copy_from_slice(&(number << 8 | i).to_le_bytes());
    }
    bytes
}

fn place(superblock: &Superblock, object: usize) -> u64 {
    2 * superblock.side_len + (object * LEN) as u64
}

fn play(
    wrong: Wrong,
    placement: LogPlacement,
    kind: MediumKind,
    images: &'static Reached,
) -> Arc<World> {
    let superblock = superblock(placement, LANES, 2);
    // What writes words of a mark one by one is harder on it than what writes sectors.
    let config = Config { mode: Some(Mode::Words), ..Config::default() };
    let inner = FaultMedium::new(superblock.size, kind, &config);
    inner.elide_name(wrong.off());
    let m = Stepped::new(inner, "");
    let log = Log::open(&m, &superblock).expect("the geometry is good");
    let numbers = Numbers::new(log.lanes(), 1);
    let known = Arc::default();
    let (wanted, fast) = (AtomicBool::new(false), AtomicUsize::new(THREADS - 1));
    let world = Arc::new(World { m, superblock, log, numbers, known, wanted, fast });
    stop_now_and_then(&world, images);
    let threads = (0..THREADS).map(|lane| {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            let is_slow = lane + 1 == THREADS;
            for _ in 0..COMMITS {
                world.commit(lane, is_slow);
                if world.log.reclaim_due() {
                    world.reclaim();
                }
            }
            if !is_slow {
                world.fast.fetch_sub(1, SeqCst);
            }
        })
    });
    join(threads.collect());
    world.m.inner.clear_on_barrier();
    let last = world.numbers.watermark(&world.m);
    assert_eq!(last, (COMMITS * THREADS) as u64, "{LAW}: all are complete");
    judge(&world.superblock, &lock(&world.known), &world.m.inner.crash_point(), 0);
    world
}

/// Judges what a crash leaves just before barriers that are drawn.
fn stop_now_and_then(world: &Arc<World>, images: &'static Reached) {
    let (superblock, known) = (world.superblock.clone(), Arc::clone(&world.known));
    world.m.inner.on_barrier(Box::new(move |_, site, point| {
        // Marks are few.
        let is_mark = site.name().ends_with(".marked");
        if is_mark || thread_rng().gen_ratio(1, INSTANTS) {
            images.add(1);
            judge(&superblock, &lock(&known), point, thread_rng().r#gen());
        }
    }));
}

impl World {
    /// One commit of a thread, which keeps to its lane.
    fn commit(&self, lane: usize, is_slow: bool) {
        let object = self.take_object();
        let Some(mut lane) = self.log.acquire_exact(&self.m, lane) else {
            panic!("{LAW}: a lane that nobody holds is free")
        };
        let times = thread_rng().gen_range(SHORTEST..=LONGEST);
        // Who changes its mind may leave marks behind that no record carries on.
        if thread_rng().r#gen() {
            for part in [4, 2] {
                self.reserve(&mut lane, times / part);
                (0..thread_rng().gen_range(0..4)).for_each(|_| thread::yield_now());
            }
        }
        self.reserve(&mut lane, times);
        let number = self.numbers.draw(&self.m, lane.id());
        lock(&self.known).pending.insert(number, object);
        let mut record = self.record(object, number, times);
        let done = lane.commit_record(&self.m, &self.numbers, number, &mut record);
        assert!(done.is_ok(), "{LAW}: a commit on a good medium goes through: {done:?}");
        let mut known = lock(&self.known);
        known.pending.remove(&number);
        known.acked.insert(number, object);
        drop(known);
        let open = Open { lane, number, object };
        let most = if is_slow { thread_rng().gen_range(0..PATIENCE) } else { 0 };
        for _ in 0..most {
            if self.fast.load(SeqCst) == 0 || self.wanted.swap(false, SeqCst) {
                break;
            }
            thread::yield_now();
        }
        self.finish(open);
    }

    /// An object that nobody else changes.
    fn take_object(&self) -> usize {
        let first = thread_rng().gen_range(0..OBJECTS);
        let held = &mut lock(&self.known).held;
        let mut all = (first..OBJECTS).chain(0..first);
        let free = all.find(|object| !held[*object]).expect("there are more than threads");
        held[free] = true;
        free
    }

    fn record(&self, object: usize, number: u64, times: usize) -> RecordBuilder {
        let mut record = RecordBuilder::default();
        for _ in 0..times {
            record.data(place(&self.superblock, object), &contents(number));
        }
        record
    }

    fn reserve(&self, lane: &mut Lane<'_>, times: usize) {
        let len = self.record(0, 0, times).len();
        let wait = || {
            self.wanted.store(true, SeqCst);
            thread::yield_now();
            self.reclaim();
            true
        };
        let room = lane.reserve(&self.m, &self.numbers, len, wait);
        assert!(room.is_ok(), "{LAW}: room comes free: {room:?}");
        let durable = self.numbers.durable();
        let mut known = lock(&self.known);
        known.durable = known.durable.max(durable);
    }

    fn finish(&self, open: Open<'_>) {
        let at = place(&self.superblock, open.object);
        self.m.put(DATA, at, &contents(open.number)).expect("data is good");
        if self.m.kind() != MediumKind::File {
            self.m.drain(F2);
        }
        let durable = self.numbers.durable();
        let mut known = lock(&self.known);
        known.complete.insert(open.number);
        known.durable = known.durable.max(durable);
        known.held[open.object] = false;
        drop(known);
        self.numbers.done(open.lane.id());
    }

    fn reclaim(&self) {
        match self.log.reclaim(&self.m, &self.numbers) {
            Ok(durable) => {
                let mut known = lock(&self.known);
                known.durable = known.durable.max(durable);
            }
            Err(error) => panic!("{LAW}: a reclaim on a good medium goes through: {error}"),
        }
    }
}

/// Opens what a crash leaves at `point`, as recovery would.
fn judge(superblock: &Superblock, known: &Known, point: &CrashPoint, seed: u64) {
    let image = point.sample(seed, seed % 7);
    let mut data = image.bytes()[2 * superblock.side_len as usize..][..PAGE as usize].to_vec();
    let after = FaultMedium::from_crash(image, MediumKind::Dax, &Config::default());
    let found = scan(&after, superblock).expect("the log can be read");
    watermark(known, &found);
    replay(superblock, &found, &mut data);
    let there: BTreeSet<u64> = found.records.iter().map(|record| record.number).collect();
    let mut newest = [0; OBJECTS];
    // One that is not acknowledged counts if its record arrived. Numbers ascend.
    let leaked = known.pending.iter().filter(|(number, _)| there.contains(number));
    let all: BTreeMap<u64, usize> =
        known.acked.iter().chain(leaked).map(|(number, object)| (*number, *object)).collect();
    for (number, object) in all {
        newest[object] = number;
    }
    for (object, number) in newest.into_iter().enumerate() {
        let right = if number == 0 { [0; LEN] } else { contents(number) };
        let bytes = &data[object * LEN..][..LEN];
        assert!(bytes == right, "{LAW}: an acknowledged change is there after a crash");
    }
}

fn watermark(known: &Known, found: &Scan) {
    let open = known.acked.keys().filter(|number| !known.complete.contains(number));
    let early = open.chain(known.pending.keys()).any(|number| *number <= found.max_l);
    assert!(!early, "{LAW}: a watermark covers what is complete, and nothing else");
    assert!(found.max_l >= known.durable, "{LAW}: a watermark that is durable stays there");
    assert!(found.missing.is_empty(), "{LAW}: a record is there until a watermark covers it");
}

fn replay(superblock: &Superblock, found: &Scan, data: &mut [u8]) {
    for entry in found.to_replay().iter().flat_map(|record| record.entries(superblock.size)) {
        let Ok(Entry::Data { at, bytes }) = entry else {
            panic!("{LAW}: a record that was found can be read: {entry:?}")
        };
        let at = (at - 2 * superblock.side_len) as usize;
        data[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
