//! Threads that store all the time, each to its own lines of any page, and what they stored.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdfast_mapped::Writers;
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_workloads::Rng;

use super::real::{PAGES, Shared};

/// Threads that store.
pub const THREADS: u64 = 2;
/// Bytes of a line: what a thread owns.
const LINE: u64 = 64;
/// What they store.
const STORE: Site = Site::new("campaign.crowd");

/// The threads' gate, their pages, and what each word holds.
#[derive(Debug)]
pub struct Crowd {
    shadow: Vec<AtomicU64>,
    pages: Mutex<Vec<u64>>,
    closed: AtomicBool,
    inside: AtomicU64,
    over: AtomicBool,
    /// Lines stored.
    pub stores: AtomicU64,
}

impl Crowd {
    /// Nobody stores yet to a file with this content.
    #[must_use]
    pub fn new(content: &[u8]) -> Self {
        let word = |word: &[u8; 8]| AtomicU64::new(u64::from_le_bytes(*word));
        Self {
            shadow: content.as_chunks::<8>().0.iter().map(word).collect(),
            pages: Mutex::default(),
            closed: AtomicBool::new(true),
            inside: AtomicU64::new(0),
            over: AtomicBool::new(false),
            stores: AtomicU64::new(0),
        }
    }

    fn pages(&self) -> MutexGuard<'_, Vec<u64>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pages they may store to from now on.
    pub fn turn_to(&self, pages: Vec<u64>) {
        *self.pages() = pages;
    }

    /// They go home.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Whether they were told to.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// What a page must hold.
    #[must_use]
    pub fn page(&self, page: u64) -> Vec<u8> {
        let first = (page * PAGE / 8) as usize;
        let words = &self.shadow[first..first + PAGE as usize / 8];
        words.iter().flat_map(|word| word.load(Ordering::SeqCst).to_le_bytes()).collect()
    }

    /// One of the threads.
    pub fn store(&self, data: &Shared, thread: u64, mut rng: Rng) {
        while !self.over.load(Ordering::SeqCst) {
            let page = {
                let pages = self.pages();
                rng.pick(&pages).copied()
            };
            let Some(page) = page.filter(|page| *page < PAGES) else {
                std::thread::yield_now();
                continue;
            };
            // A line, or all of a page that this thread has; stopped between any two lines.
            let lines = PAGE / LINE / THREADS;
            let long = rng.below(8) == 0;
            let first = if long { 0 } else { rng.below(lines) };
            for line in first..if long { lines } else { first + 1 } {
                let at = page * PAGE + (line * THREADS + thread) * LINE;
                if !self.line(data, at, &mut rng, page) {
                    break;
                }
            }
            for _ in 0..rng.below(64) {
                std::hint::spin_loop();
            }
        }
    }

    /// Stores a line; false if the page is not to be stored to any more.
    fn line(&self, data: &Shared, at: u64, rng: &mut Rng, page: u64) -> bool {
        loop {
            self.inside.fetch_add(1, Ordering::SeqCst);
            if !self.closed.load(Ordering::SeqCst) {
                break;
            }
            self.inside.fetch_sub(1, Ordering::SeqCst);
            if self.over.load(Ordering::SeqCst) {
                return false;
            }
            std::thread::yield_now();
        }
        // The round may be over since the page was chosen.
        let mine = self.pages().contains(&page);
        if mine {
            let mut line = [0; LINE as usize];
            rng.fill(&mut line);
            for (word, bytes) in (at / 8..).zip(line.as_chunks::<8>().0) {
                self.shadow[word as usize].store(u64::from_le_bytes(*bytes), Ordering::SeqCst);
            }
            // A store to a mapping cannot fail while the file is as long as it was.
            let _ = data.put(STORE, at, &line);
            self.stores.fetch_add(1, Ordering::Relaxed);
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
        mine
    }
}

impl Writers for Crowd {
    fn freeze(&self) -> bool {
        self.closed.store(true, Ordering::SeqCst);
        while self.inside.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        true
    }

    fn thaw(&self) {
        self.closed.store(false, Ordering::SeqCst);
    }
}
