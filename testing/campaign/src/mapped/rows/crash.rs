//! Row `crash`: lives of a protected file, cut off at every step the engine takes.

use std::time::Duration;

use crate::mapped::images::{DISTINCT, Plan};
use crate::mapped::ledger::Ledger;
use crate::mapped::life::{Course, live};
use crate::mapped::machine::Setting;
use crate::runner::{Case, Row, Tier};
use crate::tally::Tally;

/// The row.
pub const ROW: Row = Row {
    name: "crash",
    story: "kills and power cuts in every step, with bits and page cache that live or die",
    cases: |tier| if matches!(tier, Tier::Ci) { 24 } else { 2_000 },
    run,
    finish: Ledger::finish,
    patience: Duration::from_secs(300),
    threads: 2,
};

/// How a case of this number is led.
pub(super) fn course(number: u64, most: u64) -> Course {
    let plan = Plan { cuts: 6, kills: 24, nested: 32, most };
    let recorded = number / 8 % 5 == 4;
    Course {
        setting: Setting { recorded, ..Setting::numbered(number) },
        plan,
        steps: 18,
        rot: number / 8 % 2 == 1,
        restless: [0, 3, 12][(number / 16 % 3) as usize],
    }
}

fn run(case: &Case) -> Tally {
    let mut tally = Tally::default();
    let (watch, done) = live(&course(case.number, 1_500), None, &mut case.rng(1));
    tally.count = watch.images;
    tally.add("crash images", watch.images - watch.nested);
    tally.add("crash images of recoveries", watch.nested - watch.deepest);
    tally.add("crash images of recoveries of these", watch.deepest);
    watch.seen.iter().for_each(|fingerprint| tally.saw(DISTINCT, *fingerprint));
    tally.add("pages damaged after a crash that came back", watch.given_back);
    watch.ledger.note(&mut tally);
    let setting = course(case.number, 0).setting;
    if let Some(wrong) = watch.wrong {
        tally.convict(wrong);
    }
    tally.judge(done.map_err(|violation| violation.during(format!("{setting:?}, alive"))));
    tally
}
