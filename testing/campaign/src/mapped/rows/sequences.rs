//! Row `sequences`: all sequences of one and two steps of a small file, and some of three.
//!
//! Stores to pages of two stripes, a written page, passes, covering, scrubs, a repair, growth, a
//! cut within a page, a hole, closing and opening. Each is killed at stores of the engine and cut
//! off at its barriers, and so are recoveries of what that leaves, two levels deep.

use std::time::Duration;

use crate::mapped::images::{DISTINCT, Plan};
use crate::mapped::ledger::Ledger;
use crate::mapped::life::{Course, LETTERS, Letter, follow};
use crate::mapped::machine::Setting;
use crate::runner::{Case, Row, Tier};
use crate::sequences::{self, Extent};
use crate::tally::Tally;

/// The row.
pub const ROW: Row = Row {
    name: "sequences",
    story: "all sequences of one and two steps of a small file, some of three, cut off anywhere",
    cases: |tier| EXTENT.cases(tier),
    run,
    finish,
    patience: Duration::from_secs(300),
    threads: 2,
};

/// Eight ways to keep a file, each with records of first stores and without.
const EXTENT: Extent =
    Extent { subject: "file", letters: LETTERS.len() as u64, settings: 16, threes: 100, share: 6 };

/// How a sequence of this setting is played.
pub fn course(setting: u64, tier: Tier) -> Course {
    let plan = match tier {
        Tier::Ci => Plan { cuts: 3, kills: 24, nested: 24, most: 60 },
        Tier::Long => Plan { cuts: 24, kills: 128, nested: 48, most: u64::MAX },
    };
    let recorded = setting / 8 % 2 == 1;
    let setting = Setting { recorded, ..Setting::numbered(setting) };
    Course { setting, plan, steps: u64::MAX, rot: false, restless: 0 }
}

fn run(case: &Case) -> Tally {
    let mut tally = Tally::default();
    let pick = EXTENT.pick(case.tier, case.seed, case.number);
    let script = EXTENT.steps(&LETTERS, pick.number, case.seed);
    let course = course(pick.setting, case.tier);
    if play(&course, &script, None, case, &mut tally) {
        EXTENT.note(case, pick, &mut tally);
    }
    tally
}

/// Plays a sequence, with a place of the engine switched off or with none; whether it came to its
/// end.
pub fn play(
    course: &Course,
    script: &[Letter],
    off: Option<&str>,
    case: &Case,
    tally: &mut Tally,
) -> bool {
    let (watch, done) = follow(course, script, off, &mut case.rng(1));
    tally.count += watch.images;
    tally.add("crash images", watch.images - watch.nested);
    tally.add("crash images of recoveries", watch.nested - watch.deepest);
    tally.add("crash images of recoveries of these", watch.deepest);
    watch.seen.iter().for_each(|fingerprint| tally.saw(DISTINCT, *fingerprint));
    watch.ledger.note(tally);
    let before = tally.violated();
    if let Some(wrong) = watch.wrong {
        tally.convict(wrong.during(format!("{script:?}")));
    }
    let place = format!("{:?}, {script:?}, alive", course.setting);
    tally.judge(done.map_err(|violation| violation.during(place)));
    tally.violated() == before
}

fn finish(tally: &mut Tally) {
    sequences::finish(&[EXTENT], tally);
    Ledger::finish(tally);
}
