//! Every page of a pool erased in turn, whatever is on it: unreadable, or readable and all zeros;
//! while the pool is in use, and before it is opened after a crash that left a record to replay.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::common::{TestPool, clock, crash, create_with, get, pattern, put, quick};
use holdfast_faultmem::{Clear, Config, FaultMedium, Image};
use holdfast_heap::verify::Direct;
use holdfast_heap::{ChunkKind, Heap};
use holdfast_layout::format::{
    EVENTS_START, INTENT_PAGE, PROGRESS_PAGE, REGIONS_PAGE, REMAP_PAGE, SUPERBLOCK_PAGE,
};
use holdfast_layout::{RawPtr, Region, RegionKind, Superblock};
use holdfast_object::{CreateOptions, Parity, Pool, ScrubControl, ScrubOptions, VerifyReads};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::events::{Event, Journal, Outcome};
use holdfast_redundancy::{Zone, zone};
use holdfast_txn::Transaction;

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// The superblock: what the pool is.
    Pool,
    /// The region table: where the zones are.
    Zones,
    /// Frames that moved.
    Remap,
    /// The note of a repair.
    Intent,
    /// How far a scrub is.
    Progress,
    /// Events.
    Journal,
    /// Rings of the lanes.
    Log,
    /// Chunk metadata: directory entries.
    Directory,
    /// Chunk metadata: the head of a chunk, with slots and sums.
    Slots,
    /// Objects and nothing else.
    Object,
    /// A chunk that is free.
    Free,
    /// A chunk with the entries of a record that was too long for the log.
    Overflow,
    /// Parity.
    P,
    /// The second parity.
    Q,
    /// A frame for one that stays bad.
    Spare,
    /// Nothing: the rest of a side or of a zone.
    Nothing,
}

const SIDE: [Class; 7] = [
    Class::Pool,
    Class::Zones,
    Class::Remap,
    Class::Intent,
    Class::Progress,
    Class::Journal,
    Class::Log,
];
const ZONE: [Class; 5] = [Class::Directory, Class::Slots, Class::Object, Class::Free, Class::P];

/// What is where, as the medium says.
pub(crate) struct Map {
    superblock: Superblock,
    pub(crate) zone: Zone,
    pub(crate) heap: Heap,
}

impl Map {
    pub(crate) fn new(m: &FaultMedium, superblock: Superblock, region: &Region) -> Self {
        let heap = Heap::new(superblock.seed(), superblock.sum_kind);
        let index = heap.add_zone(region).unwrap();
        assert!(heap.load_zone(&Direct(m), index).is_empty());
        Self { superblock, zone: Zone::new(region, 0).unwrap(), heap }
    }

    pub(crate) fn class(&self, page: u64) -> Class {
        let side_len = self.superblock.side_len;
        if page < 2 * side_len {
            return self.class_of_side(page % side_len);
        }
        match self.zone.unit(page) {
            Some((zone::Unit::P, _)) => Class::P,
            Some((zone::Unit::Q, _)) => Class::Q,
            Some((zone::Unit::Row(_), _)) => self.class_of_data(page),
            None if page < self.zone.data_start() => Class::Spare,
            None => Class::Nothing,
        }
    }

    fn class_of_side(&self, place: u64) -> Class {
        match place {
            SUPERBLOCK_PAGE => Class::Pool,
            REGIONS_PAGE => Class::Zones,
            REMAP_PAGE => Class::Remap,
            INTENT_PAGE => Class::Intent,
            PROGRESS_PAGE => Class::Progress,
            _ if place >= self.superblock.log_start => Class::Log,
            _ if place >= EVENTS_START => Class::Journal,
            _ => Class::Nothing,
        }
    }

    fn class_of_data(&self, page: u64) -> Class {
        let table = self.heap.zone(0).unwrap();
        if page < table.chunks_at() {
            return Class::Directory;
        }
        let Some(chunk) = table.chunk_of(page) else { return Class::Nothing };
        let head = page == table.chunk_at(chunk);
        match table.entry(chunk).unwrap().kind {
            ChunkKind::Run | ChunkKind::Large if head => Class::Slots,
            ChunkKind::Run | ChunkKind::Large | ChunkKind::Tail => Class::Object,
            ChunkKind::Free => Class::Free,
            ChunkKind::Log => Class::Overflow,
        }
    }

    /// Whether an event tells of damage on `page`: it names some of it, or P over it, where a
    /// column says no more than that it does not add up.
    fn tells(&self, event: &Event, page: u64) -> bool {
        let over = |at: u64| event.at < at + PAGE && at < event.at + event.len;
        over(page) || self.zone.unit(page).is_some_and(|(_, col)| over(self.zone.p_at(col)))
    }
}

/// How a page is erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Erase {
    /// It cannot be read.
    Poison,
    /// It reads as zeros.
    Zeros,
}

impl Erase {
    /// Erases a page; false if that changes nothing.
    fn apply(self, m: &FaultMedium, page: u64) -> bool {
        let mut before = [0; PAGE as usize];
        m.read(page, &mut before).unwrap();
        match self {
            Self::Poison => m.poison(page, PAGE, Clear::Able).unwrap(),
            Self::Zeros => m.stray(page, &[0; PAGE as usize]).unwrap(),
        }
        self == Self::Poison || before != [0; PAGE as usize]
    }

    /// Whether anybody has to notice that a page of this class was erased. A page that cannot be
    /// read is noticed wherever it is looked at; zeros where something is kept.
    fn shows(self, class: Class) -> bool {
        match class {
            Class::Spare | Class::Nothing => false,
            // Records that a watermark covers are never read again, nor is a log of events missed.
            Class::Log | Class::Journal => self == Self::Poison,
            // A scrub writes where it is before it looks at anything.
            Class::Progress => self == Self::Poison,
            _ => true,
        }
    }
}

pub(crate) struct Filled {
    pub(crate) pool: TestPool,
    pub(crate) objects: Vec<(RawPtr, Vec<u8>)>,
}

/// A pool with objects of many lengths, some of which were freed again.
pub(crate) fn filled(kind: MediumKind, parity: Parity) -> Filled {
    let options = CreateOptions { parity, events: 8192, ..CreateOptions::tiny(1 << 20) };
    let pool = create_with(kind, &options);
    pool.set_verify_reads(VerifyReads::Always);
    let lengths = [48, 200, 1000, 3000, 5000, 20_000];
    let mut objects = Vec::new();
    for i in 0..54_u64 {
        let bytes = pattern(i + 1, lengths[i as usize % lengths.len()]);
        objects.push((put(&pool, &bytes), bytes));
    }
    // What was freed is still in parity.
    for _ in 0..6 {
        let (gone, _) = objects.remove(5);
        pool.run(|tx| tx.free(gone)).unwrap();
    }
    Filled { pool, objects }
}

pub(crate) fn map(pool: &TestPool) -> Map {
    let regions = pool.regions();
    let zone = regions.iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    Map::new(pool.medium(), pool.superblock(), zone)
}

pub(crate) fn events_from(pool: &TestPool, sequence: u64) -> Vec<Event> {
    let journal = Journal::open(pool.medium(), &pool.superblock());
    journal.read_from(pool.medium(), sequence)
}

fn right(pool: &TestPool, objects: &[(RawPtr, Vec<u8>)], what: &str) {
    for (p, bytes) in objects {
        let found = get(pool, *p);
        assert!(found.as_ref().is_ok_and(|found| found == bytes), "{what}: {p}");
    }
    let report = pool.check(|_, _| {}).unwrap();
    assert!(report.is_clean(), "{what}: {:?}", report.findings);
}

/// Erases one page after the other of a pool in use, and lets a scrub look after each.
fn every_page(kind: MediumKind, parity: Parity, erase: Erase) {
    let f = filled(kind, parity);
    let map = map(&f.pool);
    let mut hit: BTreeMap<Class, u32> = BTreeMap::new();
    let mut next = 0;
    for page in (0..f.pool.superblock().size).step_by(PAGE as usize) {
        let class = map.class(page);
        let what = format!("{kind} {parity:?} {erase:?} {class:?} {page:#x}");
        let shows = erase.apply(f.pool.medium(), page) && erase.shows(class);
        let control = ScrubControl::default();
        let done = f.pool.scrub(ScrubOptions::default(), &control, |_, _| {}).unwrap();
        assert_eq!((done.lost, done.undecided), (0, 0), "{what}: {:?}", done.report.findings);
        let events = events_from(&f.pool, next);
        next = events.last().map_or(next, |event| event.sequence + 1);
        assert!(events.iter().all(|e| e.outcome == Outcome::Repaired), "{what}: {events:?}");
        let told = events.iter().any(|event| map.tells(event, page));
        assert!(told || !shows, "{what}: {events:?}");
        right(&f.pool, &f.objects, &what);
        *hit.entry(class).or_default() += u32::from(shows);
    }
    println!("{kind} {parity:?} {erase:?}: {hit:?}");
    let q = (parity == Parity::PQ).then_some(Class::Q);
    for class in SIDE.into_iter().chain(ZONE).chain(q).filter(|class| erase.shows(*class)) {
        assert!(
            hit.get(&class).is_some_and(|n| *n > 0),
            "no page of {class:?} was erased: {hit:?}"
        );
    }
    let (pool, _) = crash(f.pool);
    right(&pool, &f.objects, "after a crash");
}

#[test]
fn every_page_of_a_pool_in_use_may_become_unreadable() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        for parity in [Parity::P, Parity::PQ] {
            every_page(kind, parity, Erase::Poison);
        }
    }
}

#[test]
fn every_page_of_a_pool_in_use_may_become_zeros() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        for parity in [Parity::P, Parity::PQ] {
            every_page(kind, parity, Erase::Zeros);
        }
    }
}

/// Where in the long object the change that overflows is, and how long it is.
const CHANGE: (usize, usize) = (3000, 12_000);

/// Whether the replay of that change replaces the whole page, or it is parity over such a page, or
/// over one of the log chunks, whose taking is replayed as well.
fn replays(map: &Map, f: &Filled, page: u64) -> bool {
    let from = f.objects[long(&f.objects)].0.offset() + CHANGE.0 as u64;
    let whole = from.next_multiple_of(PAGE)..(from + CHANGE.1 as u64) / PAGE * PAGE;
    match map.zone.unit(page) {
        Some((zone::Unit::Row(_), _)) => whole.contains(&page),
        Some((_, over)) => {
            let mut pages = whole.step_by(PAGE as usize);
            let is_over = |at: u64| map.zone.place(at).is_some_and(|place| place.col == over);
            let mut all = (0..map.superblock.size).step_by(PAGE as usize);
            pages.any(is_over) || all.any(|at| map.class(at) == Class::Overflow && is_over(at))
        }
        None => false,
    }
}

/// Index of an object that is long enough for a change that overflows the log.
fn long(objects: &[(RawPtr, Vec<u8>)]) -> usize {
    objects.iter().position(|(_, bytes)| bytes.len() == 20_000).unwrap()
}

/// Overwrites much of a long object by one transaction, whose record goes to chunks of the heap.
/// `then` is called at the first `step` after they were filled.
pub(crate) fn overflow(
    f: &mut Filled,
    step: &'static str,
    then: impl Fn(&TestPool) + Send + Sync + 'static,
) {
    let (hooked, stored) = (f.pool.clone(), Mutex::new(Some(false)));
    f.pool.medium().on_step(Box::new(move |site| {
        let mut stored = stored.lock().unwrap();
        if site.name() == "object.overflow.step-stored" && stored.is_some() {
            *stored = Some(true);
        }
        if site.name() == step && *stored == Some(true) {
            *stored = None;
            then(&hooked);
        }
    }));
    let n = long(&f.objects);
    let (object, new) = (f.objects[n].0, pattern(4711, CHANGE.1));
    f.pool.run(|tx| tx.write_bytes(object, CHANGE.0 as u64, &new)).unwrap();
    f.pool.medium().clear_on_step();
    f.objects[n].1[CHANGE.0..CHANGE.0 + CHANGE.1].copy_from_slice(&new);
}

/// What a crash leaves at the first `step` after the chunks were filled.
pub(crate) fn crashed_at(f: &mut Filled, step: &'static str) -> Image {
    let image: Arc<Mutex<Option<Image>>> = Arc::default();
    let sink = Arc::clone(&image);
    overflow(f, step, move |pool| {
        *sink.lock().unwrap() = Some(pool.medium().crash_point().persisted());
    });
    image.lock().unwrap().take().expect("the step was passed")
}

/// Erases one page after the other of what a crash left, in which a record in chunks of the heap
/// is to be replayed, and opens it.
fn every_page_at_open(kind: MediumKind, parity: Parity, erase: Erase) {
    let mut f = filled(kind, parity);
    let (superblock, regions) = (f.pool.superblock(), f.pool.regions());
    let image = crashed_at(&mut f, "object.commit.step-durable");
    let region = regions.iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    let m = FaultMedium::from_crash(image.clone(), kind, &Config::default());
    let map = Map::new(&m, superblock, region);
    let mut hit: BTreeMap<Class, u32> = BTreeMap::new();
    for page in (0..m.len()).step_by(PAGE as usize) {
        let class = map.class(page);
        let what = format!("{kind} {parity:?} {erase:?} {class:?} {page:#x}");
        let m = FaultMedium::from_crash(image.clone(), kind, &Config::default());
        let shows = erase.apply(&m, page);
        *hit.entry(class).or_default() += u32::from(shows);
        let (pool, opened) = Pool::open(m, quick(), clock()).expect(&what);
        assert_eq!(opened.recovered.lost, 0, "{what}: {opened:?}");
        assert!(opened.recovered.replayed > 0, "{what}: {opened:?}");
        let control = ScrubControl::default();
        let done = pool.scrub(ScrubOptions::default(), &control, |_, _| {}).unwrap();
        assert_eq!((done.lost, done.undecided), (0, 0), "{what}: {:?}", done.report.findings);
        pool.set_verify_reads(VerifyReads::Always);
        right(&pool, &f.objects, &what);
        let events = events_from(&pool, 0);
        assert!(events.iter().all(|e| e.outcome == Outcome::Repaired), "{what}: {events:?}");
        let told = events.iter().any(|event| map.tells(event, page));
        // A replay writes over bytes without a look at them, and makes parity over them anew.
        let unseen = erase == Erase::Zeros && replays(&map, &f, page);
        assert!(told || unseen || !shows || !erase.shows(class), "{what}: {events:?}");
        drop(pool);
    }
    println!("{kind} {parity:?} {erase:?}: {hit:?}");
    for class in [Class::Overflow, Class::Log, Class::Pool].into_iter().chain(ZONE) {
        assert!(
            hit.get(&class).is_some_and(|n| *n > 0),
            "no page of {class:?} was erased: {hit:?}"
        );
    }
    assert!(hit[&Class::Overflow] >= 6, "both copies, each page: {hit:?}");
}

#[test]
fn every_page_of_a_crashed_pool_may_be_unreadable_when_it_is_opened() {
    for (kind, parity) in [(MediumKind::Shm, Parity::P), (MediumKind::File, Parity::PQ)] {
        every_page_at_open(kind, parity, Erase::Poison);
    }
}

#[test]
fn every_page_of_a_crashed_pool_may_be_zeros_when_it_is_opened() {
    for (kind, parity) in [(MediumKind::Shm, Parity::P), (MediumKind::File, Parity::PQ)] {
        every_page_at_open(kind, parity, Erase::Zeros);
    }
}

#[test]
fn every_page_of_an_overflowing_record_may_be_erased_while_it_is_in_use() {
    let steps = ["object.overflow.step-stored", "object.commit.step-durable"];
    let later = ["object.commit.step-columns", "object.commit.step-applied"];
    let mut trials = 0;
    for step in steps.into_iter().chain(later) {
        for erase in [Erase::Poison, Erase::Zeros] {
            // As many as there turn out to be.
            for n in 0.. {
                let mut f = filled(MediumKind::Shm, Parity::P);
                let erased: Arc<Mutex<Option<u64>>> = Arc::default();
                let sink = Arc::clone(&erased);
                overflow(&mut f, step, move |pool| {
                    let map = map(pool);
                    let pages = (0..pool.superblock().size).step_by(PAGE as usize);
                    let mut log = pages.filter(|page| map.class(*page) == Class::Overflow);
                    let page = log.nth(n);
                    page.map(|page| erase.apply(pool.medium(), page));
                    *sink.lock().unwrap() = page;
                });
                let Some(page) = *erased.lock().unwrap() else {
                    assert!(n >= 6, "both copies have pages: {n} at {step}");
                    break;
                };
                let what = format!("{step} {erase:?} {page:#x}");
                let told = events_from(&f.pool, 0).iter().any(|e| e.at == page);
                assert_eq!(told, erase == Erase::Poison, "{what}");
                assert_eq!(f.pool.stats().lost, 0, "{what}");
                right(&f.pool, &f.objects, &what);
                let (pool, _) = crash(f.pool);
                right(&pool, &f.objects, &what);
                trials += 1;
            }
        }
    }
    assert!(trials >= 4 * 2 * 6, "{trials}");
}
