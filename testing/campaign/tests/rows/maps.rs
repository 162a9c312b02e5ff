//! Maps in a pool, and what is said of them.

use std::sync::Arc;

use holdfast_campaign::object::driver::Driver;
use holdfast_campaign::object::judge::{Care, Promise, judge};
use holdfast_campaign::object::maps::{Hand, Told, key};
use holdfast_campaign::object::ops::{Job, Op};
use holdfast_campaign::object::world::World;
use holdfast_campaign::tally::{Judged, Tally};
use holdfast_collections::Kind;
use holdfast_oracle::map_model::MapOp;
use holdfast_workloads::Rng;
use holdfast_workloads::sequences::MapStep;

/// What the judge says of a map after a step, if it was told of `op` besides.
fn judged(kind: Kind, crowded: bool, op: Option<MapOp>) -> Judged<()> {
    let told = Told::nothing();
    let world = Arc::new(World::named("shm-p").also(told.also()));
    let mut rng = Rng::new(1);
    let medium = world.blank();
    let pool = world.create(&medium).expect("a pool");
    let driver = Driver::found(medium, pool)?;
    let hand = Hand::make(&driver, kind, crowded, told.clone(), &mut rng)?;
    hand.step(&driver, MapStep::Put { key: 1, len: 200 }, &mut rng)?;
    if let Some(op) = op {
        let ticket = told.lock().begin(op);
        told.settle(ticket, true);
    }
    let promise = Promise::Kept(driver.ledger.promise());
    let image = driver.medium.crash_point().newest();
    let Driver { medium, pool, .. } = driver;
    medium.abandon(pool);
    judge(&world, image, &promise, &Care::USUAL, 1, &mut Tally::default())
}

#[test]
fn maps_of_all_kinds_are_let_through() {
    for kind in Kind::ALL {
        for crowded in [false, true] {
            judged(kind, crowded, None).unwrap_or_else(|v| panic!("{kind}: {}", v.story));
        }
    }
}

#[test]
fn a_map_that_is_not_what_was_told_is_convicted() {
    for kind in Kind::ALL {
        let lost = MapOp::Put { key: key(0), value: vec![1] };
        let kept = MapOp::Delete { key: key(1) };
        for op in [lost, kept] {
            let story = judged(kind, false, Some(op)).expect_err("a wrong map").story;
            assert!(story.contains("the map: ") && story.contains("key "), "{story}");
        }
    }
}

#[test]
fn what_the_map_does_not_lead_to_is_convicted() {
    let (told, mut rng) = (Told::nothing(), Rng::new(1));
    let world = World::named("file-pq");
    let medium = world.blank();
    let pool = world.create(&medium).expect("a pool");
    let driver = Driver::found(medium, pool).expect("an empty pool");
    Hand::make(&driver, Kind::BTree, false, told.clone(), &mut rng).expect("a map");
    told.look(&driver, &mut rng).expect("a sound map");
    let orphan = Job::new(&mut rng, [Op::AllocNode]);
    driver.must(&orphan).expect("an orphan");
    let story = told.look(&driver, &mut rng).expect_err("a leak").story;
    assert!(story.contains("objects are live"), "{story}");
}
