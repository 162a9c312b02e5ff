//! A commit whose stores may still be on their way: visible to all, in the record, but not known
//! to be on the medium. Its number stays under way until they are.
//!
//! The thread that stored waits for them at its lane's next commit, when they have long arrived.
//! Anybody else who needs the number out of the way flushes the ranges again and drains.

/// Ranges that can be kept; a commit with more waits at once.
pub const DEFERRED_MAX: usize = 32;

/// What the last commit of a lane left to be drained.
#[derive(Debug, Clone, Copy)]
pub struct Deferred {
    count: usize,
    /// Ranges noted before it is known whether they are left to be drained.
    noted: usize,
    ranges: [(u64, u32); DEFERRED_MAX],
}

impl Default for Deferred {
    fn default() -> Self {
        Self { count: 0, noted: 0, ranges: [(0, 0); DEFERRED_MAX] }
    }
}

impl Deferred {
    /// Whether a commit left anything.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.count > 0
    }

    /// Notes where the stores of the commit under way will go.
    #[inline]
    pub(crate) fn note(&mut self, ranges: impl Iterator<Item = (u64, u32)>) {
        let mut noted = 0;
        for (place, range) in self.ranges.iter_mut().zip(ranges) {
            *place = range;
            noted += 1;
        }
        (self.count, self.noted) = (0, noted);
    }

    /// What was noted is left to be drained.
    #[inline]
    pub(crate) fn leave(&mut self) {
        self.count = self.noted;
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// Where they went: place and length, each within a page.
    #[must_use]
    pub fn ranges(&self) -> &[(u64, u32)] {
        &self.ranges[..self.count]
    }
}
