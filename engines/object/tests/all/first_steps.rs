//! The thinnest true path: create, change, read, abort, close, open again, kill, recover.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_faultmem::{Config, FaultMedium};
use holdfast_layout::{Persist, Ptr};
use holdfast_object::{CreateOptions, OpenOptions, Pool};
use holdfast_pmem::{Clock, MediumKind};
use holdfast_txn::{Transaction, TxError};

#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Clock for Counter {
    fn now(&self) -> u64 {
        self.0.fetch_add(1000, Ordering::Relaxed)
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(Counter::default())
}

#[derive(Debug, Clone, Copy, PartialEq, Persist)]
#[repr(C)]
struct Account {
    balance: i64,
    next: Ptr<Account>,
    name: [u8; 40],
}

fn account(balance: i64) -> Account {
    Account { balance, next: Ptr::null(), name: [7; 40] }
}

fn create(kind: MediumKind) -> Pool<FaultMedium> {
    let m = FaultMedium::new(1 << 20, kind, &Config::default());
    Pool::create(m, &CreateOptions::tiny(1 << 20), OpenOptions::default(), clock()).unwrap()
}

fn reopen(m: FaultMedium, kind: MediumKind) -> (Pool<FaultMedium>, holdfast_object::Opened) {
    let image = m.crash_point().persisted();
    drop(m);
    let m = FaultMedium::from_crash(image, kind, &Config::default());
    Pool::open(m, OpenOptions::default(), clock()).unwrap()
}

#[test]
fn objects_are_allocated_changed_read_and_freed() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        let pool = create(kind);
        let a = pool.run(|tx| tx.alloc(account(100))).unwrap();
        pool.run(|tx| {
            tx.set_root(a)?;
            let mut b = tx.open_mut(a)?;
            b.balance += 1;
            assert!(matches!(tx.open_mut(a), Err(TxError::AlreadyOpen { .. })));
            drop(b);
            assert_eq!(tx.read(a)?.balance, 101);
            Ok(())
        })
        .unwrap();
        assert_eq!(pool.read(a).unwrap(), account(101));
        assert_eq!(pool.root::<Account>().unwrap(), a);
        assert_eq!(pool.view(a).unwrap().balance, 101);
        let failed = pool.run(|tx| {
            tx.open_mut(a)?.balance = -1;
            Err::<(), _>(TxError::cancel("no"))
        });
        assert!(failed.is_err());
        assert_eq!(pool.read(a).unwrap().balance, 101);
        pool.run(|tx| tx.free(a.raw())).unwrap();
        assert!(pool.read(a).is_err());
    }
}

#[test]
fn everything_committed_is_there_after_a_crash() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        let pool = create(kind);
        let mut objects = Vec::new();
        for i in 0..200 {
            let p = pool.run(|tx| tx.alloc(account(i))).unwrap();
            objects.push(p);
        }
        for (i, p) in objects.iter().enumerate() {
            if i % 3 == 0 {
                pool.run(|tx| tx.update(*p, |a| a.balance += 1000)).unwrap();
            }
        }
        let image = pool.medium().crash_point().persisted();
        drop(pool);
        let m = FaultMedium::from_crash(image, kind, &Config::default());
        let (pool, opened) = Pool::open(m, OpenOptions::default(), clock()).unwrap();
        assert!(!opened.clean);
        for (i, p) in objects.iter().enumerate() {
            let expected = i as i64 + if i % 3 == 0 { 1000 } else { 0 };
            assert_eq!(pool.read(*p).unwrap().balance, expected, "{kind} {i}");
        }
        let (pool, opened) = {
            let image = pool.medium().crash_point().persisted();
            drop(pool);
            reopen(FaultMedium::from_crash(image, kind, &Config::default()), kind)
        };
        assert_eq!(opened.recovered.replayed, 0);
        assert_eq!(pool.read(objects[3]).unwrap().balance, 1003);
    }
}

#[test]
fn large_objects_and_large_transactions_commit() {
    let m = FaultMedium::new(4 << 20, MediumKind::Shm, &Config::default());
    let pool =
        Pool::create(m, &CreateOptions::tiny(4 << 20), OpenOptions::default(), clock()).unwrap();
    let big = pool
        .run(|tx| {
            let p = tx.alloc_bytes(holdfast_layout::TypeNumber::BYTES, 50_000)?;
            tx.write_bytes(p, 100, &[9; 30_000])?;
            Ok(p)
        })
        .unwrap();
    let all = vec![5; 50_000];
    pool.run(|tx| tx.write_bytes(big, 0, &all)).unwrap();
    let mut found = vec![0; 50_000];
    pool.run(|tx| tx.read_bytes(big, 0, &mut found)).unwrap();
    assert_eq!(found, all);
    pool.run(|tx| tx.write_bytes(big, 4090, &[1; 10])).unwrap();
    pool.run(|tx| tx.read_bytes(big, 4080, &mut found[..30])).unwrap();
    assert_eq!(&found[..10], &[5; 10]);
    assert_eq!(&found[10..20], &[1; 10]);
    pool.run(|tx| tx.free(big)).unwrap();
}
