//! Row `beyond`: more damage than the redundancy covers.
//!
//! One row more of a page column than there are parity rows, both copies of a mirrored page, or
//! both copies of the log before recovery. No wrong byte may be served, what lies over the damage
//! is named, the rest stays readable and writable, and an open that fails changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_faultmem::{Clear, Image};
use holdfast_layout::{RawPtr, Region};
use holdfast_object::{Error, ScrubControl, ScrubOptions};
use holdfast_pmem::{MediumKind, PAGE};
use holdfast_redundancy::events::{Event, Outcome};
use holdfast_txn::{Transaction, TxError};
use holdfast_workloads::Rng;

use super::damage::{Seen, mostly_judged, world_of, zone_of};
use crate::object::driver::Driver;
use crate::object::handle::Handle;
use crate::object::model::{Object, Objects, name};
use crate::object::ops::{Job, Op, any_job};
use crate::object::raw::Bytes;
use crate::object::scenes::{refused, stage};
use crate::object::targets::{Area, Side, Target, Targets};
use crate::object::world::World;
use crate::object::wrong::{Lie, Variant, are_enough, lie, or_right, serve_as_told, site, told};
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "beyond",
    story: "damage beyond the redundancy: no wrong byte, contained, the rest in use",
    cases: |tier| WRONG.len() as u64 + if tier == Tier::Ci { 48 } else { 10_000 },
    run,
    finish: mostly_judged,
    patience: Duration::from_secs(300),
    threads: 2,
};

/// Pages of the pools.
const PAGES: u64 = 121;
/// Injections of each.
const ROUNDS: u64 = 50;
/// Injections of a story with something wrong.
const FEW: u64 = 24;
/// What must be convicted.
const WRONG: &[Variant] = &[
    site("object.tx.verify-read", "reads serve what is damaged"),
    // Who reads it is told of damage that nobody mends, and not that it is lost.
    Variant {
        seen_as: Some(Fault::Refused),
        ..site("object.mend_unit.verify", "what is damaged is taken for right")
    },
    lie(Lie::WrongByte, "a wrong byte is served", Fault::Wrong),
    lie(Lie::Neighbour, "an object beside the damage is refused", Fault::FalseReport),
    lie(Lie::Silent, "the journal says nothing", Fault::Unnoticed),
    lie(Lie::Elsewhere, "the journal names other objects", Fault::Unnoticed),
    lie(Lie::Mended, "the journal calls repaired what is lost", Fault::Unnoticed),
    lie(Lie::Scribbles, "an open that fails changes the pool", Fault::Wrong),
];
const _: () = are_enough(WRONG);

fn run(case: &Case) -> Tally {
    or_right(WRONG, case, |_, case| story(case, FEW), |case| story(case, ROUNDS))
}

/// So many injections.
fn story(case: &Case, injections: u64) -> Tally {
    let world = world_of(case.number, PAGES);
    let mut rng = case.rng(1);
    let mut tally = Tally::default();
    let done = rounds(&world, injections, &mut rng, &mut tally);
    tally.judge(done.map_err(|violation| violation.during(world.name)));
    tally
}

/// A pool to be damaged again and again: as a crash left it, and what it holds.
struct Origin {
    image: Image,
    objects: Objects,
    anchor: u64,
    /// What its journal holds.
    seen: Seen,
}

fn rounds(world: &Arc<World>, injections: u64, rng: &mut Rng, tally: &mut Tally) -> Judged<()> {
    let driver = stage(world, rng)?;
    driver.go_on(rng, 25)?;
    let image = driver.medium.crash_point().persisted();
    let seen = Seen::of(&world.after(image.clone()), &driver.pool.superblock());
    let (objects, anchor) = (driver.ledger.objects(), driver.anchor);
    let origin = Origin { image, objects, anchor, seen };
    driver.medium.abandon(driver.pool);
    for round in 0..injections {
        let (what, judged) = match rng.below(4) {
            0 | 1 => ("rows of a column", columns(world, &origin, rng, tally)),
            2 => ("both copies of a page", copies(world, &origin, rng, tally)),
            _ => ("both copies of the log", logs(world, &origin, rng, tally)),
        };
        tally.count += 1;
        tally.add(what, 1);
        tally.judge(judged.map_err(|v| v.during(format!("round {round}, {what}"))));
    }
    Ok(())
}

fn reopen(world: &Arc<World>, origin: &Origin) -> Judged<Driver> {
    let medium = world.after(origin.image.clone());
    let (pool, _) = world.open(&medium).map_err(|error| refused("open", &error))?;
    Ok(Driver::new(medium, pool, origin.objects.clone()))
}

/// Makes a page unreadable, or something else.
fn ruin(medium: &Handle, at: u64, rng: &mut Rng) -> Judged<()> {
    if rng.below(2) == 0 {
        return poison(medium, at);
    }
    let mut trash = vec![0; PAGE as usize];
    rng.fill(&mut trash);
    let done = medium.stray(at, &trash);
    done.map_err(|error| Violation::new(Fault::Refused, format!("injecting: {error}")))
}

fn poison(medium: &Handle, at: u64) -> Judged<()> {
    let done = medium.poison(at, PAGE, Clear::Able);
    done.map_err(|error| Violation::new(Fault::Refused, format!("injecting: {error}")))
}

fn columns(world: &Arc<World>, origin: &Origin, rng: &mut Rng, tally: &mut Tally) -> Judged<()> {
    let driver = reopen(world, origin)?;
    let zone = zone_of(&driver)?;
    let rows = u64::from(zone.data_rows + zone.parity_rows);
    let mut all: Vec<u64> = (0..rows).collect();
    rng.shuffle(&mut all);
    let col = rng.below(zone.row_len.div_ceil(PAGE)) * PAGE;
    let exposed = exposed(&driver, &zone, &all[..=zone.parity_rows as usize], col);
    for row in &all[..=zone.parity_rows as usize] {
        ruin(&driver.medium, zone.start + row * zone.row_len + col, rng)?;
    }
    let seen = Seen::now(&driver);
    let lost = contained(&driver, &exposed, tally)?;
    let control = ScrubControl::default();
    let done = driver.pool.scrub(ScrubOptions::default(), &control, |_, _| {});
    let done = done.map_err(|error| refused("scrub", &error))?;
    if !lost.is_empty() && done.lost + done.undecided == 0 {
        let story = format!("{} objects are lost, the scrub names nothing", lost.len());
        return Err(Violation::new(Fault::Unnoticed, story));
    }
    let after = contained(&driver, &exposed, tally)?;
    tally.add("objects lost", after.len() as u64);
    if let Some(events) = seen.judged_since(&driver, tally) {
        named(&after, &exposed, &events)?;
    }
    still_writable(&driver, &exposed, rng)?;
    driver.medium.abandon(driver.pool);
    Ok(())
}

/// Of each lost object an event says that it, or something that it needs, is lost or in doubt.
fn named(lost: &[u64], exposed: &BTreeMap<u64, Vec<Target>>, events: &[Event]) -> Judged<()> {
    let gone = |event: &&Event| matches!(event.outcome, Outcome::Lost | Outcome::Undecided);
    let gone: Vec<&Event> = events.iter().filter(gone).collect();
    for word in lost {
        let offset = RawPtr::from_word(*word).offset();
        let ranges = &exposed[word];
        let names = |event: &&&Event| {
            RawPtr::from_word(event.object).offset() == offset
                || ranges.iter().any(|t| t.at < event.at + event.len && event.at < t.at + t.len)
        };
        if !gone.iter().any(|event| names(&event)) {
            let story = format!("{} is lost and no event names it", name(*word));
            return Err(Violation::new(Fault::Unnoticed, story));
        }
    }
    Ok(())
}

/// The objects with a byte, a slot, a sum or a directory entry on one of the pages of `rows`, and
/// what of each.
fn exposed(driver: &Driver, zone: &Region, rows: &[u64], col: u64) -> BTreeMap<u64, Vec<Target>> {
    let bytes = Bytes::of(&driver.medium);
    let targets = Targets::of(&bytes);
    let hit = |target: &Target| {
        rows.iter().any(|row| {
            let page = zone.start + row * zone.row_len + col;
            target.at < page + PAGE && page < target.at + target.len
        })
    };
    let directory = targets.of_area(Area::Directory).any(|target| hit(&target));
    let objects: Vec<Target> = targets.of_area(Area::Object).collect();
    let slots: Vec<Target> = targets.of_area(Area::Slot).collect();
    let sums: Vec<Target> = targets.of_area(Area::Sum).collect();
    let mut all = BTreeMap::new();
    for (word, _) in driver.ledger.objects().iter() {
        let offset = RawPtr::from_word(word).offset();
        // Objects and slots are listed in pairs; the sums of one lie between slot and object.
        let Some(index) = objects.iter().position(|target| target.at == offset) else { continue };
        let mut parts = vec![objects[index], slots[index]];
        let between = |sum: &&Target| sum.at > slots[index].at && sum.at < offset;
        parts.extend(sums.iter().filter(between));
        if directory || parts.iter().any(hit) {
            all.insert(word, parts);
        }
    }
    all
}

/// Bytes of an object, as the engine serves them.
fn served(driver: &Driver, word: u64) -> Result<Object, Error> {
    driver.pool.run(|tx| {
        let of = RawPtr::from_word(word);
        let mut bytes = vec![0; tx.len_of(of)? as usize];
        tx.read_bytes(of, 0, &mut bytes)?;
        serve_as_told(&mut bytes);
        Ok(Object { kind: tx.type_of(of)?.0, bytes: Arc::from(bytes) })
    })
}

/// Reads every object. Those over the damage may be lost, and say so; all others are right.
fn contained(
    driver: &Driver,
    exposed: &BTreeMap<u64, Vec<Target>>,
    tally: &mut Tally,
) -> Judged<Vec<u64>> {
    let mut lost = Vec::new();
    for (word, object) in driver.ledger.objects().iter() {
        let mut found = served(driver, word);
        if told(Lie::Neighbour) && !exposed.contains_key(&word) {
            let error = exposed.keys().find_map(|over| served(driver, *over).err());
            found = error.map_or(found, Err);
        }
        match found {
            Ok(found) if found == *object => {}
            Ok(_) => {
                let story = format!("a wrong byte of {} was served", name(word));
                return Err(Violation::new(Fault::Wrong, story));
            }
            Err(Error::Tx(TxError::Lost { .. } | TxError::InDoubt { .. }))
                if exposed.contains_key(&word) =>
            {
                lost.push(word);
            }
            Err(error) => {
                let what = if exposed.contains_key(&word) { "over" } else { "beside" };
                tally.add(format!("errors other than lost {what} the damage"), 1);
                let story = format!("{}, {what} the damage: {error}", name(word));
                let lost =
                    matches!(error, Error::Tx(TxError::Lost { .. } | TxError::InDoubt { .. }));
                let fault = if lost { Fault::FalseReport } else { Fault::Refused };
                return Err(Violation::new(fault, story));
            }
        }
    }
    Ok(lost)
}

/// Objects beside the damage can be changed, and new ones made.
fn still_writable(
    driver: &Driver,
    exposed: &BTreeMap<u64, Vec<Target>>,
    rng: &mut Rng,
) -> Judged<()> {
    let objects = driver.ledger.objects();
    let safe: Vec<(u64, u64)> = objects
        .iter()
        .filter(|(word, object)| !exposed.contains_key(word) && object.bytes.len() > 16)
        .filter(|(word, _)| *word != driver.anchor)
        .map(|(word, object)| (word, object.bytes.len() as u64))
        .collect();
    let mut written = vec![];
    for _ in 0..2 {
        if let Some((of, len)) = rng.pick(&safe).copied() {
            let from = rng.below(len - 8);
            driver.must(&Job::new(rng, [Op::Write { of, from, len: 8 }]))?;
            written.push(of);
        }
    }
    let len = 100 + rng.below(400);
    driver.must(&Job::new(rng, [Op::Alloc { len }]))?;
    let now = driver.ledger.objects();
    let new = now.iter().map(|(word, _)| word).filter(|word| objects.get(*word).is_none());
    written.extend(new);
    for word in written {
        let found =
            served(driver, word).map_err(|error| refused("reading what was written", &error));
        if Some(&found?) != now.get(word) {
            let story = format!("{} was written and reads otherwise", name(word));
            return Err(Violation::new(Fault::Wrong, story));
        }
    }
    Ok(())
}

/// Ruins both copies of one mirrored page, in a pool in use or before it is opened.
fn copies(world: &Arc<World>, origin: &Origin, rng: &mut Rng, tally: &mut Tally) -> Judged<()> {
    let pairs: [fn(Side) -> Area; 5] =
        [Area::Superblock, Area::Regions, Area::Remap, Area::Intent, Area::Progress];
    let pair = rng.below(5) as usize;
    let ruin_both = |medium: &Handle, rng: &mut Rng| -> Judged<Vec<Target>> {
        let targets = Targets::of(&Bytes::of(medium));
        let sides = [Side::A, Side::B].into_iter();
        let both: Vec<Target> = sides.flat_map(|side| targets.of_area(pairs[pair](side))).collect();
        both.iter().try_for_each(|target| ruin(medium, target.at, rng))?;
        Ok(both)
    };
    if rng.below(2) == 0 {
        let driver = reopen(world, origin)?;
        let seen = Seen::now(&driver);
        let both = ruin_both(&driver.medium, rng)?;
        driver.read_all()?;
        driver.go_on(rng, 2)?;
        // It may be called lost, and is written anew from what memory holds: the next opening
        // reads it.
        let done = driver.pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {});
        done.map_err(|error| refused("scrub", &error))?;
        // Records of repairs and scrubs are written by the way, over whatever lies there.
        if pair < 3 {
            met(&both, seen.judged_since(&driver, tally))?;
        }
        let (image, objects) = (driver.medium.crash_point().persisted(), driver.ledger.objects());
        driver.medium.abandon(driver.pool);
        let medium = world.after(image);
        let (pool, _) = world.open(&medium).map_err(|error| refused("open", &error))?;
        let driver = Driver::new(medium, pool, objects);
        driver.read_all()?;
        driver.medium.abandon(driver.pool);
        return Ok(());
    }
    let medium = world.after(origin.image.clone());
    let both = ruin_both(&medium, rng)?;
    let Some(driver) = open_or_unchanged(world, medium, origin, tally)? else { return Ok(()) };
    met(&both, origin.seen.judged_since(&driver, tally))?;
    driver.read_all()?;
    driver.medium.abandon(driver.pool);
    Ok(())
}

/// That both copies of a page are gone is told, whatever came of it.
fn met(both: &[Target], events: Option<Vec<Event>>) -> Judged<()> {
    let Some(events) = events else { return Ok(()) };
    let touches = |event: &Event| {
        both.iter().any(|page| page.at < event.at + event.len && event.at < page.at + page.len)
    };
    if events.iter().any(touches) {
        return Ok(());
    }
    let area = both.first().map(|page| page.area);
    let story = format!("both copies of {area:?} were ruined, and no event says so: {events:?}");
    Err(Violation::new(Fault::Unnoticed, story))
}

/// Opens a damaged pool. An open that fails must not have changed a byte.
fn open_or_unchanged(
    world: &Arc<World>,
    medium: Handle,
    origin: &Origin,
    tally: &mut Tally,
) -> Judged<Option<Driver>> {
    let before = Bytes::of(&medium);
    match world.open(&medium) {
        Ok((pool, _)) => {
            tally.add("opened all the same", 1);
            let driver = Driver::new(medium, pool, origin.objects.clone());
            Ok(Some(Driver { anchor: origin.anchor, ..driver }))
        }
        Err(error) => {
            tally.add("open refused", 1);
            if told(Lie::Scribbles) {
                ruin(&medium, 0, &mut Rng::new(1))?;
            }
            let after = Bytes::of(&medium);
            if before.all() == after.all() && before.bad_pages() == after.bad_pages() {
                return Ok(None);
            }
            let story = format!("an open that failed ({error}) changed the pool");
            Err(Violation::new(Fault::Wrong, story))
        }
    }
}

/// What a barrier saw: how many came before, the image a crash there leaves, and how many jobs were
/// acknowledged by then.
type Caught = Arc<Mutex<(u64, Option<(Image, usize)>)>>;

/// Crashes in the middle of a commit and ruins both copies of the log before recovery: each object
/// is as before or as after, or lost. Where something acknowledged is not there, and the log cannot
/// be read, that is told.
fn logs(world: &Arc<World>, origin: &Origin, rng: &mut Rng, tally: &mut Tally) -> Judged<()> {
    let driver = reopen(world, origin)?;
    let caught = Caught::default();
    let (nth, hook) = (rng.below(8), Arc::clone(&caught));
    let acked = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&acked);
    driver.medium.on_barrier(Box::new(move |_, _, point| {
        let mut caught = hook.lock().unwrap_or_else(PoisonError::into_inner);
        if caught.0 <= nth {
            caught.0 += 1;
            caught.1 = Some((point.persisted(), now.load(Ordering::Acquire)));
        }
    }));
    let mut states = vec![driver.ledger.objects()];
    for _ in 0..3 {
        driver.must(&any_job(rng, &driver.ledger.objects()))?;
        states.push(driver.ledger.objects());
        acked.fetch_add(1, Ordering::AcqRel);
    }
    let last = (driver.medium.crash_point().persisted(), states.len() - 1);
    let left = caught.lock().unwrap_or_else(PoisonError::into_inner).1.take();
    driver.medium.abandon(driver.pool);
    let (image, acked) = left.unwrap_or(last);
    let medium = world.after(image);
    // What was overwritten in both copies may have been no record. On a file copies have no places
    // of their own.
    let tells = rng.below(2) == 0 && world.kind != MediumKind::File;
    ruin_log(&medium, tells, rng)?;
    let Some(driver) = open_or_unchanged(world, medium, origin, tally)? else { return Ok(()) };
    let behind = between(&driver, &states, acked)?;
    let events = origin.seen.since(&driver).unwrap_or_default();
    let told = events.iter().any(|event| event.outcome == Outcome::Lost);
    if let Some(word) = behind.filter(|_| tells && !told) {
        let story = format!(
            "{} is not as it was acknowledged, and nothing is called lost: {:?}",
            name(word),
            events.iter().map(Event::to_string).collect::<Vec<_>>()
        );
        return Err(Violation::new(Fault::Unnoticed, story));
    }
    driver.medium.abandon(driver.pool);
    Ok(())
}

/// Ruins both copies of the log; or makes all of it unreadable.
fn ruin_log(medium: &Handle, unreadable: bool, rng: &mut Rng) -> Judged<()> {
    let targets = Targets::of(&Bytes::of(medium));
    let both = [Side::A, Side::B].into_iter().flat_map(|side| targets.of_area(Area::Log(side)));
    let pages = both.flat_map(|it| (it.at..it.at + it.len).step_by(PAGE as usize));
    for page in pages {
        match unreadable {
            true => poison(medium, page)?,
            false => ruin(medium, page, rng)?,
        }
    }
    Ok(())
}

/// Each object is as it was in one of these states, or lost if that is not always the same. Answers
/// one that is not as it was after so many of them, or after the next.
fn between(driver: &Driver, states: &[Objects], acked: usize) -> Judged<Option<u64>> {
    let words: BTreeSet<u64> =
        states.iter().flat_map(|state| state.iter().map(|(word, _)| word)).collect();
    let mut behind = None;
    for word in words {
        let allowed: Vec<Option<&Object>> = states.iter().map(|state| state.get(word)).collect();
        let same = allowed.iter().all(|object| *object == allowed[0]);
        let answer = served(driver, word);
        let promised = &allowed[acked..(acked + 2).min(allowed.len())];
        let is_there = match &answer {
            Ok(found) => promised.contains(&Some(found)),
            Err(_) => promised.contains(&None),
        };
        behind = behind.or((!is_there).then_some(word));
        let right = match answer {
            Ok(found) => allowed.contains(&Some(&found)),
            Err(Error::Tx(TxError::Dangling { .. })) => allowed.contains(&None),
            Err(Error::Tx(TxError::Lost { .. } | TxError::InDoubt { .. })) => !same,
            Err(_) => false,
        };
        if !right {
            let story = format!("{} is neither as before nor as after", name(word));
            return Err(Violation::new(Fault::Wrong, story));
        }
    }
    Ok(behind)
}
