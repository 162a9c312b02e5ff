//! Time in a model: it passes by being looked at, a microsecond each time.

use core::time::Duration;
use std::sync::atomic::{AtomicU64, Ordering};

static LOOKS: AtomicU64 = AtomicU64::new(0);

/// A moment, as often as anybody has asked for one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(u64);

impl Instant {
    /// This moment.
    #[must_use]
    pub fn now() -> Self {
        Self(LOOKS.fetch_add(1, Ordering::Relaxed))
    }

    /// What has passed since.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(Self::now().0 - self.0)
    }
}
