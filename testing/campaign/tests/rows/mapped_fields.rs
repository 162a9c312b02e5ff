//! Fields of a side file.

use std::collections::BTreeSet;

use holdfast_campaign::mapped::machine::Setting;
use holdfast_campaign::mapped::rows::fields::chosen;
use holdfast_campaign::mapped::specimen::Specimen;
use holdfast_campaign::runner::Tier;
use holdfast_workloads::Rng;

#[test]
fn with_every_seed_another_spot_of_a_field_has_its_turn() {
    let setting = Setting::numbered(5);
    let specimen = Specimen::of(setting, false, &mut Rng::new(7)).expect("a specimen");
    let spots = specimen.spots();
    let all: BTreeSet<usize> = (0..spots.len()).collect();
    let long: BTreeSet<usize> = chosen(&spots, Tier::Long, 3).into_iter().collect();
    assert_eq!(long, all);
    let turns: BTreeSet<usize> =
        (0..spots.len() as u64).flat_map(|turn| chosen(&spots, Tier::Ci, turn)).collect();
    assert_eq!(turns, all);
    assert!(chosen(&spots, Tier::Ci, 1).len() < spots.len());
}
