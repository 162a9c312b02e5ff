//! Fields of what a pool is stored as.

use std::collections::BTreeSet;

use holdfast_campaign::object::fields::seal::Sealer;
use holdfast_campaign::object::fields::specimen::{Specimen, Wanted};
use holdfast_campaign::object::fields::spots::find;
use holdfast_campaign::object::raw::Bytes;
use holdfast_campaign::object::rows::damage::world_of;
use holdfast_campaign::object::rows::fields::{PAGES, ROUNDS, chosen};
use holdfast_workloads::Rng;

#[test]
fn the_cases_of_the_long_tier_damage_a_field_everywhere() {
    let (world, mut rng) = (world_of(0, PAGES), Rng::new(3));
    let specimen = Specimen::of(&world, Wanted::Tables, &mut rng).expect("a specimen");
    let bytes = Bytes::of(&specimen.medium());
    let found = find(&bytes, &Sealer::of(&bytes), &["heap SLOT", "layout SUPERBLOCK"]);
    assert!(found.values().any(|spots| spots.len() > ROUNDS as usize));
    for spots in found.values() {
        let all: BTreeSet<u64> = spots.iter().map(|spot| spot.at).collect();
        let shares = 0..ROUNDS as usize;
        let seen: BTreeSet<u64> = shares
            .flat_map(|share| chosen(spots, Some(share), &mut rng))
            .map(|spot| spot.at)
            .collect();
        assert_eq!(seen, all);
        assert_eq!(chosen(spots, None, &mut rng).len(), 1);
    }
}
