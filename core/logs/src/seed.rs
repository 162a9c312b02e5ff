//! What a record's checksum is bound to besides its bytes: pool, log generation, lane, place.
//!
//! A CRC maps different seeds to different sums for the same bytes. So a record of an earlier
//! generation is *certain* not to certify in its old place (generations differ by less than
//! 2^32), and so is a copy found elsewhere in its own ring.

use holdfast_codes::{crc32c, crc32c_u64};
use holdfast_layout::Superblock;

/// A checksum state on the way from the pool to a place in its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(u32);

impl Seed {
    /// The seed of the pool's live log generation.
    #[must_use]
    pub fn new(superblock: &Superblock) -> Self {
        Self(crc32c_u64(superblock.seed(), superblock.log_generation))
    }

    /// Bound to a lane.
    #[must_use]
    pub(crate) fn lane(self, lane: u32) -> Self {
        Self(crc32c(self.0, &lane.to_le_bytes()))
    }

    /// Bound to a place in what it is the seed of: the seed of a record's checksum.
    #[inline]
    #[must_use]
    pub(crate) fn place(self, place: u64) -> u32 {
        crc32c_u64(self.0, place)
    }

    /// The sum of an overflow payload of the commit `number`.
    #[must_use]
    pub fn overflow(self, number: u64, payload: &[u8]) -> u32 {
        crc32c(crc32c_u64(self.0, number), payload)
    }
}
