//! Persistent memory of which the kernel is told that it has failed (`MADV_HWPOISON` of pages on
//! fs-dax), under a pool. This kernel takes the page out of nobody's mapping: it stays readable,
//! and holds what it held. So nothing may be missing, nothing wrong be served, and nothing be told
//! that did not happen. Should a kernel raise the signal after all, each has to be answered and
//! told.

use std::path::Path;

use holdfast_pmem::inject::{Poison, handler_count};
use holdfast_pmem::{Medium, MediumKind};
use holdfast_workloads::Rng;

use super::super::{Manner, When, Wound};
use crate::object::life::{Life, Origin};
use crate::object::ops::any_job;
use crate::object::scenes::refused;
use crate::object::world::World;
use crate::tally::{Fault, Judged, Tally, Violation};

/// Pages whose memory fails, in a life.
const PAGES: usize = 3;

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
    let manner = Manner { stuck: false, bare: false, reopen: false, busy: true };
    let mut wounds: Vec<Wound> = Vec::new();
    for _ in 0..PAGES {
        let taken = wounds.iter().map(|wound| life.domain(wound.page)).collect();
        let chosen = life.choose(Poison::Unclearable, manner, &taken, rng);
        wounds.extend(chosen.map(|wound| Wound { when: When::Busy, ..wound }));
    }
    let told = |v: Violation| v.during(format!("{wounds:x?}"));
    life.under_work(&wounds, rng).map_err(told)?;
    tally.count += wounds.len() as u64;
    for _ in 0..4 {
        let job = any_job(rng, &life.objects);
        life.must(&job).map_err(told)?;
    }
    life.read_all().map_err(told)?;
    let done = life.scrub().map_err(told)?;
    life.whole(&[]).map_err(told)?;
    let (signals, events) = (handler_count() - before, life.events_since(seen));
    let answered: u64 = life.live.met().values().sum::<u64>() + life.waited;
    if signals != answered {
        let story = format!("{signals} signals, but {answered} errors and loads that waited");
        return Err(told(Violation::new(Fault::Unnoticed, story)));
    }
    let untold = life.live.met().into_keys().find(|page| {
        !events.iter().any(|event| super::super::names(&life.zone, event, *page, super::PAGE))
    });
    if let Some(page) = untold {
        let story = format!("page {page:#x} raised a signal, and no event names it");
        return Err(told(Violation::new(Fault::Unnoticed, story)));
    }
    if signals == 0 && (!events.is_empty() || done.report.found > 0) {
        let story = format!("no page was refused, but there is told: {events:?}, {done:?}");
        return Err(told(Violation::new(Fault::Exposed, story)));
    }
    let what =
        if signals == 0 { "failed on fs-dax and stayed readable" } else { "refused on fs-dax" };
    tally.add(what, wounds.len() as u64);
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
