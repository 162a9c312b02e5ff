//! A protected file, mapped, on a disk whose block writes somebody logs: threads store to it and
//! sync, and mark on the disk that they have. And the judge of what the disk may hold after a power
//! cut (`cargo xtask lab`, scene `blocklog-mapped`).
//!
//! What each thread stores follows from the seed alone. So nothing needs to be said: the marks tell
//! how many syncs of each thread had come back, and the judge knows what they were about.
//!
//! The law: what was synced is there. A word holds what was synced last or something that its
//! thread stored since. No page is called corrupt, for nothing damaged any; and none is in doubt to
//! which nothing was stored since it was synced.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use holdfast::protect::{Durability, ProtectOptions, ProtectedFile, ProtectedMap};
use holdfast_pmem::PAGE;
use holdfast_workloads::Rng;
use serde::{Deserialize, Serialize};

use crate::object::images::{Image, serve};
use crate::object::marks::Marks;
use crate::object::victim::WORKERS;
use crate::tally::{Fault, Judged, Tally, Violation};

/// Pages of the file: of two regions, and some of a third.
const PAGES: u64 = 600;
/// Words of it.
const WORDS: u64 = PAGES * PAGE / 8;
/// Pages that are stored to again and again, among the others.
const HOT: u64 = 24;
/// Stores of a thread between two syncs, at most.
const MOST_STORES: u64 = 24;
/// Between two passes that nobody asks for.
const PERIOD: Duration = Duration::from_millis(15);

/// What is to be done.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Orders {
    /// The file, which is made.
    pool: PathBuf,
    /// The disk it lies on.
    disk: PathBuf,
    /// First byte of the marks there.
    marks: u64,
    /// Of everything random.
    seed: u64,
    /// A fourth of the syncs of each thread.
    jobs: u64,
    /// `sync`: syncs are left out and marked all the same; `sums`: of a sync, only the file's own
    /// bytes are seen to. Faults that must be found.
    off: Option<String>,
}

fn options() -> ProtectOptions {
    ProtectOptions::new().durability(Durability::Power).period(PERIOD).stripe(4, 1)
}

/// What a word holds at first.
const fn first(word: u64, seed: u64) -> u64 {
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed
}

/// What one thread stores, batch after batch, each followed by a sync.
#[derive(Debug)]
struct Stores {
    thread: u64,
    rng: Rng,
}

impl Stores {
    fn new(seed: u64, thread: usize) -> Self {
        Self { thread: thread as u64, rng: Rng::part(seed, thread as u64) }
    }

    /// Words and values. No two threads share a word; they share pages.
    fn batch(&mut self) -> Vec<(u64, u64)> {
        let rng = &mut self.rng;
        let count = 1 + rng.below(MOST_STORES);
        let store = |_| {
            let page = if rng.below(3) == 0 { rng.below(PAGES) } else { rng.below(HOT) * 25 };
            let workers = WORKERS as u64;
            let own = rng.below(PAGE / 8 / workers) * workers + self.thread;
            (page * (PAGE / 8) + own, rng.next_u64())
        };
        (0..count).map(store).collect()
    }
}

/// Does what the orders say, and says them.
#[must_use]
pub fn run(orders: &str) -> ExitCode {
    let Ok(parsed) = serde_json::from_str::<Orders>(orders) else { return ExitCode::from(2) };
    // Of all that is needed to judge, the judge has only what is said.
    print!("{orders}");
    match obey(&parsed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("logged: {error}");
            ExitCode::FAILURE
        }
    }
}

fn obey(orders: &Orders) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let marks = Arc::new(Marks::new(&orders.disk, orders.marks).map_err(|error| told(&error))?);
    let content: Vec<u8> =
        (0..WORDS).flat_map(|word| first(word, orders.seed).to_le_bytes()).collect();
    std::fs::write(&orders.pool, content).map_err(|error| told(&error))?;
    let file = ProtectedFile::protect(&orders.pool, &options()).map_err(|error| told(&error))?;
    file.close().map_err(|error| told(&error))?;
    // The names of both files, too.
    let folder = orders.pool.parent().unwrap_or(Path::new("."));
    let synced = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| told(&error))?;
    marks.made().map_err(|error| told(&error))?;
    let mut threads: Vec<Stores> = (0..WORKERS).map(|it| Stores::new(orders.seed, it)).collect();
    for _ in 0..4 {
        let map = ProtectedMap::open(&orders.pool, &options()).map_err(|error| told(&error))?;
        eprintln!("logged: stores are tracked by {:?}", map.tracking());
        std::thread::scope(|scope| {
            let (map, marks) = (&map, &marks);
            let workers: Vec<_> = (threads.iter_mut())
                .map(|stores| scope.spawn(move || work(map, marks, stores, orders)))
                .collect();
            for worker in workers {
                worker.join().map_err(|_| "a thread panicked".to_owned())??;
            }
            Ok::<_, String>(())
        })?;
        map.close().map_err(|error| told(&error))?;
    }
    Ok(())
}

fn work(
    map: &ProtectedMap,
    marks: &Marks,
    stores: &mut Stores,
    orders: &Orders,
) -> Result<(), String> {
    let file = std::fs::File::open(&orders.pool).map_err(|error| error.to_string())?;
    for _ in 0..orders.jobs {
        for (word, value) in stores.batch() {
            let stored = map.write(word * 8, &value.to_le_bytes());
            stored.map_err(|error| error.to_string())?;
        }
        match orders.off.as_deref() {
            None => map.sync().map_err(|error| error.to_string())?,
            Some("sync") => {}
            Some("sums") => file.sync_all().map_err(|error| error.to_string())?,
            Some(off) => return Err(format!("nobody knows `{off}`")),
        }
        marks.ended(stores.thread as u8);
    }
    Ok(())
}

/// Judges images as long as there are any. `said` has the orders.
#[must_use]
pub fn judge(said: &Path) -> ExitCode {
    let orders = std::fs::read_to_string(said).map_err(|error| error.to_string());
    let orders = orders
        .and_then(|text| serde_json::from_str::<Orders>(&text).map_err(|error| error.to_string()));
    match orders {
        Ok(orders) => {
            let mut known = Known::new(orders.seed);
            serve(|image, tally| known.judge(image, tally))
        }
        Err(error) => {
            eprintln!("images: {}: {error}", said.display());
            ExitCode::FAILURE
        }
    }
}

/// What is synced, and what may be on its way.
#[derive(Debug)]
struct Known {
    seed: u64,
    threads: Vec<Stores>,
    ended: Vec<u64>,
    /// Words that were stored to and synced; the others are as at first.
    synced: BTreeMap<u64, u64>,
    /// What each thread stores next.
    next: Vec<Vec<(u64, u64)>>,
}

impl Known {
    fn new(seed: u64) -> Self {
        let mut threads: Vec<Stores> = (0..WORKERS).map(|it| Stores::new(seed, it)).collect();
        let next = threads.iter_mut().map(Stores::batch).collect();
        Self { seed, threads, ended: vec![0; WORKERS], synced: BTreeMap::new(), next }
    }

    fn advance(&mut self, to: &[u64]) -> Judged<()> {
        let odd = |what: &str| Violation::new(Fault::Unnoticed, what.to_owned());
        if to.len() != self.ended.len() {
            return Err(odd("other threads are marked"));
        }
        for (thread, to) in to.iter().enumerate() {
            if *to < self.ended[thread] {
                return Err(odd("an image from before the last one"));
            }
            for _ in self.ended[thread]..*to {
                let batch = std::mem::replace(&mut self.next[thread], self.threads[thread].batch());
                self.synced.extend(batch);
            }
            self.ended[thread] = *to;
        }
        Ok(())
    }

    fn judge(&mut self, image: &Image, tally: &mut Tally) -> Judged<()> {
        self.advance(&image.ended)?;
        let refused = |what: &str, error: &dyn std::fmt::Display| {
            Violation::new(Fault::Refused, format!("{what}: {error}"))
        };
        let file = ProtectedFile::open(&image.pool, &options());
        let file = file.map_err(|error| refused("open", &error))?;
        let found = file.verify(|_, _| true).map_err(|error| refused("verify", &error))?;
        file.close().map_err(|error| refused("close", &error))?;
        let content = std::fs::read(&image.pool).map_err(|error| refused("read", &error))?;
        self.words(&content)?;
        let exposed = |story: String| Err(Violation::new(Fault::Exposed, story));
        if !found.corrupt.is_empty() || found.gone > 0 {
            let story = format!("pages {:?} are called corrupt", found.corrupt);
            return Err(Violation::new(Fault::FalseReport, story));
        }
        let touched: BTreeSet<u64> =
            self.next.iter().flatten().map(|(word, _)| word * 8 / PAGE).collect();
        if let Some((page, why)) = found.undecided.iter().find(|(it, _)| !touched.contains(it)) {
            return exposed(format!("page {page} is in doubt ({why:?}), and was synced"));
        }
        let doubted = found.undecided.len() as u64;
        if found.uncovered + doubted > touched.len() as u64 {
            return exposed(format!("{} pages are not covered", found.uncovered));
        }
        tally.add("pages in doubt", doubted);
        tally.add("pages verified", found.good);
        tally.add("syncs found again", self.ended.iter().sum());
        Ok(())
    }

    /// Each word is what was synced, or what its thread stored since.
    fn words(&self, content: &[u8]) -> Judged<()> {
        let (found, _) = content.as_chunks::<8>();
        if found.len() as u64 != WORDS {
            let story = format!("the file has {} bytes", content.len());
            return Err(Violation::new(Fault::Wrong, story));
        }
        let mut may: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (word, value) in self.next.iter().flatten() {
            may.entry(*word).or_default().push(*value);
        }
        for (word, found) in (0..).zip(found) {
            let found = u64::from_le_bytes(*found);
            let synced = self.synced.get(&word).copied();
            let synced = synced.unwrap_or_else(|| first(word, self.seed));
            if found != synced && may.get(&word).is_none_or(|may| !may.contains(&found)) {
                let story = format!("word {word} is {found:#x}, and {synced:#x} was synced");
                return Err(Violation::new(Fault::Wrong, story));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 5;

    fn content(known: &Known) -> Vec<u64> {
        let word = |word| known.synced.get(&word).copied().unwrap_or_else(|| first(word, SEED));
        (0..WORDS).map(word).collect()
    }

    fn judged(known: &Known, words: &[u64]) -> bool {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        known.words(&bytes).is_ok()
    }

    #[test]
    fn what_was_synced_must_be_there_and_what_was_stored_since_may() {
        let mut known = Known::new(SEED);
        let old = content(&known);
        known.advance(&[3, 0, 1]).unwrap();
        let mut words = content(&known);
        assert!(judged(&known, &words));
        assert!(!judged(&known, &old), "what was synced is lost");
        let (word, value) = known.next[1][0];
        words[word as usize] = value;
        assert!(judged(&known, &words));
        words[word as usize] ^= 1;
        assert!(!judged(&known, &words), "nobody stored that");
        assert!(known.advance(&[2, 0, 1]).is_err());
    }

    #[test]
    fn threads_share_pages_and_no_word() {
        let mut threads: Vec<_> = (0..WORKERS).map(|it| Stores::new(SEED, it)).collect();
        let mut words: Vec<BTreeSet<u64>> = Vec::new();
        for stores in &mut threads {
            words.push((0..50).flat_map(|_| stores.batch()).map(|(word, _)| word).collect());
        }
        let page = |word: &u64| word * 8 / PAGE;
        let pages: Vec<BTreeSet<u64>> =
            words.iter().map(|it| it.iter().map(page).collect()).collect();
        assert!(words[0].is_disjoint(&words[1]) && !pages[0].is_disjoint(&pages[1]));
        assert!(pages.iter().flatten().all(|page| *page < PAGES));
    }
}
