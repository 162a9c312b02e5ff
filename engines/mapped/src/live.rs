//! What whoever keeps a file tells of it while it is in use: a row of numbers, which both ends of a
//! connection write and read by the same list.
//!
//! Other processes know what is on the medium only: which pages were stored to since the last pass
//! is known to the source, and that belongs to whoever keeps the file. What comes back from there
//! is hostile: lists have a longest length, parts are never more than the whole, and a row with a
//! number too few or too many is none.

use std::collections::BTreeSet;

use holdfast_pmem::track::{DirtySource, SourceKind};
use holdfast_pmem::{Medium, PAGE};
use holdfast_redundancy::events::{Event, Outcome};
use holdfast_redundancy::{PageVerdict, Unsure, Wrong};

use crate::coverage::Coverage;
use crate::engine::{Counts, Mapped};
use crate::error::Result;
use crate::options::Folios;
use crate::scrub::Scrubbed;
use crate::trace::{PAGES_MAX, SHARES_KEPT, Share};

/// Reasons there are at the most.
const REASONS: usize = 16;
/// First word of a row: both ends are of one build, or do not believe each other.
const VERSION: &str = "holdfast-kept-2";
/// Words of a row at the most.
const WORDS: usize = 512;
/// Pages that were found damaged and are looked at once more when somebody asks; of others, what
/// was found counts.
const AGAIN: usize = 4096;
/// Longest text of a row, in bytes.
pub const TEXT_MAX: usize = WORDS * 21;
/// Ways to notice stores, by their number in a row.
const KINDS: [SourceKind; 5] = [
    SourceKind::AsyncProtect,
    SourceKind::SoftDirty,
    SourceKind::FirstStore,
    SourceKind::Notified,
    SourceKind::Controller,
];

/// How a file is kept: what only whoever keeps it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keeping {
    /// By a guard, for a program that knows nothing of it.
    pub guards: bool,
    /// Time between two passes, in nanoseconds.
    pub period_ns: u64,
    /// The longest that a store can have waited until it was covered, so far; 0 if that is not
    /// measured.
    pub longest_ns: u64,
    /// How stores are noticed.
    pub tracking: SourceKind,
}

/// What scrubs found: the last look at the whole file, or the first one as far as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Pages looked at.
    pub pages: u64,
    /// Pages that were good.
    pub good: u64,
    /// Pages that had been stored to since they were covered.
    pub uncovered: u64,
    /// Damaged pages.
    pub corrupt: u64,
    /// Of those, pages that are right again.
    pub repaired: u64,
    /// Of those, pages that parity could not give back.
    pub lost: u64,
    /// Pages in doubt.
    pub undecided: u64,
    /// When the look came to its end, in nanoseconds of the clock; 0 if none did yet.
    pub at_ns: u64,
}

impl Verdicts {
    /// Damaged pages that are not right again.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.corrupt.saturating_sub(self.repaired)
    }
}

/// Counts what the steps of scrubs find.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    now: Verdicts,
    last: Option<Verdicts>,
}

impl Tally {
    /// A step was made; `now_ns` is the time.
    pub fn add(&mut self, step: &Scrubbed, now_ns: u64) {
        let (now, report) = (&mut self.now, &step.report);
        now.pages += report.pages;
        now.good += report.good;
        now.uncovered += report.uncovered;
        now.corrupt += report.corrupt.len() as u64;
        now.repaired += step.repaired;
        now.lost += step.lost;
        now.undecided += report.undecided.len() as u64;
        if step.finished {
            self.last = Some(Verdicts { at_ns: now_ns.max(1), ..*now });
            *now = Verdicts::default();
        }
    }

    /// A look at the whole file was made, beside the steps.
    pub fn look(&mut self, done: &Scrubbed, now_ns: u64) {
        let mut whole = Self::default();
        whole.add(&Scrubbed { finished: true, ..done.clone() }, now_ns);
        self.last = whole.last;
    }

    /// What was found: by the last look at the whole file, or by the first one so far.
    #[must_use]
    pub fn verdicts(&self) -> Verdicts {
        self.last.unwrap_or(self.now)
    }
}

/// A file in use at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// When it was looked, in nanoseconds of the clock.
    pub at_ns: u64,
    /// How it is kept.
    pub keeping: Keeping,
    /// Data pages of a stripe.
    pub data: u64,
    /// Parity pages of a stripe.
    pub parity: u64,
    /// Bytes of the file that are looked after.
    pub size: u64,
    /// Bytes the file has.
    pub file_size: u64,
    /// Folio policy that was recorded.
    pub folios: Folios,
    /// Somebody untracked writes to it.
    pub contested: bool,
    /// What is covered now.
    pub coverage: Coverage,
    /// Found and done since it was opened.
    pub counts: Counts,
    /// What scrubs found.
    pub verdicts: Verdicts,
    /// Events of the journal: damages found, repaired, lost, and pages that became undecided.
    pub found: [u64; 4],
    /// Pages that were found damaged, and are at a look of now.
    pub damaged: u64,
    /// Pages that were found damaged, differ, and cannot be judged any more.
    pub unclear: u64,
    /// Why pages are undecided, and of how many that is known.
    pub undecided: Vec<(Unsure, u64)>,
    /// The last windows, the oldest first.
    pub windows: Vec<Share>,
}

impl Live {
    /// The numbers of a row, in their order.
    fn visit(&mut self, each: &mut dyn FnMut(&mut u64) -> Option<()>) -> Option<()> {
        let Self { keeping, coverage, counts, verdicts, .. } = self;
        each(&mut self.at_ns)?;
        flag(&mut keeping.guards, each)?;
        each(&mut keeping.period_ns)?;
        each(&mut keeping.longest_ns)?;
        let mut kind = KINDS.iter().position(|kind| *kind == keeping.tracking)? as u64;
        each(&mut kind)?;
        keeping.tracking = *KINDS.get(usize::try_from(kind).ok()?)?;
        for number in [&mut self.data, &mut self.parity, &mut self.size, &mut self.file_size] {
            each(number)?;
        }
        let mut small = self.folios == Folios::Small;
        flag(&mut small, each)?;
        self.folios = if small { Folios::Small } else { Folios::Any };
        flag(&mut self.contested, each)?;
        let Coverage { pages, without_sum, without_parity, undecided, oldest_ns, .. } = coverage;
        for number in [pages, without_sum, without_parity, undecided, oldest_ns] {
            each(number)?;
        }
        coverage.histogram.iter_mut().try_for_each(&mut *each)?;
        each(&mut coverage.verified_ns)?;
        each(&mut coverage.covered_ns)?;
        let Counts { passes, covered, unchanged, corrupt, repaired, undecided, unreported } =
            counts;
        for number in [passes, covered, unchanged, corrupt, repaired, undecided, unreported] {
            each(number)?;
        }
        let Verdicts { pages, good, uncovered, corrupt, repaired, lost, undecided, at_ns } =
            verdicts;
        for number in [pages, good, uncovered, corrupt, repaired, lost, undecided, at_ns] {
            each(number)?;
        }
        self.found.iter_mut().try_for_each(&mut *each)?;
        each(&mut self.damaged)?;
        each(&mut self.unclear)?;
        length(&mut self.undecided, REASONS, (Unsure::Uncovered, 0), each)?;
        for (why, pages) in &mut self.undecided {
            let mut code = u64::from(why.code());
            each(&mut code)?;
            *why = Unsure::of_code(u8::try_from(code).ok()?, 0)?;
            each(pages)?;
        }
        length(&mut self.windows, SHARES_KEPT, Share::default(), each)?;
        for Share { time_ns, took_ns, pages, stored, in_stripes } in &mut self.windows {
            for number in [time_ns, took_ns, pages, stored, in_stripes] {
                each(number)?;
            }
        }
        Some(())
    }

    /// The row, as text.
    #[must_use]
    pub fn words(&self) -> String {
        let mut copy = self.clone();
        copy.undecided.truncate(REASONS);
        let spare = copy.windows.len().saturating_sub(SHARES_KEPT);
        copy.windows.drain(..spare);
        let mut words = vec![VERSION.to_owned()];
        let _ = copy.visit(&mut |number| {
            words.push(number.to_string());
            Some(())
        });
        words.join(" ")
    }

    /// Reads a row; `None` if it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > TEXT_MAX {
            return None;
        }
        let mut words = text.split(' ');
        words.next().filter(|word| *word == VERSION)?;
        let mut live = Self::empty();
        live.visit(&mut |number| {
            *number = words.next()?.parse().ok()?;
            Some(())
        })?;
        (words.next().is_none() && live.is_sound()).then_some(live)
    }

    /// Whether no part is more than the whole.
    fn is_sound(&self) -> bool {
        let Coverage { pages, without_sum, without_parity, undecided, .. } = self.coverage;
        let parts = [without_sum, without_parity, undecided];
        let sound = |share: &Share| {
            let stored = share.stored <= share.in_stripes && share.in_stripes <= share.pages;
            stored && share.pages <= PAGES_MAX
        };
        let stripes = (1..=64).contains(&self.data) && self.parity <= 2;
        stripes
            && pages <= PAGES_MAX
            && self.size.div_ceil(PAGE) <= PAGES_MAX
            && parts.iter().all(|part| *part <= pages)
            && self.windows.iter().all(sound)
    }

    const fn empty() -> Self {
        let tracking = SourceKind::Notified;
        Self {
            at_ns: 0,
            keeping: Keeping { guards: false, period_ns: 0, longest_ns: 0, tracking },
            data: 0,
            parity: 0,
            size: 0,
            file_size: 0,
            folios: Folios::Any,
            contested: false,
            coverage: Coverage {
                pages: 0,
                without_sum: 0,
                without_parity: 0,
                undecided: 0,
                oldest_ns: 0,
                histogram: [0; crate::coverage::STEPS],
                verified_ns: 0,
                covered_ns: 0,
            },
            counts: Counts {
                passes: 0,
                covered: 0,
                unchanged: 0,
                corrupt: 0,
                repaired: 0,
                undecided: 0,
                unreported: 0,
            },
            verdicts: Verdicts {
                pages: 0,
                good: 0,
                uncovered: 0,
                corrupt: 0,
                repaired: 0,
                lost: 0,
                undecided: 0,
                at_ns: 0,
            },
            found: [0; 4],
            damaged: 0,
            unclear: 0,
            undecided: Vec::new(),
            windows: Vec::new(),
        }
    }
}

fn flag(value: &mut bool, each: &mut dyn FnMut(&mut u64) -> Option<()>) -> Option<()> {
    let mut number = u64::from(*value);
    each(&mut number)?;
    *value = number == 1;
    (number <= 1).then_some(())
}

/// How long a list is; one that is read gets room, if it is not too long.
fn length<T: Clone>(
    list: &mut Vec<T>,
    most: usize,
    empty: T,
    each: &mut dyn FnMut(&mut u64) -> Option<()>,
) -> Option<()> {
    let mut len = list.len() as u64;
    each(&mut len)?;
    let len = usize::try_from(len).ok().filter(|len| *len <= most)?;
    list.resize(len, empty);
    Some(())
}

/// Events by what came of them: damages found, repaired, lost, and pages that became undecided.
#[must_use]
pub fn found(events: &[Event]) -> [u64; 4] {
    let mut found = [0; 4];
    for event in events {
        found[match event.outcome {
            Outcome::Detected => 0,
            Outcome::Lost => 2,
            Outcome::Undecided => 3,
            _ => 1,
        }] += 1;
    }
    found
}

/// Pages of the data file of which the last word of the journal is that they are damaged: nothing
/// was repaired there since. What a program stored since is not in a journal.
#[must_use]
pub fn damaged(events: &[Event]) -> BTreeSet<u64> {
    let mut pages = BTreeSet::new();
    // Of parity and records, nothing is said about the pages of data.
    let of_data = |event: &&Event| matches!(event.wrong, Some(Wrong::Data) | None);
    for event in events.iter().filter(of_data).filter(|event| event.len <= PAGE) {
        match event.outcome {
            Outcome::Detected | Outcome::Lost => pages.insert(event.at / PAGE),
            _ => pages.remove(&(event.at / PAGE)),
        };
    }
    pages
}

impl<F: Medium, S: Medium, D: DirtySource> Mapped<F, S, D> {
    /// How many of the pages that were found damaged are so now, and how many of them differ and
    /// cannot be judged any more. They are looked at once more: a program may have given them other
    /// content since, which no journal tells. `events` are those of the journal, which knows what
    /// earlier openings found; what this one found is known anyway.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn damage_left(&self, events: &[Event]) -> Result<(u64, u64)> {
        let mut known = damaged(events);
        {
            let inner = self.lock();
            for (number, region) in &inner.regions {
                known.extend(
                    region.reported.get().iter().map(|inside| self.number(*number, inside)),
                );
            }
            let pages = inner.size.div_ceil(PAGE);
            known.retain(|page| *page < pages);
        }
        let (mut left, mut unclear) = (known.len().saturating_sub(AGAIN) as u64, 0);
        // One at a time: stores are covered meanwhile.
        for page in known.into_iter().take(AGAIN) {
            match self.verify(page)?.verdict {
                PageVerdict::Corrupt => left += 1,
                PageVerdict::Undecided(why) if why.is_doubt() => unclear += 1,
                PageVerdict::Good | PageVerdict::Undecided(_) => {}
            }
        }
        Ok((left, unclear))
    }

    /// What is known of the file at this moment; `file_size` is what the system says of its length.
    /// Asks the source and clears nothing.
    ///
    /// # Errors
    /// As [`coverage`](Self::coverage).
    pub fn live(&self, keeping: Keeping, tally: &Tally, file_size: u64) -> Result<Live> {
        let events = self.events();
        let stripes = self.stripes();
        let (damaged, unclear) = self.damage_left(&events)?;
        Ok(Live {
            at_ns: self.clock.now(),
            keeping,
            data: stripes.data().into(),
            parity: stripes.parity().into(),
            size: self.size(),
            file_size,
            folios: self.folios(),
            contested: self.is_contested(),
            coverage: self.coverage()?,
            counts: self.counts(),
            verdicts: tally.verdicts(),
            found: found(&events),
            damaged,
            unclear,
            undecided: self.undecided(),
            windows: self.shares(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::about;
    use holdfast_redundancy::events::Finder;

    fn some() -> Live {
        let tracking = SourceKind::FirstStore;
        let (pages, without_parity) = (1000, 36);
        let share = Share { time_ns: 7, took_ns: 1, pages: 9, stored: 2, in_stripes: 8 };
        Live {
            at_ns: u64::MAX,
            keeping: Keeping { guards: true, period_ns: 5, longest_ns: 6, tracking },
            data: 4,
            parity: 1,
            size: 1000 * PAGE,
            file_size: 999 * PAGE,
            folios: Folios::Small,
            contested: true,
            coverage: Coverage {
                pages,
                without_sum: 9,
                without_parity,
                histogram: core::array::from_fn(|class| class as u64),
                verified_ns: 12,
                ..Coverage::default()
            },
            counts: Counts { passes: 13, unreported: 14, ..Counts::default() },
            verdicts: Verdicts { pages: 15, lost: 16, at_ns: 17, ..Verdicts::default() },
            found: [18, 19, 20, 21],
            damaged: 22,
            unclear: 23,
            undecided: vec![(Unsure::Contested, 3), (Unsure::Undated, 1)],
            windows: vec![share; SHARES_KEPT],
        }
    }

    #[test]
    fn what_is_told_is_what_is_read() {
        let live = some();
        let text = live.words();
        assert!(text.len() <= TEXT_MAX && text.split(' ').count() <= WORDS);
        assert_eq!(Live::parse(&text), Some(live.clone()));
        let longer = Live { windows: vec![live.windows[0]; 99], ..live.clone() };
        assert_eq!(Live::parse(&longer.words()), Some(live));
    }

    #[test]
    fn rows_that_are_none_are_not_believed() {
        let text = some().words();
        let words: Vec<&str> = text.split(' ').collect();
        for cut in 0..words.len() {
            assert_eq!(Live::parse(&words[..cut].join(" ")), None, "{cut}");
        }
        assert_eq!(Live::parse(&format!("{text} 1")), None);
        assert_eq!(Live::parse(&format!("{text}{}", " ".repeat(TEXT_MAX))), None, "too long");
        assert_eq!(Live::parse(&format!("{text}x")), None);
        let wild = Live { data: 0, ..some() };
        assert_eq!(Live::parse(&wild.words()), None);
        let mut wild = some();
        wild.coverage.without_sum = wild.coverage.pages + 1;
        assert_eq!(Live::parse(&wild.words()), None);
        let mut wild = some();
        wild.windows[3].stored = 10;
        assert_eq!(Live::parse(&wild.words()), None);
        // Every number as large as can be, one at a time: no list grows with it, nothing overflows.
        assert_eq!(Live::parse(&text.replace("kept-2", "kept-1")), None, "another build");
        for at in 1..words.len() {
            let mut words = words.clone();
            words[at] = "18446744073709551615";
            if let Some(live) = Live::parse(&words.join(" ")) {
                assert!(live.windows.len() <= SHARES_KEPT && live.undecided.len() <= REASONS);
                let _ = (live.verdicts.left(), live.windows.iter().map(Share::class).max());
            }
        }
    }

    #[test]
    fn the_last_word_about_a_page_counts() {
        let event = |page, outcome| about(page, Finder::Scrub, outcome);
        let parity =
            Event { len: 4 * PAGE, wrong: Some(Wrong::ParityP), ..event(3, Outcome::Lost) };
        let events = [
            event(1, Outcome::Detected),
            event(1, Outcome::Repaired),
            event(2, Outcome::Repaired),
            event(2, Outcome::Lost),
            parity,
            event(4, Outcome::Detected),
            Event { wrong: None, ..event(4, Outcome::Undecided) },
            event(5, Outcome::Detected),
        ];
        assert_eq!(damaged(&events).into_iter().collect::<Vec<_>>(), [2, 5]);
        assert_eq!(found(&events), [3, 2, 2, 1]);
    }

    #[test]
    fn a_look_at_the_whole_file_counts_when_it_is_over() {
        let mut tally = Tally::default();
        let mut step = Scrubbed { repaired: 1, ..Scrubbed::default() };
        step.report.good = 7;
        step.report.corrupt = vec![1, 2];
        tally.add(&step, 5);
        assert_eq!((tally.verdicts().good, tally.verdicts().at_ns), (7, 0), "as far as it is");
        tally.add(&Scrubbed { finished: true, ..step.clone() }, 9);
        assert_eq!((tally.verdicts().good, tally.verdicts().at_ns), (14, 9));
        assert_eq!(tally.verdicts().left(), 2);
        tally.add(&step, 11);
        assert_eq!(tally.verdicts().at_ns, 9, "the next one is not over");
    }
}
