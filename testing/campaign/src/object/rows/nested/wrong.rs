//! What must be convicted by crashes within recoveries and repairs, and by nothing else: steps that
//! only matter if the recovery, or the repair, is crashed as well; and what is wrong only after the
//! second such crash, or the third, one within the recovery from the other.
//!
//! A repair that is crashed is begun anew whatever step of it is left out, since what it works from
//! is still there: who leaves one out is convicted where a copy is lost as well (row `mutants`).
//! Here a byte is changed after the crash instead, which the judge has to see.

use std::sync::Arc;

use holdfast_faultmem::Budget;

use super::{plan, scenes};
use crate::object::judge::{Care, Nested};
use crate::object::scenes::{Plot, play};
use crate::object::watch::{Plan, Watch};
use crate::object::world::World;
use crate::object::wrong::{Lie, Variant, are_enough, is_on_purpose, lie, or_right, site};
use crate::runner::{Case, Tier};
use crate::tally::{Fault, Tally};

/// A place, what is wrong without it, the scene and the world in which it shows.
const fn within(place: &'static str, name: &'static str, bed: &'static str) -> Variant {
    Variant { bed, ..site(place, name) }
}

/// The same, once so many recoveries were crashed, one in the other.
const fn deeper(from: u32, variant: Variant) -> Variant {
    Variant { from, ..variant }
}

/// What follows a crash changes a byte that nothing damaged.
const fn reverts(name: &'static str, bed: &'static str) -> Variant {
    Variant { bed, seen_as: None, ..lie(Lie::Reverts, name, Fault::Wrong) }
}

/// What must be convicted.
pub const WRONG: &[Variant] = &[
    within("object.recover.replay", "recovery replays nothing", "write-8 in shm-p"),
    within("object.redo.store", "recovery stores nothing", "write-whole in shm-p"),
    within("object.redo_parity.recompute", "recovery leaves parity as it is", "write-8 in shm-p"),
    within("object.recover.done-sync", "the log is over before its syncs", "write-whole in file-p"),
    within(
        "object.in_place.sync",
        "a long object counts before it is synced",
        "alloc-large in file-p",
    ),
    deeper(
        1,
        within("object.recover.replay", "a second recovery replays nothing", "write-8 in shm-p"),
    ),
    deeper(
        2,
        within("object.recover.replay", "a third recovery replays nothing", "write-8 in shm-p"),
    ),
    deeper(
        2,
        within("object.redo_parity.recompute", "a third one leaves parity", "write-8 in shm-p"),
    ),
    reverts("what follows a crashed repair changes a byte", "flip-object in shm-p"),
    deeper(1, reverts("what follows a crashed recovery of a repair does", "poison-p in file-p")),
    deeper(1, reverts("what follows a crashed recovery of a growth does", "grow in file-p")),
    deeper(1, reverts("what follows a crashed recovery of a scrub does", "scrub in shm-p")),
    deeper(2, reverts("what follows a third recovery of a growth does", "grow in shm-p")),
];
const _: () = are_enough(WRONG);

/// Runs a case: one of the wrong variants, or one of the others.
pub(super) fn run(case: &Case) -> Tally {
    or_right(WRONG, case, brief, super::run)
}

/// One scene, more of whose recoveries are crashed, and only those.
fn brief(variant: &Variant, case: &Case) -> Tally {
    let (name, world) = variant.bed.split_once(" in ").unwrap_or_default();
    let mut tally = Tally::default();
    let Some(scene) = scenes().find(|scene| scene.name == name) else { return tally };
    let world = Arc::new(World::named(world));
    // As in CI: the more is looked at of one place, the less is come to of others.
    let full = plan(Tier::Ci, scene);
    let inner = Budget { exhaustive: 16, singles: 4, pairs: 1, samples: 4, seed: 0 };
    let (depth, each) = if variant.from > 1 { (variant.from, 6) } else { (1, 2) };
    let nested = Nested { budget: inner, each, depth, deeper_each: 1, above: 0 };
    let plan = Plan { care: Care { nested: Some(nested), ..full.care }, enough: 12, ..full };
    let played = play(scene, &world, &mut case.rng(1), |ledger| {
        Watch::new(&world, ledger, plan, case.rng(2))
    });
    match played {
        Ok(watch) => tally.merge(watch.end()),
        Err(violation) => tally.convict(violation),
    }
    // Images of repairs are counted by this row; those of operations are others' to judge.
    if !matches!(scene.plot, Plot::Repair(_)) && is_on_purpose() {
        tally.violations.retain(|violation| violation.story.contains("crash in recovery"));
    }
    tally
}
