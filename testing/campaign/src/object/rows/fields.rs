//! Row `fields`: every field of every structure on the medium, damaged in eight ways, met in five.
//!
//! Damage with the sum left as it is hits one copy or one unit: it must be found, named and
//! repaired, and no wrong byte be served. Damage with the sum computed again, in all copies, is
//! hostile: no panic, no hang, an open that refuses says why and changes nothing, and where the
//! field belongs to one object or chunk all other objects are served right. A field that the
//! sources define and that no case could damage makes the row fail. Of what a pool has more than
//! one of, the CI tier damages one that is drawn, the long tier each.

use std::sync::Arc;
use std::time::Duration;

use holdfast_collections::Kind;
use holdfast_logs::format::{KIND_DATA, KIND_FRESH, KIND_OVERFLOW};
use holdfast_object::{Error, ScrubControl, ScrubOptions};
use holdfast_pmem::Medium;
use holdfast_redundancy::events::{Event, Journal};
use holdfast_workloads::Rng;

use super::damage::{names, settled, world_of, zone_of};
use super::spared::{accused, as_told, kept, revert_as_told};
use crate::object::driver::Driver;
use crate::object::fields::each::{Meeting, all_noted, note, within};
use crate::object::fields::formats;
use crate::object::fields::meet::{apart, served, unchanged};
use crate::object::fields::seal::{Sealer, read};
use crate::object::fields::specimen::{Pairs, Specimen, Wanted, use_maps};
use crate::object::fields::spots::{Guard, MARK, OVERFLOW, Spot, find};
use crate::object::fields::verbs::Verb;
use crate::object::handle::Handle;
use crate::object::judge::scrub;
use crate::object::model::Objects;
use crate::object::ops::{Node, any_job};
use crate::object::raw::Bytes;
use crate::object::scenes::refused;
use crate::object::world::World;
use crate::object::wrap;
use crate::object::wrong::{Lie, Variant, are_enough, lie, or_right, site, told};
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "fields",
    story: "every field on the medium damaged in eight ways, its sum left or computed again",
    cases: |tier| {
        let rounds = if matches!(tier, Tier::Ci) { 1 } else { 4 * ROUNDS };
        WRONG.len() as u64 + GROUPS.len() as u64 * rounds
    },
    run,
    finish,
    patience: Duration::from_secs(1_800),
    threads: 2,
};

/// Cases of the long tier that share the places of a group in a world.
pub const ROUNDS: u64 = 20;
/// Pages of the pools.
pub const PAGES: u64 = 121;
/// Keys of a map that does not fit beside a log as long as on files.
const MANY: u16 = 2_000;
/// Longest time one run may take: the same without damage takes milliseconds.
const SLOW: Duration = Duration::from_secs(10);
/// Figure: of these, in watermark records, which have the fields of all others.
const MARKS: &str = "in watermark records";
/// Figure of what was damaged in entries that a record leads to.
const OVERFLOWED: &str = "in entries that overflowed";

/// Worlds of even and of odd groups, by round: the one round of the CI tier sees both media and
/// both kinds of parity.
const WORLDS: [[u64; 4]; 2] = [[0, 3, 1, 2], [3, 0, 2, 1]];

/// What is damaged together, and the pool that has it.
const GROUPS: &[(&[&str], Wanted)] = &[
    (&["layout SUPERBLOCK"], Wanted::Tables),
    (&["layout MIRRORED", "layout REMAP"], Wanted::Tables),
    (&["layout REGION"], Wanted::Tables),
    (&["redundancy EVENT"], Wanted::Tables),
    (&["redundancy PROGRESS", "object ANCHOR"], Wanted::Tables),
    (&["heap CHUNK"], Wanted::Tables),
    (&["heap SLOT", "heap SUM", "parity"], Wanted::Tables),
    (&["redundancy INTENT"], Wanted::Intent),
    (&["logs RECORD", "logs DATA", "logs SLOT"], Wanted::Record(KIND_DATA)),
    (&["logs FRESH"], Wanted::Record(KIND_FRESH)),
    (&["logs OVERFLOW", "logs DATA", "logs SLOT", "heap CHUNK"], Wanted::Record(KIND_OVERFLOW)),
    (&["collections Map", "collections HashHeader"], Wanted::Maps(Pairs::Mixed, &[Kind::Hash])),
    (&["collections HashDirectory"], Wanted::Maps(Pairs::Crowded, &[Kind::Hash])),
    (
        &["collections Bucket", "collections Item", "collections Entry"],
        Wanted::Maps(Pairs::Mixed, &[Kind::Hash, Kind::CTree]),
    ),
    (
        &["collections TreeHeader", "collections BTreeNode"],
        Wanted::Maps(Pairs::Mixed, &[Kind::BTree, Kind::RbTree]),
    ),
    (
        &["collections RbNode", "collections CritNode"],
        Wanted::Maps(Pairs::Mixed, &[Kind::RbTree, Kind::CTree]),
    ),
    (&["collections Radix4."], Wanted::Maps(Pairs::Wide(150), &[Kind::RTree])),
    (&["collections Radix16."], Wanted::Maps(Pairs::Mixed, &[Kind::RTree])),
    (&["collections Radix48."], Wanted::Maps(Pairs::Wide(1_500), &[Kind::RTree])),
    (&["collections Radix256."], Wanted::Maps(Pairs::Wide(2_300), &[Kind::RTree])),
    (&["collections Skip"], Wanted::Maps(Pairs::Mixed, &[Kind::SkipList])),
    (&["logs RECORD"], Wanted::Mark),
];

/// One run.
struct Hit<'a> {
    specimen: &'a Specimen,
    sealer: &'a Sealer,
    spot: &'a Spot,
    neighbour: &'a [u8],
    verb: Verb,
    /// Whether the damage is made to verify, in both copies.
    sealed: bool,
}

/// What must be convicted.
const WRONG: &[Variant] = &[
    site("redundancy.mirror.verify", "mirrored records are not verified"),
    site("redundancy.superblock.verify", "superblocks are not verified"),
    lie(Lie::Silent, "the journal says nothing", Fault::Unnoticed),
    lie(Lie::Accuses, "the journal names what nothing damaged", Fault::FalseReport),
    lie(Lie::Reverts, "a repair changes what nothing damaged", Fault::Reverted),
    lie(Lie::Scribbles, "a check changes the pool", Fault::Wrong),
    lie(Lie::Panics, "a check panics", Fault::Panicked),
];
const _: () = are_enough(WRONG);
/// Groups that stories with something wrong are about, in turn.
const BRIEF: [usize; 4] = [6, 1, 0, 5];
/// Verbs of such a story.
const FEW: usize = 2;

fn run(case: &Case) -> Tally {
    let brief = |_: &Variant, case: &Case| {
        let group = BRIEF[case.number as usize % BRIEF.len()];
        story(case, (group, case.number), FEW)
    };
    or_right(WRONG, case, brief, |case| {
        let (group, round) =
            (case.number as usize % GROUPS.len(), case.number / GROUPS.len() as u64);
        story(case, (group, round), Verb::ALL.len())
    })
}

/// All fields of a group damaged by so many verbs.
fn story(case: &Case, (group, round): (usize, u64), verbs: usize) -> Tally {
    let (wanted, pool) = GROUPS[group];
    let pages =
        if matches!(pool, Wanted::Maps(Pairs::Wide(MANY..), _)) { 2 * PAGES } else { PAGES };
    let mut world = world_of(WORLDS[group % 2][round as usize % 4], pages);
    if pool == Wanted::Mark {
        world = Arc::new(wrap::small(World::clone(&world)));
    }
    let mut rng = case.rng(1);
    let mut tally = Tally::default();
    // Cases that share the places of a pool have the same pool.
    let first = Case { number: case.number % (4 * GROUPS.len() as u64), ..*case };
    let done = Specimen::of(&world, pool, &mut first.rng(2));
    if let Some(specimen) = tally.judge(done.map_err(|v| v.during("the specimen"))) {
        let share = (!matches!(case.tier, Tier::Ci)).then_some((round / 4) as usize);
        each_field(&specimen, (wanted, verbs), share, &mut rng, &mut tally);
    }
    for violation in &mut tally.violations {
        violation.story = format!("in {}: {}", world.name, violation.story);
    }
    tally
}

/// The places of a field that a case damages: one that is drawn, or a share of all.
pub fn chosen<'a>(spots: &'a [Spot], share: Option<usize>, rng: &mut Rng) -> Vec<&'a Spot> {
    match share {
        Some(share) if share < spots.len() => {
            spots.iter().skip(share).step_by(ROUNDS as usize).collect()
        }
        _ => rng.pick(spots).into_iter().collect(),
    }
}

fn each_field(
    specimen: &Specimen,
    (wanted, verbs): (&[&str], usize),
    share: Option<usize>,
    rng: &mut Rng,
    tally: &mut Tally,
) {
    let bytes = Bytes::of(&specimen.medium());
    let sealer = Sealer::of(&bytes);
    let all = find(&bytes, &sealer, wanted);
    let each = all.iter().flat_map(|((key, of), spots)| {
        chosen(spots, share, rng).into_iter().map(move |spot| (key, of, spots, spot))
    });
    let each: Vec<_> = each.collect();
    for (key, of, spots, spot) in each {
        let own = bytes.get(spot.at, spot.len).unwrap_or_default();
        let other = spots.iter().filter_map(|other| bytes.get(other.at, other.len));
        let next = bytes.get(spot.at + spot.len, spot.len).unwrap_or_default();
        let neighbour = other.into_iter().find(|other| *other != own).unwrap_or(next);
        for verb in Verb::ALL.into_iter().take(verbs) {
            for sealed in [false, true] {
                let hit = Hit { specimen, sealer: &sealer, spot, neighbour, verb, sealed };
                for meeting in Meeting::ALL {
                    let done = within(SLOW, || one(&hit, meeting, rng, tally));
                    let done = done.and_then(|done| done);
                    let sum = if sealed { "sealed" } else { "sum as it was" };
                    let place = || format!("{key} of {of} at {:#x}", spot.at);
                    let done = done.map_err(|v| {
                        v.during(format!("{}, {verb:?}, {sum}, {meeting:?}", place()))
                    });
                    match tally.judge(done) {
                        Some(false) => tally.add("no change, not counted", 1),
                        Some(true) | None => {
                            tally.count += 1;
                            tally.add(format!("met by {meeting:?}, {sum}"), 1);
                            note(tally, key);
                            let before = u64::from(is_pending(specimen, spot));
                            tally.add("what is pending, damaged before it was opened", before);
                            match &**of {
                                MARK => tally.add(MARKS, 1),
                                OVERFLOW => tally.add(OVERFLOWED, 1),
                                _ => {}
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Whether nobody but an opening reads it: records in the log of a pool that was not closed, notes
/// of what was under way.
fn is_pending(specimen: &Specimen, spot: &Spot) -> bool {
    specimen.dirty && matches!(spot.guard, Guard::Log | Guard::Note)
}

/// Damages and meets. `false` if the field was as damaged already.
fn one(hit: &Hit<'_>, meeting: Meeting, rng: &mut Rng, tally: &mut Tally) -> Judged<bool> {
    let specimen = hit.specimen;
    let medium = specimen.medium();
    // These meet what was damaged while it was closed, the others what is damaged in use.
    // An opening replays what is pending, and after it nobody reads that any more: damaged in use,
    // it could do nothing wrong.
    let closed =
        is_pending(specimen, hit.spot) || matches!(meeting, Meeting::Open | Meeting::Repair);
    if closed && !hurt(hit, &medium, rng)? {
        return Ok(false);
    }
    let before = closed.then(|| medium.crash_point().newest());
    let seen = last_event(&medium);
    let pool = match specimen.world.open(&medium) {
        Ok((pool, _)) => pool,
        Err(error) => {
            let Some(before) = before.filter(|_| hit.sealed) else {
                return Err(refused("open", &error));
            };
            tally.add("open refused", 1);
            unchanged(&before, &medium, &format!("an open that failed ({error})"))?;
            return Ok(true);
        }
    };
    let driver = specimen.driver(medium, pool);
    if !closed && !hurt(hit, &driver.medium, rng)? {
        driver.medium.abandon(driver.pool);
        return Ok(false);
    }
    if !hit.sealed {
        tolerated(hit, &driver, meeting, seen, rng)?;
        driver.medium.abandon(driver.pool);
        return Ok(true);
    }
    hostile(hit, &driver, meeting, rng)?;
    if meeting == Meeting::Use {
        return reopened(hit, driver).map(|()| true);
    }
    driver.medium.abandon(driver.pool);
    Ok(true)
}

/// Closes a pool with damage that verifies and opens it again, as far as that goes.
fn reopened(hit: &Hit<'_>, driver: Driver) -> Judged<()> {
    let world = &hit.specimen.world;
    let expected = others(hit, &driver);
    let Driver { medium, pool, ledger, anchor } = driver;
    drop(pool);
    let medium = world.after(medium.crash_point().newest());
    let before = medium.crash_point().newest();
    match world.open(&medium) {
        Ok((pool, _)) => {
            let driver = Driver { medium, pool, ledger, anchor };
            served(&driver, &expected).map_err(|v| v.during("closed and opened again"))?;
            driver.medium.abandon(driver.pool);
            Ok(())
        }
        Err(error) => {
            unchanged(&before, &medium, &format!("an open that failed ({error})"))?;
            match hit.spot.owns {
                // One object's damage is no reason to refuse the others; a chunk's entry may be.
                Some(_) if hit.spot.guard == Guard::Unit && !hit.spot.key.contains("CHUNK") => {
                    Err(refused("open after a clean close", &error))
                }
                _ => Ok(()),
            }
        }
    }
}

/// Damages the field. `false` if it is as it was.
fn hurt(hit: &Hit<'_>, medium: &Handle, rng: &mut Rng) -> Judged<bool> {
    let old = read(medium, hit.spot.at, hit.spot.len)?;
    let new = hit.verb.apply(&old, hit.neighbour, rng);
    hit.sealer.damage(medium, hit.spot, &new, hit.sealed)
}

/// Number of the last event in the journal of a pool, 0 if it cannot be told.
fn last_event(medium: &Handle) -> u64 {
    let Ok(found) = holdfast_redundancy::read_superblock(medium) else { return 0 };
    let journal = Journal::open(medium, &found.superblock);
    journal.read_all(medium).last().map_or(0, |event| event.sequence)
}

fn events_since(driver: &Driver, seen: u64) -> Vec<Event> {
    let journal = Journal::open(&driver.medium, &driver.pool.superblock());
    as_told(journal.read_from(&driver.medium, seen + 1), driver.medium.len())
}

/// Damage within tolerance: found, named, repaired, and never served.
fn tolerated(
    hit: &Hit<'_>,
    driver: &Driver,
    meeting: Meeting,
    seen: u64,
    rng: &mut Rng,
) -> Judged<()> {
    let spot = hit.spot;
    let range = [(spot.at, spot.len)];
    match meeting {
        Meeting::Open => driver.read_all()?,
        Meeting::Check => {
            let before = driver.medium.crash_point().newest();
            let report = driver.pool.check(|_, _| {}).map_err(|error| refused("check", &error))?;
            assert!(!told(Lie::Panics), "a check that panics, as somebody wanted");
            if told(Lie::Scribbles) {
                let _ = driver.medium.flip_bit(driver.medium.len() - 1, 0);
            }
            unchanged(&before, &driver.medium, "a check")?;
            if report.is_clean() && matches!(spot.guard, Guard::Unit | Guard::Copy) {
                return Err(Violation::new(Fault::Unnoticed, "a check found nothing"));
            }
        }
        Meeting::Scrub | Meeting::Repair => {
            scrub(&driver.pool)?;
        }
        Meeting::Use => {
            driver.read_all()?;
            if let Some(maps) = &hit.specimen.maps
                && let Some(complaint) = use_maps(driver, maps)
            {
                return Err(Violation::new(Fault::Wrong, complaint));
            }
            driver.go_on(rng, 3)?;
        }
    }
    scrub(&driver.pool)?;
    let change = |at, byte| {
        let _ = driver.medium.stray(at, &[byte]);
    };
    revert_as_told(&driver.ledger.objects(), &range, change, &driver.medium);
    kept(&driver.medium, &driver.ledger.objects(), &range)?;
    settled(driver, true)?;
    let strict = match spot.guard {
        // Changes write anew, and so do a recovery's replay and the freeing of log chunks.
        Guard::Unit if hit.specimen.dirty => matches!(meeting, Meeting::Check | Meeting::Scrub),
        Guard::Unit => meeting != Meeting::Use,
        Guard::Copy => true,
        Guard::Note | Guard::Log | Guard::Loose => false,
    };
    let zone = zone_of(driver)?;
    let named = |event: &Event| names(&zone, event, spot.at, spot.len);
    let events = events_since(driver, seen);
    if strict && !events.iter().any(named) {
        return Err(Violation::new(Fault::Unnoticed, "no event names the damage"));
    }
    accused(&zone, &events, &range, &driver.medium)
}

/// Damage that verifies: whatever becomes of it, the program goes on, and objects that are not
/// concerned are served right.
fn hostile(hit: &Hit<'_>, driver: &Driver, meeting: Meeting, rng: &mut Rng) -> Judged<()> {
    let others = others(hit, driver);
    let settle = |result: Result<(), Error>| {
        // An error is an answer; that it can be told is all there is to ask.
        let _ = result.map_err(|error| error.to_string());
    };
    match meeting {
        Meeting::Open => {}
        Meeting::Check => {
            let before = driver.medium.crash_point().newest();
            settle(driver.pool.check(|_, _| {}).map(|_| ()));
            unchanged(&before, &driver.medium, "a check")?;
        }
        Meeting::Scrub | Meeting::Repair => {
            for _ in 0..2 {
                let control = ScrubControl::default();
                let done = driver.pool.scrub(ScrubOptions::default(), &control, |_, _| {});
                settle(done.map(|_| ()));
            }
        }
        Meeting::Use => {
            served(driver, &others)?;
            settle(driver.pool.root::<Node>().map(|_| ()));
            if let Some(maps) = &hit.specimen.maps {
                let _ = use_maps(driver, maps);
            }
            for _ in 0..4 {
                let known =
                    hit.spot.owns.map_or_else(|| driver.ledger.objects(), |_| others.clone());
                let job = any_job(rng, &known);
                settle(driver.run(&job).map(|_| ()));
            }
        }
    }
    let expected = match meeting {
        Meeting::Use => self::others(hit, driver),
        _ => others,
    };
    served(driver, &expected)
}

/// The objects that damage made to verify has nothing to do with.
fn others(hit: &Hit<'_>, driver: &Driver) -> Objects {
    let Some(owned) = hit.spot.owns else { return Objects::default() };
    apart(&driver.ledger.objects(), &[owned])
}

/// Every field that the sources define was damaged.
fn finish(tally: &mut Tally) {
    for figure in [MARKS, OVERFLOWED] {
        if !tally.figures.contains_key(figure) {
            let story = format!("nothing was damaged {figure}");
            tally.convict(Violation::new(Fault::Unnoticed, story));
        }
    }
    match formats::all() {
        Err(error) => tally.convict(Violation::new(
            Fault::Unnoticed,
            format!("which fields there are cannot be told: {error}"),
        )),
        Ok(all) => all_noted(tally, all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_no_case_damaged_is_a_violation() {
        let mut tally = Tally::default();
        let all = formats::all().expect("the sources are here");
        for key in &all[1..] {
            note(&mut tally, key);
        }
        finish(&mut tally);
        assert_eq!(tally.violated(), 3);
        assert!(tally.violations[0].story.contains("watermark"));
        assert!(tally.violations[1].story.contains("overflowed"));
        assert!(tally.violations[2].story.contains(&all[0]));
        assert!(tally.figures.is_empty());
    }
}
