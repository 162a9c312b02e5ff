//! Pools to measure on, and objects in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_object::{CreateOptions, OpenOptions, Opened, Pool};
use holdfast_pmem::{Access, Mapped, Medium, SystemClock};
use holdfast_txn::Transaction;

/// A pool on the real medium, removed when dropped.
pub(crate) struct Rig {
    pub(crate) pool: Option<Pool<Mapped>>,
    path: PathBuf,
    open: OpenOptions,
}

impl Rig {
    /// Makes a pool.
    pub(crate) fn new(
        dir: &Path,
        create: &CreateOptions,
        open: OpenOptions,
    ) -> anyhow::Result<Self> {
        Self::named(dir, "bench", create, open)
    }

    /// Makes a pool beside others; no two of one folder may have the same name.
    pub(crate) fn named(
        dir: &Path,
        name: &str,
        create: &CreateOptions,
        open: OpenOptions,
    ) -> anyhow::Result<Self> {
        let path = dir.join(format!("holdfast-{name}-{}.pool", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let m = Mapped::create(&path, create.size, &holdfast_pmem::Options::default())?;
        let pool = Pool::create(m, create, open, Arc::new(SystemClock::new()))?;
        Ok(Self { pool: Some(pool), path, open })
    }

    /// The pool.
    pub(crate) fn pool(&self) -> &Pool<Mapped> {
        self.pool.as_ref().expect("a rig has a pool but while it is reopened")
    }

    /// Opens the pool again; how long that took, in milliseconds. `clean` closes it first;
    /// otherwise it is left as a kill would leave it.
    pub(crate) fn reopen(&mut self, clean: bool) -> anyhow::Result<(f64, Opened)> {
        let copy = self.path.with_extension("copy");
        if !clean {
            std::fs::copy(&self.path, &copy)?;
        }
        self.pool = None;
        if !clean {
            std::fs::rename(&copy, &self.path)?;
        }
        self.open()
    }

    /// Closes the pool, does `work` to its file and opens it again.
    pub(crate) fn at_rest(
        &mut self,
        work: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.pool = None;
        work(&self.path)?;
        self.open().map(drop)
    }

    fn open(&mut self) -> anyhow::Result<(f64, Opened)> {
        let start = Instant::now();
        let m = Mapped::open(&self.path, Access::Write, &holdfast_pmem::Options::default())?;
        let (pool, opened) = Pool::open(m, self.open, Arc::new(SystemClock::new()))?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        self.pool = Some(pool);
        Ok((ms, opened))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.pool = None;
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Allocates `count` objects of `len` bytes, several a transaction.
pub(crate) fn fill<M: Medium>(
    pool: &Pool<M>,
    count: usize,
    len: u64,
) -> anyhow::Result<Vec<RawPtr>> {
    let mut objects = Vec::with_capacity(count);
    let each = (16_384 / len).clamp(1, 32) as usize;
    while objects.len() < count {
        let n = each.min(count - objects.len());
        let mut batch = Vec::with_capacity(n);
        pool.run(|tx| {
            batch.clear();
            for _ in 0..n {
                batch.push(tx.alloc_bytes(TypeNumber::BYTES, len)?);
            }
            Ok(())
        })?;
        objects.extend(&batch);
    }
    Ok(objects)
}
