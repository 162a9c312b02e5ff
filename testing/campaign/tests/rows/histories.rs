//! Histories: whatever is wrong is convicted, and nothing else.

use holdfast_campaign::object::histories::wrong::WRONG;
use holdfast_campaign::object::rows::histories::{EACH, ROW};
use holdfast_campaign::runner::{Case, Tier};

#[test]
fn whatever_is_wrong_is_convicted() {
    for (number, bed) in (0..).zip(WRONG) {
        let tally = (ROW.run)(&Case { seed: 11, number, tier: Tier::Ci });
        assert_eq!(tally.violations, [], "{}", bed.name);
        assert_eq!(tally.figures.get("wrong ones convicted"), Some(&1), "{}", bed.name);
    }
}

#[test]
fn there_are_as_many_as_are_asked_for() {
    let histories = |tier| ((ROW.cases)(tier) - WRONG.len() as u64) * EACH;
    assert!(histories(Tier::Ci) >= 5_000);
    assert!(histories(Tier::Long) >= 100_000);
    assert!(WRONG.len() >= 5);
}

#[test]
fn nothing_wrong_is_not_convicted() {
    for number in [0, 9, 18, 27, 61] {
        let number = WRONG.len() as u64 + number;
        let tally = (ROW.run)(&Case { seed: 12, number, tier: Tier::Ci });
        assert_eq!(tally.violations, []);
        assert_eq!(tally.count, EACH);
    }
}
