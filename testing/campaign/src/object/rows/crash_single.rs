//! Row `crash-single`: crash images at every barrier of every public operation.
//!
//! Each case is one scene in one world. Every image is opened, compared with what was
//! acknowledged, checked byte by byte, worked on and checked again; where everything hangs on the
//! root, what is allocated must be what the root leads to. Crashes tear by words, as the contract
//! says, and in odd rounds by lines, as x86 does.

use std::sync::Arc;

use holdfast_faultmem::Budget;

use crate::object::judge::Care;
use crate::object::scenes::{LINKED, Plot, SCENES, Scene, play};
use crate::object::watch::{LONGEST, NO_END, Plan, Watch};
use crate::object::world::World;
use crate::runner::{Case, Row, Tier};
use crate::tally::Tally;

/// The row.
pub const ROW: Row = Row {
    name: "crash-single",
    story: "crash images at every barrier of every public operation",
    cases: |tier| scenes().count() as u64 * worlds_of(tier),
    run,
    finish: |_| {},
    patience: LONGEST,
    threads: 2,
};

/// How many worlds each scene is played in; in the long tier, in each of them again and again.
fn worlds_of(tier: Tier) -> u64 {
    let all = World::usual().len() as u64;
    match tier {
        Tier::Ci => 1,
        Tier::Long => all * 8,
    }
}

/// The world of a case, by its number. The CI tier plays each scene in one of them, and with other
/// seeds in the others.
pub(super) fn world_of(case: &Case, scenes: usize) -> usize {
    let (scene, turn) = (case.number as usize % scenes, case.number as usize / scenes);
    let turn = match case.tier {
        Tier::Ci => scene.wrapping_add(case.seed as usize),
        Tier::Long => turn,
    };
    turn % World::usual().len()
}

/// Whether crashes tear by lines, where the medium has any: in odd rounds through all worlds. The
/// CI tier does it in a few cases, others with another seed.
fn by_lines(case: &Case, scenes: usize) -> bool {
    match case.tier {
        Tier::Ci => (case.number as usize % scenes + case.seed as usize).is_multiple_of(8),
        Tier::Long => case.number as usize / scenes / World::usual().len() % 2 == 1,
    }
}

fn scenes() -> impl Iterator<Item = &'static Scene> {
    SCENES.iter().chain(LINKED)
}

/// How many images for each barrier. The commits of linked scenes are like the others'; what is new
/// is where they leave what they took, and that shows in fewer images.
fn plan(tier: Tier, linked: bool) -> Plan {
    let ci = matches!(tier, Tier::Ci);
    let many = if ci { 3 } else { 60 };
    let dense = if ci { 8 } else { 400 };
    let whole = if ci { 1 << 5 } else { 1 << 12 };
    let thin = Budget { exhaustive: whole, singles: many, pairs: many / 2, samples: many, seed: 0 };
    let plan = Plan {
        thin,
        thick: Budget { singles: dense, pairs: dense / 2, samples: dense, ..thin },
        thick_each: 8,
        care: Care::USUAL,
        ruins: &[],
        again_each: 8,
        limit: if ci { 20 } else { NO_END },
        enough: 20,
    };
    if !(linked && ci) {
        return plan;
    }
    let few = Budget { exhaustive: 32, singles: 5, pairs: 2, samples: 5, seed: 0 };
    Plan { thin: few, thick: few, limit: 30, ..plan }
}

fn run(case: &Case) -> Tally {
    let worlds = World::usual();
    let all: Vec<&Scene> = scenes().collect();
    let scene = all[case.number as usize % all.len()];
    let world = world_of(case, all.len());
    let linked = matches!(scene.plot, Plot::Linked(_));
    let world = worlds[world].clone().linked(linked);
    let world = Arc::new(if by_lines(case, all.len()) { world.by_lines() } else { world });
    let mut rng = case.rng(1);
    let mut tally = Tally::default();
    let played = play(scene, &world, &mut rng, |ledger| {
        Watch::new(&world, ledger, plan(case.tier, linked), case.rng(2))
    });
    let place = format!("{} in {}", scene.name, world.name);
    match played {
        Ok(watch) => tally.merge(watch.end()),
        Err(violation) => tally.convict(violation),
    }
    for violation in &mut tally.violations {
        violation.story = format!("{place}: {}", violation.story);
    }
    tally.add(format!("scene {}", scene.name), tally.count);
    tally
}
