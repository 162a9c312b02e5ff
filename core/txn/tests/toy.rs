//! The rules every implementor of the traits keeps, shown on the smallest one: written against
//! the traits alone, so that any store can be put in.

use std::cell::Cell;

use holdfast_layout::{Persist, Ptr, RawPtr, TypeNumber};
use holdfast_txn::toy::ToyStore;
use holdfast_txn::{Isolation, Result, Store, Transaction, TxError};

#[derive(Debug, Clone, Copy, PartialEq, Persist)]
#[repr(C)]
struct Account {
    balance: i64,
    next: Ptr<Account>,
}

const BYTES: TypeNumber = TypeNumber::BYTES;

fn run<R>(store: &ToyStore, body: impl FnMut(&<ToyStore as Store>::Tx<'_>) -> Result<R>) -> R {
    store.run(Isolation::Serializable, body).expect("committed")
}

fn fail<R>(
    store: &ToyStore,
    body: impl FnMut(&<ToyStore as Store>::Tx<'_>) -> Result<R>,
) -> TxError {
    store.run(Isolation::Serializable, body).err().expect("aborted")
}

fn account(store: &ToyStore, balance: i64) -> Ptr<Account> {
    run(store, |tx| tx.alloc(Account { balance, next: Ptr::null() }))
}

#[test]
fn committed_changes_are_seen_and_aborted_ones_are_not() {
    let store = ToyStore::new();
    let a = account(&store, 1);
    run(&store, |tx| tx.update(a, |a| a.balance = 2));
    let error = fail(&store, |tx| {
        tx.update(a, |a| a.balance = 3)?;
        tx.alloc(7_u64)?;
        tx.free(a.raw())?;
        Err::<(), _>(TxError::cancel("changed my mind"))
    });
    assert_eq!(error, TxError::Cancelled("changed my mind".to_owned()));
    assert_eq!(run(&store, |tx| tx.read(a)).balance, 2);
    assert_eq!(store.live(), [a.raw().offset()]);
}

#[test]
fn a_transaction_sees_its_own_changes() {
    let store = ToyStore::new();
    run(&store, |tx| {
        let a = tx.alloc(Account { balance: 1, next: Ptr::null() })?;
        tx.open_mut(a)?.balance += 4;
        assert_eq!(tx.read(a)?.balance, 5);
        tx.write_bytes(a.raw(), 0, &6_i64.to_le_bytes())?;
        assert_eq!(tx.read(a)?.balance, 6);
        let mut word = [0; 8];
        tx.read_bytes(a.raw(), 0, &mut word)?;
        assert_eq!(i64::from_le_bytes(word), 6);
        tx.free(a.raw())?;
        assert_eq!(tx.read(a), Err(TxError::Dangling { pointer: a.raw() }));
        Ok(())
    });
    assert!(store.live().is_empty());
}

#[test]
fn an_object_is_open_once() {
    let store = ToyStore::new();
    let (a, b) = (account(&store, 1), account(&store, 2));
    run(&store, |tx| {
        let refused = TxError::AlreadyOpen { object: a.raw() };
        let mut first = tx.open_mut(a)?;
        assert_eq!(tx.open_mut(a).err(), Some(refused.clone()));
        assert_eq!(tx.write_bytes(a.raw(), 0, &[1]), Err(refused.clone()));
        assert_eq!(tx.free(a.raw()), Err(refused));
        // Another object may be open at the same time.
        let mut second = tx.open_mut(b)?;
        core::mem::swap(&mut first.balance, &mut second.balance);
        drop((first, second));
        tx.open_mut(a)?.next = b;
        Ok(())
    });
    assert_eq!(run(&store, |tx| tx.read(a)), Account { balance: 2, next: b });
    assert_eq!(run(&store, |tx| tx.read(b)).balance, 1);
}

#[test]
fn pointers_are_checked_when_followed() {
    let store = ToyStore::new();
    let a = account(&store, 1);
    run(&store, |tx| {
        let wrong = a.raw().typed::<u64>();
        assert_eq!(
            tx.read(wrong),
            Err(TxError::WrongType { object: a.raw(), wanted: u64::TYPE, found: Account::TYPE })
        );
        let old = RawPtr::new(a.raw().offset(), a.raw().generation() + 1);
        assert_eq!(tx.len_of(old), Err(TxError::Dangling { pointer: old }));
        assert_eq!(tx.free(RawPtr::NULL), Err(TxError::Dangling { pointer: RawPtr::NULL }));
        assert_eq!(tx.free(a.raw()), Ok(()));
        assert_eq!(tx.free(a.raw()), Err(TxError::Dangling { pointer: a.raw() }));
        Ok(())
    });
}

#[test]
fn ranges_end_with_their_object() {
    let store = ToyStore::new();
    run(&store, |tx| {
        let object = tx.alloc_bytes(BYTES, 100)?;
        assert_eq!(tx.len_of(object)?, 100);
        let mut buf = [1; 10];
        tx.read_bytes(object, 90, &mut buf)?;
        assert_eq!(buf, [0; 10], "fresh bytes are zero");
        let out = |end| Err(TxError::OutOfBounds { object, end, len: 100 });
        assert_eq!(tx.read_bytes(object, 91, &mut buf), out(101));
        assert_eq!(tx.write_bytes(object, u64::MAX, &buf), out(u64::MAX));
        assert_eq!(tx.write_bytes(object, 100, &[]), Ok(()));
        assert!(matches!(tx.alloc_bytes(BYTES, 1 << 40), Err(TxError::TooLarge { .. })));
        Ok(())
    });
}

#[test]
fn a_conflict_runs_the_closure_again_from_the_old_state() {
    let store = ToyStore::new();
    let a = account(&store, 1);
    let tries = Cell::new(0);
    run(&store, |tx| {
        tries.set(tries.get() + 1);
        tx.update(a, |a| a.balance += 1)?;
        if tries.get() < 3 { Err(TxError::Conflict) } else { Ok(()) }
    });
    assert_eq!((tries.get(), run(&store, |tx| tx.read(a)).balance), (3, 2));
}

#[test]
fn an_inner_run_joins_the_outer_one() {
    let store = ToyStore::new();
    let a = account(&store, 1);
    run(&store, |tx| {
        tx.update(a, |a| a.balance = 10)?;
        run(&store, |inner| inner.update(a, |a| a.balance += 5));
        assert_eq!(tx.read(a)?.balance, 15);
        // An inner run that fails before it changed anything is no harm.
        fail(&store, |_| Err::<(), _>(TxError::cancel("early")));
        Ok(())
    });
    assert_eq!(run(&store, |tx| tx.read(a)).balance, 15);
    // Nothing an inner run did survives the failure of the outer one.
    fail(&store, |_| {
        run(&store, |inner| inner.update(a, |a| a.balance = 99));
        Err::<(), _>(TxError::cancel("outer"))
    });
    assert_eq!(run(&store, |tx| tx.read(a)).balance, 15);
}

#[test]
fn an_inner_run_that_fails_half_way_takes_the_outer_one_along() {
    let store = ToyStore::new();
    let a = account(&store, 1);
    let error = fail(&store, |tx| {
        tx.update(a, |a| a.balance = 10)?;
        let swallowed = store.run(Isolation::default(), |inner| {
            inner.update(a, |a| a.balance = 0)?;
            Err::<(), _>(TxError::cancel("half way"))
        });
        assert_eq!(swallowed, Err(TxError::cancel("half way")));
        Ok(())
    });
    assert_eq!(error, TxError::cancel("half way"));
    assert_eq!(run(&store, |tx| tx.read(a)).balance, 1);
}

/// Something a part does before it fails.
type Half = fn(&<ToyStore as Store>::Tx<'_>, Ptr<Account>) -> Result<()>;

#[test]
fn a_part_that_has_to_be_whole_takes_the_transaction_along_if_it_is_not() {
    let store = ToyStore::new();
    let a = account(&store, 1);
    let half: [Half; 4] = [
        |tx, a| tx.update(a, |a| a.balance = 3),
        |tx, a| tx.write_bytes(a.raw(), 0, &[3]),
        |tx, _| tx.alloc(7_u64).map(drop),
        |tx, a| tx.free(a.raw()),
    ];
    for change in half {
        let error = fail(&store, |tx| {
            let part = tx.whole(|| {
                change(tx, a)?;
                Err::<(), _>(TxError::cancel("half way"))
            });
            assert!(part.is_err());
            Ok(())
        });
        assert_eq!(error, TxError::cancel("half way"));
    }
    let error = fail(&store, |tx| {
        let part = std::panic::AssertUnwindSafe(|| {
            tx.whole(|| -> Result<()> {
                tx.update(a, |a| a.balance = 3)?;
                panic!("half way")
            })
        });
        assert!(std::panic::catch_unwind(part).is_err());
        Ok(())
    });
    assert_eq!(error, TxError::cancel("a part of the transaction panicked"));
    run(&store, |tx| {
        tx.update(a, |a| a.balance = 2)?;
        // Nothing was changed by this one.
        assert!(tx.whole(|| tx.read(Ptr::<Account>::null())).is_err());
        tx.whole(|| tx.update(a, |a| a.balance += 2))
    });
    assert_eq!(run(&store, |tx| tx.read(a)).balance, 4);
}

#[test]
fn two_stores_may_be_in_a_transaction_at_once() {
    let (left, right) = (ToyStore::new(), ToyStore::new());
    let (a, b) = (account(&left, 1), account(&right, 2));
    run(&left, |l| {
        run(&right, |r| {
            let sum = l.read(a)?.balance + r.read(b)?.balance;
            r.update(b, |b| b.balance = sum)
        });
        l.update(a, |a| a.balance = 0)
    });
    assert_eq!(run(&left, |tx| tx.read(a)).balance, 0);
    assert_eq!(run(&right, |tx| tx.read(b)).balance, 3);
}

#[test]
fn a_panic_in_the_closure_aborts() {
    let store = ToyStore::new();
    let a = account(&store, 1);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run(&store, |tx| {
            tx.update(a, |a| a.balance = 0)?;
            let mut open = tx.open_mut(a)?;
            open.balance = -1;
            if open.balance < 0 {
                panic!("found a bug");
            }
            Ok(())
        });
    }));
    assert!(panicked.is_err());
    assert_eq!(run(&store, |tx| tx.read(a)).balance, 1);
}

#[test]
fn threads_take_turns() {
    let store = ToyStore::new();
    let a = account(&store, 0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..250 {
                    run(&store, |tx| tx.update(a, |a| a.balance += 1));
                }
            });
        }
    });
    assert_eq!(run(&store, |tx| tx.read(a)).balance, 1000);
}
