//! Row `lost`: writes the device loses, sends elsewhere or tears, in the middle of commits, and
//! places that come back as they once were.
//!
//! One fault is armed, a transaction runs into it and sees nothing; or transactions run, and a
//! line, sector or page that they changed then holds what it held before them. Then the pool is
//! read, worked on or crashed, and scrubbed. If place meant and place hit share no page column,
//! everything must be as the model says, and what was wrong right before the scrub must have an
//! event; otherwise no wrong byte may be served, and the pool is given up. A slot is a write of its
//! own: of one that was lost the older state verifies, and where only P knows better, it may be
//! named as in doubt.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use holdfast_faultmem::{Damage, FaultKind, Injected, Torn, When};
use holdfast_layout::{RawPtr, Region};
use holdfast_object::Error;
use holdfast_pmem::{Medium, MediumKind};
use holdfast_redundancy::events::{Event, Outcome};
use holdfast_txn::TxError;
use holdfast_workloads::Rng;

use super::damage::{Seen, crash, domains, mostly_judged, names, world_of, zone_of};
use super::spared::{Range, accused, again_as_told, kept, revert_as_told};
use super::stale::{Past, beside, is_loss, set_back, settle};
use crate::object::driver::Driver;
use crate::object::judge::scrub;
use crate::object::model::{Object, name};
use crate::object::ops::any_job;
use crate::object::raw::{Bytes, Flaw, Scope, survey};
use crate::object::scenes::{refused, stage};
use crate::object::targets::{Area, Targets};
use crate::object::toil::served;
use crate::object::world::World;
use crate::object::wrong::{Lie, Variant, are_enough, lie, or_right, serve_as_told, site, told};
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "lost",
    story: "lost, misdirected and torn writes in the middle of commits; stale lines and pages",
    // In the CI tier, two for each kind of fault and world.
    cases: |tier| WRONG.len() as u64 + if tier == Tier::Ci { 32 } else { 6_400 },
    run,
    finish: mostly_judged,
    patience: Duration::from_secs(300),
    threads: 2,
};

/// Faults of a case.
pub const FAULTS: u64 = 250;
/// A case is ended after so many times its faults, although not all of them came about.
const ATTEMPTS: u64 = 4;
/// Faults of a story with something wrong.
const FEW: u64 = 60;
/// What must be convicted.
pub const WRONG: &[Variant] = &[
    site("object.blame.verify", "what parity says is believed unseen"),
    site("redundancy.parity.check-p", "parity is never compared"),
    site("object.blame.compare", "who is to blame is not asked"),
    site("object.repair.store", "a repair stores nothing"),
    lie(Lie::Silent, "the journal says nothing", Fault::Unnoticed),
    lie(Lie::Elsewhere, "the journal names other places", Fault::Unnoticed),
    lie(Lie::Accuses, "the journal names what nothing damaged", Fault::FalseReport),
    lie(Lie::Reverts, "a repair changes what nothing damaged", Fault::Reverted),
    lie(Lie::Neighbour, "of a stale place, all else is lost, too", Fault::FalseReport),
    of_kind(
        "lost",
        lie(Lie::Neighbour, "of a lost write, all else is lost, too", Fault::FalseReport),
    ),
    of_kind("moved", lie(Lie::WrongByte, "a wrong byte is served behind a refusal", Fault::Wrong)),
    of_kind("moved", lie(Lie::OneOfTwo, "of two places the journal names one", Fault::Unnoticed)),
    of_kind("moved", lie(Lie::Again, "the journal names what was mended", Fault::FalseReport)),
];
const _: () = are_enough(WRONG);
/// The fault that is not of a write: see `stale.rs`.
const STALE: u64 = 3;
/// Bytes that reach the medium together.
const WORD: u64 = 8;
/// Pages of the pools.
const PAGES: u64 = 121;

/// The variant, in stories of this kind of write.
const fn of_kind(kind: &'static str, variant: Variant) -> Variant {
    Variant { bed: kind, ..variant }
}

fn run(case: &Case) -> Tally {
    let wrong = |variant: &Variant, case: &Case| {
        let kind = match variant.bed {
            "lost" => 0,
            "moved" => 1,
            // Stories are few: each is of another kind, in another world.
            _ => case.number + 3,
        };
        story(case, kind, FEW)
    };
    or_right(WRONG, case, wrong, |case| story(case, case.number / 4, FAULTS))
}

/// So many faults of a kind.
fn story(case: &Case, kind: u64, faults: u64) -> Tally {
    let world = world_of(case.number, PAGES);
    let mut rng = case.rng(1);
    let mut tally = Tally::default();
    let done = rounds(&world, (kind % 4, faults), &mut rng, &mut tally);
    tally.judge(done.map_err(|violation| violation.during(world.name)));
    tally
}

/// A pool with more in it than the usual cast.
fn begin(world: &World, rng: &mut Rng) -> Judged<Driver> {
    let driver = stage(world, rng)?;
    driver.go_on(rng, 20)?;
    Ok(driver)
}

fn rounds(
    world: &Arc<World>,
    (kind, faults): (u64, u64),
    rng: &mut Rng,
    tally: &mut Tally,
) -> Judged<()> {
    let mut driver = begin(world, rng)?;
    let mut trail = Trail::default();
    for round in 0..ATTEMPTS * faults {
        if tally.count >= faults {
            break;
        }
        let seen = Seen::now(&driver);
        let struck = match kind {
            STALE => set_back(&driver, rng)?,
            _ => strike(&driver, kind, rng)?,
        };
        let Some((injected, past)) = struck else { continue };
        let zone = zone_of(&driver)?;
        let outside = beyond(&driver, &zone, &injected);
        let log_lost = took_both_copies(&driver, &injected);
        let stale = kind == STALE;
        let blow = Blow { zone, injected, stale, past, seen, trail: trail.clone() };
        trail.add(&driver, blow.hurt(), zone);
        let judged = match outside {
            true => blow.exceeds(driver).map(|()| None),
            false => blow.judge(world, driver, rng, tally),
        };
        let story = || format!("round {round}, {}", words(&blow.injected));
        let next = tally.judge(judged.map_err(|v| v.during(story()))).flatten();
        if outside {
            tally.add("beyond tolerance, not judged further", 1);
        } else {
            tally.count += 1;
            tally.add(blow.kind(), 1);
        }
        driver = match next {
            // Until its log is reclaimed, a crash would lose the transaction.
            Some(driver) if !log_lost => driver,
            // What is wrong with this pool says nothing about the next fault.
            other => {
                if let Some(Driver { medium, pool, .. }) = other {
                    medium.abandon(pool);
                }
                trail = Trail::default();
                begin(world, rng)?
            }
        };
    }
    driver.check()?;
    let Driver { medium, pool, .. } = driver;
    medium.abandon(pool);
    Ok(())
}

/// What was hurt in earlier rounds, before the zone.
#[derive(Debug, Clone, Default)]
struct Trail {
    /// In the log: who comes there later may still find what is wrong.
    in_log: Vec<Range>,
    /// Elsewhere: the scrub of that round has mended it.
    mended: Vec<Range>,
}

impl Trail {
    fn add(&mut self, driver: &Driver, hurt: Vec<Range>, zone: Region) {
        let targets = Targets::of(&Bytes::of(&driver.medium));
        let log = |area| matches!(area, Area::Log(_));
        let before = hurt.into_iter().filter(|(at, _)| *at < zone.start);
        let (in_log, mended): (Vec<_>, Vec<_>) =
            before.partition(|(at, len)| targets.any_in(log, *at, *len));
        self.in_log.extend(in_log);
        self.mended.extend(mended);
    }
}

/// A fault that came about, and what is known of it.
struct Blow {
    zone: Region,
    injected: Injected,
    /// Whether a place was set back to what it was.
    stale: bool,
    /// What objects may be until somebody has looked at the columns.
    past: Past,
    /// Events from before.
    seen: Seen,
    /// What was hurt earlier.
    trail: Trail,
}

impl Blow {
    const fn kind(&self) -> &'static str {
        match self.injected.damage {
            _ if self.stale => "stale",
            Damage::Write(FaultKind::Lost) => "lost",
            Damage::Write(FaultKind::Misdirected { .. }) => "misdirected",
            _ => "torn",
        }
    }

    fn hurt(&self) -> Vec<Range> {
        places(&self.injected)
    }

    /// Beyond tolerance something may be lost, and nothing else; the pool is given up.
    fn exceeds(&self, driver: Driver) -> Judged<()> {
        let hurt = Hurt::by(&driver, &self.injected);
        serves_no_wrong_byte(&driver, |of, error| match error {
            // By the slot whose write was lost there is no such object. If its columns are hurt
            // in another row as well, they make nothing that verifies: P is taken for wrong and
            // made anew, and then nobody can tell any more.
            Error::Tx(TxError::Dangling { .. }) => hurt.names(of),
            error => is_loss(error) && hurt.may_cost(of),
        })?;
        driver.medium.abandon(driver.pool);
        Ok(())
    }

    /// Has the fault met and scrubbed away. Answers the pool if it can go on.
    fn judge(
        &self,
        world: &Arc<World>,
        driver: Driver,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Judged<Option<Driver>> {
        driver.medium.note_stores();
        let driver = match self.stale {
            true => self.meet_stale(world, driver, rng)?,
            false => meet(world, driver, &self.injected, rng)?,
        };
        let wrong = self.still_wrong(&driver)?;
        let worked_on = driver.medium.worked_on(self.injected.at, self.injected.len);
        let undecided = scrub(&driver.pool)?.undecided;
        self.found(&driver, &wrong, undecided > 0, tally)?;
        self.past.scrubbed(&driver, rng, undecided)?;
        if self.stale {
            self.count_stale(undecided, tally);
        } else if undecided > 0 {
            tally.add(format!("{}, named as in doubt", self.kind()), 1);
            // What is worked on from an older state may look newer than what P and Q say.
            if !wrong.is_empty() && self.zone.parity_rows > 1 && !worked_on {
                let story = "P and Q tell which write was lost, and it is said to be in doubt";
                return Err(Violation::new(Fault::FalseReport, story));
            }
        }
        // What was in doubt and is not an object of the model stays so.
        if undecided == 0 || driver.pool.check(|_, _| {}).is_ok_and(|report| report.is_clean()) {
            return Ok(Some(driver));
        }
        let Driver { medium, pool, .. } = driver;
        medium.abandon(pool);
        Ok(None)
    }

    fn meet_stale(&self, world: &Arc<World>, driver: Driver, rng: &mut Rng) -> Judged<Driver> {
        match rng.below(4) {
            2 if !took_both_copies(&driver, &self.injected) => return crash(world, driver),
            way @ (0 | 1) => self.past.meet(&driver, rng, way == 1)?,
            _ => {}
        }
        Ok(driver)
    }

    fn count_stale(&self, undecided: u64, tally: &mut Tally) {
        let zone = &self.zone;
        let at = self.injected.at;
        let rows = zone.start..zone.start + u64::from(zone.data_rows) * zone.row_len;
        let figure = match (rows.contains(&at), at >= zone.start, undecided) {
            (true, _, 0) => "stale in rows, right after the scrub",
            (true, _, _) => "stale in rows, named as in doubt",
            (_, true, 0) => "stale in parity, right after the scrub",
            (_, true, _) => "stale in parity, named as in doubt",
            _ => "stale in metadata or log",
        };
        tally.add(figure, 1);
    }

    /// Where something that the engine must find is wrong with the pool right now: by the log of
    /// the injector the place is not what was meant to be there, and the second reader complains.
    /// There is nothing else that it could complain of. Of several places together it is not known
    /// which of them it is.
    fn still_wrong(&self, driver: &Driver) -> Judged<Vec<Vec<Range>>> {
        let pool = Bytes::of(&driver.medium);
        let Injected { damage, at, len, intended, .. } = &self.injected;
        let to = match damage {
            Damage::Write(FaultKind::Misdirected { to }) => Some(*to),
            _ => None,
        };
        let as_meant = || pool.get(*at, *len).is_some_and(|now| *now == intended[..]);
        let sound = is_sound(&pool);
        let sound = sound.ok_or_else(|| Violation::new(Fault::Wrong, "no superblock verifies"))?;
        if to.is_none() && as_meant() || sound {
            return Ok(Vec::new());
        }
        let hurt = self.hurt();
        let Some(to) = to else { return Ok(vec![hurt]) };
        let Injected { after, target_before, .. } = &self.injected;
        let here = |pool: &Bytes| undone(pool, *at, after, intended);
        let there = |pool: &Bytes| undone(pool, to, intended, target_before);
        let any_sound = |pools: &[Bytes]| pools.iter().any(|pool| is_sound(pool) == Some(true));
        let both = || here(&pool).iter().flat_map(there).collect::<Vec<_>>();
        // Who makes one place right and hears no complaint has found the only one that was wrong.
        Ok(match (any_sound(&here(&pool)), any_sound(&there(&pool))) {
            (true, false) => vec![vec![hurt[0]]],
            (false, true) => vec![vec![hurt[1]]],
            (false, false) if any_sound(&both()) => vec![vec![hurt[0]], vec![hurt[1]]],
            _ => vec![hurt],
        })
    }

    /// Compares the events with the injector's log: each place that was `wrong` right before the
    /// scrub has one, or something is said to be in `doubt`, and there is none of anything else.
    fn found(
        &self,
        driver: &Driver,
        wrong: &[Vec<Range>],
        doubt: bool,
        tally: &mut Tally,
    ) -> Judged<()> {
        let hurt = self.hurt();
        let change = |at, byte| {
            let _ = driver.medium.stray(at, &[byte]);
        };
        revert_as_told(&driver.ledger.objects(), &hurt, change, &driver.medium);
        kept(&driver.medium, &driver.ledger.objects(), &hurt)?;
        let Some(mut events) = self.seen.judged_since(driver, tally) else { return Ok(()) };
        again_as_told(&mut events, &self.trail.mended);
        if let (true, [_, second]) = (told(Lie::OneOfTwo), wrong) {
            let names = |e: &Event| second.iter().any(|(at, len)| names(&self.zone, e, *at, *len));
            events.retain(|event| !names(event));
        }
        // What is in doubt is so because its columns do not add up.
        let about = |e: &Event| match e.outcome {
            Outcome::Undecided => Event { wrong: None, ..*e },
            _ => *e,
        };
        let is_named =
            |(at, len): &Range| events.iter().any(|e| names(&self.zone, &about(e), *at, *len));
        let located = hurt.iter().any(is_named);
        let said = || events.iter().any(|event| event.outcome == Outcome::Undecided);
        if doubt && !said() {
            let story = "something is in doubt, and no event of this pass says so";
            return Err(Violation::new(Fault::Unnoticed, story));
        }
        if let Some(missed) = wrong.iter().find(|any| !any.iter().any(is_named)) {
            let story =
                format!("{missed:x?} was wrong right before the scrub, and no event names it");
            return Err(Violation::new(Fault::Unnoticed, story));
        }
        let all_found = !wrong.is_empty() && !doubt;
        tally.add("wrong right before the scrub, all found", all_found.into());
        let both = all_found && wrong.len() > 1;
        tally.add("misdirected, wrong in both places, both found", both.into());
        let either = all_found && wrong.iter().any(|any| any.len() > 1);
        tally.add("misdirected, not known in which place it is wrong", either.into());
        tally.add(format!("{}, located", self.kind()), located.into());
        let figure = match (self.injected.at >= self.zone.start, located) {
            (true, true) => "in the zone, located",
            (true, false) => "in the zone, replaced before anybody looked",
            (false, true) => "in metadata or log, located",
            (false, false) => "in metadata or log, replaced or done with",
        };
        tally.add(figure, 1);
        let known: Vec<Range> = hurt.into_iter().chain(self.trail.in_log.iter().copied()).collect();
        accused(&self.zone, &events, &known, &driver.medium)
    }
}

/// Arms a fault and runs a transaction into it. `None` if it met no write.
fn strike(driver: &Driver, kind: u64, rng: &mut Rng) -> Judged<Option<(Injected, Past)>> {
    let before = driver.medium.injected().len();
    let kind = match kind {
        0 => FaultKind::Lost,
        1 => FaultKind::Misdirected { to: rng.below(driver.medium.len()) },
        _ if rng.below(2) == 0 => FaultKind::Torn(Torn::Prefix(rng.below(8))),
        _ => FaultKind::Torn(Torn::Subset(rng.next_u64())),
    };
    driver.medium.arm(kind, When::next().nth(1 + rng.below(10)));
    let mut states = vec![driver.ledger.objects()];
    for _ in 0..3 {
        let job = any_job(rng, &driver.ledger.objects());
        driver.must(&job)?;
        states.push(driver.ledger.objects());
        if driver.medium.armed() == 0 {
            break;
        }
    }
    driver.medium.disarm();
    settle(driver)?;
    let injected = driver.medium.injected().get(before).cloned();
    Ok(injected.map(|injected| (injected, Past::of_write(states))))
}

/// What does not hold what the program believes, once a fault came about. A device keeps words, and
/// earlier bytes of one may have been on their way in it.
fn places(injected: &Injected) -> Vec<Range> {
    let Injected { damage, at, len, .. } = *injected;
    let from = at / WORD * WORD;
    let mut all = vec![(from, (at + len).next_multiple_of(WORD) - from)];
    if let Damage::Write(FaultKind::Misdirected { to }) = damage {
        all.push((to, len));
    }
    all
}

/// Whether the second reader has nothing to complain of; `None` if no superblock verifies. Records
/// in the log are done with, and some pages are written by the scrub itself before it could read
/// them.
fn is_sound(pool: &Bytes) -> Option<bool> {
    let found = survey(pool, Scope::ALL)?;
    let spared =
        |flaw: &Flaw| ["intent:", "progress:"].iter().any(|record| flaw.what.starts_with(record));
    Some(found.flaws.iter().all(spared))
}

/// A pool without what a fault made of a place: as if nobody had been there since, and as if
/// deltas had been added to it.
fn undone(pool: &Bytes, at: u64, wrong: &[u8], right: &[u8]) -> [Bytes; 2] {
    let now = pool.get(at, right.len() as u64).unwrap_or_default();
    let deltas = wrong.iter().zip(right).map(|(wrong, right)| wrong ^ right);
    let added: Vec<u8> = now.iter().zip(deltas).map(|(now, delta)| now ^ delta).collect();
    [pool.clone().with(at, right), pool.clone().with(at, &added)]
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

/// Reads every object, also behind one that is refused: right, or an error that is excused.
fn serves_no_wrong_byte(driver: &Driver, excused: impl Fn(RawPtr, &Error) -> bool) -> Judged<()> {
    let mut behind = false;
    for (word, object) in driver.ledger.objects().iter() {
        let of = RawPtr::from_word(word);
        let may_be_lost = excused(of, &Error::Tx(TxError::Lost { object: of }));
        match served_as_told(driver, of, may_be_lost, behind) {
            Ok(found) if found == *object => {}
            Ok(_) => {
                let story = format!("a wrong byte of {} was served", name(word));
                return Err(Violation::new(Fault::Wrong, story));
            }
            Err(error) if excused(of, &error) => behind = true,
            Err(error) => return Err(beside(word, &error)),
        }
    }
    Ok(())
}

/// An object as the engine serves it, or a lie about it: all that is not hurt is lost, or what is
/// hurt is, and behind that a wrong byte is served.
fn served_as_told(
    driver: &Driver,
    of: RawPtr,
    is_hurt: bool,
    behind: bool,
) -> Result<Object, Error> {
    if told(Lie::Neighbour) && !is_hurt || told(Lie::WrongByte) && is_hurt {
        return Err(Error::Tx(TxError::Lost { object: of }));
    }
    let found = served(&driver.pool, of.word())?;
    let mut bytes = found.bytes.to_vec();
    if behind {
        serve_as_told(&mut bytes);
    }
    Ok(Object { bytes: bytes.into(), ..found })
}

/// Where the objects lie that were hurt by a write that was lost, sent elsewhere or torn.
struct Hurt {
    /// Those with a part in the place that was meant.
    meant: BTreeSet<u64>,
    /// Those with a part in either place, or the entry of a chunk.
    all: BTreeSet<u64>,
}

impl Hurt {
    /// As the pool says now, and as it should: by a slot of which the write was lost, nothing is
    /// there.
    fn by(driver: &Driver, injected: &Injected) -> Self {
        let now = Bytes::of(&driver.medium);
        let mut meant = now.clone().with(injected.at, &injected.intended);
        if let Damage::Write(FaultKind::Misdirected { to }) = injected.damage {
            meant = meant.with(to, &injected.target_before);
        }
        let mut hurt = Self { meant: BTreeSet::new(), all: BTreeSet::new() };
        for pool in [now, meant] {
            let targets = Targets::of(&pool);
            hurt.meant.extend(targets.owners(injected.at, injected.len));
            for (at, len) in places(injected) {
                hurt.all.extend(targets.owners(at, len));
                hurt.all.extend(Targets::of_entries(&pool, at, len));
            }
        }
        hurt
    }

    /// Whether the object may be in doubt.
    fn names(&self, of: RawPtr) -> bool {
        self.meant.contains(&of.offset())
    }

    /// Whether the object may be lost for it, where the redundancy does not cover that.
    fn may_cost(&self, of: RawPtr) -> bool {
        self.all.contains(&of.offset())
    }
}

fn meet(world: &Arc<World>, driver: Driver, injected: &Injected, rng: &mut Rng) -> Judged<Driver> {
    match rng.below(4) {
        // A slot whose write was lost is an old one and verifies: only parity knows.
        0 => {
            let hurt = Hurt::by(&driver, injected);
            serves_no_wrong_byte(&driver, |of, error| is_loss(error) && hurt.names(of))?;
        }
        1 => {
            let hurt = Hurt::by(&driver, injected);
            for _ in 0..1 + rng.below(3) {
                let job = driver.any_job(rng);
                match driver.run(&job) {
                    Ok(_) => {}
                    // Of a slot whose write was lost: the older one may have lived long before it.
                    Err(Error::Tx(TxError::InDoubt { pointer })) if hurt.names(pointer) => break,
                    Err(error) => return Err(refused(&format!("{:?}", job.ops), &error)),
                }
            }
        }
        2 if !took_both_copies(&driver, injected) => return crash(world, driver),
        _ => {}
    }
    Ok(driver)
}
