//! Short sequences on a pool, with a place of the engine left out.

use holdfast_campaign::object::maps::{KEYS, LENGTHS};
use holdfast_campaign::object::rows::sequences::{self as row, objects};
use holdfast_campaign::object::steps::{NAMES, SIZES};
use holdfast_campaign::object::world::World;
use holdfast_campaign::runner::{Case, Tier};
use holdfast_collections::Kind;
use holdfast_workloads::sequences::{map_steps, object_steps};

/// Violations of a part of the sequences, in the world of that name with one place left out.
fn convicted(name: &str, off: &str, maps: bool) -> u64 {
    let case = Case { seed: 1, number: 0, tier: Tier::Ci };
    let world = World::named(name).without(off);
    let tally = if maps {
        let steps = map_steps(KEYS, &LENGTHS);
        row::maps(&case, world, Kind::BTree, true, &steps[..5])
    } else {
        let steps = object_steps(NAMES, &SIZES);
        objects(&case, world, true, &steps[3..7])
    };
    tally.map_or(1, |tally| tally.violated())
}

#[test]
fn an_engine_that_leaves_a_step_out_is_convicted() {
    for maps in [false, true] {
        for (world, off) in [
            ("shm-p", "logs.ring.F1"),
            ("file-p", "logs.group.F1"),
            ("shm-pq", "object.commit.sums"),
            ("shm-p", "object.commit.patch"),
            ("shm-p", "object.recover.replay"),
            ("shm-p", "object.redo_parity.recompute"),
        ] {
            assert!(convicted(world, off, maps) > 0, "{off} in {world}, maps {maps}");
            assert_eq!(convicted(world, "object.no.such-place", maps), 0, "{world}");
        }
    }
}
