//! Storms of damage under load.

use std::sync::Arc;

use holdfast_campaign::object::rows::damage::world_of;
use holdfast_campaign::object::rows::storm::{PAGES, begin, storm};
use holdfast_campaign::object::world::World;
use holdfast_campaign::tally::{Fault, Judged, Tally, Violation};
use holdfast_workloads::Rng;

/// A storm in a world; `None` if there was no pool to begin with.
fn play(world: &Arc<World>, number: u64) -> Option<Judged<()>> {
    let mut rng = Rng::part(5, number);
    let driver = begin(world, &mut rng).ok()?;
    Some(storm(world, driver, rng.next_u64(), &mut Tally::default()).map(drop))
}

/// Runs storms in a world until a judge sees that something is wrong, or an object is refused that
/// the redundancy covers. A panic convicts nobody.
fn convicted(world: World, storms: u64) -> Option<u64> {
    let world = Arc::new(world);
    let judged = |v: Violation| v.fault.is_wrong_state() || v.fault == Fault::Refused;
    (0..storms).find(|number| play(&world, *number).is_some_and(|done| done.is_err_and(judged)))
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
        let without = World::clone(&world).without(site);
        let seen = convicted(without, 60);
        assert!(seen.is_some(), "{site}");
        // The same storm with nothing left out.
        let right = seen.and_then(|number| play(&world, number));
        assert_eq!(right, Some(Ok(())), "{site}");
    }
}
