//! What goes wrong in a storm: faults of every kind, drawn one after the other, and scrubs.
//!
//! The atlas is the set of places that count as one (`damage::domains`). Within tolerance at most
//! one fault has its place in each until a scrub has been there.

mod hurt;

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use holdfast_faultmem::{Clear, Damage, FailMode, Fallen, FaultKind, Injected, Torn, When};
use holdfast_layout::{Region, RegionKind};
use holdfast_object::{Finding, ScrubControl, ScrubOptions, Scrubbed};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::events::{Event, Outcome};
use holdfast_redundancy::{Verdict, verdict::Reason};
use holdfast_workloads::Rng;

use super::exposed::Places;
use super::kind::Kind;
use super::sky::Sky;
use crate::object::driver::Driver;
use crate::object::mapper::is_of_map;
use crate::object::ops::{Job, Op};
use crate::object::raw::Bytes;
use crate::object::rows::damage::{Seen, domains, end_of, names, zone_of};
use crate::object::rows::spared::{Range, accused, again_as_told};
use crate::object::rows::stale::{concerned, settle};
use crate::object::scenes::refused;
use crate::object::targets::{Area, Target, Targets, unit_set_back};
use crate::tally::{Fault, Judged, Tally, Violation};

/// Faults between two scrubs at most.
const BETWEEN: u64 = 6;
/// Longest pause between two faults, in microseconds.
const PAUSE: u64 = 1_500;
/// What is waited for a write that an armed fault can hit: so long, and so many changes, as threads
/// that share a core make few in that time; at most [`PATIENCE`], as they may make none any more.
const AIM: (Duration, u64) = (Duration::from_millis(3), 4);
/// Longest wait for threads to do what they were asked for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most bytes that are damaged at once beyond tolerance, if the zone has as many.
const LARGE: u64 = 2 << 20;
/// Scrubs after each other at most, for what somebody holds.
const PASSES: u32 = 4;
/// Calls among which the one is drawn that fails.
const CALLS: u64 = 80;
/// Domains of the log, which no scrub writes anew.
const LOG: u64 = 1 << 42;

/// A range that went wrong.
#[derive(Debug, Clone)]
struct Injury {
    kind: Kind,
    at: u64,
    len: u64,
    /// Stores made before it.
    since: u64,
    /// The bytes in it that became others, as far as that is known: whoever stores over these has
    /// stored over all that is wrong.
    bytes: Option<Vec<u64>>,
    /// Number in the log of the medium, of a write that went wrong.
    write: Option<usize>,
    /// The other place of a fault that has two.
    besides: bool,
}

/// The one who does it.
pub(super) struct Chaos<'a> {
    driver: &'a Driver,
    sky: &'a Sky,
    zone: Region,
    rng: Rng,
    taken: BTreeSet<u64>,
    injuries: Vec<Injury>,
    /// Of these, how many were judged.
    judged: usize,
    /// Of these, writes that had not gone wrong yet when the last scrub began.
    late: Vec<Range>,
    events: Vec<Event>,
    seen: Seen,
    /// Events were lost: the journal holds only so many.
    overflowed: bool,
    /// The same at any time, and all the others, of a storm beyond tolerance.
    lost_events: bool,
    told: Vec<Event>,
    /// A spare frame is left.
    spare: bool,
    /// An append was hit that carried both copies of a record: a crash may lose it.
    pub(super) log_lost: bool,
    /// Nothing is written any more.
    pub(super) ended: bool,
    /// Calls failed since the last look at the journal: that counts as damage anywhere, and with
    /// all of them failing nothing can be had from anywhere.
    failed: bool,
    /// How often that was.
    failures: u64,
    /// Places of freed objects are in doubt, which nobody writes anew.
    pub(super) doubtful: bool,
    /// The threads are gone.
    pub(super) alone: bool,
    /// The places there were when all was whole.
    whole: Targets,
    places: Places,
    /// How many injuries there were at each scrub.
    scrubbed: Vec<usize>,
    pub(super) tally: Tally,
}

impl<'a> Chaos<'a> {
    pub(super) fn over(driver: &'a Driver, sky: &'a Sky, rng: Rng) -> Judged<Self> {
        driver.medium.note_stores();
        let spares = driver.pool.regions();
        let spare = spares.iter().any(|region| region.kind == RegionKind::Spare);
        Ok(Self {
            zone: zone_of(driver)?,
            seen: Seen::now(driver),
            taken: BTreeSet::new(),
            injuries: Vec::new(),
            judged: 0,
            late: Vec::new(),
            events: Vec::new(),
            overflowed: false,
            lost_events: false,
            told: Vec::new(),
            spare: spare && driver.medium.crash_point().persisted().bad_pages().is_empty(),
            log_lost: false,
            ended: false,
            failed: false,
            failures: 0,
            doubtful: false,
            alone: false,
            whole: Targets::of(&Bytes::of(&driver.medium)),
            places: Places::of(driver),
            scrubbed: Vec::new(),
            tally: Tally::default(),
            driver,
            sky,
            rng,
        })
    }

    /// Some faults, and the scrub after them.
    pub(super) fn round(&mut self) -> Judged<()> {
        let targets = match self.sky.is_beyond() {
            // What is lost cannot be read as what it is.
            true => self.whole.clone(),
            false => self.targets(),
        };
        let mut stale = false;
        if self.sky.is_beyond() {
            self.overload()?;
        }
        for _ in 0..=self.rng.below(BETWEEN) {
            // Also because a log chunk cannot be written any more, beyond tolerance.
            self.ended |= self.sky.is_beyond() && self.driver.pool.is_read_only();
            if self.ended {
                return Ok(());
            }
            self.pause();
            // Beyond tolerance nothing that leaves an older state: it verifies, and is served.
            match self.rng.below(if self.sky.is_beyond() { 9 } else { 14 }) {
                0..3 => self.flip(&targets)?,
                3..6 => self.stray(&targets)?,
                6..8 => self.poison(&targets, Clear::Able)?,
                8 => self.poison(&targets, Clear::Unable)?,
                9..13 => self.strike(&targets)?,
                // One at a time: the threads keep away from what is in it.
                _ if !stale => stale = self.set_back(&targets)?,
                _ => {}
            }
        }
        self.pause();
        self.ended |= self.sky.is_beyond() && self.driver.pool.is_read_only();
        if self.ended {
            return Ok(());
        }
        self.scrub()?;
        if self.rng.below(5) == 0 && !self.doubtful {
            self.fail_one()?;
        }
        Ok(())
    }

    /// Some faults that no scrub follows before the end.
    pub(super) fn leave(&mut self) -> Judged<()> {
        let targets = self.targets();
        for _ in 0..=self.rng.below(BETWEEN) {
            self.pause();
            match self.rng.below(8) {
                0..3 => self.flip(&targets)?,
                3..6 => self.stray(&targets)?,
                _ => self.poison(&targets, Clear::Able)?,
            }
        }
        self.pause();
        Ok(())
    }

    fn pause(&mut self) {
        std::thread::sleep(Duration::from_micros(self.rng.below(PAUSE)));
    }

    fn targets(&self) -> Targets {
        self.sky.calm(|| Targets::of(&Bytes::of(&self.driver.medium)))
    }

    fn pick(&mut self, targets: &Targets) -> Option<Target> {
        let areas = targets.areas();
        // As many in the zone as elsewhere, where there are more kinds of places.
        let zone: Vec<Area> = areas.iter().copied().filter(|area| in_zone(*area)).collect();
        let from = if self.rng.below(3) > 0 { &zone } else { &areas };
        targets.pick(*self.rng.pick(from)?, &mut self.rng)
    }

    fn domains(&self, at: u64, len: u64) -> BTreeSet<u64> {
        domains(self.driver, &self.zone, at, len)
    }

    /// Whether the atlas has room there. Beyond tolerance, anything in the zone has.
    fn may(&self, at: u64, len: u64) -> bool {
        let beyond = self.sky.is_beyond() && at >= self.zone.start;
        beyond || self.taken.is_disjoint(&self.domains(at, len))
    }

    /// Notes what was just injected, by nobody else.
    fn note(&mut self, kind: Kind, at: u64, len: u64) {
        let since = self.driver.medium.last_injected().map_or(0, |last| last.stores);
        let injury = Injury { kind, at, len, since, bytes: None, write: None, besides: false };
        self.hurt_by(injury);
    }

    fn hurt_by(&mut self, injury: Injury) {
        let domains = self.domains(injury.at, injury.len);
        self.taken.extend(domains);
        if injury.besides {
            self.tally.add(format!("{}: places hit besides", injury.kind), 1);
        } else {
            self.tally.count += 1;
            self.tally.add(format!("{}: injected", injury.kind), 1);
        }
        self.injuries.push(injury);
    }

    /// Ruins a page of more rows of one column than there are parity rows.
    fn overload(&mut self) -> Judged<()> {
        let Region { start, row_len, data_rows, parity_rows, .. } = self.zone;
        if self.rng.below(8) == 0 {
            return self.large();
        }
        let mut rows: Vec<u64> = (0..u64::from(data_rows + parity_rows)).collect();
        self.rng.shuffle(&mut rows);
        let col = self.rng.below(row_len / PAGE) * PAGE;
        for row in &rows[..=parity_rows as usize] {
            let page = start + row * row_len + col;
            let kind = if self.rng.below(2) == 0 { Kind::Stray } else { Kind::Poison(Clear::Able) };
            if kind == Kind::Stray {
                let mut bytes = vec![0; PAGE as usize];
                self.rng.fill(&mut bytes);
                self.driver.medium.stray(page, &bytes).map_err(injecting)?;
            } else {
                self.driver.medium.poison(page, PAGE, Clear::Able).map_err(injecting)?;
            }
            self.note(kind, page, PAGE);
            self.pause();
        }
        self.tally.add("columns lost", 1);
        Ok(())
    }

    /// Overwrites much of the zone, or makes it bad.
    fn large(&mut self) -> Judged<()> {
        let Region { start, row_len, data_rows, parity_rows, .. } = self.zone;
        let pages = u64::from(data_rows + parity_rows) * row_len / PAGE;
        let from = self.rng.below(pages);
        let len = (1 + self.rng.below(LARGE / PAGE)).min(pages - from) * PAGE;
        let (at, medium) = (start + from * PAGE, &self.driver.medium);
        let kind = if self.rng.below(2) == 0 {
            let mut bytes = vec![0; len as usize];
            self.rng.fill(&mut bytes);
            medium.stray(at, &bytes).map_err(injecting)?;
            Kind::Stray
        } else {
            medium.poison(at, len, Clear::Able).map_err(injecting)?;
            Kind::Poison(Clear::Able)
        };
        self.note(kind, at, len);
        self.tally.add("large losses", 1);
        Ok(())
    }

    fn flip(&mut self, targets: &Targets) -> Judged<()> {
        let Some(target) = self.pick(targets) else { return Ok(()) };
        let at = target.at + self.rng.below(target.len);
        if self.may(at, 1) {
            self.driver.medium.flip_bit(at, self.rng.below(8) as u8).map_err(injecting)?;
            self.note(Kind::Flip, at, 1);
        }
        Ok(())
    }

    fn stray(&mut self, targets: &Targets) -> Judged<()> {
        let Some(target) = self.pick(targets) else { return Ok(()) };
        let at = target.at + self.rng.below(target.len);
        let most = [1, 8, 64, 600, PAGE, self.zone.row_len][self.rng.below(6) as usize];
        let len = (1 + self.rng.below(most)).min(end_of(self.driver, &self.zone, at) - at);
        if !self.may(at, len) {
            return Ok(());
        }
        let parity = self.zone.start + u64::from(self.zone.data_rows) * self.zone.row_len;
        let spills = at + len > parity;
        let mut bytes = vec![0; len as usize];
        match self.rng.below(3) {
            // Zeros are what parity once was, and beyond tolerance nothing is set back to that.
            0 if !self.sky.is_beyond() || !spills => {}
            1 => bytes.fill(0xff),
            _ => self.rng.fill(&mut bytes),
        }
        self.driver.medium.stray(at, &bytes).map_err(injecting)?;
        self.stored_to(Kind::Stray);
        Ok(())
    }

    /// Notes what the store of ours that was just injected has changed, if anything.
    fn stored_to(&mut self, kind: Kind) {
        let Some(injected) = self.driver.medium.last_injected() else { return };
        let bytes = differing(injected.at, &injected.before, &injected.after);
        if let (Some(first), Some(last)) = (bytes.first().copied(), bytes.last().copied()) {
            self.note(kind, first, last - first + 1);
            if let Some(injury) = self.injuries.last_mut() {
                injury.bytes = Some(bytes);
            }
        }
    }

    fn poison(&mut self, targets: &Targets, clear: Clear) -> Judged<()> {
        let Some(target) = self.pick(targets) else { return Ok(()) };
        let page = (target.at + self.rng.below(target.len)) / PAGE * PAGE;
        let for_good = clear == Clear::Unable;
        // Now and then many, as a large page has: up to a row's length.
        let most = end_of(self.driver, &self.zone, page).saturating_sub(page) / PAGE;
        let most = most.min(self.zone.row_len / PAGE).max(1);
        let many = !for_good && page >= self.zone.start && self.rng.below(4) == 0;
        let len = if many { (1 + self.rng.below(most)) * PAGE } else { PAGE };
        let may_last = self.sky.is_beyond() || self.spare && page >= self.zone.start;
        if !self.may(page, len) || for_good && !may_last {
            return Ok(());
        }
        // An append to a file that fails ends writing, as row `fail-nth` has it.
        let file = self.driver.medium.kind() == MediumKind::File;
        if file && matches!(target.area, Area::Log(_)) {
            return Ok(());
        }
        self.spare &= !for_good;
        self.driver.medium.poison(page, len, clear).map_err(injecting)?;
        self.note(Kind::Poison(clear), page, len);
        Ok(())
    }

    fn is_spare(&self, at: u64) -> bool {
        let regions = self.driver.pool.regions();
        let mut spares = regions.iter().filter(|region| region.kind == RegionKind::Spare);
        spares.any(|spare| at + PAGE > spare.start && at < spare.start + spare.len)
    }

    /// Arms a fault for a write of the threads, and takes down what became of it.
    fn strike(&mut self, targets: &Targets) -> Judged<()> {
        let Some(target) = self.pick(targets) else { return Ok(()) };
        let page = (target.at + self.rng.below(target.len)) / PAGE * PAGE;
        let medium = &self.driver.medium;
        let (kind, fault) = match self.rng.below(3) {
            0 => (Kind::Lost, FaultKind::Lost),
            1 => {
                let to = self.rng.below(medium.len() - PAGE);
                (Kind::Misdirected, FaultKind::Misdirected { to })
            }
            _ => (Kind::Torn, FaultKind::Torn(Torn::Subset(self.rng.next_u64()))),
        };
        if !self.may(page, PAGE) {
            return Ok(());
        }
        // A spare frame may stand for another page, which is the one that is hurt then.
        if let FaultKind::Misdirected { to } = fault
            && self.is_spare(to)
        {
            return Ok(());
        }
        if let FaultKind::Misdirected { to } = fault
            && !(self.may(to, PAGE)
                && self.domains(to, PAGE).is_disjoint(&self.domains(page, PAGE)))
        {
            return Ok(());
        }
        let before = medium.injected().len();
        medium.arm(fault, When::touching(page, PAGE).nth(1 + self.rng.below(3)));
        let acked = || self.driver.ledger.lock().acked();
        let (begun, enough) = (Instant::now(), acked() + AIM.1);
        let waits = |long| begun.elapsed() < long;
        while medium.armed() > 0 && (waits(AIM.0) || acked() < enough && waits(PATIENCE)) {
            std::thread::sleep(Duration::from_micros(100));
        }
        medium.disarm();
        let hit = medium.injected().into_iter().enumerate().skip(before);
        for (number, injected) in hit.filter(|(_, hit)| matches!(hit.damage, Damage::Write(_))) {
            self.struck(kind, (number, &injected));
        }
        Ok(())
    }

    /// A write was hit: nobody could know which.
    fn struck(&mut self, kind: Kind, (write, injected): (usize, &Injected)) {
        // Words are dropped whole, with what others stored to the rest of them and not drained yet.
        let (first, end) = (injected.at & !7, (injected.at + injected.len).next_multiple_of(8));
        let here = self.domains(first, end - first);
        let mut places = vec![(first, end - first)];
        let mut all = here.clone();
        if let Damage::Write(FaultKind::Misdirected { to }) = injected.damage {
            let there = self.domains(to, injected.len);
            if !there.is_disjoint(&here) {
                self.give_up();
            }
            all.extend(there);
            places.push((to, injected.len));
        }
        if !self.taken.is_disjoint(&all) {
            self.give_up();
        }
        let log_end = 2 * self.driver.pool.superblock().side_len;
        self.log_lost |= self.driver.medium.kind() == MediumKind::File && injected.at < log_end;
        for (number, (at, len)) in places.into_iter().enumerate() {
            let (since, bytes, write) = (injected.stores, None, Some(write));
            // One fault, two places.
            self.hurt_by(Injury { kind, at, len, since, bytes, write, besides: number > 0 });
        }
    }

    fn give_up(&mut self) {
        self.tally.add("storms given up: two faults may meet in one column", 1);
        self.sky.give_up();
        self.ended = true;
    }

    /// Gives a place that the threads changed the bytes it had before.
    fn set_back(&mut self, targets: &Targets) -> Judged<bool> {
        let Some(target) = targets.pick(Area::Object, &mut self.rng) else { return Ok(false) };
        let page = (target.at + self.rng.below(target.len)) / PAGE * PAGE;
        if !self.may(page, PAGE) {
            return Ok(false);
        }
        let (driver, sky) = (self.driver, self.sky);
        let read = || {
            let mut bytes = vec![0; PAGE as usize];
            driver.medium.read(page, &mut bytes).ok().map(|()| bytes)
        };
        let Some(old) = sky.calm(read) else { return Ok(false) };
        self.pause();
        let unit = unit_set_back(&mut self.rng);
        let draw = self.rng.next_u64();
        let back = sky.calm(|| -> Judged<bool> {
            settle(driver)?;
            let Some(new) = read() else { return Ok(false) };
            let changed = old.chunks(unit).zip(new.chunks(unit)).enumerate();
            let changed: Vec<usize> =
                changed.filter(|(_, (a, b))| a != b).map(|(i, _)| i * unit).collect();
            let Some(from) = Rng::new(draw).pick(&changed).copied() else { return Ok(false) };
            let at = page + from as u64;
            sky.shun(concerned(driver, at, unit as u64));
            driver.medium.stray(at, &old[from..][..unit]).map_err(injecting)?;
            Ok(true)
        })?;
        if back {
            self.stored_to(Kind::Stale);
        }
        Ok(back)
    }

    /// One call of the medium fails, of whichever thread, or all do from that one on, for a while.
    /// That counts as damage anywhere, so within tolerance there is no other.
    fn fail_one(&mut self) -> Judged<()> {
        let clear = !self.taken.iter().any(|domain| domain & LOG == 0);
        if !clear && !self.sky.is_beyond() {
            return Ok(());
        }
        let medium = &self.driver.medium;
        self.sky.fail(true);
        let nth = medium.calls() + 1 + self.rng.below(CALLS);
        let forever = self.rng.below(3) == 0;
        medium.fail_nth(nth, if forever { FailMode::Forever } else { FailMode::Once });
        let begun = Instant::now();
        while medium.calls() < nth && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(100));
        }
        let medium = &self.driver.medium;
        if forever {
            std::thread::sleep(Duration::from_micros(self.rng.below(PAUSE)));
        }
        // Whoever was answered an error has told it by then. What ended for good stays so.
        self.sky.calm(|| {
            medium.fail_none();
            self.sky.fail(self.driver.pool.is_read_only());
        });
        self.failed = true;
        self.failures += 1;
        self.tally.count += 1;
        self.tally.add(format!("{}: injected", Kind::Failed), 1);
        self.tally.add("failed calls: all from one on", forever.into());
        self.ended |= self.driver.pool.is_read_only();
        if !self.ended {
            self.scrub()?;
        }
        Ok(())
    }

    /// Scrubs. Within tolerance nothing may be lost, and what is in doubt has been older.
    pub(super) fn scrub(&mut self) -> Judged<()> {
        settle(self.driver)?;
        self.let_land();
        let late = self.unsettled();
        let in_doubt = self.settled_pass()?;
        if !in_doubt.is_empty() {
            self.tally.add("objects in doubt, written anew", in_doubt.len() as u64);
            self.anew(in_doubt)?;
            settle(self.driver)?;
            let again = self.pass()?;
            if again.undecided > 0 && !self.doubtful && !self.sky.is_given_up() {
                let story = format!("written anew, and in doubt: {:?}", again.report.findings);
                return Err(Violation::new(Fault::Wrong, story));
            }
        }
        self.sky.shun(BTreeSet::new());
        // Of what is written twice one copy is bad for good, and the other is all there is.
        let dead = if self.sky.is_beyond() { self.dead() } else { BTreeSet::new() };
        self.taken.retain(|domain| domain & LOG != 0 || dead.contains(domain));
        // A thread in the middle of a repair tells of it late.
        let (since, now) = self.sky.calm(|| (self.seen.since(self.driver), Seen::now(self.driver)));
        match since {
            Some(events) => self.events.extend(events),
            None => (self.overflowed, self.lost_events) = (true, true),
        }
        self.seen = now;
        self.judge()?;
        self.late = late;
        Ok(())
    }

    /// A pass, and more of them as long as something is undecided that no finding names: somebody
    /// held it. What stays so would meet the next fault as a second one.
    fn settled_pass(&mut self) -> Judged<Vec<u64>> {
        for _ in 0..PASSES {
            let done = self.pass()?;
            let in_doubt = self.in_doubt(&done)?;
            let told = done.undecided == 0 || !in_doubt.is_empty() || self.doubtful;
            if told || self.sky.is_beyond() || self.sky.is_given_up() {
                return Ok(in_doubt);
            }
            self.tally.add("scrubs again, for what was held", 1);
        }
        self.give_up();
        Ok(Vec::new())
    }

    /// Waits for the barriers of the writes that were hit: one that goes wrong behind the scrub is
    /// found by nobody in this round, and may meet another fault in the next.
    fn let_land(&mut self) {
        let begun = Instant::now();
        while !self.alone && self.driver.medium.on_their_way() > 0 {
            if begun.elapsed() > PATIENCE {
                // On a busy machine.
                return self.give_up();
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Places of writes that are still to go wrong, at a barrier to come.
    fn unsettled(&self) -> Vec<Range> {
        let log = self.driver.medium.injected();
        let waits = |write: usize| log.get(write).is_some_and(|write| !write.settled);
        let late = self.injuries.iter().filter(|it| it.write.is_some_and(waits));
        late.map(|it| (it.at, it.len)).collect()
    }

    /// Has what is in doubt written anew, by the thread whose it is.
    fn anew(&mut self, objects: Vec<u64>) -> Judged<()> {
        if self.alone {
            for of in objects {
                let known = self.driver.ledger.objects();
                let len = known.get(of).map_or(0, |object| object.bytes.len() as u64);
                let op = match known.get(of) {
                    Some(object) if is_of_map(object.kind) => Op::Again { of },
                    _ => Op::Write { of, from: 0, len },
                };
                let job = Job::new(&mut self.rng, [op]);
                self.driver.must(&job)?;
            }
            return Ok(());
        }
        self.sky.write_anew(objects);
        let begun = Instant::now();
        while self.sky.in_doubt() > 0 && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(200));
        }
        if self.sky.in_doubt() > 0 {
            // On a busy machine: what is still in doubt would meet the next fault.
            self.give_up();
        }
        // The last of them may be under way.
        self.sky.calm(|| ());
        Ok(())
    }

    fn pass(&mut self) -> Judged<Scrubbed> {
        let control = ScrubControl::default();
        let done = self.driver.pool.scrub(ScrubOptions::default(), &control, |_, _| {});
        let done = done.map_err(|error| refused("scrub", &error))?;
        self.tally.add("scrubs", 1);
        self.tally.add("findings repaired by scrubs", done.repaired);
        if done.lost > 0 && !self.sky.is_beyond() {
            let story = format!("the scrub gave up {}: {:?}", done.lost, done.report.findings);
            return Err(Violation::new(Fault::Wrong, story));
        }
        Ok(done)
    }

    /// Objects of the model that a scrub could not decide about.
    fn in_doubt(&mut self, done: &Scrubbed) -> Judged<Vec<u64>> {
        if done.undecided == 0 || self.sky.is_beyond() {
            return Ok(Vec::new());
        }
        // A scrub's findings tell what it found. A page that could not be read may be whole again,
        // while what lies over its columns is in doubt: the next pass has that by name.
        let mended = |finding: &Finding| match finding.verdict {
            Verdict::Undecided(Reason::Media(error)) => {
                self.driver.medium.read(error.at, &mut [0]).is_ok()
            }
            _ => false,
        };
        let next = match done.report.findings.iter().any(mended) {
            true => Some(self.pass()?),
            false => None,
        };
        let older = Verdict::Undecided(Reason::Older);
        let undecided = |f: &&Finding| matches!(f.verdict, Verdict::Undecided(_));
        let findings = &next.as_ref().unwrap_or(done).report.findings;
        let findings: Vec<_> = findings.iter().filter(undecided).collect();
        if let Some(other) = findings.iter().find(|finding| finding.verdict != older) {
            let story = format!("undecided within tolerance: {other:?}");
            return Err(Violation::new(Fault::Unnoticed, story));
        }
        if let Some(strange) = findings.iter().find(|finding| !self.may_be_older(finding)) {
            let story = format!(
                "in doubt, and nothing there was left as it was: {strange:?}; doubtful before: {}",
                self.doubtful
            );
            return Err(Violation::new(Fault::Unnoticed, story));
        }
        let objects = self.driver.ledger.objects();
        let all: Vec<u64> = findings.iter().map(|finding| finding.object.word()).collect();
        let known = |word: &u64| objects.get(*word).is_some();
        self.doubtful |= !all.iter().all(known);
        Ok(all.into_iter().filter(known).collect())
    }

    /// Each fault was overwritten by the program, or an event tells of it.
    fn judge(&mut self) -> Judged<()> {
        let fresh = self.injuries[self.judged..].to_vec();
        self.judged = self.injuries.len();
        self.scrubbed.push(self.judged);
        if self.overflowed {
            self.tally.add("faults with more events than the journal holds", fresh.len() as u64);
            self.overflowed = false;
            self.events.clear();
            self.failed = false;
            return Ok(());
        }
        let events = std::mem::take(&mut self.events);
        if self.sky.is_beyond() {
            self.told.extend(&events);
        }
        let failed = std::mem::take(&mut self.failed);
        if !failed && !self.sky.is_beyond() {
            self.accused(&events, self.judged - fresh.len())?;
        }
        for event in &events {
            self.tally.add(format!("events found by {}", event.finder), 1);
            if event.outcome == Outcome::Lost && !failed && !self.sky.is_beyond() {
                let hurt = self.hurt_beside(&fresh, event);
                let story =
                    format!("within tolerance, but the journal says: {event}; hurt there: {hurt}");
                return Err(Violation::new(Fault::Wrong, story));
            }
        }
        for injury in fresh {
            let Injury { kind, at, len, .. } = injury;
            let mut of = events.iter().filter(|event| names(&self.zone, event, at, len)).peekable();
            let named = of.peek().is_some();
            let repaired = of.any(|event| {
                matches!(event.outcome, Outcome::Repaired | Outcome::Relocated | Outcome::StoodIn)
            });
            let settled = repaired || kind.leaves_older() || failed || self.sky.is_beyond();
            if named && !settled {
                let story = format!("{kind} at {at:#x}+{len:#x}: named, and not repaired");
                return Err(Violation::new(Fault::Unnoticed, story));
            }
            if named {
                let once = u64::from(!injury.besides);
                self.tally.add(format!("{kind}: detected"), once);
                self.tally.add(format!("{kind}: repaired"), once * u64::from(repaired));
                continue;
            }
            if self.sky.is_beyond() || self.is_done_with(at, len) || self.covered(&injury) {
                self.tally.add(format!("{kind}: absorbed"), 1);
                continue;
            }
            let story = format!(
                "{kind} at {at:#x}+{len:#x}: no event names it, nobody stored there; {}",
                self.seen_there(&injury)
            );
            return Err(Violation::new(Fault::Unnoticed, story));
        }
        Ok(())
    }

    /// Nothing is accused that may not be wrong: what was hurt from injury number `from` on. Of
    /// what was hurt before that a scrub has left nothing but what is in the log, where nobody has
    /// come to it, and writes that went wrong later; and what is in doubt, once anything stays so.
    fn accused(&self, events: &[Event], from: usize) -> Judged<()> {
        let (before, fresh) = self.injuries.split_at(from);
        let is_in_log = |it: &&Injury| self.domains(it.at, it.len).iter().any(|d| d & LOG != 0);
        let (left, mended): (Vec<&Injury>, Vec<&Injury>) =
            before.iter().partition(|it| self.doubtful || is_in_log(it));
        let range = |it: &Injury| (it.at, it.len);
        let mut hurt: Vec<Range> = left.into_iter().chain(fresh).map(range).collect();
        hurt.extend(&self.late);
        let mut events = events.to_vec();
        again_as_told(&mut events, &mended.into_iter().map(range).collect::<Vec<_>>());
        self.sky.calm(|| accused(&self.zone, &events, &hurt, &self.driver.medium))
    }

    /// What a scrub has left: what is in the log, where nobody has come to it, writes that go
    /// wrong later, and all that was hurt if anything stays in doubt.
    pub(super) fn left(&self) -> Vec<Range> {
        let is_in_log = |it: &&Injury| self.domains(it.at, it.len).iter().any(|d| d & LOG != 0);
        let left = self.injuries.iter().filter(|it| self.doubtful || is_in_log(it));
        left.map(|it| (it.at, it.len)).chain(self.late.iter().copied()).collect()
    }

    /// Whether the program has stored over all that is wrong since. Of a write that went wrong the
    /// medium knows what that is: nothing, where newer ones or a move of the frame came before.
    fn covered(&self, injury: &Injury) -> bool {
        let Injury { at, len, since, .. } = *injury;
        let log = self.driver.medium.injected();
        let medium = &self.driver.medium;
        if let Some(write) = injury.write.and_then(|number| log.get(number)) {
            let wrong = if injury.besides { &write.landed } else { &write.fell };
            return medium.stored_over(wrong);
        }
        let of = |at| Fallen { at, stores: since };
        let wrong: Vec<Fallen> = match &injury.bytes {
            Some(bytes) => bytes.iter().copied().map(of).collect(),
            None => (at..at + len).map(of).collect(),
        };
        medium.stored_over(&wrong)
    }

    /// Whether nobody needs what is there: records in the log are done with, notes are written by
    /// the scrub itself, and the rest of the metadata and what lies behind the zone is nobody's.
    fn is_done_with(&self, at: u64, len: u64) -> bool {
        use Area::{Regions, Remap, Superblock};
        let kept = |area| matches!(area, Superblock(_) | Regions(_) | Remap(_));
        let Region { start, row_len, data_rows, parity_rows, .. } = self.zone;
        let end = start + u64::from(data_rows + parity_rows) * row_len;
        at >= end || at < start && !self.whole.any_in(kept, at, len)
    }

    /// What the journal says of a storm beyond tolerance; `None` if not all of it is known.
    pub(super) fn events(&self) -> Option<Vec<Event>> {
        let last = self.seen.since(self.driver).filter(|_| !self.lost_events)?;
        Some(self.told.iter().copied().chain(last).collect())
    }
}

const fn in_zone(area: Area) -> bool {
    !area.is_mirrored() && !matches!(area, Area::Log(_))
}

fn injecting(error: impl fmt::Display) -> Violation {
    Violation::new(Fault::Refused, format!("injecting: {error}"))
}

/// The bytes from `at` on that differ.
fn differing(at: u64, one: &[u8], other: &[u8]) -> Vec<u64> {
    let differs = one.iter().zip(other).map(|(a, b)| a != b);
    (at..).zip(differs).filter_map(|(byte, differs)| differs.then_some(byte)).collect()
}
