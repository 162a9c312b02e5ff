//! Places of the engine for mapped files that are left out.

use holdfast_campaign::mapped::rows::mutants::Killer::{Life, Recorded, Storm};
use holdfast_campaign::mapped::rows::mutants::play;
use holdfast_campaign::runner::{Case, Tier};

#[test]
fn a_place_that_does_nothing_is_convicted_of_nothing() {
    let case = Case { seed: 1, number: 0, tier: Tier::Ci };
    for killer in [Storm(0), Life(0), Recorded(0), Recorded(1)] {
        let (count, seen) = play(killer, 0, "mapped.no.such-place", &case);
        assert!(count > 10 && seen.is_none(), "{killer:?}: {seen:?}");
    }
}
