//! Time of day that never goes back, so that events of a pool say when they were.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use holdfast_pmem::Clock;

/// Nanoseconds since 1970 as the system had them when this value was made, counted on from there
/// by its monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct WallClock {
    base_ns: u64,
    start: Instant,
}

impl WallClock {
    /// A clock that shows the time of day.
    #[must_use]
    pub fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { base_ns: u64::try_from(since.as_nanos()).unwrap_or(0), start: Instant::now() }
    }
}

impl Default for WallClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for WallClock {
    fn now(&self) -> u64 {
        let passed = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.base_ns.saturating_add(passed)
    }
}
