//! Parts of an object written first, and the whole of it opened after, in one transaction.

use crate::common::{TestPool, crash, create, get, pattern, put};
use holdfast_layout::{Persist, Ptr, RawPtr};
use holdfast_pmem::MediumKind;
use holdfast_txn::{Transaction, TxError};

const LEN: usize = 3000;

#[derive(Debug, Clone, Copy, PartialEq, Persist)]
#[repr(C)]
struct Long {
    bytes: [u8; LEN],
}

/// Ranges in different granules: the first, the last, one in between, two, and over a border.
const RANGES: [&[(usize, usize)]; 6] = [
    &[(10, 100)],
    &[(2100, 900)],
    &[(1024, 1024)],
    &[(2999, 1), (0, 1)],
    &[(1000, 100)],
    &[(0, 5), (1030, 5), (2050, 5)],
];

/// Writes the ranges, and what the object is to be then into `model`.
fn write<T: Transaction>(tx: &T, of: RawPtr, ranges: &[(usize, usize)], model: &mut [u8]) {
    for (from, len) in ranges {
        let bytes = pattern(*from as u64, *len);
        tx.write_bytes(of, *from as u64, &bytes).unwrap();
        model[*from..from + len].copy_from_slice(&bytes);
    }
}

fn long(pool: &TestPool) -> (Ptr<Long>, Vec<u8>) {
    let bytes = pattern(99, LEN);
    let value = Long { bytes: bytes.as_slice().try_into().unwrap() };
    (pool.run(|tx| tx.alloc(value)).unwrap(), bytes)
}

#[test]
fn what_was_written_to_parts_is_in_the_whole_and_both_are_committed() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        let pool = create(kind);
        // Few objects are searched one by one, many through an index.
        let others: Vec<RawPtr> = (0..12).map(|seed| put(&pool, &pattern(seed, 64))).collect();
        for many in [0, 7, 12] {
            for ranges in RANGES {
                let (object, mut model) = long(&pool);
                let old = model.clone();
                pool.run(|tx| {
                    model.copy_from_slice(&old);
                    write(tx, object.raw(), ranges, &mut model);
                    for other in &others[..many] {
                        tx.write_bytes(*other, 0, &[1])?;
                    }
                    let mut whole = tx.open_mut(object)?;
                    assert_eq!(whole.bytes[..], model[..]);
                    (whole.bytes[500], model[500]) = (1, 1);
                    assert!(matches!(tx.open_mut(object), Err(TxError::AlreadyOpen { .. })));
                    let refused = tx.write_bytes(object.raw(), 2000, &[2]);
                    assert!(matches!(refused, Err(TxError::AlreadyOpen { .. })));
                    drop(whole);
                    tx.write_bytes(object.raw(), 2000, &[2])?;
                    model[2000] = 2;
                    assert_eq!(tx.read(object)?.bytes[..], model[..]);
                    Ok(())
                })
                .unwrap();
                assert_eq!(get(&pool, object.raw()).unwrap(), model);
                assert_eq!(pool.check(|_, _| {}).unwrap().found, 0);
                pool.run(|tx| tx.free(object.raw())).unwrap();
            }
        }
        let (object, mut model) = long(&pool);
        pool.run(|tx| {
            write(tx, object.raw(), RANGES[5], &mut model);
            tx.open_mut(object)?.bytes[7] = 7;
            Ok(())
        })
        .unwrap();
        model[7] = 7;
        let (pool, _) = crash(pool);
        assert_eq!(get(&pool, object.raw()).unwrap(), model);
    }
}

#[test]
fn raw_copies_have_what_was_written_too() {
    let pool = create(MediumKind::Shm);
    for ranges in RANGES {
        let (object, mut model) = long(&pool);
        pool.run(|tx| {
            write(tx, object.raw(), ranges, &mut model);
            let (at, len) = tx.open_raw(object.raw())?;
            assert_eq!(len as usize, LEN);
            // SAFETY: the copy is lent with this length until the closure returns.
            let copy = unsafe { core::slice::from_raw_parts_mut(at, LEN) };
            assert_eq!(copy, model);
            copy[1500] = 9;
            Ok(())
        })
        .unwrap();
        model[1500] = 9;
        assert_eq!(get(&pool, object.raw()).unwrap(), model);
    }
}

#[test]
fn it_is_freed_once_and_given_up_whole() {
    let pool = create(MediumKind::Shm);
    let (object, model) = long(&pool);
    let live = pool.space().objects;
    let gone = pool.run(|tx| {
        write(tx, object.raw(), RANGES[3], &mut model.clone());
        tx.open_mut(object)?.bytes[7] = 7;
        tx.free(object.raw())?;
        assert!(matches!(tx.open_mut(object), Err(TxError::Dangling { .. })));
        Err::<(), _>(TxError::cancel("not yet"))
    });
    gone.unwrap_err();
    assert_eq!(get(&pool, object.raw()).unwrap(), model);
    pool.run(|tx| {
        write(tx, object.raw(), RANGES[3], &mut model.clone());
        tx.open_mut(object)?.bytes[7] = 7;
        tx.free(object.raw())
    })
    .unwrap();
    assert!(get(&pool, object.raw()).is_err());
    assert_eq!(pool.space().objects, live - 1);
    assert_eq!(pool.check(|_, _| {}).unwrap().found, 0);
}
