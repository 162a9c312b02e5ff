//! What the engine's tests share: a clock that counts, and pools on the faulty medium.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod tapped;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use holdfast_faultmem::{Config, FaultMedium, Image};
use holdfast_layout::{Ptr, RawPtr, RegionKind, TypeNumber};
use holdfast_object::{CreateOptions, OpenOptions, Opened, Pool, VerifyReads};
use holdfast_pmem::{Clock, MediumKind};
use holdfast_redundancy::Zone;
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
    drop(pool);
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

/// A pool with many objects of one length, whose reads are verified.
pub(crate) struct Filled {
    pub(crate) pool: TestPool,
    pub(crate) objects: Vec<(RawPtr, Vec<u8>)>,
    pub(crate) zone: Zone,
    pub(crate) len: u64,
}

/// Two hundred objects of `len` bytes.
pub(crate) fn filled(options: &CreateOptions, len: u64) -> Filled {
    let pool = create_with(MediumKind::Shm, options);
    pool.set_verify_reads(VerifyReads::Always);
    let bytes = (1..=200).map(|seed| pattern(seed, len as usize));
    let objects = bytes.map(|bytes| (put(&pool, &bytes), bytes)).collect();
    let region = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    Filled { pool, objects, zone: Zone::new(&region, 0).unwrap(), len }
}

impl Filled {
    /// An object with `len` bytes from a place on.
    fn holds(&self, at: u64, len: u64) -> Option<usize> {
        let is_there = |p: &RawPtr| p.offset() <= at && at + len <= p.offset() + self.len;
        self.objects.iter().position(|(p, _)| is_there(p))
    }

    /// Another object with `len` bytes over a column, and where they are.
    pub(crate) fn beside(&self, row: u32, col: u64, len: u64) -> Option<(usize, u64)> {
        let rows = (0..self.zone.data_rows()).filter(|other| *other != row);
        let mut places = rows.map(|row| self.zone.at(row, col));
        places.find_map(|at| Some((self.holds(at, len)?, at)))
    }

    /// An object, and another one with 16 bytes over the column of the byte `inside` of the first.
    pub(crate) fn pair(&self, inside: u64) -> (usize, usize, u64) {
        let found = (0..self.objects.len()).find_map(|one| {
            let place = self.zone.place(self.objects[one].0.offset() + inside)?;
            let (other, at) = self.beside(place.row, place.col, 16)?;
            Some((one, other, at))
        });
        found.expect("two objects over one column")
    }
}

pub(crate) fn raw<T>(p: Ptr<T>) -> RawPtr {
    p.raw()
}
