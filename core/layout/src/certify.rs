//! The one place where a sum that was stored is held against the sum of the bytes found.
//!
//! Who reads from a medium asks it whether the place in the code that verifies is switched on, and
//! hands the answer down: a test that switches the place off must then see wrong content believed,
//! or the verification was superfluous. On a real medium the answer is a constant.

/// Whether sums decide what is believed, or count as right whatever they say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Certify(bool);

impl Certify {
    /// Sums decide if `enabled`, which is what the medium says of the place that verifies.
    #[inline(always)]
    #[must_use]
    pub const fn when(enabled: bool) -> Self {
        Self(enabled)
    }

    /// Whether the sum `stored` certifies bytes whose sum is `found`.
    #[inline(always)]
    #[must_use]
    pub const fn agrees(self, stored: u32, found: u32) -> bool {
        stored == found || !self.0
    }
}
