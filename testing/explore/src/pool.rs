//! Pools: any closure over transactions, explored.

use core::fmt;
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use holdfast_faultmem::FailMode;
use holdfast_object::{CreateOptions, OpenOptions, Pool, VerifyReads};
use holdfast_pmem::{Clock, MediumKind};

use crate::explorer::Explorer;
use crate::ledger::{Model, Seen};
use crate::mapping::Shared;
use crate::verdict::Verdict;

/// A clock that advances a microsecond whenever it is asked: runs repeat.
#[derive(Debug, Default)]
struct Ticks(AtomicU64);

impl Clock for Ticks {
    fn now(&self) -> u64 {
        self.0.fetch_add(1_000, Ordering::Relaxed)
    }
}

/// A pool that dies with its medium instead of being closed.
pub struct PoolInUse {
    pool: Option<Pool<Shared>>,
    medium: Shared,
}

impl PoolInUse {
    fn open(medium: Shared) -> Verdict<Self> {
        let (pool, _) = Pool::open(Arc::clone(&medium), open_options(), clock())?;
        Ok(Self { pool: Some(pool), medium })
    }
}

impl Deref for PoolInUse {
    type Target = Pool<Shared>;

    fn deref(&self) -> &Pool<Shared> {
        match &self.pool {
            Some(pool) => pool,
            None => unreachable!("the pool is taken by drop alone"),
        }
    }
}

impl Drop for PoolInUse {
    fn drop(&mut self) {
        // A killed process closes nothing.
        self.medium.fail_nth(self.medium.calls() + 1, FailMode::Forever);
        self.pool = None;
    }
}

impl fmt::Debug for PoolInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolInUse").field("medium", &self.medium).finish_non_exhaustive()
    }
}

/// An explorer of a pool on a medium of `kind`: [`CreateOptions::tiny`] of some 81 pages is quick.
///
/// `setup` makes what the operations work on and the pool is closed after it. Opening a pool is its
/// recovery. Reads verify always, so that `check` never sees damage. What a pool that is made, or
/// closed, leaves in a crash is not explored.
#[must_use]
pub fn pool<A: Model + Default>(
    name: &str,
    options: &CreateOptions,
    kind: MediumKind,
    setup: impl Fn(&Pool<Shared>) -> Verdict + Send + Sync + 'static,
    check: impl Fn(&Pool<Shared>, &Seen<A>) -> Verdict + Send + Sync + 'static,
) -> Explorer<PoolInUse, A> {
    let options = options.clone();
    let check = move |pool: &mut PoolInUse, seen: &Seen<A>| check(pool, seen);
    Explorer::new(name, options.size, kind, PoolInUse::open, check).setup(move |medium| {
        let pool = Pool::create(medium, &options, open_options(), clock())?;
        setup(&pool)
    })
}

fn open_options() -> OpenOptions {
    OpenOptions { verify: VerifyReads::Always, version_bits: 13, ..OpenOptions::default() }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(Ticks::default())
}
