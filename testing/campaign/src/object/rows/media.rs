//! Row `media`: real media errors on a real mapping: pages that raise `SIGBUS`, a third of them in
//! the middle of commits, half of them for good.
//!
//! Each life of a pool sees two pages of different columns go bad, one that a rewrite cures and
//! one that has to be relocated; a pool of this size has one spare frame. In every other life two
//! threads are at work then, and more pages go bad, one after the other. In some that spare frame
//! stays bad as well: then memory stands in for the page, and a copy of the file, opened without
//! that memory, must hold everything. Every signal must be accounted for by an error that the
//! engine was answered or a load that waited, every error by an event, and after the scrub the pool
//! must be whole. Now and then more pages of one column go bad
//! than the parity covers: what is lost must be named, and nothing wrong be served.

pub mod device;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_layout::{RawPtr, RegionKind};
use holdfast_pmem::inject::{Poison, handler_count};
use holdfast_pmem::{Medium, MediumKind, PAGE, Site, Verdict};
use holdfast_redundancy::events::{Event, Outcome};
use holdfast_workloads::Rng;

use super::damage::names;
use super::spared::{Range, accused, as_told, kept, revert_as_told};
use crate::object::driver::Ledger;
use crate::object::life::{Life, origin};
use crate::object::live::Trip;
use crate::object::model::{Objects, name};
use crate::object::ops::{Choice, Job, Node, Op, any_job};
use crate::object::raw::Bytes;
use crate::object::scenes::refused;
use crate::object::targets::{Area, Side, Target, Targets};
use crate::object::toil::{Fair, Toil};
use crate::object::world::World;
use crate::object::wrong::{Lie, Variant, are_enough, lie, or_right, told};
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "media",
    story: "media errors by real SIGBUS, in commits, reads and loads; cleared or relocated",
    cases: |tier| WRONG.len() as u64 + CASES * if matches!(tier, Tier::Ci) { 1 } else { 267 },
    run,
    finish,
    patience: Duration::from_secs(1800),
    // Signals are counted for the whole process.
    threads: 1,
};

/// Cases of the CI tier.
const CASES: u64 = 18;
/// Lives of pools in each, with two errors or more.
const LIVES: u64 = 125;
/// One case in so many is on a file, where each repair syncs several times; it has fewer lives.
const FILE_EACH: u64 = 6;
/// Lives of pools on a file.
const FILE_LIVES: u64 = 15;
/// Pages of the pools.
const PAGES: u64 = 121;
/// One life in so many has more bad pages in a column than its parity covers.
const BEYOND_EACH: u64 = 25;
/// One life in so many has an incurable page where nothing can be relocated.
const STUCK_EACH: u64 = 50;
/// One life in so many has no spare frame that is good.
const BARE_EACH: u64 = 8;
/// One life in so many is closed and opened again.
const REOPEN_EACH: u64 = 8;
/// One life in so many has two threads at work while its pages go bad.
const BUSY_EACH: u64 = 2;
/// Pages that go bad under them besides the two, if there are so many columns.
const BUSY_MORE: usize = 8;
/// Longest time before the next page goes bad under them, in microseconds.
const BUSY_WAIT: u64 = 300;
/// Where shared memory is.
const SHARED: &str = "/dev/shm";
/// Figures of places in commits that a page went bad at.
const PLACES: &str = "in commits, before ";

/// Lives of a story with something wrong.
const FEW: u64 = 4;
/// What must be convicted.
const WRONG: &[Variant] = &[
    lie(Lie::Silent, "the journal says nothing", Fault::Unnoticed),
    lie(Lie::Elsewhere, "the journal names other pages", Fault::Unnoticed),
    lie(Lie::Accuses, "the journal names what nothing damaged", Fault::FalseReport),
    lie(Lie::Reverts, "a repair changes what nothing damaged", Fault::Reverted),
    lie(Lie::WrongByte, "a wrong byte is served", Fault::Wrong),
    lie(Lie::Unheard, "a signal is nobody's", Fault::Unnoticed),
    lie(Lie::StaysBad, "a page is bad again after its repair", Fault::Unnoticed),
];
const _: () = are_enough(WRONG);
/// What a lie changes.
const LIE: Site = Site::new("campaign.media.lie");

fn run(case: &Case) -> Tally {
    or_right(WRONG, case, |_, case| story(case, FEW), |case| story(case, LIVES))
}

/// So many lives, or the fewer that pools on a file have.
fn story(case: &Case, most: u64) -> Tally {
    let mut tally = Tally::default();
    let file = case.number % FILE_EACH == FILE_EACH - 1;
    let kind = if file { MediumKind::File } else { MediumKind::Shm };
    let shared = kind == MediumKind::Shm && Path::new(SHARED).is_dir();
    let folder = if shared { PathBuf::from(SHARED) } else { std::env::temp_dir() };
    let parity = if (case.number / FILE_EACH).is_multiple_of(2) { "p" } else { "pq" };
    let mut world = World::named(&format!("{kind}-{parity}")).sized(PAGES);
    world.options.events = 8 * PAGE;
    let temporary = tempfile::Builder::new().prefix("holdfast-campaign-").tempdir_in(&folder);
    let done = match &temporary {
        Ok(temporary) => lives(case, &world, &temporary.path().join("pool"), most, &mut tally),
        Err(error) => Err(Violation::new(Fault::Refused, format!("{}: {error}", folder.display()))),
    };
    tally.judge(done);
    for violation in &mut tally.violations {
        violation.story = format!("in {}: {}", world.name, violation.story);
    }
    tally
}

/// When a page goes bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// In the middle of a transaction's commit.
    Commit,
    /// Before everything is read.
    Read,
    /// Before a transaction.
    Change,
    /// Under a program that looks at an object in place.
    Load,
    /// While two threads commit.
    Busy,
    /// Before the scrub, which meets it first.
    Scrub,
}

/// What a life is like.
#[derive(Debug, Clone, Copy)]
struct Manner {
    /// Its incurable page is one that cannot be relocated.
    stuck: bool,
    /// Nothing can be relocated, since no spare frame is good.
    bare: bool,
    /// It is opened again in the end.
    reopen: bool,
    /// Threads are at work while the pages go bad.
    busy: bool,
}

/// A page that went bad.
#[derive(Debug, Clone, Copy)]
struct Wound {
    area: Area,
    page: u64,
    poison: Poison,
    when: When,
}

fn lives(case: &Case, world: &World, path: &Path, most: u64, tally: &mut Tally) -> Judged<()> {
    let mut rng = case.rng(1);
    let origin = origin(world, path, &mut rng)?;
    // Of lives on a file a case has too few for all manners of life: cases take turns.
    let (first, lives) = match world.kind {
        MediumKind::File => (case.number / FILE_EACH * FILE_LIVES, FILE_LIVES),
        _ => (0, LIVES),
    };
    for number in first..first + lives.min(most) {
        let before = handler_count();
        let mut life = Life::begin(world, path, &origin)?;
        let done = if number % BEYOND_EACH == BEYOND_EACH - 1 {
            life.beyond(&mut rng, tally)
        } else {
            let manner = Manner {
                stuck: number % STUCK_EACH == STUCK_EACH / 2,
                bare: number % BARE_EACH == BARE_EACH / 2,
                reopen: number % REOPEN_EACH == 0 || number % BARE_EACH == BARE_EACH / 2,
                busy: number % BUSY_EACH == 1,
            };
            life.within(manner, &mut rng, tally)
        };
        let signals = handler_count() - before + u64::from(told(Lie::Unheard));
        let met = life.live.met();
        let answered: u64 = met.values().sum::<u64>() + life.waited;
        tally.add("signals", signals);
        let during = |v: Violation| v.during(format!("life {number}"));
        if signals != answered {
            let story = format!("{signals} signals, but {answered} errors and loads that waited");
            tally.convict(during(Violation::new(Fault::Unnoticed, story)));
        }
        tally.judge(done.map_err(during));
    }
    Ok(())
}

impl Life<'_> {
    /// A life with two bad pages that the redundancy covers.
    fn within(&mut self, manner: Manner, rng: &mut Rng, tally: &mut Tally) -> Judged<()> {
        let Manner { stuck, bare, reopen, busy } = manner;
        for _ in 0..rng.below(3) {
            let job = any_job(rng, &self.objects);
            self.must(&job)?;
        }
        if bare {
            self.spoil_spares()?;
        }
        let seen = self.last_event();
        // What is wrong with the machine itself no rewrite cures.
        let both = [Poison::Clearable, Poison::Unclearable];
        let mut order = both[usize::from(self.live.sick().is_some())..].to_vec();
        rng.shuffle(&mut order);
        if busy && self.live.sick().is_none() {
            order.extend([Poison::Clearable; BUSY_MORE]);
        }
        let mut wounds: Vec<Wound> = Vec::new();
        for kind in order {
            let taken: BTreeSet<u64> = wounds.iter().map(|w| self.domain(w.page)).collect();
            let Some(wound) = self.choose(kind, manner, &taken, rng) else { continue };
            let told = |v: Violation| v.during(format!("{wounds:x?}, {wound:x?}"));
            let wound = match busy {
                true => Wound { when: When::Busy, ..wound },
                false => self.inflict(wound, &taken, rng, tally).map_err(told)?,
            };
            tally.count += 1;
            tally.add(format!("{:?} in {}", wound.poison, kind_of(wound.area)), 1);
            tally.add(format!("met by {:?}", wound.when), 1);
            wounds.push(wound);
        }
        if busy {
            self.under_work(&wounds, rng).map_err(|v| v.during(format!("{wounds:x?}")))?;
        }
        let under_threads = if busy { self.live.met() } else { BTreeMap::new() };
        let told = |v: Violation| v.during(format!("{wounds:x?}"));
        self.read_all().map_err(|v| told(self.later(v)))?;
        let healed = self.settle(&wounds, seen, manner, tally).map_err(told)?;
        tally.add("healed", healed.len() as u64);
        let met = healed.iter().filter(|page| under_threads.contains_key(page)).count();
        tally.add("healed under threads", met as u64);
        if reopen && !stuck {
            self.again(!bare).map_err(|v| told(v.during("opened again")))?;
            let what =
                if bare { "opened again without stand-ins" } else { "closed and opened again" };
            tally.add(what, 1);
        }
        Ok(())
    }

    /// Pages of spare frames.
    fn spares(&self) -> Vec<u64> {
        let regions = self.pool.regions();
        let spares = regions.iter().filter(|region| region.kind == RegionKind::Spare);
        spares.flat_map(|r| (r.start..r.start + r.len).step_by(PAGE as usize)).collect()
    }

    fn spoil_spares(&self) -> Judged<()> {
        let spoil = |page| self.live.poison(page, Poison::Unclearable);
        let done = self.spares().into_iter().try_for_each(spoil);
        done.map_err(|error| Violation::new(Fault::Refused, format!("injecting: {error}")))
    }

    /// A violation seen before the scrub, and whether it is still there after it.
    fn later(&self, violation: Violation) -> Violation {
        let later = match self.scrub().and_then(|_| self.read_all()) {
            Ok(()) => "everything is right".to_owned(),
            Err(again) => again.story,
        };
        let story = format!("{}; after a scrub: {later}", violation.story);
        Violation::new(violation.fault, story)
    }

    /// Chooses a page whose domain is not taken.
    fn choose(
        &self,
        poison: Poison,
        manner: Manner,
        taken: &BTreeSet<u64>,
        rng: &mut Rng,
    ) -> Option<Wound> {
        let targets = Targets::of(&Bytes::of(&self.live));
        let mut areas = targets.areas();
        let unmovable =
            |area: &Area| matches!(area, Area::Superblock(_) | Area::Regions(_) | Area::Remap(_));
        if taken.len() >= 2 {
            // Records lie on several pages: two bad ones of the log may be both copies of one.
            areas.retain(|area| !matches!(area, Area::Log(_)));
        }
        if poison == Poison::Unclearable {
            areas.retain(|area| match manner.bare {
                true => is_in_zone(*area),
                false => unmovable(area) == manner.stuck,
            });
        }
        // There are as many kinds of places in metadata and log as in the zone.
        let in_zone: Vec<Area> = areas.iter().copied().filter(|area| is_in_zone(*area)).collect();
        if rng.below(2) == 0 && !in_zone.is_empty() {
            areas = in_zone;
        }
        for _ in 0..20 {
            let target = targets.pick(*rng.pick(&areas)?, rng)?;
            let page = (target.at + rng.below(target.len)) / PAGE * PAGE;
            if taken.contains(&self.domain(page)) {
                continue;
            }
            let when = match rng.below(18) {
                0..12 => When::Commit,
                12..15 => When::Read,
                15 => When::Change,
                16 => When::Load,
                _ => When::Scrub,
            };
            return Some(Wound { area: target.area, page, poison, when });
        }
        None
    }

    /// Has a page go bad, and met as planned.
    fn inflict(
        &mut self,
        wound: Wound,
        taken: &BTreeSet<u64>,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Judged<Wound> {
        match wound.when {
            When::Commit => self.in_commit(wound, rng, tally),
            When::Load => self.under_load(wound, taken, rng),
            _ => {
                self.poison(&wound)?;
                match wound.when {
                    When::Read => self.read_all()?,
                    When::Change => {
                        let job = any_job(rng, &self.objects);
                        self.must(&job)?;
                    }
                    _ => {}
                }
                Ok(wound)
            }
        }
    }

    fn poison(&self, wound: &Wound) -> Judged<()> {
        let done = self.live.poison(wound.page, wound.poison);
        done.map_err(|error| Violation::new(Fault::Refused, format!("injecting: {error}")))
    }

    /// Between any two calls of a transaction.
    fn in_commit(&mut self, wound: Wound, rng: &mut Rng, tally: &mut Tally) -> Judged<Wound> {
        // A page that the job touches is met within it.
        let touching = self.touching(wound.page).filter(|_| rng.below(4) > 0);
        let job = |life: &Self, rng: &mut Rng| match touching {
            Some((of, len)) => {
                let from = rng.below(len);
                let len = 1 + rng.below((len - from).min(600));
                Job::new(rng, [Op::Write { of, from, len }])
            }
            None => long_job(rng, &life.objects).unwrap_or_else(|| any_job(rng, &life.objects)),
        };
        // The calls of such a job, and one of them: places that are passed often no oftener.
        let first = job(self, rng);
        let live = self.live.clone();
        let (done, calls) = live.trace(|| self.must(&first));
        done?;
        let calls: Vec<&str> = calls.into_iter().filter(|place| in_a_commit(place)).collect();
        let places: BTreeSet<&str> = calls.iter().copied().collect();
        let places: Vec<&str> = places.into_iter().collect();
        let place = rng.pick(&places).copied().unwrap_or_default();
        let all: Vec<usize> = (0..calls.len()).filter(|call| calls[*call] == place).collect();
        let after = rng.pick(&all).copied().unwrap_or(0) as u64;
        let only = in_a_commit;
        self.live.arm(Trip { only, after, page: wound.page, poison: wound.poison });
        let job = job(self, rng);
        let done = self.must(&job);
        match self.live.disarm() {
            Some(site) => {
                tally.add(format!("{PLACES}{site}"), 1);
                done?;
                Ok(wound)
            }
            None => {
                done?;
                // The transaction was shorter.
                self.poison(&wound)?;
                Ok(Wound { when: When::Scrub, ..wound })
            }
        }
    }

    /// Two threads work on objects of their own while the pages go bad, one after the other. In
    /// half of the lives a third one scrubs then.
    fn under_work(&mut self, wounds: &[Wound], rng: &mut Rng) -> Judged<()> {
        let ledger = Ledger::new(std::mem::take(&mut self.objects));
        let over = AtomicBool::new(false);
        let (pool, anchor) = (&self.pool, self.anchor);
        let toil = Toil { pool, ledger: &ledger, anchor, over: &over, weather: &Fair };
        let seeds = [rng.next_u64(), rng.next_u64()];
        let ran = toil.during(&seeds, || {
            for wound in wounds {
                std::thread::sleep(Duration::from_micros(rng.below(BUSY_WAIT)));
                self.poison(wound)?;
            }
            std::thread::sleep(Duration::from_micros(BUSY_WAIT));
            if rng.below(2) == 0 { self.scrub().map(drop) } else { Ok(()) }
        });
        self.objects = ledger.objects();
        ran.map(drop)
    }

    /// A program looks at an object in place when its page goes bad.
    fn under_load(&mut self, wound: Wound, taken: &BTreeSet<u64>, rng: &mut Rng) -> Judged<Wound> {
        let mut nodes = Choice::of(&self.objects).nodes;
        let page_of = |word: u64| RawPtr::from_word(word).offset() / PAGE * PAGE;
        nodes.retain(|word| !taken.contains(&self.domain(page_of(*word))));
        let Some(word) = rng.pick(&nodes).copied() else {
            self.poison(&wound)?;
            return Ok(Wound { when: When::Scrub, ..wound });
        };
        let expected = self.objects.get(word).map(|object| Arc::clone(&object.bytes));
        let at = RawPtr::from_word(word).offset();
        // Only pages in the zone can be moved, cured and loaded alike.
        let wound = Wound { area: Area::Object, page: at / PAGE * PAGE, ..wound };
        let view = self.pool.view::<Node>(RawPtr::from_word(word).typed());
        let view = view.map_err(|error| refused("view", &error))?;
        let mut before = vec![0; PAGE as usize];
        let read = self.live.read(wound.page, &mut before);
        read.map_err(|error| Violation::new(Fault::Refused, error.to_string()))?;
        self.poison(&wound)?;
        let (loaded, answered): (Node, _) = self.attended(&before, || *view);
        drop(view);
        self.waited += answered.len() as u64;
        if answered != [true] {
            let story = format!("a load was answered {answered:?}");
            return Err(Violation::new(Fault::Unnoticed, story));
        }
        if expected.as_deref() != Some(holdfast_layout::bytemuck::bytes_of(&loaded)) {
            return Err(Violation::new(Fault::Wrong, "a load gave something else"));
        }
        Ok(wound)
    }

    /// Loads that wait for a repair while `work` goes on have it; what came of each. A page that
    /// the engine cannot put right is cured by force, by what was there before.
    fn attended<T>(&self, before: &[u8], work: impl FnOnce() -> T) -> (T, Vec<bool>) {
        let mailbox = self.live.mapped().faults();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let healer = scope.spawn(|| {
                let mut answered = Vec::new();
                while !over.load(Ordering::Acquire) {
                    let Some(fault) = mailbox.wait(Duration::from_millis(2)) else { continue };
                    let healed = self.pool.heal_load(fault.at, fault.len);
                    answered.push(healed);
                    if !healed && self.live.sick().is_some() {
                        mailbox.answer(fault, Verdict::Lost);
                        continue;
                    }
                    if !healed {
                        // Told the truth, the load would end this process.
                        self.force(fault.at, before);
                    }
                    mailbox.answer(fault, Verdict::Healed);
                }
                answered
            });
            let done = work();
            over.store(true, Ordering::Release);
            (done, healer.join().unwrap_or_default())
        })
    }

    /// Scrubs, and looks whether everything is whole and every error has its event. Answers the
    /// pages that can be used again, themselves or in another place.
    fn settle(
        &self,
        wounds: &[Wound],
        seen: u64,
        manner: Manner,
        tally: &mut Tally,
    ) -> Judged<Vec<u64>> {
        let Manner { stuck, bare, .. } = manner;
        let done = self.scrub()?;
        if done.lost > 0 && !stuck {
            let story = format!("the scrub gave up {}: {:?}", done.lost, done.report.findings);
            return Err(Violation::new(Fault::Wrong, story));
        }
        let met = self.live.met();
        let events = as_told(self.events_since(seen), self.live.len());
        let mut healed = Vec::new();
        for wound in wounds {
            let touched = self.accounted(wound, &met, &events, manner, tally)?;
            let stays = (stuck || bare) && wound.poison == Poison::Unclearable;
            healed.extend((touched && !stays).then_some(wound.page));
        }
        // A spare frame that is bad is found when something is to be moved there.
        let bad = if bare { self.spares() } else { Vec::new() };
        let bad = wounds.iter().map(|wound| wound.page).chain(bad);
        let bad: Vec<Range> = bad.map(|page| (page, PAGE)).collect();
        accused(&self.zone, &events, &bad, &self.live)?;
        let change = |at, byte| {
            let _ = self.live.put(LIE, at, &[byte]);
        };
        revert_as_told(&self.objects, &bad, change, &self.live);
        kept(&self.live, &self.objects, &bad)?;
        self.read_all()?;
        if stuck {
            return Ok(healed);
        }
        if told(Lie::StaysBad)
            && let Some(wound) = wounds.first()
        {
            self.poison(wound)?;
        }
        let report = self.pool.check(|_, _| {}).map_err(|error| refused("check", &error))?;
        let stays = |w: &&Wound| bare && w.poison == Poison::Unclearable;
        let stay: Vec<u64> = wounds.iter().filter(stays).map(|wound| wound.page).collect();
        let found: Vec<u64> = report.findings.iter().map(|finding| finding.at).collect();
        if found != stay {
            let story = format!("after the scrub a check finds {:?}", report.findings.first());
            return Err(Violation::new(Fault::Unnoticed, story));
        }
        // Records in the log are done with; a page there is rewritten when the log comes to it.
        let in_log = |wound: &&Wound| matches!(wound.area, Area::Log(_));
        let mut spared: Vec<u64> = wounds.iter().filter(in_log).map(|wound| wound.page).collect();
        if bare {
            let bad = self.spares();
            spared.extend(&bad);
            self.whole(&spared)?;
            tally.add("stand-ins", stay.len() as u64);
            return Ok(healed);
        }
        tally.add("left bad in the log, which holds nothing", self.whole(&spared)?);
        Ok(healed)
    }

    /// An error that the engine met has an event, and an incurable page was relocated. Answers
    /// whether it met one.
    fn accounted(
        &self,
        wound: &Wound,
        met: &BTreeMap<u64, u64>,
        events: &[Event],
        Manner { stuck, bare, .. }: Manner,
        tally: &mut Tally,
    ) -> Judged<bool> {
        // What the system lists is seen to before anybody touches it.
        let listed = self.live.sick().is_some() && wound.page >= self.zone.start;
        let touched = met.contains_key(&wound.page) || wound.when == When::Load || listed;
        if !touched {
            if wound.page >= self.zone.start {
                let story = format!("page {:#x} went bad and nobody touched it", wound.page);
                return Err(Violation::new(Fault::Unnoticed, story));
            }
            tally.add("bad pages of metadata or log that nothing read", 1);
            return Ok(false);
        }
        tally.add("bad pages touched", 1);
        let mut of_page =
            events.iter().filter(|event| names(&self.zone, event, wound.page, PAGE)).peekable();
        if of_page.peek().is_none() {
            let all: Vec<String> = events.iter().take(4).map(ToString::to_string).collect();
            let (page, area) = (wound.page, kind_of(wound.area));
            let story = format!("no event names page {page:#x} ({area}); there are: {all:?}");
            return Err(Violation::new(Fault::Unnoticed, story));
        }
        let here = |event: &&Event| event.at / PAGE * PAGE == wound.page;
        let outcomes: BTreeSet<String> =
            of_page.filter(here).map(|event| format!("{:?}", event.outcome)).collect();
        for outcome in &outcomes {
            tally.add(format!("events {outcome}"), 1);
        }
        let relocated = outcomes.contains(if bare { "StoodIn" } else { "Relocated" });
        let in_zone = wound.page >= self.zone.start;
        if wound.poison == Poison::Unclearable && in_zone && !relocated {
            let story = format!("page {:#x} cannot be cured: {outcomes:?}", wound.page);
            return Err(Violation::new(Fault::Unnoticed, story));
        }
        if outcomes.contains("Lost") && !stuck {
            let page = wound.page;
            let all: Vec<String> = events.iter().take(8).map(ToString::to_string).collect();
            let story = format!("within tolerance, but {page:#x} is lost: {all:?}");
            return Err(Violation::new(Fault::Wrong, story));
        }
        Ok(true)
    }

    /// More bad pages in one column than parity covers.
    fn beyond(&mut self, rng: &mut Rng, tally: &mut Tally) -> Judged<()> {
        let rows = u64::from(self.zone.data_rows + self.zone.parity_rows);
        let mut all: Vec<u64> = (0..rows).collect();
        rng.shuffle(&mut all);
        let col = rng.below(self.zone.row_len.div_ceil(PAGE)) * PAGE;
        let bad: Vec<u64> = all[..=self.zone.parity_rows as usize]
            .iter()
            .map(|row| self.zone.start + row * self.zone.row_len + col)
            .collect();
        let exposed = self.exposed(&bad);
        let seen = self.last_event();
        for page in &bad {
            let wound = Wound {
                area: Area::Free,
                page: *page,
                poison: Poison::Clearable,
                when: When::Scrub,
            };
            self.poison(&wound)?;
            tally.count += 1;
            tally.add("beyond tolerance", 1);
        }
        let told = |v: Violation| v.during(format!("pages {bad:x?} of one column"));
        self.contained(&exposed).map_err(told)?;
        let done = self.scrub().map_err(told)?;
        let lost = self.contained(&exposed).map_err(told)?;
        tally.add("objects lost beyond tolerance", lost.len() as u64);
        let events = self.events_since(seen);
        for word in &lost {
            let touches =
                |event: &Event, t: &Target| t.at < event.at + event.len && event.at < t.at + t.len;
            let named = events.iter().any(|event| {
                event.outcome == Outcome::Lost
                    && (RawPtr::from_word(event.object).offset()
                        == RawPtr::from_word(*word).offset()
                        || exposed[word].iter().any(|part| touches(event, part)))
            });
            if !named || done.report.found == 0 {
                let story = format!("{} is lost and no event names it", name(*word));
                return Err(told(Violation::new(Fault::Unnoticed, story)));
            }
        }
        Ok(())
    }
}

const fn is_in_zone(area: Area) -> bool {
    !area.is_mirrored() && !matches!(area, Area::Log(_))
}

/// Areas in the report: copies are not told apart.
fn kind_of(area: Area) -> String {
    match area {
        Area::Log(_) => Area::Log(Side::A).to_string(),
        area if area.is_mirrored() => "metadata".to_owned(),
        area => area.to_string(),
    }
}

/// Whether a place is one of a commit's own steps.
fn in_a_commit(place: &str) -> bool {
    ["object.commit.", "object.in_place.", "object.overflow.", "object.chunks.", "logs."]
        .iter()
        .any(|room| place.starts_with(room))
}

/// Now and then, an object that is written in place, or more bytes than a record takes.
fn long_job(rng: &mut Rng, objects: &Objects) -> Option<Job> {
    let large = Choice::of(objects).large;
    let (of, len) = rng.pick(&large).copied().unwrap_or((0, 0));
    let op = match rng.below(4) {
        0 if large.len() < 2 => Op::Alloc { len: 9_000 },
        0 => Op::Free { of },
        1 if len > 8_000 => Op::Write { of, from: 0, len: 8_000 },
        _ => return None,
    };
    Some(Job::new(rng, [op]))
}

/// Places in commits are counted, not listed; a third of the errors has to hit there.
fn finish(tally: &mut Tally) {
    let places: Vec<String> =
        tally.figures.keys().filter(|key| key.starts_with(PLACES)).cloned().collect();
    let mut hits = 0;
    for place in &places {
        let count = tally.figures.remove(place).unwrap_or(0);
        // Others are calls of a repair that the commit asked for.
        hits += if in_a_commit(&place[PLACES.len()..]) { count } else { 0 };
    }
    // Under threads nobody chooses the instant.
    let chosen = tally.count - tally.figures.get("met by Busy").copied().unwrap_or(0);
    if tally.count >= 1_000 && hits * 3 < chosen {
        let story = format!("only {hits} of {chosen} errors hit inside commits");
        tally.convict(Violation::new(Fault::Unnoticed, story));
    }
    let names: Vec<&str> = places.iter().map(|place| &place[PLACES.len()..]).collect();
    tally.lines.push(format!(
        "{hits} of {chosen} errors hit inside commits, before calls of {} places: {}",
        places.len(),
        names.join(", ")
    ));
}
