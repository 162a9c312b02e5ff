//! A row plays its wrong variants first; these are convicted, and of nothing else.

use std::ops::Range;

use holdfast_campaign::mapped::rows::fail_nth as mapped;
use holdfast_campaign::object::rows::{fail_nth, nested};
use holdfast_campaign::object::wrong::CONVICTED;
use holdfast_campaign::runner::{Case, Tier};

use super::row;

fn are_convicted(campaign: &str, name: &str, numbers: Range<u64>) {
    let row = row(campaign, name);
    for number in numbers {
        let tally = (row.run)(&Case { seed: 7, number, tier: Tier::Ci });
        assert_eq!(tally.violations, [], "{name} {number}");
        assert_eq!(tally.figures.get(CONVICTED), Some(&1), "{name} {number}");
    }
}

#[test]
fn crashes_of_recoveries() {
    are_convicted("object", "nested", 0..nested::wrong::WRONG.len() as u64);
}

#[test]
fn calls_that_fail() {
    are_convicted("object", "fail-nth", 0..fail_nth::wrong::WRONG.len() as u64);
}

#[test]
fn calls_that_fail_on_protected_files() {
    are_convicted("mapped", "fail-nth", 0..mapped::WRONG.len() as u64);
}

#[test]
fn large_losses() {
    // One of each sort; a whole run of the row plays all.
    for number in [0, 2, 5] {
        are_convicted("object", "large", number..number + 1);
    }
}
