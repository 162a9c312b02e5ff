//! Damage while threads work, one at a time: each is scrubbed away before the next.

use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_faultmem::Clear;
use holdfast_object::{Pool, ScrubControl, ScrubOptions};
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
/// Damages of one history at most.
const MOST: u64 = 8;

/// Damages and scrubs until the threads are done.
///
/// # Errors
/// Something was lost, or a scrub failed.
pub fn play(
    medium: &Handle,
    pool: &Pool<Handle>,
    mut rng: Rng,
    views: bool,
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
        if !(views && area == Area::Object)
            && let Some(target) = targets.pick(area, &mut rng)
        {
            wound(medium, target, !views && rng.below(4) == 0, &mut rng)?;
            tally.add("damaged meanwhile", 1);
        }
        shake::here();
        scrub(pool, &mut tally)?;
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

/// Scrubs once; nothing may be lost.
///
/// # Errors
/// Something was, or the scrub failed.
pub fn scrub<M: Medium>(pool: &Pool<M>, tally: &mut Tally) -> Judged<()> {
    let done = pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {});
    let done = done.map_err(|error| refused("scrub", &error))?;
    tally.add("scrubs meanwhile", 1);
    tally.add("repaired by scrubs meanwhile", done.repaired);
    if done.lost + done.undecided > 0 {
        let found = done.report.findings.first();
        let (lost, undecided) = (done.lost, done.undecided);
        let story = format!("one damage at a time, and {lost} lost, {undecided} undecided: {found:?}");
        return Err(Violation::new(Fault::Wrong, story));
    }
    Ok(())
}
