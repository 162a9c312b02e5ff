//! Pools without sums: what lies where, nothing tells but P and Q together, and so a row whose
//! write was lost comes back as a whole, wherever nobody holds it.

use crate::blessed::invert_on;
use crate::common::{TestPool, clock, create_with, get, pattern, put, quick, reopened};
use crate::older::losing_entries;
use crate::returning::cut;
use crate::stale::{forgetting, scrub, settled, write};
use holdfast_faultmem::{Config, FaultMedium};
use holdfast_layout::{RawPtr, RegionKind, SumKind};
use holdfast_object::{CreateOptions, Parity, Pool};
use holdfast_pmem::{MediumKind, PAGE};
use holdfast_redundancy::Zone;
use holdfast_txn::Transaction;

const KINDS: [MediumKind; 2] = [MediumKind::Shm, MediumKind::File];
const LONG: usize = 20_000;

fn pool(kind: MediumKind) -> TestPool {
    pool_of(kind, 8)
}

fn pool_of(kind: MediumKind, rows: u32) -> TestPool {
    let (sums, parity) = (SumKind::None, Parity::PQ);
    create_with(kind, &CreateOptions { sums, parity, rows, ..CreateOptions::tiny(1 << 20) })
}

/// A long object of whose page in the middle the last write was lost: where, and as it must be.
fn forgotten(pool: &TestPool) -> (RawPtr, Vec<u8>) {
    let mut bytes = pattern(1, LONG);
    let of = put(pool, &bytes);
    let _other = put(pool, &pattern(2, LONG));
    settled(pool);
    forgetting(pool, of.offset() + 2 * PAGE, || {
        write(pool, of, 2 * PAGE as usize + 100, &pattern(3, 500), &mut bytes);
    });
    (of, bytes)
}

#[test]
fn a_row_comes_back_that_p_and_q_agree_on() {
    for kind in KINDS {
        let pool = pool(kind);
        let (of, bytes) = forgotten(&pool);
        let done = scrub(&pool);
        assert_eq!((done.lost, done.undecided), (0, 0), "{kind}: {:?}", done.report.findings);
        assert!(get(&pool, of).unwrap() == bytes, "{kind}");
        settled(&pool);
    }
}

#[test]
fn what_is_viewed_waits_for_the_next_pass() {
    let pool = pool(MediumKind::Shm);
    let (of, bytes) = forgotten(&pool);
    let view = pool.view_raw(of).unwrap();
    let done = scrub(&pool);
    assert!(done.undecided > 0 && done.lost == 0, "{:?}", done.report.findings);
    assert!(get(&pool, of).unwrap() != bytes, "under a view nothing changes");
    drop(view);
    let done = scrub(&pool);
    assert_eq!((done.lost, done.undecided), (0, 0), "{:?}", done.report.findings);
    assert!(get(&pool, of).unwrap() == bytes);
    settled(&pool);
}

#[test]
fn entries_come_back_in_the_process_that_wrote_them_and_in_the_next() {
    for kind in KINDS {
        for again in [false, true] {
            let what = format!("{kind}, opened again: {again}");
            let mut pool = pool(kind);
            let before = put(&pool, &pattern(5, 300));
            let bytes = pattern(6, LONG);
            let of = losing_entries(&pool, || put(&pool, &bytes));
            if again {
                pool = reopened(pool);
            }
            scrub(&pool);
            assert!(get(&pool, of).unwrap() == bytes, "{what}");
            assert_eq!(get(&pool, before).unwrap(), pattern(5, 300), "{what}");
            settled(&pool);
        }
    }
}

#[test]
fn a_row_over_a_replay_comes_back_before_it() {
    for kind in KINDS {
        let first = pool_of(kind, 100);
        let region = *first.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
        let zone = Zone::new(&region, 0).unwrap();
        let mut one = pattern(1, LONG);
        let of = put(&first, &one);
        let beside = put(&first, &pattern(2, LONG));
        settled(&first);
        let at = (of.offset()..of.offset() + LONG as u64 - 100).find_map(|at| {
            let col = zone.place(at)?.col;
            let inside = beside.offset() + 100..beside.offset() + LONG as u64 - 100;
            let rows = (0..zone.data_rows()).map(|row| zone.at(row, col));
            rows.into_iter().find(|other| inside.contains(other)).map(|other| (at, other))
        });
        let (at, hit) = at.unwrap();
        let from = (at - of.offset()) as usize;
        let new = pattern(3, 80);
        let image = cut(&first, || {
            first.run(|tx| tx.write_bytes(of, from as u64, &new)).unwrap();
        });
        one[from..from + 80].copy_from_slice(&new);
        drop(first);
        let m = FaultMedium::from_crash(image, kind, &Config::default());
        invert_on(&m, hit + 10, 30);
        let (pool, opened) = Pool::open(m, quick(), clock()).unwrap();
        assert!(opened.recovered.replayed > 0, "{kind}");
        assert!(get(&pool, of).unwrap() == one, "{kind}");
        assert!(get(&pool, beside).unwrap() == pattern(2, LONG), "{kind}");
        settled(&pool);
    }
}
