//! Stripes of whole pages: redundancy for files whose offsets belong to somebody else.
//!
//! A zone has rows that are far apart and columns that run through all of them; it needs space of
//! its own. A file of a foreign program has none to give, so its pages are taken as they come: as
//! many as a stripe has data pages, one after the other, and their parity is kept elsewhere. A
//! *region* is a whole number of stripes, the unit in which sums and parity are laid out.
//!
//! ```text
//! file    | page 0 | page 1 | page 2 | page 3 | page 4 | ...        region 0 ...     | region 1
//!           row 0    row 1    row 2    row 3  | row 0
//!           `---------- stripe 0 ------------'`--- stripe 1 ...
//! apart   | P of stripe 0 | Q of stripe 0 | P of stripe 1 | ...
//! ```
//!
//! Everything here works on slices. Pages behind the end of the file count as zeros, so a stripe
//! is whole whatever the file's length. Where sums and parity are kept, and when they are believed,
//! is the engine's affair.

mod verdict;

use holdfast_codes::{
    crc32c, pq_encode, rebuild_from_p, rebuild_from_q, rebuild_two, reference, xor_many,
};
use holdfast_layout::format::PAGE_LEN;

pub use verdict::{PageVerdict, Unsure};

/// Most pages of a region: what a bitmap of 32 bytes has bits for.
pub const REGION_PAGES_MAX: u32 = 256;
/// Most stripes of a region: one bit each in a word.
pub const STRIPES_MAX: u32 = 64;
/// Most data pages of a stripe.
pub const DATA_MAX: u32 = 64;
/// Most parity pages of a stripe.
pub const PARITY_MAX: u32 = 2;

/// By which instructions sums and parity are computed. The bytes are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Instructions {
    /// The widest the processor has.
    #[default]
    Best,
    /// Those every processor has, some ten times slower: for one whose wide units are in doubt. A
    /// file that verifies by these and not by the best has met a bad processor, not bad storage.
    Portable,
}

/// How the pages of a file are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageStripes {
    data: u32,
    parity: u32,
    stripes: u32,
    instructions: Instructions,
}

/// Where a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PagePlace {
    /// Its region.
    pub region: u64,
    /// Its number in the region.
    pub inside: u32,
    /// Its stripe, counted in the region.
    pub stripe: u32,
    /// Its row in the stripe.
    pub row: u32,
}

impl PageStripes {
    /// Stripes of `data` pages and `parity` pages, `stripes` of them in a region; `None` if one of
    /// the numbers is beyond what a region's record has room for.
    #[must_use]
    pub const fn new(data: u32, parity: u32, stripes: u32) -> Option<Self> {
        let fits = data >= 1
            && data <= DATA_MAX
            && parity <= PARITY_MAX
            && stripes >= 1
            && stripes <= STRIPES_MAX
            && data * stripes <= REGION_PAGES_MAX;
        if !fits {
            return None;
        }
        Some(Self { data, parity, stripes, instructions: Instructions::Best })
    }

    /// The same with regions as large as they may be: 1 MiB where `data` divides 256 and is at
    /// least 4.
    #[must_use]
    pub const fn standard(data: u32, parity: u32) -> Option<Self> {
        if data == 0 || data > DATA_MAX {
            return None;
        }
        let most = REGION_PAGES_MAX / data;
        Self::new(data, parity, if most < STRIPES_MAX { most } else { STRIPES_MAX })
    }

    /// The same, computed by other instructions.
    #[must_use]
    pub const fn by(self, instructions: Instructions) -> Self {
        Self { instructions, ..self }
    }

    /// Data pages of a stripe.
    #[must_use]
    pub const fn data(&self) -> u32 {
        self.data
    }

    /// Parity pages of a stripe.
    #[must_use]
    pub const fn parity(&self) -> u32 {
        self.parity
    }

    /// Stripes of a region.
    #[must_use]
    pub const fn stripes(&self) -> u32 {
        self.stripes
    }

    /// Pages of a region.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.data * self.stripes
    }

    /// Bytes of a region.
    #[must_use]
    pub const fn region_len(&self) -> u64 {
        self.pages() as u64 * PAGE_LEN as u64
    }

    /// Bytes of the data pages of a stripe.
    #[must_use]
    pub const fn rows_len(&self) -> usize {
        self.data as usize * PAGE_LEN
    }

    /// Bytes of the parity pages of a stripe.
    #[must_use]
    pub const fn parity_len(&self) -> usize {
        self.parity as usize * PAGE_LEN
    }

    /// Where the page numbered `page` in its file is.
    #[must_use]
    pub const fn place(&self, page: u64) -> PagePlace {
        let pages = self.pages() as u64;
        let inside = (page % pages) as u32;
        PagePlace {
            region: page / pages,
            inside,
            stripe: inside / self.data,
            row: inside % self.data,
        }
    }

    /// Number in its file of a region's page; `None` beyond what can be counted.
    #[must_use]
    pub fn page(&self, region: u64, inside: u32) -> Option<u64> {
        region.checked_mul(u64::from(self.pages()))?.checked_add(u64::from(inside))
    }

    /// Computes the parity pages of a stripe from its data pages, both as bytes in a row.
    ///
    /// # Panics
    /// If a length is not [`rows_len`](Self::rows_len) or [`parity_len`](Self::parity_len).
    pub fn encode(&self, rows: &[u8], parity: &mut [u8]) {
        let rows = self.split(rows);
        assert_eq!(parity.len(), self.parity_len(), "parity of one stripe");
        match (self.parity, self.instructions) {
            (0, _) => {}
            (1, Instructions::Best) => xor_many(parity, &rows),
            (1, Instructions::Portable) => reference::xor_many(parity, &rows),
            (_, how) => {
                let (p, q) = parity.split_at_mut(PAGE_LEN);
                match how {
                    Instructions::Best => pq_encode(p, q, &rows),
                    Instructions::Portable => reference::pq_encode(p, q, &rows),
                }
            }
        }
    }

    /// Which parity pages disagree with the data pages, lowest first: P, then Q.
    ///
    /// # Panics
    /// As [`encode`](Self::encode).
    #[must_use]
    pub fn differing(&self, rows: &[u8], parity: &[u8]) -> [bool; 2] {
        let mut expected = vec![0; self.parity_len()];
        self.encode(rows, &mut expected);
        let mut differ = [false; 2];
        let pairs = expected.chunks(PAGE_LEN).zip(parity.chunks(PAGE_LEN));
        for (differs, (expected, found)) in differ.iter_mut().zip(pairs) {
            *differs = expected != found;
        }
        differ
    }

    /// Rebuilds the data pages `missing` (rows, no row twice) in place, from the others and from
    /// the parity pages that `usable` allows (P, Q). What is rebuilt is a candidate: only its sum
    /// says whether everything it was made from was right. False, and nothing changed, if parity
    /// cannot give that many back.
    ///
    /// # Panics
    /// As [`encode`](Self::encode), or if a row is not below [`data`](Self::data).
    pub fn rebuild(
        &self,
        rows: &mut [u8],
        missing: &[u32],
        parity: &[u8],
        usable: [bool; 2],
    ) -> bool {
        assert_eq!(parity.len(), self.parity_len(), "parity of one stripe");
        let units: Vec<&[u8]> = parity.chunks(PAGE_LEN).collect();
        let unit = |i: usize| units.get(i).copied().filter(|_| usable[i]);
        let all = self.split(rows);
        let others: Vec<(usize, &[u8])> = (0..self.data)
            .filter(|row| !missing.contains(row))
            .map(|row| (row as usize, all[row as usize]))
            .collect();
        let mut first = vec![0; PAGE_LEN];
        let mut second = vec![0; PAGE_LEN];
        match (missing, unit(0), unit(1)) {
            ([], ..) => return true,
            ([_], Some(p), _) => {
                let plain: Vec<&[u8]> = others.iter().map(|(_, bytes)| *bytes).collect();
                rebuild_from_p(&mut first, &plain, p);
            }
            (&[row], None, Some(q)) => rebuild_from_q(&mut first, row as usize, &others, q),
            (&[x, y], Some(p), Some(q)) if x != y => {
                let lost = [(x as usize, &mut first[..]), (y as usize, &mut second[..])];
                rebuild_two(lost, &others, p, q);
            }
            _ => return false,
        }
        for (row, bytes) in missing.iter().zip([first, second]) {
            let at = *row as usize * PAGE_LEN;
            rows[at..at + PAGE_LEN].copy_from_slice(&bytes);
        }
        true
    }

    /// [`page_sum`] by the instructions chosen.
    #[must_use]
    pub fn sum(&self, seed: u32, page: u64, bytes: &[u8]) -> u32 {
        match self.instructions {
            Instructions::Best => page_sum(seed, page, bytes),
            Instructions::Portable => {
                let state = reference::crc_update(!seed, &page.to_le_bytes());
                !reference::crc_update(state, bytes)
            }
        }
    }

    fn split<'a>(&self, rows: &'a [u8]) -> Vec<&'a [u8]> {
        assert_eq!(rows.len(), self.rows_len(), "data of one stripe");
        rows.chunks(PAGE_LEN).collect()
    }
}

/// The sum of a page: bound to its file by `seed` and to its place by its number, so that a page
/// that was written to another place, or that came from another file, does not verify.
#[must_use]
pub fn page_sum(seed: u32, page: u64, bytes: &[u8]) -> u32 {
    crc32c(crc32c(seed, &page.to_le_bytes()), bytes)
}
