//! Who owns what in a pool: leaks, what dangles, and two owners.

use std::sync::Arc;

use holdfast_campaign::object::driver::{Driver, whole};
use holdfast_campaign::object::judge::{Care, Promise, judge};
use holdfast_campaign::object::linked::cells;
use holdfast_campaign::object::ops::{Job, Node, Op};
use holdfast_campaign::object::owned::counted;
use holdfast_campaign::object::scenes::stage;
use holdfast_campaign::object::world::World;
use holdfast_campaign::tally::{Judged, Tally};
use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_txn::{Transaction, TxError};
use holdfast_workloads::Rng;

const WORLDS: [&str; 2] = ["shm-p", "file-pq"];

fn staged(name: &str) -> (Arc<World>, Driver) {
    let world = Arc::new(World::named(name).linked(true));
    let driver = stage(&world, &mut Rng::new(1)).expect("a linked pool");
    (world, driver)
}

/// What the judge says of a crash right now, if the ledger knows of everything done so far.
fn judged(world: &Arc<World>, driver: Driver) -> Judged<()> {
    let found = whole(&driver.medium).expect("nothing is damaged");
    let promise = Driver::new(driver.medium.clone(), driver.pool.clone(), found.objects);
    let promise = Promise::Kept(promise.ledger.promise());
    let image = driver.medium.crash_point().newest();
    let Driver { medium, pool, .. } = driver;
    medium.abandon(pool);
    judge(world, image, &promise, &Care::USUAL, 1, &mut Tally::default())
}

fn convicted(judged: Judged<()>, of: &str) {
    let story = judged.expect_err("this cannot be let through").story;
    assert!(story.contains(of), "{story}");
}

#[test]
fn a_tree_is_let_through() {
    for name in WORLDS {
        let (world, driver) = staged(name);
        driver.go_on(&mut Rng::new(2), 40).expect("jobs of linked pools");
        driver.check().expect("a tree");
        judged(&world, driver).expect("a tree after a crash");
    }
}

#[test]
fn an_allocation_that_nothing_leads_to_is_a_leak() {
    for (name, len) in WORLDS.into_iter().zip([60, 9_000]) {
        let (world, driver) = staged(name);
        driver.must(&Job::new(&mut Rng::new(3), [Op::Alloc { len }])).expect("an orphan");
        convicted(judged(&world, driver), "leaked");
    }
}

#[test]
fn a_payload_freed_and_not_taken_down_dangles() {
    for name in WORLDS {
        let (world, driver) = staged(name);
        let of = cells(&driver.ledger.objects(), driver.anchor)[0].payloads[&1].0;
        driver.must(&Job::new(&mut Rng::new(3), [Op::Free { of }])).expect("a free");
        convicted(judged(&world, driver), "dangling");
    }
}

#[test]
fn what_hangs_in_two_places_has_two_owners() {
    for name in WORLDS {
        let (world, driver) = staged(name);
        let all = cells(&driver.ledger.objects(), driver.anchor);
        let (twice, other) = (all[0].payloads[&0].0, RawPtr::from_word(all[2].at));
        let done = driver
            .pool
            .run(|tx| tx.open_mut(other.typed::<Node>()).map(|mut cell| cell.words[3] = twice));
        done.expect("a second pointer");
        convicted(judged(&world, driver), "owned twice");
    }
}

#[test]
fn chunks_that_only_the_engine_takes_for_used_are_missed() {
    for name in WORLDS {
        let (_, driver) = staged(name);
        let found = whole(&driver.medium).expect("nothing is damaged");
        counted(&found, &driver.pool.space()).expect("a quiet pool adds up");
        let mut during = Ok(());
        let done = driver.pool.run(|tx| {
            tx.alloc_bytes(TypeNumber::BYTES, 9_000)?;
            during = counted(&found, &driver.pool.space());
            Err::<(), _>(TxError::cancel("reserved and given back"))
        });
        assert!(done.is_err());
        convicted(during, "free chunks");
        counted(&found, &driver.pool.space()).expect("it was given back");
    }
}
