//! The bytes of a pool, with holes where pages cannot be read; superblock, mirrored pages, zones.

use holdfast_layout::format::{
    FIELDS_MIRRORED, FIELDS_REGION, FIELDS_SUPERBLOCK, KIND_REGIONS, MAGIC, MIRRORED_LEN, PAGE_LEN,
    REGION_LEN, REGIONS_PAGE,
};
use holdfast_pmem::{Medium, PAGE};

use super::number;
use super::sums::crc;

/// Code of a zone in the region table.
const REGION_ZONE: u64 = 4;

/// A whole pool as the program sees it.
#[derive(Debug, Clone)]
pub struct Bytes {
    bytes: Vec<u8>,
    /// Pages that could not be read, ascending.
    bad: Vec<u64>,
}

/// A mirrored page that verifies.
#[derive(Debug, Clone, Copy)]
pub struct Mirrored<'a> {
    /// Its sequence.
    pub sequence: u64,
    /// The whole page.
    pub bytes: &'a [u8],
}

impl Bytes {
    /// Everything a medium shows.
    pub fn of(medium: &impl Medium) -> Self {
        let mut bytes = vec![0; medium.len() as usize];
        let mut bad = Vec::new();
        if medium.read(0, &mut bytes).is_err() {
            for (page, part) in bytes.chunks_mut(PAGE as usize).enumerate() {
                if medium.read(page as u64 * PAGE, part).is_err() {
                    part.fill(0);
                    bad.push(page as u64);
                }
            }
        }
        Self { bytes, bad }
    }

    /// Bytes of a file or an image, all of them readable.
    #[must_use]
    pub const fn from_vec(bytes: Vec<u8>) -> Self {
        Self { bytes, bad: Vec::new() }
    }

    /// The same with these bytes at a place, as far as they lie inside.
    #[must_use]
    pub fn with(mut self, at: u64, bytes: &[u8]) -> Self {
        let room = self.bytes.iter_mut().skip(at as usize);
        room.zip(bytes).for_each(|(old, new)| *old = *new);
        self
    }

    /// A range; `None` if part of it lies outside or cannot be read.
    #[must_use]
    pub fn get(&self, at: u64, len: u64) -> Option<&[u8]> {
        let end = at.checked_add(len)?;
        if len > 0 && !self.bad.is_empty() {
            let pages = at / PAGE..=(end - 1) / PAGE;
            if self.bad.iter().any(|page| pages.contains(page)) {
                return None;
            }
        }
        self.bytes.get(usize::try_from(at).ok()?..usize::try_from(end).ok()?)
    }

    /// All bytes; pages that could not be read are zero.
    #[must_use]
    pub fn all(&self) -> &[u8] {
        &self.bytes
    }

    /// Pages that could not be read.
    #[must_use]
    pub fn bad_pages(&self) -> &[u64] {
        &self.bad
    }

    /// The superblock copy at `at`, if it verifies.
    #[must_use]
    pub fn superblock_at(&self, at: u64) -> Option<&[u8]> {
        let page = self.get(at, PAGE_LEN as u64)?;
        if page[..MAGIC.len()] != MAGIC {
            return None;
        }
        let stored = number(FIELDS_SUPERBLOCK, "crc", page) as u32;
        let sum = crc(crc(crc(0, &page[..8]), &[0; 4]), &page[12..]);
        (sum == stored).then_some(page)
    }

    /// The newer of the superblock's copies, and the seed of all sums of the pool.
    #[must_use]
    pub fn superblock(&self) -> Option<(&[u8], u32)> {
        let sequence = |page: &&[u8]| number(FIELDS_SUPERBLOCK, "sequence", page);
        let first = self.superblock_at(0).or_else(|| {
            let pages = (PAGE..self.bytes.len() as u64).step_by(PAGE_LEN);
            { pages }.find_map(|at| self.superblock_at(at))
        })?;
        let second = self.superblock_at(number(FIELDS_SUPERBLOCK, "side_len", first));
        let newest = second.filter(|second| sequence(second) > sequence(&first)).unwrap_or(first);
        Some((newest, crc(0, &newest[24..40])))
    }

    /// The mirrored page of `kind` at `place` of the side that starts at `side`, if it verifies.
    #[must_use]
    pub fn mirrored(&self, side: u64, place: u64, kind: u32, seed: u32) -> Option<Mirrored<'_>> {
        let bytes = self.get(side.checked_add(place)?, PAGE_LEN as u64)?;
        let of_kind = number(FIELDS_MIRRORED, "kind", bytes) == u64::from(kind);
        let sum = crc(crc(seed, &place.to_le_bytes()), &bytes[4..]);
        let verifies = u64::from(sum) == number(FIELDS_MIRRORED, "crc", bytes);
        let sequence = number(FIELDS_MIRRORED, "sequence", bytes);
        (of_kind && verifies).then_some(Mirrored { sequence, bytes })
    }

    /// The entries of all zones in the newer copy of the region table.
    #[must_use]
    pub fn zones(&self, superblock: &[u8], seed: u32) -> Vec<&[u8]> {
        let side = number(FIELDS_SUPERBLOCK, "side_len", superblock);
        let a = self.mirrored(0, REGIONS_PAGE, KIND_REGIONS, seed);
        let b = self.mirrored(side, REGIONS_PAGE, KIND_REGIONS, seed);
        let newest = match (a, b) {
            (Some(a), Some(b)) if b.sequence > a.sequence => Some(b),
            (a, b) => a.or(b),
        };
        let Some(page) = newest else { return Vec::new() };
        let count = number(FIELDS_MIRRORED, "count", page.bytes) as usize;
        let entries = page.bytes[MIRRORED_LEN..].chunks_exact(REGION_LEN).take(count);
        entries.filter(|entry| number(FIELDS_REGION, "kind", entry) == REGION_ZONE).collect()
    }
}
