//! Loads of guarded programs that met a media error.
//!
//! | what the load met | the page | answer |
//! |---|---|---|
//! | it could not be read in | can be read by now, and is not known to be damaged | healed |
//! | the same | is damaged | healed, once it is repaired |
//! | its memory failed | was not stored to since it was covered, and is right (again) | healed |
//! | the same | was stored to since, or may have been | not: undecided for good |
//! | any | anything else | not: the program's own action is taken |
//!
//! Of memory that failed the kernel reads in again what the device has, so what was stored and not
//! written back is gone, and the page looks as if it could be read. An entry of a page table that
//! says so has lost what it knew of stores: it is told as stored to. Until the question is served a
//! pass may have come by, and covered what the device had; so it counts when it can have been asked
//! at the earliest.

use std::time::{Duration, Instant};

use holdfast_guard_wire::{Answer, Refusal};
use holdfast_mapped::{Force, LoadFault, Mended, Scrubbed, Writers};
use holdfast_redundancy::PageVerdict;

use super::Guarded;
use crate::serve::Guard;

/// A page of a file that a load could not have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failed {
    pub(crate) space: u64,
    pub(crate) file: u32,
    pub(crate) page: u64,
    /// Whether its memory failed.
    pub(crate) memory: bool,
}

/// Nobody is stopped: nothing is to be replaced.
struct Nobody;

impl Writers for Nobody {
    fn freeze(&self) -> bool {
        false
    }

    fn thaw(&self) {}
}

impl Guarded {
    /// Has a page right that could not be read in: content that nobody knows to be damaged is as
    /// good as it gets, what is damaged is repaired.
    fn heal(&self, page: u64, writers: &dyn Writers) -> bool {
        let Some(engine) = &self.engine else { return false };
        let Ok(judged) = engine.verify(page) else { return false };
        if judged.readable && judged.verdict != PageVerdict::Corrupt {
            return true;
        }
        !self.contested && self.mended(engine.repair(page, writers, Force::No))
    }

    /// Has a page right whose memory failed so long ago, or has it be undecided.
    fn heal_memory(&self, page: u64, age: Duration, writers: &dyn Writers) -> bool {
        let Some(engine) = &self.engine else { return false };
        let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let writers = if self.contested { &Nobody } else { writers };
        self.mended(engine.heal_load(page, LoadFault::Memory { age_ns }, writers))
    }

    fn mended(&self, done: holdfast_mapped::Result<Mended>) -> bool {
        if matches!(done, Ok(Mended::Repaired)) {
            self.told(&Scrubbed { repaired: 1, ..Scrubbed::default() });
        }
        matches!(done, Ok(Mended::Good | Mended::Repaired))
    }
}

impl Guard {
    /// Puts a page right that a load could not have, for a process that cannot have asked before
    /// `earliest`.
    pub(crate) fn heal(
        &mut self,
        peer: u32,
        failed: Failed,
        earliest: Instant,
    ) -> Result<Answer, Refusal> {
        let Failed { space, file, page, memory } = failed;
        self.mine(peer, space)?;
        let index = file as usize;
        let file = self.files.get(&index).ok_or(Refusal::NoFile)?;
        if self.settles(index) {
            // What was stored to it is not told yet, so it may be anything.
            if let (true, Some(engine)) = (memory, &file.engine)
                && let Err(error) = engine.doubt_load(page)
                && let Some(file) = self.files.get_mut(&index)
            {
                file.note_error(&error.to_string());
            }
            return Ok(Answer::Unguarded);
        }
        let healed = self.with_writers(index, |file, writers| match memory {
            true => file.heal_memory(page, earliest.elapsed(), writers),
            false => file.heal(page, writers),
        });
        self.healed = healed.then_some(index);
        Ok(if healed { Answer::Healed } else { Answer::Unguarded })
    }
}
