//! Looking at a pool that somebody else has open: no lock, no store, no transaction.

use std::path::{Path, PathBuf};

use holdfast_heap::verify::Direct;
use holdfast_heap::{Heap, Space};
use holdfast_layout::{Region, RegionKind, Superblock};
use holdfast_pmem::{Access, Mapped, Medium, Options as MapOptions, Status};
use holdfast_redundancy::superblock::FoundSuperblock;
use holdfast_redundancy::{
    Event, Journal, Mirror, Progress, RemapTable, progress, read_superblock,
};

use crate::anatomy::{Anatomy, read_regions};
use crate::error::{Error, Result};

/// A pool seen from outside: what it is, its events, its scrub. Objects are not read here: their
/// owner changes them.
///
/// ```
/// use holdfast::{Observer, Pool};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("bank.pool");
/// let pool = Pool::options().size(16 << 20).label("bank").create(&path)?;
/// let observer = Observer::open(&path)?;
/// assert_eq!(observer.superblock()?.label, "bank");
/// assert!(observer.is_in_use());
/// pool.close();
/// assert!(!observer.is_in_use());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Observer {
    path: PathBuf,
    medium: Mapped,
}

impl Observer {
    /// Maps the pool in the file `path` for reading.
    ///
    /// # Errors
    /// The file is missing, no pool, of a newer version, cut off or damaged beyond its redundancy.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let here = |error: Error| error.at(path);
        let medium = Mapped::open(path, Access::ReadOnly, &MapOptions::default())
            .map_err(|error| here(error.into()))?;
        let this = Self { path: path.to_path_buf(), medium };
        let superblock = this.superblock()?;
        let (pool, file) = (superblock.size, this.medium.len());
        if file < pool {
            return Err(here(holdfast_object::Error::Truncated { pool, file }.into()));
        }
        let regions = this.regions()?;
        RemapTable::load(&this.medium, &superblock, &regions)
            .and_then(|table| table.apply(&this.medium))
            .map_err(|error| here(error.into()))?;
        Ok(this)
    }

    /// Whether somebody has the pool open for writing.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.holder().is_some()
    }

    /// The process that has the pool open for writing: its number where the system shows it.
    #[must_use]
    pub fn holder(&self) -> Option<Option<u32>> {
        Mapped::writer_of(&self.path).ok().flatten()
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The mapping.
    #[must_use]
    pub fn medium(&self) -> &Mapped {
        &self.medium
    }

    /// What is in force for this mapping.
    #[must_use]
    pub fn status(&self) -> Status {
        self.medium.status()
    }

    /// The superblock as it is now, and the state of its copies.
    ///
    /// # Errors
    /// No copy can be used, or the file was cut off meanwhile.
    pub fn found_superblock(&self) -> Result<FoundSuperblock> {
        if self.medium.cut_off() {
            return Err(Error::from(holdfast_object::Error::CutOff).at(&self.path));
        }
        read_superblock(&self.medium).map_err(|error| Error::from(error).at(&self.path))
    }

    /// What the pool is, as of now.
    ///
    /// # Errors
    /// No copy of the superblock can be used.
    pub fn superblock(&self) -> Result<Superblock> {
        Ok(self.found_superblock()?.superblock)
    }

    /// What lies where in the pool.
    ///
    /// # Errors
    /// No copy of the region table can be used.
    pub fn regions(&self) -> Result<Vec<Region>> {
        read_regions(&self.medium, &self.superblock()?).map_err(|error| error.at(&self.path))
    }

    /// Events in the journal from number `sequence` on, oldest first.
    ///
    /// # Errors
    /// No copy of the superblock can be used.
    pub fn events_from(&self, sequence: u64) -> Result<Vec<Event>> {
        Ok(Journal::open(&self.medium, &self.superblock()?).read_from(&self.medium, sequence))
    }

    /// How far the scrub is or was.
    ///
    /// # Errors
    /// No copy of its record can be used.
    pub fn scrub_progress(&self) -> Result<Progress> {
        let superblock = self.superblock()?;
        progress::observe(&self.medium, Mirror::of(&superblock), superblock.size)
            .map_err(|error| Error::from(error).at(&self.path))
    }

    /// How much of the heap is what. Reads every slot. While the pool is in use, what changes
    /// under the look is counted as it was at one moment or another.
    ///
    /// # Errors
    /// No copy of the superblock or of the region table can be used.
    pub fn space(&self) -> Result<Space> {
        let superblock = self.superblock()?;
        let heap = Heap::new(superblock.seed(), superblock.sum_kind);
        let regions = self.regions()?;
        for region in regions.iter().filter(|region| region.kind == RegionKind::Zone) {
            if let Some(index) = heap.add_zone(region) {
                // What lies in chunks whose entries do not verify is not counted.
                heap.load_zone(&Direct(&self.medium), index);
            }
        }
        Ok(heap.space(&self.medium))
    }

    /// Where the live bytes are.
    ///
    /// # Errors
    /// The pool is too damaged to be taken apart.
    pub fn anatomy(&self) -> Result<Anatomy> {
        Anatomy::read(&self.medium).map_err(|error| error.at(&self.path))
    }
}
