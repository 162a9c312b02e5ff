//! Storms of damage under load.

use std::sync::Arc;

use holdfast_campaign::object::rows::damage::world_of;
use holdfast_campaign::object::rows::storm::{PAGES, begin, storm};
use holdfast_campaign::object::world::World;
use holdfast_campaign::tally::{Fault, Judged, Tally, Violation};
use holdfast_workloads::Rng;

/// A storm in a pool that was made with nothing left out; from then on a place of the engine is.
fn play(world: &Arc<World>, without: Option<&'static str>, number: u64) -> Judged<()> {
    let mut rng = Rng::part(5, number);
    let driver = begin(world, &mut rng).expect("a pool");
    let world = match without {
        Some(site) => {
            driver.medium.elide_name(site);
            Arc::new(World::clone(world).without(site))
        }
        None => Arc::clone(world),
    };
    storm(&world, driver, (rng.next_u64(), false), &mut Tally::default()).map(drop)
}

/// The first storm in which a judge sees that something is wrong, or an object is refused that the
/// redundancy covers. A panic convicts nobody.
fn convicted(world: &Arc<World>, site: &'static str) -> Option<u64> {
    let judged = |v: Violation| v.fault.is_wrong_state() || v.fault == Fault::Refused;
    (0..60).find(|number| play(world, Some(site), *number).is_err_and(judged))
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
        let world = world_of(number, PAGES);
        let seen = convicted(&world, site);
        assert!(seen.is_some(), "{site}");
        // The same storm with nothing left out.
        let right = seen.map(|number| play(&world, None, number));
        assert_eq!(right, Some(Ok(())), "{site}");
    }
}
