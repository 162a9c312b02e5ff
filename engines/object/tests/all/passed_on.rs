//! Damage that nobody met, since nothing lay there, is passed on to parity by who stores over it.
//! With P and Q that is one of two damages that a column survives.

use crate::common::{TestPool, create_with, get, pattern, put};
use holdfast_layout::{RawPtr, RegionKind};
use holdfast_object::{CreateOptions, Parity, ScrubControl, ScrubOptions, VerifyReads};
use holdfast_pmem::MediumKind;
use holdfast_redundancy::Zone;
use holdfast_txn::Transaction;

const LEN: u64 = 700;

#[test]
fn a_row_that_was_stored_over_while_damaged_costs_no_other_row_of_its_column() {
    let options = CreateOptions { parity: Parity::PQ, rows: 40, ..CreateOptions::tiny(1 << 20) };
    let pool = create_with(MediumKind::Shm, &options);
    pool.set_verify_reads(VerifyReads::Always);
    let bytes = (1..=200).map(|seed| pattern(seed, LEN as usize));
    let objects: Vec<(RawPtr, Vec<u8>)> = bytes.map(|bytes| (put(&pool, &bytes), bytes)).collect();
    let region = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    let zone = Zone::new(&region, 0).unwrap();
    // An object whose place another one gets, and one over the same column.
    let holds =
        |at: u64| objects.iter().find(|(p, _)| (p.offset()..p.offset() + LEN - 16).contains(&at));
    let mut pairs = objects.iter().filter_map(|(p, _)| {
        let place = zone.place(p.offset() + 8).unwrap();
        let others = (0..zone.data_rows()).filter(|row| *row != place.row);
        let found = others.map(|row| zone.at(row, place.col)).find_map(|at| Some((holds(at)?, at)));
        found.map(|((_, bytes), at)| (*p, bytes, at))
    });
    let (gone, bytes, at) = pairs.next().expect("two objects over one column");
    let (other, _) = holds(at).unwrap();
    pool.run(|tx| tx.free(gone)).unwrap();
    pool.medium().stray(gone.offset() + 8, &[0xa5; 16]).unwrap();
    let fresh = put(&pool, &pattern(300, LEN as usize));
    assert_eq!(fresh.offset(), gone.offset(), "the place is taken again");
    pool.medium().stray(at, &[0x5a; 16]).unwrap();
    assert!(get(&pool, *other).is_ok_and(|found| found == *bytes), "{other}");
    assert!(get(&pool, fresh).is_ok_and(|found| found == pattern(300, LEN as usize)));
    // Parity is of what is there again: one more damage in each row is made good.
    scrub(&pool);
    assert!(pool.check(|_, _| {}).unwrap().is_clean());
    pool.medium().stray(fresh.offset() + 8, &[0x11; 16]).unwrap();
    pool.medium().stray(at, &[0x22; 16]).unwrap();
    assert!(get(&pool, *other).is_ok_and(|found| found == *bytes));
    assert!(get(&pool, fresh).is_ok_and(|found| found == pattern(300, LEN as usize)));
}

fn scrub(pool: &TestPool) {
    let control = ScrubControl::default();
    let done = pool.scrub(ScrubOptions::default(), &control, |_, _| {}).unwrap();
    assert_eq!((done.lost, done.undecided), (0, 0), "{:?}", done.report.findings);
}
