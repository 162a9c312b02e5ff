//! Units that nothing cures, and what that was seen from.
//!
//! To look for a cure takes long where there is none: all trials are made. And what is lost is
//! asked for again and again: by a scrub for each column that it lies over, by whoever reads it. As
//! long as it is what it was, and parity says the same of it, the answer is the same. So that is
//! looked at, and nothing is tried: once two repairs tried in vain, since something may not be read
//! for once. With Q a cure is also found beside another row, by what is bad there: anything that
//! was repaired since may make a difference then.

use holdfast_codes::{adler32, crc32c};
use holdfast_heap::Unit;
use holdfast_pmem::Medium;
use holdfast_redundancy::Zone;
use std::collections::BTreeMap;

use crate::mend_unit::{Part, current, first_of};
use crate::shared::{Repairer, Shared};

/// Units remembered; of more, none is.
const UNITS_MAX: usize = 1 << 15;

/// Searches in vain after which there is no other.
const ENOUGH: u32 = 2;

/// Units that nothing cures, by their first byte, and how often that was found.
#[derive(Debug, Default)]
pub(crate) struct Hopeless(BTreeMap<u64, (Evidence, u32)>);

/// What a unit and its parts are, and may have been by parity: two sums of that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Evidence(u32, u32);

impl Evidence {
    /// With some bytes more.
    fn and(self, bytes: &[u8]) -> Self {
        let len = (bytes.len() as u64).to_le_bytes();
        let Self(crc, adler) = self;
        Self(crc32c(crc32c(crc, &len), bytes), adler32(adler32(adler, &len), bytes))
    }
}

impl Hopeless {
    /// Whether a unit was searched for a cure in vain, by the same evidence.
    pub(crate) fn is(&self, unit: &Unit, evidence: Evidence) -> bool {
        self.0.get(&unit.range().0).is_some_and(|known| *known == (evidence, ENOUGH))
    }

    /// It was.
    pub(crate) fn note(&mut self, unit: &Unit, evidence: Evidence) {
        if self.0.len() >= UNITS_MAX {
            self.0.clear();
        }
        let known = self.0.entry(unit.range().0).or_insert((evidence, 0));
        let times = if known.0 == evidence { known.1 + 1 } else { 1 };
        *known = (evidence, times.min(ENOUGH));
    }

    /// A new pass tries everything again.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

impl<M: Medium> Shared<M> {
    /// What there is to find a cure of a unit by. Its columns are held. (Those of the first granule
    /// of its object are not: a cure that this spoils is found by the next who looks.)
    pub(crate) fn evidence(
        &self,
        repairer: &mut Repairer,
        unit: &Unit,
        parts: &[Part],
    ) -> Evidence {
        let has_q = parts.first().and_then(|part| self.zone_of(part.at)).is_some_and(Zone::has_q);
        let since = if has_q { repairer.installs } else { 0 };
        let mut evidence = Evidence::default().and(&since.to_le_bytes());
        for part in parts.iter().copied().chain(first_of(unit)) {
            evidence = evidence.and(&part.at.to_le_bytes()).and(&part.len.to_le_bytes());
            evidence = evidence.and(&current(self, &part).unwrap_or_default());
            for may_be in self.range_candidates(repairer, part.at, part.len, &self.exempt()) {
                evidence = evidence.and(&may_be);
            }
        }
        evidence
    }
}
