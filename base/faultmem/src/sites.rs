//! Every named place that was passed, and those that are switched off.

use core::panic::Location;
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

impl SiteKind {
    /// The word for it behind the name of a place, as in `object.commit.data:put`.
    const fn word(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Store => "store",
            Self::Flush => "flush",
            Self::Xor => "xor",
            Self::Zero => "zero",
            Self::Drain => "drain",
            Self::Append => "append",
            Self::Sync => "sync",
            Self::Enabled => "enabled",
            Self::Step => "step",
            Self::Heal => "heal",
            Self::Grow => "grow",
        }
    }

    /// The name of what happens at a place, as [`FaultMedium::elide_name`] understands it.
    ///
    /// [`FaultMedium::elide_name`]: crate::FaultMedium::elide_name
    #[must_use]
    pub fn at(self, site: Site) -> String {
        format!("{site}:{}", self.word())
    }
}

/// A name that was passed: what happened there, and where in the source that is.
pub type Passed = (Site, SiteKind, &'static Location<'static>);

/// What is wrong with names as they were passed: of deeds as [`SiteKind::at`] names them, each with
/// its line in the source, those done at several lines under one name, and those done beside
/// another one under the same name and not among the `tried`.
#[must_use]
pub fn told_apart<'a>(
    passed: impl IntoIterator<Item = (&'a str, &'a str)>,
    tried: impl Fn(&str) -> bool,
) -> Vec<String> {
    type Deeds<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;
    let mut names: BTreeMap<&str, Deeds<'_>> = BTreeMap::new();
    for (deed, line) in passed {
        let name = deed.split(':').next().unwrap_or(deed);
        names.entry(name).or_default().entry(deed).or_default().insert(line);
    }
    let mut wrong = Vec::new();
    for (name, deeds) in names {
        for (deed, lines) in &deeds {
            if lines.len() > 1 {
                let lines: Vec<&str> = lines.iter().copied().collect();
                wrong.push(format!("{deed} is one name for {}", lines.join(" and ")));
            }
            if deeds.len() > 1 && !tried(deed) {
                wrong.push(format!("{deed} is not tried apart from what else {name} does"));
            }
        }
    }
    wrong
}

/// Names passed and names switched off.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    seen: BTreeMap<Passed, u64>,
    /// Names of places, with or without a kind behind them, and a line behind that.
    off: BTreeSet<String>,
    /// Whether any of them has a line.
    by_line: bool,
}

/// The name of what happens at one line of the source, as
/// [`FaultMedium::elide_name`](crate::FaultMedium::elide_name) understands it.
#[must_use]
pub fn at_line((site, kind, place): Passed) -> String {
    format!("{}@{place}", kind.at(site))
}

impl Sites {
    /// Records a visit; whether the place is in force.
    pub(crate) fn visit(
        &mut self,
        site: Site,
        kind: SiteKind,
        place: &'static Location<'static>,
    ) -> bool {
        *self.seen.entry((site, kind, place)).or_default() += 1;
        !self.is_off((site, kind, place))
    }

    pub(crate) fn is_off(&self, passed: Passed) -> bool {
        let (site, kind, _) = passed;
        !self.off.is_empty()
            && (self.off.contains(site.name())
                || self.off.contains(&kind.at(site))
                || self.by_line && self.off.contains(&at_line(passed)))
    }

    pub(crate) fn switch_off(&mut self, name: &str) {
        self.by_line |= name.contains('@');
        self.off.insert(name.to_owned());
    }

    pub(crate) fn restore(&mut self) {
        self.off.clear();
        self.by_line = false;
    }

    /// Visits by name and kind, ordered by name.
    pub(crate) fn seen(&self) -> Vec<(Site, SiteKind, u64)> {
        let mut all: BTreeMap<(Site, SiteKind), u64> = BTreeMap::new();
        for (&(site, kind, _), count) in &self.seen {
            *all.entry((site, kind)).or_default() += count;
        }
        all.into_iter().map(|((site, kind), count)| (site, kind, count)).collect()
    }

    /// Everything that was passed, once, ordered by name.
    pub(crate) fn passed(&self) -> impl Iterator<Item = Passed> {
        self.seen.keys().copied()
    }
}
