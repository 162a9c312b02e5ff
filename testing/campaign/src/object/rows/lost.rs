//! Row `lost`: writes the device loses, sends elsewhere or tears, in the middle of commits, and
//! places that come back as they once were.
//!
//! One fault is armed, a transaction runs into it and sees nothing; or transactions run, and a
//! line, sector or page that they changed then holds what it held before them. Then the pool is
//! read, worked on or crashed, and scrubbed. If place meant and place hit share no page column,
//! everything must be as the model says; otherwise no wrong byte may be served, and the pool is
//! given up.

use std::sync::Arc;
use std::time::Duration;

use holdfast_faultmem::{Damage, FaultKind, Injected, Torn, When};
use holdfast_layout::Region;
use holdfast_pmem::{Medium, MediumKind};
use holdfast_workloads::Rng;

use super::damage::{Seen, crash, domains, names, settled, world_of, zone_of};
use super::stale::{Past, set_back, settle};
use crate::object::driver::Driver;
use crate::object::judge::scrub;
use crate::object::ops::any_job;
use crate::object::scenes::stage;
use crate::object::world::World;
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally};

/// The row.
pub const ROW: Row = Row {
    name: "lost",
    story: "lost, misdirected and torn writes in the middle of commits; stale lines and pages",
    cases: |tier| CASES * if matches!(tier, Tier::Ci) { 1 } else { 30 },
    run,
    finish: |_| {},
    patience: Duration::from_secs(300),
    threads: 2,
};

/// Cases of the CI tier: ten for each kind of fault and world.
const CASES: u64 = 160;
/// Faults of each.
const FAULTS: u64 = 250;
/// Faults after which a case is ended although not all of them came about.
const ATTEMPTS: u64 = 4 * FAULTS;
/// The fault that is not of a write: see `stale.rs`.
const STALE: u64 = 3;
/// Pages of the pools.
const PAGES: u64 = 121;

fn run(case: &Case) -> Tally {
    let world = world_of(case.number, PAGES);
    let kind = case.number / 4 % 4;
    let mut rng = case.rng(1);
    let mut tally = Tally::default();
    let done = rounds(&world, kind, &mut rng, &mut tally);
    tally.judge(done.map_err(|violation| violation.during(world.name)));
    tally
}

/// A pool with more in it than the usual cast.
fn begin(world: &World, rng: &mut Rng) -> Judged<Driver> {
    let driver = stage(world, rng)?;
    driver.go_on(rng, 20)?;
    Ok(driver)
}

fn rounds(world: &Arc<World>, kind: u64, rng: &mut Rng, tally: &mut Tally) -> Judged<()> {
    let mut driver = begin(world, rng)?;
    for round in 0..ATTEMPTS {
        if tally.count >= FAULTS {
            break;
        }
        let seen = Seen::now(&driver);
        let struck = match kind {
            STALE => set_back(&driver, rng)?.map(|(injected, past)| (injected, Some(past))),
            _ => strike(&driver, kind, rng)?.map(|injected| (injected, None)),
        };
        let Some((injected, past)) = struck else { continue };
        let zone = zone_of(&driver)?;
        let outside = beyond(&driver, &zone, &injected);
        let log_lost = took_both_copies(&driver, &injected);
        let judged = match &past {
            Some(past) => judge_stale(world, driver, (&injected, past), &zone, rng, tally),
            None => judge(world, driver, &injected, outside, rng),
        };
        if outside {
            tally.add("beyond tolerance, not judged further", 1);
        }
        let story = || format!("round {round}, {}", words(&injected));
        driver = match tally.judge(judged.map_err(|v| v.during(story()))) {
            // Until its log is reclaimed, a crash would lose the transaction.
            Some(Some(driver)) if !log_lost => driver,
            Some(Some(driver)) => {
                let Driver { medium, pool, .. } = driver;
                medium.abandon(pool);
                begin(world, rng)?
            }
            // What is wrong with this pool says nothing about the next fault.
            Some(None) | None => begin(world, rng)?,
        };
        tally.count += 1;
        tally.add(["lost", "misdirected", "torn", "stale"][kind as usize], 1);
        located(&driver, &zone, &injected, seen, tally);
    }
    driver.check()?;
    let Driver { medium, pool, .. } = driver;
    medium.abandon(pool);
    Ok(())
}

/// Has the fault met and scrubbed away. Answers the pool if it can go on.
fn judge(
    world: &Arc<World>,
    driver: Driver,
    injected: &Injected,
    outside: bool,
    rng: &mut Rng,
) -> Judged<Option<Driver>> {
    if outside {
        serves_no_wrong_byte(&driver)?;
        let Driver { medium, pool, .. } = driver;
        medium.abandon(pool);
        return Ok(None);
    }
    let driver = meet(world, driver, injected, rng)?;
    scrub(&driver.pool)?;
    settled(&driver, true)?;
    Ok(Some(driver))
}

/// The same for a place that was set back.
fn judge_stale(
    world: &Arc<World>,
    driver: Driver,
    (injected, past): (&Injected, &Past),
    zone: &Region,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Judged<Option<Driver>> {
    let driver = match rng.below(4) {
        2 if !took_both_copies(&driver, injected) => crash(world, driver)?,
        way @ (0 | 1) => {
            past.meet(&driver, rng, way == 1)?;
            driver
        }
        _ => driver,
    };
    let undecided = past.scrubbed(&driver, rng)?;
    let rows = zone.start..zone.start + u64::from(zone.data_rows) * zone.row_len;
    let figure = match (rows.contains(&injected.at), injected.at >= zone.start, undecided) {
        (true, _, 0) => "stale in rows, right after the scrub",
        (true, _, _) => "stale in rows, named as in doubt",
        (_, true, 0) => "stale in parity, right after the scrub",
        (_, true, _) => "stale in parity, named as in doubt",
        _ => "stale in metadata or log",
    };
    tally.add(figure, 1);
    // What was in doubt and is not an object of the model stays so.
    if undecided == 0 || driver.pool.check(|_, _| {}).is_ok_and(|report| report.is_clean()) {
        return Ok(Some(driver));
    }
    let Driver { medium, pool, .. } = driver;
    medium.abandon(pool);
    Ok(None)
}

/// Arms a fault and runs a transaction into it. `None` if it met no write.
fn strike(driver: &Driver, kind: u64, rng: &mut Rng) -> Judged<Option<Injected>> {
    let before = driver.medium.injected().len();
    let kind = match kind {
        0 => FaultKind::Lost,
        1 => FaultKind::Misdirected { to: rng.below(driver.medium.len()) },
        _ if rng.below(2) == 0 => FaultKind::Torn(Torn::Prefix(rng.below(8))),
        _ => FaultKind::Torn(Torn::Subset(rng.next_u64())),
    };
    driver.medium.arm(kind, When::next().nth(1 + rng.below(10)));
    for _ in 0..3 {
        let job = any_job(rng, &driver.ledger.objects());
        driver.must(&job)?;
        if driver.medium.armed() == 0 {
            break;
        }
    }
    driver.medium.disarm();
    settle(driver)?;
    Ok(driver.medium.injected().get(before).cloned())
}

/// A fault in words.
fn words(injected: &Injected) -> String {
    let site = injected.site.map_or("?", |site| site.name());
    format!("{:?} at {site}, {:#x}+{:#x}", injected.damage, injected.at, injected.len)
}

/// Whether a fault hit more than one unit of something that survives one.
fn beyond(driver: &Driver, zone: &Region, injected: &Injected) -> bool {
    let here = domains(driver, zone, injected.at, injected.len);
    let Damage::Write(FaultKind::Misdirected { to }) = injected.damage else {
        return injected.len > zone.row_len;
    };
    let there = domains(driver, zone, to, injected.len);
    !here.is_disjoint(&there)
}

/// Whether one write carried both copies of a log record, as on a file: after a crash its
/// transaction is gone, and nothing can tell.
fn took_both_copies(driver: &Driver, injected: &Injected) -> bool {
    let append = driver.medium.kind() == MediumKind::File;
    append && injected.at < 2 * driver.pool.superblock().side_len
}

/// Reads everything: right, or an error.
fn serves_no_wrong_byte(driver: &Driver) -> Judged<()> {
    match driver.read_all() {
        Err(violation) if violation.fault != Fault::Refused => Err(violation),
        _ => Ok(()),
    }
}

fn meet(world: &Arc<World>, driver: Driver, injected: &Injected, rng: &mut Rng) -> Judged<Driver> {
    match rng.below(4) {
        // A slot whose write was lost is an old one and verifies: only parity knows.
        0 => serves_no_wrong_byte(&driver)?,
        1 => {
            let count = 1 + rng.below(3) as u32;
            driver.go_on(rng, count)?;
        }
        2 if !took_both_copies(&driver, injected) => return crash(world, driver),
        _ => {}
    }
    Ok(driver)
}

/// Compares the events with the injector's log. What a later store replaced leaves no event.
fn located(driver: &Driver, zone: &Region, injected: &Injected, seen: Seen, tally: &mut Tally) {
    let Some(events) = seen.since(driver) else { return };
    let differs = |i: &usize| injected.intended.get(*i) != injected.after.get(*i);
    let all = 0..injected.intended.len();
    let (Some(first), Some(last)) = (all.clone().find(differs), all.clone().rfind(differs)) else {
        return;
    };
    let (at, len) = (injected.at + first as u64, (last - first + 1) as u64);
    let in_zone = at >= zone.start;
    let figure = match (in_zone, events.iter().any(|event| names(zone, event, at, len))) {
        (true, true) => "in the zone, located",
        (true, false) => "in the zone, replaced before anybody looked",
        (false, true) => "in metadata or log, located",
        (false, false) => "in metadata or log, replaced or done with",
    };
    tally.add(figure, 1);
}
