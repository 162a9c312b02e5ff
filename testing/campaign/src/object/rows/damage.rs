//! Row `damage`: stray writes and flipped bits over every kind of place, many in one pool.
//!
//! A batch damages at most one range of each page column of the zone and one copy of each mirrored
//! page, which is what the redundancy promises to survive. The damage is then met by reads, by
//! changes, by a crash and the open after it, or by nobody but the scrub. After the scrub the pool
//! must hold what the model holds, and the journal must name each place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_faultmem::Fallen;
use holdfast_layout::{LogPlacement, Region, RegionKind, Superblock};
use holdfast_pmem::{Medium, PAGE};
use holdfast_redundancy::Wrong;
use holdfast_redundancy::events::{Event, Journal, Outcome};
use holdfast_workloads::Rng;

use super::spared::{Range, Spared, accused, as_told, revert_as_told};
use crate::object::driver::Driver;
use crate::object::handle::Handle;
use crate::object::judge::scrub;
use crate::object::raw::Bytes;
use crate::object::scenes::{refused, stage};
use crate::object::targets::{Area, Target, Targets};
use crate::object::world::World;
use crate::object::wrong::{Lie, Variant, are_enough, lie, or_right, site};
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "damage",
    story: "stray writes and bit flips over every kind of place, found and repaired in use",
    cases: |tier| WRONG.len() as u64 + if tier == Tier::Ci { 12 } else { 2_000 },
    run,
    finish: mostly_judged,
    patience: Duration::from_secs(300),
    threads: 2,
};

/// Faults of a case.
const FAULTS: u64 = 3_200;
/// Faults of a story with something wrong.
const FEW: u64 = 240;
/// What must be convicted.
const WRONG: &[Variant] = &[
    site("object.tx.verify-read", "reads serve what is damaged"),
    site("object.repair.store", "a repair stores nothing"),
    site("object.scrub.parity-p", "parity is not made anew"),
    site("redundancy.parity.check-p", "parity is never compared"),
    site("object.mend_unit.verify", "what is damaged is taken for right"),
    lie(Lie::Silent, "the journal says nothing", Fault::Unnoticed),
    lie(Lie::Elsewhere, "the journal names other places", Fault::Unnoticed),
    lie(Lie::Accuses, "the journal names what nothing damaged", Fault::FalseReport),
    lie(Lie::Reverts, "a repair changes what nothing damaged", Fault::Reverted),
];
const _: () = are_enough(WRONG);
/// Pages of the pools: some twenty page columns.
const PAGES: u64 = 241;
/// Batches between two looks at every byte of the medium.
const SURVEY_EACH: u64 = 4;

/// Worlds of the rows about damage: usual, but larger, and with room for the events of a batch.
pub fn world_of(number: u64, pages: u64) -> Arc<World> {
    let mut worlds = World::usual();
    let mut world = worlds.swap_remove(number as usize % worlds.len()).sized(pages);
    world.options.events = 8 * PAGE;
    Arc::new(world)
}

/// The pool's one zone.
pub(super) fn zone_of(driver: &Driver) -> Judged<Region> {
    let regions = driver.pool.regions();
    let zone = regions.iter().find(|region| region.kind == RegionKind::Zone).copied();
    zone.ok_or_else(|| Violation::new(Fault::Wrong, "the region table has no zone"))
}

/// Where damage counts as one: the page columns of the zone, the pages of a side.
pub(super) fn domains(driver: &Driver, zone: &Region, at: u64, len: u64) -> BTreeSet<u64> {
    let rows = u64::from(zone.data_rows + zone.parity_rows);
    let superblock = driver.pool.superblock();
    let side_len = superblock.side_len;
    // A record survives the loss of one copy, and may lie on several pages: those of its ring
    // count as one. On a file a record and its replica lie in the same ring.
    let ring = match superblock.log_placement {
        LogPlacement::Adjacent => u64::MAX,
        LogPlacement::Apart => superblock.ring_len,
    };
    let mut all = BTreeSet::new();
    for page in at / PAGE..=(at + len.max(1) - 1) / PAGE {
        // The parts of the page that the range covers may lie on both sides of a row's end.
        let first = at.max(page * PAGE);
        let last = (at + len.max(1) - 1).min(page * PAGE + PAGE - 1);
        for byte in [first, last] {
            if byte >= zone.start && byte < zone.start + rows * zone.row_len {
                all.insert((1 << 40) | ((byte - zone.start) % zone.row_len / PAGE));
            } else if byte < 2 * side_len {
                let place = byte % side_len;
                all.insert(match place.checked_sub(superblock.log_start) {
                    Some(inside) => (1 << 42) | (inside / ring),
                    None => place / PAGE,
                });
            } else {
                all.insert((1 << 41) | (byte / PAGE));
            }
        }
    }
    all
}

/// A pool that is closed to new events from here on, as far as a look at them goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen(u64);

impl Seen {
    /// Everything so far has been seen.
    pub(super) fn now(driver: &Driver) -> Self {
        Self::of(&driver.medium, &driver.pool.superblock())
    }

    /// Everything that the journal on a medium holds.
    pub(super) fn of(medium: &Handle, superblock: &Superblock) -> Self {
        let journal = Journal::open(medium, superblock);
        let last = journal.read_all(medium).last().map_or(0, |event| event.sequence);
        Self(last + 1)
    }

    /// Events since; `None` if there were so many that the journal lost some.
    pub(super) fn since(self, driver: &Driver) -> Option<Vec<Event>> {
        let journal = Journal::open(&driver.medium, &driver.pool.superblock());
        let events = journal.read_from(&driver.medium, self.0);
        let whole = events.first().is_none_or(|event| event.sequence == self.0);
        whole.then(|| as_told(events, driver.medium.len()))
    }

    /// The same, and notes whether there were too many to be judged: see [`mostly_judged`].
    pub(super) fn judged_since(self, driver: &Driver, tally: &mut Tally) -> Option<Vec<Event>> {
        let events = self.since(driver);
        tally.add(if events.is_some() { HELD } else { UNTOLD }, 1);
        events
    }
}

/// Journals that were judged, and those that could not be.
const HELD: &str = "journals that held all events";
const UNTOLD: &str = "journals with more events than they hold";
/// Of so many journals one may have lost events.
const UNTOLD_EACH: u64 = 10;

/// What a journal names is not judged where it did not hold all events. That is the exception, or
/// nobody would see an engine that tells too much.
pub(super) fn mostly_judged(tally: &mut Tally) {
    let figure = |name| tally.figures.get(name).copied().unwrap_or(0);
    let (held, untold) = (figure(HELD), figure(UNTOLD));
    if untold > 2 + (held + untold) / UNTOLD_EACH {
        let story = format!("{untold} of {} journals did not hold all events", held + untold);
        tally.convict(Violation::new(Fault::Unnoticed, story));
    }
}

/// A range that was damaged.
#[derive(Debug, Clone)]
struct Injury {
    area: Area,
    /// First byte that changed.
    at: u64,
    /// Bytes up to the last one that changed.
    len: u64,
    /// Those that changed.
    bytes: Vec<u64>,
}

/// How the damage of a batch is met before the scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meeting {
    Reads,
    Changes,
    Crash,
    Scrub,
}

fn run(case: &Case) -> Tally {
    or_right(WRONG, case, |_, case| story(case, FEW), |case| story(case, FAULTS))
}

/// So many faults.
fn story(case: &Case, faults: u64) -> Tally {
    let world = world_of(case.number, PAGES);
    let mut rng = case.rng(1);
    let mut tally = Tally::default();
    let done = batches(&world, faults, &mut rng, &mut tally);
    tally.judge(done.map_err(|violation| violation.during(world.name)));
    tally
}

fn batches(world: &Arc<World>, faults: u64, rng: &mut Rng, tally: &mut Tally) -> Judged<()> {
    let mut driver = stage(world, rng)?;
    driver.go_on(rng, 30)?;
    let mut left = Vec::new();
    for batch in 0_u64.. {
        if tally.count >= faults {
            break;
        }
        let judged = one_batch(world, driver, batch, &mut left, rng, tally);
        driver = match tally.judge(judged) {
            Some(driver) => driver,
            // What is wrong with this pool says nothing about the next batch.
            None => {
                left.clear();
                stage(world, rng)?
            }
        };
    }
    driver.check()?;
    let Driver { medium, pool, .. } = driver;
    medium.abandon(pool);
    Ok(())
}

/// Damages, meets, scrubs, looks. What was damaged in the log is added to what is `left` of it:
/// whoever comes there later may still find it.
fn one_batch(
    world: &Arc<World>,
    driver: Driver,
    batch: u64,
    left: &mut Vec<Range>,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Judged<Driver> {
    let meeting =
        [Meeting::Reads, Meeting::Changes, Meeting::Crash, Meeting::Scrub][rng.below(4) as usize];
    let seen = Seen::now(&driver);
    let spared = Spared::of(Bytes::of(&driver.medium));
    driver.medium.note_stores();
    let injuries = injure(&driver, rng)?;
    let hurt: Vec<Range> = injuries.iter().map(|injury| (injury.at, injury.len)).collect();
    tally.count += injuries.len() as u64;
    for injury in &injuries {
        tally.add(format!("faults in {}", injury.area), 1);
    }
    let told = |v: Violation| {
        let places: Vec<String> =
            injuries.iter().map(|i| format!("{} {:#x}+{:#x}", i.area, i.at, i.len)).collect();
        v.during(format!("batch {batch} ({meeting:?}; {})", places.join(", ")))
    };
    let driver = meet(world, driver, meeting, rng).map_err(told)?;
    let done = scrub(&driver.pool).map_err(told)?;
    tally.add("findings repaired by scrub", done.repaired);
    let change = |at, byte| {
        let _ = driver.medium.stray(at, &[byte]);
    };
    revert_as_told(&driver.ledger.objects(), &hurt, change, &driver.medium);
    if matches!(meeting, Meeting::Reads | Meeting::Scrub) {
        spared.untouched(&driver.medium, &hurt).map_err(told)?;
    }
    let events = named(&driver, &injuries, meeting, seen, tally).map_err(told)?;
    let known: Vec<Range> = hurt.iter().chain(&*left).copied().collect();
    accused(&zone_of(&driver)?, &events, &known, &driver.medium).map_err(told)?;
    settled(&driver, batch.is_multiple_of(SURVEY_EACH)).map_err(told)?;
    let in_log = injuries.iter().filter(|injury| matches!(injury.area, Area::Log(_)));
    left.extend(in_log.map(|injury| (injury.at, injury.len)));
    driver.go_on(rng, 2).map_err(|v| v.during("between batches"))?;
    Ok(driver)
}

/// After a scrub nothing is wrong any more, by the engine's own check and by the second reader.
pub(super) fn settled(driver: &Driver, survey: bool) -> Judged<()> {
    let report = driver.pool.check(|_, _| {}).map_err(|error| refused("check", &error))?;
    if !report.is_clean() {
        let story = format!("after the scrub a check finds {:?}", report.findings.first());
        return Err(Violation::new(Fault::Unnoticed, story));
    }
    driver.read_all()?;
    if survey {
        driver.check()?;
    }
    Ok(())
}

fn meet(world: &Arc<World>, driver: Driver, meeting: Meeting, rng: &mut Rng) -> Judged<Driver> {
    match meeting {
        Meeting::Scrub => {}
        Meeting::Reads => driver.read_all()?,
        Meeting::Changes => {
            let count = 1 + rng.below(6) as u32;
            driver.go_on(rng, count)?;
        }
        Meeting::Crash => return crash(world, driver),
    }
    Ok(driver)
}

/// The same pool after a crash that left nothing in doubt, and the open after it.
pub(super) fn crash(world: &Arc<World>, driver: Driver) -> Judged<Driver> {
    let Driver { medium, pool, ledger, anchor } = driver;
    let image = medium.crash_point().persisted();
    medium.abandon(pool);
    let medium = world.after(image);
    medium.note_stores();
    let (pool, _) = world.open(&medium).map_err(|error| refused("open", &error))?;
    Ok(Driver { medium, pool, ledger, anchor })
}

/// What is damaged already, by domain: in columns of the zone the pages, and whether what was
/// damaged there has a sum.
#[derive(Debug, Default)]
struct Taken(BTreeMap<u64, Vec<(u64, bool)>>);

impl Taken {
    /// Takes these domains for a range, if each bears it: columns of the zone as much as they have
    /// rows of parity, all else one. Of two damages in a column one needs a sum: of two that have
    /// none, nothing tells where they are. One as long as a row may lie on two rows of a column.
    fn take(
        &mut self,
        zone: &Region,
        domains: &BTreeSet<u64>,
        target: &Target,
        (at, len): Range,
    ) -> bool {
        let one = zone.parity_rows < 2 || len > zone.row_len - PAGE;
        let summed = !matches!(target.area, Area::ParityP | Area::ParityQ | Area::Free);
        let has_sum = summed && at + len <= target.at + target.len;
        let (first, last) = (at / PAGE, (at + len.max(1) - 1) / PAGE);
        let fits = |domain: &u64| match self.0.get(domain).map(Vec::as_slice) {
            None => true,
            Some([(page, other)]) => {
                let apart = !(first..=last).contains(page);
                domain >> 40 == 1 && !one && apart && (has_sum || *other)
            }
            Some(_) => false,
        };
        let fit = domains.iter().all(fits);
        for domain in domains.iter().filter(|_| fit) {
            let all = self.0.entry(*domain).or_default();
            let column = |page: u64| (page * PAGE).saturating_sub(zone.start) % zone.row_len / PAGE;
            let here = (first..=last).find(|page| *domain == 1 << 40 | column(*page));
            all.push((here.unwrap_or(first), has_sum));
            if one {
                all.push((first, false));
            }
        }
        fit
    }
}

/// Damages a range in as many domains as chance finds free; with P and Q, columns twice.
fn injure(driver: &Driver, rng: &mut Rng) -> Judged<Vec<Injury>> {
    let bytes = Bytes::of(&driver.medium);
    let targets = Targets::of(&bytes);
    let areas = targets.areas();
    let zone = zone_of(driver)?;
    let mut taken = Taken::default();
    let mut injuries = Vec::new();
    for attempt in 0..60 {
        let Some(target) = rng.pick(&areas).and_then(|area| targets.pick(*area, rng)) else {
            continue;
        };
        let at = target.at + rng.below(target.len);
        let most = match rng.below(16) {
            0..8 => 1,
            8..12 => 64,
            12..15 => PAGE,
            // As long as a row, only where nothing else is damaged yet.
            _ if attempt == 0 => zone.row_len,
            _ => 600,
        };
        let len = (1 + rng.below(most)).min(end_of(driver, &zone, at) - at);
        let domains = domains(driver, &zone, at, len);
        if !taken.take(&zone, &domains, &target, (at, len)) {
            continue;
        }
        let before = bytes.get(at, len).unwrap_or_default();
        injuries.extend(hit(driver, rng, target.area, at, before)?);
    }
    Ok(injuries)
}

/// End of the region around `at` that one stray write may cover.
pub(super) fn end_of(driver: &Driver, zone: &Region, at: u64) -> u64 {
    let data = zone.start + u64::from(zone.data_rows) * zone.row_len;
    if at < zone.start {
        return (at / PAGE + 1) * PAGE;
    }
    let mut end = data;
    while end <= at {
        end += zone.row_len;
    }
    end.min(driver.medium.len())
}

fn hit(
    driver: &Driver,
    rng: &mut Rng,
    area: Area,
    at: u64,
    before: &[u8],
) -> Judged<Option<Injury>> {
    let len = before.len();
    let mut after = vec![0; len];
    match rng.below(4) {
        0 => {}
        1 => after.fill(0xff),
        // What an overrun of another object looks like: bytes that are right elsewhere.
        2 => {
            let from = rng.below(driver.medium.len() - len as u64);
            if driver.medium.read(from, &mut after).is_err() {
                return Ok(None);
            }
        }
        _ => rng.fill(&mut after),
    }
    let flip = len == 1 && rng.below(2) == 0;
    let bit = rng.below(8) as u8;
    if flip {
        after[0] = before[0] ^ 1 << bit;
    }
    let Some(first) = (0..len).find(|i| after[*i] != before[*i]) else { return Ok(None) };
    let last = (0..len).rfind(|i| after[*i] != before[*i]).unwrap_or(first);
    let done = if flip { driver.medium.flip_bit(at, bit) } else { driver.medium.stray(at, &after) };
    done.map_err(|error| Violation::new(Fault::Refused, format!("injecting: {error}")))?;
    let differs = |i: &usize| after[*i] != before[*i];
    let bytes = (0..len).filter(differs).map(|i| at + i as u64).collect();
    Ok(Some(Injury { area, at: at + first as u64, len: (last - first + 1) as u64, bytes }))
}

/// Whether an event names the range, or at least its columns where nothing more can be told.
pub(super) fn names(zone: &Region, event: &Event, at: u64, len: u64) -> bool {
    let touches = |a: u64, a_len: u64, b: u64, b_len: u64| a < b + b_len && b < a + a_len;
    if touches(event.at, event.len, at, len) {
        return true;
    }
    let columns =
        matches!(event.wrong, None | Some(Wrong::FreeOrParity | Wrong::ParityP | Wrong::ParityQ));
    // Of what begins before the zone, the rest lies over columns.
    let (at, len) = (at.max(zone.start), (at + len).saturating_sub(at.max(zone.start)));
    if !columns || event.at < zone.start || len == 0 {
        return false;
    }
    let (col, hit) = ((event.at - zone.start) % zone.row_len, (at - zone.start) % zone.row_len);
    // A range over the end of a row goes on at the first column.
    touches(col, event.len, hit, len) || touches(col + zone.row_len, event.len, hit, len)
}

/// The journal names the place of each injury that nothing but a repair can have removed. Answers
/// what it says.
fn named(
    driver: &Driver,
    injuries: &[Injury],
    meeting: Meeting,
    seen: Seen,
    tally: &mut Tally,
) -> Judged<Vec<Event>> {
    let Some(events) = seen.judged_since(driver, tally) else { return Ok(Vec::new()) };
    for event in &events {
        tally.add(format!("events found by {}", event.finder), 1);
        if event.outcome == Outcome::Lost {
            let story = format!("within tolerance, but the journal says: {event}");
            return Err(Violation::new(Fault::Wrong, story));
        }
    }
    let zone = zone_of(driver)?;
    for injury in injuries {
        let Injury { area, at, len, ref bytes } = *injury;
        if events.iter().any(|event| names(&zone, event, at, len)) {
            tally.add("named in the journal", 1);
            continue;
        }
        // Records in the log are done with; these pages are written by the scrub itself.
        let done_with = matches!(area, Area::Log(_) | Area::Intent(_) | Area::Progress(_));
        // Changes write pages and places anew.
        let stored = matches!(meeting, Meeting::Changes | Meeting::Crash)
            && (driver.medium.stored_over(&whenever(bytes))
                || meeting == Meeting::Crash && remade(driver, &zone, area, bytes));
        if !done_with && !stored {
            let story = format!("no event names the damage of {area} at {at:#x}+{len:#x}");
            return Err(Violation::new(Fault::Unnoticed, story));
        }
        tally.add("overwritten before anybody looked", 1);
    }
    Ok(events)
}

/// Bytes that went wrong before anything was stored.
fn whenever(bytes: &[u64]) -> Vec<Fallen> {
    bytes.iter().map(|at| Fallen { at: *at, stores: 0 }).collect()
}

/// Whether parity over damaged parity or free bytes was made anew, as recovery does over all
/// columns of what it replays: whatever is in free bytes is right, and goes into it.
fn remade(driver: &Driver, zone: &Region, area: Area, bytes: &[u64]) -> bool {
    let p = zone.start + u64::from(zone.data_rows) * zone.row_len;
    match area {
        Area::ParityP | Area::ParityQ => driver.medium.any_stored(bytes.iter().copied()),
        Area::Free => {
            let over = bytes.iter().map(|byte| p + (byte - zone.start) % zone.row_len);
            zone.parity_rows > 0 && driver.medium.any_stored(over)
        }
        _ => false,
    }
}
