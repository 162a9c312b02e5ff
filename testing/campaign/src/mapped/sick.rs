//! Mapped files on a machine whose own memory or device fails (`cargo xtask lab`), under a program
//! that loads and stores by address, and at rest.
//!
//! A page that fails is given back right, or the program is told when it loads it and the engine
//! says so of the page. What else is in the file is right, and called good.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast::protect::{
    PageVerdict, ProtectOptions, ProtectedFile, ProtectedMap, Repaired, Tracking, Unsure, Verified,
};
use holdfast_pmem::PAGE;
use holdfast_pmem::inject::device::lose_sectors;
use holdfast_workloads::Rng;

use super::hands::{Hands, MOST};
use super::judge::refused;
use super::ward::WORD;
use crate::object::rows::media::device::Orders;
use crate::object::sick::{How, fail_elsewhere};
use crate::tally::{Fault, Judged, Tally, Violation};

/// Pages of the files, in stripes of four and one of parity.
const PAGES: u64 = MOST;
const STRIPE: u64 = 4;
/// Words of a page.
const WORDS: u64 = PAGE / WORD;
/// Threads that store, each to stripes of its own: of each four one.
const WORKERS: u64 = 2;
/// Pages that fail while nobody stores to them, in a life.
const CALM: u64 = 5;
/// How long a pass must have ended before a failure for the engine to be sure that it has.
const SETTLED: Duration = Duration::from_millis(100);
/// Steps that can be left out, or done wrong, to see that it is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Off {
    /// Loads of the program are not healed.
    HealLoads,
    /// A thread's stores are now and then not made.
    Stores,
    /// Loads answer now and then something else.
    Loads,
    /// What is stored is not covered before its page fails.
    Cover,
    /// Every page is called good.
    Verdicts,
    /// A page that did not fail is called damaged.
    Alarm,
    /// The repair does nothing and says that nothing is left to do.
    Repair,
}

impl Off {
    const ALL: [(&'static str, Self); 7] = [
        ("heal-loads", Self::HealLoads),
        ("stores", Self::Stores),
        ("loads", Self::Loads),
        ("cover", Self::Cover),
        ("verdicts", Self::Verdicts),
        ("alarm", Self::Alarm),
        ("repair", Self::Repair),
    ];

    /// What is left out by those names, if anything.
    fn of(names: &[String]) -> Judged<Option<Self>> {
        let Some(name) = names.first() else { return Ok(None) };
        let found = Self::ALL.iter().find(|(known, _)| known == name);
        let unknown = || refused("left out", &format!("nobody knows `{name}`"));
        found.map(|(_, off)| Some(*off)).ok_or_else(unknown)
    }
}

/// A thread does wrong what it does wrong once in so many times.
const WRONG_EACH: u64 = 64;

/// What the scene of the lab has to have seen.
const SHOWN: &str = "struck under load, and given back";

/// Lives of files, each with another way to track stores.
#[must_use]
pub fn run(orders: &Orders) -> Tally {
    let mut tally = Tally::default();
    let begun = Hands::begin();
    if let Err(error) = begun {
        tally.convict(refused("a handler", &error));
        return tally;
    }
    // On direct-access mappings, the kernel protects nothing for others.
    let ways = [Tracking::FirstStore, Tracking::Recorded, Tracking::AsyncProtect];
    let direct = matches!(orders.how, How::Sectors | How::Struck);
    let ways = &ways[..if direct { 2 } else { 3 }];
    for number in 0..orders.lives {
        let mut rng = Rng::part(orders.seed, number);
        let tracking = ways[(number % ways.len() as u64) as usize];
        let path = orders.folder.join(format!("file-{number}"));
        let off = Off::of(&orders.off);
        let begun = off.and_then(|off| Life::begin(path, orders.how, (tracking, off), &mut rng));
        let done = begun.and_then(|mut life| life.run(&mut rng, &mut tally));
        tally.judge(done.map_err(|v| v.during(format!("life {number}, {tracking:?}"))));
        if !orders.off.is_empty() && tally.violated() > 0 {
            break;
        }
    }
    tally
}

/// A file, and what it must hold.
struct Life {
    path: PathBuf,
    how: How,
    tracking: Tracking,
    off: Option<Off>,
    options: ProtectOptions,
    words: Vec<u64>,
    /// Pages that failed.
    failed: BTreeSet<u64>,
}

/// What a thread has stored, by word.
type Stored = BTreeMap<u64, u64>;

impl Life {
    fn begin(
        path: PathBuf,
        how: How,
        (tracking, off): (Tracking, Option<Off>),
        rng: &mut Rng,
    ) -> Judged<Self> {
        let words: Vec<u64> = (0..PAGES * WORDS).map(|_| rng.next_u64()).collect();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let written = std::fs::write(&path, bytes).and_then(|()| File::open(&path)?.sync_all());
        written.map_err(|error| refused("the file", &error))?;
        let options = ProtectOptions::new()
            .stripe(STRIPE as u32, 1)
            .period(Duration::from_secs(3600))
            .tracking(tracking)
            .heal_loads(off != Some(Off::HealLoads));
        let made = ProtectedFile::protect(&path, &options).and_then(ProtectedFile::close);
        made.map_err(|error| refused("protect", &error))?;
        Ok(Self { path, how, tracking, off, options, words, failed: BTreeSet::new() })
    }

    fn lose(&mut self, page: u64) -> Judged<()> {
        self.failed.insert(page);
        let lost = match self.how {
            // Only to be read: who opens it for writing is a stranger, and the file contested.
            How::Sectors => {
                File::open(&self.path).and_then(|file| lose_sectors(&file, page * PAGE))
            }
            // Of one that nobody has mapped, nobody is told: it is as it was.
            How::Memory | How::Struck => fail_elsewhere(&self.path, page * PAGE),
            How::Strays => Err(std::io::ErrorKind::Unsupported.into()),
        };
        lost.map_err(|error| refused(&format!("page {page} cannot be made to fail"), &error))
    }

    /// The same under the program's hands.
    fn lose_in_use(&mut self, hands: Hands, page: u64) -> Judged<()> {
        if self.how != How::Struck {
            return self.lose(page);
        }
        self.failed.insert(page);
        // What was covered only just then might have been covered after the failure.
        std::thread::sleep(SETTLED);
        let struck = hands.strike(page);
        struck.map_err(|error| refused(&format!("page {page} cannot be struck"), &error))
    }

    /// A page of a stripe in which none has failed, of those that are calm or those that are not.
    fn choose(&self, calm: bool, rng: &mut Rng) -> u64 {
        loop {
            let page = rng.below(PAGES);
            let whole = self.failed.iter().all(|failed| failed / STRIPE != page / STRIPE);
            if whole && (owner(page) >= WORKERS) == calm {
                return page;
            }
        }
    }

    fn run(&mut self, rng: &mut Rng, tally: &mut Tally) -> Judged<()> {
        let map = ProtectedMap::open(&self.path, &self.options);
        let map = map.map_err(|error| refused("open", &error))?;
        map.pause();
        let address = map.address().ok_or_else(|| wrong("nothing is mapped"))?;
        let hands = Hands::on(address);
        let stop = AtomicBool::new(false);
        let seeds: Vec<u64> = (0..WORKERS).map(|_| rng.next_u64()).collect();
        let base = self.words.clone();
        let (done, stored) = std::thread::scope(|scope| {
            let (map, stop, base) = (&map, &stop, &base[..]);
            let off = self.off;
            let start = |(thread, seed)| {
                scope.spawn(move || work((hands, base), (thread, seed), off, stop))
            };
            let workers: Vec<_> = (0..WORKERS).zip(seeds).map(start).collect();
            let done = self.under_load(map, hands, rng, tally);
            stop.store(true, Ordering::Release);
            let joined = workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|_| Err(wrong("a thread panicked"))));
            (done, joined.collect::<Judged<Vec<Stored>>>())
        });
        done?;
        for (word, value) in stored?.into_iter().flatten() {
            self.words[word as usize] = value;
        }
        self.settle(map, hands, tally)?;
        self.at_rest(rng, tally)
    }

    /// Pages fail while others are stored to.
    fn under_load(
        &mut self,
        map: &ProtectedMap,
        hands: Hands,
        rng: &mut Rng,
        tally: &mut Tally,
    ) -> Judged<()> {
        let busy = rng.below(CALM);
        for round in 0..CALM {
            let page = self.choose(true, rng);
            // Covered and not written back: of memory that fails, the device has something older.
            let word = page * WORDS + rng.below(WORDS);
            self.words[word as usize] = rng.next_u64();
            hands.store(word, self.words[word as usize]);
            if self.off != Some(Off::Cover) {
                let covered = map.update_now();
                covered.map_err(|error| refused("a pass", &error))?;
            }
            if round == busy {
                // Stored to by a thread that learns of it as it comes along.
                let page = self.choose(false, rng);
                self.lose_in_use(hands, page)?;
                tally.count += 1;
                tally.add("failed while they were stored to", 1);
            }
            self.lose_in_use(hands, page)?;
            tally.count += 1;
            tally.add("failed and loaded", 1);
            for word in page * WORDS..(page + 1) * WORDS {
                let found = hands.load(word);
                if hands.was_refused(page) {
                    break;
                }
                if found != self.words[word as usize] {
                    return Err(wrong(format!("a load of page {page} gave something else")));
                }
            }
            let right = !hands.was_refused(page);
            if right && self.how == How::Struck {
                tally.add(SHOWN, 1);
            }
            tally.add(if right { "given back to who loads" } else { "told who loads" }, 1);
            if !right && self.how != How::Sectors {
                // What the kernel tracks, a page whose memory is gone may count as stored to.
                let verdict = map.verify(page).map_err(|error| refused("verify", &error))?.verdict;
                let doubt = PageVerdict::Undecided(Unsure::MemoryFailed);
                if self.tracking != Tracking::AsyncProtect || verdict != doubt {
                    let story = format!("page {page} was covered, is not given back: {verdict:?}");
                    return Err(wrong(story));
                }
            }
            if round == 0 {
                let done = map.scrub().map_err(|error| refused("scrub", &error))?;
                tally.add("scrubs under load", u64::from(done.report.pages > 0));
            }
        }
        Ok(())
    }

    /// What the engine says of each page, and what it holds.
    fn settle(&mut self, map: ProtectedMap, hands: Hands, tally: &mut Tally) -> Judged<()> {
        let covered = map.update_now();
        covered.map_err(|error| refused("the last pass", &error))?;
        for page in 0..PAGES {
            let verdict = map.verify(page).map_err(|error| refused("verify", &error))?.verdict;
            let good = match self.off {
                Some(Off::Verdicts) => true,
                Some(Off::Alarm) if !self.failed.contains(&page) => false,
                _ => verdict == PageVerdict::Good,
            };
            self.held(page, good, hands.was_refused(page))?;
        }
        // The system may tell of memory that failed once more, when it is asked to sync.
        match map.close() {
            Ok(()) => tally.add("closed", 1),
            Err(_) if self.how == How::Memory => tally.add("closed with an error", 1),
            Err(error) => return Err(refused("close", &error)),
        }
        let found = self.verified()?;
        let told = told(&found);
        for page in 0..PAGES {
            self.held(page, !told.contains(&page), hands.was_refused(page))?;
        }
        tally.add("told in the end", told.len() as u64);
        Ok(())
    }

    /// A page that is called good is right, and only what failed is called anything else.
    fn held(&self, page: u64, good: bool, refused: bool) -> Judged<()> {
        let failed = self.failed.contains(&page);
        if !good && !failed {
            let story = format!("page {page} did not fail and is not called good");
            return Err(Violation::new(Fault::FalseReport, story));
        }
        let right = self.is_right(page);
        // A store that was refused reached nothing: what was there before may be.
        let stored = owner(page) < WORKERS && refused;
        if good && !right && !stored {
            return Err(wrong(format!("page {page} is called good and is not")));
        }
        if !failed && !right {
            let story = format!("page {page} did not fail and is not right");
            return Err(Violation::new(Fault::Reverted, story));
        }
        Ok(())
    }

    fn is_right(&self, page: u64) -> bool {
        let mut found = vec![0; PAGE as usize];
        let read = File::open(&self.path).and_then(|it| it.read_exact_at(&mut found, page * PAGE));
        let words = found.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let range = (page * WORDS) as usize..((page + 1) * WORDS) as usize;
        read.is_ok() && words.eq(self.words[range].iter().copied())
    }

    fn verified(&self) -> Judged<Verified> {
        let file = ProtectedFile::look(&self.path, &self.options);
        let found = file.and_then(|file| file.verify(|_, _| true));
        found.map_err(|error| refused("looking at the file at rest", &error))
    }

    /// A page fails at rest, and the file is repaired.
    fn at_rest(&mut self, rng: &mut Rng, tally: &mut Tally) -> Judged<()> {
        let page = self.choose(true, rng);
        self.lose(page)?;
        tally.count += 1;
        tally.add("failed at rest", 1);
        let told_before = told(&self.verified()?);
        if !self.is_right(page) && !told_before.contains(&page) {
            return Err(wrong(format!("page {page} failed at rest, and is called good")));
        }
        let file = ProtectedFile::open(&self.path, &self.options);
        let file = file.map_err(|error| refused("open at rest", &error))?;
        let done = match self.off {
            Some(Off::Repair) => Repaired::default(),
            _ => file.repair(false, |_, _| true).map_err(|error| refused("repair", &error))?,
        };
        let closed = file.close();
        closed.map_err(|error| refused("close at rest", &error))?;
        let right = self.is_right(page);
        let said = done.lost.contains(&page) || done.busy.contains(&page);
        if !right && !said && !done.undecided.iter().any(|(other, _)| *other == page) {
            return Err(wrong(format!("page {page} is not repaired, and not told: {done:?}")));
        }
        tally.add(if right { "repaired at rest" } else { "told at rest" }, 1);
        Ok(())
    }
}

/// Which thread stores to a page; more than there are for one that is calm.
fn owner(page: u64) -> u64 {
    page / STRIPE % 4
}

/// Pages that are called anything but good.
fn told(found: &Verified) -> BTreeSet<u64> {
    let undecided = found.undecided.iter().map(|(page, _)| *page);
    found.corrupt.iter().copied().chain(undecided).collect()
}

fn wrong(story: impl Into<String>) -> Violation {
    Violation::new(Fault::Wrong, story)
}

/// Stores to pages of its own and loads them, until it is stopped; answers what they hold.
fn work(
    (hands, base): (Hands, &[u64]),
    (thread, seed): (u64, u64),
    off: Option<Off>,
    stop: &AtomicBool,
) -> Judged<Stored> {
    let mut rng = Rng::new(seed);
    let now_and_then = |what, rng: &mut Rng| off == Some(what) && rng.below(WRONG_EACH) == 0;
    let own: Vec<u64> = (0..PAGES).filter(|page| owner(*page) == thread).collect();
    let mut stored = Stored::new();
    while !stop.load(Ordering::Acquire) {
        let Some(page) = rng.pick(&own).copied() else { break };
        if hands.was_refused(page) {
            continue;
        }
        let word = page * WORDS + rng.below(WORDS);
        let found = hands.load(word) ^ u64::from(now_and_then(Off::Loads, &mut rng));
        let was = stored.get(&word).copied().unwrap_or(base[word as usize]);
        if hands.was_refused(page) {
            continue;
        }
        if found != was {
            return Err(wrong(format!("page {page}, word {word} is not what was stored")));
        }
        let value = rng.next_u64();
        if !now_and_then(Off::Stores, &mut rng) {
            hands.store(word, value);
        }
        if !hands.was_refused(page) {
            stored.insert(word, value);
        }
        if rng.below(64) == 0 {
            std::thread::yield_now();
        }
    }
    Ok(stored)
}
