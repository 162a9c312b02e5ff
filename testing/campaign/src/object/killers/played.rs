//! Killers made of what other rows play: scenes, and rings that wrap.

use std::sync::Arc;

use holdfast_faultmem::Budget;

use super::Mutant;
use crate::object::judge::{Care, Nested};
use crate::object::scenes::{Plot, REPAIRS, SCENES, Scene, play};
use crate::object::targets::{Area, Side};
use crate::object::watch::{Plan, Watch};
use crate::object::wrap::{Wear, wear, world};
use crate::tally::{Fault, Tally, Violation};

/// How the images of a scene are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Opened, compared, worked on, compared.
    Plain,
    /// Crashed again after that.
    Again,
    /// Crashed in the recovery as well.
    Nested,
    /// Without one copy of a side's log.
    LogLost(Side),
}

/// A scene in a usual world.
#[derive(Debug, Clone, Copy)]
pub struct Scened {
    /// Name of the scene.
    pub scene: &'static str,
    /// Name of the world.
    pub world: &'static str,
    /// How its images are judged.
    pub how: How,
}

/// Ring worn out in a usual world.
#[derive(Debug, Clone, Copy)]
pub struct Worn {
    /// Name of the world.
    pub world: &'static str,
    /// How.
    pub wear: Wear,
}

const LOG_A: &[Area] = &[Area::Log(Side::A)];
const LOG_B: &[Area] = &[Area::Log(Side::B)];

fn plan(how: How, repair: bool) -> Plan {
    let thin = match how {
        How::Nested => Budget { exhaustive: 4, singles: 1, pairs: 0, samples: 2, seed: 0 },
        _ => Budget { exhaustive: 64, singles: 16, pairs: 4, samples: 12, seed: 0 },
    };
    let inner = Budget { exhaustive: 4, singles: 1, pairs: 0, samples: 1, seed: 0 };
    let nested = Nested { budget: inner, each: 2, depth: 1, deeper_each: 1, above: 0 };
    let again = how == How::Again;
    Plan {
        thin,
        thick: thin,
        thick_each: 1,
        care: Care {
            more: 1,
            scrub: repair,
            again,
            nested: (how == How::Nested).then_some(nested),
            ruin: None,
        },
        ruins: match how {
            How::LogLost(Side::A) => LOG_A,
            How::LogLost(Side::B) => LOG_B,
            _ => &[],
        },
        again_each: if again { 1 } else { u64::MAX },
        limit: 400,
        enough: 6,
    }
}

impl Scened {
    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> String {
        let how = match self.how {
            How::Plain => "",
            How::Again => ", crashed again",
            How::Nested => ", nested",
            How::LogLost(Side::A) => ", log A lost",
            How::LogLost(Side::B) => ", log B lost",
        };
        format!("{} in {}{how}", self.scene, self.world)
    }

    /// The scene of this name.
    fn find(&self) -> Option<&'static Scene> {
        SCENES.iter().chain(REPAIRS).find(|scene| scene.name == self.scene)
    }

    /// Plays the scene.
    #[must_use]
    pub fn play(&self, mutant: &Mutant) -> Tally {
        let mut tally = Tally::default();
        let Some(scene) = self.find() else {
            tally.convict(Violation::new(Fault::Refused, format!("no scene {}", self.scene)));
            return tally;
        };
        let world = Arc::new(mutant.world(self.world));
        let repair = matches!(scene.plot, Plot::Repair(_));
        let played = play(scene, &world, &mut mutant.rng(1), |ledger| {
            Watch::new(&world, ledger, plan(self.how, repair), mutant.rng(2))
        });
        match played {
            Ok(watch) => tally.merge(watch.end()),
            Err(violation) => tally.convict(violation),
        }
        tally
    }
}

impl Worn {
    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> String {
        format!("worn rings in {}", self.world)
    }

    /// Wears the rings out.
    #[must_use]
    pub fn play(&self, mutant: &Mutant) -> Tally {
        let world = Arc::new(mutant.within(world(self.world)));
        let mut tally = Tally::default();
        let plan = Plan { limit: 1_500, ..plan(How::Plain, false) };
        match wear(&world, &mut mutant.rng(1), &self.wear, plan) {
            Ok(watch) => tally.merge(watch.end()),
            Err(violation) => tally.convict(violation),
        }
        tally
    }
}
