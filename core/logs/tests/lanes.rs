//! Lanes and the log as an engine uses them: what is refused, what one lost copy changes, repair
//! of log pages, pairs of records, and how many drains all that takes.

mod common;

use common::superblock;
use holdfast_faultmem::{Clear, Config, FaultMedium};
use holdfast_layout::{LogPlacement, Superblock};
use holdfast_logs::{Entry, Lane, Log, LogError, Numbers, RecordBuilder, scan};
use holdfast_pmem::{Medium, MediumKind, Site};

const F2: Site = Site::new("test.lanes.F2");

struct Pool {
    superblock: Superblock,
    m: FaultMedium,
    log: Log,
    numbers: Numbers,
}

fn pool(placement: LogPlacement, copies: u32) -> Pool {
    let superblock = superblock(placement, 3, 4, copies);
    let kind = match placement {
        LogPlacement::Apart => MediumKind::Dax,
        LogPlacement::Adjacent => MediumKind::File,
    };
    let m = FaultMedium::new(superblock.size, kind, &Config::default());
    let log = Log::open(&m, &superblock).expect("the geometry is good");
    let numbers = Numbers::new(log.lanes(), 1);
    Pool { superblock, m, log, numbers }
}

impl Pool {
    fn lane(&self, lane: usize) -> Lane<'_> {
        self.log.acquire_exact(&self.m, lane).expect("nobody holds it")
    }

    /// Commits `len` bytes of data; what became of it.
    fn commit(&self, lane: &mut Lane<'_>, len: usize) -> Result<Option<u64>, LogError> {
        let mut record = RecordBuilder::default();
        record.data(0, &vec![7; len]);
        lane.reserve(&self.m, &self.numbers, record.len(), || false)?;
        let number = self.numbers.draw(&self.m, lane.id());
        let committed = lane.commit_record(&self.m, &self.numbers, number, &mut record);
        self.numbers.done(lane.id());
        committed.map(|committed| committed.damaged.map(|error| error.at))
    }

    fn found(&self) -> Vec<u64> {
        let found = scan(&self.m, &self.superblock).expect("the log can be read");
        found.records.iter().map(|record| record.number).collect()
    }
}

#[test]
fn a_lane_has_one_holder() {
    let p = pool(LogPlacement::Apart, 2);
    let held: Vec<_> = (0..3).map(|_| p.log.acquire(&p.m, 1).unwrap()).collect();
    assert_eq!(held.iter().map(Lane::id).collect::<Vec<_>>(), [1, 2, 0]);
    assert!(p.log.acquire(&p.m, 0).is_none());
    drop(held);
    assert!(p.log.acquire_exact(&p.m, 3).is_none(), "there is no such lane");
    assert_eq!(p.lane(2).id(), 2);
}

#[test]
fn misuse_is_refused_and_nothing_is_written() {
    for placement in [LogPlacement::Apart, LogPlacement::Adjacent] {
        let p = pool(placement, 2);
        let mut lane = p.lane(0);
        let mut record = RecordBuilder::default();
        let commit = |lane: &mut Lane<'_>, record: &mut RecordBuilder| {
            lane.commit_record(&p.m, &p.numbers, 1, record)
        };
        assert!(matches!(commit(&mut lane, &mut record), Err(LogError::Empty)));
        record.data(0, &[1; 100]);
        assert!(matches!(commit(&mut lane, &mut record), Err(LogError::NoRoom)));
        lane.reserve(&p.m, &p.numbers, 64, || false).unwrap();
        let less = commit(&mut lane, &mut record);
        assert!(matches!(less, Err(LogError::NoRoom)), "room for less");
        lane.reserve(&p.m, &p.numbers, 192, || false).unwrap();
        lane.cancel();
        let none = commit(&mut lane, &mut record);
        assert!(matches!(none, Err(LogError::NoRoom)), "given back");
        let max = p.log.max_record_len();
        let too_big = lane.reserve(&p.m, &p.numbers, max + 1, || false);
        assert!(matches!(too_big, Err(LogError::TooBig { len, .. }) if len == max as u64 + 1));
        record.clear();
        (0..70_000).for_each(|_| record.fresh(0, 0));
        assert!(!p.log.fits(&record));
        assert!(matches!(commit(&mut lane, &mut record), Err(LogError::TooBig { .. })));
        assert_eq!(p.m.counters().stored_bytes, 0);
    }
}

#[test]
fn the_longest_record_is_found_again() {
    for (placement, copies) in [
        (LogPlacement::Apart, 2),
        (LogPlacement::Apart, 1),
        (LogPlacement::Adjacent, 2),
        (LogPlacement::Adjacent, 1),
    ] {
        let p = pool(placement, copies);
        let mut lane = p.lane(1);
        let max = p.log.max_record_len();
        let len = max - 24 - 16;
        assert!(matches!(p.commit(&mut lane, len + 1), Err(LogError::TooBig { .. })));
        assert_eq!(p.commit(&mut lane, len).unwrap(), None);
        let found = scan(&p.m, &p.superblock).unwrap();
        assert_eq!((found.records.len(), found.valid), (1, copies.into()));
        assert_eq!((found.records[0].bytes.len(), found.records[0].copy_damaged), (max, false));
    }
}

#[test]
fn with_one_copy_only_side_a_is_written() {
    let p = pool(LogPlacement::Apart, 1);
    p.commit(&mut p.lane(0), 100).unwrap();
    let mut side_b = vec![1; p.superblock.side_len as usize];
    p.m.read(p.superblock.side_len, &mut side_b).unwrap();
    assert!(side_b.iter().all(|byte| *byte == 0));
    assert_eq!(p.found(), [1]);
}

#[test]
fn one_bad_copy_is_named_and_healed_from_the_other() {
    for side in [0, 1] {
        let p = pool(LogPlacement::Apart, 2);
        let mut lane = p.lane(1);
        p.commit(&mut lane, 100).unwrap();
        let page = side * p.superblock.side_len + p.superblock.log_start + p.superblock.ring_len;
        p.m.poison(page, 1, Clear::Able).unwrap();
        assert_eq!(p.commit(&mut lane, 100).unwrap(), Some(page));
        let found = scan(&p.m, &p.superblock).unwrap();
        assert_eq!(found.bad, [(page, 4096)]);
        assert_eq!(found.records.len(), 2);
        assert!(found.records.iter().all(|record| record.copy_damaged));
        assert!(p.log.contains(page));
        assert!(p.log.heal(&p.m, &p.numbers, page).is_none(), "its lane is held");
        drop(lane);
        p.log.heal(&p.m, &p.numbers, page + 100).unwrap().unwrap();
        // The mark that heal writes covers both commits, for both are done.
        let found = scan(&p.m, &p.superblock).unwrap();
        assert_eq!((found.bad.len(), found.max_l, found.valid), (0, 2, 6));
        assert_eq!(p.commit(&mut p.lane(1), 100).unwrap(), None);
    }
}

#[test]
fn two_bad_copies_fail_the_commit_and_another_lane_helps() {
    let p = pool(LogPlacement::Apart, 2);
    let ring = p.superblock.log_start + p.superblock.ring_len;
    for side in [0, p.superblock.side_len] {
        p.m.poison(side + ring, p.superblock.ring_len, Clear::Able).unwrap();
    }
    let mut lane = p.lane(1);
    assert!(matches!(p.commit(&mut lane, 100), Err(LogError::Media(_))));
    assert_eq!(p.found(), [0; 0]);
    assert_eq!(p.commit(&mut p.lane(2), 100).unwrap(), None);
    assert_eq!(p.found(), [2]);
    drop(lane);
    for page in (0..p.superblock.ring_len).step_by(4096) {
        p.log.heal(&p.m, &p.numbers, ring + page).unwrap().unwrap();
    }
    assert_eq!(scan(&p.m, &p.superblock).unwrap().bad, []);
    assert_eq!(p.commit(&mut p.lane(1), 100).unwrap(), None);
}

#[test]
fn a_page_that_stays_bad_or_is_not_of_the_log_is_an_error() {
    let p = pool(LogPlacement::Apart, 2);
    p.m.poison(p.superblock.log_start, 1, Clear::Unable).unwrap();
    let healed = p.log.heal(&p.m, &p.numbers, p.superblock.log_start).unwrap();
    assert!(matches!(healed, Err(LogError::Media(_))));
    for at in [0, 4095, p.superblock.side_len, p.superblock.size - 1, u64::MAX] {
        let healed = p.log.heal(&p.m, &p.numbers, at).unwrap();
        assert!(matches!(healed, Err(LogError::Geometry { .. })), "{at:#x}");
    }
}

#[test]
fn a_bad_page_of_the_adjacent_log_is_rewritten_after_a_reclaim() {
    let p = pool(LogPlacement::Adjacent, 2);
    let mut lane = p.lane(0);
    p.commit(&mut lane, 100).unwrap();
    for page in 0..8 {
        let at = p.superblock.log_start + page * 4096;
        p.m.poison(at, 1, Clear::Able).unwrap();
        p.log.heal(&p.m, &p.numbers, at).unwrap().unwrap();
        let found = scan(&p.m, &p.superblock).unwrap();
        assert_eq!((found.bad.len(), found.max_l), (0, 1));
    }
    p.commit(&mut lane, 100).unwrap();
    assert_eq!(p.found(), [2]);
}

/// Watermarks become durable on request, without a commit.
#[test]
fn a_mark_makes_the_watermark_durable() {
    let p = pool(LogPlacement::Apart, 2);
    let (mut one, mut two) = (p.lane(1), p.lane(2));
    for _ in 0..3 {
        p.commit(&mut one, 8).unwrap();
    }
    let number = p.numbers.draw(&p.m, two.id());
    two.mark(&p.m, &p.numbers).unwrap();
    assert_eq!((p.numbers.durable(), scan(&p.m, &p.superblock).unwrap().max_l), (3, 3));
    let drains = p.m.counters().drains;
    one.mark(&p.m, &p.numbers).unwrap();
    assert_eq!(p.m.counters().drains, drains, "no news");
    p.numbers.done(two.id());
    one.mark(&p.m, &p.numbers).unwrap();
    assert_eq!(scan(&p.m, &p.superblock).unwrap().max_l, number);
}

/// One drain for the record and one for the data, whatever wraps and however many lanes there
/// are; nothing hides behind a locked instruction.
#[test]
fn a_commit_has_one_drain_of_its_own() {
    let p = pool(LogPlacement::Apart, 2);
    let mut lanes: Vec<_> = (0..3).map(|lane| p.lane(lane)).collect();
    let mut record = RecordBuilder::default();
    let commits = 3 * 500;
    for i in 0..commits {
        let lane = &mut lanes[i % 3];
        record.clear();
        record.data(0, &[i as u8; 64]);
        lane.reserve(&p.m, &p.numbers, record.len(), || false).unwrap();
        let number = p.numbers.draw(&p.m, lane.id());
        lane.commit_record(&p.m, &p.numbers, number, &mut record).unwrap();
        p.m.put(F2, 2 * p.superblock.side_len, &[i as u8; 64]).unwrap();
        p.m.drain(F2);
        p.numbers.done(lane.id());
    }
    let counters = p.m.counters();
    assert_eq!(counters.all_drains(), 2 * commits as u64);
    assert_eq!((counters.hidden_drains, counters.redundant_drains), (0, 0));
}

#[test]
fn a_log_that_is_not_in_the_medium_is_refused() {
    let good = superblock(LogPlacement::Apart, 3, 4, 2);
    let m = FaultMedium::new(good.size, MediumKind::Dax, &Config::default());
    let bad = [
        Superblock { lanes: 0, ..good.clone() },
        Superblock { lanes: u32::MAX, ..good.clone() },
        Superblock { ring_len: 0, ..good.clone() },
        Superblock { ring_len: 100, ..good.clone() },
        Superblock { ring_len: u64::MAX - 4095, ..good.clone() },
        Superblock { log_start: 5, ..good.clone() },
        Superblock { log_start: u64::MAX - 4095, ..good.clone() },
        Superblock { side_len: 8192, ..good.clone() },
        Superblock { side_len: 1 << 63, ..good.clone() },
    ];
    for superblock in bad {
        let opened = Log::open(&m, &superblock);
        assert!(matches!(opened, Err(LogError::Geometry { .. })), "{superblock:?}");
        assert!(matches!(scan(&m, &superblock), Err(LogError::Geometry { .. })));
    }
    let small = Superblock { log_placement: LogPlacement::Adjacent, lanes: 1, ..good };
    assert!(matches!(Log::open(&m, &small), Err(LogError::Geometry { .. })));
}

/// A ring longer than what a scan looks at in one go: records lie across every border, and are
/// found once each.
#[test]
fn records_are_found_across_the_windows_of_a_scan() {
    let superblock = superblock(LogPlacement::Apart, 1, 3072, 1);
    let m = FaultMedium::new(superblock.size, MediumKind::Dax, &Config::default());
    let log = Log::open(&m, &superblock).unwrap();
    let numbers = Numbers::new(2, 1);
    // One that never comes to its end: all others are to be replayed.
    numbers.draw(&m, 1);
    let mut lane = log.acquire(&m, 0).unwrap();
    let mut record = RecordBuilder::default();
    let lens = [700_000, 64, 4_190_000, 3_000_000, 1, 4_000_000];
    let mut number = 0;
    for len in lens {
        record.clear();
        record.data(0, &vec![0; len]);
        lane.reserve(&m, &numbers, record.len(), || false).unwrap();
        number = numbers.draw(&m, 0);
        lane.commit_record(&m, &numbers, number, &mut record).unwrap();
        numbers.done(0);
    }
    let found = scan(&m, &superblock).unwrap();
    assert_eq!((found.valid, found.max_number), (lens.len() as u64, number));
    assert_eq!(found.records.len(), lens.len());
    for (record, len) in found.to_replay().iter().zip(lens) {
        let entry = record.entries(1 << 40).next();
        assert!(matches!(entry, Some(Ok(Entry::Data { bytes, .. })) if bytes.len() == len));
    }
}

#[test]
fn nobody_else_is_sent_to_reclaim_while_one_is_at_it() {
    use std::sync::{Arc, Mutex};

    let p = Arc::new(pool(LogPlacement::Adjacent, 2));
    while !p.log.reclaim_due() {
        p.commit(&mut p.lane(0), 3000).unwrap();
    }
    let told: Arc<Mutex<Vec<bool>>> = Arc::default();
    let (asked, sink) = (Arc::clone(&p), Arc::clone(&told));
    p.m.on_barrier(Box::new(move |_, _, _| sink.lock().unwrap().push(asked.log.reclaim_due())));
    p.log.reclaim(&p.m, &p.numbers).unwrap();
    p.m.clear_on_barrier();
    let told = told.lock().unwrap();
    assert!(!told.is_empty() && told.iter().all(|due| !due), "{told:?}");
    assert!(!p.log.reclaim_due(), "there is room again");
}
