//! Views: how many there can be of an object and its neighbours, and what is said to the next one.

use crate::common::{clock, pattern, put};
use holdfast_faultmem::{Config, FaultMedium};
use holdfast_layout::Persist;
use holdfast_object::{CreateOptions, Error, OpenOptions, Pool};
use holdfast_pmem::MediumKind;
use holdfast_txn::{Transaction, TxError};

#[derive(Debug, Clone, Copy, Persist)]
#[repr(C)]
struct Word {
    value: u64,
}

fn refused<T>(answer: Result<T, Error>) -> bool {
    matches!(answer, Err(Error::Tx(TxError::TooManyViews { .. })))
}

#[test]
fn one_view_too_many_is_refused_and_there_is_room_again_when_one_ends() {
    let m = FaultMedium::new(1 << 20, MediumKind::Shm, &Config::default());
    let few = OpenOptions { version_bits: 4, ..OpenOptions::default() };
    let pool = Pool::create(m, &CreateOptions::tiny(1 << 20), few, clock()).unwrap();
    let typed = pool.run(|tx| tx.alloc(Word { value: 7 })).unwrap();
    let others: Vec<_> = (0..64).map(|seed| put(&pool, &pattern(seed, 64))).collect();
    let mut views: Vec<_> = (0..127).map(|_| pool.view(typed).unwrap()).collect();
    assert!(refused(pool.view(typed)));
    assert!(refused(pool.view_raw(typed.raw())));
    // Every one of so few words is that of some of these: their views count together.
    let (shared, apart): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|other| refused(pool.view_raw(*other)));
    assert!(!shared.is_empty() && !apart.is_empty());

    views.pop();
    let last = pool.view_raw(shared[0]).unwrap();
    assert!(refused(pool.view(typed)));
    drop((views, last));
    assert_eq!(pool.view(typed).unwrap().value, 7);
    // Nothing is pinned any more: a commit gets through.
    pool.run(|tx| tx.update(typed, |word| word.value = 8)).unwrap();
    assert_eq!(pool.view(typed).unwrap().value, 8);
}
