//! Repair tries what parity says and believes what verifies: what must not be believed, and how
//! much may be tried.

use crate::common::{TestPool, create_with, get, pattern, put};
use holdfast_heap::verify::Direct;
use holdfast_heap::{Heap, Spot};
use holdfast_layout::{RawPtr, RegionKind};
use holdfast_object::{CreateOptions, Parity, ScrubControl, ScrubOptions, VerifyReads};
use holdfast_pmem::{Medium, MediumKind};
use holdfast_redundancy::Zone;

/// Calls of the medium that the read of one object may take over rows that are lost: three times
/// as many as were seen. All that could be tried takes hours.
const PATIENCE: u64 = 8_000_000;

/// Where an object lies.
fn spot(pool: &TestPool, p: RawPtr) -> Spot {
    let sb = pool.superblock();
    let region = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    let heap = Heap::new(sb.seed(), sb.sum_kind);
    heap.add_zone(&region).unwrap();
    let bad = heap.load_zone(&Direct(pool.medium()), 0);
    assert!(bad.is_empty());
    heap.locate(p.offset()).unwrap()
}

fn flip(pool: &TestPool, at: u64, mask: u8) {
    let mut b = [0];
    pool.medium().read(at, &mut b).unwrap();
    pool.medium().stray(at, &[b[0] ^ mask]).unwrap();
}

/// A sum of an object, and the byte of another object that shares a column with the length in its
/// slot: parity makes of the slot one that has no such granule.
fn one_bad_row_per_column(parity: Parity, by_read: bool) {
    let options =
        CreateOptions { parity, rows: 100, events: 32 << 10, ..CreateOptions::tiny(1 << 20) };
    let pool = create_with(MediumKind::Shm, &options);
    pool.set_verify_reads(VerifyReads::Always);
    let mut objects = Vec::new();
    for i in 0..10_u64 {
        let bytes = pattern(i + 1, [3000, 28_000][i as usize % 2]);
        objects.push((put(&pool, &bytes), bytes));
    }
    let (a, _) = objects[0].clone();
    let s = spot(&pool, a);
    let region = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    let zone = Zone::new(&region, 0).unwrap();
    // The byte of the slot's length, in another row that is another object's.
    let place = zone.place(s.slot + 13).unwrap();
    let b = (place.row + 1..zone.data_rows())
        .map(|row| zone.at(row, place.col))
        .find(|at| {
            objects
                .iter()
                .any(|(p, x)| *p != a && (p.offset()..p.offset() + x.len() as u64).contains(at))
        })
        .unwrap();
    let sum = s.sum_at(1);
    assert_ne!(zone.place(sum).unwrap().col / 4, place.col / 4);
    flip(&pool, b, 0x08); // 3000 -> 952
    flip(&pool, sum, 0x01);
    let mut before = [0; 16];
    pool.medium().read(s.slot, &mut before).unwrap();
    if by_read {
        // Judged below, with all others.
        let _ = get(&pool, a);
    } else {
        let done =
            pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {}).unwrap();
        assert_eq!((done.lost, done.undecided), (0, 0));
    }
    let mut after = [0; 16];
    pool.medium().read(s.slot, &mut after).unwrap();
    let mut wrong = Vec::new();
    for (p, bytes) in &objects {
        match get(&pool, *p) {
            Ok(found) if found == *bytes => {}
            other => wrong.push(format!("{p}: {:?}", other.map(|b| b.len()))),
        }
    }
    assert_eq!(before, after, "a good slot was overwritten; {wrong:?}");
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_scrub_replaces_no_good_slot_because_it_would_explain_a_bad_granule() {
    one_bad_row_per_column(Parity::P, false);
}

#[test]
fn a_read_replaces_no_good_slot_because_it_would_explain_a_bad_granule() {
    one_bad_row_per_column(Parity::P, true);
}

#[test]
fn nor_does_a_scrub_with_two_parities() {
    one_bad_row_per_column(Parity::PQ, false);
}

/// Whole rows are overwritten: far more than parity covers. One object over them is read.
fn wiped(parity: Parity, rows_hit: u64) {
    let options =
        CreateOptions { parity, rows: 100, events: 32 << 10, ..CreateOptions::tiny(1 << 20) };
    let pool = create_with(MediumKind::Shm, &options);
    pool.set_verify_reads(VerifyReads::Always);
    let mut objects = Vec::new();
    for i in 0..22_u64 {
        let bytes = pattern(i + 1, 28_000);
        objects.push((put(&pool, &bytes), bytes));
    }
    let region = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    let zone = Zone::new(&region, 0).unwrap();
    let first = zone.place(objects[1].0.offset()).unwrap().row;
    let at = zone.at(first + 1, 0);
    let len = rows_hit * zone.row_len();
    let mut b = vec![0; len as usize];
    pool.medium().read(at, &mut b).unwrap();
    b.iter_mut().for_each(|b| *b = !*b);
    pool.medium().stray(at, &b).unwrap();
    let before = pool.medium().calls();
    let (object, bytes) = &objects[1];
    let found = get(&pool, *object);
    let took = pool.medium().calls() - before;
    assert!(found.is_err() || found.unwrap() == *bytes, "{parity:?} {rows_hit} rows");
    assert!(took < PATIENCE, "{parity:?} {rows_hit} rows: {took} calls of the medium");
}

#[test]
fn what_is_lost_far_beyond_parity_is_given_up_soon() {
    for (parity, rows) in [(Parity::P, 4), (Parity::PQ, 4), (Parity::PQ, 8), (Parity::PQ, 16)] {
        wiped(parity, rows);
    }
}
