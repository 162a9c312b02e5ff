//! Row `nested`: a crash during the recovery from a crash, and during a repair.
//!
//! Half of the cases crash an ordinary operation and then its recovery, two levels deep; the other
//! half damages a place and crashes its repair, then the recovery from that. Operations are all
//! there are, those that make, open, close, grow and scrub a pool among them. Only images inside a
//! recovery or a repair are counted.

pub mod wrong;

use std::sync::Arc;

use holdfast_faultmem::Budget;

use super::crash_single::world_of;
use crate::object::judge::{Care, Nested};
use crate::object::scenes::{LINKED, Plot, REPAIRS, SCENES, Scene, play};
use crate::object::watch::{LONGEST, NO_END, Plan, Watch};
use crate::object::world::World;
use crate::runner::{Case, Row, Tier};
use crate::tally::Tally;

/// The row.
pub const ROW: Row = Row {
    name: "nested",
    story: "crashes inside recoveries and repairs, two levels deep",
    cases: |tier| wrong::WRONG.len() as u64 + scenes().count() as u64 * worlds_of(tier),
    run: wrong::run,
    finish: |_| {},
    patience: LONGEST,
    threads: 2,
};

/// How many worlds each scene is played in.
fn worlds_of(tier: Tier) -> u64 {
    let all = World::usual().len() as u64;
    match tier {
        Tier::Ci => 1,
        Tier::Long => all,
    }
}

/// Scenes in which recovery has something to do.
pub fn scenes() -> impl Iterator<Item = &'static Scene> {
    let operations = SCENES.iter().filter(|scene| {
        !matches!(scene.plot, Plot::Cancelled(_) | Plot::Full) && scene.name != "alloc-empty"
    });
    operations.chain(REPAIRS).chain(LINKED)
}

fn plan(tier: Tier, scene: &Scene) -> Plan {
    let outer = match tier {
        Tier::Ci => Budget { exhaustive: 4, singles: 1, pairs: 0, samples: 2, seed: 0 },
        Tier::Long => Budget { exhaustive: 1 << 12, singles: 16, pairs: 8, samples: 16, seed: 0 },
    };
    let budget = Budget { exhaustive: 4, singles: 1, pairs: 0, samples: 1, seed: 0 };
    let ci = matches!(tier, Tier::Ci);
    let each = if ci { 40 } else { 4 };
    let nested = Nested { budget, each, depth: 2, deeper_each: 8, above: 0 };
    // What is recovered is scrubbed as well, and the scrub cut off like the recovery.
    let scrub = !ci || matches!(scene.plot, Plot::Repair(_) | Plot::Scrub | Plot::Grow);
    Plan {
        thin: outer,
        thick: outer,
        thick_each: 1,
        care: Care { more: 1, scrub, again: false, nested: Some(nested), ruin: None },
        ruins: &[],
        again_each: u64::MAX,
        limit: if ci { 0 } else { NO_END },
        enough: 5,
    }
}

fn run(case: &Case) -> Tally {
    let worlds = World::usual();
    let all: Vec<&Scene> = scenes().collect();
    let scene = all[case.number as usize % all.len()];
    let world = world_of(case, all.len());
    let linked = matches!(scene.plot, Plot::Linked(_));
    let by_lines = match case.tier {
        Tier::Ci => (case.number as usize % all.len() + case.seed as usize).is_multiple_of(8),
        // In each world half of the scenes, and each scene in half of the worlds.
        Tier::Long => (case.number as usize % all.len() + world) % 2 == 1,
    };
    let world = worlds[world].clone().linked(linked);
    let world = Arc::new(if by_lines { world.by_lines() } else { world });
    let mut rng = case.rng(1);
    let mut tally = Tally::default();
    let played = play(scene, &world, &mut rng, |ledger| {
        Watch::new(&world, ledger, plan(case.tier, scene), case.rng(2))
    });
    match played {
        Ok(watch) => tally.merge(watch.end()),
        Err(violation) => tally.convict(violation),
    }
    for violation in &mut tally.violations {
        violation.story = format!("{} in {}: {}", scene.name, world.name, violation.story);
    }
    let nested = tally.figures.remove("nested").unwrap_or(0);
    let repairs = matches!(scene.plot, Plot::Repair(_));
    tally.add(if repairs { "images within repairs" } else { "images before" }, tally.count);
    tally.add("images within recoveries", nested);
    tally.count = if repairs { nested + tally.count } else { nested };
    tally
}
