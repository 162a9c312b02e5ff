//! Storms of damage under load.

use std::sync::Arc;

use holdfast_campaign::object::rows::damage::world_of;
use holdfast_campaign::object::rows::storm::{PAGES, ROW, begin, storm};
use holdfast_campaign::object::world::World;
use holdfast_campaign::object::wrong::{CONVICTED, Lie, Variant, lie, or_right};
use holdfast_campaign::runner::{Case, Tier};
use holdfast_campaign::tally::{Fault, Tally};
use holdfast_workloads::Rng;

/// Runs storms in a world until one is convicted.
fn convicted(world: World, storms: u64) -> bool {
    let world = Arc::new(world);
    (0..storms).any(|number| {
        let mut rng = Rng::part(5, number);
        let driver = begin(&world, &mut rng);
        let ran = driver.and_then(|driver| {
            let mut tally = Tally::default();
            storm(&world, driver, rng.next_u64(), &mut tally)
        });
        ran.is_err()
    })
}

#[test]
fn journals_that_lie_are_convicted() {
    let lies = [
        lie(Lie::Accuses, "something was damaged that was not", Fault::FalseReport),
        lie(Lie::Elsewhere, "all damage is elsewhere", Fault::FalseReport),
        lie(Lie::Silent, "nothing was damaged", Fault::Unnoticed),
    ];
    let play = |_: &Variant, case: &Case| (ROW.run)(case);
    for variant in lies {
        let case = Case { seed: 5, number: 0, tier: Tier::Ci };
        let tally = or_right(&[variant], &case, play, |_| Tally::default());
        assert_eq!(tally.violations, [], "{}", variant.name);
        assert_eq!(tally.figures.get(CONVICTED), Some(&1), "{}", variant.name);
    }
}

#[test]
fn steps_left_out_are_convicted() {
    for (number, site) in [
        (0, "object.commit.patch"),
        (0, "object.tx.verify-open"),
        (1, "object.commit.sums"),
        (2, "object.mend_unit.verify"),
        (0, "logs.ring.F1"),
    ] {
        let world = World::clone(&world_of(number, PAGES)).without(site);
        assert!(convicted(world, 60), "{site}");
    }
}
