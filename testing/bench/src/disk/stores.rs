//! The stores of the comparison on a disk, behind one interface.

use std::path::Path;
use std::sync::Mutex;

use holdfast_collections::{Kind, Map};
use holdfast_object::{CreateOptions, OpenOptions, Pool};
use holdfast_pmem::{Mapped, Medium, MediumKind};
use redb::{Database, TableDefinition};

use crate::foreign::{lmdb, sqlite};
use crate::object::{MODES, options};
use crate::rig::Rig;

/// Room for all inserts of a run.
const SIZE: u64 = 2 << 30;
/// redb's table.
const PAIRS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("pairs");

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Store {
    Ours,
    Lmdb,
    Sqlite,
    Redb,
}

impl Store {
    pub(super) const ALL: [Self; 4] = [Self::Ours, Self::Lmdb, Self::Sqlite, Self::Redb];

    /// What its figures are called.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Lmdb => "LMDB",
            Self::Sqlite => "SQLite",
            Self::Redb => "redb",
        }
    }

    /// Name of its file.
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Ours => "ours.db",
            Self::Lmdb => "lmdb.db",
            Self::Sqlite => "sqlite.db",
            Self::Redb => "redb.db",
        }
    }

    /// Whether it comes from a package that may not be there.
    pub(super) fn is_fetched(self) -> bool {
        matches!(self, Self::Lmdb | Self::Sqlite)
    }
}

/// Inserts, for one thread.
pub(super) trait Writer: Send {
    /// All pairs in one durable transaction.
    fn put_all(&mut self, keys: &[u64], value: &[u8]) -> anyhow::Result<()>;
}

/// A store that is open.
pub(super) enum Opened {
    Ours(Rig, Map<u64, [u8]>, usize),
    Lmdb(lmdb::Env, usize),
    Sqlite(Mutex<Vec<sqlite::Connection>>),
    Redb(Database, usize),
}

/// Makes a new store for so many threads.
pub(super) fn open(store: Store, path: &Path, threads: usize) -> anyhow::Result<Opened> {
    remove(path);
    Ok(match store {
        Store::Ours => {
            let dir = path.parent().unwrap_or(path);
            let mode = CreateOptions { log: super::LOG, ..options(SIZE, MODES[3]) };
            let rig = Rig::named(dir, "disk", &mode, OpenOptions::default())?;
            let kind = rig.pool().medium().kind();
            anyhow::ensure!(kind == MediumKind::File, "{} is no disk: {kind}", dir.display());
            let map = rig.pool().run(|tx| Map::create(tx, Kind::Hash))?;
            Opened::Ours(rig, map, threads)
        }
        Store::Lmdb => Opened::Lmdb(lmdb::Env::create(path, SIZE as usize)?, threads),
        Store::Sqlite => {
            let open = |_| sqlite::Connection::open(path);
            Opened::Sqlite(Mutex::new((0..threads).map(open).collect::<Result<_, _>>()?))
        }
        Store::Redb => {
            let db = Database::create(path)?;
            // The table is made here, not by the first insert.
            let tx = db.begin_write()?;
            tx.open_table(PAIRS)?;
            tx.commit()?;
            Opened::Redb(db, threads)
        }
    })
}

/// Removes a store's file and what it may have put beside it.
pub(super) fn remove(path: &Path) {
    for beside in ["", "-lock", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(beside);
        let _ = std::fs::remove_file(name);
    }
}

impl Opened {
    /// Times our log was freed so far.
    pub(super) fn reclaims(&self) -> Option<u64> {
        match self {
            Self::Ours(rig, ..) => Some(rig.pool().stats().reclaims),
            _ => None,
        }
    }

    /// One for each thread; connections are handed out once.
    pub(super) fn writers(&self) -> anyhow::Result<Vec<Box<dyn Writer + '_>>> {
        fn boxed<'a>(
            count: usize,
            make: impl Fn() -> Box<dyn Writer + 'a>,
        ) -> Vec<Box<dyn Writer + 'a>> {
            (0..count).map(|_| make()).collect()
        }
        Ok(match self {
            Self::Ours(rig, map, n) => boxed(*n, || Box::new(Ours(rig.pool(), map))),
            Self::Lmdb(env, n) => boxed(*n, || Box::new(env)),
            Self::Redb(db, n) => boxed(*n, || Box::new(db)),
            Self::Sqlite(connections) => {
                let mut all = connections.lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
                all.drain(..).map(|one| Box::new(one) as Box<dyn Writer>).collect()
            }
        })
    }
}

struct Ours<'s>(&'s Pool<Mapped>, &'s Map<u64, [u8]>);

impl Writer for Ours<'_> {
    fn put_all(&mut self, keys: &[u64], value: &[u8]) -> anyhow::Result<()> {
        self.0.run(|tx| {
            for key in keys {
                self.1.put(tx, key, value)?;
            }
            Ok(())
        })?;
        Ok(())
    }
}

impl Writer for &lmdb::Env {
    fn put_all(&mut self, keys: &[u64], value: &[u8]) -> anyhow::Result<()> {
        lmdb::Env::put_all(self, keys, value)
    }
}

impl Writer for sqlite::Connection {
    fn put_all(&mut self, keys: &[u64], value: &[u8]) -> anyhow::Result<()> {
        sqlite::Connection::put_all(self, keys, value)
    }
}

impl Writer for &Database {
    fn put_all(&mut self, keys: &[u64], value: &[u8]) -> anyhow::Result<()> {
        let tx = self.begin_write()?;
        {
            let mut table = tx.open_table(PAIRS)?;
            for key in keys {
                table.insert(key, value)?;
            }
        }
        // Durable when it returns: redb's default.
        Ok(tx.commit()?)
    }
}
