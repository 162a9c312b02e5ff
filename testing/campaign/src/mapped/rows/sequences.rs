//! Row `sequences`: all sequences of one and two steps of a small file, and some of three.
//!
//! Stores to pages of two stripes, a written page, passes, covering, scrubs, a repair, growth, a
//! cut within a page, a hole, closing and opening. Each is killed at stores of the engine and cut
//! off at its barriers, and so are recoveries of what that leaves, two levels deep.

use crate::mapped::images::{Cuts, DISTINCT, Plan};
use crate::mapped::ledger::Ledger;
use crate::mapped::life::{Course, LETTERS, Letter, follow};
use crate::mapped::machine::Setting;
use crate::object::watch::LONGEST;
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
    patience: LONGEST,
    threads: 2,
};

/// Eight ways to keep a file, each with records of first stores and without; and where power cuts
/// tear by lines, with one parity page and with two, the same.
const EXTENT: Extent =
    Extent { subject: "file", letters: LETTERS.len() as u64, settings: 20, threes: 100, share: 6 };

/// Of the long tier, one sequence in so many has all images looked at that there are of a dozen
/// units, others with another seed; of the rest, as of the CI tier, each barrier is sampled.
const ALL_IMAGES_EACH: u64 = 8;

/// The setting of this number.
fn setting(number: u64) -> Setting {
    match number % EXTENT.settings {
        usual @ 0..16 => Setting { recorded: usual / 8 == 1, ..Setting::numbered(usual) },
        lines => {
            let usual = Setting::numbered(2 + lines % 2 * 4);
            Setting { recorded: lines / 2 % 2 == 1, lines: true, ..usual }
        }
    }
}

/// How a sequence of this setting is played; `turn` says whether all images are looked at.
pub fn course(number: u64, tier: Tier, turn: u64) -> Course {
    let plan = match tier {
        Tier::Ci => Plan { cuts: Cuts::FEW, kills: 24, nested: 24, most: 100 },
        Tier::Long if turn.is_multiple_of(ALL_IMAGES_EACH) => {
            Plan { cuts: Cuts::ALL, kills: 128, nested: 4, most: u64::MAX }
        }
        Tier::Long => Plan { cuts: Cuts::MORE, kills: 128, nested: 48, most: u64::MAX },
    };
    Course { setting: setting(number), plan, steps: u64::MAX, rot: false, restless: 0 }
}

/// Whose turn it is. Settings take turns with every case: so that each has its part, the turn moves
/// on once they are through.
const fn turn(case: &Case) -> u64 {
    case.number.wrapping_add(case.number / EXTENT.settings).wrapping_add(case.seed)
}

fn run(case: &Case) -> Tally {
    let mut tally = Tally::default();
    let pick = EXTENT.pick(case.tier, case.seed, case.number);
    let script = EXTENT.steps(&LETTERS, pick.number, case.seed);
    let course = course(pick.setting, case.tier, turn(case));
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use holdfast_faultmem::Mode;

    use super::*;

    #[test]
    fn settings_are_each_of_its_own_and_some_tear_by_lines() {
        let all: Vec<Setting> = (0..EXTENT.settings).map(setting).collect();
        let distinct: HashSet<String> = all.iter().map(|one| format!("{one:?}")).collect();
        assert_eq!(distinct.len(), all.len());
        let lines = all.iter().filter(|one| one.mode() == Some(Mode::Lines)).count();
        assert_eq!(lines, 4);
    }

    #[test]
    fn the_long_tier_looks_at_all_images_of_one_sequence_in_eight_in_each_setting() {
        let tier = Tier::Long;
        for seed in 0..3 {
            let mut whole = vec![0; EXTENT.settings as usize];
            for number in 0..EXTENT.cases(tier) {
                let setting = EXTENT.pick(tier, seed, number).setting;
                let course = course(setting, tier, turn(&Case { seed, number, tier }));
                let all = course.plan.cuts.thin.about == usize::MAX;
                whole[setting as usize] += u64::from(all);
            }
            let each = (EXTENT.short() + EXTENT.threes) / ALL_IMAGES_EACH;
            assert!(whole.iter().all(|some| (each..=each + 1).contains(some)), "{whole:?}");
        }
    }
}
