//! Parity patched for what is stored: what differs, and nothing read of the rows.

use holdfast_pmem::{MediaError, Medium, Site};
use holdfast_redundancy::parity::{ParitySites, Scratch, patch};

use crate::shared::Shared;

/// Names of one place in the code that patches parity.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patching {
    /// Whether it does.
    pub(crate) on: Site,
    pub(crate) parity: ParitySites,
}

impl<M: Medium> Shared<M> {
    /// Has parity follow a change of `[at, at + delta.len())` by `delta`, old XOR new. The columns
    /// are held. Flushes, does not drain.
    ///
    /// # Errors
    /// A parity page cannot be written; the other one was patched nevertheless.
    pub(crate) fn patch_parity(
        &self,
        patching: Patching,
        at: u64,
        delta: &[u8],
        scratch: &mut Scratch,
    ) -> core::result::Result<(), MediaError> {
        let Some(zone) = self.zone_of(at) else { return Ok(()) };
        if !zone.has_p() || !self.m.enabled(patching.on) {
            return Ok(());
        }
        patch(&self.m, zone, at, delta, scratch, patching.parity)
            .map_err(|e| crate::error::media_of(e, at))
    }
}
