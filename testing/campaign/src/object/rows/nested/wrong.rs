//! What must be convicted by crashes within recoveries and repairs, and by nothing else: steps that
//! only matter if the recovery, or the repair, is crashed as well.

use std::sync::Arc;

use holdfast_faultmem::Budget;

use super::{plan, scenes};
use crate::object::judge::{Care, Nested};
use crate::object::scenes::{Plot, play};
use crate::object::watch::{Plan, Watch};
use crate::object::world::World;
use crate::object::wrong::{Variant, off, or_right, site};
use crate::runner::Case;
use crate::tally::Tally;

/// A place, what is wrong without it, the scene and the world in which it shows.
const fn within(place: &'static str, name: &'static str, bed: &'static str) -> Variant {
    Variant { bed, ..site(place, name) }
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
];

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
    let full = plan(case.tier, scene);
    let inner = Budget { exhaustive: 16, singles: 4, pairs: 1, samples: 4, seed: 0 };
    let nested = Nested { budget: inner, each: 2, depth: 1, deeper_each: 1 };
    let plan = Plan { care: Care { nested: Some(nested), ..full.care }, enough: 12, ..full };
    let played = play(scene, &world, &mut case.rng(1), |ledger| {
        Watch::new(&world, ledger, plan, case.rng(2))
    });
    match played {
        Ok(watch) => tally.merge(watch.end()),
        Err(violation) => tally.convict(violation),
    }
    // Images of repairs are counted by this row; those of operations are others' to judge.
    if !matches!(scene.plot, Plot::Repair(_)) && off().is_some() {
        tally.violations.retain(|violation| violation.story.contains("crash in recovery"));
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::wrong::are_enough;

    #[test]
    fn there_are_enough_wrong_variants() {
        are_enough(WRONG);
    }
}
