//! The mirrored records of an open pool: which copies are damaged, and writing them whole again.

use holdfast_layout::format::{
    INTENT_PAGE, KIND_INTENT, KIND_PROGRESS, KIND_REGIONS, KIND_REMAP, PROGRESS_PAGE, REGIONS_PAGE,
    REMAP_PAGE, SUPERBLOCK_PAGE,
};
use holdfast_layout::{Superblock, region};
use holdfast_pmem::Medium;
use holdfast_redundancy::superblock::read_superblock;
use holdfast_redundancy::{CopyState, Mirror, Side};
use holdfast_sync::atomic::Ordering;

use crate::error::Error;
use crate::shared::{Repairer, Shared};

/// Places and kinds of the mirrored pages after the superblock.
const RECORDS: [(u64, u32); 4] = [
    (REGIONS_PAGE, KIND_REGIONS),
    (REMAP_PAGE, KIND_REMAP),
    (INTENT_PAGE, KIND_INTENT),
    (PROGRESS_PAGE, KIND_PROGRESS),
];

fn is_damaged(state: CopyState) -> bool {
    // A stale copy is one whose last write was lost.
    matches!(state, CopyState::Invalid | CopyState::Unreadable(_) | CopyState::Stale(_))
}

/// Copies that do not verify, or are older than the other one: place in the side, and side. The
/// caller keeps everybody from writing records meanwhile.
pub(crate) fn damaged_copies<M: Medium>(m: &M, superblock: &Superblock) -> Vec<(u64, Side)> {
    let mut damaged = Vec::new();
    let mut note = |place, a, b| {
        if is_damaged(a) {
            damaged.push((place, Side::A));
        }
        if superblock.copies == 2 && is_damaged(b) {
            damaged.push((place, Side::B));
        }
    };
    match read_superblock(m) {
        Ok(found) => note(SUPERBLOCK_PAGE, found.a, found.b),
        // Neither verifies: memory is all that knows it, until it is written again.
        Err(_) => note(SUPERBLOCK_PAGE, CopyState::Invalid, CopyState::Invalid),
    }
    let mirror = Mirror::of(superblock);
    for (place, kind) in RECORDS {
        match mirror.read(m, place, kind) {
            Ok(found) => note(place, found.a, found.b),
            Err(holdfast_redundancy::Error::BothCopies { a, b, .. }) => note(place, a, b),
            Err(_) => {}
        }
    }
    damaged
}

impl<M: Medium> Shared<M> {
    /// Writes the mirrored record at `place` again from what memory knows: both copies, whatever
    /// they hold now. True if the place is one of a record.
    pub(crate) fn rewrite_record(
        &self,
        repairer: &mut Repairer,
        place: u64,
    ) -> Result<bool, Error> {
        match place {
            SUPERBLOCK_PAGE => self.store_superblock(&mut self.superblock())?,
            REGIONS_PAGE => {
                let regions =
                    self.regions.lock().unwrap_or_else(holdfast_sync::PoisonError::into_inner);
                self.write_region_table(&regions)?;
            }
            REMAP_PAGE => {
                let entries = repairer.remap.entries().to_vec();
                let body = holdfast_layout::remap::encode(&entries);
                repairer.remap.record().write(&self.m, entries.len() as u32, &body)?;
            }
            INTENT_PAGE => repairer.intent.clear(&self.m)?,
            PROGRESS_PAGE => {
                let progress = repairer.scrubbed;
                repairer.progress.store(&self.m, &progress)?;
            }
            _ => return Ok(false),
        }
        self.report_cleared(repairer);
        Ok(true)
    }

    /// Writes the region table with the next sequence.
    pub(crate) fn write_region_table(
        &self,
        regions: &[holdfast_layout::Region],
    ) -> Result<(), Error> {
        let mirror = Mirror::of(&self.superblock());
        // Counted here and not read back: a write that failed half way may have left either.
        let sequence = self.regions_sequence.fetch_add(1, Ordering::Relaxed) + 1;
        debug_assert!(region::encode(regions).len() <= 4096);
        let cleared = crate::open::write_regions(&self.m, mirror, sequence, regions)?;
        self.report_cleared_sides(cleared, REGIONS_PAGE, mirror.side_len);
        Ok(())
    }
}
