//! Row `large`: 2 MiB of a pool of the usual geometry are lost in one piece.
//!
//! A large page that goes bad, or a stray write as long, over data rows, parity, metadata and log,
//! aligned and not: at rest, between two calls, or while two threads commit and read and a third
//! scrubs. That much the redundancy covers, so everything must be healed: no transaction and no
//! read may fail meanwhile, and after a scrub the pool is whole, byte by byte, and holds what it
//! should.
//!
//! What happens between the threads is left to chance: a replay repeats the losses and what each
//! thread would do, not the schedule.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use holdfast_layout::format::EVENTS_START;
use holdfast_object::{CreateOptions, OpenOptions, VerifyReads};
use holdfast_pmem::inject::Poison;
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::events::Outcome;
use holdfast_workloads::Rng;

use super::damage::names;
use super::spared::{accused, as_told, kept, revert_as_told};
use crate::object::driver::Ledger;
use crate::object::life::{Life, Origin, origin};
use crate::object::live::Live;
use crate::object::ops::{Job, Op};
use crate::object::scenes::refused;
use crate::object::toil::{Fair, Toil};
use crate::object::world::World;
use crate::object::wrong::{Lie, Variant, are_enough, lie, or_right, told};
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "large",
    story: "2 MiB lost in one piece, of pools of the usual geometry, at rest and under threads",
    cases: |tier| WRONG.len() as u64 + if matches!(tier, Tier::Ci) { CASES } else { 100 * CASES },
    run,
    finish: |_| {},
    patience: Duration::from_secs(1800),
    threads: 2,
};

/// Cases of the CI tier.
const CASES: u64 = 4;
/// Bytes that are lost in one piece: a frame.
const PIECE: u64 = 2 << 20;
/// Lengths of the pools, in MiB: rows of a frame each, and rows that are longer.
const SIZES: [u64; 4] = [24, 40, 27, 45];
/// Live bytes of a pool, of each so many of its length.
const FILL: u64 = 3;
/// Longest time before a piece is lost under threads, in microseconds.
const WAIT: u64 = 4_000;
/// Where shared memory is.
const SHARED: &str = "/dev/shm";

/// How a piece is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Stray,
    Poison(Poison),
}

/// When it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// While the pool is closed.
    Rest,
    /// Between two calls, and then everything is read.
    Read,
    /// Between two calls, and then it is scrubbed.
    Scrub,
    /// While threads are at work.
    Busy,
}

/// What is lost at once.
#[derive(Debug, Clone, Copy)]
struct Loss {
    how: How,
    when: When,
    /// First byte of the piece.
    at: u64,
}

/// What the judge must convict.
const WRONG: &[Variant] = &[
    lie(Lie::Silent, "the journal says nothing", Fault::Unnoticed),
    lie(Lie::Elsewhere, "the journal names other places", Fault::Unnoticed),
    lie(Lie::Accuses, "the journal names what nothing damaged", Fault::FalseReport),
    lie(Lie::Reverts, "a repair changes what nothing damaged", Fault::Reverted),
    lie(Lie::WrongByte, "a wrong byte is served", Fault::Wrong),
    lie(Lie::StaysBad, "a page is bad again after its repair", Fault::Unnoticed),
];
const _: () = are_enough(WRONG);
/// What a lie changes.
const LIE: Site = Site::new("campaign.large.lie");

fn run(case: &Case) -> Tally {
    // Lies are told of the smallest pools, in memory.
    let brief = |_: &Variant, case: &Case| story(case, case.number % 2, 1);
    let occasions = if case.tier == Tier::Ci { 2 } else { 5 };
    or_right(WRONG, case, brief, |case| story(case, case.number, occasions))
}

/// So many losses of a pool of one kind.
fn story(case: &Case, kind_of_pool: u64, losses: u64) -> Tally {
    let mut tally = Tally::default();
    let file = kind_of_pool % 4 == 3;
    let kind = if file { MediumKind::File } else { MediumKind::Shm };
    let shared = !file && Path::new(SHARED).is_dir();
    let folder = if shared { PathBuf::from(SHARED) } else { std::env::temp_dir() };
    let parity = if kind_of_pool % 2 == 1 { "pq" } else { "p" };
    let world = world(&format!("{kind}-{parity}"), SIZES[(kind_of_pool / 2 % 4) as usize] << 20);
    let temporary = tempfile::Builder::new().prefix("holdfast-campaign-").tempdir_in(&folder);
    let done = match &temporary {
        Ok(folder) => {
            let path = folder.path().join("pool");
            occasions(case, losses, &world, &path, &mut tally)
        }
        Err(error) => Err(Violation::new(Fault::Refused, format!("{}: {error}", folder.display()))),
    };
    tally.judge(done);
    for violation in &mut tally.violations {
        violation.story = format!("in {}: {}", world.name, violation.story);
    }
    tally
}

/// A world of pools as programs make them.
pub(super) fn world(name: &str, size: u64) -> World {
    let mut world = World::named(name);
    let uuid = world.options.uuid;
    world.options =
        CreateOptions { size, parity: world.options.parity, uuid, ..CreateOptions::default() };
    world.open = OpenOptions { verify: VerifyReads::Always, ..OpenOptions::default() };
    world
}

fn occasions(
    case: &Case,
    losses: u64,
    world: &World,
    path: &Path,
    tally: &mut Tally,
) -> Judged<()> {
    let mut rng = case.rng(1);
    let origin = furnished(world, path, &mut rng)?;
    let mut life = None;
    for number in 0..losses {
        let begun = match life.take() {
            Some(life) => life,
            None => Life::begin(world, path, &origin)?,
        };
        let loss = choose(&begun, number % 2 == 1, &mut rng);
        let done = occasion(begun, &loss, &mut rng, tally);
        let told = |v: Violation| v.during(format!("occasion {number}, {loss:x?}"));
        // What is wrong with this pool says nothing about the next loss.
        life = tally.judge(done.map_err(told)).flatten();
    }
    Ok(())
}

/// A pool with objects of every length over much of it.
fn furnished(world: &World, path: &Path, rng: &mut Rng) -> Judged<Origin> {
    let Origin { objects, anchor, .. } = origin(world, path, rng)?;
    let mut life = Life::open(world, path, objects, anchor)?;
    let mut live = 0;
    while live < world.options.size / FILL {
        let most = [600, 4_000, 40_000, 400_000][rng.below(4) as usize];
        let len = 1 + rng.below(most);
        life.must(&Job::new(rng, [Op::Alloc { len }]))?;
        live += len;
    }
    let Life { live, pool, objects, anchor, .. } = life;
    drop((pool, live));
    let bytes = std::fs::read(path);
    let bytes = bytes.map_err(|error| Violation::new(Fault::Refused, error.to_string()))?;
    Ok(Origin { bytes, objects, anchor })
}

/// Draws a loss that the redundancy covers.
fn choose(life: &Life<'_>, busy: bool, rng: &mut Rng) -> Loss {
    let zone = life.zone;
    let rows = u64::from(zone.data_rows + zone.parity_rows);
    let data = zone.start + u64::from(zone.data_rows) * zone.row_len;
    let end = zone.start + rows * zone.row_len;
    let when = match rng.below(3) {
        _ if busy => When::Busy,
        0 => When::Rest,
        1 => When::Read,
        _ => When::Scrub,
    };
    let aligned = rng.below(2) == 0;
    let (from, to) = match rng.below(8) {
        0 | 1 => (0, zone.start),
        2 => (data - PIECE, end - PIECE),
        _ => (zone.start, data - PIECE),
    };
    let how = match rng.below(4) {
        0 | 1 => How::Stray,
        // One frame can be relocated, and not one of the tables.
        2 if aligned && from >= zone.start => How::Poison(Poison::Unclearable),
        _ => How::Poison(Poison::Clearable),
    };
    let unit = match how {
        _ if aligned => PIECE,
        How::Stray => 1,
        // A page that cannot be read is lost as a whole, also if the piece begins within it.
        How::Poison(_) => PAGE,
    };
    let mut first = (from + rng.below(to - from + 1)) / unit * unit;
    if first < from {
        first += unit;
    }
    let mut at = first.min(end - PIECE);
    // At rest nobody remembers the tables: a piece that begins within one ends within its twin.
    if when == When::Rest && at < EVENTS_START {
        at = at / PAGE * PAGE;
    }
    let how = match how {
        How::Poison(_) if !at.is_multiple_of(PIECE) => How::Poison(Poison::Clearable),
        how => how,
    };
    Loss { how, when, at }
}

/// Loses, heals, looks. Answers the pool if more can be lost of it.
fn occasion<'a>(
    mut life: Life<'a>,
    loss: &Loss,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Judged<Option<Life<'a>>> {
    let seen = life.last_event();
    tally.count += 1;
    tally.add("losses of 2 MiB", 1);
    tally.add(format!("lost by {}", by(loss.how)), 1);
    match loss.when {
        When::Rest => life = at_rest(life, loss, rng)?,
        When::Read | When::Scrub => lose(&life.live, life.path, loss, rng)?,
        When::Busy => {
            let before = rng.below(WAIT);
            busy(&mut life, loss, (before, rng.next_u64()), tally)?;
        }
    }
    if loss.when == When::Read {
        life.read_all()?;
    }
    healed(&life, loss, seen)?;
    tally.add("healed", 1);
    tally.add(format!("healed, {}", met(loss.when)), 1);
    let relocated = loss.how == How::Poison(Poison::Unclearable);
    let in_zone = loss.at >= life.zone.start;
    if in_zone {
        // Without what this process remembers. The log may have lost both copies of a record.
        life.again(true).map_err(|v| v.during("opened again"))?;
    }
    let spent = relocated || loss.how != How::Stray && !in_zone;
    Ok((!spent).then_some(life))
}

const fn by(how: How) -> &'static str {
    match how {
        How::Stray => "a stray write",
        How::Poison(Poison::Clearable) => "poison that a rewrite clears",
        How::Poison(Poison::Unclearable) => "poison for good",
    }
}

const fn met(when: When) -> &'static str {
    match when {
        When::Rest => "lost at rest",
        When::Read => "lost before reads",
        When::Scrub => "lost before a scrub",
        When::Busy => "lost under threads",
    }
}

/// Has the piece lost.
fn lose(live: &Live, path: &Path, loss: &Loss, rng: &mut Rng) -> Judged<()> {
    let failed = |what: String| Violation::new(Fault::Refused, format!("injecting: {what}"));
    match loss.how {
        How::Poison(kind) => {
            live.poison_all(loss.at, PIECE, kind).map_err(|error| failed(error.to_string()))
        }
        How::Stray => stray(path, loss.at, rng).map_err(|error| failed(error.to_string())),
    }
}

/// Writes over a piece as another program would. No page of these pools is relocated meanwhile.
fn stray(path: &Path, at: u64, rng: &mut Rng) -> std::io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut bytes = vec![0; PIECE as usize];
    match rng.below(4) {
        0 => {}
        1 => bytes.fill(0xff),
        // Bytes that are right elsewhere.
        2 => {
            let last = file.metadata()?.len() - PIECE;
            file.read_exact_at(&mut bytes, rng.below(last / PAGE + 1) * PAGE)?;
        }
        _ => rng.fill(&mut bytes),
    }
    let mut before = vec![0; PIECE as usize];
    file.read_exact_at(&mut before, at)?;
    if before == bytes {
        rng.fill(&mut bytes);
    }
    file.write_all_at(&bytes, at)
}

/// The same pool, closed, damaged and opened.
fn at_rest<'a>(life: Life<'a>, loss: &Loss, rng: &mut Rng) -> Judged<Life<'a>> {
    let Life { world, path, live, pool, objects, anchor, .. } = life;
    drop((pool, live));
    Life::open_hurt(world, path, (objects, anchor), |live| lose(live, path, loss, rng))
}

/// Loses the piece while two threads commit and read; a third scrubs until they are through.
fn busy(
    life: &mut Life<'_>,
    loss: &Loss,
    (wait, seed): (u64, u64),
    tally: &mut Tally,
) -> Judged<()> {
    let mut rng = Rng::new(seed);
    let ledger = Ledger::new(std::mem::take(&mut life.objects));
    let over = AtomicBool::new(false);
    let toil = Toil {
        pool: &life.pool,
        ledger: &ledger,
        anchor: life.anchor,
        over: &over,
        weather: &Fair,
    };
    let seeds = [rng.next_u64(), rng.next_u64()];
    let ran = toil.during(&seeds, || {
        std::thread::sleep(Duration::from_micros(wait));
        lose(&life.live, life.path, loss, &mut rng)?;
        if rng.below(2) == 0 {
            // They meet all they can before anybody looks for it.
            std::thread::sleep(Duration::from_micros(rng.below(20 * WAIT)));
        }
        life.scrub()
    });
    life.objects = ledger.objects();
    let (scrubbed, done) = ran?;
    if scrubbed.lost > 0 {
        let story = format!("a scrub under threads gave up {:?}", scrubbed.report.findings.first());
        return Err(Violation::new(Fault::Wrong, story));
    }
    tally.add("transactions meanwhile", done.jobs);
    tally.add("reads meanwhile", done.reads);
    Ok(())
}

/// After a scrub everything is whole, and an event names each piece.
fn healed(life: &Life<'_>, loss: &Loss, seen: u64) -> Judged<()> {
    let done = life.scrub()?;
    if done.lost + done.undecided > 0 {
        let (lost, undecided) = (done.lost, done.undecided);
        let story =
            format!("{lost} lost, {undecided} undecided: {:?}", done.report.findings.first());
        return Err(Violation::new(Fault::Wrong, story));
    }
    if told(Lie::StaysBad) {
        lose(
            &life.live,
            life.path,
            &Loss { how: How::Poison(Poison::Clearable), ..*loss },
            &mut Rng::new(0),
        )?;
    }
    let report = life.pool.check(|_, _| {}).map_err(|error| refused("check", &error))?;
    if !report.is_clean() {
        let story = format!("after the scrub a check finds {:?}", report.findings.first());
        return Err(Violation::new(Fault::Unnoticed, story));
    }
    let hurt = [(loss.at, PIECE)];
    let change = |at, byte| {
        let _ = life.live.put(LIE, at, &[byte]);
    };
    revert_as_told(&life.objects, &hurt, change, &life.live);
    kept(&life.live, &life.objects, &hurt)?;
    life.read_all()?;
    life.whole(&done_with(life))?;
    let events = as_told(life.events_since(seen), life.live.len());
    if let Some(lost) = events.iter().find(|event| event.outcome == Outcome::Lost) {
        let story = format!("within tolerance, but the journal says: {lost}");
        return Err(Violation::new(Fault::Wrong, story));
    }
    // Nothing is kept in spare frames, and the log only until its records are done with.
    let at = loss.at;
    let table = |page: &u64| page + PAGE > at && *page < at + PIECE;
    let matters = at + PIECE > life.zone.start || tables(life).iter().any(table);
    if matters && !events.iter().any(|event| names(&life.zone, event, at, PIECE)) {
        let story = format!("none of {} events names 2 MiB at {at:#x}", events.len());
        return Err(Violation::new(Fault::Unnoticed, story));
    }
    accused(&life.zone, &events, &hurt, &life.live)
}

/// Pages of the tables, of both sides.
fn tables(life: &Life<'_>) -> BTreeSet<u64> {
    let side_len = life.pool.superblock().side_len;
    let pages = || (0..EVENTS_START).step_by(PAGE as usize);
    pages().chain(pages().map(|page| page + side_len)).collect()
}

/// Pages that may stay bad until something is stored there: those of the log, whose records are
/// done with, and of spare frames.
fn done_with(life: &Life<'_>) -> Vec<u64> {
    let superblock = life.pool.superblock();
    let (log, side) = (superblock.log_start, superblock.side_len);
    let pages = |from: u64, to: u64| (from..to).step_by(PAGE as usize);
    pages(log, side).chain(pages(side + log, life.zone.start)).collect()
}
