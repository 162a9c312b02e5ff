//! Row `writers`: real threads store to a real mapping, tracked by the kernel or by a fault
//! handler, while pages under their hands are damaged, covered, scrubbed and repaired.
//!
//! In each round some stripes are *busy*: threads store to two pages of each. A page nobody stores
//! to in the round is covered all the time; damage there has to be found, and in a stripe that is
//! not busy be undone at once. What the threads have stored is there at the end of the round, but
//! for bytes that were damaged. Schedules are left to chance: a replay meets the same damage, not
//! the same instants.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_mapped::{AtRest, Force, Mended, Writers, Writing};
use holdfast_pmem::track::SourceKind;
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_redundancy::events::Event;
use holdfast_redundancy::{PageVerdict, Unsure};
use holdfast_workloads::Rng;

use crate::mapped::crowd::{Crowd, THREADS};
use crate::mapped::judge::{accused, named, refused};
use crate::mapped::ledger::Ledger;
use crate::mapped::model::repaired;
use crate::mapped::real::{PAGES, Real, begin};
use crate::mapped::told::events_as_told;
use crate::object::targets::unit_set_back;
use crate::object::wrong::{Lie, Variant, are_enough, lie, made_up, or_right, told};
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "writers",
    story: "threads store to pages that are damaged or set back, covered, scrubbed, repaired",
    cases: |tier| WRONG.len() as u64 + if matches!(tier, Tier::Ci) { 2 } else { 500 },
    run,
    finish: Ledger::finish,
    patience: Duration::from_secs(300),
    threads: 1,
};

/// Where shared memory is.
const SHARED: &str = "/dev/shm";
/// Rounds of a case, and faults of each.
const ROUNDS: u64 = 12;
const FAULTS: u64 = 250;
/// The same of a story with something wrong.
const FEW: (u64, u64) = (3, 60);
/// What must be convicted.
const WRONG: &[Variant] = &[
    lie(Lie::StaysBad, "a page is said to be repaired and is not", Fault::Wrong),
    lie(Lie::Neighbour, "a page that could be given back is given up", Fault::Wrong),
    lie(Lie::Elsewhere, "a covered page is called uncovered", Fault::Wrong),
    lie(Lie::Silent, "a scrub reports nothing", Fault::Wrong),
    lie(Lie::Accuses, "a scrub reports what nothing damaged", Fault::FalseReport),
    lie(Lie::OneOfTwo, "the journal does not tell of a repair", Fault::Unnoticed),
    lie(Lie::Again, "the journal names what nothing damaged in this round", Fault::FalseReport),
    lie(Lie::Reverts, "a repair takes stores back", Fault::Reverted),
];
const _: () = are_enough(WRONG);
/// Stripes that are stored to in a round.
const BUSY: u64 = 24;
/// Putting right what redundancy could not.
const CURE: Site = Site::new("campaign.put-right");

fn run(case: &Case) -> Tally {
    or_right(WRONG, case, |_, case| story(case, FEW), |case| story(case, (ROUNDS, FAULTS)))
}

/// So many rounds with so many faults.
fn story(case: &Case, extent: (u64, u64)) -> Tally {
    let mut tally = Tally::default();
    if !Path::new(SHARED).is_dir() {
        tally.lines.push(format!("case {} skipped: there is no {SHARED}", case.number));
        return tally;
    }
    let folder = tempfile::Builder::new().prefix("holdfast-campaign-").tempdir_in(SHARED);
    let folder = folder.map_err(|error| refused(SHARED, &error));
    let Some(folder) = tally.judge(folder) else { return tally };
    let kind = if case.number.is_multiple_of(2) {
        SourceKind::AsyncProtect
    } else {
        SourceKind::FirstStore
    };
    let mut rng = case.rng(1);
    let mut content = vec![0; (PAGES * PAGE) as usize];
    rng.fill(&mut content);
    let parity = 1 + (case.number / 2 % 2) as u32;
    let real = begin(folder.path(), kind, parity, &content);
    let Some(real) = tally.judge(real) else { return tally };
    let real = match real {
        Ok(real) => real,
        Err(error) => {
            tally.lines.push(format!("case {} skipped: {kind}: {error}", case.number));
            return tally;
        }
    };
    let mut ledger = Ledger::default();
    let crowd = Crowd::new(&content);
    let done = play((&real, &crowd), rng, (extent, parity), &mut ledger, &mut tally);
    tally.count = ledger.faults;
    ledger.note(&mut tally);
    tally.judge(done.map_err(|v| v.during(format!("{kind}, parity {parity}"))));
    tally
}

fn play(
    (real, crowd): (&Real, &Crowd),
    mut rng: Rng,
    ((rounds, faults), parity): ((u64, u64), u32),
    ledger: &mut Ledger,
    tally: &mut Tally,
) -> Judged<()> {
    let admitted = real.engine.admit(0, u64::MAX, Writing::NotYet);
    admitted.map_err(|error| refused("admit", &error))?;
    let passes = AtomicU64::new(0);
    let working = Working::default();
    let seeds: Vec<u64> = (0..=THREADS).map(|_| rng.next_u64()).collect();
    let done = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let rng = Rng::new(seeds[thread as usize]);
            scope.spawn(move || crowd.store(&real.data, thread, rng));
        }
        let updater = scope.spawn(|| update(real, crowd, &working, &passes));
        let mut done = Ok(());
        let mut past = Pages::new();
        for round in 0..rounds {
            let mut round_ = Round::new(real, crowd, &mut rng, ledger, (parity, past));
            done = round_.play(&working, faults).map_err(|v| v.during(format!("round {round}")));
            if done.is_err() {
                break;
            }
            past = round_.begun;
        }
        crowd.end();
        crowd.thaw();
        working.rest();
        let updated = updater.join().unwrap_or_else(|_| {
            Err(Violation::new(Fault::Panicked, "the thread that covers panicked"))
        });
        done.and(updated)
    });
    tally.add("lines stored meanwhile", crowd.stores.load(Ordering::SeqCst));
    tally.add("passes and scrubs meanwhile", passes.load(Ordering::SeqCst));
    done
}

/// Whether somebody covers and scrubs beside whoever damages and repairs.
#[derive(Debug, Default)]
struct Working {
    wanted: AtomicBool,
    turn: Mutex<()>,
}

impl Working {
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    /// Returns when nobody does any more: two that scrub share one place to go on from.
    fn rest(&self) {
        self.wanted.store(false, Ordering::SeqCst);
        drop(self.turn());
    }
}

/// Covers and scrubs all the time.
fn update(real: &Real, crowd: &Crowd, working: &Working, passes: &AtomicU64) -> Judged<()> {
    while !crowd.is_over() {
        {
            let _turn = working.turn();
            if working.wanted.load(Ordering::SeqCst) {
                real.engine.pass().map_err(|error| refused("pass", &error))?;
                let scrubbed = real.engine.scrub_step(Some(crowd));
                scrubbed.map_err(|error| refused("scrub", &error))?;
                passes.fetch_add(1, Ordering::Relaxed);
            }
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    Ok(())
}

/// One round.
struct Round<'a> {
    real: &'a Real,
    crowd: &'a Crowd,
    rng: &'a mut Rng,
    ledger: &'a mut Ledger,
    parity: u64,
    /// Stripes that are stored to, and the pages of them that are.
    busy: BTreeSet<u64>,
    hot: BTreeSet<u64>,
    /// Bytes put where they do not belong, by page.
    harm: BTreeMap<u64, Vec<(usize, Vec<u8>)>>,
    /// Pages that were damaged, mended since or not.
    ever: BTreeSet<u64>,
    /// What pages were before the last round, and those that are stored to before this one.
    past: Pages,
    begun: Pages,
    /// The newest event of the journal before this round.
    known: u64,
}

/// The number of the newest event.
fn newest(events: &[Event]) -> u64 {
    events.last().map_or(0, |event| event.sequence)
}

/// Pages by number.
type Pages = BTreeMap<u64, Vec<u8>>;

impl<'a> Round<'a> {
    fn new(
        real: &'a Real,
        crowd: &'a Crowd,
        rng: &'a mut Rng,
        ledger: &'a mut Ledger,
        (parity, past): (u32, Pages),
    ) -> Self {
        let busy: BTreeSet<u64> = (0..BUSY).map(|_| rng.below(PAGES / 4)).collect();
        let hot = busy.iter().flat_map(|stripe| {
            let first = rng.below(4);
            [first, (first + 1) % 4].map(|row| stripe * 4 + row)
        });
        let hot: BTreeSet<u64> = hot.collect();
        let begun = hot.iter().map(|page| (*page, crowd.page(*page))).collect();
        let (parity, harm) = (parity.into(), BTreeMap::new());
        let known = newest(&real.engine.events());
        Self {
            real,
            crowd,
            rng,
            ledger,
            parity,
            busy,
            hot,
            harm,
            ever: BTreeSet::new(),
            past,
            begun,
            known,
        }
    }

    fn play(&mut self, working: &Working, faults: u64) -> Judged<()> {
        self.crowd.turn_to(self.hot.iter().copied().collect());
        self.crowd.thaw();
        working.begin();
        let mut done = Ok(());
        for _ in 0..faults {
            done = self.fault();
            if done.is_err() {
                break;
            }
        }
        // The longest stray write comes last: nothing is left to repair from.
        if done.is_ok() && self.rng.below(3) == 0 {
            done = self.overrun();
        }
        working.rest();
        self.crowd.turn_to(Vec::new());
        // Whoever repairs may still stop and start them; they have nowhere to store.
        self.crowd.freeze();
        done?;
        self.judge()
    }

    fn hurt(&mut self, page: u64) -> Judged<()> {
        let now = self.crowd.page(page);
        let (at, mut bytes) = self.harmful(page, &now);
        if bytes[..] == now[at as usize..][..bytes.len()] {
            bytes[0] ^= 1;
        }
        self.harm.entry(page).or_default().push((at as usize, bytes.clone()));
        self.ever.insert(page);
        self.ledger.faults += 1;
        self.real.damage(page * PAGE + at, &bytes)
    }

    /// Bytes that do not belong to a place of a page: what it held before, what another page holds
    /// there, one bit, or any.
    fn harmful(&mut self, page: u64, now: &[u8]) -> (u64, Vec<u8>) {
        let at = self.rng.below(PAGE);
        let most = [1, 8, 64, PAGE][self.rng.below(4) as usize];
        let len = (1 + self.rng.below(most)).min(PAGE - at) as usize;
        let from = at as usize;
        let kind = self.rng.below(8);
        if let Some(past) = self.past.get(&page).filter(|_| kind < 4) {
            let unit = unit_set_back(self.rng);
            let from = from / unit * unit;
            return (from as u64, past[from..from + unit].to_vec());
        }
        let mut bytes = now[from..from + len].to_vec();
        match kind {
            4 => bytes[0] ^= 1 << self.rng.below(8),
            5 => {
                let other = self.crowd.page(self.rng.below(PAGES));
                bytes.copy_from_slice(&other[from..from + len]);
            }
            _ => self.rng.fill(&mut bytes),
        }
        (at, bytes)
    }

    /// One fault, and what is done about it.
    fn fault(&mut self) -> Judged<()> {
        let busy: Vec<u64> = self.busy.iter().copied().collect();
        let page = match self.rng.below(8) {
            // Under the hands of those who store, or next to them.
            0..4 => self.rng.pick(&busy).map_or(0, |stripe| stripe * 4) + self.rng.below(4),
            // Where it may be as it once was.
            4 if !self.past.is_empty() => {
                let known: Vec<u64> = self.past.keys().copied().collect();
                self.rng.pick(&known).copied().unwrap_or_default()
            }
            _ => self.rng.below(PAGES),
        };
        let stripe = page / 4;
        let alone = (stripe * 4..stripe * 4 + 4).all(|page| !self.harm.contains_key(&page));
        self.hurt(page)?;
        let quiet = !self.hot.contains(&page);
        self.ledger.covered += u64::from(quiet);
        let known = newest(&self.real.engine.events());
        let mended = self.real.engine.repair(page, self.crowd, Force::No);
        let mended = self.as_told(page, mended.map_err(|error| refused("repair", &error))?)?;
        if mended == Mended::Repaired {
            self.is_told(page, known)?;
        }
        self.ledger.repaired += u64::from(mended == Mended::Repaired);
        let wrong = |what: String| {
            let place = format!("page {page}, quiet {quiet}, busy {}", self.busy.contains(&stripe));
            Err(Violation::new(Fault::Wrong, format!("{place}: {what}")))
        };
        match mended {
            Mended::Undecided(why) if quiet => {
                self.ledger.undecided += 1;
                return wrong(format!("a covered page is undecided: {why}"));
            }
            Mended::Undecided(why) if why.is_doubt() => {
                // A store in the moment of the repair.
                self.ledger.undecided += 1;
            }
            _ => {}
        }
        if quiet {
            let right = self.real.page(page)? == self.crowd.page(page);
            match mended {
                Mended::Good | Mended::Repaired if !right => {
                    self.ledger.missed += 1;
                    return wrong(format!("it is damaged, and {mended:?} was said"));
                }
                Mended::Lost if alone && !self.busy.contains(&stripe) => {
                    return wrong("it could be given back, and was not".to_owned());
                }
                _ if right => drop(self.harm.remove(&page)),
                _ => {}
            }
        }
        if self.rng.below(8) == 0 {
            return self.look();
        }
        Ok(())
    }

    /// The journal tells of the repair of a page, after event number `known`.
    fn is_told(&self, page: u64, known: u64) -> Judged<()> {
        let events = events_as_told(self.real.engine.events());
        let of_now = events.iter().filter(|event| event.sequence > known);
        let told = of_now.filter_map(repaired).any(|told| told == page);
        named((!told).then_some(page))
    }

    /// What a repair came to, or a lie about it.
    fn as_told(&self, page: u64, mended: Mended) -> Judged<Mended> {
        if told(Lie::StaysBad) && mended == Mended::Repaired {
            self.real.damage(page * PAGE, &[!self.crowd.page(page)[0]])?;
        }
        Ok(match mended {
            Mended::Repaired if told(Lie::Neighbour) => Mended::Lost,
            Mended::Repaired if told(Lie::Elsewhere) => Mended::Undecided(Unsure::Uncovered),
            mended => mended,
        })
    }

    /// What a scrub found, or a lie about it.
    fn found_as_told(&self, mut found: BTreeSet<u64>) -> Judged<BTreeSet<u64>> {
        let sound = (0..PAGES).find(|page| !self.harm.contains_key(page));
        if told(Lie::Silent) {
            found.clear();
        }
        if let Some(sound) = sound {
            if told(Lie::Accuses) {
                found.insert(sound);
            }
            if told(Lie::Reverts) {
                self.real.damage(sound * PAGE, &[!self.crowd.page(sound)[0]])?;
            }
        }
        Ok(found)
    }

    /// A look at a page that nobody has damaged.
    fn look(&mut self) -> Judged<()> {
        let hot: Vec<u64> = self.hot.iter().copied().collect();
        let Some(page) = self.rng.pick(&hot).copied() else { return Ok(()) };
        if self.harm.contains_key(&page) {
            return Ok(());
        }
        let said = self.real.engine.verify(page).map_err(|error| refused("verify", &error))?;
        if said.verdict == PageVerdict::Corrupt {
            self.ledger.false_reports += 1;
            let story = format!("page {page} is called corrupt while it is stored to");
            return Err(Violation::new(Fault::FalseReport, story));
        }
        Ok(())
    }

    /// A stray write of up to 2 MiB.
    fn overrun(&mut self) -> Judged<()> {
        let from = self.rng.below(PAGES);
        let pages = (1 + self.rng.below(512)).min(PAGES - from);
        self.ledger.faults += 1;
        for page in from..from + pages {
            let mut bytes = vec![0; PAGE as usize];
            self.rng.fill(&mut bytes);
            self.real.damage(page * PAGE, &bytes)?;
            self.ledger.covered += u64::from(!self.hot.contains(&page));
            self.harm.entry(page).or_default().push((0, bytes));
            self.ever.insert(page);
        }
        Ok(())
    }

    /// Nobody stores any more: everything is looked at.
    fn judge(&mut self) -> Judged<()> {
        let engine = &self.real.engine;
        engine.pass().map_err(|error| refused("pass", &error))?;
        let done = engine.scrub(Some(&AtRest)).map_err(|error| refused("scrub", &error))?;
        self.ledger.repaired += done.repaired;
        let found = self.found_as_told(done.report.corrupt.iter().copied().collect())?;
        let wrong = |what: String| Err(Violation::new(Fault::Wrong, what));
        if let Some(page) = found.iter().find(|page| !self.harm.contains_key(page)) {
            self.ledger.false_reports += 1;
            let story = format!("page {page} is called corrupt, and nobody damaged it");
            return Err(Violation::new(Fault::FalseReport, story));
        }
        let events = events_as_told(engine.events());
        let mut of_now: Vec<Event> =
            events.into_iter().filter(|event| event.sequence > self.known).collect();
        if told(Lie::Again) {
            let sound = (0..PAGES).find(|page| !self.ever.contains(page));
            of_now.extend(sound.map(|page| made_up((page * PAGE, PAGE))));
        }
        accused(&of_now, |page| !self.ever.contains(&page), self.ledger)?;
        if let Some((page, why)) = done.report.undecided.first() {
            self.ledger.undecided += done.report.undecided.len() as u64;
            return wrong(format!("page {page} is in doubt for no reason: {why}"));
        }
        let mut lost = Vec::new();
        for page in 0..PAGES {
            let (now, right) = (self.real.page(page)?, self.crowd.page(page));
            if now == right {
                continue;
            }
            let harm = self.harm.get(&page).map_or(&[][..], Vec::as_slice);
            let harmed = |at: usize| {
                harm.iter().any(|(from, bytes)| {
                    at.checked_sub(*from).and_then(|i| bytes.get(i)) == Some(&now[at])
                })
            };
            let differs = |at: &usize| now[*at] != right[*at];
            let reverted = (0..now.len()).filter(|at| differs(at) && !harmed(*at)).count() as u64;
            if reverted > 0 {
                self.ledger.reverted += reverted;
                let story = format!("{reverted} bytes of page {page} were taken back");
                return Err(Violation::new(Fault::Reverted, story));
            }
            if self.hot.contains(&page) {
                // It became part of the page, or the page could not be repaired.
                self.ledger.absorbed += u64::from(!found.contains(&page));
            } else if !found.contains(&page) {
                self.ledger.missed += 1;
                return wrong(format!("page {page} is damaged and covered, and was not found"));
            }
            self.ledger.lost += u64::from(found.contains(&page));
            lost.push((page, right));
        }
        self.start_anew(lost)
    }

    /// What is left of the damage is put right, by stores.
    fn start_anew(&mut self, lost: Vec<(u64, Vec<u8>)>) -> Judged<()> {
        let engine = &self.real.engine;
        for (page, right) in lost {
            let put = self.real.data.put(CURE, page * PAGE, &right);
            put.map_err(|error| refused("putting right", &error))?;
        }
        engine.pass().map_err(|error| refused("pass", &error))?;
        // Put off beside damage that was stored over since.
        engine.pass().map_err(|error| refused("pass", &error))?;
        let report = engine.verify_all().map_err(|error| refused("verify", &error))?;
        let coverage = engine.coverage().map_err(|error| refused("coverage", &error))?;
        let whole = coverage.without_sum + coverage.without_parity == 0;
        if !report.is_clean() || !whole {
            let story = format!("all was put right with parity {}: {report:?}", self.parity);
            return Err(Violation::new(Fault::Exposed, format!("{story}, {coverage:?}")));
        }
        Ok(())
    }
}
