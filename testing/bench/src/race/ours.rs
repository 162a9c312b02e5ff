//! Our side: pools with tables of pointers, as the other side has them.

use std::path::Path;

use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_object::{CreateOptions, OpenOptions, Pool};
use holdfast_pmem::Mapped;
use holdfast_txn::Transaction;

use super::Worker;
use crate::rig::{Rig, fill};

/// A pool and its tables.
pub(crate) struct Ours {
    rig: Rig,
    tables: Vec<(RawPtr, Vec<RawPtr>)>,
}

impl Ours {
    /// Makes a pool.
    pub(crate) fn create(dir: &Path, name: &str, options: &CreateOptions) -> anyhow::Result<Self> {
        let rig = Rig::named(dir, name, options, OpenOptions::default())?;
        Ok(Self { rig, tables: Vec::new() })
    }

    /// Makes a table of `count` slots; with objects of `len` bytes if it is to be `filled`.
    pub(crate) fn table(&mut self, count: u64, len: u64, filled: bool) -> anyhow::Result<()> {
        let pool = self.rig.pool();
        let table = pool.run(|tx| tx.alloc_bytes(TypeNumber::BYTES, count * 8))?;
        let handles = if filled {
            fill(pool, count as usize, len)?
        } else {
            vec![RawPtr::NULL; count as usize]
        };
        self.tables.push((table, handles));
        Ok(())
    }

    /// Every table, each for a thread of its own.
    pub(crate) fn tables(&mut self) -> Vec<Table<'_>> {
        let pool = self.rig.pool();
        let tables = self.tables.iter_mut();
        tables
            .map(|(table, handles)| Table { pool, table: *table, handles, line: Vec::new() })
            .collect()
    }
}

/// One table of a pool.
pub(crate) struct Table<'p> {
    pool: &'p Pool<Mapped>,
    table: RawPtr,
    handles: &'p mut Vec<RawPtr>,
    /// Handles of the objects overwritten next.
    line: Vec<RawPtr>,
}

impl Worker for Table<'_> {
    fn alloc(&mut self, slot: u64, bytes: &[u8]) -> anyhow::Result<()> {
        self.handles[slot as usize] = self.pool.run(|tx| {
            let object = tx.alloc_from(TypeNumber::BYTES, bytes)?;
            tx.write_bytes(self.table, slot * 8, &object.word().to_le_bytes())?;
            Ok(object)
        })?;
        Ok(())
    }

    fn line_up(&mut self, slots: &[u64]) -> anyhow::Result<()> {
        self.line.clear();
        self.line.extend(slots.iter().map(|slot| self.handles[*slot as usize]));
        Ok(())
    }

    fn overwrite(&mut self, place: usize, bytes: &[u8]) -> anyhow::Result<()> {
        let object = self.line[place];
        Ok(self.pool.run(|tx| tx.write_bytes(object, 0, bytes))?)
    }

    fn free(&mut self, slot: u64) -> anyhow::Result<()> {
        let object = self.handles[slot as usize];
        self.pool.run(|tx| {
            tx.write_bytes(self.table, slot * 8, &[0; 8])?;
            tx.free(object)
        })?;
        self.handles[slot as usize] = RawPtr::NULL;
        Ok(())
    }
}
