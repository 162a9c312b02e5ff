//! Time as a parameter: no layer above asks the system for it.

use core::fmt;
use holdfast_sync::time::Instant;

/// A source of monotonic time. Whoever opens a pool gives it one; campaigns give a counter, so
/// that a run is the same every time.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use holdfast_pmem::Clock;
///
/// /// Advances a microsecond whenever it is asked.
/// #[derive(Debug, Default)]
/// struct Counter(AtomicU64);
///
/// impl Clock for Counter {
///     fn now(&self) -> u64 {
///         self.0.fetch_add(1_000, Ordering::Relaxed)
///     }
/// }
/// let clock = Counter::default();
/// assert!(clock.now() < clock.now());
/// ```
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Nanoseconds since a fixed moment; never less than an earlier answer.
    fn now(&self) -> u64;
}

/// The system's monotonic clock, counted from when this value was made.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that shows zero now.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn counts_nanoseconds() {
        let clock = SystemClock::new();
        let (begun, before) = (std::time::Instant::now(), clock.now());
        std::thread::sleep(Duration::from_millis(2));
        let passed = u128::from(clock.now() - before);
        let most = begun.elapsed().as_nanos();
        assert!((2_000_000..=most).contains(&passed), "{passed} of {most}");
    }
}
