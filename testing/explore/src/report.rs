//! What an exploration came to, for people and for assertions.

use core::fmt;

use holdfast_faultmem::{Mode, Passed, SiteKind};
use holdfast_pmem::MediumKind;

use crate::explorer::Plan;
use crate::hinge::{Hinge, Spot, StoreAt, barrier_of, hinge, stores_at};
use crate::judge::Tally;
use crate::reduce::Reduced;
use crate::replay::{Crash, REPLAY, Replay, mode_name};

/// Stores of a sort shown at most.
const SHOWN: usize = 4;

/// A flush or a fence that was paid for and found nothing to do, at least once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redundant {
    /// Name of its site.
    pub site: &'static str,
    /// File, line and column.
    pub place: String,
    /// What it is.
    pub kind: SiteKind,
    /// How often it was passed.
    pub passed: u64,
    /// How often for nothing.
    pub idle: u64,
}

impl Redundant {
    /// Whether it never had anything to do.
    #[must_use]
    pub const fn always(&self) -> bool {
        self.idle == self.passed
    }
}

/// What was explored, and the shortest failure.
#[derive(Debug, Clone)]
pub struct Report {
    /// Name of the explorer.
    pub name: String,
    /// Sequences of operations run, once for each mode.
    pub sequences: u64,
    /// Instants whose images were listed.
    pub instants: u64,
    /// Different images recovered and checked that a crash of an operation left.
    pub images: u64,
    /// The same, left by crashes of recoveries, by depth from 1 on.
    pub nested: Vec<u64>,
    /// Flushes and fences that had nothing to do, those that never had first. That some had nothing
    /// to do after this crash or that is no fault: recoveries do again what may be done.
    pub redundant: Vec<Redundant>,
    /// Names of all sites passed that can be switched off, and do something on this kind of medium.
    pub sites: Vec<(&'static str, SiteKind)>,
    /// The shortest failure, if there is one.
    pub failure: Option<Failure>,
    /// Why nothing was looked at, a replay line that does not fit among the reasons, and what to do
    /// about it; `None` if something was.
    pub nothing: Option<String>,
    /// Every place of `sites` by its line.
    pub(crate) places: Vec<Passed>,
    /// What the environment asked for.
    pub(crate) asked: Asked,
}

/// What of an explorer is asked for by the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Asked {
    /// All of it: there is no replay line.
    #[default]
    All,
    /// What a line of its name says.
    Line,
    /// Nothing: the line is of another name.
    Nothing,
}

/// A failure, reduced to what it needs.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Names of the operations, in order; the crash hits the last one.
    pub sequence: Vec<String>,
    /// What the check, the recovery or the operation said.
    pub why: String,
    /// How finely the crash tears.
    pub mode: Mode,
    /// The fence or other barrier that each crash came just before, outermost first; `None` for
    /// one after the end of the operation or recovery. Empty if it fails without a crash.
    pub crashes: Vec<Option<Spot>>,
    /// Stores that had to have arrived when the innermost crash hit.
    pub arrived: Vec<StoreAt>,
    /// Stores that had to be missing.
    pub missing: Vec<StoreAt>,
    /// What is wrong with them.
    pub hinge: Hinge,
    /// Of a failure by words: whether the sequence fails as well where each line of the cache
    /// holds a prefix of its stores, as on x86 today. `None` if nobody looked.
    pub on_x86: Option<bool>,
    /// Whether the sequence passes with a flush and a fence where the hinge misses them, which was
    /// tried; `None` if the hinge is something else.
    pub mended: Option<bool>,
    /// Names this failure.
    pub replay: Replay,
}

impl Report {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self::of(plan, &Tally::default(), 0)
    }

    pub(crate) fn of(plan: &Plan, tally: &Tally, sequences: u64) -> Self {
        let paid = tally.paid.iter().filter(|(_, (_, idle))| *idle > 0);
        let redundant = paid.map(|(&(site, kind, (file, line, column)), &(passed, idle))| {
            let place = format!("{file}:{line}:{column}");
            Redundant { site, place, kind, passed, idle }
        });
        let mut redundant: Vec<Redundant> = redundant.collect();
        redundant.sort_by_key(|one| !one.always());
        let places = tally.places.iter().filter(|(_, kind, _)| !is_passive(*kind, plan.kind));
        let places: Vec<Passed> = places.copied().collect();
        let mut sites: Vec<_> = places.iter().map(|(site, kind, _)| (site.name(), *kind)).collect();
        sites.dedup();
        Self {
            name: plan.name.clone(),
            sequences,
            instants: tally.instants,
            images: tally.images[0],
            nested: tally.images[1..].to_vec(),
            redundant,
            sites,
            failure: None,
            nothing: None,
            places,
            asked: Asked::All,
        }
    }

    /// Whether something was looked at and nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.failure.is_none() && self.nothing.is_none()
    }

    /// For tests: something was looked at and nothing was found; or a replay line asks for another
    /// explorer, which the test may come to. Then the report goes to the standard error.
    ///
    /// # Panics
    /// With the whole report, if that is not so.
    pub fn assert_clean(&self) {
        if self.asked == Asked::Nothing {
            eprint!("{self}");
        } else {
            assert!(self.is_clean(), "{self}");
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nested: Vec<String> = self.nested.iter().map(ToString::to_string).collect();
        writeln!(
            f,
            "{}: {} sequences, {} instants, {} images, nested {}",
            self.name,
            self.sequences,
            self.instants,
            self.images,
            nested.join(" + ")
        )?;
        for one in self.redundant.iter().filter(|one| one.always()) {
            let what = match one.kind {
                SiteKind::Drain => "fence",
                SiteKind::Sync => "sync",
                _ => "flush",
            };
            let other = one.site != one.place;
            let name = if other { format!(" ({})", one.site) } else { String::new() };
            writeln!(f, "  redundant {what}: {}{name}, {} times", one.place, one.passed)?;
        }
        if let Some(nothing) = &self.nothing {
            writeln!(f, "  NOTHING was explored: {nothing}")?;
        }
        self.failure.as_ref().map_or(Ok(()), |failure| write!(f, "{failure}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  FAILED: {}", self.why)?;
        if let Some(off) = &self.replay.off {
            writeln!(f, "  switched off: {off}")?;
        }
        writeln!(f, "  shortest sequence: {}", self.sequence.join(", "))?;
        for (depth, crash) in self.crashes.iter().enumerate() {
            let whose = if depth == 0 { "last operation" } else { "recovery" };
            match crash {
                Some(spot) => writeln!(f, "  crash in the {whose}, just before {spot}")?,
                None => writeln!(f, "  crash after the {whose}")?,
            }
        }
        for (what, stores) in [("arrived", &self.arrived), ("missing", &self.missing)] {
            for store in stores.iter().take(SHOWN) {
                writeln!(f, "    {what}: store at {}, byte {:#x}", store.spot, store.at)?;
            }
            if stores.len() > SHOWN {
                writeln!(f, "    {what}: {} more", stores.len() - SHOWN)?;
            }
        }
        writeln!(f, "  hinge: {}", self.hinge)?;
        if let (Some(spot), Some(mended)) = (self.hinge.cure(), self.mended) {
            let so = if mended { "passes" } else { "still fails, for another reason" };
            writeln!(f, "  tried: flushed and fenced before {spot}, the sequence {so}")?;
        }
        let x86 = match self.on_x86 {
            Some(true) => ", and by lines as x86 does",
            Some(false) => ", not by lines as x86 does",
            None => "",
        };
        writeln!(f, "  torn by {}{x86}", mode_name(self.mode))?;
        writeln!(f, "  again: {REPLAY}='{}' {}", self.replay, command())
    }
}

/// What runs the test again that runs now: its thread has its name.
fn command() -> String {
    match (std::thread::current().name(), std::env::var("CARGO_PKG_NAME")) {
        (Some(test), Ok(package)) if test != "main" => {
            format!("cargo test -p {package} -- --exact {test} --nocapture")
        }
        _ => "before the same command".to_owned(),
    }
}

/// Whether switching a place off changes nothing.
fn is_passive(site: SiteKind, medium: MediumKind) -> bool {
    use SiteKind as Kind;
    match site {
        Kind::Step | Kind::Grow | Kind::Store => true,
        // A page cache writes back by itself: nothing needs a flush, and a fence orders nothing.
        Kind::Put | Kind::Flush | Kind::Xor | Kind::Zero | Kind::Drain => {
            medium == MediumKind::File
        }
        Kind::Append | Kind::Sync | Kind::Enabled | Kind::Heal => false,
    }
}

/// Puts a failure into words.
pub(crate) fn explain(
    plan: &Plan,
    names: Vec<String>,
    sequence: Vec<usize>,
    mode: Mode,
    reduced: &Reduced,
) -> Failure {
    let mut failure = Failure {
        sequence: names,
        why: reduced.why.clone(),
        mode,
        crashes: reduced.levels.iter().map(barrier_of).collect(),
        arrived: Vec::new(),
        missing: Vec::new(),
        hinge: Hinge::Recovery { fence: None },
        on_x86: None,
        mended: None,
        replay: Replay {
            name: plan.name.clone(),
            mode,
            sequence,
            off: plan.elided.clone(),
            crashes: Vec::new(),
        },
    };
    failure.replay.crashes = reduced
        .levels
        .iter()
        .map(|level| Crash {
            instant: level.instant,
            arrived: level.picks.iter().map(|pick| (pick.at, pick.state)).collect(),
            missing: None,
        })
        .collect();
    if let Some(innermost) = failure.replay.crashes.last_mut() {
        let missing = reduced.missing.iter().map(|store| (store.at, store.state));
        innermost.missing = Some(missing.collect());
    }
    if let Some(last) = reduced.levels.last() {
        failure.arrived = stores_at(last, &reduced.arrived, plan.kind);
        failure.missing = stores_at(last, &reduced.missing, plan.kind);
        failure.hinge = hinge(last, &failure.arrived, &failure.missing, reduced.both_ways);
    }
    failure
}
