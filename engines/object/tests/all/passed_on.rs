//! Damage that nobody met, since nothing lay there, is passed on to parity by who stores over it.
//! With P and Q that is one of two damages that a column survives.

use crate::common::{Filled, TestPool, filled, get, pattern, put};
use holdfast_object::{CreateOptions, Parity, ScrubControl, ScrubOptions};
use holdfast_txn::Transaction;

const LEN: u64 = 700;

#[test]
fn a_row_that_was_stored_over_while_damaged_costs_no_other_row_of_its_column() {
    let options = CreateOptions { parity: Parity::PQ, rows: 40, ..CreateOptions::tiny(1 << 20) };
    let f = filled(&options, LEN);
    // An object whose place another one gets, and one over the same column.
    let (gone, other, at) = f.pair(8);
    let Filled { pool, objects, .. } = f;
    let (gone, (other, bytes)) = (objects[gone].0, &objects[other]);
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
