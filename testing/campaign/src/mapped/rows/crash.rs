//! Row `crash`: lives of a protected file, cut off at every step the engine takes.

use crate::mapped::images::{Cuts, DISTINCT, Plan};
use crate::mapped::ledger::Ledger;
use crate::mapped::life::{Course, live};
use crate::mapped::machine::Setting;
use crate::object::watch::LONGEST;
use crate::runner::{Case, Row, Tier};
use crate::tally::Tally;

/// The row.
pub const ROW: Row = Row {
    name: "crash",
    story: "kills and power cuts in every step, with bits and page cache that live or die",
    cases,
    run,
    finish: Ledger::finish,
    patience: LONGEST,
    threads: 2,
};

/// Of the long tier, one life in so many has all images looked at that there are of a dozen units,
/// others with another seed. It is shorter: there are thousands at some barriers.
const ALL_IMAGES_EACH: u64 = 16;

/// How a case is led.
fn course(case: &Case) -> Course {
    let number = case.number;
    // Settings take turns by eights: the odd number lets each have its turn.
    let turn = number.wrapping_add(number / 8).wrapping_add(case.seed);
    let all = case.tier == Tier::Long && turn.is_multiple_of(ALL_IMAGES_EACH);
    let (plan, steps) = match case.tier {
        Tier::Ci => (Plan { cuts: Cuts::FEW, kills: 24, nested: 32, most: 1_500 }, 18),
        Tier::Long if all => (Plan { cuts: Cuts::ALL, kills: 24, nested: 2, most: u64::MAX }, 8),
        Tier::Long => (Plan { cuts: Cuts::MORE, kills: 24, nested: 32, most: 3_000 }, 18),
    };
    let (recorded, lines) = (number / 8 % 5 == 4, number / 8 % 3 == 2);
    Course {
        setting: Setting { recorded, lines, ..Setting::numbered(number) },
        plan,
        steps,
        rot: number / 8 % 2 == 1,
        restless: [0, 3, 12][(number / 16 % 3) as usize],
    }
}

fn cases(tier: Tier) -> u64 {
    if matches!(tier, Tier::Ci) { 24 } else { 600 }
}

fn run(case: &Case) -> Tally {
    let mut tally = Tally::default();
    let course = course(case);
    let (watch, done) = live(&course, None, &mut case.rng(1));
    tally.count = watch.images;
    tally.add("crash images", watch.images - watch.nested);
    tally.add("crash images of recoveries", watch.nested - watch.deepest);
    tally.add("crash images of recoveries of these", watch.deepest);
    watch.seen.iter().for_each(|fingerprint| tally.saw(DISTINCT, *fingerprint));
    tally.add("pages damaged after a crash that came back", watch.given_back);
    watch.ledger.note(&mut tally);
    let setting = course.setting;
    if let Some(wrong) = watch.wrong {
        tally.convict(wrong);
    }
    tally.judge(done.map_err(|violation| violation.during(format!("{setting:?}, alive"))));
    tally
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn in_each_setting_some_lives_are_looked_at_whole_and_some_tear_by_lines() {
        for seed in 1..4 {
            let all = (0..cases(Tier::Long)).map(|number| Case { seed, number, tier: Tier::Long });
            let whole = all.filter(|case| course(case).plan.cuts.thin.about == usize::MAX);
            let whole: Vec<Case> = whole.collect();
            assert!((36..=39).contains(&whole.len()), "seed {seed}: {}", whole.len());
            let settings: BTreeSet<u64> = whole.iter().map(|case| case.number % 8).collect();
            assert_eq!(settings.len(), 8, "seed {seed}");
            assert!(whole.iter().any(|case| course(case).setting.mode().is_some()));
        }
        let ci = |number| course(&Case { seed: 1, number, tier: Tier::Ci }).setting.mode();
        assert_eq!((0..cases(Tier::Ci)).filter(|number| ci(*number).is_some()).count(), 2);
    }
}
