//! Fail-the-nth: makes one call, or every call from one on, fail.

/// How long a failure lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailMode {
    /// Only that call fails.
    Once,
    /// That call and all after it fail.
    Forever,
}

/// Counts the calls that may fail.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    calls: u64,
    failing: Option<(u64, FailMode)>,
}

impl Gate {
    /// Counts a call; whether it is to fail.
    pub(crate) fn fails(&mut self) -> bool {
        self.calls += 1;
        match self.failing {
            None => false,
            Some((nth, FailMode::Once)) => self.calls == nth,
            Some((nth, FailMode::Forever)) => self.calls >= nth,
        }
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    pub(crate) fn set(&mut self, failing: Option<(u64, FailMode)>) {
        self.failing = failing;
    }
}
