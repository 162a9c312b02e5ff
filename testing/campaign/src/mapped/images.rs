//! What a crash left, opened in every way it can have come through, and judged.
//!
//! The bits of the source live or die (where first stores are on record, a kill leaves nothing
//! undecided but damage), and the page cache lives (a kill: everything stored is
//! there, the store under way in part) or dies (a power cut: any subset of what no barrier has
//! made durable). In every image, I1 and I3: *good* only of what the program stored, *corrupt*
//! only of what was damaged, whatever happens later. I2: where a stripe is good, it gives back a
//! page. Nothing that was not damaged is changed by opening, scrubbing, covering and closing.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_faultmem::{Budget, CrashPoint, Image, Marks};
use holdfast_mapped::{AtRest, OpenOptions, Opened, Writing};
use holdfast_pmem::MediumKind;
use holdfast_redundancy::{PageVerdict, Unsure};
use holdfast_workloads::Rng;

use super::judge::{accused, gives_back, is_innocent, name, named, refused};
use super::ledger::Ledger;
use super::machine::{Engine, Machine, Setting};
use super::model::{Model, repaired};
use super::session::Program;
use super::tap::Doing;
use super::told::events_as_told;
use crate::object::watch::images;
use crate::tally::{Fault, Judged, Violation};

/// Where the engine notes what it has taken from the source.
const NARROW: &str = "mapped.commit.narrow";
/// It may be anywhere, having met calls that failed.
const UNKNOWN: &str = "no call in particular";

/// Which images of a power cut are looked at, at one barrier.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// What is listed.
    pub budget: Budget,
    /// Where every subset of a dozen units is listed: about so many of these.
    pub about: usize,
}

/// Which images of a power cut are looked at, at all barriers.
#[derive(Debug, Clone, Copy)]
pub struct Cuts {
    /// At most barriers.
    pub thin: Look,
    /// At one in `thick_each`.
    pub thick: Look,
    /// How often a barrier is looked at thoroughly.
    pub thick_each: u64,
}

impl Cuts {
    /// A few at most barriers, all subsets of some units at others.
    pub const FEW: Self = Self { thin: Look::of(2, 6), thick: Look::of(8, 64), thick_each: 24 };
    /// More of both.
    pub const MORE: Self = Self { thin: Look::of(8, 16), thick: Look::of(30, 256), thick_each: 16 };
    /// All there are of a dozen units, else those that differ from what lies there, or from what
    /// was stored, by one unit or two, and samples.
    pub const ALL: Self =
        Self { thin: Look::of(120, usize::MAX), thick: Look::of(400, usize::MAX), thick_each: 16 };
}

impl Look {
    /// So many of each sort, and about so many where there are few units.
    const fn of(many: usize, about: usize) -> Self {
        let exhaustive = if about < 1 << 12 { about as u64 } else { 1 << 12 };
        let pairs = many / 2;
        let budget = Budget { exhaustive, singles: many / 2, pairs, samples: many, seed: 0 };
        Self { budget, about }
    }

    /// The images of an instant.
    fn images(self, point: &CrashPoint, rng: &mut Rng) -> impl Iterator<Item = Image> + use<> {
        let budget = Budget { seed: rng.next_u64(), ..self.budget };
        images(point, &budget, self.about, rng)
    }
}

/// How many images are looked at, and how deep.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Images of power cuts.
    pub cuts: Cuts,
    /// Out of 256, how often a store of the engine is the instant of a kill.
    pub kills: u64,
    /// Out of 256, how often the recovery of an image is cut off as well.
    pub nested: u64,
    /// Images after which a life is looked at in one image of each barrier only.
    pub most: u64,
}

/// What a crash was like.
#[derive(Debug, Clone, Copy)]
struct Crash<'a> {
    power: bool,
    bits: bool,
    /// What the engine was doing.
    at: &'a str,
    /// Whether what the side file says is still believed.
    believed: bool,
    /// Run of the machine after it.
    run: u8,
    depth: u32,
    /// A place that is switched off.
    off: Option<&'a str>,
}

/// Figure: images that differ in what lies there, or in what is known of it.
pub const DISTINCT: &str = "distinct images";

/// Looks at crashes of one life.
#[derive(Debug)]
pub struct Watch {
    setting: Setting,
    program: Program,
    off: Option<String>,
    plan: Plan,
    rng: Rng,
    /// The file is protected: until then a side file need not open.
    pub protected: bool,
    /// Calls have failed, which is a reason for doubt.
    doubtful: bool,
    /// What was seen.
    pub ledger: Ledger,
    /// Images judged.
    pub images: u64,
    /// Images of recoveries that were cut off.
    pub nested: u64,
    /// Of these, images of the recovery from such an image.
    pub deepest: u64,
    /// Fingerprints of all images: bytes, bits, setting, and what is known of each page.
    pub seen: Vec<u64>,
    /// Images of power cuts that were judged, with what was known of them: barriers share many.
    judged: HashSet<u64>,
    /// Pages damaged on purpose that came back.
    pub given_back: u64,
    /// The first thing that was wrong.
    pub wrong: Option<Violation>,
}

/// A watch that hooks share with whoever set them.
pub type Shared = Arc<Mutex<Watch>>;

fn lock(watch: &Mutex<Watch>) -> MutexGuard<'_, Watch> {
    watch.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Watches the machine of `program` from now on.
    pub fn begin(
        program: &Program,
        setting: Setting,
        off: Option<&str>,
        plan: Plan,
        rng: Rng,
    ) -> Shared {
        let watch =
            Self { plan, off: off.map(str::to_owned), ..Self::quiet(program, setting, rng) };
        let watch = Arc::new(Mutex::new(watch));
        let machine = &program.machine;
        let (twin, who) = (Arc::clone(&watch), program.clone());
        machine.ear.listen(Box::new(move |doing| {
            if let Doing::Store(site, at, bytes) = doing {
                lock(&twin).killed(site.name(), at, bytes);
            }
            who.interfere();
        }));
        let (twin, who) = (Arc::clone(&watch), program.clone());
        machine.medium.on_barrier(Box::new(move |_, site, point| {
            lock(&twin).cut(site.name(), point);
            who.interfere();
        }));
        watch
    }

    /// Nothing is watched any more.
    pub fn end(program: &Program, watch: &Shared) -> Self {
        program.machine.ear.forget();
        program.machine.medium.clear_on_barrier();
        let mut watch = lock(watch);
        Self {
            seen: std::mem::take(&mut watch.seen),
            judged: HashSet::new(),
            deepest: watch.deepest,
            setting: watch.setting,
            program: program.clone(),
            off: None,
            plan: watch.plan,
            rng: watch.rng.clone(),
            protected: watch.protected,
            doubtful: watch.doubtful,
            ledger: watch.ledger,
            images: watch.images,
            nested: watch.nested,
            given_back: watch.given_back,
            wrong: watch.wrong.clone(),
        }
    }

    fn quiet(program: &Program, setting: Setting, rng: Rng) -> Self {
        Self {
            setting,
            program: program.clone(),
            off: None,
            plan: Plan { cuts: Cuts::FEW, kills: 256, nested: 0, most: u64::MAX },
            rng,
            protected: false,
            doubtful: false,
            ledger: Ledger::default(),
            images: 0,
            nested: 0,
            deepest: 0,
            seen: Vec::new(),
            judged: HashSet::new(),
            given_back: 0,
            wrong: None,
        }
    }

    fn is_over(&self) -> bool {
        self.wrong.is_some()
    }

    /// Enough was seen: of each barrier to come, one image more.
    fn is_sated(&self) -> bool {
        self.images >= self.plan.most
    }

    /// The process is killed while it stores.
    fn killed(&mut self, site: &str, at: u64, bytes: &[u8]) {
        if self.is_over() || self.is_sated() || self.rng.below(256) >= self.plan.kills {
            return;
        }
        let program = self.program.clone();
        let machine = &program.machine;
        let mut left = machine.medium.crash_point().newest().into_bytes();
        let part = partly(bytes, &mut self.rng);
        if let Some(place) = left.get_mut(at as usize..at as usize + part) {
            place.copy_from_slice(&bytes[..part]);
        }
        let model = program.state().model.clone();
        let marks = machine.data.marks();
        let off = self.off.clone();
        let off = off.as_deref();
        for bits in [true, false] {
            let kept = bits.then(|| marks.clone());
            let size = machine.size();
            let after = Machine::holding(left.clone(), &self.setting, size, kept, off);
            let crash =
                Crash { power: false, bits, at: site, believed: true, run: 1, depth: 0, off };
            self.look(&after, &model, crash);
        }
    }

    /// The power is cut just before a barrier takes effect.
    fn cut(&mut self, site: &str, point: &CrashPoint) {
        if self.is_over() || self.setting.kind == MediumKind::Shm {
            return;
        }
        let program = self.program.clone();
        let model = program.state().model.clone();
        let marks = program.machine.data.marks();
        let off = self.off.clone();
        let Cuts { thin, thick, thick_each } = self.plan.cuts;
        let look = if self.rng.below(thick_each.max(1)) == 0 { thick } else { thin };
        let promised = promised(&model, &marks, self.protected);
        let most = if self.is_sated() { 1 } else { usize::MAX };
        for image in look.images(point, &mut self.rng).take(most) {
            let bits = self.rng.below(2) == 0;
            let mut hasher = DefaultHasher::new();
            (image.fingerprint(), bits, promised).hash(&mut hasher);
            if self.is_over() || !self.judged.insert(hasher.finish()) {
                continue;
            }
            let after = power(image, &self.setting, &program.machine, bits, &marks, off.as_deref());
            let believed = self.setting.believed_after_power();
            let crash = Crash {
                power: true,
                bits,
                at: site,
                believed,
                run: 2,
                depth: 0,
                off: off.as_deref(),
            };
            self.look(&after, &model, crash);
        }
    }

    fn look(&mut self, machine: &Machine, model: &Model, crash: Crash<'_>) {
        if self.is_over() {
            return;
        }
        self.images += 1;
        self.seen.push(distinct(machine, self.setting, model, crash));
        let judged = self.judge(machine, model, crash);
        if let Err(violation) = judged {
            let what = if crash.power { "a power cut" } else { "a kill" };
            let bits = if crash.bits { "live" } else { "die" };
            let depth = ["", "in a recovery, ", "in a recovery from one in a recovery, "];
            let depth = depth[crash.depth.min(DEPTH) as usize];
            let place =
                format!("{:?}, after {what} {depth}at {}, bits {bits}", self.setting, crash.at);
            self.wrong.get_or_insert(violation.during(place));
        }
    }

    fn judge(&mut self, machine: &Machine, model: &Model, crash: Crash<'_>) -> Judged<()> {
        let options = self.setting.open(crash.run);
        let before = machine.all();
        let mut left = BTreeSet::new();
        let looking = OpenOptions { read_only: true, ..options };
        let (engine, opened) = match machine.open(looking) {
            Ok(both) => both,
            Err(_) if !self.protected => return self.afresh(machine),
            Err(error) => return Err(refused("open for looking", &error)),
        };
        self.verdicts(machine, &engine, &opened, model, crash, &mut left)?;
        let known = engine.events().last().map_or(0, |event| event.sequence);
        drop(engine);
        // Of recoveries that were cut off, one in eight as often: depth two is enough.
        let often = if crash.depth == 0 { self.plan.nested } else { self.plan.nested.div_ceil(8) };
        if crash.depth < DEPTH && self.rng.below(256) < often {
            self.nest(machine, model, crash);
        }
        let (engine, opened) = machine.open(options).map_err(|error| refused("open", &error))?;
        self.verdicts(machine, &engine, &opened, model, crash, &mut left)?;
        engine.scrub(Some(&AtRest)).map_err(|error| refused("scrub", &error))?;
        let none = Opened { interrupted: None, ..opened };
        self.compare(machine, &before, model)?;
        let done = engine.admit(0, u64::MAX, Writing::NotYet);
        done.map_err(|error| refused("admit", &error))?;
        engine.pass().map_err(|error| refused("pass", &error))?;
        let came_back = self.compare(machine, &before, model)?;
        self.journal(&engine, model, known, &came_back)?;
        machine.ear.forget();
        machine.medium.clear_on_barrier();
        self.verdicts(machine, &engine, &none, model, crash, &mut left)?;
        if engine.is_contested() {
            // Whoever said that a stranger writes has to say that it is over.
            engine.contest(false).map_err(|error| refused("the end of a contest", &error))?;
        }
        self.given_back += gives_back(machine, &engine, self.images)?;
        engine.close().map_err(|error| refused("close", &error))?;
        let (engine, opened) = machine.open(options).map_err(|error| refused("open", &error))?;
        self.verdicts(machine, &engine, &opened, model, crash, &mut left)?;
        self.compare(machine, &before, model).map(drop)
    }

    /// A side file that was not finished is made anew.
    fn afresh(&self, machine: &Machine) -> Judged<()> {
        let engine = machine.protect(&self.setting).map_err(|error| refused("protect", &error))?;
        let report = engine.verify_all().map_err(|error| refused("verify", &error))?;
        if report.is_clean() {
            return Ok(());
        }
        Err(Violation::new(Fault::Wrong, format!("protected anew, and {report:?}")))
    }

    fn verdicts(
        &mut self,
        machine: &Machine,
        engine: &Engine,
        opened: &Opened,
        model: &Model,
        crash: Crash<'_>,
        left: &mut BTreeSet<u64>,
    ) -> Judged<()> {
        for page in 0..model.count() {
            let known = model.page(page);
            let bytes = machine.page(page).unwrap_or_default();
            // A sector is what it was at some instant, in the middle of a store too.
            let stored = if crash.power { known.is_legitimate(&bytes) } else { bytes == known.now };
            let settled = !known.dirty && !known.vague && !known.is_damaged();
            let settled = settled && self.protected && crash.believed && !self.doubtful;
            let wrong = |what| Err(Violation::new(Fault::Wrong, format!("{}: {what}", name(page))));
            let false_report = |what: &str| {
                let story = format!("{}: {what}", name(page));
                Err(Violation::new(Fault::FalseReport, story))
            };
            let said = engine.verify(page).map_err(|error| refused("verify", &error))?.verdict;
            match said {
                PageVerdict::Good if !stored => {
                    self.ledger.missed += 1;
                    return wrong("I1: good was said of what no program stored".to_owned());
                }
                PageVerdict::Corrupt if stored => {
                    self.ledger.false_reports += 1;
                    return false_report("I3: corrupt was said of what the program stored");
                }
                PageVerdict::Corrupt if left.contains(&page) => {
                    self.ledger.false_reports += 1;
                    return false_report("I3: it was undecided, and is corrupt now");
                }
                PageVerdict::Undecided(why) if settled => {
                    return wrong(format!("it is covered, and undecided: {why}"));
                }
                PageVerdict::Undecided(Unsure::Uncovered) => {
                    if !stored && !known.dirty && opened.interrupted != Some(page) {
                        self.ledger.missed += 1;
                        return wrong("damage was taken for a store".to_owned());
                    }
                }
                PageVerdict::Undecided(why) => {
                    // Between taking and the note of what was taken nobody knows, but the record.
                    let bits = crash.bits && ![NARROW, UNKNOWN].contains(&crash.at);
                    let known = bits || self.setting.recorded;
                    let told = known && !crash.power && crash.depth == 0 && stored;
                    if told && self.protected {
                        return wrong(format!("its bits outlived, and it is undecided: {why}"));
                    }
                    self.ledger.undecided += 1;
                    left.insert(page);
                }
                PageVerdict::Good | PageVerdict::Corrupt => {}
            }
        }
        Ok(())
    }

    /// Nothing but what was damaged may have changed. Answers the pages that came back.
    fn compare(
        &mut self,
        machine: &Machine,
        before: &[Option<Vec<u8>>],
        model: &Model,
    ) -> Judged<BTreeSet<u64>> {
        let mut came_back = BTreeSet::new();
        for (page, before) in (0..).zip(before) {
            let (Some(before), Some(now)) = (before, machine.page(page)) else { continue };
            let known = model.page(page);
            let changed = before.iter().zip(&now).enumerate().filter(|(_, (a, b))| a != b);
            let wrong = changed.filter(|(at, (_, now))| !known.may_become(*at, **now)).count();
            if wrong > 0 {
                self.ledger.reverted += wrong as u64;
                let story = format!("{wrong} bytes of {} were taken back", name(page));
                return Err(Violation::new(Fault::Reverted, story));
            }
            if *before != now {
                came_back.insert(page);
            }
        }
        Ok(came_back)
    }

    /// The journal names what came back since event number `known`, and calls nothing wrong that
    /// was not.
    fn journal(
        &mut self,
        engine: &Engine,
        model: &Model,
        known: u64,
        came_back: &BTreeSet<u64>,
    ) -> Judged<()> {
        self.ledger.repaired += came_back.len() as u64;
        let events = events_as_told(engine.events());
        accused(&events, |page| is_innocent(model, page), &mut self.ledger)?;
        let of_now = events.iter().filter(|event| event.sequence > known);
        let told: BTreeSet<u64> = of_now.filter_map(repaired).collect();
        named(came_back.difference(&told).next().copied())
    }

    /// The recovery of an image is cut off as well, now and then.
    fn nest(&mut self, machine: &Machine, model: &Model, crash: Crash<'_>) {
        let marks = machine.data.marks();
        let point = machine.medium.crash_point();
        let size = machine.size();
        let again = Machine::after(point.newest(), &self.setting, size, Some(marks), crash.off);
        let found: Arc<Mutex<Kept>> = Arc::default();
        let (told, who, off) = (Arc::clone(&found), again.clone(), crash.off.map(str::to_owned));
        let (setting, mut rng) = (self.setting, Rng::new(self.rng.next_u64()));
        let mut dice = Rng::new(self.rng.next_u64());
        let kills = self.plan.kills;
        let (noted, other, elided) = (Arc::clone(&found), again.clone(), off.clone());
        again.ear.listen(Box::new(move |doing| {
            let Doing::Store(site, at, bytes) = doing else { return };
            if rng.below(256) >= kills {
                return;
            }
            let Some(place) = lock_kept(&told).draw(&mut rng) else { return };
            let mut left = who.medium.crash_point().newest().into_bytes();
            let part = partly(bytes, &mut rng);
            if let Some(place) = left.get_mut(at as usize..at as usize + part) {
                place.copy_from_slice(&bytes[..part]);
            }
            let bits = rng.below(2) == 0;
            let kept = bits.then(|| who.data.marks());
            let after = Machine::holding(left, &setting, size, kept, off.as_deref());
            lock_kept(&told).put(place, (after, site.name().to_owned(), false));
        }));
        again.medium.on_barrier(Box::new(move |_, site, point| {
            if setting.kind == MediumKind::Shm {
                return;
            }
            let Some(place) = lock_kept(&noted).draw(&mut dice) else { return };
            let image = point.sample(dice.next_u64(), dice.below(6));
            let bits = dice.below(2) == 0;
            let marks = other.data.marks();
            let after = power(image, &setting, &other, bits, &marks, elided.as_deref());
            lock_kept(&noted).put(place, (after, site.name().to_owned(), true));
        }));
        let run = || -> Option<()> {
            let (engine, _) = again.open(self.setting.open(crash.run)).ok()?;
            engine.scrub(Some(&AtRest)).ok()?;
            engine.admit(0, u64::MAX, Writing::NotYet).ok()?;
            engine.pass().ok()?;
            engine.close().ok()
        };
        // What fails here fails again where it is judged.
        let _ = run();
        again.ear.forget();
        again.medium.clear_on_barrier();
        let found = std::mem::take(&mut lock_kept(&found).all);
        for (machine, site, power) in found {
            self.nested += 1;
            self.deepest += u64::from(crash.depth > 0);
            let synced = self.setting.believed_after_power();
            let crash = Crash {
                power: power || crash.power,
                bits: !machine.data.marks().armed.is_empty(),
                at: &site,
                believed: crash.believed && (!power || synced),
                run: crash.run + u8::from(power),
                depth: crash.depth + 1,
                off: crash.off,
            };
            self.look(&machine, model, crash);
        }
    }
}

/// What is left if the process is killed or the power is cut right now, while no call is under way
/// and some have failed: of what they were to do nothing is known.
///
/// # Errors
/// The first thing that was wrong.
pub fn left(
    program: &Program,
    setting: Setting,
    protected: bool,
    seed: u64,
    ledger: &mut Ledger,
) -> Judged<()> {
    let mut watch = Watch::quiet(program, setting, Rng::new(seed));
    (watch.protected, watch.doubtful) = (protected, true);
    watch.killed(UNKNOWN, 0, &[]);
    watch.cut(UNKNOWN, &program.machine.medium.crash_point());
    ledger.missed += watch.ledger.missed;
    ledger.false_reports += watch.ledger.false_reports;
    ledger.reverted += watch.ledger.reverted;
    ledger.undecided += watch.ledger.undecided;
    watch.wrong.map_or(Ok(()), Err)
}

/// How deep recoveries are cut off: that of an image, and that of an image of it.
const DEPTH: u32 = 2;

/// What makes an image one of its own.
fn distinct(machine: &Machine, setting: Setting, model: &Model, crash: Crash<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    machine.medium.crash_point().fingerprint().hash(&mut hasher);
    let marks = machine.data.marks();
    (marks.armed, marks.dirty, marks.lost, marks.unseen).hash(&mut hasher);
    (setting.kind as u8, setting.durability as u8, setting.parity).hash(&mut hasher);
    (setting.recorded, setting.mode(), crash.power, model.size).hash(&mut hasher);
    known(model, &mut hasher);
    hasher.finish()
}

/// What is known of each page.
fn known(model: &Model, hasher: &mut DefaultHasher) {
    for page in &model.pages {
        (page.dirty, page.vague, page.is_damaged(), page.stores).hash(hasher);
    }
}

/// What an image of a power cut is held against, beside its bytes.
fn promised(model: &Model, marks: &Marks, protected: bool) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&marks.armed, &marks.dirty, &marks.lost, &marks.unseen).hash(&mut hasher);
    (protected, model.size).hash(&mut hasher);
    known(model, &mut hasher);
    hasher.finish()
}

/// Most images kept of one recovery.
const KEPT: usize = 6;

/// Images of one recovery: any of its instants with the same chance.
#[derive(Default)]
struct Kept {
    seen: u64,
    all: Vec<(Machine, String, bool)>,
}

impl Kept {
    /// Where the image of one more instant is to be kept, if it is.
    fn draw(&mut self, rng: &mut Rng) -> Option<usize> {
        self.seen += 1;
        let place = rng.below(self.seen) as usize;
        if self.all.len() < KEPT { Some(self.all.len()) } else { Some(place).filter(|p| *p < KEPT) }
    }

    fn put(&mut self, place: usize, one: (Machine, String, bool)) {
        match self.all.get_mut(place) {
            Some(kept) => *kept = one,
            None => self.all.push(one),
        }
    }
}

fn lock_kept(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How much of a store a kill may leave: whole words.
fn partly(bytes: &[u8], rng: &mut Rng) -> usize {
    let words = bytes.len() as u64 / 8;
    if words == 0 { 0 } else { (rng.below(words + 1) * 8) as usize }
}

fn power(
    image: Image,
    setting: &Setting,
    machine: &Machine,
    bits: bool,
    marks: &Marks,
    off: Option<&str>,
) -> Machine {
    let kept = bits.then(|| marks.clone());
    Machine::after(image, setting, machine.size(), kept, off)
}

#[cfg(test)]
mod tests {
    use holdfast_faultmem::{Config, FaultMedium};
    use holdfast_pmem::{Medium, Site};

    use super::*;

    /// An instant with so many words on their way.
    fn instant(words: u64) -> CrashPoint {
        let medium = FaultMedium::new(4096, MediumKind::Dax, &Config::default());
        for word in 0..words {
            medium.put(Site::new("test.put"), 8 * word, &[7; 8]).expect("a store");
        }
        medium.crash_point()
    }

    /// Of the images that are looked at, how many units each has of those that had not arrived.
    fn arrived(look: Look, words: u64) -> Vec<usize> {
        let images = look.images(&instant(words), &mut Rng::new(1));
        images.map(|image| image.picks().len()).collect()
    }

    #[test]
    fn a_barrier_that_is_looked_at_whole_has_every_subset_looked_at() {
        for look in [Cuts::ALL.thin, Cuts::ALL.thick] {
            assert_eq!(arrived(look, 12).len(), 1 << 12);
            let many = arrived(look, 40);
            let of = |units| many.iter().filter(|arrived| **arrived == units).count();
            assert!(of(0) == 1 && of(40) == 1, "{many:?}");
            assert!(of(1) >= 30 && of(39) >= 30, "one alone, or one alone missing: {many:?}");
            assert!(of(2) >= 25 && of(38) >= 25, "two: {many:?}");
        }
    }

    #[test]
    fn any_instant_of_a_recovery_is_kept_now_and_then() {
        let machine = || {
            let mut rng = Rng::new(1);
            Machine::new(&Setting::numbered(0), 20 * holdfast_pmem::PAGE, &mut rng, None)
        };
        let (mut rng, mut last) = (Rng::new(7), 0);
        for _ in 0..60 {
            let mut kept = Kept::default();
            for instant in 0..30 {
                let Some(place) = kept.draw(&mut rng) else { continue };
                kept.put(place, (machine(), instant.to_string(), true));
            }
            assert_eq!(kept.all.len(), KEPT);
            last += kept.all.iter().filter(|(_, site, _)| site == "29").count();
        }
        // One in five of sixty.
        assert!((4..=24).contains(&last), "{last}");
    }

    #[test]
    fn a_barrier_that_is_sampled_has_its_ends_and_some_others_looked_at() {
        for (look, most) in [(Cuts::FEW.thin, 10), (Cuts::MORE.thin, 40)] {
            for words in [3, 12, 40] {
                let some = arrived(look, words);
                let all = words as usize;
                assert!((4..=most).contains(&some.len()), "{words}: {some:?}");
                assert!(some.contains(&0) && some.contains(&all), "{words}: {some:?}");
                assert!(some.iter().any(|arrived| (1..all).contains(arrived)), "{some:?}");
            }
        }
    }
}
