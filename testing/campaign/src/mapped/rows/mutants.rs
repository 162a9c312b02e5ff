//! Row `mutants`: wrong variants of the engine, each of which the checkers of the other rows must
//! convict. The rows themselves are the controls: the same lives and storms, nothing left out.
//!
//! First the two wrong orders of a pass. *Taking after looking* (update, then clear) loses a store
//! in between: it is called corrupt later, or taken back. *Taking without a note* (clear, then
//! update, no shadow) lets a crash in between make what was stored look like damage.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::mapped::images::{Cuts, Plan};
use crate::mapped::ledger::Ledger;
use crate::mapped::life::{Course, live};
use crate::mapped::machine::Setting;
use crate::mapped::storm::storm;
use crate::runner::{Case, Row, panic_text};
use crate::tally::{Fault, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "mutants",
    story: "wrong orders and steps left out, each of which a checker must convict",
    cases: |_| WRONG.len() as u64,
    run,
    finish,
    patience: Duration::from_secs(600),
    threads: 2,
};

/// A story in which a mutant shows.
#[derive(Debug, Clone, Copy)]
pub enum Killer {
    /// Faults among stores, in settings from this one on.
    Storm(u64),
    /// Crashes of lives, in settings from this one on, every eighth with the same parity.
    Life(u64),
    /// The same, with first stores on record in the side file.
    Recorded(u64),
}

/// A place of the engine, what is wrong without it, and who sees that.
type Wrong = (&'static str, &'static str, &'static [Killer]);

use Killer::{Life, Recorded, Storm};

/// All of them. Places that need a story of their own are in the engine's tests (`mutants.rs`).
#[rustfmt::skip]
const WRONG: &[Wrong] = &[
    ("mapped.commit.take-first", "the wrong order (a): update, then clear", &[Storm(0)]),
    ("mapped.commit.batch", "the wrong order (b): clear without a note", &[Life(0), Life(1)]),
    ("mapped.commit.B", "bits taken before the note of the batch is durable", &[Life(1)]),
    ("mapped.commit.D", "sums and parity durable before the data", &[Life(1)]),
    ("mapped.commit.E", "the next batch begins before this one is cleared", &[Life(1)]),
    ("mapped.commit.clear", "what stays undecided is forgotten", &[Life(0), Storm(0)]),
    ("mapped.commit.narrow", "what was taken is not noted", &[Life(0)]),
    ("mapped.recover.recorded", "records of first stores are not believed", &[Recorded(0)]),
    ("mapped.commit.forget", "records stay when their pages are covered", &[Recorded(0)]),
    ("mapped.look.neighbours", "neighbours not verified: damage is laundered", &[Storm(0)]),
    ("mapped.look.again", "neighbours called corrupt without asking again", &[Storm(0)]),
    ("mapped.commit.any-row", "the last row of a stripe decides for all", &[Storm(0)]),
    ("mapped.commit.entry", "sums are not kept up", &[Storm(0)]),
    ("mapped.commit.parity", "parity is not kept up", &[Storm(0)]),
    ("mapped.admit.suspect-a", "writers are let in before one copy knows", &[Storm(3), Storm(0)]),
    ("mapped.admit.suspect-b", "writers are let in before the other knows", &[Storm(3), Storm(0)]),
    ("mapped.check.doubt", "doubt about a region is not heeded", &[Storm(0), Life(0)]),
    ("mapped.check.stale", "undecided pages are forgotten by a look", &[Life(0), Storm(0)]),
    ("mapped.engine.verify-page", "pages are not held against their sums", &[Storm(0)]),
    ("mapped.engine.verify-meta", "damaged sums are believed", &[Storm(0)]),
    ("mapped.repair.recheck", "repair without a second look", &[Storm(0)]),
    ("mapped.repair.freeze", "repair while writers run", &[Storm(0)]),
    ("mapped.repair.judge", "what was rebuilt is installed unseen", &[Storm(0)]),
    ("mapped.scrub.verify-parity", "parity is never looked at", &[Storm(0)]),
    ("faultmem.watched.invalidate", "the first store after a look is not seen", &[Storm(0)]),
    ("faultmem.watched.selective", "a look at one page forgets all of them", &[Storm(0)]),
];

/// Storms and lives that are tried, at most.
const TRIES: u64 = 24;

fn run(case: &Case) -> Tally {
    let (site, what, killers) = WRONG[case.number as usize % WRONG.len()];
    let mut tally = Tally::default();
    let mut count = 0;
    tally.add("wrong variants", 1);
    for killer in killers {
        for number in 0..TRIES {
            let played = catch_unwind(AssertUnwindSafe(|| play(*killer, number, site, case)));
            let (done, seen) = played.unwrap_or_else(|panic| {
                (0, Some(Violation::new(Fault::Panicked, panic_text(&*panic))))
            });
            count += done;
            let Some(wrong) = seen.filter(|seen| is_as_predicted(site, seen)) else { continue };
            if let (_, Some(control)) = play(*killer, number, NONE, case) {
                tally.convict(control.during(format!("control of {site}, nothing left out")));
            }
            let first = wrong.story.lines().next().unwrap_or_default();
            let short: String = first.chars().take(150).collect();
            tally.lines.push(format!("{site:<28} {what}: {count} images or faults: {short}"));
            tally.add(KILLED, 1);
            tally.count = count;
            return tally;
        }
    }
    let story = format!("{site} survives {killers:?}, {count} images or faults: {what}");
    tally.convict(Violation::new(Fault::Unnoticed, story));
    tally.count = count;
    tally
}

/// The name of no place.
const NONE: &str = "mapped.none";

/// Whether a checker saw a wrong state; of the two wrong orders, the one that they must end in.
fn is_as_predicted(site: &str, seen: &Violation) -> bool {
    let predicted = match site {
        "mapped.commit.take-first"
        | "mapped.commit.batch"
        | "faultmem.watched.invalidate"
        | "faultmem.watched.selective" => {
            ["corrupt was said of what the program stored", "were taken back"]
        }
        _ => [""; 2],
    };
    seen.fault.is_wrong_state() && predicted.iter().any(|what| seen.story.contains(what))
}

/// Wrong variants convicted.
const KILLED: &str = "wrong variants convicted";

/// Plays one story; answers how much was looked at, and what was wrong.
pub fn play(
    killer: Killer,
    number: u64,
    site: &'static str,
    case: &Case,
) -> (u64, Option<Violation>) {
    let mut rng = case.rng(1 + number);
    match killer {
        Storm(from) => {
            let (mut ledger, mut tally) = (Ledger::default(), Tally::default());
            let setting = Setting::numbered(from + number);
            let done = storm(setting, 40, Some(site), &mut rng, &mut ledger, &mut tally);
            (ledger.faults, done.err())
        }
        Life(from) | Recorded(from) => {
            let recorded = matches!(killer, Recorded(_));
            let setting = Setting::numbered(from + 4 * (number % 2));
            let course = Course {
                setting: Setting { recorded, ..setting },
                plan: Plan { cuts: Cuts::FEW, kills: 48, nested: 16, most: 1_500 },
                steps: 18,
                rot: number % 4 == 3,
                restless: [3, 12][(number % 2) as usize],
            };
            let (watch, done) = live(&course, Some(site), &mut rng);
            (watch.images, watch.wrong.or(done.err()))
        }
    }
}

fn finish(tally: &mut Tally) {
    tally.lines.sort();
    tally.lines.push(format!("wrong variants: {}", WRONG.len()));
}
