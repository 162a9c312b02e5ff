//! Growth: more bytes, as a zone of their own. Zones never change, so no object moves and no
//! address changes.
//!
//! | step | what | crash after it leaves |
//! |---|---|---|
//! | 1 extend | the file is longer; its new bytes are zero | bytes nobody refers to |
//! | 2 format | directory and parity of the new zone, durable | the same |
//! | 3 table | region table: side B, drain, side A, drain | the new zone, empty |
//! | 4 size | superblock: side B, drain, side A, drain | the same |
//! | 5 use | columns and parity know the zone, then places in it can be taken | |

use holdfast_heap::ZoneTable;
use holdfast_layout::{Region, RegionKind};
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_redundancy::Zone;

use crate::error::Error;
use crate::options::{CreateOptions, Parity};
use crate::pool::Pool;

const STEP_EXTENDED: Site = Site::new("object.grow.step-extended");
const STEP_FORMATTED: Site = Site::new("object.grow.step-formatted");
const STEP_LISTED: Site = Site::new("object.grow.step-listed");
const STEP_KNOWN: Site = Site::new("object.grow.step-known");
/// Clearing what a growth that crashed left behind.
const LEFT: Site = Site::new("object.grow.left");
/// Formatting the zone before it is listed.
const FORMAT: Site = Site::new("object.grow.format");

impl<M: Medium> Pool<M> {
    /// Grows the pool to `size` bytes, rounded down to pages. Transactions go on meanwhile.
    ///
    /// # Errors
    /// [`Error::Growth`] if `size` is too close to the present size, or if the pool has as many
    /// zones as it can; the medium's answer if it cannot be extended, or if a page of the metadata
    /// stays bad. The pool stays as it was; its file may have become longer.
    pub fn grow(&self, size: u64) -> Result<(), Error> {
        let shared = &*self.shared;
        if shared.is_read_only() {
            return Err(Error::Tx(holdfast_txn::TxError::ReadOnly));
        }
        let mut regions =
            shared.regions.lock().unwrap_or_else(holdfast_sync::PoisonError::into_inner);
        let superblock = shared.superblock().clone();
        let size = size / PAGE * PAGE;
        let rows = u64::from(superblock.parity + 2);
        let least = superblock.size + rows * superblock.frame.max(4 * superblock.chunk);
        if size < least {
            let what = "the next size it can have is {} bytes; ask for at least so many";
            return Err(Error::Growth { what, limit: least });
        }
        if regions.len() >= holdfast_layout::format::REGIONS_MAX {
            let limit = holdfast_layout::format::REGIONS_MAX as u64;
            let what = "it has {} regions already, as many as there can be; make a larger pool and \
                        copy what is in this one";
            return Err(Error::Growth { what, limit });
        }
        let options = CreateOptions {
            rows: superblock.rows,
            frame: superblock.frame,
            parity: Parity::from_rows(superblock.parity),
            ..CreateOptions::default()
        };
        let start = superblock.size;
        let region = crate::geometry::zone_region(start, size - start, &options, superblock.chunk)?;
        shared.or_stop(self.extend(start, size))?;
        shared.m.step(STEP_EXTENDED);
        shared.or_stop(self.add_zone(&mut regions, region, size))
    }

    /// Step 1.
    fn extend(&self, start: u64, size: u64) -> Result<(), Error> {
        let m = &self.shared.m;
        let left = m.len().min(size);
        if left > start {
            // Durable together with the directory that is written next.
            m.zero(LEFT, start, left - start)?;
        }
        if size > m.len() {
            // Nothing was written: a file that cannot be longer is no failed sync.
            m.grow(size).map_err(Error::Extend)?;
        }
        Ok(())
    }

    /// Steps 2 to 5.
    fn add_zone(&self, regions: &mut Vec<Region>, region: Region, size: u64) -> Result<(), Error> {
        let shared = &*self.shared;
        let index = regions.iter().filter(|r| r.kind == RegionKind::Zone).count();
        let table = ZoneTable::new(index as u8, &region);
        let zone = Zone::new(&region, index as u32)?;
        if shared.m.enabled(FORMAT) {
            shared.format_directory(&table, &zone)?;
        }
        shared.m.step(STEP_FORMATTED);
        regions.push(region);
        if let Err(error) = shared.write_region_table(regions) {
            regions.pop();
            return Err(error);
        }
        shared.m.step(STEP_LISTED);
        if let Err(error) = self.resize(size) {
            // A zone that is listed is one, whatever the size says: it has to go again.
            regions.pop();
            shared.write_region_table(regions)?;
            return Err(error);
        }
        // Whoever waits for room takes it at once: its columns are locked, and its parity kept.
        shared.heap.add_zone_with(&region, |table| {
            shared.m.step(STEP_KNOWN);
            shared.know_zone(table, zone);
        });
        Ok(())
    }

    /// Step 4. The size in memory is what it was if it cannot be stored.
    fn resize(&self, size: u64) -> Result<(), Error> {
        let mut superblock = self.shared.superblock();
        let before = core::mem::replace(&mut superblock.size, size);
        let stored = self.shared.store_superblock(&mut superblock);
        if stored.is_err() {
            superblock.size = before;
        }
        stored
    }
}
