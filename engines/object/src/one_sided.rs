//! Parity that was made from the rows while the other one said something else of them.
//!
//! With P and Q, whichever of the two agrees with the rows bears them out, and the other one is
//! wrong. Not so if it could not be read and was made from these very rows, one of which may be an
//! older state: then it agrees with them in any case. What the other one says counts as much as
//! what P says where it is alone: see `blame.rs`.
//!
//! Until the column adds up again. Known to this process only: the next one brings back by one
//! parity alone only what is newer by its own numbers. So it is looked after soon, as any
//! suspicion.

use holdfast_codes::{gf_mul_xor_into, gf_pow_g};
use holdfast_heap::verify::{Direct, Source};
use holdfast_pmem::{MediaError, Medium, PAGE, Site};
use holdfast_redundancy::exempt::read_exempt_by;
use holdfast_redundancy::{Exempt, Zone, zone};
use holdfast_sync::{MutexGuard, PoisonError};

use crate::shared::Shared;

/// Remembering that the other parity said something else.
const NOTE: Site = Site::new("object.one_sided.note");

/// Pages that are remembered; of more the oldest is forgotten.
const ONE_SIDED_MAX: usize = 1 << 12;

/// The parity of a zone with both that is not this one.
pub(crate) const fn other_of(unit: zone::Unit) -> Option<zone::Unit> {
    match unit {
        zone::Unit::P => Some(zone::Unit::Q),
        zone::Unit::Q => Some(zone::Unit::P),
        zone::Unit::Row(_) => None,
    }
}

impl<M: Medium> Shared<M> {
    pub(crate) fn one_sided(&self) -> MutexGuard<'_, Vec<u64>> {
        self.one_sided.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes down that a page of parity is about to be made from the rows, if the other one says
    /// something else of them. The column is held.
    pub(crate) fn note_one_sided(&self, zone: &Zone, unit: zone::Unit, col: u64) {
        let other = other_of(unit).filter(|_| zone.has_q() && self.m.enabled(NOTE));
        let Some(other) = other else { return };
        let columns = (col / PAGE * PAGE, PAGE);
        let of_q = other == zone::Unit::Q;
        let by = self.apart_from_rows(&Direct(&self.m), zone, (columns, of_q), &self.exempt());
        // What cannot be read says nothing.
        if by.is_ok_and(|by| by.iter().any(|byte| *byte != 0)) {
            self.set_one_sided(zone, unit, col);
        }
    }

    /// The same where that is known.
    pub(crate) fn set_one_sided(&self, zone: &Zone, unit: zone::Unit, col: u64) {
        let page = zone.unit_at(unit, col / PAGE * PAGE);
        let mut all = self.one_sided();
        if all.contains(&page) {
            return;
        }
        if all.len() == ONE_SIDED_MAX {
            all.remove(0);
        }
        all.push(page);
    }

    /// Whether what a parity that differs says of the rows counts, although the other one agrees
    /// with them.
    pub(crate) fn speaks_alone(&self, zone: &Zone, differs: zone::Unit, col: u64) -> bool {
        other_of(differs).filter(|_| zone.has_q()).is_some_and(|other| {
            let page = zone.unit_at(other, col / PAGE * PAGE);
            self.one_sided().contains(&page)
        })
    }

    /// P over some columns XOR all rows, as `from` shows them; or Q XOR what they give.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub(crate) fn apart_from_rows(
        &self,
        from: &impl Source,
        zone: &Zone,
        ((col, len), of_q): ((u64, u64), bool),
        exempt: &impl Exempt,
    ) -> Result<Vec<u8>, MediaError> {
        if !of_q {
            return self.sum_of_rows(from, zone, None, col, len, exempt);
        }
        let (mut sum, mut row_bytes) = (vec![0; len as usize], vec![0; len as usize]);
        self.m.read(zone.q_at(col), &mut sum)?;
        for row in 0..zone.data_rows() {
            let read = |at, into: &mut [u8]| from.read(at, into);
            read_exempt_by(zone.at(row, col), &mut row_bytes, exempt, read)?;
            gf_mul_xor_into(&mut sum, &row_bytes, gf_pow_g(row as usize));
        }
        Ok(sum)
    }
}
