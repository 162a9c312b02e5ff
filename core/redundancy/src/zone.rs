//! Geometry of a zone: which row and column a byte is in, and where its parity is.
//!
//! A zone is `data_rows` rows of `row_len` bytes one after the other, then its parity rows. The
//! data rows are one contiguous range for everybody above; only this file divides. A zone never
//! changes its geometry, so a [`Zone`] is a plain value that can be copied and kept.

use holdfast_layout::{Region, RegionKind};
use holdfast_pmem::PAGE;

use crate::error::{Error, Result};

/// log2 of a page: geometry is computed on page numbers.
const PAGE_SHIFT: u32 = PAGE.trailing_zeros();
/// Most data rows: the powers of g that Q uses stay distinct.
const DATA_ROWS_MAX: u32 = 254;

/// Geometry of one zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    start: u64,
    row_len: u64,
    /// floor((2^64 - 1) / pages in a row): division by a row becomes a multiplication.
    reciprocal: u64,
    index: u32,
    row_pages: u32,
    data_rows: u32,
    parity_rows: u32,
    chunk: u64,
}

/// Where a byte of the data area is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Data row, from 0.
    pub row: u32,
    /// Offset from the start of the row, in bytes.
    pub col: u64,
}

/// A part of a range that lies in one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// First byte, as an offset into the pool.
    pub at: u64,
    /// Length in bytes, never 0.
    pub len: u64,
    /// Data row it lies in.
    pub row: u32,
    /// Offset from the start of the row.
    pub col: u64,
}

impl Piece {
    /// The parts of it that lie in one page column each, ascending.
    pub fn pages(self) -> impl Iterator<Item = Self> {
        let end = self.col + self.len;
        let mut next = self.col;
        core::iter::from_fn(move || {
            let col = next;
            next = end.min(col / PAGE * PAGE + PAGE);
            let at = self.at + (col - self.col);
            (col < end).then_some(Self { at, len: next - col, row: self.row, col })
        })
    }
}

impl Zone {
    /// The geometry of `region`, the `index`-th zone of the pool.
    ///
    /// # Errors
    /// [`Error::Geometry`] if the region is not a zone or its rows are impossible.
    pub fn new(region: &Region, index: u32) -> Result<Self> {
        let fail = |expected| Err(Error::Geometry { at: region.start, len: region.len, expected });
        if region.kind != RegionKind::Zone {
            return fail("it must be of the kind zone");
        }
        if !region.start.is_multiple_of(PAGE) || !region.row_len.is_multiple_of(PAGE) {
            return fail("it and its rows must start on pages");
        }
        let Some(row_pages) = u32::try_from(region.row_len / PAGE).ok().filter(|n| *n > 0) else {
            return fail("a row must have 1 to 2^32 - 1 pages");
        };
        if !(1..=DATA_ROWS_MAX).contains(&region.data_rows) || region.parity_rows > 2 {
            return fail("it must have 1 to 254 data rows and at most 2 parity rows");
        }
        let rows = u64::from(region.data_rows + region.parity_rows);
        if region.row_len * rows > region.len || region.start.checked_add(region.len).is_none() {
            return fail("its rows must fit into it");
        }
        Ok(Self {
            start: region.start,
            row_len: region.row_len,
            reciprocal: u64::MAX / u64::from(row_pages),
            index,
            row_pages,
            data_rows: region.data_rows,
            parity_rows: region.parity_rows,
            chunk: region.chunk,
        })
    }

    /// Chooses the geometry of a new zone of `len` bytes at `start`: at most `rows` rows (parity
    /// included), each at least a frame long where there is room for that, so that a lost frame
    /// takes no column twice. In smaller zones the rows are shorter than a frame and only a loss
    /// of at most a row can be repaired.
    ///
    /// # Errors
    /// [`Error::Geometry`] if the zone is too small for two data rows or one chunk.
    pub fn for_size(
        start: u64,
        len: u64,
        rows: u32,
        parity: u32,
        frame: u64,
        chunk: u64,
    ) -> Result<Region> {
        let fail = |expected| Err(Error::Geometry { at: start, len, expected });
        if parity > 2 || !start.is_multiple_of(PAGE) || frame == 0 {
            return fail("at most 2 parity rows, a start on a page and a frame length");
        }
        let fitting = u32::try_from(len / frame).unwrap_or(u32::MAX);
        let rows = rows.min(fitting).clamp(2 + parity, DATA_ROWS_MAX + parity);
        let row_len = len / u64::from(rows) / PAGE * PAGE;
        let data_rows = rows - parity;
        if row_len == 0 || u64::from(data_rows) * row_len <= chunk {
            return fail("it must have room for its rows, a directory page and a chunk");
        }
        let kind = RegionKind::Zone;
        let region = Region { start, len, kind, data_rows, parity_rows: parity, row_len, chunk };
        Self::new(&region, 0).map(|_| region)
    }

    /// Number of the zone: the n-th region of kind zone.
    #[inline]
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// First byte of the data area, as an offset into the pool.
    #[inline]
    #[must_use]
    pub const fn data_start(&self) -> u64 {
        self.start
    }

    /// Bytes of the data area (chunk directory and chunks, without parity).
    #[inline]
    #[must_use]
    pub const fn data_len(&self) -> u64 {
        self.row_len * self.data_rows as u64
    }

    /// First byte after the data area: where P starts.
    #[inline]
    #[must_use]
    pub const fn data_end(&self) -> u64 {
        self.start + self.data_len()
    }

    /// Rows that hold data.
    #[inline]
    #[must_use]
    pub const fn data_rows(&self) -> u32 {
        self.data_rows
    }

    /// Rows that hold parity: 0, 1 (P) or 2 (P and Q).
    #[inline]
    #[must_use]
    pub const fn parity_rows(&self) -> u32 {
        self.parity_rows
    }

    /// Bytes of a row.
    #[inline]
    #[must_use]
    pub const fn row_len(&self) -> u64 {
        self.row_len
    }

    /// Bytes of a chunk of the heap.
    #[inline]
    #[must_use]
    pub const fn chunk(&self) -> u64 {
        self.chunk
    }

    /// Page columns: pages in a row.
    #[inline]
    #[must_use]
    pub const fn page_columns(&self) -> u32 {
        self.row_pages
    }

    /// Whether there is a P row.
    #[inline]
    #[must_use]
    pub const fn has_p(&self) -> bool {
        self.parity_rows >= 1
    }

    /// Whether there is a Q row.
    #[inline]
    #[must_use]
    pub const fn has_q(&self) -> bool {
        self.parity_rows >= 2
    }

    /// Whether the byte at `at` is in the data area.
    #[inline]
    #[must_use]
    pub const fn contains(&self, at: u64) -> bool {
        at.wrapping_sub(self.start) < self.data_len()
    }

    /// Whether all of `[at, at + len)` is in the data area.
    #[inline]
    #[must_use]
    pub const fn contains_range(&self, at: u64, len: u64) -> bool {
        let from = at.wrapping_sub(self.start);
        from <= self.data_len() && len <= self.data_len() - from
    }

    /// Row and column of the byte at `at`; `None` if it is not in the data area.
    #[inline]
    #[must_use]
    pub fn place(&self, at: u64) -> Option<Place> {
        if !self.contains(at) {
            return None;
        }
        let from = at - self.start;
        let page = from >> PAGE_SHIFT;
        // The product is below the true quotient by less than 1, so one correction is enough.
        let mut row = (u128::from(page) * u128::from(self.reciprocal)) >> 64;
        let mut col = page - row as u64 * u64::from(self.row_pages);
        if col >= u64::from(self.row_pages) {
            row += 1;
            col -= u64::from(self.row_pages);
        }
        Some(Place { row: row as u32, col: (col << PAGE_SHIFT) | (from & (PAGE - 1)) })
    }

    /// What the byte at `at` of the whole zone is part of: a data row, P or Q; and its column.
    #[must_use]
    pub fn unit(&self, at: u64) -> Option<(Unit, u64)> {
        if let Some(place) = self.place(at) {
            return Some((Unit::Row(place.row), place.col));
        }
        let from = at.checked_sub(self.data_end())?;
        match from / self.row_len {
            0 if self.has_p() => Some((Unit::P, from)),
            1 if self.has_q() => Some((Unit::Q, from - self.row_len)),
            _ => None,
        }
    }

    /// Cuts `[at, at + len)` at the ends of rows. What lies outside the data area is left out:
    /// check with [`contains_range`](Self::contains_range) first where that would be an error.
    #[inline]
    #[must_use]
    pub fn split(&self, at: u64, len: u64) -> Pieces {
        let end = at.saturating_add(len).min(self.data_end());
        Pieces { at, end, row_len: self.row_len, place: self.place(at) }
    }

    /// Where the byte of P over column `col` is.
    #[inline]
    #[must_use]
    pub const fn p_at(&self, col: u64) -> u64 {
        self.data_end() + col
    }

    /// Where the byte of Q over column `col` is.
    #[inline]
    #[must_use]
    pub const fn q_at(&self, col: u64) -> u64 {
        self.data_end() + self.row_len + col
    }

    /// Where the byte of data row `row` in column `col` is.
    #[inline]
    #[must_use]
    pub const fn at(&self, row: u32, col: u64) -> u64 {
        self.start + row as u64 * self.row_len + col
    }

    /// Where the byte of `unit` in column `col` is.
    #[inline]
    #[must_use]
    pub const fn unit_at(&self, unit: Unit, col: u64) -> u64 {
        match unit {
            Unit::Row(row) => self.at(row, col),
            Unit::P => self.p_at(col),
            Unit::Q => self.q_at(col),
        }
    }
}

/// A unit of a column: one data row or a parity row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// The data row of this number.
    Row(u32),
    /// The P row.
    P,
    /// The Q row.
    Q,
}

/// The pieces of a range, one per row, ascending.
#[derive(Debug, Clone)]
pub struct Pieces {
    at: u64,
    end: u64,
    row_len: u64,
    /// Of `at`; `None` when the range starts outside.
    place: Option<Place>,
}

impl Iterator for Pieces {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        let place = self.place?;
        if self.at >= self.end {
            return None;
        }
        let len = (self.end - self.at).min(self.row_len - place.col);
        let piece = Piece { at: self.at, len, row: place.row, col: place.col };
        self.at += len;
        self.place = Some(Place { row: place.row + 1, col: 0 });
        Some(piece)
    }
}
