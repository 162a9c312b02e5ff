//! Row `damage`: every kind of fault in every part of both files, while the program stores.

use std::time::Duration;

use crate::mapped::ledger::Ledger;
use crate::mapped::machine::Setting;
use crate::mapped::storm::storm;
use crate::runner::{Case, Row, Tier};
use crate::tally::Tally;

/// The row.
pub const ROW: Row = Row {
    name: "damage",
    story: "flips, stray, lost, misdirected, torn writes, stale data, poison in both files",
    cases: |tier| if matches!(tier, Tier::Ci) { 240 } else { 9_600 },
    run,
    finish: Ledger::finish,
    patience: Duration::from_secs(300),
    threads: 2,
};

/// Rounds of a case: about three and a half faults each.
const ROUNDS: u64 = 40;

fn run(case: &Case) -> Tally {
    let (mut tally, mut ledger) = (Tally::default(), Ledger::default());
    let setting = Setting::numbered(case.number);
    let done = storm(setting, ROUNDS, None, &mut case.rng(1), &mut ledger, &mut tally);
    tally.count = ledger.faults;
    ledger.note(&mut tally);
    tally.judge(done);
    tally
}
