//! Killers of mutants: stories in which a checker sees a wrong state if a step is left out.
//!
//! A mutant is the engine with one named place switched off. A killer plays a story with it and
//! answers what the checkers saw. The same story with nothing switched off must show nothing
//! wrong: that is the control without which a kill means little.

pub mod apart;
pub mod blessed;
pub mod copies;
pub mod entries;
pub mod fallen;
pub mod healed;
pub mod journal;
pub mod jury;
pub mod marks;
pub mod mended;
pub mod overflow;
pub mod played;
pub mod recovery;
pub mod table;
pub mod threads;
pub mod verified;

use holdfast_workloads::Rng;

use super::handle::Visited;
use super::world::World;
use crate::tally::{Judged, Tally};

use played::{Scened, Worn};

/// The engine with one place switched off, or with none: the control.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The place that is switched off.
    pub off: Option<String>,
    /// Seed of everything random.
    pub seed: u64,
    /// Learns which places were passed.
    pub visited: Visited,
}

impl Mutant {
    /// The usual world of this name, with the place switched off.
    #[must_use]
    pub fn world(&self, name: &str) -> World {
        self.within(World::named(name))
    }

    /// A world with the place switched off.
    #[must_use]
    pub fn within(&self, mut world: World) -> World {
        world.off.extend(self.off.clone());
        world.visited = Some(self.visited.clone());
        world
    }

    /// Whether this place is switched off.
    #[must_use]
    pub fn lacks(&self, site: &str) -> bool {
        self.off.as_deref() == Some(site)
    }

    /// A stream of random numbers. The same for every place that is switched off, so that the
    /// control plays the very story in which the others die.
    #[must_use]
    pub fn rng(&self, stream: u64) -> Rng {
        Rng::part(self.seed, stream)
    }
}

/// A story made for this purpose.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    /// Its name in reports.
    pub name: &'static str,
    /// The usual world it is played in.
    pub world: &'static str,
    /// What happens, and what checkers saw of it.
    pub story: Story,
}

/// What happens in a story. An error is a violation too.
pub type Story = fn(&Mutant, &'static str) -> Judged<Tally>;

/// A story that kills.
#[derive(Debug, Clone, Copy)]
pub enum Killer {
    /// A scene of the other rows, watched.
    Scened(Scened),
    /// Rings that wrap.
    Worn(Worn),
    /// A story made for this purpose.
    Made(Made),
}

impl Killer {
    /// Its name in reports; unlike that of any other killer.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Scened(scened) => scened.name(),
            Self::Worn(worn) => worn.name(),
            Self::Made(made) => format!("{} in {}", made.name, made.world),
        }
    }

    /// Plays it. The tally counts images, and its violations are what checkers saw.
    #[must_use]
    pub fn play(&self, mutant: &Mutant) -> Tally {
        match self {
            Self::Scened(scened) => scened.play(mutant),
            Self::Worn(worn) => worn.play(mutant),
            Self::Made(made) => jury::told((made.story)(mutant, made.world)),
        }
    }
}
