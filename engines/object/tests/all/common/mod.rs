//! What the engine's tests share: a clock that counts, and pools on the faulty medium.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use holdfast_faultmem::{Config, FaultMedium, Image};
use holdfast_layout::{Ptr, RawPtr, TypeNumber};
use holdfast_object::{CreateOptions, OpenOptions, Opened, Pool};
use holdfast_pmem::{Clock, MediumKind};
use holdfast_txn::Transaction;

/// A clock that advances a microsecond whenever it is asked.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Clock for Counter {
    fn now(&self) -> u64 {
        self.0.fetch_add(1000, Ordering::Relaxed)
    }
}

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(Counter::default())
}

/// A small table of versions: most pools of these tests are opened, looked at and dropped.
pub(crate) fn quick() -> OpenOptions {
    OpenOptions { version_bits: 8, ..OpenOptions::default() }
}

pub(crate) type TestPool = Pool<FaultMedium>;

pub(crate) fn create_with(kind: MediumKind, options: &CreateOptions) -> TestPool {
    let m = FaultMedium::new(options.size, kind, &Config { reserve: 4 << 20, ..Config::default() });
    Pool::create(m, options, quick(), clock()).unwrap()
}

pub(crate) fn create(kind: MediumKind) -> TestPool {
    create_with(kind, &CreateOptions::tiny(1 << 20))
}

/// What a power cut right now leaves if nothing in doubt arrives, opened again.
pub(crate) fn crash(pool: TestPool) -> (TestPool, Opened) {
    let image = pool.medium().crash_point().persisted();
    let kind = holdfast_pmem::Medium::kind(pool.medium());
    core::mem::forget(pool);
    let m = FaultMedium::from_crash(image, kind, &Config::default());
    Pool::open(m, quick(), clock()).unwrap()
}

/// Closes the pool, so that no record of anything is left; what there is then.
pub(crate) fn closed(pool: TestPool) -> Image {
    let last = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&last);
    pool.medium().on_barrier(Box::new(move |_, _, point| {
        *keep.lock().unwrap() = Some(point.newest());
    }));
    drop(pool);
    last.lock().unwrap().take().unwrap()
}

/// Closes the pool, so that no record of anything is left, and opens it again.
pub(crate) fn reopened(pool: TestPool) -> TestPool {
    let kind = holdfast_pmem::Medium::kind(pool.medium());
    let m = FaultMedium::from_crash(closed(pool), kind, &Config::default());
    Pool::open(m, quick(), clock()).unwrap().0
}

/// Bytes that depend on a number.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .collect()
}

/// Allocates an object of bytes.
pub(crate) fn put(pool: &TestPool, bytes: &[u8]) -> RawPtr {
    pool.run(|tx| tx.alloc_from(TypeNumber::BYTES, bytes)).unwrap()
}

/// Reads an object of bytes.
pub(crate) fn get(pool: &TestPool, of: RawPtr) -> Result<Vec<u8>, holdfast_object::Error> {
    pool.run(|tx| {
        let mut bytes = vec![0; tx.len_of(of)? as usize];
        tx.read_bytes(of, 0, &mut bytes)?;
        Ok(bytes)
    })
}

pub(crate) fn raw<T>(p: Ptr<T>) -> RawPtr {
    p.raw()
}
