//! Wrong variants of what a row checks, which the row's own judges must convict: a place of the
//! engine is switched off, or a lie is told between the engine and the judge.
//!
//! The first cases of a row play them, one each: as the others, but briefly, and again until the
//! variant is convicted. The same story without anything wrong must then show nothing wrong.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use holdfast_redundancy::Wrong as Found;
use holdfast_redundancy::events::{Cause, Event, Finder, Outcome};

use crate::runner::{Case, panic_text};
use crate::tally::{Fault, Tally, Violation};

/// A lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// The journal says nothing.
    Silent,
    /// The journal also says something of bytes that nothing damaged.
    Accuses,
    /// The journal speaks of other bytes.
    Elsewhere,
    /// The journal also says something of bytes that were damaged once, and mended since.
    Again,
    /// Of two places the journal names one.
    OneOfTwo,
    /// The journal calls repaired whatever it speaks of.
    Mended,
    /// A repair changed a byte that nothing damaged.
    Reverts,
    /// A wrong byte is served.
    WrongByte,
    /// A map serves a wrong byte.
    WrongEntry,
    /// An object that nothing damaged is said to be lost.
    Neighbour,
    /// Who only looks, or refuses to open, changes the pool.
    Scribbles,
    /// The program panics.
    Panics,
    /// The program ends before anybody kills it.
    Dies,
    /// A media error is not counted.
    Unheard,
    /// A page that was repaired is bad again.
    StaysBad,
    /// What was refused counts as acknowledged.
    Claims,
    /// Who must not write any more does.
    WritesOn,
    /// What was acknowledged, or certain, is gone.
    Forgets,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// A place of the engine is switched off.
    Site(&'static str),
    /// A lie is told.
    Lie(Lie),
}

/// A wrong variant.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// What is wrong.
    pub wrong: Wrong,
    /// The same in words.
    pub name: &'static str,
    /// How it has to be found, if that is not left open.
    pub seen_as: Option<Fault>,
    /// Where it shows, in words of its row; empty if that does not matter.
    pub bed: &'static str,
    /// Recoveries that must have been crashed, one in the other, before a place is switched off.
    pub from: u32,
}

/// A place that is switched off; any wrong state that a judge sees will do.
#[must_use]
pub const fn site(site: &'static str, name: &'static str) -> Variant {
    Variant { wrong: Wrong::Site(site), name, seen_as: None, bed: "", from: 0 }
}

/// A lie, and what it has to be convicted of.
#[must_use]
pub const fn lie(lie: Lie, name: &'static str, seen_as: Fault) -> Variant {
    Variant { wrong: Wrong::Lie(lie), name, seen_as: Some(seen_as), bed: "", from: 0 }
}

/// Figure: wrong variants.
pub const TRIED: &str = "wrong variants";
/// Figure: of these, convicted.
pub const CONVICTED: &str = "wrong variants convicted";
/// Stories in which a variant has to be convicted.
const PATIENCE: u64 = 12;

thread_local! {
    /// The lie that is told on this thread.
    static TOLD: Cell<Option<Lie>> = const { Cell::new(None) };
    /// The place of the engine that is switched off in all worlds of this thread.
    static OFF: Cell<Option<&'static str>> = const { Cell::new(None) };
    /// Recoveries that must have been crashed before either is,
    static FROM: Cell<u32> = const { Cell::new(0) };
    /// and those that have been.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The place of the engine that is switched off here and now.
#[must_use]
pub fn off() -> Option<&'static str> {
    OFF.get().filter(|_| DEPTH.get() >= FROM.get())
}

/// Does what follows the crash of a recovery.
pub fn deeper<T>(what: impl FnOnce() -> T) -> T {
    /// Counts back, also if it panics.
    struct Back(u32);
    impl Drop for Back {
        fn drop(&mut self) {
            DEPTH.set(self.0);
        }
    }
    let depth = DEPTH.get();
    let _back = Back(depth);
    DEPTH.set(depth + 1);
    what()
}

/// Does something without any lie, and with nothing switched off: what is convicted there says
/// nothing of what follows.
pub fn straight<T>(what: impl FnOnce() -> T) -> T {
    /// Goes on with it, also after a panic.
    struct Back(Option<Lie>, Option<&'static str>);
    impl Drop for Back {
        fn drop(&mut self) {
            TOLD.set(self.0);
            OFF.set(self.1);
        }
    }
    let _back = Back(TOLD.take(), OFF.take());
    what()
}

/// Whether this lie is to be told here and now.
#[must_use]
pub fn told(lie: Lie) -> bool {
    TOLD.get() == Some(lie) && DEPTH.get() >= FROM.get()
}

/// Makes a byte of what was served a wrong one, if that lie is told.
pub fn serve_as_told(served: &mut [u8]) {
    if told(Lie::WrongByte)
        && let Some(byte) = served.last_mut()
    {
        *byte ^= 1;
    }
}

/// Whether anything is wrong on purpose: what comes of it is nothing to keep.
#[must_use]
pub fn is_on_purpose() -> bool {
    TOLD.get().is_some() || OFF.get().is_some()
}

/// Tells a lie as long as it lives.
struct Telling;

impl Drop for Telling {
    fn drop(&mut self) {
        TOLD.set(None);
        OFF.set(None);
        FROM.set(0);
    }
}

/// Plays a case of a row that begins with wrong variants: one of these with `wrong`, in worlds in
/// which its place is switched off; of others `right`, with the number that is left without these.
pub fn or_right(
    variants: &[Variant],
    case: &Case,
    wrong: impl Fn(&Variant, &Case) -> Tally,
    right: impl FnOnce(&Case) -> Tally,
) -> Tally {
    match variants.get(case.number as usize) {
        Some(variant) => variant.convict(case, |case| wrong(variant, case)),
        None => right(&Case { number: case.number - variants.len() as u64, ..*case }),
    }
}

impl Variant {
    fn is_convicted(&self, seen: &Violation) -> bool {
        match self.seen_as {
            Some(fault) => seen.fault == fault,
            None => seen.fault.is_wrong_state(),
        }
    }

    fn convict(&self, case: &Case, play: impl Fn(&Case) -> Tally) -> Tally {
        let mut tally = Tally::default();
        tally.add(TRIED, 1);
        let seed = case.rng(1).next_u64();
        let (mut other, mut skipped) = (None, Vec::new());
        for number in 0..PATIENCE {
            let story = Case { seed, number, ..*case };
            let mut seen = self.played(&story, &play);
            seen.lines.retain(|line| line.contains("skipped: "));
            skipped.append(&mut seen.lines);
            let Some(found) = seen.violations.iter().find(|seen| self.is_convicted(seen)) else {
                other = other.or_else(|| seen.violations.into_iter().next());
                continue;
            };
            let control = play(&story);
            if let Some(violation) = control.violations.into_iter().next() {
                tally.convict(violation.during(format!("{}, but nothing is wrong", self.name)));
                return tally;
            }
            let what: String = found.story.chars().take(110).collect();
            let what = what.lines().next().unwrap_or_default();
            tally.lines.push(format!("{:<44} {:?}: {what}", self.name, found.fault));
            tally.add(CONVICTED, 1);
            return tally;
        }
        if other.is_none() && skipped.len() as u64 == PATIENCE {
            // What cannot be done here convicts nobody; that it cannot is told.
            skipped.truncate(1);
            return Tally { lines: skipped, ..Tally::default() };
        }
        let other =
            other.map_or_else(String::new, |it| format!("; but {:?}: {}", it.fault, it.story));
        let story = format!("{}: {PATIENCE} stories and no conviction{other}", self.name);
        tally.convict(Violation::new(Fault::Unnoticed, story));
        tally
    }

    fn played(&self, case: &Case, play: impl Fn(&Case) -> Tally) -> Tally {
        let (off, lie) = match self.wrong {
            Wrong::Site(site) => (Some(site), None),
            Wrong::Lie(lie) => (None, Some(lie)),
        };
        TOLD.set(lie);
        OFF.set(off);
        FROM.set(self.from);
        let _telling = Telling;
        catch_unwind(AssertUnwindSafe(|| play(case))).unwrap_or_else(|panic| {
            let mut tally = Tally::default();
            tally.convict(Violation::new(Fault::Panicked, panic_text(&*panic)));
            tally
        })
    }
}

/// A row has enough of them, and none twice; or it cannot be built.
pub const fn are_enough(variants: &[Variant]) {
    assert!(variants.len() >= 5, "too few to show that the row sees what it looks for");
    let mut at = 0;
    while at < variants.len() {
        let mut before = 0;
        while before < at {
            assert!(!is_same(variants[before].name, variants[at].name), "one name, two of them");
            before += 1;
        }
        at += 1;
    }
}

/// Whether these are the same words, asked while something is built.
const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// An event about a place of which there was none.
pub const fn made_up((at, len): (u64, u64)) -> Event {
    Event {
        sequence: 0,
        time_ns: 0,
        cause: Cause::Sum,
        finder: Finder::Scrub,
        at,
        len,
        wrong: Some(Found::Data),
        before_sum: 0,
        after_sum: 0,
        outcome: Outcome::Repaired,
        duration_ns: 0,
        object: 0,
        verified_ns: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Tier;

    const CASE: Case = Case { seed: 1, number: 0, tier: Tier::Ci };
    const WRONG: &[Variant] = &[lie(Lie::Silent, "silent", Fault::Unnoticed)];

    fn saw(fault: Fault) -> Tally {
        let mut tally = Tally { count: 7, ..Tally::default() };
        tally.convict(Violation::new(fault, "seen"));
        tally
    }

    #[test]
    fn who_is_convicted_is_told_and_adds_nothing_to_what_the_row_counts() {
        let play = |_: &Variant, case: &Case| match told(Lie::Silent) && case.number == 3 {
            true => saw(Fault::Unnoticed),
            false => Tally::default(),
        };
        let tally = or_right(WRONG, &CASE, play, |_| saw(Fault::Wrong));
        assert_eq!((tally.count, tally.violated(), tally.lines.len()), (0, 0, 1));
        assert_eq!(tally.figures, [(TRIED.to_owned(), 1), (CONVICTED.to_owned(), 1)].into());
        assert!(!told(Lie::Silent), "the lie has an end");
        TOLD.set(Some(Lie::Silent));
        assert!(!straight(|| told(Lie::Silent)) && told(Lie::Silent), "it rests");
        TOLD.set(None);
    }

    #[test]
    fn who_is_not_convicted_or_of_something_else_is_a_violation() {
        let nothing = or_right(WRONG, &CASE, |_, _| Tally::default(), |_| Tally::default());
        assert_eq!((nothing.violated(), nothing.figures.get(CONVICTED)), (1, None));
        let other = or_right(WRONG, &CASE, |_, _| saw(Fault::Wrong), |_| Tally::default());
        assert_eq!(other.violated(), 1);
        let panics = or_right(WRONG, &CASE, |_, _| panic!("it died"), |_| Tally::default());
        assert!(panics.violations[0].story.contains("it died"), "{panics:?}");
    }

    #[test]
    fn a_story_that_shows_something_when_nothing_is_wrong_convicts_nobody() {
        let tally = or_right(WRONG, &CASE, |_, _| saw(Fault::Unnoticed), |_| Tally::default());
        assert_eq!((tally.violated(), tally.figures.get(CONVICTED)), (1, None));
    }

    #[test]
    fn what_cannot_be_played_here_is_told() {
        let play = |_: &Variant, _: &Case| Tally {
            lines: vec!["case 1 skipped: there is no /dev/shm".to_owned()],
            ..Tally::default()
        };
        let tally = or_right(WRONG, &CASE, play, |_| Tally::default());
        assert_eq!((tally.violated(), tally.lines.len(), tally.figures.len()), (0, 1, 0));
    }

    #[test]
    fn other_cases_have_the_numbers_they_had() {
        let case = Case { number: 4, ..CASE };
        let right = |case: &Case| Tally { count: case.number, ..Tally::default() };
        assert_eq!(or_right(WRONG, &case, |_, _| saw(Fault::Wrong), right).count, 3);
    }
}
