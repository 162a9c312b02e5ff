//! Short sequences on a protected file, with a place of the engine left out.

use holdfast_campaign::mapped::images::{Cuts, Plan};
use holdfast_campaign::mapped::life::{Course, Letter};
use holdfast_campaign::mapped::rows::sequences::{course, play};
use holdfast_campaign::runner::{Case, Tier};
use holdfast_campaign::tally::Tally;

/// Violations of two sequences, with one place left out.
fn convicted(off: &str, setting: u64) -> u64 {
    let case = Case { seed: 1, number: 0, tier: Tier::Ci };
    let mut tally = Tally::default();
    let plan = Plan { cuts: Cuts::FEW, kills: 512, nested: 8, most: 400 };
    let course = Course { plan, ..course(setting, Tier::Ci, 0) };
    for script in [[Letter::Store(1), Letter::Pass], [Letter::Pass, Letter::Repair]] {
        play(&course, &script, Some(off), &case, &mut tally);
    }
    tally.violated()
}

#[test]
fn an_engine_that_leaves_a_step_out_is_convicted() {
    // What shows only among stores of a program at work is for row `mutants` to convict.
    for off in [
        "mapped.engine.verify-page",
        "mapped.commit.entry",
        "mapped.commit.parity",
        "mapped.commit.narrow",
        "mapped.commit.clear",
        "mapped.check.stale",
    ] {
        assert!(convicted(off, 0) > 0, "{off}");
    }
    for setting in [0, 1, 9, 19] {
        assert_eq!(convicted("mapped.no.such-place", setting), 0, "{setting}");
    }
}
