//! Parts of the engine alone: small, so that many schedules can be drawn.

use std::sync::Arc;

use holdfast_faultmem::{Config, FaultMedium};
use holdfast_layout::{LogPlacement, Region, RegionKind, SumKind, Superblock};
use holdfast_logs::{Log, Numbers, RecordBuilder, scan};
use holdfast_pmem::{Medium, MediumKind};
use holdfast_redundancy::{ColumnId, Columns, Zone};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use shuttle::thread;

use super::stepped::Stepped;
use super::{LAW, Wrong};
use crate::nothing::Nothing;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// Four lanes draw numbers while two threads ask for the watermark.
pub(super) fn numbers(wrong: Wrong) {
    let world = Arc::new((
        Nothing { off: wrong.off() },
        Numbers::new(4, 1),
        [const { AtomicU32::new(0) }; 8],
    ));
    let lanes = (0..4).map(|lane| {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            for _ in 0..2 {
                let lane = if wrong == Wrong::Own("a lane for two") { lane % 2 } else { lane };
                let number = world.1.draw(&world.0, lane);
                if wrong == Wrong::Own("done before it is") {
                    world.1.done(lane);
                }
                world.2[number as usize - 1].store(1, SeqCst);
                if wrong != Wrong::Own("never done") {
                    world.1.done(lane);
                }
            }
        })
    });
    let readers = (0..2).map(|_| {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            for _ in 0..2 {
                let low = world.1.watermark(&world.0);
                for number in 0..low as usize {
                    let done = world.2[number].load(SeqCst) == 1;
                    assert!(done, "{LAW}: a commit that is not complete is below the watermark");
                }
            }
        })
    });
    join(lanes.chain(readers).collect());
    assert_eq!(world.1.watermark(&world.0), 8, "{LAW}: all are complete");
}

/// Waits for all of them.
pub(super) fn join(threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("a broken law ends the whole run");
    }
}

/// Commits, repairs and a scrub at three columns: parity of each is that of its two rows whenever
/// somebody holds it.
pub(super) fn columns(wrong: Wrong) {
    let kind = RegionKind::Zone;
    let row_len = 4 * PAGE;
    let region = Region {
        start: 0,
        len: 3 * row_len,
        kind,
        data_rows: 2,
        parity_rows: 1,
        row_len,
        chunk: PAGE,
    };
    let columns = Columns::new();
    columns.add_zone(&Zone::new(&region, 0).expect("the region is a zone"));
    let cells = [const { [const { AtomicU64::new(0) }; 3] }; 3];
    let world = Arc::new((Nothing { off: "" }, columns, cells));
    let commits = (0..3_u64).map(|me| {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            let ids = [me % 3, (me + 1) % 3].map(|page| ColumnId::new(0, page * PAGE));
            let ids = if ids[0] < ids[1] { ids } else { [ids[1], ids[0]] };
            let mut held = &ids[..];
            if me == 2 {
                while !world.1.try_lock_all(&world.0, &ids) {
                    if wrong == Wrong::Own("not locked, and went on") {
                        held = &[];
                        break;
                    }
                    thread::yield_now();
                }
            } else {
                held = if wrong == Wrong::Own("one of two locked") { &ids[..1] } else { &ids };
                world.1.lock_all(&world.0, held);
            }
            if wrong == Wrong::Own("parity after the lock") {
                let delta = ids.map(|id| change(&world.2[id.page() as usize], me));
                world.1.unlock_all(held);
                for (id, delta) in ids.iter().zip(delta) {
                    patch(&world.2[id.page() as usize], delta);
                }
            } else {
                for id in ids {
                    let cells = &world.2[id.page() as usize];
                    patch(cells, change(cells, me));
                }
                world.1.unlock_all(held);
            }
        })
    });
    let world_of_scrub = Arc::clone(&world);
    let scrub = thread::spawn(move || {
        let world = world_of_scrub;
        for page in 0..3 {
            let other = u64::from(wrong == Wrong::Own("judged with the lock of another"));
            let id = ColumnId::new(0, (page + other) % 3 * PAGE);
            let held = (wrong != Wrong::Own("judged without the lock"))
                .then(|| world.1.lock_one(&world.0, id));
            judge(&world.2[page as usize]);
            drop(held);
        }
    });
    join(commits.chain([scrub]).collect());
    world.2.iter().for_each(judge);
}

/// Changes a row; answers old XOR new.
fn change(cells: &[AtomicU64; 3], me: u64) -> u64 {
    let row = &cells[(me % 2) as usize];
    let (old, new) = (row.load(SeqCst), me * 7 + 1);
    row.store(new, SeqCst);
    old ^ new
}

fn patch(cells: &[AtomicU64; 3], delta: u64) {
    cells[2].store(cells[2].load(SeqCst) ^ delta, SeqCst);
}

fn judge(cells: &[AtomicU64; 3]) {
    let [a, b, p] = [0, 1, 2].map(|i: usize| cells[i].load(SeqCst));
    assert_eq!(a ^ b, p, "{LAW}: a column that is held agrees with its parity");
}

/// A pool as small as it gets.
pub(super) fn superblock(log_placement: LogPlacement, lanes: u32, ring_pages: u64) -> Superblock {
    let ring_len = ring_pages * PAGE;
    let side_len = PAGE + u64::from(lanes) * ring_len;
    Superblock {
        sequence: 1,
        uuid: *b"of drawn models.",
        compatible: 0,
        read_only_compatible: 0,
        incompatible: 0,
        log_generation: 3,
        clean: false,
        size: 2 * side_len + PAGE,
        frame: PAGE,
        chunk: PAGE,
        side_len,
        events_len: PAGE,
        log_start: PAGE,
        ring_len,
        lanes,
        log_placement,
        sum_kind: SumKind::Crc32c,
        parity: 0,
        copies: 2,
        allow_inject: false,
        anchor: 0,
        rows: 2,
        label: String::new(),
    }
}

/// Group commit: what is acknowledged is on the medium, whoever wrote it.
pub(super) fn group(wrong: Wrong) {
    commits(wrong, LogPlacement::Adjacent, MediumKind::File);
}

/// The same with a ring for each lane.
pub(super) fn rings(wrong: Wrong) {
    commits(wrong, LogPlacement::Apart, MediumKind::Dax);
}

/// The log of a pool, and who commits to it.
struct Logged {
    m: Stepped,
    log: Log,
    numbers: Numbers,
    superblock: Superblock,
    wrong: Wrong,
    /// In a variant all use this one.
    record: Mutex<RecordBuilder>,
}

fn commits(wrong: Wrong, placement: LogPlacement, kind: MediumKind) {
    let superblock = superblock(placement, 3, 4);
    let inner = FaultMedium::new(superblock.size, kind, &Config::default());
    inner.elide_name(wrong.off());
    let m = Stepped::new(inner, "");
    let log = Log::open(&m, &superblock).expect("the geometry is good");
    let numbers = Numbers::new(log.lanes(), 1);
    let record = Mutex::new(RecordBuilder::default());
    let world = Arc::new(Logged { m, log, numbers, superblock, wrong, record });
    let threads = (0..3).map(|hint| {
        let world = Arc::clone(&world);
        thread::spawn(move || commit(&world, hint))
    });
    join(threads.collect());
    assert_eq!(world.numbers.watermark(&world.m), 3, "{LAW}: all are complete");
}

/// Commits a record, and looks what is on the medium then.
fn commit(world: &Logged, hint: usize) {
    let Logged { m, log, numbers, superblock, wrong, record } = world;
    let payload = [hint as u8 + 1; 64];
    let mut lane = log.acquire(m, hint).expect("there is a lane for each");
    let mut own = RecordBuilder::default();
    own.data(0, &payload);
    let room = lane.reserve(m, numbers, own.len(), || true);
    room.expect("the log has room for three records");
    let number = numbers.draw(m, lane.id());
    if *wrong == Wrong::Own("done before it is") {
        numbers.done(lane.id());
    }
    let image = || m.inner.crash_point().persisted();
    let early = (*wrong == Wrong::Own("acknowledged first")).then(image);
    let done = if *wrong == Wrong::Own("one record for all") {
        let lock = || record.lock().expect("a broken law ends the whole run");
        *lock() = own;
        thread::yield_now();
        let mut all = lock();
        lane.commit_record(m, numbers, number, &mut all)
    } else {
        lane.commit_record(m, numbers, number, &mut own)
    };
    assert!(done.is_ok(), "{LAW}: a commit on a good medium goes through");
    let complete = numbers.watermark(m);
    let image = early.unwrap_or_else(image);
    let after = FaultMedium::from_crash(image, m.inner.kind(), &Config::default());
    let found = scan(&after, superblock).expect("the log can be read");
    let record = |wanted: u64| found.records.iter().find(|record| record.number == wanted);
    let mine = record(number);
    assert!(mine.is_some(), "{LAW}: an acknowledged record is on the medium");
    let mut parts = mine.into_iter().flat_map(|record| record.bytes.windows(payload.len()));
    assert!(parts.any(|part| part == payload), "{LAW}: a record holds what was put into it");
    for below in found.max_l + 1..=complete {
        assert!(record(below).is_some(), "{LAW}: what is complete is on the medium");
    }
    numbers.done(lane.id());
}
