//! Steps on objects under a few names: what each means for a pool.
//!
//! A step on a name that is not in the state it needs does nothing, so that every sequence has a
//! meaning: the one in which both names begin empty, and the one in which both hold something.

use holdfast_pmem::Medium;
use holdfast_workloads::Rng;
use holdfast_workloads::sequences::ObjectStep;

use super::driver::Driver;
use super::ops::{Job, Op};
use super::scenes::refused;
use super::world::SMALL;
use crate::tally::Judged;

/// Names there are.
pub const NAMES: usize = 2;
/// Sizes of objects: a place in a run, several granules, chunks of its own.
pub const SIZES: [usize; 3] = [64, 3_000, 14_000];
/// Bytes that a growth adds: as many as the pools of these worlds begin with.
const ZONE: u64 = SMALL;
/// What the names hold in pools that begin with something.
const HELD: [u64; NAMES] = [3_000, 64];

/// What the names hold: pointer and length.
#[derive(Debug, Clone, Default)]
pub struct Names {
    held: [Option<(u64, u64)>; NAMES],
}

impl Names {
    /// Gives each name an object.
    ///
    /// # Errors
    /// The engine's.
    pub fn fill(&mut self, driver: &Driver, rng: &mut Rng) -> Judged<()> {
        for (name, len) in HELD.into_iter().enumerate() {
            self.create(driver, name, len, rng)?;
        }
        Ok(())
    }

    /// Does one step.
    ///
    /// # Errors
    /// The engine's.
    pub fn step(&mut self, driver: &Driver, step: ObjectStep, rng: &mut Rng) -> Judged<()> {
        match step {
            ObjectStep::Create { name, size } if self.held[name].is_none() => {
                self.create(driver, name, size as u64, rng)?;
            }
            ObjectStep::Overwrite { name } => {
                if let Some((of, len)) = self.held[name] {
                    driver.must(&Job::new(rng, [Op::Write { of, from: 0, len }]))?;
                }
            }
            ObjectStep::Patch { name } => {
                if let Some(object) = self.held[name] {
                    driver.must(&Job::new(rng, [patch(object)]))?;
                }
            }
            ObjectStep::PatchAndFree { name } => {
                let next = (name + 1) % NAMES;
                if let (Some(object), Some((of, _))) = (self.held[name], self.held[next]) {
                    driver.must(&Job::new(rng, [patch(object), Op::Free { of }]))?;
                    self.held[next] = None;
                }
            }
            ObjectStep::Free { name } => {
                if let Some((of, _)) = self.held[name] {
                    driver.must(&Job::new(rng, [Op::Free { of }]))?;
                    self.held[name] = None;
                }
            }
            ObjectStep::Abort => {
                let all = self.held.iter().flatten();
                let writes = all.map(|(of, len)| Op::Write { of: *of, from: 0, len: *len });
                let ops: Vec<Op> = writes.chain([Op::Alloc { len: 40 }]).collect();
                driver.cancel(&Job::new(rng, ops))?;
            }
            ObjectStep::Grow => {
                let done = driver.pool.grow(driver.medium.len() + ZONE);
                done.map_err(|error| refused("grow", &error))?;
            }
            ObjectStep::Create { .. } => {}
        }
        Ok(())
    }

    fn create(&mut self, driver: &Driver, name: usize, len: u64, rng: &mut Rng) -> Judged<()> {
        let before = driver.ledger.objects();
        if driver.must(&Job::new(rng, [Op::Alloc { len }]))? {
            let now = driver.ledger.objects();
            let new = now.iter().map(|(word, _)| word).find(|word| before.get(*word).is_none());
            self.held[name] = new.map(|word| (word, len));
        }
        Ok(())
    }
}

/// A few bytes in the middle, of two words.
fn patch((of, len): (u64, u64)) -> Op {
    Op::Write { of, from: len / 2 - 5, len: 11 }
}
