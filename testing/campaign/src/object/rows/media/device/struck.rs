//! Persistent memory that fails under a thread of the program itself, as the machine reports it:
//! the sectors are listed, the kernel takes the page from the pool's own mapping and raises
//! `SIGBUS` in the middle of what the thread does. It waits there until the pool has moved the
//! page, and goes on; other threads commit and read beside it, and meet the page as well.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use holdfast_pmem::inject::{Poison, handler_count};
use holdfast_pmem::{Medium, MediumKind};
use holdfast_workloads::Rng;

use super::super::{BUSY_WAIT, Manner, When, Wound};
use crate::object::driver::Ledger;
use crate::object::life::{Life, Origin};
use crate::object::ops::any_job;
use crate::object::scenes::refused;
use crate::object::toil::{Fair, Toil};
use crate::object::world::World;
use crate::tally::{Fault, Judged, Tally, Violation};

/// What the scene of the lab has to have seen.
const SHOWN: &str = "struck under load, refused, and relocated";

/// One life, and what the file is found to be when it is opened again.
pub(super) fn one(
    world: &World,
    path: &Path,
    origin: &Origin,
    (rng, tally): (&mut Rng, &mut Tally),
) -> Judged<()> {
    let before = handler_count();
    let mut life = Life::begin(world, path, origin)?;
    if life.live.kind() != MediumKind::Dax {
        let story = format!("the pool is on {}, not mapped directly", life.live.kind());
        return Err(Violation::new(Fault::Refused, story));
    }
    let seen = life.last_event();
    // What a program loads is in the zone; pages there can be moved.
    let in_zone = Manner { stuck: false, bare: true, reopen: false, busy: true };
    let Some(wound) = life.choose(Poison::Unclearable, in_zone, &BTreeSet::new(), rng) else {
        return Ok(());
    };
    // Of such a load, it is known that somebody met it.
    let wound = Wound { when: When::Load, ..wound };
    let told = |v: Violation| v.during(format!("{wound:x?}"));
    strike(&mut life, &wound, rng).map_err(told)?;
    tally.count += 1;
    for _ in 0..4 {
        let job = any_job(rng, &life.objects);
        life.must(&job).map_err(told)?;
    }
    life.read_all().map_err(|v| told(life.later(v)))?;
    life.settle(&[wound], seen, Manner { bare: false, ..in_zone }, tally).map_err(told)?;
    let (signals, met) = (handler_count() - before, life.live.met().values().sum::<u64>());
    if signals != met + life.waited {
        let waited = life.waited;
        let story = format!("{signals} signals, but {met} errors and {waited} loads that waited");
        return Err(told(Violation::new(Fault::Unnoticed, story)));
    }
    tally.add(SHOWN, 1);
    tally.add("met by others at work then", met);
    let Life { objects, pool, live, anchor, .. } = life;
    drop((pool, live));
    let again = Life::open(world, path, objects, anchor).map_err(told)?;
    again.read_all().map_err(|v| told(v.during("opened again")))?;
    let report = again.pool.check(|_, _| {}).map_err(|error| refused("check", &error))?;
    if !report.is_clean() {
        let story = format!("opened again, a check finds {:?}", report.findings.first());
        return Err(told(Violation::new(Fault::Unnoticed, story)));
    }
    tally.add("closed and opened again", 1);
    Ok(())
}

/// Two threads commit and read objects of their own, and this one is struck. The signal has to
/// come, and the page to be put right before this thread goes on.
fn strike(life: &mut Life<'_>, wound: &Wound, rng: &mut Rng) -> Judged<()> {
    let ledger = Ledger::new(std::mem::take(&mut life.objects));
    let over = AtomicBool::new(false);
    let (pool, anchor) = (&life.pool, life.anchor);
    let toil = Toil { pool, ledger: &ledger, anchor, over: &over, weather: &Fair };
    let seeds = [rng.next_u64(), rng.next_u64()];
    let pause = |rng: &mut Rng| std::thread::sleep(Duration::from_micros(rng.below(BUSY_WAIT)));
    let mut answered = Vec::new();
    let ran = toil.during(&seeds, || {
        pause(rng);
        let (struck, all) = life.attended(&[], || life.poison(wound));
        answered = all;
        pause(rng);
        struck
    });
    life.objects = ledger.objects();
    ran?;
    life.waited += answered.len() as u64;
    if answered != [true] {
        let story = format!("who was struck was answered {answered:?}");
        return Err(Violation::new(Fault::Unnoticed, story));
    }
    Ok(())
}
