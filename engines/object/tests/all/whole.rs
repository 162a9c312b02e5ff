//! Errors that a closure may go on after: a part that failed half way takes the transaction with
//! it.

use crate::common::{TestPool, create, get, pattern, put};
use holdfast_faultmem::FaultMedium;
use holdfast_layout::RawPtr;
use holdfast_object::{Error, Tx};
use holdfast_pmem::MediumKind;
use holdfast_txn::{Result, Transaction, TxError};

/// Something a part does before it fails.
type Half = fn(&Tx<'_, FaultMedium>, RawPtr) -> Result<()>;

const HALVES: [(&str, Half); 4] = [
    ("written", |tx, object| tx.write_bytes(object, 0, &[9])),
    ("opened as it is", |tx, object| tx.open_raw(object).map(|_| tx.close_raw(object))),
    ("freed", |tx, object| tx.free(object)),
    ("allocated", |tx, _| tx.alloc(5_u64).map(drop)),
];

fn half_way() -> TxError {
    TxError::cancel("half way")
}

/// Runs a part within a transaction that goes on whatever becomes of it, `before` after another
/// change of the same object.
fn outer(
    pool: &TestPool,
    object: RawPtr,
    before: bool,
    part: impl Fn(&Tx<'_, FaultMedium>) -> bool,
) -> std::result::Result<(), Error> {
    pool.run(|tx| {
        if before {
            tx.write_bytes(object, 1, &[8])?;
        }
        assert!(part(tx), "the part fails");
        Ok(())
    })
}

#[test]
fn a_part_that_failed_half_way_takes_the_transaction_along() {
    let pool = create(MediumKind::Shm);
    let bytes = pattern(3, 100);
    let object = put(&pool, &bytes);
    for (what, half) in HALVES {
        for before in [false, true] {
            let nested = |_: &Tx<'_, FaultMedium>| {
                let inner: std::result::Result<(), Error> = pool.run(|tx| {
                    half(tx, object)?;
                    Err(half_way())
                });
                inner.is_err()
            };
            let whole = |tx: &Tx<'_, FaultMedium>| {
                let part: Result<()> = tx.whole(|| {
                    half(tx, object)?;
                    Err(half_way())
                });
                part.is_err()
            };
            for answer in
                [outer(&pool, object, before, nested), outer(&pool, object, before, whole)]
            {
                let refused = matches!(&answer, Err(Error::Tx(error)) if *error == half_way());
                assert!(refused, "{what}, changed before: {before}: {answer:?}");
                assert_eq!(get(&pool, object).unwrap(), bytes, "{what}");
            }
        }
    }
}

#[test]
fn a_part_that_panicked_half_way_takes_the_transaction_along_though_the_panic_is_caught() {
    let pool = create(MediumKind::Shm);
    let bytes = pattern(3, 100);
    let object = put(&pool, &bytes);
    let caught =
        |part: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(part)).is_err();
    for (what, half) in HALVES {
        for before in [false, true] {
            let nested = |_: &Tx<'_, FaultMedium>| {
                caught(&|| {
                    let _ = pool.run(|tx| -> Result<()> {
                        half(tx, object)?;
                        panic!("half way")
                    });
                })
            };
            let whole = |tx: &Tx<'_, FaultMedium>| {
                caught(&|| {
                    let _ = tx.whole(|| -> Result<()> {
                        half(tx, object)?;
                        panic!("half way")
                    });
                })
            };
            for answer in
                [outer(&pool, object, before, nested), outer(&pool, object, before, whole)]
            {
                let told = answer.unwrap_err().to_string();
                assert!(told.contains("a part of the transaction panicked"), "{what}: {told}");
                assert_eq!(get(&pool, object).unwrap(), bytes, "{what}");
            }
        }
    }
    // One that panics before it changed anything is its closure's own matter.
    let early = pool.run(|tx| {
        tx.write_bytes(object, 0, &[7])?;
        assert!(caught(&|| drop(tx.whole(|| -> Result<()> { panic!("early") }))));
        Ok(())
    });
    early.unwrap();
    assert_eq!(get(&pool, object).unwrap()[0], 7);
}

#[test]
fn a_part_that_failed_before_it_changed_anything_does_not() {
    let pool = create(MediumKind::Shm);
    let object = put(&pool, &pattern(3, 100));
    outer(&pool, object, true, |tx| tx.whole(|| tx.write_bytes(object, 90, &[1; 20])).is_err())
        .unwrap();
    assert_eq!(get(&pool, object).unwrap()[1], 8);
}
