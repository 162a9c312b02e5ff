//! A pool that grows while others wait for room.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_object::{Error, ScrubControl, ScrubOptions};
use holdfast_pmem::MediumKind;
use holdfast_txn::{Transaction as _, TxError};

use crate::common::{TestPool, create, get, pattern};

/// Bytes of an object that takes a whole chunk.
const WHOLE: usize = 7_000;

fn make(pool: &TestPool) -> Result<RawPtr, Error> {
    pool.run(|tx| tx.alloc_from(TypeNumber::BYTES, &pattern(9, WHOLE)))
}

fn is_full(made: &Result<RawPtr, Error>) -> bool {
    matches!(made, Err(Error::Tx(TxError::NoSpace { .. })))
}

#[test]
fn no_place_can_be_taken_in_a_zone_before_its_columns_are_known() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        let pool = Arc::new(create(kind));
        while make(&pool).is_ok() {}
        assert!(is_full(&make(&pool)), "{kind}: no chunk is left");
        let (tried, asked) = (Arc::new(AtomicU64::new(0)), Arc::new(OnceLock::new()));
        let (count, weak, answer) =
            (Arc::clone(&tried), Weak::clone(&Arc::downgrade(&pool)), Arc::clone(&asked));
        pool.medium().on_step(Box::new(move |site| {
            if site.name() == "object.grow.step-known"
                && let Some(pool) = weak.upgrade()
            {
                count.fetch_add(1, Ordering::Relaxed);
                let made = std::thread::spawn(move || make(&pool)).join();
                let _ = answer.set(made.map(|made| is_full(&made)).ok());
            }
        }));
        pool.grow(2 << 20).unwrap();
        pool.medium().clear_on_step();
        let asked = (tried.load(Ordering::Relaxed), asked.get().copied().flatten());
        assert_eq!(asked, (1, Some(true)), "{kind}: there is no room yet, or nobody asked");
        let made = make(&pool).unwrap();
        // What is in parity comes back from it.
        let page = made.offset() / 4096 * 4096 + 4096;
        pool.medium().poison(page, 4096, holdfast_faultmem::Clear::Able).unwrap();
        let done =
            pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {}).unwrap();
        assert_eq!((done.lost, done.undecided), (0, 0), "{kind}: {done:?}");
        assert_eq!(get(&pool, made).unwrap(), pattern(9, WHOLE), "{kind}");
        assert!(pool.check(|_, _| {}).unwrap().is_clean(), "{kind}");
    }
}
