//! Regions that are stored to in full in each period: protecting their pages again gains nothing.
//!
//! A page that is taken costs the next store to it a fault, and is covered until then. Where every
//! page is stored to many times between two passes, that is a moment; all that is left of the
//! taking are the faults. So such a region is *left open*: a pass covers it and takes nothing. The
//! source goes on telling all of its pages, so whatever asks it treats them as what they are, pages
//! that may be stored to at any time.
//!
//! ```text
//!  pass        1          2           3           4
//!  told        all        all         all         all
//!  changed     all        all         all         not page 7
//!              taken      left open   left open   left open; then taken, and looked at again
//! ```
//!
//! That all pages of a region are changed in a period by chance, though each is stored to rarely,
//! is next to impossible: with 256 pages, each stored to so many times on average, that has one
//! chance in two at six stores to a page. Two periods in succession are asked for.
//!
//! What it costs: of a page that is not stored to any more, its last store is covered in such a way
//! that damage is told from a store one pass later than otherwise: in the pass that finds it
//! unchanged. [`Rearm::All`] is without that.

/// Which pages a pass protects again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rearm {
    /// All that were stored to, but for those of regions that are stored to in full each time.
    #[default]
    WhereItPays,
    /// All that were stored to.
    All,
}

/// How busy a region was in the last passes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Busy {
    /// The last pass found all of its pages changed.
    full: bool,
    /// It is open since then.
    open: bool,
    /// When it was last looked at.
    looked_ns: u64,
}

impl Busy {
    /// Whether it may be left open if it is told in full once more.
    pub(crate) const fn may_stay_open(self) -> bool {
        self.full
    }

    /// Whether it was left open, and should not have been.
    pub(crate) const fn is_quiet(self) -> bool {
        self.open && !self.full
    }

    /// The source was asked, at `now_ns`, and the region left open or not. Answers since when there
    /// may be stores that are not covered: what was stored before an open region was last looked
    /// at, and is not there any more, has been overwritten since.
    pub(crate) const fn asked(&mut self, open: bool, now_ns: u64) -> u64 {
        let since = if open { self.looked_ns } else { now_ns };
        (self.open, self.looked_ns) = (open, now_ns);
        since
    }

    /// A pass has looked at it: `all` of its pages had changed.
    pub(crate) const fn looked(&mut self, all: bool) {
        self.full = all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_stays_open_while_all_of_it_changes() {
        let mut busy = Busy::default();
        assert!(!busy.may_stay_open() && !busy.is_quiet());
        assert_eq!(busy.asked(false, 10), 10);
        busy.looked(true);
        assert!(busy.may_stay_open() && !busy.is_quiet());
        assert_eq!(busy.asked(true, 20), 10);
        busy.looked(true);
        assert!(!busy.is_quiet());
        assert_eq!(busy.asked(true, 30), 20);
        busy.looked(false);
        assert!(busy.is_quiet() && !busy.may_stay_open());
        assert_eq!(busy.asked(false, 31), 31);
        busy.looked(false);
        assert!(!busy.is_quiet() && !busy.may_stay_open());
    }
}
