//! Commits that are killed: a child dies at a named step, a copy of its log is damaged on top, the
//! pool is opened again, and the account book has to be what the acknowledged transactions made.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast::{Pool, VerifyReads};

use super::book::{Book, Model};
use super::child::{Death, InjectorProcess, victim};
use crate::failure::{Failure, Outcome};
use crate::out::Out;
use crate::progress::Progress;
use crate::rng::Rng;

/// Transactions a victim would do if it lived.
const RUNS: u64 = 24;
/// Steps that only an opening meets are told by this part of their name.
const OPENING: &str = ".recover.";

/// What the kills came to.
#[derive(Debug, Default)]
pub(crate) struct Kills {
    /// Times a child died at each step.
    pub(crate) by_step: BTreeMap<String, u64>,
    /// Steps that were met but nobody died at: must be none.
    pub(crate) survived: Vec<String>,
    pub(crate) reopened: u64,
    /// Openings that replayed a record.
    pub(crate) replayed: u64,
    /// Transactions acknowledged by all victims.
    pub(crate) acknowledged: u64,
    /// Acknowledged transactions that were not there.
    pub(crate) lost: u64,
    /// Openings after which the book was not what its last transaction makes it.
    pub(crate) wrong: u64,
    /// Faults injected into live log records of dead children.
    pub(crate) log_faults: u64,
    /// Longest opening.
    pub(crate) slowest: Duration,
}

impl Kills {
    /// Children that died.
    pub(crate) fn all(&self) -> u64 {
        self.by_step.values().sum()
    }
}

/// The pool whose commits are killed, and what its book should hold.
struct Scene<'a> {
    path: &'a Path,
    seed: u64,
    model: Model,
    rng: Rng,
    kills: Kills,
}

/// Kills commits at every step there is, and more until there were `least`.
pub(crate) fn run(
    out: Out,
    path: &Path,
    seed: u64,
    least: u64,
    injector: &mut InjectorProcess,
) -> Outcome<Kills> {
    let rng = Rng::new(seed, 0x1c11);
    let (model, kills) = (Model::default(), Kills::default());
    let mut scene = Scene { path, seed, model, rng, kills };
    let committing = scene.probe(RUNS)?;
    let first = committing.iter().find(|(name, _)| !name.contains(OPENING));
    let Some((durable, _)) = first else {
        let cause = "no step of a commit was met";
        return Err(Failure::new("system", cause, "this build has none; report it"));
    };
    // What an opening after a kill meets besides.
    scene.kill(durable, 1)?;
    let opening: Vec<_> =
        scene.probe(0)?.into_iter().filter(|(name, _)| name.contains(OPENING)).collect();
    scene.reopen()?;
    let all = (committing.len() + 2 * opening.len()) as u64;
    let progress = Progress::things(out, "killing", least.max(all));
    for (step, _) in &opening {
        let (victim, count) = scene.any(&committing)?;
        scene.kill(&victim, count)?;
        scene.kill_opening(step)?;
        scene.after(injector)?;
        progress.at(scene.kills.all());
    }
    let mut round = 0;
    while round < committing.len() || scene.kills.all() < least {
        let (step, count) = match committing.get(round) {
            Some((step, count)) => (step.clone(), 1 + scene.rng.below(*count)),
            None => scene.any(&committing)?,
        };
        scene.kill(&step, count)?;
        scene.after(injector)?;
        round += 1;
        progress.at(scene.kills.all());
        if crate::interrupt::asked() {
            return Err(super::interrupted());
        }
    }
    let names = committing.iter().chain(&opening).map(|(name, _)| name);
    let survived = names.filter(|name| !scene.kills.by_step.contains_key(*name));
    scene.kills.survived = survived.cloned().collect();
    Ok(scene.kills)
}

impl Scene<'_> {
    /// Lets a victim live, to see which steps there are and how often each is met.
    fn probe(&mut self, runs: u64) -> Outcome<Vec<(String, u64)>> {
        let death = victim(self.path, self.seed, runs, None)?;
        self.acknowledge(&death);
        Ok(death.steps)
    }

    /// A step of a commit, and a time it is met.
    fn any(&mut self, steps: &[(String, u64)]) -> Outcome<(String, u64)> {
        let Some((step, count)) = self.rng.pick(steps).cloned() else {
            return Err(Failure::new("system", "there is no step to die at", "report it"));
        };
        Ok((step, 1 + self.rng.below(count)))
    }

    /// Lets a victim die at a step. If it gets through, it is let through again: which steps a
    /// transaction takes may depend on what those before it left.
    fn kill(&mut self, step: &str, nth: u64) -> Outcome<()> {
        for nth in [nth, 1] {
            let death = victim(self.path, self.seed, RUNS, Some((step, nth)))?;
            self.acknowledge(&death);
            if death.killed {
                *self.kills.by_step.entry(step.to_owned()).or_default() += 1;
                break;
            }
        }
        Ok(())
    }

    /// Lets a victim die while it recovers what another left.
    fn kill_opening(&mut self, step: &str) -> Outcome<()> {
        let death = victim(self.path, self.seed, 0, Some((step, 1)))?;
        *self.kills.by_step.entry(step.to_owned()).or_default() += u64::from(death.killed);
        Ok(())
    }

    fn acknowledge(&mut self, death: &Death) {
        // A victim that died before its first acknowledgement adds none.
        self.kills.acknowledged = self.kills.acknowledged.max(death.done);
    }

    /// Damages one copy of what a dead child left in its log, then opens the pool again.
    fn after(&mut self, injector: &mut InjectorProcess) -> Outcome<()> {
        let kind = ["bitflip", "stray"][self.rng.below(2) as usize];
        self.kills.log_faults += injector.order(&format!("inject 1 log {kind}"))?.len() as u64;
        self.reopen()
    }

    /// Opens the pool and compares the book with what its transactions made.
    fn reopen(&mut self) -> Outcome<()> {
        let started = Instant::now();
        let pool = Pool::options().verify_reads(VerifyReads::Always).open(self.path)?;
        self.kills.slowest = self.kills.slowest.max(started.elapsed());
        self.kills.reopened += 1;
        self.kills.replayed += u64::from(pool.opened().recovered.replayed > 0);
        let found = Book::of(&pool)?.read()?;
        // One transaction may be there that was never acknowledged: the child died in between.
        self.kills.lost += self.kills.acknowledged.saturating_sub(found.last);
        let invented = found.last > self.kills.acknowledged + 1;
        while self.model.last < found.last && !invented {
            self.model.step(self.seed);
        }
        self.kills.wrong += u64::from(invented || found != self.model);
        self.kills.acknowledged = found.last;
        Ok(())
    }
}
