//! Keeping everybody from writing to a part of the log, for as long as it is moved.

use holdfast_sync::MutexGuard;

use holdfast_pmem::Medium;

use crate::group::Inner;
use crate::lanes::{Lane, Log};

/// Rounds a lane's holder is waited for. Commits take microseconds; one that takes longer may be
/// waiting for the very repair that asks.
const ROUNDS: u32 = holdfast_sync::patience(10_000);

/// While this lives, nobody writes to the range it was made for.
#[must_use = "writing goes on as soon as this is dropped"]
pub struct Still<'a> {
    _lanes: Vec<Lane<'a>>,
    _group: Option<(MutexGuard<'a, ()>, MutexGuard<'a, Inner>)>,
}

impl core::fmt::Debug for Still<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Still").field("lanes", &self._lanes.len()).finish_non_exhaustive()
    }
}

impl Log {
    /// Keeps everybody from writing to what of the log lies in `[at, at + len)`. `None` if a lane
    /// with a ring there stays held: try again later, holding nothing its holder may wait for. The
    /// caller holds no lane.
    pub fn hold_still<M: Medium>(&self, m: &M, at: u64, len: u64) -> Option<Still<'_>> {
        if let Some(group) = self.group() {
            return Some(Still { _lanes: Vec::new(), _group: Some(group.hold_still()) });
        }
        let mut lanes = Vec::new();
        for lane in (0..self.lanes()).filter(|lane| self.lies_in(*lane, at, len)) {
            let held = (0..ROUNDS).find_map(|round| {
                if round > 0 {
                    holdfast_sync::thread::yield_now();
                }
                self.acquire_exact(m, lane)
            });
            lanes.push(held?);
        }
        Some(Still { _lanes: lanes, _group: None })
    }
}
