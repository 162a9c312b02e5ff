//! What goes on beside threads that work: scrubs, and damage, one at a time, each of which is
//! scrubbed away before the next.

use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_faultmem::Clear;
use holdfast_object::{Pool, ScrubControl, ScrubOptions, Scrubbed};
use holdfast_pmem::Medium;
use holdfast_workloads::Rng;

use super::shake;
use crate::object::handle::Handle;
use crate::object::raw::Bytes;
use crate::object::scenes::refused;
use crate::object::targets::{Area, Target, Targets};
use crate::tally::{Fault, Judged, Tally, Violation};

/// What is damaged. Bytes of live things only: two damages at once are more than P carries, and a
/// scrub would not notice what hit free bytes before they are used.
const AREAS: [Area; 6] =
    [Area::Object, Area::Object, Area::Slot, Area::Sum, Area::ParityP, Area::Directory];
/// Scrubs, or damages, of one history at most.
const MOST: u64 = 8;
/// Scrubs more of what is undecided.
const MORE: u64 = 3;

/// What is done beside the threads of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// Scrubs, which must find nothing.
    Scrub,
    /// Damage, and a scrub after each.
    Harm,
}

/// Scrubs, and damages if that is asked for, until the threads are done.
///
/// # Errors
/// Something was lost, or a scrub failed.
pub fn play(
    medium: &Handle,
    pool: &Pool<Handle>,
    mut rng: Rng,
    (beside, views): (Beside, bool),
    over: &AtomicBool,
) -> Judged<Tally> {
    let mut tally = Tally::default();
    let targets = Targets::of(&Bytes::of(medium));
    for _ in 0..MOST {
        if over.load(Ordering::Acquire) {
            break;
        }
        let area = AREAS[rng.below(AREAS.len() as u64) as usize];
        // Borrowed bytes are plain memory: damage to them would be seen, as documented.
        let spared = beside == Beside::Scrub || views && area == Area::Object;
        if !spared && let Some(target) = targets.pick(area, &mut rng) {
            wound(medium, target, !views && rng.below(4) == 0, &mut rng)?;
            tally.add("damaged meanwhile", 1);
        }
        shake::here();
        scrub(pool, beside, &mut tally)?;
    }
    Ok(tally)
}

fn wound(medium: &Handle, target: Target, poison: bool, rng: &mut Rng) -> Judged<()> {
    let at = target.at + rng.below(target.len);
    let done = if poison {
        medium.poison(at, 1, Clear::Able)
    } else {
        medium.flip_bit(at, rng.below(8) as u8)
    };
    done.map_err(|error| Violation::new(Fault::Refused, format!("damaging {at:#x}: {error}")))
}

/// Scrubs once, and again if that left something undecided: whoever changes what is damaged may
/// stand still for longer than a scrub waits. Nothing may be lost, and nothing found where nothing
/// is damaged.
///
/// # Errors
/// Something was, or the scrub failed.
pub fn scrub<M: Medium>(pool: &Pool<M>, beside: Beside, tally: &mut Tally) -> Judged<()> {
    let mut done = once(pool, tally)?;
    for _ in 0..MORE {
        // Where nothing is damaged, whatever was found is wrong.
        if beside == Beside::Scrub || done.lost > 0 || done.undecided == 0 {
            break;
        }
        done = once(pool, tally)?;
    }
    let found = done.report.findings.first();
    if beside == Beside::Scrub && done.report.found > 0 {
        let story = format!("a scrub beside threads found {found:?}, and nothing is damaged");
        return Err(Violation::new(Fault::FalseReport, story));
    }
    if done.lost + done.undecided > 0 {
        let (lost, undecided) = (done.lost, done.undecided);
        let story =
            format!("one damage at a time, and {lost} lost, {undecided} undecided: {found:?}");
        return Err(Violation::new(Fault::Wrong, story));
    }
    Ok(())
}

fn once<M: Medium>(pool: &Pool<M>, tally: &mut Tally) -> Judged<Scrubbed> {
    let done = pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {});
    let done = done.map_err(|error| refused("scrub", &error))?;
    tally.add("scrubs meanwhile", 1);
    tally.add("repaired by scrubs meanwhile", done.repaired);
    Ok(done)
}
