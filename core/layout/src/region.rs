//! The region table: which bytes of the pool are what.

use core::fmt;

use crate::bytes::{get_u32, get_u64, put_u32, put_u64};
use crate::format::{REGION_LEN, REGIONS_MAX};

/// What a region is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionKind {
    /// First copy of the metadata and log.
    SideA,
    /// Second copy of the metadata and log.
    SideB,
    /// Frames kept free for relocation.
    Spare,
    /// A zone of the heap, with its parity rows.
    Zone,
    /// Written by a newer build: kept, never touched.
    Unknown(u32),
}

/// One region of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// What it is for.
    pub kind: RegionKind,
    /// Zones: rows that hold data.
    pub data_rows: u32,
    /// Zones: rows that hold parity.
    pub parity_rows: u32,
    /// Zones: bytes of a row.
    pub row_len: u64,
    /// Zones: bytes of a chunk.
    pub chunk: u64,
}

/// Why a region table cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionError {
    /// Index of the entry.
    pub index: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "region table entry {}: {}", self.index, self.what)
    }
}

impl std::error::Error for RegionError {}

impl RegionKind {
    const fn code(self) -> u32 {
        match self {
            Self::SideA => 1,
            Self::SideB => 2,
            Self::Spare => 3,
            Self::Zone => 4,
            Self::Unknown(code) => code,
        }
    }

    const fn from_code(code: u32) -> Self {
        match code {
            1 => Self::SideA,
            2 => Self::SideB,
            3 => Self::Spare,
            4 => Self::Zone,
            other => Self::Unknown(other),
        }
    }
}

/// The table as the body of its mirrored page.
#[must_use]
pub fn encode(regions: &[Region]) -> Vec<u8> {
    let mut body = vec![0; regions.len().min(REGIONS_MAX) * REGION_LEN];
    for (entry, r) in body.chunks_exact_mut(REGION_LEN).zip(regions) {
        put_u64(entry, 0, r.start);
        put_u64(entry, 8, r.len);
        put_u32(entry, 16, r.kind.code());
        put_u32(entry, 20, r.data_rows);
        put_u32(entry, 24, r.parity_rows);
        put_u64(entry, 32, r.row_len);
        put_u64(entry, 40, r.chunk);
    }
    body
}

/// Reads `count` entries of a body that may be anything, for a pool of `size` bytes.
///
/// # Errors
/// A [`RegionError`] for entries out of bounds, overlapping, out of order or with an impossible
/// geometry.
pub fn decode(body: &[u8], count: u32, size: u64) -> Result<Vec<Region>, RegionError> {
    let fail = |index, what| Err(RegionError { index, what });
    let count = count as usize;
    if count > REGIONS_MAX || count * REGION_LEN > body.len() {
        return fail(count, "more entries than a table has");
    }
    let mut regions: Vec<Region> = Vec::with_capacity(count);
    let mut next = 0;
    for (index, entry) in body.chunks_exact(REGION_LEN).take(count).enumerate() {
        let region = Region {
            start: get_u64(entry, 0),
            len: get_u64(entry, 8),
            kind: RegionKind::from_code(get_u32(entry, 16)),
            data_rows: get_u32(entry, 20),
            parity_rows: get_u32(entry, 24),
            row_len: get_u64(entry, 32),
            chunk: get_u64(entry, 40),
        };
        let end = match region.start.checked_add(region.len) {
            Some(end) if end <= size && region.len > 0 => end,
            _ => return fail(index, "lies outside the pool"),
        };
        if region.start < next {
            return fail(index, "overlaps the one before it or is out of order");
        }
        next = end;
        if region.kind == RegionKind::Zone {
            check_zone(&region).map_err(|what| RegionError { index, what })?;
        }
        regions.push(region);
    }
    Ok(regions)
}

fn check_zone(r: &Region) -> Result<(), &'static str> {
    let page = crate::format::PAGE_LEN as u64;
    if !r.start.is_multiple_of(page) || r.row_len == 0 || !r.row_len.is_multiple_of(page) {
        return Err("zone rows are not whole pages");
    }
    if !(1..=254).contains(&r.data_rows) || r.parity_rows > 2 {
        return Err("impossible number of rows");
    }
    let rows = u64::from(r.data_rows) + u64::from(r.parity_rows);
    match r.row_len.checked_mul(rows) {
        Some(bytes) if bytes <= r.len => {}
        _ => return Err("rows do not fit the zone"),
    }
    if !r.chunk.is_power_of_two() || r.chunk < page || r.chunk > r.row_len * rows {
        return Err("impossible chunk length");
    }
    Ok(())
}
