//! Looks at a pool again and again, and what changed from one to the next.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast::pmem::Clock;
use holdfast::{Latency, Observer, Space, WallClock};

use crate::commands::stats::{Snapshot, Told};
use crate::failure::Outcome;
use crate::session::OWNER_WAIT;

/// Looks whose throughput is kept.
const KEPT: usize = 120;
/// Counting the heap may take one part in so many of the time.
const SHARE: u32 = 20;

/// A look that fails is taken so often again, and so much later.
const AGAIN: u32 = 5;
const SOON: Duration = Duration::from_millis(20);

/// What the owner did in some time.
#[derive(Debug, Clone)]
pub(crate) struct Rates {
    /// Since it opened the pool, or since the last look.
    pub(crate) since_open: bool,
    pub(crate) commits: f64,
    pub(crate) transactions: f64,
    pub(crate) aborts: f64,
    pub(crate) conflicts: f64,
    pub(crate) verified: f64,
    pub(crate) reclaims: f64,
    pub(crate) syncs: f64,
    pub(crate) latency: Latency,
}

/// A look at a pool.
#[derive(Debug)]
pub(crate) struct View {
    /// When, in nanoseconds since 1970.
    pub(crate) time_ns: u64,
    pub(crate) now: Snapshot,
    /// Nothing if no owner answers.
    pub(crate) rates: Option<Rates>,
    /// Bytes a second that the scrub verifies, if one runs.
    pub(crate) scrubbed: Option<f64>,
    /// Commits a second at the last looks, oldest first.
    pub(crate) history: Vec<u64>,
}

impl View {
    /// What protects the pool, and whether that is whole, as far as anybody knows.
    pub(crate) fn redundancy(&self) -> String {
        let s = &self.now.superblock;
        let parity = match s.parity {
            0 => "no parity",
            1 => "P",
            _ => "P and Q",
        };
        let copies = if s.copies == 2 { "metadata and log twice" } else { "metadata and log once" };
        let mut text = format!("{parity}, {copies}");
        if !self.now.whole {
            text.push_str("; a copy of the superblock is bad");
        }
        let scrub = &self.now.scrub.progress;
        match (scrub.pass, scrub.lost + scrub.undecided) {
            (0, _) => text.push_str("; never scrubbed"),
            (_, 0) => {}
            (_, left) => text.push_str(&format!("; the last scrub left {left} damaged")),
        }
        text
    }
}

/// Takes looks.
pub(crate) struct Sampler {
    path: PathBuf,
    observer: Observer,
    clock: WallClock,
    counted: Option<(Space, Instant, Duration)>,
    last: Option<(Instant, Option<Told>, (u64, u64))>,
    history: VecDeque<u64>,
}

impl Sampler {
    pub(crate) fn open(path: &Path) -> Outcome<Self> {
        Ok(Self {
            path: path.to_path_buf(),
            observer: Observer::open(path)?,
            clock: WallClock::new(),
            counted: None,
            last: None,
            history: VecDeque::new(),
        })
    }

    /// Looks. A pool that grows meanwhile has parts that are told of before they are mapped: what
    /// is wrong for that reason is right soon after.
    pub(crate) fn sample(&mut self) -> Outcome<View> {
        for _ in 0..AGAIN {
            let view = self.look();
            if view.is_ok() {
                return view;
            }
            std::thread::sleep(SOON);
            if let Ok(observer) = Observer::open(&self.path) {
                (self.observer, self.counted) = (observer, None);
            }
        }
        self.look()
    }

    fn look(&mut self) -> Outcome<View> {
        use holdfast::pmem::Medium;
        if self.observer.superblock()?.size > self.observer.medium().len() {
            // It has grown beyond what is mapped.
            self.observer = Observer::open(&self.path)?;
            self.counted = None;
        }
        let begun = Instant::now();
        let space = match self.counted {
            Some((space, at, took)) if at.elapsed() < took * SHARE => space,
            _ => {
                let space = self.observer.space()?;
                self.counted = Some((space, Instant::now(), begun.elapsed()));
                space
            }
        };
        // Later looks are on time: an owner that comes is seen at the next one.
        let wait = if self.last.is_none() { OWNER_WAIT } else { Duration::ZERO };
        let now = Snapshot::take(&self.observer, Some(space), wait)?;
        let at = Instant::now();
        let last = self.last.take();
        let rates = now.told.as_ref().map(|told| {
            let earlier = last.as_ref().and_then(|(before, earlier, _)| {
                // One that opened the pool anew counts from nothing.
                let same = |earlier: &&Told| earlier.figures.nanos <= told.figures.nanos;
                let earlier = earlier.as_ref().filter(same)?;
                Some((at.duration_since(*before), earlier))
            });
            match earlier {
                Some((time, earlier)) => rates(told, earlier, time, false),
                None => {
                    let time = Duration::from_nanos(told.figures.nanos);
                    rates(told, &Told::default(), time, true)
                }
            }
        });
        let (pass, scanned) = (now.scrub.progress.pass, now.scrub.progress.scanned);
        let scrubbed =
            last.as_ref().filter(|_| now.scrub.running).and_then(|(before, _, (p, s))| {
                let more = scanned.checked_sub(*s).filter(|_| *p == pass)?;
                Some(per_second(more, at.duration_since(*before)))
            });
        if let Some(rates) = rates.as_ref().filter(|rates| !rates.since_open) {
            self.history.push_back(rates.commits as u64);
            if self.history.len() > KEPT {
                self.history.pop_front();
            }
        }
        self.last = Some((at, now.told.clone(), (pass, scanned)));
        let history = self.history.iter().copied().collect();
        Ok(View { time_ns: self.clock.now(), now, rates, scrubbed, history })
    }
}

fn rates(told: &Told, earlier: &Told, time: Duration, since_open: bool) -> Rates {
    let (now, then) = (&told.figures, &earlier.figures);
    let rate = |now: u64, then: u64| per_second(now.saturating_sub(then), time);
    let latency = told.latency.since(&earlier.latency);
    Rates {
        since_open,
        commits: rate(now.stats.commits, then.stats.commits),
        transactions: per_second(latency.count(), time),
        aborts: rate(now.stats.aborts, then.stats.aborts),
        conflicts: rate(now.stats.conflicts, then.stats.conflicts),
        verified: rate(now.stats.verified, then.stats.verified),
        reclaims: rate(now.stats.reclaims, then.stats.reclaims),
        syncs: rate(now.syncs, then.syncs),
        latency,
    }
}

fn per_second(count: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_over_time() {
        let mut told = Told::default();
        told.figures.stats.commits = 300;
        told.figures.stats.aborts = 7;
        told.figures.stats.verified = 50;
        told.figures.stats.reclaims = 3;
        told.figures.syncs = 10;
        let mut earlier = Told::default();
        earlier.figures.stats.commits = 100;
        earlier.figures.syncs = 20;
        let found = rates(&told, &earlier, Duration::from_millis(500), false);
        assert_eq!((found.commits, found.syncs, found.conflicts), (400.0, 0.0, 0.0));
        assert_eq!((found.aborts, found.verified, found.reclaims), (14.0, 100.0, 6.0));
        assert_eq!(per_second(7, Duration::ZERO), 0.0);
    }
}
