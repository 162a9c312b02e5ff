//! Every named place that was passed, and those that are switched off.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_pmem::Site;

/// What happens at a named place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SiteKind {
    /// A store with its flush. Switched off: stored, not flushed.
    Put,
    /// A store without its flush. Nothing to switch off.
    Store,
    /// The flush of a range, apart from its stores. Switched off: skipped.
    Flush,
    /// An XOR into the medium with its flush. Switched off: changed, not flushed.
    Xor,
    /// Zeroing with its flush. Switched off: zeroed, not flushed.
    Zero,
    /// A drain. Switched off: skipped; what was flushed waits for the next one.
    Drain,
    /// A write through the file that returns once durable. Switched off: not made durable.
    Append,
    /// A sync of everything. Switched off: skipped.
    Sync,
    /// A step that the program asks about (`enabled`). Switched off: the answer is no.
    Enabled,
    /// A step of a protocol that only tests see. Nothing to switch off.
    Step,
    /// The rewrite of a page. Switched off: written, not made durable; a page that was bad is good
    /// as long as the program runs, and every crash finds it bad, whatever is drained or synced.
    Heal,
    /// Growth of the medium, which carries no name of its own.
    Grow,
}

/// Names passed and names switched off.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    seen: BTreeMap<(Site, SiteKind), u64>,
    off: BTreeSet<String>,
}

impl Sites {
    /// Records a visit; whether the place is in force.
    pub(crate) fn visit(&mut self, site: Site, kind: SiteKind) -> bool {
        *self.seen.entry((site, kind)).or_default() += 1;
        !self.is_off(site)
    }

    pub(crate) fn is_off(&self, site: Site) -> bool {
        !self.off.is_empty() && self.off.contains(site.name())
    }

    pub(crate) fn switch_off(&mut self, name: &str) {
        self.off.insert(name.to_owned());
    }

    pub(crate) fn restore(&mut self) {
        self.off.clear();
    }

    /// Visits by place, ordered by name.
    pub(crate) fn seen(&self) -> Vec<(Site, SiteKind, u64)> {
        self.seen.iter().map(|(&(site, kind), &count)| (site, kind, count)).collect()
    }
}
