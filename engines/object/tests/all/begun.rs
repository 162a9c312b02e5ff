//! A transaction as a value: it commits, aborts, is told to be done again, and never shares a lane.

use crate::common::{create, get, pattern, put};
use holdfast_object::{Begun, Error};
use holdfast_pmem::{Medium, MediumKind};
use holdfast_txn::{Transaction, TxError};

/// Commits; panics if it has to be done again.
fn commit<M: Medium>(begun: Begun<M>) {
    assert!(begun.commit().unwrap().is_none());
}

#[test]
fn what_was_begun_is_committed_or_aborted() {
    let pool = create(MediumKind::Dax);
    let object = put(&pool, &[1; 100]);
    let begun = pool.begin().unwrap();
    begun.step(|tx| tx.write_bytes(object, 0, &[2; 10])).unwrap();
    assert_eq!(begun.look(|tx| tx.len_of(object)).unwrap(), 100);
    assert!(matches!(pool.begin(), Err(Error::Tx(TxError::Cancelled(_)))));
    commit(begun);
    assert_eq!(get(&pool, object).unwrap()[..11], [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]);

    let begun = pool.begin().unwrap();
    begun.step(|tx| tx.write_bytes(object, 0, &[3; 10])).unwrap();
    drop(begun);
    assert_eq!(get(&pool, object).unwrap()[0], 2);
}

#[test]
fn a_change_that_failed_dooms_and_a_look_does_not() {
    let pool = create(MediumKind::Dax);
    let object = put(&pool, &[1; 100]);
    let begun = pool.begin().unwrap();
    let mut beyond = [0; 8];
    begun.look(|tx| tx.read_bytes(object, 96, &mut beyond)).unwrap_err();
    begun.step(|tx| tx.write_bytes(object, 0, &[2; 8])).unwrap();
    begun.step(|tx| tx.write_bytes(object, 96, &[2; 8])).unwrap_err();
    begun.look(|tx| tx.len_of(object)).unwrap_err();
    assert!(matches!(begun.commit(), Err(Error::Tx(TxError::OutOfBounds { .. }))));
    assert_eq!(get(&pool, object).unwrap(), [1; 100]);
    pool.run(|tx| tx.write_bytes(object, 0, &[9])).unwrap();
}

#[test]
fn after_a_conflict_it_starts_over() {
    let pool = create(MediumKind::Dax);
    let object = put(&pool, &[1, 0]);
    let begun = pool.begin().unwrap();
    let mut seen = [0];
    begun.look(|tx| tx.read_bytes(object, 0, &mut seen)).unwrap();
    begun.step(|tx| tx.write_bytes(object, 1, &seen)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| pool.run(|tx| tx.write_bytes(object, 0, &[5])).unwrap());
    });
    let begun = begun.commit().unwrap().expect("somebody came between");
    begun.look(|tx| tx.read_bytes(object, 0, &mut seen)).unwrap();
    begun.step(|tx| tx.write_bytes(object, 1, &seen)).unwrap();
    commit(begun);
    assert_eq!(get(&pool, object).unwrap()[..2], [5, 5]);
    assert_eq!(pool.stats().conflicts, 1);
}

#[test]
fn after_damage_it_is_repaired_and_starts_over() {
    let pool = create(MediumKind::Dax);
    let bytes = pattern(7, 300);
    let object = put(&pool, &bytes);
    pool.medium().stray(object.offset() + 10, &[0xff; 20]).unwrap();
    let begun = pool.begin().unwrap();
    let damaged = begun.step(|tx| tx.write_bytes(object, 0, &[1])).unwrap_err();
    assert!(damaged.is_transient());
    let begun = begun.commit().unwrap().expect("it was repaired");
    begun.step(|tx| tx.write_bytes(object, 0, &[1])).unwrap();
    commit(begun);
    assert_eq!(get(&pool, object).unwrap()[1..], bytes[1..]);
    assert_eq!(pool.stats().repaired, 1);
}

#[test]
fn a_thread_that_ends_with_one_under_way_aborts_it() {
    use std::cell::RefCell;
    thread_local! {
        static LEFT: RefCell<Option<Begun<holdfast_faultmem::FaultMedium>>> =
            const { RefCell::new(None) };
    }
    let pool = create(MediumKind::Dax);
    let object = put(&pool, &[1; 8]);
    // More threads than there are lanes: a lane that is not given back would be missed.
    for early in [false, true].repeat(4) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if early {
                    // Destroyed after the engine's own thread-local, instead of before it.
                    LEFT.with_borrow_mut(|left| *left = None);
                }
                let begun = pool.begin().unwrap();
                begun.step(|tx| tx.write_bytes(object, 0, &[7])).unwrap();
                LEFT.with_borrow_mut(|left| *left = Some(begun));
            });
        });
    }
    assert_eq!(get(&pool, object).unwrap(), [1; 8]);
    pool.run(|tx| tx.write_bytes(object, 0, &[2])).unwrap();
    assert_eq!(get(&pool, object).unwrap()[0], 2);
}

#[test]
fn a_panic_in_a_part_dooms_it() {
    let pool = create(MediumKind::Dax);
    let object = put(&pool, &[1; 8]);
    let begun = pool.begin().unwrap();
    let part = std::panic::AssertUnwindSafe(|| {
        begun.step(|tx| {
            tx.write_bytes(object, 0, &[7])?;
            if tx.len_of(object)? == 8 {
                panic!("in the middle");
            }
            Ok(())
        })
    });
    std::panic::catch_unwind(part).unwrap_err();
    assert!(matches!(begun.commit(), Err(Error::Tx(TxError::Cancelled(_)))));
    assert_eq!(get(&pool, object).unwrap(), [1; 8]);
}

#[test]
fn a_loan_of_raw_bytes_ends_when_it_is_closed() {
    let pool = create(MediumKind::Dax);
    let object = put(&pool, &[1; 64]);
    let begun = pool.begin().unwrap();
    let (first, len) = begun.step(|tx| tx.open_raw(object)).unwrap();
    let mut seen = [0];
    let lent = begun.look(|tx| tx.read_bytes(object, 0, &mut seen)).unwrap_err();
    assert_eq!((len, lent), (64, TxError::AlreadyOpen { object }));
    let (second, _) = begun
        .step(|tx| {
            tx.close_raw(object);
            tx.read_bytes(object, 0, &mut seen)?;
            tx.open_raw(object)
        })
        .unwrap();
    assert_eq!((first, seen), (second, [1]));
    begun
        .step(|tx| {
            tx.close_raw(object);
            tx.free(object)
        })
        .unwrap();
    commit(begun);
    get(&pool, object).unwrap_err();
}

#[test]
fn a_raw_view_shows_an_object_and_holds_off_changes() {
    let pool = create(MediumKind::Dax);
    let bytes = pattern(3, 2500);
    let object = put(&pool, &bytes);
    let view = pool.view_raw(object).unwrap();
    assert_eq!((view.len(), view.is_empty()), (2500, false));
    let begun = pool.begin().unwrap();
    begun.step(|tx| tx.write_bytes(object, 0, &[7])).unwrap();
    let begun = begun.commit().unwrap().expect("the object is borrowed");
    drop(view);
    begun.step(|tx| tx.write_bytes(object, 0, &[7])).unwrap();
    commit(begun);
    pool.run(|tx| tx.free(object)).unwrap();
    assert!(pool.view_raw(object).is_err());
}
