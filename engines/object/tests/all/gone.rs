//! Pointers read before others freed what they lead to: a conflict, and no verdict.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{create, pattern, put};
use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_object::{Error, Tx};
use holdfast_pmem::{Medium, MediumKind};
use holdfast_txn::{Result, Transaction, TxError};

#[test]
fn an_object_that_is_gone_since_its_pointer_was_read_is_a_conflict() {
    // In a place among others, and in chunks of its own, which are free again at once.
    for len in [100, 9000, 40_000] {
        let pool = create(MediumKind::Shm);
        let first = put(&pool, &pattern(3, len));
        let link = pool.run(|tx| tx.alloc(first)).unwrap();
        let times = Cell::new(0);
        let seen = pool
            .run(|tx| {
                times.set(times.get() + 1);
                let object = tx.read(link)?;
                if times.get() == 1 {
                    std::thread::scope(|scope| {
                        let replace = || {
                            pool.run(|tx| {
                                let fresh = tx.alloc_bytes(TypeNumber::BYTES, 8)?;
                                tx.update(link, |link| *link = fresh)?;
                                tx.free(object)
                            })
                        };
                        scope.spawn(replace).join().unwrap()
                    })
                    .unwrap();
                }
                let mut bytes = [7; 8];
                tx.read_start(object, &mut bytes)?;
                Ok(bytes)
            })
            .unwrap();
        assert_eq!((seen, times.get()), ([0; 8], 2), "{len}");
    }
}

/// Everything that can be done with an object, told the pointer of one that is gone.
fn use_it<M: Medium>(tx: &Tx<'_, M>, way: u32, gone: RawPtr) -> Result<()> {
    let mut bytes = [0; 8];
    match way {
        0 => tx.read_bytes(gone, 0, &mut bytes),
        1 => tx.write_bytes(gone, 0, &bytes),
        2 => tx.len_of(gone).map(drop),
        3 => tx.read_start(gone, &mut bytes).map(drop),
        4 => tx.type_of(gone).map(drop),
        5 => tx.open_raw(gone).map(drop),
        6 => tx.read::<[u64; 2]>(gone.typed()).map(drop),
        7 => tx.open_mut::<[u64; 2]>(gone.typed()).map(drop),
        _ => tx.free(gone),
    }
}

#[test]
fn a_place_that_is_this_transactions_since_its_pointer_was_read_is_a_conflict() {
    for (way, len) in (0..9).flat_map(|way| [9_000, 40_000].map(|len| (way, len))) {
        let pool = create(MediumKind::Shm);
        let first = put(&pool, &pattern(3, len));
        let link = pool.run(|tx| tx.alloc(first)).unwrap();
        let times = Cell::new(0);
        let done = pool.run(|tx| {
            times.set(times.get() + 1);
            let object = tx.read(link)?;
            if times.get() == 1 {
                let free = || {
                    pool.run(|tx| {
                        tx.update(link, |link| *link = RawPtr::NULL)?;
                        tx.free(object)
                    })
                };
                std::thread::scope(|scope| scope.spawn(free).join().unwrap()).unwrap();
                // Until one has the place that became free: chunks of its own, which any lane gets.
                while tx.alloc_bytes(TypeNumber::BYTES, len as u64)?.offset() != object.offset() {}
            }
            if object.is_null() { Ok(()) } else { use_it(tx, way, object) }
        });
        assert!(done.is_ok(), "way {way}, length {len}: {done:?}");
        assert_eq!(times.get(), 2, "way {way}, length {len}");
    }
}

#[test]
fn a_pointer_that_dangled_all_along_is_told_as_such_whatever_is_there_now() {
    for way in 0..9 {
        let pool = create(MediumKind::Shm);
        let gone = put(&pool, &pattern(3, 100));
        pool.run(|tx| tx.free(gone)).unwrap();
        let done = pool.run(|tx| {
            while tx.alloc_bytes(TypeNumber::BYTES, 100)?.offset() != gone.offset() {}
            use_it(tx, way, gone)
        });
        let Err(Error::Tx(TxError::Dangling { pointer })) = done else { panic!("{way}: {done:?}") };
        assert_eq!(pointer, gone, "way {way}");
    }
}

/// A place that a check has listed may be another's before it is looked at: no finding.
#[test]
fn a_check_finds_nothing_where_chunks_change_hands() {
    let pool = create(MediumKind::Shm);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (pool, over) = (&pool, &over);
            scope.spawn(move || {
                // Chunks of their own, one, two or more; and runs, which become empty again.
                for turn in (thread..).take_while(|_| !over.load(Ordering::Relaxed)) {
                    let len = [9_000, 100, 30_000, 2_000, 17_000][turn % 5];
                    let made: Vec<_> =
                        (0..4).map(|n| put(pool, &pattern((turn + n) as u64, len))).collect();
                    made.into_iter().for_each(|made| pool.run(|tx| tx.free(made)).unwrap());
                }
            });
        }
        let mut found = Vec::new();
        for _ in 0..300 {
            found.extend(pool.check(|_, _| {}).unwrap().findings);
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(found, []);
    });
}
