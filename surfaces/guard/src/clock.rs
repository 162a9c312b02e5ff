//! Time of day for events, never going back.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use holdfast_pmem::Clock;

/// Nanoseconds since 1970, counted on from when it was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WallClock {
    base_ns: u64,
    start: Instant,
}

impl WallClock {
    pub(crate) fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { base_ns: u64::try_from(since.as_nanos()).unwrap_or(0), start: Instant::now() }
    }
}

impl Clock for WallClock {
    fn now(&self) -> u64 {
        let passed = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.base_ns.saturating_add(passed)
    }
}
