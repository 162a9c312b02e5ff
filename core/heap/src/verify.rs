//! Whether bytes on a medium are what was committed: the one place that knows how objects, slots,
//! sums and directory entries certify each other.
//!
//! Everything reads through [`Source`], so that a candidate of a repair can be judged before a
//! byte of it is written: [`Overlay`] shows the medium as it would be afterwards. Who asks names
//! the place that verifies, and hands down whether it is switched on.

use holdfast_layout::Certify;
use holdfast_pmem::{MediaError, Medium, Site};

use crate::directory::ChunkEntry;
use crate::format::{CHUNK_LEN, GRANULE, SLOT_LEN, SUM_LEN};
use crate::sums::{Slot, Sums, granule_range, granules};
use crate::table::Spot;

/// Something bytes of the pool can be read from.
pub trait Source {
    /// Copies bytes at `at`.
    ///
    /// # Errors
    /// A [`MediaError`] if they cannot be read.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError>;

    /// Whether the step named by `site` is to be done, as the medium beneath says.
    fn enabled(&self, site: Site) -> bool;
}

/// The medium itself.
#[derive(Debug)]
pub struct Direct<'m, M>(pub &'m M);

impl<M: Medium> Source for Direct<'_, M> {
    #[inline]
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.0.read(at, into)
    }

    #[inline(always)]
    fn enabled(&self, site: Site) -> bool {
        self.0.enabled(site)
    }
}

/// A source with one range replaced.
#[derive(Debug)]
pub struct Overlay<'a, S> {
    /// What lies beneath.
    pub under: &'a S,
    /// Where the replacement starts.
    pub at: u64,
    /// The replacement.
    pub bytes: &'a [u8],
}

impl<S: Source> Source for Overlay<'_, S> {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        let end = at + into.len() as u64;
        let over_end = self.at + self.bytes.len() as u64;
        if end <= self.at || over_end <= at {
            return self.under.read(at, into);
        }
        // Only the parts not covered come from beneath: what is covered may be unreadable there.
        if at < self.at {
            let n = (self.at - at) as usize;
            self.under.read(at, &mut into[..n])?;
        }
        if over_end < end {
            let n = (over_end - at) as usize;
            self.under.read(over_end, &mut into[n..])?;
        }
        let from = at.max(self.at);
        let to = end.min(over_end);
        into[(from - at) as usize..(to - at) as usize]
            .copy_from_slice(&self.bytes[(from - self.at) as usize..(to - self.at) as usize]);
        Ok(())
    }

    fn enabled(&self, site: Site) -> bool {
        self.under.enabled(site)
    }
}

/// What a check of one unit found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It verifies.
    Good,
    /// It does not: sum stored, sum of the bytes.
    Bad {
        /// Sum stored.
        expected: u32,
        /// Sum of the bytes found.
        found: u32,
    },
    /// There is nothing there that a sum covers.
    Nothing,
}

impl Found {
    fn sums(expected: u32, found: u32, certify: Certify) -> Self {
        if certify.agrees(expected, found) { Self::Good } else { Self::Bad { expected, found } }
    }

    /// Whether it is known to be wrong.
    #[must_use]
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Bad { .. })
    }
}

/// Reads the slot of a place.
///
/// # Errors
/// A [`MediaError`] if it cannot be read.
#[inline]
pub fn read_slot(from: &impl Source, spot: &Spot) -> Result<Slot, MediaError> {
    let mut bytes = [0; SLOT_LEN];
    from.read(spot.slot, &mut bytes)?;
    Ok(Slot::decode(&bytes))
}

/// Reads the sum stored for a granule.
///
/// # Errors
/// A [`MediaError`] if it cannot be read.
#[inline]
pub fn read_sum(
    from: &impl Source,
    spot: &Spot,
    slot: &Slot,
    granule: u64,
) -> Result<u32, MediaError> {
    if granule == 0 {
        return Ok(slot.sum);
    }
    let mut bytes = [0; SUM_LEN as usize];
    from.read(spot.sum_at(granule), &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// Checks one granule of the place `spot` (or its slot, if it is free). What contradicts itself is
/// bad whatever `certify` says.
///
/// # Errors
/// A [`MediaError`] if slot, sum or bytes cannot be read.
pub fn check_granule(
    from: &impl Source,
    sums: &Sums,
    spot: &Spot,
    granule: u64,
    certify: Certify,
) -> Result<Found, MediaError> {
    let slot = read_slot(from, spot)?;
    if !slot.is_live() {
        return Ok(check_free(sums, spot, &slot, certify));
    }
    let len = u64::from(slot.len);
    if len > spot.capacity {
        return Ok(Found::Bad { expected: slot.sum, found: !slot.sum });
    }
    if granule >= granules(len) || !sums.active() {
        return Ok(Found::Nothing);
    }
    let (start, count) = granule_range(granule, len);
    let mut buffer = [0; GRANULE as usize];
    let bytes = &mut buffer[..count as usize];
    from.read(spot.object + start, bytes)?;
    let expected = read_sum(from, spot, &slot, granule)?;
    Ok(Found::sums(expected, sums.granule(spot.object, &slot, granule, bytes), certify))
}

fn check_free(sums: &Sums, spot: &Spot, slot: &Slot, certify: Certify) -> Found {
    if !sums.active() {
        return Found::Nothing;
    }
    let sum = sums.free_slot(spot.object, slot);
    if spot.class == Spot::LARGE {
        // The directory says that an object begins here: a free slot cannot be right.
        return Found::Bad { expected: slot.sum, found: sum };
    }
    Found::sums(slot.sum, sum, certify)
}

/// Checks every granule of the place `spot`; the first bad one is reported with its number.
///
/// # Errors
/// A [`MediaError`] if slot, sums or bytes cannot be read.
pub fn check_object(
    from: &impl Source,
    sums: &Sums,
    spot: &Spot,
    certify: Certify,
) -> Result<(Found, u64), MediaError> {
    let slot = read_slot(from, spot)?;
    let last = if slot.is_live() { granules(slot.len.into()) } else { 1 };
    let mut answer = Found::Nothing;
    for granule in 0..last.min(granules(spot.capacity)) {
        match check_granule(from, sums, spot, granule, certify)? {
            bad @ Found::Bad { .. } => return Ok((bad, granule)),
            found => answer = found,
        }
    }
    Ok((answer, 0))
}

/// Reads and checks the directory entry at `at`; `None` if it is not valid.
///
/// # Errors
/// A [`MediaError`] if it cannot be read.
pub fn read_entry(
    from: &impl Source,
    sums: &Sums,
    at: u64,
    certify: Certify,
) -> Result<Option<ChunkEntry>, MediaError> {
    let mut bytes = [0; CHUNK_LEN];
    from.read(at, &mut bytes)?;
    Ok(ChunkEntry::decode(&bytes, sums, at, certify))
}
