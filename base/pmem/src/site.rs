//! Names for the places in the code that persistence and integrity hang on.

use core::fmt;

/// The name of one flush, drain, sync, checksum, parity, verify or protocol step in the code,
/// such as `object.commit.F1`. Names are unique per place; `xtask tidy` lists them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site(&'static str);

impl Site {
    /// Names a place. Write it as a literal at the place itself, or as a `const` next to it.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
