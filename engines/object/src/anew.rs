//! Parity made anew from the rows of its columns: read, then verified, then stored.
//!
//! In this order, because nothing keeps damage from coming about in between. What comes about
//! before a row is read, its sum tells before anything is stored, and the parity that can mend it
//! is still there; what comes about later, the new parity can mend. Verified first and read
//! afterwards, damage between the two would be in the parity for ever.
//!
//! A write of a row that the device drops meanwhile leaves bytes that verify. So what is read has
//! to differ from the old parity by what was judged, or by nothing: [`Differ`]; and who completes a
//! commit judges once more what was read.
//!
//! Rows in a chunk that somebody fills for a use that is not known yet have no sums. Who fills it
//! looks whether what it put there still is: at slots before they are known, with their columns
//! held (`chunks.rs`); at a long object once it is known, if parity was made anew meanwhile
//! (`in_place.rs`).

use holdfast_codes::{PqSums, xor_into};
use holdfast_heap::verify::Source;
use holdfast_pmem::{MediaError, Medium};
use holdfast_redundancy::exempt::read_exempt_by;
use holdfast_redundancy::parity::{self, ParitySites, Syndromes};
use holdfast_redundancy::{Exempt, Zone};

use crate::error::Error;
use crate::shared::Shared;

/// Parity of some columns, as their rows give it.
#[derive(Debug)]
pub(crate) struct Sums {
    col: u64,
    p: Vec<u8>,
    /// Empty without Q.
    q: Vec<u8>,
}

impl Sums {
    /// The first of the columns.
    pub(crate) const fn col(&self) -> u64 {
        self.col
    }

    /// P over them.
    pub(crate) fn p(&self) -> &[u8] {
        &self.p
    }

    /// Whether parity on the medium differs from these sums, at each byte, as it did `before`, or
    /// not at all.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn differ_as<M: Medium>(
        &self,
        m: &M,
        zone: &Zone,
        before: &Differ,
    ) -> Result<bool, MediaError> {
        let from = (self.col - before.col) as usize;
        let as_before = |at: u64, sums: &[u8], before: &[u8]| {
            let mut now = vec![0; sums.len()];
            m.read(at, &mut now)?;
            xor_into(&mut now, sums);
            let mut both = now.iter().zip(&before[from..]);
            Ok(both.all(|(now, before)| *now == 0 || now == before))
        };
        let p = as_before(zone.p_at(self.col), &self.p, &before.by.p)?;
        Ok(p && (!zone.has_q() || as_before(zone.q_at(self.col), &self.q, &before.by.q)?))
    }
}

/// How rows and parity over some columns differed before anything over them was judged.
#[derive(Debug)]
pub(crate) struct Differ {
    /// The first of the columns.
    pub(crate) col: u64,
    /// By what.
    pub(crate) by: Syndromes,
}

impl Differ {
    /// Whether nothing differs.
    pub(crate) fn adds_up(&self) -> bool {
        self.by.p.iter().chain(&self.by.q).all(|byte| *byte == 0)
    }
}

impl<M: Medium> Shared<M> {
    /// Sums the rows over `[col, col + len)` as `from` shows them. Columns are held. The caller
    /// verifies the rows now, and stores the sums only if all do.
    ///
    /// # Errors
    /// A row cannot be read.
    pub(crate) fn sum_columns(
        &self,
        from: &impl Source,
        zone: &Zone,
        (col, len): (u64, u64),
        exempt: &impl Exempt,
    ) -> Result<Sums, MediaError> {
        self.remade.note();
        let row_of = |row, into: &mut [u8]| {
            read_exempt_by(zone.at(row, col), into, exempt, |at, into| from.read(at, into))
        };
        let (mut p, mut bytes) = (vec![0; len as usize], vec![0; len as usize]);
        let mut q = vec![0; if zone.has_q() { p.len() } else { 0 }];
        if zone.has_q() {
            let mut sums = PqSums::new(&mut p, &mut q);
            for row in 0..zone.data_rows() {
                row_of(row, &mut bytes)?;
                sums.add(row as usize, &bytes);
            }
        } else {
            for row in 0..zone.data_rows() {
                row_of(row, &mut bytes)?;
                xor_into(&mut p, &bytes);
            }
        }
        Ok(Sums { col, p, q })
    }

    /// Stores parity that was summed from rows that verified afterwards, or of which nobody knows
    /// better. Flushes, does not drain. The zone has parity, its columns are held.
    ///
    /// # Errors
    /// A parity page cannot be written; the other one was nevertheless.
    pub(crate) fn put_sums(
        &self,
        zone: &Zone,
        sums: &Sums,
        sites: ParitySites,
    ) -> Result<(), Error> {
        Ok(parity::store(&self.m, zone, sums.col, (&sums.p, &sums.q), sites)?)
    }
}
