//! Row `sigkill`: a real program under a real guard. The program, its supervisor, or both are
//! killed at any instant, with pages of the file damaged while it was at rest.
//!
//! The log of the program tells what every word of the file must be; the last entry may not have
//! been done. After a kill of the program the supervisor covers what it left: nothing may be in
//! doubt. After a kill of the supervisor what differs is undecided. Never is anything that the
//! program stored called corrupt, or taken back; and damage is never called good. The journal
//! names what came back, and nothing that was not damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{FileTimes, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use holdfast::protect::{ProtectOptions, ProtectedFile};
use holdfast_guard::side_of;
use holdfast_pmem::{Alone, ForeignFile, PAGE};
use holdfast_workloads::Rng;
use rustix::process::{Pid, Signal, kill_process};

use crate::mapped::judge::{accused, named, refused};
use crate::mapped::ledger::Ledger;
use crate::mapped::model::begun;
use crate::mapped::ward::{ENTRY, Orders, Report, WORD, beside, is_left_alone, preload};
use crate::object::victim::was_killed;
use crate::object::wrong::{Lie, Variant, are_enough, is_on_purpose, lie, made_up, or_right, told};
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "sigkill",
    story: "program, supervisor or both killed at any instant under the real guard",
    cases: |tier| WRONG.len() as u64 + if matches!(tier, Tier::Ci) { 6 } else { 300 },
    run,
    finish: Ledger::finish,
    patience: Duration::from_secs(1800),
    threads: 1,
};

/// Kills of a case.
const KILLS: u64 = 6;
/// Pages of the file.
const PAGES: u64 = 96;
/// Where shared memory is.
const SHARED: &str = "/dev/shm";
/// Longest time to wait for a process.
const PATIENCE: Duration = Duration::from_secs(300);
/// Bytes of a page that rot changes.
const ROT: std::ops::Range<usize> = 800..840;

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whom {
    Program,
    Supervisor,
    Both,
}

/// What the judge must convict.
const WRONG: &[Variant] = &[
    lie(Lie::Accuses, "sound pages are called corrupt", Fault::FalseReport),
    lie(Lie::Elsewhere, "the journal names a sound page", Fault::FalseReport),
    lie(Lie::Neighbour, "a page is in doubt for no reason", Fault::Wrong),
    lie(Lie::Claims, "more pages are good than there are", Fault::Wrong),
    lie(Lie::Reverts, "what the program stored is taken back", Fault::Reverted),
    lie(Lie::Forgets, "the file ends before its last page", Fault::Wrong),
    lie(Lie::Dies, "the program ends before it is killed", Fault::Panicked),
    lie(Lie::Panics, "the program that nobody kills fails", Fault::Panicked),
];
const _: () = are_enough(WRONG);
/// Kills of a story in which something is wrong.
const FEW: u64 = 3;

fn run(case: &Case) -> Tally {
    // On a file system, where nothing is in doubt after a kill of the program alone.
    let brief = |_: &Variant, case: &Case| kills(&Case { number: 2 * case.number, ..*case }, FEW);
    or_right(WRONG, case, brief, |case| kills(case, KILLS))
}

/// So many kills of one file.
fn kills(case: &Case, kills: u64) -> Tally {
    let mut tally = Tally::default();
    // In memory every other time: there, stores leave no date, and damage at rest is in doubt.
    let shared = case.number % 2 == 1 && Path::new(SHARED).is_dir();
    let folder = if shared { PathBuf::from(SHARED) } else { std::env::temp_dir() };
    let temporary = tempfile::Builder::new().prefix("holdfast-campaign-").tempdir_in(&folder);
    let done = temporary.map_err(|error| refused("a folder", &error)).and_then(|temporary| {
        let path = temporary.path().join("file.guarded");
        let mut ward = Ward::new(path, case.rng(1))?;
        let told = ward.story(kills, &mut tally);
        ward.ledger.note(&mut tally);
        told.map_err(|violation| {
            if is_on_purpose() {
                return violation;
            }
            // No replay hits the same instant: what is left is kept to be looked at.
            violation.during(temporary.keep().display())
        })
    });
    tally.judge(done);
    tally
}

/// A guarded file, and what it must hold.
struct Ward {
    path: PathBuf,
    rng: Rng,
    words: Vec<u64>,
    /// Pages that were damaged, and what they hold.
    rotten: BTreeMap<u64, Vec<u8>>,
    /// Pages that were ever damaged since the file was last protected anew.
    ever: BTreeSet<u64>,
    /// The newest event of the journal when it was last looked at.
    known: u64,
    ledger: Ledger,
    /// A file that was closed clean and has its date still was not stored to.
    dated: bool,
}

impl Ward {
    fn new(path: PathBuf, mut rng: Rng) -> Judged<Self> {
        preload().map_err(|error| Violation::new(Fault::Refused, error))?;
        let words: Vec<u64> = (0..PAGES * PAGE / WORD).map(|_| rng.next_u64()).collect();
        let ledger = Ledger::default();
        let (rotten, ever) = (BTreeMap::new(), BTreeSet::new());
        let mut this = Self { path, rng, words, rotten, ever, known: 0, ledger, dated: false };
        this.write()?;
        let file = std::fs::File::open(&this.path).map_err(|error| refused("the file", &error))?;
        this.dated = ForeignFile::new(file.into()).dates_stores();
        Ok(this)
    }

    fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn write(&self) -> Judged<()> {
        std::fs::write(&self.path, self.bytes()).map_err(|error| refused("the file", &error))
    }

    fn story(&mut self, kills: u64, tally: &mut Tally) -> Judged<()> {
        self.quiet(tally)?;
        for kill in 0..kills {
            let whom = match self.rng.below(3) {
                0 => Whom::Program,
                1 => Whom::Supervisor,
                _ => Whom::Both,
            };
            let told = |v: Violation| v.during(format!("kill {kill}, {whom:?}"));
            self.rot().map_err(told)?;
            self.kill(whom, tally).map_err(told)?;
        }
        Ok(())
    }

    /// Damages pages of a file that was closed clean; its time of change stays.
    fn rot(&mut self) -> Judged<()> {
        let open = OpenOptions::new().read(true).write(true).open(&self.path);
        let file = open.map_err(|error| refused("the file", &error))?;
        let found = file.metadata().and_then(|found| found.modified());
        let time = found.map_err(|error| refused("the file's time", &error))?;
        for _ in 0..self.rng.below(4) {
            let page = self.rng.below(PAGES / 4) * 4 + self.rng.below(4);
            if self.rotten.keys().any(|other| other / 4 == page / 4) {
                continue;
            }
            let whole = &self.bytes()[(page * PAGE) as usize..][..PAGE as usize];
            let mut rotten = whole.to_vec();
            // Other bytes each time: what was left undecided must not come right by itself.
            rotten[ROT].iter_mut().for_each(|byte| *byte ^= 1 + self.rng.below(255) as u8);
            let at = page * PAGE + ROT.start as u64;
            let done = file.write_all_at(&rotten[ROT], at);
            done.map_err(|error| refused("damage", &error))?;
            self.rotten.insert(page, rotten);
            self.ever.insert(page);
            self.ledger.faults += 1;
            self.ledger.covered += 1;
        }
        let times = FileTimes::new().set_modified(time);
        file.set_times(times).map_err(|error| refused("the file's time", &error))
    }

    fn orders(&mut self, stores: bool) -> Orders {
        let seed = self.rng.next_u64();
        let dies = told(if stores { Lie::Dies } else { Lie::Panics });
        Orders { program: false, stores, path: self.path.clone(), seed, dies }
    }

    fn spawn(&mut self, stores: bool) -> Judged<Child> {
        for what in ["log", "pid", "report", "failed"] {
            // Most of them are not there.
            let _ = std::fs::remove_file(beside(&self.path, what));
        }
        let orders = serde_json::to_string(&self.orders(stores));
        let orders = orders.map_err(|error| refused("orders", &error))?;
        let me = std::env::current_exe().map_err(|error| refused("this program", &error))?;
        Command::new(me)
            .args(["mapped", "--victim", &orders])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| refused("starting a supervisor", &error))
    }

    /// A guarded run in which nobody is killed and nothing is stored; answers what was said.
    fn quiet(&mut self, tally: &mut Tally) -> Judged<Report> {
        let mut child = self.spawn(false)?;
        let report = self.report(&mut child)?;
        tally.add("guarded runs", 1);
        if report.code != Some(0) {
            let story = format!("the program failed, and nobody killed it: {report:?}");
            return Err(Violation::new(Fault::Panicked, story));
        }
        Ok(report)
    }

    /// Waits for a supervisor to end.
    fn report(&self, child: &mut Child) -> Judged<Report> {
        let begun = Instant::now();
        let ended = loop {
            if let Some(ended) = child.try_wait().map_err(|error| refused("waiting", &error))? {
                break ended;
            }
            if begun.elapsed() > PATIENCE {
                let _ = child.kill().and_then(|()| child.wait());
                let story = format!("the supervisor did not end in {PATIENCE:?}");
                return Err(Violation::new(Fault::Hung, story));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        if !ended.success() {
            return Err(self.failed(ended));
        }
        let report = std::fs::read(beside(&self.path, "report")).map_err(|_| self.failed(ended))?;
        let report = serde_json::from_slice(&report);
        Ok(as_told(report.map_err(|error| refused("the report", &error))?))
    }

    /// What a supervisor that has ended says of why it failed.
    fn failed(&self, ended: ExitStatus) -> Violation {
        let why = std::fs::read_to_string(beside(&self.path, "failed"));
        let why = why.unwrap_or_else(|_| "it said nothing".to_owned());
        Violation::new(Fault::Refused, format!("the supervisor failed: {why}; {ended}"))
    }

    fn kill(&mut self, whom: Whom, tally: &mut Tally) -> Judged<()> {
        let mut child = self.spawn(true)?;
        let victim = self.wait_for_program(&mut child)?;
        let pause = self.rng.below(60_000);
        std::thread::sleep(Duration::from_micros(pause));
        let slay = |pid: Pid| {
            // One that is gone already needs no killing.
            let _ = kill_process(pid, Signal::KILL);
        };
        let mut slain = false;
        if whom != Whom::Program {
            if whom == Whom::Both && self.rng.below(2) == 0 {
                slay(victim);
                slain = true;
            }
            let killed = child.kill().and_then(|()| child.wait());
            let ended = killed.map_err(|error| refused("kill", &error))?;
            // One whose program is gone may end before that.
            if !slain {
                was_killed(ended)?;
            }
            // The program goes on for a while, or not.
            let alone = if whom == Whom::Both { 200 } else { 20_000 };
            std::thread::sleep(Duration::from_micros(self.rng.below(alone)));
            // Nobody is told how it ends, now that its supervisor is gone.
            if !slain && !is_alive(victim) {
                let why = std::fs::read_to_string(beside(&self.path, "failed"));
                let why = why.unwrap_or_else(|_| "it said nothing".to_owned());
                let story = format!("the program ended by itself: {why}");
                return Err(Violation::new(Fault::Panicked, story));
            }
        }
        slay(victim);
        tally.add(format!("killed: {whom:?}").to_lowercase(), 1);
        tally.count += 1;
        if whom == Whom::Program {
            let report = self.report(&mut child)?;
            if report.signal != Some(Signal::KILL.as_raw()) {
                let story = format!("the program ended by itself: {report:?}");
                return Err(Violation::new(Fault::Panicked, story));
            }
            self.replay(victim)?;
            return self.judge(&report, true);
        }
        self.replay(victim)?;
        self.left_alone()?;
        let report = self.quiet(tally)?;
        self.judge(&report, false)?;
        // What is in doubt stays so: protected anew.
        let gone = std::fs::remove_file(side_of(&self.path));
        gone.map_err(|error| refused("the side file", &error))?;
        self.rotten.clear();
        self.ever.clear();
        self.known = 0;
        self.write()?;
        self.quiet(tally).map(drop)
    }

    /// Waits until the program stores; answers its process.
    fn wait_for_program(&self, child: &mut Child) -> Judged<Pid> {
        let begun = Instant::now();
        loop {
            // Asked first: what it left is all there by then, and nobody else begins.
            let ended = child.try_wait().map_err(|error| refused("the program", &error))?;
            let pid = std::fs::read_to_string(beside(&self.path, "pid")).ok();
            let pid = pid.and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
            let log = std::fs::metadata(beside(&self.path, "log")).map_or(0, |log| log.len());
            match (pid, ended) {
                (Some(pid), _) if log > ENTRY as u64 => return Ok(pid),
                (_, Some(ended)) => return Err(self.failed(ended)),
                _ if begun.elapsed() < PATIENCE => {}
                _ => {
                    let _ = child.kill().and_then(|()| child.wait());
                    let story = format!("the program did not begin in {PATIENCE:?}");
                    return Err(Violation::new(Fault::Hung, story));
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until nobody has the file any more: what a dying process lets go of while the next
    /// supervisor listens already is, to it, a stranger's write.
    fn left_alone(&self) -> Judged<()> {
        let file = std::fs::File::open(&self.path).map_err(|error| refused("the file", &error))?;
        let file = ForeignFile::new(file.into());
        let begun = Instant::now();
        while matches!(file.alone(), Alone::No) {
            if begun.elapsed() > PATIENCE {
                let story = format!("somebody had the file for {PATIENCE:?} after the kill");
                return Err(Violation::new(Fault::Hung, story));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Takes down what the program has stored.
    fn replay(&mut self, victim: Pid) -> Judged<()> {
        let begun = Instant::now();
        // Whoever adopted it may not have buried it yet, but it stores no more once it is dead.
        while is_alive(victim) && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        let log = std::fs::read(beside(&self.path, "log"));
        let log = log.map_err(|error| refused("the log", &error))?;
        let seen = self.seen()?;
        let (entries, _) = log.as_chunks::<ENTRY>();
        for (number, entry) in entries.iter().enumerate() {
            let (words, _) = entry.as_chunks::<8>();
            let (word, value) = (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]));
            let at = (word * WORD) as usize;
            let found = seen.get(at..at + 8).unwrap_or_default();
            let last = number + 1 == entries.len();
            let Some(slot) = self.words.get_mut(word as usize) else { continue };
            if last && *found == slot.to_le_bytes()[..] {
                continue;
            }
            *slot = value;
            if let Some(rotten) = self.rotten.get_mut(&(word * WORD / PAGE)) {
                rotten[at % PAGE as usize..][..8].copy_from_slice(&value.to_le_bytes());
            }
        }
        self.compare(&seen)
    }

    fn seen(&self) -> Judged<Vec<u8>> {
        let mut seen = std::fs::read(&self.path).map_err(|error| refused("the file", &error))?;
        if told(Lie::Forgets) {
            seen.truncate(seen.len().saturating_sub(PAGE as usize));
        }
        if told(Lie::Reverts)
            && let Some(byte) = seen.first_mut()
        {
            *byte ^= 1;
        }
        Ok(seen)
    }

    /// Every byte is what the program stored, or what rot made of it.
    fn compare(&mut self, seen: &[u8]) -> Judged<()> {
        let right = self.bytes();
        for (at, (a, b)) in seen.iter().zip(&right).enumerate() {
            let (page, inside) = (at as u64 / PAGE, at % PAGE as usize);
            let rotten = self.rotten.get(&page).is_some_and(|rotten| rotten[inside] == *a);
            if a != b && !rotten {
                self.ledger.reverted += 1;
                let story = format!("byte {inside} of page {page} was taken back");
                return Err(Violation::new(Fault::Reverted, story));
            }
        }
        if seen.len() == right.len() {
            return Ok(());
        }
        Err(Violation::new(Fault::Wrong, format!("the file has {} bytes", seen.len())))
    }

    fn judge(&mut self, report: &Report, known: bool) -> Judged<()> {
        let wrong = |what: String| Err(Violation::new(Fault::Wrong, format!("{what}: {report:?}")));
        let seen = self.seen()?;
        self.compare(&seen)?;
        let right = self.bytes();
        let differs = |page: &u64| {
            let range = (page * PAGE) as usize..((page + 1) * PAGE) as usize;
            seen[range.clone()] != right[range]
        };
        if report.corrupt > self.rotten.len() as u64 {
            self.ledger.false_reports += report.corrupt - self.rotten.len() as u64;
            let story = format!("more is called corrupt than was damaged: {report:?}");
            return Err(Violation::new(Fault::FalseReport, story));
        }
        if !report.told.is_empty() || !report.closed {
            return wrong("the guard was not content".to_owned());
        }
        if known && self.dated && !report.doubtful.is_empty() {
            return wrong("nobody but the program was killed, and pages are in doubt".to_owned());
        }
        self.ledger.undecided += report.doubtful.len() as u64;
        self.ledger.repaired += report.repaired;
        self.ledger.lost += report.lost;
        let left: Vec<u64> = self.rotten.keys().copied().filter(differs).collect();
        // Found, or stored to: then the damage is part of the page.
        let good = PAGES - report.lost - report.doubtful.len() as u64;
        for page in &left {
            let doubtful = report.doubtful.contains(page);
            if !is_left_alone(*page) {
                self.ledger.absorbed += u64::from(!doubtful && report.lost == 0);
            } else if known && self.dated || !doubtful {
                self.ledger.missed += 1;
                return wrong(format!("page {page} is damaged, covered, and left so"));
            }
        }
        if report.pages != PAGES || report.good > good {
            return wrong(format!("of {PAGES} pages at most {good} are good"));
        }
        self.journal(&left)?;
        // What became part of a page is what it holds from now on.
        for (word, bytes) in self.words.iter_mut().zip(seen.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        self.rotten.clear();
        Ok(())
    }
}

impl Ward {
    /// The journal calls nothing wrong that nothing ever damaged, and tells of what came back to
    /// pages that nobody stores to; `left` did not.
    fn journal(&mut self, left: &[u64]) -> Judged<()> {
        let file = ProtectedFile::look_beside(&self.path, &ProtectOptions::new());
        let mut events = file.map_err(|error| refused("a look at the file", &error))?.events();
        let known = std::mem::replace(&mut self.known, events.last().map_or(0, |e| e.sequence));
        if told(Lie::Elsewhere) {
            let sound = (0..PAGES).find(|page| !self.ever.contains(page));
            events.extend(sound.map(|page| made_up((page * PAGE, PAGE))));
        }
        accused(&events, |page| !self.ever.contains(&page), &mut self.ledger)?;
        let of_now = events.iter().filter(|event| event.sequence > known);
        let told: BTreeSet<u64> = of_now.filter_map(begun).collect();
        let still = |page: &&u64| is_left_alone(**page) && !left.contains(*page);
        named(self.rotten.keys().filter(still).find(|page| !told.contains(*page)).copied())
    }
}

/// What a supervisor said, or a lie about it.
fn as_told(mut report: Report) -> Report {
    if told(Lie::Accuses) {
        report.corrupt += PAGES;
    }
    if told(Lie::Neighbour) {
        report.doubtful.push(0);
    }
    if told(Lie::Claims) {
        report.good = PAGES + 1;
    }
    report
}

/// Whether a process runs: one that is dead and not buried does not.
fn is_alive(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    let state = stat.ok().and_then(|stat| {
        let rest = stat.rsplit_once(')')?.1;
        rest.trim_start().chars().next()
    });
    state.is_some_and(|state| state != 'Z' && state != 'X')
}
