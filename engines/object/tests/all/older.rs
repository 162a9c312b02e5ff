//! Directory entries whose write the device lost: whoever opens the pool next finds older ones,
//! which verify. Nothing is given up and no pointer called dangling before parity was asked.

use crate::common::{TestPool, create_with, get, pattern, put, reopened};
use holdfast_faultmem::{Clear, FaultKind, When};
use holdfast_heap::ZoneTable;
use holdfast_heap::format::{CHUNK_LEN, SLOT_LEN};
use holdfast_layout::{RawPtr, RegionKind};
use holdfast_object::{CreateOptions, Parity, ScrubControl, ScrubOptions};
use holdfast_pmem::{MediumKind, PAGE};
use holdfast_txn::{Transaction, TxError};

const KINDS: [(MediumKind, Parity); 4] = [
    (MediumKind::Shm, Parity::P),
    (MediumKind::Shm, Parity::PQ),
    (MediumKind::File, Parity::P),
    (MediumKind::File, Parity::PQ),
];

/// A length that takes chunks of its own.
pub(crate) const LONG: usize = 20_000;

fn pool(kind: MediumKind, parity: Parity) -> TestPool {
    create_with(kind, &CreateOptions { parity, ..CreateOptions::tiny(1 << 20) })
}

pub(crate) fn table(pool: &TestPool) -> ZoneTable {
    let regions = pool.regions();
    ZoneTable::new(0, regions.iter().find(|r| r.kind == RegionKind::Zone).unwrap())
}

/// Does `work`, of which the device loses the first write of directory entries.
pub(crate) fn losing_entries<R>(pool: &TestPool, work: impl FnOnce() -> R) -> R {
    let table = table(pool);
    let len = u64::from(table.chunks()) * CHUNK_LEN as u64;
    pool.medium().arm(FaultKind::Lost, When::touching(table.entry_at(0), len));
    let done = work();
    assert_eq!(pool.medium().armed(), 0, "entries were written, and lost");
    done
}

fn scrub(pool: &TestPool) {
    let control = ScrubControl::default();
    let done = pool.scrub(ScrubOptions::default(), &control, |_, _| {}).unwrap();
    assert_eq!((done.lost, done.undecided), (0, 0), "{:?}", done.report.findings);
    assert!(pool.check(|_, _| {}).unwrap().is_clean());
}

#[test]
fn an_object_that_was_freed_is_not_given_up_for_lost() {
    for (kind, parity) in KINDS {
        let first = pool(kind, parity);
        let kept = pattern(1, LONG);
        let keeper = put(&first, &kept);
        let gone = put(&first, &pattern(2, LONG));
        losing_entries(&first, || first.run(|tx| tx.free(gone)).unwrap());
        let pool = reopened(first);
        scrub(&pool);
        assert_eq!(pool.stats().lost, 0, "{kind} {parity:?}");
        assert_eq!(get(&pool, keeper).unwrap(), kept);
        // Its chunks can be had again.
        for turn in 0..8 {
            let bytes = pattern(turn, LONG);
            let of = put(&pool, &bytes);
            assert_eq!(get(&pool, of).unwrap(), bytes);
        }
        scrub(&pool);
    }
}

#[test]
fn an_object_that_was_made_is_found_by_its_pointer() {
    for (kind, parity) in KINDS {
        let first = pool(kind, parity);
        let bytes = pattern(3, LONG);
        let of = losing_entries(&first, || put(&first, &bytes));
        let pool = reopened(first);
        assert_eq!(get(&pool, of).unwrap(), bytes, "{kind} {parity:?}");
        scrub(&pool);
    }
}

/// The page of entries cannot be read either: rebuilt from parity it has what was lost, and whoever
/// opened the pool knows it from then on.
#[test]
fn an_object_whose_entries_were_lost_with_their_page_is_found_by_its_pointer() {
    for (kind, parity) in KINDS {
        let first = pool(kind, parity);
        let bytes = pattern(3, LONG);
        let of = losing_entries(&first, || put(&first, &bytes));
        let pool = reopened(first);
        let page = table(&pool).entry_at(0) / PAGE * PAGE;
        pool.medium().poison(page, PAGE, Clear::Able).unwrap();
        assert!(pool.heal_load(page, PAGE));
        // Whatever is put somewhere else.
        (0..4).for_each(|turn| assert!(!put(&pool, &pattern(turn, LONG)).is_null()));
        assert_eq!(get(&pool, of).unwrap(), bytes, "{kind} {parity:?}");
        scrub(&pool);
    }
}

/// The entries of an object were lost, as whoever opens the pool next finds, and its bytes over the
/// columns of the directory are hit. These are no free ones.
#[test]
fn an_object_whose_entries_are_older_ones_is_mended_once_they_are_not() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        let first = pool(kind, Parity::PQ);
        let zone = holdfast_redundancy::Zone::new(
            first.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap(),
            0,
        );
        let (zone, bytes) = (zone.unwrap(), pattern(3, LONG));
        // Of an object there: a byte over the directory's first page.
        let over = |of: RawPtr| {
            let mut all = (1..zone.data_rows()).map(|row| zone.at(row, 100));
            all.find(|at| (of.offset() + 2_000..of.offset() + LONG as u64).contains(at))
        };
        let place = (0..40).map(|_| put(&first, &bytes)).find(|of| over(*of).is_some()).unwrap();
        first.run(|tx| tx.free(place)).unwrap();
        // One for each of its chunks.
        let table = table(&first);
        let entries = (table.entry_at(0), u64::from(table.chunks()) * CHUNK_LEN as u64);
        (0..3).for_each(|_| {
            first.medium().arm(FaultKind::Lost, When::touching(entries.0, entries.1));
        });
        let of = put(&first, &bytes);
        assert_eq!(first.medium().armed(), 0, "entries were written, and lost");
        let hit = over(of).expect("the same chunks");
        let pool = reopened(first);
        pool.medium().flip_bit(hit, 3).unwrap();
        scrub(&pool);
        assert_eq!(get(&pool, of).unwrap(), bytes, "{kind}");
        scrub(&pool);
    }
}

/// Length of an object with one chunk of its own.
const CHUNK: usize = 7000;

/// Makes objects of a chunk until one is where `place` is.
pub(crate) fn put_at(pool: &TestPool, place: RawPtr, bytes: &[u8]) -> RawPtr {
    let mut others = Vec::new();
    let found = loop {
        let of = put(pool, bytes);
        if of.offset() == place.offset() {
            break of;
        }
        others.push(of);
    };
    others.into_iter().for_each(|of| pool.run(|tx| tx.free(of)).unwrap());
    found
}

/// Arms the loss of P over some bytes, and does `work`.
fn losing_parity<R>(pool: &TestPool, at: u64, len: u64, work: impl FnOnce() -> R) -> (R, bool) {
    let regions = pool.regions();
    let zone = regions.iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    let p = zone.start + u64::from(zone.data_rows) * zone.row_len;
    let p = p + (at - zone.start) % zone.row_len;
    pool.medium().arm(FaultKind::Lost, When::touching(p, len));
    let done = work();
    let lost = pool.medium().armed() == 0;
    pool.medium().disarm();
    (done, lost)
}

#[test]
fn an_entry_that_never_was_is_not_believed_although_it_verifies() {
    // Were sums linear, entries of generations 1, 2 and 5 would make one of generation 6, and free.
    let pool = pool(MediumKind::Shm, Parity::P);
    let one = put(&pool, &pattern(1, CHUNK));
    let table = table(&pool);
    let entry = table.entry_at(table.chunk_of(one.offset()).unwrap());
    let free = || pool.run(|tx| tx.free(one)).unwrap();
    assert!(losing_parity(&pool, entry, CHUNK_LEN as u64, free).1);
    let two = put_at(&pool, one, &pattern(2, CHUNK));
    pool.run(|tx| tx.free(two)).unwrap();
    let bytes = pattern(3, CHUNK);
    let three = put_at(&pool, one, &bytes);
    scrub(&pool);
    assert_eq!(get(&pool, three).unwrap(), bytes);
    let pool = reopened(pool);
    assert_eq!(get(&pool, three).unwrap(), bytes);
}

#[test]
fn parity_older_than_a_slot_is_not_believed_however_often_the_place_was_used() {
    for uses in [2, 300, 511, 512, 513, 600] {
        let pool = pool(MediumKind::Shm, Parity::P);
        let first = put(&pool, &pattern(0, 64));
        let table = table(&pool);
        let shape = (0..).find_map(|class| table.shape(class).filter(|s| s.size >= 64)).unwrap();
        let chunk = table.chunk_at(table.chunk_of(first.offset()).unwrap());
        let place = (first.offset() - chunk - u64::from(shape.objects)) / u64::from(shape.size);
        let slot = chunk + place * SLOT_LEN as u64;
        pool.run(|tx| tx.free(first)).unwrap();
        let mut used = 1;
        loop {
            used += 1;
            let bytes = pattern(used, 64);
            if used < uses {
                let of = put_at(&pool, first, &bytes);
                pool.run(|tx| tx.free(of)).unwrap();
                continue;
            }
            let (of, lost) =
                losing_parity(&pool, slot, SLOT_LEN as u64, || put_at(&pool, first, &bytes));
            assert!(lost, "P over the slot was not written");
            scrub(&pool);
            assert_eq!(get(&pool, of).unwrap(), bytes, "after {used} uses");
            break;
        }
    }
}

#[test]
fn a_pointer_that_names_nothing_is_dangling_at_once() {
    let pool = pool(MediumKind::Shm, Parity::P);
    let gone = put(&pool, &pattern(4, LONG));
    pool.run(|tx| tx.free(gone)).unwrap();
    for pointer in [gone, RawPtr::new(gone.offset() + 16, 1), RawPtr::NULL] {
        let mut runs = 0;
        let told = pool.run(|tx| {
            runs += 1;
            tx.len_of(pointer)
        });
        let dangling = matches!(told, Err(holdfast_object::Error::Tx(TxError::Dangling { .. })));
        assert!(dangling && runs == 1, "{pointer}: {told:?} after {runs} runs");
    }
    assert_eq!(pool.stats().detected, 0);
}
