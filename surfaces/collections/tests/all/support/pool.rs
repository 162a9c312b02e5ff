//! Small pools of the real engine on a medium that keeps its crash images.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_faultmem::{Config, FaultMedium, Image};
use holdfast_object::{CreateOptions, OpenOptions, Pool, VerifyReads};
use holdfast_pmem::{Clock, MediumKind};

use super::Bytes;

pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;
pub(crate) type TestPool = Pool<FaultMedium>;

/// A clock that advances a microsecond whenever it is asked.
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

fn options(verify: VerifyReads) -> OpenOptions {
    OpenOptions { version_bits: 10, verify, ..OpenOptions::default() }
}

pub(crate) fn create(size: u64, verify: VerifyReads) -> TestPool {
    let config = Config { reserve: size, ..Config::default() };
    let medium = FaultMedium::new(size, MediumKind::Shm, &config);
    let create = CreateOptions { chunk: 32_768, frame: 4096, ..CreateOptions::tiny(size) };
    let create = CreateOptions { log: 5 * 32_768, ..create };
    Pool::create(medium, &create, options(verify), clock()).unwrap()
}

/// The pool of an image, recovered.
pub(crate) fn open(image: Image, verify: VerifyReads) -> TestPool {
    let medium = FaultMedium::from_crash(image, MediumKind::Shm, &Config::default());
    Pool::open(medium, options(verify), clock()).unwrap().0
}

/// Everything in the map, which is sound and, but for the anchor, all there is in the pool.
pub(crate) fn content(pool: &TestPool, map: Bytes) -> Model {
    let report = pool.run(|tx| map.check(tx)).unwrap();
    assert_eq!(report.findings, Vec::<String>::new());
    assert_eq!(pool.space().objects, report.objects.len() as u64 + 1, "objects leaked");
    pool.run(|tx| {
        let mut found = Model::new();
        map.for_each(tx, |key, value| {
            found.insert(key.to_vec(), value.to_vec());
            Ok(())
        })?;
        Ok(found)
    })
    .unwrap()
}

/// A key, and the value it has from now on.
pub(crate) type Change = (Vec<u8>, Option<Vec<u8>>);

pub(crate) fn apply(pool: &TestPool, map: Bytes, (key, value): &Change) -> bool {
    let done = pool.run(|tx| match value {
        Some(value) => map.put(tx, key, value),
        None => map.remove(tx, key),
    });
    done.unwrap()
}

pub(crate) fn apply_to_model(model: &mut Model, (key, value): Change) -> bool {
    match value {
        Some(value) => model.insert(key, value).is_some(),
        None => model.remove(&key).is_some(),
    }
}
